//! Measures how long threads that run no callback were ready without a CPU.
//!
//! Memory holds one distribution for each name of such threads in a process and one for each living
//! thread.

use super::values::{Cpus, ThreadProfile};
use crate::index::NameId;
use crate::marks::Marks;
use onbeat_document::dist::Dist;
use onbeat_document::schema::HelperFigures;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of thread names per process. Threads with further names are counted without a
/// name.
const NAMES_MAX: usize = 256;
const ENTRIES_MAX: usize = 1 << 16;

#[derive(Debug, Clone, Default)]
pub(super) struct HelperCandidate {
    calls_ros: bool,
    first_event: Option<u64>,
    ready: Option<Box<Dist>>,
    cpus: Cpus,
}

impl HelperCandidate {
    pub(super) fn calls_ros(&mut self) {
        self.calls_ros = true;
        self.ready = None;
    }

    pub(super) fn gets_cpu(&mut self, time: u64, cpu: u16, ready: Option<u64>) {
        if self.calls_ros {
            return;
        }
        self.first_event.get_or_insert(ready.unwrap_or(time));
        self.cpus.add(cpu);
        if let Some(since) = ready {
            let waits = self.ready.get_or_insert_with(Box::default);
            waits.record(time.saturating_sub(since));
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct NamedHelpers {
    pub(super) figures: HelperFigures,
    pub(super) uses: BTreeSet<(Option<u8>, u8)>,
    pub(super) cpus: Cpus,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Helpers(BTreeMap<(u32, Option<NameId>), NamedHelpers>);

impl Helpers {
    pub(super) fn add_ended(
        &mut self,
        pid: u32,
        profile: &ThreadProfile,
        candidate: HelperCandidate,
        (time, exec_ns): (u64, u64),
    ) {
        let (Some(first), false) = (candidate.first_event, candidate.calls_ros) else {
            return;
        };
        let names = self
            .0
            .range((pid, None)..)
            .take_while(|((p, _), _)| *p == pid);
        let is_new = !self.0.contains_key(&(pid, profile.comm));
        let is_full = is_new && (names.count() >= NAMES_MAX || self.0.len() >= ENTRIES_MAX);
        let name = profile.comm.filter(|_| !is_full);
        let of = self.0.entry((pid, name)).or_default();
        if let Some(ready) = candidate.ready {
            of.figures.ready_ns.merge(&ready);
        }
        of.figures.exec_ns = of.figures.exec_ns.saturating_add(exec_ns);
        let observed_ns = time.saturating_sub(first);
        of.figures.observed_ns = of.figures.observed_ns.saturating_add(observed_ns);
        of.uses.insert((profile.policy, profile.priority));
        of.cpus.unite(&candidate.cpus);
    }

    /// Forgets the process `pid`, which ended. Moves its figures to the process `to` that continues
    /// it, or drops them if `to` is `None`.
    pub(super) fn forget(&mut self, pid: u32, to: Option<u32>) {
        let names = self.0.range((pid, None)..);
        let names = names
            .take_while(|((p, _), _)| *p == pid)
            .map(|(key, _)| key.1);
        for name in names.collect::<Vec<_>>() {
            let (Some(old), Some(to)) = (self.0.remove(&(pid, name)), to) else {
                continue;
            };
            let of = self.0.entry((to, name)).or_default();
            of.figures.ready_ns.merge(&old.figures.ready_ns);
            of.figures.exec_ns = of.figures.exec_ns.saturating_add(old.figures.exec_ns);
            let observed_ns = old.figures.observed_ns;
            of.figures.observed_ns = of.figures.observed_ns.saturating_add(observed_ns);
            of.uses.extend(old.uses);
            of.cpus.unite(&old.cpus);
        }
    }

    pub(super) fn mark_names(&self, names: &mut Marks) {
        for (_, name) in self.0.keys() {
            name.iter().for_each(|name| {
                names.add(name.index());
            });
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u32, Option<NameId>, &NamedHelpers)> {
        self.0.iter().map(|(&(pid, name), of)| (pid, name, of))
    }
}
