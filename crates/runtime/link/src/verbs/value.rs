//! Fetches the latest value without help from the publisher. The reader chooses one of the
//! publisher's three slots, and checks that it was not overwritten meanwhile.
//!
//! Each slot has a head: its version (0 while it is written) and its length. A reader reads the
//! heads, the slot, and the heads again. The same version before and after means an intact value.
//! After a torn value the reader *pins* the slot: it writes its number to the publisher. The
//! publisher then takes another slot, so neither waits for the other. The publisher marks its slot
//! before it reads the pin, and the reader pins before it reads the mark. So at least one of them
//! sees the other.

use std::sync::atomic::{fence, AtomicU64, Ordering};

pub const SLOTS: usize = 3;
/// The number of words of the heads of all values: the latest value's slot, and a version and a
/// length for each slot.
pub const WORDS: usize = 1 + 2 * SLOTS;

pub type HeadWords = [AtomicU64; WORDS];

/// A reader's copy of the heads of all values. Its words may have been read at different times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    newest: u64,
    slots: [(u64, u64); SLOTS],
}

impl Heads {
    pub fn of(words: &HeadWords) -> Heads {
        let word = |at: usize| words[at].load(Ordering::Acquire);
        Heads {
            newest: word(0),
            slots: std::array::from_fn(|slot| (word(1 + 2 * slot), word(2 + 2 * slot))),
        }
    }

    fn newest(&self) -> Option<usize> {
        (self.newest != 0).then_some((self.newest & 3) as usize)
    }
}

#[derive(Debug, Default)]
pub struct Publisher {
    version: u64,
    published: Option<usize>,
}

