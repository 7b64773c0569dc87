//! The loader: reads the source into the buffer, as far ahead as there is room. Time-sharing.

use crate::buffer::{packed, Filling};
use crate::control::Control;
use crate::item::{Source, SourceError, Stamp};
use onbeat_flow::clock::now_ns;
use onbeat_flow::{LoanError, Producer, Progress, SendError};
use std::sync::atomic::Ordering::Relaxed;

/// How often a loader that waits for room looks whether it is to stop.
const STOP_PERIOD_NS: u64 = 100_000_000;

/// Why not all of the source was read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// An item for which there is no room.
    #[error("stream {stream}: an item of {bytes} bytes has no room in the buffer: give --buffer {least} or more", least = 4 * .bytes)]
    TooLarge {
        /// Name of its stream.
        stream: String,
        /// Its length.
        bytes: usize,
    },
    /// The channel.
    #[error("the buffer failed: {0}")]
    Buffer(#[from] LoanError),
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Items of each stream.
    pub(crate) read: Vec<u64>,
    /// What the source says is damaged.
    pub(crate) damage: Vec<String>,
    /// Why not all was read.
    pub(crate) error: Option<LoadError>,
}

/// The loader's end of the buffer.
pub(crate) struct Loader<'c> {
    pub(crate) producer: Producer,
    pub(crate) progress: Progress,
    /// Bytes of the largest item that has room.
    pub(crate) largest: usize,
    pub(crate) control: &'c Control,
}

/// Whether there is more to come.
#[derive(PartialEq)]
enum More {
    Yes,
    No,
}

impl Loader<'_> {
    /// Reads all of the source; waits while the buffer is full. Dropping the producer at the end
    /// tells the player.
    pub(crate) fn run(mut self, source: &mut dyn Source) -> Loaded {
        let mut loaded = Loaded {
            read: vec![0; source.streams().len()],
            ..Loaded::default()
        };
        let mut pending = Pending::default();
        loop {
            match self.block(source, &mut pending, &mut loaded.read) {
                Ok(More::Yes) => {}
                Ok(More::No) => break,
                Err(error) => {
                    loaded.error = Some(error);
                    break;
                }
            }
        }
        loaded.damage = source.damage().to_vec();
        self.control.loading.ready.store(true, Relaxed);
        // For good: it is not behind any more.
        self.control.loading.hold();
        loaded
    }

    /// Fills one block and sends it. What was read before an error is sent too.
    fn block(
        &mut self,
        source: &mut dyn Source,
        pending: &mut Pending,
        read: &mut [u64],
    ) -> Result<More, LoadError> {
        let control = self.control;
        let sent = self.producer.stats().sent;
        let progress = &self.progress;
        let mut loan = self.producer.loan(Filling::BYTES)?;
        let mut filling = Filling::new(&mut loan);
        let mut result = Ok(More::Yes);
        while !control.is_stopping() {
            if pending.stamp.is_none() {
                match pending.read(source, self.largest) {
                    Ok(true) => {
                        let stream = pending.stamp.map_or(0, |s| s.stream.0 as usize);
                        if let Some(read) = read.get_mut(stream) {
                            *read += 1;
                        }
                        control.loading.read.fetch_add(1, Relaxed);
                        let bytes = packed(pending.item.len() as u64);
                        control.loading.brought.fetch_add(bytes, Relaxed);
                        if let Some(stamp) = pending.stamp {
                            control.loading.position_ns.store(stamp.time_ns, Relaxed);
                        }
                    }
                    Ok(false) => {
                        result = Ok(More::No);
                        break;
                    }
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
            }
            let Some(time_ns) = pending.append(&mut filling) else {
                break;
            };
            // A player that is close behind gets what there is.
            let is_close = || sent.saturating_sub(progress.consumed()) <= 1;
            if filling.is_old(time_ns) || is_close() {
                break;
            }
        }
        let is_empty = filling.is_empty();
        filling.finish();
        if control.is_stopping() {
            return Ok(More::No);
        }
        if is_empty {
            return result;
        }
        let mut next = loan.try_send();
        if next.is_err() {
            control.loading.hold();
        } else {
            return result;
        }
        while let Err(refused) = next {
            if control.is_stopping() || refused.reason == SendError::Severed {
                control.loading.hold();
                return Ok(More::No);
            }
            control.loading.ready.store(true, Relaxed);
            next = refused.loan.send_until(now_ns() + STOP_PERIOD_NS);
        }
        control.loading.hold();
        result
    }
}

/// The item that was read, and how much of it is in the buffer.
#[derive(Default)]
struct Pending {
    item: Vec<u8>,
    stamp: Option<Stamp>,
    offset: usize,
}

impl Pending {
    /// Reads the next item. False at the end.
    fn read(&mut self, source: &mut dyn Source, largest: usize) -> Result<bool, LoadError> {
        self.offset = 0;
        self.stamp = source.next(&mut self.item)?;
        let Some(stamp) = self.stamp else {
            return Ok(false);
        };
        if self.item.len() > largest {
            let stream = source.streams().get(stamp.stream.0 as usize);
            self.stamp = None;
            return Err(LoadError::TooLarge {
                stream: stream.map(|s| s.name.clone()).unwrap_or_default(),
                bytes: self.item.len(),
            });
        }
        Ok(true)
    }

    /// Appends the item or what is left of it. `None`: the block is full. Else the item's time.
    fn append(&mut self, filling: &mut Filling<'_>) -> Option<i64> {
        let stamp = self.stamp?;
        self.offset += filling.append(stamp, &self.item, self.offset)?;
        if self.offset == self.item.len() {
            self.stamp = None;
        }
        Some(stamp.time_ns)
    }
}
