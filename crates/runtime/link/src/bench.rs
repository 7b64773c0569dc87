//! Measures a link between two hosts over any backend: round trips and rate, for each message size.
//!
//! For each series of measurements the two ends connect twice. The first link is small: the
//! connecting end asks for a series ([`Series`]) over it. The second link has the sizes of the
//! series. So one address is enough. Only the link is measured: senders write 8 bytes of each
//! message, and receivers read these.

use crate::interface::{
    Backend, End, Halves, Memory, Outgoing, Refusal, SendError, SetupError, Sizes,
};
use onbeat_flow::clock::now_ns;
use std::time::Duration;
use thiserror::Error;

/// The size of the largest message that a series may have, in bytes.
pub const MOST_BYTES: usize = 256 << 20;
/// The size of the smallest message, in bytes. The smallest message contains only the first word,
/// which states how the receiver must react.
pub const LEAST_BYTES: usize = 8;
/// The first bytes of a request. The last byte is the version of the request format.
const MAGIC: [u8; 8] = *b"obbench\x01";
/// The size of a request: magic (8 bytes), sealed (1), further series (1), zeros (2), credits (4)
/// and message size (8).
const REQUEST_BYTES: usize = 24;
const SILENCE_LIMIT_NS: u64 = 30_000_000_000;
const RECONNECT_LIMIT_NS: u64 = 20_000_000_000;
const WARM_UP_TRIPS: usize = 3;
/// The smallest number of round trips or messages that are measured for one message size, however
/// long they take.
const LEAST_RUNS: usize = 10;

/// The first word of a message that the receiver sends back in the same size.
const ECHO: u64 = 1;
const TAKE: u64 = 2;
/// The first word of a message that the receiver answers with [`LEAST_BYTES`] after it has received
/// all earlier messages.
const CONFIRM: u64 = 3;

/// A series of measurements over one link.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// The link encrypts its messages. Ignored in shared memory.
    pub sealed: bool,
    /// The number of messages that may be on their way in each direction.
    pub credits: usize,
    pub most_bytes: usize,
    /// The number of further series that the same end asks for after this series: 0 to 255.
    pub further: usize,
}

/// The limits on the measurement of each message size.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// The largest number of round trips for each message size. At most as many one-way messages
    /// measure the rate of that size.
    pub runs: usize,
    /// The time limit for the round trips of one message size. The one-way messages of that size
    /// have the same limit. At least ten round trips and ten one-way messages are always measured.
    pub time: Duration,
}

/// The results for one message size.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub bytes: usize,
    /// The round-trip times of messages of this size, in ascending order. The message and its
    /// answer have the same size.
    pub round_trips_ns: Vec<u64>,
    /// The number of messages that were sent one way to measure the rate.
    pub messages: usize,
    /// The time from the first one-way message until the peer has confirmed that it received all of
    /// them.
    pub one_way_ns: u64,
}

impl Measured {
    /// Returns the rate in one direction: bytes of content per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.messages as f64 * self.bytes as f64 * 1e9 / self.one_way_ns.max(1) as f64
    }

    /// Returns a quantile (0 to 1) of the round-trip times, in ns. Returns `None` if there are so
    /// few round trips that none lies above this quantile.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let count = self.round_trips_ns.len();
        let rank = (quantile * count as f64).ceil() as usize;
        (rank < count).then(|| self.round_trips_ns[rank.saturating_sub(1)])
    }

    /// Returns the longest round trip, in ns, or 0 without a round trip.
    pub fn longest_ns(&self) -> u64 {
        self.round_trips_ns.last().copied().unwrap_or(0)
    }
}

/// The reason why a measurement of a link failed.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum BenchError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("the link ended during the measurement: {0}")]
    Ended(#[from] End),
    #[error("a message of the measurement could not be sent: {0}")]
    NotSent(#[from] SendError),
    #[error("the other end has been silent for {} s. Check that `onbeat link bench` still runs there.", SILENCE_LIMIT_NS / 1_000_000_000)]
    Silent,
    #[error(
        "the other end sent an invalid request. Run the same version of `onbeat link bench` on both hosts."
    )]
    Request,
}

fn agreement_sizes() -> Sizes {
    Sizes {
        credits: 1,
        message_bytes: REQUEST_BYTES,
        value_bytes: 0,
    }
}

impl Series {
    fn sizes(&self) -> Sizes {
        Sizes {
            credits: self.credits,
            message_bytes: self.most_bytes,
            value_bytes: 0,
        }
    }

