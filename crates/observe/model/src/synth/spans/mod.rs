//! The threads' view (Algorithms 2 and 3): which callback runs on which thread from when to when.
//!
//! A read of an entity, or a call of a timer, *opens* a bracket on its thread. With rclcpp,
//! `callback_start` makes it exact and `callback_end` closes it. Without (rclpy, plain rcl), the
//! executor's next call on that thread closes it; rclpy's executor besides triggers its guard
//! condition right before the callback and right after.
//!
//! rclpy runs the code that waits for a response later, as a task after the last callback of the
//! round: there the *region* between the last trigger and the next wait is the client's callback.

mod account;
pub(in crate::synth) use account::Totals;

use self::account::{Account, Mark};
use super::entities::{HandleKind, Kind};
use super::events::{Begin, End, Ending, Fact, Input, Owner};
use super::notes::Note;
use super::running_median::RunningMedian;
use super::Synth;
use super::NONE;

/// A response that rclpy has taken; what waits for it runs later.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Pending {
    client: u32,
    input: Input,
    thread: u32,
    taken_at: u64,
    /// From the trigger before to the last one after the executor's own handling.
    from: Mark,
    to: Mark,
    idle: Option<(u64, u64)>,
    cpus: [u64; 4],
}

/// An open bracket.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Open {
    /// NONE while unknown (ring buffer of an unknown subscription).
    entity: u32,
    input: Input,
    /// Ring buffer that the input came from.
    buffer: u64,
    /// NONE until begun.
    instance: u32,
    /// Between `callback_start` and `callback_end`.
    exact: bool,
    /// Inside `execute_client`, so that its return is the exact end.
    client_call: bool,
    callback: u64,
    opened: Mark,
    from: Mark,
    /// The executor's guard, 0 while none was triggered, and how often it was since.
    guard: u64,
    triggers: u32,
    last: Mark,
    /// Longest time between two triggers after the first: where the waiting code ran.
    longest: Option<(Mark, Mark)>,
    /// A response that has been put among those waited for.
    pushed: bool,
    /// When a pool of threads was told that the callback is over, after its last publication.
    told: Option<Mark>,
    /// When it sent its response, which a client library does right after the callback.
    responded: Option<Mark>,
    /// Slot of publications after the last trigger whose owner is not decided.
    undecided: u32,
    due: u64,
    cpus: [u64; 4],
}

/// The part of an rclpy round in which the code that waited for a response runs, once it has
/// published something.
#[derive(Debug, Clone)]
struct Region {
    client: u32,
    instance: u32,
    cpus: [u64; 4],
    /// Nothing else waited, so its times teach what is usual for the client.
    alone: bool,
    from: Mark,
    last_content: Mark,
    trigger: Option<Mark>,
}

/// A thread.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Thread {
    pub(in crate::synth) pid: u32,
    pub(in crate::synth) tid: u32,
    pub(in crate::synth) process: u32,
    /// Name index of the thread's name.
    pub(in crate::synth) comm: u32,
    pub(in crate::synth) policy: u8,
    pub(in crate::synth) priority: u8,
    pub(in crate::synth) account: Account,
    /// There were scheduler events of it.
    pub(in crate::synth) scheduled: bool,
    /// It runs an rclcpp executor.
    rclcpp: bool,
    open: Option<Open>,
    region: Option<Region>,
    /// It waits for work itself: no worker of a pool.
    waits: bool,
    waiting: bool,
    wait_from: u64,
    woken: Option<u64>,
    /// The last wait, if the thread slept in it.
    idle: Option<(u64, u64)>,
    last_trigger: Option<Mark>,
    /// When it got up from its longest sleep since the last trigger, which for a worker is its
    /// wait for something to do (shorter ones may be waits for Python's lock), and how long it was.
    resumed: Option<(u64, Mark)>,
    asleep: Option<u64>,
    /// When it last went to sleep.
    slept: Option<Mark>,
    /// Time on the CPU from the last trigger of a round to the next wait set, in rounds in which
    /// nothing waited for a response: what rclpy's executor itself takes there.
    overhead: RunningMedian,
    client_call: bool,
    /// Last `rcl_publish`: publisher's handle and message.
    rcl_publish: (u64, u64),
    /// Last intra-process publication: publisher and when.
    intra_publish: (u32, Option<u64>),
    /// Publisher whose last item has no time stamp and whose publish call may still run.
    unstamped: u32,
    /// The node whose clock comes next, and the timer whose clock was just named.
    node_before_clock: u32,
    timer_clock: (u64, u64),
}

