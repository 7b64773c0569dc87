//! New plans on their way to a session, and what becomes of them. Who brings one reads and checks its
//! file: the session never waits for a file.

use onbeat_plan::Plan;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most plans on their way, and most outcomes that wait for who asked.
const MOST: usize = 16;

/// What became of a new plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is in force.
    Taken,
    /// It is the running one.
    Same,
    /// The running one is in force: they differ in what cannot be changed while it runs.
    Refused,
    /// The running one is in force: the file is no usable plan.
    Broken,
}

/// What became of a new plan, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// In one word.
    pub outcome: Outcome,
    /// In a sentence.
    pub said: String,
}

/// The way of new plans to a session.
#[derive(Debug, Default)]
pub struct Reloads {
    desk: Mutex<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    last: u64,
    coming: VecDeque<(u64, Result<Plan, String>)>,
    done: VecDeque<(u64, Reloaded)>,
}

impl Reloads {
    /// Brings a plan, or why its file is none. Returns the number to ask [`Reloads::outcome`] for; `None` if
    /// too many are on their way.
    pub fn bring(&self, plan: Result<Plan, String>) -> Option<u64> {
        let mut desk = self.lock();
        if desk.coming.len() >= MOST {
            return None;
        }
        desk.last += 1;
        let number = desk.last;
        desk.coming.push_back((number, plan));
        Some(number)
    }

    /// The next one. Never waits for who brings it.
    pub fn take(&self) -> Option<(u64, Result<Plan, String>)> {
        self.lock().coming.pop_front()
    }

    /// What became of it.
    pub fn done(&self, number: u64, reloaded: Reloaded) {
        let mut desk = self.lock();
        if desk.done.len() == MOST {
            desk.done.pop_front();
        }
        desk.done.push_back((number, reloaded));
    }

    /// What became of a plan; `None` if the session has not said it.
    pub fn outcome(&self, number: u64) -> Option<Reloaded> {
        let desk = self.lock();
        let found = desk.done.iter().find(|(n, _)| *n == number);
        found.map(|(_, reloaded)| reloaded.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        // Nobody panics between two steps that belong together.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
