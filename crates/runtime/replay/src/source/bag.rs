//! Reads rosbag2 bags: a directory with metadata.yaml and files, which follow one another in time.

use super::damage::Damage;
use super::packed::{self, Unpacked};
use super::part::{self, Reading};
use super::{extras, fault};
use crate::item::{Details, Extras, Kind, Source, SourceError, Stamp, Stream, StreamId};
use metadata::About;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

mod metadata;

/// Opens the directory of a bag. First opens each file once, to read its topics and its first time.
/// Later opens each file only when playback reaches its first time, so that the memory does not
/// depend on the number of files.
///
/// With [`Reading::Index`], reads only the indexes of the files. The source then fails at its end
/// if metadata.yaml has another number of messages than the files.
///
/// # Errors
/// Fails if the directory is not a bag, or if none of its files can be read. With
/// [`Reading::Index`], also fails if metadata.yaml or the index of a file is not usable.
pub fn open(directory: &Path, reading: Reading) -> Result<Box<dyn Source>, SourceError> {
    let name = directory.display().to_string();
    let mut damage = Damage::default();
    let about = About::of(directory, &mut damage).map_err(|what| fault(&name, what))?;
    let mut bag = Bag {
        reading,
        left: about.messages.filter(|_| reading == Reading::Index),
        extras: about.extras,
        streams: Vec::new(),
        waiting: Vec::new(),
        open: Vec::new(),
        latest: Details::default(),
        sentences: Vec::new(),
        definitions: HashMap::new(),
        back_ns: 0,
    };
    let needs_all = reading == Reading::Index;
    if let (true, Some(what)) = (needs_all, damage.sentences().first()) {
        return Err(fault(&name, what));
    }
    let mut refused = None;
    for path in about.files {
        match bag.survey(&path) {
            Ok(()) => {}
            Err(error) if needs_all => return Err(error),
            Err(error) => {
                damage.add("unreadable files of the bag, left out", || {
                    error.to_string()
                });
                refused = Some(error);
            }
        }
    }
    if let Some(error) = refused.filter(|_| bag.waiting.is_empty()) {
        return Err(error);
    }
    // The next file is the last element.
    bag.waiting
        .sort_by_key(|file| std::cmp::Reverse(file.first_ns));
    bag.sentences.extend_from_slice(damage.sentences());
    Ok(Box::new(bag))
}

struct Bag {
    reading: Reading,
    /// The number of messages that metadata.yaml states, minus those that were returned. `None` if
    /// it is not checked.
    left: Option<u64>,
    extras: Extras,
    streams: Vec<Stream>,
    waiting: Vec<Waiting>,
    open: Vec<Open>,
    latest: Details,
    sentences: Vec<String>,
    definitions: HashMap<String, String>,
    back_ns: u64,
}

struct Waiting {
    path: PathBuf,
    unpacked: Option<Unpacked>,
    first_ns: i64,
    numbers: Vec<StreamId>,
}

struct Open {
    source: Box<dyn Source>,
    numbers: Vec<StreamId>,
    head: Option<Stamp>,
    payload: Vec<u8>,
    _unpacked: Option<Unpacked>,
}

const MOST_SENTENCES: usize = 1000;

impl Bag {
    fn survey(&mut self, path: &Path) -> Result<(), SourceError> {
        let unpacked = packed::unpack(path, &mut |_, _| {})?;
        if let Some(damage) = unpacked.as_ref().and_then(Unpacked::damage) {
            self.keep(&[damage]);
        }
        let mut source = part::open(place(&unpacked, path), path, self.reading)?;
        let numbers = source
            .streams()
            .iter()
            .map(|stream| self.number(stream))
            .collect();
        for name in source.streams().iter().map(type_name) {
            if let (false, Some(text)) =
                (self.definitions.contains_key(name), source.definition(name))
            {
                self.definitions.insert(name.to_owned(), text);
            }
        }
        extras::join(&mut self.extras, source.extras());
        match source.next(&mut Vec::new())? {
            Some(first) => {
                let first_ns = first.time_ns;
                self.waiting.push(Waiting {
                    path: path.to_owned(),
                    unpacked,
                    first_ns,
                    numbers,
                });
            }
            None => self.keep(source.damage()),
        }
        Ok(())
    }

