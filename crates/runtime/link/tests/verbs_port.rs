//! Tests links over RDMA on a port: chunks, priorities, and the order on the wire.
//!
//! The tests need RDMA devices: see `places`.

#[allow(dead_code, unused_macros, unused_imports)]
mod backends;
mod placed;
mod places;

use backends::{receive, send, watchdog, Pair};
use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Backend, Incoming, Memory, SendError, Sizes};
use onbeat_link::port::{Port, Settings};
use onbeat_link::Verbs;
use placed::{key, Placed};
use places::places;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

/// The chunk size, in bytes. Messages of the suite have several chunks, and some end with a full
/// one.
const CHUNK: usize = 4 << 10;
/// A time limit that a slow emulated device never reaches. The tests use it for silent peers,
/// leases and the port's patience.
const LONG: Duration = Duration::from_secs(10);

fn port() -> Port {
    let settings = Settings::of_rate(1_000_000_000).chunk_bytes(CHUNK);
    Port::alone(settings.slack(LONG).patience(LONG)).unwrap()
}

fn pair(port: Option<(&Port, u8)>) -> Pair {
    let [first, second] = places();
    let address = SocketAddr::new(first.address, 0);
    let listening = first.within(|| Verbs::listen(address, key())).unwrap();
    let connecting = Verbs::connect(listening.address(), key());
    let (listening, connecting) = match port {
        Some((port, priority)) => {
            let listening = listening.on_port(port, priority);
            (listening, connecting.chunk_bytes(CHUNK))
        }
        None => (listening, connecting),
    };
    let placed = |place, verbs: Verbs| {
        let verbs = verbs.gone_after(LONG);
        Box::new(Placed { place, verbs })
    };
    Pair {
        first: placed(first, listening),
        second: placed(second, connecting),
        for_child: String::new(),
    }
}

#[test]
fn messages_of_all_sizes_arrive_whole_in_chunks() {
    backends::sizes(pair(Some((&port(), 1))));
}

#[test]
fn messages_arrive_once_and_in_order_in_chunks() {
    let port = port();
    let ((mut out, _in), (_out, mut incoming)) =
        backends::connect(&pair(Some((&port, 1))), backends::SIZES);
    let length = |number: u64| number as usize * 997 % (9 * CHUNK);
    const COUNT: u64 = 300;
    thread::scope(|scope| {
        scope.spawn(|| (0..COUNT).for_each(|n| assert_eq!(send(&mut *out, n, length(n)), Ok(n))));
        (0..COUNT).for_each(|n| assert_eq!(receive(&mut *incoming), Ok((n, length(n)))));
    });
    let sent = port.stats().transfers[0].sent;
    let chunks: usize = (0..COUNT).map(|n| length(n).div_ceil(CHUNK).max(1)).sum();
    assert_eq!((sent.messages, sent.chunks), (COUNT, chunks as u64));
}

#[test]
fn different_chunk_sizes_and_too_many_chunks_are_refused() {
    let [first, second] = places();
    let listening = first.within(|| Verbs::listen(SocketAddr::new(first.address, 0), key()));
    let listening = listening.unwrap().on_port(&port(), 1);
    let connecting = Verbs::connect(listening.address(), key()).chunk_bytes(CHUNK + 1);
    let soon = Some(now_ns() + 3_000_000_000);
    let sizes = backends::SIZES;
    thread::scope(|scope| {
        scope.spawn(|| {
            first
                .within(|| listening.initialize(sizes, Memory::Allot, soon))
                .err()
        });
        let refused = second.within(|| connecting.initialize(sizes, Memory::Allot, soon));
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains("their chunk sizes differ"), "{refused}");
    });
    let tiny = Verbs::connect(listening.address(), key()).chunk_bytes(1);
    let refused = tiny.initialize(sizes, Memory::Allot, soon).err().unwrap();
    let most = "give at most 65536";
    assert!(refused.to_string().contains(most), "{refused}");
}

