//! Decides which thread belongs to which server, by the callbacks that the thread runs. Pure.

use onbeat_plan::Plan;
use std::collections::BTreeMap;

const MAX_THREADS: usize = 4096;

/// A thread of the application that runs callbacks of the plan.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    pub pid: u32,
    /// The index of the thread's server in the plan. `None` if none of its callbacks belongs to a
    /// server.
    pub server: Option<usize>,
    /// The indices of the callbacks that the thread ran, as in
    /// [`crate::observe::Watcher::callbacks`].
    pub callbacks: Vec<usize>,
    /// The latest start of one of the thread's callbacks, in ns (CLOCK_MONOTONIC). [`Roles::saw`]
    /// sets it.
    pub seen_ns: u64,
}

/// One thread runs two callbacks that belong to different servers.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub tid: u32,
    /// The two callbacks, as indices in [`crate::observe::Watcher::callbacks`].
    pub callbacks: [usize; 2],
}

/// The threads that run the plan's callbacks, and the server of each.
#[derive(Debug, Clone, Default)]
pub struct Roles {
    server_of: Vec<Option<usize>>,
    by_thread: BTreeMap<u32, Role>,
    seen: Vec<u64>,
}

impl Roles {
    /// Creates the roles for a plan. No thread is known yet. `callbacks` are the ids that
    /// [`crate::observe::Watcher::callbacks`] returns.
    pub fn new(plan: &Plan, callbacks: &[String]) -> Roles {
        let server_of = callbacks
            .iter()
            .map(|id| plan.servers.iter().position(|s| s.callbacks.contains(id)))
            .collect();
        Roles {
            server_of,
            by_thread: BTreeMap::new(),
            seen: vec![0; callbacks.len()],
        }
    }

    /// Records that a thread ran a callback. Returns the thread's role if this run assigned it to a
    /// server.
    ///
    /// # Errors
    ///
    /// Fails if the thread already belongs to another server.
    pub fn ran(&mut self, callback: usize, pid: u32, tid: u32) -> Result<Option<&Role>, Conflict> {
        if let Some(seen) = self.seen.get_mut(callback) {
            *seen += 1;
        }
        let server = self.server_of.get(callback).copied().flatten();
        self.make_room(tid);
        let role = self.by_thread.entry(tid).or_insert_with(|| Role {
            pid,
            server: None,
            callbacks: Vec::new(),
            seen_ns: 0,
        });
        if role.pid != pid {
            // The system has given the thread's id to another process.
            (role.pid, role.server) = (pid, None);
            role.callbacks.clear();
        }
        if role.callbacks.contains(&callback) {
            return Ok(None);
        }
        role.callbacks.push(callback);
        match (role.server, server) {
            (Some(had), Some(new)) if had != new => {
                let other = role
                    .callbacks
                    .iter()
                    .find(|&&c| self.server_of[c] == Some(had))
                    .copied()
                    .unwrap_or(callback);
                Err(Conflict {
                    tid,
                    callbacks: [other, callback],
                })
            }
            (None, Some(_)) => {
                role.server = server;
                Ok(Some(role))
            }
            _ => Ok(None),
        }
    }

    /// Records the time at which a thread began to run a callback.
    pub fn saw(&mut self, tid: u32, start_ns: u64) {
        if let Some(role) = self.by_thread.get_mut(&tid) {
            role.seen_ns = start_ns;
        }
    }

    fn make_room(&mut self, tid: u32) {
        if self.by_thread.len() >= MAX_THREADS && !self.by_thread.contains_key(&tid) {
            let oldest = self.by_thread.iter().min_by_key(|(_, role)| role.seen_ns);
            let oldest = oldest.map(|(&tid, _)| tid);
            oldest.and_then(|tid| self.by_thread.remove(&tid));
        }
    }

    /// Returns the number of runs of a callback.
    pub fn seen(&self, callback: usize) -> u64 {
        self.seen.get(callback).copied().unwrap_or(0)
    }

    /// Returns the threads that ran callbacks of the plan, by thread id.
    pub fn threads(&self) -> &BTreeMap<u32, Role> {
        &self.by_thread
    }

    /// Returns the ids of the processes that run callbacks of the plan, sorted.
    pub fn processes(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.by_thread.values().map(|r| r.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Returns the processes that run callbacks of the plan, each with the latest start of such a
    /// callback (CLOCK_MONOTONIC).
    pub fn processes_seen(&self) -> BTreeMap<u32, u64> {
        let mut seen = BTreeMap::new();
        for role in self.by_thread.values() {
            let last: &mut u64 = seen.entry(role.pid).or_default();
            *last = role.seen_ns.max(*last);
        }
        seen
    }

    /// Forgets a thread that has ended.
    pub fn forget(&mut self, tid: u32) {
        self.by_thread.remove(&tid);
    }
}
