use super::*;
use crate::source::can;
use crate::testing::{frame, frames, Item};
use build::{add, sent, whole, Data, File, Packing, Sent, Shape, PLAIN};
use std::io::Cursor;

mod build;

/// The time 2017-04-20 22:44:38.250 UTC, in ns since 1970.
const BEGIN: u64 = 1_492_728_278_250_000_000;

fn items(file: &[u8]) -> (Vec<Item>, Vec<String>) {
    frames(read("log", Cursor::new(file.to_vec()), &mut Survey::default()).expect("a log"))
}

fn refused(file: &[u8]) -> String {
    let source = read("log", Cursor::new(file.to_vec()), &mut Survey::default());
    source.err().expect("refused").to_string()
}

fn bytes_up_to(count: u8) -> Vec<u8> {
    (1..=count).collect()
}

fn all() -> Vec<Sent> {
    vec![
        sent(1, 0x7f, 8, 0, &bytes_up_to(8)),
        sent(2, 0x9234_5678, 2, 0, &bytes_up_to(2)),
        sent(4, 0x123, 10, 3, &bytes_up_to(16)),
        sent(3, 0x124, 0, 0, &[]),
        sent(5, 0x8000_0125, 15, 7, &bytes_up_to(64)),
        sent(6, 0x126, 12, 0, &bytes_up_to(8)),
        // The log has fewer data bytes than the frame.
        sent(7, 0x127, 9, 1, &bytes_up_to(3)),
    ]
}

fn wanted(frames: &[Sent]) -> Vec<Item> {
    let mut all: Vec<_> = frames
        .iter()
        .map(|sent| {
            let is_fd = sent.flags & 1 != 0;
            let (length, raw, size) = match is_fd {
                true => (can::FD_LENGTHS[usize::from(sent.code)], 0, 72),
                false => (
                    sent.code.min(8),
                    if sent.code > 8 { sent.code } else { 0 },
                    16,
                ),
            };
            let rest = [&[length, sent.flags >> 1, 0, raw], &sent.data[..]].concat();
            let time = BEGIN as i64 + sent.ms as i64 * 1_000_000;
            (
                time,
                format!("can{}", sent.id as u8 % 3 + 1),
                frame(sent.id, &rest, size),
            )
        })
        .collect();
    all.sort_by_key(|item| item.0);
    all
}

fn shapes() -> Vec<Shape> {
    use Packing::{List, Packed, Plain, Transposed};
    let mut shapes = Vec::new();
    for packing in [Plain, List, Packed, Transposed] {
        for (data, id_size) in [
            (Data::Fixed, 0),
            (Data::MaximumLength, 0),
            (Data::Stream, 0),
            (Data::Fixed, 1),
            (Data::MaximumLength, 2),
            (Data::Stream, 4),
            (Data::Group, 8),
            (Data::Group, 1),
        ] {
            for (is_big, unfinished) in [
                (false, None),
                (true, None),
                (false, Some(5)),
                (false, Some(0x65)),
            ] {
                shapes.push(Shape {
                    data,
                    packing,
                    id_size,
                    is_big,
                    unfinished,
                });
            }
        }
    }
    shapes
}

/// Returns the sentences about damage that a file of this shape should not cause.
fn unexpected(shape: Shape, damage: &[String]) -> Vec<&String> {
    let signals = "records without CAN frames (signals, LIN, Ethernet ...), not replayed: 7 (the first: group engine)";
    let unfinished = "files that their recorder did not close, read to their end: 1";
    let expected = |sentence: &&String| {
        !(shape.id_size > 0 && *sentence == signals
            || shape.unfinished.is_some() && *sentence == unfinished)
    };
    let mut found = damage.len();
    let rest: Vec<_> = damage.iter().filter(expected).collect();
    found -= rest.len();
    let wanted = usize::from(shape.id_size > 0) + usize::from(shape.unfinished.is_some());
    assert!(found <= wanted, "{damage:?}");
    rest
}

#[test]
fn every_layout_of_an_mdf_file_gives_the_same_frames() {
    for shape in shapes() {
        let (found, damage) = items(&whole(shape, BEGIN, &all()).0);
        assert_eq!(found, wanted(&all()), "{shape:?}");
        assert!(
            unexpected(shape, &damage).is_empty(),
            "{shape:?} {damage:?}"
        );
    }
}

