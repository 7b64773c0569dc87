//! Places the output server's slots (R_delta; thesis, section 4.4.1) so that the average latency of
//! Equation 4.1 is least.
//!
//! **Why the optimum is exact.** Times are whole nanoseconds. Take any best placement and move a
//! slot's end to the left while the constraints allow it. As long as the end passes no measured
//! sample, its own executions end earlier and no others end later, so the average does not grow. An
//! end stops in one of four places: at a measured sample, at the earliest end that is allowed, or
//! at a neighbour at the least or the largest distance (liveliness). Slots that stop each other
//! move together.
//!
//! So a best placement exists in which every group of slots at the least or largest distance from
//! each other holds an anchor. An anchor ends at a sample or at the earliest end, or it is the last
//! slot, which ends as early as it may. The *candidates* are these places, and all places up to k-1
//! least and largest distances from them. Dynamic programming over the candidates tries every
//! placement.
//!
//! The cost of a band is (count up to its end - count up to the previous end) * end. It satisfies
//! the quadrangle inequality, also with the distances as constraints. Therefore the best previous
//! slot moves to the right with the slot, and M candidates take O(k M log M).
//!
//! Most of the time the candidates are not needed. Without the distances, the ends of a best
//! placement are samples or the earliest end. If that placement keeps the distances, no other one
//! that keeps them is better.

mod place;

use crate::schema::MAX_SLOTS;
use onbeat_document::Dist;
use place::place;

/// The largest number of bands in a plan.
pub const MAX_BANDS: usize = MAX_SLOTS;

/// The largest number of candidates for slot ends (see the module's documentation). It limits time
/// and memory. Only plans with a liveliness limit and many bands reach it.
const MAX_CANDIDATES: usize = 4_000_000;

/// The measured latencies of a chain in ascending order, each with its number of executions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Samples {
    values: Vec<u64>,
    /// For each latency in `values`, the number of samples that are not longer than this latency.
    up_to: Vec<u64>,
}

impl Samples {
    /// Makes samples from single latencies in ns, in any order.
    pub fn new(latencies_ns: &[u64]) -> Self {
        let mut sorted = latencies_ns.to_vec();
        sorted.sort_unstable();
        let mut samples = Samples::default();
        for value in sorted {
            samples.push_ascending(value, 1);
        }
        samples
    }

    /// Makes samples from a measured distribution. A bucket counts as its highest value, at most
    /// 0.006 % above the measured one.
    pub fn of(dist: &Dist) -> Self {
        Self::from_counts(Self::pairs(dist))
    }

    /// Returns the values of a measured distribution in ascending order, each with its count. A
    /// bucket counts as its highest value (at most 0.006 % above the measured one). So no execution
    /// counts for a slot that was over before the execution ended.
    pub(crate) fn pairs(dist: &Dist) -> Vec<(u64, u64)> {
        let value = |low: u64, width| low.saturating_add(width - 1).clamp(dist.min(), dist.max());
        let pair = |(low, width, count)| (value(low, width), count);
        dist.buckets().map(pair).collect()
    }

    pub(crate) fn from_counts(pairs: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut samples = Samples::default();
        for (value, count) in pairs {
            samples.push_ascending(value, count);
        }
        samples
    }

    pub(crate) fn capped(&self, most_ns: u64) -> Self {
        let inside = self.values.partition_point(|&v| v <= most_ns);
        let mut capped = Samples {
            values: self.values[..inside].to_vec(),
            up_to: self.up_to[..inside].to_vec(),
        };
        capped.push_ascending(most_ns, self.count() - capped.count());
        capped
    }

    pub(crate) fn floored(&self, least_ns: u64) -> Self {
        let mut before = 0;
        let pairs = self.values.iter().zip(&self.up_to).map(|(&value, &until)| {
            let count = until - std::mem::replace(&mut before, until);
            (value.max(least_ns), count)
        });
        Self::from_counts(pairs)
    }

