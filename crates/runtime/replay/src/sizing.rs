//! The size of the playback buffer, from the curves of the recording and of the loader (HIL paper, section II).

use crate::buffer::{blocks_for, bytes_by_hand, bytes_for, packed};
use crate::curves::{size, Arrival, ArrivalMeter, RateLatency, Service, ServiceMeter, Sizes};
use crate::item::Source;
use onbeat_time::clock::monotonic_ns;
use serde::Serialize;

/// Items that meters keep one by one: some 3 MB each.
const EXACT: usize = 1 << 16;
/// How often a watcher is told how far the measurement is, in items.
const TELL: u64 = 1 << 12;

/// A recording and its loader, measured by reading it once. Bytes are those that items take in the buffer.
#[derive(Clone, Debug)]
pub struct Curves {
    /// What playback at recorded pace takes.
    arrival: Arrival,
    /// What the loader brings.
    service: Service,
    /// All items, recorded time from the first to the last, their bytes in the buffer, and the largest as it is.
    items: u64,
    length_ns: u64,
    bytes: u64,
    largest_bytes: u64,
}

/// Reads a source to its end, or to where it cannot be read on, and measures it. `tell` hears of the number of items now
/// and then.
pub fn measure(source: &mut dyn Source, tell: &mut dyn FnMut(u64)) -> Curves {
    let mut arrival = ArrivalMeter::within(EXACT);
    let mut service = ServiceMeter::within(EXACT);
    let (mut items, mut all, mut largest_bytes) = (0u64, 0u64, 0);
    let mut ends: Option<(i64, i64)> = None;
    let mut payload = Vec::new();
    service.resumed(monotonic_ns() as i64);
    while let Ok(Some(stamp)) = source.next(&mut payload) {
        let bytes = packed(payload.len() as u64);
        arrival.observe(stamp.time_ns, bytes);
        service.observe(monotonic_ns() as i64, bytes);
        items += 1;
        ends = Some((ends.map_or(stamp.time_ns, |ends| ends.0), stamp.time_ns));
        all = all.saturating_add(bytes);
        largest_bytes = largest_bytes.max(payload.len() as u64);
        if items.is_multiple_of(TELL) {
            tell(items);
        }
    }
    Curves {
        arrival: arrival.arrival(),
        service: service.service(),
        items,
        length_ns: ends.map_or(0, |(first, last)| last.saturating_sub(first).max(0) as u64),
        bytes: all,
        largest_bytes,
    }
}

/// What is asked of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Recorded time per time.
    pub rate: f64,
    /// So much longer than was measured the loader may stand still, in ns.
    pub stall_ns: u64,
    /// Memory that it may take, in bytes.
    pub memory_bytes: u64,
    /// It takes all of that memory, a quarter of it for the largest item.
    pub by_hand: bool,
}

/// A buffer, and what it rules out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizing {
    /// The smallest buffer that neither runs empty nor over, in bytes of memory. `None`: none is, because the loader is
    /// slower than playback and the whole recording is larger than memory.
    pub least_bytes: Option<u64>,
    /// As `least_bytes`, if the loader stands still for `stall_asked_ns` longer than was measured.
    pub wanted_bytes: Option<u64>,
    /// The buffer, in bytes of memory.
    pub buffer_bytes: u64,
    /// It was given by hand, and keeps a quarter of its memory for the largest item.
    pub by_hand: bool,
    /// All of the recording has room in it.
    pub holds_all: bool,
    /// Longest that the loader may stand still beyond what was measured, as asked for and as this buffer allows, in ns.
    pub stall_asked_ns: u64,
    /// As this buffer allows; `None`: it is too small for the loader as it was measured.
    pub stall_ns: Option<u64>,
    /// Longest time from an item's leaving to when the loader has replaced it, in ns. `None`: no bound.
    pub delay_ns: Option<u64>,
    /// Most items that playback is ahead of the loader, both from a full buffer on. The pre-load, in items.
    pub preload_items: Option<u64>,
    /// The largest item, in bytes.
    pub largest_bytes: u64,
    /// What the loader brings in the long run, in bytes of the buffer per second.
    pub loader_bytes_per_s: f64,
    /// What playback takes in the long run, likewise.
    pub playback_bytes_per_s: f64,
    /// Curve of the loader that its monitor watches.
    #[serde(skip)]
    pub watched: Option<RateLatency>,
}

