//! Executors of events: they never ask for work (`rcl_wait`), but sleep until something is queued
//! for them. rclcpp's calls timers on a thread apart, and runs their callbacks on its own.

use super::account::Mark;
use super::span::{Bounds, CallbackSpan};
use super::thread::Library;
use super::Spans;
use crate::events::Input;
use crate::ids::{EntityId, ThreadIndex};
use crate::values::{Idle, Release};
use crate::Context;
use std::collections::VecDeque;

/// What is known of the executors of events of a process.
#[derive(Debug, Clone, Default)]
pub(super) struct Events {
    /// A thread of the process asks for work.
    pub(super) asks: bool,
    /// rclcpp runs callbacks in the process.
    pub(super) rclcpp: bool,
    /// Calls of timers whose callbacks have not started yet, oldest first.
    called: VecDeque<Called>,
    /// Late attach: whose callbacks seem to be whose.
    guesses: Vec<Guess>,
}

/// A call of a timer, made on a thread that does not run its callback.
#[derive(Debug, Clone, Copy)]
struct Called {
    timer: EntityId,
    thread: ThreadIndex,
    time: u64,
    release: Release,
}

/// A callback that has started after calls of this timer, so often in a row.
#[derive(Debug, Clone, Copy)]
struct Guess {
    callback: u64,
    timer: EntityId,
    times: u32,
}

/// Most calls that are kept; a call is dropped when its timer or executor ends before.
const MAX_CALLED: usize = 256;

/// So often a callback must have started after the same timer's call alone to be that timer's.
const SURE: u32 = 3;

/// Calls of timers on a thread after which its process's executors have shown themselves.
const UNTOLD: u8 = 16;

/// Between its wake-up and its next call an executor of events uses no more time on the CPU than
/// this, in ns. After a sleep of a callback's own there is the rest of the callback.
const WAKE_NS: u64 = 300_000;

impl Spans {
    /// Notes that a thread asks for work.
    pub(super) fn asks(&mut self, ti: ThreadIndex) {
        let thread = &mut self.threads[ti];
        if !thread.asks {
            thread.asks = true;
            self.processes[thread.process.index()].events.asks = true;
        }
    }

    /// Notes that a thread runs callbacks of rclcpp.
    pub(super) fn is_of_rclcpp(&mut self, ti: ThreadIndex) {
        let thread = &mut self.threads[ti];
        if !thread.is_rclcpp() {
            thread.library = Library::Rclcpp { client_call: false };
            self.processes[thread.process.index()].events.rclcpp = true;
        }
    }

    /// Whether a thread belongs to an executor of events, as far as is seen.
    fn is_of_events(&self, ti: ThreadIndex) -> bool {
        let thread = &self.threads[ti];
        let events = &self.processes[thread.process.index()].events;
        // A thread of rclpy's pool never asks itself: another one does.
        !thread.asks && (thread.is_rclcpp() || !events.asks)
    }

    /// The executor of events goes on: it slept since what ran before on its thread.
    pub(super) fn wake_for_event(&mut self, ti: ThreadIndex) {
        if !self.is_of_events(ti) {
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

    /// When the callback of an inferred span on a thread of an executor of events ended: when the
    /// thread went to sleep for its next event.
    pub(super) fn slept_after(
        &self,
        ti: ThreadIndex,
        span: &CallbackSpan,
        now: Mark,
    ) -> Option<Mark> {
        let thread = &self.threads[ti];
        if !self.is_of_events(ti) || !matches!(span.bounds, Bounds::Inferred(_)) {
            return None;
        }
        let (from, woken) = thread.sleeps.ended()?;
        let used = now.totals.since(&from.totals).exec_ns;
        (from.time > span.from.time && woken <= now.time && used <= WAKE_NS).then_some(from)
    }

    // ---- timers that are called on a thread apart

    /// Whether the call of a timer on a thread is no execution, because its callback announces
    /// itself.
    fn is_run_elsewhere(&self, cx: &Context, ti: ThreadIndex, timer: EntityId) -> bool {
        let thread = &self.threads[ti];
        if thread.is_rclcpp() {
            return false;
        }
        let it = cx.entities.get(timer);
        let process = &self.processes[thread.process.index()];
        // Late attach: its creation was not seen, and so no announcement.
        let late = cx.entities.process(thread.process).late;
        let unseen = process.events.rclcpp && (late || it.looks.period_ns.is_none());
        it.exact || (unseen && !process.guards.rclpy && !thread.waits)
    }

    /// A timer is called. True if its callback runs elsewhere, or is still to announce itself.
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

    /// Whether a span that ends is the call of a timer whose callback runs elsewhere. Late attach:
    /// also a short one that may be, until the process shows its library, or does not.
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
        let silent = !thread.waits && thread.rounds.last_trigger.is_none() && !process.events.asks;
        let short = span.spent(&thread.account.mark(time)).exec_ns <= WAKE_NS;
        let first = thread.calls.timers <= UNTOLD && cx.entities.process(thread.process).late;
        (silent && short && first) || self.is_run_elsewhere(cx, ti, timer)
    }

    /// A timer's callback starts: when it was released, if it was called on another thread.
    pub(super) fn release_by_call(&mut self, ti: ThreadIndex, timer: EntityId) -> Release {
        let thread = &self.threads[ti];
        // What was called before the executor slept is gone: its queue was empty then.
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

    /// Late attach: a callback starts that is not known, after no read on its thread. The timer
    /// whose callback it is, once it has started after calls of this one alone.
    pub(super) fn guess_timer(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        callback: u64,
    ) -> Option<EntityId> {
        let thread = &self.threads[ti];
        // The queue was empty then, and keeps the order of calls.
        let since = thread.sleeps.idle_from?;
        let events = &mut self.processes[thread.process.index()].events;
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
        let guess = Guess {
            callback,
            timer: first.timer,
            times: 0,
        };
        let guesses = &mut events.guesses;
        let at = guesses.iter().position(|g| g.callback == callback);
        let at = at.unwrap_or_else(|| {
            guesses.push(guess);
            guesses.len() - 1
        });
        if guesses[at].timer != first.timer {
            guesses[at] = guess;
        }
        guesses[at].times += 1;
        if guesses[at].times < SURE {
            return None;
        }
        guesses.swap_remove(at);
        // The call that was just taken is this start's.
        events.called.push_front(first);
        Some(first.timer)
    }

    /// Drops what is kept for an entity whose place may be used again.
    pub(super) fn forget_calls(&mut self, e: EntityId) {
        for process in &mut self.processes {
            let events = &mut process.events;
            events.called.retain(|c| c.timer != e);
            events.guesses.retain(|g| g.timer != e);
        }
    }
}
