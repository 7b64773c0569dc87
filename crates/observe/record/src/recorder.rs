//! The recording itself: probes in, ring buffer out, into a trace directory.

use crate::bpf::{Kernel, KernelLoadError, LoadOptions};
use crate::decode::{Decoded, WaitSet};
use crate::late::{self, ProcessMemory};
use crate::launch::{self, LaunchError, Launched};
use crate::libraries::{Libraries, PlacementPolicy};
use crate::privilege::{self, MissingPrivilege};
use crate::probes::KERNEL_PROBES;
use crate::user::Shared;
use crate::{proc, records, user};
use libbpf_rs::Link;
use onbeat_trace::manifest::{Manifest, ProbeInfo, ProcessInfo, ThreadInfo};
use onbeat_trace::table::is_state;
use onbeat_trace::writer::{TraceCreateError, TraceWriteError, Writer, WriterOptions};
use onbeat_trace::{Event, EventKind, Name};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// What to record, and how.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// The trace directory to make.
    pub output: PathBuf,
    /// Mode of operation that the run shows.
    pub mode: String,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// Only these processes and what they start; empty: every ROS 2 process.
    pub pids: Vec<u32>,
    /// Start this command, and record it alone.
    pub command: Vec<String>,
    /// Size of the ring buffer; rounded up to a power of two.
    pub buffer_bytes: u32,
    /// Size at which a new segment file begins.
    pub segment_bytes: u64,
    /// Keep only that many segments (a flight recorder); `None`: all.
    pub max_segments: Option<usize>,
    /// How often a block is ended, so that a killed recorder loses no more than this.
    pub flush_every: Duration,
    /// Where in a function probes sit.
    pub placement: PlacementPolicy,
    /// Keep the privileges that recording itself needs no more once the probes sit: for who changes
    /// the machine while he records.
    pub keep_privileges: bool,
    /// What the command prints goes to the standard error: the standard output is ours.
    pub command_to_stderr: bool,
}

/// Looks on while it is recorded. All calls come from the thread that records.
pub trait Observer {
    /// Events that are complete, in the order of time: about four times a second those of the last
    /// 250 ms.
    fn events(&mut self, events: &[Event], control: &Control<'_>);
    /// How it goes, about once a second.
    fn progress(&mut self, progress: &Progress) {
        let _ = progress;
    }
    /// Is this event to be written?
    fn is_kept(&self, event: &Event) -> bool {
        let _ = event;
        true
    }
    /// Asked after every turn: shall the recording end?
    fn is_over(&self) -> bool {
        false
    }
    /// The command is about to be asked to end; what follows is still recorded.
    fn ending(&mut self) {}
}

/// What an [`Observer`] may do with a recording.
pub struct Control<'a> {
    kernel: &'a Kernel,
}

impl Control<'_> {
    /// Observes one more process, and what it starts from now on.
    pub fn observe(&self, pid: u32) {
        self.kernel.mark(pid);
    }
}

/// Has only progress reported.
struct Reports<F>(F);