fn take_all(mut incoming: Box<dyn Incoming>) -> u64 {
    let mut count = 0;
    while let Ok(true) = incoming.receive(watchdog(), &mut |_, _| ()) {
        count += 1;
    }
    count
}

#[test]
fn more_urgent_messages_go_between_two_chunks_of_a_less_urgent_one() {
    let port = port();
    let (low, high) = (pair(Some((&port, 1))), pair(Some((&port, 2))));
    let ((mut low, _a), (_b, low_in)) = backends::connect(&low, backends::SIZES);
    let ((mut high, _c), (_d, high_in)) = backends::connect(&high, backends::SIZES);
    let over = AtomicBool::new(false);
    const URGENT: u64 = 100;
    thread::scope(|scope| {
        let lows = scope.spawn(|| take_all(low_in));
        let highs = scope.spawn(|| take_all(high_in));
        let flood = scope.spawn(|| {
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                low.send(backends::SIZES.message_bytes, watchdog(), &mut |_| ())
                    .unwrap();
                count += 1;
            }
            drop((low, _a));
            count
        });
        for number in 0..URGENT {
            send(&mut *high, number, 100).unwrap();
        }
        let stats = port.stats();
        over.store(true, Ordering::Relaxed);
        assert_eq!(flood.join().unwrap(), lows.join().unwrap());
        drop((high, _c));
        assert_eq!(highs.join().unwrap(), URGENT);
        let by = |priority| {
            stats
                .transfers
                .iter()
                .find(|t| t.priority == priority)
                .unwrap()
        };
        assert!(by(1).preemptions > 0, "{stats:?}");
        // At most the one chunk that was let go just before.
        assert!(by(2).most_before <= 1, "{stats:?}");
        assert_eq!((by(2).preemptions, by(2).passed_over), (0, 0), "{stats:?}");
        assert_eq!((by(1).expired, by(2).expired), (0, 0), "{stats:?}");
    });
}

#[test]
fn a_peer_that_leaves_during_a_send_ends_it_and_frees_the_port() {
    let port = port();
    let ends = pair(Some((&port, 1)));
    let ((mut out, _in), peer) = backends::connect(&ends, backends::SIZES);
    thread::scope(|scope| {
        scope.spawn(move || {
            let (out, mut incoming) = peer;
            receive(&mut *incoming).unwrap();
            drop((incoming, out));
        });
        let ended = (0..).find_map(|n| send(&mut *out, n, backends::SIZES.message_bytes).err());
        let ended = ended.unwrap();
        assert!(matches!(ended, SendError::Ended(_)), "{ended:?}");
    });
    drop((out, _in));
    assert_eq!(port.stats().transfers, []);
    // The next link has the whole port.
    let ((mut out, _in), (_out, mut incoming)) =
        backends::connect(&pair(Some((&port, 1))), backends::SIZES);
    send(&mut *out, 0, 100).unwrap();
    assert_eq!(receive(&mut *incoming), Ok((0, 100)));
}

/// The bytes with which each part of a message begins, so that the test finds the part on the wire.
const MARK: [u8; 8] = *b"\x9bonbeat\x9b";
const UNIT: usize = 16;

fn tap() -> OwnedFd {
    let every = i32::from((libc::ETH_P_ALL as u16).to_be());
    // SAFETY: a new descriptor, which is owned from here on.
    let tap = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, every) };
    assert!(tap >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: as above.
    let tap = unsafe { OwnedFd::from_raw_fd(tap) };
    let (room, soon) = (
        32 << 20,
        libc::timeval {
            tv_sec: 0,
            tv_usec: 100_000,
        },
    );
    let set = |name, value: *const libc::c_void, bytes: usize| {
        // SAFETY: the kernel reads `bytes` bytes of a live value.
        let code = unsafe {
            libc::setsockopt(tap.as_raw_fd(), libc::SOL_SOCKET, name, value, bytes as u32)
        };
        assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    };
    let room: libc::c_int = room;
    set(
        libc::SO_RCVBUFFORCE,
        (&raw const room).cast(),
        size_of_val(&room),
    );
    set(
        libc::SO_RCVTIMEO,
        (&raw const soon).cast(),
        size_of_val(&soon),
    );
    tap
}

