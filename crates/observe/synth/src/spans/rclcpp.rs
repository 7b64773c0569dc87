//! The callbacks of rclcpp, which `callback_start` and `callback_end` bound exactly. For futures,
//! `execute_client` has no such events, so its return ends the callback.

use super::span::{Bounds, CallbackSpan, Exact, Inferred, Triggers};
use super::thread::{CalledTimers, Library};
use super::{CloseReason, Spans};
use crate::entities::{EntityKind, HandleKind};
use crate::events::Input;
use crate::ids::{EntityId, ThreadIndex};
use crate::notes::Note;
use crate::values::Release;
use crate::Context;

impl Spans {
    /// Records that the executor begins to execute the next entity. The last read is kept if no
    /// callback has followed it yet.
    pub(crate) fn execute(&mut self, cx: &mut Context, ti: ThreadIndex, time: u64) {
        self.note_rclcpp(ti);
        let thread = &mut self.threads[ti];
        if thread.span().is_none_or(CallbackSpan::is_read_only) {
            thread.phase.leave_wait();
        } else {
            self.executor(cx, ti, time, false);
        }
    }

    pub(crate) fn next_ready(&mut self, cx: &mut Context, ti: ThreadIndex, time: u64) {
        self.note_rclcpp(ti);
        self.note_asks(ti);
        self.executor(cx, ti, time, false);
    }

    pub(crate) fn execute_start(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        client_call: bool,
    ) {
        self.execute(cx, ti, time);
        self.threads[ti].library = Library::Rclcpp { client_call };
    }

    pub(crate) fn execute_end(&mut self, cx: &mut Context, ti: ThreadIndex, time: u64) {
        let thread = &mut self.threads[ti];
        thread.library = Library::Rclcpp { client_call: false };
        if thread.span().is_none_or(CallbackSpan::is_exact) {
            // An exact span has its own end.
            return;
        }
        if let Some(mut span) = thread.take_span() {
            let client_call = span.inferred_mut().is_some_and(|i| i.client_call);
            if client_call {
                self.end_inner(cx, ti, span, time, CloseReason::CallbackEnded);
            } else {
                self.close(cx, ti, span, time, CloseReason::ExecutorWentOn);
                self.unnest(ti, None);
            }
        }
    }

    pub(crate) fn callback_start(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        cpu: u16,
        callback: u64,
    ) {
        self.note_rclcpp(ti);
        self.note_executor(ti, time);
        let p = self.threads[ti].process;
        let known = cx.entities.callback(p, callback);
        let mut read = self.take_read(cx, ti, time);
        let called = self.called_timer(cx, ti, (known, callback), &mut read);
        self.leave_open(cx, ti, time, callback);
        if read.is_none() {
            self.wake_for_event(ti);
        }
        let read_entity = read.as_ref().and_then(|r| r.entity);
        let guess = match (known, read_entity) {
            _ if called.is_some() => called.flatten(),
            (None, None) if read.is_none() => self.guess_timer(cx, ti, callback),
            _ => read_entity,
        };
        let entity = match (known, guess) {
            (Some(entity), _) => entity,
            (None, Some(read)) => {
                // Late attach: the callback belongs to the entity that was read before.
                cx.entities
                    .set_handle(p, HandleKind::Callback, callback, read);
                read
            }
            (None, None) => {
                cx.notes.count(Note::UnknownCallback, 1);
                return;
            }
        };
        let release = called.and_then(|_| self.threads[ti].calls.called.take(entity));
        let (input, release) = match release {
            Some(release) => (Input::Timer, release),
            None => self.input_of(cx, (ti, time), entity, read),
        };
        cx.entities.get_mut(entity).exact = true;
        let thread = &mut self.threads[ti];
        thread.phase.leave_wait();
        let at = thread.account.mark(time);
        let mut span = CallbackSpan::read(
            Some(entity),
            input,
            release,
            at,
            cpu,
            Inferred {
                buffer: None,
                client_call: false,
                responded: None,
                triggers: Triggers::None,
                taken_together: Vec::new(),
            },
        );
        span.bounds = Bounds::Exact(Exact {
            callback,
            spins: false,
            left: None,
            undecided: None,
        });
        self.pause_outer(ti, time);
        self.begin(cx, ti, &mut span);
        self.threads[ti].put_span(span);
    }

