//! Runs all arms of a setting at all sizes.

use super::{rate_hz, Cell, Measured, Setting, SIZES};
use crate::experiments::transport::runner::Runner;
use crate::experiments::transport::session::{Place, SessionResults};
use crate::frame::report::Report;
use crate::frame::{Context, Raw, Result};
use crate::measure::arms::schedule;
use crate::measure::run::Run;
use crate::measure::samples::Sample;
use crate::measure::transport::{self as peers, Arm, Peers};

struct Order {
    rounds: usize,
    /// The number of additional rounds for arms that differ by a few percent only.
    more: usize,
    runs: Vec<(usize, usize, usize)>,
}

fn order(context: &Context, setting: &Setting, arms: &[Arm]) -> Order {
    let rounds: usize = match setting.place {
        Place::Processes(_) => context.pick(8, 2),
        Place::Pair => context.pick(6, 1),
        Place::Thread => context.pick(3, 1),
    };
    let more = match setting.place {
        Place::Thread => 0,
        _ => context.pick(16, 0),
    };
    let arm_and_size = |i: usize| (i / SIZES.len(), i % SIZES.len());
    let all = arms.len() * SIZES.len();
    let mut runs: Vec<(usize, usize, usize)> = schedule(all, rounds, &mut context.rng(setting.id))
        .into_iter()
        .map(|(round, i)| (round, arm_and_size(i).0, arm_and_size(i).1))
        .collect();
    // A comparison with the floor to within a few percent needs more samples of both arms.
    let close: Vec<usize> = (0..arms.len())
        .filter(|a| [peers::FUTEX, peers::ONBEAT].contains(&arms[*a]))
        .collect();
    let further = schedule(close.len() * SIZES.len(), more, &mut context.rng("close"));
    runs.extend(further.into_iter().map(|(round, i)| {
        let (arm, size) = arm_and_size(i);
        (rounds + round, close[arm], size)
    }));
    Order { rounds, more, runs }
}

pub fn measure<'s>(
    context: &Context,
    report: &mut Report,
    peers: &Peers,
    setting: &'s Setting,
    raw: &mut Raw,
) -> Result<Measured<'s>> {
    let arms = peers.of(setting.arms);
    let Order { rounds, more, runs } = order(context, setting, &arms);
    context.step(
        format!("latency {}, {rounds} rounds", setting.title),
        120 + runs.len() as u64 * 6,
    );
    let mut runners: Vec<Runner> = arms
        .iter()
        .map(|arm| Runner::new(peers, *arm, setting.place, setting.title))
        .collect();
    let mut measured = Measured::new(setting, arms, rounds + more);
    for (round, a, s) in runs {
        let (arm, bytes) = (measured.arms[a], SIZES[s]);
        let rate_hz = rate_hz(&arm, bytes);
        let seconds = if round < rounds {
            context.pick(0.35, 0.3)
        } else {
            0.2
        };
        let run = Run {
            bytes,
            other_bytes: None,
            rate_hz,
            count: ((rate_hz * seconds) as u32).max(20),
        };
        let Some(results) = runners[a].run(context, report, run) else {
            continue;
        };
        for sample in &results.samples {
            raw.line(format_args!(
                "{},{bytes},{},{round},{},{}",
                setting.id,
                arm.name.replace(',', ""),
                sample.latency_us(),
                sample.since_due_us(),
            ))?;
        }
        let latencies = results.samples.iter().map(Sample::latency_us);
        measured.samples[s].extend(round, a, latencies);
        measured.cells[s][a].add(&results, run.count);
    }
    Ok(measured)
}

impl Cell {
    fn add(&mut self, results: &SessionResults, sent: u32) {
        self.usage += results.usage;
        self.lost += results.lost;
        self.sent += u64::from(sent);
        self.from_due
            .extend(results.samples.iter().map(Sample::since_due_us));
    }
}