impl Publisher {
    /// Returns a slot for the next value. `pinned` is the slot that the peer reads, plus 1.
    pub fn begin(&mut self, heads: &HeadWords, pinned: &AtomicU64) -> usize {
        let mut pin = pinned.load(Ordering::SeqCst);
        let free = |pin: u64| {
            let is_free = |s: &usize| Some(*s) != self.published && *s as u64 + 1 != pin;
            (0..SLOTS).find(is_free).unwrap_or(0)
        };
        let mut slot = free(pin);
        // Two tries at most. A peer that keeps pinning free slots gets torn values, and notices
        // that.
        for is_last in [false, true] {
            let before = heads[1 + 2 * slot].swap(0, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            pin = pinned.load(Ordering::SeqCst);
            if pin != slot as u64 + 1 || is_last {
                break;
            }
            // The slot was not written yet, so its value is whole.
            heads[1 + 2 * slot].store(before, Ordering::SeqCst);
            slot = free(pin);
        }
        slot
    }

    pub fn finish(&mut self, heads: &HeadWords, slot: usize, bytes: usize) {
        self.version += 1;
        self.published = Some(slot);
        heads[2 + 2 * slot].store(bytes as u64, Ordering::Release);
        heads[1 + 2 * slot].store(self.version, Ordering::Release);
        heads[0].store(self.version << 2 | slot as u64, Ordering::Release);
    }
}

/// A reader's access to the publisher's memory. Each call is complete before the next begins.
pub trait Remote {
    /// The reason why the memory cannot be accessed, for example because the deadline has passed.
    type Error;
    fn heads(&mut self) -> Result<Heads, Self::Error>;
    fn fetch(&mut self, slot: usize, bytes: usize) -> Result<(), Self::Error>;
    fn pin(&mut self, slot: Option<usize>) -> Result<(), Self::Error>;
    fn impossible(&self) -> Self::Error;
}

/// Fetches the latest value into this end's memory. Returns its version and length, or `None` if
/// the peer has published none. The returned value was the latest one at some time during the call.
///
/// # Errors
/// The errors of `remote`.
pub fn fetch_newest<R: Remote>(
    remote: &mut R,
    most: usize,
) -> Result<Option<(u64, usize)>, R::Error> {
    let mut pinned = None;
    let fetched = fetch(remote, most, &mut pinned);
    if pinned.is_some() {
        // A pin that remains does no harm.
        let _ = remote.pin(None);
    }
    fetched
}

fn fetch<R: Remote>(
    remote: &mut R,
    most: usize,
    pinned: &mut Option<usize>,
) -> Result<Option<(u64, usize)>, R::Error> {
    loop {
        let heads = remote.heads()?;
        let Some(slot) = pinned.or(heads.newest()) else {
            return Ok(None);
        };
        let head = *heads.slots.get(slot).ok_or_else(|| remote.impossible())?;
        let (version, length) = head;
        if version != 0 {
            let bytes = usize::try_from(length).ok().filter(|b| *b <= most);
            let bytes = bytes.ok_or_else(|| remote.impossible())?;
            remote.fetch(slot, bytes)?;
            if remote.heads()?.slots[slot] == head {
                return Ok(Some((version, bytes)));
            }
        }
        if pinned.is_none() {
            *pinned = Some(slot);
            remote.pin(*pinned)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Side {
        heads: HeadWords,
        pinned: AtomicU64,
        slots: [[u64; 2]; SLOTS],
        publisher: Publisher,
        writing: Option<(usize, usize)>,
        /// For each access of the reader, the number of steps that the publisher takes before it.
        /// The last entry is for the first access. When the list is empty, the publisher takes one
        /// step before each access.
        script: Vec<u8>,
        fetched: [u64; 2],
        accesses: usize,
    }

    impl Side {
        fn step(&mut self) {
            let next = self.publisher.version + 1;
            match self.writing {
                None => {
                    let slot = self.publisher.begin(&self.heads, &self.pinned);
                    self.writing = Some((slot, 0));
                }
                Some((slot, 2)) => {
                    self.publisher.finish(&self.heads, slot, 16);
                    self.writing = None;
                }
                Some((slot, at)) => {
                    self.slots[slot][at] = next;
                    self.writing = Some((slot, at + 1));
                }
            }
        }

        fn access(&mut self) {
            let steps = self.script.pop().unwrap_or(1);
            self.accesses += 1;
            (0..steps).for_each(|_| self.step());
        }
    }

    impl Remote for Side {
        type Error = &'static str;
        fn heads(&mut self) -> Result<Heads, Self::Error> {
            self.access();
            Ok(Heads::of(&self.heads))
        }
        fn fetch(&mut self, slot: usize, bytes: usize) -> Result<(), Self::Error> {
            assert_eq!(bytes, 16);
            self.access();
            self.fetched[0] = self.slots[slot][0];
            self.access();
            self.fetched[1] = self.slots[slot][1];
            Ok(())
        }
        fn pin(&mut self, slot: Option<usize>) -> Result<(), Self::Error> {
            self.access();
            let pin = slot.map_or(0, |s| s as u64 + 1);
            self.pinned.store(pin, Ordering::SeqCst);
            Ok(())
        }
        fn impossible(&self) -> Self::Error {
            "impossible"
        }
    }

    proptest! {
        #[test]
        fn a_fetched_value_is_never_torn_and_the_fetch_ends_soon(
            script in proptest::collection::vec(0u8..20, 0..40), begun in 0u8..9
        ) {
            let mut side = Side { script, ..Side::default() };
            (0..begun).for_each(|_| side.step());
            let before = side.publisher.version;
            let got = fetch_newest(&mut side, 16).unwrap();
            prop_assert!(side.accesses < 60, "{} accesses", side.accesses);
            match got {
                None => prop_assert_eq!(before, 0),
                Some((version, _)) => {
                    prop_assert_eq!(side.fetched, [version; 2], "torn, or of another version");
                    prop_assert!(before <= version && version <= side.publisher.version + 1);
                }
            }
            prop_assert_eq!(side.pinned.load(Ordering::SeqCst), 0, "unpinned again");
        }
    }

    #[test]
    fn a_peer_that_writes_impossible_headers_of_values_is_detected() {
        for (newest, length) in [(1 << 2 | 3, 8), (1 << 2, 17), (1 << 2, u64::MAX)] {
            let side = &mut Side {
                script: vec![0; 100],
                ..Side::default()
            };
            side.heads[0].store(newest, Ordering::Relaxed);
            side.heads[1].store(1, Ordering::Relaxed);
            side.heads[2].store(length, Ordering::Relaxed);
            assert_eq!(fetch_newest(side, 16), Err("impossible"));
        }
    }
}
