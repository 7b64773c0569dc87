//! The settings of a thread: policy, priority, CPUs, memory. The thread itself applies them before
//! it runs its first task, and reads them back.

use std::io;
use thiserror::Error;

/// The way the kernel schedules a thread.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// The thread keeps the policy and priority of the thread that starts it.
    #[default]
    Inherit,
    Other,
    Fifo {
        /// The priority, 1 (lowest) to 99.
        priority: u8,
    },
    RoundRobin {
        priority: u8,
    },
}

/// The settings of a thread: name, policy, priority, CPUs, memory.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadOptions {
    /// The thread's name. The kernel keeps the first 15 bytes.
    pub name: String,
    pub scheduling: Scheduling,
    /// The CPUs that the thread may run on. If empty, the thread keeps the CPUs of the thread that
    /// starts it.
    pub cpus: Vec<usize>,
    /// Locks the memory of the whole process, present and future (mlockall), and leaves it locked.
    pub lock_memory: bool,
    pub stack_bytes: usize,
    /// The number of bytes of the stack that are touched before the first task, so that later
    /// accesses do not fault.
    pub prefault_bytes: usize,
}

impl ThreadOptions {
    /// Returns settings for a thread like the one that starts it, with a stack of 2 MiB.
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

    /// Returns settings for a thread with deadlines: SCHED_FIFO, memory locked, 256 KiB of the
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

/// The reason why a thread could not get its settings.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum ThreadError {
    #[error("cannot start thread '{thread}' with a stack of {stack_bytes} bytes: {reason}. Use fewer threads or smaller stacks.")]
    Spawn {
        thread: String,
        stack_bytes: usize,
        reason: io::Error,
    },
    #[error("thread '{thread}' cannot have policy {policy} with priority {priority}: {reason}. Give fifo or rr a priority of 1 to 99, and run as root, with CAP_SYS_NICE or with RLIMIT_RTPRIO.")]
    Scheduling {
        thread: String,
        policy: &'static str,
        priority: u8,
        reason: io::Error,
    },
    #[error("thread '{thread}' cannot run on CPUs {cpus:?}: {reason}. Give CPUs that exist and that the process may use (taskset -p).")]
    Cpus {
        thread: String,
        cpus: Vec<usize>,
        reason: io::Error,
    },
    #[error("thread '{thread}' cannot lock its memory: {reason}. Run as root, with CAP_IPC_LOCK or with a larger RLIMIT_MEMLOCK (ulimit -l).")]
    Memory { thread: String, reason: io::Error },
    #[error("thread '{thread}' cannot touch {prefault_bytes} bytes of its stack of {stack_bytes}: 64 KiB must stay free. Lower `prefault_bytes` or raise `stack_bytes`.")]
    Stack {
        thread: String,
        prefault_bytes: usize,
        stack_bytes: usize,
    },
}

/// The number of stack bytes that are not touched in advance. The thread needs them while it
/// touches the other bytes.
const STACK_RESERVE: usize = 64 << 10;

/// Applies settings to the calling thread, then reads them back to check them. Not real-time safe.
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
    // The policy comes last, so that the steps above do not run at this priority.
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

#[inline(never)]
fn touch_stack(bytes: usize) {
    let mut page = [0u8; 4096];
    std::hint::black_box(&mut page);
    if bytes > page.len() {
        touch_stack(bytes - page.len());
    }
    // Using the page after the call prevents a tail call.
    std::hint::black_box(&mut page);
}

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
        io::Error::other(format!(
            "the kernel accepted the request of the thread, but has set {what}"
        ))
    }

    pub(super) fn run_on(cpus: &[usize]) -> io::Result<()> {
        // SAFETY: a set of CPUs is an array of numbers, and all zeros is the empty set.
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
        // SAFETY: both sets have this size; 0 is the calling thread.
        unsafe {
            check(libc::sched_setaffinity(0, size, &wanted))?;
            check(libc::sched_getaffinity(0, size, &mut found))?;
            // The kernel leaves out CPUs that do not exist.
            if !libc::CPU_EQUAL(&wanted, &found) {
                return Err(differs("fewer CPUs than requested"));
            }
        }
        Ok(())
    }

    pub(super) fn lock_memory() -> io::Result<()> {
        // SAFETY: the call only changes how the kernel keeps memory.
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
                    "policy number {found} and priority {}",
                    parameters.sched_priority
                )));
            }
        }
        Ok(())
    }
}
