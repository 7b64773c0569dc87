//! Measures the curves of traces with sliding windows. They are exact up to a million items, and on
//! the safe side for longer traces.

use super::envelope::{Rate, RateLatency, Upper};
use super::{Arrival, Service};
use crate::item::{Source, SourceError};

/// The number of items up to which every item's time is stored. If there are more items, 2, 4, 8 or
/// more consecutive items form a clump. Of a clump, only the first and the last time are stored.
const EXACT: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clump {
    first_ns: i64,
    last_ns: i64,
    items: u64,
    bytes: u64,
    /// True if the loader waited for room before this clump. No measured interval may then cross
    /// the beginning of the clump.
    resumed: bool,
}

#[derive(Clone, Copy)]
enum Unit {
    Items,
    Bytes,
}

impl Clump {
    fn units(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Items => self.items,
            Unit::Bytes => self.bytes,
        }
    }
}

#[derive(Clone, Debug)]
struct Trace {
    clumps: Vec<Clump>,
    most: usize,
    per_clump: u64,
}

impl Trace {
    fn new(most: usize) -> Trace {
        Trace {
            clumps: Vec::new(),
            most: most.max(2),
            per_clump: 1,
        }
    }

    /// Adds `items` items with `bytes` bytes in total, all at `time_ns`. If `items` is 0, adds only
    /// a mark of this time. A time before the previous one counts as the previous one.
    fn add(&mut self, time_ns: i64, items: u64, bytes: u64, resumed: bool) {
        let time_ns = self
            .clumps
            .last()
            .map_or(time_ns, |last| last.last_ns.max(time_ns));
        let new = Clump {
            first_ns: time_ns,
            last_ns: time_ns,
            items,
            bytes,
            resumed,
        };
        match self.clumps.last_mut() {
            Some(last)
                if !resumed && last.items + items <= self.per_clump && self.per_clump > 1 =>
            {
                join(last, new)
            }
            _ => self.clumps.push(new),
        }
        if self.clumps.len() > self.most {
            self.per_clump = self.per_clump.saturating_mul(2);
            let per_clump = self.per_clump;
            self.clumps.dedup_by(|next, last| {
                let fits = !next.resumed && last.items + next.items <= per_clump;
                if fits {
                    join(last, *next);
                }
                fits
            });
        }
    }

    /// Returns a lower bound, in ns, for the length of the closed time intervals that contain at
    /// least this many items.
    fn shortest(&self, items: u64) -> Option<u64> {
        let (mut from, mut sum) = (0, 0);
        let mut shortest = None;
        for clump in &self.clumps {
            sum += clump.items;
            while sum - self.clumps[from].items >= items {
                sum -= self.clumps[from].items;
                from += 1;
            }
            if sum >= items {
                let length = length(self.clumps[from].last_ns, clump.first_ns);
                shortest = Some(shortest.map_or(length, |shortest: u64| shortest.min(length)));
            }
        }
        shortest
    }

    /// Returns upper bounds for the number of items and of bytes in a closed time interval of
    /// length `length_ns`.
    fn most_within(&self, length_ns: u64) -> (u64, u64) {
        let (mut from, mut items, mut bytes) = (0, 0, 0u64);
        let mut most = (0, 0);
        for clump in &self.clumps {
            items += clump.items;
            bytes = bytes.saturating_add(clump.bytes);
            while length(self.clumps[from].last_ns, clump.first_ns) > length_ns {
                items -= self.clumps[from].items;
                bytes = bytes.saturating_sub(self.clumps[from].bytes);
                from += 1;
            }
            most = (most.0.max(items), most.1.max(bytes));
        }
        most
    }

    /// Returns an upper bound, in ns, for the length of open time intervals that contain fewer
    /// units than `units`. Only intervals count in which the loader did not wait for room.
    fn longest(&self, units: u64, unit: Unit) -> u64 {
        // `sum` counts the units between `from` and the clump, without both.
        let (mut from, mut sum, mut longest) = (0, 0u64, 0);
        for (at, clump) in self.clumps.iter().enumerate() {
            if clump.resumed || at == 0 {
                (from, sum) = (at, 0);
                longest = longest.max(inner_length(clump));
                continue;
            }
            while sum >= units {
                from += 1;
                sum -= self.clumps[from].units(unit);
            }
            longest = longest.max(length(self.clumps[from].first_ns, clump.last_ns));
            sum = sum.saturating_add(clump.units(unit));
        }
        longest
    }