#[test]
fn a_file_that_is_torn_anywhere_gives_its_first_frames_and_a_report() {
    let mut sent = all();
    sent.sort_by_key(|sent| sent.ms);
    sent.truncate(4);
    let all = wanted(&sent);
    let is_chosen = |shape: &Shape| {
        let forms = [
            (Data::Fixed, 0),
            (Data::Stream, 0),
            (Data::MaximumLength, 2),
            (Data::Group, 1),
        ];
        let is_form = forms.contains(&(shape.data, shape.id_size));
        is_form && !shape.is_big && shape.unfinished != Some(5)
    };
    for shape in shapes().into_iter().filter(is_chosen) {
        let file = whole(shape, BEGIN, &sent).0;
        let (mut most, mut refusals) = (0, 0);
        let data_group = memchr::memmem::find(&file, b"##DG").expect("a group");
        let is_plain = shape.packing == Packing::Plain && shape.data == Data::Stream;
        let from = if is_plain { 64 } else { data_group };
        for end in from..file.len() {
            match read(
                "log",
                Cursor::new(file[..end].to_vec()),
                &mut Survey::default(),
            ) {
                Err(error) => {
                    assert_eq!(most, 0, "{shape:?} {end} {error}");
                    refusals += 1;
                }
                Ok(source) => {
                    let (found, damage) = frames(source);
                    assert_eq!(found, all[..found.len()], "{shape:?} {end}");
                    assert!(found.len() >= most, "{shape:?} {end}");
                    most = found.len();
                    let is_whole = found.len() == all.len();
                    assert!(is_whole || !damage.is_empty(), "{shape:?} {end}");
                }
            }
        }
        let shows_first = most > 0 || shape.packing != Packing::Plain;
        assert!(refusals > 0 && shows_first, "{shape:?}");
    }
}

#[test]
fn the_last_length_of_an_unfinished_file_is_not_used() {
    for length in [0u64, 24, 31, u64::MAX] {
        let shape = Shape {
            unfinished: Some(5),
            ..PLAIN
        };
        let mut file = whole(shape, BEGIN, &all()).0;
        let at = file.len() - 24 - all().len() * build::size(shape) as usize;
        assert_eq!(file[at..at + 4], *b"##DT");
        file[at + 8..at + 16].copy_from_slice(&length.to_le_bytes());
        let (found, damage) = items(&file);
        assert_eq!((found, damage.len()), (wanted(&all()), 1), "{length}");
    }
}

#[test]
fn a_block_list_of_an_unfinished_file_may_end_with_empty_links() {
    let shape = Shape {
        unfinished: Some(0x15),
        ..PLAIN
    };
    let mut file = whole(shape, BEGIN, &all());
    let data = memchr::memmem::rfind(&file.0, b"##DT").expect("data");
    let records = file.0.split_off(data);
    let list = file.block(b"DL", &[0, 0, 0, 0], &[0; 8]);
    let half = 24 + 3 * build::size(PLAIN) as usize;
    let first = file.block(b"DT", &[], &records[24..half]);
    let second = file.block(b"DT", &[], &records[half..]);
    file.0[second as usize + 8] = 24;
    file.link(list, 1, first);
    file.link(list, 2, second);
    let group = memchr::memmem::find(&file.0, b"##DG").expect("a group") as u64;
    file.link(group, 2, list);
    let (found, damage) = items(&file.0);
    assert_eq!(found, wanted(&all()));
    assert!(unexpected(shape, &damage).is_empty(), "{damage:?}");
}

#[test]
fn channel_groups_of_an_mdf_file_are_merged_in_the_order_of_time() {
    let frames = |ms: &[u64]| -> Vec<Sent> {
        let one = |&ms| sent(ms, 0x100, 4, 0, &bytes_up_to(4));
        ms.iter().map(one).collect()
    };
    // In an unfinished file, a block behind a data block shows that its length is valid.
    for unfinished in [None, Some(5)] {
        let plain = Shape {
            unfinished,
            ..PLAIN
        };
        let packed = Shape {
            data: Data::Stream,
            packing: Packing::Packed,
            ..plain
        };
        let mut file = File::new(BEGIN, unfinished);
        add(&mut file, plain, "Data", &frames(&[1, 5, 9]));
        add(&mut file, packed, "Data", &frames(&[2, 4, 10]));
        add(&mut file, plain, "Remote", &frames(&[3, 8]));
        add(&mut file, packed, "Error", &frames(&[6]));
        let (found, damage) = items(&file.0);
        let wanted: Vec<Item> = (1..=10)
            .filter(|ms| *ms != 7)
            .map(|ms| {
                let bytes = match ms {
                    3 | 8 => frame(0x100 | can::REMOTE, &[4], 16),
                    6 => frame(can::ERROR, &[8], 16),
                    _ => frame(0x100, &[4, 0, 0, 0, 1, 2, 3, 4], 16),
                };
                (BEGIN as i64 + ms * 1_000_000, "can1".to_owned(), bytes)
            })
            .collect();
        assert_eq!(found, wanted);
        assert!(unexpected(plain, &damage).is_empty(), "{damage:?}");
    }
}

