//! The sending side of a channel: loans payloads, sends them, and waits for consumers.

use super::delivery;
use super::events::{EndEvents, LinkId};
use super::options::OnDeath;
use super::reclaim::{self, Search, LIVENESS_NS};
use super::ring::CONSUMER;
use super::state::{ChannelState, CLOSED, SEVERED};
use super::stats::{self, ProducerStats};
use crate::memory::atomics::Ordering;
use crate::memory::region::PRODUCER;
use crate::wait::clock::now_ns;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use thiserror::Error;

/// The reason why a producer got no payload to fill.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum LoanError {
    #[error("a payload of {asked} bytes does not fit: the channel was created for at most {most}. Send less, or raise `payload_bytes`.")]
    TooLarge { asked: usize, most: usize },
    #[error("all {slots} payloads of the channel are in use. Check whether a consumer never drops its items.")]
    Exhausted { slots: usize },
}

/// The reason why an item was not sent.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum SendError {
    #[error(
        "only {attached} of {expected} expected consumers have attached. Attach all of them before sending."
    )]
    NotStarted { attached: usize, expected: usize },
    #[error("the channel has no credit: a consumer has not consumed {in_flight} items yet. Wait, or check the consumer.")]
    NoCredit { in_flight: u64 },
    #[error("a consumer died. Call `resume` to continue without it.")]
    ConsumerDied,
    #[error("the link to the consumers has broken. Connect again.")]
    Severed,
}

/// The reason why a copy of some bytes was not sent.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum SendCopyError {
    #[error(transparent)]
    Loan(#[from] LoanError),
    #[error(transparent)]
    Send(#[from] SendError),
}

/// An item that the channel refused, with the reason. The caller can send it again.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct Refused<'p> {
    pub reason: SendError,
    /// The filled payload, which the caller can send again or drop.
    pub loan: Loan<'p>,
}

/// The sending side of a channel.
pub struct Producer {
    state: Arc<ChannelState>,
    search_from: usize,
    /// A consumer died, and the program has not called `resume` since.
    failed: AtomicBool,
    /// The number of consumers that had died by the last [`Producer::check_consumers`].
    lost: AtomicU64,
    events: EndEvents,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Producer with {:?}", self.stats())
    }
}

impl Producer {
    pub(crate) fn new(state: Arc<ChannelState>) -> Producer {
        let lost = state.lost().load(Ordering::Relaxed);
        let depth = state.options.policy.depth();
        let link = state.link.get();
        Producer {
            events: link.map_or_else(EndEvents::default, |l| EndEvents::sending(l, depth)),
            state,
            search_from: 0,
            failed: AtomicBool::new(false),
            lost: AtomicU64::new(lost),
        }
    }

    /// Returns the channel's name in recordings, if it has one.
    pub fn link(&self) -> Option<&LinkId> {
        self.state.link.get()
    }

    /// Hides this producer from recorders. A relay calls this, because recorders have already seen
    /// its items at the producer that first sent them.
    pub fn set_unseen(&mut self) {
        self.events = EndEvents::default();
    }

