//! Compares the structure of two models: callbacks, edges, junctions, chains and QoS settings that
//! were added, removed or changed.

use crate::qos;
use crate::rows::ChainsByWay;
use onbeat_document::schema::{
    Callback, Chain, Edge, Identity, Junction, JunctionKind, JunctionState, Model,
};
use onbeat_document::titles::titles;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The kinds of parts that a model consists of.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A callback: its type, its threads, the topics that it publishes, and whether it ran.
    Callback,
    Edge,
    /// A point at which a callback takes items of several inputs: one of each (AND), or any (OR).
    Junction,
    Chain,
    /// The QoS settings of a node's publishers or subscriptions on a topic.
    Qos,
}

impl Part {
    /// Returns the kind of part in words.
    pub fn text(self) -> &'static str {
        match self {
            Part::Callback => "callback",
            Part::Edge => "edge",
            Part::Junction => "junction",
            Part::Chain => "chain",
            Part::Qos => "QoS",
        }
    }
}

/// The kind of difference between the two models.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Added,
    Removed,
    /// Both models have the part, with different properties.
    Changed,
}

impl What {
    /// Returns the kind of difference in words.
    pub fn text(self) -> &'static str {
        match self {
            What::Added => "added",
            What::Removed => "removed",
            What::Changed => "changed",
        }
    }
}

/// A difference in the structure of two models.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    pub part: Part,
    pub what: What,
    /// The id of the part, or the ends of an edge (untrusted).
    pub id: String,
    /// The readable name of the part that differs (untrusted).
    pub title: String,
    /// The properties that differ, in words; empty if the whole part was added or removed without
    /// details.
    pub why: String,
    /// The callback or edge whose addition or removal explains this difference of an edge, junction
    /// or chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
}

/// Returns the differences, with causes before their consequences, and sentences on what cannot be
/// compared.
pub fn compare(a: &Model, b: &Model) -> (Vec<Difference>, Vec<String>) {
    let mut found = Vec::new();
    callbacks(a, b, &mut found);
    let causes = Causes::of(&found);
    edges(a, b, &causes, &mut found);
    let causes = Causes::of(&found);
    let open = junctions(a, b, &causes, &mut found);
    chains(a, b, &causes, &mut found);
    let (changed, unseen) = qos::changes(a, b);
    found.extend(changed.into_iter().map(|(id, why)| Difference {
        part: Part::Qos,
        what: What::Changed,
        title: id.clone(),
        id,
        why,
        follows: None,
    }));
    found.sort_by_key(|d| (d.follows.is_some(), d.part, d.what, d.id.clone()));
    let mut notes = notes(a, b, open);
    notes.extend(unseen);
    (found, notes)
}

fn notes(a: &Model, b: &Model, open: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if open > 0 {
        notes.push(format!(
            "{open} junctions were not compared, because they are ambiguous in one of the models."
        ));
    }
    let guessed = |m: &Model| {
        m.callbacks
            .iter()
            .filter(|c| c.identity == Identity::Guessed)
            .count()
    };
    let guessed = guessed(a).max(guessed(b));
    if guessed > 0 {
        notes.push(format!(
            "{guessed} callbacks are named after their process, because their node is unknown. These callbacks may have other names in the other model."
        ));
    }
    notes
}

struct Causes {
    ids: BTreeSet<String>,
}

impl Causes {
    fn of(found: &[Difference]) -> Causes {
        let ids = found
            .iter()
            .filter(|d| d.what != What::Changed)
            .map(|d| d.id.clone());
        Causes { ids: ids.collect() }
    }

    fn among<'i>(&self, mut ids: impl Iterator<Item = &'i String>) -> Option<String> {
        ids.find(|id| self.ids.contains(*id)).cloned()
    }
}

fn pair<'m, T>(
    a: &'m [T],
    b: &'m [T],
    id: impl Fn(&T) -> String,
) -> BTreeMap<String, (Option<&'m T>, Option<&'m T>)> {
    let mut all: BTreeMap<String, (Option<&T>, Option<&T>)> = BTreeMap::new();
    a.iter()
        .for_each(|it| all.entry(id(it)).or_default().0 = Some(it));
    b.iter()
        .for_each(|it| all.entry(id(it)).or_default().1 = Some(it));
    all
}

fn callbacks(a: &Model, b: &Model, found: &mut Vec<Difference>) {
    for (id, both) in pair(&a.callbacks, &b.callbacks, |c| c.id.clone()) {
        let difference = |what, why: String| Difference {
            part: Part::Callback,
            what,
            title: id.clone(),
            id: id.clone(),
            why,
            follows: None,
        };
        match both {
            (Some(a), Some(b)) => {
                let why = callback(a, b);
                if !why.is_empty() {
                    found.push(difference(What::Changed, why.join("; ")));
                }
            }
            (Some(a), None) => found.push(difference(What::Removed, executions(a))),
            (None, Some(b)) => found.push(difference(What::Added, executions(b))),
            (None, None) => {}
        }
    }
}

fn executions(c: &Callback) -> String {
    format!("{} executions", c.figures.executions())
}

