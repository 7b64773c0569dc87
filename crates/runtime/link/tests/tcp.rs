//! Tests the properties that only TCP has: broken connections, keys, versions, strangers and
//! garbage.

#[allow(dead_code, unused_imports, unused_macros)]
mod backends;

use backends::{receive, send, watchdog, SIZES};
use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Backend, End, Memory, Refusal, SetupError, Sizes};
use onbeat_link::tcp::frame::{Chunk, Status};
use onbeat_link::tcp::fuzzing;
use onbeat_link::{Key, Tcp};
use proptest::prelude::*;
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::thread;

fn key(byte: u8) -> Key {
    Key::from_bytes([byte; 32])
}

fn listening(byte: u8) -> Tcp {
    let tcp = Tcp::listen("127.0.0.1:0".parse().unwrap(), key(byte)).unwrap();
    tcp.chunk_bytes(backends::CHUNK)
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mut bytes: usize) {
    let mut buffer = [0; 4096];
    while bytes > 0 {
        let most = buffer.len().min(bytes);
        let Ok(length @ 1..) = from.read(&mut buffer[..most]) else {
            break;
        };
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
        bytes -= length;
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Starts a relay to `to` whose connection `n` breaks after `lengths[n]` bytes in either direction.
fn breaking_network(to: SocketAddr, lengths: Vec<usize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for bytes in lengths.into_iter().chain(std::iter::repeat(usize::MAX)) {
            let (near, _) = listener.accept().unwrap();
            let Ok(far) = TcpStream::connect(to) else {
                return;
            };
            let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || pass_on(near, far, bytes));
            thread::spawn(move || pass_on(far_too, near_too, bytes));
        }
    });
    address
}

fn slow_network(to: SocketAddr, bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        // Small buffers keep most of the message at the sending end.
        let far = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        far.set_recv_buffer_size(8192).unwrap();
        far.connect(&to.into()).unwrap();
        let mut far = TcpStream::from(far);
        let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || pass_on(near, far_too, usize::MAX));
        let mut near = near_too;
        let mut buffer = vec![0; bytes];
        while let Ok(length @ 1..) = far.read(&mut buffer) {
            if near.write_all(&buffer[..length]).is_err() {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(100));
        }
        let _ = near.shutdown(Shutdown::Both);
    });
    address
}

/// Sends a message that takes longer than a closing end waits for a peer that receives nothing.
#[test]
fn a_message_on_a_slow_network_arrives_before_the_close() {
    const SIZE: usize = 1_000_000;
    let sizes = Sizes {
        message_bytes: SIZE,
        ..SIZES
    };
    let first = listening(1);
    let way = slow_network(first.address(), 30_000);
    let pair = backends::Pair {
        first: Box::new(first),
        second: Box::new(Tcp::connect(way, key(1)).chunk_bytes(backends::CHUNK)),
        for_child: String::new(),
    };
    let ((mut a, from_b), (_b, mut from_a)) = backends::connect(&pair, sizes);
    send(&mut *a, 0, SIZE).unwrap();
    let closing = thread::spawn(move || drop((a, from_b)));
    assert_eq!(receive(&mut *from_a), Ok((0, SIZE)));
    assert_eq!(receive(&mut *from_a), Err(End::Closed));
    closing.join().unwrap();
}

#[test]
fn a_connection_that_breaks_anywhere_loses_and_doubles_no_message() {
    // The first handshake passes, since there must be a session before it can be resumed.
    let lengths = (0..30).map(|n| if n == 0 { 2000 } else { 40 + n * 211 });
    let first = listening(1);
    let way = breaking_network(first.address(), lengths.collect());
    let second = Tcp::connect(way, key(1)).chunk_bytes(backends::CHUNK);
    let pair = backends::Pair {
        first: Box::new(first),
        second: Box::new(second),
        for_child: String::new(),
    };
    let ((mut a, mut from_b), (mut b, mut from_a)) = backends::connect(&pair, SIZES);
    const COUNT: u64 = 150;
    let length = |number: u64| (number as usize * 613) % 3000;
    thread::scope(|scope| {
        scope.spawn(|| (0..COUNT).for_each(|n| assert_eq!(send(&mut *a, n, length(n)), Ok(n))));
        scope.spawn(|| (0..COUNT).for_each(|n| assert_eq!(send(&mut *b, n, length(n)), Ok(n))));
        scope.spawn(|| {
            (0..COUNT).for_each(|n| assert_eq!(receive(&mut *from_b), Ok((n, length(n)))))
        });
        (0..COUNT).for_each(|n| assert_eq!(receive(&mut *from_a), Ok((n, length(n)))));
    });
}

