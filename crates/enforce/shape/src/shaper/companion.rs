//! Another process of this program beside the application's: as its user and in its ROS 2, as a shaper is, but
//! without priorities. It publishes what a session tells.

use super::beside::Beside;
use super::process::Process;
use super::start::{own_environment, spawn, Limits, Priority, Word};
use super::ShaperError;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// It must have ended so long after it was killed; else it is left to the kernel.
const KILLED_WITHIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// A running companion. Dropping it kills it.
pub(crate) struct Companion {
    process: Process,
}

impl Companion {
    /// Starts the program with `word` beside a process that was seen at an instant (CLOCK_MONOTONIC). It inherits
    /// `descriptors`, and reads what `config` makes of librcl and of its libraries' folders from its standard input.
    pub(crate) fn start(
        (program, word): (&Path, Word),
        (pid, seen_ns): (u32, u64),
        descriptors: [RawFd; 2],
        config: impl FnOnce(PathBuf, Vec<PathBuf>) -> serde_json::Result<Vec<u8>>,
    ) -> Result<Companion, ShaperError> {
        let beside = Beside::of(pid, seen_ns).ok_or(ShaperError::User(pid))?;
        let found = own_environment(&beside)?;
        let text = config(found.rcl, found.folders).map_err(|e| ShaperError::Start(e.into()))?;
        let limits = Limits {
            inherited: [Some(descriptors[0]), Some(descriptors[1]), None, None],
            priority: Priority::Allowed(0),
        };
        let (process, stdin) = spawn((program, word), found.variables, &beside, limits)?;
        let companion = Companion { process };
        if let Some(mut stdin) = stdin {
            stdin.write_all(&text).map_err(ShaperError::Start)?;
        }
        Ok(companion)
    }

    /// Its exit status once it has ended. Does not wait.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.said.drain();
        self.process.try_wait()
    }

    /// The last line of what it said.
    pub(crate) fn last_line(&mut self) -> String {
        self.process.said.last_line()
    }

    /// Waits until it has ended by itself, but no longer than that.
    pub(crate) fn wait(&mut self, at_most: Duration) {
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
