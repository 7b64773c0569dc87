//! Counts values by bucket. Buckets are sorted; the latest values wait unsorted beside them.
//!
//! The bits kept per value are limited so that a distribution fills at most [`MOST`] buckets. The
//! limit follows from the values alone, so the order of recording and merging does not matter.
//!
//! A trace has a value every few hundred nanoseconds, and a search for its bucket would miss the
//! caches. So values are first appended, and then sorted in together.

use std::borrow::Cow;

const SORT_AT_VALUES: usize = 64;

/// The maximum number of bits that are kept of each value.
pub(super) const PRECISION: u32 = 14;

/// The number of bits that always suffices: values with this many bits fill at most [`MOST`]
/// buckets.
pub(super) const LEAST_PRECISION: u32 = 7;

/// The maximum number of buckets of a distribution. This many buckets take 48 kB.
const MOST: usize = 4096;

#[derive(Debug, Clone, Default)]
pub(super) struct Buckets {
    full: Filled,
    /// The values that are not sorted into the buckets yet, as bucket numbers at full precision.
    recent: Vec<u32>,
}

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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) number: u32,
    /// The low and the high half of the count. Two halves need 12 bytes per bucket instead of 16.
    count: [u32; 2],
}

impl Bucket {
    pub(super) fn new(number: u32, count: u64) -> Self {
        Bucket {
            number,
            count: [count as u32, (count >> 32) as u32],
        }
    }

    pub(super) fn count(self) -> u64 {
        u64::from(self.count[0]) | u64::from(self.count[1]) << 32
    }

    fn and(self, other: Bucket) -> Self {
        Bucket::new(self.number, self.count().saturating_add(other.count()))
    }
}

impl Buckets {
    pub(super) fn add(&mut self, value: u64) {
        self.recent.push(number(value, PRECISION));
        if self.recent.len() >= SORT_AT_VALUES.max(self.full.buckets.len() / 2) {
            self.settle();
        }
    }

    pub(super) fn merge(&mut self, other: &Buckets) {
        if self.full.buckets.is_empty() && self.recent.is_empty() {
            // Most sums begin like this. A copy takes a third of the time of a merge.
            self.clone_from(other);
            return self.settle();
        }
        self.settle();
        let other = other.filled();
        self.full.add(&other.buckets, other.bits);
    }

    pub(super) fn filled(&self) -> Cow<'_, Filled> {
        if self.recent.is_empty() {
            return Cow::Borrowed(&self.full);
        }
        let mut all = self.clone();
        all.settle();
        Cow::Owned(all.full)
    }

    pub(super) fn settle(&mut self) {
        self.full.add(&counted(&mut self.recent), PRECISION);
        self.recent.clear();
    }
}

impl PartialEq for Buckets {
    fn eq(&self, other: &Self) -> bool {
        self.filled() == other.filled()
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
            full,
            recent: Vec::new(),
        }
    }
}

impl Filled {
    fn add(&mut self, from: &[Bucket], bits: u32) {
        if from.is_empty() {
            return;
        }
        while self.bits > bits {
            self.coarsen();
        }
        match bits == self.bits {
            true => merge(&mut self.buckets, from),
            false => {
                let mut from = Filled {
                    bits,
                    buckets: from.to_vec(),
                };
                while from.bits > self.bits {
                    from.coarsen();
                }
                merge(&mut self.buckets, &from.buckets);
            }
        }
        while self.buckets.len() > MOST && self.bits > LEAST_PRECISION {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        let fewer = self.bits - 1;
        for b in &mut self.buckets {
            b.number = number(range(b.number, self.bits).0, fewer);
        }
        self.bits = fewer;
        self.buckets.dedup_by(|next, kept| {
            let same = next.number == kept.number;
            if same {
                *kept = kept.and(*next);
            }
            same
        });
    }
}

/// Returns the number of the bucket for a value at a precision of `bits`: the exponent followed by
/// the kept bits.
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

fn merge(into: &mut Vec<Bucket>, from: &[Bucket]) {
    let mut old = into.len();
    let mut i = 0;
    let is_new = |b: &&Bucket| {
        i += into[i..].iter().take_while(|o| o.number < b.number).count();
        into.get(i).is_none_or(|o| o.number != b.number)
    };
    let new = from.iter().filter(is_new).count();
    // Thousands of distributions exist, so the capacity grows by little.
    if into.capacity() < old + new {
        into.reserve_exact(new + old / 8);
    }
    into.resize(old + new, Bucket::default());
    let mut at = into.len();
    for &b in from.iter().rev() {
        while old > 0 && into[old - 1].number > b.number {
            (at, old) = (at - 1, old - 1);
            into[at] = into[old];
        }
        at -= 1;
        if old > 0 && into[old - 1].number == b.number {
            old -= 1;
            into[at] = into[old].and(b);
        } else {
            into[at] = b;
        }
    }
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
    fn bucket_counts_equal_those_of_a_map_in_any_order() {
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
