//! Decides whether a place in a file is the first instruction of a called function.
//!
//! The answer comes from the unwind table (`.eh_frame_hdr`), which stripped programs also have.

use super::tables::{Segment, Tables};
use super::Source;
use crate::placement::Machine;

const STEPS_MAX: u32 = 64;
const CODE_BYTES: u64 = 64;
const ENTRY_BYTES: usize = 64;
/// The encodings of the unwind table that all linkers use: 4-byte values relative to the table's
/// beginning, and a 4-byte count.
const TABLE_FORM: u8 = 0x3b;
const COUNT_FORM: u8 = 0x03;
const PLACE_FORMS: [u8; 2] = [0x1b, 0x3b];

fn bytes<const N: usize>(source: &(impl Source + ?Sized), at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    source.read_at(&mut bytes, at).then_some(bytes)
}

fn offset_of(segments: &[Segment], address: u64) -> Option<u64> {
    segments.iter().find_map(|s| {
        let within = address.checked_sub(s.address)?;
        (within < s.in_file).then_some(())?;
        s.offset.checked_add(within)
    })
}

/// Returns whether a function begins at this file offset, so that its return address is on top of
/// the stack there.
///
/// Returns false if the file does not show this. Examples are the middle of a function, a cold part
/// that lies elsewhere, the program's entry point, and a file without an unwind table.
pub fn begins_function(source: &(impl Source + ?Sized), file_offset: u64) -> bool {
    entry_of(source, file_offset).unwrap_or(false)
}

/// Returns the file's processor and its first bytes of code at this offset, or `None` if the file
/// is not an ELF file.
pub fn code_at(source: &(impl Source + ?Sized), file_offset: u64) -> Option<(Machine, Vec<u8>)> {
    let machine = Tables::read(source).ok()?.machine();
    let left = source.size().saturating_sub(file_offset);
    let mut code = vec![0; left.min(CODE_BYTES) as usize];
    source
        .read_at(&mut code, file_offset)
        .then_some((machine, code))
}

fn entry_of(source: &(impl Source + ?Sized), file_offset: u64) -> Option<bool> {
    let tables = Tables::read(source).ok()?;
    let segments = tables.segments();
    let address = segments.iter().find_map(|s| {
        let within = file_offset.checked_sub(s.offset)?;
        (within < s.in_file).then_some(())?;
        s.address.checked_add(within)
    })?;
    let table = tables.unwind_table()?;
    let [version, _, count_form, table_form, ..] = bytes::<12>(source, table.offset)?;
    if (version, count_form, table_form) != (1, COUNT_FORM, TABLE_FORM) {
        return None;
    }
    let count = u32::from_le_bytes(bytes(source, table.offset.checked_add(8)?)?);
    let entries = table.offset.checked_add(12)?;
    let wanted = i32::try_from(address.wrapping_sub(table.address) as i64).ok()?;
    let (mut low, mut high) = (0, u64::from(count));
    for _ in 0..STEPS_MAX {
        if low >= high {
            return Some(false);
        }
        let middle = low + (high - low) / 2;
        let entry: [u8; 8] = bytes(source, entries.checked_add(middle * 8)?)?;
        let [a, b, c, d, e, f, g, h] = entry;
        match i32::from_le_bytes([a, b, c, d]).cmp(&wanted) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => {
                let at = i32::from_le_bytes([e, f, g, h]);
                let at = table.address.checked_add_signed(at.into())?;
                return starts_as_called(source, offset_of(segments, at)?);
            }
        }
    }
    None
}

/// Returns whether the unwind description at `at`, an offset in the file, has only the rules that
/// are usual at the first instruction of a function. Other rules belong to a function's cold part,
/// to the program's entry point, or to code that returns in an unusual way.
fn starts_as_called(source: &(impl Source + ?Sized), at: u64) -> Option<bool> {
    let mut entry = [0; ENTRY_BYTES];
    // The last description of a file may be shorter.
    if !source.read_at(&mut entry, at) {
        let short: [u8; 24] = bytes(source, at)?;
        entry[..short.len()].copy_from_slice(&short);
    }
    let word =
        |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
    let (length, common) = (word(0), word(4));
    // Length 0 is the end of the table. A zero instead of the offset marks a shared description
    // (CIE).
    if length == 0 || length == u32::MAX || common == 0 {
        return None;
    }
    let common = at.checked_add(4)?.checked_sub(common.into())?;
    if !has_plain_places(source, common)? {
        return None;
    }
    // The description has its length, the offset of the shared description, the code's address and
    // length, then augmentation data.
    let own = usize::from(entry[16]);
    let first = 17 + own;
    let is_within = first < 4 + length as usize;
    let first = *entry.get(first).filter(|_| own < 0x80)?;
    // The description has no rules, or its rules start at a later instruction.
    Some(!is_within || matches!(first, 0 | 0x02..=0x04 | 0x40..=0x7f))
}

/// The unwind rules at the start of usual functions: the return address lies on top of the stack
/// or, on 64-bit Arm, in its register. The program's entry point has other rules, because it has no
/// return address.
const USUAL: [&[u8]; 2] = [&[0x0c, 7, 8, 0x90, 1], &[0x0c, 31, 0]];

/// Returns whether a shared unwind description (CIE) has 4-byte addresses and the rules of usual
/// functions.
fn has_plain_places(source: &(impl Source + ?Sized), at: u64) -> Option<bool> {
    let length = u32::from_le_bytes(bytes(source, at)?) as usize;
    let mut shared = [0; ENTRY_BYTES];
    let shared = shared.get_mut(..length).filter(|_| length >= 12)?;
    if !source.read_at(shared, at.checked_add(4)?) {
        return None;
    }
    // The description has a 0, a version, then the letters that name the following data.
    let letters = &shared[5..];
    let letters = &letters[..letters.iter().position(|&b| b == 0)?];
    if letters.first() != Some(&b'z') || letters.contains(&b'S') {
        return Some(false);
    }
    // Four bytes follow: the factors of code and data, the return address register, and the number
    // of augmentation bytes.
    let rest = shared.get(5 + letters.len() + 1 + 3..)?;
    let (own, rest) = rest.split_first()?;
    let (mut own, rules) = rest.split_at_checked(usize::from(*own))?;
    let mut is_plain = false;
    for letter in &letters[1..] {
        match letter {
            b'R' => {
                is_plain = PLACE_FORMS.contains(own.first()?);
                own = &own[1..];
            }
            b'L' => own = own.get(1..)?,
            // The address of the language's exception handler: its encoding, and 4 bytes.
            b'P' => own = own.get(5..)?,
            _ => return Some(false),
        }
    }
    let end = rules
        .iter()
        .rposition(|&b| b != 0)
        .map_or(0, |last| last + 1);
    // The last rule may itself end with a zero.
    let is_usual = |usual: &&[u8]| rules.starts_with(usual) && end <= usual.len();
    Some(is_plain && USUAL.iter().any(is_usual))
}
