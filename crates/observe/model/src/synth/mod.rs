//! Events to a model in one streaming pass, with memory bounded by what is in flight.
//!
//! Two views work hand in hand. The *threads' view* (`threads`) follows what each thread does and
//! turns it into facts: a callback began, published, sent, ended. The *data flow's view* (`flow`)
//! takes these facts in order, matches items with takes, and adds to the figures of callbacks,
//! edges and chains. A fact about which something is not decided yet (whether code after rclpy's
//! last trigger still belongs to the callback; which client sent a request) is *held* back, and
//! with it what depends on it.

mod entities;
mod events;
mod finish;
mod flow;
mod notes;
pub mod observe;
mod running_median;
mod spans;

use crate::chains::{Paths, Steps};
use crate::evidence::MEMORY;
use crate::links::Link;
use crate::schema::{Model, Run};
use entities::{HandleKind, Kind, Tie, World};
use events::{Fact, Input, Instances, Owner};
use notes::{Note, Notes};
use onbeat_trace::{EndpointKind, Event, EventKind, ExecuteKind};
use rustc_hash::FxHashMap;
use spans::{Thread, Why};

/// What to make of the events.
#[derive(Debug, Clone, PartialEq)]
pub struct SynthOptions {
    /// The recording. Its `events`, `duration_ns` and `lost` are filled in from the events where
    /// they are zero or empty.
    pub run: Run,
    /// Keep `/rosout`, `/parameter_events` and the parameter services.
    pub infrastructure: bool,
    /// Links through nodes' memories that the user states.
    pub links: Vec<Link>,
    /// Topics at which chains begin: what is taken there comes from a source outside, whoever publishes
    /// it.
    pub inputs: Vec<String>,
    /// The beginning of the recording is gone but for what describes the system: it lasts from its first
    /// other event on.
    pub shortened: bool,
    /// Ids as another pass over the same events found them at its end, from [`Synth::into_ids`]: links are
    /// tied by these. Without them, by what is known when a callback first runs, which for a timer that
    /// was made before the recording is not its period yet.
    pub ids: Vec<Option<String>>,
}

impl SynthOptions {
    /// Defaults for a run.
    pub fn new(run: Run) -> Self {
        SynthOptions {
            run,
            infrastructure: false,
            links: Vec::new(),
            inputs: Vec::new(),
            shortened: false,
            ids: Vec::new(),
        }
    }
}

/// Makes a model of one recording from its events, in time order.
#[derive(Debug, Clone)]
pub struct Synth {
    options: SynthOptions,
    world: World,
    threads: Vec<Thread>,
    thread_of: FxHashMap<u32, u32>,
    free_threads: Vec<u32>,
    instances: Instances,
    held: flow::deferred::Held,
    /// When to look again at what is held back.
    next_look: u64,
    /// Decided owners that held facts refer to.
    decided: FxHashMap<u32, Owner>,
    slots: u32,
    flow: flow::Flow,
    groups: flow::synchronisers::Groups,
    callers: flow::callers::Callers,
    paths: Paths,
    steps: Steps,
    notes: Notes,
    /// Mean execution time of rclpy clients' callbacks, and of how many.
    client_means: FxHashMap<u32, (u64, u64)>,
    /// Which rclpy clients' callbacks publish by an endpoint, and how often that was certain.
    affinity: FxHashMap<u32, Vec<(u32, u32)>>,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC: last and the one before.
    offsets: Vec<i64>,
    lost: std::collections::BTreeMap<String, u64>,
    /// Name of the edge that a link makes.
    memory: u32,
    /// Names at which chains begin, and how often something was taken there.
    inputs: Vec<(u32, u64)>,
    first: Option<u64>,
    now: u64,
    events: u64,
    /// What was found, for an observer.
    seen: Option<Vec<observe::Observation>>,
}

/// "No such thing" for indices that are not typed yet.
const NONE: u32 = u32::MAX;

/// Longest time that a fact is held back.
const MAX_HOLD_NS: u64 = 1_000_000_000;

/// How often it is looked whether what is held back has been decided by time.
const LOOK_NS: u64 = 2_000_000;

/// Most facts that are held back.
const MAX_HELD: usize = 200_000;

