//! A session: a recording whose observer finds, shapes and judges the application.
//!
//! All that is known of threads and executions comes from the recording, never from names.

use crate::error::ShapeError;
use crate::judge::{judge, knows_unshaped, late_note, CpuUsage, IsolationMonitor, Measured};
use crate::launch::moved;
use crate::observe::{
    Application, Conflict, Execution, Phase, PlanObservation, Standing, Unplanned,
};
use crate::options::ShapeOptions;
use crate::report::{Live, Notes, Summary};
use crate::shaper::Supervisor;
use crate::stages::{left_alone, Finding, ShaperView, Shaping, Stage, Stopped};
use crate::threads::{guarded, Awake, Placement, Servers, Thread, WhoWaits};
use crate::trust::Trust;
use onbeat_plan::schema::{Output, Overshoot};
use onbeat_plan::Plan;
use onbeat_record::{Control, Observer, Progress, RecordOptions, Target};
use onbeat_reserve::{GateKind, Reservation, Server, StartError};
use onbeat_rights::Capability;
use onbeat_time::clock::monotonic_ns;
use onbeat_trace::{Event, EventKind};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// What a session may use: all that a recorder may, and real-time priorities and locked memory.
pub fn rights() -> Vec<Capability> {
    let own = [Capability::CAP_SYS_NICE, Capability::CAP_IPC_LOCK];
    onbeat_record::AT_START.iter().copied().chain(own).collect()
}

/// The watcher's first callback is the first callback of all chains.
const FIRST: usize = 0;

/// Runs `plan` until the options say so, a signal comes, or the command ends. Calls `report` about
/// once a second.
///
/// # Errors
///
/// [`ShapeError`]. Everything is put back then.
pub fn shape(
    plan: &Plan,
    options: &ShapeOptions,
    report: &mut dyn FnMut(&Live),
) -> Result<Summary, ShapeError> {
    // A ledger is the file of whoever calls this, and says what to write where: with rights that the
    // caller does not have, everybody who may call it could do everything.
    if onbeat_rights::is_elevated() {
        return Err(ShapeError::Elevated);
    }
    let moved = moved(plan, &options.command)?;
    onbeat_rights::raise();
    let trace = Trace::new(options.trace.clone())?;
    let record = RecordOptions {
        output: trace.path(),
        target: Target::new(
            moved.command.clone(),
            options.command_to_stderr,
            options.pids.clone(),
        ),
        keep_privileges: true,
        is_private: trace.is_temporary(),
        max_segments: trace.is_temporary().then_some(1),
        ..RecordOptions::default()
    };
    let waits = Arc::new(WhoWaits::default());
    let start = |servers: &[Server], origin_ns| {
        let settings = options.reserve(plan, &waits);
        Reservation::start(plan.cycle_ms.0, servers, origin_ns, settings)
    };
    let start_servers: StartServers = Box::new(|servers, origin_ns| {
        let reservation: Box<dyn Servers> = Box::new(start(servers, origin_ns)?);
        Ok(reservation)
    });
    let mut session = Session::new(plan, options, report, (start_servers, waits.clone()));
    // Whether this machine and user may shape at all is checked before an application is started.
    start(&guarded(plan), monotonic_ns())?.stop();
    let recorded = onbeat_record::record_observed(&record, &mut session);
    // An application that the session ends in the middle of its work may return an error for that.
    let ended_by_us = session.is_over();
    let (mut summary, error) = session.end();
    let recorded = recorded?;
    if let Some(error) = error {
        return Err(error);
    }
    summary.command_status = recorded.command_status.filter(|_| !ended_by_us);
    if !trace.is_temporary() {
        summary.notes.extend(recorded.notes);
    }
    Ok(summary)
}

/// Directory of the recording.
enum Trace {
    /// The user wants it.
    Wanted(PathBuf),
    /// In a directory that only we can look into, removed at the end.
    Temporary(TempDir),
}

