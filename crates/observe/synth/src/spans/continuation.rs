//! The continuations of rclpy: code that waits for a response runs later, as a task after the last
//! callback of the round, on any worker. What a thread runs between the last trigger and its next
//! wait is the client's callback. This callback begins once something is published in that time.

use super::account::Mark;
use super::clients::Fit;
use super::span::{longer, CallbackSpan};
use super::Spans;
use crate::entities::ActionPart;
use crate::events::{Begin, Ending, Input, Owner, SpanEvent};
use crate::ids::{EntityId, InstanceId, ProcessIndex, ThreadIndex};
use crate::index::NameId;
use crate::values::{Cpus, Idle, Release, Totals};
use crate::Context;

#[derive(Debug, Clone)]
pub(super) struct PendingResponse {
    pub(super) client: EntityId,
    pub(super) input: Input,
    pub(super) thread: ThreadIndex,
    pub(super) taken_at: u64,
    /// The mark of the executor's last trigger of its guard condition before the executor handled
    /// the response. The handling ends with the executor's next trigger, at `to`.
    pub(super) from: Mark,
    pub(super) to: Mark,
    pub(super) idle: Option<Idle>,
    pub(super) cpus: Cpus,
    /// Some publications by the code that waits for this response may have been counted as made
    /// outside of callbacks.
    pub(super) doubtful: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chosen {
    NoResponse,
    One(usize, Fit),
    Several(Fit),
}

impl Chosen {
    fn fit(self) -> Fit {
        match self {
            Chosen::NoResponse => Fit::None,
            Chosen::One(_, fit) | Chosen::Several(fit) => fit,
        }
    }
}

/// An execution of code that waited for a response, or of the code that executes an action's goal.
/// The code has published something.
#[derive(Debug, Clone)]
pub(super) struct Continuation {
    pub(super) entity: EntityId,
    pub(super) instance: InstanceId,
    pub(super) cpus: Cpus,
    pub(super) times: Times,
    pub(super) from: Mark,
    pub(super) last_publication: Mark,
    pub(super) trigger: Option<Mark>,
    pub(super) asked_for_result: bool,
    pub(super) goal: Option<Goal>,
}

/// The meaning of the times of an execution of code that waited for a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    /// No other response was pending during the execution, so its times show what is usual for the
    /// client.
    Usual,
    /// Code that waited for other responses may have run on the same thread before or after it.
    /// Publications separate the executions.
    Beside,
    /// It is unknown for which responses the other code waited, so no event separates the
    /// executions.
    Unknown,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Goal {
    pub(super) action: NameId,
    /// The times that the task spent before it was suspended last.
    pub(super) earlier: Totals,
    pub(super) done: bool,
}

/// The time for which a response is kept if no code seems to wait for it, in ns.
const PENDING_NS: u64 = 200_000_000;

/// The time for which a response is kept on a pool of threads if no code seems to wait for it, in
/// ns. It is longer than [`PENDING_NS`] because the code may wait for a CPU. This time does not
/// apply to clients whose code has never published.
const PENDING_IN_POOL_NS: u64 = 2_000_000_000;

const MAX_PENDING: usize = 64;

impl Spans {
    // ---- responses that code waits for

    pub(super) fn push_pending(&mut self, ti: ThreadIndex, span: &CallbackSpan) {
        let (Some(client), Some(triggered)) = (span.entity, span.triggered()) else {
            return;
        };
        if triggered.is_pending {
            return;
        }
        let response = PendingResponse {
            client,
            input: span.input,
            thread: ti,
            taken_at: span.from.time,
            from: span.from,
            to: triggered.last,
            idle: self.threads[ti].phase.idle(),
            cpus: span.cpus,
            doubtful: false,
        };
        self.push_response(ti, response);
    }

