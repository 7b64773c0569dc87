//! What an experiment is.

use super::{Context, LabError, Report};

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
