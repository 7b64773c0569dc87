//! Which callback publishes, sends and receives: events that concern data, with their cause.

use super::continuation::is_elsewhere;
use super::span::CallbackSpan;
use super::{Spans, Why};
use crate::events::{Enqueue, Owner, Publication, Request, Response, SpanEvent};
use crate::ids::{EntityId, InstanceId, ThreadIndex};
use crate::Context;

impl Spans {
    /// The cause of a publication or request by `endpoint` on this thread now.
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
                let alone = self.go_on_alone(ti, time);
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
        // What follows the last trigger may be the callback's, or may already be code that
        // waited for a response.
        if self.waits_for_response(cx, ti, &span) {
            if self.is_awaited(ti, &span) {
                let waiting = self.go_on_after(cx, ti, time, span);
                return waiting.map_or(Owner::Outside, Owner::Instance);
            }
            let from = self.continuation_start(ti, time, triggered);
            self.push_pending(ti, &span);
            return self.continuation_owner(cx, ti, time, endpoint, from);
        }
        if self.some_pending(ti) {
            let from = self.continuation_start(ti, time, triggered);
            self.close(cx, ti, span, time, Why::Executor);
            return self.continuation_owner(cx, ti, time, endpoint, from);
        }
        if self.is_left(cx, ti, &span, endpoint) {
            self.close(cx, ti, span, time, Why::Executor);
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

    /// Whether a worker publishes by an endpoint of another node than its last callback, after the
    /// trigger at that one's end: it runs a task.
    fn is_left(
        &self,
        cx: &Context,
        ti: ThreadIndex,
        span: &CallbackSpan,
        endpoint: Option<EntityId>,
    ) -> bool {
        let both = span.entity.zip(endpoint);
        !self.threads[ti].waits && both.is_some_and(|(a, b)| is_elsewhere(cx, a, b))
    }

    /// Something is published: what was read within a callback is its own input, or by now the
    /// input of another one that runs.
    fn settle_before_output(&mut self, cx: &Context, ti: ThreadIndex) {
        let thread = &self.threads[ti];
        if thread.outer().is_empty() {
            return;
        }
        if thread.span().is_some_and(|span| span.opened().is_some()) {
            self.suspend_outer(cx, ti);
        } else {
            self.settle_read(cx, ti);
        }
    }

    /// The running instance on a thread.
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

    /// `rcl_publish`: names the publisher that the middleware's publication, which follows, does
    /// not name in a late attach.
    pub(crate) fn rcl_publish(&mut self, ti: ThreadIndex, publisher: u64, message: u64) {
        self.threads[ti].calls.rcl_publish = (publisher, message);
    }

    /// The publisher's rcl handle in the last `rcl_publish` of this message.
    pub(crate) fn last_rcl_publish(&self, ti: ThreadIndex, message: u64) -> Option<u64> {
        let (publisher, m) = self.threads[ti].calls.rcl_publish;
        (publisher != 0 && (m == message || message == 0)).then_some(publisher)
    }

    /// `rclcpp_intra_publish`
    pub(crate) fn intra_publish(
        &mut self,
        ti: ThreadIndex,
        publisher: Option<EntityId>,
        time: u64,
    ) {
        let calls = &mut self.threads[ti].calls;
        (calls.intra_publisher, calls.intra_publish) = (publisher, Some(time));
    }

    /// The publisher of the thread's last message within its process.
    pub(crate) fn intra_publisher(&self, ti: ThreadIndex) -> Option<EntityId> {
        self.threads[ti].calls.intra_publisher
    }

    /// A message is put into the ring buffer of a subscription.
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
        self.out.push(SpanEvent::Enqueue(Enqueue {
            owner,
            publisher,
            subscription,
            index,
            time,
            message,
        }));
    }

    /// A ring buffer is emptied.
    pub(crate) fn clear(&mut self, subscription: EntityId) {
        self.out.push(SpanEvent::Clear { subscription });
    }

    /// A message is published through the middleware.
    pub(crate) fn publish(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        publisher: EntityId,
        source_ns: Option<i64>,
    ) {
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
        self.out.push(SpanEvent::Publish(Publication {
            owner,
            publisher,
            time,
            source_ns,
            message,
        }));
    }

    /// A client sends a request.
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
        self.out.push(SpanEvent::Request(Request {
            owner,
            client,
            sequence,
            time,
        }));
    }

    /// A service sends a response: normally inside or right after its callback.
    pub(crate) fn respond(&mut self, cx: &mut Context, ti: ThreadIndex, mut response: Response) {
        response.made_by = self.result_of_goal(cx, ti, response.service);
        self.settle_service(cx, ti, response.service, response.time);
        self.running(cx, ti);
        let thread = &mut self.threads[ti];
        let mark = thread.account.mark(response.time);
        let span = thread.span_mut();
        let span = span.filter(|span| span.entity == Some(response.service));
        if let Some(inferred) = span.and_then(|span| span.inferred_mut()) {
            inferred.responded.get_or_insert(mark);
        }
        self.out.push(SpanEvent::Response(response));
    }

    /// A callback hands its input to a synchroniser.
    pub(crate) fn synchronise(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        time: u64,
        (filter, approximate): (u64, bool),
    ) {
        if let Some(instance) = self.running(cx, ti) {
            self.out.push(SpanEvent::Synchronise {
                instance,
                filter,
                approximate,
                time,
            });
        }
    }
}
