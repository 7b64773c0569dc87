//! Tests of trace directories: every written event is read back, and damage loses only the blocks
//! it hits.
mod common;

use onbeat_trace::reader::ahead::{self, Prepare};
use onbeat_trace::{block, Event, EventKind, Manifest, Reader, State, Writer, WriterOptions};
use proptest::prelude::*;
use std::path::Path;
use std::sync::mpsc::channel;

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn small() -> WriterOptions {
    WriterOptions {
        segment_bytes: 2000,
        block_bytes: 300,
        id: Some(*b"0123456789abcdef"),
        ..WriterOptions::default()
    }
}

fn write(dir: &Path, options: WriterOptions, events: &[Event]) {
    let mut writer = Writer::create(dir, options).expect("created");
    for event in events {
        writer.push(event).expect("pushed");
    }
    writer.finish(Manifest::default()).expect("finished");
}

fn read(dir: &Path) -> (Vec<Event>, Reader) {
    let mut reader = Reader::open(dir).expect("opened");
    let events = reader.events().collect();
    (events, reader)
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn all_written_events_are_read_in_time_order(events in common::events(0..300)) {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("trace");
        write(&path, small(), &events);
        let (got, reader) = read(&path);

        // Late events from further back than one block are returned out of order, but not lost.
        let mut expected = events.clone();
        let mut sorted = got.clone();
        expected.sort_by(|a, b| (a.time_ns, format!("{a:?}")).cmp(&(b.time_ns, format!("{b:?}"))));
        sorted.sort_by(|a, b| (a.time_ns, format!("{a:?}")).cmp(&(b.time_ns, format!("{b:?}"))));
        prop_assert_eq!(expected, sorted);
        let late = got.windows(2).filter(|w| w[1].time_ns < w[0].time_ns).count() as u64;
        prop_assert!(late <= reader.stats().late_events);
        let out_of_order = {
            let mut latest = 0;
            events.iter().filter(|e| { latest = latest.max(e.time_ns); e.time_ns < latest }).count()
        };
        prop_assert_eq!(reader.manifest().written.out_of_order, out_of_order as u64);
        prop_assert_eq!(reader.manifest().state, State::Complete);
        prop_assert_eq!(reader.manifest().written.events, events.len() as u64);
        prop_assert!(reader.warnings().is_empty(), "{:?}", reader.warnings());
        if late == 0 {
            // Events of equal time keep the order in which they were pushed.
            let mut stable = events;
            stable.sort_by_key(|e| e.time_ns);
            prop_assert_eq!(stable, got);
        }
    }
}

fn wake(time_ns: u64, number: u32) -> Event {
    Event {
        time_ns,
        cpu: 0,
        pid: 1,
        tid: 1,
        kind: EventKind::Wake { waker_tid: number },
    }
}

/// Counts the events of each part. Fails at part `fails_at`.
#[derive(Default)]
struct Counts {
    since: usize,
    parts: usize,
    fails_at: Option<usize>,
    ended: bool,
}

impl Prepare for Counts {
    type Made = usize;
    type Error = &'static str;

    fn event(&mut self, _: &Event) {
        self.since += 1;
    }

    fn part(&mut self, last: bool) -> Result<usize, &'static str> {
        self.ended = last;
        self.parts += 1;
        match self.fails_at == Some(self.parts) {
            true => Err("the preparation fails"),
            false => Ok(std::mem::take(&mut self.since)),
        }
    }
}

#[test]
fn events_that_are_read_ahead_come_in_order_with_what_was_prepared() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("trace");
    let events: Vec<Event> = (0..100_000).map(|i| wake(i, i as u32)).collect();
    write(&path, WriterOptions::default(), &events);
    let mut reader = Reader::open(&path).expect("opened");
    let (used, spare) = channel();
    let (mut got, mut counts) = (Vec::new(), Counts::default());
    let all = ahead::read(&mut reader, &mut counts, spare, |events, count| {
        assert_eq!(events.len(), count);
        got.extend_from_slice(&events);
        used.send(events)
            .map_err(|_| "the reading has ended")
            .or(Ok(()))
    });
    assert_eq!(all, Ok(()));
    assert!(counts.parts > 3 && counts.ended, "{}", counts.parts);
    assert!(got == events);
    assert_eq!(reader.stats().events, 100_000);

    let mut fails = Counts {
        fails_at: Some(3),
        ..Counts::default()
    };
    let mut parts = 0;
    let (_, spare) = channel();
    let failed = ahead::read(&mut reader, &mut fails, spare, |_, _| {
        parts += 1;
        Ok(())
    });
    assert_eq!((failed, parts), (Err("the preparation fails"), 2));
    let (_, spare) = channel();
    let stopped = ahead::read(&mut reader, &mut Counts::default(), spare, |_, _| {
        Err("the visitor stops")
    });
    assert_eq!(stopped, Err("the visitor stops"));
}

