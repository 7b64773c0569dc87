//! Starts another process of this program beside the application, which publishes the state of a
//! session. Like a shaper, it runs as the application's user and in its ROS 2, but it has no
//! priorities.

use super::beside::Beside;
use super::process::Process;
use super::start::{own_environment, spawn, Limits, Priority, Word};
use super::ShaperError;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

const KILLED_WITHIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// A running shaper or publisher of diagnostics. Dropping it kills the process.
pub(crate) struct Companion {
    process: Process,
}

impl Companion {
    /// Starts the program with `word` beside a process that was seen at `seen_ns`
    /// (CLOCK_MONOTONIC). The companion inherits `descriptors`. It reads the result of `config` on
    /// its standard input; `config` gets the path of librcl and the directories of its libraries.
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

    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.said.drain();
        self.process.try_wait()
    }

    pub(crate) fn last_line(&mut self) -> String {
        self.process.said.last_line()
    }

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