fn order_on(tap: &OwnedFd, over: &AtomicBool) -> Vec<u64> {
    let (mut order, mut packet) = (Vec::new(), [0_u8; 2048]);
    loop {
        // SAFETY: writes into the buffer, at most its length.
        let got = unsafe { libc::recv(tap.as_raw_fd(), packet.as_mut_ptr().cast(), 2048, 0) };
        let Ok(bytes) = usize::try_from(got) else {
            if over.load(Ordering::Relaxed) {
                return order;
            }
            continue;
        };
        let mut units = packet[..bytes].windows(UNIT);
        if let Some(unit) = units.find(|u| u.starts_with(&MARK)) {
            let number = u64::from_le_bytes(unit[8..].try_into().unwrap());
            if !order.contains(&number) {
                order.push(number);
            }
        }
    }
}

/// Lets three tasks send four messages in turns, each in its own thread by its own link (thesis,
/// Figure 5.13). Returns the percentage of messages that have their expected place in the order on
/// the wire.
fn in_place(port: Option<&Port>, bytes: usize) -> f64 {
    const TASKS: usize = 3;
    const TURN: usize = 4;
    const ROUNDS: usize = 8;
    let pairs: Vec<_> = (0..TASKS).map(|_| pair(port.map(|p| (p, 1)))).collect();
    let links = pairs.iter().map(|p| {
        backends::connect(
            p,
            Sizes {
                credits: 16,
                ..backends::SIZES
            },
        )
    });
    let (over, whose) = (AtomicBool::new(false), Mutex::new((0, 0_u64)));
    let begun = Barrier::new(TASKS + 1);
    let tap = places()[0].within(tap);
    thread::scope(|scope| {
        let order = scope.spawn(|| order_on(&tap, &over));
        let mut tasks = vec![];
        for (task, ((mut out, _in), (_out, incoming))) in links.enumerate() {
            let taking = scope.spawn(move || take_all(incoming));
            let (whose, begun) = (&whose, &begun);
            tasks.push(scope.spawn(move || {
                begun.wait();
                for _ in 0..ROUNDS {
                    while whose.lock().unwrap().0 != task {
                        thread::yield_now();
                    }
                    for _ in 0..TURN {
                        let number = whose.lock().unwrap().1;
                        let fill = &mut |slot: &mut [u8]| {
                            for unit in slot.chunks_exact_mut(UNIT) {
                                unit[..8].copy_from_slice(&MARK);
                                unit[8..].copy_from_slice(&number.to_le_bytes());
                            }
                        };
                        out.send(bytes, watchdog(), fill).unwrap();
                        whose.lock().unwrap().1 += 1;
                    }
                    whose.lock().unwrap().0 = (task + 1) % TASKS;
                }
                drop((out, _in));
                assert_eq!(taking.join().unwrap(), (TURN * ROUNDS) as u64);
                drop(_out);
            }));
        }
        begun.wait();
        tasks.into_iter().for_each(|t| t.join().unwrap());
        over.store(true, Ordering::Relaxed);
        let order = order.join().unwrap();
        assert_eq!(order.len(), TASKS * TURN * ROUNDS, "all were seen");
        let right = (0..).zip(&order).filter(|(at, n)| at == *n).count();
        100.0 * right as f64 / order.len() as f64
    })
}

#[test]
fn messages_are_on_the_wire_in_the_order_in_which_they_were_sent() {
    for bytes in [1024, 64 << 10] {
        let standard = in_place(None, bytes);
        println!("in place on the wire, {bytes} bytes: {standard:.0} % without a port");
        assert_eq!(in_place(Some(&port()), bytes), 100.0, "{bytes} bytes");
    }
}
