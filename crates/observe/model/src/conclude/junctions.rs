//! Where several inputs meet: AND at the sync vertex of a group, OR where a topic has several
//! publishers.

use super::graph::Graph;
use super::groups::Groups;
use crate::schema::{Junction, JunctionKind};
use std::collections::BTreeMap;

/// The junctions, by callback.
pub(super) fn junctions(groups: &Groups, graph: &Graph) -> Vec<Junction> {
    let mut junctions: BTreeMap<&str, Junction> = BTreeMap::new();
    for group in groups.iter() {
        let junction = Junction {
            callback: group.id.clone(),
            kind: JunctionKind::And,
            inputs: group.members.iter().cloned().collect(),
            criterion: group.criterion.name().into(),
            confidence: group.confidence,
        };
        junctions.insert(&group.id, junction);
    }
    // By callback and topic: who publishes it.
    let mut publishers: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for e in graph.edges.values() {
        if !e.assumed && groups.get(&e.to).is_none() {
            publishers
                .entry((&e.to, &e.topic))
                .or_default()
                .push(&e.from);
        }
    }
    for ((to, _), from) in publishers {
        if from.len() > 1 {
            let junction = Junction {
                callback: to.into(),
                kind: JunctionKind::Or,
                inputs: from.into_iter().map(String::from).collect(),
                criterion: "several_publishers".into(),
                confidence: 1.0,
            };
            junctions.insert(to, junction);
        }
    }
    junctions.into_values().collect()
}