    /// Loans a payload of `bytes` bytes, to be written and sent. The payload still has its old
    /// content. Real-time safe: checks each payload of the pool at most twice. Makes system calls
    /// only across processes, when all payloads are in use.
    pub fn loan(&mut self, bytes: usize) -> Result<Loan<'_>, LoanError> {
        let layout = self.state.layout;
        if bytes > layout.payload {
            return Err(LoanError::TooLarge {
                asked: bytes,
                most: layout.payload,
            });
        }
        reclaim::reap(&self.state, Search::Left);
        let slot = match self.free_slot() {
            Some(slot) => Some(slot),
            None if self.state.memory().is_shared() => {
                self.check_consumers();
                self.free_slot()
            }
            None => None,
        };
        slot.map(|slot| Loan {
            producer: self,
            slot,
            bytes,
        })
        .ok_or(LoanError::Exhausted {
            slots: layout.slots,
        })
    }

    fn free_slot(&mut self) -> Option<usize> {
        let slots = self.state.layout.slots;
        for _ in 0..slots {
            let slot = self.search_from;
            self.search_from = (self.search_from + 1) % slots;
            // Acquire: the last consumer that gave the slot back has finished reading it.
            if self.state.slot(slot).references().load(Ordering::Acquire) == 0 {
                return Some(slot);
            }
        }
        None
    }

    /// Sends a copy of these bytes. Waits for expected consumers, and for slow consumers if the
    /// policy needs that.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendCopyError> {
        let mut loan = self.loan(payload.len())?;
        loan.copy_from_slice(payload);
        Ok(loan.send()?)
    }

    /// Passes the producer's buffer to the consumers under [`Policy::Swap`](crate::Policy::Swap),
    /// even if it is not full yet. Each consumer gets the buffer as soon as its own buffer is
    /// empty.
    pub fn flush(&mut self) {
        delivery::notify_all(&self.state, |ring| {
            let tail = ring.tail().load(Ordering::Relaxed);
            ring.urgent().store(tail, Ordering::Relaxed);
        });
    }

    /// Looks for consumers in other processes that have died, reclaims their payloads, and reacts
    /// as the channel's [`OnDeath`] requires. Returns how many consumers died since the last check.
    ///
    /// A producer that waits, or finds no payload, calls this function itself. A producer that
    /// never waits should call it from time to time. Costs a system call for each consumer.
    pub fn check_consumers(&self) -> u64 {
        if !self.state.memory().is_shared() {
            return 0;
        }
        reclaim::reap(&self.state, Search::LeftAndDead);
        let lost = self.state.lost().load(Ordering::Relaxed);
        let died = lost.wrapping_sub(self.lost.swap(lost, Relaxed));
        if died > 0 {
            match self.state.options.on_death {
                OnDeath::Continue => {}
                OnDeath::Pause => self.state.started().store(0, Ordering::Relaxed),
                OnDeath::Fail => self.failed.store(true, Relaxed),
            }
        }
        died
    }

    /// Continues with the remaining consumers after [`SendError::ConsumerDied`].
    pub fn resume(&mut self) {
        self.failed.store(false, Relaxed);
    }

    /// Raises the number of the next item to `sequence`. Does nothing if `sequence` is smaller. A
    /// relay calls this when items were lost before they reached the relay. Real-time safe.
    pub fn skip_to(&mut self, sequence: u64) {
        self.state.sent().fetch_max(sequence, Ordering::Release);
    }

    /// Announces to consumers that no more items come. Dropping the producer does the same.
    pub fn end(&mut self) {
        let closed = self.state.closed();
        // A severed channel stays severed.
        let ended = closed.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed);
        if ended.is_ok() {
            delivery::notify_all(&self.state, |_| ());
        }
    }

    /// Withdraws [`Producer::end`], so that the producer can send more items. Attaching a new
    /// producer does the same.
    pub fn go_on(&mut self) {
        let closed = self.state.closed();
        let _ = closed.compare_exchange(CLOSED, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Ends the channel as broken, because the link to the source of its items has broken.
    /// Consumers get [`ReceiveError::Severed`](crate::ReceiveError::Severed) after the last item.
    pub fn sever(self) {
        self.state.closed().store(SEVERED, Ordering::Release);
    }

    /// Returns the number of consumers that are attached. A dead consumer counts until onbeat
    /// notices its death. Real-time safe.
    pub fn consumers(&self) -> usize {
        stats::attached(&self.state)
    }

    /// Returns how many items this channel's producers have sent, and how long the producers have
    /// waited for consumers.
    pub fn stats(&self) -> ProducerStats {
        stats::of_producer(&self.state)
    }

    fn obstacle(&self) -> Option<SendError> {
        let state = &self.state;
        if self.failed.load(Relaxed) {
            return Some(SendError::ConsumerDied);
        }
        if state.closed().load(Ordering::Acquire) == SEVERED {
            return Some(SendError::Severed);
        }
        if state.started().load(Ordering::Relaxed) == 0 {
            let (attached, expected) = (stats::attached(state), state.options.expected);
            if attached < expected {
                return Some(SendError::NotStarted { attached, expected });
            }
            state.started().store(1, Ordering::Relaxed);
        }
        if !state.options.policy.lets_producer_wait() {
            return None;
        }
        let lacks_credit = |r: &_| !delivery::has_credit(state, r);
        state
            .rings()
            .filter(|r| r.state().load(Ordering::Acquire) == CONSUMER && lacks_credit(r))
            .map(|r| u64::from(r.in_flight()))
            .max()
            .map(|in_flight| SendError::NoCredit { in_flight })
    }

    fn wait(&self, deadline_ns: Option<u64>) -> Result<(), SendError> {
        if self.obstacle().is_none() {
            return Ok(());
        }
        let state = &self.state;
        state.stalls().fetch_add(1, Ordering::Relaxed);
        let since = now_ns();
        loop {
            // Consumers in other processes may die without a signal, so the wait ends now and then
            // to check them.
            let check = state.memory().is_shared().then(|| now_ns() + LIVENESS_NS);
            let until = [deadline_ns, check].into_iter().flatten().min();
            let ready = state.producer_signal().wait(until, || {
                matches!(
                    self.obstacle(),
                    None | Some(SendError::ConsumerDied | SendError::Severed)
                )
            });
            let expired = deadline_ns.is_some_and(|d| now_ns() >= d);
            if ready || expired {
                state
                    .stalled_ns()
                    .fetch_add(now_ns() - since, Ordering::Relaxed);
                return self.obstacle().map_or(Ok(()), Err);
            }
            self.check_consumers();
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        reclaim::reap(&self.state, Search::Left);
        let closed = self.state.closed();
        // A severed channel stays severed.
        let _ = closed.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed);
        delivery::notify_all(&self.state, |_| ());
        self.state.region().release(PRODUCER);
    }
}

/// A payload that the producer fills. Dropping the loan unsent gives the payload back.
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
    /// Sends the payload. Waits for expected consumers, and for credit if the policy needs it.
    /// Fails only if a consumer died and the channel's [`OnDeath`] is `Fail`, or if the channel was
    /// severed.
    pub fn send(self) -> Result<(), SendError> {
        self.send_by(None).map_err(|refused| refused.reason)
    }

    /// Sends the payload if that is possible at once. Real-time safe: makes a system call only for
    /// each consumer that sleeps.
    pub fn try_send(self) -> Result<(), Refused<'p>> {
        match self.producer.obstacle() {
            None => {
                self.deliver();
                Ok(())
            }
            Some(reason) => Err(Refused { reason, loan: self }),
        }
    }

    /// Sends the payload as soon as possible. Waits at most until `deadline_ns` (CLOCK_MONOTONIC).
    pub fn send_until(self, deadline_ns: u64) -> Result<(), Refused<'p>> {
        self.send_by(Some(deadline_ns))
    }

    fn send_by(self, deadline_ns: Option<u64>) -> Result<(), Refused<'p>> {
        match self.producer.wait(deadline_ns) {
            Ok(()) => {
                self.deliver();
                Ok(())
            }
            Err(reason) => Err(Refused { reason, loan: self }),
        }
    }

    fn deliver(&self) {
        let state = &self.producer.state;
        self.producer
            .events
            .sent(state.sent().load(Ordering::Relaxed));
        delivery::deliver(state, self.slot, self.bytes, now_ns());
    }
}

impl Deref for Loan<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let slot = self.producer.state.slot(self.slot);
        // SAFETY: no consumer refers to the slot. The loan borrows the one producer, so it is the
        // only loan.
        unsafe { slot.payload(self.bytes) }
    }
}

impl DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let slot = self.producer.state.slot(self.slot);
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { slot.payload_mut(self.bytes) }
    }
}
