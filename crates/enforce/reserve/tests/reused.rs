//! Reused thread ids, and threads that come and go for days.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::*;
use onbeat_reserve::{AssignError, Reservation, Seen};
use std::fs;
use std::time::{Duration, Instant};

const LAST: &str = "/proc/sys/kernel/ns_last_pid";

fn seen(tid: u32, at_ns: u64) -> Seen {
    Seen {
        tid,
        pid: std::process::id(),
        at_ns,
    }
}

fn next_tick() {
    std::thread::sleep(Duration::from_millis(25));
}

fn with_id(tid: u32) -> Option<Worker> {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        // Other programs may start a thread in between.
        fs::write(LAST, (tid - 1).to_string()).ok()?;
        let worker = Worker::sleeping();
        if worker.tid == tid {
            return Some(worker);
        }
    }
    None
}

fn ended(worker: Worker) -> u32 {
    let tid = worker.tid;
    drop(worker);
    let path = format!("/proc/self/task/{tid}");
    wait_for("the thread to be gone", || fs::metadata(&path).is_err());
    tid
}

#[test]
fn a_new_thread_with_the_id_of_an_ended_one_is_not_assigned() {
    let _alone = one_test_at_a_time();
    for backend in backends("a_new_thread_with_the_id_of_an_ended_one_is_not_assigned") {
        let dir = Dir::new("reused");
        let servers = [server("r", 20, &[(0, HOUR)])];
        let reservation =
            Reservation::start(HOUR, &servers, now_ns(), options(backend, &dir)).unwrap();
        let first = Worker::sleeping();
        next_tick();
        let seen_then = seen(first.tid, now_ns());
        let tid = ended(first);
        let Some(second) = with_id(tid) else {
            println!("skipped: no thread can be given an id here ({LAST})");
            return;
        };
        let before = thread_state(tid);
        let refused = reservation.assign_seen(seen_then, "r");
        assert!(
            matches!(refused, Err(AssignError::Vanished(t)) if t == tid),
            "{refused:?}"
        );
        assert_eq!(thread_state(tid), before);
        // The id was seen in another process.
        let theirs = Seen {
            pid: 1,
            at_ns: now_ns() + 1000 * MS,
            ..seen_then
        };
        assert!(reservation.assign_seen(theirs, "r").is_err());
        assert_eq!(thread_state(tid), before);
        // The new thread is accepted after it was seen itself.
        next_tick();
        reservation.assign_seen(seen(tid, now_ns()), "r").unwrap();
        assert_ne!(thread_state(tid), before);
        let restored = reservation.stop().restored;
        assert_eq!((restored.threads, restored.failures.len()), (1, 0));
        assert_eq!(thread_state(tid), before);
        drop(second);
    }
}

#[test]
fn threads_that_come_and_go_leave_the_ledger_small_and_no_cgroup_behind() {
    let _alone = one_test_at_a_time();
    for backend in backends("threads_that_come_and_go_leave_the_ledger_small_and_no_cgroup_behind")
    {
        let dir = Dir::new("churn");
        let servers = [server("r", 20, &[(0, HOUR)])];
        let reservation =
            Reservation::start(HOUR, &servers, now_ns(), options(backend, &dir)).unwrap();
        let stays = Worker::sleeping();
        let before = thread_state(stays.tid);
        reservation.assign(stays.tid, "r").unwrap();
        let mut largest = 0;
        for _ in 0..30 {
            let tids: Vec<u32> = (0..40)
                .map(|_| {
                    let worker = Worker::sleeping();
                    reservation.assign(worker.tid, "r").unwrap();
                    ended(worker)
                })
                .collect();
            let mut forgotten = reservation.forget_ended();
            forgotten.sort_unstable();
            let mut tids = tids;
            tids.sort_unstable();
            tids.dedup();
            // If an id was reused, the later thread replaced the earlier one.
            assert_eq!(forgotten, tids);
            largest = largest.max(bytes_of_ledger(&dir));
        }
        match can_give_back(&dir) {
            true => assert!(largest < 256 << 10, "the ledger takes {largest} bytes"),
            false => println!("skipped: the ledger's size: this file system keeps all space"),
        }
        // The ledger still finds threads that the ended ones could have started.
        let restored = reservation.stop().restored;
        assert_eq!((restored.threads, restored.failures), (1, vec![]));
        assert_eq!(thread_state(stays.tid), before);
        assert_eq!(dir.ledgers(), 0);
    }
}

fn can_give_back(dir: &Dir) -> bool {
    use std::os::fd::AsRawFd;
    let path = dir.0.join("probe");
    let file = fs::File::create_new(&path).unwrap();
    file.set_len(8192).unwrap();
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let can = unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, 4096) } == 0;
    fs::remove_file(path).unwrap();
    can
}

fn bytes_of_ledger(dir: &Dir) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = fs::read_dir(&dir.0).unwrap().flatten();
    let ledgers = files.filter(|f| f.path().extension().is_some_and(|e| e == "json"));
    ledgers.map(|f| f.metadata().unwrap().blocks() * 512).sum()
}
