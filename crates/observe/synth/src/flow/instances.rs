//! Follows callback instances from their start and input to their end.

use super::ends::ChainEnd;
use super::graph::{Measured, Use, THREADS_MAX};
use super::lineage::Incoming;
use super::seen::{self, ItemTimes, Way};
use super::services::CallKey;
use super::Flow;
use crate::chains::{Began, Lineages};
use crate::detail::{ExecutionSeen, InputSeen, Spent};
use crate::entities::EntityKind;
use crate::entities::Nodes;
use crate::events::{Begin, End, Ending, Input, Owner};
use crate::followed::Arrival;
use crate::ids::{EntityId, InstanceId, NodeId};
use crate::index::{NameId, VertexId};
use crate::marks::Marks;
use crate::notes::Note;
use crate::values::{Idle, Release, ThreadId};
use crate::Context;
use onbeat_document::schema::CallbackType;

#[derive(Debug, Clone, Copy)]
pub(super) struct Instance {
    pub(super) entity: EntityId,
    pub(super) vertex: VertexId,
    pub(super) thread: ThreadId,
    pub(super) start: u64,
    /// The time from which on the input waited for the callback, or `None` if the recording does
    /// not show it.
    pub(super) ready: Option<u64>,
    /// The topic of the input and the time of its publication.
    pub(super) input: Option<(NameId, u64)>,
    pub(super) outputs: u32,
    /// The publisher of the input and the time of its publication.
    sent: Option<(VertexId, u64)>,
    pub(super) lineages: Lineages,
    /// The recording does not show the instance's input, and the instance has received nothing from
    /// a link since its start.
    pub(super) unseen: bool,
    pub(super) output: Option<(u64, NameId)>,
    /// The time at which the instance handed its input to a synchroniser, and the address of the
    /// synchroniser.
    pub(super) synchronised: Option<(u64, u64)>,
    pub(super) call: Option<CallKey>,
    /// The node of the instance's subscription, and the input's number among the inputs of that
    /// subscription.
    pub(super) entry: Option<(NodeId, u64)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Instances {
    running: Vec<Option<Instance>>,
    ended: Vec<InstanceId>,
}

impl Instances {
    pub(super) fn mark(&self, nodes: &Nodes, (vertices, of_nodes): (&mut Marks, &mut Marks)) {
        for it in self.running.iter().flatten() {
            vertices.add(it.vertex.index());
            if let Some((node, _)) = it.entry {
                nodes.mark(node, of_nodes);
            }
        }
    }

    pub(super) fn mark_names(&self, names: &mut Marks) {
        for it in self.running.iter().flatten() {
            let (input, output) = (it.input.map(|i| i.0), it.output.map(|o| o.1));
            for name in input.into_iter().chain(output).chain(it.call.map(|c| c.0)) {
                names.add(name.index());
            }
        }
    }
}

impl Instance {
    pub(super) fn began(&self) -> Began {
        Began {
            thread: self.thread,
            time: self.start,
            released: None,
            last_input: None,
        }
    }

    fn seen(&self, end: &End) -> ExecutionSeen {
        let mut cpus = end.cpus.iter();
        let (cpu, more) = (cpus.next(), cpus.count() as u32);
        let spent = (end.spent.doubts == 0).then_some(Spent {
            exec_ns: end.spent.exec_ns,
            preempted_ns: end.spent.preempted_ns,
            blocked_ns: end.spent.blocked_ns,
        });
        ExecutionSeen {
            callback: self.vertex.index() as u32,
            pid: self.thread.pid,
            tid: self.thread.tid,
            ready_ns: self.ready,
            start_ns: self.start,
            end_ns: end.time.max(self.start),
            ended: end.how.into(),
            spent,
            preemptions: end.spent.preemptions,
            blockings: end.spent.blockings,
            scheduled: end.scheduled,
            cpu: cpu.filter(|_| more == 0),
            cpus: more + u32::from(cpu.is_some()),
            input: self.input.map(|(name, time)| InputSeen {
                name: name.index() as u32,
                published_ns: time,
            }),
            outputs: self.outputs,
        }
    }
}

struct Taken {
    vertex: VertexId,
    incoming: Option<Incoming>,
    /// The client, if it is known, and the request's key. `None` if the input is not a request.
    call: Option<(Option<EntityId>, CallKey)>,
}

impl Instances {
    pub(super) fn get(&self, i: InstanceId) -> Option<&Instance> {
        self.running.get(i.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, i: InstanceId) -> Option<&mut Instance> {
        self.running.get_mut(i.index())?.as_mut()
    }

    fn insert(&mut self, i: InstanceId, instance: Instance) {
        if self.running.len() <= i.index() {
            self.running.resize(i.index() + 1, None);
        }
        self.running[i.index()] = Some(instance);
    }

    fn end(&mut self, i: InstanceId) {
        if let Some(instance) = self.running.get_mut(i.index()) {
            *instance = None;
        }
        self.ended.push(i);
    }

    pub(super) fn take_ended(&mut self) -> Option<InstanceId> {
        self.ended.pop()
    }
}

fn source_ns(input: Input) -> Option<i64> {
    match input {
        Input::Message { source_ns } => Some(source_ns),
        _ => None,
    }
}

impl Flow {
    /// Returns the vertex of the execution that caused an event, and the lineages of that
    /// execution. The caller must not release the lineages, because the execution still owns them.
    pub(super) fn source(&self, owner: Owner) -> (Option<VertexId>, Lineages) {
        let instance = match owner {
            Owner::Instance(i) => self.instances.get(i),
            _ => None,
        };
        match instance {
            Some(it) => (Some(it.vertex), it.lineages),
            None => (None, Lineages::default()),
        }
    }

