//! Callbacks that nest: one that takes items itself (`take()`), or that runs an executor, whose
//! callbacks run within it. A stack per thread, popped by the callback that ends.
//!
//! What is read within a callback may be either: it is the input of a callback that starts next,
//! or else one more input of the callback that runs.

use super::span::CallbackSpan;
use super::{Spans, Why};
use crate::entities::EntityKind;
use crate::events::{Input, OwnInput, Owner, SpanEvent};
use crate::ids::{EntityId, ThreadIndex};
use crate::notes::Note;
use crate::Context;

/// Most callbacks that wait on a thread for what runs within them. Beyond, the outermost is taken
/// to have been left without an end.
const MAX_OUTER: usize = 8;

impl Spans {
    /// Whether a callback with an end of its own runs on the thread, or waits for what does.
    pub(super) fn is_within(&self, ti: ThreadIndex) -> bool {
        let thread = &self.threads[ti];
        !thread.outer().is_empty() || thread.span().is_some_and(CallbackSpan::is_exact)
    }

    /// The executor does something within a callback: the callback runs an executor itself, or
    /// was left by an exception.
    pub(super) fn spin_within(&mut self, cx: &Context, ti: ThreadIndex, time: u64) {
        self.settle_inner(cx, ti, time);
        let span = self.threads[ti].span_mut();
        if let Some(exact) = span.and_then(CallbackSpan::exact_mut) {
            exact.spins = true;
        }
    }

    /// Nothing starts on what was read within a callback: it was the callback's own input.
    pub(super) fn settle_read(&mut self, cx: &Context, ti: ThreadIndex) {
        let thread = &mut self.threads[ti];
        if thread.outer().is_empty() || !thread.span().is_none_or(CallbackSpan::may_be_own) {
            return;
        }
        let mut ended = None;
        if let Some(mut span) = thread.take_span() {
            if let Some((guard, opened)) = span.once() {
                // The trigger since was that after the callback.
                ended = Some((guard, span.from));
                span.from = opened;
            }
            self.own_input(cx, ti, &span);
        }
        self.unnest(ti, None);
        if let (Some((guard, last)), Some(span)) = (ended, self.threads[ti].span_mut()) {
            span.set_triggered(guard, last);
        }
    }

    /// Nothing follows on the thread: what was read last within a callback was the callback's own
    /// input if the callback takes from there. Else nobody knows what it was for.
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

    /// The same, and anything that runs within the callback without an end of its own ends.
    pub(super) fn settle_inner(&mut self, cx: &Context, ti: ThreadIndex, time: u64) {
        self.settle_read(cx, ti);
        let thread = &mut self.threads[ti];
        if thread.outer().is_empty() || thread.span().is_none_or(CallbackSpan::is_exact) {
            return;
        }
        if let Some(span) = thread.take_span() {
            self.end_inner(cx, ti, span, time, Why::Executor);
        }
    }

    /// What the callback that waits innermost on the thread took itself.
    pub(super) fn own_input(&mut self, cx: &Context, ti: ThreadIndex, read: &CallbackSpan) {
        let outer = self.threads[ti].outer().last();
        let instance = outer.and_then(|outer| outer.instance);
        let taken = matches!(
            read.input,
            Input::Message { .. } | Input::Ring { .. } | Input::Response { .. }
        );
        match (instance, read.entity) {
            (Some(instance), Some(entity)) if taken && !cx.entities.is_hidden(entity) => {
                self.out.push(SpanEvent::OwnInput(OwnInput {
                    instance,
                    entity,
                    input: read.input,
                    time: read.from.time,
                }));
            }
            _ => self.discard(cx, read),
        }
    }

    /// A thread receives an item of a link: an input of the callback that runs there, of one with an
    /// end of its own. Else nothing ran on it.
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
                self.out.push(SpanEvent::OwnInput(OwnInput {
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

    /// Puts the running callback aside, if one with an end of its own runs: another begins, or is
    /// read, within it.
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
                self.close(cx, ti, outermost, time, Why::Executor);
            }
        }
    }

    /// A callback begins within the innermost one that waits: that one's own time stops.
    pub(super) fn pause_outer(&mut self, ti: ThreadIndex, time: u64) {
        let thread = &mut self.threads[ti];
        let now = thread.account.mark(time);
        if let Some(outer) = thread.outer_mut().last_mut() {
            outer.pause(&now);
        }
    }

    /// A span ends, perhaps within a callback that waits and now goes on.
    pub(super) fn end_inner(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        mut span: CallbackSpan,
        time: u64,
        why: Why,
    ) {
        if !self.threads[ti].outer().is_empty() {
            self.tell_continued(cx, ti, &mut span, time);
        }
        self.close(cx, ti, span, time, why);
        self.unnest(ti, Some(time));
    }

    /// What was read or ran within the innermost callback that waits is over: the callback goes
    /// on, if it was paused from this time on.
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

    /// A callback begins that waits on the thread for what runs within it: it, and those that
    /// wait within it, were left without an end.
    pub(super) fn leave_open(&mut self, cx: &Context, ti: ThreadIndex, time: u64, callback: u64) {
        let is_it = |span: &CallbackSpan| span.is_callback(callback);
        if !self.threads[ti].outer().iter().any(is_it) {
            return;
        }
        while let Some(span) = self.threads[ti].outer_mut().pop() {
            let found = is_it(&span);
            self.close(cx, ti, span, time, Why::Executor);
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

    /// A callback ends that waits on the thread: those within it were left without an end. True
    /// if it was open: it runs now.
    pub(super) fn leave_inner(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        time: u64,
        callback: u64,
    ) -> bool {
        let is_it = |span: &CallbackSpan| span.is_callback(callback);
        if self.threads[ti].span().is_some_and(is_it) {
            return true;
        }
        if !self.threads[ti].outer().iter().any(is_it) {
            return false;
        }
        self.settle_inner(cx, ti, time);
        while !self.threads[ti].span().is_some_and(is_it) {
            match self.threads[ti].take_span() {
                Some(span) => self.end_inner(cx, ti, span, time, Why::Executor),
                None => self.unnest(ti, None),
            }
        }
        true
    }

    /// Ends all callbacks that wait on a thread, innermost first.
    pub(super) fn end_outer(&mut self, cx: &Context, ti: ThreadIndex, time: u64, why: Why) {
        while let Some(span) = self.threads[ti].outer_mut().pop() {
            self.close(cx, ti, span, time, why);
        }
    }

    /// The owner of a publication by an exact span within which an executor ran: not certain
    /// until its end is seen, unless callbacks of its entity are known to do so.
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

    /// An exact span reached its end: executors that ran within it did so for it.
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
            self.out.push(SpanEvent::Decided { decision, owner });
        }
    }

    /// A span ends within a callback that waits: a client's is what that one waited for.
    pub(super) fn tell_continued(
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
            self.out.push(SpanEvent::Continue {
                instance,
                client,
                time,
            });
        }
    }
}
