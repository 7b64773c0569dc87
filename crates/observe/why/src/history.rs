//! Keeps what each observed thread did lately: when it had a CPU, who had it otherwise, when it
//! slept, and which callbacks ran on it.
//!
//! Memory is bounded: if there are many entries, those older than a window are dropped, and at most
//! [`Room::max`] are kept. Where the recording has gaps, the state is [`State::Unknown`], never a guess.

use crate::drops::Drops;
use crate::kind::Reason;
use onbeat_synth::followed::{Asked, Held, Shaped};
use onbeat_trace::{CallKind, Event, EventKind, UNSCHEDULED, UNTOLD};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// The limits for the number of entries in a history. They apply to the sum over all threads. An
/// entry has at most 40 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// The number of entries that may stay even if they are older than the history's window.
    few: usize,
    /// The maximum number of entries.
    max: usize,
}

impl Room {
    /// The limits for a recording. They allow many old entries, because synthesis reports the end
    /// of some executions much later. An example is a service whose coroutine waits for another
    /// response.
    pub(crate) const OF_RECORDING: Room = Room {
        few: 125_000,
        max: 1_000_000,
    };

    /// The limits for a running system. An idle system reaches them within minutes. A busy system
    /// needs 10 MB for its entries.
    pub(crate) const OF_RUNNING: Room = Room {
        few: 10_000,
        max: 250_000,
    };
}

/// Scheduler events may be missing within this time, in ns, before a report of lost events. The
/// recorder reports losses four times a second.
pub(crate) const LOSS_WINDOW_NS: u64 = 1_000_000_000;

/// The maximum delay in ns from the end of an execution to its report by the synthesis, for most
/// executions. Because of the delay, the reports do not come in the order of the ends.
pub(crate) const DEFERRAL_NS: u64 = 2_000_000_000;

/// The longest time in ns for which two executions of one callback group can seem to overlap. The
/// group becomes free shortly before the end of the first execution is recorded. In between, the
/// thread may wait for the interpreter's lock.
const SEEMING_NS: u64 = 2_000_000;

const AT_ONCE_MAX: usize = 1 << 16;

/// The reason why a thread sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// It waits for a mutex, which the thread with this id holds.
    Mutex(u32),
    Call(CallKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Stolen,
    /// The thread was preempted, and the thread `by` had the CPU. `by` is a thread id, 0 for the
    /// idle thread, or [`UNTOLD`] for an unknown thread.
    Preempted {
        by: u32,
    },
    /// The thread had been woken up and was ready to run, and the thread `by` had the CPU. The
    /// values of `by` are those of [`State::Preempted`].
    Queued {
        by: u32,
    },
    /// The thread was ready, but it or its control group had used up its CPU time.
    Throttled,
    /// The thread slept until the thread `waker` woke it up.
    Asleep {
        within: Option<Sleep>,
        waker: Option<u32>,
    },
    Unknown(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) state: State,
    /// The CPU on which the thread ran, or for which it waited. `None` if it did neither.
    pub(crate) cpu: Option<u16>,
}

#[derive(Debug, Clone, Copy)]
struct Part<T> {
    begin: u64,
    end: u64,
    what: T,
}

/// An execution of a callback: begin, end and the callback's number.
pub(crate) type Ran = (u64, u64, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    Running,
    Preempted,
    Queued,
    Asleep { within: Option<Sleep> },
    Ended,
}

/// The state of a thread without a CPU, or of a thread for which the recording does not show
/// whether it had one.
#[derive(Debug, Clone, Copy)]
enum Off {
    Preempted,
    Queued,
    Throttled,
    Asleep {
        within: Option<Sleep>,
        waker: Option<u32>,
    },
    Unknown(Reason),
}

#[derive(Debug, Clone)]
struct Thread {
    pid: u32,
    scheduled: Option<u64>,
    now: Now,
    since: u64,
    /// The time of the latest recorded event that shows that the thread had a CPU.
    seen: u64,
    /// The latest time at which the thread left a CPU or the kernel reported its CPU time.
    counted: Option<u64>,
    read: Option<u64>,
    /// Why the thread sleeps next.
    within: Option<Sleep>,
    /// The throttled time of the wait that ends next, and whether it is the beginning of that wait.
    throttled: Option<(u64, bool)>,
    off: VecDeque<Part<Off>>,
    held: VecDeque<Part<u32>>,
    stolen: VecDeque<Part<()>>,
    ran: VecDeque<Part<u32>>,
    longest_ran: u64,
    /// The thread's CPUs, each with the time from which on the thread was on it.
    cpus: VecDeque<(u64, u16)>,
}

