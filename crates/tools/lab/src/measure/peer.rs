//! A program under measurement. The lab starts it, talks to it in the protocol of
//! `peers/README.md`, and observes it from outside.

use crate::frame::children::Guarded;
use crate::frame::{Context, LabError, Result};
use onbeat_proc::{processes, threads, Stat, Status};
use onbeat_time::clock;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::AddAssign;
use std::os::unix::fs::FileExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The longest time in which a peer program may send no line. It covers a slow start, a run, and
/// the program's own time limits.
const PATIENCE: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    pub cpu_ns: f64,
    pub switches: f64,
    pub messages: f64,
}

impl Usage {
    pub fn each(&self) -> (f64, f64) {
        let n = self.messages.max(1.0);
        (self.cpu_ns / n, self.switches / n)
    }

    pub fn of_process(pid: u32) -> Option<Usage> {
        let switches = |tid: u32| {
            let status = Status::of_thread(pid, tid).ok()?;
            let (voluntary, involuntary) = status.context_switches()?;
            Some((voluntary + involuntary) as f64)
        };
        Some(Usage {
            cpu_ns: clock::process_cpu_ns(pid)? as f64,
            switches: threads(pid).into_iter().filter_map(switches).sum(),
            messages: 0.0,
        })
    }

    fn parse(words: &str) -> Option<Usage> {
        let numbers: Vec<f64> = words.split(' ').filter_map(|w| w.parse().ok()).collect();
        match numbers[..] {
            [messages, cpu_ns, voluntary, involuntary] => Some(Usage {
                cpu_ns,
                switches: voluntary + involuntary,
                messages,
            }),
            _ => None,
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.cpu_ns += other.cpu_ns;
        self.switches += other.switches;
        self.messages += other.messages;
    }
}

pub struct Peer {
    name: String,
    child: Guarded,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// A file with the peer program's standard error. It is a file, because nobody would read a
    /// pipe while the program runs.
    errors: File,
}

impl Peer {
    pub fn start(context: &Context, command: &mut Command, name: &str) -> Result<Peer> {
        let errors = context.unnamed_file()?;
        let written = errors.try_clone().map_err(|e| LabError::program(name, e))?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(written);
        let mut child = context.spawn(command)?;
        let input = child.child().stdin.take();
        let (heard, lines) = mpsc::channel();
        if let Some(out) = child.child().stdout.take() {
            // The thread ends when the program closes its standard output.
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if heard.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Peer {
            name: name.into(),
            child,
            input,
            lines,
            errors,
        })
    }

    pub fn say(&mut self, line: &str) -> Result<()> {
        let said = self
            .input
            .as_mut()
            .is_some_and(|input| writeln!(input, "{line}").is_ok());
        if said {
            Ok(())
        } else {
            Err(self.failure("it ended early"))
        }
    }

