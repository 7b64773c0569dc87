//! The end of a pass: what the trackers found becomes evidence, with ids for indices.

mod ids;

use ids::Ids;

use super::flow::synchronisers::{Group, Member, Output, Part};
use super::flow::{EdgeData, Use, Vertex, Way};
use super::{Synth, NONE};
use crate::chains::{PathNode, Terminal};
use crate::conclude::conclude;
use crate::evidence::{unite_threads, EdgeKey, Evidence, Figures, MemberEvidence, Note};
use crate::evidence::{PathEvidence, PathFigures, PathKey, SyncEvidence};
use crate::index::{NameId, PathId};
use crate::schema::{Bracket, Callback, CallbackFigures, CallbackType, Edge, EdgeFigures};
use crate::schema::{Model, Run, RunExtremes, ThreadUse};
use std::collections::BTreeMap;

/// From so many items on, of which none was taken, a subscription is reported to get nothing.
const STARVED: u64 = 10;

impl Synth {
    /// Ids of the callbacks so far, by their number; none for those that did not run. Equal ones get
    /// ordinals in order of creation.
    pub fn callback_ids(&self) -> Vec<Option<String>> {
        self.ids().all()
    }

    /// The callbacks' ids when no event follows, for [`SynthOptions::ids`].
    ///
    /// [`SynthOptions::ids`]: super::SynthOptions::ids
    pub fn into_ids(mut self) -> Vec<Option<String>> {
        self.end_of_events();
        self.callback_ids()
    }

    /// The model of all events so far.
    pub fn finish(mut self) -> Model {
        self.end_of_events();
        conclude(Finish::of(&self).evidence())
    }

    fn ids(&self) -> Ids<'_> {
        Ids {
            world: &self.world,
            vertices: &self.flow.vertices,
        }
    }

    /// The id of a vertex by what is known now, which ties links.
    pub(super) fn provisional_id(&self, v: u32) -> String {
        match self.options.ids.get(v as usize) {
            Some(Some(id)) => id.clone(),
            _ => self.ids().provisional(v),
        }
    }

    /// The recording. What its options leave open is as the events say.
    fn run(&self) -> Run {
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
        run
    }
}

/// A pass whose events have ended.
struct Finish<'a> {
    synth: &'a Synth,
    run: Run,
    /// By number of the vertex; none for callbacks that did not run.
    ids: Vec<Option<String>>,
}

impl<'a> Finish<'a> {
    fn of(synth: &'a Synth) -> Self {
        Finish {
            synth,
            run: synth.run(),
            ids: synth.callback_ids(),
        }
    }

    fn evidence(self) -> Evidence {
        let mut evidence = Evidence::default();
        for (v, id) in self.vertices() {
            self.add_vertex(&mut evidence, v, id);
        }
        for e in &self.synth.flow.edges {
            self.add_flow_edge(&mut evidence, e);
        }
        for (&node, group) in &self.synth.groups {
            for output in &group.outputs {
                self.add_sync(&mut evidence, node, group, output);
            }
        }
        for (path, node) in self.synth.paths.nodes().iter().enumerate() {
            self.add_path(&mut evidence, PathId::new(path), node);
        }
        self.add_notes(&mut evidence);
        evidence.runs.insert(self.run.id.clone(), self.run);
        evidence
    }

    /// Vertices that have an id.
    fn vertices(&self) -> impl Iterator<Item = (&'a Vertex, &str)> {
        let vertices = self.synth.flow.vertices.iter().zip(&self.ids);
        vertices.filter_map(|(v, id)| Some((v, id.as_deref()?)))
    }

    fn id(&self, vertex: u32) -> Option<String> {
        self.ids.get(vertex as usize).cloned().flatten()
    }

    fn name(&self, name: u32) -> String {
        self.synth.world.names.get(name).to_string()
    }

    fn name_of(&self, name: NameId) -> String {
        self.name(name.index() as u32)
    }

    fn add_vertex(&self, evidence: &mut Evidence, v: &Vertex, id: &str) {
        evidence.callbacks.insert(id.into(), self.callback(v, id));
        if v.sourced > 0 {
            evidence.sourced.insert(id.into(), v.sourced);
        }
        if v.kind == CallbackType::Timer && v.period_ns == 0 {
            evidence.unknown_periods.insert(id.into());
        }
    }

