//! Starts a shaper within the container of the application's process: in its namespaces, where its ROS 2 and
//! its DDS domain are.
//!
//! Root trusts nobody: what is in a container is another's, also where its user is called root. So the
//! child enters the namespaces, gives up every capability and becomes the process's user, and only then makes the
//! process that the container can see; that one executes this program, from a descriptor of ours. The
//! container's files (its dynamic linker, its C library, its ROS 2) are loaded by that process alone. Libraries that
//! this program needs and a container need not have are descriptors of ours too.

use super::beside::Beside;
use super::process::Process;
use onbeat_proc::maps::mapped_paths;
use onbeat_proc::namespace::Namespace;
use onbeat_proc::User;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Libraries that belong to the C library or the compiler: those of the container are used.
const OF_EVERY_SYSTEM: [&str; 8] = [
    "libc.so",
    "libm.so",
    "libdl.so",
    "librt.so",
    "libpthread.so",
    "libgcc_s.so",
    "libstdc++.so",
    "ld-",
];

/// A process that is born in a container can be stopped by others there before it executes its program.
const START_WITHIN: Duration = Duration::from_secs(20);

/// This program and its libraries, as descriptors that a child inherits.
pub(super) struct Program {
    program: File,
    libraries: Vec<File>,
}

impl Program {
    /// Opens the program, and the libraries of this process, which runs it too.
    pub(super) fn open(path: &Path) -> io::Result<Program> {
        let is_ours = |path: &&std::path::PathBuf| {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            name.contains(".so") && !OF_EVERY_SYSTEM.iter().any(|known| name.starts_with(known))
        };
        let mapped = mapped_paths(std::process::id())?;
        let libraries = mapped.files.iter().filter(is_ours).map(File::open);
        Ok(Program {
            program: File::open(path)?,
            libraries: libraries.collect::<io::Result<_>>()?,
        })
    }

    /// A path that leads to it, wherever the process is that inherits it.
    pub(super) fn path(&self) -> String {
        path(&self.program)
    }

    /// What the dynamic linker is to load from the descriptors (LD_PRELOAD).
    pub(super) fn preload(&self) -> String {
        let libraries: Vec<String> = self.libraries.iter().map(path).collect();
        libraries.join(":")
    }

    /// The descriptors that its process needs.
    fn descriptors(&self) -> Vec<RawFd> {
        let all = self.libraries.iter().chain([&self.program]);
        all.map(AsRawFd::as_raw_fd).collect()
    }
}

fn path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Starts a command of a [`Program`] in the container of a process, as that process's user. `prepare` runs
/// in the child first, with the rights of this process: async-signal-safe calls only.
pub(super) fn spawn(
    mut command: Command,
    program: Program,
    beside: &Beside,
    prepare: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<(Process, Option<ChildStdin>)> {
    let process = beside.as_fd().try_clone_to_owned()?;
    let namespaces = beside.container.iter().fold(0, |all, n| all | n.flag());
    let (user, is_born_anew) = (beside.user, beside.container.contains(&Namespace::Pid));
    let (mut born, tell) = pipe()?;
    let (kept, tells) = (program.descriptors(), tell.as_raw_fd());
    let enter = move || {
        prepare()?;
        kept.iter().try_for_each(|&fd| inherit(fd))?;
        // SAFETY: a plain system call on a descriptor that lives as long as this closure.
        check(unsafe { libc::setns(process.as_raw_fd(), namespaces) })?;
        become_user(user)?;
        if is_born_anew {
            be_born(tells)?;
        }
        Ok(())
    };
    // SAFETY: only async-signal-safe calls, on values that were copied before.
    unsafe { command.pre_exec(enter) };
    // Whoever stops the child before it has executed its program does not stop this process with it.
    let (send, receive) = channel();
    std::thread::Builder::new()
        .name("shaper-start".into())
        .spawn(move || {
            let child = command.spawn();
            // Until here the child needs their numbers.
            drop((program, command, tell));
            let _ = send.send(child);
        })?;
    let started = receive.recv_timeout(START_WITHIN);
    let mut child = started.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let pid = match is_born_anew {
        false => child.id(),
        true => {
            // It has made the shaper, and ended.
            child.wait()?;
            let mut id = [0; 4];
            born.read_exact(&mut id)?;
            u32::from_ne_bytes(id)
        }
    };
    Ok((Process::new(pid, stderr)?, stdin))
}

/// A pipe: read end and write end.
fn pipe() -> io::Result<(File, File)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((read.into(), write.into()))
}

/// A descriptor stays open in the program that is executed.
pub(super) fn inherit(fd: RawFd) -> io::Result<()> {
    // SAFETY: changes a flag of a descriptor.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) })
}

/// Gives up all that root has, for good.
fn become_user(User { uid, gid }: User) -> io::Result<()> {
    // SAFETY: plain system calls on numbers.
    unsafe {
        if libc::geteuid() == 0 {
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setgid(gid))?;
            check(libc::setuid(uid))?;
        }
    }
    onbeat_rights::give_up_all_in_child()
}

/// A process is in its pid namespace from its birth on: goes on as a new one, which is our parent's child as this one
/// is, and whose id is told through a pipe. The old one ends here.
fn be_born(tells: RawFd) -> io::Result<()> {
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    // SAFETY: as fork(2): without a stack the new process has a copy of all memory. There is one thread,
    // and what follows are system calls alone.
    unsafe {
        let made = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
        match made {
            0 => check(libc::setpgid(0, 0)),
            1.. => {
                let id = (made as u32).to_ne_bytes();
                libc::write(tells, id.as_ptr().cast(), id.len());
                libc::_exit(0);
            }
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The error of a system call.
pub(super) fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
