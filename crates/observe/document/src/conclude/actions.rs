//! The callbacks, servers and clients that belong to each action.

use super::graph::Graph;
use crate::evidence::{total, Evidence};
use crate::schema::{Action, Callback, CallbackType};

pub(super) fn actions(evidence: &Evidence, graph: &Graph) -> Vec<Action> {
    let actions = evidence.actions.iter();
    actions
        .map(|(name, modes)| {
            let prefix = format!("{name}/_action/");
            let all = graph.callbacks.values();
            let own: Vec<&Callback> = all
                .filter(|c| c.input.starts_with(&prefix) || is_execution(c, name))
                .collect();
            let nodes = |server: bool| {
                let of_side = own.iter().filter(|c| is_server(c) == server);
                let mut nodes: Vec<String> = of_side.map(|c| c.node.clone()).collect();
                nodes.sort();
                nodes.dedup();
                nodes
            };
            Action {
                name: name.clone(),
                servers: nodes(true),
                clients: nodes(false),
                callbacks: own.iter().map(|c| c.id.clone()).collect(),
                figures: total(modes),
                modes: modes.clone(),
            }
        })
        .collect()
}

fn is_execution(c: &Callback, action: &str) -> bool {
    c.kind == CallbackType::Task && c.input == action
}

fn is_server(c: &Callback) -> bool {
    matches!(c.kind, CallbackType::Service | CallbackType::Task)
}
