//! Which stream a channel of an MCAP file is: one per topic and type.

use crate::item::{Kind, Stream};
use crate::source::damage::Damage;
use mcap::records::{op, Record};
use std::collections::HashMap;

/// Channels as the file declares them.
#[derive(Default)]
pub struct Channels {
    schemas: HashMap<u16, String>,
    /// Stream of each channel. `None`: its messages are not replayed.
    places: HashMap<u16, Option<u32>>,
    streams: Vec<Stream>,
    /// By topic and type.
    known: HashMap<(String, String), u32>,
    sealed: bool,
}

impl Channels {
    /// All streams that were declared so far.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// From here on no stream is added: what streams there are has been said.
    pub fn seal(&mut self) {
        self.sealed = true;
    }

    /// Stream of a channel: `None` when it was not declared, `Some(None)` when it is not replayed.
    pub fn stream(&self, channel: u16) -> Option<Option<u32>> {
        self.places.get(&channel).copied()
    }

    /// Takes a record that declares a schema or a channel. What was declared first stays.
    pub fn declare(&mut self, opcode: u8, body: &[u8], damage: &mut Damage) {
        if opcode != op::SCHEMA && opcode != op::CHANNEL {
            return;
        }
        let parsed = match lengths_fit(opcode, body) {
            Some(()) => mcap::parse_record(opcode, body).ok(),
            None => None,
        };
        match parsed {
            Some(Record::Schema { header, .. }) => {
                self.schemas.entry(header.id).or_insert(header.name);
            }
            Some(Record::Channel(channel)) => self.channel(channel, damage),
            Some(_) => {}
            None => damage.add("schemas and channels that cannot be read", String::new),
        }
    }

    fn channel(&mut self, channel: mcap::records::Channel, damage: &mut Damage) {
        if self.places.contains_key(&channel.id) {
            return;
        }
        if channel.message_encoding != "cdr" {
            damage.add("channels whose messages are not CDR, not replayed", || {
                format!("{}: {}", channel.topic, channel.message_encoding)
            });
            self.places.insert(channel.id, None);
            return;
        }
        let type_name = self
            .schemas
            .get(&channel.schema_id)
            .cloned()
            .unwrap_or_default();
        let key = (channel.topic, type_name);
        if self.sealed && !self.known.contains_key(&key) {
            return;
        }
        let next = self.streams.len() as u32;
        let place = *self.known.entry(key.clone()).or_insert(next);
        if place == next {
            let (name, type_name) = key;
            let qos = channel
                .metadata
                .get("offered_qos_profiles")
                .filter(|text| !text.is_empty())
                .cloned();
            self.streams.push(Stream {
                name,
                kind: Kind::Ros { type_name, qos },
            });
        }
        self.places.insert(channel.id, Some(place));
    }
}

/// Whether every text of a schema or a channel is there. `mcap` 0.26 allocates what a text's length says, up to 4 GiB,
/// before it looks.
fn lengths_fit(opcode: u8, body: &[u8]) -> Option<()> {
    fn text(body: &[u8]) -> Option<&[u8]> {
        let (length, rest) = body.split_first_chunk()?;
        rest.get(u32::from_le_bytes(*length) as usize..)
    }
    if opcode == op::SCHEMA {
        return text(text(text(body.get(2..)?)?)?).map(|_| ());
    }
    let map = text(text(body.get(4..)?)?)?;
    let (length, rest) = map.split_first_chunk()?;
    let mut left = rest.get(..u32::from_le_bytes(*length) as usize)?;
    while !left.is_empty() {
        left = text(text(left)?)?;
    }
    Some(())
}
