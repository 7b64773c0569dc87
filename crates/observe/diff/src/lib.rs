//! Two timing models: what changed, how sure that is, and what it means for chains. Values in, values out:
//! no clock, no file.
//!
//! A change of a figure is found if it is significant, with Holm's correction over all figures that were
//! compared, and at least as large as [`Options::min_effect`]. Where both models have several runs, runs are
//! what is compared, each by its median: executions of one run resemble one another, runs need not.

mod compare;
mod influence;
mod judge;
mod output;
mod page;
mod qos;
mod rank;
mod rows;
mod speed;
mod structure;

pub use compare::{Change, Method};
pub use influence::{influence, tells, Cost, How, Influence, Influences};
pub use judge::{diff, Found, Report};
pub use output::{influence_json, json};
pub use page::html;
pub use rows::{Figure, Row};
pub use speed::Speed;
pub use structure::{Difference, Part, What};

/// What counts as a change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Smallest relative change that matters, as a share: of a time, or of all items for losses.
    pub min_effect: f64,
    /// Smallest change of a time that matters, ns.
    pub min_time_ns: f64,
    /// Chance to find anything where nothing changed.
    pub alpha: f64,
    /// By how much execution times are taken to differ from run to run (standard deviation, as a share),
    /// where a model has one run only. Response times and latencies: [`WAITING`] times as much.
    pub run_spread: f64,
    /// Times are compared as they are; else how fast the machine was in each run is taken out.
    pub absolute: bool,
}

/// How much more than execution times those times differ from run to run that have waiting in them.
pub const WAITING: f64 = 2.0;

impl Default for Options {
    fn default() -> Self {
        Options {
            min_effect: 0.05,
            min_time_ns: 20_000.0,
            alpha: 0.05,
            run_spread: 0.08,
            absolute: false,
        }
    }
}
