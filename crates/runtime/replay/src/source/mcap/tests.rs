use super::block::Block;
use super::*;
use crate::item::{Attachment, Kind};
use crate::testing::by_index;
use ::mcap::records::MessageHeader;
use ::mcap::{Compression, WriteOptions, Writer};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{Cursor, Write};

type Item = (u64, u32, Vec<u8>);

#[derive(Clone, Copy, Debug)]
struct Form {
    compression: Option<Compression>,
    chunk_bytes: Option<u64>,
    /// True if the file has a summary. A file without a summary declares no channel after the data.
    summary: bool,
}

fn file(form: Form, items: &[Item]) -> Vec<u8> {
    let options = WriteOptions::new()
        .compression(form.compression)
        .chunk_size(form.chunk_bytes)
        .use_chunks(form.chunk_bytes.is_some())
        .emit_summary_records(form.summary)
        .emit_summary_offsets(form.summary)
        .emit_message_indexes(form.summary);
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = Writer::with_options(&mut bytes, options).expect("a writer");
    let schema = writer
        .add_schema("std_msgs/msg/String", "ros2msg", b"string data")
        .expect("a schema");
    let qos = BTreeMap::from([("offered_qos_profiles".to_owned(), "- depth: 1".to_owned())]);
    let channels: Vec<u16> = (0..3)
        .map(|number| {
            writer
                .add_channel(schema, &format!("/t{number}"), "cdr", &qos)
                .expect("a channel")
        })
        .collect();
    for (time_ns, stream, payload) in items {
        let header = MessageHeader {
            channel_id: channels[*stream as usize],
            sequence: 0,
            log_time: *time_ns,
            publish_time: 0,
        };
        writer
            .write_to_known_channel(&header, payload)
            .expect("written");
    }
    writer.finish().expect("finished");
    drop(writer);
    bytes.into_inner()
}

fn items(bytes: Vec<u8>) -> (Vec<Item>, Vec<String>) {
    let mut source = read("file", Cursor::new(bytes)).expect("surveyed");
    let mut payload = Vec::new();
    let mut all = Vec::new();
    while let Some(stamp) = source.next(&mut payload).expect("readable") {
        let stream = &source.streams()[stamp.stream.0 as usize];
        let Kind::Ros { type_name, qos } = &stream.kind else {
            panic!("{stream:?}")
        };
        assert_eq!(
            (type_name.as_str(), qos.as_deref()),
            ("std_msgs/msg/String", Some("- depth: 1"))
        );
        let number = stream
            .name
            .strip_prefix("/t")
            .and_then(|number| number.parse().ok());
        all.push((
            u64::try_from(stamp.time_ns).expect("after 1970"),
            number.expect("a topic"),
            payload.clone(),
        ));
    }
    (all, source.damage().to_vec())
}

fn forms() -> impl Strategy<Value = Form> {
    let compression = prop_oneof![
        Just(None),
        Just(Some(Compression::Zstd)),
        Just(Some(Compression::Lz4))
    ];
    let chunk_bytes = prop_oneof![Just(None), (20u64..2000).prop_map(Some)];
    (compression, chunk_bytes, any::<bool>()).prop_map(|(compression, chunk_bytes, summary)| Form {
        compression,
        chunk_bytes,
        summary,
    })
}