impl Thread {
    fn new(pid: u32, time: u64) -> Thread {
        Thread {
            pid,
            scheduled: None,
            now: Now::Running,
            since: time,
            seen: time,
            counted: None,
            read: None,
            within: None,
            throttled: None,
            off: VecDeque::new(),
            held: VecDeque::new(),
            stolen: VecDeque::new(),
            ran: VecDeque::new(),
            longest_ran: 0,
            cpus: VecDeque::new(),
        }
    }

    fn entries(&self) -> usize {
        self.off.len() + self.held.len() + self.stolen.len() + self.ran.len() + self.cpus.len()
    }

    fn moved(&mut self, time: u64, cpu: u16) {
        if self.cpus.back().is_none_or(|last| last.1 != cpu) {
            self.cpus.push_back((time, cpu));
        }
    }

    /// Returns the CPU that the thread has at `time`, or had last before this time.
    fn cpu_at(&self, time: u64) -> Option<u16> {
        let until = self.cpus.partition_point(|(from, _)| *from <= time);
        let latest = self.cpus.get(until.checked_sub(1)?)?;
        Some(latest.1)
    }

    fn push(&mut self, begin: u64, end: u64, what: Off) {
        let begin = self.off.back().map_or(begin, |last| begin.max(last.end));
        if begin < end {
            self.off.push_back(Part { begin, end, what });
        }
    }

    fn turn(&mut self, time: u64, now: Now) {
        (self.now, self.since) = (now, time);
        if now == Now::Running {
            self.seen = time;
        }
    }

    /// Adds a wait for a CPU from the last change of the thread's state to `time`.
    fn push_wait(&mut self, time: u64, off: Off) {
        let since = self.since;
        match self.throttled.take() {
            Some((ns, true)) => {
                let until = since.saturating_add(ns).min(time);
                self.push(since, until, Off::Throttled);
                self.push(until, time, off);
            }
            Some((ns, false)) => {
                let from = time.saturating_sub(ns).max(since);
                self.push(since, from, off);
                self.push(from, time, Off::Throttled);
            }
            None => self.push(since, time, off),
        }
    }

    fn switch_in(&mut self, time: u64) {
        if self.scheduled.is_some() {
            let missing = Off::Unknown(Reason::MissingEvent);
            match self.now {
                Now::Running => self.push(self.seen, time, missing),
                Now::Preempted => self.push_wait(time, Off::Preempted),
                Now::Queued => self.push_wait(time, Off::Queued),
                // Its wake-up is not recorded, so the end of the sleep is unknown.
                Now::Asleep { .. } | Now::Ended => self.push(self.since, time, missing),
            }
        }
        self.throttled = None;
        self.scheduled.get_or_insert(time);
        self.turn(time, Now::Running);
    }

    fn switch_out(&mut self, time: u64, preempted: bool) {
        if self.scheduled.is_some() && self.now != Now::Running {
            self.push(self.since, time, Off::Unknown(Reason::MissingEvent));
        }
        self.scheduled.get_or_insert(time);
        let within = self.within.take();
        let now = match preempted {
            true => Now::Preempted,
            false => Now::Asleep { within },
        };
        self.counted = Some(time);
        self.turn(time, now);
    }

    fn wake(&mut self, time: u64, by: u32) {
        if let Now::Asleep { within } = self.now {
            let time = time.max(self.since);
            let waker = (by != 0 && by != UNTOLD).then_some(by);
            self.push(self.since, time, Off::Asleep { within, waker });
            self.turn(time, Now::Queued);
        }
    }

    fn acted(&mut self, time: u64) {
        if self.now == Now::Running {
            self.seen = time;
            return;
        }
        if self.scheduled.is_some() {
            self.push(self.since, time, Off::Unknown(Reason::MissingEvent));
        }
        self.turn(time, Now::Running);
    }

