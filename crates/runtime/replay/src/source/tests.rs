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
