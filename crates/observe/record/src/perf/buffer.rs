//! Reads the buffer into which the kernel writes an event's records.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Offsets in `struct perf_event_mmap_page`: `HEAD` of the kernel's write position, `TAIL` of the
/// reader's position.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// The longest accepted record in bytes. Real records contain at most a name of 16 bytes and some
/// ids.
const RECORD_MAX: usize = 1 << 10;

/// A mapped perf buffer: a page with positions, and a power of two of pages with records.
pub struct Buffer {
    page: NonNull<u8>,
    page_bytes: usize,
    bytes: usize,
    record: Vec<u8>,
}

impl Buffer {
    /// Maps the buffer of an event. `bytes` must be a power of two of pages.
    pub fn map(event: &File, bytes: usize) -> io::Result<Buffer> {
        // SAFETY: sysconf only reads a number.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let bytes = bytes.max(page_bytes);
        // SAFETY: this is a new mapping, and its address is checked.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page_bytes + bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(address.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Buffer {
            page,
            page_bytes,
            bytes,
            record: Vec::new(),
        })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the words lie aligned within the first page, which is mapped as long as this
        // lives.
        unsafe { &*self.page.as_ptr().add(at).cast::<AtomicU64>() }
    }

    fn copy(&mut self, from: u64, length: usize) {
        self.record.resize(length, 0);
        let at = (from % self.bytes as u64) as usize;
        let first = length.min(self.bytes - at);
        // SAFETY: both pieces lie within the mapping, and the kernel does not overwrite unread
        // records.
        unsafe {
            let records = self.page.as_ptr().add(self.page_bytes);
            let to = self.record.as_mut_ptr();
            std::ptr::copy_nonoverlapping(records.add(at), to, first);
            std::ptr::copy_nonoverlapping(records, to.add(first), length - first);
        }
    }

    pub fn take(&mut self, mut tell: impl FnMut(&[u8])) {
        let head = self.word(HEAD).load(Ordering::Acquire);
        let mut tail = self.word(TAIL).load(Ordering::Relaxed);
        while head.wrapping_sub(tail) >= 8 {
            self.copy(tail, 8);
            let length = usize::from(u16::from_le_bytes([self.record[6], self.record[7]]));
            if !(8..=RECORD_MAX).contains(&length) || length as u64 > head.wrapping_sub(tail) {
                // The length is invalid, so the start of the next record is unknown.
                tail = head;
                break;
            }
            self.copy(tail, length);
            tell(&self.record);
            tail = tail.wrapping_add(length as u64);
        }
        self.word(TAIL).store(tail, Ordering::Release);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it is left.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.page_bytes + self.bytes) };
    }
}
