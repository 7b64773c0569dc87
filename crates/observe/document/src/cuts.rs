//! Parts of chains, from a callback to a publication, whose own latency is measured. A user names
//! both ends by a callback, a node or a topic.

mod error;
mod graph;
mod names;

pub use error::CutError;

use crate::schema::{Callback, CallbackType, Chain, Model};
use names::Point;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The two ends of a part of a chain. An end that is `None` is the chain's own end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cut {
    /// The id of the callback with which the part begins. `None` means that it begins with the
    /// chain.
    pub from: Option<String>,
    /// The topic with whose publication the part ends. `None` means that it ends with the chain.
    pub to: Option<String>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |end: &Option<String>| end.clone().unwrap_or_default();
        write!(f, "{} -> {}", text(&self.from), text(&self.to))
    }
}

impl Cut {
    /// Parses the text that [`Display`](fmt::Display) writes. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (from, to) = text.split_once(" -> ")?;
        let end = |text: &str| (!text.is_empty()).then(|| text.to_string());
        Some(Cut {
            from: end(from),
            to: end(to),
        })
    }
}

/// The ends of a part of a chain, as the user names them. Each name is a callback's id, a node or a
/// topic. The part of a name after one of its slashes is enough. The prefixes `node:` and `topic:`
/// select the kind. Without a prefix, a callback takes precedence over a node, and a node over a
/// topic of the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends {
    /// The name of the point at which the part begins: a callback, a node (its first callback on
    /// the chain) or a topic (the callback that takes it).
    pub from: Option<String>,
    /// The name of the point at which the part ends: a callback (its publication), a node (its last
    /// publication on the chain) or a topic (its publication).
    pub to: Option<String>,
    /// The names of callbacks, nodes and topics through which the part of the chain must lead.
    pub through: Vec<String>,
}

impl Ends {
    /// Reports whether the user named no end and no point between the ends.
    pub fn is_empty(&self) -> bool {
        *self == Ends::default()
    }
}

/// A part of a chain, as its callbacks and topics.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// The ids of the part's callbacks, in the order in which data pass them.
    pub callbacks: Vec<String>,
    /// The topics between the callbacks, then the topic published at the end, if any.
    pub topics: Vec<String>,
}

impl Way {
    /// Returns the cut that synthesis must measure for this part. The caller adds it to `cuts` in
    /// the settings of `onbeat-synth`.
    pub fn cut(&self, ends: &Ends) -> Cut {
        let output = self.topics.get(self.callbacks.len() - 1);
        Cut {
            from: ends.from.as_ref().map(|_| self.callbacks[0].clone()),
            to: ends.to.as_ref().and(output).cloned(),
        }
    }

    /// Reports whether this part is the whole chain.
    pub fn is(&self, chain: &Chain) -> bool {
        self.callbacks == chain.callbacks && self.topics == chain.topics
    }
}

