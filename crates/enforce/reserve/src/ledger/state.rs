//! The changes that a ledger's text describes, and how they are undone.

use super::{inherited, put, Entry, Group, Restored, Thread};
use crate::identity::identity;
use crate::sys;
use onbeat_proc::cgroup;
use std::fs;
use std::io;
use std::time::Duration;

/// Attempts to remove a group: threads that are ending stay in it for a moment.
const REMOVE_ATTEMPTS: u32 = 400;
/// Time between two attempts.
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

/// The changes of a ledger that are not undone yet.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) groups: Vec<Group>,
    pub(super) threads: Vec<Thread>,
}

impl State {
    /// From the text of a ledger.
    pub(super) fn of(text: &str) -> State {
        let mut state = State::default();
        // A last line without an end was not finished, and its change did not begin.
        for line in text.split_inclusive('\n').filter(|l| l.ends_with('\n')) {
            match serde_json::from_str(line) {
                Ok(Entry::Group(group)) => {
                    if !state.groups.contains(&group) {
                        state.groups.push(group);
                    }
                }
                Ok(Entry::Thread(thread)) => state.threads.push(thread),
                Ok(Entry::Released(tid, start)) => {
                    state.threads.retain(|t| (t.tid, t.start) != (tid, start));
                }
                Err(_) => {}
            }
        }
        state
    }

    /// Undoes all changes. May be called again, also after it was interrupted at any point.
    pub(super) fn restore(&self) -> Restored {
        let mut report = Restored::default();
        // While threads are frozen, so that none runs at a real-time priority outside its slots.
        let scheduled: Vec<io::Result<()>> = self
            .threads
            .iter()
            .map(|t| if_alive(t, |t| t.schedule_back(t.tid)))
            .collect();
        self.thaw(&mut report);
        for (thread, scheduled) in self.threads.iter().zip(scheduled) {
            let moved = if_alive(thread, Thread::move_back);
            match scheduled.and(moved) {
                _ if !thread.lives() => report.gone += 1,
                Ok(()) => report.threads += 1,
                Err(e) => report.fail(format!("cannot put thread {} back: {e}", thread.tid)),
            }
        }
        for group in self.groups.iter().rev() {
            self.remove(group, &mut report);
        }
        self.unpin_children();
        report
    }

    /// Lets the threads of all groups run.
    fn thaw(&self, report: &mut Restored) {
        for (file, text) in self.groups.iter().filter_map(|g| g.thaw.as_ref()) {
            if let Err(e) = fs::write(file, text) {
                if file.exists() {
                    report.fail(format!("cannot write {text} to {}: {e}", file.display()));
                }
            }
        }
    }

    /// Lets threads that pinned threads have started meanwhile use the CPUs of their parents again.
    fn unpin_children(&self) {
        let mut processes: Vec<u32> = self.threads.iter().map(|t| t.tgid).collect();
        processes.sort_unstable();
        processes.dedup();
        for tgid in processes {
            for tid in onbeat_proc::threads(tgid) {
                let known = self.threads.iter().any(|t| t.tid == tid && t.lives());
                let (Some(of_child), Ok(cpus), false) = (identity(tid), sys::affinity(tid), known)
                else {
                    continue;
                };
                let theirs = inherited(self.threads.iter(), tgid, of_child.start, &cpus);
                if let Some(theirs) = theirs {
                    // One that has ended meanwhile needs nothing.
                    let _ = sys::set_affinity(tid, theirs);
                }
            }
        }
    }

    /// Empties and removes a group. A thread in it that is not in the ledger was started by one
    /// that is.
    fn remove(&self, group: &Group, report: &mut Restored) {
        for attempt in 1..=REMOVE_ATTEMPTS {
            self.empty(group);
            match fs::remove_dir(&group.dir) {
                Ok(()) => {
                    report.groups += 1;
                    return;
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => return,
                // Threads that are ending stay in it for a moment.
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

    /// Moves the threads of a group out of it, each as its process's thread in the ledger was.
    fn empty(&self, group: &Group) {
        for tid in cgroup::ids(&group.members) {
            let tgid = identity(tid).map(|i| i.tgid);
            let relative = self.threads.iter().find(|t| Some(t.tgid) == tgid);
            if let Some(relative) = relative {
                let _ = relative.schedule_back(tid);
                let _ = sys::set_nice(tid, relative.scheduling.nice);
            }
            let home = relative.and_then(|r| r.home.as_ref());
            let _ = put(tid, home.unwrap_or(&group.home));
        }
    }
}

/// Does something with a thread that still runs; nothing with one that has ended.
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
    fn what_is_noted_is_read_up_to_the_last_whole_line() {
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
        assert_eq!(cut.threads, [thread(2)]);
    }
}
