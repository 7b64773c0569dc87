//! Measures a port's real rate: what peers acknowledge while transfers wait for the port.
//!
//! The rate in force lies between a sixteenth of the given rate and the given rate. The window
//! shrinks with the rate, so that a slower link does not need longer for it than the settings
//! allow. A measured rate counts only if two intervals in a row show it, and if it differs from the
//! rate in force by an eighth.
//!
//! The acknowledgement of a window can also take long because the round trip is long. A smaller
//! window would then not be acknowledged sooner. So the rate in force goes down only if the window
//! takes twice as long as the shortest round trip that the kernel has seen.
//!
//! Real-time: some atomics for each acknowledgement, and one system call per interval. No lock: the
//! processes of the port count together, and one of them ends an interval.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const LEAST_INTERVAL_NS: u64 = 50_000_000;
const LEAST_WINDOWS: u64 = 8;
/// The smallest rate that a port measures is its given rate divided by this number.
const LEAST_PART: u64 = 16;

/// The acknowledged bytes and the measured rate of a port. All processes that use the port write
/// it, so it is untrusted.
#[repr(C)]
#[derive(Default)]
pub struct Meter {
    bytes: AtomicU64,
    begun_ns: AtomicU64,
    begun_bytes: AtomicU64,
    /// The number of bytes that the peers acknowledged while a transfer waited for the port.
    waited: AtomicU64,
    begun_waited: AtomicU64,
    /// The rate that was measured in the previous interval, bit/s; 0 before the first one.
    rate_before: AtomicU64,
    /// The rate that the port uses now, bit/s; 0 stands for the given rate.
    rate: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    Waited,
    Busy,
    Idle,
}

#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub bits_per_second: u64,
    pub window_ns: u64,
    pub round_trip_ns: u64,
}

