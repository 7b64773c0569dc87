//! Channels whose payloads are loaned from a pool and read in place, and executors for tasks.
//!
//! A [`Channel`] has one producer and a limited number of consumers. Its [`Policy`] says what
//! happens when a consumer is slower than the producer: a new value replaces the old one, the
//! oldest item is dropped (and counted), or the producer waits until an item has been *consumed*.
//! [`Typed`] channels have items of Rust types.
//!
//! Three executors run tasks: a [`chain::Chain`] in a fixed order on the calling thread, a
//! [`graph::Graph`] in a fixed order on several threads, and [`priority::Priorities`] by priority.
//! A task's [`activation`] says when it is ready. The crate starts threads only for an executor.
//!
//! ```
//! use onbeat_flow::{Channel, Options, Policy};
//!
//! let channel = Channel::new(Options::new(Policy::Credit { credits: 4 }, 64))?;
//! let mut scans = channel.consumer()?;
//! let mut lidar = channel.producer()?;
//!
//! let mut scan = lidar.loan(5)?;
//! scan.copy_from_slice(b"ahead");
//! scan.send()?;
//!
//! let item = scans.receive().expect("it was sent");
//! assert_eq!((&*item, item.sequence()), (&b"ahead"[..], 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each folder uses those above it only:
//!
//! | folder | job |
//! |---|---|
//! | `watch` | what a recorder needs of a program |
//! | `memory` | words and bytes that participants share |
//! | `wait` | clock, futexes, and what threads sleep on |
//! | `channel` | channels |
//! | `exec` | executors |
//! | `testing` | fault points (used by all), interleavings (using all) |

pub mod channel;
mod exec;
mod memory;
mod testing;
mod wait;
mod watch;

pub use channel::{events, medium, typed};
pub use exec::{activation, chain, graph, priority, probe, task, thread};
pub use memory::region;
pub use wait::clock;

pub use channel::{
    AttachError, Channel, Consumer, ConsumerStats, CreateError, Item, ItemType, Loan, LoanError,
    OnDeath, OpenError, Options, Policy, Producer, ProducerStats, Progress, ReceiveError, Refused,
    SendCopyError, SendError,
};
pub use exec::{Panicked, Running, TaskId};
pub use medium::{InProcess, Medium};
#[cfg(feature = "fault-points")]
pub use testing::{die_at, passed};
pub use typed::Typed;
pub use wait::Waker;
