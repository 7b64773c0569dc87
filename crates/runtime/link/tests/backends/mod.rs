//! The tests that every backend of the interface layer must pass. `backends!` makes the tests of
//! one backend: give it a function that returns a new pair of ends to be initialized.

use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{
    Backend, End, Halves, Incoming, Memory, Outgoing, Refusal, SendError, SetupError, Sizes,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

pub struct Pair {
    pub first: Box<dyn Backend + Send>,
    pub second: Box<dyn Backend + Send>,
    pub for_child: String,
}

pub const CHUNK: usize = 1024;
const LARGE: usize = 300_000;

pub const SIZES: Sizes = Sizes {
    credits: 4,
    message_bytes: LARGE,
    value_bytes: 5000,
};

pub fn watchdog() -> Option<u64> {
    Some(now_ns() + 100_000_000_000)
}

pub fn connect(pair: &Pair, sizes: Sizes) -> (Halves, Halves) {
    thread::scope(|scope| {
        let first = &pair.first;
        // Only one thread at a time uses a backend.
        let first = scope.spawn({
            let first = Moved(&**first);
            move || first.get().initialize(sizes, Memory::Allot, watchdog())
        });
        let second = pair.second.initialize(sizes, Memory::Allot, watchdog());
        (first.join().unwrap().unwrap(), second.unwrap())
    })
}

struct Moved<'a>(&'a (dyn Backend + Send));
// SAFETY: no other thread uses the backend meanwhile.
unsafe impl Send for Moved<'_> {}
impl<'a> Moved<'a> {
    fn get(self) -> &'a (dyn Backend + Send) {
        self.0
    }
}

pub fn byte(number: u64, at: usize) -> u8 {
    (number as usize)
        .wrapping_mul(31)
        .wrapping_add(at.wrapping_mul(7)) as u8
}

pub fn send(out: &mut dyn Outgoing, number: u64, bytes: usize) -> Result<u64, SendError> {
    out.send(bytes, watchdog(), &mut |slot| {
        assert_eq!(slot.len(), bytes);
        for (at, to) in slot.iter_mut().enumerate() {
            *to = byte(number, at);
        }
    })
}

pub fn receive(incoming: &mut dyn Incoming) -> Result<(u64, usize), End> {
    let mut got = None;
    let any = incoming.receive(watchdog(), &mut |number, message| {
        let wrong = message
            .iter()
            .enumerate()
            .find(|(at, b)| **b != byte(number, *at));
        assert_eq!(wrong, None, "message {number} of {} bytes", message.len());
        got = Some((number, message.len()));
    })?;
    assert!(any, "nothing came");
    Ok(got.unwrap())
}

fn length(number: u64) -> usize {
    (number as usize * 997) % (3 * CHUNK)
}

pub fn order(pair: Pair) {
    let ((mut a, mut from_b), (mut b, mut from_a)) = connect(&pair, SIZES);
    const COUNT: u64 = 1500;
    let both = |out: &mut dyn Outgoing, incoming: &mut dyn Incoming| {
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..COUNT {
                    assert_eq!(send(out, number, length(number)), Ok(number));
                }
            });
            for number in 0..COUNT {
                assert_eq!(receive(incoming), Ok((number, length(number))));
            }
        });
    };
    thread::scope(|scope| {
        scope.spawn(|| both(&mut *a, &mut *from_a));
        both(&mut *b, &mut *from_b);
    });
}

