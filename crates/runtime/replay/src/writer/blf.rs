//! Writes BLF logs, the binary format of Vector's tools: objects in compressed containers.

use super::frame::Frame;
use super::{Plan, Writer};
use crate::item::{Details, Kind, Stamp};
use crate::source::calendar::{self, Date};
use crate::source::can::EXTENDED;
use flate2::write::ZlibEncoder;
use flate2::Compression;
use std::io::{self, Seek, SeekFrom, Write};

const HEADER: usize = 144;
/// The size in bytes from which on the objects of a container are compressed and written.
const CONTAINER: usize = 128 << 10;
const CONTAINER_HEADER: u32 = 32;
const LOG_CONTAINER: u32 = 10;
const CAN_MESSAGE: u32 = 1;
const CAN_ERROR_EXT: u32 = 73;
const CAN_FD_MESSAGE: u32 = 100;
const ETHERNET_FRAME_EX: u32 = 120;
const OBJECT_HEADER: usize = 32;
const SENT: u8 = 1;

pub struct Blf<'p, W> {
    plan: &'p Plan,
    out: W,
    begin_ns: i64,
    plain: Vec<u8>,
    body: Vec<u8>,
    /// The size that the file would have without compression, in bytes.
    plain_bytes: u64,
    bytes: u64,
}