    /// Corrects the history by the CPU time `used_ns` that the kernel reports. The thread has a CPU
    /// at `time`.
    ///
    /// `used_ns` counts from the previous report. If `since_switch` is set and the thread left a
    /// CPU after that report, `used_ns` counts from then.
    fn cpu_time(&mut self, time: u64, used_ns: u64, since_switch: bool) {
        let base = if since_switch {
            self.counted
        } else {
            self.read
        };
        match self.now {
            Now::Running => {
                if let Some(base) = base {
                    // The kernel does not say which part of the time it was.
                    let missing = self.ran_ns(base, time).saturating_sub(used_ns);
                    let begin = time.saturating_sub(missing).max(self.since);
                    let stolen = self.stolen.back().map_or(0, |last| last.end);
                    let unknown = Off::Unknown(Reason::NoCpuTime);
                    self.push(begin.max(stolen), time, unknown);
                }
            }
            // Only the switch to the thread is missing, and the kernel shows when it was.
            Now::Preempted | Now::Asleep { .. } if since_switch && base == Some(self.since) => {
                let begins = time.saturating_sub(used_ns).max(self.since);
                let off = match self.now {
                    Now::Preempted => Off::Preempted,
                    // When the thread was woken up is not recorded.
                    _ => Off::Unknown(Reason::MissingEvent),
                };
                self.push(self.since, begins, off);
            }
            _ if self.scheduled.is_some() => {
                self.push(self.since, time, Off::Unknown(Reason::MissingEvent));
            }
            _ => {}
        }
        self.scheduled.get_or_insert(time);
        self.turn(time, Now::Running);
        (self.counted, self.read) = (Some(time), Some(time));
    }

    fn ran_ns(&self, begin: u64, end: u64) -> u64 {
        fn within<T>(parts: &VecDeque<Part<T>>, begin: u64, end: u64) -> u64 {
            let from = parts.partition_point(|p| p.end <= begin);
            let parts = parts.range(from..).take_while(|p| p.begin < end);
            parts.map(|p| p.end.min(end) - p.begin.max(begin)).sum()
        }
        let without = within(&self.off, begin, end) + within(&self.stolen, begin, end);
        (end - begin.min(end)).saturating_sub(without)
    }

    fn stolen(&mut self, time: u64, ns: u64) {
        if self.now != Now::Running {
            return;
        }
        let from = self.stolen.back().map_or(0, |last| last.end);
        let begin = time.saturating_sub(ns).max(self.since).max(from);
        if begin < time {
            self.stolen.push_back(Part {
                begin,
                end: time,
                what: (),
            });
        }
        self.seen = time;
    }

    fn drop_before(&mut self, time: u64) {
        fn drop<T>(parts: &mut VecDeque<Part<T>>, time: u64) {
            while parts.front().is_some_and(|p| p.end < time) {
                parts.pop_front();
            }
        }
        drop(&mut self.off, time);
        drop(&mut self.held, time);
        drop(&mut self.stolen, time);
        drop(&mut self.ran, time);
        while self.cpus.get(1).is_some_and(|next| next.0 <= time) {
            self.cpus.pop_front();
        }
    }

    /// Returns the present state of the thread if it has no CPU. The end of this state is not known
    /// yet. Returns `None` if the thread has a CPU.
    fn open(&self) -> Option<Off> {
        match self.now {
            Now::Running => None,
            Now::Preempted => Some(Off::Preempted),
            Now::Queued => Some(Off::Queued),
            Now::Asleep { within } => Some(Off::Asleep {
                within,
                waker: None,
            }),
            Now::Ended => Some(Off::Unknown(Reason::NotRecorded)),
        }
    }
}

/// Returns the number of parts at the front of the list for which `is_before` returns true.
/// `is_before` must return false for all parts behind them.
///
/// The search begins at the back of the list, because most results are near the back.
fn partition<T>(parts: &VecDeque<Part<T>>, is_before: impl Fn(&Part<T>) -> bool) -> usize {
    let (mut low, mut high, mut step) = (parts.len(), parts.len(), 2);
    while low > 0 {
        low = high.saturating_sub(step);
        if is_before(&parts[low]) {
            low += 1;
            break;
        }
        (high, step) = (low, 2 * step);
    }
    while low < high {
        let middle = (low + high) / 2;
        match is_before(&parts[middle]) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

/// Inserts a part into a list that is sorted by begin. Most parts belong near the end of the list.
fn insert(parts: &mut VecDeque<Part<u32>>, part: Part<u32>) {
    let later = |p: &&Part<u32>| p.begin > part.begin;
    let after = parts.iter().rev().take_while(later).count();
    parts.insert(parts.len() - after, part);
}

pub(crate) fn is_ignored(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Exec { .. }
            | EventKind::Process { .. }
            | EventKind::Occupied { .. }
            | EventKind::Moved
            | EventKind::Bystander { .. }
            | EventKind::ClockOffset { .. }
    ) || is_found(kind)
}

pub(crate) fn some_act() -> EventKind {
    EventKind::Wait
}

#[derive(Debug, Clone)]
pub(crate) struct History {
    threads: FxHashMap<u32, Thread>,
    pools: FxHashMap<u32, Vec<u32>>,
    /// The pairs of callbacks that ran at the same time on two threads of a process. The smaller
    /// number comes first.
    at_once: FxHashSet<(u32, u32)>,
    lossy: VecDeque<(u64, u64)>,
    drops: Drops,
    /// For each callback: its answered requests, in the order of the responses.
    asked: FxHashMap<u32, VecDeque<Asked>>,
    /// For each topic: the items that a shaper sent, in this order.
    shaped: FxHashMap<u32, VecDeque<Shaped>>,
    window_ns: u64,
    room: Room,
    kept_from: u64,
    next_drop: u64,
}

/// Reports whether the recorder itself made this event. The event's thread may be asleep.
fn is_found(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::NodeFound { .. }
            | EventKind::EndpointFound { .. }
            | EventKind::EndpointNode { .. }
            | EventKind::TimerFound { .. }
    )
}

