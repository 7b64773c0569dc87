//! Kills a peer's process while it sends and receives, at points that a seed chooses. All received
//! messages are complete and in order, both halves report that the peer is gone, and this process
//! keeps nothing of the link.
//!
//! `ONBEAT_ROUNDS` is the number of kills for each backend, `ONBEAT_SEED` the first seed.

#[allow(dead_code, unused_imports, unused_macros)]
mod backends;
#[allow(dead_code)]
mod wires;

use backends::watchdog;
use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Backend, End, Incoming, Memory, Outgoing, SendError};
use onbeat_link::{Key, Shm, Tcp};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use wires::Dice;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(otherwise, |n| n.parse().expect("a number"))
}

fn options(tcp: Tcp, sealed: bool) -> Tcp {
    // A short time, since a killed peer does not come back.
    let tcp = tcp
        .chunk_bytes(backends::CHUNK)
        .resume_within(Duration::from_millis(50));
    if sealed {
        tcp
    } else {
        tcp.in_clear()
    }
}

fn key() -> Key {
    Key::from_bytes([7; 32])
}

fn first(kind: &str, round: u64) -> (Box<dyn Backend>, String) {
    if kind == "shm" {
        let name = format!("killed-{}-{round}", std::process::id());
        return (Box::new(Shm::listen(&name)), format!("shm {name}"));
    }
    let tcp = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let place = format!("{kind} {}", tcp.address());
    (Box::new(options(tcp, kind == "tcp")), place)
}

fn length(number: u64) -> usize {
    if number % 7 == 6 {
        8_000
    } else {
        (number as usize * 997) % (3 * backends::CHUNK)
    }
}

fn send_on(out: &mut dyn Outgoing) -> End {
    let mut number = 0;
    loop {
        match backends::send(out, number, length(number)) {
            Ok(_) => number += 1,
            Err(SendError::Ended(end)) => return end,
            Err(other) => panic!("{other}"),
        }
    }
}

fn receive_on(incoming: &mut dyn Incoming, count: &AtomicU64) -> End {
    let mut next = 0;
    loop {
        match backends::receive(incoming) {
            Ok(got) => assert_eq!(got, (next, length(next)), "complete and in order"),
            Err(end) => return end,
        }
        next += 1;
        count.store(next, Ordering::Relaxed);
    }
}

#[test]
fn the_peer_process_does_nothing_unless_a_test_starts_it() {
    let Ok(place) = std::env::var("ONBEAT_PEER") else {
        return;
    };
    // SAFETY: only a call; it makes this process end with the test.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let (kind, place) = place.split_once(' ').unwrap();
    let backend: Box<dyn Backend> = match kind {
        "shm" => Box::new(Shm::connect(place)),
        _ => Box::new(options(
            Tcp::connect(place.parse().unwrap(), key()),
            kind == "tcp",
        )),
    };
    let link = backend.initialize(backends::SIZES, Memory::Allot, watchdog());
    let (mut out, mut incoming) = link.unwrap();
    thread::scope(|scope| {
        scope.spawn(|| send_on(&mut *out));
        receive_on(&mut *incoming, &AtomicU64::new(0));
    });
}

fn spawn(place: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "the_peer_process_does_nothing_unless_a_test_starts_it",
            "--nocapture",
        ])
        .env("ONBEAT_PEER", place)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn descriptors_and_threads() -> (usize, usize) {
    let count = |what: &str| {
        std::fs::read_dir(format!("/proc/self/{what}"))
            .unwrap()
            .count()
    };
    (count("fd"), count("task"))
}

fn round(kind: &str, number: u64, dice: &mut Dice) -> u64 {
    let before = descriptors_and_threads();
    let (backend, place) = first(kind, number);
    let mut child = spawn(&place);
    let link = backend.initialize(backends::SIZES, Memory::Allot, watchdog());
    let (mut out, mut incoming) = link.unwrap();
    let received = AtomicU64::new(0);
    let (after, pause_ns) = (dice.next() % 60, dice.next() % 1_000_000);
    let ends = thread::scope(|scope| {
        let sender = scope.spawn(|| send_on(&mut *out));
        let receiver = scope.spawn(|| receive_on(&mut *incoming, &received));
        while received.load(Ordering::Relaxed) < after && !receiver.is_finished() {
            thread::sleep(Duration::from_micros(50));
        }
        let until = now_ns() + pause_ns;
        while now_ns() < until {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        [sender.join().unwrap(), receiver.join().unwrap()]
    });
    let is_gone = |end: &End| matches!(end, End::Gone { .. });
    assert!(ends.iter().all(is_gone), "{kind}, round {number}: {ends:?}");
    drop((out, incoming, backend));
    let patience = watchdog().unwrap();
    while descriptors_and_threads() > before {
        assert!(
            now_ns() < patience,
            "{kind}: {:?} of {before:?} stay",
            descriptors_and_threads()
        );
        thread::sleep(Duration::from_millis(1));
    }
    received.into_inner()
}

#[test]
fn a_killed_peer_is_reported_as_gone_and_leaves_no_resources() {
    let (rounds, seed) = (
        from_environment("ONBEAT_ROUNDS", 10),
        from_environment("ONBEAT_SEED", 1),
    );
    for kind in ["shm", "tcp", "clear"] {
        let mut dice = Dice(seed);
        let mut received = 0;
        for number in 0..rounds {
            received += round(kind, number, &mut dice);
        }
        println!("{kind}: {rounds} peers killed, after {received} messages in all");
        assert!(received > rounds, "{kind}: nobody was killed while sending");
    }
}
