//! The longest time that a message takes over a port which several channels share, by fixed
//! priorities.
//!
//! Fixed-point preemption cuts messages into chunks and limits the bytes that are posted at once to
//! a window. Between chunks the most urgent message goes first (thesis, 5.4.3, which leaves the
//! analysis to others). This module does the analysis: non-preemptive fixed priorities with
//! blocking, over the whole busy period (Davis, Burns, Bril and Lukkien, *Controller Area Network
//! (CAN) schedulability analysis*, 2007, with chunks in the place of frames).
//!
//! # Assumptions
//!
//! - The sender's egress is the bottleneck, keeps its rate and loses nothing. Nobody else sends
//!   through the port. Receivers that several senders share (incast) are not modelled.
//! - No channel sends more, or more often, than its [`Load`] says.
//! - Between the departure of a message's last byte and its arrival in the receiver's kernel lie at
//!   most [`Port::way_ns`]. The acknowledgement takes as long again.
//! - The threads of all links get their CPUs as [`Cpu`] says. A *step* is one of six things: an
//!   application hands a message over; a writer posts a chunk; a receiver reads what has arrived; an
//!   application takes a message; a receiver answers; a sender hears an acknowledgement. A step is
//!   due when its cause is there. It is done [`Cpu::wake_ns`] later at most, and its time beyond
//!   that is a stall. The times at which some step stalls sum up to [`Cpu::stall_ns`] at most, over
//!   one busy period of the port. Links record their stalls ([`crate::status`]).
//!
//! # Derivation
//!
//! Let *C* be the wire time of a whole chunk, *W* of the window, *w* the whole chunks in it, *u* the
//! usual time of a step, *D* the sum of stalls. A chunk's bytes leave the window one *turn* after
//! they left the wire: the way there and back, hearing of it, and posting the next chunk, *2 way +
//! 2 u*. The last chunk of a message is acknowledged by the receiver's answer: *2 u* more.
//!
//! 1. **From the complete message to the wire.** The message has its place once it is handed over
//!    (*u*). From then on nothing less urgent is granted. Chunks that were granted before take *W*
//!    at most, or as much as less urgent messages have, and the first of them is posted *u* later at
//!    most. A message of one chunk needs its own size of the window. This is free one turn after
//!    that many bytes and one chunk have left. A message of several chunks, or behind one, needs the
//!    whole window. So the start is delayed by *u + u + max(W, min(W, C + own size) + turn)*, with
//!    the long turn of a last chunk, and *W* in the place of the minimum for several chunks.
//! 2. **Messages that go first**: the more urgent ones, those of the same priority, and earlier ones
//!    of the same channel. Each takes the wire time of its chunks, and the wire may idle for it: *u*
//!    until its writer posts, *u* until the next writer is woken, and one long turn for each further
//!    chunk of the window, because a small chunk in the window leaves no room for a whole one.
//! 3. **Between whole chunks** the wire idles only if a turn takes longer than the rest of the
//!    window, *(w - 1) C*, or a step longer than *C*.
//! 4. **Stalls.** At any time, the wire sends bytes of 1 to 3, or it idles for a reason of 1 to 3,
//!    or a step stalls. So stalls add *D* at most. If the usual time of the most urgent writer's step
//!    and its stall reach the port's patience, others pass it over: once at most for each whole
//!    *patience - u* in *D*. The writer then waits as in 1. If *u* alone reaches the patience, a
//!    channel with less urgent ones has no bound.
//! 5. **After the wire**: the way, *u* to read the message, *u* to take it.
//!
//! The sum over a busy period is a fixed point, since more messages arrive while it lasts.
//! `tests/bound.rs` compares the bound with a simulation of port, wire, threads and stalls.

use thiserror::Error;

