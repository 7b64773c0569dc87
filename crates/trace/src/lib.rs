//! The vocabulary of trace events, and the reader and writer of trace directories.
//!
//! Builds anywhere, so that a trace from a robot can be modelled on a laptop.
pub mod event;

pub use event::{EndpointKind, Event, EventKind, ExecuteKind, Name};
