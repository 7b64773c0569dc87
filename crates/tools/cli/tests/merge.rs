//! Tests of `onbeat merge` as a batch system uses it: models of the recorded application are merged
//! in parts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn onbeat(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat"));
    let command = command.args(args).current_dir(dir).stdin(Stdio::null());
    command.output().unwrap()
}

fn good(dir: &Path, args: &[&str]) {
    let out = onbeat(dir, args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {err}");
}

fn runs(number: usize) -> TempDir {
    let dir = TempDir::new().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let trace = root.join("demos/recorded/parking");
    good(
        dir.path(),
        &["model", trace.to_str().unwrap(), "-o", "recorded.json"],
    );
    let text = fs::read_to_string(dir.path().join("recorded.json")).unwrap();
    let model = onbeat_document::file::read(text.as_bytes()).unwrap();
    let id = &model.runs[0].id;
    for n in 0..number {
        let path = dir.path().join(format!("{n}.json"));
        fs::write(&path, text.replace(id, &format!("run{n}"))).unwrap();
        let (file, mode) = (format!("{n}.json"), format!("mode{}", n % 3));
        good(dir.path(), &["merge", &file, "--mode", &mode, "-o", &file]);
    }
    dir
}

#[test]
fn models_merged_in_any_order_give_the_same_bytes() {
    let dir = runs(7);
    let here = dir.path();
    let merge = |inputs: &[&str], output: &str| {
        good(here, &[&["merge", "-o", output], inputs].concat());
        fs::read(here.join(output)).unwrap()
    };
    let all = merge(
        &[
            "0.json", "1.json", "2.json", "3.json", "4.json", "5.json", "6.json",
        ],
        "all.json",
    );
    // The parts are a single model, an output that replaces an input, an unbalanced tree, and the
    // last models first.
    merge(&["6.json", "2.json", "4.json"], "a.json");
    merge(&["5.json"], "b.json");
    merge(&["1.json", "a.json", "--compact"], "a.json");
    merge(&["b.json", "a.json", "3.json"], "c.json");
    assert!(merge(&["c.json", "0.json"], "tree.json") == all);
    // The names come from a list in a file or a pipe.
    let names: Vec<String> = (0..7).rev().map(|n| format!("{n}.json\n")).collect();
    fs::write(here.join("names"), names.concat()).unwrap();
    assert!(merge(&["--list", "names"], "list.json") == all);
    let mut piped = Command::new(env!("CARGO_BIN_EXE_onbeat"));
    let piped = piped.args(["merge", "6.json", "--list", "-", "-o", "piped.json"]);
    fs::write(here.join("names"), names[1..].concat()).unwrap();
    let piped = piped.current_dir(here).stdout(Stdio::null());
    let list = fs::File::open(here.join("names")).unwrap();
    assert!(piped.stdin(list).status().unwrap().success());
    assert!(fs::read(here.join("piped.json")).unwrap() == all);
}

#[test]
fn a_model_that_cannot_be_merged_is_named_and_nothing_is_written() {
    let dir = runs(2);
    let here = dir.path();
    let text = fs::read_to_string(here.join("1.json")).unwrap();
    let model = onbeat_document::file::read(text.as_bytes()).unwrap();
    let host = format!("\"host\":\"{}\"", model.runs[0].host);
    assert!(text.contains(&host));
    let other = text.replace(&host, "\"host\":\"another\"");
    fs::write(here.join("other.json"), other.replace("run1", "run9")).unwrap();
    fs::write(here.join("half.json"), &text[..text.len() / 2]).unwrap();
    fs::write(here.join("names"), "").unwrap();
    for (args, says) in [
        (
            &["0.json", "other.json", "1.json"][..],
            "other.json: the runs are of two hosts",
        ),
        (
            &["0.json", "1.json", "0.json"],
            "0.json: run 'run0' is in more than one",
        ),
        (&["0.json", "half.json"], "half.json: "),
        (&["--list", "names"], "no model to merge"),
        (&["--list", "missing"], "missing: no such file"),
    ] {
        let out = onbeat(here, &[&["merge", "-o", "out.json"], args].concat());
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
        let left: Vec<PathBuf> = fs::read_dir(here)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        assert!(
            !left
                .iter()
                .any(|p| p.to_str().unwrap().contains("out.json")),
            "{left:?}"
        );
    }
}
