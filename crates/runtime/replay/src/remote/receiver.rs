//! The receiving side of a link: a source whose recording comes from another host.

use super::record::{self, Record};
use super::LOOK_NS;
use crate::item::{Source, SourceError, Stamp, Stream};
use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Halves, Incoming, Outgoing};

/// A recording that another host sends over a link. onbeat does not trust the received bytes,
/// although the sender has the link's key.
pub struct Remote {
    name: String,
    outgoing: Box<dyn Outgoing>,
    incoming: Box<dyn Incoming>,
    bytes: Vec<u8>,
    read: usize,
    streams: Vec<Stream>,
    damage: Vec<String>,
    items: u64,
    most: usize,
    over: bool,
    stop: Box<dyn Fn() -> bool + Send>,
}

impl Remote {
    /// Waits until the sender has sent its list of streams. Error messages call the source `name`.
    /// `stop` returns `true` when the caller no longer needs the recording. An item may have at
    /// most `most` bytes, which also limits the memory. Not real-time safe.
    ///
    /// # Errors
    /// Fails if the sender has ended, or is not a replay.
    pub fn open(
        name: &str,
        halves: Halves,
        most: usize,
        stop: Box<dyn Fn() -> bool + Send>,
    ) -> Result<Remote, SourceError> {
        let (outgoing, incoming) = halves;
        let mut remote = Remote {
            name: name.into(),
            outgoing,
            incoming,
            bytes: Vec::new(),
            read: 0,
            streams: Vec::new(),
            damage: Vec::new(),
            items: 0,
            most,
            over: false,
            stop,
        };
        let Some(length) = remote.whole_record()? else {
            return Err(remote.fault("stopped before the sender had sent the list of streams"));
        };
        match remote.record(length)? {
            Record::Begin(streams) => remote.streams = streams,
            _ => {
                return Err(remote.fault("the sender does not say which streams the recording has. Run the same version of onbeat on both hosts"))
            }
        }
        remote.read += length;
        Ok(remote)
    }

    fn fault(&self, what: impl Into<String>) -> SourceError {
        SourceError {
            file: self.name.clone(),
            fault: what.into(),
        }
    }

    fn whole_record(&mut self) -> Result<Option<usize>, SourceError> {
        loop {
            let rest = self.bytes.len() - self.read;
            match record::length(&self.bytes[self.read..], self.most) {
                Ok(Some(length)) if length <= rest => return Ok(Some(length)),
                Ok(_) => {}
                Err(what) => return Err(self.fault(format!("the sender sends {what}"))),
            }
            self.bytes.drain(..self.read);
            self.read = 0;
            let bytes = &mut self.bytes;
            let take = &mut |_, message: &[u8]| bytes.extend_from_slice(message);
            match self.incoming.receive(Some(now_ns() + LOOK_NS), take) {
                Ok(true) => {}
                Ok(false) if (self.stop)() => return Ok(None),
                Ok(false) => {}
                Err(end) => {
                    return Err(self.fault(format!(
                        "{end}. The sender has not confirmed that the recording is complete"
                    )))
                }
            }
        }
    }

    fn record(&self, length: usize) -> Result<Record<'_>, SourceError> {
        let read = record::read(&self.bytes[self.read..self.read + length]);
        read.map_err(|what| self.fault(format!("the sender sends {what}")))
    }

    fn confirm(&mut self) {
        let items = self.items.to_le_bytes();
        let fill = &mut |slot: &mut [u8]| slot.copy_from_slice(&items);
        // If the sender is gone, it needs no confirmation.
        let _ = self
            .outgoing
            .send(items.len(), Some(now_ns() + LOOK_NS), fill);
    }
}

impl Source for Remote {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        if self.over {
            return Ok(None);
        }
        let Some(length) = self.whole_record()? else {
            return Ok(None);
        };
        let end = match self.record(length)? {
            Record::Item(stamp, item) if (stamp.stream.0 as usize) < self.streams.len() => {
                payload.extend_from_slice(item);
                self.read += length;
                self.items += 1;
                return Ok(Some(stamp));
            }
            Record::End(end) => end,
            _ => return Err(self.fault("the sender sends an item of an unknown stream")),
        };
        self.over = true;
        self.damage = end.damage;
        self.confirm();
        match end.fault {
            Some(fault) => Err(self.fault(fault)),
            None => Ok(None),
        }
    }

    fn damage(&self) -> &[String] {
        &self.damage
    }
}
