//! Recovery from killed reservations: lists the changes that they left, or undoes them.

use super::state::State;
use super::{place, Ledgers, Restored, Thread};
use crate::identity::identity;
use crate::sys;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(20);

const KILLED: Duration = Duration::from_secs(10);

/// The longest time for which a new reservation waits for the guard of a dead owner.
const GUARD_LIMIT: Duration = Duration::from_secs(10);

/// The way in which [`recover_in`] treats ledgers: whether it changes anything, and how long it
/// waits.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    pub dry_run: bool,
    /// The longest wait for a guard that puts everything back because its owner has died. A stopped
    /// guard is continued. A guard that does not finish in this time is killed, and recovery puts
    /// everything back itself.
    pub wait_for_guard: Duration,
}

/// The state of the two processes that are responsible for a ledger: its owner and its guard.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The owner still lives. Recovery does not change the ledger.
    Held { owner: u32 },
    /// The owner has died, and its guard is still at work. Recovery does not change the ledger,
    /// because this is a dry run, the guard is unknown, or the guard does not end.
    Guarded,
    /// Both the owner and the guard are dead.
    Abandoned,
    /// Other users could have written the ledger. Recovery does not change it.
    NotBelieved,
}

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundThread {
    pub tid: u32,
    pub process: u32,
    /// The thread's name, which is untrusted. `None` if the thread has ended.
    pub name: Option<String>,
    /// The policy and priority before the change.
    pub scheduling: String,
    pub cpus: Vec<u16>,
    /// The file that takes the thread back into its cgroup. `None` if the thread was not moved.
    pub home: Option<PathBuf>,
}

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupStanding {
    There,
    /// The cgroup no longer exists, for example after a restart of the machine.
    Gone,
    /// Recovery does not change the cgroup, because no reservation could have made it or it is in
    /// no cgroup hierarchy.
    Refused,
}

/// A ledger that was found in the directory of ledgers.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLedger {
    pub path: PathBuf,
    pub standing: Standing,
    /// The threads that had not been put back when the ledger was read.
    pub threads: Vec<FoundThread>,
    pub groups: Vec<(PathBuf, GroupStanding)>,
    /// The number of lines of the ledger that cannot be read.
    pub torn: usize,
    /// The changes that recovery has undone. `None` if recovery did not try to undo any.
    pub restored: Option<Restored>,
}

impl FoundLedger {
    fn new(path: PathBuf, standing: Standing) -> FoundLedger {
        FoundLedger {
            path,
            standing,
            threads: Vec::new(),
            groups: Vec::new(),
            torn: 0,
            restored: None,
        }
    }

    fn describe(&mut self, state: &State) {
        self.threads = state.threads.iter().map(found_thread).collect();
        let groups = state.groups.iter().map(|group| {
            let standing = match (group.dir.exists(), place::is_ours(group)) {
                (false, _) => GroupStanding::Gone,
                (true, true) => GroupStanding::There,
                (true, false) => GroupStanding::Refused,
            };
            (group.dir.clone(), standing)
        });
        self.groups = groups.collect();
        self.torn = state.torn;
    }
}

/// Lists all ledgers of a directory, and undoes the changes of ledgers whose owner and guard are
/// dead. If only the owner is dead, the call waits for the guard ([`Recovery::wait_for_guard`]).
/// The call may be repeated, even after an interruption. A directory that does not exist gives an
/// empty list.
///
/// # Errors
///
/// Fails if the directory cannot be read, or if others may write to it.
pub fn recover_in(dir: &Path, how: Recovery) -> io::Result<Vec<FoundLedger>> {
    match dir.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        _ => Ledgers::open(dir)?.look(how),
    }
}

pub(crate) fn recover(dir: &Path) -> io::Result<Restored> {
    match dir.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Restored::default()),
        _ => Ledgers::open(dir)?.recover(),
    }
}

impl Ledgers {
    /// Undoes the changes of reservations whose owner has died, if the guard is dead too or does
    /// not finish in time.
    pub(crate) fn recover(&self) -> io::Result<Restored> {
        let how = Recovery {
            dry_run: false,
            wait_for_guard: GUARD_LIMIT,
        };
        let mut report = Restored::default();
        for ledger in self.look(how)? {
            if ledger.standing == Standing::Guarded {
                report.fail(format!(
                    "{}: the ledger's guard (process gate-keeper) does not finish undoing the changes. End this process, then recover again",
                    ledger.path.display()
                ));
            }
            ledger.restored.into_iter().for_each(|r| report.join(r));
        }
        Ok(report)
    }