    pub(super) fn push_response(&mut self, ti: ThreadIndex, response: PendingResponse) {
        let process = self.threads[ti].process.index();
        if self.processes[process].pending.len() >= MAX_PENDING {
            if let Some(old) = self.processes[process].pending.pop_front() {
                self.run_without_publication(&old);
            }
        }
        self.processes[process].pending.push_back(response);
    }

    fn take_pending(&mut self, ti: ThreadIndex) -> Vec<PendingResponse> {
        let pending = &mut self.processes[self.threads[ti].process.index()].pending;
        let mine = |p: &PendingResponse| p.thread == ti;
        let (mine, others): (Vec<_>, Vec<_>) = pending.drain(..).partition(mine);
        *pending = others.into();
        mine
    }

    fn run_pending(&mut self, ti: ThreadIndex, pending: &PendingResponse, from: Mark, to: Mark) {
        let instance = self.begin_pending(ti, pending, from);
        let spent = to.totals.since(&from.totals);
        // The code may have been one of those that published.
        let how = match pending.doubtful {
            true => Ending::Unshown,
            false => Ending::Inferred,
        };
        self.end(ti, instance, (to.time, spent), how, pending.cpus);
    }

    /// Reports that a client's callback ran without a publication.
    ///
    /// If the thread that took the response waits for work itself, it would have run the waiting
    /// code before its next wait. So no such code ran, and the callback is the executor's own
    /// handling of the response. In a pool, any thread may have run the code, and no event shows
    /// when.
    fn run_without_publication(&mut self, pending: &PendingResponse) {
        let ti = pending.thread;
        if self.threads[ti].waits && !pending.doubtful {
            return self.run_pending(ti, pending, pending.from, pending.to);
        }
        if !pending.doubtful {
            self.habits.learn_silent(pending.client);
        }
        let instance = self.begin_pending(ti, pending, pending.from);
        let spent = pending.to.totals.since(&pending.from.totals);
        let end = (pending.to.time, spent);
        self.end(ti, instance, end, Ending::Unshown, pending.cpus);
    }

    fn begin_pending(
        &mut self,
        ti: ThreadIndex,
        pending: &PendingResponse,
        from: Mark,
    ) -> InstanceId {
        let instance = self.instances.next();
        self.new_events.push(SpanEvent::Begin(Begin {
            instance,
            entity: pending.client,
            start: from.time,
            thread: self.threads[ti].id,
            input: if pending.doubtful {
                Input::Ambiguous
            } else {
                pending.input
            },
            idle: pending.idle,
            release: Release::Unknown,
        }));
        instance
    }

    fn expire_pending(&mut self, process: ProcessIndex, time: u64) {
        loop {
            let pending = &self.processes[process.index()].pending;
            let Some(at) = pending.iter().position(|p| self.is_overdue(p, time)) else {
                return;
            };
            if let Some(old) = self.processes[process.index()].pending.remove(at) {
                self.run_without_publication(&old);
            }
        }
    }

    fn is_overdue(&self, pending: &PendingResponse, time: u64) -> bool {
        let at_once = self.threads[pending.thread].waits || self.habits.is_silent(pending.client);
        let limit = if at_once {
            PENDING_NS
        } else {
            PENDING_IN_POOL_NS
        };
        time.saturating_sub(pending.taken_at) >= limit
    }

    pub(super) fn end_pending(&mut self, process: ProcessIndex) {
        while let Some(old) = self.processes[process.index()].pending.pop_front() {
            self.run_without_publication(&old);
        }
    }

    // ---- rounds of the executor

    pub(super) fn end_continuation_round(&mut self, ti: ThreadIndex, time: u64, round_ends: bool) {
        self.close_continuation(ti, time);
        if round_ends {
            // The other waiting code has had its turn too, and has published nothing.
            for pending in self.take_pending(ti) {
                self.run_pending(ti, &pending, pending.from, pending.to);
            }
        }
    }

