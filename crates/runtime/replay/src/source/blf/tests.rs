use super::*;
use crate::item::Kind;
use crate::source::can;
use crate::testing::{frame, frames, Item};
use std::io::{Cursor, Write};

/// The time 2017-04-20 22:44:38.250 UTC, in ns since 1970.
const BEGIN: i64 = 1_492_728_278_250_000_000;
const MILLISECOND: u64 = 1_000_000;

fn header() -> Vec<u8> {
    let mut file = b"LOGG".to_vec();
    file.extend_from_slice(&144u32.to_le_bytes());
    file.resize(40, 0);
    for field in [2017u16, 4, 4, 20, 22, 44, 38, 250] {
        file.extend_from_slice(&field.to_le_bytes());
    }
    file.resize(144, 0);
    file
}

fn lobj(header_size: u16, version: u16, kind: u32, rest: &[u8]) -> Vec<u8> {
    let mut object = b"LOBJ".to_vec();
    object.extend_from_slice(&header_size.to_le_bytes());
    object.extend_from_slice(&version.to_le_bytes());
    object.extend_from_slice(&(16 + rest.len() as u32).to_le_bytes());
    object.extend_from_slice(&kind.to_le_bytes());
    object.extend_from_slice(rest);
    object
}

fn object(kind: u32, time_ns: u64, body: &[u8]) -> Vec<u8> {
    let head = [&[2, 0, 0, 0, 0, 0, 0, 0][..], &time_ns.to_le_bytes(), body].concat();
    let mut object = lobj(32, 1, kind, &head);
    object.resize(object.len() + object.len() % 4, 0);
    object
}

fn container(method: u16, content: &[u8]) -> Vec<u8> {
    let mut head = method.to_le_bytes().to_vec();
    head.resize(8, 0);
    head.extend_from_slice(&(content.len() as u32).to_le_bytes());
    head.resize(16, 0);
    let packed = match method {
        2 => {
            let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
            packer.write_all(content).expect("in memory");
            packer.finish().expect("in memory")
        }
        _ => content.to_vec(),
    };
    let mut container = lobj(16, 1, 10, &[head, packed].concat());
    container.resize(container.len() + container.len() % 4, 0);
    container
}

fn can_message(channel: u16, flags: u8, code: u8, id: u32, data: &[u8]) -> Vec<u8> {
    let mut body = channel.to_le_bytes().to_vec();
    body.extend_from_slice(&[flags, code]);
    body.extend_from_slice(&id.to_le_bytes());
    body.extend_from_slice(data);
    body.resize(16, 0);
    body
}

fn fd_message(flags: u8, code: u8, fd_flags: u8, there: u8, data: &[u8]) -> Vec<u8> {
    let mut body = can_message(3, flags, code, 0x300, &[]);
    body.truncate(8);
    body.extend_from_slice(&[0, 0, 0, 0, 0, fd_flags, there, 0, 0, 0, 0, 0]);
    body.extend_from_slice(data);
    body.resize(84, 0);
    body
}

fn fd_message_64(code: u8, there: u8, flags: u32, direction: u8, data: &[u8]) -> Vec<u8> {
    let mut body = vec![4, code, there, 0];
    body.extend_from_slice(&0x9234_5678u32.to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&flags.to_le_bytes());
    body.resize(34, 0);
    body.push(direction);
    body.resize(40, 0);
    body.extend_from_slice(data);
    body
}

fn items(file: Vec<u8>) -> (Vec<Item>, Vec<String>) {
    frames(read("log", Cursor::new(file), &mut Survey::default()).expect("a log"))
}

fn at(ms: i64, name: &str, bytes: Vec<u8>) -> Item {
    (BEGIN + ms * MILLISECOND as i64, name.into(), bytes)
}

