//! The owners of publications, requests and responses: which callback sends or receives each item.

use super::continuation::are_of_different_nodes;
use super::span::CallbackSpan;
use super::{CloseReason, Spans};
use crate::events::{EndHold, HoldEnd, SpanEvent};
use crate::events::{Enqueue, HeldMessage, MadeBy, Owner, Publication, Request, Response};
use crate::ids::{EntityId, InstanceId, ThreadIndex};
use crate::Context;

impl Spans {
    fn owner(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        endpoint: Option<EntityId>,
    ) -> Owner {
        self.settle_before_output(cx, ti);
        if let Some(owner) = self.goal_owner(cx, ti, time, endpoint) {
            return owner;
        }
        let thread = &mut self.threads[ti];
        if thread.continuation().is_some() {
            let now = thread.account.mark(time);
            return self.continuation_owner(cx, ti, time, endpoint, now);
        }
        let Some(mut span) = thread.take_span() else {
            if thread.running.own.is_known() || thread.calls.unseen {
                return Owner::Outside;
            }
            if !self.some_pending(ti) {
                let alone = self.continue_only_suspended(ti, time);
                return alone.map_or(Owner::Outside, Owner::Instance);
            }
            let from = self.continuation_start(ti, time, None);
            return self.continuation_owner(cx, ti, time, endpoint, from);
        };
        let triggered = span.triggered().map(|t| t.last);
        if triggered.is_none() {
            self.begin(cx, ti, &mut span);
            let owner = span.instance.map_or(Owner::Hidden, Owner::Instance);
            let after_spin = span
                .instance
                .and_then(|_| self.owner_after_spin(cx, &mut span));
            self.threads[ti].put_span(span);
            return after_spin.unwrap_or(owner);
        }
        // The code after the last trigger may be the callback's, or may already be code that waited
        // for a response.
        if self.waits_for_response(cx, ti, &span) {
            if self.is_awaited(ti, &span) {
                let waiting = self.continue_after_response(cx, ti, time, span);
                return waiting.map_or(Owner::Outside, Owner::Instance);
            }
            let from = self.continuation_start(ti, time, triggered);
            self.push_pending(ti, &span);
            return self.continuation_owner(cx, ti, time, endpoint, from);
        }
        if self.some_pending(ti) {
            let from = self.continuation_start(ti, time, triggered);
            self.close(cx, ti, span, time, CloseReason::ExecutorWentOn);
            return self.continuation_owner(cx, ti, time, endpoint, from);
        }
        if self.runs_task(cx, ti, &span, endpoint) {
            self.close(cx, ti, span, time, CloseReason::ExecutorWentOn);
            return Owner::Outside;
        }
        self.begin(cx, ti, &mut span);
        let mut owner = Owner::Hidden;
        if span.instance.is_some() {
            let new = self.new_decision();
            if let Some(triggered) = span.triggered_mut() {
                owner = Owner::Undecided(*triggered.undecided.get_or_insert(new));
            }
        }
        self.threads[ti].put_span(span);
        owner
    }

    /// Reports whether a publication by `endpoint` shows that a worker already runs a task,
    /// although `span` has not ended. The publication shows it if `endpoint` and the callback of
    /// `span` belong to different nodes.
    fn runs_task(
        &self,
        cx: &Context,
        ti: ThreadIndex,
        span: &CallbackSpan,
        endpoint: Option<EntityId>,
    ) -> bool {
        let both = span.entity.zip(endpoint);
        !self.threads[ti].waits && both.is_some_and(|(a, b)| are_of_different_nodes(cx, a, b))
    }

    /// Decides whether the item that a callback has read is an input of this callback, or of a
    /// nested callback that runs now. Called before a publication is assigned to a callback.
    fn settle_before_output(&mut self, cx: &Context, ti: ThreadIndex) {
        let thread = &self.threads[ti];
        if thread.outer().is_empty() {
            return;
        }
        if thread.span().is_some_and(|span| span.read_at().is_some()) {
            self.suspend_outer_callback(cx, ti);
        } else {
            self.settle_read(cx, ti);
        }
    }

    fn running(&mut self, cx: &Context, ti: ThreadIndex) -> Option<InstanceId> {
        self.settle_before_output(cx, ti);
        let mut span = self.threads[ti].take_span()?;
        if !span.is_kept() {
            self.begin(cx, ti, &mut span);
        }
        let instance = span.instance;
        self.threads[ti].put_span(span);
        instance
    }

    /// Records the publisher of an `rcl_publish`. After a late attach, the event of the
    /// middleware's publication that follows does not name a publisher. The recorded publisher then
    /// counts as the publisher of that event.
    pub(crate) fn rcl_publish(&mut self, ti: ThreadIndex, publisher: u64, message: u64) {
        self.threads[ti].calls.rcl_publish = (publisher, message);
    }

    pub(crate) fn last_rcl_publish(&self, ti: ThreadIndex, message: u64) -> Option<u64> {
        let (publisher, m) = self.threads[ti].calls.rcl_publish;
        (publisher != 0 && (m == message || message == 0)).then_some(publisher)
    }

