//! Checks the redacted model once more: no word of a hidden name may be in it.

use crate::sentences::words;
use serde_json::Value;
use std::collections::BTreeSet;

/// The error that a redacted model would still contain a word of a hidden name.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' would stay in the model, but contains '{word}', which is part of a hidden name. Change the policy so that it shows the hidden name, or also hides '{text}'. Nothing was written.")]
pub struct Leak {
    pub word: String,
    pub text: String,
}

/// Words of the model format, which are allowed even if a hidden name contains them.
const OURS: &str = "and callback chain client data deadline decided default distribution domain edge fifo filters flow handed \
    host humble iron jazzy kilted lyrical memory message mode node over rolling made other publishers request \
    response rest run service several stated subscription sync task thread timer topic unknown waited action idle \
    batch known guessed exact inferred ambiguous nearest feedback status send goal get result cancel onbeat model \
    outside interface redacted callbacks hidden parts stand for them each such part has the summed load of all its starts first cpus every cpu which one ran any \
    ways through only mean latency share their chains was not with policy assumptions limits recordings name what left out \
    within touch nothing kernel others unnamed untold \
    paths have because without computed sentences about contain words that may names \
    publisher subscription system keep reliable best effort available transient local volatile automatic manual by";

const SHORTEST: usize = 3;

/// Fails if a model contains a word of a hidden name. Words of visible names and of the format are
/// allowed.
pub(crate) fn prove<'n>(
    value: &Value,
    hidden: impl Iterator<Item = &'n str>,
    shown: impl Iterator<Item = &'n str>,
) -> Result<(), Leak> {
    let mut secret: BTreeSet<String> = hidden.flat_map(parts).collect();
    for name in shown {
        parts(name).for_each(|word| {
            secret.remove(&word);
        });
    }
    let ours = OURS.split_whitespace().chain(words());
    ours.for_each(|word| {
        secret.remove(word);
    });
    secret.retain(|w| w.len() >= SHORTEST && !w.chars().all(|c| c.is_ascii_digit()));
    look(value, &secret)
}

fn look(value: &Value, secret: &BTreeSet<String>) -> Result<(), Leak> {
    match value {
        Value::String(text) => find(text, secret),
        Value::Array(all) => all.iter().try_for_each(|v| look(v, secret)),
        Value::Object(all) => all.iter().try_for_each(|(key, v)| {
            // Keys of the format are single words and need no check. Keys of maps by name contain a
            // digit, a slash or a joint.
            look(v, secret)?;
            match v.is_object() {
                true => find(key, secret),
                false => Ok(()),
            }
        }),
        _ => Ok(()),
    }
}

fn find(text: &str, secret: &BTreeSet<String>) -> Result<(), Leak> {
    match parts(text).find(|word| secret.contains(word)) {
        Some(word) => Err(Leak {
            word,
            text: onbeat_document::text::shorten(&onbeat_document::text::visible(text), 60),
        }),
        None => Ok(()),
    }
}

fn parts(name: &str) -> impl Iterator<Item = String> + '_ {
    let words = name.split(|c: char| !c.is_alphanumeric());
    words.filter(|w| !w.is_empty()).map(str::to_lowercase)
}
