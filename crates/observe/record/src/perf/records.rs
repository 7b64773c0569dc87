//! Decodes the kernel's perf records. Records that are too short are skipped.

use onbeat_trace::Name;

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SWITCH: u32 = 14;
/// The flag in a record's head that marks a `comm` record as caused by an exec. `SWITCH_OUT` is the
/// same bit in a record of a context switch.
const BY_EXEC: u16 = 1 << 13;
const SWITCH_OUT: u16 = 1 << 13;
const PREEMPTED: u16 = 1 << 14;
const END_BYTES: usize = 24;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub time_ns: u64,
    pub cpu: u16,
    pub pid: u32,
    pub tid: u32,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    In,
    Out { preempted: bool },
    Fork { parent_pid: u32, parent_tid: u32 },
    Exec { comm: Name },
    Exit,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Record {
    Seen(Seen),
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

pub fn read(record: &[u8]) -> Option<Record> {
    let (kind, flags) = (u32_at(record, 0)?, u16_at(record, 4)?);
    let content = record.get(8..record.len().checked_sub(END_BYTES)?)?;
    let end = &record[record.len() - END_BYTES..];
    let mut seen = Seen {
        pid: u32_at(end, 0)?,
        tid: u32_at(end, 4)?,
        time_ns: u64_at(end, 8)?,
        cpu: u16::try_from(u32_at(end, 16)?).unwrap_or(u16::MAX),
        action: Action::In,
    };
    seen.action = match kind {
        LOST => return Some(Record::Lost(u64_at(content, 8)?)),
        SWITCH if flags & SWITCH_OUT == 0 => Action::In,
        SWITCH => Action::Out {
            preempted: flags & PREEMPTED != 0,
        },
        COMM if flags & BY_EXEC != 0 => Action::Exec {
            comm: text(content.get(8..)?),
        },
        // The parent writes these records. The thread's own ids are in their content.
        FORK | EXIT => {
            (seen.pid, seen.tid) = (u32_at(content, 0)?, u32_at(content, 8)?);
            match kind {
                EXIT => Action::Exit,
                _ => Action::Fork {
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
    fn switches_forks_exits_and_losses_are_decoded() {
        let out = |flags| seen(&record(SWITCH, SWITCH_OUT | flags, &[])).action;
        assert_eq!(out(0), Action::Out { preempted: false });
        assert_eq!(out(PREEMPTED), Action::Out { preempted: true });
        let got = seen(&record(SWITCH, 0, &[]));
        assert_eq!((got.pid, got.tid, got.time_ns, got.cpu), (7, 8, 5_000, 1));
        assert_eq!(got.action, Action::In);
        let ids = [70u32, 71, 80, 81, 0, 0].map(u32::to_le_bytes).concat();
        let fork = seen(&record(FORK, 0, &ids));
        let expected = Action::Fork {
            parent_pid: 71,
            parent_tid: 81,
        };
        assert_eq!((fork.pid, fork.tid, fork.action), (70, 80, expected));
        assert_eq!(seen(&record(EXIT, 0, &ids)).action, Action::Exit);
        let name = [&[0; 8][..], b"talker\0\0"].concat();
        let comm = "talker".into();
        assert_eq!(
            seen(&record(COMM, BY_EXEC, &name)).action,
            Action::Exec { comm }
        );
        assert_eq!(read(&record(COMM, 0, &name)), None);
        let lost = [3u64, 9].map(u64::to_le_bytes).concat();
        assert_eq!(read(&record(LOST, 0, &lost)), Some(Record::Lost(9)));
    }

    #[test]
    fn truncated_perf_records_are_decoded_without_a_panic() {
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
