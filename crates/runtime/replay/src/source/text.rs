//! Reads text logs of CAN frames line by line: the part that ASC and TRC logs share.

use super::channels::{Bus, Channels};
use super::damage::Damage;
use super::lines::{Lines, Read};
use super::order::{self, Survey};
use super::{fault, Bytes};
use crate::item::{Details, Source, SourceError, Stamp, Stream};
use std::io::{BufRead, BufReader, Seek};

pub trait Dialect: Default + Send {
    /// Parses a line, which has no blanks at its ends. Returns the frame's time in ns since 1970
    /// and its channel, and writes the frame's bytes into `payload`. Returns `None` for a line
    /// without a frame.
    ///
    /// # Errors
    /// Returns a text for the kind of fault.
    fn line(
        &mut self,
        line: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<Option<(i64, u8)>, &'static str>;
    /// Returns whether the recorder's own host sent the frame of the latest line.
    fn is_sent(&self) -> bool {
        false
    }
}

/// Opens a text log. Reads the log twice: the first pass finds the channels, and how far items are
/// out of order.
///
/// # Errors
/// Fails if the file cannot be read, or has no frame.
pub fn read<R: Bytes + 'static, D: Dialect + 'static>(
    name: &str,
    bytes: R,
    survey: &mut Survey,
) -> Result<Box<dyn Source>, SourceError> {
    let bytes = BufReader::with_capacity(256 << 10, bytes);
    let mut first = Log::<_, D>::new(name, bytes, Channels::default());
    let back_ns = survey.read(&mut first)?;
    if first.channels.streams().is_empty() {
        return Err(first.damage.refusal(name, "the log has no CAN frame"));
    }
    let mut bytes = first.lines.into_bytes();
    bytes.rewind().map_err(|error| fault(name, error))?;
    let log = Log::<_, D>::new(name, bytes, first.channels);
    Ok(order::sorted(log, back_ns))
}

struct Log<R, D> {
    name: String,
    lines: Lines<R>,
    dialect: D,
    channels: Channels,
    damage: Damage,
    ended: bool,
}

impl<R: BufRead, D: Dialect> Log<R, D> {
    fn new(name: &str, bytes: R, channels: Channels) -> Log<R, D> {
        Log {
            name: name.to_owned(),
            lines: Lines::new(bytes),
            dialect: D::default(),
            channels,
            damage: Damage::default(),
            ended: false,
        }
    }

    fn line(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, &'static str> {
        let line = self.lines.line.trim_ascii();
        if line.is_empty() {
            return Ok(None);
        }
        let Some((time_ns, channel)) = self.dialect.line(line, payload)? else {
            return Ok(None);
        };
        let stream = self.channels.stream(Bus::Can, channel.into())?;
        Ok(Some(Stamp { time_ns, stream }))
    }
}

impl<R: BufRead + Send, D: Dialect> Source for Log<R, D> {
    fn streams(&self) -> &[Stream] {
        self.channels.streams()
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        while !self.ended {
            let result = match self.lines.next() {
                Ok(Read::Line) => self.line(payload),
                Ok(Read::TooLong) => Err("lines too long for a frame"),
                Ok(Read::End) => break,
                Err(error) => {
                    self.ended = true;
                    return Err(fault(&self.name, error));
                }
            };
            match result {
                Ok(Some(stamp)) => return Ok(Some(stamp)),
                Ok(None) => {}
                Err(what) => {
                    let number = self.lines.number;
                    self.damage.add(what, || format!("line {number}"));
                }
            }
        }
        self.ended = true;
        payload.clear();
        Ok(None)
    }

    fn details(&self) -> Details {
        Details {
            is_sent: self.dialect.is_sent(),
            ..Details::default()
        }
    }

    fn damage(&self) -> &[String] {
        self.damage.sentences()
    }
}

pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// Parses a hexadecimal number of at most 15 digits.
pub fn hex(word: &[u8]) -> Option<i64> {
    if word.is_empty() || word.len() > 15 {
        return None;
    }
    word.iter().try_fold(0i64, |value, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(value << 4 | i64::from(digit))
    })
}
