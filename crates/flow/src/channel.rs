//! Channels: one producer, several consumers, and a policy for when a consumer is slower.
//!
//! | policy | when a consumer is slower | lost | waits |
//! |---|---|---|---|
//! | [`Policy::Latest`] | it sees the newest complete value | older values | nobody |
//! | [`Policy::DropOldest`] | its oldest item makes room | counted, both sides see how many | nobody |
//! | [`Policy::Credit`] | the producer sleeps until an item was *consumed* | nothing | producer |
//! | [`Policy::Swap`] | the producer sleeps until the other buffer is empty | nothing | producer |
//!
//! Which to take: `Latest` for state (a pose, a set-point), `DropOldest` where ROS 2's KEEP_LAST was
//! right, `Credit` where nothing may be lost; `Swap` where items are wanted in bursts.
//!
//! **Time.** Sending costs a number of steps that grows with the consumers and, in the worst case,
//! with the pool; no allocation, no lock, and a system call only to wake a sleeping consumer (or to
//! sleep, where the policy says so). Receiving is the same.

use crate::clock::now_ns;
use crate::layout::{Places, SLOT_HEAD};
use crate::memory::Memory;
use crate::ring::{Ring, CLAIMED, CONSUMER, FREE, LEFT, OBSERVER};
use crate::signal::{Signal, Waker, Words};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::Arc;
use thiserror::Error;

/// What happens when a consumer is slower than the producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// A consumer sees the newest complete value; nobody waits.
    Latest,
    /// Each consumer has a queue of `depth` items whose oldest is dropped for a new one, as a ROS
    /// topic's (concepts 1 and 2 of the paper on service-blocking queues, II.C). Drops are counted.
    DropOldest {
        /// Items that wait for a consumer at most.
        depth: usize,
    },
    /// The producer starts with so many credits for each consumer. Sending takes one, and the
    /// consumer gives it back when it has *consumed* the item; at zero the producer waits (concept
    /// 3, the modified token bucket). Nothing is lost; the slowest consumer decides.
    Credit {
        /// Items between producer and consumer at most.
        credits: usize,
    },
    /// Producer and each consumer have a buffer of their own, exchanged when the producer's is full
    /// and the consumer's empty (concept 4). Nothing is lost.
    Swap {
        /// Items in each of the two buffers.
        length: usize,
        /// An idle consumer also gets a buffer that is not full yet. Without it the first item of
        /// a buffer waits for the last, as in the paper.
        flush: bool,
    },
}

impl Policy {
    /// Items that one consumer can have before it at most.
    fn depth(self) -> usize {
        match self {
            Policy::Latest => 1,
            Policy::DropOldest { depth } => depth,
            Policy::Credit { credits } => credits,
            Policy::Swap { length, .. } => 2 * length,
        }
    }

    /// May the producer have to wait for a consumer?
    fn waits(self) -> bool {
        matches!(self, Policy::Credit { .. } | Policy::Swap { .. })
    }
}

/// What a channel is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What happens when a consumer is slower than the producer.
    pub policy: Policy,
    /// Size of the largest payload in bytes.
    pub payload_bytes: usize,
    /// Consumers and observers at most.
    pub consumers: usize,
    /// Items that one consumer may hold at a time.
    pub held: usize,
    /// So many consumers must have attached before the first item is sent, so that none misses it.
    pub expected: usize,
}

impl Options {
    /// A channel for up to four consumers that hold two items each; one is expected.
    pub fn new(policy: Policy, payload_bytes: usize) -> Options {
        Options {
            policy,
            payload_bytes,
            consumers: 4,
            held: 2,
            expected: 1,
        }
    }
}

/// Why a channel could not be made.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CreateError {
    /// A number in the options is zero, or too large to be meant.
    #[error("{what} is {value}: give 1 to {most}")]
    Number {
        /// Which.
        what: &'static str,
        /// As it was given.
        value: usize,
        /// The largest that can be had.
        most: usize,
    },
    /// More consumers are expected than can attach.
    #[error(
        "{expected} consumers are expected, but only {consumers} can attach: raise `consumers`"
    )]
    Expected {
        /// As it was given.
        expected: usize,
        /// As it was given.
        consumers: usize,
    },
    /// There is no memory of that size.
    #[error("no memory for {slots} payloads of {payload_bytes} bytes: use fewer or smaller ones")]
    Memory {
        /// Payloads in the pool.
        slots: usize,
        /// Size of each.
        payload_bytes: usize,
    },
}

