//! The smallest possible uprobe, and the kernel's accounting of BPF programs.
//!
//! The uprobe's BPF program returns at once, so that a hit costs only the kernel's trap.

use crate::frame::files;
use crate::frame::{LabError, Result};
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_GET_FD_BY_ID: libc::c_long = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_ENABLE_STATS: libc::c_long = 32;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
pub(super) const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

pub(super) fn owned(result: libc::c_long, action: &str) -> Result<OwnedFd> {
    if result < 0 {
        return Err(LabError::kernel(action));
    }
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

/// Makes the kernel measure the run time of BPF programs until this value is dropped. The kernel
/// stops measuring when the last such descriptor is closed, so dropping the value restores the
/// previous setting.
#[derive(Debug)]
pub struct RunStats(#[allow(dead_code)] OwnedFd);

impl RunStats {
    pub fn enable() -> Result<Self> {
        let kind: u32 = 0; // BPF_STATS_RUN_TIME
                           // SAFETY: for this command bpf(2) reads `size` bytes of the attribute,
                           // which is a u32.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, BPF_ENABLE_STATS, &kind, size_of::<u32>()) };
        owned(result, "switching on the accounting of BPF programs").map(RunStats)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgramStats {
    pub id: u32,
    pub run_time_ns: u64,
    pub runs: u64,
}

/// Returns the name of a loaded BPF program, or `None` if it is no longer loaded. The kernel stores
/// only the first 15 characters of a name.
pub fn program_name(id: u32) -> Option<String> {
    let by_id: [u32; 4] = [id, 0, 0, 0];
    // SAFETY: for this command bpf(2) reads the id from the attribute's first word.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_GET_FD_BY_ID,
            by_id.as_ptr(),
            size_of_val(&by_id),
        )
    };
    let program = owned(result, "opening a BPF program").ok()?;
    // struct bpf_prog_info up to its name, which begins at byte 64.
    let mut info = [0u8; 80];
    #[repr(C)]
    struct Attr {
        fd: u32,
        length: u32,
        info: u64,
    }
    let attr = Attr {
        fd: program.as_raw_fd() as u32,
        length: 80,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: the attribute states the length of the buffer that it points to. The all-zero
    // pointers in the buffer request nothing else.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_OBJ_GET_INFO_BY_FD,
            &attr,
            size_of::<Attr>(),
        )
    };
    let name = &info[64..];
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    (result == 0).then(|| String::from_utf8_lossy(&name[..end]).into_owned())
}

pub fn programs_of(pid: u32) -> Result<Vec<ProgramStats>> {
    let dir = format!("/proc/{pid}/fdinfo");
    let entries = fs::read_dir(&dir).map_err(LabError::file("reading", &dir))?;
    let mut programs: Vec<ProgramStats> = entries
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .filter_map(|text| program_stats(&text))
        .collect();
    programs.sort_unstable_by_key(|p| p.id);
    programs.dedup_by_key(|p| p.id);
    Ok(programs)
}

fn program_stats(fdinfo: &str) -> Option<ProgramStats> {
    let field = |key: &str| {
        fdinfo.lines().find_map(|l| {
            l.strip_prefix(key)?
                .strip_prefix(':')?
                .trim()
                .parse::<u64>()
                .ok()
        })
    };
    Some(ProgramStats {
        id: u32::try_from(field("prog_id")?).ok()?,
        run_time_ns: field("run_time_ns")?,
        runs: field("run_cnt")?,
    })
}

/// A probe on one instruction of a file. It acts in every process that executes the file's code.
#[derive(Debug)]
pub struct Uprobe {
    _event: OwnedFd,
}

impl Uprobe {
    /// Attaches a BPF program that does nothing to the instruction at `file_offset`. With
    /// `at_return`, the BPF program runs when the function returns (uretprobe).
    pub fn attach(file: &Path, file_offset: u64, at_return: bool) -> Result<Self> {
        let program = load_empty_program()?;
        let what = format!(
            "attaching a uprobe to {} at {file_offset:#x}",
            file.display()
        );
        let pmu = Path::new("/sys/bus/event_source/devices/uprobe/type");
        let pmu_type: u32 = files::text(pmu)?
            .trim()
            .parse()
            .map_err(|e| LabError::in_file(pmu, e))?;
        let path = CString::new(file.as_os_str().as_encoded_bytes())
            .map_err(|e| LabError::in_file(file, e))?;
        // struct perf_event_attr as far as a uprobe needs it (PERF_ATTR_SIZE_VER5, 112 bytes).
        let mut attr = [0u64; 14];
        attr[0] = u64::from(pmu_type) | (112 << 32);
        attr[1] = u64::from(at_return);
        attr[7] = path.as_ptr() as u64;
        attr[8] = file_offset;
        // SAFETY: the attribute has the size that it states and points to a path that outlives the
        // call. pid -1 and cpu 0 mean every process; a uprobe's program runs on whichever CPU hits
        // it.
        let event = owned(
            unsafe {
                libc::syscall(
                    libc::SYS_perf_event_open,
                    attr.as_ptr(),
                    -1,
                    0,
                    -1,
                    PERF_FLAG_FD_CLOEXEC,
                )
            },
            &what,
        )?;
        // SAFETY: both ioctls take plain numbers. The event holds the program from here on.
        unsafe {
            if libc::ioctl(
                event.as_raw_fd(),
                PERF_EVENT_IOC_SET_BPF,
                program.as_raw_fd(),
            ) < 0
                || libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0) < 0
            {
                return Err(LabError::kernel(what));
            }
        }
        Ok(Uprobe { _event: event })
    }
}

fn load_empty_program() -> Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        rest: [u64; 12],
    }
    let instructions: [u64; 2] = [0xb7, 0x95];
    let license = c"GPL";
    let attr = Attr {
        prog_type: BPF_PROG_TYPE_KPROBE,
        insn_cnt: 2,
        insns: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        rest: [0; 12],
    };
    // SAFETY: the attribute has the layout of bpf(2) for BPF_PROG_LOAD. The memory that it points
    // to outlives the call, and the zeros at its end mean "not given".
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &attr, size_of::<Attr>()) };
    owned(result, "loading a BPF program")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_descriptors_of_bpf_programs_have_program_statistics() {
        let text = "pos:\t0\nflags:\t02000002\nprog_type:\t2\nprog_jited:\t1\nprog_tag:\ta04f5eef06a7f555\n\
                    memlock:\t4096\nprog_id:\t42\nrun_time_ns:\t1500\nrun_cnt:\t3\n";
        assert_eq!(
            program_stats(text),
            Some(ProgramStats {
                id: 42,
                run_time_ns: 1500,
                runs: 3
            })
        );
        assert_eq!(
            program_stats("pos:\t0\nflags:\t0100002\nmnt_id:\t14\n"),
            None
        );
    }
}