impl<F: FnMut(&Progress)> Observer for Reports<F> {
    fn events(&mut self, _: &[Event], _: &Control<'_>) {}
    fn progress(&mut self, progress: &Progress) {
        (self.0)(progress);
    }
}

/// Default size of the ring buffer: half a minute of a busy system's events for a reader that
/// drains it four times a second.
pub const DEFAULT_BUFFER_BYTES: u32 = 16 << 20;

impl Default for RecordOptions {
    fn default() -> Self {
        let writer = WriterOptions::default();
        RecordOptions {
            output: PathBuf::from("trace"),
            mode: String::new(),
            duration: None,
            pids: Vec::new(),
            command: Vec::new(),
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            segment_bytes: writer.segment_bytes,
            max_segments: writer.max_segments,
            flush_every: Duration::from_secs(2),
            placement: PlacementPolicy::Cheapest,
            keep_privileges: false,
            command_to_stderr: false,
        }
    }
}

/// Why a recording could not be made, or ended early.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Not allowed to.
    #[error(transparent)]
    Privilege(#[from] MissingPrivilege),
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernelLoadError),
    /// A tracepoint of the kernel without which there is no recording.
    #[error("cannot attach to the kernel's {name}: {reason}: this kernel lacks the tracepoint, or its BTF does not describe it")]
    Tracepoint {
        /// Its name.
        name: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// The trace directory could not be made.
    #[error(transparent)]
    Create(#[from] TraceCreateError),
    /// Writing failed (disk full, for one): what was written before can be read.
    #[error(transparent)]
    Write(#[from] TraceWriteError),
    /// The command could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A process to be observed is not there.
    #[error("no process {0}: give the id of a running process to --pid")]
    NoProcess(u32),
    /// Signals could not be caught.
    #[error("cannot catch signals: {0}")]
    Signals(std::io::Error),
}

impl RecordError {
    /// True where this machine or user cannot record at all, whatever the options.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            RecordError::Privilege(_) | RecordError::Kernel(_) | RecordError::Tracepoint { .. }
        )
    }
}

/// How the recording goes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Progress {
    /// Since the probes were in place.
    pub elapsed: Duration,
    /// ROS 2 processes seen.
    pub processes: usize,
    /// Nodes seen.
    pub nodes: usize,
    /// Callbacks seen (by the handles they were called for).
    pub callbacks: usize,
    /// Events written.
    pub events: u64,
    /// Events per second since the last report.
    pub events_per_s: f64,
    /// Bytes written.
    pub bytes: u64,
    /// Events lost.
    pub lost: u64,
}

/// What came of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// As at its end.
    pub progress: Progress,
    /// Exit status of the recorded command: its code, or 128 plus the signal that ended it.
    pub command_status: Option<i32>,
    /// Things the user should know, a sentence each.
    pub notes: Vec<String>,
}

/// Events older than this are surely complete, so that they can be written in order.
const REORDER_NS: u64 = 5_000_000;
const POLL: Duration = Duration::from_millis(250);
const MANIFEST_EVERY: Duration = Duration::from_secs(10);
const CLOCK_EVERY: Duration = Duration::from_secs(1);

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for the call; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC: the reading with the least time between its two
/// monotonic readings wins.
fn clock_offset_ns() -> i64 {
    (0..5)
        .map(|_| {
            let before = monotonic_ns();
            let wall = clock_ns(libc::CLOCK_REALTIME);
            let after = monotonic_ns();
            (after - before, wall as i64 - ((before + after) / 2) as i64)
        })
        .min()
        .map_or(0, |(_, offset)| offset)
}

/// From when on a process is recorded.
struct Ready {
    /// Its first probes sat.
    first_ns: u64,
    /// Its run-time events count.
    from_ns: u64,
}

/// For so long the libraries of a process come one after the other. A plug-in that it loads later brings
/// probes that add to what is seen, and nothing that was seen is thrown away for them.
const GATHER_NS: u64 = 3_000_000_000;

/// A recording under way.
struct Recording {
    kernel: Kernel,
    libraries: Libraries,
    writer: Writer,
    manifest: Manifest,
    tracepoints: Vec<(ProbeInfo, Option<Link>)>,
    /// Not yet written, for events still to come that are older.
    pending: Vec<Event>,
    /// When run-time events of a process begin to count: before, only some probes sat.
    ready: HashMap<u32, Ready>,
    /// The same for all processes.
    start_ns: u64,
    callbacks: HashSet<(u32, u64)>,
    nodes: usize,
    /// Run-time and other events taken so far.
    events: u64,
    lost: Vec<Vec<u64>>,
    /// Processes to look at again: they were on the way to load ROS 2.
    revisit: Vec<(Instant, u32)>,
    /// Processes whose own files are still to be looked at.
    visit_later: BTreeSet<u32>,
    unresolved: HashMap<u32, usize>,
    command_tree: bool,
    /// The output, shared with the invoking user.
    shared: Option<Shared>,
}

