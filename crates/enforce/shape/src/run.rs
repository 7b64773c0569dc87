//! Keeps a plan going on a machine: finds the threads, starts reservations and shapers, follows the
//! phase, counts what comes of it, and puts everything back.
//!
//! It looks at the application through a recording that runs alongside: what it knows of threads and
//! executions comes from there, never from names. It goes through two stages. *Finding*: the
//! application runs as it would without us until every callback of the plan was seen on its thread
//! and the first one's releases are known to lie on a grid. *Shaping*: the servers run.

use crate::awake::Awake;
use crate::executions::{Execution, Executions};
use crate::isolation::Isolation;
use crate::launch::{moved, moves, LaunchError};
use crate::middleware;
use crate::overrun::Runs;
use crate::phase::Phase;
use crate::roles::{Conflict, Roles};
use crate::shaper::{Shaper, ShaperError};
use crate::verdict::{judge, Figure, Outcome, Verdict};
use crate::watch::{is_synchroniser, Sight, Watcher};
use onbeat_plan::schema::{Hold, Ms, Output, Overshoot, Server, Slot};
use onbeat_plan::Plan;
use onbeat_record::{Control, Observer, Progress, RecordError, RecordOptions, Target};
use onbeat_reserve::{AssignError, Options as ReserveOptions, Reservation, StartError, Stats};
use onbeat_trace::{EndpointKind, Event, EventKind};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;

/// What to shape, and for how long.
#[derive(Debug, Clone)]
pub struct ShapeOptions {
    /// Start this application, and shape it. Empty: one that runs.
    pub command: Vec<String>,
    /// Only look at these processes.
    pub pids: Vec<u32>,
    /// Shape for so long, then judge. None: until told to stop.
    pub duration: Option<Duration>,
    /// Keep the recording of what was shaped here; none: it is thrown away.
    pub trace: Option<PathBuf>,
    /// How long to look for the callbacks.
    pub find_within: Duration,
    /// Program that shapers are: this one, called with `shaper`.
    pub program: PathBuf,
    /// What the application prints goes to the standard error.
    pub command_to_stderr: bool,
    /// CPU of the dispatcher; none: the middleware's.
    pub dispatcher_cpu: Option<u16>,
    /// Let CPUs sleep as deeply as they do: it saves power, and costs precision.
    pub idle: bool,
}

/// Why a plan could not be run.
#[derive(Debug, Error)]
pub enum ShapeError {
    /// The recording that it looks through.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The servers.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A shaper.
    #[error(transparent)]
    Shaper(#[from] ShaperError),
    /// The application's command.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A thread could not be put into its server.
    #[error("cannot put thread {tid} ({callback}) into server {server}: {reason}")]
    Assign {
        /// The thread.
        tid: u32,
        /// What it runs.
        callback: String,
        /// Where it belongs.
        server: String,
        /// Why not.
        reason: AssignError,
    },
    /// Callbacks did not show.
    #[error("{} did not run within {within_s} s: is the application running, with the nodes of the plan and under the same names?", .callbacks.join(", "))]
    NotSeen {
        /// The callbacks.
        callbacks: Vec<String>,
        /// How long was looked.
        within_s: u64,
    },
    /// The first callback is not periodic.
    #[error("{callback} does not start on a grid of {cycle_ms} ms: its starts spread over {spread_ms:.1} ms; plan a throttler for it (onbeat plan --throttle), or check the cycle")]
    NoGrid {
        /// The callback.
        callback: String,
        /// The plan's cycle.
        cycle_ms: f64,
        /// How far the starts spread.
        spread_ms: f64,
    },
    /// One thread would belong to two servers.
    #[error("thread {tid} runs {first} and {second}, which belong to different servers: run their nodes in processes of their own, or put both into one server")]
    TwoServers {
        /// The thread.
        tid: u32,
        /// A callback.
        first: String,
        /// Another.
        second: String,
    },
    /// The output is not held back.
    #[error("{callback} publishes {topic} itself, so it cannot be held back: start the application with onbeat shape PLAN -- COMMAND, or give its node: {remap} (where a rule of its own already moves a topic there, move it to the held one instead)")]
    NotHeld {
        /// The callback.
        callback: String,
        /// The topic.
        topic: String,
        /// The words that remap it.
        remap: String,
    },
    /// The middleware publishes in the callback's own thread.
    #[error("the process of {callback} has no publisher thread to put into {server}: start it with RMW_FASTRTPS_PUBLICATION_MODE=ASYNCHRONOUS, or plan with --design sync")]
    NoPublisherThread {
        /// The callback.
        callback: String,
        /// The server.
        server: String,
    },
}

impl ShapeError {
    /// True where this machine or user cannot shape at all, whatever the plan.
    pub fn is_refusal(&self) -> bool {
        match self {
            ShapeError::Record(e) => e.is_refusal(),
            ShapeError::Start(e) => matches!(
                e,
                StartError::State { .. }
                    | StartError::NoFreezer(_)
                    | StartError::DispatcherPriority { .. }
            ),
            _ => false,
        }
    }
}

/// What is going on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Live {
    /// Callbacks of the plan that are not found yet; none: it shapes.
    pub missing: Vec<String>,
    /// Since shaping began.
    pub shaping: Option<Duration>,
    /// Cycles so far.
    pub cycle: i64,
    /// Outcomes since the last report.
    pub outcomes: Vec<Outcome>,
    /// Executions so far.
    pub executions: u64,
    /// Half of the range from p0.5 to p99.5 of the last executions.
    pub jitter_ns: u64,
    /// Outputs that missed their slot.
    pub late: u64,
    /// Outputs that were discarded.
    pub dropped: u64,
    /// Lateness of the dispatcher, p99.
    pub dispatcher_p99_ns: u64,
    /// What happened since the last report, a sentence each.
    pub notes: Vec<String>,
}