/// Why nobody could attach.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AttachError {
    /// There is a producer already.
    #[error("the channel has a producer already: drop it first")]
    SecondProducer,
    /// No place is free.
    #[error("the channel has places for {consumers} consumers and observers, all taken: raise `consumers`, or have the producer send once if one has just left")]
    Full {
        /// Places.
        consumers: usize,
    },
}

/// Why a payload could not be loaned.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LoanError {
    /// It is larger than the channel's payloads.
    #[error("a payload of {asked} bytes does not fit: the channel was made for {most}")]
    TooLarge {
        /// Bytes asked for.
        asked: usize,
        /// The channel's.
        most: usize,
    },
    /// Every payload of the pool is in use: somebody did not give back what they hold.
    #[error("all {slots} payloads are in use: does a consumer keep its items?")]
    Exhausted {
        /// Payloads in the pool.
        slots: usize,
    },
}

/// Why an item was not sent.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum SendError {
    /// Not all expected consumers have attached yet.
    #[error("{attached} of {expected} consumers have attached: create all, then start")]
    NotStarted {
        /// Are there.
        attached: usize,
        /// Are waited for.
        expected: usize,
    },
    /// A consumer has consumed too little.
    #[error("no credit: a consumer still has {in_flight} items")]
    NoCredit {
        /// Items before the slowest consumer.
        in_flight: u64,
    },
}

/// A consumer holds as many items as it may.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{held} items are held at a time at most: drop one before receiving the next, or raise `held`"
)]
pub struct TooManyHeld {
    /// The channel's option.
    pub held: usize,
}

/// An item that was not sent, with the way to try again.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct Refused<'p> {
    /// Why.
    pub reason: SendError,
    /// The item, still to be sent.
    pub loan: Loan<'p>,
}

/// What a producer has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProducerStats {
    /// Items sent.
    pub sent: u64,
    /// Of those, items that nobody was there to receive.
    pub unheard: u64,
    /// How often the producer had to wait for a consumer.
    pub stalls: u64,
    /// How long altogether.
    pub stalled_ns: u64,
}

/// How far a consumer has got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsumerStats {
    /// Items waiting to be received.
    pub waiting: u64,
    /// Items waiting or received, of which it is not done.
    pub in_flight: u64,
    /// Items that were dropped for newer ones before it received them.
    pub dropped: u64,
    /// It never holds the producer up.
    pub observer: bool,
}

struct Shared {
    options: Options,
    places: Places,
    memory: Memory,
    /// Where each consumer's thread sleeps, if not at its ring. An `Arc` each, which lives until
    /// the ring is emptied: by then no producer can be about to use it.
    wakers: Box<[AtomicPtr<Words>]>,
    producer: AtomicBool,
    /// All expected consumers have attached once.
    started: AtomicBool,
    /// The producer has gone.
    closed: AtomicBool,
    sent: AtomicU64,
    unheard: AtomicU64,
    stalls: AtomicU64,
    stalled_ns: AtomicU64,
}