    pub(crate) fn look(&self, how: Recovery) -> io::Result<Vec<FoundLedger>> {
        let mut found = Vec::new();
        for name in self.names()? {
            found.extend(self.look_at(&name, how)?);
        }
        Ok(found)
    }

    /// Examines one ledger, or returns `None` if the ledger no longer exists. While it waits for a
    /// guard process, it does not hold the lock of the directory, because other sessions need that
    /// lock.
    fn look_at(&self, name: &str, how: Recovery) -> io::Result<Option<FoundLedger>> {
        let begin = Instant::now();
        let mut ended = None;
        loop {
            let all = self.lock_all()?;
            let mut found = self.examine(name, how.dry_run)?;
            drop(all);
            if found.as_ref().map(|l| l.standing) != Some(Standing::Guarded) {
                if let (Some(pid), Some(l)) = (ended, &mut found) {
                    let restored = l.restored.get_or_insert_default();
                    restored.remark(format!(
                        "the ledger's guard (process {pid}) did not finish undoing the changes and was killed. onbeat then undid them"
                    ));
                }
                return Ok(found);
            }
            let waited = begin.elapsed();
            let guard = || self.guard_of(name).filter(|_| !how.dry_run);
            if waited < how.wait_for_guard {
                // The guard may be stopped. While it is, nothing is put back.
                guard().inspect(|(_, guard)| drop(sys::signal(guard, libc::SIGCONT)));
            } else if ended.is_some() {
                if waited > how.wait_for_guard + KILLED {
                    return Ok(found);
                }
            } else {
                let Some((pid, guard)) = guard() else {
                    return Ok(found);
                };
                sys::signal(&guard, libc::SIGKILL)?;
                ended = Some(pid);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn guard_of(&self, name: &str) -> Option<(u32, OwnedFd)> {
        let (pid, start) = self.peek(name).ok()?.guard?;
        let guard = sys::pidfd_of(pid).ok()?;
        // The check comes after opening the descriptor, because the descriptor stays with the
        // process while its id may be reused.
        let is_it = identity(pid).is_some_and(|i| i.start == start && i.tgid == pid);
        is_it.then_some((pid, guard))
    }

    fn examine(&self, name: &str, dry_run: bool) -> io::Result<Option<FoundLedger>> {
        let path = self.path_of(name);
        let file = match self.open_own(name) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                let mut restored = Restored::default();
                restored.fail(format!(
                    "onbeat does not use the ledger {}: {e}. Check this file, then remove it",
                    path.display()
                ));
                let mut found = FoundLedger::new(path, Standing::NotBelieved);
                found.restored = Some(restored);
                return Ok(Some(found));
            }
        };
        if !sys::lock(&file, false)? {
            let held = owner_of(name).map(|owner| Standing::Held { owner });
            let standing = held.unwrap_or(Standing::Guarded);
            return Ok(Some(FoundLedger::new(path, standing)));
        }
        let ledger = self.ledger(name.to_owned(), file)?;
        // The guard has finished and removed the ledger meanwhile.
        if self.open_own(name).is_err() {
            return Ok(None);
        }
        let mut found = FoundLedger::new(path, Standing::Abandoned);
        if let Ok(text) = ledger.text() {
            found.describe(&State::of(&text));
        }
        found.restored = (!dry_run).then(|| ledger.restore());
        Ok(Some(found))
    }
}

/// Returns the id of the process whose reservation has the ledger `name`, if this process lives.
/// [`unique_name`](crate::reservation) makes such names.
fn owner_of(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix("onbeat-")?.split('-');
    let (pid, start): (u32, u64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    identity(pid).filter(|i| i.start == start).map(|_| pid)
}

fn found_thread(thread: &Thread) -> FoundThread {
    let name = || onbeat_proc::thread_name(thread.tgid, thread.tid);
    FoundThread {
        tid: thread.tid,
        process: thread.tgid,
        name: thread.lives().then(|| name().unwrap_or_default()),
        scheduling: thread.scheduling.to_string(),
        cpus: thread.cpus.clone(),
        home: thread.home.clone(),
    }
}