fn some_items() -> impl Strategy<Value = Vec<Item>> {
    let payload = prop::collection::vec(any::<u8>(), 0..80);
    prop::collection::vec((0u64..500, 0u32..3, payload), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn messages_of_an_mcap_file_are_read_in_time_order(form in forms(), items_in in some_items()) {
        let (read, damage) = items(file(form, &items_in));
        let mut wanted = items_in;
        wanted.sort_by_key(|item| item.0);
        prop_assert_eq!(read, wanted);
        prop_assert!(damage.is_empty(), "{:?}", damage);
    }

    #[test]
    fn the_index_of_an_mcap_file_has_the_figures_of_its_messages(form in forms(), items in some_items()) {
        let indexed = listed(&file(form, &items));
        // Without messages, the file may have a chunk without messages, which is read whole.
        let is_usable = form.summary && form.chunk_bytes.is_some();
        if !items.is_empty() {
            let found = indexed.map(|contents| contents.items);
            prop_assert_eq!(found, is_usable.then_some(items.len() as u64));
        }
    }

    #[test]
    fn items_of_a_truncated_file_are_read_up_to_the_cut(form in forms(), items_in in some_items(), share in 0.0..1.0f64) {
        let whole = file(form, &items_in);
        // The magic at the end carries no data, so nothing is missing without it.
        let cut = MAGIC.len() + ((whole.len() - 2 * MAGIC.len()) as f64 * share) as usize;
        let (read, damage) = items(whole[..cut].to_vec());
        let mut left = items_in;
        for item in read {
            let at = left.iter().position(|written| *written == item);
            prop_assert!(at.is_some(), "{:?} was not written", item);
            at.map(|at| left.remove(at));
        }
        prop_assert!(!damage.is_empty());
    }
}

#[test]
fn all_mcap_messages_before_a_truncation_are_read() {
    let form = Form {
        compression: Some(Compression::Zstd),
        chunk_bytes: Some(300),
        summary: true,
    };
    let written: Vec<Item> = (0..50).map(|n| (n, 0, vec![n as u8; 40])).collect();
    let whole = file(form, &written);
    let all = survey_chunks(&whole);
    let cut = all[all.len() - 1].at as usize + 3;
    let (read, damage) = items(whole[..cut].to_vec());
    // Chunks hold five or six messages, and the last chunk is lost.
    assert!(
        read.len() >= 40 && read[..] == written[..read.len()],
        "{}",
        read.len()
    );
    assert_eq!(damage, [format!("files without a footer (the recorder was stopped), read to their end: 1 (the first: byte {})", cut - 3)]);
}

#[test]
fn a_damaged_chunk_does_not_affect_other_chunks() {
    let form = Form {
        compression: None,
        chunk_bytes: Some(300),
        summary: true,
    };
    let written: Vec<Item> = (0..50).map(|n| (n, 0, vec![n as u8; 40])).collect();
    let mut whole = file(form, &written);
    let chunk = survey_chunks(&whole)[3];
    // The offset of a byte in the last message of the chunk.
    let last = (chunk.at + chunk.length - 1) as usize;
    whole[last] ^= 0xff;
    let (read, damage) = items(whole);
    assert_eq!(read.len(), 50);
    assert_eq!(
        read.iter()
            .zip(&written)
            .filter(|(read, written)| read != written)
            .count(),
        1
    );
    assert!(
        damage[0].starts_with("chunks with a wrong checksum, read nevertheless: 1"),
        "{damage:?}"
    );
}

fn survey_chunks(bytes: &[u8]) -> Vec<Block> {
    let mut reader = BufReader::new(Cursor::new(bytes));
    Survey::of(&mut reader, &mut Damage::default())
        .expect("surveyed")
        .blocks
}

#[test]
fn channels_of_other_encodings_are_streams_that_cannot_be_played() {
    for summary in [true, false] {
        let mut bytes = Cursor::new(Vec::new());
        let options = WriteOptions::new()
            .emit_summary_records(summary)
            .emit_summary_offsets(summary)
            .emit_message_indexes(summary);
        let mut writer = Writer::with_options(&mut bytes, options).expect("a writer");
        let schema = writer
            .add_schema("Thing", "jsonschema", b"{}")
            .expect("a schema");
        let channels = ["cdr", "json"].map(|encoding| {
            let none = BTreeMap::new();
            let channel = writer.add_channel(schema, "/a", encoding, &none);
            channel.expect("a channel")
        });
        for (log_time, channel_id) in (1u64..).zip([channels[1], channels[0], channels[1]]) {
            let header = MessageHeader {
                channel_id,
                sequence: 0,
                log_time,
                publish_time: 0,
            };
            let written = writer.write_to_known_channel(&header, b"{}");
            written.expect("written");
        }
        writer.finish().expect("finished");
        drop(writer);
        let mut source = read("file", Cursor::new(bytes.into_inner())).expect("surveyed");
        let contents = crate::contents::Contents::of(&mut *source, &mut |_| {});
        let streams: Vec<_> = contents.streams.iter().map(|s| (s.kind, s.items)).collect();
        assert_eq!(streams.len(), 2, "{streams:?}");
        assert!(streams.contains(&("ros", 1)) && streams.contains(&("unplayable", 2)));
        let mut reasons = contents.streams.iter().filter_map(|s| s.unplayable.clone());
        let reason = reasons.next().expect("a reason");
        assert!(reason.contains("json"), "{reason}");
        let encodings = contents
            .streams
            .iter()
            .map(|s| (s.kind, s.encoding.as_deref()));
        let mut encodings: Vec<_> = encodings.collect();
        encodings.sort();
        let wanted = [("ros", Some("cdr")), ("unplayable", Some("json"))];
        assert_eq!(encodings, wanted);
        assert_eq!(contents.damage, Some(vec![]));
    }
}

/// Lists a file by its index if that is usable, and checks its figures against those of the whole
/// file.
fn listed(bytes: &[u8]) -> Option<crate::contents::Contents> {
    let mut place = tempfile::NamedTempFile::new().expect("a file");
    place.write_all(bytes).expect("written");
    by_index(place.path())
}

/// Returns a file with several chunks, and the position of its summary.
fn summarised() -> (Vec<u8>, usize) {
    let form = Form {
        compression: None,
        chunk_bytes: Some(300),
        summary: true,
    };
    let items: Vec<Item> = (0..40)
        .map(|n| (100 + n * 7, n as u32 % 3, vec![n as u8; 20]))
        .collect();
    let bytes = file(form, &items);
    let footer = &bytes[bytes.len() - 8 - 20..];
    let summary = u64::from_le_bytes(footer[..8].try_into().expect("eight bytes"));
    (bytes, summary as usize)
}

#[test]
fn a_damaged_summary_is_not_used() {
    let (whole, summary) = summarised();
    assert!(listed(&whole).is_some());
    for at in summary..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        assert!(
            listed(&bytes).is_none(),
            "byte {at} of {summary}..{}",
            whole.len()
        );
    }
    for cut in [1, 8, 30, whole.len() - summary] {
        assert!(listed(&whole[..whole.len() - cut]).is_none(), "{cut}");
    }
}