    fn request(&self) -> [u8; REQUEST_BYTES] {
        let mut request = [0; REQUEST_BYTES];
        request[..8].copy_from_slice(&MAGIC);
        request[8] = self.sealed.into();
        request[9] = u8::try_from(self.further).unwrap_or(u8::MAX);
        request[12..16].copy_from_slice(&(self.credits as u32).to_le_bytes());
        request[16..].copy_from_slice(&(self.most_bytes as u64).to_le_bytes());
        request
    }

    fn parse(request: &[u8]) -> Option<Series> {
        let request: &[u8; REQUEST_BYTES] = request.try_into().ok()?;
        let credits = u32::from_le_bytes(request[12..16].try_into().ok()?);
        let most_bytes = u64::from_le_bytes(request[16..].try_into().ok()?);
        let series = Series {
            sealed: request[8] == 1,
            credits: usize::try_from(credits).ok()?,
            most_bytes: usize::try_from(most_bytes).ok()?,
            further: request[9].into(),
        };
        let is_known = request[..8] == MAGIC && request[8] <= 1 && request[10..12] == [0; 2];
        let is_sensible = (1..=64).contains(&series.credits)
            && (LEAST_BYTES..=MOST_BYTES).contains(&series.most_bytes)
            && series.credits * series.most_bytes <= 4 * MOST_BYTES;
        (is_known && is_sensible).then_some(series)
    }
}

/// Connects to the peer. Tries again for up to 20 s, because the other end may still be closing the
/// previous link.
fn connect(
    backend: &dyn Backend,
    sizes: Sizes,
    deadline_ns: Option<u64>,
) -> Result<Halves, SetupError> {
    let until = now_ns() + RECONNECT_LIMIT_NS;
    loop {
        match backend.initialize(sizes, Memory::Allot, deadline_ns) {
            Err(SetupError::Refused {
                reason: Refusal::InUse | Refusal::Sizes { .. } | Refusal::Options,
                ..
            }) if now_ns() < until => std::thread::sleep(Duration::from_millis(20)),
            met => return met,
        }
    }
}

fn receive_head(link: &mut Halves, limit_ns: u64) -> Result<(u64, usize), BenchError> {
    let (mut word, mut bytes) = (0, 0);
    let came = link
        .1
        .receive(Some(now_ns() + limit_ns), &mut |_, message| {
            let first = message.first_chunk().copied().unwrap_or_default();
            (word, bytes) = (u64::from_le_bytes(first), message.len());
        })?;
    came.then_some((word, bytes)).ok_or(BenchError::Silent)
}

fn send(out: &mut dyn Outgoing, word: u64, bytes: usize) -> Result<(), SendError> {
    let deadline = Some(now_ns() + SILENCE_LIMIT_NS);
    let fill = &mut |slot: &mut [u8]| slot[..8].copy_from_slice(&word.to_le_bytes());
    out.send(bytes.max(LEAST_BYTES), deadline, fill).map(drop)
}

/// Serves one series of measurements: waits for a request without a time limit, and answers the
/// messages of the series. `backend(None)` makes the end that receives the request.
/// `backend(Some(series))` makes the end for the messages. `serve` calls `began` when it knows the
/// series.
///
/// # Errors
/// The other end did not connect again, left early, or is not a program that measures. The caller
/// may serve the next request.
pub fn serve(
    backend: &mut dyn FnMut(Option<Series>) -> Result<Box<dyn Backend>, SetupError>,
    began: &mut dyn FnMut(Series),
) -> Result<(), BenchError> {
    let mut asked = connect(&*backend(None)?, agreement_sizes(), None)?;
    let mut series = None;
    let deadline = Some(now_ns() + SILENCE_LIMIT_NS);
    asked.1.receive(deadline, &mut |_, request| {
        series = Series::parse(request);
    })?;
    let series = series.ok_or(BenchError::Request)?;
    send(&mut *asked.0, CONFIRM, LEAST_BYTES)?;
    // Dropping a link first delivers what was sent, here the answer.
    drop(asked);
    began(series);

    let end = backend(Some(series))?;
    let mut link = connect(&*end, series.sizes(), Some(now_ns() + RECONNECT_LIMIT_NS))?;
    loop {
        let (word, bytes) = match receive_head(&mut link, SILENCE_LIMIT_NS) {
            Err(BenchError::Ended(End::Closed)) => return Ok(()),
            other => other?,
        };
        match word {
            ECHO => send(&mut *link.0, ECHO, bytes)?,
            CONFIRM => send(&mut *link.0, CONFIRM, LEAST_BYTES)?,
            _ => {}
        }
    }
}

