//! Maps the connections of a ROS 1 bag to streams: one stream for each topic and definition.

use super::layout::{self, Layout};
use super::record::Fields;
use crate::item::{Kind, Stream};
use crate::source::damage::{printable, Damage};
use std::collections::HashMap;

const MOST: usize = 65_536;
/// The QoS of a latched topic. With it, late subscribers receive the last message.
const LATCHED: &str =
    "- history: keep_last\n  depth: 1\n  reliability: reliable\n  durability: transient_local\n";

#[derive(Default)]
pub struct Connections {
    places: HashMap<u32, u32>,
    known: HashMap<(String, String, String), u32>,
    streams: Vec<Stream>,
    /// For each stream, the layout of its messages. `None` if ROS 2 has no equal type.
    layouts: Vec<Option<Layout>>,
    is_sealed: bool,
}

impl Connections {
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    pub fn layouts(&self) -> &[Option<Layout>] {
        &self.layouts
    }

    /// Prevents new streams from being added. The survey of the file calls this at its end, because
    /// the list of streams must not change after that.
    pub fn seal(&mut self) {
        self.is_sealed = true;
    }

    pub fn stream(&self, connection: u32) -> Option<u32> {
        self.places.get(&connection).copied()
    }

    /// Reads the record of a connection. Ignores a connection that was declared before.
    pub fn declare(&mut self, header: Fields<'_>, data: &[u8], damage: &mut Damage) {
        let data = Fields(data);
        let number = header.number("conn");
        let topic = header.text("topic").or(data.text("topic"));
        let definition = data.bytes("message_definition").unwrap_or_default();
        let (Some(number), Some(topic), Some(type_name)) = (number, topic, data.text("type"))
        else {
            damage.add("unreadable connections", String::new);
            return;
        };
        if self.is_sealed || self.places.contains_key(&number) {
            return;
        }
        if self.places.len() >= MOST {
            damage.add(
                "connections beyond the first 65536, not replayed",
                String::new,
            );
            return;
        }
        let definition = String::from_utf8_lossy(definition);
        let key = (
            topic.to_owned(),
            type_name.to_owned(),
            definition.into_owned(),
        );
        let next = self.streams.len() as u32;
        let is_latched = data.bytes("latching") == Some(b"1");
        let place = match self.known.get(&key) {
            Some(place) => *place,
            None => {
                self.add(topic, type_name, &key.2, is_latched);
                self.known.insert(key, next);
                next
            }
        };
        self.places.insert(number, place);
    }

    fn add(&mut self, topic: &str, type_name: &str, definition: &str, is_latched: bool) {
        let layout = layout::of(type_name, definition);
        let kind = match &layout {
            Ok(layout) => Kind::Ros {
                type_name: layout.type_name.clone(),
                qos: is_latched.then(|| LATCHED.to_owned()),
            },
            Err(reason) => Kind::Unplayable {
                type_name: printable(type_name),
                encoding: Some("ros1".into()),
                reason: printable(reason),
            },
        };
        let name = topic.to_owned();
        self.streams.push(Stream { name, kind });
        self.layouts.push(layout.ok());
    }
}
