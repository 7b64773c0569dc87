//! Lists the callbacks, edges, junctions and chains that exist in each mode (thesis section 3.6,
//! Figure 3.7).

use crate::schema::{Callback, CallbackType, Edge, Junction, Model};
use crate::titles::titles;
use std::collections::{BTreeMap, BTreeSet};

/// The kind of a part of a model.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Callback,
    Edge,
    Junction,
    Chain,
}

impl Part {
    /// Returns the name of the kind in lower case, for example `edge`.
    pub fn text(self) -> &'static str {
        match self {
            Part::Callback => "callback",
            Part::Edge => "edge",
            Part::Junction => "junction",
            Part::Chain => "chain",
        }
    }
}

/// A part of a model, with the modes in which it exists.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    pub part: Part,
    /// The id of the part. An edge's id is `FROM -> TO TOPIC`, a junction's is the id of its
    /// callback.
    pub id: String,
    /// The name of the part for users. It is untrusted.
    pub title: String,
    /// The count per mode: executions of a callback or chain, items taken over an edge, or active
    /// inputs of a junction. Zero means that the part does not exist in the mode.
    pub counts: BTreeMap<String, u64>,
}

impl Presence {
    /// Reports whether the part exists in at least one mode and is missing in another.
    pub fn differs(&self) -> bool {
        let there = self.counts.values().filter(|n| **n > 0).count();
        0 < there && there < self.counts.len()
    }
}

/// Lists all parts of a model, callbacks first, with the modes in which each exists.
pub fn presence(model: &Model) -> Vec<Presence> {
    let modes: BTreeSet<&str> = model.runs.iter().map(|r| r.mode.as_str()).collect();
    let taken = |edge: &Edge, mode: &str| {
        let figures = model.figures_of(Some(mode), &edge.figures, &edge.modes);
        figures.map_or(0, |f| f.taken)
    };
    let count = |of: &dyn Fn(&str) -> u64| {
        let counts = modes.iter().map(|mode| (mode.to_string(), of(mode)));
        counts.collect::<BTreeMap<_, _>>()
    };
    let inputs = |junction: &Junction, mode: &str| {
        let mut edges = model.edges.iter().filter(|e| taken(e, mode) > 0);
        let gives = |id: &&String| edges.any(|e| e.from == **id && e.to == junction.callback);
        match junction.inputs.iter().filter(gives).count() {
            // A junction needs more than one active input.
            0 | 1 => 0,
            n => n as u64,
        }
    };
    let ran = |c: &Callback, mode: &str| match c.kind {
        CallbackType::Sync => {
            let mut junctions = model.junctions.iter().filter(|j| j.callback == c.id);
            u64::from(junctions.any(|j| inputs(j, mode) > 0))
        }
        _ => {
            let figures = model.figures_of(Some(mode), &c.figures, &c.modes);
            figures.map_or(0, |f| f.executions())
        }
    };
    let part = |part, id: &str, title: String, counts| Presence {
        part,
        id: id.to_string(),
        title,
        counts,
    };
    let mut all = Vec::new();
    for c in &model.callbacks {
        all.push(part(
            Part::Callback,
            &c.id,
            c.id.clone(),
            count(&|m| ran(c, m)),
        ));
    }
    for e in &model.edges {
        let id = format!("{} -> {} {}", e.from, e.to, e.topic);
        all.push(part(Part::Edge, &id, id.clone(), count(&|m| taken(e, m))));
    }
    for j in &model.junctions {
        let counts = count(&|m| inputs(j, m));
        all.push(part(
            Part::Junction,
            &j.callback,
            j.callback.clone(),
            counts,
        ));
    }
    for (chain, title) in model.chains.iter().zip(titles(model)) {
        let executions = |mode: &str| {
            let figures = model.figures_of(Some(mode), &chain.figures, &chain.modes);
            figures.map_or(0, |f| f.executions)
        };
        all.push(part(Part::Chain, &chain.id, title, count(&executions)));
    }
    all
}