#[test]
fn wrong_keys_versions_and_strangers_are_refused_and_the_right_peer_connects() {
    let first = listening(1);
    let address = first.address();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| first.initialize(SIZES, Memory::Allot, watchdog()));
        let with = |tcp: Tcp| {
            let tcp = tcp.chunk_bytes(backends::CHUNK);
            tcp.initialize(SIZES, Memory::Allot, watchdog())
        };
        let refused = |tcp| match with(tcp).err() {
            Some(SetupError::Refused { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(Tcp::connect(address, key(2))), Refusal::Key);
        let in_clear = Tcp::connect(address, key(1)).in_clear();
        assert_eq!(refused(in_clear), Refusal::Options);

        // The head of a later version, and then garbage.
        let mut newer = TcpStream::connect(address).unwrap();
        newer.write_all(b"onbL\x63\x00\x01\x00\x00").unwrap();
        let mut answer = Vec::new();
        newer.read_to_end(&mut answer).unwrap();
        assert_eq!(
            answer, b"onbL\x02\x00\x04\x00\x00",
            "refused, with our version"
        );
        for garbage in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"onbL",
            b"onbL\x02\x00\x01\xff\xff",
        ] {
            let mut stranger = TcpStream::connect(address).unwrap();
            let _ = stranger.write_all(garbage);
        }
        let mine = with(Tcp::connect(address, key(1)));
        assert!(mine.is_ok() && waiting.join().unwrap().is_ok());
    });
}

#[test]
fn the_error_names_the_version_of_a_newer_listening_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"onbL\x07\x00\x04\x00\x00").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let refused = Tcp::connect(address, key(1)).initialize(SIZES, Memory::Allot, watchdog());
    let text = refused.err().unwrap().to_string();
    assert!(
        text.contains("version 2") && text.contains("the other end 7"),
        "{text}"
    );
    other.join().unwrap();
}

/// Connects more strangers than an end has handshakes at once. If the end served one stranger after
/// the other, they would delay the peer beyond its time limit.
#[test]
fn silent_strangers_do_not_delay_a_peer() {
    let last_attempt = watchdog().unwrap();
    while !a_peer_is_served_beside_strangers() {
        assert!(now_ns() < last_attempt, "strangers are always served first");
    }
}

fn a_peer_is_served_beside_strangers() -> bool {
    let first = listening(1);
    let address = first.address();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| first.initialize(SIZES, Memory::Allot, watchdog()));
        let strangers: Vec<_> = (0..20)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let second = Tcp::connect(address, key(1)).chunk_bytes(backends::CHUNK);
        let mine = second.initialize(SIZES, Memory::Allot, watchdog());
        let is_there = |stranger: &TcpStream| {
            stranger.set_nonblocking(true).unwrap();
            let read = (&mut &*stranger).read(&mut [0]);
            read.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
        };
        let stay = strangers.iter().filter(|s| is_there(s)).count();
        assert!(mine.is_ok() && waiting.join().unwrap().is_ok());
        stay > 0
    })
}

/// Runs a process that listens and has no descriptors left, until its standard input ends. Does
/// nothing unless a test starts it.
#[test]
#[ignore = "the other side of an_end_without_free_descriptors_waits_until_one_is_free"]
fn a_process_that_another_test_starts_listens_without_free_descriptors() {
    let first = listening(1);
    println!("\n{}", first.address());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| first.initialize(SIZES, Memory::Allot, watchdog()));
        // The stranger's refusal shows that the end has everything that it needs to listen.
        let mut stranger = TcpStream::connect(first.address()).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let _ = stranger.read_to_end(&mut Vec::new());
        let limit = |now: u64, most: u64| libc::rlimit {
            rlim_cur: now,
            rlim_max: most,
        };
        // SAFETY: reads and sets a limit of this process, from values on the stack.
        let set = |to: libc::rlimit| unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &to) };
        // The limit allows no further descriptor.
        assert_eq!(set(limit(3, 1000)), 0);
        println!("out");
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        assert_eq!(set(limit(1000, 1000)), 0);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn an_end_without_free_descriptors_waits_until_one_is_free() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_process_that_another_test_starts_listens_without_free_descriptors",
            "--nocapture",
            "--ignored",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.by_ref().find_map(|l| l.unwrap().parse().ok());
    assert!(lines.any(|l| l.unwrap() == "out"));
    // One tick is ten milliseconds, in the kernel and out of it.
    let stat = format!("/proc/{}/stat", child.id());
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string(&stat).unwrap();
        let after_name = stat.rsplit(") ").next().unwrap().split(' ');
        after_name
            .skip(11)
            .take(2)
            .map(|n| n.parse::<u64>().unwrap())
            .sum()
    };
    let comes = Tcp::connect(address.unwrap(), key(1)).chunk_bytes(backends::CHUNK);
    thread::scope(|scope| {
        let before = ticks();
        let mine = scope.spawn(|| comes.initialize(SIZES, Memory::Allot, watchdog()));
        thread::sleep(std::time::Duration::from_secs(1));
        let used = ticks() - before;
        drop(child.stdin.take());
        assert!(mine.join().unwrap().is_ok());
        assert!(
            used < 20,
            "{used} ticks in a second in which it could not do anything"
        );
    });
    assert!(child.wait().unwrap().success());
}

