//! The end of a pass: names for everything, and the model.

use super::flow::{Vertex, Way};
use super::spans::UNKNOWN_POLICY;
use super::{Synth, NONE};
use crate::conclude::conclude;
use crate::evidence::{unite_threads, EdgeKey, Evidence, Figures, MemberEvidence, Note};
use crate::evidence::{PathFigures, PathKey, SyncEvidence};
use crate::index::PathId;
use crate::schema::{
    Bracket, Callback, CallbackFigures, CallbackType, Edge, EdgeFigures, Model, RunExtremes,
    ThreadUse,
};
use std::collections::BTreeMap;

/// A period as it stands in ids: ms, shortest decimal.
fn period_id(ns: u64) -> String {
    let (ms, rest) = (ns / 1_000_000, ns % 1_000_000);
    if rest == 0 {
        return format!("{ms}ms");
    }
    format!("{ms}.{}ms", format!("{rest:06}").trim_end_matches('0'))
}

/// A measured period, to two digits, so that it is the same in every run.
fn rounded(ns: u64) -> u64 {
    let mut unit = 1;
    while ns / unit >= 100 {
        unit *= 10;
    }
    (ns + unit / 2) / unit * unit
}

fn policy_name(policy: u8) -> &'static str {
    match policy {
        0 => "other",
        1 => "fifo",
        2 => "rr",
        3 => "batch",
        5 => "idle",
        6 => "deadline",
        7 => "ext",
        _ => "unknown",
    }
}

/// From so many items on, of which none was taken, a subscription is said to get nothing.
const STARVED: u64 = 10;

impl Synth {
    /// The id of a vertex without an ordinal.
    fn base_id(&self, v: &Vertex) -> String {
        let node = self.world.node_id(if v.node == NONE {
            v.fallback_node
        } else {
            v.node
        });
        let name = self.world.names.get(v.name);
        match v.kind {
            CallbackType::Timer if v.period_ns > 0 => {
                format!("{node}:timer({})", period_id(v.period_ns))
            }
            CallbackType::Timer => match v.figures.interarrival_ns.count() {
                0 => format!("{node}:timer(?)"),
                _ => format!(
                    "{node}:timer({})",
                    period_id(rounded(v.figures.interarrival_ns.quantile(0.5)))
                ),
            },
            CallbackType::Subscription => format!("{node}:subscription({name})"),
            CallbackType::Service if v.caller == NONE => format!("{node}:service({name})"),
            CallbackType::Service => {
                format!("{node}:service({name})@{}", self.world.node_id(v.caller))
            }
            CallbackType::Client => format!("{node}:client({name})"),
            CallbackType::Sync => format!("{node}:sync({name})"),
        }
    }

    /// The id of a vertex as far as it can be told now, to tie links.
    pub(super) fn provisional_id(&self, v: u32) -> String {
        if let Some(Some(id)) = self.options.ids.get(v as usize) {
            return id.clone();
        }
        let vertex = &self.flow.vertices[v as usize];
        let base = self.base_id(vertex);
        match vertex.rank.0 {
            0 => base,
            n => format!("{base}#{}", n + 1),
        }
    }

    /// Ids of the callbacks so far, by their number; none for those that did not run. Equal ones get
    /// ordinals in order of creation.
    pub fn callback_ids(&self) -> Vec<Option<String>> {
        let mut alike: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (i, v) in self.flow.vertices.iter().enumerate() {
            if v.executions > 0 || v.kind == CallbackType::Sync {
                alike.entry(self.base_id(v)).or_default().push(i);
            }
        }
        let mut ids = vec![None; self.flow.vertices.len()];
        for (base, mut list) in alike {
            list.sort_by_key(|&i| self.flow.vertices[i].rank);
            for (n, i) in list.into_iter().enumerate() {
                ids[i] = Some(if n == 0 {
                    base.clone()
                } else {
                    format!("{base}#{}", n + 1)
                });
            }
        }
        ids
    }

    /// The callbacks' ids when no event follows, for [`SynthOptions::ids`].
    pub fn into_ids(mut self) -> Vec<Option<String>> {
        self.end_of_events();
        self.callback_ids()
    }

    /// The model of all events so far.
    pub fn finish(mut self) -> Model {
        self.end_of_events();
        conclude(self.raw())
    }

