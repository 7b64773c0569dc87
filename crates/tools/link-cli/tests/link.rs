//! Tests `onbeat link` as a user runs it: keys, bounds and benches, with real processes.

use onbeat_link::interface::{Backend, Memory, Sizes};
use onbeat_link::port::{Port, Settings};
use onbeat_link::{Key, Tcp};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

fn command(dir: &Path, words: &[&str]) -> Command {
    let mut command =
        Command::new(Path::new(env!("CARGO_BIN_EXE_onbeat-link")).with_file_name("onbeat"));
    command.arg("link").args(words).current_dir(dir);
    command.env_remove("COLUMNS").stdin(Stdio::null());
    command
}

fn run(dir: &Path, words: &[&str], code: i32) -> (String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command(dir, words).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let (out, err) = (text(stdout), text(stderr));
    assert_eq!(status.code(), Some(code), "{words:?}: {out}{err}");
    assert!(!err.contains("panicked"), "{err}");
    (out, err)
}

fn refused(dir: &Path, words: &[&str], code: i32, says: &[&str]) {
    let (_, err) = run(dir, words, code);
    assert!(code == 2 || err.lines().count() == 1, "{err}");
    for word in says {
        assert!(err.contains(word), "{word}: {err}");
    }
}

#[test]
fn every_help_text_fits_into_a_hundred_columns() {
    let dir = TempDir::new().expect("a directory");
    for words in [
        &["--help"][..],
        &["key", "--help"],
        &["bound", "--help"],
        &["bench", "--help"],
    ] {
        let (text, _) = run(dir.path(), words, 0);
        assert!(
            text.contains("Examples:") && text.contains("Exit codes:"),
            "{words:?}: {text}"
        );
        let long = text.lines().find(|l| l.chars().count() > 100);
        assert_eq!(long, None, "{words:?}");
    }
}

#[test]
fn a_key_file_is_private_and_never_overwritten() {
    let dir = TempDir::new().expect("a directory");
    run(dir.path(), &["key", "one.key"], 0);
    let path = dir.path().join("one.key");
    let (first, mode) = (
        fs::read(&path).expect("a file"),
        fs::metadata(&path).expect("a file"),
    );
    assert_eq!(
        (first.len(), mode.permissions().mode() & 0o777),
        (65, 0o600)
    );
    refused(dir.path(), &["key", "one.key"], 1, &["one.key", "exists"]);
    assert_eq!(fs::read(&path).expect("a file"), first);
    run(dir.path(), &["key", "two.key"], 0);
    assert_ne!(fs::read(dir.path().join("two.key")).expect("a file"), first);
}

/// Compares the bound with a value computed by hand. 1500 bytes without encryption are one chunk of
/// 1500 + 24 bytes. The chunk takes 2 + 1 segments, each with 110 more bytes.
#[test]
fn a_bound_equals_the_value_computed_by_hand() {
    let dir = TempDir::new().expect("a directory");
    let port = [
        "bound",
        "--rate",
        "1M",
        "--chunk",
        "1500",
        "--in-clear",
        "--wake",
        "0ms",
        "--json",
        "--stall",
        "0us",
    ];
    let alone = [&port[..], &["--channel", "a=1,1500,1s"]].concat();
    let wire = 1500 + 24 + 3 * 110;
    let bound = |text: &str, at: usize| {
        let value: Value = serde_json::from_str(text).expect("JSON");
        value["channels"][at]["bound_ns"].as_u64()
    };
    let (text, _) = run(dir.path(), &alone, 0);
    assert_eq!(bound(&text, 0), Some(wire * 8_000));

    // A less urgent channel of ten chunks delays the urgent one by the window: two chunks.
    let two = [&alone[..], &["--channel", "b=0,15K,1s", "--way", "1ms"]].concat();
    let (text, _) = run(dir.path(), &two, 0);
    // Its chunk gets its place in the window once the acknowledgement is back, after 2 ms.
    assert_eq!(bound(&text, 0), Some(3 * wire * 8_000 + 3_000_000));
    assert!(text.contains("assumptions"), "{text}");

    // Each of the parts is shown: stalls delay the channel by as much.
    let stalled = two.iter().map(|word| match *word {
        "0us" => "7ms",
        word => word,
    });
    let stalled: Vec<&str> = stalled.collect();
    let (text, _) = run(dir.path(), &stalled, 0);
    assert_eq!(bound(&text, 0), Some(3 * wire * 8_000 + 10_000_000));
    let shown: Vec<&str> = stalled
        .into_iter()
        .filter(|word| *word != "--json")
        .collect();
    let (text, _) = run(dir.path(), &shown, 0);
    let row = text
        .lines()
        .find(|line| line.starts_with("a "))
        .expect("a row");
    assert!(row.contains(" 7 ms"), "{text}");
}

