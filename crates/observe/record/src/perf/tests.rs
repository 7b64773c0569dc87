//! Tests the kernel's records with real programs.

use super::*;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn opened() -> Option<Switches> {
    Switches::open()
        .inspect_err(|error| println!("skipped: perf_event_open: {error}"))
        .ok()
}

fn seen_of(script: &str) -> Option<(u32, Vec<Seen>)> {
    let mut switches = opened()?;
    let mut child = Command::new("sh").args(["-c", script]).spawn().expect("sh");
    let pid = child.id();
    let mut seen = Vec::new();
    while child.try_wait().expect("it is ours").is_none() {
        switches.wait(Duration::from_millis(20));
        switches.take(&mut seen);
    }
    switches.take(&mut seen);
    assert_eq!(switches.lost(), 0);
    seen.sort_by_key(|s| s.time_ns);
    Some((pid, seen))
}

#[test]
fn a_program_and_its_children_are_seen_from_exec_to_exit() {
    let Some((pid, seen)) = seen_of("sleep 0.05; (sleep 0.05) ; exec sleep 0.05") else {
        return;
    };
    let of = |pid: u32| seen.iter().filter(move |s| s.pid == pid);
    assert!(seen.iter().all(|s| s.pid != std::process::id()), "{seen:?}");
    assert!(
        matches!(&of(pid).next().expect("it").action, Action::Exec { comm } if &**comm == "sh")
    );
    assert_eq!(of(pid).next_back().expect("it").action, Action::Exit);
    let execs = of(pid).filter(|s| matches!(&s.action, Action::Exec { .. }));
    assert_eq!(execs.count(), 2);
    let children: Vec<u32> = seen
        .iter()
        .filter(|s| matches!(s.action, Action::Fork { parent_pid, .. } if parent_pid == pid))
        .map(|s| s.pid)
        .collect();
    assert_eq!(children.len(), 2, "{seen:?}");
    for pid in children {
        // The child sleeps: it leaves its CPU, then gets one again.
        let slept = of(pid).any(|s| s.action == Action::Out { preempted: false });
        assert!(slept && of(pid).any(|s| s.action == Action::In), "{seen:?}");
        assert_eq!(of(pid).next_back().expect("it").action, Action::Exit);
    }
}

#[test]
fn a_threads_switches_out_and_in_alternate() {
    let Some((pid, seen)) = seen_of("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done") else {
        return;
    };
    let mut out = None;
    for it in seen.iter().filter(|s| s.pid == pid && s.tid == pid) {
        match it.action {
            Action::Out { .. } => assert!(out.replace(it.time_ns).is_none(), "{seen:?}"),
            Action::In => assert!(out.take().is_some(), "{seen:?}"),
            _ => {}
        }
    }
}

#[test]
fn a_command_that_lost_its_events_is_followed_with_its_children() {
    // The script starts before the events exist. It starts three processes that wait for the end of
    // its input and then sleep, and sleeps once itself.
    let script = "exec 3<&0; for i in 1 2 3; do (cat <&3; sleep 0.1; :) & done; \
                  echo begun; wait; sleep 0.1; :";
    let mut sh = Command::new("sh");
    sh.args(["-c", script]);
    sh.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = sh.spawn().expect("sh");
    let input = child.stdin.take().expect("piped");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    out.read_line(&mut String::new()).expect("a line");
    let before = tree(child.id());
    assert!(before.len() >= 4, "{before:?}");
    let Some(mut switches) = opened() else {
        drop(input);
        child.wait().expect("it is ours");
        return;
    };
    switches.follow(child.id()).expect("it runs");
    drop(input);
    let mut seen = Vec::new();
    while child.try_wait().expect("it is ours").is_none() {
        switches.wait(Duration::from_millis(20));
        switches.take(&mut seen);
    }
    switches.take(&mut seen);
    let times = |pid, action: &Action| {
        seen.iter()
            .filter(|s| s.pid == pid && s.action == *action)
            .count()
    };
    let forks = seen
        .iter()
        .filter(|s| matches!(s.action, Action::Fork { .. }));
    let forked: BTreeSet<u32> = forks.map(|s| s.pid).collect();
    assert!(forked.len() >= 4, "{seen:?}");
    // A process that is followed and has also inherited the events would show two exits.
    for pid in before.into_iter().chain(forked) {
        assert_eq!(times(pid, &Action::Exit), 1, "{pid}: {seen:?}");
        assert!(times(pid, &Action::In) >= 1, "{pid}: {seen:?}");
    }
}

#[test]
fn a_thread_that_inherited_events_is_not_followed_again() {
    let fork = |tid| Seen {
        time_ns: 1,
        cpu: 0,
        pid: 10,
        tid,
        action: Action::Fork {
            parent_pid: 10,
            parent_tid: 10,
        },
    };
    let mut known = BTreeSet::from([10]);
    let new = without_events(vec![10, 11, 12, 13], &[fork(12)], &mut known);
    assert_eq!(new, [11, 13]);
    assert!(without_events(vec![10, 11, 12, 13], &[], &mut known).is_empty());
}
