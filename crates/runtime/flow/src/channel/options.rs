//! What a channel is created with: policy, sizes, and the type of its items.

use super::layout::MemoryLayout;
use std::fmt;
use thiserror::Error;

/// What happens when a consumer is slower than the producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// A consumer sees the newest complete value; nobody waits.
    Latest,
    /// Each consumer has a queue of `depth` items. A new item replaces the oldest, as in a ROS
    /// topic (concepts 1 and 2 of the paper on service-blocking queues, II.C). Drops are counted.
    DropOldest {
        /// Limit of items that wait for a consumer.
        depth: usize,
    },
    /// The producer starts with this number of credits for each consumer. Sending takes one, and
    /// the consumer returns it when it has *consumed* the item. At zero the producer waits (concept
    /// 3, the modified token bucket). Nothing is lost; the slowest consumer sets the pace.
    Credit {
        /// Limit of items between producer and consumer.
        credits: usize,
    },
    /// The producer and each consumer have a buffer each. They exchange buffers when the producer's
    /// is full and the consumer's is empty (concept 4). Nothing is lost.
    Swap {
        /// Items in each of the two buffers.
        length: usize,
        /// An idle consumer also gets a buffer that is not full yet. Without `flush` the first item
        /// of a buffer waits for the last, as in the paper.
        flush: bool,
    },
}

impl Policy {
    /// Limit of items that wait for one consumer.
    pub(crate) fn depth(self) -> usize {
        match self {
            Policy::Latest => 1,
            Policy::DropOldest { depth } => depth,
            Policy::Credit { credits } => credits,
            Policy::Swap { length, .. } => length.saturating_mul(2),
        }
    }

    /// Whether the producer may have to wait for a consumer.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Policy::Credit { .. } | Policy::Swap { .. })
    }
}

/// What happens when a participant in another process dies. The channel reclaims the payloads that
/// the participant used in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDeath {
    /// The others continue: the producer without that consumer, consumers with the next producer.
    #[default]
    Continue,
    /// The producer waits until as many consumers as expected are attached again; consumers wait.
    Pause,
    /// Sending fails, and so does receiving once all items are received, until the program decides.
    Fail,
}

/// The type of a channel's items. Everyone who attaches must use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemType {
    /// The type's name in Rust.
    pub name: &'static str,
    /// Size of one item in bytes.
    pub size: usize,
    /// Alignment in bytes; 64 at most.
    pub align: usize,
}

impl ItemType {
    /// Untyped bytes.
    pub const BYTES: ItemType = ItemType {
        name: "bytes",
        size: 1,
        align: 1,
    };

    /// The type `T`.
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

/// What a channel is created with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What happens when a consumer is slower than the producer.
    pub policy: Policy,
    /// Size of the largest payload in bytes.
    pub payload_bytes: usize,
    /// Limit of consumers and observers, 1 to 64.
    pub consumers: usize,
    /// Limit of items that one consumer borrows at a time: received, and not dropped yet.
    pub borrowed: usize,
    /// Number of consumers that must attach before the first item is sent, so that none misses it.
    pub expected: usize,
    /// What happens when a participant in another process dies.
    pub on_death: OnDeath,
    /// Type of the items.
    pub item: ItemType,
}

impl Options {
    /// A channel for up to four consumers that borrow two items each; one consumer is expected.
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

    /// As [`Options::new`], for items that are one `T` each.
    pub fn of<T>(policy: Policy) -> Options {
        Options {
            item: ItemType::of::<T>(),
            ..Options::new(policy, size_of::<T>())
        }
    }

    /// As [`Options::new`], for items that are slices of up to `most` values of `T`.
    pub fn slices_of<T>(policy: Policy, most: usize) -> Options {
        Options {
            item: ItemType::of::<T>(),
            ..Options::new(policy, most.saturating_mul(size_of::<T>()))
        }
    }

    /// Bytes of memory that the channel needs.
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
        within("the number of items of the policy", depth, 1, 1 << 20)?;
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
        // All that each consumer can refer to at once, and the payload that the producer fills
        // meanwhile. The value that `newest` keeps counts as one more.
        let slots = self.consumers * (depth + self.borrowed + 1) + 1;
        // At least two, so that the next push does not overwrite the last entry.
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

/// Why a channel could not be created.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CreateError {
    /// A number in the options is zero or too large.
    #[error("{what} is {value}: give 1 to {most}")]
    Number {
        /// The option.
        what: &'static str,
        /// Its value in the options.
        value: usize,
        /// The largest that is possible.
        most: usize,
    },
    /// More consumers are expected than can attach.
    #[error(
        "{expected} consumers are expected, but only {consumers} can attach: raise `consumers`"
    )]
    Expected {
        /// `expected` in the options.
        expected: usize,
        /// `consumers` in the options.
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
    /// The memory of the transport is too small.
    #[error("the channel needs {needed} bytes, but the memory has {size}: ask `Options::memory_bytes` first")]
    Region {
        /// Bytes that the channel needs.
        needed: usize,
        /// Bytes that the memory has.
        size: usize,
    },
}