impl Shared {
    fn ring(&self, consumer: usize) -> Ring<'_> {
        Ring::new(&self.memory, &self.places, consumer)
    }

    fn rings(&self) -> impl Iterator<Item = Ring<'_>> {
        (0..self.places.consumers).map(|c| self.ring(c))
    }

    fn producer_signal(&self) -> Signal<'_> {
        Signal::at(&self.memory, Places::PRODUCER_SIGNAL)
    }

    /// Who still refers to a slot.
    fn references(&self, slot: usize) -> &std::sync::atomic::AtomicU32 {
        self.memory.u32(self.places.slot(slot))
    }

    fn length(&self, slot: usize) -> &std::sync::atomic::AtomicU32 {
        self.memory.u32(self.places.slot(slot) + 4)
    }

    fn sequence(&self, slot: usize) -> &AtomicU64 {
        self.memory.u64(self.places.slot(slot) + 8)
    }

    fn time(&self, slot: usize) -> &AtomicU64 {
        self.memory.u64(self.places.slot(slot) + 16)
    }

    fn payload(&self, slot: usize) -> usize {
        self.places.slot(slot) + SLOT_HEAD
    }

    /// One reference less; a number that is no slot's is nobody's.
    fn release(&self, slot: u32) {
        if (slot as usize) < self.places.slots {
            self.references(slot as usize)
                .fetch_sub(1, Ordering::Release);
        }
    }

    /// Wakes a consumer.
    fn notify(&self, consumer: usize) {
        let waker = self.wakers[consumer].load(Ordering::Acquire);
        if waker.is_null() {
            self.ring(consumer).signal().notify();
        } else {
            // SAFETY: made by `Arc::into_raw`, and given up only by `drop_waker`, which the
            // producer calls itself, or who has the ring while there is no producer.
            unsafe { (*waker).signal().notify() };
        }
    }

    fn drop_waker(&self, consumer: usize) {
        let waker = self.wakers[consumer].swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !waker.is_null() {
            // SAFETY: made by `Arc::into_raw`, and taken out just now.
            drop(unsafe { Arc::from_raw(waker) });
        }
    }

    /// Gives back what an abandoned ring refers to. Nobody else may touch the ring.
    fn empty(&self, consumer: usize) {
        let ring = self.ring(consumer);
        self.drop_waker(consumer);
        while let Some(slot) = ring.pop(ring.tail().load(Ordering::Acquire)) {
            self.release(slot);
        }
        ring.state().store(FREE, Ordering::Release);
    }

    fn attached(&self) -> usize {
        self.rings()
            .filter(|r| r.state().load(Ordering::Acquire) == CONSUMER)
            .count()
    }

    fn stats(&self) -> ProducerStats {
        ProducerStats {
            sent: self.sent.load(Ordering::Relaxed),
            unheard: self.unheard.load(Ordering::Relaxed),
            stalls: self.stalls.load(Ordering::Relaxed),
            stalled_ns: self.stalled_ns.load(Ordering::Relaxed),
        }
    }

    /// Entries of a ring that its consumer may take. Exchanges the buffers of a swap if it is time.
    fn end(&self, ring: &Ring<'_>) -> u64 {
        let tail = ring.tail().load(Ordering::Acquire);
        let Policy::Swap { length, flush } = self.options.policy else {
            return tail;
        };
        let published = ring.published().load(Ordering::Acquire);
        let empty = ring.consumed().load(Ordering::Acquire) == published;
        let due = flush
            || tail.wrapping_sub(published) >= length as u64
            || published < ring.urgent().load(Ordering::Relaxed)
            || self.closed.load(Ordering::Acquire);
        if empty && due {
            ring.published().fetch_max(tail, Ordering::AcqRel);
            return tail;
        }
        published
    }

    /// Is there room for one more item, as far as this ring goes?
    fn has_credit(&self, ring: &Ring<'_>) -> bool {
        match self.options.policy {
            Policy::Credit { credits } => ring.in_flight() < credits as u64,
            Policy::Swap { length, .. } => {
                let filled = ring.tail().load(Ordering::Relaxed);
                filled.wrapping_sub(self.end(ring)) < length as u64
            }
            _ => true,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        (0..self.wakers.len()).for_each(|consumer| self.drop_waker(consumer));
    }
}

/// A channel within a process. Lives until its producer and all consumers are gone.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
}

