//! Gated threads run on if the dispatcher or its guard is stopped in any way. The tests use real
//! processes and signals, and check that the threads make progress.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;

use common::helper::*;
use common::*;
use onbeat_reserve::{recover_in, Choice, Recovery, Reservation, Standing};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Duration;

const CYCLE: u64 = 100 * MS;
const SLOT: u64 = 10 * MS;

#[test]
#[ignore = "a process that tests start"]
fn a_process_that_other_tests_start_runs_target_threads() {
    run_target(|| {
        Worker::new(|stop: &AtomicBool| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    });
}

/// Is the body of a process that other tests start. It owns a reservation: it assigns one thread to
/// a server with a short slot and places another thread. It answers each line of input with its
/// counters. When the guard is lost, it puts the threads back, as `onbeat shape` does.
#[test]
#[ignore = "a process that tests start"]
fn a_process_that_other_tests_start_owns_a_reservation() {
    let get = |name: &str| std::env::var(name).unwrap();
    if !get("GROUP").is_empty() {
        fs::write(get("GROUP") + "/cgroup.procs", "0").unwrap();
    }
    let mut options = onbeat_reserve::Options::new(0);
    options.backend = match get("BACKEND").as_str() {
        "CgroupV1" => Choice::CgroupV1,
        _ => Choice::CgroupV2,
    };
    options.state_dir = get("STATE").into();
    options.lock_memory = false;
    let servers = [server("r", 20, &[(0, SLOT)])];
    let started = Reservation::start(CYCLE, &servers, now_ns(), options);
    let mut reservation = Some(started.unwrap());
    let tids: Vec<u32> = get("TIDS").split(' ').map(|t| t.parse().unwrap()).collect();
    let running = reservation.as_ref().unwrap();
    running.assign(tids[0], "r").unwrap();
    running.place(tids[1], 0, 1).unwrap();
    say("taken");
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).unwrap() > 0 {
        let Some(running) = &reservation else {
            say("ended");
            continue;
        };
        let stats = running.stats();
        if stats.pauses.guard_lost {
            reservation = None;
            say("ended");
            continue;
        }
        say(&format!(
            "{} {} {}",
            stats.closing.count(),
            stats.pauses.thawed_by_guard,
            stats.pauses.guard_silent
        ));
    }
}

struct Scene {
    target: Helper,
    owner: Helper,
    guard: u32,
    dir: Dir,
    backend: Choice,
    tids: [u32; 2],
    before: [ThreadState; 2],
}

#[derive(Debug, Clone, Copy)]
enum Reply {
    Ended,
    Counts {
        closings: u64,
        thawed: u64,
        silent: u64,
    },
}

impl Scene {
    fn set(backend: Choice) -> Scene {
        Scene::set_in(backend, None)
    }

    fn set_in(backend: Choice, group: Option<&Path>) -> Scene {
        let dir = Dir::new("deadman");
        let mut target = Helper::start(
            "a_process_that_other_tests_start_runs_target_threads",
            &[],
            None,
        );
        let said = target.next_output();
        let (a, b) = said.split_once(' ').unwrap();
        let tids = [a.parse().unwrap(), b.parse().unwrap()];
        let before = tids.map(thread_state);
        let environment = [
            ("BACKEND", format!("{backend:?}")),
            ("STATE", dir.0.to_str().unwrap().to_owned()),
            ("TIDS", said),
            (
                "GROUP",
                group.map_or("", |g| g.to_str().unwrap()).to_owned(),
            ),
        ];
        let mut owner = Helper::start(
            "a_process_that_other_tests_start_owns_a_reservation",
            &environment,
            None,
        );
        assert_eq!(owner.next_output(), "taken");
        let guard = guard_of(owner.child.id()).unwrap();
        Scene {
            target,
            owner,
            guard,
            dir,
            backend,
            tids,
            before,
        }
    }

    fn pid(&self, who: Who) -> u32 {
        match who {
            Who::Owner => self.owner.child.id(),
            Who::Guard => self.guard,
        }
    }

    fn signal(&mut self, who: Who, signal: i32, may_have_ended: bool) {
        let pid = self.pid(who);
        let is_sent = unsafe { libc::kill(pid as i32, signal) } == 0;
        assert!(is_sent || may_have_ended, "{who:?} has ended");
        let wanted = |states: &str| match signal {
            libc::SIGSTOP => states.chars().all(|s| "TZX".contains(s)),
            libc::SIGCONT => !states.contains('T'),
            _ => states.chars().all(|s| "ZX".contains(s)),
        };
        wait_for("the signal's effect", || wanted(&states(pid)));
    }

