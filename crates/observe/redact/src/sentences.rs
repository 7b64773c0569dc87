//! Redacts the sentences of a model. A sentence stays if it consists of known words, numbers, and
//! names that are visible or replaced. All others are removed and counted.

use std::collections::{BTreeMap, BTreeSet};

/// The words that the sentences of a redacted model may contain. If a word is missing here, a
/// sentence is removed, but no secret is revealed.
const WORDS: &str = include_str!("words.txt");

pub(crate) struct Speech<'a> {
    words: BTreeSet<&'static str>,
    pub(crate) names: BTreeMap<&'a str, String>,
}

impl<'a> Speech<'a> {
    pub(crate) fn new() -> Self {
        Speech {
            words: words(),
            names: BTreeMap::new(),
        }
    }

    /// Returns the sentences that may stay, with names replaced, and the number of removed
    /// sentences.
    pub(crate) fn of(&self, sentences: &[String]) -> (BTreeSet<String>, usize) {
        let said: BTreeSet<String> = sentences.iter().filter_map(|s| self.one(s)).collect();
        let left_out = sentences.iter().filter(|s| self.one(s).is_none()).count();
        (said, left_out)
    }

    fn one(&self, sentence: &str) -> Option<String> {
        let words: Option<Vec<String>> = sentence.split(' ').map(|w| self.word(w)).collect();
        words.map(|w| w.join(" "))
    }

    fn word(&self, word: &str) -> Option<String> {
        // Ids begin or end with brackets, so these are tried with the word.
        for around in [
            &[] as &[char],
            &[',', ';', ':', '.'],
            &['\'', ',', '.', ';', ':'],
        ] {
            let bare = word.trim_matches(around);
            if let Some(name) = self.names.get(bare) {
                return Some(word.replace(bare, name));
            }
        }
        let plain = |c: char| !c.is_alphanumeric();
        let bare = word.trim_matches(plain);
        let is_number = |t: &str| t.chars().all(|c| c.is_ascii_digit() || c == '.');
        let is_event = || onbeat_trace::table::by_name(bare).is_some();
        let is_said = |part: &str| self.words.contains(part.to_lowercase().as_str());
        let ours =
            is_number(bare) || is_event() || bare.split(['-', '\'']).all(is_said) || is_said(bare);
        // A slash begins a name.
        (ours && !word.contains('/')).then(|| word.into())
    }
}

pub(crate) fn words() -> BTreeSet<&'static str> {
    WORDS.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_sentence_stays_if_each_word_is_allowed() {
        let mut speech = Speech::new();
        speech
            .names
            .insert("/spy:timer(10ms)", "/node_x:timer(10ms)".into());
        let said = [
            "The period of /spy:timer(10ms) is measured: its timer was made before the recording.",
            "A scheduler event was missing 3 times. Execution times near it are wrong.",
            "The node /spy is named after its process: its own name was not recorded.",
            "spyware was published outside of callbacks once.",
        ];
        let (said, left_out) = speech.of(&said.map(String::from));
        let said: Vec<String> = said.into_iter().collect();
        assert_eq!(said[1], "The period of /node_x:timer(10ms) is measured: its timer was made before the recording.");
        assert_eq!((said.len(), left_out), (2, 2));
    }

    /// Returns the string literals of Rust code that contain a space, with numbers in place of their
    /// arguments.
    fn literals(code: &str) -> Vec<String> {
        let code = code.split("#[cfg(test)]\nmod ").next().unwrap();
        let lines = code.lines().filter(|l| !l.trim_start().starts_with("//"));
        let code = lines.collect::<Vec<_>>().join("\n");
        let parts = code.split('"').skip(1).step_by(2);
        let plain = parts.map(|text| {
            let text = text.replace('\\', " ").replace(['{', '}'], "\0");
            let pieces = text.split('\0').enumerate();
            let pieces = pieces.map(|(at, piece)| if at % 2 == 0 { piece } else { " 1 " });
            let words: String = pieces.collect();
            words.split_whitespace().collect::<Vec<_>>().join(" ")
        });
        plain.filter(|text| text.contains(' ')).collect()
    }

    #[test]
    fn each_sentence_about_a_model_stays() {
        let code = [
            include_str!("../../document/src/conclude/sentences.rs"),
            include_str!("../../document/src/conclude/alike.rs"),
            include_str!("../../synth/src/hosts.rs"),
        ];
        let all: Vec<String> = code.iter().flat_map(|code| literals(code)).collect();
        assert!(all.len() > 50, "{} literals found", all.len());
        let speech = Speech::new();
        let words = all.iter().flat_map(|text| text.split(' '));
        let unknown: BTreeSet<&str> = words.filter(|w| speech.word(w).is_none()).collect();
        assert_eq!(unknown, BTreeSet::new(), "add these to words.txt");
    }
}
