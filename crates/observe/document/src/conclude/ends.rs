//! Selects the pairs of a source and a sink between which chains lead, and computes the figures of
//! all paths between them.

use super::chains::Ends;
use super::graph::Graph;
use super::groups::{Group, Groups};
use crate::evidence::{add_all, total, EndsKey, Evidence, Hidden, HiddenEnds, PathFigures};
use crate::schema::{ByMode, Chain, EndToEnd, EndToEndFigures, JunctionState};
use std::collections::{BTreeMap, BTreeSet};

type Modes = ByMode<PathFigures>;

/// Returns the end-to-end figures of each source and sink, and of the ends that the user named.
/// Moves to `hidden` the evidence that these figures do not show.
pub(super) fn end_to_end(
    evidence: &mut Evidence,
    groups: &Groups,
    graph: &Graph,
    chains: &[Chain],
    hidden: &mut Hidden,
) -> Vec<EndToEnd> {
    let all = std::mem::take(&mut evidence.ends);
    if all.is_empty() {
        return Vec::new();
    }
    let between = Between::of(evidence, groups, graph);
    let mut shown: BTreeMap<EndsKey, Modes> = BTreeMap::new();
    for (key, modes) in all {
        let group = groups.through(&key.to, &key.topic);
        let to = group.map_or(&key.to, |g| &g.id);
        let of_graph = EndsKey {
            to: to.clone(),
            ..key.clone()
        };
        if !between.is_pair(&of_graph) {
            hidden.ends.push(HiddenEnds::new(key, modes));
            continue;
        }
        add_all(shown.entry(of_graph).or_default(), &modes);
        if group.is_some_and(|g| g.publishers.len() > 1) {
            hidden.ends.push(HiddenEnds::new(key, modes));
        }
    }
    let mut listed: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for chain in chains {
        if let (Some(first), Some(last)) = (chain.callbacks.first(), chain.callbacks.last()) {
            *listed.entry((first, last)).or_default() += 1;
        }
    }
    let pairs = shown.into_iter();
    let pairs = pairs.map(|(key, modes)| {
        let listed = listed.get(&(key.from.as_str(), key.to.as_str())).copied();
        between.pair(key, &modes, listed.unwrap_or(0))
    });
    pairs.collect()
}

struct Between<'a> {
    ends: Ends<'a>,
    groups: &'a Groups<'a>,
    before: BTreeMap<&'a str, Vec<&'a str>>,
    /// The callbacks whose outputs the synthesis linked to the wrong inputs, judged by all
    /// evidence.
    misread: BTreeSet<&'a str>,
    graph: &'a Graph,
}

impl<'a> Between<'a> {
    fn of(evidence: &'a Evidence, groups: &'a Groups<'a>, graph: &'a Graph) -> Self {
        let ends = Ends::of(evidence, graph);
        let mut before: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (&from, next) in &ends.next {
            for &to in next {
                before.entry(to).or_default().push(from);
            }
        }
        Between {
            before,
            misread: misread(evidence, groups),
            ends,
            groups,
            graph,
        }
    }

    fn reach(from: &'a str, next: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
        let (mut seen, mut left) = (BTreeSet::from([from]), vec![from]);
        while let Some(at) = left.pop() {
            for &to in next.get(at).into_iter().flatten() {
                if seen.insert(to) {
                    left.push(to);
                }
            }
        }
        seen
    }

