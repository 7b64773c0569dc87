//! The one reader of `/proc`: processes, threads, mapped files, cgroups and facts about the kernel.
//!
//! | wanted | where |
//! |---|---|
//! | ids of processes and threads, a process with all its descendants | [`processes`], [`threads`], [`tree`] |
//! | parent, state, start time, CPU time, scheduling of a process or thread | [`Stat`] |
//! | fields of `status`: process of a thread, affinity, locked memory | [`Status`] |
//! | name, command line, environment, user | [`thread_name`], [`command_line`], [`environment`], [`user`] |
//! | program and mapped files, by identity | [`maps`] |
//! | files that other processes name, opened safely | [`foreign`] |
//! | heaps of a process | [`memory`] |
//! | the same for a process that may block its reader | [`reader`] |
//! | cgroup of a thread | [`cgroup`] |
//! | namespaces of a process: whether it runs in a container | [`namespace`] |
//! | kernel release, host name, limits | [`system`] |
//!
//! Four rules hold throughout:
//!
//! - Processes end at any time. A missing file gives `None`, an error or an empty list.
//! - Names, command lines and paths come from other processes: they are untrusted, need not be
//!   UTF-8 and may contain blanks, brackets and line ends.
//! - Data that a process can make long (its command line, environment and mappings) is read up to a
//!   limit.
//! - Every function that reads a file has a pure parser, which tests call with texts.
//!
//! The functions read files and allocate: they are not for real-time paths.
//!
//! ```
//! let own = onbeat_proc::Stat::of(std::process::id()).expect("this process runs");
//! assert!(!own.has_ended() && own.parent != 0);
//! ```

pub mod cgroup;
pub mod foreign;
pub mod maps;
pub mod memory;
pub mod namespace;
mod process;
pub mod reader;
mod stat;
mod status;
pub mod system;

pub use process::{
    command_line, environment, is_alive, parent, parse_environment, processes, thread_count,
    thread_name, threads, tree, user, User, Variable,
};
pub use stat::Stat;
pub use status::Status;
