//! Finds the chunks and connections of a ROS 1 bag: from its index, or else by reading its records.

use super::chunk;
use super::connections::Connections;
use super::record::{self, Head, Next, BAG, CHUNK, CHUNK_INFO, CONNECTION, MESSAGE};
use super::MAGIC;
use crate::source::blocks::Loaded;
use crate::source::damage::Damage;
use std::io::{Read, Result, Seek, SeekFrom};

const LONGEST_CONNECTION: u64 = 16 << 20;

#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub at: u64,
    pub first_ns: u64,
}

pub struct Survey {
    pub chunks: Vec<Place>,
    pub connections: Connections,
    pub size: u64,
}

impl Survey {
    pub fn of<R: Read + Seek>(bytes: &mut R, damage: &mut Damage) -> Result<Survey> {
        let size = bytes.seek(SeekFrom::End(0))?;
        let mut survey = match indexed(bytes, size)? {
            Some(survey) => survey,
            None => walked(bytes, size, damage)?,
        };
        survey.connections.seal();
        survey
            .chunks
            .sort_by_key(|chunk| (chunk.first_ns, chunk.at));
        Ok(survey)
    }

    fn new(size: u64) -> Survey {
        Survey {
            chunks: Vec::new(),
            connections: Connections::default(),
            size,
        }
    }

    fn connection<R: Read + Seek>(
        &mut self,
        bytes: &mut R,
        head: &Head,
        damage: &mut Damage,
    ) -> Result<()> {
        if head.length > LONGEST_CONNECTION {
            damage.add("unreadable connections", || format!("byte {}", head.at));
            return Ok(());
        }
        let mut data = Vec::new();
        bytes.seek(SeekFrom::Start(head.data_at()))?;
        bytes.take(head.length).read_to_end(&mut data)?;
        self.connections.declare(head.fields(), &data, damage);
        Ok(())
    }
}

/// Reads the index at the end of the bag. Returns `None` if the index is missing or incomplete,
/// because the recorder was killed or the file is cut off.
fn indexed<R: Read + Seek>(bytes: &mut R, size: u64) -> Result<Option<Survey>> {
    let Next::Record(bag) = record::next(bytes, MAGIC.len() as u64, size)? else {
        return Ok(None);
    };
    let fields = bag.fields();
    let (Some(BAG), Some(index_at)) = (fields.op(), fields.long("index_pos")) else {
        return Ok(None);
    };
    if index_at < bag.end() {
        return Ok(None);
    }
    let mut survey = Survey::new(size);
    let mut unsaid = Damage::default();
    let mut connections = 0;
    let mut at = index_at;
    loop {
        let head = match record::next(bytes, at, size)? {
            Next::Record(head) if head.is_whole => head,
            Next::End => break,
            _ => return Ok(None),
        };
        let fields = head.fields();
        match fields.op() {
            Some(CONNECTION) => {
                connections += 1;
                survey.connection(bytes, &head, &mut unsaid)?;
            }
            Some(CHUNK_INFO) => {
                let place = fields.long("chunk_pos").zip(fields.time_ns("start_time"));
                let Some((at, first_ns)) = place.filter(|place| place.0 < index_at) else {
                    return Ok(None);
                };
                survey.chunks.push(Place { at, first_ns });
            }
            _ => return Ok(None),
        }
        at = head.end();
    }
    let is_whole = fields.number("conn_count") == Some(connections)
        && fields.number("chunk_count") == Some(survey.chunks.len() as u32)
        && unsaid.sentences().is_empty();
    Ok(is_whole.then_some(survey))
}

fn walked<R: Read + Seek>(bytes: &mut R, size: u64, damage: &mut Damage) -> Result<Survey> {
    let mut survey = Survey::new(size);
    let mut scratch = Loaded::default();
    let mut at = MAGIC.len() as u64;
    damage.add(
        "bags without a whole index (the recorder was stopped), read to their end",
        String::new,
    );
    loop {
        let head = match record::next(bytes, at, size)? {
            Next::Record(head) => head,
            Next::End => break,
            Next::Torn => {
                damage.add(
                    "records cut off by the end of the file, not replayed",
                    || format!("byte {at}"),
                );
                break;
            }
            Next::Wrong => {
                damage.add(
                    "invalid records; the file was read up to the record",
                    || format!("byte {at}"),
                );
                break;
            }
        };
        match head.fields().op() {
            Some(CHUNK) => {
                // This damage is reported later, when the chunk is read for its messages.
                let mut unsaid = Damage::default();
                chunk::load(
                    &mut scratch,
                    bytes,
                    &head,
                    &mut survey.connections,
                    &mut unsaid,
                )?;
                let first = scratch.messages.first();
                let first_ns = first.map_or(u64::MAX, |message| message.time_ns);
                survey.chunks.push(Place { at, first_ns });
            }
            Some(CONNECTION) if head.is_whole => survey.connection(bytes, &head, damage)?,
            Some(MESSAGE) => damage.add("messages outside of chunks, not replayed", || {
                format!("byte {at}")
            }),
            _ => {}
        }
        at = head.end();
    }
    Ok(survey)
}
