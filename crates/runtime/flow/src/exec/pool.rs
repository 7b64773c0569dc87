//! Tasks on several threads: how they get what others bring, sleep, stop and drain. Which of the
//! ready ones runs next is the executors' matter ([`crate::graph`], [`crate::priority`]).
//!
//! Between two threads a hand-over is a counter that one side writes and the other reads, and a
//! waker. So nobody waits for anybody: not for a lock, and not for a thread of lower priority that
//! was preempted while it handed something over.

use crate::exec::task::{Core, Parts, Ran, TaskStats, Work};
use crate::exec::thread::{self, ThreadError, ThreadOptions};
use crate::wait::clock;
use crate::wait::Waker;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::Arc;
use thiserror::Error;

/// A task of an executor with several threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(crate) usize);

/// The code of a task has panicked, which has stopped its executor.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("a task on thread '{thread}' has panicked, and all threads were stopped: what it said stands on standard error")]
pub struct Panicked {
    /// Which.
    pub thread: String,
}

/// Whom a task's output goes to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) input: usize,
    pub(crate) link: usize,
}

/// Tasks, and who hands over to whom, before they are on threads.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) tasks: Vec<Parts>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) threads: Vec<ThreadOptions>,
    pub(crate) wakers: Vec<Waker>,
}

impl Program {
    pub(crate) fn new(name: &str, threads: Vec<ThreadOptions>) -> Program {
        Program {
            name: name.into(),
            tasks: Vec::new(),
            connections: Vec::new(),
            wakers: threads.iter().map(|_| Waker::new()).collect(),
            threads,
        }
    }

    pub(crate) fn connect(
        &mut self,
        from: TaskId,
        to: TaskId,
        input: usize,
    ) -> Result<(), crate::exec::task::TaskError> {
        self.tasks[to.0].core.check_input(input)?;
        let source = self.tasks[from.0].core.name.clone();
        let link = self.tasks[to.0].core.link(&self.name, &source, input);
        self.connections.push(Connection {
            from: from.0,
            to: to.0,
            input,
            link,
        });
        Ok(())
    }

    /// Arrows for a drawing.
    pub(crate) fn arrows(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        self.connections.iter().map(|c| (c.from, c.to, c.input))
    }
}

/// Times of so many arrivals are kept; of more that nobody has looked at yet, those of the newest.
const TIMES: usize = 64;

/// A hand-over from a task of one thread to a task of another: one writes, one reads.
#[repr(align(64))]
struct Edge {
    /// Items handed over so far. The producer's.
    tail: AtomicU64,
    /// When, in turn; empty where nobody asks. The producer's.
    times: Box<[AtomicU64]>,
    /// Items that have arrived so far. The consumer's.
    head: AtomicU64,
    /// An item may make the consumer run. Of others it is not told until it looks.
    wakes: bool,
}

impl Edge {
    fn push(&self, time_ns: u64) {
        let tail = self.tail.load(Ordering::Relaxed);
        if !self.times.is_empty() {
            self.times[tail as usize % TIMES].store(time_ns, Ordering::Relaxed);
        }
        self.tail.store(tail + 1, Ordering::Release);
    }
}

/// Figures of a task, written by its thread and read by anybody.
#[derive(Default)]
struct Figures {
    executions: AtomicU64,
    late: AtomicU64,
    longest_ns: AtomicU64,
    overruns: AtomicU64,
}

impl Figures {
    fn set(&self, stats: &TaskStats) {
        self.executions.store(stats.executions, Ordering::Relaxed);
        self.late.store(stats.late, Ordering::Relaxed);
        self.longest_ns.store(stats.longest_ns, Ordering::Relaxed);
        self.overruns.store(stats.overruns, Ordering::Relaxed);
    }

    fn get(&self) -> TaskStats {
        TaskStats {
            executions: self.executions.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            longest_ns: self.longest_ns.load(Ordering::Relaxed),
            overruns: self.overruns.load(Ordering::Relaxed),
        }
    }
}

