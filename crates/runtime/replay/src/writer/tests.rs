use super::*;
use crate::source::{asc, blf, can, candump, mcap, pcap, Survey};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::Cursor;

/// An item of a recording: time in ns, name of the stream, details, payload.
type Item = (i64, String, Details, Vec<u8>);

#[derive(Debug, Clone)]
struct Recording {
    streams: Vec<Stream>,
    items: Vec<(Stamp, Details, Vec<u8>)>,
    at: usize,
}

impl Source for Recording {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        let Some((stamp, _, bytes)) = self.items.get(self.at) else {
            return Ok(None);
        };
        self.at += 1;
        payload.extend_from_slice(bytes);
        Ok(Some(*stamp))
    }

    fn details(&self) -> Details {
        self.items[self.at - 1].1
    }

    fn damage(&self) -> &[String] {
        &[]
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        (type_name == "a/msg/B").then(|| "bool x".to_owned())
    }
}

fn written(recording: &mut Recording, target: Target) -> (Vec<u8>, Losses) {
    recording.at = 0;
    let plan = Plan::of(recording, target, &mut |_| true).expect("planned");
    recording.at = 0;
    let mut out = Cursor::new(Vec::new());
    plan.write(recording, &mut out, &mut |_| true)
        .expect("written");
    (out.into_inner(), plan.losses)
}

fn read(target: Target, bytes: Vec<u8>) -> Box<dyn Source> {
    let bytes = Cursor::new(bytes);
    let source = match target {
        Target::Candump => candump::read("file", bytes),
        Target::Asc => asc::read("file", bytes, &mut Survey::default()),
        Target::Blf => blf::read("file", bytes, &mut Survey::default()),
        Target::Pcapng => pcap::read("file", bytes, &mut Survey::default()),
        Target::Mcap | Target::Rosbag2 => mcap::read("file", bytes),
    };
    source.expect("a recording")
}

fn items(source: &mut dyn Source) -> Vec<Item> {
    let (mut all, mut payload) = (Vec::new(), Vec::new());
    while let Some(stamp) = source.next(&mut payload).expect("readable") {
        let name = source.streams()[stamp.stream.0 as usize].name.clone();
        let mut bytes = payload.clone();
        if bytes.len() == 72 {
            // Some readers set this flag in CAN FD frames, and others do not.
            bytes[5] &= !frame::FDF;
        }
        all.push((stamp.time_ns, name, source.details(), bytes));
    }
    assert_eq!(source.damage(), [""; 0]);
    all
}

/// Generates CAN frames that every format can store.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let id = prop_oneof![
        0u32..=0x7ff,
        (0u32..=0x1fff_ffff).prop_map(|id| id | can::EXTENDED)
    ];
    let data = prop::collection::vec(any::<u8>(), 64);
    let form = 0u8..10;
    (id, data, form, 0usize..16, 0u8..4).prop_map(|(id, data, form, code, flags)| {
        let mut frame = Vec::new();
        let length = code.min(8);
        let raw = if code > 8 { code as u8 } else { 0 };
        match form {
            0..4 => can::classic(id, &data[..length], length as u8, raw, &mut frame),
            4 => can::classic(id | can::REMOTE, &[], length as u8, 0, &mut frame),
            5 => can::classic(can::ERROR, &[0; 8], 8, 0, &mut frame),
            _ => {
                let length = can::FD_LENGTHS[code];
                can::fd(id, flags, &data[..length.into()], &mut frame);
            }
        }
        frame
    })
}

fn recordings() -> impl Strategy<Value = Recording> {
    let item = (0u32..3, 0i64..40_000_000, any::<bool>(), frames());
    let begin = prop_oneof![
        Just(0i64),
        0..4_000_000_000_000_000i64,
        Just(951_827_696_789_012)
    ];
    (begin, prop::collection::vec(item, 1..60)).prop_map(|(begin_us, drawn)| {
        let mut us = begin_us;
        let items = drawn.into_iter().map(|(stream, step_us, sent, bytes)| {
            us += step_us;
            let is_error = u32::from_ne_bytes(bytes[..4].try_into().expect("four")) == can::ERROR;
            let details = Details {
                is_sent: sent && !is_error,
                ..Details::default()
            };
            let (time_ns, stream) = (us * 1000, StreamId(stream));
            (Stamp { time_ns, stream }, details, bytes)
        });
        let streams = (1..=3).map(|number| Stream {
            name: format!("can{number}"),
            kind: Kind::Can,
        });
        Recording {
            streams: streams.collect(),
            items: items.collect(),
            at: 0,
        }
    })
}

