//! eBPF probes and recorder for unmodified ROS 2 systems.
//!
//! Knows functions of ROS 2 and of the kernel; knows no chains. A call in the middleware hits a
//! probe ([`probes`], placed by [`placement`], attached by [`libraries`]). The BPF program puts a
//! record ([`records`]) into the ring buffer ([`kernel`]), [`decode`] turns it into an event, and
//! [`recorder`] writes that into a trace directory.
pub mod command;
pub mod decode;
pub mod elf;
pub mod kernel;
pub mod late;
pub mod libraries;
mod names;
pub mod placement;
pub mod privilege;
pub mod probes;
pub mod recorder;
pub mod records;

pub use recorder::{
    record, record_observed, Control, Observer, Progress, RecordError, RecordOptions, Summary,
    Target,
};
