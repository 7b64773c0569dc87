//! The longest time that a message takes over a port which several channels share, by fixed
//! priorities.
//!
//! Fixed-point preemption cuts messages into chunks and limits the bytes that are posted at once to
//! a window. Between chunks the most urgent message goes first (thesis, 5.4.3, which leaves the
//! analysis to others). This module does the analysis: non-preemptive fixed priorities with
//! blocking, over the whole busy period (Davis, Burns, Bril and Lukkien, *Controller Area Network
//! (CAN) schedulability analysis*, 2007, with chunks in the place of frames).
//!
//! It assumes that the sender's egress is the bottleneck and that nobody else sends through the
//! port. It also assumes that the next chunk is posted before the window is empty, even if another
//! link must be woken for it. A message counts from its push: from then on nothing less urgent is
//! let go. Receivers that several senders share (incast) are not modelled.

use thiserror::Error;

/// The network interface through which all channels of an analysis send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// The rate of the wire, bit/s.
    pub bits_per_second: u64,
    /// The size of a chunk's content, in bytes.
    pub chunk_bytes: usize,
    /// The most bytes that may be posted and have not left yet, counted as on the wire. One chunk
    /// is always allowed.
    pub window_bytes: usize,
    /// The bytes that each chunk needs on the wire besides its content: the headers of all layers.
    pub overhead_bytes: usize,
    /// The time from when a message's last byte leaves until the receiver gets the message.
    pub way_ns: u64,
}

/// The messages that one channel sends through the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The priority: larger numbers are more urgent. Messages of equal priority leave in order of
    /// arrival.
    pub priority: u8,
    /// The size of the largest message, in bytes.
    pub bytes: usize,
    /// The shortest time between two messages.
    pub period_ns: u64,
    /// The longest time by which a message may come later than its period, in ns.
    pub jitter_ns: u64,
}

/// The reason why a channel has no bound.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoBound {
    #[error("channels of priority {priority} and above use {percent} % of the port. Send less, or less often.")]
    Overload { priority: u8, percent: u64 },
    #[error("a rate, chunk size or period is 0. Give values above 0.")]
    Zero,
}

/// The number of steps after which the search for a fixed point stops with an error. The port is
/// then nearly full.
const MOST_STEPS: usize = 1_000_000;
const TIME_PARTS: u128 = 1_000_000_000;

impl Port {
    fn wire_ns(&self, bytes: u128) -> u128 {
        (bytes * 8 * 1_000_000_000).div_ceil(self.bits_per_second.into())
    }

    fn wire_bytes(&self, bytes: usize) -> u128 {
        let chunks = bytes.div_ceil(self.chunk_bytes).max(1) as u128;
        bytes as u128 + chunks * self.overhead_bytes as u128
    }

    fn last_chunk_wire_bytes(&self, bytes: usize) -> u128 {
        let rest = match bytes % self.chunk_bytes {
            0 => bytes.min(self.chunk_bytes),
            rest => rest,
        };
        rest as u128 + self.overhead_bytes as u128
    }

    fn usable_window_bytes(&self) -> u128 {
        self.window_bytes
            .max(self.chunk_bytes + self.overhead_bytes) as u128
    }

    /// Returns the longest time from a message's send until the receiver gets it, in ns, for each
    /// channel in the order of `loads`. The bound is safe, but not exact: messages of the same
    /// priority count as more urgent ones. Not real-time safe.
    ///
    /// # Errors
    ///
    /// [`NoBound`], separately for each channel: on an overloaded port the more urgent channels
    /// still have a bound.
    pub fn bounds(&self, loads: &[Load]) -> Vec<Result<u64, NoBound>> {
        (0..loads.len()).map(|at| self.bound(loads, at)).collect()
    }

    fn bound(&self, loads: &[Load], at: usize) -> Result<u64, NoBound> {
        let own = loads[at];
        if self.bits_per_second == 0
            || self.chunk_bytes == 0
            || loads.iter().any(|l| l.period_ns == 0)
        {
            return Err(NoBound::Zero);
        }
        let others = |wanted: fn(u8, u8) -> bool| {
            let found = loads.iter().enumerate().filter(move |(i, _)| *i != at);
            found
                .filter(move |(_, l)| wanted(l.priority, own.priority))
                .map(|(_, l)| *l)
        };
        let above: Vec<Load> = others(|other, own| other >= own).collect();
        let below: u128 = others(|other, own| other < own)
            .map(|l| self.wire_bytes(l.bytes))
            .sum();
        let takes = |load: &Load| self.wire_ns(self.wire_bytes(load.bytes));

        let used: u128 = above
            .iter()
            .chain([&own])
            .map(|l| (takes(l) * TIME_PARTS).div_ceil(l.period_ns.into()))
            .sum();
        let overload = NoBound::Overload {
            priority: own.priority,
            percent: u64::try_from((used * 100).div_ceil(TIME_PARTS)).unwrap_or(u64::MAX),
        };
        if used >= TIME_PARTS {
            return Err(overload);
        }

        // The bytes that are posted when the message comes go first, even if they are less urgent.
        let blocked = self.wire_ns(below.min(self.usable_window_bytes()));
        let last = self.wire_ns(self.last_chunk_wire_bytes(own.bytes));
        let (period, jitter) = (u128::from(own.period_ns), u128::from(own.jitter_ns));
        let mut steps = 0;
        // When the last chunk of the busy period's message `number` begins.
        let mut begins = |number: u128| {
            let mut begin = 0;
            loop {
                steps += 1;
                let arrived =
                    |l: &Load| (begin + u128::from(l.jitter_ns)) / u128::from(l.period_ns) + 1;
                let before: u128 = above.iter().map(|l| arrived(l) * takes(l)).sum();
                let next = blocked + (number + 1) * takes(&own) - last + before;
                if next == begin {
                    return Ok(begin);
                }
                begin = next;
                if steps > MOST_STEPS {
                    return Err(overload);
                }
            }
        };
        let mut longest = 0;
        for number in 0.. {
            let end = begins(number)? + last;
            longest = longest.max(end - (number * period).saturating_sub(jitter));
            // The next message comes after this one has left: the busy period is over.
            if end <= ((number + 1) * period).saturating_sub(jitter) {
                break;
            }
        }
        Ok(u64::try_from(longest + u128::from(self.way_ns)).unwrap_or(u64::MAX))
    }
}
