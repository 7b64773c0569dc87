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
//! sleep, where the policy says so). Receiving is the same. Across processes a producer makes a
//! few system calls more when a consumer has left, or when all payloads are in use.
//!
//! **Trust.** In shared memory every index and length is checked where it is used, and no loop is
//! longer than this process's own options say. Somebody who writes nonsense there can spoil the
//! items, also while they are read, and starve the others; he cannot make them read or write
//! elsewhere. Where a peer may be hostile, copy an item and then check the copy.
//!
//! **Death.** Each slot says which consumers refer to it, and the producer writes down what it is
//! about to do. So the references of a consumer that died can be taken back, and the next producer
//! can finish what the last one was doing, wherever it stopped.

use crate::consumer::Consumer;
use crate::faults::point;
use crate::layout::{head, Places, SLOT_HEAD};
use crate::memory::Memory;
use crate::options::{CreateError, OpenError, Options, Policy};
use crate::producer::Producer;
use crate::region::{Heap, Region, PRODUCER};
use crate::ring::{before, Head, Ring, CONSUMER, FREE, LEFT, OBSERVER};
use crate::signal::{Signal, Waker, Words};
use crate::sync::{fence, AtomicU32, AtomicU64, Ordering};
use std::sync::atomic::AtomicPtr;
use std::sync::Arc;
use thiserror::Error;

/// How long who waits for another process sleeps before it looks whether that one still lives.
pub(crate) const LOOK_NS: u64 = 100_000_000;

/// How often an attacher looks whether the producer is done handing over, and how long in between.
const LOOKS: usize = if cfg!(loom) { 2 } else { 100 };

