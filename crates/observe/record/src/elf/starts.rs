//! Whether a place in a file is the first instruction of a function that is called, by the table that unwinding uses:
//! stripped programs have it too.

use super::tables::{Segment, Tables};
use super::Source;
use crate::placement::Machine;

/// Entries of the table that are looked at: a search by halves needs fewer.
const STEPS_MAX: u32 = 64;
/// Bytes of code that a function may begin with before its first own instruction.
const CODE_BYTES: u64 = 64;
/// Bytes of an entry's description that are read.
const ENTRY_BYTES: usize = 64;
/// How the table is written by all linkers: 4 bytes, relative to its beginning; its count in 4 bytes.
const TABLE_FORM: u8 = 0x3b;
const COUNT_FORM: u8 = 0x03;
/// Forms of a place, as 4 bytes.
const PLACE_FORMS: [u8; 2] = [0x1b, 0x3b];

/// Reads `N` bytes.
fn bytes<const N: usize>(source: &(impl Source + ?Sized), at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    source.read_at(&mut bytes, at).then_some(bytes)
}

/// Where an address of the loaded file lies in it.
fn offset_of(segments: &[Segment], address: u64) -> Option<u64> {
    segments.iter().find_map(|s| {
        let within = address.checked_sub(s.address)?;
        (within < s.in_file).then_some(())?;
        s.offset.checked_add(within)
    })
}

/// Whether a function begins at this place of the file, at which its caller's address lies on top of the stack. False
/// where the file does not say so: in the midst of a function, at a part of one that lies elsewhere, at the entry
/// of the program, and in a file without the table.
pub fn begins_function(source: &(impl Source + ?Sized), file_offset: u64) -> bool {
    entry_of(source, file_offset).unwrap_or(false)
}

/// The processor of a file, and its first bytes of code at this place. None where it is no ELF file.
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

/// Whether a description says nothing of its first instruction but what holds for all functions. One that does is of a
/// function's cold part, of the program's entry, or of code that returns in a way of its own.
fn starts_as_called(source: &(impl Source + ?Sized), at: u64) -> Option<bool> {
    let mut entry = [0; ENTRY_BYTES];
    // The last one of a file may be shorter.
    if !source.read_at(&mut entry, at) {
        let short: [u8; 24] = bytes(source, at)?;
        entry[..short.len()].copy_from_slice(&short);
    }
    let word =
        |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
    let (length, common) = (word(0), word(4));
    // 0 is the end of the table, or the description that others share.
    if length == 0 || length == u32::MAX || common == 0 {
        return None;
    }
    let common = at.checked_add(4)?.checked_sub(common.into())?;
    if !has_plain_places(source, common)? {
        return None;
    }
    // Length, the shared one, place and length of the code, then so many bytes of its own.
    let own = usize::from(entry[16]);
    let first = 17 + own;
    let is_within = first < 4 + length as usize;
    let first = *entry.get(first).filter(|_| own < 0x80)?;
    // Nothing more; or it goes on at a later instruction.
    Some(!is_within || matches!(first, 0 | 0x02..=0x04 | 0x40..=0x7f))
}

/// What holds at the start of usual functions: the caller's address lies on top of the stack, or on 64-bit Arm in its
/// register. The program's entry has none, and says so.
const USUAL: [&[u8]; 2] = [&[0x0c, 7, 8, 0x90, 1], &[0x0c, 31, 0]];

/// Whether what others share says that places are 4 bytes, and that they are of usual functions.
fn has_plain_places(source: &(impl Source + ?Sized), at: u64) -> Option<bool> {
    let length = u32::from_le_bytes(bytes(source, at)?) as usize;
    let mut shared = [0; ENTRY_BYTES];
    let shared = shared.get_mut(..length).filter(|_| length >= 12)?;
    if !source.read_at(shared, at.checked_add(4)?) {
        return None;
    }
    // 0, version, then letters that say what follows.
    let letters = &shared[5..];
    let letters = &letters[..letters.iter().position(|&b| b == 0)?];
    if letters.first() != Some(&b'z') || letters.contains(&b'S') {
        return Some(false);
    }
    // Factors of code and data, the register of the caller's address, how many bytes follow: one byte each.
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
            // A place of the language's own handler: its form, and 4 bytes.
            b'P' => own = own.get(5..)?,
            _ => return Some(false),
        }
    }
    let end = rules
        .iter()
        .rposition(|&b| b != 0)
        .map_or(0, |last| last + 1);
    // The last rule may end with a zero itself.
    let is_usual = |usual: &&[u8]| rules.starts_with(usual) && end <= usual.len();
    Some(is_plain && USUAL.iter().any(is_usual))
}