    /// Handles the executor's next call after it has run callbacks. `tail` is the time from the end
    /// of the last callback to this call. Code that waited for responses may have run in that time.
    pub(super) fn end_round(
        &mut self,
        ti: ThreadIndex,
        time: u64,
        round_ends: bool,
        tail: Option<(Mark, Mark)>,
    ) {
        let process = self.threads[ti].process;
        if self.processes[process.index()].pending.is_empty() {
            if let (true, Some((from, to))) = (round_ends, tail) {
                let spent = to.totals.since(&from.totals).exec_ns;
                self.threads[ti].rounds.overhead.add(spent);
            }
            return;
        }
        if round_ends && !self.threads[ti].is_rclcpp() {
            let waiting = self.take_pending(ti);
            if !waiting.is_empty() {
                let thread = &self.threads[ti];
                let now = thread.account.mark(time);
                let from = thread.rounds.last_trigger.unwrap_or(now);
                let (from, mut to) = tail.unwrap_or((from, now));
                if to.time == now.time {
                    to = self.without_overhead(ti, from, to);
                }
                self.split_stretch(ti, waiting, from, to);
            }
        }
        self.expire_pending(process, time);
    }

    pub(super) fn waiting_stretch(
        &self,
        ti: ThreadIndex,
        span: &CallbackSpan,
        time: u64,
    ) -> Option<(Mark, Mark)> {
        let triggered = span.triggered()?;
        let now = self.threads[ti].account.mark(time);
        longer(triggered.longest, triggered.last, now)
    }

    /// Divides the time from `from` to `to` between the callbacks `waiting`, because no event
    /// separates them. Each callback gets a part in proportion to its usual execution time.
    fn split_stretch(
        &mut self,
        ti: ThreadIndex,
        waiting: Vec<PendingResponse>,
        from: Mark,
        to: Mark,
    ) {
        let weights = waiting.iter().map(|w| self.habits.mean_ns(w.client));
        let weights: Vec<u64> = weights.collect();
        let total: u128 = weights.iter().map(|&w| u128::from(w)).sum();
        let spent = to.totals.since(&from.totals);
        let part = |value: u64, sum: u128| (u128::from(value) * sum / total.max(1)) as u64;
        let (mut sum, mut start) = (0, from);
        for (i, w) in waiting.iter().enumerate() {
            sum += u128::from(weights[i]);
            let mut end = to;
            if i + 1 < waiting.len() {
                end = from;
                end.time += part(to.time.saturating_sub(from.time), sum);
                end.totals.exec_ns += part(spent.exec_ns, sum);
                end.totals.preempted_ns += part(spent.preempted_ns, sum);
                end.totals.blocked_ns += part(spent.blocked_ns, sum);
            }
            if waiting.len() == 1 {
                self.habits.learn_mean(w.client, spent.exec_ns);
            }
            self.run_pending(ti, w, start, end);
            start = end;
        }
    }

    /// Returns the end of code that began at `from`. After this code, the executor made a wait set
    /// at `to`. The result is `to` minus the executor's usual CPU time before a wait set.
    pub(super) fn without_overhead(&self, ti: ThreadIndex, from: Mark, to: Mark) -> Mark {
        let spent = to.totals.since(&from.totals).exec_ns;
        let usual = self.threads[ti].rounds.overhead.median().min(spent);
        let mut end = to;
        end.totals.exec_ns -= usual;
        end.time = to.time.saturating_sub(usual).max(from.time);
        end
    }

    // ---- continuations

    pub(super) fn some_pending(&self, ti: ThreadIndex) -> bool {
        let thread = &self.threads[ti];
        !thread.is_rclcpp() && !self.processes[thread.process.index()].pending.is_empty()
    }

    /// Chooses the response whose code publishes by `endpoint` on this thread: code that waited for
    /// the response and runs now. Of several responses to one client, chooses the first, because
    /// the executor runs the code for them in this order.
    fn choose_pending(&self, cx: &Context, ti: ThreadIndex, endpoint: Option<EntityId>) -> Chosen {
        let mut best = Chosen::NoResponse;
        let mut client = None;
        for (i, p) in self.candidates(cx, ti, endpoint) {
            let fit = self.fit(cx, p.client, endpoint);
            if best == Chosen::NoResponse || fit > best.fit() {
                (best, client) = (Chosen::One(i, fit), Some(p.client));
            } else if fit == best.fit() && client != Some(p.client) {
                best = Chosen::Several(fit);
            }
        }
        best
    }

