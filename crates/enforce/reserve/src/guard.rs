//! The guard: a process that opens all gates when the dispatcher is silent, and undoes the changes
//! when its owner has died and did not.
//!
//! It is forked before anything is changed. It gets a copy of each gate's descriptor before a thread
//! is put behind it, so that it needs no path to open it; it reads the changes from the ledger,
//! which both processes have open. Its name, its session and its cgroups are not its owner's: what
//! stops or kills the owner by one of them does not reach it. It can be killed like any process;
//! then the dispatcher opens all gates, and if that is gone too, [`recover`](crate::recover) undoes
//! the changes.

use crate::heartbeat::{Duty, Heartbeat};
use crate::identity::identity;
use crate::ledger::{Entry, Ledger};
use crate::sys::{self, Scheduling, Timer};
use onbeat_proc::cgroup;
use onbeat_rights::Capability;
use onbeat_time::clock::monotonic_ns;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Name of its process, also in place of its command line: no pattern that names the command finds
/// it.
const NAME: &std::ffi::CStr = c"gate-keeper";

/// The owner sends it when everything is as it was before.
const DONE: &[u8] = b"d";
/// Comes before the text that opens the gate whose descriptor is sent.
const GATE: u8 = b'g';
/// The guard's answer.
const HEARD: &[u8] = b"h";
/// How long the owner waits for an answer, ms.
const ANSWER_MS: i32 = 30_000;
/// How long it may take to end, once it is told to.
const END: Duration = Duration::from_secs(10);
/// Longest message.
const LONGEST: usize = 32;

/// Highest real-time priority.
const HIGHEST: u8 = 99;

/// The guard, as its owner has it.
pub(crate) struct Guard {
    socket: OwnedFd,
    pid: libc::pid_t,
}

/// What the guard is started with.
pub(crate) struct Start<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) heartbeat: &'a Arc<Heartbeat>,
    /// Of the dispatcher; the guard's is higher.
    pub(crate) priority: u8,
    /// Table of mounts.
    pub(crate) mount_table: &'a Path,
}

