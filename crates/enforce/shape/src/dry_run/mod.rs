//! What a session would do, without doing it: which thread goes where, what shares it, what is at
//! risk. Nothing on the machine is changed; a recording looks at the application for a while.

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

/// What a session would do.
#[derive(Debug, Default)]
pub struct DryRun {
    /// The plan's servers, with the slots that their gates have.
    pub servers: Vec<Server>,
    /// Threads of the application that would be changed. Empty: no application of the plan runs.
    pub threads: Vec<SeenThread>,
    /// Threads of the same processes that would stay as they are.
    pub untouched: usize,
    /// Callbacks in no plan that run on threads behind a gate.
    pub sharing: Vec<Unplanned>,
    /// Processes that the application has started.
    pub started: Vec<Started>,
    /// Callbacks that the plan requires and that did not run.
    pub missing: Vec<String>,
    /// What is at risk, a sentence each.
    pub risks: Vec<String>,
    /// Settings of the machine.
    pub preflight: Vec<Line>,
    /// Why the application was not looked at.
    pub not_looked: Option<String>,
}

/// Says what [`shape`](crate::shape) would do with these options. Looks at the application until each callback
/// that the plan requires has run, for `find_within` at most.
///
/// # Errors
///
/// [`ShapeError`], where the caller may not shape at all with capabilities of its file, or named a process that does
/// not exist. A machine that cannot be recorded is no error: it is said, and the plan is shown alone.
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
    let (application, told) = look.end();
    found.risks.extend(told);
    describe(&mut found, application, (&waits, plan.cycle_ms.0));
    Ok(found)
}

/// What is known of the application's threads.
fn describe(found: &mut DryRun, mut application: Application, (waits, cycle_ns): (&WhoWaits, u64)) {
    let servers = &found.servers;
    found.sharing = application.sharing(|s| is_gated(&servers[s], cycle_ns));
    found.missing = application.missing();
    let seen = threads::seen(&application, servers, waits);
    found.risks.extend(seen.risks);
    (found.threads, found.untouched) = (seen.threads, seen.untouched);
    found.started = seen.started;
}

/// Sessions that have ledgers.
fn other_sessions() -> Vec<String> {
    let how = Recovery {
        dry_run: true,
        wait_for_guard: Duration::ZERO,
    };
    let ledgers = recover_in(&onbeat_reserve::ledgers(), how).unwrap_or_default();
    let sentence = |standing| match standing {
        Standing::Held { owner } => Some(format!(
            "Another session lives (process {owner}): threads that it has shaped are left to it."
        )),
        Standing::Abandoned => Some(
            "A killed session has left something, which is put back first (onbeat recover).".into(),
        ),
        Standing::Guarded | Standing::NotBelieved => None,
    };
    ledgers
        .iter()
        .filter_map(|l| sentence(l.standing))
        .collect()
}

#[cfg(test)]
mod tests;