/// What the threads share.
struct Shared {
    wakers: Vec<Waker>,
    edges: Vec<Edge>,
    figures: Vec<Figures>,
    stop: AtomicBool,
    draining: AtomicBool,
    /// Of each thread: odd while it has found nothing to do since draining began.
    idle: Vec<AtomicU64>,
    /// Threads that have ended, and where somebody waits for that.
    ended: AtomicUsize,
    home: Waker,
}

impl Shared {
    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
    }

    /// Nobody has anything to do, and nothing is under way. The last thread to become idle sees it.
    fn is_quiet(&self) -> bool {
        // The numbers only grow, so that an equal sum means equal numbers.
        let all_idle = || {
            let mut sum = 0u64;
            for idle in &self.idle {
                let number = idle.load(Ordering::SeqCst);
                if number % 2 == 0 {
                    return None;
                }
                sum = sum.wrapping_add(number);
            }
            Some(sum)
        };
        let arrived =
            |e: &Edge| !e.wakes || e.tail.load(Ordering::SeqCst) == e.head.load(Ordering::SeqCst);
        let before = all_idle();
        before.is_some() && self.edges.iter().all(arrived) && all_idle() == before
    }
}

/// Where an output goes on the same thread.
struct Here {
    entry: usize,
    link: usize,
}

/// What comes from another thread.
struct Incoming {
    edge: usize,
    link: usize,
    seen: u64,
    /// What is there in this look, so that a producer cannot prolong it.
    until: u64,
}

/// A task on its thread.
pub(crate) struct Entry {
    id: usize,
    pub(crate) core: Core,
    work: Box<dyn Work>,
    fed: bool,
    here: Vec<Here>,
    there: Vec<usize>,
    /// Threads that those go to and that may have something to do then.
    wakes: Vec<usize>,
    incoming: Vec<Incoming>,
    /// Where order is by priority: higher runs first.
    pub(crate) priority: u32,
    /// Since when it is ready, and its number among those of the same time.
    pub(crate) since: Option<(u64, u64)>,
}

/// A thread's tasks.
pub(crate) struct Lane {
    number: usize,
    pub(crate) entries: Vec<Entry>,
    shared: Arc<Shared>,
    pub(crate) draining: bool,
    idle: bool,
    /// Arrivals are ordered by time.
    timed: bool,
    readied: u64,
    /// Tasks that get something from other threads, and those that something else than a hand-over
    /// can make ready: the only ones that have to be looked at.
    receiving: Vec<usize>,
    changing: Vec<usize>,
}

