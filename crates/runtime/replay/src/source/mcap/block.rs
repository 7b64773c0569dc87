//! Holds a block in memory, in the order of time: the messages of one chunk, or consecutive
//! messages outside of chunks.

use super::channels::Channels;
use super::plain;
use crate::item::Details;
use crate::source::blocks::{Loaded, Message};
use crate::source::damage::Damage;
use mcap::records::op;
use mcap::sans_io::linear_reader::{LinearReadEvent, LinearReader, LinearReaderOptions};
use mcap::McapError;
use std::io::{Read, Seek, SeekFrom};

/// The maximum number of bytes of a block in memory. If a chunk unpacks to more bytes, only the
/// bytes up to this number are used.
const MOST_BYTES: usize = 512 << 20;
const READ: usize = 256 << 10;

/// The size in bytes of a message's header: channel, sequence number and two times.
pub const MESSAGE_HEADER: usize = 22;

#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub at: u64,
    pub length: u64,
    pub first_ns: u64,
}

/// Loads a block into `loaded`, in place of the previous block. Adds the channels that the block
/// declares to `channels`.
///
/// # Errors
/// Fails if the file cannot be read. A damaged block is not an error: the messages before the
/// damage are loaded.
pub fn load<R: Read + Seek>(
    loaded: &mut Loaded,
    bytes: &mut R,
    block: Block,
    channels: &mut Channels,
    damage: &mut Damage,
) -> std::io::Result<()> {
    loaded.clear(block.at);
    match plain::chunk(bytes, block.at, block.length)? {
        Some(chunk) => load_plain(loaded, bytes, block, chunk, channels, damage)?,
        None => {
            bytes.seek(SeekFrom::Start(block.at))?;
            load_packed(loaded, bytes, block, channels, damage)?;
        }
    }
    loaded.sort();
    Ok(())
}

/// Loads uncompressed records. The records are read without `LinearReader` of mcap 0.26, which
/// cannot handle a record that is longer than its chunk.
fn load_plain<R: Read>(
    loaded: &mut Loaded,
    bytes: &mut R,
    block: Block,
    chunk: plain::Chunk,
    channels: &mut Channels,
    damage: &mut Damage,
) -> std::io::Result<()> {
    let mut records = plain::Records::new(bytes, chunk);
    while let Some((opcode, length)) = records.next()? {
        if opcode == op::MESSAGE {
            let from = loaded.payloads.len();
            if from as u64 + length > MOST_BYTES as u64 {
                damage.add(TOO_MUCH, || at(block));
                return Ok(());
            }
            records.content(&mut loaded.payloads)?;
            message(loaded, from, channels, damage);
        } else if opcode == op::SCHEMA || opcode == op::CHANNEL {
            let mut body = Vec::new();
            records.content(&mut body)?;
            channels.declare(opcode, &body, damage);
        } else {
            records.skip()?;
        }
    }
    if let Some(what) = records.fault() {
        damage.add(what, || at(block));
    }
    Ok(())
}

fn load_packed<R: Read>(
    loaded: &mut Loaded,
    bytes: &mut R,
    block: Block,
    channels: &mut Channels,
    damage: &mut Damage,
) -> std::io::Result<()> {
    let mut left = block.length;
    let mut reader = LinearReader::new_with_options(
        LinearReaderOptions::default()
            .with_skip_start_magic(true)
            .with_skip_end_magic(true)
            .with_validate_chunk_crcs(true)
            .with_record_length_limit(MOST_BYTES),
    );
    while let Some(event) = reader.next_event() {
        match event {
            Ok(LinearReadEvent::ReadRequest(need)) => {
                let wanted = (need.max(READ) as u64).min(left) as usize;
                let read = if wanted == 0 {
                    0
                } else {
                    bytes.read(reader.insert(wanted))?
                };
                left -= read as u64;
                reader.notify_read(read);
            }
            Ok(LinearReadEvent::Record {
                opcode: op::MESSAGE,
                data,
            }) => {
                let from = loaded.payloads.len();
                if from + data.len() > MOST_BYTES {
                    damage.add(TOO_MUCH, || at(block));
                    break;
                }
                loaded.payloads.extend_from_slice(data);
                message(loaded, from, channels, damage);
            }
            Ok(LinearReadEvent::Record { opcode, data }) => channels.declare(opcode, data, damage),
            Err(error) => {
                damage.add(name(&error), || format!("{}: {error}", at(block)));
                break;
            }
        }
    }
    Ok(())
}

/// Adds a message record to `loaded.messages`. The caller has appended the record to
/// `loaded.payloads`, from the index `from` on. The record's header remains there in front of its
/// payload.
fn message(loaded: &mut Loaded, from: usize, channels: &Channels, damage: &mut Damage) {
    let Some((header, data)) = loaded.payloads[from..].split_first_chunk::<MESSAGE_HEADER>() else {
        damage.add("messages shorter than their header", String::new);
        loaded.payloads.truncate(from);
        return;
    };
    let channel = u16::from_le_bytes([header[0], header[1]]);
    let (time_ns, length) = (log_time(header), data.len());
    let details = Details {
        is_sent: false,
        published_ns: Some(publish_time(header)),
        sequence: Some(sequence(header)),
    };
    match channels.stream(channel) {
        Some(stream) => {
            loaded.messages.push(Message {
                time_ns,
                stream,
                at: from + MESSAGE_HEADER,
                length,
                details,
            });
            return;
        }
        None => damage.add("messages of undeclared channels, not replayed", || {
            format!("channel {channel}")
        }),
    }
    loaded.payloads.truncate(from);
}

const TOO_MUCH: &str = "chunks of more than 512 MiB, read up to that size";

fn at(block: Block) -> String {
    format!("byte {}", block.at)
}

fn name(error: &McapError) -> &'static str {
    match error {
        McapError::BadChunkCrc { .. } => plain::WRONG,
        McapError::UnexpectedEof => plain::TORN,
        _ => "damaged chunks, read up to the damage",
    }
}

pub fn log_time(header: &[u8; MESSAGE_HEADER]) -> u64 {
    u64::from_le_bytes(header[6..14].try_into().expect("eight bytes"))
}

fn publish_time(header: &[u8; MESSAGE_HEADER]) -> u64 {
    u64::from_le_bytes(header[14..].try_into().expect("eight bytes"))
}

fn sequence(header: &[u8; MESSAGE_HEADER]) -> u32 {
    u32::from_le_bytes(header[2..6].try_into().expect("four bytes"))
}
