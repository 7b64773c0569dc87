//! Runs all arms of a setting at all sizes.

use super::{rate_hz, Cell, Measured, Setting, SIZES};
use crate::experiments::transport::runner::Runner;
use crate::experiments::transport::session::{Place, SessionResults};
use crate::frame::report::Report;
use crate::frame::{Context, Kept, Raw, Result};
use crate::measure::run::Run;
use crate::measure::samples::Sample;
use crate::measure::transport::{self as peers, Arm, Peers};

/// Returns the number of rounds for all arms, and the number of additional rounds for arms that
/// differ by only a few percent.
fn rounds(context: &Context, setting: &Setting) -> (usize, usize) {
    let rounds: usize = match setting.place {
        Place::Processes(_) => context.pick(8, 3),
        Place::Pair => context.pick(6, 3),
        Place::Thread => context.pick(3, 3),
    };
    let more = match setting.place {
        Place::Thread => 0,
        _ => context.pick(16, 0),
    };
    (rounds, more)
}

pub fn measure<'s>(
    context: &Context,
    report: &mut Report,
    peers: &Peers,
    setting: &'s Setting,
    raw: &mut Raw,
) -> Result<Measured<'s>> {
    let arms = peers.of(setting.arms);
    let (rounds, more) = rounds(context, setting);
    let runs = (rounds * arms.len() + 2 * more) * SIZES.len();
    context.step(
        format!("latency {}, {rounds} rounds", setting.title),
        120 + runs as u64 * 12,
    );
    let mut runners: Vec<Runner> = arms
        .iter()
        .map(|arm| Runner::new(peers, *arm, setting.place, setting.title))
        .collect();
    let mut measured = Measured::new(setting, arms, rounds);
    let mut measure = |measured: &mut Measured<'s>,
                       (round, a, s): (usize, usize, usize),
                       seconds: f64|
     -> Result<()> {
        let (arm, bytes): (Arm, usize) = (measured.arms[a], SIZES[s]);
        let rate_hz = rate_hz(&arm, bytes);
        let run = Run {
            bytes,
            other_bytes: None,
            rate_hz,
            count: ((rate_hz * seconds) as u32).max(20),
        };
        let Some(results) = runners[a].run(context, report, run) else {
            return Ok(());
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
        Ok(())
    };
    let all: Vec<usize> = (0..measured.arms.len()).collect();
    // `FUTEX` is the floor, and onbeat differs from it by only a few percent, so both need more samples.
    let is_close = |a: &usize| [peers::FUTEX, peers::ONBEAT].contains(&measured.arms[*a]);
    let close: Vec<usize> = all.iter().copied().filter(is_close).collect();
    let mut kept = Kept::default();
    for (purpose, arms, rounds, seconds) in [
        (setting.id, all, rounds, context.pick(0.35, 0.3)),
        ("close", close, more, 0.2),
    ] {
        let mut turns = context.turns(purpose, arms.len() * SIZES.len(), rounds);
        for (round, i) in turns.by_ref() {
            let place = (kept.all() + round, arms[i / SIZES.len()], i % SIZES.len());
            measure(&mut measured, place, seconds)?;
        }
        kept = kept.then(&turns.finish());
    }
    let samples = measured.samples.iter_mut();
    samples.for_each(|samples| samples.keep(kept.clone()));
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
