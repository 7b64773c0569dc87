//! The interface layer: messages between two ends, over any kind of connection (thesis, 5.4.1).
//!
//! A [`Backend`] connects two ends. Each end gets an [`Outgoing`] and an [`Incoming`] half. Code
//! that uses these traits does not change with the backend: [`Shm`](crate::Shm) between processes,
//! [`Tcp`](crate::Tcp) between machines.
//!
//! **Memory.** An end has one block of memory, handed over once. It is divided into slots: one per
//! credit in each direction. A message is written and read in its slot. The sender's slot is free
//! again once the other application has *consumed* the message, so a message always finds a free
//! slot at the receiver.
//!
//! **Two ways to get data.** [`Incoming::receive`] takes each message, in order. [`Incoming::read`]
//! fetches the latest value that the peer has published (Figure 5.3). The peer's application need
//! not do anything for it.
//!
//! Deadlines are in ns of CLOCK_MONOTONIC ([`onbeat_flow::clock`]). Without a deadline the call
//! waits for as long as the link stands.

use thiserror::Error;

/// The sizes of a link. Both ends must use the same sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The largest number of messages in each direction that are sent and not consumed yet: 1 to
    /// 1024.
    pub credits: usize,
    /// The size of the largest message, in bytes: 1 to 1 GiB.
    pub message_bytes: usize,
    /// The size of the largest value for [`Incoming::read`], in bytes: 0 (no values) to 1 GiB.
    pub value_bytes: usize,
}

impl Sizes {
    /// Returns sizes for messages of at most `message_bytes`, with four credits and values of the
    /// same size.
    pub fn of_messages(message_bytes: usize) -> Sizes {
        Sizes {
            credits: 4,
            message_bytes,
            value_bytes: message_bytes,
        }
    }

    /// Returns the size in bytes of the memory that an end needs. The memory has slots for the
    /// messages of both directions, three buffers for values to send, and one for the value that is
    /// read.
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
            "{credits} credits, messages of {message} bytes, values of {value} bytes"
        )
    }
}

/// The memory that the application gives to an end when it connects.
#[derive(Debug)]
pub enum Memory {
    /// The backend allocates the memory.
    Allot,
    /// The application provides memory of at least [`Sizes::memory_bytes`], for example huge pages
    /// or memory that an accelerator reads too. The memory is dropped with the end.
    Given(Box<[u8]>),
    /// The application provides memory as for `Given`, but keeps it mapped until the process ends.
    Mapped(&'static mut [u8]),
}

/// The sending and the receiving half of an end.
pub type Halves = (Box<dyn Outgoing>, Box<dyn Incoming>);

/// A way to connect two ends.
pub trait Backend {
    /// Returns the size in bytes of the memory that an end of these sizes needs with this backend.
    ///
    /// # Errors
    /// A number is out of its range.
    fn memory_bytes(&self, sizes: Sizes) -> Result<usize, SetupError> {
        sizes.memory_bytes()
    }

    /// Registers the memory, connects to the peer, and compares key, version and sizes with those
    /// of the peer (*Initialize* of the thesis). Both ends call this function. The call waits for
    /// the other end until `deadline_ns`. Not real-time safe.
    ///
    /// # Errors
    /// A size is out of range, the memory does not fit, one end refused the other, or no peer came
    /// in time.
    fn initialize(
        &self,
        sizes: Sizes,
        memory: Memory,
        deadline_ns: Option<u64>,
    ) -> Result<Halves, SetupError>;
}

/// The half of an end that sends. Dropping it informs the peer that no more messages follow.
/// Messages that were sent still arrive.
pub trait Outgoing: Send {
    /// Sends a message that `fill` writes in place, and returns its number, counted from 0. Waits
    /// for a credit. Before `fill`, the slot contains an older message.
    ///
    /// # Errors
    /// - The message is larger than agreed; `fill` is not called.
    /// - No credit became free before the deadline: the peer has consumed too little.
    /// - The link has ended.
    fn send(
        &mut self,
        bytes: usize,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, SendError>;

    /// Sets the value that the peer's [`Incoming::read`] fetches from now on. Does not wait.
    ///
    /// # Errors
    /// The value is larger than agreed, or the link has ended.
    fn publish(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), SendError>;

    /// Returns the status page that contains the end's counters ([`crate::status`]), if it has one.
    /// Wrappers of the end call this.
    #[doc(hidden)]
    fn page(&self) -> Option<std::sync::Arc<dyn Shown>> {
        None
    }

    /// Hides the messages of this half from recorders from now on. Call this if the messages carry
    /// items that recorders already see. Returns the name that both ends use for this direction of
    /// the link, if it has a name.
    #[doc(hidden)]
    fn unseen(&mut self) -> Option<onbeat_flow::events::LinkId> {
        None
    }
}

/// The counters of a link with quality of service ([`Qos`](crate::Qos)). Other processes read them
/// in the status page ([`crate::status`]). Real-time safe.
#[doc(hidden)]
pub trait Shown: Send + Sync + std::fmt::Debug {
    /// Marks the link as one with quality of service ([`Qos`](crate::Qos)).
    fn has_promises(&self);
    /// Marks the link as one that carries a channel, and stores how many of the channel's items
    /// were replaced before they left.
    fn set_lost(&self, items: u64);
    /// Adds `more` to the counter with this number, counted from 0 in the order of
    /// [`crate::status::QosStatus::named`].
    fn add(&self, number: usize, more: u64);
}

/// The half of an end that receives. Dropping it makes the peer's sends fail.
pub trait Incoming: Send {
    /// Passes the next message and its number to `take`. The message counts as consumed when `take`
    /// returns. Returns `false` if no message came before the deadline.
    ///
    /// # Errors
    /// The link has ended, and all messages that came were received.
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<bool, End>;

