//! Other plans that are enforced at the same time: chains with origins of their own, each with its own
//! cycle.
//!
//! Where the cycles lie to one another is known only when they run, so nothing here depends on it. The
//! new plan goes behind the others: on a CPU that they share its priority is lower, so that what they
//! promise holds without a word of it, and what they take at most within any length of time is added
//! to the new chain's worst case. Threads that both need belong to the servers of the first plan, which
//! must be open at all times: the union of both plans' slots at any phase.

use crate::error::PlanError;
use crate::executors::{Executors, Group, Other};
use crate::request::Request;
use crate::schema::{Plan, Server};
use onbeat_document::schema::Callback;
use onbeat_document::Model;
use std::collections::{BTreeMap, BTreeSet};

/// What the other plans' servers run, and have.
#[derive(Debug, Default)]
pub(crate) struct Beside<'m> {
    /// Their callbacks, each on its server's CPU.
    pub(crate) others: Vec<Other<'m>>,
    /// Executors of their servers, with the CPU of these.
    owned: BTreeMap<Group<'m>, u16>,
    /// Share of each CPU that they use at the worst.
    pub(crate) shares: BTreeMap<u16, f64>,
}

/// Whether a server's threads may run at all times.
fn is_open(server: &Server, plan: &Plan) -> bool {
    let whole = |s: &crate::schema::Slot| s.1 .0.saturating_sub(s.0 .0) >= plan.cycle_ms.0;
    server.slots_ms.is_empty() || server.slots_ms.iter().any(whole)
}

impl<'m> Beside<'m> {
    /// What is asked for, of a model that has the callbacks of all plans. `ours` are the new plan's.
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

    /// The CPU of the other plan's server that has a callback's threads.
    pub(crate) fn owner_cpu(&self, group: Group<'m>) -> Option<u16> {
        self.owned.get(&group).copied()
    }

    /// Whether the threads of a callback belong to a server of another plan.
    pub(crate) fn owns(&self, group: Group<'m>) -> bool {
        self.owned.contains_key(&group)
    }

    /// The most time that these take on some CPUs within so long a time, whenever that begins.
    fn within_ns(&self, cpus: &BTreeSet<u16>, length_ns: u64) -> u64 {
        let here = self.others.iter().filter(|o| cpus.contains(&o.cpu));
        here.map(|o| o.within_ns(length_ns))
            .fold(0, u64::saturating_add)
    }

    /// How much longer something that takes so long can take for these, ns. `None`: no bound below a
    /// cycle.
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

/// The lowest real-time priority of the servers of other plans on these CPUs.
pub(crate) fn lowest(plans: &[Plan], is_ours: impl Fn(u16) -> bool) -> Option<u8> {
    let servers = plans.iter().flat_map(|p| &p.servers);
    let here = servers.filter(|s| s.priority > 0 && is_ours(s.cpu));
    here.map(|s| s.priority).min()
}

/// The priority of a chain behind these plans: its outputs have one above it, what feeds it one below.
#[must_use]
pub fn priority_beside(plans: &[Plan]) -> Option<u8> {
    lowest(plans, |_| true).map(|p| p.saturating_sub(2).max(1))
}
