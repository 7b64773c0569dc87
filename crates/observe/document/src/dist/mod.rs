//! A distribution of times that merges exactly: count, sum, extremes and log-linear buckets.
//!
//! Buckets keep 14 bits of a value (relative width 2^-14, 0.006 %), so a percentile of 100 ms is
//! exact to about 3 us. They keep fewer bits if values spread over more than 4096 buckets. Minimum,
//! maximum, count and mean are exact. Only filled buckets take memory, about two bytes each. Merging adds counts, so it
//! is associative and commutative. Merged parts equal one distribution that recorded all values.

mod buckets;
mod dense;
mod packed;

use buckets::{range, Buckets, Filled, LEAST_PRECISION};
use dense::{Bucket, PRECISION};
use packed::Packed;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// A distribution of non-negative times in ns, stored as a histogram with exact count, sum and
/// extremes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dist {
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
    buckets: Buckets,
}

impl Dist {
    /// Creates an empty distribution.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the value to the distribution. Count, sum and extremes stay exact.
    pub fn record(&mut self, value_ns: u64) {
        self.min = if self.count == 0 {
            value_ns
        } else {
            self.min.min(value_ns)
        };
        self.max = self.max.max(value_ns);
        self.count += 1;
        self.sum += u128::from(value_ns);
        self.buckets.add(value_ns);
    }

    /// Adds all values of `other`. The result does not depend on the order of merges.
    pub fn merge(&mut self, other: &Dist) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum += other.sum;
        self.buckets.merge(&other.buckets);
    }

    /// Returns the number of recorded values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the exact sum of the values, in ns.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Returns the smallest value (measured best case) in ns, or 0 if empty.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Returns the largest value (measured worst case) in ns, or 0 if empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the mean (measured average case) in ns, or 0 if empty.
    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum as f64 / self.count as f64
        }
    }

    /// Returns the `q` quantile (0 to 1) in ns. The value is the middle of its bucket, limited to
    /// the measured extremes.
    pub fn quantile(&self, q: f64) -> u64 {
        self.quantiles([q])[0]
    }

    /// Returns the quantiles at these shares (0 to 1), in ns. The shares must be in ascending
    /// order. See [`Dist::quantile`].
    pub fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> [u64; N] {
        if self.count == 0 {
            return [0; N];
        }
        let rank = |q: f64| ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let ranks = quantiles.map(rank);
        let mut found = [self.max; N];
        let (mut seen, mut at) = (0, 0);
        self.buckets.each(|bucket, bits| {
            seen += bucket.count();
            while at < N && seen >= ranks[at] {
                let (low, width) = range(bucket.number, bits);
                found[at] = (low + (width - 1) / 2).clamp(self.min, self.max);
                at += 1;
            }
            at < N
        });
        found
    }

    /// Returns the number of values in the buckets that lie entirely above `limit_ns`.
    pub fn count_above(&self, limit_ns: u64) -> u64 {
        if self.max <= limit_ns {
            return 0;
        }
        let over = self.buckets().filter(|(low, ..)| *low > limit_ns);
        over.map(|(.., n)| n).sum()
    }

    /// Returns the distribution of the values of all parts. One call is faster than merging the
    /// parts one after the other.
    pub fn of_all<'a>(parts: impl Iterator<Item = &'a Dist> + Clone) -> Dist {
        let full = parts.filter(|part| part.count > 0);
        Dist {
            count: full.clone().map(|part| part.count).sum(),
            sum: full.clone().map(|part| part.sum).sum(),
            min: full.clone().map(|part| part.min).min().unwrap_or(0),
            max: full.clone().map(|part| part.max).max().unwrap_or(0),
            buckets: Buckets::sum(full.map(|part| &part.buckets)),
        }
    }

    /// Iterates over the buckets with values, in ascending order, as `(lowest value, width,
    /// count)`.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let filled = self.buckets.filled();
        (0..filled.buckets.len()).map(move |i| {
            let b = filled.buckets[i];
            let (low, width) = range(b.number, filled.bits);
            (low, width, b.count())
        })
    }
}

/// A distribution as `model.json` has it. Quantiles and mean are for readers; merging uses only the
/// other fields.
#[derive(Serialize, Deserialize)]
struct Stored {
    count: u64,
    min: u64,
    mean: f64,
    max: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    /// The sum of the values in ns, as decimal text, because JSON numbers above 2^53 lose digits.
    sum: String,
    #[serde(default = "most_bits", skip_serializing_if = "is_most")]
    bits: u32,
    buckets: Packed,
}

fn most_bits() -> u32 {
    PRECISION
}

fn is_most(bits: &u32) -> bool {
    *bits == PRECISION
}

impl Serialize for Dist {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [p50, p90, p99] = self.quantiles([0.5, 0.9, 0.99]);
        let filled = self.buckets.filled();
        Stored {
            count: self.count,
            min: self.min,
            mean: self.mean(),
            max: self.max,
            p50,
            p90,
            p99,
            sum: self.sum.to_string(),
            bits: filled.bits,
            buckets: Packed::of(&filled),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Dist {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let stored = Stored::deserialize(deserializer)?;
        let bits = stored.bits;
        if !(LEAST_PRECISION..=PRECISION).contains(&bits) {
            return Err(Error::custom(format!(
                "the buckets of a distribution have a precision of {bits} bits, but {LEAST_PRECISION} to {PRECISION} bits are allowed"
            )));
        }
        let mut buckets = BTreeMap::new();
        let mut total: u64 = 0;
        for (bucket, n) in stored.buckets.numbers(bits).map_err(Error::custom)? {
            total = total
                .checked_add(n)
                .ok_or_else(|| Error::custom("the bucket counts of a distribution overflow"))?;
            *buckets.entry(bucket).or_insert(0) += n;
        }
        if total != stored.count {
            return Err(Error::custom(format!(
                "a distribution has the count {}, and its buckets have {total} values",
                stored.count
            )));
        }
        if stored.min > stored.max {
            return Err(Error::custom("the min of a distribution is above its max"));
        }
        let sum = stored
            .sum
            .parse()
            .map_err(|_| Error::custom("the sum of a distribution is not a number"))?;
        Ok(Dist {
            count: stored.count,
            sum,
            min: stored.min,
            max: stored.max,
            buckets: Buckets::from(Filled {
                bits,
                buckets: buckets
                    .into_iter()
                    .map(|(b, n)| Bucket::new(b, n))
                    .collect(),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_distributions_equal_one_of_all_values() {
        let (mut all, mut a, mut b) = (Dist::new(), Dist::new(), Dist::new());
        for i in 0..10_000u64 {
            let v = i * i * 37 % 90_000_001;
            all.record(v);
            if i % 3 == 0 {
                a.record(v)
            } else {
                b.record(v)
            }
        }
        let (mut ab, mut ba) = (a.clone(), b.clone());
        ab.merge(&b);
        ba.merge(&a);
        assert_eq!(ab, all);
        assert_eq!(ba, all);
        assert_eq!(Dist::of_all([&a, &Dist::new(), &b].into_iter()), all);
        let each = [0.0, 0.3, 0.5, 0.99, 1.0].map(|q| all.quantile(q));
        assert_eq!(all.quantiles([0.0, 0.3, 0.5, 0.99, 1.0]), each);
        let mut settled = all.clone();
        settled.buckets.settle();
        assert_eq!(settled.quantiles([0.0, 0.3, 0.5, 0.99, 1.0]), each);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Dist>(&text).unwrap(), all);
    }
}
