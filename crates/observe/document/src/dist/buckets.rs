//! Counts values by bucket. Buckets are sorted; the latest values wait unsorted beside them.
//!
//! The bits kept per value are limited so that a distribution fills at most [`MOST`] buckets. The
//! limit follows from the values alone, so the order of recording and merging does not matter.
//!
//! A trace has a value every few hundred nanoseconds, and a search for its bucket would miss the
//! caches. So values are first appended, and then sorted in together.

use super::dense::{merged, Bucket, Dense, PRECISION};
use std::borrow::Cow;

/// The number of unsorted values at which onbeat sorts them into the buckets. With many buckets,
/// onbeat sorts the values when their number reaches a quarter of the number of buckets.
const SORT_AT_VALUES: usize = 256;
const SORT_AT_PART: usize = 4;

/// The precision at which values of any size fill at most [`MOST`] buckets, as the number of
/// leading bits that remain of a value.
pub(super) const LEAST_PRECISION: u32 = 7;

/// The maximum number of buckets of a distribution.
const MOST: usize = 4096;

#[derive(Debug, Clone, Default)]
pub(super) struct Buckets {
    full: Dense,
    /// The values that are not sorted into the buckets yet, each as its bucket's number at full
    /// precision.
    recent: Vec<u32>,
}

/// The buckets of a distribution in ascending order. `bits` is their precision: the number of
/// leading bits that remain of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) bits: u32,
    pub(super) buckets: Vec<Bucket>,
}

impl Default for Filled {
    fn default() -> Self {
        Filled {
            bits: PRECISION,
            buckets: Vec::new(),
        }
    }
}

impl Buckets {
    pub(super) fn add(&mut self, value: u64) {
        self.recent.push(number(value, PRECISION));
        if self.recent.len() >= SORT_AT_VALUES.max(self.full.len / SORT_AT_PART) {
            self.settle();
        }
    }

    pub(super) fn merge(&mut self, other: &Buckets) {
        if self.full.len == 0 && self.recent.is_empty() {
            // Most sums begin like this. A copy takes a third of the time of a merge.
            self.clone_from(other);
            return self.settle();
        }
        self.settle();
        let other = other.settled();
        if self.full.bits == other.bits {
            self.full = packed(other.bits, &self.full, other.iter(), other.size());
            return;
        }
        let mut all = Filled::of(&self.full);
        all.add(&Filled::of(&other).buckets, other.bits);
        self.full = all.dense();
    }

    pub(super) fn sum<'a>(parts: impl Iterator<Item = &'a Buckets>) -> Buckets {
        let mut sum = Filled::default();
        let (mut numbers, mut buckets) = (Vec::new(), Vec::new());
        for part in parts {
            numbers.extend_from_slice(&part.recent);
            match part.full.bits == PRECISION {
                true => buckets.extend(part.full.iter()),
                false => sum.add(&Filled::of(&part.full).buckets, part.full.bits),
            }
        }
        buckets.sort_by_key(|bucket| bucket.number);
        buckets.dedup_by(|next, kept| {
            let same = next.number == kept.number;
            if same {
                *kept = kept.and(*next);
            }
            same
        });
        sum.add(&buckets, PRECISION);
        sum.add(&counted(&mut numbers), PRECISION);
        Buckets {
            full: sum.dense(),
            recent: Vec::new(),
        }
    }

    pub(super) fn filled(&self) -> Filled {
        Filled::of(&self.settled())
    }

    fn settled(&self) -> Cow<'_, Dense> {
        if self.recent.is_empty() {
            return Cow::Borrowed(&self.full);
        }
        let mut all = self.clone();
        all.settle();
        Cow::Owned(all.full)
    }

    /// Calls `see` with each bucket, in ascending order, and with the precision in bits. Stops when
    /// `see` returns false.
    pub(super) fn each(&self, mut see: impl FnMut(Bucket, u32) -> bool) {
        let mut recent = Filled {
            bits: PRECISION,
            buckets: counted(&mut self.recent.clone()),
        };
        recent.coarsen_to(self.full.bits);
        let bits = self.full.bits;
        let all = || merged(self.full.iter(), recent.buckets.iter().copied());
        let fits = self.full.len + recent.buckets.len() <= MOST || all().count() <= MOST;
        if fits || bits == LEAST_PRECISION {
            all().all(|bucket| see(bucket, bits));
            return;
        }
        let settled = self.settled();
        settled.iter().all(|bucket| see(bucket, settled.bits));
    }

    pub(super) fn settle(&mut self) {
        if self.recent.is_empty() {
            return;
        }
        let mut new = Filled {
            bits: PRECISION,
            buckets: counted(&mut self.recent),
        };
        self.recent.clear();
        new.coarsen_to(self.full.bits);
        let bytes = 3 * new.buckets.len();
        self.full = packed(self.full.bits, &self.full, new.buckets.into_iter(), bytes);
    }

    #[cfg(test)]
    fn heap_bytes(&self) -> usize {
        self.full.heap_bytes() + self.recent.capacity() * size_of::<u32>()
    }
}

