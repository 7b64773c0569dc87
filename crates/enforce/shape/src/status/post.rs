//! What a session and the thread of its diagnostics leave for each other. Locks are held for as long as it
//! takes to copy a few words, by threads of normal priority.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Notes that wait for the session.
const NOTES: usize = 16;

/// How far diagnostics are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Standing {
    /// Nobody wants any.
    #[default]
    NotAsked,
    /// No publisher has said anything yet.
    Coming,
    /// There was a publisher.
    Ready,
    /// The application's ROS 2 has no diagnostic_msgs.
    NoPackage,
    /// The first publisher ended, and said this.
    Failed(String),
}

/// Left for each other.
#[derive(Debug, Default)]
pub(crate) struct Post {
    desk: Mutex<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    standing: Standing,
    /// A process of the application, and when it was seen (CLOCK_MONOTONIC).
    process: Option<(u32, u64)>,
    notes: Vec<String>,
    /// What is said once.
    said: Option<String>,
}

impl Post {
    /// Diagnostics are wanted.
    pub(super) fn ask(&self) {
        self.set(Standing::Coming);
    }

    /// A process of the application runs: was seen then (CLOCK_MONOTONIC).
    pub(crate) fn offer(&self, pid: u32, seen_ns: u64) {
        self.lock().process.get_or_insert((pid, seen_ns));
    }

    /// The process that was offered. From now on another one may be.
    pub(super) fn take_process(&self) -> Option<(u32, u64)> {
        self.lock().process.take()
    }

    /// How far they are.
    pub(crate) fn standing(&self) -> Standing {
        self.lock().standing.clone()
    }

    /// Whether no publisher will ever do more: the session says so, and ends.
    pub(super) fn is_hopeless(&self) -> bool {
        matches!(self.standing(), Standing::NoPackage | Standing::Failed(_))
    }

    pub(super) fn set(&self, standing: Standing) {
        self.lock().standing = standing;
    }

    /// The publisher has ended. True if the session hears of it by the standing.
    pub(super) fn set_failed(&self, said: &str) -> bool {
        let mut desk = self.lock();
        match desk.standing {
            Standing::Coming => desk.standing = Standing::Failed(said.to_owned()),
            Standing::NoPackage => {}
            _ => return false,
        }
        true
    }

    /// A note for the session.
    pub(super) fn say(&self, note: String) {
        let mut desk = self.lock();
        if desk.notes.len() < NOTES {
            desk.notes.push(note);
        }
    }

    /// The same, if the last one that was said so is another.
    pub(super) fn say_once(&self, note: String) {
        let mut desk = self.lock();
        let is_new = desk.said.as_ref() != Some(&note);
        desk.said = Some(note.clone());
        drop(desk);
        if is_new {
            self.say(note);
        }
    }

    /// The notes since the last time.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notes)
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        // Nobody panics between two steps that belong together.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
