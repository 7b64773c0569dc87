//! Tests which transfer of a port sends next, over connections and processes, also when a process
//! dies or is stopped.
//!
//! The other process is this test program, started again with a role; see
//! `the_child_process_does_nothing_unless_a_test_starts_it`.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Backend, Halves, Memory, Sizes};
use onbeat_link::port::{Port, PortError, PortStats, Sent, Settings, TransferStats};
use onbeat_link::status::survey;
use onbeat_link::{Key, Tcp};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const ROLE: &str = "ONBEAT_PORT_ROLE";
const MESSAGE: usize = 256 << 10;
const CHUNK: usize = 16 << 10;

fn settings() -> Settings {
    Settings::of_rate(1_000_000_000).chunk_bytes(CHUNK)
}

fn key() -> Key {
    Key::from_bytes([9; 32])
}

fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("test-{}-{number}", std::process::id())
}

fn watchdog() -> Option<u64> {
    Some(now_ns() + 120_000_000_000)
}

fn receiver() -> (Tcp, SocketAddr) {
    let tcp = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let address = tcp.address();
    (tcp.chunk_bytes(CHUNK).in_clear(), address)
}

fn sizes() -> Sizes {
    Sizes {
        credits: 4,
        message_bytes: MESSAGE,
        value_bytes: 0,
    }
}

fn connect(receiver: &Tcp, sender: Tcp) -> (Halves, Halves) {
    thread::scope(|scope| {
        let far = scope.spawn(|| receiver.initialize(sizes(), Memory::Allot, watchdog()));
        let near = sender.initialize(sizes(), Memory::Allot, watchdog());
        (near.unwrap(), far.join().unwrap().unwrap())
    })
}

fn pair(port: &Port, priority: u8) -> (Halves, Halves) {
    let (receiver, address) = receiver();
    connect(
        &receiver,
        Tcp::connect(address, key())
            .in_clear()
            .on_port(port, priority),
    )
}

