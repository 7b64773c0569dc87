//! Selects the paths that are chains, from a source to a sink (thesis section 3.5), and computes
//! their figures.

use super::graph::Graph;
use super::groups::Groups;
use super::paths::Paths;
use crate::cuts::Cut;
use crate::evidence::{total, EdgeKey, Evidence, Hidden};
use crate::evidence::{PathEvidence, PathFigures, PathKey, MEMORY};
use crate::schema::{Assumed, ByMode, Chain, ChainFigures, Share};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the chains of the model, sorted by id. Moves to `hidden` the evidence that the chains do
/// not show: paths that are not chains, and the numbers of executions by topic of the last output.
pub(super) fn chains(
    evidence: &mut Evidence,
    groups: &Groups,
    graph: &Graph,
    hidden: &mut Hidden,
) -> Vec<Chain> {
    let mut paths = Paths::of(evidence, groups);
    let ends = Ends::of(evidence, graph);
    let mut chains = Vec::new();
    hidden.paths.append(&mut paths.unread);
    for (key, ended) in std::mem::take(&mut paths.ended) {
        let whole = ends.is_chain(&key);
        if ended.all.modes.is_empty() || !(whole || ends.is_cut(&key, &ended.all.outputs)) {
            hidden.paths.extend(ended.into_hidden());
            continue;
        }
        let missing = Missing {
            lost: paths.lost_on(&key),
            dropped: paths.dropped_on(&key),
        };
        let chain = Chain {
            ambiguous: groups.is_doubtful(&key),
            cut: !whole,
            ..chain(key, &ended.all, &missing, &ends)
        };
        if let Some(own) = ended.plain() {
            if !own.is_empty() {
                hidden.own.insert(chain.id.clone(), own.to_vec());
            }
            hidden.outputs.insert(chain.id.clone(), ended.all.outputs);
        } else {
            hidden.derived.insert(chain.id.clone());
            hidden.paths.extend(ended.into_hidden());
        }
        chains.push(chain);
    }
    chains.sort_by(|a, b| a.id.cmp(&b.id));
    chains
}

struct Missing {
    lost: BTreeMap<String, u64>,
    dropped: BTreeMap<String, u64>,
}

pub(super) struct Ends<'a> {
    graph: &'a Graph,
    pub(super) inputs: BTreeSet<&'a str>,
    pub(super) cuts: Vec<Cut>,
    sourced: &'a BTreeMap<String, u64>,
    pub(super) next: BTreeMap<&'a str, Vec<&'a str>>,
    fed: BTreeSet<&'a str>,
}

impl<'a> Ends<'a> {
    pub(super) fn of(evidence: &'a Evidence, graph: &'a Graph) -> Self {
        let (inputs, ignored) = (evidence.inputs(), evidence.ignored());
        let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut fed = BTreeSet::new();
        for e in graph.edges.values() {
            // At an input one chain ends and another begins. Infrastructure topics are in no chain.
            let topic = e.topic.as_str();
            if !inputs.contains(topic) && !ignored.contains(topic) {
                next.entry(&e.from).or_default().push(&e.to);
            }
            if matches!(e.assumed, None | Some(Assumed::HandedOver)) {
                fed.insert(e.to.as_str());
            }
        }
        Ends {
            graph,
            inputs,
            cuts: evidence.cuts(),
            sourced: &evidence.sourced,
            next,
            fed,
        }
    }

    fn is_chain(&self, path: &PathKey) -> bool {
        let (Some(first), Some(last)) = (path.callbacks.first(), path.callbacks.last()) else {
            return false;
        };
        self.is_shown(path) && self.is_source(first) && self.is_sink(last, path)
    }

    /// Reports whether a path is a part of a chain that the user named. All edges of such a path
    /// are in the graph. At least one end of the path is a cut; the other end may be the end of a
    /// chain.
    fn is_cut(&self, path: &PathKey, outputs: &BTreeMap<String, u64>) -> bool {
        let (Some(first), Some(last)) = (path.callbacks.first(), path.callbacks.last()) else {
            return false;
        };
        let publishes = |topic: &String| {
            let callback = self.graph.callbacks.get(last);
            let its = callback.is_some_and(|c| c.outputs.contains(topic));
            its && outputs.contains_key(topic)
        };
        let is_one = |cut: &Cut| {
            let begins = match &cut.from {
                Some(from) => from == first,
                None => self.is_source(first),
            };
            begins
                && match &cut.to {
                    Some(to) => publishes(to),
                    None => self.is_sink(last, path),
                }
        };
        self.cuts.iter().any(is_one) && self.is_shown(path)
    }

