//! The machine is put back whichever process dies at any time. The tests use real processes and
//! signals.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::helper::*;
use common::*;
use onbeat_reserve::{Choice, Reservation, Warning};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[test]
#[ignore = "a process that tests start"]
fn a_process_that_other_tests_start_runs_target_threads() {
    run_target(Worker::spinning);
}

#[test]
#[ignore = "a process that tests start"]
fn a_process_that_other_tests_start_owns_a_reservation() {
    // A shell without job control starts background processes that ignore SIGINT.
    // SAFETY: the default action needs no handler.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    let get = |name: &str| std::env::var(name).unwrap();
    let backend = match get("BACKEND").as_str() {
        "CgroupV1" => Choice::CgroupV1,
        "CgroupV2" => Choice::CgroupV2,
        _ => Choice::Auto,
    };
    let mut options = onbeat_reserve::Options::new(0);
    options.backend = backend;
    options.state_dir = get("STATE").into();
    // The gate is shut for the next half hour, or opens and shuts all the time.
    let (cycle, slots) = match get("CYCLE").as_str() {
        "long" => (HOUR, [(0, MS)]),
        _ => (4 * MS, [(0, 2 * MS)]),
    };
    let servers = [server("shut", 20, &slots)];
    match Reservation::start(cycle, &servers, now_ns() + cycle / 2, options) {
        Ok(reservation) => {
            let tids: Vec<u32> = get("TIDS").split(' ').map(|t| t.parse().unwrap()).collect();
            reservation.assign(tids[0], "shut").unwrap();
            reservation.place(tids[1], 0, 1).unwrap();
            say("taken");
            wait_for_end_of_input();
        }
        Err(e) => say(&format!("error {e}")),
    }
}

fn owner(backend: Choice, dir: &Dir, cycle: &str, tids: &str, without: Option<i32>) -> Helper {
    let environment = [
        ("BACKEND", format!("{backend:?}")),
        ("STATE", dir.0.to_str().unwrap().to_owned()),
        ("CYCLE", cycle.to_owned()),
        ("TIDS", tids.to_owned()),
    ];
    Helper::start(
        "a_process_that_other_tests_start_owns_a_reservation",
        &environment,
        without,
    )
}

#[test]
fn threads_and_cgroups_are_restored_when_the_owner_dies() {
    let _alone = one_test_at_a_time();
    for backend in backends("threads_and_cgroups_are_restored_when_the_owner_dies") {
        for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGINT, libc::SIGABRT] {
            for cycle in ["long", "short"] {
                let dir = Dir::new("dies");
                let (_target, said, tids) = target();
                let before = tids.map(thread_state);
                let mut owner = owner(backend, &dir, cycle, &said, None);
                assert_eq!(owner.next_output(), "taken");
                println!("{backend:?}, signal {signal}, {cycle} cycle");
                let pid = owner.child.id();
                if cycle == "long" {
                    assert_frozen(tids[0]);
                }
                assert!(!groups_of(pid).is_empty());
                assert_ne!(tids.map(thread_state), before);
                owner.kill(signal);
                let status = owner.child.wait().unwrap();
                assert_eq!(status.signal(), Some(signal));
                wait_for("the guard", || dir.ledgers() == 0);
                assert_eq!(tids.map(thread_state), before);
                assert_eq!(groups_of(pid), Vec::<std::path::PathBuf>::new());
                tids.into_iter().for_each(assert_runs);
            }
        }
    }
}

#[test]
fn the_guard_ends_when_its_owner_stops_the_reservation() {
    let _alone = one_test_at_a_time();
    for backend in backends("the_guard_ends_when_its_owner_stops_the_reservation") {
        let dir = Dir::new("proper");
        let (_target, said, tids) = target();
        let before = tids.map(thread_state);
        let mut owner = owner(backend, &dir, "short", &said, None);
        assert_eq!(owner.next_output(), "taken");
        let guard = guard_of(owner.child.id()).unwrap();
        drop(owner.input.take());
        assert!(owner.child.wait().unwrap().success());
        assert!(!Path::new(&format!("/proc/{guard}")).exists());
        assert_eq!((tids.map(thread_state), dir.ledgers()), (before, 0));
    }
}

#[test]
fn the_next_reservation_recovers_after_owner_and_guard_were_killed() {
    let _alone = one_test_at_a_time();
    for backend in backends("the_next_reservation_recovers_after_owner_and_guard_were_killed") {
        let dir = Dir::new("both");
        let (_target, said, tids) = target();
        let before = tids.map(thread_state);
        let mut first = owner(backend, &dir, "long", &said, None);
        assert_eq!(first.next_output(), "taken");
        let pid = first.child.id();
        let guard = guard_of(pid).unwrap();
        assert_frozen(tids[0]);
        // While owner or guard lives, other processes leave their changes alone.
        unsafe { libc::kill(guard as i32, libc::SIGKILL) };
        let next = || {
            let servers = [server("r", 1, &[(0, MS)])];
            Reservation::start(100 * MS, &servers, 0, options(backend, &dir)).unwrap()
        };
        let second = next();
        assert_eq!(second.warnings(), []);
        assert!(second
            .assign(tids[0], "r")
            .unwrap_err()
            .to_string()
            .contains(&format!("onbeat-{pid}-")));
        drop(second);
        assert_frozen(tids[0]);
        first.kill(libc::SIGKILL);
        first.child.wait().unwrap();
        // Both are dead, so the changes stay.
        assert_frozen(tids[0]);
        let third = next();
        let recovered = |w: &Warning| matches!(w, Warning::Recovered { threads: 2, .. });
        assert!(third.warnings().iter().any(recovered), "{third:?}");
        tids.into_iter().for_each(assert_runs);
        assert_eq!(tids.map(thread_state), before);
        assert_eq!(groups_of(pid), Vec::<std::path::PathBuf>::new());
        drop(third);
        assert_eq!(dir.ledgers(), 0);
    }
}