fn on_a_slow_wire() -> bool {
    let run = |command: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        let done = Command::new(words[0]).args(&words[1..]).output();
        done.is_ok_and(|output| output.status.success())
    };
    // SAFETY: changes only this thread's network namespace.
    let is_alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    is_alone
        && run("ip link set lo mtu 1500 up")
        && run("tc qdisc add dev lo root tbf rate 100mbit burst 16kb latency 500ms")
}

fn measured(port: &Port, seen: impl FnOnce()) {
    let key = || Key::from_bytes([5; 32]);
    let deadline = Some(onbeat_link::status::now_ns() + 120_000_000_000);
    let sizes = Sizes {
        credits: 4,
        message_bytes: 256 << 10,
        value_bytes: 0,
    };
    let listening =
        Tcp::listen("127.0.0.1:0".parse().expect("an address"), key()).expect("listens");
    // The link is not encrypted, since a debug build encrypts more slowly than the wire carries. No
    // transfer would wait for the port then.
    let sender = Tcp::connect(listening.address(), key()).in_clear();
    let sender = sender.on_port(port, 1);
    let listening = listening.chunk_bytes(port.settings().chunk()).in_clear();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let halves = listening.initialize(sizes, Memory::Allot, deadline);
            let (_out, mut incoming) = halves.expect("a peer");
            while let Ok(true) = incoming.receive(deadline, &mut |_, _| {}) {}
        });
        let halves = sender.initialize(sizes, Memory::Allot, deadline);
        let (mut out, _incoming) = halves.expect("a peer");
        let is_slow = |rate: Option<u64>| rate.is_some_and(|rate| rate <= 100_000_000);
        while !is_slow(port.stats().sure_bits_per_second()) {
            out.send(256 << 10, deadline, &mut |_| {}).expect("sent");
        }
        seen();
    });
}

#[test]
fn a_bound_uses_the_rate_that_a_port_has_measured() {
    let dir = TempDir::new().expect("a directory");
    let name = format!("bound-{}", std::process::id());
    let bound = ["bound", "--port", &name, "--channel", "a=1,100K,1s"];
    refused(dir.path(), &bound, 1, &["no port", &name]);
    let port = Port::shared(&name, Settings::of_rate(400_000_000)).expect("a port");
    let longest = |words: &[&str]| {
        let (text, _) = run(dir.path(), &[words, &["--json"]].concat(), 0);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        value["channels"][0]["wire_ns"].as_u64().expect("a bound")
    };
    let given = ["bound", "--rate", "400M", "--channel", "a=1,100K,1s"];
    assert_eq!(longest(&bound), longest(&given));
    let (text, _) = run(dir.path(), &bound, 0);
    assert!(text.contains("has not measured a rate below"), "{text}");
    let other = [&bound[..], &["--rate", "2G"]].concat();
    refused(dir.path(), &other, 1, &["400000000", "2000000000", &name]);

    if !on_a_slow_wire() {
        eprintln!("skipped: no network namespace with a limit can be made (root, tc)");
        return;
    }
    measured(&port, || {
        let (text, _) = run(dir.path(), &bound, 0);
        let says = format!("port '{name}' has measured");
        assert!(
            text.contains(&says) && text.contains("given rate: 400 Mbit/s"),
            "{text}"
        );
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
        // The wire has a quarter of the given rate. A busy machine makes the measured rate lower, and a
        // port measures no rate below a sixteenth.
        let rate = || port.stats().sure_bits_per_second().expect("a rate");
        let (before, measured, after) = (rate(), longest(&bound), rate());
        let times = |rate: u64| longest(&given) as f64 * 4e8 / rate as f64;
        let (least, most) = (
            0.85 * times(before.max(after)),
            1.2 * times(before.min(after)),
        );
        assert!(before.max(after) <= 100_000_000, "{before} {after}");
        assert!(
            (least..most).contains(&(measured as f64)),
            "{measured} at {before} to {after} bits per second, given: {}",
            longest(&given)
        );
    });
}