/// The network interface through which all channels of an analysis send. Messages leave in chunks.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    pub bits_per_second: u64,
    /// The largest number of content bytes in a chunk. Each message is sent in chunks.
    pub chunk_bytes: usize,
    /// The window, in bytes on the wire: the limit for chunks that were written and have not left
    /// the host yet. If a chunk is larger than the window, one chunk is allowed.
    pub window_bytes: usize,
    /// The bytes that each chunk needs on the wire besides its content: the headers of all layers.
    pub overhead_bytes: usize,
    /// The time from the departure of a message's last byte until this byte is in the receiver's
    /// kernel.
    pub way_ns: u64,
    /// The time for which other writers wait for the most urgent writer if this writer could send
    /// but does not send ([`Settings::patience`](crate::port::Settings::patience)).
    pub patience_ns: u64,
}

/// An assumption about how long the threads of links wait for their CPUs, on both hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// The longest usual time of one step of a thread. The time begins with the event that makes
    /// the step necessary, and ends when the step is done.
    pub wake_ns: u64,
    /// The longest total time, over one busy period of the port, during which steps are late by
    /// more than `wake_ns`. A busy period ends when the receiver's application takes a message. It
    /// begins when the sender's application hands this message over, or earlier if the port was
    /// busy with messages that are at least as urgent.
    pub stall_ns: u64,
}

impl Cpu {
    /// The assumption that threads take no time. A bound then contains only the wire and the
    /// protocol.
    pub const IDEAL: Cpu = Cpu {
        wake_ns: 0,
        stall_ns: 0,
    };
}

impl Default for Cpu {
    /// Returns the assumption for threads with a real-time priority on a machine with spare CPU
    /// time: 0.1 ms for each step, and stalls of 1 ms.
    fn default() -> Cpu {
        Cpu {
            wake_ns: 100_000,
            stall_ns: 1_000_000,
        }
    }
}

/// The longest latency of a channel's messages, in its two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The part of the latency that the wire and the protocol cause. This part is the whole latency
    /// if threads take no time.
    pub wire_ns: u64,
    /// The part of the latency that the CPUs cause: the time that threads need for their steps
    /// ([`Cpu::wake_ns`]) and the stalls of these steps ([`Cpu::stall_ns`]).
    pub cpu_ns: u64,
}

impl Bound {
    /// Returns the longest latency: the sum of both parts.
    pub fn longest_ns(&self) -> u64 {
        self.wire_ns.saturating_add(self.cpu_ns)
    }
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
    /// The jitter: the longest time by which a message may come later than its period requires, in
    /// ns.
    pub jitter_ns: u64,
}