#[test]
fn late_events_of_the_next_block_are_sorted_by_time() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("trace");
    let mut writer = Writer::create(&path, small()).expect("created");
    for (time, end) in [
        (10, false),
        (30, false),
        (50, true),
        (20, false),
        (60, true),
        (70, true),
    ] {
        writer.push(&wake(time, 0)).expect("pushed");
        if end {
            writer.flush().expect("flushed");
        }
    }
    writer.finish(Manifest::default()).expect("finished");
    let (got, reader) = read(&path);
    let times: Vec<u64> = got.iter().map(|e| e.time_ns).collect();
    assert_eq!(times, [10, 20, 30, 50, 60, 70]);
    assert_eq!(reader.stats().late_events, 0);
    assert_eq!(reader.manifest().written.out_of_order, 1);
}

fn twelve_blocks(dir: &Path) -> Vec<Vec<Event>> {
    let options = WriterOptions {
        segment_bytes: 1 << 20,
        ..small()
    };
    let mut writer = Writer::create(dir, options).expect("created");
    let blocks: Vec<Vec<Event>> = (0..12)
        .map(|b| {
            (0..10)
                .map(|i| wake(1000 * b + i, (b * 100 + i) as u32))
                .collect()
        })
        .collect();
    for block in &blocks {
        for event in block {
            writer.push(event).expect("pushed");
        }
        writer.flush().expect("flushed");
    }
    writer.finish(Manifest::default()).expect("finished");
    blocks
}

fn block_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(&block::MAGIC))
        .collect();
    starts.push(bytes.len());
    starts
}

const SEGMENT: &str = "segment-000000.obt";

#[test]
fn a_truncated_trace_file_still_gives_all_complete_blocks() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("trace");
    let blocks = twelve_blocks(&path);
    let bytes = std::fs::read(path.join(SEGMENT)).expect("read");
    let starts = block_starts(&bytes);
    assert_eq!(starts.len(), 13);
    for length in (0..=bytes.len()).rev() {
        std::fs::write(path.join(SEGMENT), &bytes[..length]).expect("written");
        let (got, reader) = read(&path);
        let whole = starts
            .iter()
            .filter(|s| **s <= length)
            .count()
            .saturating_sub(1);
        assert_eq!(got, blocks[..whole].concat(), "cut at {length}");
        let stats = reader.stats();
        assert_eq!(
            stats.damaged_blocks,
            0,
            "cut at {length}: {:?}",
            reader.warnings()
        );
        let clean = starts.contains(&length);
        assert_eq!(stats.cut_blocks, u64::from(!clean), "cut at {length}");
        assert_eq!(reader.warnings().is_empty(), clean, "cut at {length}");
    }
}

