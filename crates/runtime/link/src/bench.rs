//! How fast a link is between two hosts: round trips and rate, by sizes, over any backend.
//!
//! Two ends meet twice for each series: first over a small link, in which the connecting end asks
//! for a series ([`Series`]); then over one as the series wants it. So one address is enough. What
//! is measured is the link alone: senders write 8 bytes of each message, receivers read these.

use crate::interface::{
    Backend, End, Halves, Memory, Outgoing, Refusal, SendError, SetupError, Sizes,
};
use onbeat_flow::clock::now_ns;
use std::time::Duration;
use thiserror::Error;

/// Bytes of the largest message that may be asked for.
pub const MOST_BYTES: usize = 256 << 20;
/// Bytes of the smallest one: it says what the other end is to do.
pub const LEAST_BYTES: usize = 8;
/// Begins a request; the last byte is the version.
const MAGIC: [u8; 8] = *b"obbench\x01";
/// Bytes of a request: magic, sealed, further series, two zeros, credits, size.
const REQUEST: usize = 24;
/// The other end says nothing for this long: it counts as gone.
const PATIENCE_NS: u64 = 30_000_000_000;
/// How long an end waits for the other to come to the next link, ns.
const MEETING_NS: u64 = 20_000_000_000;
/// Round trips that do not count, at the beginning of each size.
const WARM_UP: usize = 3;
/// Fewest round trips or messages of a size, however long they take.
const LEAST_RUNS: usize = 10;

/// What the receiver is to do with a message: its first 8 bytes, as a number.
const ECHO: u64 = 1;
const TAKE: u64 = 2;
/// Answer with [`LEAST_BYTES`]: all before was taken.
const CONFIRM: u64 = 3;

/// Messages over one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// Sealed, or in clear; in shared memory neither.
    pub sealed: bool,
    /// Messages on their way in each direction.
    pub credits: usize,
    /// Bytes of the largest message.
    pub most_bytes: usize,
    /// Series that the same end asks for after this one: 0 to 255.
    pub further: usize,
}

/// How much is measured of each size.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Round trips, and messages for the rate, at most.
    pub runs: usize,
    /// Time for the round trips of a size, and for its rate; ten runs there are always.
    pub time: Duration,
}

/// What was measured of one size.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Bytes of a message.
    pub bytes: usize,
    /// Times of round trips with messages of that size there and back, ns, sorted.
    pub round_trips_ns: Vec<u64>,
    /// Messages sent one way for the rate.
    pub messages: usize,
    /// From the first one's send until the peer had taken all and said so, ns.
    pub one_way_ns: u64,
}

impl Measured {
    /// Bytes of content per second, one way.
    pub fn bytes_per_second(&self) -> f64 {
        self.messages as f64 * self.bytes as f64 * 1e9 / self.one_way_ns.max(1) as f64
    }

    /// A quantile of the round trips, ns; `None` where there are too few to tell it: there must be
    /// one at least beyond it.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let count = self.round_trips_ns.len();
        let rank = (quantile * count as f64).ceil() as usize;
        (rank < count).then(|| self.round_trips_ns[rank.saturating_sub(1)])
    }

    /// The longest round trip, ns.
    pub fn longest_ns(&self) -> u64 {
        self.round_trips_ns.last().copied().unwrap_or(0)
    }
}

/// Why a bench has no result.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The ends do not meet.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The link ended.
    #[error("the bench was broken off: {0}")]
    Ended(#[from] End),
    /// The other end takes nothing.
    #[error("the bench was broken off: {0}")]
    NotSent(#[from] SendError),
    /// Nothing came.
    #[error("the other end has been silent for {} s: does `onbeat link bench` still run there?", PATIENCE_NS / 1_000_000_000)]
    Silent,
    /// The other end is something else.
    #[error(
        "the other end asks for what no `onbeat link bench` asks for: are the versions the same?"
    )]
    Request,
}