impl Synth {
    /// Starts a model.
    pub fn new(options: SynthOptions) -> Self {
        let mut world = World::default();
        let memory = world.names.intern(MEMORY);
        let inputs = &options.inputs;
        let inputs = inputs.iter().map(|n| (world.names.intern(n), 0)).collect();
        Synth {
            options,
            world,
            threads: Vec::new(),
            thread_of: FxHashMap::default(),
            free_threads: Vec::new(),
            instances: Instances::default(),
            held: flow::deferred::Held::default(),
            next_look: 0,
            decided: FxHashMap::default(),
            slots: 0,
            flow: flow::Flow::default(),
            groups: flow::synchronisers::Groups::default(),
            callers: flow::callers::Callers::default(),
            paths: Paths::default(),
            steps: Steps::default(),
            notes: Notes::default(),
            client_means: FxHashMap::default(),
            affinity: FxHashMap::default(),
            offsets: Vec::new(),
            lost: std::collections::BTreeMap::new(),
            memory,
            inputs,
            first: None,
            now: 0,
            events: 0,
            seen: None,
        }
    }

    /// The model so far; the recording goes on.
    pub fn snapshot(&self) -> Model {
        self.clone().finish()
    }

    // ---- what is held back between the two views

    /// A fact, in order.
    fn emit(&mut self, fact: Fact) {
        let settles = matches!(fact, Fact::Request { .. } | Fact::Response { .. });
        if self.held.is_empty() {
            if self.ready(&fact) {
                self.apply(&fact);
            } else {
                self.hold(fact);
            }
        } else {
            if self.waits(&fact) {
                self.hold(fact);
            } else {
                self.apply(&fact);
            }
            if settles || self.now >= self.next_look {
                self.drain(false);
            }
        }
    }

    fn hold(&mut self, mut fact: Fact) {
        if let Some(owner) = fact.owner() {
            // An undecided one stays so; a decided one is told now, before its instance ends.
            if let Owner::Undecided(slot) = owner {
                fact.set_owner(self.decision(slot).unwrap_or(owner));
            }
        }
        if self.held.is_empty() {
            self.next_look = self.now + LOOK_NS;
        }
        let instances = &self.instances;
        let name = |e: u32| self.world.entities[e as usize].name;
        self.held.hold(fact, |i| instances.get(i).entity, name);
    }

    /// Whether a fact must wait: by itself, or for one that is held back.
    fn waits(&self, fact: &Fact) -> bool {
        let name = |e: u32| self.world.entities[e as usize].name;
        let entity = |i| self.instances.get(i).entity;
        !self.ready(fact) || self.held.before(fact, entity, name)
    }

    /// Looks again at what is held back.
    fn drain(&mut self, force: bool) {
        self.next_look = self.now + LOOK_NS;
        let force = force || self.held.len() >= MAX_HELD;
        let mut again = true;
        while again && !self.held.is_empty() {
            again = false;
            for fact in self.held.take() {
                let late = fact
                    .since()
                    .is_some_and(|t| self.now.saturating_sub(t) > MAX_HOLD_NS);
                // What is late itself goes; what only stands on something held goes with it.
                let overdue = late && !self.ready(&fact);
                if !force && !overdue && self.waits(&fact) {
                    self.hold(fact);
                    continue;
                }
                if late {
                    self.notes.count(Note::Undecided, 1);
                }
                self.apply(&fact);
                again = true;
            }
        }
        if self.held.is_empty() {
            // Nobody refers to a slot any more.
            self.decided.clear();
        }
    }

    fn ready(&self, fact: &Fact) -> bool {
        match *fact {
            Fact::Begin(ref begin) => {
                let entity = self.instances.get(begin.instance).entity;
                match begin.input {
                    Input::Request { gid, sequence, at } => {
                        self.caller_ready(entity, gid, sequence, at, self.now)
                    }
                    Input::Response { sequence, .. } => self.response_known(entity, sequence),
                    _ => true,
                }
            }
            Fact::Publish { owner, .. }
            | Fact::Enqueue { owner, .. }
            | Fact::Request { owner, .. } => match owner {
                Owner::Undecided(slot) => self.decision(slot).is_some(),
                _ => true,
            },
            _ => true,
        }
    }

