//! What two ends agree on after a broken connection: nothing lost, nothing doubled.
//!
//! Messages of a direction are numbered from 0. The receiver tells how many it has (*received*),
//! and how many its application has consumed; both only grow. The sender keeps a message until it
//! is consumed. After a break each end leaves the old connection **first** and then tells its
//! counts: so no message can come in by the old connection after the count was told. The sender
//! goes on with the first message that the receiver does not have.
//!
//! Pure: no sockets, no clock. `tests/resume.rs` checks a model of two ends that run this code,
//! with breaks at any point.

use thiserror::Error;

/// How far the receiver of a direction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Progress {
    /// Messages that have arrived completely.
    pub received: u64,
    /// Messages that the application has consumed.
    pub consumed: u64,
}

/// A peer has sent what cannot be.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Counts that shrink, or name messages that were never sent.
    #[error("its counts of messages are impossible")]
    Progress,
    /// Not the message that comes next.
    #[error("a message out of turn")]
    Turn,
    /// More messages than it has credits.
    #[error("more messages than it has credits")]
    Credits,
}

/// The sending side of a direction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sender {
    credits: u64,
    /// Number of the next message that the application posts.
    next: u64,
    /// Number of the next message that goes into the present connection.
    transmit: u64,
    progress: Progress,
}

impl Sender {
    /// A direction in which nothing was sent yet.
    pub fn new(credits: u64) -> Sender {
        Sender {
            credits,
            next: 0,
            transmit: 0,
            progress: Progress::default(),
        }
    }

    /// Number of the message that the application may post now; `None` without a credit.
    pub fn may_post(&self) -> Option<u64> {
        (self.next - self.progress.consumed < self.credits).then_some(self.next)
    }

    /// The application has posted the message of [`Sender::may_post`].
    pub fn post(&mut self) {
        debug_assert!(self.may_post().is_some());
        self.next += 1;
    }

    /// Number of messages posted.
    pub fn posted(&self) -> u64 {
        self.next
    }

    /// Number of the message to be transmitted now.
    pub fn to_transmit(&self) -> Option<u64> {
        (self.transmit < self.next).then_some(self.transmit)
    }

    /// The message of [`Sender::to_transmit`] is in the connection completely.
    pub fn transmitted(&mut self) {
        debug_assert!(self.to_transmit().is_some());
        self.transmit += 1;
    }

    /// What the receiver has last told.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The receiver tells how far it is.
    ///
    /// # Errors
    /// It cannot be there.
    pub fn on_progress(&mut self, told: Progress) -> Result<(), Violation> {
        let grows = told.received >= self.progress.received
            && told.consumed >= self.progress.consumed
            && told.consumed <= told.received;
        // A message can be acknowledged before this side knows that all of it left.
        if !grows || told.received > self.next {
            return Err(Violation::Progress);
        }
        self.progress = told;
        Ok(())
    }

    /// A new connection stands, and the receiver has told how far it is: go on from there.
    ///
    /// # Errors
    /// It cannot be there. What it had told before may be older: that was lost with the connection.
    pub fn on_resumed(&mut self, told: Progress) -> Result<(), Violation> {
        self.on_progress(told)?;
        self.transmit = told.received;
        Ok(())
    }
}

/// The receiving side of a direction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receiver {
    credits: u64,
    progress: Progress,
}

impl Receiver {
    /// A direction in which nothing has arrived yet.
    pub fn new(credits: u64) -> Receiver {
        Receiver {
            credits,
            progress: Progress::default(),
        }
    }

    /// Whether this message may arrive now.
    ///
    /// # Errors
    /// It is not its turn, or there is no slot for it.
    pub fn check(&self, number: u64) -> Result<(), Violation> {
        if number != self.progress.received {
            return Err(Violation::Turn);
        }
        if number - self.progress.consumed >= self.credits {
            return Err(Violation::Credits);
        }
        Ok(())
    }

    /// A message has arrived completely.
    ///
    /// # Errors
    /// Those of [`Receiver::check`].
    pub fn on_message(&mut self, number: u64) -> Result<(), Violation> {
        self.check(number)?;
        self.progress.received += 1;
        Ok(())
    }

    /// Number of the message that the application consumes next.
    pub fn to_consume(&self) -> Option<u64> {
        (self.progress.consumed < self.progress.received).then_some(self.progress.consumed)
    }

    /// The application has consumed the message of [`Receiver::to_consume`].
    pub fn consume(&mut self) {
        debug_assert!(self.to_consume().is_some());
        self.progress.consumed += 1;
    }

    /// What to tell the sender.
    pub fn progress(&self) -> Progress {
        self.progress
    }
}
