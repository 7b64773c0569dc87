use crate::item::Kind;
use crate::source::open;
use crate::testing::by_index;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

type Item = (i64, String, Vec<u8>);

const TABLES: &str = "CREATE TABLE schema(schema_version INTEGER PRIMARY KEY,ros_distro TEXT NOT NULL);
    CREATE TABLE metadata(id INTEGER PRIMARY KEY,metadata_version INTEGER NOT NULL,metadata TEXT NOT NULL);
    CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,serialization_format TEXT NOT NULL,
                        offered_qos_profiles TEXT NOT NULL,type_description_hash TEXT NOT NULL);
    CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,timestamp INTEGER NOT NULL, data BLOB NOT NULL);";
const INDEX: &str = "CREATE INDEX timestamp_idx ON messages (timestamp ASC);";

fn items() -> Vec<Item> {
    // Times go forwards and backwards. Some payloads are so large that they have pages of their
    // own.
    (0..3000i64)
        .map(|n| {
            let payload = [&[0, 1, 0, 0][..], &vec![n as u8; (n as usize * 37) % 6000]].concat();
            (
                1000 + n * 10 - (n % 7) * 25,
                format!("/t{}", n % 3),
                payload,
            )
        })
        .collect()
}

fn in_order(mut items: Vec<Item>) -> Vec<Item> {
    items.sort_by_key(|item| item.0);
    items
}

fn write(path: &Path, items: &[Item], with_index: bool, pack: impl Fn(&[u8]) -> Vec<u8>) {
    let mut database = Connection::open(path).expect("a file");
    database.execute_batch(TABLES).expect("tables");
    if with_index {
        database.execute_batch(INDEX).expect("an index");
    }
    let all = database.transaction().expect("a transaction");
    for topic in 0..3 {
        let sql =
            "INSERT INTO topics VALUES (?1, ?2, 'std_msgs/msg/String', 'cdr', '- depth: 10', '')";
        all.execute(sql, (topic + 1, format!("/t{topic}")))
            .expect("a topic");
    }
    for (time_ns, topic, payload) in items {
        let id: i64 = topic[2..].parse::<i64>().expect("a number") + 1;
        let sql = "INSERT INTO messages (topic_id, timestamp, data) VALUES (?1, ?2, ?3)";
        all.execute(sql, (id, time_ns, pack(payload)))
            .expect("a message");
    }
    all.commit().expect("written");
}

fn read(path: &Path) -> (Vec<Item>, Vec<String>) {
    let mut source = open(path).expect("a recording");
    let mut payload = Vec::new();
    let mut all = Vec::new();
    while let Some(stamp) = source.next(&mut payload).expect("readable") {
        let stream = &source.streams()[stamp.stream.0 as usize];
        let ros = Kind::Ros {
            type_name: "std_msgs/msg/String".into(),
            qos: Some("- depth: 10".into()),
        };
        assert_eq!(stream.kind, ros);
        all.push((stamp.time_ns, stream.name.clone(), payload.clone()));
    }
    (all, source.damage().to_vec())
}

fn plain(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).expect("packed")
}

fn place() -> (TempDir, PathBuf) {
    let place = TempDir::new().expect("a directory");
    let path = place.path().join("bag_0.db3");
    (place, path)
}

/// Writes a bag of three files whose times overlap, with a metadata.yaml. `prefix` precedes each
/// file name in metadata.yaml, as the directory's name does up to version 3.
fn split(place: &Path, pack_files: bool, prefix: &str) {
    let all = items();
    let mut names = String::new();
    for (number, part) in all.chunks(1000).enumerate() {
        let path = place.join(format!("bag_{number}.db3"));
        write(&path, part, true, packed);
        let mut name = format!("bag_{number}.db3");
        if pack_files {
            name.push_str(".zstd");
            std::fs::write(
                place.join(&name),
                packed(&std::fs::read(&path).expect("read")),
            )
            .expect("written");
            std::fs::remove_file(&path).expect("removed");
        }
        names.push_str(&format!("    - {prefix}{name}\n"));
    }
    let metadata =
        format!("rosbag2_bagfile_information:\n  version: 4\n  relative_file_paths:\n{names}");
    std::fs::write(place.join("metadata.yaml"), metadata).expect("written");
}

#[test]
fn a_bag_file_is_read_in_time_order_with_and_without_index() {
    for with_index in [true, false] {
        let (_place, path) = place();
        write(&path, &items(), with_index, plain);
        assert_eq!(
            read(&path),
            (in_order(items()), vec![]),
            "index: {with_index}"
        );
    }
}

#[test]
fn a_split_bag_is_one_recording() {
    for (pack_files, prefix) in [(false, ""), (true, ""), (false, "old/")] {
        let place = TempDir::new().expect("a directory");
        split(place.path(), pack_files, prefix);
        assert_eq!(
            read(place.path()),
            (in_order(items()), vec![]),
            "{pack_files} {prefix}"
        );
    }
}

