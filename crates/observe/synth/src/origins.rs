//! For each item, keeps when the executions of sources started on which the item depends.
//!
//! An *origin* is a callback at which chains begin. It has the starts of the oldest and the newest
//! execution on which an item depends. An item has one origin per source, however many paths lead
//! to it. The time from a source to an output is therefore known even if the paths are too many to
//! follow.
//!
//! Items share their origins, as they share their steps. If several inputs meet, their origins are
//! united.
//!
//! A path visits each callback once, so an origin enters each callback of a loop once. The paths
//! show which callbacks close loops. From then on, each origin records which of them it passed.

use crate::index::{OriginsId, VertexId};
use crate::marks::Marks;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) root: VertexId,
    /// The loops of the callback graph through which the data went. Bit `i` stands for the loop
    /// that the callback in entry `i` of [`Origins::loops`] closes.
    passed: u64,
    pub(crate) oldest: u64,
    pub(crate) newest: u64,
    /// The newest execution at the source did not give this data directly: a callback had stored it
    /// and now reads it again.
    pub(crate) reread: bool,
}

impl Origin {
    fn key(&self) -> (VertexId, u64) {
        (self.root, self.passed)
    }

    /// Merges several origins with the same source into one, even if their data went through
    /// different loops. Returns `None` for an empty list.
    pub(crate) fn all(of_root: &[Origin]) -> Option<Origin> {
        let (first, rest) = of_root.split_first()?;
        let mut all = *first;
        rest.iter().for_each(|o| all.unite(o));
        Some(all)
    }

    fn unite(&mut self, other: &Origin) {
        self.oldest = self.oldest.min(other.oldest);
        if other.newest > self.newest {
            self.reread = other.reread;
        } else if other.newest == self.newest {
            self.reread &= other.reread;
        }
        self.newest = self.newest.max(other.newest);
    }
}

#[derive(Debug, Clone, Default)]
struct Set {
    refs: u32,
    /// The data passed a junction too early. The junction had too few outputs at that time to show
    /// reliably which inputs it joins.
    early: bool,
    /// The origins, sorted by the index of their source, then by [`Origin::passed`] (the loops
    /// through which their data went).
    origins: Vec<Origin>,
}

/// A table of sets of origins with reference counts. It does not allocate in the steady state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origins {
    sets: Vec<Set>,
    free: Vec<OriginsId>,
    room: Vec<Origin>,
    /// The callbacks that close loops. Bit `i` of [`Origin::passed`] stands for entry `i`. `None`
    /// stands for a forgotten callback.
    loops: Vec<Option<VertexId>>,
    /// The time at which the last loop was found. Data from before this time may have passed that
    /// loop without a record in `passed`.
    loops_known: u64,
}

const MAX_LOOPS: usize = 64;