impl Recording {
    fn begin(options: &RecordOptions) -> Result<Recording, RecordError> {
        privilege::check()?;
        if let Some(&pid) = options
            .pids
            .iter()
            .find(|&&pid| proc::threads(pid).is_empty())
        {
            return Err(RecordError::NoProcess(pid));
        }
        let release = proc::kernel_release();
        let buffer_bytes = options
            .buffer_bytes
            .clamp(4096, 1 << 30)
            .next_power_of_two();
        let observe_all = options.pids.is_empty() && options.command.is_empty();
        let load = LoadOptions {
            observe_all,
            stop_on_load: !options.command.is_empty(),
            buffer_bytes,
        };
        let kernel = Kernel::load(load, &release)?;
        let writer = Writer::create(
            &options.output,
            WriterOptions {
                segment_bytes: options.segment_bytes,
                max_segments: options.max_segments,
                ..Default::default()
            },
        )?;
        let shared = Shared::new(&options.output);
        let manifest = Manifest {
            mode: options.mode.clone(),
            start_realtime_ns: clock_ns(libc::CLOCK_REALTIME),
            start_monotonic_ns: monotonic_ns(),
            hostname: proc::hostname(),
            kernel: release,
            recorder_version: env!("CARGO_PKG_VERSION").into(),
            buffer_bytes: buffer_bytes.into(),
            ..Manifest::default()
        };
        let mut recording = Recording {
            libraries: Libraries::new(options.placement),
            lost: kernel.lost(),
            kernel,
            writer,
            manifest,
            tracepoints: Vec::new(),
            pending: Vec::new(),
            ready: HashMap::new(),
            start_ns: 0,
            callbacks: HashSet::new(),
            nodes: 0,
            events: 0,
            revisit: Vec::new(),
            visit_later: BTreeSet::new(),
            unresolved: HashMap::new(),
            command_tree: !options.command.is_empty(),
            shared,
        };
        recording.attach(options)?;
        Ok(recording)
    }

    fn attach(&mut self, options: &RecordOptions) -> Result<(), RecordError> {
        for &pid in &options.pids {
            self.kernel.mark(pid);
        }
        for (name, program, consequence) in KERNEL_PROBES {
            if *program == "on_waking" && self.kernel.features.delays {
                continue;
            }
            let attached = self.kernel.attach_tracepoint(program);
            let info = ProbeInfo {
                name: (*name).into(),
                library: "kernel".into(),
                symbol: (*name).into(),
                placement: "tracepoint".into(),
                attached: attached.is_ok(),
                error: attached.as_ref().err().cloned(),
                consequence: attached.is_err().then(|| (*consequence).into()),
                ..ProbeInfo::default()
            };
            if let (true, Err(reason)) = (*name == "sched_switch", &attached) {
                return Err(RecordError::Tracepoint {
                    name,
                    reason: reason.clone(),
                });
            }
            self.tracepoints.push((info, attached.ok()));
        }
        let mut pids = proc::processes();
        if options.pids.is_empty() && options.command.is_empty() {
            self.libraries.watch_loaders(&self.kernel, &pids);
            // Who starts later is not held: the probes had better sit before.
            for directory in proc::installations() {
                self.libraries.visit_installation(&self.kernel, &directory);
            }
        } else {
            self.libraries
                .watch_loaders(&self.kernel, &[std::process::id()]);
            self.libraries.watch_loaders(&self.kernel, &options.pids);
            pids.clone_from(&options.pids);
        }
        if options.command.is_empty() {
            pids.retain(|&pid| {
                self.libraries.is_traceable(pid, false) || self.libraries.has_flow(pid, false)
            });
            pids.iter().for_each(|&pid| self.kernel.mark_late(pid));
            for pid in pids {
                self.libraries.visit(&self.kernel, pid);
            }
        }
        self.start_ns = monotonic_ns();
        self.manifest.start_monotonic_ns = self.start_ns;
        self.manifest.start_realtime_ns = clock_ns(libc::CLOCK_REALTIME);
        Ok(())
    }

