//! Finds the chains and callbacks of a model to which a rule applies.

use crate::requirements::{CallbackRule, ChainRule, Requirements};
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

/// The position of a chain's figures in a model: an index into `chains` or `end_to_end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Chain(usize),
    EndToEnd(usize),
    Nothing,
}

impl Place {
    /// Returns the figures at this position of `model`, or [`Measured::Nothing`] if `model` has
    /// none there.
    fn of(self, model: &Model) -> Measured<'_> {
        let found = match self {
            Place::Chain(at) => model.chains.get(at).map(Measured::Chain),
            Place::EndToEnd(at) => model.end_to_end.get(at).map(Measured::AllPaths),
            Place::Nothing => None,
        };
        found.unwrap_or(Measured::Nothing)
    }
}

type Found = (Chosen, Place);

/// The chains to which a rule applies. An error has the id or the ends that the rule names, and the
/// reason why no chain was chosen.
pub(crate) type FoundChains<'m> = Result<Vec<(Chosen, Measured<'m>)>, (String, String)>;

/// The chains of a model to which the rules of a requirements file apply. Finding the chains takes
/// longer than judging their figures. A caller that checks models with the same chains again and
/// again therefore finds the chains only once.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// For each chain rule, in the order of the file: the chains to which the rule applies. An
    /// error has the id or the ends that the rule names, and the reason why no chain was chosen.
    chains: Vec<Result<Vec<Found>, (String, String)>>,
}

impl Selection {
    /// Finds the chains in `model` to which the chain rules of `requirements` apply.
    pub fn of(model: &Model, requirements: &Requirements) -> Selection {
        let rules = requirements.chains.iter();
        Selection {
            chains: rules.map(|rule| chains(model, rule)).collect(),
        }
    }

    /// Returns the chains to which the chain rule with the index `rule` applies, with the figures
    /// that these chains have in `model`.
    pub(crate) fn chains<'m>(&self, model: &'m Model, rule: usize) -> FoundChains<'m> {
        let Some(found) = self.chains.get(rule) else {
            return Ok(Vec::new());
        };
        let found = found.as_ref().map_err(Clone::clone)?.iter();
        Ok(found
            .map(|(chosen, place)| (chosen.clone(), place.of(model)))
            .collect())
    }
}

/// Returns the chains to which a rule applies, at least one.
///
/// # Errors
///
/// If no chain fits the rule, or if several chains fit its id, returns the id or the ends that the
/// rule names, and the reason.
fn chains(model: &Model, rule: &ChainRule) -> Result<Vec<Found>, (String, String)> {
    let titles = titles(model);
    let known = |i: usize| {
        let chain = &model.chains[i];
        let chosen = Chosen {
            title: titles[i].clone(),
            id: chain.id.clone(),
        };
        (chosen, Place::Chain(i))
    };
    if let Some(id) = &rule.chain {
        let bare = id.trim_start_matches("chain-");
        let is_meant = |c: &Chain| c.id.trim_start_matches("chain-").starts_with(bare);
        let found: Vec<Found> = (0..model.chains.len())
            .filter(|&i| is_meant(&model.chains[i]))
            .map(known)
            .collect();
        return match found.len() {
            0 => Err((id.clone(), "no chain of the model has an id that begins with this text (list them with `onbeat show MODEL`)".into())),
            1 => Ok(found),
            n => Err((id.clone(), format!("the ids of {n} chains begin with this text. Write more of the id"))),
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
    let mut found: Vec<Found> = Vec::new();
    let mut pairs: Vec<usize> = Vec::new();
    for way in &ways {
        if let Some(at) = model.chains.iter().position(|c| way.is(c)) {
            found.push(known(at));
            continue;
        }
        let pair = ends.through.is_empty().then(|| pair(model, way)).flatten();
        match pair {
            Some(pair) if pairs.contains(&pair) => continue,
            Some(pair) => pairs.push(pair),
            None => {}
        }
        let chosen = Chosen {
            title: pair.and_then(|at| model.end_to_end.get(at)).map_or_else(
                || asked.clone(),
                |pair| format!("{} -> {}", pair.from, pair.to),
            ),
            id: String::new(),
        };
        found.push((chosen, pair.map_or(Place::Nothing, Place::EndToEnd)));
    }
    Ok(found)
}

fn pair(model: &Model, way: &Way) -> Option<usize> {
    let output = way.topics.get(way.callbacks.len() - 1);
    let topic = output.map_or("", String::as_str);
    let ends = (way.callbacks.first()?, way.callbacks.last()?);
    let mut pairs = model.end_to_end.iter();
    pairs.position(|p| (&p.from, &p.to) == ends && p.topic == topic)
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
