//! The frame: what an experiment is, what it gets, how it is run and how its results are written.
pub mod children;
mod context;
mod error;
mod experiment;
pub mod machine;
pub mod merge;
mod raw;
pub mod report;
mod results;
pub mod rng;
mod run;
mod watchdog;

pub use context::{cache_dir, Context, Options};
pub use error::LabError;
pub use experiment::{Experiment, Extra};
pub use raw::Raw;
pub use report::Report;
pub use results::Results;
pub use run::run;
