//! Turns the results of the trackers into evidence at the end of a pass, with ids instead of
//! indices.

use super::batch_means::BatchMeans;
use super::entities::EntityKind;
use super::flow::{EdgeData, Group, Ids, Joined, Measured, Member, Output, Part as JoinPart};
use super::flow::{Route, Use, Vertex};
use super::ids::NodeId;
use super::parts::Parts;
use super::values::ThreadId;
use super::Synth;
use crate::chains::{PathNode, Terminal, Via};
use crate::index::{NameId, PathId, VertexId};
use crate::mode_rules::{ModeId, PerMode};
use crate::named::{CauseThread, Components};
use onbeat_document::conclude::conclude;
use onbeat_document::dist::Dist;
use onbeat_document::evidence::{
    add_all, add_causes, unite_threads, EdgeKey, EndpointKey, EndsKey, Evidence, Figures,
    HelperKey, MemberEvidence, Note,
};
use onbeat_document::evidence::{PathEvidence, PathKey, SyncEvidence, Together};
use onbeat_document::schema::helper::kind_of;
use onbeat_document::schema::qos;
use onbeat_document::schema::{
    Assumed, Bracket, ByMode, Callback, CallbackFigures, CallbackType, Component, Edge, EdgeFigures,
};
use onbeat_document::schema::{
    EndpointKind, Identity, Model, Run, RunExtremes, RunTypical, ThreadUse, Typical,
};
use std::collections::{BTreeMap, BTreeSet};

const STARVED_ITEMS_MIN: u64 = 10;

impl Synth {
    /// Returns the present id of each callback, by callback number. An id is `None` for a callback
    /// that did not run. Equal ids get ordinals in the order in which the callbacks were created.
    pub fn callback_ids(&self) -> Vec<Option<String>> {
        self.ids().all()
    }

    /// Returns the id of a callback by its number, even if the callback did not run. The id can
    /// change until the events end.
    pub fn provisional_id(&self, callback: u32) -> String {
        self.ids().provisional(VertexId::new(callback as usize))
    }

    /// Declares the events complete and returns the callback ids. A second pass over the same
    /// events uses them as [`SynthOptions::ids`].
    ///
    /// [`SynthOptions::ids`]: super::SynthOptions::ids
    pub fn into_ids(mut self) -> Vec<Option<String>> {
        self.end_of_events();
        self.callback_ids()
    }

    /// Returns the components, in the order of their numbers from [`Synth::component_of`]. Each
    /// component has the node names that are known at the time of the call.
    pub fn components(&self) -> Vec<Component> {
        self.described(self.cx.causes.list())
    }

    /// Returns the components of a list that the caller has kept. Each component has the node names
    /// that are known at the time of the call.
    pub fn components_of(&self, components: &Components) -> Vec<Component> {
        self.described(&components.list)
    }

    fn described(&self, list: &[CauseThread]) -> Vec<Component> {
        let by_pid = nodes_by_pid(self);
        let nodes = |pid| by_pid.get(&pid).cloned().unwrap_or_default();
        let name = |n| self.cx.entities.names.get(n).to_string();
        crate::causes::components(list, nodes, name)
    }

    /// Declares the events complete and returns the model of the run.
    pub fn finish(mut self) -> Model {
        self.end_of_events();
        let evidence = Finish::of(&self).evidence();
        // `conclude` needs about as much memory again.
        drop(self);
        conclude(evidence)
    }

    /// Returns the model of all events. The caller must have called [`Synth::end_of_events`].
    pub fn ended_model(&self) -> Model {
        conclude(Finish::of(self).evidence())
    }