impl Trace {
    fn new(wanted: Option<PathBuf>) -> Result<Trace, ShapeError> {
        if let Some(path) = wanted {
            return Ok(Trace::Wanted(path));
        }
        let made = tempfile::Builder::new()
            .prefix("onbeat-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir();
        made.map(Trace::Temporary).map_err(ShapeError::Temporary)
    }

    fn is_temporary(&self) -> bool {
        matches!(self, Trace::Temporary(_))
    }

    fn path(&self) -> PathBuf {
        match self {
            Trace::Wanted(path) => path.clone(),
            Trace::Temporary(dir) => dir.path().join("trace"),
        }
    }
}

/// Starts servers whose cycles begin at an origin.
type StartServers<'a> = Box<dyn Fn(&[Server], u64) -> Result<Box<dyn Servers>, StartError> + 'a>;

struct Session<'a> {
    plan: &'a Plan,
    options: &'a ShapeOptions,
    report: &'a mut dyn FnMut(&Live),
    start_servers: StartServers<'a>,
    waits: Arc<WhoWaits>,
    trust: Trust,
    application: Application<'a>,
    supervisor: Supervisor<'a>,
    stage: Stage<'a>,
    notes: Notes,
    /// Reports of shapers that did not reach this process.
    lost_reports: u64,
    /// Once there is one, events are ignored.
    error: Option<ShapeError>,
}

impl<'a> Session<'a> {
    fn new(
        plan: &'a Plan,
        options: &'a ShapeOptions,
        report: &'a mut dyn FnMut(&Live),
        (start_servers, waits): (StartServers<'a>, Arc<WhoWaits>),
    ) -> Session<'a> {
        Session {
            plan,
            options,
            report,
            start_servers,
            waits,
            trust: Trust::new(options.users.as_deref(), |pid| {
                onbeat_proc::user(pid).map(|user| user.uid)
            }),
            application: Application::new(plan, |pid| {
                onbeat_proc::Stat::of(pid).is_some_and(|stat| !stat.has_ended())
            }),
            supervisor: Supervisor::new(plan, &options.program),
            stage: Stage::Finding(Finding::new()),
            notes: Notes::default(),
            lost_reports: 0,
            error: None,
        }
    }

    /// Takes events, which come in order of time. `record_also` makes the recording observe one
    /// more process. After an error, the session takes no more events.
    fn push(&mut self, events: &[Event], record_also: &dyn Fn(u32)) {
        if self.error.is_some() {
            return;
        }
        let events = self.trust.of_application(events, &mut self.notes);
        let events = self.application.instances.without_seconds(events);
        if let Err(error) = self.advance(&events, record_also) {
            if self.runs_on() {
                self.stop();
                self.notes
                    .add(format!("{error}. The application runs on, unshaped."));
            }
            self.error = Some(error);
        }
    }

    fn advance(&mut self, events: &[Event], record_also: &dyn Fn(u32)) -> Result<(), ShapeError> {
        let mut completed = self.poll_shaper()?;
        if let Stage::Shaping(shaping) = &mut self.stage {
            shaping.take_changes();
        }
        if let Some((course, until_ns)) = self.stage.course_mut() {
            course.push_switches(events, until_ns);
        }
        self.supervisor.add_publishers_of_inputs(events);
        self.ensure_shaper(record_also)?;
        let found = self.application.observe(events);
        let seconds = self.starts_of_seconds(&found);
        let is_seconds = |o: &PlanObservation| matches!(o, PlanObservation::Left { start_ns, .. } if seconds.contains(start_ns));
        for observation in found.into_iter().filter(|o| !is_seconds(o)) {
            self.application
                .executions
                .see(&observation, &mut completed);
            self.take(&observation, record_also)?;
        }
        for execution in completed {
            self.count(execution);
        }
        self.forget_ended(events);
        self.advance_stage()
    }

    /// Reads the shaper's reports. Returns the executions that are complete with them.
    fn poll_shaper(&mut self) -> Result<Vec<Execution>, ShapeError> {
        let polled = self.supervisor.poll()?;
        self.lost_reports += polled.lost;
        let mut completed = Vec::new();
        for release in polled.releases {
            self.application
                .executions
                .released(release, &mut completed);
        }
        if polled.has_stopped && !self.stage.is_stopped() {
            let note = "An output was late for its last slot: shaping ends.";
            self.notes.add(note.into());
            self.stop();
        }
        Ok(completed)
    }

