//! The enforcer of stock kernels: a dispatcher thread opens and closes the gates of a [`Backend`].

use super::{AdmitError, Class, Enforcer, Pulse};
use crate::backend::{Backend, GateError, Witness};
use crate::dispatcher::Dispatcher;
use crate::gate::{Change, Move};
use crate::stats::{GateStats, Stats};
use crate::table::Table;
use onbeat_time::clock::monotonic_ns;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

pub(crate) struct Dispatched {
    backend: Arc<dyn Backend>,
    dispatcher: Dispatcher,
    /// The names of the servers that have a gate, by server index. `None` stands for a server
    /// without a gate.
    gated: Vec<Option<String>>,
    begin_ns: u64,
}

impl Dispatched {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        dispatcher: Dispatcher,
        gated: Vec<Option<String>>,
        begin_ns: u64,
    ) -> Dispatched {
        Dispatched {
            backend,
            dispatcher,
            gated,
            begin_ns,
        }
    }
}

impl Enforcer for Dispatched {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn class(&self) -> Class {
        Class::RealTime
    }

    fn home(&self, tid: u32) -> Result<Option<PathBuf>, GateError> {
        self.backend.home(tid)
    }

    fn inside(&self) -> Vec<u32> {
        self.backend.inside()
    }

    fn way_out(&self, tid: u32) -> Option<PathBuf> {
        self.backend.way_out(tid)
    }

    fn admit(&self, tid: u32, server: usize, witness: &dyn Witness) -> Result<(), AdmitError> {
        let shared = self.dispatcher.shared();
        // The dispatcher must know the thread before the thread is behind the gate.
        let members = &shared.gates[server].members;
        members.add(tid).map_err(AdmitError::Member)?;
        self.backend.add(server, tid, witness)?;
        shared.joined(server);
        Ok(())
    }

    fn evict(&self, tid: u32, server: usize) {
        self.dispatcher.shared().gates[server].members.remove(tid);
    }

    fn swap_table(&self, table: Table) {
        self.dispatcher.shared().next_table.give(table);
    }

    fn set_origin(&self, origin_ns: u64) {
        self.dispatcher.shared().origin_ns.store(origin_ns, Relaxed);
    }

    fn stats(&self) -> Stats {
        let elapsed_ns = monotonic_ns() - self.begin_ns;
        let shared = self.dispatcher.shared();
        let gates = self.gated.iter().zip(&shared.gates);
        let read = |(name, gate): (&Option<String>, &crate::gate::Gate)| {
            name.as_ref().map(|name| gate.counters.read(name))
        };
        let gates: Vec<GateStats> = gates.filter_map(read).collect();
        shared.counters.read(elapsed_ns, gates)
    }

    fn changes_since(&self, seen: &mut u64) -> Vec<Change> {
        self.dispatcher.shared().changes.since(seen)
    }

    fn moves_since(&self, seen: &mut u64) -> Vec<Move> {
        self.dispatcher.shared().moves.since(seen)
    }

    fn pulse(&self) -> Pulse {
        let shared = self.dispatcher.shared();
        Pulse {
            rounds: shared.counters.cycles.load(Relaxed),
            swaps: shared.next_table.taken(),
            pauses: shared.counters.pauses.read(),
        }
    }

    fn own_thread(&self) -> Option<u32> {
        Some(self.dispatcher.tid)
    }

    fn stop(&mut self) {
        self.dispatcher.stop();
    }
}
