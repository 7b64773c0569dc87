//! Warns when traffic or a loader leaves its envelope, before the buffer that was sized by the
//! envelope runs empty.

use super::envelope::{Rate, RateLatency, Upper};

/// The maximum number of leaky buckets that a monitor checks. If the curve has more, the monitor
/// checks the first, the last, and some between them.
const MOST: usize = 16;

/// Checks the traffic of one stream, or of several streams together, against an [`Upper`] curve.
///
/// [`Monitor::observe`] neither allocates memory nor locks, and needs at most 16 steps. The playing
/// thread may call it. If the curve has more than 16 corners, the monitor checks 16 of its leaky
/// buckets. A warning is then still always right, but may come later.
#[derive(Clone, Debug)]
pub struct Monitor {
    buckets: [Bucket; MOST],
    used: usize,
    last_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    level: u128,
    limit: u128,
    out: u64,
    per_unit: u64,
    from_ns: u64,
}

/// A violation of an [`Upper`] curve: a time interval contained more units than the curve allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The length of the time intervals that contain too many units, in ns. Longer intervals also
    /// contain too many.
    pub stretch_ns: u64,
    /// The number of units above the curve, rounded up.
    pub units: u64,
}

impl Monitor {
    /// Creates a monitor that checks arrivals against `curve`.
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

    /// Adds `units` units at `time_ns`. Returns the violation if the traffic now exceeds the curve.
    /// A time before the previous one counts as the previous one.
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
        // The line of the bucket goes through the corner. Its burst is the line's value at length
        // 0.
        let limit = at_corner.saturating_sub(u128::from(ns) * u128::from(rate.units));
        Bucket {
            level: 0,
            limit,
            out: rate.units,
            per_unit,
            from_ns: ns,
        }
    }

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

/// Checks a loader against its service curve, which states the items that it must deliver while the
/// buffer has room.
///
/// [`LoaderMonitor::observe`] neither allocates memory nor locks, and needs a few steps. The
/// playing thread may call it.
#[derive(Clone, Debug)]
pub struct LoaderMonitor {
    bound: RateLatency,
    reserve_ns: u64,
    last: Option<Seen>,
    /// The number of units that the loader had to deliver at its rate, minus the number that it
    /// delivered, times `rate.ns` of its bound. Of all time intervals that end now and contain no
    /// wait for room, the interval with the largest difference counts.
    missing: u128,
}

/// The state of a loader at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The time of the observation, in ns. All observations must use the same clock.
    pub time_ns: u64,
    /// The units that the loader has delivered since its start.
    pub brought: u64,
    /// The number of times that the loader began or stopped waiting for room in the buffer. The
    /// number is odd while the loader waits.
    pub holds: u64,
}

impl LoaderMonitor {
    /// Creates a monitor that warns when the loader's delay against `bound` exceeds `reserve_ns`.
    pub fn new(bound: RateLatency, reserve_ns: u64) -> LoaderMonitor {
        LoaderMonitor {
            bound,
            reserve_ns,
            last: None,
            missing: 0,
        }
    }

    /// Returns the loader's delay against its service curve in ns if the delay exceeds the
    /// monitor's `reserve_ns`. Otherwise returns `None`.
    pub fn observe(&mut self, now: Seen) -> Option<u64> {
        let last = self.last.replace(now)?;
        if now.holds != last.holds || now.holds % 2 == 1 {
            // The buffer was full in between, so the curve begins anew.
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
