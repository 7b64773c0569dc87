use super::*;
use crate::testing::{frames, Item};
use proptest::prelude::*;
use tempfile::TempDir;

const ALL: [Packing; 4] = [Packing::Gzip, Packing::Xz, Packing::Zstd, Packing::Bzip2];

/// Packs bytes as two packed files, one after the other, like the result of `cat a.gz b.gz`.
fn pack(packing: Packing, bytes: &[u8]) -> Vec<u8> {
    let (a, b) = bytes.split_at(bytes.len() / 2);
    let one = |bytes: &[u8]| -> Vec<u8> {
        match packing {
            Packing::Gzip => {
                let level = flate2::Compression::default();
                let mut packer = flate2::write::GzEncoder::new(Vec::new(), level);
                packer.write_all(bytes).expect("packed");
                packer.finish().expect("packed")
            }
            Packing::Xz => xz(bytes),
            Packing::Zstd => zstd::bulk::compress(bytes, 1).expect("packed"),
            Packing::Bzip2 => {
                let level = bzip2::Compression::fast();
                let mut packer = bzip2::write::BzEncoder::new(Vec::new(), level);
                packer.write_all(bytes).expect("packed");
                packer.finish().expect("packed")
            }
        }
    };
    [one(a), one(b)].concat()
}

/// Packs bytes as an xz file without compression, with a dictionary of 1 MiB and no checksum.
fn xz(bytes: &[u8]) -> Vec<u8> {
    const DICTIONARY_1_MIB: u8 = 16;
    xz_with(bytes, DICTIONARY_1_MIB)
}

fn xz_with(bytes: &[u8], dictionary: u8) -> Vec<u8> {
    let sum = |bytes: &[u8]| crc32fast::hash(bytes).to_le_bytes();
    let mut file = b"\xfd7zXZ\0\0\0".to_vec();
    file.extend(sum(&[0, 0]));
    // The block: one filter, LZMA2 (0x21), with one byte of settings.
    let header = [2, 0, 0x21, 1, dictionary, 0, 0, 0];
    file.extend(header);
    file.extend(sum(&header));
    let from = file.len();
    for (at, chunk) in bytes.chunks(1 << 16).enumerate() {
        file.push(if at == 0 { 1 } else { 2 });
        file.extend((chunk.len() as u16).wrapping_sub(1).to_be_bytes());
        file.extend(chunk);
    }
    file.push(0);
    let size = file.len() - from + header.len() + 4;
    file.resize(file.len().next_multiple_of(4), 0);
    let mut index = vec![0, 1];
    for mut number in [size, bytes.len()] {
        while number >= 0x80 {
            index.push(number as u8 | 0x80);
            number >>= 7;
        }
        index.push(number as u8);
    }
    index.resize(index.len().next_multiple_of(4), 0);
    file.extend(&index);
    file.extend(sum(&index));
    let words = (index.len() as u32 + 4) / 4 - 1;
    let footer = [&words.to_le_bytes()[..], &[0, 0]].concat();
    file.extend(sum(&footer));
    file.extend(footer);
    file.extend(b"YZ");
    file
}

fn log(lines: u64) -> Vec<u8> {
    // The data differ from line to line, so that the packed log is long.
    let line = |n: u64| {
        let data = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("({n}.000001) can0 123#{data:016X}\n")
    };
    (0..lines).map(line).collect::<String>().into_bytes()
}

fn read(bytes: &[u8]) -> Result<(Vec<Item>, Vec<String>), SourceError> {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("no-ending");
    std::fs::write(&path, bytes).expect("written");
    crate::source::open(&path).map(frames)
}

#[test]
fn packed_recordings_are_read_as_unpacked_ones() {
    let sql = "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT, \
         offered_qos_profiles TEXT); CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, \
         data BLOB); INSERT INTO topics VALUES(1, '/a', 'a/msg/B', 'cdr', ''); \
         INSERT INTO messages VALUES(1, 1, 5, x'0001'), (2, 1, 4, x'0002');";
    let dir = TempDir::new().expect("a directory");
    let bag = dir.path().join("a.db3");
    let database = rusqlite::Connection::open(&bag).expect("a file");
    database.execute_batch(sql).expect("a bag");
    for plain in [log(3000), std::fs::read(&bag).expect("a file")] {
        let (wanted, _) = read(&plain).expect("a recording");
        assert!(!wanted.is_empty());
        for packing in ALL {
            let (found, damage) = read(&pack(packing, &plain)).expect("a recording");
            assert_eq!((&found, damage), (&wanted, vec![]), "{packing:?}");
        }
    }
}

#[test]
fn a_torn_packed_log_is_read_up_to_the_cut() {
    let plain = log(15_000);
    let (wanted, _) = read(&plain).expect("a log");
    for packing in ALL {
        let packed = pack(packing, &plain);
        let cut = packed.len() * 9 / 10;
        let (found, damage) = read(&packed[..cut]).expect("a log");
        // The last line can be torn.
        let whole = found.len() - 1;
        assert!(
            whole > 8000 && found[..whole] == wanted[..whole],
            "{packing:?}: {whole}"
        );
        let place = format!("byte {cut} of the packed file");
        assert!(
            damage
                .iter()
                .any(|d| d.contains(&place) && d.contains("cut off")),
            "{packing:?}: {damage:?}"
        );
    }
}

#[test]
fn packed_files_without_a_recording_are_refused() {
    for packing in ALL {
        let refused = |plain: &[u8]| {
            read(&pack(packing, plain))
                .expect_err("refused")
                .to_string()
        };
        assert!(refused(b"no recording").contains("onbeat cannot read this file"));
        let twice = refused(&pack(Packing::Gzip, &log(99)));
        assert!(twice.contains("packed twice"), "{twice}");
    }
    // The largest dictionary that the format allows: 4 GiB.
    let large = read(&xz_with(&log(9), 40))
        .expect_err("refused")
        .to_string();
    assert!(large.contains("byte 24 of the packed file"), "{large}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_packed_recording_can_be_read_from_any_position(places in prop::collection::vec(0u64..40_000, 1..8), which in 0usize..4) {
        let plain = log(1000);
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&pack(ALL[which], &plain)).expect("written");
        let mut content = Unpacking::new(file, ALL[which]).expect("opened");
        for place in places {
            let reached = content.seek(SeekFrom::Start(place)).expect("reached");
            prop_assert_eq!(reached, place.min(plain.len() as u64));
            let mut found = Vec::new();
            content.by_ref().take(50).read_to_end(&mut found).expect("read");
            let rest = &plain[reached as usize..];
            prop_assert_eq!(&found[..], &rest[..rest.len().min(50)]);
        }
    }
}

#[test]
fn packed_logs_of_every_format_are_read_as_unpacked_ones() {
    let formats = [
        "asc", "blf", "trc", "mdf", "candump", "pcap", "mcap", "ros1",
    ];
    let files = formats
        .iter()
        .flat_map(|format| crate::testing::corpus(format));
    let mut items = 0;
    for path in files {
        let plain = std::fs::read(&path).expect("a file");
        let (wanted, wanted_damage) = read(&plain).expect("a recording");
        for packing in ALL {
            let (found, damage) = read(&pack(packing, &plain)).expect("a recording");
            assert_eq!(found, wanted, "{packing:?} {}", path.display());
            assert_eq!(damage, wanted_damage, "{packing:?} {}", path.display());
        }
        items += wanted.len();
    }
    assert!(items > 100, "{items}");
}
