//! The interface layer: messages between two ends, whatever connects them (thesis, 5.4.1).
//!
//! A [`Backend`] connects two ends. Each end gets an [`Outgoing`] and an [`Incoming`] half. Code
//! that uses these traits does not change with the backend: [`Shm`](crate::Shm) between processes,
//! [`Tcp`](crate::Tcp) between machines.
//!
//! **Memory.** An end has one block of memory, handed over once, in slots: as many for each
//! direction as there are credits. A message is written and read in its slot. Its slot at the
//! sender is free again once the other application has *consumed* it, so a message always finds a
//! free slot at the receiver.
//!
//! **Two ways to get data.** [`Incoming::receive`] takes each message, in order. [`Incoming::read`]
//! fetches the newest value that the peer has published (Figure 5.3); the peer's application does
//! nothing for it.
//!
//! Deadlines are in ns of CLOCK_MONOTONIC ([`onbeat_flow::clock`]); without one the call waits for
//! as long as the link stands.

use thiserror::Error;

/// What both ends must agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Messages on their way in each direction, sent and not consumed yet: 1 to 1024.
    pub credits: usize,
    /// Bytes of the largest message: 1 to 1 GiB.
    pub message_bytes: usize,
    /// Bytes of the largest value for [`Incoming::read`]: 0 (none) to 1 GiB.
    pub value_bytes: usize,
}

impl Sizes {
    /// Four credits, and values as large as messages.
    pub fn of_messages(message_bytes: usize) -> Sizes {
        Sizes {
            credits: 4,
            message_bytes,
            value_bytes: message_bytes,
        }
    }

    /// Bytes of memory that an end needs: slots of both directions, three buffers of values to send
    /// (published, on its way, being written) and one of values read.
    ///
    /// # Errors
    /// A number is out of its range.
    pub fn memory_bytes(&self) -> Result<usize, SetupError> {
        const MOST: usize = 1 << 30;
        let within = |what, value: usize, least: usize, most: usize| {
            let error = SetupError::Number { what, value, most };
            (least..=most).contains(&value).then_some(()).ok_or(error)
        };
        within("`credits`", self.credits, 1, 1024)?;
        within("`message_bytes`", self.message_bytes, 1, MOST)?;
        within("`value_bytes`", self.value_bytes, 0, MOST)?;
        Ok(2 * self.credits * self.message_bytes + 4 * self.value_bytes)
    }
}

impl std::fmt::Display for Sizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (credits, message, value) = (self.credits, self.message_bytes, self.value_bytes);
        write!(
            f,
            "{credits} credits, messages of {message} bytes, values of {value}"
        )
    }
}

/// The memory of an end, handed over once.
#[derive(Debug)]
pub enum Memory {
    /// The backend allots what it needs.
    Allot,
    /// The application's own, of [`Sizes::memory_bytes`] or more: huge pages, for example, or
    /// memory that an accelerator reads too. Dropped with the end.
    Given(Box<[u8]>),
    /// As `Given`, for memory that the application keeps mapped until it ends.
    Mapped(&'static mut [u8]),
}

/// The two halves of an end.
pub type Halves = (Box<dyn Outgoing>, Box<dyn Incoming>);

/// A way to connect two ends.
pub trait Backend {
    /// Bytes of memory that an end of these sizes needs.
    ///
    /// # Errors
    /// A number is out of its range.
    fn memory_bytes(&self, sizes: Sizes) -> Result<usize, SetupError> {
        sizes.memory_bytes()
    }

