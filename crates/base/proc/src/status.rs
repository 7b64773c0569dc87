//! The fields of `/proc/PID/status` and of other files of the same format.

use std::fs;
use std::io;

/// The text of a `/proc/PID/status` file, with a field per line. Fields are parsed on demand,
/// because a caller needs only one or two of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status(String);

impl Status {
    /// Reads the `status` file of a process, or of the thread that has this id.
    pub fn of(id: u32) -> io::Result<Status> {
        Status::read(&format!("/proc/{id}/status"))
    }

    /// Reads the `status` file of a thread, `/proc/PID/task/TID/status`.
    pub fn of_thread(pid: u32, tid: u32) -> io::Result<Status> {
        Status::read(&format!("/proc/{pid}/task/{tid}/status"))
    }

    /// Reads the memory use of a process (`smaps_rollup`). Fields such as `Rss` and `Pss` are sums
    /// over all its mappings.
    pub fn of_memory(pid: u32) -> io::Result<Status> {
        Status::read(&format!("/proc/{pid}/smaps_rollup"))
    }

    fn read(path: &str) -> io::Result<Status> {
        let bytes = fs::read(path)?;
        Ok(Status::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// Creates a [`Status`] from a text in the format of a `status` file.
    pub fn parse(text: &str) -> Status {
        Status(text.to_owned())
    }

    /// Returns the value of a field as the file has it: `field("VmLck")` may be `0 kB`. Returns
    /// `None` if the file lacks the field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| {
            let value = line.strip_prefix(name)?.strip_prefix(':')?;
            Some(value.trim())
        })
    }

    /// Returns the first word of a field's value as a number: `number("VmRSS")` is in KiB.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    }

    /// Returns the id of the process that a thread belongs to.
    pub fn process(&self) -> Option<u32> {
        self.field("Tgid")?.parse().ok()
    }

    /// Returns a bit mask of the CPUs (0 to 63) that the thread may run on.
    pub fn allowed_cpus(&self) -> Option<u64> {
        // The field has groups of 32 bits in hexadecimal, the highest first.
        let digits: Vec<u8> = self
            .field("Cpus_allowed")?
            .bytes()
            .filter(|&b| b != b',')
            .collect();
        let low = &digits[digits.len().saturating_sub(16)..];
        u64::from_str_radix(std::str::from_utf8(low).ok()?, 16).ok()
    }

    /// Returns the numbers of voluntary and of involuntary context switches since the thread's
    /// start.
    pub fn context_switches(&self) -> Option<(u64, u64)> {
        let voluntary = self.number("voluntary_ctxt_switches")?;
        Some((voluntary, self.number("nonvoluntary_ctxt_switches")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_fields_are_found_by_their_whole_name() {
        let status = Status::parse(
            "Name:\tTgid:\t9\nTgid:\t77\nVmLck:\t       0 kB\nVmRSS:\t  1234 kB\n\
             Cpus_allowed:\tffff,00000000,80000003\nCpus_allowed_list:\t0-1,31\n\
             voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n",
        );
        assert_eq!(status.process(), Some(77));
        assert_eq!(status.field("VmLck"), Some("0 kB"));
        assert_eq!(status.number("VmRSS"), Some(1234));
        assert_eq!(status.allowed_cpus(), Some(0x8000_0003));
        assert_eq!(status.context_switches(), Some((5, 6)));
        assert_eq!(status.field("Vm"), None);
        let broken = Status::parse("Cpus_allowed:\n,\nTgid:\tx\n\u{fffd}");
        assert_eq!((broken.allowed_cpus(), broken.process()), (None, None));
        assert_eq!(
            Status::parse("Cpus_allowed:\t\u{fffd}\u{fffd}").allowed_cpus(),
            None
        );
    }

    #[test]
    fn status_of_the_own_process_can_be_read() {
        let own = std::process::id();
        let status = Status::of(own).unwrap();
        assert_eq!(status.process(), Some(own));
        assert!(status.allowed_cpus().is_some_and(|cpus| cpus != 0));
        assert!(Status::of_thread(own, own)
            .unwrap()
            .context_switches()
            .is_some());
        assert!(Status::of(u32::MAX - 1).is_err());
    }

    #[test]
    fn smaps_rollup_is_parsed_like_status() {
        let memory = Status::of_memory(std::process::id()).unwrap();
        let (rss, pss) = (memory.number("Rss").unwrap(), memory.number("Pss").unwrap());
        assert!(rss > 0 && pss > 0 && pss <= rss, "{rss} {pss}");
        assert!(Status::of_memory(u32::MAX).is_err());
    }
}
