//! Defines envelopes, and the distances between them: concave upper curves (minimum of leaky
//! buckets) and rate-latency lower curves.

/// A rate of items or bytes: `units` in `ns` nanoseconds. If `ns` is 0, it counts as 1.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub units: u64,
    pub ns: u64,
}

impl Rate {
    /// Returns the rate in units per second.
    pub fn per_second(self) -> f64 {
        self.units as f64 * 1e9 / self.ns.max(1) as f64
    }

    /// Returns whether this rate is at least as high as `other`.
    pub fn at_least(self, other: Rate) -> bool {
        wide(self.units, other.ns.max(1)) >= wide(other.units, self.ns.max(1))
    }

    /// Returns the number of units within `time_ns` at this rate, rounded down.
    pub fn within(self, time_ns: u64) -> u64 {
        narrow(wide(self.units, time_ns) / u128::from(self.ns.max(1)))
    }

    /// Returns the time in which `units` units pass at this rate, in ns: once rounded down, once
    /// rounded up. At rate 0 both are the largest `u64`.
    fn time_for(self, units: u64) -> (u64, u64) {
        match (units, self.units) {
            (0, _) => (0, 0),
            (_, 0) => (u64::MAX, u64::MAX),
            (_, rate) => {
                let (time, rate) = (wide(units, self.ns.max(1)), u128::from(rate));
                (narrow(time / rate), narrow(time.div_ceil(rate)))
            }
        }
    }
}

fn wide(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

fn narrow(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// A lower service curve. At first there may be a latency of at most `latency_ns` without service,
/// then service has at least the rate `rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLatency {
    /// The longest time without any service, in ns.
    pub latency_ns: u64,
    /// The lowest rate of service after the latency.
    pub rate: Rate,
}

impl RateLatency {
    /// Returns the smallest number of units that are served in any time interval of length
    /// `time_ns`.
    pub fn at(self, time_ns: u64) -> u64 {
        self.rate.within(time_ns.saturating_sub(self.latency_ns))
    }

    fn reached(self, units: u64) -> u64 {
        match units {
            0 => 0,
            units => self.latency_ns.saturating_add(self.rate.time_for(units).1),
        }
    }
}

/// A concave upper curve: any closed time interval of length `d` contains at most `at(d)` units.
///
/// The curve is a polygon through `points`, followed by a ray of slope `rate`. It equals the
/// minimum of leaky buckets, one for each point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upper {
    /// The corners of the curve, each with the interval's length in ns and the number of units. The
    /// first length is 0. Lengths and units rise, slopes fall, and every slope is at least `rate`.
    points: Vec<(u64, u64)>,
    rate: Rate,
}

impl Upper {
    /// Returns the curve of a leaky bucket: `burst` units at once, and `rate` in the long run.
    pub fn leaky_bucket(burst: u64, rate: Rate) -> Upper {
        Upper {
            points: vec![(0, burst)],
            rate,
        }
    }

    /// Returns the smallest concave curve that lies above all corners (length, units) and ends in a
    /// ray of slope `rate`. The corners must be sorted by length. The ray, extended back to length
    /// 0, also lies above all corners.
    pub fn covering(corners: &[(u64, u64)], rate: Rate) -> Upper {
        let mut points: Vec<(u64, u64)> = Vec::new();
        let start = (
            0,
            corners
                .iter()
                .filter(|corner| corner.0 == 0)
                .map(|corner| corner.1)
                .max()
                .unwrap_or(0),
        );
        for &corner in std::iter::once(&start).chain(corners) {
            let last = points.last().copied();
            if last.is_some_and(|last| corner.1 <= last.1) {
                continue;
            }
            if last.is_some_and(|last| corner.0 <= last.0) {
                points.pop();
            }
            while let [.., before, last] = points[..] {
                if !below(before, last, corner) {
                    break;
                }
                points.pop();
            }
            points.push(corner);
        }
        // Where the polygon rises more slowly than the ray, the ray replaces it.
        while let [.., before, last] = points[..] {
            let slope = Rate {
                units: last.1 - before.1,
                ns: last.0 - before.0,
            };
            if slope.at_least(rate) {
                break;
            }
            points.pop();
        }
        Upper { points, rate }
    }

