//! A map of processes, mapped into our memory: one byte of flags per process id.

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
        FlagTable::of(libc::MAP_SHARED, map.as_fd().as_raw_fd())
    }

    /// A table that no kernel program writes to.
    #[cfg(test)]
    pub fn empty() -> FlagTable {
        FlagTable::of(libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1).expect("some memory")
    }

    fn of(kind: libc::c_int, fd: libc::c_int) -> std::io::Result<FlagTable> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh shared mapping, of a map that was created with BPF_F_MMAPABLE and holds
        // exactly ID_COUNT bytes.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), ID_COUNT, access, kind, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(FlagTable {
            address: address.cast(),
        })
    }

    /// Ids with flags. Readable in a forked child too, also when the programs are gone.
    pub fn set(&self) -> Vec<u32> {
        const WORD: usize = 8;
        let words = (0..ID_COUNT).step_by(WORD).map(|first| {
            // SAFETY: in bounds of the mapping, whose length is a multiple of a word's, and aligned
            // as the mapping is; the kernel writes to it, so the access is volatile.
            (first, unsafe {
                self.address.add(first).cast::<u64>().read_volatile()
            })
        });
        // Few ids of four million have flags.
        let flags = words.filter(|(_, word)| *word != 0);
        let set = flags.flat_map(|(first, word)| (first as u32..).zip(word.to_ne_bytes()));
        set.filter(|(_, f)| *f != 0).map(|(id, _)| id).collect()
    }

    /// Clears the flags of a process: what they were. An id out of range has none.
    pub fn clear(&self, id: u32) -> u8 {
        if id as usize >= ID_COUNT {
            return 0;
        }
        // SAFETY: in bounds of the mapping; the kernel writes single bytes of it too, so the access
        // is volatile.
        unsafe {
            let flags = self.address.add(id as usize);
            let before = flags.read_volatile();
            flags.write_volatile(0);
            before
        }
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
