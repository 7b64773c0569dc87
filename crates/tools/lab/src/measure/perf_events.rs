//! Switches the perf events of another process off and on while it uses them.

use super::uprobe::{owned, PERF_EVENT_IOC_ENABLE};
use crate::frame::{LabError, Result};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
const OPENING: &str = "opening the perf events of a process";
const LINK: &str = "anon_inode:[perf_event]";

/// Copies of the descriptors of all perf events that a process had open. The events stay open even
/// after the process has ended.
#[derive(Debug)]
pub struct PerfEvents(Vec<OwnedFd>);

impl PerfEvents {
    pub fn of(pid: u32) -> Result<PerfEvents> {
        let numbers = numbers(Path::new(&format!("/proc/{pid}/fd")))?;
        if numbers.is_empty() {
            let what = format!("process {pid}");
            return Err(LabError::unexpected(what, "the process has no perf events"));
        }
        // SAFETY: plain numbers.
        let process = owned(
            unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) },
            OPENING,
        )?;
        let copy = |number: &i32| {
            let process = process.as_raw_fd();
            // SAFETY: plain numbers; the kernel returns a new descriptor.
            owned(
                unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, *number, 0) },
                OPENING,
            )
        };
        numbers.iter().map(copy).collect::<Result<_, _>>().map(Self)
    }

    /// Switches all perf events on or off, including the copies that child threads and processes
    /// inherited. Switches on even an event that the process itself keeps off until a child
    /// inherits it.
    pub fn switch(&self, on: bool) -> Result<()> {
        let request = match on {
            true => PERF_EVENT_IOC_ENABLE,
            false => PERF_EVENT_IOC_DISABLE,
        };
        for event in &self.0 {
            // SAFETY: an ioctl of plain numbers on a live descriptor.
            if unsafe { libc::ioctl(event.as_raw_fd(), request, 0) } != 0 {
                return Err(LabError::kernel("switching a perf event"));
            }
        }
        Ok(())
    }
}

fn numbers(dir: &Path) -> Result<Vec<i32>> {
    let entries = fs::read_dir(dir).map_err(LabError::file("reading", dir))?;
    let number = |entry: fs::DirEntry| {
        // A descriptor may be closed in the meantime.
        let target = fs::read_link(entry.path()).ok()?;
        let number = entry.file_name().to_str()?.parse().ok()?;
        (target == Path::new(LINK)).then_some(number)
    };
    Ok(entries.filter_map(|entry| number(entry.ok()?)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn perf_events_are_found_among_other_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let links = [
            ("0", "/dev/null"),
            ("3", LINK),
            ("4", "anon_inode:[eventpoll]"),
            ("5", "pipe:[17]"),
            ("12", LINK),
        ];
        for (name, target) in links {
            symlink(target, dir.path().join(name)).unwrap();
        }
        let mut found = numbers(dir.path()).unwrap();
        found.sort_unstable();
        assert_eq!(found, [3, 12]);
    }

    #[test]
    fn a_process_without_perf_events_is_an_error() {
        let error = PerfEvents::of(std::process::id()).unwrap_err().to_string();
        assert!(error.contains("no perf events"), "{error}");
    }
}
