//! Creates and opens channels, and attaches producers, consumers and observers to them.

use super::consumer::Consumer;
use super::delivery::recover;
use super::description::{self, OpenError};
use super::events::LinkId;
use super::layout::head;
use super::options::{CreateError, Options};
use super::producer::Producer;
use super::progress::Progress;
use super::reclaim::{self, POLLS};
use super::ring::{CONSUMER, FREE, OBSERVER};
use super::state::{ChannelState, CLOSED, SEVERED};
use super::stats::{self, ConsumerStats, ProducerStats};
use crate::memory::atomics::Ordering;
use crate::memory::region::{Heap, Region, PRODUCER};
use crate::memory::Memory;
use crate::wait::{Waker, MAX_REMOTE_SIGNALS};
use std::sync::Arc;
use thiserror::Error;

/// The reason why a producer, consumer or observer could not attach to a channel.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AttachError {
    #[error("the channel already has a producer. Drop that producer first.")]
    SecondProducer,
    #[error("the channel already has {consumers} consumers and observers, its limit. Raise `consumers` in the channel's options.")]
    Full { consumers: usize },
    #[error("the waker already waits for {most} consumers in shared memory, its limit. Use a second thread with its own waker.")]
    WakerFull { most: usize },
}

/// A channel. Its memory is freed when its producer and all consumers are gone.
#[derive(Clone)]
pub struct Channel {
    state: Arc<ChannelState>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel from {:?}", self.state.options)
    }
}

impl Channel {
    /// Creates a channel within this process, and allocates all of the channel's memory.
    pub fn new(options: Options) -> Result<Channel, CreateError> {
        let layout = options.layout()?;
        let heap = Heap::new(layout.size, layout.consumers + 1);
        let heap = heap.ok_or(options.too_large(layout.slots))?;
        Channel::format(Box::new(heap), options)
    }

    /// Creates a channel in memory that a transport provides. The memory must be zeroed and unused.
    pub fn format(region: Box<dyn Region>, options: Options) -> Result<Channel, CreateError> {
        let layout = options.layout()?;
        if region.size() < layout.size {
            return Err(CreateError::Region {
                needed: layout.size,
                size: region.size(),
            });
        }
        let memory = Memory::new(region);
        let started = u32::from(options.expected == 0);
        memory.u32(head::STARTED).store(started, Ordering::Relaxed);
        description::write(&options, &memory);
        Ok(Channel {
            state: ChannelState::new(options, layout, memory),
        })
    }

    /// Opens a channel that another participant has created in this memory. Fails if `options` are
    /// given and differ from the creator's.
    pub fn open(region: Box<dyn Region>, options: Option<Options>) -> Result<Channel, OpenError> {
        let size = region.size();
        if size < head::SIZE {
            return Err(OpenError::Foreign);
        }
        let memory = Memory::new(region);
        let options = match options {
            Some(options) => description::compare(&options, &memory).map(|()| options)?,
            None => description::read(&memory)?,
        };
        let layout = options.layout()?;
        if size < layout.size {
            let needed = layout.size;
            return Err(OpenError::Impossible(CreateError::Region { needed, size }));
        }
        Ok(Channel {
            state: ChannelState::new(options, layout, memory),
        })
    }

    /// Gives the channel a name in recordings. A recorder sees producers and consumers that attach
    /// after this call. If the channel has a name already, the call changes nothing.
    pub fn known_as(self, link: LinkId) -> Channel {
        let _ = self.state.link.set(link);
        self
    }

    /// Returns the channel's name in recordings, if it has one.
    pub fn link(&self) -> Option<&LinkId> {
        self.state.link.get()
    }

    /// Returns an object that shows how many items the consumers have consumed.
    pub fn progress(&self) -> Progress {
        Progress::new(Arc::clone(&self.state))
    }

    /// Reports whether the link between the channel and its producer has broken: see
    /// [`Progress::sever`].
    pub fn is_severed(&self) -> bool {
        self.state.closed().load(Ordering::Acquire) == SEVERED
    }

    /// Compares these options with those of the channel. The error names the first difference.
    pub fn check(&self, options: &Options) -> Result<(), OpenError> {
        description::compare(options, self.state.memory())
    }

    /// Returns the options that the channel was created with.
    pub fn options(&self) -> Options {
        self.state.options
    }

