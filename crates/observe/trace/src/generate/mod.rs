//! Generates traces of an invented but plausible ROS 2 system, of any length, in constant memory.
//!
//! Eight processes run on four CPUs. Half of them have the exact callback events of rclcpp, the
//! other half only the events of rclpy. A simulation runs their timers, subscriptions, a service
//! and its two clients. Threads wait for each other's CPU and are preempted now and then.
mod dense;
mod init;
mod random;
mod simulation;
mod system;

pub use dense::{Dense, DenseOutput, DenseTruth};

use crate::manifest::{Machine, Manifest, Observed, ProcessInfo, Span};
use crate::writer::{TraceWriteError, Writer};
use simulation::Simulation;
use system::{pid, NODES};

const MS: u64 = 1_000_000;
const START_NS: u64 = 1_000_000 * MS;
const OFFSET_NS: i64 = 1_750_000_000_000_000_000;
const CPUS: usize = 4;

/// Writes `events` events of a simulated system into `writer`. Returns the manifest with which the
/// caller must finish the writer. Equal seeds give equal traces.
pub fn generate(writer: &mut Writer, events: u64, seed: u64) -> Result<Manifest, TraceWriteError> {
    let mut simulation = Simulation::new(seed);
    let mut left = events;
    let mut end_ns = START_NS;
    let mut next_offset_ns = START_NS;
    while left > 0 {
        let Some((time_ns, step)) = simulation.next_step() else {
            break;
        };
        if time_ns >= next_offset_ns {
            simulation.offset(next_offset_ns);
            next_offset_ns += 1000 * MS;
        }
        // No later step makes an event before this time.
        while left > 0 {
            let Some(event) = simulation.next_event(time_ns) else {
                break;
            };
            end_ns = event.time_ns;
            writer.push(&event)?;
            left -= 1;
        }
        simulation.step(time_ns, step);
    }
    Ok(manifest(end_ns - START_NS))
}

fn manifest(duration_ns: u64) -> Manifest {
    Manifest {
        mode: "generated".to_string(),
        span: Span {
            start_realtime_ns: START_NS.wrapping_add_signed(OFFSET_NS),
            start_monotonic_ns: START_NS,
            duration_ns,
        },
        machine: Machine {
            hostname: "generated".to_string(),
            recorder_version: env!("CARGO_PKG_VERSION").to_string(),
            ..Machine::default()
        },
        observed: Observed {
            distributions: vec!["kilted".to_string()],
            processes: processes(),
            ..Observed::default()
        },
        ..Manifest::default()
    }
}

fn processes() -> Vec<ProcessInfo> {
    NODES
        .iter()
        .enumerate()
        .map(|(number, (name, _, _))| ProcessInfo {
            pid: pid(number),
            command: format!("/opt/system/{name}"),
            distribution: "kilted".to_string(),
            rmw: "rmw_fastrtps_cpp".to_string(),
            late: false,
            nodes: vec![format!("/{name}")],
        })
        .collect()
}