pub fn sizes(pair: Pair) {
    let ((mut a, _from_b), (_b, mut from_a)) = connect(&pair, SIZES);
    let all = [
        0,
        1,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        2 * CHUNK,
        7 * CHUNK + 3,
        LARGE,
    ];
    for (number, bytes) in all.into_iter().enumerate() {
        assert_eq!(send(&mut *a, number as u64, bytes), Ok(number as u64));
        assert_eq!(receive(&mut *from_a), Ok((number as u64, bytes)));
    }
    let refused = a.send(LARGE + 1, None, &mut |_| panic!("it does not fit"));
    let (asked, most) = (LARGE + 1, LARGE);
    assert_eq!(refused, Err(SendError::TooLarge { asked, most }));
    let refused = a.publish(5001, &mut |_| panic!("it does not fit"));
    let (asked, most) = (5001, 5000);
    assert_eq!(refused, Err(SendError::TooLarge { asked, most }));

    for wrong in [
        Sizes {
            credits: 0,
            ..SIZES
        },
        Sizes {
            credits: 1025,
            ..SIZES
        },
        Sizes {
            message_bytes: 0,
            ..SIZES
        },
        Sizes {
            value_bytes: usize::MAX,
            ..SIZES
        },
    ] {
        let refused = pair.first.initialize(wrong, Memory::Allot, Some(now_ns()));
        assert!(matches!(refused.err(), Some(SetupError::Number { .. })));
    }
}

pub fn credits(pair: Pair) {
    let ((mut a, _from_b), (_b, mut from_a)) = connect(&pair, SIZES);
    for number in 0..4 {
        assert_eq!(send(&mut *a, number, 10), Ok(number));
    }
    let none = Err(SendError::NoCredit { credits: 4 });
    assert_eq!(a.send(1, Some(now_ns()), &mut |_| {}), none);
    // A received message is not consumed yet: no credit returns while `take` runs.
    let mut inside = None;
    from_a
        .receive(watchdog(), &mut |_, _| {
            inside = Some(a.send(1, Some(now_ns() + 20_000_000), &mut |_| {}));
        })
        .unwrap();
    assert_eq!(inside, Some(none));
    assert_eq!(send(&mut *a, 4, 10), Ok(4), "one was consumed");
    for number in 1..5 {
        assert_eq!(receive(&mut *from_a), Ok((number, 10)));
    }
    let nothing = from_a.receive(Some(now_ns()), &mut |_, _| panic!("nothing was sent"));
    assert_eq!(nothing, Ok(false));
}

pub fn two_peers(one: Pair, other: Pair) {
    let ((mut a, _x), (_y, mut from_a)) = connect(&one, SIZES);
    let ((mut c, _z), (_w, mut from_c)) = connect(&other, SIZES);
    for number in 0..40 {
        send(&mut *a, number, 100).unwrap();
        send(&mut *c, number, 200).unwrap();
        assert_eq!(receive(&mut *from_c), Ok((number, 200)));
        assert_eq!(receive(&mut *from_a), Ok((number, 100)));
    }
    drop((a, _x));
    assert_eq!(receive(&mut *from_a), Err(End::Closed));
    send(&mut *c, 40, 300).unwrap();
    assert_eq!(receive(&mut *from_c), Ok((40, 300)), "the other goes on");
}

pub fn close(pair: Pair) {
    let ((mut a, from_b), (b, mut from_a)) = connect(&pair, SIZES);
    for number in 0..3 {
        send(&mut *a, number, LARGE).unwrap();
    }
    let closing = thread::spawn(move || drop((a, from_b)));
    for number in 0..3 {
        assert_eq!(
            receive(&mut *from_a),
            Ok((number, LARGE)),
            "sent before the end"
        );
    }
    assert_eq!(receive(&mut *from_a), Err(End::Closed));
    assert_eq!(receive(&mut *from_a), Err(End::Closed));
    assert_eq!(from_a.read(watchdog(), &mut |_| {}), Err(End::Closed));
    closing.join().unwrap();
    let mut b = b;
    assert_eq!(until_refused(&mut *b), End::Closed);
}

fn until_refused(out: &mut dyn Outgoing) -> End {
    let watchdog = watchdog().unwrap();
    loop {
        match out.send(1, Some(now_ns() + 1_000_000), &mut |_| {}) {
            Err(SendError::Ended(end)) => return end,
            _ => assert!(now_ns() < watchdog, "sends go on without a receiver"),
        }
    }
}

pub fn half_closed(pair: Pair) {
    let ((mut a, from_b), (mut b, mut from_a)) = connect(&pair, SIZES);
    drop(from_b);
    assert_eq!(until_refused(&mut *b), End::Closed);
    send(&mut *a, 0, 50).unwrap();
    assert_eq!(
        receive(&mut *from_a),
        Ok((0, 50)),
        "the other direction goes on"
    );
}

