//! Remembers when the kernel dropped datagrams at the sockets of a process.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// The maximum number of drops that are remembered, of all processes together. When it is reached,
/// a drop takes the place of the oldest one of its process.
const DROPS_MAX: usize = 1 << 18;

/// The recorder reports a drop only if the last report of the socket is older than this, ns. A drop
/// may therefore be this much later than the one before it.
const REST_NS: u64 = 1_000_000;

#[derive(Debug, Clone, Default)]
pub(crate) struct Drops {
    /// For each process: the time of each drop and the port of the socket.
    of: FxHashMap<u32, VecDeque<(u64, u16)>>,
    count: usize,
}

impl Drops {
    /// Adds a drop. `time_ns` must not be earlier than that of any drop before it.
    pub(crate) fn add(&mut self, pid: u32, time_ns: u64, port: u16) {
        if self.count >= DROPS_MAX {
            let Some(drops) = self.of.get_mut(&pid) else {
                return;
            };
            drops.pop_front();
            self.count -= 1;
        }
        self.of.entry(pid).or_default().push_back((time_ns, port));
        self.count += 1;
    }

    /// Returns the port of the first socket of a process that dropped a datagram from `begin_ns` to
    /// `end_ns`, or so shortly before that further drops were not reported.
    pub(crate) fn at(&self, pid: u32, begin_ns: u64, end_ns: u64) -> Option<u16> {
        let drops = self.of.get(&pid)?;
        let begin_ns = begin_ns.saturating_sub(REST_NS);
        let from = drops.partition_point(|drop| drop.0 <= begin_ns);
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
        self.count = self.of.values().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_remembered_drops_is_limited_over_all_processes() {
        let mut drops = Drops::default();
        for time in 0..DROPS_MAX as u64 {
            drops.add((time % 3) as u32, 10 * REST_NS + time, 7);
        }
        drops.add(9, 20 * REST_NS, 8);
        assert_eq!(drops.at(9, 0, u64::MAX), None);
        drops.add(1, 20 * REST_NS, 8);
        assert_eq!(drops.count, DROPS_MAX);
        assert_eq!(
            drops.of.values().map(VecDeque::len).sum::<usize>(),
            DROPS_MAX
        );
        assert_eq!(drops.at(1, 20 * REST_NS, u64::MAX), Some(8));
        // A drop shortly before counts, an earlier one does not.
        assert_eq!(drops.at(1, 21 * REST_NS - 1, u64::MAX), Some(8));
        assert_eq!(drops.at(1, 21 * REST_NS, u64::MAX), None);
        drops.forget_before(20 * REST_NS);
        assert_eq!((drops.count, drops.of.len()), (1, 1));
    }
}