impl History {
    pub(crate) fn new(window_ns: u64, room: Room) -> History {
        History {
            threads: FxHashMap::default(),
            pools: FxHashMap::default(),
            at_once: FxHashSet::default(),
            lossy: VecDeque::new(),
            drops: Drops::default(),
            asked: FxHashMap::default(),
            shaped: FxHashMap::default(),
            window_ns,
            room,
            kept_from: 0,
            next_drop: 0,
        }
    }

    pub(crate) fn window_ns(&self) -> u64 {
        self.window_ns
    }

    fn thread(&mut self, event: &Event, time: u64) -> &mut Thread {
        let thread = self
            .threads
            .entry(event.tid)
            .or_insert_with(|| Thread::new(event.pid, time));
        if thread.pid != event.pid {
            // The thread id is used again.
            *thread = Thread::new(event.pid, time);
        }
        thread
    }

    /// Processes the next event. `time` must not be earlier than the time of any event before it.
    pub(crate) fn push(&mut self, event: &Event, time: u64) {
        match event.kind {
            EventKind::SwitchIn { .. } => self.on_cpu(event, time).switch_in(time),
            EventKind::SwitchOut { state, .. } => {
                self.on_cpu(event, time).switch_out(time, state == 0);
            }
            EventKind::Wake { waker_tid } => self.thread(event, time).wake(time, waker_tid),
            EventKind::Woken { ready_ns } => {
                let ready = time.saturating_sub(ready_ns);
                self.thread(event, time).wake(ready, 0);
            }
            EventKind::Stolen { stolen_ns } => self.thread(event, time).stolen(time, stolen_ns),
            EventKind::CpuTime {
                used_ns,
                since_switch,
            } => self
                .on_cpu(event, time)
                .cpu_time(time, used_ns, since_switch),
            EventKind::LockWait { owner_tid, .. } => {
                self.thread(event, time).within = Some(Sleep::Mutex(owner_tid));
            }
            EventKind::Sleep { call } => {
                self.thread(event, time).within = Some(Sleep::Call(call));
            }
            EventKind::Throttled {
                throttled_ns,
                first,
            } => {
                self.thread(event, time).throttled = Some((throttled_ns, first));
            }
            EventKind::SocketDrop { port, .. } => self.drops.add(event.pid, time, port),
            EventKind::Thread { priority, .. } if priority == UNSCHEDULED => {}
            EventKind::Thread { .. } => {
                let thread = self.thread(event, time);
                if thread.scheduled.is_none() {
                    thread.scheduled = Some(time);
                    thread.turn(time, Now::Running);
                }
            }
            EventKind::Fork { .. } => {
                let thread = Thread::new(event.pid, time);
                self.threads.insert(event.tid, thread);
            }
            EventKind::Exit => self.thread(event, time).turn(time, Now::Ended),
            EventKind::Lost { .. } => {
                let begin = time.saturating_sub(LOSS_WINDOW_NS);
                match self.lossy.back_mut() {
                    Some(last) if last.1 >= begin => last.1 = time,
                    _ => self.lossy.push_back((begin, time)),
                }
            }
            _ if is_ignored(&event.kind) => {}
            _ => self.on_cpu(event, time).acted(time),
        }
    }

    /// Records the CPU of a thread that has a CPU at the time of an event.
    fn on_cpu(&mut self, event: &Event, time: u64) -> &mut Thread {
        let thread = self.thread(event, time);
        thread.moved(time, event.cpu);
        thread
    }

