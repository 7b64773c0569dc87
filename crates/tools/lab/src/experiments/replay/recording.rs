//! Writes the recording that all arms play: a capture of UDP packets with marks, and a BLF log with
//! the same packets.

use crate::frame::rng::Rng;
use crate::frame::{Context, LabError, Result};
use crate::measure::capture::MAGIC;
use crate::measure::streams::{Arrivals, Kind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const HEADER_BYTES: usize = 14 + 20 + 8;
const BEGIN_S: u64 = 1_700_000_000;

#[derive(Default)]
pub(super) struct Recording {
    pub path: PathBuf,
    pub blf: PathBuf,
    pub streams: usize,
    pub due_ns: Vec<u64>,
}

impl Recording {
    pub fn write(
        context: &Context,
        kind: &Kind,
        streams: usize,
        messages: usize,
        rng: &mut Rng,
    ) -> Result<Recording> {
        let mut due = Vec::new();
        for stream in 0..streams as u32 {
            let arrivals = Arrivals::generate(kind, messages, rng)?;
            // A capture file has a resolution of microseconds.
            due.extend(arrivals.due_ns.iter().map(|ns| (ns / 1000 * 1000, stream)));
        }
        due.sort_unstable();
        let [path, blf] = paths(context);
        capture(&path, due.iter().copied(), kind.bytes)?;
        let mut command = Command::new(context.onbeat());
        command.arg("convert").arg(&path).arg("-o").arg(&blf);
        command.arg("--force");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        context.succeed(&mut command, "onbeat convert", Duration::from_secs(60))?;
        let first = due.first().map_or(0, |d| d.0);
        Ok(Recording {
            path,
            blf,
            streams,
            due_ns: due.iter().map(|(ns, _)| ns - first).collect(),
        })
    }

    pub fn length_ns(&self) -> u64 {
        self.due_ns.last().copied().unwrap_or(0)
    }
}

pub(super) fn paths(context: &Context) -> [PathBuf; 2] {
    ["recording.pcap", "recording.blf"].map(|name| context.dir().join(name))
}

pub(super) fn capture(
    path: &Path,
    packets: impl Iterator<Item = (u64, u32)>,
    bytes: usize,
) -> Result<()> {
    let mut out = Vec::new();
    // The file header: magic (microseconds), version 2.4, zone, accuracy, length limit, Ethernet.
    out.extend(0xa1b2_c3d4u32.to_le_bytes());
    out.extend([2, 0, 4, 0]);
    out.extend([0; 8]);
    out.extend((256u32 << 10).to_le_bytes());
    out.extend(1u32.to_le_bytes());
    for (number, (ns, stream)) in packets.enumerate() {
        for word in [
            (BEGIN_S + ns / 1_000_000_000) as u32,
            (ns % 1_000_000_000 / 1000) as u32,
            bytes as u32,
            bytes as u32,
        ] {
            out.extend(word.to_le_bytes());
        }
        packet(&mut out, bytes, stream, number as u64);
    }
    std::fs::write(path, out).map_err(LabError::file("writing", path))
}

fn packet(out: &mut Vec<u8>, bytes: usize, stream: u32, number: u64) {
    let payload = bytes.saturating_sub(HEADER_BYTES);
    let end = out.len() + HEADER_BYTES + payload;
    out.extend([0xff; 6]);
    out.extend([2, 0, 0, 0, 0, 1, 8, 0]);
    let mut ip = [0u8; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((20 + 8 + payload) as u16).to_be_bytes());
    (ip[8], ip[9]) = (64, 17);
    ip[12..16].copy_from_slice(&[10, 77, 0, 1]);
    ip[16..20].copy_from_slice(&[10, 77, 0, 2]);
    let sum: u32 = ip
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    out.extend(ip);
    out.extend(7400u16.to_be_bytes());
    out.extend(7400u16.to_be_bytes());
    out.extend(((8 + payload) as u16).to_be_bytes());
    // The packet has no UDP checksum.
    out.extend([0, 0]);
    while out.len() < end {
        out.extend(MAGIC);
        out.extend(stream.to_le_bytes());
        out.extend(number.to_le_bytes());
    }
    out.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::capture::marks;

    #[test]
    fn the_mark_of_a_replayed_packet_is_found_in_the_captured_bytes() {
        let mut bytes = Vec::new();
        packet(&mut bytes, 1538, 3, 77);
        assert_eq!(bytes.len(), 1538);
        let found = marks(&bytes);
        assert_eq!((found[0].stream, found[0].number), (3, 77));
        // The sum over a correct IP header is 0xffff.
        let sum: u32 = bytes[14..34]
            .chunks(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
