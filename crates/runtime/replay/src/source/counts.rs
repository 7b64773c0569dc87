//! Counts the messages in an index, to compare them with the counts that a file states elsewhere.

use std::collections::BTreeMap;

/// The number of messages of each channel, and the times of the first and the last message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    channels: BTreeMap<u32, u64>,
    ends: Option<(u64, u64)>,
}

impl Counts {
    pub fn add(&mut self, channel: u32, messages: u64) {
        if messages > 0 {
            let count = self.channels.entry(channel).or_default();
            *count = count.saturating_add(messages);
        }
    }

    /// Adds the times of the first and the last message of a part of the file.
    pub fn stretch(&mut self, (first_ns, last_ns): (u64, u64)) {
        let (first, last) = self.ends.unwrap_or((first_ns, last_ns));
        self.ends = Some((first.min(first_ns), last.max(last_ns)));
    }

    /// Returns the number of messages of all channels.
    pub fn messages(&self) -> u64 {
        let counts = self.channels.values();
        counts.fold(0, |all, count| all.saturating_add(*count))
    }
}
