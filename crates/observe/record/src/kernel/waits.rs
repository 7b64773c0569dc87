//! The map of threads, mapped into memory, which shows the threads that wait for work in
//! `rcl_wait`.

use crate::records::{ID_COUNT, THREAD_WAITER, THREAD_WAITS};
use libbpf_rs::MapCore;
use std::os::fd::AsRawFd;

/// The threads that wait for work in `rcl_wait`, as the kernel sees them at any instant. Any thread
/// may query this table; a query costs one load from memory. The table outlives the recording, and
/// then shows the state at the recording's end.
#[derive(Debug)]
pub struct WaitTable {
    address: *const u8,
}

// SAFETY: the memory is only read, byte by byte and volatile. The kernel writes single bytes.
unsafe impl Send for WaitTable {}
// SAFETY: the reason for `Send` holds here too.
unsafe impl Sync for WaitTable {}

impl WaitTable {
    pub(super) fn map(map: &impl MapCore) -> std::io::Result<WaitTable> {
        // SAFETY: the shared mapping is a new one. The map was created with BPF_F_MMAPABLE and
        // holds exactly ID_COUNT bytes.
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

    /// Returns whether a thread sleeps in `rcl_wait`. Returns `None` if the thread was never seen
    /// in `rcl_wait`: its executor may wait elsewhere, as the events executors of rclcpp and rclpy
    /// do. Real-time safe.
    pub fn waits(&self, tid: u32) -> Option<bool> {
        if tid as usize >= ID_COUNT {
            return None;
        }
        // SAFETY: the byte is within the mapping. The kernel writes to it, so the access is
        // volatile.
        let flags = u64::from(unsafe { self.address.add(tid as usize).read_volatile() });
        (flags & THREAD_WAITER as u64 != 0).then_some(flags & THREAD_WAITS as u64 != 0)
    }
}

impl Drop for WaitTable {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping, and nothing uses it any more.
        unsafe { libc::munmap(self.address.cast_mut().cast(), ID_COUNT) };
    }
}