    /// Starts a shaper if one is needed and none runs.
    fn ensure_shaper(&mut self, record_also: &dyn Fn(u32)) -> Result<(), ShapeError> {
        if self.stage.is_stopped() {
            return Ok(());
        }
        let Some(beside) = self.supervisor.ensure_shaper()? else {
            return Ok(());
        };
        let Some(shaper) = self.supervisor.shaper_mut() else {
            return Ok(());
        };
        record_also(shaper.pid());
        if let Stage::Shaping(shaping) = &self.stage {
            shaper.shape(shaping.course.phase.phase().origin_ns(), self.plan);
            self.notes.add(format!(
                "The shaper ended with the process beside it, and was started anew beside process {beside}."
            ));
        }
        Ok(())
    }

    /// When second instances started callbacks: what they published then is nobody's execution.
    fn starts_of_seconds(&self, found: &[PlanObservation]) -> Vec<u64> {
        let start = |o: &PlanObservation| match *o {
            PlanObservation::Ran {
                callback,
                pid,
                start_ns,
                ..
            } => self
                .application
                .instances
                .is_second(callback, pid)
                .then_some(start_ns),
            _ => None,
        };
        found.iter().filter_map(start).collect()
    }

    /// Threads and processes that have ended: their ids are used again.
    fn forget_ended(&mut self, events: &[Event]) {
        for event in events.iter().filter(|e| e.kind == EventKind::Exit) {
            self.application.roles.forget(event.tid);
            if event.pid == event.tid {
                self.application.instances.ended(event.pid);
            }
        }
    }

    /// Whether a process has the callback that it ran. A second instance is told, and left alone.
    fn has_callback(&mut self, callback: usize, pid: u32) -> Result<bool, ShapeError> {
        let standing = self.application.instances.ran(callback, pid);
        let name = self.application.name(callback);
        match standing {
            Standing::Holds => Ok(true),
            Standing::Anew { was } => {
                self.notes.add(format!(
                    "{name} runs in process {pid} now: process {was} has ended."
                ));
                Ok(true)
            }
            Standing::Second { of } if self.options.strict => Err(ShapeError::SecondInstance {
                callback: name.to_owned(),
                pid,
                of,
            }),
            Standing::Second { of } => {
                self.notes.add_once(format!(
                    "Process {pid} runs {name} too, which process {of} has: a second instance, left as it is."
                ));
                Ok(false)
            }
        }
    }

    /// An error that is about one thread alone is told, and the others are shaped on.
    fn told(&mut self, error: ShapeError) -> Result<(), ShapeError> {
        let is_shaping = matches!(self.stage, Stage::Shaping(_));
        if self.options.strict || !is_shaping || !error.is_of_one_thread() {
            return Err(error);
        }
        self.notes.add_once(left_alone(&error));
        Ok(())
    }

    fn take(
        &mut self,
        observation: &PlanObservation,
        record_also: &dyn Fn(u32),
    ) -> Result<(), ShapeError> {
        match *observation {
            PlanObservation::Ran {
                callback,
                pid,
                tid,
                start_ns,
                end_ns,
            } => {
                if !self.has_callback(callback, pid)? {
                    return Ok(());
                }
                self.application.runs.ran(callback, start_ns, end_ns);
                if callback == FIRST {
                    self.first_started(start_ns);
                    if self.plan.inputs.is_empty() {
                        self.chain_started(start_ns);
                    }
                }
                if self.application.needs_shaper(callback) {
                    self.supervisor.add_publisher(pid);
                    self.ensure_shaper(record_also)?;
                }
                self.assign(callback, Thread { pid, tid })
            }
            PlanObservation::Left {
                callback,
                ref topic,
                ..
            } => match self.application.bare_output(callback, topic.as_deref()) {
                Some(output) => self.told(not_held(self.application.name(callback), output)),
                None => Ok(()),
            },
            PlanObservation::Taken {
                ref topic,
                published_ns,
                ..
            } => {
                if self.plan.inputs.iter().any(|input| input.topic == *topic) {
                    self.chain_started(published_ns);
                }
                Ok(())
            }
        }
    }

