//! Follows requests from clients to services, and responses back.

use super::actions::Actions;
use super::ends::ChainEnd;
use super::graph::{Hop, NodeBy, Route};
use super::lineage::{Awaited, Incoming};
use super::{Flow, LOST_AFTER_NS};
use crate::chains::Lineages;
use crate::events::{MadeBy, Owner, Request, Response};
use crate::followed::Asked;
use crate::ids::{EntityId, InstanceId};
use crate::index::{NameId, VertexId};
use crate::marks::Marks;
use crate::notes::Note;
use crate::outcomes::RequestOutcome;
use crate::values::Gid;
use crate::Context;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) client: EntityId,
    time: u64,
    pub(super) taken: bool,
    vertex: Option<VertexId>,
    /// The vertex of the service that will probably take the request. onbeat determines this vertex
    /// when the client sends the request.
    to: Option<VertexId>,
    lineages: Lineages,
    ambiguous: bool,
}

/// The key of a request at its service: the service's name, the client's identifier and the
/// request's number.
pub(super) type CallKey = (NameId, Gid, i64);

#[derive(Debug, Clone)]
struct Call {
    vertex: VertexId,
    client: Option<EntityId>,
    request: Option<AsSent>,
    received: Option<u64>,
    state: CallState,
    responded: Option<u64>,
    lineages: Lineages,
}

#[derive(Debug, Clone, Copy)]
struct AsSent {
    from: Option<VertexId>,
    time: u64,
    began: u64,
}

#[derive(Debug, Clone, Copy)]
enum CallState {
    Running(InstanceId),
    /// The service's callback ended without a response. The fields are the time and topic of its
    /// last output, or the time of its end.
    Ended {
        time: u64,
        output: Option<NameId>,
    },
    /// The service's callback ended after its response, or was cut off.
    Done,
    Ambiguous,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Services {
    pub(crate) actions: Actions,
    sent: FxHashMap<(NameId, i64), Vec<Sent>>,
    sent_order: VecDeque<(NameId, i64, EntityId)>,
    calls: FxHashMap<CallKey, Call>,
    call_order: VecDeque<CallKey>,
    call_of: FxHashMap<(EntityId, i64), CallKey>,
    unknown_callers: FxHashSet<NameId>,
}

const MAX_CALLS: usize = 8192;

impl Call {
    /// Reports whether the call's callback is not running, and the call began before `time` or at
    /// an unknown time.
    fn is_old(&self, time: u64) -> bool {
        let began = self.request.map(|request| request.began);
        let began = began.or(self.received).or(self.responded);
        let runs = matches!(self.state, CallState::Running(_));
        !runs && began.is_none_or(|began| began < time)
    }
}

impl Services {
    pub(super) fn mark_vertices(&self, marks: &mut Marks) {
        for sent in self.sent.values().flatten() {
            for vertex in sent.vertex.into_iter().chain(sent.to) {
                marks.add(vertex.index());
            }
        }
        for call in self.calls.values() {
            let from = call.request.and_then(|request| request.from);
            for vertex in from.into_iter().chain([call.vertex]) {
                marks.add(vertex.index());
            }
        }
    }

    pub(super) fn mark_names(&self, names: &mut Marks) {
        let sent = self.sent.keys().map(|key| key.0);
        let order = self.sent_order.iter().map(|key| key.0);
        let calls = self.calls.keys().chain(&self.call_order);
        for name in sent.chain(order).chain(calls.map(|key| key.0)) {
            names.add(name.index());
        }
        self.actions.mark_names(names);
    }

    pub(super) fn forget_names(&mut self, used: &Marks) {
        self.unknown_callers.retain(|name| used.has(name.index()));
        self.actions
            .figures
            .retain(|name, _| used.has(name.index()));
    }

    pub(super) fn sent(&self, name: NameId, sequence: i64) -> &[Sent] {
        let sent = self.sent.get(&(name, sequence));
        sent.map_or(&[], Vec::as_slice)
    }

    pub(super) fn awaited(
        &self,
        client: EntityId,
        response: NameId,
    ) -> impl Iterator<Item = Awaited> + '_ {
        let calls = self
            .calls
            .values()
            .filter(move |c| c.client == Some(client));
        let certain = calls.filter(|c| !matches!(c.state, CallState::Ambiguous));
        certain.filter_map(move |call| {
            Some(Awaited {
                from: call.vertex,
                time: call.responded?,
                name: response,
                route: Route::Topic,
                lineages: call.lineages,
                skipped: None,
            })
        })
    }

