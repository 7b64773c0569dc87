//! Loads the chunks of a ROS 1 bag: unpacks them, and finds their messages.

use super::connections::Connections;
use super::record::{self, Fields, Head, CONNECTION, MESSAGE};
use crate::item::Details;
use crate::source::blocks::{Loaded, Message};
use crate::source::damage::Damage;
use std::io::{Read, Result, Seek, SeekFrom};

/// The maximum number of bytes of a chunk in memory. If a chunk unpacks to more bytes, only the
/// bytes up to this number are used.
const MOST_BYTES: u64 = 512 << 20;

const TORN: &str = "chunks cut off by the end of the file, read up to the cut";
const DAMAGED: &str = "damaged chunks, read up to the damage";

/// Loads a chunk into `loaded`, in place of the previous chunk. Adds the connections that the chunk
/// declares to `connections`.
///
/// # Errors
/// Fails if the file cannot be read. A damaged chunk is not an error: the messages before the
/// damage are loaded.
pub fn load<R: Read + Seek>(
    loaded: &mut Loaded,
    bytes: &mut R,
    head: &Head,
    connections: &mut Connections,
    damage: &mut Damage,
) -> Result<()> {
    let place = || format!("byte {}", head.at);
    loaded.clear(head.at);
    bytes.seek(SeekFrom::Start(head.data_at()))?;
    let mut packed = bytes.take(head.length);
    let most = MOST_BYTES + 1;
    let plain = &mut loaded.payloads;
    let unpacked = match head.fields().bytes("compression") {
        Some(b"none") => packed.take(most).read_to_end(plain),
        Some(b"bz2") => bzip2::read::BzDecoder::new(packed)
            .take(most)
            .read_to_end(plain),
        Some(b"lz4") => match lz4::Decoder::new(&mut packed) {
            Ok(decoder) => decoder.take(most).read_to_end(plain),
            Err(error) => Err(error),
        },
        _ => {
            damage.add("chunks with an unknown compression, left out", place);
            return Ok(());
        }
    };
    let mut fault = None;
    if plain.len() as u64 > MOST_BYTES {
        plain.truncate(MOST_BYTES as usize);
        fault = Some("chunks of more than 512 MiB, read up to that size");
    } else if !head.is_whole {
        fault = Some(TORN);
    } else if unpacked.is_err() {
        fault = Some(DAMAGED);
    }
    let is_whole = messages(loaded, connections, damage);
    if let Some(fault) = fault.or((!is_whole).then_some(DAMAGED)) {
        damage.add(fault, place);
    }
    loaded.sort();
    Ok(())
}

fn messages(loaded: &mut Loaded, connections: &mut Connections, damage: &mut Damage) -> bool {
    let plain = &loaded.payloads;
    let mut rest = &plain[..];
    while !rest.is_empty() {
        let Some((header, data, after)) = record::split(rest) else {
            return false;
        };
        match header.op() {
            Some(CONNECTION) => connections.declare(header, data, damage),
            Some(MESSAGE) => {
                let at = plain.len() - after.len() - data.len();
                if let Some(message) = message(header, connections, damage) {
                    loaded.messages.push(Message {
                        at,
                        length: data.len(),
                        ..message
                    });
                }
            }
            // Other records do not belong into a chunk.
            _ => return false,
        }
        rest = after;
    }
    true
}

fn message(header: Fields<'_>, connections: &Connections, damage: &mut Damage) -> Option<Message> {
    let (Some(connection), Some(time_ns)) = (header.number("conn"), header.time_ns("time")) else {
        damage.add(
            "messages without a connection or a time, not replayed",
            String::new,
        );
        return None;
    };
    let Some(stream) = connections.stream(connection) else {
        damage.add("messages of undeclared connections, not replayed", || {
            format!("connection {connection}")
        });
        return None;
    };
    Some(Message {
        time_ns,
        stream,
        at: 0,
        length: 0,
        details: Details::default(),
    })
}
