//! Tests the events of threads that run no callback, and of locks for which callbacks wait.

use super::{ended, events, is_recording, signal, wait_until, Harness, Test};
use onbeat_time::clock::monotonic_ns;
use onbeat_trace::{Event, EventKind};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

pub const TESTS: &[Test] = tests![
    all_threads_are_followed_and_named_on_request,
    the_holder_of_a_lock_that_a_callback_waits_for_is_recorded,
];

/// A script that publishes ten times a second. A thread holds two mutexes for 50 ms at a time, and
/// each callback needs one of them: the first, or the second with a timeout.
///
/// The script prints `locks FIRST SECOND HOLDER`, and in every fifth callback `threads NOW TID ...`
/// with all its threads.
const LOCKER: &str = "
import ctypes, os, threading, time, rclpy
from rclpy.node import Node
from std_msgs.msg import UInt64
rclpy.init()
node = Node('locker')
publisher = node.create_publisher(UInt64, 'locked', 10)
libc = ctypes.CDLL(None)
mutexes = [ctypes.create_string_buffer(64) for _ in range(2)]
for mutex in mutexes:
    libc.pthread_mutex_init(mutex, None)
holds, calls = threading.Event(), []
def alike():
    # Waits as for a contended mutex with a limit of time, for words that are none: nobody uses it.
    words = (ctypes.c_uint32 * 4)(2, 0, os.getpid(), 0)
    futex, bitset, private = 202 if os.uname().machine == 'x86_64' else 98, 9, 128
    print('alike', ctypes.addressof(words), flush=True)
    while True:
        until = time.monotonic_ns() + 50_000_000
        limit = (ctypes.c_long * 2)(*divmod(until, 10**9))
        libc.syscall(futex, words, bitset | private, 2, limit, None, 0xffffffff)
def keep():
    print('locks', *map(ctypes.addressof, mutexes), threading.get_native_id(), flush=True)
    libc.prctl(15, b'keeper')
    threading.Thread(target=alike, daemon=True).start()
    while True:
        for mutex in mutexes:
            libc.pthread_mutex_lock(mutex)
        holds.set()
        time.sleep(0.05)
        for mutex in mutexes:
            libc.pthread_mutex_unlock(mutex)
        time.sleep(0.01)
def fire():
    holds.wait()
    holds.clear()
    mutex = mutexes[len(calls) % 2]
    if mutex is mutexes[1]:
        until = (ctypes.c_long * 2)(int(time.time()) + 10, 0)
        libc.pthread_mutex_timedlock(mutex, until)
    else:
        libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_unlock(mutex)
    publisher.publish(UInt64(data=1))
    calls.append(1)
    if len(calls) % 5 == 0:
        print('threads', time.monotonic_ns(), *os.listdir('/proc/self/task'), flush=True)
threading.Thread(target=keep, daemon=True).start()
node.create_timer(0.1, fire)
while True:
    rclpy.spin_once(node, timeout_sec=0.2)
";

const INTERRUPTIBLE: u16 = 1;

struct Locker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    locks: [u64; 2],
    holder: u32,
    alike: u64,
}

