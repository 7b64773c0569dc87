//! Records with BPF programs: attaches probes, takes records, and acts on each record.

use super::crowd::Crowd;
use super::log::{Described, Log};
use super::losses::Losses;
use super::observer::{Control, Observer, Progress, Summary};
use super::options::{RecordOptions, Target};
use super::output::REORDER_NS;
use super::readiness::Readiness;
use super::session::Session;
use super::threads::AllThreads;
use super::tracepoints::Tracepoints;
use super::RecordError;
use crate::command::{CommandLibrary, CommandStartError, Observed, RecordedCommand};
use crate::decode::{Decoded, WaitSet};
use crate::descriptors;
use crate::kernel::{Kernel, KernelLoadError, LoadOptions, Sockets, Types};
use crate::late::{self, LateProcesses, ProcessMemory};
use crate::libraries::{self, Libraries};
use crate::limits::Border;
use crate::privilege::{self, Needs};
use crate::records::{self, DDS_NODE};
use onbeat_time::clock::{monotonic_ns, realtime_offset_ns};
use onbeat_trace::manifest::Means;
use onbeat_trace::{Event, EventKind};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The times from the first probe on a process's dynamic linker until onbeat looks for libraries of
/// the process again. A process may load ROS 2 unnoticed if it runs while onbeat places this probe.
const VISIT_AGAIN: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(500),
    Duration::from_millis(2000),
];

const SEARCH: Duration = Duration::from_secs(2);
const EXPLORE: Duration = Duration::from_millis(500);

pub struct Recording {
    kernel: Kernel,
    tracepoints: Tracepoints,
    libraries: Libraries,
    log: Log,
    readiness: Readiness,
    losses: Losses,
    late: LateProcesses,
    visit_again: Vec<(Instant, u32)>,
    visit_own: BTreeSet<u32>,
    keep_privileges: bool,
    crowd: Crowd,
    border: Border,
    all_threads: Option<AllThreads>,
    /// `None` if this kernel does not show whose sockets drop datagrams.
    sockets: Option<Sockets>,
    /// Memory for the records that one call of `turn` takes. It is empty between calls.
    decoded: Vec<Decoded>,
}

/// The largest number of records whose memory is kept from one call of `turn` to the next.
const DECODED_ROOM_MAX: usize = 1 << 14;

impl Recording {
    /// Loads the BPF programs, makes the trace directory, and attaches the probes that can be
    /// attached before the target runs.
    pub fn begin(options: &RecordOptions) -> Result<Recording, RecordError> {
        // Still with the user's rights only.
        let types = Types::open(options.btf.as_deref()).map_err(KernelLoadError::from)?;
        privilege::use_permitted()?;
        if onbeat_proc::system::is_in_pid_namespace() {
            return Err(RecordError::PidNamespace);
        }
        if let Target::Command { words, .. } = &options.target {
            RecordedCommand::check(words)?;
        }
        descriptors::raise();
        let mut named = options.target.named().iter();
        if let Some(&pid) = named.find(|&&pid| onbeat_proc::threads(pid).is_empty()) {
            return Err(RecordError::NoProcess(pid));
        }
        let border = Border::new(&options.limits)?;
        let buffer_bytes = options
            .buffer_bytes
            .clamp(4096, 1 << 30)
            .next_power_of_two();
        let load = LoadOptions {
            observe_all: options.target == Target::Everything,
            stop_on_load: matches!(options.target, Target::Command { .. }),
            all_threads: options.all_threads,
            lineage: options.lineage,
            buffer_bytes,
        };
        let kernel = Kernel::load(load, &onbeat_proc::system::kernel_release(), &types)?;
        // The recorder can choose another way only before the command runs.
        if options.is_either() {
            if let Some(why) = Libraries::refusal(&kernel) {
                return Err(RecordError::Unprobed(why));
            }
        }
        let log = Log::create(options, buffer_bytes, Means::BPF)?;
        let mut losses = Losses::default();
        losses.update(kernel.lost());
        options
            .target
            .named()
            .iter()
            .for_each(|&pid| kernel.mark(pid));
        let all_threads = options.all_threads.then(|| AllThreads::begin(&kernel));
        let mut recording = Recording {
            all_threads: all_threads.transpose()?,
            sockets: kernel.sockets(),
            decoded: Vec::new(),
            tracepoints: Tracepoints::attach(&kernel)?,
            libraries: Libraries::new(options.placement),
            kernel,
            log,
            readiness: Readiness::default(),
            losses,
            late: LateProcesses::default(),
            visit_again: Vec::new(),
            visit_own: BTreeSet::new(),
            keep_privileges: options.keep_privileges,
            crowd: Crowd::default(),
            border,
        };
        // Privileges go before the first file of another process is opened.
        recording.drop_privileges(matches!(options.target, Target::Command { .. }));
        recording.probe_target(&options.target);
        let start_ns = recording.log.start();
        recording.readiness.start(start_ns);
        Ok(recording)
    }