fn callback(a: &Callback, b: &Callback) -> Vec<String> {
    let mut why = Vec::new();
    if a.kind != b.kind {
        why.push(
            "the callback is now of another kind (timer, subscription, service, client)".into(),
        );
    }
    let scheduled = |c: &Callback| -> BTreeSet<String> {
        let policies = c.threads.iter().filter(|t| t.policy != "unknown");
        policies
            .map(|t| format!("{} {}", t.policy, t.priority))
            .collect()
    };
    let (before, now) = (scheduled(a), scheduled(b));
    if before != now && !before.is_empty() && !now.is_empty() {
        why.push(format!(
            "the callback's threads now run as {} instead of {}",
            list(&now),
            list(&before)
        ));
    }
    let ran = |c: &Callback| c.figures.executions() > 0;
    match (ran(a), ran(b)) {
        (true, false) => why.push(format!(
            "the callback does not run in the second model; in the first model, it had {}",
            executions(a)
        )),
        (false, true) if a.kind == b.kind => why.push(format!(
            "the callback does not run in the first model; in the second model, it has {}",
            executions(b)
        )),
        _ => {}
    }
    let outputs = |c: &Callback| c.outputs.iter().cloned().collect::<BTreeSet<String>>();
    let (before, now) = (outputs(a), outputs(b));
    let (new, gone) = (&now - &before, &before - &now);
    if !new.is_empty() {
        why.push(format!("the callback now also publishes {}", list(&new)));
    }
    if !gone.is_empty() {
        why.push(format!("the callback no longer publishes {}", list(&gone)));
    }
    why
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().cloned().collect::<Vec<_>>().join(", ")
}

fn edges(a: &Model, b: &Model, causes: &Causes, found: &mut Vec<Difference>) {
    for (id, both) in pair(&a.edges, &b.edges, edge_id) {
        let difference = |e: &Edge, what, why: String| Difference {
            part: Part::Edge,
            what,
            title: id.clone(),
            id: id.clone(),
            why,
            follows: match what {
                What::Changed => None,
                _ => causes.among([&e.to, &e.from].into_iter()),
            },
        };
        match both {
            (Some(a), Some(b)) if a.intra_process != b.intra_process => {
                let way = |e: &Edge| {
                    if e.intra_process {
                        "within the process"
                    } else {
                        "through the middleware"
                    }
                };
                let why = format!(
                    "the edge's items are now transported {} instead of {}",
                    way(b),
                    way(a)
                );
                found.push(difference(b, What::Changed, why));
            }
            (Some(_), Some(_)) | (None, None) => {}
            (Some(a), None) => found.push(difference(a, What::Removed, items(a))),
            (None, Some(b)) => found.push(difference(b, What::Added, items(b))),
        }
    }
}

fn items(e: &Edge) -> String {
    format!("{} items", e.figures.taken)
}

pub fn edge_id(e: &Edge) -> String {
    format!("{} -> {} over {}", e.from, e.to, e.topic)
}

/// Compares the junctions whose kind is decided in both models, and adds the differences to
/// `found`. Returns the number of the other junctions, which are ambiguous in at least one model.
fn junctions(a: &Model, b: &Model, causes: &Causes, found: &mut Vec<Difference>) -> usize {
    let kind = |j: &Junction| match j.kind {
        JunctionKind::And => "AND",
        JunctionKind::Or => "OR",
    };
    let mut open = 0;
    for (id, both) in pair(&a.junctions, &b.junctions, |j| j.callback.clone()) {
        let ambiguous = |j: &&Junction| j.state == JunctionState::Ambiguous;
        if both.0.iter().chain(both.1.iter()).any(ambiguous) {
            open += 1;
            continue;
        }
        let (what, why, any) = match both {
            (Some(a), Some(b)) if a.kind != b.kind => (
                What::Changed,
                format!("the junction is now {} instead of {}", kind(b), kind(a)),
                b,
            ),
            (Some(a), Some(b)) if a.inputs != b.inputs => (
                What::Changed,
                format!(
                    "the junction's inputs are now {} instead of {}",
                    b.inputs.join(", "),
                    a.inputs.join(", ")
                ),
                b,
            ),
            (Some(a), None) => (
                What::Removed,
                format!("{} of {}", kind(a), a.inputs.join(", ")),
                a,
            ),
            (None, Some(b)) => (
                What::Added,
                format!("{} of {}", kind(b), b.inputs.join(", ")),
                b,
            ),
            _ => continue,
        };
        let mut others: Vec<&String> = vec![&any.callback];
        for j in [both.0, both.1].into_iter().flatten() {
            others.extend(&j.inputs);
        }
        let follows = causes.among(others.into_iter());
        found.push(Difference {
            part: Part::Junction,
            what,
            title: id.clone(),
            id,
            why,
            follows,
        });
    }
    open
}

fn chains(a: &Model, b: &Model, causes: &Causes, found: &mut Vec<Difference>) {
    let mut only = |mine: &Model, other: &Model, what| {
        let others = ChainsByWay::of(other);
        for (chain, title) in mine.chains.iter().zip(titles(mine)) {
            if others.same(chain).is_some() {
                continue;
            }
            found.push(Difference {
                part: Part::Chain,
                what,
                id: chain.id.clone(),
                title,
                why: format!("{} executions", chain.figures.executions),
                follows: chain_cause(chain, causes),
            });
        }
    };
    only(a, b, What::Removed);
    only(b, a, What::Added);
}

/// Returns the callback or edge whose addition or removal explains the addition or removal of a
/// chain. A callback that was added at an end of the chain also explains it.
fn chain_cause(chain: &Chain, causes: &Causes) -> Option<String> {
    let edges = chain.callbacks.windows(2).zip(&chain.topics);
    let edges: Vec<String> = edges
        .map(|(pair, topic)| format!("{} -> {} over {topic}", pair[0], pair[1]))
        .collect();
    let own = causes.among(chain.callbacks.iter().chain(&edges));
    own.or_else(|| {
        let last = chain.callbacks.last()?;
        let first = chain.callbacks.first()?;
        let behind = |id: &&String| {
            id.starts_with(&format!("{last} -> ")) || id.contains(&format!(" -> {first} over "))
        };
        causes.ids.iter().find(behind).cloned()
    })
}
