//! Why a chain cannot be cut: each error is one line, with what is near.

use crate::text::{shorten, visible};

/// Why a chain cannot be cut as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// A name of nothing on a chain.
    #[error("{option}: '{}' is no callback, node or topic on a chain{}", name(asked), some(": near it are ", .near))]
    Unknown {
        /// Option of the command.
        option: &'static str,
        /// The name.
        asked: String,
        /// Names that contain it.
        near: Vec<String>,
    },
    /// A name that fits several.
    #[error("{option}: '{}' is the end of {} names: {}", name(asked), fit.len(), names(fit))]
    Several {
        /// Option of the command.
        option: &'static str,
        /// The name.
        asked: String,
        /// The names that end with it.
        fit: Vec<String>,
    },
    /// No chain leads from one end to the other.
    #[error("no chain leads{}{}{}{}", end(" from", .from), end(" to", .to), some("; chains from there pass ", .after), some("; chains to there pass ", .before))]
    NoWay {
        /// The first end.
        from: Option<String>,
        /// The second.
        to: Option<String>,
        /// Nodes after the first.
        after: Vec<String>,
        /// Nodes before the second.
        before: Vec<String>,
    },
    /// Chains lead from one end to the other, but past what was named.
    #[error(
        "no chain between these ends passes {}; they pass {}",
        names(through),
        names(near)
    )]
    NotThrough {
        /// What was named.
        through: Vec<String>,
        /// Nodes that they pass.
        near: Vec<String>,
    },
}

fn name(text: &str) -> String {
    shorten(&visible(text), 80)
}

fn end(word: &str, text: &Option<String>) -> String {
    let said = text.as_ref().map(|t| format!("{word} '{}'", name(t)));
    said.unwrap_or_default()
}

/// Some names behind a word; nothing without names.
fn some(word: &str, all: &[String]) -> String {
    match all {
        [] => String::new(),
        _ => format!("{word}{}", names(all)),
    }
}

/// Some names.
fn names(all: &[String]) -> String {
    const SHOWN: usize = 8;
    let some: Vec<String> = all.iter().take(SHOWN).map(|n| name(n)).collect();
    let more = if all.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", some.join(", "))
}