impl Channel {
    /// Makes a channel; all its memory is reserved now.
    pub fn new(options: Options) -> Result<Channel, CreateError> {
        let within = |what, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(CreateError::Number { what, value, most })
            }
        };
        within(
            "the number of items of the policy",
            options.policy.depth(),
            1,
            1 << 20,
        )?;
        within("`consumers`", options.consumers, 1, 1024)?;
        within("`held`", options.held, 1, 1 << 16)?;
        within("`payload_bytes`", options.payload_bytes, 1, 1 << 30)?;
        if options.expected > options.consumers {
            return Err(CreateError::Expected {
                expected: options.expected,
                consumers: options.consumers,
            });
        }
        let depth = options.policy.depth();
        // What each consumer can refer to at once, and what the producer fills meanwhile. A value
        // that is kept (`newest`) counts as one more.
        let slots = options.consumers * (depth + options.held + 1) + 1;
        let places = Places::new(
            options.consumers,
            depth.next_power_of_two(),
            slots,
            options.payload_bytes,
        );
        let missing = CreateError::Memory {
            slots,
            payload_bytes: options.payload_bytes,
        };
        let (Some(places), true) = (places, slots <= u32::MAX as usize) else {
            return Err(missing);
        };
        let memory = Memory::new(places.size).ok_or(missing)?;
        Ok(Channel {
            shared: Arc::new(Shared {
                options,
                places,
                memory,
                wakers: (0..options.consumers)
                    .map(|_| AtomicPtr::default())
                    .collect(),
                producer: AtomicBool::new(false),
                started: AtomicBool::new(options.expected == 0),
                closed: AtomicBool::new(false),
                sent: AtomicU64::new(0),
                unheard: AtomicU64::new(0),
                stalls: AtomicU64::new(0),
                stalled_ns: AtomicU64::new(0),
            }),
        })
    }

    /// The one that sends.
    pub fn producer(&self) -> Result<Producer, AttachError> {
        if self.shared.producer.swap(true, Ordering::AcqRel) {
            return Err(AttachError::SecondProducer);
        }
        self.shared.closed.store(false, Ordering::Release);
        Ok(Producer {
            shared: Arc::clone(&self.shared),
            cursor: 0,
        })
    }

    /// One that receives, from the next item on.
    pub fn consumer(&self) -> Result<Consumer, AttachError> {
        self.attach(CONSUMER, None)
    }

    /// The same for a thread that waits for more than this channel.
    pub fn consumer_on(&self, waker: &Waker) -> Result<Consumer, AttachError> {
        self.attach(CONSUMER, Some(waker))
    }

    /// One that receives without ever holding the producer up: what it does not receive in time is
    /// dropped, and counted, whatever the policy.
    pub fn observer(&self) -> Result<Consumer, AttachError> {
        self.attach(OBSERVER, None)
    }

    fn attach(&self, state: u32, waker: Option<&Waker>) -> Result<Consumer, AttachError> {
        let shared = &self.shared;
        for index in 0..shared.places.consumers {
            let ring = shared.ring(index);
            // Without a producer nobody else empties what was left.
            if !shared.producer.load(Ordering::Acquire)
                && ring
                    .state()
                    .compare_exchange(LEFT, CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                shared.empty(index);
            }
            let claimed =
                ring.state()
                    .compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
            if claimed.is_err() {
                continue;
            }
            let tail = ring.tail().load(Ordering::Acquire);
            ring.head().store(tail, Ordering::Relaxed);
            ring.consumed().store(tail, Ordering::Relaxed);
            ring.published().store(tail, Ordering::Relaxed);
            ring.urgent().store(tail, Ordering::Relaxed);
            ring.dropped().store(0, Ordering::Relaxed);
            if let Some(waker) = waker {
                let words = Arc::into_raw(Arc::clone(waker.words())).cast_mut();
                shared.wakers[index].store(words, Ordering::Release);
            }
            ring.state().store(state, Ordering::Release);
            // The producer may wait for the last one expected.
            shared.producer_signal().notify();
            return Ok(Consumer {
                shared: Arc::clone(shared),
                index,
                held: Cell::new(0),
                kept: Cell::new(None),
            });
        }
        Err(AttachError::Full {
            consumers: shared.places.consumers,
        })
    }

    /// How far each consumer and observer has got.
    pub fn consumers(&self) -> Vec<ConsumerStats> {
        self.shared
            .rings()
            .filter(|r| matches!(r.state().load(Ordering::Acquire), CONSUMER | OBSERVER))
            .map(|r| stats_of(&r))
            .collect()
    }

    /// What the producer has done.
    pub fn stats(&self) -> ProducerStats {
        self.shared.stats()
    }
}

