//! What only the enforcer on sched_ext does: `./dev test sched-ext` runs it in a guest whose kernel has
//! it.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::helper::*;
use common::*;
use onbeat_reserve::{Choice, Reservation};
use std::path::Path;
use std::time::Duration;

const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// Whether a test can run here; prints why not.
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
fn a_kernel_without_it_is_told() {
    if Path::new(SCHED_EXT).exists() {
        println!("skipped: a_kernel_without_it_is_told: this kernel has sched_ext");
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

/// The kernel would end the scheduler while the thread waits.
#[test]
fn a_long_pause_is_refused() {
    let dir = Dir::new("pause");
    let servers = [server("rare", 20, &[(0, MS)])];
    let refused = Reservation::start(60_000 * MS, &servers, 0, options(Choice::SchedExt, &dir));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("\"rare\"") && text.contains("20 s"), "{text}");
    assert_eq!(dir.ledgers(), 0);
}

#[test]
fn a_second_scheduler_is_refused() {
    let _alone = alone();
    if !is_here("a_second_scheduler_is_refused") {
        return;
    }
    let dir = Dir::new("second");
    let servers = [server("r", 20, &[(0, MS)])];
    let start = || Reservation::start(20 * MS, &servers, 0, options(Choice::SchedExt, &dir));
    let first = start().unwrap();
    let text = start().unwrap_err().to_string();
    assert!(
        text.contains("onbeat") && text.contains("one only"),
        "{text}"
    );
    assert_eq!(state(), "enabled");
    first.stop();
    assert_eq!(state(), "disabled");
    start().unwrap().stop();
}

/// Takes a thread into a server whose slot is over for long, until it is killed.
#[test]
#[ignore = "a process that tests start"]
fn helper_owner() {
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

/// Owner and guard are killed: the kernel removes the scheduler, and the thread runs on at once. What
/// is left of the change is undone by the next reservation, as after any crash.
#[test]
fn the_owner_s_death_gives_threads_back() {
    let _alone = alone();
    if !is_here("the_owner_s_death_gives_threads_back") {
        return;
    }
    let dir = Dir::new("killed");
    let worker = Worker::spinning();
    let before = likeness(worker.tid);
    let environment = [
        ("STATE", dir.0.to_str().unwrap().to_owned()),
        ("TID", worker.tid.to_string()),
    ];
    let mut owner = Helper::start("helper_owner", &environment, None);
    assert_eq!(owner.says(), "taken");
    assert_frozen(worker.tid);
    assert_eq!(state(), "enabled");
    // The guard first: nobody puts anything back.
    let guard = guard_of(owner.child.id()).unwrap();
    assert_eq!(unsafe { libc::kill(guard as i32, libc::SIGKILL) }, 0);
    owner.kill(libc::SIGKILL);
    wait_for("the scheduler to be gone", || state() == "disabled");
    assert_runs(worker.tid);
    assert_ne!(likeness(worker.tid), before, "nobody was there to undo it");
    // The next one finds what was left.
    let servers = [server("r", 20, &[(0, MS)])];
    let next = Reservation::start(20 * MS, &servers, now_ns(), options(Choice::SchedExt, &dir));
    let next = next.unwrap();
    assert!(next
        .warnings()
        .iter()
        .any(|w| w.to_string().contains("1 threads")));
    next.stop();
    assert_eq!(likeness(worker.tid), before);
}

/// The owner alone is killed: its guard puts everything back.
#[test]
fn the_guard_puts_back_what_a_killed_owner_left() {
    let _alone = alone();
    if !is_here("the_guard_puts_back_what_a_killed_owner_left") {
        return;
    }
    let dir = Dir::new("alone");
    let worker = Worker::spinning();
    let before = likeness(worker.tid);
    let environment = [
        ("STATE", dir.0.to_str().unwrap().to_owned()),
        ("TID", worker.tid.to_string()),
    ];
    let mut owner = Helper::start("helper_owner", &environment, None);
    assert_eq!(owner.says(), "taken");
    assert_frozen(worker.tid);
    owner.kill(libc::SIGKILL);
    wait_for("the scheduler to be gone", || state() == "disabled");
    wait_for("the guard to put it back", || {
        likeness(worker.tid) == before
    });
    assert_runs(worker.tid);
    wait_for("the ledger to be gone", || dir.ledgers() == 0);
}

/// While owner and guard are stopped, slots come and go: they are in the kernel. Behind freezers, all
/// gates are opened then.
#[test]
fn a_stopped_owner_keeps_slots() {
    let _alone = alone();
    if !is_here("a_stopped_owner_keeps_slots") {
        return;
    }
    let dir = Dir::new("stopped");
    let worker = Worker::spinning();
    let environment = [
        ("STATE", dir.0.to_str().unwrap().to_owned()),
        ("TID", worker.tid.to_string()),
    ];
    let mut owner = Helper::start("helper_owner", &environment, None);
    assert_eq!(owner.says(), "taken");
    let guard = guard_of(owner.child.id()).unwrap() as i32;
    owner.kill(libc::SIGSTOP);
    assert_eq!(unsafe { libc::kill(guard, libc::SIGSTOP) }, 0);
    assert_frozen(worker.tid);
    // The next slot comes, and ends.
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

/// What sched_ext does not give: a normal thread of the CPU goes before the server's thread, in its
/// slot too, where the freezer's has a real-time priority. Counted as shares of what both got.
#[test]
fn a_normal_thread_goes_before_a_server_s() {
    let _alone = alone();
    if !is_here("a_normal_thread_goes_before_a_server_s") {
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

/// With soft gates a thread is never kept from the CPU when nobody else wants it.
#[test]
fn soft_gates_stop_nobody() {
    let _alone = alone();
    if !is_here("soft_gates_stop_nobody") {
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
