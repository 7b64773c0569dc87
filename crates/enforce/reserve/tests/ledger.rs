//! Ledgers that other users wrote or replaced by links. Root must not act on their content.

mod common;

use common::{one_test_at_a_time, server, MS};
use onbeat_reserve::{Entry, Group, Options, Reservation, StartError, Warning};
use std::fs::{self, Permissions};
use std::os::unix::fs::{chown, symlink, PermissionsExt};
use std::path::{Path, PathBuf};

const NOBODY: u32 = 65534;

struct Scene {
    _dir: tempfile::TempDir,
    state: PathBuf,
    victim: PathBuf,
    text: String,
}

fn hierarchy() -> PathBuf {
    let v1 = PathBuf::from("/sys/fs/cgroup/freezer");
    let v2 = PathBuf::from("/sys/fs/cgroup/unified");
    let there = [v1, v2]
        .into_iter()
        .find(|d| d.join("cgroup.procs").exists());
    there.unwrap_or_else(|| "/sys/fs/cgroup".into())
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.victim);
    }
}

impl Scene {
    fn set() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let victim = hierarchy().join(format!("onbeat-victim-{}", std::process::id()));
        fs::create_dir(&state).unwrap();
        fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(&victim).unwrap();
        let group = Entry::Group(Group {
            thaw: None,
            members: victim.join("cgroup.procs"),
            home: hierarchy().join("cgroup.procs"),
            dir: victim.clone(),
        });
        let text = serde_json::to_string(&group).unwrap() + "\n";
        Scene {
            _dir: dir,
            state,
            victim,
            text,
        }
    }

    fn start(&self) -> Result<Reservation, StartError> {
        let mut options = Options::new(0);
        options.state_dir = self.state.clone();
        options.dispatcher_priority = 1;
        Reservation::start(100 * MS, &[server("r", 0, &[(0, 100 * MS)])], 0, options)
    }

    fn not_recovered(&self) -> Vec<String> {
        let reservation = self.start().expect("it starts");
        let lines = reservation.warnings().iter().filter_map(|w| match w {
            Warning::NotRecovered(line) => Some(line.clone()),
            _ => None,
        });
        lines.collect()
    }
}

fn is_root(test: &str) -> bool {
    // SAFETY: the call cannot fail and takes no pointers.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        println!("skipped: {test}: needs root");
    }
    is_root
}

fn refuses(scene: &Scene, ledger: &Path, why: &str) {
    let lines = scene.not_recovered();
    assert!(scene.victim.exists(), "{lines:?}");
    assert!(
        ledger.symlink_metadata().is_ok(),
        "it is left to be looked at"
    );
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    let name = ledger.display().to_string();
    assert!(line.contains(&name) && line.contains(why), "{line}");
}

#[test]
fn changes_in_a_ledger_of_this_user_are_undone() {
    let _alone = one_test_at_a_time();
    if !is_root("changes_in_a_ledger_of_this_user_are_undone") {
        return;
    }
    let scene = Scene::set();
    fs::write(scene.state.join("a.json"), &scene.text).unwrap();
    assert_eq!(scene.not_recovered(), Vec::<String>::new());
    assert!(!scene.victim.exists(), "so that the other tests can fail");
}

#[test]
fn a_ledger_that_another_user_wrote_is_refused() {
    let _alone = one_test_at_a_time();
    if !is_root("a_ledger_that_another_user_wrote_is_refused") {
        return;
    }
    let scene = Scene::set();
    let ledger = scene.state.join("a.json");
    fs::write(&ledger, &scene.text).unwrap();
    chown(&ledger, Some(NOBODY), None).unwrap();
    refuses(
        &scene,
        &ledger,
        "another user owns the file or directory, or may write to it",
    );
    chown(&ledger, Some(0), None).unwrap();
    fs::set_permissions(&ledger, Permissions::from_mode(0o666)).unwrap();
    refuses(
        &scene,
        &ledger,
        "another user owns the file or directory, or may write to it",
    );
}

#[test]
fn a_link_or_pipe_in_place_of_a_ledger_is_refused_without_waiting() {
    let _alone = one_test_at_a_time();
    if !is_root("a_link_or_pipe_in_place_of_a_ledger_is_refused_without_waiting") {
        return;
    }
    let scene = Scene::set();
    let elsewhere = scene.state.with_file_name("elsewhere");
    fs::write(&elsewhere, &scene.text).unwrap();
    let ledger = scene.state.join("a.json");
    symlink(&elsewhere, &ledger).unwrap();
    refuses(&scene, &ledger, "symbolic link");
    fs::remove_file(&ledger).unwrap();
    // A careless open of a pipe would wait for its other end.
    let path = std::ffi::CString::new(ledger.to_str().unwrap()).unwrap();
    // SAFETY: the path ends with NUL and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    refuses(&scene, &ledger, "not a regular file");
}