    fn ids(&self) -> Ids<'_> {
        Ids {
            entities: &self.cx.entities,
            vertices: &self.flow.graph.vertices,
        }
    }

    /// Returns the parts of a model that describe this run. If the caller's options do not state
    /// the number of events, the duration or the losses, they are computed from the events.
    fn runs(&self) -> Parts {
        let mut run = self.options.run.clone();
        if run.events == 0 {
            run.events = self.recording.events.iter().map(|e| e.1).sum();
        }
        if run.duration_ns == 0 {
            let recording = &self.recording;
            run.duration_ns = recording.now - recording.first.unwrap_or(recording.now);
        }
        if run.lost.is_empty() {
            for (_, lost) in self.recording.lost.iter() {
                add_all(&mut run.lost, lost);
            }
        }
        Parts::of_run(self, run)
    }
}

fn nodes_by_pid(synth: &Synth) -> BTreeMap<u32, Vec<String>> {
    let mut all: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for v in &synth.flow.graph.vertices {
        for thread in &v.runs.threads {
            all.entry(thread.pid)
                .or_default()
                .insert(synth.ids().node(v));
        }
    }
    let sorted = |(pid, nodes): (u32, BTreeSet<String>)| (pid, nodes.into_iter().collect());
    all.into_iter().map(sorted).collect()
}

struct Finish<'a> {
    synth: &'a Synth,
    parts: Parts,
    ids: Vec<Option<String>>,
    /// For each subscription that may be an input of a synchroniser: the subscriptions of the same
    /// node from whose data the inputs of this subscription were computed.
    after: BTreeMap<VertexId, BTreeSet<VertexId>>,
    nodes_by_pid: BTreeMap<u32, Vec<String>>,
}

impl<'a> Finish<'a> {
    fn of(synth: &'a Synth) -> Self {
        Finish {
            synth,
            parts: synth.runs(),
            ids: synth.callback_ids(),
            after: synth.flow.descents(),
            nodes_by_pid: nodes_by_pid(synth),
        }
    }

    fn evidence(self) -> Evidence {
        let mut evidence = Evidence::default();
        for (v, id) in self.vertices_with_id() {
            self.add_vertex(&mut evidence, v, id);
        }
        for (modes, run) in self.parts.modes() {
            let together = self.together(&modes);
            evidence.together.insert(run.id.clone(), together);
        }
        for e in &self.synth.flow.graph.edges {
            self.add_flow_edge(&mut evidence, e);
        }
        for (&node, group) in &self.synth.flow.groups {
            for output in &group.outputs {
                self.add_sync(&mut evidence, node, group, output);
            }
        }
        let unlisted = self.synth.flow.lineage.paths.unlisted();
        let listed = self.listed(&unlisted);
        for (path, node) in self.synth.flow.lineage.paths.nodes().iter().enumerate() {
            self.add_path(&mut evidence, PathId::new(path), (node, &listed, &unlisted));
        }
        self.add_ends(&mut evidence);
        for (&name, figures) in &self.synth.flow.ways.services.actions.figures {
            evidence
                .actions
                .insert(self.name(name), self.by_mode(figures));
        }
        self.add_endpoints(&mut evidence);
        self.add_helpers(&mut evidence);
        self.add_notes(&mut evidence);
        let runs = self.parts.runs.into_iter();
        evidence.runs = runs.map(|run| (run.id.clone(), run)).collect();
        evidence
    }

    fn by_mode<F: Figures>(&self, figures: &PerMode<F>) -> ByMode<F> {
        let mut all = ByMode::new();
        for (mode, figures) in figures.iter() {
            let of: &mut Box<F> = all.entry(self.parts.of(mode).mode.clone()).or_default();
            of.as_mut().add(figures);
        }
        all
    }

    fn counts(&self, counts: &PerMode<u64>) -> BTreeMap<String, u64> {
        let each = self.by_mode(counts).into_iter();
        each.map(|(mode, count)| (mode, *count)).collect()
    }

    fn vertices_with_id(&self) -> impl Iterator<Item = (&'a Vertex, &str)> {
        let vertices = self.synth.flow.graph.vertices.iter().zip(&self.ids);
        vertices.filter_map(|(v, id)| Some((v, id.as_deref()?)))
    }

    fn id(&self, vertex: VertexId) -> Option<String> {
        self.ids.get(vertex.index()).cloned().flatten()
    }

