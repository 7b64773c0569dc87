//! The stages of a session. Each stage is a type with its own data.
//!
//! ```text
//! Finding ---(all callbacks found, period known)---> Shaping
//!    |                                                  |
//!    | (end, error)         (end, error, overshoot: stop)
//!    v                                                  v
//!    +------------------> Stopped <---------------------+
//! ```
//!
//! - [`Finding`]: the application runs as it would without onbeat.
//! - [`Shaping`]: the application's threads are in their servers.
//! - [`Stopped`]: everything is put back and the application continues. Executions that ended
//!   before are still judged.

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

pub(crate) enum Stage<'a> {
    Finding(Finding),
    Shaping(Box<Shaping<'a>>),
    Stopped(Stopped),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoppedBy {
    /// The duration is over, the application has ended, or the user has asked to end the session.
    Request,
    Overshoot,
    Guard,
    Error,
}

pub(crate) struct Stopped {
    pub(crate) by: StoppedBy,
    pub(crate) at_ns: u64,
    pub(crate) shaped: Option<Box<Shaped>>,
}

pub(crate) struct Shaped {
    pub(crate) course: Course,
    pub(crate) placed: Vec<PlacedThread>,
    pub(crate) stats: Stats,
    /// The CPU time that onbeat's processes have used, measured at two instants: when executions
    /// had settled (all running ones had begun under shaping), and when shaping ended. `None` if
    /// shaping ended before executions settled.
    pub(crate) usage: Option<(CpuUsage, CpuUsage)>,
}

impl Stage<'_> {
    pub(crate) fn course(&self) -> Option<&Course> {
        match self {
            Stage::Finding(_) => None,
            Stage::Shaping(shaping) => Some(&shaping.course),
            Stage::Stopped(stopped) => stopped.shaped.as_ref().map(|s| &s.course),
        }
    }

    /// Returns the course of shaping, which counts executions, and the time until which executions
    /// and switches count. Returns `None` if shaping has not begun.
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

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self, Stage::Stopped(_))
    }
}