    pub(crate) fn mean_ns(&self) -> f64 {
        let (mut sum, mut before) = (0u128, 0);
        for (&value, &until) in self.values.iter().zip(&self.up_to) {
            sum += u128::from(until - before) * u128::from(value);
            before = until;
        }
        sum as f64 / self.count().max(1) as f64
    }

    fn push_ascending(&mut self, value: u64, count: u64) {
        let total = self.count().saturating_add(count);
        if count == 0 {
            return;
        }
        if self.values.last() == Some(&value) {
            if let Some(last) = self.up_to.last_mut() {
                *last = total;
            }
        } else {
            self.values.push(value);
            self.up_to.push(total);
        }
    }

    /// Returns the number of executions in the sample.
    pub fn count(&self) -> u64 {
        self.up_to.last().copied().unwrap_or(0)
    }

    /// Returns the smallest latency in ns, or 0 without samples.
    pub fn best_ns(&self) -> u64 {
        self.values.first().copied().unwrap_or(0)
    }

    /// Returns the largest latency in ns, or 0 without samples.
    pub fn worst_ns(&self) -> u64 {
        self.values.last().copied().unwrap_or(0)
    }

    fn until(&self, x_ns: u64) -> u64 {
        match self.values.partition_point(|&v| v <= x_ns) {
            0 => 0,
            n => self.up_to[n - 1],
        }
    }

    /// Returns phi(x), the share of executions that take at most `x_ns` (thesis, section 4.4.1).
    pub fn phi(&self, x_ns: u64) -> f64 {
        self.until(x_ns) as f64 / self.count().max(1) as f64
    }
}

/// The constraints on the slots' ends x_1 < ... < x_k (thesis, sections 4.3.3 and 4.4.1).
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constraints {
    pub slot_ns: u64,
    /// The time from the measured worst case to the start of the last slot, in ns.
    pub epsilon_ns: u64,
    /// The largest distance between the ends of neighbouring slots, in ns. `None` allows any
    /// distance.
    pub liveliness_ns: Option<u64>,
}

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BandsError {
    #[error("no execution of the chain was measured. Record the chain while it runs.")]
    NoSamples,
    #[error("a plan cannot have {asked} latency bands. Ask for 1 to {MAX_BANDS}.")]
    Count { asked: usize },
    #[error("{asked} slots of {} ms do not fit between the shortest latency ({} ms) and the last slot ({} ms). Ask for at most {most}.", ms(.slot_ns), ms(.best_ns), ms(.last_ns))]
    NoRoom {
        asked: usize,
        slot_ns: u64,
        best_ns: u64,
        last_ns: u64,
        most: u64,
    },
    #[error("--liveliness {} ms is too short: the ends of neighbouring slots are at least one slot ({} ms) apart. Ask for a longer time than one slot.", ms(.liveliness_ns), ms(.slot_ns))]
    Liveliness { liveliness_ns: u64, slot_ns: u64 },
    #[error("the placement of {asked} bands with --liveliness would have to try too many combinations of {samples} different latencies. Ask for fewer bands.")]
    TooMany { asked: usize, samples: usize },
    #[error("no random placement of {asked} slots keeps neighbouring slots within the {} ms of --liveliness. Ask for more bands.", ms(.liveliness_ns))]
    NotFound { asked: usize, liveliness_ns: u64 },
}

fn ms(ns: &u64) -> f64 {
    *ns as f64 / 1e6
}

/// Returns the average latency of Equation 4.1 in ns, for slots that end at `ends_ns` (ascending).
/// The latency of an execution is the end of the first slot that it reaches. An execution that
/// reaches no slot counts with the end of the last one.
pub fn average_ns(samples: &Samples, ends_ns: &[u64]) -> f64 {
    let (mut sum, mut before) = (0u128, 0u64);
    for (i, &end) in ends_ns.iter().enumerate() {
        let until = if i + 1 == ends_ns.len() {
            samples.count()
        } else {
            samples.until(end).max(before)
        };
        sum += u128::from(until - before) * u128::from(end);
        before = until;
    }
    sum as f64 / samples.count().max(1) as f64
}

