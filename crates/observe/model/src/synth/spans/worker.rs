//! Workers: threads of a pool that run callbacks which another thread waited for.
//!
//! A worker sleeps between two callbacks. Shorter sleeps may be waits for Python's lock. A pool
//! that is not rclpy's triggers its guard condition once after each callback, to tell its
//! executor that one more thread is free.

use super::account::{Account, Mark};

/// When a thread slept.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sleeps {
    /// Since when it sleeps.
    asleep: Option<u64>,
    /// When it last went to sleep.
    last: Option<Mark>,
    /// The longest sleep since the last trigger: its length, and when it ended.
    longest: Option<(u64, Mark)>,
}

impl Sleeps {
    /// The thread goes to sleep.
    pub(super) fn begin(&mut self, at: Mark) {
        self.asleep = Some(at.time);
        self.last = Some(at);
    }

    /// The thread gets a CPU, perhaps after a sleep.
    pub(super) fn switch_in(&mut self, time: u64, account: &Account) {
        let Some(since) = self.asleep.take() else {
            return;
        };
        let length = time.saturating_sub(since);
        if self.longest.is_none_or(|(longest, _)| length > longest) {
            self.longest = Some((length, account.mark(time)));
        }
    }

    /// The last time that it went to sleep, if that was at `time` or later.
    pub(super) fn since(&self, time: u64) -> Option<Mark> {
        self.last.filter(|mark| mark.time >= time)
    }

    /// The end of the longest sleep since the last trigger: for a worker, of its wait for
    /// something to do.
    pub(super) fn resumed(&self) -> Option<Mark> {
        self.longest.map(|(_, mark)| mark)
    }

    /// Whether it slept most of the time from `last`, a trigger, to `time`: then a worker did
    /// something else in between, for example found a callback group busy.
    pub(super) fn slept_most(&self, last: Option<Mark>, time: u64) -> bool {
        let slept = self.longest.map_or(0, |(length, _)| length);
        let since = last.map_or(0, |last| time.saturating_sub(last.time));
        slept > since / 2
    }

    /// Starts anew after a trigger, or after a publication.
    pub(super) fn forget_longest(&mut self) {
        self.longest = None;
    }
}
