use super::*;
use crate::item::Kind;
use crate::testing::{by_index, frames, Item};
use std::collections::BTreeMap;
use std::io::{Cursor, Write};

const BEGIN: u64 = 1_492_728_278_250_000_000;

fn fields(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.extend_from_slice(&((name.len() + 1 + value.len()) as u32).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value);
    }
    bytes
}

fn record(op: u8, of: &[(&str, &[u8])], data: &[u8]) -> Vec<u8> {
    let header = [fields(&[("op", &[op])]), fields(of)].concat();
    let mut bytes = (header.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn time(ns: u64) -> [u8; 8] {
    let (seconds, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
    ((ns << 32) | seconds).to_le_bytes()
}

type Topic = (&'static str, &'static str, &'static str);

const POINT: Topic = (
    "/point",
    "geometry_msgs/PointStamped",
    "# A comment\nHeader header\nPoint point\n\
     ================================================================================\n\
     MSG: std_msgs/Header\nuint32 seq # a number\ntime stamp\nstring frame_id\n\
     ================================================================================\n\
     MSG: geometry_msgs/Point\nfloat64 x\nfloat64 y\nfloat64 z\n",
);
const TEXT: Topic = ("/text", "std_msgs/String", "string A=a # b\nstring data\n");
const OWN: Topic = ("/own", "my_msgs/Thing", "uint8 thing\n");

fn connection(number: u32, (topic, type_name, definition): Topic) -> Vec<u8> {
    let data = fields(&[
        ("topic", topic.as_bytes()),
        ("type", type_name.as_bytes()),
        ("md5sum", b"*"),
        ("message_definition", definition.as_bytes()),
        ("latching", if topic == TEXT.0 { b"1" } else { b"0" }),
    ]);
    let conn = number.to_le_bytes();
    record(7, &[("conn", &conn), ("topic", topic.as_bytes())], &data)
}

fn message(number: u32, ms: u64, data: &[u8]) -> Vec<u8> {
    let at = time(BEGIN + ms * 1_000_000);
    record(2, &[("conn", &number.to_le_bytes()), ("time", &at)], data)
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn point(frame: &str, x: f64) -> Vec<u8> {
    let mut bytes = vec![9, 0, 0, 0];
    bytes.extend_from_slice(&time(BEGIN));
    bytes.extend_from_slice(&text(frame));
    for value in [x, 2.0, 3.0] {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn packed(compression: &str, plain: &[u8]) -> Vec<u8> {
    match compression {
        "bz2" => {
            let mut packer = bzip2::write::BzEncoder::new(Vec::new(), Default::default());
            packer.write_all(plain).expect("in memory");
            packer.finish().expect("in memory")
        }
        "lz4" => {
            let packer = lz4::EncoderBuilder::new().build(Vec::new());
            let mut packer = packer.expect("a packer");
            packer.write_all(plain).expect("in memory");
            let (bytes, result) = packer.finish();
            result.expect("in memory");
            bytes
        }
        _ => plain.to_vec(),
    }
}

/// The records of a chunk, and the time of its first message in ms.
type Chunk = (Vec<u8>, u64);

/// Returns the times in ns of the messages of each connection in a chunk.
fn index_of(mut plain: &[u8]) -> BTreeMap<u32, Vec<u64>> {
    let mut index: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    while let Some((header, _, rest)) = record::split(plain) {
        if header.op() == Some(record::MESSAGE) {
            let (conn, at) = (header.number("conn"), header.time_ns("time"));
            let times = index.entry(conn.expect("a number")).or_default();
            times.push(at.expect("a time"));
        }
        plain = rest;
    }
    index
}

fn bag(compression: &str, is_indexed: bool, topics: &[Topic], chunks: &[Chunk]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut infos = Vec::new();
    const HEADER: usize = 4096;
    let start = MAGIC.len() + HEADER;
    for (plain, first_ms) in chunks {
        let at = (start + body.len()) as u64;
        let size = (plain.len() as u32).to_le_bytes();
        let fields: [(&str, &[u8]); 2] = [("compression", compression.as_bytes()), ("size", &size)];
        body.extend(record(5, &fields, &packed(compression, plain)));
        let index = index_of(plain);
        let mut counts = Vec::new();
        for (conn, times) in &index {
            let (conn, count) = (conn.to_le_bytes(), (times.len() as u32).to_le_bytes());
            let entries = times
                .iter()
                .flat_map(|at| [&time(*at)[..], &[0; 4]].concat());
            let entries: Vec<u8> = entries.collect();
            let fields: [(&str, &[u8]); 3] =
                [("ver", &[1, 0, 0, 0]), ("conn", &conn), ("count", &count)];
            body.extend(record(4, &fields, &entries));
            counts.extend([conn, count].concat());
        }
        let first = time(BEGIN + first_ms * 1_000_000);
        let last = time(index.values().flatten().max().copied().unwrap_or(0));
        let at = at.to_le_bytes();
        let count = (index.len() as u32).to_le_bytes();
        let fields: [(&str, &[u8]); 5] = [
            ("ver", &[1; 4]),
            ("chunk_pos", &at),
            ("start_time", &first),
            ("end_time", &last),
            ("count", &count),
        ];
        infos.extend(record(6, &fields, &counts));
    }
    let index_at = if is_indexed {
        (start + body.len()) as u64
    } else {
        0
    };
    if is_indexed {
        for (number, topic) in topics.iter().enumerate() {
            body.extend(connection(number as u32, *topic));
        }
        body.extend(infos);
    }
    let fields: [(&str, &[u8]); 3] = [
        ("index_pos", &index_at.to_le_bytes()),
        ("conn_count", &(topics.len() as u32).to_le_bytes()),
        ("chunk_count", &(chunks.len() as u32).to_le_bytes()),
    ];
    let padding = HEADER - record(3, &fields, &[]).len();
    let head = record(3, &fields, &vec![b' '; padding]);
    [MAGIC, &head, &body].concat()
}

fn chunks() -> [Chunk; 2] {
    let first = [
        connection(0, POINT),
        message(0, 1, &point("map", 1.0)),
        connection(1, TEXT),
        message(1, 5, &text("five")),
        message(1, 3, &text("three")),
        connection(2, OWN),
        message(2, 4, &[7]),
    ];
    // Another publisher of the first topic.
    let second = [
        connection(3, POINT),
        message(3, 2, &point("ab", 2.0)),
        message(1, 6, &text("")),
    ];
    [(first.concat(), 1), (second.concat(), 2)]
}

const TOPICS: [Topic; 4] = [POINT, TEXT, OWN, POINT];

fn cdr_point(frame: &[u8], x: f64) -> Vec<u8> {
    let mut cdr = vec![0, 1, 0, 0];
    cdr.extend_from_slice(&time(BEGIN));
    cdr.extend_from_slice(frame);
    for value in [x, 2.0, 3.0] {
        cdr.extend_from_slice(&value.to_le_bytes());
    }
    cdr
}

fn wanted() -> Vec<Item> {
    let at = |ms: u64, name: &str, bytes: &[u8]| {
        (
            (BEGIN + ms * 1_000_000) as i64,
            name.to_owned(),
            bytes.to_vec(),
        )
    };
    vec![
        at(1, "/point", &cdr_point(b"\x04\0\0\0map\0", 1.0)),
        // One byte of padding, so that the numbers are aligned.
        at(2, "/point", &cdr_point(b"\x03\0\0\0ab\0\0", 2.0)),
        at(3, "/text", b"\0\x01\0\0\x06\0\0\0three\0"),
        at(4, "/own", &[7]),
        at(5, "/text", b"\0\x01\0\0\x05\0\0\0five\0"),
        at(6, "/text", b"\0\x01\0\0\x01\0\0\0\0"),
    ]
}

fn items(bag: Vec<u8>) -> (Vec<Item>, Vec<String>) {
    frames(read("bag", Cursor::new(bag)).expect("a bag"))
}

#[test]
fn bags_of_every_compression_are_read_with_and_without_an_index() {
    for compression in ["none", "bz2", "lz4"] {
        let (found, damage) = items(bag(compression, true, &TOPICS, &chunks()));
        assert_eq!(found, wanted(), "{compression}");
        assert!(damage.is_empty(), "{damage:?}");
        let (found, damage) = items(bag(compression, false, &TOPICS, &chunks()));
        assert_eq!(found, wanted(), "{compression}");
        assert_eq!(damage.len(), 1);
        assert!(
            damage[0].starts_with("bags without a whole index"),
            "{damage:?}"
        );
    }
}

#[test]
fn streams_have_ros_2_types_or_the_reason_why_they_cannot_be_played() {
    let battery = ("/battery", "sensor_msgs/Range", "Header header\n");
    let other = (
        "/scan",
        "geometry_msgs/Point",
        "float64 x\nfloat32 y\nfloat64 z\n",
    );
    let topics = [POINT, TEXT, OWN, battery, other];
    let source = read("bag", Cursor::new(bag("none", true, &topics, &[]))).expect("a bag");
    let kinds: Vec<_> = source.streams().iter().map(|stream| &stream.kind).collect();
    let ros = |name: &str| Kind::Ros {
        type_name: name.into(),
        qos: None,
    };
    assert_eq!(kinds[0], &ros("geometry_msgs/msg/PointStamped"));
    let Kind::Ros { qos: Some(qos), .. } = kinds[1] else {
        panic!("{:?}", kinds[1]);
    };
    assert!(qos.contains("durability: transient_local"), "{qos}");
    let reasons = kinds[2..].iter().map(|kind| match kind {
        Kind::Unplayable { reason, .. } => reason.as_str(),
        kind => panic!("{kind:?}"),
    });
    let wanted = [
        "onbeat knows no ROS 2 type for my_msgs/Thing",
        "sensor_msgs/Range has another definition in ROS 2 than in the bag",
        "geometry_msgs/Point has another definition in ROS 2 than in the bag, at the field y",
    ];
    assert_eq!(reasons.collect::<Vec<_>>(), wanted);
    let log = crate::source::candump::read("log", Cursor::new(b"(1.0) can0 123#11\n".to_vec()));
    let sources = vec![log.expect("a log"), source];
    let merged = crate::source::merged(sources, false).expect("merged");
    let encodings = [0, 1, 5].map(|stream| merged.encoding(StreamId(stream)));
    assert_eq!(encodings, [None, Some("ros1"), Some("ros1")]);
}

#[test]
fn old_ros_1_names_of_types_and_fields_are_recognised() {
    let header = "========================================\nMSG: roslib/Header\nuint32 seq\ntime stamp\nstring frame_id\n";
    let info = format!(
        "Header header\nuint32 height\nuint32 width\nstring distortion_model\nfloat64[] D\n\
         float64[9]  K\nfloat64[9]  R\nfloat64[12] P\nuint32 binning_x\nuint32 binning_y\n\
         RegionOfInterest roi\n{header}\
         ========================================\nMSG: sensor_msgs/RegionOfInterest\n\
         uint32 x_offset\nuint32 y_offset\nuint32 height\nuint32 width\nbool do_rectify\n"
    );
    let found = layout::of("sensor_msgs/CameraInfo", &info).expect("equal");
    let mut message = vec![0; 12];
    message.extend(text(""));
    message.extend_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
    message.extend(text("plumb"));
    message.extend_from_slice(&[1, 0, 0, 0]);
    message.extend_from_slice(&1.5f64.to_le_bytes());
    message.extend_from_slice(&[0; 8 * 30 + 8 + 16]);
    message.push(1);
    let mut cdr = Vec::new();
    convert::convert(&found, &message, &mut cdr).expect("converted");
    // stamp, frame, sizes, model, count of d, then aligned numbers.
    let sizes = 8 + 5 + 3 + 8 + 4 + 6 + 2 + 4 + 8 * 31 + 8 + 16 + 1;
    assert_eq!(cdr.len(), 4 + sizes);
    assert_eq!(cdr[4 + 40..][..8], 1.5f64.to_le_bytes());

    let transforms = "geometry_msgs/TransformStamped[] transforms\n";
    let error = layout::of("tf/tfMessage", transforms).expect_err("an incomplete definition");
    assert!(error.ends_with("at the field transforms"), "{error}");
    let empty = layout::of("std_msgs/Empty", "\n").expect("equal");
    convert::convert(&empty, &[], &mut cdr).expect("converted");
    assert_eq!(cdr, [0, 1, 0, 0, 0]);
}

#[test]
fn a_torn_or_damaged_bag_gives_all_other_messages_and_counts_the_damage() {
    let whole = bag("none", true, &TOPICS, &chunks());
    let own: Vec<_> = wanted();
    // The file ends within the second chunk, or within the index.
    let second = MAGIC.len() + 4096 + chunks()[0].0.len() + 100;
    let (found, damage) = items(whole[..second + 300].to_vec());
    assert_eq!(found.len(), 4, "{damage:?}");
    assert!(
        damage.iter().any(|d| d.starts_with("chunks cut off")),
        "{damage:?}"
    );
    let (found, _) = items(whole[..whole.len() - 10].to_vec());
    assert_eq!(found, own);

    let mut file = bag("bz2", true, &TOPICS, &chunks());
    let at = MAGIC.len() + 4096 + 200;
    file[at] ^= 0xff;
    let (found, damage) = items(file);
    assert_eq!(found, [own[1].clone(), own[5].clone()]);
    assert!(damage[0].starts_with("damaged chunks"), "{damage:?}");

    let short = [
        connection(0, TEXT),
        message(0, 1, &[9, 0, 0, 0, 1]),
        message(7, 2, &[]),
    ];
    let (found, damage) = items(bag("none", true, &[TEXT], &[(short.concat(), 1)]));
    assert!(found.is_empty());
    assert!(
        damage[0].starts_with("messages of undeclared connections"),
        "{damage:?}"
    );
    let wanted = "messages that do not fit their definition, not replayed: 1 (the first: /text)";
    assert_eq!(damage[1], wanted);
}

#[test]
fn an_encrypted_or_old_bag_is_refused_with_advice() {
    let fields: [(&str, &[u8]); 1] = [("encryptor", b"rosbag/AesCbcEncryptor")];
    let encrypted = [MAGIC, &record(3, &fields, &[])].concat();
    for (file, way_out) in [
        (encrypted, "rosbag decrypt"),
        (b"#ROSBAG V1.2\n....".to_vec(), "rosbag fix"),
        (MAGIC.to_vec(), "no topic"),
    ] {
        let error = read("bag", Cursor::new(file))
            .err()
            .expect("refused")
            .to_string();
        assert!(error.contains(way_out), "{error}");
    }
}

#[test]
fn ros_2_types_have_a_definition_that_includes_the_types_that_it_uses() {
    let text = layout::definition("geometry_msgs/msg/PoseStamped").expect("a definition");
    let paths = crate::compare::paths("geometry_msgs/msg/PoseStamped", &text).expect("a layout");
    let times = |path: &&String| path.starts_with("header.stamp");
    assert!(paths.iter().any(|path| times(&path)), "{paths:?}");
    let others: Vec<_> = paths.iter().filter(|path| !times(path)).collect();
    let expected = [
        "header.frame_id",
        "pose.position.x",
        "pose.position.y",
        "pose.position.z",
        "pose.orientation.x",
        "pose.orientation.y",
        "pose.orientation.z",
        "pose.orientation.w",
    ];
    assert_eq!(others, expected);
    assert_eq!(layout::definition("own_msgs/msg/Thing"), None);
}

#[test]
fn the_index_of_a_ros_1_bag_has_the_figures_of_its_messages() {
    let listed = |bytes: &[u8]| {
        let mut place = tempfile::NamedTempFile::new().expect("a file");
        place.write_all(bytes).expect("written");
        by_index(place.path())
    };
    for compression in ["none", "bz2", "lz4"] {
        let indexed = listed(&bag(compression, true, &TOPICS, &chunks()));
        assert_eq!(indexed.map(|contents| contents.items), Some(6));
        assert!(listed(&bag(compression, false, &TOPICS, &chunks())).is_none());
    }
    let whole = bag("none", true, &TOPICS, &chunks());
    assert!(listed(&whole[..whole.len() - 10]).is_none());
    let position = |name: &[u8]| memchr::memmem::rfind(&whole, name).map(|at| at + name.len());
    for (name, change) in [
        ("start_time=", 1),
        ("end_time=", 1),
        ("chunk_pos=", 1),
        ("count=", 1),
    ] {
        let mut bytes = whole.clone();
        bytes[position(name.as_bytes()).expect("a field")] ^= change;
        assert!(listed(&bytes).is_none(), "{name}");
    }
    // The last byte of the index is part of a connection's number of messages.
    let mut bytes = whole.clone();
    *bytes.last_mut().expect("not empty") ^= 1;
    assert!(listed(&bytes).is_none());
    // A wrong byte in the index of the bag is found, or does not change a figure.
    let index_at = position(b"index_pos=").expect("a field");
    let index_at = whole[index_at..].first_chunk().expect("eight bytes");
    for at in u64::from_le_bytes(*index_at) as usize..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x80;
        let _ = listed(&bytes);
    }
}
