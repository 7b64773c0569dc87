//! The errors of cutting a chain. Each is one line that lists similar names.

use crate::text::{shorten, visible};

/// The reason why a part of a chain cannot be found as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// Nothing on a chain has the given name.
    #[error("{option}: '{}' is not a callback, node or topic on a chain{}", name(asked), some(". Similar names: ", .near))]
    Unknown {
        /// The command-line option that has the unknown name, for example `--from`.
        option: &'static str,
        /// The name that the user gave.
        asked: String,
        /// The similar names on chains: those that contain the given name.
        near: Vec<String>,
    },
    /// The given name fits several things.
    #[error("{option}: '{}' fits {} names: {}", name(asked), fit.len(), names(fit))]
    Several {
        /// The command-line option that has the ambiguous name, for example `--from`.
        option: &'static str,
        /// The name that the user gave.
        asked: String,
        /// The names on chains that the given name fits: those that end with it.
        fit: Vec<String>,
    },
    /// No chain leads from one end to the other.
    #[error("no chain leads{}{}{}{}", end(" from", .from), end(" to", .to), some(". Chains from there pass ", .after), some(". Chains to there pass ", .before))]
    NoWay {
        /// The name of the requested start, if the user gave one.
        from: Option<String>,
        /// The name of the requested end, if the user gave one.
        to: Option<String>,
        /// The nodes that chains pass after the requested start.
        after: Vec<String>,
        /// The nodes that chains pass before the requested end.
        before: Vec<String>,
    },
    /// Chains lead between the ends, but none passes all the given points.
    #[error(
        "no chain between these ends passes {}. These chains pass {}",
        names(through),
        names(near)
    )]
    NotThrough {
        /// The names of the points that the part should pass.
        through: Vec<String>,
        /// The nodes that chains between the ends pass.
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