impl Thread {
    pub(in crate::synth) fn new(pid: u32, tid: u32, process: u32, time: u64) -> Self {
        Thread {
            pid,
            tid,
            process,
            comm: NONE,
            policy: UNKNOWN_POLICY,
            priority: 0,
            account: Account::new(time),
            scheduled: false,
            rclcpp: false,
            open: None,
            region: None,
            waits: false,
            waiting: false,
            wait_from: 0,
            woken: None,
            idle: None,
            last_trigger: None,
            resumed: None,
            asleep: None,
            slept: None,
            overhead: RunningMedian::default(),
            client_call: false,
            rcl_publish: (0, 0),
            intra_publish: (NONE, None),
            unstamped: NONE,
            node_before_clock: NONE,
            timer_clock: (0, 0),
        }
    }

    fn round(&self) -> Option<(u64, u64)> {
        self.idle
    }
}

/// Stands for a policy that no event told.
pub(in crate::synth) const UNKNOWN_POLICY: u8 = 255;

/// How long a response that no code seems to wait for is kept.
const PENDING_NS: u64 = 200_000_000;

/// Most of them.
const MAX_PENDING: usize = 64;

/// Why a bracket is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::synth) enum Why {
    /// `callback_end`, or the return of `execute_client`.
    End,
    /// The executor went on.
    Executor,
    /// The thread or process ended.
    Exit,
    /// The recording ended.
    Finish,
}

fn add_cpu(cpus: &mut [u64; 4], cpu: u16) {
    if let Some(word) = cpus.get_mut(usize::from(cpu / 64)) {
        *word |= 1 << (cpu % 64);
    }
}

fn longer(best: Option<(Mark, Mark)>, from: Mark, to: Mark) -> Option<(Mark, Mark)> {
    let exec = |m: &(Mark, Mark)| m.1.totals.since(&m.0.totals).exec_ns;
    match best {
        Some(b) if exec(&b) >= exec(&(from, to)) => Some(b),
        _ => Some((from, to)),
    }
}

impl Synth {
    // ---- kernel

    pub(in crate::synth) fn switch_in(
        &mut self,
        ti: usize,
        time: u64,
        cpu: u16,
        priority: u8,
        policy: u8,
    ) {
        let th = &mut self.threads[ti];
        th.account.switch_in(time);
        th.scheduled = true;
        (th.priority, th.policy) = (priority, policy);
        if let Some(open) = &mut th.open {
            add_cpu(&mut open.cpus, cpu);
        }
        if let Some(slept) = th.asleep.take() {
            let span = time.saturating_sub(slept);
            if th.resumed.is_none_or(|(longest, _)| span > longest) {
                th.resumed = Some((span, th.account.mark(time)));
            }
        }
    }

    pub(in crate::synth) fn switch_out(&mut self, ti: usize, time: u64, preempted: bool) {
        let th = &mut self.threads[ti];
        th.account.switch_out(time, preempted);
        th.scheduled = true;
        if !preempted {
            th.asleep = Some(time);
            th.slept = Some(th.account.mark(time));
            if th.waiting {
                th.woken = None;
            }
        }
    }

    pub(in crate::synth) fn wake(&mut self, ti: usize, time: u64) {
        let th = &mut self.threads[ti];
        if th.account.wake(time) && th.waiting {
            th.woken = Some(time);
        }
    }

    /// Every event that a thread causes itself.
    pub(in crate::synth) fn acted(&mut self, ti: usize, time: u64) {
        let th = &mut self.threads[ti];
        if th.account.acted(time) {
            self.notes.count(Note::LostSwitch, 1);
        }
        if th.unstamped != NONE {
            let publisher = std::mem::replace(&mut th.unstamped, NONE);
            self.emit(Fact::PublishedBy { publisher, time });
        }
    }

    // ---- brackets

    /// The executor does something on this thread: what was open there is over.
    pub(in crate::synth) fn executor(&mut self, ti: usize, time: u64, round_ends: bool) {
        self.leave_wait(ti);
        self.threads[ti].waits |= round_ends;
        let process = self.threads[ti].process as usize;
        if self.threads[ti].region.is_some() {
            self.close_region(ti, time);
            if round_ends {
                // What else was waited for has had its turn too, and has published nothing.
                for pending in self.take_pending(ti) {
                    self.run_pending(ti, &pending, pending.from, pending.to);
                }
            }
            return;
        }
        let mut region = None;
        if let Some(open) = self.threads[ti].open.take() {
            if self.waits_for_response(ti, &open) {
                let now = self.threads[ti].account.mark(time);
                region = longer(open.longest, open.last, now);
                self.push_pending(ti, &open);
            } else {
                if open.triggers >= 2 {
                    region = Some((open.last, self.threads[ti].account.mark(time)));
                }
                self.close(ti, open, time, Why::Executor);
            }
        }
        if self.world.processes[process].pending.is_empty() {
            if let (true, Some((from, to))) = (round_ends, region) {
                let spent = to.totals.since(&from.totals).exec_ns;
                self.threads[ti].overhead.add(spent);
            }
            return;
        }
        if round_ends && !self.threads[ti].rclcpp {
            let waiting = self.take_pending(ti);
            if !waiting.is_empty() {
                let now = self.threads[ti].account.mark(time);
                let from = self.threads[ti].last_trigger.unwrap_or(now);
                let (from, mut to) = region.unwrap_or((from, now));
                if to.time == now.time {
                    to = self.without_overhead(ti, from, to);
                }
                self.split_region(ti, waiting, from, to);
            }
        }
        self.expire_pending(process, time);
    }

