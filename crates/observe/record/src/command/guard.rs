//! The guard: a process that resumes the command's processes if the recorder is killed, or does not go
//! on.

use crate::kernel::Suspended;
use crate::privilege;
use onbeat_proc::Stat;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::{Duration, Instant};

/// How often the guard looks at what is suspended.
const LOOK_MS: libc::c_int = 1000;
/// How long a process may be suspended: to attach all probes takes seconds on a busy machine. A
/// recorder may not go on because its output is not read, or its disk does not answer.
const SUSPENDED_MAX: Duration = Duration::from_secs(30);
/// The same when the recorder itself is stopped.
const RECORDER_STOPPED_MAX: Duration = Duration::from_millis(900);

/// A guard that waits. It acts when the recorder ends without dropping this.
pub struct Guard {
    pid: libc::pid_t,
    /// The guard acts when this is closed.
    _pipe: File,
}

impl Guard {
    /// Forks the guard of what is suspended. To be called while the recorder has one thread.
    pub fn start(suspended: &Suspended) -> std::io::Result<Guard> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors; both are owned by the files made from them.
        let (read, write) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
        };
        // SAFETY: the recorder has one thread at this point, so that the child may go on freely.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()),
            0 => {
                drop(write);
                guard(&read, suspended);
                // SAFETY: ends the guard without running the recorder's destructors.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Guard { pid, _pipe: write }),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The recorder ends properly and has resumed everything itself.
        // SAFETY: plain system calls on a child of ours.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// The guard's life: resumes what is suspended for too long until the pipe is closed, then everything
/// that is suspended.
fn guard(pipe: &File, suspended: &Suspended) {
    // Signals of the terminal are for the others, also Ctrl-\ and Ctrl-Z: the guard ends when its
    // pipe is closed.
    // SAFETY: plain system calls.
    unsafe {
        libc::setsid();
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_NAME, c"onbeat-guard".as_ptr());
    }
    // The ring buffer and the probes belong to the recorder. Descriptors kept here would keep them
    // alive after its end.
    close_others(pipe);
    privilege::drop_in_guard();
    let mut watch = Watch::default();
    while !is_closed(pipe, LOOK_MS) {
        watch.look(suspended, Instant::now());
    }
    // The kernel takes the probes out one by one, and may hit some meanwhile.
    suspended.no_more();
    // A process may be about to be suspended: repeat for a second.
    for _ in 0..10 {
        suspended.resume_all();
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What is suspended, and since when the guard has known it.
#[derive(Default)]
struct Watch(BTreeMap<u32, Instant>);

impl Watch {
    /// Resumes what the recorder leaves suspended for too long.
    fn look(&mut self, suspended: &Suspended, now: Instant) {
        if !suspended.is_new() && self.0.is_empty() {
            return;
        }
        let all = suspended.all();
        self.0.retain(|pid, _| all.contains(pid));
        let recorder = Stat::of(suspended.recorder());
        let most = match recorder.is_some_and(|stat| stat.state == 'T') {
            true => RECORDER_STOPPED_MAX,
            false => SUSPENDED_MAX,
        };
        for pid in all {
            let since = *self.0.entry(pid).or_insert(now);
            if now.saturating_duration_since(since) >= most {
                self.0.remove(&pid);
                suspended.resume(pid);
            }
        }
    }
}

/// Whether the other end of the pipe is closed; waits so long for it.
fn is_closed(pipe: &File, timeout_ms: libc::c_int) -> bool {
    let mut poll = libc::pollfd {
        fd: pipe.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut poll, 1, timeout_ms) > 0 }
}

fn close_others(keep: &File) {
    let keep = keep.as_raw_fd();
    let Ok(dir) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let open: Vec<i32> = dir
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|&fd| fd > 2 && fd != keep) {
        // SAFETY: the guard uses none of these; it never returns into code that does.
        unsafe { libc::close(fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_is_suspended_for_too_long_is_resumed() {
        let suspended = Suspended::none();
        let mut process = Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = process.id();
        let mut watch = Watch::default();
        let begin = Instant::now();
        watch.look(&suspended, begin);
        suspended.suspend(pid);
        watch.look(&suspended, begin);
        watch.look(&suspended, begin + SUSPENDED_MAX / 2);
        assert_eq!(suspended.all(), [pid]);
        watch.look(&suspended, begin + SUSPENDED_MAX);
        assert!(suspended.all().is_empty());
        while Stat::of(pid).is_some_and(|stat| stat.state == 'T') {
            std::thread::yield_now();
        }
        // One that is suspended again has its time again.
        suspended.suspend(pid);
        watch.look(&suspended, begin + SUSPENDED_MAX);
        watch.look(&suspended, begin + SUSPENDED_MAX * 3 / 2);
        let left = suspended.all();
        process
            .kill()
            .and_then(|()| process.wait())
            .expect("it ends");
        assert_eq!(left, [pid]);
    }
}
