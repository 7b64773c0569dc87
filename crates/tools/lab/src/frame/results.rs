//! The contents of `results.json`: figures, the machine, and the command that repeats them.

use super::machine::{Load, Machine};
use super::Report;
use serde::{Deserialize, Serialize};

/// The contents of `results.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The schema, always [`crate::frame::report::SCHEMA`].
    pub schema: String,
    pub experiment: String,
    /// The description from the list of experiments.
    pub about: String,
    #[serde(flatten)]
    pub run: RunFacts,
    pub machine: Machine,
    pub load: Load,
    /// The names of raw samples and plots beside this file.
    pub files: Vec<String>,
    #[serde(flatten)]
    pub report: Report,
}

/// The command, time and options of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// The command that repeats the run.
    pub command: String,
    pub quick: bool,
    pub seed: u64,
    /// The version of onbeat.
    pub version: String,
    /// The start, in seconds since 1970.
    pub started: u64,
    pub duration_s: f64,
}

impl Results {
    /// Formats the results as text for the reader.
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