    fn probe_target(&mut self, target: &Target) {
        let own = std::process::id();
        match target {
            Target::Everything => {
                let pids = onbeat_proc::processes();
                self.libraries.watch_loaders(&self.kernel, &pids);
                // Processes that start later are not stopped, so the libraries are probed before
                // anyone loads them.
                for directory in libraries::installations() {
                    self.libraries.visit_installation(&self.kernel, &directory);
                }
                self.probe_running(pids);
            }
            Target::Processes(named) => {
                let pids = self.mark_descendants(named);
                self.libraries.watch_loaders(&self.kernel, &[own]);
                self.libraries.watch_loaders(&self.kernel, &pids);
                self.probe_running(pids);
            }
            Target::Command { .. } => self.libraries.watch_loaders(&self.kernel, &[own]),
        }
    }

    /// Marks the processes that the processes in `named` have started: onbeat observes marked
    /// processes and the children that they start later. Leaves out this process and its children.
    /// Returns `named` and all processes that were marked.
    fn mark_descendants(&self, named: &[u32]) -> Vec<u32> {
        let own = onbeat_proc::tree(std::process::id());
        let mut marked = named.to_vec();
        // The kernel marks the children of marked processes from now on. A process that was forked
        // between the list and its parent's mark is in the next list.
        for _ in 0..4 {
            let trees = named.iter().flat_map(|&pid| onbeat_proc::tree(pid));
            let before = marked.len();
            for pid in trees {
                if !own.contains(&pid) && !marked.contains(&pid) {
                    self.kernel.mark(pid);
                    marked.push(pid);
                }
            }
            if marked.len() == before {
                break;
            }
        }
        marked
    }

    /// Probes processes that already run. All of them are marked late before the first probe is
    /// attached.
    fn probe_running(&mut self, mut pids: Vec<u32>) {
        pids.retain(|&pid| {
            self.libraries.is_traceable(pid, false) || self.libraries.has_flow(pid, false)
        });
        pids.retain(|&pid| self.is_inside(pid, true));
        pids.iter().for_each(|&pid| self.kernel.mark_late(pid));
        for pid in pids {
            self.libraries.visit(&self.kernel, pid);
        }
    }

    /// Returns whether a process is within the user's limits. A process outside of the limits is
    /// not recorded, but counted if it uses ROS 2.
    fn is_inside(&mut self, pid: u32, uses_ros: bool) -> bool {
        let libraries = &mut self.libraries;
        let counts = || uses_ros || libraries.is_traceable(pid, false);
        let is_inside = self.border.admits(pid, counts);
        if !is_inside {
            self.kernel.leave_alone(pid);
        }
        is_inside
    }

    fn search_late(&mut self, is_last: bool) {
        for pid in self.late.due(is_last) {
            let Some(mut process) = self.late.take(pid) else {
                continue;
            };
            let searched = self.libraries.ask(pid, |reader| {
                let memory = ProcessMemory::of(pid, reader, SEARCH);
                memory.answered(process.search(&memory))
            });
            // The process is forgotten if it does not answer, or if searches for its user took too
            // long.
            let Some(searched) = searched else {
                continue;
            };
            self.late.searched(pid, process);
            if searched.is_cut {
                self.log.manifest.not_searched();
                continue;
            }
            self.log.manifest.unowned(pid, searched.unowned);
            let now_ns = monotonic_ns();
            for kind in searched.events {
                if let EventKind::NodeFound { name, .. } = &kind {
                    self.log.manifest.node(pid, name.to_string());
                }
                self.log.output.push_own(now_ns, pid, pid, kind);
            }
        }
    }

