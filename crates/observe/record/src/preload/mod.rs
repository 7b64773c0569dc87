//! Records without privileges, by a library that the recorded programs load themselves.
//!
//! [`Place`] makes the directories of the library and its rings, and the environment that a program
//! needs to find them. [`Rings`] reads the records that the programs wrote. They have the layout of
//! `records.table`, like those of the BPF programs, so one decoder serves both. The library itself
//! is `library.c`. `functions.h` lists the functions that it replaces. The BPF programs' own source
//! (`bpf/ros.h`) decides what is recorded of each call.
mod directory;
mod file;
mod mailbox;
mod place;
mod rings;

pub use directory::{may_load_from, Access, Directory};
pub(crate) use place::preloading;
pub use place::{Place, PlaceOptions};
pub use rings::{Losses, Refused, Rings};

/// Decodes a record into its event, for a caller that reads rings without a recorder. Returns
/// `None` for records without an event.
pub fn event(record: &[u8]) -> Option<onbeat_trace::Event> {
    match crate::decode::decode(record)? {
        crate::decode::Decoded::Event(event) => Some(event),
        _ => None,
    }
}

const FUNCTIONS: &str = include_str!("functions.h");

#[cfg(test)]
mod tests;
