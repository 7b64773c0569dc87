//! Threads that run no callback: how long each was ready and had no CPU. Memory: a distribution for each
//! name of such threads in a process, and for each that lives.

use super::values::{Cpus, ThreadProfile};
use crate::index::NameId;
use onbeat_document::dist::Dist;
use onbeat_document::schema::HelperFigures;
use std::collections::{BTreeMap, BTreeSet};

/// Names of a process's threads that are told apart; those of others have none.
const NAMES_MAX: usize = 256;
/// Processes and names in all.
const ALL_MAX: usize = 1 << 16;

/// A thread, as long as it has made no call of ROS 2.
#[derive(Debug, Clone, Default)]
pub(super) struct Quiet {
    /// It has made one.
    acts: bool,
    /// Its first event.
    first: Option<u64>,
    ready: Option<Box<Dist>>,
    cpus: Cpus,
}

impl Quiet {
    /// It makes a call: it is no helper.
    pub(super) fn acts(&mut self) {
        self.acts = true;
        self.ready = None;
    }

    /// It gets a CPU, for which it has waited since `ready`.
    pub(super) fn runs(&mut self, time: u64, cpu: u16, ready: Option<u64>) {
        if self.acts {
            return;
        }
        self.first.get_or_insert(ready.unwrap_or(time));
        self.cpus.add(cpu);
        if let Some(since) = ready {
            let waits = self.ready.get_or_insert_with(Box::default);
            waits.record(time.saturating_sub(since));
        }
    }
}

/// What is known of the helpers of one name.
#[derive(Debug, Clone, Default)]
pub(super) struct OfName {
    pub(super) figures: HelperFigures,
    pub(super) uses: BTreeSet<(Option<u8>, u8)>,
    pub(super) cpus: Cpus,
}

/// Helpers that have ended, by process and name.
#[derive(Debug, Clone, Default)]
pub(super) struct Helpers(BTreeMap<(u32, Option<NameId>), OfName>);

impl Helpers {
    /// A thread ends, or the recording does. `exec_ns`: what it has used of a CPU.
    pub(super) fn ended(
        &mut self,
        pid: u32,
        profile: &ThreadProfile,
        quiet: Quiet,
        (time, exec_ns): (u64, u64),
    ) {
        let (Some(first), false) = (quiet.first, quiet.acts) else {
            return;
        };
        let names = self
            .0
            .range((pid, None)..)
            .take_while(|((p, _), _)| *p == pid);
        let is_new = !self.0.contains_key(&(pid, profile.comm));
        let is_full = is_new && (names.count() >= NAMES_MAX || self.0.len() >= ALL_MAX);
        let name = profile.comm.filter(|_| !is_full);
        let of = self.0.entry((pid, name)).or_default();
        if let Some(ready) = quiet.ready {
            of.figures.ready_ns.merge(&ready);
        }
        of.figures.exec_ns = of.figures.exec_ns.saturating_add(exec_ns);
        let observed_ns = time.saturating_sub(first);
        of.figures.observed_ns = of.figures.observed_ns.saturating_add(observed_ns);
        of.uses.insert((profile.policy, profile.priority));
        of.cpus.unite(&quiet.cpus);
    }

    /// All, by process and name.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, Option<NameId>, &OfName)> {
        self.0.iter().map(|(&(pid, name), of)| (pid, name, of))
    }
}
