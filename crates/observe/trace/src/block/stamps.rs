//! Remembers recent source time stamps, because a take repeats the stamp of a recent publication.

const RECENT: usize = 64;

/// The latest source time stamps of a block. Encoder and decoder keep identical lists, so a
/// repeated stamp needs only a short reference.
pub(super) struct RecentStamps {
    ring: [i64; RECENT],
    count: usize,
}

impl RecentStamps {
    pub(super) fn new() -> Self {
        RecentStamps {
            ring: [0; RECENT],
            count: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, stamp: i64) {
        self.ring[self.count % RECENT] = stamp;
        self.count += 1;
    }

    /// Returns the number of different stamps that came after `stamp`, so 0 for the latest one.
    /// Returns `None` if `stamp` is no longer remembered.
    #[inline]
    pub(super) fn distance(&self, stamp: i64) -> Option<usize> {
        (0..self.count.min(RECENT))
            .find(|distance| self.ring[(self.count - 1 - distance) % RECENT] == stamp)
    }

    #[inline]
    pub(super) fn at(&self, distance: usize) -> Option<i64> {
        (distance < self.count.min(RECENT)).then(|| self.ring[(self.count - 1 - distance) % RECENT])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_time_stamp_is_found_among_the_latest_64() {
        let mut stamps = RecentStamps::new();
        assert_eq!(stamps.distance(0), None, "nothing is remembered at first");
        for stamp in 1..=65 {
            stamps.push(stamp);
        }
        assert_eq!((stamps.distance(65), stamps.at(0)), (Some(0), Some(65)));
        assert_eq!((stamps.distance(2), stamps.at(63)), (Some(63), Some(2)));
        assert_eq!((stamps.distance(1), stamps.at(64)), (None, None));
    }
}