/// Changes bytes in the records of an MCAP file with this kind, and clears the checksum of the
/// summary.
fn changed(whole: &[u8], kind: u8, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let mut at = MAGIC.len();
    while at + 9 < bytes.len() - MAGIC.len() {
        let length = u64::from_le_bytes(bytes[at + 1..at + 9].try_into().expect("eight bytes"));
        let body = at + 9..at + 9 + length as usize;
        if bytes[at] == kind {
            change(&mut bytes[body.clone()]);
        }
        at = body.end;
    }
    let checksum = bytes.len() - MAGIC.len() - 4;
    bytes[checksum..checksum + 4].fill(0);
    bytes
}

#[test]
fn an_index_that_disagrees_with_itself_is_not_used() {
    use ::mcap::records::op;
    let (whole, _) = summarised();
    assert!(listed(&changed(&whole, op::STATISTICS, |_| {})).is_some());
    // Statistics: the numbers of messages and of chunks, the first and the last time, and a count
    // of a channel. The index of a chunk: its first time, its position and its length.
    for (kind, places) in [
        (op::STATISTICS, &[0, 22, 26, 34, 48][..]),
        (op::CHUNK_INDEX, &[0, 16, 24]),
    ] {
        for place in places {
            let bytes = changed(&whole, kind, |body| body[*place] ^= 1);
            assert!(listed(&bytes).is_none(), "{kind}, byte {place}");
        }
    }
    // The index of messages: channel, length, and the first entry's time and position.
    for (place, change) in [(0, 1), (2, 16), (6, 128), (15, 0xff)] {
        let bytes = changed(&whole, op::MESSAGE_INDEX, |body| body[place] ^= change);
        assert!(
            listed(&bytes).is_none(),
            "byte {place} of the index of messages"
        );
    }
    // The times of a chunk.
    for place in [0, 8] {
        let bytes = changed(&whole, op::CHUNK, |body| body[place] ^= 1);
        assert!(listed(&bytes).is_none(), "byte {place} of chunks");
    }
}

#[test]
fn attachments_and_metadata_are_listed_by_the_index_and_without_it() {
    for summary in [true, false] {
        let mut bytes = Cursor::new(Vec::new());
        let options = WriteOptions::new()
            .emit_summary_records(summary)
            .emit_summary_offsets(summary);
        let mut writer = Writer::with_options(&mut bytes, options).expect("a writer");
        let attachment = ::mcap::Attachment {
            log_time: 5,
            create_time: 4,
            name: "lidar.yaml".into(),
            media_type: "application/yaml".into(),
            data: vec![7; 10_000].into(),
        };
        writer.attach(&attachment).expect("written");
        let values = BTreeMap::from([("car".to_owned(), "A\n7".to_owned())]);
        let metadata = ::mcap::records::Metadata {
            name: "drive".into(),
            metadata: values,
        };
        writer.write_metadata(&metadata).expect("written");
        writer.finish().expect("finished");
        drop(writer);
        let bytes = bytes.into_inner();
        let source = read("file", Cursor::new(bytes.clone())).expect("surveyed");
        let extras = source.extras();
        let wanted = Attachment {
            name: "lidar.yaml".into(),
            media_type: Some("application/yaml".into()),
            bytes: Some(10_000),
            time_ns: Some(5),
        };
        assert_eq!(extras.attachments, [wanted]);
        let values = &extras.metadata[0].values;
        assert_eq!(extras.metadata[0].name, "drive");
        assert_eq!(values["car"], "A\\u{a}7");
        assert_eq!(listed(&bytes).is_some(), summary);
        assert!(source.damage().is_empty(), "{:?}", source.damage());
        // A length of a text that is longer than the record.
        let kind = ::mcap::records::op::ATTACHMENT;
        let damaged = changed(&bytes, kind, |body| body[18] = 0xff);
        let source = read("file", Cursor::new(damaged)).expect("surveyed");
        assert!(source.extras().attachments.is_empty());
        assert!(source.damage()[0].starts_with("unreadable attachments"));
    }
}
