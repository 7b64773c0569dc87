//! The reports of the shaper to its owner: one record of fixed size per item, through a pipe. The
//! shaper never waits for the pipe.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// The meaning of the bits in [`Record::flags`].
pub mod flags {
    /// The item missed the slots of its own execution.
    pub const LATE: u32 = 1;
    /// The shaper discarded the item instead of publishing it.
    pub const DROPPED: u32 = 2;
    /// The item was discarded because a newer one arrived before its slot (throttler).
    pub const REPLACED: u32 = 4;
    /// The shaper passed the item on at once, without a slot.
    pub const PASSED: u32 = 8;
    /// The middleware refused to publish the item.
    pub const FAILED: u32 = 16;
    /// The record is not about an item: the output's endpoints exist from now on.
    pub const READY: u32 = 32;
    /// The item was late, and the policy `stop` therefore ended shaping.
    pub const STOPPED: u32 = 64;
    /// The item's cycle was inferred from its arrival, because the start of its execution was
    /// unknown.
    pub const BY_ARRIVAL: u32 = 128;
    /// The record is about a message that could not be held inside the application: it was too
    /// large, lent by the middleware, or there was no room. The message left at once, after the
    /// held messages.
    pub const NOT_HELD: u32 = 256;
}

/// The passage of one item through the shaper. Times are CLOCK_MONOTONIC in ns, except the source
/// time stamp.
#[allow(missing_docs)] // the names say what they are
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    /// The number of the item among the items of its output, counted from 0.
    pub sequence: u64,
    /// The source time stamp of the publication on the held topic (CLOCK_REALTIME).
    pub source_ns: i64,
    /// The time at which the shaper's receiver had taken the item (CLOCK_MONOTONIC).
    pub arrival_ns: i64,
    /// The time at which the publish call began (CLOCK_MONOTONIC), or 0 if the item was not
    /// published.
    pub start_ns: i64,
    /// The time at which the publish call returned (CLOCK_MONOTONIC).
    pub end_ns: i64,
    /// The start of the slot in which the item left, in ns (CLOCK_MONOTONIC).
    pub slot_start_ns: i64,
    /// The number of the chain's execution to which the item belongs.
    pub cycle: i64,
    /// The start of the item's execution (CLOCK_MONOTONIC), as the item's lineage gives it, or 0 if
    /// the start is unknown.
    pub born_ns: i64,
    /// The index of the item's output in [`crate::config::Config::outputs`].
    pub output: u16,
    /// The index of the slot in the output's table.
    pub slot: u16,
    /// The fate of the item, as a combination of the bits in [`flags`].
    pub flags: u32,
    pub bytes: u32,
    /// The number of records that were lost just before this one, because the pipe was full.
    /// Records of all outputs count.
    pub lost: u32,
}

/// The size of a record. It is below PIPE_BUF, so the kernel never splits a record.
pub const RECORD_BYTES: usize = std::mem::size_of::<Record>();
const _: () = assert!(RECORD_BYTES == 80);

impl Record {
    /// Returns the record as bytes for the pipe, in the machine's byte order.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut out = [0; RECORD_BYTES];
        let words = [
            self.sequence,
            self.source_ns as u64,
            self.arrival_ns as u64,
            self.start_ns as u64,
            self.end_ns as u64,
            self.slot_start_ns as u64,
            self.cycle as u64,
            self.born_ns as u64,
        ];
        for (place, word) in out.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        out[64..66].copy_from_slice(&self.output.to_ne_bytes());
        out[66..68].copy_from_slice(&self.slot.to_ne_bytes());
        out[68..72].copy_from_slice(&self.flags.to_ne_bytes());
        out[72..76].copy_from_slice(&self.bytes.to_ne_bytes());
        out[76..80].copy_from_slice(&self.lost.to_ne_bytes());
        out
    }

    /// Returns the record that bytes from the pipe contain.
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Record {
        let word =
            |i: usize| u64::from_ne_bytes(bytes[i * 8..][..8].try_into().unwrap_or_default());
        let half = |i: usize| u32::from_ne_bytes(bytes[i..][..4].try_into().unwrap_or_default());
        let short = |i: usize| u16::from_ne_bytes(bytes[i..][..2].try_into().unwrap_or_default());
        Record {
            sequence: word(0),
            source_ns: word(1) as i64,
            arrival_ns: word(2) as i64,
            start_ns: word(3) as i64,
            end_ns: word(4) as i64,
            slot_start_ns: word(5) as i64,
            cycle: word(6) as i64,
            born_ns: word(7) as i64,
            output: short(64),
            slot: short(66),
            flags: half(68),
            bytes: half(72),
            lost: half(76),
        }
    }
}