    /// Passes the latest value that the peer has published to `take`. The value is always complete,
    /// and is passed again even if it was read before. Returns `false` if the peer has published no
    /// value, or if the value did not arrive before the deadline.
    ///
    /// # Errors
    /// The link has ended.
    fn read(&mut self, deadline_ns: Option<u64>, take: &mut dyn FnMut(&[u8])) -> Result<bool, End>;

    /// Reads like [`Incoming::read`]. Also passes the number of values that the peer had published
    /// before this one, if it is known. Recorders identify a value at both ends by this number.
    ///
    /// # Errors
    /// The errors of [`Incoming::read`].
    #[doc(hidden)]
    fn read_numbered(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(Option<u64>, &[u8]),
    ) -> Result<bool, End> {
        self.read(deadline_ns, &mut |value| take(None, value))
    }

    /// Hides the messages from recorders; see [`Outgoing::unseen`].
    #[doc(hidden)]
    fn unseen(&mut self) -> Option<onbeat_flow::events::LinkId> {
        None
    }
}

impl dyn Outgoing + '_ {
    /// Sends a copy of these bytes; see [`Outgoing::send`].
    ///
    /// # Errors
    /// The errors of [`Outgoing::send`].
    pub fn send_copy(&mut self, message: &[u8]) -> Result<u64, SendError> {
        self.send(message.len(), None, &mut |slot| {
            slot.copy_from_slice(message)
        })
    }
}

/// A broken promise of quality of service ([`Qos`](crate::Qos)).
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum Breach {
    #[error("the data is older than its lifespan allows")]
    Stale,
    #[error("the data was changed on its way")]
    Corrupt,
    #[error("this end has sent nothing for longer than its deadline")]
    SentLate,
    #[error("this end has received nothing for longer than its deadline")]
    CameLate,
    #[error("the peer has not acknowledged message {number} in time")]
    Unacknowledged { number: u64 },
    #[error("the peer gives no sign of life")]
    Silent,
}

/// The reason why a link has ended, or a call on it failed.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum End {
    /// A promise of quality of service was broken, and this end has chosen `OnBreach::Fail`. The
    /// link still works: the next call continues.
    #[error(transparent)]
    Breach(#[from] Breach),
    #[error("the peer has closed the link")]
    Closed,
    #[error("the peer is gone: {reason}")]
    Gone { reason: String },
    #[error("the peer breaks the protocol: {what}")]
    Protocol { what: &'static str },
}

/// The reason why a message was not sent.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum SendError {
    #[error("{asked} bytes are too many: the ends agreed on at most {most}. Send less, or raise the size at both ends.")]
    TooLarge { asked: usize, most: usize },
    #[error("no credit is left: the peer has not consumed {credits} messages yet. Wait, or check the peer.")]
    NoCredit { credits: usize },
    /// A promise of quality of service was broken, and this end has chosen `OnBreach::Fail`. The
    /// link still works: the next call continues.
    #[error(transparent)]
    Breach(#[from] Breach),
    #[error(transparent)]
    Ended(#[from] End),
}

/// The reason why one end refuses the other.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum Refusal {
    #[error("the keys differ. Give both ends the same key file.")]
    Key,
    #[error(
        "this end uses version {ours} of the protocol, the other end {theirs}. Update one of them."
    )]
    Version { ours: u16, theirs: u16 },
    #[error("this end was made for {ours}, the other for {theirs}. Give both the same sizes.")]
    Sizes { ours: Sizes, theirs: Sizes },
    #[error(
        "only one of the ends encrypts, or their chunk sizes differ. Give both the same options."
    )]
    Options,
    #[error("only one of the ends uses `Qos`, or only one of them acknowledges messages. Give both ends the same settings.")]
    Quality,
    #[error("the other end has a peer already. Give each pair of ends its own port number.")]
    InUse,
    #[error("the other end sent no handshake. Check that the other end is an onbeat link.")]
    Garbage,
    #[error("an end refuses a slower backend: {what}. Make the faster backend available to both ends, or do not set OnFallBack::Refuse.")]
    FallBack { what: String },
    #[error(
        "the other end did not finish the handshake in time. Check that the other end is an onbeat link."
    )]
    Silent,
}

/// The reason why a link could not be set up.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum SetupError {
    #[error("{what} is {value}. Give at most {most}, and at least 1 if anything is to be sent.")]
    Number {
        what: &'static str,
        value: usize,
        most: usize,
    },
    #[error("the link needs {needed} bytes of memory, but the application gave {given}. Call `Backend::memory_bytes` for the size.")]
    Memory { needed: usize, given: usize },
    #[error("a link between processes cannot use one process's own memory. Use `Memory::Allot`.")]
    OwnMemory,
    #[error("{peer}: {reason}")]
    Refused { peer: String, reason: Refusal },
    #[error("{peer}: no peer came before the deadline{}", last_refusal(.refused))]
    NoPeer {
        peer: String,
        refused: Option<Refusal>,
    },
    #[error("{peer}: cannot {what}: {source}")]
    System {
        /// The address of the other end or, while listening, of this end.
        peer: String,
        what: &'static str,
        source: std::io::Error,
    },
    #[error(transparent)]
    Port(#[from] crate::port::PortError),
    #[error(transparent)]
    Channel(#[from] crate::LinkError),
    #[error("'{name}': {reason}")]
    Attach {
        name: String,
        reason: onbeat_flow::AttachError,
    },
}

fn last_refusal(refused: &Option<Refusal>) -> String {
    let text = |r: &Refusal| format!("; the last peer that came was refused: {r}");
    let nobody = || ". Start the other end, or check the address.".to_string();
    refused.as_ref().map_or_else(nobody, text)
}
