//! Reports what a session would do: where each thread would go, which callbacks share it, and what
//! is at risk. Nothing on the machine is changed; onbeat records the application for a while.

mod look;
mod threads;

use crate::error::ShapeError;
use crate::observe::{Application, Unplanned};
use crate::options::ShapeOptions;
use crate::preflight::{preflight, Line};
use crate::session::Trace;
use crate::threads::{guarded, is_gated, WhoWaits};
use look::Look;
use onbeat_plan::Plan;
use onbeat_record::{FileOptions, RecordOptions, Target};
use onbeat_reserve::{recover_in, Recovery, Server, Standing};
use std::time::Duration;
pub use threads::{Destination, SeenThread, Started};

/// The report of a dry run: what a shaping session would change, and its risks.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Default)]
pub struct DryRun {
    /// The plan's servers, with the slots in which their gates open.
    pub servers: Vec<Server>,
    /// The application's threads that a shaping session would change. Empty if the plan's
    /// application does not run.
    pub threads: Vec<SeenThread>,
    /// The number of threads in the application's processes that a session would not change.
    pub untouched: usize,
    /// The callbacks outside of the plan that share a thread with a gated callback, and would
    /// therefore run only in slots.
    pub sharing: Vec<Unplanned>,
    pub started: Vec<Started>,
    /// The callbacks that the plan requires and that did not run during the dry run.
    pub missing: Vec<String>,
    pub risks: Vec<String>,
    /// The machine's settings that matter to shaping, each with its grade.
    pub preflight: Vec<Line>,
    /// The reason why the dry run did not record the application. `None` if it did.
    pub not_looked: Option<String>,
}

/// Reports what [`shape`](crate::shape) would do with these options. Records the application until
/// each callback that the plan requires has run, for `find_within` at most.
///
/// # Errors
///
/// Returns a [`ShapeError`] if the program has file capabilities, with which onbeat refuses to
/// shape, or if an option names a process that does not exist. If this machine cannot record, the
/// report says so and shows the plan without the application.
pub fn dry_run(plan: &Plan, options: &ShapeOptions) -> Result<DryRun, ShapeError> {
    if onbeat_rights::is_elevated() {
        return Err(ShapeError::Elevated);
    }
    options.refuse()?;
    onbeat_rights::raise();
    let mut found = DryRun {
        servers: guarded(plan),
        preflight: preflight(plan, options.enforcement.dispatcher_cpu),
        risks: other_sessions(),
        ..DryRun::default()
    };
    let waits = WhoWaits::default();
    let mut look = Look::new(plan, options, &waits);
    let trace = Trace::new(None)?;
    let record = RecordOptions {
        files: FileOptions {
            output: trace.path(),
            is_private: true,
            max_segments: Some(1),
            ..FileOptions::default()
        },
        target: Target::new(Vec::new(), true, options.application.pids.clone()),
        limits: options.application.limits.clone(),
        ..RecordOptions::default()
    };
    match onbeat_record::record_observed(&record, &mut look) {
        Ok(s) => found
            .risks
            .extend(options.application.limits.sentence(s.progress.outside)),
        Err(e) if e.is_usage() => return Err(e.into()),
        Err(e) => found.not_looked = Some(e.to_string()),
    }
    let (application, risks_seen) = look.end();
    found.risks.extend(risks_seen);
    describe(&mut found, application, (&waits, plan.cycle_ms.0));
    Ok(found)
}

fn describe(found: &mut DryRun, mut application: Application, (waits, cycle_ns): (&WhoWaits, u64)) {
    let servers = &found.servers;
    found.sharing = application.sharing(|s| is_gated(&servers[s], cycle_ns));
    found.missing = application.missing();
    let seen = threads::seen(&application, servers, waits);
    found.risks.extend(seen.risks);
    (found.threads, found.untouched) = (seen.threads, seen.untouched);
    found.started = seen.started;
}

fn other_sessions() -> Vec<String> {
    let how = Recovery {
        dry_run: true,
        wait_for_guard: Duration::ZERO,
    };
    let ledgers = recover_in(&onbeat_reserve::ledgers(), how).unwrap_or_default();
    let sentence = |standing| {
        match standing {
        Standing::Held { owner } => Some(format!(
            "Another session runs (process {owner}). onbeat would not touch the threads that the other session shapes."
        )),
        Standing::Abandoned => Some(
            "A killed session has left changes. onbeat would first undo them, as onbeat recover does.".into(),
        ),
        Standing::Guarded | Standing::NotBelieved => None,
    }
    };
    ledgers
        .iter()
        .filter_map(|l| sentence(l.standing))
        .collect()
}

#[cfg(test)]
mod tests;
