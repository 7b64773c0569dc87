//! Tests `onbeat convert` as a user runs it: formats, cuts, losses, refused outputs and a killed
//! process.

mod files;

use files::mcap;
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn command(dir: &TempDir, words: &[&str]) -> Command {
    named("onbeat-convert", dir, words)
}

fn named(name: &str, dir: &TempDir, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat-replay"));
    command.arg0(name).args(words);
    command.current_dir(dir.path()).stdin(Stdio::null());
    command
}

fn convert(dir: &TempDir, words: &[&str]) -> (Option<i32>, String, String) {
    run("onbeat-convert", dir, words)
}

fn run(name: &str, dir: &TempDir, words: &[&str]) -> (Option<i32>, String, String) {
    let out = named(name, dir, words).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (out.status.code(), text(out.stdout), text(out.stderr))
}

const LOG: &str = "\
(1700000000.000001) can1 123#1122
(1700000000.100000) can2 1ABCDEF0#R3 T
(1700000000.200000) can1 20000000#0000000000000000
(1700000000.300000) can1 7FF##3AABBCCDDEEFF001122334455
";

fn directory() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    fs::write(dir.path().join("can.log"), LOG).expect("written");
    dir
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// Only the player needs real-time scheduling, locked memory and raw packets. A conversion reads
/// files of unknown origin, so it must drop the capabilities for these.
#[test]
fn a_conversion_as_root_drops_the_capabilities_of_the_player() {
    const OF_THE_PLAYER: u64 = 1 << 13 | 1 << 14 | 1 << 23;
    let rights = |pid: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a status");
        let of = status.lines().find_map(|l| l.strip_prefix("CapPrm:\t"));
        u64::from_str_radix(of.expect("a line"), 16).expect("a number")
    };
    if rights("self") & OF_THE_PLAYER == 0 {
        println!("skipped: this test has none of the rights itself");
        return;
    }
    let dir = directory();
    // More than the pipe holds, so that the conversion waits for the reader.
    let log = "(1700000000.000001) can1 123#1122\n".repeat(20_000);
    fs::write(dir.path().join("long.log"), log).expect("written");
    let mut command = command(&dir, &["long.log", "--to", "candump", "-o", "-"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut output = child.stdout.take().expect("a pipe");
    output.read_exact(&mut [0]).expect("output");
    let kept = rights(&child.id().to_string());
    drop(output);
    child.wait().expect("it ends");
    assert_eq!(kept & OF_THE_PLAYER, 0, "{kept:#x}");
}

#[test]
fn a_log_converted_through_every_format_and_back_is_unchanged() {
    let dir = directory();
    let mut last = "can.log".to_owned();
    for name in ["a.asc", "b.blf", "c.pcapng", "d.log"] {
        let (code, out, said) = convert(&dir, &[&last, "-o", name, "--strict"]);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{name}");
        assert!(out.contains("items: 4, streams: 2"), "{out}");
        last = name.to_owned();
    }
    assert_eq!(
        fs::read_to_string(dir.path().join("d.log")).expect("a log"),
        LOG
    );
    let (code, out, _) = convert(
        &dir,
        &[
            "c.pcapng",
            "--to",
            "candump",
            "-o",
            "-",
            "--start",
            "50ms",
            "--duration",
            "100ms",
            "--ids",
            "123,1abcdef0",
        ],
    );
    let line = LOG.lines().nth(1).expect("a line");
    assert_eq!((code, out), (Some(0), format!("{line}\n")));
    let (code, out, _) = convert(
        &dir,
        &[
            "can.log", "--topics", "can1", "--until", "250ms", "-o", "-", "--to", "candump",
        ],
    );
    assert_eq!((code, out.lines().count()), (Some(0), 2));
}

#[test]
fn messages_converted_to_a_bag_and_back_are_unchanged() {
    let dir = directory();
    let value = |n: u64| (n % 7 != 3).then_some(n as f64 / 3.0);
    mcap(
        &dir.path().join("a.mcap"),
        2000,
        1_700_000_000_000_000_001,
        value,
    );
    let to_bag = |from: &str, to: &str| {
        let (code, out, said) = convert(&dir, &[from, "--to", "rosbag2", "-o", to, "--strict"]);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{from}");
        assert!(
            out.contains("rosbag2 bag, items: 1714, streams: 1"),
            "{out}"
        );
        assert_eq!(
            names(&dir.path().join(to)),
            [format!("{to}_0.mcap"), "metadata.yaml".to_owned()]
        );
    };
    to_bag("a.mcap", "bag");
    let (code, _, said) = convert(&dir, &["bag", "-o", "b.mcap", "--strict"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    to_bag("b.mcap", "again");
    let listed = |name: &str| {
        let (code, out, said) = run("onbeat-info", &dir, &[name, "--json", "--full"]);
        assert_eq!(code, Some(0), "{said}");
        let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        let stream = &found[0]["streams"][0];
        assert_eq!(
            (&stream["name"], &stream["of_type"]),
            (&"/x".into(), &"std_msgs/msg/Float64".into())
        );
        ["items", "bytes", "first_ns", "last_ns", "longest_gap"].map(|key| found[0][key].clone())
    };
    for name in ["bag", "b.mcap", "again"] {
        assert_eq!(listed(name), listed("a.mcap"), "{name}");
        let words = ["a.mcap", name, "--max-shift", "1us"];
        let (code, table, said) = run("onbeat-compare", &dir, &words);
        assert_eq!(code, Some(0), "{table}{said}");
    }
    let cut = [
        "bag",
        "--to",
        "rosbag2",
        "-o",
        "part",
        "--start",
        "1s",
        "--duration",
        "70ms",
    ];
    assert_eq!(convert(&dir, &cut).0, Some(0));
    let part = listed("part");
    assert_eq!(
        (&part[0], &part[2]),
        (&6.into(), &1_700_000_001_000_000_001u64.into())
    );
    // A bag does not replace another one.
    let (code, _, said) = convert(
        &dir,
        &["a.mcap", "--to", "rosbag2", "-o", "part", "--force"],
    );
    assert!(
        code == Some(1) && said.contains("part is a directory"),
        "{said}"
    );
    assert_eq!(listed("part"), part);
}

#[test]
fn losses_of_a_conversion_are_reported_and_refused_with_strict() {
    let dir = directory();
    fs::write(
        dir.path().join("own.log"),
        LOG.replace("can1", "vcan0").replace("#00000", "#00001"),
    )
    .expect("written");
    let (code, out, said) = convert(&dir, &["own.log", "-o", "own.asc", "--strict", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (code, &found["written"]),
        (Some(5), &false.into()),
        "{said}"
    );
    assert_eq!(found["lost"].as_array().map(Vec::len), Some(2), "{out}");
    for wanted in ["lost: error frames", "vcan0 is can1", "--strict"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(!dir.path().join("own.asc").exists());
    let (code, _, said) = convert(&dir, &["own.log", "-o", "own.asc"]);
    assert_eq!((code, said.lines().count()), (Some(0), 2), "{said}");
    let (code, _, said) = convert(&dir, &["can.log", "-o", "can.mcap"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("only messages of ROS 2") && said.contains("nothing to write"),
        "{said}"
    );
    assert_eq!(names(dir.path()), ["can.log", "own.asc", "own.log"]);
}

#[test]
fn attachments_and_metadata_that_are_not_written_are_reported_before() {
    let dir = TempDir::new().expect("a directory");
    let bag = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/mcap/plain.mcap");
    let whole = fs::read(bag).expect("in the repository");
    let text = |text: &str| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let record = |kind: u8, body: &[u8]| {
        let length = (body.len() as u64).to_le_bytes();
        [&[kind][..], &length, body].concat()
    };
    let attachment = |name: &str| {
        let about = [vec![0; 16], text(name), text("text/plain")].concat();
        record(
            9,
            &[&about[..], &2u64.to_le_bytes(), b"ab", &[0; 4]].concat(),
        )
    };
    let pair = [text("car"), text("A7")].concat();
    let map = [&(pair.len() as u32).to_le_bytes()[..], &pair].concat();
    let metadata = record(12, &[text("drive"), map].concat());
    let names = ["lidar.yaml", "b", "c", "d", "e", "f", "g"];
    let attachments: Vec<_> = names.iter().flat_map(|name| attachment(name)).collect();
    let bytes = [&whole[..8], &attachments, &metadata, &whole[8..]].concat();
    fs::write(dir.path().join("more.mcap"), bytes).expect("written");
    let wanted = [
        "attachments not written, because conversions write only items (lidar.yaml, b, c, d, e and 2 more)",
        "records of metadata not written, because conversions write only items (drive)",
    ];
    let (code, out, said) = convert(&dir, &["more.mcap", "-o", "a.mcap", "--strict", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(code, Some(5), "{said}");
    for (loss, (what, count)) in wanted.iter().zip([7, 1]).enumerate() {
        assert_eq!(found["lost"][loss]["what"], *what);
        assert_eq!(found["lost"][loss]["count"], count);
        assert!(
            said.contains(&format!("onbeat: lost: {what}: {count}\n")),
            "{said}"
        );
    }
    assert!(!dir.path().join("a.mcap").exists());
    let (code, _, said) = convert(&dir, &["more.mcap", "-o", "a.mcap"]);
    assert_eq!((code, said.lines().count()), (Some(0), 2), "{said}");
}

#[test]
fn recordings_and_existing_files_are_not_overwritten() {
    let dir = directory();
    fs::write(dir.path().join("there.blf"), "precious").expect("written");
    fs::create_dir(dir.path().join("folder.blf")).expect("made");
    std::os::unix::fs::symlink("can.log", dir.path().join("link.log")).expect("linked");
    for (words, code, what) in [
        (&["can.log", "-o", "there.blf"][..], 1, "--force"),
        (
            &["can.log", "-o", "folder.blf", "--force"],
            1,
            "is a directory",
        ),
        (&["can.log", "-o", "can.log", "--force"], 1, "that are read"),
        (
            &["can.log", "-o", "link.log", "--force"],
            1,
            "that are read",
        ),
        (&["can.log", "-o", "nowhere/x.blf"], 1, "nowhere/x.blf"),
        (&["can.log", "-o", "x.txt"], 2, "--to"),
        (&["can.log", "-o", "-", "--to", "blf"], 2, "standard output"),
        (
            &["can.log", "-o", "-", "--to", "candump", "--json"],
            2,
            "both",
        ),
        (
            &["can.log", "-o", "x", "--to", "txt"],
            2,
            "candump, asc, blf",
        ),
        (
            &["can.log", "-o", "x.blf", "--until", "1", "--duration", "1"],
            2,
            "--duration",
        ),
        (&["can.log", "-o", "x.blf", "--topics", "can7"], 1, "can7"),
        (&["none.log", "-o", "x.blf"], 1, "none.log"),
    ] {
        let (found, _, said) = convert(&dir, words);
        assert_eq!(found, Some(code), "{words:?}: {said}");
        assert!(said.contains(what), "{words:?}: {said}");
    }
    assert_eq!(
        names(dir.path()),
        ["can.log", "folder.blf", "link.log", "there.blf"]
    );
    let there = || fs::read(dir.path().join("there.blf")).expect("a file");
    assert_eq!(there(), b"precious");
    let (code, ..) = convert(&dir, &["can.log", "-o", "there.blf", "--force"]);
    assert_eq!((code, there().starts_with(b"LOGG")), (Some(0), true));
    assert_eq!(
        fs::read_to_string(dir.path().join("can.log")).expect("a log"),
        LOG
    );
}

/// Limits each file that the command writes to the size `bytes`. If `fails` is true, a write beyond
/// the limit fails. Otherwise such a write kills the process.
fn limited(mut command: Command, bytes: u64, fails: bool) -> Command {
    // SAFETY: the closure only calls functions that are safe between fork and exec.
    unsafe {
        command.pre_exec(move || {
            for (which, most) in [(libc::RLIMIT_FSIZE, bytes), (libc::RLIMIT_CORE, 0)] {
                let limit = libc::rlimit {
                    rlim_cur: most,
                    rlim_max: most,
                };
                libc::setrlimit(which, &limit);
            }
            let action = if fails { libc::SIG_IGN } else { libc::SIG_DFL };
            libc::signal(libc::SIGXFSZ, action);
            Ok(())
        });
    }
    command
}

#[test]
fn a_failed_or_killed_conversion_leaves_the_existing_file() {
    let dir = directory();
    let log: String = (0..2000)
        .map(|n| format!("({n}.0) can1 123#{n:016X}\n"))
        .collect();
    fs::write(dir.path().join("long.log"), log).expect("written");
    fs::write(dir.path().join("there.log"), "precious").expect("written");
    let words = ["long.log", "-o", "there.log", "--force"];
    let temporary = || {
        let names = names(dir.path()).into_iter();
        names.filter(|name| name.starts_with(".there.log.")).count()
    };
    for fails in [true, false] {
        let out = limited(command(&dir, &words), 4096, fails)
            .output()
            .expect("it starts");
        assert_eq!(out.status.code(), fails.then_some(1), "{out:?}");
        assert_eq!(out.status.signal(), (!fails).then_some(libc::SIGXFSZ));
        assert_eq!(
            fs::read(dir.path().join("there.log")).expect("a file"),
            b"precious"
        );
        // Only a killed process leaves its temporary file behind.
        assert_eq!(temporary(), usize::from(!fails));
    }
}

#[test]
fn an_import_that_cannot_be_written_leaves_nothing() {
    let dir = directory();
    let session = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../observe/ctf/tests/recorded"
    );
    fs::create_dir(dir.path().join("empty")).expect("made");
    let import = |limit: &str, to: &str| {
        let program = env!("CARGO_BIN_EXE_onbeat-replay");
        // A file that grows beyond the limit is as a full disk.
        let line = "trap '' XFSZ; $0 exec -a onbeat-import \"$1\" \"$2\" -o \"$3\"";
        let mut shell = Command::new("bash");
        let words = [
            "-c",
            &line.replace("$0", limit),
            "bash",
            program,
            session,
            to,
        ];
        let out = shell.args(words).current_dir(dir.path()).output();
        let out = out.expect("it starts");
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    for to in ["new", "empty"] {
        let (code, said) = import("ulimit -f 1;", to);
        assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    }
    assert_eq!(names(dir.path()), ["can.log", "empty"]);
    assert!(names(&dir.path().join("empty")).is_empty());
    for to in ["new", "empty"] {
        let (code, said) = import("", to);
        assert_eq!(code, Some(0), "{said}");
        assert!(dir.path().join(to).join("manifest.json").exists());
    }
}
