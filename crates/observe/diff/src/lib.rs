//! Compares two timing models: what changed, how certain that is, and what it means for chains.
//!
//! The crate is pure: it reads no clock and no file.
//!
//! A figure has changed if the change is significant, with Holm's correction over all compared
//! figures, and at least as large as [`Options::min_effect`]. If both models have several runs, the
//! medians of runs are compared. Executions of one run resemble one another, so they are weaker
//! evidence: the other figures of the same runs show how much runs differ.

mod compare;
mod influence;
mod judge;
mod output;
mod page;
mod qos;
mod rank;
mod rows;
mod speed;
mod spread;
mod structure;

pub use compare::{Change, Method};
pub use influence::{influence, tells, Cost, How, Influence, Influences};
pub use judge::{diff, Found, Report};
pub use output::{influence_json, json};
pub use page::html;
pub use rows::{Figure, Row};
pub use speed::Speed;
pub use spread::{Kind, RunSpread};
pub use structure::{Difference, Part, What};

/// The conditions under which a difference counts as a change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The smallest relative change that matters. For times it is a share of the time, for losses a
    /// share of all items.
    pub min_effect: f64,
    /// The smallest change of a time that matters, in ns.
    pub min_time_ns: f64,
    /// The significance level: the probability that a change is reported although nothing changed.
    pub alpha: f64,
    /// The assumed standard deviation of execution times from run to run, as a share. It is used if
    /// a model has only one run. For response times and latencies it is multiplied by [`WAITING`].
    pub run_spread: f64,
    /// Is true if the spread between single runs is estimated from all figures. If the value is
    /// false, or if there are too few figures for an estimate, `run_spread` is used.
    pub estimate_spread: bool,
    /// Is true if times are compared as measured. If it is false, times are first corrected for the
    /// speed of the machine in each run.
    pub absolute: bool,
}

/// The factor by which times that include waiting vary more from run to run than execution times
/// do.
pub const WAITING: f64 = 2.0;

impl Default for Options {
    fn default() -> Self {
        Options {
            min_effect: 0.05,
            min_time_ns: 20_000.0,
            alpha: 0.05,
            run_spread: 0.08,
            estimate_spread: true,
            absolute: false,
        }
    }
}
