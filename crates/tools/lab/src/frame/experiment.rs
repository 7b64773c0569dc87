//! The description of an experiment: its name, parts, options and function.

use super::{Context, Report, Result};

/// A measurement that can be repeated with one command.
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// One line: what the experiment shows, and the table or figure of a paper that it repeats.
    pub about: &'static str,
    /// The parts that can be run alone. Empty if the experiment has no parts.
    pub parts: &'static [&'static str],
    /// The options that this experiment supports and others do not.
    pub takes: &'static [Extra],
    /// The function that runs it. Parts that this machine cannot run go into [`Report::skipped`].
    /// An error means that there is no result at all.
    pub run: fn(&mut Context) -> Result<Report>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// `--long`: more and longer runs than usual.
    Long,
    /// `--arrivals`: a recording of arrivals to stream.
    Arrivals,
    /// `--baseline`: another build of `onbeat` to compare with this one.
    Before,
}

impl Extra {
    /// Returns the option, and the words that say why other experiments refuse it.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Extra::Long => ("--long", "has no longer runs"),
            Extra::Arrivals => ("--arrivals", "streams no messages"),
            Extra::Before => ("--before", "compares no two builds"),
        }
    }
}
