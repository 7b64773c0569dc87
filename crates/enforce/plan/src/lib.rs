//! Turns a timing model into a plan: reservation servers and latency bands for a chain.
//!
//! The crate is pure: it reads no clock, starts no thread and looks at no environment.
pub mod adapt;
mod assume;
pub mod bands;
mod beside;
mod chains;
pub mod check;
mod compare;
mod error;
mod executors;
mod fault;
pub mod file;
mod make;
pub mod profile;
pub mod reload;
pub mod request;
pub mod schema;
mod scope;
mod slowest;
mod sources;

pub use beside::priority_beside;
pub use check::validate;
pub use compare::{compare, COMPARE_UP_TO};
pub use error::PlanError;
pub use fault::{PlanFault, MAX_ENTRIES};
pub use file::PlanFileError;
pub use make::plan;
pub use request::{Request, Strategy};
pub use schema::Plan;
