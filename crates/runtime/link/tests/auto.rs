//! Tests that two ends choose the best transport that both have, and report a fallback as they were
//! configured.

#[allow(dead_code, unused_imports, unused_macros)]
mod backends;
#[allow(dead_code)]
mod wires;

use backends::{receive, send, watchdog, SIZES};
use onbeat_link::auto::{End, Lack, OnFallBack, Way};
use onbeat_link::interface::{Backend, Halves, Memory, Refusal, SetupError};
use onbeat_link::{Auto, Key, Tcp};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use wires::{Harm, Wire};

fn key() -> Key {
    Key::from_bytes([3; 32])
}

type Setup = Result<Halves, SetupError>;

fn link(first: &Auto, second: &Auto, memory: Memory) -> [Setup; 2] {
    let [first, second] = thread::scope(|scope| {
        let first = scope.spawn(|| first.initialize(SIZES, memory, watchdog()));
        let second = second.initialize(SIZES, Memory::Allot, watchdog());
        [first.join().unwrap(), second]
    });
    exchange(first, second)
}

fn exchange(first: Setup, second: Setup) -> [Setup; 2] {
    match (first, second) {
        (Ok((mut a, mut from_b)), Ok((mut b, mut from_a))) => {
            send(&mut *a, 0, 5000).unwrap();
            assert_eq!(receive(&mut *from_a), Ok((0, 5000)));
            send(&mut *b, 0, 70).unwrap();
            assert_eq!(receive(&mut *from_b), Ok((0, 70)));
            [Ok((a, from_b)), Ok((b, from_a))]
        }
        (first, second) => [first, second],
    }
}

fn on_one_host(first: OnFallBack, second: OnFallBack) -> [Auto; 2] {
    let listening = Auto::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let connecting = Auto::connect(listening.address(), key());
    [
        listening.on_fall_back(first),
        connecting.on_fall_back(second),
    ]
}

#[test]
fn ends_on_one_host_choose_shared_memory() {
    let [first, second] = on_one_host(OnFallBack::Refuse, OnFallBack::Refuse);
    assert_eq!(first.chosen(), None);
    let linked = link(&first, &second, Memory::Allot);
    assert!(linked.iter().all(Result::is_ok));
    for end in [&first, &second] {
        let choice = end.chosen().unwrap();
        assert_eq!((choice.way, choice.passed), (Way::Shm, vec![]));
    }
}

#[test]
fn a_fallback_to_a_slower_backend_is_reported_or_refused_at_both_ends() {
    let own = || Memory::Given(vec![0; SIZES.memory_bytes().unwrap()].into_boxed_slice());
    let [first, second] = on_one_host(OnFallBack::Say, OnFallBack::Accept);
    let linked = link(&first, &second, own());
    assert!(linked.iter().all(Result::is_ok));
    for end in [&first, &second] {
        let choice = end.chosen().unwrap();
        assert_eq!(choice.way, Way::Tcp);
        let passed = choice.passed[0];
        assert_eq!(
            (passed.way, passed.end, passed.lack),
            (Way::Shm, End::Listening, Lack::OwnMemory)
        );
    }

    // One end that refuses is enough, whichever it is.
    let (say, refuse) = (OnFallBack::Say, OnFallBack::Refuse);
    for (on_first, on_second) in [(say, refuse), (refuse, say)] {
        let [first, second] = on_one_host(on_first, on_second);
        for setup in link(&first, &second, own()) {
            let Some(SetupError::Refused { reason, .. }) = setup.err() else {
                panic!("it fell back");
            };
            let Refusal::FallBack { what } = reason else {
                panic!("{reason}");
            };
            assert!(
                what.contains("no shared memory (the listening end"),
                "{what}"
            );
        }
        assert_eq!((first.chosen(), second.chosen()), (None, None));
    }
}

#[test]
fn ends_on_two_hosts_without_rdma_choose_tcp() {
    let Some(wire) = Wire::new(Harm::default(), 5) else {
        return;
    };
    let [here, there] = wire.hosts.each_ref().map(Arc::clone);
    let address = SocketAddr::new(here.address.into(), 7400);
    let first = here.within(|| Auto::listen(address, key())).unwrap();
    let second = Auto::connect(address, key());
    let [first_linked, second_linked] = thread::scope(|scope| {
        let run = || here.within(|| first.initialize(SIZES, Memory::Allot, watchdog()));
        let waiting = scope.spawn(run);
        let linked = there.within(|| second.initialize(SIZES, Memory::Allot, watchdog()));
        [waiting.join().unwrap(), linked]
    });
    let linked = exchange(first_linked, second_linked);
    assert!(linked.iter().all(Result::is_ok));
    for end in [&first, &second] {
        let choice = end.chosen().unwrap();
        assert_eq!(choice.way, Way::Tcp);
        // Both hosts run on one kernel, so they report why they share no memory.
        let lacks: Vec<_> = choice.passed.iter().map(|p| (p.way, p.lack)).collect();
        assert_eq!(lacks, [(Way::Shm, Lack::Apart)]);
    }
    drop(linked);
}

#[test]
fn an_end_that_chooses_its_backend_refuses_an_end_that_uses_only_tcp() {
    let listening = Auto::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let address = listening.address();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| listening.initialize(SIZES, Memory::Allot, watchdog()));
        let refused = |tcp: Tcp| {
            let tcp = tcp.initialize(SIZES, Memory::Allot, watchdog());
            match tcp.err() {
                Some(SetupError::Refused { reason, .. }) => reason,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(Tcp::connect(address, key())), Refusal::Options);
        let wrong = Key::from_bytes([4; 32]);
        assert_eq!(refused(Tcp::connect(address, wrong)), Refusal::Key);
        let right = Auto::connect(address, key()).initialize(SIZES, Memory::Allot, watchdog());
        assert!(right.is_ok() && waiting.join().unwrap().is_ok());
    });
}