    fn ask(&mut self) -> Reply {
        use std::io::Write;
        let input = self.owner.input.as_mut().unwrap();
        writeln!(input).unwrap();
        let said = self.owner.next_output();
        let mut numbers = said.split(' ').map_while(|n| n.parse().ok());
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(closings), Some(thawed), Some(silent)) => Reply::Counts {
                closings,
                thawed,
                silent,
            },
            _ => Reply::Ended,
        }
    }

    fn thawed(&mut self) -> u64 {
        match self.ask() {
            Reply::Counts { thawed, .. } => thawed,
            Reply::Ended => 0,
        }
    }

    fn wait_until_said(&mut self, what: &str, is: impl Fn(Reply) -> bool) {
        wait_for(what, || is(self.ask()));
    }

    fn assert_shaped(&mut self) {
        let Reply::Counts { closings, .. } = self.ask() else {
            panic!("it has ended");
        };
        self.wait_until_said(
            "the table to be resumed",
            |said| matches!(said, Reply::Counts { closings: now, .. } if now >= closings + 3),
        );
    }

    fn assert_progress(&self, what: &str) {
        let begin = turns(self.tids[0]).unwrap();
        wait_for(what, || turns(self.tids[0]).unwrap() > begin + 100);
    }

    fn assert_put_back(&self) {
        wait_for("everything to be put back", || self.dir.ledgers() == 0);
        assert_eq!(self.tids.map(thread_state), self.before);
        let pid = self.owner.child.id();
        assert_eq!(groups_of(pid), Vec::<std::path::PathBuf>::new());
        self.tids.into_iter().for_each(|tid| {
            let begin = turns(tid).unwrap();
            wait_for("the thread to run", || turns(tid).unwrap() > begin);
        });
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for pid in [self.owner.child.id(), self.guard] {
            if !states(pid).is_empty() {
                unsafe { libc::kill(pid as i32, libc::SIGCONT) };
            }
        }
    }
}

struct Group {
    dir: PathBuf,
    file: &'static str,
    resume: &'static str,
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.dir.join(self.file), self.resume);
        let _ = fs::remove_dir(&self.dir);
    }
}

fn states(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let state = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(state)
        .collect()
}

fn turns(tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    text.split_whitespace().nth(2)?.parse().ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Owner,
    Guard,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Stop,
    Continue,
    Kill,
}

type Sequence = Vec<(Who, Step)>;

fn sequences() -> Vec<Sequence> {
    use Step::{Continue, Kill, Stop};
    let scripts: [&[Step]; 4] = [&[Stop, Continue], &[Stop, Kill], &[Kill], &[Stop]];
    let mut found = Vec::new();
    for owner in &scripts[..3] {
        for guard in scripts {
            interleave(owner, guard, &mut Vec::new(), &mut found);
        }
    }
    found
}

fn interleave(owner: &[Step], guard: &[Step], done: &mut Sequence, found: &mut Vec<Sequence>) {
    if owner.is_empty() && guard.is_empty() {
        found.push(done.clone());
    }
    for (who, script) in [(Who::Owner, owner), (Who::Guard, guard)] {
        let [first, rest @ ..] = script else { continue };
        done.push((who, *first));
        match who {
            Who::Owner => interleave(rest, guard, done, found),
            Who::Guard => interleave(owner, rest, done, found),
        }
        done.pop();
    }
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    owner: Option<Step>,
    guard: Option<Step>,
    watched: bool,
    thawed: u64,
    ended: bool,
}

impl Pair {
    fn take(&mut self, (who, step): (Who, Step)) {
        match who {
            Who::Owner => {
                self.owner = Some(step);
                self.watched |= step == Step::Stop && Pair::runs(self.guard);
            }
            Who::Guard => self.guard = Some(step),
        }
    }

    fn runs(step: Option<Step>) -> bool {
        matches!(step, None | Some(Step::Continue))
    }
}