/// Sizes of the link by which the ends agree on a series.
fn small() -> Sizes {
    Sizes {
        credits: 1,
        message_bytes: REQUEST,
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

    fn request(&self) -> [u8; REQUEST] {
        let mut request = [0; REQUEST];
        request[..8].copy_from_slice(&MAGIC);
        request[8] = self.sealed.into();
        request[9] = u8::try_from(self.further).unwrap_or(u8::MAX);
        request[12..16].copy_from_slice(&(self.credits as u32).to_le_bytes());
        request[16..].copy_from_slice(&(self.most_bytes as u64).to_le_bytes());
        request
    }

    /// A request from the network, if it is one and asks for no more than is sensible.
    fn parse(request: &[u8]) -> Option<Series> {
        let request: &[u8; REQUEST] = request.try_into().ok()?;
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

/// Initializes, and again while the other end is still leaving the link before.
fn meet(
    backend: &dyn Backend,
    sizes: Sizes,
    deadline_ns: Option<u64>,
) -> Result<Halves, SetupError> {
    let until = now_ns() + MEETING_NS;
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

/// The next message's first bytes and length.
fn take(link: &mut Halves, patience_ns: u64) -> Result<(u64, usize), BenchError> {
    let (mut word, mut bytes) = (0, 0);
    let came = link
        .1
        .receive(Some(now_ns() + patience_ns), &mut |_, message| {
            let first = message.first_chunk().copied().unwrap_or_default();
            (word, bytes) = (u64::from_le_bytes(first), message.len());
        })?;
    came.then_some((word, bytes)).ok_or(BenchError::Silent)
}

fn send(out: &mut dyn Outgoing, word: u64, bytes: usize) -> Result<(), SendError> {
    let deadline = Some(now_ns() + PATIENCE_NS);
    let fill = &mut |slot: &mut [u8]| slot[..8].copy_from_slice(&word.to_le_bytes());
    out.send(bytes.max(LEAST_BYTES), deadline, fill).map(drop)
}

/// Serves one series: waits for another end's request, for as long as it takes, and does what it
/// says. `backend` makes this end for a series, or for the request (`None`). `began` is told the
/// series.
///
/// # Errors
/// The other end did not come again, left early, or is something else. Another may come.
pub fn serve(
    backend: &mut dyn FnMut(Option<Series>) -> Result<Box<dyn Backend>, SetupError>,
    began: &mut dyn FnMut(Series),
) -> Result<(), BenchError> {
    let mut asked = meet(&*backend(None)?, small(), None)?;
    let mut series = None;
    let deadline = Some(now_ns() + PATIENCE_NS);
    asked.1.receive(deadline, &mut |_, request| {
        series = Series::parse(request);
    })?;
    let series = series.ok_or(BenchError::Request)?;
    send(&mut *asked.0, CONFIRM, LEAST_BYTES)?;
    // The answer arrives before the link is left.
    drop(asked);
    began(series);

    let end = backend(Some(series))?;
    let mut link = meet(&*end, series.sizes(), Some(now_ns() + MEETING_NS))?;
    loop {
        let (word, bytes) = match take(&mut link, PATIENCE_NS) {
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

/// Asks the serving end for a series, and measures each of these sizes over it. `backend` is as for
/// [`serve`]; `progress` is told how many sizes are done, and round trips or messages of the next.
///
/// # Errors
/// No end serves there, or it left.
pub fn measure(
    backend: &mut dyn FnMut(Option<Series>) -> Result<Box<dyn Backend>, SetupError>,
    series: Series,
    sizes: &[usize],
    amount: Amount,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Measured>, BenchError> {
    let mut asking = meet(&*backend(None)?, small(), Some(now_ns() + MEETING_NS))?;
    let request = series.request();
    let fill = &mut |slot: &mut [u8]| slot.copy_from_slice(&request);
    asking.0.send(REQUEST, Some(now_ns() + PATIENCE_NS), fill)?;
    take(&mut asking, PATIENCE_NS)?;
    drop(asking);

    let end = backend(Some(series))?;
    let mut link = meet(&*end, series.sizes(), Some(now_ns() + MEETING_NS))?;
    let mut measured = Vec::with_capacity(sizes.len());
    for (done, &bytes) in sizes.iter().enumerate() {
        let mut tell = |runs| progress(done, runs);
        let round_trips_ns = round_trips(&mut link, bytes, amount, &mut tell)?;
        let (messages, one_way_ns) = one_way(&mut link, bytes, amount, &mut tell)?;
        measured.push(Measured {
            bytes,
            round_trips_ns,
            messages,
            one_way_ns,
        });
    }
    Ok(measured)
}

/// Whether that was enough of a size.
fn is_enough(amount: Amount, runs: usize, since_ns: u64) -> bool {
    let spent = u128::from(now_ns() - since_ns);
    runs >= amount.runs || runs >= LEAST_RUNS && spent >= amount.time.as_nanos()
}

/// Times of messages there and back, sorted.
fn round_trips(
    link: &mut Halves,
    bytes: usize,
    amount: Amount,
    tell: &mut dyn FnMut(usize),
) -> Result<Vec<u64>, BenchError> {
    let mut trip = || -> Result<u64, BenchError> {
        let begin = now_ns();
        send(&mut *link.0, ECHO, bytes)?;
        take(link, PATIENCE_NS)?;
        Ok(now_ns() - begin)
    };
    for _ in 0..WARM_UP {
        trip()?;
    }
    let since = now_ns();
    let mut times = Vec::with_capacity(amount.runs);
    while !is_enough(amount, times.len(), since) {
        times.push(trip()?);
        tell(times.len());
    }
    times.sort_unstable();
    Ok(times)
}

/// Messages one way, and how long they took until the peer had taken the last.
fn one_way(
    link: &mut Halves,
    bytes: usize,
    amount: Amount,
    tell: &mut dyn FnMut(usize),
) -> Result<(usize, u64), BenchError> {
    let since = now_ns();
    let mut messages = 0;
    while !is_enough(amount, messages + 1, since) {
        send(&mut *link.0, TAKE, bytes)?;
        messages += 1;
        tell(messages);
    }
    send(&mut *link.0, CONFIRM, bytes)?;
    take(link, PATIENCE_NS)?;
    Ok((messages + 1, now_ns() - since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written_and_nothing_else_is() {
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
    fn quantiles_that_too_few_runs_cannot_tell_are_not_told() {
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