impl Sample {
    pub fn rate(bytes: u64, took_ns: u64) -> u64 {
        let rate = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(took_ns.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Returns the rate of `sample` if the port must change to this rate: if it differs from the rate
/// `in_force` by more than an eighth. A lower rate counts only if the round trip takes at most half
/// of the time that the wire needs for the window. Otherwise the long round trip may be the reason
/// for the low rate.
fn wanted_rate(in_force: u64, sample: &Sample) -> Option<u64> {
    let rate = sample.bits_per_second;
    let is_queue = sample.window_ns >= 2 * sample.round_trip_ns;
    let up = rate > in_force + in_force / 8;
    let down = rate < in_force - in_force / 8 && is_queue;
    (up || down).then_some(rate)
}

pub fn least_rate(given: u64) -> u64 {
    (given / LEAST_PART).max(1)
}

impl Meter {
    pub fn rate(&self, given: u64) -> u64 {
        match self.rate.load(Relaxed) {
            0 => given,
            rate => rate.clamp(least_rate(given), given),
        }
    }

    /// Returns the measured rate, bit/s. Returns `None` until two intervals in a row have shown a
    /// rate other than the given one.
    pub fn measured(&self, given: u64) -> Option<u64> {
        (self.rate.load(Relaxed) != 0).then(|| self.rate(given))
    }

    /// Counts acknowledged bytes. At the end of an interval, returns its bytes and its length in
    /// ns, from which the caller makes a sample for [`Meter::judge`]. Returns `None` for an
    /// interval in which the port was idle. Also returns `None` if less than three quarters of the
    /// bytes were acknowledged while a transfer waited.
    pub fn acknowledged(
        &self,
        more: u64,
        load: Load,
        window_bytes: u64,
        now_ns: u64,
    ) -> Option<(u64, u64)> {
        let bytes = self.bytes.fetch_add(more, Relaxed).wrapping_add(more);
        let new = if load == Load::Waited { more } else { 0 };
        let waited = self.waited.fetch_add(new, Relaxed).wrapping_add(new);
        let begun_ns = self.begun_ns.load(Relaxed);
        if load == Load::Idle {
            self.begun_ns.store(0, Relaxed);
            return None;
        }
        let took_ns = now_ns.saturating_sub(begun_ns);
        let sent = bytes.wrapping_sub(self.begun_bytes.load(Relaxed));
        let is_over =
            begun_ns != 0 && took_ns >= LEAST_INTERVAL_NS && sent >= LEAST_WINDOWS * window_bytes;
        if begun_ns != 0 && !is_over {
            return None;
        }
        // Of the threads that see the end of an interval, one begins the next.
        let begins = self
            .begun_ns
            .compare_exchange(begun_ns, now_ns.max(1), Relaxed, Relaxed);
        begins.ok()?;
        self.begun_bytes.store(bytes, Relaxed);
        let waited = waited.wrapping_sub(self.begun_waited.swap(waited, Relaxed));
        let is_full = waited >= sent - sent / 4;
        (is_over && is_full).then_some((sent, took_ns))
    }

    pub fn judge(&self, given: u64, sample: &Sample) {
        let in_force = self.rate(given);
        let before = self
            .rate_before
            .swap(sample.bits_per_second.max(1), Relaxed);
        let Some(rate) = wanted_rate(in_force, sample).filter(|_| before != 0) else {
            return;
        };
        // Of the two samples, the one that changes the rate less.
        let next = if rate > in_force {
            rate.min(before).max(in_force)
        } else {
            rate.max(before).min(in_force)
        };
        let next = next.clamp(least_rate(given), given);
        if next.abs_diff(in_force) > in_force / 8 {
            self.rate.store(next, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: u64 = 1_000_000_000;
    const WINDOW: u64 = GIVEN / 8 / 1000;

    fn on_a_link(meter: &Meter, rate: u64, round_trip_ns: u64, intervals: usize) -> Vec<u64> {
        let mut now_ns = 1 + meter.begun_ns.load(Relaxed);
        let mut rates = Vec::new();
        while rates.len() < intervals {
            let in_force = meter.rate(GIVEN);
            let window = WINDOW * in_force / GIVEN;
            let half = window / 2;
            let wire_ns = |bytes: u64| bytes * 8 * 1_000_000_000 / rate;
            // Half a window comes back after half of a round trip with its own time on the wire, or
            // when the wire is free.
            now_ns += wire_ns(half).max((round_trip_ns + wire_ns(half)) / 2);
            let over = meter.acknowledged(half, Load::Waited, window, now_ns);
            if let Some((bytes, took_ns)) = over {
                let bits_per_second = bytes * 8 * 1_000_000_000 / took_ns;
                let window_ns = window * 8 * 1_000_000_000 / bits_per_second;
                let sample = Sample {
                    bits_per_second,
                    window_ns,
                    round_trip_ns,
                };
                meter.judge(GIVEN, &sample);
                rates.push(meter.rate(GIVEN));
            }
        }
        rates
    }

    fn is_near(rate: u64, truth: u64) -> bool {
        rate.abs_diff(truth) <= truth / 8
    }

    #[test]
    fn the_rate_of_a_slower_link_is_measured_and_kept() {
        for truth in [100_000_000, 300_000_000, 700_000_000] {
            let meter = Meter::default();
            let rates = on_a_link(&meter, truth, 100_000, 12);
            assert_eq!(rates[0], GIVEN, "one interval shows nothing");
            assert!(rates[4..].iter().all(|r| is_near(*r, truth)), "{rates:?}");
            assert!(rates[5..].iter().all(|r| *r == rates[4]), "{rates:?}");
            // The link is as fast as given again.
            let rates = on_a_link(&meter, GIVEN, 100_000, 30);
            assert!(is_near(rates[29], GIVEN), "{rates:?}");
        }
    }

    #[test]
    fn a_long_round_trip_does_not_lower_the_rate_and_the_rate_has_limits() {
        let rates = on_a_link(&Meter::default(), GIVEN, 20_000_000, 12);
        assert_eq!(rates, [GIVEN; 12]);
        let rates = on_a_link(&Meter::default(), GIVEN / 100, 100_000, 12);
        assert_eq!(rates[11], GIVEN / LEAST_PART);
        let rates = on_a_link(&Meter::default(), 4 * GIVEN, 100_000, 12);
        assert_eq!(rates, [GIVEN; 12]);
    }

    #[test]
    fn intervals_without_load_and_single_intervals_do_not_change_the_measured_rate() {
        let meter = Meter::default();
        for ms in 1..1000 {
            let load = [Load::Waited, Load::Idle, Load::Busy][ms as usize / 3 % 3];
            let over = meter.acknowledged(WINDOW / 2, load, WINDOW, ms * 1_000_000);
            assert_eq!(over, None);
        }
        let sample = |bits_per_second| Sample {
            bits_per_second,
            window_ns: 10_000_000,
            round_trip_ns: 0,
        };
        for rate in [GIVEN, GIVEN / 10, GIVEN, GIVEN / 10, GIVEN] {
            meter.judge(GIVEN, &sample(rate));
            assert_eq!(meter.rate(GIVEN), GIVEN);
        }
        assert_eq!(meter.measured(GIVEN), None);
    }
}
