//! Finds where a chain's data comes from: the callbacks that feed it from elsewhere, and throttled
//! inputs.

use crate::error::PlanError;
use crate::request::Request;
use crate::schema::{Throttle, HELD_SUFFIX};
use onbeat_document::schema::{Callback, CallbackType, Chain, JunctionKind};
use onbeat_document::Model;
use std::collections::BTreeSet;

pub(crate) const INPUTS: &str = "throttle";

/// Returns the callbacks outside the chains that feed a synchroniser of a chain, directly or
/// through other callbacks. The callbacks are in the model's order, without synchronisers. The
/// chain waits for them, so the plan must not make them wait for other callbacks.
pub(crate) fn feeders<'m>(model: &'m Model, chains: &[&Chain]) -> Vec<&'m Callback> {
    let ours: BTreeSet<&str> = chains
        .iter()
        .flat_map(|c| c.callbacks.iter().map(String::as_str))
        .collect();
    let waits = |callback: &str| ours.contains(callback);
    let mut found: BTreeSet<&str> = model
        .junctions
        .iter()
        .filter(|j| j.kind == JunctionKind::And && waits(&j.callback))
        .flat_map(|j| j.inputs.iter().map(String::as_str))
        .filter(|id| !ours.contains(id))
        .collect();
    let mut next: Vec<&str> = found.iter().copied().collect();
    while let Some(id) = next.pop() {
        for edge in model.edges.iter().filter(|e| e.to == id) {
            if !ours.contains(edge.from.as_str()) && found.insert(&edge.from) {
                next.push(&edge.from);
            }
        }
    }
    let is_one = |c: &&Callback| c.kind != CallbackType::Sync && found.contains(c.id.as_str());
    model.callbacks.iter().filter(is_one).collect()
}

pub(crate) fn throttled(model: &Model, request: &Request) -> Result<Vec<Throttle>, PlanError> {
    let input = |asked: &crate::request::ThrottleRequest| {
        Ok(Throttle {
            topic: asked.topic.clone(),
            node: match &asked.node {
                Some(node) => node.clone(),
                None => publisher(model, &asked.topic)?,
            },
            held_topic: format!("{}{HELD_SUFFIX}", asked.topic),
            server: INPUTS.into(),
        })
    };
    request.inputs.throttles.iter().map(input).collect()
}

/// Returns the callbacks of the nodes that publish throttled inputs, in the model's order. It
/// leaves out synchronisers, and threads of the application's own, which run at any time.
pub(crate) fn publishers<'m>(model: &'m Model, inputs: &[Throttle]) -> Vec<&'m Callback> {
    let held = |c: &Callback| !matches!(c.kind, CallbackType::Sync | CallbackType::Thread);
    let publishes = |c: &&Callback| inputs.iter().any(|i| i.node == c.node) && held(c);
    model.callbacks.iter().filter(publishes).collect()
}

fn publisher(model: &Model, topic: &str) -> Result<String, PlanError> {
    let publishes = model
        .callbacks
        .iter()
        .filter(|c| c.outputs.iter().any(|o| o == topic));
    let nodes: BTreeSet<&String> = publishes.map(|c| &c.node).collect();
    let mut nodes: Vec<String> = nodes.into_iter().cloned().collect();
    match nodes.len() {
        1 => Ok(nodes.remove(0)),
        0 => Err(PlanError::ThrottleUnknown {
            topic: topic.into(),
        }),
        _ => Err(PlanError::ThrottleSeveral {
            topic: topic.into(),
            nodes,
        }),
    }
}
