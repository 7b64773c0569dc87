//! Starts a companion within the container of the application's process: in its namespaces, where
//! its ROS 2 and its DDS domain are.
//!
//! Root does not trust anything in a container, even if its user is called root. So the child first
//! enters the namespaces, gives up every capability and becomes the process's user. Only then it
//! creates the process that the container can see. That process executes this program from an
//! inherited descriptor. It alone loads the container's files: the dynamic linker, the C library
//! and ROS 2. Libraries that this program needs and a container may lack are inherited descriptors
//! too.

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

/// The libraries that belong to the C library or the compiler. In a container, the companion uses
/// the container's copies.
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

/// The longest wait until the companion has started. Other processes of the container can stop it
/// before it executes its program.
const START_WITHIN: Duration = Duration::from_secs(20);

pub(super) struct Program {
    program: File,
    libraries: Vec<File>,
}

impl Program {
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

    /// Returns a path to the companion's program. It is valid in every process that inherits the
    /// descriptor of the program.
    pub(super) fn path(&self) -> String {
        path(&self.program)
    }

    pub(super) fn preload(&self) -> String {
        let libraries: Vec<String> = self.libraries.iter().map(path).collect();
        libraries.join(":")
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let all = self.libraries.iter().chain([&self.program]);
        all.map(AsRawFd::as_raw_fd).collect()
    }
}

fn path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Starts a command in the container of a process, as that process's user. `prepare` runs first in
/// the child, with the capabilities of this process, and must make only async-signal-safe calls.
pub(super) fn spawn(
    mut command: Command,
    program: Program,
    beside: &Beside,
    prepare: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<(Process, Option<ChildStdin>)> {
    let process = beside.as_fd().try_clone_to_owned()?;
    let namespaces = beside.container.iter().fold(0, |all, n| all | n.flag());
    let (user, needs_new_process) = (beside.user, beside.container.contains(&Namespace::Pid));
    let (mut id_reader, id_writer) = pipe()?;
    let (kept, id_fd) = (program.descriptors(), id_writer.as_raw_fd());
    let enter = move || {
        prepare()?;
        kept.iter().try_for_each(|&fd| inherit(fd))?;
        // SAFETY: setns only takes a descriptor, which lives as long as this closure.
        check(unsafe { libc::setns(process.as_raw_fd(), namespaces) })?;
        become_user(user)?;
        if needs_new_process {
            continue_in_pid_namespace(id_fd)?;
        }
        Ok(())
    };
    // SAFETY: the closure makes only async-signal-safe calls, on values that were copied before.
    unsafe { command.pre_exec(enter) };
    // A thread starts the child: a process that stops the child before it executes its program does
    // not block this thread.
    let (send, receive) = channel();
    std::thread::Builder::new()
        .name("companion-start".into())
        .spawn(move || {
            let child = command.spawn();
            // The child needs these descriptors until here.
            drop((program, command, id_writer));
            let _ = send.send(child);
        })?;
    let started = receive.recv_timeout(START_WITHIN);
    let mut child = started.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let pid = match needs_new_process {
        false => child.id(),
        true => {
            // The child has created the companion and ends.
            child.wait()?;
            let mut id = [0; 4];
            id_reader.read_exact(&mut id)?;
            u32::from_ne_bytes(id)
        }
    };
    Ok((Process::new(pid, stderr)?, stdin))
}

fn pipe() -> io::Result<(File, File)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((read.into(), write.into()))
}

pub(super) fn inherit(fd: RawFd) -> io::Result<()> {
    // SAFETY: fcntl only changes a flag of a descriptor.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) })
}

fn become_user(User { uid, gid }: User) -> io::Result<()> {
    // SAFETY: these system calls take only numbers and a null pointer for an empty list.
    unsafe {
        if libc::geteuid() == 0 {
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setgid(gid))?;
            check(libc::setuid(uid))?;
        }
    }
    onbeat_rights::give_up_all_in_child()
}

/// Continues as a new process, because a process enters a pid namespace only when it starts. The
/// new process is a child of this process's parent, and its id is written to a pipe. The calling
/// process ends in this call.
fn continue_in_pid_namespace(id_fd: RawFd) -> io::Result<()> {
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    // SAFETY: like fork(2), the call without a stack copies all memory. The child has one thread,
    // and only system calls follow.
    unsafe {
        let made = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
        match made {
            0 => check(libc::setpgid(0, 0)),
            1.. => {
                let id = (made as u32).to_ne_bytes();
                libc::write(id_fd, id.as_ptr().cast(), id.len());
                libc::_exit(0);
            }
            _ => Err(io::Error::last_os_error()),
        }
    }
}

pub(super) fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