    fn first_started(&mut self, start_ns: u64) {
        match &mut self.stage {
            Stage::Finding(finding) => finding.started(start_ns),
            // A throttler sets its own cycle.
            Stage::Shaping(shaping) if self.plan.inputs.is_empty() => {
                let moved = shaping.started(start_ns);
                if let (Some(origin_ns), Some(shaper)) = (moved, self.supervisor.shaper()) {
                    shaper.set_origin(origin_ns);
                }
            }
            Stage::Shaping(_) | Stage::Stopped(_) => {}
        }
    }

    fn chain_started(&mut self, start_ns: u64) {
        if let Some((course, _)) = self.stage.course_mut() {
            course.started(start_ns);
        }
    }

    /// A thread ran a callback: it belongs to the callback's server from now on.
    fn assign(&mut self, callback: usize, thread: Thread) -> Result<(), ShapeError> {
        let role = self.application.roles.ran(callback, thread.pid, thread.tid);
        let server = match role {
            Ok(role) => role.and_then(|role| role.server),
            Err(Conflict { tid, callbacks }) => {
                let first = self.application.name(callbacks[0]).to_owned();
                let second = self.application.name(callbacks[1]).to_owned();
                return self.told(ShapeError::TwoServers { tid, first, second });
            }
        };
        if let (Stage::Shaping(shaping), Some(server)) = (&mut self.stage, server) {
            let job = self.application.name(callback);
            let may = self.trust.still_holds(thread.pid);
            let assigned = may.then(|| shaping.assign(thread, job, server));
            match assigned {
                Some(Ok(true)) => {}
                // Another user's now, or it has ended.
                None | Some(Ok(false)) => self.application.roles.forget(thread.tid),
                Some(Err(error)) => return self.told(error),
            }
        }
        Ok(())
    }

    /// An execution is complete.
    fn count(&mut self, execution: Execution) {
        let Some((course, until_ns)) = self.stage.course_mut() else {
            return;
        };
        let Some(cycle) = course.count(self.plan, execution, until_ns, self.options.duration)
        else {
            return;
        };
        if execution.late {
            let (from_ns, until_ns) = (execution.start_ns, execution.left_ns);
            let cause = self.application.runs.cause(from_ns, until_ns);
            let cause = cause.map(|c| (self.application.name(c.callback), c));
            self.notes
                .add(late_note(&execution, cycle, self.plan.overshoot, cause));
            if self.plan.overshoot == Overshoot::Stop {
                self.stop();
            }
        }
    }

    /// Goes to the next stage if it is time.
    fn advance_stage(&mut self) -> Result<(), ShapeError> {
        self.heed_pauses();
        let shaper = self.supervisor.pid();
        let has_settled = match &mut self.stage {
            Stage::Finding(_) => return self.find(),
            Stage::Shaping(shaping) => shaping.has_settled(shaper),
            Stage::Stopped(_) => false,
        };
        if let Some(shaper) = self.supervisor.shaper_mut() {
            shaper.beat();
            if has_settled {
                shaper.settled();
            }
        }
        Ok(())
    }

    /// Tells why gates stayed open. Without its guard, shaping ends.
    fn heed_pauses(&mut self) {
        if let Stage::Shaping(shaping) = &mut self.stage {
            if !shaping.tell_pauses(&mut self.notes) {
                self.stop();
            }
        }
    }

    /// Begins to shape if everything is found.
    fn find(&mut self) -> Result<(), ShapeError> {
        let Stage::Finding(finding) = &self.stage else {
            return Ok(());
        };
        let arrivals = self.supervisor.shaper().into_iter();
        let shaper = ShaperView {
            is_ready: self.supervisor.is_ready(),
            arrivals: arrivals.flat_map(|s| s.arrivals()).collect(),
        };
        let time = (finding.elapsed(), self.options.find_within);
        let missing = self.application.missing();
        match finding.poll(self.plan, missing, &shaper, time)? {
            Some(phase) => self.begin(phase),
            None => Ok(()),
        }
    }

