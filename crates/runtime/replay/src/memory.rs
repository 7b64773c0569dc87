//! Locks memory against paging: the buffer, the player's stack and the program. All system calls on
//! memory are here.

use onbeat_flow::region::{Region, ALIGN};
use std::io::{self, BufRead};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory of this process. onbeat writes to each page once and, if the system permits it, locks the
/// pages in RAM.
pub(crate) struct LockedMemory {
    base: NonNull<u8>,
    size: usize,
    places: Box<[AtomicBool]>,
}

// SAFETY: this type owns the memory, and the channel's rules govern shared access.
unsafe impl Send for LockedMemory {}
// SAFETY: this type owns the memory, and the channel's rules govern shared access.
unsafe impl Sync for LockedMemory {}

impl LockedMemory {
    /// Allocates `size` bytes of zeroed memory for a channel with `places` participants, and locks
    /// it in RAM. The inner result is an error if the memory could not be locked.
    pub(crate) fn new(size: usize, places: usize) -> io::Result<(LockedMemory, io::Result<()>)> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let size = size.max(ALIGN);
        // SAFETY: the kernel chooses the place of the new memory, so no existing memory changes.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("no address"))?;
        let locked = lock(base.as_ptr(), size);
        let places = (0..places).map(|_| AtomicBool::new(false)).collect();
        Ok((LockedMemory { base, size, places }, locked))
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        // SAFETY: `new` mapped this memory with this size, and the channel is dropped with its
        // region.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
    }
}

// SAFETY: the memory is zeroed, aligned to a page, and mapped until it is dropped.
unsafe impl Region for LockedMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn size(&self) -> usize {
        self.size
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn claim(&self, place: usize) -> bool {
        !self.places[place].swap(true, Ordering::AcqRel)
    }

    fn release(&self, place: usize) {
        self.places[place].store(false, Ordering::Release);
    }

    fn is_claimed(&self, place: usize) -> bool {
        self.places[place].load(Ordering::Acquire)
    }
}

pub(crate) fn lock(base: *const u8, bytes: usize) -> io::Result<()> {
    // SAFETY: the call only changes how the kernel keeps memory.
    match unsafe { libc::mlock(base.cast(), bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Locks the program, its libraries and its anonymous memory in RAM, including pages that are used
/// later for the first time. Does not lock the files that sources map, because a recording can be
/// larger than memory. All locks end with the process.
///
/// # Errors
/// Returns the error of the first part that could not be locked. All other parts are locked.
pub(crate) fn lock_program() -> io::Result<()> {
    let maps = io::BufReader::new(std::fs::File::open("/proc/self/maps")?);
    let mut result = Ok(());
    for line in maps.lines() {
        let line = line?;
        let Some((base, bytes)) = lockable(&line) else {
            continue;
        };
        // SAFETY: the call only changes how the kernel keeps memory. A range that no longer exists
        // is an error.
        let code = unsafe { libc::mlock2(base as *const libc::c_void, bytes, libc::MLOCK_ONFAULT) };
        let error = io::Error::last_os_error();
        // A mapping from the list may have been removed since.
        if code != 0 && error.raw_os_error() != Some(libc::EINVAL) && result.is_ok() {
            result = Err(error);
        }
    }
    result
}

fn lockable(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (range, access) = (words.next()?, words.next()?);
    let name = words.nth(3).unwrap_or("");
    let is_code = access.contains('x') && name.starts_with('/');
    let is_own = access.starts_with("rw") && (name.is_empty() || name == "[heap]");
    if !is_code && !is_own {
        return None;
    }
    let (from, to) = range.split_once('-')?;
    let from = usize::from_str_radix(from, 16).ok()?;
    let to = usize::from_str_radix(to, 16).ok()?;
    Some((from, to.checked_sub(from)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_recordings_are_not_locked_in_memory() {
        let code = "55d0-55d8 r-xp 00000000 00:1f 12 /usr/bin/onbeat";
        assert_eq!(lockable(code), Some((0x55d0, 8)));
        assert_eq!(lockable("10-20 rw-p 0 00:00 0 [heap]"), Some((16, 16)));
        assert_eq!(lockable("10-20 rw-p 0 00:00 0"), Some((16, 16)));
        for other in [
            "10-20 r--s 0 00:1f 12 /data/large.mcap",
            "10-20 rw-p 0 00:1f 12 /data/with blank",
            "10-20 ---p 0 00:00 0",
            "10-20 r-xp 0 00:00 0 [vdso]",
            "nonsense",
            "20-10 rw-p 0 00:00 0",
            "",
        ] {
            assert_eq!(lockable(other), None, "{other}");
        }
    }
}
