//! Changes one thread: notes its previous state, schedules and pins it, and puts it behind a gate.
//! If a step fails, the thread is put back.

use crate::backend::Witness;
use crate::enforcer::{AdmitError, Class, Enforcer};
use crate::error::AssignError;
use crate::identity::{now_ticks, Identity};
use crate::ledger::{self, Entry, Ledger, Ledgers, Thread};
use crate::sys::{self, Scheduling};
use std::io;
use std::path::Path;

#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) description: String,
    pub(crate) scheduling: Scheduling,
    pub(crate) cpu: u16,
    pub(crate) gate: Option<usize>,
}

pub(crate) struct Changer<'r> {
    pub(crate) ledger: &'r Ledger,
    pub(crate) enforcer: &'r dyn Enforcer,
    pub(crate) witness: &'r dyn Witness,
    pub(crate) ledgers: &'r Ledgers,
}

/// Frees a thread from the gate that it inherited from one of the `changed` threads. If the cgroup
/// to return to is unknown, the thread moves through the file `way_out`. Returns false if the
/// thread has ended.
pub(crate) fn free(changed: &[Thread], tid: u32, way_out: &Path) -> io::Result<bool> {
    // Placed threads did not come from behind a gate, and their notes have no cgroup to return to.
    let gated = changed.iter().filter(|t| t.home.is_some());
    ledger::free(&gated.cloned().collect::<Vec<_>>(), tid, way_out)
}

impl Changer<'_> {
    /// Gives a thread the scheduling and the gate of `to`, and returns the thread's previous state.
    /// After an error the thread has its previous state, except that it is no longer behind a gate
    /// that it had inherited. `changed` lists the threads that the reservation changed before.
    pub(crate) fn change<'t>(
        &self,
        tid: u32,
        identity: Identity,
        to: &Destination,
        changed: impl Iterator<Item = &'t Thread>,
    ) -> Result<Thread, AssignError> {
        let note = |source| AssignError::Note { tid, source };
        let _all = self.ledgers.lock_all().map_err(note)?;
        if let Some(holder) = self.ledgers.owner(self.ledger, tid, identity.start) {
            return Err(AssignError::Taken { tid, holder });
        }
        let changed: Vec<Thread> = changed.cloned().collect();
        if let Some(way_out) = self.enforcer.way_out(tid) {
            // The thread inherited a gate, so its own cgroup must be found elsewhere.
            free(&changed, tid, &way_out).map_err(|source| AssignError::Free { tid, source })?;
        }
        let was = self.state_of(tid, identity, to, changed.iter())?;
        self.ledger
            .note(&Entry::Thread(was.clone()))
            .map_err(note)?;
        if let Err(error) = self.apply(tid, to) {
            self.evict(tid, to);
            // If that fails too, the thread stays in the ledger, and stopping tries again.
            if was.restore().is_ok() {
                let released = Entry::Released(tid, was.start);
                self.ledger.note(&released).map_err(note)?;
            }
            return Err(error);
        }
        Ok(was)
    }

    /// Reads the thread's current state. If the thread inherited a pinning of this reservation, the
    /// CPUs and nice value are those from before the pinning.
    fn state_of<'t>(
        &self,
        tid: u32,
        identity: Identity,
        to: &Destination,
        changed: impl Iterator<Item = &'t Thread>,
    ) -> Result<Thread, AssignError> {
        let read = |source| AssignError::Read { tid, source };
        let home = match to.gate {
            Some(_) => self
                .enforcer
                .home(tid)
                .map_err(|source| AssignError::Gate { tid, source })?,
            None => None,
        };
        let cpus = sys::affinity(tid).map_err(read)?;
        let heir_of = ledger::inherited(changed, identity.tgid, identity.start, &cpus);
        if let Some(parent) = heir_of {
            ledger::give_nice(parent, tid);
        }
        let cpus = heir_of.map_or(cpus, |parent| parent.cpus.clone());
        Ok(Thread {
            tid,
            tgid: identity.tgid,
            start: identity.start,
            scheduling: sys::scheduling(tid).map_err(read)?,
            cpus,
            home,
            bound: Some((to.cpu, now_ticks())),
        })
    }

    fn apply(&self, tid: u32, to: &Destination) -> Result<(), AssignError> {
        // A sched_ext scheduler must know the thread before the thread enters its class. Otherwise
        // the thread would run at once.
        let is_first = self.enforcer.class() == Class::SchedExt;
        if is_first {
            self.admit(tid, to)?;
        }
        // The policy comes first because a SCHED_DEADLINE thread cannot be pinned.
        sys::schedule(tid, &to.scheduling).map_err(|source| AssignError::Priority {
            tid,
            priority: to.scheduling.priority as u8,
            source,
        })?;
        let cpu = to.cpu;
        sys::set_affinity(tid, &[cpu]).map_err(|source| AssignError::Cpu { tid, cpu, source })?;
        match is_first {
            true => Ok(()),
            false => self.admit(tid, to),
        }
    }

    fn admit(&self, tid: u32, to: &Destination) -> Result<(), AssignError> {
        let Some(server) = to.gate else {
            return Ok(());
        };
        let admitted = self.enforcer.admit(tid, server, self.witness);
        admitted.map_err(|error| match error {
            AdmitError::Member(source) => AssignError::Member { tid, source },
            AdmitError::Gate(source) => AssignError::Gate { tid, source },
        })
    }

    fn evict(&self, tid: u32, to: &Destination) {
        if let Some(server) = to.gate {
            self.enforcer.evict(tid, server);
        }
    }
}
