//! Collects warnings, counters and missing blocks while the events are read.
use super::ReadStats;

pub(super) struct Log<'a> {
    pub(super) warnings: &'a mut Vec<String>,
    pub(super) limit: usize,
    pub(super) stats: &'a mut ReadStats,
    pub(super) file: String,
}

impl Log<'_> {
    pub(super) fn warn(&mut self, text: std::fmt::Arguments<'_>) {
        match self.warnings.len() {
            n if n < self.limit => self.warnings.push(format!("{}: {text}", self.file)),
            n if n == self.limit => self
                .warnings
                .push("further warnings about the trace are left out".into()),
            _ => {}
        }
    }
}

#[derive(Default)]
pub(super) struct Sequence {
    pub(super) next: Option<u64>,
    pub(super) counted: u64,
}

impl Sequence {
    pub(super) fn saw(&mut self, number: u64, log: &mut Log<'_>) {
        let missing = number.saturating_sub(self.next.unwrap_or(number));
        let more = missing.saturating_sub(self.counted);
        if more > 0 {
            log.stats.damaged_blocks = log.stats.damaged_blocks.saturating_add(more);
            log.warn(format_args!(
                "{more} blocks are missing before block {number}"
            ));
        }
        self.counted = 0;
        self.next = number.checked_add(1);
    }
}
