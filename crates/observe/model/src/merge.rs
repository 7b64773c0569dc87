//! Models of single runs to a model of many: associative, commutative, and the same as modelling
//! all runs at once.
//!
//! What runs show (`Raw`) is kept apart from what is concluded from all of them together: which
//! subscriptions wait for one another, which paths are whole chains, which periods are steady.
//! Merging adds up what was shown and draws the conclusions anew, so their order does not matter.
//! What the visible model leaves out but a later conclusion may need stands in its `evidence`.

use crate::schema::{
    Bracket, Callback, CallbackFigures, CallbackType, Chain, ChainFigures, Edge, EdgeFigures,
    Junction, JunctionKind, Model, Run, Share, ThreadUse, SCHEMA,
};
use crate::synth::MEMORY;
use crate::Dist;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Why models cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelMergeError {
    /// No model at all.
    #[error("there is no model to merge: name at least one")]
    Empty,
    /// A run is in two of them: its executions would count twice.
    #[error("run '{0}' is in more than one of the models: merge each run once")]
    SameRun(String),
    /// The part of the model that merging needs is damaged.
    #[error(
        "the model's field 'evidence' cannot be used ({0}): make the model again from its trace"
    )]
    Evidence(String),
    /// The model's fields contradict one another.
    #[error("the model contradicts itself ({0}): make it again from its trace")]
    Inconsistent(String),
    /// No run of that mode.
    #[error("no run of the model is of mode '{mode}'; it has {known}")]
    NoSuchMode {
        /// What was asked for.
        mode: String,
        /// What there is.
        known: String,
    },
}

/// Evidence for subscriptions that wait for one another, per node and topic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SyncEvidence {
    pub(crate) node: String,
    pub(crate) topic: String,
    pub(crate) outputs: u64,
    /// Publications by others than the node's subscriptions.
    pub(crate) foreign: u64,
    pub(crate) members: BTreeMap<String, MemberEvidence>,
}

/// What one subscription has to do with the topic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemberEvidence {
    pub(crate) instances: u64,
    pub(crate) productive: u64,
    pub(crate) synchronised: u64,
    pub(crate) published: u64,
    pub(crate) fresh: u64,
    pub(crate) once: u64,
    pub(crate) shared: u64,
}

/// A path's figures in one mode.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PathFigures {
    pub(crate) latency_ns: Dist,
    /// Per callback and edge, alternating.
    #[serde(with = "decimal")]
    pub(crate) sums: Vec<u128>,
}

/// A path that executions ended on.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RawPath {
    /// How often each topic was the last output ("": nothing).
    pub(crate) outputs: BTreeMap<String, u64>,
    pub(crate) modes: BTreeMap<String, PathFigures>,
}

/// Callbacks and the topics between them.
pub(crate) type PathKey = (Vec<String>, Vec<String>);

/// Everything that runs have shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Raw {
    pub(crate) runs: BTreeMap<String, Run>,
    /// Figures stand in `modes` only.
    pub(crate) callbacks: BTreeMap<String, Callback>,
    pub(crate) edges: BTreeMap<(String, String, String), Edge>,
    pub(crate) paths: BTreeMap<PathKey, RawPath>,
    /// Items lost on the way to a path's last callback, by mode.
    pub(crate) lost: BTreeMap<PathKey, BTreeMap<String, u64>>,
    /// By id of the sync vertex.
    pub(crate) syncs: BTreeMap<String, SyncEvidence>,
    /// Executions on nothing that a callback published, by callback.
    pub(crate) sourced: BTreeMap<String, u64>,
    /// Timers whose period was not seen.
    pub(crate) unknown_periods: BTreeSet<String>,
    /// What to say of the recordings: kind and subject, and how often.
    pub(crate) notes: BTreeMap<(String, String), u64>,
}

