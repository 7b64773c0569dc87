//! The loader thread: reads the source into the buffer as far ahead as the buffer has room. It runs
//! without a real-time priority.

use crate::buffer::{packed, Filling, END, SOUGHT};
use crate::control::{Control, Seek};
use crate::item::{Source, SourceError, Stamp, StreamId};
use onbeat_flow::clock::now_ns;
use onbeat_flow::{Loan, LoanError, Producer, Progress, SendError};
use std::sync::atomic::Ordering::Relaxed;

const STOP_PERIOD_NS: u64 = 100_000_000;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("stream {stream}: an item of {bytes} bytes does not fit into the buffer. Give --buffer {least} or more", least = 4 * .bytes)]
    TooLarge { stream: String, bytes: usize },
    #[error("the buffer failed: {0}")]
    Buffer(#[from] LoanError),
}

#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) read: Vec<u64>,
    pub(crate) damage: Vec<String>,
    pub(crate) error: Option<LoadError>,
}

pub(crate) struct Loader<'c> {
    pub(crate) producer: Producer,
    pub(crate) progress: Progress,
    pub(crate) largest: usize,
    pub(crate) control: &'c Control,
    /// True if the source can continue at another recorded time ([`Source::seek`]). The loader then
    /// runs until the player has ended.
    pub(crate) is_seekable: bool,
}

const LOOK: std::time::Duration = std::time::Duration::from_millis(20);

#[derive(PartialEq)]
enum More {
    Yes,
    No,
}

impl Loader<'_> {
    /// Loads the whole source into the buffer, and waits while the buffer is full. At the end,
    /// drops the producer of the channel to the player. The player then sees the end of the
    /// recording.
    pub(crate) fn run(mut self, source: &mut dyn Source) -> Loaded {
        let mut loaded = Loaded {
            read: vec![0; source.streams().len()],
            ..Loaded::default()
        };
        let mut pending = Pending::default();
        let mut done = 0;
        loop {
            let more = match self.control.sought(done) {
                Some(seek) => {
                    done = seek.number;
                    self.seek(source, seek, &mut pending, &mut loaded.read)
                }
                None => self.block(source, done, &mut pending, &mut loaded.read),
            };
            match more {
                Ok(More::Yes) => {}
                Ok(More::No) => match self.wait_at_end(done) {
                    Ok(More::Yes) => {}
                    _ => break,
                },
                Err(error) => {
                    loaded.error = Some(error);
                    break;
                }
            }
        }
        loaded.damage = source.damage().to_vec();
        self.control.loading.ready.store(true, Relaxed);
        // The loader has ended, so it can no longer be behind its curve.
        self.control.loading.hold();
        loaded
    }

    /// Continues to load at another recorded time of the source. Items that were read but not sent
    /// to the player do not count as read.
    fn seek(
        &mut self,
        source: &mut dyn Source,
        seek: Seek,
        pending: &mut Pending,
        read: &mut [u64],
    ) -> Result<More, LoadError> {
        self.control.loading.ready.store(false, Relaxed);
        if let Some(stamp) = pending.stamp.take() {
            if let Some(read) = read.get_mut(stamp.stream.0 as usize) {
                *read -= 1;
            }
            self.control.loading.read.fetch_sub(1, Relaxed);
        }
        source.seek(seek.to_ns)?;
        self.mark(SOUGHT, seek.to_ns, seek.number)
    }

    /// Waits until the user seeks, or the player has ended.
    fn wait_at_end(&mut self, done: u32) -> Result<More, LoadError> {
        let control = self.control;
        if !self.is_seekable || control.is_stopping() {
            return Ok(More::No);
        }
        control.loading.hold();
        control.loading.ready.store(true, Relaxed);
        self.mark(END, 0, 0)?;
        while control.sought(done).is_none() {
            if control.is_stopping() || control.is_closed() {
                control.loading.hold();
                return Ok(More::No);
            }
            std::thread::sleep(LOOK);
        }
        control.loading.hold();
        Ok(More::Yes)
    }

    fn mark(&mut self, stream: StreamId, time_ns: i64, number: u32) -> Result<More, LoadError> {
        let mut loan = self.producer.loan(Filling::BYTES)?;
        let mut filling = Filling::new(&mut loan);
        filling.append(Stamp { time_ns, stream }, &number.to_ne_bytes(), 0);
        filling.finish();
        Ok(send(loan, self.control))
    }

    fn block(
        &mut self,
        source: &mut dyn Source,
        done: u32,
        pending: &mut Pending,
        read: &mut [u64],
    ) -> Result<More, LoadError> {
        let control = self.control;
        let sent = self.producer.stats().sent;
        let progress = &self.progress;
        let mut loan = self.producer.loan(Filling::BYTES)?;
        let mut filling = Filling::new(&mut loan);
        let mut result = Ok(More::Yes);
        while !control.is_stopping() && control.sought(done).is_none() {
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
            // A player that is close behind gets the block before it is full.
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
        match send(loan, control) {
            More::Yes => result,
            More::No => Ok(More::No),
        }
    }
}

/// Sends a block to the player, and waits while the buffer is full. Returns [`More::No`] if the
/// replay ends meanwhile.
fn send(loan: Loan<'_>, control: &Control) -> More {
    let mut next = loan.try_send();
    if next.is_ok() {
        return More::Yes;
    }
    control.loading.hold();
    while let Err(refused) = next {
        if control.is_stopping() || refused.reason == SendError::Severed {
            control.loading.hold();
            return More::No;
        }
        control.loading.ready.store(true, Relaxed);
        next = refused.loan.send_until(now_ns() + STOP_PERIOD_NS);
    }
    control.loading.hold();
    More::Yes
}

#[derive(Default)]
struct Pending {
    item: Vec<u8>,
    stamp: Option<Stamp>,
    offset: usize,
}

impl Pending {
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

    fn append(&mut self, filling: &mut Filling<'_>) -> Option<i64> {
        let stamp = self.stamp?;
        self.offset += filling.append(stamp, &self.item, self.offset)?;
        if self.offset == self.item.len() {
            self.stamp = None;
        }
        Some(stamp.time_ns)
    }
}
