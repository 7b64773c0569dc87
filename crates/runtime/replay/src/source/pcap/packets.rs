//! Reads the packets of a capture block by block. `pcap-parser` parses the blocks, and this module
//! buffers their bytes.

use super::interfaces::{Clock, Interfaces};
use super::PCAPNG;
use crate::item::Stamp;
use crate::source::damage::Damage;
use nom::Needed;
use pcap_parser::nom;
use pcap_parser::pcapng::{
    parse_block_be, parse_block_le, parse_unknownblock_be, parse_unknownblock_le, Block,
    EnhancedPacketBlock, InterfaceDescriptionBlock, OptionCode, SectionHeaderBlock,
};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{
    parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified, parse_pcap_header,
    LegacyPcapBlock, PcapError, PcapHeader,
};
use std::io::{Read, Result};

const LONGEST: usize = 64 << 20;
const READ: usize = 256 << 10;

pub enum Packet {
    /// A packet, with its recorded time and stream. The second value is true if the recorder's own
    /// host sent the packet.
    Of(Stamp, bool),
    None,
    End,
}

enum Parsed<T> {
    Is(T),
    More,
    Wrong,
}

pub struct Packets<R> {
    bytes: R,
    /// The bytes that were read from the file. Only the bytes in `start..end` are not parsed yet.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    at_eof: bool,
    at: u64,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Unknown,
    Old { frame: Frame, clock: Clock },
    Next { is_big: bool },
}

#[derive(Clone, Copy, Debug)]
enum Frame {
    Little,
    Big,
    Modified,
}

impl<R: Read> Packets<R> {
    pub fn new(bytes: R) -> Packets<R> {
        Packets {
            bytes,
            buffer: vec![0; READ],
            start: 0,
            end: 0,
            at_eof: false,
            at: 0,
            form: Form::Unknown,
        }
    }

    pub fn into_bytes(self) -> R {
        self.bytes
    }

    pub fn next(
        &mut self,
        known: &mut Interfaces,
        payload: &mut Vec<u8>,
        damage: &mut Damage,
    ) -> Result<Packet> {
        loop {
            let there = &self.buffer[self.start..self.end];
            if there.is_empty() && self.at_eof {
                return Ok(Packet::End);
            }
            let parsed = match self.form {
                Form::Unknown => {
                    begin(there, &mut self.form, known, damage).map(|used| (used, None))
                }
                Form::Old { frame, clock } => old(there, frame, clock, known, payload, damage),
                Form::Next { ref mut is_big } => next(there, is_big, known, payload, damage),
            };
            match parsed {
                Parsed::Is((used, stamp)) => {
                    self.start += used;
                    self.at += used as u64;
                    return Ok(
                        stamp.map_or(Packet::None, |(stamp, is_sent)| Packet::Of(stamp, is_sent))
                    );
                }
                Parsed::More if self.at_eof => {
                    let at = self.at;
                    damage.add(
                        "blocks cut off by the end of the file, not replayed",
                        || format!("byte {at}"),
                    );
                    return Ok(Packet::End);
                }
                Parsed::More if there.len() < LONGEST => self.fill()?,
                Parsed::More | Parsed::Wrong => {
                    let at = self.at;
                    damage.add("invalid blocks; the file was read up to the block", || {
                        format!("byte {at}")
                    });
                    return Ok(Packet::End);
                }
            }
        }
    }

    fn fill(&mut self) -> Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end + READ / 2 > self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let read = self.bytes.read(&mut self.buffer[self.end..])?;
        self.end += read;
        self.at_eof = read == 0;
        Ok(())
    }
}

impl<T> Parsed<T> {
    fn of<'a>(
        result: nom::IResult<&'a [u8], T, PcapError<&'a [u8]>>,
        all: &[u8],
    ) -> Parsed<(usize, T)> {
        match result {
            Ok((rest, value)) => Parsed::Is((all.len() - rest.len(), value)),
            Err(nom::Err::Incomplete(Needed::Size(size))) if size.get() > LONGEST => Parsed::Wrong,
            Err(nom::Err::Incomplete(_)) => Parsed::More,
            Err(_) => Parsed::Wrong,
        }
    }

    fn map<U>(self, change: impl FnOnce(T) -> U) -> Parsed<U> {
        match self {
            Parsed::Is(value) => Parsed::Is(change(value)),
            Parsed::More => Parsed::More,
            Parsed::Wrong => Parsed::Wrong,
        }
    }
}

fn begin(
    there: &[u8],
    form: &mut Form,
    known: &mut Interfaces,
    damage: &mut Damage,
) -> Parsed<usize> {
    if there.len() < PCAPNG.len() {
        return Parsed::More;
    }
    if there.starts_with(&PCAPNG) {
        *form = Form::Next { is_big: false };
        return Parsed::Is(0);
    }
    Parsed::of(parse_pcap_header(there), there).map(|(used, header)| {
        let clock = Clock {
            per_second: if header.is_nanosecond_precision() {
                1_000_000_000
            } else {
                1_000_000
            },
            offset_s: 0,
        };
        *form = Form::Old {
            frame: frame(&header),
            clock,
        };
        // The upper bits state whether packets end with a checksum.
        known.add(
            None,
            header.network.0 as u32 & 0x03ff_ffff,
            Some(clock),
            damage,
        );
        used
    })
}