impl Curves {
    /// Whether there is nothing in the recording.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// A buffer as it is wished for, as far as its memory goes. Pure.
    pub fn sizing(&self, wish: &Wish) -> Sizing {
        let arrival = self.arrival.faster(wish.rate);
        let needed = |stall_ns| self.needed(&arrival, wish, stall_ns);
        let (least, wanted) = (needed(0), needed(wish.stall_ns));
        let whole = self.whole(wish);
        let least_bytes = least.as_ref().map_or(whole, |least| least.0);
        let wanted_bytes = wanted.as_ref().map_or(whole, |wanted| wanted.0);
        let buffer_bytes = match wish.by_hand {
            true => wish.memory_bytes,
            false => wanted_bytes.min(wish.memory_bytes),
        };
        let holds_all = whole <= buffer_bytes;
        let has = |needed: (u64, Sizes)| needed.0 <= buffer_bytes;
        let allows = |stall_ns| holds_all || needed(stall_ns).is_some_and(has);
        let possible =
            |bytes: u64, known: bool| (known || bytes <= wish.memory_bytes).then_some(bytes);
        Sizing {
            least_bytes: possible(least_bytes, least.is_some()),
            wanted_bytes: possible(wanted_bytes, wanted.is_some()),
            buffer_bytes,
            by_hand: wish.by_hand,
            holds_all,
            stall_asked_ns: wish.stall_ns,
            stall_ns: largest(wish.stall_ns, allows),
            delay_ns: wanted.as_ref().map(|wanted| wanted.1.delay_ns),
            preload_items: wanted
                .as_ref()
                .map(|wanted| wanted.1.preload_items.min(self.items)),
            largest_bytes: self.largest_bytes,
            loader_bytes_per_s: fastest(&self.service.bytes),
            playback_bytes_per_s: arrival.bytes.rate().per_second(),
            watched: match holds_all {
                true => None,
                false => self.service.best_for(&arrival),
            },
        }
    }

    /// Memory and sizes for a loader that stands still for so much longer than was measured. `None`: it is too slow.
    fn needed(&self, arrival: &Arrival, wish: &Wish, stall_ns: u64) -> Option<(u64, Sizes)> {
        let sizes = size(arrival, &self.service.later(stall_ns)).ok()?;
        let recorded_ns = (sizes.delay_ns as f64 * wish.rate).ceil() as u64;
        let blocks = blocks_for(sizes.buffer_bytes, recorded_ns, sizes.buffer_items);
        Some((self.memory(blocks, wish).min(self.whole(wish)), sizes))
    }

    /// Memory that the whole recording takes.
    fn whole(&self, wish: &Wish) -> u64 {
        let blocks = blocks_for(self.bytes, self.length_ns, self.items);
        self.memory(blocks, wish)
    }

    fn memory(&self, blocks: u64, wish: &Wish) -> u64 {
        match wish.by_hand {
            true => bytes_by_hand(blocks, self.largest_bytes),
            false => bytes_for(blocks, self.largest_bytes),
        }
    }
}

fn fastest(bounds: &[RateLatency]) -> f64 {
    let rates = bounds.iter().map(|bound| bound.rate.per_second());
    rates.fold(0.0, f64::max)
}

/// The largest number up to `most` that is allowed, to a thousandth of it; smaller ones are if larger ones are.
fn largest(most: u64, allows: impl Fn(u64) -> bool) -> Option<u64> {
    if allows(most) {
        return Some(most);
    }
    if !allows(0) {
        return None;
    }
    let (mut low, mut high) = (0, most);
    while high - low > 1 + most / 1000 {
        let middle = low + (high - low) / 2;
        match allows(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    Some(low)
}
