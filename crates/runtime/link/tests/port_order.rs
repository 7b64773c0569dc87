//! Tests that messages of several links leave in the order in which they were pushed. Needs root,
//! for network namespaces.

#[allow(dead_code)]
mod wires;

use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Backend, Halves, Memory, Outgoing, Sizes};
use onbeat_link::port::{Port, Settings};
use onbeat_link::{Key, Tcp};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use wires::{Wire, MARK};

const CHUNK: usize = 16 << 10;
const LINKS: u16 = 3;
const TURN: usize = 4;
const ROUNDS: usize = 12;

fn watchdog() -> Option<u64> {
    Some(now_ns() + 120_000_000_000)
}

fn connect(wire: &Wire, port: &Port, number: u16, bytes: usize) -> (Halves, Halves) {
    let [near, far] = wire.hosts.each_ref();
    let key = || Key::from_bytes([9; 32]);
    let address = SocketAddr::new(far.address.into(), 7400 + number);
    let listening = far.within(|| Tcp::listen(address, key())).unwrap();
    let listening = listening.chunk_bytes(CHUNK).in_clear();
    let sending = Tcp::connect(address, key()).in_clear().on_port(port, 5);
    let sizes = Sizes {
        credits: 8,
        ..Sizes::of_messages(bytes)
    };
    thread::scope(|scope| {
        let there =
            scope.spawn(|| far.within(|| listening.initialize(sizes, Memory::Allot, watchdog())));
        let here = near.within(|| sending.initialize(sizes, Memory::Allot, watchdog()));
        (here.unwrap(), there.join().unwrap().unwrap())
    })
}

fn order_of(wire: &Wire, bytes: usize) -> Vec<u64> {
    // No transfer is passed over, however slow the machine is.
    let long = Duration::from_secs(10);
    let settings = Settings::of_rate(1_000_000_000).chunk_bytes(CHUNK);
    let port = Port::alone(settings.slack(long).patience(long)).unwrap();
    let links: Vec<_> = (0..LINKS).map(|n| connect(wire, &port, n, bytes)).collect();
    let (mut outs, mut ins) = (vec![], vec![]);
    for ((mut out, near_in), (far_out, mut incoming)) in links {
        // No message may leave before the receiver has reported its counts.
        out.send_copy(&[0]).unwrap();
        assert_eq!(incoming.receive(watchdog(), &mut |_, _| ()), Ok(true));
        outs.push((out, near_in));
        ins.push((far_out, incoming));
    }
    let push = |out: &mut dyn Outgoing, number: u64| {
        let fill = &mut |slot: &mut [u8]| {
            // The mark is repeated, since a packet's end can cut one.
            for mark in slot[..256].chunks_exact_mut(16) {
                mark[..8].copy_from_slice(&MARK);
                mark[8..].copy_from_slice(&number.to_le_bytes());
            }
        };
        out.send(bytes, watchdog(), fill).unwrap();
    };
    let kept: Vec<_> = thread::scope(|scope| {
        let takes = |(far_out, mut incoming): Halves| {
            for _ in 0..TURN * ROUNDS {
                assert_eq!(incoming.receive(watchdog(), &mut |_, _| ()), Ok(true));
            }
            (far_out, incoming)
        };
        let taking: Vec<_> = ins
            .into_iter()
            .map(|halves| scope.spawn(move || takes(halves)))
            .collect();
        let mut numbers = 0..;
        for _ in 0..ROUNDS {
            for (out, _) in &mut outs {
                for number in numbers.by_ref().take(TURN) {
                    push(&mut **out, number);
                }
            }
        }
        taking.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let away = thread::spawn(move || drop(kept));
    drop(outs);
    away.join().unwrap();
    let mut marks = std::mem::take(&mut *wire.done.marks.as_ref().unwrap().lock().unwrap());
    // A packet that TCP sends again is seen twice.
    let mut seen = std::collections::BTreeSet::new();
    marks.retain(|number| seen.insert(*number));
    marks
}

#[test]
fn messages_leave_in_the_order_in_which_they_were_pushed() {
    let Some(wire) = Wire::seen() else { return };
    let pushed: Vec<u64> = (0..(usize::from(LINKS) * TURN * ROUNDS) as u64).collect();
    // The sizes are a packet, a chunk, and several chunks. If the window holds several messages of
    // a link with several packets each, TCP can keep back one's first packet until others are
    // acknowledged.
    for bytes in [1000, CHUNK, 40_000] {
        assert_eq!(order_of(&wire, bytes), pushed, "messages of {bytes} bytes");
    }
}
