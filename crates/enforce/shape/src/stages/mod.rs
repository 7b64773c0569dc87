//! The stages of a session, each a type with what it needs.
//!
//! ```text
//! Finding ---(all callbacks found, period known)---> Shaping
//!    |                                                  |
//!    | (end, error)         (end, error, overshoot: stop)
//!    v                                                  v
//!    +------------------> Stopped <---------------------+
//! ```
//!
//! - [`Finding`]: the application runs as it would without us.
//! - [`Shaping`]: its threads are in their servers.
//! - [`Stopped`]: everything is put back; the application runs on, and executions that ended before
//!   are still judged.

mod books;
mod course;
mod finding;
mod pauses;
mod shaping;

pub(crate) use course::Course;
pub(crate) use finding::{Finding, ShaperView};
pub(crate) use shaping::{left_alone, Shaping};

use crate::judge::CpuUsage;
use crate::report::PlacedThread;
use onbeat_reserve::Stats;

/// Where a session is.
pub(crate) enum Stage<'a> {
    Finding(Finding),
    Shaping(Box<Shaping<'a>>),
    Stopped(Stopped),
}

/// Why shaping ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoppedBy {
    /// Its time was over, or the application, or somebody asked.
    Request,
    /// An output was late, and the policy says so.
    Overshoot,
    /// The guard has ended.
    Guard,
    /// An error, which is told.
    Error,
}

/// The application runs on, unshaped.
pub(crate) struct Stopped {
    /// Why.
    pub(crate) by: StoppedBy,
    /// When shaping ended, CLOCK_MONOTONIC.
    pub(crate) at_ns: u64,
    /// `None` if the application was never shaped.
    pub(crate) shaped: Option<Box<Shaped>>,
}

/// What remains of [`Shaping`].
pub(crate) struct Shaped {
    pub(crate) course: Course,
    /// All threads that were placed.
    pub(crate) placed: Vec<PlacedThread>,
    /// Final counters of the dispatcher.
    pub(crate) stats: Stats,
    /// CPU time when all had settled, and when shaping ended. `None` if it ended before.
    pub(crate) usage: Option<(CpuUsage, CpuUsage)>,
}

impl Stage<'_> {
    /// The course of shaping so far. `None` if it never began.
    pub(crate) fn course(&self) -> Option<&Course> {
        match self {
            Stage::Finding(_) => None,
            Stage::Shaping(shaping) => Some(&shaping.course),
            Stage::Stopped(stopped) => stopped.shaped.as_ref().map(|s| &s.course),
        }
    }

    /// The course, to be continued, with the instant up to which executions and switches count.
    pub(crate) fn course_mut(&mut self) -> Option<(&mut Course, u64)> {
        match self {
            Stage::Finding(_) => None,
            Stage::Shaping(shaping) => Some((&mut shaping.course, u64::MAX)),
            Stage::Stopped(stopped) => {
                let shaped = stopped.shaped.as_mut()?;
                Some((&mut shaped.course, stopped.at_ns))
            }
        }
    }

    /// Whether everything was put back.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self, Stage::Stopped(_))
    }
}