    fn name(&self, name: NameId) -> String {
        self.synth.cx.entities.names.get(name).to_string()
    }

    fn add_vertex(&self, evidence: &mut Evidence, v: &Vertex, id: &str) {
        evidence.callbacks.insert(id.into(), self.callback(v, id));
        if v.runs.sourced > 0 {
            evidence.sourced.insert(id.into(), v.runs.sourced);
        }
        if v.kind() == CallbackType::Timer && v.looks.period_ns.is_none() {
            evidence.unknown_periods.insert(id.into());
        }
    }

    fn callback(&self, v: &Vertex, id: &str) -> Callback {
        let mut outputs: Vec<String> = v.outputs.iter().map(|&n| self.name(n)).collect();
        outputs.sort();
        let sync = v.kind() == CallbackType::Sync;
        // A sync vertex or a thread is named after its output, not after an input.
        let triggered = !sync && v.kind() != CallbackType::Thread;
        Callback {
            id: id.into(),
            node: self.synth.ids().node(v),
            identity: match self.synth.cx.entities.nodes.is_guessed(v.node()) {
                true => Identity::Guessed,
                false => Identity::Known,
            },
            kind: v.kind(),
            input: match v.looks.name {
                Some(name) if triggered => self.name(name),
                _ => String::new(),
            },
            caller: v.looks.caller.map(|c| self.synth.cx.entities.node_id(c)),
            period_ns: v.looks.period_ns,
            outputs,
            bracket: match v.runs.inferred || sync {
                true => Bracket::Inferred,
                false => Bracket::Exact,
            },
            symbol: v.symbol.map(|s| self.name(s)),
            figures: CallbackFigures::default(),
            per_run: self.extremes(v),
            modes: self.figures(v),
            threads: unite_threads(v.runs.uses.iter().map(|u| self.thread_use(u))),
        }
    }

    /// Returns a callback's figures by mode. A mode in which the callback did not run is listed as
    /// well if the system was in this mode during the recording.
    fn figures(&self, v: &Vertex) -> ByMode<CallbackFigures> {
        let mut all = ByMode::new();
        for (modes, run) in self.parts.modes() {
            let mut figures = CallbackFigures {
                observed_ns: run.duration_ns,
                ..CallbackFigures::default()
            };
            for mode in modes {
                if let Some(measured) = v.runs.measured.get(mode) {
                    figures.add(&measured.figures);
                    let causes = &self.synth.cx.causes;
                    let nodes = |pid| self.nodes_by_pid.get(&pid).cloned().unwrap_or_default();
                    let waits = causes.causes_of(&measured.waits, nodes, |n| self.name(n));
                    add_causes(&mut figures.causes, waits.into_iter());
                }
            }
            all.insert(run.mode.clone(), Box::new(figures));
        }
        all
    }

    fn extremes(&self, v: &Vertex) -> BTreeMap<String, RunExtremes> {
        let mut all = BTreeMap::new();
        for (modes, run) in self.parts.modes() {
            let measured = modes.iter().find_map(|&mode| v.runs.measured.get(mode));
            if let Some(extremes) = measured.and_then(|m| extremes(m, run)) {
                all.insert(run.id.clone(), extremes);
            }
        }
        all
    }

    fn together(&self, modes: &[ModeId]) -> Vec<Together> {
        let mut of_thread: BTreeMap<ThreadId, BTreeSet<String>> = BTreeMap::new();
        for (v, id) in self.vertices_with_id() {
            if !modes.iter().any(|&m| v.runs.measured.get(m).is_some()) {
                continue;
            }
            for &thread in &v.runs.threads {
                of_thread.entry(thread).or_default().insert(id.into());
            }
        }
        Together::of(of_thread.into_values())
    }

    fn thread_use(&self, u: &Use) -> ThreadUse {
        ThreadUse {
            comm: u.profile.comm.map_or_else(String::new, |n| self.name(n)),
            policy: u.profile.policy.map_or("unknown", policy_name).into(),
            priority: u.profile.priority,
            cpus: u.cpus.iter().collect(),
        }
    }