    pub(super) fn response_known(&self, client: EntityId, sequence: i64) -> bool {
        let call = self.call_of.get(&(client, sequence));
        let call = call.and_then(|key| self.calls.get(key));
        call.is_none_or(|call| call.responded.is_some())
    }
}

fn hop(to: VertexId, name: NameId) -> Hop {
    let route = Route::Topic;
    Hop { to, name, route }
}

impl Flow {
    pub(super) fn request(&mut self, cx: &mut Context, event: &Request) {
        let client = event.client;
        let it = cx.entities.get(client);
        let (Some(name), Some(names)) = (it.name(), it.service_names()) else {
            return;
        };
        let node = self.home_of(cx, client);
        let owner = self.resolve(event.owner);
        self.action_request(cx, event, owner);
        let (vertex, own) = self.source(owner);
        if vertex.is_none() && owner == Owner::Outside {
            cx.notes.count(Note::Outside(names.request), 1);
        }
        if owner == Owner::Ambiguous {
            cx.notes.count(Note::UnknownWaiter(names.request), 1);
        }
        let by = (NodeBy::Request, node);
        self.published_by(cx, owner, vertex, names.request, by, event.time);
        self.end_output(owner, (names.request, false), event.time, &own);
        let mut to = None;
        if let Some(vertex) = vertex {
            let services = &cx.entities.endpoints(Some(name)).services;
            if let Some(&service) = services.first() {
                let service = self.service_vertex(cx, service, Some(node));
                self.graph
                    .count_published(vertex, hop(service, names.request), event.time);
                to = Some(service);
            }
        }
        let sent = Sent {
            client,
            time: event.time,
            taken: false,
            vertex,
            to,
            lineages: self.lineage.steps.share(&own),
            ambiguous: owner == Owner::Ambiguous,
        };
        let services = &mut self.ways.services;
        let key = (name, event.sequence);
        services.sent.entry(key).or_default().push(sent);
        services
            .sent_order
            .push_back((name, event.sequence, client));
        if services.sent_order.len() > MAX_CALLS {
            if let Some((name, sequence, client)) = services.sent_order.pop_front() {
                self.drop_sent(cx, name, sequence, client);
            }
        }
    }

    pub(super) fn drop_old_calls(&mut self, cx: &mut Context, time: u64, freed: &Marks) {
        let services = &self.ways.services;
        let is_old = |&(name, sequence, client): &(NameId, i64, EntityId)| {
            let mut sent = services.sent(name, sequence).iter();
            let waits = sent.any(|s| s.client == client && s.time >= time);
            !waits || freed.has(client.index())
        };
        let order = services.sent_order.iter().copied();
        let (old, order): (Vec<_>, Vec<_>) = order.partition(is_old);
        self.ways.services.sent_order = order.into();
        for (name, sequence, client) in old {
            self.drop_sent(cx, name, sequence, client);
        }
        let services = &self.ways.services;
        let is_old = |key: &CallKey| {
            let call = services.calls.get(key);
            call.is_none_or(|call| {
                call.is_old(time) || call.client.is_some_and(|c| freed.has(c.index()))
            })
        };
        let order = services.call_order.iter().copied();
        let (old, order): (Vec<_>, Vec<_>) = order.partition(is_old);
        self.ways.services.call_order = order.into();
        for key in old {
            self.drop_call(cx, key, true);
        }
        self.ways.services.actions.forget_clients(freed);
    }

    fn drop_sent(&mut self, cx: &Context, name: NameId, sequence: i64, client: EntityId) {
        let Some(list) = self.ways.services.sent.get_mut(&(name, sequence)) else {
            return;
        };
        let Some(i) = list.iter().position(|s| s.client == client) else {
            return;
        };
        let mut sent = list.remove(i);
        if list.is_empty() {
            self.ways.services.sent.remove(&(name, sequence));
        }
        let names = cx.entities.get(client).service_names();
        self.report_sent(name, &sent);
        if let (false, Some(to), Some(names)) = (sent.taken, sent.to, names) {
            let lost = (sent.vertex, sent.lineages, sent.time);
            self.lose(lost, hop(to, names.request), 1, false);
        }
        self.lineage.steps.release_all(&mut sent.lineages);
    }

    fn report_sent(&mut self, name: NameId, sent: &Sent) {
        if sent.taken {
            return;
        }
        let open = self.now.saturating_sub(sent.time) <= LOST_AFTER_NS;
        let perhaps_executed = self.ways.services.unknown_callers.contains(&name);
        self.request_outcome(|| RequestOutcome {
            from: sent.vertex.map(|v| v.index() as u32),
            to: sent.to.map(|v| v.index() as u32),
            name: name.index() as u32,
            sent_ns: sent.time,
            began_ns: None,
            responded_ns: None,
            received_ns: None,
            open,
            perhaps_executed,
        });
    }

