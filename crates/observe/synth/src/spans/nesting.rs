//! Callbacks that nest: one that takes items itself (`take()`), or one that runs an executor, whose
//! callbacks run within it. Each thread has a stack, which the ending callback pops.
//!
//! An entity that is read within a callback is the input of a callback that starts next. If none
//! starts, it is one more input of the running callback.

use super::span::CallbackSpan;
use super::{CloseReason, Spans};
use crate::entities::EntityKind;
use crate::events::{Input, OwnInput, Owner, SpanEvent};
use crate::ids::{EntityId, ThreadIndex};
use crate::notes::Note;
use crate::Context;

/// The maximum number of callbacks on a thread that wait for a nested callback. If there is one
/// more, the outermost of them counts as aborted.
const MAX_OUTER: usize = 8;

impl Spans {
    /// Reports whether the thread runs a callback that has its own end event. Also returns true if
    /// a callback on the thread waits for a nested one.
    pub(super) fn is_within(&self, ti: ThreadIndex) -> bool {
        let thread = &self.threads[ti];
        !thread.outer().is_empty() || thread.span().is_some_and(CallbackSpan::is_exact)
    }

    /// Records that an executor makes a call on the thread although a callback has not ended there.
    /// Either the callback runs this executor itself, or an exception ended the callback.
    pub(super) fn spin_within(&mut self, cx: &Context, ti: ThreadIndex, time: u64) {
        self.settle_inner(cx, ti, time);
        let thread = &mut self.threads[ti];
        let now = thread.account.mark(time);
        if let Some(span) = thread.span_mut() {
            let spent = span.spent(&now);
            if let Some(exact) = span.exact_mut() {
                exact.spins = true;
                exact.left.get_or_insert((now, spent));
            }
        }
        self.leave_silent(cx, ti, time);
    }

    /// Records that the service responded, or that its callback began again without an end before.
    /// If no callback of the service has reported its end so far, onbeat assumes that none will.
    pub(super) fn learn_endless(&self, cx: &mut Context, e: EntityId) {
        let it = cx.entities.get_mut(e);
        it.nests.endless |= it.kind() == EntityKind::Service && it.exact && !it.nests.ends;
    }

    /// Ends those callbacks on the thread within which an executor has made calls. Ends only
    /// callbacks of services, and only if the callbacks of the service return without an event of
    /// their end.
    fn leave_silent(&mut self, cx: &Context, ti: ThreadIndex, time: u64) {
        let is_left = |span: &CallbackSpan| {
            let left = span.exact().is_some_and(|exact| exact.left.is_some());
            left && span
                .entity
                .is_some_and(|e| cx.entities.get(e).nests.returns_silently())
        };
        while self.threads[ti].span().is_some_and(is_left) {
            let Some(span) = self.threads[ti].take_span() else {
                return;
            };
            self.end_inner(cx, ti, span, time, CloseReason::ExecutorWentOn);
        }
    }

    /// Counts the message that was read last within a callback as an input of this callback,
    /// because the message did not start another callback.
    pub(super) fn settle_read(&mut self, cx: &Context, ti: ThreadIndex) {
        let thread = &mut self.threads[ti];
        if thread.outer().is_empty() || !thread.span().is_none_or(CallbackSpan::may_be_own) {
            return;
        }
        let mut ended = None;
        if let Some(mut span) = thread.take_span() {
            if let Some((guard, read_at)) = span.once() {
                // The trigger since the read was the one after the callback.
                ended = Some((guard, span.from));
                span.from = read_at;
            }
            self.own_input(cx, ti, &span);
        }
        self.unnest(ti, None);
        if let (Some((guard, last)), Some(span)) = (ended, self.threads[ti].span_mut()) {
            span.set_triggered(guard, last);
        }
    }

    /// Decides whether the last item that a callback read is an input of this callback. The item is
    /// an input if the callback is known to take items of this entity, and is dropped otherwise.
    /// Called when nothing more follows on the thread.
    pub(super) fn settle_last(&mut self, cx: &Context, ti: ThreadIndex) {
        let thread = &mut self.threads[ti];
        if thread.outer().is_empty() || !thread.span().is_some_and(CallbackSpan::may_be_own) {
            return;
        }
        if let Some(span) = thread.take_span() {
            let polled = |e| cx.entities.get(e).nests.polled;
            if span.once().is_none() && span.entity.is_some_and(polled) {
                self.own_input(cx, ti, &span);
            }
        }
        self.unnest(ti, None);
    }

