//! Starts the shaper's process.

use super::config::{configuration, Ros};
use super::{pipe, OutputState, Reports, Said, Shaper, ShaperError};
use onbeat_plan::Plan;
use onbeat_proc::User;
use onbeat_ros::config::Config;
use onbeat_ros::environment::Environment;
use onbeat_ros::page::PageWriter;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The middleware's publication mode: it does not apply to a shaper, which holds messages back
/// itself.
const PUBLICATION_MODE: &str = "RMW_FASTRTPS_PUBLICATION_MODE";

impl Shaper {
    /// Starts the shaper for the outputs and inputs of a plan, beside the application's process
    /// `pid`. It passes everything on at once until [`Shaper::shape`].
    /// `lineage` is the table of lineage, if there is one.
    pub(super) fn start(
        plan: &Plan,
        program: &Path,
        pid: u32,
        lineage: Option<RawFd>,
    ) -> Result<Shaper, ShaperError> {
        let user = may_run_as(pid)?;
        let Environment {
            mut variables,
            rcl,
            folders,
        } = Environment::of_process(pid)?;
        // What was read is that user's: the process was not another program in the meantime.
        if may_run_as(pid)? != user {
            return Err(ShaperError::User(pid));
        }
        variables.retain(|(name, _)| name != PUBLICATION_MODE);
        let page = PageWriter::new().map_err(ShaperError::Start)?;
        page.set_pass_through(true);
        let (read, write) = pipe().map_err(ShaperError::Start)?;
        let ros = Ros { rcl, folders };
        let (config, outputs) = configuration(plan, pid, ros, (page.fd(), &write), lineage);
        let text = serde_json::to_vec(&config).map_err(|e| ShaperError::Start(e.into()))?;
        let inherited = [
            Some(page.fd().as_raw_fd()),
            Some(write.as_raw_fd()),
            lineage,
        ];
        let mut command = command(
            program,
            variables,
            inherited,
            highest_priority(&config),
            user,
        );
        let mut child = command.spawn().map_err(ShaperError::Start)?;
        drop(write);
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&text).map_err(ShaperError::Start)?;
        }
        let state = |output| OutputState {
            output,
            is_ready: false,
            arrivals: VecDeque::new(),
        };
        Ok(Shaper {
            said: Said::new(child.stderr.take()),
            child,
            page,
            reports: Reports::new(read),
            outputs: outputs.into_iter().map(state).collect(),
            settling: false,
        })
    }
}

/// The user of the application's process, as whom the shaper loads the libraries that this process
/// names. Only root can become another user.
fn may_run_as(pid: u32) -> Result<User, ShaperError> {
    // SAFETY: cannot fail.
    let own = unsafe { libc::geteuid() };
    let user = onbeat_proc::user(pid).filter(|user| own == 0 || user.uid == own);
    user.ok_or(ShaperError::User(pid))
}

/// The highest real-time priority of a shaper's threads; 0: none has one.
fn highest_priority(config: &Config) -> u8 {
    let outputs = config.outputs.iter().map(|output| output.place.as_ref());
    let places = outputs.chain([config.middleware.as_ref()]).flatten();
    places.filter_map(|place| place.priority).max().unwrap_or(0)
}

/// Descriptors that stay open: page, reports, and lineage if there is one.
type Inherited = [Option<RawFd>; 3];

/// The command of a shaper that inherits descriptors and runs as a user and group.
fn command(
    program: &Path,
    variables: Vec<(OsString, OsString)>,
    inherited: Inherited,
    priority: u8,
    user: User,
) -> Command {
    let mut command = Command::new(program);
    command
        .args(["shaper", "-"])
        .env_clear()
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    // SAFETY: only async-signal-safe calls, on values that were copied.
    unsafe { command.pre_exec(move || prepare(inherited, priority, user)) };
    command
}

/// Runs in the child before the program: only async-signal-safe calls.
fn prepare(inherited: Inherited, priority: u8, User { uid, gid }: User) -> io::Result<()> {
    // SAFETY: plain system calls on numbers and on a limit that lives while the call lasts.
    unsafe {
        for fd in inherited.into_iter().flatten() {
            if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // It sets its priorities as the application's user, who may not be allowed to: up to the
        // highest that it needs, because that user can make the shaper do anything. The threads that
        // send need more than the plan's: no thread of a server may keep them from their slot.
        let limit = libc::rlimit {
            rlim_cur: priority.into(),
            rlim_max: priority.into(),
        };
        libc::setrlimit(libc::RLIMIT_RTPRIO, &limit);
        // The middleware's shared memory belongs to the application's user.
        let must_change = libc::geteuid() == 0 && uid != 0;
        if must_change
            && (libc::setgroups(0, std::ptr::null()) != 0
                || libc::setgid(gid) != 0
                || libc::setuid(uid) != 0)
        {
            return Err(io::Error::last_os_error());
        }
        // Nor does its file give it any.
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    onbeat_rights::give_up_in_child()
}
