//! Counts the parts of a recording that a reader skipped: one sentence for each kind, with the
//! place of the first.

use crate::item::SourceError;

/// The faults of a recording, counted by kind. The number of kinds is limited, so a damaged file
/// cannot make this value large.
#[derive(Debug, Default)]
pub struct Damage {
    faults: Vec<Fault>,
    sentences: Vec<String>,
}

#[derive(Debug)]
struct Fault {
    what: &'static str,
    count: u64,
    first: String,
}

impl Damage {
    /// Counts one fault of kind `what`, for example "lines too long for a frame". `place` returns
    /// the position of the fault. The position is stored only for the first fault of its kind.
    pub fn add(&mut self, what: &'static str, place: impl FnOnce() -> String) {
        self.add_many(what, 1, place);
    }

    pub fn add_many(&mut self, what: &'static str, count: u64, place: impl FnOnce() -> String) {
        let at = match self.faults.iter().position(|fault| fault.what == what) {
            Some(at) => at,
            None => {
                let first = printable(&place());
                self.faults.push(Fault {
                    what,
                    count: 0,
                    first,
                });
                self.sentences.push(String::new());
                self.faults.len() - 1
            }
        };
        let fault = &mut self.faults[at];
        fault.count = fault.count.saturating_add(count);
        self.sentences[at] = if fault.first.is_empty() {
            format!("{}: {}", fault.what, fault.count)
        } else {
            format!(
                "{}: {} (the first: {})",
                fault.what, fault.count, fault.first
            )
        };
    }

    /// Returns the error for a file without any items. It states the reason `what`, for example
    /// "the log has no CAN frame", and the first kind of damage.
    pub fn refusal(&self, file: &str, what: &str) -> SourceError {
        let damage = self.sentences.first();
        let damage = damage.map_or(String::new(), |damage| format!(". {damage}"));
        super::fault(file, format!("{what}{damage}"))
    }

    pub fn sentences(&self) -> &[String] {
        &self.sentences
    }
}

/// Returns at most 200 characters of a text from a file. Control characters are escaped, so that
/// the text cannot disturb a terminal.
pub fn printable(text: &str) -> String {
    const LONGEST: usize = 200;
    let mut shown = String::new();
    for c in text.chars().take(LONGEST) {
        if c.is_control()
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c)
        {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    shown
}