    /// Registers the memory, connects to the peer, and makes sure of it (*Initialize* of the
    /// thesis): key, version and sizes. Both ends call it; it waits for the other one until
    /// `deadline_ns`. Not real-time safe.
    ///
    /// # Errors
    /// What was wrong with the request, or why this or the other end refused.
    fn initialize(
        &self,
        sizes: Sizes,
        memory: Memory,
        deadline_ns: Option<u64>,
    ) -> Result<Halves, SetupError>;
}

/// The half of an end that sends. Dropping it tells the peer that nothing more comes; what was sent
/// still arrives.
pub trait Outgoing: Send {
    /// Sends a message that `fill` writes in place; returns its number, from 0. Waits for a credit.
    /// The slot has the content of an older message.
    ///
    /// # Errors
    /// - The message is larger than agreed; `fill` is not called.
    /// - No credit until the deadline: the peer has consumed too little.
    /// - The link has ended.
    fn send(
        &mut self,
        bytes: usize,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, SendError>;

    /// Sets the value that the peer's [`Incoming::read`] fetches from now on. Waits for nobody.
    ///
    /// # Errors
    /// The value is larger than agreed, or the link has ended.
    fn publish(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), SendError>;

    /// Where the end counts ([`crate::status`]), for what is around it.
    #[doc(hidden)]
    fn page(&self) -> Option<std::sync::Arc<dyn Shown>> {
        None
    }

    /// No recorder sees its messages from now on: they are items of something else that it sees.
    /// What both ends know this direction of the link by, if they do.
    #[doc(hidden)]
    fn unseen(&mut self) -> Option<onbeat_flow::events::LinkId> {
        None
    }
}

/// Where promises on a link are counted for others to see ([`crate::status`]). Real-time safe.
#[doc(hidden)]
pub trait Shown: Send + Sync + std::fmt::Debug {
    /// There are promises.
    fn has_promises(&self);
    /// It is a channel's: so many items were replaced before they left.
    fn set_lost(&self, items: u64);
    /// More of one of the numbers.
    fn add(&self, number: usize, more: u64);
}

/// The half of an end that receives. Dropping it makes the peer's sends fail.
pub trait Incoming: Send {
    /// Gives the next message to `take`, with its number. It counts as consumed when `take`
    /// returns. `false` if there was none until the deadline.
    ///
    /// # Errors
    /// The link has ended, and all messages that came were received.
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<bool, End>;

    /// Gives the newest value that the peer has published to `take`, complete, also if it was read
    /// before. `false` if the peer has published none, or none came until the deadline.
    ///
    /// # Errors
    /// The link has ended.
    fn read(&mut self, deadline_ns: Option<u64>, take: &mut dyn FnMut(&[u8])) -> Result<bool, End>;

    /// As [`Incoming::read`], with how many values the peer had published before this one, if that is
    /// known: by it a recorder knows a value at both ends.
    ///
    /// # Errors
    /// Those of [`Incoming::read`].
    #[doc(hidden)]
    fn read_numbered(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(Option<u64>, &[u8]),
    ) -> Result<bool, End> {
        self.read(deadline_ns, &mut |value| take(None, value))
    }

