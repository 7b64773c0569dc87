//! Workers: threads of a pool that run callbacks which another thread waited for.
//!
//! A worker sleeps between two callbacks. Shorter sleeps may be waits for Python's lock. A pool
//! that is not rclpy's triggers its guard condition once after each callback, to tell its
//! executor that one more thread is free.

use super::account::{Account, Mark};

/// A sleep that is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sleep {
    pub(super) length: u64,
    pub(super) from: Mark,
    pub(super) to: Mark,
}

/// When a thread slept.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sleeps {
    /// Since when it sleeps.
    asleep: Option<u64>,
    /// When it last went to sleep.
    last: Option<Mark>,
    /// The longest sleep since the last trigger, or publication.
    longest: Option<Sleep>,
    /// When it was last woken.
    woken: Option<u64>,
    /// When the last callback on the thread ended.
    pub(super) busy_until: u64,
    /// When an executor of events last found its queue empty, and slept.
    pub(super) idle_from: Option<u64>,
}

impl Sleeps {
    /// The thread goes to sleep.
    pub(super) fn begin(&mut self, at: Mark) {
        self.asleep = Some(at.time);
        self.last = Some(at);
    }

    /// The thread is woken.
    pub(super) fn wake(&mut self, time: u64) {
        self.woken = Some(time);
    }

    /// The last sleep, if it is over.
    pub(super) fn ended(&self) -> Option<(Mark, u64)> {
        let (from, woken) = (self.last?, self.woken?);
        (woken >= from.time).then_some((from, woken))
    }

    /// The thread gets a CPU, perhaps after a sleep. Returns whether that is the longest one now.
    pub(super) fn switch_in(&mut self, time: u64, account: &Account) -> bool {
        let Some(since) = self.asleep.take() else {
            return false;
        };
        let length = time.saturating_sub(since);
        let is_longest = self.longest.is_none_or(|longest| length > longest.length);
        if is_longest {
            let to = account.mark(time);
            let from = self.last.unwrap_or(to);
            self.longest = Some(Sleep { length, from, to });
        }
        is_longest
    }

    /// The last time that it went to sleep, if that was at `time` or later.
    pub(super) fn since(&self, time: u64) -> Option<Mark> {
        self.last.filter(|mark| mark.time >= time)
    }

    /// The end of the longest sleep since the last trigger: for a worker, of its wait for
    /// something to do.
    pub(super) fn resumed(&self) -> Option<Mark> {
        self.longest.map(|longest| longest.to)
    }

    /// Whether it slept most of the time from `last`, a trigger, to `time`: then a worker did
    /// something else in between, for example found a callback group busy.
    pub(super) fn slept_most(&self, last: Option<Mark>, time: u64) -> bool {
        let slept = self.longest.map_or(0, |longest| longest.length);
        let since = last.map_or(0, |last| time.saturating_sub(last.time));
        slept > since / 2
    }

    /// The longest sleep since it was asked for last.
    pub(super) fn take_longest(&mut self) -> Option<Sleep> {
        self.longest.take()
    }

    /// When the longest sleep began, with the one that goes on at `time`.
    pub(super) fn longest_until(&self, time: u64) -> Option<Mark> {
        let longest = self.longest.map(|longest| (longest.length, longest.from));
        let now = self.asleep.zip(self.last);
        let now = now.map(|(since, from)| (time.saturating_sub(since), from));
        let longer = longest.into_iter().chain(now).max_by_key(|sleep| sleep.0);
        longer.map(|sleep| sleep.1)
    }

    /// Starts anew after a trigger, or after a publication.
    pub(super) fn forget_longest(&mut self) {
        self.longest = None;
    }
}

#[cfg(test)]
mod tests {
    use crate::synth::testing::Harness;

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
                // The first time, the callback's end shows later that there was one trigger only.
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