    /// Records that a service takes a request. Returns the vertex of the service for this client.
    /// `client` is `None` if it stays unknown which client sent the request.
    pub(super) fn take_request(
        &mut self,
        cx: &mut Context,
        service: EntityId,
        client: Option<EntityId>,
        sequence: i64,
    ) -> (VertexId, Option<Incoming>) {
        let Some(client) = client else {
            return (self.service_vertex(cx, service, None), None);
        };
        let node = self.home_of(cx, client);
        let to = self.service_vertex(cx, service, Some(node));
        let name = cx.entities.get(service).name();
        let names = cx.entities.get(client).service_names();
        let (Some(name), Some(names)) = (name, names) else {
            return (to, None);
        };
        let sent = self.ways.services.sent.get_mut(&(name, sequence));
        let mut sent = sent.into_iter().flatten();
        let Some(sent) = sent.find(|s| s.client == client && !s.taken) else {
            return (to, None);
        };
        sent.taken = true;
        let incoming = Incoming {
            vertex: sent.vertex,
            time: sent.time,
            name: names.request,
            route: Route::Topic,
            lineages: self.lineage.steps.share(&sent.lineages),
            ambiguous: sent.ambiguous,
        };
        let expected = sent.to;
        if let Some(vertex) = incoming.vertex {
            if expected != Some(to) {
                // Another server than the expected one took the request.
                let hop_to = hop(to, names.request);
                self.graph.count_published(vertex, hop_to, incoming.time);
                if let Some(expected) = expected {
                    let hop = hop(expected, names.request);
                    let figures = self.graph.sent(vertex, hop, incoming.time);
                    figures.published = figures.published.saturating_sub(1);
                }
            }
            let hop = hop(to, names.request);
            self.graph.count_taken(vertex, hop, incoming.time);
        }
        (to, Some(incoming))
    }

    pub(super) fn open_call(
        &mut self,
        cx: &mut Context,
        instance: InstanceId,
        vertex: VertexId,
        client: Option<EntityId>,
        key: CallKey,
    ) {
        self.drop_call(cx, key, true);
        if let Some(client) = client {
            self.ways.services.call_of.insert((client, key.2), key);
        } else {
            self.ways.services.unknown_callers.insert(key.0);
        }
        let began = self.instances.get(instance).map(|it| it.start);
        let mut sent = self.ways.services.sent(key.0, key.2).iter();
        let sent = sent.find(|s| Some(s.client) == client && s.taken);
        let request = sent.zip(began).map(|(sent, began)| AsSent {
            from: sent.vertex,
            time: sent.time,
            began,
        });
        let call = Call {
            vertex,
            client,
            request,
            received: None,
            state: CallState::Running(instance),
            responded: None,
            lineages: Lineages::default(),
        };
        self.ways.services.calls.insert(key, call);
        if let Some(it) = self.instances.get_mut(instance) {
            it.call = Some(key);
        }
        self.ways.services.call_order.push_back(key);
        if self.ways.services.call_order.len() > MAX_CALLS {
            if let Some(old) = self.ways.services.call_order.pop_front() {
                self.drop_call(cx, old, true);
            }
        }
    }

    /// Handles the end of a service's callback. `time` is the time of the callback's last output,
    /// or the callback's end if it has no output.
    ///
    /// Returns true if the response comes later. The stored call then keeps the lineages.
    pub(super) fn end_call(
        &mut self,
        key: CallKey,
        whole: bool,
        (time, output): (u64, Option<NameId>),
        lineages: Lineages,
    ) -> bool {
        let Some(call) = self.ways.services.calls.get_mut(&key) else {
            return false;
        };
        let waits = whole && call.responded.is_none();
        if waits {
            call.state = CallState::Ended { time, output };
            call.lineages = lineages;
        } else if !matches!(call.state, CallState::Ambiguous) {
            call.state = CallState::Done;
        }
        waits
    }

