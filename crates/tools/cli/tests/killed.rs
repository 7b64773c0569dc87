//! Kills `onbeat record --preload` at a hundred moments. The recorded program must continue
//! unharmed, the written data must be readable, and the next recording must remove all leftovers.

use onbeat_trace::Reader;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

const ROUNDS: u64 = 100;

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
fn programs_survive_a_killed_recorder_and_its_leftovers_are_removed() {
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
        // The kill comes after a growing number of publications, so no clock decides the moment.
        count.wait_beyond(round * round * 50);
        let is_long = round % 33 == 32;
        while is_long && !has_events(&trace) {
            std::thread::sleep(Duration::from_millis(50));
        }
        recorder.kill().expect("it is our child");
        recorder.wait().expect("it is our child");
        // The program continues to publish, far more than its ring buffer can hold.
        count.wait_beyond(count.word(0) + 10_000);
        let pid = i32::try_from(count.word(1)).expect("a process");
        // SAFETY: only this test ends the process, which it has started.
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
    // The first rounds are killed before a trace exists; the long ones have events on the disk.
    assert!(opened >= 50 && with_events >= 3, "{opened}, {with_events}");
    let places = [dir.path(), Path::new("/dev/shm")];
    let all = || places.iter().flat_map(|place| left(place, &recorders));
    assert!(
        all().count() > 0,
        "nothing was left behind: not what is tested"
    );
    // The files are dated back by a minute, so they look abandoned.
    for directory in all() {
        let open = File::open(directory).expect("a directory");
        let old = SystemTime::now() - Duration::from_secs(60);
        open.set_modified(old).expect("its time");
    }
    // Exit code 3 reports that `true` is not a ROS 2 program.
    let next = record(dir.path(), &dir.path().join("next"))
        .arg("true")
        .output();
    assert_eq!(next.expect("onbeat starts").status.code(), Some(3));
    assert_eq!(all().collect::<Vec<_>>(), [] as [PathBuf; 0]);
}

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
