//! Tests of commands that separate programs carry out: which program is started, which is refused,
//! and that the program gets arguments and signals and gives the exit code.

use std::ffi::{CString, OsStr};
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{chown, symlink, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const NOBODY: u32 = 65534;

/// The source of a program that stands in for `onbeat-replay`. When asked for its version, it
/// replaces itself with the file `next` beside it, if that file exists.
const SOURCE: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	if (!strcmp(what, "--version")) {
		const char *directory = getenv("NEXT");
		char from[4096], to[4096];
		if (directory) {
			snprintf(from, sizeof(from), "%s/next", directory);
			snprintf(to, sizeof(to), "%s/onbeat-replay", directory);
			rename(from, to);
		}
		puts(SAYS);
		return 0;
	}
	if (!strcmp(what, "exit"))
		return atoi(argv[2]);
	if (!strcmp(what, "raise"))
		raise(atoi(argv[2]));
	puts(NAME);
	for (int i = 0; i < argc; i++)
		puts(argv[i]);
	return 0;
}
"#;

struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::Builder::new().prefix("on beat").tempdir();
        let place = Place {
            dir: dir.expect("a directory"),
        };
        fs::set_permissions(place.dir.path(), Permissions::from_mode(0o755)).expect("chmod");
        // Another process copies the file. A descriptor open for writing in this process would be
        // inherited by children of other tests.
        let copied = Command::new("cp")
            .args([
                env!("CARGO_BIN_EXE_onbeat").as_ref(),
                place.path("onbeat").as_os_str(),
            ])
            .status();
        assert!(copied.expect("cp starts").success());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn compile(&self, file: &str, name: &str, says: &str) {
        fs::write(self.path("program.c"), SOURCE).expect("written");
        let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
        let status = Command::new(clang)
            .args(["-Wall", "-Werror", "program.c", "-o", file])
            .arg(format!("-DNAME=\"{name}\""))
            .arg(format!("-DSAYS=\"{says}\""))
            .current_dir(self.dir.path())
            .status();
        assert!(status.expect("clang starts").success());
    }

    fn with_program() -> Place {
        let place = Place::new();
        place.compile("onbeat-replay", "first", &version());
        place
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.path("onbeat"));
        command.args(words).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it starts")
    }

    fn is_refused(&self, says: &[&str]) {
        let output = self.run(&["replay", "x"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
        for word in says.iter().chain(&["onbeat-replay"]) {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
}

fn version() -> String {
    format!("onbeat-replay {}", env!("CARGO_PKG_VERSION"))
}

fn lines(output: &Output) -> Vec<&OsStr> {
    let lines = output.stdout.split(|b| *b == b'\n');
    lines
        .filter(|l| !l.is_empty())
        .map(OsStr::from_bytes)
        .collect()
}

fn is_root() -> bool {
    // SAFETY: `geteuid` cannot fail and takes no arguments.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        println!("skipped: not root: nothing is refused to an ordinary user");
    }
    is_root
}

#[test]
fn a_separate_program_gets_arguments_and_signals_and_gives_the_exit_code() {
    let place = Place::with_program();
    let odd = OsStr::from_bytes(b"\xff\xfe");
    let output = place.command(&["replay", "--help", "-x", "--", ""]);
    let output = { output }.arg(odd).output().expect("it starts");
    let words = ["first", "onbeat", "--help", "-x", "--"].map(OsStr::new);
    assert_eq!(lines(&output), [&words[..], &[odd]].concat(), "{output:?}");
    for code in [0, 3, 5, 77] {
        let output = place.run(&["replay", "exit", &code.to_string()]);
        assert_eq!(output.status.code(), Some(code));
    }
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGKILL, libc::SIGSEGV] {
        let output = place.run(&["replay", "raise", &signal.to_string()]);
        assert_eq!(output.status.signal(), Some(signal));
    }
}

#[test]
fn a_missing_separate_program_is_reported_with_its_path() {
    let place = Place::new();
    place.is_refused(&["missing", &place.dir.path().display().to_string()]);
}

#[test]
fn a_separate_program_of_another_version_is_refused() {
    let place = Place::new();
    place.compile("onbeat-replay", "other", "onbeat-replay 99.0.1");
    place.is_refused(&["99.0.1", env!("CARGO_PKG_VERSION")]);
    place.compile("onbeat-replay", "none", "hello");
    place.is_refused(&["does not report"]);
    fs::remove_file(place.path("onbeat-replay")).expect("removed");
    fs::write(place.path("onbeat-replay"), "#!/bin/sh\necho no\n").expect("written");
    fs::set_permissions(place.path("onbeat-replay"), Permissions::from_mode(0o755)).expect("chmod");
    place.is_refused(&["not started"]);
}

#[test]
fn a_separate_program_that_cannot_be_executed_is_refused() {
    let place = Place::with_program();
    fs::set_permissions(place.path("onbeat-replay"), Permissions::from_mode(0o644)).expect("chmod");
    place.is_refused(&["cannot be started", "ermission"]);
    fs::remove_file(place.path("onbeat-replay")).expect("removed");
    fs::create_dir(place.path("onbeat-replay")).expect("a directory");
    if is_root() {
        place.is_refused(&["regular file"]);
    }
}

#[test]
fn root_starts_no_separate_program_that_other_users_could_write() {
    if !is_root() {
        return;
    }
    let place = Place::with_program();
    let program = place.path("onbeat-replay");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
    };
    for bits in [0o775, 0o757] {
        mode(&program, bits);
        place.is_refused(&["other users can write"]);
    }
    mode(&program, 0o755);
    chown(&program, Some(NOBODY), None).expect("chown");
    place.is_refused(&["belongs to user 65534"]);
    // A checkout that its user starts with sudo: onbeat's own file has another owner than root.
    chown(place.path("onbeat"), Some(NOBODY), None).expect("chown");
    assert_eq!(
        place.run(&["replay", "exit", "9"]).status.code(),
        Some(9),
        "the owner of onbeat is trusted with onbeat-replay"
    );
    chown(place.path("onbeat"), Some(0), None).expect("chown");
    chown(&program, Some(0), None).expect("chown");

    fs::rename(&program, place.path("elsewhere")).expect("renamed");
    symlink(place.path("elsewhere"), &program).expect("a link");
    place.is_refused(&["regular file"]);
    fs::remove_file(&program).expect("removed");

    // Root does not search PATH.
    let path = std::env::join_paths([place.dir.path().join("bin")]).expect("a path");
    fs::create_dir(place.path("bin")).expect("a directory");
    fs::rename(place.path("elsewhere"), place.path("bin/onbeat-replay")).expect("renamed");
    let output = place.command(&["replay"]).env("PATH", path).output();
    let said = String::from_utf8(output.expect("it starts").stderr).expect("text");
    assert!(said.contains("missing"), "{said}");

    fs::rename(place.path("bin/onbeat-replay"), &program).expect("renamed");
    mode(place.dir.path(), 0o777);
    place.is_refused(&["the program's directory"]);
}

