//! Models of single runs to a model of many: associative, commutative, and the same as modelling
//! all runs at once.
//!
//! A model is taken back to its evidence, evidence is added up, and the conclusions are drawn anew
//! (see `conclude`), so the order of merging does not matter.

pub use crate::conclude::{RecoverError, REDACTED};

use crate::conclude::{conclude, recover};
use crate::evidence::{add_all, total, unite_threads, Evidence, Figures, Note, SyncEvidence};
use crate::schema::{Bracket, Callback, Edge, Model, Run};
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
    /// Runs of two hosts: the same names there are other callbacks, and their clocks differ.
    #[error("the runs are of two hosts, '{0}' and '{1}': if they were recorded at one time, join them with `onbeat model --join`; else make a model for each")]
    Hosts(String, String),
    /// Two runs at one time on two boots: no machine has two at once, whatever its name.
    #[error("the runs '{0}' and '{1}' were recorded at one time, after two different boots, so by two machines of one name: a model is of one; make one for each (if it is one machine whose clock was set back, remove `boot` of one run)")]
    Boots(String, String),
    /// Their nodes are named by different rules.
    #[error("the models name nodes by different rules ({0} and {1}): make them with the same --normalise")]
    NameRules(String, String),
    /// A model is damaged.
    #[error(transparent)]
    Damaged(#[from] RecoverError),
    /// No run of that mode.
    #[error("no run of the model is of mode '{mode}'; it has {known}")]
    NoSuchMode {
        /// What was asked for.
        mode: String,
        /// Modes that the model has.
        known: String,
    },
}

/// Merges models. The result does not depend on their order.
pub fn merge(models: Vec<Model>) -> Result<Model, ModelMergeError> {
    let mut models = models.into_iter();
    let mut all = recover(models.next().ok_or(ModelMergeError::Empty)?)?;
    for model in models {
        add(&mut all, recover(model)?)?;
    }
    Ok(conclude(all))
}

/// The part of a model that its runs of one mode show.
pub fn filter_mode(model: Model, mode: &str) -> Result<Model, ModelMergeError> {
    let mut evidence = recover(model)?;
    let known: BTreeSet<&str> = evidence.runs.values().map(|r| r.mode.as_str()).collect();
    if !known.contains(mode) {
        return Err(ModelMergeError::NoSuchMode {
            mode: mode.into(),
            known: known.into_iter().collect::<Vec<_>>().join(", "),
        });
    }
    /// Keeps one mode; false if there is nothing of it.
    fn keep<F>(modes: &mut BTreeMap<String, F>, mode: &str) -> bool {
        modes.retain(|m, _| m == mode);
        !modes.is_empty()
    }
    evidence.runs.retain(|_, r| r.mode == mode);
    let runs = &evidence.runs;
    evidence.callbacks.retain(|_, c| {
        c.per_run.retain(|id, _| runs.contains_key(id));
        keep(&mut c.modes, mode)
    });
    evidence.edges.retain(|_, e| keep(&mut e.modes, mode));
    evidence.paths.retain(|_, p| {
        p.per_run.retain(|id, _| runs.contains_key(id));
        keep(&mut p.modes, mode)
    });
    evidence.together.retain(|id, _| runs.contains_key(id));
    evidence.actions.retain(|_, modes| keep(modes, mode));
    evidence.lost.retain(|_, modes| keep(modes, mode));
    evidence.dropped.retain(|_, modes| keep(modes, mode));
    Ok(conclude(evidence))
}

