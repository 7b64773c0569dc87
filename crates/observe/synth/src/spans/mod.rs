//! Finds out which callback each thread executed, and when (Algorithms 2 and 3). The results are
//! [`SpanEvent`]s.
//!
//! When a thread reads an entity or calls a timer, a span opens on that thread. The client library
//! decides how the span continues:
//!
//! - rclcpp ([`rclcpp`]): `callback_start` makes the span exact and `callback_end` closes it.
//! - rclpy and plain rcl: the executor's next call on that thread closes the span. The executor of
//!   [`rclpy`] also triggers its guard condition right before and right after the callback.
//!
//! Code that waits for a response runs later ([`continuation`]), on any thread of a pool
//! ([`worker`]).

mod account;
mod clients;
mod continuation;
mod events;
mod goals;
mod nesting;
mod own;
mod ownership;
mod rclcpp;
mod rclpy;
mod span;
mod suspended;
mod thread;
mod together;
mod unseen;
mod waits;
mod worker;

use super::causes::Wait;
use super::entities::EntityKind;
use super::events::{Begin, End, Ending, HeldMessage, Input, SpanEvent};
use super::ids::{DecisionId, EntityId, HandId, InstanceId, ProcessIndex, ThreadIndex};
use super::notes::Note;
use super::values::{Cpus, Release, ThreadId, Totals};
use super::Context;
use crate::index::NameId;
use crate::marks::Marks;
use account::{CountedFrom, Mark};
use clients::Habits;
use continuation::PendingResponse;
use events::Events;
use goals::Goals;
use rclpy::Guards;
use rustc_hash::FxHashSet;
use span::{Bounds, CallbackSpan, Exact, Inferred, Triggers};
use std::collections::VecDeque;
use suspended::Suspended;
use thread::{CalledTimers, Library, Phase, Threads};

#[derive(Debug, Clone, Default)]
struct ProcessSpans {
    guards: Guards,
    pending: VecDeque<PendingResponse>,
    events: Events,
    suspended: Suspended,
    goals: Option<Box<Goals>>,
}

#[derive(Debug, Clone, Default)]
struct InstanceIds {
    made: usize,
    free: Vec<InstanceId>,
}