    fn raw(&self) -> Evidence {
        let mut run = self.options.run.clone();
        if run.events == 0 {
            run.events = self.events;
        }
        if run.duration_ns == 0 {
            run.duration_ns = self.now - self.first.unwrap_or(self.now);
        }
        if run.lost.is_empty() {
            run.lost = self.lost.clone();
        }
        let (mode, duration) = (run.mode.clone(), run.duration_ns);
        let ids = self.callback_ids();
        let mut raw = Evidence::default();
        for (v, id) in self.flow.vertices.iter().zip(&ids) {
            if let Some(id) = id {
                let callback = self.callback(v, id, &run.id, run.start, &mode, duration);
                raw.callbacks.insert(id.clone(), callback);
                if v.sourced > 0 {
                    raw.sourced.insert(id.clone(), v.sourced);
                }
                if v.kind == CallbackType::Timer && v.period_ns == 0 {
                    raw.unknown_periods.insert(id.clone());
                }
            }
        }
        let id = |v: u32| ids.get(v as usize).cloned().flatten();
        for e in &self.flow.edges {
            if let (Some(from), Some(to)) = (id(e.from), id(e.to)) {
                let topic = self.world.names.get(e.name).to_string();
                self.add_edge(&mut raw, from, to, topic, e.way, &e.figures, &mode);
            }
        }
        for (node, group) in &self.groups {
            for output in &group.outputs {
                let Some(sync) = id(output.vertex) else {
                    continue;
                };
                let mut evidence = SyncEvidence {
                    node: self.world.node_id(*node),
                    topic: self.world.names.get(output.topic).into(),
                    outputs: output.outputs,
                    foreign: output.foreign,
                    members: BTreeMap::new(),
                };
                for (member, part) in group.members.iter().zip(&output.parts) {
                    let Some(name) = id(member.vertex) else {
                        continue;
                    };
                    evidence.members.insert(
                        name.clone(),
                        MemberEvidence {
                            instances: member.instances,
                            productive: member.productive,
                            synchronised: member.synchronised,
                            published: part.published,
                            fresh: part.fresh,
                            once: part.once,
                            shared: part.shared,
                        },
                    );
                    let input = self.flow.vertices[member.vertex as usize].name;
                    let figures = EdgeFigures {
                        latency_ns: part.latency.clone(),
                        waiting_ns: part.latency.clone(),
                        published: part.used + part.skipped,
                        taken: part.used,
                        lost: part.skipped,
                        overwritten: part.skipped,
                        ..EdgeFigures::default()
                    };
                    let topic = self.world.names.get(input).to_string();
                    self.add_edge(
                        &mut raw,
                        name,
                        sync.clone(),
                        topic,
                        Way::Topic,
                        &figures,
                        &mode,
                    );
                }
                if let Some(c) = raw.callbacks.get_mut(&sync) {
                    if let Some(figures) = c.modes.get_mut(&mode) {
                        figures.interarrival_ns = output.interarrival.clone();
                    }
                }
                raw.syncs.insert(sync, evidence);
            }
        }
        self.raw_paths(&mut raw, &ids, &mode);
        self.raw_notes(&mut raw, &ids);
        raw.runs.insert(run.id.clone(), run);
        raw
    }

