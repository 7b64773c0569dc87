//! The newest value, fetched by the reader alone: which of the publisher's three slots to read, and
//! whether it was overwritten meanwhile.
//!
//! Each slot has a head: its version, 0 while it is written, and its length. A reader reads the
//! heads, the slot, and the heads again: the same version before and after means an intact value.
//! After a torn one it tells the publisher which slot it reads (it *pins* it). The publisher takes
//! another slot then, so that neither waits for the other. Both look after they have told: the
//! publisher marks its slot before it looks for the pin, the reader pins before it looks for the
//! mark. One of them sees the other.

use std::sync::atomic::{fence, AtomicU64, Ordering};

/// Slots of values.
pub const SLOTS: usize = 3;
/// Words of the heads: which value is the newest, and a version and a length for each slot.
pub const WORDS: usize = 1 + 2 * SLOTS;

/// The heads in the publisher's memory.
pub type HeadWords = [AtomicU64; WORDS];

/// The heads as a reader has read them. Words may be of different moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    newest: u64,
    slots: [(u64, u64); SLOTS],
}

impl Heads {
    /// From the words.
    pub fn of(words: &HeadWords) -> Heads {
        let word = |at: usize| words[at].load(Ordering::Acquire);
        Heads {
            newest: word(0),
            slots: std::array::from_fn(|slot| (word(1 + 2 * slot), word(2 + 2 * slot))),
        }
    }

    /// The slot of the newest value; `None` if there is none yet.
    fn newest(&self) -> Option<usize> {
        (self.newest != 0).then_some((self.newest & 3) as usize)
    }
}

/// Where the publisher is.
#[derive(Debug, Default)]
pub struct Publisher {
    version: u64,
    published: Option<usize>,
}

impl Publisher {
    /// Takes a slot to be written. `pinned` is the slot, plus 1, that the peer reads.
    pub fn begin(&mut self, heads: &HeadWords, pinned: &AtomicU64) -> usize {
        let mut pin = pinned.load(Ordering::SeqCst);
        let free = |pin: u64| {
            let is_free = |s: &usize| Some(*s) != self.published && *s as u64 + 1 != pin;
            (0..SLOTS).find(is_free).unwrap_or(0)
        };
        let mut slot = free(pin);
        // Twice at most: a peer that goes on pinning what is free gets torn values, and sees it.
        for is_last in [false, true] {
            let before = heads[1 + 2 * slot].swap(0, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            pin = pinned.load(Ordering::SeqCst);
            if pin != slot as u64 + 1 || is_last {
                break;
            }
            // Nothing was written yet: its value is whole.
            heads[1 + 2 * slot].store(before, Ordering::SeqCst);
            slot = free(pin);
        }
        slot
    }

    /// The slot of [`Publisher::begin`] has a value of so many bytes: it is the newest.
    pub fn finish(&mut self, heads: &HeadWords, slot: usize, bytes: usize) {
        self.version += 1;
        self.published = Some(slot);
        heads[2 + 2 * slot].store(bytes as u64, Ordering::Release);
        heads[1 + 2 * slot].store(self.version, Ordering::Release);
        heads[0].store(self.version << 2 | slot as u64, Ordering::Release);
    }
}

/// The publisher's memory, as a reader reaches it. Each call is complete before the next begins.
pub trait Remote {
    /// Why it cannot be reached; the deadline, for example.
    type Error;
    /// Reads the heads.
    fn heads(&mut self) -> Result<Heads, Self::Error>;
    /// Fetches so many bytes of a slot.
    fn fetch(&mut self, slot: usize, bytes: usize) -> Result<(), Self::Error>;
    /// Tells the publisher which slot is being read.
    fn pin(&mut self, slot: Option<usize>) -> Result<(), Self::Error>;
    /// What to say of heads that cannot be.
    fn impossible(&self) -> Self::Error;
}

/// Fetches the newest value; its version and length, `None` if there is none. It was the newest at some moment
/// of this call.
///
/// # Errors
/// Those of `remote`.
pub fn fetch_newest<R: Remote>(
    remote: &mut R,
    most: usize,
) -> Result<Option<(u64, usize)>, R::Error> {
    let mut pinned = None;
    let fetched = fetch(remote, most, &mut pinned);
    if pinned.is_some() {
        // A pin that stays does no harm.
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

    /// A publisher that does some steps before each step of the reader.
    #[derive(Default)]
    struct Side {
        heads: HeadWords,
        pinned: AtomicU64,
        slots: [[u64; 2]; SLOTS],
        publisher: Publisher,
        /// What it is writing: the slot, and how many of its words are written.
        writing: Option<(usize, usize)>,
        /// Steps before each access of the reader; then one each.
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
        /// Whatever the publisher does meanwhile, the value is whole, was the newest at some moment
        /// of the call, and comes after few accesses.
        #[test]
        fn a_value_is_never_torn_and_comes_soon(
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
    fn a_peer_with_impossible_heads_is_found_out() {
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
