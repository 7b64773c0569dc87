//! Plans a chain beside other plans that are enforced at the same time, each with its own origin
//! and cycle.
//!
//! The phase between the cycles is known only at run time, so nothing here depends on it. The new
//! plan yields to the others. On a CPU that they share its priority is lower, so that the promises
//! of the others hold unchanged. The most time that the others take within any interval is added to
//! the new chain's worst case.
//!
//! Threads that both plans need belong to the servers of the first plan. These servers must be open
//! at all times: the union of both plans' slots at any phase.

use crate::error::PlanError;
use crate::executors::{Executors, Group, Other};
use crate::request::Request;
use crate::schema::{Plan, Server};
use onbeat_document::schema::Callback;
use onbeat_document::Model;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Beside<'m> {
    pub(crate) others: Vec<Other<'m>>,
    /// The executors whose threads are in servers of the plans beside this one, each with the CPU
    /// of its server.
    owned: BTreeMap<Group<'m>, u16>,
    pub(crate) shares: BTreeMap<u16, f64>,
}

fn is_open(server: &Server, plan: &Plan) -> bool {
    let whole = |s: &crate::schema::Slot| s.1 .0.saturating_sub(s.0 .0) >= plan.cycle_ms.0;
    server.slots_ms.is_empty() || server.slots_ms.iter().any(whole)
}

impl<'m> Beside<'m> {
    pub(crate) fn new(
        model: &'m Model,
        executors: &Executors<'m>,
        ours: &[&'m Callback],
        request: &Request,
    ) -> Result<Self, PlanError> {
        let mut beside = Beside::default();
        let wanted: BTreeSet<Group<'m>> = ours.iter().map(|c| executors.of(c)).collect();
        for plan in &request.beside {
            let in_chain = |id: &str| {
                plan.chains
                    .iter()
                    .any(|c| c.callbacks.iter().any(|i| i == id))
            };
            if let Some(common) = ours.iter().find(|c| in_chain(&c.id)) {
                return Err(PlanError::Common {
                    callback: common.id.clone(),
                });
            }
            for (&cpu, &share) in &plan.promises.utilisation {
                *beside.shares.entry(cpu).or_default() += share;
            }
            for server in &plan.servers {
                for id in &server.callbacks {
                    let callback = model.callbacks.iter().find(|c| c.id == *id);
                    let callback = callback.ok_or_else(|| PlanError::Unknown {
                        option: "--beside",
                        asked: id.clone(),
                        place: "the model",
                    })?;
                    let group = executors.of(callback);
                    if wanted.contains(&group) && !is_open(server, plan) {
                        return Err(PlanError::Shut {
                            callback: id.clone(),
                            server: server.name.clone(),
                        });
                    }
                    beside.owned.insert(group, server.cpu);
                    if server.priority > 0 && !ours.iter().any(|c| c.id == callback.id) {
                        beside.others.push(Other {
                            callback,
                            group,
                            cpu: server.cpu,
                        });
                    }
                }
            }
        }
        Ok(beside)
    }

    pub(crate) fn owner_cpu(&self, group: Group<'m>) -> Option<u16> {
        self.owned.get(&group).copied()
    }

    pub(crate) fn owns(&self, group: Group<'m>) -> bool {
        self.owned.contains_key(&group)
    }

    fn within_ns(&self, cpus: &BTreeSet<u16>, length_ns: u64) -> u64 {
        let here = self.others.iter().filter(|o| cpus.contains(&o.cpu));
        here.map(|o| o.within_ns(length_ns))
            .fold(0, u64::saturating_add)
    }

    /// Returns the longest time, in ns, by which callbacks of the plans beside this one can delay
    /// work that takes `alone_ns` without them. Returns `None` if no bound below a cycle exists.
    pub(crate) fn wait_ns(
        &self,
        cpus: &BTreeSet<u16>,
        alone_ns: u64,
        cycle_ns: u64,
    ) -> Option<u64> {
        let mut waits = 0;
        loop {
            match self.within_ns(cpus, alone_ns.saturating_add(waits)) {
                next if next == waits => return Some(waits),
                next if next > cycle_ns => return None,
                next => waits = next,
            }
        }
    }
}

pub(crate) fn lowest_priority(plans: &[Plan], is_ours: impl Fn(u16) -> bool) -> Option<u8> {
    let servers = plans.iter().flat_map(|p| &p.servers);
    let here = servers.filter(|s| s.priority > 0 && is_ours(s.cpu));
    here.map(|s| s.priority).min()
}

/// Returns the highest priority at which a new chain does not disturb `plans`. The chain's outputs
/// run one priority above the chain, and its feeders one priority below it.
#[must_use]
pub fn priority_beside(plans: &[Plan]) -> Option<u8> {
    lowest_priority(plans, |_| true).map(|p| p.saturating_sub(2).max(1))
}
