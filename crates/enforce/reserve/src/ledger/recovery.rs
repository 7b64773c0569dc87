//! What killed reservations have left, ledger by ledger: looked at, or put back.

use super::state::State;
use super::{place, Ledgers, Restored, Thread};
use crate::identity::identity;
use crate::sys;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two looks whether a guard is done.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long a guard that was killed may take to end.
const KILLED: Duration = Duration::from_secs(10);

/// How long a guard whose owner has died may take, for who starts anew.
const GUARD_LIMIT: Duration = Duration::from_secs(10);

/// How [`recover_in`] goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// Only says what there is.
    pub dry_run: bool,
    /// How long to wait for a guard whose owner has died: it is putting everything back. One that is
    /// stopped is continued. One that is still silent then is killed, and what it had to do is done
    /// here.
    pub wait_for_guard: Duration,
}

/// Who answers for a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its owner lives, in this process. It is left alone.
    Held {
        /// The owner's process.
        owner: u32,
    },
    /// Its owner has died, and its guard is still at work. It is left alone: nothing was to be changed,
    /// or its guard is not known, or does not end.
    Guarded,
    /// Owner and guard are dead.
    Abandoned,
    /// Others could have written it: it is left alone.
    NotBelieved,
}

/// A thread that a ledger names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundThread {
    /// Thread id.
    pub tid: u32,
    /// Process that it belongs to.
    pub process: u32,
    /// Its name; untrusted. `None`: it has ended.
    pub name: Option<String>,
    /// Policy and priority that it had.
    pub scheduling: String,
    /// CPUs that it was allowed to use.
    pub cpus: Vec<u16>,
    /// File that takes it back into its cgroup. `None`: it was not moved.
    pub home: Option<PathBuf>,
}

/// What a ledger says of a cgroup is true of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupStanding {
    /// It is there.
    There,
    /// It is gone, as after a start of the machine.
    Gone,
    /// No reservation could have made it, or it is in no cgroup hierarchy: it is left alone.
    Refused,
}

/// A ledger that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLedger {
    /// Its file.
    pub path: PathBuf,
    /// Who answers for it.
    pub standing: Standing,
    /// Threads that were not put back when it was read.
    pub threads: Vec<FoundThread>,
    /// Cgroups that it names.
    pub groups: Vec<(PathBuf, GroupStanding)>,
    /// Lines that are none.
    pub torn: usize,
    /// What was put back. `None`: nothing was tried.
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

/// Looks at all ledgers of a directory and undoes the changes of those whose owner and guard are
/// dead. A guard whose owner is dead is waited for ([`Recovery::wait_for_guard`]). May be repeated, also after it was interrupted. A directory that does not exist has none.
///
/// # Errors
///
/// If the directory cannot be read, or others may write to it.
pub fn recover_in(dir: &Path, how: Recovery) -> io::Result<Vec<FoundLedger>> {
    match dir.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        _ => Ledgers::open(dir)?.look(how),
    }
}

/// Undoes the changes of reservations whose owner and guard were both killed.
pub(crate) fn recover(dir: &Path) -> io::Result<Restored> {
    match dir.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Restored::default()),
        _ => Ledgers::open(dir)?.recover(),
    }
}

impl Ledgers {
    /// Undoes the changes of reservations whose owner has died, where the guard is dead too, or
    /// silent.
    pub(crate) fn recover(&self) -> io::Result<Restored> {
        let how = Recovery {
            dry_run: false,
            wait_for_guard: GUARD_LIMIT,
        };
        let mut report = Restored::default();
        for ledger in self.look(how)? {
            if ledger.standing == Standing::Guarded {
                report.fail(format!(
                    "a guard (process gate-keeper) that does not end still answers for {}",
                    ledger.path.display()
                ));
            }
            ledger.restored.into_iter().for_each(|r| report.join(r));
        }
        Ok(report)
    }

    /// [`recover_in`] this directory.
    pub(crate) fn look(&self, how: Recovery) -> io::Result<Vec<FoundLedger>> {
        let mut found = Vec::new();
        for name in self.names()? {
            found.extend(self.look_at(&name, how)?);
        }
        Ok(found)
    }

    /// A ledger; `None` if it is gone meanwhile. Waits for a guard without the lock of the directory,
    /// which living sessions need.
    fn look_at(&self, name: &str, how: Recovery) -> io::Result<Option<FoundLedger>> {
        let begin = Instant::now();
        let mut ended = None;
        loop {
            let all = self.lock_all()?;
            let mut found = self.attempt(name, how.dry_run)?;
            drop(all);
            if found.as_ref().map(|l| l.standing) != Some(Standing::Guarded) {
                if let (Some(pid), Some(l)) = (ended, &mut found) {
                    let restored = l.restored.get_or_insert_default();
                    restored.remark(format!(
                        "its guard (process {pid}) was silent, and was killed"
                    ));
                }
                return Ok(found);
            }
            let waited = begin.elapsed();
            let guard = || self.guard_of(name).filter(|_| !how.dry_run);
            if waited < how.wait_for_guard {
                // It may be stopped: while it is, nobody puts anything back.
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

    /// The guard that a ledger names, if that process runs.
    fn guard_of(&self, name: &str) -> Option<(u32, OwnedFd)> {
        let (pid, start) = self.peek(name).ok()?.guard?;
        let guard = sys::pidfd_of(pid).ok()?;
        // Whoever has the descriptor has the process, not its id: the check comes after it.
        let is_it = identity(pid).is_some_and(|i| i.start == start && i.tgid == pid);
        is_it.then_some((pid, guard))
    }

    /// A ledger as it is now, put back if nobody answers for it; `None` if it is gone.
    fn attempt(&self, name: &str, dry_run: bool) -> io::Result<Option<FoundLedger>> {
        let path = self.path_of(name);
        let file = match self.open_own(name) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                let mut restored = Restored::default();
                restored.fail(format!(
                    "{} is not believed: {e}; look at it and remove it",
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
        // The guard that was waited for has removed it.
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

/// The living process whose reservation has a ledger of this name
/// ([`unique_name`](crate::reservation)).
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