#[test]
fn every_form_of_a_can_frame_becomes_the_kernels_struct() {
    let ms = MILLISECOND;
    let mut objects = [
        object(
            1,
            ms,
            &can_message(1, 0, 8, 0x7f, &[1, 2, 3, 4, 5, 6, 7, 8]),
        ),
        object(
            86,
            2 * ms,
            &[&can_message(2, 1, 2, 0x98eb_ff00, &[9, 8])[..], &[0; 8]].concat(),
        ),
        object(1, 3 * ms, &can_message(1, 0x80, 4, 0x123, &[])),
        object(
            1,
            4 * ms,
            &can_message(1, 0, 15, 0x124, &[1, 2, 3, 4, 5, 6, 7, 8]),
        ),
        object(
            100,
            5 * ms,
            &fd_message(0, 9, 7, 12, &(1..13).collect::<Vec<u8>>()),
        ),
        // A classic frame in an object for CAN FD.
        object(100, 6 * ms, &fd_message(0, 2, 0, 2, &[5, 6])),
        // The object has fewer bytes than it says.
        object(101, 7 * ms, &fd_message_64(10, 16, 0x3000, 0, &[7; 6])),
        object(73, 8 * ms, &can_message(2, 0, 0, 0, &[0; 24])),
        object(2, 9 * ms, &[1, 0, 2, 0, 0, 0, 0, 0]),
        object(104, 10 * ms, &[5; 44]),
    ]
    .concat();
    // The second version of the header, with a time in units of 10 us.
    let version_2 = [
        &[1, 0, 0, 0, 0, 0, 0, 0][..],
        &1100u64.to_le_bytes(),
        &[0xff; 8],
        &can_message(1, 0, 1, 0x7ff, &[0xab]),
    ];
    objects.extend(lobj(40, 2, 1, &version_2.concat()));
    let (found, damage) = items([header(), container(2, &objects)].concat());
    let error = frame(can::ERROR, &[8], 16);
    let fd = [12, 3, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let fd_64 = [16, 1, 0, 0, 7, 7, 7, 7, 7, 7];
    let wanted = [
        at(
            1,
            "can1",
            frame(0x7f, &[8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], 16),
        ),
        at(2, "can2", frame(0x98eb_ff00, &[2, 0, 0, 0, 9, 8], 16)),
        at(3, "can1", frame(0x123 | can::REMOTE, &[4], 16)),
        at(
            4,
            "can1",
            frame(0x124, &[8, 0, 0, 15, 1, 2, 3, 4, 5, 6, 7, 8], 16),
        ),
        at(5, "can3", frame(0x300, &fd, 72)),
        at(6, "can3", frame(0x300, &[2, 0, 0, 0, 5, 6], 16)),
        at(7, "can4", frame(0x9234_5678, &fd_64, 72)),
        at(8, "can2", error.clone()),
        at(9, "can1", error.clone()),
        at(10, "can5", error),
        at(11, "can1", frame(0x7ff, &[1, 0, 0, 0, 0xab], 16)),
    ];
    assert_eq!(found, wanted);
    assert!(damage.is_empty(), "{damage:?}");
}

#[test]
fn ethernet_frames_become_packets() {
    let mut fields = vec![1, 2, 3, 4, 5, 6];
    fields.extend_from_slice(&[2, 0, 11, 12, 13, 14, 15, 16, 1, 0]);
    fields.extend_from_slice(&[0x00, 0x08, 0x00, 0x81, 0x07, 0x20, 3, 0]);
    fields.extend_from_slice(&[0; 8]);
    fields.extend_from_slice(b"abc");
    let mut whole = vec![32, 0, 0, 0, 7, 0, 1, 0];
    whole.resize(22, 0);
    whole.extend_from_slice(&[5, 0]);
    whole.resize(32, 0);
    whole.extend_from_slice(b"whole and a rest");
    let objects = [
        object(71, MILLISECOND, &fields),
        object(120, 2 * MILLISECOND, &whole),
    ];
    let file = [header(), container(0, &objects.concat())].concat();
    let source = read("log", Cursor::new(file), &mut Survey::default()).expect("a log");
    let streams = source.streams().to_vec();
    assert_eq!(streams[1].kind, Kind::Packets { link_type: 1 });
    let (found, damage) = frames(source);
    let tagged = [
        11, 12, 13, 14, 15, 16, 1, 2, 3, 4, 5, 6, 0x81, 0, 0x20, 7, 8, 0,
    ];
    let wanted = [
        at(1, "eth2", [&tagged[..], b"abc"].concat()),
        at(2, "eth7", b"whole".to_vec()),
    ];
    assert_eq!(found, wanted);
    assert!(damage.is_empty(), "{damage:?}");
}

fn messages(count: u8) -> Vec<u8> {
    let one = |n: u8| {
        object(
            1,
            u64::from(n) * MILLISECOND,
            &can_message(1, 0, 1, n.into(), &[n]),
        )
    };
    (0..count).flat_map(one).collect()
}

#[test]
fn objects_that_begin_in_one_container_and_end_in_another_are_read() {
    let objects = messages(40);
    let text = object(65, 0, &[0; 1000]);
    let objects = [&objects[..], &text, &messages(41)[objects.len()..]].concat();
    for size in [1, 7, 16, 48, 100, 1000] {
        let parts = objects.chunks(size).map(|part| container(2, part));
        let file = [header(), parts.collect::<Vec<_>>().concat()].concat();
        let (found, damage) = items(file);
        let ids: Vec<_> = found.iter().map(|(_, _, bytes)| bytes[0]).collect();
        assert_eq!(ids, (0..41).collect::<Vec<u8>>(), "{size}");
        assert!(damage.is_empty(), "{damage:?}");
    }
}

#[test]
fn a_torn_or_damaged_log_gives_all_other_frames_and_counts_the_damage() {
    let parts: Vec<_> = messages(60)
        .chunks(20 * 48)
        .map(|part| container(2, part))
        .collect();
    let whole = [header(), parts.concat()].concat();
    let ids = |file: Vec<u8>| -> (Vec<u8>, Vec<String>) {
        let (found, damage) = items(file);
        (found.iter().map(|(_, _, bytes)| bytes[0]).collect(), damage)
    };
    let all: Vec<u8> = (0..60).collect();
    assert_eq!(ids(whole.clone()).0, all);

    let (found, damage) = ids(whole[..whole.len() - 60].to_vec());
    assert_eq!(found[..40], all[..40]);
    assert!(
        damage[0].starts_with("containers cut off by the end"),
        "{damage:?}"
    );

    // The container in the middle is damaged in its compressed bytes, its signature, or its size.
    let middle = header().len() + parts[0].len();
    for (at, sentence) in [
        (middle + 60, "damaged containers, read up to the damage: 1"),
        (middle, "bytes between containers, skipped: 1"),
        (
            middle + 11,
            "containers with an impossible size, left out: 1",
        ),
    ] {
        let mut file = whole.clone();
        file[at] ^= 0xff;
        let (found, damage) = ids(file);
        assert_eq!(found[..20], all[..20], "{damage:?}");
        assert_eq!(found[found.len() - 20..], all[40..], "{damage:?}");
        assert!(damage.iter().any(|d| d.starts_with(sentence)), "{damage:?}");
        // The place is that of the container, or of the padding before it.
        let place = damage[0].rsplit_once("byte ").expect("a place").1;
        let place: usize = place.trim_end_matches(')').parse().expect("a number");
        assert!((middle - 3..=middle).contains(&place), "{damage:?}");
    }

    // A damaged object in a container costs only itself.
    let mut objects = messages(5);
    objects[48 + 11] = 0xff;
    let (found, damage) = ids([header(), container(0, &objects)].concat());
    assert_eq!(found, [0, 2, 3, 4]);
    assert!(
        damage[0].starts_with("objects with an impossible size, skipped: 1"),
        "{damage:?}"
    );
}

#[test]
fn objects_that_cannot_be_played_are_counted_and_remarks_are_not() {
    let objects = [
        messages(1),
        object(11, 0, &[0; 20]),
        object(11, 0, &[0; 20]),
        object(96, 0, b"a marker"),
        object(1, 0, &can_message(1, 2, 1, 5, &[1])),
        object(1, 0, &can_message(1, 0, 1, 0x800, &[1])),
        object(1, 0, &[1, 0]),
        object(100, 0, &fd_message(0, 16, 1, 64, &[])),
        object(1, u64::MAX, &can_message(1, 0, 1, 5, &[1])),
    ];
    let (found, damage) = items([header(), container(2, &objects.concat())].concat());
    assert_eq!(found.len(), 1);
    let kinds: Vec<_> = damage
        .iter()
        .map(|d| d.split(" (the first").next())
        .collect();
    let wanted = [
        "objects of other buses or protocols (LIN, FlexRay, MOST ...), not replayed: 2",
        "requests to send (TxRq), not replayed: 1",
        "frames with an impossible identifier: 1",
        "objects too short for their frame: 1",
        "frames with an impossible length: 1",
        "objects with an impossible time: 1",
    ];
    assert_eq!(kinds, wanted.map(Some));
}

#[test]
fn frames_out_of_order_are_sorted_and_a_log_without_frames_is_refused() {
    let objects = [&messages(3)[96..], &messages(2)].concat();
    let (found, damage) = items([header(), container(2, &objects)].concat());
    let ids: Vec<_> = found.iter().map(|(_, _, bytes)| bytes[0]).collect();
    assert_eq!((ids, damage.len()), (vec![0, 1, 2], 0));

    let error = read(
        "log",
        Cursor::new([header(), container(2, &object(11, 0, &[]))].concat()),
        &mut Survey::default(),
    );
    let error = error.err().expect("no frame").to_string();
    assert!(
        error.contains("no CAN or Ethernet frame. objects of other buses"),
        "{error}"
    );
}
