//! The map of processes, mapped into our memory: one byte of flags per process id.

use crate::records::ID_COUNT;
use libbpf_rs::MapCore;
use std::os::fd::AsRawFd;

/// The table.
pub struct FlagTable {
    address: *mut u8,
}

impl FlagTable {
    /// Maps the table.
    pub fn map(map: &impl MapCore) -> std::io::Result<FlagTable> {
        // SAFETY: a fresh shared mapping of a map that was created with BPF_F_MMAPABLE and holds
        // exactly ID_COUNT bytes.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                ID_COUNT,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(FlagTable {
            address: address.cast(),
        })
    }

    /// Changes the flags of a process. An id out of range is ignored.
    pub fn update(&self, id: u32, change: impl Fn(u8) -> u8) {
        if (id as usize) < ID_COUNT {
            // SAFETY: in bounds of the mapping; the kernel writes single bytes of it too, so the
            // access is volatile.
            unsafe {
                let flags = self.address.add(id as usize);
                flags.write_volatile(change(flags.read_volatile()));
            }
        }
    }
}

impl Drop for FlagTable {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, used no more.
        unsafe { libc::munmap(self.address.cast(), ID_COUNT) };
    }
}
