//! Memory that a process and those that it forks share.

use super::check;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Words in a page of their own, at first 0. Processes that are forked afterwards see them too.
pub(crate) struct SharedWords<const N: usize> {
    at: NonNull<[AtomicU64; N]>,
}

// SAFETY: the words are atomic, and mapped as long as this lives.
unsafe impl<const N: usize> Send for SharedWords<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for SharedWords<N> {}

impl<const N: usize> SharedWords<N> {
    pub(crate) fn new() -> io::Result<SharedWords<N>> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a new mapping, of no file and at no address of ours.
        SharedWords::mapped(unsafe {
            libc::mmap(std::ptr::null_mut(), Self::BYTES, access, how, -1, 0)
        })
    }

    /// The words at the begin of what the kernel lets be mapped, such as a map of BPF programs.
    pub(crate) fn of(map: BorrowedFd) -> io::Result<SharedWords<N>> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = map.as_raw_fd();
        // SAFETY: a new mapping at no address of ours; the kernel refuses what is no memory, and a
        // page of what is shorter is filled with zeros.
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
        // SAFETY: mapped as long as this lives, aligned to a page, and zero is a value.
        unsafe { self.at.as_ref() }
    }
}

impl<const N: usize> Drop for SharedWords<N> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference to it any more.
        let _ = check(unsafe { libc::munmap(self.at.as_ptr().cast(), Self::BYTES) });
    }
}
