//! Memory that a process shares with the processes that it forks.

use super::check;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// 64-bit words in a memory page of their own, initially 0. Processes that are forked afterwards
/// share them.
pub(crate) struct SharedWords<const N: usize> {
    at: NonNull<[AtomicU64; N]>,
}

// SAFETY: the words are atomic, and stay mapped while this value lives.
unsafe impl<const N: usize> Send for SharedWords<N> {}
// SAFETY: the words are atomic, and stay mapped while this value lives.
unsafe impl<const N: usize> Sync for SharedWords<N> {}

impl<const N: usize> SharedWords<N> {
    pub(crate) fn new() -> io::Result<SharedWords<N>> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: the mapping is new, without a file and without a fixed address.
        SharedWords::mapped(unsafe {
            libc::mmap(std::ptr::null_mut(), Self::BYTES, access, how, -1, 0)
        })
    }

    /// Maps the first words of a file or BPF map into memory. `mmap` must accept the descriptor.
    pub(crate) fn of(map: BorrowedFd) -> io::Result<SharedWords<N>> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = map.as_raw_fd();
        // SAFETY: the mapping is new and has no fixed address. The kernel refuses descriptors
        // without memory, and fills the page with zeros if the memory is shorter.
        SharedWords::mapped(unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Self::BYTES,
                access,
                libc::MAP_SHARED,
                fd,
                0,
            )
        })
    }

    fn mapped(at: *mut libc::c_void) -> io::Result<SharedWords<N>> {
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedWords { at })
    }

    const BYTES: usize = size_of::<[AtomicU64; N]>();
}

impl<const N: usize> Deref for SharedWords<N> {
    type Target = [AtomicU64; N];

    fn deref(&self) -> &[AtomicU64; N] {
        // SAFETY: the memory stays mapped while this value lives, is aligned to a page, and zero is
        // a valid value.
        unsafe { self.at.as_ref() }
    }
}

impl<const N: usize> Drop for SharedWords<N> {
    fn drop(&mut self) {
        // SAFETY: the mapping is our own, and no reference to it exists any more.
        let _ = check(unsafe { libc::munmap(self.at.as_ptr().cast(), Self::BYTES) });
    }
}
