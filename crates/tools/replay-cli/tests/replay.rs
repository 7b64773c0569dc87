//! Tests `onbeat replay` between two hosts as a user runs it: which options each side accepts, and
//! how each side ends.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

fn onbeat(dir: &Path, words: &[&str]) -> Command {
    let mut command =
        Command::new(Path::new(env!("CARGO_BIN_EXE_onbeat-replay")).with_file_name("onbeat"));
    command.args(words).current_dir(dir).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(dir: &Path, words: &[&str]) -> (Option<i32>, String) {
    let out = onbeat(dir, words).output().expect("onbeat starts");
    let text = String::from_utf8(out.stderr).expect("UTF-8");
    (out.status.code(), text)
}

fn directory(frames: u32) -> TempDir {
    let dir = TempDir::new().expect("a directory");
    assert_eq!(said(dir.path(), &["link", "key", "key"]).0, Some(0));
    let line = |n: u32| {
        format!(
            "({}.{:03}000) can0 123#{n:016X}\n",
            1_700_000_000 + n / 1000,
            n % 1000
        )
    };
    let log: String = (0..frames).map(line).collect();
    fs::write(dir.path().join("can.log"), log).expect("written");
    dir
}

#[test]
fn a_program_controls_a_replay_over_its_socket() {
    let dir = directory(20_000);
    let device = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = format!("udp:{}", device.local_addr().expect("an address"));
    let words = [
        "replay",
        "can.log",
        "--to",
        &to,
        "--control",
        "socket",
        "--paused",
        "--json",
    ];
    let child = onbeat(dir.path(), &words).spawn().expect("onbeat starts");
    let path = dir.path().join("socket");
    let stream = loop {
        match UnixStream::connect(&path) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut stream = BufReader::new(stream);
    let mut ask = |order: &str| -> serde_json::Value {
        writeln!(stream.get_mut(), "{order}").expect("sent");
        let mut reply = String::new();
        stream.read_line(&mut reply).expect("a reply");
        let reply: serde_json::Value = serde_json::from_str(&reply).expect("JSON");
        assert_eq!(reply["ok"], true, "{order}: {reply}");
        reply["state"].clone()
    };
    while ask(r#"{"do": "state"}"#)["began"] == false {}
    assert_eq!(ask(r#"{"do": "step", "items": 2}"#)["paused"], true);
    while ask(r#"{"do": "state"}"#)["played"] != 2 {}
    ask(r#"{"do": "rate", "factor": 4}"#);
    ask(r#"{"do": "seek", "to_s": 19.9}"#);
    while ask(r#"{"do": "state"}"#)["seeks"] == true {}
    ask(r#"{"do": "step"}"#);
    while ask(r#"{"do": "state"}"#)["played"] != 3 {}
    let state = ask(r#"{"do": "continue"}"#);
    assert_eq!(
        (&state["rate"], &state["position_s"]),
        (&4.0.into(), &19.9.into())
    );
    let out = child.wait_with_output().expect("an end");
    assert_eq!(out.status.code(), Some(0));
    let played: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(played["items"]["played"], 2 + 100, "{played}");
    assert_eq!(played["items"]["lost"], 0);
    let mut frame = [0; 16];
    let mut number = || {
        device.recv(&mut frame).expect("a frame");
        u64::from_be_bytes(frame[8..].try_into().expect("eight bytes"))
    };
    assert_eq!(
        [number(), number(), number(), number()],
        [0, 1, 19_900, 19_901]
    );
    assert!(!path.exists());
}

#[test]
fn replay_options_for_the_other_end_of_a_link_are_refused_with_a_hint() {
    let dir = directory(1);
    let send = [
        "replay",
        "can.log",
        "--to",
        "link:127.0.0.1:1",
        "--key",
        "key",
    ];
    for words in [
        &["--rate", "2"][..],
        &["--answer", "/a=/b"],
        &["--spin", "1us"],
        &["--cpu", "0"],
        &["--priority", "7"],
        &["--memory", "1M"],
        &["--buffer", "1M"],
        &["--stall", "2s"],
        &["--unmeasured"],
        &["--max-late", "1ms"],
        &["--paused"],
        &["--delay", "1s"],
        &["--control", "socket"],
    ] {
        let (code, text) = said(dir.path(), &[&send[..], words].concat());
        assert_eq!(code, Some(2), "{words:?}: {text}");
        assert!(text.contains("receiving side"), "{words:?}: {text}");
    }
    for (words, what) in [
        (
            &[
                "replay",
                "can.log",
                "--key",
                "key",
                "--to",
                "udp:127.0.0.1:1",
            ][..],
            "--key",
        ),
        (
            &[
                "replay",
                "link:127.0.0.1:0",
                "--key",
                "key",
                "--to",
                "link:127.0.0.1:1",
            ],
            "are both links",
        ),
        (
            &["replay", "link:127.0.0.1:0", "--key", "key", "--loop", "2"],
            "can be read only once",
        ),
        (
            &[
                "replay",
                "can.log",
                "--to",
                "link:127.0.0.1:http",
                "--key",
                "key",
            ],
            "HOST:PORT",
        ),
    ] {
        let (code, text) = said(dir.path(), words);
        assert_eq!((code, text.lines().count()), (Some(2), 1), "{text}");
        assert!(text.contains(what), "{text}");
    }
    let unknown = [
        "replay",
        "can.log",
        "--to",
        "link:no.such.host.invalid:1",
        "--key",
        "key",
    ];
    let (code, text) = said(dir.path(), &unknown);
    assert_eq!((code, text.lines().count()), (Some(1), 1), "{text}");
    assert!(
        text.contains("cannot find an address of no.such.host.invalid"),
        "{text}"
    );
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn receiver(dir: &Path, rate: &str, socket: &UdpSocket) -> (Ended, String) {
    let to = format!("udp:{}", socket.local_addr().expect("an address"));
    let words = [
        "replay",
        "link:localhost:0",
        "--key",
        "key",
        "--to",
        &to,
        "--rate",
        rate,
        "--memory",
        "512K",
    ];
    let mut child = onbeat(dir, &words).spawn().expect("onbeat starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let line = lines.next().expect("a line").expect("text");
    let place = line.split(' ').find(|word| word.starts_with("link:"));
    let place = place.expect("where it waits").to_string();
    std::thread::spawn(move || lines.for_each(drop));
    (Ended(child), place)
}

#[test]
fn an_interrupted_sender_ends_with_exit_code_0() {
    // More than what may be in transit (4 MiB) and the buffer together.
    let dir = directory(400_000);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (_receiver, place) = receiver(dir.path(), "0.001", &socket);
    let send = [
        "replay", "can.log", "--to", &place, "--key", "key", "--json",
    ];
    let mut sender = Ended(onbeat(dir.path(), &send).spawn().expect("onbeat starts"));
    // The sender has begun once an item leaves the receiver. After that it waits for room.
    socket.recv(&mut [0; 64]).expect("an item");
    std::thread::sleep(Duration::from_secs(1));
    assert!(
        sender.0.try_wait().expect("ours").is_none(),
        "it does not wait"
    );
    // SAFETY: sends a signal to a child that has not been waited for.
    unsafe { libc::kill(sender.0.id() as i32, libc::SIGINT) };
    let status = sender.0.wait().expect("ours");
    let out = std::io::read_to_string(sender.0.stdout.take().expect("a pipe")).expect("text");
    assert_eq!(status.code(), Some(0), "{out}");
    let told: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let items = told["items"].as_u64().expect("a number");
    assert_eq!(told["stopped"], true);
    assert!((1..400_000).contains(&items), "{told}");
}

fn listed(dir: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let out = onbeat(dir, words).output().expect("onbeat starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (out.status.code(), text(out.stdout), text(out.stderr))
}

#[test]
fn a_recording_is_listed_with_its_streams_damage_and_steps_of_the_clock() {
    let dir = directory(100);
    let (code, table, _) = listed(dir.path(), &["info", "can.log"]);
    assert_eq!(code, Some(0));
    for wanted in [
        "can.log: candump log",
        "can0    CAN frames    100",
        "identifiers of can0: 123 (100)",
        "from 2023-11-14 22:13:20.000 UTC",
    ] {
        assert!(table.contains(wanted), "{wanted}: {table}");
    }
    assert!(!table.contains("damage"), "{table}");
    let log = "(0.0) can0 123#11\n(torn\n(1700000000.0) can0 123#22\n(1700000000.1) can0 007#33\n";
    fs::write(dir.path().join("odd.log"), log).expect("written");
    for words in [&["info", "odd.log"][..], &["replay", "odd.log", "--plan"]] {
        let (code, table, _) = listed(dir.path(), words);
        assert_eq!(code, Some(0));
        for wanted in [
            "steps by 19675 days",
            "--max-gap",
            "damage: lines",
            "line 2",
        ] {
            assert!(table.contains(wanted), "{words:?}: {wanted}: {table}");
        }
    }
    let (code, json, _) = listed(dir.path(), &["info", "odd.log", "can.log", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let counts = [0, 1].map(|at| found[at]["items"].as_u64());
    assert_eq!((code, counts), (Some(0), [Some(3), Some(100)]));
    let played = &[
        "replay",
        "odd.log",
        "--to",
        "udp:127.0.0.1:9",
        "--max-gap",
        "10ms",
        "--json",
    ];
    let (code, json, said) = listed(dir.path(), played);
    let found: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (code, found["items"]["played"].as_u64()),
        (Some(0), Some(3)),
        "{said}"
    );
    // The clock was set forward by two hours, and back by one.
    let log = "(1.0) can0 123#11\n(7201.0) can0 123#22\n(3601.0) can0 123#33\n";
    fs::write(dir.path().join("set.log"), log).expect("written");
    let words = [
        "replay",
        "set.log",
        "--to",
        "udp:127.0.0.1:9",
        "--rate",
        "1000000",
    ];
    let (code, _, said) = listed(dir.path(), &words);
    assert_eq!(code, Some(0), "{said}");
    for wanted in [
        "clock steps by 60 min after 1970-01-01 00:00:01",
        "up to 60 min earlier",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    fs::write(dir.path().join("damaged.log"), "(1.0) can0 044#2\n").expect("written");
    let (code, table, said) = listed(dir.path(), &["replay", "damaged.log", "--plan"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        table.contains("no items") && table.contains("line 1"),
        "{table}{said}"
    );
    let (code, json, _) = listed(dir.path(), &["replay", "damaged.log", "--plan", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let damage = found["recording"]["damage"].as_array().map(Vec::len);
    assert_eq!((code, damage), (Some(3), Some(1)));
    fs::write(dir.path().join("empty.log"), "  can0  123   [1]  11\n").expect("written");
    let (code, _, said) = listed(dir.path(), &["info", "empty.log"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("candump -l"), "{said}");
}
