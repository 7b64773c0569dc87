//! rclpy's callbacks that have begun but do not run, because their executor continued before their
//! second trigger. Such a callback is a coroutine that awaits something, or it runs another
//! executor.
//!
//! It continues when the response to its request was handled. It also continues when the guard of
//! its own executor is triggered outside of other callbacks, and ends with that trigger.

use super::account::Mark;
use super::span::{CallbackSpan, Triggers};
use super::{Bounds, Spans};
use crate::entities::EntityKind;
use crate::events::{Ending, Input, SpanEvent};
use crate::ids::{EntityId, InstanceId, ProcessIndex, ThreadIndex};
use crate::notes::Note;
use crate::Context;
use std::collections::VecDeque;

#[derive(Debug, Clone)]
struct Open {
    span: CallbackSpan,
    instance: InstanceId,
    guard: u64,
    thread: ThreadIndex,
    /// Another executor runs callbacks on the same thread. This callback therefore runs that
    /// executor, and is not suspended.
    spins: bool,
    /// The mark from which on the callback does not run. The field `ended_ns` has the total CPU
    /// time, at this mark, of all ended executions on the thread.
    since: Mark,
    ended_ns: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Suspended {
    open: Vec<Open>,
    asked: VecDeque<Asked>,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    client: EntityId,
    sequence: i64,
    by: Asker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    Running(InstanceId),
    /// The callback that sent the request has ended. Another callback may have its instance number
    /// now.
    Ended,
    Unknown,
}

/// The maximum number of callbacks per process that have begun but do not run. If there is one
/// more, the oldest counts as aborted.
const MAX_OPEN: usize = 64;

const MAX_ASKED: usize = 256;

impl Spans {
    fn suspended(&mut self, ti: ThreadIndex) -> &mut Suspended {
        let process = self.threads[ti].process;
        &mut self.processes[process.index()].suspended
    }

