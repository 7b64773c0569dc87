//! Reservation servers on a stock kernel: threads run only within their servers' slots, and are put
//! back as they were.
//!
//! A reservation server (thesis, Definition 4.1.1) is a set of slots within a cycle, on one CPU, at one
//! priority. Its threads are SCHED_RR threads of that priority, pinned to that CPU, behind a gate: a
//! [`Backend`] that keeps them from running. A dispatcher thread opens and closes the gates at the
//! instants of a [table]. Threads are known by their ids; where they come from is the caller's
//! matter.
//!
//! ```no_run
//! use onbeat_plan::schema::{Ms, Server, Slot};
//! use onbeat_reserve::{Options, Reservation};
//!
//! let delta = Server {
//!     name: "delta".into(),
//!     cpu: 1,
//!     priority: 80,
//!     slots_ms: vec![Slot(Ms(59_000_000), Ms(60_000_000))],
//!     callbacks: vec![],
//! };
//! let reservation = Reservation::start(100_000_000, &[delta], 0, Options::new(0))?;
//! reservation.assign(4711, "delta")?;
//! std::thread::sleep(std::time::Duration::from_secs(10));
//! let report = reservation.stop();
//! println!("{} threads are as they were", report.restored.threads);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a gate does not hold
//!
//! - **Locks.** A thread that is frozen keeps what it has locked. Whoever needs that waits for the slot.
//! - **epoll_wait** (and the other calls that signal(7) lists as never restarted) return EINTR in a
//!   thread that is frozen while it waits in them, as after SIGSTOP and SIGCONT. Waits on futexes
//!   (condition variables), poll, select, sleeps and reads go on unharmed.
//! - **Threads that a gated thread starts** are behind the same gate and on the same CPU; their policy is
//!   SCHED_OTHER. They are put back as the thread that started them was, if it was of their process.
//! - **SIGKILL** ends a frozen thread at once under cgroup v2; under v1 when its next slot begins, or when
//!   the reservation ends.
//!
//! # The kernel's own limits
//!
//! `sched_rt_runtime_us` (0.95 s in every 1 s) bounds real-time threads: kernels before 6.12 stop them
//! all for the rest of the second; since then only normal threads that starve are given the other 5 %, by
//! a deadline server that goes before every SCHED_FIFO thread, the dispatcher too. Plans whose slots
//! leave a CPU less than that are started with a [`Warning`]; the limit is left as it is.
//!
//! # What if ...
//!
//! Every change is noted in a file before it is made (policy, priority, CPUs and cgroup of each thread,
//! each cgroup). [`Reservation::stop`] and dropping undo them; when the process dies, its guard process does.
//! If both are killed with SIGKILL, threads stay as they are at that moment, gated ones frozen or not,
//! until [`recover`] is called, which the next [`Reservation::start`] does too. By hand:
//! `echo THAWED > .../onbeat-*/SERVER/freezer.state` (v1), `echo 0 > .../onbeat-*/SERVER/cgroup.freeze` (v2).

mod backend;
mod cgroup;
mod dispatcher;
mod guard;
mod ledger;
mod options;
mod proc;
mod reservation;
mod stats;
mod sys;
pub mod table;

pub use backend::{Backend, GateError, Note};
pub use ledger::{Entry, Group, Restored, Thread};
pub use options::{AssignError, Choice, Options, ReleaseError, Report, StartError, Warning};
pub use reservation::{recover, Reservation};
pub use stats::{Histogram, Stats};
