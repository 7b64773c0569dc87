//! The frame of all experiments: it describes them, runs them and writes their results.
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
