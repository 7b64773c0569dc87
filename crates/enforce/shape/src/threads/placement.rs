//! Assigns threads to their servers, and places the middleware's threads on their CPU.

use super::middleware;
use super::servers::Servers;
use super::waits::WhoWaits;
use crate::error::ShapeError;
use crate::judge::Isolation;
use crate::observe::Application;
use crate::report::PlacedThread;
use crate::shaper::{sending_priority, SenderProcesses};
use onbeat_plan::schema::{Hold, Output};
use onbeat_plan::Plan;
use onbeat_reserve::{
    AssignError, Change, Move, Pauses, Report, Seen, Server, Stats, SwapError, Waiting, Waits,
};
use onbeat_time::clock::monotonic_ns;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// The number of calls of [`Placement::place_middleware`] after which all processes are searched
/// for middleware threads. Other calls search only processes whose number of threads has changed. A
/// session makes about one call a second.
const FULL_SEARCH_EVERY: u64 = 10;

pub(crate) const MIDDLEWARE: &str = "middleware";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// A time at which the thread ran (CLOCK_MONOTONIC). After the thread has ended, another thread
    /// may get its id.
    pub(crate) seen_ns: u64,
}

impl Thread {
    fn now(pid: u32, tid: u32) -> Thread {
        Thread {
            pid,
            tid,
            seen_ns: monotonic_ns(),
        }
    }
}

/// The threads of a process that onbeat places on the middleware's CPU.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// The middleware's threads. If `is_publishing` is true, the process publishes an output of the
    /// plan through publisher threads. These threads belong to a server and stay there.
    Middleware { is_publishing: bool },
    /// Only the thread with which the process holds messages back.
    Sender,
}

const MAX_ENDED: usize = 256;

pub(crate) struct Placement<'a> {
    plan: &'a Plan,
    servers: Vec<Server>,
    reservation: Box<dyn Servers>,
    waits: Arc<WhoWaits>,
    placed: BTreeMap<u32, PlacedThread>,
    ended: VecDeque<PlacedThread>,
    thread_counts: HashMap<u32, u64>,
    searches: u64,
    publishing: BTreeSet<u32>,
}

