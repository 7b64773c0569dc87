//! Applies network calculus to recordings: arrival and service curves, and the buffers that they
//! need (Konheiser et al., section II, references 2 and 3).
//!
//! Amounts are items or bytes. Rounding is on the safe side: an upper curve is never too low, a
//! lower one never too high. Pure: values in, values out.
//!
//! The loader puts items into the buffer as long as it has room (credits); playback takes each at
//! its time. Let `a` be the upper arrival curve of playback and `b` the loader's service curve, and
//! the buffer be full when playback begins. The buffer never runs empty exactly when it has room
//! for the vertical distance of `a` and `b`: since the last moment `s` at which it was full,
//! playback took at most `a(t - s)`, and the loader brought at least `b(t - s)`. It never runs
//! over, because of the credits.

mod envelope;
mod measure;
mod monitor;

pub use envelope::{Rate, RateLatency, Upper};
pub use measure::{measure, ArrivalMeter, Arrivals, ServiceMeter};
pub use monitor::{Left, LoaderMonitor, Monitor, Seen};

/// An upper bound for the items and bytes that playback needs within a time interval, as a function
/// of the interval's length.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub items: Upper,
    pub bytes: Upper,
    pub largest_bytes: u64,
}

/// Lower bounds for the items and bytes that a loader delivers within any time interval in which it
/// does not wait for room. All bounds apply at the same time.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub items: Vec<RateLatency>,
    pub bytes: Vec<RateLatency>,
}

impl Service {
    /// Returns the curve of a loader that delivers no item for at most `latency_ns`, and then at
    /// least these numbers of items and bytes per second.
    pub fn rate_latency(latency_ns: u64, items_per_s: u64, bytes_per_s: u64) -> Service {
        let of = |units| {
            vec![RateLatency {
                latency_ns,
                rate: Rate {
                    units,
                    ns: 1_000_000_000,
                },
            }]
        };
        Service {
            items: of(items_per_s),
            bytes: of(bytes_per_s),
        }
    }

    /// Returns the curve of the same loader if its pauses may be longer by `by_ns`.
    pub fn later(&self, by_ns: u64) -> Service {
        let later = |bounds: &[RateLatency]| {
            let later = |bound: &RateLatency| RateLatency {
                latency_ns: bound.latency_ns.saturating_add(by_ns),
                ..*bound
            };
            bounds.iter().map(later).collect()
        };
        Service {
            items: later(&self.items),
            bytes: later(&self.bytes),
        }
    }

    /// Returns the one of the bounds on bytes that needs the smallest buffer. Returns `None` if
    /// every bound is too slow for `arrival`.
    pub fn best_for(&self, arrival: &Arrival) -> Option<RateLatency> {
        let enough = self
            .bytes
            .iter()
            .filter(|bound| bound.rate.at_least(arrival.bytes.rate()));
        enough
            .min_by_key(|bound| arrival.bytes.backlog(**bound))
            .copied()
    }
}

impl Arrival {
    /// Returns the curve of the same traffic when it is played faster by the factor `times`. See
    /// [`Upper::faster`].
    pub fn faster(&self, times: f64) -> Arrival {
        Arrival {
            items: self.items.faster(times),
            bytes: self.bytes.faster(times),
            largest_bytes: self.largest_bytes,
        }
    }
}

/// The size of the smallest playback buffer that is never empty when an item is due and never
/// overflows.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub buffer_items: u64,
    /// The capacity of the buffer, in bytes. The capacity includes one more item than needed,
    /// because the loader waits until a whole item fits.
    pub buffer_bytes: u64,
    /// The number of items that must be in the buffer before playback begins. Playback may also
    /// begin when the buffer is full.
    pub preload_items: u64,
    /// The number of bytes that must be in the buffer before playback begins. Playback may also
    /// begin when the buffer is full.
    pub preload_bytes: u64,
    /// The longest time from the departure of an item until the loader has replaced it in the
    /// buffer, in ns.
    pub delay_ns: u64,
}

/// The loader is slower than playback in the long run, so every buffer would become empty.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "the loader delivers {service_per_s:.0} {what}/s, and playback needs {arrival_per_s:.0} {what}/s in the long run. Play more slowly, or load the whole recording before the start"
)]
pub struct TooSlow {
    /// The unit of both rates: `items` or `bytes`.
    pub what: &'static str,
    pub arrival_per_s: f64,
    pub service_per_s: f64,
}

/// Returns the size of the smallest buffer and the pre-load for this playback and this loader.
///
/// # Errors
/// Fails with [`TooSlow`] if the loader is slower than playback in the long run.
pub fn size(arrival: &Arrival, service: &Service) -> Result<Sizes, TooSlow> {
    let (items, items_delay_ns) = distance("items", &arrival.items, &service.items)?;
    let (bytes, bytes_delay_ns) = distance("bytes", &arrival.bytes, &service.bytes)?;
    Ok(Sizes {
        buffer_items: items.max(1),
        buffer_bytes: bytes.saturating_add(arrival.largest_bytes),
        preload_items: items,
        preload_bytes: bytes,
        delay_ns: items_delay_ns.max(bytes_delay_ns),
    })
}

fn distance(
    what: &'static str,
    arrival: &Upper,
    service: &[RateLatency],
) -> Result<(u64, u64), TooSlow> {
    let enough = || {
        service
            .iter()
            .filter(|bound| bound.rate.at_least(arrival.rate()))
    };
    let backlog = enough().map(|bound| arrival.backlog(*bound)).min();
    let delay_ns = enough().map(|bound| arrival.delay_ns(*bound)).min();
    backlog.zip(delay_ns).ok_or_else(|| TooSlow {
        what,
        arrival_per_s: arrival.rate().per_second(),
        service_per_s: service
            .iter()
            .map(|bound| bound.rate.per_second())
            .fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests;