    /// Waits for a line that begins with `answer` and returns the words after `answer`. Returns
    /// `None` if no such line comes before `until`. Ignores other lines.
    pub fn hear(&mut self, answer: &str, until: Instant) -> Result<Option<String>> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
                    if word == answer {
                        return Ok(Some(rest.to_string()));
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(self.failure("it ended early")),
            }
        }
    }

    pub fn expect(&mut self, answer: &str) -> Result<String> {
        self.expect_within(answer, PATIENCE)
    }

    fn expect_within(&mut self, answer: &str, limit: Duration) -> Result<String> {
        match self.hear(answer, Instant::now() + limit)? {
            Some(rest) => Ok(rest),
            None => {
                let _ = self.child.end(libc::SIGKILL);
                let why = format!("no '{answer}' within {} s", limit.as_secs());
                Err(self.failure(&why))
            }
        }
    }

    pub fn done(&mut self) -> Result<Usage> {
        self.done_after(Duration::ZERO)
    }

    pub fn done_after(&mut self, run: Duration) -> Result<Usage> {
        let words = self.expect_within("done", run + PATIENCE)?;
        Usage::parse(&words).ok_or_else(|| {
            self.failure(&format!(
                "the program answered 'done {words}', which is not a report of its usage"
            ))
        })
    }

    pub fn end(&mut self, limit: Duration) {
        self.input = None;
        let _ = self.child.wait(limit);
    }

    pub fn succeed(mut self, limit: Duration) -> Result<bool> {
        match self.child.wait(limit) {
            Ok(Some(ended)) if ended.status.success() => Ok(true),
            Ok(Some(ended)) => Err(self.failure(&ended.status.to_string())),
            Ok(None) => self
                .child
                .end(libc::SIGKILL)
                .map(|_| false)
                .map_err(|e| LabError::program(&self.name, e)),
            Err(e) => Err(LabError::program(&self.name, e)),
        }
    }

    pub fn running(&mut self) -> bool {
        self.child.running()
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    fn failure(&self, why: &str) -> LabError {
        LabError::program(&self.name, format!("{why}{}", self.last_error()))
    }

    pub fn last_error(&self) -> String {
        // Reading at offsets leaves the file position alone, which the program shares for writing.
        let (mut text, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = self.errors.read_at(&mut part, text.len() as u64) {
            text.extend_from_slice(&part[..n]);
        }
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().rfind(|l| !l.trim().is_empty());
        line.map(|l| format!(": {l}")).unwrap_or_default()
    }

    pub fn cpu_ns(&self) -> Result<u64> {
        clock::process_cpu_ns(self.pid()).ok_or_else(|| self.failure("it ended early"))
    }

    /// Returns the resident and the proportional memory of the process in KiB. Proportional memory
    /// counts a shared page in equal parts for the processes that share it.
    pub fn memory_kib(&self) -> Result<(u64, u64)> {
        let memory = Status::of_memory(self.pid()).map_err(|e| LabError::program(&self.name, e))?;
        match (memory.number("Rss"), memory.number("Pss")) {
            (Some(rss), Some(pss)) => Ok((rss, pss)),
            _ => Err(LabError::unexpected("smaps_rollup", "no Rss or no Pss")),
        }
    }
}

/// Returns the CPU time in ns that the threads of the peer programs and of the kernel have used so
/// far.
///
/// The CPU time comes from the kernel's accounts of threads, which leave out the time that the host
/// took. All threads of the kernel count, because they carry packets for all programs. Interrupts
/// during which a CPU is idle are in no thread's account.
pub fn used_ns(peers: &[Peer]) -> Result<u64> {
    const KERNEL: u32 = 2;
    let is_kernel = |stat: &Stat| stat.parent == KERNEL;
    let kernel = processes().into_iter().filter_map(Stat::of);
    let kernel = kernel.filter(is_kernel);
    let kernel: u64 = kernel.filter_map(|s| clock::process_cpu_ns(s.id)).sum();
    Ok(kernel + peers.iter().map(Peer::cpu_ns).sum::<Result<u64>>()?)
}

/// Makes all peer programs begin their prepared run together, at the time `lead` from now. Returns
/// the start of the run in ns of CLOCK_MONOTONIC.
pub fn start_all(peers: &mut [Peer], lead: Duration) -> Result<i64> {
    let start_ns = clock::monotonic_ns() as i64 + lead.as_nanos() as i64;
    for peer in peers {
        peer.say(&format!("start {start_ns}"))?;
    }
    Ok(start_ns)
}

pub fn stop_all(peers: &mut [Peer]) -> Result<()> {
    for peer in peers.iter_mut() {
        peer.say("stop")?;
    }
    peers
        .iter_mut()
        .try_for_each(|peer| peer.expect("written").map(drop))
}

pub fn end_all(peers: &mut [Peer]) {
    peers.iter_mut().for_each(|p| p.input = None);
    let until = Instant::now() + Duration::from_secs(10);
    for peer in peers {
        peer.end(until.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_a_process_is_measured() {
        let usage = Usage::of_process(std::process::id()).unwrap();
        assert!(usage.cpu_ns > 0.0);
        assert_eq!(Usage::of_process(u32::MAX), None);
    }

    #[test]
    fn the_usage_in_a_peers_answer_is_parsed() {
        let usage = Usage::parse("50 1000 30 2").unwrap();
        assert_eq!(usage.each(), (20.0, 0.64));
        for wrong in ["", "50", "50 1000 30", "50 1000 30 2 1", "a b c d"] {
            assert_eq!(Usage::parse(wrong), None, "{wrong:?}");
        }
    }
}