    fn add_flow_edge(&self, evidence: &mut Evidence, e: &EdgeData) {
        if let (Some(from), Some(to)) = (self.id(e.from), self.id(e.to)) {
            let topic = self.name(e.name);
            self.add_edge(evidence, EdgeKey { from, to, topic }, e.route, &e.figures);
        }
    }

    fn add_edge(
        &self,
        evidence: &mut Evidence,
        key: EdgeKey,
        route: Route,
        figures: &PerMode<EdgeFigures>,
    ) {
        let modes = self.by_mode(figures);
        if modes.is_empty() {
            // All items of this edge have been moved to another edge since.
            return;
        }
        let edge = evidence.edges.entry(key).or_insert_with_key(|key| Edge {
            from: key.from.clone(),
            to: key.to.clone(),
            topic: key.topic.clone(),
            assumed: match route {
                Route::Link => Some(Assumed::Stated),
                Route::Waited => Some(Assumed::Waited),
                Route::HandedOver => Some(Assumed::HandedOver),
                Route::Made => Some(Assumed::Made),
                Route::Topic | Route::Intra => None,
            },
            intra_process: false,
            figures: EdgeFigures::default(),
            modes: BTreeMap::new(),
        });
        edge.intra_process |= route == Route::Intra;
        add_all(&mut edge.modes, &modes);
    }

    fn add_sync(&self, evidence: &mut Evidence, node: NodeId, group: &Group, output: &Output) {
        let Some(sync) = self.id(output.vertex) else {
            return;
        };
        // Subscriptions of a guessed node may belong to several nodes. Only their own calls of a
        // synchroniser show that they belong together.
        let nodes = &self.synth.cx.entities.nodes;
        if nodes.settled(node) != node {
            return;
        }
        let guessed = nodes.is_guessed(node);
        if guessed && output.parts.iter().all(|p| p.seen.shared == 0) {
            return;
        }
        let explained = group.explained(output).unwrap_or_default();
        let mut members = BTreeMap::new();
        for (i, (member, part)) in group.members.iter().zip(&output.parts).enumerate() {
            let Some(from) = self.id(member.vertex) else {
                continue;
            };
            if guessed && part.seen.shared == 0 {
                continue;
            }
            let vertex = self.synth.flow.graph.vertex(member.vertex);
            if nodes.settled(vertex.node()) != node {
                // The subscription belongs to another node, which was found later.
                continue;
            }
            let after = self.after.get(&member.vertex).into_iter().flatten();
            let shown = MemberEvidence {
                after: after.filter_map(|&v| self.id(v)).collect(),
                awaited: explained
                    .lacked
                    .get(i)
                    .copied()
                    .unwrap_or(0)
                    .max(part.seen.awaited),
                ..member_evidence(member, part)
            };
            members.insert(from.clone(), shown);
            let input = vertex.looks.name;
            let key = EdgeKey {
                from,
                to: sync.clone(),
                topic: input.map_or_else(String::new, |n| self.name(n)),
            };
            self.add_edge(
                evidence,
                key,
                Route::Topic,
                &part.joined.map(sync_edge_figures),
            );
        }
        if let Some(c) = evidence.callbacks.get_mut(&sync) {
            for (mode, interarrival) in self.by_mode(&output.interarrival) {
                c.modes.entry(mode).or_default().interarrival_ns = *interarrival;
            }
        }
        let shown = SyncEvidence {
            node: self.synth.cx.entities.node_id(node),
            topic: self.name(output.topic),
            outputs: output.outputs,
            foreign: output.foreign,
            nearest: output.joined_nearest,
            chosen: output.chosen,
            approximate: explained.approximate,
            predicted: explained.score.predicted,
            missing: explained.score.missing,
            held: explained.score.held,
            members,
        };
        evidence.syncs.insert(sync, shown);
    }

