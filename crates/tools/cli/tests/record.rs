//! `onbeat record` on the real kernel and real ROS 2: losses, kills, signals, privileges.
//!
//! A harness of its own, so that skipped tests are listed by name and reason.

use onbeat_trace::{Event, EventKind, Reader, State};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Publishes COUNT messages in one callback, as fast as it can, and says how many.
const BURST: &str = "
import sys, rclpy
from rclpy.node import Node
from std_msgs.msg import UInt64
rclpy.init()
node = Node('burst')
publisher = node.create_publisher(UInt64, 'burst', 10)
count, done = int(sys.argv[1]), []
def fire():
    for i in range(count):
        publisher.publish(UInt64(data=i))
    timer.cancel()
    done.append(count)
timer = node.create_timer(0.2, fire)
while not done:
    rclpy.spin_once(node)
print('published', count, flush=True)
";

/// Publishes ten times a second for SECONDS.
const TALKER: &str = "
import sys, time, rclpy
from rclpy.node import Node
from std_msgs.msg import UInt64
rclpy.init()
node = Node('talker')
publisher = node.create_publisher(UInt64, 'chatter', 10)
sent = []
def fire():
    publisher.publish(UInt64(data=len(sent)))
    sent.append(1)
node.create_timer(0.1, fire)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    rclpy.spin_once(node, timeout_sec=0.2)
print('published', len(sent), flush=True)
";

struct Stand {
    python: PathBuf,
    dir: tempfile::TempDir,
}

