//! Guarantees of the readers of recordings, for any bytes. The fuzz targets and the test that
//! replays their corpus share this file.
use onbeat_replay::item::{Source, SourceError};
use onbeat_replay::source::{self, Survey};
use std::io::{Cursor, Write};

pub fn candump(data: &[u8]) -> u64 {
    whole(source::candump::read("log", Cursor::new(data.to_vec())))
}

pub fn asc(data: &[u8]) -> u64 {
    whole(source::asc::read(
        "log",
        Cursor::new(data.to_vec()),
        &mut Survey::default(),
    ))
}

pub fn blf(data: &[u8]) -> u64 {
    whole(source::blf::read(
        "log",
        Cursor::new(data.to_vec()),
        &mut Survey::default(),
    ))
}

pub fn mdf(data: &[u8]) -> u64 {
    whole(source::mdf::read(
        "log",
        Cursor::new(data.to_vec()),
        &mut Survey::default(),
    ))
}

/// Reads any bytes as a DBC file. Returns the number of CAN messages in it.
pub fn dbc(data: &[u8]) -> u64 {
    let mut database = onbeat_replay::database::Database::default();
    let _ = database.add(data);
    database.ids("*").len() as u64
}

pub fn trc(data: &[u8]) -> u64 {
    whole(source::trc::read(
        "log",
        Cursor::new(data.to_vec()),
        &mut Survey::default(),
    ))
}

pub fn ros1(data: &[u8]) -> u64 {
    whole(source::ros1::read("bag", Cursor::new(data.to_vec())))
}

pub fn mcap(data: &[u8]) -> u64 {
    // The index must not be read less carefully than the messages.
    whole(source::mcap::read_index("file", Cursor::new(data.to_vec())));
    whole(source::mcap::read("file", Cursor::new(data.to_vec())))
}

pub fn pcap(data: &[u8]) -> u64 {
    whole(source::pcap::read(
        "capture",
        Cursor::new(data.to_vec()),
        &mut Survey::default(),
    ))
}

/// Reads any bytes as a file whose format is not given, so that its content decides. No other check
/// reads sqlite3 files and packed files.
pub fn recording(data: &[u8]) -> u64 {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(data).expect("written");
    let _ = onbeat_replay::contents::Contents::of_index(file.path(), &mut |_| {});
    whole(source::open(file.path()))
}

/// Reads any bytes as the records that a sender of recordings sends over a link. Returns the number
/// of valid records at the beginning of `data`.
pub fn remote(data: &[u8]) -> u64 {
    onbeat_replay::remote::records(data)
}

/// Reads any bytes as a service event. Returns 1 if they are a service event, otherwise 0.
pub fn service_event(data: &[u8]) -> u64 {
    use onbeat_replay::requests::{read, Damaged};
    let found = read(data);
    // Encapsulation, info and the lengths of both sequences.
    assert!(found.is_ok() as usize * 52 <= data.len(), "{found:?}");
    u64::from(found != Err(Damaged))
}

/// Reads a recording to its end and returns the number of items. Checks that items come in the
/// order of time and belong to named streams. The reasons for skipped parts and for a refused
/// recording must each be one line.
fn whole(opened: Result<Box<dyn Source>, SourceError>) -> u64 {
    let mut source = match opened {
        Ok(source) => source,
        Err(error) => {
            one_line(&error.to_string());
            return 0;
        }
    };
    let streams = source.streams().len();
    let mut payload = Vec::new();
    let mut last_ns = i64::MIN;
    let mut items = 0;
    loop {
        match source.next(&mut payload) {
            Ok(Some(stamp)) => {
                assert!(
                    stamp.time_ns >= last_ns,
                    "item {items} is earlier than the item before it"
                );
                assert!((stamp.stream.0 as usize) < streams);
                last_ns = stamp.time_ns;
                items += 1;
            }
            Ok(None) => break,
            Err(error) => {
                one_line(&error.to_string());
                break;
            }
        }
    }
    assert_eq!(source.streams().len(), streams);
    source
        .damage()
        .iter()
        .for_each(|sentence| one_line(sentence));
    items
}

fn one_line(text: &str) {
    assert!(!text.is_empty());
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
