//! The kernel's records of real programs that this process starts.

use super::*;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// None where the kernel refuses.
fn opened() -> Option<Switches> {
    Switches::open()
        .inspect_err(|error| println!("skipped: perf_event_open: {error}"))
        .ok()
}

/// Runs a script; what was seen of it, in the order of time. None where the kernel refuses.
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
fn a_program_and_what_it_starts_are_seen_from_their_first_instruction_to_their_end() {
    let Some((pid, seen)) = seen_of("sleep 0.05; (sleep 0.05) ; exec sleep 0.05") else {
        return;
    };
    let of = |pid: u32| seen.iter().filter(move |s| s.pid == pid);
    assert!(seen.iter().all(|s| s.pid != std::process::id()), "{seen:?}");
    assert!(matches!(&of(pid).next().expect("it").what, What::Exec { comm } if &**comm == "sh"));
    assert_eq!(of(pid).next_back().expect("it").what, What::Exit);
    let execs = of(pid).filter(|s| matches!(&s.what, What::Exec { .. }));
    assert_eq!(execs.count(), 2);
    let children: Vec<u32> = seen
        .iter()
        .filter(|s| matches!(s.what, What::Fork { parent_pid, .. } if parent_pid == pid))
        .map(|s| s.pid)
        .collect();
    assert_eq!(children.len(), 2, "{seen:?}");
    for pid in children {
        // It sleeps: off its CPU, then on one again.
        let slept = of(pid).any(|s| s.what == What::Out { preempted: false });
        assert!(slept && of(pid).any(|s| s.what == What::In), "{seen:?}");
        assert_eq!(of(pid).next_back().expect("it").what, What::Exit);
    }
}

#[test]
fn switches_out_and_in_alternate_and_the_rest_is_the_time_on_the_cpu() {
    let Some((pid, seen)) = seen_of("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done") else {
        return;
    };
    let mut out = None;
    for it in seen.iter().filter(|s| s.pid == pid && s.tid == pid) {
        match it.what {
            What::Out { .. } => assert!(out.replace(it.time_ns).is_none(), "{seen:?}"),
            What::In => assert!(out.take().is_some(), "{seen:?}"),
            _ => {}
        }
    }
}

#[test]
fn a_command_that_lost_its_events_is_followed_with_what_it_has_started() {
    // It starts before there are events: three processes that sleep, then a second sleep of each, and one of its own.
    let script =
        "for i in 1 2 3; do (sleep 0.6; sleep 0.1; :) & done; echo begun; wait; sleep 0.1; :";
    let mut sh = Command::new("sh");
    sh.args(["-c", script]).stdout(Stdio::piped());
    let mut child = sh.spawn().expect("sh");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    out.read_line(&mut String::new()).expect("a line");
    let before = tree(child.id());
    assert!(before.len() >= 4, "{before:?}");
    let Some(mut switches) = opened() else {
        child.wait().expect("it is ours");
        return;
    };
    switches.follow(child.id()).expect("it runs");
    let mut seen = Vec::new();
    while child.try_wait().expect("it is ours").is_none() {
        switches.wait(Duration::from_millis(20));
        switches.take(&mut seen);
    }
    switches.take(&mut seen);
    let times = |pid, what: &What| {
        seen.iter()
            .filter(|s| s.pid == pid && s.what == *what)
            .count()
    };
    let forks = seen.iter().filter(|s| matches!(s.what, What::Fork { .. }));
    let forked: BTreeSet<u32> = forks.map(|s| s.pid).collect();
    assert!(forked.len() >= 4, "{seen:?}");
    // Each once: who is followed and has inherited the events has two ends.
    for pid in before.into_iter().chain(forked) {
        assert_eq!(times(pid, &What::Exit), 1, "{pid}: {seen:?}");
        assert!(times(pid, &What::In) >= 1, "{pid}: {seen:?}");
    }
}

#[test]
fn who_has_inherited_the_events_is_not_followed_once_more() {
    let fork = |tid| Seen {
        time_ns: 1,
        cpu: 0,
        pid: 10,
        tid,
        what: What::Fork {
            parent_pid: 10,
            parent_tid: 10,
        },
    };
    let mut known = BTreeSet::from([10]);
    let new = without_events(vec![10, 11, 12, 13], &[fork(12)], &mut known);
    assert_eq!(new, [11, 13]);
    assert!(without_events(vec![10, 11, 12, 13], &[], &mut known).is_empty());
}