    pub(super) fn begin(&mut self, cx: &mut Context, begin: &Begin) {
        let (entity, start) = (begin.entity, begin.start);
        let Taken {
            vertex,
            incoming,
            call,
        } = self.take_input(cx, entity, begin.input);
        let ready = match (&incoming, begin.release) {
            (Some(from), ..) => {
                let thread = begin.thread;
                self.observer.taken(thread, from.name, from.time, start);
                let (ready, woken) = self.arrival(vertex, from, start, begin.idle);
                self.detail_taken((vertex, thread, start), from, begin.input, woken);
                Some(ready)
            }
            (None, Release::At(due)) => Some(due),
            // The thread was busy, so the timer can have been due for some time.
            (None, Release::Unknown) if begin.input == Input::Timer => {
                begin.idle.map(|idle| idle.woken)
            }
            (None, Release::Unknown) => Some(begin.idle.map_or(start, |idle| idle.woken)),
            (None, Release::Simulated) => {
                cx.notes.count(Note::Simulated(vertex), 1);
                None
            }
        };
        if incoming.is_none() {
            self.detail_foreign(cx, vertex, begin);
        }
        self.follow_arrival(vertex, begin, incoming.as_ref().map(|from| from.time));
        let kind = self.graph.vertex(vertex).kind();
        let unseen = begin.input == Input::Unknown && kind == CallbackType::Subscription;
        let mode = self.graph.switches.at(start);
        let runs = &mut self.graph.vertex_mut(vertex).runs;
        let measured = runs.measured.of(mode);
        if runs.count > 0 {
            let interval = start.saturating_sub(runs.last_start);
            measured.figures.interarrival_ns.record(interval);
            measured.batches.interarrival.record(interval);
        }
        runs.count += 1;
        runs.last_start = start;
        if let Release::At(due) = begin.release {
            measured
                .figures
                .release_jitter_ns
                .record(start.abs_diff(due));
        }
        let input = incoming.as_ref().map(|from| (from.name, from.time));
        let sent = incoming
            .as_ref()
            .and_then(|from| Some((from.vertex?, from.time)));
        let mut lineages = Lineages::default();
        let began = Began {
            thread: begin.thread,
            time: start,
            released: match begin.release {
                Release::At(due) => Some(due),
                Release::Unknown | Release::Simulated => None,
            },
            last_input: None,
        };
        if begin.input == Input::Ambiguous {
            // The input has an unknown publisher, so no chain begins here.
            self.take_links(cx, vertex, began, &mut lineages);
        } else {
            lineages = self.lineages_of(cx, vertex, began, incoming);
        }
        let instance = Instance {
            entity,
            vertex,
            thread: begin.thread,
            start,
            ready: ready.map(|ready| ready.min(start)),
            input,
            outputs: 0,
            sent,
            lineages,
            unseen,
            output: None,
            synchronised: None,
            call: None,
            entry: None,
        };
        self.instances.insert(begin.instance, instance);
        self.action_begin(cx, begin);
        if let Some((client, key)) = call {
            self.open_call(cx, begin.instance, vertex, client, key);
        }
        let looks = &self.graph.vertex(vertex).looks;
        let waits = looks.name.is_none_or(|name| !self.lineage.ignores(name));
        if self.graph.vertex(vertex).kind() == CallbackType::Subscription && waits {
            self.enter_node(cx, begin.instance);
        }
    }