#[test]
fn a_missed_deadline_an_overload_and_incast_are_reported() {
    let dir = TempDir::new().expect("a directory");
    let slow = ["bound", "--rate", "1M"];
    let missed = [&slow[..], &["--channel", "a=1,1500,1s,0ms,1ms"]].concat();
    assert!(run(dir.path(), &missed, 5).0.contains("MISSED"));
    let channels = ["--channel", "full=1,1M,1s", "--channel", "fits=2,1K,1s"];
    let (text, _) = run(dir.path(), &[&slow[..], &channels].concat(), 5);
    assert!(
        text.contains("full: no bound exists, because channels of priority 1 and above need"),
        "{text}"
    );
    assert!(
        text.contains("assumed: the sender's port is the bottleneck"),
        "{text}"
    );
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");

    let channel = |from: &str, to: &str| {
        format!(
            r#"{{"name": "{from}", "priority": 1, "bytes": 1000, "period": "1s", "from": "{from}", "to": "{to}"}}"#
        )
    };
    let file = |channels: &[String]| {
        let text = format!(r#"{{"rate": "1M", "channels": [{}]}}"#, channels.join(", "));
        fs::write(dir.path().join("c.json"), text).expect("written");
    };
    file(&[channel("a", "c"), channel("b", "c")]);
    refused(
        dir.path(),
        &["bound", "c.json"],
        1,
        &["'a' and 'b'", "'c' (incast)"],
    );
    // Two hosts that send to two other hosts have two ports, each as if it were alone.
    file(&[channel("a", "c"), channel("b", "d")]);
    let (both, _) = run(dir.path(), &["bound", "c.json", "--json"], 0);
    file(&[channel("a", "c")]);
    let (one, _) = run(dir.path(), &["bound", "c.json", "--json"], 0);
    let bounds = |text: &str| -> Vec<Value> {
        let value: Value = serde_json::from_str(text).expect("JSON");
        let channels = value["channels"].as_array().expect("a list").clone();
        channels.iter().map(|c| c["bound_ns"].clone()).collect()
    };
    assert_eq!(bounds(&both), [&bounds(&one)[..], &bounds(&one)].concat());
}

#[test]
fn impossible_channels_are_refused_in_one_line() {
    let dir = TempDir::new().expect("a directory");
    for text in [
        "",
        "{",
        r#"{"rate": "fast", "channels": []}"#,
        r#"{"rate": "1G", "channel": []}"#,
    ] {
        fs::write(dir.path().join("c.json"), text).expect("written");
        refused(dir.path(), &["bound", "c.json"], 1, &["c.json"]);
    }
    fs::write(
        dir.path().join("c.json"),
        r#"{"rate": "1G", "channels": []}"#,
    )
    .expect("written");
    refused(dir.path(), &["bound", "c.json"], 2, &["no channel"]);
    refused(dir.path(), &["bound"], 2, &[]);
    for channel in ["a", "a=1", "a=300,1K,1s", "=1,1K,1s", "a=1,1K,0parsec"] {
        refused(
            dir.path(),
            &["bound", "--rate", "1G", "--channel", channel],
            2,
            &[],
        );
    }
    // A period of 0 has no bound, and the error names its channel.
    let (text, _) = run(
        dir.path(),
        &["bound", "--rate", "1G", "--channel", "a=1,1K,0s"],
        5,
    );
    assert!(text.contains("Give values above 0"), "{text}");
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listening(dir: &Path, words: &[&str]) -> Ended {
    let mut command = command(dir, words);
    let mut child = Ended(command.stdout(Stdio::piped()).spawn().expect("it runs"));
    let mut line = String::new();
    let out = child.0.stdout.take().expect("a pipe");
    let mut out = BufReader::new(out);
    out.read_line(&mut line).expect("a line");
    assert!(line.starts_with("Listening at"), "{line}");
    // The process must be able to print more.
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    child
}

/// Returns an address that nobody else uses until the test opens it. The port is below 32768,
/// because the kernel chooses ports from there on, and it differs between runs of these tests.
fn free_address() -> std::net::SocketAddr {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed);
        let address = ([127, 0, 0, 1], 16_384 + (next % 16_384) as u16).into();
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

#[test]
fn a_bench_runs_between_two_processes_sealed_in_clear_and_in_shared_memory() {
    let dir = TempDir::new().expect("a directory");
    run(dir.path(), &["key", "link.key"], 0);
    let tcp = free_address().to_string();
    let shm = format!("shm:test-{}", std::process::id());
    let how = [
        "--sizes", "1K,100K", "--runs", "20", "--time", "60s", "--json",
    ];
    for (address, key, series) in [(&tcp, &["--key", "link.key"][..], 2), (&shm, &[], 1)] {
        let listen = ["bench", "--listen", address, "--once"];
        let mut listener = listening(dir.path(), &[&listen, key].concat());
        let connect = ["bench", "--connect", address];
        let (text, _) = run(dir.path(), &[&connect, key, &how].concat(), 0);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let found = value["series"].as_array().expect("a list");
        assert_eq!(found.len(), series, "{text}");
        for sizes in found.iter().map(|s| s["sizes"].as_array().expect("a list")) {
            let bytes: Vec<_> = sizes.iter().map(|s| s["bytes"].as_u64()).collect();
            assert_eq!(bytes, [Some(1 << 10), Some(100 << 10)]);
            for size in sizes {
                assert_eq!(
                    (&size["round_trips"], &size["messages"]),
                    (&20.into(), &20.into())
                );
                let ns = |name: &str| size[name].as_u64().expect(name);
                assert!(ns("round_trip_p50_ns") <= ns("round_trip_max_ns"), "{size}");
                assert!(
                    size["round_trip_p99_ns"].is_null(),
                    "20 runs cannot tell it: {size}"
                );
                assert!(size["bytes_per_second"].as_f64() > Some(0.0), "{size}");
            }
        }
        let status = listener.0.wait().expect("it ends");
        assert!(status.success(), "the listening end: {status}");
    }
    refused(
        dir.path(),
        &["bench", "--connect", &tcp],
        2,
        &["--key", "onbeat link key"],
    );
    refused(
        dir.path(),
        &["bench", "--connect", "nowhere"],
        1,
        &["'nowhere'", "HOST:PORT"],
    );
    refused(dir.path(), &["bench"], 2, &["--listen"]);
}

#[test]
fn a_wrong_key_is_refused_with_the_reason() {
    let dir = TempDir::new().expect("a directory");
    for name in ["a.key", "b.key"] {
        run(dir.path(), &["key", name], 0);
    }
    let address = free_address().to_string();
    let _listener = listening(
        dir.path(),
        &["bench", "--listen", &address, "--key", "a.key"],
    );
    let connect = ["bench", "--connect", &address, "--key", "b.key"];
    refused(dir.path(), &connect, 1, &[&address, "the keys differ"]);
}
