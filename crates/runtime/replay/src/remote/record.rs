//! Encodes and decodes the records of a recording that goes over a link. Pure.

use crate::item::{Kind, Stamp, Stream, StreamId};
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;
pub(super) const MOST_ITEM: usize = 1 << 30;
const MOST_TEXT: usize = 16 << 20;
const STAMP: usize = 12;

const BEGIN: u8 = 0;
const ITEM: u8 = 1;
const END: u8 = 2;

#[derive(Serialize, Deserialize)]
struct Begin {
    version: u32,
    streams: Vec<Told>,
}

#[derive(Serialize, Deserialize)]
struct Told {
    name: String,
    kind: ToldKind,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToldKind {
    Ros {
        type_name: String,
        qos: Option<String>,
    },
    Can,
    Packets {
        link_type: u32,
    },
    Unplayable {
        type_name: String,
        reason: String,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub damage: Vec<String>,
    pub fault: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'b> {
    Begin(Vec<Stream>),
    Item(Stamp, &'b [u8]),
    End(End),
}

fn told(stream: &Stream) -> Told {
    Told {
        name: stream.name.clone(),
        kind: match &stream.kind {
            Kind::Ros { type_name, qos } => ToldKind::Ros {
                type_name: type_name.clone(),
                qos: qos.clone(),
            },
            Kind::Can => ToldKind::Can,
            Kind::Packets { link_type } => ToldKind::Packets {
                link_type: *link_type,
            },
            // Only the host that plays turns service events into requests.
            Kind::Requests { type_name } => ToldKind::Unplayable {
                type_name: type_name.clone(),
                reason: "onbeat does not send service requests over a link".into(),
            },
            Kind::Unplayable {
                type_name, reason, ..
            } => ToldKind::Unplayable {
                type_name: type_name.clone(),
                reason: reason.clone(),
            },
        },
    }
}

fn stream(told: Told) -> Stream {
    Stream {
        name: told.name,
        kind: match told.kind {
            ToldKind::Ros { type_name, qos } => Kind::Ros { type_name, qos },
            ToldKind::Can => Kind::Can,
            ToldKind::Packets { link_type } => Kind::Packets { link_type },
            ToldKind::Unplayable { type_name, reason } => Kind::Unplayable {
                type_name,
                encoding: None,
                reason,
            },
        },
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong(pub usize);

/// Calls `put` with each part of the record that begins a transmission and lists `streams`. If the
/// record is too long, fails without a call of `put`.
pub(super) fn begin(streams: &[Stream], put: &mut dyn FnMut(&[u8])) -> Result<(), TooLong> {
    let begin = Begin {
        version: VERSION,
        streams: streams.iter().map(told).collect(),
    };
    text(BEGIN, &begin, put)
}

pub(super) fn item(stamp: Stamp, bytes: &[u8], put: &mut dyn FnMut(&[u8])) -> Result<(), TooLong> {
    if bytes.len() > MOST_ITEM {
        return Err(TooLong(bytes.len()));
    }
    head(ITEM, STAMP + bytes.len(), put);
    put(&stamp.time_ns.to_le_bytes());
    put(&stamp.stream.0.to_le_bytes());
    put(bytes);
    Ok(())
}

pub(super) fn end(end: &End, put: &mut dyn FnMut(&[u8])) -> Result<(), TooLong> {
    text(END, end, put)
}

fn text(kind: u8, value: &impl Serialize, put: &mut dyn FnMut(&[u8])) -> Result<(), TooLong> {
    // A struct of texts and numbers can always be written as JSON.
    let text = serde_json::to_vec(value).unwrap_or_default();
    if text.len() > MOST_TEXT {
        return Err(TooLong(text.len()));
    }
    head(kind, text.len(), put);
    put(&text);
    Ok(())
}

fn head(kind: u8, bytes: usize, put: &mut dyn FnMut(&[u8])) {
    put(&(bytes as u32 + 1).to_le_bytes());
    put(&[kind]);
}

/// Returns the size of the first record in `bytes`, including its length field. Returns `None`
/// while the record's length or kind is incomplete. An item may have at most `most` bytes.
///
/// # Errors
/// Fails if the bytes are not the beginning of a valid record.
pub(super) fn length(bytes: &[u8], most: usize) -> Result<Option<usize>, String> {
    let Some([a, b, c, d, kind]) = bytes.first_chunk() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let item = length.saturating_sub(1 + STAMP);
    match *kind {
        ITEM if item > most => Err(format!(
            "an item of {item} bytes, but the buffer here has room for only {most}. Give it more memory (--memory or --buffer)"
        )),
        BEGIN | END if length > 1 + MOST_TEXT => Err("a record that is too long".into()),
        BEGIN | ITEM | END if length > 0 => Ok(Some(4 + length)),
        _ => Err("a record of an unknown kind".into()),
    }
}

/// Parses a record. `record` must have the size that [`length`] returned.
///
/// # Errors
/// Fails if the record is not valid.
pub(super) fn read(record: &[u8]) -> Result<Record<'_>, &'static str> {
    let (kind, body) = record
        .get(4..)
        .and_then(|r| r.split_first())
        .ok_or("a record that is too short")?;
    match *kind {
        BEGIN => {
            let begin: Begin =
                serde_json::from_slice(body).map_err(|_| "an invalid list of streams")?;
            if begin.version != VERSION {
                return Err("a recording in another protocol version. Update onbeat on the host with the older version");
            }
            Ok(Record::Begin(
                begin.streams.into_iter().map(stream).collect(),
            ))
        }
        ITEM => {
            let (time, rest) = body.split_first_chunk().ok_or("an item without a time")?;
            let (number, item) = rest
                .split_first_chunk()
                .ok_or("an item of an unknown stream")?;
            let stamp = Stamp {
                time_ns: i64::from_le_bytes(*time),
                stream: StreamId(u32::from_le_bytes(*number)),
            };
            Ok(Record::Item(stamp, item))
        }
        END => {
            let end =
                serde_json::from_slice(body).map_err(|_| "an invalid end of the recording")?;
            Ok(Record::End(end))
        }
        _ => Err("a record of an unknown kind"),
    }
}

/// Returns the number of valid records at the beginning of `bytes`. The fuzzer uses this function.
#[doc(hidden)]
pub fn records(mut bytes: &[u8]) -> u64 {
    let mut good = 0;
    while let Ok(Some(length)) = length(bytes, MOST_ITEM) {
        if length > bytes.len() {
            break;
        }
        let (record, rest) = bytes.split_at(length);
        if read(record).is_err() {
            break;
        }
        good += 1;
        bytes = rest;
    }
    good
}
