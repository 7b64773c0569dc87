//! The runtime's core: channels whose payloads are loaned from a pool and read in place.
//!
//! A [`Channel`] has one producer and up to a set number of consumers. Its [`Policy`] says what
//! happens when a consumer is slower than the producer: the value is replaced, the oldest item is
//! dropped (and counted), or the producer waits until an item has been *consumed*. A
//! [`chain::Chain`] runs tasks in a fixed order on the thread that steps it, a [`graph::Graph`] on
//! several threads in an order computed before, a [`priority::Priorities`] those first that matter
//! most; when a task runs is up to its [`activation`]. [`Typed`] channels carry Rust
//! types. No thread runs but those that were asked for:
//! who sends and who waits does all the work.
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
pub mod channel;
mod exec;
mod memory;
mod testing;
mod wait;

pub use channel::{medium, typed};
pub use exec::{activation, chain, graph, priority, probe, task, thread};
pub use memory::region;
pub use wait::clock;

pub use channel::{
    AttachError, Channel, Consumer, ConsumerStats, CreateError, Item, ItemType, Loan, LoanError,
    OnDeath, OpenError, Options, Policy, Producer, ProducerStats, ReceiveError, Refused,
    SendCopyError, SendError,
};
pub use exec::pool::{Panicked, Running, TaskId};
pub use medium::{InProcess, Medium};
#[cfg(feature = "fault-points")]
pub use testing::{die_at, passed};
pub use typed::Typed;
pub use wait::Waker;
