//! Tests of `onbeat recover`: the owner and the guard of a real reservation are killed, and the
//! command restores the threads.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_reserve::{Options, Reservation, Server};
use onbeat_time::Slot;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const MS: u64 = 1_000_000;

/// Runs in a separate process until that process is killed. Owns a reservation for the thread whose
/// id is in the environment variable `TID`.
#[test]
#[ignore = "a process that tests start"]
fn a_process_that_other_tests_start_owns_a_reservation() {
    let get = |name: &str| std::env::var(name).expect("set by the test");
    let mut options = Options::new(0);
    options.state_dir = get("STATE").into();
    options.lock_memory = false;
    let server = Server {
        name: "s".into(),
        cpu: last_cpu(),
        priority: 20,
        slots: vec![Slot::new(0, 10 * MS)],
    };
    let now_ns = onbeat_time::clock::monotonic_ns();
    let reservation = Reservation::start(100 * MS, &[server], now_ns, options).expect("it starts");
    let tid = get("TID").parse().expect("a thread");
    reservation.assign(tid, "s").expect("assigned");
    println!("SAYS taken");
    std::io::stdout().flush().expect("said");
    // The process sleeps until it is killed.
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn last_cpu() -> u16 {
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) as u16 - 1 }
}

fn can_reserve(test: &str) -> bool {
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: {test}: needs root");
        return false;
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let there = mounts.contains("rw,freezer") || mounts.contains(" cgroup2 ");
    if !there {
        println!("skipped: {test}: no freezer is mounted here");
    }
    there
}

fn likeness(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let cpus = status.lines().find(|l| l.starts_with("Cpus_allowed:"));
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it lives");
    let (policy, priority) = unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_getparam(pid as i32, &mut parameters);
        let policy = libc::sched_getscheduler(pid as i32);
        (policy, parameters.sched_priority)
    };
    format!("{policy} {priority} {cpus:?} {cgroups}")
}

fn wait_for(what: &str, mut came: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !came() {
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "waited for {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: u32) {
    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
}

fn guard_of(pid: u32) -> Option<u32> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once(") ")?;
        let parent: u32 = rest.split(' ').nth(1)?.parse().ok()?;
        (name.ends_with("(gate-keeper") && parent == pid).then_some(id)
    })
}

struct Scene {
    dir: tempfile::TempDir,
    target: Child,
    owner: Child,
    before: String,
}

impl Scene {
    fn set() -> Scene {
        let dir = tempfile::tempdir().expect("a directory");
        let target = Command::new("sleep").arg("3600").spawn().expect("sleep");
        wait_for("sleep to be executed", || {
            let name = fs::read_to_string(format!("/proc/{}/comm", target.id()));
            name.is_ok_and(|n| n.trim() == "sleep")
        });
        let before = likeness(target.id());
        let mut owner = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--exact",
                "--ignored",
                "--nocapture",
                "-q",
                "a_process_that_other_tests_start_owns_a_reservation",
            ])
            .env("STATE", dir.path().join("state"))
            .env("TID", target.id().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("an owner");
        let lines = BufReader::new(owner.stdout.take().expect("piped")).lines();
        let taken = lines
            .map_while(Result::ok)
            .any(|l| l.contains("SAYS taken"));
        let scene = Scene {
            dir,
            target,
            owner,
            before,
        };
        assert!(taken, "the owner takes the thread");
        scene
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn kill_both(&mut self) {
        let guard = guard_of(self.owner.id()).expect("a guard");
        for pid in [guard, self.owner.id()] {
            unsafe { libc::kill(pid as i32, libc::SIGSTOP) };
        }
        kill(guard);
        kill(self.owner.id());
        self.owner.wait().expect("killed");
        wait_for("the guard's end", || {
            let stat = fs::read_to_string(format!("/proc/{guard}/stat"));
            stat.map_or(true, |s| s.contains(") Z "))
        });
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.owner.kill();
        let _ = self.owner.wait();
        // The remains of a failed test would keep the process from ending.
        let _ = recover(&self.state(), &[]);
        let _ = self.target.kill();
        let _ = self.target.wait();
    }
}