/// A thread and what was done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Thread.
    pub tid: u32,
    /// Process.
    pub pid: u32,
    /// Its name (untrusted).
    pub name: String,
    /// Server, or `middleware`.
    pub place: String,
    /// What it does: its callbacks, or its job in the middleware.
    pub job: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Summary {
    /// Every execution, in order of completion (the first million).
    pub outcomes: Vec<Outcome>,
    /// Held against the plan's promises.
    pub verdict: Verdict,
    /// The threads.
    pub placed: Vec<Placed>,
    /// The dispatcher's figures.
    pub stats: Option<Stats>,
    /// Exit status of the command, if one was started.
    pub command_status: Option<i32>,
    /// What the user should know, a sentence each.
    pub notes: Vec<String>,
}

/// Executions that are kept.
const MOST_OUTCOMES: usize = 1_000_000;
/// Runs outside slots that are kept.
const MOST_OUTSIDE: usize = 1_000_000;
/// Executions that the live jitter is taken from.
const RECENT: usize = 200;
/// What the first cycles bring is not counted: threads are still on their way into their servers.
const SETTLE_CYCLES: u64 = 5;
/// How long before a cycle's beginning its first callback may start.
const GUARD_NS: u64 = 1_000_000;
/// So many origins of cycles are kept: executions are known a quarter of a second after they end.
const ORIGINS: usize = 16;
/// Every so many seconds the middleware's threads are looked through even if there are as many as before.
const LOOK_EVERY: u64 = 10;
/// How often each callback must be seen before shaping begins.
const SEEN: u64 = 3;
/// How many starts of the first callback the grid is taken from.
const STARTS: usize = 12;

/// Runs `plan` until the options say so, a signal comes, or the command ends. `report` is called
/// about once a second.
pub fn shape(
    plan: &Plan,
    options: &ShapeOptions,
    report: &mut dyn FnMut(&Live),
) -> Result<Summary, ShapeError> {
    let moved = moved(plan, &options.command)?;
    let trace = Trace::new(options.trace.clone());
    let record = RecordOptions {
        output: trace.path.clone(),
        target: Target::new(
            moved.command.clone(),
            options.command_to_stderr,
            options.pids.clone(),
        ),
        keep_privileges: true,
        max_segments: trace.thrown_away.then_some(1),
        ..RecordOptions::default()
    };
    let mut runner = Runner::new(plan, options, report);
    // Whether it may at all is to be known before an application is started.
    Reservation::start(
        plan.cycle_ms.0,
        &reserve_servers(&guarded(plan)),
        monotonic_ns(),
        reserve_options(plan, options),
    )?
    .stop();
    let recorded = onbeat_record::record_observed(&record, &mut runner);
    // Who is stopped in the middle of his work may say so.
    let ended_by_us = runner.is_over();
    let (mut summary, error) = runner.end();
    let recorded = recorded?;
    if let Some(error) = error {
        return Err(error);
    }
    summary.command_status = recorded.command_status.filter(|_| !ended_by_us);
    if !trace.thrown_away {
        summary.notes.extend(recorded.notes);
    }
    Ok(summary)
}

fn reserve_options(plan: &Plan, options: &ShapeOptions) -> ReserveOptions {
    ReserveOptions::new(options.dispatcher_cpu.unwrap_or(plan.middleware.cpu))
}

/// The plan's servers, of which that of the first callback opens [`GUARD_NS`] before a cycle begins.
///
/// Where a cycle begins is taken from when the callback starts. If its gate opened then and no
/// earlier, it would start when the gate opens, and the cycle would follow the gate instead of the
/// callback's releases.
fn guarded(plan: &Plan) -> Vec<Server> {
    let mut servers = plan.servers.clone();
    let cycle_ns = plan.cycle_ms.0;
    let first = servers
        .iter_mut()
        .find(|s| s.callbacks.contains(&plan.origin));
    if let Some(server) = first.filter(|_| plan.inputs.is_empty()) {
        let begins = server.slots_ms.first().is_some_and(|s| s.0 .0 == 0);
        let end = server.slots_ms.last().map_or(cycle_ns, |s| s.1 .0);
        let from = end.max(cycle_ns.saturating_sub(GUARD_NS));
        if begins && from < cycle_ns {
            server.slots_ms.push(Slot(Ms(from), Ms(cycle_ns)));
        }
    }
    servers
}