#[test]
fn the_rest_of_a_bag_is_read_if_metadata_or_a_file_is_missing() {
    let place = TempDir::new().expect("a directory");
    split(place.path(), false, "");
    std::fs::remove_file(place.path().join("bag_1.db3")).expect("removed");
    let rest = in_order([&items()[..1000], &items()[2000..]].concat());
    let (read_items, damage) = read(place.path());
    assert_eq!(read_items, rest);
    assert!(damage[0].contains("bag_1.db3"), "{damage:?}");
    std::fs::write(
        place.path().join("metadata.yaml"),
        "rosbag2_bagfile_information: [",
    )
    .expect("written");
    let (read_items, damage) = read(place.path());
    assert_eq!(read_items, rest);
    assert!(
        damage[0].starts_with(
            "bags without a usable list of files, read from the files in their directory: 1"
        ),
        "{damage:?}"
    );
}

#[test]
fn items_of_a_truncated_file_are_read_up_to_the_cut() {
    let (_place, path) = place();
    write(&path, &items(), true, plain);
    let whole = std::fs::read(&path).expect("read");
    // At 0.3 the upper pages of the B-tree are missing.
    for (share, least) in [(0.3, 0), (0.6, 1000), (0.95, 2000)] {
        std::fs::write(&path, &whole[..(whole.len() as f64 * share) as usize]).expect("written");
        let (read_items, damage) = read(&path);
        let written = in_order(items());
        assert!(read_items.iter().all(|item| written.contains(item)));
        assert!(read_items.is_sorted_by_key(|item| item.0));
        assert!(
            read_items.len() >= least,
            "{} of {share}: {damage:?}",
            read_items.len()
        );
        assert!(!damage.is_empty());
    }
}

#[test]
fn messages_in_a_write_ahead_log_are_read() {
    let (_place, path) = place();
    write(&path, &items()[..10], true, plain);
    let other = Connection::open(&path).expect("opened");
    other
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;")
        .expect("a log");
    other
        .execute(
            "INSERT INTO messages (topic_id, timestamp, data) VALUES (1, 5, x'00010000')",
            [],
        )
        .expect("one more");
    // The database is still open: the log is beside the file, as if the recorder was killed.
    let (read_items, damage) = read(&path);
    assert_eq!(
        (read_items.len(), &read_items[0], damage.len()),
        (11, &(5, "/t0".into(), vec![0, 1, 0, 0]), 0)
    );
}

