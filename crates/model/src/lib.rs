//! Events to timing model; merge, export, report. Values in, values out: no clock, no thread, no
//! environment.
pub mod dist;
pub mod export;
pub mod file;
pub mod layout;
pub mod report;
pub mod schema;
pub mod text;

pub use dist::Dist;
pub use schema::Model;
