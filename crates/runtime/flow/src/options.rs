//! What a channel is made from: policy, sizes, the type of its items; and how that is written down
//! in the channel's memory, so that everybody who attaches can be held against it.

use crate::layout::{head, Places};
use crate::memory::Memory;
use crate::sync::Ordering;
use std::fmt;
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
    pub(crate) fn depth(self) -> usize {
        match self {
            Policy::Latest => 1,
            Policy::DropOldest { depth } => depth,
            Policy::Credit { credits } => credits,
            Policy::Swap { length, .. } => length.saturating_mul(2),
        }
    }

    /// May the producer have to wait for a consumer?
    pub(crate) fn waits(self) -> bool {
        matches!(self, Policy::Credit { .. } | Policy::Swap { .. })
    }
}

/// What happens when a participant in another process dies. What it held is taken back in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDeath {
    /// The others go on: the producer without that consumer, consumers with whoever produces next.
    #[default]
    Continue,
    /// The producer waits until as many consumers as expected are there again; consumers wait.
    Pause,
    /// Sending, and receiving once all is received, say so until somebody decides.
    Fail,
}

/// The type of a channel's items, as those who attach are held to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemType {
    /// Its name, as Rust spells it.
    pub name: &'static str,
    /// Size of one in bytes.
    pub size: usize,
    /// Its alignment in bytes; 64 at most.
    pub align: usize,
}

impl ItemType {
    /// No type in particular.
    pub const BYTES: ItemType = ItemType {
        name: "bytes",
        size: 1,
        align: 1,
    };

    /// That type.
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

/// What a channel is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What happens when a consumer is slower than the producer.
    pub policy: Policy,
    /// Size of the largest payload in bytes.
    pub payload_bytes: usize,
    /// Consumers and observers at most; 64 is the most.
    pub consumers: usize,
    /// Items that one consumer may hold at a time.
    pub held: usize,
    /// So many consumers must have attached before the first item is sent, so that none misses it.
    pub expected: usize,
    /// What happens when a participant in another process dies.
    pub on_death: OnDeath,
    /// What the items are.
    pub item: ItemType,
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
            on_death: OnDeath::Continue,
            item: ItemType::BYTES,
        }
    }

    /// The same for items that are each one `T`.
    pub fn of<T>(policy: Policy) -> Options {
        Options {
            item: ItemType::of::<T>(),
            ..Options::new(policy, size_of::<T>())
        }
    }

    /// The same for items that are each up to `most` of `T`.
    pub fn slices_of<T>(policy: Policy, most: usize) -> Options {
        Options {
            item: ItemType::of::<T>(),
            ..Options::new(policy, most.saturating_mul(size_of::<T>()))
        }
    }

    /// Bytes of memory that the channel needs.
    pub fn memory_bytes(&self) -> Result<usize, CreateError> {
        Ok(self.places()?.size)
    }

    pub(crate) fn places(&self) -> Result<Places, CreateError> {
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
        within("`held`", self.held, 1, 1 << 16)?;
        within("`payload_bytes`", self.payload_bytes, 1, 1 << 30)?;
        within("the item type's alignment", self.item.align, 1, 64)?;
        if self.expected > self.consumers {
            return Err(CreateError::Expected {
                expected: self.expected,
                consumers: self.consumers,
            });
        }
        // What each consumer can refer to at once, and what the producer fills meanwhile. A value
        // that is kept (`newest`) counts as one more.
        let slots = self.consumers * (depth + self.held + 1) + 1;
        // Two at least, so that the last entry that was pushed is not where the next one goes.
        let entries = depth.next_power_of_two().max(2);
        Places::new(self.consumers, entries, slots, self.payload_bytes)
            .filter(|places| places.size <= isize::MAX as usize)
            .ok_or(self.too_large(slots))
    }

    pub(crate) fn too_large(&self, slots: usize) -> CreateError {
        CreateError::Memory {
            slots,
            payload_bytes: self.payload_bytes,
        }
    }

    /// As words in the channel's memory, the first of which is the magic number and version.
    fn words(&self) -> [u64; head::WORDS] {
        let (kind, a, b) = match self.policy {
            Policy::Latest => (0, 0, 0),
            Policy::DropOldest { depth } => (1, depth, 0),
            Policy::Credit { credits } => (2, credits, 0),
            Policy::Swap { length, flush } => (3, length, usize::from(flush)),
        };
        let on_death = match self.on_death {
            OnDeath::Continue => 0,
            OnDeath::Pause => 1,
            OnDeath::Fail => 2,
        };
        let ItemType { name, size, align } = self.item;
        let hash = name_hash(name);
        let n = |value: usize| value as u64;
        [
            MAGIC,
            VERSION,
            kind,
            n(a),
            n(b),
            n(self.payload_bytes),
            n(self.consumers),
            n(self.held),
            n(self.expected),
            on_death,
            n(size),
            n(align),
            hash,
            n(name.len().min(head::NAME_BYTES)),
        ]
    }

    /// Writes the options down; the magic number comes last, so that nobody reads half of them.
    pub(crate) fn write(&self, memory: &Memory) {
        let name = self.item.name.as_bytes();
        for (i, bytes) in name.chunks(8).take(head::NAME_BYTES / 8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let word = u64::from_le_bytes(word);
            memory
                .u64(head::NAME + 8 * i)
                .store(word, Ordering::Relaxed);
        }
        for (i, word) in self.words().into_iter().enumerate().rev() {
            memory
                .u64(head::DESCRIPTION + 8 * i)
                .store(word, Ordering::Release);
        }
    }

    /// What is written down, without any trust: checked as if it were given by a user.
    pub(crate) fn read(memory: &Memory) -> Result<Options, OpenError> {
        let word = |i: usize| {
            memory
                .u64(head::DESCRIPTION + 8 * i)
                .load(Ordering::Acquire)
        };
        match word(0) {
            0 => return Err(OpenError::Unfinished),
            MAGIC => {}
            _ => return Err(OpenError::Foreign),
        }
        if word(1) != VERSION {
            return Err(OpenError::Version {
                theirs: word(1),
                ours: VERSION,
            });
        }
        let n = |i: usize| usize::try_from(word(i)).unwrap_or(usize::MAX);
        let nonsense = |what| OpenError::Nonsense { what };
        let policy = match word(2) {
            0 => Policy::Latest,
            1 => Policy::DropOldest { depth: n(3) },
            2 => Policy::Credit { credits: n(3) },
            3 => Policy::Swap {
                length: n(3),
                flush: n(4) != 0,
            },
            _ => return Err(nonsense("policy")),
        };
        let on_death = match word(9) {
            0 => OnDeath::Continue,
            1 => OnDeath::Pause,
            2 => OnDeath::Fail,
            _ => return Err(nonsense("policy on death")),
        };
        Ok(Options {
            policy,
            payload_bytes: n(5),
            consumers: n(6),
            held: n(7),
            expected: n(8),
            on_death,
            item: ItemType {
                name: "",
                size: n(10),
                align: n(11),
            },
        })
    }

    /// Is that what these options would have written down? If not: the first difference.
    pub(crate) fn compare(&self, memory: &Memory) -> Result<(), OpenError> {
        let theirs = Options::read(memory)?;
        let hash = memory
            .u64(head::DESCRIPTION + 8 * 12)
            .load(Ordering::Acquire);
        let same_type = hash == name_hash(self.item.name)
            && (theirs.item.size, theirs.item.align) == (self.item.size, self.item.align);
        let differs =
            |what, theirs: String, ours: String| Err(OpenError::Differs { what, theirs, ours });
        if !same_type {
            let (name, item) = (name_in(memory), theirs.item);
            let theirs = format!("{name} ({} bytes, aligned to {})", item.size, item.align);
            return differs("items are", theirs, self.item.to_string());
        }
        let plain = |o: &Options| {
            [
                ("the policy is", format!("{:?}", o.policy)),
                ("`payload_bytes` is", o.payload_bytes.to_string()),
                ("`consumers` is", o.consumers.to_string()),
                ("`held` is", o.held.to_string()),
                ("`expected` is", o.expected.to_string()),
                ("`on_death` is", format!("{:?}", o.on_death)),
            ]
        };
        for ((what, theirs), (_, ours)) in plain(&theirs).into_iter().zip(plain(self)) {
            if theirs != ours {
                return differs(what, theirs, ours);
            }
        }
        Ok(())
    }
}