    fn fit(&self, cx: &Context, client: EntityId, endpoint: Option<EntityId>) -> Fit {
        if asks_result(cx, client, endpoint) {
            return Fit::Usual;
        }
        self.habits.fit(&cx.entities, client, endpoint)
    }

    fn candidates<'a>(
        &'a self,
        cx: &'a Context,
        ti: ThreadIndex,
        endpoint: Option<EntityId>,
    ) -> impl Iterator<Item = (usize, &'a PendingResponse)> {
        let thread = &self.threads[ti];
        let pending = self.processes[thread.process.index()].pending.iter();
        pending.enumerate().filter(move |(_, p)| {
            // A thread that waits for work runs the code of the responses that it took. Workers run
            // any code.
            let elsewhere = || endpoint.is_some_and(|e| are_of_different_nodes(cx, p.client, e));
            (!thread.waits || p.thread == ti) && !elsewhere()
        })
    }

    /// Marks several responses as doubtful. Code that waited for one of them may have published by
    /// `endpoint`, but it is unknown for which of them this code waited. Later publications by such
    /// code are therefore uncertain as well.
    fn doubt(&mut self, cx: &Context, ti: ThreadIndex, endpoint: Option<EntityId>) {
        let places: Vec<usize> = self.candidates(cx, ti, endpoint).map(|c| c.0).collect();
        let pending = &mut self.processes[self.threads[ti].process.index()].pending;
        for place in places {
            pending[place].doubtful = true;
        }
    }

    /// Begins an execution of the client's callback at `from`. The callback is the code that waited
    /// for the client's response and now publishes by `endpoint`.
    fn open_continuation(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        from: Mark,
        chosen: usize,
        endpoint: Option<EntityId>,
    ) {
        let pending = &mut self.processes[self.threads[ti].process.index()].pending;
        let Some(p) = pending.remove(chosen) else {
            return;
        };
        let times = match pending.iter().any(|o| o.doubtful) || p.doubtful {
            true => Times::Unknown,
            false if pending.is_empty() => Times::Usual,
            false => Times::Beside,
        };
        self.habits.learn_published(p.client);
        let node = |client: EntityId| cx.entities.node_of_entity(client);
        let asks = asks_result(cx, p.client, endpoint);
        let only = || pending.iter().all(|o| node(o.client) != node(p.client));
        if !p.doubtful && (asks || only()) {
            self.habits.learn_user(endpoint, p.client);
        }
        let instance = self.begin_pending(ti, &p, from);
        self.threads[ti].put_continuation(Continuation {
            entity: p.client,
            instance,
            cpus: p.cpus,
            times,
            from,
            last_publication: from,
            trigger: None,
            asked_for_result: false,
            goal: None,
        });
    }

    /// Returns the owner of a publication by `endpoint`, if the thread runs code that waited for a
    /// response. If this publication begins an execution of such code, the execution starts at
    /// `from`.
    pub(super) fn continuation_owner(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        time: u64,
        endpoint: Option<EntityId>,
        mut from: Mark,
    ) -> Owner {
        let mut is_unknown = false;
        if let Some(start) = self.next_continuation(cx, ti, time, endpoint) {
            from = start;
        }
        if let Some(continuation) = self.threads[ti].continuation() {
            let client = continuation.entity;
            let goes_on = continuation.times == Times::Usual && continuation.goal.is_none();
            if goes_on && self.candidates(cx, ti, endpoint).next().is_none() {
                self.habits.learn_user(endpoint, client);
            }
        } else {
            match self.choose_pending(cx, ti, endpoint) {
                Chosen::NoResponse => {}
                Chosen::One(chosen, _) => self.open_continuation(cx, ti, from, chosen, endpoint),
                Chosen::Several(_) => {
                    self.doubt(cx, ti, endpoint);
                    is_unknown = true;
                }
            }
        }
        let thread = &mut self.threads[ti];
        let now = thread.account.mark(time);
        thread.sleeps.forget_longest();
        thread.sleeps.restart(&now);
        match thread.continuation_mut() {
            Some(continuation) => {
                continuation.last_publication = now;
                continuation.trigger = None;
                continuation.asked_for_result |= asks_result(cx, continuation.entity, endpoint);
                Owner::Instance(continuation.instance)
            }
            None if is_unknown => Owner::Ambiguous,
            None => Owner::Outside,
        }
    }