impl Guard {
    /// Forks the guard of this process and waits until it ignores the signals that may end this
    /// one.
    pub(crate) fn start(start: &Start) -> io::Result<Guard> {
        let (socket, theirs) = sys::sockets()?;
        let owner = sys::pidfd_of_self()?;
        let timer = Timer::new()?;
        let hierarchies = cgroup::grouping(start.mount_table).unwrap_or_default();
        let pid = sys::fork(|| {
            seclude(start, &hierarchies, &[&theirs, &owner], &timer);
            let mut run = Run {
                socket: theirs,
                owner,
                timer,
                heartbeat: start.heartbeat,
                gates: Vec::new(),
                is_connected: true,
            };
            if sys::send(&run.socket, HEARD, None).is_ok() {
                run.until_done(start.ledger);
            }
        })?;
        let guard = Guard { socket, pid };
        guard.answer()?;
        // Who undoes the changes when both are gone has to know whom to wait for.
        let identity = identity(pid as u32);
        let entry = identity.map(|i| Entry::Guard(i.tgid, i.start));
        match entry.map_or(Ok(()), |entry| start.ledger.note(&entry)) {
            Ok(()) => Ok(guard),
            Err(e) => {
                guard.done();
                Err(e)
            }
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Whether the guard process runs.
    pub(crate) fn is_running(&self) -> bool {
        sys::is_running(self.pid)
    }

    /// Gives the guard the file of a gate, and the text that opens it. When this returns, the guard
    /// has it.
    pub(crate) fn take_gate(&self, gate: &File, open: &[u8]) -> io::Result<()> {
        let message = [&[GATE], open].concat();
        sys::send(&self.socket, &message, Some(gate.as_raw_fd()))?;
        self.answer()
    }

    fn answer(&self) -> io::Result<()> {
        let silent = || io::Error::other("the guard process does not answer");
        let [answered] = sys::wait_for([self.socket.as_raw_fd()], ANSWER_MS);
        let (length, _) = match answered {
            true => sys::receive(&self.socket, &mut [0; LONGEST])?,
            false => return Err(silent()),
        };
        // At the end of the connection there is nothing.
        (length > 0).then_some(()).ok_or_else(silent)
    }

    /// Ends the guard: everything is as it was before.
    pub(crate) fn done(self) {
        let _ = sys::send(&self.socket, DONE, None);
        sys::end(self.pid, END);
    }
}

/// Makes the forked process independent of its owner, and able to act when others cannot.
fn seclude(start: &Start, hierarchies: &[PathBuf], sockets: &[&OwnedFd; 2], timer: &Timer) {
    let [file, directory] = start.ledger.descriptors();
    let [socket, owner] = sockets.map(AsRawFd::as_raw_fd);
    let keep = [socket, owner, timer.as_raw_fd(), file, directory];
    // A group that is paused or killed as a whole, by a container's runtime or a service manager,
    // may be its owner's. Where that fails, it stays beside its owner.
    for hierarchy in hierarchies {
        let _ = fs::write(hierarchy.join("cgroup.procs"), "0");
    }
    sys::seclude(NAME, &keep);
    // It must act even when memory is short or real-time threads spin.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    let _ = sys::lock_memory();
    let _ = sys::set_affinity(0, &(0..sys::cpus()).collect::<Vec<_>>());
    let above = start.priority.saturating_add(1).min(HIGHEST);
    let _ = sys::schedule(0, &Scheduling::fifo(above));
    // All that it takes to put threads back.
    onbeat_rights::keep([
        Capability::CAP_SYS_NICE,
        Capability::CAP_DAC_OVERRIDE,
        Capability::CAP_DAC_READ_SEARCH,
    ]);
}

/// A gate, and the text that opens it.
struct Gate {
    file: OwnedFd,
    open: Vec<u8>,
}

/// The guard's process.
struct Run<'a> {
    socket: OwnedFd,
    owner: OwnedFd,
    timer: Timer,
    heartbeat: &'a Heartbeat,
    gates: Vec<Gate>,
    is_connected: bool,
}

impl Run<'_> {
    /// Watches until the owner says that all is done, or ends; then undoes the changes.
    fn until_done(&mut self, ledger: &Ledger) {
        loop {
            let now_ns = monotonic_ns();
            self.heartbeat.guard_beats(now_ns);
            self.look(now_ns);
            let (told, ended) = self.wait(now_ns);
            // Only the word counts, not the socket's end: a child of the owner may keep it open.
            if told && self.hear() {
                return;
            }
            if ended {
                break;
            }
        }
        // A failure because a thread is just ending may not occur a moment later.
        for _ in 0..5 {
            if ledger.restore().failures.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until it is time to look, at most. Whether the owner has sent something, and whether
    /// it has ended.
    fn wait(&self, now_ns: u64) -> (bool, bool) {
        let timeout_ms = match self.timer.set(self.heartbeat.next_look_ns(now_ns)) {
            Ok(()) => -1,
            Err(_) => (self.heartbeat.look_ns() / 1_000_000).clamp(1, 1_000) as i32,
        };
        // A connection that is closed would be ready for ever; a negative descriptor never is.
        let socket = if self.is_connected {
            self.socket.as_raw_fd()
        } else {
            -1
        };
        let sources = [socket, self.owner.as_raw_fd(), self.timer.as_raw_fd()];
        let [told, ended, _] = sys::wait_for(sources, timeout_ms);
        (told, ended)
    }

    /// Does what the heartbeat asks for.
    fn look(&self, now_ns: u64) {
        match self.heartbeat.duty(now_ns) {
            Duty::Watch => {}
            Duty::Open => self.open_all(),
            Duty::OpenAndGrant => {
                self.open_all();
                self.heartbeat.grant();
            }
        }
    }

    fn open_all(&self) {
        for gate in &self.gates {
            // One whose group is gone holds nobody.
            let _ = sys::write_at_start(gate.file.as_raw_fd(), &gate.open);
        }
    }

    /// Takes a message. True if everything is done.
    fn hear(&mut self) -> bool {
        let mut text = [0; LONGEST];
        let Ok((length, file)) = sys::receive(&self.socket, &mut text) else {
            return false;
        };
        match (&text[..length], file) {
            ([], _) => self.is_connected = false,
            (DONE, _) => return true,
            ([GATE, open @ ..], Some(file)) => {
                let open = open.to_vec();
                self.gates.push(Gate { file, open });
                let _ = sys::send(&self.socket, HEARD, None);
            }
            _ => {}
        }
        false
    }
}
