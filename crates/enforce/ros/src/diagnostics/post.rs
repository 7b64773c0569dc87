//! Passes notes between a session of onbeat and the thread of its diagnostics. Threads of normal
//! priority hold the lock only to copy a few words.

use std::sync::{Mutex, MutexGuard, PoisonError};

const MAX_NOTES: usize = 16;

/// The progress of the publication of diagnostics.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Standing {
    #[default]
    NotAsked,
    /// Diagnostics were requested, and no publisher has answered yet.
    Coming,
    Ready,
    /// The application's installation of ROS 2 lacks the package diagnostic_msgs.
    NoPackage,
    /// The first publisher of diagnostics has ended. The text is the reason.
    Failed(String),
}

/// The data that a session and its diagnostics thread exchange: notes for the user, the progress of
/// the publication, and the processes beside which a publisher can run.
#[derive(Debug, Default)]
pub struct Post {
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    standing: Standing,
    process: Option<(u32, u64)>,
    notes: Vec<String>,
    last_note: Option<String>,
}

impl Post {
    /// Requests diagnostics. May be called again after a failure.
    pub fn ask(&self) {
        self.set(Standing::Coming);
    }

    /// Offers the process `pid` of the application, beside which a publisher can run. The process
    /// was seen at `seen_ns` (CLOCK_MONOTONIC). Does nothing while an earlier offer waits.
    pub fn offer(&self, pid: u32, seen_ns: u64) {
        self.lock().process.get_or_insert((pid, seen_ns));
    }

    /// Offers a process like [`Post::offer`], and replaces an earlier offer that waits.
    pub fn offer_instead(&self, pid: u32, seen_ns: u64) {
        self.lock().process = Some((pid, seen_ns));
    }

    pub(super) fn take_process(&self) -> Option<(u32, u64)> {
        self.lock().process.take()
    }

    /// Returns the progress of the publication of diagnostics.
    pub fn standing(&self) -> Standing {
        self.lock().standing.clone()
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.standing(), Standing::NoPackage | Standing::Failed(_))
    }

    pub(super) fn set(&self, standing: Standing) {
        self.lock().standing = standing;
    }

    /// Notes that the publisher of diagnostics has ended for the reason `said`. Returns true if the
    /// session will report this end to its user.
    pub(super) fn set_failed(&self, said: &str) -> bool {
        let mut contents = self.lock();
        match contents.standing {
            Standing::Coming => contents.standing = Standing::Failed(said.to_owned()),
            Standing::NoPackage => {}
            _ => return false,
        }
        true
    }

    pub(super) fn add_note(&self, note: String) {
        let mut contents = self.lock();
        if contents.notes.len() < MAX_NOTES {
            contents.notes.push(note);
        }
    }

    pub(super) fn add_note_once(&self, note: String) {
        let mut contents = self.lock();
        let is_new = contents.last_note.as_ref() != Some(&note);
        contents.last_note = Some(note.clone());
        drop(contents);
        if is_new {
            self.add_note(note);
        }
    }

    /// Removes and returns the notes for the session's user.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notes)
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // No thread panics while it holds the lock, so a poisoned value is whole.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