const OF_CAN: [Target; 4] = [Target::Candump, Target::Asc, Target::Blf, Target::Pcapng];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frames_are_the_same_in_every_format_and_after_any_sequence_of_conversions(mut recording in recordings()) {
        let wanted = items(&mut recording);
        for first in OF_CAN {
            let (bytes, losses) = written(&mut recording, first);
            prop_assert_eq!(&losses.0, &[]);
            prop_assert_eq!(&items(&mut *read(first, bytes.clone())), &wanted, "{:?}", first);
            for second in OF_CAN {
                let mut source = read(first, bytes.clone());
                let plan = Plan::of(&mut *source, second, &mut |_| true).expect("planned");
                prop_assert_eq!(&plan.losses.0, &[]);
                let mut out = Cursor::new(Vec::new());
                plan.write(&mut *read(first, bytes.clone()), &mut out, &mut |_| true).expect("written");
                let found = items(&mut *read(second, out.into_inner()));
                prop_assert_eq!(&found, &wanted, "{:?} to {:?}", first, second);
            }
        }
    }
}

fn recording(streams: &[(&str, Kind)], items: &[(i64, u32, Details, &[u8])]) -> Recording {
    let streams = streams.iter().map(|(name, kind)| Stream {
        name: (*name).to_owned(),
        kind: kind.clone(),
    });
    let items = items.iter().map(|&(time_ns, stream, details, bytes)| {
        let stream = StreamId(stream);
        (Stamp { time_ns, stream }, details, bytes.to_vec())
    });
    Recording {
        streams: streams.collect(),
        items: items.collect(),
        at: 0,
    }
}

fn ros(type_name: &str) -> Kind {
    Kind::Ros {
        type_name: type_name.into(),
        qos: Some("- depth: 1".into()),
    }
}

fn classic(id: u32, raw_length: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    can::classic(id, &[1; 8], 8, raw_length, &mut frame);
    frame
}

/// Generates messages of ROS 2 on three topics. Their sizes, bytes, times, publication times and
/// sequence numbers are random.
fn bags() -> impl Strategy<Value = Recording> {
    let length = prop_oneof![8 => 0usize..64, 1 => 100_000usize..400_000];
    let payload = (length, any::<u32>()).prop_map(|(length, seed)| {
        let mix = |at: u32| (seed ^ at).wrapping_mul(0x9e37_79b1) >> 24;
        let body = (0..length as u32).map(|at| mix(at) as u8);
        [0, 1, 0, 0].into_iter().chain(body).collect::<Vec<u8>>()
    });
    let details = (any::<Option<u64>>(), any::<Option<u32>>());
    let item = (0u32..3, 0i64..3_000_000_000, details, payload);
    let begin = prop_oneof![Just(0i64), 0..4_000_000_000_000_000_000i64];
    (begin, prop::collection::vec(item, 1..40)).prop_map(|(begin_ns, drawn)| {
        let mut time_ns = begin_ns;
        let items = drawn.into_iter().map(|(stream, step_ns, details, bytes)| {
            // Every third message has the same time as the message before it.
            time_ns += step_ns * i64::from(step_ns % 3 != 0);
            let stream = StreamId(stream);
            let details = Details {
                is_sent: false,
                published_ns: details.0,
                sequence: details.1,
            };
            (Stamp { time_ns, stream }, details, bytes)
        });
        let streams = ["/front/points", "/rear/points", "/a b\"c"].map(|name| Stream {
            name: name.into(),
            kind: ros("a/msg/B"),
        });
        Recording {
            streams: streams.to_vec(),
            items: items.collect(),
            at: 0,
        }
    })
}