fn recover(state: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onbeat"))
        .args(["recover", "--ledgers"])
        .arg(state)
        .args(words)
        .output()
        .expect("it runs")
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text} {output:?}"))
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn threads_are_restored_after_owner_and_guard_were_killed() {
    if !can_reserve("threads_are_restored_after_owner_and_guard_were_killed") {
        return;
    }
    let mut scene = Scene::set();
    let (state, pid) = (scene.state(), scene.target.id());
    // While the owner lives, nothing is changed.
    let shaped = likeness(pid);
    assert_ne!(shaped, scene.before);
    let refused = recover(&state, &[]);
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused));
    assert!(
        text(&refused).contains(&format!("kill {}", scene.owner.id())),
        "{}",
        text(&refused)
    );
    let left = recover(&state, &["--leave-living", "--json"]);
    assert_eq!(left.status.code(), Some(0), "{}", text(&left));
    assert_eq!(json(&left)["ledgers"][0]["standing"], "held");
    assert_eq!(likeness(pid), shaped);
    // A dry run changes nothing, and reports what would be done.
    scene.kill_both();
    assert_eq!(likeness(pid), shaped);
    let looked = recover(&state, &["--dry-run", "--json"]);
    assert_eq!(looked.status.code(), Some(0), "{}", text(&looked));
    let ledger = json(&looked)["ledgers"][0].clone();
    assert_eq!(ledger["standing"], "abandoned");
    assert_eq!(ledger["threads"][0]["tid"], pid);
    let was = ledger["threads"][0]["scheduling"].as_str();
    assert!(
        was.is_some_and(|w| w.starts_with("SCHED_OTHER, nice")),
        "{was:?}"
    );
    let group = ledger["groups"][0]["path"]
        .as_str()
        .expect("a path")
        .to_owned();
    assert!(Path::new(&group).exists());
    assert_eq!((likeness(pid), &ledger["restored"]), (shaped, &Value::Null));
    // The first call restores everything, and the second has nothing to do.
    let done = recover(&state, &[]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    assert!(
        text(&done).contains("restored 1 thread "),
        "{}",
        text(&done)
    );
    assert_eq!(likeness(pid), scene.before);
    assert!(!Path::new(&group).exists());
    let again = recover(&state, &[]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again));
    assert!(
        text(&again).contains("Nothing to restore"),
        "{}",
        text(&again)
    );
}

#[test]
fn recover_skips_ended_threads_and_refuses_foreign_paths() {
    if !can_reserve("recover_skips_ended_threads_and_refuses_foreign_paths") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("state");
    let absent = recover(&state, &[]);
    assert_eq!(absent.status.code(), Some(0), "{}", text(&absent));
    assert!(!state.exists(), "nothing is made by looking");
    // After a restart of the machine, groups and threads no longer exist.
    fs::create_dir(&state).expect("made");
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("chmod");
    let group = |dir: &Path| {
        let (members, home) = (dir.join("cgroup.procs"), "/sys/fs/cgroup/cgroup.procs");
        let group = serde_json::json!({"group": {"thaw": null, "members": members, "home": home, "dir": dir}});
        format!("{group}\n")
    };
    let thread = serde_json::json!({"thread": {
        "tid": 4_000_000, "tgid": 4_000_000, "start": 1, "cpus": [0], "home": null,
        "scheduling": {"policy": 0, "priority": 0, "nice": 0}}});
    let gone = format!("{thread}\n") + &group(Path::new("/sys/fs/cgroup/onbeat-1-1-0/s"));
    fs::write(state.join("onbeat-1-1-0.json"), gone).expect("written");
    let done = recover(&state, &["--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    let ledger = json(&done)["ledgers"][0].clone();
    assert_eq!(ledger["restored"]["gone"], 1, "{ledger}");
    assert_eq!(ledger["groups"][0]["found"], "gone", "{ledger}");
    // The path is outside of all cgroup mounts.
    let victim = dir.path().join("onbeat-victim");
    fs::create_dir(&victim).expect("made");
    fs::write(state.join("onbeat-1-1-1.json"), group(&victim)).expect("written");
    for words in [&["--dry-run", "--json"][..], &["--json"]] {
        let refused = recover(&state, words);
        assert_eq!(
            refused.status.code(),
            Some(i32::from(words.len() == 1)),
            "{}",
            text(&refused)
        );
        let ledger = json(&refused)["ledgers"][0].clone();
        assert_eq!(ledger["groups"][0]["found"], "refused", "{ledger}");
        assert!(victim.exists());
    }
}