#[test]
fn values_in_another_order_than_their_mdf_records_are_found() {
    let shape = Shape {
        data: Data::Stream,
        ..PLAIN
    };
    let mut file = whole(shape, BEGIN, &all()).0;
    let size = build::size(shape) as usize;
    let records = file.len() - 7 * size;
    let reversed: Vec<_> = file[records..].rchunks(size).flatten().copied().collect();
    file.splice(records.., reversed);
    let (found, damage) = items(&file);
    assert_eq!((found, damage.len()), (wanted(&all()), 0));
}

#[test]
fn frames_wait_for_their_data_bytes_up_to_a_limit() {
    let shape = Shape {
        data: Data::Group,
        id_size: 1,
        ..PLAIN
    };
    let sent: Vec<_> = (0..5000)
        .map(|n| sent(n, n as u32 & 0xff, 1, 0, &[n as u8]))
        .collect();
    let mut file = whole(shape, BEGIN, &sent).0;
    let start = memchr::memmem::rfind(&file, b"##DT").expect("data") + 24;
    let (mut frames, mut values) = (Vec::new(), Vec::new());
    let mut rest = &file[start..];
    while let Some(number) = rest.first() {
        let (to, size) = match number {
            0x41 => (&mut frames, 1 + build::size(shape) as usize),
            0x42 => (&mut values, 1 + 4 + 1),
            _ => (&mut Vec::new(), 1 + 3),
        };
        to.extend_from_slice(&rest[..size]);
        rest = &rest[size..];
    }
    file.truncate(start);
    file.extend_from_slice(&frames);
    file.extend_from_slice(&values);
    file[start - 16..start - 8]
        .copy_from_slice(&((24 + frames.len() + values.len()) as u64).to_le_bytes());
    let (found, damage) = items(&file);
    assert_eq!(found, wanted(&sent)[5000 - 4096..]);
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(
        damage[0].starts_with("frames without their data bytes, which are missing or damaged: 904"),
        "{damage:?}"
    );
}

/// Returns a file with one group. Its records contain a time, an identifier of 32 bits, and one
/// byte of data.
fn small(time: impl Fn(&mut File, u64) -> u64, records: &[u8], count: u64) -> Vec<u8> {
    let mut file = File::new(BEGIN, None);
    let bytes = file.channel("CAN_DataFrame.DataBytes", [0; 4], [0, 0, 10], (12, 0), 8);
    let id = file.channel("CAN_DataFrame.ID", [bytes, 0, 0, 0], [0, 0, 0], (8, 0), 32);
    let first = time(&mut file, id);
    let group = file.group(0, first, "", (0, count, 6), 13);
    let at = file.data_group(group, 0);
    let data = file.block(b"DT", &[], records);
    file.link(at, 2, data);
    file.0
}

#[test]
fn each_form_of_time_in_an_mdf_file_is_read() {
    let integer = |ticks: u64| ticks.to_le_bytes();
    let float = |seconds: f64| seconds.to_le_bytes();
    let rest = [0x34, 0x12, 0, 0x80, 0xab];
    let cases: [(u8, u8, f64, [u8; 8], i64); 6] = [
        (2, 0, 1e-9, integer(1_234_567_891), 1_234_567_891),
        (2, 1, 1e-6, 1234u64.to_be_bytes(), 1_234_000),
        (2, 0, 1e-5 / 3.0, integer(3000), 10_000_000),
        (2, 2, 1e-3, (-5i64).to_le_bytes(), -5_000_000),
        (2, 4, 1.0, float(1.000_000_123), 1_000_000_123),
        // The record's number is 0, and gives the time.
        (3, 0, 0.25, integer(77), 0),
    ];
    for (kind, form, factor, time, since_ns) in cases {
        let channel = |file: &mut File, next: u64| {
            let mut about = vec![1, 0, 0, 0, 0, 0, 2, 0];
            about.resize(24, 0);
            about.extend_from_slice(&0f64.to_le_bytes());
            about.extend_from_slice(&factor.to_le_bytes());
            let conversion = file.block(b"CC", &[0; 4], &about);
            file.channel("t", [next, 0, conversion, 0], [kind, 1, form], (0, 0), 64)
        };
        let file = small(channel, &[&time[..], &rest].concat(), 1);
        let (found, damage) = items(&file);
        let bytes = frame(0x1234 | can::EXTENDED, &[1, 0, 0, 0, 0xab], 16);
        let wanted = (BEGIN as i64 + since_ns, "can1".to_owned(), bytes);
        assert_eq!(
            (found, damage.len()),
            (vec![wanted], 0),
            "{kind} {form} {factor}"
        );
    }
    let not_a_time = small(
        |file, next| file.time(next, 4, 1.0),
        &[[0xff; 8].as_slice(), &rest].concat(),
        1,
    );
    assert!(refused(&not_a_time).contains("frames with an impossible time: 1"));
}