    fn leave_wait(&mut self, ti: usize) {
        let th = &mut self.threads[ti];
        if th.waiting {
            th.waiting = false;
            th.idle = th.woken.take().map(|woken| (th.wait_from, woken));
        }
    }

    /// `rcl_wait` begins.
    pub(in crate::synth) fn wait(&mut self, ti: usize, time: u64) {
        self.executor(ti, time, true);
        let th = &mut self.threads[ti];
        th.waiting = true;
        th.wait_from = time;
        th.woken = None;
        th.idle = None;
    }

    /// rclcpp's executor goes on to what it reads next: an exact bracket that is still open was
    /// left by an exception, but a read that is waiting for its callback stays.
    pub(in crate::synth) fn execute(&mut self, ti: usize, time: u64) {
        self.threads[ti].rclcpp = true;
        let th = &self.threads[ti];
        if th
            .open
            .as_ref()
            .is_none_or(|o| o.instance == NONE && !o.exact)
        {
            self.leave_wait(ti);
            return;
        }
        self.executor(ti, time, false);
    }

    pub(in crate::synth) fn set_rclcpp(&mut self, ti: usize) {
        self.threads[ti].rclcpp = true;
    }

    pub(in crate::synth) fn set_client_call(&mut self, ti: usize, inside: bool) {
        self.threads[ti].client_call = inside;
    }

    /// The return of rclcpp's `execute_*`.
    pub(in crate::synth) fn executed(&mut self, ti: usize, time: u64) {
        let th = &mut self.threads[ti];
        th.rclcpp = true;
        th.client_call = false;
        if let Some(open) = th.open.take() {
            if open.exact {
                // Its own end comes, unless it was left by an exception: then the next call tells.
                th.open = Some(open);
            } else {
                let why = if open.client_call {
                    Why::End
                } else {
                    Why::Executor
                };
                self.close(ti, open, time, why);
            }
        }
    }

    /// An entity was read, or a timer called: what follows is its callback.
    pub(in crate::synth) fn open(
        &mut self,
        ti: usize,
        time: u64,
        cpu: u16,
        entity: u32,
        input: Input,
    ) {
        self.open_buffer(ti, time, cpu, entity, input, 0);
    }

    fn open_buffer(
        &mut self,
        ti: usize,
        time: u64,
        cpu: u16,
        entity: u32,
        input: Input,
        buffer: u64,
    ) {
        self.leave_wait(ti);
        let idle = self.threads[ti].idle;
        let due = if input == Input::Timer {
            self.timer_due(entity, time, idle)
        } else {
            0
        };
        let th = &mut self.threads[ti];
        let mark = th.account.mark(time);
        let mut cpus = [0; 4];
        add_cpu(&mut cpus, cpu);
        th.open = Some(Open {
            entity,
            input,
            buffer,
            instance: NONE,
            exact: false,
            client_call: th.client_call && matches!(input, Input::Response { .. }),
            callback: 0,
            opened: mark,
            from: mark,
            guard: 0,
            triggers: 0,
            last: mark,
            longest: None,
            pushed: false,
            told: None,
            responded: None,
            undecided: NONE,
            due,
            cpus,
        });
    }

    /// When the called timer was due, by its period's grid.
    fn timer_due(&mut self, entity: u32, time: u64, idle: Option<(u64, u64)>) -> u64 {
        let Some(timer) = self.world.entities.get_mut(entity as usize) else {
            return 0;
        };
        let period = timer.period_ns;
        if period == 0 {
            return 0;
        }
        let mut due = if timer.due == 0 {
            idle.map_or(time, |i| i.1)
        } else {
            timer.due
        };
        if let Some((from, woken)) = idle {
            // The executor slept past that time, so the timer was not due then: it was reset.
            let tolerance = (period / 4).clamp(1_000_000, 5_000_000);
            if from < due && woken > due.saturating_add(tolerance) {
                due = woken;
            }
        }
        due = due.min(time);
        let mut next = due.saturating_add(period);
        if next < time {
            next = next.saturating_add((1 + (time - next) / period).saturating_mul(period));
        }
        timer.due = next;
        due
    }

