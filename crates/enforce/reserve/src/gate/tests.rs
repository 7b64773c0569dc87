//! The states of a soft gate, tested with a freezer and a scheduler that only log calls.

use super::*;
use crate::backend::{GateError, Witness};
use crate::sys::gettid;
use crate::waiting::Waits;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

thread_local! {
    static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn note(what: String) {
    LOG.with(|log| log.borrow_mut().push(what));
}

fn log() -> Vec<String> {
    LOG.with(|log| std::mem::take(&mut *log.borrow_mut()))
}

struct Freezer;

impl Backend for Freezer {
    fn name(&self) -> &'static str {
        "notes"
    }
    fn create(&mut self, _: usize, _: &str, _: &dyn Witness) -> Result<(), GateError> {
        Ok(())
    }
    fn open(&self, _: usize) -> io::Result<()> {
        note("thaw".into());
        Ok(())
    }
    fn close(&self, _: usize) -> io::Result<()> {
        note("freeze".into());
        if ONE_GROUP_FAILS.with(std::cell::Cell::take) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        WAKES_WHILE_FROZEN.with(|wakes| {
            if wakes.take() {
                WAITS.with(|waits| waits.set(Waits::No));
            }
        });
        Ok(())
    }
    fn home(&self, _: u32) -> Result<Option<PathBuf>, GateError> {
        Ok(None)
    }
    fn inside(&self) -> Vec<u32> {
        Vec::new()
    }
    fn way_out(&self, _: u32) -> Option<PathBuf> {
        None
    }
    fn add(&self, _: usize, _: u32, _: &dyn Witness) -> Result<(), GateError> {
        Ok(())
    }
}

