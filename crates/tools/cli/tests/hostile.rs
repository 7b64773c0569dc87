//! Tests of `onbeat record` as root beside hostile processes of another user: with prepared files,
//! with names that act on terminals, and with more objects than a robot has.
//!
//! The test has its own harness, which lists skipped tests by name and reason. The hostile
//! processes are this program again, called with a word that selects the attack.

#[macro_use]
mod common;

#[path = "common/served.rs"]
mod served;

use common::{program, Test};
use onbeat_trace::Reader;
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65534;

struct Harness {
    dir: tempfile::TempDir,
    own: PathBuf,
}

impl Harness {
    fn new() -> Result<Harness, String> {
        // SAFETY: `geteuid` cannot fail and takes no arguments.
        if unsafe { libc::geteuid() } != 0 {
            return Err("not root: there is no other user to be harmed by".into());
        }
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("chmod");
        let own = dir.path().join("hostile");
        fs::copy(std::env::current_exe().expect("it runs"), &own).expect("copied");
        fs::set_permissions(&own, Permissions::from_mode(0o755)).expect("chmod");
        let harness = Harness { dir, own };
        let mut probe = harness.recorder("probe");
        let own_id = std::process::id().to_string();
        let probe = probe.args(["--pid", &own_id, "--duration", "1ms"]);
        let probe = probe.output().expect("it starts");
        match probe.status.code() {
            Some(4) => Err(String::from_utf8_lossy(&probe.stderr).trim().into()),
            _ => Ok(harness),
        }
    }

    fn recorder(&self, trace: &str) -> Command {
        let mut command = Command::new(program());
        command
            .args(["record", "-o", trace])
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    fn hostile(&self, words: &[&str]) -> Ended {
        let folder = self.dir.path().join(words[0]);
        fs::create_dir(&folder).expect("a directory");
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("chmod");
        let child = Command::new(&self.own)
            .arg("hostile")
            .args(words)
            .current_dir(&folder)
            .spawn()
            .expect("it starts");
        let ready = folder.join("ready");
        wait_until("the hostile process is ready", || ready.exists());
        Ended(child)
    }

    fn record(&self, trace: &str) -> Recorded {
        self.record_until(trace, || true)
    }

    fn record_until(&self, trace: &str, enough: impl FnMut() -> bool) -> Recorded {
        let recorder = self
            .recorder(trace)
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let path = self.dir.path().join(trace);
        let mut recorder = Ended(recorder);
        let id = recorder.0.id();
        // The first manifest is written before running processes are probed.
        wait_until("the recorder records", || {
            Reader::open(&path).is_ok_and(|trace| trace.manifest().span.start_monotonic_ns > 0)
        });
        std::thread::sleep(Duration::from_secs(1));
        wait_until("there is enough to record", enough);
        let peak_kib = peak_if_it_runs(id).expect("it runs");
        // SAFETY: a plain system call on a child that has not been waited for.
        unsafe { libc::kill(id as i32, libc::SIGTERM) };
        wait_until("the recorder ends", || {
            recorder.0.try_wait().expect("a child").is_some()
        });
        let status = recorder.0.wait().expect("it ended");
        let mut stderr = recorder.0.stderr.take().expect("it was asked for");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(std::io::read_to_string(&mut stderr)));
        let said = told.recv_timeout(Duration::from_secs(60));
        let said = said.expect("whoever it leaves behind does not hold its output open");
        let said = said.expect("text");
        assert!(matches!(status.code(), Some(0 | 3)), "{status}: {said}");
        Recorded {
            said,
            path,
            peak_kib,
        }
    }
}

struct Recorded {
    said: String,
    path: PathBuf,
    peak_kib: u64,
}