    fn passed(&self, from: &str, to: &str) -> BTreeSet<&'a str> {
        let id = |id: &str| self.graph.callbacks.get_key_value(id).map(|c| c.0.as_str());
        let (Some(from), Some(to)) = (id(from), id(to)) else {
            return BTreeSet::new();
        };
        let (after, before) = (
            Self::reach(from, &self.ends.next),
            Self::reach(to, &self.before),
        );
        match after.contains(to) {
            true => after.intersection(&before).copied().collect(),
            false => BTreeSet::new(),
        }
    }

    fn is_pair(&self, key: &EndsKey) -> bool {
        if !self.is_whole(key) && !self.is_cut(key) {
            return false;
        }
        let passed = self.passed(&key.from, &key.to);
        !passed.is_empty() && !passed.iter().any(|id| self.misread.contains(id))
    }

    fn is_whole(&self, key: &EndsKey) -> bool {
        self.ends.is_source(&key.from) && self.is_sink(&key.to)
    }

    fn is_sink(&self, callback: &str) -> bool {
        let next = self.ends.next.get(callback).into_iter().flatten();
        let back = |to: &'a str| Self::reach(to, &self.ends.next).contains(callback);
        next.copied().all(back)
    }

    fn is_cut(&self, key: &EndsKey) -> bool {
        self.ends.cuts.iter().any(|cut| {
            let begins = match &cut.from {
                Some(from) => *from == key.from,
                None => self.ends.is_source(&key.from),
            };
            begins
                && match &cut.to {
                    Some(to) => *to == key.topic,
                    None => self.is_sink(&key.to),
                }
        })
    }

    fn pair(&self, key: EndsKey, modes: &Modes, listed: u64) -> EndToEnd {
        let passed = self.passed(&key.from, &key.to);
        let doubtful = |id: &&str| {
            let group: Option<&Group> = self.groups.get(id);
            let group = group.filter(|g| g.state == JunctionState::Ambiguous);
            group.is_some_and(|g| {
                let open = |m: &String| !g.without_open.inputs.contains(m);
                g.members
                    .iter()
                    .any(|m| open(m) && passed.contains(m.as_str()))
            })
        };
        let first = self.graph.callbacks.get(&key.from);
        let figures = |f: &PathFigures| EndToEndFigures {
            outputs: f.age_ns.as_ref().unwrap_or(&f.latency_ns).count(),
            latency_ns: f.latency_ns.clone(),
            reaction_ns: f.reaction_ns.clone(),
            age_ns: f.age_ns.clone(),
            crossed: f.crossed,
        };
        EndToEnd {
            ambiguous: passed.iter().any(doubtful),
            from_input: first.is_some_and(|c| self.ends.inputs.contains(c.input.as_str())),
            cut: !self.is_whole(&key),
            paths: self.paths(&key.from, &key.to, &passed),
            listed,
            figures: figures(&total(modes)),
            modes: modes
                .iter()
                .map(|(m, f)| (m.clone(), Box::new(figures(f))))
                .collect(),
            from: key.from,
            to: key.to,
            topic: key.topic,
        }
    }

    fn paths(&self, from: &str, to: &str, passed: &BTreeSet<&str>) -> Option<u64> {
        let inner = |id: &str| {
            let next = self.ends.next.get(id).into_iter().flatten().copied();
            next.filter(|to| passed.contains(to)).collect::<Vec<&str>>()
        };
        let mut entering: BTreeMap<&str, usize> = BTreeMap::new();
        for id in passed {
            inner(id)
                .iter()
                .for_each(|to| *entering.entry(to).or_default() += 1);
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::from([(from, 1)]);
        let mut ready: Vec<&str> = vec![from];
        let mut done = 0;
        if entering.contains_key(from) {
            return None;
        }
        while let Some(id) = ready.pop() {
            done += 1;
            let here = counts.get(id).copied().unwrap_or(0);
            for next in inner(id) {
                let count = counts.entry(next).or_default();
                *count = count.saturating_add(here);
                if let Some(left) = entering.get_mut(next) {
                    *left -= 1;
                    if *left == 0 {
                        ready.push(next);
                    }
                }
            }
        }
        (done == passed.len()).then(|| counts.get(to).copied().unwrap_or(0))
    }
}

/// A callback does not count as misread if its wrongly linked outputs are at most this number plus
/// a tenth of its outputs. Synthesis may have linked these outputs before it was clear for which
/// inputs the callback waits.
const UNCLEAR: u64 = 10;

/// Returns the callbacks whose outputs synthesis linked to the wrong inputs, judged by all
/// evidence. Synthesis linked an output to an input for which the callback does not wait, or left
/// out an input for which it waits.
fn misread<'a>(evidence: &'a Evidence, groups: &Groups) -> BTreeSet<&'a str> {
    let mut misread = BTreeSet::new();
    for (id, sync) in &evidence.syncs {
        let group = groups.get(id);
        let wrong = sync.members.iter().any(|(member, m)| {
            let (followed, all) = (m.followed, m.followed + m.passed_over);
            match group.is_some_and(|g| g.members.contains(member)) {
                true => m.passed_over > UNCLEAR + all / 10,
                false => followed > UNCLEAR + all / 10,
            }
        });
        let members = sync.members.iter().filter(|_| wrong);
        let publishers = members.filter(|(_, m)| m.published > 0);
        misread.extend(publishers.map(|(id, _)| id.as_str()));
    }
    misread
}
