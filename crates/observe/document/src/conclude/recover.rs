//! Recovers the evidence from a model, so that evidence of more runs can be added.

use super::{conclude, modes};
use crate::evidence::{total, EdgeKey, EndpointKey, Evidence, HelperKey, Hidden, Note};
use crate::evidence::{EndsKey, HiddenEnds, PathEvidence, PathFigures, PathKey, SyncEvidence};
use crate::schema::qos;
use crate::schema::{ByMode, Callback, CallbackFigures, CallbackType, Chain, ChainFigures};
use crate::schema::{Edge, EdgeFigures, Endpoint, Helper, Junction, JunctionKind, Model, Run};
use crate::schema::{EndToEnd, EndToEndFigures};
use std::collections::{BTreeMap, BTreeSet};

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    #[error(
        "the model's field 'evidence' cannot be used ({0}). Make the model again from its trace."
    )]
    Evidence(String),
    #[error("the model is redacted, so its evidence is missing. First merge the whole models, then redact the result.")]
    Redacted,
    #[error("the model contradicts itself ({0}). Make it again from its trace.")]
    Inconsistent(String),
}

/// The name of the only field that the evidence of a redacted model has.
pub const REDACTED: &str = "redacted";

pub(crate) fn recover(mut model: Model) -> Result<Evidence, RecoverError> {
    let mut hidden = hidden(std::mem::take(&mut model.evidence))?;
    let only_mode = OnlyMode::of(&model.runs)?;
    let only_run = match model.runs.as_slice() {
        [only] => Some(only.id.clone()),
        _ => None,
    };
    let mut evidence = Evidence::default();
    // A model of one mode shows its callbacks and edges without the mode. Those in `hidden` still
    // have it.
    for c in &mut model.callbacks {
        only_mode.restore(&mut c.modes, &c.figures);
    }
    for e in &mut model.edges {
        only_mode.restore(&mut e.modes, &e.figures);
    }
    let callbacks = model.callbacks.into_iter();
    let callbacks = callbacks.chain(std::mem::take(&mut hidden.callbacks));
    add_callbacks(&mut evidence, callbacks, &hidden.unknown_periods);
    let publishers = Publishers::of(&hidden.syncs);
    let edges = model.edges.into_iter();
    let edges = edges.chain(std::mem::take(&mut hidden.edges));
    add_edges(&mut evidence, edges, (&model.junctions, &publishers));
    let shown = model.end_to_end.into_iter();
    let hidden_ends = std::mem::take(&mut hidden.ends);
    add_ends(&mut evidence, shown, hidden_ends, (&publishers, &only_mode));
    for chain in model.chains {
        if hidden.derived.contains(&chain.id) {
            continue;
        }
        let outputs = hidden.outputs.get(&chain.id).cloned().unwrap_or_default();
        let own = hidden.own.get(&chain.id).cloned().unwrap_or_default();
        add_chain(&mut evidence, chain, (outputs, own), &only_mode)?;
    }
    add_others(&mut evidence, model.endpoints, model.helpers);
    for mut action in model.actions {
        only_mode.restore(&mut action.modes, &action.figures);
        evidence.actions.insert(action.name, action.modes);
    }
    add_paths(&mut evidence, &mut hidden, only_run.as_deref())?;
    // The members of a synchroniser publish its topic, although the model shows the sync vertex as
    // the publisher.
    for sync in hidden.syncs.values() {
        restore_outputs(&mut evidence, sync);
    }
    add_runs(&mut evidence, model.runs)?;
    evidence.syncs = hidden.syncs;
    evidence.sourced = hidden.sourced;
    evidence.together = hidden.together;
    evidence.unknown_periods = hidden.unknown_periods;
    for counted in hidden.notes {
        evidence.note(counted.note, counted.count);
    }
    add_foreign_sentences(&mut evidence, model.coverage, model.assumptions);
    Ok(evidence)
}

