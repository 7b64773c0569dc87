//! Channels: one producer, several consumers, and a policy for when a consumer is slower.
//!
//! | policy | when a consumer is slower | lost | waits |
//! |---|---|---|---|
//! | [`Policy::Latest`] | it sees the newest complete value | older values | nobody |
//! | [`Policy::DropOldest`] | its oldest item is dropped | counted on both sides | nobody |
//! | [`Policy::Credit`] | the producer sleeps until an item was *consumed* | nothing | producer |
//! | [`Policy::Swap`] | the producer sleeps until the other buffer is empty | nothing | producer |
//!
//! Take `Latest` for state (a pose, a set-point), `DropOldest` where ROS 2's KEEP_LAST fits,
//! `Credit` where nothing may be lost, and `Swap` where items are wanted in bursts.
//!
//! **Time.** The number of steps of a send grows with the consumers and, in the worst case, with
//! the pool. Sending allocates nothing and takes no lock. It makes a system call only to wake a
//! sleeping consumer, or to sleep where the policy says so. The same holds for receiving. Across
//! processes a producer makes a few more system calls when a consumer has left, or when all
//! payloads are in use.
//!
//! **Trust.** In shared memory every index and length is checked where it is used, and this
//! process's own options limit every loop. A process that writes invalid data there can spoil
//! items, even while others read them, and can starve the others. It cannot make them read or write
//! elsewhere. Where a peer may be hostile, copy an item and then check the copy.
//!
//! **Death.** Each slot records which consumers refer to it, and the producer keeps a journal of
//! its next step. So the others can reclaim the references of a consumer that died. The next
//! producer can finish the delivery of the last one, wherever it stopped.
//!
//! **Modules.** Each uses those above it only:
//!
//! | module | job |
//! |---|---|
//! | `events` | shows items to a recorder |
//! | `layout` | offsets within the memory |
//! | `options` | policy, sizes, type of the items |
//! | `description` | the options in the memory |
//! | `ring` | one consumer's queue |
//! | `pool` | slots with payloads |
//! | `state` | the data that the participants share |
//! | `stats` | counters |
//! | `delivery` | delivers from the producer to every consumer |
//! | `reclaim` | gets back payloads of consumers that left or died |
//! | `producer`, `consumer` | the two sides |
//! | `attach` | [`Channel`]: create, open, attach |
//! | `progress` | how far consumers are, for relays between hosts |
//! | `medium` | channels by name |
//! | `typed` | channels of Rust types |

mod attach;
mod consumer;
mod delivery;
mod description;
pub mod events;
mod layout;
pub mod medium;
mod options;
mod pool;
mod producer;
mod progress;
mod reclaim;
mod ring;
mod state;
mod stats;
pub mod typed;

pub use attach::{AttachError, Channel};
pub use consumer::{Consumer, Item, ReceiveError};
pub use description::OpenError;
pub use options::{CreateError, ItemType, OnDeath, Options, Policy};
pub use producer::{Loan, LoanError, Producer, Refused, SendCopyError, SendError};
pub use progress::Progress;
pub use stats::{ConsumerStats, ProducerStats};
