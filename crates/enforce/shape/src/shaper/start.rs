//! Starts the shaper's process.

use super::config::{configuration, Ros};
use super::{pipe, OutputState, Reports, Shaper, ShaperError};
use onbeat_plan::Plan;
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
    pub(super) fn start(plan: &Plan, program: &Path, pid: u32) -> Result<Shaper, ShaperError> {
        let Environment {
            mut variables,
            rcl,
            folders,
        } = Environment::of_process(pid)?;
        variables.retain(|(name, _)| name != PUBLICATION_MODE);
        let owner = onbeat_proc::owner(pid).map_err(ShaperError::Start)?;
        let page = PageWriter::new().map_err(ShaperError::Start)?;
        page.set_pass_through(true);
        let (read, write) = pipe().map_err(ShaperError::Start)?;
        let ros = Ros { rcl, folders };
        let (config, outputs) = configuration(plan, pid, ros, page.fd(), &write);
        let text = serde_json::to_vec(&config).map_err(|e| ShaperError::Start(e.into()))?;
        let inherited = [page.fd().as_raw_fd(), write.as_raw_fd()];
        let mut command = command(program, variables, inherited, owner);
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
            child,
            page,
            reports: Reports::new(read),
            outputs: outputs.into_iter().map(state).collect(),
            settling: false,
        })
    }
}

/// The command of a shaper that inherits two descriptors and runs as a user and group.
fn command(
    program: &Path,
    variables: Vec<(OsString, OsString)>,
    inherited: [RawFd; 2],
    owner: (u32, u32),
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
    unsafe { command.pre_exec(move || prepare(inherited, owner)) };
    command
}

/// Runs in the child before the program: only async-signal-safe calls.
fn prepare(inherited: [RawFd; 2], (uid, gid): (u32, u32)) -> io::Result<()> {
    // SAFETY: plain system calls on numbers and on a limit that lives while the call lasts.
    unsafe {
        for fd in inherited {
            if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // It sets its priorities as the application's user, who may not be allowed to.
        let limit = libc::rlimit {
            rlim_cur: 99,
            rlim_max: 99,
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
    }
    Ok(())
}
