//! Starts the shaper's process beside the application's process, in the same container.

use super::beside::Beside;
use super::config::{configuration, Ros};
use super::container::{self, check, inherit, Program};
use super::process::Process;
use super::{pipe, Carrier, OutputState, Reports, Shaper, ShaperError};
use onbeat_plan::Plan;
use onbeat_proc::namespace::Namespace;
use onbeat_proc::User;
use onbeat_rights::Capability;
use onbeat_ros::config::Config;
use onbeat_ros::environment::Environment;
use onbeat_ros::page::PageWriter;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;

/// The variable that sets the publication mode of Fast DDS. The shaper does not inherit it, because
/// it holds messages back itself.
const PUBLICATION_MODE: &str = "RMW_FASTRTPS_PUBLICATION_MODE";

impl Shaper {
    /// Starts the shaper for a plan's outputs and inputs beside the application's process `pid`,
    /// which was seen at `seen_ns`. The shaper passes all messages on at once until
    /// [`Shaper::shape`]. `lineage` is the table of lineage, if there is one.
    pub(super) fn start(
        plan: &Plan,
        program: &Path,
        (pid, seen_ns): (u32, u64),
        lineage: Option<RawFd>,
    ) -> Result<Shaper, ShaperError> {
        let beside = Beside::of(pid, seen_ns).ok_or(ShaperError::User(pid))?;
        let Environment {
            variables,
            rcl,
            folders,
        } = own_environment(&beside)?;
        let page = PageWriter::new().map_err(ShaperError::Start)?;
        page.set_pass_through(true);
        let (read, write) = pipe().map_err(ShaperError::Start)?;
        let ros = Ros { rcl, folders };
        let (mut config, outputs) =
            configuration(plan, beside.as_fd(), ros, (page.fd(), &write), lineage);
        let priority = Priority::of(&mut config, &beside);
        let text = serde_json::to_vec(&config).map_err(|e| ShaperError::Start(e.into()))?;
        let inherited = [
            Some(page.fd().as_raw_fd()),
            Some(write.as_raw_fd()),
            Some(beside.as_fd().as_raw_fd()),
            lineage,
        ];
        let limits = Limits {
            inherited,
            priority,
        };
        let (process, stdin) = spawn((program, Word::Shaper), variables, &beside, limits)?;
        drop(write);
        if let Some(mut stdin) = stdin {
            stdin.write_all(&text).map_err(ShaperError::Start)?;
        }
        let state = |output| OutputState {
            output,
            is_ready: false,
            arrivals: VecDeque::new(),
        };
        Ok(Shaper {
            carrier: Carrier::Process { process, beside },
            page: Arc::new(page),
            reports: Reports::new(read),
            outputs: outputs.into_iter().map(state).collect(),
            settling: false,
        })
    }
}

pub(super) fn own_environment(beside: &Beside) -> Result<Environment, ShaperError> {
    let mut found = match beside.container.contains(&Namespace::Mount) {
        true => Environment::of_container(beside.pid)?,
        false => Environment::of_process(beside.pid)?,
    };
    // The process must not have become another program meanwhile: then what was read could be
    // another user's.
    if !beside.is_unchanged() {
        return Err(ShaperError::User(beside.pid));
    }
    found.variables.retain(|(name, _)| name != PUBLICATION_MODE);
    Ok(found)
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Word {
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

fn highest_priority(config: &Config) -> u8 {
    let outputs = config.outputs.iter().map(|output| output.place.as_ref());
    let places = outputs.chain([config.middleware.as_ref()]).flatten();
    places.filter_map(|place| place.priority).max().unwrap_or(0)
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) inherited: [Option<RawFd>; 4],
    pub(super) priority: Priority,
}

/// The way in which a shaper's threads get their real-time priorities, although the shaper runs as
/// the application's user.
#[derive(Debug, Clone, Copy)]
pub(super) enum Priority {
    /// The user may set priorities up to this one, the plan's highest. No higher one is safe,
    /// because the user can make the shaper do anything.
    Allowed(u8),
    /// All threads have this priority from the start. It is needed if this process cannot allow
    /// priorities to others: RLIMIT_RTPRIO needs CAP_SYS_RESOURCE, which container managers take
    /// from root.
    Inherited(u8),
}

impl Priority {
    /// Returns the way that works for a shaper beside this process. Threads that inherit their
    /// priority must not set another. In this case the call removes the priorities from `config`.
    fn of(config: &mut Config, beside: &Beside) -> Priority {
        let highest = highest_priority(config);
        let keeps_rights = beside.container.is_empty() && beside.user.uid == 0;
        if keeps_rights || highest == 0 || !onbeat_rights::is_root() || may_allow(highest) {
            return Priority::Allowed(highest);
        }
        let outputs = config.outputs.iter_mut().map(|o| o.place.as_mut());
        let places = outputs.chain([config.middleware.as_mut()]).flatten();
        places.for_each(|place| place.priority = None);
        Priority::Inherited(highest)
    }
}

fn may_allow(priority: u8) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Rtprio);
    onbeat_rights::has(Capability::CAP_SYS_RESOURCE)
        || limit.maximum.is_none_or(|most| most >= priority.into())
}

pub(super) fn spawn(
    (program, word): (&Path, Word),
    variables: Vec<(OsString, OsString)>,
    beside: &Beside,
    limits: Limits,
) -> Result<(Process, Option<ChildStdin>), ShaperError> {
    if beside.container.is_empty() {
        let user = beside.user;
        let mut command = command((program, word), variables);
        // SAFETY: the closure makes only async-signal-safe calls, on values that were copied.
        unsafe { command.pre_exec(move || limits.apply().and_then(|()| become_user(user))) };
        let mut child = command.spawn().map_err(ShaperError::Start)?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let process = Process::new(child.id(), stderr).map_err(ShaperError::Start)?;
        return Ok((process, stdin));
    }
    let enter = || {
        let program = Program::open(program)?;
        let mut command = command((Path::new(&program.path()), word), variables);
        command.arg0("onbeat").env("LD_PRELOAD", program.preload());
        container::spawn(command, program, beside, move || limits.apply())
    };
    let pid = beside.pid;
    enter().map_err(|source| ShaperError::Container { pid, source })
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

fn become_user(User { uid, gid }: User) -> io::Result<()> {
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
    onbeat_rights::give_up_in_child()
}