/// Guards against an earlier fault: a closing end dialled again, and waited two seconds for a
/// handshake that nobody answered.
#[test]
fn an_end_that_closes_does_not_connect_again() {
    // The fault needed two threads to meet, so it is tried often.
    (0..30).for_each(|_| an_end_closes());
}

fn an_end_closes() {
    let first = listening(1);
    let to = first.address();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let way = listener.local_addr().unwrap();
    let network = thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let far = TcpStream::connect(to).unwrap();
        let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || pass_on(near, far, usize::MAX));
        pass_on(far_too, near_too, usize::MAX);
        listener
    });
    let pair = backends::Pair {
        first: Box::new(first),
        second: Box::new(Tcp::connect(way, key(1)).chunk_bytes(backends::CHUNK)),
        for_child: String::new(),
    };
    let ((mut a, from_b), closing) = backends::connect(&pair, SIZES);
    send(&mut *a, 0, 5000).unwrap();
    drop(closing);
    let listener = network.join().unwrap();
    listener.set_nonblocking(true).unwrap();
    let again = listener.accept().map(|_| ()).map_err(|e| e.kind());
    assert_eq!(again, Err(std::io::ErrorKind::WouldBlock));
    drop((a, from_b));
}

#[test]
fn a_replayed_handshake_changes_nothing() {
    let first = listening(1);
    let to = first.address();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let way = listener.local_addr().unwrap();
    let recorder = thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut far = TcpStream::connect(to).unwrap();
        let mut hello = [0; 9];
        near.read_exact(&mut hello).unwrap();
        let mut recorded = hello.to_vec();
        recorded.resize(9 + usize::from(hello[7]), 0);
        near.read_exact(&mut recorded[9..]).unwrap();
        far.write_all(&recorded).unwrap();
        let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || pass_on(near, far, usize::MAX));
        thread::spawn(move || pass_on(far_too, near_too, usize::MAX));
        recorded
    });
    let pair = backends::Pair {
        first: Box::new(first),
        second: Box::new(Tcp::connect(way, key(1)).chunk_bytes(backends::CHUNK)),
        for_child: String::new(),
    };
    let ((mut a, _x), (_y, mut from_a)) = backends::connect(&pair, SIZES);
    let mut replay = TcpStream::connect(to).unwrap();
    replay.write_all(&recorder.join().unwrap()).unwrap();
    // The listening end answers, and closes because the proof is missing.
    replay.read_to_end(&mut Vec::new()).unwrap();
    send(&mut *a, 0, 5000).unwrap();
    assert_eq!(receive(&mut *from_a), Ok((0, 5000)));
}

#[test]
fn only_its_owner_may_read_a_key_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    Key::generate().create_file(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    Key::read_file(&path).unwrap();
    assert!(
        Key::generate().create_file(&path).is_err(),
        "it is there already"
    );

    let refused = |path: &std::path::Path| Key::read_file(path).unwrap_err().to_string();
    for mode in [0o640, 0o604, 0o660] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        assert!(refused(&path).contains("other users"), "{mode:o}");
    }
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(refused(&link).contains("cannot open"));
    for text in ["", "00", &"g".repeat(64), &"0".repeat(66)] {
        std::fs::write(&path, text).unwrap();
        assert!(refused(&path).contains("64 hexadecimal"), "{text}");
    }
}

fn frames(bytes: &[u8]) -> u64 {
    let sizes = Sizes {
        credits: 2,
        message_bytes: 64,
        value_bytes: 32,
    };
    fuzzing::frames(bytes, sizes, 16)
}

#[test]
fn messages_without_credit_or_out_of_order_are_not_accepted() {
    let message = |number| {
        let chunk = Chunk {
            number,
            offset: 0,
            bytes: 0,
            total: 0,
        };
        chunk.message_head().to_vec()
    };
    let told = Status::default().bytes().to_vec();
    assert_eq!(frames(&[told.clone(), message(0), message(1)].concat()), 2);
    let three = [told.clone(), message(0), message(1), message(2)].concat();
    assert_eq!(frames(&three), 2);
    assert_eq!(frames(&[told.clone(), message(1)].concat()), 0);
    assert_eq!(frames(&[told, message(0), message(0)].concat()), 1);
}

proptest! {
    #[test]
    fn any_frames_of_a_lying_peer_cause_no_panic(
        parts in proptest::collection::vec(
            (0u8..6, 0u8..5, 0u32..80, 0u64..4, 0u32..80, 0u32..80), 0..20
        )
    ) {
        let mut bytes = Vec::new();
        for (kind, flags, length, number, offset, total) in parts {
            bytes.extend([kind, flags, 0, 0]);
            bytes.extend(length.to_le_bytes());
            bytes.extend(number.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            bytes.extend(total.to_le_bytes());
            bytes.resize(bytes.len() + length as usize, 1);
        }
        frames(&bytes);
    }
}