    fn total(&self) -> (u64, u64, u64) {
        let sum = |unit| {
            self.clumps
                .iter()
                .fold(0u64, |sum, clump| sum.saturating_add(clump.units(unit)))
        };
        let ends = self.clumps.first().zip(self.clumps.last());
        let length = ends.map_or(0, |(first, last)| length(first.first_ns, last.last_ns));
        (length, sum(Unit::Items), sum(Unit::Bytes))
    }
}

fn inner_length(clump: &Clump) -> u64 {
    length(clump.first_ns, clump.last_ns)
}

fn length(from_ns: i64, to_ns: i64) -> u64 {
    if to_ns > from_ns {
        to_ns.abs_diff(from_ns)
    } else {
        0
    }
}

fn join(last: &mut Clump, next: Clump) {
    last.last_ns = next.last_ns;
    last.items += next.items;
    last.bytes = last.bytes.saturating_add(next.bytes);
}

/// Returns the numbers 1, 2, 3 and so on up to `most`. From 32 on, each number exceeds the one
/// before by about a sixteenth, which limits the size of an envelope.
fn steps(most: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1u64), |&step| step.checked_add((step / 16).max(1)))
        .take_while(move |&step| step <= most)
}

/// Measures the arrival curve of one stream, or of several streams together.
#[derive(Clone, Debug)]
pub struct ArrivalMeter {
    trace: Trace,
    largest_bytes: u64,
}

impl Default for ArrivalMeter {
    fn default() -> ArrivalMeter {
        ArrivalMeter {
            trace: Trace::new(EXACT),
            largest_bytes: 0,
        }
    }
}

impl ArrivalMeter {
    /// Creates a meter with memory for at most `items` items. If more items are observed, the curve
    /// is a less exact upper bound.
    pub fn within(items: usize) -> ArrivalMeter {
        ArrivalMeter {
            trace: Trace::new(items),
            largest_bytes: 0,
        }
    }

    /// Adds an item. Its time must not be before the previous item's.
    pub fn observe(&mut self, time_ns: i64, bytes: u64) {
        self.trace.add(time_ns, 1, bytes, false);
        self.largest_bytes = self.largest_bytes.max(bytes);
    }

    /// Returns the measured arrival curve. Its corners are exact. Between them the curve exceeds
    /// the minimal arrival curve by at most a sixteenth of its items. In the long run the curve
    /// rises with the mean rate of all items.
    pub fn arrival(&self) -> Arrival {
        let (length_ns, all_items, all_bytes) = self.trace.total();
        // The lengths at which the number of items jumps.
        let mut jumps: Vec<u64> = steps(all_items)
            .filter_map(|items| self.trace.shortest(items))
            .collect();
        jumps.dedup();
        let (mut items, mut bytes) = (Vec::new(), Vec::new());
        for (at, &jump_ns) in jumps.iter().enumerate() {
            let most = match jumps.get(at + 1) {
                Some(next_ns) => self.trace.most_within(next_ns - 1),
                None => (all_items, all_bytes),
            };
            items.push((jump_ns, most.0));
            bytes.push((jump_ns, most.1));
        }
        let mean = |units| Rate {
            units: if length_ns == 0 { 0 } else { units },
            ns: length_ns.max(1),
        };
        Arrival {
            items: Upper::covering(&items, mean(all_items)),
            bytes: Upper::covering(&bytes, mean(all_bytes)),
            largest_bytes: self.largest_bytes,
        }
    }
}

/// Measures the service curve of a loader: the items that the loader delivers while the buffer has
/// room.
#[derive(Clone, Debug)]
pub struct ServiceMeter {
    trace: Trace,
    resumed: bool,
}

impl Default for ServiceMeter {
    fn default() -> ServiceMeter {
        ServiceMeter {
            trace: Trace::new(EXACT / 8),
            resumed: true,
        }
    }
}

