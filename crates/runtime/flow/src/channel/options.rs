//! The options of a channel: policy, sizes, and the type of its items.

use super::layout::MemoryLayout;
use std::fmt;
use thiserror::Error;

/// The policy for a consumer that is slower than the producer.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The consumer gets the newest complete value. Neither producer nor consumer waits for the
    /// other.
    Latest,
    /// The consumer has a queue of `depth` items, and a new item replaces the oldest. A ROS topic
    /// does the same (concepts 1 and 2 of the paper on service-blocking queues, II.C). Drops are
    /// counted.
    DropOldest { depth: usize },
    /// The producer starts with this number of credits for each consumer. Each send takes one
    /// credit, and the consumer returns the credit when it has *consumed* the item. The producer
    /// waits while it has no credit (concept 3 of the paper on service-blocking queues: the
    /// modified token bucket). Nothing is lost; the slowest consumer sets the pace.
    Credit { credits: usize },
    /// The producer and each consumer have a buffer of `length` items each. They exchange buffers
    /// when the producer's buffer is full and the consumer's buffer is empty (concept 4 of the
    /// paper on service-blocking queues). Nothing is lost.
    Swap {
        length: usize,
        /// Lets an idle consumer get a buffer that is not full yet. Without `flush`, the first item
        /// of a buffer waits until the buffer is full, as in the paper on service-blocking queues.
        flush: bool,
    },
}

impl Policy {
    pub(crate) fn depth(self) -> usize {
        match self {
            Policy::Latest => 1,
            Policy::DropOldest { depth } => depth,
            Policy::Credit { credits } => credits,
            Policy::Swap { length, .. } => length.saturating_mul(2),
        }
    }

    pub(crate) fn lets_producer_wait(self) -> bool {
        matches!(self, Policy::Credit { .. } | Policy::Swap { .. })
    }
}

/// The reaction to the death of a participant in another process. In each case the channel reclaims
/// the payloads that the participant used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDeath {
    /// After a death, the other participants continue. The producer no longer serves a dead
    /// consumer. Consumers of a dead producer wait for the next producer.
    #[default]
    Continue,
    /// After a consumer's death, the producer waits until as many consumers as expected are
    /// attached again. Consumers of a dead producer wait for the next producer.
    Pause,
    /// After a consumer's death, sending fails. After the producer's death, receiving fails once
    /// all items are received. The program decides how to continue.
    Fail,
}

/// The type of a channel's items. Every participant must use the same type.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemType {
    pub name: &'static str,
    pub size: usize,
    /// The alignment in bytes, at most 64.
    pub align: usize,
}

impl ItemType {
    /// The item type of a channel without a Rust type: plain bytes.
    pub const BYTES: ItemType = ItemType {
        name: "bytes",
        size: 1,
        align: 1,
    };

    /// Describes the type `T`.
    pub fn of<T>() -> ItemType {
        ItemType {
            name: std::any::type_name::<T>(),
            size: size_of::<T>(),
            align: align_of::<T>(),
        }
    }
}

impl fmt::Display for ItemType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ItemType { name, size, align } = self;
        write!(f, "{name} ({size} bytes, aligned to {align})")
    }
}

/// The options that a channel is created with.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub policy: Policy,
    /// The size of the largest payload in bytes.
    pub payload_bytes: usize,
    /// The largest number of consumers and observers that can attach, 1 to 64.
    pub consumers: usize,
    /// The largest number of items that one consumer borrows at a time. A consumer borrows an item
    /// from receiving it until dropping it.
    pub borrowed: usize,
    /// The number of consumers that must attach before the first item is sent, so that no consumer
    /// misses that item.
    pub expected: usize,
    pub on_death: OnDeath,
    pub item: ItemType,
}

impl Options {
    /// Returns options for up to four consumers that borrow two items each. One consumer is
    /// expected.
    pub fn new(policy: Policy, payload_bytes: usize) -> Options {
        Options {
            policy,
            payload_bytes,
            consumers: 4,
            borrowed: 2,
            expected: 1,
            on_death: OnDeath::Continue,
            item: ItemType::BYTES,
        }
    }

    /// Returns options as [`Options::new`] does, for items that are one `T` each.
    pub fn of<T>(policy: Policy) -> Options {
        Options {
            item: ItemType::of::<T>(),
            ..Options::new(policy, size_of::<T>())
        }
    }

    /// Returns options as [`Options::new`] does, for items that are slices of up to `most` values
    /// of `T`.
    pub fn slices_of<T>(policy: Policy, most: usize) -> Options {
        Options {
            item: ItemType::of::<T>(),
            ..Options::new(policy, most.saturating_mul(size_of::<T>()))
        }
    }

    /// Returns the number of bytes that the channel needs, for example for memory given to
    /// [`Channel::format`](crate::Channel::format).
    pub fn memory_bytes(&self) -> Result<usize, CreateError> {
        Ok(self.layout()?.size)
    }

    pub(crate) fn layout(&self) -> Result<MemoryLayout, CreateError> {
        let within = |what, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(CreateError::Number { what, value, most })
            }
        };
        let depth = self.policy.depth();
        within(
            "the number of items that the policy keeps for a consumer",
            depth,
            1,
            1 << 20,
        )?;
        within("`consumers`", self.consumers, 1, 64)?;
        within("`borrowed`", self.borrowed, 1, 1 << 16)?;
        within("`payload_bytes`", self.payload_bytes, 1, 1 << 30)?;
        within("the item type's alignment", self.item.align, 1, 64)?;
        if self.expected > self.consumers {
            return Err(CreateError::Expected {
                expected: self.expected,
                consumers: self.consumers,
            });
        }
        // Each consumer can refer to this many payloads at once, and the producer fills one more
        // meanwhile. The value that `newest` keeps is the `+ 1` of each consumer.
        let slots = self.consumers * (depth + self.borrowed + 1) + 1;
        // At least two entries, so that the next push does not overwrite the last entry.
        let entries = depth.next_power_of_two().max(2);
        MemoryLayout::new(self.consumers, entries, slots, self.payload_bytes)
            .filter(|layout| layout.size <= isize::MAX as usize)
            .ok_or(self.too_large(slots))
    }

    pub(crate) fn too_large(&self, slots: usize) -> CreateError {
        CreateError::Memory {
            slots,
            payload_bytes: self.payload_bytes,
        }
    }
}

/// The reason why a channel could not be created.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CreateError {
    #[error("{what} is {value}. Give 1 to {most}.")]
    Number {
        what: &'static str,
        value: usize,
        most: usize,
    },
    #[error(
        "{expected} consumers are expected, but only {consumers} can attach. Raise `consumers`."
    )]
    Expected { expected: usize, consumers: usize },
    #[error("the system has no memory for {slots} payloads of {payload_bytes} bytes. Use fewer or smaller payloads.")]
    Memory { slots: usize, payload_bytes: usize },
    #[error("the channel needs {needed} bytes, but the memory has {size}. Call `Options::memory_bytes` for the size.")]
    Region { needed: usize, size: usize },
}