    pub(super) fn open_guard(&self, cx: &Context, ti: ThreadIndex) -> Option<u64> {
        let thread = &self.threads[ti];
        let guards = &self.processes[thread.process.index()].guards;
        if thread.is_rclcpp() {
            return None;
        }
        let span = thread.span()?;
        // Late attach: this may be the first callback that is seen. A pool's callback ends with its
        // trigger, and the pool made its wait set before the recording.
        let late = cx.entities.process(thread.process).late && guards.pool == 0;
        let sets = if late { 1 } else { 2 };
        let is_rclpy = guards.rclpy || thread.rounds.sets >= sets;
        if !(is_rclpy || late && span.instance.is_some()) {
            return None;
        }
        let client = |e| cx.entities.get(e).kind() == EntityKind::Client;
        match &span.bounds {
            Bounds::Inferred(inferred) if !span.entity.is_some_and(client) => {
                match inferred.triggers {
                    Triggers::Once { guard, .. } => Some(guard),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Late attach: reports whether it is unknown if the callback on the thread ended at the first
    /// trigger. In rclpy the callback continues after this trigger. In another pool of threads it
    /// has ended.
    ///
    /// This is unknown at most once per process, because the next trigger shows whether the process
    /// uses rclpy or another pool.
    pub(super) fn is_doubtful(&self, cx: &Context, ti: ThreadIndex) -> bool {
        let thread = &self.threads[ti];
        let guards = &self.processes[thread.process.index()].guards;
        let known = thread.is_rclcpp() || guards.rclpy || guards.doubted || guards.pool != 0;
        if known || !cx.entities.process(thread.process).late {
            return false;
        }
        let client = |e| cx.entities.get(e).kind() == EntityKind::Client;
        let span = thread.span();
        let span = span.filter(|s| s.instance.is_none() && s.once().is_some());
        span.is_some_and(|s| !s.entity.is_some_and(client)) && thread.rounds.sets == 0
    }

    pub(super) fn leave_doubtful(&mut self, cx: &mut Context, ti: ThreadIndex) {
        if self.is_doubtful(cx, ti) {
            let thread = &mut self.threads[ti];
            thread.take_span();
            self.processes[thread.process.index()].guards.doubted = true;
            cx.notes.count(Note::Unbegun, 1);
        }
    }

    pub(super) fn suspend(&mut self, cx: &Context, ti: ThreadIndex, time: u64) {
        let Some(guard) = self.open_guard(cx, ti) else {
            return;
        };
        let Some(mut span) = self.threads[ti].take_span() else {
            return;
        };
        self.begin(cx, ti, &mut span);
        let process = self.threads[ti].process.index();
        self.processes[process].guards.rclpy = true;
        let Some(instance) = span.instance else {
            // A hidden callback is not reported, so it ends here.
            return;
        };
        let now = self.threads[ti].account.mark(time);
        self.suspend_span(ti, span, instance, guard, now);
    }

    pub(super) fn suspend_outer_callback(&mut self, cx: &Context, ti: ThreadIndex) {
        let thread = &mut self.threads[ti];
        let read = thread.span().and_then(CallbackSpan::read_at);
        let (Some(read_at), Some(outer)) = (read, thread.outer_mut().pop()) else {
            return;
        };
        if let (Some(instance), Some((guard, _))) = (outer.instance, outer.once()) {
            self.suspend_span(ti, outer, instance, guard, read_at);
        }
        if let Some(mut span) = self.threads[ti].take_span() {
            self.begin(cx, ti, &mut span);
            self.threads[ti].put_span(span);
        }
    }

    fn suspend_span(
        &mut self,
        ti: ThreadIndex,
        mut span: CallbackSpan,
        instance: InstanceId,
        guard: u64,
        from: Mark,
    ) {
        span.pause(&from);
        let time = from.time;
        let open = Open {
            span,
            instance,
            guard,
            thread: ti,
            spins: false,
            since: from,
            ended_ns: self.threads[ti].rounds.executions_ns,
        };
        let all = &mut self.suspended(ti).open;
        let oldest = (all.len() >= MAX_OPEN).then(|| all.remove(0));
        all.push(open);
        if let Some(oldest) = oldest {
            self.end_open(&oldest, time, Ending::Aborted);
        }
    }

    fn end_open(&mut self, open: &Open, time: u64, how: Ending) {
        let end = (time, open.span.earlier);
        self.end(open.thread, open.instance, end, how, open.span.cpus);
    }

    pub(super) fn end_suspended(&mut self, process: ProcessIndex, time: u64, how: Ending) {
        let suspended = &mut self.processes[process.index()].suspended;
        suspended.asked.clear();
        for open in std::mem::take(&mut suspended.open) {
            self.end_open(&open, time, how);
        }
    }

    pub(super) fn ask(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        by: Option<InstanceId>,
        (client, sequence): (EntityId, i64),
    ) {
        let thread = &self.threads[ti];
        let late = cx.entities.process(thread.process).late;
        if thread.is_rclcpp() || (by.is_none() && !late) {
            return;
        }
        let asked = &mut self.suspended(ti).asked;
        if asked.len() >= MAX_ASKED {
            asked.pop_front();
        }
        asked.push_back(Asked {
            client,
            sequence,
            by: by.map_or(Asker::Unknown, Asker::Running),
        });
    }

    /// Late attach: reports whether a request was sent while no callback was known to run on its
    /// thread. The sender may be a callback that began before the recording.
    pub(crate) fn is_asked_by_nobody(
        &self,
        ti: ThreadIndex,
        client: EntityId,
        sequence: i64,
    ) -> bool {
        let process = self.threads[ti].process;
        let mut asked = self.processes[process.index()].suspended.asked.iter().rev();
        let sent = asked.find(|a| (a.client, a.sequence) == (client, sequence));
        sent.is_some_and(|a| a.by == Asker::Unknown)
    }

    /// Late attach: records that code on this thread waited for a response to a request from before
    /// the recording. The record is valid until the thread's executor makes its next call.
    pub(crate) fn goes_on_unseen(&mut self, ti: ThreadIndex) {
        self.threads[ti].calls.unseen = true;
    }

    pub(super) fn forget_asker(&mut self, ti: ThreadIndex, instance: InstanceId) {
        let asked = &mut self.suspended(ti).asked;
        for asked in asked.iter_mut() {
            if asked.by == Asker::Running(instance) {
                asked.by = Asker::Ended;
            }
        }
    }

    fn asked_by(&self, ti: ThreadIndex, span: &CallbackSpan) -> Option<Asker> {
        let (Some(client), Input::Response { sequence, .. }) = (span.entity, span.input) else {
            return None;
        };
        let process = self.threads[ti].process;
        let asked = &self.processes[process.index()].suspended.asked;
        let is_it = |a: &&Asked| (a.client, a.sequence) == (client, sequence);
        Some(asked.iter().rev().find(is_it)?.by)
    }

    fn awaiting(&self, ti: ThreadIndex, span: &CallbackSpan) -> Option<usize> {
        let process = self.threads[ti].process;
        let open = &self.processes[process.index()].suspended.open;
        if open.is_empty() {
            return None;
        }
        let by = self.asked_by(ti, span)?;
        open.iter().position(|o| Asker::Running(o.instance) == by)
    }

    /// Returns the callback that sleeps on another thread of the process until the response is
    /// handled, as in rclpy's `Client.call`.
    fn blocked_caller(&self, ti: ThreadIndex, span: &CallbackSpan) -> Option<InstanceId> {
        let Asker::Running(by) = self.asked_by(ti, span)? else {
            return None;
        };
        let waits = |&other: &ThreadIndex| {
            let thread = &self.threads[other];
            let asks = |span: &CallbackSpan| span.instance == Some(by) && span.once().is_some();
            let asleep = thread.account.is_asleep() || !thread.account.is_scheduled();
            other != ti && thread.span().is_some_and(asks) && asleep
        };
        self.threads.all().find(waits).map(|_| by)
    }

    /// Ends rclpy's own handling of a response if a callback on another thread slept until the
    /// handling was done. That callback continues. Returns false if no callback slept for the
    /// response.
    ///
    /// rclpy triggers its guard condition once before the handling and once after it. Between the
    /// two, it triggers once for each piece of code that it schedules:
    /// - once for a piece of rclpy's own code;
    /// - once for `Client.call`, to wake up the caller, but not for a coroutine that waits;
    /// - once for a callback that the sender has set for the response. The sender does not wait for
    ///   the response in this case, but it may sleep meanwhile because another thread holds the
    ///   interpreter's lock.
    pub(super) fn return_to_caller(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        span: &CallbackSpan,
    ) -> bool {
        let Some(last) = span.triggered().filter(|t| t.is_pending && t.more == 3) else {
            return false;
        };
        let last = last.last;
        if let (Some(client), Some(Asker::Ended)) = (span.entity, self.asked_by(ti, span)) {
            self.habits.learn_unwaited(client);
        }
        if span
            .entity
            .is_none_or(|client| self.habits.is_unwaited(client))
        {
            return false;
        }
        let Some(caller) = self.blocked_caller(ti, span) else {
            return false;
        };
        let process = self.threads[ti].process.index();
        let pending = &mut self.processes[process].pending;
        let same = |p: &super::PendingResponse| {
            p.thread == ti && Some(p.client) == span.entity && p.input == span.input
        };
        let Some(at) = pending.iter().position(same) else {
            return false;
        };
        pending.remove(at);
        self.end_client_part(cx, ti, span.clone(), caller, last);
        true
    }

    pub(super) fn is_awaited(&self, ti: ThreadIndex, span: &CallbackSpan) -> bool {
        self.awaiting(ti, span).is_some()
    }

    fn end_client_part(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        mut client: CallbackSpan,
        waiting: InstanceId,
        to: Mark,
    ) {
        self.begin(cx, ti, &mut client);
        let Some(instance) = client.instance else {
            return;
        };
        self.new_events.push(SpanEvent::Continue {
            instance: waiting,
            client: instance,
            time: to.time,
        });
        let end = (to.time, client.spent(&to));
        self.end(ti, instance, end, Ending::Inferred, client.cpus);
    }

    fn continue_suspended(&mut self, ti: ThreadIndex, at: usize, from: &Mark) -> InstanceId {
        let mut open = self.suspended(ti).open.remove(at);
        if open.spins && open.thread == ti {
            // The nested executor is part of the callback's own code. The callbacks of that
            // executor are not.
            let since = from.totals.since(&open.since.totals).exec_ns;
            let ended = self.threads[ti].rounds.executions_ns - open.ended_ns;
            let own = &mut open.span.earlier.exec_ns;
            *own = own.saturating_add(since.saturating_sub(ended));
        }
        open.span.resume(from);
        self.threads[ti].put_span(open.span);
        open.instance
    }

    /// Ends rclpy's handling of a response, given by its span `client`. Continues the suspended
    /// callback that [waits](Spans::is_awaited) for the response. Called when something is
    /// published after the handling. Returns `None` if no callback waits.
    pub(super) fn continue_after_response(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        time: u64,
        client: CallbackSpan,
    ) -> Option<InstanceId> {
        let last = client.triggered()?.last;
        let at = self.awaiting(ti, &client)?;
        let from = self.continuation_start(ti, time, Some(last));
        let waiting = self.suspended(ti).open[at].instance;
        self.end_client_part(cx, ti, client, waiting, last);
        Some(self.continue_suspended(ti, at, &from))
    }

    /// Continues the suspended callback if exactly one is suspended on this thread. Called when
    /// something is published outside of callbacks.
    pub(super) fn continue_only_suspended(
        &mut self,
        ti: ThreadIndex,
        time: u64,
    ) -> Option<InstanceId> {
        let thread = &self.threads[ti];
        let suspended = &self.processes[thread.process.index()].suspended;
        let [open] = &suspended.open[..] else {
            return None;
        };
        if open.thread != ti {
            return None;
        }
        let now = thread.account.mark(time);
        let from = thread.rounds.last_act.unwrap_or(now);
        Some(self.continue_suspended(ti, 0, &from))
    }

    /// Records that an executor with the guard condition `guard` runs a callback on the thread. If
    /// a callback of another executor has begun on this thread and not ended, that callback must be
    /// the one that runs this executor.
    pub(super) fn note_spin(&mut self, ti: ThreadIndex, guard: u64) {
        for open in &mut self.suspended(ti).open {
            open.spins |= open.thread == ti && open.guard != guard;
        }
    }

    /// If exactly one callback is suspended on this thread in the executor with the guard condition
    /// `guard`, this callback counts as running again. The caller then ends it at this trigger.
    /// Called when the guard condition was triggered outside of callbacks, or after a callback that
    /// has ended.
    pub(super) fn trigger_suspended(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        time: u64,
        guard: u64,
        before: Option<Mark>,
    ) {
        let thread = &self.threads[ti];
        let open = &self.processes[thread.process.index()].suspended.open;
        if open.is_empty() || thread.continuation().is_some() {
            return;
        }
        let ended = |span: &CallbackSpan| span.triggered().is_some_and(|t| t.guard != guard);
        if !thread.span().is_none_or(ended) {
            return;
        }
        let is_same = |o: &Open| o.guard == guard && o.thread == ti;
        let mut found = open.iter().enumerate().filter(|(_, o)| is_same(o));
        let (Some((at, open)), None) = (found.next(), found.next()) else {
            return;
        };
        let waiting = open.instance;
        let now = thread.account.mark(time);
        let from = thread.rounds.last_act.or(before).unwrap_or(now);
        if let Some(span) = self.threads[ti].take_span() {
            match span.triggered().map(|t| t.last) {
                Some(last) if self.awaiting(ti, &span) == Some(at) => {
                    self.end_client_part(cx, ti, span, waiting, last);
                }
                _ => self.close(cx, ti, span, time, super::CloseReason::ExecutorWentOn),
            }
        }
        self.continue_suspended(ti, at, &from);
    }

    /// Handles the executor's next call after rclpy handled a response. `client` is the span of
    /// this handling. If a suspended callback waits for the response, that callback has run before
    /// this call: the function ends `client` and returns `None`. Otherwise returns `client`.
    pub(super) fn continued_after_response(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        client: CallbackSpan,
        time: u64,
    ) -> Option<CallbackSpan> {
        let stretch = self.waiting_stretch(ti, &client, time);
        let (Some(at), Some((from, to))) = (self.awaiting(ti, &client), stretch) else {
            return Some(client);
        };
        let triggered = client.triggered().map(|t| (t.guard, t.last));
        let open = &self.suspended(ti).open[at];
        let (waiting, guard) = (open.instance, open.guard);
        let now = to.time == time;
        let last = triggered.map_or(from, |t| t.1);
        let own = if now { last } else { from };
        self.end_client_part(cx, ti, client, waiting, own);
        if triggered.is_none_or(|t| t.0 != guard) {
            // The callback runs an executor. It continues when its own guard is triggered.
            return None;
        }
        let to = if now {
            self.without_overhead(ti, from, to)
        } else {
            to
        };
        self.continue_suspended(ti, at, &from);
        let span = self.threads[ti].take_span()?;
        if now {
            // No trigger marks an end, so the callback awaits something else.
            self.suspend_span(ti, span, waiting, guard, to);
        } else {
            let end = (to.time, span.spent(&to));
            self.end(ti, waiting, end, Ending::Inferred, span.cpus);
        }
        None
    }
}
