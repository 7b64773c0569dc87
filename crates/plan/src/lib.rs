//! Model to plan: reservation servers and latency bands for a chain. Values in, values out: no clock,
//! no thread, no environment.
pub mod bands;
pub mod schema;

pub use schema::Plan;
