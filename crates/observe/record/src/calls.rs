//! The kinds of system calls by their numbers on this processor.

use onbeat_trace::CallKind;

/// The number that stands for a page fault or another exception.
const EXCEPTION: i64 = -1;

/// Returns the kind of a system call, or of the exception by which a thread entered the kernel.
pub fn kind_of(number: i64) -> CallKind {
    #[cfg(target_arch = "x86_64")]
    if let Some(kind) = kind_on_x86(number) {
        return kind;
    }
    match number {
        EXCEPTION => CallKind::PageFault,
        libc::SYS_futex | libc::SYS_futex_waitv => CallKind::Futex,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => CallKind::Sleep,
        libc::SYS_ppoll | libc::SYS_pselect6 | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
            CallKind::Poll
        }
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_pread64
        | libc::SYS_preadv
        | libc::SYS_preadv2 => CallKind::Read,
        libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_pwrite64
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_sendfile
        | libc::SYS_splice
        | libc::SYS_copy_file_range
        | libc::SYS_fallocate
        | libc::SYS_ftruncate => CallKind::Write,
        libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_sync
        | libc::SYS_syncfs
        | libc::SYS_msync => CallKind::Sync,
        libc::SYS_openat
        | libc::SYS_openat2
        | libc::SYS_close
        | libc::SYS_newfstatat
        | libc::SYS_fstat
        | libc::SYS_statx
        | libc::SYS_getdents64
        | libc::SYS_readlinkat
        | libc::SYS_renameat2
        | libc::SYS_unlinkat
        | libc::SYS_mkdirat
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_flock
        | libc::SYS_fcntl => CallKind::File,
        libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg => CallKind::Send,
        libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg => CallKind::Receive,
        libc::SYS_connect | libc::SYS_accept | libc::SYS_accept4 => CallKind::Connect,
        libc::SYS_mmap
        | libc::SYS_munmap
        | libc::SYS_mprotect
        | libc::SYS_mremap
        | libc::SYS_madvise
        | libc::SYS_mlock
        | libc::SYS_brk => CallKind::Memory,
        libc::SYS_ioctl => CallKind::Ioctl,
        libc::SYS_wait4 | libc::SYS_waitid => CallKind::Child,
        libc::SYS_rt_sigtimedwait | libc::SYS_rt_sigsuspend => CallKind::Signal,
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_execve => CallKind::Process,
        _ => CallKind::Other,
    }
}

/// Returns the kind of a call that x86-64 has and aarch64 lacks.
#[cfg(target_arch = "x86_64")]
fn kind_on_x86(number: i64) -> Option<CallKind> {
    Some(match number {
        libc::SYS_poll | libc::SYS_select | libc::SYS_epoll_wait => CallKind::Poll,
        libc::SYS_open
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_access
        | libc::SYS_getdents
        | libc::SYS_readlink
        | libc::SYS_rename
        | libc::SYS_unlink
        | libc::SYS_mkdir
        | libc::SYS_rmdir => CallKind::File,
        libc::SYS_pause => CallKind::Signal,
        libc::SYS_fork | libc::SYS_vfork => CallKind::Process,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calls_kind_follows_from_its_number_on_this_processor() {
        assert_eq!(kind_of(libc::SYS_clock_nanosleep), CallKind::Sleep);
        assert_eq!(kind_of(libc::SYS_fsync), CallKind::Sync);
        assert_eq!(kind_of(libc::SYS_futex), CallKind::Futex);
        assert_eq!(kind_of(-1), CallKind::PageFault);
        assert_eq!(kind_of(libc::SYS_getpid), CallKind::Other);
        assert_eq!(kind_of(i64::MAX), CallKind::Other);
    }
}