fn hidden(evidence: serde_json::Value) -> Result<Hidden, RecoverError> {
    match evidence {
        serde_json::Value::Null => Ok(Hidden::default()),
        serde_json::Value::Object(fields) if fields.contains_key(REDACTED) => {
            Err(RecoverError::Redacted)
        }
        value => serde_json::from_value(value).map_err(|e| RecoverError::Evidence(e.to_string())),
    }
}

fn add_others(evidence: &mut Evidence, endpoints: Vec<Endpoint>, helpers: Vec<Helper>) {
    for e in endpoints {
        let (node, topic, kind) = (e.node, e.topic, e.kind);
        let key = EndpointKey { node, topic, kind };
        qos::add(evidence.endpoints.entry(key).or_default(), e.qos);
    }
    for h in helpers {
        let (nodes, name) = (h.nodes, h.name);
        let all = evidence
            .helpers
            .entry(HelperKey { nodes, name })
            .or_default();
        all.add(&h.figures, h.threads);
    }
}

fn add_paths(
    evidence: &mut Evidence,
    hidden: &mut Hidden,
    only_run: Option<&str>,
) -> Result<(), RecoverError> {
    for p in std::mem::take(&mut hidden.paths) {
        let key = path(p.callbacks, p.topics, p.own)?;
        let (outputs, modes, per_run) = (p.outputs, p.modes, p.per_run);
        let path = PathEvidence {
            outputs,
            modes,
            per_run,
        };
        evidence.paths.insert(key, path);
    }
    if let Some(run) = only_run {
        for path in evidence.paths.values_mut() {
            let latency = total(&path.modes).latency_ns;
            if latency.count() > 0 {
                path.per_run = BTreeMap::from([(run.to_owned(), latency)]);
            }
        }
    }
    for l in std::mem::take(&mut hidden.lost) {
        let key = path(l.callbacks, l.topics, l.own)?;
        evidence.lost.insert(key, l.modes);
    }
    for d in std::mem::take(&mut hidden.dropped) {
        let key = path(d.callbacks, d.topics, d.own)?;
        evidence.dropped.insert(key, d.modes);
    }
    Ok(())
}

fn add_runs(evidence: &mut Evidence, runs: Vec<Run>) -> Result<(), RecoverError> {
    for run in runs {
        if let Some(run) = evidence.runs.insert(run.id.clone(), run) {
            let twice = format!("run '{}' occurs twice", run.id);
            return Err(RecoverError::Inconsistent(twice));
        }
    }
    Ok(())
}

fn add_foreign_sentences(evidence: &mut Evidence, coverage: Vec<String>, assumptions: Vec<String>) {
    let own = conclude_sentences(evidence);
    let foreign = |said: Vec<String>, own: Vec<String>| {
        let not_own = move |s: &String| !own.contains(s);
        said.into_iter().filter(not_own)
    };
    let said = foreign(coverage, own.coverage).map(Note::Said);
    let assumed = foreign(assumptions, own.assumptions).map(Note::Assumed);
    evidence
        .notes
        .extend(said.chain(assumed).map(|note| (note, 1)));
}

/// Makes a model for its sentences only. The model has chains only if a sentence depends on them,
/// because chains take most of the time and memory.
fn conclude_sentences(evidence: &mut Evidence) -> Model {
    let mut figures = evidence.paths.values().flat_map(|p| p.modes.values());
    if figures.any(|f| f.crossed > 0) {
        return conclude(evidence.clone());
    }
    let paths = std::mem::take(&mut evidence.paths);
    let ends = std::mem::take(&mut evidence.ends);
    let lost = std::mem::take(&mut evidence.lost);
    let dropped = std::mem::take(&mut evidence.dropped);
    let model = conclude(evidence.clone());
    (evidence.paths, evidence.ends) = (paths, ends);
    (evidence.lost, evidence.dropped) = (lost, dropped);
    model
}

struct OnlyMode(Option<String>);

impl OnlyMode {
    fn of(runs: &[Run]) -> Result<OnlyMode, RecoverError> {
        let modes = modes(runs.iter());
        Ok(OnlyMode(match modes.len() {
            0 => {
                return Err(RecoverError::Inconsistent(
                    "the list of runs is empty".into(),
                ))
            }
            1 => modes.first().map(|m| m.to_string()),
            _ => None,
        }))
    }

