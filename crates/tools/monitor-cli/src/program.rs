//! Starts the user's program for incidents. The number of programs and their time are limited.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RUNNING_MAX: usize = 4;

/// The time after which the monitor kills a program of the user (`--exec`).
const PATIENCE: Duration = Duration::from_secs(60);

/// The facts about an incident that a program of the user (`--exec`) gets.
pub struct Told<'a> {
    /// The event of the incident: `began`, `saved` or `ended`.
    pub what: &'a str,
    pub number: u64,
    pub severity: f64,
    /// The position of the first violated requirement within the requirements file.
    pub requirement: &'a str,
    pub subject: &'a str,
    pub limit: &'a str,
    pub measured: &'a str,
    pub directory: Option<OsString>,
}

pub struct Programs {
    path: Option<PathBuf>,
    running: Vec<(Child, Instant)>,
    /// If true, the monitor waits for the end of each started program before it reads the next
    /// event.
    waits: bool,
}

impl Programs {
    pub fn new(path: Option<&Path>, waits: bool) -> Programs {
        Programs {
            path: path.map(Path::to_path_buf),
            running: Vec::new(),
            waits,
        }
    }

    /// Starts the user's program for an event of an incident. Returns `None` if the user named no
    /// program, `false` if too many programs are running, and `true` if the program was started.
    ///
    /// # Errors
    /// Returns the system's error if it cannot start the program.
    pub fn start(&mut self, told: &Told<'_>) -> Option<io::Result<bool>> {
        let path = self.path.clone()?;
        self.reap();
        if self.running.len() >= RUNNING_MAX {
            return Some(Ok(false));
        }
        let started = self.spawn(&path, told);
        Some(started.map(|child| {
            self.running.push((child, Instant::now()));
            while self.waits && !self.running.is_empty() {
                self.reap();
                std::thread::sleep(Duration::from_millis(5));
            }
            true
        }))
    }

    fn spawn(&self, path: &Path, told: &Told<'_>) -> io::Result<Child> {
        let mut command = Command::new(path);
        command
            .arg(told.what)
            .env("ONBEAT_INCIDENT", told.number.to_string())
            .env("ONBEAT_SEVERITY", format!("{:.3}", told.severity))
            .env("ONBEAT_REQUIREMENT", without_nul(told.requirement))
            .env("ONBEAT_SUBJECT", without_nul(told.subject))
            .env("ONBEAT_LIMIT", without_nul(told.limit))
            .env("ONBEAT_MEASURED", without_nul(told.measured))
            .env(
                "ONBEAT_DIRECTORY",
                told.directory.clone().unwrap_or_default(),
            )
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_PID")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::null())
            .process_group(0);
        // The program's output goes to the journal, beside ours.
        if let Ok(copy) = std::os::fd::AsFd::as_fd(&io::stderr()).try_clone_to_owned() {
            command.stdout(copy);
        }
        // SAFETY: the function makes system calls only, and allocates only if it fails.
        unsafe { command.pre_exec(onbeat_rights::give_up_in_child) };
        command.spawn()
    }

    /// Forgets the programs that have ended, and kills those that have run for longer than
    /// [`PATIENCE`].
    pub fn reap(&mut self) {
        self.running.retain_mut(|(child, since)| {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return false,
            }
            if since.elapsed() > PATIENCE {
                kill_group(child);
            }
            true
        });
    }
}

fn kill_group(child: &Child) {
    if let Ok(pid) = libc::pid_t::try_from(child.id()) {
        // SAFETY: the call takes no pointers. The child has not been waited for, so its id is its own.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
    }
}

/// Replaces NUL characters, because an environment variable cannot contain them.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
