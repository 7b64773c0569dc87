//! What must hold for any bytes given to the reader of other users' libraries: shared by the fuzz
//! target and by the test that replays its corpus.
use onbeat_record::elf::{has_section, Source, Symbols};
use onbeat_record::placement::{entry, place, Machine};

/// A library of any bytes: what is found lies within it, and a probe within its function.
pub fn elf(data: &[u8]) {
    let _ = has_section(data, ".note.onbeat");
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

/// A probe lies at the function's begin, or behind instructions that are all there.
fn placed(machine: Machine, code: &[u8]) {
    for fast_nop in [false, true] {
        let place = place(machine, code, fast_nop);
        assert!(
            place.offset == 0 || place.offset < code.len() as u64,
            "{place:?}"
        );
        assert_eq!(entry(machine, code, fast_nop).offset, 0);
    }
}
