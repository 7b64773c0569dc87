//! Tests the recorder on the real kernel with real ROS 2: losses, kills, signals, privileges.
//!
//! The test harness is our own, so that it lists skipped tests with a reason. Recorders that are
//! killed or signalled are processes of their own: this program, called with `record`.

use onbeat_record::{record, RecordOptions, Target};
use onbeat_trace::{Event, EventKind, Reader, State};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

macro_rules! tests {
    ($($name:ident),+ $(,)?) => { &[$((stringify!($name), $name as fn(&Harness))),+] };
}

#[path = "recorder/alive.rs"]
mod alive;
#[path = "recorder/limits.rs"]
mod limits;
#[path = "recorder/lineage.rs"]
mod lineage;
#[path = "recorder/sudo.rs"]
mod sudo;
#[path = "recorder/suspended.rs"]
mod suspended;
#[path = "recorder/threads.rs"]
mod threads;

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

/// A script that publishes, then names and uses far more endpoints than the recorder remembers, and
/// publishes again.
const CROWD: &str = "
import ctypes, time, rclpy
from rclpy.node import Node
from std_msgs.msg import UInt64
rclpy.init()
node = Node('crowded')
publisher = node.create_publisher(UInt64, 'crowded', 10)
sent = []
def publish():
    for i in range(10):
        publisher.publish(UInt64(data=i))
        sent.append(i)
publish()
name = ctypes.CDLL('libtracetools.so').ros_trace_rcl_publisher_init
handle = ctypes.c_void_p
name.argtypes = [handle, handle, handle, ctypes.c_char_p, ctypes.c_size_t]
begin = time.monotonic()
for i in range(300000):
    # Twice: what is used again stays longer than what is new.
    name(1, 1, 0x1000 + 8 * i, b'/none', 1)
    name(1, 1, 0x1000 + 8 * i, b'/none', 1)
use = ctypes.CDLL('libtracetools.so').ros_trace_rmw_publish
use.argtypes = [handle, handle, ctypes.c_int64]
for i in range(4096):
    # The last ones, at all addresses that a place among those found last can stand for.
    use(0x1000 + 16 * (149999 - i), 1, 0)
# Until the recorder has room for events again. Beside other tests it needs longer than the calls took.
time.sleep(1.5 + 2 * (time.monotonic() - begin))
for i in range(3):
    publish()
    time.sleep(0.7)
print('published', len(sent), flush=True)
";

/// A script that publishes alternately at addresses that differ only in a few bits, and prints the
/// addresses.
///
/// Every other address is a publisher of the application. The remaining addresses belong to the
/// middleware. The script also sends requests at the last address, which is not a client.
const ALIKE: &str = "
import ctypes, mmap, rclpy
rclpy.init()
library = ctypes.CDLL('libtracetools.so')
name, publish, send = library.ros_trace_rcl_publisher_init, library.ros_trace_rmw_publish, library.ros_trace_rmw_send_request
handle = ctypes.c_void_p
name.argtypes = [handle, handle, handle, ctypes.c_char_p, ctypes.c_size_t]
publish.argtypes = send.argtypes = [handle, handle, ctypes.c_int64]
memory = mmap.mmap(-1, 1 << 20)
begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
text = ctypes.create_string_buffer(b'theirs')
at = [begin + (i << 16) for i in range(4)]
at.insert(3, at[2] + 8)
for address in at:
    ctypes.c_uint64.from_address(address + 16).value = ctypes.addressof(text)
for address in at[::2]:
    name(1, 1, address, b'/mine', 1)
for i in range(5):
    for address in at:
        publish(address, 1, 0)
    send(at[4], 1, i)
print('addresses', *at, flush=True)
";

/// A script that publishes ten times a second for SECONDS, on `/chatter` or TOPIC.
const TALKER: &str = "
import sys, time, rclpy
from rclpy.node import Node
from std_msgs.msg import UInt64
rclpy.init()
node = Node('talker')
publisher = node.create_publisher(UInt64, sys.argv[2] if len(sys.argv) > 2 else 'chatter', 10)
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

const REFUSED: u8 = 4;

