//! Arms: an application under a plan, run in turns with others, and what came of it.

use super::app::{onbeat, App, DOMAIN};
use crate::frame::children::Guarded;
use crate::frame::report::Report;
use crate::frame::rng::Rng;
use crate::frame::{Context, LabError};
use crate::measure::arms::schedule;
use crate::measure::stats::Sorted;
use crate::plot;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// An application under one plan.
pub(super) struct Arm<'a> {
    /// Name in tables and plots.
    pub name: String,
    /// The application.
    pub app: &'a App,
    /// Its plan.
    pub plan: PathBuf,
}

/// Cycles of a run that are not counted: the first ones, and what is under way at its end.
const UNCOUNTED: u64 = 8;

/// How arms take turns.
#[derive(Clone, Copy)]
pub(super) struct Turns {
    /// Executions of each arm, over all rounds.
    pub executions: u64,
    /// Rounds: starts of each arm.
    pub rounds: usize,
    /// The arm that the others are held against: it runs before each of them, so that it has as many
    /// starts as they have together.
    pub baseline: Option<usize>,
}

impl Turns {
    /// Every arm once in each round.
    pub fn even(executions: u64, rounds: usize) -> Turns {
        Turns {
            executions,
            rounds,
            baseline: None,
        }
    }

    /// `(run, arm)` in order; runs of an arm are counted from 0.
    fn order(&self, arms: usize, rng: &mut Rng) -> Vec<(usize, usize)> {
        let turns = schedule(arms, self.rounds, rng);
        let Some(baseline) = self.baseline.filter(|_| arms > 1) else {
            return turns;
        };
        let others = turns.into_iter().filter(|(_, arm)| *arm != baseline);
        others
            .enumerate()
            .flat_map(|(i, turn)| [(i, baseline), turn])
            .collect()
    }
}

/// What came of an arm over all its runs.
#[derive(Default)]
pub(super) struct Outcome {
    /// End-to-end latencies in ms, in order, without discarded outputs.
    pub latency_ms: Vec<f64>,
    /// Band of each of these, from 1; none outside of all.
    pub band: Vec<Option<u32>>,
    /// Outputs that came after their last slot, and those that were discarded.
    pub late: u64,
    /// See above.
    pub dropped: u64,
    /// How far threads ran outside their slots, p99.9 of each run, ms.
    pub outside_ms: Vec<f64>,
    /// CPU time of onbeat and of its shaper over the time shaped, % of a core, of each run.
    pub cpu: Vec<(f64, f64)>,
    /// What the listener outside saw: from the start of the first callback to its arrival, ms.
    pub heard_ms: Vec<f64>,
    /// Sentences that the command said of overruns.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Latencies in ascending order.
    pub fn sorted(&self) -> Sorted {
        Sorted::new(self.latency_ms.iter().copied())
    }

    /// Half of the range from p0.5 to p99.5, ms.
    pub fn jitter_ms(&self) -> f64 {
        let sorted = self.sorted();
        (sorted.quantile(0.995) - sorted.quantile(0.005)) / 2.0
    }

    /// Half of the whole range, ms: the jitter as the thesis has it.
    pub fn full_jitter_ms(&self) -> f64 {
        let sorted = self.sorted();
        (sorted.quantile(1.0) - sorted.quantile(0.0)) / 2.0
    }

    /// The same within each band.
    pub fn band_jitters_ms(&self) -> Vec<f64> {
        let bands = self.band.iter().flatten().copied().max().unwrap_or(0);
        (1..=bands)
            .map(|b| {
                let inside = self.latency_ms.iter().zip(&self.band);
                let sorted = Sorted::new(
                    inside
                        .filter(|(_, band)| **band == Some(b))
                        .map(|(l, _)| *l),
                );
                (sorted.quantile(0.995) - sorted.quantile(0.005)) / 2.0
            })
            .collect()
    }

    /// Share of executions whose output left in a slot, 0 to 1.
    pub fn inside(&self) -> f64 {
        let inside = self.band.iter().flatten().count();
        inside as f64 / self.band.len().max(1) as f64
    }
}