    /// Returns for each path, by its number, whether the evidence lists it or a path that begins
    /// with it. If all paths were followed, the evidence lists all paths. `unlisted[path]`
    /// is set if the model leaves out the chain of that path.
    fn listed(&self, unlisted: &[bool]) -> Vec<bool> {
        let paths = &self.synth.flow.lineage.paths;
        let nodes = paths.nodes();
        if !paths.is_capped() {
            return vec![true; nodes.len()];
        }
        let mut listed = vec![false; nodes.len()];
        for (i, node) in nodes.iter().enumerate() {
            let ends = node.terminal.is_some() && !unlisted[i];
            let mut at = ends.then(|| PathId::new(i));
            while let Some(path) = at.filter(|p| !listed[p.index()]) {
                listed[path.index()] = true;
                at = paths.node(path).parent.map(|p| p.0);
            }
        }
        listed
    }

    /// Adds a path to the evidence if executions ended, items were lost or lineages were dropped on
    /// it. Lineages that were dropped on an unlisted path count for the path's source.
    fn add_path(
        &self,
        evidence: &mut Evidence,
        path: PathId,
        (node, listed, unlisted): (&PathNode, &[bool], &[bool]),
    ) {
        let paths = &self.synth.flow.lineage.paths;
        if !listed[path.index()] {
            let dropped = self.counts(&node.dropped);
            let source = paths.upwards(path).last().and_then(|n| self.id(n.vertex));
            if let Some(source) = source.filter(|_| !dropped.is_empty()) {
                let key = PathKey {
                    callbacks: vec![source],
                    ..PathKey::default()
                };
                add_all(evidence.dropped.entry(key).or_default(), &dropped);
            }
            return;
        }
        let (mut lost, mut dropped) = (self.counts(&node.lost), self.counts(&node.dropped));
        lost.retain(|_, n| *n > 0);
        dropped.retain(|_, n| *n > 0);
        let terminal = node.terminal.as_ref().filter(|_| !unlisted[path.index()]);
        if lost.is_empty() && dropped.is_empty() && terminal.is_none() {
            return;
        }
        let Some(key) = self.path_key(path) else {
            return;
        };
        if !lost.is_empty() {
            add_all(evidence.lost.entry(key.clone()).or_default(), &lost);
        }
        if !dropped.is_empty() {
            add_all(evidence.dropped.entry(key.clone()).or_default(), &dropped);
        }
        if let Some(terminal) = terminal {
            let path = evidence.paths.entry(key).or_default();
            self.add_terminal(path, terminal);
        }
    }

    fn add_ends(&self, evidence: &mut Evidence) {
        let lineage = &self.synth.flow.lineage;
        let outputs = self.synth.flow.groups.values().flat_map(|g| &g.outputs);
        // Data that passed junctions early counts only if the junctions were read correctly then.
        let early = !outputs.into_iter().any(|o| o.reread);
        for (&(from, to, output), pair) in &lineage.ends.pairs {
            let cut = output.is_some_and(|name| self.synth.flow.ends_at(name));
            if lineage.paths.is_extended(to) && !cut {
                continue;
            }
            let (Some(from), Some(to)) = (self.id(from), self.id(to)) else {
                continue;
            };
            let topic = output.map_or_else(String::new, |n| self.name(n));
            let mut modes = self.by_mode(&pair.figures);
            if early {
                add_all(&mut modes, &self.by_mode(&pair.early));
            }
            modes.retain(|_, f| f.latency_ns.count() > 0 || f.age_ns.is_some());
            if !modes.is_empty() {
                evidence.ends.insert(EndsKey { from, to, topic }, modes);
            }
        }
        if lineage.ends.refused > 0 {
            evidence.note(Note::PairsCapped, lineage.ends.refused);
        }
    }

    fn path_key(&self, path: PathId) -> Option<PathKey> {
        let mut key = PathKey::default();
        for node in self.synth.flow.lineage.paths.upwards(path) {
            key.callbacks.push(self.id(node.vertex)?);
            let Some((_, via)) = node.parent else {
                continue;
            };
            key.topics.push(self.name(via.name()));
            if matches!(via, Via::Own(_)) {
                key.own.push(node.depth as usize);
            }
        }
        key.callbacks.reverse();
        key.topics.reverse();
        key.own.reverse();
        Some(key)
    }