    /// Records that a thread is on another CPU from `time` on.
    pub(crate) fn moved(&mut self, tid: u32, time: u64, cpu: u16) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.moved(time, cpu);
        }
    }

    /// Drops the entries that are older than the history's window at the time `now`. The caller
    /// must pass the time of the latest event, before it passes the next event. After a gap in the
    /// recording, executions from before the gap are not cut yet and still need their entries.
    pub(crate) fn drop_until(&mut self, now: u64) {
        if now >= self.next_drop {
            self.drop_old(now);
        }
    }

    pub(crate) fn ran(&mut self, tid: u32, (begin, end, callback): Ran) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let part = Part {
            begin,
            end,
            what: callback,
        };
        thread.longest_ran = thread.longest_ran.max(end - begin.min(end));
        insert(&mut thread.ran, part);
        let pool = self.pools.entry(thread.pid).or_default();
        if !pool.contains(&tid) {
            pool.push(tid);
        }
        if pool.len() == 1 {
            return;
        }
        for (from, to, other) in self.executions_beside(tid, begin, end) {
            let together_ns = to.min(end) - from.max(begin).min(to.min(end));
            if together_ns > SEEMING_NS && self.at_once.len() < AT_ONCE_MAX {
                let pair = (callback.min(other), callback.max(other));
                self.at_once.insert(pair);
            }
        }
    }

    pub(crate) fn executions_beside(&self, tid: u32, begin: u64, end: u64) -> Vec<Ran> {
        let pid = self.threads.get(&tid).map(|thread| thread.pid);
        let pool = pid.and_then(|pid| self.pools.get(&pid));
        let others = pool.into_iter().flatten().filter(|&&other| other != tid);
        let alive = others.filter(|other| self.threads.get(other).map(|t| t.pid) == pid);
        let executions = alive.map(|&other| self.executions(other, begin, end));
        executions.flatten().collect()
    }

    pub(crate) fn asked(&mut self, asked: Asked) {
        self.asked.entry(asked.from).or_default().push_back(asked);
    }

    pub(crate) fn shaped(&mut self, shaped: Shaped) {
        let of_topic = self.shaped.entry(shaped.name).or_default();
        of_topic.push_back(shaped);
    }

    /// Returns the time at which a shaper sent an item of a topic, not later than `until`. Returns
    /// `None` if no shaper held the item back.
    pub(crate) fn sent_at(&self, name: u32, published_ns: u64, until: u64) -> Option<u64> {
        let of_topic = self.shaped.get(&name)?;
        let from = of_topic.partition_point(|s| s.sent_ns < published_ns);
        let mut later = of_topic.range(from..).take_while(|s| s.sent_ns <= until);
        let found = later.find(|s| s.published_ns == published_ns);
        found.map(|s| s.sent_ns)
    }

    /// Returns the service for whose response a callback waited while it slept from `begin` to `end`.
    /// The response must have ended the sleep, or have come before `until`: a callback that needs a
    /// response does not end before it.
    pub(crate) fn service_of(
        &self,
        callback: u32,
        (begin, end): (u64, u64),
        until: Option<u64>,
    ) -> Option<u32> {
        let asked = self.asked.get(&callback)?;
        let from = asked.partition_point(|a| a.received_ns <= begin);
        let mut waits = asked.range(from..).filter(|a| a.sent_ns <= begin);
        let ends = |a: &&Asked| a.received_ns <= end.saturating_add(SEEMING_NS);
        let is_within = |a: &&Asked| until.is_some_and(|until| a.received_ns <= until);
        let found = waits.find(|a| ends(a) || is_within(a));
        found.map(|a| a.to)
    }

    /// Returns the port of a socket of the thread's process that dropped a datagram from `begin` to
    /// `end`.
    pub(crate) fn dropped_at(&self, tid: u32, begin: u64, end: u64) -> Option<u16> {
        let thread = self.threads.get(&tid)?;
        self.drops.at(thread.pid, begin, end)
    }

    /// Reports whether two callbacks never ran at the same time, as far as the recording has shown
    /// so far.
    pub(crate) fn exclude_each_other(&self, a: u32, b: u32) -> bool {
        !self.at_once.contains(&(a.min(b), a.max(b)))
    }

    pub(crate) fn held(&mut self, held: Held) {
        if let Some(thread) = self.threads.get_mut(&held.tid) {
            let part = Part {
                begin: held.begin_ns,
                end: held.end_ns,
                what: held.by_tid,
            };
            // The parts of one wait are reported latest first.
            insert(&mut thread.held, part);
        }
    }

    pub(crate) fn forget_callbacks(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.at_once
            .retain(|&(one, other)| !is_gone(one) && !is_gone(other));
        self.asked.retain(|from, asked| {
            asked.retain(|a| !is_gone(a.to));
            !is_gone(*from) && !asked.is_empty()
        });
        for thread in self.threads.values_mut() {
            thread.ran.retain(|part| !is_gone(part.what));
        }
    }

    fn entries(&self) -> usize {
        let of_threads: usize = self.threads.values().map(Thread::entries).sum();
        let of_asked: usize = self.asked.values().map(VecDeque::len).sum();
        let of_shaped: usize = self.shaped.values().map(VecDeque::len).sum();
        of_threads + of_asked + of_shaped
    }

    fn drop_old(&mut self, now: u64) {
        self.next_drop = now + self.window_ns / 8 + 1;
        if self.entries() <= self.room.few {
            return;
        }
        let mut from = now.saturating_sub(self.window_ns);
        self.drop_before(from);
        while self.entries() > self.room.max {
            if now - from <= 1 {
                break;
            }
            from += (now - from) / 2;
            self.drop_before(from);
        }
    }

    fn drop_before(&mut self, time: u64) {
        self.kept_from = self.kept_from.max(time);
        self.drops.forget_before(time);
        self.asked.retain(|_, asked| {
            while asked.front().is_some_and(|a| a.received_ns < time) {
                asked.pop_front();
            }
            !asked.is_empty()
        });
        self.shaped.retain(|_, shaped| {
            while shaped.front().is_some_and(|s| s.sent_ns < time) {
                shaped.pop_front();
            }
            !shaped.is_empty()
        });
        for thread in self.threads.values_mut() {
            thread.drop_before(time);
        }
        self.threads
            .retain(|_, t| t.now != Now::Ended || t.since >= time);
        let threads = &self.threads;
        self.pools.retain(|_, pool| {
            pool.retain(|tid| threads.contains_key(tid));
            !pool.is_empty()
        });
        while self.lossy.front().is_some_and(|l| l.1 < time) {
            self.lossy.pop_front();
        }
    }

    /// Returns the states of a thread from `begin` to `end`, in order and without gaps.
    pub(crate) fn states(&self, tid: u32, begin: u64, end: u64) -> Vec<Slice> {
        let mut slices = Slices {
            at: begin,
            end,
            list: Vec::new(),
        };
        if begin >= end {
            return slices.list;
        }
        slices.until(self.kept_from, State::Unknown(Reason::ShortHistory), None);
        let Some(thread) = self.threads.get(&tid) else {
            slices.until(end, State::Unknown(Reason::NotRecorded), None);
            return slices.list;
        };
        let scheduled = thread.scheduled.unwrap_or(u64::MAX);
        slices.until(scheduled, State::Unknown(Reason::NoScheduler), None);
        let from = partition(&thread.off, |p| p.end <= slices.at);
        let closed = thread.off.range(from..).copied();
        let open = thread.open().map(|what| Part {
            begin: thread.since,
            end: u64::MAX,
            what,
        });
        for part in closed.chain(open) {
            if part.begin >= end {
                break;
            }
            thread.running(&mut slices, part.begin);
            thread.off(&mut slices, &part);
        }
        thread.running(&mut slices, end);
        self.without_lossy(slices.list)
    }

    fn without_lossy(&self, slices: Vec<Slice>) -> Vec<Slice> {
        let touches = |s: &Slice| self.lossy.iter().any(|l| l.0 < s.end && s.begin < l.1);
        if !slices.iter().any(touches) {
            return slices;
        }
        let (first, last) = match (slices.first(), slices.last()) {
            (Some(first), Some(last)) => (first.begin, last.end),
            _ => return slices,
        };
        let mut all = Slices {
            at: first,
            end: last,
            list: Vec::new(),
        };
        for slice in slices {
            for &(begin, end) in &self.lossy {
                if begin < slice.end && slice.begin < end {
                    all.until(begin.min(slice.end), slice.state, slice.cpu);
                    let lost = State::Unknown(Reason::LostEvents);
                    all.until(end.min(slice.end), lost, None);
                }
            }
            all.until(slice.end, slice.state, slice.cpu);
        }
        all.list
    }

    pub(crate) fn executions(&self, tid: u32, begin: u64, end: u64) -> Vec<Ran> {
        let Some(thread) = self.threads.get(&tid) else {
            return Vec::new();
        };
        let overlaps = |p: &&Part<u32>| p.begin < end && begin < p.end;
        let near = |p: &&Part<u32>| p.begin.saturating_add(thread.longest_ran) > begin;
        let until = partition(&thread.ran, |p| p.begin < end);
        let found = thread.ran.range(..until).rev().take_while(near);
        let found = found.filter(overlaps);
        found.map(|p| (p.begin, p.end, p.what)).collect()
    }
}

