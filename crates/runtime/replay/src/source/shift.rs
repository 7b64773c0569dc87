//! Moves a recording on the axis of time.

use crate::item::{Details, Extras, Source, SourceError, Stamp, Stream, StreamId};

/// Returns the recording with `by_ns` added to all times.
pub fn shifted(source: Box<dyn Source>, by_ns: i64) -> impl Source {
    Shifted { source, by_ns }
}

struct Shifted {
    source: Box<dyn Source>,
    by_ns: i64,
}

impl Source for Shifted {
    fn streams(&self) -> &[Stream] {
        self.source.streams()
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        let stamp = self.source.next(payload)?;
        Ok(stamp.map(|stamp| Stamp {
            time_ns: stamp.time_ns.saturating_add(self.by_ns),
            ..stamp
        }))
    }

    fn details(&self) -> Details {
        self.source.details()
    }

    fn damage(&self) -> &[String] {
        self.source.damage()
    }

    fn back_ns(&self) -> u64 {
        self.source.back_ns()
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        self.source.definition(type_name)
    }

    fn encoding(&self, stream: StreamId) -> Option<&str> {
        self.source.encoding(stream)
    }

    fn extras(&self) -> Extras {
        self.source.extras()
    }
}