    fn add_terminal(&self, path: &mut PathEvidence, terminal: &Terminal) {
        for &(output, n) in &terminal.outputs {
            let name = output.map_or_else(String::new, |n| self.name(n));
            path.outputs.entry(name).or_default().add(&n);
        }
        for (mode, figures) in terminal.figures.iter() {
            let run = self.parts.of(mode);
            if figures.latency_ns.count() > 0 {
                let latency = path.per_run.entry(run.id.clone()).or_default();
                latency.merge(&figures.latency_ns);
            }
            let of = path.modes.entry(run.mode.clone()).or_default();
            of.as_mut().add(figures);
        }
    }

    fn add_endpoints(&self, evidence: &mut Evidence) {
        let entities = &self.synth.cx.entities;
        for (&(kind, node, topic), qos) in &entities.qos {
            let key = EndpointKey {
                node: entities.node_id(node),
                topic: self.name(topic),
                kind: match kind {
                    EntityKind::Publisher => EndpointKind::Publisher,
                    _ => EndpointKind::Subscription,
                },
            };
            let of = evidence.endpoints.entry(key).or_default();
            qos::add(of, qos.iter().copied());
        }
    }

    fn add_helpers(&self, evidence: &mut Evidence) {
        for (pid, name, of) in self.synth.cx.helpers.all() {
            let Some(nodes) = self.nodes_by_pid.get(&pid) else {
                continue;
            };
            let name = name.map_or_else(String::new, |n| self.name(n));
            let key = HelperKey {
                nodes: nodes.clone(),
                name: kind_of(&name).to_owned(),
            };
            let uses = of.uses.iter().map(|&(policy, priority)| ThreadUse {
                comm: key.name.clone(),
                policy: policy.map_or("unknown", policy_name).into(),
                priority,
                cpus: of.cpus.iter().collect(),
            });
            let uses: Vec<ThreadUse> = uses.collect();
            let all = evidence.helpers.entry(key).or_default();
            all.add(&of.figures, uses);
        }
    }

    fn add_notes(&self, evidence: &mut Evidence) {
        for (note, count) in self.synth.cx.notes.iter() {
            if let Some(note) = note.clone().named(|v| self.id(v), |n| self.name(n)) {
                evidence.note(note, count);
            }
        }
        self.add_untied_links(evidence);
        let modes = &self.synth.modes;
        for name in modes.names.iter().skip(1) {
            if !self.parts.runs.iter().any(|r| r.mode == *name) {
                evidence.note(Note::ModeUnseen(name.clone()), 1);
            }
        }
        if modes.unknown_machines > 0 {
            evidence.note(Note::UnknownMachine, modes.unknown_machines);
        }
        let options = &self.synth.options;
        for (input, taken) in options.inputs.iter().zip(self.synth.flow.input_counts()) {
            match taken {
                0 => evidence.note(Note::NoInput(input.clone()), 1),
                taken => evidence.note(Note::Input(input.clone()), taken),
            }
        }
        for (v, published) in self.starved() {
            let id = self.synth.ids().base(v);
            evidence.note(Note::Starved(id), published);
        }
        for rule in &options.names {
            evidence.note(Note::NameRule(rule.to_string()), 1);
        }
        for (&name, of) in &self.synth.cx.entities.renamed {
            let count = of.from.len() as u64 + of.forgotten;
            evidence.note(Note::Renamed(self.name(name)), count);
        }
        for cut in &options.cuts {
            evidence.note(Note::Cut(cut.to_string()), 1);
        }
        for stated in &options.junctions {
            evidence.note(Note::Junction(stated.to_string()), 1);
        }
        let nodes = &self.synth.cx.entities.nodes;
        for (v, id) in self.vertices_with_id() {
            if v.node_follows_from_outputs() {
                evidence.note(Note::TimerNode(id.to_string()), 1);
            }
            if nodes.is_guessed(v.node()) {
                let note = Note::NodeName(self.synth.ids().node(v));
                evidence.notes.insert(note, 1);
            }
        }
    }

