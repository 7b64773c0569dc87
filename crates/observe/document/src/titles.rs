//! Readable names of chains: where a chain begins, where it ends, and what distinguishes it from
//! others between the same ends.

use crate::schema::{Chain, Model};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
        let counts = Counts::of(|i| &model.chains[i].callbacks, &ways, group);
        for &i in group {
            titles[i] = match ways[i].distinction(&counts) {
                Some(via) if via.is_empty() => ends.clone(),
                Some(via) => format!("{ends} via {}", via.join(", ")),
                // The nodes are equal, so the callbacks distinguish the chains, or else the topics
                // between them.
                None => {
                    let chain = &model.chains[i];
                    match counts.callbacks[&chain.callbacks[..]] {
                        1 => format!("{ends} by {}", chain.callbacks.join(", ")),
                        _ => format!("{ends} over {}", chain.topics.join(", ")),
                    }
                }
            };
        }
    }
    titles
}

/// The numbers of chains between the same ends that have something in common. A search among these
/// chains would take a time that grows with the square of their number.
struct Counts<'w> {
    chains: usize,
    /// The number of chains that pass a node.
    node: HashMap<&'w str, usize>,
    /// The number of chains that pass the same nodes in the same order.
    nodes: HashMap<&'w [&'w str], usize>,
    nodes_and_output: HashMap<(&'w [&'w str], &'w str), usize>,
    callbacks: HashMap<&'w [String], usize>,
}

impl<'w> Counts<'w> {
    fn of(callbacks: impl Fn(usize) -> &'w [String], ways: &'w [Way<'_>], group: &[usize]) -> Self {
        let mut counts = Counts {
            chains: group.len(),
            node: HashMap::new(),
            nodes: HashMap::new(),
            nodes_and_output: HashMap::new(),
            callbacks: HashMap::new(),
        };
        for &i in group {
            let nodes = &ways[i].nodes[..];
            let each: BTreeSet<&str> = nodes.iter().copied().collect();
            for node in each {
                *counts.node.entry(node).or_default() += 1;
            }
            *counts.nodes.entry(nodes).or_default() += 1;
            if let Some(output) = ways[i].output {
                let key = (nodes, output.as_str());
                *counts.nodes_and_output.entry(key).or_default() += 1;
            }
            *counts.callbacks.entry(callbacks(i)).or_default() += 1;
        }
        counts
    }
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
        let mut having: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for &node in node_of.values() {
            having.entry(last(node)).or_default().insert(node);
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

    /// Returns the nodes and the output topic that distinguish this chain from the others of its
    /// group. Prefers a single node. The list is empty if the group has no other chain. Returns
    /// `None` if nothing distinguishes this chain.
    fn distinction(&self, counts: &Counts<'_>) -> Option<Vec<&'m str>> {
        if counts.chains == 1 {
            return Some(Vec::new());
        }
        let inner = self
            .nodes
            .get(1..self.nodes.len().max(2) - 1)
            .unwrap_or(&[]);
        if let Some(node) = inner.iter().find(|node| counts.node[**node] == 1) {
            return Some(vec![node]);
        }
        if counts.nodes[&self.nodes[..]] == 1 && !inner.is_empty() {
            return Some(inner.to_vec());
        }
        let output = self.output?.as_str();
        let mut via = inner.to_vec();
        via.push(output);
        let is_own = counts.nodes_and_output[&(&self.nodes[..], output)] == 1;
        is_own.then_some(via)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns what distinguishes a way from others by a search among them.
    fn searched<'m>(way: &Way<'m>, others: &[&Way<'m>]) -> Option<Vec<&'m str>> {
        if others.is_empty() {
            return Some(vec![]);
        }
        let inner = way.nodes.get(1..way.nodes.len().max(2) - 1).unwrap_or(&[]);
        let is_own = |node: &&&str| others.iter().all(|o| !o.nodes.contains(node));
        if let Some(node) = inner.iter().find(is_own) {
            return Some(vec![node]);
        }
        let mut same = others.iter().filter(|o| o.nodes == way.nodes);
        if same.clone().next().is_none() && !inner.is_empty() {
            return Some(inner.to_vec());
        }
        let output = way.output?;
        let is_taken = same.any(|o| o.output == Some(output));
        let via = inner.iter().copied().chain([output.as_str()]);
        (!is_taken).then(|| via.collect())
    }

    proptest! {
        #[test]
        fn counts_distinguish_chains_as_a_search_among_all_others_does(
            chains in prop::collection::vec((prop::collection::vec(0usize..4, 0..5), 0usize..3), 1..9),
        ) {
            const NODES: [&str; 4] = ["a", "b", "c", "d"];
            let outputs = ["/x".to_owned(), "/y".to_owned()];
            let way = |(nodes, output): &(Vec<usize>, usize)| {
                let mut nodes: Vec<&str> = nodes.iter().map(|&n| NODES[n]).collect();
                nodes.dedup();
                Way { nodes, output: outputs.get(*output) }
            };
            let ways: Vec<Way<'_>> = chains.iter().map(way).collect();
            let ids: Vec<Vec<String>> = vec![vec![]; ways.len()];
            let all: Vec<usize> = (0..ways.len()).collect();
            let counts = Counts::of(|i| &ids[i], &ways, &all);
            for (i, way) in ways.iter().enumerate() {
                let others: Vec<&Way<'_>> =
                    ways.iter().enumerate().filter(|(o, _)| *o != i).map(|(_, w)| w).collect();
                prop_assert_eq!(way.distinction(&counts), searched(way, &others));
            }
        }
    }
}
