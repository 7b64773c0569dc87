//! Reservation servers on a stock kernel: threads run only within their servers' slots, and get
//! their previous state back at the end.
//!
//! A reservation server (thesis, Definition 4.1.1) is a set of slots within a cycle, on one CPU, at
//! one priority. Its threads are SCHED_RR threads of that priority, pinned to that CPU. An
//! [`Enforcer`] keeps them to the slots. On a stock kernel this is a dispatcher thread, which opens
//! and closes cgroup freezers (gates) at the instants of a [table]. The caller finds the threads
//! and names them by their ids.
//!
//! ```no_run
//! use onbeat_reserve::{Options, Reservation, Server};
//! use onbeat_time::Slot;
//!
//! let delta = Server {
//!     name: "delta".into(),
//!     cpu: 1,
//!     priority: 80,
//!     slots: vec![Slot::new(59_000_000, 60_000_000)],
//! };
//! let reservation = Reservation::start(100_000_000, &[delta], 0, Options::new(0))?;
//! reservation.assign(4711, "delta")?;
//! std::thread::sleep(std::time::Duration::from_secs(10));
//! let report = reservation.stop();
//! println!("{} threads are as they were", report.restored.threads);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits of a gate
//!
//! - **Locks.** A frozen thread keeps its locks. Other threads that need them wait for its slot. A
//!   soft gate ([`GateKind::Soft`]) does not freeze a working thread but drops it to SCHED_OTHER
//!   until it waits. Other real-time threads of its CPU may delay it then.
//! - **epoll_wait** (and the other calls that signal(7) lists as never restarted) return EINTR in a
//!   thread that is frozen while it waits in them, as after SIGSTOP and SIGCONT. Waits on futexes
//!   (condition variables), poll, select, sleeps and reads continue.
//! - **Threads that a gated thread starts** are behind the same gate and on the same CPU. Their
//!   policy is SCHED_OTHER. They get the previous state of the thread that started them, if it
//!   belonged to their process.
//! - **SIGKILL** ends a frozen thread at once under cgroup v2. Under v1 it ends when its next slot
//!   begins, or when the reservation ends.
//!
//! # Limits of the kernel
//!
//! `sched_rt_runtime_us` (0.95 s in every 1 s) limits real-time threads. Kernels before 6.12 stop
//! all of them for the rest of the second. Since then, only starving normal threads get the other 5
//! %, from a deadline server that runs before every SCHED_FIFO thread, the dispatcher included. If
//! the slots leave a CPU less than that, the reservation gives a [`Warning`]. It does not change
//! the limit.
//!
//! # sched_ext
//!
//! With [`Choice::SchedExt`], a scheduler in BPF programs replaces the dispatcher and the gates, if
//! the kernel has sched_ext. Threads are SCHED_EXT threads then, and **the kernel runs every normal
//! thread of their CPU before them**. When this process ends, the kernel makes them normal threads
//! at once. Soft gates do not stop threads there. Outside of their slots, threads run after all
//! others.
//!
//! # When it is stopped
//!
//! The dispatcher closes gates under a lease of one cycle. If it does not run (SIGSTOP, a debugger,
//! a thread above it on its CPU, a paused cgroup), the guard process opens all gates when the lease
//! has expired, at most two cycles after any of them was closed. The gates stay open until the
//! round after the dispatcher is back. If the guard is stopped or dead, the dispatcher opens all
//! gates. [`Reservation::pauses`] counts both. A reservation whose guard is lost should be stopped:
//! its threads have their priorities and CPUs, but no gates.
//!
//! # After a crash
//!
//! Every change is recorded in a file before it is made (policy, priority, CPUs and cgroup of each
//! thread, each cgroup). [`Reservation::stop`] and dropping undo the changes. If the process dies,
//! its guard process undoes them. If both are killed with SIGKILL, threads keep their state of that
//! moment, frozen or not, until [`recover`] is called. The next [`Reservation::start`] calls it
//! too. By hand: `echo THAWED > .../onbeat-*/SERVER/freezer.state` (v1), `echo 0 >
//! .../onbeat-*/SERVER/cgroup.freeze` (v2).

mod assign;
mod backend;
mod check;
mod dispatcher;
mod enforcer;
mod error;
mod gate;
mod guard;
mod heartbeat;
mod identity;
mod leads;
mod ledger;
mod memory;
mod next_table;
mod options;
mod reservation;
mod server;
mod stats;
mod sys;
pub mod table;
mod waiting;

pub use backend::{GateError, Witness};
pub use enforcer::sched_ext::{find_sched_ext, SchedExtError};
pub use enforcer::{AdmitError, Class, Enforcer, Pulse};
pub use error::{AssignError, ReleaseError, Report, StartError, SwapError, Warning};
pub use gate::{Change, Move};
pub use identity::Seen;
pub use ledger::{
    recover_in, Entry, FoundLedger, FoundThread, Group, GroupStanding, Recovery, Restored,
    Snapshot, Standing, Thread,
};
pub use options::{Choice, OnWake, Options};
pub use reservation::{ledgers, recover, scheduling, Reservation};
pub use server::{Server, MAX_PRIORITY};
pub use stats::{GateStats, Histogram, Lead, Pauses, Stats};
pub use waiting::{GateKind, Waiting, Waits};
