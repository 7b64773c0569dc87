//! Looks up when the execution of the chain that published an item began. The BPF programs of
//! `onbeat-record` fill the table. With the table, the cycle of an item need not be inferred from
//! the item's arrival.
//!
//! The table is mapped read-only. The hash of an item's source time stamp gives its place. Another
//! item may be at that place, or the kernel may just be writing it: then the lookup returns
//! nothing.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The layout of the table of lineage. The BPF programs use the same layout (`records.table` of
/// `onbeat-record`).
pub mod layout {
    /// The number of places in the table of lineage. Each place contains the entry of one item.
    pub const ENTRIES: u64 = 8192;
    /// The number of bits by which the hash is shifted right. The place of an item is (source time
    /// stamp × [`FACTOR`]) >> `SHIFT`.
    pub const SHIFT: u64 = 51;
    /// The factor with which the hash multiplies an item's source time stamp: see [`SHIFT`].
    pub const FACTOR: u64 = 5_700_357_409_661_599_243;
    /// The constant of an entry's check word. The check word is the exclusive-or of the item's
    /// source time stamp, the start of its execution and this constant.
    pub const CHECK: u64 = 7_957_702_637_012_541_039;
    /// The number of 64-bit words of a place in the table. The words are: the item's source time
    /// stamp, the start of its execution (CLOCK_MONOTONIC in ns; 0 if unknown), the check word, and
    /// an unused one.
    pub const ENTRY_WORDS: usize = 4;
    /// The size of the table of lineage in bytes.
    pub const BYTES: usize = ENTRIES as usize * ENTRY_WORDS * 8;
    const _: () = assert!(1 << (64 - SHIFT) == ENTRIES);
}
use layout::*;

/// The table of lineage, which contains the start of the execution of each recent item. This
/// process has mapped the table read-only.
#[derive(Debug)]
pub struct LineageTable(NonNull<AtomicU64>);

// SAFETY: all access is through atomics, and the mapping lasts as long as the value.
unsafe impl Send for LineageTable {}
// SAFETY: all access is through atomics, and the mapping lasts as long as the value.
unsafe impl Sync for LineageTable {}

impl LineageTable {
    /// Maps the table of lineage behind an inherited descriptor.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error if it cannot map the descriptor, or not the whole table.
    pub fn open(fd: RawFd) -> io::Result<LineageTable> {
        // SAFETY: the kernel chooses the address, so no other memory is changed. It refuses a wrong
        // descriptor, and a BPF map of the wrong size.
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
            .ok_or_else(|| io::Error::other("the kernel mapped the table of lineage at address 0"))
    }

    /// Returns the time (CLOCK_MONOTONIC, ns) at which the execution that published an item began.
    /// `source_ns` is the item's source time stamp. Returns `None` if the time is unknown.
    /// Real-time safe: three loads.
    pub fn born_ns(&self, source_ns: i64) -> Option<u64> {
        let place = (source_ns as u64).wrapping_mul(FACTOR) >> SHIFT;
        let word = |n: usize| {
            // SAFETY: the shift leaves only places within the table; the word is aligned, and every
            // bit pattern is a valid number.
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
        // SAFETY: `open` mapped this address with this size, and nothing refers to it any more.
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
        // SAFETY: the name is a constant, and no other code owns the new descriptor.
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
    fn an_execution_start_is_found_until_another_item_takes_its_place() {
        let (file, table) = table();
        let (source, born) = (1_700_000_000_123_456_789_u64, 77);
        assert_eq!(table.born_ns(source as i64), None);
        put(&file, source, [source, born, source ^ born ^ CHECK]);
        assert_eq!(table.born_ns(source as i64), Some(born));
        assert_eq!(table.born_ns(source as i64 + 1), None);
        // The first word is another item's, while its other words are not written yet.
        put(&file, source, [source + 1, born, source ^ born ^ CHECK]);
        assert_eq!(table.born_ns(source as i64), None);
        // The first word is this item's, but the start is another item's.
        put(&file, source, [source, 78, source ^ born ^ CHECK]);
        assert_eq!(table.born_ns(source as i64), None);
        // Two items had the same time stamp.
        put(&file, source, [source, 0, source ^ CHECK]);
        assert_eq!(table.born_ns(source as i64), None);
        // A table of zeros contains no item, not even one with time stamp 0.
        assert_eq!(table.born_ns(0), None);
    }

    #[test]
    fn opening_a_table_of_lineages_fails_if_its_file_cannot_be_mapped() {
        assert!(LineageTable::open(-1).is_err());
    }
}
