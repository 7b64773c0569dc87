//! A soft gate does not freeze a thread that holds what others need, and a hard gate does. The
//! tests run on the real kernel, with threads that report whether they wait.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::*;
use onbeat_reserve::{GateKind, GateStats, Options, Reservation, Waiting, Waits};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Stores for each thread id whether the thread waits for work. The map is complete before the
/// dispatcher reads it.
#[derive(Clone)]
struct Reports(HashMap<u32, Arc<AtomicBool>>);

impl Waiting for Reports {
    fn of(&self, tid: u32) -> Waits {
        match self.0.get(&tid).map(|waits| waits.load(SeqCst)) {
            Some(true) => Waits::Yes,
            Some(false) => Waits::No,
            None => Waits::Unknown,
        }
    }
}

struct Application {
    holder: Worker,
    release: Arc<AtomicBool>,
    waits: Arc<AtomicBool>,
    wake: Arc<AtomicBool>,
    has_woken: Arc<AtomicBool>,
    progress: Arc<AtomicU64>,
    _other: Worker,
}

impl Application {
    fn new() -> Application {
        let flag = || Arc::new(AtomicBool::new(false));
        let (release, waits, wake, has_woken, holds) = (flag(), flag(), flag(), flag(), flag());
        let lock = Arc::new(Mutex::new(()));
        let progress = Arc::new(AtomicU64::new(0));
        let theirs = (
            release.clone(),
            waits.clone(),
            wake.clone(),
            has_woken.clone(),
        );
        let (held, needed, counted) = (holds.clone(), lock.clone(), progress.clone());
        let holder = Worker::new(move |stop| {
            let (release, waits, wake, has_woken) = &theirs;
            let guard = lock.lock().unwrap();
            held.store(true, SeqCst);
            while !release.load(SeqCst) && !stop.load(Relaxed) {}
            drop(guard);
            waits.store(true, SeqCst);
            while !wake.load(SeqCst) && !stop.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            waits.store(false, SeqCst);
            has_woken.store(true, SeqCst);
            while !stop.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        wait_for("the lock to be held", || holds.load(SeqCst));
        let other = Worker::new(move |stop| {
            while !stop.load(Relaxed) {
                drop(needed.lock().unwrap());
                counted.fetch_add(1, SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Application {
            holder,
            release,
            waits,
            wake,
            has_woken,
            progress,
            _other: other,
        }
    }

    fn said(&self) -> Reports {
        let holder = (self.holder.tid, self.waits.clone());
        Reports(HashMap::from([holder]))
    }
}

fn policy(tid: u32) -> i32 {
    unsafe { libc::sched_getscheduler(tid as i32) & !libc::SCHED_RESET_ON_FORK }
}

fn gate(reservation: &Reservation) -> GateStats {
    reservation.stats().gates.remove(0)
}

/// Starts a server whose slot ends after `ends_in_ns`. The next slot begins half an hour later.
fn last_slot(options: &Options, ends_in_ns: u64) -> Reservation {
    let servers = [server("r", 20, &[(0, HOUR / 2)])];
    let origin = now_ns() + HOUR / 2 + ends_in_ns;
    Reservation::start(HOUR, &servers, origin, options.clone()).unwrap()
}

/// Starts a server, assigns the thread within the slot, and waits until the slot has ended. A slow
/// machine may need several attempts.
fn last_slot_of(tid: u32, options: &Options) -> Reservation {
    let mut ends_in_ns = 500 * MS;
    loop {
        let reservation = last_slot(options, ends_in_ns);
        reservation.assign(tid, "r").unwrap();
        if gate(&reservation).ends == 0 {
            wait_for("the end of the slot", || gate(&reservation).ends > 0);
            return reservation;
        }
        reservation.stop();
        ends_in_ns *= 2;
        assert!(ends_in_ns < 60_000 * MS);
    }
}

#[test]
fn a_thread_frozen_by_a_hard_gate_holds_its_lock_until_the_next_slot() {
    let _alone = one_test_at_a_time();
    for backend in backends("a_thread_frozen_by_a_hard_gate_holds_its_lock_until_the_next_slot") {
        let dir = Dir::new("hard");
        let application = Application::new();
        let mut options = options(backend, &dir);
        options.waiting = Some(Arc::new(application.said()));
        let reservation = last_slot_of(application.holder.tid, &options);
        assert_frozen(application.holder.tid);
        application.release.store(true, SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(application.progress.load(SeqCst), 0, "{backend:?}");
        let seen = gate(&reservation);
        assert_eq!((seen.ends, seen.working, seen.hard), (1, 1, 1));
        reservation.stop();
        let progress = || application.progress.load(SeqCst);
        wait_for("the lock", || progress() > 0);
    }
}

#[test]
fn a_soft_gate_lets_a_lock_holder_finish_and_freezes_it_when_it_waits() {
    let _alone = one_test_at_a_time();
    for backend in backends("with_a_soft_gate_they_go_on") {
        let dir = Dir::new("soft");
        let application = Application::new();
        let tid = application.holder.tid;
        let before = thread_state(tid);
        let mut options = options(backend, &dir);
        options.gate = GateKind::Soft;
        options.waiting = Some(Arc::new(application.said()));
        let reservation = last_slot_of(tid, &options);
        wait_for("a normal priority", || policy(tid) == libc::SCHED_OTHER);
        assert_runs(tid);
        assert_eq!(application.progress.load(SeqCst), 0, "the lock is held");
        application.release.store(true, SeqCst);
        let progress = || application.progress.load(SeqCst);
        wait_for("the lock", || progress() > 3);
        // The thread waits now, so the gate shuts. A wake-up does not make the thread run.
        wait_for("the thread to wait", || {
            gate(&reservation).waited.count() == 1
        });
        let closed = || reservation.stats().closing.count();
        wait_for("the gate to close", || closed() > 0);
        application.wake.store(true, SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!application.has_woken.load(SeqCst), "{backend:?}");
        let seen = gate(&reservation);
        assert_eq!((seen.ends, seen.working, seen.hard), (1, 1, 0));
        assert_eq!(reservation.stats().opening.count(), 0, "no slot began");
        // The thread gets its state from before the reservation, not the one that the gate gave it.
        reservation.stop();
        assert_eq!(thread_state(tid), before);
        wait_for("the thread to run", || application.has_woken.load(SeqCst));
    }
}

#[test]
fn a_thread_that_joins_a_shut_gate_while_working_runs_on() {
    let _alone = one_test_at_a_time();
    for backend in backends("who_joins_a_shut_gate") {
        let dir = Dir::new("join");
        let (first, second) = (Application::new(), Application::new());
        let both = [first.said(), second.said()].map(|said| said.0);
        let said = Reports(both.into_iter().flatten().collect());
        let mut options = options(backend, &dir);
        options.gate = GateKind::Soft;
        options.waiting = Some(Arc::new(said));
        let reservation = last_slot(&options, 500 * MS);
        first.release.store(true, SeqCst);
        wait_for("the first to wait", || first.waits.load(SeqCst));
        reservation.assign(first.holder.tid, "r").unwrap();
        wait_for("the end of the slot", || gate(&reservation).ends > 0);
        reservation.assign(second.holder.tid, "r").unwrap();
        assert_runs(second.holder.tid);
        wait_for("a normal priority", || {
            policy(second.holder.tid) == libc::SCHED_OTHER
        });
        second.release.store(true, SeqCst);
        let progress = || second.progress.load(SeqCst);
        wait_for("the lock", || progress() > 3);
        // A thread that leaves keeps its previous state.
        reservation.release(second.holder.tid).unwrap();
        assert_eq!(policy(second.holder.tid), libc::SCHED_OTHER);
        second.wake.store(true, SeqCst);
        wait_for("the second to run", || second.has_woken.load(SeqCst));
    }
}

#[test]
fn the_priority_of_a_thread_that_never_waits_follows_its_slots() {
    let _alone = one_test_at_a_time();
    for backend in backends("priority_comes_and_goes") {
        let dir = Dir::new("comes");
        let worker = Worker::spinning();
        let before = thread_state(worker.tid);
        let mut options = options(backend, &dir);
        options.gate = GateKind::Soft;
        // The thread either reports that it works, or reports nothing.
        for waiting in [true, false] {
            let works = HashMap::from([(worker.tid, Arc::new(AtomicBool::new(false)))]);
            options.waiting = waiting.then(|| Arc::new(Reports(works)) as Arc<dyn Waiting>);
            let servers = [server("r", 20, &[(0, 30 * MS)])];
            let origin = now_ns();
            let reservation =
                Reservation::start(60 * MS, &servers, origin, options.clone()).unwrap();
            reservation.assign(worker.tid, "r").unwrap();
            for _ in 0..3 {
                wait_for("its priority", || policy(worker.tid) == libc::SCHED_RR);
                wait_for("a normal one", || policy(worker.tid) == libc::SCHED_OTHER);
            }
            // The thread may have joined between two slots, so that the first end counted no
            // thread.
            let seen = || match (waiting, gate(&reservation)) {
                (true, seen) => (seen.working, seen.unknown),
                (false, seen) => (seen.unknown, seen.working),
            };
            wait_for("ends of slots that meet it", || seen().0 >= 3);
            assert_eq!(seen().1, 0);
            let changes = reservation.changes_since(&mut 0);
            assert!(changes.len() >= 5);
            assert!(changes.windows(2).all(|c| c[0].at_ns <= c[1].at_ns));
            reservation.stop();
            assert_eq!(thread_state(worker.tid), before);
        }
    }
}

struct Busy(std::process::Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Family {
    parent: Worker,
    ask: Arc<AtomicBool>,
    heirs: std::sync::mpsc::Receiver<[u32; 4]>,
    waits: Arc<AtomicBool>,
}

impl Family {
    fn new() -> Family {
        let flag = || Arc::new(AtomicBool::new(false));
        let (ask, waits) = (flag(), flag());
        let (asked, waiting) = (ask.clone(), waits.clone());
        let (send, heirs) = std::sync::mpsc::sync_channel(1);
        let parent = Worker::new(move |stop| {
            while !asked.load(SeqCst) && !stop.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let threads = [Worker::spinning(), Worker::sleeping(), Worker::sleeping()];
            let mut shell = std::process::Command::new("sh");
            let busy = shell.args(["-c", "while :; do :; done"]).spawn();
            let busy = Busy(busy.unwrap());
            let [a, b, c] = [0, 1, 2].map(|i| threads[i].tid);
            send.send([a, b, c, busy.0.id()]).unwrap();
            waiting.store(true, SeqCst);
            while !stop.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Family {
            parent,
            ask,
            heirs,
            waits,
        }
    }

    fn said(&self) -> Reports {
        Reports(HashMap::from([(self.parent.tid, self.waits.clone())]))
    }

    fn heirs_behind_shut_gate(&self, reservation: &Reservation) -> [u32; 4] {
        self.ask.store(true, SeqCst);
        let heirs = self.heirs.recv().unwrap();
        let closed = || reservation.stats().closing.count();
        wait_for("the gate to close", || closed() > 0);
        heirs
    }
}

#[test]
fn threads_started_by_a_gated_thread_leave_its_gate() {
    let _alone = one_test_at_a_time();
    for backend in backends("threads_started_by_a_gated_thread_leave_its_gate") {
        let dir = Dir::new("heirs");
        let family = Family::new();
        let before = thread_state(family.parent.tid);
        let mut options = options(backend, &dir);
        options.gate = GateKind::Soft;
        options.waiting = Some(Arc::new(family.said()));
        let reservation = last_slot(&options, 500 * MS);
        reservation.assign(family.parent.tid, "r").unwrap();
        let heirs = family.heirs_behind_shut_gate(&reservation);
        let [thread, placed, member, process] = heirs;
        assert_frozen(thread);
        assert_frozen(process);
        // A placed thread does not wait for a slot, as for threads of the middleware.
        reservation.place(placed, cpu(), 1).unwrap();
        let turn = ran_ns(placed).unwrap();
        wait_for("the placed thread to run", || {
            ran_ns(placed).unwrap() > turn
        });
        // An heir that is assigned to the server gets its parent's previous cgroup.
        reservation.assign(member, "r").unwrap();
        assert_eq!(reservation.free_heirs(), 2, "{backend:?}");
        assert_runs(thread);
        assert_runs(process);
        assert_eq!(thread_state(thread), before);
        assert_eq!(thread_state(process), before);
        assert_eq!(reservation.free_heirs(), 0);
        let report = reservation.stop();
        assert_eq!(report.restored.failures, Vec::<String>::new());
        for tid in heirs.into_iter().chain([family.parent.tid]) {
            assert_eq!(thread_state(tid), before, "{backend:?}");
        }
    }
}
