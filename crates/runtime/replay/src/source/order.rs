//! Sorts the items of a nearly ordered source by time, within a window of bounded memory.

use super::damage::Damage;
use crate::item::{Details, Extras, Source, SourceError, Stamp, Stream, StreamId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The maximum number of bytes of the stored items. If it is reached, the earliest stored item is
/// returned at once. Items that come later and have an earlier time are then played late, and the
/// report counts them.
pub const MOST_BYTES: usize = 64 << 20;
const MOST_ITEMS: usize = 1 << 20;

/// Sees all items of a reader's first pass over a recording.
pub trait Witness {
    /// The source has added streams since the item before.
    fn new_streams(&mut self, source: &dyn Source);
    /// Sees the next item.
    fn item(&mut self, stamp: Stamp, details: Details, payload: &[u8]);
    /// An item is earlier than an item before it, so that the recording has to be read again.
    fn out_of_order(&mut self);
    /// Sees the end of the recording.
    fn end(&mut self, source: &dyn Source);
}

/// A reader's first pass over a recording. It finds how far items are out of order.
#[derive(Default)]
pub struct Survey<'a> {
    /// Sees the items. `None` if nobody needs them.
    pub witness: Option<&'a mut dyn Witness>,
}

impl Survey<'_> {
    /// Reads a source to its end. Returns the largest difference in ns by which an item is earlier
    /// than an item before it. The source may add streams while it is read.
    ///
    /// # Errors
    /// Fails if the source cannot be read.
    pub fn read(&mut self, source: &mut impl Source) -> Result<u64, SourceError> {
        let mut payload = Vec::new();
        let (mut newest, mut back_ns) = (i64::MIN, 0);
        let mut known = 0;
        while let Some(stamp) = source.next(&mut payload)? {
            if stamp.time_ns < newest {
                back_ns = newest.abs_diff(stamp.time_ns).max(back_ns);
                if let Some(witness) = self.witness.take() {
                    witness.out_of_order();
                }
            }
            newest = newest.max(stamp.time_ns);
            if let Some(witness) = &mut self.witness {
                let streams = source.streams().len();
                if streams != known {
                    known = streams;
                    witness.new_streams(source);
                }
                witness.item(stamp, source.details(), &payload);
            }
        }
        if let Some(witness) = &mut self.witness {
            witness.end(source);
        }
        Ok(back_ns)
    }
}

/// Returns the source with its items sorted by time. In `source`, an item may be earlier than a
/// previous item by at most `back_ns`.
pub fn sorted<S: Source + 'static>(source: S, back_ns: u64) -> Box<dyn Source> {
    match back_ns {
        0 => Box::new(source),
        back_ns => Box::new(Ordered::new(source, back_ns)),
    }
}

/// Sorts the items of a source by time. For this, it stores the items of the last `span_ns`.
pub struct Ordered<S> {
    inner: S,
    span_ns: u64,
    /// The stored items, the earliest first. Each entry is: time, number in the file, stream, index
    /// in `slots`.
    heap: BinaryHeap<Reverse<(i64, u64, u32, usize)>>,
    slots: Vec<(Vec<u8>, Details)>,
    free: Vec<usize>,
    bytes: usize,
    number: u64,
    newest_ns: i64,
    given_ns: i64,
    latest: Details,
    ended: Option<Result<(), SourceError>>,
    damage: Damage,
    sentences: Vec<String>,
}

impl<S: Source> Ordered<S> {
    pub fn new(inner: S, span_ns: u64) -> Ordered<S> {
        Ordered {
            inner,
            span_ns,
            heap: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            number: 0,
            newest_ns: i64::MIN,
            given_ns: i64::MIN,
            latest: Details::default(),
            ended: None,
            damage: Damage::default(),
            sentences: Vec::new(),
        }
    }

    fn ripe(&self) -> bool {
        let Some(Reverse((earliest, ..))) = self.heap.peek() else {
            return false;
        };
        self.ended.is_some()
            || self.newest_ns.abs_diff(*earliest) >= self.span_ns
            || self.bytes >= MOST_BYTES
            || self.heap.len() >= MOST_ITEMS
    }

