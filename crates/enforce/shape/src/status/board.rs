//! Where a session leaves its status. Neither side waits for the other: a lock is held for as long as it takes to
//! copy a pointer, by threads of normal priority.

use super::{Reloads, Status};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by a session and those who ask it.
#[derive(Debug, Default)]
pub struct Board {
    status: Mutex<Arc<Status>>,
    reloads: Reloads,
}

impl Board {
    /// Leaves the status.
    pub fn publish(&self, status: Status) {
        *self.lock() = Arc::new(status);
    }

    /// The last status.
    pub fn status(&self) -> Arc<Status> {
        self.lock().clone()
    }

    /// New plans on their way to the session.
    pub fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Status>> {
        // Nobody panics between two steps that belong together.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
