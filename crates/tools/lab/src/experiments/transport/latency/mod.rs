//! Latency from publishing to processing by message size: between processes, between two threads,
//! and within one thread.

mod figures;
mod run;
mod tables;

use super::session::Place;
use crate::frame::report::Report;
use crate::frame::size::{size_id, size_name};
use crate::frame::{Context, Kept, Result};
use crate::measure::arms::ArmSamples;
use crate::measure::peer::Usage;
use crate::measure::stats::Sorted;
use crate::measure::transport::{self as peers, Arm, Peers};
use crate::plot::{curves, percentiles, Curve};

const SIZES: [usize; 6] = [64, 1024, 16_384, 262_144, 1 << 20, 4 << 20];

const DETAILED: [usize; 4] = [64, 16_384, 1 << 20, 4 << 20];

const RATE_HZ: f64 = 500.0;

struct Setting {
    id: &'static str,
    title: &'static str,
    place: Place,
    arms: &'static [Arm],
}

const SETTINGS: [Setting; 3] = [
    Setting {
        id: "processes",
        title: "between two processes (Figure 1)",
        place: Place::Processes(1),
        arms: &peers::BETWEEN_PROCESSES,
    },
    Setting {
        id: "threads",
        title: "between two threads of a process",
        place: Place::Pair,
        arms: &[
            peers::FUTEX,
            peers::ONBEAT,
            peers::ONBEAT_BUSY,
            peers::ICEORYX2,
            peers::ICEORYX2_BUSY,
        ],
    },
    Setting {
        id: "thread",
        title: "within a thread (Figure 2)",
        place: Place::Thread,
        arms: &[
            peers::ONBEAT_CHAIN,
            peers::ONBEAT,
            peers::ICEORYX2_BUSY,
            peers::CYCLONE_ICEORYX,
            peers::CYCLONE,
            peers::FAST,
            peers::ROS2,
        ],
    },
];

/// Returns how many messages of this size an arm sends per second. Arms that copy messages cannot
/// send large messages at a high rate.
pub fn rate_hz(arm: &Arm, bytes: usize) -> f64 {
    match bytes {
        _ if !arm.copies => RATE_HZ,
        b if b <= 65_536 => RATE_HZ,
        b if b <= 262_144 => 200.0,
        b if b <= 1 << 20 => 100.0,
        _ => 25.0,
    }
}

#[derive(Clone, Default)]
struct Cell {
    usage: Usage,
    lost: u64,
    sent: u64,
    from_due: Vec<f64>,
}

struct Measured<'s> {
    setting: &'s Setting,
    arms: Vec<Arm>,
    samples: Vec<ArmSamples>,
    cells: Vec<Vec<Cell>>,
}

pub fn measure(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<()> {
    let mut raw = context.raw(
        "latency.csv",
        "where,bytes,arm,round,latency_us,from_due_us",
    )?;
    for setting in &SETTINGS {
        let measured = run::measure(context, report, peers, setting, &mut raw)?;
        summarise(context, report, &measured)?;
    }
    raw.finish()?;
    report.note(
        "Latency is the time from the call that publishes, including the loan, until the receiver has read the first and the last byte. Each side has its own CPU, and publishers send on a fixed time grid",
    );
    report.note(
        "Polling receivers are real-time threads. If normal threads starve, the kernel takes 50 ms of each second from real-time threads, which explains the maxima of some arms",
    );
    report.note(
        "Large messages are sent at lower rates in arms that copy (200 Hz at 256 KiB, 100 Hz at 1 MiB, 25 Hz at 4 MiB). All other messages are sent at 500 Hz",
    );
    Ok(())
}

impl<'s> Measured<'s> {
    fn new(setting: &'s Setting, arms: Vec<Arm>, rounds: usize) -> Measured<'s> {
        let names: Vec<&str> = arms.iter().map(|a| a.name).collect();
        Measured {
            setting,
            samples: vec![ArmSamples::new(&names, rounds); SIZES.len()],
            cells: vec![vec![Cell::default(); arms.len()]; SIZES.len()],
            arms,
        }
    }

    fn arm(&self, wanted: &Arm) -> Option<usize> {
        self.arms.iter().position(|a| a == wanted)
    }

    /// Combines the samples of arms `a` and `b` over all message sizes. For resampling, each round
    /// of each size is a round of its own.
    fn over_sizes(&self, a: usize, b: usize) -> ArmSamples {
        let mut all = ArmSamples::new(
            &[self.arms[a].name, self.arms[b].name],
            self.samples.iter().map(ArmSamples::rounds).sum(),
        );
        let mut kept = Kept::default();
        for samples in &self.samples {
            for round in 0..samples.rounds() {
                let block = kept.all() + round;
                all.extend(block, 0, samples.of(round, a).iter().copied());
                all.extend(block, 1, samples.of(round, b).iter().copied());
            }
            kept = kept.then(&samples.kept());
        }
        all.keep(kept);
        all
    }
}

fn summarise(context: &mut Context, report: &mut Report, measured: &Measured<'_>) -> Result<()> {
    tables::add(report, measured);
    figures::lost(report, measured);
    figures::medians(report, measured);
    plot(context, measured)?;
    figures::wake_ups(context, report, measured);
    figures::busy(context, report, measured);
    Ok(())
}

fn plot(context: &mut Context, measured: &Measured<'_>) -> Result<()> {
    let setting = measured.setting;
    let medians: Vec<Curve> = measured
        .arms
        .iter()
        .enumerate()
        .map(|(a, arm)| Curve {
            name: arm.name.to_string(),
            colour: arm.colour,
            dashed: arm.spins,
            points: SIZES
                .iter()
                .enumerate()
                .filter(|(s, _)| !measured.samples[*s].pooled(a).is_empty())
                .map(|(s, bytes)| (*bytes as f64, measured.samples[s].pooled(a).quantile(0.5)))
                .collect(),
        })
        .collect();
    let title = format!("Median latency {}", setting.title);
    let ticks = SIZES.map(|bytes| (bytes as f64, size_name(bytes)));
    context.plot(
        &format!("latency-{}.svg", setting.id),
        &curves(&title, ("size of the message", "us"), &ticks, &medians)?,
    )?;
    for s in [0, SIZES.len() - 2] {
        let series: Vec<(&str, Sorted)> = measured
            .arms
            .iter()
            .enumerate()
            .map(|(a, arm)| (arm.name, measured.samples[s].pooled(a)))
            .collect();
        let title = format!("Latency {}, {}", setting.title, size_name(SIZES[s]));
        context.plot(
            &format!("latency-{}-{}.svg", setting.id, size_id(SIZES[s])),
            &percentiles(&title, "us", &series)?,
        )?;
    }
    Ok(())
}
