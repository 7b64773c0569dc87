//! Rewrites a model so that it shows only what a policy allows.

use crate::causes;
use crate::collapse::{heads, parts, way, Heads};
use crate::figures;
use crate::names::{Key, Kind, Names};
use crate::policy::Policy;
use crate::proof::{prove, Leak};
use crate::sentences::Speech;
use onbeat_document::schema::{
    Action, Bracket, ByMode, Callback, CallbackFigures, CallbackType, Chain, Edge, Endpoint,
    EndpointKind, Executor, Helper, Identity, Junction, Model, Reading, Run, ThreadUse,
};
use std::collections::{BTreeMap, BTreeSet};

/// The result of redacting a model: the model, and how much is hidden.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone)]
pub struct Redacted {
    pub model: Model,
    /// The number of callbacks that the policy hides.
    pub hidden: usize,
    /// The number of parts, each of which stands for several hidden callbacks.
    pub parts: usize,
    /// The number of parts whose latency has no distribution, because the model was not made with
    /// the same policy.
    pub unmeasured: usize,
    /// The names in the policy that do not occur in the model, for a warning.
    pub unknown: Vec<String>,
}

/// The node name of the callbacks that stand for all callbacks without a connection to visible
/// names.
const REST: &str = "/rest";

/// Hides every name and structure that the policy does not show.
///
/// # Errors
///
/// Returns a [`Leak`] if a word of a hidden name would remain in the redacted model. Words of
/// visible names and of the model format are allowed.
pub fn redact(model: &Model, policy: &Policy, key: &Key) -> Result<Redacted, Leak> {
    let names = Names::new(model, policy, key);
    let heads = heads(model, &names, policy.collapse);
    let rewrite = Rewrite::new(model, &names, heads, policy.collapse);
    let redacted = rewrite.model(policy.unknown(model));
    let value = serde_json::to_value(&redacted.model).unwrap_or_default();
    let all = all_names(model);
    let is_shown = |(kind, name): &&(Kind, &str)| match kind {
        Kind::Node => names.shows_node(name),
        Kind::Topic => names.shows_topic(name),
        Kind::Thread => names.thread(name) == *name,
        Kind::Mode => names.mode(name) == *name,
        Kind::Host => names.host(name) == *name,
        _ => false,
    };
    let shown = all.iter().filter(|n| is_shown(n)).map(|n| n.1);
    let hidden = all.iter().filter(|n| !is_shown(n)).map(|n| n.1);
    prove(&value, hidden, shown)?;
    Ok(redacted)
}

fn all_names(model: &Model) -> BTreeSet<(Kind, &str)> {
    let mut all = BTreeSet::new();
    for c in &model.callbacks {
        all.insert((Kind::Node, c.node.as_str()));
        all.extend(c.caller.iter().map(|n| (Kind::Node, n.as_str())));
        all.insert((Kind::Topic, c.input.as_str()));
        all.extend(c.outputs.iter().map(|t| (Kind::Topic, t.as_str())));
        all.extend(c.symbol.iter().map(|s| (Kind::Symbol, s.as_str())));
        all.extend(c.threads.iter().map(|t| (Kind::Thread, t.comm.as_str())));
        let of_modes = c.modes.values().map(Box::as_ref);
        for figures in [&c.figures].into_iter().chain(of_modes) {
            all.extend(figures.causes.iter().flat_map(causes::names));
        }
    }
    all.extend(model.edges.iter().map(|e| (Kind::Topic, e.topic.as_str())));
    all.extend(model.actions.iter().map(|a| (Kind::Topic, a.name.as_str())));
    for e in &model.endpoints {
        all.insert((Kind::Node, e.node.as_str()));
        all.insert((Kind::Topic, e.topic.as_str()));
    }
    for h in &model.helpers {
        all.extend(h.nodes.iter().map(|n| (Kind::Node, n.as_str())));
        all.insert((Kind::Thread, h.name.as_str()));
    }
    for r in &model.runs {
        all.insert((Kind::Run, r.id.as_str()));
        all.insert((Kind::Host, r.host.as_str()));
        all.insert((Kind::Boot, r.boot.as_str()));
        all.insert((Kind::Mode, r.mode.as_str()));
    }
    all
}