/// Converts a recording to the file or directory at `path`, and opens it. The conversion must lose
/// nothing.
fn converted(
    open: &dyn Fn() -> Box<dyn Source>,
    target: Target,
    path: &Path,
) -> impl Fn() -> Box<dyn Source> {
    let plan = Plan::of(&mut *open(), target, &mut |_| true).expect("planned");
    assert_eq!(plan.losses.0, []);
    save::save(&plan, &mut *open(), path, false, &mut |_| true).expect("written");
    let path = path.to_owned();
    move || crate::source::open(&path).expect("a recording")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_messages_are_the_same_in_a_bag_and_after_any_sequence_of_conversions(recording in bags()) {
        let open = || -> Box<dyn Source> {
            let mut again = recording.clone();
            again.at = 0;
            Box::new(again)
        };
        let mut wanted = items(&mut *open());
        for item in &mut wanted {
            item.2.published_ns.get_or_insert(item.0 as u64);
            item.2.sequence.get_or_insert(0);
        }
        let dir = tempfile::tempdir().expect("a directory");
        for first in [Target::Rosbag2, Target::Mcap] {
            let path = dir.path().join(format!("{}_1", first.word()));
            let once = converted(&open, first, &path);
            prop_assert_eq!(&items(&mut *once()), &wanted, "{:?}", first);
            for second in [Target::Rosbag2, Target::Mcap] {
                let path = dir.path().join(format!("{}_{}", first.word(), second.word()));
                let mut twice = converted(&once, second, &path)();
                prop_assert_eq!(&items(&mut *twice), &wanted, "{:?} to {:?}", first, second);
                let again = once();
                prop_assert_eq!(twice.streams(), again.streams());
                let definition = twice.definition("a/msg/B");
                prop_assert_eq!(definition.as_deref(), Some("bool x"));
            }
        }
    }
}

#[test]
fn messages_keep_their_bytes_types_times_numbers_and_definitions() {
    let details = Details {
        is_sent: false,
        published_ns: Some(3),
        sequence: Some(7),
    };
    let plain = Details::default();
    let messages: [(i64, u32, Details, &[u8]); 3] = [
        (5, 0, details, b"\0\x01\0\0one"),
        (5, 2, plain, b""),
        (1_700_000_000_000_000_001, 1, plain, b"\0\x01\0\0two"),
    ];
    let streams = [
        ("/a", ros("a/msg/B")),
        ("/b", ros("a/msg/C")),
        ("/c", ros("a/msg/B")),
    ];
    let mut bag = recording(&streams, &messages);
    let (bytes, losses) = written(&mut bag, Target::Mcap);
    assert_eq!(
        losses.0.iter().map(|l| l.count).collect::<Vec<_>>(),
        [1],
        "{losses:?}"
    );
    let mut source = read(Target::Mcap, bytes);
    assert_eq!(source.streams(), bag.streams);
    assert_eq!(source.definition("a/msg/B").as_deref(), Some("bool x"));
    assert_eq!(source.definition("a/msg/C"), None);
    let found = items(&mut *source);
    bag.at = 0;
    let mut wanted = items(&mut bag);
    for item in &mut wanted {
        // A message without a publication time gets its time of reception.
        item.2.published_ns.get_or_insert(item.0 as u64);
        item.2.sequence.get_or_insert(0);
    }
    assert_eq!(found, wanted);
    let metadata = Plan::of(
        &mut recording(&streams, &messages),
        Target::Rosbag2,
        &mut |_| true,
    )
    .expect("planned")
    .bag_metadata("a\"b_0.mcap");
    let read: HashMap<String, serde_json::Value> =
        onbeat_yaml::read(metadata.as_bytes()).expect("YAML");
    let about = &read["rosbag2_bagfile_information"];
    assert_eq!(about["relative_file_paths"][0], "a\"b_0.mcap");
    assert_eq!(
        about["duration"]["nanoseconds"],
        1_699_999_999_999_999_996u64
    );
    let topic = &about["topics_with_message_count"][2];
    assert_eq!(
        (
            topic["message_count"].as_u64(),
            topic["topic_metadata"]["name"].as_str()
        ),
        (Some(1), Some("/c"))
    );
}