    /// Returns the timer of a callback that starts, if the thread has called several timers before
    /// it runs their callbacks. The inner option is `None` if it is unknown to which of these
    /// timers the callback belongs.
    ///
    /// If `read` contains the call of a timer, moves this call to the thread's list of called
    /// timers.
    fn called_timer(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        (known, callback): (Option<EntityId>, u64),
        read: &mut Option<CallbackSpan>,
    ) -> Option<Option<EntityId>> {
        let thread = &mut self.threads[ti];
        thread.calls.called.iter().next()?;
        if let Some(span) = read.take_if(|span| span.input == Input::Timer) {
            let timer = span.entity?;
            thread.calls.called.push(timer, span.release);
        } else if read.is_some() {
            return None;
        }
        if let Some(entity) = known {
            let is_called = thread.calls.called.iter().any(|timer| timer == entity);
            return is_called.then_some(known);
        }
        let called = thread.calls.called;
        let unknown = |timer: &EntityId| !cx.entities.get(*timer).exact;
        let mut candidates = called.iter().filter(unknown);
        let first = candidates.next()?;
        if candidates.next().is_none() || self.is_sure(ti, callback, first) {
            return Some(Some(first));
        }
        // The order of the other callbacks does not show their timers either.
        self.threads[ti].calls.called = CalledTimers::default();
        Some(None)
    }

    /// Removes and returns the thread's last read if no callback has run on the item yet. If this
    /// read was made within a callback that has its own end event, that callback waits. Any other
    /// execution on the thread ends.
    fn take_read(&mut self, cx: &mut Context, ti: ThreadIndex, time: u64) -> Option<CallbackSpan> {
        self.close_continuation(ti, time);
        let begun = |span: &CallbackSpan| !span.is_exact() && !span.is_read_only();
        if self.threads[ti].span().is_some_and(begun) {
            if let Some(span) = self.threads[ti].take_span() {
                self.end_inner(cx, ti, span, time, CloseReason::ExecutorWentOn);
            }
        }
        self.nest(cx, ti, time);
        let span = self.threads[ti].take_span()?;
        let entity = span.entity.map(|e| cx.entities.get(e));
        if entity.is_some_and(|e| e.action.is_some()) {
            // An action reads for itself. Its callbacks have no events of their own.
            self.close(cx, ti, span, time, CloseReason::ExecutorWentOn);
            return None;
        }
        Some(span)
    }

    fn input_of(
        &mut self,
        cx: &mut Context,
        (ti, time): (ThreadIndex, u64),
        entity: EntityId,
        read: Option<CallbackSpan>,
    ) -> (Input, Release) {
        let kind = cx.entities.get(entity).kind();
        let input = if kind == EntityKind::Timer {
            Input::Timer
        } else {
            Input::Unknown
        };
        let Some(mut read) = read else {
            let release = if kind == EntityKind::Timer {
                self.release_by_call(ti, entity)
            } else {
                Release::Unknown
            };
            return (input, release);
        };
        let ring = read.entity.is_none() && kind == EntityKind::Subscription;
        if read.entity != Some(entity) && !ring {
            if !self.threads[ti].outer().is_empty() {
                self.own_input(cx, ti, &read);
            } else {
                // The read belongs to a callback without events of its own (an action's). The
                // recording shows nothing more of it.
                self.close(cx, ti, read, time, CloseReason::ExecutorWentOn);
            }
            return (input, Release::Unknown);
        }
        if let Some(buffer) = read.inferred_mut().and_then(|i| i.buffer) {
            let p = self.threads[ti].process;
            cx.entities
                .set_handle(p, HandleKind::RingBuffer, buffer, entity);
        }
        (read.input, read.release)
    }