fn stats_of(ring: &Ring<'_>) -> ConsumerStats {
    ConsumerStats {
        waiting: ring.waiting(),
        in_flight: ring.in_flight(),
        dropped: ring.dropped().load(Ordering::Relaxed),
        observer: ring.state().load(Ordering::Relaxed) == OBSERVER,
    }
}

/// The side that sends.
pub struct Producer {
    shared: Arc<Shared>,
    /// Where the search for a free payload begins.
    cursor: usize,
}

impl Producer {
    /// A payload of so many bytes, to be written and sent; its old content is still there. Looks
    /// at each payload of the pool once at most.
    pub fn loan(&mut self, bytes: usize) -> Result<Loan<'_>, LoanError> {
        let places = &self.shared.places;
        if bytes > places.payload {
            return Err(LoanError::TooLarge {
                asked: bytes,
                most: places.payload,
            });
        }
        self.reap();
        let places = &self.shared.places;
        for _ in 0..places.slots {
            let slot = self.cursor;
            self.cursor = (self.cursor + 1) % places.slots;
            // Whoever gave it back is done reading.
            if self.shared.references(slot).load(Ordering::Acquire) == 0 {
                return Ok(Loan {
                    producer: self,
                    slot,
                    bytes,
                });
            }
        }
        Err(LoanError::Exhausted {
            slots: places.slots,
        })
    }

    /// Sends a copy of these bytes, waiting if the policy says so.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), LoanError> {
        let mut loan = self.loan(payload.len())?;
        loan.copy_from_slice(payload);
        loan.send();
        Ok(())
    }

    /// Lets consumers have what is in the producer's buffer of a swap as soon as their own is
    /// empty.
    pub fn flush(&mut self) {
        for consumer in 0..self.shared.places.consumers {
            let ring = self.shared.ring(consumer);
            let tail = ring.tail().load(Ordering::Relaxed);
            ring.urgent().store(tail, Ordering::Relaxed);
            self.shared.notify(consumer);
        }
    }

    /// What was done so far.
    pub fn stats(&self) -> ProducerStats {
        self.shared.stats()
    }

    /// Empties the rings of consumers that have left.
    fn reap(&self) {
        for consumer in 0..self.shared.places.consumers {
            if self.shared.ring(consumer).state().load(Ordering::Acquire) == LEFT {
                self.shared.empty(consumer);
            }
        }
    }

    /// Why an item cannot be sent just now.
    fn obstacle(&self) -> Option<SendError> {
        let shared = &self.shared;
        if !shared.started.load(Ordering::Relaxed) {
            let (attached, expected) = (shared.attached(), shared.options.expected);
            if attached < expected {
                return Some(SendError::NotStarted { attached, expected });
            }
            shared.started.store(true, Ordering::Relaxed);
        }
        if !shared.options.policy.waits() {
            return None;
        }
        shared
            .rings()
            .filter(|r| r.state().load(Ordering::Acquire) == CONSUMER && !shared.has_credit(r))
            .map(|r| r.in_flight())
            .max()
            .map(|in_flight| SendError::NoCredit { in_flight })
    }

    /// Waits until an item can be sent.
    fn wait(&self, deadline_ns: Option<u64>) -> Result<(), SendError> {
        if self.obstacle().is_none() {
            return Ok(());
        }
        let shared = &self.shared;
        shared.stalls.fetch_add(1, Ordering::Relaxed);
        let since = now_ns();
        let mut obstacle = None;
        shared.producer_signal().wait(deadline_ns, || {
            obstacle = self.obstacle();
            obstacle.is_none()
        });
        shared
            .stalled_ns
            .fetch_add(now_ns() - since, Ordering::Relaxed);
        obstacle.map_or(Ok(()), Err)
    }

    /// Hands a filled payload to everybody.
    fn deliver(&self, slot: usize, bytes: usize) {
        let shared = &self.shared;
        let sequence = shared.sent.load(Ordering::Relaxed);
        shared.length(slot).store(bytes as u32, Ordering::Relaxed);
        shared.sequence(slot).store(sequence, Ordering::Relaxed);
        shared.time(slot).store(now_ns(), Ordering::Relaxed);
        // Our own reference, so that a fast consumer's does not free the slot under the others.
        shared.references(slot).store(1, Ordering::Relaxed);
        let mut heard = false;
        for consumer in 0..shared.places.consumers {
            let ring = shared.ring(consumer);
            let state = ring.state().load(Ordering::Acquire);
            if !matches!(state, CONSUMER | OBSERVER) {
                continue;
            }
            heard |= state == CONSUMER;
            shared.references(slot).fetch_add(1, Ordering::Relaxed);
            // A consumer whose credit was waited for has room; an observer may not.
            let depth = shared.options.policy.depth() as u64;
            if let Some(oldest) = ring.push(slot as u32, depth) {
                shared.release(oldest);
            }
            if state == OBSERVER {
                let tail = ring.tail().load(Ordering::Relaxed);
                ring.published().store(tail, Ordering::Release);
            }
            let (head, end) = (ring.head().load(Ordering::Relaxed), shared.end(&ring));
            if head != end {
                shared.notify(consumer);
            }
        }
        shared.release(slot as u32);
        if !heard {
            shared.unheard.fetch_add(1, Ordering::Relaxed);
        }
        shared.sent.store(sequence + 1, Ordering::Relaxed);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.reap();
        self.shared.closed.store(true, Ordering::Release);
        (0..self.shared.places.consumers).for_each(|c| self.shared.notify(c));
        self.shared.producer.store(false, Ordering::Release);
    }
}

