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

/// The maximum CPU time that a worker uses to finish one callback and wait for the next, in ns. A
/// worker that uses more has begun the next one.
const MAX_IDLE_NS: u64 = 250_000;

/// The longest sleep in which a thread may wait for Python's lock, in ns. The thread asks for the
/// lock every 5 ms, so a worker that sleeps longer waits for work.
const MAX_LOCK_NS: u64 = 6_000_000;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sleeps {
    asleep: Option<u64>,
    last: Option<Mark>,
    /// The longest sleep since the last trigger or publication, without sleeps for a mutex.
    longest: Option<Sleep>,
    needs_mutex: bool,
    woken: Option<u64>,
    /// The mark at which the thread woke up for its current work. Before that, the thread had used
    /// almost no CPU time since the last trigger or publication, or had slept long.
    up: Option<Mark>,
    /// The thread's total CPU time at the latest of these: its last trigger, its last publication,
    /// and its wake-up for the current work.
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

    /// Records that the thread gets a CPU, perhaps after a sleep. Returns true if that sleep is the
    /// longest one so far.
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

    /// Reports whether the thread slept most of the time from `last`, a trigger, to `time`. If a
    /// worker slept most of the time, it did something else in between. For example, it found a
    /// callback group busy.
    pub(super) fn slept_most(&self, last: Option<Mark>, time: u64) -> bool {
        let slept = self.longest.map_or(0, |longest| longest.length);
        let since = last.map_or(0, |last| time.saturating_sub(last.time));
        slept > since / 2
    }

    pub(super) fn take_longest(&mut self) -> Option<Sleep> {
        self.longest.take()
    }

    /// Returns the beginning of the longest sleep, including a sleep that continues at `time`.
    pub(super) fn longest_until(&self, time: u64) -> Option<Mark> {
        let longest = self.longest.map(|longest| (longest.length, longest.from));
        let now = self.asleep.filter(|_| !self.needs_mutex).zip(self.last);
        let now = now.map(|(since, from)| (time.saturating_sub(since), from));
        let longer = longest.into_iter().chain(now).max_by_key(|sleep| sleep.0);
        longer.map(|sleep| sleep.1)
    }

    pub(super) fn forget_longest(&mut self) {
        self.longest = None;
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    #[test]
    fn a_pool_triggers_its_guard_after_a_callback() {
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