thread_local! {
    static ONE_GROUP_FAILS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    static WAITS: std::cell::Cell<Waits> = const { std::cell::Cell::new(Waits::Yes) };
    static WAKES_WHILE_FROZEN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

struct OfThread;

impl Waiting for OfThread {
    fn of(&self, tid: u32) -> Waits {
        assert_eq!(tid, gettid());
        WAITS.with(std::cell::Cell::get)
    }
}

fn schedule(tid: u32, to: &Scheduling) -> io::Result<()> {
    assert_eq!(tid, gettid());
    note(format!("priority {}", to.priority));
    Ok(())
}

fn with_gates(kind: GateKind, test: impl FnOnce(&mut Gates, &Gate)) {
    let gates = [Gate {
        members: Members::default(),
        counters: GateCounters::new(),
        has_joined: AtomicBool::new(false),
        priority: 20,
    }];
    gates[0].members.add(gettid()).unwrap();
    let changes = Changes::new();
    let mut moved = Gates::new(&Freezer, &gates, (kind, Some(&OfThread)), &changes);
    moved.schedule = schedule;
    test(&mut moved, &gates[0]);
}

fn now_waits(waits: Waits) {
    WAITS.with(|w| w.set(waits));
}

fn stats(gate: &Gate) -> crate::stats::GateStats {
    gate.counters.read("")
}

#[test]
fn a_soft_gate_freezes_a_waiting_thread_at_once() {
    with_gates(GateKind::Soft, |gates, gate| {
        now_waits(Waits::Yes);
        gates.close(0).unwrap();
        assert_eq!(log(), ["freeze"]);
        assert_eq!(gates.next_look_ns(), u64::MAX);
        gates.open(0).unwrap();
        assert_eq!(log(), ["thaw"]);
        let s = stats(gate);
        assert_eq!((s.ends, s.working, s.unknown, s.hard), (1, 0, 0, 0));
    });
}

#[test]
fn a_soft_gate_lowers_a_working_threads_priority_until_the_thread_waits() {
    with_gates(GateKind::Soft, |gates, gate| {
        now_waits(Waits::No);
        gates.close(0).unwrap();
        assert_eq!(log(), ["priority 0"]);
        let first = gates.next_look_ns();
        assert_eq!(gates.look_again(first - 1) + gates.look_again(first), 0);
        let second = gates.next_look_ns();
        assert_eq!(second - first, 2 * FIRST_PAUSE_NS);
        now_waits(Waits::Yes);
        gates.look_again(second);
        assert_eq!(log(), ["freeze"]);
        assert_eq!(gates.next_look_ns(), u64::MAX);
        // The thread gets its priority before it can run.
        gates.open(0).unwrap();
        assert_eq!(log(), ["priority 20", "thaw"]);
        let s = stats(gate);
        assert_eq!((s.working, s.waited.count(), s.unfinished), (1, 1, 0));
        assert!(s.waited.max_ns >= 3 * FIRST_PAUSE_NS);
    });
}

#[test]
fn pauses_between_checks_of_a_working_thread_grow_to_a_limit_and_end_with_the_next_slot() {
    with_gates(GateKind::Soft, |gates, gate| {
        now_waits(Waits::No);
        gates.close(0).unwrap();
        for _ in 0..20 {
            let at = gates.next_look_ns();
            gates.look_again(at);
            let pause = gates.next_look_ns() - at;
            assert!((FIRST_PAUSE_NS..=LONGEST_PAUSE_NS).contains(&pause));
        }
        log();
        gates.open(0).unwrap();
        assert_eq!(log(), ["priority 20"]);
        assert_eq!(gates.next_look_ns(), u64::MAX);
        assert_eq!((stats(gate).unfinished, stats(gate).waited.count()), (1, 0));
    });
}

#[test]
fn a_thread_in_an_unknown_state_is_not_frozen() {
    with_gates(GateKind::Soft, |gates, gate| {
        now_waits(Waits::Unknown);
        gates.close(0).unwrap();
        assert_eq!(log(), ["priority 0"]);
        assert_eq!(
            gates.next_look_ns(),
            u64::MAX,
            "no check of the thread is due"
        );
        gates.open(0).unwrap();
        assert_eq!(log(), ["priority 20"]);
        assert_eq!((stats(gate).unknown, stats(gate).working), (1, 0));
    });
}

#[test]
fn a_thread_that_woke_up_during_the_freeze_is_released() {
    with_gates(GateKind::Soft, |gates, gate| {
        now_waits(Waits::Yes);
        WAKES_WHILE_FROZEN.with(|w| w.set(true));
        gates.close(0).unwrap();
        assert_eq!(log(), ["freeze"]);
        let at = gates.next_look_ns();
        assert_ne!(at, u64::MAX);
        gates.look_again(at);
        assert_eq!(log(), ["priority 0", "thaw"]);
        assert_eq!(stats(gate).taken_back, 1);
        now_waits(Waits::Yes);
        gates.look_again(gates.next_look_ns());
        assert_eq!(log(), ["freeze"]);
    });
    // The kernel woke the thread up to freeze it, and the thread sleeps again at once.
    with_gates(GateKind::Soft, |gates, gate| {
        now_waits(Waits::Yes);
        WAKES_WHILE_FROZEN.with(|w| w.set(true));
        gates.close(0).unwrap();
        now_waits(Waits::Yes);
        gates.look_again(gates.next_look_ns());
        assert_eq!(log(), ["freeze"]);
        assert_eq!(
            (gates.next_look_ns(), stats(gate).taken_back),
            (u64::MAX, 0)
        );
    });
}

#[test]
fn a_working_thread_that_joins_a_shut_gate_is_released() {
    with_gates(GateKind::Soft, |gates, gate| {
        now_waits(Waits::Yes);
        gates.close(0).unwrap();
        log();
        now_waits(Waits::No);
        gate.joined();
        gates.look_again(0);
        gates.look_again(gates.next_look_ns());
        assert_eq!(log(), ["priority 0", "thaw"]);
        // Another thread that joins still has its server's priority.
        gate.joined();
        gates.look_again(0);
        assert_eq!(log(), ["priority 0"]);
    });
}

#[test]
fn a_thread_that_joins_a_frozen_soft_gate_gets_a_normal_priority_until_the_next_slot() {
    with_gates(GateKind::Soft, |gates, gate| {
        for wakes in [false, true] {
            now_waits(Waits::No);
            gates.close(0).unwrap();
            now_waits(Waits::Yes);
            // The test covers a freeze with and without a second look.
            WAKES_WHILE_FROZEN.with(|w| w.set(wakes));
            gates.look_again(gates.next_look_ns());
            assert_eq!(log(), ["priority 0", "freeze"]);
            now_waits(Waits::No);
            gate.joined();
            gates.look_again(0);
            assert_eq!(
                log(),
                ["priority 0"],
                "the new thread kept its server's priority"
            );
            gates.look_again(gates.next_look_ns());
            assert_eq!(log(), ["thaw"]);
            gates.open(0).unwrap();
            assert_eq!(log(), ["priority 20"]);
        }
    });
}

#[test]
fn a_hard_gate_freezes_every_thread_and_counts_working_ones() {
    with_gates(GateKind::Hard, |gates, gate| {
        for waits in [Waits::No, Waits::Yes, Waits::Unknown] {
            now_waits(waits);
            gates.close(0).unwrap();
            gates.open(0).unwrap();
            assert_eq!(log(), ["freeze", "thaw"]);
        }
        let s = stats(gate);
        assert_eq!((s.ends, s.working, s.unknown, s.hard), (3, 1, 1, 1));
    });
}

#[test]
fn a_gates_priority_change_is_logged_with_its_time() {
    static FAILURES: AtomicU32 = AtomicU32::new(1);
    with_gates(GateKind::Soft, |gates, _| {
        now_waits(Waits::No);
        let before = monotonic_ns();
        // A failed change is tried again at the table's next instant.
        gates.schedule = |_, _| match FAILURES.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1))
        {
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EPERM)),
            Err(_) => Ok(()),
        };
        assert!(gates.close(0).is_err());
        gates.close(0).unwrap();
        gates.open(0).unwrap();
        let changes = gates.changes.since(&mut 0);
        let raised: Vec<bool> = changes.iter().map(|c| c.is_raised).collect();
        assert_eq!(raised, [false, false, true]);
        assert!(changes.iter().all(|c| c.at_ns >= before && c.server == 0));
    });
}