    fn begin(&mut self, phase: Phase) -> Result<(), ShapeError> {
        let origin_ns = phase.origin_ns();
        let servers = guarded(self.plan);
        let sharing = self.application.sharing(|s| !servers[s].slots.is_empty());
        if let Some(note) = sharing_note(&sharing) {
            self.notes.add(note);
        }
        let reservation = (self.start_servers)(&servers, origin_ns)?;
        reservation
            .warnings()
            .into_iter()
            .for_each(|w| self.notes.add(w));
        if self.options.gate == GateKind::Soft && !self.waits.has_table() {
            self.notes.add(CANNOT_TELL.into());
        }
        let awake = self.keep_awake();
        // Before the threads are assigned: messages that pass while they have only their slots
        // would pile up before them.
        if let Some(shaper) = self.supervisor.shaper_mut() {
            shaper.shape(origin_ns, self.plan);
        }
        let isolation = match self.options.gate {
            GateKind::Soft => IsolationMonitor::of_soft_gates(),
            GateKind::Hard => IsolationMonitor::default(),
        };
        let mut shaping = Shaping::begin(
            self.plan,
            &mut self.application,
            Placement::new(self.plan, servers, reservation, self.waits.clone()),
            awake,
            (phase, isolation),
            (!self.options.strict).then_some(&mut self.notes),
        )?;
        shaping.place_middleware(&self.application, self.supervisor.pid());
        self.stage = Stage::Shaping(Box::new(shaping));
        Ok(())
    }

    fn keep_awake(&mut self) -> Option<Awake> {
        if self.options.idle {
            return None;
        }
        let awake = Awake::new();
        awake
            .map_err(|error| {
                self.notes.add(format!(
                    "CPUs sleep between slots, and wake up late (/dev/cpu_dma_latency: {error})."
                ));
            })
            .ok()
    }

    /// Puts everything back. The application runs on. Nothing if that was done before.
    fn stop(&mut self) {
        if self.stage.is_stopped() {
            return;
        }
        let at_ns = monotonic_ns();
        let usage = CpuUsage::now(self.supervisor.pid());
        if let Some(shaper) = self.supervisor.shaper_mut() {
            shaper.pass_through();
        }
        let nothing = Stage::Stopped(Stopped {
            at_ns,
            shaped: None,
        });
        if let Stage::Shaping(mut shaping) = std::mem::replace(&mut self.stage, nothing) {
            shaping.tell_pauses(&mut self.notes);
            let shaped = Some(Box::new(shaping.stop(usage, &mut self.notes)));
            self.stage = Stage::Stopped(Stopped { at_ns, shaped });
        }
    }

    /// Whether an application that the session started runs on when shaping fails: once it was
    /// shaped, it may be at work.
    fn runs_on(&self) -> bool {
        self.stage.course().is_some() && !self.options.command.is_empty()
    }

    fn live(&mut self) -> Live {
        let mut live = Live {
            notes: self.notes.take_new(),
            ..Live::default()
        };
        let Some((course, _)) = self.stage.course_mut() else {
            live.missing = self.application.missing();
            return live;
        };
        live.shaping = Some(course.elapsed());
        live.executions = course.results.count();
        live.judgements = course.results.take_new();
        live.jitter_ns = course.results.recent_jitter_ns(Execution::latency_ns);
        let knows = self
            .plan
            .chains
            .iter()
            .all(|c| knows_unshaped(self.plan, c));
        live.unshaped_jitter_ns =
            knows.then(|| course.results.recent_jitter_ns(Execution::unshaped_ns));
        let without = course.deliveries.counts().iter().map(|d| d.without);
        live.without = without.max().unwrap_or(0);
        live.late = course.results.late();
        live.dropped = course.results.dropped();
        if let Some(last) = live.judgements.last() {
            live.cycle = course.phase.phase().cycle(last.execution.start_ns).0;
        }
        if let Stage::Shaping(shaping) = &self.stage {
            live.dispatcher_p99_ns = shaping.stats().lateness.quantile_ns(0.99);
        }
        live
    }

