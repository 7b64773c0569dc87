//! Experiments: set-up, run, table beside the paper's, plot.
//!
//! Every experiment of the project goes through one frame. It implements [`Experiment`], stands in
//! [`registry`], and is run by [`run`], which gives it a [`Context`] (output directory, seed,
//! children that cannot outlive it, watchdog), and writes what it returns:
//!
//! ```text
//! DIR/results.json   figures with target, met and baseline; tables; what was skipped; the machine
//! DIR/*.csv          every raw sample
//! DIR/*.svg          plots
//! ```
//!
//! How to measure is in the frame, so that each experiment does it alike: arms are interleaved in
//! one run ([`arms`]), samples count from intended start times, percentiles are exact over raw
//! samples ([`stats`]).
pub mod arms;
pub mod children;
pub mod ctf;
pub mod experiment;
pub mod experiments;
pub mod generate;
pub mod machine;
pub mod native;
pub mod plot;
pub mod recorder;
pub mod report;
pub mod rng;
pub mod ros;
pub mod stats;
pub mod uprobe;
pub mod watchdog;

pub use experiment::{find, registry, run, Context, Experiment, LabError, Options};
pub use report::{Figure, Report, Table, Target};
