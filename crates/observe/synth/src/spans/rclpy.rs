//! The callbacks of rclpy, which have no events of their own. The executor triggers its guard
//! condition right before and right after each callback. The thread's next call of the executor
//! ends the callback.

use super::span::{longer, Bounds, CallbackSpan, Inferred, Triggers};
use super::{CloseReason, Spans};
use crate::entities::EntityKind;
use crate::events::{Owner, SpanEvent};
use crate::ids::ThreadIndex;
use crate::Context;

#[derive(Debug, Clone, Default)]
pub(super) struct Guards {
    /// A callback of this process ran between two triggers of a guard condition. The process
    /// therefore uses rclpy.
    pub(super) rclpy: bool,
    /// Late attach: a callback was left out once, because it was unknown whether the process uses
    /// rclpy.
    pub(super) doubted: bool,
    /// The guard condition that a pool of threads, other than rclpy's, triggers after each
    /// callback. 0 if no such guard condition is known.
    pub(super) pool: u64,
}

impl Spans {
    pub(crate) fn trigger(&mut self, cx: &mut Context, ti: ThreadIndex, time: u64, guard: u64) {
        let thread = &mut self.threads[ti];
        if thread.is_rclcpp() || self.processes[thread.process.index()].events.runs_rclcpp {
            return;
        }
        let mark = thread.account.mark(time);
        let last = thread.rounds.last_trigger;
        if !self.threads[ti].outer().is_empty() {
            self.trigger_within(cx, ti, guard);
        }
        self.trigger_suspended(cx, ti, time, guard, last);
        self.unseen_trigger(cx, ti, time, guard);
        let thread = &mut self.threads[ti];
        thread.rounds.last_act = Some(mark);
        thread.sleeps.restart(&mark);
        let last = thread.rounds.last_trigger.replace(mark);
        thread.rounds.shown |= last.is_some();
        let stray = !thread.waits && thread.sleeps.was_idle(last, &mark);
        thread.sleeps.forget_longest();
        if let Some(continuation) = thread.continuation_mut() {
            continuation.trigger = Some(mark);
            return;
        }
        if thread.span().is_none_or(|span| span.entity.is_none()) {
            return;
        }
        let Some(mut span) = thread.take_span() else {
            return;
        };
        let Bounds::Inferred(inferred) = &span.bounds else {
            return self.threads[ti].put_span(span);
        };
        match &inferred.triggers {
            Triggers::None => {
                let process = self.threads[ti].process;
                let guards = &self.processes[process.index()].guards;
                if guard == guards.pool && guard != 0 && !guards.rclpy {
                    // The thread is free again, and may do nothing for a long time.
                    self.close(cx, ti, span, time, CloseReason::ExecutorWentOn);
                    return;
                }
                self.first_trigger(cx, ti, &mut span, guard);
            }
            Triggers::Once { guard: first, .. } if *first == guard => {
                self.next_trigger(cx, ti, &mut span, guard);
            }
            Triggers::Several(before) if before.guard == guard => {
                if before.undecided.is_none() && (stray || before.is_over) {
                    if let Some(triggered) = span.triggered_mut() {
                        triggered.is_over = true;
                    }
                    self.threads[ti].put_span(span);
                    return;
                }
                self.next_trigger(cx, ti, &mut span, guard);
                if self.return_to_caller(cx, ti, &span) {
                    return;
                }
            }
            _ => {}
        }
        self.threads[ti].put_span(span);
    }

    /// Decides whether an item that was read within a callback is an input of this callback or of
    /// another one. Called when a guard condition is triggered after the read.
    ///
    /// If another executor uses this guard condition, the item was an input of the callback that
    /// read it. If the callback's own executor uses the condition and has triggered it twice,
    /// another callback ran on the item.
    fn trigger_within(&mut self, cx: &Context, ti: ThreadIndex, guard: u64) {
        let thread = &self.threads[ti];
        let outer = thread.outer().last().and_then(CallbackSpan::once);
        let read = thread.span().and_then(CallbackSpan::once);
        if outer.is_none_or(|o| o.0 != guard) {
            self.settle_read(cx, ti);
        } else if read.is_some_and(|r| r.0 == guard) {
            self.suspend_outer_callback(cx, ti);
        }
    }

    /// Handles the first trigger of a guard condition after the thread read an item or called a
    /// timer, with which `span` began. The caller has already stored the trigger in the thread's
    /// `last_trigger`.
    fn first_trigger(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        span: &mut CallbackSpan,
        guard: u64,
    ) {
        // rclpy triggers before the callback and before anything else.
        if span.instance.is_some() || guard == 0 {
            return;
        }
        self.note_spin(ti, guard);
        let read_at = span.from;
        if let Some(mark) = self.threads[ti].rounds.last_trigger {
            span.from = mark;
        }
        if let Some(inferred) = span.inferred_mut() {
            inferred.triggers = Triggers::Once { guard, read_at };
        }
        let process = self.threads[ti].process;
        let within = !self.threads[ti].outer().is_empty();
        if self.processes[process.index()].guards.rclpy && !is_client(cx, span) && !within {
            self.begin(cx, ti, span);
        }
    }

