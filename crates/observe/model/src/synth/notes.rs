//! What is assumed and what could not be seen, counted while the events pass.

use std::collections::BTreeMap;

/// Something to say about a model; indices are of names or vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Note {
    /// A scheduler event of a thread was missing.
    LostSwitch,
    /// The hypervisor took CPU time (counted in ns) from observed threads.
    Stolen,
    /// An event was older than the one before.
    OutOfOrder,
    /// `callback_start` of a callback that belongs to nothing known.
    UnknownCallback,
    /// A handle of nothing known was used.
    UnknownHandle,
    /// A topic (name) was published outside of callbacks.
    Outside(u32),
    /// A topic's (name) message came from outside of the recording.
    Foreign(u32),
    /// An execution (vertex) had no end.
    Aborted(u32),
    /// An execution (vertex) was cut off by the end of its process.
    CutOff(u32),
    /// A vertex ran on threads without scheduler events.
    Unscheduled(u32),
    /// The node of a timer (vertex) was taken from what it publishes.
    TimerNode(u32),
    /// The caller of a service (name) was guessed.
    CallerGuess(u32),
    /// The caller of a service (name) was not recorded.
    CallerUnknown(u32),
    /// Lineages were dropped.
    Capped,
    /// Something was not decided in time.
    Undecided,
}

/// Counts of notes.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes(pub(super) BTreeMap<Note, u64>);

impl Notes {
    pub(super) fn count(&mut self, note: Note, n: u64) {
        if n > 0 {
            *self.0.entry(note).or_insert(0) += n;
        }
    }
}