    /// Starts the command such that it is observed from its first instruction: the mark is
    /// handed down to children.
    fn launch(&self, options: &RecordOptions) -> Result<Launched, LaunchError> {
        let own = std::process::id();
        self.kernel.mark(own);
        let launched = launch::launch(&options.command, options.command_to_stderr);
        self.kernel.unmark(own);
        launched
    }

    /// Drains the ring buffer and writes what is old enough.
    fn turn(&mut self, timeout: Duration, observer: &mut dyn Observer) -> Result<(), RecordError> {
        let mut decoded = Vec::new();
        self.kernel.poll(timeout, &mut decoded);
        let now = monotonic_ns();
        for record in decoded {
            match record {
                Decoded::Event(event) => self.event(event),
                Decoded::Process { pid, time_ns, late } => self.process(pid, time_ns, late),
                Decoded::Thread { pid, tid, time_ns } => self.thread(pid, tid, time_ns),
                Decoded::Library {
                    pid,
                    loader,
                    stopped,
                } => self.library(pid, loader, stopped),
                Decoded::WaitSet(set) => self.wait_set(&set),
            }
        }
        let due: Vec<u32> = {
            let now = Instant::now();
            let (due, later) = std::mem::take(&mut self.revisit)
                .into_iter()
                .partition(|(at, _)| *at <= now);
            self.revisit = later;
            let due: Vec<(Instant, u32)> = due;
            due.into_iter().map(|(_, pid)| pid).collect()
        };
        for pid in due {
            self.visit_running(pid);
        }
        // After everything that is in a hurry.
        for pid in std::mem::take(&mut self.visit_later) {
            if self.libraries.has_flow(pid, true) {
                self.kernel.mark_late(pid);
            }
            let attached = self.libraries.visit_own(&self.kernel, pid);
            self.visited(pid, attached);
        }
        self.write_until(now.saturating_sub(REORDER_NS), observer)
    }

    fn write_until(
        &mut self,
        until_ns: u64,
        observer: &mut dyn Observer,
    ) -> Result<(), RecordError> {
        self.pending.sort_by_key(|e| e.time_ns);
        let ripe = self.pending.partition_point(|e| e.time_ns <= until_ns);
        let control = Control {
            kernel: &self.kernel,
        };
        observer.events(&self.pending[..ripe], &control);
        for event in self.pending.drain(..ripe) {
            if observer.is_kept(&event) {
                self.writer.push(&event)?;
            }
        }
        Ok(())
    }

    fn event(&mut self, event: Event) {
        let ready = self.ready.get(&event.pid);
        let ready_ns = ready.map_or(self.start_ns, |r| r.from_ns);
        if event.time_ns < ready_ns && !is_state(&event.kind) {
            return;
        }
        match &event.kind {
            EventKind::TimerCall { timer: handle }
            | EventKind::Take {
                rmw: handle,
                taken: true,
                ..
            }
            | EventKind::RequestTake {
                rmw: handle,
                taken: true,
                ..
            }
            | EventKind::ResponseTake {
                rmw: handle,
                taken: true,
                ..
            } => {
                self.callbacks.insert((event.pid, *handle));
            }
            EventKind::NodeInit {
                name, namespace, ..
            } => {
                self.node(event.pid, join_name(namespace, name));
            }
            EventKind::NodeFound { name, .. } => self.node(event.pid, name.to_string()),
            EventKind::Exit if event.pid == event.tid => {
                self.ready.remove(&event.pid);
            }
            _ => {}
        }
        self.events += 1;
        self.pending.push(event);
    }

    fn node(&mut self, pid: u32, name: String) {
        self.nodes += 1;
        if let Some(process) = self
            .manifest
            .processes
            .iter_mut()
            .rev()
            .find(|p| p.pid == pid)
        {
            if !process.nodes.contains(&name) {
                process.nodes.push(name);
            }
        }
    }

    fn own(&mut self, time_ns: u64, pid: u32, tid: u32, kind: EventKind) {
        self.pending.push(Event {
            time_ns,
            cpu: 0,
            pid,
            tid,
            kind,
        });
    }