#[test]
fn a_file_that_is_not_a_bag_is_refused_with_a_one_line_error() {
    let place = TempDir::new().expect("a directory");
    let refused = |path: &Path| open(path).err().expect("refused").to_string();
    let empty = refused(place.path());
    assert!(
        empty
            .ends_with("not a bag: the directory has neither a metadata.yaml that names files, nor .mcap or .db3 files"),
        "{empty}"
    );
    let view = place.path().join("view.db3");
    let sql = "CREATE TABLE topics(id); CREATE VIEW messages AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) \
               SELECT i AS id, i AS topic_id, i AS timestamp, i AS data FROM n;";
    Connection::open(&view)
        .expect("a file")
        .execute_batch(sql)
        .expect("a view");
    assert!(refused(&view).ends_with("it has no table 'messages'"));
    let text = place.path().join("text");
    std::fs::write(&text, "no\nrecording").expect("written");
    for said in [
        refused(&view),
        refused(&text),
        refused(Path::new("/dev/null")),
        refused(&place.path().join("x\ny")),
    ] {
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_topic_has_a_stream_for_each_serialization_in_the_files_of_a_bag() {
    let held = TempDir::new().expect("a directory");
    split(held.path(), false, "");
    for (file, format) in [("bag_1.db3", "one_format"), ("bag_2.db3", "another_format")] {
        let database = Connection::open(held.path().join(file)).expect("a file");
        let sql = "UPDATE topics SET serialization_format = ?1 WHERE id = 1";
        database.execute(sql, [format]).expect("changed");
    }
    let mut source = open(held.path()).expect("a recording");
    let contents = crate::contents::Contents::of(&mut *source, &mut |_| {});
    let streams = contents.streams.iter().filter(|s| s.name == "/t0");
    let streams: Vec<_> = streams.map(|s| (s.kind, s.items)).collect();
    let in_file = |file: usize| {
        let items = items();
        let of_file = items.chunks(1000).nth(file).expect("a file");
        of_file.iter().filter(|item| item.1 == "/t0").count() as u64
    };
    let [ros, one, another] = [0, 1, 2].map(in_file);
    let wanted = [("ros", ros), ("unplayable", one), ("unplayable", another)];
    assert_eq!(streams, wanted);
}

#[test]
fn a_topic_of_another_serialization_is_listed_and_cannot_be_played() {
    let held = TempDir::new().expect("a directory");
    let path = held.path().join("a.db3");
    write(&path, &items(), true, plain);
    let database = Connection::open(&path).expect("a file");
    let sql = "UPDATE topics SET serialization_format = 'wrong_format' WHERE id = 1";
    database.execute(sql, []).expect("changed");
    drop(database);
    let mut source = open(&path).expect("a recording");
    let contents = crate::contents::Contents::of(&mut *source, &mut |_| {});
    let streams: Vec<_> = contents.streams.iter().map(|s| (s.kind, s.items)).collect();
    assert_eq!(
        streams,
        [("unplayable", 1000), ("ros", 1000), ("ros", 1000)]
    );
    let reason = contents.streams[0].unplayable.as_deref();
    assert!(
        reason.is_some_and(|reason| reason.contains("wrong_format")),
        "{reason:?}"
    );
    assert_eq!(contents.damage, Some(vec![]));
}

#[test]
fn the_index_of_a_bag_has_the_figures_of_its_messages() {
    for pack_files in [false, true] {
        let place = TempDir::new().expect("a directory");
        split(place.path(), pack_files, "");
        let indexed = by_index(place.path()).expect("an index");
        assert_eq!((indexed.items, indexed.streams.len()), (3000, 3));
    }
    let place = TempDir::new().expect("a directory");
    split(place.path(), false, "");
    let metadata = place.path().join("metadata.yaml");
    let text = std::fs::read_to_string(&metadata).expect("read");
    for (messages, is_usable) in [(2999, false), (3000, true), (3001, false)] {
        let text = format!("{text}  message_count: {messages}\n");
        std::fs::write(&metadata, text).expect("written");
        let indexed = by_index(place.path());
        assert_eq!(indexed.is_some(), is_usable, "{messages}");
    }
    std::fs::remove_file(&metadata).expect("removed");
    assert!(by_index(place.path()).is_none());
    let one = by_index(&place.path().join("bag_1.db3"));
    assert_eq!(one.map(|contents| contents.items), Some(1000));
}

#[test]
fn a_bag_file_whose_index_cannot_be_relied_on_is_read_whole() {
    let changed = |with_index: bool, sql: &str| {
        let (_place, path) = place();
        write(&path, &items(), with_index, plain);
        let database = Connection::open(&path).expect("a file");
        database.execute_batch(sql).expect("changed");
        drop(database);
        by_index(&path)
    };
    assert!(changed(true, "").is_some());
    assert!(changed(false, "").is_none());
    let others = [
        "DROP INDEX timestamp_idx; CREATE INDEX timestamp_idx ON messages (timestamp) WHERE id > 5",
        "INSERT INTO messages (topic_id, timestamp, data) VALUES (9, 5, x'00')",
        "INSERT INTO messages (topic_id, timestamp, data) VALUES (1, 'text', x'00')",
        // Messages that the index does not have.
        "CREATE TABLE kept AS SELECT * FROM sqlite_master WHERE name = 'timestamp_idx'; \
         PRAGMA writable_schema = ON; DELETE FROM sqlite_master WHERE name = 'timestamp_idx'; \
         PRAGMA writable_schema = RESET; \
         INSERT INTO messages (topic_id, timestamp, data) VALUES (1, 5, x'00'); \
         PRAGMA writable_schema = ON; INSERT INTO sqlite_master SELECT * FROM kept; \
         PRAGMA writable_schema = RESET",
        // A message whose time in the index is another one.
        "CREATE TABLE kept AS SELECT * FROM sqlite_master WHERE name = 'timestamp_idx'; \
         PRAGMA writable_schema = ON; DELETE FROM sqlite_master WHERE name = 'timestamp_idx'; \
         PRAGMA writable_schema = RESET; \
         UPDATE messages SET timestamp = timestamp + 1 WHERE id = 1500; \
         PRAGMA writable_schema = ON; INSERT INTO sqlite_master SELECT * FROM kept; \
         PRAGMA writable_schema = RESET",
        // A message that comes more than a window too late.
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 70000) \
         INSERT INTO messages (topic_id, timestamp, data) SELECT 1, 100000 + i, x'00' FROM n; \
         INSERT INTO messages (topic_id, timestamp, data) VALUES (1, 5, x'00')",
    ];
    for sql in others {
        assert!(changed(true, sql).is_none(), "{sql}");
    }
    let (_place, path) = place();
    write(&path, &items(), true, plain);
    let whole = std::fs::read(&path).expect("read");
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("written");
    assert!(by_index(&path).is_none());
}

#[test]
fn the_users_data_in_metadata_yaml_is_listed() {
    let place = TempDir::new().expect("a directory");
    split(place.path(), false, "");
    let metadata = place.path().join("metadata.yaml");
    let text = std::fs::read_to_string(&metadata).expect("read");
    for (custom, wanted) in [
        ("  custom_data:\n    car: A7\n    driver: \"x y\"\n", 2),
        ("  custom_data: ~\n", 0),
        ("  custom_data: [1]\n", 0),
        ("", 0),
    ] {
        std::fs::write(&metadata, format!("{text}{custom}")).expect("written");
        let indexed = by_index(place.path()).expect("an index");
        let found = indexed.extras.metadata;
        assert_eq!(found.len(), usize::from(wanted > 0), "{custom}");
        for metadata in found {
            assert_eq!(
                (metadata.name.as_str(), metadata.values.len()),
                ("custom_data", wanted)
            );
            assert_eq!(metadata.values["car"], "A7");
        }
    }
}