    fn follow_arrival(&mut self, vertex: VertexId, begin: &Begin, published: Option<u64>) {
        let Some(followed) = &mut self.lineage.paths.followed else {
            return;
        };
        let due = match begin.release {
            Release::At(due) => Some(due),
            Release::Unknown | Release::Simulated => None,
        };
        if let Some(since) = published.or(due) {
            followed.arrivals.push(Arrival {
                callback: vertex.index() as u32,
                tid: begin.thread.tid,
                start_ns: begin.start,
                since_ns: since.min(begin.start),
                released: published.is_none(),
            });
        }
    }

    fn take_input(&mut self, cx: &mut Context, entity: EntityId, input: Input) -> Taken {
        let it = cx.entities.get(entity);
        let (kind, name) = (it.kind(), it.name());
        if let (Input::Request { gid, sequence, .. }, Some(name)) = (input, name) {
            let client = self.caller(cx, entity, gid, sequence);
            let (vertex, incoming) = self.take_request(cx, entity, client, sequence);
            return Taken {
                vertex,
                incoming,
                call: Some((client, (name, gid, sequence))),
            };
        }
        let vertex = if kind == EntityKind::Service {
            self.service_vertex(cx, entity, None)
        } else {
            self.end_poll(cx, entity);
            self.vertex(cx, entity)
        };
        let incoming = match input {
            Input::Message { source_ns } => {
                let incoming = self.take(cx, entity, source_ns, true);
                if let (None, Some(name)) = (&incoming, name) {
                    cx.notes.count(Note::Foreign(name), 1);
                }
                incoming
            }
            Input::Ring { index } => self.take_ring(cx, entity, index),
            Input::Response { sequence, at } => self.take_response(cx, entity, (sequence, at)),
            Input::Handed { work } => self.take_work(work, vertex),
            Input::Made { hand } => self.take_made(hand, vertex),
            Input::Unknown | Input::Ambiguous | Input::Timer | Input::Request { .. } => None,
        };
        Taken {
            vertex,
            incoming,
            call: None,
        }
    }

    pub(super) fn detail_taken(
        &mut self,
        (to, thread, time): (VertexId, ThreadId, u64),
        from: &Incoming,
        input: Input,
        woken: Option<u64>,
    ) {
        let Some(details) = &mut self.details else {
            return;
        };
        let way = Way {
            from: from.vertex,
            to,
            name: from.name,
            route: Some(from.route),
        };
        let times = ItemTimes {
            published: Some(from.time),
            source_ns: source_ns(input),
            available: woken,
        };
        details.item(way, times, seen::taken(thread, time));
    }

    fn detail_foreign(&mut self, cx: &Context, to: VertexId, begin: &Begin) {
        let name = cx.entities.get(begin.entity).name();
        let (Some(details), Some(name)) = (&mut self.details, name) else {
            return;
        };
        if let Input::Message { source_ns } = begin.input {
            let way = Way {
                from: None,
                to,
                name,
                route: None,
            };
            let times = ItemTimes {
                source_ns: Some(source_ns),
                ..ItemTimes::default()
            };
            details.item(way, times, seen::taken(begin.thread, begin.start));
        }
    }

    /// Returns two times. The first is the time from which on the item waited for the callback, or
    /// an estimate of it. The second is the same time, or `None` if the recording does not show it.
    fn arrival(
        &mut self,
        vertex: VertexId,
        from: &Incoming,
        start: u64,
        idle: Option<Idle>,
    ) -> (u64, Option<u64>) {
        let latency = start.saturating_sub(from.time);
        let asleep = idle.filter(|i| i.contains(from.time) && i.woken <= start);
        let Some(publisher) = from.vertex else {
            let woken = asleep.map(|i| i.woken);
            return (woken.unwrap_or(from.time.min(start)), woken);
        };
        let hop = super::graph::Hop {
            to: vertex,
            name: from.name,
            route: from.route,
        };
        let mode = self.graph.switches.at(from.time);
        let edge = self.graph.edge(publisher, hop);
        let figures = edge.figures.of(mode);
        let transport = match asleep {
            Some(idle) => {
                let transport = idle.woken - from.time;
                figures.transport_ns.record(transport);
                edge.usual_transport.add(transport);
                transport
            }
            None => edge.usual_transport.median().min(latency),
        };
        figures.latency_ns.record(latency);
        figures.waiting_ns.record(latency - transport);
        let ready = (from.time + transport).min(start);
        (ready, asleep.map(|i| i.woken))
    }