fn until(what: &str, port: &Port, holds: impl Fn(&PortStats) -> bool) -> PortStats {
    let deadline = watchdog().unwrap();
    loop {
        let stats = port.stats();
        if holds(&stats) {
            return stats;
        }
        assert!(now_ns() < deadline, "{what}: {stats:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn all_messages_through_a_port_arrive_and_are_counted() {
    let port = Port::alone(settings()).unwrap();
    let ((mut out, _near), (_far, mut incoming)) = pair(&port, 7);
    let taking = thread::spawn(move || {
        for expected in 0..20_u8 {
            let come = incoming.receive(watchdog(), &mut |number, message| {
                assert_eq!(number, u64::from(expected));
                assert!(message.len() == MESSAGE && message.iter().all(|b| *b == expected));
            });
            assert_eq!(come, Ok(true));
        }
    });
    for number in 0..20_u8 {
        out.send(MESSAGE, watchdog(), &mut |slot| slot.fill(number))
            .unwrap();
    }
    taking.join().unwrap();
    let stats = until("messages", &port, |s| s.transfers[0].sent.messages == 20);
    let transfer = &stats.transfers[0];
    assert_eq!(stats.transfers.len(), 1);
    assert_eq!(
        (transfer.priority, transfer.pid),
        (7, std::process::id()),
        "{transfer:?}"
    );
    assert_eq!(transfer.sent.bytes, 20 * MESSAGE as u64);
    assert_eq!(transfer.sent.chunks, 20 * (MESSAGE / CHUNK) as u64);
    // Chunks whose lease ended before they were written are granted again.
    assert!(stats.granted >= transfer.sent.chunks);
}

#[test]
fn both_ends_record_every_step_of_a_message() {
    const CHUNKS: u64 = (MESSAGE / CHUNK) as u64;
    let port = Port::alone(settings()).unwrap();
    let (receiver, address) = receiver();
    let sender = Tcp::connect(address, key()).in_clear().on_port(&port, 1);
    let ((mut out, _near), (_far, mut incoming)) = connect(&receiver, sender);
    for _ in 0..5 {
        out.send(MESSAGE, watchdog(), &mut |_| ()).unwrap();
        assert_eq!(incoming.receive(watchdog(), &mut |_, _| ()), Ok(true));
    }
    let deadline = watchdog().unwrap();
    loop {
        let links = survey().links.into_iter();
        let links = links.filter(|found| found.status.name == address.to_string());
        let [mut sent, mut received] = [[0; 6]; 2];
        for link in links {
            let counts = link.status.steps.histogram.map(|h| h.iter().sum::<u64>());
            *(if link.status.listens {
                &mut received
            } else {
                &mut sent
            }) = counts;
        }
        // Push, post, hear, read, take, wire. A writer that must wait asks once more. One report may
        // tell of several chunks, and a writer that looks first needs none. The receiver sends no
        // message.
        let is_sender = sent[0] == 5 && sent[1] >= 5 * CHUNKS && sent[5] == 5 * CHUNKS;
        let has_heard = sent[2] <= sent[5] && sent[3..5] == [0, 0];
        if is_sender && has_heard && received == [0, 0, 0, 5 * CHUNKS, 5, 0] {
            break;
        }
        assert!(now_ns() < deadline, "{sent:?} {received:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_link_that_ends_is_removed_from_its_port() {
    let port = Port::alone(settings()).unwrap();
    for _ in 0..3 {
        let (receiver, address) = receiver();
        let sender = Tcp::connect(address, key()).in_clear().on_port(&port, 1);
        let (mut near, mut far) = connect(&receiver, sender);
        assert_eq!(port.stats().transfers[0].sent, Sent::default());
        near.0.send_copy(&[1; 10]).unwrap();
        assert_eq!(far.1.receive(watchdog(), &mut |_, _| ()), Ok(true));
        until("counts", &port, |s| s.transfers[0].sent.messages == 1);
        let away = thread::spawn(move || drop(far));
        drop(near);
        away.join().unwrap();
    }
    until("no transfers", &port, |s| s.transfers.is_empty());
}

#[test]
fn more_urgent_messages_go_between_two_chunks_of_a_less_urgent_one() {
    let port = Port::alone(settings()).unwrap();
    let ((mut low, _a), (_b, mut low_in)) = pair(&port, 1);
    let ((mut high, _c), (_d, mut high_in)) = pair(&port, 2);
    let lows = thread::spawn(move || {
        for _ in 0..200 {
            assert_eq!(low_in.receive(watchdog(), &mut |_, _| ()), Ok(true));
        }
    });
    let highs = thread::spawn(move || {
        for _ in 0..200 {
            assert_eq!(high_in.receive(watchdog(), &mut |_, _| ()), Ok(true));
        }
    });
    let sending = thread::spawn(move || {
        for _ in 0..200 {
            low.send(MESSAGE, watchdog(), &mut |_| ()).unwrap();
        }
        low
    });
    // Now a message can be preempted.
    until("the first chunk", &port, |s| {
        s.transfers
            .iter()
            .any(|t| t.priority == 1 && t.sent.chunks > 0)
    });
    for _ in 0..200 {
        high.send(MESSAGE, watchdog(), &mut |_| ()).unwrap();
    }
    lows.join().unwrap();
    highs.join().unwrap();
    let _low = sending.join().unwrap();
    let stats = port.stats();
    let by = |priority| stats.transfers.iter().find(|t| t.priority == priority);
    assert!(by(1).unwrap().preemptions > 0, "{stats:?}");
    assert_eq!(by(2).unwrap().preemptions, 0, "{stats:?}");
}

/// Uses leases of 10 s, so that a link that misses an acknowledgement is late by seconds.
#[test]
fn links_that_share_the_window_wake_up_when_it_has_room() {
    let long = Duration::from_secs(10);
    let port = Port::alone(settings().slack(long).patience(long)).unwrap();
    const MESSAGES: usize = 60;
    let pairs = [1, 1, 2].map(|priority| pair(&port, priority));
    let threads: Vec<_> = pairs
        .into_iter()
        .flat_map(|((mut out, near), (far, mut incoming))| {
            let taking = thread::spawn(move || {
                for _ in 0..MESSAGES {
                    assert_eq!(incoming.receive(watchdog(), &mut |_, _| ()), Ok(true));
                }
                (far, incoming)
            });
            let sending = thread::spawn(move || {
                for _ in 0..MESSAGES {
                    out.send(MESSAGE, watchdog(), &mut |_| ()).unwrap();
                }
                (out, near)
            });
            [taking, sending]
        })
        .collect();
    // Links that have ended are not counted.
    let _kept: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let stats = port.stats();
    assert_eq!(stats.transfers.len(), 3);
    assert!(
        stats.transfers.iter().all(|t| t.wait_ns < 5_000_000_000),
        "{stats:?}"
    );
}

#[test]
fn a_port_refuses_settings_that_are_impossible_or_differ_from_its_own() {
    let name = fresh_name();
    let port = Port::shared(&name, settings()).unwrap();
    assert!(Port::shared(&name, settings()).is_ok());
    let other = Port::shared(&name, settings().window_chunks(3));
    assert!(matches!(other, Err(PortError::Differs { .. })), "{other:?}");
    assert_eq!(Port::look(&name).unwrap().settings, port.settings());
    drop(port);
    assert!(matches!(Port::look(&name), Err(PortError::NotThere { .. })));
    for impossible in [
        settings().chunk_bytes(0),
        settings().window_chunks(0),
        settings().window_chunks(17),
        Settings::of_rate(0),
    ] {
        let refused = Port::alone(impossible);
        assert!(matches!(refused, Err(PortError::Settings(_))));
    }
    assert!(Settings::of_interface("no such").is_err());
    assert!(Settings::of_interface("../net").is_err());
}

#[test]
fn a_full_window_is_sent_within_the_allowed_blocking_time() {
    for rate in [100_000_000, 1_000_000_000, 10_000_000_000] {
        for us in [300, 1000, 3000] {
            let settings = Settings::of_rate(rate).blocking(Duration::from_micros(us));
            let window = settings.model(1500, true, 0).window_bytes as u64;
            let is_least = settings.chunk() == 1 << 10;
            assert!(
                is_least || window * 8 * 1_000_000 <= us * rate,
                "{settings}"
            );
            let is_most = settings.chunk() > 1 << 19 || is_least;
            let used = settings.window_bytes() * 10 * 8 * 1_000_000;
            assert!(is_most || used >= us * rate * 6, "{settings}");
        }
    }
}

/// Checks an assumption of the latency bound on real connections: while the most urgent chunk
/// waits, each other transfer sends at most the chunk that it had begun.
#[test]
fn an_urgent_transfer_waits_for_at_most_one_chunk_of_each_other_transfer() {
    // No lease ends and no transfer is passed over, however slow the machine is.
    let long = Duration::from_secs(10);
    let port = Port::alone(settings().slack(long).patience(long)).unwrap();
    let ((mut urgent, _a), (_b, mut urgent_in)) = pair(&port, 9);
    let lows: Vec<_> = [1, 2, 2].map(|priority| pair(&port, priority)).into();
    let ends = AtomicU64::new(0);
    thread::scope(|scope| {
        for ((mut out, _near), (_far, mut incoming)) in lows {
            let ends = &ends;
            scope.spawn(move || {
                while ends.load(Ordering::Relaxed) == 0 {
                    out.send(MESSAGE, watchdog(), &mut |_| ()).unwrap();
                }
                drop((out, _near));
            });
            scope.spawn(move || {
                while let Ok(true) = incoming.receive(watchdog(), &mut |_, _| ()) {}
                drop(_far);
            });
        }
        let mut seed = 7_u64;
        for _ in 0..400 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let bytes = 1 + (seed >> 33) as usize % (3 * CHUNK);
            urgent.send(bytes, watchdog(), &mut |_| ()).unwrap();
            let mut take = |_, message: &[u8]| assert_eq!(message.len(), bytes);
            assert_eq!(urgent_in.receive(watchdog(), &mut take), Ok(true));
        }
        let stats = until("counts", &port, |s| by(s, 9).sent.messages == 400);
        ends.store(1, Ordering::Relaxed);
        assert!(by(&stats, 9).most_before <= 3, "{stats:?}");
        assert!(
            stats
                .transfers
                .iter()
                .all(|t| t.expired + t.passed_over == 0),
            "{stats:?}"
        );
    });
}

#[test]
fn the_latency_model_has_the_window_of_the_port() {
    for (mtu, sealed) in [(1500, true), (1500, false), (9000, false), (576, true)] {
        let port = settings();
        let model = port.model(mtu, sealed, 0);
        let full = CHUNK + model.overhead_bytes;
        assert!(model.window_bytes >= 2 * full, "{model:?}");
        // Smaller chunks have more heads, which the window counts.
        assert!(model.window_bytes <= 2 * full + full / 5, "{model:?}");
    }
    let model = settings().model(1500, true, 0);
    assert!(model.window_bytes as u64 <= settings().window_bytes());
}

fn by(stats: &PortStats, priority: u8) -> &TransferStats {
    let mut found = stats.transfers.iter().filter(|t| t.priority == priority);
    found.next().expect("the transfer is there")
}

struct Other {
    process: Child,
    _says: BufReader<ChildStdout>,
}

impl Other {
    fn start(port: &str, to: SocketAddr, priority: u8) -> Other {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "the_child_process_does_nothing_unless_a_test_starts_it",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, format!("{port} {to} {priority}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut says = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("sending") {
            line.clear();
            assert_ne!(says.read_line(&mut line).unwrap(), 0, "it has ended");
        }
        Other {
            process,
            _says: says,
        }
    }

    fn signal(&self, signal: i32) {
        let pid = self.process.id() as libc::pid_t;
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let status = self.process.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}");
    }
}

#[test]
fn the_child_process_does_nothing_unless_a_test_starts_it() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // The process does not outlive the test.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let words: Vec<_> = role.split(' ').collect();
    let port = Port::shared(words[0], settings()).unwrap();
    let tcp = Tcp::connect(words[1].parse().unwrap(), key())
        .in_clear()
        .on_port(&port, words[2].parse().unwrap());
    let (mut out, _incoming) = tcp.initialize(sizes(), Memory::Allot, watchdog()).unwrap();
    out.send(MESSAGE, None, &mut |_| ()).unwrap();
    println!("sending");
    loop {
        out.send(MESSAGE, None, &mut |_| ()).unwrap();
    }
}

fn taken() -> SocketAddr {
    let (receiver, address) = receiver();
    thread::spawn(move || {
        let (_out, mut incoming) = receiver
            .initialize(sizes(), Memory::Allot, watchdog())
            .unwrap();
        while let Ok(true) = incoming.receive(None, &mut |_, _| ()) {}
    });
    address
}

fn less_urgent_sender_goes_on_beside_a_process_that(stops: bool) {
    let name = fresh_name();
    let port = Port::shared(&name, settings()).unwrap();
    let ((mut out, _near), (_far, mut incoming)) = pair(&port, 1);
    thread::spawn(move || while let Ok(true) = incoming.receive(None, &mut |_, _| ()) {});
    let mut passed = 0;
    for round in 0..12_u64 {
        let other = Other::start(&name, taken(), 200);
        // The signal comes at any point, not at an instant that the test chooses.
        thread::sleep(Duration::from_micros(round * 7919 % 3000));
        other.signal(if stops { libc::SIGSTOP } else { libc::SIGKILL });
        for _ in 0..8 {
            out.send(MESSAGE, watchdog(), &mut |_| ()).unwrap();
        }
        let sent = |s: &PortStats| {
            s.transfers
                .iter()
                .find(|t| t.priority == 1)
                .map(|t| t.sent.messages)
        };
        let want = Some((round + 1) * 8);
        let stats = until("it goes on", &port, |s| sent(s) == want);
        if stops {
            let theirs = stats.transfers.iter().find(|t| t.priority == 200).unwrap();
            passed += theirs.passed_over + theirs.expired;
            // The stopped process goes on where it was.
            let before = theirs.sent.messages;
            other.signal(libc::SIGCONT);
            until("it goes on too", &port, |s| {
                s.transfers
                    .iter()
                    .any(|t| t.priority == 200 && t.sent.messages > before)
            });
        }
        drop(other);
        until("its seat is free", &port, |s| s.transfers.len() == 1);
    }
    println!("stopped while the others waited: {passed} times");
}

#[test]
fn a_killed_process_does_not_block_the_port() {
    less_urgent_sender_goes_on_beside_a_process_that(false);
}

#[test]
fn a_stopped_process_does_not_block_the_port() {
    less_urgent_sender_goes_on_beside_a_process_that(true);
}