    fn callback(&self, v: &Vertex, id: &str) -> Callback {
        let mut outputs: Vec<String> = v.outputs.iter().map(|&n| self.name(n)).collect();
        outputs.sort();
        let mut figures = v.figures.clone();
        figures.observed_ns = self.run.duration_ns;
        let timer = v.kind == CallbackType::Timer;
        let sync = v.kind == CallbackType::Sync;
        Callback {
            id: id.into(),
            node: self.synth.ids().node(v),
            kind: v.kind,
            input: match timer || sync {
                true => String::new(),
                false => self.name(v.name),
            },
            caller: (v.caller != NONE).then(|| self.synth.world.node_id(v.caller)),
            period_ns: (timer && v.period_ns > 0).then_some(v.period_ns),
            outputs,
            bracket: match v.inferred || sync {
                true => Bracket::Inferred,
                false => Bracket::Exact,
            },
            symbol: (v.symbol != NONE).then(|| self.name(v.symbol)),
            figures: CallbackFigures::default(),
            per_run: self.extremes(&figures),
            modes: BTreeMap::from([(self.run.mode.clone(), figures)]),
            threads: unite_threads(v.uses.iter().map(|u| self.thread_use(u))),
        }
    }

    fn extremes(&self, figures: &CallbackFigures) -> BTreeMap<String, RunExtremes> {
        let exec = &figures.exec_ns;
        if exec.count() == 0 {
            return BTreeMap::new();
        }
        let extremes = RunExtremes {
            start: self.run.start,
            count: exec.count(),
            min_ns: exec.min(),
            mean_ns: exec.mean(),
            max_ns: exec.max(),
        };
        BTreeMap::from([(self.run.id.clone(), extremes)])
    }

    fn thread_use(&self, u: &Use) -> ThreadUse {
        let (comm, policy, priority) = u.thread;
        let used = |cpu: &u16| u.cpus[usize::from(cpu / 64)] >> (cpu % 64) & 1 == 1;
        ThreadUse {
            comm: self.name(comm),
            policy: policy_name(policy).into(),
            priority,
            cpus: (0..256).filter(used).collect(),
        }
    }

    fn add_flow_edge(&self, evidence: &mut Evidence, e: &EdgeData) {
        if let (Some(from), Some(to)) = (self.id(e.from), self.id(e.to)) {
            let topic = self.name(e.name);
            self.add_edge(evidence, EdgeKey { from, to, topic }, e.way, &e.figures);
        }
    }

    fn add_edge(&self, evidence: &mut Evidence, key: EdgeKey, way: Way, figures: &EdgeFigures) {
        let edge = evidence.edges.entry(key).or_insert_with_key(|key| Edge {
            from: key.from.clone(),
            to: key.to.clone(),
            topic: key.topic.clone(),
            assumed: way == Way::Link,
            intra_process: false,
            figures: EdgeFigures::default(),
            modes: BTreeMap::new(),
        });
        edge.intra_process |= way == Way::Intra;
        let mode = self.run.mode.clone();
        edge.modes.entry(mode).or_default().add(figures);
    }

    /// One topic that a node's subscriptions publish.
    fn add_sync(&self, evidence: &mut Evidence, node: u32, group: &Group, output: &Output) {
        let Some(sync) = self.id(output.vertex) else {
            return;
        };
        let mut members = BTreeMap::new();
        for (member, part) in group.members.iter().zip(&output.parts) {
            let Some(from) = self.id(member.vertex) else {
                continue;
            };
            members.insert(from.clone(), member_evidence(member, part));
            let input = self.synth.flow.vertices[member.vertex as usize].name;
            let key = EdgeKey {
                from,
                to: sync.clone(),
                topic: self.name(input),
            };
            self.add_edge(evidence, key, Way::Topic, &into_sync(part));
        }
        if let Some(c) = evidence.callbacks.get_mut(&sync) {
            if let Some(figures) = c.modes.get_mut(&self.run.mode) {
                figures.interarrival_ns = output.interarrival.clone();
            }
        }
        let shown = SyncEvidence {
            node: self.synth.world.node_id(node),
            topic: self.name(output.topic),
            outputs: output.outputs,
            foreign: output.foreign,
            members,
        };
        evidence.syncs.insert(sync, shown);
    }

    /// A path on which executions ended, or items were lost.
    fn add_path(&self, evidence: &mut Evidence, path: PathId, node: &PathNode) {
        if node.lost == 0 && node.terminal.is_none() {
            return;
        }
        let Some(key) = self.path_key(path) else {
            return;
        };
        let mode = self.run.mode.clone();
        if node.lost > 0 {
            let lost = evidence.lost.entry(key.clone()).or_default();
            lost.entry(mode.clone()).or_default().add(&node.lost);
        }
        if let Some(terminal) = &node.terminal {
            let path = evidence.paths.entry(key).or_default();
            self.add_terminal(path, mode, terminal);
        }
    }

