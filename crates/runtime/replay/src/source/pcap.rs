//! Reads pcap and pcapng files: packets of one or several interfaces, and CAN frames as SocketCAN
//! captures them.

use super::damage::Damage;
use super::order::{self, Survey};
use super::{fault, Bytes};
use crate::item::{Details, Extras, Source, SourceError, Stamp, Stream};
use interfaces::Interfaces;
use packets::{Packet, Packets};
use std::io::SeekFrom;

mod interfaces;
mod packets;

/// Returns whether a file that begins with these bytes is a pcap or pcapng file of either byte
/// order.
pub fn begins(head: &[u8]) -> bool {
    const MAGICS: [[u8; 4]; 6] = [
        [0xa1, 0xb2, 0xc3, 0xd4],
        [0xd4, 0xc3, 0xb2, 0xa1],
        [0xa1, 0xb2, 0x3c, 0x4d],
        [0x4d, 0x3c, 0xb2, 0xa1],
        [0x34, 0xcd, 0xb2, 0xa1],
        PCAPNG,
    ];
    head.first_chunk()
        .is_some_and(|magic| MAGICS.contains(magic))
}

const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Opens a network capture. Reads the capture twice: in the first pass, `survey` finds how far items
/// are out of order, and the reader finds the interfaces.
///
/// # Errors
/// Fails if the file cannot be read, or is not a capture.
pub fn read<R: Bytes + 'static>(
    name: &str,
    bytes: R,
    survey: &mut Survey,
) -> Result<Box<dyn Source>, SourceError> {
    let mut first = Capture::new(name, bytes);
    let back_ns = survey.read(&mut first)?;
    let streams = first.interfaces.streams().to_vec();
    let mut bytes = first.packets.into_bytes();
    bytes
        .seek(SeekFrom::Start(0))
        .map_err(|error| fault(name, error))?;
    let capture = Capture {
        streams,
        ..Capture::new(name, bytes)
    };
    Ok(order::sorted(capture, back_ns))
}

struct Capture<R> {
    name: String,
    packets: Packets<R>,
    interfaces: Interfaces,
    /// All streams of the capture. Empty during the first pass, which finds them.
    streams: Vec<Stream>,
    is_sent: bool,
    damage: Damage,
    ended: bool,
}

impl<R: Bytes> Capture<R> {
    fn new(name: &str, bytes: R) -> Capture<R> {
        Capture {
            name: name.to_owned(),
            packets: Packets::new(bytes),
            interfaces: Interfaces::default(),
            streams: Vec::new(),
            is_sent: false,
            damage: Damage::default(),
            ended: false,
        }
    }
}

impl<R: Bytes> Source for Capture<R> {
    fn streams(&self) -> &[Stream] {
        match &self.streams[..] {
            [] => self.interfaces.streams(),
            streams => streams,
        }
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        while !self.ended {
            match self
                .packets
                .next(&mut self.interfaces, payload, &mut self.damage)
            {
                Ok(Packet::Of(stamp, is_sent)) => {
                    self.is_sent = is_sent;
                    return Ok(Some(stamp));
                }
                Ok(Packet::None) => {}
                Ok(Packet::End) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Err(fault(&self.name, error));
                }
            }
        }
        payload.clear();
        Ok(None)
    }

    fn details(&self) -> Details {
        Details {
            is_sent: self.is_sent,
            ..Details::default()
        }
    }

    fn damage(&self) -> &[String] {
        self.damage.sentences()
    }

    fn extras(&self) -> Extras {
        self.interfaces.extras().clone()
    }
}

#[cfg(test)]
mod tests;