#[test]
fn a_gate_opens_even_if_a_priority_cannot_be_restored() {
    static REFUSED: AtomicU32 = AtomicU32::new(0);
    with_gates(GateKind::Soft, |gates, _| {
        now_waits(Waits::No);
        gates.close(0).unwrap();
        now_waits(Waits::Yes);
        gates.look_again(gates.next_look_ns());
        assert_eq!(log(), ["priority 0", "freeze"]);
        REFUSED.store(1, Relaxed);
        gates.schedule = |tid, to| match REFUSED.swap(0, Relaxed) {
            0 => schedule(tid, to),
            _ => Err(io::Error::from_raw_os_error(libc::EPERM)),
        };
        assert!(
            gates.open(0).is_err(),
            "the gate counts the refused priority, and tries again"
        );
        assert_eq!(log(), ["thaw"]);
        gates.open(0).unwrap();
        assert_eq!(log(), ["priority 20"]);
    });
}

#[test]
fn a_gate_that_could_be_shut_only_partly_is_opened_completely() {
    for kind in [GateKind::Soft, GateKind::Hard] {
        with_gates(kind, |gates, _| {
            now_waits(Waits::Yes);
            ONE_GROUP_FAILS.with(|fails| fails.set(true));
            assert!(gates.close(0).is_err());
            assert_eq!(log(), ["freeze"]);
            gates.open(0).unwrap();
            assert_eq!(log(), ["thaw"], "{kind:?}");
        });
    }
}

#[test]
fn an_empty_gate_is_already_closed_when_its_first_thread_joins() {
    for kind in [GateKind::Soft, GateKind::Hard] {
        let gates = [Gate {
            members: Members::default(),
            counters: GateCounters::new(),
            has_joined: AtomicBool::new(false),
            priority: 20,
        }];
        let changes = Changes::new();
        let mut moved = Gates::new(&Freezer, &gates, (kind, Some(&OfThread)), &changes);
        moved.schedule = schedule;
        for open in [false, true, false] {
            assert!(moved.is_unused(0));
            moved.note_unmoved(0, open);
        }
        assert_eq!(log(), Vec::<String>::new());
        now_waits(Waits::Yes);
        gates[0].members.add(gettid()).unwrap();
        assert!(!moved.is_unused(0));
        gates[0].joined();
        assert_eq!(moved.look_again(0), 0);
        assert_eq!(log(), ["freeze"]);
        moved.open(0).unwrap();
        assert_eq!(log(), ["thaw"]);
        // The thread ends, but threads that it started may still be behind the gate.
        gates[0].members.remove(gettid());
        assert!(!moved.is_unused(0));
    }
}
