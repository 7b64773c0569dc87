//! Starts the recorded command as the user, stops it in time, and never leaves it suspended.
//!
//! SIGSTOP suspends a process of the command while probes are attached to a library that it has
//! just loaded. If the recorder is killed or hangs in that moment, the guard process resumes the
//! suspended process. The BPF programs fill a table of suspended processes. It also contains
//! daemons, which have left the command's process tree. The recorder does not touch a process that
//! another program has stopped.

mod guard;
pub mod user;

use crate::descriptors;
use crate::kernel::Suspended;
use crate::preload::{preloading, Place};
use guard::Guard;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use thiserror::Error;
use user::{Caller, User};

/// The environment variable that makes the preloaded library read threads' CPU clocks not only at
/// callbacks, but also at publications.
const CLOCKS: &str = "ONBEAT_PRELOAD_CLOCKS";

const TERMINATE_AFTER: Duration = Duration::from_secs(10);
const KILL_AFTER: Duration = Duration::from_secs(15);

#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum CommandStartError {
    #[error("cannot start {program}: {source}. Check its name, and that it is on your PATH.")]
    Start {
        program: String,
        source: std::io::Error,
    },
    #[error("SUDO_UID names a user, but sudo did not start onbeat. Unset SUDO_UID to run {program} as root, or record without a command.")]
    Doubtful { program: String },
    #[error("cannot start the guard process: {0}")]
    Guard(std::io::Error),
}

pub struct RecordedCommand {
    child: Child,
    ending: Option<(Instant, libc::c_int)>,
    suspended: Option<(Suspended, Guard)>,
}

/// A library that a command's processes load through `LD_PRELOAD`, after other preloaded ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLibrary {
    /// The path of the library, without blanks and colons.
    pub path: PathBuf,
    /// The name and value of an environment variable that the library reads.
    pub variable: (&'static str, PathBuf),
}

pub enum Observed<'a> {
    /// BPF programs observe the command. The programs may suspend the command's processes while
    /// onbeat attaches probes.
    Suspended(&'a Suspended, Option<&'a CommandLibrary>),
    Preloaded {
        place: &'a Place,
        /// The preloaded library reads threads' CPU clocks not only at callbacks, but also at
        /// publications. Each reading costs a system call.
        clocks: bool,
    },
}

impl RecordedCommand {
    /// Returns the user that a command would run as.
    ///
    /// Fails if the user is not certain: as root, the command could do more harm than intended.
    pub fn check(words: &[String]) -> Result<Caller, CommandStartError> {
        match user::caller() {
            Caller::Doubtful => Err(CommandStartError::Doubtful {
                program: words.first().cloned().unwrap_or_default(),
            }),
            caller => Ok(caller),
        }
    }

    /// Starts a command, which is a program and its arguments.
    ///
    /// Under sudo the command runs as the user who called sudo, with that user's groups and
    /// environment. With `to_stderr`, the command's output goes to onbeat's standard error. The
    /// guard process resumes processes that stay suspended too long.
    pub fn start(
        words: &[String],
        to_stderr: bool,
        observed: Observed<'_>,
    ) -> Result<RecordedCommand, CommandStartError> {
        let caller = Self::check(words)?;
        let suspended = match &observed {
            Observed::Suspended(suspended, _) => {
                let guard = Guard::start(suspended).map_err(CommandStartError::Guard)?;
                Some(((*suspended).clone(), guard))
            }
            Observed::Preloaded { .. } => None,
        };
        let program = words.first().cloned().unwrap_or_default();
        let mut builder = Command::new(&program);
        builder.args(&words[1..]);
        if to_stderr {
            if let Ok(stderr) = std::io::stderr().as_fd().try_clone_to_owned() {
                builder.stdout(stderr);
            }
        }
        if let Some(environment) = user::environment() {
            builder.env_clear().envs(environment);
        }
        match observed {
            Observed::Suspended(_, library) => {
                if let Some(CommandLibrary { path, variable }) = library {
                    builder.envs(preloading(path, user::variable));
                    builder.env(variable.0, &variable.1);
                }
            }
            Observed::Preloaded { place, clocks } => {
                builder.envs(place.environment(user::variable));
                if clocks {
                    builder.env(CLOCKS, "1");
                }
            }
        }
        if let Caller::User(user) = caller {
            run_as(&mut builder, user);
        }
        let prepare = || {
            descriptors::restore_in_child();
            onbeat_rights::give_up_in_child()
        };
        // SAFETY: only system calls happen between fork and exec.
        unsafe { builder.pre_exec(prepare) };
        let child = builder
            .spawn()
            .map_err(|source| CommandStartError::Start { program, source })?;
        Ok(RecordedCommand {
            child,
            ending: None,
            suspended,
        })
    }

