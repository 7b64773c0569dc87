//! The actions of rclpy. rclpy takes all ready endpoints on one side of an action at once and
//! handles them in one execution. The execution belongs to the endpoint whose user code runs in it.

use super::continuation::PendingResponse;
use super::span::{CallbackSpan, Inferred, Together, Triggers};
use super::Spans;
use crate::entities::{ActionPart, EntityKind};
use crate::events::{Begin, Ending, Input, SpanEvent};
use crate::ids::{EntityId, ThreadIndex};
use crate::values::Release;
use crate::Context;

impl Spans {
    /// Reports whether the entity `e`, which the thread reads now, belongs to the execution of the
    /// thread's last read. This can only happen for endpoints of one action, because rclpy takes
    /// from several of them at once.
    pub(crate) fn is_together(&self, cx: &Context, ti: ThreadIndex, e: EntityId) -> bool {
        let Some(action) = cx.entities.get(e).action else {
            return false;
        };
        let thread = &self.threads[ti];
        let Some(span) = thread.span().filter(|_| !thread.is_rclcpp()) else {
            return false;
        };
        let fresh = match &span.bounds {
            super::Bounds::Inferred(Inferred { triggers, .. }) => {
                matches!(triggers, Triggers::None) && span.instance.is_none()
            }
            super::Bounds::Exact(_) => false,
        };
        let serves = |e: EntityId| cx.entities.get(e).kind() == EntityKind::Service;
        fresh
            && span.entity.is_some_and(|first| {
                let it = cx.entities.get(first);
                first != e
                    && it.action.map(|a| a.action) == Some(action.action)
                    && serves(first) == serves(e)
            })
    }

    pub(super) fn take_together(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        entity: EntityId,
        input: Input,
    ) {
        let Some(span) = self.threads[ti].span_mut() else {
            return;
        };
        let mut other = Together { entity, input };
        if let Some(first) = span.entity {
            if importance(cx, entity) > importance(cx, first) {
                other = Together {
                    entity: first,
                    input: span.input,
                };
                (span.entity, span.input) = (Some(entity), input);
            }
        }
        if let Some(inferred) = span.inferred_mut() {
            inferred.taken_together.push(other);
        }
    }

    pub(super) fn settle_together(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        span: &mut CallbackSpan,
        time: u64,
    ) {
        let Some(inferred) = span.inferred_mut() else {
            return;
        };
        for other in std::mem::take(&mut inferred.taken_together) {
            self.settle(cx, ti, span, other, time);
        }
    }

    fn settle(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        span: &CallbackSpan,
        other: Together,
        time: u64,
    ) {
        if cx.entities.is_hidden(other.entity) {
            return;
        }
        let now = self.threads[ti].account.mark(time);
        match other.input {
            // The code that waits for the response runs later.
            Input::Response { .. } => self.push_response(
                ti,
                PendingResponse {
                    client: other.entity,
                    input: other.input,
                    thread: ti,
                    taken_at: span.from.time,
                    from: span.from,
                    to: now,
                    idle: self.threads[ti].phase.idle(),
                    cpus: span.cpus,
                    doubtful: false,
                },
            ),
            _ => {
                let instance = self.instances.next();
                self.new_events.push(SpanEvent::Begin(Begin {
                    instance,
                    entity: other.entity,
                    start: span.from.time,
                    thread: self.threads[ti].id,
                    input: other.input,
                    idle: self.threads[ti].phase.idle(),
                    release: Release::Unknown,
                }));
                let end = (now.time, span.spent(&now));
                self.end(ti, instance, end, Ending::Shared, span.cpus);
            }
        }
    }

    pub(super) fn settle_service(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        service: EntityId,
        time: u64,
    ) {
        let span = self.threads[ti].span_mut();
        let Some(inferred) = span.and_then(|span| span.inferred_mut()) else {
            return;
        };
        let Some(at) = inferred
            .taken_together
            .iter()
            .position(|o| o.entity == service)
        else {
            return;
        };
        let other = inferred.taken_together.remove(at);
        if let Some(span) = self.threads[ti].take_span() {
            self.settle(cx, ti, &span, other, time);
            self.threads[ti].put_span(span);
        }
    }
}

/// Returns the rank of an action's endpoint. An execution that handles several endpoints belongs to
/// the endpoint with the highest rank, because it runs the user code of this endpoint.
fn importance(cx: &Context, e: EntityId) -> u8 {
    match cx.entities.get(e).action.map(|a| a.part) {
        Some(ActionPart::Feedback) => 4,
        Some(ActionPart::Goal) => 3,
        Some(ActionPart::Cancel) => 2,
        Some(ActionPart::Result) => 1,
        Some(ActionPart::Status) | None => 0,
    }
}