    fn process(&mut self, pid: u32, time_ns: u64, late: bool) {
        let found = self.libraries.visit_ros(&self.kernel, pid);
        self.visited(pid, found.attached);
        self.visit_later.insert(pid);
        let distribution =
            distribution_name(found.path.as_deref(), found.distribution.map(|d| d.name()));
        let command = proc::command_line(pid);
        if !distribution.is_empty() && !self.manifest.distributions.contains(&distribution) {
            self.manifest.distributions.push(distribution.clone());
            self.manifest.distributions.sort();
        }
        let rmw = found.rmw.unwrap_or_default();
        self.manifest.processes.push(ProcessInfo {
            pid,
            command: command.clone(),
            distribution: distribution.clone(),
            rmw: rmw.clone(),
            late,
            nodes: Vec::new(),
        });
        let kind = EventKind::Process {
            command: command.as_str().into(),
            distribution: distribution.into(),
            rmw: rmw.into(),
            late,
        };
        self.own(time_ns, pid, pid, kind);
        if late {
            if let Some(name) = late::node_of_command_line(&command) {
                self.node(pid, name.clone());
                self.own(
                    time_ns,
                    pid,
                    pid,
                    EventKind::NodeFound {
                        node: 0,
                        name: name.into(),
                    },
                );
            }
        }
    }

    fn thread(&mut self, pid: u32, tid: u32, time_ns: u64) {
        let Some(facts) = proc::thread_facts(pid, tid) else {
            return;
        };
        self.manifest.threads.push(ThreadInfo {
            pid,
            tid,
            comm: facts.comm.clone(),
            policy: facts.policy,
            priority: facts.priority,
            cpus: facts.cpus,
        });
        let comm: Name = facts.comm.into();
        let kind = EventKind::Thread {
            comm,
            policy: facts.policy,
            priority: facts.priority,
            cpus: facts.cpus,
        };
        self.own(time_ns, pid, tid, kind);
    }

    /// Probes the ROS 2 libraries that a process has loaded while it runs on, and remembers to look
    /// at the rest.
    fn visit_running(&mut self, pid: u32) {
        if self.libraries.is_traceable(pid, true) {
            self.kernel.mark_late(pid);
        }
        let attached = self.libraries.visit_ros(&self.kernel, pid).attached;
        self.visited(pid, attached);
        self.visit_later.insert(pid);
    }

    fn visited(&mut self, pid: u32, attached: usize) {
        if attached > 0 {
            let now = monotonic_ns();
            let first = Ready {
                first_ns: now,
                from_ns: now,
            };
            let ready = self.ready.entry(pid).or_insert(first);
            if now - ready.first_ns < GATHER_NS {
                ready.from_ns = now;
            }
        }
    }

    fn library(&mut self, pid: u32, loader: bool, stopped: bool) {
        if loader {
            self.libraries.watch_loaders(&self.kernel, &[pid]);
        }
        if stopped {
            let attached = self.libraries.visit(&self.kernel, pid).attached;
            self.visited(pid, attached);
            // SAFETY: plain system call; the process is of the tree that we started.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGCONT) };
            return;
        }
        self.visit_running(pid);
        if loader {
            // It runs on while we look: it may load ROS 2 before its linker is probed.
            let now = Instant::now();
            self.revisit
                .extend([50, 500, 2000].map(|ms| (now + Duration::from_millis(ms), pid)));
        }
    }

    fn wait_set(&mut self, set: &WaitSet) {
        let (events, unresolved) = late::explore(&ProcessMemory { pid: set.pid }, set);
        *self.unresolved.entry(set.pid).or_default() += unresolved;
        for kind in events {
            if let EventKind::NodeFound { name, .. } = &kind {
                let name = name.to_string();
                self.node(set.pid, name);
            }
            self.own(set.time_ns, set.pid, set.tid, kind);
        }
    }