/// Sums as decimal text: JSON numbers lose digits above 2^53.
mod decimal {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(v: &[u128], s: S) -> Result<S::Ok, S::Error> {
        v.iter()
            .map(u128::to_string)
            .collect::<Vec<_>>()
            .serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u128>, D::Error> {
        Vec::<String>::deserialize(d)?
            .iter()
            .map(|t| t.parse().map_err(serde::de::Error::custom))
            .collect()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct HiddenPath {
    callbacks: Vec<String>,
    topics: Vec<String>,
    outputs: BTreeMap<String, u64>,
    modes: BTreeMap<String, PathFigures>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct LostOnPath {
    callbacks: Vec<String>,
    topics: Vec<String>,
    modes: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct CountedNote {
    kind: String,
    subject: String,
    count: u64,
}

/// What stands in a model's `evidence`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Evidence {
    callbacks: Vec<Callback>,
    edges: Vec<Edge>,
    paths: Vec<HiddenPath>,
    /// Last outputs of the visible chains, by their id.
    outputs: BTreeMap<String, BTreeMap<String, u64>>,
    lost: Vec<LostOnPath>,
    syncs: BTreeMap<String, SyncEvidence>,
    sourced: BTreeMap<String, u64>,
    unknown_periods: BTreeSet<String>,
    notes: Vec<CountedNote>,
}

/// Figures that add up.
pub(crate) trait Figures: Clone + Default {
    fn add(&mut self, other: &Self);
}

impl Figures for CallbackFigures {
    fn add(&mut self, o: &Self) {
        self.exec_ns.merge(&o.exec_ns);
        self.response_ns.merge(&o.response_ns);
        self.interarrival_ns.merge(&o.interarrival_ns);
        self.release_jitter_ns.merge(&o.release_jitter_ns);
        self.preempted_ns.merge(&o.preempted_ns);
        self.blocked_ns.merge(&o.blocked_ns);
        self.preemptions = self.preemptions.saturating_add(o.preemptions);
        self.blockings = self.blockings.saturating_add(o.blockings);
        self.observed_ns = self.observed_ns.saturating_add(o.observed_ns);
        self.load = if self.observed_ns == 0 {
            0.0
        } else {
            self.exec_ns.sum() as f64 / self.observed_ns as f64
        };
    }
}

impl Figures for EdgeFigures {
    fn add(&mut self, o: &Self) {
        self.latency_ns.merge(&o.latency_ns);
        self.transport_ns.merge(&o.transport_ns);
        self.waiting_ns.merge(&o.waiting_ns);
        self.published = self.published.saturating_add(o.published);
        self.taken = self.taken.saturating_add(o.taken);
        self.lost = self.lost.saturating_add(o.lost);
        self.overwritten = self.overwritten.saturating_add(o.overwritten);
    }
}

impl Figures for PathFigures {
    fn add(&mut self, o: &Self) {
        self.latency_ns.merge(&o.latency_ns);
        if self.sums.len() < o.sums.len() {
            self.sums.resize(o.sums.len(), 0);
        }
        for (a, b) in self.sums.iter_mut().zip(&o.sums) {
            *a = a.saturating_add(*b);
        }
    }
}

impl Figures for u64 {
    fn add(&mut self, o: &Self) {
        *self = self.saturating_add(*o);
    }
}

fn add_all<K: Ord + Clone, F: Figures>(to: &mut BTreeMap<K, F>, from: &BTreeMap<K, F>) {
    for (key, figures) in from {
        to.entry(key.clone()).or_default().add(figures);
    }
}

fn total<F: Figures>(modes: &BTreeMap<String, F>) -> F {
    let mut all = F::default();
    for figures in modes.values() {
        all.add(figures);
    }
    all
}

/// Merges models. The result does not depend on their order.
pub fn merge(models: Vec<Model>) -> Result<Model, ModelMergeError> {
    let mut all = Raw::default();
    let mut models = models.into_iter();
    let first = models.next().ok_or(ModelMergeError::Empty)?;
    all.add(Raw::of(first)?)?;
    for model in models {
        all.add(Raw::of(model)?)?;
    }
    Ok(all.conclude())
}

/// The part of a model that stands on the runs of one mode.
pub fn filter_mode(model: Model, mode: &str) -> Result<Model, ModelMergeError> {
    let mut raw = Raw::of(model)?;
    let known: BTreeSet<&str> = raw.runs.values().map(|r| r.mode.as_str()).collect();
    if !known.contains(mode) {
        return Err(ModelMergeError::NoSuchMode {
            mode: mode.into(),
            known: known.into_iter().collect::<Vec<_>>().join(", "),
        });
    }
    raw.runs.retain(|_, r| r.mode == mode);
    let runs = &raw.runs;
    raw.callbacks.retain(|_, c| {
        c.modes.retain(|m, _| m == mode);
        c.per_run.retain(|id, _| runs.contains_key(id));
        !c.modes.is_empty()
    });
    raw.edges.retain(|_, e| {
        e.modes.retain(|m, _| m == mode);
        !e.modes.is_empty()
    });
    raw.paths.retain(|_, p| {
        p.modes.retain(|m, _| m == mode);
        !p.modes.is_empty()
    });
    raw.lost.retain(|_, modes| {
        modes.retain(|m, _| m == mode);
        !modes.is_empty()
    });
    Ok(raw.conclude())
}

/// The same model with all its runs taken as of one mode.
pub fn set_mode(model: Model, mode: &str) -> Result<Model, ModelMergeError> {
    fn unite<F: Figures>(modes: &mut BTreeMap<String, F>, mode: &str) {
        *modes = BTreeMap::from([(mode.to_string(), total(modes))]);
    }
    let mut raw = Raw::of(model)?;
    raw.runs.values_mut().for_each(|r| r.mode = mode.into());
    raw.callbacks
        .values_mut()
        .for_each(|c| unite(&mut c.modes, mode));
    raw.edges
        .values_mut()
        .for_each(|e| unite(&mut e.modes, mode));
    raw.paths
        .values_mut()
        .for_each(|p| unite(&mut p.modes, mode));
    raw.lost.values_mut().for_each(|l| unite(l, mode));
    Ok(raw.conclude())
}

/// Which subscriptions wait for one another.
struct Group {
    /// Id of the sync vertex.
    id: String,
    topic: String,
    members: BTreeSet<String>,
    /// Members that publish the topic.
    publishers: BTreeSet<String>,
    criterion: &'static str,
    confidence: f64,
    /// It might as well be sampling.
    ambiguous: bool,
}

/// Notes that are whole sentences, of coverage and of assumptions.
const SAID: &str = "said";
const ASSUMED: &str = "assumed";

/// Fewest outputs that the data flow criterion concludes from.
const MIN_OUTPUTS: u64 = 5;

fn decide(id: &str, e: &SyncEvidence) -> Option<Group> {
    if e.outputs == 0 {
        return None;
    }
    let share = |n: u64| (n as f64 / e.outputs as f64).min(1.0);
    let publishers: BTreeSet<String> = e
        .members
        .iter()
        .filter(|m| m.1.published > 0)
        .map(|m| m.0.clone())
        .collect();
    let confidence = |members: &BTreeSet<String>| {
        let missing: f64 = members
            .iter()
            .map(|m| 1.0 - share(e.members[m].fresh))
            .sum();
        (1.0 - missing).max(0.0)
    };
    let group = |members: BTreeSet<String>, criterion, discount: f64| {
        let confidence = confidence(&members) * discount;
        Group {
            id: id.into(),
            topic: e.topic.clone(),
            publishers: publishers.clone(),
            members,
            criterion,
            confidence,
            ambiguous: discount < 1.0,
        }
    };

    // A synchroniser was seen at work.
    let fed: BTreeSet<String> = e
        .members
        .iter()
        .filter(|(_, m)| m.synchronised > 0 && 2 * m.synchronised >= m.instances)
        .map(|m| m.0.clone())
        .collect();
    if publishers.iter().any(|p| fed.contains(p)) {
        let shared: BTreeSet<String> = fed
            .iter()
            .filter(|m| 2 * e.members[*m].shared >= e.outputs)
            .cloned()
            .collect();
        // The synchroniser may show itself by another address for each input.
        let members = if shared.len() >= 2 { shared } else { fed };
        if members.len() >= 2 && publishers.is_subset(&members) {
            return Some(group(members, "message_filters", 1.0));
        }
    }

    // By the data flow: each output after one new input of each.
    if e.foreign > 0 || e.outputs < MIN_OUTPUTS {
        return None;
    }
    if publishers.iter().any(|p| share(e.members[p].fresh) < 0.9) {
        return None;
    }
    // One input per output: always exactly one in between (an irregular one is allowed for the
    // start), or as many inputs as outputs, and never an output before its input.
    let few = (e.outputs / 20).max(1);
    let strict = |m: &MemberEvidence| {
        e.outputs - m.once.min(e.outputs) <= few
            || (m.fresh >= e.outputs && m.instances.abs_diff(e.outputs) <= few)
    };
    let silent = |m: &MemberEvidence| m.productive * 10 < m.instances.max(1);
    let mut members = publishers.clone();
    for (name, m) in &e.members {
        if m.published == 0 && strict(m) && silent(m) && share(m.fresh) >= 0.9 {
            members.insert(name.clone());
        }
    }
    let single = publishers.len() == 1;
    if members.len() < 2 || (single && !publishers.iter().all(|p| strict(&e.members[p]))) {
        return None;
    }
    Some(group(members, "data_flow", if single { 0.5 } else { 1.0 }))
}

/// The median inter-arrival time, where it is steady.
fn steady_period(interarrival: &Dist) -> Option<u64> {
    if interarrival.count() < 5 {
        return None;
    }
    let median = interarrival.quantile(0.5);
    let spread =
        interarrival.quantile(0.75) - interarrival.quantile(0.25).min(interarrival.quantile(0.75));
    (median > 0 && spread <= median / 5).then_some(median)
}

/// FNV-1a, for ids that are the same on every machine.
fn chain_id(callbacks: &[String], topics: &[String]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for text in callbacks.iter().chain(topics) {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("chain-{:012x}", hash >> 16)
}

impl Raw {
    /// Was it said that chains begin with this topic?
    fn is_input(&self, topic: &str) -> bool {
        self.notes.contains_key(&("input".into(), topic.into()))
    }

    /// Takes a model apart into what its runs have shown.
    pub(crate) fn of(model: Model) -> Result<Raw, ModelMergeError> {
        let evidence: Evidence = if model.evidence.is_null() {
            Evidence::default()
        } else {
            serde_json::from_value(model.evidence)
                .map_err(|e| ModelMergeError::Evidence(e.to_string()))?
        };
        let modes: BTreeSet<String> = model.runs.iter().map(|r| r.mode.clone()).collect();
        let single = match modes.len() {
            0 => return Err(ModelMergeError::Inconsistent("it has no runs".into())),
            1 => modes.into_iter().next(),
            _ => None,
        };
        // With one mode only, its figures stand as the totals.
        fn restore<F: Figures>(
            modes: &mut BTreeMap<String, F>,
            figures: &F,
            single: &Option<String>,
        ) {
            if let (true, Some(mode)) = (modes.is_empty(), single) {
                modes.insert(mode.clone(), figures.clone());
            }
        }
        let mut raw = Raw::default();
        for run in model.runs {
            if let Some(run) = raw.runs.insert(run.id.clone(), run) {
                return Err(ModelMergeError::SameRun(run.id));
            }
        }
        let derived: BTreeSet<&String> = model
            .junctions
            .iter()
            .filter(|j| j.kind == JunctionKind::And)
            .map(|j| &j.callback)
            .collect();
        for mut c in model.callbacks.into_iter().chain(evidence.callbacks) {
            restore(&mut c.modes, &c.figures, &single);
            c.figures = CallbackFigures::default();
            let measured =
                c.kind != CallbackType::Timer || evidence.unknown_periods.contains(&c.id);
            if measured {
                c.period_ns = None;
            }
            raw.callbacks.insert(c.id.clone(), c);
        }
        for mut e in model.edges.into_iter().chain(evidence.edges) {
            if derived.contains(&e.from) {
                continue;
            }
            restore(&mut e.modes, &e.figures, &single);
            e.figures = EdgeFigures::default();
            raw.edges
                .insert((e.from.clone(), e.to.clone(), e.topic.clone()), e);
        }
        for (id, sync) in evidence.syncs {
            // Topics that the model shows as the synchroniser's were published by its members.
            for (member, m) in &sync.members {
                if let (true, Some(c)) = (m.published > 0, raw.callbacks.get_mut(member)) {
                    if !c.outputs.contains(&sync.topic) {
                        c.outputs.push(sync.topic.clone());
                        c.outputs.sort();
                    }
                }
            }
            raw.syncs.insert(id, sync);
        }
        for chain in model.chains {
            let n = chain.callbacks.len();
            if n == 0 || chain.topics.len() + 1 < n {
                return Err(ModelMergeError::Inconsistent(format!(
                    "chain '{}' lacks topics",
                    chain.id
                )));
            }
            let topics = chain.topics[..n - 1].to_vec();
            let path = |f: &ChainFigures| -> Result<PathFigures, ModelMergeError> {
                let sums: Result<Vec<u128>, _> =
                    f.shares.iter().map(|s| s.sum_ns.parse()).collect();
                match sums {
                    Ok(sums) if sums.len() == 2 * n - 1 => Ok(PathFigures {
                        latency_ns: f.latency_ns.clone(),
                        sums,
                    }),
                    _ => Err(ModelMergeError::Inconsistent(format!(
                        "the shares of chain '{}' are not one per callback and edge",
                        chain.id
                    ))),
                }
            };
            let mut modes = BTreeMap::new();
            for (mode, figures) in &chain.modes {
                modes.insert(mode.clone(), path(figures)?);
            }
            if let (true, Some(mode)) = (modes.is_empty(), &single) {
                modes.insert(mode.clone(), path(&chain.figures)?);
            }
            modes.retain(|_, f| f.latency_ns.count() > 0);
            let outputs = evidence.outputs.get(&chain.id).cloned().unwrap_or_default();
            raw.paths
                .insert((chain.callbacks, topics), RawPath { outputs, modes });
        }
        for p in evidence.paths {
            let path = RawPath {
                outputs: p.outputs,
                modes: p.modes,
            };
            raw.paths.insert((p.callbacks, p.topics), path);
        }
        for l in evidence.lost {
            raw.lost.insert((l.callbacks, l.topics), l.modes);
        }
        raw.sourced = evidence.sourced;
        raw.unknown_periods = evidence.unknown_periods;
        for note in evidence.notes {
            *raw.notes.entry((note.kind, note.subject)).or_insert(0) += note.count;
        }
        // Sentences that somebody else added (the recorder's, say) are kept as they are.
        let own = raw.clone().conclude();
        for (kind, said, own) in [
            (SAID, model.coverage, own.coverage),
            (ASSUMED, model.assumptions, own.assumptions),
        ] {
            for sentence in said.into_iter().filter(|s| !own.contains(s)) {
                raw.notes.insert((kind.into(), sentence), 1);
            }
        }
        Ok(raw)
    }

    /// Adds what other runs have shown.
    fn add(&mut self, other: Raw) -> Result<(), ModelMergeError> {
        for (id, run) in other.runs {
            if self.runs.contains_key(&id) {
                return Err(ModelMergeError::SameRun(id));
            }
            self.runs.insert(id, run);
        }
        // A period that one run has seen holds for all.
        let known = |raw: &BTreeMap<String, Callback>, id: &String| {
            raw.get(id).is_some_and(|c| c.period_ns.is_some())
        };
        let unknown: BTreeSet<String> = self
            .unknown_periods
            .union(&other.unknown_periods)
            .filter(|id| !known(&self.callbacks, id) && !known(&other.callbacks, id))
            .cloned()
            .collect();
        self.unknown_periods = unknown;
        for (id, c) in other.callbacks {
            match self.callbacks.get_mut(&id) {
                Some(mine) => add_callback(mine, c),
                None => {
                    self.callbacks.insert(id, c);
                }
            }
        }
        for (key, e) in other.edges {
            match self.edges.get_mut(&key) {
                Some(mine) => {
                    mine.assumed &= e.assumed;
                    mine.intra_process |= e.intra_process;
                    add_all(&mut mine.modes, &e.modes);
                }
                None => {
                    self.edges.insert(key, e);
                }
            }
        }
        for (key, p) in other.paths {
            let mine = self.paths.entry(key).or_default();
            add_all(&mut mine.outputs, &p.outputs);
            add_all(&mut mine.modes, &p.modes);
        }
        for (key, modes) in other.lost {
            add_all(self.lost.entry(key).or_default(), &modes);
        }
        for (id, s) in other.syncs {
            let mine = self.syncs.entry(id).or_insert_with(|| SyncEvidence {
                node: s.node.clone(),
                topic: s.topic.clone(),
                ..SyncEvidence::default()
            });
            mine.outputs += s.outputs;
            mine.foreign += s.foreign;
            for (id, m) in s.members {
                let sum = mine.members.entry(id).or_default();
                sum.instances += m.instances;
                sum.productive += m.productive;
                sum.synchronised += m.synchronised;
                sum.published += m.published;
                sum.fresh += m.fresh;
                sum.once += m.once;
                sum.shared += m.shared;
            }
        }
        add_all(&mut self.sourced, &other.sourced);
        add_all(&mut self.notes, &other.notes);
        Ok(())
    }

    /// Draws the conclusions.
    pub(crate) fn conclude(mut self) -> Model {
        let groups: Vec<Group> = self
            .syncs
            .iter()
            .filter_map(|(id, e)| decide(id, e))
            .collect();
        let group_of: BTreeMap<&str, &Group> = groups.iter().map(|g| (g.id.as_str(), g)).collect();
        // Members by who publishes what: (callback, topic) to the group that it goes through.
        let mut through: BTreeMap<(&str, &str), &Group> = BTreeMap::new();
        for g in &groups {
            for p in &g.publishers {
                through.insert((p, &g.topic), g);
            }
        }
        let several = self
            .runs
            .values()
            .map(|r| &r.mode)
            .collect::<BTreeSet<_>>()
            .len()
            > 1;
        let mut hidden = Evidence::default();

        // Edges.
        let mut edges: BTreeMap<(String, String, String), Edge> = BTreeMap::new();
        for (key, e) in std::mem::take(&mut self.edges) {
            let whole = total(&e.modes);
            let sync_input = self.syncs.contains_key(&e.to);
            let visible = whole.taken > 0
                && (!sync_input
                    || group_of
                        .get(e.to.as_str())
                        .is_some_and(|g| g.members.contains(&e.from)));
            match through.get(&(e.from.as_str(), e.topic.as_str())) {
                Some(group) if !e.assumed && !sync_input => {
                    let key = (group.id.clone(), e.to.clone(), e.topic.clone());
                    let merged = edges.entry(key).or_insert_with(|| Edge {
                        from: group.id.clone(),
                        to: e.to.clone(),
                        topic: e.topic.clone(),
                        assumed: false,
                        intra_process: false,
                        figures: EdgeFigures::default(),
                        modes: BTreeMap::new(),
                    });
                    merged.intra_process |= e.intra_process;
                    add_all(&mut merged.modes, &e.modes);
                    hidden.edges.push(e);
                }
                _ if visible => {
                    edges.insert(key, e);
                }
                _ => hidden.edges.push(e),
            }
        }
        edges.retain(|_, e| {
            e.figures = total(&e.modes);
            e.figures.taken > 0
        });

        // Vertices.
        let mut callbacks: BTreeMap<String, Callback> = BTreeMap::new();
        for (id, mut c) in std::mem::take(&mut self.callbacks) {
            if c.kind == CallbackType::Sync && !group_of.contains_key(id.as_str()) {
                hidden.callbacks.push(c);
                continue;
            }
            c.figures = total(&c.modes);
            if c.period_ns.is_none() {
                c.period_ns = steady_period(&c.figures.interarrival_ns);
            }
            c.outputs
                .retain(|t| !through.contains_key(&(id.as_str(), t.as_str())));
            callbacks.insert(id, c);
        }

        // Junctions.
        let mut junctions: BTreeMap<String, Junction> = BTreeMap::new();
        for g in &groups {
            junctions.insert(
                g.id.clone(),
                Junction {
                    callback: g.id.clone(),
                    kind: JunctionKind::And,
                    inputs: g.members.iter().cloned().collect(),
                    criterion: g.criterion.into(),
                    confidence: g.confidence,
                },
            );
        }
        let mut inputs: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for e in edges.values() {
            if !e.assumed && !group_of.contains_key(e.to.as_str()) {
                inputs
                    .entry((&e.to, &e.topic))
                    .or_default()
                    .push(e.from.clone());
            }
        }
        for ((to, _), from) in &inputs {
            if from.len() > 1 {
                junctions.insert(
                    to.to_string(),
                    Junction {
                        callback: to.to_string(),
                        kind: JunctionKind::Or,
                        inputs: from.clone(),
                        criterion: "several_publishers".into(),
                        confidence: 1.0,
                    },
                );
            }
        }

        // Chains.
        let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut fed: BTreeSet<&str> = BTreeSet::new();
        for e in edges.values() {
            // At an input one chain ends, and another begins.
            if !self.is_input(&e.topic) {
                next.entry(&e.from).or_default().push(&e.to);
            }
            if !e.assumed {
                fed.insert(&e.to);
            }
        }
        let real_edge = |from: &str, to: &str, topic: &str| {
            edges.contains_key(&(from.to_string(), to.to_string(), topic.to_string()))
        };
        let is_chain = |(path, topics): &PathKey| -> bool {
            let (Some(first), Some(last)) = (path.first(), path.last()) else {
                return false;
            };
            let executions = |id: &String| {
                callbacks
                    .get(id)
                    .map_or(0, |c| c.figures.exec_ns.count().max(1))
            };
            let sourced = self.sourced.get(first).copied().unwrap_or(0);
            path.iter().all(|c| callbacks.contains_key(c))
                && path
                    .windows(2)
                    .zip(topics)
                    .all(|(w, t)| real_edge(&w[0], &w[1], t))
                && (!fed.contains(first.as_str()) || sourced * 10 >= executions(first))
                && next
                    .get(last.as_str())
                    .into_iter()
                    .flatten()
                    .all(|to| path.iter().any(|c| c == to))
        };
        let inputs: BTreeMap<&str, &str> = callbacks
            .values()
            .map(|c| (c.id.as_str(), c.input.as_str()))
            .collect();
        let mut chains = Vec::new();
        for (key, path) in std::mem::take(&mut self.paths) {
            if path.modes.is_empty() || !is_chain(&key) {
                hidden.paths.push(HiddenPath {
                    callbacks: key.0,
                    topics: key.1,
                    outputs: path.outputs,
                    modes: path.modes,
                });
                continue;
            }
            let lost = self.lost_on(&key);
            let id = chain_id(&key.0, &key.1);
            let mut modes: BTreeMap<String, ChainFigures> = BTreeMap::new();
            for mode in path.modes.keys().chain(lost.keys()) {
                let figures = path.modes.get(mode).cloned().unwrap_or_default();
                let lost = lost.get(mode).copied().unwrap_or(0);
                modes.insert(mode.clone(), chain_figures(&key, &figures, lost));
            }
            let all = chain_figures(&key, &total(&path.modes), lost.values().sum());
            let (callbacks, mut topics) = key;
            let assumed = topics.iter().any(|t| t == MEMORY);
            // The topic that was the last output most often; of equals the first by name.
            let output = path
                .outputs
                .iter()
                .rev()
                .max_by_key(|o| o.1)
                .map(|o| o.0.clone());
            topics.extend(output.filter(|o| !o.is_empty()));
            hidden.outputs.insert(id.clone(), path.outputs);
            let first = callbacks.first().and_then(|id| inputs.get(id.as_str()));
            chains.push(Chain {
                id,
                from_input: first.is_some_and(|input| self.is_input(input)),
                callbacks,
                topics,
                assumed,
                figures: all,
                modes: if several { modes } else { BTreeMap::new() },
            });
        }
        chains.sort_by(|a, b| a.id.cmp(&b.id));

        let (assumptions, coverage) = self.sentences(&groups, &callbacks, &edges);
        for ((callbacks, topics), modes) in self.lost {
            hidden.lost.push(LostOnPath {
                callbacks,
                topics,
                modes,
            });
        }
        hidden.syncs = self.syncs.clone();
        hidden.sourced = self.sourced;
        hidden.unknown_periods = self.unknown_periods;
        for ((kind, subject), count) in self.notes {
            hidden.notes.push(CountedNote {
                kind,
                subject,
                count,
            });
        }
        let mut edges: Vec<Edge> = edges.into_values().collect();
        let mut callbacks: Vec<Callback> = callbacks.into_values().collect();
        if !several {
            edges.iter_mut().for_each(|e| e.modes.clear());
            callbacks.iter_mut().for_each(|c| c.modes.clear());
        }
        edges.sort_by(|a, b| (&a.from, &a.to, &a.topic).cmp(&(&b.from, &b.to, &b.topic)));
        Model {
            schema: SCHEMA.into(),
            runs: self.runs.into_values().collect(),
            callbacks,
            edges,
            junctions: junctions.into_values().collect(),
            chains,
            assumptions,
            coverage,
            // A struct of maps with text keys always has a JSON value.
            evidence: serde_json::to_value(hidden).unwrap_or_default(),
        }
    }

    /// Items lost on any part of a path, by mode.
    fn lost_on(&self, (callbacks, topics): &PathKey) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for n in 1..callbacks.len() {
            let part = (callbacks[..=n].to_vec(), topics[..n].to_vec());
            if let Some(modes) = self.lost.get(&part) {
                add_all(&mut sum, modes);
            }
        }
        sum
    }

    /// What the model assumes, and what the recordings could not see.
    fn sentences(
        &self,
        groups: &[Group],
        callbacks: &BTreeMap<String, Callback>,
        edges: &BTreeMap<(String, String, String), Edge>,
    ) -> (Vec<String>, Vec<String>) {
        let mut assumptions = BTreeSet::new();
        let mut coverage = BTreeSet::new();
        for g in groups {
            let members = g
                .members
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(" and ");
            if g.criterion == "data_flow" {
                let doubt = if g.ambiguous {
                    "; only one of them publishes it, so it might also publish on its own input and merely read what the others stored"
                } else {
                    ""
                };
                assumptions.insert(format!(
                    "{members} are taken to wait for one another before {} is published, because each output followed one new input of each (confidence {:.2}){doubt}.",
                    g.topic, g.confidence
                ));
            }
        }
        for e in edges.values().filter(|e| e.assumed) {
            assumptions.insert(format!(
                "Data passes from {} to {} through memory, as stated with --link; no event shows it.",
                e.from, e.to
            ));
        }
        for id in &self.unknown_periods {
            if callbacks.contains_key(id) {
                assumptions.insert(format!(
                    "The period of {id} is measured: its timer was made before the recording."
                ));
            }
        }
        if callbacks.values().any(|c| c.bracket == Bracket::Inferred) {
            coverage.insert(
                "Callbacks marked 'inferred' have no events of their own at start and end; the executor's calls around them stand in.".into(),
            );
        }
        for run in self.runs.values() {
            for (probe, count) in run.lost.iter().filter(|l| *l.1 > 0) {
                coverage.insert(format!(
                    "In run {}, {count} events of kind {probe} were lost because the buffer was full; counts, losses and latencies that stand on them are incomplete.",
                    run.id
                ));
            }
        }
        for ((kind, subject), count) in &self.notes {
            let n = *count;
            let times = if n == 1 {
                "once".to_string()
            } else {
                format!("{n} times")
            };
            let s = subject;
            let text = match kind.as_str() {
                SAID => s.clone(),
                "outside" => format!("{s} was published outside of callbacks {times}; such items begin no chain before their taker."),
                "foreign" => format!("Messages on {s} came {times} from publishers that the recording does not hold."),
                "aborted" => format!("{s} was left {times} without reaching its end (an exception, or an executor within it); such executions end with the executor's next call."),
                "cut_off" => format!("{s} was cut off {times} by the end of its process; such executions are not in its times."),
                "unscheduled" => format!("{s} ran {times} on threads without scheduler events; its execution time then contains preemption."),
                "lost_switch" => format!("A scheduler event was missing {times}; execution times near it are off."),
                "stolen" => format!("The machine is a virtual one, and its host took {:.1} ms of CPU time from the observed threads; in callbacks that counts as preemption.", n as f64 / 1e6),
                "out_of_order" => format!("An event was older than the one before it {times}; it counts at the later time."),
                "unknown_callback" => format!("A callback that could not be told ran {times}: its creation lies before the recording."),
                "unknown_handle" => format!("An endpoint that could not be told was used {times}: its creation lies before the recording, or its event was lost."),
                "caller_unknown" => format!("The caller of {s} was not recorded {times}."),
                "capped" => format!("Lineages were dropped {times} because too many paths lead to one callback; chains through it are incomplete."),
                "link" => format!("The link '{s}' was not followed: one of its callbacks did not run under that id."),
                "starved" if callbacks.contains_key(s) => continue,
                "starved" => format!("{s} took nothing of {n} items that were published on its topic: its executor does not get to it, or the two do not match (domain, QoS)."),
                "no_input" => format!("The input '{s}' was not followed: no callback took anything from it."),
                "undecided" => format!("What an event belongs to was not clear in time {times}."),
                _ => continue,
            };
            coverage.insert(text);
        }
        for (kind, subject) in self.notes.keys() {
            let s = subject;
            let text = match kind.as_str() {
                ASSUMED => s.clone(),
                "timer_node" => format!("{s} is taken to belong to the node whose topics it publishes."),
                "input" => format!("Chains begin with {s}, whoever publishes it, and their latency counts from then: as was said."),
                "node_name" => format!("The node {s} is named after its process: its own name was not recorded."),
                "caller_guess" => format!("Some requests of {s} could have come from several clients; the one that sent first is taken."),
                _ => continue,
            };
            assumptions.insert(text);
        }
        (
            assumptions.into_iter().collect(),
            coverage.into_iter().collect(),
        )
    }
}

fn add_callback(mine: &mut Callback, other: Callback) {
    mine.period_ns = mine.period_ns.max(other.period_ns);
    let outputs: BTreeSet<String> = mine.outputs.drain(..).chain(other.outputs).collect();
    mine.outputs = outputs.into_iter().collect();
    if other.bracket == Bracket::Inferred {
        mine.bracket = Bracket::Inferred;
    }
    mine.symbol = match (mine.symbol.take(), other.symbol) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    add_all(&mut mine.modes, &other.modes);
    mine.threads = unite_threads(mine.threads.drain(..).chain(other.threads));
    mine.per_run.extend(other.per_run);
}

/// Threads that differ by name, policy or priority, with the CPUs of those that do not.
pub(crate) fn unite_threads(threads: impl Iterator<Item = ThreadUse>) -> Vec<ThreadUse> {
    let mut all: BTreeMap<(String, String, u8), BTreeSet<u16>> = BTreeMap::new();
    for t in threads {
        all.entry((t.comm, t.policy, t.priority))
            .or_default()
            .extend(t.cpus);
    }
    all.into_iter()
        .map(|((comm, policy, priority), cpus)| ThreadUse {
            comm,
            policy,
            priority,
            cpus: cpus.into_iter().collect(),
        })
        .collect()
}

fn chain_figures((callbacks, topics): &PathKey, f: &PathFigures, lost: u64) -> ChainFigures {
    let latency = &f.latency_ns;
    let whole = latency.sum();
    let n = latency.count();
    let mut shares = Vec::new();
    for i in 0..2 * callbacks.len() - 1 {
        let sum = f.sums.get(i).copied().unwrap_or(0);
        let (element, name) = if i % 2 == 0 {
            ("callback", &callbacks[i / 2])
        } else {
            ("edge", &topics[i / 2])
        };
        shares.push(Share {
            element: element.into(),
            name: name.clone(),
            sum_ns: sum.to_string(),
            mean_ns: if n == 0 { 0.0 } else { sum as f64 / n as f64 },
            fraction: if whole == 0 {
                0.0
            } else {
                sum as f64 / whole as f64
            },
        });
    }
    ChainFigures {
        executions: n,
        latency_ns: latency.clone(),
        jitter_ns: (latency.max() - latency.min()) / 2,
        lost,
        shares,
    }
}
