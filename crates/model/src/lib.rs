//! Events to timing model; merge, export, report. Values in, values out: no clock, no thread, no
//! environment.
pub mod dist;
pub mod schema;

pub use dist::Dist;
pub use schema::Model;
