//! Runs both sides in two threads, over a link in shared memory.

use super::*;
use crate::item::{Kind, Source, Stamp, Stream, StreamId};
use crate::testing::Listed;
use onbeat_link::interface::{Backend, Halves, Memory};
use onbeat_link::Shm;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

const MOST: usize = 1 << 20;

static LINKS: AtomicUsize = AtomicUsize::new(0);

fn link() -> (Halves, Halves) {
    let number = LINKS.fetch_add(1, Ordering::Relaxed);
    let name = format!("replay-test/{}-{number}", std::process::id());
    std::thread::scope(|scope| {
        let there = scope.spawn(|| Shm::listen(&name).initialize(SIZES, Memory::Allot, None));
        let here = Shm::connect(&name).initialize(SIZES, Memory::Allot, None);
        (
            here.expect("connected"),
            there.join().expect("no panic").expect("connected"),
        )
    })
}

fn streams() -> Vec<Stream> {
    let ros = Kind::Ros {
        type_name: "a/msg/B".into(),
        qos: Some("- history: 1".into()),
    };
    let kinds = [ros, Kind::Can, Kind::Packets { link_type: 1 }];
    kinds
        .into_iter()
        .map(|kind| Stream {
            name: "/ä\n".into(),
            kind,
        })
        .collect()
}

fn never() -> Box<dyn Fn() -> bool + Send> {
    Box::new(|| false)
}

type Item = (i64, u32, Vec<u8>);

fn all(source: &mut dyn Source) -> (Vec<Item>, Option<String>) {
    let (mut items, mut payload) = (Vec::new(), Vec::new());
    loop {
        match source.next(&mut payload) {
            Ok(Some(Stamp { time_ns, stream })) => items.push((time_ns, stream.0, payload.clone())),
            Ok(None) => return (items, None),
            Err(e) => return (items, Some(e.to_string())),
        }
    }
}

fn sent(items: &[Item], breaks: Option<&str>) -> (Vec<Item>, Option<String>, Result<Sent, String>) {
    let mut listed = Listed::new(streams());
    items
        .iter()
        .for_each(|(time, stream, bytes)| listed.push(*time, *stream, bytes));
    listed.breaks = breaks.map(String::from);
    let (here, there) = link();
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || send(&mut listed, here, &|| false, &mut |_| {}));
        let mut remote = Remote::open("link:x", there, MOST, never()).expect("it begins");
        assert_eq!(remote.streams(), streams());
        let (came, end) = all(&mut remote);
        let said = sender.join().expect("no panic").map_err(|e| e.to_string());
        (came, end, said)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_recording_arrives_over_a_link_unchanged(
        sizes in prop::collection::vec(prop_oneof![0usize..300, 200_000..600_000usize], 0..40),
    ) {
        let item = |(n, &bytes): (usize, &usize)| (n as i64 - 3, n as u32 % 3, vec![n as u8; bytes]);
        let items: Vec<Item> = sizes.iter().enumerate().map(item).collect();
        let (came, end, said) = sent(&items, None);
        prop_assert!(came == items, "only {} of {} items arrived, or some arrived changed", came.len(), items.len());
        prop_assert_eq!(end, None);
        let bytes = sizes.iter().map(|b| *b as u64).sum();
        let whole = Sent { items: items.len() as u64, bytes, damage: Vec::new() };
        prop_assert_eq!(said, Ok(whole));
    }
}

#[test]
fn both_sides_report_a_recording_that_breaks_off() {
    let items = vec![(1, 0, vec![1]), (2, 1, vec![2])];
    let (came, end, said) = sent(&items, Some("torn"));
    assert_eq!(came, items);
    assert_eq!(end.as_deref(), Some("link:x: listed: torn"));
    assert_eq!(said, Err("listed: torn".into()));
}

#[test]
fn a_sender_that_waits_for_room_can_be_stopped() {
    let mut listed = Listed::new(streams());
    // Twice as many bytes as may be in transit.
    (0..32).for_each(|n| listed.push(n, 0, &vec![0; 256 << 10]));
    let (here, there) = link();
    let asked = AtomicUsize::new(0);
    let stop = || asked.fetch_add(1, Ordering::Relaxed) > 20;
    let stopped = send(&mut listed, here, &stop, &mut |_| {}).expect_err("it was stopped");
    assert!(
        matches!(&stopped, SendFault::Stopped(sent) if sent.items > 0),
        "{stopped}"
    );
    // The messages in transit arrive first. After them, the end record is missing.
    let mut remote = Remote::open("link:x", there, MOST, never()).expect("it begins");
    let (came, end) = all(&mut remote);
    assert!(came.len() >= 14, "{}", came.len());
    let SendFault::Stopped(sent) = stopped else {
        panic!("{stopped}");
    };
    let bytes: usize = came.iter().map(|item| item.2.len()).sum();
    assert_eq!((sent.items, sent.bytes), (came.len() as u64, bytes as u64));
    assert!(end
        .expect("an error")
        .contains("has not confirmed that the recording is complete"));
}

#[test]
fn invalid_records_are_refused_with_a_one_line_error() {
    let item = |stream| {
        let (mut bytes, stamp) = (
            Vec::new(),
            Stamp {
                time_ns: 1,
                stream: StreamId(stream),
            },
        );
        record::item(stamp, b"x", &mut |b| bytes.extend_from_slice(b)).expect("short");
        bytes
    };
    let mut begin = Vec::new();
    record::begin(&streams(), &mut |b| begin.extend_from_slice(b)).expect("short");
    let other = br#"{"version":2,"streams":[]}"#;
    let mut version = (other.len() as u32 + 1).to_le_bytes().to_vec();
    version.push(0);
    version.extend_from_slice(other);
    for (bytes, what) in [
        (vec![0; 5], "unknown kind"),
        (vec![255, 255, 255, 255, 0], "too long"),
        (vec![255; 5], "unknown kind"),
        (
            [&begin[..], &((MOST + 14) as u32).to_le_bytes(), &[1]].concat(),
            "an item of 1048577 bytes, but the buffer here has room for only 1048576",
        ),
        (vec![1, 0, 0, 0, 9], "unknown kind"),
        (vec![2, 0, 0, 0, 0, b'{'], "an invalid list of streams"),
        (version, "another protocol version"),
        (item(0), "does not say which streams"),
        (
            [&begin[..], &item(3)].concat(),
            "an item of an unknown stream",
        ),
        (
            [&begin[..], &begin[..]].concat(),
            "an item of an unknown stream",
        ),
        ([&begin[..], &[2, 0, 0, 0, 1, 1]].concat(), "without a time"),
    ] {
        let ((mut outgoing, _incoming), there) = link();
        outgoing.send_copy(&bytes).expect("sent");
        let opened = Remote::open("link:x", there, MOST, never());
        let said = match opened {
            Err(e) => e.to_string(),
            Ok(mut remote) => all(&mut remote).1.expect("refused"),
        };
        assert!(
            said.contains(what) && said.lines().count() == 1,
            "{said}: {what}"
        );
    }
}

#[test]
fn no_part_of_a_too_long_record_is_sent() {
    // These pages are zeroed and never touched.
    let long = vec![0; record::MOST_ITEM + 1];
    let stamp = Stamp {
        time_ns: 1,
        stream: StreamId(0),
    };
    let refused = record::item(stamp, &long, &mut |_| {
        panic!("no part of the record should be sent")
    });
    assert_eq!(refused, Err(record::TooLong(long.len())));
}
