//! The guard: a process that opens all gates when the dispatcher is silent, and undoes the changes
//! if its owner dies without doing so.
//!
//! The guard is forked before anything is changed. It gets a copy of each gate's descriptor before
//! a thread is put behind the gate, so that it needs no path to open it. It reads the changes from
//! the ledger, which both processes have open.
//!
//! The guard has another name, session and cgroups than its owner, so that a signal to one of those
//! does not stop or kill it too. It can be killed like any process. The dispatcher then opens all
//! gates. If the dispatcher is gone too, [`recover`](crate::recover) undoes the changes.

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

const NAME: &std::ffi::CStr = c"gate-keeper";

const DONE: &[u8] = b"d";
/// The first byte of the message that gives the guard the descriptor of a gate's file. The other
/// bytes are the text that opens the gate when it is written to this file.
const GATE: u8 = b'g';
const HEARD: &[u8] = b"h";
const ANSWER_MS: i32 = 30_000;
const END: Duration = Duration::from_secs(10);
const LONGEST: usize = 32;

const HIGHEST: u8 = 99;

pub(crate) struct Guard {
    socket: OwnedFd,
    pid: libc::pid_t,
}

pub(crate) struct Start<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) heartbeat: &'a Arc<Heartbeat>,
    pub(crate) priority: u8,
    pub(crate) mount_table: &'a Path,
}

impl Guard {
    pub(crate) fn start(start: &Start) -> io::Result<Guard> {
        let (socket, theirs) = sys::sockets()?;
        let owner = sys::pidfd_of_self()?;
        let timer = Timer::new()?;
        let hierarchies = cgroup::grouping(start.mount_table).unwrap_or_default();
        let pid = sys::fork(|| {
            detach(start, &hierarchies, &[&theirs, &owner], &timer);
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
        // If both are gone, the process that undoes their changes must know which guard to wait
        // for.
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

    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    pub(crate) fn is_running(&self) -> bool {
        sys::is_running(self.pid)
    }

    /// Gives the guard the file that opens and closes a gate, and the text that opens the gate when
    /// it is written to this file. When this function returns, the guard has both.
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
        // A closed connection gives an empty message.
        (length > 0).then_some(()).ok_or_else(silent)
    }

    pub(crate) fn done(self) {
        let _ = sys::send(&self.socket, DONE, None);
        sys::end(self.pid, END);
    }
}

fn detach(start: &Start, hierarchies: &[PathBuf], sockets: &[&OwnedFd; 2], timer: &Timer) {
    let [file, directory] = start.ledger.descriptors();
    let [socket, owner] = sockets.map(AsRawFd::as_raw_fd);
    let keep = [socket, owner, timer.as_raw_fd(), file, directory];
    // The owner's cgroup may be paused or killed as a whole by a container runtime or a service
    // manager. The guard leaves it if possible.
    for hierarchy in hierarchies {
        let _ = fs::write(hierarchy.join("cgroup.procs"), "0");
    }
    sys::detach(NAME, &keep);
    // The guard must act even when memory is short or real-time threads spin.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    let _ = sys::lock_memory();
    let _ = sys::set_affinity(0, &(0..sys::cpus()).collect::<Vec<_>>());
    let above = start.priority.saturating_add(1).min(HIGHEST);
    let _ = sys::schedule(0, &Scheduling::fifo(above));
    // These capabilities suffice to put threads back.
    onbeat_rights::keep([
        Capability::CAP_SYS_NICE,
        Capability::CAP_DAC_OVERRIDE,
        Capability::CAP_DAC_READ_SEARCH,
    ]);
}

struct Gate {
    file: OwnedFd,
    open: Vec<u8>,
}

struct Run<'a> {
    socket: OwnedFd,
    owner: OwnedFd,
    timer: Timer,
    heartbeat: &'a Heartbeat,
    gates: Vec<Gate>,
    is_connected: bool,
}

impl Run<'_> {
    /// Watches until the owner ends, or until the owner reports that everything has been put back.
    /// If the owner ends without this report, the guard undoes the changes.
    fn until_done(&mut self, ledger: &Ledger) {
        loop {
            let now_ns = monotonic_ns();
            self.heartbeat.guard_beats(now_ns);
            self.look(now_ns);
            let (has_message, ended) = self.wait(now_ns);
            // Only the message counts, not the end of the connection, because a child of the owner
            // may keep the socket open.
            if has_message && self.handle_message() {
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

    /// Waits for a message or the end of the owner, at most until the guard's next check is due.
    /// Returns whether the owner has sent a message, and whether the owner has ended.
    fn wait(&self, now_ns: u64) -> (bool, bool) {
        let timeout_ms = match self.timer.set(self.heartbeat.next_look_ns(now_ns)) {
            Ok(()) => -1,
            Err(_) => (self.heartbeat.look_ns() / 1_000_000).clamp(1, 1_000) as i32,
        };
        // A closed connection would always be ready. A negative descriptor never is.
        let socket = if self.is_connected {
            self.socket.as_raw_fd()
        } else {
            -1
        };
        let sources = [socket, self.owner.as_raw_fd(), self.timer.as_raw_fd()];
        let [has_message, ended, _] = sys::wait_for(sources, timeout_ms);
        (has_message, ended)
    }

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
            // If the group of a gate is gone, it holds no thread.
            let _ = sys::write_at_start(gate.file.as_raw_fd(), &gate.open);
        }
    }

    fn handle_message(&mut self) -> bool {
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