    /// Returns the command's exit code, or 128 plus the number of the signal that ended it. Returns
    /// `None` while the command runs.
    pub fn exit_status(&mut self) -> Option<i32> {
        let ended = self.child.try_wait().ok()??;
        ended.code().or_else(|| ended.signal().map(|s| 128 + s))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Sends SIGINT to the command, after a while SIGTERM, then SIGKILL. The caller must repeat the
    /// call until the command has ended.
    ///
    /// `interrupted` is true if onbeat itself received a SIGINT.
    pub fn ask_to_end(&mut self, interrupted: bool) {
        let (since, last) = *self.ending.get_or_insert((Instant::now(), 0));
        let next = match (last, since.elapsed()) {
            (0, _) => libc::SIGINT,
            (libc::SIGINT, waited) if waited > TERMINATE_AFTER => libc::SIGTERM,
            (libc::SIGTERM, waited) if waited > KILL_AFTER => libc::SIGKILL,
            _ => return,
        };
        // A terminal sends the SIGINT of Ctrl-C to the command as well.
        if !(next == libc::SIGINT && interrupted && is_in_foreground()) {
            // SAFETY: plain system call on our child, which has not been waited for.
            unsafe { libc::kill(self.child.id() as libc::pid_t, next) };
        }
        self.ending = Some((since, next));
    }

    /// Resumes all suspended processes, also those that run on after the command has ended.
    pub fn resume_all(&self) {
        if let Some((suspended, _)) = &self.suspended {
            suspended.resume_all();
        }
    }
}

fn is_in_foreground() -> bool {
    // SAFETY: plain system calls.
    unsafe { libc::tcgetpgrp(0) == libc::getpgrp() }
}

fn run_as(builder: &mut Command, user: User) {
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
        // If the user's own environment is unknown, sudo's environment has root's values.
        if let Some(value) = value.filter(|_| !set.iter().any(|n| n == name)) {
            builder.env(name, value);
        }
    }
    // SAFETY: between fork and exec there are only system calls, on values made before.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn start(text: &str) -> Result<RecordedCommand, CommandStartError> {
        RecordedCommand::start(
            &words(text),
            false,
            Observed::Suspended(&Suspended::none(), None),
        )
    }

    fn wait(command: &mut RecordedCommand) -> i32 {
        let begin = Instant::now();
        loop {
            if let Some(status) = command.exit_status() {
                return status;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_command_that_is_asked_to_end_is_interrupted_once() {
        let mut command = start("sleep 60").expect("sleep");
        assert!(command.exit_status().is_none() && !command.is_ending());
        command.ask_to_end(false);
        command.ask_to_end(false);
        assert!(command.is_ending());
        assert_eq!(command.ending.map(|(_, last)| last), Some(libc::SIGINT));
        assert_eq!(wait(&mut command), 128 + libc::SIGINT);
    }

    #[test]
    fn a_command_that_does_not_end_is_terminated_then_killed() {
        let mut command = start("sleep 60").expect("sleep");
        let ago = |time| Instant::now() - time;
        command.ending = Some((ago(TERMINATE_AFTER * 2), libc::SIGINT));
        command.ask_to_end(false);
        assert_eq!(command.ending.map(|(_, last)| last), Some(libc::SIGTERM));
        assert_eq!(wait(&mut command), 128 + libc::SIGTERM);
        let mut command = start("sleep 60").expect("sleep");
        command.ending = Some((ago(KILL_AFTER * 2), libc::SIGTERM));
        command.ask_to_end(false);
        assert_eq!(wait(&mut command), 128 + libc::SIGKILL);
    }

    #[test]
    fn a_suspended_process_is_resumed_but_not_one_that_another_program_stopped() {
        let suspended = Suspended::none();
        let sleep = words("sleep 0.2");
        let mut command =
            RecordedCommand::start(&sleep, false, Observed::Suspended(&suspended, None))
                .expect("sleep");
        suspended.suspend(command.child.id());
        let mut other = Command::new("sleep").arg("0.2").spawn().expect("sleep");
        let pid = other.id();
        // SAFETY: plain system call on our child.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGSTOP) };
        command.resume_all();
        assert_eq!((wait(&mut command), suspended.all()), (0, vec![]));
        assert_eq!(onbeat_proc::Stat::of(pid).map(|stat| stat.state), Some('T'));
        other.kill().and_then(|()| other.wait()).expect("it ends");
    }

    #[test]
    fn the_error_names_a_command_that_does_not_exist() {
        let error = start("/no/such/program");
        let error = error.err().expect("an error").to_string();
        assert!(
            error.contains("/no/such/program") && !error.contains('\n'),
            "{error}"
        );
    }
}
