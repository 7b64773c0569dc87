//! Tests `onbeat store` as people and scripts use it: each command once, and writers that are
//! killed.

#[path = "../../../observe/store/tests/server/mod.rs"]
mod server;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../demos/recorded/parking"
);

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command =
        Command::new(Path::new(env!("CARGO_BIN_EXE_onbeat-store")).with_file_name("onbeat"));
    command.args(args).current_dir(dir).env_remove("COLUMNS");
    command.stdin(Stdio::null());
    command
}

fn onbeat(dir: &Path, args: &[&str], code: i32) -> Output {
    let out = command(dir, args).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    assert!(!err.contains("panicked"), "{err}");
    out
}

fn json(dir: &Path, args: &[&str]) -> serde_json::Value {
    serde_json::from_slice(&onbeat(dir, args, 0).stdout).unwrap()
}

fn models(count: u64) -> (TempDir, Vec<String>) {
    let dir = TempDir::new().unwrap();
    onbeat(dir.path(), &["model", TRACE, "-o", "model.json"], 0);
    let text = fs::read_to_string(dir.path().join("model.json")).unwrap();
    let model: serde_json::Value = serde_json::from_str(&text).unwrap();
    let run = &model["runs"][0];
    let (id, start) = (run["id"].as_str().unwrap(), run["start"].as_u64().unwrap());
    let mut names = Vec::new();
    for n in 0..count {
        let begin = format!("\"start\":{}", start + n * 60_000_000_000);
        let text = text.replace(id, &format!("{n:032x}"));
        let text = text.replace(&format!("\"start\":{start}"), &begin);
        names.push(format!("{n}.json"));
        fs::write(dir.path().join(&names[n as usize]), text).unwrap();
    }
    (dir, names)
}

#[test]
fn each_store_command_works_on_a_directory() {
    let (dir, names) = models(4);
    let dir = dir.path();
    let err = onbeat(dir, &["store", "list", "s"], 1).stderr;
    let err = String::from_utf8(err).unwrap();
    assert_eq!(
        err,
        "onbeat: s is not a store. Create one with `onbeat store init s`.\n"
    );
    onbeat(dir, &["store", "init", "s"], 0);
    onbeat(dir, &["store", "list", "s"], 3);
    let mut put = vec!["store", "put", "s", TRACE, "--build", "1.4"];
    put.extend(names[..3].iter().map(String::as_str));
    onbeat(dir, &put, 0);
    onbeat(dir, &["store", "put", "s", &names[3], "--build", "1.5"], 0);
    onbeat(dir, &["store", "put", "s", "model.txt"], 1);
    let found = json(dir, &["store", "list", "s", "--build", "1.4", "--json"]);
    assert_eq!(found["rows"].as_array().unwrap().len(), 4);
    for line in String::from_utf8(onbeat(dir, &["store", "list", "s"], 0).stdout)
        .unwrap()
        .lines()
    {
        assert!(line.chars().count() <= 100, "{line}");
    }
    onbeat(dir, &["store", "list", "s", "--from", "2100-01-01"], 3);
    onbeat(dir, &["store", "list", "s", "--from", "yesterday"], 2);
    onbeat(
        dir,
        &["store", "merge", "s", "--build", "1.4", "-o", "a.json"],
        0,
    );
    onbeat(
        dir,
        &["merge", &names[2], &names[0], &names[1], "-o", "b.json"],
        0,
    );
    let read = |name: &str| fs::read(dir.join(name)).unwrap();
    assert!(
        read("a.json") == read("b.json"),
        "two merges of the same models differ"
    );
    onbeat(dir, &["store", "merge", "s", "--build", "9"], 3);
    let trace = json(dir, &["store", "list", "s", "--kind", "trace", "--json"]);
    let trace = trace["rows"][0]["object"].as_str().unwrap();
    onbeat(dir, &["store", "get", "s", &trace[..12], "-o", "trace"], 0);
    for name in ["manifest.json", "segment-000000.obt"] {
        assert!(read(&format!("trace/{name}")) == fs::read(Path::new(TRACE).join(name)).unwrap());
    }
    onbeat(dir, &["store", "get", "s", "zz", "-o", "x"], 1);
    let tidied = json(dir, &["store", "tidy", "s", "--json"]);
    assert_eq!(tidied["parts_after"], 1);
    onbeat(dir, &["store", "check", "s"], 0);
    let object = format!("s/objects/{}/{trace}", &trace[..2]);
    fs::write(dir.join(object), "x").unwrap();
    onbeat(dir, &["store", "check", "s"], 1);
}