/// A payload that the producer fills. Dropping it unsent gives it back.
pub struct Loan<'p> {
    producer: &'p Producer,
    slot: usize,
    bytes: usize,
}

impl std::fmt::Debug for Loan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loan of {} bytes", self.bytes)
    }
}

impl<'p> Loan<'p> {
    /// Sends it, waiting for as long as the policy says, and for the consumers that are expected.
    pub fn send(self) {
        // Without a deadline nothing is refused.
        let _ = self.send_by(None);
    }

    /// Sends it if that is possible at once.
    pub fn try_send(self) -> Result<(), Refused<'p>> {
        match self.producer.obstacle() {
            None => self.send_by(None),
            Some(reason) => Err(Refused { reason, loan: self }),
        }
    }

    /// Sends it as soon as possible, until `deadline_ns` (CLOCK_MONOTONIC).
    pub fn send_until(self, deadline_ns: u64) -> Result<(), Refused<'p>> {
        self.send_by(Some(deadline_ns))
    }

    fn send_by(self, deadline_ns: Option<u64>) -> Result<(), Refused<'p>> {
        match self.producer.wait(deadline_ns) {
            Ok(()) => {
                self.producer.deliver(self.slot, self.bytes);
                Ok(())
            }
            Err(reason) => Err(Refused { reason, loan: self }),
        }
    }
}

impl Deref for Loan<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let shared = &self.producer.shared;
        // SAFETY: nobody refers to the slot, and a loan borrows the one producer, so that it is
        // the only one.
        unsafe { shared.memory.bytes(shared.payload(self.slot), self.bytes) }
    }
}

impl DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let shared = &self.producer.shared;
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe {
            shared
                .memory
                .bytes_mut(shared.payload(self.slot), self.bytes)
        }
    }
}

/// A side that receives.
pub struct Consumer {
    shared: Arc<Shared>,
    index: usize,
    held: Cell<usize>,
    /// The value that `newest` showed last.
    kept: Cell<Option<u32>>,
}

