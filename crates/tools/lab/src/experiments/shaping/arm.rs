//! The arms: each is an application under a plan, and arms run in turns.

use super::app::{self, load, onbeat, App};
use super::listener::Listener;
use super::results::ArmResults;
use crate::frame::files;
use crate::frame::report::Report;
use crate::frame::rng::Rng;
use crate::frame::turns::schedule;
use crate::frame::{Context, LabError, Raw, Result};
use crate::measure::floor::{Cyclictest, Floor};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The miss rates that planning tries in ascending order, until the recorded executions suffice for
/// one of them. The executions of one start of the application depend on one another, so the
/// executions of a few starts may not suffice for a small miss rate.
const MISS_RATES: [&str; 7] = ["0.01", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"];

pub(super) struct Arm<'a> {
    pub name: String,
    pub app: &'a App,
    pub plan: PathBuf,
    pub options: &'static [&'static str],
    pub is_one_band: bool,
    pub keeps_average: bool,
    pub miss_rate: f64,
}

impl<'a> Arm<'a> {
    /// Makes the plan of an arm from a profile, which is the model of recorded executions.
    ///
    /// If the profile does not support the requested miss rate, the plan uses the smallest of
    /// [`MISS_RATES`] that the profile supports. If the profile supports none, the plan has no miss
    /// rate, and its last slot lies after the longest execution. The report notes both cases.
    pub fn planned(
        app: &'a App,
        context: &Context,
        report: &mut Report,
        (profile, plan): (&Path, &Path),
        (name, words): (&str, &[&str]),
    ) -> Result<Arm<'a>> {
        let mut made = app.plan(context, profile, plan, words);
        if let (Err(error), Some(at)) = (&made, words.iter().position(|w| *w == "--miss")) {
            let refused = format!("{}: {name}: {error}", app.name);
            let (before, behind) = (&words[..at], &words[at + 2..]);
            let asked = MISS_RATES.iter().skip_while(|rate| **rate != words[at + 1]);
            let larger = asked.skip(1).find(|rate| {
                let words = [before, &["--miss", rate], behind].concat();
                app.plan(context, profile, plan, &words).is_ok()
            });
            made = match larger {
                Some(rate) => {
                    report.note(format!(
                        "{refused}. Planned with the miss rate {rate} instead"
                    ));
                    Ok(())
                }
                None => {
                    report.note(format!("{refused}. Planned without a miss rate instead"));
                    app.plan(context, profile, plan, &[before, behind].concat())
                }
            };
        }
        made?;
        Arm::of(app, profile, name, plan.to_path_buf())
    }

    pub fn of(app: &'a App, profile: &Path, name: &str, plan: PathBuf) -> Result<Arm<'a>> {
        let executions = app.chain_of(&load(profile)?)?.figures.executions;
        Arm::new(name, app, plan, executions)
    }

    /// Creates an arm and reads the promises of its plan. If the plan has no miss rate, the longest
    /// of the `profiled` recorded executions is the limit. The next execution exceeds this limit
    /// with a probability of 1 in `profiled` + 1.
    fn new(name: &str, app: &'a App, plan: PathBuf, profiled: u64) -> Result<Arm<'a>> {
        let text = std::fs::read(&plan).map_err(LabError::file("reading", &plan))?;
        let read = onbeat_plan::file::read(&text).map_err(|e| LabError::in_file(&plan, e))?;
        // If a shaper holds the output, the unshaped latency of each execution is known. With LET,
        // outputs wait for the end of their period, which is not a band after the worst case.
        let mut outputs = read.outputs.iter();
        let holds = read.strategy == "bands"
            && outputs.any(|o| o.hold == onbeat_plan::schema::Hold::Republish);
        let promises = read.promises;
        Ok(Arm {
            name: name.into(),
            app,
            plan,
            options: &[],
            is_one_band: holds && promises.bands.len() == 1,
            keeps_average: holds && promises.cost.is_some(),
            miss_rate: promises
                .miss
                .map_or(1.0 / (profiled + 1) as f64, |miss| miss.rate),
        })
    }
}

/// The number of cycles of a run that do not count: those at its beginning, and those that its end
/// interrupts.
const UNCOUNTED_CYCLES: u64 = 8;

#[derive(Clone, Copy)]
pub(super) struct Turns {
    pub executions: u64,
    pub rounds: usize,
    /// The index of the arm with which the other arms are compared. This arm runs before each run
    /// of another arm, so it runs as often as all other arms together.
    pub baseline: Option<usize>,
    pub once: bool,
}

impl Turns {
    pub fn even((executions, rounds): (u64, usize)) -> Turns {
        Turns {
            executions,
            rounds,
            baseline: None,
            once: false,
        }
    }

    /// Returns the order of measurements as `(run, arm)`. The runs of each arm are numbered from 0.
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

struct Reported {
    said: Value,
    samples: String,
    /// For each item: the start of the chain's first callback and the arrival of the output at the
    /// listener, in ns of CLOCK_MONOTONIC.
    heard: Vec<(u64, u64)>,
    floor: Floor,
}

pub(super) fn run(
    context: &mut Context,
    report: &mut Report,
    file: &str,
    arms: &[Arm<'_>],
    turns: Turns,
) -> Result<Vec<ArmResults>> {
    let mut results: Vec<ArmResults> = arms.iter().map(|_| ArmResults::default()).collect();
    let mut raw = context.raw(
        &format!("{file}.csv"),
        "arm,run,execution,latency_ms,ready_ms,band,late,dropped",
    )?;
    let mut order = turns.order(arms.len(), &mut context.rng(file));
    order.retain(|&(round, arm)| !turns.once || round == 0 || arms[arm].is_judged());
    let all = order.len();
    let mut failed = 0;
    for (turn, (round, index)) in order.into_iter().enumerate() {
        let arm = &arms[index];
        let executions = turns.executions / turns.rounds as u64 + UNCOUNTED_CYCLES;
        let title = format!("{file}: {}, turn {} of {all}", arm.name, turn + 1);
        match arm.run(context, file, &title, executions)? {
            Ok(reported) => {
                let label = format!("{},{round}", arm.name);
                results[index].add(&reported, &label, &mut raw)?;
            }
            // One failed run is a note. If all runs of an arm fail, that is an error below.
            Err(why) => {
                failed += 1;
                report.note(format!("{file}: {}, run {}: {why}", arm.name, round + 1));
            }
        }
    }
    raw.finish()?;
    if let Some(empty) = results.iter().position(|r| r.latency_ms.is_empty()) {
        return Err(LabError::unexpected(
            format!("{file}: {}", arms[empty].name),
            format!("no run of this arm measured an execution. {failed} of {all} runs failed"),
        ));
    }
    Ok(results)
}

impl Arm<'_> {
    pub fn id(&self) -> String {
        self.name.replace([' ', '%', ',', ':'], "_").to_lowercase()
    }

    pub fn is_judged(&self) -> bool {
        self.is_one_band || self.keeps_average
    }

    /// Runs the application under the arm's plan for a number of executions of the chain. If this
    /// run gave no measurement, the inner result is an error with the reason.
    fn run(
        &self,
        context: &Context,
        file: &str,
        title: &str,
        executions: u64,
    ) -> Result<Result<Reported, String>> {
        let seconds = (executions * self.app.cycle_ms).div_ceil(1000) + 1;
        let limit = seconds + 150;
        context.step(title, limit + 60);
        let samples = context.dir().join(format!("{file}.samples.new"));
        let mut shape = onbeat(context, "shape");
        shape.arg(&self.plan);
        shape.args(["--verify", &format!("{seconds}s"), "--json"]);
        shape.arg("--samples").arg(&samples).args(self.options);
        shape.arg("--").args(&self.app.command);
        let beside = Cyclictest::start(context);
        let mut listener = match &self.app.listener {
            Some((stage, topic)) => Some(Listener::start(context, stage, topic)?),
            None => None,
        };
        // Exit codes other than 0 are expected: the application is stopped early, and a promise may
        // be broken.
        let said = app::run(context, shape, "onbeat shape", (&[0, 1, 5, 130], limit));
        let mut floor = Floor::default();
        if let Some(beside) = beside {
            beside.end(&mut floor);
        }
        let heard = match &mut listener {
            Some(listener) => listener.heard()?,
            None => Vec::new(),
        };
        let said = match said {
            Ok(said) if !said.trim().is_empty() => said,
            Ok(_) => return Ok(Err("onbeat shape printed no result".into())),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let said =
            serde_json::from_str(&said).map_err(|e| LabError::unexpected("onbeat shape", e))?;
        let text = files::take_text(&samples)?;
        Ok(Ok(Reported {
            said,
            samples: text,
            heard,
            floor,
        }))
    }
}

impl ArmResults {
    fn add(&mut self, reported: &Reported, label: &str, raw: &mut Raw) -> Result<()> {
        let starts = self.add_samples(&reported.samples, label, raw)?;
        let first = starts.first().copied().unwrap_or(u64::MAX);
        let shaped = first..=starts.last().copied().unwrap_or(0);
        let while_shaped = reported.heard.iter().filter(|h| shaped.contains(&h.0));
        self.heard_ms
            .extend(while_shaped.map(|(start, at)| (at - start) as f64 / 1e6));
        self.floor.add(&reported.floor);
        let said = &reported.said;
        let figure = |name: &str| {
            let figures = said["figures"].as_array()?;
            figures.iter().find(|f| f["name"] == name)?["measured"].as_f64()
        };
        self.outside_ms.extend(figure("run outside a slot, p99.9"));
        if let Some(own) = figure("CPU of onbeat") {
            let shaper = figure("CPU of the shaper").unwrap_or(0.0);
            self.cpu.push((own, shaper));
        }
        let notes = said["notes"].as_array().into_iter().flatten();
        self.notes
            .extend(notes.filter_map(|n| n.as_str()).map(str::to_owned));
        Ok(())
    }

    fn add_samples(&mut self, csv: &str, label: &str, raw: &mut Raw) -> Result<Vec<u64>> {
        let mut starts = Vec::new();
        for (number, line) in csv.lines().skip(1).enumerate() {
            let cells: Vec<&str> = line.split(',').collect();
            let [_, start, left, _, latency, _, band, late, dropped, _] = cells[..] else {
                return Err(LabError::unexpected("a line of samples", line));
            };
            let (start, left) = (start.parse::<u64>(), left.parse::<u64>());
            let (Ok(start), Ok(left)) = (start, left) else {
                return Err(LabError::unexpected("a line of samples", line));
            };
            starts.push(start);
            let ready_ms = left.saturating_sub(start) as f64 / 1e6;
            let latency_ms = latency.parse::<f64>().unwrap_or(f64::NAN) / 1e6;
            raw.line(format_args!(
                "{label},{number},{latency_ms},{ready_ms},{band},{late},{dropped}"
            ))?;
            self.late += u64::from(late == "1");
            if dropped == "1" {
                self.dropped += 1;
            } else if late == "1" {
                self.late_ms.push(latency_ms);
            } else {
                self.latency_ms.push(latency_ms);
                self.ready_ms.push(ready_ms);
                self.band.push(band.parse().ok());
            }
        }
        Ok(starts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_arm_runs_before_each_other_arm() {
        let turns = Turns {
            executions: 10,
            rounds: 2,
            baseline: Some(1),
            once: false,
        };
        let order = turns.order(3, &mut Rng::new(1));
        let arms: Vec<usize> = order.iter().map(|t| t.1).collect();
        assert_eq!(arms.len(), 8);
        assert!(arms.chunks(2).all(|c| c[0] == 1 && c[1] != 1), "{arms:?}");
        // The shares of other arms do not change, and the runs of each arm are numbered from 0.
        for (arm, runs) in [(0, 2), (1, 4), (2, 2)] {
            let counted: Vec<usize> = order.iter().filter(|t| t.1 == arm).map(|t| t.0).collect();
            assert_eq!(counted, (0..runs).collect::<Vec<_>>(), "arm {arm}");
        }
        let even = Turns::even((10, 2)).order(3, &mut Rng::new(1));
        assert_eq!(even.len(), 6);
    }
}