    /// Ends the thread's execution of code that waited for a response, if the publication by
    /// `endpoint` belongs to code that waited for another response. Returns the start of that other
    /// code.
    fn next_continuation(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        time: u64,
        endpoint: Option<EntityId>,
    ) -> Option<Mark> {
        let continuation = self.threads[ti].continuation()?;
        let last = continuation.last_publication;
        let fit = self.fit(cx, continuation.entity, endpoint);
        let other = self.choose_pending(cx, ti, endpoint).fit();
        let slept = self.slept_since(ti, last).is_some();
        if slept && other > Fit::None && other >= fit {
            // The worker slept and woke up again, so the next continuation runs now.
            self.close_continuation(ti, time);
            return Some(self.continuation_start(ti, time, None));
        }
        let again = continuation.asked_for_result && asks_result(cx, continuation.entity, endpoint);
        let elsewhere =
            endpoint.is_some_and(|e| are_of_different_nodes(cx, continuation.entity, e));
        if other > fit || (again && other == fit) || elsewhere {
            // The publication belongs to the next continuation. The previous one ended with its
            // last publication.
            self.end_continuation(ti, last);
            return Some(last);
        }
        None
    }

    pub(super) fn slept_since(&self, ti: ThreadIndex, mark: Mark) -> Option<Mark> {
        let thread = &self.threads[ti];
        let slept = thread.sleeps.since(mark.time);
        slept.filter(|_| !thread.waits)
    }

    /// Returns the start of code that waited for a response. The start is the last trigger of the
    /// executor's guard condition, or the later time at which a worker woke up.
    pub(super) fn continuation_start(
        &self,
        ti: ThreadIndex,
        time: u64,
        last: Option<Mark>,
    ) -> Mark {
        let thread = &self.threads[ti];
        let up = thread.sleeps.up().filter(|_| !thread.waits);
        up.or(last)
            .or(thread.rounds.last_trigger)
            .unwrap_or_else(|| thread.account.mark(time))
    }

    pub(super) fn end_continuation(&mut self, ti: ThreadIndex, to: Mark) {
        let Some(continuation) = self.threads[ti].take_continuation() else {
            return;
        };
        let from = continuation.from;
        let spent = to.totals.since(&from.totals);
        if continuation.goal.is_some() {
            self.end_goal_stretch(ti, &continuation, to);
            return;
        }
        if continuation.times == Times::Usual {
            self.habits.learn_mean(continuation.entity, spent.exec_ns);
        }
        let how = match continuation.times {
            Times::Unknown => Ending::Unshown,
            Times::Usual | Times::Beside => Ending::Inferred,
        };
        let (instance, cpus) = (continuation.instance, continuation.cpus);
        self.end(ti, instance, (to.time, spent), how, cpus);
    }

    /// Ends the thread's execution of code that waited for a response, if there is one.
    ///
    /// The end is the executor's trigger after the last publication, or the time at which a worker
    /// fell asleep. If neither is known, the end is `time` minus the CPU time that the executor
    /// usually uses before a wait set.
    pub(super) fn close_continuation(&mut self, ti: ThreadIndex, time: u64) {
        let thread = &self.threads[ti];
        let Some(continuation) = thread.continuation() else {
            return;
        };
        let last = continuation.last_publication;
        let to = continuation
            .trigger
            .or_else(|| self.slept_since(ti, last))
            .unwrap_or_else(|| self.without_overhead(ti, last, thread.account.mark(time)));
        self.end_continuation(ti, to);
    }
}