/// The shaper's end of the pipe for reports. All threads of the shaper share it.
#[derive(Debug)]
pub struct Reporter {
    fd: Option<RawFd>,
    lost: AtomicU32,
}

impl Reporter {
    /// Creates a reporter that writes to an inherited pipe, and makes the pipe non-blocking. With
    /// `None`, the reporter discards all records.
    pub fn new(fd: Option<RawFd>) -> io::Result<Reporter> {
        if let Some(fd) = fd {
            // SAFETY: the call takes no pointers; a wrong descriptor is an error.
            let old = unsafe { libc::fcntl(fd, libc::F_GETFL) };
            // SAFETY: the call takes no pointers; a wrong descriptor is an error.
            if old < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, old | libc::O_NONBLOCK) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Reporter {
            fd,
            lost: AtomicU32::new(0),
        })
    }

    /// Writes a record to the pipe, or counts it as lost if the pipe is full. Real-time safe: one
    /// system call that does not wait.
    pub fn send(&self, mut record: Record) {
        let Some(fd) = self.fd else { return };
        record.lost = self.lost.swap(0, Ordering::Relaxed);
        let bytes = record.to_bytes();
        // SAFETY: the bytes are valid during the call.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        if written != bytes.len() as isize {
            self.lost.fetch_add(record.lost + 1, Ordering::Relaxed);
        }
    }

    /// Reports whether the owner is dead: no process has the reading end of the pipe open any more.
    pub fn owner_is_gone(&self) -> bool {
        let Some(fd) = self.fd else { return false };
        let mut poll = libc::pollfd {
            fd,
            events: 0,
            revents: 0,
        };
        // SAFETY: the one entry is valid during the call.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 && poll.revents & libc::POLLERR != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{pipe, Read};
    use std::os::fd::AsRawFd;

    #[test]
    fn records_that_a_full_pipe_refuses_are_counted() {
        let (mut reader, writer) = pipe().unwrap();
        let reporter = Reporter::new(Some(writer.as_raw_fd())).unwrap();
        let record = Record {
            sequence: 1,
            source_ns: -2,
            arrival_ns: 3,
            start_ns: 4,
            end_ns: 5,
            slot_start_ns: 6,
            cycle: -7,
            born_ns: 12,
            output: 8,
            slot: 9,
            flags: 10,
            bytes: 11,
            lost: 0,
        };
        reporter.send(record);
        let mut bytes = [0; RECORD_BYTES];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(Record::from_bytes(&bytes), record);
        // The pipe is full. The next record that fits reports the number of lost ones.
        for _ in 0..5000 {
            reporter.send(record);
        }
        // SAFETY: the call takes no pointers and changes only this test's descriptor.
        unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let mut got = 0;
        while reader.read(&mut bytes).is_ok() {
            assert_eq!(Record::from_bytes(&bytes).lost, 0);
            got += 1;
        }
        reporter.send(record);
        reader.read_exact(&mut bytes).unwrap();
        let lost = Record::from_bytes(&bytes).lost;
        assert_eq!(got + lost, 5000);
        assert!(lost > 0);
        assert!(!reporter.owner_is_gone());
        drop(reader);
        assert!(reporter.owner_is_gone());
        reporter.send(record);
    }
}
