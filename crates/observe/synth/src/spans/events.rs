//! Executors of events. Such an executor sleeps until something is queued for it, and never asks
//! for work with `rcl_wait`. The one of rclcpp calls timers on a separate thread, but runs their
//! callbacks on its own thread.

use super::account::Mark;
use super::span::{Bounds, CallbackSpan};
use super::thread::Library;
use super::Spans;
use crate::events::Input;
use crate::ids::{EntityId, ThreadIndex};
use crate::values::{Idle, Release};
use crate::Context;
use std::collections::VecDeque;

#[derive(Debug, Clone, Default)]
pub(super) struct Events {
    pub(super) asks_for_work: bool,
    pub(super) runs_rclcpp: bool,
    called: VecDeque<Called>,
    guesses: Vec<Guess>,
}

#[derive(Debug, Clone, Copy)]
struct Called {
    timer: EntityId,
    thread: ThreadIndex,
    time: u64,
    release: Release,
}

/// The assumption that `callback` belongs to `timer`: the callback has started `times` times in a
/// row after a call of this timer.
#[derive(Debug, Clone, Copy)]
struct Guess {
    callback: u64,
    timer: EntityId,
    times: u32,
}

/// The maximum number of calls of timers that are kept. The limit is necessary because a call stays
/// if its timer or executor ends before the callback starts.
const MAX_CALLED: usize = 256;

/// The number of times in a row that a callback must start after a call of the same timer, so that
/// it counts as the callback of that timer.
const STARTS_UNTIL_SURE: u32 = 3;

/// The number of timer calls on one thread after which the events of the process should have shown
/// its client library.
const CALLS_UNTIL_LIBRARY_SEEN: u8 = 16;

/// The maximum CPU time that an executor of events uses between its wake-up and its next call, in
/// ns. If the thread uses more CPU time after a sleep, it slept within a callback.
const WAKE_NS: u64 = 300_000;

impl Spans {
    pub(super) fn note_asks(&mut self, ti: ThreadIndex) {
        let thread = &mut self.threads[ti];
        if !thread.asks_for_work {
            thread.asks_for_work = true;
            self.processes[thread.process.index()].events.asks_for_work = true;
        }
    }

    pub(super) fn note_rclcpp(&mut self, ti: ThreadIndex) {
        let thread = &mut self.threads[ti];
        if !thread.is_rclcpp() {
            thread.library = Library::Rclcpp { client_call: false };
            self.processes[thread.process.index()].events.runs_rclcpp = true;
        }
    }

    fn is_of_events_executor(&self, ti: ThreadIndex) -> bool {
        let thread = &self.threads[ti];
        let events = &self.processes[thread.process.index()].events;
        // A thread of rclpy's pool never asks for work itself, because another thread does.
        !thread.asks_for_work && (thread.is_rclcpp() || !events.asks_for_work)
    }

    pub(super) fn wake_for_event(&mut self, ti: ThreadIndex) {
        if !self.is_of_events_executor(ti) {
            return;
        }
        let thread = &mut self.threads[ti];
        let slept = thread.sleeps.ended();
        let slept = slept.filter(|(from, _)| from.time >= thread.sleeps.busy_until);
        let idle = slept.map(|(from, woken)| Idle {
            from: from.time,
            woken,
        });
        if let Some(idle) = idle {
            thread.sleeps.idle_from = Some(idle.from);
        }
        thread.phase = super::Phase::Working { after: idle };
    }

    /// Returns the end of the callback of an inferred span on a thread of an executor of events.
    /// The end is the time at which the thread went to sleep until its next event. Returns `None`
    /// for other threads and spans.
    pub(super) fn slept_after(
        &self,
        ti: ThreadIndex,
        span: &CallbackSpan,
        now: Mark,
    ) -> Option<Mark> {
        let thread = &self.threads[ti];
        if !self.is_of_events_executor(ti) || !matches!(span.bounds, Bounds::Inferred(_)) {
            return None;
        }
        let (from, woken) = thread.sleeps.ended()?;
        let used = now.totals.since(&from.totals).exec_ns;
        (from.time > span.from.time && woken <= now.time && used <= WAKE_NS).then_some(from)
    }

    // ---- timers that are called on a separate thread

    /// Reports whether this thread only calls the timer and another thread runs its callback, which
    /// then has events of its own.
    fn is_run_elsewhere(&self, cx: &Context, ti: ThreadIndex, timer: EntityId) -> bool {
        let thread = &self.threads[ti];
        if thread.is_rclcpp() {
            return false;
        }
        let it = cx.entities.get(timer);
        let process = &self.processes[thread.process.index()];
        // Late attach: the recording does not show the creation of the timer, nor the announcement
        // of its callback.
        let late = cx.entities.process(thread.process).late;
        let unseen = process.events.runs_rclcpp && (late || it.looks.period_ns.is_none());
        it.exact || (unseen && !process.guards.rclpy && !thread.waits)
    }