    /// Returns the slope of the final ray, which bounds the traffic in the long run.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the leaky buckets whose minimum is this curve. Each entry describes one bucket: the
    /// interval length from which on this bucket is the minimum, the units at that length, and the
    /// bucket's rate.
    pub fn buckets(&self) -> impl ExactSizeIterator<Item = (u64, u64, Rate)> + '_ {
        self.points.iter().enumerate().map(|(at, &(ns, units))| {
            let rate = match self.points.get(at + 1) {
                Some(next) => Rate {
                    units: next.1 - units,
                    ns: next.0 - ns,
                },
                None => self.rate,
            };
            (ns, units, rate)
        })
    }

    /// Returns the largest number of units in any time interval of this length.
    pub fn at(&self, time_ns: u64) -> u64 {
        let bucket = self
            .buckets()
            .take_while(|bucket| bucket.0 <= time_ns)
            .last();
        let (ns, units, rate) = bucket.unwrap_or((0, 0, self.rate));
        units.saturating_add(rate.within(time_ns - ns))
    }

    /// Returns the shortest length of a time interval that can contain this many units, in ns,
    /// rounded down. Returns `None` if no interval can.
    fn shortest(&self, units: u64) -> Option<u64> {
        let bucket = self.buckets().take_while(|bucket| bucket.1 < units).last();
        let (ns, there, rate) = match bucket {
            Some(bucket) => bucket,
            None => return Some(0),
        };
        (rate.units > 0).then(|| ns.saturating_add(rate.time_for(units - there).0))
    }

    /// Returns the curve of the same traffic when it is played faster by the factor `times`. The
    /// factor is limited to 1e-6 to 1e6. A factor that is not finite counts as 1.
    pub fn faster(&self, times: f64) -> Upper {
        let times = if times.is_finite() {
            times.clamp(1e-6, 1e6)
        } else {
            1.0
        };
        let shorter = |ns: u64| (ns as f64 / times * (1.0 - 1e-12)).floor() as u64;
        let corners: Vec<_> = self
            .points
            .iter()
            .map(|&(ns, units)| (shorter(ns), units))
            .collect();
        // The rate is rounded up, with nine digits.
        let rate = Rate {
            units: narrow(
                (u128::from(self.rate.units) * (times * 1e9).ceil() as u128).div_ceil(1000),
            ),
            ns: self.rate.ns.max(1).saturating_mul(1_000_000),
        };
        let first = corners
            .iter()
            .filter(|corner| corner.0 == 0)
            .map(|corner| corner.1)
            .max();
        Upper::covering(&[&[(0, first.unwrap_or(0))], &corners[..]].concat(), rate)
    }

    /// Returns the largest backlog behind a service: the vertical distance of the curves. The
    /// service must not be slower than this curve in the long run.
    ///
    /// Unit `k` of a burst arrives at the earliest `shortest(k)` after the burst's beginning. The
    /// backlog is then at most `k - service.at(shortest(k))` units. This difference is concave in
    /// `k`, so it is largest next to a corner of one of the curves.
    pub(super) fn backlog(&self, service: RateLatency) -> u64 {
        let corners = self
            .points
            .iter()
            .map(|point| point.1)
            .chain([self.at(service.latency_ns)]);
        let units = corners.flat_map(|corner| [corner, corner.saturating_add(1)]);
        let needed =
            units.filter_map(|units| Some(units.saturating_sub(service.at(self.shortest(units)?))));
        needed.max().unwrap_or(0)
    }

    /// Returns the longest delay behind a service, in ns: the horizontal distance of the curves.
    /// The service must not be slower than this curve in the long run.
    pub(super) fn delay_ns(&self, service: RateLatency) -> u64 {
        let units = self.points.iter().map(|point| point.1).chain([1]);
        let delays = units
            .filter_map(|units| Some(service.reached(units).saturating_sub(self.shortest(units)?)));
        delays.max().unwrap_or(0)
    }
}

fn below(a: (u64, u64), b: (u64, u64), c: (u64, u64)) -> bool {
    wide(b.1 - a.1, c.0 - b.0) <= wide(c.1 - b.1, b.0 - a.0)
}
