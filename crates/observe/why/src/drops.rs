//! Remembers when the kernel dropped datagrams at the sockets of a process.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// The maximum number of drops that are remembered of a process: those of at least a minute.
const DROPS_MAX: usize = 1 << 16;

const PROCESSES_MAX: usize = 1024;

#[derive(Debug, Clone, Default)]
pub(crate) struct Drops {
    /// For each process: the time of each drop and the port of the socket.
    of: FxHashMap<u32, VecDeque<(u64, u16)>>,
}

impl Drops {
    /// Adds a drop. `time_ns` must not be earlier than that of any drop before it.
    pub(crate) fn add(&mut self, pid: u32, time_ns: u64, port: u16) {
        if self.of.len() >= PROCESSES_MAX && !self.of.contains_key(&pid) {
            return;
        }
        let drops = self.of.entry(pid).or_default();
        drops.push_back((time_ns, port));
        if drops.len() > DROPS_MAX {
            drops.pop_front();
        }
    }

    /// Returns the port of the first socket of a process that dropped a datagram from `begin_ns` to
    /// `end_ns`.
    pub(crate) fn at(&self, pid: u32, begin_ns: u64, end_ns: u64) -> Option<u16> {
        let drops = self.of.get(&pid)?;
        let from = drops.partition_point(|drop| drop.0 < begin_ns);
        let first = drops.get(from).filter(|drop| drop.0 <= end_ns);
        first.map(|drop| drop.1)
    }

    /// Forgets the drops before a time.
    pub(crate) fn forget_before(&mut self, time_ns: u64) {
        self.of.retain(|_, drops| {
            while drops.front().is_some_and(|drop| drop.0 < time_ns) {
                drops.pop_front();
            }
            !drops.is_empty()
        });
    }
}