    fn callback(
        &self,
        v: &Vertex,
        id: &str,
        run: &str,
        start: u64,
        mode: &str,
        duration: u64,
    ) -> Callback {
        let node = self.world.node_id(if v.node == NONE {
            v.fallback_node
        } else {
            v.node
        });
        let mut outputs: Vec<String> = v
            .outputs
            .iter()
            .map(|&n| self.world.names.get(n).to_string())
            .collect();
        outputs.sort();
        let mut figures = v.figures.clone();
        figures.observed_ns = duration;
        let exec = &figures.exec_ns;
        let mut per_run = BTreeMap::new();
        if exec.count() > 0 {
            per_run.insert(
                run.to_string(),
                RunExtremes {
                    start,
                    count: exec.count(),
                    min_ns: exec.min(),
                    mean_ns: exec.mean(),
                    max_ns: exec.max(),
                },
            );
        }
        let threads = v.uses.iter().map(|u| {
            let (comm, priority, policy) = (u.thread.0, u.thread.2, u.thread.1);
            let mut cpus = Vec::new();
            for cpu in 0..256u16 {
                if u.cpus[usize::from(cpu / 64)] >> (cpu % 64) & 1 == 1 {
                    cpus.push(cpu);
                }
            }
            ThreadUse {
                comm: self.world.names.get(comm).into(),
                policy: policy_name(if policy == UNKNOWN_POLICY {
                    255
                } else {
                    policy
                })
                .into(),
                priority,
                cpus,
            }
        });
        Callback {
            id: id.into(),
            node,
            kind: v.kind,
            input: match v.kind {
                CallbackType::Timer | CallbackType::Sync => String::new(),
                _ => self.world.names.get(v.name).into(),
            },
            caller: (v.caller != NONE).then(|| self.world.node_id(v.caller)),
            period_ns: (v.kind == CallbackType::Timer && v.period_ns > 0).then_some(v.period_ns),
            outputs,
            bracket: if v.inferred || v.kind == CallbackType::Sync {
                Bracket::Inferred
            } else {
                Bracket::Exact
            },
            symbol: (v.symbol != NONE).then(|| self.world.names.get(v.symbol).into()),
            figures: CallbackFigures::default(),
            modes: BTreeMap::from([(mode.to_string(), figures)]),
            threads: unite_threads(threads),
            per_run,
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn add_edge(
        &self,
        raw: &mut Evidence,
        from: String,
        to: String,
        topic: String,
        way: Way,
        figures: &EdgeFigures,
        mode: &str,
    ) {
        let key = EdgeKey {
            from: from.clone(),
            to: to.clone(),
            topic: topic.clone(),
        };
        let edge = raw.edges.entry(key).or_insert_with(|| Edge {
            from,
            to,
            topic,
            assumed: way == Way::Link,
            intra_process: false,
            figures: EdgeFigures::default(),
            modes: BTreeMap::new(),
        });
        edge.intra_process |= way == Way::Intra;
        edge.modes.entry(mode.into()).or_default().add(figures);
    }

    fn raw_paths(&self, raw: &mut Evidence, ids: &[Option<String>], mode: &str) {
        let nodes = self.paths.nodes();
        'paths: for (last, node) in nodes.iter().enumerate() {
            if node.lost == 0 && node.terminal.is_none() {
                continue;
            }
            let (mut callbacks, mut topics) = (Vec::new(), Vec::new());
            for node in self.paths.upwards(PathId::new(last)) {
                match ids.get(node.vertex.index()) {
                    Some(Some(id)) => callbacks.push(id.clone()),
                    _ => continue 'paths,
                }
                if let Some((_, via)) = node.parent {
                    topics.push(self.world.names.get(via.index() as u32).to_string());
                }
            }
            callbacks.reverse();
            topics.reverse();
            let key = PathKey { callbacks, topics };
            if node.lost > 0 {
                let lost = raw.lost.entry(key.clone()).or_default();
                *lost.entry(mode.into()).or_insert(0) += node.lost;
            }
            if let Some(terminal) = &node.terminal {
                let path = raw.paths.entry(key).or_default();
                for &(output, n) in &terminal.outputs {
                    let name = output.map_or("", |n| self.world.names.get(n.index() as u32));
                    let name = name.to_string();
                    *path.outputs.entry(name).or_insert(0) += n;
                }
                path.modes
                    .entry(mode.into())
                    .or_default()
                    .add(&PathFigures {
                        latency_ns: terminal.latency.clone(),
                        sums: terminal.sums.clone(),
                    });
            }
        }
    }

    /// Subscriptions that never ran, with how much was published for them.
    fn starved(&self, ids: &[Option<String>]) -> BTreeMap<u32, u64> {
        let mut starved: BTreeMap<u32, u64> = BTreeMap::new();
        for e in &self.flow.edges {
            let to = &self.flow.vertices[e.to as usize];
            let is_one = to.kind == CallbackType::Subscription && ids[e.to as usize].is_none();
            if is_one && ids[e.from as usize].is_some() && e.way == Way::Topic {
                *starved.entry(e.to).or_default() += e.figures.published;
            }
        }
        // At the end of a recording some are always on their way.
        starved.retain(|_, published| *published >= STARVED);
        starved
    }

    fn raw_notes(&self, raw: &mut Evidence, ids: &[Option<String>]) {
        let vertex = |v: u32| ids.get(v as usize).cloned().flatten();
        let name = |n: u32| self.world.names.get(n).to_string();
        for (note, count) in self.notes.iter() {
            if let Some(note) = note.clone().named(vertex, name) {
                raw.note(note, count);
            }
        }
        for (i, link) in self.options.links.iter().enumerate() {
            let tied = |of: fn(&Vertex) -> &Vec<u32>, end: &str| {
                let mut vertices = self.flow.vertices.iter().zip(ids);
                vertices.any(|(v, id)| of(v).contains(&(i as u32)) && id.as_deref() == Some(end))
            };
            if !tied(|v| &v.links_from, &link.from) || !tied(|v| &v.links_to, &link.to) {
                raw.note(Note::Link(link.to_string()), 1);
            }
        }
        for (input, &(_, taken)) in self.options.inputs.iter().zip(&self.inputs) {
            let input = input.clone();
            match taken {
                0 => raw.note(Note::NoInput(input), 1),
                taken => raw.note(Note::Input(input), taken),
            }
        }
        for (v, published) in self.starved(ids) {
            let v = &self.flow.vertices[v as usize];
            raw.note(Note::Starved(self.base_id(v)), published);
        }
        for (v, id) in self.flow.vertices.iter().zip(ids) {
            let node = if v.node == NONE {
                v.fallback_node
            } else {
                v.node
            };
            let guessed = self
                .world
                .nodes
                .get(node as usize)
                .is_some_and(|n| n.guessed);
            if id.is_some() && guessed {
                raw.notes
                    .insert(Note::NodeName(self.world.node_id(node)), 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_as_they_stand_in_ids() {
        assert_eq!(period_id(100_000_000), "100ms");
        assert_eq!(period_id(33_333_333), "33.333333ms");
        assert_eq!(period_id(500_000), "0.5ms");
        assert_eq!(rounded(99_871_234), 100_000_000);
        assert_eq!(rounded(12_600_000), 13_000_000);
        assert_eq!(rounded(7), 7);
    }
}
