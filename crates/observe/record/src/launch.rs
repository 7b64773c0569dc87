//! Starts the command that is to be recorded, and stands guard over it.
//!
//! Processes of the command are held with SIGSTOP for the moment in which probes are put into a
//! library that they have just loaded. Should the recorder be killed in that moment, the guard,
//! a process of its own, continues them.

use crate::proc;
use crate::user::{self, User};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use thiserror::Error;

/// Why the command could not be started.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// It could not be executed.
    #[error("cannot start {program}: {source}: is its name right, and is it on your PATH?")]
    Start {
        /// The command's first word.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The guard could not be started.
    #[error("cannot start the guard process: {0}")]
    Guard(std::io::Error),
}

/// A started command.
pub struct Launched {
    /// The command.
    pub child: Child,
    /// Tells the guard which process tree it guards; closing it, in whatever way, calls the guard.
    _guard: File,
    guard_pid: libc::pid_t,
}

/// Starts `command` (words). Under sudo it runs as the invoking user with his groups and environment, as
/// it would without us. With `to_stderr` it prints to our standard error.
pub fn launch(command: &[String], to_stderr: bool) -> Result<Launched, LaunchError> {
    let (guard_pid, mut guard) = start_guard().map_err(LaunchError::Guard)?;
    let program = command.first().cloned().unwrap_or_default();
    let mut builder = Command::new(&program);
    builder.args(&command[1..]);
    if to_stderr {
        if let Ok(stderr) = std::io::stderr().as_fd().try_clone_to_owned() {
            builder.stdout(stderr);
        }
    }
    if let Some(environment) = user::environment() {
        builder.env_clear().envs(environment);
    }
    if let Some(user) = user::invoking() {
        as_user(&mut builder, user);
    }
    let child = builder
        .spawn()
        .map_err(|source| LaunchError::Start { program, source })?;
    let _ = guard.write_all(&child.id().to_ne_bytes());
    Ok(Launched {
        child,
        _guard: guard,
        guard_pid,
    })
}

/// Makes the command the user's.
fn as_user(builder: &mut Command, user: User) {
    let set: Vec<_> = builder
        .get_envs()
        .map(|(name, _)| name.to_owned())
        .collect();
    let home = user.home.as_ref();
    for (name, value) in [
        ("HOME", home),
        ("USER", Some(&user.name)),
        ("LOGNAME", Some(&user.name)),
    ] {
        // Where the user's own environment is not known, sudo's says root's.
        if let Some(value) = value.filter(|_| !set.iter().any(|n| n == name)) {
            builder.env(name, value);
        }
    }
    // SAFETY: between fork and exec, only system calls, on values made before.
    unsafe {
        builder.pre_exec(move || {
            let groups = &user.groups;
            if libc::setgroups(groups.len(), groups.as_ptr()) != 0
                || libc::setgid(user.gid) != 0
                || libc::setuid(user.uid) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // Ended properly: everything was continued already, so the guard need not look.
        // SAFETY: plain system calls on a child of ours.
        unsafe {
            libc::kill(self.guard_pid, libc::SIGKILL);
            libc::waitpid(self.guard_pid, std::ptr::null_mut(), 0);
        }
    }
}

/// Forks the guard: it reads the id of the process tree, waits for the pipe's end, and continues
/// whatever stands still in the tree.
fn start_guard() -> std::io::Result<(libc::pid_t, File)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors; both are owned by the files made from them.
    let (read, write) = unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    };
    // SAFETY: the recorder has one thread at this point, so the child may go on as it likes.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            drop(write);
            guard(read);
            // SAFETY: ends the guard without running the recorder's destructors.
            unsafe { libc::_exit(0) }
        }
        pid => Ok((pid, write)),
    }
}

fn guard(mut pipe: File) {
    // The terminal's Ctrl-C is for the others: the guard ends when its pipe does.
    // SAFETY: plain system calls.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_NAME, c"onbeat-guard".as_ptr());
    }
    // The ring buffer and the probes belong to the recorder: if the guard kept their descriptors,
    // they would outlive it.
    close_others(&pipe);
    let mut id = [0; 4];
    if pipe.read_exact(&mut id).is_err() {
        return;
    }
    let mut rest = Vec::new();
    let _ = pipe.read_to_end(&mut rest);
    let root = u32::from_ne_bytes(id);
    // A process may be on its way into the stop: look a few times.
    for _ in 0..10 {
        for pid in proc::tree(root) {
            // SAFETY: plain system call; continuing a process that runs does nothing.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGCONT) };
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn close_others(keep: &File) {
    use std::os::fd::AsRawFd;
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
