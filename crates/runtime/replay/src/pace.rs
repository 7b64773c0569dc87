//! Maps recorded time to the monotonic clock, and sleeps until an item is due.

use onbeat_time::clock::monotonic_ns;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) first_ns: i64,
    pub(crate) origin_ns: u64,
    /// The rate of playback, in recorded seconds per second.
    pub(crate) rate: f64,
}

impl Axis {
    pub(crate) fn new(first_ns: i64, origin_ns: u64, rate: f64) -> Axis {
        Axis {
            first_ns,
            origin_ns,
            rate,
        }
    }

    /// Returns the time at which an item with the recorded time `time_ns` is due. If `time_ns` is
    /// before `first_ns`, the item is due at `origin_ns`.
    pub(crate) fn due_ns(&self, time_ns: i64) -> u64 {
        let since = time_ns.saturating_sub(self.first_ns).max(0);
        let scaled = match self.rate == 1.0 {
            true => since as u64,
            false => (since as f64 / self.rate) as u64,
        };
        self.origin_ns.saturating_add(scaled)
    }

    pub(crate) fn recorded_ns(&self, now_ns: u64) -> i64 {
        let since = now_ns.saturating_sub(self.origin_ns);
        let scaled = match self.rate == 1.0 {
            true => since as i64,
            false => (since as f64 * self.rate) as i64,
        };
        self.first_ns.saturating_add(scaled)
    }

    pub(crate) fn delay(&mut self, by_ns: u64) {
        self.origin_ns = self.origin_ns.saturating_add(by_ns);
    }

    pub(crate) fn change_rate(&mut self, rate: f64, now_ns: u64) {
        if now_ns > self.origin_ns {
            (self.first_ns, self.origin_ns) = (self.recorded_ns(now_ns), now_ns);
        }
        self.rate = rate;
    }

    pub(crate) fn move_to(&mut self, due_ns: u64, now_ns: u64) {
        self.origin_ns = match now_ns >= due_ns {
            true => self.origin_ns.saturating_add(now_ns - due_ns),
            false => self.origin_ns.saturating_sub(due_ns - now_ns),
        };
    }
}

/// Sleeps until `until_ns`, and busy-waits for the last `spin_ns`. Returns earlier only after a
/// signal. Real-time safe: one system call.
pub(crate) fn sleep_until(until_ns: u64, spin_ns: u64) {
    let wake_ns = until_ns.saturating_sub(spin_ns);
    if monotonic_ns() < wake_ns {
        let time = libc::timespec {
            tv_sec: (wake_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (wake_ns % 1_000_000_000) as libc::c_long,
        };
        let flags = libc::TIMER_ABSTIME;
        // SAFETY: `time` is valid during the call.
        unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, flags, &time, std::ptr::null_mut()) };
    }
    if spin_ns > 0 {
        while monotonic_ns() < until_ns {
            std::hint::spin_loop();
        }
    }
}

/// Sets the timer slack of this thread to the minimum. Threads with a real-time policy have no
/// slack, so nothing changes for them.
pub(crate) fn no_slack() {
    // SAFETY: the call only changes the timer slack of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_axis_maps_recorded_times_to_due_times_at_any_rate() {
        let second = 1_000_000_000;
        for (rate, due) in [(1.0, 2 * second), (2.0, second), (0.5, 4 * second)] {
            let axis = Axis::new(-5, 100, rate);
            assert_eq!(axis.due_ns(-5), 100);
            assert_eq!(axis.due_ns(2 * second as i64 - 5), 100 + due);
            assert_eq!(axis.recorded_ns(100 + due), 2 * second as i64 - 5);
            assert_eq!(axis.due_ns(i64::MIN), 100, "before the first");
            assert!(axis.due_ns(i64::MAX) > 100);
        }
        let mut axis = Axis::new(0, 100, 1.0);
        axis.delay(50);
        assert_eq!(axis.due_ns(10), 160);
        axis.move_to(160, 1000);
        assert_eq!((axis.due_ns(10), axis.due_ns(30)), (1000, 1020));
        axis.move_to(1020, 1005);
        assert_eq!(axis.due_ns(30), 1005);
        let mut axis = Axis::new(1000, 100, 1.0);
        axis.change_rate(2.0, 140);
        assert_eq!((axis.recorded_ns(140), axis.due_ns(1060)), (1040, 150));
        axis.change_rate(0.5, 150);
        assert_eq!((axis.due_ns(1065), axis.due_ns(1000)), (160, 150));
        let mut axis = Axis::new(1000, 100, 1.0);
        axis.change_rate(2.0, 60);
        assert_eq!(axis.due_ns(1020), 110, "the replay begins at 100");
    }

    #[test]
    fn the_player_never_wakes_up_before_the_due_time() {
        for spin_ns in [0, 50_000] {
            let until = monotonic_ns() + 2_000_000;
            sleep_until(until, spin_ns);
            assert!(monotonic_ns() >= until);
            sleep_until(until, spin_ns);
        }
    }
}