fn give_way() {
    #[cfg(not(loom))]
    std::thread::sleep(std::time::Duration::from_micros(50));
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Why nobody could attach.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AttachError {
    /// There is a producer already.
    #[error("the channel has a producer already: drop it first")]
    SecondProducer,
    /// No place is free.
    #[error("the channel has places for {consumers} consumers and observers, all taken: raise `consumers`")]
    Full {
        /// Places.
        consumers: usize,
    },
    /// The waker waits for as many consumers of shared memory as it can.
    #[error("the waker already waits for {most} consumers of shared memory: use a thread more")]
    WakerFull {
        /// As many as it can.
        most: usize,
    },
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
    /// Consumers that died, and whose items were taken back.
    pub lost_consumers: u64,
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

/// A channel as everybody who takes part in this process has it.
pub(crate) struct Shared {
    /// As this process knows them; what stands in the memory is not asked again.
    pub(crate) options: Options,
    pub(crate) places: Places,
    memory: Memory,
    /// Where each consumer's thread sleeps, if not at its ring. An `Arc` each, which lives until
    /// the ring is emptied: by then no producer can be about to use it.
    wakers: Box<[AtomicPtr<Words>]>,
}

impl Shared {
    fn new(options: Options, places: Places, memory: Memory) -> Arc<Shared> {
        Arc::new(Shared {
            options,
            places,
            memory,
            wakers: (0..places.consumers)
                .map(|_| AtomicPtr::default())
                .collect(),
        })
    }

    #[inline]
    pub(crate) fn region(&self) -> &dyn Region {
        self.memory.region()
    }

    #[inline]
    pub(crate) fn ring(&self, consumer: usize) -> Ring<'_> {
        Ring::new(&self.memory, &self.places, consumer)
    }

    #[inline]
    pub(crate) fn rings(&self) -> impl Iterator<Item = Ring<'_>> {
        (0..self.places.consumers).map(|c| self.ring(c))
    }

    #[inline]
    pub(crate) fn producer_signal(&self) -> Signal<'_> {
        Signal::at(&self.memory, head::SIGNAL)
    }

    #[inline]
    pub(crate) fn sent(&self) -> &AtomicU64 {
        self.memory.u64(head::SENT)
    }

    pub(crate) fn stalls(&self) -> &AtomicU64 {
        self.memory.u64(head::STALLS)
    }

    pub(crate) fn stalled_ns(&self) -> &AtomicU64 {
        self.memory.u64(head::STALLED_NS)
    }

    /// All expected consumers have attached.
    #[inline]
    pub(crate) fn started(&self) -> &AtomicU32 {
        self.memory.u32(head::STARTED)
    }

    /// The producer has said that it goes.
    #[inline]
    pub(crate) fn closed(&self) -> &AtomicU32 {
        self.memory.u32(head::CLOSED)
    }

    /// How many producers there ever were.
    pub(crate) fn producers(&self) -> &AtomicU32 {
        self.memory.u32(head::PRODUCERS)
    }

    #[inline]
    fn delivering(&self) -> &AtomicU64 {
        self.memory.u64(head::DELIVERING)
    }

    #[inline]
    fn dropping(&self) -> &AtomicU64 {
        self.memory.u64(head::DROPPING)
    }

    /// Which consumers refer to a slot, a bit each.
    #[inline]
    pub(crate) fn references(&self, slot: usize) -> &AtomicU64 {
        self.memory.u64(self.places.slot(slot))
    }

    #[inline]
    pub(crate) fn sequence(&self, slot: usize) -> &AtomicU64 {
        self.memory.u64(self.places.slot(slot) + 8)
    }

    #[inline]
    pub(crate) fn time(&self, slot: usize) -> &AtomicU64 {
        self.memory.u64(self.places.slot(slot) + 16)
    }

    #[inline]
    pub(crate) fn length(&self, slot: usize) -> &AtomicU32 {
        self.memory.u32(self.places.slot(slot) + 24)
    }

    /// A slot's payload.
    ///
    /// # Safety
    /// As for [`Memory::bytes`].
    #[inline]
    pub(crate) unsafe fn payload(&self, slot: usize, bytes: usize) -> &[u8] {
        let bytes = bytes.min(self.places.payload);
        // SAFETY: the caller's.
        unsafe { self.memory.bytes(self.places.slot(slot) + SLOT_HEAD, bytes) }
    }

    /// A slot's payload, to be written.
    ///
    /// # Safety
    /// As for [`Memory::bytes_mut`].
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(crate) unsafe fn payload_mut(&self, slot: usize, bytes: usize) -> &mut [u8] {
        let bytes = bytes.min(self.places.payload);
        // SAFETY: the caller's.
        unsafe {
            self.memory
                .bytes_mut(self.places.slot(slot) + SLOT_HEAD, bytes)
        }
    }

    /// A consumer no longer refers to a slot; a number that is no slot's is nobody's.
    #[inline]
    pub(crate) fn release(&self, slot: u32, consumer: usize) {
        if (slot as usize) < self.places.slots {
            self.references(slot as usize)
                .fetch_and(!(1 << consumer), Ordering::Release);
        }
    }

    /// Wakes a consumer.
    #[inline]
    pub(crate) fn notify(&self, consumer: usize) {
        let waker = self.wakers[consumer].load(std::sync::atomic::Ordering::Acquire);
        if waker.is_null() {
            self.ring(consumer).signal().notify();
        } else {
            // SAFETY: made by `Arc::into_raw`, and given up only by `drop_waker`, which runs while
            // the producer is not handing anything over to this consumer.
            unsafe { (*waker).signal().notify() };
        }
    }

    fn set_waker(&self, consumer: usize, waker: &Waker) {
        let words = Arc::into_raw(Arc::clone(waker.words())).cast_mut();
        self.wakers[consumer].store(words, std::sync::atomic::Ordering::Release);
    }

    fn drop_waker(&self, consumer: usize) {
        let none = std::ptr::null_mut();
        let waker = self.wakers[consumer].swap(none, std::sync::atomic::Ordering::AcqRel);
        if !waker.is_null() {
            // SAFETY: made by `Arc::into_raw`, and taken out just now.
            drop(unsafe { Arc::from_raw(waker) });
        }
    }

    /// Takes back everything that an abandoned ring's consumer referred to. The caller has claimed
    /// the consumer's place, and the producer is not handing anything over to it.
    fn clean(&self, consumer: usize) {
        self.drop_waker(consumer);
        for slot in 0..self.places.slots {
            // Mostly nothing is to be done, and reading does not take the line from its reader.
            let bit = 1 << consumer;
            if self.references(slot).load(Ordering::Relaxed) & bit != 0 {
                self.references(slot).fetch_and(!bit, Ordering::Release);
            }
        }
        self.ring(consumer).state().store(FREE, Ordering::Release);
    }

    /// Consumers that ever died.
    pub(crate) fn lost(&self) -> &AtomicU64 {
        self.memory.u64(head::LOST)
    }

    /// The producer, between two items, takes back what consumers who are not there any more have
    /// left: those who left, and with `look` those who died.
    pub(crate) fn reap(&self, look: bool) {
        for (consumer, ring) in self.rings().enumerate() {
            let state = ring.state().load(Ordering::Acquire);
            let gone = match state {
                LEFT => true,
                CONSUMER | OBSERVER => look && !self.region().is_claimed(consumer + 1),
                _ => false,
            };
            // While it cleans up itself, or somebody else attaches there, it is not our business.
            if !gone || !self.region().claim(consumer + 1) {
                continue;
            }
            let state = ring.state().load(Ordering::Acquire);
            if state != FREE {
                let died = u64::from(state == CONSUMER);
                self.lost().fetch_add(died, Ordering::Relaxed);
                if state != LEFT {
                    ring.signal().reset();
                }
                self.clean(consumer);
            }
            self.region().release(consumer + 1);
        }
    }

    /// Who leaves, or attaches where somebody died, cleans a ring that it has claimed. `false` if
    /// the producer did not get done handing over meanwhile.
    pub(crate) fn clean_beside_producer(&self, consumer: usize) -> bool {
        self.ring(consumer).state().store(LEFT, Ordering::SeqCst);
        for _ in 0..LOOKS {
            // Either the producer sees that the consumer has left, or we that it is handing over.
            fence(Ordering::SeqCst);
            if self.delivering().load(Ordering::Acquire) == 0 {
                self.clean(consumer);
                return true;
            }
            if self.region().claim(PRODUCER) {
                // It died while it did.
                self.recover();
                self.region().release(PRODUCER);
            } else {
                give_way();
            }
        }
        false
    }

    pub(crate) fn attached(&self) -> usize {
        self.rings()
            .filter(|r| r.state().load(Ordering::Acquire) == CONSUMER)
            .count()
    }

    pub(crate) fn stats(&self) -> ProducerStats {
        let read = |offset| self.memory.u64(offset).load(Ordering::Relaxed);
        ProducerStats {
            sent: read(head::SENT),
            unheard: read(head::UNHEARD),
            stalls: read(head::STALLS),
            stalled_ns: read(head::STALLED_NS),
            lost_consumers: self.lost().load(Ordering::Relaxed),
        }
    }

    /// Number after the last entry of a ring that its consumer may take. Exchanges the buffers of a
    /// swap if it is time.
    #[inline]
    pub(crate) fn end(&self, ring: &Ring<'_>) -> u32 {
        let tail = ring.tail().load(Ordering::Acquire);
        let Policy::Swap { length, flush } = self.options.policy else {
            return tail;
        };
        let published = ring.published().load(Ordering::Acquire);
        let empty = ring.consumed().load(Ordering::Acquire) == published;
        let due = flush
            || tail.wrapping_sub(published) >= length as u32
            || before(published, ring.urgent().load(Ordering::Relaxed))
            || self.closed().load(Ordering::Acquire) != 0;
        if !empty || !due || tail == published {
            return published;
        }
        // Of two who exchange at once, one does.
        let exchanged =
            ring.published()
                .compare_exchange(published, tail, Ordering::AcqRel, Ordering::Acquire);
        exchanged.map_or_else(|theirs| theirs, |_| tail)
    }

    /// Is there room for one more item, as far as this ring goes?
    #[inline]
    pub(crate) fn has_credit(&self, ring: &Ring<'_>) -> bool {
        match self.options.policy {
            Policy::Credit { credits } => ring.in_flight() < credits as u32,
            Policy::Swap { length, .. } => {
                let filled = ring.tail().load(Ordering::Relaxed);
                filled.wrapping_sub(self.end(ring)) < length as u32
            }
            _ => true,
        }
    }

    /// Hands a filled payload to everybody. Only the producer calls this.
    #[inline]
    pub(crate) fn deliver(&self, slot: usize, bytes: usize, now_ns: u64) {
        let sequence = self.sent().load(Ordering::Relaxed);
        self.length(slot).store(bytes as u32, Ordering::Relaxed);
        self.sequence(slot).store(sequence, Ordering::Relaxed);
        self.time(slot).store(now_ns, Ordering::Relaxed);
        point();
        // From here on whoever comes after us would finish it.
        self.delivering().store(slot as u64 + 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.hand_over(slot, sequence, false);
    }

    /// Tells every consumer that something has changed; `each` is done for its ring before.
    pub(crate) fn notify_all(&self, each: impl Fn(&Ring<'_>)) {
        // As while handing over: nobody gives up a waker that we are about to use.
        self.delivering().store(u64::MAX, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for (consumer, ring) in self.rings().enumerate() {
            if matches!(ring.state().load(Ordering::Acquire), CONSUMER | OBSERVER) {
                each(&ring);
                self.notify(consumer);
            }
        }
        self.delivering().store(0, Ordering::Release);
    }

    fn hand_over(&self, slot: usize, sequence: u64, again: bool) {
        let depth = self.options.policy.depth() as u32;
        let mut heard = false;
        for (consumer, ring) in self.rings().enumerate() {
            point();
            let state = ring.state().load(Ordering::Acquire);
            if !matches!(state, CONSUMER | OBSERVER) {
                continue;
            }
            heard |= state == CONSUMER;
            if !(again && ring.has_pushed(slot as u32, sequence)) {
                // A consumer whose credit was waited for has room; an observer may not.
                let oldest = ring.make_room(depth, |before| {
                    let word = self.memory.u64(head::DROPPED_HEAD);
                    word.store(before.word(), Ordering::Relaxed);
                    self.dropping()
                        .store(consumer as u64 + 1, Ordering::Release);
                    point();
                });
                point();
                if let Some(oldest) = oldest {
                    self.release(oldest, consumer);
                    ring.count_dropped();
                }
                point();
                self.dropping().store(0, Ordering::Release);
                self.references(slot)
                    .fetch_or(1 << consumer, Ordering::AcqRel);
                point();
                ring.push(slot as u32, sequence);
            }
            point();
            if state == OBSERVER {
                let tail = ring.tail().load(Ordering::Relaxed);
                ring.published().store(tail, Ordering::Release);
            }
            if matches!(self.options.policy, Policy::Swap { .. }) {
                // Either the consumer sees what was pushed, or `end` that its buffer is empty.
                fence(Ordering::SeqCst);
            }
            if ring.head().number() != self.end(&ring) {
                self.notify(consumer);
            }
        }
        if !heard {
            let unheard = self.memory.u64(head::UNHEARD);
            unheard.fetch_add(1, Ordering::Relaxed);
        }
        point();
        self.sent()
            .store(sequence.wrapping_add(1), Ordering::Release);
        point();
        self.delivering().store(0, Ordering::Release);
    }

    /// Finishes what a producer that died was handing over. The caller has the producer's place.
    pub(crate) fn recover(&self) {
        let Some(slot) = self.delivering().load(Ordering::Acquire).checked_sub(1) else {
            return;
        };
        let slot = slot as usize;
        // Nonsense from somebody else, or it died after the last step.
        let known = slot < self.places.slots;
        if !known
            || self.sequence(slot).load(Ordering::Relaxed) != self.sent().load(Ordering::Relaxed)
        {
            self.delivering().store(0, Ordering::Release);
            return;
        }
        let dropping = self.dropping().load(Ordering::Acquire);
        let consumer = (dropping as usize).wrapping_sub(1);
        if consumer < self.places.consumers {
            let ring = self.ring(consumer);
            let word = self.memory.u64(head::DROPPED_HEAD).load(Ordering::Relaxed);
            let was = Head::from_word(word);
            if ring.head().dropped != was.dropped {
                self.release(ring.slot(was.number()), consumer);
                ring.count_dropped();
            }
            self.dropping().store(0, Ordering::Release);
        }
        let sequence = self.sent().load(Ordering::Relaxed);
        self.hand_over(slot, sequence, true);
    }

    /// A producer was there, and died without a word.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.region().is_shared()
            && self.producers().load(Ordering::Acquire) > 0
            && self.closed().load(Ordering::Acquire) == 0
            && !self.region().is_claimed(PRODUCER)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        (0..self.wakers.len()).for_each(|consumer| self.drop_waker(consumer));
    }
}

/// A channel. Its memory lives until its producer and all consumers are gone.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel from {:?}", self.shared.options)
    }
}

