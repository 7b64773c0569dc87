//! The sending side of a link: reads a recording and sends it as fast as the peer takes it.

use super::record::{self, End, TooLong};
use super::{LOOK_NS, SIZES};
use crate::item::{Source, SourceError};
use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{self, Halves, Outgoing, SendError};

/// The result of sending a recording to another host.
#[allow(missing_docs)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sent {
    pub items: u64,
    pub bytes: u64,
    /// One sentence for each kind of damage that was skipped in the recording.
    pub damage: Vec<String>,
}

/// The reason why the peer did not receive the whole recording.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, thiserror::Error)]
pub enum SendFault {
    /// onbeat cannot read the recording to its end. The peer has received the items before the
    /// error.
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the link to the receiving side failed: {0}")]
    Link(#[from] SendError),
    #[error("the receiving side has not confirmed that it has all items: {0}")]
    Unconfirmed(interface::End),
    #[error("the receiving side has {taken} of {sent} items. Report this as a bug")]
    Differs { sent: u64, taken: u64 },
    #[error("stopped after {} items. The receiving side still plays the items that it has received", .0.items)]
    Stopped(Sent),
    #[error("{what} is too long for a link: {bytes} bytes")]
    TooLong { what: String, bytes: usize },
}

struct Writer<'s> {
    outgoing: Box<dyn Outgoing>,
    message: Vec<u8>,
    failed: Option<SendFault>,
    stop: &'s dyn Fn() -> bool,
    left: (u64, u64),
    waiting: (u64, u64),
}

impl Writer<'_> {
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = SIZES.message_bytes - self.message.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.message.extend_from_slice(now);
            bytes = later;
            if self.message.len() == SIZES.message_bytes {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        while self.failed.is_none() && !self.message.is_empty() {
            let message = &self.message;
            let fill = &mut |slot: &mut [u8]| slot.copy_from_slice(message);
            let until = now_ns() + LOOK_NS;
            match self.outgoing.send(message.len(), Some(until), fill) {
                Ok(_) => {
                    self.left.0 += self.waiting.0;
                    self.left.1 += self.waiting.1;
                    self.waiting = (0, 0);
                    break;
                }
                Err(SendError::NoCredit { .. }) if !(self.stop)() => {}
                Err(SendError::NoCredit { .. }) => self.failed = Some(stopped()),
                Err(e) => self.failed = Some(e.into()),
            }
        }
        self.message.clear();
    }

    fn wrote(&mut self, bytes: usize) {
        self.waiting.0 += 1;
        self.waiting.1 += bytes as u64;
    }

    fn check(&mut self) -> Result<(), SendFault> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

/// Sends a recording to the peer. Returns once the peer has the whole recording in its buffer. From
/// time to time, calls `progress` with the number of items so far. Not real-time safe.
///
/// # Errors
/// Fails if the peer does not have all items. Items before a read error do arrive.
pub fn send(
    source: &mut dyn Source,
    halves: Halves,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Sent, SendFault> {
    let mut sent = Sent::default();
    match send_all(source, halves, stop, progress, &mut sent) {
        Ok(()) => Ok(sent),
        Err(SendFault::Stopped(_)) => Err(SendFault::Stopped(sent)),
        Err(e) => Err(e),
    }
}

fn send_all(
    source: &mut dyn Source,
    halves: Halves,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64),
    sent: &mut Sent,
) -> Result<(), SendFault> {
    let (outgoing, mut incoming) = halves;
    let mut writer = Writer {
        outgoing,
        message: Vec::with_capacity(SIZES.message_bytes),
        failed: None,
        stop,
        left: (0, 0),
        waiting: (0, 0),
    };
    record::begin(source.streams(), &mut |bytes| writer.put(bytes))
        .map_err(|long| too_long("the list of streams".into(), long))?;
    let fault = send_items(source, &mut writer, progress, sent);
    // The final count follows only after all items have left. After a message that was not sent, no
    // other is sent.
    if fault.is_ok() {
        writer.flush();
    }
    (sent.items, sent.bytes) = writer.left;
    let fault = match fault? {
        Some(SendFault::Stopped(_)) => Some(SendFault::Stopped(sent.clone())),
        fault => fault,
    };
    sent.damage = source.damage().to_vec();
    let end = End {
        damage: sent.damage.clone(),
        fault: fault.as_ref().map(ToString::to_string),
    };
    record::end(&end, &mut |bytes| writer.put(bytes)).map_err(|long| {
        too_long(
            "the list of damage and faults that ends the recording".into(),
            long,
        )
    })?;
    writer.flush();
    writer.check()?;
    let taken = confirmed(&mut *incoming, &fault, stop)?;
    match fault {
        Some(fault) => Err(fault),
        None if taken == sent.items => Ok(()),
        None => Err(SendFault::Differs {
            sent: sent.items,
            taken,
        }),
    }
}

fn stopped() -> SendFault {
    SendFault::Stopped(Sent::default())
}

fn too_long(what: String, TooLong(bytes): TooLong) -> SendFault {
    SendFault::TooLong { what, bytes }
}

fn send_items(
    source: &mut dyn Source,
    writer: &mut Writer<'_>,
    progress: &mut dyn FnMut(u64),
    sent: &mut Sent,
) -> Result<Option<SendFault>, SendFault> {
    let mut item = Vec::new();
    loop {
        if (writer.stop)() {
            return Ok(Some(stopped()));
        }
        match source.next(&mut item) {
            Ok(Some(stamp)) => {
                if let Err(long) = record::item(stamp, &item, &mut |bytes| writer.put(bytes)) {
                    let what = format!("item {} of the recording", sent.items + 1);
                    return Ok(Some(too_long(what, long)));
                }
            }
            Ok(None) => return Ok(None),
            Err(e) => return Ok(Some(e.into())),
        }
        writer.check()?;
        writer.wrote(item.len());
        sent.items += 1;
        if sent.items.is_multiple_of(1024) {
            progress(sent.items);
        }
    }
}

/// Waits until the peer has seen the end of the recording. Returns the number of items that the
/// peer has received.
fn confirmed(
    incoming: &mut dyn interface::Incoming,
    fault: &Option<SendFault>,
    stop: &dyn Fn() -> bool,
) -> Result<u64, SendFault> {
    let mut taken = None;
    loop {
        let mut take = |_, message: &[u8]| {
            taken = message.first_chunk().map(|n| u64::from_le_bytes(*n));
        };
        match incoming.receive(Some(now_ns() + LOOK_NS), &mut take) {
            Ok(true) => return Ok(taken.unwrap_or_default()),
            Ok(false) if stop() && fault.is_none() => return Err(stopped()),
            // A stop was requested before, so the peer gets little time to confirm.
            Ok(false) if stop() => return Ok(0),
            Ok(false) => {}
            Err(end) => return Err(SendFault::Unconfirmed(end)),
        }
    }
}
