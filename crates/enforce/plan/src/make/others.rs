//! Plans the other callbacks on the threads of the chain's executors: the time that they take, and
//! the servers that they join.

use super::Maker;
use crate::error::PlanError;
use crate::executors::{room_ns, Group, Other};
use crate::request::Strategy;
use crate::schema::{CallbackRule, Ms, Server};
use crate::scope::{Part, Scope};
use onbeat_document::schema::Callback;
use std::collections::{BTreeMap, BTreeSet};

/// Returns by how many ns executions of the chain can be longer than measured, because of other
/// callbacks.
///
/// If the promises depend on one slot of the whole chain, the other callbacks run in this slot too.
/// In the slot they run all executions that became ready since the slot's last end. With most other
/// strategies, the other callbacks run at any time, so callbacks that ran beside the chain may now
/// run before it. With a server per callback, each slot already has room for the other callbacks. A
/// plan with `fifo` is made even if no bound exists, because measuring under `fifo` finds the
/// bound.
pub(super) fn added_ns(scope: &Scope<'_>, strategy: Strategy) -> Result<u64, PlanError> {
    let (worst, cycle) = (scope.latency.max(), scope.cycle_ns);
    match strategy {
        Strategy::ServerPerCallback => Ok(0),
        Strategy::ServerPerChain => Ok(room_ns(scope.others.iter(), cycle)),
        _ => {
            let waits = scope.wait_ns();
            // Without a bound, a whole cycle for the others is too long in any case.
            let waits = waits.or((strategy == Strategy::Fifo).then_some(0));
            waits.ok_or_else(|| {
                let what =
                    "the chain's worst-case latency and the other callbacks on its executors";
                too_long(scope, what, cycle, (worst.saturating_add(cycle), cycle))
            })
        }
    }
}

/// Returns the delay from the release of the chain's first callback to its start, in ns. It is 0 if
/// inputs are throttled, or if the strategy's promises depend on the chain's slots, because these
/// slots have room for other callbacks.
pub(super) fn late_ns(scope: &Scope<'_>, strategy: Strategy) -> u64 {
    match strategy {
        _ if strategy.is_about_slots() || !scope.inputs.is_empty() => 0,
        _ => {
            let origin = |p: &&Part<'_>| p.callback.id == scope.origin.id;
            let cpu = scope.parts.iter().find(origin).map_or(0, |p| p.cpu);
            let delay =
                scope
                    .executors
                    .start_delay_ns((scope.origin, cpu), &scope.others, scope.cycle_ns);
            let cpus = BTreeSet::from([cpu]);
            let delay = delay.unwrap_or(0);
            let beside = scope.beside.wait_ns(&cpus, delay, scope.cycle_ns);
            delay.saturating_add(beside.unwrap_or(scope.cycle_ns))
        }
    }
}

pub(super) fn too_long(
    scope: &Scope<'_>,
    what: &str,
    added_ns: u64,
    (need_ns, have_ns): (u64, u64),
) -> PlanError {
    PlanError::SharedTooLong {
        what: what.into(),
        need: Ms(need_ns),
        have: Ms(have_ns),
        added: Ms(added_ns),
        others: by_load(&scope.others),
    }
}

fn by_load(others: &[Other<'_>]) -> Vec<String> {
    let mut all: Vec<&Callback> = others.iter().map(|o| o.callback).collect();
    all.sort_by(|a, b| b.figures.load.total_cmp(&a.figures.load));
    all.into_iter().map(|c| c.id.clone()).collect()
}

impl<'m> Maker<'_, 'm> {
    /// Reports whether threads of the chain run callbacks that must not wait until the chain's
    /// slot. Feeders in the chain's nodes do not count. They may run in the chain's slot, because
    /// their output is used only together with the chain's data.
    pub(super) fn runs_others(&self) -> bool {
        let feeders = self.scope.feeders();
        let in_node = |c: &Callback| {
            let mut parts = self.scope.parts.iter();
            parts.any(|p| p.callback.node == c.node)
        };
        let joins = |c: &Callback| feeders.iter().any(|f| f.id == c.id) && in_node(c);
        self.scope.others.iter().any(|o| !joins(o.callback))
    }

    pub(super) fn room_ns(&self, group: Group<'m>) -> u64 {
        let others = self.scope.others.iter().filter(|o| o.group == group);
        room_ns(others, self.scope.cycle_ns)
    }

    /// Adds to each server the other callbacks that run on its threads. Returns rules that make
    /// these callbacks optional, so that shaping does not wait for them. Refuses executors that
    /// belong to two servers.
    pub(super) fn adopt(&self, servers: &mut [Server]) -> Result<Vec<CallbackRule>, PlanError> {
        let model = self.scope.model;
        let named = |id: &String| model.callbacks.iter().find(|c| c.id == *id);
        let mut owners: BTreeMap<Group<'m>, (usize, &'m Callback)> = BTreeMap::new();
        for (i, server) in servers.iter().enumerate() {
            for callback in server.callbacks.iter().filter_map(named) {
                let group = self.scope.executors.of(callback);
                let (owner, first) = *owners.entry(group).or_insert((i, callback));
                if owner != i {
                    return Err(PlanError::SharedExecutor {
                        first: first.id.clone(),
                        second: callback.id.clone(),
                        servers: Box::new([servers[owner].name.clone(), server.name.clone()]),
                    });
                }
            }
        }
        let mut rules = Vec::new();
        for (group, (owner, _)) in owners {
            let callbacks = &mut servers[owner].callbacks;
            for other in self.scope.executors.members(group) {
                if !callbacks.contains(&other.id) {
                    callbacks.push(other.id.clone());
                    rules.push(CallbackRule {
                        id: other.id.clone(),
                        required: false,
                    });
                }
            }
        }
        Ok(rules)
    }
}
