//! Starts a companion beside the application's process, in the same container.

use super::beside::Beside;
use super::container::{self, check, inherit, Program};
use super::process::Process;
use super::CompanionError;
use crate::environment::Environment;
use onbeat_proc::namespace::Namespace;
use onbeat_proc::User;
use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

/// The variable that sets the publication mode of Fast DDS. A companion does not inherit it,
/// because a shaper holds messages back itself.
const PUBLICATION_MODE: &str = "RMW_FASTRTPS_PUBLICATION_MODE";

/// Returns the environment of the application's process.
///
/// # Errors
///
/// Returns a [`CompanionError`] if the process has ended or changed its user, or has no ROS 2.
pub fn own_environment(beside: &Beside) -> Result<Environment, CompanionError> {
    let mut found = match beside.container.contains(&Namespace::Mount) {
        true => Environment::of_container(beside.pid)?,
        false => Environment::of_process(beside.pid)?,
    };
    // The process must not have become another program meanwhile: then what was read could be
    // another user's.
    if !beside.is_unchanged() {
        return Err(CompanionError::User(beside.pid));
    }
    found.variables.retain(|(name, _)| name != PUBLICATION_MODE);
    Ok(found)
}

/// The subcommand of onbeat that a companion (a process of onbeat beside the application) executes.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Shaper,
    Diagnostics,
}

impl Word {
    fn text(self) -> &'static str {
        match self {
            Word::Shaper => "shaper",
            Word::Diagnostics => "diagnostics",
        }
    }
}

/// The descriptors and the priorities that a companion gets from its owner.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub inherited: [Option<RawFd>; 4],
    /// The way in which the companion's threads get their priorities.
    pub priority: Priority,
}

/// The way in which a shaper's threads get their real-time priorities, although the shaper runs as
/// the application's user.
#[derive(Debug, Clone, Copy)]
pub enum Priority {
    /// The shaper's user may set priorities up to this one, the highest of the plan. A higher limit
    /// is not safe, because that user can make the shaper do anything.
    Allowed(u8),
    /// All threads have this priority from the start. This is needed if this process may not give
    /// real-time priorities to other processes: RLIMIT_RTPRIO needs CAP_SYS_RESOURCE, which
    /// container managers take from root.
    Inherited(u8),
}

/// Starts `program` with a subcommand as a companion, with `variables` as its whole environment.
///
/// # Errors
///
/// Returns a [`CompanionError`] if the process cannot be started.
pub fn spawn(
    (program, word): (&Path, Word),
    variables: Vec<(OsString, OsString)>,
    beside: &Beside,
    limits: Limits,
) -> Result<(Process, Option<ChildStdin>), CompanionError> {
    if beside.container.is_empty() {
        let user = beside.user;
        let mut command = command((program, word), variables);
        // SAFETY: the closure makes only async-signal-safe calls, on values that were copied.
        unsafe { command.pre_exec(move || limits.apply().and_then(|()| become_user(user, word))) };
        let mut child = command.spawn().map_err(CompanionError::Start)?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let process = Process::new(child.id(), stderr).map_err(CompanionError::Start)?;
        return Ok((process, stdin));
    }
    let enter = || {
        let program = Program::open(program)?;
        let mut command = command((Path::new(&program.path()), word), variables);
        command.arg0("onbeat").env("LD_PRELOAD", program.preload());
        container::spawn(command, program, beside, move || limits.apply())
    };
    let pid = beside.pid;
    enter().map_err(|source| CompanionError::Container { pid, source })
}

fn command((program, word): (&Path, Word), variables: Vec<(OsString, OsString)>) -> Command {
    let mut command = Command::new(program);
    command
        .args([word.text(), "-"])
        .env_clear()
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    command
}

impl Limits {
    fn apply(self) -> io::Result<()> {
        self.inherited.into_iter().flatten().try_for_each(inherit)?;
        // The shaper sets its priorities as the application's user, who may not have the right to.
        // The limit is the highest priority that the shaper needs, because the user can make the
        // shaper do anything. The threads that send need more than the plan's priorities: no thread
        // of a server may keep them from their slot.
        match self.priority {
            Priority::Allowed(priority) => {
                let limit = libc::rlimit {
                    rlim_cur: priority.into(),
                    rlim_max: priority.into(),
                };
                // SAFETY: the call reads a limit that lives until the call returns.
                unsafe { libc::setrlimit(libc::RLIMIT_RTPRIO, &limit) };
                Ok(())
            }
            Priority::Inherited(priority) => {
                let parameters = libc::sched_param {
                    sched_priority: priority.into(),
                };
                // SAFETY: the call reads parameters that live until the call returns.
                check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) })
            }
        }
    }
}

fn become_user(User { uid, gid }: User, word: Word) -> io::Result<()> {
    // SAFETY: these system calls take only numbers and a null pointer for an empty list.
    unsafe {
        // The middleware's shared memory belongs to the application's user.
        let must_change = libc::geteuid() == 0 && uid != 0;
        if must_change
            && (libc::setgroups(0, std::ptr::null()) != 0
                || libc::setgid(gid) != 0
                || libc::setuid(uid) != 0)
        {
            return Err(io::Error::last_os_error());
        }
        // The program's file must not give it any rights either.
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    match word {
        // The shaper of root's application needs real-time priorities.
        Word::Shaper => onbeat_rights::give_up_in_child(),
        Word::Diagnostics => onbeat_rights::give_up_all_in_child(),
    }
}
