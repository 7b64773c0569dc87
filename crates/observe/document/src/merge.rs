//! Merges models of single runs into a model of many. The result equals modelling all runs at once.
//!
//! Merging recovers each model's evidence, adds it up, and draws the conclusions again (see
//! `conclude`). So it is associative and commutative.

mod machines;

pub use crate::conclude::{RecoverError, REDACTED};

use crate::conclude::{conclude, recover};
use crate::evidence::{add_all, total, unite_threads, Evidence, Figures, Note, SyncEvidence};
use crate::schema::qos;
use crate::schema::{Bracket, ByMode, Callback, CallbackFigures, Edge, Model, Run};
use machines::Machines;
use std::collections::{BTreeMap, BTreeSet};

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelMergeError {
    #[error("there is no model to merge. Name at least one.")]
    Empty,
    #[error("run '{0}' is in more than one of the models. Merge each run only once.")]
    SameRun(String),
    /// The runs are from these two hosts. Equal ids would then mean different callbacks.
    #[error("the runs are of two hosts, '{0}' and '{1}'. If they were recorded at the same time, join them with `onbeat model --join`. Otherwise make a model for each host.")]
    Hosts(String, String),
    #[error("the runs '{0}' and '{1}' overlap in time but are from different boots, so two machines have the same name. Make a model for each machine. If it is one machine whose clock was set back, remove the field `boot` of one of the two runs.")]
    Boots(String, String),
    #[error("the models name nodes by different rules ({0} and {1}). Make them with the same --normalise.")]
    NameRules(String, String),
    #[error(transparent)]
    Damaged(#[from] RecoverError),
    #[error("the model has no run of mode '{mode}'. Choose one of its modes: {known}")]
    NoSuchMode { mode: String, known: String },
}

/// Merges models into one. The result does not depend on their order.
pub fn merge(models: Vec<Model>) -> Result<Model, ModelMergeError> {
    let mut merger = Merger::default();
    for model in models {
        merger.add(model)?;
    }
    merger.finish()
}

/// A merger that adds models one after the other. The merger stores only the summed evidence of the
/// models. The result does not depend on the order of the models. A model that is itself a merge
/// gives the same result as its single models.
#[derive(Default)]
pub struct Merger {
    all: Option<Evidence>,
    machines: Machines,
}

impl Merger {
    /// Adds a model. A refused model leaves the merger unchanged.
    pub fn add(&mut self, model: Model) -> Result<(), ModelMergeError> {
        self.add_evidence(recover(model)?)
    }

    /// Returns the merged model.
    ///
    /// # Errors
    ///
    /// Fails if no model was added.
    pub fn finish(self) -> Result<Model, ModelMergeError> {
        self.all.map(conclude).ok_or(ModelMergeError::Empty)
    }

    fn add_evidence(&mut self, other: Evidence) -> Result<(), ModelMergeError> {
        if let Some(all) = &self.all {
            self.compare(all, &other)?;
        }
        other.runs.values().for_each(|run| self.machines.add(run));
        match &mut self.all {
            Some(all) => add(all, other),
            None => self.all = Some(other),
        }
        Ok(())
    }

    fn compare(&self, all: &Evidence, other: &Evidence) -> Result<(), ModelMergeError> {
        for run in other.runs.values() {
            if let Some(error) = self.machines.conflict(&all.runs, run) {
                return Err(error);
            }
        }
        let (mine, others) = (name_rules(all), name_rules(other));
        if mine != others {
            return Err(ModelMergeError::NameRules(mine, others));
        }
        match other.runs.values().find(|run| has_part_of(all, run)) {
            Some(run) => Err(ModelMergeError::SameRun(run.recording().into())),
            None => Ok(()),
        }
    }
}

/// Returns a model of only those parts of the runs that have the mode `mode`.
pub fn filter_mode(model: Model, mode: &str) -> Result<Model, ModelMergeError> {
    let mut evidence = recover(model)?;
    let known: BTreeSet<&str> = evidence.runs.values().map(|r| r.mode.as_str()).collect();
    if !known.contains(mode) {
        return Err(ModelMergeError::NoSuchMode {
            mode: mode.into(),
            known: known.into_iter().collect::<Vec<_>>().join(", "),
        });
    }
    fn keep<F>(modes: &mut BTreeMap<String, F>, mode: &str) -> bool {
        modes.retain(|m, _| m == mode);
        !modes.is_empty()
    }
    // A model with parts of runs keeps callbacks that did not run in the mode, because they were
    // observed at that time.
    let parts = |r: &Run| r.mode == mode && r.recording() != r.id;
    let parts = evidence.runs.values().any(parts);
    evidence.runs.retain(|_, r| r.mode == mode);
    let runs = &evidence.runs;
    evidence.callbacks.retain(|_, c| {
        c.per_run.retain(|id, _| runs.contains_key(id));
        keep(&mut c.modes, mode) && !(parts && c.modes.values().all(|f| never_ran(f)))
    });
    evidence.edges.retain(|_, e| keep(&mut e.modes, mode));
    evidence.paths.retain(|_, p| {
        p.per_run.retain(|id, _| runs.contains_key(id));
        keep(&mut p.modes, mode)
    });
    evidence.together.retain(|id, _| runs.contains_key(id));
    evidence.actions.retain(|_, modes| keep(modes, mode));
    evidence.ends.retain(|_, modes| keep(modes, mode));
    evidence.lost.retain(|_, modes| keep(modes, mode));
    evidence.dropped.retain(|_, modes| keep(modes, mode));
    Ok(conclude(evidence))
}

/// Reports whether the evidence already has the run's recording or a part of it. The modes of one
/// run must stay in one model, because figures that belong to no mode would be counted twice.
fn has_part_of(all: &Evidence, run: &Run) -> bool {
    let id = run.recording();
    let mut parts = all.runs.range(format!("{id}#")..format!("{id}$"));
    all.runs.contains_key(id) || parts.any(|(_, part)| part.recording() == id)
}

fn never_ran(figures: &CallbackFigures) -> bool {
    let counts = [
        &figures.exec_ns,
        &figures.interarrival_ns,
        &figures.release_jitter_ns,
    ];
    counts.iter().all(|dist| dist.count() == 0)
}

/// Returns the same model with `mode` as the mode of all its runs.
pub fn set_mode(model: Model, mode: &str) -> Result<Model, ModelMergeError> {
    fn unite<F: Figures>(modes: &mut ByMode<F>, mode: &str) {
        *modes = ByMode::from([(mode.to_string(), Box::new(total(modes)))]);
    }
    let mut evidence = recover(model)?;
    evidence
        .runs
        .values_mut()
        .for_each(|r| r.mode = mode.into());
    let callbacks = evidence.callbacks.values_mut();
    callbacks.for_each(|c| unite(&mut c.modes, mode));
    let edges = evidence.edges.values_mut();
    edges.for_each(|e| unite(&mut e.modes, mode));
    let paths = evidence.paths.values_mut();
    paths.for_each(|p| unite(&mut p.modes, mode));
    let ends = evidence.ends.values_mut();
    ends.for_each(|modes| unite(modes, mode));
    let actions = evidence.actions.values_mut();
    actions.for_each(|modes| unite(modes, mode));
    let counted = evidence
        .lost
        .values_mut()
        .chain(evidence.dropped.values_mut());
    for counts in counted {
        let each = counts.values().copied();
        let sum = each.fold(0, u64::saturating_add);
        *counts = BTreeMap::from([(mode.to_string(), sum)]);
    }
    Ok(conclude(evidence))
}

fn name_rules(evidence: &Evidence) -> String {
    let rules = evidence.notes.keys().filter_map(|note| match note {
        Note::NameRule(rule) => Some(format!("'{rule}'")),
        _ => None,
    });
    let rules: Vec<String> = rules.collect();
    match rules.len() {
        0 => "none".into(),
        _ => rules.join(", "),
    }
}

fn add(all: &mut Evidence, other: Evidence) {
    all.runs.extend(other.runs);
    // A period that one run has seen holds for all.
    all.unknown_periods.extend(other.unknown_periods);
    let known = |callbacks: &BTreeMap<String, Callback>, id: &String| {
        callbacks.get(id).is_some_and(|c| c.period_ns.is_some())
    };
    let (mine, others) = (&all.callbacks, &other.callbacks);
    all.unknown_periods
        .retain(|id| !known(mine, id) && !known(others, id));
    add_or_insert(&mut all.callbacks, other.callbacks, add_callback);
    add_or_insert(&mut all.edges, other.edges, add_edge);
    for (key, qos) in other.endpoints {
        qos::add(all.endpoints.entry(key).or_default(), qos);
    }
    for (key, of) in other.helpers {
        let mine = all.helpers.entry(key).or_default();
        mine.add(&of.figures, of.threads);
    }
    for (name, modes) in other.actions {
        add_all(all.actions.entry(name).or_default(), &modes);
    }
    for (key, path) in other.paths {
        let mine = all.paths.entry(key).or_default();
        add_all(&mut mine.outputs, &path.outputs);
        add_all(&mut mine.per_run, &path.per_run);
        add_all(&mut mine.modes, &path.modes);
    }
    for (key, modes) in other.ends {
        add_all(all.ends.entry(key).or_default(), &modes);
    }
    for (key, modes) in other.lost {
        add_all(all.lost.entry(key).or_default(), &modes);
    }
    for (key, modes) in other.dropped {
        add_all(all.dropped.entry(key).or_default(), &modes);
    }
    add_or_insert(&mut all.syncs, other.syncs, add_sync);
    add_all(&mut all.sourced, &other.sourced);
    all.together.extend(other.together);
    add_all(&mut all.notes, &other.notes);
}

fn add_or_insert<K: Ord, V>(
    all: &mut BTreeMap<K, V>,
    others: BTreeMap<K, V>,
    add: impl Fn(&mut V, V),
) {
    for (key, other) in others {
        match all.get_mut(&key) {
            Some(mine) => add(mine, other),
            None => {
                all.insert(key, other);
            }
        }
    }
}

fn add_callback(mine: &mut Callback, other: Callback) {
    mine.period_ns = mine.period_ns.max(other.period_ns);
    let outputs: BTreeSet<String> = mine.outputs.drain(..).chain(other.outputs).collect();
    mine.outputs = outputs.into_iter().collect();
    if other.bracket == Bracket::Inferred {
        mine.bracket = Bracket::Inferred;
    }
    mine.identity = mine.identity.min(other.identity);
    mine.symbol = match (mine.symbol.take(), other.symbol) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    add_all(&mut mine.modes, &other.modes);
    mine.threads = unite_threads(mine.threads.drain(..).chain(other.threads));
    mine.per_run.extend(other.per_run);
}

fn add_edge(mine: &mut Edge, other: Edge) {
    // An edge stays assumed only if no run shows it.
    mine.assumed = mine.assumed.zip(other.assumed).map(|(a, b)| a.max(b));
    mine.intra_process |= other.intra_process;
    add_all(&mut mine.modes, &other.modes);
}

fn add_sync(mine: &mut SyncEvidence, other: SyncEvidence) {
    mine.outputs.add(&other.outputs);
    mine.foreign.add(&other.foreign);
    mine.nearest |= other.nearest;
    mine.chosen.add(&other.chosen);
    mine.approximate |= other.approximate;
    mine.predicted.add(&other.predicted);
    mine.missing.add(&other.missing);
    mine.held.add(&other.held);
    add_all(&mut mine.members, &other.members);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclude::testing::run;
    use crate::evidence::Note;

    fn merger(evidence: Evidence) -> Merger {
        let mut merger = Merger::default();
        merger.add_evidence(evidence).unwrap();
        merger
    }

    #[test]
    fn a_timer_period_seen_in_one_run_holds_for_all_runs() {
        let timer = "/a:timer(10ms)";
        let mut unseen = run("r1").with_callback(timer, 3);
        unseen.callbacks.get_mut(timer).unwrap().period_ns = None;
        unseen.unknown_periods.insert(timer.into());
        let seen = run("r2").with_callback(timer, 2);
        for (mut all, other) in [(unseen.clone(), seen.clone()), (seen, unseen)] {
            add(&mut all, other);
            assert_eq!(all.unknown_periods, BTreeSet::new());
            assert_eq!(all.callbacks[timer].period_ns, Some(10));
            assert_eq!(all.callbacks[timer].modes["urban"].exec_ns.count(), 5);
        }
    }

    #[test]
    fn runs_of_two_hosts_are_not_merged() {
        let of = |id: &str, host: &str| {
            let mut run = run(id);
            run.runs.get_mut(id).unwrap().host = host.into();
            run
        };
        let mut all = merger(of("r1", "front"));
        // Older recordings do not name their host.
        all.add_evidence(of("r2", "")).unwrap();
        all.add_evidence(of("r3", "front")).unwrap();
        let refused = all.add_evidence(of("r4", "arm"));
        let hosts = ModelMergeError::Hosts("arm".into(), "front".into());
        assert_eq!(refused, Err(hosts));
        assert_eq!(all.all.unwrap().runs.len(), 3);
    }

    #[test]
    fn overlapping_runs_of_two_boots_are_from_two_machines() {
        // (id, boot, start, duration); all hosts have the same name.
        let of = |id: &str, boot: &str, start: u64, duration_ns: u64| {
            let mut run = run(id);
            let frame = run.runs.get_mut(id).unwrap();
            (frame.host, frame.boot) = ("robot".into(), boot.into());
            (frame.start, frame.duration_ns) = (start, duration_ns);
            run
        };
        let mut all = merger(of("r1", "b1", 1000, 100));
        // A later boot, the same boot, and an unknown boot.
        all.add_evidence(of("r2", "b2", 1100, 100)).unwrap();
        all.add_evidence(of("r3", "b1", 1020, 70)).unwrap();
        all.add_evidence(of("r4", "", 1050, 100)).unwrap();
        let refused = all.add_evidence(of("r5", "b3", 1099, 100));
        let boots = ModelMergeError::Boots("r1".into(), "r5".into());
        assert_eq!(refused, Err(boots));
    }

    #[test]
    fn runs_of_one_boot_are_from_one_machine_whatever_its_name() {
        let of = |id: &str, host: &str| {
            let mut run = run(id);
            let frame = run.runs.get_mut(id).unwrap();
            (frame.host, frame.boot) = (host.into(), "b1".into());
            run
        };
        let mut all = merger(of("r1", "front"));
        all.add_evidence(of("r2", "container")).unwrap();
        assert_eq!(all.all.unwrap().runs.len(), 2);
    }

    #[test]
    fn merging_adds_up_notes_and_refuses_a_run_that_is_already_merged() {
        let mut first = run("r1");
        first.note(Note::UnknownHandle, 2);
        let mut all = merger(first);
        let mut other = run("r2");
        other.note(Note::UnknownHandle, u64::MAX);
        all.add_evidence(other).unwrap();
        assert_eq!(
            all.all.as_ref().unwrap().notes[&Note::UnknownHandle],
            u64::MAX,
            "as far as it counts"
        );
        let again = all.add_evidence(run("r2"));
        assert_eq!(again, Err(ModelMergeError::SameRun("r2".into())));
    }
}
