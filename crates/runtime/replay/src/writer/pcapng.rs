//! Writes captures in the format pcapng: one interface for each stream, times in ns.

use super::frame::{Frame, FDF};
use super::{Plan, Writer};
use crate::item::{Details, Kind, Stamp};
use std::io::{self, Write};

const SOCKETCAN: u16 = 227;
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

pub struct Pcapng<'p, W> {
    plan: &'p Plan,
    out: W,
    /// The number of each stream's interface in the capture.
    numbers: Vec<u32>,
    body: Vec<u8>,
}

impl<'p, W: Write> Pcapng<'p, W> {
    pub fn new(plan: &'p Plan, out: W) -> io::Result<Pcapng<'p, W>> {
        let mut capture = Pcapng {
            plan,
            out,
            numbers: Vec::new(),
            body: Vec::new(),
        };
        // Byte order, version 1.0, unknown length of the section.
        capture
            .body
            .extend_from_slice(&0x1a2b_3c4du32.to_le_bytes());
        capture.body.extend_from_slice(&[1, 0, 0, 0]);
        capture.body.extend_from_slice(&[0xff; 8]);
        capture.block(SECTION)?;
        let mut number = 0;
        for stream in &plan.streams {
            capture.numbers.push(number);
            let link_type = match stream.stream.kind {
                Kind::Can => SOCKETCAN,
                Kind::Packets { link_type } => link_type as u16,
                _ => continue,
            };
            if plan.target.holds(&stream.stream.kind) {
                capture.interface(&stream.written_as, link_type)?;
                number += 1;
            }
        }
        Ok(capture)
    }

    fn interface(&mut self, name: &str, link_type: u16) -> io::Result<()> {
        const NAME: u16 = 2;
        const RESOLUTION: u16 = 9;
        self.body.extend_from_slice(&link_type.to_le_bytes());
        // No limit of the captured length.
        self.body.extend_from_slice(&[0; 6]);
        let mut end = name.len().min(1024);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        self.option(NAME, &name.as_bytes()[..end]);
        self.option(RESOLUTION, &[9]);
        self.option(0, &[]);
        self.block(INTERFACE)
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.body.extend_from_slice(&code.to_le_bytes());
        self.body
            .extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.body.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    fn block(&mut self, kind: u32) -> io::Result<()> {
        let length = (self.body.len() as u32 + 12).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&length)?;
        self.out.write_all(&self.body)?;
        self.body.clear();
        self.out.write_all(&length)
    }
}

impl<W: Write> Writer for Pcapng<'_, W> {
    fn write(&mut self, stamp: Stamp, details: Details, payload: &[u8]) -> io::Result<()> {
        const FLAGS: u16 = 2;
        const OUTBOUND: u32 = 2;
        let time = stamp.time_ns as u64;
        for number in [
            self.numbers[stamp.stream.0 as usize],
            (time >> 32) as u32,
            time as u32,
            0,
            0,
        ] {
            self.body.extend_from_slice(&number.to_le_bytes());
        }
        let from = self.body.len();
        match self.plan.stream(stamp.stream).stream.kind {
            Kind::Can => frame(payload, &mut self.body),
            _ => self.body.extend_from_slice(payload),
        }
        let length = ((self.body.len() - from) as u32).to_le_bytes();
        self.body[from - 8..from - 4].copy_from_slice(&length);
        self.body[from - 4..from].copy_from_slice(&length);
        self.pad();
        if details.is_sent {
            self.option(FLAGS, &OUTBOUND.to_le_bytes());
            self.option(0, &[]);
        }
        self.block(PACKET)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()
    }
}

/// Appends a frame in the form of SocketCAN captures: identifier in network byte order, length,
/// flags, a zero byte, the length code of a classic frame if it is above 8 (otherwise 0), data.
fn frame(payload: &[u8], body: &mut Vec<u8>) {
    let Some(frame) = Frame::of(payload) else {
        return;
    };
    body.extend_from_slice(&frame.word.to_be_bytes());
    let flags = frame.fd_flags.map_or(0, |flags| flags | FDF);
    body.extend_from_slice(&[frame.length, flags, 0, frame.raw_length]);
    body.extend_from_slice(frame.data);
}
