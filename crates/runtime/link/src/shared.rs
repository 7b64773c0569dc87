//! Shared memory without a file, sealed at its size, with a lock per participant.

use crate::error::LinkError;
use crate::name::PREFIX;
use nix::errno::Errno;
use nix::fcntl::{self, FallocateFlags, FcntlArg, SealFlag};
use nix::libc;
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};
use onbeat_flow::region::Region;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of participants that can have a place in the memory: a producer and 64 consumers.
const PLACES: usize = 65;

/// A mapping of shared memory. The locks of its participants belong to a separate open file
/// description, not to the mapping. The reason is that the kernel keeps a dead process's mapping
/// while another program reads `/proc/PID/smaps` or `cmdline`.
pub(crate) struct SharedMemory {
    file: OwnedFd,
    base: NonNull<u8>,
    size: NonZeroUsize,
    /// The places that this process has claimed by this mapping. The kernel does not report these
    /// claims, because it does not report a lock to the process that owns the lock.
    claimed: [AtomicBool; PLACES],
}

// SAFETY: this value owns the mapping, and the region's owner sets the rules of sharing.
unsafe impl Send for SharedMemory {}
// SAFETY: this value owns the mapping, and the region's owner sets the rules of sharing.
unsafe impl Sync for SharedMemory {}

fn system(name: &str, what: &'static str) -> impl Fn(Errno) -> LinkError {
    let name = name.to_owned();
    move |errno| LinkError::System {
        name: name.clone(),
        what,
        errno,
    }
}

fn reopen(name: &str, file: BorrowedFd<'_>) -> Result<OwnedFd, LinkError> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let file = File::options().read(true).write(true).open(path);
    file.map(OwnedFd::from).map_err(|e| {
        let errno = Errno::from_raw(e.raw_os_error().unwrap_or(0));
        system(name, "open memory")(errno)
    })
}

const SEALS: [SealFlag; 3] = [
    SealFlag::F_SEAL_SHRINK,
    SealFlag::F_SEAL_GROW,
    SealFlag::F_SEAL_SEAL,
];

impl SharedMemory {
    /// Creates memory that is filled with zeros. Reserves its pages now, so that no later access
    /// can fail.
    pub(crate) fn create(name: &str, size: usize) -> Result<SharedMemory, LinkError> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(format!("{PREFIX}{name}").as_str(), flags)
            .map_err(system(name, "create memory"))?;
        let length = libc::off_t::try_from(size).unwrap_or(libc::off_t::MAX);
        fcntl::fallocate(&file, FallocateFlags::empty(), 0, length)
            .map_err(system(name, "reserve memory"))?;
        let seals = SEALS.into_iter().collect::<SealFlag>();
        fcntl::fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(system(name, "seal memory"))?;
        SharedMemory::map(name, file, size, MapFlags::MAP_POPULATE)
    }

    /// Opens memory that another participant has created. Maps all its pages at once if its size
    /// equals `expected`.
    pub(crate) fn open(
        name: &str,
        file: BorrowedFd<'_>,
        expected: Option<usize>,
    ) -> Result<SharedMemory, LinkError> {
        let file = File::from(reopen(name, file)?);
        // Without the seal another process could shorten the memory while this one uses it.
        let seals = fcntl::fcntl(&file, FcntlArg::F_GET_SEALS).unwrap_or(0);
        let needed = SealFlag::F_SEAL_SHRINK.bits();
        if seals & needed != needed {
            return Err(LinkError::Unsealed { name: name.into() });
        }
        let size = usize::try_from(file.metadata().map_or(0, |m| m.len())).unwrap_or(0);
        let populate = if expected == Some(size) {
            MapFlags::MAP_POPULATE
        } else {
            MapFlags::empty()
        };
        SharedMemory::map(name, file.into(), size, populate)
    }

    fn map(
        name: &str,
        file: OwnedFd,
        size: usize,
        populate: MapFlags,
    ) -> Result<SharedMemory, LinkError> {
        let refused = system(name, "map memory");
        let size = NonZeroUsize::new(size).ok_or_else(|| refused(Errno::EINVAL))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | populate;
        let mapped = reopen(name, file.as_fd())?;
        // SAFETY: a new mapping, at an address that the kernel chooses. The file cannot shrink.
        let base = unsafe { mmap(None, size, access, flags, &mapped, 0) }.map_err(refused)?;
        Ok(SharedMemory {
            file,
            base: base.cast(),
            size,
            claimed: [const { AtomicBool::new(false) }; PLACES],
        })
    }

    /// Returns a number that identifies the memory. It is the same in all processes that map the
    /// memory, and 0 if the kernel reports none.
    pub(crate) fn number(&self) -> u64 {
        let file = nix::sys::stat::fstat(&self.file);
        // The factor is odd, so that no two products are the same. It is large, so that they are
        // far apart.
        file.map_or(0, |f| {
            f.st_ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ f.st_dev.rotate_left(32)
        })
    }

    fn lock(&self, place: usize, kind: i32) -> libc::flock {
        libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: place as libc::off_t,
            l_len: 1,
            l_pid: 0,
        }
    }
}

// SAFETY: the memory stays mapped until this value is dropped. It is page-aligned, cannot shrink,
// and was zeroed when it was created.
unsafe impl Region for SharedMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn size(&self) -> usize {
        self.size.get()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn claim(&self, place: usize) -> bool {
        if self.claimed[place].swap(true, Ordering::AcqRel) {
            return false;
        }
        let lock = self.lock(place, libc::F_WRLCK);
        let locked = fcntl::fcntl(&self.file, FcntlArg::F_OFD_SETLK(&lock)).is_ok();
        if !locked {
            self.claimed[place].store(false, Ordering::Release);
        }
        locked
    }

    fn release(&self, place: usize) {
        let lock = self.lock(place, libc::F_UNLCK);
        // Releasing a lock of this process does not fail.
        let _ = fcntl::fcntl(&self.file, FcntlArg::F_OFD_SETLK(&lock));
        self.claimed[place].store(false, Ordering::Release);
    }

    fn is_claimed(&self, place: usize) -> bool {
        if self.claimed[place].load(Ordering::Acquire) {
            return true;
        }
        let mut lock = self.lock(place, libc::F_WRLCK);
        match fcntl::fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut lock)) {
            Ok(_) => lock.l_type != libc::F_UNLCK as libc::c_short,
            // Without an answer from the kernel, a participant counts as alive.
            Err(_) => true,
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `map` mapped it with this size, and no reference is left.
        let _ = unsafe { munmap(self.base.cast(), self.size.get()) };
    }
}
