//! The longest time that a message takes over a port which several channels share, by fixed priorities.
//!
//! Fixed-point preemption cuts messages into chunks, and keeps the bytes that are posted within a window: between
//! chunks the most urgent goes first (thesis, 5.4.3, which leaves the analysis to others). This is the analysis:
//! non-preemptive fixed priorities with blocking, over the whole busy period (Davis, Burns, Bril and Lukkien,
//! *Controller Area Network (CAN) schedulability analysis*, 2007, with chunks in the place of frames).
//!
//! Assumed: the sender's egress is the bottleneck; nobody else sends through the port; the next chunk is posted
//! before the window is empty, also where another link has to be woken for it. A message counts from its push: from
//! then on nothing less urgent is let go. Receivers that several senders share (incast) are not modelled.

use thiserror::Error;

/// What all channels send through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Rate of the wire.
    pub bits_per_second: u64,
    /// Bytes of a chunk's content.
    pub chunk_bytes: usize,
    /// Bytes on the wire that may be posted and not have left; a chunk always may.
    pub window_bytes: usize,
    /// Bytes on the wire that each chunk has beside its content: the heads of all layers.
    pub overhead_bytes: usize,
    /// From the last byte's leaving until the message is handed out, ns.
    pub way_ns: u64,
}

/// The messages of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Larger is more urgent. Among equals the first that came goes first.
    pub priority: u8,
    /// Bytes of a message, at most.
    pub bytes: usize,
    /// Time between two messages, at least, ns.
    pub period_ns: u64,
    /// How much later than its period a message may come, ns.
    pub jitter_ns: u64,
}

/// There is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoBound {
    /// These channels want more than the port has.
    #[error("channels of priority {priority} and above use {percent} % of the port: send less, or less often")]
    Overload {
        /// The channel's priority.
        priority: u8,
        /// What it and those above it use, rounded up.
        percent: u64,
    },
    /// A rate, chunk or period of 0.
    #[error("a rate, a chunk and a period must be more than 0")]
    Zero,
}

/// Steps until the search for a fixed point is given up: the port is nearly full.
const STEPS: usize = 1_000_000;
/// Parts of the port's time, in which its use is counted.
const WHOLE: u128 = 1_000_000_000;

impl Port {
    /// How long these bytes are on the wire, ns, rounded up.
    fn wire_ns(&self, bytes: u128) -> u128 {
        (bytes * 8 * 1_000_000_000).div_ceil(self.bits_per_second.into())
    }

    /// Bytes of a message on the wire.
    fn whole(&self, bytes: usize) -> u128 {
        let chunks = bytes.div_ceil(self.chunk_bytes).max(1) as u128;
        bytes as u128 + chunks * self.overhead_bytes as u128
    }

    /// Bytes of its last chunk on the wire.
    fn last(&self, bytes: usize) -> u128 {
        let rest = match bytes % self.chunk_bytes {
            0 => bytes.min(self.chunk_bytes),
            rest => rest,
        };
        rest as u128 + self.overhead_bytes as u128
    }

    /// What can be posted at once.
    fn window(&self) -> u128 {
        self.window_bytes
            .max(self.chunk_bytes + self.overhead_bytes) as u128
    }

    /// Longest time from a message's send until it is handed out, ns, for each channel in the order given.
    /// Sound, not exact: messages of the same priority count as more urgent ones. Not real-time safe.
    ///
    /// # Errors
    ///
    /// [`NoBound`], for each channel of its own: the more urgent ones of an overloaded port have a bound.
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
            .map(|l| self.whole(l.bytes))
            .sum();
        let takes = |load: &Load| self.wire_ns(self.whole(load.bytes));

        let used: u128 = above
            .iter()
            .chain([&own])
            .map(|l| (takes(l) * WHOLE).div_ceil(l.period_ns.into()))
            .sum();
        let overload = NoBound::Overload {
            priority: own.priority,
            percent: u64::try_from((used * 100).div_ceil(WHOLE)).unwrap_or(u64::MAX),
        };
        if used >= WHOLE {
            return Err(overload);
        }

        // What is posted when the message comes goes first, however little urgent it is.
        let blocked = self.wire_ns(below.min(self.window()));
        let last = self.wire_ns(self.last(own.bytes));
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
                if steps > STEPS {
                    return Err(overload);
                }
            }
        };
        let mut longest = 0;
        for number in 0.. {
            let end = begins(number)? + last;
            longest = longest.max(end - (number * period).saturating_sub(jitter));
            // The next one comes when this one has left: the busy period is over.
            if end <= ((number + 1) * period).saturating_sub(jitter) {
                break;
            }
        }
        Ok(u64::try_from(longest + u128::from(self.way_ns)).unwrap_or(u64::MAX))
    }
}