struct Rewrite<'m, 'n> {
    model: &'m Model,
    names: &'n Names<'n>,
    collapse: bool,
    heads: Heads<'m>,
    by_id: BTreeMap<&'m str, &'m Callback>,
    rest: BTreeMap<&'m str, String>,
    ids: BTreeMap<&'m str, String>,
    chains: Vec<usize>,
    passed: BTreeSet<&'m str>,
}

impl<'m, 'n> Rewrite<'m, 'n> {
    fn new(model: &'m Model, names: &'n Names<'n>, heads: Heads<'m>, collapse: bool) -> Self {
        let mut new = Rewrite {
            model,
            names,
            collapse,
            heads,
            by_id: model.callbacks.iter().map(|c| (c.id.as_str(), c)).collect(),
            rest: BTreeMap::new(),
            ids: BTreeMap::new(),
            chains: Vec::new(),
            passed: BTreeSet::new(),
        };
        let across = model
            .edges
            .iter()
            .filter(|e| new.head(&e.from) != new.head(&e.to));
        new.passed = across.map(|e| e.topic.as_str()).collect();
        new.chains = new.kept_chains();
        new.rest = new.untouched();
        new.ids = new.new_ids();
        new
    }

    fn head(&self, id: &'m str) -> &'m str {
        self.heads.get(id).copied().unwrap_or(id)
    }

    fn shows(&self, id: &str) -> bool {
        self.by_id.get(id).is_some_and(|c| self.names.shows(c))
    }

    fn id(&self, id: &'m str) -> String {
        let head = self.head(id);
        let found = self.rest.get(head).or_else(|| self.ids.get(head));
        found
            .cloned()
            .unwrap_or_else(|| self.names.hide(Kind::Id, id))
    }

    /// Returns the indices of the chains that stay. If hidden callbacks are collapsed, only chains
    /// with a visible name stay. A part of a chain that the user named (a cut) stays only if it
    /// still begins and ends at a vertex of the redacted model. Chains that would become equal are
    /// left out.
    fn kept_chains(&self) -> Vec<usize> {
        let touches = |c: &Chain| {
            let first = self.by_id.get(c.callbacks[0].as_str());
            c.callbacks.iter().any(|id| self.shows(id))
                || c.topics.iter().any(|t| self.names.shows_topic(t))
                || first.is_some_and(|f| self.names.shows_topic(&f.input))
        };
        // A part that the user has cut must begin and end where its new vertices do.
        let is_whole = |c: &Chain| {
            let ends = c
                .topics
                .last()
                .filter(|_| c.topics.len() == c.callbacks.len());
            let passed = |t: &String| self.names.shows_topic(t) || self.passed.contains(t.as_str());
            !c.cut || (self.head(&c.callbacks[0]) == c.callbacks[0] && ends.is_none_or(passed))
        };
        let chains = self.model.chains.iter().enumerate();
        let kept = chains.filter(|(_, c)| !self.collapse || (touches(c) && is_whole(c)));
        let kept: Vec<usize> = kept.map(|(i, _)| i).collect();
        let way = |i: usize| way(&self.model.chains[i], &self.heads);
        let mut times: BTreeMap<_, usize> = BTreeMap::new();
        kept.iter()
            .for_each(|&i| *times.entry(way(i)).or_default() += 1);
        kept.into_iter().filter(|&i| times[&way(i)] == 1).collect()
    }

    /// Returns a replacement id for each head (a callback that stands for its part) without a
    /// connection to the interface. Heads of one executor that use the same set of CPUs share one
    /// id.
    fn untouched(&self) -> BTreeMap<&'m str, String> {
        if !self.collapse {
            return BTreeMap::new();
        }
        let mut touched: BTreeSet<&str> = BTreeSet::new();
        for c in &self.model.callbacks {
            let topics = [&c.input].into_iter().chain(&c.outputs);
            if self.names.shows(c) || topics.into_iter().any(|t| self.names.shows_topic(t)) {
                touched.insert(self.head(&c.id));
            }
        }
        for &i in &self.chains {
            let callbacks = self.model.chains[i].callbacks.iter();
            touched.extend(callbacks.map(|id| self.head(id)));
        }
        for e in &self.model.edges {
            if self.shows(&e.from) || self.shows(&e.to) {
                touched.extend([self.head(&e.from), self.head(&e.to)]);
            }
        }
        let executor = |id: &str| {
            let mut executors = self.model.executors.iter();
            executors.position(|e| e.callbacks.iter().any(|c| c == id))
        };
        let mut groups: BTreeMap<(Option<usize>, BTreeSet<u16>), Vec<&'m str>> = BTreeMap::new();
        for c in &self.model.callbacks {
            let head = self.head(&c.id);
            if !touched.contains(head) && head == c.id {
                let cpus = c.threads.iter().flat_map(|t| t.cpus.clone()).collect();
                groups.entry((executor(head), cpus)).or_default().push(head);
            }
        }
        let mut rest = BTreeMap::new();
        for heads in groups.into_values() {
            let id = format!("{REST}:thread({})", self.names.hide(Kind::Id, heads[0]));
            rest.extend(heads.into_iter().map(|head| (head, id.clone())));
        }
        rest
    }

