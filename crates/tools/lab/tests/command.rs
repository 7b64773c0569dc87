//! Tests of the `onbeat-lab` program: help, the list of experiments, wrong arguments, generated
//! traces.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn lab(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onbeat-lab"))
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn fails(dir: &Path, args: &[&str], code: i32) -> String {
    let out = lab(dir, args);
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
    assert!(err.starts_with("onbeat-lab: "), "{err}");
    err
}

#[test]
fn the_help_of_the_lab_has_examples_and_fits_the_screen() {
    let dir = tempfile::tempdir().unwrap();
    let out = lab(dir.path(), &["--help"]);
    assert_eq!(out.status.code(), Some(0));
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("Examples:") && text.contains("Exit codes"));
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn experiments_are_listed_and_wrong_arguments_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path();
    let out = lab(here, &[]);
    assert_eq!(out.status.code(), Some(0));
    let list = String::from_utf8(out.stdout).unwrap();
    for name in [
        "tracing",
        "model",
        "parking",
        "transport",
        "queues",
        "planner",
        "shaping",
        "link",
    ] {
        assert!(list.lines().any(|l| l.starts_with(name)), "{name}: {list}");
    }
    assert!(fails(here, &["nonsense"], 2).contains("'nonsense'"));
    assert!(fails(here, &["tracing", "--only", "nothing"], 2).contains("latency"));
    assert!(fails(here, &["model", "-n", "5"], 2).contains("generate"));
    assert!(fails(here, &["generate"], 2).contains("-o"));
    assert!(fails(here, &["model", "--arrivals", "a.csv"], 1).contains("--arrivals"));
    assert!(fails(here, &["planner", "--baseline", "onbeat"], 1).contains("--baseline"));
    assert_eq!(lab(here, &["--quik"]).status.code(), Some(2));
    let left = std::fs::read_dir(here).unwrap().count();
    assert_eq!(left, 0, "nothing was written");
}

#[test]
fn equal_seeds_generate_equal_traces() {
    let dir = tempfile::tempdir().unwrap();
    let events = |name: &str, seed: &str| {
        let out = lab(
            dir.path(),
            &["generate", "-n", "5000", "--seed", seed, "-o", name],
        );
        assert_eq!(out.status.code(), Some(0), "{out:?}");
        let mut events = Vec::new();
        onbeat_trace::Reader::open(dir.path().join(name))
            .unwrap()
            .events()
            .for_each(|event| events.push(event));
        events
    };
    let first = events("a", "3");
    assert!(first.len() >= 5000, "{}", first.len());
    assert_eq!(first, events("b", "3"));
    assert_ne!(first, events("c", "4"));
    assert!(fails(dir.path(), &["generate", "-o", "a"], 1).contains("a"));
}