#[derive(Debug, Clone)]
enum Damage {
    Flip(u8),
    Delete(usize),
    Insert(Vec<u8>),
    Overwrite(Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let bytes = || prop::collection::vec(any::<u8>(), 1..40);
    prop_oneof![
        4 => (1..=255u8).prop_map(Damage::Flip),
        1 => (1..40usize).prop_map(Damage::Delete),
        1 => bytes().prop_map(Damage::Insert),
        1 => bytes().prop_map(Damage::Overwrite),
    ]
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn damage_in_a_trace_file_loses_only_the_damaged_blocks(place in any::<prop::sample::Index>(), damage in damage()) {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("trace");
        let blocks = twelve_blocks(&path);
        let bytes = std::fs::read(path.join(SEGMENT)).expect("read");
        let starts = block_starts(&bytes);
        let at = place.index(bytes.len());
        let mut hit = at..at + 1;
        let mut bad = bytes.clone();
        match &damage {
            Damage::Flip(mask) => bad[at] ^= mask,
            Damage::Delete(count) => {
                hit.end = (at + count).min(bytes.len());
                bad.drain(hit.clone());
            }
            Damage::Insert(new) => {
                // An insertion between two blocks damages neither.
                bad.splice(at..at, new.iter().copied());
            }
            Damage::Overwrite(new) => {
                hit.end = (at + new.len()).min(bytes.len());
                bad.splice(hit.clone(), new.iter().copied().take(hit.len()));
            }
        }
        std::fs::write(path.join(SEGMENT), &bad).expect("written");
        let (got, reader) = read(&path);
        let mut expected = Vec::new();
        let mut lost = 0;
        for (number, block) in blocks.iter().enumerate() {
            let inside = starts[number]..starts[number + 1];
            let untouched = hit.end <= inside.start || hit.start >= inside.end
                || matches!(damage, Damage::Insert(_) if at == inside.start);
            // Damage can also restore the original bytes.
            let same = got.iter().any(|e| *e == block[0]);
            if untouched || same {
                expected.extend_from_slice(block);
            } else {
                lost += 1;
            }
        }
        prop_assert_eq!(&got, &expected);
        let stats = reader.stats();
        // The number of lost blocks at the end is unknown.
        let least = if got.last() == blocks[11].last() { lost } else { 1 };
        prop_assert!(stats.damaged_blocks + stats.cut_blocks >= least, "{stats:?}, {lost} lost");
        if bad != bytes {
            prop_assert!(!reader.warnings().is_empty());
        }
    }
}

fn init(time_ns: u64, pid: u32) -> Vec<Event> {
    let event = |at, kind| Event {
        time_ns: time_ns + at,
        cpu: 0,
        pid,
        tid: pid,
        kind,
    };
    vec![
        event(
            0,
            EventKind::NodeInit {
                node: 1,
                rmw: 2,
                name: format!("n{pid}").into(),
                namespace: "/".into(),
            },
        ),
        event(
            1,
            EventKind::TimerInit {
                timer: 3,
                period_ns: 100,
            },
        ),
        event(
            2,
            EventKind::ClockOffset {
                realtime_minus_monotonic_ns: time_ns as i64,
            },
        ),
    ]
}

fn is_wake(event: &Event) -> bool {
    matches!(event.kind, EventKind::Wake { .. })
}

#[test]
fn a_flight_recorder_keeps_the_events_that_later_events_need() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("trace");
    let options = WriterOptions {
        max_segments: Some(2),
        ..small()
    };
    let mut writer = Writer::create(&path, options).expect("created");
    let mut expected = Vec::new();
    let mut time = 0;
    let mut saved = None;
    for pid in 1..40u32 {
        let mut events = init(time, pid);
        events.extend((0..50).map(|i| wake(time + 10 + i, i as u32)));
        expected.extend(events[..2].iter().cloned());
        if pid == 5 {
            // This process ends, so none of its events need to be kept.
            events.push(Event {
                pid: 3,
                tid: 3,
                ..wake(time + 90, 0)
            });
            events.last_mut().expect("one").kind = EventKind::Exit;
        }
        for event in events {
            writer.push(&event).expect("pushed");
        }
        time += 100;
        // Save a segment before it is deleted.
        let old = path.join("segment-000003.obt");
        if let Ok(bytes) = std::fs::read(&old) {
            saved = Some((old, bytes));
        }
    }
    writer.finish(Manifest::default()).expect("finished");
    expected.retain(|e| e.pid != 3);
    let segments = std::fs::read_dir(&path).expect("listed").count() - 2;
    assert_eq!(segments, 2, "beside manifest.json and init.obt");

    let check = |what: &str| {
        let (got, reader) = read(&path);
        let lasting: Vec<Event> = got
            .iter()
            .filter(|e| !is_wake(e) && !matches!(e.kind, EventKind::ClockOffset { .. }))
            .cloned()
            .collect();
        assert_eq!(lasting, expected, "{what}");
        assert!(
            reader.warnings().is_empty(),
            "{what}: {:?}",
            reader.warnings()
        );
        assert!(got.iter().filter(|e| is_wake(e)).count() >= 50, "{what}");
        assert!(
            got.windows(2).all(|w| w[0].time_ns <= w[1].time_ns),
            "{what}"
        );
        let offsets = |e: &&Event| matches!(e.kind, EventKind::ClockOffset { .. });
        let offsets = got.iter().filter(offsets).count();
        assert!(
            offsets < 20,
            "{what}: only the newest of the deleted ones, but {offsets}"
        );
    };
    check("as written");
    // The state after a kill between writing init.obt and deleting the segment that it replaces.
    let (old, bytes) = saved.expect("a segment was seen before it was deleted");
    std::fs::write(old, bytes).expect("written");
    check("with a segment that should be gone");
    // The state after a kill while init.obt was written.
    std::fs::write(path.join("init.obt.tmp"), b"half").expect("written");
    check("with a temporary file");
}

fn refusal(path: &Path) -> String {
    let text = match Reader::open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    };
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(&path.display().to_string()), "{text}");
    text
}