    fn add_untied_links(&self, evidence: &mut Evidence) {
        for (i, link) in self.synth.options.links.iter().enumerate() {
            let tied = |of: fn(&Vertex) -> &Vec<usize>, end: &str| {
                let mut vertices = self.vertices_with_id();
                vertices.any(|(v, id)| of(v).contains(&i) && id == end)
            };
            if !tied(|v| &v.links.from, &link.from) || !tied(|v| &v.links.to, &link.to) {
                evidence.note(Note::Link(link.to_string()), 1);
            }
        }
    }

    /// Returns the subscriptions and services that never ran and took nothing. Each has the number of
    /// items published, or requests sent, for it.
    fn starved(&self) -> impl Iterator<Item = (&'a Vertex, u64)> {
        let vertices = &self.synth.flow.graph.vertices;
        let mut starved: BTreeMap<VertexId, u64> = BTreeMap::new();
        let mut fed = BTreeSet::new();
        for e in &self.synth.flow.graph.edges {
            let kind = vertices[e.to.index()].kind();
            let takes = matches!(kind, CallbackType::Subscription | CallbackType::Service);
            let ran = |v: VertexId| self.ids[v.index()].is_some();
            if takes && e.route == Route::Topic && ran(e.from) && !ran(e.to) {
                let sum =
                    |of: fn(&EdgeFigures) -> u64| e.figures.iter().map(|f| of(f.1)).sum::<u64>();
                *starved.entry(e.to).or_default() += sum(|f| f.published);
                // Code outside of callbacks took items with `take()`.
                fed.extend((sum(|f| f.taken) > 0).then_some(e.to));
            }
        }
        // At the end of a recording, some items are always in flight.
        starved.retain(|v, published| *published >= STARVED_ITEMS_MIN && !fed.contains(v));
        let vertex = |(v, published): (VertexId, u64)| (&vertices[v.index()], published);
        starved.into_iter().map(vertex)
    }
}

fn member_evidence(member: &Member, part: &JoinPart) -> MemberEvidence {
    MemberEvidence {
        instances: member.instances,
        productive: member.productive,
        synchronised: member.synchronised,
        published: part.seen.published,
        fresh: part.seen.fresh,
        once: part.seen.once,
        shared: part.seen.shared,
        alone: part.seen.alone,
        held: part.seen.held,
        awaited: part.seen.awaited,
        followed: part.seen.followed,
        passed_over: part.seen.passed_over,
        after: BTreeSet::new(),
    }
}

fn sync_edge_figures(part: &Joined) -> EdgeFigures {
    EdgeFigures {
        latency_ns: part.latency.clone(),
        waiting_ns: part.latency.clone(),
        published: part.used + part.skipped,
        taken: part.used,
        unselected: part.skipped,
        ..EdgeFigures::default()
    }
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

fn typical(dist: &Dist, batches: &BatchMeans) -> Typical {
    Typical {
        count: dist.count(),
        median_ns: dist.quantile(0.5),
        p99_ns: (dist.count() >= Typical::TAIL).then(|| dist.quantile(0.99)),
        effective: batches.effective(),
    }
}

fn extremes(measured: &Measured, run: &Run) -> Option<RunExtremes> {
    let Measured {
        figures, batches, ..
    } = measured;
    let exec = &figures.exec_ns;
    (exec.count() > 0).then(|| RunExtremes {
        start: run.start,
        count: exec.count(),
        min_ns: exec.min(),
        mean_ns: exec.mean(),
        max_ns: exec.max(),
        typical: Some(RunTypical {
            exec_ns: typical(exec, &batches.exec),
            response_ns: typical(&figures.response_ns, &batches.response),
            interarrival_ns: typical(&figures.interarrival_ns, &batches.interarrival),
        }),
    })
}
