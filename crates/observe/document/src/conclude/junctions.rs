//! The junctions where several inputs meet: AND at the sync vertex of a group, OR if a topic has
//! several publishers.

use super::graph::Graph;
use super::groups::{Group, Groups};
use crate::schema::{CallbackType, Junction, JunctionKind, JunctionState, Matching, Reading};
use std::collections::BTreeMap;

pub(super) const SEVERAL_PUBLISHERS: &str = "several_publishers";

pub(super) fn junctions(groups: &Groups, graph: &Graph) -> Vec<Junction> {
    let mut junctions: Vec<Junction> = groups.iter().map(joined).collect();
    junctions.extend(groups.doubts.iter().flat_map(doubtful));
    // The publishers by callback and topic.
    let mut publishers: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for e in graph.edges.values() {
        if e.assumed.is_none() && groups.get(&e.to).is_none() {
            publishers
                .entry((&e.to, &e.topic))
                .or_default()
                .push(&e.from);
        }
    }
    let several = publishers.into_iter().filter(|(_, from)| from.len() > 1);
    let either = |((to, topic), from): ((_, _), Vec<_>)| {
        let waits = |g: &&Group| g.topic == topic && g.joins(&from);
        let doubt = groups.doubts.iter().find(waits);
        either(to, &from, graph, doubt)
    };
    junctions.extend(several.map(either));
    let key = |j: &Junction| (j.callback.clone(), j.settle.clone());
    junctions.sort_by_key(key);
    junctions
}

/// Builds the OR junction of several publishers. The junction is ambiguous if some of the
/// publishers may wait for one another: they belong to a guessed node, or to a group of
/// subscriptions (`doubt`) whose junction is not certain.
fn either(to: &str, from: &[&str], graph: &Graph, doubt: Option<&Group>) -> Junction {
    let inputs = |ids: &[&str]| ids.iter().map(|id| id.to_string()).collect();
    let open = match doubt {
        Some(group) => group.of(from),
        None => may_wait(from, graph),
    };
    let reading = |kind, ids: &[&str]| Reading {
        kind,
        inputs: inputs(ids),
    };
    let readings = match open.is_empty() {
        true => Vec::new(),
        false => vec![
            reading(JunctionKind::Or, from),
            reading(JunctionKind::And, &open),
        ],
    };
    let (state, confidence) = match open.is_empty() {
        true => (JunctionState::Decided, 1.0),
        false => (JunctionState::Ambiguous, 0.5),
    };
    Junction {
        callback: to.into(),
        kind: JunctionKind::Or,
        inputs: inputs(from),
        criterion: SEVERAL_PUBLISHERS.into(),
        confidence,
        state,
        matching: Matching::InTurn,
        readings,
        settle: doubt.map_or(String::new(), |g| g.statement(JunctionKind::Or).to_string()),
    }
}

/// Returns the publishing subscriptions if they may wait for one another: at least one of them
/// belongs to a guessed node, which can be any node of the process. Returns an empty list if all
/// nodes are known.
fn may_wait<'a>(publishers: &[&'a str], graph: &Graph) -> Vec<&'a str> {
    let of = |id: &str| graph.callbacks.get(id);
    let takes = |id: &&str| of(id).is_some_and(|c| c.kind == CallbackType::Subscription);
    let open: Vec<&str> = publishers.iter().copied().filter(takes).collect();
    let guessed = |id: &&str| of(id).is_some_and(|c| !c.identity.is_known());
    match open.len() > 1 && open.iter().any(guessed) {
        true => open,
        false => Vec::new(),
    }
}

fn joined(group: &Group) -> Junction {
    let readings = match group.state {
        JunctionState::Ambiguous => vec![waiting(group), group.without_open.clone()],
        JunctionState::Decided | JunctionState::Stated => Vec::new(),
    };
    Junction {
        callback: group.id.clone(),
        kind: JunctionKind::And,
        inputs: group.members.iter().cloned().collect(),
        criterion: group.criterion.name().into(),
        confidence: group.confidence,
        state: group.state,
        matching: group.matching,
        settle: match readings.is_empty() {
            true => String::new(),
            false => group.statement(JunctionKind::And).to_string(),
        },
        readings,
    }
}

fn doubtful(group: &Group) -> impl Iterator<Item = Junction> + '_ {
    group.publishers.iter().map(|publisher| Junction {
        callback: publisher.clone(),
        kind: JunctionKind::Or,
        inputs: vec![publisher.clone()],
        criterion: group.criterion.name().into(),
        confidence: group.confidence,
        state: group.state,
        matching: group.matching,
        readings: vec![group.without_open.clone(), waiting(group)],
        settle: group.statement(JunctionKind::Or).to_string(),
    })
}