    pub(super) fn end(&mut self, cx: &mut Context, end: &End) {
        let Some(it) = self.instances.get(end.instance).copied() else {
            return;
        };
        match end.how {
            Ending::Aborted => cx.notes.count(Note::Aborted(it.vertex), 1),
            Ending::CutOff => cx.notes.count(Note::CutOff(it.vertex), 1),
            Ending::Shared => cx.notes.count(Note::Shared(it.vertex), 1),
            Ending::Unshown => cx.notes.count(Note::Unshown(it.vertex), 1),
            _ => {}
        }
        if it.unseen {
            cx.notes.count(Note::Unseen(it.vertex), 1);
        }
        // An execution without an execution time is counted as such.
        if !end.scheduled && end.spent.doubts == 0 {
            cx.notes.count(Note::Unscheduled(it.vertex), 1);
        }
        let start = end.how.is_timed().then_some(it.start);
        let mode = self.graph.switches.at(it.start);
        let runs = &mut self.graph.vertex_mut(it.vertex).runs;
        cx.causes
            .add(end.instance, start, &mut runs.measured.of(mode).waits);
        self.count_end(&it, end);
        if let Some((publisher, time)) = it.sent {
            let runs = &mut self.graph.vertex_mut(it.vertex).runs;
            if runs.item_ends(publisher, time) {
                cx.notes.count(Note::Reordered(it.vertex), 1);
            }
        }
        self.leave_node(end.instance, end.time);
        self.carry(&it, end.time);
        let output = match it.output {
            Some((time, name)) => (time, Some(name)),
            None => (end.time, None),
        };
        self.end_lineages(&it, end.how.is_whole(), output);
        let times = (it.start, end.time);
        self.observer
            .execution(it.vertex, it.thread, times, end.spent.exec_ns());
        if let Some(details) = &mut self.details {
            details.executions.push(it.seen(end));
        }
        self.instances.end(end.instance);
        self.ways.polls.end(end.instance);
        self.action_end(end.instance);
    }

    fn count_end(&mut self, it: &Instance, end: &End) {
        let mode = self.graph.switches.at(it.start);
        let runs = &mut self.graph.vertex_mut(it.vertex).runs;
        if end.how.is_timed() {
            let Measured {
                figures, batches, ..
            } = runs.measured.of(mode);
            if end.spent.doubts == 0 {
                figures.exec_ns.record(end.spent.exec_ns);
                batches.exec.record(end.spent.exec_ns);
                figures.preempted_ns.record(end.spent.preempted_ns);
                figures.blocked_ns.record(end.spent.blocked_ns);
            } else {
                figures.untimed += 1;
            }
            if let Some(ready) = it.ready {
                let response = end.time.saturating_sub(ready);
                figures.response_ns.record(response);
                batches.response.record(response);
            }
            figures.preemptions += u64::from(end.spent.preemptions);
            figures.blockings += u64::from(end.spent.blockings);
            runs.inferred |= end.how == Ending::Inferred;
        } else if end.how == Ending::Unshown {
            runs.measured.of(mode).figures.untimed += 1;
        }
        if !runs.threads.contains(&it.thread) && runs.threads.len() < THREADS_MAX {
            runs.threads.push(it.thread);
        }
        let known = !runs.uses.is_empty();
        match runs.uses.iter_mut().find(|u| u.profile == end.profile) {
            Some(u) => u.cpus.unite(&end.cpus),
            // The profile may describe the thread at the end of the recording, not during the
            // execution.
            None if !end.how.is_whole() && known => {}
            None => runs.uses.push(Use {
                profile: end.profile,
                cpus: end.cpus,
            }),
        }
    }

    /// Ends the lineages of an instance at its last output, or at its end if it has no output.
    /// `time` and `output` are the time and the topic of that output or end.
    ///
    /// If `whole` is not set, the lineages are only released. The lineages of a request without a
    /// response stay open.
    fn end_lineages(&mut self, it: &Instance, whole: bool, (time, output): (u64, Option<NameId>)) {
        let mut lineages = it.lineages;
        if let Some(key) = it.call {
            if self.end_call(key, whole, (time, output), lineages) {
                return;
            }
        }
        if whole {
            if output.is_none() && self.graph.vertex(it.vertex).outputs.is_empty() {
                let end = ChainEnd {
                    vertex: it.vertex,
                    output: None,
                    time,
                    cut: None,
                };
                self.lineage.end_at(end, &lineages);
            }
            if output.is_none() {
                let last = lineages.as_slice();
                self.observer
                    .left(&self.lineage.steps, last, (None, time, None));
            }
            self.lineage.finish(&lineages, time, output);
        }
        self.lineage.steps.release_all(&mut lineages);
    }
}
