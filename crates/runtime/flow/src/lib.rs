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
pub mod activation;
pub mod chain;
pub mod channel;
pub mod clock;
mod consumer;
mod faults;
mod futex;
pub mod graph;
#[cfg(all(test, loom))]
mod interleavings;
mod layout;
pub mod medium;
mod memory;
mod options;
mod pool;
pub mod priority;
pub mod probe;
mod producer;
pub mod region;
mod ring;
mod signal;
mod sync;
pub mod task;
pub mod thread;
pub mod typed;

pub use channel::{AttachError, Channel, ConsumerStats, ProducerStats};
pub use consumer::{Consumer, Item, ReceiveError};
#[cfg(feature = "fault-points")]
pub use faults::{die_at, passed};
pub use medium::{InProcess, Medium};
pub use options::{CreateError, ItemType, OnDeath, OpenError, Options, Policy};
pub use pool::{Panicked, Running, TaskId};
pub use producer::{Loan, LoanError, Producer, Refused, SendCopyError, SendError};
pub use signal::Waker;
pub use typed::Typed;
