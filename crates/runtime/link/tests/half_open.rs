//! Peers that vanish without a word: no packet says that a connection has ended. That is noticed and
//! told, and what was sent arrives once and in order when the peer is back. Needs root, for network
//! namespaces.

#[allow(dead_code, unused_imports, unused_macros)]
mod backends;
#[allow(dead_code)]
mod wires;

use backends::{watchdog, SIZES};
use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Backend, Breach, End, Halves, Incoming, Memory, Outgoing, SendError};
use onbeat_link::qos::OnBreach::Fail;
use onbeat_link::{Key, Qos, Tcp};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use wires::{Done, Harm, On, Wire};

/// An end of which nothing came for two seconds counts as unreachable, and says something four times
/// in a second: who has just heard it notices nothing for as long as this.
const UNNOTICED_NS: u64 = 1_500_000_000;

fn wire(seed: u64) -> Option<Wire> {
    let wire = Wire::new(Harm::default(), seed)?;
    // What a kernel would say at the end of a connection, or after it, is lost too.
    wire.swallows.ends.store(true, Ordering::Relaxed);
    Some(wire)
}

fn set(flag: &AtomicBool, to: bool) {
    flag.store(to, Ordering::Relaxed);
}

fn swallow_all(wire: &Wire, to: bool) {
    wire.swallows.all_from.iter().for_each(|from| set(from, to));
}

/// The ends on the hosts of a wire; the second one connects.
fn ends(wire: &Wire, resume_within: Duration) -> [On<Tcp>; 2] {
    let key = || Key::from_bytes([9; 32]);
    let [first, second] = wire.hosts.each_ref().map(Arc::clone);
    let address = SocketAddr::new(first.address.into(), 7400);
    let listening = first.within(|| Tcp::listen(address, key())).unwrap();
    let options = |tcp: Tcp| tcp.chunk_bytes(1024).resume_within(resume_within);
    [
        On(first, options(listening)),
        On(second, options(Tcp::connect(address, key()))),
    ]
}

fn connect(first: &(dyn Backend + Sync), second: &(dyn Backend + Sync)) -> [Halves; 2] {
    let initialize = |end: &dyn Backend| end.initialize(SIZES, Memory::Allot, watchdog()).unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| initialize(second));
        [initialize(first), second.join().unwrap()]
    })
}

