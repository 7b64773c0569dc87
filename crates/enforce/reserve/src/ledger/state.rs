//! The changes that the text of a ledger describes, and how they are undone.

use super::{children, move_to_cgroup, place, Entry, Group, Restored, Snapshot, Thread};
use crate::sys;
use onbeat_proc::cgroup;
use std::fs;
use std::io;
use std::time::Duration;

const REMOVE_ATTEMPTS: u32 = 400;
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) groups: Vec<Group>,
    pub(super) threads: Vec<Thread>,
    /// The threads that were put back. A thread that one of them started may still have the state
    /// that it inherited.
    pub(super) released: Vec<Thread>,
    pub(super) guard: Option<(u32, u64)>,
    pub(super) torn: usize,
}

impl State {
    pub(super) fn of(text: &str) -> State {
        let mut state = State::default();
        let mut snapshot: Option<State> = None;
        // A last line without a line end is incomplete, so its change did not begin.
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        // Space that was given back reads as zeros.
        let lines = whole.lines().map(|line| line.trim_start_matches('\0'));
        for line in lines.filter(|line| !line.is_empty()) {
            match serde_json::from_str(line) {
                Ok(Entry::Snapshot(Snapshot::Begin)) => snapshot = Some(State::default()),
                Ok(Entry::Snapshot(Snapshot::End)) => {
                    let torn = state.torn;
                    state = snapshot.take().unwrap_or(state);
                    state.torn = torn;
                }
                Ok(entry) => {
                    // The old entries still count, because the end of a snapshot may never be
                    // written.
                    if let Some(snapshot) = &mut snapshot {
                        snapshot.apply(&entry);
                    }
                    state.apply(&entry);
                }
                Err(_) => state.torn += 1,
            }
        }
        state
    }

    fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Group(group) if !self.groups.contains(group) => {
                self.groups.push(group.clone());
            }
            // Only the state before the first change counts.
            Entry::Thread(thread)
                if !self.threads.iter().any(|t| is(t, thread.tid, thread.start)) =>
            {
                self.threads.push(thread.clone());
            }
            Entry::Released(tid, start) => {
                let (back, rest) = std::mem::take(&mut self.threads)
                    .into_iter()
                    .partition(|t| is(t, *tid, *start));
                self.threads = rest;
                let back: Vec<Thread> = back;
                self.released.extend(back);
            }
            Entry::Guard(pid, start) => self.guard = Some((*pid, *start)),
            Entry::Group(_) | Entry::Thread(_) | Entry::Snapshot(_) => {}
        }
    }

    /// Undoes all changes. It may be called again, even if an earlier call was interrupted at any
    /// point.
    pub(super) fn restore(&self) -> Restored {
        let mut report = Restored::default();
        let groups = self.trusted_groups(&mut report);
        // Threads are put back while they are frozen, so that none runs at a real-time priority
        // outside of its slots.
        let scheduled: Vec<io::Result<()>> = self
            .threads
            .iter()
            .map(|t| if_alive(t, |t| t.schedule_back(t.tid)))
            .collect();
        thaw(&groups, &mut report);
        let online = sys::online().unwrap_or_default();
        for (thread, scheduled) in self.threads.iter().zip(scheduled) {
            let moved = if_alive(thread, |thread| match place::is_home(thread) {
                true => thread.move_back(),
                false => Err(io::Error::other(
                    "the thread's previous cgroup is outside of all cgroup hierarchies",
                )),
            });
            match scheduled.and(moved) {
                _ if !thread.lives() => report.gone += 1,
                Ok(()) => {
                    report.threads += 1;
                    note_offline(thread, &online, &mut report);
                }
                Err(e) => report.fail(format!("cannot restore thread {}: {e}", thread.tid)),
            }
        }
        let all: Vec<Thread> = self.threads.iter().chain(&self.released).cloned().collect();
        for group in groups.iter().rev() {
            remove(group, &all, &mut report);
        }
        children::unpin(&all);
        report
    }

    fn trusted_groups(&self, report: &mut Restored) -> Vec<&Group> {
        let mut groups = Vec::new();
        for group in self.groups.iter().filter(|g| g.dir.exists()) {
            match place::is_ours(group) {
                true => groups.push(group),
                false => report.fail(format!(
                    "{} is not a cgroup that a reservation made, so onbeat leaves it as it is",
                    group.dir.display()
                )),
            }
        }
        groups
    }
}

