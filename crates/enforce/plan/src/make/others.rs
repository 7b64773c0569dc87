//! What else runs on the threads of the chain's executors: the time that it takes, and the servers that
//! it comes into with these threads.

use super::Maker;
use crate::error::PlanError;
use crate::executors::{room_ns, Group, Other};
use crate::request::Strategy;
use crate::schema::{CallbackRule, Ms, Server};
use crate::scope::{Part, Scope};
use onbeat_document::schema::Callback;
use std::collections::{BTreeMap, BTreeSet};

/// The time by which executions of the chain can be longer than measured.
///
/// Where the chain's slot is what is promised, others run in it too: what came since its last end. Else
/// they run at any time, and what ran beside the chain runs before it. A server per callback has its
/// room in each slot. `fifo` is what is measured to find the bound: it is not refused for want of one.
pub(super) fn added_ns(scope: &Scope<'_>, strategy: Strategy) -> Result<u64, PlanError> {
    let (worst, cycle) = (scope.latency.max(), scope.cycle_ns);
    match strategy {
        Strategy::ServerPerCallback => Ok(0),
        Strategy::ServerPerChain => Ok(room_ns(scope.others.iter(), cycle)),
        _ => {
            let waits = scope.wait_ns();
            // Without a bound, the others' time of a cycle alone is too long.
            let waits = waits.or((strategy == Strategy::Fifo).then_some(0));
            waits.ok_or_else(|| {
                let what = "the chain's worst case and what else its executors run";
                too_long(scope, what, cycle, (worst.saturating_add(cycle), cycle))
            })
        }
    }
}

/// How late the chain's first callback starts behind its release. In slots that are what is promised, others
/// have room before it.
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

/// The error where there is no time for the chain and for others.
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

/// Ids of others, the largest load first.
fn by_load(others: &[Other<'_>]) -> Vec<String> {
    let mut all: Vec<&Callback> = others.iter().map(|o| o.callback).collect();
    all.sort_by(|a, b| b.figures.load.total_cmp(&a.figures.load));
    all.into_iter().map(|c| c.id.clone()).collect()
}

impl<'m> Maker<'_, 'm> {
    /// Whether threads of the chain run what may not wait for the chain's slot: all but feeders in
    /// nodes of the chain, which wait for its data anyway.
    pub(super) fn runs_others(&self) -> bool {
        let feeders = self.scope.feeders();
        let in_node = |c: &Callback| {
            let mut parts = self.scope.parts.iter();
            parts.any(|p| p.callback.node == c.node)
        };
        let joins = |c: &Callback| feeders.iter().any(|f| f.id == c.id) && in_node(c);
        self.scope.others.iter().any(|o| !joins(o.callback))
    }

    /// The time that others take in slots of this executor, in each cycle.
    pub(super) fn room_ns(&self, group: Group<'m>) -> u64 {
        let others = self.scope.others.iter().filter(|o| o.group == group);
        room_ns(others, self.scope.cycle_ns)
    }

    /// Adds to each server what else runs on its threads. These callbacks are not waited for. Refuses
    /// executors that belong to two servers.
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
