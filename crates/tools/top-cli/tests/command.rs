//! Tests `onbeat top` as scripts use it, on a recorded trace: its figures, its errors, its exit
//! codes.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../demos/recorded/parking"
);

fn top(words: &[&str]) -> Output {
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_onbeat-top")));
    command
        .args(words)
        .stdin(Stdio::null())
        .env_remove("COLUMNS");
    command.output().unwrap()
}

#[test]
fn one_line_of_json_has_every_execution_of_the_trace() {
    let output = top(&[TRACE, "--once", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let chains = line["chains"].as_array().unwrap();
    let runs: Vec<_> = chains
        .iter()
        .map(|chain| chain["latency"]["start"]["count"].as_u64())
        .collect();
    assert_eq!(runs, [Some(200), Some(200)]);
}

#[test]
fn the_table_of_top_fits_into_100_columns() {
    let output = top(&[TRACE, "--once"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("chain "), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn wrong_options_are_refused_in_one_line_with_an_exit_code() {
    for (words, code, expected) in [
        (
            &["nowhere", "--once"][..],
            1,
            "nowhere: no such file or directory",
        ),
        (
            &[TRACE, "--once", "--requirements", "nowhere.yaml"],
            1,
            "nowhere.yaml: no such file",
        ),
        (
            &[TRACE, "--speed", "0"],
            2,
            "write the factor of the speed, from 0.001 to 1000000",
        ),
        (&["--speed", "2"], 2, "<TRACE>"),
    ] {
        let output = top(words);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
        assert!(text.contains(expected), "{words:?}: {text}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}
