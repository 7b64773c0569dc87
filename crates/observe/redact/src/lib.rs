//! A model without the names and the structure that its owner keeps (thesis section 3.8): what a policy shows
//! stays, everything else gets a keyed name or is collapsed into its timing. Values in, values out: no clock,
//! no file.

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