    /// An intra-process item is taken from a ring buffer.
    pub(in crate::synth) fn dequeue(
        &mut self,
        ti: usize,
        time: u64,
        cpu: u16,
        buffer: u64,
        index: u64,
    ) {
        self.executor(ti, time, false);
        let p = self.threads[ti].process;
        let entity = self.world.ring_buffer(p, buffer).unwrap_or(NONE);
        self.open_buffer(ti, time, cpu, entity, Input::Ring { index }, buffer);
    }

    /// `callback_start`
    pub(in crate::synth) fn callback_start(
        &mut self,
        ti: usize,
        time: u64,
        cpu: u16,
        callback: u64,
    ) {
        self.threads[ti].rclcpp = true;
        let p = self.threads[ti].process;
        let known = self.world.callback(p, callback);
        let mut read = None;
        if let Some(open) = self.threads[ti].open.take() {
            if open.instance == NONE && !open.exact {
                read = Some(open);
            } else {
                self.close(ti, open, time, Why::Executor);
            }
        }
        let read_entity = read.as_ref().map_or(NONE, |o| o.entity);
        let entity = match known {
            Some(e) => e,
            None if read_entity != NONE => {
                // Late attach: what was read right before is what this callback belongs to.
                self.world.processes[p as usize]
                    .handles
                    .insert((HandleKind::Callback, callback), read_entity);
                read_entity
            }
            None => {
                self.notes.count(Note::UnknownCallback, 1);
                return;
            }
        };
        let kind = self.world.entities[entity as usize].kind;
        let mut input = if kind == Kind::Timer {
            Input::Timer
        } else {
            Input::Unknown
        };
        let mut due = 0;
        if let Some(read) = read {
            let ring = read.entity == NONE && kind == Kind::Subscription;
            if read.entity == entity || ring {
                if read.buffer != 0 {
                    self.world.processes[p as usize]
                        .handles
                        .insert((HandleKind::RingBuffer, read.buffer), entity);
                }
                (input, due) = (read.input, read.due);
            } else {
                self.discard(&read);
            }
        }
        self.world.entities[entity as usize].exact = true;
        self.open_buffer(ti, time, cpu, entity, Input::Unknown, 0);
        if let Some(mut open) = self.threads[ti].open.take() {
            (open.exact, open.callback, open.input, open.due) = (true, callback, input, due);
            self.begin(ti, &mut open);
            self.threads[ti].open = Some(open);
        }
    }

    /// `callback_end`
    pub(in crate::synth) fn callback_end(&mut self, ti: usize, time: u64, callback: u64) {
        let th = &mut self.threads[ti];
        th.rclcpp = true;
        match th.open.take() {
            Some(open) if open.exact && open.callback == callback => {
                self.close(ti, open, time, Why::End);
            }
            other => th.open = other,
        }
    }

    /// A guard condition is triggered.
    pub(in crate::synth) fn trigger(&mut self, ti: usize, time: u64, guard: u64) {
        let th = &mut self.threads[ti];
        if th.rclcpp {
            return;
        }
        let process = th.process as usize;
        let mark = th.account.mark(time);
        // A worker that slept most of the time since the last trigger did something else in
        // between: that it found a callback group busy, say.
        let slept = th.resumed.map_or(0, |r| r.0);
        let since = th.last_trigger.map_or(0, |l| time.saturating_sub(l.time));
        let stray = !th.waits && slept > since / 2;
        th.last_trigger = Some(mark);
        th.resumed = None;
        if let Some(region) = &mut th.region {
            region.trigger = Some(mark);
            return;
        }
        let Some(mut open) = th.open.take() else {
            return;
        };
        let pool = self.world.processes[process].pool_guard;
        let rclpy = self.world.processes[process].rclpy;
        if open.entity == NONE {
            self.threads[ti].open = Some(open);
            return;
        }
        let client = self.world.entities[open.entity as usize].kind == Kind::Client;
        if open.triggers == 0 {
            if guard == pool && guard != 0 && !rclpy && !open.exact {
                // The thread is free again; it may well do nothing for long.
                open.told = Some(mark);
                self.close(ti, open, time, Why::Executor);
                return;
            }
            // Only a trigger before anything else can be rclpy's before the callback.
            if open.instance == NONE && guard != 0 {
                (open.guard, open.triggers) = (guard, 1);
                (open.from, open.last) = (mark, mark);
                if rclpy && !client {
                    self.begin(ti, &mut open);
                }
            }
        } else if open.guard == guard && !(stray && open.triggers >= 2 && open.undecided == NONE) {
            if open.triggers >= 2 {
                open.longest = longer(open.longest, open.last, mark);
            }
            open.triggers = open.triggers.saturating_add(1);
            open.last = mark;
            self.world.processes[process].rclpy = true;
            if !client {
                self.begin(ti, &mut open);
                if open.instance != NONE {
                    let instance = open.instance;
                    self.emit(Fact::Over { instance, time });
                }
            }
            if open.undecided != NONE {
                let slot = std::mem::replace(&mut open.undecided, NONE);
                self.decide(slot, Owner::Instance(open.instance));
            }
            if self.waits_for_response(ti, &open) {
                // What waits may run on another worker before this one does anything again.
                self.push_pending(ti, &open);
                open.pushed = true;
            }
        }
        self.threads[ti].open = Some(open);
    }

