//! Tests the example of onbeat-flow's README: the README shows the repository's code, the code
//! works, and with one line changed it works across two processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn example(name: &str) -> PathBuf {
    // Cargo builds examples next to its tests.
    let tests = std::env::current_exe().unwrap();
    let profile = tests.ancestors().nth(2).unwrap();
    profile.join("examples").join(name)
}

fn source(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn check(output: &[u8]) {
    let lines: Vec<_> = std::str::from_utf8(output).unwrap().lines().collect();
    assert_eq!(lines.len(), 50, "{lines:?}");
    let mut before = None;
    for (step, line) in lines.iter().enumerate() {
        let sum = line.strip_prefix("Some(").unwrap();
        let (sum, at) = sum.split_once(") at ").unwrap();
        let (sum, at): (f64, u64) = (sum.parse().unwrap(), at.parse().unwrap());
        assert!((sum - step as f64 * 1.01).abs() < 0.006, "{line}");
        let slot = (at / 1_000_000).checked_sub(8).map(|ms| ms / 10);
        assert!(slot > before, "{line}: not in a slot of its own");
        before = slot;
    }
}

#[test]
fn the_readme_shows_the_example() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../flow/README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    assert!(readme.contains(&source("fusion.rs")), "copy it there");
}

#[test]
fn one_changed_line_runs_the_example_in_two_processes() {
    let (one, two) = (source("fusion.rs"), source("fusion_processes.rs"));
    let differ: Vec<_> = one
        .lines()
        .zip(two.lines())
        .filter(|(a, b)| a != b)
        .collect();
    assert_eq!(
        (differ.len(), one.lines().count()),
        (1, two.lines().count())
    );
    assert!(differ[0].1.contains("onbeat_link::Machine"));

    let output = Command::new(example("fusion")).output().unwrap();
    assert!(output.status.success());
    check(&output.stdout);

    let start = |part: &str| {
        let mut command = Command::new(example("fusion_processes"));
        command.arg(part).stdout(Stdio::piped()).spawn().unwrap()
    };
    let (sense, fuse) = (start("sense"), start("fuse"));
    check(&fuse.wait_with_output().unwrap().stdout);
    assert!(sense.wait_with_output().unwrap().status.success());
}