const WATCHDOG: Duration = Duration::from_secs(240);

/// Runs this program as a recorder: `record OUTPUT [BUFFER BYTES] [pid=PID] [domain=ID] [all=0|1]
/// [-- COMMAND ...]`. Returns the command's status.
fn run_recorder(args: &[String]) -> u8 {
    let at = args.iter().position(|a| a == "--").unwrap_or(args.len());
    let command = args.get(at + 1..).unwrap_or_default().to_vec();
    let mut options = RecordOptions::default();
    options.files.output = PathBuf::from(&args[0]);
    let mut pids = Vec::new();
    for word in &args[1..at] {
        match word.split_once('=') {
            Some(("all", flag)) => options.all_threads = flag == "1",
            Some(("domain", id)) => options.limits.domain = id.parse().ok(),
            Some((_, pid)) => pids.push(pid.parse().expect("a process id")),
            None => options.buffer_bytes = word.parse().expect("bytes"),
        }
    }
    options.target = Target::new(command, false, pids);
    match record(&options, |_| {}) {
        Ok(summary) => summary.command_status.unwrap_or(0) as u8,
        Err(error) => {
            eprintln!("{error}");
            if error.is_refusal() {
                REFUSED
            } else {
                1
            }
        }
    }
}

struct Harness {
    python: PathBuf,
    dir: tempfile::TempDir,
}

