//! Tests of commands around a session: `shape --dry-run`, `--status` and `--reload`.
#![allow(clippy::undocumented_unsafe_blocks)]

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const PLAN: &str = "schema: onbeat-plan/1
strategy: server-per-chain
chains:
- id: c
  callbacks: ['/nobody:timer(100ms)']
  output: /raw
cycle_ms: 100
origin: /nobody:timer(100ms)
servers:
- name: gamma
  cpu: 0
  priority: 80
  slots_ms: [[0, 50]]
  callbacks: ['/nobody:timer(100ms)']
middleware: {cpu: 0, priority: 95}
promises: {average_ms: 5, worst_ms: 10, jitter_ms: 5, utilisation: {0: 0.5}}
";

fn onbeat(dir: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onbeat"))
        .args(words)
        .current_dir(dir)
        .output()
        .expect("it runs")
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn likeness(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let cpus = status.lines().find(|l| l.starts_with("Cpus_allowed:"));
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it lives");
    let (policy, priority) = unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_getparam(pid as i32, &mut parameters);
        (
            libc::sched_getscheduler(pid as i32),
            parameters.sched_priority,
        )
    };
    format!("{policy} {priority} {cpus:?} {cgroups}")
}

#[test]
fn sched_ext_is_refused_where_the_kernel_has_none() {
    if Path::new("/sys/kernel/sched_ext").exists() {
        println!("skipped: sched_ext_is_refused_where_the_kernel_has_none: this kernel has it");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("plan.yaml"), PLAN).expect("written");
    let shape = ["shape", "plan.yaml", "--enforcer", "sched-ext"];
    for rest in [&["--", "touch", "started"][..], &["--dry-run"]] {
        let refused = onbeat(dir.path(), &[&shape[..], rest].concat());
        let said = text(&refused);
        assert_eq!(refused.status.code(), Some(4), "{said}");
        assert!(said.contains("this kernel has no sched_ext"), "{said}");
        assert!(said.contains("Use cgroup freezers"), "{said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
    assert!(!dir.path().join("started").exists());
}

#[test]
fn a_dry_run_shows_plan_and_machine_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("plan.yaml"), PLAN).expect("written");
    let own = std::process::id();
    let before = likeness(own);
    let words = ["shape", "plan.yaml", "--dry-run", "--find", "1s"];
    let shown = onbeat(dir.path(), &words);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown));
    let said = text(&shown);
    for part in [
        "gamma",
        "Only the plan is shown",
        "preemption model",
        "Nothing was changed.",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert!(said.lines().all(|l| l.chars().count() <= 100), "{said}");
    let shown = onbeat(dir.path(), &[&words[..], &["--json"]].concat());
    let found: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(found["servers"][0]["name"], "gamma");
    assert_eq!(found["missing"][0], "/nobody:timer(100ms)");
    let lines = found["preflight"].as_array().expect("lines");
    let graded = |l: &Value| ["ok", "note", "risk"].contains(&l["grade"].as_str().unwrap_or(""));
    assert!(lines.len() > 10 && lines.iter().all(graded), "{lines:?}");
    assert_eq!(likeness(own), before);
    let names = fs::read_dir(dir.path()).expect("it is ours").count();
    assert_eq!(names, 1, "nothing is written");
    let both = onbeat(
        dir.path(),
        &["shape", "plan.yaml", "--dry-run", "--", "true"],
    );
    assert_eq!(both.status.code(), Some(2), "{}", text(&both));
}

#[test]
fn systemd_accepts_the_unit_file() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../packaging/systemd/onbeat-shape.service");
    let unit = fs::read_to_string(&shipped).expect("the unit");
    for line in [
        "Type=notify",
        "ExecReload=/usr/bin/onbeat shape --reload",
        "ExecStopPost=/usr/bin/onbeat recover",
        "WatchdogSec=",
    ] {
        assert!(unit.lines().any(|l| l.starts_with(line)), "no {line}");
    }
    // The options in the unit must exist in the command's help.
    let help = text(&onbeat(Path::new("/"), &["shape", "--help"]))
        + &text(&onbeat(Path::new("/"), &["recover", "--help"]));
    let commands = unit.lines().filter(|l| l.starts_with("Exec"));
    for word in commands
        .flat_map(|l| l.split(' '))
        .filter(|w| w.starts_with("--"))
    {
        assert!(help.contains(word), "{word} is no option");
    }
    // The unit names the installed path; the test replaces it with the path of the built program.
    let dir = tempfile::tempdir().expect("a directory");
    let here = unit.replace("/usr/bin/onbeat", env!("CARGO_BIN_EXE_onbeat"));
    let copy = dir.path().join("onbeat-shape.service");
    fs::write(&copy, here).expect("written");
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .arg("--man=no")
        .arg(&copy)
        .output();
    let Ok(verified) = verified else {
        println!(
            "skipped: systemd_accepts_the_unit_file: no systemd-analyze here: the unit is read by nobody"
        );
        return;
    };
    let said = text(&verified);
    let about_us: Vec<&str> = said
        .lines()
        .filter(|l| l.contains("onbeat-shape"))
        .collect();
    assert!(about_us.is_empty(), "{said}");
}

#[test]
fn the_status_is_empty_without_a_session() {
    let dir = tempfile::tempdir().expect("a directory");
    let asked = |words: &[&str]| {
        let sockets = dir.path().join("none").display().to_string();
        let words = [&["shape", "--status", "--sockets", &sockets][..], words].concat();
        onbeat(dir.path(), &words)
    };
    let said = asked(&[]);
    if unsafe { libc::geteuid() } != 0 {
        assert_eq!(said.status.code(), Some(4), "{}", text(&said));
        return;
    }
    assert_eq!(said.status.code(), Some(3), "{}", text(&said));
    assert!(text(&said).contains("No session runs."), "{}", text(&said));
    let found: Value = serde_json::from_slice(&asked(&["--json"]).stdout).expect("JSON");
    assert_eq!(found["sessions"].as_array().map(Vec::len), Some(0));
    // No session is there to reload a plan.
    let sockets = dir.path().join("none").display().to_string();
    let said = onbeat(dir.path(), &["shape", "--reload", "--sockets", &sockets]);
    assert_eq!(said.status.code(), Some(3), "{}", text(&said));
    assert!(text(&said).contains("No session runs."), "{}", text(&said));
    assert_eq!(asked(&["--prometheus"]).stdout, b"");
    assert_eq!(asked(&["--", "true"]).status.code(), Some(2));
}