/// The same model with all its runs taken as of one mode.
pub fn set_mode(model: Model, mode: &str) -> Result<Model, ModelMergeError> {
    fn unite<F: Figures>(modes: &mut BTreeMap<String, F>, mode: &str) {
        *modes = BTreeMap::from([(mode.to_string(), total(modes))]);
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
    let actions = evidence.actions.values_mut();
    actions.for_each(|modes| unite(modes, mode));
    let counted = evidence
        .lost
        .values_mut()
        .chain(evidence.dropped.values_mut());
    counted.for_each(|modes| unite(modes, mode));
    Ok(conclude(evidence))
}

/// The error of two runs that are of two hosts. Those of which it is not known are of any; those of
/// one boot are of one machine, whatever it was called.
fn two_hosts(a: &Run, b: &Run) -> Option<ModelMergeError> {
    let known = |of: fn(&Run) -> &String| !of(a).is_empty() && !of(b).is_empty();
    let boots = known(|r| &r.boot);
    if boots && a.boot == b.boot {
        return None;
    }
    if known(|r| &r.host) && a.host != b.host {
        let (a, b) = (
            a.host.clone().min(b.host.clone()),
            a.host.clone().max(b.host.clone()),
        );
        return Some(ModelMergeError::Hosts(a, b));
    }
    let until = |r: &Run| r.start.saturating_add(r.duration_ns);
    let at_once = a.start < until(b) && b.start < until(a);
    let (a, b) = (
        a.id.clone().min(b.id.clone()),
        a.id.clone().max(b.id.clone()),
    );
    (boots && at_once).then_some(ModelMergeError::Boots(a, b))
}

/// The user's rules for node names, as a text.
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

/// Adds what other runs have shown.
fn add(all: &mut Evidence, other: Evidence) -> Result<(), ModelMergeError> {
    for run in all.runs.values() {
        if let Some(error) = other.runs.values().find_map(|o| two_hosts(run, o)) {
            return Err(error);
        }
    }
    let (mine, others) = (name_rules(all), name_rules(&other));
    if mine != others {
        return Err(ModelMergeError::NameRules(mine, others));
    }
    for (id, run) in other.runs {
        if all.runs.contains_key(&id) {
            return Err(ModelMergeError::SameRun(id));
        }
        all.runs.insert(id, run);
    }
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
    for (name, modes) in other.actions {
        add_all(all.actions.entry(name).or_default(), &modes);
    }
    for (key, path) in other.paths {
        let mine = all.paths.entry(key).or_default();
        add_all(&mut mine.outputs, &path.outputs);
        add_all(&mut mine.per_run, &path.per_run);
        add_all(&mut mine.modes, &path.modes);
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
    Ok(())
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
    // What one run shows is not assumed.
    mine.assumed = mine.assumed.zip(other.assumed).map(|(a, b)| a.max(b));
    mine.intra_process |= other.intra_process;
    add_all(&mut mine.modes, &other.modes);
}

fn add_sync(mine: &mut SyncEvidence, other: SyncEvidence) {
    mine.outputs.add(&other.outputs);
    mine.foreign.add(&other.foreign);
    mine.nearest |= other.nearest;
    mine.chosen.add(&other.chosen);
    add_all(&mut mine.members, &other.members);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclude::testing::run;
    use crate::evidence::Note;

    #[test]
    fn a_period_that_one_run_has_seen_holds_for_all() {
        let timer = "/a:timer(10ms)";
        let mut unseen = run("r1").with_callback(timer, 3);
        unseen.callbacks.get_mut(timer).unwrap().period_ns = None;
        unseen.unknown_periods.insert(timer.into());
        let seen = run("r2").with_callback(timer, 2);
        for (mut all, other) in [(unseen.clone(), seen.clone()), (seen, unseen)] {
            add(&mut all, other).unwrap();
            assert_eq!(all.unknown_periods, BTreeSet::new());
            assert_eq!(all.callbacks[timer].period_ns, Some(10));
            assert_eq!(all.callbacks[timer].modes["urban"].exec_ns.count(), 5);
        }
    }

    #[test]
    fn runs_of_two_hosts_are_not_of_one_model() {
        let of = |id: &str, host: &str| {
            let mut run = run(id);
            run.runs.get_mut(id).unwrap().host = host.into();
            run
        };
        let mut all = of("r1", "front");
        // Older recordings do not say.
        add(&mut all, of("r2", "")).unwrap();
        add(&mut all, of("r3", "front")).unwrap();
        let refused = add(&mut all, of("r4", "arm"));
        let hosts = ModelMergeError::Hosts("arm".into(), "front".into());
        assert_eq!(refused, Err(hosts));
        assert_eq!(all.runs.len(), 3);
    }

    #[test]
    fn what_two_boots_recorded_at_once_is_of_two_machines() {
        // (id, boot, start, duration): all of hosts with one name.
        let of = |id: &str, boot: &str, start: u64, duration_ns: u64| {
            let mut run = run(id);
            let frame = run.runs.get_mut(id).unwrap();
            (frame.host, frame.boot) = ("robot".into(), boot.into());
            (frame.start, frame.duration_ns) = (start, duration_ns);
            run
        };
        let mut all = of("r1", "b1", 1000, 100);
        // Started anew since; the same boot; not known.
        add(&mut all, of("r2", "b2", 1100, 100)).unwrap();
        add(&mut all, of("r3", "b1", 1020, 70)).unwrap();
        add(&mut all, of("r4", "", 1050, 100)).unwrap();
        let refused = add(&mut all, of("r5", "b3", 1099, 100));
        let boots = ModelMergeError::Boots("r1".into(), "r5".into());
        assert_eq!(refused, Err(boots));
    }

    #[test]
    fn one_boot_is_one_machine_whatever_it_is_called() {
        let of = |id: &str, host: &str| {
            let mut run = run(id);
            let frame = run.runs.get_mut(id).unwrap();
            (frame.host, frame.boot) = (host.into(), "b1".into());
            run
        };
        let mut all = of("r1", "front");
        add(&mut all, of("r2", "container")).unwrap();
        assert_eq!(all.runs.len(), 2);
    }

    #[test]
    fn notes_add_up_and_runs_stay_apart() {
        let mut all = run("r1");
        all.note(Note::UnknownHandle, 2);
        let mut other = run("r2");
        other.note(Note::UnknownHandle, u64::MAX);
        add(&mut all, other).unwrap();
        assert_eq!(
            all.notes[&Note::UnknownHandle],
            u64::MAX,
            "as far as it counts"
        );
        let again = add(&mut all, run("r2"));
        assert_eq!(again, Err(ModelMergeError::SameRun("r2".into())));
    }
}
