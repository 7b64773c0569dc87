//! Tests that the Parquet table holds every event of the trace.

use onbeat_tables::export_parquet;
use onbeat_trace::{text, Manifest, Reader, Writer, WriterOptions};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use std::collections::HashMap;

fn table(events: &str) -> Vec<HashMap<String, Field>> {
    let dir = tempfile::tempdir().expect("directory");
    let trace = dir.path().join("trace");
    let mut writer = Writer::create(&trace, WriterOptions::default()).expect("created");
    for event in &text::parse(events).expect("parsed") {
        writer.push(event).expect("pushed");
    }
    writer.finish(Manifest::default()).expect("finished");

    let mut reader = Reader::open(&trace).expect("opened");
    let exported = export_parquet(&mut reader, dir.path()).expect("exported");
    assert_eq!(exported.path, dir.path().join("events.parquet"));

    let file = std::fs::File::open(&exported.path).expect("opened");
    let table = SerializedFileReader::new(file).expect("a table");
    let metadata = table.metadata().file_metadata().key_value_metadata();
    let manifest = metadata.expect("metadata")[0]
        .value
        .clone()
        .expect("manifest");
    assert!(manifest.contains(&reader.manifest().id));
    let rows: Vec<HashMap<String, Field>> = table
        .get_row_iter(None)
        .expect("rows")
        .map(|row| {
            let row = row.expect("a row").into_columns().into_iter();
            row.filter(|(_, value)| *value != Field::Null).collect()
        })
        .collect();
    assert_eq!(exported.rows, rows.len() as u64);
    rows
}

#[test]
fn exported_timers_and_callbacks_have_the_name_of_their_node() {
    // Two nodes are created before their timers. rclcpp reports a timer's node after its callback.
    let rows = table(
        "10 cpu0 7/7 node_init node=0x1 rmw=0x2 name=a namespace=/
         20 cpu0 7/7 clock_kind clock=0x11 time=1
         30 cpu0 7/7 node_init node=0x3 rmw=0x4 name=b namespace=/
         40 cpu0 7/7 clock_kind clock=0x12 time=1
         50 cpu0 7/7 clock_kind clock=0x13 time=3
         60 cpu0 7/7 timer_clock timer=0x50 clock=0x13
         70 cpu0 7/7 timer_init timer=0x50 period_ns=10ms
         80 cpu0 7/7 timer_callback timer=0x50 callback=0x60
         90 cpu0 7/7 timer_node timer=0x50 node=0x1
         100 cpu0 7/7 timer_clock timer=0x51 clock=0x13
         110 cpu0 7/7 timer_init timer=0x51 period_ns=10ms
         120 cpu0 7/7 timer_call timer=0x50
         130 cpu0 7/7 callback_start callback=0x60
         140 cpu0 7/7 timer_call timer=0x51",
    );
    let node = |row: usize| rows[row].get("of_node");
    let a = Field::Str("/a".into());
    assert_eq!((node(11), node(12)), (Some(&a), Some(&a)));
    assert_eq!(node(13), None, "a timer of nobody's clock");
}

#[test]
fn every_event_becomes_a_table_row_with_its_fields() {
    let rows = table(
        "10 cpu0 7/7 process command=talker distribution=kilted rmw=rmw_fastrtps_cpp late=no
         20 cpu0 7/7 node_init node=0x1 rmw=0x2 name=talker namespace=/ns
         30 cpu0 7/7 publisher_init publisher=0x3 node=0x1 rmw=0xffffffffffffff04 topic=/chatter
         40 cpu1 7/8 publish rmw=0xffffffffffffff04 source_ns=-5
         50 cpu1 7/8 publish rmw=0xffffffffffffff04 source_ns=-
         60 cpu1 7/8 request_take rmw=0x9 gid=1f sequence=-3 taken=no
         70 cpu1 7/8 wait",
    );
    assert_eq!(rows.len(), 7);
    let text = |t: &str| Field::Str(t.to_string());
    assert_eq!(rows[0]["rmw_name"], text("rmw_fastrtps_cpp"));
    assert_eq!(rows[0]["late"], Field::Bool(false));
    assert_eq!(rows[2]["of_node"], text("/ns/talker"));
    let expected = HashMap::from([
        ("time_ns".to_string(), Field::Long(40)),
        ("cpu".to_string(), Field::UInt(1)),
        ("pid".to_string(), Field::UInt(7)),
        ("tid".to_string(), Field::UInt(8)),
        ("event".to_string(), text("publish")),
        ("of_node".to_string(), text("/ns/talker")),
        ("of_topic".to_string(), text("/chatter")),
        ("rmw".to_string(), Field::ULong(0xffff_ffff_ffff_ff04)),
        ("message".to_string(), Field::ULong(0)),
        ("source_ns".to_string(), Field::Long(-5)),
    ]);
    assert_eq!(rows[3], expected);
    assert!(!rows[4].contains_key("source_ns"));
    assert_eq!(rows[5]["gid"], text("0000000000000000000000000000001f"));
    assert_eq!(rows[5]["sequence"], Field::Long(-3));
    assert_eq!(rows[6].len(), 5);
}
