//! Selects the chains that a request names, and orders their callbacks.

use crate::error::PlanError;
use onbeat_document::cuts::{self, Ends, Way};
use onbeat_document::schema::{Chain, Model};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn output(chain: &Chain) -> Option<&str> {
    (chain.topics.len() == chain.callbacks.len())
        .then(|| chain.topics.last().map(String::as_str))
        .flatten()
}

pub(crate) fn select<'m>(model: &'m Model, asked: &[String]) -> Result<Vec<&'m Chain>, PlanError> {
    let known = || {
        model
            .chains
            .iter()
            .map(|c| c.id.clone())
            .collect::<Vec<_>>()
    };
    if model.chains.is_empty() {
        return Err(PlanError::NoChain);
    }
    if asked.is_empty() {
        return match model.chains.as_slice() {
            [only] => Ok(vec![only]),
            _ => Err(PlanError::WhichChain { known: known() }),
        };
    }
    let mut found: Vec<&Chain> = Vec::new();
    for asked in asked {
        let fit: Vec<&Chain> = match model.chains.iter().find(|c| c.id == *asked) {
            Some(exact) => vec![exact],
            // Users need not type the prefix that all ids have.
            None => {
                let begins = |c: &&Chain| {
                    let short = c.id.strip_prefix("chain-").unwrap_or(&c.id);
                    let by_id =
                        c.id.starts_with(asked.as_str()) || short.starts_with(asked.as_str());
                    by_id || is_between(c, asked)
                };
                model.chains.iter().filter(begins).collect()
            }
        };
        match fit.as_slice() {
            [one] if found.iter().any(|f| f.id == one.id) => {}
            [one] => found.push(one),
            [] => {
                return Err(PlanError::UnknownChain {
                    asked: asked.clone(),
                    known: known(),
                })
            }
            several => {
                return Err(PlanError::AmbiguousChain {
                    asked: asked.clone(),
                    fit: several.iter().map(|c| c.id.clone()).collect(),
                })
            }
        }
    }
    Ok(found)
}

/// Returns the chains of all paths between two ends. The chains are planned together.
///
/// # Errors
/// Fails if a branch was not measured, or if the branches differ in their first callback, last
/// callback or last topic.
pub(crate) fn chains_between<'m>(
    model: &'m Model,
    ends: &Ends,
) -> Result<Vec<&'m Chain>, PlanError> {
    let ways = cuts::ways(model, ends)?;
    let ends_of = |way: &Way| {
        let callbacks = (
            way.callbacks.first().cloned(),
            way.callbacks.last().cloned(),
        );
        (callbacks, way.topics.last().cloned())
    };
    let several = ways.iter().map(ends_of).collect::<BTreeSet<_>>().len() > 1;
    if several {
        return Err(PlanError::SeveralWays {
            differ: differences(&ways),
        });
    }
    let measured = |way: &Way| {
        let chain = model.chains.iter().find(|c| way.is(c));
        chain.ok_or_else(|| PlanError::NotMeasured {
            callbacks: way.callbacks.len(),
            options: options(ends),
        })
    };
    ways.iter().map(measured).collect()
}

fn options(ends: &Ends) -> Vec<(&'static str, String)> {
    let named = [("--from", &ends.from), ("--to", &ends.to)];
    let named = named.into_iter();
    named
        .filter_map(|(option, name)| Some((option, name.clone()?)))
        .collect()
}

/// Returns a text for each path between the two ends. The text names the first callback or topic
/// that is on no other path. If each of the path's callbacks and topics is on another path as well,
/// the text lists all callbacks of the path.
fn differences(ways: &[Way]) -> Vec<String> {
    let on = |way: &Way| {
        let callbacks = way.callbacks.iter();
        callbacks
            .chain(&way.topics)
            .cloned()
            .collect::<BTreeSet<_>>()
    };
    let own = |(i, way): (usize, &Way)| {
        let others = ways.iter().enumerate().filter(|(j, _)| *j != i);
        let others: BTreeSet<String> = others.flat_map(|(_, w)| on(w)).collect();
        let mut own = way
            .callbacks
            .iter()
            .chain(&way.topics)
            .filter(|n| !others.contains(*n));
        own.next()
            .cloned()
            .unwrap_or_else(|| way.callbacks.join(" > "))
    };
    ways.iter().enumerate().map(own).collect()
}

fn is_between(chain: &Chain, asked: &str) -> bool {
    let ends = (chain.callbacks.first(), chain.callbacks.last());
    match (asked.split_once(".."), ends) {
        (Some((from, to)), (Some(first), Some(last))) => first.contains(from) && last.contains(to),
        _ => false,
    }
}

/// Returns the callbacks of all chains, predecessors first, each with its direct predecessors.
pub(crate) fn order<'m>(chains: &[&'m Chain]) -> Result<Vec<(&'m str, Vec<&'m str>)>, PlanError> {
    let mut vertices: Vec<&str> = Vec::new();
    let mut before: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for chain in chains {
        for (i, id) in chain.callbacks.iter().enumerate() {
            let waits = before.entry(id).or_insert_with(|| {
                vertices.push(id);
                BTreeSet::new()
            });
            if i > 0 {
                waits.insert(&chain.callbacks[i - 1]);
            }
        }
    }
    let mut done = BTreeSet::new();
    let mut order = Vec::with_capacity(vertices.len());
    while order.len() < vertices.len() {
        let ready = |v: &&&str| !done.contains(**v) && before[**v].iter().all(|b| done.contains(b));
        let Some(&next) = vertices.iter().find(ready) else {
            return Err(PlanError::NoOrder);
        };
        done.insert(next);
        order.push((next, before[next].iter().copied().collect()));
    }
    Ok(order)
}
