//! Thin wrappers of system calls that check each result.

mod files;
mod handles;
mod process;
mod scheduling;
mod shared;

pub(crate) use files::{
    can_read, first_data, is_cgroup, lock, punch, replace, wait_for, write_at_start,
};
pub(crate) use handles::{receive, send, sockets, Timer};
pub(crate) use process::{
    detach, end, fork, is_running, pidfd_of, pidfd_of_self, pidfd_of_thread, signal,
};
pub(crate) use scheduling::{
    affinity, online, schedule, scheduling, set_affinity, set_nice, Scheduling,
};
pub(crate) use shared::SharedWords;

use std::io;
use std::sync::atomic::AtomicU32;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn check_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub(crate) fn gettid() -> u32 {
    // SAFETY: the call cannot fail and takes no pointers.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Sleeps until the instant `until_ns` of CLOCK_MONOTONIC, or until `word` is not 0 and [`wake`]
/// was called. The sleep has the precision of clock_nanosleep, and [`wake`] can end it early.
/// Real-time safe.
pub(crate) fn sleep_until(word: &AtomicU32, until_ns: u64) {
    let until = libc::timespec {
        tv_sec: (until_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (until_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the word and the time live during the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            0u32,
            &until,
            std::ptr::null::<u32>(),
            u32::MAX,
        );
    }
}

pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the word lives during the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        );
    }
}

pub(crate) fn lock_memory() -> io::Result<()> {
    // MCL_ONFAULT exists since Linux 4.4. Without it the kernel would fill the whole stack of every
    // thread.
    let flags = libc::MCL_CURRENT | libc::MCL_ONFAULT;
    // SAFETY: the call only changes how the kernel keeps memory.
    check(unsafe { libc::mlockall(flags) }).map(drop)
}

pub(crate) fn unlock_memory() {
    // SAFETY: the call only changes how the kernel keeps memory.
    unsafe { libc::munlockall() };
}

pub(crate) fn euid() -> u32 {
    // SAFETY: the call cannot fail and takes no pointers.
    unsafe { libc::geteuid() }
}

pub(crate) fn cpus() -> u16 {
    // SAFETY: the call takes no pointers.
    let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    n.clamp(1, 8192) as u16
}
