//! Tests peers that vanish without a packet that ends the connection. The ends notice and report
//! it, and all messages arrive once and in order when the peer is back. Needs root, for network
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

/// The time for which an end certainly does not notice that its peer is gone. An end counts its
/// peer as unreachable after two silent seconds, and each end sends something four times a second.
const UNNOTICED_NS: u64 = 1_500_000_000;

fn wire(seed: u64) -> Option<Wire> {
    let wire = Wire::new(Harm::default(), seed)?;
    // Packets by which a kernel ends a connection, or answers after its end, are lost too.
    wire.swallows.ends.store(true, Ordering::Relaxed);
    Some(wire)
}

fn set(flag: &AtomicBool, to: bool) {
    flag.store(to, Ordering::Relaxed);
}

fn swallow_all(wire: &Wire, to: bool) {
    wire.swallows.all_from.iter().for_each(|from| set(from, to));
}

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

#[derive(Default)]
struct Stream {
    stop: AtomicBool,
    came: AtomicU64,
    /// The number of errors that report a silent peer, at the sender and at the receiver.
    silent_errors: [AtomicU64; 2],
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
                    self.silent_errors[0].fetch_add(1, Ordering::Relaxed);
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
                    self.silent_errors[1].fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Err(End::Closed) => return next,
                Err(other) => panic!("message {next}: {other}"),
            }
            next += 1;
            self.came.store(next, Ordering::Relaxed);
        }
    }

    fn silent_errors(&self) -> [u64; 2] {
        self.silent_errors
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed))
    }

    fn more_come(&self) {
        let before = self.came.load(Ordering::Relaxed);
        wait_until(|| self.came.load(Ordering::Relaxed) > before + 50);
    }
}

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
fn a_vanished_peer_is_reported_and_no_message_is_lost_when_it_returns() {
    let Some(wire) = wire(1) else { return };
    let alive = Qos::new().alive_within(Duration::from_millis(400), Fail);
    let [first, second] = ends(&wire, Duration::from_secs(60)).map(|end| alive.around(end));
    while_streaming(connect(&first, &second), |streams| {
        // The connection outlasts the first silence; in the second one both ends give it up.
        for (round, silence) in [(1, Duration::ZERO), (2, Duration::from_millis(2600))] {
            streams.iter().for_each(Stream::more_come);
            let before = streams.each_ref().map(Stream::silent_errors);
            swallow_all(&wire, true);
            wait_until(|| {
                let now = streams.each_ref().map(Stream::silent_errors);
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

#[test]
fn a_new_connection_replaces_a_half_open_one() {
    let mut seed = 2;
    let last_attempt = watchdog().unwrap();
    // On a busy machine the listening end could notice the loss first.
    while takeover_ns(seed).is_some_and(|ns| ns >= UNNOTICED_NS) {
        assert!(
            now_ns() < last_attempt,
            "the old connection has to end first"
        );
        seed += 1;
    }
}

/// Returns the time in ns from the connecting end's last sign of life until messages flow again.
fn takeover_ns(seed: u64) -> Option<u64> {
    let wire = wire(seed)?;
    let [first, second] = ends(&wire, Duration::from_secs(60));
    let mut took = None;
    while_streaming(connect(&first, &second), |streams| {
        streams.iter().for_each(Stream::more_come);
        let dialled = Done::of(&wire.done.dialled);
        set(&wire.swallows.content_from[0], true);
        // The connecting end's packets without content pass until it dials.
        wait_until(|| Done::of(&wire.done.dialled) > dialled);
        let begin = now_ns();
        set(&wire.swallows.content_from[0], false);
        streams.iter().for_each(Stream::more_come);
        took = Some(now_ns() - begin);
    });
    took
}

#[test]
fn both_halves_of_a_link_report_a_peer_that_stays_away_as_gone() {
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
        // The sender had credits left.
        let sent = out.send(1, watchdog(), &mut |_| {});
        assert_eq!(sent, Err(End::Gone { reason }.into()));
    }
}
