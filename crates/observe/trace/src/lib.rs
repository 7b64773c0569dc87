//! The vocabulary of trace events, and the reader and writer of trace directories.
//!
//! Builds on any Unix, so that a trace from a robot can be modelled on a laptop.
pub mod block;
pub mod event;
pub mod generate;
pub mod manifest;
pub mod reader;
mod segment;
pub mod table;
pub mod text;
pub mod writer;

pub use event::{
    CallKind, EndpointKind, Event, EventKind, ExecuteKind, Holder, Name, UNSCHEDULED, UNTOLD,
};
pub use manifest::{Manifest, State};
pub use reader::{Reader, TraceReadError};
pub use writer::{TraceCreateError, TraceWriteError, Unfinished, Writer, WriterOptions};
