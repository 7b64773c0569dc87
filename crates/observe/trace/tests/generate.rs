//! Checks that generated traces are repeatable, plausible and small, as benchmarks require.
use onbeat_trace::{generate, Event, EventKind, Reader, Writer, WriterOptions};
use std::collections::HashMap;

fn generated(events: u64, seed: u64) -> (Vec<Event>, u64) {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("trace");
    let mut writer = Writer::create(&path, WriterOptions::default()).expect("created");
    let manifest = generate::generate(&mut writer, events, seed).expect("generated");
    writer.finish(manifest).expect("finished");
    let mut reader = Reader::open(&path).expect("opened");
    let events = reader.events().collect();
    assert_eq!(reader.manifest().written.out_of_order, 0);
    (events, reader.manifest().written.bytes)
}

#[test]
fn generated_traces_are_repeatable_plausible_and_small() {
    let (events, bytes) = generated(50_000, 7);
    assert_eq!(events.len(), 50_000);
    assert_eq!(events, generated(50_000, 7).0);
    assert_ne!(events, generated(50_000, 8).0);

    // A thread runs on one CPU at a time, and only a running thread makes calls.
    let mut running = HashMap::new();
    let mut ends = 0;
    for event in &events {
        let on = running.entry(event.tid).or_insert(false);
        match event.kind {
            EventKind::SwitchIn { .. } => assert!(!std::mem::replace(on, true), "{event:?}"),
            EventKind::SwitchOut { .. } => assert!(std::mem::replace(on, false), "{event:?}"),
            EventKind::Wake { .. } => assert!(!*on, "{event:?}"),
            EventKind::CallbackStart { .. } | EventKind::Take { .. } | EventKind::Wait => {
                assert!(*on, "{event:?}");
            }
            EventKind::CallbackEnd { .. } => ends += 1,
            _ => {}
        }
    }
    assert!(ends > 1000);

    // The project's target is 6 to 7 bytes. These generated events are more regular than real ones.
    let per_event = bytes as f64 / events.len() as f64;
    println!("{per_event:.2} bytes per event");
    assert!(per_event < 5.0, "{per_event:.2} bytes per event");
}
