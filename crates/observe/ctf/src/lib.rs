//! Reads traces of LTTng (CTF 1.8), and writes their events of ROS 2 and of the scheduler as a
//! trace of onbeat.
//!
//! Everything in a session is untrusted: its metadata, its packets and its names. Sizes have
//! limits, nothing panics, and damaged parts are left out and counted. A stream keeps one packet in
//! memory.

mod convert;
mod decode;
mod import;
mod kinds;
mod metadata;
mod notes;
mod session;
mod stream;
mod survey;
mod types;

pub use import::{import, ImportError, Imported};
pub use metadata::MetadataError;
pub use session::SessionError;
