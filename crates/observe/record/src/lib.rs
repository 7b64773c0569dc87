//! eBPF probes and recorder for unmodified ROS 2 systems.
//!
//! Knows functions of ROS 2 and of the kernel; knows no chains. A call in the middleware hits a
//! probe ([`probes`], placed by [`placement`], attached by [`libraries`]), the BPF program puts a
//! record into the ring buffer ([`bpf`]), [`decode`] makes an event of it, and [`recorder`] writes
//! it into a trace directory.
pub mod bpf;
pub mod decode;
pub mod elf;
pub mod late;
pub mod launch;
pub mod libraries;
pub mod placement;
pub mod privilege;
pub mod probes;
pub mod proc;
pub mod recorder;
pub mod records;
pub mod user;

pub use recorder::{
    record, record_observed, Control, Observer, Progress, RecordError, RecordOptions, Summary,
};
