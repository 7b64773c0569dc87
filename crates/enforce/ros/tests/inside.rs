//! Tests the library that holds outputs back inside the application, with a program
//! (`inside/program.c`) that calls imitations of ROS 2 functions (`inside/ros.c`).

use onbeat_ros::config::Kind;
use onbeat_ros::inside::{self, Output, DIRECTORY, REPORTS, THREAD};
use onbeat_ros::page::{OutputTable, PageReader, PageWriter};
use onbeat_ros::queue::{Queue, Stamp};
use onbeat_ros::report::{flags, Record, RECORD_BYTES};
use onbeat_time::clock::monotonic_ns;
use onbeat_time::{Lead, Overshoot, Slot};
use proptest::prelude::*;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

const MS: u64 = 1_000_000;
const NEVER: Slot = Slot::new(3_600_000 * MS, 3_600_001 * MS);
const PATIENCE: u32 = 20_000;

fn compile(words: &[&str]) {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let done = Command::new(clang)
        .current_dir(sources)
        .args(words)
        .output();
    let output = done.expect("clang should run, as it does in the build");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
}

/// Compiles the library that holds messages back, an imitation of ROS 2 and a test program. Returns
/// the directory that contains all three.
fn built() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = directory("built");
        let to = |name: &str| dir.join(name).display().to_string();
        let library = ["-shared", "-fPIC", "-O1", "-pthread"];
        let tested = ["-DTESTED", "src/inside/library.c", "-o", &to("tested.so")];
        compile(&[&library[..], &tested].concat());
        fs::write(dir.join("hold.so"), inside::LIBRARY).expect("a library");
        let ros = ["tests/inside/ros.c", "-o", &to("libros.so")];
        compile(&[&library[..], &["-fsemantic-interposition"], &ros].concat());
        let here = dir.display();
        let (find, rpath) = (format!("-L{here}"), format!("-Wl,-rpath,{here}"));
        let program = ["-O1", "-pthread", "tests/inside/program.c", &find, "-lros"];
        compile(&[&program[..], &[&rpath, "-o", &to("program")]].concat());
        dir
    })
}

fn directory(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let dir = dir.join(format!("{name}-{}-{number}", std::process::id()));
    fs::create_dir(&dir).expect("a new directory");
    dir
}