fn one_sentence(file: &[u8], frames: usize, sentence: &str) {
    let (found, damage) = items(file);
    assert_eq!(found.len(), frames, "{damage:?}");
    assert!(
        damage.len() == 1 && damage[0].starts_with(sentence),
        "{damage:?}"
    );
}

#[test]
fn a_damaged_packed_block_loses_only_its_own_records() {
    let sent: Vec<_> = (0..30)
        .map(|n| sent(n, n as u32, 1, 0, &[n as u8]))
        .collect();
    let shape = Shape {
        packing: Packing::Transposed,
        ..PLAIN
    };
    let mut file = whole(shape, BEGIN, &sent).0;
    let blocks: Vec<_> = memchr::memmem::find_iter(&file, b"##DZ").collect();
    file[blocks[1] + 60] ^= 0xff;
    let (found, damage) = items(&file);
    let ids: Vec<_> = found.iter().map(|(_, _, bytes)| bytes[0]).collect();
    assert_eq!(ids, (0..10).chain(20..30).collect::<Vec<u8>>());
    assert!(
        damage[0].starts_with("damaged packed data blocks, read up to the damage: 1"),
        "{damage:?}"
    );
    assert!(
        damage[1].starts_with("records in damaged data, not replayed: 10"),
        "{damage:?}"
    );
}

#[test]
fn reading_ends_although_links_lead_in_circles_or_blocks_share_bytes() {
    let group = |file: &mut File| {
        let channel = build::frame_channels(file, PLAIN, "Data", 0);
        let group = file.group(0, channel, "", (0, u64::MAX, 6), build::size(PLAIN));
        file.data_group(group, 0)
    };
    let records = {
        let file = whole(PLAIN, BEGIN, &all()).0;
        file[file.len() - 7 * build::size(PLAIN) as usize..].to_vec()
    };
    // A list whose next list is itself.
    let mut file = File::new(BEGIN, None);
    let at = group(&mut file);
    let list = file.block(b"DL", &[0], &[0; 8]);
    file.link(list, 0, list);
    file.link(at, 2, list);
    let error = refused(&file.0);
    assert!(
        error.contains("data blocks that share bytes of the file, left out: 1"),
        "{error}"
    );

    // A list of a thousand links to one block, in two groups.
    let mut file = File::new(BEGIN, None);
    let (first, second) = (group(&mut file), group(&mut file));
    let data = file.block(b"DT", &[], &records);
    let list = file.block(b"DL", &[&[0][..], &[data; 1000]].concat(), &[0; 8]);
    file.link(first, 2, list);
    file.link(second, 2, list);
    let (found, damage) = items(&file.0);
    assert!(
        found.len() < 7 * file.0.len() / records.len(),
        "{}",
        found.len()
    );
    assert!(
        damage
            .iter()
            .any(|d| d.starts_with("data blocks that share")),
        "{damage:?}"
    );

    // Groups and channels in a circle.
    let mut file = whole(PLAIN, BEGIN, &all());
    let block =
        |file: &File, kind: &[u8]| memchr::memmem::find(&file.0, kind).expect("a block") as u64;
    for kind in [&b"##DG"[..], b"##CG", b"##CN"] {
        let at = block(&file, kind);
        file.link(at, 0, at);
    }
    one_sentence(&file.0, 7, "links in a circle, not followed: 3");
}