#[test]
fn each_store_command_works_on_a_bucket() {
    let (dir, names) = models(3);
    let dir = dir.path();
    let server = server::Server::start();
    server.bucket("robots");
    let run = |args: &[&str], code: i32| {
        let mut command = command(dir, args);
        let out = command.envs(server.variables()).output().unwrap();
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
        assert!(!err.contains(server::SECRET), "{err}");
        (String::from_utf8(out.stdout).unwrap(), err)
    };
    let place = "s3://robots/runs";
    let (_, err) = run(&["store", "list", place], 1);
    assert_eq!(
        err,
        format!("onbeat: {place} is not a store. Create one with `onbeat store init {place}`.\n")
    );
    run(&["store", "init", place], 0);
    let mut put = vec!["store", "put", place, TRACE, "--build", "1.4"];
    put.extend(names.iter().map(String::as_str));
    run(&put, 0);
    run(
        &["store", "merge", place, "--build", "1.4", "-o", "a.json"],
        0,
    );
    let mut merge = vec!["merge", "-o", "b.json"];
    merge.extend(names.iter().map(String::as_str));
    onbeat(dir, &merge, 0);
    let read = |name: &str| fs::read(dir.join(name)).unwrap();
    assert!(
        read("a.json") == read("b.json"),
        "the merge in the bucket differs"
    );
    let (found, _) = run(&["store", "list", place, "--kind", "trace", "--json"], 0);
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let trace = found["rows"][0]["object"].as_str().unwrap();
    run(&["store", "get", place, trace, "-o", "trace"], 0);
    let manifest = fs::read(Path::new(TRACE).join("manifest.json")).unwrap();
    assert!(read("trace/manifest.json") == manifest);
    run(&["store", "tidy", place], 0);
    run(&["store", "check", place], 0);
    // The command must name a variable that is missing.
    let mut alone = command(dir, &["store", "list", place]);
    let out = alone.env_remove("AWS_ACCESS_KEY_ID").output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(
        err.ends_with("AWS_ACCESS_KEY_ID is not set\n") && err.lines().count() == 1,
        "{err}"
    );
}

/// Two writers put models at the same time. Each writer is killed at a random time and started
/// again. Every model that a writer reported as stored stays in the store. No incomplete object is
/// found, and at the end each model is in the store once.
#[test]
fn a_killed_writer_loses_no_model_that_it_reported_as_stored() {
    let (dir, names) = models(12);
    let dir = dir.path();
    onbeat(dir, &["store", "init", "s"], 0);
    // Both writers put four of the twelve models.
    let halves = [&names[..8], &names[4..]];
    let start = |names: &[String]| -> Child {
        let mut args = vec!["store", "put", "s"];
        args.extend(names.iter().map(String::as_str));
        let mut command = command(dir, &args);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let mut done = std::collections::BTreeSet::new();
    let mut random = 7u64;
    for round in 0..10 {
        let mut writers: Vec<(&String, Child)> = halves
            .iter()
            .map(|half| {
                let name = &half[round % half.len()];
                (name, start(std::slice::from_ref(name)))
            })
            .collect();
        for (_, writer) in &mut writers {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            std::thread::sleep(Duration::from_millis((random >> 33) % 120));
            let _ = writer.kill();
        }
        for (name, mut writer) in writers {
            if writer.wait().unwrap().success() {
                done.insert(name.clone());
            }
        }
        onbeat(dir, &["store", "check", "s"], 0);
        let out = command(dir, &["store", "list", "s", "--json"])
            .output()
            .unwrap();
        let found: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let rows = found["rows"].as_array().unwrap().len();
        assert!(
            rows >= done.len(),
            "{rows} in the store, {} were put",
            done.len()
        );
    }
    let mut last: Vec<Child> = halves.iter().map(|half| start(half)).collect();
    for writer in &mut last {
        assert!(writer.wait().unwrap().success());
    }
    let found = json(dir, &["store", "list", "s", "--json"]);
    assert_eq!(found["rows"].as_array().unwrap().len(), names.len());
    onbeat(dir, &["store", "check", "s"], 0);
}