    fn is_hidden(&self, entity: u32) -> bool {
        self.world
            .entities
            .get(entity as usize)
            .is_none_or(|e| e.infrastructure && !self.options.infrastructure)
    }

    /// Tells the data flow's view that an instance has begun.
    fn begin(&mut self, ti: usize, open: &mut Open) {
        if open.instance != NONE || self.is_hidden(open.entity) {
            return;
        }
        let on = (self.threads[ti].pid, self.threads[ti].tid);
        open.instance = self.instances.insert(open.entity, open.from.time, on);
        let idle = self.threads[ti].round();
        self.emit(Fact::Begin(Begin {
            instance: open.instance,
            input: open.input,
            idle,
            due: open.due,
        }));
    }

    /// A read after which no callback ran.
    fn discard(&mut self, open: &Open) {
        if let Input::Message { source_ns } = open.input {
            if !self.is_hidden(open.entity) {
                self.emit(Fact::TakeOnly {
                    subscription: open.entity,
                    source_ns,
                });
            }
        }
    }

    /// Closes a bracket.
    fn close(&mut self, ti: usize, mut open: Open, time: u64, why: Why) {
        if open.undecided != NONE {
            self.decide(open.undecided, Owner::Outside);
        }
        if self.is_hidden(open.entity) {
            return;
        }
        let entity = &self.world.entities[open.entity as usize];
        if !open.exact && open.instance == NONE && entity.exact && self.threads[ti].rclcpp {
            self.discard(&open);
            return;
        }
        let now = self.threads[ti].account.mark(time);
        let process = &mut self.world.processes[self.threads[ti].process as usize];
        if open.triggers == 1 && open.instance == NONE && !open.exact && !process.rclpy {
            // No rclpy: a pool of threads, told after the callback that there is one thread more.
            process.pool_guard = open.guard;
            (open.from, open.told) = (open.opened, Some(open.last));
        }
        let (how, to) = match why {
            Why::End => (Ending::Exact, now),
            Why::Exit | Why::Finish if open.triggers >= 2 && !open.exact => {
                (Ending::Inferred, open.last)
            }
            Why::Exit | Why::Finish if open.told.is_some() && !open.exact => {
                (Ending::Inferred, open.told.unwrap_or(now))
            }
            Why::Finish => (Ending::Unfinished, now),
            Why::Exit => (Ending::CutOff, now),
            Why::Executor if open.exact => (Ending::Aborted, now),
            Why::Executor if open.triggers >= 2 => (Ending::Inferred, open.last),
            Why::Executor => (Ending::Inferred, open.told.unwrap_or(now)),
        };
        let to = match open.responded {
            Some(mark) if how == Ending::Inferred => mark,
            _ => to,
        };
        self.begin(ti, &mut open);
        self.end(ti, open.instance, open.from, to, how, open.cpus);
    }

    fn end(&mut self, ti: usize, instance: u32, from: Mark, to: Mark, how: Ending, cpus: [u64; 4]) {
        let th = &self.threads[ti];
        let end = End {
            instance,
            time: to.time,
            spent: to.totals.since(&from.totals),
            how,
            thread: (th.comm, th.policy, th.priority),
            cpus,
            scheduled: th.scheduled,
        };
        self.emit(Fact::End(end));
    }

    // ---- rclpy: code that waits for responses

    /// Whether a bracket is rclpy's own handling of a response.
    fn waits_for_response(&self, ti: usize, open: &Open) -> bool {
        !self.threads[ti].rclcpp
            && !open.exact
            && open.triggers >= 2
            && open.instance == NONE
            && open.entity != NONE
            && self.world.entities[open.entity as usize].kind == Kind::Client
            && !self.is_hidden(open.entity)
    }

    fn push_pending(&mut self, ti: usize, open: &Open) {
        if open.pushed {
            return;
        }
        let process = self.threads[ti].process as usize;
        if self.world.processes[process].pending.len() >= MAX_PENDING {
            if let Some(old) = self.world.processes[process].pending.pop_front() {
                self.run_pending(ti, &old, old.from, old.to);
            }
        }
        let pending = Pending {
            client: open.entity,
            input: open.input,
            thread: ti as u32,
            taken_at: open.from.time,
            from: open.from,
            to: open.last,
            idle: self.threads[ti].round(),
            cpus: open.cpus,
        };
        self.world.processes[process].pending.push_back(pending);
    }

