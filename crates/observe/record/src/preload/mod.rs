//! Recording without any right: a library that the recorded programs load themselves.
//!
//! [`Place`] is where the library and its rings lie, and what a program needs to find them.
//! [`Rings`] reads what the programs wrote: records of `records.table`, the same bytes as those of
//! the BPF programs, so that one decoder serves both. The library itself is `library.c`; which
//! functions it stands in for is `functions.h`, what it records of each is the BPF programs' own
//! source (`bpf/ros.h`).
mod file;
mod place;
mod rings;
mod told;

pub use place::{Place, PlaceOptions};
pub use rings::{Losses, Refused, Rings};

/// The event of a record, where it has one: for whoever reads rings without a recorder.
pub fn event(record: &[u8]) -> Option<onbeat_trace::Event> {
    match crate::decode::decode(record)? {
        crate::decode::Decoded::Event(event) => Some(event),
        _ => None,
    }
}

/// The functions that the library stands in for.
const FUNCTIONS: &str = include_str!("functions.h");

#[cfg(test)]
mod tests;
