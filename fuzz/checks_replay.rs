//! What must hold for any bytes given as a recording: shared by the fuzz targets and the test that replays
//! their corpus.
use onbeat_replay::item::{Source, SourceError};
use onbeat_replay::source;
use std::io::{Cursor, Write};

/// A log of candump.
pub fn candump(data: &[u8]) -> u64 {
    whole(source::candump::read("log", Cursor::new(data.to_vec())))
}

/// An MCAP file.
pub fn mcap(data: &[u8]) -> u64 {
    whole(source::mcap::read("file", Cursor::new(data.to_vec())))
}

/// A pcap or pcapng file.
pub fn pcap(data: &[u8]) -> u64 {
    whole(source::pcap::read("capture", Cursor::new(data.to_vec())))
}

/// Any file: what it is its content says. For sqlite3 and packed files, which are read from a file only.
pub fn recording(data: &[u8]) -> u64 {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(data).expect("written");
    whole(source::open(file.path()))
}

/// What comes over a link from the side that sends.
pub fn remote(data: &[u8]) -> u64 {
    onbeat_replay::remote::records(data)
}

/// How many items there are: in the order of time, of streams that were named, and all that was skipped is said on
/// one line. A recording that is refused is refused on one line.
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
                assert!(stamp.time_ns >= last_ns, "item {items} goes back");
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
