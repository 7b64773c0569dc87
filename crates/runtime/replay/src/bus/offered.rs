//! Measures the load that the frames of a source put on CAN buses, at the times at which they will
//! be played.

use super::{BusFigures, Meter};
use crate::item::{Details, Extras, Source, SourceError, Stamp, Stream, StreamId};

/// A source that passes on the items of another source, and adds their CAN frames to the meters of
/// the buses.
pub struct Offered<'s> {
    source: &'s mut dyn Source,
    meters: &'s mut [Meter],
    /// For each stream, the index in `meters` of the bus that its frames load.
    buses: &'s [Option<usize>],
    rate: f64,
    first_ns: Option<i64>,
}

impl<'s> Offered<'s> {
    /// Returns a source that counts the frames of `source` as if they were played at `rate` times
    /// the recorded speed.
    pub fn new(
        source: &'s mut dyn Source,
        meters: &'s mut [Meter],
        buses: &'s [Option<usize>],
        rate: f64,
    ) -> Offered<'s> {
        Offered {
            source,
            meters,
            buses,
            rate,
            first_ns: None,
        }
    }
}

impl Source for Offered<'_> {
    fn streams(&self) -> &[Stream] {
        self.source.streams()
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        let next = self.source.next(payload)?;
        if let Some(stamp) = next {
            let first_ns = *self.first_ns.get_or_insert(stamp.time_ns);
            let bus = self.buses.get(stamp.stream.0 as usize).copied().flatten();
            if let Some(meter) = bus.and_then(|bus| self.meters.get_mut(bus)) {
                let since_ns = stamp.time_ns.saturating_sub(first_ns).max(0);
                meter.add((since_ns as f64 / self.rate) as u64, payload);
            }
        }
        Ok(next)
    }

    fn details(&self) -> Details {
        self.source.details()
    }

    fn damage(&self) -> &[String] {
        self.source.damage()
    }

    fn back_ns(&self) -> u64 {
        self.source.back_ns()
    }

    fn encoding(&self, stream: StreamId) -> Option<&str> {
        self.source.encoding(stream)
    }

    fn extras(&self) -> Extras {
        self.source.extras()
    }
}

/// Returns a sentence that warns that the bus is too slow for the frames that will be played.
/// Returns `None` if the bus is fast enough.
pub fn shortage(bus: &BusFigures) -> Option<String> {
    bus.is_too_slow().then(|| {
        format!(
            "{} is too slow for the frames: they need {:.0} % of {} in the busiest 100 ms, which end {:.1} s after the first item. Frames will be up to {:.0} ms late. Play more slowly (--rate), or leave frames out (--ids)",
            bus.interface,
            bus.peak_load * 100.0,
            bus.speed(),
            bus.peak_at_ns as f64 / 1e9,
            (bus.most_wait_ns as f64 / 1e6).max(1.0),
        )
    })
}