#[test]
fn a_ledger_directory_that_others_can_write_to_is_refused() {
    let _alone = one_test_at_a_time();
    if !is_root("a_ledger_directory_that_others_can_write_to_is_refused") {
        return;
    }
    let scene = Scene::set();
    fs::write(scene.state.join("a.json"), &scene.text).unwrap();
    let refused = |scene: &Scene| {
        let error = scene.start().expect_err("refused").to_string();
        assert!(scene.victim.exists(), "{error}");
        assert!(error.lines().count() == 1, "{error}");
    };
    fs::set_permissions(&scene.state, Permissions::from_mode(0o770)).unwrap();
    refused(&scene);
    fs::set_permissions(&scene.state, Permissions::from_mode(0o700)).unwrap();
    chown(&scene.state, Some(NOBODY), None).unwrap();
    refused(&scene);
    chown(&scene.state, Some(0), None).unwrap();
    let real = scene.state.with_file_name("real");
    fs::rename(&scene.state, &real).unwrap();
    symlink(&real, &scene.state).unwrap();
    refused(&scene);
}

#[test]
fn a_directory_that_replaces_the_ledger_directory_is_ignored() {
    let _alone = one_test_at_a_time();
    if !is_root("a_directory_that_replaces_the_ledger_directory_is_ignored") {
        return;
    }
    let scene = Scene::set();
    let reservation = scene.start().expect("it starts");
    let (aside, theirs) = (
        scene.state.with_file_name("aside"),
        scene.state.with_file_name("theirs"),
    );
    let ledgers = |dir: &Path| {
        let files = fs::read_dir(dir).unwrap().map(|f| f.unwrap().file_name());
        files.filter(|n| n != "lock").collect::<Vec<_>>()
    };
    let names = ledgers(&scene.state);
    assert_eq!(names.len(), 1);
    fs::rename(&scene.state, &aside).unwrap();
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join(&names[0]), "theirs").unwrap();
    symlink(&theirs, &scene.state).unwrap();
    reservation.stop();
    assert_eq!(ledgers(&theirs), names, "nothing was removed there");
    assert_eq!(ledgers(&aside).len(), 0, "its own ledger is gone");
}

#[test]
fn undoing_a_ledger_changes_nothing_outside_of_cgroup_hierarchies() {
    let _alone = one_test_at_a_time();
    if !is_root("undoing_a_ledger_changes_nothing_outside_of_cgroup_hierarchies") {
        return;
    }
    let scene = Scene::set();
    let beside = scene.state.with_file_name("onbeat-beside");
    let inside = scene.victim.clone();
    let text = |dir: &Path, members: &Path, home: &Path, thaw: Option<(&Path, &str)>| {
        let group = Entry::Group(Group {
            thaw: thaw.map(|(file, text)| (file.into(), text.into())),
            members: members.into(),
            home: home.into(),
            dir: dir.into(),
        });
        serde_json::to_string(&group).unwrap() + "\n"
    };
    let procs = inside.join("cgroup.procs");
    let home = hierarchy().join("cgroup.procs");
    let frozen = inside.join("freezer.state");
    let up = inside.join("../onbeat-x/cgroup.procs");
    let note = beside.join("tasks");
    let texts = [
        text(&beside, &beside.join("tasks"), &home, None),
        text(&inside, &procs, &note, None),
        text(&inside, &note, &home, None),
        text(&inside, &procs, &up, None),
        text(&inside, &procs, &home, Some((&note, "THAWED"))),
        text(&inside, &procs, &home, Some((&frozen, "FROZEN"))),
        text(&inside, &procs, &hierarchy().join("release_agent"), None),
        text(&hierarchy(), &home, &home, None),
    ];
    for text in texts {
        fs::create_dir(&beside).unwrap();
        fs::write(beside.join("tasks"), "theirs").unwrap();
        let ledger = scene.state.join("a.json");
        fs::write(&ledger, &text).unwrap();
        let lines = scene.not_recovered();
        assert!(
            lines.len() == 1 && lines[0].contains("not a cgroup that a reservation made"),
            "{lines:?}"
        );
        assert!(ledger.exists(), "it is left to be looked at");
        assert!(inside.exists(), "{text}");
        assert_eq!(fs::read_to_string(beside.join("tasks")).unwrap(), "theirs");
        fs::remove_dir_all(&beside).unwrap();
    }
}

