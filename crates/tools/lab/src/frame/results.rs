//! The contents of `results.json`: figures, the machine, and the command that repeats them.

use super::machine::{Load, Machine};
use super::Report;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub schema: String,
    pub experiment: String,
    pub about: String,
    #[serde(flatten)]
    pub run: RunFacts,
    pub machine: Machine,
    pub load: Load,
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
        ) + if self.run.quick { "A quick run: do not quote its figures.\n" } else { "" }
    }
}
