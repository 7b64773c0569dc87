use super::*;
use std::io::Cursor;

fn log(text: &str) -> Box<dyn Source> {
    candump::read("log", Cursor::new(text.as_bytes().to_vec())).expect("a log")
}

fn items(mut source: Box<dyn Source>) -> Vec<(i64, String, u8)> {
    let mut payload = Vec::new();
    let mut all = Vec::new();
    while let Some(stamp) = source.next(&mut payload).expect("readable") {
        let name = source.streams()[stamp.stream.0 as usize].name.clone();
        all.push((stamp.time_ns / 1_000_000, name, payload[0]));
    }
    all
}

fn named(items: &[(i64, &str, u8)]) -> Vec<(i64, String, u8)> {
    items
        .iter()
        .map(|&(ms, name, id)| (ms, name.to_owned(), id))
        .collect()
}

const FIRST: &str = "(1.0) a 001#\n(1.2) b 002#\n(1.4) a 003#\n";
const SECOND: &str = "(0.9) a 011#\n(1.2) a 012#\n(broken\n(1.3) c 013#\n";

#[test]
fn merged_recordings_share_one_time_axis_and_equal_times_keep_the_order_of_sources() {
    let merged = merged(vec![log(FIRST), log(SECOND)], false).expect("merged");
    assert_eq!(merged.streams().len(), 4);
    let wanted = [
        (900, "a", 0x11),
        (1000, "a", 1),
        (1200, "b", 2),
        (1200, "a", 0x12),
        (1300, "c", 0x13),
        (1400, "a", 3),
    ];
    assert_eq!(items(merged), named(&wanted));
}

#[test]
fn aligned_recordings_begin_at_the_same_time() {
    let merged = merged(vec![log(FIRST), log(SECOND)], true).expect("merged");
    let wanted = [
        (900, "a", 1),
        (900, "a", 0x11),
        (1100, "b", 2),
        (1200, "a", 0x12),
        (1300, "a", 3),
        (1300, "c", 0x13),
    ];
    assert_eq!(items(merged), named(&wanted));
}

#[test]
fn a_merged_recording_reports_the_damage_of_each_part() {
    let mut merged = merged(vec![log(FIRST), log(SECOND)], false).expect("merged");
    let mut payload = Vec::new();
    while merged.next(&mut payload).expect("readable").is_some() {}
    assert_eq!(merged.damage().len(), 1);
}

#[test]
fn a_listing_in_one_pass_equals_the_listing_of_the_opened_recording() {
    let head = "date Sun Jan 1 00:00:00 2023\nbase hex  timestamps absolute\n";
    let line = |ms: u32, channel: u32| format!("0.{ms:03} {channel} 123 Rx d 1 {channel:02x}\n");
    let lines = |all: &[(u32, u32)]| -> String {
        let lines = all.iter().map(|&(ms, channel)| line(ms, channel));
        lines
            .chain(["0.950 1 123 Rx d 99 00\n".to_owned()])
            .collect()
    };
    let ordered = lines(&[(1, 2), (2, 1), (3, 2), (900, 3)]);
    let unordered = lines(&[(5, 2), (2, 1), (900, 2), (30, 3)]);
    for (log, passes) in [(ordered, 1), (unordered, 2)] {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), format!("{head}{log}")).expect("written");
        let mut told = Vec::new();
        let found = contents(file.path(), &mut |_, _| {}, &mut |items| told.push(items));
        let found = found.expect("a listing");
        let mut source = open(file.path()).expect("a log");
        let wanted = Contents::of(&mut *source, &mut |_| {});
        let [found_json, wanted_json] =
            [&found, &wanted].map(|contents| serde_json::to_value(contents).expect("in memory"));
        assert_eq!(found_json, wanted_json);
        assert_eq!(
            (found.items, found.streams.len(), found.damage.len()),
            (4, 3, 1)
        );
        // An unordered recording is read again from its first item.
        let begins = told.iter().filter(|items| **items == 1).count();
        assert_eq!((begins, told.last()), (passes, Some(&4)));
    }
}