/// Returns the buckets of `full` and `new` together. Both have the precision `bits`. `more` is an
/// estimate of the bytes that `new` needs.
fn packed(bits: u32, full: &Dense, new: impl Iterator<Item = Bucket>, more: usize) -> Dense {
    let all = Dense::pack(bits, merged(full.iter(), new), full.size() + more);
    if all.len <= MOST || bits <= LEAST_PRECISION {
        return all;
    }
    let mut all = Filled::of(&all);
    all.limit();
    all.dense()
}

impl PartialEq for Buckets {
    fn eq(&self, other: &Self) -> bool {
        self.settled() == other.settled()
    }
}

impl Eq for Buckets {}

impl From<Filled> for Buckets {
    fn from(filled: Filled) -> Self {
        let mut full = Filled {
            bits: filled.bits,
            buckets: Vec::new(),
        };
        full.add(&filled.buckets, filled.bits);
        Buckets {
            full: full.dense(),
            recent: Vec::new(),
        }
    }
}

impl Filled {
    fn of(dense: &Dense) -> Filled {
        let mut buckets = Vec::with_capacity(dense.len);
        buckets.extend(dense.iter());
        Filled {
            bits: dense.bits,
            buckets,
        }
    }

    fn dense(&self) -> Dense {
        let buckets = self.buckets.iter().copied();
        Dense::pack(self.bits, buckets, 3 * self.buckets.len())
    }

    fn add(&mut self, from: &[Bucket], bits: u32) {
        if from.is_empty() {
            return;
        }
        self.coarsen_to(bits);
        let mut from = Filled {
            bits,
            buckets: from.to_vec(),
        };
        from.coarsen_to(self.bits);
        let old = std::mem::take(&mut self.buckets);
        self.buckets.reserve_exact(old.len() + from.buckets.len());
        let all = merged(old.into_iter(), from.buckets.into_iter());
        self.buckets.extend(all);
        self.limit();
    }

    fn limit(&mut self) {
        while self.buckets.len() > MOST && self.bits > LEAST_PRECISION {
            self.coarsen_to(self.bits - 1);
        }
    }

    fn coarsen_to(&mut self, bits: u32) {
        if self.bits <= bits {
            return;
        }
        for b in &mut self.buckets {
            b.number = number(range(b.number, self.bits).0, bits);
        }
        self.bits = bits;
        self.buckets.dedup_by(|next, kept| {
            let same = next.number == kept.number;
            if same {
                *kept = kept.and(*next);
            }
            same
        });
    }
}

/// Returns the number of the bucket for a value: the exponent, followed by the leading bits of the
/// value that remain at a precision of `bits`.
pub(super) fn number(value: u64, bits: u32) -> u32 {
    let length = 64 - value.leading_zeros();
    if length <= bits {
        return value as u32;
    }
    let shift = length - bits;
    (shift << bits) + (value >> shift) as u32
}

pub(super) fn range(number: u32, bits: u32) -> (u64, u64) {
    let (shift, kept) = (number >> bits, u64::from(number & ((1 << bits) - 1)));
    if shift == 0 {
        (kept, 1)
    } else if shift >= 64 - (bits - 1) {
        (u64::MAX, 1)
    } else {
        (kept << shift, 1 << shift)
    }
}

