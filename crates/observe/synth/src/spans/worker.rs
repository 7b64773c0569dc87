//! Workers: threads of a pool that run the callbacks for which another thread waited.
//!
//! A worker sleeps between two callbacks. Shorter sleeps may be waits for Python's lock. A pool
//! that is not rclpy's triggers its guard condition once after each callback. This informs its
//! executor that one more thread is free.

use super::account::{Account, Mark};

#[derive(Debug, Clone, Copy)]
pub(super) struct Sleep {
    pub(super) length: u64,
    pub(super) woken: u64,
    pub(super) from: Mark,
    pub(super) to: Mark,
}

/// The maximum CPU time between the end of a worker's callback and its wait for the next one, in
/// ns. A worker that has used more has begun its next callback.
const MAX_IDLE_NS: u64 = 250_000;

/// The maximum CPU time that a worker uses from the end of its callback to the first trigger of its
/// next work, in ns. The limit is large because the pool may wake up the worker many times
/// meanwhile, on a machine with cold caches.
const MAX_BETWEEN_NS: u64 = 1_000_000;

/// The longest sleep in which a thread may wait for Python's lock, in ns. The thread asks for the
/// lock every 5 ms, so a worker that sleeps longer waits for work.
const MAX_LOCK_NS: u64 = 6_000_000;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sleeps {
    asleep: Option<u64>,
    last: Option<Mark>,
    /// The thread's longest sleep since its last trigger or publication, without sleeps for a
    /// mutex.
    longest: Option<Sleep>,
    /// The sum of the thread's sleeps of more than [`MAX_LOCK_NS`] since the last trigger or
    /// publication, without sleeps for a mutex, in ns. The field is a sum because a pool often
    /// wakes up its idle workers for a few µs, which splits one wait for work into several sleeps.
    long_ns: u64,
    needs_mutex: bool,
    woken: Option<u64>,
    /// The mark at which the thread woke up for its current work. Before this wake-up, the thread
    /// slept long, or it used almost no CPU time between its last trigger or publication and its
    /// sleep.
    up: Option<Mark>,
    /// The thread's total CPU time in ns at its last trigger, its last publication, or its wake-up
    /// for the current work, whichever was latest.
    base_ns: u64,
    pub(super) busy_until: u64,
    /// The time at which an executor of events last found its queue empty and went to sleep.
    pub(super) idle_from: Option<u64>,
}

impl Sleeps {
    pub(super) fn begin(&mut self, at: Mark) {
        self.asleep = Some(at.time);
        self.last = Some(at);
    }

    pub(super) fn need_mutex(&mut self) {
        self.needs_mutex = true;
    }

    pub(super) fn wake(&mut self, time: u64) {
        self.woken = Some(time);
    }

    pub(super) fn ended(&self) -> Option<(Mark, u64)> {
        let (from, woken) = (self.last?, self.woken?);
        (woken >= from.time).then_some((from, woken))
    }

    /// Records that the thread gets a CPU, perhaps after a sleep. Returns true if this sleep is the
    /// longest since the last trigger or publication.
    pub(super) fn switch_in(&mut self, time: u64, account: &Account) -> bool {
        let asleep = self.asleep.take();
        let for_mutex = std::mem::take(&mut self.needs_mutex);
        let mark = account.mark(time);
        let first = self.last.is_none() && self.up.is_none();
        let done_ns = mark.totals.exec_ns.saturating_sub(self.base_ns);
        let slept_ns = asleep.map(|since| self.woken.unwrap_or(time).saturating_sub(since));
        let waited =
            !for_mutex && slept_ns.is_some_and(|ns| done_ns < MAX_IDLE_NS || ns > MAX_LOCK_NS);
        if first || waited {
            (self.up, self.base_ns) = (Some(mark), mark.totals.exec_ns);
        }
        let Some(since) = asleep.filter(|_| !for_mutex) else {
            return false;
        };
        self.long_ns += slept_ns.filter(|&ns| ns > MAX_LOCK_NS).unwrap_or(0);
        let length = time.saturating_sub(since);
        let is_longest = self.longest.is_none_or(|longest| length > longest.length);
        if is_longest {
            let from = self.last.unwrap_or(mark);
            let woken = self.woken.filter(|woken| (since..=time).contains(woken));
            self.longest = Some(Sleep {
                length,
                woken: woken.unwrap_or(time),
                from,
                to: mark,
            });
        }
        is_longest
    }

    pub(super) fn since(&self, time: u64) -> Option<Mark> {
        self.last.filter(|mark| mark.time >= time)
    }

    pub(super) fn up(&self) -> Option<Mark> {
        self.up
    }

    pub(super) fn restart(&mut self, at: &Mark) {
        (self.up, self.base_ns) = (None, at.totals.exec_ns);
    }