    /// The ids and topics of a path; none where one of its callbacks has no id.
    fn path_key(&self, path: PathId) -> Option<PathKey> {
        let (mut callbacks, mut topics) = (Vec::new(), Vec::new());
        for node in self.synth.paths.upwards(path) {
            callbacks.push(self.id(node.vertex.index() as u32)?);
            topics.extend(node.parent.map(|(_, via)| self.name_of(via)));
        }
        callbacks.reverse();
        topics.reverse();
        Some(PathKey { callbacks, topics })
    }

    fn add_terminal(&self, path: &mut PathEvidence, mode: String, terminal: &Terminal) {
        for &(output, n) in &terminal.outputs {
            let name = output.map_or_else(String::new, |n| self.name_of(n));
            path.outputs.entry(name).or_default().add(&n);
        }
        path.modes.entry(mode).or_default().add(&PathFigures {
            latency_ns: terminal.latency.clone(),
            sums: terminal.sums.clone(),
        });
    }

    fn add_notes(&self, evidence: &mut Evidence) {
        for (note, count) in self.synth.notes.iter() {
            if let Some(note) = note.clone().named(|v| self.id(v), |n| self.name(n)) {
                evidence.note(note, count);
            }
        }
        self.add_untied_links(evidence);
        let options = &self.synth.options;
        for (input, &(_, taken)) in options.inputs.iter().zip(&self.synth.inputs) {
            match taken {
                0 => evidence.note(Note::NoInput(input.clone()), 1),
                taken => evidence.note(Note::Input(input.clone()), taken),
            }
        }
        for (v, published) in self.starved() {
            let id = self.synth.ids().base(v);
            evidence.note(Note::Starved(id), published);
        }
        let nodes = &self.synth.world.nodes;
        for (v, _) in self.vertices() {
            if nodes
                .get(ids::node_of(v) as usize)
                .is_some_and(|n| n.guessed)
            {
                let note = Note::NodeName(self.synth.ids().node(v));
                evidence.notes.insert(note, 1);
            }
        }
    }

    /// Links of which a callback did not run under the id that the user wrote.
    fn add_untied_links(&self, evidence: &mut Evidence) {
        for (i, link) in self.synth.options.links.iter().enumerate() {
            let tied = |of: fn(&Vertex) -> &Vec<u32>, end: &str| {
                let mut vertices = self.vertices();
                vertices.any(|(v, id)| of(v).contains(&(i as u32)) && id == end)
            };
            if !tied(|v| &v.links_from, &link.from) || !tied(|v| &v.links_to, &link.to) {
                evidence.note(Note::Link(link.to_string()), 1);
            }
        }
    }

    /// Subscriptions that never ran, with how much was published for them.
    fn starved(&self) -> impl Iterator<Item = (&'a Vertex, u64)> {
        let vertices = &self.synth.flow.vertices;
        let mut starved: BTreeMap<u32, u64> = BTreeMap::new();
        for e in &self.synth.flow.edges {
            let subscription = vertices[e.to as usize].kind == CallbackType::Subscription;
            let ran = |v: u32| self.ids[v as usize].is_some();
            if subscription && e.way == Way::Topic && ran(e.from) && !ran(e.to) {
                *starved.entry(e.to).or_default() += e.figures.published;
            }
        }
        // At the end of a recording some are always on their way.
        starved.retain(|_, published| *published >= STARVED);
        let vertex = |(v, published)| (&vertices[v as usize], published);
        starved.into_iter().map(vertex)
    }
}

fn member_evidence(member: &Member, part: &Part) -> MemberEvidence {
    MemberEvidence {
        instances: member.instances,
        productive: member.productive,
        synchronised: member.synchronised,
        published: part.published,
        fresh: part.fresh,
        once: part.once,
        shared: part.shared,
    }
}

/// The edge from a subscription into the sync vertex.
fn into_sync(part: &Part) -> EdgeFigures {
    EdgeFigures {
        latency_ns: part.latency.clone(),
        waiting_ns: part.latency.clone(),
        published: part.used + part.skipped,
        taken: part.used,
        lost: part.skipped,
        overwritten: part.skipped,
        ..EdgeFigures::default()
    }
}

/// The name of a SCHED_* policy.
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
