//! The guard: a process that resumes the command's processes if the recorder is killed.

use super::{resume, Marked};
use crate::privilege;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};

/// A guard that waits. It acts when the recorder ends without dropping this.
pub struct Guard {
    pid: libc::pid_t,
    /// Passes the id of the process tree. The guard acts when the pipe is closed.
    pipe: File,
}

impl Guard {
    /// Forks the guard of what `marked` lists. To be called while the recorder has one thread.
    pub fn start(marked: &Marked) -> std::io::Result<Guard> {
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
                guard(read, marked);
                // SAFETY: ends the guard without running the recorder's destructors.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Guard { pid, pipe: write }),
        }
    }

    /// Guards the process tree below `root`.
    pub fn watch(&mut self, root: u32) {
        // Without the guard nothing is lost but its protection.
        let _ = self.pipe.write_all(&root.to_ne_bytes());
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

/// The guard's life: reads the id of the process tree, waits until the pipe is closed, and resumes
/// what is suspended in the tree.
fn guard(mut pipe: File, marked: &Marked) {
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
    close_others(&pipe);
    privilege::drop_in_guard();
    let mut id = [0; 4];
    let root = pipe.read_exact(&mut id).map(|()| u32::from_ne_bytes(id));
    let mut rest = Vec::new();
    let _ = pipe.read_to_end(&mut rest);
    // A process may be about to be suspended: repeat for a second.
    for _ in 0..10 {
        resume(root.as_ref().ok().copied(), marked);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
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
