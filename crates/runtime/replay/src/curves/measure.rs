//! Curves of traces: by windows, exact up to a million items; of longer traces on the safe side.

use super::envelope::{Rate, RateLatency, Upper};
use super::{Arrival, Service};
use crate::item::{Source, SourceError};

/// So many items are kept one by one. Of longer traces two, four, eight ... that follow one another are kept as one, of
/// which only the first and the last time are known.
const EXACT: usize = 1 << 20;

/// Items that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clump {
    first_ns: i64,
    last_ns: i64,
    items: u64,
    bytes: u64,
    /// The loader was held up before it: no stretch goes over it.
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

/// A trace in bounded memory.
#[derive(Clone, Debug)]
struct Trace {
    clumps: Vec<Clump>,
    most: usize,
    /// Items that a new clump takes.
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

    /// One more item, or (with 0 items) a mark. Times that go back are taken as standing still.
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

    /// The shortest closed stretch with at least so many items, or a shorter one.
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

    /// Most items and bytes in a closed stretch of that length, or more.
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

    /// The longest open stretch with less than so many units in which the loader was not held up, or a longer one.
    fn longest(&self, units: u64, unit: Unit) -> u64 {
        // `sum` is what is between `from` and the clump, both left out.
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

/// A clump of several items can be a stretch without items of its own.
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

/// 1, 2, 3 ... then always a sixteenth more: an envelope of bounded size.
fn steps(most: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1u64), |&step| step.checked_add((step / 16).max(1)))
        .take_while(move |&step| step <= most)
}

/// Measures the arrival curve of a stream or of a sum of streams.
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
    /// Takes the memory of so many items at most: of more, its curve is on the safe side.
    pub fn within(items: usize) -> ArrivalMeter {
        ArrivalMeter {
            trace: Trace::new(items),
            largest_bytes: 0,
        }
    }

    /// One more item. Times do not go back.
    pub fn observe(&mut self, time_ns: i64, bytes: u64) {
        self.trace.add(time_ns, 1, bytes, false);
        self.largest_bytes = self.largest_bytes.max(bytes);
    }

    /// The envelope. Between its corners it is the minimal arrival curve to a sixteenth of its items, at its corners
    /// exactly; in the long run it rises with the trace's mean rate.
    pub fn arrival(&self) -> Arrival {
        let (length_ns, all_items, all_bytes) = self.trace.total();
        // Where the number of items jumps.
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

/// Measures the service curve of a loader: what it brings while it has room to put it.
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
    /// Takes the memory of so many items at most: of more, its curve is on the safe side.
    pub fn within(items: usize) -> ServiceMeter {
        ServiceMeter {
            trace: Trace::new(items),
            resumed: true,
        }
    }

    /// The loader begins, or goes on after it was held up.
    pub fn resumed(&mut self, time_ns: i64) {
        self.trace.add(time_ns, 0, 0, true);
        self.resumed = true;
    }

    /// It brought one more item.
    pub fn observe(&mut self, time_ns: i64, bytes: u64) {
        self.trace.add(time_ns, 1, bytes, !self.resumed);
        self.resumed = true;
    }

    /// The buffer is full: what follows up to [`ServiceMeter::resumed`] says nothing of the loader.
    pub fn held_up(&mut self, time_ns: i64) {
        self.trace.add(time_ns, 0, 0, false);
        self.resumed = false;
    }

    /// Bounds that hold for every stretch of the trace in which the loader was not held up. Empty where it brought too
    /// little to say anything.
    pub fn service(&self) -> Service {
        let (_, items, bytes) = self.trace.total();
        Service {
            items: self.bounds(items, Unit::Items),
            bytes: self.bounds(bytes, Unit::Bytes),
        }
    }

    /// For each number of units `x` that any stretch of length `g` has: in `n` such stretches there are `n x`. So the
    /// rate `x / g` is kept in the long run, after the latency that the shorter stretches need.
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
                // Up to just before this stretch there are `before` units.
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

/// Without those that another one is not worse than in rate and in latency.
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

/// Time of so many units at that rate, rounded down.
fn time_of(units: u64, rate: Rate) -> u64 {
    let time_ns = u128::from(units) * u128::from(rate.ns) / u128::from(rate.units.max(1));
    u64::try_from(time_ns).unwrap_or(u64::MAX)
}

/// The arrival curves of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// Of all streams together.
    pub sum: Arrival,
    /// Of each stream.
    pub streams: Vec<Arrival>,
}

/// Reads a recording to its end and measures it.
///
/// # Errors
/// It cannot be read.
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
