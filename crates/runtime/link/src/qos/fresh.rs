//! Measures how long a message was on its way, between two clocks that have nothing in common.
//!
//! The sender writes the time by its own clock into each message. The receiver's clock differs from
//! it by an unknown amount, which is constant except for drift. So the least difference ever seen
//! belongs to the fastest message. A message that takes longer than the fastest one was held for
//! that time: in queues, or by a slow or broken network. That time is subtracted from the message's
//! remaining age.
//!
//! **Error.** The measured age is never higher than the true age. It is lower by at most the time
//! of the fastest message on its way, plus 2 ms for each second since a message was as fast. (Linux
//! corrects a clock by 500 ppm at most, so two clocks drift apart by 1 ms per second; the least
//! difference follows at that rate.) The ends exchange messages when they meet. The fastest of
//! these was not slower than the shortest round trip among them
//! ([`Counts::round_trip_ns`](super::Counts)).
//!
//! Pure: no clock. No allocation.

/// The divisor for the drift of two clocks. The difference of two clocks changes by at most a
/// thousandth (1000 ppm) of the time that passes.
const DRIFT: u64 = 1000;

/// An estimate of how long messages from the peer travel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Transit {
    least: Option<(i128, u64)>,
}

impl Transit {
    /// Returns how much longer this message was on its way than the fastest message so far, in ns.
    /// `sent_ns` is a time of the sender's clock, `now_ns` a time of the receiver's clock.
    pub fn held_ns(&mut self, sent_ns: u64, now_ns: u64) -> u64 {
        let seen = i128::from(now_ns) - i128::from(sent_ns);
        let least = self.least.map_or(seen, |(least, at_ns)| {
            let drift = now_ns.saturating_sub(at_ns) / DRIFT;
            seen.min(least + i128::from(drift))
        });
        self.least = Some((least, now_ns));
        u64::try_from(seen - least).unwrap_or(u64::MAX)
    }

    /// Returns when a message becomes stale, in ns of the receiver's clock. The message left at
    /// `sent_ns` of the sender's clock and stayed fresh for `remaining_ns` from then.
    pub fn expires_ns(
        &mut self,
        sent_ns: u64,
        remaining_ns: Option<u64>,
        now_ns: u64,
    ) -> Option<u64> {
        let held = self.held_ns(sent_ns, now_ns);
        remaining_ns.map(|left| now_ns.saturating_add(left.saturating_sub(held)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_time_for_which_the_network_holds_a_message_shortens_its_freshness() {
        let mut way = Transit::default();
        // The receiver's clock is 7 s behind; a message takes 1 ms at least.
        let arrives = |sent_ms: u64, way_ms: u64| (sent_ms - 7000 + way_ms) * MS;
        assert_eq!(way.held_ns(10_000 * MS, arrives(10_000, 3)), 0, "the first");
        assert_eq!(
            way.held_ns(10_010 * MS, arrives(10_010, 1)),
            0,
            "the fastest"
        );
        let held = way.held_ns(10_010 * MS, arrives(10_010, 21));
        assert_eq!(held, 20 * MS - 20_000, "20 ms, but for 20 ms of drift");
        let now = arrives(10_020, 31);
        let expires = way.expires_ns(10_020 * MS, Some(50 * MS), now).unwrap();
        let error = 40_000;
        assert!(expires.abs_diff(now + 20 * MS) <= error);
        let stale = way.expires_ns(10_020 * MS, Some(10 * MS), now);
        assert_eq!(stale, Some(now));
        assert_eq!(way.expires_ns(10_020 * MS, None, now), None);
    }

    proptest! {
        #[test]
        fn the_error_of_a_data_age_is_within_its_stated_bound(
            offset in -1_000_000_000_000_000i128..1_000_000_000_000_000,
            drift_ppm in -1000i128..1000,
            messages in proptest::collection::vec((0u64..10_000_000_000, 0u64..50_000_000), 1..40),
        ) {
            let mut way = Transit::default();
            let (mut time, mut fastest) = (2_000_000_000_000_000u64, None::<(u64, u64)>);
            for (pause, delay) in messages {
                time += pause;
                let arrival = time + delay;
                // The receiver's clock is the true one. The sender's clock has an offset and a
                // drift.
                let sent = i128::from(time) + offset + i128::from(time) * drift_ppm / 1_000_000;
                let held = way.held_ns(u64::try_from(sent).unwrap(), arrival);
                prop_assert!(held <= delay + 1, "{held} of {delay}");
                // Messages arrive in order.
                time = arrival;
                let (fast, since) = *fastest.get_or_insert((delay, arrival));
                let error = fast + (arrival - since) / 500 + 2;
                prop_assert!(held + error >= delay, "{held} of {delay}, error {error}");
                if delay < fast {
                    fastest = Some((delay, arrival));
                }
            }
        }
    }
}
