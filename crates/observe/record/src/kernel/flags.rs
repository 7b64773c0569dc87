//! A map of the BPF programs, mapped into memory, with one byte of flags per process or thread id.

use crate::records::ID_COUNT;
use libbpf_rs::MapCore;
use std::os::fd::AsRawFd;

/// A table with one byte of flags per process or thread id, which the BPF programs share.
pub struct FlagTable {
    address: *mut u8,
}

impl FlagTable {
    pub fn map(map: &impl MapCore) -> std::io::Result<FlagTable> {
        FlagTable::of(libc::MAP_SHARED, map.as_fd().as_raw_fd())
    }

    #[cfg(test)]
    pub fn empty() -> FlagTable {
        FlagTable::of(libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1).expect("some memory")
    }

    fn of(kind: libc::c_int, fd: libc::c_int) -> std::io::Result<FlagTable> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the shared mapping is a new one. The map was created with BPF_F_MMAPABLE and
        // holds exactly ID_COUNT bytes.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), ID_COUNT, access, kind, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(FlagTable {
            address: address.cast(),
        })
    }

    /// Returns the ids that have flags. Also works in a forked child, and after the BPF programs
    /// are detached.
    pub fn ids_with_flags(&self) -> Vec<u32> {
        const WORD: usize = 8;
        let words = (0..ID_COUNT).step_by(WORD).map(|first| {
            // SAFETY: the word is within the mapping, whose length is a multiple of a word, and
            // aligned as the mapping is. The kernel writes to it, so the access is volatile.
            (first, unsafe {
                self.address.add(first).cast::<u64>().read_volatile()
            })
        });
        // Few of the four million ids have flags.
        let flags = words.filter(|(_, word)| *word != 0);
        let set = flags.flat_map(|(first, word)| (first as u32..).zip(word.to_ne_bytes()));
        set.filter(|(_, f)| *f != 0).map(|(id, _)| id).collect()
    }

    pub fn clear(&self, id: u32) -> u8 {
        if id as usize >= ID_COUNT {
            return 0;
        }
        // SAFETY: the byte is within the mapping. The kernel writes single bytes of it too, so the
        // access is volatile.
        unsafe {
            let flags = self.address.add(id as usize);
            let before = flags.read_volatile();
            flags.write_volatile(0);
            before
        }
    }

    pub fn update(&self, id: u32, change: impl Fn(u8) -> u8) {
        if (id as usize) < ID_COUNT {
            // SAFETY: the byte is within the mapping. The kernel writes single bytes of it too, so
            // the access is volatile.
            unsafe {
                let flags = self.address.add(id as usize);
                flags.write_volatile(change(flags.read_volatile()));
            }
        }
    }
}

impl Drop for FlagTable {
    fn drop(&mut self) {
        // SAFETY: `of` made the mapping, and nothing uses it any more.
        unsafe { libc::munmap(self.address.cast(), ID_COUNT) };
    }
}
