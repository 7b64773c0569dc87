//! Scheduler events without any capability: what `perf_event_open` tells of one's own processes.
//!
//! One software event per CPU, without a counter, is opened on the recorder's own thread before it
//! starts the command. The command inherits it, as does all that the command starts, and `exec` switches
//! it on there: nothing is missed, and nobody has to be stopped. Inherited events write to the buffers
//! of the recorder's; an inherited event needs one of them for each CPU. A command that gains rights by its
//! `exec` loses the events there: one of root's, whose recorder has given up some. It is followed anew, with what it
//! has started by then.
//!
//! Seen are context switches, and begin and end of threads and processes. Not seen are wake-ups, and
//! other users' threads: how long a thread was ready after a sleep, and who had its CPU then, is not
//! known.

mod buffer;
mod event;
mod records;

pub use records::{Seen, What};

use buffer::Buffer;
use event::Whose;
use onbeat_proc::{threads, tree};
use onbeat_rights::Capability;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Bytes of a CPU's buffer: what the kernel gives an ordinary user by default
/// (`kernel.perf_event_mlock_kb`). 16 thousand switches.
const BUFFER_BYTES: usize = 512 << 10;
/// Less than this is of no use: 250 switches.
const BUFFER_BYTES_MIN: usize = 8 << 10;
/// How often a command is looked at for threads that are not followed yet. Two are enough, unless it starts
/// some all the time.
const LOOKS: usize = 16;

/// The context switches of what this thread starts while it lives.
pub struct Switches {
    cpus: Vec<Cpu>,
    /// Events of a command that lost the inherited ones.
    followed: Vec<File>,
    /// What was seen while these were opened, and not taken yet.
    early: Vec<Seen>,
    lost: u64,
}

/// A set of capabilities of a process.
fn rights(pid: u32, set: &str) -> Option<u64> {
    let status = onbeat_proc::Status::of(pid).ok()?;
    u64::from_str_radix(status.field(set)?, 16).ok()
}

/// Which of these threads are neither known nor have inherited events: the fork of one that has was seen.
/// All are known then.
fn without_events(threads: Vec<u32>, seen: &[Seen], known: &mut BTreeSet<u32>) -> Vec<u32> {
    let forks = seen.iter().filter(|s| matches!(s.what, What::Fork { .. }));
    known.extend(forks.map(|s| s.tid));
    let mut threads = threads;
    threads.retain(|tid| known.insert(*tid));
    threads
}

/// Whether a thread has ended, or its process has gained more rights: then it would not have kept inherited
/// events either.
fn is_beyond(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ESRCH | libc::EACCES | libc::EPERM)
    )
}

/// A CPU's event and its buffer.
struct Cpu {
    number: i32,
    event: File,
    buffer: Buffer,
}

impl Switches {
    /// Whether a command that is started now keeps its events, or gets them again: root's has all rights that
    /// nobody has taken from it, and who has fewer may only follow it with CAP_SYS_PTRACE or CAP_PERFMON.
    pub fn may_follow() -> bool {
        let own = std::process::id();
        let gains = || Some(rights(own, "CapBnd")? & !rights(own, "CapPrm")? != 0);
        let follows = [Capability::CAP_SYS_PTRACE, Capability::CAP_PERFMON];
        !onbeat_rights::is_root()
            || follows.into_iter().any(onbeat_rights::has)
            || !gains().unwrap_or(true)
    }

    /// Opens the events on the calling thread: what it starts and executes from now on is observed.
    ///
    /// # Errors
    ///
    /// The kernel's, where it refuses: `kernel.perf_event_paranoid` above 2, or a filter of system
    /// calls, as containers have by default.
    pub fn open() -> io::Result<Switches> {
        let mut bytes = BUFFER_BYTES;
        loop {
            match Switches::with_buffers(bytes) {
                // Buffers of a user are limited together: another recorder may have some.
                Err(e) if e.raw_os_error() == Some(libc::EPERM) && bytes > BUFFER_BYTES_MIN => {
                    bytes /= 2;
                }
                result => return result,
            }
        }
    }

    fn with_buffers(bytes: usize) -> io::Result<Switches> {
        // SAFETY: reads a number.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        let mut opened = Vec::new();
        for cpu in 0..cpus.clamp(1, 4096) as i32 {
            let event = match event::open(Whose::OurChildren, cpu, bytes as u32 / 2) {
                // It is offline.
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

    /// A command has been started. Events that it lost on its way are opened again, where this user may.
    ///
    /// # Errors
    ///
    /// The kernel's: it is not observed.
    pub fn started(&mut self, pid: u32) -> io::Result<()> {
        let own = std::process::id();
        let (Some(ours), Some(its)) = (rights(own, "CapPrm"), rights(pid, "CapPrm")) else {
            return Ok(());
        };
        // As the kernel decides it.
        if its & !ours == 0 {
            return Ok(());
        }
        self.follow(pid)
    }

    /// Follows a process without inherited events, and all threads and processes that it has started. What
    /// these start from then on inherits the events, which shows by the record of its fork.
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
                    Err(error) if tid != pid && is_beyond(&error) => {}
                    result => result?,
                }
            }
        }
        Ok(())
    }

    fn follow_thread(&mut self, tid: u32) -> io::Result<()> {
        for cpu in &self.cpus {
            let event = event::open(Whose::Of(tid), cpu.number, 0)?;
            event::write_to(&event, &cpu.event)?;
            self.followed.push(event);
        }
        Ok(())
    }

    /// Waits until a buffer is half full, a signal comes, or the time is over.
    pub fn wait(&self, timeout: Duration) {
        let of = |cpu: &Cpu| libc::pollfd {
            fd: cpu.event.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polled: Vec<_> = self.cpus.iter().map(of).collect();
        let milliseconds = timeout.as_millis().min(60_000) as libc::c_int;
        // SAFETY: as many entries as it is told.
        unsafe {
            libc::poll(
                polled.as_mut_ptr(),
                polled.len() as libc::nfds_t,
                milliseconds,
            )
        };
    }

    /// Takes what was seen so far, of one CPU after the other.
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

    /// Records that found a buffer full, so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests;
