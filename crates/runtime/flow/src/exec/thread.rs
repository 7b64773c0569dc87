//! What a thread is given before it runs its first task: policy, priority, CPUs, memory. Each is set
//! by the thread itself, and read back.

use std::io;
use thiserror::Error;

/// How the kernel schedules a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// As the thread that starts it.
    #[default]
    Inherit,
    /// SCHED_OTHER.
    Other,
    /// SCHED_FIFO.
    Fifo {
        /// 1 (lowest) to 99.
        priority: u8,
    },
    /// SCHED_RR.
    RoundRobin {
        /// 1 (lowest) to 99.
        priority: u8,
    },
}

/// What a thread is given before it runs its first task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadOptions {
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: String,
    /// Policy and priority.
    pub scheduling: Scheduling,
    /// CPUs that it may run on; none: as the thread that starts it.
    pub cpus: Vec<usize>,
    /// Keeps the process's memory, also what it gets later, from being paged (mlockall). Holds for
    /// the whole process, and stays.
    pub lock_memory: bool,
    /// Size of its stack in bytes.
    pub stack_bytes: usize,
    /// So much of the stack is touched before the first task, so that it is there.
    pub prefault_bytes: usize,
}

impl ThreadOptions {
    /// A thread that is like the one that starts it, with a stack of 2 MiB.
    pub fn new(name: &str) -> ThreadOptions {
        ThreadOptions {
            name: name.into(),
            scheduling: Scheduling::Inherit,
            cpus: Vec::new(),
            lock_memory: false,
            stack_bytes: 2 << 20,
            prefault_bytes: 0,
        }
    }

    /// A thread for work with deadlines: SCHED_FIFO with a priority, memory locked, 256 KiB of the
    /// stack touched.
    pub fn real_time(name: &str, priority: u8) -> ThreadOptions {
        ThreadOptions {
            scheduling: Scheduling::Fifo { priority },
            lock_memory: true,
            prefault_bytes: 256 << 10,
            ..ThreadOptions::new(name)
        }
    }
}

/// Why a thread could not be had as asked.
#[derive(Debug, Error)]
pub enum ThreadError {
    /// It could not be started at all.
    #[error("thread '{thread}' with a stack of {stack_bytes} bytes cannot be started: {reason}: use fewer threads or smaller stacks")]
    Spawn {
        /// Its name.
        thread: String,
        /// Its stack.
        stack_bytes: usize,
        /// What the system said.
        reason: io::Error,
    },
    /// It may not have this policy or priority.
    #[error("thread '{thread}' cannot have policy {policy} with priority {priority}: {reason}: priorities of fifo and rr are 1 to 99, and need root, CAP_SYS_NICE or RLIMIT_RTPRIO")]
    Scheduling {
        /// Its name.
        thread: String,
        /// fifo, rr or other.
        policy: &'static str,
        /// As it was given.
        priority: u8,
        /// What the system said.
        reason: io::Error,
    },
    /// It may not run there.
    #[error("thread '{thread}' cannot run on CPUs {cpus:?}: {reason}: give CPUs that exist and that the process may use (taskset -p)")]
    Cpus {
        /// Its name.
        thread: String,
        /// As they were given.
        cpus: Vec<usize>,
        /// What the system said.
        reason: io::Error,
    },
    /// Its memory cannot be locked.
    #[error("thread '{thread}' cannot lock its memory: {reason}: needs root, CAP_IPC_LOCK or a larger RLIMIT_MEMLOCK (ulimit -l)")]
    Memory {
        /// Its name.
        thread: String,
        /// What the system said.
        reason: io::Error,
    },
    /// More is to be touched than there is.
    #[error("thread '{thread}': {prefault_bytes} bytes cannot be touched of a stack of {stack_bytes}: leave 64 KiB, or raise `stack_bytes`")]
    Stack {
        /// Its name.
        thread: String,
        /// As it was given.
        prefault_bytes: usize,
        /// As it was given.
        stack_bytes: usize,
    },
}

