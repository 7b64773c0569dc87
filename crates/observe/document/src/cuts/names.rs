//! Resolves names of callbacks, nodes and topics on chains, as users write them.

use super::CutError;
use crate::schema::Model;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Point {
    Callback(String),
    Node(String),
    Topic(String),
}

type Names = BTreeMap<String, Point>;

fn names(model: &Model, kind: Option<&str>) -> Names {
    let mut on_chain: BTreeSet<&str> = model
        .chains
        .iter()
        .flat_map(|c| c.callbacks.iter().map(String::as_str))
        .collect();
    if super::is_incomplete(model) {
        let edges = model.edges.iter();
        on_chain.extend(edges.flat_map(|e| [e.from.as_str(), e.to.as_str()]));
    }
    let mut names = Names::new();
    let callbacks = || {
        let all = model.callbacks.iter();
        all.filter(|c| on_chain.contains(c.id.as_str()))
    };
    if kind.is_none() {
        for c in callbacks() {
            names.insert(c.id.clone(), Point::Callback(c.id.clone()));
        }
    }
    if kind != Some("topic") {
        for c in callbacks() {
            let node = || Point::Node(c.node.clone());
            names.entry(c.node.clone()).or_insert_with(node);
        }
    }
    if kind != Some("node") {
        let passed = model.chains.iter().flat_map(|c| &c.topics);
        let inputs = callbacks().map(|c| &c.input).filter(|i| !i.is_empty());
        let outputs = model.end_to_end.iter().map(|e| &e.topic);
        let outputs = outputs.filter(|t| !t.is_empty());
        for topic in passed.chain(inputs).chain(outputs) {
            let of = || Point::Topic(topic.clone());
            names.entry(topic.clone()).or_insert_with(of);
        }
    }
    names
}

pub(super) fn point(model: &Model, option: &'static str, asked: &str) -> Result<Point, CutError> {
    let (kind, name) = match asked.split_once(':') {
        Some((kind @ ("node" | "topic"), name)) => (Some(kind), name),
        _ => (None, asked),
    };
    let mut names = names(model, kind);
    if let Some(exact) = names.remove(name) {
        return Ok(exact);
    }
    let end = format!("/{}", name.trim_start_matches('/'));
    let mut fit: Vec<String> = names
        .keys()
        .filter(|n| n.ends_with(&end))
        .cloned()
        .collect();
    match fit.len() {
        1 => Ok(names.remove(&fit[0]).unwrap_or(Point::Topic(fit.remove(0)))),
        0 => {
            let word = name.trim_matches('/').to_lowercase();
            let like = |n: &&String| !word.is_empty() && n.to_lowercase().contains(&word);
            Err(CutError::Unknown {
                option,
                asked: asked.into(),
                near: names.keys().filter(like).cloned().collect(),
            })
        }
        _ => Err(CutError::Several {
            option,
            asked: asked.into(),
            fit,
        }),
    }
}