fn is(thread: &Thread, tid: u32, start: u64) -> bool {
    (thread.tid, thread.start) == (tid, start)
}

fn note_offline(thread: &Thread, online: &[u16], report: &mut Restored) {
    let offline: Vec<u16> = thread
        .cpus
        .iter()
        .filter(|c| !online.contains(c))
        .copied()
        .collect();
    if !offline.is_empty() && !online.is_empty() {
        report.remark(format!(
            "thread {} could use CPUs {offline:?} before, but they are offline now. The thread may use its other CPUs",
            thread.tid
        ));
    }
}

fn thaw(groups: &[&Group], report: &mut Restored) {
    for (file, text) in groups.iter().filter_map(|g| g.thaw.as_ref()) {
        if let Err(e) = fs::write(file, text) {
            if file.exists() {
                report.fail(format!("cannot write {text} to {}: {e}", file.display()));
            }
        }
    }
}

fn remove(group: &Group, threads: &[Thread], report: &mut Restored) {
    for attempt in 1..=REMOVE_ATTEMPTS {
        empty(group, threads);
        match fs::remove_dir(&group.dir) {
            Ok(()) => {
                report.groups += 1;
                return;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return,
            // Threads that are ending stay in the group for a moment.
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && attempt < REMOVE_ATTEMPTS => {
                std::thread::sleep(REMOVE_PAUSE);
            }
            Err(e) => {
                report.fail(format!("cannot remove {}: {e}", group.dir.display()));
                return;
            }
        }
    }
}

/// Moves all threads out of a cgroup. A thread that is in no ledger was started by one of
/// `threads`, and gets that thread's previous state.
fn empty(group: &Group, threads: &[Thread]) {
    for tid in cgroup::ids(&group.members) {
        let relative = children::relative(threads, tid);
        if let Some(relative) = relative {
            let _ = relative.schedule_back(tid);
            let _ = sys::set_nice(tid, relative.scheduling.nice);
        }
        let home = relative
            .filter(|r| place::is_home(r))
            .and_then(|r| r.home.as_ref());
        let _ = move_to_cgroup(tid, home.unwrap_or(&group.home));
    }
}

fn if_alive(thread: &Thread, what: impl Fn(&Thread) -> io::Result<()>) -> io::Result<()> {
    match thread.lives() {
        true => what(thread),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Scheduling;

    fn thread(tid: u32) -> Thread {
        Thread {
            tid,
            tgid: tid,
            start: 7,
            scheduling: Scheduling::fifo(3),
            cpus: vec![0, 1],
            home: Some("/sys/fs/cgroup/a\nb/tasks".into()),
            bound: Some((1, 5)),
        }
    }

    #[test]
    fn a_ledger_is_read_up_to_the_last_complete_line() {
        let line = |e: Entry| serde_json::to_string(&e).unwrap() + "\n";
        let group = Group {
            thaw: None,
            members: "/m".into(),
            home: "/h".into(),
            dir: "/d".into(),
        };
        let text: String = [
            line(Entry::Group(group.clone())),
            line(Entry::Group(group)),
            line(Entry::Thread(thread(1))),
            line(Entry::Thread(thread(2))),
            line(Entry::Released(1, 7)),
            line(Entry::Released(2, 8)),
            line(Entry::Thread(thread(3))),
        ]
        .concat();
        let whole = State::of(&text);
        assert_eq!(whole.groups.len(), 1);
        assert_eq!(whole.threads, [thread(2), thread(3)]);
        let cut = State::of(&text[..text.len() - 1]);
        assert_eq!((cut.threads, cut.torn), (vec![thread(2)], 0));
        // Only the torn line is lost, for example after the disk was full.
        let entry = |t| line(Entry::Thread(thread(t)));
        let torn = format!("{}{}\n{}", entry(1), &entry(2)[..30], entry(3));
        let rest = State::of(&torn);
        assert_eq!((rest.threads, rest.torn), (vec![thread(1), thread(3)], 1));
    }
}
