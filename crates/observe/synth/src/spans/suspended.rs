//! rclpy: callbacks that are open and do not run. A coroutine that awaits something, or a callback
//! within which another executor runs: the executor goes on before the callback's second trigger.
//!
//! Both go on when the response that they asked for was handled, or when their own executor's
//! guard is triggered outside of other callbacks, which is the end.

use super::account::Mark;
use super::span::{CallbackSpan, Triggers};
use super::{Bounds, Spans};
use crate::entities::EntityKind;
use crate::events::{Ending, Input, SpanEvent};
use crate::ids::{EntityId, InstanceId, ProcessIndex, ThreadIndex};
use crate::notes::Note;
use crate::Context;
use std::collections::VecDeque;

/// A callback that is open and does not run.
#[derive(Debug, Clone)]
struct Open {
    span: CallbackSpan,
    instance: InstanceId,
    /// The guard of its executor.
    guard: u64,
    thread: ThreadIndex,
    /// Another executor runs callbacks on its thread: it is not suspended, but runs that one.
    spins: bool,
    /// Since when it does not run, and how much executions on its thread had used by then.
    since: Mark,
    ended_ns: u64,
}

/// What is open in a process.
#[derive(Debug, Clone, Default)]
pub(super) struct Suspended {
    open: Vec<Open>,
    /// Requests that were sent, oldest first.
    asked: VecDeque<Asked>,
}

/// A request that was sent.
#[derive(Debug, Clone, Copy)]
struct Asked {
    client: EntityId,
    sequence: i64,
    /// Late attach: none where no callback is known to run on the thread.
    by: Option<InstanceId>,
}

/// Most callbacks of a process that are open and do not run; beyond, the oldest counts as left.
const MAX_OPEN: usize = 64;

/// Most requests that are kept.
const MAX_ASKED: usize = 256;

impl Spans {
    fn suspended(&mut self, ti: ThreadIndex) -> &mut Suspended {
        let process = self.threads[ti].process;
        &mut self.processes[process.index()].suspended
    }

