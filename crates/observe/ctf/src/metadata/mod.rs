//! Reads the metadata of a trace: the types of its fields, its clock and its kinds of events.
//!
//! The metadata is written in the language TSDL. onbeat reads the part of TSDL that LTTng writes.
//! It refuses the rest with a message of one line.

mod lexer;
mod parser;

use crate::kinds::Kind;
use crate::types::{Order, ShortHeader, Type};
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::rc::Rc;

pub(crate) const MAX_METADATA: usize = 32 << 20;

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MetadataError {
    #[error("line {line} of the metadata cannot be read: {why}")]
    Syntax { line: u32, why: &'static str },
    #[error("the metadata is not text of CTF 1.8. onbeat imports traces of LTTng 2")]
    NotText,
    #[error("the metadata is larger than {} MiB", MAX_METADATA >> 20)]
    TooLarge,
    #[error("the metadata ends early. Stop the session before its trace is imported")]
    EndsEarly,
}

#[derive(Debug, Default)]
pub(crate) struct Clock {
    pub(crate) name: Box<str>,
    /// The id of the machine's boot, if LTTng wrote the trace.
    pub(crate) uuid: Box<str>,
    pub(crate) frequency: u64,
    /// The time at which the clock was 0, in ns since 1970.
    pub(crate) offset_ns: i128,
}

#[derive(Debug)]
pub(crate) struct EventClass {
    pub(crate) kind: Kind,
    pub(crate) context: Option<Rc<Type>>,
    pub(crate) fields: Option<Rc<Type>>,
}

#[derive(Debug, Default)]
pub(crate) struct StreamClass {
    pub(crate) packet_context: Option<Rc<Type>>,
    pub(crate) event_header: Option<Rc<Type>>,
    pub(crate) short_header: Option<ShortHeader>,
    pub(crate) event_context: Option<Rc<Type>>,
    pub(crate) events: FxHashMap<u64, EventClass>,
}

#[derive(Debug, Default)]
pub(crate) struct Metadata {
    pub(crate) order: Order,
    pub(crate) uuid: Box<str>,
    pub(crate) packet_header: Option<Rc<Type>>,
    pub(crate) streams: HashMap<u64, StreamClass>,
    pub(crate) clock: Option<Clock>,
    pub(crate) environment: HashMap<Box<str>, Box<str>>,
}

impl Metadata {
    pub(crate) fn read(bytes: &[u8]) -> Result<Metadata, MetadataError> {
        if bytes.len() > MAX_METADATA {
            return Err(MetadataError::TooLarge);
        }
        let text = text_of(bytes)?;
        parser::parse(&text)
    }
}

const PACKET_MAGIC: u32 = 0x75d1_1d57;
const METADATA_PACKET_HEADER_BYTES: usize = 37;

fn text_of(bytes: &[u8]) -> Result<String, MetadataError> {
    let number = |at: usize, big: bool| -> Option<u32> {
        let word = bytes.get(at..)?.first_chunk::<4>()?;
        Some(match big {
            true => u32::from_be_bytes(*word),
            false => u32::from_le_bytes(*word),
        })
    };
    let Some(big) = [false, true]
        .into_iter()
        .find(|big| number(0, *big) == Some(PACKET_MAGIC))
    else {
        let text = std::str::from_utf8(bytes).map_err(|_| MetadataError::NotText)?;
        return match text.trim_start().starts_with("/* CTF") {
            true => Ok(text.into()),
            false => Err(MetadataError::NotText),
        };
    };
    let (mut at, mut text) = (0, Vec::new());
    while at < bytes.len() {
        if number(at, big) != Some(PACKET_MAGIC) {
            return Err(MetadataError::NotText);
        }
        let sizes = number(at + 24, big).zip(number(at + 28, big));
        let (content, packet) = sizes.ok_or(MetadataError::EndsEarly)?;
        let (content, packet) = (content as usize / 8, packet as usize / 8);
        if content < METADATA_PACKET_HEADER_BYTES || packet < content {
            return Err(MetadataError::NotText);
        }
        let part = bytes.get(at + METADATA_PACKET_HEADER_BYTES..at + content);
        text.extend_from_slice(part.ok_or(MetadataError::EndsEarly)?);
        at += packet;
    }
    String::from_utf8(text).map_err(|_| MetadataError::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_metadata_packets_is_read_without_the_packet_headers() {
        let packet = |text: &str| {
            let mut packet = PACKET_MAGIC.to_be_bytes().to_vec();
            packet.resize(24, 0);
            packet.extend(((METADATA_PACKET_HEADER_BYTES + text.len()) as u32 * 8).to_be_bytes());
            packet.extend(512u32.to_be_bytes());
            packet.resize(METADATA_PACKET_HEADER_BYTES, 0);
            packet.extend(text.bytes());
            packet.resize(64, 0);
            packet
        };
        let two = [packet("/* CTF 1.8"), packet(" */ x")].concat();
        assert_eq!(text_of(&two).unwrap(), "/* CTF 1.8 */ x");
        let cut = &two[..64 + METADATA_PACKET_HEADER_BYTES + 2];
        assert!(matches!(text_of(cut), Err(MetadataError::EndsEarly)));
        assert!(matches!(text_of(b"{}"), Err(MetadataError::NotText)));
    }
}