    fn new_slot(&mut self) -> u32 {
        self.slots = (self.slots + 1) % NONE;
        self.slots
    }

    fn decide(&mut self, slot: u32, owner: Owner) {
        if !self.held.is_empty() {
            self.decided.insert(slot, owner);
            self.drain(false);
        }
    }

    fn decision(&self, slot: u32) -> Option<Owner> {
        self.decided.get(&slot).copied()
    }

    // ---- events

    /// The next event. Events come in time order.
    pub fn push(&mut self, event: &Event) {
        self.events += 1;
        if event.time_ns < self.now {
            self.notes.count(Note::OutOfOrder, 1);
        }
        self.now = self.now.max(event.time_ns);
        let time = self.now;
        if self.first.is_none()
            && !(self.options.shortened && onbeat_trace::table::is_state(&event.kind))
        {
            self.first = Some(time);
        }
        if !self.held.is_empty() && time >= self.next_look {
            self.drain(false);
        }
        let (pid, tid) = (event.pid, event.tid);
        match event.kind {
            EventKind::SwitchIn {
                priority, policy, ..
            } => {
                let ti = self.thread(pid, tid);
                self.switch_in(ti, time, event.cpu, priority, policy);
            }
            EventKind::SwitchOut { state, .. } => {
                let ti = self.thread(pid, tid);
                self.switch_out(ti, time, state == 0);
            }
            EventKind::Wake { .. } => {
                let ti = self.thread(pid, tid);
                self.wake(ti, time);
            }
            EventKind::Woken { ready_ns } => {
                let ti = self.thread(pid, tid);
                self.wake(ti, time.saturating_sub(ready_ns));
            }
            EventKind::Stolen { stolen_ns } => {
                let ti = self.thread(pid, tid);
                self.threads[ti].account.stolen(time, stolen_ns);
                self.notes.count(Note::Stolen, stolen_ns);
            }
            EventKind::Fork {
                parent_pid,
                ref comm,
                ..
            } => {
                if parent_pid != pid && self.world.known_process(pid).is_some() {
                    // The pid is used again, and the old process' end was not seen.
                    self.end_process(pid, time);
                } else {
                    self.end_one_thread(tid, time);
                }
                self.name_thread(pid, tid, comm);
            }
            EventKind::Exec { ref comm } => {
                self.end_process(pid, time);
                self.name_thread(pid, tid, comm);
            }
            EventKind::Exit if pid == tid => self.end_process(pid, time),
            EventKind::Exit => self.end_one_thread(tid, time),
            EventKind::Process { ref command, .. } => {
                let p = self.world.process(pid);
                self.world.processes[p as usize].command = self.world.names.intern(command);
            }
            EventKind::Thread {
                ref comm,
                policy,
                priority,
                ..
            } => {
                self.name_thread(pid, tid, comm);
                let ti = self.thread(pid, tid);
                (self.threads[ti].policy, self.threads[ti].priority) = (policy, priority);
            }
            EventKind::ClockOffset {
                realtime_minus_monotonic_ns: offset,
            } => {
                if self.offsets.first() != Some(&offset) {
                    self.offsets.insert(0, offset);
                    self.offsets.truncate(2);
                }
            }
            EventKind::Lost { ref probe, count } => {
                *self.lost.entry(probe.to_string()).or_insert(0) += count;
            }
            _ => {
                let ti = self.thread(pid, tid);
                self.acted(ti, time);
                self.ros(ti, time, event);
            }
        }
        if !self.world.gone.is_empty() || !self.world.freed.is_empty() {
            self.free_entities();
        }
    }

    fn thread(&mut self, pid: u32, tid: u32) -> usize {
        if let Some(&ti) = self.thread_of.get(&tid) {
            if self.threads[ti as usize].pid == pid {
                return ti as usize;
            }
            self.end_one_thread(tid, self.now);
        }
        let process = self.world.process(pid);
        let thread = Thread::new(pid, tid, process, self.now);
        let ti = match self.free_threads.pop() {
            Some(ti) => {
                self.threads[ti as usize] = thread;
                ti
            }
            None => {
                self.threads.push(thread);
                (self.threads.len() - 1) as u32
            }
        };
        self.thread_of.insert(tid, ti);
        ti as usize
    }

