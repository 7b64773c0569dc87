//! Finds the chunks and connections of a ROS 1 bag: from its index, or else by reading its records.

use super::chunk;
use super::connections::Connections;
use super::record::{self, Head, Next, BAG, CHUNK, CHUNK_INFO, CONNECTION, MESSAGE};
use super::MAGIC;
use crate::source::blocks::Loaded;
use crate::source::counts::Counts;
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
    /// The counts that the index states for all chunks together. `None` without a usable index.
    pub stated: Option<Counts>,
}

impl Survey {
    pub fn of<R: Read + Seek>(bytes: &mut R, damage: &mut Damage) -> Result<Survey> {
        let size = bytes.seek(SeekFrom::End(0))?;
        let mut survey = match indexed(bytes, size)? {
            Some(survey) => survey,
            None => walked(bytes, size, damage)?,
        };
        survey.finish();
        Ok(survey)
    }

    /// Reads the index at the end of the bag like [`Survey::of`], but never reads chunks. Returns
    /// `None` if the index is missing or incomplete.
    pub fn of_index<R: Read + Seek>(bytes: &mut R) -> Result<Option<Survey>> {
        let size = bytes.seek(SeekFrom::End(0))?;
        let mut survey = indexed(bytes, size)?;
        survey.iter_mut().for_each(Survey::finish);
        Ok(survey)
    }

    fn finish(&mut self) {
        self.connections.seal();
        self.chunks.sort_by_key(|chunk| (chunk.first_ns, chunk.at));
    }

    fn new(size: u64) -> Survey {
        Survey {
            chunks: Vec::new(),
            connections: Connections::default(),
            size,
            stated: None,
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
    let mut stated = Some(Counts::default());
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
                stated = match stated {
                    Some(counts) => counted(bytes, &head, counts)?,
                    None => None,
                };
            }
            _ => return Ok(None),
        }
        at = head.end();
    }
    let is_whole = fields.number("conn_count") == Some(connections)
        && fields.number("chunk_count") == Some(survey.chunks.len() as u32)
        && unsaid.sentences().is_empty();
    survey.stated = stated;
    Ok(is_whole.then_some(survey))
}

/// Adds the messages of a chunk that its record in the index states. Returns `None` if the record
/// is damaged or too long.
fn counted<R: Read + Seek>(
    bytes: &mut R,
    head: &Head,
    mut counts: Counts,
) -> Result<Option<Counts>> {
    let fields = head.fields();
    let ends = fields.time_ns("start_time").zip(fields.time_ns("end_time"));
    if head.length > LONGEST_CONNECTION {
        return Ok(None);
    }
    let mut data = Vec::new();
    bytes.seek(SeekFrom::Start(head.data_at()))?;
    bytes.take(head.length).read_to_end(&mut data)?;
    let mut messages = 0u64;
    let (pairs, rest) = data.as_chunks::<8>();
    for [a, b, c, d, count @ ..] in pairs {
        let count = u32::from_le_bytes(*count);
        counts.add(u32::from_le_bytes([*a, *b, *c, *d]), count.into());
        messages += u64::from(count);
    }
    let is_right = rest.is_empty() && fields.number("count") == Some(pairs.len() as u32);
    Ok(match ends {
        Some(ends) if is_right => {
            if messages > 0 {
                counts.stretch(ends);
            }
            Some(counts)
        }
        _ => None,
    })
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