    /// Takes the responses that were taken on this thread.
    fn take_pending(&mut self, ti: usize) -> Vec<Pending> {
        let pending = &mut self.world.processes[self.threads[ti].process as usize].pending;
        let mine = |p: &Pending| p.thread == ti as u32;
        let (mine, others): (Vec<_>, Vec<_>) = pending.drain(..).partition(mine);
        *pending = others.into();
        mine
    }

    /// One client's callback ran from one mark to another.
    fn run_pending(&mut self, ti: usize, pending: &Pending, from: Mark, to: Mark) {
        let instance = self.begin_pending(ti, pending, from);
        self.end(ti, instance, from, to, Ending::Inferred, pending.cpus);
    }

    fn begin_pending(&mut self, ti: usize, pending: &Pending, from: Mark) -> u32 {
        let on = (self.threads[ti].pid, self.threads[ti].tid);
        let instance = self.instances.insert(pending.client, from.time, on);
        self.emit(Fact::Begin(Begin {
            instance,
            input: pending.input,
            idle: pending.idle,
            due: 0,
        }));
        instance
    }

    /// Responses that nothing seems to wait for: the executor's handling is all there was.
    fn expire_pending(&mut self, process: usize, time: u64) {
        while let Some(old) = self.world.processes[process].pending.front() {
            if time.saturating_sub(old.taken_at) < PENDING_NS {
                return;
            }
            if let Some(old) = self.world.processes[process].pending.pop_front() {
                self.run_pending(old.thread as usize, &old, old.from, old.to);
            }
        }
    }

    /// Several callbacks shared a stretch of time with nothing in between that tells them apart:
    /// each gets a part by its usual execution time.
    fn split_region(&mut self, ti: usize, waiting: Vec<Pending>, from: Mark, to: Mark) {
        let weights: Vec<u64> = waiting
            .iter()
            .map(|w| {
                self.client_means
                    .get(&w.client)
                    .map_or(1_000_000, |m| m.0.max(1))
            })
            .collect();
        let total: u128 = weights.iter().map(|&w| u128::from(w)).sum();
        let spent = to.totals.since(&from.totals);
        let part = |value: u64, sum: u128| (u128::from(value) * sum / total.max(1)) as u64;
        let (mut sum, mut start) = (0, from);
        for (i, w) in waiting.iter().enumerate() {
            sum += u128::from(weights[i]);
            let mut end = to;
            if i + 1 < waiting.len() {
                end = from;
                end.time += part(to.time.saturating_sub(from.time), sum);
                end.totals.exec_ns += part(spent.exec_ns, sum);
                end.totals.preempted_ns += part(spent.preempted_ns, sum);
                end.totals.blocked_ns += part(spent.blocked_ns, sum);
            }
            if waiting.len() == 1 {
                self.learn_mean(w.client, spent.exec_ns);
            }
            self.run_pending(ti, w, start, end);
            start = end;
        }
    }

    /// A region's end at the next wait set, less what the executor itself usually takes to get
    /// there.
    fn without_overhead(&self, ti: usize, from: Mark, to: Mark) -> Mark {
        let spent = to.totals.since(&from.totals).exec_ns;
        let usual = self.threads[ti].overhead.median().min(spent);
        let mut end = to;
        end.totals.exec_ns -= usual;
        end.time = to.time.saturating_sub(usual).max(from.time);
        end
    }

    fn learn_mean(&mut self, client: u32, exec_ns: u64) {
        let mean = self.client_means.entry(client).or_insert((exec_ns, 0));
        mean.1 = (mean.1 + 1).min(16);
        let (old, n) = (i128::from(mean.0), i128::from(mean.1));
        mean.0 = u64::try_from(old + (i128::from(exec_ns) - old) / n).unwrap_or(exec_ns);
    }

    /// The client whose callback usually publishes by an endpoint.
    fn usual_client(&self, endpoint: u32) -> Option<u32> {
        let known = self.affinity.get(&endpoint)?;
        known.iter().max_by_key(|k| k.1).map(|k| k.0)
    }

    /// How well a client fits an endpoint: its usual one (3), else one of the same node of which
    /// nothing usual is known (2), or something else (1).
    fn fit(&self, client: u32, endpoint: u32) -> u8 {
        if let Some(usual) = self.usual_client(endpoint) {
            return if usual == client { 3 } else { 0 };
        }
        let node = |e: u32| self.world.entities.get(e as usize).map_or(NONE, |e| e.node);
        if node(client) != node(endpoint) {
            return 0;
        }
        let busy = self.affinity.values().flatten().any(|k| k.0 == client);
        if busy {
            1
        } else {
            2
        }
    }

