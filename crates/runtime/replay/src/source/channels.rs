//! Assigns streams to the numbered channels of a log.

use crate::item::{Kind, Stream, StreamId};

pub const TOO_MANY: &str = "frames of channels beyond the first 256, not replayed";
const MOST: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    Can,
    Ethernet,
}

#[derive(Debug, Default)]
pub struct Channels {
    streams: Vec<Stream>,
    numbers: Vec<(Bus, u16)>,
    /// For each of the first CAN channels, the index of its stream plus 1, or 0 if it has none. A
    /// search would be slow, because a processor cannot guess the order of frames of several
    /// channels.
    few: [u16; FEW],
    latest: usize,
}

const FEW: usize = 32;

impl Channels {
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Returns the stream of a channel, for example `can1`. Creates the stream at the channel's
    /// first frame.
    ///
    /// # Errors
    /// Fails if the log has too many channels.
    #[inline]
    pub fn stream(&mut self, bus: Bus, number: u16) -> Result<StreamId, &'static str> {
        let few = self.few.get(usize::from(number)).copied().unwrap_or(0);
        if let (Bus::Can, Some(index)) = (bus, few.checked_sub(1)) {
            return Ok(StreamId(index.into()));
        }
        let channel = (bus, number);
        if self.numbers.get(self.latest) != Some(&channel) {
            self.latest = self.find(channel)?;
        }
        Ok(StreamId(self.latest as u32))
    }

    #[inline(never)]
    fn find(&mut self, channel: (Bus, u16)) -> Result<usize, &'static str> {
        match self.numbers.iter().position(|known| *known == channel) {
            Some(at) => Ok(at),
            None => self.add(channel),
        }
    }

    fn add(&mut self, channel: (Bus, u16)) -> Result<usize, &'static str> {
        if self.numbers.len() >= MOST {
            return Err(TOO_MANY);
        }
        let (name, kind) = match channel {
            (Bus::Can, number) => (format!("can{number}"), Kind::Can),
            (Bus::Ethernet, number) => (
                format!("eth{number}"),
                Kind::Packets {
                    link_type: ETHERNET,
                },
            ),
        };
        self.streams.push(Stream { name, kind });
        self.numbers.push(channel);
        let few = self.few.get_mut(usize::from(channel.1));
        if let (Bus::Can, Some(few)) = (channel.0, few) {
            *few = self.numbers.len() as u16;
        }
        Ok(self.numbers.len() - 1)
    }
}

const ETHERNET: u32 = 1;
