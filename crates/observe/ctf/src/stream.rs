//! Reads the packets of one file, and finds their events one after the other.

use crate::decode::{self, Damaged, Decoder, Value};
use crate::kinds::{Kind, Needs};
use crate::metadata::{EventClass, Metadata, StreamClass};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PACKET_MAGIC: u64 = 0xc1fc_1fc1;
const MAX_HEADER_AND_CONTEXT_BYTES: u64 = 64 << 10;
/// The largest content of a packet, in bytes. The sub-buffers of LTTng are usually smaller than 8
/// MiB.
const MAX_PACKET: u64 = 256 << 20;

pub(crate) struct Seen<'a> {
    pub(crate) cpu: u16,
    pub(crate) kind: Kind,
    pub(crate) fields: &'a Fields<'a>,
}

pub(crate) struct Fields<'a> {
    packet: &'a [u8],
    values: &'a [(&'a str, Value)],
    /// The number of values of contexts, which come first.
    contexts: usize,
}

impl Fields<'_> {
    /// Returns the values of the event's contexts alone. They are there even if a pass over the
    /// session skips the event's own fields.
    pub(crate) fn of_contexts(&self) -> Fields<'_> {
        Fields {
            values: &self.values[..self.contexts],
            ..*self
        }
    }

    fn get(&self, name: &str) -> Option<Value> {
        // The own fields of an event come after those of its contexts. They are used if a context has the
        // same name.
        let found = self.values.iter().rev().find(|(n, _)| *n == name);
        found.map(|(_, value)| *value)
    }

    pub(crate) fn unsigned(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Unsigned(n) => Some(n),
            Value::Signed(n) => Some(n as u64),
            _ => None,
        }
    }

    pub(crate) fn signed(&self, name: &str) -> Option<i64> {
        self.unsigned(name).map(|n| n as i64)
    }

    pub(crate) fn tid(&self, name: &str) -> Option<u32> {
        self.unsigned(name).and_then(|n| u32::try_from(n).ok())
    }

    /// Returns the text of the field `name` up to its first zero byte.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let bytes = self.bytes(name)?;
        let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the first 16 bytes of an endpoint's global identifier. Before Jazzy, such an
    /// identifier had 24 bytes.
    pub(crate) fn gid(&self, name: &str) -> Option<[u8; 16]> {
        self.bytes(name)?.first_chunk().copied()
    }

    fn bytes(&self, name: &str) -> Option<&[u8]> {
        match self.get(name)? {
            Value::Bytes(from, to) => self.packet.get(from..to),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gaps {
    pub(crate) discarded: u64,
    /// The number of packets that the tracer overwrote, or that are not in the file.
    pub(crate) missing_packets: u64,
    pub(crate) damaged_packets: u64,
    /// The file ends within a packet.
    pub(crate) cut: bool,
}

pub(crate) struct Stream<'m> {
    pub(crate) path: PathBuf,
    metadata: &'m Metadata,
    file: File,
    length: u64,
    /// The position of the next packet in the file, in bytes from the file's beginning.
    next: u64,
    packet: Vec<u8>,
    place: Place,
    /// The class of the packet's stream.
    class: Option<&'m StreamClass>,
    ahead: Option<Ahead<'m>>,
    counters: Counters,
    pub(crate) gaps: Gaps,
    /// The latest clock value at which a packet of this file ends, among the packets read so far.
    pub(crate) end: u64,
    buffers: Buffers<'m>,
}

/// The memory for the values of one event, which the next event uses again.
#[derive(Debug, Default)]
struct Buffers<'m> {
    values: Vec<(&'m str, Value)>,
    earlier: Vec<decode::Seen<'m>>,
}

/// The number of values for which a stream keeps memory between two events.
const KEPT_VALUES_MAX: usize = 1024;

impl Buffers<'_> {
    /// Gives back the memory of an unusually large event. A session can have thousands of streams.
    fn shrink(&mut self) {
        if self.values.capacity() > KEPT_VALUES_MAX {
            self.values = Vec::new();
        }
        if self.earlier.capacity() > KEPT_VALUES_MAX {
            self.earlier = Vec::new();
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// The position of the next event, in bits from the packet's beginning.
    at: u64,
    /// The end of the packet's content, in bits from the packet's beginning.
    end: u64,
    clock: u64,
    class: u64,
    cpu: u16,
}

#[derive(Debug, Clone, Copy)]
struct Ahead<'m> {
    class: &'m StreamClass,
    event: &'m EventClass,
    clock: u64,
    /// The position of the event's contexts and fields, in bits from the packet's beginning.
    at: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    sequence: Option<u64>,
    discarded: Option<u64>,
}

struct Head {
    place: Place,
    content: u64,
    size: u64,
    end: Option<u64>,
    counters: Counters,
}

impl<'m> Stream<'m> {
    pub(crate) fn open(path: &Path, metadata: &'m Metadata) -> io::Result<Stream<'m>> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Stream {
            path: path.into(),
            metadata,
            file,
            length,
            next: 0,
            packet: Vec::new(),
            place: Place::default(),
            class: None,
            ahead: None,
            counters: Counters::default(),
            gaps: Gaps::default(),
            end: 0,
            buffers: Buffers::default(),
        })
    }

    pub(crate) fn position(&self) -> u64 {
        self.next.min(self.length)
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Goes to the next event. Returns the event's time on the trace's clock, or `None` at the end
    /// of the file.
    pub(crate) fn advance(&mut self) -> io::Result<Option<u64>> {
        loop {
            if self.place.at >= self.place.end {
                if !self.next_packet()? {
                    self.ahead = None;
                    return Ok(None);
                }
                continue;
            }
            let header = self.header();
            self.buffers.shrink();
            match header {
                Some(ahead) => {
                    self.ahead = Some(ahead);
                    return Ok(Some(ahead.clock));
                }
                None => self.skip_packet(),
            }
        }
    }

    fn skip_packet(&mut self) {
        self.gaps.damaged_packets += 1;
        self.place.at = self.place.end;
    }

    fn header(&mut self) -> Option<Ahead<'m>> {
        let class = self.class?;
        let span = (self.place.at, self.place.end);
        let (order, clock) = (self.metadata.order, self.place.clock);
        let Buffers { values, earlier } = &mut self.buffers;
        let mut decoder = Decoder::new(&self.packet, order, span, clock, earlier);
        let short = class.short_header.as_ref();
        let id = match short.and_then(|header| decoder.short_header(header)) {
            Some(id) => id,
            None => {
                if let Some(ty) = &class.event_header {
                    values.clear();
                    decoder.structure(ty, values).ok()?;
                }
                decoder.number("id").unwrap_or(0)
            }
        };
        Some(Ahead {
            class,
            event: class.events.get(&id)?,
            clock: decoder.clock,
            at: decoder.at,
        })
    }

    /// Returns the kind of the current event.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.ahead.map(|ahead| ahead.event.kind)
    }

    /// Passes the current event to `see`, with the parts that `needs` names. The caller must call this
    /// function once after each [`Stream::advance`] that found an event.
    pub(crate) fn take(&mut self, needs: Needs, see: &mut dyn FnMut(&Seen)) {
        let Some(ahead) = self.ahead.take() else {
            return;
        };
        let span = (ahead.at, self.place.end);
        let Buffers { values, earlier } = &mut self.buffers;
        let mut decoder = Decoder::new(
            &self.packet,
            self.metadata.order,
            span,
            ahead.clock,
            earlier,
        );
        values.clear();
        let decoded = payload(&mut decoder, &ahead, needs, values);
        let at = decoder.at;
        match decoded {
            // An event of 0 bits would be found again and again.
            Ok(contexts) if at > self.place.at => {
                see(&Seen {
                    cpu: self.place.cpu,
                    kind: ahead.event.kind,
                    fields: &Fields {
                        packet: &self.packet,
                        values,
                        contexts,
                    },
                });
                self.place.at = at;
                self.place.clock = ahead.clock;
            }
            _ => self.skip_packet(),
        }
        self.buffers.shrink();
    }

    fn next_packet(&mut self) -> io::Result<bool> {
        let rest = self.length.saturating_sub(self.next);
        if rest == 0 {
            return Ok(false);
        }
        self.fill(rest.min(MAX_HEADER_AND_CONTEXT_BYTES))?;
        let head = match self.head(rest) {
            Some(head) => head,
            None if rest < MAX_HEADER_AND_CONTEXT_BYTES => {
                self.gaps.cut = true;
                self.next = self.length;
                return Ok(false);
            }
            None => {
                self.gaps.damaged_packets += 1;
                self.next = self.length;
                return Ok(false);
            }
        };
        let content = head.content.div_ceil(8).min(rest);
        if content > self.packet.len() as u64 {
            self.fill(content)?;
        }
        self.gaps.cut |= head.size > rest * 8;
        self.place = Place {
            end: head.content.min(self.packet.len() as u64 * 8),
            ..head.place
        };
        self.class = self.metadata.streams.get(&self.place.class);
        self.end = self.end.max(head.end.unwrap_or(head.place.clock));
        self.count(head.counters);
        self.next = self.next.saturating_add(head.size / 8);
        Ok(true)
    }

    fn fill(&mut self, bytes: u64) -> io::Result<()> {
        self.packet.resize(bytes as usize, 0);
        self.file.read_exact_at(&mut self.packet, self.next)
    }

    fn head(&self, rest: u64) -> Option<Head> {
        let (metadata, mut earlier) = (self.metadata, Vec::new());
        let span = (0, self.packet.len() as u64 * 8);
        let mut decoder = Decoder::new(&self.packet, metadata.order, span, 0, &mut earlier);
        let mut fields = Vec::new();
        if let Some(ty) = &metadata.packet_header {
            decoder.structure(ty, &mut fields).ok()?;
            if decoder
                .number("magic")
                .is_some_and(|magic| magic != PACKET_MAGIC)
            {
                return None;
            }
        }
        let class = decoder.number("stream_id").unwrap_or(0);
        let ty = metadata.streams.get(&class)?.packet_context.as_ref();
        if let Some(ty) = ty {
            decoder.structure(ty, &mut fields).ok()?;
        }
        let size = decoder.number("packet_size").unwrap_or(rest * 8);
        let content = decoder.number("content_size").unwrap_or(size);
        let fits = size.is_multiple_of(8)
            && size >= decoder.at.max(8)
            && (decoder.at..=size).contains(&content)
            && content / 8 <= MAX_PACKET;
        let begin = decoder.number("timestamp_begin").unwrap_or(0);
        fits.then_some(Head {
            place: Place {
                at: decoder.at,
                end: content,
                clock: begin,
                class,
                cpu: decoder.number("cpu_id").unwrap_or(0).min(0xffff) as u16,
            },
            content,
            size,
            end: decoder.number("timestamp_end"),
            counters: Counters {
                sequence: decoder.number("packet_seq_num"),
                discarded: decoder.number("events_discarded"),
            },
        })
    }

    /// Counts the losses between the previous packet and the packet with the counters `now`.
    /// LTTng's counters begin at 0 with the first packet of a session.
    fn count(&mut self, now: Counters) {
        let is_first = now.sequence.unwrap_or(0) == 0;
        let before = match (self.counters.discarded, is_first) {
            (Some(before), _) => Some(before),
            (None, true) => Some(0),
            // The file begins within the session, for example a snapshot. Earlier losses do not count.
            (None, false) => now.discarded,
        };
        let lost = now.discarded.zip(before);
        self.gaps.discarded += lost.map_or(0, |(now, before)| now.saturating_sub(before));
        let gap = self.counters.sequence.zip(now.sequence);
        self.gaps.missing_packets += gap.map_or(0, |(before, now)| {
            now.saturating_sub(before).saturating_sub(1)
        });
        self.counters = now;
    }
}

/// Decodes the parts of an event that `needs` names. Returns the number of values of its contexts.
fn payload<'m>(
    decoder: &mut Decoder<'_, 'm>,
    ahead: &Ahead<'m>,
    needs: Needs,
    values: &mut Vec<(&'m str, Value)>,
) -> Result<usize, Damaged> {
    let contexts = [&ahead.class.event_context, &ahead.event.context];
    let contexts = contexts.into_iter().flatten();
    let mut types = contexts.clone().chain(&ahead.event.fields);
    decoder.remembers = types.any(|ty| ty.needs_earlier);
    for ty in contexts {
        match needs {
            Needs::Nothing if !decoder.remembers => decoder.skip(ty, values)?,
            _ => decoder.structure(ty, values)?,
        }
    }
    let of_contexts = values.len();
    if let Some(ty) = &ahead.event.fields {
        match needs {
            Needs::Nothing | Needs::Contexts if !decoder.remembers => decoder.skip(ty, values)?,
            _ => decoder.structure(ty, values)?,
        }
    }
    Ok(of_contexts)
}