#[test]
fn packed_blocks_unpack_to_no_more_bytes_than_they_state() {
    let data = {
        let file = whole(PLAIN, BEGIN, &all()).0;
        file[file.len() - 7 * build::size(PLAIN) as usize..].to_vec()
    };
    let bomb = |stated: usize, content: &[u8]| {
        let mut file = File::new(BEGIN, None);
        let channel = build::frame_channels(&mut file, PLAIN, "Data", 0);
        let group = file.group(0, channel, "", (0, 7, 6), build::size(PLAIN));
        let at = file.data_group(group, 0);
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
        std::io::Write::write_all(&mut packer, content).expect("in memory");
        let packed = packer.finish().expect("in memory");
        let block = file.zipped(b"DT", 0, 0, stated, &packed);
        file.link(at, 2, block);
        file.0
    };
    let long = [&data[..], &vec![0; 8 << 20]].concat();
    let (found, damage) = items(&bomb(data.len(), &long));
    assert_eq!((found.len(), damage.len()), (7, 0), "{damage:?}");
    let error = refused(&bomb(usize::MAX, &data));
    assert!(error.contains("unreadable data blocks"), "{error}");
    let (found, damage) = items(&bomb(60 << 20, &data));
    assert_eq!(found.len(), 7);
    assert!(
        damage[0].starts_with("damaged packed data blocks"),
        "{damage:?}"
    );
}

#[test]
fn records_and_groups_that_cannot_be_read_are_counted_or_the_file_is_refused() {
    // A record whose number belongs to no group.
    let shape = Shape {
        id_size: 1,
        unfinished: Some(5),
        ..PLAIN
    };
    let mut file = whole(shape, BEGIN, &all()).0;
    let size = file.len();
    file[size - 4] = 0x77;
    let (found, damage) = items(&file);
    assert_eq!(found.len(), 7);
    assert!(
        damage
            .iter()
            .any(|d| d.starts_with("records with an unknown group number")),
        "{damage:?}"
    );

    // Groups of signals, with the count that the file states.
    let mut file = whole(PLAIN, BEGIN, &all());
    let channel = file.channel("speed", [0; 4], [0, 0, 0], (8, 0), 8);
    let group = file.group(0, channel, "", (0, 1234, 0), 9);
    file.data_group(group, 0);
    one_sentence(&file.0, 7, "records without CAN frames (signals, LIN, Ethernet ...), not replayed: 1234 (the first: group speed)");

    // Fewer and more records than the file states.
    let stated = |count: u64| {
        let mut file = whole(PLAIN, BEGIN, &all()).0;
        let at = memchr::memmem::find(&file, b"##CG").expect("a group") + 24 + 6 * 8 + 8;
        file[at..at + 8].copy_from_slice(&count.to_le_bytes());
        file
    };
    one_sentence(
        &stated(9),
        7,
        "records that a group states and that are missing in the file: 2",
    );
    one_sentence(
        &stated(5),
        5,
        "groups with more records than they state, read up to the stated number: 1",
    );

    // Data in columns.
    let mut file = whole(PLAIN, BEGIN, &all()).0;
    let at = memchr::memmem::find(&file, b"##DT").expect("data");
    file[at..at + 4].copy_from_slice(b"##DV");
    assert!(refused(&file).contains("groups with data in columns"));

    let mut old = File::new(BEGIN, None).0;
    assert!(refused(&old).contains("no CAN frame"));
    old[28] = 0x4a;
    old[29] = 1;
    assert!(refused(&old).contains("another version"));
    assert!(refused(&old[..63]).contains("cut off"));
}

#[test]
fn values_that_an_mdf_file_marks_as_invalid_are_not_used() {
    let mut file = File::new(BEGIN, None);
    let bytes = file.channel("CAN_DataFrame.DataBytes", [0; 4], [0, 0, 10], (13, 0), 8);
    let bus = file.channel(
        "CAN_DataFrame.BusChannel",
        [bytes, 0, 0, 0],
        [0, 0, 0],
        (12, 0),
        8,
    );
    let id = file.channel("CAN_DataFrame.ID", [bus, 0, 0, 0], [0, 0, 0], (8, 0), 32);
    for (channel, bit) in [(bus, 3u8), (id, 0)] {
        let at = channel as usize + 24 + 8 * 8;
        file.0[at + 12] = 2;
        file.0[at + 16] = bit;
    }
    let first = file.time(id, 0, 1e-6);
    let group = file.group(0, first, "", (0, 3, 6), 14);
    let invalid_bytes = group as usize + 24 + 6 * 8 + 28;
    file.0[invalid_bytes] = 1;
    let at = file.data_group(group, 0);
    let record =
        |number: u8, bits: u8| [number, 0, 0, 0, 0, 0, 0, 0, 0x55, 0, 0, 0, 7, number, bits];
    let data = [record(1, 0), record(2, 8), record(3, 1)].concat();
    let data = file.block(b"DT", &[], &data);
    file.link(at, 2, data);
    let (found, damage) = items(&file.0);
    let channels: Vec<_> = found.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(channels, ["can7", "can1"]);
    assert!(
        damage[0].starts_with("frames with an impossible identifier: 1"),
        "{damage:?}"
    );
}

