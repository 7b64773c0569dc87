//! What an experiment is.

use super::{Context, Report, Result};

/// A measurement that can be repeated with one command.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line: what it shows, and which table or figure of the papers it is compared with.
    pub about: &'static str,
    /// Parts that can be run alone; none when it is a whole.
    pub parts: &'static [&'static str],
    /// The options of the command line that it has and others have not.
    pub takes: &'static [Extra],
    /// Runs it. Parts that this machine cannot run go into [`Report::skipped`]; an error means that
    /// there is no result at all.
    pub run: fn(&mut Context) -> Result<Report>,
}

/// An option that only some experiments have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// More and longer runs than usual.
    Long,
    /// A recording of arrivals to stream.
    Arrivals,
    /// Another build of `onbeat` to compare with this one.
    Before,
}

impl Extra {
    /// The option, and what an experiment without it lacks.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Extra::Long => ("--long", "has no longer runs"),
            Extra::Arrivals => ("--arrivals", "streams no messages"),
            Extra::Before => ("--before", "compares no two builds"),
        }
    }
}