impl Channel {
    /// Makes a channel within this process; all its memory is reserved now.
    pub fn new(options: Options) -> Result<Channel, CreateError> {
        let places = options.places()?;
        let heap = Heap::new(places.size, places.consumers + 1);
        let heap = heap.ok_or(options.too_large(places.slots))?;
        Channel::format(Box::new(heap), options)
    }

    /// Makes a channel in memory that a transport brings: zeroed, and not used by anybody yet.
    pub fn format(region: Box<dyn Region>, options: Options) -> Result<Channel, CreateError> {
        let places = options.places()?;
        if region.size() < places.size {
            return Err(CreateError::Region {
                needed: places.size,
                size: region.size(),
            });
        }
        let memory = Memory::new(region);
        let started = u32::from(options.expected == 0);
        memory.u32(head::STARTED).store(started, Ordering::Relaxed);
        options.write(&memory);
        Ok(Channel {
            shared: Shared::new(options, places, memory),
        })
    }

    /// Attaches to a channel in memory where somebody else has made it. With `options` it must have
    /// been made from the same.
    pub fn open(region: Box<dyn Region>, options: Option<Options>) -> Result<Channel, OpenError> {
        let size = region.size();
        if size < head::SIZE {
            return Err(OpenError::Foreign);
        }
        let memory = Memory::new(region);
        let options = match options {
            Some(options) => options.compare(&memory).map(|()| options)?,
            None => Options::read(&memory)?,
        };
        let places = options.places()?;
        if size < places.size {
            let needed = places.size;
            return Err(OpenError::Impossible(CreateError::Region { needed, size }));
        }
        Ok(Channel {
            shared: Shared::new(options, places, memory),
        })
    }

