//! Guarantees of the readers of other users' libraries and of the rings that recorded programs
//! write, for any bytes. The fuzz targets and the test that replays their corpus share this file.
use onbeat_record::elf::{begins_function, code_at, has_section, Source, Symbols};
use onbeat_record::placement::{entry, place, Machine};
use onbeat_record::preload::{self, Place, PlaceOptions, Rings};
use std::os::unix::fs::FileExt;

/// Reads any bytes as a library. Checks that every symbol lies within the library, and that each
/// probe lies within its function.
pub fn elf(data: &[u8]) {
    let _ = has_section(data, ".note.onbeat");
    let _ = begins_function(data, data.len() as u64 / 2);
    let _ = code_at(data, data.len() as u64 / 2);
    match Symbols::of(data, true, |_| true) {
        Ok(symbols) => {
            for (name, function) in symbols.iter() {
                assert!(!name.contains('\0'));
                let end = function
                    .file_offset
                    .saturating_add(function.code.len() as u64);
                assert!(function.code.is_empty() || end <= data.size());
                placed(symbols.machine, &function.code);
            }
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
    for machine in [Machine::X86_64, Machine::Aarch64] {
        placed(machine, &data[..data.len().min(4096)]);
    }
}

/// Checks the places for a probe in a function: `place` lies within the function, and `entry` lies
/// at the function's beginning or behind 5-byte nops.
fn placed(machine: Machine, code: &[u8]) {
    for fast_nop in [false, true] {
        let place = place(machine, code, fast_nop);
        assert!(
            place.offset == 0 || place.offset < code.len() as u64,
            "{place:?}"
        );
        let entry = entry(machine, code, fast_nop).offset;
        let is_behind_nops = fast_nop && entry.is_multiple_of(5) && entry < code.len() as u64;
        assert!(entry == 0 || is_behind_nops, "{entry}");
    }
}

/// The number of bytes of the head of the rings' file. The bytes that [`rings`] reads begin with
/// this head. The heads of four rings follow.
const HEAD: usize = 64;
const RING_HEADS: usize = 4 * 64;
const RING_HEADS_AT: u64 = 4096;
const RINGS_AT: u64 = 4096 + 1024 * 64;
const RING_BYTES: u64 = 4096;

/// Reads any bytes as the file of rings that a recorded process writes. Checks that the reader
/// returns each record once, and no more records than the rings have room for.
pub fn rings(data: &[u8]) {
    let options = PlaceOptions {
        ring_bytes: RING_BYTES,
        ..PlaceOptions::default()
    };
    let place = Place::create(&options).expect("a place");
    let file = std::fs::File::create(place.rings().join("7.0")).expect("a file");
    let (head, rest) = data.split_at(data.len().min(HEAD));
    let (heads, bytes) = rest.split_at(rest.len().min(RING_HEADS));
    for (part, at) in [(head, 0), (heads, RING_HEADS_AT), (bytes, RINGS_AT)] {
        file.write_all_at(part, at).expect("written");
    }
    let mut rings = Rings::open(&place).expect("rings");
    let mut records = 0;
    for limit in [1, 3, usize::MAX] {
        let before = records;
        let more = rings.poll(limit, &mut |record| {
            assert!(!record.is_empty() && record.len() % 8 == 0);
            let _ = preload::event(record);
            records += 1;
        });
        assert!(records - before <= limit && (!more || records - before == limit));
    }
    assert!(records <= 1024 * RING_BYTES as usize / 16, "{records}");
    let losses = rings.losses();
    assert!(losses.refused.len() <= 1, "{losses:?}");
    rings.poll(usize::MAX, &mut |_| panic!("a record came twice"));
}
