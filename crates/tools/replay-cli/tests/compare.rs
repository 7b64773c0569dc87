//! Tests `onbeat compare` as a user runs it: table, JSON, JUnit, exit codes and refused words.

mod files;

use files::mcap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn compare(dir: &TempDir, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat-replay"));
    command
        .arg0("onbeat-compare")
        .args(words)
        .current_dir(dir.path());
    let out = command.stdin(Stdio::null()).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (out.status.code(), text(out.stdout), text(out.stderr))
}

fn directory() -> TempDir {
    const BEGIN_NS: u64 = 1_700_000_000_000_000_000;
    let dir = TempDir::new().expect("a directory");
    let wave = |n: u64| 100.0 + (n % 10) as f64;
    mcap(&dir.path().join("a.mcap"), 500, BEGIN_NS, |n| Some(wave(n)));
    let changed = |n: u64| (n % 100 != 99).then(|| wave(n) * 1.01);
    mcap(
        &dir.path().join("b.mcap"),
        500,
        BEGIN_NS + 1_000_000,
        changed,
    );
    mcap(
        &dir.path().join("later.mcap"),
        500,
        BEGIN_NS + 60_000_000_000,
        |n| Some(wave(n)),
    );
    dir
}

#[test]
fn two_recordings_are_compared_as_table_json_and_junit() {
    let dir = directory();
    let (code, table, _) = compare(&dir, &["a.mcap", "a.mcap"]);
    assert_eq!(code, Some(0), "{table}");
    assert!(table.contains("1 of 1 topics are as recorded"), "{table}");
    let limits = [
        "a.mcap",
        "b.mcap",
        "--max-shift",
        "p50=500us",
        "--junit",
        "out.xml",
    ];
    let (code, table, _) = compare(&dir, &limits);
    assert_eq!(code, Some(7), "{table}");
    for wanted in [
        "missing: 5 messages, at 0.990 s",
        "data differs in 495 of 495",
        "p50 is 1 ms later",
    ] {
        assert!(table.contains(wanted), "{wanted}: {table}");
    }
    let xml = fs::read_to_string(dir.path().join("out.xml")).expect("JUnit");
    assert!(
        xml.contains("tests=\"4\" failures=\"3\" errors=\"0\""),
        "{xml}"
    );
    let (code, json, _) = compare(
        &dir,
        &["a.mcap", "b.mcap", "--json", "--tolerance", "data=1.1%"],
    );
    let found: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let topic = &found["topics"][0];
    assert_eq!((code, &topic["missing"]["count"]), (Some(7), &5.into()));
    assert_eq!(
        (&topic["different"], &topic["shift_ns"]["p50"]),
        (&0.into(), &1_000_000.into())
    );
}

#[test]
fn recordings_of_different_times_need_to_be_aligned() {
    let dir = directory();
    let (code, _, said) = compare(&dir, &["a.mcap", "later.mcap"]);
    assert!(
        code == Some(1) && said.contains("--align") && said.lines().count() == 1,
        "{said}"
    );
    let (code, table, _) = compare(
        &dir,
        &["a.mcap", "later.mcap", "--align", "--max-shift", "1us"],
    );
    assert_eq!(code, Some(0), "{table}");
    for (words, what) in [
        (
            &["--ignore", "nothing"][..],
            "no compared topic has a field 'nothing'. The fields are data",
        ),
        (&["--topics", "/y"], "The recording has /x"),
    ] {
        let (code, _, said) = compare(&dir, &[&["a.mcap", "b.mcap"], words].concat());
        assert!(code == Some(1) && said.contains(what), "{said}");
    }
    for words in [
        ["--tolerance", "1%%"],
        ["--max-shift", "p75=1ms"],
        ["--tolerance", "-1"],
    ] {
        assert_eq!(
            compare(&dir, &[&["a.mcap", "b.mcap"], &words[..]].concat()).0,
            Some(2)
        );
    }
}