fn frame(header: &PcapHeader) -> Frame {
    match (header.is_modified_format(), header.is_bigendian()) {
        (true, _) => Frame::Modified,
        (false, true) => Frame::Big,
        (false, false) => Frame::Little,
    }
}

fn old(
    there: &[u8],
    frame: Frame,
    clock: Clock,
    known: &mut Interfaces,
    payload: &mut Vec<u8>,
    damage: &mut Damage,
) -> Parsed<(usize, Option<(Stamp, bool)>)> {
    let parsed = match frame {
        Frame::Little => parse_pcap_frame(there),
        Frame::Big => parse_pcap_frame_be(there),
        Frame::Modified => parse_pcap_frame_modified(there),
    };
    Parsed::of(parsed, there).map(
        |(
            used,
            LegacyPcapBlock {
                ts_sec,
                ts_usec,
                origlen,
                data,
                ..
            },
        )| {
            let units = u64::from(ts_sec) * clock.per_second + u64::from(ts_usec);
            let stamp = known.packet(0, units, (data, origlen), payload, damage);
            (used, stamp.map(|stamp| (stamp, false)))
        },
    )
}

fn next(
    there: &[u8],
    is_big: &mut bool,
    known: &mut Interfaces,
    payload: &mut Vec<u8>,
    damage: &mut Damage,
) -> Parsed<(usize, Option<(Stamp, bool)>)> {
    let kind = there.first_chunk().map(|kind| match *is_big {
        true => u32::from_be_bytes(*kind),
        false => u32::from_le_bytes(*kind),
    });
    // Other blocks are skipped: pcap-parser 0.17 fails on some lengths of the kinds that it
    // supports.
    let is_read = kind.is_none_or(|kind| KINDS.contains(&kind));
    let parsed = match (*is_big, is_read) {
        (true, true) => parse_block_be(there),
        (false, true) => parse_block_le(there),
        (true, false) => parse_unknownblock_be(there).map(|(rest, b)| (rest, Block::Unknown(b))),
        (false, false) => parse_unknownblock_le(there).map(|(rest, b)| (rest, Block::Unknown(b))),
    };
    Parsed::of(parsed, there).map(|(used, block)| {
        let stamp = match block {
            Block::SectionHeader(section) => {
                *is_big = section.big_endian();
                known.section(&about(&section));
                None
            }
            Block::InterfaceDescription(about) => {
                let name = about
                    .if_name()
                    .and_then(std::result::Result::ok)
                    .filter(|name| !name.is_empty());
                known.add(name, about.linktype.0 as u32, clock(&about), damage);
                None
            }
            Block::EnhancedPacket(packet) => {
                let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let stamp = known.packet(
                    packet.if_id,
                    units,
                    (packet.packet_data(), packet.origlen),
                    payload,
                    damage,
                );
                stamp.map(|stamp| (stamp, is_sent(&packet, *is_big)))
            }
            Block::SimplePacket(_) => {
                damage.add("packets without a time, not replayed", String::new);
                None
            }
            Block::Unknown(block) if block.block_type == OBSOLETE_PACKET => {
                damage.add(
                    "packets in obsolete blocks of pcapng, not replayed",
                    String::new,
                );
                None
            }
            _ => None,
        };
        (used, stamp)
    })
}

/// The numbers of the block kinds that are parsed: section, interface, simple packet and enhanced
/// packet.
const KINDS: [u32; 4] = [0x0a0d_0d0a, 1, 3, 6];

const OBSOLETE_PACKET: u32 = 2;

/// Returns the keys and values with which a section describes itself. The values of several options
/// with the same key are joined.
fn about(section: &SectionHeaderBlock) -> Vec<(&'static str, String)> {
    const KEYS: [(u16, &str); 4] = [
        (1, "comment"),
        (2, "hardware"),
        (3, "os"),
        (4, "application"),
    ];
    let values = KEYS.iter().map(|(code, key)| {
        let options = section.options.iter();
        let options = options.filter(|option| option.code == OptionCode(*code));
        let texts: Vec<&str> = options.filter_map(|o| o.as_str().ok()).collect();
        (*key, texts.join("; "))
    });
    values.filter(|(_, value)| !value.is_empty()).collect()
}

/// Returns whether the packet's option `epb_flags` says that the packet is outbound.
fn is_sent(packet: &EnhancedPacketBlock, is_big: bool) -> bool {
    const FLAGS: OptionCode = OptionCode(2);
    const OUTBOUND: u32 = 2;
    let flags = packet.options.iter();
    let mut flags = flags.filter(|option| option.code == FLAGS);
    let flags = flags.find_map(|option| option.value.first_chunk());
    flags.is_some_and(|flags| {
        let flags = match is_big {
            true => u32::from_be_bytes(*flags),
            false => u32::from_le_bytes(*flags),
        };
        flags & 3 == OUTBOUND
    })
}

/// Returns the clock of an interface. Its resolution is in the option `if_tsresol`: a power of 10,
/// or a power of 2 if the highest bit is set.
fn clock(about: &InterfaceDescriptionBlock) -> Option<Clock> {
    let power = u32::from(about.if_tsresol & 0x7f);
    let base: u64 = if about.if_tsresol & 0x80 == 0 { 10 } else { 2 };
    Some(Clock {
        per_second: base.checked_pow(power)?,
        offset_s: about.if_tsoffset,
    })
}
