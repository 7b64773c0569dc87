//! Keeps the messages of latched topics that a replay skips, as the publisher kept them for late
//! subscribers.

use crate::item::{Kind, Stamp, Stream, StreamId};
use crate::sink::qos::latched;
use std::collections::VecDeque;

/// The maximum number of messages that are stored per topic. A topic with several publishers, such
/// as `/tf_static`, needs more than one.
const MOST: usize = 1000;
const MOST_BYTES: usize = 64 << 20;

#[derive(Default)]
pub struct Latched {
    /// For each stream, the number of messages that a late subscriber receives. 0 if the topic is
    /// not latched.
    depths: Vec<usize>,
    kept: VecDeque<(StreamId, Vec<u8>)>,
    bytes: usize,
    /// The messages of latched topics that are played next. The last entry is the item before which
    /// they are played.
    leaving: VecDeque<(Stamp, Vec<u8>)>,
}

impl Latched {
    pub fn of(streams: &[Stream]) -> Latched {
        let depth = |stream: &Stream| match &stream.kind {
            Kind::Ros { qos: Some(qos), .. } => latched(qos).min(MOST),
            _ => 0,
        };
        Latched {
            depths: streams.iter().map(depth).collect(),
            ..Latched::default()
        }
    }

    /// Returns whether no topic is latched.
    pub fn is_empty(&self) -> bool {
        self.depths.iter().all(|&depth| depth == 0)
    }

    pub fn forget(&mut self) {
        self.kept.clear();
        self.leaving.clear();
        self.bytes = 0;
    }

    /// Stores a skipped message if its topic is latched. Of equal messages, only the latest is
    /// stored.
    pub fn keep(&mut self, stream: StreamId, message: &[u8]) {
        let depth = self.depths.get(stream.0 as usize).copied().unwrap_or(0);
        if depth == 0 {
            return;
        }
        let is_equal = |(other, bytes): &(StreamId, Vec<u8>)| *other == stream && bytes == message;
        if let Some(at) = self.kept.iter().position(is_equal) {
            self.remove(at);
        }
        let of_stream = |kept: &VecDeque<(StreamId, Vec<u8>)>| {
            let all = kept.iter().filter(|(other, _)| *other == stream);
            let first = kept.iter().position(|(other, _)| *other == stream);
            (all.count(), first)
        };
        if let (count, Some(first)) = of_stream(&self.kept) {
            if count >= depth {
                self.remove(first);
            }
        }
        self.bytes += message.len();
        self.kept.push_back((stream, message.to_vec()));
        while self.bytes > MOST_BYTES && self.kept.len() > 1 {
            self.remove(0);
        }
    }

    fn remove(&mut self, at: usize) {
        if let Some((_, bytes)) = self.kept.remove(at) {
            self.bytes -= bytes.len();
        }
    }

    /// Returns the item that is played next: the first stored message, or else `item` itself. Fills
    /// `payload` with the bytes of the returned item. If messages are stored, [`Latched::release`]
    /// returns the other messages and then `item`.
    pub fn before(&mut self, item: Stamp, payload: &mut Vec<u8>) -> Stamp {
        if self.kept.is_empty() {
            return item;
        }
        let time_ns = item.time_ns;
        let kept = self.kept.drain(..);
        self.leaving
            .extend(kept.map(|(stream, bytes)| (Stamp { time_ns, stream }, bytes)));
        self.bytes = 0;
        self.leaving.push_back((item, std::mem::take(payload)));
        self.release(payload).unwrap_or(item)
    }

    pub fn release(&mut self, payload: &mut Vec<u8>) -> Option<Stamp> {
        let (stamp, bytes) = self.leaving.pop_front()?;
        payload.clear();
        payload.extend_from_slice(&bytes);
        Some(stamp)
    }
}