impl Thread {
    /// Adds the slices from the last slice to `until`. In each of them, either the thread or the
    /// virtual machine's host had the CPU.
    fn running(&self, slices: &mut Slices, until: u64) {
        if slices.at >= until.min(slices.end) {
            return;
        }
        let cpu = self.cpu_at(slices.at);
        let from = partition(&self.stolen, |p| p.end <= slices.at);
        for part in self.stolen.range(from..) {
            if part.begin >= until {
                break;
            }
            slices.until(part.begin.min(until), State::Running, cpu);
            slices.until(part.end.min(until), State::Stolen, cpu);
        }
        slices.until(until, State::Running, cpu);
    }

    /// Adds the slices of a part in which the thread did not run. Each thread that had the CPU in
    /// this time gets a slice.
    fn off(&self, slices: &mut Slices, part: &Part<Off>) {
        let state = |by| match part.what {
            Off::Preempted => State::Preempted { by },
            Off::Queued => State::Queued { by },
            Off::Throttled => State::Throttled,
            Off::Asleep { within, waker } => State::Asleep { within, waker },
            Off::Unknown(reason) => State::Unknown(reason),
        };
        let cpu = match part.what {
            Off::Preempted => self.cpu_at(part.begin),
            // The CPU that the thread gets at last.
            Off::Queued | Off::Throttled => self.cpu_at(part.end),
            Off::Asleep { .. } | Off::Unknown(_) => None,
        };
        if matches!(part.what, Off::Preempted | Off::Queued) {
            let from = partition(&self.held, |h| h.end <= slices.at);
            let within = self.held.range(from..).copied();
            for held in within.take_while(|h| h.begin < part.end) {
                slices.until(held.begin.min(part.end), state(UNTOLD), cpu);
                slices.until(held.end.min(part.end), state(held.what), cpu);
            }
        }
        slices.until(part.end, state(UNTOLD), cpu);
    }
}