/// Returns the share of executions in each band, 0 to 1, for slots that end at `ends_ns`.
pub fn shares(samples: &Samples, ends_ns: &[u64]) -> Vec<f64> {
    let mut before = 0.0;
    let last = ends_ns.len().saturating_sub(1);
    let until = |(i, &end): (usize, &u64)| if i == last { 1.0 } else { samples.phi(end) };
    let share = |until: f64| {
        let share = until - before;
        before = until;
        share
    };
    ends_ns.iter().enumerate().map(until).map(share).collect()
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    first: u64,
    last: u64,
    least: u64,
    largest: u64,
}

impl Frame {
    fn new(samples: &Samples, count: usize, limits: &Constraints) -> Result<Self, BandsError> {
        if samples.count() == 0 {
            return Err(BandsError::NoSamples);
        }
        if count == 0 || count > MAX_BANDS {
            return Err(BandsError::Count { asked: count });
        }
        let begin = samples.worst_ns().saturating_add(limits.epsilon_ns);
        // Both x - slot > best and x_(a-1) < x_a - slot need at least one nanosecond in between.
        let least = limits.slot_ns.saturating_add(1);
        let frame = Frame {
            first: samples.best_ns().saturating_add(least),
            last: begin.saturating_add(limits.slot_ns),
            least,
            largest: limits.liveliness_ns.unwrap_or(u64::MAX),
        };
        if count > 1 && frame.largest < least {
            return Err(BandsError::Liveliness {
                liveliness_ns: frame.largest,
                slot_ns: limits.slot_ns,
            });
        }
        let more = count as u64 - 1;
        if more > 0 && frame.first.saturating_add(least.saturating_mul(more)) > frame.last {
            return Err(BandsError::NoRoom {
                asked: count,
                slot_ns: limits.slot_ns,
                best_ns: samples.best_ns(),
                last_ns: begin,
                most: 1 + frame.last.saturating_sub(frame.first) / least,
            });
        }
        Ok(frame)
    }
}

/// Returns the ends of `count` slots, in ns, ascending, for which the average latency of the
/// samples (Equation 4.1 of the thesis) is the smallest. The result is exact: the module's
/// documentation has the proof.
pub fn optimal(
    samples: &Samples,
    count: usize,
    limits: &Constraints,
) -> Result<Vec<u64>, BandsError> {
    let frame = Frame::new(samples, count, limits)?;
    if count == 1 {
        return Ok(vec![frame.last]);
    }
    let relaxed = Frame {
        least: 0,
        largest: u64::MAX,
        ..frame
    };
    let ends = place(samples, count, &relaxed, &anchors(samples, &frame));
    let fits = |w: &[u64]| (frame.least..=frame.largest).contains(&(w[1] - w[0]));
    match ends {
        Some(ends) if ends.windows(2).all(fits) => Ok(ends),
        _ => {
            let places = candidates(samples, count, limits, &frame)?;
            // The frame has room, so a placement exists.
            place(samples, count, &frame, &places).ok_or(BandsError::Count { asked: count })
        }
    }
}

/// Returns the slot ends from which a best placement chooses if the slots may have any distances.
/// These ends are the earliest possible end, the end of the last slot, and the samples between them
/// after which the last slot still fits.
fn anchors(samples: &Samples, frame: &Frame) -> Vec<u64> {
    let inside = |x: &u64| (frame.first..=frame.last - frame.least).contains(x);
    let mut places: Vec<u64> = [frame.first].into_iter().filter(inside).collect();
    places.extend(samples.values.iter().copied().filter(inside));
    places.push(frame.last);
    places.dedup();
    places
}