    fn number(&mut self, stream: &Stream) -> StreamId {
        let same = |known: &Stream| {
            let is_same_kind = match (&known.kind, &stream.kind) {
                (Kind::Ros { .. }, Kind::Ros { .. }) => type_name(known) == type_name(stream),
                (known, stream) => known == stream,
            };
            known.name == stream.name && is_same_kind
        };
        let at = self.streams.iter().position(same).unwrap_or_else(|| {
            self.streams.push(stream.clone());
            self.streams.len() - 1
        });
        StreamId(at as u32)
    }

    fn open_due(&mut self) -> Result<(), SourceError> {
        loop {
            let earliest = self
                .open
                .iter()
                .filter_map(|file| Some(file.head?.time_ns))
                .min();
            let is_due =
                |file: &mut Waiting| earliest.is_none_or(|earliest| file.first_ns <= earliest);
            let Some(file) = self.waiting.pop_if(is_due) else {
                return Ok(());
            };
            let source = part::open(place(&file.unpacked, &file.path), &file.path, self.reading)?;
            let Waiting {
                numbers, unpacked, ..
            } = file;
            let mut file = Open {
                source,
                numbers,
                head: None,
                payload: Vec::new(),
                _unpacked: unpacked,
            };
            file.head = file.source.next(&mut file.payload)?;
            self.open.push(file);
        }
    }

    fn refill(&mut self) -> Result<(), SourceError> {
        let mut at = 0;
        while let Some(file) = self.open.get_mut(at) {
            if file.head.is_none() {
                let next = file.source.next(&mut file.payload);
                file.head = *next.as_ref().unwrap_or(&None);
                if file.head.is_none() {
                    let ended = self.open.remove(at);
                    self.back_ns = self.back_ns.max(ended.source.back_ns());
                    self.keep(ended.source.damage());
                    next?;
                    continue;
                }
            }
            at += 1;
        }
        Ok(())
    }

    fn keep(&mut self, damage: &[String]) {
        let room = MOST_SENTENCES.saturating_sub(self.sentences.len());
        self.sentences.extend(damage.iter().take(room).cloned());
    }
}

fn miscounted() -> SourceError {
    fault("metadata.yaml", "the files have another number of messages")
}

fn place<'p>(unpacked: &'p Option<Unpacked>, path: &'p Path) -> &'p Path {
    unpacked.as_ref().map_or(path, |unpacked| &unpacked.path)
}

fn type_name(stream: &Stream) -> &str {
    match &stream.kind {
        Kind::Ros { type_name, .. } => type_name,
        _ => "",
    }
}

impl Source for Bag {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        self.refill()?;
        self.open_due()?;
        let heads = self
            .open
            .iter_mut()
            .filter_map(|file| Some((file.head?, file)));
        let Some((stamp, file)) = heads.min_by_key(|(head, _)| head.time_ns) else {
            return match self.left {
                Some(1..) => Err(miscounted()),
                None | Some(0) => Ok(None),
            };
        };
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or_else(miscounted)?;
        }
        std::mem::swap(payload, &mut file.payload);
        file.head = None;
        self.latest = file.source.details();
        // A file has the streams that it had in the survey, unless somebody has changed it since.
        let stream = file
            .numbers
            .get(stamp.stream.0 as usize)
            .copied()
            .unwrap_or(StreamId(0));
        Ok(Some(Stamp {
            time_ns: stamp.time_ns,
            stream,
        }))
    }

    fn details(&self) -> Details {
        self.latest
    }

    /// Returns the damage of the files that were already read to their end.
    fn damage(&self) -> &[String] {
        &self.sentences
    }

    fn back_ns(&self) -> u64 {
        self.back_ns
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        self.definitions.get(type_name).cloned()
    }

    fn extras(&self) -> Extras {
        self.extras.clone()
    }
}

#[cfg(test)]
mod tests;
