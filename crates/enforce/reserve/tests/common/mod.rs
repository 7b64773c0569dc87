//! Threads to be gated, readings of their state, and set-up for the tests.
#![allow(dead_code, clippy::undocumented_unsafe_blocks)]

pub mod helper;

use onbeat_reserve::{Choice, Options, Server};
use onbeat_time::Slot;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{mpsc, Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const MS: u64 = 1_000_000;
pub const HOUR: u64 = 3600 * 1000 * MS;

pub fn one_test_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lists the mechanisms that a test can use on this machine, and prints why one is left out. With
/// `ONBEAT_ENFORCER=sched-ext`, as `./dev test sched-ext` sets it in its guest, sched_ext is the
/// only one.
pub fn backends(test: &str) -> Vec<Choice> {
    let mut found = Vec::new();
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: {test}: needs root");
        return found;
    }
    if std::env::var_os("ONBEAT_ENFORCER").is_some_and(|e| e == "sched-ext") {
        return vec![Choice::SchedExt];
    }
    for (choice, kind) in [
        (Choice::CgroupV1, "cgroup rw,freezer"),
        (Choice::CgroupV2, "cgroup2 cgroup2 "),
    ] {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        match mounts.lines().any(|l| l.contains(kind)) {
            true => found.push(choice),
            false => println!("skipped: {test} with {choice:?}: not mounted here"),
        }
    }
    found
}

pub struct Dir(pub PathBuf, tempfile::TempDir);

impl Dir {
    pub fn new(name: &str) -> Dir {
        let dir = tempfile::Builder::new().prefix(name).tempdir().unwrap();
        Dir(dir.path().join("state"), dir)
    }

    pub fn ledgers(&self) -> usize {
        let files = fs::read_dir(&self.0).into_iter().flatten().flatten();
        files
            .filter(|f| f.path().extension().is_some_and(|e| e == "json"))
            .count()
    }
}

pub fn options(backend: Choice, dir: &Dir) -> Options {
    let mut options = Options::new(0);
    options.backend = backend;
    options.state_dir = dir.0.clone();
    options
}

pub fn cpu() -> u16 {
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) as u16 - 1 }
}

pub fn server(name: &str, priority: u8, slots_ns: &[(u64, u64)]) -> Server {
    Server {
        name: name.into(),
        cpu: cpu(),
        priority,
        slots: slots_ns.iter().map(|s| Slot::new(s.0, s.1)).collect(),
    }
}

pub fn now_ns() -> u64 {
    onbeat_time::clock::monotonic_ns()
}

pub fn gettid() -> u32 {
    unsafe { libc::gettid() as u32 }
}

pub fn ran_ns(tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadState {
    policy: i32,
    priority: i32,
    nice: i32,
    deadline: String,
    cpus: String,
    cgroups: String,
}

pub fn thread_state(tid: u32) -> ThreadState {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap();
    let cpus = status.lines().find(|l| l.starts_with("Cpus_allowed:"));
    unsafe {
        let mut attr: libc::sched_attr = std::mem::zeroed();
        let got = libc::syscall(libc::SYS_sched_getattr, tid, &mut attr, 48u32, 0u32);
        assert_eq!(got, 0);
        let deadline = match attr.sched_policy as i32 {
            libc::SCHED_DEADLINE => format!(
                "{} {} {}",
                { attr.sched_runtime },
                { attr.sched_deadline },
                { attr.sched_period }
            ),
            _ => String::new(),
        };
        ThreadState {
            policy: libc::sched_getscheduler(tid as i32),
            priority: attr.sched_priority as i32,
            nice: attr.sched_nice,
            deadline,
            cpus: cpus.unwrap().into(),
            cgroups: fs::read_to_string(format!("/proc/{tid}/cgroup")).unwrap(),
        }
    }
}

pub struct Worker {
    pub tid: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub fn new(work: impl Fn(&AtomicBool) + Send + 'static) -> Worker {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let (send, receive) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            send.send(gettid()).unwrap();
            work(&theirs);
        });
        Worker {
            tid: receive.recv().unwrap(),
            stop,
            thread: Some(thread),
        }
    }

    pub fn sleeping() -> Worker {
        Worker::new(|stop| {
            while !stop.load(Relaxed) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        })
    }

    pub fn spinning() -> Worker {
        Worker::new(|stop| while !stop.load(Relaxed) {})
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

pub fn wait_for(what: &str, mut came: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !came() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "waited for {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn assert_frozen(tid: u32) {
    // On a busy machine a thread may stand still for a while although its gate is open. This time
    // is long enough for it to run again sooner or later. A thread that was preempted when the gate
    // closed still has a few steps to go into the freezer.
    wait_for("the thread to be frozen", || {
        let before = ran_ns(tid).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        ran_ns(tid).unwrap() - before < MS / 2
    });
}

pub fn assert_runs(tid: u32) {
    let begin = ran_ns(tid).unwrap();
    wait_for("the thread to run", || ran_ns(tid).unwrap() > begin + MS);
}

pub fn groups_of(pid: u32) -> Vec<PathBuf> {
    fn walk(dir: &Path, start: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(start) {
                    found.push(entry.path());
                }
                walk(&entry.path(), start, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(
        Path::new("/sys/fs/cgroup"),
        &format!("onbeat-{pid}-"),
        &mut found,
    );
    found
}
