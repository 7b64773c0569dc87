//! Opens the software event for which the kernel writes scheduler records. The event itself counts
//! nothing.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// `struct perf_event_attr` up to PERF_ATTR_SIZE_VER3, which has all fields used here.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
}

const SOFTWARE: u32 = 1;
const DUMMY: u64 = 9;
const SAMPLE_TID_TIME_CPU: u64 = 1 << 1 | 1 << 2 | 1 << 7;
/// Bits of `struct perf_event_attr`: `inherit`; no events inside the kernel, which would need a
/// privilege; records of `comm` (with `comm_exec`), `task` and `context_switch`, each with
/// `sample_id_all`; `watermark`; `use_clockid`.
const FLAGS: u64 =
    1 << 1 | 1 << 5 | 1 << 6 | 1 << 9 | 1 << 13 | 1 << 14 | 1 << 18 | 1 << 24 | 1 << 25 | 1 << 26;
/// Bits of `struct perf_event_attr`: the event is `disabled` until the program executes
/// (`enable_on_exec`).
const FROM_EXEC_ON: u64 = 1 | 1 << 12;
const SET_OUTPUT: libc::c_ulong = 0x2405;
const CLOSE_ON_EXEC: libc::c_ulong = 8;

#[derive(Clone, Copy)]
pub enum Observed {
    OurChildren,
    Thread(u32),
}

/// Opens an event that counts while the observed threads run on `cpu`. The kernel wakes the reader
/// when `wakeup_bytes` of records wait.
pub fn open(observed: Observed, cpu: i32, wakeup_bytes: u32) -> io::Result<File> {
    let (pid, flags) = match observed {
        Observed::OurChildren => (0, FLAGS | FROM_EXEC_ON),
        Observed::Thread(tid) => (tid as libc::pid_t, FLAGS),
    };
    let attributes = Attributes {
        kind: SOFTWARE,
        size: std::mem::size_of::<Attributes>() as u32,
        config: DUMMY,
        sample_type: SAMPLE_TID_TIME_CPU,
        flags,
        wakeup_watermark: wakeup_bytes,
        clock: libc::CLOCK_MONOTONIC,
        ..Attributes::default()
    };
    // SAFETY: the attributes have the size that they state.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &attributes,
            pid,
            cpu,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    match fd {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: a new descriptor that nothing else owns.
        fd => Ok(unsafe { File::from_raw_fd(fd as libc::c_int) }),
    }
}

pub fn write_to(event: &File, other: &File) -> io::Result<()> {
    // SAFETY: plain system call on two descriptors.
    match unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT as _, other.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
