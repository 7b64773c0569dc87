//! A map with a limited number of entries, which forgets entries that have not been seen for long.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// A map of a limited number of entries. For each entry it also stores the time at which the entry
/// was last seen.
#[derive(Debug, Clone)]
pub(crate) struct Kept<K, V> {
    entries: FxHashMap<K, (u64, V)>,
    most: usize,
    forgotten: u64,
    left_out: u64,
}

impl<K: Eq + Hash + Copy, V> Kept<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Kept {
            entries: FxHashMap::default(),
            most,
            forgotten: 0,
            left_out: 0,
        }
    }

    /// Returns the entry of a key, which was then last seen at `time_ns` or later. Creates the
    /// entry if the key has none. Returns `None` if the map is full.
    pub(crate) fn at(&mut self, key: K, time_ns: u64, new: impl FnOnce() -> V) -> Option<&mut V> {
        if self.entries.len() >= self.most && !self.entries.contains_key(&key) {
            self.left_out += 1;
            return None;
        }
        let entry = self.entries.entry(key).or_insert_with(|| (0, new()));
        entry.0 = entry.0.max(time_ns);
        Some(&mut entry.1)
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.1))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries
            .iter_mut()
            .map(|(key, entry)| (key, &mut entry.1))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.values_mut().map(|entry| &mut entry.1)
    }

    pub(crate) fn forget_before(&mut self, time_ns: u64) {
        let before = self.entries.len();
        self.entries.retain(|_, entry| entry.0 >= time_ns);
        self.forgotten += (before - self.entries.len()) as u64;
    }

    /// Removes the entries whose keys `keep` rejects, because the synthesis gives these keys to
    /// other objects from now on.
    pub(crate) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.entries.retain(|key, _| keep(key));
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_not_seen_for_long_are_forgotten_and_entries_beyond_the_limit_are_left_out() {
        let mut kept: Kept<u32, u64> = Kept::new(2);
        for (key, time) in [(1, 10), (2, 20), (3, 30), (1, 40)] {
            if let Some(sum) = kept.at(key, time, || 0) {
                *sum += time;
            }
        }
        assert_eq!((kept.get(&1), kept.get(&3)), (Some(&50), None));
        kept.forget_before(25);
        assert_eq!((kept.forgotten(), kept.left_out()), (1, 1));
        assert!(kept.at(3, 50, || 0).is_some(), "there is room again");
        assert_eq!(kept.iter().count(), 2);
    }
}
