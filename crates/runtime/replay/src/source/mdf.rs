//! Reads the bus logging of CAN in MDF 4 files of ASAM: data, remote and error frames. Groups can
//! be sorted or unsorted, packed or not.

use super::channels::{Bus, Channels};
use super::order::{self, Survey};
use super::{fault, Bytes};
use crate::item::{Extras, Source, SourceError, Stamp, Stream};
use input::Input;
use records::Records;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

mod about;
mod groups;
mod input;
mod layout;
mod records;
mod stream;

/// The first bytes of an MDF file that its recorder closed. A file that was not closed begins with
/// [`UNFINISHED`] instead.
pub const MAGIC: &[u8] = b"MDF     ";
/// The first bytes of an MDF file that its recorder did not close.
pub const UNFINISHED: &[u8] = b"UnFinMF ";

const IDENTIFICATION: usize = 64;

/// Opens an MDF 4 file. Reads the file twice: in the first pass, `survey` finds how far frames are
/// out of order, and the reader finds the channels.
///
/// # Errors
/// Fails if the file cannot be read, has another version, or has no CAN frame.
pub fn read<R: Bytes + 'static>(
    name: &str,
    bytes: R,
    survey: &mut Survey,
) -> Result<Box<dyn Source>, SourceError> {
    let mut first = open(name, bytes, Channels::default())?;
    let back_ns = survey.read(&mut first)?;
    if first.channels.streams().is_empty() {
        let what = "the file has no CAN frame in ASAM's layout of bus logging";
        return Err(first.input.damage.refusal(name, what));
    }
    let log = open(name, first.input.into_bytes(), first.channels)?;
    Ok(order::sorted(log, back_ns))
}

fn open<R: Bytes>(name: &str, bytes: R, channels: Channels) -> Result<Log<R>, SourceError> {
    let io = |error: std::io::Error| fault(name, error);
    let mut input = Input::new(bytes).map_err(io)?;
    let head = input.exact::<IDENTIFICATION>(0).map_err(io)?;
    let Some(head) = head else {
        return Err(fault(name, "the file is cut off within its header"));
    };
    let version = u16::from_le_bytes([head[28], head[29]]);
    if !(400..500).contains(&version) {
        return Err(fault(
            name,
            "an MDF file of another version. onbeat reads MDF 4. Convert it first, for example with asammdf",
        ));
    }
    const NO_POSITIONS: u16 = 0x40;
    input.is_unfinished = head.starts_with(UNFINISHED);
    if input.is_unfinished {
        let what = "files that their recorder did not close, read to their end";
        input.damage.add(what, String::new);
    }
    let flags = u16::from_le_bytes([head[60], head[61]]);
    input.has_no_positions = input.is_unfinished && flags & NO_POSITIONS != 0;
    let header = input.block(IDENTIFICATION as u64, b"HD").map_err(io)?;
    // The time in the header is UTC. If the recorder did not know its time zone, it is local time. onbeat
    // reads local time as UTC.
    let begin_ns = header.as_ref().map_or(0, |header| header.long(0));
    let extras = match &header {
        Some(header) => about::read(&mut input, header).map_err(io)?,
        None => Extras::default(),
    };
    let first = header.map_or(0, |header| header.link(0));
    let all = groups::read(&mut input, first).map_err(io)?;
    Ok(Log {
        name: name.to_owned(),
        begin_ns: i64::try_from(begin_ns).unwrap_or(0),
        input,
        wanted: (0..all.len()).collect(),
        groups: all
            .into_iter()
            .map(|records| (records, Vec::new()))
            .collect(),
        heads: BinaryHeap::new(),
        channels,
        extras,
        ended: false,
    })
}

/// The next frame of a group: its time in ns since 1970, the index of the group, the channel.
type Head = (i64, usize, u16);

struct Log<R> {
    name: String,
    input: Input<R>,
    /// The beginning of the log in ns since 1970.
    begin_ns: i64,
    /// The groups of records, each with a buffer. The buffer contains the group's next frame,
    /// already read from the file, unless the group is in `wanted`.
    groups: Vec<(Records, Vec<u8>)>,
    /// The indices of the groups whose next frame was not read yet.
    wanted: Vec<usize>,
    heads: BinaryHeap<Reverse<Head>>,
    channels: Channels,
    extras: Extras,
    ended: bool,
}

impl<R: Bytes> Log<R> {
    /// Reads the next frame into `payload`, and returns its time and channel. Returns `None` at the
    /// end of the file.
    #[inline(always)]
    fn frame(&mut self, payload: &mut Vec<u8>) -> std::io::Result<Option<(i64, u16)>> {
        // In most files, only one group has frames, or still has some. Its frames need no sorting.
        if let (true, [number]) = (self.heads.is_empty(), &self.wanted[..]) {
            let (records, _) = &mut self.groups[*number];
            let frame = match records.usual(self.input.is_unfinished, payload) {
                None => records.next(&mut self.input, payload)?,
                frame => frame,
            };
            return Ok(frame.map(|frame| {
                let time_ns = self.begin_ns.saturating_add(frame.since_ns);
                (time_ns, frame.channel)
            }));
        }
        self.refill()?;
        Ok(self.heads.pop().map(|Reverse((time_ns, number, channel))| {
            self.wanted.push(number);
            std::mem::swap(payload, &mut self.groups[number].1);
            (time_ns, channel)
        }))
    }

    fn refill(&mut self) -> std::io::Result<()> {
        while let Some(number) = self.wanted.pop() {
            let (records, payload) = &mut self.groups[number];
            if let Some(frame) = records.next(&mut self.input, payload)? {
                let time_ns = self.begin_ns.saturating_add(frame.since_ns);
                self.heads.push(Reverse((time_ns, number, frame.channel)));
            }
        }
        Ok(())
    }
}

impl<R: Bytes> Source for Log<R> {
    fn streams(&self) -> &[Stream] {
        self.channels.streams()
    }

    // A pass over all frames calls it in its loop.
    #[inline(always)]
    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        while !self.ended {
            let (time_ns, channel) = match self.frame(payload) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    self.ended = true;
                    payload.clear();
                    return Err(fault(&self.name, error));
                }
            };
            match self.channels.stream(Bus::Can, channel) {
                Ok(stream) => return Ok(Some(Stamp { time_ns, stream })),
                Err(what) => self.input.damage.add(what, || format!("channel {channel}")),
            }
        }
        self.ended = true;
        payload.clear();
        Ok(None)
    }

    fn damage(&self) -> &[String] {
        self.input.damage.sentences()
    }

    fn extras(&self) -> Extras {
        self.extras.clone()
    }
}

#[cfg(test)]
mod tests;