    /// The response whose waiting code publishes by `endpoint` on this thread: among equals the
    /// first. Also how well it fits.
    fn choose_pending(&self, ti: usize, endpoint: u32) -> Option<(usize, u8)> {
        let th = &self.threads[ti];
        let pending = &self.world.processes[th.process as usize].pending;
        let mut best = None;
        for (i, p) in pending.iter().enumerate() {
            // Who waits for work runs itself what it has taken; workers run anything.
            if th.waits && p.thread != ti as u32 {
                continue;
            }
            let fit = self.fit(p.client, endpoint);
            if best.is_none_or(|(_, f)| fit > f) {
                best = Some((i, fit));
            }
        }
        best
    }

    /// Code that waited for a response publishes: its callback began at `from`.
    fn open_region(&mut self, ti: usize, from: Mark, chosen: usize, endpoint: u32) {
        let process = self.threads[ti].process as usize;
        let pending = &mut self.world.processes[process].pending;
        let Some(p) = pending.remove(chosen) else {
            return;
        };
        let alone = pending.is_empty();
        let node = self.world.entities[p.client as usize].node;
        let certain = self.world.processes[process]
            .pending
            .iter()
            .all(|o| self.world.entities[o.client as usize].node != node);
        if certain {
            let known = self.affinity.entry(endpoint).or_default();
            match known.iter_mut().find(|k| k.0 == p.client) {
                Some(k) => k.1 = k.1.saturating_add(1),
                None => known.push((p.client, 1)),
            }
        }
        let instance = self.begin_pending(ti, &p, from);
        self.threads[ti].region = Some(Region {
            client: p.client,
            instance,
            cpus: p.cpus,
            alone,
            from,
            last_content: from,
            trigger: None,
        });
    }

    /// Whose publication by `endpoint` this is, where code runs that waited for a response; a new
    /// region begins at `from`.
    fn region_owner(&mut self, ti: usize, time: u64, endpoint: u32, from: Mark) -> Owner {
        let now = self.threads[ti].account.mark(time);
        let mut from = from;
        if let Some(region) = &self.threads[ti].region {
            let th = &self.threads[ti];
            let slept = th
                .slept
                .filter(|s| !th.waits && s.time >= region.last_content.time);
            let slept = slept.is_some();
            let fit = self.fit(region.client, endpoint);
            let other = self.choose_pending(ti, endpoint).map_or(0, |c| c.1);
            if slept && other > 0 && other >= fit {
                // A worker that went to sleep and got up again: the next one runs now.
                self.close_region(ti, time);
                from = self.region_start(ti, time, None);
            } else if other > fit {
                // The next one's own publication: the one before ended with its last.
                from = region.last_content;
                self.end_region(ti, from);
            }
        }
        if self.threads[ti].region.is_none() {
            if let Some((chosen, _)) = self.choose_pending(ti, endpoint) {
                self.open_region(ti, from, chosen, endpoint);
            }
        }
        self.threads[ti].resumed = None;
        match &mut self.threads[ti].region {
            Some(region) => {
                region.last_content = now;
                region.trigger = None;
                Owner::Instance(region.instance)
            }
            None => Owner::Outside,
        }
    }

    fn end_region(&mut self, ti: usize, to: Mark) {
        let Some(region) = self.threads[ti].region.take() else {
            return;
        };
        if region.alone {
            let spent = to.totals.since(&region.from.totals).exec_ns;
            self.learn_mean(region.client, spent);
        }
        self.end(
            ti,
            region.instance,
            region.from,
            to,
            Ending::Inferred,
            region.cpus,
        );
    }

    fn close_region(&mut self, ti: usize, time: u64) {
        let th = &self.threads[ti];
        let Some(region) = &th.region else {
            return;
        };
        let now = th.account.mark(time);
        // A worker was done with it when it went to sleep.
        let slept = th
            .slept
            .filter(|s| !th.waits && s.time >= region.last_content.time);
        let to = region
            .trigger
            .or(slept)
            .unwrap_or_else(|| self.without_overhead(ti, region.last_content, now));
        self.end_region(ti, to);
    }

    /// Who publishes or sends by `endpoint` on this thread now.
    pub(in crate::synth) fn owner(&mut self, ti: usize, time: u64, endpoint: u32) -> Owner {
        if self.threads[ti].region.is_some() {
            let now = self.threads[ti].account.mark(time);
            return self.region_owner(ti, time, endpoint, now);
        }
        let process = self.threads[ti].process as usize;
        let pending = !self.threads[ti].rclcpp && !self.world.processes[process].pending.is_empty();
        let Some(mut open) = self.threads[ti].open.take() else {
            if !pending {
                return Owner::Outside;
            }
            let from = self.region_start(ti, time, None);
            return self.region_owner(ti, time, endpoint, from);
        };
        if self.waits_for_response(ti, &open) {
            let from = self.region_start(ti, time, Some(open.last));
            self.push_pending(ti, &open);
            return self.region_owner(ti, time, endpoint, from);
        }
        if open.exact || open.triggers <= 1 {
            if self.is_hidden(open.entity) {
                self.threads[ti].open = Some(open);
                return Owner::Hidden;
            }
            self.begin(ti, &mut open);
            open.told = None;
            let instance = open.instance;
            self.threads[ti].open = Some(open);
            return Owner::Instance(instance);
        }
        if pending {
            let from = self.region_start(ti, time, Some(open.last));
            self.close(ti, open, time, Why::Executor);
            return self.region_owner(ti, time, endpoint, from);
        }
        self.begin(ti, &mut open);
        if open.instance == NONE {
            self.threads[ti].open = Some(open);
            return Owner::Hidden;
        }
        if open.undecided == NONE {
            open.undecided = self.new_slot();
        }
        let slot = open.undecided;
        self.threads[ti].open = Some(open);
        Owner::Undecided(slot)
    }

