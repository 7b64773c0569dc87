//! Where a session leaves its status. Neither side waits for the other: a lock is held for as long as it takes to
//! copy a pointer, by threads of normal priority.

use super::post::Post;
use super::{Reloads, Status};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shared by a session and those who ask it.
#[derive(Debug, Default)]
pub struct Board {
    /// The last status, and when it came.
    status: Mutex<(Arc<Status>, Option<Instant>)>,
    reloads: Reloads,
    post: Post,
}

impl Board {
    /// Leaves the status.
    pub fn publish(&self, status: Status) {
        *self.lock() = (Arc::new(status), Some(Instant::now()));
    }

    /// The last status.
    pub fn status(&self) -> Arc<Status> {
        self.lock().0.clone()
    }

    /// The same, and how old it is. Before there was one it is not old.
    pub(crate) fn published(&self) -> (Arc<Status>, Duration) {
        let (status, at) = self.lock().clone();
        (status, at.map_or(Duration::ZERO, |at| at.elapsed()))
    }

    /// New plans on their way to the session.
    pub fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    /// What the session and the thread of its diagnostics leave for each other.
    pub(crate) fn post(&self) -> &Post {
        &self.post
    }

    fn lock(&self) -> MutexGuard<'_, (Arc<Status>, Option<Instant>)> {
        // Nobody panics between two steps that belong together.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