    pub(super) fn respond(&mut self, cx: &mut Context, event: &Response) {
        let it = cx.entities.get(event.service);
        let (Some(name), Some(names)) = (it.name(), it.service_names()) else {
            return;
        };
        let (time, response) = (event.time, names.response);
        let key = (name, event.gid, event.sequence);
        let call = self.ways.services.calls.get(&key);
        if call.is_none_or(|call| call.responded.is_some()) {
            return;
        }
        let made = match event.made_by {
            MadeBy::Handed(hand) => self.take_hand(hand),
            MadeBy::Later(by) => {
                self.leave_response(cx, key, by, (time, response));
                None
            }
            MadeBy::Service | MadeBy::Unknown => None,
        };
        let Some(call) = self.ways.services.calls.get_mut(&key) else {
            return;
        };
        call.responded = Some(time);
        if matches!(event.made_by, MadeBy::Handed(_) | MadeBy::Unknown) {
            // The service handed the work on to another callback, so the service's own lineages end
            // here.
            if let CallState::Ended { time, output } = call.state {
                self.lineage.finish(&call.lineages, time, output);
            }
            self.lineage.steps.release_all(&mut call.lineages);
            let Some(made) = made else {
                call.state = CallState::Ambiguous;
                cx.notes.count(Note::UnknownGoal(name), 1);
                return;
            };
            call.state = CallState::Done;
            (call.vertex, call.lineages) = (made.from, made.lineages);
        }
        let (vertex, client) = (call.vertex, call.client);
        self.graph.vertex_mut(vertex).add_output(response);
        let of_call = (call.state, call.lineages);
        match call.state {
            CallState::Running(instance) => {
                if let Some(it) = self.instances.get_mut(instance) {
                    self.observer.published(it.thread, response, time);
                    it.outputs += 1;
                    it.output = Some((time, response));
                    call.lineages = self.lineage.steps.share(&it.lineages);
                }
            }
            CallState::Ended { .. } => {
                self.lineage.finish(&call.lineages, time, Some(response));
            }
            CallState::Done | CallState::Ambiguous => {}
        }
        let lineages = match of_call {
            (CallState::Running(instance), _) => self.source(Owner::Instance(instance)).1,
            (_, lineages) => lineages,
        };
        let output = Some(response);
        let end = ChainEnd {
            vertex,
            output,
            time,
            cut: None,
        };
        self.lineage.end_at(end, &lineages);
        if let Some(client) = client {
            let to = self.vertex(cx, client);
            self.graph.count_published(vertex, hop(to, response), time);
        }
    }

    /// Records that the callback `by` responds to a request that the service's callback had stored.
    /// The lineages of the request continue through the node's memory to `by`, unless `by` has them
    /// already.
    fn leave_response(
        &mut self,
        cx: &mut Context,
        key: CallKey,
        by: InstanceId,
        (time, response): (u64, NameId),
    ) {
        let (Some(call), Some(&it)) = (self.ways.services.calls.get(&key), self.instances.get(by))
        else {
            return;
        };
        let from = call.vertex;
        let (mut own, left) = match call.state {
            CallState::Running(service) => {
                let Some(service) = self.instances.get(service).filter(|_| service != by) else {
                    return;
                };
                (self.lineage.steps.share(&service.lineages), service.start)
            }
            CallState::Ended { time, .. } => (self.lineage.steps.share(&call.lineages), time),
            CallState::Done | CallState::Ambiguous => return,
        };
        let hop = self.ways.links.hop(it.vertex, Route::Made);
        let mut lineages = Lineages::default();
        let data = (&own, hop.name, left);
        let next = (it.vertex, it.start, it.began());
        self.lineage
            .extend(&mut cx.notes, &mut lineages, data, next, false);
        self.lineage.steps.release_all(&mut own);
        if lineages.as_slice().is_empty() {
            return;
        }
        let figures = self.graph.sent(from, hop, left);
        figures.published += 1;
        figures.taken += 1;
        figures.latency_ns.record(it.start.saturating_sub(left));
        self.observer.published(it.thread, response, time);
        if let Some(it) = self.instances.get_mut(by) {
            it.outputs += 1;
            it.output = Some((time, response));
        }
        self.lineage.finish(&lineages, time, Some(response));
        let Some(call) = self.ways.services.calls.get_mut(&key) else {
            return;
        };
        self.lineage.steps.release_all(&mut call.lineages);
        (call.vertex, call.lineages, call.state) = (it.vertex, lineages, CallState::Done);
    }

