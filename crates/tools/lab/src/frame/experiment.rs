//! What an experiment is, and how it is asked to run.

use super::{Context, LabError, Report};
use std::path::PathBuf;

/// A measurement that can be repeated with one command.
pub trait Experiment {
    /// Its name on the command line.
    fn name(&self) -> &'static str;
    /// One line: what it shows, and which table or figure of the papers it is compared with.
    fn about(&self) -> &'static str;
    /// Parts that can be run alone; none when it is a whole.
    fn parts(&self) -> &'static [&'static str] {
        &[]
    }
    /// Whether it can stream a recording of arrivals.
    fn takes_arrivals(&self) -> bool {
        false
    }
    /// Whether it can compare another build of `onbeat` with this one.
    fn takes_before(&self) -> bool {
        false
    }
    /// Whether it has longer runs than usual.
    fn takes_long(&self) -> bool {
        false
    }
    /// Runs the experiment. Parts that this machine cannot run go into [`Report::skipped`]; an
    /// error means that there is no result at all.
    fn run(&self, context: &mut Context) -> Result<Report, LabError>;
}

/// How an experiment is to be run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Fewer and shorter runs: to see that it works, not to quote figures.
    pub quick: bool,
    /// More and longer runs than usual, for experiments that have them.
    pub long: bool,
    /// Only this part of an experiment that has parts.
    pub only: Option<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// A recording of arrivals to stream instead of generated ones, for experiments with streams.
    pub arrivals: Option<PathBuf>,
    /// Directory for the results; made if need be.
    pub dir: PathBuf,
    /// The `onbeat` program, for experiments that record.
    pub onbeat: PathBuf,
    /// Another build of it to measure in the same rounds, for experiments that compare builds.
    pub before: Option<PathBuf>,
}