    fn name_thread(&mut self, pid: u32, tid: u32, comm: &str) {
        let comm = self.world.names.intern(comm);
        let ti = self.thread(pid, tid);
        self.threads[ti].comm = comm;
    }

    fn end_one_thread(&mut self, tid: u32, time: u64) {
        if let Some(ti) = self.thread_of.remove(&tid) {
            self.end_thread(ti as usize, time, Why::Exit);
            self.free_threads.push(ti);
        }
    }

    fn end_process(&mut self, pid: u32, time: u64) {
        let Some(p) = self.world.known_process(pid) else {
            return;
        };
        let tids: Vec<u32> = self
            .thread_of
            .iter()
            .filter(|(_, &ti)| self.threads[ti as usize].pid == pid)
            .map(|(&tid, _)| tid)
            .collect();
        for tid in tids {
            self.end_one_thread(tid, time);
        }
        self.end_pending(p);
        self.world.end_process(pid);
    }

    /// The node of a handle, if it is known.
    fn node_of(&self, p: u32, node: u64) -> u32 {
        self.world.handle(p, HandleKind::Node, node).unwrap_or(NONE)
    }

    /// What a ROS event says.
    fn ros(&mut self, ti: usize, time: u64, event: &Event) {
        let p = self.threads[ti].process;
        let cpu = event.cpu;
        match event.kind {
            // Initialisation.
            EventKind::NodeInit {
                node,
                ref name,
                ref namespace,
                ..
            } => {
                let full = entities::full_name(namespace, name);
                let n = self.world.node(p, node, &full, false);
                self.node_made(ti, n);
            }
            EventKind::PublisherInit {
                publisher,
                node,
                rmw,
                ref topic,
                depth,
            } => {
                let node = self.node_of(p, node);
                let handles = [
                    (HandleKind::RclPublisher, publisher),
                    (HandleKind::RmwPublisher, rmw),
                ];
                self.world
                    .create(p, Kind::Publisher, handles, node, topic, depth, 0);
            }
            EventKind::SubscriptionInit {
                subscription,
                node,
                rmw,
                ref topic,
                depth,
            } => {
                let node = self.node_of(p, node);
                let handles = [
                    (HandleKind::RclSubscription, subscription),
                    (HandleKind::RmwSubscription, rmw),
                ];
                self.world
                    .create(p, Kind::Subscription, handles, node, topic, depth, 0);
            }
            EventKind::ServiceInit {
                service,
                node,
                rmw,
                ref name,
            } => {
                let node = self.node_of(p, node);
                let handles = [
                    (HandleKind::RclService, service),
                    (HandleKind::RmwService, rmw),
                ];
                self.world
                    .create(p, Kind::Service, handles, node, name, 0, 0);
            }
            EventKind::ClientInit {
                client,
                node,
                rmw,
                ref name,
            } => {
                let node = self.node_of(p, node);
                let handles = [
                    (HandleKind::RclClient, client),
                    (HandleKind::RmwClient, rmw),
                ];
                let e = self
                    .world
                    .create(p, Kind::Client, handles, node, name, 0, 0);
                if let Some(gid) = self.world.processes[p as usize].gids.remove(&rmw) {
                    self.bind(gid, e, false);
                }
            }
            EventKind::ClientGid { rmw, gid } => {
                if let Some(client) = self.world.handle(p, HandleKind::RmwClient, rmw) {
                    self.bind(gid, client, false);
                } else {
                    // rmw_client_init comes before rcl_client_init.
                    self.world.processes[p as usize].gids.insert(rmw, gid);
                }
            }
            EventKind::PublisherGid { .. }
            | EventKind::SubscriptionGid { .. }
            | EventKind::RingBufferInit { .. }
            | EventKind::LifecycleInit { .. }
            | EventKind::LifecycleTransition { .. } => {}
            EventKind::ClockInit { clock } => {
                let process = &mut self.world.processes[p as usize];
                process.handles.remove(&(HandleKind::Clock, clock));
                if let Some(node) = self.clock_made(ti) {
                    let process = &mut self.world.processes[p as usize];
                    process.handles.insert((HandleKind::Clock, clock), node);
                }
            }
            EventKind::TimerClock { timer, clock } => self.timer_clock(ti, timer, clock),
            EventKind::TimerInit { timer, period_ns } => {
                let clock = self.clock_of_timer(ti, timer);
                let node = clock
                    .and_then(|c| self.world.handle(p, HandleKind::Clock, c))
                    .unwrap_or(NONE);
                let period = u64::try_from(period_ns).unwrap_or(0);
                let handles = [(HandleKind::Timer, timer), (HandleKind::Timer, 0)];
                let e = self
                    .world
                    .create(p, Kind::Timer, handles, node, "", 0, period);
                self.world.entities[e as usize].due = time.saturating_add(period);
            }
            EventKind::TimerFound { timer } => {
                if self.world.handle(p, HandleKind::Timer, timer).is_none() {
                    let handles = [(HandleKind::Timer, timer), (HandleKind::Timer, 0)];
                    self.world.create(p, Kind::Timer, handles, NONE, "", 0, 0);
                }
            }
            EventKind::TimerNode { timer, node } => {
                let node = self.node_of(p, node);
                if let Some(e) = self.world.handle(p, HandleKind::Timer, timer) {
                    let it = &mut self.world.entities[e as usize];
                    if it.node != node && node != NONE {
                        (it.node, it.vertex) = (node, NONE);
                    }
                }
            }
            EventKind::TimerCallback { timer, callback } => {
                self.set_callback(p, callback, HandleKind::Timer, timer);
            }
            EventKind::ServiceCallback { service, callback } => {
                self.set_callback(p, callback, HandleKind::RclService, service);
            }
            EventKind::SubscriptionObject {
                subscription,
                object,
            } => {
                let process = &mut self.world.processes[p as usize];
                process
                    .ties
                    .insert((Tie::ObjectSubscription, object), subscription);
                if let Some(&e) = process
                    .handles
                    .get(&(HandleKind::RclSubscription, subscription))
                {
                    self.world.entities[e as usize].exact = true;
                }
            }
            EventKind::SubscriptionCallback { object, callback } => {
                let process = &mut self.world.processes[p as usize];
                process.handles.remove(&(HandleKind::Callback, callback));
                process.ties.insert((Tie::CallbackObject, callback), object);
            }
            EventKind::CallbackSymbol {
                callback,
                ref symbol,
            } => {
                if let Some(e) = self.world.callback(p, callback) {
                    let symbol = self.world.names.intern(symbol);
                    let it = &mut self.world.entities[e as usize];
                    it.symbol = symbol;
                    if let Some(v) = self.flow.vertices.get_mut(it.vertex as usize) {
                        v.symbol = symbol;
                    }
                    for &(_, v) in &it.callers {
                        self.flow.vertices[v as usize].symbol = symbol;
                    }
                }
            }
            EventKind::IntraBufferSubscription { ipb, object } => {
                let process = &mut self.world.processes[p as usize];
                process.ties.insert((Tie::IntraObject, ipb), object);
            }
            EventKind::RingBufferIntraBuffer { buffer, ipb } => {
                let process = &mut self.world.processes[p as usize];
                process.handles.remove(&(HandleKind::RingBuffer, buffer));
                process.ties.insert((Tie::RingIntra, buffer), ipb);
            }
            EventKind::EndpointFound {
                endpoint,
                rcl,
                rmw,
                ref name,
            } => self.found(p, endpoint, rcl, rmw, name),
            EventKind::HandleFini { handle } => self.world.fini(p, handle),
            EventKind::NodeFound { node, ref name } => {
                let full = entities::full_name("", name);
                self.world.node(p, node, &full, false);
            }

            // Run time.
            EventKind::CallbackStart { callback, .. } => {
                self.callback_start(ti, time, cpu, callback);
            }
            EventKind::CallbackEnd { callback } => self.callback_end(ti, time, callback),
            EventKind::TimerCall { timer } => {
                self.executor(ti, time, false);
                let e = match self.world.handle(p, HandleKind::Timer, timer) {
                    Some(e) => e,
                    None => {
                        let handles = [(HandleKind::Timer, timer), (HandleKind::Timer, 0)];
                        self.world.create(p, Kind::Timer, handles, NONE, "", 0, 0)
                    }
                };
                self.open(ti, time, cpu, e, Input::Timer);
            }
            EventKind::Take {
                rmw,
                source_ns,
                taken,
                ..
            } => {
                self.executor(ti, time, false);
                if taken {
                    self.read(
                        ti,
                        time,
                        cpu,
                        HandleKind::RmwSubscription,
                        rmw,
                        Input::Message { source_ns },
                    );
                }
            }
            EventKind::RequestTake {
                rmw,
                gid,
                sequence,
                taken,
            } => {
                self.executor(ti, time, false);
                if taken {
                    let input = Input::Request {
                        gid,
                        sequence,
                        at: time,
                    };
                    self.read(ti, time, cpu, HandleKind::RmwService, rmw, input);
                }
            }
            EventKind::ResponseTake {
                rmw,
                sequence,
                source_ns,
                taken,
            } => {
                self.executor(ti, time, false);
                if taken {
                    if let Some(client) = self.world.handle(p, HandleKind::RmwClient, rmw) {
                        self.answer_read(client, sequence, source_ns, time);
                    }
                    let input = Input::Response { sequence, at: time };
                    self.read(ti, time, cpu, HandleKind::RmwClient, rmw, input);
                }
            }
            EventKind::IntraPublish { publisher, .. } => {
                let e = self
                    .world
                    .handle(p, HandleKind::RclPublisher, publisher)
                    .unwrap_or(NONE);
                self.set_intra_publish(ti, e, time);
            }
            EventKind::RingBufferEnqueue { buffer, index, .. } => {
                let (publisher, message) = self.intra_publish(ti);
                if let Some(subscription) = self.world.ring_buffer(p, buffer) {
                    let owner = self.owner(ti, time, publisher);
                    self.emit(Fact::Enqueue {
                        owner,
                        publisher,
                        subscription,
                        index,
                        time,
                        message,
                    });
                }
            }
            EventKind::RingBufferDequeue { buffer, index } => {
                self.dequeue(ti, time, cpu, buffer, index);
            }
            EventKind::RingBufferClear { buffer } => {
                if let Some(subscription) = self.world.ring_buffer(p, buffer) {
                    self.emit(Fact::Clear { subscription });
                }
            }
            EventKind::RclPublish { publisher, message } => {
                self.rcl_publish(ti, publisher, message);
            }
            EventKind::Publish {
                rmw,
                message,
                source_ns,
            } => self.publish(ti, time, rmw, message, source_ns),
            EventKind::RequestSend { rmw, sequence } => {
                let Some(client) = self.world.handle(p, HandleKind::RmwClient, rmw) else {
                    self.notes.count(Note::UnknownHandle, 1);
                    return;
                };
                if self.left_out(client) {
                    return;
                }
                let owner = self.owner(ti, time, client);
                self.emit(Fact::Request {
                    owner,
                    client,
                    sequence,
                    time,
                });
            }
            EventKind::ResponseSend {
                rmw,
                gid,
                sequence,
                source_ns,
            } => {
                let Some(service) = self.world.handle(p, HandleKind::RmwService, rmw) else {
                    self.notes.count(Note::UnknownHandle, 1);
                    return;
                };
                if self.left_out(service) {
                    return;
                }
                self.answered(service, gid, sequence, source_ns, time);
                self.responded(ti, time, service);
                self.emit(Fact::Response {
                    service,
                    gid,
                    sequence,
                    time,
                });
            }
            EventKind::SyncInput { filter } => {
                if let Some(instance) = self.running(ti) {
                    self.emit(Fact::Sync {
                        instance,
                        filter,
                        time,
                    });
                }
            }
            EventKind::ExecutorNextReady | EventKind::ExecutorWaitForWork { .. } => {
                self.set_rclcpp(ti);
                self.executor(ti, time, false);
            }
            EventKind::ExecutorExecute { .. } => self.execute(ti, time),
            EventKind::ExecuteStart { execute } => {
                self.execute(ti, time);
                self.set_client_call(ti, execute == ExecuteKind::Client);
            }
            EventKind::ExecuteEnd { .. } => self.executed(ti, time),
            EventKind::WaitSetInit => self.executor(ti, time, true),
            EventKind::Wait => self.wait(ti, time),
            EventKind::GuardTrigger { guard } => self.trigger(ti, time, guard),

            // Dealt with before.
            EventKind::SwitchIn { .. }
            | EventKind::SwitchOut { .. }
            | EventKind::Wake { .. }
            | EventKind::Woken { .. }
            | EventKind::Stolen { .. }
            | EventKind::Fork { .. }
            | EventKind::Exec { .. }
            | EventKind::Exit
            | EventKind::Process { .. }
            | EventKind::Thread { .. }
            | EventKind::ClockOffset { .. }
            | EventKind::Lost { .. } => {}
        }
    }

