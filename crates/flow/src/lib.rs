//! The runtime's core: channels whose payloads are loaned from a pool and read in place.
//!
//! A [`Channel`] has one producer and up to a set number of consumers. Its [`Policy`] says what
//! happens when a consumer is slower than the producer: the value is replaced, the oldest item is
//! dropped (and counted), or the producer waits until an item has been *consumed*. A
//! [`chain::Chain`] runs tasks in a fixed order on the thread that steps it; when a task runs is up
//! to its [`activation`]. Nothing here starts a thread: who sends and who waits does all the work.
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
//! scan.send();
//!
//! let item = scans.receive().expect("it was sent");
//! assert_eq!((&*item, item.sequence()), (&b"ahead"[..], 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
pub mod activation;
pub mod chain;
pub mod channel;
pub mod clock;
mod layout;
mod memory;
mod ring;
mod signal;

pub use channel::{
    AttachError, Channel, Consumer, ConsumerStats, CreateError, Item, Loan, LoanError, Options,
    Policy, Producer, ProducerStats, Refused, SendError, TooManyHeld,
};
pub use signal::Waker;