    fn write_until(
        &mut self,
        until_ns: u64,
        observer: &mut dyn Observer,
    ) -> Result<(), RecordError> {
        let control = Control {
            kernel: Some(&self.kernel),
        };
        self.log.write_until(until_ns, &control, observer)
    }

    fn handle(&mut self, record: Decoded) {
        match record {
            Decoded::Event(event) if self.border.leaves_out(&event) => {}
            Decoded::Event(event) => self.event(event),
            Decoded::Process { pid, time_ns, late } => self.process(pid, time_ns, late),
            Decoded::Thread { pid, .. } if self.border.is_outside(pid) => {}
            Decoded::Thread { pid, tid, time_ns } => self.log.thread(pid, tid, time_ns),
            Decoded::Library {
                pid,
                loader,
                stopped,
            } => self.library(pid, loader, stopped),
            Decoded::Listener {
                pid,
                function,
                fast,
                stopped,
            } => self.listener(pid, (function, fast), stopped),
            Decoded::Followed { pid } => {
                self.kernel.suspended().resume(pid);
            }
            // Only the preloaded library makes this record.
            Decoded::CpuClock { .. } => {}
            Decoded::UdpDrop {
                time_ns,
                cpu,
                socket,
                inode,
                port,
                count,
            } => {
                let sockets = self.sockets.as_mut();
                let owner = sockets.and_then(|sockets| sockets.owner(socket, inode));
                if let Some(pid) = owner {
                    let kind = EventKind::SocketDrop {
                        port,
                        count: count.into(),
                    };
                    self.event(Event {
                        time_ns,
                        cpu,
                        pid,
                        tid: pid,
                        kind,
                    });
                }
            }
            Decoded::WaitSet(set) if self.border.is_outside(set.pid) => {}
            Decoded::WaitSet(set) => self.wait_set(&set),
        }
    }

    fn event(&mut self, event: Event) {
        if !self.readiness.counts(&event) {
            return;
        }
        if event.kind == EventKind::Exit && event.pid == event.tid {
            self.readiness.forget(event.pid);
            self.late.forget(event.pid);
            self.libraries.forget_listeners(event.pid);
            if let Some(threads) = &mut self.all_threads {
                threads.forget(event.pid);
            }
        }
        if matches!(event.kind, EventKind::Exec { .. }) {
            self.libraries.forget_listeners(event.pid);
        }
        if let EventKind::EndpointFound {
            endpoint, rcl, rmw, ..
        } = event.kind
        {
            self.late.endpoint(event.pid, endpoint, rcl, rmw);
        }
        if is_unnamed(&event.kind) {
            self.log.manifest.unnamed_topic(event.pid);
            return;
        }
        match event.kind {
            EventKind::IntraPublish { publisher, .. } => self.late_publisher(&event, publisher),
            EventKind::TimerInit { timer, .. } => self.late.timer_made(event.pid, timer),
            EventKind::TimerCall { timer } => {
                self.late_timer(event.time_ns, event.pid, event.tid, timer);
            }
            _ => {}
        }
        self.log.event(event);
    }

    /// Finds the rmw handle of a publisher whose messages stay in its process (intra-process).
    /// Other events show this handle only if another process takes the topic.
    fn late_publisher(&mut self, event: &Event, publisher: u64) {
        if !self.late.is_new_publisher(event.pid, publisher) {
            return;
        }
        let found = self.libraries.ask(event.pid, |reader| {
            let memory = ProcessMemory::of(event.pid, reader, EXPLORE);
            memory.answered(self.late.publisher(event.pid, publisher, &memory))
        });
        if let Some(found) = found.flatten() {
            self.log
                .output
                .push_own(event.time_ns, event.pid, event.tid, found);
        }
    }

