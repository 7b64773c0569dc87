//! Turns evidence into a model: groups that wait for one another, chains, and steady periods. It
//! uses evidence alone, so one run and fifty give conclusions in the same way.

mod actions;
mod alike;
mod chains;
mod ends;
mod executors;
mod graph;
mod groups;
mod junctions;
mod paths;
mod recover;
mod sentences;
#[cfg(test)]
pub mod testing;

pub(crate) use recover::recover;
pub use recover::{RecoverError, REDACTED};

use crate::evidence::{Evidence, Hidden};
use crate::schema::{Chain, Model, Run, SCHEMA};
use graph::Graph;
use groups::{decide, Groups};
use std::collections::BTreeSet;

/// Makes a model from the evidence. [`recover`] returns the evidence of a model.
pub fn conclude(mut evidence: Evidence) -> Model {
    let decided = decide(&evidence);
    let groups = Groups::of(&decided);
    let mut hidden = Hidden::default();
    let graph = Graph::of(&mut evidence, &groups, &mut hidden);
    let junctions = junctions::junctions(&groups, &graph);
    let chains = chains::chains(&mut evidence, &groups, &graph, &mut hidden);
    let end_to_end = ends::end_to_end(&mut evidence, &groups, &graph, &chains, &mut hidden);
    let actions = actions::actions(&evidence, &graph);
    let executors = executors::executors(&evidence, &graph);
    let (assumptions, coverage) = sentences::sentences(&evidence, &groups, &graph, &junctions);
    let mut coverage = coverage;
    coverage.extend(crossed(&chains));
    coverage.sort();
    let endpoints = std::mem::take(&mut evidence.endpoints).into_iter();
    let endpoints = endpoints.map(|(key, qos)| key.endpoint(qos)).collect();
    let helpers = std::mem::take(&mut evidence.helpers).into_iter();
    let helpers = helpers.map(|(key, of)| key.helper(of)).collect();
    let mut model = Model {
        schema: SCHEMA.into(),
        runs: std::mem::take(&mut evidence.runs).into_values().collect(),
        callbacks: graph.callbacks.into_values().collect(),
        edges: graph.edges.into_values().collect(),
        junctions,
        chains,
        end_to_end,
        actions,
        executors,
        endpoints,
        helpers,
        assumptions,
        coverage,
        evidence: serde_json::Value::Null,
    };
    if model.runs.len() <= 1 {
        // With a single run, the totals are that run's figures.
        model.chains.iter_mut().for_each(|c| c.per_run.clear());
        hidden.paths.iter_mut().for_each(|p| p.per_run.clear());
    }
    hidden.keep(evidence);
    // A struct of maps with text keys always has a JSON value.
    model.evidence = serde_json::to_value(hidden).unwrap_or_default();
    if modes(model.runs.iter()).len() <= 1 {
        leave_out_modes(&mut model);
    }
    model
}

fn crossed(chains: &[Chain]) -> Option<String> {
    let crossed: u64 = chains.iter().map(|c| c.figures.crossed).sum();
    let over = chains.iter().filter(|c| c.figures.crossed > 0).count();
    let chains = match over {
        0 => return None,
        1 => "one chain".to_string(),
        n => format!("{n} chains"),
    };
    let executions = match crossed {
        1 => "One execution".to_string(),
        n => format!("{n} executions"),
    };
    Some(format!(
        "{executions} of {chains} began in one mode and ended in another: each counts in the mode where it began."
    ))
}

fn modes<'a>(runs: impl Iterator<Item = &'a Run>) -> BTreeSet<&'a str> {
    runs.map(|r| r.mode.as_str()).collect()
}

fn leave_out_modes(model: &mut Model) {
    model.edges.iter_mut().for_each(|e| e.modes.clear());
    model.callbacks.iter_mut().for_each(|c| c.modes.clear());
    model.chains.iter_mut().for_each(|c| c.modes.clear());
    model.end_to_end.iter_mut().for_each(|e| e.modes.clear());
    model.actions.iter_mut().for_each(|a| a.modes.clear());
}
