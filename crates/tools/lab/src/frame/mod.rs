//! The frame: what an experiment is, what it gets, how it is run and how its results are written.
pub mod children;
mod context;
mod error;
mod estimate;
mod experiment;
pub mod files;
pub mod machine;
pub mod merge;
pub mod programs;
mod raw;
pub mod report;
mod results;
pub mod rng;
mod run;
pub mod size;
mod watchdog;

pub use context::{cache_dir, Context, Options};
pub use error::{LabError, Result};
pub use estimate::Estimate;
pub use experiment::{Experiment, Extra};
pub use raw::Raw;
pub use report::Report;
pub use results::Results;
pub use run::run;
