//! Sends many small messages over links: none is lost, doubled or out of order, and memory stays
//! flat. `ONBEAT_ITEMS` is the number of messages for each backend; `./dev check messages` sends
//! 10^8.

#[allow(dead_code, unused_imports, unused_macros)]
mod backends;

use backends::Pair;
use onbeat_link::interface::Sizes;
use onbeat_link::{Key, Shm, Tcp};
use std::time::Instant;

const SIZES: Sizes = Sizes {
    credits: 1024,
    message_bytes: 8,
    value_bytes: 0,
};
/// The limit for the growth of the process's memory in KiB, from the time at which a tenth of the
/// messages were sent to the end of the test. Some pages are used for the first time late in the
/// test. One byte for each of 10^8 messages would be 100 MB.
const SLACK_KIB: u64 = 4096;

fn watchdog() -> Option<u64> {
    Some(onbeat_flow::clock::now_ns() + 600_000_000_000)
}

fn messages() -> u64 {
    let given = std::env::var("ONBEAT_ITEMS").ok();
    given.map_or(100_000, |n| n.parse().expect("a number"))
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn stream(what: &str, pair: &Pair, messages: u64) {
    let ((mut a, _x), (_y, mut from_a)) = backends::connect(pair, SIZES);
    let begin = Instant::now();
    let receiver = std::thread::spawn(move || {
        let mut at_a_tenth = 0;
        for next in 0..messages {
            let any = from_a.receive(watchdog(), &mut |number, message| {
                assert_eq!(number, next);
                assert_eq!(message, next.to_le_bytes(), "{next}");
            });
            assert_eq!(any, Ok(true));
            if next == messages / 10 {
                at_a_tenth = resident_kib();
            }
        }
        (at_a_tenth, resident_kib())
    });
    for number in 0..messages {
        let write = &mut |slot: &mut [u8]| slot.copy_from_slice(&number.to_le_bytes());
        assert_eq!(a.send(8, watchdog(), write), Ok(number));
    }
    let (early, late) = receiver.join().unwrap();
    println!(
        "{what}: {messages} messages in {:?}; memory {early} KiB at a tenth, {late} KiB at the end",
        begin.elapsed()
    );
    assert!(late <= early + SLACK_KIB, "{what}: memory grows");
}

fn tcp(in_clear: bool) -> Pair {
    let key = || Key::from_bytes([7; 32]);
    let options = |tcp: Tcp| if in_clear { tcp.in_clear() } else { tcp };
    let first = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let address = first.address();
    Pair {
        first: Box::new(options(first)),
        second: Box::new(options(Tcp::connect(address, key()))),
        for_child: String::new(),
    }
}

// One test only: another one beside it would use memory too.
#[test]
fn many_messages_arrive_once_in_order_and_memory_stays_flat() {
    let name = format!("many-{}", std::process::id());
    let shm = Pair {
        first: Box::new(Shm::listen(&name)),
        second: Box::new(Shm::connect(&name)),
        for_child: String::new(),
    };
    stream("shm", &shm, messages());
    stream("tcp, in clear", &tcp(true), messages());
    // A debug build encrypts slowly.
    let sealed = messages() / if cfg!(debug_assertions) { 20 } else { 1 };
    stream("tcp, sealed", &tcp(false), sealed);
}