fn take(scene: &mut Scene, pair: &mut Pair, (who, step): (Who, Step)) {
    if (who, step, pair.ended) == (Who::Owner, Step::Stop, false) {
        pair.thawed = scene.thawed();
    }
    // After a proper end together with its owner, the guard process no longer exists.
    if !(pair.ended && who == Who::Guard) {
        let signal = match step {
            Step::Stop => libc::SIGSTOP,
            Step::Continue => libc::SIGCONT,
            Step::Kill => libc::SIGKILL,
        };
        // A guard ends after it has put everything back for its dead owner.
        let may_have_ended = who == Who::Guard && pair.owner == Some(Step::Kill);
        scene.signal(who, signal, may_have_ended);
    }
    pair.take((who, step));
    let owner_runs = Pair::runs(pair.owner);
    scene.assert_progress("the thread to run on");
    if !owner_runs || pair.ended {
        return;
    }
    match (who, step) {
        (Who::Guard, Step::Stop) => scene.wait_until_said(
            "the guard's silence to be noticed",
            |said| matches!(said, Reply::Counts { silent, .. } if silent > 0),
        ),
        (_, Step::Kill) | (Who::Owner, Step::Continue) if pair.guard == Some(Step::Kill) => {
            scene.wait_until_said("the guard to be missed", |said| {
                matches!(said, Reply::Ended)
            });
            pair.ended = true;
            scene.assert_put_back();
        }
        (_, Step::Continue) if Pair::runs(pair.guard) => {
            if who == Who::Owner && pair.watched {
                let before = pair.thawed;
                let noted = |s| matches!(s, Reply::Counts { thawed, .. } if thawed > before);
                scene.wait_until_said("the thaw to be noted", noted);
            }
            scene.assert_shaped();
        }
        _ => {}
    }
    scene.assert_progress("the thread to run on");
}

fn run(backend: Choice, sequence: &Sequence) {
    let mut scene = Scene::set(backend);
    scene.assert_shaped();
    let mut pair = Pair {
        owner: None,
        guard: None,
        watched: false,
        thawed: 0,
        ended: false,
    };
    for &step in sequence {
        take(&mut scene, &mut pair, step);
    }
    // At the end, the process that can still do so puts everything back, or the next reservation
    // does.
    let owner = pair.owner == Some(Step::Kill);
    let guard = !Pair::runs(pair.guard);
    if !owner {
        drop(scene.owner.input.take());
        assert!(scene.owner.child.wait().unwrap().success());
    } else if guard {
        let mut options = options(scene.backend, &scene.dir);
        options.lock_memory = false;
        drop(Reservation::start(CYCLE, &[], 0, options).unwrap());
    }
    scene.assert_put_back();
    let _ = scene.target.input.take();
}

#[test]
fn threads_run_on_when_owner_and_guard_are_stopped_or_killed_in_any_order() {
    let _alone = one_test_at_a_time();
    let name = "threads_run_on_when_owner_and_guard_are_stopped_or_killed_in_any_order";
    let sequences = sequences();
    assert_eq!(sequences.len(), 46);
    for backend in backends(name) {
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some(sequence) = sequences.get(next.fetch_add(1, Ordering::Relaxed)) {
                let ran = std::panic::catch_unwind(|| run(backend, sequence));
                if ran.is_err() {
                    failed.lock().unwrap().push(sequence);
                }
            }
        };
        // The tests run in parallel because they mostly wait.
        std::thread::scope(|scope| {
            (0..6).for_each(|_| drop(scope.spawn(work)));
        });
        let failed = failed.into_inner().unwrap();
        assert!(failed.is_empty(), "{backend:?}: {failed:#?}");
    }
}

#[test]
fn threads_run_on_while_the_dispatcher_starves() {
    let _alone = one_test_at_a_time();
    for backend in backends("threads_run_on_while_the_dispatcher_starves") {
        let mut scene = Scene::set(backend);
        scene.assert_shaped();
        let before = scene.thawed();
        let spinner = Worker::new(|stop| {
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(0, &mut set);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
                let parameters = libc::sched_param { sched_priority: 99 };
                let set = libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters);
                assert_eq!(set, 0);
            }
            while !stop.load(Ordering::Relaxed) {}
        });
        wait_for("the spinner", || ran_ns(spinner.tid).unwrap() > 2 * CYCLE);
        scene.assert_progress("the thread to run on");
        drop(spinner);
        let noted = |said| matches!(said, Reply::Counts { thawed, .. } if thawed > before);
        scene.wait_until_said("the thaw to be noted", noted);
        scene.assert_shaped();
        drop(scene.owner.input.take());
        assert!(scene.owner.child.wait().unwrap().success());
        scene.assert_put_back();
    }
}

