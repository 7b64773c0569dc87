//! What a pass over the events notes: warnings, counters, missing blocks.
use super::ReadStats;

/// Collects the warnings and counters of one pass over the events.
pub(super) struct Log<'a> {
    pub(super) warnings: &'a mut Vec<String>,
    /// So many warnings in all; then only the counters go on.
    pub(super) limit: usize,
    pub(super) stats: &'a mut ReadStats,
    /// Name of the file that is being read.
    pub(super) file: String,
}

impl Log<'_> {
    pub(super) fn warn(&mut self, text: std::fmt::Arguments<'_>) {
        match self.warnings.len() {
            n if n < self.limit => self.warnings.push(format!("{}: {text}", self.file)),
            n if n == self.limit => self.warnings.push("further warnings are left out".into()),
            _ => {}
        }
    }
}

/// Follows the numbers of blocks, and so notices missing ones.
#[derive(Default)]
pub(super) struct Sequence {
    /// Number of the next block, if it is known.
    pub(super) next: Option<u64>,
    /// Damaged blocks that were counted since the last good one.
    pub(super) counted: u64,
}

impl Sequence {
    /// A good block was read.
    pub(super) fn saw(&mut self, number: u64, log: &mut Log<'_>) {
        let missing = number.saturating_sub(self.next.unwrap_or(number));
        let more = missing.saturating_sub(self.counted);
        if more > 0 {
            log.stats.damaged_blocks = log.stats.damaged_blocks.saturating_add(more);
            log.warn(format_args!(
                "{more} blocks before block {number} are missing"
            ));
        }
        self.counted = 0;
        self.next = number.checked_add(1);
    }
}