impl<'p, W: Write + Seek> Blf<'p, W> {
    pub fn new(plan: &'p Plan, mut out: W) -> io::Result<Blf<'p, W>> {
        out.write_all(&[0; HEADER])?;
        let first_ns = plan.first_ns.unwrap_or(0);
        Ok(Blf {
            plan,
            out,
            begin_ns: first_ns - first_ns % 1_000_000,
            plain: Vec::with_capacity(2 * CONTAINER),
            body: Vec::new(),
            plain_bytes: HEADER as u64,
            bytes: HEADER as u64,
        })
    }

    fn object(&mut self, kind: u32, time_ns: i64) -> io::Result<()> {
        const NANOSECONDS: u32 = 2;
        let size = OBJECT_HEADER + self.body.len();
        let since_ns = time_ns - self.begin_ns;
        self.plain.extend_from_slice(b"LOBJ");
        self.plain
            .extend_from_slice(&(OBJECT_HEADER as u16).to_le_bytes());
        self.plain.extend_from_slice(&1u16.to_le_bytes());
        for number in [size as u32, kind, NANOSECONDS, 0] {
            self.plain.extend_from_slice(&number.to_le_bytes());
        }
        self.plain.extend_from_slice(&since_ns.to_le_bytes());
        self.plain.append(&mut self.body);
        self.plain.resize(self.plain.len() + padding(size), 0);
        if self.plain.len() >= CONTAINER {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        const DEFLATED: u32 = 2;
        if self.plain.is_empty() {
            return Ok(());
        }
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
        packer.write_all(&self.plain)?;
        let packed = packer.finish()?;
        let size = CONTAINER_HEADER + packed.len() as u32;
        self.out.write_all(b"LOBJ")?;
        self.out.write_all(&16u16.to_le_bytes())?;
        self.out.write_all(&1u16.to_le_bytes())?;
        let plain = self.plain.len() as u32;
        for number in [size, LOG_CONTAINER, DEFLATED, 0, plain, 0] {
            self.out.write_all(&number.to_le_bytes())?;
        }
        self.out.write_all(&packed)?;
        let padding = padding(size as usize);
        self.out.write_all(&[0; 4][..padding])?;
        self.bytes += u64::from(size) + padding as u64;
        self.plain_bytes += u64::from(CONTAINER_HEADER) + u64::from(plain);
        self.plain.clear();
        Ok(())
    }

    fn header(&self) -> Vec<u8> {
        // Vector's tools do not know application 5. The last four numbers are the version of the format.
        const ABOUT: [u8; 8] = [5, 0, 0, 0, 2, 6, 8, 1];
        let last_ns = self.plan.last_ns.unwrap_or(self.begin_ns);
        let mut header = b"LOGG".to_vec();
        header.extend_from_slice(&(HEADER as u32).to_le_bytes());
        header.extend_from_slice(&ABOUT);
        header.extend_from_slice(&self.bytes.to_le_bytes());
        header.extend_from_slice(&self.plain_bytes.to_le_bytes());
        let objects = u32::try_from(self.plan.items).unwrap_or(u32::MAX);
        header.extend_from_slice(&objects.to_le_bytes());
        header.extend_from_slice(&0u32.to_le_bytes());
        for ns in [self.begin_ns, last_ns] {
            for field in system_time(ns) {
                header.extend_from_slice(&field.to_le_bytes());
            }
        }
        header.resize(HEADER, 0);
        header
    }
}

/// Returns the number of padding bytes after an object of `size` bytes. As in files of Vector's
/// tools, this number is `size % 4`. It does not pad to a multiple of 4.
fn padding(size: usize) -> usize {
    size % 4
}

/// Returns an instant as a `SYSTEMTIME` of Windows: year, month, day of the week, day, hour,
/// minute, second, millisecond.
fn system_time(ns: i64) -> [u16; 8] {
    const DAY_MS: i64 = 86_400_000;
    let ms = ns.div_euclid(1_000_000);
    let Date {
        year,
        month,
        day,
        weekday,
    } = calendar::civil(ms.div_euclid(DAY_MS));
    let ms = ms.rem_euclid(DAY_MS);
    let time = [ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000];
    let [hour, minute, second, ms] = time;
    [year, month, weekday, day, hour, minute, second, ms].map(|field| field as u16)
}

impl<W: Write + Seek> Writer for Blf<'_, W> {
    fn write(&mut self, stamp: Stamp, details: Details, payload: &[u8]) -> io::Result<()> {
        let stream = self.plan.stream(stamp.stream);
        let channel: u16 = stream.written_as.parse().unwrap_or(1);
        self.body.clear();
        if matches!(stream.stream.kind, Kind::Packets { .. }) {
            packet(payload, channel, details.is_sent, &mut self.body);
            return self.object(ETHERNET_FRAME_EX, stamp.time_ns);
        }
        let Some(frame) = Frame::of(payload) else {
            return Ok(());
        };
        let kind = can(&frame, channel, details.is_sent, &mut self.body);
        self.object(kind, stamp.time_ns)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.flush()?;
        self.out.seek(SeekFrom::Start(0))?;
        let header = self.header();
        self.out.write_all(&header)?;
        self.out.flush()
    }
}

/// Appends a frame as the body of an object. Returns the kind of the object.
fn can(frame: &Frame, channel: u16, is_sent: bool, body: &mut Vec<u8>) -> u32 {
    const REMOTE: u8 = 0x80;
    const EDL: u8 = 1;
    body.extend_from_slice(&channel.to_le_bytes());
    if frame.is_error() {
        body.resize(32, 0);
        return CAN_ERROR_EXT;
    }
    let remote = if frame.is_remote() { REMOTE } else { 0 };
    let sent = if is_sent { SENT } else { 0 };
    let code = frame.code();
    let id = frame.id() | frame.word & EXTENDED;
    body.extend_from_slice(&[sent | remote, code]);
    body.extend_from_slice(&id.to_le_bytes());
    let Some(flags) = frame.fd_flags else {
        body.extend_from_slice(frame.data);
        body.resize(16, 0);
        return CAN_MESSAGE;
    };
    // The duration of the frame and its number of bits are unknown, and written as 0.
    body.extend_from_slice(&[0; 5]);
    body.extend_from_slice(&[EDL | (flags & 3) << 1, frame.length]);
    body.resize(20, 0);
    body.extend_from_slice(frame.data);
    body.resize(84, 0);
    CAN_FD_MESSAGE
}

fn packet(packet: &[u8], channel: u16, is_sent: bool, body: &mut Vec<u8>) {
    const HEADER: u16 = 32;
    body.extend_from_slice(&HEADER.to_le_bytes());
    body.extend_from_slice(&0u16.to_le_bytes());
    body.extend_from_slice(&channel.to_le_bytes());
    // The hardware channel, the duration and the checksum are unknown, and written as 0.
    body.resize(20, 0);
    body.extend_from_slice(&u16::from(is_sent).to_le_bytes());
    body.extend_from_slice(&(packet.len() as u16).to_le_bytes());
    body.resize(HEADER.into(), 0);
    body.extend_from_slice(packet);
}