fn wait_until(mut is_there: impl FnMut() -> bool) {
    let watchdog = watchdog().unwrap();
    while !is_there() {
        assert!(now_ns() < watchdog, "it never comes about");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A stream of messages in one direction, until it is stopped.
#[derive(Default)]
struct Stream {
    stop: AtomicBool,
    /// Messages that have come.
    came: AtomicU64,
    /// How often the sender, and the receiver, was told that the peer gives no sign of life.
    told: [AtomicU64; 2],
}

impl Stream {
    fn send(&self, mut out: Box<dyn Outgoing>) -> u64 {
        let mut number = 0u64;
        while !self.stop.load(Ordering::Relaxed) {
            let write = &mut |slot: &mut [u8]| slot.copy_from_slice(&number.to_le_bytes());
            match out.send(8, watchdog(), write) {
                Ok(sent) => {
                    assert_eq!(sent, number);
                    number += 1;
                }
                Err(SendError::Breach(Breach::Silent)) => {
                    self.told[0].fetch_add(1, Ordering::Relaxed);
                }
                Err(other) => panic!("message {number}: {other}"),
            }
            thread::sleep(Duration::from_millis(1));
        }
        number
    }

    fn receive(&self, mut incoming: Box<dyn Incoming>) -> u64 {
        let mut next = 0u64;
        loop {
            let take = &mut |number, message: &[u8]| {
                assert_eq!((number, message), (next, &next.to_le_bytes()[..]));
            };
            match incoming.receive(watchdog(), take) {
                Ok(any) => assert!(any, "nothing came"),
                Err(End::Breach(Breach::Silent)) => {
                    self.told[1].fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Err(End::Closed) => return next,
                Err(other) => panic!("message {next}: {other}"),
            }
            next += 1;
            self.came.store(next, Ordering::Relaxed);
        }
    }

    fn told(&self) -> [u64; 2] {
        self.told
            .each_ref()
            .map(|told| told.load(Ordering::Relaxed))
    }

    fn more_come(&self) {
        let before = self.came.load(Ordering::Relaxed);
        wait_until(|| self.came.load(Ordering::Relaxed) > before + 50);
    }
}

/// Streams in both directions between two ends, while `disturb` does what it wants. Every message
/// that was sent has come in the end.
fn while_streaming([first, second]: [Halves; 2], disturb: impl FnOnce(&[Stream; 2])) {
    let ((a, from_b), (b, from_a)) = (first, second);
    let streams = [Stream::default(), Stream::default()];
    let [forth, back] = &streams;
    thread::scope(|scope| {
        let sending = [scope.spawn(|| forth.send(a)), scope.spawn(|| back.send(b))];
        let receiving = [
            scope.spawn(|| forth.receive(from_a)),
            scope.spawn(|| back.receive(from_b)),
        ];
        disturb(&streams);
        streams.iter().for_each(|s| set(&s.stop, true));
        let sent = sending.map(|s| s.join().unwrap());
        assert_eq!(sent, receiving.map(|r| r.join().unwrap()));
    });
}

#[test]
fn a_peer_that_vanishes_is_told_and_nothing_is_lost_when_it_is_back() {
    let Some(wire) = wire(1) else { return };
    let alive = Qos::new().alive_within(Duration::from_millis(400), Fail);
    let [first, second] = ends(&wire, Duration::from_secs(60)).map(|end| alive.around(end));
    while_streaming(connect(&first, &second), |streams| {
        // The connection outlasts the first silence; in the second one both ends give it up.
        for (round, silence) in [(1, Duration::ZERO), (2, Duration::from_millis(2600))] {
            streams.iter().for_each(Stream::more_come);
            let before = streams.each_ref().map(Stream::told);
            swallow_all(&wire, true);
            wait_until(|| {
                let now = streams.each_ref().map(Stream::told);
                let each = now.iter().flatten().zip(before.iter().flatten());
                each.into_iter().all(|(now, before)| now > before)
            });
            thread::sleep(silence);
            for end in [&first, &second] {
                assert!(end.counts().is_silent && end.counts().silences >= round);
            }
            swallow_all(&wire, false);
        }
        streams.iter().for_each(Stream::more_come);
        wait_until(|| !first.counts().is_silent && !second.counts().is_silent);
    });
}

/// The connecting end has given the connection up and dials anew, while the listening end believes
/// that the old one stands: it takes the new one in its place.
#[test]
fn a_new_connection_takes_the_place_of_one_that_only_seems_to_stand() {
    let mut seed = 2;
    let last_attempt = watchdog().unwrap();
    // The listening end could have noticed too, on a machine that is busy with other things.
    while takeover_ns(seed).is_some_and(|ns| ns >= UNNOTICED_NS) {
        assert!(
            now_ns() < last_attempt,
            "the old connection has to end first"
        );
        seed += 1;
    }
}

/// How long after the connecting end's last sign of life messages go on.
fn takeover_ns(seed: u64) -> Option<u64> {
    let wire = wire(seed)?;
    let [first, second] = ends(&wire, Duration::from_secs(60));
    let mut took = None;
    while_streaming(connect(&first, &second), |streams| {
        streams.iter().for_each(Stream::more_come);
        let dialled = Done::of(&wire.done.dialled);
        set(&wire.swallows.content_from[0], true);
        // What it says gets through until it dials.
        wait_until(|| Done::of(&wire.done.dialled) > dialled);
        let begin = now_ns();
        set(&wire.swallows.content_from[0], false);
        streams.iter().for_each(Stream::more_come);
        took = Some(now_ns() - begin);
    });
    took
}

#[test]
fn a_peer_that_stays_away_is_gone_and_every_half_says_why() {
    let Some(wire) = wire(3) else { return };
    let [first, second] = ends(&wire, Duration::from_secs(1));
    let [mut a, mut b] = connect(&first, &second);
    swallow_all(&wire, true);
    for (out, incoming) in [&mut a, &mut b] {
        let end = incoming.receive(watchdog(), &mut |_, _| panic!("nothing was sent"));
        let Err(End::Gone { reason }) = end else {
            panic!("{end:?}");
        };
        assert_eq!(reason, "nothing came for 2 s");
        // It had credits left.
        let sent = out.send(1, watchdog(), &mut |_| {});
        assert_eq!(sent, Err(End::Gone { reason }.into()));
    }
}