#[test]
fn an_ordinary_users_program_is_found_on_the_path() {
    if !is_root() {
        return;
    }
    let place = Place::with_program();
    fs::create_dir(place.path("bin")).expect("a directory");
    fs::rename(place.path("onbeat-replay"), place.path("bin/onbeat-replay")).expect("renamed");
    let mut command = place.command(&["replay", "exit", "8"]);
    command
        .uid(NOBODY)
        .gid(NOBODY)
        .env("PATH", place.path("bin"));
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(8), "{output:?}");
}

#[test]
fn a_program_that_is_replaced_during_its_start_is_not_run() {
    let place = Place::with_program();
    place.compile("next", "second", &version());
    let mut command = place.command(&["replay", "x"]);
    let output = command.env("NEXT", place.dir.path()).output();
    assert_eq!(lines(&output.expect("it starts"))[0], "first");
    assert!(!place.path("next").exists(), "nothing was replaced");
    assert_eq!(lines(&place.run(&["replay", "x"]))[0], "second");
}

#[test]
fn a_program_of_root_gets_no_more_rights_than_its_command_needs() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    fs::write(
        place.path("program.c"),
        r#"#include <stdio.h>
        #include <string.h>
        int main(int argc, char **argv)
        {
            char line[256];
            if (argc > 1 && !strcmp(argv[1], "--version"))
                return puts(SAYS) < 0;
            FILE *status = fopen("/proc/self/status", "r");
            while (status && fgets(line, sizeof(line), status))
                fputs(line, stdout);
            return 0;
        }"#,
    )
    .expect("written");
    let status = Command::new(std::env::var("CLANG").unwrap_or_else(|_| "clang".into()))
        .args(["program.c", "-o", "onbeat-replay"])
        .arg(format!("-DSAYS=\"{}\"", version()))
        .current_dir(place.dir.path())
        .status();
    assert!(status.expect("clang starts").success());
    let output = place.run(&["replay"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let permitted = text.lines().find_map(|l| l.strip_prefix("CapPrm:"));
    let permitted = u64::from_str_radix(permitted.expect("a set").trim(), 16).expect("a number");
    // CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_NET_RAW, CAP_IPC_LOCK, CAP_SYS_NICE.
    let most = [1, 2, 13, 14, 23].iter().fold(0, |all, c| all | 1u64 << c);
    assert_eq!(permitted & !most, 0, "{permitted:#x}");
    assert!(text.contains("NoNewPrivs:\t1"), "{text}");
}

#[test]
fn help_lists_the_commands_of_all_programs() {
    let onbeat = Path::new(env!("CARGO_BIN_EXE_onbeat"));
    let text = |path: &Path, words: &[&str]| {
        let output = Command::new(path).args(words).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let all = text(onbeat, &["--help"]);
    for name in ["link", "replay", "store", "top"] {
        let program = onbeat.with_file_name(format!("onbeat-{name}"));
        assert!(
            program.exists(),
            "{} is not built: ./dev test cli builds it",
            program.display()
        );
        let own = text(onbeat, &[name, "--help"]);
        assert_eq!(own, text(&program, &["--help"]));
        assert!(own.contains(&format!("Usage: onbeat {name}")), "{own}");
        let about = own.lines().next().expect("a line").trim_end_matches('.');
        assert!(all.contains(about), "{about} is not in:\n{all}");
        assert_eq!(
            text(&program, &["--version"]),
            format!("onbeat-{name} {}\n", env!("CARGO_PKG_VERSION"))
        );
    }
    // Other tools show this name.
    assert!(
        CString::new("onbeat-replay")
            .expect("no zero")
            .as_bytes()
            .len()
            < 16
    );
}