fn counted(numbers: &mut [u32]) -> Vec<Bucket> {
    numbers.sort_unstable();
    let equal = numbers.chunk_by(|a, b| a == b);
    equal
        .filter_map(|all| Some(Bucket::new(*all.first()?, all.len() as u64)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn shown(buckets: &Buckets) -> Vec<(u32, u64)> {
        let filled = buckets.filled();
        let counts = filled.buckets.iter().map(|b| (b.number, b.count()));
        counts.collect()
    }

    fn by_map(values: &[u64]) -> (u32, Vec<(u32, u64)>) {
        let with = |bits: u32| {
            let mut map = BTreeMap::<u32, u64>::new();
            for &v in values {
                *map.entry(number(v, bits)).or_default() += 1;
            }
            map
        };
        let mut bits = (LEAST_PRECISION..=PRECISION).rev().map(|b| (b, with(b)));
        let (bits, map) = bits.find(|(_, map)| map.len() <= MOST).unwrap();
        (bits, map.into_iter().collect())
    }

    #[test]
    fn bucket_counts_equal_those_of_a_map_for_values_in_any_order() {
        let mut seed = 1u64;
        // The values reach 1 us, 4 us and 1000 s. The last range fills more buckets than are kept.
        for most in [1_000, 4_000, 1_000_000_000_000] {
            let mut values = Vec::new();
            let mut parts = [(); 3].map(|()| Buckets::default());
            for i in 0..30_000usize {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let value = (seed >> 20) % (1 + most * i as u64 / 30_000);
                values.push(value);
                // The first part has most of the values.
                parts[i % 7 / 5 * (1 + i % 2)].add(value);
                if i % 5_000 == 0 {
                    let mut all = parts[2].clone();
                    all.merge(&parts[1]);
                    all.merge(&parts[0]);
                    let (bits, map) = by_map(&values);
                    assert_eq!((all.filled().bits, shown(&all)), (bits, map));
                }
            }
            let [a, b, c] = &parts;
            let merged = |of: [&Buckets; 3]| {
                let mut all = Buckets::default();
                of.into_iter().for_each(|one| all.merge(one));
                all
            };
            let all = merged([a, b, c]);
            let (bits, map) = by_map(&values);
            assert_eq!((all.filled().bits, shown(&all)), (bits, map));
            assert!(all.filled().buckets.len() <= MOST);
            assert_eq!(bits < PRECISION, most == 1_000_000_000_000, "{bits}");
            assert_eq!(merged([c, a, b]), all);
            let mut one = Buckets::default();
            values.iter().for_each(|&v| one.add(v));
            assert_eq!(one, all);
            one.add(7);
            assert_ne!(one, all);
        }
    }

    #[test]
    fn values_of_any_size_fill_at_most_the_allowed_buckets() {
        let mut buckets = Buckets::default();
        for shift in 0..64 {
            (0..1 << 14).for_each(|i: u64| buckets.add(((1 << 14) + i) << 49 >> shift));
        }
        assert!(buckets.filled().buckets.len() <= MOST);
    }

    /// Records a value every 10 ms for an hour in three distributions: times of a steady callback,
    /// times of a callback with several modes, and random times.
    #[test]
    fn a_distribution_takes_the_same_few_bytes_for_an_hour() {
        let mut seed = 3u64;
        let mut next = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % most
        };
        let mut all = [(); 3].map(|()| Buckets::default());
        let mut most = [[0; 2]; 3];
        for i in 0..360_000 {
            let values = [
                1_000_000 + next(20_000) + next(20_000),
                (1 + next(4)) * 7_000_000 + next(3000) * next(3000),
                next(1 << 30) >> next(20),
            ];
            let is_later = usize::from(i >= 36_000);
            for ((buckets, value), most) in all.iter_mut().zip(values).zip(&mut most) {
                buckets.add(value);
                most[is_later] = buckets.heap_bytes().max(most[is_later]);
            }
        }
        for [before, after] in most {
            assert!(after <= 14_000, "{most:?}");
            assert!(after <= before + 1024, "{most:?}");
        }
    }

    #[test]
    fn bucket_counts_beyond_32_bits_add_up() {
        let of = |counts: &[(u32, u64)]| {
            let buckets = counts.iter().map(|&(b, n)| Bucket::new(b, n)).collect();
            Buckets::from(Filled {
                bits: PRECISION,
                buckets,
            })
        };
        let mut buckets = of(&[(3, u64::from(u32::MAX)), (9, 1)]);
        buckets.add(3);
        buckets.add(5);
        assert_eq!(shown(&buckets), [(3, 1 << 32), (5, 1), (9, 1)]);
        let mut most = of(&[(3, u64::MAX)]);
        most.merge(&buckets);
        assert_eq!(shown(&most)[0], (3, u64::MAX));
    }

    #[test]
    fn every_value_lies_in_its_bucket() {
        for bits in LEAST_PRECISION..=PRECISION {
            for shift in 0..64 {
                for delta in [0u64, 1, 3] {
                    let value = (1u64 << shift).saturating_add(delta);
                    let (low, width) = range(number(value, bits), bits);
                    assert!(low <= value && value - low < width);
                    assert_eq!(number(low, bits), number(value, bits));
                }
            }
        }
    }
}
