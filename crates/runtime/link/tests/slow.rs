//! Tests a consumer 15 times slower than its producer: no message is lost, no more messages are on
//! their way than there are credits, and memory stays flat. One test only: another one beside it
//! would use memory too.

#[allow(dead_code, unused_imports, unused_macros)]
mod backends;

use backends::{receive, send, Pair};
use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{SendError, Sizes};
use onbeat_link::{Key, Tcp};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const SIZES: Sizes = Sizes {
    credits: 8,
    message_bytes: 4 << 10,
    value_bytes: 0,
};
const MESSAGES: u64 = 300;
const FAST: u64 = 60;
const SLOWER: u32 = 15;
/// The limit for the growth of the process's memory, KiB. Some pages are used for the first time
/// late in the test. The messages together have 880 KiB.
const SLACK_KIB: u64 = 512;

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn slow_consumer(what: &str, pair: &Pair) {
    let ((mut a, _x), (_y, mut from_a)) = backends::connect(pair, SIZES);
    let (bytes, credits) = (SIZES.message_bytes, SIZES.credits as u64);
    let begin = now_ns();
    for number in 0..FAST {
        send(&mut *a, number, bytes).unwrap();
        assert_eq!(receive(&mut *from_a), Ok((number, bytes)));
    }
    let pause = SLOWER * Duration::from_nanos((now_ns() - begin) / FAST);
    let taken = AtomicU64::new(FAST);
    let (held_back, most) = thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let (mut held_back, mut most) = (0, 0);
            for number in FAST..MESSAGES {
                let at_once = a.send(bytes, Some(0), &mut |slot| {
                    for (at, to) in slot.iter_mut().enumerate() {
                        *to = backends::byte(number, at);
                    }
                });
                if let Err(SendError::NoCredit { .. }) = at_once {
                    held_back += 1;
                    assert_eq!(send(&mut *a, number, bytes), Ok(number));
                } else {
                    assert_eq!(at_once, Ok(number));
                }
                // The message is counted before its credit goes back, so that too many would be
                // seen.
                most = most.max(number + 1 - taken.load(Ordering::SeqCst));
            }
            (held_back, most)
        });
        let mut early = 0;
        for number in FAST..MESSAGES {
            let mut got = None;
            let any = from_a.receive(backends::watchdog(), &mut |number, message| {
                let right = |(at, b): (usize, &u8)| *b == backends::byte(number, at);
                assert!(message.iter().enumerate().all(right), "message {number}");
                thread::sleep(pause);
                got = Some((number, message.len()));
                taken.store(number + 1, Ordering::SeqCst);
            });
            assert_eq!((any, got), (Ok(true), Some((number, bytes))));
            if number == FAST + 20 {
                early = resident_kib();
            }
        }
        let late = resident_kib();
        println!("{what}: {pause:?} a message; memory {early} KiB early, {late} KiB at the end");
        assert!(late <= early + SLACK_KIB, "{what}: memory grows");
        producer.join().unwrap()
    });
    println!("{what}: held back {held_back} times, at most {most} of {credits} on their way");
    assert_eq!(most, credits, "{what}");
    assert!(held_back > (MESSAGES - FAST) / 2, "{what}: never held back");
}

fn tcp(options: impl Fn(Tcp) -> Tcp) -> Pair {
    let key = || Key::from_bytes([7; 32]);
    let first = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let address = first.address();
    Pair {
        first: Box::new(options(first)),
        second: Box::new(options(Tcp::connect(address, key()))),
        for_child: String::new(),
    }
}

#[test]
fn a_consumer_15_times_slower_only_delays_its_producer() {
    slow_consumer("in clear", &tcp(Tcp::in_clear));
    slow_consumer("sealed", &tcp(|tcp| tcp));
}
