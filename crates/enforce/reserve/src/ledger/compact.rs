//! Compacts a ledger after days in which threads came and went.
//!
//! A snapshot of the ledger is appended, and the space before it is returned to the file system.
//! The file stays the same, because the guard has it open and both processes have locked it. At
//! every instant it lists all changes to undo: the entries before a snapshot count until the end of
//! the snapshot is written.

use super::state::State;
use super::{Entry, Ledger, Snapshot, Thread};
use std::collections::BTreeMap;
use std::io::{self, Write};

impl Ledger {
    /// Removes entries from the ledger that are no longer needed to undo changes. Does not change a
    /// ledger with lines that cannot be read, because the final report lists these lines.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, also if the file system cannot take back the space of
    /// the old entries. The ledger then remains valid and only takes more space.
    pub(crate) fn compact(&self) -> io::Result<()> {
        let state = State::of(&self.text()?);
        if state.torn > 0 {
            return Ok(());
        }
        let before = self.length()?;
        let kept = state.kept().into_iter();
        let begin = std::iter::once(Entry::Snapshot(Snapshot::Begin));
        let end = std::iter::once(Entry::Snapshot(Snapshot::End));
        let mut lines = vec![b'\n'];
        for entry in begin.chain(kept).chain(end) {
            serde_json::to_writer(&mut lines, &entry)?;
            lines.push(b'\n');
        }
        self.file().write_all(&lines)?;
        self.give_back(before)
    }
}

impl State {
    fn kept(&self) -> Vec<Entry> {
        let groups = self.groups.iter().cloned().map(Entry::Group);
        let guard = self.guard.map(|(pid, start)| Entry::Guard(pid, start));
        let (alive, gone): (Vec<&Thread>, Vec<&Thread>) =
            self.threads.iter().partition(|t| t.lives());
        let mut ended: Vec<Thread> = gone.into_iter().chain(&self.released).cloned().collect();
        keep_one_per_process_and_cpu(&mut ended);
        let alive = alive.into_iter().cloned().map(Entry::Thread);
        let ended = ended.into_iter().flat_map(|t| {
            let released = Entry::Released(t.tid, t.start);
            [Entry::Thread(t), released]
        });
        guard
            .into_iter()
            .chain(groups)
            .chain(alive)
            .chain(ended)
            .collect()
    }
}