    fn next_trigger(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        span: &mut CallbackSpan,
        guard: u64,
    ) {
        let Some(last) = self.threads[ti].rounds.last_trigger else {
            return;
        };
        let undecided = match span.triggered_mut() {
            Some(triggered) => {
                triggered.longest = longer(triggered.longest, triggered.last, last);
                (triggered.last, triggered.is_over) = (last, false);
                triggered.more = triggered.more.saturating_add(1);
                triggered.undecided.take()
            }
            None => {
                span.set_triggered(guard, last);
                None
            }
        };
        let process = self.threads[ti].process;
        self.processes[process.index()].guards.rclpy = true;
        self.settle_together(cx, ti, span, last.time);
        self.note_goal(cx, ti, span, last.time);
        if !is_client(cx, span) {
            self.begin(cx, ti, span);
            if let Some(instance) = span.instance {
                let time = last.time;
                self.new_events
                    .push(SpanEvent::InputDone { instance, time });
            }
        }
        if let Some(decision) = undecided {
            let owner = span.instance.map_or(Owner::Outside, Owner::Instance);
            self.new_events.push(SpanEvent::Decided { decision, owner });
        }
        if self.waits_for_response(cx, ti, span) && !self.is_awaited(ti, span) {
            // The waiting code may run on another worker before this one does anything again.
            self.push_pending(ti, span);
            if let Some(triggered) = span.triggered_mut() {
                triggered.is_pending = true;
            }
        }
    }

    /// Reports whether a span is only rclpy's own handling of a response. The code that waits for
    /// the response then runs later.
    pub(super) fn waits_for_response(
        &self,
        cx: &Context,
        ti: ThreadIndex,
        span: &CallbackSpan,
    ) -> bool {
        !self.threads[ti].is_rclcpp()
            && span.instance.is_none()
            && span.triggered().is_some()
            && is_client(cx, span)
            && !super::is_hidden(cx, span)
    }

    /// Handles the end of an inferred span that contains only one trigger of a guard condition. In
    /// a pool of threads other than rclpy's, this trigger comes after the callback. For such a
    /// pool, returns the mark of the trigger, and lets the span begin at the read.
    pub(super) fn learn_pool(
        &mut self,
        ti: ThreadIndex,
        span: &mut CallbackSpan,
    ) -> Option<super::Mark> {
        let guards = &mut self.processes[self.threads[ti].process.index()].guards;
        let Bounds::Inferred(Inferred {
            triggers: Triggers::Once { guard, read_at },
            ..
        }) = span.bounds
        else {
            return None;
        };
        if span.instance.is_some() || guards.rclpy {
            return None;
        }
        // The trigger after the callback informed the pool that one more thread is free.
        guards.pool = guard;
        Some(std::mem::replace(&mut span.from, read_at))
    }
}

fn is_client(cx: &Context, span: &CallbackSpan) -> bool {
    let kind = span.entity.map(|e| cx.entities.get(e).kind());
    kind == Some(EntityKind::Client)
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    /// The events that create process 10: node `/py` with a publisher of `/out` (rmw 0x1010), a
    /// timer (0x50) and a subscription to `/in` (rmw 0x1020).
    const PY: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=py
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/out
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/in
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
";

    #[test]
    fn a_callback_of_rclpy_runs_between_two_triggers_of_one_guard_condition() {
        let trace = format!(
            "{PY}
11000us cpu0 10/10 timer_call timer=0x50
11100us cpu0 10/10 guard_trigger guard=0x9
11500us cpu0 10/10 guard_trigger guard=0xa
12100us cpu0 10/10 guard_trigger guard=0x9
12500us cpu0 10/10 wait_set_init"
        );
        assert_eq!(
            Harness::new(&trace).span_events(),
            [
                "11100 begin #0 timer",
                "12100 input done #0",
                "12100 end #0 Inferred exec 1000",
            ]
        );
    }

    #[test]
    fn the_next_call_of_the_executor_decides_the_owner_of_a_publication_after_the_last_trigger() {
        let start = format!(
            "{PY}
11000us cpu0 10/10 timer_call timer=0x50
11100us cpu0 10/10 guard_trigger guard=0x9
11300us cpu0 10/10 guard_trigger guard=0x9
11600us cpu0 10/10 publish rmw=0x1010 source_ns=1us
"
        );
        let after = |what: &str| {
            let events = Harness::new(&(start.clone() + what)).span_events();
            events[2..].join(", ")
        };
        assert_eq!(
            after("11900us cpu0 10/10 guard_trigger guard=0x9"),
            "11600 publish /out by ?1, 11900 input done #0, decided ?1 #0"
        );
        assert_eq!(
            after("11900us cpu0 10/10 wait_set_init"),
            "11600 publish /out by ?1, decided ?1 nobody, 11300 end #0 Inferred exec 200"
        );
    }

    #[test]
    fn without_triggers_the_next_call_of_the_executor_ends_a_callback() {
        let trace = format!(
            "{PY}
11ms cpu0 10/10 take rmw=0x1020 source_ns=1us
13ms cpu0 10/10 wait_set_init"
        );
        assert_eq!(
            Harness::new(&trace).span_events(),
            [
                "11000 begin #0 subscription(/in)",
                "13000 end #0 Inferred exec 2000",
            ]
        );
    }
}
