//! Tests of onbeat with file capabilities (`setcap`): its caller gets no right beyond the
//! recorder's own work.
//!
//! A copy of the command has the capabilities that docs/how-to/record.md names, and the user nobody
//! calls it. The test has its own harness, which lists skipped tests by name and reason.

#[macro_use]
mod common;

use common::{program, Test};
use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const NOBODY: u32 = 65534;
/// The number of waits, of 10 ms each, after which a test fails: four minutes in all.
const PATIENCE: usize = 24_000;
/// The capabilities that the tests give to the program: CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN,
/// CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_KILL.
const GRANTED: [u32; 6] = [39, 38, 21, 19, 2, 5];

/// The source of a library that prints the capabilities of the process that loads it. It prints
/// them when it is loaded, before any symbol is looked up.
const LIBRARY: &str = r#"
#include <stdio.h>
#include <string.h>
__attribute__((constructor)) static void show(void)
{
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	while (status && fgets(line, sizeof(line), status))
		if (!strncmp(line, "Cap", 3))
			fprintf(stderr, "loaded %s", line);
}
"#;

struct Harness {
    dir: tempfile::TempDir,
    onbeat: PathBuf,
}

impl Harness {
    fn new() -> Result<Harness, String> {
        // SAFETY: `geteuid` cannot fail and takes no arguments.
        if unsafe { libc::geteuid() } != 0 {
            return Err("not root: capabilities cannot be given to a file".into());
        }
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("chmod");
        let onbeat = dir.path().join("onbeat");
        fs::copy(program(), &onbeat).expect("copied");
        fs::set_permissions(&onbeat, Permissions::from_mode(0o755)).expect("chmod");
        set_capabilities(&onbeat).map_err(|e| format!("no file capabilities here: {e}"))?;
        let harness = Harness { dir, onbeat };
        let shown = harness
            .command(&["plan", "--help"])
            .output()
            .map_err(|e| format!("a file with capabilities cannot be executed here: {e}"))?;
        assert!(shown.status.success(), "{shown:?}");
        Ok(harness)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.onbeat);
        command
            .args(args)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .uid(NOBODY)
            .gid(NOBODY);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let text = CString::new(path.as_os_str().as_bytes()).expect("no zero in it");
        // SAFETY: the text ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o666) }, 0);
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("chmod");
        path
    }
}