    fn late_timer(&mut self, time_ns: u64, pid: u32, tid: u32, timer: u64) {
        if !self.late.is_new_timer(pid, timer) {
            return;
        }
        let found = self.libraries.ask(pid, |reader| {
            let memory = ProcessMemory::of(pid, reader, EXPLORE);
            let steady_ns = monotonic_ns();
            let system_ns = steady_ns.saturating_add_signed(realtime_offset_ns());
            let now = late::Now {
                steady_ns,
                system_ns,
            };
            memory.answered(late::read_timer(&memory, timer, now))
        });
        match found.flatten() {
            Some(events) => {
                for kind in events {
                    self.log.output.push_own(time_ns, pid, tid, kind);
                }
            }
            None => self.log.manifest.unread_timer(pid),
        }
    }

    fn process(&mut self, pid: u32, time_ns: u64, late: bool) {
        if !self.is_inside(pid, true) {
            return;
        }
        let found = self.libraries.visit_ros(&self.kernel, pid);
        self.visited(pid, found.attached);
        self.visit_own.insert(pid);
        self.log
            .process((pid, time_ns, late), found, &mut self.libraries);
        if let Some(threads) = &mut self.all_threads {
            threads.add_process(&self.kernel, pid, &mut self.log);
        }
        if late {
            self.late.begin(pid);
        }
    }

    fn library(&mut self, pid: u32, loader: bool, stopped: bool) {
        if loader {
            self.libraries.watch_loaders(&self.kernel, &[pid]);
        }
        // No process is suspended under limits, because limits apply only to running processes.
        if !stopped && !self.is_inside(pid, false) {
            return;
        }
        if stopped {
            let attached = self.libraries.visit(&self.kernel, pid).attached;
            self.visited(pid, attached);
            if self.kernel.suspended().resume(pid) {
                return;
            }
            // The process was resumed in the meantime.
        }
        self.visit_running(pid);
        if loader {
            let now = Instant::now();
            let visits = VISIT_AGAIN.map(|after| (now + after, pid));
            self.visit_again.extend(visits);
        }
    }

    /// Probes the listener function of a process that uses DDS without ROS 2. If `stopped` is true,
    /// the process is suspended until the function is probed.
    fn listener(&mut self, pid: u32, (function, fast): (u64, bool), stopped: bool) {
        if stopped || self.is_inside(pid, true) {
            let libraries = &mut self.libraries;
            let attached = libraries.visit_listener(&self.kernel, pid, function, fast);
            self.visited(pid, attached);
        }
        if stopped {
            self.kernel.suspended().resume(pid);
        }
    }

    /// Probes the ROS 2 libraries that a running process has loaded. The process's other files are
    /// probed later, when nothing is urgent.
    fn visit_running(&mut self, pid: u32) {
        if self.libraries.is_traceable(pid, true) {
            self.kernel.mark_late(pid);
        }
        let attached = self.libraries.visit_ros(&self.kernel, pid).attached;
        self.visited(pid, attached);
        self.visit_own.insert(pid);
    }

    fn visited(&mut self, pid: u32, attached: usize) {
        if attached > 0 {
            self.readiness.note_attached(pid, monotonic_ns());
        }
    }

    fn wait_set(&mut self, set: &WaitSet) {
        let handles = set.subscriptions.len() + set.clients.len() + set.services.len();
        let explored = self.libraries.ask(set.pid, |reader| {
            let memory = ProcessMemory::of(set.pid, reader, EXPLORE);
            memory.answered(late::explore(&memory, set))
        });
        let (events, unresolved) = explored.unwrap_or((Vec::new(), handles));
        self.log.manifest.unresolved(set.pid, unresolved);
        for kind in events {
            if let EventKind::NodeFound { name, .. } = &kind {
                self.log.manifest.node(set.pid, name.to_string());
            }
            if let EventKind::EndpointFound {
                endpoint, rcl, rmw, ..
            } = kind
            {
                self.late.endpoint(set.pid, endpoint, rcl, rmw);
            }
            self.log
                .output
                .push_own(set.time_ns, set.pid, set.tid, kind);
        }
        for &timer in &set.timers {
            self.late_timer(set.time_ns, set.pid, set.tid, timer);
        }
    }
}