/// The guard must survive both: a container runtime that pauses or kills all processes of the
/// owner's cgroup, and a program that kills commands by name.
#[test]
fn pausing_the_owners_cgroup_does_not_pause_the_guard() {
    let _alone = one_test_at_a_time();
    let freezers = [
        (
            "/sys/fs/cgroup/freezer",
            "freezer.state",
            ["FROZEN", "THAWED"],
        ),
        ("/sys/fs/cgroup/unified", "cgroup.freeze", ["1", "0"]),
    ];
    for backend in backends("pausing_the_owners_cgroup_does_not_pause_the_guard") {
        for (root, file, [pause, resume]) in freezers {
            let group = Path::new(root).join(format!("owner-{}", std::process::id()));
            if fs::create_dir(&group).is_err() {
                println!("skipped: a pause by {root}: it is not there");
                continue;
            }
            let group = Group {
                dir: group,
                file,
                resume,
            };
            let mut scene = Scene::set_in(backend, Some(&group.dir));
            scene.assert_shaped();
            let before = scene.thawed();
            let guard = scene.guard;
            let members = fs::read_to_string(group.dir.join("cgroup.procs")).unwrap();
            let owner = scene.owner.child.id().to_string();
            assert_eq!(members.lines().collect::<Vec<_>>(), [owner]);
            fs::write(group.dir.join(file), pause).unwrap();
            scene.assert_progress("the thread to run on");
            scene.assert_progress("the thread to run on");
            fs::write(group.dir.join(file), resume).unwrap();
            let noted = |said| matches!(said, Reply::Counts { thawed, .. } if thawed > before);
            scene.wait_until_said("the thaw to be noted", noted);
            scene.assert_shaped();
            for file in ["comm", "cmdline"] {
                let text = fs::read_to_string(format!("/proc/{guard}/{file}")).unwrap();
                assert!(
                    !text.contains("a_process_that_other_tests_start_owns_a_reservation")
                        && !text.contains("onbeat"),
                    "{text:?}"
                );
                assert!(text.starts_with("gate-keeper"), "{text:?}");
            }
            scene.owner.kill(libc::SIGKILL);
            scene.owner.child.wait().unwrap();
            scene.assert_put_back();
        }
    }
}

struct Traced(i32);

impl Traced {
    fn new(pid: u32) -> Traced {
        let pid = pid as i32;
        let none = std::ptr::null_mut::<libc::c_void>();
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, pid, none, none), 0);
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, pid, none, none), 0);
            assert_eq!(libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL), pid);
        }
        Traced(pid)
    }

    /// Waits for the end of the traced process. The kernel reports this end to the tracer first,
    /// and then to the parent of the process.
    fn reap(self) {
        let mut status = 0;
        unsafe {
            while libc::waitpid(self.0, &mut status, libc::__WALL) == self.0
                && libc::WIFSTOPPED(status)
            {}
        }
    }
}

/// Recovery kills a guard that does not continue, and then does the guard's work itself. Meanwhile
/// other sessions are not delayed.
#[test]
fn recovery_kills_a_guard_that_stays_silent() {
    let _alone = one_test_at_a_time();
    for backend in backends("recovery_kills_a_guard_that_stays_silent") {
        let mut scene = Scene::set(backend);
        scene.assert_shaped();
        let traced = Traced::new(scene.guard);
        scene.owner.kill(libc::SIGKILL);
        scene.owner.child.wait().unwrap();
        let recovered = |dry_run, wait_for_guard| {
            let how = Recovery {
                dry_run,
                wait_for_guard,
            };
            recover_in(&scene.dir.0, how).unwrap().remove(0)
        };
        let looked = recovered(true, Duration::ZERO);
        assert_eq!(looked.standing, Standing::Guarded, "nothing is changed");
        std::thread::scope(|scope| {
            let recovery = scope.spawn(|| recovered(false, Duration::from_secs(3)));
            // Ledgers of living sessions are in the same directory.
            let lock = fs::File::open(scene.dir.0.join("lock")).unwrap();
            let lock = std::os::fd::AsRawFd::as_raw_fd(&lock);
            wait_for("the lock to be free while the guard is waited for", || {
                let is_free = unsafe { libc::flock(lock, libc::LOCK_EX | libc::LOCK_NB) } == 0;
                unsafe { libc::flock(lock, libc::LOCK_UN) };
                is_free && !recovery.is_finished()
            });
            let found = recovery.join().unwrap();
            assert_eq!(found.standing, Standing::Abandoned);
            let restored = found.restored.unwrap();
            assert_eq!((restored.threads, restored.failures.len()), (2, 0));
            assert!(restored.remarks[0].contains("was killed"), "{restored:?}");
        });
        traced.reap();
        scene.assert_put_back();
    }
}