#[test]
fn packets_keep_their_bytes_times_and_directions() {
    let ethernet = Kind::Packets { link_type: 1 };
    let sent = Details {
        is_sent: true,
        ..Details::default()
    };
    let packets: [(i64, u32, Details, &[u8]); 3] = [
        (1_700_000_000_000_000_001, 0, sent, &[7; 60]),
        (1_700_000_000_000_000_002, 1, Details::default(), &[8; 1501]),
        (
            1_700_000_000_000_000_002,
            2,
            sent,
            &classic(can::EXTENDED | 5, 0),
        ),
    ];
    let streams = [
        ("eth1", ethernet.clone()),
        ("eth2", ethernet),
        ("can2", Kind::Can),
    ];
    for target in [Target::Blf, Target::Pcapng] {
        let mut capture = recording(&streams, &packets);
        let (bytes, losses) = written(&mut capture, target);
        assert_eq!(losses.0, []);
        capture.at = 0;
        let (found, wanted) = (items(&mut *read(target, bytes)), items(&mut capture));
        assert_eq!(found, wanted, "{target:?}");
    }
}

#[test]
fn losses_are_counted_before_anything_is_written() {
    let sent = Details {
        is_sent: true,
        ..Details::default()
    };
    let plain = Details::default();
    let mut fd_remote = Vec::new();
    can::fd(can::REMOTE | 1, 0, &[], &mut fd_remote);
    let error = classic(can::ERROR | 4, 0);
    let long_id = classic(0x800, 0);
    let remote = classic(can::REMOTE | 1, 12);
    let streams = [
        ("vcan0", Kind::Can),
        ("/a", ros("a/msg/B")),
        ("a b", Kind::Can),
        ("vcan0", Kind::Can),
    ];
    let items_in: [(i64, u32, Details, &[u8]); 9] = [
        (-1, 0, plain, &remote),
        (1, 0, sent, &error),
        (2000, 0, plain, &long_id),
        (3000, 0, plain, &fd_remote),
        (3000, 1, plain, b"message"),
        (4000, 2, plain, &remote),
        (4000, 3, plain, &[1, 2]),
        (5000, 3, plain, &remote),
        (6000, 0, plain, &remote),
    ];
    let losses = |target| {
        let mut source = recording(&streams, &items_in);
        let plan = Plan::of(&mut source, target, &mut |_| true).expect("planned");
        let said = plan
            .losses
            .0
            .into_iter()
            .map(|loss| (loss.count, loss.what));
        (plan.items, said.collect::<Vec<_>>())
    };
    let short = |(items, said): (u64, Vec<(u64, String)>)| {
        let words = said
            .iter()
            .map(|(count, what)| format!("{count} {}", what.split(',').next().unwrap_or("")));
        (items, words.collect::<Vec<_>>())
    };
    assert_eq!(
        short(losses(Target::Candump)),
        (
            5,
            [
                "1 items left out",
                "1 times rounded down to microseconds",
                "1 remote frames left out",
                "1 ROS 2 messages left out",
                "1 CAN frames left out",
                "1 names of streams changed",
                "1 streams joined with an earlier stream of the same name",
            ]
            .map(String::from)
            .to_vec()
        )
    );
    let (items, said) = losses(Target::Asc);
    assert_eq!(items, 4);
    for wanted in [
        "error frames written without their class",
        "direction",
        "more bits",
        "length code above 8",
        "vcan0 is can1, a b is can2, vcan0 is can1",
    ] {
        assert!(
            said.iter().any(|(_, what)| what.contains(wanted)),
            "{wanted}: {said:?}"
        );
    }
    assert_eq!(losses(Target::Mcap).0, 1);
    assert_eq!(losses(Target::Pcapng).0, 6);
}

#[test]
fn a_conversion_ends_when_its_caller_says_so() {
    let frame = classic(1, 0);
    let mut source = recording(
        &[("can1", Kind::Can)],
        &[(0, 0, Details::default(), &frame[..]); 3],
    );
    let plan = Plan::of(&mut source, Target::Asc, &mut |read| read < 2);
    assert!(matches!(plan.err(), Some(WriteError::Stopped)));
}