    fn drop_call(&mut self, cx: &mut Context, key: CallKey, lost: bool) {
        let Some(mut call) = self.ways.services.calls.remove(&key) else {
            return;
        };
        if let Some(client) = call.client {
            let of = (client, key.2);
            if self.ways.services.call_of.get(&of) == Some(&key) {
                self.ways.services.call_of.remove(&of);
            }
        }
        if let CallState::Running(instance) = call.state {
            if let Some(it) = self.instances.get_mut(instance) {
                it.call = None;
            }
        }
        if let Some(request) = call.request {
            let to = Some(call.vertex);
            let last = call.responded.unwrap_or(request.began);
            let open = self.now.saturating_sub(last) <= LOST_AFTER_NS;
            self.request_outcome(|| RequestOutcome {
                from: request.from.map(|v| v.index() as u32),
                to: to.map(|v| v.index() as u32),
                name: key.0.index() as u32,
                sent_ns: request.time,
                began_ns: Some(request.began),
                responded_ns: call.responded,
                received_ns: call.received,
                open: open && call.received.is_none(),
                perhaps_executed: false,
            });
        }
        match (call.responded, call.client, call.state) {
            (_, _, CallState::Ambiguous) => {}
            (Some(responded), Some(client), _) if lost => {
                let to = self.vertex(cx, client);
                if let Some(names) = cx.entities.get(client).service_names() {
                    let item = (Some(call.vertex), call.lineages, responded);
                    self.lose(item, hop(to, names.response), 1, false);
                }
            }
            (None, _, CallState::Ended { time, output }) => {
                self.lineage.finish(&call.lineages, time, output);
            }
            _ => {}
        }
        self.lineage.steps.release_all(&mut call.lineages);
    }

    pub(super) fn take_response(
        &mut self,
        cx: &mut Context,
        client: EntityId,
        (sequence, at): (i64, u64),
    ) -> Option<Incoming> {
        let key = *self.ways.services.call_of.get(&(client, sequence))?;
        let call = self.ways.services.calls.get_mut(&key)?;
        call.received = Some(at);
        let time = call.responded?;
        let (vertex, own) = (call.vertex, call.lineages);
        let certain = !matches!(call.state, CallState::Ambiguous);
        let asked = call.request.filter(|_| certain).and_then(|request| {
            Some(Asked {
                from: request.from?.index() as u32,
                to: vertex.index() as u32,
                sent_ns: request.time,
                received_ns: at,
            })
        });
        if let Some(followed) = &mut self.lineage.paths.followed {
            followed.asked.extend(asked);
        }
        let name = cx.entities.get(client).service_names()?.response;
        let to = self.vertex(cx, client);
        if certain {
            self.graph.count_taken(vertex, hop(to, name), time);
        }
        let lineages = self.lineage.steps.share(&own);
        self.drop_call(cx, key, false);
        Some(Incoming {
            vertex: certain.then_some(vertex),
            time,
            name,
            route: Route::Topic,
            lineages,
            ambiguous: !certain,
        })
    }

    /// Drops all requests and stored calls at the end of the recording. Requests and calls for
    /// which `is_old` returns true count as lost.
    pub(super) fn settle_services(&mut self, cx: &mut Context, is_old: impl Fn(u64) -> bool) {
        while let Some((name, sequence, client)) = self.ways.services.sent_order.pop_front() {
            let mut sent = self.ways.services.sent(name, sequence).iter();
            let Some(sent) = sent.find(|s| s.client == client).cloned() else {
                continue;
            };
            match is_old(sent.time) {
                true => self.drop_sent(cx, name, sequence, client),
                false => self.report_sent(name, &sent),
            }
        }
        while let Some(key) = self.ways.services.call_order.pop_front() {
            let call = self.ways.services.calls.get(&key);
            let old = call.is_some_and(|c| c.responded.is_some_and(&is_old));
            self.drop_call(cx, key, old);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{talk, Harness, PAIR};

    #[test]
    fn a_request_and_its_response_are_two_edges() {
        let trace = format!(
            "{PAIR}
1ms cpu0 10/10 client_init client=0x40 node=0x1 rmw=0x1040 name=/s
1ms cpu1 20/20 service_init service=0x30 node=0x1 rmw=0x1030 name=/s
{}
21000us cpu0 10/10 timer_call timer=0x50
21000us cpu0 10/10 callback_start callback=0x60
21010us cpu0 10/10 request_send rmw=0x1040 sequence=3
21020us cpu0 10/10 callback_end callback=0x60
22000us cpu1 20/20 request_take rmw=0x1030 gid=01010101010101010101010101010101 sequence=3
22500us cpu1 20/20 response_send rmw=0x1030 gid=01010101010101010101010101010101 sequence=3 source_ns=-
22600us cpu1 20/20 wait_set_init
23000us cpu0 10/10 execute_start execute=client
23000us cpu0 10/10 response_take rmw=0x1040 sequence=3 source_ns=0
23100us cpu0 10/10 execute_end execute=client",
            talk(11_000)
        );
        let edges = Harness::new(&trace).edges();
        let service = "/listener:service(/s)@/talker";
        assert!(edges.contains(&format!("/talker:timer(10ms) -> {service}: 1/1/0/0")));
        assert!(edges.contains(&format!("{service} -> /talker:client(/s): 1/1/0/0")));
    }
}