/// The servers as reservations know them.
fn reserve_servers(servers: &[Server]) -> Vec<onbeat_reserve::Server> {
    let convert = |s: &Server| onbeat_reserve::Server {
        name: s.name.clone(),
        cpu: s.cpu,
        priority: s.priority,
        slots: s
            .slots_ms
            .iter()
            .map(|s| onbeat_time::Slot::new(s.0 .0, s.1 .0))
            .collect(),
    };
    servers.iter().map(convert).collect()
}

/// Where the recording goes.
struct Trace {
    path: PathBuf,
    thrown_away: bool,
}

impl Trace {
    fn new(wanted: Option<PathBuf>) -> Trace {
        match wanted {
            Some(path) => Trace {
                path,
                thrown_away: false,
            },
            None => Trace {
                path: std::env::temp_dir().join(format!("onbeat-shape-{}", std::process::id())),
                thrown_away: true,
            },
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if self.thrown_away {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

struct Runner<'a> {
    plan: &'a Plan,
    options: &'a ShapeOptions,
    report: &'a mut dyn FnMut(&Live),
    watcher: Watcher,
    roles: Roles,
    executions: Executions,
    runs: Runs,
    starts: Vec<u64>,
    phase: Option<Phase>,
    /// The last origins of cycles, each with the time from which it held.
    origins: VecDeque<(u64, u64)>,
    reservation: Option<Reservation>,
    awake: Option<Awake>,
    shaper: Option<Shaper>,
    isolation: HashMap<u32, Isolation>,
    /// Threads of the middleware that were placed, by id.
    placed: BTreeMap<u32, Placed>,
    /// How many threads each process had when they were last looked at, and how often that was asked.
    counts: (HashMap<u32, u64>, u64),
    outside_ns: Vec<u64>,
    outcomes: Vec<Outcome>,
    reported: usize,
    late: u64,
    dropped: u64,
    notes: Vec<String>,
    all_notes: Vec<String>,
    begin: Instant,
    shaping: Option<(Instant, u64)>,
    /// When shaping ended, CLOCK_MONOTONIC: the application runs on.
    stopped: Option<u64>,
    /// Processes that publish what a shaper takes.
    beside: BTreeSet<u32>,
    stats: Option<Stats>,
    /// CPU time of this process and of the shaper when all had settled, and until shaping ended.
    cpu: Option<(Used, Option<Used>)>,
    error: Option<ShapeError>,
}

impl<'a> Runner<'a> {
    fn new(
        plan: &'a Plan,
        options: &'a ShapeOptions,
        report: &'a mut dyn FnMut(&Live),
    ) -> Runner<'a> {
        let watcher = Watcher::new(plan);
        let callbacks = watcher.callbacks().to_vec();
        Runner {
            plan,
            options,
            report,
            roles: Roles::new(plan, &callbacks),
            executions: Executions::new(plan, &callbacks),
            runs: Runs::new(callbacks.len()),
            watcher,
            starts: Vec::new(),
            phase: None,
            origins: VecDeque::new(),
            reservation: None,
            awake: None,
            shaper: None,
            isolation: HashMap::new(),
            placed: BTreeMap::new(),
            counts: (HashMap::new(), 0),
            outside_ns: Vec::new(),
            outcomes: Vec::new(),
            reported: 0,
            late: 0,
            dropped: 0,
            notes: Vec::new(),
            all_notes: Vec::new(),
            begin: Instant::now(),
            shaping: None,
            stopped: None,
            beside: BTreeSet::new(),
            stats: None,
            cpu: None,
            error: None,
        }
    }

    fn name(&self, callback: usize) -> &str {
        self.watcher
            .callbacks()
            .get(callback)
            .map_or("?", String::as_str)
    }

    fn note(&mut self, note: String) {
        if self.all_notes.len() < 1000 {
            self.all_notes.push(note.clone());
        }
        self.notes.push(note);
    }

    /// Events in order of time.
    fn turn(&mut self, events: &[Event], control: &Control<'_>) -> Result<(), ShapeError> {
        let mut found = Vec::new();
        if let Some(shaper) = &mut self.shaper {
            let mut releases = Vec::new();
            shaper.releases(&mut releases)?;
            let (stopped, ended) = (shaper.has_stopped(), shaper.has_ended());
            for release in releases {
                self.executions.released(release, &mut found);
            }
            if stopped && self.stopped.is_none() {
                self.note("An output was late for its last slot: shaping ends.".into());
                self.stop_shaping();
            }
            if ended {
                self.shaper = None;
            }
        }
        if let Some(phase) = &self.phase {
            let origin_ns = phase.origin_ns();
            let until_ns = self.stopped.unwrap_or(u64::MAX);
            for event in events.iter().take_while(|e| e.time_ns < until_ns) {
                let Some(isolation) = self.isolation.get_mut(&event.tid) else {
                    continue;
                };
                match event.kind {
                    EventKind::SwitchIn { .. } => isolation.runs(event.time_ns),
                    EventKind::SwitchOut { .. } => {
                        let outside = isolation.stops(event.time_ns, origin_ns);
                        if self.outside_ns.len() < MOST_OUTSIDE {
                            self.outside_ns.extend(outside);
                        }
                    }
                    _ => {}
                }
            }
        }
        self.beside.extend(self.publishers_of_inputs(events));
        self.stand_beside(control)?;
        let mut sights = Vec::new();
        self.watcher.push(events, &mut sights);
        for sight in &sights {
            self.executions.see(sight, &mut found);
            match *sight {
                Sight::Ran {
                    callback,
                    pid,
                    tid,
                    start_ns,
                    end_ns,
                } => {
                    self.runs.ran(callback, start_ns, end_ns);
                    self.ran(callback, pid, tid, start_ns, control)?;
                }
                Sight::Left {
                    callback,
                    ref topic,
                    ..
                } => self.check_held(callback, topic.as_deref())?,
                Sight::Taken { .. } => {}
            }
        }
        for execution in found {
            self.completed(execution);
        }
        match self.shaping {
            None if self.stopped.is_none() => self.find()?,
            None => {}
            Some((_, since_ns)) => {
                let settled = monotonic_ns() >= since_ns;
                if let Some(shaper) = &mut self.shaper {
                    shaper.beat();
                    if settled {
                        shaper.settled();
                    }
                }
                if settled && self.cpu.is_none() {
                    self.cpu = Some((Used::now(self.shaper.as_ref()), None));
                }
            }
        }
        Ok(())
    }

    fn ran(
        &mut self,
        callback: usize,
        pid: u32,
        tid: u32,
        start_ns: u64,
        control: &Control<'_>,
    ) -> Result<(), ShapeError> {
        // The first callback of all chains is the first that the watcher knows.
        if callback == 0 {
            match &mut self.phase {
                Some(phase) => {
                    // A throttler beats by itself.
                    if self.plan.inputs.is_empty() && phase.started(start_ns) {
                        let origin_ns = phase.origin_ns();
                        self.origins.push_back((monotonic_ns(), origin_ns));
                        if self.origins.len() > ORIGINS {
                            self.origins.pop_front();
                        }
                        if let Some(reservation) = &self.reservation {
                            reservation.set_origin(origin_ns);
                        }
                        if let Some(shaper) = &self.shaper {
                            shaper.set_origin(origin_ns);
                        }
                    }
                }
                None => self.starts.push(start_ns),
            }
        }
        if self.is_held(callback) {
            self.beside.insert(pid);
            self.stand_beside(control)?;
        }
        let role = self.roles.ran(callback, pid, tid);
        match role {
            Ok(Some(role)) if self.reservation.is_some() => {
                let server = role.server;
                self.assign(tid, pid, callback, server)
            }
            Ok(_) => Ok(()),
            Err(Conflict { tid, callbacks }) => Err(ShapeError::TwoServers {
                tid,
                first: self.name(callbacks[0]).to_owned(),
                second: self.name(callbacks[1]).to_owned(),
            }),
        }
    }

    /// Who gets a throttled input runs only once the throttler does: that stands beside the input's
    /// publisher.
    fn publishers_of_inputs(&self, events: &[Event]) -> Vec<u32> {
        let is_input = |topic: &str| self.plan.inputs.iter().any(|i| i.held_topic == topic);
        let publishes = |event: &&Event| match &event.kind {
            EventKind::PublisherInit { topic, .. } => is_input(topic),
            EventKind::EndpointFound {
                endpoint: EndpointKind::Publisher,
                name,
                ..
            } => is_input(name),
            _ => false,
        };
        events.iter().filter(publishes).map(|e| e.pid).collect()
    }

    /// Starts a shaper beside a process of the application, where one is needed and there is none: it ends
    /// with the process, and the others may run on, or that one be started anew.
    fn stand_beside(&mut self, control: &Control<'_>) -> Result<(), ShapeError> {
        if self.shaper.is_some() || self.stopped.is_some() {
            return Ok(());
        }
        self.beside.retain(|&pid| onbeat_proc::is_alive(pid));
        let Some(&pid) = self.beside.first() else {
            return Ok(());
        };
        let mut shaper = Shaper::start(self.plan, &self.options.program, pid)?;
        control.observe(shaper.pid());
        if let (Some(_), Some(phase)) = (self.shaping, &self.phase) {
            shaper.shape(self.plan.cycle_ms.0, phase.origin_ns(), self.plan);
            self.note(format!(
                "The shaper ended with the process beside it, and was started anew beside process {pid}."
            ));
        }
        self.shaper = Some(shaper);
        Ok(())
    }

    /// Does a shaper take what this callback publishes, or what it gets?
    fn is_held(&self, callback: usize) -> bool {
        let name = self.name(callback);
        let is_output = |o: &Output| o.hold == Hold::Republish && publishes(o, name);
        self.plan.outputs.iter().any(is_output) || (callback == 0 && !self.plan.inputs.is_empty())
    }

    fn check_held(&self, callback: usize, topic: Option<&str>) -> Result<(), ShapeError> {
        let name = self.name(callback);
        let bare = self.plan.outputs.iter().find(|o| {
            o.hold == Hold::Republish && publishes(o, name) && Some(o.topic.as_str()) == topic
        });
        match bare {
            None => Ok(()),
            Some(output) => Err(ShapeError::NotHeld {
                callback: name.to_owned(),
                topic: output.topic.clone(),
                remap: onbeat_ros::remap::remap_args(
                    &output.node,
                    &output.topic,
                    output.held_topic.as_deref().unwrap_or_default(),
                )
                .map_or_else(|e| e.to_string(), |words| words.join(" ")),
            }),
        }
    }

    fn completed(&mut self, execution: Execution) {
        let (Some(phase), Some((_, since_ns))) = (&self.phase, self.shaping) else {
            return;
        };
        // An application that is stopped lets its last output go at once.
        let until_ns = self.stopped.unwrap_or(u64::MAX);
        let until_ns = until_ns.min(self.until_ns(since_ns));
        if execution.start_ns < since_ns || execution.output_ns >= until_ns {
            return;
        }
        // It left by the origin of that time, which may have moved since.
        let mut origins = self.origins.iter().rev();
        let of_then = origins.find(|(since_ns, _)| *since_ns <= execution.output_ns);
        let origin_ns = of_then.map_or(phase.origin_ns(), |(_, origin_ns)| *origin_ns);
        let outcome = Outcome::new(self.plan, execution, origin_ns);
        let (cycle, _) = phase.cycle(execution.start_ns);
        self.late += u64::from(execution.late);
        self.dropped += u64::from(execution.dropped);
        if self.outcomes.len() < MOST_OUTCOMES {
            self.outcomes.push(outcome);
        }
        if execution.late {
            let cause = self.runs.cause(execution.start_ns, execution.left_ns);
            let cause = cause.map_or(String::new(), |c| {
                format!(
                    ": {} took {:.1} ms, usually {:.1}",
                    self.name(c.callback),
                    c.took_ns as f64 / 1e6,
                    c.usual_ns as f64 / 1e6
                )
            });
            let after = (execution.left_ns - execution.start_ns) as f64 / 1e6;
            let what = match (execution.dropped, self.plan.overshoot) {
                (true, _) => "discarded",
                (false, Overshoot::Stop) => "shaping ends",
                (false, _) => "leaves in a later slot",
            };
            self.note(format!(
                "cycle {cycle}: output after {after:.1} ms, late for its last slot: {what}{cause}."
            ));
            if self.plan.overshoot == Overshoot::Stop && self.stopped.is_none() {
                self.stop_shaping();
            }
        }
    }

    /// When shaping ends of itself, CLOCK_MONOTONIC.
    fn until_ns(&self, since_ns: u64) -> u64 {
        let settling = SETTLE_CYCLES * self.plan.cycle_ms.0;
        self.options.duration.map_or(u64::MAX, |duration| {
            let duration = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            (since_ns - settling).saturating_add(duration)
        })
    }

    /// Everything back; the application runs on.
    fn stop_shaping(&mut self) {
        self.stopped = Some(monotonic_ns());
        if let Some((_, until)) = &mut self.cpu {
            *until = Some(Used::now(self.shaper.as_ref()));
        }
        self.awake = None;
        if let Some(shaper) = &mut self.shaper {
            shaper.pass_through();
        }
        if let Some(reservation) = self.reservation.take() {
            let report = reservation.stop();
            self.stats = Some(report.stats);
            for failure in report.restored.failures {
                self.note(failure);
            }
        }
    }

    /// Looks whether everything was seen; begins to shape if so.
    fn find(&mut self) -> Result<(), ShapeError> {
        let missing = self.missing();
        if !missing.is_empty() || self.starts.len() < STARTS || !self.is_shaper_ready() {
            let ready = missing.is_empty() && self.starts.len() >= STARTS;
            if self.begin.elapsed() < self.options.find_within {
                return Ok(());
            }
            if ready {
                let topics: Vec<String> = moves(self.plan).into_iter().map(|m| m.held).collect();
                return Err(ShapeError::Shaper(ShaperError::NotReady {
                    within_s: self.options.find_within.as_secs(),
                    topics: topics.join(", "),
                }));
            }
            return Err(ShapeError::NotSeen {
                callbacks: if missing.is_empty() {
                    vec![self.plan.origin.clone()]
                } else {
                    missing
                },
                within_s: self.options.find_within.as_secs(),
            });
        }
        let cycle_ns = self.plan.cycle_ms.0;
        let recent = &self.starts[self.starts.len() - STARTS..];
        let phase = if self.plan.inputs.is_empty() {
            match Phase::of(cycle_ns, recent) {
                Ok(phase) => phase,
                Err(spread_ns) if self.begin.elapsed() >= self.options.find_within => {
                    return Err(ShapeError::NoGrid {
                        callback: self.plan.origin.clone(),
                        cycle_ms: cycle_ns as f64 / 1e6,
                        spread_ms: spread_ns as f64 / 1e6,
                    });
                }
                // An application that has just started needs a while until it is steady.
                Err(_) => return Ok(()),
            }
        } else {
            // The throttler sets the beat: where inputs have one, such that each cycle finds them there.
            let arrivals = self.shaper.iter().flat_map(Shaper::arrivals);
            Phase::behind(cycle_ns, arrivals).unwrap_or_else(|| Phase::new(cycle_ns, recent[0]))
        };
        self.begin_shaping(phase)
    }

    fn missing(&self) -> Vec<String> {
        (0..self.watcher.callbacks().len())
            .filter(|&c| self.roles.seen(c) < SEEN)
            .map(|c| self.name(c).to_owned())
            .collect()
    }

    fn is_shaper_ready(&self) -> bool {
        self.shaper
            .as_ref()
            .map_or(moves(self.plan).is_empty(), Shaper::is_ready)
    }

    fn begin_shaping(&mut self, phase: Phase) -> Result<(), ShapeError> {
        let origin_ns = phase.origin_ns();
        let cycle_ns = self.plan.cycle_ms.0;
        let options = reserve_options(self.plan, self.options);
        let servers = reserve_servers(&guarded(self.plan));
        let reservation = Reservation::start(cycle_ns, &servers, origin_ns, options)?;
        for warning in reservation.warnings() {
            self.note(format!("{warning}."));
        }
        self.reservation = Some(reservation);
        if !self.options.idle {
            match Awake::new() {
                Ok(awake) => self.awake = Some(awake),
                Err(error) => self.note(format!(
                    "CPUs sleep between slots, and wake up late (/dev/cpu_dma_latency: {error})."
                )),
            }
        }
        self.phase = Some(phase);
        self.origins.push_back((0, origin_ns));
        // Before the threads: what is let in while they have only their slots would pile up before them.
        if let Some(shaper) = &mut self.shaper {
            shaper.shape(cycle_ns, origin_ns, self.plan);
        }
        let threads: Vec<_> = self
            .roles
            .threads()
            .iter()
            .map(|(&tid, role)| (tid, role.pid, role.callbacks[0], role.server))
            .collect();
        for (tid, pid, callback, server) in threads {
            self.assign(tid, pid, callback, server)?;
        }
        self.place_publishers()?;
        self.place_middleware();
        let now_ns = monotonic_ns();
        self.shaping = Some((Instant::now(), now_ns + SETTLE_CYCLES * cycle_ns));
        Ok(())
    }

    fn assign(
        &mut self,
        tid: u32,
        pid: u32,
        callback: usize,
        server: Option<usize>,
    ) -> Result<(), ShapeError> {
        let Some(server) = server.and_then(|s| self.plan.servers.get(s)) else {
            return Ok(());
        };
        let Some(reservation) = &self.reservation else {
            return Ok(());
        };
        match reservation.assign(tid, &server.name) {
            Ok(()) => {}
            Err(AssignError::Vanished(_)) => {
                self.roles.forget(tid);
                return Ok(());
            }
            Err(reason) => {
                return Err(ShapeError::Assign {
                    tid,
                    callback: self.name(callback).to_owned(),
                    server: server.name.clone(),
                    reason,
                });
            }
        }
        if !server.slots_ms.is_empty() && server.priority > 0 {
            // As the gates are: the first callback's executor wakes before the callback starts.
            let guarded = guarded(self.plan);
            let slots = guarded.iter().find(|s| s.name == server.name);
            if let Some(server) = slots {
                let isolation = Isolation::new(self.plan.cycle_ms.0, &server.slots_ms);
                self.isolation.insert(tid, isolation);
            }
        }
        self.placed.insert(
            tid,
            Placed {
                tid,
                pid,
                name: thread_name(pid, tid),
                place: server.name.clone(),
                job: self.name(callback).to_owned(),
            },
        );
        Ok(())
    }

    /// Design 1: the middleware's publisher threads into the servers of their outputs.
    fn place_publishers(&mut self) -> Result<(), ShapeError> {
        for output in &self.plan.outputs {
            if output.hold != Hold::PublisherThread {
                continue;
            }
            let watched = self.watcher.callbacks().iter().enumerate();
            let publishing: Vec<usize> = watched
                .filter(|(_, c)| publishes(output, c))
                .map(|(i, _)| i)
                .collect();
            let mut roles = self.roles.threads().values();
            let pid = roles
                .find(|r| publishing.iter().any(|c| r.callbacks.contains(c)))
                .map(|r| r.pid);
            let callback = publishing.first().copied();
            // One per flow controller: which of them sends what a callback publishes is not to be seen.
            let threads: Vec<(u32, u32)> = pid.map_or(Vec::new(), |pid| {
                let threads = onbeat_proc::threads(pid).into_iter();
                let is_publisher =
                    |&t: &u32| thread_name(pid, t).starts_with(middleware::PUBLISHER);
                threads.filter(is_publisher).map(|t| (pid, t)).collect()
            });
            let server = self
                .plan
                .servers
                .iter()
                .position(|s| s.name == output.server);
            let Some(callback) = callback.filter(|_| !threads.is_empty()) else {
                return Err(ShapeError::NoPublisherThread {
                    callback: output.callback.clone(),
                    server: output.server.clone(),
                });
            };
            for (pid, tid) in threads {
                // They send whatever their process publishes: several outputs have the same ones.
                if self.placed.contains_key(&tid) {
                    continue;
                }
                self.assign(tid, pid, callback, server)?;
                if let Some(placed) = self.placed.get_mut(&tid) {
                    placed.job = format!(
                        "{}: {}",
                        output.topic,
                        middleware::job(&placed.name).unwrap_or("")
                    );
                }
            }
        }
        Ok(())
    }

    /// The middleware's threads of all processes of the plan, and the shaper's: to their CPU.
    fn place_middleware(&mut self) {
        let Some(reservation) = &self.reservation else {
            return;
        };
        let mut pids = self.roles.processes();
        pids.extend(self.shaper.as_ref().map(Shaper::pid));
        let (counts, asked) = &mut self.counts;
        *asked += 1;
        for pid in pids {
            // Reading all their names each second would cost more than the dispatcher. One that came while
            // another went is found a little later.
            let count = onbeat_proc::thread_count(pid);
            if counts.insert(pid, count) == Some(count) && *asked % LOOK_EVERY != 0 {
                continue;
            }
            for tid in onbeat_proc::threads(pid) {
                let name = thread_name(pid, tid);
                let Some(job) = middleware::job(&name) else {
                    continue;
                };
                if self.placed.contains_key(&tid) || self.roles.threads().contains_key(&tid) {
                    continue;
                }
                let to = self.plan.middleware;
                // One that is gone meanwhile needs no place.
                if reservation.place(tid, to.cpu, to.priority).is_ok() {
                    self.placed.insert(
                        tid,
                        Placed {
                            tid,
                            pid,
                            name,
                            place: "middleware".into(),
                            job: job.to_owned(),
                        },
                    );
                }
            }
        }
    }

    /// Whether an application that we started, and whose shaping fails, runs on: once it was shaped it may
    /// be at work.
    fn runs_on(&self) -> bool {
        self.shaping.is_some() && !self.options.command.is_empty()
    }

    fn end(mut self) -> (Summary, Option<ShapeError>) {
        if self.stopped.is_none() {
            self.stop_shaping();
        }
        if let Some(shaper) = self.shaper.take() {
            shaper.end();
        }
        let mut verdict = match self.shaping {
            Some(_) => judge(self.plan, &self.outcomes, &self.outside_ns),
            None => Verdict::default(),
        };
        if let Some((from, Some(until))) = &self.cpu {
            for (name, share) in until.since(from) {
                verdict.figures.push(Figure {
                    name: name.into(),
                    unit: "%",
                    promised: None,
                    measured: share * 100.0,
                    kept: None,
                });
            }
        }
        let summary = Summary {
            verdict,
            outcomes: self.outcomes,
            placed: self.placed.into_values().collect(),
            stats: self.stats,
            command_status: None,
            notes: self.all_notes,
        };
        (summary, self.error)
    }
}

impl Observer for Runner<'_> {
    fn events(&mut self, events: &[Event], control: &Control<'_>) {
        if self.error.is_none() {
            if let Err(error) = self.turn(events, control) {
                if self.runs_on() {
                    self.stop_shaping();
                    self.note(format!("{error}. The application runs on, unshaped."));
                }
                self.error = Some(error);
            }
        }
    }

    fn ending(&mut self) {
        // It ends as it would without us: its threads run whenever they can, and nothing is held back.
        if self.stopped.is_none() {
            self.stop_shaping();
        }
    }

    fn progress(&mut self, _: &Progress) {
        if self.shaping.is_some() && self.stopped.is_none() {
            // Threads that came since: of the middleware, when others join.
            self.place_middleware();
        }
        let outcomes = self.outcomes[self.reported..].to_vec();
        self.reported = self.outcomes.len();
        let recent = self.outcomes.len().saturating_sub(RECENT);
        let mut latencies: Vec<u64> = self.outcomes[recent..]
            .iter()
            .map(|o| o.execution.latency_ns())
            .collect();
        latencies.sort_unstable();
        let live = Live {
            missing: match self.shaping {
                None => self.missing(),
                Some(_) => Vec::new(),
            },
            shaping: self.shaping.map(|s| s.0.elapsed()),
            cycle: outcomes
                .last()
                .zip(self.phase.as_ref())
                .map_or(0, |(o, p)| p.cycle(o.execution.start_ns).0),
            executions: self.outcomes.len() as u64,
            outcomes,
            jitter_ns: crate::verdict::jitter_ns(&latencies),
            late: self.late,
            dropped: self.dropped,
            dispatcher_p99_ns: self
                .reservation
                .as_ref()
                .map_or(0, |r| r.stats().lateness.quantile_ns(0.99)),
            notes: std::mem::take(&mut self.notes),
        };
        (self.report)(&live);
    }

    /// A trace of what was shaped: not of what ran before.
    fn is_kept(&self, event: &Event) -> bool {
        let shaped = self.shaping.is_some_and(|s| event.time_ns >= s.1);
        shaped || onbeat_trace::table::is_state(&event.kind)
    }

    fn is_over(&self) -> bool {
        let elapsed = self.shaping.map(|s| s.0.elapsed());
        (self.error.is_some() && !self.runs_on())
            || matches!((elapsed, self.options.duration), (Some(e), Some(d)) if e >= d)
    }
}

/// CPU time that was used.
#[derive(Debug, Clone, Copy)]
struct Used {
    at_ns: u64,
    /// By this process: recording, model and dispatcher.
    own_ns: u64,
    /// By the shaper, and its process.
    shaper: Option<(u32, u64)>,
}

impl Used {
    fn now(shaper: Option<&Shaper>) -> Used {
        let of_shaper = |s: &Shaper| Some((s.pid(), process_cpu_ns(s.pid())?));
        Used {
            at_ns: monotonic_ns(),
            own_ns: process_cpu_ns(std::process::id()).unwrap_or(0),
            shaper: shaper.and_then(of_shaper),
        }
    }