impl ServiceMeter {
    /// Creates a meter with memory for at most `items` items. If more items are observed, the curve
    /// is a less exact lower bound.
    pub fn within(items: usize) -> ServiceMeter {
        ServiceMeter {
            trace: Trace::new(items),
            resumed: true,
        }
    }

    /// Records that the loader starts, or that it continues after waiting for room in the buffer.
    pub fn resumed(&mut self, time_ns: i64) {
        self.trace.add(time_ns, 0, 0, true);
        self.resumed = true;
    }

    /// Records that the loader delivered an item of `bytes` bytes.
    pub fn observe(&mut self, time_ns: i64, bytes: u64) {
        self.trace.add(time_ns, 1, bytes, !self.resumed);
        self.resumed = true;
    }

    /// Records that the buffer is full. The time until the next [`ServiceMeter::resumed`] does not
    /// count.
    pub fn held_up(&mut self, time_ns: i64) {
        self.trace.add(time_ns, 0, 0, false);
        self.resumed = false;
    }

    /// Returns lower bounds of the service. Each bound holds in every time interval in which the
    /// loader did not wait for room. The list of bounds is empty if the loader delivered too few
    /// items.
    pub fn service(&self) -> Service {
        let (_, items, bytes) = self.trace.total();
        Service {
            items: self.bounds(items, Unit::Items),
            bytes: self.bounds(bytes, Unit::Bytes),
        }
    }

    /// Returns the bounds for items or for bytes. If every time interval of length `g` contains at
    /// least `x` units, then `n` intervals of this length contain at least `n x` units. So the rate
    /// `x / g` holds in the long run, after the latency that shorter intervals need.
    fn bounds(&self, all: u64, unit: Unit) -> Vec<RateLatency> {
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        let mut bounds = Vec::new();
        for units in steps(all) {
            let stretch_ns = self.trace.longest(units, unit);
            stretches.push((units, stretch_ns));
            if stretch_ns == 0 {
                continue;
            }
            let rate = Rate {
                units,
                ns: stretch_ns,
            };
            let mut before = 0;
            let mut latency_ns = 0;
            for &(units, stretch_ns) in &stretches {
                // Up to just before the end of this stretch, at least `before` units came.
                latency_ns = stretch_ns
                    .saturating_sub(time_of(before, rate))
                    .max(latency_ns);
                before = units;
            }
            bounds.push(RateLatency { latency_ns, rate });
        }
        best(bounds)
    }
}

fn best(mut bounds: Vec<RateLatency>) -> Vec<RateLatency> {
    bounds.sort_by_key(|bound| bound.latency_ns);
    let mut best: Vec<RateLatency> = Vec::new();
    for bound in bounds {
        if best
            .last()
            .is_none_or(|last| !last.rate.at_least(bound.rate))
        {
            best.push(bound);
        }
    }
    best
}

fn time_of(units: u64, rate: Rate) -> u64 {
    let time_ns = u128::from(units) * u128::from(rate.ns) / u128::from(rate.units.max(1));
    u64::try_from(time_ns).unwrap_or(u64::MAX)
}

/// The arrival curves of a recording's streams, and of all streams together.
#[allow(missing_docs)] // the names say what they are
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals {
    pub sum: Arrival,
    /// The curve of each stream. The index is the stream's number.
    pub streams: Vec<Arrival>,
}

/// Reads a recording to its end and measures its arrival curves.
///
/// # Errors
/// Fails if the recording cannot be read.
pub fn measure(source: &mut dyn Source) -> Result<Arrivals, SourceError> {
    let mut sum = ArrivalMeter::default();
    let mut streams = vec![ArrivalMeter::default(); source.streams().len()];
    let mut payload = Vec::new();
    while let Some(stamp) = source.next(&mut payload)? {
        let bytes = payload.len() as u64;
        sum.observe(stamp.time_ns, bytes);
        if let Some(stream) = streams.get_mut(stamp.stream.0 as usize) {
            stream.observe(stamp.time_ns, bytes);
        }
    }
    Ok(Arrivals {
        sum: sum.arrival(),
        streams: streams.iter().map(ArrivalMeter::arrival).collect(),
    })
}

#[cfg(test)]
mod tests;
