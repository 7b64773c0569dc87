//! What recording adds to the latency of a message between two compiled nodes.

mod cell;
mod figures;
mod nodes;
mod pair;
mod tables;

use super::lttng::Lttng;
use crate::frame::report::Report;
use crate::frame::{Context, LabError};
use crate::measure::arms::ArmSamples;
use crate::measure::{native, ros};
use figures::Added;
use nodes::Nodes;
use std::path::Path;
use std::time::Duration;

const SOURCE: &str = include_str!("../../../../native/latency.c");
/// The first two are a pair of nodes that runs all the time, with a recorder or without; the others are
/// pairs that are started for each segment: alone, with onbeat's preloaded library, with LTTng.
const ARMS: [&str; 5] = ["off", "onbeat", "started", "preload", "lttng"];
const FRESH: usize = 2;
const PRELOAD: usize = 3;
const LTTNG: usize = 4;

/// Scheduling of the two nodes' processes. As real-time threads they are not disturbed by other
/// programs, so that what remains is the cost of the probes; as normal ones they compete with the
/// recorder, too.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Policy {
    Normal,
    RealTime,
}

impl Policy {
    fn name(self) -> &'static str {
        match self {
            Policy::Normal => "normal",
            Policy::RealTime => "realtime",
        }
    }
}

/// What one cell of the experiment sets.
#[derive(Debug, Clone, Copy)]
struct Setting {
    policy: Policy,
    rate_hz: u32,
    kib: u32,
}

impl Setting {
    fn title(&self) -> String {
        format!(
            "{} at {} Hz with {} KiB",
            self.policy.name(),
            self.rate_hz,
            self.kib
        )
    }

    fn id(&self) -> String {
        format!("{}.{}hz.{}kib", self.policy.name(), self.rate_hz, self.kib)
    }
}

/// Where a latency begins.
#[derive(Debug, Clone, Copy, PartialEq)]
enum From {
    /// At the start of the publishing callback, as the thesis and ros2_tracing have it.
    Callback,
    /// At the time that the callback was due: what delays its start counts too.
    Release,
}

/// One combination of policy, rate and size.
struct Cell {
    setting: Setting,
    /// From the start of the publishing callback to the start of the receiving one, us.
    message: ArmSamples,
    /// From the intended start of the publishing callback on, us.
    release: ArmSamples,
    /// Messages published while an arm was measured, and those of them that arrived.
    sent: [u64; ARMS.len()],
    arrived: [u64; ARMS.len()],
    /// Events that the recorder lost.
    lost_events: u64,
}

impl From {
    /// In names of figures.
    fn id(self) -> &'static str {
        match self {
            From::Callback => "callback",
            From::Release => "release",
        }
    }

    fn title(self) -> &'static str {
        match self {
            From::Callback => "the start of the publishing callback",
            From::Release => "its intended start",
        }
    }
}

impl Cell {
    fn samples(&self, from: From) -> &ArmSamples {
        match from {
            From::Callback => &self.message,
            From::Release => &self.release,
        }
    }
}

/// The measurement.
pub fn measure(context: &mut Context, report: &mut Report) -> Result<(), LabError> {
    let env = context.ros_env("kilted")?;
    let libraries = [
        "std_msgs__rosidl_typesupport_c",
        "std_msgs__rosidl_generator_c",
    ];
    let program = native::compile(
        "latency",
        &ros::with_python_symbols(SOURCE, &env)?,
        &ros::link_arguments(&env, &libraries)?,
    )?;
    let cells = measure_cells(context, report, &program, &env)?;
    write(context, &cells)?;
    for policy in [Policy::RealTime, Policy::Normal] {
        let of_policy = cells.iter().filter(|c| c.setting.policy == policy);
        let of_policy: Vec<&Cell> = of_policy.collect();
        if of_policy.is_empty() {
            continue;
        }
        for from in [From::Callback, From::Release] {
            summarise(context, report, policy, from, &of_policy);
        }
        figures::plot(context, policy, &of_policy)?;
    }
    figures::totals(report, &cells);
    Ok(())
}

/// Policies, sizes and rates to measure.
fn settings(context: &Context) -> Vec<Setting> {
    let rates: &[u32] = context.pick(&[100, 500, 2000], &[100, 2000]);
    let sizes: &[u32] = context.pick(&[1, 64, 256], &[1, 64]);
    let ends = [(rates.first(), sizes.first()), (rates.last(), sizes.last())];
    let mut settings = vec![];
    for policy in [Policy::RealTime, Policy::Normal] {
        for &kib in sizes {
            for &rate_hz in rates {
                // Normal threads mostly show the influence of others: two are enough.
                if policy == Policy::RealTime || ends.contains(&(Some(&rate_hz), Some(&kib))) {
                    settings.push(Setting {
                        policy,
                        rate_hz,
                        kib,
                    });
                }
            }
        }
    }
    settings
}

fn measure_cells(
    context: &Context,
    report: &mut Report,
    program: &Path,
    env: &Path,
) -> Result<Vec<Cell>, LabError> {
    let rounds = context.pick(8, 4);
    let lttng = Lttng::start(context);
    if let Err(e) = &lttng {
        report.skip("the arm with LTTng", e);
    }
    let nodes = Nodes {
        program,
        env,
        lttng: lttng.ok(),
    };
    let mut cells = vec![];
    for setting in settings(context) {
        // Enough messages for a 99th percentile also at the lowest rate.
        let segment = Duration::from_millis(if context.quick() {
            1500
        } else {
            (200_000 / setting.rate_hz).clamp(1500, 2500).into()
        });
        let title = setting.title();
        context.step(
            &format!("latency, {title}, {rounds} rounds of off, onbeat, preload and LTTng"),
            segment * rounds as u32 * 50 + Duration::from_secs(120),
        );
        // One combination that fails does not take the others with it.
        match cell::measure(context, &nodes, setting, rounds, segment) {
            Ok(measured) => cells.push(measured),
            Err(e) => report.note(format!("not measured: {title}: {e}")),
        }
    }
    if cells.is_empty() {
        return Err(LabError::unexpected(
            "the latency of messages",
            "no combination of rate and size could be measured",
        ));
    }
    Ok(cells)
}

fn write(context: &mut Context, cells: &[Cell]) -> Result<(), LabError> {
    let head = "policy,rate_hz,kib,from,arm,round,latency_us";
    let mut raw = context.raw("latency.csv", head)?;
    for cell in cells {
        let Setting {
            policy,
            rate_hz,
            kib,
        } = cell.setting;
        for from in [From::Callback, From::Release] {
            let prefix = format!("{},{rate_hz},{kib},{},", policy.name(), from.id());
            cell.samples(from).write(&mut raw, &prefix)?;
        }
    }
    raw.finish()
}

fn summarise(context: &Context, report: &mut Report, policy: Policy, from: From, cells: &[&Cell]) {
    let mut rng = context.rng("interval");
    let added: Vec<Added> = cells
        .iter()
        .map(|cell| Added::of(cell, from, &mut rng))
        .collect();
    for (cell, added) in cells.iter().zip(&added) {
        figures::of_cell(report, cell, from, added);
    }
    report
        .tables
        .push(tables::latencies(policy, from, cells, &added));
    figures::over_cells(report, policy, from, &added, &mut rng);
    figures::of_fresh(report, policy, from, cells, PRELOAD, &mut rng);
    if cells.iter().any(|c| c.arrived[LTTNG] > 0) {
        figures::of_fresh(report, policy, from, cells, LTTNG, &mut rng);
    }
}