    /// Shares of one CPU since then.
    fn since(&self, then: &Used) -> Vec<(&'static str, f64)> {
        let elapsed = (self.at_ns - then.at_ns).max(1) as f64;
        let share = |from: u64, to: u64| to.saturating_sub(from) as f64 / elapsed;
        let mut shares = vec![("CPU of onbeat", share(then.own_ns, self.own_ns))];
        if let (Some((pid, from)), Some((same, to))) = (then.shaper, self.shaper) {
            if pid == same {
                shares.push(("CPU of the shaper", share(from, to)));
            }
        }
        shares
    }
}

/// CPU time of a process.
fn process_cpu_ns(pid: u32) -> Option<u64> {
    let mut clock = 0;
    let mut used = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both are valid for the calls; a process that is gone is an error.
    unsafe {
        if libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) != 0
            || libc::clock_gettime(clock, &mut used) != 0
        {
            return None;
        }
    }
    Some(used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64)
}

/// Does this callback publish the output? A synchroniser's is published by the subscriptions of its
/// node, whichever comes last.
fn publishes(output: &Output, callback: &str) -> bool {
    let node = |id: &str| id.split(':').next().map(str::to_owned);
    output.callback == callback
        || (is_synchroniser(&output.callback) && node(&output.callback) == node(callback))
}

/// A thread's name (untrusted); empty if it is gone.
fn thread_name(pid: u32, tid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"))
        .map(|n| n.trim_end().to_owned())
        .unwrap_or_default()
}

pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for the call; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_belongs_to_whoever_publishes_it() {
        let output = |callback: &str| Output {
            topic: "/out".into(),
            callback: callback.into(),
            node: "/join".into(),
            hold: Hold::Republish,
            held_topic: None,
            server: "delta".into(),
            earliest_ms: Ms(0),
        };
        let of_sync = output("/join:sync(/out)");
        assert!(publishes(&of_sync, "/join:subscription(/a)"));
        assert!(publishes(&of_sync, "/join:subscription(/b)"));
        assert!(!publishes(&of_sync, "/joined:subscription(/a)"));
        let of_one = output("/join:subscription(/a)");
        assert!(publishes(&of_one, "/join:subscription(/a)"));
        assert!(!publishes(&of_one, "/join:subscription(/b)"));
    }
}
