//! `results.json`: what an experiment measured, on which machine, with which command.

use super::machine::{Load, Machine};
use super::Report;
use serde::{Deserialize, Serialize};

/// What stands in `results.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Always [`crate::frame::report::SCHEMA`].
    pub schema: String,
    /// Name of the experiment.
    pub experiment: String,
    /// What it shows.
    pub about: String,
    /// How and when it ran.
    #[serde(flatten)]
    pub run: RunFacts,
    /// The machine.
    pub machine: Machine,
    /// How busy it was.
    pub load: Load,
    /// Raw samples and plots beside this file.
    pub files: Vec<String>,
    /// Figures, tables, notes, what was skipped.
    #[serde(flatten)]
    pub report: Report,
}

/// How and when an experiment ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// The command that repeats it.
    pub command: String,
    /// True when the figures come from a quick look.
    pub quick: bool,
    /// Seed.
    pub seed: u64,
    /// Version of onbeat.
    pub version: String,
    /// Start, seconds since 1970.
    pub started: u64,
    /// How long it took.
    pub duration_s: f64,
}

impl Results {
    /// Everything for the reader.
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
        ) + if self.run.quick { "A quick look: not for quoting.\n" } else { "" }
    }
}
