//! The errors of cutting a chain. Each is one line that lists similar names.

use crate::text::{shorten, visible};

/// The reason why a chain cannot be cut as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// Nothing on a chain has the given name.
    #[error("{option}: '{}' is not a callback, node or topic on a chain{}", name(asked), some(". Similar names: ", .near))]
    Unknown {
        /// The option of the command with the unknown name.
        option: &'static str,
        /// The name that the user gave.
        asked: String,
        /// The names on chains that contain the given name.
        near: Vec<String>,
    },
    /// The given name fits several things.
    #[error("{option}: '{}' fits {} names: {}", name(asked), fit.len(), names(fit))]
    Several {
        /// The option of the command with the ambiguous name.
        option: &'static str,
        /// The name that the user gave.
        asked: String,
        /// The names on chains that end with the given name.
        fit: Vec<String>,
    },
    /// No chain leads from one end to the other.
    #[error("no chain leads{}{}{}{}", end(" from", .from), end(" to", .to), some(". Chains from there pass ", .after), some(". Chains to there pass ", .before))]
    NoWay {
        /// The name of the end where chains must begin, if the user gave it.
        from: Option<String>,
        /// The name of the end where chains must end, if the user gave it.
        to: Option<String>,
        /// The nodes that chains pass after the first end.
        after: Vec<String>,
        /// The nodes that chains pass before the second end.
        before: Vec<String>,
    },
    /// Chains lead between the ends, but none passes all the given points.
    #[error(
        "no chain between these ends passes {}. These chains pass {}",
        names(through),
        names(near)
    )]
    NotThrough {
        /// The points that the user named.
        through: Vec<String>,
        /// The nodes that the chains do pass.
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

/// Returns `word` and the names, or nothing without names.
fn some(word: &str, all: &[String]) -> String {
    match all {
        [] => String::new(),
        _ => format!("{word}{}", names(all)),
    }
}

fn names(all: &[String]) -> String {
    const SHOWN: usize = 8;
    let some: Vec<String> = all.iter().take(SHOWN).map(|n| name(n)).collect();
    let more = if all.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", some.join(", "))
}
