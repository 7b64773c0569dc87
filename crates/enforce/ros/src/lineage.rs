//! When the execution of the chain began that an item belongs to, from a table that the kernel's
//! programs fill (`onbeat-record`): the cycle travels with the item, and is not inferred from when
//! the item comes.
//!
//! The table is mapped read-only. It has a place for each hash of a source time stamp; what lies
//! there may be another item's, or be overwritten this instant: then nothing is known of the item.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Layout of the table. The kernel's programs have the same: `onbeat-record`, `records.table`.
pub mod layout {
    /// Places.
    pub const ENTRIES: u64 = 8192;
    /// The place of a source time stamp is its product with the factor, shifted right by this.
    pub const SHIFT: u64 = 51;
    /// See [`SHIFT`].
    pub const FACTOR: u64 = 5_700_357_409_661_599_243;
    /// An entry's third word is the other two and this, each exclusive-or.
    pub const CHECK: u64 = 7_957_702_637_012_541_039;
    /// Words of a place: source time stamp, start of the execution (CLOCK_MONOTONIC in ns; 0: not
    /// known), check, and one without use.
    pub const ENTRY_WORDS: usize = 4;
    /// Size of the table in bytes.
    pub const BYTES: usize = ENTRIES as usize * ENTRY_WORDS * 8;
    const _: () = assert!(1 << (64 - SHIFT) == ENTRIES);
}
use layout::*;

/// The table, mapped.
#[derive(Debug)]
pub struct LineageTable(NonNull<AtomicU64>);

// SAFETY: all access is through atomics, and the mapping lasts as long as the value.
unsafe impl Send for LineageTable {}
// SAFETY: as above.
unsafe impl Sync for LineageTable {}

impl LineageTable {
    /// Maps the table behind an inherited descriptor.
    ///
    /// # Errors
    ///
    /// The kernel's: for what cannot be mapped, or only in parts.
    pub fn open(fd: RawFd) -> io::Result<LineageTable> {
        // SAFETY: a new mapping at an address of the kernel's choice; a wrong descriptor, and of a
        // BPF map a wrong size, is an error.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(address.cast())
            .map(LineageTable)
            .ok_or_else(|| io::Error::other("mapped at 0"))
    }

    /// When the execution began that published the item with this source time stamp,
    /// CLOCK_MONOTONIC. `None` if that is not known. Real-time safe: four loads.
    pub fn born_ns(&self, source_ns: i64) -> Option<u64> {
        let place = (source_ns as u64).wrapping_mul(FACTOR) >> SHIFT;
        let word = |n: usize| {
            // SAFETY: the shift leaves a place of the table; aligned, and any bits are a number.
            let word = unsafe { self.0.add(place as usize * ENTRY_WORDS + n).as_ref() };
            word.load(Ordering::Relaxed)
        };
        let (source, born_ns, check) = (word(0), word(1), word(2));
        let is_whole = source ^ born_ns ^ CHECK == check;
        (is_whole && source == source_ns as u64 && born_ns != 0).then_some(born_ns)
    }
}

impl Drop for LineageTable {
    fn drop(&mut self) {
        // SAFETY: mapped with this size by `open`, and nothing refers to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::FileExt;

    fn table() -> (File, LineageTable) {
        // SAFETY: a constant name, and a descriptor that is nobody else's.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"lineage".as_ptr(), 0)) };
        file.set_len(BYTES as u64).unwrap();
        let table = LineageTable::open(file.as_raw_fd()).unwrap();
        (file, table)
    }

    fn put(file: &File, source_ns: u64, words: [u64; 3]) {
        let place = source_ns.wrapping_mul(FACTOR) >> SHIFT;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        file.write_all_at(&bytes, place * (ENTRY_WORDS as u64) * 8)
            .unwrap();
    }

    #[test]
    fn an_item_s_start_is_known_until_another_item_takes_its_place() {
        let (file, table) = table();
        let (source, born) = (1_700_000_000_123_456_789_u64, 77);
        assert_eq!(table.born_ns(source as i64), None);
        put(&file, source, [source, born, source ^ born ^ CHECK]);
        assert_eq!(table.born_ns(source as i64), Some(born));
        assert_eq!(table.born_ns(source as i64 + 1), None);
        // Another item's first word is there, its others are not yet.
        put(&file, source, [source + 1, born, source ^ born ^ CHECK]);
        assert_eq!(table.born_ns(source as i64), None);
        // This item's is there, with another's start.
        put(&file, source, [source, 78, source ^ born ^ CHECK]);
        assert_eq!(table.born_ns(source as i64), None);
        // Two items had one time stamp.
        put(&file, source, [source, 0, source ^ CHECK]);
        assert_eq!(table.born_ns(source as i64), None);
        // A memory of zeros has no item, not that of the time stamp 0 either.
        assert_eq!(table.born_ns(0), None);
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error() {
        assert!(LineageTable::open(-1).is_err());
    }
}