impl Lane {
    fn busy(&mut self) {
        if self.idle {
            self.idle = false;
            self.shared.idle[self.number].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Looks what came to a task, from other threads and from outside.
    pub(crate) fn look(&mut self, entry: usize) {
        for i in 0..self.entries[entry].incoming.len() {
            let incoming = &self.entries[entry].incoming[i];
            let tail = self.shared.edges[incoming.edge]
                .tail
                .load(Ordering::Acquire);
            if tail != incoming.seen {
                self.arrive(entry, i, tail);
            }
        }
        self.poll(entry);
    }

    /// True if something new came from outside.
    fn poll(&mut self, entry: usize) -> bool {
        let it = &mut self.entries[entry];
        let new = it.fed && it.work.poll(&mut it.core);
        if new {
            self.busy();
        }
        new
    }

    fn arrive(&mut self, entry: usize, incoming: usize, until: u64) {
        // Before the edge looks as if nothing were under way.
        self.busy();
        let it = &mut self.entries[entry];
        let incoming = &mut it.incoming[incoming];
        let items = (until - incoming.seen).min(u64::from(u32::MAX)) as u32;
        it.core.arrive(incoming.link, items);
        incoming.seen = until;
        let head = &self.shared.edges[incoming.edge].head;
        head.store(until, Ordering::SeqCst);
    }

    /// The same for all tasks in the order in which it came, noting who became ready when.
    pub(crate) fn look_in_turn(&mut self, now_ns: u64) {
        for &entry in &self.receiving {
            for incoming in &mut self.entries[entry].incoming {
                let tail = &self.shared.edges[incoming.edge].tail;
                incoming.until = tail.load(Ordering::Acquire);
            }
        }
        while let Some((time_ns, entry, incoming)) = self.earliest() {
            let seen = self.entries[entry].incoming[incoming].seen;
            self.arrive(entry, incoming, seen + 1);
            self.note_ready(entry, now_ns, time_ns);
        }
        for i in 0..self.changing.len() {
            let entry = self.changing[i];
            let new = self.poll(entry);
            let released_ns = self.entries[entry].core.activation.released_ns(now_ns);
            let since_ns = released_ns.filter(|_| !new).unwrap_or(now_ns);
            self.note_ready(entry, now_ns, since_ns);
        }
    }

    fn earliest(&self) -> Option<(u64, usize, usize)> {
        let mut earliest: Option<(u64, usize, usize)> = None;
        for &e in &self.receiving {
            for (i, incoming) in self.entries[e].incoming.iter().enumerate() {
                if incoming.until == incoming.seen {
                    continue;
                }
                let times = &self.shared.edges[incoming.edge].times;
                let time = times[incoming.seen as usize % TIMES].load(Ordering::Relaxed);
                if earliest.is_none_or(|(first, ..)| time < first) {
                    earliest = Some((time, e, i));
                }
            }
        }
        earliest
    }

    fn note_ready(&mut self, entry: usize, now_ns: u64, time_ns: u64) {
        let may_run = self.may_run(entry, now_ns);
        let it = &mut self.entries[entry];
        if !may_run {
            it.since = None;
        } else if it.since.is_none() {
            self.readied += 1;
            it.since = Some((time_ns, self.readied));
        }
    }

    pub(crate) fn may_run(&self, entry: usize, now_ns: u64) -> bool {
        let core = &self.entries[entry].core;
        !(self.draining && core.is_source) && core.activation.is_ready(now_ns)
    }

    /// Runs a task and hands over what it brings. False: that stops the executor. Real-time safe as
    /// far as the task's code is: a system call only to wake a thread that sleeps.
    pub(crate) fn run(&mut self, entry: usize, now_ns: u64) -> bool {
        let it = &mut self.entries[entry];
        let ran = it.core.execute(now_ns, || it.work.run());
        self.shared.figures[it.id].set(&it.core.stats());
        if self.timed {
            self.hand_over_in_turn(entry, clock::now_ns(), ran);
        } else if ran == Ran::Output {
            for i in 0..self.entries[entry].here.len() {
                let Here { entry: to, link } = self.entries[entry].here[i];
                self.entries[to].core.arrive(link, 1);
            }
            self.push(entry, 0);
        }
        if ran == Ran::Stop {
            self.shared.stop();
        }
        ran != Ran::Stop
    }

    fn hand_over_in_turn(&mut self, entry: usize, now_ns: u64, ran: Ran) {
        if ran == Ran::Output {
            self.push(entry, now_ns);
        }
        // What others brought meanwhile comes first, then what is left for the task itself.
        self.entries[entry].since = None;
        self.look_in_turn(now_ns);
        self.note_ready(entry, now_ns, now_ns);
        if ran == Ran::Output {
            for i in 0..self.entries[entry].here.len() {
                let Here { entry: to, link } = self.entries[entry].here[i];
                self.entries[to].core.arrive(link, 1);
                self.note_ready(to, now_ns, now_ns);
            }
        }
    }

    fn push(&self, entry: usize, time_ns: u64) {
        let it = &self.entries[entry];
        for &edge in &it.there {
            self.shared.edges[edge].push(time_ns);
        }
        for &thread in &it.wakes {
            self.shared.wakers[thread].wake();
        }
    }

    /// When time alone may make a task ready.
    fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        self.entries
            .iter()
            .filter(|e| !(self.draining && e.core.is_source))
            .filter_map(|e| e.core.activation.wake_ns(now_ns))
            .min()
    }

    /// Runs until the executor is stopped; `step` runs what is ready, and says how many it were.
    fn serve(&mut self, step: fn(&mut Lane, u64) -> usize) {
        let shared = Arc::clone(&self.shared);
        let over = || shared.stop.load(Ordering::Acquire);
        let now_ns = clock::now_ns();
        self.entries
            .iter_mut()
            .for_each(|e| e.core.activation.start(now_ns));
        while !over() {
            self.draining = shared.draining.load(Ordering::Acquire);
            let now_ns = clock::now_ns();
            if step(self, now_ns) > 0 {
                continue;
            }
            let wake_ns = self.wake_ns(now_ns);
            // What waits for a slot is still to be done.
            if self.draining && wake_ns.is_none() {
                if !self.idle {
                    self.idle = true;
                    shared.idle[self.number].fetch_add(1, Ordering::SeqCst);
                }
                if shared.is_quiet() {
                    shared.stop();
                    break;
                }
            }
            let idle = self.idle;
            shared.wakers[self.number].wait(wake_ns, || {
                over()
                    || shared.draining.load(Ordering::Acquire) != self.draining
                    || step(self, clock::now_ns()) > 0
                    // Something has come, if not enough: it has to become idle again.
                    || self.idle != idle
            });
        }
    }
}

/// Stops everybody when its thread ends, also by a panic.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.stop();
        self.0.ended.fetch_add(1, Ordering::Release);
        self.0.home.wake();
    }
}