    /// Returns the new id of each head, the callback that stands for a part. If two ids become
    /// equal, which happens only in damaged models, one of them gets a number at its end (`#2`).
    fn new_ids(&self) -> BTreeMap<&'m str, String> {
        let mut taken = BTreeSet::new();
        let mut ids = BTreeMap::new();
        for (&id, c) in &self.by_id {
            if self.head(id) != id || self.rest.contains_key(id) {
                continue;
            }
            let base = self.names.id(c);
            let mut new = base.clone();
            let mut n = 2;
            while !taken.insert(new.clone()) {
                new = format!("{base}#{n}");
                n += 1;
            }
            ids.insert(id, new);
        }
        ids
    }

    fn model(&self, unknown: Vec<String>) -> Redacted {
        let (chains, unmeasured) = self.all_chains();
        let callbacks = self.callbacks(&chains);
        let parts = self.stand_for().values().filter(|m| m.len() > 1).count();
        let mut model = Model {
            schema: self.model.schema.clone(),
            runs: self.runs(),
            callbacks,
            edges: self.edges(),
            junctions: self.junctions(),
            chains,
            actions: self.actions(),
            executors: self.executors(),
            endpoints: self.endpoints(),
            end_to_end: Vec::new(),
            helpers: self.helpers(),
            assumptions: Vec::new(),
            coverage: Vec::new(),
            evidence: serde_json::json!({ onbeat_document::merge::REDACTED: true }),
        };
        let hidden = self
            .model
            .callbacks
            .iter()
            .filter(|c| !self.names.shows(c))
            .count();
        let mut redacted = Redacted {
            model: model.clone(),
            hidden,
            parts,
            unmeasured,
            unknown,
        };
        self.say(&mut model, &redacted);
        redacted.model = model;
        redacted
    }

    fn say(&self, model: &mut Model, redacted: &Redacted) {
        let mut speech = Speech::new();
        for c in &self.model.callbacks {
            speech.names.insert(&c.node, self.names.node(&c.node));
            for topic in [&c.input].into_iter().chain(&c.outputs) {
                speech.names.insert(topic, self.names.topic(topic));
            }
        }
        for c in &self.model.callbacks {
            speech.names.insert(&c.id, self.id(&c.id));
        }
        for run in &self.model.runs {
            speech
                .names
                .insert(&run.id, self.names.hide(Kind::Run, &run.id));
        }
        speech.names.remove("");
        let (assumptions, assumed) = speech.of(&self.model.assumptions);
        let (mut coverage, limits) = speech.of(&self.model.coverage);
        coverage.insert(format!(
            "The model is redacted: {} of {} callbacks are hidden, and {} parts stand for several of them each. Each such part has the summed load of its callbacks, the starts of its first callback, and every CPU on which one of them ran.",
            redacted.hidden, self.model.callbacks.len(), redacted.parts
        ));
        if redacted.unmeasured > 0 {
            coverage.insert(format!(
                "{} paths through hidden parts have only a mean latency and no distribution, because the model was made without --policy. Each mean latency is computed as a share of the mean latency of a chain.",
                redacted.unmeasured
            ));
        }
        if assumed + limits > 0 {
            coverage.insert(format!(
                "{assumed} sentences about assumptions and {limits} sentences about limits of the recordings are left out, because they contain words that may be hidden names."
            ));
        }
        let left_out = self.model.chains.len() - self.chains.len();
        if left_out > 0 {
            coverage.insert(format!(
                "{left_out} chains within hidden parts are left out."
            ));
        }
        if !self.rest.is_empty() {
            coverage.insert(format!(
                "{} hidden callbacks touch nothing of the interface: {REST} stands for them, with their load.",
                self.model.callbacks.iter().filter(|c| self.rest.contains_key(self.head(&c.id))).count()
            ));
        }
        model.assumptions = assumptions.into_iter().collect();
        model.coverage = coverage.into_iter().collect();
    }

    /// Returns the threads without callbacks whose processes have only visible nodes. Threads of
    /// other processes could reveal hidden names.
    fn helpers(&self) -> Vec<Helper> {
        let shown = |h: &&Helper| h.nodes.iter().all(|n| self.names.shows_node(n));
        let renamed = |h: &Helper| Helper {
            nodes: h.nodes.iter().map(|n| self.names.node(n)).collect(),
            name: self.names.thread(&h.name),
            figures: h.figures.clone(),
            threads: h
                .threads
                .iter()
                .map(|t| ThreadUse {
                    comm: self.names.thread(&t.comm),
                    ..t.clone()
                })
                .collect(),
        };
        self.model
            .helpers
            .iter()
            .filter(shown)
            .map(renamed)
            .collect()
    }

    /// Returns the publishers and subscriptions of the redacted model. If parts are collapsed, only
    /// publishers and subscriptions on visible topics stay. They become endpoints of the parts
    /// whose callbacks use them.
    fn endpoints(&self) -> Vec<Endpoint> {
        let stays = |e: &&Endpoint| !self.collapse || self.names.shows_topic(&e.topic);
        let renamed = |e: &Endpoint| {
            let (topic, e) = (self.names.topic(&e.topic), e.clone());
            let nodes = self.nodes_of(&e).into_iter();
            let of = nodes.map(move |node| Endpoint {
                node,
                topic: topic.clone(),
                ..e.clone()
            });
            of.collect::<Vec<_>>()
        };
        let all = self.model.endpoints.iter().filter(stays).flat_map(renamed);
        let all: BTreeSet<Endpoint> = all.collect();
        all.into_iter().collect()
    }

    /// Returns the nodes to which an endpoint belongs. If parts are collapsed, a hidden node's
    /// endpoint belongs to the parts whose callbacks use the endpoint. A separate name would reveal
    /// how many nodes a part has.
    fn nodes_of(&self, e: &Endpoint) -> BTreeSet<String> {
        if !self.collapse || self.names.shows_node(&e.node) {
            return [self.names.node(&e.node)].into();
        }
        let uses = |c: &&Callback| match e.kind {
            EndpointKind::Publisher => c.outputs.contains(&e.topic),
            EndpointKind::Subscription => c.input == e.topic,
        };
        let of_node = self.model.callbacks.iter().filter(|c| c.node == e.node);
        let heads = of_node.filter(uses).map(|c| self.head(&c.id));
        let kept = heads.filter(|head| !self.rest.contains_key(head));
        let kept = kept.filter_map(|head| self.by_id.get(head));
        kept.map(|c| self.names.node(&c.node)).collect()
    }

    fn runs(&self) -> Vec<Run> {
        let run = |r: &Run| Run {
            id: self.names.hide(Kind::Run, &r.id),
            host: self.names.host(&r.host),
            boot: self.names.hide(Kind::Boot, &r.boot),
            mode: self.names.mode(&r.mode),
            ..r.clone()
        };
        let mut runs: Vec<Run> = self.model.runs.iter().map(run).collect();
        for r in &mut runs {
            // Only kinds of events that onbeat defines stay.
            r.lost
                .retain(|kind, _| onbeat_trace::table::by_name(kind).is_some());
        }
        runs.sort_by(|a, b| a.id.cmp(&b.id));
        runs
    }

    fn by_mode<F: Clone>(&self, modes: &BTreeMap<String, F>) -> BTreeMap<String, F> {
        modes
            .iter()
            .map(|(m, f)| (self.names.mode(m), f.clone()))
            .collect()
    }

    fn callback_modes(&self, modes: &ByMode<CallbackFigures>) -> ByMode<CallbackFigures> {
        let renamed = |f: &CallbackFigures| Box::new(causes::renamed(f, self.names));
        let each = modes.iter();
        each.map(|(m, f)| (self.names.mode(m), renamed(f)))
            .collect()
    }

    fn by_run<F: Clone>(&self, runs: &BTreeMap<String, F>) -> BTreeMap<String, F> {
        let run = |id: &String| self.names.hide(Kind::Run, id);
        runs.iter().map(|(id, f)| (run(id), f.clone())).collect()
    }

    fn stand_for(&self) -> BTreeMap<String, Vec<&'m Callback>> {
        let mut all: BTreeMap<String, Vec<&'m Callback>> = BTreeMap::new();
        for c in &self.model.callbacks {
            let members = all.entry(self.id(&c.id)).or_default();
            match self.head(&c.id) == c.id {
                true => members.insert(0, c),
                false => members.push(c),
            }
        }
        all
    }

    fn callbacks(&self, chains: &[Chain]) -> Vec<Callback> {
        let ends: BTreeSet<&String> = chains.iter().filter_map(|c| c.topics.last()).collect();
        let all = self.stand_for().into_iter().map(|(id, members)| {
            let mut callback = match members[..] {
                [one] => self.renamed(one, id.clone()),
                _ => self.part(&members, id.clone()),
            };
            let is_rest = self.rest.values().any(|r| *r == id);
            if is_rest {
                callback = Callback {
                    node: REST.into(),
                    kind: CallbackType::Thread,
                    input: String::new(),
                    caller: None,
                    period_ns: None,
                    outputs: Vec::new(),
                    figures: figures::of_part(&Default::default(), [&callback.figures].into_iter()),
                    modes: figures::of_modes(&BTreeMap::new(), &[&callback.modes]),
                    per_run: BTreeMap::new(),
                    ..callback
                };
            }
            callback.outputs = self.outputs(&members, &ends);
            callback
        });
        all.collect()
    }

    fn renamed(&self, c: &Callback, id: String) -> Callback {
        let shown = self.names.shows(c);
        let symbol = c.symbol.as_ref().filter(|_| shown || !self.collapse);
        Callback {
            id,
            node: self.names.node(&c.node),
            input: self.names.topic(&c.input),
            caller: c.caller.as_ref().map(|n| self.names.node(n)),
            outputs: Vec::new(),
            symbol: symbol.map(|s| self.names.hide(Kind::Symbol, s)),
            figures: causes::renamed(&c.figures, self.names),
            modes: self.callback_modes(&c.modes),
            threads: self.threads(&c.threads),
            per_run: self.by_run(&c.per_run),
            ..c.clone()
        }
    }

    fn threads(&self, threads: &[ThreadUse]) -> Vec<ThreadUse> {
        let mut all: BTreeMap<(String, String, u8), BTreeSet<u16>> = BTreeMap::new();
        for t in threads {
            let key = (self.names.thread(&t.comm), t.policy.clone(), t.priority);
            all.entry(key).or_default().extend(&t.cpus);
        }
        let new = |((comm, policy, priority), cpus): (_, BTreeSet<u16>)| ThreadUse {
            comm,
            policy,
            priority,
            cpus: cpus.into_iter().collect(),
        };
        all.into_iter().map(new).collect()
    }

    fn part(&self, members: &[&Callback], id: String) -> Callback {
        let head = members[0];
        let threads: Vec<ThreadUse> = members.iter().flat_map(|m| m.threads.clone()).collect();
        let modes: Vec<_> = members.iter().map(|m| &m.modes).collect();
        let exact = members.iter().all(|m| m.bracket == Bracket::Exact);
        let known = members.iter().all(|m| m.identity == Identity::Known);
        Callback {
            figures: figures::of_part(&head.figures, members.iter().map(|m| &m.figures)),
            modes: self.callback_modes(&figures::of_modes(&head.modes, &modes)),
            threads: self.threads(&threads),
            bracket: if exact {
                Bracket::Exact
            } else {
                Bracket::Inferred
            },
            identity: if known {
                Identity::Known
            } else {
                Identity::Guessed
            },
            symbol: None,
            per_run: BTreeMap::new(),
            ..self.renamed(head, id)
        }
    }

    fn outputs(&self, members: &[&Callback], ends: &BTreeSet<&String>) -> Vec<String> {
        let outputs = members.iter().flat_map(|m| &m.outputs);
        let stays = |t: &&String| {
            !self.collapse || self.names.shows_topic(t) || self.passed.contains(t.as_str())
        };
        let all: Vec<(&String, String)> = outputs.map(|t| (t, self.names.topic(t))).collect();
        let kept = all
            .into_iter()
            .filter(|(old, new)| stays(old) || ends.contains(new));
        let is_rest = self.rest.contains_key(self.head(&members[0].id));
        let kept: BTreeSet<String> = kept.filter(|_| !is_rest).map(|(_, new)| new).collect();
        kept.into_iter().collect()
    }

    fn edges(&self) -> Vec<Edge> {
        let mut all: BTreeMap<(String, String, String), Edge> = BTreeMap::new();
        for e in &self.model.edges {
            let (from, to) = (self.head(&e.from), self.head(&e.to));
            // A callback may take what it publishes itself. Topics between callbacks of one part
            // are inside it.
            let within = from == to && (e.from != e.to || self.stands_for_several(from));
            let inner = within && !self.names.shows_topic(&e.topic);
            if inner || self.rest.contains_key(from) || self.rest.contains_key(to) {
                continue;
            }
            let key = (self.id(&e.from), self.id(&e.to), self.names.topic(&e.topic));
            let (from, to, topic) = key.clone();
            let modes = self.by_mode(&e.modes);
            let new = Edge {
                from,
                to,
                topic,
                modes,
                ..e.clone()
            };
            match all.get_mut(&key) {
                Some(edge) => add_edge(edge, &new),
                None => drop(all.insert(key, new)),
            }
        }
        all.into_values().collect()
    }

    fn stands_for_several(&self, head: &str) -> bool {
        self.heads.values().filter(|h| **h == head).count() > 1
    }

    fn set(&self, ids: &'m [String]) -> Vec<String> {
        let ids: BTreeSet<String> = ids.iter().map(|id| self.id(id)).collect();
        ids.into_iter().collect()
    }

    fn junctions(&self) -> Vec<Junction> {
        const OURS: [&str; 3] = ["message_filters", "data_flow", "several_publishers"];
        let junctions = self.model.junctions.iter().map(|j| {
            let reading = |r: &'m Reading| Reading {
                kind: r.kind,
                inputs: self.set(&r.inputs),
            };
            Junction {
                callback: self.id(&j.callback),
                inputs: self.set(&j.inputs),
                criterion: OURS
                    .iter()
                    .find(|o| **o == j.criterion)
                    .unwrap_or(&"other")
                    .to_string(),
                readings: j.readings.iter().map(reading).collect(),
                settle: String::new(),
                ..j.clone()
            }
        });
        let is_rest = |j: &Junction| self.rest.values().any(|r| *r == j.callback);
        let mut all: Vec<Junction> = junctions
            .filter(|j| j.inputs.len() > 1 && !is_rest(j))
            .collect();
        all.sort_by(|a, b| (&a.callback, a.kind).cmp(&(&b.callback, b.kind)));
        all
    }

    fn actions(&self) -> Vec<Action> {
        let actions = self.model.actions.iter();
        let kept = actions.filter(|a| !self.collapse || self.names.shows_topic(&a.name));
        let nodes = |nodes: &[String]| {
            let nodes: BTreeSet<String> = nodes.iter().map(|n| self.names.node(n)).collect();
            nodes.into_iter().collect()
        };
        let mut all: Vec<Action> = kept
            .map(|a| Action {
                name: self.names.topic(&a.name),
                servers: nodes(&a.servers),
                clients: nodes(&a.clients),
                callbacks: self.set(&a.callbacks),
                figures: a.figures.clone(),
                modes: self.by_mode(&a.modes),
            })
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn executors(&self) -> Vec<Executor> {
        let mut all: Vec<(BTreeSet<String>, usize)> = Vec::new();
        for e in &self.model.executors {
            let mut callbacks: BTreeSet<String> = self.set(&e.callbacks).into_iter().collect();
            let mut threads = e.threads;
            while let Some(i) = all.iter().position(|a| !a.0.is_disjoint(&callbacks)) {
                let (others, more) = all.swap_remove(i);
                callbacks.extend(others);
                threads += more;
            }
            all.push((callbacks, threads));
        }
        all.sort();
        let new = |(callbacks, threads): (BTreeSet<String>, usize)| Executor {
            callbacks: callbacks.into_iter().collect(),
            threads,
        };
        all.into_iter().map(new).collect()
    }

    /// Returns the chains that stay in the redacted model. Also returns the number of paths through
    /// a part whose latency has no distribution, but only a mean.
    fn all_chains(&self) -> (Vec<Chain>, usize) {
        let of_old = |&i: &usize| &self.model.chains[i];
        let (mut ways, mut measured) = (BTreeSet::new(), BTreeSet::new());
        for chain in self.chains.iter().map(of_old) {
            for (first, last) in parts(chain, &self.heads) {
                let way = (self.head(&chain.callbacks[first]), chain.topics.get(last));
                // A part alone, or after the callback that feeds a synchroniser.
                let alone = chain.cut && first <= 1 && last == chain.callbacks.len() - 1;
                match alone {
                    true => measured.insert(way),
                    false => ways.insert(way),
                };
            }
        }
        let mut chains: Vec<Chain> = self
            .chains
            .iter()
            .map(of_old)
            .map(|c| self.chain(c))
            .collect();
        chains.sort_by(|a, b| a.id.cmp(&b.id));
        (chains, ways.difference(&measured).count())
    }

    fn chain(&self, chain: &'m Chain) -> Chain {
        let (callbacks, topics, ..) = way(chain, &self.heads);
        let parts = parts(chain, &self.heads);
        let callbacks: Vec<String> = callbacks.into_iter().map(|id| self.id(id)).collect();
        let topics: Vec<String> = topics.into_iter().map(|t| self.names.topic(t)).collect();
        let mut shares = Vec::new();
        for (i, id) in chain.callbacks.iter().enumerate() {
            shares.push(self.id(id));
            shares.extend(chain.topics.get(i).map(|t| self.names.topic(t)));
        }
        let of = |figures| figures::of_chain(figures, &parts, &shares);
        let modes = chain
            .modes
            .iter()
            .map(|(m, f)| (self.names.mode(m), Box::new(of(f))));
        let is_same = callbacks == chain.callbacks && topics == chain.topics;
        let text = [&callbacks[..], &topics[..], &[chain.cut.to_string()]]
            .concat()
            .join("\0");
        Chain {
            id: match is_same {
                true => chain.id.clone(),
                false => self.names.hide(Kind::Chain, &text),
            },
            figures: of(&chain.figures),
            modes: modes.collect(),
            per_run: self.by_run(&chain.per_run),
            callbacks,
            topics,
            ..chain.clone()
        }
    }
}

fn add_edge(all: &mut Edge, more: &Edge) {
    // If one of the edges was observed, the sum is not an assumption.
    all.assumed = all.assumed.zip(more.assumed).map(|(a, b)| a.max(b));
    all.intra_process |= more.intra_process;
    figures::add_edge(&mut all.figures, &more.figures);
    for (mode, figures) in &more.modes {
        figures::add_edge(all.modes.entry(mode.clone()).or_default(), figures);
    }
}