/// The reason why a channel has no bound.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoBound {
    #[error("no bound exists, because channels of priority {priority} and above need {percent} % of the port's time. This includes idle times of the wire if the window is smaller than a round trip. Send less, or enlarge the window.")]
    Overload { priority: u8, percent: u64 },
    #[error("no bound exists, because channels of priority {priority} and above need {percent} % of the port's time. This includes the assumed time of each step of a link's thread, such as posting a chunk. Send less often, or assume a shorter time for each step (`wake_ns`).")]
    Steps { priority: u8, percent: u64 },
    #[error("no bound exists, because less urgent channels can overtake the most urgent one again and again. They wait for it at most {} us (the port's patience), and each step of a link's thread, such as posting a chunk, is assumed to take at least this time. Assume a shorter time for each step (`wake_ns`), or set a longer patience.", patience_ns / 1000)]
    Patience { patience_ns: u64 },
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

    fn times(&self, cpu: &Cpu) -> Times {
        let chunk_bytes = (self.chunk_bytes + self.overhead_bytes) as u128;
        let (chunk, wake) = (self.wire_ns(chunk_bytes), u128::from(cpu.wake_ns));
        let further = self.usable_window_bytes() / chunk_bytes - 1;
        let turn = 2 * u128::from(self.way_ns) + 2 * wake;
        let hidden = further * chunk;
        Times {
            wake,
            long_turn: turn + 2 * wake,
            between_chunks: match further {
                0 => turn,
                _ => turn.saturating_sub(hidden).max(wake.saturating_sub(chunk)),
            },
            of_message: 2 * wake + further * turn + 2 * wake,
        }
    }

    /// Returns the longest time from when a message is complete at the sender until the receiver's
    /// application gets it, for each channel in the order of `loads`. The bound is safe, but not
    /// exact: messages of the same priority count as more urgent ones. Not real-time safe.
    ///
    /// # Errors
    ///
    /// [`NoBound`], separately for each channel: on an overloaded port the more urgent channels
    /// still have a bound.
    pub fn bounds(&self, loads: &[Load], cpu: &Cpu) -> Vec<Result<Bound, NoBound>> {
        let of = |at| {
            let wire_ns = self.longest_ns(loads, at, &Cpu::IDEAL)?;
            let longest_ns = self.longest_ns(loads, at, cpu).map_err(|no| match no {
                NoBound::Overload { priority, percent } => NoBound::Steps { priority, percent },
                other => other,
            })?;
            Ok(Bound {
                wire_ns,
                cpu_ns: longest_ns.saturating_sub(wire_ns),
            })
        };
        (0..loads.len()).map(of).collect()
    }

    fn longest_ns(&self, loads: &[Load], at: usize, cpu: &Cpu) -> Result<u64, NoBound> {
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
        let times = self.times(cpu);
        let itself = |load: &Load| {
            let chunks = load.bytes.div_ceil(self.chunk_bytes).max(1) as u128;
            self.wire_ns(self.wire_bytes(load.bytes)) + chunks * times.between_chunks
        };
        let takes = |load: &Load| itself(load) + times.of_message;

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

        let largest = above.iter().map(|l| l.bytes).fold(own.bytes, usize::max);
        let start = self.start_ns(below, largest, &times);
        let passed_over = match below {
            0 => 0,
            _ => u128::from(self.most_passed_over(cpu)?),
        };
        let blocked = start + u128::from(cpu.stall_ns) + passed_over * start;
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
                let next = blocked + number * takes(&own) + itself(&own) - last + before;
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
        let after = u128::from(self.way_ns) + 2 * times.wake;
        Ok(u64::try_from(longest + after).unwrap_or(u64::MAX))
    }

    /// Returns the longest time for which the first chunk of a complete message waits for chunks
    /// that the port granted earlier (step 1 of the derivation in the module's documentation).
    /// `below_bytes` counts one message of each less urgent channel, as on the wire. `largest` is
    /// the size of the largest message: either one that leaves before the complete message, or the
    /// complete message itself.
    fn start_ns(&self, below_bytes: u128, largest: usize, times: &Times) -> u128 {
        let window = below_bytes.min(self.usable_window_bytes());
        let first = (self.chunk_bytes + largest + 2 * self.overhead_bytes) as u128;
        let is_one_chunk = largest <= self.chunk_bytes;
        let before = if is_one_chunk { first } else { window };
        let until_room = self.wire_ns(window.min(before)) + times.long_turn;
        2 * times.wake + self.wire_ns(window).max(until_room)
    }

    /// Returns the largest number of times in one busy period that other writers overtake the most
    /// urgent writer. They overtake this writer when its thread does not get a CPU in time.
    fn most_passed_over(&self, cpu: &Cpu) -> Result<u64, NoBound> {
        let patience_ns = self.patience_ns;
        let least_stall_ns = patience_ns.checked_sub(cpu.wake_ns);
        let passed_over = least_stall_ns.and_then(|least_ns| cpu.stall_ns.checked_div(least_ns));
        passed_over.ok_or(NoBound::Patience { patience_ns })
    }
}

/// The times that the derivation of a bound uses, in ns.
struct Times {
    wake: u128,
    long_turn: u128,
    /// The longest idle time of the wire that each chunk of a message adds.
    between_chunks: u128,
    /// The longest idle time of the wire that a message adds once, however many chunks it has.
    of_message: u128,
}