struct Slices {
    at: u64,
    end: u64,
    list: Vec<Slice>,
}

impl Slices {
    fn until(&mut self, until: u64, state: State, cpu: Option<u16>) {
        let until = until.min(self.end);
        if until <= self.at {
            return;
        }
        match self.list.last_mut() {
            Some(last) if (last.state, last.cpu) == (state, cpu) => last.end = until,
            _ => self.list.push(Slice {
                begin: self.at,
                end: until,
                state,
                cpu,
            }),
        }
        self.at = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_from_the_back_finds_what_a_binary_search_finds() {
        for count in 0..70 {
            let part = |begin| Part {
                begin,
                end: begin + 1,
                what: (),
            };
            let parts: VecDeque<_> = (0..count).map(part).collect();
            for limit in 0..=count {
                assert_eq!(partition(&parts, |p| p.begin < limit), limit as usize);
            }
        }
    }

    fn history(trace: &str, window_ns: u64, entries: usize) -> History {
        let few = entries / 8;
        let mut history = History::new(window_ns, Room { few, max: entries });
        let mut last = 0;
        for event in onbeat_trace::text::parse(trace).unwrap() {
            history.drop_until(last);
            history.push(&event, event.time_ns);
            last = event.time_ns;
        }
        history.drop_until(last);
        history
    }

    fn states(history: &History, begin: u64, end: u64) -> Vec<(u64, State)> {
        let slices = history.states(7, begin * 1000, end * 1000);
        let mut at = begin * 1000;
        for slice in &slices {
            assert_eq!(slice.begin, at, "{slices:?}");
            at = slice.end;
        }
        let shown = slices.iter().map(|s| ((s.end - s.begin) / 1000, s.state));
        shown.collect()
    }

    const SLEEP: State = State::Asleep {
        within: None,
        waker: Some(9),
    };

    #[test]
    fn each_scheduler_event_ends_one_thread_state_and_begins_the_next() {
        let trace = "
100us cpu0 5/7 thread comm=x
200us cpu0 5/7 switch_out state=1
300us cpu0 5/7 wake waker_tid=9
350us cpu0 5/7 switch_in
400us cpu0 5/7 stolen stolen_ns=20us
500us cpu0 5/7 switch_out state=0
600us cpu0 5/7 switch_in
700us cpu0 5/7 switch_out state=1
900us cpu0 5/7 woken ready_ns=50us
900us cpu0 5/7 switch_in
";
        let mut history = history(trace, u64::MAX / 2, 1000);
        let held = |begin_ns, end_ns, by_tid| Held {
            tid: 7,
            begin_ns,
            end_ns,
            by_tid,
        };
        // The parts of a wait come latest first. The first 10 us have no holder.
        history.held(held(550_000, 600_000, 12));
        history.held(held(510_000, 550_000, 11));
        let expected = [
            (50, State::Unknown(Reason::NoScheduler)),
            (100, State::Running),
            (100, SLEEP),
            (50, State::Queued { by: UNTOLD }),
            (30, State::Running),
            (20, State::Stolen),
            (100, State::Running),
            (10, State::Preempted { by: UNTOLD }),
            (40, State::Preempted { by: 11 }),
            (50, State::Preempted { by: 12 }),
            (100, State::Running),
            (
                150,
                State::Asleep {
                    within: None,
                    waker: None,
                },
            ),
            (50, State::Queued { by: UNTOLD }),
            (100, State::Running),
        ];
        assert_eq!(states(&history, 50, 1000), expected);
        assert_eq!(
            states(&history, 250, 310),
            [(50, SLEEP), (10, State::Queued { by: UNTOLD })]
        );
        assert_eq!(states(&history, 300, 300), []);
    }

    #[test]
    fn a_wait_has_the_cpu_that_the_thread_lost_or_the_cpu_that_it_gets() {
        let trace = "
100us cpu0 5/7 thread comm=x
100us cpu3 5/7 wait
200us cpu3 5/7 switch_out state=1
300us cpu9 5/7 wake waker_tid=9
350us cpu1 5/7 switch_in
500us cpu1 5/7 switch_out state=0
600us cpu2 5/7 switch_in
700us cpu2 5/7 switch_out state=1
";
        let history = history(trace, u64::MAX / 2, 1000);
        let slices = history.states(7, 100_000, 800_000);
        let cpus = slices.iter().map(|s| (s.end / 1000, s.cpu));
        let expected = [
            (200, Some(3)),
            (300, None),
            (350, Some(1)),
            (500, Some(1)),
            (600, Some(1)),
            (700, Some(2)),
            (800, None),
        ];
        assert_eq!(cpus.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_missing_scheduler_event_makes_the_time_since_the_threads_last_event_unknown() {
        let trace = "
100us cpu0 5/7 thread comm=x
200us cpu0 5/7 guard_trigger guard=0x1
400us cpu0 5/7 switch_in
500us cpu0 5/7 switch_out state=1
600us cpu0 5/7 guard_trigger guard=0x1
700us cpu0 5/7 switch_out state=1
800us cpu0 5/7 switch_out state=1
";
        let missing = State::Unknown(Reason::MissingEvent);
        let history = history(trace, u64::MAX / 2, 1000);
        let expected = [
            (100, State::Running),
            (200, missing),
            (100, State::Running),
            (100, missing),
            (100, State::Running),
            (100, missing),
        ];
        assert_eq!(states(&history, 100, 800), expected);
    }

    #[test]
    fn the_kernels_cpu_time_shows_when_a_thread_got_its_cpu() {
        let trace = "
100us cpu0 5/7 thread comm=x
200us cpu0 5/7 switch_out state=0
500us cpu0 5/7 cpu_time used_ns=100us since_switch=yes
600us cpu0 5/7 cpu_time used_ns=70us since_switch=no
700us cpu0 5/7 switch_out state=1
900us cpu0 5/7 cpu_time used_ns=50us since_switch=yes
";
        let history = history(trace, u64::MAX / 2, 1000);
        let expected = [
            (100, State::Running),
            (200, State::Preempted { by: UNTOLD }),
            (170, State::Running),
            (30, State::Unknown(Reason::NoCpuTime)),
            (100, State::Running),
            (150, State::Unknown(Reason::MissingEvent)),
            (50, State::Running),
        ];
        assert_eq!(states(&history, 100, 900), expected);
    }

    #[test]
    fn the_time_before_the_oldest_kept_entry_of_a_thread_is_unknown() {
        let mut trace = "1us cpu0 5/7 thread comm=x\n".to_owned();
        for i in 1..1000 {
            let (out, back) = (10 * i, 10 * i + 5);
            trace += &format!("{out}us cpu0 5/7 switch_out state=0\n{back}us cpu0 5/7 switch_in\n");
        }
        let short = State::Unknown(Reason::ShortHistory);
        let kept = history(&trace, 1_000_000, 800);
        assert!(kept.threads[&7].off.len() < 120);
        let seen = states(&kept, 0, 9_995);
        assert_eq!(seen[0].1, short);
        // The window and the eighth of it between two drops.
        assert!((8_850..=8_995).contains(&seen[0].0), "{seen:?}");
        // Few entries are all kept.
        let kept = history(&trace, 1_000_000, 10_000);
        assert_eq!(kept.threads[&7].off.len(), 999);
        // At most 50 entries are kept, although the window is larger.
        let kept = history(&trace, 1_000_000, 50);
        assert!(kept.threads[&7].off.len() <= 50 + 13);
        let seen = states(&kept, 0, 9_995);
        assert_eq!(seen[0].1, short);
        assert!(seen.len() > 50);
    }
}