impl Locker {
    fn start(harness: &Harness) -> Locker {
        let script = harness.script(LOCKER, &[]);
        let mut command = Command::new(&script[0]);
        let command = command.args(&script[1..]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut locker = Locker {
            child,
            lines,
            locks: [0; 2],
            holder: 0,
            alike: 0,
        };
        let words = locker.next_numbers("locks");
        (locker.locks, locker.holder) = ([words[0], words[1]], words[2] as u32);
        locker.alike = locker.next_numbers("alike")[0];
        locker
    }

    fn next_numbers(&mut self, word: &str) -> Vec<u64> {
        loop {
            let line = self.lines.next().expect("another line").expect("text");
            let mut words = line.split(' ');
            if words.next() == Some(word) {
                return words.map(|w| w.parse().expect("a number")).collect();
            }
        }
    }
}

/// Runs and records the script [`LOCKER`]. With `late`, the script starts before the recorder,
/// otherwise while it records.
fn recorded(
    harness: &Harness,
    trace: &str,
    option: &str,
    late: bool,
) -> (Locker, Vec<u64>, Vec<Event>) {
    let before = late.then(|| Locker::start(harness));
    let mut recorder = harness.recorder(trace, None);
    recorder.arg(option);
    if let Some(locker) = &before {
        recorder.arg(format!("pid={}", locker.child.id()));
    }
    let prefix = harness
        .python
        .ancestors()
        .nth(2)
        .expect("PREFIX/bin/python");
    recorder
        .env("AMENT_PREFIX_PATH", prefix)
        .stderr(Stdio::null());
    let mut recorder = recorder.spawn().expect("it starts");
    let path = harness.dir.path().join(trace);
    wait_until("it records", || is_recording(&path));
    // A script that runs already has printed lines while the recorder started.
    let since = monotonic_ns();
    let mut locker = before.unwrap_or_else(|| Locker::start(harness));
    while locker.next_numbers("threads")[0] < since {}
    let threads = locker.next_numbers("threads").split_off(1);
    signal(&recorder, libc::SIGTERM);
    assert!(ended(&mut recorder).success());
    locker.child.kill().expect("it ran");
    locker.child.wait().expect("it was killed");
    let mut found = events(&path);
    found.retain(|e| e.pid == locker.child.id());
    (locker, threads, found)
}

fn followed(events: &[Event]) -> (BTreeSet<u64>, BTreeMap<u64, String>) {
    let mut names = BTreeMap::new();
    let mut switched = BTreeSet::new();
    for event in events {
        match &event.kind {
            EventKind::SwitchIn { .. } => drop(switched.insert(event.tid.into())),
            EventKind::Thread { comm, .. } => {
                names.insert(event.tid.into(), comm.to_string());
            }
            _ => {}
        }
    }
    (switched, names)
}

fn all_threads_are_followed_and_named_on_request(harness: &Harness) {
    for late in [false, true] {
        let trace = format!("all-{late}");
        let (locker, threads, found) = recorded(harness, &trace, "all=1", late);
        let (switched, names) = followed(&found);
        let unnamed: Vec<_> = threads.iter().filter(|t| !names.contains_key(t)).collect();
        assert!(unnamed.is_empty(), "late {late}: {unnamed:?} have no name");
        assert_eq!(names[&locker.holder.into()], "keeper", "late {late}");
        // These middleware threads are active and have their own names. With `late` none of them
        // needs to wake up.
        let awake: &[&str] = if late { &[] } else { &["dds.shm", "dds.ev"] };
        for name in awake {
            let mut of_name = names.iter().filter(|(_, n)| n.starts_with(*name));
            assert!(
                of_name.any(|(tid, _)| switched.contains(tid)),
                "late {late}: no switch of {name} in {names:?}"
            );
        }
        assert!(switched.contains(&locker.holder.into()), "late {late}");
    }
    let (_, threads, found) = recorded(harness, "callbacks", "all=0", false);
    let (switched, names) = followed(&found);
    // Only threads that run callbacks, and threads started by these, are followed. The middleware
    // started its threads before.
    assert!(
        !switched.is_empty() && switched.len() < threads.len() / 2,
        "{switched:?}"
    );
    assert!(!names.values().any(|n| n.starts_with("dds.")), "{names:?}");
}

fn the_holder_of_a_lock_that_a_callback_waits_for_is_recorded(harness: &Harness) {
    let (locker, _, found) = recorded(harness, "locks", "all=0", false);
    let is_alike =
        |e: &Event| matches!(e.kind, EventKind::LockWait { lock, .. } if lock == locker.alike);
    assert!(
        !found.iter().any(is_alike),
        "a wait for something that is not a mutex"
    );
    let mut waits = [0; 2];
    for pair in found.windows(2) {
        let EventKind::LockWait { lock, owner_tid } = pair[0].kind else {
            continue;
        };
        let Some(which) = locker.locks.iter().position(|&l| l == lock) else {
            continue;
        };
        let (waiter, next) = (&pair[0], &pair[1]);
        assert_eq!((owner_tid, waiter.tid), (locker.holder, locker.child.id()));
        let sleeps =
            matches!(next.kind, EventKind::SwitchOut { state, .. } if state & INTERRUPTIBLE != 0);
        assert!(sleeps && next.tid == waiter.tid, "{next:?}");
        waits[which] += 1;
    }
    // There are ten callbacks. A callback that comes late finds the mutexes free.
    assert!(waits.iter().all(|&n| n > 0), "{waits:?}");
}
