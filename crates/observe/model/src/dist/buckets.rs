//! How many values lie in which bucket: sorted, beside the last ones as they came.
//!
//! A trace has a value every few hundred nanoseconds, and a search for its bucket would miss the
//! caches. So values are noted, and sorted in when there are many.

use std::borrow::Cow;

/// Fewest values that are sorted in at once.
const FEW: usize = 64;

/// Buckets with their counts.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    /// By number, each once.
    sorted: Vec<Bucket>,
    /// Numbers of the buckets of values that are not sorted in.
    recent: Vec<u32>,
}

/// A bucket that holds something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) number: u32,
    /// The count's low and high half: so a bucket takes 12 bytes, not 16.
    count: [u32; 2],
}

impl Bucket {
    fn new(number: u32, count: u64) -> Self {
        Bucket {
            number,
            count: [count as u32, (count >> 32) as u32],
        }
    }

    /// Values in it.
    pub(super) fn count(self) -> u64 {
        u64::from(self.count[0]) | u64::from(self.count[1]) << 32
    }

    /// Both together, of one number.
    fn and(self, other: Bucket) -> Self {
        Bucket::new(self.number, self.count().saturating_add(other.count()))
    }
}

impl Buckets {
    /// Adds a value to a bucket.
    pub(super) fn add(&mut self, number: u32) {
        self.recent.push(number);
        if self.recent.len() >= FEW.max(self.sorted.len() / 4) {
            self.settle();
        }
    }

    /// Adds the values of others.
    pub(super) fn merge(&mut self, other: &Buckets) {
        self.settle();
        merge(&mut self.sorted, &other.sorted());
    }

    /// All buckets that hold something, by number.
    pub(super) fn sorted(&self) -> Cow<'_, [Bucket]> {
        if self.recent.is_empty() {
            return Cow::Borrowed(&self.sorted);
        }
        let mut sorted = self.sorted.clone();
        merge(&mut sorted, &counted(&mut self.recent.clone()));
        Cow::Owned(sorted)
    }

    /// Sorts in what came last.
    fn settle(&mut self) {
        merge(&mut self.sorted, &counted(&mut self.recent));
        self.recent.clear();
    }
}

/// A copy has everything sorted in.
impl Clone for Buckets {
    fn clone(&self) -> Self {
        Buckets {
            sorted: self.sorted().into_owned(),
            recent: Vec::new(),
        }
    }
}

impl PartialEq for Buckets {
    fn eq(&self, other: &Self) -> bool {
        self.sorted() == other.sorted()
    }
}

impl Eq for Buckets {}

impl FromIterator<(u32, u64)> for Buckets {
    /// Of numbers and counts in ascending order, each number once.
    fn from_iter<I: IntoIterator<Item = (u32, u64)>>(buckets: I) -> Self {
        let buckets = buckets.into_iter();
        Buckets {
            sorted: buckets.map(|(b, n)| Bucket::new(b, n)).collect(),
            recent: Vec::new(),
        }
    }
}

/// Sorts numbers, and counts equal ones.
fn counted(numbers: &mut [u32]) -> Vec<Bucket> {
    numbers.sort_unstable();
    let equal = numbers.chunk_by(|a, b| a == b);
    equal
        .filter_map(|all| Some(Bucket::new(*all.first()?, all.len() as u64)))
        .collect()
}

/// Adds `from` to `into`, both sorted, in place: from the end, so that nothing is overwritten.
fn merge(into: &mut Vec<Bucket>, from: &[Bucket]) {
    let mut old = into.len();
    let mut i = 0;
    let is_new = |b: &&Bucket| {
        i += into[i..].iter().take_while(|o| o.number < b.number).count();
        into.get(i).is_none_or(|o| o.number != b.number)
    };
    let new = from.iter().filter(is_new).count();
    // Not twice as much as is needed: there are thousands of distributions.
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
        let sorted = buckets.sorted();
        sorted.iter().map(|b| (b.number, b.count())).collect()
    }

    #[test]
    fn counts_are_those_of_a_map_however_they_came() {
        let mut parts = [(); 3].map(|()| (Buckets::default(), BTreeMap::<u32, u64>::new()));
        // From few numbers, so that many are equal, to many.
        let mut seed = 1u32;
        for i in 0..20_000u32 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (seed >> 16) % (1 + i / 4);
            let (buckets, map) = &mut parts[(i % 3) as usize];
            buckets.add(number);
            *map.entry(number).or_default() += 1;
            if i % 997 == 0 {
                assert_eq!(shown(buckets), Vec::from_iter(map.clone()));
            }
        }
        let [(mut all, mut sum), b, c] = parts;
        for (buckets, map) in [b, c] {
            all.merge(&buckets);
            map.into_iter()
                .for_each(|(k, n)| *sum.entry(k).or_default() += n);
        }
        assert_eq!(shown(&all), Vec::from_iter(sum.clone()));
        assert_eq!(all, sum.into_iter().collect());
        let copy = all.clone();
        all.add(7);
        assert_ne!(all, copy);
    }

    #[test]
    fn counts_beyond_32_bits_add_up() {
        let mut buckets: Buckets = [(3, u64::from(u32::MAX)), (9, 1)].into_iter().collect();
        buckets.add(3);
        buckets.add(5);
        assert_eq!(shown(&buckets), [(3, 1 << 32), (5, 1), (9, 1)]);
        let mut most: Buckets = [(3, u64::MAX)].into_iter().collect();
        most.merge(&buckets);
        assert_eq!(shown(&most)[0], (3, u64::MAX));
    }
}