fn waiting(group: &Group) -> Reading {
    Reading {
        kind: JunctionKind::And,
        inputs: group.members.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::conclude;
    use super::super::testing::{run, synchronised};
    use super::*;
    use crate::evidence::Evidence;
    use crate::schema::Assumed;

    fn shown(evidence: Evidence) -> Vec<(String, JunctionKind, Vec<String>)> {
        let junctions = conclude(evidence).junctions.into_iter();
        junctions.map(|j| (j.callback, j.kind, j.inputs)).collect()
    }

    #[test]
    fn a_topic_with_two_publishers_is_an_or_junction() {
        let evidence = run("r")
            .with_callback("/a:timer(1ms)", 5)
            .with_callback("/b:timer(1ms)", 5)
            .with_callback("/c:subscription(/t)", 10)
            .with_edge("/a:timer(1ms)", "/c:subscription(/t)", "/t", 5)
            .with_edge("/b:timer(1ms)", "/c:subscription(/t)", "/t", 5);
        let publishers = vec!["/a:timer(1ms)".to_string(), "/b:timer(1ms)".to_string()];
        let or = (
            "/c:subscription(/t)".to_string(),
            JunctionKind::Or,
            publishers,
        );
        assert_eq!(shown(evidence.clone()), [or]);
        // A stated link does not count as a second publisher.
        let mut linked = evidence;
        linked.edges.values_mut().next().unwrap().assumed = Some(Assumed::Stated);
        assert_eq!(shown(linked), []);
    }

    #[test]
    fn publishers_that_may_wait_for_one_another_are_an_ambiguous_or_junction() {
        let (a, b, c) = (
            "/f:subscription(/a)",
            "/f:subscription(/b)",
            "/x:timer(1ms)",
        );
        let evidence = run("r").with_callback(a, 9).with_callback(b, 9);
        let graph = Graph {
            callbacks: evidence.with_callback(c, 9).callbacks,
            edges: BTreeMap::new(),
        };
        let group = Group::doubt("/f", "/out", &[a, b], &[a]);
        let open = group.of(&[a, b, c]);
        assert_eq!(open, [a, b]);
        assert!(!group.joins(&[a, c]));
        let junction = either("/g:subscription(/out)", &[a, b, c], &graph, Some(&group));
        assert_eq!(junction.state, JunctionState::Ambiguous);
        let readings = junction.readings.iter().map(|r| (r.kind, r.inputs.len()));
        assert!(readings.eq([(JunctionKind::Or, 3), (JunctionKind::And, 2)]));
        assert_eq!(junction.settle, "/f -> /out = or");
        let junction = either("/g:subscription(/out)", &[a, b, c], &graph, None);
        assert_eq!(junction.state, JunctionState::Decided);
    }

    #[test]
    fn inputs_of_an_and_junction_publish_through_the_vertex_of_the_junction() {
        let (a, b, sync) = (
            "/f:subscription(/a)",
            "/f:subscription(/b)",
            "/f:sync(/out)",
        );
        let evidence = run("r")
            .with_callback(a, 20)
            .with_callback(b, 20)
            .with_callback(sync, 0)
            .with_callback("/g:subscription(/out)", 20)
            .with_edge(a, sync, "/a", 20)
            .with_edge(b, sync, "/b", 20)
            .with_edge(b, "/g:subscription(/out)", "/out", 20)
            .with_sync(synchronised());
        let and = (
            sync.to_string(),
            JunctionKind::And,
            vec![a.to_string(), b.to_string()],
        );
        assert_eq!(shown(evidence.clone()), [and]);
        let model = conclude(evidence.clone());
        let from_sync = model.edges.iter().find(|e| e.from == sync).unwrap();
        assert_eq!(
            (from_sync.to.as_str(), from_sync.figures.taken),
            ("/g:subscription(/out)", 20)
        );
        assert!(model.edges.iter().all(|e| e.from != b || e.to == sync));
        // Without a group, the sync vertex does not exist and the member itself is the publisher.
        let apart = conclude(Evidence {
            syncs: Default::default(),
            ..evidence
        });
        assert!(apart.callbacks.iter().all(|c| c.id != sync));
        assert!(apart.edges.iter().any(|e| e.from == b && e.topic == "/out"));
        assert_eq!(apart.junctions, []);
    }
}