    /// Reports new losses as events, and keeps the sums.
    fn count_losses(&mut self) {
        let lost = self.kernel.lost();
        let now = monotonic_ns();
        for (kind, cpus) in lost.iter().enumerate() {
            for (cpu, &count) in cpus.iter().enumerate() {
                let before = self
                    .lost
                    .get(kind)
                    .and_then(|c| c.get(cpu))
                    .copied()
                    .unwrap_or(0);
                if count > before {
                    let probe = records::name(kind as u16);
                    self.pending.push(Event {
                        time_ns: now,
                        cpu: cpu as u16,
                        pid: 0,
                        tid: 0,
                        kind: EventKind::Lost {
                            probe: probe.into(),
                            count: count - before,
                        },
                    });
                    *self
                        .manifest
                        .lost
                        .entry(probe.into())
                        .or_default()
                        .entry(cpu as u16)
                        .or_default() = count;
                }
            }
        }
        self.lost = lost;
    }

    fn progress(&self) -> Progress {
        Progress {
            elapsed: Duration::from_nanos(monotonic_ns().saturating_sub(self.start_ns)),
            processes: self.manifest.processes.len(),
            nodes: self.nodes,
            callbacks: self.callbacks.len(),
            events: self.events,
            events_per_s: 0.0,
            bytes: self.writer.bytes_written(),
            lost: self.lost.iter().flatten().sum(),
        }
    }

    fn update_manifest(&mut self) {
        self.manifest.duration_ns = monotonic_ns().saturating_sub(self.start_ns);
        self.manifest.probes = self.libraries.report(&self.kernel);
        self.manifest
            .probes
            .extend(self.tracepoints.iter().map(|(info, _)| info.clone()));
        self.manifest.coverage = coverage(&self.manifest.probes);
        self.manifest.not_recovered = self.not_recovered();
    }

    fn not_recovered(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        // Tasks of onbeat-flow tell their names and periods whenever they are asked.
        let ros = |p: &&ProcessInfo| p.late && !p.distribution.is_empty();
        for process in self.manifest.processes.iter().filter(ros) {
            let who = format!("process {} ({})", process.pid, short(&process.command));
            if process.nodes.is_empty() {
                sentences.push(format!(
                    "{who} ran before the recording: its nodes' names are not known."
                ));
            } else if process.nodes.len() > 1 {
                sentences.push(format!(
                    "{who} ran before the recording: which of its {} nodes an endpoint belongs to is not known.",
                    process.nodes.len()
                ));
            }
            sentences.push(format!(
                "{who} ran before the recording: its timers' periods are taken from their calls."
            ));
            if let Some(count) = self.unresolved.get(&process.pid).filter(|&&n| n > 0) {
                sentences.push(format!(
                    "{who}: {count} endpoints of its wait sets could not be named."
                ));
            }
        }
        sentences
    }
}

/// Full name of a node.
fn join_name(namespace: &str, name: &str) -> String {
    let namespace = namespace.trim_matches('/');
    if namespace.is_empty() {
        format!("/{name}")
    } else {
        format!("/{namespace}/{name}")
    }
}

/// A distribution's own name where it is installed as usual, else its ABI's generation.
fn distribution_name(path: Option<&str>, generation: Option<&str>) -> String {
    path.and_then(|p| p.split("/opt/ros/").nth(1))
        .and_then(|rest| rest.split('/').next())
        .or(generation)
        .unwrap_or_default()
        .to_owned()
}

fn short(command: &str) -> String {
    let mut text: String = command.chars().take(60).collect();
    if text.len() < command.len() {
        text.push('…');
    }
    text
}

/// What is missing in the model because of probes that could not be attached.
fn coverage(probes: &[ProbeInfo]) -> Vec<String> {
    let mut by_library: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for probe in probes.iter().filter(|p| !p.attached) {
        let consequence = probe
            .consequence
            .as_deref()
            .unwrap_or("unknown consequences");
        by_library
            .entry((&probe.library, consequence))
            .or_default()
            .push(&probe.name);
    }
    by_library
        .into_iter()
        .map(|((library, consequence), mut names)| {
            names.dedup();
            format!(
                "{library}: no probe on {}: {consequence}.",
                names.join(", ")
            )
        })
        .collect()
}

