//! The map of threads, mapped into our memory: which of them wait for work in `rcl_wait`.

use crate::records::{ID_COUNT, THREAD_WAITER, THREAD_WAITS};
use libbpf_rs::MapCore;
use std::os::fd::AsRawFd;

/// Which threads wait for work in `rcl_wait`, as the kernel sees it at any instant. It may be asked
/// from any thread, costs one load from memory, and outlives the recording; what it says then is
/// what was true at the recording's end.
#[derive(Debug)]
pub struct WaitTable {
    address: *const u8,
}

// SAFETY: the memory is only read, byte by byte and volatile; the kernel writes single bytes.
unsafe impl Send for WaitTable {}
// SAFETY: as above.
unsafe impl Sync for WaitTable {}

impl WaitTable {
    /// Maps the table.
    pub(super) fn map(map: &impl MapCore) -> std::io::Result<WaitTable> {
        // SAFETY: a fresh shared mapping of a map that was created with BPF_F_MMAPABLE and holds
        // exactly ID_COUNT bytes.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                ID_COUNT,
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(WaitTable {
            address: address.cast_const().cast(),
        })
    }

    /// Whether a thread sleeps in `rcl_wait`. `None` if it was not seen there yet: its executor may
    /// wait elsewhere, as rclcpp's and rclpy's events executors do. Real-time safe.
    pub fn waits(&self, tid: u32) -> Option<bool> {
        if tid as usize >= ID_COUNT {
            return None;
        }
        // SAFETY: in bounds of the mapping; the kernel writes to it, so the access is volatile.
        let flags = u64::from(unsafe { self.address.add(tid as usize).read_volatile() });
        (flags & THREAD_WAITER as u64 != 0).then_some(flags & THREAD_WAITS as u64 != 0)
    }
}

impl Drop for WaitTable {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, used no more.
        unsafe { libc::munmap(self.address.cast_mut().cast(), ID_COUNT) };
    }
}