/// Returns the different parts of the model's chains between these ends, in order of their
/// callbacks.
///
/// # Errors
///
/// Fails if a name is unknown or ambiguous, or if no chain leads between the ends. Each error lists
/// similar names.
pub fn ways(model: &Model, ends: &Ends) -> Result<Vec<Way>, CutError> {
    let point = |option, name: &Option<String>| {
        let named = name.as_ref().map(|n| names::point(model, option, n));
        named.transpose()
    };
    let (from, to) = (point("--from", &ends.from)?, point("--to", &ends.to)?);
    let through = ends.through.iter();
    let through: Result<Vec<Point>, _> = through
        .map(|name| names::point(model, "--through", name))
        .collect();
    let through = through?;
    let lines = Lines::of(model);
    let whole = || model.chains.iter().filter(|c| !c.cut);
    let between = |c: &Chain| lines.between(c, from.as_ref(), to.as_ref());
    let mut found: Vec<Way> = whole().filter_map(between).collect();
    if is_incomplete(model) {
        // Other ways exist than those of the listed chains.
        let ends = |w: &Way| {
            let (first, last) = (w.callbacks.first().cloned(), w.callbacks.last().cloned());
            (first, last, w.topics.last().cloned())
        };
        let known: BTreeSet<_> = found.iter().map(ends).collect();
        let others = graph::ways(model, from.as_ref(), to.as_ref()).into_iter();
        found.extend(others.filter(|w| !known.contains(&ends(w))));
    }
    if found.is_empty() {
        return Err(lines.nothing_between(whole(), ends, (from.as_ref(), to.as_ref())));
    }
    let passes = |way: &Way| through.iter().all(|p| lines.passes(way, p));
    let passing: BTreeSet<Way> = found.iter().filter(|w| passes(w)).cloned().collect();
    if passing.is_empty() {
        let nodes = found.iter().flat_map(|w| lines.nodes(&w.callbacks));
        return Err(CutError::NotThrough {
            through: ends.through.clone(),
            near: nodes.collect::<BTreeSet<_>>().into_iter().collect(),
        });
    }
    Ok(passing.into_iter().collect())
}

fn is_incomplete(model: &Model) -> bool {
    model.chains.iter().any(|c| c.figures.dropped > 0)
}

struct Lines<'m>(BTreeMap<&'m str, &'m Callback>);

impl<'m> Lines<'m> {
    fn of(model: &'m Model) -> Self {
        Lines(model.callbacks.iter().map(|c| (c.id.as_str(), c)).collect())
    }

    fn kind(&self, id: &str) -> Option<CallbackType> {
        self.0.get(id).map(|c| c.kind)
    }

