//! A recording in memory, and helpers that the tests of readers share.

use crate::contents::Contents;
use crate::item::{Kind, Source, SourceError, Stamp, Stream, StreamId};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

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

/// Returns the figures of a recording that its index has, too.
pub(crate) fn figures(contents: &Contents) -> serde_json::Value {
    let mut figures = serde_json::to_value(contents).expect("in memory");
    let without = |value: &mut serde_json::Value, names: &[&str]| {
        let object = value.as_object_mut().expect("an object");
        names.iter().for_each(|name| drop(object.remove(*name)));
    };
    without(
        &mut figures,
        &["is_from_index", "bytes", "damage", "requests"],
    );
    let streams = figures["streams"].as_array_mut().expect("a list");
    streams
        .iter_mut()
        .for_each(|stream| without(stream, &["bytes"]));
    figures
}

/// Reads a recording to its end, and by its index if it has a usable one. Both must have the same
/// figures. Returns the contents by index.
pub(crate) fn by_index(path: &Path) -> Option<Contents> {
    let indexed = Contents::of_index(path, &mut |_| {});
    let whole = Contents::read(path, &mut |_, _| {}, &mut |_| {});
    if let Some(indexed) = &indexed {
        let whole = whole.expect("a recording");
        assert_eq!(figures(indexed), figures(&whole), "{}", path.display());
        assert!(indexed.is_from_index && !whole.is_from_index);
        assert_eq!((indexed.bytes, &indexed.damage), (None, &None));
    }
    indexed
}

/// Returns the files of the corpus with which the readers of one format are fuzzed.
pub(crate) fn corpus(format: &str) -> Vec<PathBuf> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus");
    let entries = std::fs::read_dir(Path::new(root).join(format)).expect("a corpus");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.collect()
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
