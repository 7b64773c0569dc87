//! The description of an experiment: its name, parts, options and function.

use super::{Context, Report, Result};

pub struct Experiment {
    pub name: &'static str,
    /// One line for the list of experiments: what the experiment shows, and the table or figure of
    /// a paper that it repeats.
    pub about: &'static str,
    pub parts: &'static [&'static str],
    pub takes: &'static [Extra],
    pub run: fn(&mut Context) -> Result<Report>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    Long,
    Arrivals,
    /// The option `--baseline`: another build of `onbeat` to compare with this one.
    Before,
}

impl Extra {
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Extra::Long => ("--long", "the experiment has no long runs"),
            Extra::Arrivals => ("--arrivals", "the experiment streams no messages"),
            Extra::Before => ("--baseline", "the experiment does not compare builds"),
        }
    }
}
