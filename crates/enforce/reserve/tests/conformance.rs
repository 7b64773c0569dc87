//! The conformance tests that every enforcer must pass, on the real kernel.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::*;
use onbeat_reserve::{AssignError, Choice, Reservation, StartError, Warning};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{mpsc, Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Makes two servers. The slot of the first server is over and does not come back during the test.
/// The slot of the second server is open now.
fn shut_and_open(cycle: u64) -> [onbeat_reserve::Server; 2] {
    [
        server("shut", 20, &[(0, MS)]),
        server("open", 20, &[(cycle / 4, 3 * cycle / 4)]),
    ]
}

fn start(backend: Choice, dir: &Dir) -> Reservation {
    // The kernel ends sched_ext schedulers that let a thread wait for 30 s, so the slots come back
    // in time.
    let cycle = match backend {
        Choice::SchedExt => HOUR / 360,
        _ => HOUR,
    };
    let origin = now_ns() + cycle / 2;
    let servers = shut_and_open(cycle);
    let reservation = Reservation::start(cycle, &servers, origin, options(backend, dir)).unwrap();
    let name = format!("{backend:?}").replace("CgroupV", "cgroup v");
    let name = name.replace("SchedExt", "sched_ext");
    assert!(reservation.enforcer().starts_with(&name));
    reservation
}

fn nothing_is_left(dir: &Dir) {
    assert_eq!(groups_of(std::process::id()), Vec::<PathBuf>::new());
    assert_eq!(dir.ledgers(), 0);
}

#[test]
fn threads_run_only_while_their_gate_is_open() {
    let _alone = one_test_at_a_time();
    for backend in backends("threads_run_only_while_their_gate_is_open") {
        let dir = Dir::new("open");
        let workers = [Worker::spinning(), Worker::spinning(), Worker::spinning()];
        let [shut, open, free] = workers.each_ref().map(|w| w.tid);
        let before = workers.each_ref().map(|w| thread_state(w.tid));
        let reservation = start(backend, &dir);
        reservation.assign(shut, "shut").unwrap();
        assert_frozen(shut);
        reservation.assign(open, "open").unwrap();
        assert_runs(open);
        assert_frozen(shut);
        assert_runs(free);
        reservation.release(shut).unwrap();
        assert_runs(shut);
        assert_eq!(thread_state(shut), before[0]);
        reservation.assign(shut, "shut").unwrap();
        assert_frozen(shut);
        let report = reservation.stop();
        assert_eq!((report.restored.threads, report.restored.gone), (2, 0));
        assert_eq!(report.restored.failures, Vec::<String>::new());
        assert_runs(shut);
        assert_eq!(workers.each_ref().map(|w| thread_state(w.tid)), before);
        nothing_is_left(&dir);
    }
}

/// In a plan with bands, most slots belong to servers without threads. The test checks that the
/// dispatcher does not open or close their gates.
#[test]
fn a_gate_without_threads_is_never_opened_or_closed() {
    let _alone = one_test_at_a_time();
    for backend in backends("a_gate_without_threads_is_never_opened_or_closed") {
        let dir = Dir::new("empty");
        let bands: Vec<(u64, u64)> = (0..4).map(|n| (n * 2 * MS, (n * 2 + 1) * MS)).collect();
        let servers = [
            server("chain", 20, &[(0, 5 * MS)]),
            server("bands", 20, &bands),
        ];
        let worker = Worker::spinning();
        let reservation =
            Reservation::start(10 * MS, &servers, now_ns(), options(backend, &dir)).unwrap();
        reservation.assign(worker.tid, "chain").unwrap();
        wait_for("cycles", || reservation.stats().cycles >= 20);
        let stats = reservation.stats();
        let (most, moves) = (stats.cycles + 2, [&stats.opening, &stats.closing]);
        for count in moves.map(onbeat_reserve::Histogram::count) {
            assert!(
                count > 0 && count <= most,
                "{count} in {} cycles",
                stats.cycles
            );
        }
        // The first thread of the server is gated at once.
        let other = Worker::spinning();
        reservation.assign(other.tid, "bands").unwrap();
        wait_for("its gate", || {
            let stats = reservation.stats();
            stats.closing.count() > stats.cycles + 20
        });
        assert!(reservation.stop().restored.failures.is_empty());
        nothing_is_left(&dir);
    }
}

/// The kernel patches its code at each freeze and thaw while no other cgroup is frozen. A
/// reservation therefore always keeps one cgroup frozen.
#[test]
fn a_reservation_keeps_one_empty_cgroup_frozen_until_it_ends() {
    let _alone = one_test_at_a_time();
    let name = "a_reservation_keeps_one_empty_cgroup_frozen_until_it_ends";
    if !backends(name).contains(&Choice::CgroupV1) {
        return;
    }
    let dir = Dir::new("frozen");
    let reservation = start(Choice::CgroupV1, &dir);
    let groups = groups_of(std::process::id());
    let [group] = &groups[..] else {
        panic!("{groups:?}");
    };
    let read = |file: &str| fs::read_to_string(group.join("stays-frozen").join(file)).unwrap();
    assert_eq!(read("freezer.state").trim(), "FROZEN");
    assert_eq!(read("tasks"), "");
    assert_eq!(fs::read_to_string(group.join("tasks")).unwrap(), "");
    let worker = Worker::spinning();
    reservation.assign(worker.tid, "open").unwrap();
    assert_runs(worker.tid);
    assert_eq!(read("freezer.state").trim(), "FROZEN");
    drop(reservation);
    nothing_is_left(&dir);
}

#[test]
fn threads_get_the_share_of_their_slot_under_load() {
    let _alone = one_test_at_a_time();
    for backend in backends("threads_get_the_share_of_their_slot_under_load") {
        let dir = Dir::new("slots");
        // One server has nearly half the time, and one has a twentieth in short slots. Below them,
        // a real-time thread and normal threads want all of the CPU.
        let cycle = 20 * MS;
        let short = [(11 * MS, 11 * MS + MS / 2), (15 * MS, 15 * MS + MS / 2)];
        let servers = [
            server("half", 30, &[(0, 5 * MS), (5 * MS, 8 * MS)]),
            server("short", 30, &short),
            server("low", 5, &[(0, 17 * MS)]),
            server("normal", 0, &[(0, cycle)]),
        ];
        let workers: Vec<Worker> = (0..5).map(|_| Worker::spinning()).collect();
        let before: Vec<_> = workers.iter().map(|w| thread_state(w.tid)).collect();
        let reservation =
            Reservation::start(cycle, &servers, now_ns(), options(backend, &dir)).unwrap();
        for (worker, name) in workers
            .iter()
            .zip(["half", "short", "low", "normal", "normal"])
        {
            reservation.assign(worker.tid, name).unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
        let ran: Vec<u64> = workers.iter().map(|w| ran_ns(w.tid).unwrap()).collect();
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(1500));
        let took = begin.elapsed().as_nanos() as f64;
        let shares: Vec<f64> = workers
            .iter()
            .zip(ran)
            .map(|(w, ran)| (ran_ns(w.tid).unwrap() - ran) as f64 / took)
            .collect();
        let stats = reservation.stats();
        let report = reservation.stop();
        println!("{backend:?}: shares {shares:.3?}, {} cycles", stats.cycles);
        // The host may take CPU time, so shares are compared with the time that all threads got.
        // Normal threads share the rest with all programs of the machine. No thread can get more
        // than its slots.
        let all: f64 = shares.iter().sum();
        let slots = [0.4, 0.05, 0.4, 0.15, 0.15];
        // In an emulated guest, time passes between a timer and its effect. Short slots may be
        // missed.
        let short = match backend {
            Choice::SchedExt => 0.001,
            _ => 0.0125,
        };
        let least = [0.1, short, 0.1, 0.0, 0.0];
        for (share, (slots, least)) in shares.iter().zip(slots.into_iter().zip(least)) {
            assert!(*share >= all * least && *share < slots + 0.1, "{shares:?}");
        }
        // Cycles that pass while the dispatcher does not run are skipped.
        let cycles = took as u64 / cycle;
        assert!(stats.cycles > cycles / 2, "{} of {cycles}", stats.cycles);
        assert_eq!(stats.open_failures + stats.close_failures, 0);
        assert!(stats.opening.count() > cycles && stats.lateness.count() > 2 * cycles);
        assert_eq!(report.restored.threads, 5);
        let after: Vec<_> = workers.iter().map(|w| thread_state(w.tid)).collect();
        assert_eq!(after, before);
        nothing_is_left(&dir);
    }
}

#[test]
fn a_new_table_of_slots_replaces_the_current_one_at_the_end_of_a_cycle() {
    let _alone = one_test_at_a_time();
    for backend in backends("a_new_table_of_slots_replaces_the_current_one_at_the_end_of_a_cycle") {
        let dir = Dir::new("swap");
        let cycle = 20 * MS;
        // The shortest slots are negligible, so that a stopped thread differs clearly from a
        // running one.
        let (none, all) = ((0, MS / 50), (0, cycle - MS / 2));
        let servers = |a: (u64, u64), b: (u64, u64)| {
            [
                server("a", 20, &[a]),
                server("b", 20, &[b]),
                server("always", 20, &[]),
            ]
        };
        let start = servers(all, none);
        let mut options = options(backend, &dir);
        options.lead_ns = 0;
        let reservation = Reservation::start(cycle, &start, now_ns(), options).unwrap();
        let workers = [Worker::spinning(), Worker::spinning()];
        let [a, b] = workers.each_ref().map(|w| w.tid);
        reservation.assign(a, "a").unwrap();
        reservation.assign(b, "b").unwrap();
        let stands = |tid| {
            wait_for("a thread that stands but for its slots", || {
                let before = ran_ns(tid).unwrap();
                std::thread::sleep(Duration::from_millis(200));
                ran_ns(tid).unwrap() - before < 50 * MS
            });
        };
        assert_runs(a);
        stands(b);
        let before = reservation.stats();
        let swap = |servers: &[onbeat_reserve::Server]| {
            let swaps = reservation.pulse().swaps;
            reservation.swap_table(servers).unwrap();
            wait_for("the new table", || reservation.pulse().swaps > swaps);
        };
        swap(&servers(none, all));
        stands(a);
        assert_runs(b);
        // A slot of the whole cycle opens the gate for good.
        swap(&servers((0, cycle), none));
        stands(b);
        assert_runs(a);
        let after = reservation.stats();
        assert!(after.cycles > before.cycles && after.gates[1].ends > before.gates[1].ends);
        assert_eq!(after.open_failures + after.close_failures, 0);
        // These tables are not for the same servers.
        let refused = |servers: &[onbeat_reserve::Server], wanted: &str| {
            let text = reservation.swap_table(servers).unwrap_err().to_string();
            assert!(text.contains(wanted) && !text.contains('\n'), "{text}");
        };
        refused(
            &servers(all, all)[..2],
            "differ from those of the running reservation",
        );
        refused(&servers((MS, MS), all), "slot 0");
        let mut other = servers(all, all);
        other[0].priority = 21;
        refused(&other, "differ from those of the running reservation");
        other = servers(all, all);
        other[2].slots = other[0].slots.clone();
        refused(&other, "\"always\" was started without slots");
        assert_eq!(reservation.pulse().swaps, 2);
        assert_eq!(reservation.stop().restored.threads, 2);
        nothing_is_left(&dir);
    }
}

#[test]
fn every_scheduling_policy_is_restored() {
    let _alone = one_test_at_a_time();
    for backend in backends("every_scheduling_policy_is_restored") {
        let dir = Dir::new("policy");
        // Returns `None` if the kernel refuses the policy.
        let give = |policy: i32, priority: i32, nice: i32, cpu: Option<usize>| unsafe {
            let worker = Worker::new(|stop| {
                while !stop.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let tid = worker.tid as i32;
            assert_eq!(libc::setpriority(libc::PRIO_PROCESS, worker.tid, nice), 0);
            if let Some(cpu) = cpu {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut set);
                assert_eq!(libc::sched_setaffinity(tid, size_of_val(&set), &set), 0);
            }
            if policy == libc::SCHED_DEADLINE {
                let mut attr: libc::sched_attr = std::mem::zeroed();
                attr.size = 48;
                attr.sched_policy = policy as u32;
                (attr.sched_runtime, attr.sched_deadline, attr.sched_period) =
                    (MS, 5 * MS, 10 * MS);
                let set = libc::syscall(libc::SYS_sched_setattr, worker.tid, &attr, 0u32);
                if set != 0 {
                    let error = std::io::Error::last_os_error();
                    println!(
                        "skipped: every_scheduling_policy_is_restored with SCHED_DEADLINE: {error}"
                    );
                    return None;
                }
            } else {
                let parameters = libc::sched_param {
                    sched_priority: priority,
                };
                assert_eq!(libc::sched_setscheduler(tid, policy, &parameters), 0);
            }
            Some(worker)
        };
        let workers = [
            give(libc::SCHED_OTHER, 0, -3, Some(0)),
            give(libc::SCHED_BATCH, 0, 7, None),
            give(libc::SCHED_IDLE, 0, 0, None),
            give(libc::SCHED_FIFO, 7, 0, Some(1)),
            give(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 9, 2, None),
            // The kernel refuses SCHED_DEADLINE to threads that are limited to some CPUs, as in a
            // container.
            give(libc::SCHED_DEADLINE, 0, 0, None),
        ];
        let workers: Vec<Worker> = workers.into_iter().flatten().collect();
        let before: Vec<_> = workers.iter().map(|w| thread_state(w.tid)).collect();
        let reservation = start(backend, &dir);
        for (i, worker) in workers.iter().enumerate() {
            reservation
                .assign(worker.tid, ["shut", "open"][i % 2])
                .unwrap();
            assert_ne!(thread_state(worker.tid), before[i]);
        }
        for worker in &workers[..3] {
            reservation.release(worker.tid).unwrap();
        }
        for (worker, before) in workers[..3].iter().zip(&before) {
            assert_eq!(thread_state(worker.tid), *before);
            reservation.place(worker.tid, cpu(), 3).unwrap();
            assert_ne!(thread_state(worker.tid), *before);
        }
        assert_eq!(reservation.stop().restored.threads, workers.len());
        let after: Vec<_> = workers.iter().map(|w| thread_state(w.tid)).collect();
        assert_eq!(after, before);
        nothing_is_left(&dir);
    }
}

#[test]
fn a_gate_does_not_disturb_waiting_system_calls() {
    let _alone = one_test_at_a_time();
    for backend in backends("a_gate_does_not_disturb_waiting_system_calls") {
        let dir = Dir::new("waits");
        let cycle = 10 * MS;
        let servers = [server("r", 20, &[(0, 3 * MS)])];
        let reservation =
            Reservation::start(cycle, &servers, now_ns(), options(backend, &dir)).unwrap();
        // Each message must arrive whenever it is sent, and a sleep must not be too short.
        let pair = Arc::new((Mutex::new(0u32), Condvar::new()));
        let theirs = pair.clone();
        let (send, receive) = mpsc::channel();
        let waiting = Worker::new(move |_| {
            let (number, changed) = &*theirs;
            for expected in 1..=100 {
                let mut number = number.lock().unwrap();
                while *number < expected {
                    number = changed.wait(number).unwrap();
                }
                send.send(*number).unwrap();
            }
        });
        let (slept, sleeps) = mpsc::channel();
        let sleeping = Worker::new(move |_| {
            for _ in 0..5 {
                let begin = Instant::now();
                let time = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 50_000_000,
                };
                let result = unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
                slept.send((result, begin.elapsed())).unwrap();
            }
        });
        let (polled, polls) = mpsc::channel();
        let polling = Worker::new(move |_| unsafe {
            for _ in 0..5 {
                polled
                    .send(libc::poll(std::ptr::null_mut(), 0, 50))
                    .unwrap();
            }
            let epoll = libc::epoll_create1(0);
            let mut event: libc::epoll_event = std::mem::zeroed();
            polled
                .send(libc::epoll_wait(epoll, &mut event, 1, 50))
                .unwrap();
        });
        for worker in [&waiting, &sleeping, &polling] {
            reservation.assign(worker.tid, "r").unwrap();
        }
        for number in 1..=100 {
            *pair.0.lock().unwrap() = number;
            pair.1.notify_one();
            let got = receive.recv_timeout(Duration::from_secs(60)).unwrap();
            assert!(got >= number);
            std::thread::sleep(Duration::from_micros(1700));
        }
        for (result, time) in sleeps {
            assert_eq!(result, 0);
            assert!(time >= Duration::from_millis(50));
        }
        let polls: Vec<i32> = polls.into_iter().collect();
        assert_eq!(polls[..5], [0; 5]);
        println!("{backend:?}: epoll_wait gives {} (-1: EINTR)", polls[5]);
    }
}

#[test]
fn threads_started_by_a_gated_thread_are_restored() {
    let _alone = one_test_at_a_time();
    for backend in backends("threads_started_by_a_gated_thread_are_restored") {
        let dir = Dir::new("starts");
        let (go, gone) = mpsc::channel::<()>();
        let (send, receive) = mpsc::channel();
        let gone = Mutex::new(gone);
        let parent = Worker::new(move |stop| {
            gone.lock().unwrap().recv().unwrap();
            let worker = Worker::spinning();
            let child = std::process::Command::new("sleep")
                .arg("60")
                .spawn()
                .unwrap();
            send.send((worker.tid, child)).unwrap();
            while !stop.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // Children of a real-time thread lose this nice value.
        assert_eq!(
            unsafe { libc::setpriority(libc::PRIO_PROCESS, parent.tid, 3) },
            0
        );
        let before = thread_state(parent.tid);
        let reservation = start(backend, &dir);
        reservation.assign(parent.tid, "open").unwrap();
        // A thread started in the same kernel tick might have been pinned before.
        std::thread::sleep(Duration::from_millis(25));
        go.send(()).unwrap();
        let (tid, mut child) = receive.recv().unwrap();
        // The thread has a normal policy, and is in the server's cgroup.
        assert_ne!(thread_state(tid), before);
        let report = reservation.stop();
        assert_eq!(report.restored.failures, Vec::<String>::new());
        nothing_is_left(&dir);
        assert_eq!(thread_state(tid), before);
        assert_eq!(thread_state(child.id()), before);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Middleware threads start other threads when a peer joins. The reservation restores these other
/// threads, although no gate lists them.
#[test]
fn threads_started_by_a_middleware_thread_with_a_priority_are_restored() {
    let _alone = one_test_at_a_time();
    let name = "threads_started_by_a_middleware_thread_with_a_priority_are_restored";
    let Some(backend) = backends(name).first().copied() else {
        return;
    };
    let dir = Dir::new("placed");
    let (go, gone) = mpsc::channel::<()>();
    let (send, receive) = mpsc::channel();
    let gone = Mutex::new(gone);
    let parent = Worker::new(move |stop| {
        gone.lock().unwrap().recv().unwrap();
        let child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let workers = [Worker::spinning(), Worker::spinning()];
        send.send((workers, child)).unwrap();
        while !stop.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    // Children of a real-time thread lose this nice value.
    assert_eq!(
        unsafe { libc::setpriority(libc::PRIO_PROCESS, parent.tid, 3) },
        0
    );
    let before = thread_state(parent.tid);
    let reservation = start(backend, &dir);
    reservation.place(parent.tid, cpu(), 1).unwrap();
    // A thread started in the same kernel tick might have been pinned before.
    std::thread::sleep(Duration::from_millis(25));
    go.send(()).unwrap();
    let (children, mut process) = receive.recv().unwrap();
    // Only one of the two children is placed itself.
    reservation.place(children[0].tid, cpu(), 1).unwrap();
    for tid in [children[0].tid, children[1].tid, process.id()] {
        assert_ne!(thread_state(tid), before);
    }
    let report = reservation.stop();
    assert_eq!(report.restored.failures, Vec::<String>::new());
    for tid in [parent.tid, children[0].tid, children[1].tid, process.id()] {
        assert_eq!(thread_state(tid), before);
    }
    process.kill().unwrap();
    process.wait().unwrap();
    nothing_is_left(&dir);
}

#[test]
fn a_thread_returns_to_its_earlier_cgroup_when_a_reservation_ends() {
    let _alone = one_test_at_a_time();
    for backend in backends("a_thread_returns_to_its_earlier_cgroup_when_a_reservation_ends") {
        let root = match backend {
            Choice::CgroupV1 => "/sys/fs/cgroup/freezer",
            Choice::SchedExt => "/sys/fs/cgroup",
            _ => "/sys/fs/cgroup/unified",
        };
        let Ok(()) = fs::create_dir(format!("{root}/home of test")) else {
            println!("skipped: a cgroup of its own: {root} is not there");
            continue;
        };
        let dir = Dir::new("home");
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let procs = format!("{root}/home of test/cgroup.procs");
        fs::write(&procs, child.id().to_string()).unwrap();
        let before = thread_state(child.id());
        let reservation = start(backend, &dir);
        reservation.assign(child.id(), "shut").unwrap();
        assert_ne!(thread_state(child.id()), before);
        reservation.stop();
        let after = thread_state(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir(format!("{root}/home of test")).unwrap();
        assert_eq!(after, before);
        nothing_is_left(&dir);
    }
}

#[test]
fn a_removed_cgroup_is_dropped_and_may_be_created_again() {
    let _alone = one_test_at_a_time();
    let name = "a_removed_cgroup_is_dropped_and_may_be_created_again";
    if !backends(name).contains(&Choice::CgroupV2) {
        return;
    }
    let home = PathBuf::from("/sys/fs/cgroup/unified/onbeat test container");
    if let Err(error) = fs::create_dir(&home) {
        println!("skipped: {name}: {}: {error}", home.display());
        return;
    }
    let contained = || {
        let mut command = std::process::Command::new("sleep");
        let child = command.arg("600").spawn().unwrap();
        fs::write(home.join("cgroup.procs"), child.id().to_string()).unwrap();
        child
    };
    let remove = |dir: &std::path::Path| {
        wait_for("an empty cgroup", || fs::remove_dir(dir).is_ok());
    };
    let dir = Dir::new("gone");
    let servers = [server("r", 20, &[(0, 10 * MS)])];
    let options = options(Choice::CgroupV2, &dir);
    let reservation = Reservation::start(20 * MS, &servers, now_ns(), options).unwrap();
    let mut child = contained();
    reservation.assign(child.id(), "r").unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    for outer in groups_of(std::process::id()) {
        if outer.starts_with(&home) {
            for inner in fs::read_dir(&outer).unwrap().flatten() {
                if inner.file_type().unwrap().is_dir() {
                    remove(&inner.path());
                }
            }
            remove(&outer);
        }
    }
    remove(&home);
    let cycles = || reservation.stats().cycles;
    let some_more = || {
        let before = cycles();
        wait_for("more cycles", || cycles() > before + 5);
    };
    some_more();
    let failures = || {
        let stats = reservation.stats();
        stats.open_failures + stats.close_failures
    };
    let before = failures();
    some_more();
    assert_eq!(failures(), before, "a gate without threads fails for ever");
    fs::create_dir(&home).unwrap();
    let mut child = contained();
    let as_it_was = thread_state(child.id());
    reservation.assign(child.id(), "r").unwrap();
    assert_ne!(thread_state(child.id()), as_it_was);
    let report = reservation.stop();
    assert_eq!(report.restored.failures, Vec::<String>::new());
    assert_eq!(thread_state(child.id()), as_it_was);
    child.kill().unwrap();
    child.wait().unwrap();
    remove(&home);
    nothing_is_left(&dir);
}

#[test]
fn invalid_assignments_are_refused_and_leave_the_thread_unchanged() {
    let _alone = one_test_at_a_time();
    for backend in backends("invalid_assignments_are_refused_and_leave_the_thread_unchanged") {
        let dir = Dir::new("refused");
        let worker = Worker::spinning();
        let before = thread_state(worker.tid);
        let reservation = start(backend, &dir);
        let second = match backend {
            // The kernel allows only one sched_ext scheduler.
            Choice::SchedExt => None,
            _ => Some(start(backend, &dir)),
        };
        let check = |result: Result<(), AssignError>, wanted: &str| {
            let text = result.unwrap_err().to_string();
            assert!(text.contains(wanted) && !text.contains('\n'), "{text}");
        };
        let ended = Worker::new(|_| ()).tid;
        wait_for("the thread's end", || ran_ns(ended).is_none());
        check(
            reservation.assign(ended, "shut"),
            "does not exist: it has ended",
        );
        check(
            reservation.assign(0, "shut"),
            "does not exist: it has ended",
        );
        check(
            reservation.assign(u32::MAX, "shut"),
            "does not exist: it has ended",
        );
        check(reservation.assign(worker.tid, "a\nb"), "no server");
        if let Some(own) = reservation.own_thread() {
            check(reservation.assign(own, "shut"), "the dispatcher");
        }
        check(reservation.place(worker.tid, cpu(), 100), "priority");
        check(reservation.place(worker.tid, 4000, 1), "CPU 4000");
        assert_eq!(thread_state(worker.tid), before);
        reservation.assign(worker.tid, "shut").unwrap();
        check(reservation.assign(worker.tid, "shut"), "already");
        check(reservation.place(worker.tid, cpu(), 1), "already");
        if let Some(second) = second {
            check(second.assign(worker.tid, "shut"), "another reservation");
            assert!(second.release(worker.tid).is_err());
        }
        assert_frozen(worker.tid);
        reservation.stop();
        assert_eq!(thread_state(worker.tid), before);
        nothing_is_left(&dir);
    }
}

#[test]
fn a_reservation_that_cannot_run_does_not_start() {
    let _alone = one_test_at_a_time();
    let dir = Dir::new("nothing");
    let with = |change: fn(&mut onbeat_reserve::Options), server| {
        let mut options = options(Choice::Auto, &dir);
        change(&mut options);
        Reservation::start(100 * MS, &[server], 0, options)
    };
    let delta = || server("delta", 20, &[(0, MS)]);
    let refused = |result: Result<Reservation, StartError>, wanted: &str| {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(wanted) && !text.contains('\n'), "{text}");
    };
    refused(with(|o| o.dispatcher_cpu = 9000, delta()), "CPU 9000");
    refused(with(|o| o.lead_ns = MS, delta()), "lead");
    refused(with(|_| (), server("r", 95, &[(0, MS)])), "priority 95");
    refused(with(|_| (), server("r\n", 1, &[(MS, MS)])), "slot 0");
    refused(
        with(|o| o.state_dir = "/proc/none".into(), delta()),
        "/proc/none",
    );
    if !backends("a_reservation_that_cannot_run_does_not_start").is_empty() {
        refused(
            with(|o| o.mount_table = "/dev/null".into(), delta()),
            "is not mounted",
        );
        refused(with(|o| o.mount_table = "/none".into(), delta()), "/none");
        refused(
            with(|o| o.dispatcher_priority = 100, delta()),
            "priority 100",
        );
        // A server without a gate needs no freezer.
        let free = with(|o| o.mount_table = "/dev/null".into(), server("r", 1, &[]));
        assert_eq!(free.unwrap().enforcer(), "none needed");
        let full = with(|_| (), server("r", 1, &[(50 * MS, 148 * MS)])).unwrap();
        assert!(
            full.warnings().iter().any(
                |w| matches!(w, Warning::RealTimeLimit { share, .. } if (share - 0.98).abs() < 1e-9) // Newer kernels have another limit, which only root finds in debugfs.
            ) || onbeat_proc::system::real_time_share().is_none_or(|limit| limit >= 0.98),
            "{:?}",
            full.warnings()
        );
    }
    assert_eq!(dir.ledgers(), 0);
}
