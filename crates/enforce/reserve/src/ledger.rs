//! What was changed in the machine, noted before it is changed, and how it is put back.
//!
//! A ledger is a file with one JSON value a line. It is written by the owner of a reservation and read
//! by whoever puts things back: the owner itself, its guard when the owner has died, or
//! [`recover`](crate::recover) when both have. Its lock is held as long as owner or guard lives.

use crate::proc;
use crate::sys::{self, Scheduling};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A change of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A cgroup is made.
    Group(Group),
    /// A thread is changed.
    Thread(Thread),
    /// A thread was put back: its id and start time.
    Released(u32, u64),
}

/// A cgroup that is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// File and text that let its threads run.
    pub thaw: Option<(PathBuf, String)>,
    /// File that lists its threads.
    pub members: PathBuf,
    /// File that takes threads of whom it is not known where they came from.
    pub home: PathBuf,
    /// The cgroup's directory.
    pub dir: PathBuf,
}

/// A thread as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its id.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// When it was started, which tells it from a later thread with its id.
    pub start: u64,
    /// Policy and priority.
    pub(crate) scheduling: Scheduling,
    /// CPUs that it might use.
    pub(crate) cpus: Vec<u16>,
    /// File that takes it back into its cgroup; none where it stays in it.
    pub(crate) home: Option<PathBuf>,
    /// The CPU that it was bound to, and when: kernel ticks since the machine started. A thread that it
    /// starts inherits the binding.
    #[serde(default)]
    pub(crate) bound: Option<(u16, u64)>,
}

/// What was put back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// Threads that are as they were.
    pub threads: usize,
    /// Threads that have ended.
    pub gone: usize,
    /// Cgroups that were removed.
    pub groups: usize,
    /// What could not be put back, one line each.
    pub failures: Vec<String>,
}

impl Restored {
    fn fail(&mut self, what: String) {
        if !self.failures.contains(&what) {
            self.failures.push(what);
        }
    }

    pub(crate) fn join(&mut self, other: Restored) {
        self.threads += other.threads;
        self.gone += other.gone;
        self.groups += other.groups;
        other.failures.into_iter().for_each(|f| self.fail(f));
    }
}

/// The CPUs of a thread whose binding to one is not its own: it was started by one that we have bound,
/// later than the kernel's tick in which we did.
pub(crate) fn inherited<'t>(
    mut bound: impl Iterator<Item = &'t Thread>,
    tgid: u32,
    start: u64,
    cpus: &[u16],
) -> Option<&'t [u16]> {
    let by_us = |t: &&Thread| {
        let later = |&(cpu, at): &(u16, u64)| cpus == [cpu] && start > at;
        t.tgid == tgid && t.bound.as_ref().is_some_and(later)
    };
    bound.find(by_us).map(|t| t.cpus.as_slice())
}

impl Thread {
    fn lives(&self) -> bool {
        proc::identity(self.tid).is_some_and(|i| i.start == self.start)
    }

    /// CPUs first: SCHED_DEADLINE accepts a thread only on all of them.
    fn schedule_back(&self, tid: u32) -> io::Result<()> {
        sys::set_affinity(tid, &self.cpus)?;
        sys::schedule(tid, &self.scheduling)
    }

    fn move_back(&self) -> io::Result<()> {
        match &self.home {
            Some(home) => put(self.tid, home),
            None => Ok(()),
        }
    }

    /// Puts one thread back; false if it has ended.
    pub(crate) fn restore(&self) -> io::Result<bool> {
        if !self.lives() {
            return Ok(false);
        }
        let scheduled = self.schedule_back(self.tid);
        let moved = self.move_back();
        match scheduled.and(moved) {
            Err(_) if !self.lives() => Ok(false),
            result => result.map(|()| true),
        }
    }
}

