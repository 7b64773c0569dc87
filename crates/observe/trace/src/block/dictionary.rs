//! Numbers the values of a block in order of their first use.
use super::varint;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A fast hasher for addresses and ids. A traced program can choose addresses that collide, but
/// this only slows the recorder down.
#[derive(Default)]
pub(super) struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }
    fn write_u64(&mut self, v: u64) {
        let h = (self.0 ^ v).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = h ^ h >> 32;
    }
}

pub(super) struct Dictionary<K> {
    index: HashMap<K, u32, BuildHasherDefault<QuickHasher>>,
}

impl<K: Hash + Eq> Dictionary<K> {
    pub(super) fn new() -> Self {
        Dictionary {
            index: HashMap::default(),
        }
    }

    #[inline]
    pub(super) fn number(&mut self, key: K) -> (u32, bool) {
        let next = self.index.len() as u32;
        let number = *self.index.entry(key).or_insert(next);
        (number, number == next)
    }

    pub(super) fn clear(&mut self) {
        self.index.clear();
    }
}

/// A dictionary that writes each new number as its difference from the previous new number.
pub(super) struct NumberDictionary {
    numbers: Dictionary<u64>,
    last: u64,
}

impl NumberDictionary {
    pub(super) fn new() -> Self {
        NumberDictionary {
            numbers: Dictionary::new(),
            last: 0,
        }
    }

    #[inline]
    pub(super) fn number(&mut self, value: u64, column: &mut Vec<u8>) -> u32 {
        let (number, new) = self.numbers.number(value);
        if new {
            let difference = value.wrapping_sub(self.last) as i64;
            varint::put(column, varint::zigzag(difference));
            self.last = value;
        }
        number
    }

    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.last = 0;
    }
}

/// A dictionary of processes and threads. It stores a process id as its difference from the
/// previous one, and thread ids relative to their process.
pub(super) struct ThreadDictionary {
    numbers: Dictionary<(u32, u32)>,
    last_pid: u32,
}

impl ThreadDictionary {
    pub(super) fn new() -> Self {
        ThreadDictionary {
            numbers: Dictionary::new(),
            last_pid: 0,
        }
    }

    #[inline]
    pub(super) fn number(&mut self, pid: u32, tid: u32, column: &mut Vec<u8>) -> u32 {
        let (number, new) = self.numbers.number((pid, tid));
        if new {
            for (value, base) in [(pid, self.last_pid), (tid, pid)] {
                varint::put(column, varint::zigzag(i64::from(value) - i64::from(base)));
            }
            self.last_pid = pid;
        }
        number
    }

    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.last_pid = 0;
    }
}
