//! Buckets as bytes, about two per bucket: the difference of each bucket's number to the one before, and its
//! count. Each number has seven bits per byte, lowest first; the highest bit says that another byte follows.
//!
//! A live model keeps hundreds of distributions for weeks, so their size decides how much memory it needs.

/// The largest number of leading bits that a distribution stores of a value.
pub(super) const PRECISION: u32 = 14;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) number: u32,
    count: u64,
}

impl Bucket {
    pub(super) fn new(number: u32, count: u64) -> Self {
        Bucket { number, count }
    }

    pub(super) fn count(self) -> u64 {
        self.count
    }

    pub(super) fn and(self, other: Bucket) -> Self {
        Bucket::new(self.number, self.count.saturating_add(other.count))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dense {
    pub(super) bits: u32,
    pub(super) len: usize,
    bytes: Vec<u8>,
}

impl Default for Dense {
    fn default() -> Self {
        Dense {
            bits: PRECISION,
            len: 0,
            bytes: Vec::new(),
        }
    }
}

impl Dense {
    /// Packs buckets that are in ascending order. `bytes` is an estimate of the memory that they
    /// need.
    pub(super) fn pack(bits: u32, buckets: impl Iterator<Item = Bucket>, bytes: usize) -> Dense {
        let mut packed = Dense {
            bits,
            len: 0,
            bytes: Vec::with_capacity(bytes),
        };
        let mut before = 0;
        for bucket in buckets {
            push(&mut packed.bytes, u64::from(bucket.number - before));
            push(&mut packed.bytes, bucket.count());
            before = bucket.number;
            packed.len += 1;
        }
        if packed.bytes.capacity() > packed.bytes.len() + packed.bytes.len() / 8 {
            packed.bytes.shrink_to_fit();
        }
        packed
    }

    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Bucket> + '_ {
        let mut bytes = self.bytes.iter();
        let mut number = 0;
        std::iter::from_fn(move || {
            number += take(&mut bytes)? as u32;
            Some(Bucket::new(number, take(&mut bytes)?))
        })
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

#[inline]
fn push(bytes: &mut Vec<u8>, number: u64) {
    match number < 0x80 {
        true => bytes.push(number as u8),
        false => push_long(bytes, number),
    }
}

fn push_long(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[inline]
fn take(bytes: &mut std::slice::Iter<'_, u8>) -> Option<u64> {
    let first = *bytes.next()?;
    match first < 0x80 {
        true => Some(u64::from(first)),
        false => take_long(bytes, first),
    }
}

fn take_long(bytes: &mut std::slice::Iter<'_, u8>, first: u8) -> Option<u64> {
    let (mut number, mut shift) = (u64::from(first & 0x7f), 7);
    loop {
        let byte = *bytes.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return Some(number);
        }
    }
}

/// Merges two lists of buckets that are in ascending order of their numbers. Adds the counts of
/// equal numbers.
pub(super) fn merged(
    a: impl Iterator<Item = Bucket>,
    b: impl Iterator<Item = Bucket>,
) -> impl Iterator<Item = Bucket> {
    let (mut a, mut b) = (a.fuse(), b.fuse());
    let (mut next_a, mut next_b) = (a.next(), b.next());
    std::iter::from_fn(move || match (next_a, next_b) {
        (Some(x), Some(y)) if x.number == y.number => {
            (next_a, next_b) = (a.next(), b.next());
            Some(x.and(y))
        }
        (Some(x), Some(y)) if y.number < x.number => {
            next_b = b.next();
            Some(y)
        }
        (None, Some(y)) => {
            next_b = b.next();
            Some(y)
        }
        (Some(x), _) => {
            next_a = a.next();
            Some(x)
        }
        (None, None) => None,
    })
}
