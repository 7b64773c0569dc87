//! Finds the chains and callbacks of a model to which a rule applies.

use crate::requirements::{CallbackRule, ChainRule};
use onbeat_document::cuts::{ways, Ends, Way};
use onbeat_document::schema::{Callback, Chain, EndToEnd};
use onbeat_document::titles::titles;
use onbeat_document::Model;

/// A chain, callback, topic or CPU to which a rule applies.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The readable name of the chain, callback, topic or CPU (untrusted).
    pub title: String,
    pub id: String,
}

impl Chosen {
    pub fn of(callback: &Callback) -> Chosen {
        Chosen {
            title: callback.id.clone(),
            id: callback.id.clone(),
        }
    }
}

pub enum Measured<'m> {
    Chain(&'m Chain),
    /// The figures over all paths between the two ends that the rule names. The model does not list
    /// each of these paths as a chain.
    AllPaths(&'m EndToEnd),
    /// The chain is a part of a longer chain, and the model has no figures for this part.
    Nothing,
}

type Found<'m> = (Chosen, Measured<'m>);

/// Returns the chains to which a rule applies, at least one.
///
/// # Errors
///
/// If the rule names no chain, returns the id or the ends that the rule has, and the reason why no
/// chain has them.
pub fn chains<'m>(model: &'m Model, rule: &ChainRule) -> Result<Vec<Found<'m>>, (String, String)> {
    let titles = titles(model);
    let known = |i: usize| {
        let chain = &model.chains[i];
        let chosen = Chosen {
            title: titles[i].clone(),
            id: chain.id.clone(),
        };
        (chosen, Measured::Chain(chain))
    };
    if let Some(id) = &rule.chain {
        let bare = id.trim_start_matches("chain-");
        let is_meant = |c: &Chain| c.id.trim_start_matches("chain-").starts_with(bare);
        let found: Vec<Found<'_>> = (0..model.chains.len())
            .filter(|&i| is_meant(&model.chains[i]))
            .map(known)
            .collect();
        return match found.len() {
            0 => Err((id.clone(), "no chain of the model has an id that begins like this (list them with `onbeat show MODEL`)".into())),
            1 => Ok(found),
            n => Err((id.clone(), format!("the ids of {n} chains begin like this. Write more of the id"))),
        };
    }
    let ends = Ends {
        from: rule.from.clone(),
        to: rule.to.clone(),
        through: rule.through.clone(),
    };
    let end = |name: &Option<String>| name.clone().unwrap_or_else(|| "...".into());
    let asked = format!("{} -> {}", end(&ends.from), end(&ends.to));
    let ways = ways(model, &ends).map_err(|e| (asked.clone(), e.to_string()))?;
    let mut found: Vec<Found<'_>> = Vec::new();
    let mut pairs: Vec<&EndToEnd> = Vec::new();
    for way in &ways {
        if let Some(at) = model.chains.iter().position(|c| way.is(c)) {
            found.push(known(at));
            continue;
        }
        let pair = ends.through.is_empty().then(|| pair(model, way)).flatten();
        match pair {
            Some(pair) if pairs.iter().any(|p| std::ptr::eq(*p, pair)) => continue,
            Some(pair) => pairs.push(pair),
            None => {}
        }
        let chosen = Chosen {
            title: pair.map_or_else(|| asked.clone(), |p| format!("{} -> {}", p.from, p.to)),
            id: String::new(),
        };
        found.push((chosen, pair.map_or(Measured::Nothing, Measured::AllPaths)));
    }
    Ok(found)
}

fn pair<'m>(model: &'m Model, way: &Way) -> Option<&'m EndToEnd> {
    let output = way.topics.get(way.callbacks.len() - 1);
    let topic = output.map_or("", String::as_str);
    let ends = (way.callbacks.first()?, way.callbacks.last()?);
    let mut pairs = model.end_to_end.iter();
    pairs.find(|p| (&p.from, &p.to) == ends && p.topic == topic)
}

pub fn callbacks<'m>(model: &'m Model, rule: &CallbackRule) -> Vec<&'m Callback> {
    let is_meant = |c: &&Callback| match (&rule.callback, &rule.node) {
        (Some(id), _) => c.id == *id || c.id.ends_with(&format!("/{}", id.trim_start_matches('/'))),
        (None, Some(node)) => is_named(&c.node, node),
        (None, None) => false,
    };
    model.callbacks.iter().filter(is_meant).collect()
}

/// Reports whether `asked` is the full name of a node, or the end of it after a slash.
pub fn is_named(node: &str, asked: &str) -> bool {
    node == asked || node.ends_with(&format!("/{}", asked.trim_start_matches('/')))
}
