//! The settings of a session.

use crate::error::ShapeError;
use crate::follow::AdaptOptions;
use crate::threads::WhoWaits;
use onbeat_plan::Plan;
use onbeat_record::Limits;
use onbeat_reserve::{Choice, GateKind, StartError};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

/// Options that say which application to start and which threads to look for.
#[derive(Debug, Clone)]
pub struct ApplicationOptions {
    /// The command that starts the application. If it is empty, onbeat shapes an application that
    /// already runs.
    pub command: Vec<String>,
    /// Redirects the application's output to standard error.
    pub command_to_stderr: bool,
    /// The processes to observe. If it is empty, onbeat observes all.
    pub pids: Vec<u32>,
    /// The limits that further restrict the observed processes.
    pub limits: Limits,
    /// The users whose processes can be the application, besides root and the calling user. `None`
    /// allows every user: for processes that the user named or that onbeat starts.
    pub users: Option<Vec<u32>>,
    /// The longest time to look for the callbacks of the plan.
    pub find_within: Duration,
}

/// Options that say how threads are kept to their slots.
#[derive(Debug, Clone)]
pub struct EnforcementOptions {
    /// The CPU of the dispatcher. `None` takes the CPU of the middleware.
    pub dispatcher_cpu: Option<u16>,
    /// Lets idle CPUs sleep deeply, which saves power and costs precision.
    pub idle: bool,
    /// The mechanism that keeps threads to their slots: freezers or sched_ext. [`Choice::Auto`]
    /// takes the best one of this machine.
    pub enforcer: Choice,
    /// The effect that the end of a slot has on a thread that is at work.
    pub gate: GateKind,
    /// Ends the session where it would otherwise only report a problem: a thread that cannot be
    /// assigned, or a second instance of a node.
    pub strict: bool,
    /// The options for bands that follow the load. `None` keeps the bands of the plan.
    pub adapt: Option<AdaptOptions>,
}

/// Options of a shaping session.
#[derive(Debug, Clone)]
pub struct ShapeOptions {
    /// The way in which onbeat starts or finds the application, and which processes belong to it.
    pub application: ApplicationOptions,
    /// The way in which threads are kept to their slots.
    pub enforcement: EnforcementOptions,
    /// The duration of shaping, after which onbeat judges. `None` shapes until a signal arrives or
    /// the command ends.
    pub duration: Option<Duration>,
    /// The directory that keeps the recording of the shaped application. `None` discards the
    /// recording.
    pub trace: Option<PathBuf>,
    /// The program to start as a shaper: this program, with the argument `shaper`.
    pub program: PathBuf,
    /// Publishes the status as ROS 2 diagnostics in the application's domain.
    pub diagnostics: bool,
    /// A flag that SIGHUP sets instead of ending the session. `None` lets SIGHUP end the session,
    /// as when a terminal is closed.
    pub hangup: Option<Arc<AtomicBool>>,
}

impl ShapeOptions {
    /// Refuses an enforcer that this machine does not have, before anything is started.
    ///
    /// # Errors
    ///
    /// Fails if the kernel has no sched_ext or if another scheduler runs there.
    pub(crate) fn refuse(&self) -> Result<(), ShapeError> {
        if self.enforcement.enforcer == Choice::SchedExt {
            onbeat_reserve::find_sched_ext().map_err(StartError::from)?;
        }
        Ok(())
    }

    pub(crate) fn reserve(&self, plan: &Plan, waits: &Arc<WhoWaits>) -> onbeat_reserve::Options {
        let cpu = self
            .enforcement
            .dispatcher_cpu
            .unwrap_or(plan.middleware.cpu);
        let mut options = onbeat_reserve::Options::new(cpu);
        options.backend = self.enforcement.enforcer;
        options.gate = self.enforcement.gate;
        options.waiting = Some(waits.clone());
        options
    }
}