    /// Records the call of a timer whose callback runs later on another thread. Returns false, and
    /// records nothing, if the callback runs within the call.
    pub(super) fn call_timer(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        timer: EntityId,
    ) -> bool {
        if !self.is_run_elsewhere(cx, ti, timer) {
            return false;
        }
        let thread = &mut self.threads[ti];
        thread.phase.leave_wait();
        let release = cx.entities.timer_called(timer, time, thread.phase.idle());
        let called = &mut self.processes[thread.process.index()].events.called;
        if called.len() >= MAX_CALLED {
            called.pop_front();
        }
        called.push_back(Called {
            timer,
            thread: ti,
            time,
            release,
        });
        true
    }

    /// Reports whether a span that ends is only the call of a timer. The timer's callback then runs
    /// on another thread.
    ///
    /// Late attach: also returns true for a short span that may be such a call. This applies until
    /// the recording shows the client library, but at most to the first
    /// [`CALLS_UNTIL_LIBRARY_SEEN`] timer calls of the thread.
    pub(super) fn is_call_only(
        &self,
        cx: &Context,
        ti: ThreadIndex,
        span: &CallbackSpan,
        time: u64,
    ) -> bool {
        let Some(timer) = span.entity.filter(|_| span.input == Input::Timer) else {
            return false;
        };
        if !span.is_read_only() {
            return false;
        }
        let thread = &self.threads[ti];
        let process = &self.processes[thread.process.index()];
        let silent =
            !thread.waits && thread.rounds.last_trigger.is_none() && !process.events.asks_for_work;
        let short = span.spent(&thread.account.mark(time)).exec_ns <= WAKE_NS;
        let first = thread.calls.timer_calls <= CALLS_UNTIL_LIBRARY_SEEN
            && cx.entities.process(thread.process).late;
        (silent && short && first) || self.is_run_elsewhere(cx, ti, timer)
    }

    /// Returns the release of the timer whose callback starts, if the timer was called on another
    /// thread.
    pub(super) fn release_by_call(&mut self, ti: ThreadIndex, timer: EntityId) -> Release {
        let thread = &self.threads[ti];
        // The queue was empty when the executor slept, so earlier calls have been handled.
        let since = thread.sleeps.idle_from.unwrap_or(0);
        let called = &mut self.processes[thread.process.index()].events.called;
        if called.is_empty() {
            return Release::Unknown;
        }
        called.retain(|c| c.timer != timer || c.time >= since);
        let at = called.iter().position(|c| c.timer == timer);
        let call = at.and_then(|at| called.remove(at));
        call.map_or(Release::Unknown, |call| call.release)
    }

    /// Late attach: returns the timer of a callback that starts on the thread, if no recorded call
    /// on the thread shows this timer. The timer is known once the callback has started
    /// [`STARTS_UNTIL_SURE`] times in a row after a call of the same timer.
    pub(super) fn guess_timer(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        callback: u64,
    ) -> Option<EntityId> {
        let thread = &self.threads[ti];
        // The executor's queue was empty at this time, and it keeps the order of the calls.
        let since = thread.sleeps.idle_from?;
        let process = thread.process.index();
        let events = &mut self.processes[process].events;
        let known = |c: &Called| c.time < since || cx.entities.get(c.timer).exact;
        let mut candidates = events.called.iter().filter(|c| !known(c));
        let first = *candidates.next()?;
        if !candidates.all(|c| c.thread == first.thread) {
            return None;
        }
        let same = |c: &Called| c.time == first.time && c.timer == first.timer;
        if let Some(at) = events.called.iter().position(same) {
            events.called.remove(at);
        }
        if !self.is_sure(ti, callback, first.timer) {
            return None;
        }
        let events = &mut self.processes[process].events;
        // This start consumes the call that was just taken.
        events.called.push_front(first);
        Some(first.timer)
    }

    /// Records that `callback` started after a call of `timer`. The callback then probably belongs
    /// to this timer. Returns true if this happened [`STARTS_UNTIL_SURE`] times in a row.
    pub(super) fn is_sure(&mut self, ti: ThreadIndex, callback: u64, timer: EntityId) -> bool {
        let process = self.threads[ti].process.index();
        let guesses = &mut self.processes[process].events.guesses;
        let guess = Guess {
            callback,
            timer,
            times: 0,
        };
        let at = guesses.iter().position(|g| g.callback == callback);
        let at = at.unwrap_or_else(|| {
            guesses.push(guess);
            guesses.len() - 1
        });
        if guesses[at].timer != timer {
            guesses[at] = guess;
        }
        guesses[at].times += 1;
        let sure = guesses[at].times >= STARTS_UNTIL_SURE;
        if sure {
            guesses.swap_remove(at);
        }
        sure
    }

    pub(super) fn forget_calls(&mut self, e: EntityId) {
        for process in &mut self.processes {
            let events = &mut process.events;
            events.called.retain(|c| c.timer != e);
            events.guesses.retain(|g| g.timer != e);
        }
    }
}