/// Removes entries from a list of ended or released threads. Keeps one thread for each running
/// process and CPU, and one for each CPU among all ended processes. The list only serves to find
/// threads that inherited their state from one of its threads.
pub(crate) fn keep_one_per_process_and_cpu(ended: &mut Vec<Thread>) {
    let mut kept: BTreeMap<(Option<u32>, Option<u16>), Thread> = BTreeMap::new();
    for thread in ended.drain(..) {
        let process = onbeat_proc::is_alive(thread.tgid).then_some(thread.tgid);
        let cpu = thread.bound.map(|(cpu, _)| cpu);
        let at = |t: &Thread| t.bound.map(|(_, at)| at);
        match kept.get(&(process, cpu)) {
            // Any thread started after the first of them may have inherited its state.
            Some(first) if at(first) <= at(&thread) => {}
            _ => {
                kept.insert((process, cpu), thread);
            }
        }
    }
    ended.extend(kept.into_values());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::identity;
    use crate::ledger::{Group, Ledgers};
    use crate::sys::Scheduling;

    fn thread(tid: u32, start: u64, at: u64) -> Thread {
        Thread {
            tid,
            tgid: 4_100_000 + tid % 7,
            start,
            scheduling: Scheduling::fifo(3),
            cpus: vec![0, 1],
            home: None,
            bound: Some((1, at)),
        }
    }

    fn own() -> Thread {
        let tid = crate::sys::gettid();
        let identity = identity(tid).unwrap();
        Thread {
            tgid: identity.tgid,
            ..thread(tid, identity.start, 5)
        }
    }

    fn ledgers() -> (tempfile::TempDir, Ledgers) {
        let dir = tempfile::tempdir().unwrap();
        let ledgers = Ledgers::open(&dir.path().join("state")).unwrap();
        (dir, ledgers)
    }

    fn group() -> Group {
        Group {
            thaw: None,
            members: "/m".into(),
            home: "/h".into(),
            dir: "/d".into(),
        }
    }

    #[test]
    fn a_week_of_threads_that_come_and_go_leaves_a_small_ledger() {
        let (_dir, ledgers) = ledgers();
        let ledger = ledgers.create("week").unwrap();
        ledger.note(&Entry::Group(group())).unwrap();
        ledger.note(&Entry::Guard(77, 5)).unwrap();
        ledger.note(&Entry::Thread(own())).unwrap();
        let (mut most, threads) = (0, 7 * 24 * 360);
        for n in 0..threads {
            let tid = 4_200_000 + (n % 1000) as u32;
            ledger.note(&Entry::Thread(thread(tid, n, n))).unwrap();
            if n % 500 == 499 {
                if let Err(e) = ledger.compact() {
                    println!("skipped: this file system keeps all space: {e}");
                    return;
                }
                most = most.max(ledger.bytes_in_use().unwrap());
            }
        }
        ledger.compact().unwrap();
        assert!(most <= 64 << 10, "{most} bytes");
        let state = State::of(&ledger.text().unwrap());
        assert_eq!(state.groups, [group()]);
        assert_eq!(state.threads, [own()]);
        assert_eq!((state.released.len(), state.torn), (1, 0));
        assert_eq!(state.guard, Some((77, 5)));
        // Other reservations find its threads too.
        let other = ledgers.create("other").unwrap();
        let found = ledgers.owner(&other, own().tid, own().start);
        assert_eq!(found.as_deref(), Some("week"));
    }

    #[test]
    fn an_interrupted_compaction_of_a_ledger_loses_no_entry() {
        let (_dir, ledgers) = ledgers();
        let ledger = ledgers.create("cut").unwrap();
        ledger.note(&Entry::Group(group())).unwrap();
        for n in 0..20 {
            ledger.note(&Entry::Thread(thread(n, 7, 9))).unwrap();
        }
        ledger.note(&Entry::Thread(own())).unwrap();
        let before = ledger.text().unwrap();
        // The test covers the file before the space is given back, and the case that this fails.
        let gave_back = ledger.compact();
        let after = ledger.text().unwrap();
        let snapshot = match gave_back {
            Ok(()) => after.trim_start_matches('\0'),
            Err(_) => &after[before.len()..],
        };
        let whole = State::of(&after);
        assert_eq!((&whole.threads[..], whole.torn), (&[own()][..], 0));
        for cut in 0..snapshot.len() {
            // A writer that continues after the disk was full begins a new line.
            let next = serde_json::to_string(&Entry::Thread(thread(99, 8, 9))).unwrap();
            let torn = format!("{before}{}\n{next}\n", &snapshot[..cut]);
            let state = State::of(&torn);
            assert!(state.threads.contains(&own()), "cut at {cut}");
            assert!(state.threads.contains(&thread(99, 8, 9)), "cut at {cut}");
            assert_eq!(state.groups, [group()]);
            let kept = (0..20).filter(|&n| {
                let t = thread(n, 7, 9);
                state.threads.contains(&t) || state.released.contains(&t)
            });
            let ends = cut + 1 >= snapshot.len();
            assert!(ends || kept.count() == 20, "cut at {cut}");
        }
    }

    #[test]
    fn a_ledger_with_unreadable_lines_is_not_compacted() {
        let (_dir, ledgers) = ledgers();
        let ledger = ledgers.create("torn").unwrap();
        ledger.note(&Entry::Thread(own())).unwrap();
        ledger.file().write_all(b"{\"thread\":\n").unwrap();
        let before = ledger.text().unwrap();
        ledger.compact().unwrap();
        assert_eq!(ledger.text().unwrap(), before, "nothing is written");
    }

    #[test]
    fn a_compacted_ledger_keeps_one_ended_thread_for_each_running_process_and_cpu() {
        let here = std::process::id();
        let of = |tgid, cpu, at| Thread {
            tgid,
            bound: Some((cpu, at)),
            ..thread(1, 1, 1)
        };
        let gone = 4_194_000;
        let mut ended = vec![of(here, 0, 9), of(here, 0, 3), of(here, 1, 4)];
        ended.extend((0..50).map(|n| of(gone + n, 1, 100 + u64::from(n))));
        keep_one_per_process_and_cpu(&mut ended);
        assert_eq!(ended, [of(gone, 1, 100), of(here, 0, 3), of(here, 1, 4)]);
    }
}
