//! Passes notes between a session and the thread of its diagnostics. Threads of normal priority
//! hold the lock only to copy a few words.

use std::sync::{Mutex, MutexGuard, PoisonError};

const MAX_NOTES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Standing {
    #[default]
    NotAsked,
    Coming,
    Ready,
    NoPackage,
    Failed(String),
}

#[derive(Debug, Default)]
pub(crate) struct Post {
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
    pub(super) fn ask(&self) {
        self.set(Standing::Coming);
    }

    pub(crate) fn offer(&self, pid: u32, seen_ns: u64) {
        self.lock().process.get_or_insert((pid, seen_ns));
    }

    pub(super) fn take_process(&self) -> Option<(u32, u64)> {
        self.lock().process.take()
    }

    pub(crate) fn standing(&self) -> Standing {
        self.lock().standing.clone()
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.standing(), Standing::NoPackage | Standing::Failed(_))
    }

    pub(super) fn set(&self, standing: Standing) {
        self.lock().standing = standing;
    }

    /// Notes that the publisher of diagnostics has ended. Returns true if the session will report
    /// it.
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

    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notes)
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // No thread panics while it holds the lock, so a poisoned value is whole.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
