//! What the peers in Rust share. `../README.md` describes the protocol, and the roles and files of
//! each experiment.
pub mod protocol;
mod system;
pub mod transport;

use std::fmt::Display;

pub use system::{
    now_ns, pin, set_priority, set_send_buffer, sleep_until, thread_cpu_ns, used, writable, Usage,
};

/// Ends the program with one line.
pub fn die(why: impl Display) -> ! {
    eprintln!("{why}");
    std::process::exit(1)
}

/// The result, or the end of the program.
pub fn or_die<T, E: std::fmt::Debug>(result: Result<T, E>, what: &str) -> T {
    result.unwrap_or_else(|e| die(format!("{what}: {e:?}")))
}
