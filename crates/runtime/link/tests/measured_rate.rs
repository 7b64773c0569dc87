//! Tests a port on a wire that is slower than the given rate: the port measures the rate, and
//! chunks follow it. Needs root and `tc`, for a network namespace.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Backend, Memory, Sizes};
use onbeat_link::port::{Port, PortStats, Settings};
use onbeat_link::status::survey;
use onbeat_link::{Key, Tcp};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const GIVEN: u64 = 1_000_000_000;
const SLOW: u64 = 100_000_000;
const MESSAGE: usize = 256 << 10;

fn watchdog() -> Option<u64> {
    Some(now_ns() + 120_000_000_000)
}

fn run(command: &str) -> bool {
    let words: Vec<_> = command.split(' ').collect();
    let done = Command::new(words[0]).args(&words[1..]).output();
    done.is_ok_and(|output| output.status.success())
}

fn on_a_slow_wire() -> bool {
    let is_alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    is_alone
        && run("ip link set lo mtu 1500 up")
        && run("tc qdisc add dev lo root tbf rate 100mbit burst 16kb latency 500ms")
}

fn until(what: &str, port: &Port, holds: impl Fn(&PortStats) -> bool) -> PortStats {
    let deadline = watchdog().unwrap();
    loop {
        let stats = port.stats();
        if holds(&stats) {
            return stats;
        }
        assert!(now_ns() < deadline, "{what}: {stats:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_size_of_chunks_follows_the_measured_rate() {
    if !on_a_slow_wire() {
        eprintln!("skipped: no network namespace with a limit can be made (root, tc)");
        return;
    }
    let settings = Settings::of_rate(GIVEN);
    let port = Port::alone(settings).unwrap();
    let key = || Key::from_bytes([5; 32]);
    let sizes = Sizes {
        credits: 4,
        message_bytes: MESSAGE,
        value_bytes: 0,
    };
    let listening = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let listening = listening.chunk_bytes(settings.chunk()).in_clear();
    let sender = Tcp::connect(listening.address(), key());
    let sender = sender.in_clear().on_port(&port, 1);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let halves = listening.initialize(sizes, Memory::Allot, watchdog());
            let (_out, mut incoming) = halves.unwrap();
            let mut number = 0;
            let mut is_whole = true;
            while let Ok(true) = incoming.receive(watchdog(), &mut |n, message| {
                is_whole &= n == number && message.len() == MESSAGE;
                is_whole &= message.iter().all(|b| *b == n as u8);
                number = n + 1;
            }) {}
            assert!(is_whole);
            number
        });
        let sending = scope.spawn(|| {
            let halves = sender.initialize(sizes, Memory::Allot, watchdog());
            let (mut out, incoming) = halves.unwrap();
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                let fill = &mut |slot: &mut [u8]| slot.fill(number as u8);
                out.send(MESSAGE, watchdog(), fill).unwrap();
                number += 1;
            }
            drop((out, incoming));
            number
        });
        let is_slow = |rate: u64| rate.abs_diff(SLOW) < SLOW / 4;
        let slow = until("the rate is found", &port, |stats| {
            stats.measured_bits_per_second.is_some_and(is_slow)
        });
        println!("{slow:?}");
        assert!(slow.chunk_bytes <= settings.chunk() / 7, "{slow:?}");
        // Bounds use this rate, so the wire must have at least as much.
        let sure = until("a rate that the wire has", &port, |stats| {
            stats
                .sure_bits_per_second()
                .is_some_and(|rate| rate <= SLOW)
        });
        let model = sure.model(1500, false, 0).unwrap();
        assert!(model.chunk_bytes <= settings.chunk() / 7, "{model:?}");
        assert!(
            model.window_bytes as u64 <= settings.window_bytes() / 4,
            "{model:?}"
        );
        // The status page shows the rate once a message has left with it.
        let deadline = watchdog().unwrap();
        let shown = |measured: u64| {
            let ends = survey().links.into_iter();
            let ports = ends.filter(|end| end.pid == std::process::id());
            let mut ports = ports.filter_map(|end| end.status.port);
            ports.any(|p| {
                p.given_bits_per_second == GIVEN
                    && p.measured_bits_per_second.is_some_and(|m| m <= measured)
            })
        };
        while !shown(SLOW * 5 / 4) {
            assert!(now_ns() < deadline, "it is not shown");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(run("tc qdisc del dev lo root"));
        let fast = until("the wire is fast again", &port, |stats| {
            stats
                .measured_bits_per_second
                .is_some_and(|rate| rate > 2 * SLOW)
        });
        assert!(fast.chunk_bytes > 2 * slow.chunk_bytes, "{fast:?}");
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(sending.join().unwrap(), taking.join().unwrap());
    });
}
