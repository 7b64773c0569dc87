//! The model's graph of callbacks and edges. Everything that the graph leaves out goes to the
//! hidden evidence.

use super::groups::{Group, Groups};
use crate::dist::Dist;
use crate::evidence::{add_all, total, EdgeKey, Evidence, Hidden};
use crate::schema::{Assumed, Callback, CallbackType, Edge, EdgeFigures};
use std::collections::BTreeMap;

pub(super) struct Graph {
    pub(super) callbacks: BTreeMap<String, Callback>,
    pub(super) edges: BTreeMap<EdgeKey, Edge>,
}

impl Graph {
    pub(super) fn of(evidence: &mut Evidence, groups: &Groups, hidden: &mut Hidden) -> Self {
        Graph {
            edges: edges(evidence, groups, hidden),
            callbacks: callbacks(evidence, groups, hidden),
        }
    }
}

/// Returns the edges that items passed. If subscriptions that wait for one another publish a topic,
/// the topic's edges begin at the sync vertex of these subscriptions.
fn edges(evidence: &mut Evidence, groups: &Groups, hidden: &mut Hidden) -> BTreeMap<EdgeKey, Edge> {
    let mut edges: BTreeMap<EdgeKey, Edge> = BTreeMap::new();
    for (key, edge) in std::mem::take(&mut evidence.edges) {
        let into_sync = evidence.syncs.contains_key(&edge.to);
        if let Some(group) = groups.through(&edge.from, &edge.topic) {
            if edge.assumed.is_none() && !into_sync {
                add_from_sync(&mut edges, group, &edge);
                // With a single publisher, the edge follows from the one of its sync vertex.
                if group.publishers.len() > 1 {
                    hidden.edges.push(edge);
                }
                continue;
            }
        }
        let member = |g: &Group| g.members.contains(&edge.from);
        let shown = !into_sync || groups.get(&edge.to).is_some_and(member);
        let shown = shown && is_confirmed(&edge, evidence);
        if shown && total(&edge.modes).taken > 0 {
            edges.insert(key, edge);
        } else {
            hidden.edges.push(edge);
        }
    }
    edges.retain(|_, e| {
        e.figures = total(&e.modes);
        e.figures.taken > 0
    });
    edges
}

const HAND_OVER_EXECUTIONS_MIN: u64 = 5;

/// Reports whether an edge is certain enough to show. A hand-over counts if the same callback woke
/// the thread up in nine of ten executions, because a shared lock also wakes threads up sometimes.
fn is_confirmed(edge: &Edge, evidence: &Evidence) -> bool {
    if edge.assumed != Some(Assumed::HandedOver) {
        return true;
    }
    let executions = evidence.callbacks.get(&edge.to);
    let executions = executions.map_or(0, |c| total(&c.modes).executions());
    let handed = total(&edge.modes).taken;
    handed >= HAND_OVER_EXECUTIONS_MIN && handed * 10 >= executions * 9
}

fn add_from_sync(edges: &mut BTreeMap<EdgeKey, Edge>, group: &Group, edge: &Edge) {
    let key = EdgeKey {
        from: group.id.clone(),
        to: edge.to.clone(),
        topic: edge.topic.clone(),
    };
    let all = edges.entry(key).or_insert_with(|| Edge {
        from: group.id.clone(),
        to: edge.to.clone(),
        topic: edge.topic.clone(),
        assumed: None,
        intra_process: false,
        figures: EdgeFigures::default(),
        modes: BTreeMap::new(),
    });
    all.intra_process |= edge.intra_process;
    add_all(&mut all.modes, &edge.modes);
}

fn callbacks(
    evidence: &mut Evidence,
    groups: &Groups,
    hidden: &mut Hidden,
) -> BTreeMap<String, Callback> {
    let mut callbacks = BTreeMap::new();
    for (id, mut c) in std::mem::take(&mut evidence.callbacks) {
        if c.kind == CallbackType::Sync && groups.get(&id).is_none() {
            hidden.callbacks.push(c);
            continue;
        }
        c.figures = total(&c.modes);
        if c.period_ns.is_none() {
            c.period_ns = steady_period(&c.figures.interarrival_ns);
        }
        c.outputs.retain(|t| groups.through(&id, t).is_none());
        callbacks.insert(id, c);
    }
    callbacks
}

/// Returns the median inter-arrival time if the times are steady: there are at least five, and the
/// middle half lies within a fifth of the median.
fn steady_period(interarrival: &Dist) -> Option<u64> {
    if interarrival.count() < 5 {
        return None;
    }
    let median = interarrival.quantile(0.5);
    let (low, high) = (interarrival.quantile(0.25), interarrival.quantile(0.75));
    (median > 0 && high.saturating_sub(low) <= median / 5).then_some(median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(values: &[u64]) -> Option<u64> {
        let mut dist = Dist::new();
        values.iter().for_each(|&v| dist.record(v));
        steady_period(&dist)
    }

    #[test]
    fn only_steady_inter_arrival_times_give_a_period() {
        assert_eq!(period(&[100, 101, 99, 100, 400]), Some(100));
        assert_eq!(period(&[100, 100, 100, 100]), None, "too few");
        assert_eq!(period(&[10, 60, 100, 140, 300]), None, "too wide");
        assert_eq!(period(&[0; 9]), None, "no time at all");
    }
}