impl Origins {
    fn insert(&mut self) -> OriginsId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.sets.push(Set::default());
            OriginsId::new(self.sets.len() - 1)
        });
        let set = &mut self.sets[id.index()];
        (set.refs, set.early) = (1, false);
        set.origins.clear();
        id
    }

    pub(crate) fn get(&self, id: OriginsId) -> &[Origin] {
        &self.sets[id.index()].origins
    }

    pub(crate) fn is_early(&self, id: OriginsId) -> bool {
        self.sets[id.index()].early
    }

    /// Reports whether all loops were already known when the origin's oldest execution started. The
    /// origin then shows all loops that its data passed.
    pub(crate) fn is_known(&self, origin: &Origin) -> bool {
        origin.oldest >= self.loops_known
    }

    pub(crate) fn share(&mut self, id: OriginsId) -> OriginsId {
        self.sets[id.index()].refs += 1;
        id
    }

    pub(crate) fn release(&mut self, id: OriginsId) {
        let set = &mut self.sets[id.index()];
        set.refs -= 1;
        if set.refs == 0 {
            self.free.push(id);
        }
    }

    /// Returns a set with the same origins as `id`. The caller may change this set, because nothing
    /// else refers to it. Takes over the caller's reference to `id`.
    fn own(&mut self, id: OriginsId) -> OriginsId {
        if self.sets[id.index()].refs == 1 {
            return id;
        }
        let own = self.insert();
        let mut origins = std::mem::take(&mut self.sets[own.index()].origins);
        let from = &self.sets[id.index()];
        origins.extend_from_slice(&from.origins);
        self.sets[own.index()].early = from.early;
        self.sets[own.index()].origins = origins;
        self.release(id);
        own
    }

    pub(crate) fn begin(&mut self, to: Option<OriginsId>, root: VertexId, start: u64) -> OriginsId {
        let new = self.insert();
        self.sets[new.index()].origins.push(Origin {
            root,
            passed: 0,
            oldest: start,
            newest: start,
            reread: false,
        });
        match to {
            None => new,
            Some(to) => self.add(to, new),
        }
    }

    /// Adds the origins `from` to `to`. Takes over both references of the caller, and returns one.
    fn add(&mut self, to: OriginsId, from: OriginsId) -> OriginsId {
        if to == from {
            self.release(from);
            return to;
        }
        let to = self.own(to);
        let mut united = std::mem::take(&mut self.room);
        united.clear();
        {
            let (a, b) = (&self.sets[to.index()], &self.sets[from.index()]);
            let (mut a, mut b) = (a.origins.iter().peekable(), b.origins.iter().peekable());
            while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
                match x.key().cmp(&y.key()) {
                    std::cmp::Ordering::Less => united.extend(a.next()),
                    std::cmp::Ordering::Greater => united.extend(b.next()),
                    std::cmp::Ordering::Equal => {
                        let mut both = **x;
                        both.unite(y);
                        united.push(both);
                        let _ = (a.next(), b.next());
                    }
                }
            }
            united.extend(a);
            united.extend(b);
        }
        let early = self.sets[from.index()].early;
        let set = &mut self.sets[to.index()];
        set.early |= early;
        self.room = std::mem::replace(&mut set.origins, united);
        self.release(from);
        to
    }

    /// Adds the origins `from` of an item to the callback's own origins `to`, because the item
    /// enters the callback. Takes over the caller's reference to `to`. `reread` is set if the
    /// callback had already read the item.
    pub(crate) fn enter(
        &mut self,
        to: Option<OriginsId>,
        from: OriginsId,
        callback: VertexId,
        reread: bool,
    ) -> Option<OriginsId> {
        let mut from = self.share(from);
        let closes = self.loops.iter().position(|&v| v == Some(callback));
        if closes.is_some() || reread {
            from = self.own(from);
            let origins = &mut self.sets[from.index()].origins;
            if let Some(i) = closes {
                origins.retain(|o| o.passed & 1 << i == 0);
                origins.iter_mut().for_each(|o| o.passed |= 1 << i);
                origins.sort_unstable_by_key(Origin::key);
            }
            origins.iter_mut().for_each(|o| o.reread |= reread);
        }
        if self.sets[from.index()].origins.is_empty() {
            self.release(from);
            return to;
        }
        Some(match to {
            Some(to) => self.add(to, from),
            None => from,
        })
    }

    pub(crate) fn mark_early(&mut self, id: OriginsId) -> OriginsId {
        let id = self.own(id);
        self.sets[id.index()].early = true;
        id
    }

    pub(crate) fn mark_vertices(&self, marks: &mut Marks) {
        for set in self.sets.iter().filter(|set| set.refs > 0) {
            for origin in &set.origins {
                marks.add(origin.root.index());
            }
        }
    }

    /// Forgets the loops that the callbacks in `vertices` close. Origins then no longer show
    /// whether their data passed these loops. No origin in use may have one of these callbacks as
    /// its source.
    pub(crate) fn forget(&mut self, vertices: &Marks) {
        let mut bits = 0;
        for (i, closes) in self.loops.iter_mut().enumerate() {
            if closes.is_some_and(|v| vertices.has(v.index())) {
                (*closes, bits) = (None, bits | 1 << i);
            }
        }
        if bits == 0 {
            return;
        }
        for set in &mut self.sets {
            set.origins.iter_mut().for_each(|o| o.passed &= !bits);
            set.origins.sort_unstable_by_key(Origin::key);
            set.origins.dedup_by(|later, first| {
                let same = later.key() == first.key();
                if same {
                    first.unite(later);
                }
                same
            });
        }
    }

    pub(crate) fn close(&mut self, callback: VertexId, time: u64) {
        if self.loops.contains(&Some(callback)) {
            return;
        }
        // A loop without a bit lets data circulate, so that all times are unknown from then on.
        let free = self.loops.iter().position(Option::is_none);
        self.loops_known = match free.is_some() || self.loops.len() < MAX_LOOPS {
            true => self.loops_known.max(time),
            false => u64::MAX,
        };
        match free {
            Some(free) => self.loops[free] = Some(callback),
            None if self.loops.len() < MAX_LOOPS => self.loops.push(Some(callback)),
            None => {}
        }
    }

    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.sets.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(origins: &Origins, id: OriginsId) -> Vec<(usize, u64, u64)> {
        let of = |o: &Origin| (o.root.index(), o.oldest, o.newest);
        origins.get(id).iter().map(of).collect()
    }

    #[test]
    fn united_origins_keep_the_oldest_and_the_newest_start_of_each_source() {
        let (mut all, v) = (Origins::default(), VertexId::new);
        let old = all.begin(None, v(1), 10);
        let old = all.begin(Some(old), v(2), 30);
        let new = all.begin(None, v(1), 40);
        let both = all.enter(None, old, v(7), false);
        let both = all.enter(both, new, v(7), false).unwrap();
        assert_eq!(shown(&all, both), [(1, 10, 40), (2, 30, 30)]);
        assert_eq!(shown(&all, old), [(1, 10, 10), (2, 30, 30)], "unchanged");
        [old, new, both].into_iter().for_each(|id| all.release(id));
        assert_eq!(all.in_use(), 0);
    }

    #[test]
    fn an_origin_enters_a_callback_at_most_once_if_the_callback_closes_a_loop() {
        let (mut all, v) = (Origins::default(), VertexId::new);
        all.close(v(5), 20);
        let item = all.begin(None, v(1), 30);
        let first = all.enter(None, item, v(5), false).unwrap();
        assert_eq!(shown(&all, first), [(1, 30, 30)]);
        let passed = all.enter(None, first, v(6), false).unwrap();
        assert_eq!(all.enter(None, passed, v(5), false), None);
        let fresh = all.enter(None, item, v(5), false);
        assert!(fresh.is_some(), "the item itself did not pass the loop");
        let before = all.begin(None, v(1), 19);
        assert!(!all.is_known(&all.get(before)[0]));
        assert!(all.is_known(&all.get(item)[0]));
    }
}