#[test]
fn constants_and_tables_of_lengths_of_an_mdf_file_are_read() {
    let mut file = File::new(BEGIN, None);
    let mut conversion = |kind: u8, values: &[f64]| {
        let mut about = vec![kind, 0, 0, 0, 0, 0, values.len() as u8, 0];
        about.resize(24, 0);
        about.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        file.block(b"CC", &[0; 4], &about)
    };
    let nine = conversion(1, &[9.0, 0.0]);
    let one = conversion(1, &[1.0, 0.0]);
    let lengths = conversion(5, &[8.0, 8.0, 9.0, 12.0, 10.0, 16.0]);
    let bytes = file.channel("CAN_DataFrame.DataBytes", [0; 4], [0, 0, 10], (10, 0), 128);
    let mut next = bytes;
    for (name, conversion, kind, at, bits) in [
        ("DataLength", lengths, 0, (9, 4), 4),
        ("DLC", 0, 0, (9, 4), 4),
        ("IDE", one, 6, (0, 0), 0),
        ("EDL", one, 6, (0, 0), 0),
        ("BusChannel", nine, 6, (0, 0), 0),
        ("ID", 0, 0, (8, 0), 11),
    ] {
        let name = format!("CAN_DataFrame.{name}");
        next = file.channel(&name, [next, 0, conversion, 0], [kind, 0, 0], at, bits);
    }
    let first = file.time(next, 0, 1e-6);
    let group = file.group(0, first, "", (0, 1, 6), 26);
    let at = file.data_group(group, 0);
    let record = [&[7, 0, 0, 0, 0, 0, 0, 0, 0x21, 0x95][..], &bytes_up_to(16)].concat();
    let data = file.block(b"DT", &[], &record);
    file.link(at, 2, data);
    let (found, damage) = items(&file.0);
    let bytes = frame(
        0x521 | can::EXTENDED,
        &[&[12, 0, 0, 0][..], &bytes_up_to(12)].concat(),
        72,
    );
    let wanted = (BEGIN as i64 + 7000, "can9".to_owned(), bytes);
    assert_eq!((found, damage.len()), (vec![wanted], 0));
}

#[test]
fn the_comment_and_the_attachments_of_an_mdf_file_are_listed() {
    let about = |flags: u8, bytes: u64| {
        let mut about = vec![flags];
        about.resize(24, 0);
        about.extend_from_slice(&bytes.to_le_bytes());
        about.extend_from_slice(&[7; 16]);
        about
    };
    let mut file = whole(PLAIN, BEGIN, &all());
    let names = ["car.dbc", "text/plain", "video.mp4"].map(|text| file.text(text));
    let outside = file.block(b"AT", &[0, names[2], 0, 0], &about(0, 0));
    let inside = file.block(b"AT", &[outside, names[0], names[1], 0], &about(1, 1234));
    let xml = b"<HDcomment><TX>city</TX></HDcomment>\0";
    let comment = file.block(b"MD", &[], xml);
    file.link(64, 3, inside);
    file.link(64, 5, comment);
    let read = |file: &File| {
        let bytes = Cursor::new(file.0.clone());
        let source = read("log", bytes, &mut Survey::default()).expect("a log");
        (source.extras(), source.damage().to_vec())
    };
    let (extras, damage) = read(&file);
    assert!(damage.is_empty(), "{damage:?}");
    let found = extras.attachments.iter();
    let found: Vec<_> = found
        .map(|a| (a.name.as_str(), a.media_type.as_deref(), a.bytes))
        .collect();
    let wanted = [
        ("car.dbc", Some("text/plain"), Some(1234)),
        ("video.mp4", None, None),
    ];
    assert_eq!(found, wanted);
    assert_eq!(extras.metadata[0].values["comment"], "city");
    // A circle of attachments, and a link to nothing.
    file.link(outside, 0, inside);
    file.link(64, 5, 8);
    let (again, damage) = read(&file);
    assert_eq!(again.attachments, extras.attachments);
    assert!(again.metadata.is_empty());
    assert_eq!(damage.len(), 2, "{damage:?}");
}