impl Stand {
    fn onbeat(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    fn script(&self, text: &str, args: &[&str]) -> Vec<String> {
        let python = self.python.display().to_string();
        [&python, "-c", text]
            .into_iter()
            .chain(args.iter().copied())
            .map(str::to_owned)
            .collect()
    }

    /// Records a script; what it printed, and the trace.
    fn record(&self, trace: &str, options: &[&str], script: &[String]) -> (Output, PathBuf) {
        let path = self.dir.path().join(trace);
        let output = self
            .onbeat(&["record", "-o", trace])
            .args(options)
            .arg("--")
            .args(script)
            .output()
            .expect("onbeat starts");
        assert!(
            output.status.success(),
            "onbeat record: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        (output, path)
    }

    fn spawn(&self, trace: &str, script: &[String]) -> (Child, PathBuf) {
        let mut command = self.onbeat(&["record", "-o", trace]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if !script.is_empty() {
            command.arg("--").args(script);
        }
        (
            command.spawn().expect("onbeat starts"),
            self.dir.path().join(trace),
        )
    }
}

fn events(trace: &Path) -> Vec<Event> {
    Reader::open(trace)
        .expect("the trace opens")
        .events()
        .collect()
}

fn published(output: &Output) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("published "))
        .expect("the script says what it published");
    line.trim().parse().expect("a number")
}

/// Publications on one topic.
fn publications(events: &[Event], topic: &str) -> u64 {
    let mut handles = std::collections::HashSet::new();
    let mut count = 0;
    for event in events {
        match &event.kind {
            EventKind::PublisherInit { rmw, topic: t, .. } if &**t == topic => {
                handles.insert((event.pid, *rmw));
            }
            EventKind::Publish { rmw, .. } if handles.contains(&(event.pid, *rmw)) => count += 1,
            _ => {}
        }
    }
    count
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: plain system call on a child that has not been waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Waits, but not for ever: a test that hangs is a test that failed.
fn wait_within(child: &mut Child, limit: Duration) -> std::process::ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            return status;
        }
        if begin.elapsed() > limit {
            let _ = child.kill();
            panic!("still running after {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes whose command line holds the word `mark`, with their state letter; the recorder,
/// whose command line holds it too, left out.
fn processes_with(mark: &str) -> Vec<(u32, char)> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries
        .flatten()
        .filter_map(|e| {
            let pid: u32 = e.file_name().to_str()?.parse().ok()?;
            let command = std::fs::read(e.path().join("cmdline")).ok()?;
            let words: Vec<_> = command.split(|&b| b == 0).collect();
            if !words.contains(&mark.as_bytes()) || words.contains(&&b"record"[..]) {
                return None;
            }
            let stat = std::fs::read_to_string(e.path().join("stat")).ok()?;
            Some((pid, stat[stat.rfind(')')? + 2..].chars().next()?))
        })
        .collect()
}

fn every_publication_is_in_the_trace_when_nothing_is_lost(stand: &Stand) {
    let (output, trace) = stand.record("whole", &[], &stand.script(BURST, &["3000"]));
    let events = events(&trace);
    assert_eq!(publications(&events, "/burst"), published(&output));
    assert!(!events
        .iter()
        .any(|e| matches!(e.kind, EventKind::Lost { .. })));
    let reader = Reader::open(&trace).unwrap();
    assert_eq!(reader.manifest().state, State::Complete);
    let process = &reader.manifest().processes[0];
    assert_eq!(
        (process.distribution.as_str(), process.late),
        ("kilted", false)
    );
    assert_eq!(process.nodes, ["/burst"]);
}

fn a_far_too_small_buffer_loses_exactly_what_it_counts(stand: &Stand) {
    let count = |events: &[Event]| {
        events
            .iter()
            .filter(|e| matches!(e.kind, EventKind::Publish { .. }))
            .count() as u64
    };
    // What the process publishes besides the burst (parameter events at its start).
    let (_, whole) = stand.record("none", &[], &stand.script(BURST, &["0"]));
    let besides = count(&events(&whole));
    let (output, trace) = stand.record(
        "small",
        &["--buffer", "4K"],
        &stand.script(BURST, &["20000"]),
    );
    let events = events(&trace);
    let said: u64 = events
        .iter()
        .filter_map(|e| match &e.kind {
            EventKind::Lost { probe, count } if &**probe == "publish" => Some(*count),
            _ => None,
        })
        .sum();
    assert!(said > 0, "a buffer of 4 KiB held 20000 publications");
    assert_eq!(count(&events) + said, published(&output) + besides);
    let manifest: u64 = Reader::open(&trace).unwrap().manifest().lost["publish"]
        .values()
        .sum();
    assert_eq!(manifest, said, "the manifest counts what the events count");
}

fn a_killed_recorder_leaves_a_readable_trace_and_a_running_command(stand: &Stand) {
    // From before the command runs, through the moments in which its libraries are probed, to
    // the middle of the recording.
    for (round, ms) in [30u64, 120, 200, 280, 360, 440, 520, 700, 4500]
        .into_iter()
        .enumerate()
    {
        let mark = format!("7.{round}25");
        let (mut recorder, trace) =
            stand.spawn(&format!("killed{round}"), &stand.script(TALKER, &[&mark]));
        std::thread::sleep(Duration::from_millis(ms));
        signal(&recorder, libc::SIGKILL);
        // The kernel takes the probes out one by one.
        wait_within(&mut recorder, Duration::from_secs(60));
        let begin = Instant::now();
        loop {
            let stopped = processes_with(&mark).iter().any(|(_, state)| *state == 'T');
            if !stopped && begin.elapsed() > Duration::from_millis(500) {
                break;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "killed after {ms} ms: the command stands still"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        if trace.join("manifest.json").exists() {
            let mut reader = Reader::open(&trace).expect("what is there can be read");
            let n = reader.events().count();
            assert!(ms < 4000 || n > 100, "{n} events after {ms} ms");
            assert_eq!(reader.manifest().state, State::Recording);
            drop(reader);
            a_model_spans_its_events(stand, &trace);
        }
        for (pid, _) in processes_with(&mark) {
            // SAFETY: plain system call; ends the command.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
    }
}

/// The manifest of a killed recording is older than its events.
fn a_model_spans_its_events(stand: &Stand, trace: &Path) {
    let times: Vec<u64> = events(trace).iter().map(|e| e.time_ns).collect();
    let span = times.iter().max().unwrap_or(&0) - times.iter().min().unwrap_or(&0);
    let made = stand
        .onbeat(&["model", &trace.display().to_string(), "-o", "killed.json"])
        .output()
        .expect("onbeat starts");
    // 3: there is nothing in it yet.
    assert!(matches!(made.status.code(), Some(0 | 3)), "{made:?}");
    let text = std::fs::read(stand.dir.path().join("killed.json")).expect("a model");
    let model: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(model["runs"][0]["duration_ns"].as_u64(), Some(span));
}

/// What sudo does to a program: another environment, root's rights, and the user's ids in variables.
fn under_sudo_the_trace_and_the_command_are_the_users(stand: &Stand) {
    use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("not root: who runs it is the user already");
        return;
    }
    let here = stand.dir.path();
    std::fs::set_permissions(here, PermissionsExt::from_mode(0o755)).expect("a directory");
    // The shell stands for sudo: what it was started with is the user's, what it starts has little of it.
    let sudo = here.join("sudo");
    symlink("/bin/sh", &sudo).expect("a link");
    let onbeat = env!("CARGO_BIN_EXE_onbeat");
    let says = "id -u; id -G; echo $MARK; echo $HOME; sleep 1";
    let script = format!(
        "env -i PATH=/usr/bin:/bin SUDO_UID=65534 SUDO_GID=65534 SUDO_USER=nobody HOME=/root \
         {onbeat} record -o sudo-trace --segment 1M -- /bin/sh -c '{says}'; exit $?"
    );
    let output = Command::new(&sudo)
        .args(["-c", &script])
        .env("MARK", "the user's own")
        .env("HOME", "/home/nobody")
        .current_dir(here)
        .stdin(Stdio::null())
        .output()
        .expect("the shell starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let said: Vec<&str> = said.lines().collect();
    // There was no ROS 2 in it.
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(said.first(), Some(&"65534"), "{said:?}");
    let groups: Vec<&str> = said[1].split(' ').collect();
    assert!(!groups.contains(&"0"), "{said:?}");
    assert_eq!(said[2..], ["the user's own", "/home/nobody"]);
    let trace = here.join("sudo-trace");
    let reader = Reader::open(&trace).expect("a trace");
    assert_eq!(reader.manifest().state, State::Complete);
    for path in [&trace, &trace.join("manifest.json")] {
        let meta = std::fs::metadata(path).expect("it is there");
        assert_eq!(
            (meta.uid(), meta.gid()),
            (65534, 65534),
            "{}",
            path.display()
        );
    }
    let mode = std::fs::metadata(&trace).expect("it is there").mode();
    assert_eq!(mode & 0o022, 0, "nobody else may write there: {mode:o}");
}

fn two_recorders_at_once_see_the_same(stand: &Stand) {
    let (mut a, trace_a) = stand.spawn("both-a", &[]);
    let (mut b, trace_b) = stand.spawn("both-b", &[]);
    let begin = Instant::now();
    while !(trace_a.join("manifest.json").exists() && trace_b.join("manifest.json").exists()) {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "the recorders did not begin"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
    let script = stand.script(TALKER, &["2"]);
    let output = Command::new(&script[0])
        .args(&script[1..])
        .output()
        .expect("python starts");
    for recorder in [&mut a, &mut b] {
        signal(recorder, libc::SIGTERM);
        assert!(wait_within(recorder, Duration::from_secs(30)).success());
    }
    let [a, b] = [trace_a, trace_b].map(|t| publications(&events(&t), "/chatter"));
    assert_eq!(a, b);
    // The first process of an installation may publish while its libraries are being probed.
    assert!(a > 0 && a <= published(&output), "{a}");
}

fn signals_end_a_recording_properly(stand: &Stand) {
    for (name, number) in [("int", libc::SIGINT), ("term", libc::SIGTERM)] {
        let (mut recorder, trace) = stand.spawn(name, &stand.script(TALKER, &["60"]));
        std::thread::sleep(Duration::from_secs(5));
        signal(&recorder, number);
        wait_within(&mut recorder, Duration::from_secs(40));
        let reader = Reader::open(&trace).unwrap();
        assert_eq!(reader.manifest().state, State::Complete, "{name}");
        assert!(publications(&events(&trace), "/chatter") > 5, "{name}");
    }
}

fn who_may_not_record_is_told_why_in_one_line(_: &Stand) {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    // A copy that another user can reach.
    let place = tempfile::tempdir().expect("a directory");
    let copy = place.path().join("onbeat");
    std::fs::copy(env!("CARGO_BIN_EXE_onbeat"), &copy).expect("copy");
    for path in [place.path(), copy.as_path()] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("chmod");
    }
    let output = Command::new(&copy)
        .args(["record", "-o", "refused", "--", "true"])
        .current_dir(place.path())
        .uid(65534)
        .gid(65534)
        .output()
        .expect("onbeat starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("CAP_BPF") && said.contains("sudo") && said.contains("setcap"),
        "{said}"
    );
    assert!(!place.path().join("refused").exists());
}

fn wrong_words_are_told_in_one_line(stand: &Stand) {
    for (args, code, word) in [
        (&["record", "--pid", "4194303"][..], 2, "4194303"),
        (
            &["record", "-o", "nocommand", "--", "/no/such/program"],
            1,
            "/no/such/program",
        ),
        (
            &["record", "-o", "/proc/nowhere", "--duration", "1s"],
            1,
            "/proc/nowhere",
        ),
    ] {
        let output = stand.onbeat(args).output().expect("onbeat starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(
            said.contains(word) && said.trim_end().lines().count() == 1,
            "{said}"
        );
    }
}

fn the_commands_own_failure_comes_through(stand: &Stand) {
    let output = stand
        .onbeat(&["record", "-o", "fails", "--", "sh", "-c", "exit 7"])
        .output()
        .expect("onbeat starts");
    assert_eq!(output.status.code(), Some(7));
}

type Test = (&'static str, fn(&Stand));

macro_rules! tests {
    ($($name:ident),+ $(,)?) => { &[$((stringify!($name), $name as fn(&Stand))),+] };
}

fn main() {
    let tests: &[Test] = tests![
        every_publication_is_in_the_trace_when_nothing_is_lost,
        a_far_too_small_buffer_loses_exactly_what_it_counts,
        a_killed_recorder_leaves_a_readable_trace_and_a_running_command,
        under_sudo_the_trace_and_the_command_are_the_users,
        two_recorders_at_once_see_the_same,
        signals_end_a_recording_properly,
        who_may_not_record_is_told_why_in_one_line,
        wrong_words_are_told_in_one_line,
        the_commands_own_failure_comes_through,
    ];
    let filter: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let cache = std::env::var("ONBEAT_CACHE").unwrap_or_else(|_| {
        format!(
            "{}/.cache/onbeat",
            std::env::var("HOME").unwrap_or_default()
        )
    });
    let python = PathBuf::from(cache).join("ros-kilted/bin/python");
    let stand = Stand {
        python,
        dir: tempfile::tempdir().expect("a directory"),
    };
    let refusal = if stand.python.exists() {
        let probe = stand
            .onbeat(&["record", "-o", "probe", "--", "true"])
            .output()
            .expect("onbeat starts");
        (probe.status.code() == Some(4))
            .then(|| String::from_utf8_lossy(&probe.stderr).trim().to_owned())
    } else {
        Some("no ROS 2 environment: ./dev ros-env kilted makes it".to_owned())
    };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, test) in tests {
        if !filter.is_empty() && !filter.iter().any(|f| name.contains(f.as_str())) {
            continue;
        }
        if let Some(reason) = &refusal {
            println!("skipped {name}: {reason}");
            skipped += 1;
            continue;
        }
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&stand))) {
            Ok(()) => {
                println!("ok      {name}");
                passed += 1;
            }
            Err(_) => {
                println!("FAILED  {name}");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 {
        std::process::exit(1);
    }
}