    fn set_callback(&mut self, p: u32, callback: u64, tag: HandleKind, handle: u64) {
        let process = &mut self.world.processes[p as usize];
        process.ties.remove(&(Tie::CallbackObject, callback));
        match process.handles.get(&(tag, handle)).copied() {
            Some(e) => {
                process.handles.insert((HandleKind::Callback, callback), e);
                self.world.entities[e as usize].exact = true;
            }
            None => {
                process.handles.remove(&(HandleKind::Callback, callback));
            }
        }
    }

    /// Late attach: an endpoint that was there before.
    fn found(&mut self, p: u32, endpoint: EndpointKind, rcl: u64, rmw: u64, name: &str) {
        let (kind, tags) = match endpoint {
            EndpointKind::Publisher => (
                Kind::Publisher,
                [HandleKind::RclPublisher, HandleKind::RmwPublisher],
            ),
            EndpointKind::Subscription => (
                Kind::Subscription,
                [HandleKind::RclSubscription, HandleKind::RmwSubscription],
            ),
            EndpointKind::Service => (
                Kind::Service,
                [HandleKind::RclService, HandleKind::RmwService],
            ),
            EndpointKind::Client => (Kind::Client, [HandleKind::RclClient, HandleKind::RmwClient]),
        };
        let handles = [(tags[0], rcl), (tags[1], rmw)];
        let name_index = self.world.names.intern(name);
        for (tag, address) in handles {
            if address == 0 {
                continue;
            }
            if let Some(e) = self.world.handle(p, tag, address) {
                if self.world.entities[e as usize].name == name_index {
                    // Known already; perhaps now by its other handle too.
                    for h in handles.into_iter().filter(|h| h.1 != 0) {
                        self.world.processes[p as usize].handles.insert(h, e);
                    }
                    return;
                }
            }
        }
        self.world.create(p, kind, handles, NONE, name, 0, 0);
    }

