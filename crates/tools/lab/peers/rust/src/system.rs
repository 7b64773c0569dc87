//! Clocks, sleeping, CPUs and resource usage. This is the only module of the peers with unsafe
//! code.
#![allow(clippy::useless_conversion)]

use std::os::fd::{AsFd, AsRawFd};

fn timespec(ns: i64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut t = timespec(0);
    // SAFETY: the pointer is to a live timespec, and all clocks used here exist.
    unsafe { libc::clock_gettime(clock, &mut t) };
    i64::from(t.tv_sec) * 1_000_000_000 + i64::from(t.tv_nsec)
}

pub fn thread_cpu_ns() -> i64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

pub fn now_ns() -> i64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Sleeps until `ns` of CLOCK_MONOTONIC. Returns at once if that time has passed.
pub fn sleep_until(ns: i64) {
    let t = timespec(ns);
    // SAFETY: the pointer is to a live timespec. With TIMER_ABSTIME the kernel writes no remainder.
    while unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &t,
            std::ptr::null_mut(),
        )
    } == libc::EINTR
    {}
}

/// Binds this thread to one CPU. Has no effect if no such CPU exists.
pub fn pin(cpu: usize) {
    // SAFETY: an all-zero set is valid, the number is within it, and it lives throughout the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Sets the socket option `SO_PRIORITY`, by which `tc prio` in the kernel sorts packets.
pub fn set_priority(socket: &impl AsFd, priority: i32) -> Result<(), String> {
    set(socket, libc::SO_PRIORITY, priority).map_err(|e| format!("SO_PRIORITY: {e}"))
}

/// Sets the socket option `SO_SNDBUF`. The kernel doubles the size, because its bookkeeping for the
/// data also takes space in the buffer.
pub fn set_send_buffer(socket: &impl AsFd, bytes: usize) -> Result<(), String> {
    let bytes = i32::try_from(bytes).map_err(|e| e.to_string())?;
    set(socket, libc::SO_SNDBUF, bytes).map_err(|e| format!("SO_SNDBUF: {e}"))
}

fn set(socket: &impl AsFd, option: libc::c_int, value: i32) -> std::io::Result<()> {
    // SAFETY: the pointer is to a live integer of the given size, and the descriptor is borrowed.
    let set = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Waits until a socket can take more bytes. Returns `false` if waiting fails.
pub fn writable(socket: &impl AsFd) -> bool {
    let mut wanted = libc::pollfd {
        fd: socket.as_fd().as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: the pointer is to one live pollfd, and the descriptor is borrowed.
    unsafe { libc::poll(&mut wanted, 1, -1) == 1 }
}

#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub cpu_ns: i64,
    /// The number of context switches in which a thread of the process went to sleep.
    pub voluntary: i64,
    /// The number of context switches in which the kernel took the CPU from a thread of the
    /// process.
    pub involuntary: i64,
}

pub fn used() -> Usage {
    // SAFETY: an all-zero rusage is a valid value of a plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live variable.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    Usage {
        cpu_ns: clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID),
        voluntary: i64::from(usage.ru_nvcsw),
        involuntary: i64::from(usage.ru_nivcsw),
    }
}
