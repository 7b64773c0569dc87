//! Removes the names and the structure from a model that its owner keeps secret (thesis section
//! 3.8). Everything that a policy shows stays. Other names are replaced with keyed names, and
//! hidden parts are reduced to their timing.
//!
//! The crate is pure: it reads no clock and no file.

mod causes;
mod collapse;
mod figures;
mod names;
mod policy;
mod proof;
mod rewrite;
mod sentences;

pub use collapse::cuts;
pub use names::{Key, KeyError, LEAST_KEY};
pub use onbeat_yaml::MAX_BYTES;
pub use policy::{read, Policy, PolicyError, Visible};
pub use proof::Leak;
pub use rewrite::{redact, Redacted};