/// The name of the items' type as it is written down; what cannot be shown is replaced.
fn name_in(memory: &Memory) -> String {
    let length = memory
        .u64(head::DESCRIPTION + 8 * 13)
        .load(Ordering::Acquire);
    let bytes: Vec<u8> = (0..head::NAME_BYTES / 8)
        .flat_map(|i| {
            let word = memory.u64(head::NAME + 8 * i).load(Ordering::Relaxed);
            word.to_le_bytes()
        })
        .take(usize::try_from(length).unwrap_or(0))
        .collect();
    let text = String::from_utf8_lossy(&bytes);
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// "onbeat" and a byte that no text has.
const MAGIC: u64 = u64::from_le_bytes(*b"onbeat\xff\x01");
/// Of the memory's format.
const VERSION: u64 = 1;

/// FNV-1a, so that also names too long to be written down are told apart.
fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
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
    /// The memory that was brought is too small.
    #[error("the channel needs {needed} bytes, but the memory has {size}: ask `Options::memory_bytes` first")]
    Region {
        /// Bytes.
        needed: usize,
        /// Bytes.
        size: usize,
    },
}

/// Why the memory of a channel that somebody else has made could not be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OpenError {
    /// Who makes it has not finished.
    #[error("the channel is still being made, or its maker died: try again, or make it anew")]
    Unfinished,
    /// Something else is in the memory.
    #[error("there is no channel in this memory: was it made by something else?")]
    Foreign,
    /// Another version of the format.
    #[error("the channel has format {theirs}, and this program knows {ours}: build both with the same onbeat")]
    Version {
        /// As it is written down.
        theirs: u64,
        /// This program's.
        ours: u64,
    },
    /// What is written down makes no sense.
    #[error("the channel's {what} makes no sense: its memory was overwritten; make it anew")]
    Nonsense {
        /// What.
        what: &'static str,
    },
    /// A number that is written down cannot be.
    #[error("the channel cannot be as it is written down: {0}")]
    Impossible(#[from] CreateError),
    /// It was made from other options.
    #[error("{what} {theirs} where the channel was made, and {ours} here: use the same in both")]
    Differs {
        /// What.
        what: &'static str,
        /// Where it was made.
        theirs: String,
        /// Here.
        ours: String,
    },
}
