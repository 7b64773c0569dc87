//! The experiments, one module each.
pub mod tracing;
