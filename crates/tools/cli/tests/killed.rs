//! `onbeat record --preload`, killed at a hundred moments: the program goes on unharmed, what was written
//! can be read, and the next recording removes what the killed ones have left.

use onbeat_trace::Reader;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

const ROUNDS: u64 = 100;

/// A program that publishes by imitations of ROS 2, until it is killed.
fn compile(dir: &Path) -> PathBuf {
    let sources =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../observe/record/src/preload/tests");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let source = |name: &str| sources.join(name).display().to_string();
    let place = format!("-Wl,-rpath,{}", dir.display());
    for words in [
        &["-shared", "-fPIC", &source("ros.c"), "-o", "libros.so"][..],
        &[
            &source("program.c"),
            "-L.",
            "-lros",
            &place,
            "-o",
            "program",
        ],
    ] {
        let mut command = Command::new(&clang);
        command
            .current_dir(dir)
            .args(["-O1", "-w", "-DJAZZY", "-pthread", "-rdynamic"]);
        assert!(command.args(words).status().expect("clang").success());
    }
    dir.join("program")
}

/// What the program says in its file: how often it published, and its process.
struct Count(File);

impl Count {
    fn new(path: &Path) -> Count {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true);
        let file = file.open(path).expect("a file");
        file.set_len(4096).expect("its size");
        Count(file)
    }

    fn word(&self, index: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, index * 8).expect("a word");
        u64::from_le_bytes(bytes)
    }

    /// Waits until the program has published more often than this.
    fn wait_beyond(&self, count: u64) {
        let begin = Instant::now();
        while self.word(0) <= count {
            assert!(
                begin.elapsed() < Duration::from_secs(240),
                "the program is stuck"
            );
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Directories that recordings of these processes have left behind.
fn left(below: &Path, recorders: &[u32]) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).into_iter().flatten().flatten();
    let own = |name: &str| {
        let pid = name.strip_prefix("onbeat-preload-")?.split('-').next()?;
        recorders.contains(&pid.parse().ok()?).then_some(())
    };
    let named = entries.filter(|e| e.file_name().to_str().and_then(own).is_some());
    named.map(|entry| entry.path()).collect()
}

#[test]
fn a_recorder_that_is_killed_harms_nobody_and_what_it_left_is_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path());
    let (mut recorders, mut opened, mut with_events) = (vec![], 0, 0);
    for round in 0..ROUNDS {
        let trace = dir.path().join(format!("trace{round}"));
        let path = dir.path().join("count");
        let count = Count::new(&path);
        let mut recorder = record(dir.path(), &trace)
            .args([program.as_os_str(), "endless".as_ref(), path.as_os_str()])
            .process_group(0)
            .spawn()
            .expect("onbeat starts");
        // From the program's first publication on, at moments that no clock chooses.
        count.wait_beyond(round * round * 50);
        let is_long = round % 33 == 32;
        while is_long && !has_events(&trace) {
            std::thread::sleep(Duration::from_millis(50));
        }
        recorder.kill().expect("it is our child");
        recorder.wait().expect("it is our child");
        // It publishes on, far more than its ring has room for.
        count.wait_beyond(count.word(0) + 10_000);
        let pid = i32::try_from(count.word(1)).expect("a process");
        // SAFETY: ends a process of ours, which only we end.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
        recorders.push(recorder.id());
        match read(&trace) {
            Some(0) => opened += 1,
            Some(_) => (opened, with_events) = (opened + 1, with_events + 1),
            None => {}
        }
        assert!(!is_long || has_events(&trace), "it could be read before");
        fs::remove_dir_all(&trace).expect("the trace");
    }
    // The first rounds end before there is a trace, the long ones with events on the disk.
    assert!(opened >= 50 && with_events >= 3, "{opened}, {with_events}");
    let places = [dir.path(), Path::new("/dev/shm")];
    let all = || places.iter().flat_map(|place| left(place, &recorders));
    assert!(
        all().count() > 0,
        "nothing was left behind: not what is tested"
    );
    // As if some time had passed.
    for directory in all() {
        let open = File::open(directory).expect("a directory");
        let old = SystemTime::now() - Duration::from_secs(60);
        open.set_modified(old).expect("its time");
    }
    // It says that `true` is no ROS 2 program.
    let next = record(dir.path(), &dir.path().join("next"))
        .arg("true")
        .output();
    assert_eq!(next.expect("onbeat starts").status.code(), Some(3));
    assert_eq!(all().collect::<Vec<_>>(), [] as [PathBuf; 0]);
}

/// Events on the disk, all of which are readable but those of a block at the end that was not finished. None: there is
/// no trace yet.
fn read(trace: &Path) -> Option<usize> {
    if !trace.join("manifest.json").exists() {
        return None;
    }
    let mut reader = Reader::open(trace).expect("it has a manifest");
    let events = reader.events().count();
    let stats = reader.stats();
    assert_eq!(stats.damaged_blocks, 0, "{:?}", reader.warnings());
    assert!(stats.cut_blocks <= 1, "{:?}", reader.warnings());
    Some(events)
}

fn has_events(trace: &Path) -> bool {
    read(trace).is_some_and(|events| events > 0)
}

/// A recording by the library, whose files lie in this directory and in memory.
fn record(dir: &Path, trace: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat"));
    command
        .args(["record", "-o"])
        .arg(trace)
        .args(["--preload", "--"]);
    command.env("TMPDIR", dir).env_remove("XDG_RUNTIME_DIR");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}
