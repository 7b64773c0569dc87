//! Tests of `onbeat record` as a command: exit codes, messages, and the use of a killed recording
//! by other commands. The recorder's own tests are in its crate.
//!
//! The test has its own harness, which lists skipped tests by name and reason.

#[macro_use]
mod common;

use common::{program, Test};
use onbeat_trace::Reader;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

struct Harness {
    dir: tempfile::TempDir,
}

impl Harness {
    fn onbeat(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .args(args)
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }
}

/// Kills recordings at several moments, from before the command runs to the middle of the
/// recording. The manifest of a killed recording is older than its events, so the model must take
/// its span of time from the events.
fn the_model_of_a_killed_recording_spans_its_events(harness: &Harness) {
    let moments = [30u64, 120, 280, 520].map(Some);
    for (number, ms) in moments.into_iter().chain([None]).enumerate() {
        let trace = format!("killed{number}");
        let path = harness.dir.path().join(&trace);
        let mut recorder = harness
            .onbeat(&["record", "-o", &trace, "--"])
            .args(["/bin/sh", "-c", "while sleep 0.05; do true; done"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("onbeat starts");
        match ms {
            Some(ms) => std::thread::sleep(Duration::from_millis(ms)),
            None => wait_for_events(&path),
        }
        recorder.kill().expect("it is our child");
        recorder.wait().expect("it is our child");
        if path.join("manifest.json").exists() {
            a_model_spans_its_events(harness, &path);
        }
    }
}

fn wait_for_events(trace: &Path) {
    let begin = Instant::now();
    while !Reader::open(trace).is_ok_and(|mut reader| reader.events().count() > 10) {
        assert!(begin.elapsed() < Duration::from_secs(240), "no events");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn a_model_spans_its_events(harness: &Harness, trace: &Path) {
    let mut reader = Reader::open(trace).expect("what is there can be read");
    let times: Vec<u64> = reader.events().map(|e| e.time_ns).collect();
    let span = times.iter().max().unwrap_or(&0) - times.iter().min().unwrap_or(&0);
    let made = harness
        .onbeat(&["model", &trace.display().to_string(), "-o", "killed.json"])
        .output()
        .expect("onbeat starts");
    // Exit code 3: the trace is still empty.
    assert!(matches!(made.status.code(), Some(0 | 3)), "{made:?}");
    let text = std::fs::read(harness.dir.path().join("killed.json")).expect("a model");
    let model: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(model["runs"][0]["duration_ns"].as_u64(), Some(span));
}

fn a_user_who_may_not_record_learns_why_in_one_line(_: &Harness) {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    // Another user must be able to execute the copy.
    let place = tempfile::tempdir().expect("a directory");
    let copy = place.path().join("onbeat");
    std::fs::copy(program(), &copy).expect("copy");
    for path in [place.path(), copy.as_path()] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("chmod");
    }
    let output = Command::new(&copy)
        .args(["record", "-o", "refused"])
        .current_dir(place.path())
        .uid(65534)
        .gid(65534)
        .output()
        .expect("onbeat starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("CAP_BPF") && said.contains("sudo") && said.contains("setcap"),
        "{said}"
    );
    assert!(!place.path().join("refused").exists());
    // A command can be recorded without these rights.
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o777)).expect("chmod");
    let output = Command::new(&copy)
        .args(["record", "-o", "kept", "--", "true"])
        .current_dir(place.path())
        .uid(65534)
        .gid(65534)
        .output()
        .expect("onbeat starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("as with --preload"), "{said}");
    let manifest = std::fs::read(place.path().join("kept/manifest.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    assert_eq!(manifest["probing"], "preload");
    assert_eq!(manifest["state"], "complete");
}

fn a_wrong_option_is_reported_in_one_line(harness: &Harness) {
    for (args, code, word) in [
        (&["record", "--pid", "4194303"][..], 2, "4194303"),
        (
            &["record", "-o", "nocommand", "--", "/no/such/program"],
            1,
            "/no/such/program",
        ),
        (
            &["record", "-o", "/proc/nowhere", "--duration", "1s"],
            1,
            "/proc/nowhere",
        ),
    ] {
        let output = harness.onbeat(args).output().expect("onbeat starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(
            said.contains(word) && said.trim_end().lines().count() == 1,
            "{said}"
        );
    }
}

fn the_commands_own_failure_is_the_exit_code(harness: &Harness) {
    let output = harness
        .onbeat(&["record", "-o", "fails", "--", "sh", "-c", "exit 7"])
        .output()
        .expect("onbeat starts");
    assert_eq!(output.status.code(), Some(7));
}

fn a_recording_without_ros_has_an_exit_code_of_its_own(harness: &Harness) {
    let args = ["record", "-o", "empty", "--segment", "1M", "--", "true"];
    let output = harness.onbeat(&args).output().expect("onbeat starts");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

fn main() {
    let tests: &[Test<Harness>] = tests![
        the_model_of_a_killed_recording_spans_its_events,
        a_user_who_may_not_record_learns_why_in_one_line,
        a_wrong_option_is_reported_in_one_line,
        the_commands_own_failure_is_the_exit_code,
        a_recording_without_ros_has_an_exit_code_of_its_own,
    ];
    let harness = Harness {
        dir: tempfile::tempdir().expect("a directory"),
    };
    let own = std::process::id().to_string();
    let probe = harness
        .onbeat(&["record", "-o", "probe", "--pid", &own, "--duration", "1ms"])
        .output();
    let probe = probe.expect("onbeat starts");
    let harness = match probe.status.code() {
        Some(4) => Err(String::from_utf8_lossy(&probe.stderr).trim().to_owned()),
        _ => Ok(harness),
    };
    common::run(tests, &harness, |_| None);
}
