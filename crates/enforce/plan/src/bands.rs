//! The placement of the output server's slots (R_delta; thesis, section 4.4.1): the average latency
//! of Equation 4.1, and the placement that minimises it.
//!
//! **Why the optimum is exact.** Times are whole nanoseconds. Take any best placement and move a
//! slot's end to the left while the constraints allow it: as long as the end passes no measured
//! sample, its own executions end earlier and nobody else's later, so the average does not grow. An
//! end stops at a measured sample, at the earliest end that is allowed, at a neighbour at the least
//! distance, or at a neighbour at the largest (liveliness). Slots that stop each other move
//! together. So there is a best placement in which every group of slots that stand at the least or
//! largest distance from each other holds one that ends at a sample, at the earliest end, or is the
//! last slot (which ends as early as it may). The *candidates* are these places, and whatever lies
//! up to k-1 least and largest distances from them; dynamic programming over them tries every
//! placement. The cost of a band, (count up to its end - count up to the previous end) * end,
//! satisfies the quadrangle inequality, also with the distances as constraints, so that the best
//! previous slot moves to the right with the slot: O(k M log M) for M candidates.
//!
//! Most of the time that is not even needed: without the distances the ends of a best placement are
//! samples (or the earliest end). If that placement keeps the distances all the same, nothing that
//! keeps them can be better.

mod place;

use crate::schema::MAX_SLOTS;
use onbeat_document::Dist;
use place::place;

/// Most bands that are placed.
pub const MAX_BANDS: usize = MAX_SLOTS;

/// Most candidate places: bounds time and memory (reached only with liveliness and many bands).
const MAX_CANDIDATES: usize = 4_000_000;

/// Measured latencies of a chain, ascending, each with how often it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Samples {
    /// Ascending, without doubles.
    values: Vec<u64>,
    /// Number of samples up to and with each value.
    up_to: Vec<u64>,
}

impl Samples {
    /// Of single latencies, ns.
    pub fn new(latencies_ns: &[u64]) -> Self {
        let mut sorted = latencies_ns.to_vec();
        sorted.sort_unstable();
        let mut samples = Samples::default();
        for value in sorted {
            samples.push(value, 1);
        }
        samples
    }

    /// Of a measured distribution: see [`Samples::pairs`].
    pub fn of(dist: &Dist) -> Self {
        Self::counted(Self::pairs(dist))
    }

    /// The values of a measured distribution, ascending, each with how often it was seen. A bucket
    /// stands for its highest value (at most 0.006 % above what was measured), so that no execution
    /// counts for a slot that it missed.
    pub(crate) fn pairs(dist: &Dist) -> Vec<(u64, u64)> {
        let value = |low: u64, width| low.saturating_add(width - 1).clamp(dist.min(), dist.max());
        let pair = |(low, width, count)| (value(low, width), count);
        dist.buckets().map(pair).collect()
    }

    /// Of ascending values, each with how often it was seen.
    pub(crate) fn counted(pairs: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut samples = Samples::default();
        for (value, count) in pairs {
            samples.push(value, count);
        }
        samples
    }

    /// The same with this as the largest value: larger ones become it.
    pub(crate) fn capped(&self, most_ns: u64) -> Self {
        let inside = self.values.partition_point(|&v| v <= most_ns);
        let mut capped = Samples {
            values: self.values[..inside].to_vec(),
            up_to: self.up_to[..inside].to_vec(),
        };
        capped.push(most_ns, self.count() - capped.count());
        capped
    }

    /// The same with this as the smallest value: smaller ones become it.
    pub(crate) fn floored(&self, least_ns: u64) -> Self {
        let mut before = 0;
        let pairs = self.values.iter().zip(&self.up_to).map(|(&value, &until)| {
            let count = until - std::mem::replace(&mut before, until);
            (value.max(least_ns), count)
        });
        Self::counted(pairs)
    }

    /// Their mean, ns.
    pub(crate) fn mean_ns(&self) -> f64 {
        let (mut sum, mut before) = (0u128, 0);
        for (&value, &until) in self.values.iter().zip(&self.up_to) {
            sum += u128::from(until - before) * u128::from(value);
            before = until;
        }
        sum as f64 / self.count().max(1) as f64
    }

    /// Adds values that are not below the last one.
    fn push(&mut self, value: u64, count: u64) {
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

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.up_to.last().copied().unwrap_or(0)
    }

    /// Smallest, ns; 0 when there is none.
    pub fn best_ns(&self) -> u64 {
        self.values.first().copied().unwrap_or(0)
    }

    /// Largest, ns; 0 when there is none.
    pub fn worst_ns(&self) -> u64 {
        self.values.last().copied().unwrap_or(0)
    }

    /// How many are at most `x_ns`.
    fn until(&self, x_ns: u64) -> u64 {
        match self.values.partition_point(|&v| v <= x_ns) {
            0 => 0,
            n => self.up_to[n - 1],
        }
    }

