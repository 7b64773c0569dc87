//! Another process's memory.

use std::ops::Range;

/// Reads another process's memory.
pub trait Memory {
    /// Fills `buffer` from `address`; false when it cannot be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool;

    /// A word.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)
            .then(|| u64::from_le_bytes(bytes))
    }

    /// What the process wrote and has in memory: its heaps, not its files and stacks.
    fn regions(&self) -> Vec<Range<u64>>;

    /// A text of up to 255 bytes that ends with a zero.
    fn text(&self, address: u64) -> Option<String> {
        let mut text = Vec::new();
        // In small steps that do not cross the end of a mapping.
        while text.len() < 256 {
            let mut piece = [0; 16];
            let at = address.checked_add(text.len() as u64)?;
            let length = 16 - (at % 16) as usize;
            if !self.read(at, &mut piece[..length]) {
                return None;
            }
            match piece[..length].iter().position(|&b| b == 0) {
                Some(end) => {
                    text.extend(&piece[..end]);
                    return String::from_utf8(text).ok();
                }
                None => text.extend(&piece[..length]),
            }
        }
        None
    }
}

/// The memory of a live process.
pub struct ProcessMemory {
    /// The process.
    pub pid: u32,
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let local = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: buffer.len(),
        };
        // SAFETY: `local` describes `buffer`; the kernel checks the remote side.
        let n =
            unsafe { libc::process_vm_readv(self.pid as libc::pid_t, &local, 1, &remote, 1, 0) };
        n == buffer.len() as isize
    }

    fn regions(&self) -> Vec<Range<u64>> {
        onbeat_proc::memory::written(self.pid).unwrap_or_default()
    }
}