/// Records until the duration is over, a signal comes, or the command ends. `report` is called
/// about once a second.
pub fn record(
    options: &RecordOptions,
    report: impl FnMut(&Progress),
) -> Result<Summary, RecordError> {
    record_observed(options, &mut Reports(report))
}

/// The same; what is recorded is shown to `observer` too, who may end it.
pub fn record_observed(
    options: &RecordOptions,
    observer: &mut dyn Observer,
) -> Result<Summary, RecordError> {
    let interrupt = Arc::new(AtomicBool::new(false));
    let terminate = Arc::new(AtomicBool::new(false));
    let mut recording = Recording::begin(options)?;
    for (signal, flag) in [
        (libc::SIGINT, &interrupt),
        (libc::SIGTERM, &terminate),
        (libc::SIGHUP, &terminate),
    ] {
        signal_hook::flag::register(signal, Arc::clone(flag)).map_err(RecordError::Signals)?;
    }
    let mut command = match options.command.is_empty() {
        true => None,
        false => Some(recording.launch(options)?),
    };
    if !options.keep_privileges {
        privilege::drop_unneeded(Libraries::needs_admin(&recording.kernel));
    }

    let begin = Instant::now();
    let mut status = None;
    let mut stopping: Option<(Instant, u32)> = None;
    let (mut next_report, mut next_flush, mut next_manifest, mut next_clock) = (
        begin + CLOCK_EVERY,
        begin + options.flush_every,
        begin,
        begin,
    );
    let mut last = Progress::default();
    let result = loop {
        if let Err(error) = recording.turn(POLL, observer) {
            break Err(error);
        }
        let now = Instant::now();
        if now >= next_clock {
            next_clock = now + CLOCK_EVERY;
            let offset = EventKind::ClockOffset {
                realtime_minus_monotonic_ns: clock_offset_ns(),
            };
            recording.own(monotonic_ns(), 0, 0, offset);
            recording.count_losses();
        }
        if now >= next_report {
            next_report = now + CLOCK_EVERY;
            let mut progress = recording.progress();
            let seconds = (progress.elapsed - last.elapsed).as_secs_f64();
            progress.events_per_s = (progress.events - last.events) as f64 / seconds.max(1e-9);
            last = progress;
            observer.progress(&progress);
        }
        if now >= next_flush {
            next_flush = now + options.flush_every;
            if let Err(error) = recording.writer.flush() {
                break Err(error.into());
            }
        }
        if now >= next_manifest {
            next_manifest = now + MANIFEST_EVERY;
            recording.update_manifest();
            if let Err(error) = recording.writer.write_manifest(&recording.manifest) {
                break Err(error.into());
            }
        }
        let over = observer.is_over() || options.duration.is_some_and(|d| begin.elapsed() >= d);
        let (interrupted, terminated) = (
            interrupt.load(Ordering::Relaxed),
            terminate.load(Ordering::Relaxed),
        );
        match &mut command {
            None if over || interrupted || terminated => break Ok(()),
            None => {}
            Some(launched) => {
                if let Ok(Some(ended)) = launched.child.try_wait() {
                    use std::os::unix::process::ExitStatusExt;
                    status = ended.code().or_else(|| ended.signal().map(|s| 128 + s));
                    break Ok(());
                }
                if over || interrupted || terminated {
                    if stopping.is_none() {
                        observer.ending();
                    }
                    stop_command(launched, &mut stopping, interrupted && !terminated);
                }
            }
        }
    };
    // Whatever was held goes on, also when writing failed.
    if let (true, Some(launched)) = (recording.command_tree, &command) {
        for pid in proc::tree(launched.child.id()) {
            // SAFETY: plain system call; continuing a process that runs does nothing.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGCONT) };
        }
    }
    result?;
    recording.finish(status, &options.output, observer)
}

