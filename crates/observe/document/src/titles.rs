//! Readable names of chains: where a chain begins, where it ends, and what distinguishes it from
//! others between the same ends.

use crate::schema::{Chain, Model};
use std::collections::BTreeMap;

/// Returns the titles of the model's chains, in their order: `FrontLidarDriver -> BehaviorPlanner
/// via ParkingPlanner`. A title changes only if the graph changes. Two chains share a title only if
/// they pass the same callbacks over the same topics.
pub fn titles(model: &Model) -> Vec<String> {
    let namer = Namer::of(model);
    let ways: Vec<Way<'_>> = model.chains.iter().map(|c| namer.way(c)).collect();
    let mut same_ends: BTreeMap<(String, bool), Vec<usize>> = BTreeMap::new();
    for (i, way) in ways.iter().enumerate() {
        let key = (way.ends(), model.chains[i].cut);
        same_ends.entry(key).or_default().push(i);
    }
    let mut titles = vec![String::new(); ways.len()];
    for ((ends, _), group) in &same_ends {
        for &i in group {
            let others = group.iter().filter(|&&o| o != i).map(|&o| &ways[o]);
            let others: Vec<&Way<'_>> = others.collect();
            titles[i] = match ways[i].distinction(&others) {
                Some(via) if via.is_empty() => ends.clone(),
                Some(via) => format!("{ends} via {}", via.join(", ")),
                // The nodes are equal, so the callbacks distinguish the chains, or else the topics
                // between them.
                None => {
                    let chain = &model.chains[i];
                    let is_same = |&&o: &&usize| model.chains[o].callbacks == chain.callbacks;
                    match group.iter().filter(is_same).count() {
                        1 => format!("{ends} by {}", chain.callbacks.join(", ")),
                        _ => format!("{ends} over {}", chain.topics.join(", ")),
                    }
                }
            };
        }
    }
    titles
}

struct Namer<'m> {
    node_of: BTreeMap<&'m str, &'m str>,
    short: BTreeMap<&'m str, &'m str>,
}

impl<'m> Namer<'m> {
    fn of(model: &'m Model) -> Namer<'m> {
        let node_of: BTreeMap<&str, &str> = model
            .callbacks
            .iter()
            .map(|c| (c.id.as_str(), c.node.as_str()))
            .collect();
        let last = |node: &'m str| node.rsplit('/').next().unwrap_or(node);
        let mut having: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for &node in node_of.values() {
            let nodes = having.entry(last(node)).or_default();
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        let short = |&node: &&'m str| match having.get(last(node)) {
            Some(nodes) if nodes.len() == 1 => (node, last(node)),
            _ => (node, node),
        };
        let short = node_of.values().map(short).collect();
        Namer { node_of, short }
    }

    fn way(&self, chain: &'m Chain) -> Way<'m> {
        let name = |id: &'m String| {
            let node = self.node_of.get(id.as_str());
            let short = node.and_then(|node| self.short.get(node));
            *short.unwrap_or(&id.as_str())
        };
        let mut nodes: Vec<&str> = chain.callbacks.iter().map(name).collect();
        nodes.dedup();
        Way {
            nodes,
            output: chain.topics.get(chain.callbacks.len().max(1) - 1),
        }
    }
}

struct Way<'m> {
    nodes: Vec<&'m str>,
    output: Option<&'m String>,
}

impl<'m> Way<'m> {
    fn ends(&self) -> String {
        match self.nodes[..] {
            [] => "nothing".into(),
            [only] => match self.output {
                Some(topic) => format!("{only} -> {topic}"),
                None => only.into(),
            },
            [first, .., last] => format!("{first} -> {last}"),
        }
    }

    /// Returns the nodes and the output topic that distinguish this chain from the chains `others`.
    /// Prefers a single node. The list is empty if `others` is empty. Returns `None` if nothing
    /// distinguishes this chain.
    fn distinction(&self, others: &[&Way<'m>]) -> Option<Vec<&'m str>> {
        if others.is_empty() {
            return Some(Vec::new());
        }
        let inner = self
            .nodes
            .get(1..self.nodes.len().max(2) - 1)
            .unwrap_or(&[]);
        let alone = |node: &&&str| others.iter().all(|o| !o.nodes.contains(node));
        if let Some(node) = inner.iter().find(alone) {
            return Some(vec![node]);
        }
        let same_nodes = |o: &&&Way<'_>| o.nodes == self.nodes;
        if !others.iter().any(|o| same_nodes(&o)) && !inner.is_empty() {
            return Some(inner.to_vec());
        }
        let output = self.output?;
        let is_own = others
            .iter()
            .filter(same_nodes)
            .all(|o| o.output != Some(output));
        let mut via = inner.to_vec();
        via.push(output);
        is_own.then_some(via)
    }
}
