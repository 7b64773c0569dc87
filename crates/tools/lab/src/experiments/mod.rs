//! The experiments, one module each.
pub mod fleet;
pub mod inhibition;
pub mod latency;
pub mod link;
pub mod model;
pub mod parking;
pub mod planner;
pub mod queues;
pub mod replay;
pub mod shaping;
pub mod tracing;
pub mod transport;
