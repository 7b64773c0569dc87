//! Memory that stays in memory: the buffer's, the player's stack, the program. The only system calls
//! on memory.

use onbeat_flow::region::{Region, ALIGN};
use std::io::{self, BufRead};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory of this process that is touched, and locked where that is permitted.
pub(crate) struct LockedMemory {
    base: NonNull<u8>,
    size: usize,
    places: Box<[AtomicBool]>,
}

// SAFETY: the memory is owned, and shared under the rules of the channel.
unsafe impl Send for LockedMemory {}
// SAFETY: as above.
unsafe impl Sync for LockedMemory {}

impl LockedMemory {
    /// Zeroed memory, with places for so many participants; and whether it could be locked.
    pub(crate) fn new(size: usize, places: usize) -> io::Result<(LockedMemory, io::Result<()>)> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let size = size.max(ALIGN);
        // SAFETY: new memory at a place that the kernel chooses.
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
        // SAFETY: mapped with this size in `new`; the channel is gone with its region.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
    }
}

// SAFETY: mapped zeroed, aligned to a page, until it is dropped.
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

/// Locks bytes that are there.
pub(crate) fn lock(base: *const u8, bytes: usize) -> io::Result<()> {
    // SAFETY: only changes how the kernel keeps memory.
    match unsafe { libc::mlock(base.cast(), bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Locks the program and its libraries, and of other memory without a file what is or will be used.
/// Not what sources have mapped: a recording may be larger than memory. All locks end with the
/// process.
///
/// # Errors
/// Something could not be locked. The rest is.
pub(crate) fn lock_program() -> io::Result<()> {
    let maps = io::BufReader::new(std::fs::File::open("/proc/self/maps")?);
    let mut result = Ok(());
    for line in maps.lines() {
        let line = line?;
        let Some((base, bytes)) = lockable(&line) else {
            continue;
        };
        // SAFETY: only changes how the kernel keeps memory; a range that is gone is an error.
        let code = unsafe { libc::mlock2(base as *const libc::c_void, bytes, libc::MLOCK_ONFAULT) };
        let error = io::Error::last_os_error();
        // A mapping that was there a moment ago may be gone.
        if code != 0 && error.raw_os_error() != Some(libc::EINVAL) && result.is_ok() {
            result = Err(error);
        }
    }
    result
}

/// The range of a line of `maps`, if it is code, or memory that belongs to no file.
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
    fn a_recordings_pages_are_not_locked() {
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