/// Asks the serving end for a series, and measures each of the `sizes` over the link of this
/// series. `backend` makes the ends as for [`serve`]. `progress` gets the number of finished sizes,
/// and the number of finished round trips or messages of the current size.
///
/// # Errors
/// Fails if the other end does not serve, or has closed the link.
pub fn measure(
    backend: &mut dyn FnMut(Option<Series>) -> Result<Box<dyn Backend>, SetupError>,
    series: Series,
    sizes: &[usize],
    amount: Amount,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Measured>, BenchError> {
    let mut asking = connect(
        &*backend(None)?,
        agreement_sizes(),
        Some(now_ns() + RECONNECT_LIMIT_NS),
    )?;
    let request = series.request();
    let fill = &mut |slot: &mut [u8]| slot.copy_from_slice(&request);
    asking
        .0
        .send(REQUEST_BYTES, Some(now_ns() + SILENCE_LIMIT_NS), fill)?;
    receive_head(&mut asking, SILENCE_LIMIT_NS)?;
    drop(asking);

    let end = backend(Some(series))?;
    let mut link = connect(&*end, series.sizes(), Some(now_ns() + RECONNECT_LIMIT_NS))?;
    let mut measured = Vec::with_capacity(sizes.len());
    for (done, &bytes) in sizes.iter().enumerate() {
        let mut report = |runs| progress(done, runs);
        let round_trips_ns = sorted_round_trips_ns(&mut link, bytes, amount, &mut report)?;
        let (messages, one_way_ns) = measure_one_way(&mut link, bytes, amount, &mut report)?;
        measured.push(Measured {
            bytes,
            round_trips_ns,
            messages,
            one_way_ns,
        });
    }
    Ok(measured)
}

fn is_enough(amount: Amount, runs: usize, since_ns: u64) -> bool {
    let spent = u128::from(now_ns() - since_ns);
    runs >= amount.runs || runs >= LEAST_RUNS && spent >= amount.time.as_nanos()
}

fn sorted_round_trips_ns(
    link: &mut Halves,
    bytes: usize,
    amount: Amount,
    report: &mut dyn FnMut(usize),
) -> Result<Vec<u64>, BenchError> {
    let mut trip = || -> Result<u64, BenchError> {
        let begin = now_ns();
        send(&mut *link.0, ECHO, bytes)?;
        receive_head(link, SILENCE_LIMIT_NS)?;
        Ok(now_ns() - begin)
    };
    for _ in 0..WARM_UP_TRIPS {
        trip()?;
    }
    let since = now_ns();
    let mut times = Vec::with_capacity(amount.runs);
    while !is_enough(amount, times.len(), since) {
        times.push(trip()?);
        report(times.len());
    }
    times.sort_unstable();
    Ok(times)
}

fn measure_one_way(
    link: &mut Halves,
    bytes: usize,
    amount: Amount,
    report: &mut dyn FnMut(usize),
) -> Result<(usize, u64), BenchError> {
    let since = now_ns();
    let mut messages = 0;
    while !is_enough(amount, messages + 1, since) {
        send(&mut *link.0, TAKE, bytes)?;
        messages += 1;
        report(messages);
    }
    send(&mut *link.0, CONFIRM, bytes)?;
    receive_head(link, SILENCE_LIMIT_NS)?;
    Ok((messages + 1, now_ns() - since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_request_is_read_as_written_or_refused_if_invalid() {
        let series = Series {
            sealed: true,
            credits: 4,
            most_bytes: 32 << 20,
            further: 1,
        };
        assert_eq!(Series::parse(&series.request()), Some(series));
        for (at, byte) in [(0, 0), (7, 9), (8, 2), (10, 1), (12, 0), (12, 65), (21, 1)] {
            let mut request = series.request();
            request[at] = byte;
            assert_eq!(Series::parse(&request), None, "byte {at}");
        }
        assert_eq!(Series::parse(&series.request()[..23]), None);
        assert_eq!(Series::parse(&[]), None);
    }

    #[test]
    fn a_quantile_is_given_only_if_a_measured_round_trip_lies_beyond_it() {
        let of = |count: u64| Measured {
            bytes: 1,
            round_trips_ns: (1..=count).collect(),
            messages: 2,
            one_way_ns: 1_000_000_000,
        };
        assert_eq!(of(100).quantile_ns(0.5), Some(50));
        assert_eq!(of(100).quantile_ns(0.99), Some(99));
        assert_eq!(of(50).quantile_ns(0.99), None);
        assert_eq!(of(0).quantile_ns(0.5), None);
        assert_eq!((of(7).longest_ns(), of(0).longest_ns()), (7, 0));
        assert_eq!(of(1).bytes_per_second(), 2.0);
    }
}