pub fn latest(pair: Pair) {
    let ((mut a, _x), (_b, mut from_a)) = connect(&pair, SIZES);
    let mut old = Vec::new();
    assert_eq!(from_a.read(watchdog(), &mut |v| old = v.into()), Ok(false));
    a.publish(0, &mut |_| {}).unwrap();
    let empty = from_a.read(watchdog(), &mut |v| assert!(v.is_empty()));
    assert_eq!(empty, Ok(true));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut number = 0u64;
            loop {
                number += 1;
                let bytes = 8 + (number as usize * 613) % 4900;
                let write = &mut |value: &mut [u8]| {
                    value[..8].copy_from_slice(&number.to_le_bytes());
                    value[8..].fill(number as u8);
                };
                a.publish(bytes, write).unwrap();
                if done.load(Ordering::Relaxed) {
                    return number;
                }
            }
        });
        let mut last = 0;
        for _ in 0..300 {
            let read = from_a.read(watchdog(), &mut |value| {
                if value.is_empty() {
                    return;
                }
                let number = u64::from_le_bytes(value[..8].try_into().unwrap());
                assert!(number >= last, "{number} after {last}");
                assert_eq!(value.len(), 8 + (number as usize * 613) % 4900);
                assert!(value[8..].iter().all(|b| *b == number as u8), "torn");
                last = number;
            });
            assert_eq!(read, Ok(true));
        }
        done.store(true, Ordering::Relaxed);
        let newest = publisher.join().unwrap();
        // No value is published any more, so this read returns the latest.
        from_a
            .read(watchdog(), &mut |v| {
                assert_eq!(v[..8], newest.to_le_bytes())
            })
            .unwrap();
    });
}

pub fn refusals(pair: Pair) {
    let ours = SIZES;
    let theirs = Sizes {
        credits: 5,
        ..SIZES
    };
    let (first, second) = thread::scope(|scope| {
        let backend = Moved(&*pair.first);
        let deadline = Some(now_ns() + 3_000_000_000);
        let first = scope.spawn(move || {
            let other = backend.get().initialize(ours, Memory::Allot, deadline);
            other.err().map(|e| e.to_string())
        });
        // Which end refuses depends on the order in which they come.
        let second = loop {
            match pair.second.initialize(theirs, Memory::Allot, deadline) {
                Err(SetupError::Channel(_)) => thread::yield_now(),
                other => break other.err(),
            }
        };
        (first.join().unwrap(), second)
    });
    let texts = [first.unwrap(), second.unwrap().to_string()];
    let told = |t: &String| t.contains("4 credits") && t.contains("5 credits");
    assert!(texts.iter().any(told), "{texts:?}");

    let _link = connect(&pair, SIZES);
    let soon = Some(now_ns() + 60_000_000_000);
    let third = pair.second.initialize(SIZES, Memory::Allot, soon).err();
    let Some(SetupError::Refused { reason, .. }) = third else {
        panic!("a third end: {third:?}");
    };
    assert_eq!(reason, Refusal::InUse);
}

pub fn own_memory(pair: Pair) {
    let bytes = pair.first.memory_bytes(SIZES).unwrap();
    let (mine, yours) = (
        vec![0; bytes].into_boxed_slice(),
        vec![0; bytes].into_boxed_slice(),
    );
    let range = mine.as_ptr_range();
    thread::scope(|scope| {
        let backend = Moved(&*pair.second);
        let second = scope.spawn(move || {
            backend
                .get()
                .initialize(SIZES, Memory::Given(yours), watchdog())
        });
        let first = pair
            .first
            .initialize(SIZES, Memory::Given(mine), watchdog());
        let second = second.join().unwrap();
        let ((mut a, _x), (_y, mut from_a)) = match (first, second) {
            (Ok(a), Ok(b)) => (a, b),
            (first, second) => {
                let refused = |r: Option<_>| matches!(r, Some(SetupError::OwnMemory));
                assert!(refused(first.err()) && refused(second.err()));
                return;
            }
        };
        let within = |slot: &[u8]| range.contains(&slot.as_ptr());
        a.send(9, None, &mut |slot| assert!(within(slot))).unwrap();
        assert!(from_a.receive(watchdog(), &mut |_, _| {}).unwrap());
    });
    let short = Memory::Given(vec![0; bytes - 1].into_boxed_slice());
    let refused = pair.first.initialize(SIZES, short, Some(now_ns())).err();
    assert!(matches!(
        refused,
        Some(SetupError::Memory { .. } | SetupError::OwnMemory)
    ));
}