    fn is_shown(&self, path: &PathKey) -> bool {
        let edge = |(from, to, topic): (&str, &str, &str)| {
            self.graph.edges.contains_key(&EdgeKey {
                from: from.into(),
                to: to.into(),
                topic: topic.into(),
            })
        };
        let mut callbacks = path.callbacks.iter();
        callbacks.all(|c| self.graph.callbacks.contains_key(c)) && path.edges().all(edge)
    }

    /// Reports whether chains begin at a callback: no edge leads to it, or at least a tenth of its
    /// executions were not triggered by another callback.
    pub(super) fn is_source(&self, callback: &str) -> bool {
        let sourced = self.sourced.get(callback).copied().unwrap_or(0);
        let executions = self.graph.callbacks.get(callback);
        let executions = executions.map_or(0, |c| c.figures.executions().max(1));
        !self.fed.contains(callback) || sourced * 10 >= executions
    }

    /// Reports whether a chain along `path` ends at `callback`: all edges from the callback lead
    /// back to callbacks of the path.
    fn is_sink(&self, callback: &str, path: &PathKey) -> bool {
        let mut next = self.next.get(callback).into_iter().flatten();
        next.all(|to| path.callbacks.iter().any(|c| c == to))
    }
}

fn chain(key: PathKey, path: &PathEvidence, missing: &Missing, ends: &Ends) -> Chain {
    let mut modes: ByMode<ChainFigures> = ByMode::new();
    let counted = missing.lost.keys().chain(missing.dropped.keys());
    for mode in path.modes.keys().chain(counted) {
        let figures = path.modes.get(mode).cloned().unwrap_or_default();
        let of = |counts: &BTreeMap<String, u64>| counts.get(mode).copied().unwrap_or(0);
        let counts = (of(&missing.lost), of(&missing.dropped));
        let figures = chain_figures(&key, &figures, counts);
        modes.insert(mode.clone(), Box::new(figures));
    }
    let counts = (missing.lost.values().sum(), missing.dropped.values().sum());
    let figures = chain_figures(&key, &total(&path.modes), counts);
    let first = key.callbacks.first();
    let first = first.and_then(|id| ends.graph.callbacks.get(id));
    let mut chain = Chain {
        id: chain_id(&key),
        ambiguous: false,
        cut: false,
        from_input: first.is_some_and(|c| ends.inputs.contains(c.input.as_str())),
        assumed: key.topics.iter().any(|t| t == MEMORY),
        callbacks: key.callbacks,
        topics: key.topics,
        figures,
        modes,
        per_run: path.per_run.clone(),
    };
    // Takes the topic that was the last output most often. Among equals, the first by name.
    let output = path.outputs.iter().rev().max_by_key(|o| o.1);
    let output = output.map(|o| o.0.clone());
    chain.topics.extend(output.filter(|o| !o.is_empty()));
    chain
}

fn chain_id(path: &PathKey) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for text in path.callbacks.iter().chain(&path.topics) {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("chain-{:012x}", hash >> 16)
}

fn chain_figures(
    path: &PathKey,
    figures: &PathFigures,
    (lost, dropped): (u64, u64),
) -> ChainFigures {
    let latency = &figures.latency_ns;
    let whole = latency.sum();
    let n = latency.count();
    let over = |sum: u128, all: f64| if all == 0.0 { 0.0 } else { sum as f64 / all };
    let mut shares = Vec::new();
    for i in 0..2 * path.callbacks.len() - 1 {
        let sum = figures.sums.get(i).copied().unwrap_or(0);
        let (element, name) = if i % 2 == 0 {
            ("callback", &path.callbacks[i / 2])
        } else {
            ("edge", &path.topics[i / 2])
        };
        shares.push(Share {
            element: element.into(),
            name: name.clone(),
            sum_ns: sum.to_string(),
            mean_ns: over(sum, n as f64),
            fraction: over(sum, whole as f64),
        });
    }
    ChainFigures {
        executions: n,
        latency_ns: latency.clone(),
        reaction_ns: figures.reaction_ns.clone(),
        age_ns: figures.age_ns.clone(),
        jitter_ns: (latency.max() - latency.min()) / 2,
        lost,
        dropped,
        crossed: figures.crossed,
        shares,
    }
}