/// Asks the command to end, more firmly as time goes by: SIGINT, SIGTERM, SIGKILL.
fn stop_command(launched: &Launched, stopping: &mut Option<(Instant, u32)>, from_terminal: bool) {
    let pid = launched.child.id() as libc::pid_t;
    // SAFETY: plain system calls.
    let in_foreground = unsafe { libc::tcgetpgrp(0) == libc::getpgrp() };
    let send = |signal| {
        // SAFETY: plain system call on our child, which has not been waited for.
        unsafe { libc::kill(pid, signal) };
    };
    match stopping {
        None => {
            // The terminal has sent its Ctrl-C to the command as well.
            if !(from_terminal && in_foreground) {
                send(libc::SIGINT);
            }
            *stopping = Some((Instant::now(), 0));
        }
        Some((since, step)) => {
            if *step == 0 && since.elapsed() > Duration::from_secs(10) {
                *step = 1;
                send(libc::SIGTERM);
            } else if *step == 1 && since.elapsed() > Duration::from_secs(15) {
                *step = 2;
                send(libc::SIGKILL);
            }
        }
    }
}

impl Recording {
    fn finish(
        mut self,
        command_status: Option<i32>,
        output: &std::path::Path,
        observer: &mut dyn Observer,
    ) -> Result<Summary, RecordError> {
        self.turn(Duration::ZERO, observer)?;
        self.count_losses();
        let offset = EventKind::ClockOffset {
            realtime_minus_monotonic_ns: clock_offset_ns(),
        };
        self.own(monotonic_ns(), 0, 0, offset);
        self.write_until(u64::MAX, observer)?;
        self.update_manifest();
        let mut progress = self.progress();
        progress.events_per_s = progress.events as f64 / progress.elapsed.as_secs_f64().max(1e-9);
        let mut notes = self.manifest.coverage.clone();
        notes.extend(self.manifest.not_recovered.iter().cloned());
        if progress.lost > 0 {
            notes.push(format!(
                "{} events were lost because the ring buffer was full: record with a larger --buffer than {} MiB.",
                progress.lost,
                self.manifest.buffer_bytes >> 20
            ));
        }
        let Recording {
            writer,
            manifest,
            shared,
            ..
        } = self;
        writer.finish(manifest)?;
        if let Ok(files) = std::fs::read_dir(output) {
            files.flatten().for_each(|file| user::give_to(&file.path()));
        }
        drop(shared);
        Ok(Summary {
            progress,
            command_status,
            notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_as_ros_does() {
        assert_eq!(join_name("/", "a"), "/a");
        assert_eq!(join_name("/x/y", "a"), "/x/y/a");
        assert_eq!(join_name("", "a"), "/a");
    }

    #[test]
    fn distributions_are_named_by_their_place_first() {
        assert_eq!(
            distribution_name(
                Some("/opt/ros/rolling/lib/libtracetools.so"),
                Some("kilted")
            ),
            "rolling"
        );
        assert_eq!(
            distribution_name(Some("/home/u/env/lib/libtracetools.so"), Some("jazzy")),
            "jazzy"
        );
        assert_eq!(distribution_name(None, None), "");
    }

    #[test]
    fn missing_probes_are_told_with_their_consequence() {
        let probe = |name: &str, attached| ProbeInfo {
            name: name.into(),
            library: "/l/librcl.so".into(),
            attached,
            consequence: (!attached).then(|| "brackets are coarse".into()),
            ..ProbeInfo::default()
        };
        let sentences = coverage(&[
            probe("rcl_wait", false),
            probe("rcl_timer_call", true),
            probe("rcl_x", false),
        ]);
        assert_eq!(
            sentences,
            ["/l/librcl.so: no probe on rcl_wait, rcl_x: brackets are coarse."]
        );
    }

    #[test]
    fn the_clock_offset_is_the_wall_clocks_lead() {
        let offset = clock_offset_ns();
        let direct = clock_ns(libc::CLOCK_REALTIME) as i64 - monotonic_ns() as i64;
        assert!((offset - direct).abs() < 1_000_000_000);
    }
}