    /// Attaches the producer. If the previous producer died during a delivery, this call finishes
    /// that delivery.
    pub fn producer(&self) -> Result<Producer, AttachError> {
        let state = &self.state;
        // A consumer that attaches or leaves may hold the producer's place for a moment: it then
        // finishes the delivery of a dead producer.
        let mut polls = 1..POLLS;
        while !state.region().claim(PRODUCER) {
            if polls.next().is_none() {
                return Err(AttachError::SecondProducer);
            }
            reclaim::pause();
        }
        state.producer_signal().reset();
        recover(state);
        // A severed channel stays severed.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = state.closed().compare_exchange(CLOSED, 0, order.0, order.1);
        state.producers().fetch_add(1, Ordering::AcqRel);
        Ok(Producer::new(Arc::clone(state)))
    }

    /// Attaches a consumer. It receives the items that are sent from now on.
    pub fn consumer(&self) -> Result<Consumer, AttachError> {
        self.attach(CONSUMER, None)
    }

    /// Attaches a consumer whose new items wake the thread that sleeps at `waker`. In this way, one
    /// thread can wait for several channels.
    pub fn consumer_on(&self, waker: &Waker) -> Result<Consumer, AttachError> {
        self.attach(CONSUMER, Some(waker))
    }

    /// Attaches an observer: a consumer that the producer never waits for. Items that the observer
    /// does not receive in time are dropped and counted, whatever the policy.
    pub fn observer(&self) -> Result<Consumer, AttachError> {
        self.attach(OBSERVER, None)
    }

    fn attach(&self, kind: u32, waker: Option<&Waker>) -> Result<Consumer, AttachError> {
        let state = &self.state;
        for consumer in 0..state.layout.consumers {
            if !state.region().claim(consumer + 1) {
                continue;
            }
            if !self.prepare(consumer) {
                state.region().release(consumer + 1);
                continue;
            }
            let ring = state.ring(consumer);
            if let Some(waker) = waker {
                if !state.memory().is_shared() {
                    state.set_waker(consumer, waker);
                } else if !waker.join(state.memory(), ring.signal_offset()) {
                    state.region().release(consumer + 1);
                    let most = MAX_REMOTE_SIGNALS;
                    return Err(AttachError::WakerFull { most });
                }
            }
            ring.state().store(kind, Ordering::Release);
            // The producer may be waiting for the last of its expected consumers.
            state.producer_signal().notify();
            return Ok(Consumer::new(Arc::clone(state), consumer, waker.cloned()));
        }
        Err(AttachError::Full {
            consumers: state.layout.consumers,
        })
    }

    /// Empties the ring (the queue) of the consumer with the number `consumer`. This process must
    /// have claimed that number. Returns `false` if the producer still uses the ring.
    fn prepare(&self, consumer: usize) -> bool {
        let (state, ring) = (&self.state, self.state.ring(consumer));
        let last = ring.state().load(Ordering::Acquire);
        // The place was free. If the ring still belongs to a consumer, that consumer has died.
        let died = u64::from(last == CONSUMER);
        state.lost().fetch_add(died, Ordering::Relaxed);
        if last != FREE && !reclaim::clean_beside_producer(state, consumer) {
            return false;
        }
        ring.reset();
        if matches!(last, CONSUMER | OBSERVER) {
            ring.signal().reset();
        }
        true
    }

    /// Returns the counters of each consumer and observer that is attached.
    pub fn consumers(&self) -> Vec<ConsumerStats> {
        self.state
            .rings()
            .filter(|r| matches!(r.state().load(Ordering::Acquire), CONSUMER | OBSERVER))
            .map(|r| stats::of_consumer(&r))
            .collect()
    }

    /// Returns how many items this channel's producers have sent, and how long the producers have
    /// waited for consumers.
    pub fn stats(&self) -> ProducerStats {
        stats::of_producer(&self.state)
    }

    /// Returns the number of payloads that wait for consumers or that consumers borrow. The call
    /// looks at each payload of the channel.
    pub fn payloads_in_use(&self) -> usize {
        let state = &self.state;
        let in_use = |&slot: &usize| {
            let references = state.slot(slot).references();
            references.load(Ordering::Acquire) != 0
        };
        (0..state.layout.slots).filter(in_use).count()
    }

    /// Reports whether the latest producer, in another process, died without announcing its end. A
    /// producer that is dropped announces its end.
    pub fn is_orphaned(&self) -> bool {
        reclaim::is_orphaned(&self.state)
    }
}