/// Writes the thread's id into the file of a cgroup, or of the nearest one above that still exists.
fn put(tid: u32, home: &Path) -> io::Result<()> {
    let name = home.file_name().unwrap_or_default().to_os_string();
    let mut dir = home.parent();
    while let Some(d) = dir {
        let file = OpenOptions::new().write(true).open(d.join(&name));
        match file.and_then(|mut f| f.write_all(tid.to_string().as_bytes())) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound) => dir = d.parent(),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => dir = d.parent(),
            result => return result,
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// The changes that still hold.
#[derive(Debug, Default)]
struct State {
    groups: Vec<Group>,
    threads: Vec<Thread>,
}

impl State {
    fn of(text: &str) -> State {
        let mut state = State::default();
        // A last line without an end was not finished, and its change not begun.
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

    /// Puts everything back. May be called again, also after it was interrupted at any point.
    fn restore(&self) -> Restored {
        let mut report = Restored::default();
        // While they are frozen, so that nobody runs at a real-time priority out of his slot.
        let scheduled: Vec<io::Result<()>> = self
            .threads
            .iter()
            .map(|t| match t.lives() {
                true => t.schedule_back(t.tid),
                false => Ok(()),
            })
            .collect();
        for (file, text) in self.groups.iter().filter_map(|g| g.thaw.as_ref()) {
            if let Err(e) = fs::write(file, text) {
                if file.exists() {
                    report.fail(format!("cannot write {text} to {}: {e}", file.display()));
                }
            }
        }
        for (thread, scheduled) in self.threads.iter().zip(scheduled) {
            let moved = match thread.lives() {
                true => thread.move_back(),
                false => Ok(()),
            };
            match scheduled.and(moved) {
                _ if !thread.lives() => report.gone += 1,
                Ok(()) => report.threads += 1,
                Err(e) => report.fail(format!("cannot put thread {} back: {e}", thread.tid)),
            }
        }
        for group in self.groups.iter().rev() {
            self.remove(group, &mut report);
        }
        self.unbind_children();
        report
    }

    /// Threads that those which we have bound started meanwhile may use the CPUs of their process again.
    fn unbind_children(&self) {
        let mut processes: Vec<u32> = self.threads.iter().map(|t| t.tgid).collect();
        processes.sort_unstable();
        processes.dedup();
        for tgid in processes {
            for tid in proc::threads(tgid) {
                let known = self.threads.iter().any(|t| t.tid == tid && t.lives());
                let (Some(identity), Ok(cpus), false) =
                    (proc::identity(tid), sys::affinity(tid), known)
                else {
                    continue;
                };
                let theirs = inherited(self.threads.iter(), tgid, identity.start, &cpus);
                if let Some(theirs) = theirs {
                    // One that has ended meanwhile needs nothing.
                    let _ = sys::set_affinity(tid, theirs);
                }
            }
        }
    }

    /// Empties and removes a group. Threads in it that nobody put there were started by one of those
    /// that somebody did.
    fn remove(&self, group: &Group, report: &mut Restored) {
        for attempt in 0..400 {
            for tid in proc::ids(&group.members) {
                let tgid = proc::identity(tid).map(|i| i.tgid);
                let relative = self.threads.iter().find(|t| Some(t.tgid) == tgid);
                if let Some(relative) = relative {
                    let _ = relative.schedule_back(tid);
                    let _ = sys::set_nice(tid, relative.scheduling.nice);
                }
                let home = relative.and_then(|r| r.home.as_ref());
                let _ = put(tid, home.unwrap_or(&group.home));
            }
            match fs::remove_dir(&group.dir) {
                Ok(()) => {
                    report.groups += 1;
                    return;
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => return,
                // Threads that are ending stay in it for a moment.
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && attempt < 399 => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(e) => {
                    report.fail(format!("cannot remove {}: {e}", group.dir.display()));
                    return;
                }
            }
        }
    }
}

/// An owner's ledger.
pub(crate) struct Ledger {
    file: File,
    path: PathBuf,
}

impl Ledger {
    /// Begins a ledger in `dir`, and locks it.
    pub(crate) fn create(dir: &Path, name: &str) -> io::Result<Ledger> {
        let _all = lock_all(dir)?;
        let path = dir.join(format!("{name}.json"));
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        sys::lock(&file, true)?;
        Ok(Ledger { file, path })
    }

    /// Takes an entry down. What is down survives this process.
    pub(crate) fn note(&self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        (&self.file).write_all(&line)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Puts everything back, and removes the ledger unless something is left in it to be done.
    pub(crate) fn restore(&self) -> Restored {
        let mut text = String::new();
        let read = (&self.file)
            .seek(SeekFrom::Start(0))
            .and_then(|_| (&self.file).read_to_string(&mut text));
        let mut report = State::of(&text).restore();
        if let Err(e) = read {
            report.fail(format!("cannot read {}: {e}", self.path.display()));
        }
        if report.failures.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
        report
    }
}

/// Where ledgers are: as long-lived as cgroups, and writable for this user only.
pub(crate) fn default_dir() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| sys::euid() != 0);
    own.map_or("/run".into(), PathBuf::from).join("onbeat")
}

/// Makes the directory, and refuses one that another user could have filled.
pub(crate) fn prepare(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() || found.uid() != sys::euid() || found.mode() & 0o022 != 0 {
        return Err(io::Error::other(
            "it belongs to, or can be written by, somebody else",
        ));
    }
    Ok(())
}

/// Held while a ledger is begun, looked through for a thread, or recovered.
pub(crate) fn lock_all(dir: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(dir.join("lock"))?;
    sys::lock(&file, true)?;
    Ok(file)
}

fn ledgers(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files
        .map(|f| f.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect()
}

/// The reservation, other than `own`, that holds the thread. [`lock_all`] has to be held.
pub(crate) fn holder(dir: &Path, own: &Ledger, tid: u32, start: u64) -> Option<String> {
    ledgers(dir)
        .into_iter()
        .filter(|path| *path != own.path)
        .find(|path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let threads = State::of(&text).threads;
            threads.iter().any(|t| (t.tid, t.start) == (tid, start))
        })
        .and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()))
}

/// Puts back what reservations have left whose owner and guard were both killed.
pub(crate) fn recover(dir: &Path) -> io::Result<Restored> {
    let mut report = Restored::default();
    match fs::symlink_metadata(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(report),
        _ => prepare(dir)?,
    }
    let _all = lock_all(dir)?;
    for path in ledgers(dir) {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path);
        let file = match file {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        if sys::lock(&file, false)? {
            report.join(Ledger { file, path }.restore());
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

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
