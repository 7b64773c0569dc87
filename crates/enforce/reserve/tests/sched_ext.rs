//! Tests for the enforcer on sched_ext alone. `./dev test sched-ext` runs them in a guest whose
//! kernel has sched_ext.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::helper::*;
use common::*;
use onbeat_reserve::{Choice, Reservation};
use std::path::Path;
use std::time::Duration;

const SCHED_EXT: &str = "/sys/kernel/sched_ext";

fn is_here(test: &str) -> bool {
    let is_here = Path::new(SCHED_EXT).exists();
    if !is_here {
        println!("skipped: {test}: this kernel has no sched_ext (./dev test sched-ext has one)");
    }
    is_here
}

fn state() -> String {
    let state = std::fs::read_to_string(format!("{SCHED_EXT}/state")).unwrap();
    state.trim().into()
}

#[test]
fn a_reservation_with_sched_ext_is_refused_on_a_kernel_without_it() {
    if Path::new(SCHED_EXT).exists() {
        println!("skipped: a_reservation_with_sched_ext_is_refused_on_a_kernel_without_it: this kernel has sched_ext");
        return;
    }
    let dir = Dir::new("without");
    let servers = [server("r", 20, &[(0, MS)])];
    let refused = Reservation::start(10 * MS, &servers, 0, options(Choice::SchedExt, &dir));
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("this kernel has no sched_ext") && !text.contains('\n'),
        "{text}"
    );
    assert_eq!(dir.ledgers(), 0);
}

#[test]
fn sched_ext_refuses_a_server_whose_slots_are_too_far_apart() {
    let dir = Dir::new("pause");
    let servers = [server("rare", 20, &[(0, MS)])];
    let refused = Reservation::start(60_000 * MS, &servers, 0, options(Choice::SchedExt, &dir));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("\"rare\"") && text.contains("20 s"), "{text}");
    assert_eq!(dir.ledgers(), 0);
}

#[test]
fn a_second_sched_ext_scheduler_is_refused() {
    let _alone = one_test_at_a_time();
    if !is_here("a_second_sched_ext_scheduler_is_refused") {
        return;
    }
    let dir = Dir::new("second");
    let servers = [server("r", 20, &[(0, MS)])];
    let start = || Reservation::start(20 * MS, &servers, 0, options(Choice::SchedExt, &dir));
    let first = start().unwrap();
    let text = start().unwrap_err().to_string();
    assert!(
        text.contains("onbeat") && text.contains("only one"),
        "{text}"
    );
    assert_eq!(state(), "enabled");
    first.stop();
    assert_eq!(state(), "disabled");
    start().unwrap().stop();
}

#[test]
#[ignore = "a process that tests start"]
fn a_process_that_other_tests_start_owns_a_reservation() {
    let mut options = onbeat_reserve::Options::new(0);
    options.backend = Choice::SchedExt;
    options.state_dir = std::env::var("STATE").unwrap().into();
    let cycle = 10_000 * MS;
    let servers = [server("shut", 20, &[(0, 200 * MS)])];
    let reservation = Reservation::start(cycle, &servers, now_ns() + cycle / 2, options).unwrap();
    let tid = std::env::var("TID").unwrap().parse().unwrap();
    reservation.assign(tid, "shut").unwrap();
    say("taken");
    wait_for_end_of_input();
}

#[test]
fn threads_run_on_after_owner_and_guard_were_killed() {
    let _alone = one_test_at_a_time();
    if !is_here("threads_run_on_after_owner_and_guard_were_killed") {
        return;
    }
    let dir = Dir::new("killed");
    let worker = Worker::spinning();
    let before = thread_state(worker.tid);
    let environment = [
        ("STATE", dir.0.to_str().unwrap().to_owned()),
        ("TID", worker.tid.to_string()),
    ];
    let mut owner = Helper::start(
        "a_process_that_other_tests_start_owns_a_reservation",
        &environment,
        None,
    );
    assert_eq!(owner.next_output(), "taken");
    assert_frozen(worker.tid);
    assert_eq!(state(), "enabled");
    // The guard is killed first, so that the changes stay.
    let guard = guard_of(owner.child.id()).unwrap();
    assert_eq!(unsafe { libc::kill(guard as i32, libc::SIGKILL) }, 0);
    owner.kill(libc::SIGKILL);
    wait_for("the scheduler to be gone", || state() == "disabled");
    assert_runs(worker.tid);
    assert_ne!(
        thread_state(worker.tid),
        before,
        "nobody was there to undo it"
    );
    // The next reservation finds the changes that were left.
    let servers = [server("r", 20, &[(0, MS)])];
    let next = Reservation::start(20 * MS, &servers, now_ns(), options(Choice::SchedExt, &dir));
    let next = next.unwrap();
    assert!(next
        .warnings()
        .iter()
        .any(|w| w.to_string().contains("1 threads")));
    next.stop();
    assert_eq!(thread_state(worker.tid), before);
}