#[test]
fn a_path_without_a_trace_is_refused_in_one_line() {
    let dir = tempfile::tempdir().expect("directory");
    let at = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("made");
        }
        std::fs::write(&path, bytes).expect("written");
        path
    };
    assert!(refusal(&dir.path().join("nothing")).contains("No such file"));
    assert!(refusal(dir.path()).contains("neither segments nor"));
    refusal(&at("empty", b""));
    refusal(&at("model.json", b"{\"schema\": \"onbeat-model/1\"}"));
    at("foreign/manifest.json", b"{\"schema\": \"something-else\"}");
    refusal(&dir.path().join("foreign"));
    at("junk/segment-000000.obt", &[7; 5000]);
    refusal(&dir.path().join("junk"));

    let path = dir.path().join("trace");
    let blocks = twelve_blocks(&path);
    let mut bytes = std::fs::read(path.join(SEGMENT)).expect("read");
    let current = bytes[8];
    let mut with_version = |version| {
        bytes[8] = version;
        let crc = crc32fast::hash(&bytes[..40]);
        bytes[40..44].copy_from_slice(&crc.to_le_bytes());
        std::fs::write(path.join(SEGMENT), &bytes).expect("written");
    };
    with_version(current + 1);
    assert!(refusal(&path).contains("Update onbeat"));
    with_version(1);
    let older = refusal(&path);
    assert!(older.contains("trace format 1"), "{older}");
    assert!(older.contains("Record again"), "{older}");

    // Version 2 only lacks some kinds of events.
    with_version(2);
    assert_eq!(read(&path).0, blocks.concat());

    // A trace with a damaged or missing manifest can still be read.
    with_version(current);
    let id = read(&path).1.manifest().id.clone();
    for manifest in [
        Some("{\"schema\": \"onbeat-trace/1\", \"ev"),
        Some("[]"),
        None,
    ] {
        let file = path.join("manifest.json");
        match manifest {
            Some(text) => std::fs::write(file, text).expect("written"),
            None => std::fs::remove_file(file).expect("removed"),
        }
        let (got, reader) = read(&path);
        assert_eq!(got, blocks.concat());
        assert_eq!(reader.manifest().id, id);
        assert!(
            reader.warnings()[0].contains("manifest.json"),
            "{:?}",
            reader.warnings()
        );
    }
    let (got, _) = read(&path.join(SEGMENT));
    assert_eq!(got, blocks.concat());
    // Without the file header, the reader finds the segment's blocks.
    std::fs::write(path.join(SEGMENT), &bytes[44..]).expect("written");
    assert_eq!(read(&path).0, blocks.concat());
}

#[test]
fn a_second_recording_does_not_overwrite_the_first_trace() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("trace");
    twelve_blocks(&path);
    let error = Writer::create(&path, small()).err().expect("refused");
    assert!(
        error.to_string().contains("already holds a trace"),
        "{error}"
    );
}

#[test]
fn manifests_of_other_versions_are_read() {
    let text = br#"{"schema": "onbeat-trace/1", "id": "x", "state": "complete", "new": {"a": 1},
        "probes": [{"name": "p", "fresh": 1}], "lost": {"take": {"1": 3}}}"#;
    let manifest = onbeat_trace::reader::parse_manifest(text).expect("parsed");
    assert_eq!(manifest.observed.probes[0].name, "p");
    assert_eq!(manifest.lost["take"][&1], 3);
}

#[test]
fn a_flight_recorder_keeps_only_the_latest_event_per_object() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("trace");
    let options = WriterOptions {
        max_segments: Some(2),
        ..small()
    };
    let mut writer = Writer::create(&path, options).expect("created");
    // A program makes a timer for each wait, at four addresses in turn.
    let rounds = 20_000u64;
    for round in 0..rounds {
        for (i, kind) in [
            EventKind::TimerInit {
                timer: round % 4,
                period_ns: round as i64,
            },
            EventKind::TimerClock {
                timer: round % 4,
                clock: 9,
            },
        ]
        .into_iter()
        .enumerate()
        {
            writer
                .push(&Event {
                    kind,
                    ..wake(10 * round + i as u64, 1)
                })
                .expect("pushed");
        }
    }
    writer.finish(Manifest::default()).expect("finished");
    let bytes = std::fs::read(path.join("init.obt")).expect("read");
    let mut kept = Vec::new();
    onbeat_trace::reader::read_bytes(&bytes, |event| kept.push(event));
    assert_eq!(kept.len(), 8, "{kept:?}");
    // The latest event of each subject in the deleted segments is kept, in order of time.
    let periods: Vec<i64> = kept
        .iter()
        .filter_map(|e| match e.kind {
            EventKind::TimerInit { period_ns, .. } => Some(period_ns),
            _ => None,
        })
        .collect();
    assert!(periods.windows(2).all(|w| w[1] == w[0] + 1), "{periods:?}");
    let (got, _) = read(&path);
    let first = got.iter().find_map(|e| match e.kind {
        EventKind::TimerInit { period_ns, .. } => Some(period_ns),
        _ => None,
    });
    assert_eq!(first, periods.first().copied());
}