/// Puts a program on its threads and starts them: all or, if one cannot be had as asked, none.
/// `order`: the tasks of each thread; `priorities`: by task, where order is by priority.
pub(crate) fn start(
    program: Program,
    order: &[Vec<usize>],
    priorities: Option<&[u32]>,
    step: fn(&mut Lane, u64) -> usize,
) -> Result<Running, ThreadError> {
    let timed = priorities.is_some();
    let mut place = vec![(0, 0); program.tasks.len()];
    for (thread, tasks) in order.iter().enumerate() {
        for (entry, &task) in tasks.iter().enumerate() {
            place[task] = (thread, entry);
        }
    }
    let tasks = program.tasks.len();
    let mut parts: Vec<Option<Parts>> = program.tasks.into_iter().map(Some).collect();
    let mut lanes: Vec<Vec<Entry>> = order
        .iter()
        .map(|ids| {
            ids.iter()
                .map(|&id| {
                    let parts = parts[id].take().expect("each task is on one thread");
                    Entry {
                        id,
                        core: parts.core,
                        work: parts.work,
                        fed: parts.fed,
                        here: Vec::new(),
                        there: Vec::new(),
                        wakes: Vec::new(),
                        incoming: Vec::new(),
                        priority: priorities.map_or(0, |p| p[id]),
                        since: None,
                    }
                })
                .collect()
        })
        .collect();
    let mut edges = Vec::new();
    for c in &program.connections {
        let ((from_thread, from), (to_thread, to)) = (place[c.from], place[c.to]);
        if from_thread == to_thread {
            let here = &mut lanes[from_thread][from].here;
            here.push(Here {
                entry: to,
                link: c.link,
            });
            continue;
        }
        let wakes = lanes[to_thread][to].core.wakes(c.input);
        lanes[to_thread][to].incoming.push(Incoming {
            edge: edges.len(),
            link: c.link,
            seen: 0,
            until: 0,
        });
        let source = &mut lanes[from_thread][from];
        source.there.push(edges.len());
        if wakes && !source.wakes.contains(&to_thread) {
            source.wakes.push(to_thread);
        }
        edges.push(Edge {
            tail: AtomicU64::new(0),
            times: (0..if timed { TIMES } else { 0 })
                .map(|_| AtomicU64::new(0))
                .collect(),
            head: AtomicU64::new(0),
            wakes,
        });
    }
    let shared = Arc::new(Shared {
        wakers: program.wakers,
        edges,
        figures: (0..tasks).map(|_| Figures::default()).collect(),
        stop: AtomicBool::new(false),
        draining: AtomicBool::new(false),
        idle: order.iter().map(|_| AtomicU64::new(0)).collect(),
        ended: AtomicUsize::new(0),
        home: Waker::new(),
    });
    let lanes = lanes.into_iter().enumerate().map(|(number, entries)| {
        let those = |wanted: fn(&Entry) -> bool| {
            let all = entries.iter().enumerate();
            all.filter(|(_, e)| wanted(e)).map(|(i, _)| i).collect()
        };
        Lane {
            number,
            receiving: those(|e| !e.incoming.is_empty()),
            changing: those(|e| e.fed || e.core.activation.has_schedule()),
            entries,
            shared: Arc::clone(&shared),
            draining: false,
            idle: false,
            timed,
            readied: 0,
        }
    });

    let mut waiting = Vec::new();
    let mut first_error = None;
    for (options, mut lane) in program.threads.into_iter().zip(lanes) {
        let (ready, is_ready) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let (name, stack_bytes) = (options.name.clone(), options.stack_bytes);
        let spawned = std::thread::Builder::new()
            .name(name.replace('\0', ""))
            .stack_size(stack_bytes)
            .spawn(move || {
                let applied = thread::apply(&options);
                let fine = applied.is_ok();
                let told = ready.send(applied).is_ok();
                // If another thread cannot be had, `go` is dropped, and nothing runs.
                if fine && told && may_go.recv().is_ok() {
                    let _ends = Ends(Arc::clone(&lane.shared));
                    lane.serve(step);
                }
            });
        match spawned {
            Ok(thread) => waiting.push((name, thread, is_ready, go)),
            Err(reason) => {
                first_error = Some(ThreadError::Spawn {
                    thread: name,
                    stack_bytes,
                    reason,
                });
                break;
            }
        }
    }
    for (.., is_ready, _) in &waiting {
        if let Ok(Err(error)) = is_ready.recv() {
            first_error.get_or_insert(error);
        }
    }
    let start = first_error.is_none();
    let mut threads = Vec::new();
    for (name, thread, _, go) in waiting {
        if start {
            // It waits for this, so it is there to get it.
            let _ = go.send(());
        }
        drop(go);
        threads.push((name, thread));
    }
    match first_error {
        None => Ok(Running { shared, threads }),
        Some(error) => {
            for (_, thread) in threads {
                let _ = thread.join();
            }
            Err(error)
        }
    }
}

