//! The parts that the peers in Rust share: protocol, roles, and system calls.
//!
//! `../README.md` describes the protocol, and the roles and files of each experiment.
pub mod protocol;
mod system;
pub mod transport;

use std::fmt::Display;

pub use system::{
    now_ns, pin, set_priority, set_send_buffer, sleep_until, thread_cpu_ns, used, writable, Usage,
};

pub fn die(why: impl Display) -> ! {
    eprintln!("{why}");
    std::process::exit(1)
}

/// Returns the value of a result. If the result is an error, prints `what` and the error, and ends
/// the program.
pub fn or_die<T, E: std::fmt::Debug>(result: Result<T, E>, what: &str) -> T {
    result.unwrap_or_else(|e| die(format!("{what}: {e:?}")))
}
