//! Merges several recordings on one axis of time.

use super::extras;
use crate::item::{Details, Extras, Source, SourceError, Stamp, Stream, StreamId};

/// Merges recordings into one, with all items in the order of time. Items with equal times keep the
/// order of the sources. The streams of the first source keep their numbers; the streams of the
/// other sources follow. If `align` is true, all recordings begin at the time of the earliest one,
/// so that recordings of different days play together.
///
/// # Errors
/// Fails if a source cannot be read.
pub fn merged(sources: Vec<Box<dyn Source>>, align: bool) -> Result<Box<dyn Source>, SourceError> {
    let mut streams = Vec::new();
    let mut inputs = Vec::new();
    for source in sources {
        let first_stream = streams.len() as u32;
        streams.extend_from_slice(source.streams());
        let mut input = Input {
            source,
            first_stream,
            shift_ns: 0,
            head: Head::Wanted,
            payload: Vec::new(),
            said: Vec::new(),
        };
        input.refill()?;
        inputs.push(input);
    }
    if align {
        let start_ns = inputs
            .iter()
            .filter_map(|input| Some(input.stamp()?.time_ns))
            .min();
        for input in &mut inputs {
            input.begin_at(start_ns.unwrap_or(0));
        }
    }
    let mut merged = Merged {
        streams,
        inputs,
        latest: Details::default(),
        sentences: Vec::new(),
    };
    merged.say();
    Ok(Box::new(merged))
}

struct Input {
    source: Box<dyn Source>,
    first_stream: u32,
    shift_ns: i64,
    head: Head,
    payload: Vec<u8>,
    said: Vec<String>,
}

#[derive(Clone, Copy)]
enum Head {
    Wanted,
    Item(Stamp),
    Ended,
}

impl Input {
    fn stamp(&self) -> Option<Stamp> {
        match self.head {
            Head::Item(stamp) => Some(stamp),
            Head::Wanted | Head::Ended => None,
        }
    }

    fn refill(&mut self) -> Result<(), SourceError> {
        self.head = Head::Ended;
        if let Some(stamp) = self.source.next(&mut self.payload)? {
            self.head = Head::Item(Stamp {
                time_ns: stamp.time_ns.saturating_add(self.shift_ns),
                stream: StreamId(self.first_stream + stamp.stream.0),
            });
        }
        Ok(())
    }

    fn begin_at(&mut self, start_ns: i64) {
        if let Head::Item(stamp) = &mut self.head {
            self.shift_ns = start_ns.saturating_sub(stamp.time_ns);
            stamp.time_ns = start_ns;
        }
    }
}

struct Merged {
    streams: Vec<Stream>,
    inputs: Vec<Input>,
    latest: Details,
    sentences: Vec<String>,
}

impl Merged {
    fn say(&mut self) {
        let mut new = false;
        for input in &mut self.inputs {
            if input.source.damage() != input.said {
                input.said = input.source.damage().to_vec();
                new = true;
            }
        }
        if new {
            self.sentences = self
                .inputs
                .iter()
                .flat_map(|input| input.said.clone())
                .collect();
        }
    }
}

impl Source for Merged {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        for input in &mut self.inputs {
            if matches!(input.head, Head::Wanted) {
                input.refill()?;
            }
        }
        self.say();
        // There are few recordings, so a linear search is faster than a heap.
        let heads = self
            .inputs
            .iter_mut()
            .filter_map(|input| Some((input.stamp()?, input)));
        let Some((stamp, input)) = heads.min_by_key(|(stamp, _)| stamp.time_ns) else {
            return Ok(None);
        };
        std::mem::swap(payload, &mut input.payload);
        input.head = Head::Wanted;
        self.latest = input.source.details();
        Ok(Some(stamp))
    }

    fn details(&self) -> Details {
        self.latest
    }

    fn damage(&self) -> &[String] {
        &self.sentences
    }

    fn back_ns(&self) -> u64 {
        let inputs = self.inputs.iter().map(|input| input.source.back_ns());
        inputs.max().unwrap_or(0)
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        let mut inputs = self.inputs.iter();
        inputs.find_map(|input| input.source.definition(type_name))
    }

    fn encoding(&self, stream: StreamId) -> Option<&str> {
        let mut inputs = self.inputs.iter().rev();
        let input = inputs.find(|input| input.first_stream <= stream.0)?;
        let recorded = StreamId(stream.0 - input.first_stream);
        input.source.encoding(recorded)
    }

    fn extras(&self) -> Extras {
        let mut all = Extras::default();
        for input in &self.inputs {
            extras::join(&mut all, input.source.extras());
        }
        all
    }
}