fn candidates(
    samples: &Samples,
    count: usize,
    limits: &Constraints,
    frame: &Frame,
) -> Result<Vec<u64>, BandsError> {
    let inside = |x: &u64| (frame.first..=frame.last - frame.least).contains(x);
    // Samples outside count too: liveliness reaches in from them.
    let anchors = || {
        let of_samples = samples.values.iter().copied();
        of_samples.chain([frame.first, frame.last])
    };
    let more = count as u64 - 1;
    let mut steps = Vec::new();
    for near in 0..=more {
        let far = if limits.liveliness_ns.is_some() {
            more - near
        } else {
            0
        };
        for far in 0..=far {
            let of = |n: u64, distance: u64| n.checked_mul(distance);
            let far = if far == 0 {
                Some(0)
            } else {
                of(far, frame.largest)
            };
            steps.extend(
                of(near, frame.least)
                    .zip(far)
                    .and_then(|(a, b)| a.checked_add(b)),
            );
        }
    }
    if steps.len().saturating_mul(samples.values.len()) > MAX_CANDIDATES {
        return Err(BandsError::TooMany {
            asked: count,
            samples: samples.values.len(),
        });
    }
    let mut places = Vec::new();
    for step in steps {
        places.extend(anchors().filter_map(|a| a.checked_add(step)).filter(inside));
        // Only liveliness pulls slots from the right.
        if limits.liveliness_ns.is_some() {
            places.extend(anchors().filter_map(|a| a.checked_sub(step)).filter(inside));
        }
    }
    places.push(frame.last);
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// Returns the ends of `count` slots at random, in ns, ascending. All placements that satisfy the
/// constraints are equally likely.
pub fn random(
    samples: &Samples,
    count: usize,
    limits: &Constraints,
    seed: u64,
) -> Result<Vec<u64>, BandsError> {
    let frame = Frame::new(samples, count, limits)?;
    let more = count as u64 - 1;
    let free = frame
        .last
        .saturating_sub(frame.first)
        .saturating_sub(frame.least * more);
    let mut state = seed;
    // A few attempts suffice, unless liveliness leaves hardly any placement.
    for _ in 0..100_000 {
        let mut offsets: Vec<u64> = (0..more).map(|_| below(&mut state, free + 1)).collect();
        offsets.sort_unstable();
        let mut ends: Vec<u64> = offsets
            .iter()
            .zip(0..)
            .map(|(&offset, i)| frame.first + offset + i * frame.least)
            .collect();
        ends.push(frame.last);
        if ends.windows(2).all(|w| w[1] - w[0] <= frame.largest) {
            return Ok(ends);
        }
    }
    Err(BandsError::NotFound {
        asked: count,
        liveliness_ns: frame.largest,
    })
}

/// Returns the next number of SplitMix64, reduced to less than `n`. Equal seeds give equal plans on
/// every machine.
pub(crate) fn below(state: &mut u64, n: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    ((u128::from(z) * u128::from(n)) >> 64) as u64
}

/// The most bands that [`knee`] tries.
pub const KNEE_UP_TO: usize = 8;

/// Returns the number of bands beyond which further bands hardly make the average latency shorter.
/// Imagine a straight line from the average latency with one band to that with [`KNEE_UP_TO`]
/// bands, or with the most that fit. The result is the number of bands whose average lies farthest
/// below this line.
pub fn knee(samples: &Samples, limits: &Constraints) -> Result<usize, BandsError> {
    let mut averages = Vec::new();
    for count in 1..=KNEE_UP_TO {
        match optimal(samples, count, limits) {
            Ok(ends) => averages.push(average_ns(samples, &ends)),
            Err(e) if averages.is_empty() => return Err(e),
            Err(_) => break,
        }
    }
    let (first, last) = (averages[0], averages[averages.len() - 1]);
    let slope = (last - first) / (averages.len().max(2) - 1) as f64;
    let below_line = |i: usize| first + slope * i as f64 - averages[i];
    let deepest = (0..averages.len()).max_by(|&a, &b| below_line(a).total_cmp(&below_line(b)));
    // On a straight line all counts are equal, and the smallest costs least.
    let least =
        (0..averages.len()).find(|&i| deepest.is_some_and(|d| below_line(i) >= below_line(d)));
    Ok(least.unwrap_or(0) + 1)
}

#[cfg(test)]
mod tests;