    pub(crate) fn intra_publish(
        &mut self,
        ti: ThreadIndex,
        publisher: Option<EntityId>,
        time: u64,
    ) {
        let calls = &mut self.threads[ti].calls;
        (calls.intra_publisher, calls.intra_publish) = (publisher, Some(time));
    }

    pub(crate) fn intra_publisher(&self, ti: ThreadIndex) -> Option<EntityId> {
        self.threads[ti].calls.intra_publisher
    }

    pub(crate) fn enqueue(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        subscription: EntityId,
        index: u64,
    ) {
        let calls = &self.threads[ti].calls;
        let (publisher, message) = (calls.intra_publisher, calls.intra_publish);
        let mut owner = self.owner(cx, ti, time, publisher);
        if let (Owner::Outside, Some(publisher)) = (owner, publisher) {
            owner = self.own_publication(&cx.entities, ti, time, (publisher, message));
        }
        self.new_events.push(SpanEvent::Enqueue(Enqueue {
            owner,
            publisher,
            subscription,
            index,
            time,
            message,
        }));
    }

    pub(crate) fn clear(&mut self, subscription: EntityId) {
        self.new_events.push(SpanEvent::Clear { subscription });
    }

    pub(crate) fn publish(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        (publisher, address, source_ns): (EntityId, u64, Option<i64>),
    ) {
        let marked = HeldMessage::of_marked(address);
        let ended = match marked {
            None => Some((HeldMessage::at(address), HoldEnd::Sent(source_ns))),
            Some(held) if source_ns == Some(0) => Some((held, HoldEnd::Discarded)),
            Some(_) => None,
        };
        if let Some((held, how)) = ended {
            if self.end_hold(publisher, held, time, how) || how == HoldEnd::Discarded {
                return;
            }
        }
        self.held.extend(marked.map(|held| (publisher, held)));
        let mut owner = self.owner(cx, ti, time, Some(publisher));
        self.note_goal_state(cx, ti, publisher);
        let calls = &mut self.threads[ti].calls;
        let message = if calls.intra_publisher == Some(publisher) {
            calls.intra_publish.take()
        } else {
            None
        };
        if source_ns.is_none() {
            calls.unstamped = Some(publisher);
        }
        if owner == Owner::Outside {
            owner = self.own_publication(&cx.entities, ti, time, (publisher, message));
        }
        self.new_events.push(SpanEvent::Publish(Publication {
            owner,
            publisher,
            time,
            source_ns,
            message,
            held: marked,
        }));
    }

    /// Reports that a shaper stops holding a message back. Returns false if no shaper holds this
    /// message.
    fn end_hold(
        &mut self,
        publisher: EntityId,
        held: HeldMessage,
        time: u64,
        how: HoldEnd,
    ) -> bool {
        let is_held = self.held.remove(&(publisher, held));
        if is_held {
            self.new_events.push(SpanEvent::EndHold(EndHold {
                publisher,
                held,
                time,
                how,
            }));
        }
        is_held
    }

    pub(crate) fn request(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        client: EntityId,
        sequence: i64,
    ) {
        let owner = self.owner(cx, ti, time, Some(client));
        match owner {
            Owner::Instance(by) => self.ask(cx, ti, Some(by), (client, sequence)),
            Owner::Outside => self.ask(cx, ti, None, (client, sequence)),
            _ => {}
        }
        self.new_events.push(SpanEvent::Request(Request {
            owner,
            client,
            sequence,
            time,
        }));
    }

    pub(crate) fn respond(&mut self, cx: &mut Context, ti: ThreadIndex, mut response: Response) {
        response.made_by = self.result_of_goal(cx, ti, response.service);
        self.settle_service(cx, ti, response.service, response.time);
        self.learn_endless(cx, response.service);
        let running = self.running(cx, ti);
        if response.made_by == MadeBy::Service {
            let by = running.filter(|_| self.responds_later(cx, ti, response.service));
            response.made_by = by.map_or(MadeBy::Service, MadeBy::Later);
        }
        let thread = &mut self.threads[ti];
        let mark = thread.account.mark(response.time);
        let span = thread.span_mut();
        let span = span.filter(|span| span.entity == Some(response.service));
        if let Some(inferred) = span.and_then(|span| span.inferred_mut()) {
            inferred.responded.get_or_insert(mark);
        }
        self.new_events.push(SpanEvent::Response(response));
    }

    fn responds_later(&self, cx: &Context, ti: ThreadIndex, service: EntityId) -> bool {
        let span = self.threads[ti].span().filter(|span| span.is_exact());
        span.is_some_and(|span| span.entity != Some(service))
            && cx.entities.get(service).action.is_none()
    }

    pub(crate) fn synchronise(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        time: u64,
        (filter, approximate): (u64, bool),
    ) {
        if let Some(instance) = self.running(cx, ti) {
            self.new_events.push(SpanEvent::Synchronise {
                instance,
                filter,
                approximate,
                time,
            });
        }
    }
}