#[cfg(test)]
mod tests {
    use super::super::conclude;
    use super::super::testing::{key, run, times, MODE};
    use super::*;
    use crate::evidence::Note;

    const A: &str = "/a:timer(1ms)";
    const B: &str = "/b:subscription(/x)";
    const C: &str = "/c:subscription(/y)";

    fn line() -> Evidence {
        run("r")
            .with_callback(A, 10)
            .with_callback(B, 10)
            .with_callback(C, 10)
            .with_edge(A, B, "/x", 10)
            .with_edge(B, C, "/y", 10)
            .with_path(&format!("{A} /x {B} /y {C}"), 8)
            .with_path(&format!("{A} /x {B}"), 1)
            .with_path(&format!("{B} /y {C}"), 1)
    }

    fn shown(evidence: &Evidence) -> Vec<String> {
        let chains = conclude(evidence.clone()).chains.into_iter();
        let mut shown: Vec<String> = chains.map(|c| c.callbacks.join(" ")).collect();
        shown.sort();
        shown
    }

    #[test]
    fn a_chain_runs_from_a_source_to_a_sink() {
        let mut evidence = line();
        assert_eq!(shown(&evidence), [format!("{A} {B} {C}")]);
        // A tenth of B's executions had no input from a callback, so B is a source too.
        evidence.sourced.insert(B.into(), 1);
        assert_eq!(
            shown(&evidence),
            [format!("{A} {B} {C}"), format!("{B} {C}")]
        );
    }

    #[test]
    fn a_loop_back_into_a_chain_does_not_continue_it() {
        let evidence = line().with_edge(C, A, "/z", 5);
        // A now has an edge that leads to it.
        assert_eq!(shown(&evidence), [] as [&str; 0]);
        let mut evidence = evidence;
        evidence.sourced.insert(A.into(), 5);
        assert_eq!(shown(&evidence), [format!("{A} {B} {C}")]);
    }

    #[test]
    fn at_a_named_input_one_chain_ends_and_another_begins() {
        let mut evidence = line();
        // Lineages end at an input.
        evidence.paths.remove(&key(&format!("{A} /x {B} /y {C}")));
        evidence.note(Note::Input("/y".into()), 10);
        evidence.sourced.insert(C.into(), 10);
        let evidence = evidence.with_path(C, 10);
        assert_eq!(shown(&evidence), [format!("{A} {B}"), C.to_string()]);
        let from_input = |c: &Chain| (c.callbacks[0].clone(), c.from_input);
        let model = conclude(evidence);
        let mut begins: Vec<_> = model.chains.iter().map(from_input).collect();
        begins.sort();
        assert_eq!(begins, [(A.to_string(), false), (C.to_string(), true)]);
    }

    #[test]
    fn a_chain_states_its_latency_and_its_losses_and_its_most_frequent_output() {
        let mut evidence = line();
        let path = evidence
            .paths
            .get_mut(&key(&format!("{A} /x {B} /y {C}")))
            .unwrap();
        let outputs = [("", 1), ("/q", 3), ("/p", 3), ("/r", 1)];
        path.outputs = outputs.map(|(t, n)| (t.to_string(), n)).into();
        let lost = BTreeMap::from([(MODE.to_string(), 2)]);
        evidence
            .lost
            .insert(key(&format!("{A} /x {B}")), lost.clone());
        evidence
            .lost
            .insert(key(&format!("{A} /x {B} /y {C}")), lost.clone());
        evidence.lost.insert(key(&format!("{B} /y {C}")), lost);
        let chain = conclude(evidence).chains.pop().unwrap();
        assert_eq!(
            chain.topics,
            ["/x", "/y", "/p"],
            "of equals the first by name"
        );
        assert_eq!(chain.figures.lost, 4, "on the chain's own beginnings only");
        assert_eq!((chain.figures.executions, chain.figures.jitter_ns), (8, 0));
        let shares = &chain.figures.shares;
        assert_eq!(shares.len(), 5);
        assert_eq!(
            (shares[1].name.as_str(), shares[1].sum_ns.as_str()),
            ("/x", "8")
        );
        assert_eq!((shares[4].mean_ns, shares[4].fraction), (1.0, 0.2));
        assert_eq!(chain.figures.latency_ns, times(8, 5));
    }
}