    /// phi(x): the share of executions that take at most `x_ns` (thesis, section 4.4.1).
    pub fn phi(&self, x_ns: u64) -> f64 {
        self.until(x_ns) as f64 / self.count().max(1) as f64
    }
}

/// Constraints on the slots' ends x_1 < ... < x_k (thesis, sections 4.3.3 and 4.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constraints {
    /// Length of a slot, ns.
    pub slot_ns: u64,
    /// The last slot begins this long after the measured worst case, ns.
    pub epsilon_ns: u64,
    /// Largest distance of neighbours' ends, ns; none: any.
    pub liveliness_ns: Option<u64>,
}

/// Why slots cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BandsError {
    /// Nothing was measured.
    #[error("no execution was measured: record the chain while it runs")]
    NoSamples,
    /// Too few or too many bands.
    #[error("{asked} bands: ask for 1 to {MAX_BANDS}")]
    Count {
        /// What was asked for.
        asked: usize,
    },
    /// The slots do not fit between best and worst case.
    #[error("{asked} slots of {} ms do not fit between the best case ({} ms) and the last slot ({} ms): at most {most} do", ms(.slot_ns), ms(.best_ns), ms(.last_ns))]
    NoRoom {
        /// What was asked for.
        asked: usize,
        /// Length of a slot.
        slot_ns: u64,
        /// Measured best case.
        best_ns: u64,
        /// Start of the last slot.
        last_ns: u64,
        /// How many fit.
        most: u64,
    },
    /// The largest distance is below the least.
    #[error("a liveliness of {} ms is not longer than a slot ({} ms): neighbouring slots cannot be that close", ms(.liveliness_ns), ms(.slot_ns))]
    Liveliness {
        /// Asked for.
        liveliness_ns: u64,
        /// Length of a slot.
        slot_ns: u64,
    },
    /// More places would have to be tried than is sensible.
    #[error("{asked} bands with a liveliness over {samples} different latencies are too many to try: ask for fewer bands")]
    TooMany {
        /// Bands.
        asked: usize,
        /// Different latencies.
        samples: usize,
    },
    /// No random placement kept to the liveliness.
    #[error("no random placement of {asked} slots keeps to the liveliness of {} ms: ask for more bands", ms(.liveliness_ns))]
    NotFound {
        /// Bands.
        asked: usize,
        /// Asked for.
        liveliness_ns: u64,
    },
}

/// A time for a message.
fn ms(ns: &u64) -> f64 {
    *ns as f64 / 1e6
}

/// The average latency of Equation 4.1 for slots that end at `ends_ns` (ascending), ns: every
/// execution counts as long as the end of the first slot that it reaches. Those that reach none
/// count for the last.
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

/// The share of executions in each band.
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

/// The frame in which ends lie.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// Earliest end of the first slot.
    first: u64,
    /// End of the last slot.
    last: u64,
    /// Least distance of neighbours.
    least: u64,
    /// Largest.
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
        // x - slot > best, x_(a-1) < x_a - slot: at least one nanosecond between.
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

/// The ends of `count` slots with the least average by Equation 4.1, ns, ascending. Exact: see the
/// module's head.
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
            // The frame has room, so that there is one.
            place(samples, count, &frame, &places).ok_or(BandsError::Count { asked: count })
        }
    }
}

/// Where slots end when their distances do not matter: at samples, as early as may be, and the
/// last.
fn anchors(samples: &Samples, frame: &Frame) -> Vec<u64> {
    let inside = |x: &u64| (frame.first..=frame.last - frame.least).contains(x);
    let mut places: Vec<u64> = [frame.first].into_iter().filter(inside).collect();
    places.extend(samples.values.iter().copied().filter(inside));
    places.push(frame.last);
    places.dedup();
    places
}

/// The candidate places of the module's head, ascending; the last is the last slot's.
fn candidates(
    samples: &Samples,
    count: usize,
    limits: &Constraints,
    frame: &Frame,
) -> Result<Vec<u64>, BandsError> {
    let inside = |x: &u64| (frame.first..=frame.last - frame.least).contains(x);
    // Also samples outside: liveliness reaches in from them.
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

/// The ends of `count` slots at random, all placements that keep to the constraints being equally
/// likely, ns, ascending.
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
    // Rarely more than a few are needed, unless liveliness leaves hardly any.
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

/// SplitMix64: equal seeds give equal plans everywhere.
pub(crate) fn below(state: &mut u64, n: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    ((u128::from(z) * u128::from(n)) >> 64) as u64
}

/// Most bands among which the knee is looked for.
pub const KNEE_UP_TO: usize = 8;

/// The number of bands beyond which more bring little: where the average over 1 to [`KNEE_UP_TO`]
/// bands lies farthest below the straight line between its ends.
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
    // Where it is straight (or one point), the first of the equal ones is what the least costs.
    let least =
        (0..averages.len()).find(|&i| deepest.is_some_and(|d| below_line(i) >= below_line(d)));
    Ok(least.unwrap_or(0) + 1)
}

#[cfg(test)]
mod tests;
