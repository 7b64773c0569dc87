//! Processes of onbeat that run beside an application's process: as its user, within its container,
//! and with its ROS 2. The shaper is one, and the process that publishes diagnostics is another.
//!
//! | module | task |
//! |---|---|
//! | here | a companion, seen from its owner |
//! | `beside` | the application's process |
//! | `start` | starts a companion |
//! | `container` | starts a companion within a container |
//! | `process`, `stderr` | its process, and the end of what it has written |

mod beside;
mod container;
mod process;
mod start;
mod stderr;

pub use beside::Beside;
pub use process::Process;
pub use start::{own_environment, spawn, Limits, Priority, Word};
pub use stderr::StderrTail;

use crate::environment::EnvironmentError;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The reason why no process of onbeat runs beside the application. The messages explain the
/// fields.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum CompanionError {
    #[error(transparent)]
    Application(#[from] EnvironmentError),
    #[error("cannot start a process beside the application: {0}")]
    Start(io::Error),
    #[error("cannot start a process in the container of process {pid}: {source}. Provide /proc and glibc in the container, and run onbeat as root")]
    Container { pid: u32, source: io::Error },
    /// This user may not run a companion beside the process with this id, because the companion
    /// would load libraries that the process names.
    #[error("cannot run beside process {0}: it has ended, or another user owns it. Run onbeat as that user or as root")]
    User(u32),
}

const KILLED_WITHIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// A running companion: a process of onbeat beside a process of the application, without real-time
/// priorities. Dropping this value kills the process.
#[derive(Debug)]
pub struct Companion {
    process: Process,
}

impl Companion {
    /// Starts the program with the subcommand `word` beside a process that was seen at `seen_ns`
    /// (CLOCK_MONOTONIC). The companion inherits `descriptors`. It reads the result of `config` on
    /// its standard input. `config` gets the path of the application's librcl, and the folders from
    /// which the application has loaded libraries.
    ///
    /// # Errors
    ///
    /// Returns a [`CompanionError`] if the companion may not or cannot be started.
    pub fn start(
        (program, word): (&Path, Word),
        (pid, seen_ns): (u32, u64),
        descriptors: [RawFd; 2],
        config: impl FnOnce(PathBuf, Vec<PathBuf>) -> serde_json::Result<Vec<u8>>,
    ) -> Result<Companion, CompanionError> {
        let beside = Beside::of(pid, seen_ns).ok_or(CompanionError::User(pid))?;
        let found = own_environment(&beside)?;
        let text = config(found.rcl, found.folders).map_err(|e| CompanionError::Start(e.into()))?;
        let limits = Limits {
            inherited: [Some(descriptors[0]), Some(descriptors[1]), None, None],
            priority: Priority::Allowed(0),
        };
        let (process, stdin) = spawn((program, word), found.variables, &beside, limits)?;
        let companion = Companion { process };
        if let Some(mut stdin) = stdin {
            stdin.write_all(&text).map_err(CompanionError::Start)?;
        }
        Ok(companion)
    }

    /// Returns the companion's exit status if it has ended.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the process's state cannot be read.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.said.drain();
        self.process.try_wait()
    }

    /// Returns the last line that the companion wrote to its standard error.
    pub fn last_line(&mut self) -> String {
        self.process.said.last_line()
    }

    /// Waits until the companion has ended, for at most `at_most`.
    pub fn wait(&mut self, at_most: Duration) {
        let begin = Instant::now();
        while matches!(self.ended(), Ok(None)) && begin.elapsed() < at_most {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(None)) {
            self.process.kill();
            self.wait(KILLED_WITHIN);
        }
    }
}