impl InstanceIds {
    fn next(&mut self) -> InstanceId {
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            InstanceId::new(self.made - 1)
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The callback itself reported its end, by `callback_end` or by the return from
    /// `execute_client`.
    CallbackEnded,
    ExecutorWentOn,
    ThreadEnded,
    RecordingEnded,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Spans {
    threads: Threads,
    processes: Vec<ProcessSpans>,
    habits: Habits,
    instances: InstanceIds,
    decisions: u32,
    handed: u64,
    hands: u32,
    ignores_own_threads: bool,
    /// The messages that shapers hold back now.
    held: FxHashSet<(EntityId, HeldMessage)>,
    new_events: Vec<SpanEvent>,
    ended_waits: Vec<(InstanceId, Vec<Wait>)>,
}

fn is_hidden(cx: &Context, span: &CallbackSpan) -> bool {
    span.entity.is_none_or(|e| cx.entities.is_hidden(e))
}

/// Reports whether onbeat ignores a read by rclcpp after which no callback ran. onbeat ignores
/// reads of timers and of other entities whose callbacks have events of their own. It also ignores
/// reads of subscriptions with intra-process communication, because rclcpp drops their items that
/// also come through the middleware.
fn is_dropped(cx: &Context, entity: EntityId) -> bool {
    let it = cx.entities.get(entity);
    let subscription = it.kind() == EntityKind::Subscription && it.action.is_none();
    let timer = it.kind() == EntityKind::Timer;
    it.exact || timer || (subscription && cx.entities.process(it.process).rings.used)
}

impl Spans {
    pub(crate) fn new(own_threads: bool) -> Spans {
        Spans {
            ignores_own_threads: !own_threads,
            ..Spans::default()
        }
    }

    // ---- events for others

    pub(crate) fn take_events(&mut self, empty: Vec<SpanEvent>) -> Vec<SpanEvent> {
        std::mem::replace(&mut self.new_events, empty)
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.new_events.is_empty()
    }

    pub(crate) fn release(&mut self, instance: InstanceId) {
        self.instances.free.push(instance);
    }

    pub(crate) fn is_alive(&self, tid: u32) -> bool {
        self.threads.of_tid(tid).is_some()
    }

    pub(crate) fn mark_names(&self, names: &mut Marks) {
        for thread in self.threads.alive() {
            let comm = thread.profile.comm;
            for name in comm.into_iter().chain(thread.running.own.topics()) {
                names.add(name.index());
            }
        }
    }

    pub(crate) fn forget(&mut self, e: EntityId) {
        self.habits.forget(e);
        self.forget_calls(e);
        self.held.retain(|held| held.0 != e);
    }

    fn new_decision(&mut self) -> DecisionId {
        self.decisions = self.decisions.wrapping_add(1);
        DecisionId(self.decisions)
    }

    fn new_hand(&mut self) -> HandId {
        self.hands = self.hands.wrapping_add(1);
        HandId(self.hands)
    }

    // ---- threads and processes

    /// Returns the thread with this id. Creates it if necessary. If another process had a thread
    /// with this id, that thread ends.
    pub(crate) fn thread(
        &mut self,
        cx: &mut Context,
        pid: u32,
        tid: u32,
        time: u64,
    ) -> ThreadIndex {
        if let Some(ti) = self.threads.of_tid(tid) {
            if self.threads[ti].id.pid == pid {
                return ti;
            }
            self.end_tid(cx, tid, time);
        }
        let process = cx.entities.processes.get_or_insert(pid);
        if self.processes.len() <= process.index() {
            self.processes
                .resize_with(process.index() + 1, ProcessSpans::default);
        }
        self.threads.insert(ThreadId { pid, tid }, process, time)
    }

    pub(crate) fn process_of(&self, ti: ThreadIndex) -> ProcessIndex {
        self.threads[ti].process
    }

    pub(crate) fn runs_rclcpp(&self, ti: ThreadIndex) -> bool {
        self.threads[ti].is_rclcpp()
    }

    pub(crate) fn creation(&mut self, ti: ThreadIndex) -> &mut super::entities::Creation {
        &mut self.threads[ti].calls.creation
    }

    pub(crate) fn describe(&mut self, ti: ThreadIndex, comm: NameId, scheduling: Option<(u8, u8)>) {
        let profile = &mut self.threads[ti].profile;
        profile.comm = Some(comm);
        if let Some((policy, priority)) = scheduling {
            (profile.policy, profile.priority) = (Some(policy), priority);
        }
    }

    /// Records that the thread was just created by the thread `by` of the same process. `by` is 0
    /// if no thread of the process created it.
    pub(crate) fn created(&mut self, ti: ThreadIndex, time: u64, by: u32) {
        let thread = &mut self.threads[ti];
        thread.account.created(time);
        thread.running.own.created();
        self.hand_over(ti, time, by);
    }

    pub(crate) fn unwatched(&mut self, ti: ThreadIndex) {
        self.threads[ti].account.unwatched();
    }

    pub(crate) fn watched(&mut self, ti: ThreadIndex, time: u64) {
        self.threads[ti].account.watched(time);
    }

    pub(crate) fn end_tid(&mut self, cx: &mut Context, tid: u32, time: u64) {
        if let Some(ti) = self.threads.remove(tid) {
            self.end_thread(cx, ti, time, CloseReason::ThreadEnded);
            self.threads.release(ti);
        }
    }

    pub(crate) fn end_process(
        &mut self,
        cx: &mut Context,
        pid: u32,
        process: ProcessIndex,
        time: u64,
    ) {
        for tid in self.threads.tids(pid) {
            self.end_tid(cx, tid, time);
        }
        if process.index() < self.processes.len() {
            self.end_pending(process);
            self.end_suspended(process, time, Ending::CutOff);
            self.end_goals(process, time, Ending::CutOff);
            self.processes[process.index()] = ProcessSpans::default();
        }
    }

    pub(crate) fn end_all(&mut self, cx: &mut Context, time: u64) {
        for ti in self.threads.all() {
            self.end_thread(cx, ti, time, CloseReason::RecordingEnded);
        }
        for p in 0..self.processes.len() {
            self.end_pending(ProcessIndex::new(p));
            self.end_suspended(ProcessIndex::new(p), time, Ending::Unfinished);
            self.end_goals(ProcessIndex::new(p), time, Ending::Unfinished);
        }
    }

    fn end_thread(&mut self, cx: &mut Context, ti: ThreadIndex, time: u64, why: CloseReason) {
        let thread = &mut self.threads[ti];
        let candidate = std::mem::take(&mut thread.candidate);
        let used = (time, thread.account.at(time).exec_ns);
        cx.notes
            .count(Note::LostSwitch, u64::from(thread.account.doubts()));
        cx.helpers
            .add_ended(thread.id.pid, &thread.profile, candidate, used);
        self.close_continuation(ti, time);
        if let Some(ns) = self.helper_ns(ti, time).filter(|&ns| ns > 0) {
            cx.notes.count(Note::HelperTime, ns);
        }
        self.close_own(ti, time, why);
        self.settle_last(cx, ti);
        if let Some(span) = self.threads[ti].take_span() {
            if self.waits_for_response(cx, ti, &span) {
                self.push_pending(ti, &span);
            } else {
                self.close(cx, ti, span, time, why);
            }
        }
        self.end_outer(cx, ti, time, why);
    }

    // ---- kernel

    pub(crate) fn switch_in(
        &mut self,
        ti: ThreadIndex,
        (time, cpu): (u64, u16),
        (priority, policy): (u8, u8),
    ) {
        let thread = &mut self.threads[ti];
        thread
            .candidate
            .gets_cpu(time, cpu, thread.account.ready_since());
        thread.account.switch_in(time);
        (thread.profile.priority, thread.profile.policy) = (priority, Some(policy));
        if let Some(span) = thread.span_mut() {
            span.cpus.add(cpu);
        }
        self.sleep_ends(ti, time, cpu);
    }

    fn sleep_ends(&mut self, ti: ThreadIndex, time: u64, cpu: u16) {
        let thread = &mut self.threads[ti];
        let longest = thread.sleeps.switch_in(time, &thread.account);
        let at = thread.account.mark(time);
        let dropped = thread.running.own.switch_in(at, cpu, longest);
        self.report_not_handed(dropped);
    }

    pub(crate) fn switch_out(&mut self, ti: ThreadIndex, time: u64, preempted: bool) {
        let thread = &mut self.threads[ti];
        thread.account.switch_out(time, preempted);
        if !preempted {
            thread.sleeps.begin(thread.account.mark(time));
            thread.phase.set_woken(None);
        }
    }

    pub(crate) fn needs_mutex(&mut self, ti: ThreadIndex) {
        self.threads[ti].sleeps.need_mutex();
    }

    /// Records that the thread became runnable. `by` is the thread of the same process that woke it
    /// up. `by` is 0 if another process or the kernel woke it up.
    pub(crate) fn wake(&mut self, ti: ThreadIndex, time: u64, by: u32) {
        let thread = &mut self.threads[ti];
        if thread.account.wake(time) {
            thread.waited.woken(time, by);
            thread.phase.set_woken(Some(time));
            thread.sleeps.wake(time);
            self.hand_over(ti, time, by);
        }
    }

    pub(crate) fn stolen(&mut self, ti: ThreadIndex, time: u64, stolen_ns: u64) {
        let thread = &mut self.threads[ti];
        thread.account.stolen(time, stolen_ns);
        thread.waited.stolen(time, stolen_ns);
    }

    pub(crate) fn cpu_time(
        &mut self,
        ti: ThreadIndex,
        time: u64,
        used_ns: u64,
        since_switch: bool,
    ) {
        let from = match since_switch {
            true => CountedFrom::SwitchOut,
            false => CountedFrom::Reading,
        };
        self.threads[ti].account.cpu_time(time, used_ns, from);
    }

    /// Records that the thread made a recorded call and therefore has a CPU. The caller must report
    /// each such event here before it handles the event.
    pub(crate) fn acted(&mut self, ti: ThreadIndex, (time, cpu): (u64, u16)) {
        if self.threads[ti].account.acted(time) {
            // Its switch to the CPU is missing, and with it the end of its sleep.
            self.sleep_ends(ti, time, cpu);
        }
        let thread = &mut self.threads[ti];
        thread.candidate.calls_ros();
        thread.calls.before = std::mem::take(&mut thread.calls.ready);
        if let Some(publisher) = thread.calls.unstamped.take() {
            self.new_events
                .push(SpanEvent::PublishReturned { publisher, time });
        }
    }

    // ---- the executor, for all client libraries

    /// Ends the span on this thread, because the thread's executor makes its next call.
    /// `round_ends` is set if the executor waits for work again.
    pub(crate) fn executor(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        round_ends: bool,
    ) {
        let thread = &mut self.threads[ti];
        thread.phase.leave_wait();
        thread.waits |= round_ends;
        thread.calls.unseen = false;
        thread.rounds.shown |= round_ends || !thread.calls.first;
        self.note_executor(ti, time);
        if self.is_within(ti) {
            self.spin_within(cx, ti, time);
            if self.is_within(ti) {
                return;
            }
        }
        self.leave_doubtful(cx, ti);
        self.suspend(cx, ti, time);
        let thread = &mut self.threads[ti];
        if !thread.is_rclcpp() {
            thread.rounds.last_act = Some(thread.account.mark(time));
        }
        if thread.continuation().is_some() {
            self.end_continuation_round(ti, time, round_ends);
            return;
        }
        let mut tail = None;
        if let Some(span) = thread.take_span() {
            if self.waits_for_response(cx, ti, &span) {
                if let Some(span) = self.continued_after_response(cx, ti, span, time) {
                    tail = self.waiting_stretch(ti, &span, time);
                    self.push_pending(ti, &span);
                }
            } else {
                if let Some(triggered) = span.triggered() {
                    tail = Some((triggered.last, self.threads[ti].account.mark(time)));
                }
                self.close(cx, ti, span, time, CloseReason::ExecutorWentOn);
            }
        }
        self.wake_for_event(ti);
        self.end_round(ti, time, round_ends, tail);
    }

    pub(crate) fn next_input(
        &mut self,
        cx: &mut Context,
        (ti, time): (ThreadIndex, u64),
        is_take: bool,
    ) {
        let thread = &mut self.threads[ti];
        let shown = thread.is_rclcpp() || thread.asks_for_work || thread.rounds.shown;
        let first = !shown && cx.entities.process(thread.process).late;
        let first = is_take && (first || self.is_doubtful(cx, ti));
        self.threads[ti].calls.first = first;
        if self.is_within(ti) {
            self.threads[ti].phase.leave_wait();
            self.settle_inner(cx, ti, time);
        }
        let goes_on = is_take && self.open_guard(cx, ti).is_some();
        if !goes_on && !self.is_within(ti) {
            self.executor(cx, ti, time, false);
        }
    }

    /// Records that the executor makes a wait set. In rclpy, this ends a round of the executor.
    pub(crate) fn wait_set(&mut self, cx: &mut Context, ti: ThreadIndex, time: u64) {
        let sets = &mut self.threads[ti].rounds.sets;
        *sets = sets.saturating_add(1);
        self.executor(cx, ti, time, true);
    }

    pub(crate) fn wait(&mut self, cx: &mut Context, ti: ThreadIndex, time: u64) {
        self.note_asks(ti);
        self.executor(cx, ti, time, true);
        self.threads[ti].calls.called = CalledTimers::default();
        self.threads[ti].phase = Phase::Waiting {
            from: time,
            woken: None,
        };
    }

    // ---- spans

    pub(crate) fn read(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        (time, cpu): (u64, u16),
        entity: EntityId,
        input: Input,
    ) {
        if input == Input::Timer {
            let timers = &mut self.threads[ti].calls.timer_calls;
            *timers = timers.saturating_add(1);
            if self.call_timer(cx, ti, time, entity) {
                return;
            }
        }
        if std::mem::take(&mut self.threads[ti].calls.first) {
            // A callback that began before the recording may still be running.
            cx.notes.count(Note::Unbegun, 1);
            self.read_only(cx, entity, input);
            return;
        }
        if self.is_together(cx, ti, entity) {
            self.take_together(cx, ti, entity, input);
            return;
        }
        self.open(cx, ti, (time, cpu), Some(entity), input, None);
    }

    pub(crate) fn dequeue(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        (time, cpu): (u64, u16),
        buffer: u64,
        index: u64,
    ) {
        self.next_input(cx, (ti, time), false);
        let entity = cx.entities.ring_buffer(self.threads[ti].process, buffer);
        let input = Input::Ring { index };
        let buffer = Some(buffer).filter(|&b| b != 0);
        self.open(cx, ti, (time, cpu), entity, input, buffer);
    }

    fn open(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        (time, cpu): (u64, u16),
        entity: Option<EntityId>,
        input: Input,
        buffer: Option<u64>,
    ) {
        self.nest(cx, ti, time);
        let thread = &mut self.threads[ti];
        thread.phase.leave_wait();
        let release = match (input, entity) {
            (Input::Timer, Some(timer)) => {
                cx.entities.timer_called(timer, time, thread.phase.idle())
            }
            _ => Release::Unknown,
        };
        let response = matches!(input, Input::Response { .. });
        let inferred = Inferred {
            buffer,
            client_call: response && thread.library == Library::Rclcpp { client_call: true },
            responded: None,
            triggers: Triggers::None,
            taken_together: Vec::new(),
        };
        let at = thread.account.mark(time);
        let client_call = inferred.client_call;
        let span = CallbackSpan::read(entity, input, release, at, cpu, inferred);
        thread.put_span(span);
        if client_call {
            self.pause_outer(ti, time);
        }
    }

    fn begin(&mut self, cx: &Context, ti: ThreadIndex, span: &mut CallbackSpan) {
        let Some(entity) = span.entity else {
            return;
        };
        if span.instance.is_some() || cx.entities.is_hidden(entity) {
            return;
        }
        let thread = &self.threads[ti];
        let instance = self.instances.next();
        span.instance = Some(instance);
        self.new_events.push(SpanEvent::Begin(Begin {
            instance,
            entity,
            start: span.from.time,
            thread: thread.id,
            input: span.input,
            idle: thread.phase.idle(),
            release: span.release,
        }));
    }

    fn discard(&mut self, cx: &Context, span: &CallbackSpan) {
        if let Some(entity) = span.entity {
            self.read_only(cx, entity, span.input);
        }
    }

    fn read_only(&mut self, cx: &Context, subscription: EntityId, input: Input) {
        if let Input::Message { source_ns } = input {
            if !cx.entities.is_hidden(subscription) {
                self.new_events.push(SpanEvent::ReadOnly {
                    subscription,
                    source_ns,
                });
            }
        }
    }

    fn close(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        mut span: CallbackSpan,
        time: u64,
        why: CloseReason,
    ) {
        if let Some(decision) = span.take_undecided() {
            let owner = super::events::Owner::Outside;
            self.new_events.push(SpanEvent::Decided { decision, owner });
        }
        let Some(entity) = span.entity.filter(|&e| !cx.entities.is_hidden(e)) else {
            return;
        };
        if span.is_read_only() && self.threads[ti].is_rclcpp() && is_dropped(cx, entity) {
            if span.input == Input::Timer {
                self.threads[ti].calls.called.push(entity, span.release);
            }
            self.discard(cx, &span);
            return;
        }
        if self.is_call_only(cx, ti, &span, time) {
            self.threads[ti].calls.called.push(entity, span.release);
            return;
        }
        self.settle_together(cx, ti, &mut span, time);
        if span.is_kept() {
            return;
        }
        let now = self.threads[ti].account.mark(time);
        let (end, how) = match (span.exact(), why) {
            (
                Some(Exact {
                    left: Some((to, spent)),
                    ..
                }),
                CloseReason::ExecutorWentOn,
            ) if cx.entities.get(entity).nests.returns_silently() => {
                ((to.time, *spent), Ending::Inferred)
            }
            (Some(_), why) => ((time, span.spent(&now)), exact_ending(why)),
            (None, why) => {
                let (to, how) = self.inferred_end(cx, ti, &mut span, now, why);
                ((to.time, span.spent(&to)), how)
            }
        };
        self.begin(cx, ti, &mut span);
        if let Some(instance) = span.instance {
            self.note_nested_start(ti, span.from.time);
            self.end(ti, instance, end, how, span.cpus);
        }
    }

    fn inferred_end(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        span: &mut CallbackSpan,
        now: Mark,
        why: CloseReason,
    ) -> (Mark, Ending) {
        let triggered = span.triggered().map(|t| t.last);
        let end = triggered
            .or_else(|| self.learn_pool(ti, span))
            .or_else(|| self.slept_after(ti, span, now));
        // An action's server accepts a goal after its response. The acceptance runs a callback too.
        let action = span.entity.and_then(|e| cx.entities.get(e).action);
        let goes_on = action.is_some();
        let responded = match &span.bounds {
            Bounds::Inferred(inferred) if !goes_on => inferred.responded,
            _ => None,
        };
        match (why, end) {
            (CloseReason::CallbackEnded, _) => (now, Ending::Exact),
            (CloseReason::ThreadEnded, None) => (now, Ending::CutOff),
            (CloseReason::RecordingEnded, None) => (now, Ending::Unfinished),
            _ => (responded.or(end).unwrap_or(now), Ending::Inferred),
        }
    }

    fn end(
        &mut self,
        ti: ThreadIndex,
        instance: InstanceId,
        (time, mut spent): (u64, Totals),
        how: Ending,
        cpus: Cpus,
    ) {
        let thread = &mut self.threads[ti];
        if thread.account.is_unscheduled() {
            spent.doubts = spent.doubts.max(1);
        }
        if let Some(waits) = thread.waited.take_until(time) {
            self.ended_waits.push((instance, waits));
        }
        thread.sleeps.busy_until = time;
        if !thread.is_rclcpp() {
            self.forget_asker(ti, instance);
        }
        let thread = &mut self.threads[ti];
        thread.rounds.executions_ns = thread.rounds.executions_ns.saturating_add(spent.exec_ns);
        self.new_events.push(SpanEvent::End(End {
            instance,
            time,
            spent,
            how,
            profile: thread.profile,
            cpus,
            scheduled: thread.account.is_scheduled(),
        }));
    }
}

fn exact_ending(why: CloseReason) -> Ending {
    match why {
        CloseReason::CallbackEnded => Ending::Exact,
        // An exception left the callback, or events were lost.
        CloseReason::ExecutorWentOn => Ending::Aborted,
        CloseReason::ThreadEnded => Ending::CutOff,
        CloseReason::RecordingEnded => Ending::Unfinished,
    }
}
