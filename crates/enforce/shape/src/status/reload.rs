//! Passes new plans to a session, and their outcomes back. The caller reads and checks a plan's
//! file, so the session never waits for a file.

use onbeat_plan::Plan;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of queued plans, and of outcomes that no client has read yet.
const MAX_QUEUED: usize = 16;

/// The outcome of sending a new plan to a running session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The session uses the new plan from now on.
    Taken,
    /// The new plan equals the session's present plan, so nothing changes.
    Same,
    /// The session's present plan stays, because the new plan differs in a setting that cannot
    /// change while a plan runs.
    Refused,
    /// The session's present plan stays, because the new file is not a usable plan.
    Broken,
}

/// The outcome of an attempt to use a new plan, and the reason for the outcome.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    pub outcome: Outcome,
    /// The reason for the outcome, as a sentence.
    pub said: String,
}

/// The queue of new plans for a session, with their outcomes.
#[derive(Debug, Default)]
pub struct Reloads {
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    last: u64,
    coming: VecDeque<(u64, Result<Plan, String>)>,
    done: VecDeque<(u64, Reloaded)>,
}

impl Reloads {
    /// Queues a plan, or the reason why its file is not a plan. Returns a number for
    /// [`Reloads::outcome`], or `None` if too many plans are queued.
    pub fn bring(&self, plan: Result<Plan, String>) -> Option<u64> {
        let mut queues = self.lock();
        if queues.coming.len() >= MAX_QUEUED {
            return None;
        }
        queues.last += 1;
        let number = queues.last;
        queues.coming.push_back((number, plan));
        Some(number)
    }

    /// Removes the next queued plan and returns it with its number. Never waits.
    pub fn take(&self) -> Option<(u64, Result<Plan, String>)> {
        self.lock().coming.pop_front()
    }

    /// Stores the outcome of the plan with this number. Only the latest outcomes are stored.
    pub fn done(&self, number: u64, reloaded: Reloaded) {
        let mut queues = self.lock();
        if queues.done.len() == MAX_QUEUED {
            queues.done.pop_front();
        }
        queues.done.push_back((number, reloaded));
    }

    /// Returns the outcome of the plan with this number, or `None` if the session has not reported
    /// it.
    pub fn outcome(&self, number: u64) -> Option<Reloaded> {
        let queues = self.lock();
        let found = queues.done.iter().find(|(n, _)| *n == number);
        found.map(|(_, reloaded)| reloaded.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        // No thread panics while it holds the lock, so a poisoned value is whole.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