    fn end(mut self) -> (Summary, Option<ShapeError>) {
        self.stop();
        self.supervisor.end();
        let mut summary = Summary {
            notes: self.notes.into_all(),
            ..Summary::default()
        };
        let Stage::Stopped(Stopped {
            shaped: Some(shaped),
            at_ns,
        }) = self.stage
        else {
            return (summary, self.error);
        };
        let shaped = *shaped;
        let mut course = shaped.course;
        course.finish(self.plan, at_ns, self.options.duration);
        let forgotten = course.results.forgotten();
        summary.judgements = course.results.into_kept();
        if forgotten > 0 {
            summary.notes.push(format!(
                "The figures are of the last {} executions: {forgotten} before them are not kept.",
                summary.judgements.len()
            ));
        }
        if self.lost_reports > 0 {
            summary.notes.push(format!(
                "{} reports of the shaper were lost: their outputs count as not delivered.",
                self.lost_reports
            ));
        }
        let mut verdict = judge(
            self.plan,
            Measured {
                judgements: &summary.judgements,
                deliveries: course.deliveries.counts(),
                outside_ns: course.isolation.outside_ns(),
            },
        );
        if let Some((settled, stopped)) = shaped.usage {
            verdict.add_shares(stopped.shares_since(&settled));
        }
        summary.verdict = verdict;
        summary.placed = shaped.placed;
        summary.stats = Some(shaped.stats);
        (summary, self.error)
    }

    /// Whether shaping has lasted as long as was asked for.
    fn is_done(&self) -> bool {
        let elapsed: Option<Duration> = self.stage.course().map(|c| c.elapsed());
        matches!((elapsed, self.options.duration), (Some(e), Some(d)) if e >= d)
    }
}

/// What soft gates are where the kernel cannot tell who waits.
const CANNOT_TELL: &str = "This kernel does not tell which threads wait for work (Linux 5.15 does): between their slots threads are not frozen but run at a normal priority; --gate hard freezes them wherever they are.";

/// Callbacks that are named in one note.
const NAMED: usize = 8;

/// What is told of callbacks that are in no plan but share gated threads.
fn sharing_note(sharing: &[Unplanned]) -> Option<String> {
    let name = |u: &Unplanned| format!("{} (thread {}, {} times)", u.id, u.tid, u.runs);
    let named: Vec<String> = sharing.iter().take(NAMED).map(name).collect();
    let more = match sharing.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (count, verb) = match sharing.len() {
        0 => return None,
        1 => ("1 callback that is not in the plan".to_owned(), "shares"),
        n => (format!("{n} callbacks that are not in the plan"), "share"),
    };
    Some(format!(
        "{count} {verb} threads with it, and will run in their slots only: {}{more}.",
        named.join(", ")
    ))
}

/// The error of a callback that publishes an output on the output's own topic.
fn not_held(callback: &str, output: &Output) -> ShapeError {
    let held_topic = output.held_topic.as_deref().unwrap_or_default();
    let words = onbeat_ros::remap::remap_args(&output.node, &output.topic, held_topic);
    ShapeError::NotHeld {
        callback: callback.to_owned(),
        topic: output.topic.clone(),
        remap: words.map_or_else(|e| e.to_string(), |words| words.join(" ")),
    }
}

impl Observer for Session<'_> {
    fn events(&mut self, events: &[Event], control: &Control<'_>) {
        self.waits.set_table(|| control.waits());
        self.push(events, &|pid| control.observe(pid));
    }

    fn ending(&mut self) {
        // The application ends as it would without us: its threads run whenever they can, and
        // nothing is held back.
        self.stop();
    }

    fn progress(&mut self, _: &Progress) {
        self.application.instances.refresh();
        self.heed_pauses();
        let shaper = self.supervisor.pid();
        if let Stage::Shaping(shaping) = &mut self.stage {
            // The middleware starts threads when others join.
            shaping.place_middleware(&self.application, shaper);
            if self.options.gate == GateKind::Soft && self.waits.has_table() {
                shaping.name_unknown(&mut self.notes);
            }
        }
        let live = self.live();
        (self.report)(&live);
    }

    /// The recording shows what was shaped, not what ran before.
    fn is_kept(&self, event: &Event) -> bool {
        let course = self.stage.course();
        course.is_some_and(|c| event.time_ns >= c.settled_ns)
            || onbeat_trace::table::is_state(&event.kind)
    }

    fn is_over(&self) -> bool {
        (self.error.is_some() && !self.runs_on()) || self.is_done()
    }
}

#[cfg(test)]
mod tests;
