//! Warns when traffic or a loader leaves its envelope, before the buffer that was sized by it runs empty.

use super::envelope::{Rate, RateLatency, Upper};

/// So many leaky buckets are watched: the first, the last, and some between.
const MOST: usize = 16;

/// Watches one stream or sum against an [`Upper`] curve.
///
/// [`Monitor::observe`] neither allocates nor locks, and takes at most 16 steps: it is fit for the thread that plays.
/// Where the curve has more than 16 corners, it watches 16 of its leaky buckets: it never warns without a cause, and
/// may warn later.
#[derive(Clone, Debug)]
pub struct Monitor {
    buckets: [Bucket; MOST],
    used: usize,
    last_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Units of `units_per` nanoseconds each: what came in, less what the rate let out.
    level: u128,
    limit: u128,
    /// What one nanosecond lets out.
    out: u64,
    /// What one unit brings in.
    per_unit: u64,
    /// Length from which on this bucket is the curve.
    from_ns: u64,
}

/// How the envelope was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Stretches of about this length, or longer, have more than the envelope allows.
    pub stretch_ns: u64,
    /// So many units more, rounded up.
    pub units: u64,
}

impl Monitor {
    /// Watches a curve.
    pub fn new(curve: &Upper) -> Monitor {
        let all = curve.buckets().len();
        let used = all.min(MOST);
        let mut buckets = [Bucket::default(); MOST];
        for (at, bucket) in buckets.iter_mut().enumerate().take(used) {
            let chosen = if used == 1 {
                0
            } else {
                at * (all - 1) / (used - 1)
            };
            if let Some((ns, units, rate)) = curve.buckets().nth(chosen) {
                *bucket = Bucket::new(ns, units, rate);
            }
        }
        Monitor {
            buckets,
            used,
            last_ns: None,
        }
    }

    /// `units` came at a time. `Some`: with them the envelope is left. Times that go back stand still.
    pub fn observe(&mut self, time_ns: i64, units: u64) -> Option<Left> {
        let last_ns = self.last_ns.unwrap_or(time_ns);
        let passed_ns = if time_ns > last_ns {
            time_ns.abs_diff(last_ns)
        } else {
            0
        };
        self.last_ns = Some(last_ns.max(time_ns));
        let mut left = None;
        for bucket in &mut self.buckets[..self.used] {
            let over = bucket.pass(passed_ns, units);
            if over > 0 && left.is_none_or(|left: Left| left.units < over) {
                left = Some(Left {
                    stretch_ns: bucket.from_ns,
                    units: over,
                });
            }
        }
        left
    }
}

impl Bucket {
    fn new(ns: u64, units: u64, rate: Rate) -> Bucket {
        let per_unit = rate.ns.max(1);
        let at_corner = u128::from(units) * u128::from(per_unit);
        // The bucket's line goes through the corner; its burst is where it meets length 0.
        let limit = at_corner.saturating_sub(u128::from(ns) * u128::from(rate.units));
        Bucket {
            level: 0,
            limit,
            out: rate.units,
            per_unit,
            from_ns: ns,
        }
    }

    /// How many units are above the limit.
    fn pass(&mut self, passed_ns: u64, units: u64) -> u64 {
        self.level = self
            .level
            .saturating_sub(u128::from(passed_ns) * u128::from(self.out));
        self.level = self
            .level
            .saturating_add(u128::from(units) * u128::from(self.per_unit));
        let over = self.level.saturating_sub(self.limit);
        u64::try_from(over.div_ceil(u128::from(self.per_unit.max(1)))).unwrap_or(u64::MAX)
    }
}

/// Watches a loader against a lower curve: what it brings while it has room to put it.
///
/// [`LoaderMonitor::observe`] neither allocates nor locks, and takes a few steps: it is fit for the thread that plays.
#[derive(Clone, Debug)]
pub struct LoaderMonitor {
    bound: RateLatency,
    reserve_ns: u64,
    last: Option<Seen>,
    /// What the rate promised since the loader was last held up, less what came: the most over all stretches that end
    /// now. Nanoseconds times units of the rate.
    missing: u128,
}

/// What was seen of a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When, in ns of any clock.
    pub time_ns: u64,
    /// What it has brought since its begin.
    pub brought: u64,
    /// How often it began or ended to wait for room: odd while it waits.
    pub holds: u64,
}

impl LoaderMonitor {
    /// Watches a curve; warns once the loader is `reserve_ns` later than it promises.
    pub fn new(bound: RateLatency, reserve_ns: u64) -> LoaderMonitor {
        LoaderMonitor {
            bound,
            reserve_ns,
            last: None,
            missing: 0,
        }
    }

    /// By how much the loader is later than its curve, if that is more than the reserve, in ns.
    pub fn observe(&mut self, now: Seen) -> Option<u64> {
        let last = self.last.replace(now)?;
        if now.holds != last.holds || now.holds % 2 == 1 {
            // The buffer was full meanwhile: from there on the curve begins anew.
            self.missing = 0;
            return None;
        }
        let rate = self.bound.rate;
        let promised =
            u128::from(now.time_ns.saturating_sub(last.time_ns)) * u128::from(rate.units);
        let came =
            u128::from(now.brought.saturating_sub(last.brought)) * u128::from(rate.ns.max(1));
        self.missing = self.missing.saturating_add(promised).saturating_sub(came);
        let late_ns = self.missing / u128::from(rate.units.max(1));
        let late_ns = u64::try_from(late_ns).unwrap_or(u64::MAX);
        let behind_ns = late_ns.saturating_sub(self.bound.latency_ns);
        (behind_ns > self.reserve_ns).then_some(behind_ns)
    }
}
