//! The pages of a process's heaps that are in memory.

use crate::reader::{Reader, Silent, ANSWER_MAX};
use std::io;
use std::ops::Range;

const PAGE: u64 = 4096;
const ENTRY: u64 = 8;
const ENTRIES_AT_ONCE: u64 = 64 * 1024;
/// The largest amount of one process's memory that onbeat searches for written pages, in bytes. A
/// mapping with which the searched memory would exceed this limit is skipped. So large a mapping is
/// reserved address space and not a heap in use.
const BYTES_MAX: u64 = 64 << 30;

/// Lists the private writable mappings without a file in the bytes of `/proc/PID/maps`. These are
/// the heaps, without the stack of the main thread.
pub fn parse_writable(maps: &[u8]) -> Vec<Range<u64>> {
    let heap = |line: &&[u8]| {
        let mut words = line.split(|&b| b == b' ').filter(|w| !w.is_empty());
        let mut word = || words.next().unwrap_or_default();
        let (_, rights, _, _, inode, name) = (word(), word(), word(), word(), word(), word());
        rights == b"rw-p" && inode == b"0" && matches!(name, b"" | b"[heap]")
    };
    let range = |line: &[u8]| {
        let range = std::str::from_utf8(line).ok()?.split(' ').next()?;
        let (start, end) = range.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        Some(address(start)?..address(end)?)
    };
    let lines = maps.split(|&b| b == b'\n').filter(heap);
    lines
        .filter_map(range)
        .filter(|r| r.start < r.end)
        .collect()
}

/// Lists the pages of a process's heaps ([`parse_writable`]) that are in memory. Reading these
/// pages does not make the process larger. Fails if the process has ended or if the caller may not
/// inspect it.
pub fn written(pid: u32, reader: &mut Reader) -> Result<io::Result<Vec<Range<u64>>>, Silent> {
    let maps = match reader.file(&format!("/proc/{pid}/maps"), 0, ANSWER_MAX)? {
        Ok(maps) => maps,
        Err(e) => return Ok(Err(e)),
    };
    let pages = format!("/proc/{pid}/pagemap");
    let mut left = BYTES_MAX;
    let mut present: Vec<Range<u64>> = Vec::new();
    for region in parse_writable(&maps) {
        let Some(rest) = left.checked_sub(region.end - region.start) else {
            // A region of this size is reserved address space, not a heap in use.
            continue;
        };
        left = rest;
        let mut at = region.start;
        while at < region.end {
            let wanted = (region.end - at).div_ceil(PAGE).saturating_mul(ENTRY);
            let wanted = wanted.min(ENTRIES_AT_ONCE) as usize;
            let entries = match reader.file(&pages, at / PAGE * ENTRY, wanted)? {
                Ok(entries) => entries,
                Err(e) => return Ok(Err(e)),
            };
            if entries.len() < ENTRY as usize {
                break;
            }
            for entry in entries.chunks_exact(ENTRY as usize) {
                // The top bit is set if the page is in memory.
                if entry[ENTRY as usize - 1] & 0x80 != 0 {
                    match present.last_mut() {
                        Some(last) if last.end == at => last.end += PAGE,
                        _ => present.push(at..at + PAGE),
                    }
                }
                at += PAGE;
            }
        }
    }
    Ok(Ok(present))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaps_are_the_private_writable_mappings_without_a_file() {
        let maps = b"\
1000-2000 rw-p 00000000 00:00 0   [heap]
3000-5000 rw-p 00000000 00:00 0
5000-6000 rw-p 00000000 fe:00 77  /opt/lib/librcl.so
6000-7000 r--p 00000000 00:00 0
7000-8000 rw-p 00000000 00:00 0   [stack]
9000-8000 rw-p 00000000 00:00 0
zz-8000 rw-p 00000000 00:00 0
garbage";
        assert_eq!(parse_writable(maps), [0x1000..0x2000, 0x3000..0x5000]);
        assert!(parse_writable(b"").is_empty());
    }

    #[test]
    fn only_heap_pages_in_memory_are_listed() {
        // Only one page of this large allocation is touched.
        let mut large = Vec::<u8>::with_capacity(64 << 20);
        large.push(1);
        let at = large.as_ptr() as u64;
        let mut reader = Reader::new(std::time::Duration::from_secs(60));
        let memory = written(std::process::id(), &mut reader);
        let Ok(memory) = memory.expect("it answers") else {
            // Some containers do not let a process see its own pages.
            return;
        };
        assert!(memory.iter().any(|r| r.contains(&at)));
        assert!(!memory.iter().any(|r| r.contains(&(at + (32 << 20)))));
        let gone = written(u32::MAX - 1, &mut reader);
        assert!(gone.expect("it answers").is_err());
    }
}
