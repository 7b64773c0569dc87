//! Tests the library with programs (`program.c`) that call imitations of ROS 2 functions (`ros.c`),
//! and tests the reader.

use super::{Place, PlaceOptions, Rings};
use crate::decode::{decode, Decoded};
use object::{Object, ObjectSymbol};
use onbeat_trace::{EndpointKind, Event, EventKind, Name};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn programs() -> &'static Path {
    static MADE: OnceLock<TempDir> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let dir = TempDir::new().expect("a directory");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/preload/tests");
        let compile = |words: &[&str]| {
            let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
            let done = Command::new(&clang)
                .current_dir(dir.path())
                .args(["-O1", "-w", "-pthread", "-rdynamic"])
                .args(
                    words
                        .iter()
                        .map(|w| w.replace("SRC", sources.to_str().expect("text"))),
                )
                .output();
            let output = done.expect("clang should run, as it does in the build");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{words:?}: {error}");
        };
        let library = ["-shared", "-fPIC", "-fsemantic-interposition"];
        let place = format!("-Wl,-rpath,{}", dir.path().display());
        let defined =
            |name: &str, file: &str| format!("-D{name}=\"{}\"", dir.path().join(file).display());
        for (name, define) in [("ros", "-DJAZZY"), ("humble", "-DHUMBLE")] {
            let (file, link) = (format!("lib{name}.so"), format!("-l{name}"));
            compile(&[&library[..], &[define, "SRC/ros.c", "-o", &file]].concat());
            let program = [
                define,
                "-DCOUNT_MALLOC",
                "SRC/program.c",
                "-L.",
                &link,
                &place,
            ];
            compile(&[&program[..], &["-o", name]].concat());
        }
        let user = ["SRC/user.c", "-L.", "-lros", &place, "-o", "libuser.so"];
        compile(&[&library[..], &user].concat());
        let (user, ros) = (defined("LOCAL", "libuser.so"), defined("ROS", "libros.so"));
        compile(&[&user, &ros, "SRC/program.c", "-o", "local"]);
        dir
    });
    made.path()
}

struct Run {
    place: Place,
    rings: Rings,
    records: Vec<Vec<u8>>,
}

impl Run {
    fn new(ring_bytes: u64) -> Run {
        let options = PlaceOptions {
            ring_bytes,
            ..PlaceOptions::default()
        };
        let place = Place::create(&options).expect("a place");
        let rings = Rings::open(&place).expect("its rings");
        Run {
            place,
            rings,
            records: Vec::new(),
        }
    }

    fn start(&self, program: &str, words: &[&str]) -> Child {
        Command::new(programs().join(program))
            .args(words)
            .envs(self.place.environment(|_| None))
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program")
    }

    fn read(&mut self) {
        let records = &mut self.records;
        while self
            .rings
            .poll(1000, &mut |record| records.push(record.to_vec()))
        {}
    }

