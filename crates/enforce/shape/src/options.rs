//! Settings of a session.

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

/// The application: what is started, and whose threads are looked for.
#[derive(Debug, Clone)]
pub struct ApplicationOptions {
    /// Start this application and shape it. Empty: shape one that runs already.
    pub command: Vec<String>,
    /// Whether the application's output goes to the standard error.
    pub command_to_stderr: bool,
    /// Observe only these processes. Empty: all.
    pub pids: Vec<u32>,
    /// Of these, only processes within the limits.
    pub limits: Limits,
    /// Users whose processes may be the application, besides root and ourselves. `None`: whoever's; for processes
    /// that were named, or are started here.
    pub users: Option<Vec<u32>>,
    /// How long to look for the plan's callbacks.
    pub find_within: Duration,
}

/// How threads are kept to their slots.
#[derive(Debug, Clone)]
pub struct EnforcementOptions {
    /// CPU of the dispatcher. `None`: the middleware's.
    pub dispatcher_cpu: Option<u16>,
    /// Whether idle CPUs may sleep deeply: this saves power and costs precision.
    pub idle: bool,
    /// What keeps threads to their slots: freezers ([`Choice::Auto`] takes the best one here) or sched_ext.
    pub enforcer: Choice,
    /// What the end of a slot does to a thread that is at work.
    pub gate: GateKind,
    /// Whether what is told otherwise, and left alone, ends the session: a thread that cannot be assigned, a second
    /// instance of a node.
    pub strict: bool,
    /// Whether the bands follow the load, and how far.
    pub adapt: Option<AdaptOptions>,
}

/// What to shape, how, and for how long.
#[derive(Debug, Clone)]
pub struct ShapeOptions {
    /// The application.
    pub application: ApplicationOptions,
    /// How its threads are kept to their slots.
    pub enforcement: EnforcementOptions,
    /// Shape for this long, then judge. `None`: until a signal or the end of the command.
    pub duration: Option<Duration>,
    /// Keep the recording of the shaped application in this directory. `None`: discard it.
    pub trace: Option<PathBuf>,
    /// Program to start as a shaper: this one, called with `shaper`.
    pub program: PathBuf,
    /// Whether the status is published as ROS 2 diagnostics, from within the application's domain.
    pub diagnostics: bool,
    /// SIGHUP sets this and ends nothing. `None`: it ends the session, as when a terminal is closed.
    pub hangup: Option<Arc<AtomicBool>>,
}

impl ShapeOptions {
    /// Refuses an enforcer that this machine does not have, before anything is started.
    ///
    /// # Errors
    ///
    /// The kernel has no sched_ext, or another scheduler runs there.
    pub(crate) fn refuse(&self) -> Result<(), ShapeError> {
        if self.enforcement.enforcer == Choice::SchedExt {
            onbeat_reserve::find_sched_ext().map_err(StartError::from)?;
        }
        Ok(())
    }

    /// Settings of the plan's reservation. `waits` says which threads wait for work.
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
