//! The guard: a process that resumes the command's processes if the recorder is killed or hangs.

use crate::kernel::Suspended;
use crate::privilege;
use onbeat_proc::Stat;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::{Duration, Instant};

const LOOK_MS: libc::c_int = 1000;
/// The longest time that a process may be suspended. It is enough for attaching all probes, which
/// takes seconds on a busy machine. After this time the recorder counts as hanging, for example
/// because nothing reads its output or its disk does not answer.
const SUSPENDED_MAX: Duration = Duration::from_secs(30);
/// The longest time that a process may be suspended while the recorder itself is stopped.
const RECORDER_STOPPED_MAX: Duration = Duration::from_millis(900);

/// A guard process that resumes the processes which the recorder suspended, if the recorder is
/// killed or leaves them suspended for too long.
pub struct Guard {
    pid: libc::pid_t,
    _pipe: File,
}

impl Guard {
    /// Forks the guard process. The recorder must have only one thread.
    pub fn start(suspended: &Suspended) -> std::io::Result<Guard> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors. The files made from them own both.
        let (read, write) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
        };
        // SAFETY: the recorder has only one thread here, so the child may run any code.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()),
            0 => {
                drop(write);
                guard(&read, suspended);
                // SAFETY: this ends the guard without running the recorder's destructors.
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

fn guard(pipe: &File, suspended: &Suspended) {
    // The guard ends only when its pipe is closed. So it ignores signals of the terminal, also
    // those of Ctrl-\ and Ctrl-Z.
    // SAFETY: plain system calls.
    unsafe {
        libc::setsid();
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_NAME, c"onbeat-guard".as_ptr());
    }
    // The ring buffer and the probes belong to the recorder. Descriptors kept here would keep them
    // alive after the recorder's end.
    close_others(pipe);
    privilege::drop_in_guard();
    let mut watch = Watch::default();
    while !is_closed(pipe, LOOK_MS) {
        watch.look(suspended, Instant::now());
    }
    // The kernel removes the probes one by one, and processes may still hit some of them.
    suspended.no_more();
    // A process may be about to be suspended, so this repeats for a second.
    for _ in 0..10 {
        suspended.resume_all();
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[derive(Default)]
struct Watch(BTreeMap<u32, Instant>);

impl Watch {
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

fn is_closed(pipe: &File, timeout_ms: libc::c_int) -> bool {
    let mut poll = libc::pollfd {
        fd: pipe.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `poll` is one valid entry.
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
        // SAFETY: the guard uses none of these descriptors, and never returns to code that does.
        unsafe { libc::close(fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_is_suspended_for_too_long_is_resumed() {
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
        // A process that is suspended again may stay suspended for the full time again.
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
