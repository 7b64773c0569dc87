//! A program under measurement: started on its core, spoken to through pipes, observed from outside.

use crate::frame::children::{self, Guarded};
use crate::frame::{Context, LabError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Where a program runs.
#[derive(Debug, Clone, Copy)]
pub struct Seat {
    /// On this CPU only.
    pub cpu: usize,
    /// Before everything else of the machine that is not real-time.
    pub first: bool,
}

/// A running program.
pub struct Peer {
    name: String,
    child: Guarded,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: PathBuf,
}

impl Peer {
    /// Starts it. What it says on its standard error goes into a file beside `log`.
    pub fn start(
        context: &Context,
        mut command: Command,
        name: &str,
        seat: &Seat,
        log: &Path,
    ) -> Result<Peer, LabError> {
        let mut errors = log.as_os_str().to_os_string();
        errors.push(format!("{name}.stderr"));
        let errors = PathBuf::from(errors);
        let file = File::create(&errors).map_err(LabError::file("writing", &errors))?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file);
        children::pin(&mut command, seat.cpu);
        if seat.first {
            children::nice(&mut command, -20);
        }
        let mut child = context.spawn(&mut command)?;
        let input = child.child().stdin.take();
        let (tell, lines) = mpsc::channel();
        if let Some(out) = child.child().stdout.take() {
            // Ends with the program's standard output.
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if tell.send(line).is_err() {
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

    /// Waits for a word; `false` if it is not said until then. What else is said does not count.
    pub fn hears(&mut self, word: &str, until: Instant) -> Result<bool, LabError> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line == word => return Ok(true),
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => return Ok(false),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(LabError::program(
                        &self.name,
                        format!("it ended early{}", self.said()),
                    ))
                }
            }
        }
    }

    /// Says something to it.
    pub fn say(&mut self, line: &str) -> Result<(), LabError> {
        let said = match &mut self.input {
            Some(input) => writeln!(input, "{line}"),
            None => Err(io::Error::other("it has no input")),
        };
        said.map_err(|e| LabError::program(&self.name, format!("{e}{}", self.said())))
    }

    /// Waits until it has ended, and well. One that does not end in time is killed; then `false`.
    pub fn succeed(mut self, limit: Duration) -> Result<bool, LabError> {
        match self.child.wait(limit) {
            Ok(Some(ended)) if ended.status.success() => Ok(true),
            Ok(Some(ended)) => Err(LabError::program(
                &self.name,
                format!("{}{}", ended.status, self.said()),
            )),
            Ok(None) => self
                .child
                .end(libc::SIGKILL)
                .map(|_| false)
                .map_err(|e| LabError::program(&self.name, e)),
            Err(e) => Err(LabError::program(&self.name, e)),
        }
    }

    /// True while it runs.
    pub fn running(&mut self) -> bool {
        self.child.running()
    }

    /// The last line of its standard error, after a colon.
    pub fn said(&self) -> String {
        let text = std::fs::read(&self.errors).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().rfind(|l| !l.trim().is_empty());
        line.map(|l| format!(": {l}")).unwrap_or_default()
    }

    /// CPU time of all its threads so far, ns.
    pub fn cpu_ns(&self) -> Result<u64, LabError> {
        process_cpu_ns(self.child.pid()).map_err(|e| LabError::program(&self.name, e))
    }

    /// Resident memory now, and its share where memory that several processes map counts once, KB.
    pub fn memory_kb(&self) -> Result<(u64, u64), LabError> {
        let path = format!("/proc/{}/smaps_rollup", self.child.pid());
        let text = std::fs::read_to_string(&path).map_err(LabError::file("reading", &path))?;
        let field = |name: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(name)?.split_whitespace().next())
                .and_then(|v| v.parse().ok())
                .ok_or_else(|| LabError::unexpected(&path, format!("no {name}")))
        };
        Ok((field("Rss:")?, field("Pss:")?))
    }
}

/// Exact, unlike the ticks in /proc/PID/stat.
fn process_cpu_ns(pid: u32) -> io::Result<u64> {
    let mut clock = 0;
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both pointers are to live variables.
    let failed = unsafe {
        match libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) {
            0 => libc::clock_gettime(clock, &mut t) != 0,
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// CPU time that everybody together used on one CPU since the machine was started, s; to 10 ms.
pub fn busy_s(cpu: usize) -> f64 {
    busy_in(
        &std::fs::read_to_string("/proc/stat").unwrap_or_default(),
        cpu,
    )
}

fn busy_in(stat: &str, cpu: usize) -> f64 {
    let name = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|l| l.strip_prefix(&name));
    let ticks = line.map(|l| {
        let ticks = l.split_whitespace().filter_map(|v| v.parse::<u64>().ok());
        // user nice system idle iowait irq softirq steal; guest times are within user.
        let busy = ticks
            .take(8)
            .enumerate()
            .filter(|(i, _)| !matches!(i, 3 | 4));
        busy.map(|(_, ticks)| ticks).sum::<u64>()
    });
    // The unit that the kernel shows to programs is fixed.
    ticks.unwrap_or(0) as f64 / 100.0
}

/// Now, CLOCK_MONOTONIC.
pub fn monotonic_ns() -> i64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_a_cpu_is_read_without_its_idle_time() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 1 1 1 1 1 1 1 0 0\ncpu1 100 20 30 5000 7 1 2 47 60 0\n";
        assert_eq!((busy_in(stat, 1), busy_in(stat, 7)), (2.0, 0.0));
    }

    #[test]
    fn the_cpu_time_of_a_process_grows_with_what_it_does() {
        let me = std::process::id();
        let before = process_cpu_ns(me).unwrap();
        let mut x = 1u64;
        while process_cpu_ns(me).unwrap() < before + 2_000_000 {
            x = x.wrapping_mul(3);
        }
        assert!(x != 0);
        // Linux gives no process a number this large.
        assert!(process_cpu_ns(1 << 22).is_err(), "no such process");
    }
}
