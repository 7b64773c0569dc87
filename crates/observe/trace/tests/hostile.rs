//! Tests that a writer is not misled by planted links or a replaced directory.

use onbeat_trace::writer::{Writer, WriterOptions};
use onbeat_trace::{Event, EventKind, Manifest, Reader};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const PRECIOUS: &str = "somebody else's";

fn event(number: u64) -> Event {
    Event {
        time_ns: number * 1000,
        cpu: 0,
        pid: 1,
        tid: 1,
        kind: EventKind::Wake { waker_tid: 1 },
    }
}

fn options() -> WriterOptions {
    WriterOptions {
        segment_bytes: 500,
        block_bytes: 100,
        max_segments: Some(2),
        ..WriterOptions::default()
    }
}

fn push(writer: &mut Writer, numbers: std::ops::Range<u64>) {
    for number in numbers {
        writer.push(&event(number)).expect("pushed");
    }
}

fn ends_with(trace: &Path, last: u64) {
    let mut reader = Reader::open(trace).expect("opened");
    let events: Vec<Event> = reader.events().collect();
    assert_eq!(events.last(), Some(&event(last)), "{:?}", reader.warnings());
    assert!(trace.join("init.obt").exists(), "segments were deleted");
}

#[test]
fn the_writer_does_not_follow_planted_links() {
    let dir = tempfile::tempdir().expect("directory");
    let (trace, victim) = (dir.path().join("trace"), dir.path().join("victim"));
    fs::write(&victim, PRECIOUS).expect("written");
    let mut writer = Writer::create(&trace, options()).expect("created");
    for name in ["manifest.json.tmp", "init.obt.tmp", "init.obt"] {
        symlink(&victim, trace.join(name)).expect("a link");
    }
    push(&mut writer, 0..1000);
    writer
        .write_manifest(&Manifest::default())
        .expect("written");
    writer.finish(Manifest::default()).expect("finished");
    assert_eq!(fs::read_to_string(&victim).expect("read"), PRECIOUS);
    ends_with(&trace, 999);
}

#[test]
fn a_symbolic_link_in_place_of_a_segment_ends_the_recording() {
    let dir = tempfile::tempdir().expect("directory");
    let (trace, victim) = (dir.path().join("trace"), dir.path().join("victim"));
    let mut writer = Writer::create(&trace, options()).expect("created");
    symlink(&victim, trace.join("segment-000001.obt")).expect("a link");
    let failed = (0..1000).find_map(|n| writer.push(&event(n)).err());
    assert!(failed.is_some() && !victim.exists(), "{failed:?}");
}

#[test]
fn a_directory_that_replaces_the_trace_receives_no_files() {
    let dir = tempfile::tempdir().expect("directory");
    let (trace, aside) = (dir.path().join("trace"), dir.path().join("aside"));
    let theirs = dir.path().join("theirs");
    fs::create_dir(&theirs).expect("a directory");
    let mut writer = Writer::create(&trace, options()).expect("created");
    push(&mut writer, 0..500);
    fs::rename(&trace, &aside).expect("moved");
    symlink(&theirs, &trace).expect("a link");
    push(&mut writer, 500..1000);
    writer.finish(Manifest::default()).expect("finished");
    assert_eq!(fs::read_dir(&theirs).expect("listed").count(), 0);
    ends_with(&aside, 999);
}

#[test]
fn a_trace_is_written_only_to_an_empty_directory() {
    let dir = tempfile::tempdir().expect("directory");
    let trace = dir.path().join("trace");
    fs::create_dir(&trace).expect("a directory");
    let link = dir.path().join("link");
    symlink(&trace, &link).expect("a link");
    let refused = |path: &Path| {
        let error = Writer::create(path, options()).err().expect("refused");
        let text = error.to_string();
        assert!(text.lines().count() == 1 && text.contains("Name"), "{text}");
        text
    };
    assert!(refused(&link).contains("symbolic link"));
    fs::write(trace.join("thesis.tex"), PRECIOUS).expect("written");
    assert!(refused(&trace).contains("not empty"));
    assert_eq!(fs::read_dir(&trace).expect("listed").count(), 1);
    fs::remove_file(trace.join("thesis.tex")).expect("removed");
    assert!(Writer::create(&trace, options()).is_ok());
}