/// The owner of a table of slots. It writes a heartbeat while `beats` is set.
struct Owner {
    dir: PathBuf,
    page: Arc<PageWriter>,
    reports: Option<File>,
    beats: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Owner {
    fn new(cycle_ns: u64, slot: Slot) -> Owner {
        Owner::with(cycle_ns, slot, (Kind::Shape, Overshoot::Carry))
    }

    fn with(cycle_ns: u64, slot: Slot, (kind, overshoot): (Kind, Overshoot)) -> Owner {
        let dir = directory("owner");
        let output = |number, node: &str, topic: &str| Output {
            number,
            kind,
            overshoot,
            node: node.into(),
            topic: topic.into(),
        };
        let outputs = [output(0, "/a", "/out"), output(1, "/b", "/other")];
        let pipe = dir.join(REPORTS);
        let name = std::ffi::CString::new(pipe.to_str().expect("text")).expect("no zero");
        // SAFETY: the name is a text that lives until the call returns.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut reading = OpenOptions::new();
        reading.read(true).custom_flags(libc::O_NONBLOCK);
        let page = Arc::new(inside::write(&dir, &outputs).expect("a page"));
        let table = OutputTable {
            earliest_ns: 0,
            slots: vec![slot],
        };
        page.set_table(cycle_ns, monotonic_ns() as i64, &[table.clone(), table]);
        page.beat(monotonic_ns());
        page.set_pass_through(false);
        let (beats, ends) = (
            Arc::new(AtomicBool::new(true)),
            Arc::<AtomicBool>::default(),
        );
        let thread = std::thread::spawn({
            let (page, beats, ends) = (page.clone(), beats.clone(), ends.clone());
            move || {
                while !ends.load(Ordering::Relaxed) {
                    if beats.load(Ordering::Relaxed) {
                        page.beat(monotonic_ns());
                    }
                    std::thread::sleep(Duration::from_nanos(cycle_ns / 4));
                }
            }
        });
        Owner {
            reports: Some(reading.open(&pipe).expect("a pipe")),
            dir,
            page,
            beats,
            ends,
            thread: Some(thread),
        }
    }

    fn program(&self, words: &[&str]) -> Command {
        let mut command = Command::new(built().join("program"));
        command
            .args(words)
            .env("LD_PRELOAD", built().join("hold.so"))
            .env(DIRECTORY, &self.dir)
            .env("LOG", self.dir.join("log"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Returns the numbers of the messages of a topic that a process or its children sent, in
    /// order. The letter after each number shows how the message was sent: `d` as a message, `s`
    /// serialised, `l` as a loaned message.
    fn sent(&self, topic: &str, is_of: impl Fn(u32) -> bool) -> Vec<(u64, char)> {
        let log = self.log();
        let line = |line: &str| {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let pid = words[3].parse().expect("a process");
            let how = words[2].chars().next().expect("how");
            let number = words[1].parse().expect("a number");
            (words[0] == topic && is_of(pid)).then_some((number, how))
        };
        log.lines().filter_map(line).collect()
    }

    fn records(&mut self) -> Vec<Record> {
        let mut bytes = Vec::new();
        if let Some(pipe) = &mut self.reports {
            // The pipe is empty or has no writer.
            let _ = pipe.read_to_end(&mut bytes);
        }
        let record = |bytes: &[u8]| Record::from_bytes(bytes.try_into().expect("a record"));
        bytes.chunks_exact(RECORD_BYTES).map(record).collect()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(owner: &Owner) -> Program {
        let mut child = owner.program(&[]).spawn().expect("a program");
        let stdout = child.stdout.take().expect("piped");
        let mut program = Program {
            stdin: child.stdin.take(),
            child,
            stdout: BufReader::new(stdout),
        };
        // Until the library's thread has run, messages are not held.
        while owner.is_unready() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(program.all(&["none"]), [-1]);
        program
    }

    fn all(&mut self, commands: &[&str]) -> Vec<i32> {
        let stdin = self.stdin.as_mut().expect("it runs");
        let answer = |command: &&str| {
            writeln!(stdin, "{command}").expect("it reads");
            let mut line = String::new();
            self.stdout.read_line(&mut line).expect("an answer");
            line.trim().parse().expect("a number")
        };
        commands.iter().map(answer).collect()
    }

    fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().expect("a child").success());
    }
}

impl Owner {
    fn is_unready(&self) -> bool {
        let Some(pipe) = &self.reports else {
            return false;
        };
        let mut bytes: libc::c_int = 0;
        // SAFETY: the call writes the number of bytes that can be read.
        unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut bytes) };
        bytes == 0
    }

    fn wait_for(&self, count: usize) -> Vec<(u64, char)> {
        for _ in 0..PATIENCE {
            if self.log().lines().count() >= count {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.sent("/out", |_| true)
    }
}

fn held(numbers: std::ops::Range<u64>) -> Vec<(u64, char)> {
    numbers.map(|number| (number, 'h')).collect()
}

/// Runs a test program that publishes three messages, which the library holds. The program then
/// executes `commands`, which must return `results`. Returns the messages that were sent.
fn after(commands: &[&str], results: &[i32]) -> Vec<(u64, char)> {
    let owner = Owner::new(500 * MS, NEVER);
    let mut program = Program::start(&owner);
    assert_eq!(program.all(&["publish", "serialized", "publish"]), [0; 3]);
    assert_eq!(owner.log(), "", "three messages wait for their slot");
    assert_eq!(program.all(commands), results);
    program.end();
    owner.sent("/out", |_| true)
}

#[test]
fn held_messages_leave_before_messages_and_calls_that_cannot_be_held() {
    let then = |more: &[(u64, char)]| [&held(0..3)[..], more].concat();
    assert_eq!(after(&["large"], &[0]), then(&[(3, 'd')]));
    assert_eq!(after(&["loaned"], &[0]), then(&[(3, 'l')]));
    // The middleware fails, and the caller gets its error.
    assert_eq!(after(&["wrong", "publish"], &[1, 0]), held(0..4));
    assert_eq!(after(&["nothing"], &[11]), then(&[]));
    assert_eq!(after(&["fini", "init", "publish"], &[0; 3]), held(0..4));
    assert_eq!(after(&["shutdown", "publish"], &[0, 300]), then(&[]));
    // A process ends.
    assert_eq!(after(&[], &[]), then(&[]));
    // There is room for 16 messages.
    assert_eq!(after(&["publish"; 14], &[0; 14]), {
        [held(0..16), vec![(16, 'd')]].concat()
    });
}

#[test]
fn a_forked_child_sends_its_own_messages_at_once_and_no_others() {
    let owner = Owner::new(500 * MS, NEVER);
    let mut program = Program::start(&owner);
    let parent = program.child.id();
    assert_eq!(program.all(&["publish", "publish", "fork"]), [0; 3]);
    assert_eq!(owner.sent("/out", |pid| pid != parent), [(2, 'd')]);
    program.end();
    assert_eq!(owner.sent("/out", |pid| pid == parent), held(0..2));
}

#[test]
fn held_messages_leave_when_the_owner_is_silent_or_requests_it() {
    let owner = Owner::new(150 * MS, NEVER);
    let mut program = Program::start(&owner);
    program.all(&["publish"; 3]);
    assert_eq!(owner.log(), "");
    owner.beats.store(false, Ordering::Relaxed);
    assert_eq!(owner.wait_for(3), held(0..3));
    program.all(&["publish"]);
    assert_eq!(owner.sent("/out", |_| true)[3..], [(3, 'd')]);
    owner.beats.store(true, Ordering::Relaxed);
    owner.page.beat(monotonic_ns());
    program.all(&["publish"]);
    assert_eq!(owner.log().lines().count(), 4);
    owner.page.set_pass_through(true);
    assert_eq!(owner.wait_for(5)[4..], [(4, 'h')]);
    program.end();
}

#[test]
fn messages_leave_in_their_slots_and_reports_say_so() {
    const COUNT: usize = 40;
    let (cycle, slot) = (10 * MS, Slot::new(6 * MS, 7 * MS));
    let mut owner = Owner::new(cycle, slot);
    let origin = PageReader::open(owner.page.fd().as_raw_fd())
        .expect("a page")
        .schedule(0)
        .map_or(0, |s| s.opening(0, 0).start_ns - slot.start_ns as i64);
    let mut program = Program::start(&owner);
    for _ in 0..COUNT {
        assert_eq!(program.all(&["publish"]), [0]);
        std::thread::sleep(Duration::from_millis(3));
    }
    assert_eq!(owner.wait_for(COUNT), held(0..COUNT as u64));
    program.end();
    let records = owner.records();
    assert_eq!(records[0].flags, flags::READY);
    let mut slots = std::collections::BTreeSet::new();
    for record in &records[1..] {
        assert_eq!(record.flags & !flags::LATE, flags::BY_ARRIVAL, "{record:?}");
        let since = record.slot_start_ns - origin;
        assert_eq!(since % cycle as i64, slot.start_ns as i64, "{record:?}");
        assert!(record.start_ns >= record.slot_start_ns, "{record:?}");
        slots.insert(record.slot_start_ns);
    }
    assert_eq!(records.len(), COUNT + 1);
    assert!(
        slots.len() > COUNT / 8,
        "they left in {} slots",
        slots.len()
    );
}

/// Publishes a message in each of six cycles, 20 ms after the release and so after its slot.
/// Returns the messages that were sent, and the reports about them.
fn publish_late(overshoot: Overshoot, settles: bool) -> (Vec<(u64, char)>, Vec<Record>) {
    const COUNT: usize = 6;
    let cycle = 60 * MS;
    // An item belongs to the last release, and misses its slot if it comes later than 1 ms after it.
    let mut owner = Owner::with(cycle, Slot::new(0, MS), (Kind::Shape, overshoot));
    owner.page.set_settling(settles);
    let reader = PageReader::open(owner.page.fd().as_raw_fd()).expect("a page");
    let schedule = reader.schedule(0).expect("a table");
    let mut program = Program::start(&owner);
    for _ in 0..COUNT {
        let now_ns = monotonic_ns() as i64;
        let into_ns = schedule.after_ns(schedule.cycle_of(now_ns), now_ns) as u64;
        let until_ns = (cycle + 20 * MS - into_ns) % cycle;
        std::thread::sleep(Duration::from_nanos(until_ns));
        assert_eq!(program.all(&["publish"]), [0]);
    }
    std::thread::sleep(Duration::from_nanos(2 * cycle));
    program.end();
    let mut records = owner.records();
    assert_eq!(records.remove(0).flags, flags::READY);
    (owner.sent("/out", |_| true), records)
}

#[test]
fn late_messages_leave_are_discarded_or_end_shaping_by_the_policy() {
    const LATE: u32 = flags::LATE | flags::BY_ARRIVAL;
    let all_flags = |records: &[Record]| records.iter().map(|r| r.flags).collect::<Vec<_>>();
    for (overshoot, settles) in [(Overshoot::Carry, false), (Overshoot::Drop, true)] {
        let (sent, records) = publish_late(overshoot, settles);
        assert_eq!(sent, held(0..6), "{overshoot:?}");
        assert_eq!(all_flags(&records), [LATE; 6], "{overshoot:?}");
    }
    let (sent, records) = publish_late(Overshoot::Drop, false);
    assert_eq!(sent, []);
    assert_eq!(all_flags(&records), [LATE | flags::DROPPED; 6]);
    assert!(records.iter().all(|r| r.start_ns == 0), "{records:?}");
    let (sent, records) = publish_late(Overshoot::Stop, false);
    let direct = (1..6).map(|number| (number, 'd'));
    assert_eq!(
        sent,
        held(0..1).into_iter().chain(direct).collect::<Vec<_>>()
    );
    assert_eq!(all_flags(&records), [LATE | flags::STOPPED]);
    assert!(records[0].start_ns < records[0].arrival_ns + 20 * MS as i64);
}

#[test]
fn a_late_message_is_not_overtaken_by_one_whose_slot_the_thread_missed() {
    let owner = Owner::new(200 * MS, Slot::new(20 * MS, 22 * MS));
    let reader = PageReader::open(owner.page.fd().as_raw_fd()).expect("a page");
    let slot_ns = reader.schedule(0).expect("a table").opening(0, 0).start_ns as u64;
    let mut program = Program::start(&owner);
    let pid = program.child.id() as libc::pid_t;
    let after_slot = |ms: i64| {
        let now_ns = monotonic_ns() as i64;
        let until_ns = (slot_ns as i64 + ms * MS as i64 - now_ns).rem_euclid(200 * MS as i64);
        std::thread::sleep(Duration::from_nanos(until_ns as u64));
    };
    after_slot(40);
    assert_eq!(program.all(&["publish"]), [0]);
    after_slot(-15);
    assert_eq!(program.all(&["publish"]), [0]);
    // SAFETY: the calls only signal a child that has not been waited for.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    after_slot(20);
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGCONT) };
    assert_eq!(owner.wait_for(2), held(0..2));
    program.end();
}

#[test]
fn the_latest_message_of_a_throttled_input_leaves_once_per_cycle() {
    const COUNT: usize = 120;
    let (cycle, slot) = (40 * MS, Slot::new(6 * MS, 12 * MS));
    let throttle = (Kind::Throttle, Overshoot::Drop);
    let mut owner = Owner::with(cycle, slot, throttle);
    let mut program = Program::start(&owner);
    for _ in 0..COUNT {
        // Messages of 300 KiB wait, too.
        assert_eq!(program.all(&["large"]), [0]);
        std::thread::sleep(Duration::from_millis(3));
    }
    program.end();
    let records = owner.records();
    let items = &records[1..];
    assert_eq!(items.len(), COUNT, "every message is reported");
    let left: Vec<_> = items.iter().filter(|r| r.flags == 0).collect();
    let cycles: Vec<i64> = left.iter().map(|r| r.cycle).collect();
    assert!(
        left.len() > 4 && cycles.windows(2).all(|c| c[0] < c[1]),
        "{cycles:?}"
    );
    assert!(
        left.iter().all(|r| r.start_ns >= r.slot_start_ns),
        "{left:?}"
    );
    let replaced = items
        .iter()
        .filter(|r| r.flags == flags::DROPPED | flags::REPLACED);
    // The end of the process sends the message that waits.
    let sent = owner.sent("/out", |_| true);
    assert!(COUNT - replaced.count() == sent.len() && sent.len() <= left.len() + 1);
    for record in &left {
        let (arrival, start) = (record.arrival_ns, record.start_ns);
        let newer = items
            .iter()
            .filter(|r| (arrival + 1..start - MS as i64).contains(&r.arrival_ns));
        assert_eq!(newer.count(), 0, "a newer message waited");
    }
}

#[test]
fn the_name_of_a_thread_that_holds_an_input_ends_with_the_number_of_inputs_before_it() {
    let lists = [
        (
            "0 input carry /b /other\n1 input carry /a /out\n",
            "onbeat-hold-1",
        ),
        ("0 output carry /b /other\n1 input carry /a /out\n", THREAD),
        ("0 input carry /b /other\n1 output carry /a /out\n", THREAD),
    ];
    for (list, name) in lists {
        let owner = Owner::new(40 * MS, Slot::new(6 * MS, 12 * MS));
        fs::write(owner.dir.join("outputs"), list).expect("written");
        let mut program = Program::start(&owner);
        assert_eq!(program.all(&["publish"]), [0]);
        let threads = format!("/proc/{}/task", program.child.id());
        let names = || {
            let threads = fs::read_dir(&threads).expect("threads").flatten();
            let name = |t: fs::DirEntry| fs::read_to_string(t.path().join("comm"));
            let names = threads.filter_map(|t| name(t).ok());
            names.map(|n| n.trim().to_owned()).collect::<Vec<_>>()
        };
        while !names().iter().any(|n| n == name) {
            let others: Vec<_> = names()
                .into_iter()
                .filter(|n| n.starts_with(THREAD))
                .collect();
            assert!(others.is_empty(), "{others:?} instead of {name}");
            std::thread::sleep(Duration::from_millis(5));
        }
        program.end();
    }
}

/// Disturbs the owner of the table at random until the program has ended: stops and starts its
/// heartbeat, ends and resumes shaping, moves the origin, and closes the pipe for reports.
fn disturb(owner: &mut Owner, child: &mut Child, mut seed: u64) {
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    while child.try_wait().expect("a child").is_none() {
        match random(7) {
            0 | 1 => {
                let beats = owner.beats.load(Ordering::Relaxed);
                owner.beats.store(!beats, Ordering::Relaxed);
            }
            2 => owner.page.set_pass_through(true),
            3 | 4 => owner.page.set_pass_through(false),
            5 => {
                let now = monotonic_ns();
                let origin = now + random(4 * MS);
                owner.page.move_origin(origin as i64, now + MS, now);
            }
            _ => drop(owner.reports.take_if(|_| random(20) == 0)),
        }
        owner.records();
        std::thread::sleep(Duration::from_micros(random(9000)));
    }
}

#[test]
fn no_fault_loses_doubles_or_reorders_a_message() {
    for seed in 1..=2 {
        let mut owner = Owner::new(4 * MS, Slot::new(2 * MS, 2 * MS + MS / 2));
        let mut command = owner.program(&["random", &seed.to_string(), "500"]);
        let mut child = command.spawn().expect("a program");
        disturb(&mut owner, &mut child, seed);
        let pid = child.id();
        let output = child.wait_with_output().expect("its output");
        assert!(output.status.success(), "{output:?}");
        let counts = String::from_utf8(output.stdout).expect("text");
        let counts: Vec<u64> = counts
            .split_whitespace()
            .map(|c| c.parse().expect("a count"))
            .collect();
        for (topic, count) in ["/out", "/other"].into_iter().zip(counts) {
            let sent = owner.sent(topic, |of| of == pid);
            let numbers: Vec<u64> = sent.iter().map(|s| s.0).collect();
            assert_eq!(
                numbers,
                (0..count).collect::<Vec<_>>(),
                "{topic}, seed {seed}"
            );
            let waited = sent.iter().filter(|s| s.1 == 'h').count();
            assert!(
                waited > 10,
                "{waited} of {count} messages of {topic} were held"
            );
            let children = owner.sent(topic, |of| of != pid);
            assert!(!children.is_empty() && children.iter().all(|s| s.1 == 'd'));
        }
    }
}

/// Returns a strategy for the steps from one item's arrival to the next. A step has a number of
/// cycles, a time to add to these cycles, and the age of the next item's execution at its arrival
/// (negative if it is unknown).
fn steps() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
    let any = (0i64..3, -20i64..40, -60i64..100);
    let overrun = (1i64..3, prop::collection::vec(-1i64..1, 1..8)).prop_map(|(first, offs)| {
        let step = |(i, off)| (if i == 0 { first } else { 1 }, off, -1);
        offs.into_iter().enumerate().map(step).collect()
    });
    prop_oneof![prop::collection::vec(any, 1..8), overrun]
}

