//! Values that trackers exchange: identifiers, threads, waits, and CPU time.

use crate::index::NameId;

/// A client's identifier in the middleware.
pub(super) type Gid = [u8; 16];

/// A thread, by its numbers in the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ThreadId {
    pub(super) pid: u32,
    pub(super) tid: u32,
}

/// A thread's name and scheduling, as last known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadProfile {
    pub(super) comm: Option<NameId>,
    /// The SCHED_* number.
    pub(super) policy: Option<u8>,
    /// The kernel's priority, 0 to 139.
    pub(super) priority: u8,
}

/// When an execution of a timer's callback was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    /// When the timer was due.
    At(u64),
    /// Not known, or no timer.
    Unknown,
    /// At a time of a simulation, which is no time of the recording.
    Simulated,
}

/// A wait of an executor in which its thread slept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Idle {
    /// Start of the wait.
    pub(super) from: u64,
    /// The wake-up that ended it.
    pub(super) woken: u64,
}

impl Idle {
    /// Whether the executor slept at a time.
    pub(super) fn contains(&self, time: u64) -> bool {
        (self.from..=self.woken).contains(&time)
    }
}

/// Sums up to some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) exec_ns: u64,
    /// Ready, but not on a CPU.
    pub(super) preempted_ns: u64,
    pub(super) blocked_ns: u64,
    pub(super) preemptions: u32,
    pub(super) blockings: u32,
}

impl Totals {
    /// The sums of two stretches.
    pub(super) fn plus(&self, other: &Totals) -> Totals {
        Totals {
            exec_ns: self.exec_ns.saturating_add(other.exec_ns),
            preempted_ns: self.preempted_ns.saturating_add(other.preempted_ns),
            blocked_ns: self.blocked_ns.saturating_add(other.blocked_ns),
            preemptions: self.preemptions.wrapping_add(other.preemptions),
            blockings: self.blockings.wrapping_add(other.blockings),
        }
    }

    /// The time added since `earlier`.
    pub(super) fn since(&self, earlier: &Totals) -> Totals {
        Totals {
            exec_ns: self.exec_ns.saturating_sub(earlier.exec_ns),
            preempted_ns: self.preempted_ns.saturating_sub(earlier.preempted_ns),
            blocked_ns: self.blocked_ns.saturating_sub(earlier.blocked_ns),
            preemptions: self.preemptions.wrapping_sub(earlier.preemptions),
            blockings: self.blockings.wrapping_sub(earlier.blockings),
        }
    }
}

/// A set of CPUs: the first 256.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cpus([u64; 4]);

impl Cpus {
    pub(super) fn add(&mut self, cpu: u16) {
        if let Some(word) = self.0.get_mut(usize::from(cpu / 64)) {
            *word |= 1 << (cpu % 64);
        }
    }

    /// Adds the CPUs of another set.
    pub(super) fn unite(&mut self, other: &Cpus) {
        for (all, one) in self.0.iter_mut().zip(other.0) {
            *all |= one;
        }
    }

    /// The CPUs, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..256u16).filter(|cpu| self.0[usize::from(cpu / 64)] >> (cpu % 64) & 1 == 1)
    }
}
