//! The counts that two ends exchange after a broken connection, so that no message is lost or
//! doubled.
//!
//! Messages of a direction are numbered from 0. The receiver reports how many messages it has
//! (*received*), and how many its application has consumed. Both numbers only grow. The sender
//! keeps a message until it is consumed. After a break each end **first** leaves the old connection
//! and then reports its counts. So no message can arrive by the old connection after the counts
//! were reported. The sender continues with the first message that the receiver does not have.
//!
//! Pure: no sockets, no clock. `tests/resume.rs` checks a model of two ends that run this code,
//! with breaks at any point.

use thiserror::Error;

/// The counts of the end that receives the messages of one direction: messages that have arrived
/// completely, and messages that the application has consumed. Both counts only grow.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Progress {
    pub received: u64,
    pub consumed: u64,
}

/// The reason why a report or message cannot come from a correct peer.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The messages say the rest.
pub enum Violation {
    #[error("the peer reports counts of received and consumed messages that are impossible")]
    Progress,
    #[error("the peer sent a message out of order")]
    Turn,
    #[error("the peer sent more messages than it has credits for")]
    Credits,
}

/// The sender's state of one direction of a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sender {
    credits: u64,
    next: u64,
    /// The number of the next message that is written into the present connection.
    transmit: u64,
    progress: Progress,
}

impl Sender {
    /// Makes the sender's state of a direction in which nothing was sent yet. `credits` is the
    /// largest number of messages that are sent and not consumed.
    pub fn new(credits: u64) -> Sender {
        Sender {
            credits,
            next: 0,
            transmit: 0,
            progress: Progress::default(),
        }
    }

    /// Returns the number of the message that the application may post now, or `None` without a
    /// credit.
    pub fn may_post(&self) -> Option<u64> {
        (self.next - self.progress.consumed < self.credits).then_some(self.next)
    }

    /// Records that the application has posted the message that [`Sender::may_post`] returned.
    pub fn post(&mut self) {
        debug_assert!(self.may_post().is_some());
        self.next += 1;
    }

    /// Returns the number of messages that the application has posted.
    pub fn posted(&self) -> u64 {
        self.next
    }

    /// Returns the number of the message to transmit next, or `None` if all posted messages are
    /// transmitted.
    pub fn to_transmit(&self) -> Option<u64> {
        (self.transmit < self.next).then_some(self.transmit)
    }

    /// Records that the message that [`Sender::to_transmit`] returned was written completely into
    /// the connection.
    pub fn transmitted(&mut self) {
        debug_assert!(self.to_transmit().is_some());
        self.transmit += 1;
    }

    /// Returns the latest counts that the receiver has reported.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Applies a report of the receiver's progress.
    ///
    /// # Errors
    /// Fails if the progress is impossible.
    pub fn on_progress(&mut self, report: Progress) -> Result<(), Violation> {
        let grows = report.received >= self.progress.received
            && report.consumed >= self.progress.consumed
            && report.consumed <= report.received;
        // A message can be acknowledged before this side knows that all of it left.
        if !grows || report.received > self.next {
            return Err(Violation::Progress);
        }
        self.progress = report;
        Ok(())
    }

    /// Applies the receiver's report on a new connection. Transmission continues with the first
    /// message that the receiver does not have.
    ///
    /// # Errors
    /// Fails if the progress is impossible. Counts above the previous report are possible: a report
    /// may have been lost with the connection.
    pub fn on_resumed(&mut self, report: Progress) -> Result<(), Violation> {
        self.on_progress(report)?;
        self.transmit = report.received;
        Ok(())
    }
}

/// The receiver's state of one direction of a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receiver {
    credits: u64,
    progress: Progress,
}

impl Receiver {
    /// Makes the receiver's state of a direction in which nothing has arrived yet. `credits` is the
    /// largest number of messages that the sender has sent and the application has not consumed.
    pub fn new(credits: u64) -> Receiver {
        Receiver {
            credits,
            progress: Progress::default(),
        }
    }

    /// Checks that the message of this number may arrive now.
    ///
    /// # Errors
    /// The message is out of order, or has no free slot.
    pub fn check(&self, number: u64) -> Result<(), Violation> {
        if number != self.progress.received {
            return Err(Violation::Turn);
        }
        if number - self.progress.consumed >= self.credits {
            return Err(Violation::Credits);
        }
        Ok(())
    }

    /// Records that the message of this number has arrived completely.
    ///
    /// # Errors
    /// The errors of [`Receiver::check`].
    pub fn on_message(&mut self, number: u64) -> Result<(), Violation> {
        self.check(number)?;
        self.progress.received += 1;
        Ok(())
    }

    /// Returns the number of the message that the application consumes next, or `None` if none has
    /// arrived.
    pub fn to_consume(&self) -> Option<u64> {
        (self.progress.consumed < self.progress.received).then_some(self.progress.consumed)
    }

    /// Records that the application has consumed the message that [`Receiver::to_consume`]
    /// returned.
    pub fn consume(&mut self) {
        debug_assert!(self.to_consume().is_some());
        self.progress.consumed += 1;
    }

    /// Returns the counts that the receiver reports to the sender.
    pub fn progress(&self) -> Progress {
        self.progress
    }
}