#[test]
fn the_guard_undoes_the_changes_of_a_killed_owner() {
    let _alone = one_test_at_a_time();
    if !is_here("the_guard_undoes_the_changes_of_a_killed_owner") {
        return;
    }
    let dir = Dir::new("alone");
    let worker = Worker::spinning();
    let before = thread_state(worker.tid);
    let environment = [
        ("STATE", dir.0.to_str().unwrap().to_owned()),
        ("TID", worker.tid.to_string()),
    ];
    let mut owner = Helper::start(
        "a_process_that_other_tests_start_owns_a_reservation",
        &environment,
        None,
    );
    assert_eq!(owner.next_output(), "taken");
    assert_frozen(worker.tid);
    owner.kill(libc::SIGKILL);
    wait_for("the scheduler to be gone", || state() == "disabled");
    wait_for("the guard to put it back", || {
        thread_state(worker.tid) == before
    });
    assert_runs(worker.tid);
    wait_for("the ledger to be gone", || dir.ledgers() == 0);
}

/// The slots continue while owner and guard are stopped, because they are in the kernel. With
/// freezers, all gates would be opened.
#[test]
fn slots_continue_while_the_owner_is_stopped() {
    let _alone = one_test_at_a_time();
    if !is_here("slots_continue_while_the_owner_is_stopped") {
        return;
    }
    let dir = Dir::new("stopped");
    let worker = Worker::spinning();
    let environment = [
        ("STATE", dir.0.to_str().unwrap().to_owned()),
        ("TID", worker.tid.to_string()),
    ];
    let mut owner = Helper::start(
        "a_process_that_other_tests_start_owns_a_reservation",
        &environment,
        None,
    );
    assert_eq!(owner.next_output(), "taken");
    let guard = guard_of(owner.child.id()).unwrap() as i32;
    owner.kill(libc::SIGSTOP);
    assert_eq!(unsafe { libc::kill(guard, libc::SIGSTOP) }, 0);
    assert_frozen(worker.tid);
    // The next slot begins and ends.
    let ran = ran_ns(worker.tid).unwrap();
    wait_for("a slot", || ran_ns(worker.tid).unwrap() > ran + 20 * MS);
    assert_frozen(worker.tid);
    assert_eq!(state(), "enabled");
    assert_eq!(unsafe { libc::kill(guard, libc::SIGCONT) }, 0);
    owner.kill(libc::SIGCONT);
    drop(owner.input.take());
    assert!(owner.child.wait().unwrap().success());
    assert_runs(worker.tid);
}

/// With sched_ext, normal threads run before the server's thread even in its slot. With a freezer,
/// the server's thread has a real-time priority. The test compares the share of the two threads'
/// CPU time that the server's thread gets.
#[test]
fn a_normal_thread_runs_before_a_server_thread() {
    let _alone = one_test_at_a_time();
    if !is_here("a_normal_thread_runs_before_a_server_thread") {
        return;
    }
    let share = |backend: Choice| {
        let dir = Dir::new("normal");
        let [ours, other] = [Worker::spinning(), Worker::spinning()];
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        unsafe { libc::CPU_SET(cpu().into(), &mut set) };
        let pinned = unsafe { libc::sched_setaffinity(other.tid as i32, size_of_val(&set), &set) };
        assert_eq!(pinned, 0);
        let servers = [server("r", 20, &[(0, 80 * MS)])];
        let reservation =
            Reservation::start(100 * MS, &servers, now_ns(), options(backend, &dir)).unwrap();
        reservation.assign(ours.tid, "r").unwrap();
        let ran = || [ours.tid, other.tid].map(|tid| ran_ns(tid).unwrap());
        let before = ran();
        wait_for("three seconds of both", || {
            let now = ran();
            now[0] + now[1] > before[0] + before[1] + 3000 * MS
        });
        let now = ran();
        let [ours, other] = [now[0] - before[0], now[1] - before[1]];
        ours as f64 / (ours + other) as f64
    };
    let (freezer, sched_ext) = (share(Choice::Auto), share(Choice::SchedExt));
    println!("of 80 % in slots: freezer {freezer:.2}, sched_ext {sched_ext:.2}");
    assert!(freezer > 0.5 && sched_ext < 0.4, "{freezer} {sched_ext}");
}

#[test]
fn soft_gates_never_stop_threads_on_an_idle_cpu() {
    let _alone = one_test_at_a_time();
    if !is_here("soft_gates_never_stop_threads_on_an_idle_cpu") {
        return;
    }
    let dir = Dir::new("soft");
    let mut options = options(Choice::SchedExt, &dir);
    options.gate = onbeat_reserve::GateKind::Soft;
    let worker = Worker::spinning();
    let cycle = 10_000 * MS;
    let servers = [server("shut", 20, &[(0, MS)])];
    let reservation = Reservation::start(cycle, &servers, now_ns() + cycle / 2, options).unwrap();
    reservation.assign(worker.tid, "shut").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_runs(worker.tid);
}