/// Runs the arms in turns; writes all samples to `file`.
pub(super) fn run(
    context: &mut Context,
    report: &mut Report,
    file: &str,
    arms: &[Arm<'_>],
    turns: Turns,
) -> Result<Vec<Outcome>, LabError> {
    let mut outcomes: Vec<Outcome> = arms.iter().map(|_| Outcome::default()).collect();
    let mut raw = context.raw(
        &format!("{file}.csv"),
        "arm,run,execution,latency_ms,band,late,dropped",
    )?;
    let order = turns.order(arms.len(), &mut context.rng(file));
    let all = order.len();
    let mut failed = 0;
    for (turn, (round, arm)) in order.into_iter().enumerate() {
        let Arm { name, app, plan } = &arms[arm];
        let executions = turns.executions / turns.rounds as u64 + UNCOUNTED;
        let seconds = (executions * app.cycle_ms).div_ceil(1000) + 1;
        let limit = seconds + 150;
        context.step(
            &format!("{file}: {name}, turn {} of {all}", turn + 1),
            Duration::from_secs(limit + 60),
        );
        let samples = context.dir().join(format!("{file}.samples.new"));
        let mut words: Vec<String> = vec!["shape".into(), plan.display().to_string()];
        words.extend(["--verify".into(), format!("{seconds}s"), "--json".into()]);
        words.extend([
            "--samples".into(),
            samples.display().to_string(),
            "--".into(),
        ]);
        words.extend(app.command.iter().cloned());
        // The application is stopped before its end and may say so; promises may not be kept.
        let mut listener = match &app.listener {
            Some((stage, topic)) => Some(Listener::start(context, stage, topic)?),
            None => None,
        };
        let said = onbeat(context, &words, &[0, 1, 5, 130], limit);
        let heard = match &mut listener {
            Some(listener) => listener.heard()?,
            None => Vec::new(),
        };
        let said = match said {
            Ok(said) if !said.trim().is_empty() => said,
            Ok(_) => {
                failed += 1;
                report.note(format!(
                    "{file}: {name}, run {}: nothing came of it",
                    round + 1
                ));
                continue;
            }
            // One round that fails is told; all that fail are an error below.
            Err(error) => {
                failed += 1;
                report.note(format!("{file}: {name}, run {}: {error}", round + 1));
                continue;
            }
        };
        let said: Value =
            serde_json::from_str(&said).map_err(|e| LabError::unexpected("onbeat shape", e))?;
        let text =
            std::fs::read_to_string(&samples).map_err(LabError::file("reading", &samples))?;
        let _ = std::fs::remove_file(&samples);
        let outcome = &mut outcomes[arm];
        let mut starts: Vec<u64> = Vec::new();
        for (number, line) in text.lines().skip(1).enumerate() {
            let cells: Vec<&str> = line.split(',').collect();
            let [_, _, _, _, latency, _, band, late, dropped] = cells[..] else {
                return Err(LabError::unexpected("a line of samples", line));
            };
            starts.extend(cells[1].parse::<u64>());
            let latency_ms = latency.parse::<f64>().unwrap_or(f64::NAN) / 1e6;
            raw.line(format_args!(
                "{name},{round},{number},{latency_ms},{band},{late},{dropped}"
            ))?;
            outcome.late += u64::from(late == "1");
            if dropped == "1" {
                outcome.dropped += 1;
            } else {
                outcome.latency_ms.push(latency_ms);
                outcome.band.push(band.parse().ok());
            }
        }
        let shaped =
            starts.first().copied().unwrap_or(u64::MAX)..=starts.last().copied().unwrap_or(0);
        let while_shaped = heard.iter().filter(|(start, _)| shaped.contains(start));
        outcome
            .heard_ms
            .extend(while_shaped.map(|(start, at)| (at - start) as f64 / 1e6));
        let figure = |name: &str| {
            let figures = said["figures"].as_array()?;
            figures.iter().find(|f| f["name"] == name)?["measured"].as_f64()
        };
        outcome
            .outside_ms
            .extend(figure("run outside a slot, p99.9"));
        if let Some(own) = figure("CPU of onbeat") {
            outcome
                .cpu
                .push((own, figure("CPU of the shaper").unwrap_or(0.0)));
        }
        let notes = said["notes"].as_array().into_iter().flatten();
        outcome
            .notes
            .extend(notes.filter_map(|n| n.as_str()).map(str::to_owned));
    }
    raw.finish()?;
    if let Some(empty) = outcomes.iter().position(|o| o.latency_ms.is_empty()) {
        return Err(LabError::unexpected(
            format!("{file}: {}", arms[empty].name),
            format!("no execution in any of its runs; {failed} of {all} runs failed"),
        ));
    }
    Ok(outcomes)
}

/// A subscriber outside of the application.
struct Listener {
    child: Guarded,
    log: PathBuf,
}

impl Listener {
    fn start(context: &Context, stage: &Path, topic: &str) -> Result<Listener, LabError> {
        let log = context.dir().join("heard.new");
        let mut command = Command::new(stage);
        command
            .args(["--name", "listener", "--in", topic, "--log"])
            .arg(&log);
        command.env("ROS_DOMAIN_ID", DOMAIN).stdin(Stdio::null());
        Ok(Listener {
            child: context.spawn(&mut command)?,
            log,
        })
    }

    /// Ends it; start of the first callback and arrival of each item, CLOCK_MONOTONIC ns.
    fn heard(&mut self) -> Result<Vec<(u64, u64)>, LabError> {
        self.child
            .end(libc::SIGTERM)
            .map_err(|e| LabError::program("the listener", e))?;
        let text =
            std::fs::read_to_string(&self.log).map_err(LabError::file("reading", &self.log))?;
        let _ = std::fs::remove_file(&self.log);
        let item = |line: &str| {
            let mut cells = line.split(',').skip(1).map(|c| c.parse().ok());
            Some((cells.next()??, cells.next()??))
        };
        Ok(text.lines().filter_map(item).collect())
    }
}

/// Latencies of an outcome, ms.
pub(super) type Latencies = fn(&Outcome) -> &[f64];

/// So many arms can be told apart on top of each other.
const OVERLAID: usize = 3;

/// Latency over executions, an arm beside the other.
pub(super) fn plot(
    context: &mut Context,
    file: &str,
    title: &str,
    arms: &[Arm<'_>],
    outcomes: &[Outcome],
    latencies: Latencies,
) -> Result<(), LabError> {
    let series: Vec<(String, Vec<(f64, f64)>)> = arms
        .iter()
        .zip(outcomes)
        .map(|(arm, outcome)| {
            let points = latencies(outcome).iter().enumerate();
            (
                arm.name.clone(),
                points.map(|(i, l)| (i as f64, *l)).collect(),
            )
        })
        .collect();
    let draw = match series.len() {
        0..=OVERLAID => plot::dots,
        _ => plot::panels,
    };
    let svg = draw(title, "execution", "end-to-end latency, ms", &series)?;
    context.plot(file, &svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_runs_before_each_of_the_others() {
        let turns = Turns {
            executions: 10,
            rounds: 2,
            baseline: Some(1),
        };
        let order = turns.order(3, &mut Rng::new(1));
        let arms: Vec<usize> = order.iter().map(|t| t.1).collect();
        assert_eq!(arms.len(), 8);
        assert!(arms.chunks(2).all(|c| c[0] == 1 && c[1] != 1), "{arms:?}");
        // Nobody else's share changes, and runs of each arm are counted from 0.
        for (arm, runs) in [(0, 2), (1, 4), (2, 2)] {
            let counted: Vec<usize> = order.iter().filter(|t| t.1 == arm).map(|t| t.0).collect();
            assert_eq!(counted, (0..runs).collect::<Vec<_>>(), "arm {arm}");
        }
        let even = Turns::even(10, 2).order(3, &mut Rng::new(1));
        assert_eq!(even.len(), 6);
    }
}
