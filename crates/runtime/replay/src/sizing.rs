//! Computes the size of the playback buffer from the curves of the recording and of the loader
//! (Konheiser et al., section II).

use crate::buffer::{blocks_for, bytes_by_hand, bytes_for, packed};
use crate::contents::Contents;
use crate::curves::{size, Arrival, ArrivalMeter, RateLatency, Service, ServiceMeter, Sizes};
use crate::item::Source;
use onbeat_time::clock::monotonic_ns;
use serde::Serialize;

/// The number of items up to which a meter stores every item's time. A meter then uses about 3 MB.
const EXACT: usize = 1 << 16;
const TELL: u64 = 1 << 12;

/// The arrival curve of a recording and the service curve of its loader, measured by reading the
/// recording once. Each item counts with the number of bytes that it needs in the buffer.
#[allow(missing_docs)] // the names say what they are
#[derive(Clone, Debug)]
pub struct Curves {
    arrival: Arrival,
    service: Service,
    items: u64,
    length_ns: u64,
    bytes: u64,
    largest_bytes: u64,
    pub contents: Contents,
}

/// Reads a source to its end, or until an error. Returns its measured curves and contents. From
/// time to time, calls `tell` with the number of items so far.
pub fn measure(source: &mut dyn Source, tell: &mut dyn FnMut(u64)) -> Curves {
    let mut arrival = ArrivalMeter::within(EXACT);
    let mut service = ServiceMeter::within(EXACT);
    let (mut items, mut all, mut largest_bytes) = (0u64, 0u64, 0);
    let mut ends: Option<(i64, i64)> = None;
    let mut payload = Vec::new();
    let mut contents = Contents::new(source);
    service.resumed(monotonic_ns() as i64);
    loop {
        let stamp = match source.next(&mut payload) {
            Ok(Some(stamp)) => stamp,
            Ok(None) => break,
            Err(error) => {
                contents.error = Some(error.to_string());
                break;
            }
        };
        let bytes = packed(payload.len() as u64);
        arrival.observe(stamp.time_ns, bytes);
        service.observe(monotonic_ns() as i64, bytes);
        contents.add(stamp, &payload, source.details().is_sent);
        items += 1;
        ends = Some((ends.map_or(stamp.time_ns, |ends| ends.0), stamp.time_ns));
        all = all.saturating_add(bytes);
        largest_bytes = largest_bytes.max(payload.len() as u64);
        if items.is_multiple_of(TELL) {
            tell(items);
        }
    }
    contents.close(source);
    Curves {
        contents,
        arrival: arrival.arrival(),
        service: service.service(),
        items,
        length_ns: ends.map_or(0, |(first, last)| last.saturating_sub(first).max(0) as u64),
        bytes: all,
        largest_bytes,
    }
}

/// The user's requirements for a playback buffer.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The speed of playback, in recorded seconds per second. 2.0 plays twice as fast as recorded.
    pub rate: f64,
    /// The time in ns by which the loader's pauses may be longer than they were during the
    /// measurement.
    pub stall_ns: u64,
    /// The maximum memory of the buffer, in bytes.
    pub memory_bytes: u64,
    /// If true, the buffer uses all of `memory_bytes`, and a quarter of it is for the largest item.
    pub by_hand: bool,
}

/// The size of a playback buffer, and the length of the loader's pauses that it can bridge.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizing {
    /// The size of the smallest buffer that is never empty when an item is due and never overflows,
    /// in bytes. `None` if the loader is slower than playback and the recording is larger than
    /// [`Wish::memory_bytes`].
    pub least_bytes: Option<u64>,
    /// The size of the smallest buffer that suffices if the loader's pauses are longer by
    /// `stall_asked_ns` than during the measurement, in bytes. `None` in the same case as for
    /// `least_bytes`.
    pub wanted_bytes: Option<u64>,
    pub buffer_bytes: u64,
    /// True if the user gave the size. A quarter of the buffer is then for the largest item.
    pub by_hand: bool,
    pub holds_all: bool,
    /// The time in ns by which the user allows the loader's pauses to be longer than during the
    /// measurement.
    pub stall_asked_ns: u64,
    /// The longest time in ns, up to `stall_asked_ns`, by which the loader's pauses may exceed
    /// those of the measurement without the buffer becoming empty. `None` if this buffer is too
    /// small even without longer pauses.
    pub stall_ns: Option<u64>,
    /// The longest time from the departure of an item until the loader has put another item into
    /// its place in the buffer, in ns. `None` if no limit is known.
    pub delay_ns: Option<u64>,
    /// The maximum number of items by which playback gets ahead of the loader once the buffer was
    /// full. This is the pre-load. `None` if no limit is known.
    pub preload_items: Option<u64>,
    pub largest_bytes: u64,
    /// The long-term rate of the loader, in bytes per second. Each item counts with the number of
    /// bytes that it needs in the buffer.
    pub loader_bytes_per_s: f64,
    /// The long-term rate of playback, in bytes per second. Each item counts with the number of
    /// bytes that it needs in the buffer.
    pub playback_bytes_per_s: f64,
    /// The service curve with which the player compares the loader during playback. `None` if no
    /// bound of the loader is known.
    #[serde(skip)]
    pub watched: Option<RateLatency>,
}

impl Curves {
    /// Returns whether the recording has no items.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Returns the size of the buffer that meets the user's requirements, limited by
    /// `wish.memory_bytes`.
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

    /// Returns the memory in bytes and the sizes that are needed if the loader's pauses are longer
    /// by `stall_ns` than during the measurement. Returns `None` if the loader is too slow.
    fn needed(&self, arrival: &Arrival, wish: &Wish, stall_ns: u64) -> Option<(u64, Sizes)> {
        let sizes = size(arrival, &self.service.later(stall_ns)).ok()?;
        let recorded_ns = (sizes.delay_ns as f64 * wish.rate).ceil() as u64;
        let blocks = blocks_for(sizes.buffer_bytes, recorded_ns, sizes.buffer_items);
        Some((self.memory(blocks, wish).min(self.whole(wish)), sizes))
    }

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

/// Returns the largest number up to `most` that the function `allows` accepts, exact to a
/// thousandth of `most`. If `allows` accepts a number, it must also accept all smaller numbers.
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
