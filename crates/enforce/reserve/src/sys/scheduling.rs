//! System calls for the policies, priorities and CPUs of threads.

use super::{check, check_long};
use serde::{Deserialize, Serialize};
use std::io;

/// The policy of threads that a sched_ext scheduler runs, since Linux 6.12.
const SCHED_EXT: i32 = 7;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scheduling {
    /// The policy as a SCHED_* number, combined with SCHED_RESET_ON_FORK if this flag is set.
    pub(crate) policy: i32,
    pub(crate) priority: i32,
    /// The nice value. The kernel keeps it through all changes of the policy.
    pub(crate) nice: i32,
    /// The flags, runtime, deadline and period of a SCHED_DEADLINE thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<[u64; 4]>,
}

impl Scheduling {
    /// Returns SCHED_RR at this priority. New threads of a thread with this policy begin with
    /// normal scheduling (SCHED_RESET_ON_FORK).
    pub(crate) fn round_robin(priority: u8) -> Scheduling {
        Scheduling::of(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, priority)
    }

    pub(crate) fn fifo(priority: u8) -> Scheduling {
        Scheduling::of(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
    }

    pub(crate) fn other() -> Scheduling {
        Scheduling::of(libc::SCHED_OTHER, 0)
    }

    /// Returns SCHED_EXT. Threads that a thread with this policy starts inherit the policy, because
    /// the kernel resets only real-time policies.
    pub(crate) fn ext() -> Scheduling {
        Scheduling::of(SCHED_EXT, 0)
    }

    pub(crate) fn is_ext(&self) -> bool {
        self.policy & !libc::SCHED_RESET_ON_FORK == SCHED_EXT
    }

    /// Returns the policy of the threads that a thread with this policy starts. Assumes that the
    /// kernel resets real-time policies (SCHED_RESET_ON_FORK).
    pub(crate) fn of_children(&self) -> Scheduling {
        match self.policy & !libc::SCHED_RESET_ON_FORK {
            policy @ (libc::SCHED_BATCH | libc::SCHED_IDLE) => Scheduling::of(policy, 0),
            _ => Scheduling::other(),
        }
    }

    fn of(policy: i32, priority: u8) -> Scheduling {
        Scheduling {
            policy,
            priority: priority.into(),
            nice: 0,
            deadline: None,
        }
    }
}

impl std::fmt::Display for Scheduling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (priority, nice) = (self.priority, self.nice);
        match self.policy & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_OTHER => write!(f, "SCHED_OTHER, nice {nice}"),
            libc::SCHED_BATCH => write!(f, "SCHED_BATCH, nice {nice}"),
            libc::SCHED_IDLE => write!(f, "SCHED_IDLE"),
            libc::SCHED_FIFO => write!(f, "SCHED_FIFO {priority}"),
            libc::SCHED_RR => write!(f, "SCHED_RR {priority}"),
            libc::SCHED_DEADLINE => write!(f, "SCHED_DEADLINE"),
            SCHED_EXT => write!(f, "SCHED_EXT, nice {nice}"),
            other => write!(f, "policy {other}"),
        }
    }
}

fn empty_attr() -> libc::sched_attr {
    // SAFETY: the struct consists of plain numbers, so zero is a valid value.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    attr.size = 48; // the first version: later fields stay as they are
    attr
}

/// Reads the policy and priority of thread `tid`. 0 means the calling thread.
pub(crate) fn scheduling(tid: u32) -> io::Result<Scheduling> {
    // SAFETY: the parameters live during the calls.
    unsafe {
        let policy = check(libc::sched_getscheduler(tid as libc::pid_t))?;
        let mut parameters: libc::sched_param = std::mem::zeroed();
        check(libc::sched_getparam(tid as libc::pid_t, &mut parameters))?;
        let mut deadline = None;
        if policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_DEADLINE {
            let mut attr = empty_attr();
            check_long(libc::syscall(
                libc::SYS_sched_getattr,
                tid,
                &mut attr,
                48u32,
                0u32,
            ))?;
            let flags = attr.sched_flags;
            let [runtime, deadline_ns] = [attr.sched_runtime, attr.sched_deadline];
            deadline = Some([flags, runtime, deadline_ns, attr.sched_period]);
        }
        Ok(Scheduling {
            policy,
            priority: parameters.sched_priority,
            nice: libc::getpriority(libc::PRIO_PROCESS, tid),
            deadline,
        })
    }
}

pub(crate) fn schedule(tid: u32, wanted: &Scheduling) -> io::Result<()> {
    if let Some([flags, runtime, deadline, period]) = wanted.deadline {
        let mut attr = empty_attr();
        attr.sched_policy = libc::SCHED_DEADLINE as u32;
        attr.sched_flags = flags;
        attr.sched_runtime = runtime;
        attr.sched_deadline = deadline;
        attr.sched_period = period;
        // SAFETY: the attributes live during the call and contain their size.
        return check_long(unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &attr, 0u32) })
            .map(drop);
    }
    let parameters = libc::sched_param {
        sched_priority: wanted.priority,
    };
    // SAFETY: the parameters live during the call.
    check(unsafe { libc::sched_setscheduler(tid as libc::pid_t, wanted.policy, &parameters) })
        .map(drop)
}

pub(crate) fn set_nice(tid: u32, nice: i32) -> io::Result<()> {
    // SAFETY: the system call takes no pointers.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, nice) }).map(drop)
}

const CPU_WORDS: usize = 128;

/// Lists the CPUs that thread `tid` may use. 0 means the calling thread.
pub(crate) fn affinity(tid: u32) -> io::Result<Vec<u16>> {
    let mut words = [0u64; CPU_WORDS];
    // SAFETY: the size matches the set, and any bits are valid.
    check(unsafe {
        libc::sched_getaffinity(
            tid as libc::pid_t,
            std::mem::size_of_val(&words),
            words.as_mut_ptr().cast(),
        )
    })?;
    let cpus = 0..(CPU_WORDS * 64) as u16;
    Ok(cpus
        .filter(|&c| words[usize::from(c) / 64] >> (c % 64) & 1 == 1)
        .collect())
}

pub(crate) fn online() -> Option<Vec<u16>> {
    parse_list(&std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?)
}

fn parse_list(text: &str) -> Option<Vec<u16>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last.min(first.saturating_add(8191)));
    }
    Some(cpus)
}

/// Pins thread `tid` to these CPUs. 0 means the calling thread.
pub(crate) fn set_affinity(tid: u32, cpus: &[u16]) -> io::Result<()> {
    let mut words = [0u64; CPU_WORDS];
    for &cpu in cpus {
        let word = words
            .get_mut(usize::from(cpu) / 64)
            .ok_or(io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (cpu % 64);
    }
    // SAFETY: the size matches the set.
    check(unsafe {
        libc::sched_setaffinity(
            tid as libc::pid_t,
            std::mem::size_of_val(&words),
            words.as_ptr().cast(),
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists_of_cpus_are_parsed() {
        assert_eq!(parse_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list("0\n"), Some(vec![0]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        assert_eq!(parse_list("a-b"), None);
        assert!(online().is_some_and(|cpus| !cpus.is_empty()));
    }
}
