//! Maps the channels of an MCAP file to streams: one stream for each topic and type.

use crate::item::Stream;
use crate::source::damage::Damage;
use crate::source::kind_of;
use mcap::records::{op, Record};
use std::collections::HashMap;

#[derive(Default)]
pub struct Channels {
    schemas: HashMap<u16, String>,
    definitions: HashMap<String, String>,
    /// Maps the number of a channel to the index of its stream.
    places: HashMap<u16, u32>,
    streams: Vec<Stream>,
    /// Maps topic, type and encoding to the index of their stream.
    known: HashMap<(String, String, String), u32>,
    sealed: bool,
}

impl Channels {
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    pub fn definition(&self, type_name: &str) -> Option<String> {
        self.definitions.get(type_name).cloned()
    }

    /// Prevents new streams from being added. The survey of the file calls this at its end, because
    /// the list of streams must not change after that.
    pub fn seal(&mut self) {
        self.sealed = true;
    }

    /// Returns the index of a channel's stream, or `None` if the channel was not declared.
    pub fn stream(&self, channel: u16) -> Option<u32> {
        self.places.get(&channel).copied()
    }

    /// Reads a record that declares a schema or a channel. Ignores a schema or channel that was
    /// declared before.
    pub fn declare(&mut self, opcode: u8, body: &[u8], damage: &mut Damage) {
        if opcode != op::SCHEMA && opcode != op::CHANNEL {
            return;
        }
        let parsed = match lengths_fit(opcode, body) {
            Some(()) => mcap::parse_record(opcode, body).ok(),
            None => None,
        };
        match parsed {
            Some(Record::Schema { header, data }) => {
                let text = String::from_utf8(data.into_owned()).ok();
                let text =
                    text.filter(|text| header.encoding == "ros2msg" && !text.trim().is_empty());
                if let Some(text) = text {
                    self.definitions.entry(header.name.clone()).or_insert(text);
                }
                self.schemas.entry(header.id).or_insert(header.name);
            }
            Some(Record::Channel(channel)) => self.channel(channel),
            Some(_) => {}
            None => damage.add("unreadable schemas and channels", String::new),
        }
    }

    fn channel(&mut self, channel: mcap::records::Channel) {
        if self.places.contains_key(&channel.id) {
            return;
        }
        let type_name = self
            .schemas
            .get(&channel.schema_id)
            .cloned()
            .unwrap_or_default();
        let key = (channel.topic, type_name, channel.message_encoding);
        if self.sealed && !self.known.contains_key(&key) {
            return;
        }
        let next = self.streams.len() as u32;
        let place = *self.known.entry(key.clone()).or_insert(next);
        if place == next {
            let (name, type_name, encoding) = key;
            let qos = channel
                .metadata
                .get("offered_qos_profiles")
                .filter(|text| !text.is_empty())
                .cloned();
            let kind = kind_of(&encoding, type_name, qos);
            self.streams.push(Stream { name, kind });
        }
        self.places.insert(channel.id, place);
    }
}

/// Checks that the texts in the record of a schema or a channel fit into the record. Returns `None`
/// if a text is too long. Without this check, `mcap` 0.26 would allocate the stated length of such
/// a text, up to 4 GiB.
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