fn set_capabilities(file: &Path) -> std::io::Result<()> {
    const REVISION_2_AND_EFFECTIVE: u32 = 0x0200_0001;
    let mut words = [REVISION_2_AND_EFFECTIVE, 0, 0, 0, 0];
    for capability in GRANTED {
        words[if capability < 32 { 1 } else { 3 }] |= 1 << (capability % 32);
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = CString::new(file.as_os_str().as_bytes())?;
    let name = c"security.capability".as_ptr();
    // SAFETY: the texts end with zeros, and the length is that of the bytes.
    let set = unsafe { libc::setxattr(path.as_ptr(), name, bytes.as_ptr().cast(), bytes.len(), 0) };
    match set {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn sets(text: &str, names: &[&str]) -> Vec<u64> {
    let value = |name: &&str| {
        let line = text.lines().find_map(|line| line.split_once(name));
        let (_, value) = line.unwrap_or_else(|| panic!("no {name} in: {text}"));
        u64::from_str_radix(value.trim(), 16).expect("a number")
    };
    names.iter().map(value).collect()
}

const ALL_SETS: [&str; 4] = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"];

/// Waits until the process waits for a writer to a FIFO. Then returns the text of its
/// `/proc/PID/status`.
fn status_when_waiting(child: &mut Child) -> String {
    for _ in 0..PATIENCE {
        assert!(
            child.try_wait().expect("a child").is_none(),
            "it ended instead of reading the file"
        );
        let waits = fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap_or_default();
        // These are the numbers of openat on x86-64 and AArch64.
        if waits.starts_with("257 ") || waits.starts_with("56 ") {
            return fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it waits");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it does not read the file");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn a_library_that_the_caller_names_gets_no_capability(harness: &Harness) {
    let (source, library) = (harness.path("evil.c"), harness.path("evil.so"));
    fs::write(&source, LIBRARY).expect("written");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let built = Command::new(clang)
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    assert!(built.expect("clang starts").success());
    fs::set_permissions(&library, Permissions::from_mode(0o755)).expect("chmod");
    let config = serde_json::json!({
        "rcl": library,
        "outputs": [{"held_topic": "/a", "topic": "/b"}],
        "table": {"cycle_ns": 100_000_000, "origin_ns": 0,
                  "outputs": [{"slots": [{"start_ns": 60_000_000, "end_ns": 61_000_000}]}]},
    });
    fs::write(harness.path("shaper.json"), config.to_string()).expect("written");
    let output = harness.command(&["shaper", "shaper.json"]).output();
    let said = said(&output.expect("it starts"));
    assert!(
        said.contains("loaded"),
        "the library was not loaded: {said}"
    );
    assert_eq!(sets(&said, &ALL_SETS), [0; 4], "{said}");
}

fn no_other_command_has_a_capability_when_it_reads_its_file(harness: &Harness) {
    harness.fifo("input");
    fs::create_dir(harness.path("trace")).expect("a directory");
    harness.fifo("trace/manifest.json");
    for args in [
        &["model", "trace"][..],
        &["merge", "input", "input"],
        &["show", "input"],
        &["chains", "input"],
        &["export", "input", "--to", "csv"],
        &["export", "trace", "--to", "text"],
        &["report", "input"],
        &["plan", "input"],
        &["shaper", "input"],
    ] {
        let mut child = harness.command(args).spawn().expect("it starts");
        let status = status_when_waiting(&mut child);
        child.kill().expect("it waits");
        child.wait().expect("it was killed");
        assert_eq!(sets(&status, &ALL_SETS), [0; 4], "{args:?}");
    }
}

fn a_plan_is_read_with_the_callers_rights(harness: &Harness) {
    harness.fifo("plan.yaml");
    let mut child = harness
        .command(&["shape", "plan.yaml"])
        .spawn()
        .expect("it starts");
    let status = status_when_waiting(&mut child);
    child.kill().expect("it waits");
    child.wait().expect("it was killed");
    assert_eq!(sets(&status, &["CapInh:", "CapEff:", "CapAmb:"]), [0; 3]);
}

fn shape_refuses_to_run_with_file_capabilities(harness: &Harness) {
    // Otherwise the caller's own ledgers would decide what is written where, with these rights.
    let plan = include_str!("../../../enforce/plan/tests/golden/plan.yaml");
    fs::write(harness.path("golden.yaml"), plan).expect("written");
    let output = harness
        .command(&["shape", "golden.yaml", "--find", "1ms"])
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(said(&output).contains("sudo"), "{}", said(&output));
}

fn a_recorded_command_runs_with_the_callers_rights(harness: &Harness) {
    let script = "cat /proc/self/status >&2; echo MARK=$MARK >&2";
    let output = harness
        .command(&["record", "-o", "own", "--", "sh", "-c", script])
        .env("MARK", "the user's own")
        .output()
        .expect("it starts");
    let said = said(&output);
    assert_eq!(sets(&said, &ALL_SETS), [0; 4], "{said}");
    assert!(said.contains("MARK=the user's own"), "{said}");
    // The program is in a directory that the caller may not enter.
    let hidden = harness.path("hidden");
    fs::create_dir(&hidden).expect("a directory");
    fs::set_permissions(&hidden, Permissions::from_mode(0o700)).expect("chmod");
    fs::copy("/bin/echo", hidden.join("echo")).expect("copied");
    let path = hidden.join("echo").display().to_string();
    let output = harness
        .command(&["record", "-o", "hidden-trace", "--", &path, "it", "ran"])
        .output()
        .expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(!printed.contains("it ran"), "{printed}");
}

/// Checks that a recorder that root runs keeps no rights that it does not use. While the recorder
/// records, it has only the rights for attaching probes.
fn root_records_with_the_fewest_capabilities(harness: &Harness) {
    /// The capabilities that onbeat must have given up when the recording starts: CAP_NET_ADMIN,
    /// CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_BOOT, CAP_MKNOD.
    const NEVER: [u32; 5] = [12, 16, 17, 22, 27];
    /// The capabilities that onbeat needs when the recording starts, and must give up soon after:
    /// CAP_DAC_OVERRIDE, CAP_SETGID, CAP_SETUID.
    const AT_START: [u32; 3] = [1, 6, 7];
    let mut child = Command::new(&harness.onbeat)
        .args(["record", "-o", "least"])
        .current_dir(harness.dir.path())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let id = child.id();
    let has = |capabilities: &[u32]| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
        let permitted = sets(&status, &["CapPrm:"])[0];
        capabilities.iter().any(|c| permitted >> c & 1 == 1)
    };
    let until = |reached: &dyn Fn() -> bool| {
        (0..PATIENCE).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            reached()
        })
    };
    let starts = until(&|| harness.path("least/manifest.json").exists());
    let had_others = has(&NEVER);
    let gave_up = until(&|| !has(&AT_START));
    // SAFETY: a plain system call on a child.
    unsafe { libc::kill(id as i32, libc::SIGTERM) };
    child.wait().expect("it ends");
    assert!(
        starts && gave_up && !had_others,
        "{starts} {gave_up} {had_others}"
    );
}

fn a_copy_with_a_set_user_id_bit_does_nothing_for_its_caller(harness: &Harness) {
    let copy = harness.path("for-everybody");
    fs::copy(program(), &copy).expect("copied");
    // Only root may read this file, and nobody must not see it.
    let secret = harness.path("secret.json");
    fs::write(&secret, b"not for nobody").expect("written");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("chmod");
    for mode in [0o4755, 0o2755] {
        fs::set_permissions(&copy, Permissions::from_mode(mode)).expect("chmod");
        for words in [
            &["show", "secret.json"][..],
            &["record", "-o", "as-root", "--", "true"],
            &["export", "secret.json", "--to", "json", "-o", "owned"],
        ] {
            let output = Command::new(&copy)
                .args(words)
                .current_dir(harness.dir.path())
                .stdin(Stdio::null())
                .uid(NOBODY)
                .gid(NOBODY)
                .output()
                .expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(4), "{words:?}: {said}");
            assert!(
                said.contains("set-user-id") && said.contains("sudo"),
                "{said}"
            );
            assert_eq!(said.lines().count(), 1, "{said}");
            for made in ["as-root", "owned"] {
                assert!(!harness.path(made).exists(), "{words:?} made {made}");
            }
        }
    }
}

fn main() {
    let tests: &[Test<Harness>] = tests![
        a_library_that_the_caller_names_gets_no_capability,
        no_other_command_has_a_capability_when_it_reads_its_file,
        a_plan_is_read_with_the_callers_rights,
        shape_refuses_to_run_with_file_capabilities,
        a_recorded_command_runs_with_the_callers_rights,
        root_records_with_the_fewest_capabilities,
        a_copy_with_a_set_user_id_bit_does_nothing_for_its_caller,
    ];
    common::run(tests, &Harness::new(), |_| None);
}