    fn run(&mut self, program: &str, words: &[&str]) -> String {
        let mut child = self.start(program, words);
        while child.try_wait().expect("a child").is_none() {
            self.read();
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = child.wait_with_output().expect("its output");
        assert!(output.status.success(), "{words:?}: {output:?}");
        self.read();
        String::from_utf8(output.stdout).expect("text")
    }

    fn events(&self) -> Vec<Event> {
        let decoded = self.records.iter().filter_map(|record| decode(record));
        decoded
            .filter_map(|decoded| match decoded {
                Decoded::Event(event) => Some(event),
                _ => None,
            })
            .collect()
    }

    fn published(&self) -> BTreeMap<(u32, u32), Vec<u64>> {
        let mut found: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for event in self.events() {
            if let EventKind::Publish { message, .. } = event.kind {
                found
                    .entry((event.pid, event.tid))
                    .or_default()
                    .push(message);
            }
        }
        found
    }

    fn lost(&self) -> u64 {
        let losses = self.rings.losses();
        assert!(losses.refused.is_empty(), "{losses:?}");
        let kinds = losses.by_kind.iter();
        kinds
            .filter(|(name, _)| *name == "publish")
            .map(|(_, n)| n)
            .sum()
    }
}

fn printed(text: &str, word: &str) -> u64 {
    let at = text
        .find(word)
        .unwrap_or_else(|| panic!("no {word} in {text}"));
    let rest = text[at + word.len()..].trim_start();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[test]
fn the_library_needs_at_most_glibc_2_35() {
    // The copy has the alignment that the reader needs.
    let bytes = &super::place::LIBRARY.to_vec()[..];
    let file = object::File::parse(bytes).expect("ELF");
    let names: Vec<_> = file
        .dynamic_symbols()
        .filter_map(|s| s.name().ok())
        .collect();
    assert!(names.contains(&"ros_trace_callback_start") && names.contains(&"rcl_wait"));
    assert!(
        !names.iter().any(|name| name.starts_with("onbeat_")),
        "{names:?}"
    );
    // The names of versions, like GLIBC_2.34, are in the string table.
    let versions = bytes
        .windows(8)
        .enumerate()
        .filter(|(_, w)| w == b"GLIBC_2.");
    let minor = |at: usize| {
        let digits = bytes[at + 8..].iter().take_while(|b| b.is_ascii_digit());
        digits.fold(0, |n, b| n * 10 + u32::from(b - b'0'))
    };
    let newest = versions.map(|(at, _)| minor(at)).max().expect("versions");
    assert!(newest <= 35, "GLIBC_2.{newest}");
}

/// Returns the events of the calls that `ros sequence` makes, in order. The addresses of the
/// program's publisher differ between runs.
fn calls_of_sequence(publisher: u64, rmw: u64, topic: &Name) -> Vec<EventKind> {
    let gid = std::array::from_fn(|i| if i == 0 { 5 } else { 0 });
    let publisher_init = |publisher, depth| EventKind::PublisherInit {
        publisher,
        node: 1,
        rmw,
        topic: topic.clone(),
        depth,
    };
    vec![
        EventKind::NodeInit {
            node: 1,
            rmw: 2,
            name: "talker".into(),
            namespace: "".into(),
        },
        publisher_init(publisher, 10),
        EventKind::EndpointQos {
            endpoint: EndpointKind::Publisher,
            rcl: publisher,
            history: 1,
            reliability: 2,
            durability: 1,
            liveliness: 3,
            depth: 10,
            deadline_ns: 250_000_000,
            lifespan_ns: 0,
            lease_ns: i64::MAX as u64,
        },
        publisher_init(publisher, 11),
        publisher_init(3, 12),
        EventKind::CallbackStart {
            callback: 6,
            intra_process: true,
        },
        EventKind::TimerCall { timer: 5 },
        EventKind::TimerCall { timer: 5 },
        EventKind::TimerCall { timer: 5 },
        EventKind::Publish {
            rmw,
            message: 9,
            source_ns: Some(77),
        },
        EventKind::Take {
            rmw,
            message: 11,
            source_ns: 78,
            taken: true,
        },
        EventKind::RequestTake {
            rmw,
            sequence: 9,
            gid,
            taken: true,
        },
        EventKind::CallbackSymbol {
            callback: 6,
            symbol: "first".into(),
        },
        EventKind::CallbackSymbol {
            callback: 6,
            symbol: "second".into(),
        },
        EventKind::RingBufferEnqueue {
            buffer: 1,
            index: 2,
            overwritten: true,
        },
        EventKind::CallbackEnd { callback: 6 },
    ]
}

#[test]
fn each_call_is_recorded_as_by_bpf_programs_and_passed_on() {
    let mut run = Run::new(256 << 10);
    let text = run.run("ros", &["sequence"]);
    let expected = "timer 42\ntimer 41\ntimer 42\npublish 43\ntake 44 1\n";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("passed on 16, damaged 0"), "{text}");
    let kinds: Vec<EventKind> = run.events().into_iter().map(|e| e.kind).collect();
    let EventKind::PublisherInit {
        topic, publisher, ..
    } = &kinds[1]
    else {
        panic!("{kinds:?}")
    };
    assert_eq!((topic.len(), &topic[..3]), (255, "/xx"));
    let rmw = match kinds[9] {
        EventKind::Publish { rmw, .. } => rmw,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(kinds, calls_of_sequence(*publisher, rmw, topic));
    let times: Vec<u64> = run.events().iter().map(|e| e.time_ns).collect();
    assert!(times.is_sorted() && times[0] > 0, "{times:?}");
    let first = decode(&run.records[0]);
    assert!(
        matches!(first, Some(Decoded::Process { late: false, .. })),
        "{first:?}"
    );
    let threads = run.records.iter().filter_map(|r| decode(r));
    let threads = threads.filter(|d| matches!(d, Decoded::Thread { .. }));
    assert_eq!(threads.count(), 1);
    assert_eq!(run.rings.losses(), super::Losses::default());
}

#[test]
fn qos_settings_are_read_despite_a_seccomp_filter_or_count_as_lost() {
    for (refused, read, lost) in [("refuse", 1, 0), ("refuse-pipes", 0, 3)] {
        let mut run = Run::new(256 << 10);
        let text = run.run("ros", &["sequence", refused]);
        assert!(text.contains("passed on 16, damaged 0"), "{text}");
        let events = run.events();
        let qos = events.iter().filter_map(|e| match e.kind {
            EventKind::EndpointQos { deadline_ns, .. } => Some(deadline_ns),
            _ => None,
        });
        assert_eq!(qos.collect::<Vec<_>>(), vec![250_000_000; read]);
        let losses = run.rings.losses().by_kind;
        let losses: Vec<_> = losses.into_iter().filter(|&(_, n)| n > 0).collect();
        let expected = (lost > 0).then_some(("endpoint_qos", lost));
        assert_eq!(losses, expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn cpu_clocks_are_read_until_a_seccomp_filter_may_forbid_it() {
    // Each of 20 brackets of a callback reads the clock.
    for (words, ended, read) in [
        (&["callbacks"][..], 10, 20),
        (&["sandbox", "prctl"], 20, 20),
        (&["sandbox", "syscall"], 20, 20),
        (&["sandbox", "exec"], 10, 0),
    ] {
        let mut run = Run::new(256 << 10);
        run.run("ros", words);
        let ends = run.events().into_iter();
        let ends = ends.filter(|e| matches!(e.kind, EventKind::CallbackEnd { .. }));
        assert_eq!(ends.count(), ended, "{words:?}");
        let decoded = run.records.iter().filter_map(|r| decode(r));
        let clocks = decoded.filter(|d| matches!(d, Decoded::CpuClock { .. }));
        assert_eq!(clocks.count(), read, "{words:?}");
    }
}

#[test]
fn before_jazzy_a_publication_is_the_call_of_rmw_publish() {
    let mut run = Run::new(256 << 10);
    run.run("humble", &["few"]);
    let published: Vec<_> = run.published().into_values().collect();
    assert_eq!(published, [(1..=10).collect::<Vec<u64>>()]);
    let stamped = run
        .events()
        .into_iter()
        .filter(|e| matches!(e.kind, EventKind::Publish { source_ns, .. } if source_ns.is_some()));
    assert_eq!(stamped.count(), 0);
}

#[test]
fn libraries_loaded_with_local_symbols_as_by_python_are_recorded() {
    let mut run = Run::new(256 << 10);
    assert_eq!(printed(&run.run("local", &[]), "passed on"), 10);
    let published: Vec<_> = run.published().into_values().collect();
    assert_eq!(published, [(1..=10).collect::<Vec<u64>>()]);
}

#[test]
fn forked_cloned_and_executed_children_write_their_own_files() {
    let mut run = Run::new(256 << 10);
    run.run("ros", &["forks"]);
    let mut published: Vec<_> = run.published().into_values().map(|m| m.len()).collect();
    published.sort_unstable();
    // The process made by clone executes another program with the same id.
    assert_eq!(published, [10, 20, 20]);
    assert_eq!(run.lost(), 0);
}

#[test]
fn threads_that_come_and_go_share_rings_and_lose_nothing() {
    let mut run = Run::new(1 << 20);
    run.start("ros", &["threads"]).wait().expect("gone");
    // At most 50 threads run at the same time.
    let file = fs::metadata(only_file(run.place.rings(), "")).expect("a file");
    assert!(
        file.len() <= 4096 + 1024 * 64 + (50 << 20),
        "{}",
        file.len()
    );
    run.read();
    let published = run.published();
    let all: usize = published.values().map(Vec::len).sum();
    assert_eq!(all as u64 + run.lost(), 10_000);
    assert_eq!(run.lost(), 0, "one ring has room for all");
    // Thread ids are used again.
    for messages in published.values() {
        assert!(messages
            .chunks(10)
            .all(|m| m == (1..=10).collect::<Vec<u64>>()));
    }
}

#[test]
fn publications_in_signal_handlers_are_recorded_or_count_as_lost() {
    let mut run = Run::new(1 << 20);
    let text = run.run("ros", &["signals"]);
    let all: usize = run.published().values().map(Vec::len).sum();
    assert_eq!(all as u64 + run.lost(), printed(&text, "published"));
    let published = run.published();
    let messages = published.values().flatten();
    let (handlers, own): (Vec<u64>, Vec<u64>) = messages.partition(|&&m| m > 1_000_000_000);
    assert!(own.is_sorted() && handlers.is_sorted());
    assert!(!handlers.is_empty());
    // In this mode a handler interrupts each record.
    let mut run = Run::new(256 << 10);
    run.run("ros", &["nested"]);
    let published: Vec<u64> = run.published().into_values().flatten().collect();
    assert_eq!(published, (1..=100).collect::<Vec<u64>>());
    assert_eq!(run.lost(), 99);
}

#[test]
fn a_longjmp_out_of_a_publication_loses_few_records() {
    for (mode, most) in [("left", 3), ("left-deeper", 3 * 66)] {
        let mut run = Run::new(1 << 20);
        let text = run.run("ros", &[mode]);
        let published: Vec<u64> = run.published().into_values().flatten().collect();
        assert_eq!(
            published.len() as u64 + run.lost(),
            printed(&text, "published")
        );
        assert!((3..=most).contains(&run.lost()), "{mode}: {}", run.lost());
        assert_eq!(published.iter().max(), Some(&604), "{mode}");
    }
}

#[test]
fn rings_kept_after_a_longjmp_are_reused_when_their_thread_ends() {
    let mut run = Run::new(1 << 20);
    let text = run.run("ros", &["left-in-threads"]);
    // This is the number of rings that one thread needs: each left two or three behind.
    let rings = printed(&text, "rings");
    assert!((2..=5).contains(&rings), "{rings} rings");
}

#[test]
fn rings_stay_readable_after_longjmps_at_random_moments() {
    let mut run = Run::new(256 << 10);
    let text = run.run("ros", &["left-at-random"]);
    let (sent, jumps) = (printed(&text, "published"), printed(&text, "jumps"));
    let published: Vec<u64> = run.published().into_values().flatten().collect();
    let had: std::collections::BTreeSet<u64> = published.iter().copied().collect();
    assert_eq!(had.len(), published.len(), "a record was read twice");
    let all = published.len() as u64 + run.lost();
    // A jump between two steps of a call is counted. Otherwise the jump came before or after the
    // library's part of the call.
    assert!(
        all + jumps >= sent && all <= sent + jumps,
        "{all} of {sent}"
    );
    let last = (sent - 99..=sent).filter(|number| had.contains(number));
    assert!(
        last.count() == 100 || run.lost() > 0,
        "the thread stopped recording"
    );
}

#[test]
fn programs_with_sanitizers_are_recorded() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/preload/tests");
    for sanitizer in ["address", "thread"] {
        let program = programs().join(sanitizer);
        let built = Command::new("gcc")
            .current_dir(programs())
            .args(["-O1", "-w", "-DJAZZY", "-pthread", "-rdynamic"])
            .arg(format!("-fsanitize={sanitizer}"))
            .arg(sources.join("program.c"))
            .args(["-L.", "-lros", "-o", sanitizer])
            .arg(format!("-Wl,-rpath,{}", programs().display()))
            .output();
        // The sanitizer itself does not support the memory layout of some kernels.
        let runs = built.is_ok_and(|o| o.status.success())
            && Command::new(&program)
                .output()
                .is_ok_and(|o| o.status.success());
        if !runs {
            eprintln!("SKIPPED: gcc with the {sanitizer} sanitizer is not here, or does not run");
            continue;
        }
        let mut run = Run::new(1 << 20);
        run.run(sanitizer, &["threads"]);
        let all: usize = run.published().values().map(Vec::len).sum();
        assert_eq!(all as u64 + run.lost(), 10_000, "{sanitizer}");
    }
}

#[test]
fn records_of_a_killed_program_can_be_read() {
    for round in 0..100 {
        let mut run = Run::new(1 << 20);
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(4096).expect("its size");
        let mut child = run.start("ros", &["endless", file.path().to_str().expect("text")]);
        let count = || {
            let mut bytes = [0; 8];
            file.as_file()
                .read_exact_at(&mut bytes, 0)
                .expect("a count");
            u64::from_le_bytes(bytes)
        };
        // Each round kills the program at another number of publications, independent of time.
        while count() <= 7 * round {
            std::thread::yield_now();
        }
        child.kill().expect("killed");
        child.wait().expect("gone");
        run.read();
        let published: Vec<u64> = run.published().into_values().flatten().collect();
        let all = published.len() as u64 + run.lost();
        assert!(all == count() || all == count() + 1, "{all} of {}", count());
        assert!(published
            .iter()
            .zip(1..)
            .all(|(&found, sent)| found == sent));
    }
}

#[test]
fn a_full_ring_counts_every_lost_record() {
    let mut run = Run::new(64 << 10);
    let mut child = run.start("ros", &["many"]);
    child.wait().expect("gone");
    run.read();
    let published: Vec<u64> = run.published().into_values().flatten().collect();
    assert_eq!(published.len() as u64 + run.lost(), 10_000);
    assert_eq!(published, (1..=published.len() as u64).collect::<Vec<_>>());
    // A publication takes 48 bytes and a word with the length. Two other records come before.
    assert_eq!(published.len(), ((64 << 10) - 2 * 32) / 56);
}

#[test]
fn nothing_is_allocated_after_a_threads_first_record() {
    let mut run = Run::new(256 << 10);
    let text = run.run("ros", &["allocations"]);
    assert_eq!(printed(&text, "allocations"), 0);
    assert_eq!(run.published().into_values().flatten().count(), 1001);
}

#[test]
fn a_program_that_cannot_make_its_rings_runs_on_and_reports_it() {
    let run = Run::new(256 << 10);
    let rings = run.place.rings().to_owned();
    let limited = |script: &str| {
        let mut command = Command::new("sh");
        let program = programs().join("ros");
        command.args([
            "-c",
            &format!("{script}; exec {} sequence", program.display()),
        ]);
        command
            .envs(run.place.environment(|_| None))
            .output()
            .expect("sh")
    };
    // Files may have at most 512 bytes. A write to a larger one would end the program by a signal.
    let output = limited("ulimit -f 1");
    assert!(output.status.success(), "{output:?}");
    let mut reader = Rings::open(&run.place).expect("rings");
    reader.poll(1000, &mut |_| panic!("no record"));
    let refused = reader.losses().refused;
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].reason.contains("File too large"), "{refused:?}");
    assert!(
        refused[0].reason.contains("18 calls of the process"),
        "{refused:?}"
    );
    drop(reader);
    // The recorder's directory and socket are gone, so the program must print nothing.
    let kept = TempDir::new().expect("a directory");
    let library = kept.path().join("library.so");
    fs::copy(run.place.library(), &library).expect("a copy");
    let environment = run.place.environment(|_| None);
    drop(run);
    assert!(!rings.exists());
    let output = Command::new(programs().join("ros"))
        .arg("sequence")
        .envs(environment)
        .env("LD_PRELOAD", &library)
        .output()
        .expect("a program");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

/// Runs the shell command `line` in new namespaces, and then a program that calls ROS 2. Returns
/// the processes whose recording was refused and the standard error of both, or `None` if this
/// machine does not allow new namespaces.
fn apart(namespaces: &[&str], line: &str) -> Option<(Vec<super::Refused>, String)> {
    let mut run = Run::new(256 << 10);
    let line = line.replace("RINGS", run.place.rings().to_str().expect("text"));
    let program = programs().join("ros");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .args(namespaces)
        .args([
            "sh",
            "-c",
            &format!("{line} && exec {} sequence", program.display()),
        ])
        .envs(run.place.environment(|_| None))
        .output()
        .expect("unshare");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if error.contains("unshare: ") {
        eprintln!("SKIPPED: {error}");
        return None;
    }
    assert!(output.status.success(), "{error}");
    run.read();
    assert!(run.records.is_empty());
    Some((run.rings.losses().refused, error))
}

#[test]
fn a_process_that_does_not_see_the_rings_directory_reports_it() {
    let hidden = "mount -t tmpfs none /dev/shm";
    if let Some((refused, error)) = apart(&["--mount"], hidden) {
        assert_eq!(refused.len(), 1, "{refused:?} {error}");
        let reason = &refused[0].reason;
        assert!(
            reason.contains("18 calls of the process") && reason.contains("No such file"),
            "{reason}"
        );
        assert_eq!(error, "");
    }
    // Without inodes the process cannot even make a file name.
    let full = "mount -t tmpfs -o nr_inodes=2 none /dev/shm && mkdir RINGS";
    if let Some((refused, _)) = apart(&["--mount"], full) {
        assert!(refused[0].reason.contains("No space left"), "{refused:?}");
    }
    // The recorder is not reached, so the process prints one line.
    if let Some((refused, error)) = apart(&["--mount", "--net"], hidden) {
        assert_eq!(refused, []);
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(
            error.contains("is not recorded, and the recorder was not reached"),
            "{error}"
        );
    }
}

#[test]
fn files_of_ended_processes_are_removed_after_reading() {
    let mut run = Run::new(64 << 10);
    run.run("ros", &["few"]);
    let rings = run.place.rings().to_owned();
    let files = || fs::read_dir(&rings).expect("a directory").count();
    assert_eq!(files(), 1);
    let begin = Instant::now();
    while files() > 0 && begin.elapsed() < Duration::from_secs(60) {
        run.read();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(files(), 0);
    assert_eq!(run.published().into_values().flatten().count(), 10);
}

#[test]
fn an_invalid_ring_file_affects_only_its_own_process() {
    let mut run = Run::new(64 << 10);
    run.start("ros", &["few"]).wait().expect("gone");
    let damage = |at: u64, bytes: &[u8]| {
        let path = only_file(run.place.rings(), "damaged");
        let file = fs::OpenOptions::new().write(true).open(path).expect("open");
        file.write_all_at(bytes, at).expect("written");
    };
    let good = fs::read(only_file(run.place.rings(), "")).expect("a file");
    fs::write(run.place.rings().join("77.damaged"), &good).expect("a copy");
    // The position is larger than the ring. A hostile program may write any value.
    damage(4096, &u64::MAX.to_le_bytes());
    fs::write(run.place.rings().join("78.0"), &good[..70_000]).expect("a short copy");
    std::os::unix::fs::symlink("/etc/passwd", run.place.rings().join("79.0")).expect("a link");
    fs::create_dir(run.place.rings().join("80.0")).expect("a directory");
    run.read();
    assert_eq!(run.published().into_values().flatten().count(), 10);
    let refused = run.rings.losses().refused;
    let reasons: Vec<_> = refused.iter().map(|r| r.reason.as_str()).collect();
    assert_eq!(reasons.len(), 2, "{refused:?}");
    assert!(reasons.iter().any(|r| r.contains("invalid data")));
    assert!(reasons.iter().any(|r| r.contains("cut short")));
}

fn only_file(directory: &Path, word: &str) -> PathBuf {
    let files = fs::read_dir(directory).expect("a directory");
    let mut files = files.map(|f| f.expect("an entry").path());
    let found = files.find(|f| f.to_str().is_some_and(|name| name.contains(word)));
    found.expect("a file")
}
