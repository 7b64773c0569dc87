//! Reads the kernel's records. What is too short is left out.

use onbeat_trace::Name;

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SWITCH: u32 = 14;
/// In the record's flags: the name is that of a new program; the switch is one out of the CPU.
const BY_EXEC: u16 = 1 << 13;
const SWITCH_OUT: u16 = 1 << 13;
/// The thread stays runnable: it was preempted.
const PREEMPTED: u16 = 1 << 14;
/// What follows every record: process, thread, time, CPU.
const END_BYTES: usize = 24;

/// Something that a thread did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// On this CPU.
    pub cpu: u16,
    /// Process, in the recorder's pid namespace.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// What it was.
    pub what: What,
}

/// What a thread did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// It got the CPU.
    In,
    /// It left the CPU.
    Out {
        /// It could have run on.
        preempted: bool,
    },
    /// It began.
    Fork {
        /// The process that made it.
        parent_pid: u32,
        /// The thread that made it.
        parent_tid: u32,
    },
    /// It executes another program.
    Exec {
        /// Its name from now on.
        comm: Name,
    },
    /// It ended.
    Exit,
}

/// What a record says.
#[derive(Debug, PartialEq, Eq)]
pub enum Record {
    /// Something that a thread did.
    Seen(Seen),
    /// So many records found the buffer full.
    Lost(u64),
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    bytes.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Reads a record with its head. `None` for kinds that say nothing here.
pub fn read(record: &[u8]) -> Option<Record> {
    let (kind, flags) = (u32_at(record, 0)?, u16_at(record, 4)?);
    let content = record.get(8..record.len().checked_sub(END_BYTES)?)?;
    let end = &record[record.len() - END_BYTES..];
    let mut seen = Seen {
        pid: u32_at(end, 0)?,
        tid: u32_at(end, 4)?,
        time_ns: u64_at(end, 8)?,
        cpu: u16::try_from(u32_at(end, 16)?).unwrap_or(u16::MAX),
        what: What::In,
    };
    seen.what = match kind {
        LOST => return Some(Record::Lost(u64_at(content, 8)?)),
        SWITCH if flags & SWITCH_OUT == 0 => What::In,
        SWITCH => What::Out {
            preempted: flags & PREEMPTED != 0,
        },
        COMM if flags & BY_EXEC != 0 => What::Exec {
            comm: text(content.get(8..)?),
        },
        // Written by the parent: whom they are about stands in their content.
        FORK | EXIT => {
            (seen.pid, seen.tid) = (u32_at(content, 0)?, u32_at(content, 8)?);
            match kind {
                EXIT => What::Exit,
                _ => What::Fork {
                    parent_pid: u32_at(content, 4)?,
                    parent_tid: u32_at(content, 12)?,
                },
            }
        }
        _ => return None,
    };
    Some(Record::Seen(seen))
}

fn text(bytes: &[u8]) -> Name {
    let length = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, flags: u16, content: &[u8]) -> Vec<u8> {
        let mut record = kind.to_le_bytes().to_vec();
        record.extend(flags.to_le_bytes());
        record.extend(((8 + content.len() + END_BYTES) as u16).to_le_bytes());
        record.extend(content);
        record.extend([7u32, 8].map(u32::to_le_bytes).concat());
        record.extend(5_000u64.to_le_bytes());
        record.extend([1u32, 0].map(u32::to_le_bytes).concat());
        record
    }

    fn seen(record: &[u8]) -> Seen {
        match read(record) {
            Some(Record::Seen(seen)) => seen,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn switches_lives_and_losses_are_told_apart() {
        let out = |flags| seen(&record(SWITCH, SWITCH_OUT | flags, &[])).what;
        assert_eq!(out(0), What::Out { preempted: false });
        assert_eq!(out(PREEMPTED), What::Out { preempted: true });
        let got = seen(&record(SWITCH, 0, &[]));
        assert_eq!((got.pid, got.tid, got.time_ns, got.cpu), (7, 8, 5_000, 1));
        assert_eq!(got.what, What::In);
        let ids = [70u32, 71, 80, 81, 0, 0].map(u32::to_le_bytes).concat();
        let fork = seen(&record(FORK, 0, &ids));
        let expected = What::Fork {
            parent_pid: 71,
            parent_tid: 81,
        };
        assert_eq!((fork.pid, fork.tid, fork.what), (70, 80, expected));
        assert_eq!(seen(&record(EXIT, 0, &ids)).what, What::Exit);
        let name = [&[0; 8][..], b"talker\0\0"].concat();
        let comm = "talker".into();
        assert_eq!(
            seen(&record(COMM, BY_EXEC, &name)).what,
            What::Exec { comm }
        );
        assert_eq!(read(&record(COMM, 0, &name)), None);
        let lost = [3u64, 9].map(u64::to_le_bytes).concat();
        assert_eq!(read(&record(LOST, 0, &lost)), Some(Record::Lost(9)));
    }

    #[test]
    fn cut_records_do_no_harm() {
        let ids = [70u32, 71, 80, 81, 0, 0].map(u32::to_le_bytes).concat();
        for kind in 0..24 {
            let full = record(kind, BY_EXEC, &ids);
            for length in 0..full.len() {
                let _ = read(&full[..length]);
            }
        }
        assert_eq!(read(&record(FORK, 0, &ids[..8])), None);
        assert_eq!(read(&[]), None);
    }
}