    pub(crate) fn callback_end(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        callback: u64,
    ) {
        self.note_rclcpp(ti);
        let thread = &mut self.threads[ti];
        if !thread.span().is_some_and(|span| span.is_callback(callback))
            && !self.leave_inner(cx, ti, time, callback)
        {
            if self.threads[ti].span().is_none() {
                // The entity of this callback was unknown at its start.
                self.threads[ti].sleeps.busy_until = time;
            }
            return;
        }
        if let Some(mut span) = self.threads[ti].take_span() {
            if let Some(e) = span.entity {
                cx.entities.get_mut(e).nests.ends = true;
            }
            self.prove_spin(cx, &mut span);
            self.end_inner(cx, ti, span, time, CloseReason::CallbackEnded);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{listen, talk, Harness, PAIR};

    #[test]
    fn a_callback_span_lasts_from_callback_start_to_callback_end() {
        let trace = [PAIR, &talk(11_000), &listen(11_300, 11_000)].concat();
        assert_eq!(
            Harness::new(&trace).span_events(),
            [
                "11000 begin #0 timer",
                "11000 publish /t by #0",
                "11100 end #0 Exact exec 100",
                "11300 begin #0 subscription(/t)",
                "11400 end #0 Exact exec 100",
            ]
        );
    }

    #[test]
    fn a_callback_span_that_an_exception_ended_is_aborted() {
        let trace = format!(
            "{PAIR}
11ms cpu0 10/10 timer_call timer=0x50
11ms cpu0 10/10 callback_start callback=0x60
12ms cpu0 10/10 executor_next_ready
13ms cpu0 10/10 publish rmw=0x1010 source_ns=13ms
21ms cpu0 10/10 timer_call timer=0x50
21ms cpu0 10/10 callback_start callback=0x60"
        );
        assert_eq!(
            Harness::new(&trace).span_events(),
            [
                "11000 begin #0 timer",
                // The publisher is the callback, or the code that caught its exception. The
                // callback never ends, so the publication has no owner.
                "13000 publish /t by ?1",
                "decided ?1 nobody",
                "21000 end #0 Aborted exec 10000",
                "21000 begin #1 timer",
            ]
        );
    }

    #[test]
    fn an_item_that_is_read_without_a_callback_counts_only_as_taken() {
        let trace = format!(
            "{PAIR}{}
20ms cpu1 20/20 take rmw=0x1020 source_ns=5ms
21ms cpu1 20/20 executor_next_ready",
            listen(11_300, 11_000)
        );
        let events = Harness::new(&trace).span_events();
        assert_eq!(events.last().unwrap(), "read only subscription(/t)");
    }

    #[test]
    fn the_return_of_execute_client_is_the_exact_end_of_the_clients_span() {
        let trace = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=caller
1ms cpu0 10/10 client_init client=0x40 node=0x1 rmw=0x1040 name=/s
5ms cpu0 10/10 execute_start execute=client
5ms cpu0 10/10 response_take rmw=0x1040 sequence=1 source_ns=0
6ms cpu0 10/10 execute_end execute=client
9ms cpu0 10/10 executor_next_ready";
        assert_eq!(
            Harness::new(trace).span_events(),
            ["5000 begin #0 client(/s)", "6000 end #0 Exact exec 1000"]
        );
    }

    #[test]
    fn late_attach_assigns_a_callback_to_the_subscription_of_the_take_before_it() {
        let trace = "
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0 rmw=0x1020 name=/t
2ms cpu0 10/10 callback_start callback=0x60
3ms cpu0 10/10 callback_end callback=0x60
4ms cpu0 10/10 take rmw=0x1020 source_ns=1ms
4ms cpu0 10/10 callback_start callback=0x60
5ms cpu0 10/10 callback_end callback=0x60
6ms cpu0 10/10 callback_start callback=0x60
7ms cpu0 10/10 callback_end callback=0x60";
        let harness = Harness::new(trace);
        assert_eq!(
            harness.span_events(),
            [
                "4000 begin #0 subscription(/t)",
                "5000 end #0 Exact exec 1000",
                "6000 begin #0 subscription(/t)",
                "7000 end #0 Exact exec 1000",
            ]
        );
        assert!(harness.notes().contains(&"UnknownCallback 1".to_string()));
    }
}
