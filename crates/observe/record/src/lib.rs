//! The eBPF probes and the recorder for unmodified ROS 2 systems.
//!
//! The crate knows functions of ROS 2 and of the kernel, but no chains. A call in the middleware
//! hits a probe: [`probes`] lists the probes, [`placement`] places them, and `libraries` attaches
//! them. The BPF program puts a record (`records`) into the ring buffer (`kernel`). `decode` turns
//! the record into an event, and [`recorder`] writes the event into a trace directory.
mod calls;
mod command;
mod decode;
mod descriptors;
pub mod elf;
mod kernel;
mod late;
mod libraries;
mod limits;
mod names;
mod patience;
mod perf;
pub mod placement;
pub mod preload;
mod privilege;
pub mod probes;
pub mod recorder;
mod records;

pub use command::user::{invoking as user_behind_sudo, user_id, variable as user_variable, User};
pub use command::{CommandLibrary, CommandStartError};
pub use kernel::{Join, KernelLoadError, Lineage, Root, TypesError, WaitTable};
pub use libraries::PlacementPolicy;
pub use limits::{LimitError, Limits, DOMAIN_MAX};
pub use privilege::{MissingPrivilege, AT_START};
pub use recorder::{
    record, record_observed, Control, FileOptions, Observer, Progress, RecordError, RecordOptions,
    Summary, Target, Way,
};
