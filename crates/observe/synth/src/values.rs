//! Values that trackers exchange: identifiers, threads, waits and CPU times.

use crate::index::NameId;

pub(super) type Gid = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ThreadId {
    pub(super) pid: u32,
    pub(super) tid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadProfile {
    pub(super) comm: Option<NameId>,
    pub(super) policy: Option<u8>,
    /// The thread's priority in the kernel's own scale from 0 to 139.
    pub(super) priority: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    At(u64),
    /// The time of the release is unknown, or the callback does not belong to a timer.
    Unknown,
    /// The timer follows a simulated clock, so the recording does not show when it was due.
    Simulated,
}

/// A sleep of a thread while its executor waited for work, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Idle {
    pub(super) from: u64,
    pub(super) woken: u64,
}

impl Idle {
    pub(super) fn contains(&self, time: u64) -> bool {
        (self.from..=self.woken).contains(&time)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) exec_ns: u64,
    pub(super) preempted_ns: u64,
    pub(super) blocked_ns: u64,
    pub(super) preemptions: u32,
    pub(super) blockings: u32,
    /// The number of gaps in the thread's account. If it grows between two marks, the times between
    /// them are unknown.
    pub(super) doubts: u32,
}

impl Totals {
    /// Returns the time on the CPU, or `None` if the account has a gap.
    pub(super) fn exec_ns(&self) -> Option<u64> {
        (self.doubts == 0).then_some(self.exec_ns)
    }

    pub(super) fn plus(&self, other: &Totals) -> Totals {
        Totals {
            exec_ns: self.exec_ns.saturating_add(other.exec_ns),
            preempted_ns: self.preempted_ns.saturating_add(other.preempted_ns),
            blocked_ns: self.blocked_ns.saturating_add(other.blocked_ns),
            preemptions: self.preemptions.wrapping_add(other.preemptions),
            blockings: self.blockings.wrapping_add(other.blockings),
            doubts: self.doubts.wrapping_add(other.doubts),
        }
    }

    pub(super) fn since(&self, earlier: &Totals) -> Totals {
        Totals {
            exec_ns: self.exec_ns.saturating_sub(earlier.exec_ns),
            preempted_ns: self.preempted_ns.saturating_sub(earlier.preempted_ns),
            blocked_ns: self.blocked_ns.saturating_sub(earlier.blocked_ns),
            preemptions: self.preemptions.wrapping_sub(earlier.preemptions),
            blockings: self.blockings.wrapping_sub(earlier.blockings),
            doubts: self.doubts.wrapping_sub(earlier.doubts),
        }
    }
}

/// A set of CPU numbers up to 255. It ignores larger numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cpus([u64; 4]);

impl Cpus {
    pub(super) fn add(&mut self, cpu: u16) {
        if let Some(word) = self.0.get_mut(usize::from(cpu / 64)) {
            *word |= 1 << (cpu % 64);
        }
    }

    pub(super) fn unite(&mut self, other: &Cpus) {
        for (all, one) in self.0.iter_mut().zip(other.0) {
            *all |= one;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..256u16).filter(|cpu| self.0[usize::from(cpu / 64)] >> (cpu % 64) & 1 == 1)
    }
}
