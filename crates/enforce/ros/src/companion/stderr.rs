//! Reads a companion's standard error all the time, so that the companion never waits for a write,
//! and keeps the end of the text.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};

const KEPT_BYTES: usize = 4096;
/// The greatest number of reads per call, so that a process that writes without end does not block
/// its reader.
const MAX_READS: usize = 64;

/// The last 4 KiB of what a process has written to its standard error.
#[derive(Debug, Default)]
pub struct StderrTail {
    pipe: Option<File>,
    last: VecDeque<u8>,
}

impl StderrTail {
    pub(super) fn new(pipe: Option<impl Into<OwnedFd>>) -> StderrTail {
        let pipe: Option<OwnedFd> = pipe.map(Into::into);
        if let Some(pipe) = &pipe {
            // SAFETY: fcntl only sets a flag on an open descriptor.
            unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        }
        StderrTail {
            pipe: pipe.map(File::from),
            last: VecDeque::new(),
        }
    }

    /// Reads what the process has written since the last call. Never waits.
    pub fn drain(&mut self) {
        let mut buffer = [0; KEPT_BYTES];
        for _ in 0..MAX_READS {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    self.last.extend(&buffer[..count]);
                    let excess = self.last.len().saturating_sub(KEPT_BYTES);
                    self.last.drain(..excess);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Returns the last line that the process has written so far. Never waits, although a child of
    /// the process may still have the pipe open.
    pub fn last_line(&mut self) -> String {
        self.drain();
        let text = String::from_utf8_lossy(self.last.make_contiguous()).into_owned();
        let line = text.lines().last().unwrap_or("no message");
        line.chars().filter(|c| !c.is_control()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    fn shell(script: &str) -> (Child, StderrTail) {
        let mut shell = Command::new("sh");
        let mut child = shell
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let said = StderrTail::new(child.stderr.take());
        (child, said)
    }

    fn wait(child: &mut Child, mut meanwhile: impl FnMut()) {
        let begin = Instant::now();
        while child.try_wait().expect("a child").is_none() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it never ends");
            meanwhile();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_that_writes_much_to_stderr_is_not_blocked_and_its_last_line_is_kept() {
        let much = "head -c 1000000 /dev/zero >&2; echo >&2; echo the end >&2";
        let (mut child, mut said) = shell(much);
        wait(&mut child, || said.drain());
        assert_eq!(said.last_line(), "the end");
        assert!(said.last.len() <= KEPT_BYTES);
        assert_eq!(StderrTail::new(None::<OwnedFd>).last_line(), "no message");
    }

    #[test]
    fn the_last_stderr_line_is_read_while_the_pipe_stays_open() {
        let (mut child, mut said) = shell("exec 3<&0; cat <&3 & echo bye >&2");
        let input = child.stdin.take();
        wait(&mut child, || {});
        assert_eq!(said.last_line(), "bye");
        assert!(said.pipe.is_some(), "the other one has it");
        drop(input);
    }
}
