//! Holds the status of a session for other threads. No side waits for the other: threads of normal
//! priority hold the lock only to copy a pointer.

use super::{Reloads, Status};
use onbeat_ros::diagnostics::Post;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The latest status of a session, the new plans for the session, and the notes about its
/// diagnostics. The session and its status service share this value.
#[derive(Debug, Default)]
pub struct Board {
    status: Mutex<(Arc<Status>, Option<Instant>)>,
    reloads: Reloads,
    post: Arc<Post>,
}

impl Board {
    /// Replaces the status that clients get.
    pub fn publish(&self, status: Status) {
        *self.lock() = (Arc::new(status), Some(Instant::now()));
    }

    /// Returns the status that the session published last.
    pub fn status(&self) -> Arc<Status> {
        self.lock().0.clone()
    }

    /// Returns the latest status and its age. The age is zero while no status has been published.
    pub(crate) fn published(&self) -> (Arc<Status>, Duration) {
        let (status, at) = self.lock().clone();
        (status, at.map_or(Duration::ZERO, |at| at.elapsed()))
    }

    /// Returns the queue of new plans that clients have sent to the session.
    pub fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    pub(crate) fn post(&self) -> &Arc<Post> {
        &self.post
    }

    fn lock(&self) -> MutexGuard<'_, (Arc<Status>, Option<Instant>)> {
        // No thread panics while it holds the lock, so a poisoned value is whole.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