/// Stack that stays untouched: what the thread itself needs meanwhile.
const STACK_RESERVE: usize = 64 << 10;

/// Gives the calling thread what was asked for, and looks whether it has it.
pub fn apply(options: &ThreadOptions) -> Result<(), ThreadError> {
    let thread = || options.name.clone();
    if !options.cpus.is_empty() {
        system::run_on(&options.cpus).map_err(|reason| ThreadError::Cpus {
            thread: thread(),
            cpus: options.cpus.clone(),
            reason,
        })?;
    }
    if options.lock_memory {
        system::lock_memory().map_err(|reason| ThreadError::Memory {
            thread: thread(),
            reason,
        })?;
    }
    if options.prefault_bytes > 0 {
        if options.prefault_bytes + STACK_RESERVE > options.stack_bytes {
            return Err(ThreadError::Stack {
                thread: thread(),
                prefault_bytes: options.prefault_bytes,
                stack_bytes: options.stack_bytes,
            });
        }
        touch_stack(options.prefault_bytes);
    }
    // Last, so that the above is not done at this priority.
    let (policy, name, priority) = match options.scheduling {
        Scheduling::Inherit => return Ok(()),
        Scheduling::Other => (libc::SCHED_OTHER, "other", 0),
        Scheduling::Fifo { priority } => (libc::SCHED_FIFO, "fifo", priority),
        Scheduling::RoundRobin { priority } => (libc::SCHED_RR, "rr", priority),
    };
    system::schedule(policy, priority).map_err(|reason| ThreadError::Scheduling {
        thread: thread(),
        policy: name,
        priority,
        reason,
    })
}

/// Writes to so many bytes below the caller's frame.
#[inline(never)]
fn touch_stack(bytes: usize) {
    let mut page = [0u8; 4096];
    std::hint::black_box(&mut page);
    if bytes > page.len() {
        touch_stack(bytes - page.len());
    }
    // Used after the call too, so that it is no tail call.
    std::hint::black_box(&mut page);
}

/// The system calls, each checked.
mod system {
    use super::io;

    fn check(result: libc::c_int) -> io::Result<()> {
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    fn differs(what: &str) -> io::Error {
        io::Error::other(format!("the kernel has set {what}"))
    }

    pub(super) fn run_on(cpus: &[usize]) -> io::Result<()> {
        // SAFETY: a set of CPUs is an array of numbers; zero is the empty one.
        let (mut wanted, mut found): (libc::cpu_set_t, libc::cpu_set_t) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let size = std::mem::size_of::<libc::cpu_set_t>();
        for &cpu in cpus {
            if cpu >= 8 * size {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            // SAFETY: the CPU is within the set.
            unsafe { libc::CPU_SET(cpu, &mut wanted) };
        }
        // SAFETY: both sets are as large as is said; 0 is the calling thread.
        unsafe {
            check(libc::sched_setaffinity(0, size, &wanted))?;
            check(libc::sched_getaffinity(0, size, &mut found))?;
            // The kernel leaves out CPUs that do not exist.
            if !libc::CPU_EQUAL(&wanted, &found) {
                return Err(differs("fewer of them"));
            }
        }
        Ok(())
    }

    pub(super) fn lock_memory() -> io::Result<()> {
        // SAFETY: only changes how the kernel keeps memory.
        check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) })
    }

    pub(super) fn schedule(policy: libc::c_int, priority: u8) -> io::Result<()> {
        let mut parameters = libc::sched_param {
            sched_priority: priority.into(),
        };
        // SAFETY: the parameters are valid for the calls; 0 is the calling thread.
        unsafe {
            check(libc::sched_setscheduler(0, policy, &parameters))?;
            let found = libc::sched_getscheduler(0);
            check(libc::sched_getparam(0, &mut parameters))?;
            if found != policy || parameters.sched_priority != i32::from(priority) {
                return Err(differs(&format!(
                    "policy {found}, priority {}",
                    parameters.sched_priority
                )));
            }
        }
        Ok(())
    }
}