const STEPS: [&str; 6] = [
    "connected",
    "filling",
    "sent",
    "many",
    "taking",
    "published",
];

fn die() -> ! {
    // SAFETY: ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!()
}

pub fn child(backend: &dyn Backend, step: &str) {
    let (mut b, mut from_a) = backend
        .initialize(SIZES, Memory::Allot, watchdog())
        .unwrap();
    match step {
        "connected" => die(),
        "filling" => drop(b.send(LARGE, None, &mut |_| die())),
        "sent" => drop(send(&mut *b, 0, LARGE)),
        "many" => (0..50).for_each(|number| drop(send(&mut *b, number, length(number)))),
        "taking" => drop(from_a.receive(None, &mut |_, _| die())),
        _ => drop(b.publish(5000, &mut |_| {})),
    }
    die();
}

pub fn death(make: impl Fn() -> Pair, test: &str) {
    for step in STEPS {
        let pair = make();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--include-ignored"])
            .env("ONBEAT_PEER", &pair.for_child)
            .env("ONBEAT_STEP", step)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let (mut a, mut from_b) = pair
            .first
            .initialize(SIZES, Memory::Allot, watchdog())
            .unwrap();
        // Messages arrive in order and complete, and then the link ends.
        let receiver = thread::spawn(move || {
            let mut next = 0;
            let end = loop {
                match receive(&mut *from_b) {
                    Ok((number, _)) => assert_eq!(number, next, "{step}"),
                    Err(end) => break end,
                }
                next += 1;
            };
            (next, end)
        });
        let sending = loop {
            match a.send(LARGE, Some(now_ns() + 10_000_000), &mut |_| {}) {
                Ok(_) | Err(SendError::NoCredit { .. }) => {}
                Err(SendError::Ended(end)) => break end,
                Err(other) => panic!("{step}: {other}"),
            }
        };
        let (received, end) = receiver.join().unwrap();
        child.wait().unwrap();
        let is_gone = |end: &End| matches!(end, End::Gone { .. });
        assert!(
            is_gone(&sending) && is_gone(&end),
            "{step}: {sending:?}, {end:?}"
        );
        assert!(received <= 50, "{step}");
    }
}

/// Makes the tests of one backend. `$pair` makes two connected ends. `$mortal` makes ends that soon
/// count a lost peer as gone.
macro_rules! backends {
    ($name:ident, $pair:expr, $mortal:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn messages_arrive_once_and_in_order() {
                backends::order($pair);
            }
            #[test]
            fn messages_of_every_size_arrive() {
                backends::sizes($pair);
            }
            #[test]
            fn a_credit_returns_when_the_message_is_consumed() {
                backends::credits($pair);
            }
            #[test]
            fn links_do_not_disturb_one_another() {
                backends::two_peers($pair, $pair);
            }
            #[test]
            fn messages_sent_before_the_close_arrive() {
                backends::close($pair);
            }
            #[test]
            fn one_direction_closes_without_the_other() {
                backends::half_closed($pair);
            }
            #[test]
            fn the_latest_value_is_never_torn() {
                backends::latest($pair);
            }
            #[test]
            fn an_end_with_settings_that_differ_from_its_peers_learns_why_it_is_refused() {
                backends::refusals($pair);
            }
            #[test]
            fn memory_that_the_application_provides_is_used_for_messages_or_refused() {
                backends::own_memory($pair);
            }
            #[test]
            fn the_death_of_a_peer_ends_the_link_at_every_step() {
                backends::death(
                    || $mortal,
                    "the_peer_process_does_nothing_unless_a_test_starts_it",
                );
            }
        }
    };
}
pub(crate) use backends;
