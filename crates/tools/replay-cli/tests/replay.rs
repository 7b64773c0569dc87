//! Tests `onbeat replay` between two hosts as a user runs it: which options each side accepts, and
//! how each side ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
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
fn options_of_the_other_side_are_refused_with_a_hint_to_that_side() {
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
            "both sides",
        ),
        (
            &["replay", "link:127.0.0.1:0", "--key", "key", "--loop", "2"],
            "comes once",
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
        text.contains("no address of no.such.host.invalid"),
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