    /// The guard of rclpy's executor, if the thread is in a callback of it that has not ended.
    pub(super) fn open_guard(&self, cx: &Context, ti: ThreadIndex) -> Option<u64> {
        let thread = &self.threads[ti];
        let guards = &self.processes[thread.process.index()].guards;
        if thread.is_rclcpp() {
            return None;
        }
        let span = thread.span()?;
        // Late attach: this may be the first callback that is seen. A pool's callback is over with
        // its trigger, and its wait set was made before the recording.
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

    /// Late attach: whether the callback on the thread has ended, as a pool's has after its trigger,
    /// or is rclpy's and goes on, cannot be told. Once in a process: by the next time it is known.
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

    /// Leaves out the callback on the thread where that [is so](Spans::is_doubtful).
    pub(super) fn leave_doubtful(&mut self, cx: &mut Context, ti: ThreadIndex) {
        if self.is_doubtful(cx, ti) {
            let thread = &mut self.threads[ti];
            thread.take_span();
            self.processes[thread.process.index()].guards.doubted = true;
            cx.notes.count(Note::Unbegun, 1);
        }
    }

    /// The executor goes on though the callback on its thread has not ended: it is suspended.
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
            // Of a hidden one nothing is told; it ends here.
            return;
        };
        let now = self.threads[ti].account.mark(time);
        self.suspend_span(ti, span, instance, guard, now);
    }

    /// What was read within a callback of rclpy starts another one: that callback is suspended.
    pub(super) fn suspend_outer(&mut self, cx: &Context, ti: ThreadIndex) {
        let thread = &mut self.threads[ti];
        let read = thread.span().and_then(CallbackSpan::opened);
        let (Some(opened), Some(outer)) = (read, thread.outer_mut().pop()) else {
            return;
        };
        if let (Some(instance), Some((guard, _))) = (outer.instance, outer.once()) {
            self.suspend_span(ti, outer, instance, guard, opened);
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
            ended_ns: self.threads[ti].rounds.ended_ns,
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

    /// Ends what is open in a process, or on one of its threads.
    pub(super) fn end_suspended(&mut self, process: ProcessIndex, time: u64, how: Ending) {
        let suspended = &mut self.processes[process.index()].suspended;
        suspended.asked.clear();
        for open in std::mem::take(&mut suspended.open) {
            self.end_open(&open, time, how);
        }
    }

    /// A request is sent, by an instance if any is known.
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
            by,
        });
    }

    /// Late attach: whether a request was sent while no callback was known to run on its thread:
    /// by one that began before the recording, if by any.
    pub(crate) fn is_asked_by_nobody(
        &self,
        ti: ThreadIndex,
        client: EntityId,
        sequence: i64,
    ) -> bool {
        let process = self.threads[ti].process;
        let mut asked = self.processes[process.index()].suspended.asked.iter().rev();
        let sent = asked.find(|a| (a.client, a.sequence) == (client, sequence));
        sent.is_some_and(|a| a.by.is_none())
    }

    /// Late attach: what runs on the thread until its executor goes on waited for a response to a
    /// request of before the recording.
    pub(crate) fn goes_on_unseen(&mut self, ti: ThreadIndex) {
        self.threads[ti].calls.unseen = true;
    }

    /// Whether code that is suspended waits for the response that a span took.
    fn awaiting(&self, ti: ThreadIndex, span: &CallbackSpan) -> Option<usize> {
        let process = self.threads[ti].process;
        let suspended = &self.processes[process.index()].suspended;
        if suspended.open.is_empty() {
            return None;
        }
        let (Some(client), Input::Response { sequence, .. }) = (span.entity, span.input) else {
            return None;
        };
        let asked = &suspended.asked;
        let asked = asked
            .iter()
            .rev()
            .find(|a| (a.client, a.sequence) == (client, sequence))?;
        let by = asked.by?;
        suspended.open.iter().position(|o| o.instance == by)
    }

    /// Whether a suspended callback waits for the response that a span took.
    pub(super) fn is_awaited(&self, ti: ThreadIndex, span: &CallbackSpan) -> bool {
        self.awaiting(ti, span).is_some()
    }

    /// A response was handled for which a suspended callback waits: the client's own part is over
    /// at `to`.
    fn hand_back(
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
        self.out.push(SpanEvent::Continue {
            instance: waiting,
            client: instance,
            time: to.time,
        });
        let end = (to.time, client.spent(&to));
        self.end(ti, instance, end, Ending::Inferred, client.cpus);
    }

    /// Puts a suspended callback on a thread again: it goes on at `from`.
    fn go_on(&mut self, ti: ThreadIndex, at: usize, from: &Mark) -> InstanceId {
        let mut open = self.suspended(ti).open.remove(at);
        if open.spins && open.thread == ti {
            // The executor in it is its own code; the callbacks of that one are not.
            let since = from.totals.since(&open.since.totals).exec_ns;
            let ended = self.threads[ti].rounds.ended_ns - open.ended_ns;
            let own = &mut open.span.earlier.exec_ns;
            *own = own.saturating_add(since.saturating_sub(ended));
        }
        open.span.resume(from);
        self.threads[ti].put_span(open.span);
        open.instance
    }

    /// Something is published on a thread after the handling of a response, `client`, for which a
    /// suspended callback [waits](Spans::is_awaited): that one goes on. None if none waits.
    pub(super) fn go_on_after(
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
        self.hand_back(cx, ti, client, waiting, last);
        Some(self.go_on(ti, at, &from))
    }

    /// Something is published outside of callbacks: the one that is suspended goes on, if there
    /// is only one.
    pub(super) fn go_on_alone(&mut self, ti: ThreadIndex, time: u64) -> Option<InstanceId> {
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
        Some(self.go_on(ti, 0, &from))
    }

    /// An executor with this guard runs a callback on a thread: callbacks of other executors that
    /// are open there run it.
    pub(super) fn note_spin(&mut self, ti: ThreadIndex, guard: u64) {
        for open in &mut self.suspended(ti).open {
            open.spins |= open.thread == ti && open.guard != guard;
        }
    }

    /// A guard is triggered outside of callbacks, or after one that has ended: the end of the
    /// callback that was suspended on its executor.
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
        let is_it = |o: &Open| o.guard == guard && o.thread == ti;
        let mut found = open.iter().enumerate().filter(|(_, o)| is_it(o));
        let (Some((at, open)), None) = (found.next(), found.next()) else {
            return;
        };
        let waiting = open.instance;
        let now = thread.account.mark(time);
        let from = thread.rounds.last_act.or(before).unwrap_or(now);
        if let Some(span) = self.threads[ti].take_span() {
            match span.triggered().map(|t| t.last) {
                Some(last) if self.awaiting(ti, &span) == Some(at) => {
                    self.hand_back(cx, ti, span, waiting, last);
                }
                _ => self.close(cx, ti, span, time, super::Why::Executor),
            }
        }
        self.go_on(ti, at, &from);
    }

    /// The executor goes on after the handling of a response, `client`: if a suspended callback
    /// waits for it, that one went on in the stretch after it. Gives the span back if none waits.
    pub(super) fn went_on(
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
        self.hand_back(cx, ti, client, waiting, own);
        if triggered.is_none_or(|t| t.0 != guard) {
            // An executor within it: it goes on when its own guard is triggered.
            return None;
        }
        let to = if now {
            self.without_overhead(ti, from, to)
        } else {
            to
        };
        self.go_on(ti, at, &from);
        let span = self.threads[ti].take_span()?;
        if now {
            // No trigger of an end: it awaits something else.
            self.suspend_span(ti, span, waiting, guard, to);
        } else {
            let end = (to.time, span.spent(&to));
            self.end(ti, waiting, end, Ending::Inferred, span.cpus);
        }
        None
    }
}