/// Returns whether an event creates an endpoint with an unknown topic in a process that uses DDS
/// without ROS 2. Without topics, the recording does not show which endpoints are connected.
fn is_unnamed(event: &EventKind) -> bool {
    match event {
        EventKind::PublisherInit { node, topic, .. }
        | EventKind::SubscriptionInit { node, topic, .. } => {
            *node == DDS_NODE as u64 && topic.is_empty()
        }
        _ => false,
    }
}

impl Session for Recording {
    fn start_command(
        &mut self,
        words: &[String],
        to_stderr: bool,
        library: Option<&CommandLibrary>,
    ) -> Result<RecordedCommand, CommandStartError> {
        let own = std::process::id();
        self.kernel.mark(own);
        let command = RecordedCommand::start(
            words,
            to_stderr,
            Observed::Suspended(self.kernel.suspended(), library),
        );
        self.kernel.unmark(own);
        command
    }

    fn drop_privileges(&self, needs_start: bool) {
        if !self.keep_privileges {
            privilege::drop_unneeded(Needs {
                admin: Libraries::needs_admin(&self.kernel),
                command: needs_start,
            });
        }
    }

    fn turn(
        &mut self,
        timeout: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Option<u64>, RecordError> {
        let mut decoded = std::mem::take(&mut self.decoded);
        let more = self.kernel.poll(timeout, &mut decoded);
        let newest_ns = decoded.iter().rev().find_map(Decoded::time_ns);
        self.crowd.count(&decoded);
        let now_ns = monotonic_ns();
        for record in decoded.drain(..) {
            self.handle(record);
        }
        // A burst shall not hold its memory for ever.
        if decoded.capacity() <= DECODED_ROOM_MAX {
            self.decoded = decoded;
        }
        let now = Instant::now();
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.visit_again)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.visit_again = later;
        for (_, pid) in due {
            self.visit_running(pid);
        }
        // Files of the processes themselves come after everything urgent.
        for pid in std::mem::take(&mut self.visit_own) {
            if self.libraries.has_flow(pid, true) {
                self.kernel.mark_late(pid);
            }
            let attached = self.libraries.visit_own(&self.kernel, pid);
            self.visited(pid, attached);
        }
        self.search_late(false);
        if let Some(threads) = &mut self.all_threads {
            threads.record_names(&mut self.log, false);
        }
        self.write_until(now_ns.saturating_sub(REORDER_NS), observer)?;
        Ok(newest_ns.filter(|_| more))
    }

    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn count_losses(&mut self) {
        for loss in self.losses.update(self.kernel.lost()) {
            let counts = (loss.new, loss.total);
            self.log.lost(records::name(loss.kind), loss.cpu, counts);
        }
    }

    fn progress(&self) -> Progress {
        self.log.progress(&self.border, self.losses.total())
    }

    fn described(&mut self) -> Described {
        let mut probes = self.libraries.report(&self.kernel);
        probes.extend(self.tracepoints.report());
        let mut left_out = self.libraries.left_out();
        left_out.extend(self.libraries.unseen());
        left_out.extend(self.kernel.lacks());
        left_out.extend(self.crowd.sentences());
        left_out.extend(self.border.sentence());
        left_out.extend(self.all_threads.as_ref().and_then(AllThreads::sentence));
        Described { probes, left_out }
    }

    fn stop_suspending(&self) {
        self.kernel.suspended().no_more();
    }

    fn finish(
        mut self,
        command_status: Option<i32>,
        observer: &mut dyn Observer,
    ) -> Result<Summary, RecordError> {
        // This takes all records made until now, but does not follow records that keep coming.
        let end_ns = monotonic_ns();
        while self
            .turn(Duration::ZERO, observer)?
            .is_some_and(|newest_ns| newest_ns < end_ns)
        {}
        self.search_late(true);
        if let Some(threads) = &mut self.all_threads {
            threads.record_names(&mut self.log, true);
        }
        self.count_losses();
        self.log.note_clock_offset();
        self.write_until(u64::MAX, observer)?;
        let (progress, described) = (self.progress(), self.described());
        self.log.finish(command_status, progress, described)
    }
}