    /// The last trigger, or for a worker when it got up after it.
    fn region_start(&self, ti: usize, time: u64, last: Option<Mark>) -> Mark {
        let th = &self.threads[ti];
        let up = th.resumed.filter(|_| !th.waits).map(|r| r.1);
        up.or(last)
            .or(th.last_trigger)
            .unwrap_or_else(|| th.account.mark(time))
    }

    /// A service sends a response: normally inside or right after its callback.
    pub(in crate::synth) fn responded(&mut self, ti: usize, time: u64, service: u32) {
        self.running(ti);
        let th = &mut self.threads[ti];
        let mark = th.account.mark(time);
        if let Some(open) = th.open.as_mut().filter(|o| o.entity == service) {
            open.responded.get_or_insert(mark);
        }
    }

    /// The running instance on a thread, of an exact bracket or an inferred one.
    pub(in crate::synth) fn running(&mut self, ti: usize) -> Option<u32> {
        let mut open = self.threads[ti].open.take()?;
        if open.entity != NONE {
            self.begin(ti, &mut open);
        }
        let instance = open.instance;
        self.threads[ti].open = Some(open);
        (instance != NONE).then_some(instance)
    }

    /// The thread ends, or the recording does.
    pub(in crate::synth) fn end_thread(&mut self, ti: usize, time: u64, why: Why) {
        if self.threads[ti].region.is_some() {
            self.close_region(ti, time);
        }
        if let Some(open) = self.threads[ti].open.take() {
            if self.waits_for_response(ti, &open) {
                self.push_pending(ti, &open);
            } else {
                self.close(ti, open, time, why);
            }
        }
    }

    /// The responses that a process has left.
    pub(in crate::synth) fn end_pending(&mut self, process: u32) {
        while let Some(old) = self.world.processes[process as usize].pending.pop_front() {
            self.run_pending(old.thread as usize, &old, old.from, old.to);
        }
    }

    // ---- small things that a thread remembers

    pub(in crate::synth) fn rcl_publish(&mut self, ti: usize, publisher: u64, message: u64) {
        self.threads[ti].rcl_publish = (publisher, message);
    }

    pub(in crate::synth) fn last_rcl_publish(&self, ti: usize, message: u64) -> Option<u64> {
        let (publisher, m) = self.threads[ti].rcl_publish;
        (publisher != 0 && (m == message || message == 0)).then_some(publisher)
    }

    pub(in crate::synth) fn set_unstamped(&mut self, ti: usize, publisher: u32) {
        self.threads[ti].unstamped = publisher;
    }

    pub(in crate::synth) fn set_intra_publish(&mut self, ti: usize, publisher: u32, time: u64) {
        self.threads[ti].intra_publish = (publisher, Some(time));
    }

    pub(in crate::synth) fn intra_publish(&self, ti: usize) -> (u32, Option<u64>) {
        self.threads[ti].intra_publish
    }

    /// If a publication through the middleware follows one within the process: which.
    pub(in crate::synth) fn intra_message(&mut self, ti: usize, publisher: u32) -> Option<u64> {
        let (p, message) = &mut self.threads[ti].intra_publish;
        if *p == publisher {
            message.take()
        } else {
            None
        }
    }

    pub(in crate::synth) fn node_made(&mut self, ti: usize, node: u32) {
        self.threads[ti].node_before_clock = node;
    }

    /// The node that a clock made now belongs to.
    pub(in crate::synth) fn clock_made(&mut self, ti: usize) -> Option<u32> {
        let node = std::mem::replace(&mut self.threads[ti].node_before_clock, NONE);
        (node != NONE).then_some(node)
    }

    pub(in crate::synth) fn timer_clock(&mut self, ti: usize, timer: u64, clock: u64) {
        self.threads[ti].timer_clock = (timer, clock);
    }

    /// The clock that was just named for a timer, which may be named once.
    pub(in crate::synth) fn clock_of_timer(&mut self, ti: usize, timer: u64) -> Option<u64> {
        let (t, clock) = std::mem::take(&mut self.threads[ti].timer_clock);
        (t == timer && clock != 0).then_some(clock)
    }
}