    fn restore<F: Clone>(&self, modes: &mut ByMode<F>, total: &F) {
        if let (true, Some(mode)) = (modes.is_empty(), &self.0) {
            modes.insert(mode.clone(), Box::new(total.clone()));
        }
    }
}

fn add_callbacks(
    evidence: &mut Evidence,
    callbacks: impl Iterator<Item = Callback>,
    unknown_periods: &BTreeSet<String>,
) {
    for mut c in callbacks {
        c.figures = CallbackFigures::default();
        let measured = c.kind != CallbackType::Timer || unknown_periods.contains(&c.id);
        if measured {
            c.period_ns = None;
        }
        evidence.callbacks.insert(c.id.clone(), c);
    }
}

struct Publishers(BTreeMap<String, Vec<String>>);

impl Publishers {
    fn of(syncs: &BTreeMap<String, SyncEvidence>) -> Self {
        let publishers = |sync: &SyncEvidence| {
            let members = sync.members.iter().filter(|(_, m)| m.published > 0);
            members.map(|(id, _)| id.clone()).collect()
        };
        let syncs = syncs.iter();
        Publishers(syncs.map(|(id, s)| (id.clone(), publishers(s))).collect())
    }

    fn only(&self, sync: &str) -> Option<&String> {
        match self.0.get(sync)?.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// Adds the figures between two ends to the evidence. If a sync vertex has several publishers, the
/// model shows only sums; the separate figures then come from `hidden`.
fn add_ends(
    evidence: &mut Evidence,
    shown: impl Iterator<Item = EndToEnd>,
    hidden: Vec<HiddenEnds>,
    (publishers, only_mode): (&Publishers, &OnlyMode),
) {
    for mut e in shown {
        let to = match publishers.0.contains_key(&e.to) {
            true => publishers.only(&e.to).cloned(),
            false => Some(e.to),
        };
        let Some(to) = to else {
            continue;
        };
        only_mode.restore(&mut e.modes, &e.figures);
        let (from, topic) = (e.from, e.topic);
        let key = EndsKey { from, to, topic };
        let modes = e.modes.into_iter();
        let modes = modes
            .map(|(mode, f)| (mode, Box::new(ends_figures(*f))))
            .collect();
        evidence.ends.insert(key, modes);
    }
    for h in hidden {
        let (from, to, topic) = (h.from, h.to, h.topic);
        evidence.ends.insert(EndsKey { from, to, topic }, h.modes);
    }
}

fn ends_figures(f: EndToEndFigures) -> PathFigures {
    PathFigures {
        latency_ns: f.latency_ns,
        reaction_ns: f.reaction_ns,
        age_ns: f.age_ns,
        crossed: f.crossed,
        sums: Vec::new(),
    }
}

/// Adds all edges to the evidence. If a sync vertex has several publishers, the model shows only
/// sums; the separate edges then come from `hidden`.
fn add_edges(
    evidence: &mut Evidence,
    edges: impl Iterator<Item = Edge>,
    (junctions, publishers): (&[Junction], &Publishers),
) {
    let and = junctions.iter().filter(|j| j.kind == JunctionKind::And);
    let syncs: BTreeSet<&str> = and.map(|j| j.callback.as_str()).collect();
    for mut e in edges {
        if syncs.contains(e.from.as_str()) {
            match publishers.only(&e.from) {
                Some(only) => e.from.clone_from(only),
                None => continue,
            }
        }
        e.figures = EdgeFigures::default();
        evidence.edges.insert(EdgeKey::of(&e), e);
    }
}

fn restore_outputs(evidence: &mut Evidence, sync: &SyncEvidence) {
    for (member, _) in sync.members.iter().filter(|(_, m)| m.published > 0) {
        if let Some(c) = evidence.callbacks.get_mut(member) {
            if !c.outputs.contains(&sync.topic) {
                c.outputs.push(sync.topic.clone());
                c.outputs.sort();
            }
        }
    }
}

fn add_chain(
    evidence: &mut Evidence,
    chain: Chain,
    (outputs, own): (BTreeMap<String, u64>, Vec<usize>),
    only_mode: &OnlyMode,
) -> Result<(), RecoverError> {
    let Chain {
        id,
        callbacks,
        mut topics,
        ..
    } = chain;
    if callbacks.is_empty() || topics.len() + 1 < callbacks.len() {
        let lacks = format!("chain '{id}' lacks topics");
        return Err(RecoverError::Inconsistent(lacks));
    }
    // The last topic may be the chain's output.
    topics.truncate(callbacks.len() - 1);
    let key = path(callbacks, topics, own)?;
    let mut modes = ByMode::new();
    for (mode, figures) in &chain.modes {
        modes.insert(mode.clone(), Box::new(path_figures(&id, &key, figures)?));
    }
    if modes.is_empty() {
        only_mode.restore(&mut modes, &path_figures(&id, &key, &chain.figures)?);
    }
    // In the other modes, items were only lost or dropped.
    modes.retain(|_, f| f.latency_ns.count() > 0 || f.age_ns.is_some());
    let path = PathEvidence {
        outputs,
        modes,
        per_run: chain.per_run,
    };
    evidence.paths.insert(key, path);
    Ok(())
}

fn path_figures(id: &str, key: &PathKey, f: &ChainFigures) -> Result<PathFigures, RecoverError> {
    let sums: Result<Vec<u128>, _> = f.shares.iter().map(|s| s.sum_ns.parse()).collect();
    match sums {
        Ok(sums) if sums.len() == 2 * key.callbacks.len() - 1 => Ok(PathFigures {
            latency_ns: f.latency_ns.clone(),
            reaction_ns: f.reaction_ns.clone(),
            age_ns: f.age_ns.clone(),
            crossed: f.crossed,
            sums,
        }),
        _ => Err(RecoverError::Inconsistent(format!(
            "chain '{id}' does not have one entry in 'shares' for each callback and each edge"
        ))),
    }
}

fn path(
    callbacks: Vec<String>,
    topics: Vec<String>,
    own: Vec<usize>,
) -> Result<PathKey, RecoverError> {
    if callbacks.len() != topics.len() + 1 {
        let callback = callbacks.first().map_or("", |c| c.as_str());
        return Err(RecoverError::Evidence(format!(
            "a path from '{callback}' must have one topic between each callback and the next, but it has {} callbacks and {} topics",
            callbacks.len(),
            topics.len()
        )));
    }
    let inside = own.iter().all(|&i| 0 < i && i < callbacks.len());
    if !inside || own.windows(2).any(|w| w[0] >= w[1]) {
        return Err(RecoverError::Evidence(format!(
            "in the path to '{}', the positions of synchronisers ('own') do not ascend, or are outside of the path",
            callbacks.last().map_or("", |c| c.as_str())
        )));
    }
    Ok(PathKey {
        callbacks,
        topics,
        own,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{key, run, synchronised, MODE};
    use super::*;

    fn full() -> Evidence {
        let (a, b, sync) = (
            "/f:subscription(/a)",
            "/f:subscription(/b)",
            "/f:sync(/out)",
        );
        let mut evidence = run("r")
            .with_callback("/s:timer(1ms)", 20)
            .with_callback(a, 20)
            .with_callback(b, 20)
            .with_callback(sync, 0)
            .with_callback("/g:subscription(/out)", 20)
            .with_edge("/s:timer(1ms)", a, "/a", 20)
            .with_edge("/s:timer(1ms)", b, "/b", 20)
            .with_edge(a, sync, "/a", 20)
            .with_edge(b, sync, "/b", 20)
            .with_edge(b, "/g:subscription(/out)", "/out", 20)
            .with_path(&format!("/s:timer(1ms) /a {a}"), 20)
            .with_path(&format!("/s:timer(1ms) /b {b} /b {sync}"), 20)
            .with_sync(synchronised());
        evidence.callbacks.get_mut(b).unwrap().outputs = vec!["/out".into()];
        let counted = BTreeMap::from([(MODE.to_string(), 2)]);
        let to_a = key(&format!("/s:timer(1ms) /a {a}"));
        evidence.lost.insert(to_a.clone(), counted.clone());
        evidence.dropped.insert(to_a, counted);
        evidence.sourced.insert("/s:timer(1ms)".into(), 20);
        evidence.unknown_periods.insert("/x:timer(?)".into());
        evidence.note(Note::Outside("/t".into()), 3);
        evidence.note(Note::Assumed("By somebody else.".into()), 1);
        evidence
    }

    #[test]
    fn evidence_is_recovered_from_its_model() {
        let evidence = full();
        let model = conclude(evidence.clone());
        assert!(model.callbacks.iter().any(|c| c.kind == CallbackType::Sync));
        assert!(
            model.callbacks.iter().all(|c| c.modes.is_empty()),
            "one mode"
        );
        assert_eq!(recover(model).unwrap(), evidence);
        // The same must hold for evidence of two modes.
        let mut other = run("q");
        other.runs.get_mut("q").unwrap().mode = "highway".into();
        let mut both = full();
        both.runs.extend(other.runs);
        let model = conclude(both.clone());
        assert!(model.callbacks.iter().all(|c| !c.modes.is_empty()));
        assert_eq!(recover(model).unwrap(), both);
    }

    #[test]
    fn hidden_evidence_of_a_model_is_recovered_unchanged() {
        let (from, to) = ("/s:timer(1ms)", "/h:subscription(/q)");
        let mut evidence = full().with_callback(to, 1).with_edge(from, to, "/q", 0);
        // No item passed this edge in any mode.
        let unused = evidence.edges.values_mut().find(|e| e.topic == "/q");
        unused.unwrap().modes.clear();
        let model = conclude(evidence.clone());
        assert!(model.edges.iter().all(|e| e.topic != "/q"));
        assert!(recover(model).unwrap() == evidence);
    }

    #[test]
    fn a_path_with_only_repeated_data_is_recovered() {
        let (from, to) = ("/s:timer(1ms)", "/h:subscription(/q)");
        let mut evidence = run("r")
            .with_callback(from, 1)
            .with_callback(to, 1)
            .with_edge(from, to, "/q", 1)
            .with_path(&format!("{from} /q {to}"), 1);
        for path in evidence.paths.values_mut() {
            path.per_run.clear();
            for figures in path.modes.values_mut() {
                figures.age_ns = Some(std::mem::take(&mut figures.latency_ns));
                figures.sums.fill(0);
            }
        }
        let model = conclude(evidence.clone());
        assert_eq!(model.chains.len(), 1);
        assert!(recover(model).unwrap() == evidence);
    }

    #[test]
    fn sentences_that_other_programs_wrote_become_notes() {
        let mut model = conclude(full());
        model.coverage.push("A probe could not be attached.".into());
        let said = Note::Said("A probe could not be attached.".into());
        assert_eq!(recover(model).unwrap().notes.get(&said), Some(&1));
    }

    #[test]
    fn damaged_evidence_gives_an_error_that_names_the_damage() {
        let damage = |pointer: &str, value: serde_json::Value| {
            let mut model = conclude(full());
            *model.evidence.pointer_mut(pointer).unwrap() = value;
            recover(model).unwrap_err().to_string()
        };
        let error = damage("/notes/0/kind", "sunspots".into());
        assert!(
            error.contains("`sunspots`") && error.contains("'evidence'"),
            "{error}"
        );
        let error = damage("/paths/0/topics", serde_json::json!([]));
        assert!(error.contains("a path from '/s:timer(1ms)'"), "{error}");
        let error = damage("/lost/0/callbacks", serde_json::json!([]));
        assert!(error.contains("a path from ''"), "{error}");
        let mut model = conclude(full());
        model.runs.push(model.runs[0].clone());
        let error = recover(model).unwrap_err().to_string();
        assert!(error.contains("run 'r' occurs twice"), "{error}");
    }
}