impl Harness {
    fn recorder(&self, trace: &str, buffer_bytes: Option<u32>) -> Command {
        let this = std::env::current_exe().expect("this program");
        let mut command = Command::new(this);
        command
            .args(["record", trace])
            .args(buffer_bytes.map(|bytes| bytes.to_string()))
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

    fn record(
        &self,
        trace: &str,
        buffer_bytes: Option<u32>,
        script: &[String],
    ) -> (Output, PathBuf) {
        let path = self.dir.path().join(trace);
        let output = self
            .recorder(trace, buffer_bytes)
            .arg("--")
            .args(script)
            .output()
            .expect("the recorder starts");
        assert!(
            output.status.success(),
            "recorder: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        (output, path)
    }

    fn spawn(&self, trace: &str, script: &[String]) -> (Child, PathBuf) {
        let mut command = self.recorder(trace, None);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if script.is_empty() {
            // The recorder probes the installation before the application starts.
            let prefix = self.python.ancestors().nth(2).expect("PREFIX/bin/python");
            command.env("AMENT_PREFIX_PATH", prefix);
        } else {
            command.arg("--").args(script);
        }
        (
            command.spawn().expect("the recorder starts"),
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

fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !reached() {
        assert!(
            begin.elapsed() < WATCHDOG,
            "not within {WATCHDOG:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ended(child: &mut Child) -> std::process::ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            return status;
        }
        if begin.elapsed() > WATCHDOG {
            let _ = child.kill();
            panic!("still running after {WATCHDOG:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns whether a recorder has attached its first probes and takes events. The recorder writes
/// its first manifest earlier than that.
fn is_recording(trace: &Path) -> bool {
    Reader::open(trace).is_ok_and(|reader| reader.manifest().span.start_monotonic_ns > 0)
}

/// Returns the ids and state letters of the processes with the word `mark` in their command line.
/// Leaves out the recorder, whose command line has this word too.
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

fn every_publication_is_in_the_trace_when_nothing_is_lost(harness: &Harness) {
    let (output, trace) = harness.record("whole", None, &harness.script(BURST, &["3000"]));
    let events = events(&trace);
    assert_eq!(publications(&events, "/burst"), published(&output));
    assert!(!events
        .iter()
        .any(|e| matches!(e.kind, EventKind::Lost { .. })));
    let reader = Reader::open(&trace).unwrap();
    assert_eq!(reader.manifest().state, State::Complete);
    let process = &reader.manifest().observed.processes[0];
    assert_eq!(
        (process.distribution.as_str(), process.late),
        ("kilted", false)
    );
    assert_eq!(process.nodes, ["/burst"]);
}

fn a_far_too_small_buffer_counts_every_lost_record(harness: &Harness) {
    let count = |events: &[Event]| {
        events
            .iter()
            .filter(|e| matches!(e.kind, EventKind::Publish { .. }))
            .count() as u64
    };
    // The process also publishes parameter events at its start.
    let (_, whole) = harness.record("none", None, &harness.script(BURST, &["0"]));
    let besides = count(&events(&whole));
    let (output, trace) = harness.record("small", Some(4096), &harness.script(BURST, &["20000"]));
    let events = events(&trace);
    let said: u64 = events
        .iter()
        .filter_map(|e| match &e.kind {
            EventKind::Lost { probe, count } if &**probe == "publish" => Some(*count),
            _ => None,
        })
        .sum();
    assert!(
        said > 0,
        "a buffer of 4 KiB had room for 20000 publications"
    );
    assert_eq!(count(&events) + said, published(&output) + besides);
    let manifest: u64 = Reader::open(&trace).unwrap().manifest().lost["publish"]
        .values()
        .sum();
    assert_eq!(manifest, said, "the manifest counts what the events count");
}

/// A script that publishes as fast as it can until a file appears, and then slowly until another
/// one appears.
const FLOOD: &str = "
import os, sys, time, rclpy
from rclpy.node import Node
from std_msgs.msg import UInt64
rclpy.init()
node = Node('flood')
publisher = node.create_publisher(UInt64, 'flood', 10)
print('ready', flush=True)
while not os.path.exists(sys.argv[1]):
    publisher.publish(UInt64(data=1))
while not os.path.exists(sys.argv[1] + '.known'):
    time.sleep(0.1)
    publisher.publish(UInt64(data=2))
";

fn a_process_first_seen_while_the_buffer_is_full_is_reported_later(harness: &Harness) {
    let start = |end: &Path| -> Child {
        let script = harness.script(FLOOD, &[end.to_str().expect("text")]);
        let mut command = Command::new(&script[0]);
        let command = command.args(&script[1..]).stdout(Stdio::piped());
        let mut flood = command.spawn().expect("python starts");
        let out = flood.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(out, &mut [0; 6]).expect("the line 'ready'");
        flood
    };
    let ends = ["first.end", "second.end"].map(|name| harness.dir.path().join(name));
    let mut recorder = harness.recorder("flooded", Some(4096));
    let prefix = harness.python.ancestors().nth(2);
    let mut recorder = recorder
        .env("AMENT_PREFIX_PATH", prefix.expect("PREFIX/bin/python"))
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let trace = harness.dir.path().join("flooded");
    wait_until("it records", || is_recording(&trace));
    let mut first = start(&ends[0]);
    signal(&recorder, libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(300));
    let mut second = start(&ends[1]);
    std::thread::sleep(Duration::from_millis(300));
    first.kill().expect("it runs");
    first.wait().expect("it was killed");
    std::fs::write(&ends[1], "").expect("a file");
    signal(&recorder, libc::SIGCONT);
    let pid = second.id();
    let known = |is: fn(&EventKind) -> bool| {
        let events = Reader::open(&trace).map(|mut reader| reader.events().collect::<Vec<_>>());
        let events = events.unwrap_or_default();
        events.iter().any(|e| e.pid == pid && is(&e.kind))
    };
    wait_until("a thread is known", || {
        known(|k| matches!(k, EventKind::Thread { .. }))
    });
    wait_until("its topic is known", || {
        known(|k| matches!(k, EventKind::EndpointFound { name, .. } if &**name == "/flood"))
    });
    std::fs::write(ends[1].with_extension("end.known"), "").expect("a file");
    ended(&mut second);
    signal(&recorder, libc::SIGTERM);
    ended(&mut recorder);
    let reader = Reader::open(&trace).expect("the trace opens");
    let processes = &reader.manifest().observed.processes;
    assert!(
        processes.iter().any(|p| p.pid == pid),
        "the process is not known"
    );
}

fn an_endpoint_is_reported_again_after_others_have_replaced_it(harness: &Harness) {
    let (output, trace) = harness.record("crowd", None, &harness.script(CROWD, &[]));
    let events = events(&trace);
    assert_eq!(publications(&events, "/crowded"), published(&output));
    let is_found_again = |e: &Event| matches!(&e.kind, EventKind::EndpointFound { name, .. } if &**name == "/crowded");
    assert!(events.iter().any(is_found_again));
}

fn endpoints_at_similar_addresses_are_distinguished(harness: &Harness) {
    let (output, trace) = harness.record("alike", None, &harness.script(ALIKE, &[]));
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|l| l.strip_prefix("addresses "));
    let addresses = line.expect("the line of addresses").split(' ');
    let addresses = addresses.map(|a| a.parse::<u64>().expect("an address"));
    let events = events(&trace);
    let times = addresses.map(|address| {
        let is = |e: &&Event| matches!(e.kind, EventKind::Publish { rmw, .. } if rmw == address);
        events.iter().filter(is).count()
    });
    assert_eq!(times.collect::<Vec<_>>(), [5, 0, 5, 0, 5]);
    let sends = |e: &Event| matches!(e.kind, EventKind::RequestSend { .. });
    assert!(!events.iter().any(sends), "a publisher is not a client");
}

fn a_low_file_limit_applies_to_the_command_and_not_to_the_recorder(harness: &Harness) {
    const LOW: u64 = 96;
    let limit =
        format!("import resource; assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == {LOW}");
    let script = harness.script(&format!("{limit}\n{BURST}"), &["5"]);
    let mut recorder = harness.recorder("files", None);
    let lower = || {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: plain system calls on a limit that lives while they last.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            limit.rlim_cur = LOW;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        Ok(())
    };
    // SAFETY: only system calls happen between fork and exec.
    unsafe { recorder.pre_exec(lower) };
    let output = recorder
        .arg("--")
        .args(&script)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let trace = harness.dir.path().join("files");
    assert_eq!(publications(&events(&trace), "/burst"), published(&output));
    let reader = Reader::open(&trace).expect("the trace opens");
    let failed = reader
        .manifest()
        .observed
        .probes
        .iter()
        .find(|p| p.error.as_ref().is_some_and(|e| e.contains("open files")));
    assert!(failed.is_none(), "{failed:?}");
}

fn a_killed_recorder_leaves_a_readable_trace_and_a_running_command(harness: &Harness) {
    // The moments reach from before the command runs, through the probing of its libraries, to the
    // middle of the recording.
    let moments = [30u64, 120, 200, 280, 360, 440, 520, 700].map(Some);
    for (round, moment) in moments.into_iter().chain([None]).enumerate() {
        // The duration also identifies the command's process.
        let mark = format!("{}.{round}25", if moment.is_some() { 7 } else { 90 });
        let (mut recorder, trace) =
            harness.spawn(&format!("killed{round}"), &harness.script(TALKER, &[&mark]));
        match moment {
            Some(ms) => std::thread::sleep(Duration::from_millis(ms)),
            None => wait_until("100 events on the disk", || {
                Reader::open(&trace).is_ok_and(|mut reader| reader.events().count() > 100)
            }),
        }
        signal(&recorder, libc::SIGKILL);
        // The kernel removes the probes one by one.
        ended(&mut recorder);
        let begin = Instant::now();
        loop {
            let stopped = processes_with(&mark).iter().any(|(_, state)| *state == 'T');
            if !stopped && begin.elapsed() > Duration::from_millis(500) {
                break;
            }
            assert!(
                begin.elapsed() < WATCHDOG,
                "killed at {moment:?} ms: the command is still stopped"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        if trace.join("manifest.json").exists() {
            let mut reader = Reader::open(&trace).expect("the trace opens");
            let n = reader.events().count();
            assert!(moment.is_some() || n > 100, "{n} events");
            assert_eq!(reader.manifest().state, State::Recording);
        }
        for (pid, _) in processes_with(&mark) {
            // SAFETY: plain system call that ends the command.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
    }
}

/// A script that starts new programs one after the other, in daemons outside of the command's
/// process tree. A file DIR/done-N says that all programs of daemon N have run.
const DAEMONS: &str = "
for n in 1 2 3; do
    setsid sh -c '
        i=0
        while [ $i -lt 150 ]; do
            cp /bin/true \"$0/$1-$i\"; \"$0/$1-$i\"; rm \"$0/$1-$i\"; i=$((i+1))
        done
        echo done > \"$0/done-$1\"' \"$0\" $n &
done
sleep 0.3
";

fn daemons_of_a_command_are_not_left_suspended(harness: &Harness) {
    for (name, kill) in [("ended", false), ("shot", true), ("ended-2", false)] {
        let dir = harness.dir.path().join(format!("left-{name}"));
        std::fs::create_dir(&dir).expect("a directory");
        let path = dir.display().to_string();
        let rest = if kill { "sleep 60" } else { "" };
        let script = ["sh", "-c", &format!("{DAEMONS}{rest}"), &path].map(str::to_owned);
        let (mut recorder, _) = harness.spawn(name, &script);
        if kill {
            // Each program exists only for a moment. So the end of a daemon counts as well.
            wait_until("the first programs", || {
                (1..=3).any(|n| dir.join(format!("done-{n}")).exists())
                    || std::fs::read_dir(&dir)
                        .expect("it is there")
                        .next()
                        .is_some()
            });
            std::thread::sleep(Duration::from_millis(300));
            signal(&recorder, libc::SIGKILL);
        }
        ended(&mut recorder);
        let begin = Instant::now();
        while !(1..=3).all(|n| dir.join(format!("done-{n}")).exists()) {
            let late = begin.elapsed() > WATCHDOG;
            let left = processes_with(&path);
            left.iter().filter(|_| late).for_each(|(pid, _)| {
                // SAFETY: plain system call that ends processes of this test.
                unsafe { libc::kill(*pid as i32, libc::SIGKILL) };
            });
            assert!(!late, "recorder {name}: {left:?} do not go on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn two_recorders_at_once_see_the_same(harness: &Harness) {
    let (mut a, trace_a) = harness.spawn("both-a", &[]);
    let (mut b, trace_b) = harness.spawn("both-b", &[]);
    wait_until("both record", || {
        is_recording(&trace_a) && is_recording(&trace_b)
    });
    // Other tests publish on the usual topic at the same time.
    let script = harness.script(TALKER, &["2", "both"]);
    let output = Command::new(&script[0])
        .args(&script[1..])
        .output()
        .expect("python starts");
    for recorder in [&mut a, &mut b] {
        signal(recorder, libc::SIGTERM);
        assert!(ended(recorder).success());
    }
    let [a, b] = [trace_a, trace_b].map(|t| publications(&events(&t), "/both"));
    assert_eq!(a, b);
    assert_eq!(a, published(&output));
}

fn signals_end_a_recording_properly(harness: &Harness) {
    for (name, number) in [("int", libc::SIGINT), ("term", libc::SIGTERM)] {
        let (mut recorder, trace) = harness.spawn(name, &harness.script(TALKER, &["1000"]));
        wait_until("publications on the disk", || {
            Reader::open(&trace).is_ok_and(|mut reader| {
                publications(&reader.events().collect::<Vec<_>>(), "/chatter") > 5
            })
        });
        signal(&recorder, number);
        ended(&mut recorder);
        let reader = Reader::open(&trace).unwrap();
        assert_eq!(reader.manifest().state, State::Complete, "{name}");
        assert!(publications(&events(&trace), "/chatter") > 5, "{name}");
    }
}

fn the_status_of_the_command_is_returned(harness: &Harness) {
    for (trace, script, status) in [
        ("fails", "exit 7", 7),
        ("killed", "kill -KILL $$", 128 + libc::SIGKILL),
    ] {
        let output = harness
            .recorder(trace, None)
            .args(["--", "sh", "-c", script])
            .output()
            .expect("the recorder starts");
        assert_eq!(output.status.code(), Some(status), "{script}");
    }
}

fn recording_inside_a_pid_namespace_is_refused(harness: &Harness) {
    // Otherwise the recorder would mark and suspend other processes, which have these ids outside
    // of the namespace.
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["record", "namespace", "--", "true"])
        .current_dir(harness.dir.path())
        .output()
        .expect("unshare, of util-linux");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(REFUSED.into()), "{said}");
    assert!(said.contains("process ids"), "{said}");
    assert!(!harness.dir.path().join("namespace").exists());
}

type Test = (&'static str, fn(&Harness));

fn refusal(harness: &Harness) -> Option<String> {
    if !harness.python.exists() {
        return Some("no ROS 2 environment. Make one with ./dev ros-env kilted.".to_owned());
    }
    let probe = harness
        .recorder("probe", None)
        .args(["--", "true"])
        .output();
    let probe = probe.expect("the recorder starts");
    (probe.status.code() == Some(REFUSED.into()))
        .then(|| String::from_utf8_lossy(&probe.stderr).trim().to_owned())
}

fn run_tests(args: &[String]) -> ExitCode {
    let tests: &[Test] = tests![
        every_publication_is_in_the_trace_when_nothing_is_lost,
        a_far_too_small_buffer_counts_every_lost_record,
        a_process_first_seen_while_the_buffer_is_full_is_reported_later,
        an_endpoint_is_reported_again_after_others_have_replaced_it,
        endpoints_at_similar_addresses_are_distinguished,
        a_low_file_limit_applies_to_the_command_and_not_to_the_recorder,
        a_killed_recorder_leaves_a_readable_trace_and_a_running_command,
        daemons_of_a_command_are_not_left_suspended,
        two_recorders_at_once_see_the_same,
        signals_end_a_recording_properly,
        the_status_of_the_command_is_returned,
        recording_inside_a_pid_namespace_is_refused,
    ];
    let tests = tests
        .iter()
        .chain(alive::TESTS)
        .chain(limits::TESTS)
        .chain(lineage::TESTS)
        .chain(suspended::TESTS)
        .chain(threads::TESTS)
        .chain(sudo::TESTS);
    let filter: Vec<&String> = args.iter().filter(|a| !a.starts_with('-')).collect();
    let cache = std::env::var("ONBEAT_CACHE").unwrap_or_else(|_| {
        let home = std::env::var("HOME").unwrap_or_default();
        format!("{home}/.cache/onbeat")
    });
    let harness = Harness {
        python: PathBuf::from(cache).join("ros-kilted/bin/python"),
        dir: tempfile::tempdir().expect("a directory"),
    };
    let is_chosen =
        |name: &str| filter.is_empty() || filter.iter().any(|f| name.contains(f.as_str()));
    let chosen: Vec<&Test> = tests.filter(|(name, _)| is_chosen(name)).collect();
    let alone: Vec<&Test> = alive::ALONE
        .iter()
        .filter(|(name, _)| is_chosen(name))
        .collect();
    let number = chosen.len() + alone.len();
    if let Some(reason) = refusal(&harness) {
        for (name, _) in chosen.iter().chain(&alone) {
            println!("skipped {name}: {reason}");
        }
        println!("0 passed, 0 failed, {number} skipped");
        return ExitCode::SUCCESS;
    }
    // Two at a time, because most tests wait.
    let failed = run_side_by_side(&harness, &chosen, 2) + run_side_by_side(&harness, &alone, 1);
    println!("{} passed, {failed} failed, 0 skipped", number - failed);
    ExitCode::from(u8::from(failed > 0))
}

fn run_side_by_side(harness: &Harness, tests: &[&Test], lanes: usize) -> usize {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let run = || {
        while let Some((name, test)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let begin = Instant::now();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(harness)));
            let seconds = begin.elapsed().as_secs_f64();
            match result {
                Ok(()) => println!("ok      {name} ({seconds:.0} s)"),
                Err(_) => {
                    println!("FAILED  {name}");
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..lanes).for_each(|_| drop(scope.spawn(run))));
    failed.load(Ordering::Relaxed)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((first, rest)) if first == "record" => ExitCode::from(run_recorder(rest)),
        Some((first, rest)) if first == "lineage" => {
            lineage::run(rest);
            ExitCode::SUCCESS
        }
        Some((first, rest)) if first == "write" => sudo::write_for_user(&rest[0]),
        _ => run_tests(&args),
    }
}
