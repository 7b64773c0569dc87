//! An attached uprobe: a uprobe link if the kernel has such links, otherwise a perf event.
//!
//! The kernel ends a perf event of a uprobe under one lock for all of them, and waits three times
//! meanwhile. This takes some 60 ms for each, so that a recording of a hundred probes took seconds
//! to end. A uprobe link waits once, at the same time as the others. onbeat makes the system call
//! for a link itself, because libbpf has a function for it only since 1.3.

use super::Uprobe;
use libbpf_rs::{Link, ProgramMut, UprobeOpts};
use std::ffi::CString;
use std::io::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

const LINK_CREATE: libc::c_int = 28;
const AT_RETURN: u32 = 1;
const UPROBE_MULTI: u32 = libbpf_rs::ProgramAttachType::TraceUprobeMulti as u32;

/// The argument `link_create` of `union bpf_attr`, for one uprobe (include/uapi/linux/bpf.h).
/// `counter_offsets` is zero if the file has no counter, and `pid` is zero for all processes.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    counter_offsets: u64,
    cookies: u64,
    count: u32,
    uprobe_flags: u32,
    pid: u32,
    unused: u32,
}

pub enum Attachment {
    Link(OwnedFd),
    Event(Link),
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Attachment::Link(fd) => fd.as_fd(),
            Attachment::Event(link) => link.as_fd(),
        }
    }
}

impl Attachment {
    pub fn link(program: &ProgramMut<'_>, probe: &Uprobe<'_>) -> Result<Attachment, String> {
        let path = CString::new(probe.file.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let (cookie, counter) = (u64::from(probe.number), probe.counter_offset);
        let address = |value: &u64| std::ptr::from_ref(value) as u64;
        let attributes = LinkCreate {
            program: program.as_fd().as_raw_fd() as u32,
            attach_type: UPROBE_MULTI,
            path: path.as_ptr() as u64,
            offsets: address(&probe.offset),
            counter_offsets: if counter == 0 { 0 } else { address(&counter) },
            cookies: address(&cookie),
            count: 1,
            uprobe_flags: if probe.at_return { AT_RETURN } else { 0 },
            pid: probe.pid,
            ..LinkCreate::default()
        };
        // SAFETY: the kernel reads `attributes` and the memory at its addresses, which live until
        // the call returns. It returns a descriptor that has no other owner.
        unsafe {
            let size = size_of::<LinkCreate>();
            match libc::syscall(libc::SYS_bpf, LINK_CREATE, &raw const attributes, size) {
                fd if fd >= 0 => Ok(Attachment::Link(OwnedFd::from_raw_fd(fd as i32))),
                _ => Err(Error::last_os_error().to_string()),
            }
        }
    }

    /// Attaches a program through a perf event. With `has_cookie`, the program's records contain
    /// the probe's number.
    pub fn event(
        program: &ProgramMut<'_>,
        probe: &Uprobe<'_>,
        has_cookie: bool,
    ) -> Result<Attachment, String> {
        let options = UprobeOpts {
            cookie: if has_cookie { probe.number.into() } else { 0 },
            retprobe: probe.at_return,
            ref_ctr_offset: probe.counter_offset as usize,
            ..UprobeOpts::default()
        };
        let offset = usize::try_from(probe.offset).map_err(|e| e.to_string())?;
        let pid = if probe.pid == 0 { -1 } else { probe.pid as i32 };
        program
            .attach_uprobe_with_opts(pid, probe.file, offset, options)
            .map(Attachment::Event)
            .map_err(|e| format!("{e:#}"))
    }
}
