//! The contents of `results.json`: figures, the machine, and the command that repeats them.

use super::disturbance::{Disturbance, Rule};
use super::machine::{Load, Machine};
use super::report::{number, Figure};
use super::turns::RoundsTaken;
use super::Report;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub schema: String,
    pub experiment: String,
    pub about: String,
    #[serde(flatten)]
    pub run: RunFacts,
    pub machine: Machine,
    pub load: Load,
    /// The limits that decide whether a round was disturbed. They are fixed before the run.
    pub rule: Rule,
    pub disturbance: Disturbance,
    pub rounds: Vec<RoundsTaken>,
    pub files: Vec<String>,
    #[serde(flatten)]
    pub report: Report,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    pub command: String,
    pub quick: bool,
    pub seed: u64,
    pub version: String,
    pub started: u64,
    pub duration_s: f64,
}

impl Results {
    pub fn text(&self) -> String {
        let m = &self.machine;
        format!(
            "{}: {}\n{}\n{} cores, {}, Linux {}{}; {:.0} % busy, {:.1} % steal, load {:.1} to {:.1}; seed {}; {:.0} s\n",
            self.experiment,
            self.about,
            self.report.text().trim_end(),
            m.cores,
            m.cpu,
            m.kernel,
            if m.virtual_machine { " (virtual machine)" } else { "" },
            self.load.busy * 100.0,
            self.load.steal * 100.0,
            self.load.load1_start,
            self.load.load1_end,
            self.run.seed,
            self.run.duration_s,
        ) + &self.disturbed()
            + &self.power()
    }

    fn disturbed(&self) -> String {
        let d = &self.disturbance;
        let mut out = format!(
            "during the run: the host took {:.1} % of a CPU, and other programs used {:.1} % of a CPU. On the worst CPU, the lab's thread with the highest priority was ready but did not get the CPU for {} of the time. The longest wake-up delay of such a thread was {}\n",
            100.0 * d.stolen,
            100.0 * d.foreign,
            d.away.map_or("an unknown share".into(), |a| format!("{:.1} %", 100.0 * a)),
            d.floor_us.map_or("unknown".into(), |us| format!("{} us", number(us))),
        );
        let measured: usize = self.rounds.iter().map(|r| r.measured).sum();
        let aside = self.rounds.iter().flat_map(|taken| &taken.set_aside);
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for one in aside {
            // The text before the first number is the kind of the disturbance.
            let kind = one.why.split_once(|c: char| c.is_ascii_digit());
            *reasons
                .entry(kind.map_or(&*one.why, |k| k.0.trim()))
                .or_default() += 1;
        }
        if measured > 0 {
            let all: usize = reasons.values().sum();
            let words = reasons.iter().map(|(why, n)| format!("{n}: {why} ..."));
            let words: Vec<String> = words.collect();
            let _ = writeln!(
                out,
                "{all} of {measured} rounds were set aside{}{}",
                if all > 0 { ": " } else { "" },
                words.join("; ")
            );
        }
        out
    }

    fn power(&self) -> String {
        if !self.run.quick {
            return String::new();
        }
        let share = |f: &Figure| {
            let tells = f.judgement.as_ref()?.tells?;
            let of = f.target.filter(|t| *t != 0.0).unwrap_or(f.value).abs();
            (of > 0.0).then_some(100.0 * tells / of)
        };
        let shares: Vec<f64> = self.report.figures.iter().filter_map(share).collect();
        let mut out = "A quick run: do not quote its figures.".to_string();
        if let (Some(least), Some(most)) = (
            shares.iter().copied().min_by(f64::total_cmp),
            shares.iter().copied().max_by(f64::total_cmp),
        ) {
            let _ = write!(
                out,
                " The smallest difference that this run can detect is {} to {} % of the target, depending on the figure. The line of each verdict above has the smallest detectable difference of its figure.",
                number(least),
                number(most)
            );
        }
        out + "\n"
    }
}
