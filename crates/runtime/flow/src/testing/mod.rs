//! The parts of this crate that only tests use.
//!
//! `faults` is below all other modules: they pass its points. `interleavings` is above them.

mod faults;
#[cfg(all(test, loom))]
mod interleavings;

pub(crate) use faults::point;
#[cfg(feature = "fault-points")]
pub use faults::{die_at, passed};
