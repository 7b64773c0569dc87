//! Trace directories: what is written is read, and damage costs only what it hits.
mod common;

use onbeat_trace::{Event, EventKind, Manifest, Reader, State, Writer, WriterOptions};
use proptest::prelude::*;
use std::path::Path;

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
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_event_comes_back_in_time_order(events in common::events(0..300)) {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("trace");
        write(&path, small(), &events);
        let (got, reader) = read(&path);

        // Stragglers that are further back than a block are delivered late, but delivered.
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
        prop_assert_eq!(reader.manifest().out_of_order, out_of_order as u64);
        prop_assert_eq!(reader.manifest().state, State::Complete);
        prop_assert_eq!(reader.manifest().events, events.len() as u64);
        prop_assert!(reader.warnings().is_empty(), "{:?}", reader.warnings());
        if late == 0 {
            // Equal times keep the order in which they were pushed.
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

#[test]
fn stragglers_of_the_next_block_are_sorted_in() {
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
    assert_eq!(reader.manifest().out_of_order, 1);
}
