//! Gets scheduler events of one's own processes from `perf_event_open`, without any capability.
//!
//! Before the recorder starts the command, it opens one software event per CPU on its own thread.
//! The command and all its descendants inherit the events, and `exec` switches them on. So nothing
//! is missed, and no process has to be stopped. Inherited events write to the buffers of the
//! recorder's events, which needs one event per CPU.
//!
//! A command that gains rights by its `exec` loses the events. This happens if the recorder runs as
//! root but has given up some rights. The recorder then opens new events for the command and for
//! its descendants so far.
//!
//! The events show context switches, and the begin and end of threads and processes. They do not
//! show wake-ups or other users' threads. So it is unknown how long a thread was ready after a
//! sleep, and who had its CPU then.

mod buffer;
mod event;
mod records;

pub use records::{Action, Seen};

use buffer::Buffer;
use event::Observed;
use onbeat_proc::{threads, tree};
use onbeat_rights::Capability;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The size of a CPU's buffer in bytes, enough for 16,000 switches. By default, the kernel allows
/// an ordinary user this much (`kernel.perf_event_mlock_kb`).
const BUFFER_BYTES: usize = 512 << 10;
/// The smallest useful size of a CPU's buffer in bytes, enough for 250 switches.
const BUFFER_BYTES_MIN: usize = 8 << 10;
/// The largest number of times that the recorder searches a new command for unobserved threads. Two
/// searches are enough, unless the command starts threads all the time.
const LOOKS: usize = 16;

/// The context switches of all processes that this thread starts while this value exists.
pub struct Switches {
    cpus: Vec<Cpu>,
    followed: Vec<File>,
    early: Vec<Seen>,
    lost: u64,
}

fn rights(pid: u32, set: &str) -> Option<u64> {
    let status = onbeat_proc::Status::of(pid).ok()?;
    u64::from_str_radix(status.field(set)?, 16).ok()
}

/// Returns the threads that are neither in `known` nor have inherited events, and adds all
/// `threads` to `known`. A thread has inherited events if `seen` contains the record of its
/// creation.
fn without_events(threads: Vec<u32>, seen: &[Seen], known: &mut BTreeSet<u32>) -> Vec<u32> {
    let forks = seen
        .iter()
        .filter(|s| matches!(s.action, Action::Fork { .. }));
    known.extend(forks.map(|s| s.tid));
    let mut threads = threads;
    threads.retain(|tid| known.insert(*tid));
    threads
}

/// Returns whether the error means that events cannot be opened for a thread: the thread has ended,
/// or its process has gained more rights and therefore also lost inherited events.
fn cannot_inherit(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ESRCH | libc::EACCES | libc::EPERM)
    )
}

struct Cpu {
    number: i32,
    event: File,
    buffer: Buffer,
}

impl Switches {
    /// Returns whether the recorder can observe the context switches of a command that is started
    /// now. The command inherits the recorder's perf events. If it loses them, the recorder must be
    /// able to open them again.
    ///
    /// A command that runs as root gets all rights that are in the bounding set. A recorder with
    /// fewer rights may follow it only with CAP_SYS_PTRACE or CAP_PERFMON.
    pub fn may_follow() -> bool {
        let own = std::process::id();
        let gains = || Some(rights(own, "CapBnd")? & !rights(own, "CapPrm")? != 0);
        let follows = [Capability::CAP_SYS_PTRACE, Capability::CAP_PERFMON];
        !onbeat_rights::is_root()
            || follows.into_iter().any(onbeat_rights::has)
            || !gains().unwrap_or(true)
    }

    /// Opens the events on the calling thread. Everything that the thread starts and executes from
    /// now on is observed.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error if it refuses: `kernel.perf_event_paranoid` is above 2, or a
    /// seccomp filter forbids the call, as in containers by default.
    pub fn open() -> io::Result<Switches> {
        let mut bytes = BUFFER_BYTES;
        loop {
            match Switches::with_buffers(bytes) {
                // All buffers of a user share one limit, and another recorder may have some.
                Err(e) if e.raw_os_error() == Some(libc::EPERM) && bytes > BUFFER_BYTES_MIN => {
                    bytes /= 2;
                }
                result => return result,
            }
        }
    }

    fn with_buffers(bytes: usize) -> io::Result<Switches> {
        // SAFETY: sysconf only reads a number.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        let mut opened = Vec::new();
        for cpu in 0..cpus.clamp(1, 4096) as i32 {
            let event = match event::open(Observed::OurChildren, cpu, bytes as u32 / 2) {
                // The CPU is offline.
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => continue,
                result => result?,
            };
            let buffer = Buffer::map(&event, bytes)?;
            opened.push(Cpu {
                number: cpu,
                event,
                buffer,
            });
        }
        match opened.is_empty() {
            true => Err(io::ErrorKind::Unsupported.into()),
            false => Ok(Switches {
                cpus: opened,
                followed: Vec::new(),
                early: Vec::new(),
                lost: 0,
            }),
        }
    }

    /// Notes that a command has started. If the command lost its inherited perf events, opens them
    /// again if this user is allowed to.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error if the command cannot be observed.
    pub fn started(&mut self, pid: u32) -> io::Result<()> {
        let own = std::process::id();
        let (Some(ours), Some(its)) = (rights(own, "CapPrm"), rights(pid, "CapPrm")) else {
            return Ok(());
        };
        // The kernel uses the same condition.
        if its & !ours == 0 {
            return Ok(());
        }
        self.follow(pid)
    }

    /// Opens perf events for a process that has inherited none, and for all its present
    /// descendants.
    ///
    /// Children that start later inherit these events. The record of a child's fork shows that the
    /// child has inherited them.
    fn follow(&mut self, pid: u32) -> io::Result<()> {
        let mut known = BTreeSet::new();
        for _ in 0..LOOKS {
            let processes = tree(pid).into_iter();
            let threads: Vec<u32> = processes.flat_map(threads).collect();
            let mut seen = Vec::new();
            self.take(&mut seen);
            let new = without_events(threads, &seen, &mut known);
            self.early = seen;
            if new.is_empty() {
                break;
            }
            for tid in new {
                match self.follow_thread(tid) {
                    Err(error) if tid != pid && cannot_inherit(&error) => {}
                    result => result?,
                }
            }
        }
        Ok(())
    }

    fn follow_thread(&mut self, tid: u32) -> io::Result<()> {
        for cpu in &self.cpus {
            let event = event::open(Observed::Thread(tid), cpu.number, 0)?;
            event::write_to(&event, &cpu.event)?;
            self.followed.push(event);
        }
        Ok(())
    }

    pub fn wait(&self, timeout: Duration) {
        let of = |cpu: &Cpu| libc::pollfd {
            fd: cpu.event.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polled: Vec<_> = self.cpus.iter().map(of).collect();
        let milliseconds = timeout.as_millis().min(60_000) as libc::c_int;
        // SAFETY: the array has as many entries as the call states.
        unsafe {
            libc::poll(
                polled.as_mut_ptr(),
                polled.len() as libc::nfds_t,
                milliseconds,
            )
        };
    }

    pub fn take(&mut self, seen: &mut Vec<Seen>) {
        seen.append(&mut self.early);
        for cpu in &mut self.cpus {
            cpu.buffer.take(|record| match records::read(record) {
                Some(records::Record::Seen(record)) => seen.push(record),
                Some(records::Record::Lost(count)) => self.lost += count,
                None => {}
            });
        }
    }

    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests;
