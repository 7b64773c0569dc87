//! Reads the rings of all processes that loaded the library. Nothing in them is trusted.

use super::Place;
use std::io;

/// Records that could not be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses {
    /// By the name of the record, as the losses of the BPF programs are.
    pub by_kind: Vec<(&'static str, u64)>,
    /// Processes whose records are not had, or not all, and why.
    pub refused: Vec<Refused>,
}

/// A process whose records are not had, or not all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Process, in its own pid namespace.
    pub pid: u32,
    /// One line for the user.
    pub reason: String,
}

/// The reader of the rings of one [`Place`].
#[derive(Debug)]
pub struct Rings {}

impl Rings {
    /// A reader of the rings in this place. It keeps the directory open.
    ///
    /// # Errors
    /// The directory is not there.
    pub fn open(place: &Place) -> io::Result<Rings> {
        let _ = place;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Passes every complete record that was not read yet to `each`: at most `limit` records, ring
    /// by ring, in order within each thread but not between threads. Returns true where more may
    /// wait. Never blocks; what the rings contain costs no more than their own records.
    pub fn poll(&mut self, limit: usize, each: &mut dyn FnMut(&[u8])) -> bool {
        let _ = (limit, each);
        false
    }

    /// What was lost so far, by kind, and who could not write. Cheap; the sums only grow.
    pub fn losses(&self) -> Losses {
        Losses::default()
    }

    /// The name of the function that the number in a record's head stands for (`Head::probe`).
    pub fn function(number: u16) -> Option<&'static str> {
        let _ = number;
        None
    }
}
