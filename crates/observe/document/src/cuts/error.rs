//! The errors of cutting a chain. Each is one line that lists similar names.

use crate::text::{shorten, visible};

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    #[error(
        "{option}: '{}' is not a callback, node or topic on a chain. {}",
        name(asked),
        similar(near)
    )]
    Unknown {
        /// The command-line option that has the unknown name, for example `--from`.
        option: &'static str,
        asked: String,
        /// The names on chains that are similar because they contain the given name.
        near: Vec<String>,
    },
    #[error("{option}: '{}' fits {} names: {}. Name one of them in full.", name(asked), fit.len(), names(fit))]
    Several {
        /// The command-line option that has the ambiguous name, for example `--from`.
        option: &'static str,
        asked: String,
        /// The names on chains that the given name can mean, because they end with it.
        fit: Vec<String>,
    },
    #[error("no chain leads{}{}{}{}. Choose two ends of one chain.", end(" from", .from), end(" to", .to), some(". Chains from there pass ", .after), some(". Chains to there pass ", .before))]
    NoWay {
        from: Option<String>,
        to: Option<String>,
        /// The nodes that chains pass after `from`.
        after: Vec<String>,
        /// The nodes that chains pass before `to`.
        before: Vec<String>,
    },
    #[error(
        "no chain between these ends passes {}. The chains between these ends pass {}. Choose from these names.",
        names(through),
        names(near)
    )]
    NotThrough {
        through: Vec<String>,
        /// The nodes that chains between the two ends pass.
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

fn similar(near: &[String]) -> String {
    match near {
        [] => "Use a name from one of the model's chains.".into(),
        _ => format!("Use one of the similar names: {}", names(near)),
    }
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