    /// See [`Outgoing::unseen`].
    #[doc(hidden)]
    fn unseen(&mut self) -> Option<onbeat_flow::events::LinkId> {
        None
    }
}

impl dyn Outgoing + '_ {
    /// Sends a copy of these bytes; see [`Outgoing::send`].
    ///
    /// # Errors
    /// Those of [`Outgoing::send`].
    pub fn send_copy(&mut self, message: &[u8]) -> Result<u64, SendError> {
        self.send(message.len(), None, &mut |slot| {
            slot.copy_from_slice(message)
        })
    }
}

/// A promise of quality that was broken ([`Qos`](crate::Qos)).
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum Breach {
    /// The message or value is older than it may be.
    #[error("the data is older than it may be")]
    Stale,
    /// A message or value is not what was sent.
    #[error("what came is not what was sent")]
    Corrupt,
    /// Nothing was sent for longer than a period.
    #[error("nothing was sent for longer than the deadline")]
    SentLate,
    /// Nothing was received for longer than a period.
    #[error("nothing came for longer than the deadline")]
    CameLate,
    /// The peer has not confirmed a message, however often it was sent.
    #[error("the peer has not acknowledged message {number}")]
    Unacknowledged {
        /// Its number.
        number: u64,
    },
    /// The peer gives no sign of life.
    #[error("the peer gives no sign of life")]
    Silent,
}

/// Why a link has ended.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum End {
    /// It has not: a promise was broken whose policy is to fail. The next call goes on.
    #[error(transparent)]
    Breach(#[from] Breach),
    /// The peer has closed its half.
    #[error("the peer has closed the link")]
    Closed,
    /// The peer died, or could not be reached for as long as the link was to be resumed.
    #[error("the peer is gone: {reason}")]
    Gone {
        /// The last that was seen of it.
        reason: String,
    },
    /// The peer, which knew the key, has sent what no onbeat sends.
    #[error("the peer breaks the protocol: {what}")]
    Protocol {
        /// What it has sent.
        what: &'static str,
    },
}

/// Why a message was not sent.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum SendError {
    /// It is larger than agreed.
    #[error("{asked} bytes do not fit: {most} were agreed")]
    TooLarge {
        /// Bytes of the request.
        asked: usize,
        /// Bytes agreed.
        most: usize,
    },
    /// The peer has not consumed enough until the deadline.
    #[error("no credit: the peer has {credits} messages that it has not consumed")]
    NoCredit {
        /// Messages on their way.
        credits: usize,
    },
    /// A promise was broken whose policy is to fail. The link stands.
    #[error(transparent)]
    Breach(#[from] Breach),
    /// The link has ended.
    #[error(transparent)]
    Ended(#[from] End),
}

/// Why one end does not take the other.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The keys differ, or the other is no onbeat.
    #[error("the keys differ: give both ends the same key file")]
    Key,
    /// The versions of the protocol differ.
    #[error("this end speaks version {ours} of the protocol, the other {theirs}: update one")]
    Version {
        /// Version of this end.
        ours: u16,
        /// Version of the other.
        theirs: u16,
    },
    /// The sizes differ.
    #[error("this end was made for {ours}, the other for {theirs}: give both the same sizes")]
    Sizes {
        /// Sizes of this end.
        ours: Sizes,
        /// Sizes of the other.
        theirs: Sizes,
    },
    /// One end encrypts, the other does not; or their chunks differ in size.
    #[error("only one of the ends encrypts, or their chunks differ: give both the same options")]
    Options,
    /// One end asks for quality that the other cannot give.
    #[error("only one of the ends uses `Qos`, or acknowledges: give both the same settings")]
    Quality,
    /// The end has a peer already.
    #[error("the other end has a peer already: give each pair a port of its own")]
    InUse,
    /// What came was no handshake.
    #[error("no handshake came: is the other end an onbeat link?")]
    Garbage,
    /// One end has a better way than the other, and one of them refuses to do without.
    #[error("falling back is refused: {what}")]
    FallBack {
        /// The way that would be used, and what is missing for the better one.
        what: String,
    },
    /// The handshake was not finished in time.
    #[error("the other end did not finish the handshake in time")]
    Silent,
}

/// Why there is no link.
#[derive(Debug, Error)]
pub enum SetupError {
    /// A number in the sizes is out of its range.
    #[error("{what} is {value}: give at most {most}, and at least 1 where something is sent")]
    Number {
        /// The number's name.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The largest that is possible.
        most: usize,
    },
    /// The application's memory is too small.
    #[error("the link needs {needed} bytes of memory, but was given {given}")]
    Memory {
        /// Bytes that it needs.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// Another process cannot see the application's memory.
    #[error("a link between processes cannot use memory of one of them: use `Memory::Allot`")]
    OwnMemory,
    /// An end refused the other.
    #[error("{peer}: {reason}")]
    Refused {
        /// The other end.
        peer: String,
        /// Why.
        reason: Refusal,
    },
    /// No peer until the deadline.
    #[error("{peer}: no peer until the deadline{}", last(.refused))]
    NoPeer {
        /// Where it was expected.
        peer: String,
        /// Why the last one that came was refused.
        refused: Option<Refusal>,
    },
    /// The kernel has refused a call.
    #[error("{peer}: cannot {what}: {source}")]
    System {
        /// The other end, or the own address.
        peer: String,
        /// What the call was for.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The port takes no more transfers.
    #[error(transparent)]
    Port(#[from] crate::port::PortError),
    /// There is no channel in shared memory.
    #[error(transparent)]
    Channel(#[from] crate::LinkError),
    /// Somebody else has this half of a channel in shared memory.
    #[error("'{name}': {reason}")]
    Attach {
        /// Name of the link.
        name: String,
        /// Why.
        reason: onbeat_flow::AttachError,
    },
}

fn last(refused: &Option<Refusal>) -> String {
    let text = |r: &Refusal| format!("; the last one that came was refused: {r}");
    refused.as_ref().map(text).unwrap_or_default()
}
