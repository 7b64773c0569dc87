//! Waiting threads: the clock, the kernel's futexes, and the places where threads sleep.
//!
//! Each module uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `clock` | CLOCK_MONOTONIC in ns |
//! | `futex` | the kernel's calls |
//! | `signal` | a place in memory where one thread sleeps until it is notified |
//! | `waker` | one place to sleep for everything that a thread waits for |

pub mod clock;
mod futex;
mod signal;
mod waker;

pub(crate) use signal::Signal;
pub use waker::Waker;
pub(crate) use waker::{WakerWords, MAX_REMOTE_SIGNALS};