    /// Reports whether a worker waited for work between its triggers at `last` and `now`. If so,
    /// the trigger at `now` does not belong to the worker's last callback. An example is a worker
    /// that found a callback group busy.
    ///
    /// A worker that slept for more than half of the time counts as waiting. So does a worker that
    /// slept and used less CPU time than [`MAX_BETWEEN_NS`], because it may have been ready without
    /// a CPU for the rest of the time.
    pub(super) fn was_idle(&self, last: Option<Mark>, now: &Mark) -> bool {
        let Some(longest) = self.longest else {
            return false;
        };
        let Some(last) = last else {
            return true;
        };
        let slept = longest.length.max(self.long_ns);
        let ran_ns = now.totals.since(&last.totals).exec_ns;
        slept > now.time.saturating_sub(last.time) / 2 || ran_ns < MAX_BETWEEN_NS
    }

    pub(super) fn take_longest(&mut self) -> Option<Sleep> {
        self.long_ns = 0;
        self.longest.take()
    }

    /// Returns the mark at which the thread's longest sleep began. A sleep that has not ended at
    /// `time` counts up to `time`.
    pub(super) fn longest_until(&self, time: u64) -> Option<Mark> {
        let longest = self.longest.map(|longest| (longest.length, longest.from));
        let now = self.asleep.filter(|_| !self.needs_mutex).zip(self.last);
        let now = now.map(|(since, from)| (time.saturating_sub(since), from));
        let longer = longest.into_iter().chain(now).max_by_key(|sleep| sleep.0);
        longer.map(|sleep| sleep.1)
    }

    pub(super) fn forget_longest(&mut self) {
        (self.longest, self.long_ns) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    /// The events of a worker of rclpy's pool. Its callback lasts 2 ms. It then waits for work from
    /// 13 ms to 113 ms, and meanwhile its pool wakes it up `wakes` times. The worker finds the
    /// callback groups of its next two handlers busy, so each handler triggers the guard condition
    /// once.
    fn events_of_a_refused_worker(wakes: u64) -> String {
        let mut trace = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=pool
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/in
1ms cpu0 10/11 thread comm=worker
10950us cpu0 10/11 take rmw=0x1020 source_ns=1us
11000us cpu0 10/11 guard_trigger guard=0x9
13000us cpu0 10/11 guard_trigger guard=0x9
"
        .to_owned();
        let sleep_us = 100_000 / (wakes + 1);
        for sleep in 0..=wakes {
            let from = 13_000 + sleep * sleep_us;
            let to = from + sleep_us;
            trace += &format!(
                "{}us cpu0 10/11 switch_out state=1
{to}us cpu0 10/11 wake waker_tid=10
{to}us cpu0 10/11 switch_in
",
                from + 5
            );
        }
        trace
            + "113100us cpu0 10/11 guard_trigger guard=0x9
113130us cpu0 10/11 guard_trigger guard=0x9
113200us cpu0 10/11 take rmw=0x1020 source_ns=2us
113300us cpu0 10/11 guard_trigger guard=0x9
115300us cpu0 10/11 guard_trigger guard=0x9
"
    }

    #[test]
    fn a_worker_that_finds_a_callback_group_busy_does_not_prolong_its_last_callback() {
        // With 40 wake-ups, each sleep is as short as a wait for Python's lock.
        for wakes in [0, 5, 40] {
            let events = Harness::new(&events_of_a_refused_worker(wakes)).span_events();
            let ends = events.iter().filter(|event| event.contains(" end "));
            let ends: Vec<&String> = ends.collect();
            assert_eq!(ends, ["13000 end #0 Inferred exec 2000"], "{wakes} wakes");
        }
    }

    #[test]
    fn a_callback_continues_after_it_triggers_a_guard_condition_itself() {
        // The callback creates a timer, and is preempted before it computes on.
        let trace = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=pool
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/in
1ms cpu0 10/11 thread comm=worker
10950us cpu0 10/11 take rmw=0x1020 source_ns=1us
11ms cpu0 10/11 guard_trigger guard=0x9
13ms cpu0 10/11 guard_trigger guard=0x9
14ms cpu0 10/11 switch_out state=0
34ms cpu0 10/11 switch_in
36ms cpu0 10/11 switch_out state=1
39ms cpu0 10/11 wake waker_tid=10
39ms cpu0 10/11 switch_in
40ms cpu0 10/11 guard_trigger guard=0x9
41ms cpu0 10/11 take rmw=0x1020 source_ns=2us
";
        let events = Harness::new(trace).span_events();
        assert_eq!(
            events.last().map(String::as_str),
            Some("40000 end #0 Inferred exec 6000")
        );
    }

    #[test]
    fn a_pool_of_threads_triggers_its_guard_condition_after_each_callback() {
        let trace = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=pool
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/in
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/out
11ms cpu0 10/11 take rmw=0x1020 source_ns=1us
12ms cpu0 10/11 guard_trigger guard=0x9
15ms cpu0 10/11 take rmw=0x1020 source_ns=2us
17ms cpu0 10/11 guard_trigger guard=0x9
19ms cpu0 10/11 publish rmw=0x1010 source_ns=3us
19ms cpu0 10/11 wait_set_init";
        assert_eq!(
            Harness::new(trace).span_events(),
            [
                // On the first callback, only its end shows that there was one trigger.
                "11000 begin #0 subscription(/in)",
                "12000 end #0 Inferred exec 1000",
                "15000 begin #0 subscription(/in)",
                "17000 end #0 Inferred exec 2000",
                // The thread was free again before.
                "19000 publish /out by nobody",
            ]
        );
    }
}