    fn hold(&mut self) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((Vec::new(), Details::default()));
            self.slots.len() - 1
        });
        let (payload, details) = &mut self.slots[slot];
        match self.inner.next(payload) {
            Ok(Some(stamp)) => {
                self.bytes += payload.len();
                *details = self.inner.details();
                self.newest_ns = self.newest_ns.max(stamp.time_ns);
                self.heap
                    .push(Reverse((stamp.time_ns, self.number, stamp.stream.0, slot)));
                self.number += 1;
            }
            Ok(None) => self.end(Ok(())),
            Err(error) => self.end(Err(error)),
        }
    }

    fn end(&mut self, how: Result<(), SourceError>) {
        self.ended = Some(how);
        self.say();
    }

    fn say(&mut self) {
        self.sentences = self.inner.damage().to_vec();
        self.sentences.extend_from_slice(self.damage.sentences());
    }

    fn give(&mut self, payload: &mut Vec<u8>) -> Option<Stamp> {
        let Reverse((time_ns, _, stream, slot)) = self.heap.pop()?;
        let (held, details) = &mut self.slots[slot];
        self.bytes -= held.len();
        std::mem::swap(payload, held);
        self.latest = *details;
        self.free.push(slot);
        let ordered_ns = time_ns.max(self.given_ns);
        if ordered_ns != time_ns {
            self.damage.add(
                "items too far out of order to be sorted, played late",
                || format!("by {} ns", ordered_ns.abs_diff(time_ns)),
            );
            self.say();
        }
        self.given_ns = ordered_ns;
        Some(Stamp {
            time_ns: ordered_ns,
            stream: StreamId(stream),
        })
    }
}

impl<S: Source> Source for Ordered<S> {
    fn streams(&self) -> &[Stream] {
        self.inner.streams()
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        while self.ended.is_none() && !self.ripe() {
            self.hold();
        }
        match self.give(payload) {
            Some(stamp) => Ok(Some(stamp)),
            None => self.ended.replace(Ok(())).unwrap_or(Ok(())).map(|()| None),
        }
    }

    fn details(&self) -> Details {
        self.latest
    }

    fn damage(&self) -> &[String] {
        if self.sentences.is_empty() {
            self.inner.damage()
        } else {
            &self.sentences
        }
    }

    fn back_ns(&self) -> u64 {
        self.span_ns
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        self.inner.definition(type_name)
    }

    fn encoding(&self, stream: StreamId) -> Option<&str> {
        self.inner.encoding(stream)
    }

    fn extras(&self) -> Extras {
        self.inner.extras()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Kind, StreamId};

    /// A recording whose items come in the reverse order of time.
    struct Backwards {
        streams: Vec<Stream>,
        left: usize,
        bytes: usize,
    }

    impl Source for Backwards {
        fn streams(&self) -> &[Stream] {
            &self.streams
        }

        fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
            payload.clear();
            let Some(left) = self.left.checked_sub(1) else {
                return Ok(None);
            };
            payload.resize(self.bytes, 0);
            let stamp = Stamp {
                time_ns: self.left as i64,
                stream: StreamId(0),
            };
            self.left = left;
            Ok(Some(stamp))
        }

        fn damage(&self) -> &[String] {
            &[]
        }
    }

    #[test]
    fn items_beyond_the_limits_of_memory_are_returned_early_and_reported() {
        const LARGE: usize = 1 << 20;
        for (bytes, held) in [(LARGE, MOST_BYTES / LARGE), (0, MOST_ITEMS)] {
            let late = 36;
            let inner = Backwards {
                streams: vec![Stream {
                    name: "a".into(),
                    kind: Kind::Can,
                }],
                left: held + late,
                bytes,
            };
            let mut ordered = Ordered::new(inner, u64::MAX);
            let (mut payload, mut last_ns, mut items) = (Vec::new(), 0, 0);
            while let Some(stamp) = ordered.next(&mut payload).expect("readable") {
                assert!(stamp.time_ns >= last_ns);
                assert!(ordered.bytes <= MOST_BYTES && ordered.slots.len() <= MOST_ITEMS);
                (last_ns, items) = (stamp.time_ns, items + 1);
            }
            assert_eq!(items, held + late);
            let what = "items too far out of order to be sorted, played late";
            let wanted = format!("{what}: {late} (the first: by 1 ns)");
            assert_eq!(ordered.damage(), [wanted]);
        }
    }
}