#[test]
fn without_a_guard_no_thread_is_assigned() {
    let _alone = one_test_at_a_time();
    for backend in backends("without_a_guard_no_thread_is_assigned") {
        let dir = Dir::new("guardless");
        let worker = Worker::spinning();
        let before = thread_state(worker.tid);
        let servers = [server("r", 1, &[(0, MS)])];
        let reservation =
            Reservation::start(100 * MS, &servers, 0, options(backend, &dir)).unwrap();
        let guard = guard_of(std::process::id()).unwrap();
        unsafe { libc::kill(guard as i32, libc::SIGKILL) };
        wait_for("the refusal", || {
            let refused = reservation.assign(worker.tid, "r").is_err();
            let _ = reservation.release(worker.tid);
            refused
        });
        assert_eq!(thread_state(worker.tid), before);
        drop(reservation);
        assert_eq!(dir.ledgers(), 0);
    }
}

#[test]
fn a_process_can_be_killed_while_it_is_frozen() {
    let _alone = one_test_at_a_time();
    for backend in backends("a_process_can_be_killed_while_it_is_frozen") {
        for signal in [libc::SIGKILL, libc::SIGTERM] {
            let dir = Dir::new("frozen");
            let (mut target, _, tids) = target();
            let servers = [server("shut", 20, &[(0, MS)])];
            let origin = now_ns() + HOUR / 2;
            let reservation =
                Reservation::start(HOUR, &servers, origin, options(backend, &dir)).unwrap();
            reservation.assign(tids[0], "shut").unwrap();
            reservation.assign(tids[1], "shut").unwrap();
            assert_frozen(tids[0]);
            target.kill(signal);
            if backend == Choice::CgroupV2 && signal == libc::SIGKILL {
                // The process has no slot for the next hour.
                wait_for("its end", || target.child.try_wait().unwrap().is_some());
            } else {
                std::thread::sleep(Duration::from_millis(200));
            }
            let at_once = target.child.try_wait().unwrap().is_some();
            println!("{backend:?}, signal {signal}: ended while frozen: {at_once}");
            // The other thread does not hold the process forever. It ends with the next slot or
            // with the reservation.
            let report = reservation.stop();
            assert_eq!(report.restored.failures, Vec::<String>::new());
            assert_eq!(target.child.wait().unwrap().signal(), Some(signal));
            assert_eq!(dir.ledgers(), 0);
            assert_eq!(
                groups_of(std::process::id()),
                Vec::<std::path::PathBuf>::new()
            );
        }
    }
}

#[test]
fn a_killed_process_ends_in_its_next_slot() {
    let _alone = one_test_at_a_time();
    for backend in backends("a_killed_process_ends_in_its_next_slot") {
        let dir = Dir::new("slot");
        let (mut target, _, tids) = target();
        let servers = [server("r", 20, &[(0, 5 * MS)])];
        let reservation = Reservation::start(50 * MS, &servers, 0, options(backend, &dir)).unwrap();
        tids.into_iter()
            .for_each(|t| reservation.assign(t, "r").unwrap());
        target.kill(libc::SIGTERM);
        wait_for("its end", || target.child.try_wait().unwrap().is_some());
        // Unless the ids were reused, the threads have ended, and release succeeds.
        for tid in tids {
            reservation.release(tid).unwrap();
        }
        assert_eq!(reservation.stop().restored.failures, Vec::<String>::new());
    }
}

#[test]
fn threads_that_end_during_assignment_cause_no_failure() {
    let _alone = one_test_at_a_time();
    for backend in backends("threads_that_end_during_assignment_cause_no_failure") {
        let dir = Dir::new("come");
        let servers = [server("r", 20, &[(0, MS)])];
        let reservation = Reservation::start(4 * MS, &servers, 0, options(backend, &dir)).unwrap();
        let (mut taken, mut vanished) = (0, 0);
        for i in 0..150u64 {
            let worker = Worker::new(move |_: &AtomicBool| {
                std::thread::sleep(Duration::from_micros(20 * i));
            });
            match reservation.assign(worker.tid, "r") {
                Ok(()) => taken += 1,
                Err(onbeat_reserve::AssignError::Vanished(_)) => vanished += 1,
                Err(e) => panic!("{e}"),
            }
        }
        println!("{backend:?}: {taken} taken, {vanished} had ended");
        assert!(taken > 0);
        let report = reservation.stop();
        assert_eq!(report.restored.failures, Vec::<String>::new());
        assert_eq!(dir.ledgers(), 0);
    }
}

#[test]
fn a_missing_privilege_gives_an_error_of_one_line() {
    const CAP_SYS_NICE: i32 = 23;
    let _alone = one_test_at_a_time();
    for backend in backends("a_missing_privilege_gives_an_error_of_one_line") {
        let dir = Dir::new("privilege");
        let (_target, said, tids) = target();
        let before = tids.map(thread_state);
        let mut owner = owner(backend, &dir, "long", &said, Some(CAP_SYS_NICE));
        let error = owner.next_output();
        assert!(
            error.contains("CAP_SYS_NICE") || !error.starts_with("error"),
            "{error}"
        );
        assert!(error.starts_with("error"), "RLIMIT_RTPRIO lets it: {error}");
        assert_eq!(tids.map(thread_state), before);
        assert_eq!(dir.ledgers(), 0);
        assert_eq!(
            groups_of(owner.child.id()),
            Vec::<std::path::PathBuf>::new()
        );
    }
}