    /// An entity is read; what is not known by its handle is only noted.
    fn read(&mut self, ti: usize, time: u64, cpu: u16, tag: HandleKind, rmw: u64, input: Input) {
        let p = self.threads[ti].process;
        match self.world.handle(p, tag, rmw) {
            Some(e) => self.open(ti, time, cpu, e, input),
            None => self.notes.count(Note::UnknownHandle, 1),
        }
    }

    fn left_out(&self, entity: u32) -> bool {
        self.world.entities[entity as usize].infrastructure && !self.options.infrastructure
    }

    fn publish(&mut self, ti: usize, time: u64, rmw: u64, message: u64, source_ns: Option<i64>) {
        let p = self.threads[ti].process;
        let by_rcl = |synth: &Self| {
            let rcl = synth.last_rcl_publish(ti, message)?;
            synth.world.handle(p, HandleKind::RclPublisher, rcl)
        };
        let publisher = match self.world.handle(p, HandleKind::RmwPublisher, rmw) {
            Some(e) => Some(e),
            None => by_rcl(self),
        };
        let Some(publisher) = publisher else {
            self.notes.count(Note::UnknownHandle, 1);
            return;
        };
        if self.left_out(publisher) {
            return;
        }
        let owner = self.owner(ti, time, publisher);
        let message = self.intra_message(ti, publisher);
        self.emit(Fact::Publish {
            owner,
            publisher,
            time,
            source_ns,
            message,
        });
        if source_ns.is_none() {
            self.set_unstamped(ti, publisher);
        }
    }
}