    /// Was it made from these options? If not: the first difference.
    pub fn check(&self, options: &Options) -> Result<(), OpenError> {
        options.compare(&self.shared.memory)
    }

    /// What it was made from.
    pub fn options(&self) -> Options {
        self.shared.options
    }

    /// The one that sends. If the last one died while it handed an item over, that is finished.
    pub fn producer(&self) -> Result<Producer, AttachError> {
        let shared = &self.shared;
        // Who comes or leaves as a consumer may have the place for a moment, to finish what a producer
        // that died was doing.
        let mut looks = 1..LOOKS;
        while !shared.region().claim(PRODUCER) {
            if looks.next().is_none() {
                return Err(AttachError::SecondProducer);
            }
            give_way();
        }
        shared.producer_signal().reset();
        shared.recover();
        shared.closed().store(0, Ordering::Release);
        shared.producers().fetch_add(1, Ordering::AcqRel);
        Ok(Producer::new(Arc::clone(shared)))
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
        for consumer in 0..shared.places.consumers {
            if !shared.region().claim(consumer + 1) {
                continue;
            }
            let ring = shared.ring(consumer);
            let state_before = ring.state().load(Ordering::Acquire);
            // Whoever had it before died.
            let died = u64::from(state_before == CONSUMER);
            shared.lost().fetch_add(died, Ordering::Relaxed);
            if state_before != FREE && !shared.clean_beside_producer(consumer) {
                shared.region().release(consumer + 1);
                continue;
            }
            ring.reset();
            if matches!(state_before, CONSUMER | OBSERVER) {
                ring.signal().reset();
            }
            if let Some(waker) = waker {
                if !shared.region().is_shared() {
                    shared.set_waker(consumer, waker);
                } else if !waker.join(shared, consumer) {
                    shared.region().release(consumer + 1);
                    let most = crate::futex::MOST - 1;
                    return Err(AttachError::WakerFull { most });
                }
            }
            ring.state().store(state, Ordering::Release);
            // The producer may wait for the last one expected.
            shared.producer_signal().notify();
            return Ok(Consumer::new(Arc::clone(shared), consumer, waker.cloned()));
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

    /// Payloads that consumers refer to, because they wait or are held. Looks at all of the pool.
    pub fn payloads_in_use(&self) -> usize {
        let shared = &self.shared;
        let in_use = |&slot: &usize| shared.references(slot).load(Ordering::Acquire) != 0;
        (0..shared.places.slots).filter(in_use).count()
    }

    /// A producer was there, and died. `false` for one that was dropped: that is an end.
    pub fn is_orphaned(&self) -> bool {
        self.shared.is_orphaned()
    }
}

pub(crate) fn stats_of(ring: &Ring<'_>) -> ConsumerStats {
    ConsumerStats {
        waiting: u64::from(ring.waiting()),
        in_flight: u64::from(ring.in_flight()),
        dropped: ring.dropped(),
        observer: ring.state().load(Ordering::Relaxed) == OBSERVER,
    }
}
