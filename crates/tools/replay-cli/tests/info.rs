//! Tests `onbeat info` as a user runs it: names of CAN messages, recordings with an index,
//! encodings, attachments and metadata.

use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn info(dir: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat-replay"));
    command.arg0("onbeat-info").args(words).current_dir(dir);
    let out = command.stdin(Stdio::null()).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (out.status.code(), text(out.stdout), text(out.stderr))
}

fn json(dir: &Path, words: &[&str]) -> Value {
    let (code, out, said) = info(dir, &[words, &["--json"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let mut all: Vec<Value> = serde_json::from_str(&out).expect("JSON");
    all.remove(0)
}

/// Copies a file of the corpus with which the readers are fuzzed.
fn corpus(dir: &Path, path: &str) -> Vec<u8> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus");
    let path = Path::new(root).join(path);
    let bytes = fs::read(&path).expect("a file");
    fs::write(dir.join(path.file_name().expect("a name")), &bytes).expect("written");
    bytes
}

#[test]
fn frames_are_listed_by_the_names_of_the_dbc_files() {
    let dir = TempDir::new().expect("a directory");
    let log = "(1.0) can0 123#11\n(1.1) can0 123#12\n(1.2) can1 00000123#13\n(1.3) can0 7FF#14\n";
    fs::write(dir.path().join("can.log"), log).expect("written");
    let dbc = |messages: &str| format!("VERSION \"\"\n\nBU_: A\n\n{messages}\n");
    let standard = dbc("BO_ 291 Brake: 8 A");
    let extended = dbc("BO_ 2147483939 Engine: 8 A\n\nBO_ 291 Other: 8 A");
    fs::write(dir.path().join("a.dbc"), standard).expect("written");
    fs::write(dir.path().join("b.dbc"), extended).expect("written");
    let words = ["can.log", "--dbc", "a.dbc", "--dbc", "b.dbc"];
    let (code, table, said) = info(dir.path(), &words);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let rows = table.lines().map(|line| line.split_whitespace().collect());
    let rows: Vec<Vec<&str>> = rows.collect();
    for wanted in [
        &["message", "identifier", "stream", "frames"][..],
        &["Brake", "123", "can0", "2"],
        &["-", "7FF", "can0", "1"],
        &["Engine", "00000123", "can1", "1"],
    ] {
        assert!(rows.iter().any(|row| row == wanted), "{wanted:?}: {table}");
    }
    let found = json(dir.path(), &words);
    assert_eq!(found["streams"][0]["messages"][0]["name"], "Brake");
    assert_eq!(found["streams"][0]["messages"][1]["name"], Value::Null);
    assert_eq!(found["streams"][1]["messages"][0]["name"], "Engine");
    fs::write(dir.path().join("torn.dbc"), "VERSION \"\"\nBO_ 291 Br").expect("written");
    let (code, _, said) = info(dir.path(), &["can.log", "--dbc", "torn.dbc"]);
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("torn.dbc"), "{said}");
}

#[test]
fn a_recording_with_an_index_is_listed_without_its_messages_unless_asked() {
    let dir = TempDir::new().expect("a directory");
    corpus(dir.path(), "mcap/zstd.mcap");
    let (code, table, said) = info(dir.path(), &["zstd.mcap"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(table.contains("only the index. --full"), "{table}");
    let (code, whole, _) = info(dir.path(), &["zstd.mcap", "--full"]);
    assert_eq!(code, Some(0));
    assert!(!whole.contains("index"), "{whole}");
    let mut index = json(dir.path(), &["zstd.mcap"]);
    let mut whole = json(dir.path(), &["zstd.mcap", "--full"]);
    assert_eq!(index["is_from_index"], true);
    assert_eq!(
        (&index["bytes"], &index["damage"]),
        (&Value::Null, &Value::Null)
    );
    assert!(whole["bytes"].as_u64() > Some(0) && whole["damage"] == serde_json::json!([]));
    for contents in [&mut index, &mut whole] {
        let contents = contents.as_object_mut().expect("an object");
        for name in ["is_from_index", "bytes", "damage"] {
            contents.remove(name).expect(name);
        }
        for stream in contents["streams"].as_array_mut().expect("a list") {
            let stream = stream.as_object_mut().expect("an object");
            stream.remove("bytes").expect("bytes");
        }
    }
    assert_eq!(index, whole);
}

#[test]
fn a_damaged_index_is_not_used_and_damage_is_listed() {
    let dir = TempDir::new().expect("a directory");
    let whole = corpus(dir.path(), "mcap/zstd.mcap");
    let cut = &whole[..whole.len() - 40];
    fs::write(dir.path().join("cut.mcap"), cut).expect("written");
    let found = json(dir.path(), &["cut.mcap"]);
    assert_eq!(found["is_from_index"], false);
    assert_eq!(found["damage"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(found["items"], json(dir.path(), &["zstd.mcap"])["items"]);
}

#[test]
fn an_encoding_other_than_that_of_ros_2_has_a_column() {
    let dir = TempDir::new().expect("a directory");
    corpus(dir.path(), "ros1/plain.bag");
    corpus(dir.path(), "mcap/plain.mcap");
    let (_, table, _) = info(dir.path(), &["plain.bag"]);
    assert!(
        table.contains("encoding") && table.contains("ros1"),
        "{table}"
    );
    let (_, table, _) = info(dir.path(), &["plain.mcap"]);
    assert!(!table.contains("encoding"), "{table}");
    for (file, encoding) in [("plain.bag", "ros1"), ("plain.mcap", "cdr")] {
        assert_eq!(
            json(dir.path(), &[file])["streams"][0]["encoding"],
            encoding
        );
    }
}

/// Encodes a text of an MCAP file.
fn text(text: &str) -> Vec<u8> {
    let length = (text.len() as u32).to_le_bytes();
    [&length[..], text.as_bytes()].concat()
}

#[test]
fn attachments_and_metadata_are_listed() {
    const ATTACHMENT: u8 = 9;
    const METADATA: u8 = 12;
    let dir = TempDir::new().expect("a directory");
    let whole = corpus(dir.path(), "mcap/plain.mcap");
    let record = |kind: u8, body: &[u8]| {
        let length = (body.len() as u64).to_le_bytes();
        [&[kind][..], &length, body].concat()
    };
    let times = [1_700_000_000_000_000_000u64.to_le_bytes(), [0; 8]].concat();
    let about = [times, text("lidar.yaml"), text("application/yaml")].concat();
    let file = [&2000u64.to_le_bytes()[..], &[7; 2000], &[0; 4]].concat();
    let long = "x".repeat(100);
    let values = [text("car"), text("A7"), text("notes"), text(&long)].concat();
    let length = (values.len() as u32).to_le_bytes();
    let metadata = [text("drive"), length.to_vec(), values].concat();
    let records = [
        record(ATTACHMENT, &[about, file].concat()),
        record(METADATA, &metadata),
    ];
    // The records are behind the first eight bytes, so that the index no longer fits.
    let bytes = [&whole[..8], &records.concat(), &whole[8..]].concat();
    fs::write(dir.path().join("more.mcap"), bytes).expect("written");
    let (code, table, _) = info(dir.path(), &["more.mcap"]);
    assert_eq!(code, Some(0));
    for wanted in [
        "attachment lidar.yaml: application/yaml, 2.0 kB, 2023-11-14 22:13:20.000 UTC",
        "metadata drive: car = A7; notes",
    ] {
        assert!(
            table.lines().any(|line| line == wanted),
            "{wanted}: {table}"
        );
    }
    let found = json(dir.path(), &["more.mcap"]);
    assert_eq!(found["attachments"][0]["bytes"], 2000);
    assert_eq!(found["metadata"][0]["values"]["notes"], long);
}
