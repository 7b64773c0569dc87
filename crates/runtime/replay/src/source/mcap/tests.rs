use super::block::Block;
use super::*;
use crate::item::Kind;
use ::mcap::records::MessageHeader;
use ::mcap::{Compression, WriteOptions, Writer};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Cursor;

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
        assert!(contents.damage.is_empty(), "{:?}", contents.damage);
    }
}