impl<'a> Placement<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        servers: Vec<Server>,
        reservation: Box<dyn Servers>,
        waits: Arc<WhoWaits>,
    ) -> Placement<'a> {
        Placement {
            plan,
            servers,
            reservation,
            waits,
            placed: BTreeMap::new(),
            ended: VecDeque::new(),
            thread_counts: HashMap::new(),
            searches: 0,
            publishing: BTreeSet::new(),
        }
    }

    /// Assigns a thread to the server with this index in the plan. `job` is a callback that the
    /// thread runs. Returns false if the thread has ended.
    pub(crate) fn assign(
        &mut self,
        thread: Thread,
        job: &str,
        server: usize,
    ) -> Result<bool, ShapeError> {
        let tid = thread.tid;
        let server = self.servers[server].name.clone();
        let seen = Seen {
            tid,
            pid: thread.pid,
            at_ns: thread.seen_ns,
        };
        match self.reservation.assign(seen, &server) {
            Ok(()) => {}
            Err(AssignError::Vanished(_)) => return Ok(false),
            Err(reason) => {
                return Err(ShapeError::Assign {
                    tid,
                    callback: job.to_owned(),
                    server,
                    reason,
                });
            }
        }
        self.add(thread, name_of(thread), server, job.to_owned());
        Ok(true)
    }

    pub(crate) fn swap(&mut self, servers: Vec<Server>) -> Result<(), SwapError> {
        self.reservation.swap_table(&servers)?;
        self.servers = servers;
        Ok(())
    }

    pub(crate) fn isolations(&self) -> Vec<Option<Isolation>> {
        (0..self.servers.len()).map(|s| self.isolation(s)).collect()
    }

    pub(crate) fn has_threads(&self) -> bool {
        !self.placed.is_empty()
    }

    /// Returns a comparison of a thread's runs with the slots of its server. Returns `None` if the
    /// threads of this server may run at any time, or if they have a normal priority.
    pub(crate) fn isolation(&self, server: usize) -> Option<Isolation> {
        let server = &self.servers[server];
        (!server.slots.is_empty() && server.priority > 0)
            .then(|| Isolation::new(self.plan.cycle_ms.0, &server.slots))
    }

    /// Assigns the middleware's publisher threads to the servers of the outputs that they publish
    /// (Design 1 of the thesis). Returns each thread with the index of its server.
    pub(crate) fn assign_publishers(
        &mut self,
        application: &Application,
    ) -> Result<Vec<(Thread, usize)>, ShapeError> {
        let mut assigned = Vec::new();
        for output in self.published_by_threads() {
            let pid = publishing_process(application, output);
            let threads = pid.map(publisher_threads).unwrap_or_default();
            if threads.is_empty() {
                return Err(ShapeError::NoPublisherThread {
                    callback: output.callback.clone(),
                    server: output.server.clone(),
                });
            }
            self.publishing.extend(pid);
            assigned.extend(self.assign_to_output(threads, output)?);
        }
        Ok(assigned)
    }

    /// Assigns the publisher threads of processes that have begun to publish since the last call,
    /// for example after a restart. Skips processes that `is_ours` refuses. Returns the assigned
    /// threads, and the errors.
    pub(crate) fn assign_new_publishers(
        &mut self,
        application: &Application,
        is_ours: &dyn Fn(u32) -> bool,
    ) -> (Vec<(Thread, usize)>, Vec<ShapeError>) {
        let (mut assigned, mut refused) = (Vec::new(), Vec::new());
        let mut found = BTreeSet::new();
        for output in self.published_by_threads() {
            let pid = publishing_process(application, output);
            let new = pid.filter(|pid| !self.publishing.contains(pid) && is_ours(*pid));
            let Some(pid) = new else { continue };
            let threads = publisher_threads(pid);
            // The middleware starts its publisher threads a moment after the process.
            if threads.is_empty() {
                continue;
            }
            found.insert(pid);
            match self.assign_to_output(threads, output) {
                Ok(threads) => assigned.extend(threads),
                Err(error) => refused.push(error),
            }
        }
        self.publishing.extend(found);
        (assigned, refused)
    }

    fn published_by_threads(&self) -> impl Iterator<Item = &'a Output> {
        let outputs = self.plan.outputs.iter();
        outputs.filter(|o| o.hold == Hold::PublisherThread)
    }

    fn assign_to_output(
        &mut self,
        threads: Vec<Thread>,
        output: &Output,
    ) -> Result<Vec<(Thread, usize)>, ShapeError> {
        let mut assigned = Vec::new();
        let server = self.servers.iter().position(|s| s.name == output.server);
        let Some(server) = server else {
            return Ok(assigned);
        };
        for thread in threads {
            // Publisher threads publish all outputs of their process: several outputs share them.
            if self.placed.contains_key(&thread.tid) {
                continue;
            }
            self.waits.add_publisher(thread.tid);
            if self.assign(thread, &output.callback, server)? {
                self.describe_publisher(thread, output);
                assigned.push((thread, server));
            }
        }
        Ok(assigned)
    }

    pub(crate) fn free_heirs(&self) {
        self.reservation.free_heirs();
    }

    pub(crate) fn is_assigned(&self, tid: u32) -> bool {
        let placed = self.placed.get(&tid);
        placed.is_some_and(|thread| thread.place != MIDDLEWARE)
    }

    fn describe_publisher(&mut self, thread: Thread, output: &Output) {
        if let Some(placed) = self.placed.get_mut(&thread.tid) {
            let job = middleware::job(&placed.name).unwrap_or("");
            placed.job = format!("{}: {job}", output.topic);
        }
    }

    /// Places threads on the middleware's CPU. In the plan's processes and in the shaper, these are
    /// the middleware's threads. In other processes, these are the threads that hold inputs back.
    /// Skips a process if `is_ours` refuses it, or if a newer process has its id.
    pub(crate) fn place_middleware(
        &mut self,
        application: &Application,
        senders: &SenderProcesses,
        is_ours: &dyn Fn(u32) -> bool,
    ) {
        self.searches += 1;
        if self.searches.is_multiple_of(FULL_SEARCH_EVERY) {
            self.forget_ended();
        }
        let still_runs = |&(pid, at_ns): &(u32, u64)| {
            let tid = pid;
            Seen { tid, pid, at_ns }.still_runs() && is_ours(pid)
        };
        let seen = application.roles.processes_seen();
        let pids: Vec<u32> = seen
            .into_iter()
            .filter(still_runs)
            .map(|(pid, _)| pid)
            .collect();
        let holders = senders.holders.iter().filter(|p| still_runs(p));
        let holders: Vec<u32> = holders
            .map(|&(pid, _)| pid)
            .filter(|pid| !pids.contains(pid))
            .collect();
        let outputs = self.published_by_threads();
        let publishing: Vec<u32> = outputs
            .filter_map(|output| publishing_process(application, output))
            .collect();
        let all = pids.into_iter().chain(senders.shaper);
        let all = all.map(|pid| {
            (
                pid,
                Part::Middleware {
                    is_publishing: publishing.contains(&pid),
                },
            )
        });
        for (pid, part) in all.chain(holders.into_iter().map(|pid| (pid, Part::Sender))) {
            // Reading all names each second would cost more than the dispatcher. A thread that
            // started while another one ended is found at the next full search.
            let count = onbeat_proc::thread_count(pid);
            let before = self.thread_counts.insert(pid, count);
            if before == Some(count) && !self.searches.is_multiple_of(FULL_SEARCH_EVERY) {
                continue;
            }
            for tid in onbeat_proc::threads(pid) {
                let is_known = self.placed.contains_key(&tid)
                    || application.roles.threads().contains_key(&tid);
                if !is_known {
                    self.place(Thread::now(pid, tid), part);
                }
            }
        }
    }

    fn forget_ended(&mut self) {
        for tid in self.reservation.forget_ended() {
            if let Some(thread) = self.placed.remove(&tid) {
                if self.ended.len() == MAX_ENDED {
                    self.ended.pop_front();
                }
                self.ended.push_back(thread);
            }
        }
        self.thread_counts
            .retain(|&pid, _| onbeat_proc::is_alive(pid));
        self.publishing.retain(|&pid| onbeat_proc::is_alive(pid));
    }

    fn place(&mut self, thread: Thread, part: Part) {
        let name = name_of(thread);
        let Some(job) = middleware::job(&name) else {
            return;
        };
        let is_sender = name.starts_with(middleware::SENDER);
        let is_publisher = name.starts_with(middleware::PUBLISHER);
        match part {
            Part::Sender if !is_sender => return,
            Part::Middleware { is_publishing } if is_publishing && is_publisher => return,
            Part::Sender | Part::Middleware { .. } => {}
        }
        let to = self.plan.middleware;
        let priority = match is_sender {
            true => sending_priority(to.priority, middleware::inputs_before(&name)),
            false => to.priority,
        };
        // A thread that has ended meanwhile needs no CPU.
        if self.reservation.place(thread.tid, to.cpu, priority).is_ok() {
            self.add(thread, name, MIDDLEWARE.into(), job.to_owned());
        }
    }

    fn add(&mut self, thread: Thread, name: String, place: String, job: String) {
        let Thread { pid, tid, .. } = thread;
        self.placed.insert(
            tid,
            PlacedThread {
                tid,
                pid,
                name,
                place,
                job,
            },
        );
    }

    pub(crate) fn set_origin(&self, origin_ns: u64) {
        self.reservation.set_origin(origin_ns);
    }

    pub(crate) fn changes_since(&self, seen: &mut u64) -> Vec<Change> {
        self.reservation.changes_since(seen)
    }

    pub(crate) fn moves_since(&self, seen: &mut u64) -> Vec<Move> {
        self.reservation.moves_since(seen)
    }

    /// Returns the names and ids of the server's threads for which onbeat does not know whether
    /// they wait for work.
    pub(crate) fn unknown(&self, server: &str) -> Vec<String> {
        let threads = self.placed.values().filter(|t| t.place == server);
        let unknown = threads.filter(|t| self.waits.of(t.tid) == Waits::Unknown);
        unknown.map(|t| format!("{} ({})", t.name, t.tid)).collect()
    }

    pub(crate) fn threads_of(&self, place: &str) -> Vec<(u32, String)> {
        let threads = self.placed.values().filter(|t| t.place == place);
        threads.map(|t| (t.tid, t.name.clone())).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.reservation.stats()
    }

    pub(crate) fn pauses(&self) -> Pauses {
        self.reservation.pauses()
    }

    /// Restores every thread. Returns the report about the servers, and the threads that were
    /// placed. The placed threads include the latest ones that have ended.
    pub(crate) fn stop(self) -> (Report, Vec<PlacedThread>) {
        let threads = self.ended.into_iter().chain(self.placed.into_values());
        (self.reservation.stop(), threads.collect())
    }
}

fn publishing_process(application: &Application, output: &Output) -> Option<u32> {
    let callbacks = application.publishers(output);
    let roles = application.roles.threads().values();
    let running = roles.filter(|r| callbacks.iter().any(|c| r.callbacks.contains(c)));
    running.max_by_key(|r| r.seen_ns).map(|r| r.pid)
}

/// Returns the threads with which Fast DDS publishes asynchronously in a process. Each flow
/// controller of Fast DDS has one such thread. onbeat cannot observe which of these threads
/// publishes a callback's message.
fn publisher_threads(pid: u32) -> Vec<Thread> {
    let threads = onbeat_proc::threads(pid).into_iter();
    threads
        .map(|tid| Thread::now(pid, tid))
        .filter(|&thread| name_of(thread).starts_with(middleware::PUBLISHER))
        .collect()
}

fn name_of(thread: Thread) -> String {
    onbeat_proc::thread_name(thread.pid, thread.tid).unwrap_or_default()
}

#[cfg(test)]
mod tests;