fn thread(tid: u32, change: &[(&str, serde_json::Value)]) -> String {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).unwrap();
    let start: u64 = stat
        .rsplit_once(") ")
        .unwrap()
        .1
        .split(' ')
        .nth(19)
        .unwrap()
        .parse()
        .unwrap();
    let mut thread = serde_json::json!({
        "tid": tid, "tgid": std::process::id(), "start": start,
        "scheduling": {"policy": 0, "priority": 0, "nice": 0},
        "cpus": [0, 1], "home": null,
    });
    for (key, value) in change {
        thread[*key] = value.clone();
    }
    serde_json::json!({ "thread": thread }).to_string()
}

struct Cpuset(PathBuf);

impl Cpuset {
    const ROOT: &str = "/sys/fs/cgroup/cpuset";

    fn of_last(tid: u32) -> Option<Cpuset> {
        let dir = Path::new(Cpuset::ROOT).join(format!("test-{}", std::process::id()));
        if common::cpu() == 0 || fs::create_dir(&dir).is_err() {
            println!(
                "skipped: a thread with a cpuset: no {} or one CPU",
                Cpuset::ROOT
            );
            return None;
        }
        let set = Cpuset(dir);
        for (file, text) in [("cpus", common::cpu().to_string()), ("mems", "0".into())] {
            fs::write(set.0.join(format!("cpuset.{file}")), text).unwrap();
        }
        fs::write(set.0.join("tasks"), tid.to_string()).unwrap();
        Some(set)
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let tasks = fs::read_to_string(self.0.join("tasks")).unwrap_or_default();
        for tid in tasks.lines() {
            let _ = fs::write(Path::new(Cpuset::ROOT).join("tasks"), tid);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn each_change_in_a_ledger_is_undone_even_if_other_changes_cannot_be_undone() {
    let _alone = one_test_at_a_time();
    if !is_root("each_change_in_a_ledger_is_undone_even_if_other_changes_cannot_be_undone") {
        return;
    }
    let scene = Scene::set();
    // The workers leave the CPU free, because the dispatcher has the lowest priority here.
    let workers = [(); 4].map(|()| {
        common::Worker::new(|stop| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        })
    });
    let before = common::thread_state(workers[0].tid);
    // A killed reservation leaves threads like this: at a real-time priority, on one CPU.
    for worker in &workers {
        let parameters = libc::sched_param { sched_priority: 3 };
        // SAFETY: the set and the parameters live during the calls.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut set);
            let tid = worker.tid as i32;
            assert_eq!(libc::sched_setaffinity(tid, size_of_val(&set), &set), 0);
            assert_eq!(
                libc::sched_setscheduler(tid, libc::SCHED_RR, &parameters),
                0
            );
        }
    }
    let [whole, torn, offline, refused] = workers.each_ref().map(|w| w.tid);
    let cpus: Vec<u16> = (0..=common::cpu()).collect();
    let cpus = || ("cpus", serde_json::json!(cpus));
    let mut bytes = thread(whole, &[cpus()]).into_bytes();
    bytes.push(b'\n');
    // The line is torn in the middle and not UTF-8, and ends where the next line begins.
    bytes.extend(&thread(torn, &[cpus()]).as_bytes()[..40]);
    bytes.extend([0xff, 0xfe, b'\n']);
    // This CPU has been removed since.
    bytes.extend(thread(offline, &[("cpus", serde_json::json!([4000]))]).bytes());
    bytes.push(b'\n');
    // The thread's cpuset does not contain this CPU. The policy must come back all the same.
    let cpuset = Cpuset::of_last(refused);
    bytes.extend(thread(refused, &[("cpus", serde_json::json!([0]))]).bytes());
    bytes.push(b'\n');
    fs::write(scene.state.join("a.json"), &bytes).unwrap();
    let lines = scene.not_recovered();
    assert_eq!(common::thread_state(whole), before);
    assert_eq!(
        common::thread_state(offline),
        before,
        "on those that are online"
    );
    let said = |word: &str| lines.iter().filter(|l| l.contains(word)).count();
    assert_eq!(
        (said("1 lines are incomplete"), said("offline")),
        (1, 1),
        "{lines:?}"
    );
    let failed = said(&format!("cannot restore thread {refused}"));
    assert_eq!(failed, usize::from(cpuset.is_some()), "{lines:?}");
    // SAFETY: the calls take no pointers.
    let policies = [refused, torn].map(|t| unsafe { libc::sched_getscheduler(t as i32) });
    assert_eq!(policies, [libc::SCHED_OTHER, libc::SCHED_RR]);
}