impl Consumer {
    fn ring(&self) -> Ring<'_> {
        self.shared.ring(self.index)
    }

    /// The next item, if there is one, to be read in place. It counts as consumed when it is
    /// dropped. Where it is more than the consumer may hold, nothing is received.
    pub fn try_receive(&self) -> Result<Option<Item<'_>>, TooManyHeld> {
        let held = self.shared.options.held;
        if self.held.get() >= held {
            return Err(TooManyHeld { held });
        }
        Ok(self.next())
    }

    /// The next item, if there is one; `None` also while as many are held as may be.
    pub fn receive(&self) -> Option<Item<'_>> {
        self.try_receive().ok().flatten()
    }

    /// The next item. Sleeps until there is one or it is `deadline_ns` (CLOCK_MONOTONIC), or until
    /// the producer has gone and everything was received. A consumer with a [`Waker`] sleeps there.
    pub fn receive_until(&self, deadline_ns: Option<u64>) -> Result<Option<Item<'_>>, TooManyHeld> {
        let ring = self.ring();
        let waker = self.shared.wakers[self.index].load(Ordering::Acquire);
        let signal = if waker.is_null() {
            ring.signal()
        } else {
            // SAFETY: it lives at least until this consumer has left.
            unsafe { (*waker).signal() }
        };
        loop {
            let mut gone = false;
            let ready = signal.wait(deadline_ns, || {
                gone = self.shared.closed.load(Ordering::Acquire);
                gone || ring.head().load(Ordering::Relaxed) != self.shared.end(&ring)
            });
            let item = self.try_receive()?;
            // While the producer drops the last item for a newer one, there is none for a moment.
            if item.is_some() || gone || !ready {
                return Ok(item);
            }
        }
    }

    /// The newest complete value, also if it was shown before; `None` before the first. Older ones
    /// are passed over.
    pub fn newest(&mut self) -> Option<Item<'_>> {
        while let Some(slot) = self.take() {
            if let Some(old) = self.kept.replace(Some(slot)) {
                self.shared.release(old);
            }
            self.ring().consumed().fetch_add(1, Ordering::Release);
            self.shared.producer_signal().notify();
        }
        let slot = self.kept.get()?;
        Some(Item {
            consumer: self,
            slot: slot as usize,
            kept: true,
        })
    }

    /// The producer has gone, and everything was received.
    pub fn is_over(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire) && self.ring().waiting() == 0
    }

    /// How far this consumer has got.
    pub fn stats(&self) -> ConsumerStats {
        stats_of(&self.ring())
    }

    /// What the producer has done.
    pub fn producer_stats(&self) -> ProducerStats {
        self.shared.stats()
    }

    fn take(&self) -> Option<u32> {
        let ring = self.ring();
        let mut end = self.shared.end(&ring);
        loop {
            if let Some(slot) = ring.pop(end) {
                return ((slot as usize) < self.shared.places.slots).then_some(slot);
            }
            // The producer may have dropped everything below `end` for something newer.
            let now = self.shared.end(&ring);
            if now == end {
                return None;
            }
            end = now;
        }
    }

    fn next(&self) -> Option<Item<'_>> {
        let slot = self.take()?;
        self.held.set(self.held.get() + 1);
        Some(Item {
            consumer: self,
            slot: slot as usize,
            kept: false,
        })
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.shared.release(kept);
        }
        self.ring().state().store(LEFT, Ordering::Release);
        // Its credits are back.
        self.shared.producer_signal().notify();
    }
}

/// An item, read where the producer has written it.
pub struct Item<'c> {
    consumer: &'c Consumer,
    slot: usize,
    kept: bool,
}

impl Item<'_> {
    /// Number of the item since the channel was made, from 0: a gap is a loss.
    pub fn sequence(&self) -> u64 {
        let shared = &self.consumer.shared;
        shared.sequence(self.slot).load(Ordering::Relaxed)
    }

    /// When it was sent (CLOCK_MONOTONIC).
    pub fn sent_ns(&self) -> u64 {
        let shared = &self.consumer.shared;
        shared.time(self.slot).load(Ordering::Relaxed)
    }
}

impl Deref for Item<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let shared = &self.consumer.shared;
        let bytes = shared.length(self.slot).load(Ordering::Relaxed) as usize;
        // SAFETY: the item refers to the slot, so that the producer does not loan it again; what
        // was written before is seen, because the slot's number was read with Acquire.
        unsafe {
            shared
                .memory
                .bytes(shared.payload(self.slot), bytes.min(shared.places.payload))
        }
    }
}

impl Drop for Item<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let consumer = self.consumer;
        consumer.held.set(consumer.held.get() - 1);
        consumer.shared.release(self.slot as u32);
        consumer.ring().consumed().fetch_add(1, Ordering::Release);
        consumer.shared.producer_signal().notify();
    }
}