    /// Decides whether the item that was last read within a callback belongs to this callback or to
    /// a nested one. Also ends a nested execution that has no end event of its own.
    pub(super) fn settle_inner(&mut self, cx: &Context, ti: ThreadIndex, time: u64) {
        self.settle_read(cx, ti);
        let thread = &mut self.threads[ti];
        if thread.outer().is_empty() || thread.span().is_none_or(CallbackSpan::is_exact) {
            return;
        }
        if let Some(span) = thread.take_span() {
            self.end_inner(cx, ti, span, time, CloseReason::ExecutorWentOn);
        }
    }

    pub(super) fn own_input(&mut self, cx: &Context, ti: ThreadIndex, read: &CallbackSpan) {
        let outer = self.threads[ti].outer().last();
        let instance = outer.and_then(|outer| outer.instance);
        let taken = matches!(
            read.input,
            Input::Message { .. } | Input::Ring { .. } | Input::Response { .. }
        );
        match (instance, read.entity) {
            (Some(instance), Some(entity)) if taken && !cx.entities.is_hidden(entity) => {
                self.new_events.push(SpanEvent::OwnInput(OwnInput {
                    instance,
                    entity,
                    input: read.input,
                    time: read.from.time,
                }));
            }
            _ => self.discard(cx, read),
        }
    }

    /// Handles the receipt of an item of a link on a thread. The item is an input of the running
    /// callback if that callback has its own end event. Otherwise no callback ran on the item.
    pub(crate) fn receive(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        entity: EntityId,
        source_ns: i64,
    ) {
        let input = Input::Message { source_ns };
        let span = self.threads[ti].span().filter(|span| span.is_exact());
        match span.and_then(|span| span.instance) {
            Some(instance) if !cx.entities.is_hidden(entity) => {
                self.new_events.push(SpanEvent::OwnInput(OwnInput {
                    instance,
                    entity,
                    input,
                    time,
                }));
            }
            _ => {
                if let Some(name) = cx.entities.get(entity).name() {
                    cx.notes.count(Note::Unclaimed(name), 1);
                }
                self.read_only(cx, entity, input);
            }
        }
    }

    /// Puts the running callback aside if it can have nested callbacks. This is necessary before an
    /// entity is read or another callback begins within it.
    pub(super) fn nest(&mut self, cx: &Context, ti: ThreadIndex, time: u64) {
        let thread = &self.threads[ti];
        if !thread.span().is_some_and(CallbackSpan::is_exact) && self.open_guard(cx, ti).is_none() {
            return;
        }
        let thread = &mut self.threads[ti];
        let deepest = thread.outer().len() >= MAX_OUTER;
        if let Some(span) = thread.take_span() {
            let outermost = deepest.then(|| thread.outer_mut().remove(0));
            thread.outer_mut().push(span);
            if let Some(outermost) = outermost {
                self.close(cx, ti, outermost, time, CloseReason::ExecutorWentOn);
            }
        }
    }

    pub(super) fn pause_outer(&mut self, ti: ThreadIndex, time: u64) {
        let thread = &mut self.threads[ti];
        let now = thread.account.mark(time);
        if let Some(outer) = thread.outer_mut().last_mut() {
            outer.pause(&now);
        }
    }

    pub(super) fn end_inner(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        mut span: CallbackSpan,
        time: u64,
        why: CloseReason,
    ) {
        if !self.threads[ti].outer().is_empty() {
            self.report_continued(cx, ti, &mut span, time);
        }
        self.close(cx, ti, span, time, why);
        self.unnest(ti, Some(time));
    }