fn peak_if_it_runs(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().split(' ').next()?.parse().ok()
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !reached() {
        assert!(
            begin.elapsed() < Duration::from_secs(240),
            "not within four minutes: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn map(path: &Path) -> usize {
    let file = File::open(path).expect("it was made");
    // SAFETY: the mapping is new and nobody reads it.
    let place = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(place, libc::MAP_FAILED);
    place as usize
}

fn fifo(path: &Path) {
    let text = CString::new(path.as_os_str().as_bytes()).expect("no zero in it");
    // SAFETY: the text ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o666) }, 0);
}

/// Maps a file, then changes to a root directory with a FIFO at the same path, and becomes the user
/// nobody. Any user can do this in a user namespace.
fn map_beside_fifo(library: &Path) {
    let here = std::env::current_dir().expect("it is there");
    fs::write(library, [0; 4096]).expect("written");
    map(&here.join(library));
    let jail = here.join("jail");
    let inside = jail.join(here.join(library).strip_prefix("/").expect("a whole path"));
    fs::create_dir_all(inside.parent().expect("it has one")).expect("made");
    fifo(&inside);
    let text = CString::new(jail.as_os_str().as_bytes()).expect("no zero in it");
    // SAFETY: plain system calls with a text that ends with a zero.
    unsafe {
        assert_eq!(libc::chroot(text.as_ptr()), 0);
        assert_eq!(libc::setgid(NOBODY), 0);
        assert_eq!(libc::setuid(NOBODY), 0);
    }
}

fn attack(words: &[String]) {
    match words[0].as_str() {
        // A FIFO replaces the library by which a process is recognised as a ROS 2 process.
        "fifo" => map_beside_fifo(Path::new("libtracetools.so")),
        // The same attack below a directory whose name contains a terminal escape.
        "name" => {
            fs::create_dir("\x1b[31m").expect("made");
            map_beside_fifo(&Path::new("\x1b[31m").join("libtracetools.so"));
        }
        // Files of 1 GiB of zeros replace the libraries.
        "sparse" => {
            for name in ["libtracetools.so", "librcl.so", "librmw_hostile_cpp.so"] {
                fs::copy("/bin/true", name).expect("copied");
                let _ = map(&Path::new(name).canonicalize().expect("it is there"));
                let file = File::options().write(true).open(name).expect("our own");
                file.set_len(1 << 30).expect("room for nothing");
            }
        }
        // The file belongs to a file system that no longer answers.
        "served" => {
            serve();
            map(&Path::new("served").join(served::NAME));
            stop_answering();
            be_nobody();
        }
        // The recorder follows a pointer into memory mapped from such a file.
        "speechless" => wait_on_silent_memory(),
        other => panic!("{other}?"),
    }
    fs::write("ready", b"").expect("written");
    // The test kills this process.
    std::thread::sleep(Duration::from_secs(1000));
}

fn be_nobody() {
    // SAFETY: plain system calls.
    unsafe {
        assert_eq!(libc::setgid(NOBODY), 0);
        assert_eq!(libc::setuid(NOBODY), 0);
    }
}

fn serve() {
    fs::create_dir("served").expect("made");
    let on = Path::new("served").canonicalize().expect("it is there");
    served::mount(&on);
    // The kernel asks for a FLUSH at the first close only.
    drop(File::open(on.join(served::NAME)).expect("it is served"));
}

fn stop_answering() {
    fs::write(served::SILENT, b"").expect("written");
}

const WAITS: &str = "waits";

fn wait_on_silent_memory() {
    let text = |text: &str| CString::new(text).expect("no zero in it");
    // SAFETY: the libraries belong to this test, and their functions take numbers and do not use
    // them.
    let wait: extern "C" fn(*const [usize; 10], i64) = unsafe {
        for name in ["../libtracetools.so", "../librcl.so"] {
            assert!(
                !libc::dlopen(text(name).as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL).is_null()
            );
        }
        let function = libc::dlsym(libc::RTLD_DEFAULT, text("rcl_wait").as_ptr());
        assert!(!function.is_null());
        std::mem::transmute(function)
    };
    serve();
    let handle = [map(&Path::new("served").join(served::NAME))];
    let mut set = [0; 10];
    (set[0], set[1]) = (handle.as_ptr() as usize, handle.len());
    stop_answering();
    be_nobody();
    fs::write("ready", b"").expect("written");
    for round in 0u64.. {
        wait(&set, 0);
        fs::write(WAITS, round.to_string()).expect("written");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn a_fifo_in_the_place_of_a_library_is_left_out_and_named(harness: &Harness) {
    let _hostile = harness.hostile(&["fifo"]);
    let Recorded { said, path, .. } = harness.record("beside-fifo");
    assert!(
        said.contains("libtracetools.so: the file is not a regular file"),
        "{said}"
    );
    let reader = Reader::open(&path).expect("a trace");
    let coverage = &reader.manifest().coverage;
    assert!(
        coverage.iter().any(|s| s.contains("not a regular file")),
        "{coverage:?}"
    );
}

fn a_sparse_file_in_the_place_of_a_library_takes_no_memory(harness: &Harness) {
    let _hostile = harness.hostile(&["sparse"]);
    let peak = harness.record("beside-sparse").peak_kib;
    assert!(peak < 512 << 10, "{peak} KiB");
}

fn a_name_of_another_user_cannot_act_on_the_terminal(harness: &Harness) {
    let _hostile = harness.hostile(&["name"]);
    let Recorded { said, .. } = harness.record("beside-name");
    assert!(said.contains("libtracetools.so"), "{said}");
    assert!(!said.contains('\x1b'), "{said:?}");
}

/// The source of a program that pretends to create more nodes and to take more messages than any
/// robot has.
const FLOOD: &str = r#"
#include <stdio.h>
void ros_trace_rcl_init(void *context);
void ros_trace_callback_start(void *callback, int intra_process);
void ros_trace_rcl_node_init(void *node, void *rmw, char *name, char *namespace);
void ros_trace_rmw_take(void *rmw, void *message, long source_ns, int taken);
int main(void)
{
	char name[64];
	ros_trace_rcl_init(0);
	ros_trace_callback_start((void *)1, 0);
	for (unsigned long n = 1; n <= 10000; n++) {
		snprintf(name, sizeof(name), "n%lu", n);
		ros_trace_rcl_node_init((void *)(n * 8), (void *)(n * 8), name, "/");
		for (unsigned long m = 0; m < 4; m++)
			ros_trace_rmw_take((void *)((n * 4 + m) * 8), 0, 1, 1);
	}
	return 0;
}
"#;

const TRACETOOLS: &str = r#"
static volatile unsigned long calls;
void ros_trace_rcl_init(void *context) { calls++; }
void ros_trace_callback_start(void *callback, int intra_process) { calls++; }
void ros_trace_callback_end(void *callback) { calls++; }
void ros_trace_rcl_node_init(void *node, void *rmw, char *name, char *namespace) { calls++; }
void ros_trace_rmw_take(void *rmw, void *message, long source_ns, int taken) { calls++; }
"#;

const RCL: &str = r#"
static volatile unsigned long calls;
void rcl_wait(void *set, long timeout_ns) { calls++; }
"#;

fn compile(harness: &Harness, source: &str, name: &str, words: &[&str]) {
    let path = harness.dir.path().join(format!("{name}.c"));
    fs::write(&path, source).expect("written");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let built = Command::new(clang)
        .current_dir(harness.dir.path())
        .args(["-O1", "-o", name])
        .arg(&path)
        .args(words)
        .status();
    assert!(built.expect("clang starts").success());
}

fn tracetools(harness: &Harness) {
    let words = ["-shared", "-fPIC"];
    compile(harness, TRACETOOLS, "libtracetools.so", &words);
}

fn a_flood_of_nodes_is_listed_up_to_a_limit_and_counted(harness: &Harness) {
    tracetools(harness);
    compile(
        harness,
        FLOOD,
        "flood",
        &["libtracetools.so", "-Wl,-rpath,$ORIGIN"],
    );
    let mut recorder = harness.recorder("flooded");
    let recorder = recorder
        .args(["--", "./flood"])
        .stderr(Stdio::piped())
        .spawn();
    let mut recorder = Ended(recorder.expect("it starts"));
    let id = recorder.0.id();
    let mut peak = 0;
    let mut status = None;
    wait_until("the recorder ends with the flood", || {
        peak = peak_if_it_runs(id).unwrap_or(0).max(peak);
        status = recorder.0.try_wait().expect("a child");
        status.is_some()
    });
    let mut said = String::new();
    let stderr = recorder.0.stderr.as_mut().expect("it was asked for");
    std::io::Read::read_to_string(stderr, &mut said).expect("text");
    assert!(
        status.is_some_and(|status| status.success()),
        "{status:?}: {said}"
    );
    assert!(peak < 512 << 10, "{peak} KiB");
    let reader = Reader::open(harness.dir.path().join("flooded")).expect("a trace");
    assert_eq!(reader.manifest().observed.processes[0].nodes.len(), 4096);
    assert!(
        said.contains("5904 nodes are missing in the manifest"),
        "{said}"
    );
    assert!(said.contains("35904 calls were not counted"), "{said}");
}

fn a_file_system_that_does_not_answer_is_not_waited_for(harness: &Harness) {
    let hostile = harness.hostile(&["served"]);
    let said = harness.record("beside-served").said;
    let process = format!("process {}: ", hostile.0.id());
    let line = said.lines().find(|line| line.contains(&process));
    assert!(
        line.is_some_and(
            |line| line.contains("a program (FUSE) serves the file system of the file")
        ),
        "{said}"
    );
}

fn memory_that_does_not_answer_is_not_waited_for(harness: &Harness) {
    tracetools(harness);
    compile(harness, RCL, "librcl.so", &["-shared", "-fPIC"]);
    let hostile = harness.hostile(&["speechless"]);
    let waits = harness.dir.path().join("speechless").join(WAITS);
    let waits = || fs::read_to_string(&waits).ok()?.parse::<u64>().ok();
    let mut before = None;
    let Recorded { said, path, .. } = harness.record_until("beside-speechless", || {
        // The first wait that is seen may have begun before the recording.
        let now = waits();
        before = before.or(now);
        now > before.map(|n| n + 1)
    });
    // Other such processes of the same user may be in the same line.
    let process = hostile.0.id().to_string();
    let line = said.lines().find(|line| line.contains("did not answer"));
    assert!(
        line.is_some_and(|line| {
            line.contains(&process) && line.contains("from processes of user 65534, because")
        }),
        "{said}"
    );
    let reader = Reader::open(path).expect("a trace");
    let processes = &reader.manifest().observed.processes;
    assert!(
        processes.iter().any(|p| p.pid == hostile.0.id()),
        "{processes:?}"
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "hostile") {
        attack(&words[1..]);
        return;
    }
    let tests: &[Test<Harness>] = tests![
        a_fifo_in_the_place_of_a_library_is_left_out_and_named,
        a_sparse_file_in_the_place_of_a_library_takes_no_memory,
        a_name_of_another_user_cannot_act_on_the_terminal,
        a_flood_of_nodes_is_listed_up_to_a_limit_and_counted,
        a_file_system_that_does_not_answer_is_not_waited_for,
        memory_that_does_not_answer_is_not_waited_for,
    ];
    common::run(tests, &Harness::new(), |name| {
        let is_served = name.contains("does_not_answer") && File::open("/dev/fuse").is_err();
        is_served.then(|| "/dev/fuse cannot be opened: no program can serve a file system".into())
    });
}