/// An executor whose threads run. Dropping it stops them.
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<(String, std::thread::JoinHandle<()>)>,
}

impl Running {
    /// What a task has done so far.
    pub fn stats(&self, task: TaskId) -> TaskStats {
        self.shared.figures[task.0].get()
    }

    /// It was stopped: by `stop`, by an overrun, or by a panic.
    pub fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Ends each thread after the execution that is under way; what has arrived and was not used
    /// is left.
    pub fn stop(&mut self) -> Result<(), Panicked> {
        self.shared.stop();
        self.join()
    }

    /// Ends the threads once no input is pending: what has arrived is worked off, also what waits
    /// for a slot, and nothing is released by time alone any more. At `deadline_ns` (CLOCK_MONOTONIC)
    /// they are stopped with what is left then; false: that was so.
    pub fn drain(&mut self, deadline_ns: Option<u64>) -> Result<bool, Panicked> {
        let shared = Arc::clone(&self.shared);
        shared.draining.store(true, Ordering::Release);
        shared.wakers.iter().for_each(Waker::wake);
        let threads = shared.idle.len();
        let ended = || shared.ended.load(Ordering::Acquire) == threads;
        let drained = shared.home.wait(deadline_ns, ended);
        self.stop()?;
        Ok(drained)
    }

    fn join(&mut self) -> Result<(), Panicked> {
        let mut result = Ok(());
        for (thread, handle) in self.threads.drain(..) {
            if handle.join().is_err() {
                result = Err(Panicked { thread });
            }
        }
        result
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Who wants to know of a panic calls `stop`.
        let _ = self.stop();
    }
}
