//! Cuts a TCP connection after an exact number of bytes in one direction, for every number within
//! its handshake and some after it. Cuts the first connection of a session, and one that resumes
//! it. The link works afterwards, and every message arrives once, in order and whole.

#[allow(dead_code, unused_imports, unused_macros)]
mod backends;

use backends::{receive, send, CHUNK};
use onbeat_link::interface::{Incoming, Outgoing, Sizes};
use onbeat_link::{Key, Tcp};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

const MESSAGES: u64 = 3;
const SIZES: Sizes = Sizes {
    credits: 2,
    message_bytes: 2 * CHUNK,
    value_bytes: 0,
};

fn length(number: u64) -> usize {
    // The message takes one chunk, or two.
    [30, CHUNK + 20, 50][number as usize % 3]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Connecting,
    Listening,
}

#[derive(Debug, Clone, Copy)]
struct Cut {
    connection: usize,
    from: From,
    bytes: usize,
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, most: usize) -> usize {
    let (mut buffer, mut passed) = ([0; 4096], 0);
    while passed < most {
        let room = buffer.len().min(most - passed);
        let Ok(length @ 1..) = from.read(&mut buffer[..room]) else {
            break;
        };
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
        passed += length;
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    passed
}

struct Way {
    address: SocketAddr,
    made: Arc<AtomicUsize>,
}

fn way(to: SocketAddr, cuts: Vec<Cut>) -> Way {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let made = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&made);
    thread::spawn(move || {
        for connection in 0.. {
            let (near, _) = listener.accept().unwrap();
            let Ok(far) = TcpStream::connect(to) else {
                return;
            };
            let pass = |from: From, source: &TcpStream, sink: &TcpStream| {
                let mine = |c: &&Cut| c.connection == connection && c.from == from;
                let most = cuts.iter().find(mine).map_or(usize::MAX, |c| c.bytes);
                let (source, sink) = (source.try_clone().unwrap(), sink.try_clone().unwrap());
                let counted = Arc::clone(&counted);
                thread::spawn(move || {
                    if pass_on(source, sink, most) == most {
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                });
            };
            pass(From::Connecting, &near, &far);
            pass(From::Listening, &far, &near);
        }
    });
    Way { address, made }
}

fn key() -> Key {
    Key::from_bytes([5; 32])
}

fn exchange(cuts: Vec<Cut>, sealed: bool) -> usize {
    let options = |tcp: Tcp| {
        let tcp = tcp.chunk_bytes(CHUNK);
        if sealed {
            tcp
        } else {
            tcp.in_clear()
        }
    };
    let first = options(Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap());
    let way = way(first.address(), cuts);
    let pair = backends::Pair {
        first: Box::new(first),
        second: Box::new(options(Tcp::connect(way.address, key()))),
        for_child: String::new(),
    };
    let ((mut a, mut from_b), (mut b, mut from_a)) = backends::connect(&pair, SIZES);
    let sends = |out: &mut dyn Outgoing| {
        (0..MESSAGES).for_each(|n| assert_eq!(send(out, n, length(n)), Ok(n)));
    };
    let takes = |incoming: &mut dyn Incoming| {
        (0..MESSAGES).for_each(|n| assert_eq!(receive(incoming), Ok((n, length(n)))));
    };
    thread::scope(|scope| {
        scope.spawn(|| sends(&mut *a));
        scope.spawn(|| sends(&mut *b));
        scope.spawn(|| takes(&mut *from_b));
        takes(&mut *from_a);
    });
    // No message arrives again.
    let nothing = &mut |number, _: &[u8]| panic!("message {number} again");
    for incoming in [&mut from_a, &mut from_b] {
        assert_eq!(incoming.receive(Some(0), nothing), Ok(false));
    }
    thread::scope(|scope| {
        scope.spawn(|| drop((a, from_b)));
        drop((b, from_a));
    });
    way.made.load(Ordering::SeqCst)
}

/// The sizes of the handshake steps, with their senders. Each step has a head of 9 bytes, and a
/// Noise message of an ephemeral public key (32), a payload and a tag (16). The proof has only a
/// tag.
const HANDSHAKE: [(From, usize); 2] = [
    (From::Connecting, 9 + 32 + 61 + 16 + 9 + 16),
    (From::Listening, 9 + 32 + 62 + 16),
];
/// The number of bytes after the handshake within which the test cuts a connection. It cuts at
/// every `STRIDE`-th byte.
const BEYOND: usize = 2000;
const STRIDE: usize = 83;

/// Cuts one direction of a connection after every byte of its handshake, and at some positions
/// after the handshake. Returns the number of these later positions.
fn after_every_byte_of(
    connection: usize,
    before: &[Cut],
    (from, handshake): (From, usize),
) -> usize {
    let mut beyond = 0;
    let every = (0..=handshake).chain((handshake..handshake + BEYOND).step_by(STRIDE));
    for bytes in every {
        let cut = Cut {
            connection,
            from,
            bytes,
        };
        let cuts = before.iter().copied().chain([cut]).collect();
        let made = exchange(cuts, bytes % 2 == 0);
        if bytes <= handshake {
            assert_eq!(made, before.len() + 1, "it was not cut: {cut:?}");
        } else {
            beyond += made - before.len();
        }
    }
    beyond
}

fn after_every_byte(connection: usize, before: &[Cut]) {
    let beyond = thread::scope(|scope| {
        let directions =
            HANDSHAKE.map(|way| scope.spawn(move || after_every_byte_of(connection, before, way)));
        directions.map(|d| d.join().unwrap())
    });
    println!("connection {connection}: {beyond:?} cuts after the handshake");
    // The number depends on how much had arrived before the connection was made.
    assert!(beyond.iter().all(|cuts| *cuts > 0), "messages were not cut");
}

#[test]
fn a_first_connection_cut_after_any_byte_loses_no_message() {
    after_every_byte(0, &[]);
}

#[test]
fn a_resuming_connection_cut_after_any_byte_loses_no_message() {
    // The first connection breaks within the second message.
    let first = Cut {
        connection: 0,
        from: From::Listening,
        bytes: HANDSHAKE[1].1 + 800,
    };
    after_every_byte(1, &[first]);
}
