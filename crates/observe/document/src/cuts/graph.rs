//! Finds ways between two ends in the graph, for models that do not list all their chains.

use super::names::Point;
use super::Way;
use crate::schema::{Callback, CallbackType, Edge, Model};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Returns one shortest way between each pair of callbacks that the ends name. Without `from`, the
/// ways begin at the model's sources. Without `to`, the ways end at the model's sinks.
pub(super) fn ways(model: &Model, from: Option<&Point>, to: Option<&Point>) -> Vec<Way> {
    let graph = Graph::of(model);
    let firsts = graph.firsts(from);
    let lasts = graph.lasts(to);
    let mut ways = Vec::new();
    for first in firsts {
        let before = graph.search(first);
        for &(last, topic) in &lasts {
            ways.extend(Graph::way(&before, (first, last), topic));
        }
    }
    ways
}

struct Graph<'m> {
    model: &'m Model,
    callbacks: BTreeMap<&'m str, &'m Callback>,
    next: BTreeMap<&'m str, Vec<&'m Edge>>,
}

impl<'m> Graph<'m> {
    fn of(model: &'m Model) -> Self {
        let mut next: BTreeMap<&str, Vec<&Edge>> = BTreeMap::new();
        for edge in &model.edges {
            next.entry(&edge.from).or_default().push(edge);
        }
        let callbacks = model.callbacks.iter();
        Graph {
            model,
            callbacks: callbacks.map(|c| (c.id.as_str(), c)).collect(),
            next,
        }
    }

    fn is_inner(&self, edge: &Edge) -> bool {
        let node = |id: &str| self.callbacks.get(id).map(|c| c.node.as_str());
        node(&edge.from) == node(&edge.to)
    }

    fn firsts(&self, from: Option<&Point>) -> BTreeSet<&'m str> {
        let Some(point) = from else {
            let whole = self.model.end_to_end.iter().filter(|e| !e.cut);
            return whole.map(|e| e.from.as_str()).collect();
        };
        let fed = |c: &Callback| {
            let mut edges = self.model.edges.iter();
            edges.any(|e| e.to == c.id && self.is_inner(e))
        };
        let begins = |c: &&Callback| match point {
            Point::Callback(id) => c.id == *id,
            Point::Node(node) => c.node == *node && !fed(c),
            Point::Topic(topic) => c.input == *topic,
        };
        let all = self.model.callbacks.iter();
        let all = all.filter(|c| c.kind != CallbackType::Sync).filter(begins);
        all.map(|c| c.id.as_str()).collect()
    }

    fn lasts(&self, to: Option<&Point>) -> BTreeSet<(&'m str, &'m str)> {
        let Some(point) = to else {
            let whole = self.model.end_to_end.iter().filter(|e| !e.cut);
            return whole.map(|e| (e.to.as_str(), e.topic.as_str())).collect();
        };
        let mut lasts = BTreeSet::new();
        for c in &self.model.callbacks {
            let feeds = |id: &str| {
                let mut edges = self.next.get(id).into_iter().flatten();
                c.kind == CallbackType::Sync && edges.any(|e| e.to == c.id)
            };
            for topic in &c.outputs {
                let ends = match point {
                    Point::Callback(id) => c.id == *id || feeds(id),
                    Point::Node(node) => c.node == *node,
                    Point::Topic(asked) => topic == asked,
                };
                if ends {
                    lasts.insert((c.id.as_str(), topic.as_str()));
                }
            }
        }
        lasts
    }

    fn search(&self, first: &'m str) -> BTreeMap<&'m str, &'m Edge> {
        let mut before: BTreeMap<&str, &Edge> = BTreeMap::new();
        let mut left = VecDeque::from([first]);
        while let Some(at) = left.pop_front() {
            for &edge in self.next.get(at).into_iter().flatten() {
                if edge.to != first && !before.contains_key(edge.to.as_str()) {
                    before.insert(&edge.to, edge);
                    left.push_back(&edge.to);
                }
            }
        }
        before
    }

    fn way(
        before: &BTreeMap<&str, &Edge>,
        (first, last): (&str, &str),
        topic: &str,
    ) -> Option<Way> {
        let mut way = Way {
            callbacks: vec![last.into()],
            topics: Vec::from_iter((!topic.is_empty()).then(|| topic.to_string())),
        };
        let mut at = last;
        while at != first {
            let edge = before.get(at)?;
            at = &edge.from;
            way.callbacks.push(edge.from.clone());
            way.topics.push(edge.topic.clone());
        }
        way.callbacks.reverse();
        way.topics.reverse();
        Some(way)
    }
}
