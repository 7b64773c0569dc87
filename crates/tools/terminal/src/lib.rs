//! The parts that all commands of onbeat share: start and exit code, errors, tables, progress,
//! units and files.
pub mod date;
mod error;
pub mod files;
pub mod live;
pub mod notify;
mod program;
pub mod progress;
pub mod summary;
pub mod term;
pub mod traces;
pub mod units;

pub use error::CliError;
pub use program::{helper, run, ExitStatus, VERSION};