/// Reports whether `endpoint` asks for an action's results and `client` gets the answers to goals
/// of the same action. Only code that has the answer to a goal can ask for its result.
fn asks_result(cx: &Context, client: EntityId, endpoint: Option<EntityId>) -> bool {
    let of = |e: EntityId| cx.entities.get(e).action;
    let (Some(goal), Some(result)) = (of(client), endpoint.and_then(of)) else {
        return false;
    };
    let parts = (goal.part, result.part);
    parts == (ActionPart::Goal, ActionPart::Result) && goal.action == result.action
}

pub(super) fn are_of_different_nodes(cx: &Context, a: EntityId, b: EntityId) -> bool {
    let node = |e| cx.entities.node_of_entity(e);
    let (Some(a), Some(b)) = (node(a), node(b)) else {
        return false;
    };
    let known = |node| !cx.entities.nodes.is_guessed(node);
    a != b && known(a) && known(b)
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    /// The events that create process 10: node `/py` with publishers of `/a` (rmw 0x1010) and `/b`
    /// (rmw 0x1011), and clients of `/s` (rmw 0x1040) and `/u` (rmw 0x1041). In a first round, the
    /// executor makes a wait set and waits, as in rclpy.
    const PY: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=py
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/a
1ms cpu0 10/10 publisher_init publisher=0x11 node=0x1 rmw=0x1011 topic=/b
1ms cpu0 10/10 client_init client=0x40 node=0x1 rmw=0x1040 name=/s
1ms cpu0 10/10 client_init client=0x41 node=0x1 rmw=0x1041 name=/u
5000us cpu0 10/10 wait_set_init
5000us cpu0 10/10 wait
";

    /// The events that create a second node in process 10: `/other` with a publisher of `/c` (rmw
    /// 0x1012) and a client of `/w` (rmw 0x1042).
    const OTHER: &str = "
1ms cpu0 10/10 node_init node=0x2 rmw=0x1002 name=other
1ms cpu0 10/10 publisher_init publisher=0x12 node=0x2 rmw=0x1012 topic=/c
1ms cpu0 10/10 client_init client=0x42 node=0x2 rmw=0x1042 name=/w
";

    fn response(t: u64, rmw: u64) -> String {
        format!(
            "{t}us cpu0 10/10 response_take rmw={rmw:#x} sequence=1 source_ns=0
{}us cpu0 10/10 guard_trigger guard=0x9
{}us cpu0 10/10 guard_trigger guard=0x9
",
            t + 100,
            t + 200
        )
    }

    #[test]
    fn code_that_waited_for_a_response_runs_from_the_last_trigger_to_the_next_wait() {
        let trace = [
            PY,
            &response(10_000, 0x1040),
            "10600us cpu0 10/10 publish rmw=0x1010 source_ns=1us\n",
            "11000us cpu0 10/10 wait_set_init\n",
        ];
        assert_eq!(
            Harness::new(&trace.concat()).span_events(),
            [
                "10200 begin #0 client(/s)",
                "10600 publish /a by #0",
                "11000 end #0 Inferred exec 800",
            ]
        );
    }

    #[test]
    fn the_time_of_two_clients_that_publish_nothing_is_split_between_them() {
        let trace = [
            PY,
            &response(10_000, 0x1040),
            &response(10_300, 0x1041),
            "11500us cpu0 10/10 wait_set_init\n",
        ];
        assert_eq!(
            Harness::new(&trace.concat()).span_events(),
            [
                "10500 begin #0 client(/s)",
                "11000 end #0 Inferred exec 500",
                "11000 begin #1 client(/u)",
                "11500 end #1 Inferred exec 500",
            ]
        );
    }

    #[test]
    fn a_client_is_known_by_all_publications_of_an_execution_that_was_alone() {
        let trace = [
            PY,
            &response(10_000, 0x1040),
            "10600us cpu0 10/10 publish rmw=0x1011 source_ns=1us\n",
            "10800us cpu0 10/10 publish rmw=0x1010 source_ns=2us\n",
            "11000us cpu0 10/10 wait_set_init\n11000us cpu0 10/10 wait\n",
            &response(20_000, 0x1040).replace("sequence=1", "sequence=2"),
            &response(20_300, 0x1041),
            "21000us cpu0 10/10 publish rmw=0x1010 source_ns=3us\n",
            "22000us cpu0 10/10 wait_set_init\n",
        ];
        let events = Harness::new(&trace.concat()).span_events();
        let second = events.iter().skip_while(|e| !e.starts_with("20500"));
        let second: Vec<&String> = second.take(2).collect();
        assert_eq!(
            second,
            ["20500 begin #0 client(/s)", "21000 publish /a by #0"],
            "{events:?}"
        );
    }

    #[test]
    fn code_of_another_node_is_another_callback() {
        let trace = [
            PY,
            OTHER,
            "1ms cpu0 10/10 client_init client=0x43 node=0x2 rmw=0x1043 name=/x\n",
            // The client of `/x` is known to publish on `/c`, that of `/w` is not.
            &response(10_000, 0x1043),
            "10600us cpu0 10/10 publish rmw=0x1012 source_ns=1us\n",
            "11000us cpu0 10/10 wait_set_init\n11000us cpu0 10/10 wait\n",
            &response(20_000, 0x1042),
            &response(20_300, 0x1040),
            "21000us cpu0 10/10 publish rmw=0x1010 source_ns=2us\n",
            "22000us cpu0 10/10 publish rmw=0x1012 source_ns=3us\n",
            "22500us cpu0 10/10 wait_set_init\n",
        ];
        let events = Harness::new(&trace.concat()).span_events();
        let second = events.iter().skip_while(|e| !e.starts_with("20500"));
        let second: Vec<&String> = second.take(5).collect();
        assert_eq!(
            second,
            [
                "20500 begin #0 client(/s)",
                "21000 publish /a by #0",
                "21000 end #0 Inferred exec 500",
                "21000 begin #1 client(/w)",
                "22000 publish /c by #1",
            ],
            "{events:?}"
        );
    }

    #[test]
    fn executions_beside_publications_by_an_unknown_waiter_have_no_time() {
        let trace = [
            PY,
            OTHER,
            &response(10_000, 0x1040),
            &response(10_300, 0x1041),
            &response(10_600, 0x1042),
            "11500us cpu0 10/10 publish rmw=0x1010 source_ns=1us\n",
            "12500us cpu0 10/10 publish rmw=0x1011 source_ns=2us\n",
            "13500us cpu0 10/10 publish rmw=0x1012 source_ns=3us\n",
            "14000us cpu0 10/10 wait_set_init\n",
        ];
        let events = Harness::new(&trace.concat()).span_events();
        let ends = events.iter().filter(|e| e.contains(" end "));
        assert_eq!(ends.clone().count(), 3, "{events:?}");
        assert!(ends.clone().all(|e| e.contains("Unshown")), "{events:?}");
    }

    #[test]
    fn a_response_without_waiting_code_expires() {
        let trace = [
            PY,
            &response(10_000, 0x1040),
            "11000us cpu0 10/10 response_take rmw=0x1041 sequence=1 source_ns=0 taken=no\n",
            "300000us cpu0 10/10 response_take rmw=0x1041 sequence=1 source_ns=0 taken=no\n",
        ];
        assert_eq!(
            Harness::new(&trace.concat()).span_events(),
            [
                "10100 begin #0 client(/s)",
                "10200 end #0 Inferred exec 100"
            ]
        );
    }
}