    /// Makes the innermost callback that waits for a nested one the running callback again.
    /// `paused_until` is the end of its pause, if it was paused.
    pub(super) fn unnest(&mut self, ti: ThreadIndex, paused_until: Option<u64>) {
        let thread = &mut self.threads[ti];
        let Some(mut span) = thread.outer_mut().pop() else {
            return;
        };
        if let Some(time) = paused_until {
            span.resume(&thread.account.mark(time));
        }
        thread.put_span(span);
    }

    pub(super) fn leave_open(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        callback: u64,
    ) {
        let is_same = |span: &CallbackSpan| span.is_callback(callback);
        let outer = self.threads[ti].outer();
        let Some(left) = outer.iter().find(|span| is_same(span)) else {
            return;
        };
        if let Some(e) = left.entity {
            self.learn_endless(cx, e);
        }
        while let Some(span) = self.threads[ti].outer_mut().pop() {
            let found = is_same(&span);
            self.close(cx, ti, span, time, CloseReason::ExecutorWentOn);
            if found {
                break;
            }
        }
        let thread = &mut self.threads[ti];
        let now = thread.account.mark(time);
        if let Some(outer) = thread.outer_mut().last_mut() {
            outer.resume(&now);
        }
    }

    /// Handles the end of a callback that may wait for nested callbacks. The nested callbacks did
    /// not report their ends, so they end too. Returns true if the callback was found and is now
    /// the running one.
    pub(super) fn leave_inner(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        time: u64,
        callback: u64,
    ) -> bool {
        let is_same = |span: &CallbackSpan| span.is_callback(callback);
        if self.threads[ti].span().is_some_and(is_same) {
            return true;
        }
        if !self.threads[ti].outer().iter().any(is_same) {
            return false;
        }
        self.settle_inner(cx, ti, time);
        while !self.threads[ti].span().is_some_and(is_same) {
            match self.threads[ti].take_span() {
                Some(span) => self.end_inner(cx, ti, span, time, CloseReason::ExecutorWentOn),
                None => self.unnest(ti, None),
            }
        }
        true
    }

    pub(super) fn end_outer(&mut self, cx: &Context, ti: ThreadIndex, time: u64, why: CloseReason) {
        while let Some(span) = self.threads[ti].outer_mut().pop() {
            self.close(cx, ti, span, time, why);
        }
    }

    /// Returns the owner of a publication by a callback within which an executor ran. The callback
    /// has an end event of its own.
    ///
    /// The owner stays undecided until the callback ends, unless callbacks of the same entity are
    /// known to run executors.
    pub(super) fn owner_after_spin(
        &mut self,
        cx: &Context,
        span: &mut CallbackSpan,
    ) -> Option<Owner> {
        let entity = span.entity?;
        let exact = span.exact_mut()?;
        if !exact.spins || cx.entities.get(entity).nests.spins {
            return None;
        }
        let decision = match exact.undecided {
            Some(decision) => decision,
            None => {
                let new = self.new_decision();
                *exact.undecided.insert(new)
            }
        };
        Some(Owner::Undecided(decision))
    }

    /// Records that a callback with its own end event ended normally, although an executor had made
    /// calls within it. The callback therefore ran that executor itself.
    pub(super) fn prove_spin(&mut self, cx: &mut Context, span: &mut CallbackSpan) {
        let (Some(entity), instance) = (span.entity, span.instance) else {
            return;
        };
        let Some(exact) = span.exact_mut().filter(|e| e.spins) else {
            return;
        };
        let undecided = exact.undecided.take();
        cx.entities.get_mut(entity).nests.spins = true;
        if let Some(decision) = undecided {
            let owner = instance.map_or(Owner::Hidden, Owner::Instance);
            self.new_events.push(SpanEvent::Decided { decision, owner });
        }
    }

    pub(super) fn report_continued(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        span: &mut CallbackSpan,
        time: u64,
    ) {
        let is_client = |e| cx.entities.get(e).kind() == EntityKind::Client;
        if !span.entity.is_some_and(is_client) {
            return;
        }
        self.begin(cx, ti, span);
        let outer = self.threads[ti].outer().last();
        let instance = outer.and_then(|outer| outer.instance);
        if let (Some(instance), Some(client)) = (instance, span.instance) {
            self.new_events.push(SpanEvent::Continue {
                instance,
                client,
                time,
            });
        }
    }
}