    fn node(&self, id: &str) -> Option<&'m str> {
        self.0.get(id).map(|c| c.node.as_str())
    }

    fn nodes(&self, callbacks: &[String]) -> Vec<String> {
        let nodes = callbacks.iter().filter_map(|id| self.node(id));
        let mut nodes: Vec<String> = nodes.map(String::from).collect();
        nodes.dedup();
        nodes
    }

    fn between(&self, chain: &Chain, from: Option<&Point>, to: Option<&Point>) -> Option<Way> {
        let last = chain.callbacks.len().checked_sub(1)?;
        let first = match from {
            Some(from) => (0..=last).find(|&i| self.begins(chain, i, from))?,
            None => 0,
        };
        let last = match to {
            Some(to) => (first..=last).rev().find(|&i| self.ends(chain, i, to))?,
            None => last,
        };
        let until = chain.topics.len().min(last + 1);
        Some(Way {
            callbacks: chain.callbacks[first..=last].to_vec(),
            topics: chain.topics[first..until].to_vec(),
        })
    }

    fn begins(&self, chain: &Chain, at: usize, point: &Point) -> bool {
        let id = chain.callbacks[at].as_str();
        let Some(callback) = self.0.get(id).filter(|c| c.kind != CallbackType::Sync) else {
            return false;
        };
        match point {
            Point::Callback(asked) => asked == id,
            Point::Node(node) => *node == callback.node,
            Point::Topic(topic) => match at.checked_sub(1) {
                Some(before) => chain.topics.get(before) == Some(topic),
                None => *topic == callback.input,
            },
        }
    }

    fn ends(&self, chain: &Chain, at: usize, point: &Point) -> bool {
        let next = chain.callbacks.get(at + 1).and_then(|id| self.kind(id));
        let within = matches!(next, Some(CallbackType::Sync | CallbackType::Thread));
        let (id, Some(output)) = (&chain.callbacks[at], chain.topics.get(at)) else {
            return false;
        };
        if within {
            // The item stays within the node.
            return false;
        }
        match point {
            Point::Callback(asked) if asked == id => true,
            // A synchroniser publishes for the callback that feeds it.
            Point::Callback(asked) => {
                let sync = self.kind(id) == Some(CallbackType::Sync);
                sync && at > 0 && chain.callbacks[at - 1] == *asked
            }
            Point::Node(node) => self.node(id) == Some(node),
            Point::Topic(topic) => topic == output,
        }
    }

    fn passes(&self, way: &Way, point: &Point) -> bool {
        let mut callbacks = way.callbacks.iter();
        match point {
            Point::Callback(asked) => callbacks.any(|id| id == asked),
            Point::Node(node) => callbacks.any(|id| self.node(id) == Some(node)),
            Point::Topic(topic) => way.topics.contains(topic),
        }
    }

    fn passes_in_order(&self, chain: &Chain, points: &[Point]) -> bool {
        // Begins with the first callback's input. Each callback follows with the topic that it
        // publishes.
        let first = chain
            .callbacks
            .first()
            .and_then(|id| self.0.get(id.as_str()));
        let mut elements = vec![(None, first.map(|c| c.input.as_str()))];
        for (i, id) in chain.callbacks.iter().enumerate() {
            elements.push((Some(id.as_str()), None));
            elements.push((None, chain.topics.get(i).map(String::as_str)));
        }
        let mut rest = elements.into_iter();
        points.iter().all(|point| {
            rest.any(|(callback, topic)| match point {
                Point::Callback(asked) => callback == Some(asked),
                Point::Node(node) => callback.is_some_and(|id| self.node(id) == Some(node)),
                Point::Topic(asked) => topic == Some(asked),
            })
        })
    }

    /// Returns the error that no chain leads between two points. The error lists the nodes that
    /// chains pass after the first point and the nodes that chains pass before the second point.
    fn nothing_between<'c>(
        &self,
        chains: impl Iterator<Item = &'c Chain>,
        ends: &Ends,
        (from, to): (Option<&Point>, Option<&Point>),
    ) -> CutError {
        let (mut after, mut before) = (BTreeSet::new(), BTreeSet::new());
        for chain in chains {
            let way = from.and_then(|from| self.between(chain, Some(from), None));
            after.extend(way.map(|w| self.nodes(&w.callbacks)).unwrap_or_default());
            let way = to.and_then(|to| self.between(chain, None, Some(to)));
            before.extend(way.map(|w| self.nodes(&w.callbacks)).unwrap_or_default());
        }
        CutError::NoWay {
            from: ends.from.clone(),
            to: ends.to.clone(),
            after: after.into_iter().collect(),
            before: before.into_iter().collect(),
        }
    }
}

/// Returns the model's chains that pass these callbacks, nodes and topics in this order. Names have
/// the same form as in [`Ends`].
///
/// # Errors
/// Fails if a name is unknown or ambiguous.
pub fn passing<'m>(model: &'m Model, names: &[String]) -> Result<Vec<&'m Chain>, CutError> {
    let points = names.iter().map(|n| names::point(model, "path", n));
    let points = points.collect::<Result<Vec<Point>, _>>()?;
    let lines = Lines::of(model);
    let whole = model.chains.iter().filter(|c| !c.cut);
    Ok(whole
        .filter(|c| lines.passes_in_order(c, &points))
        .collect())
}

/// Returns the ids of the callbacks that take the topic that a chain publishes at its end.
pub fn readers<'m>(model: &'m Model, chain: &Chain) -> Vec<&'m str> {
    let ends = (
        chain.callbacks.last(),
        chain.topics.get(chain.callbacks.len().max(1) - 1),
    );
    let (Some(last), Some(output)) = ends else {
        return Vec::new();
    };
    let takes = model
        .edges
        .iter()
        .filter(|e| e.from == *last && e.topic == *output);
    takes.map(|e| e.to.as_str()).collect()
}

/// Returns the ids of the callbacks that publish data for the first callback of a chain.
pub fn sources<'m>(model: &'m Model, chain: &Chain) -> Vec<&'m str> {
    let first = chain.callbacks.first();
    let gives = model.edges.iter().filter(|e| Some(&e.to) == first);
    gives.map(|e| e.from.as_str()).collect()
}
