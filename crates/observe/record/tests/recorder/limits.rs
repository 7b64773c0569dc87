//! Tests recordings that are limited to some of the running processes.

use super::{ended, events, is_recording, signal, wait_until, Harness, Test, TALKER};
use onbeat_trace::{Event, EventKind, Reader};
use std::process::{Child, Command, Stdio};

pub const TESTS: &[Test] = tests![
    processes_of_another_domain_are_counted_but_not_recorded,
    what_a_named_process_has_started_is_recorded,
];

fn talker(harness: &Harness, domain: &str) -> Child {
    let script = harness.script(TALKER, &["1000"]);
    Command::new(&script[0])
        .args(&script[1..])
        .env("ROS_DOMAIN_ID", domain)
        .stdout(Stdio::null())
        .spawn()
        .expect("python starts")
}

fn end(mut talker: Child) {
    let _ = talker.kill();
    let _ = talker.wait();
}

fn processes_of_another_domain_are_counted_but_not_recorded(harness: &Harness) {
    let before = [talker(harness, "97"), talker(harness, "98")];
    let maps = |child: &Child| std::fs::read_to_string(format!("/proc/{}/maps", child.id()));
    wait_until("both use ROS 2", || {
        before
            .iter()
            .all(|t| maps(t).is_ok_and(|text| text.contains("libtracetools")))
    });
    let mut recorder = harness.recorder("limited", None);
    let prefix = harness
        .python
        .ancestors()
        .nth(2)
        .expect("PREFIX/bin/python");
    recorder.arg("domain=97").env("AMENT_PREFIX_PATH", prefix);
    let mut recorder = recorder.stderr(Stdio::null()).spawn().expect("it starts");
    let trace = harness.dir.path().join("limited");
    wait_until("it records", || is_recording(&trace));
    let later = [talker(harness, "0x61"), talker(harness, "99")];
    let inside = [before[0].id(), later[0].id()];
    let outside = [before[1].id(), later[1].id()];
    let said = || {
        let reader = Reader::open(&trace).ok();
        let coverage = reader
            .map(|r| r.manifest().coverage.clone())
            .unwrap_or_default();
        coverage
            .into_iter()
            .find(|line| line.contains("--domain 97"))
    };
    wait_until("all four were seen", || {
        let reader = Reader::open(&trace).ok();
        let known = reader.map_or(0, |r| {
            let processes = &r.manifest().observed.processes;
            processes.iter().filter(|p| inside.contains(&p.pid)).count()
        });
        // Other processes of this machine may be outside too.
        let count = said().and_then(|line| line.split(' ').next()?.parse::<u32>().ok());
        known == inside.len() && count.is_some_and(|count| count >= 2)
    });
    signal(&recorder, libc::SIGTERM);
    ended(&mut recorder);
    before.into_iter().chain(later).for_each(end);
    let found = events(&trace);
    for pid in inside {
        assert!(
            found.iter().any(|e| e.pid == pid),
            "no event of process {pid}"
        );
    }
    // A process outside is only named if it had a CPU for which an observed thread waited.
    let is_named = |e: &Event| {
        matches!(
            e.kind,
            EventKind::Bystander { .. } | EventKind::Occupied { .. }
        )
    };
    let mut of_others = found.iter().filter(|e| outside.contains(&e.pid));
    let wrong = of_others.find(|e| !is_named(e));
    assert_eq!(wrong, None, "an event of a process outside of the limits");
    let line = said().expect("a sentence");
    assert!(
        line.ends_with("outside of --domain 97 were not recorded."),
        "{line}"
    );
}

fn what_a_named_process_has_started_is_recorded(harness: &Harness) {
    let script = harness.script(TALKER, &["1000"]);
    let mut shell = Command::new("sh")
        .args(["-c", "\"$@\" & wait", "sh"])
        .args(script)
        .stdout(Stdio::null())
        .spawn()
        .expect("sh starts");
    let started = || onbeat_proc::tree(shell.id()).get(1).copied();
    let maps = |pid| std::fs::read_to_string(format!("/proc/{pid}/maps"));
    wait_until("the child uses ROS 2", || {
        started().is_some_and(|pid| maps(pid).is_ok_and(|text| text.contains("libtracetools")))
    });
    let child = started().expect("it runs");
    let mut recorder = harness.recorder("started", None);
    recorder.arg(format!("pid={}", shell.id()));
    let mut recorder = recorder.stderr(Stdio::null()).spawn().expect("it starts");
    let trace = harness.dir.path().join("started");
    wait_until("it is seen", || {
        let reader = Reader::open(&trace).ok();
        reader.is_some_and(|r| {
            let processes = &r.manifest().observed.processes;
            processes.iter().any(|p| p.pid == child)
        })
    });
    signal(&recorder, libc::SIGTERM);
    ended(&mut recorder);
    // SAFETY: the call only sends a signal to the child, which runs.
    unsafe { libc::kill(child as i32, libc::SIGKILL) };
    let _ = shell.wait();
    let of_child = events(&trace).iter().filter(|e| e.pid == child).count();
    assert!(of_child > 0, "no event of the child");
}
