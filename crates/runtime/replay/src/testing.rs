//! A recording in memory, and helpers that the tests of readers share.

use crate::item::{Kind, Source, SourceError, Stamp, Stream, StreamId};
use std::collections::VecDeque;

pub(crate) fn stream(name: &str) -> Stream {
    Stream {
        name: name.into(),
        kind: Kind::Can,
    }
}

pub(crate) type Item = (i64, String, Vec<u8>);

pub(crate) fn frames(mut source: Box<dyn Source>) -> (Vec<Item>, Vec<String>) {
    let mut payload = Vec::new();
    let mut all = Vec::new();
    while let Some(stamp) = source.next(&mut payload).expect("readable") {
        let name = source.streams()[stamp.stream.0 as usize].name.clone();
        all.push((stamp.time_ns, name, payload.clone()));
    }
    (all, source.damage().to_vec())
}

pub(crate) fn frame(id: u32, rest: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = id.to_ne_bytes().to_vec();
    bytes.extend_from_slice(rest);
    bytes.resize(size, 0);
    bytes
}

pub(crate) struct Listed {
    streams: Vec<Stream>,
    items: VecDeque<(Stamp, Vec<u8>)>,
    pub(crate) breaks: Option<String>,
}

impl Listed {
    pub(crate) fn new(streams: Vec<Stream>) -> Listed {
        Listed {
            streams,
            items: VecDeque::new(),
            breaks: None,
        }
    }

    pub(crate) fn streams_mut(&mut self) -> &mut Vec<Stream> {
        &mut self.streams
    }

    pub(crate) fn push(&mut self, time_ns: i64, stream: u32, bytes: &[u8]) {
        let stream = StreamId(stream);
        self.items
            .push_back((Stamp { time_ns, stream }, bytes.to_vec()));
    }
}

impl Source for Listed {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        match (self.items.pop_front(), self.breaks.take()) {
            (Some((stamp, bytes)), breaks) => {
                self.breaks = breaks;
                payload.extend_from_slice(&bytes);
                Ok(Some(stamp))
            }
            (None, None) => Ok(None),
            (None, Some(fault)) => Err(SourceError {
                file: "listed".into(),
                fault,
            }),
        }
    }

    fn damage(&self) -> &[String] {
        &[]
    }
}
