//! What tests need within the crate.
//!
//! `faults` stands below all other modules, which pass its points; `interleavings` above them.

mod faults;
#[cfg(all(test, loom))]
mod interleavings;

pub(crate) use faults::point;
#[cfg(feature = "fault-points")]
pub use faults::{die_at, passed};
