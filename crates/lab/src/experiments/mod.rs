//! The experiments, one module each.
pub mod model;
pub mod parking;
pub mod tracing;