fn tested() -> libloading::Library {
    // SAFETY: the library is this crate's own, and its initialisers do nothing.
    unsafe { libloading::Library::new(built().join("tested.so")) }.expect("loads")
}

type DueAt =
    unsafe extern "C" fn(*const u64, i32, *const i64, *const i64, i32, i64, *mut [i64; 7]) -> bool;
type Throttled = unsafe extern "C" fn(*const u64, i32, i64, i64, *mut [i64; 2]) -> bool;

/// Returns the slots that the library computes at the time `now`. The first result has the slots of
/// `items`, each of which has an arrival and the start of its execution. The second result is the
/// slot of a throttled input after the cycle `last`. Returns `None` if the page has no valid
/// schedule.
fn computed(
    page: &[u64],
    items: &[(i64, i64)],
    (now, last): (i64, i64),
) -> Option<(Vec<[i64; 7]>, [i64; 2])> {
    let (arrivals, born): (Vec<i64>, Vec<i64>) = items.iter().copied().unzip();
    let mut found = vec![[0; 7]; items.len()];
    let mut throttled = [0; 2];
    let library = tested();
    // SAFETY: the functions have these types.
    let (due_at, throttled_at) = unsafe {
        (
            library
                .get::<DueAt>(b"onbeat_test_due\0")
                .expect("a function"),
            library
                .get::<Throttled>(b"onbeat_test_throttled\0")
                .expect("a function"),
        )
    };
    // SAFETY: the page has its whole size, and the arrays have an element for each item.
    let is_valid = unsafe {
        due_at(
            page.as_ptr(),
            1,
            arrivals.as_ptr(),
            born.as_ptr(),
            items.len() as i32,
            now,
            found.as_mut_ptr(),
        ) && throttled_at(page.as_ptr(), 1, last, now, &mut throttled)
    };
    is_valid.then_some((found, throttled))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_library_computes_the_same_lead_as_the_shaper(
        delays in prop::collection::vec(prop_oneof![200 => 0u64..450_000, 1 => 0..u64::MAX], 0..400),
    ) {
        let library = tested();
        let mut found = vec![0; delays.len()];
        // SAFETY: the function has this type, and the arrays have `count` elements.
        unsafe {
            let of: libloading::Symbol<unsafe extern "C" fn(*const u64, i32, *mut u64)> =
                library.get(b"onbeat_test_lead\0").expect("a function");
            of(delays.as_ptr(), delays.len() as i32, found.as_mut_ptr());
        }
        let mut lead = Lead::new(990, 100_000, (50_000, 500_000));
        for (&delay, found) in delays.iter().zip(found) {
            lead.record(delay);
            prop_assert_eq!(found, lead.ns());
        }
    }

    #[test]
    fn the_library_computes_the_same_slots_as_the_shaper(
        cycle in 1u64..40, origin in -50i64..50, earliest in 0u64..40,
        slots in prop::collection::vec((0u64..100, 1u64..40), 1..5),
        before in prop::collection::vec((0u64..100, 1u64..40), 0..3), from in -100i64..200,
        steps in steps(), waited in 0i64..100, steady in 4usize..14, last in -1i64..10,
    ) {
        let table = |slots: &[(u64, u64)]| OutputTable {
            earliest_ns: earliest,
            slots: slots.iter().map(|s| Slot::new(s.0, s.0 + s.1)).collect(),
        };
        let dir = directory("page");
        let page = inside::write(&dir, &[]).expect("a page");
        page.set_table(cycle, origin, &[table(&[(0, 1)]), table(&slots)]);
        if !before.is_empty() {
            let now = [table(&[(0, 1)]), table(&slots)];
            page.swap_slots(from, &now, &[table(&[(0, 1)]), table(&before)]);
        }
        // First, items come once per cycle. A birth of 0 is unknown.
        let mut at = 0;
        let mut items: Vec<(i64, i64)> = (0..steady).map(|_| { at += cycle as i64; (at, 0) }).collect();
        for (cycles, off, age) in steps {
            at += (cycles * cycle as i64 + off).max(0);
            items.push((at, if age < 0 { 0 } else { (at - age).max(1) }));
        }
        let now = at + waited;
        let words = fs::read(dir.join("page")).expect("the page");
        let words: Vec<u64> = words.chunks(8).map(|w| u64::from_ne_bytes(w.try_into().expect("8"))).collect();
        let _ = fs::remove_dir_all(dir);
        let schedule = PageReader::open(page.fd().as_raw_fd()).expect("a page").schedule(1);
        let found = computed(&words, &items, (now, last));
        prop_assert_eq!(found.is_some(), schedule.is_some());
        if let (Some((found, throttled)), Some(schedule)) = (found, schedule) {
            let mut queue = Queue::new(items.len());
            for (i, &(arrival_ns, born)) in items.iter().enumerate() {
                let born_ns = (born > 0).then_some(born as u64);
                queue.push(&schedule, i, Stamp { arrival_ns, born_ns }).expect("room");
            }
            while let Some(next) = queue.next(&schedule, now) {
                let (due, opening) = (next.due, next.due.opening);
                let expected = [
                    due.cycle, opening.start_ns, opening.end_ns, opening.slot as i64,
                    due.late.into(), due.overslept.into(), next.by_arrival.into(),
                ];
                prop_assert_eq!(found[queue.take(next).expect("it is there")], expected);
            }
            let opening = schedule.throttled(now, (last >= 0).then_some(last));
            prop_assert_eq!(throttled, [opening.cycle, opening.start_ns]);
        }
    }
}
