//! The settings of a session.

use crate::error::ShapeError;
use crate::follow::AdaptOptions;
use crate::threads::WhoWaits;
use onbeat_plan::Plan;
use onbeat_record::Limits;
use onbeat_reserve::{Choice, GateKind, OnWake, StartError};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

/// The options that say how onbeat starts or finds the application.
#[allow(missing_docs)]
#[derive(Debug, Clone)]
pub struct ApplicationOptions {
    /// The command that starts the application. If it is empty, onbeat shapes an application that
    /// already runs.
    pub command: Vec<String>,
    pub command_to_stderr: bool,
    /// The ids of the processes to observe. If the list is empty, onbeat observes all processes.
    pub pids: Vec<u32>,
    pub limits: Limits,
    /// The users whose processes can be the application, besides root and the calling user. `None`
    /// allows every user, because the calling user has named the processes or the command.
    pub users: Option<Vec<u32>>,
    /// The longest time for which onbeat waits until the plan's callbacks run.
    pub find_within: Duration,
}

/// The place where outputs are held back until their slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HoldAt {
    /// A process beside the application. The application publishes an output on another topic, and
    /// this process publishes it again.
    #[default]
    Outside,
    /// The application's own processes, which load a library.
    Inside,
    /// In the application's own processes if the plan and the way of starting the application allow
    /// this, otherwise in a process beside the application.
    Auto,
}

/// The options that say how onbeat keeps threads to their slots.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone)]
pub struct EnforcementOptions {
    /// The CPU on which the dispatcher runs. `None` takes the CPU of the middleware.
    pub dispatcher_cpu: Option<u16>,
    /// Whether idle CPUs may sleep deeply, which saves power and makes slots less precise.
    pub idle: bool,
    /// The mechanism that keeps threads to their slots: freezers or sched_ext. [`Choice::Auto`]
    /// takes the freezer of cgroup v1 if it can be used, otherwise that of cgroup v2.
    pub enforcer: Choice,
    pub gate: GateKind,
    pub hold: HoldAt,
    /// If true, the session ends when a thread cannot be assigned or a node has a second instance.
    /// If false, the session reports the problem and goes on.
    pub strict: bool,
    /// The options for bands that follow the load. `None`: the bands of the plan stay fixed.
    pub adapt: Option<AdaptOptions>,
}

/// The options of `onbeat shape`, for one session.
#[allow(missing_docs)]
#[derive(Debug, Clone)]
pub struct ShapeOptions {
    pub application: ApplicationOptions,
    pub enforcement: EnforcementOptions,
    /// The time for which onbeat shapes. `None` shapes until a signal arrives or the command ends.
    pub duration: Option<Duration>,
    /// The directory for the recording of the shaped application. `None` discards the recording.
    pub trace: Option<PathBuf>,
    /// The path of this program. onbeat starts the program again with the argument `shaper`, to run
    /// the shaper.
    pub program: PathBuf,
    /// Whether onbeat publishes the session's status as ROS 2 diagnostics in the application's
    /// domain.
    pub diagnostics: bool,
    /// A flag that SIGHUP sets instead of ending the session. If `None`, SIGHUP ends the session,
    /// as when a terminal is closed.
    pub hangup: Option<Arc<AtomicBool>>,
}

impl ShapeOptions {
    /// Returns an error if this machine does not have the enforcer that the options ask for. onbeat
    /// calls this before it starts anything.
    ///
    /// # Errors
    ///
    /// Fails if the options ask for sched_ext and the kernel does not have it, or another scheduler
    /// is loaded.
    pub(crate) fn refuse(&self) -> Result<(), ShapeError> {
        if self.enforcement.enforcer == Choice::SchedExt {
            onbeat_reserve::find_sched_ext().map_err(StartError::from)?;
        }
        Ok(())
    }

    pub(crate) fn reserve(
        &self,
        plan: &Plan,
        waits: &Arc<WhoWaits>,
        on_wake: Option<OnWake>,
    ) -> onbeat_reserve::Options {
        let cpu = self
            .enforcement
            .dispatcher_cpu
            .unwrap_or(plan.middleware.cpu);
        let mut options = onbeat_reserve::Options::new(cpu);
        options.backend = self.enforcement.enforcer;
        options.gate = self.enforcement.gate;
        options.waiting = Some(waits.clone());
        options.on_wake = on_wake;
        options
    }
}
