//! Writes MCAP files with messages of ROS 2, as rosbag2 does.

use super::{Plan, Writer};
use crate::item::{Details, Kind, Stamp};
use mcap::records::MessageHeader;
use mcap::{Compression, McapError, WriteOptions};
use std::collections::BTreeMap;
use std::io::{self, Seek, Write};

pub struct Mcap<W: Write + Seek> {
    writer: mcap::Writer<W>,
    /// The number of each stream's MCAP channel. It is 0 for a stream that is not written.
    channels: Vec<u16>,
}

fn io(error: McapError) -> io::Error {
    match error {
        McapError::Io(error) => error,
        other => io::Error::other(other),
    }
}

impl<W: Write + Seek> Mcap<W> {
    pub fn new(plan: &Plan, out: W) -> io::Result<Mcap<W>> {
        let options = WriteOptions::new()
            .profile("ros2")
            .library("onbeat")
            .compression(Some(Compression::Zstd));
        let mut writer = mcap::Writer::with_options(out, options).map_err(io)?;
        let mut channels = Vec::new();
        for stream in &plan.streams {
            let Kind::Ros { type_name, qos } = &stream.stream.kind else {
                channels.push(0);
                continue;
            };
            let text = stream.definition.as_deref().unwrap_or_default();
            let schema = writer
                .add_schema(type_name, "ros2msg", text.as_bytes())
                .map_err(io)?;
            let qos = qos.iter().cloned();
            let about: BTreeMap<String, String> = qos
                .map(|qos| ("offered_qos_profiles".to_owned(), qos))
                .collect();
            let name = &stream.written_as;
            let channel = writer.add_channel(schema, name, "cdr", &about);
            channels.push(channel.map_err(io)?);
        }
        Ok(Mcap { writer, channels })
    }
}

impl<W: Write + Seek> Writer for Mcap<W> {
    fn write(&mut self, stamp: Stamp, details: Details, payload: &[u8]) -> io::Result<()> {
        let log_time = stamp.time_ns as u64;
        let header = MessageHeader {
            channel_id: self.channels[stamp.stream.0 as usize],
            sequence: details.sequence.unwrap_or(0),
            log_time,
            publish_time: details.published_ns.unwrap_or(log_time),
        };
        self.writer
            .write_to_known_channel(&header, payload)
            .map_err(io)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.writer.finish().map(|_| ()).map_err(io)
    }
}
