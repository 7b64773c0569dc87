//! What joins a chain from elsewhere: the chain waits for it, so it must not wait for others. Pure.

use onbeat_model::schema::{Callback, CallbackType, Chain, JunctionKind};
use onbeat_model::Model;
use std::collections::BTreeSet;

/// Callbacks outside the chains whose outputs a synchroniser of a chain waits for, and all that these
/// come from, in the model's order; without synchronisers.
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
