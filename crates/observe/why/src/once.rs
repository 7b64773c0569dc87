//! Explains executions after one pass over a recording, in which neither the chain nor the limit is
//! known.
//!
//! [`Once`] makes the model. Meanwhile it writes to a spool what explanations need: the acts of
//! threads, the executions of callbacks, and the executions of chains, as numbers.
//! [`Spooled::explain`] reads the spool, and explains like [`Why`](crate::Why), which needs a pass of
//! its own.

use crate::explain::{Explanation, Question, Subjects};
use crate::spool::{put, put_head, Records, Spool, OF_THREADS_MAX};
use onbeat_document::dist::Dist;
use onbeat_document::Model;
use onbeat_synth::followed::{
    each, Arrival, Asked, ChainEnd, ChainStep, Held, Joined, PathStep, Shaped,
};
use onbeat_synth::named::Named;
use onbeat_synth::observe::Observation;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::reader::ahead::{self, Prepare};
use onbeat_trace::{CallKind, Event, EventKind, Reader, UNSCHEDULED};
use rustc_hash::FxHashMap;
use std::convert::Infallible;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::mpsc::{channel, Receiver};

/// The kinds of records. The comment of each kind says what happened and which fields follow.
///
/// Each field is a number. A record of a kind up to `LIFE` has a further first field, which the
/// comments do not list: the number of the thread that the record is about. Threads are numbered
/// from 0, in the order of their records of kind `THREAD`. Times are in ns.
mod record {
    pub(super) const SWITCH_IN: u8 = 0;
    pub(super) const PREEMPTED: u8 = 1;
    pub(super) const ASLEEP: u8 = 2;
    /// The thread was woken up. Field: the id of the thread that woke it up.
    pub(super) const WAKE: u8 = 3;
    /// The thread got a CPU after it had been woken up. Field: the time for which it had been
    /// ready.
    pub(super) const WOKEN: u8 = 4;
    /// The hypervisor took the thread's CPU, or the scheduler withheld it. Field: four times that time,
    /// plus a value of [`taken`](super::taken).
    pub(super) const STOLEN: u8 = 5;
    /// The kernel reported the thread's CPU time. Field: twice that time, plus 1 if the time counts
    /// from the last switch.
    pub(super) const CPU_TIME: u8 = 6;
    /// The thread is about to sleep. Field: twice the id of the thread that owns the mutex for which it
    /// sleeps, or twice the number of the kind of call, plus 1.
    pub(super) const SLEEPS: u8 = 7;
    /// The thread had a CPU, because it made a recorded call. Field: the time since the call.
    pub(super) const ACTED: u8 = 8;
    /// The thread was created or ended, or is on another CPU, or the recording shows its scheduler
    /// events from now on. Field: a value of [`life`](super::life), plus four times the number of the
    /// CPU.
    pub(super) const LIFE: u8 = 9;
    /// A record of a new thread. Threads are numbered in the order of these records. Fields: pid
    /// and tid of the thread.
    pub(super) const THREAD: u8 = 10;
    /// The recorder lost events. No fields follow.
    pub(super) const LOST: u8 = 11;
    /// A thread waited for a CPU. Fields: the id of the waiting thread, the times since the begin and
    /// since the end of the wait, and the id of the thread that had the CPU.
    pub(super) const HELD: u8 = 12;
    /// A callback was executed. Fields: the id of the thread, the times since the start and since
    /// the end of the execution, and the number of the callback.
    pub(super) const RAN: u8 = 13;
    /// A chain was executed. Fields: twice the number of the path, plus 1 if the chain is cut; the
    /// number of bytes in the following fields; the time since the end of the execution; the fields
    /// of the steps, as `put_times` writes them.
    pub(super) const CHAIN: u8 = 14;
    /// A kind that occurs rarely. Fields: a value of [`rare`](super::rare), and the fields of that
    /// kind.
    pub(super) const RARE: u8 = 15;
}

mod taken {
    pub(super) const STOLEN: u64 = 0;
    /// The end of the wait.
    pub(super) const THROTTLED: u64 = 1;
    /// The beginning of the wait.
    pub(super) const THROTTLED_FIRST: u64 = 2;
}

mod life {
    pub(super) const SCHEDULED: u64 = 0;
    pub(super) const FORK: u64 = 1;
    pub(super) const EXIT: u64 = 2;
    pub(super) const MOVED: u64 = 3;
}

mod rare {
    /// A synchroniser joined its inputs. Fields:
    ///
    /// - the number of the synchroniser, the time since the join, and the number of steps;
    /// - for each step, twice the number of the callback, plus 1 if
    ///   [`ChainStep::own`](super::ChainStep::own) is set;
    /// - for each step, the number of the name plus 1, or 0 without a name;
    /// - the fields of the steps, as `put_times` writes them.
    pub(super) const JOINED: u64 = 0;
    /// A thread has a new name. Fields: the numbers that
    /// [`Named::to_words`](onbeat_synth::named::Named::to_words) returns.
    pub(super) const NAMED: u64 = 1;
    /// A callback started. Fields: the number of the callback, the thread's id, the time since the
    /// start, and the time since the callback's input was published or its timer was due.
    pub(super) const ARRIVAL: u64 = 2;
    /// The kernel dropped datagrams at a socket. Fields: the id of the process, and the port.
    pub(super) const DROP: u64 = 3;
    /// A request was answered. Fields: the numbers of the callback that sent the request and of the
    /// service's callback, and the times since the request and since its response was taken.
    pub(super) const ASKED: u64 = 4;
    /// A shaper sent an item. Fields: the number of the topic, and the times since the publication
    /// and since the sending.
    pub(super) const SHAPED: u64 = 5;
}

const _: () = assert!(record::LOST == OF_THREADS_MAX);

#[derive(Debug, Clone, Copy)]
struct Known {
    pid: u32,
    number: u64,
    cpu: u16,
    /// The thread has a CPU. As long as it has one, its calls are not written one by one: the next
    /// record of the thread gives the time of the latest call.
    running: bool,
    /// The time of the thread's latest call that is not written to the spool yet. `None` if all
    /// calls are written.
    acted: Option<u64>,
}

/// A place for bytes that are written once and then read, such as a temporary file.
pub trait Room: Read + Write + Seek {}

impl<T: Read + Write + Seek> Room for T {}

/// The records of threads for some consecutive events.
#[derive(Default)]
struct Acts {
    bytes: Vec<u8>,
    /// For each event, where its records end in `bytes`.
    ends: Vec<u32>,
}

/// Writes the records of threads. It needs the events alone, so it can run ahead of the synthesis on
/// the thread that reads them.
#[derive(Default)]
struct Scribe {
    acts: Acts,
    /// The time of the last event.
    now: u64,
    /// The time of the last record.
    recorded: u64,
    threads: FxHashMap<u32, Known>,
    count: u64,
    spare: Option<Receiver<Acts>>,
}

/// Makes a model from events in one pass. Also writes a spool: a sequence of records that are
/// needed to explain executions later.
pub struct Once {
    synth: Synth,
    spool: Spool<Box<dyn Room>>,
    scribe: Scribe,
    /// The time of the last event that the synthesis got.
    now: u64,
    /// The time of the last record of a thread in the spool.
    recorded: u64,
    callbacks: Option<Latencies>,
    scratch: Vec<u8>,
    /// Lists of steps that have been written. The synthesis takes them back to use their memory
    /// again.
    done: Vec<Vec<ChainStep>>,
}

/// The latencies of all executions of callbacks, each from the time at which the callback could have
/// started.
#[derive(Debug, Default)]
struct Latencies {
    /// The key is the callback, the thread and the start of an execution that has not ended.
    arrivals: FxHashMap<(u32, u32, u64), u64>,
    of: FxHashMap<u32, Dist>,
}

/// The maximum number of arrivals that are kept. Some executions never end.
const ARRIVALS_MAX: usize = 1 << 16;

impl Latencies {
    fn arrived(&mut self, arrival: &Arrival) {
        if self.arrivals.len() >= ARRIVALS_MAX {
            let mut starts: Vec<u64> = self.arrivals.keys().map(|key| key.2).collect();
            let (_, middle, _) = starts.select_nth_unstable(ARRIVALS_MAX / 2);
            let middle = *middle;
            self.arrivals.retain(|key, _| key.2 > middle);
        }
        let key = (arrival.callback, arrival.tid, arrival.start_ns);
        self.arrivals.insert(key, arrival.since_ns);
    }

    fn ran(&mut self, callback: u32, tid: u32, (start_ns, end_ns): (u64, u64)) {
        let since = self.arrivals.remove(&(callback, tid, start_ns));
        let since = since.unwrap_or(start_ns);
        let latency = self.of.entry(callback).or_default();
        latency.record(end_ns.saturating_sub(since));
    }
}

/// The result of one pass over the events: the model, and a spool for explanations.
#[allow(missing_docs)]
pub struct Seen {
    pub model: Model,
    /// The ids of the callbacks. The options of another pass over the same events need them.
    pub ids: Vec<Option<String>>,
    pub spooled: Spooled,
    latencies: FxHashMap<u32, Dist>,
}

impl Seen {
    /// Returns the latencies of a callback's executions, as explanations count them. Returns `None` if
    /// the callback never ran, or if the pass was started without `callbacks`.
    pub fn latency_of(&self, callback: &str) -> Option<&Dist> {
        let is_it = |id: &Option<String>| id.as_deref() == Some(callback);
        let number = self.ids.iter().position(is_it)?;
        self.latencies.get(&(number as u32))
    }
}

/// The spool of a pass: records that are needed to explain executions.
pub struct Spooled {
    synth: Synth,
    spool: io::Result<Box<dyn Room>>,
}

impl Once {
    /// Starts a pass that writes its spool to `room`. Set `callbacks` if later questions may ask
    /// about executions of single callbacks, and not only about chains.
    pub fn new(options: SynthOptions, room: Box<dyn Room>, callbacks: bool) -> Once {
        let mut synth = Synth::new(options);
        synth.observe_executions();
        synth.follow();
        synth.keep_named();
        Once {
            synth,
            spool: Spool::new(room),
            scribe: Scribe::default(),
            now: 0,
            recorded: 0,
            callbacks: callbacks.then(Latencies::default),
            scratch: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Processes all events of a trace. Another thread reads them and writes the records of threads
    /// meanwhile. Calls `progress` from time to time with the number of events so far.
    pub fn read(&mut self, reader: &mut Reader, mut progress: impl FnMut(u64)) {
        let mut scribe = std::mem::take(&mut self.scribe);
        let (used_acts, spare_acts) = channel();
        let (used_events, spare_events) = channel();
        scribe.spare = Some(spare_acts);
        let mut count = 0;
        let Ok(()) = ahead::read(reader, &mut scribe, spare_events, |events, acts| {
            progress(count);
            count += events.len() as u64;
            self.process(&events, &acts);
            // The reading thread may have ended already.
            let _ = (used_events.send(events), used_acts.send(acts));
            Ok(())
        });
        self.scribe = scribe;
    }

    /// Processes the next event. The caller must pass events in time order.
    pub fn push(&mut self, event: &Event) {
        self.scribe.event(event);
        let acts = std::mem::take(&mut self.scribe.acts);
        self.process(std::slice::from_ref(event), &acts);
    }

    /// Passes events to the synthesis. Writes their records to the spool, and after the records of an
    /// event, the reports of the synthesis about it.
    fn process(&mut self, events: &[Event], acts: &Acts) {
        let (mut written, mut end) = (0, 0);
        for (event, acts_end) in events.iter().zip(&acts.ends) {
            self.now = self.now.max(event.time_ns);
            if *acts_end != end {
                (self.recorded, end) = (self.now, *acts_end);
            }
            self.synth.push(event);
            if let EventKind::SocketDrop { port, .. } = event.kind {
                self.spool.append(&acts.bytes[written..end as usize]);
                written = end as usize;
                let to = self.spool.record(self.now - self.recorded, record::RARE);
                put(to, rare::DROP);
                put(to, u64::from(event.pid));
                put(to, u64::from(port));
            }
            if self.synth.has_followed() {
                self.spool.append(&acts.bytes[written..end as usize]);
                written = end as usize;
                self.spool_followed();
            }
        }
        self.spool.append(&acts.bytes[written..]);
    }

    /// Ends the pass. Returns the model and the spool.
    pub fn finish(mut self) -> Seen {
        self.synth.end_of_events();
        self.spool_followed();
        Seen {
            model: self.synth.ended_model(),
            latencies: self.callbacks.take().unwrap_or_default().of,
            ids: self.synth.callback_ids(),
            spooled: Spooled {
                synth: self.synth,
                spool: self.spool.finish(),
            },
        }
    }

    /// Writes what the synthesis has reported since the last call. The order of the records is the
    /// order in which `Subjects` needs them.
    fn spool_followed(&mut self) {
        let (now, spool) = (self.now, &mut self.spool);
        let since = now - self.recorded;
        each(self.synth.drain_named(), |named| {
            let to = spool.record(since, record::RARE);
            put(to, rare::NAMED);
            named.to_words().iter().for_each(|w| put(to, u64::from(*w)));
        });
        each(self.synth.drain_held(), |held| {
            let to = spool.record(since, record::HELD);
            put(to, u64::from(held.tid));
            put(to, now.wrapping_sub(held.begin_ns));
            put(to, now.wrapping_sub(held.end_ns));
            put(to, u64::from(held.by_tid));
        });
        each(self.synth.drain_joins(), |joined| {
            let to = spool.record(since, record::RARE);
            put(to, rare::JOINED);
            put(to, u64::from(joined.synchroniser));
            put(to, now.wrapping_sub(joined.time_ns));
            put(to, joined.steps.len() as u64);
            for step in &joined.steps {
                let name = step.name.map_or(0, |n| u64::from(n) + 1);
                put(to, u64::from(step.callback) << 1 | u64::from(step.own));
                put(to, name);
            }
            put_times(to, now, &joined.steps);
            self.done.push(joined.steps);
        });
        each(self.synth.drain_asked(), |asked| {
            let to = spool.record(since, record::RARE);
            put(to, rare::ASKED);
            put(to, u64::from(asked.from));
            put(to, u64::from(asked.to));
            put(to, now.wrapping_sub(asked.sent_ns));
            put(to, now.wrapping_sub(asked.received_ns));
        });
        each(self.synth.drain_shaped(), |shaped| {
            let to = spool.record(since, record::RARE);
            put(to, rare::SHAPED);
            put(to, u64::from(shaped.name));
            put(to, now.wrapping_sub(shaped.published_ns));
            put(to, now.wrapping_sub(shaped.sent_ns));
        });
        each(self.synth.drain_arrivals(), |arrival| {
            if let Some(latencies) = &mut self.callbacks {
                latencies.arrived(&arrival);
                let to = spool.record(since, record::RARE);
                put(to, rare::ARRIVAL);
                put(to, u64::from(arrival.callback));
                put(to, u64::from(arrival.tid));
                put(to, now.wrapping_sub(arrival.start_ns));
                put(to, now.wrapping_sub(arrival.since_ns));
            }
        });
        each(self.synth.drain_observations(), |observation| {
            if let Observation::Execution {
                callback,
                tid,
                start_ns,
                end_ns,
                ..
            } = observation
            {
                if let Some(latencies) = &mut self.callbacks {
                    latencies.ran(callback, tid, (start_ns, end_ns));
                }
                let to = spool.record(since, record::RAN);
                put(to, u64::from(tid));
                put(to, now.wrapping_sub(start_ns));
                put(to, now.wrapping_sub(end_ns));
                put(to, u64::from(callback));
            }
        });
        each(self.synth.drain_chain_ends(), |end| {
            self.scratch.clear();
            put(&mut self.scratch, now.wrapping_sub(end.end_ns));
            put_times(&mut self.scratch, now, &end.steps);
            let to = spool.record(since, record::CHAIN);
            put(to, u64::from(end.path) << 1 | u64::from(end.cut));
            put(to, self.scratch.len() as u64);
            to.extend_from_slice(&self.scratch);
            self.done.push(end.steps);
        });
        for steps in self.done.drain(..) {
            self.synth.take_back(steps);
        }
    }
}

impl Prepare for Scribe {
    type Made = Acts;
    type Error = Infallible;

    fn event(&mut self, event: &Event) {
        self.now = self.now.max(event.time_ns);
        self.write(event);
        self.acts.ends.push(self.acts.bytes.len() as u32);
    }

    fn part(&mut self, _: bool) -> Result<Acts, Infallible> {
        let spare = self.spare.as_ref().and_then(|spare| spare.try_recv().ok());
        let mut next = spare.unwrap_or_default();
        next.bytes.clear();
        next.ends.clear();
        Ok(std::mem::replace(&mut self.acts, next))
    }
}

impl Scribe {
    fn write(&mut self, event: &Event) {
        use record::*;
        let number = |n: u32| u64::from(n);
        // Longer times than 2^62 - 1 ns are cut to that time.
        let taken_of = |ns: u64, what| (STOLEN, Some(ns.min(u64::MAX >> 2) << 2 | what));
        let (kind, value) = match &event.kind {
            EventKind::SwitchIn { .. } => (SWITCH_IN, None),
            EventKind::SwitchOut { state: 0, .. } => (PREEMPTED, None),
            EventKind::SwitchOut { .. } => (ASLEEP, None),
            EventKind::Wake { waker_tid } => (WAKE, Some(number(*waker_tid))),
            EventKind::Woken { ready_ns } => (WOKEN, Some(*ready_ns)),
            EventKind::Stolen { stolen_ns } => taken_of(*stolen_ns, taken::STOLEN),
            EventKind::Throttled {
                throttled_ns,
                first: false,
            } => taken_of(*throttled_ns, taken::THROTTLED),
            EventKind::Throttled { throttled_ns, .. } => {
                taken_of(*throttled_ns, taken::THROTTLED_FIRST)
            }
            EventKind::CpuTime {
                used_ns,
                since_switch,
            } => {
                // The flag needs one bit, so longer times are cut to 2^63 - 1 ns.
                let used = (*used_ns).min(u64::MAX >> 1);
                (CPU_TIME, Some(used << 1 | u64::from(*since_switch)))
            }
            EventKind::LockWait { owner_tid, .. } => (SLEEPS, Some(number(*owner_tid) << 1)),
            EventKind::Sleep { call } => (SLEEPS, Some((*call as u64) << 1 | 1)),
            EventKind::Thread { priority, .. } if *priority == UNSCHEDULED => return,
            EventKind::Thread { .. } => (LIFE, Some(life::SCHEDULED)),
            EventKind::Fork { .. } => (LIFE, Some(life::FORK)),
            EventKind::Exit => (LIFE, Some(life::EXIT)),
            EventKind::Lost { .. } => {
                self.record(LOST);
                return;
            }
            EventKind::SocketDrop { .. } => return,
            kind if crate::history::is_ignored(kind) => return,
            _ => (ACTED, None),
        };
        let now = self.now;
        let thread = self.threads.get_mut(&event.tid);
        let Some(thread) =
            thread.filter(|t| t.pid == event.pid && (kind, value) != (LIFE, Some(life::FORK)))
        else {
            let running = matches!(kind, SWITCH_IN | CPU_TIME | ACTED);
            let number = self.number(event, running);
            let to = self.record(kind);
            put(to, number);
            value.into_iter().for_each(|value| put(to, value));
            if kind == ACTED {
                put(to, 0);
            }
            return;
        };
        let has_cpu = matches!(kind, SWITCH_IN | PREEMPTED | ASLEEP | CPU_TIME | ACTED);
        if has_cpu && thread.cpu != event.cpu {
            thread.cpu = event.cpu;
            let number = thread.number;
            self.moved(number, event.cpu);
        }
        let Some(thread) = self.threads.get_mut(&event.tid) else {
            return;
        };
        let mut pending = None;
        match kind {
            ACTED if thread.running => {
                thread.acted = Some(now);
                return;
            }
            // After these, the pending act does not matter: they are themselves the latest act, or the
            // thread has lost its CPU.
            PREEMPTED | ASLEEP | STOLEN | CPU_TIME => thread.acted = None,
            WAKE | WOKEN | SLEEPS => {}
            _ => pending = thread.acted.take(),
        }
        match kind {
            SWITCH_IN | CPU_TIME | ACTED => thread.running = true,
            PREEMPTED | ASLEEP | LIFE => thread.running = false,
            _ => {}
        }
        let number = thread.number;
        if let Some(acted) = pending {
            let to = self.record(ACTED);
            put(to, number);
            put(to, now - acted);
        }
        let to = self.record(kind);
        put(to, number);
        match (kind, value) {
            (ACTED, _) => put(to, 0),
            (_, Some(value)) => put(to, value),
            _ => {}
        }
    }

    /// Begins a record at the time of the event. Returns the bytes to which the caller must append
    /// the record's numbers.
    #[inline]
    fn record(&mut self, kind: u8) -> &mut Vec<u8> {
        let to = &mut self.acts.bytes;
        put_head(to, self.now - self.recorded, kind);
        self.recorded = self.now;
        to
    }

    /// Writes a record for a thread that is new, or whose id is used again. Returns the thread's
    /// number.
    fn number(&mut self, event: &Event, running: bool) -> u64 {
        let (pid, tid) = (event.pid, event.tid);
        let number = self.count;
        self.count += 1;
        let known = Known {
            pid,
            number,
            cpu: event.cpu,
            running,
            acted: None,
        };
        self.threads.insert(tid, known);
        let to = self.record(record::THREAD);
        put(to, u64::from(pid));
        put(to, u64::from(tid));
        self.moved(number, event.cpu);
        number
    }

    fn moved(&mut self, number: u64, cpu: u16) {
        let to = self.record(record::LIFE);
        put(to, number);
        put(to, u64::from(cpu) << 2 | life::MOVED);
    }
}

/// Writes the fields of steps that differ between executions of one path: times, threads and last
/// inputs.
fn put_times(to: &mut Vec<u8>, now: u64, steps: &[ChainStep]) {
    let mut before = now;
    for step in steps {
        let has_released = step.released_ns.is_some();
        let has_last = step.last_input.is_some();
        let later = step.began_ns.wrapping_sub(step.start_ns);
        let flags = u64::from(has_released) | u64::from(has_last) << 1 | u64::from(later > 0) << 2;
        put(to, u64::from(step.tid) << 3 | flags);
        put(to, zigzag(step.published_ns.wrapping_sub(before)));
        put(to, step.start_ns.wrapping_sub(step.published_ns));
        if later > 0 {
            put(to, later);
        }
        if let Some(released) = step.released_ns {
            put(to, zigzag(released.wrapping_sub(step.start_ns)));
        }
        if let Some(last) = step.last_input {
            put(to, u64::from(last));
        }
        before = step.start_ns;
    }
}

fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

fn unzigzag(n: u64) -> u64 {
    (n >> 1) ^ (n & 1).wrapping_neg()
}

impl Spooled {
    /// Explains executions of chains or callbacks of the model, in the order of the questions. To
    /// answer questions about callbacks, the pass must have been started with `callbacks` set.
    ///
    /// # Errors
    ///
    /// Fails if the spool could not be written or cannot be read. A pass with [`Why`](crate::Why)
    /// gives the same explanations without a spool.
    pub fn explain(mut self, questions: Vec<Question>) -> io::Result<Vec<Explanation>> {
        let mut spool = self.spool?;
        spool.seek(SeekFrom::Start(0))?;
        let mut replay = Replay {
            records: Records::new(spool),
            subjects: Subjects::new(self.synth.callback_ids(), questions),
            threads: Vec::new(),
            paths: FxHashMap::default(),
        };
        replay.subjects.name_threads();
        replay.run(&mut self.synth)?;
        Ok(replay.subjects.finish(&mut self.synth))
    }
}

/// The ids of a recorded thread, and the CPU that it is on.
#[derive(Debug, Clone, Copy, Default)]
struct RecordedThread {
    pid: u32,
    tid: u32,
    cpu: u16,
}

struct Replay<R> {
    records: Records<R>,
    subjects: Subjects,
    threads: Vec<RecordedThread>,
    /// The steps of each path. The key is the first field of a record of kind `CHAIN`: twice the
    /// number of the path, plus 1 if the chain is cut. `None` if no question asks for the path.
    paths: FxHashMap<u64, Option<Vec<PathStep>>>,
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<R: Read> Replay<R> {
    fn run(&mut self, synth: &mut Synth) -> io::Result<()> {
        let mut now = None;
        while let Some((time, kind)) = self.records.next()? {
            if now != Some(time) {
                now = Some(time);
                self.subjects.advance(synth, time);
            }
            self.record(synth, time, kind)?;
        }
        Ok(())
    }

    fn record(&mut self, synth: &mut Synth, now: u64, kind: u8) -> io::Result<()> {
        let r = &mut self.records;
        match kind {
            record::THREAD => {
                let (pid, tid, cpu) = (r.short()?, r.short()?, 0);
                self.threads.push(RecordedThread { pid, tid, cpu });
            }
            record::LOST => {
                let lost = EventKind::Lost {
                    probe: Default::default(),
                    count: 1,
                };
                self.event(RecordedThread::default(), (now, now), lost);
            }
            record::HELD => {
                let held = Held {
                    tid: r.short()?,
                    begin_ns: now.wrapping_sub(r.number()?),
                    end_ns: now.wrapping_sub(r.number()?),
                    by_tid: r.short()?,
                };
                self.subjects.held(held);
            }
            record::RAN => {
                let tid = r.short()?;
                let (start, end) = (r.number()?, r.number()?);
                let times = (now.wrapping_sub(start), now.wrapping_sub(end));
                let callback = r.short()?;
                self.subjects.ran(callback, tid, times);
            }
            record::CHAIN => self.chain(synth, now)?,
            record::RARE => self.rare(now)?,
            _ => {
                let number = r.number()?;
                let life = match kind {
                    record::LIFE => r.number()?,
                    _ => 0,
                };
                let thread = self.threads.get_mut(number as usize);
                let thread =
                    thread.ok_or_else(|| wrong("the temporary file names an unknown thread"))?;
                if life & 3 == life::MOVED {
                    thread.cpu = (life >> 2) as u16;
                    self.subjects.moved(thread.tid, now, thread.cpu);
                    return Ok(());
                }
                let thread = *thread;
                let (time, event) = self.thread_event(now, kind, life)?;
                self.event(thread, (time, now), event);
            }
        }
        Ok(())
    }

    /// Reads a record of a kind that occurs rarely.
    fn rare(&mut self, now: u64) -> io::Result<()> {
        let r = &mut self.records;
        match r.number()? {
            rare::JOINED => {
                let synchroniser = r.short()?;
                let time_ns = now.wrapping_sub(r.number()?);
                let mut path = Vec::new();
                for _ in 0..r.number()? {
                    let callback = r.number()?;
                    path.push(PathStep {
                        callback: (callback >> 1) as u32,
                        own: callback & 1 == 1,
                        name: r.number()?.checked_sub(1).map(|n| n as u32),
                    });
                }
                let joined = Joined {
                    synchroniser,
                    time_ns,
                    steps: times(r, now, &path, Vec::new())?,
                };
                self.subjects.joined(joined);
            }
            rare::NAMED => {
                let mut words = [0; 5];
                for word in &mut words {
                    *word = r.short()?;
                }
                self.subjects.named(&Named::from_words(words));
            }
            rare::ARRIVAL => {
                let arrival = Arrival {
                    callback: r.short()?,
                    tid: r.short()?,
                    start_ns: now.wrapping_sub(r.number()?),
                    since_ns: now.wrapping_sub(r.number()?),
                    released: false,
                };
                self.subjects.arrived(&arrival);
            }
            rare::ASKED => {
                let asked = Asked {
                    from: r.short()?,
                    to: r.short()?,
                    sent_ns: now.wrapping_sub(r.number()?),
                    received_ns: now.wrapping_sub(r.number()?),
                };
                self.subjects.asked(asked);
            }
            rare::SHAPED => {
                let shaped = Shaped {
                    name: r.short()?,
                    published_ns: now.wrapping_sub(r.number()?),
                    sent_ns: now.wrapping_sub(r.number()?),
                };
                self.subjects.shaped(shaped);
            }
            rare::DROP => {
                let pid = r.short()?;
                let port = r.short()? as u16;
                let kind = EventKind::SocketDrop { port, count: 1 };
                let (tid, cpu) = (pid, 0);
                self.event(RecordedThread { pid, tid, cpu }, (now, now), kind);
            }
            _ => {
                return Err(wrong(
                    "the temporary file has a record whose kind is unknown",
                ))
            }
        }
        Ok(())
    }

    fn event(&mut self, thread: RecordedThread, (time_ns, now): (u64, u64), kind: EventKind) {
        let event = Event {
            time_ns,
            cpu: thread.cpu,
            pid: thread.pid,
            tid: thread.tid,
            kind,
        };
        match time_ns < now {
            true => self.subjects.past_event(&event),
            false => self.subjects.event(&event),
        }
    }

    /// Reads a record about a thread. Returns a time and an event that changes the thread's history
    /// as the recorded event did.
    fn thread_event(&mut self, now: u64, kind: u8, life: u64) -> io::Result<(u64, EventKind)> {
        let r = &mut self.records;
        let event = match kind {
            record::SWITCH_IN => EventKind::SwitchIn {
                prev_tid: 0,
                priority: 0,
                policy: 0,
            },
            record::PREEMPTED | record::ASLEEP => EventKind::SwitchOut {
                next_tid: 0,
                state: u16::from(kind == record::ASLEEP),
            },
            record::WAKE => EventKind::Wake {
                waker_tid: r.short()?,
            },
            record::WOKEN => EventKind::Woken {
                ready_ns: r.number()?,
            },
            record::STOLEN => {
                let number = r.number()?;
                let ns = number >> 2;
                match number & 3 {
                    taken::STOLEN => EventKind::Stolen { stolen_ns: ns },
                    what => EventKind::Throttled {
                        throttled_ns: ns,
                        first: what == taken::THROTTLED_FIRST,
                    },
                }
            }
            record::CPU_TIME => {
                let used = r.number()?;
                EventKind::CpuTime {
                    used_ns: used >> 1,
                    since_switch: used & 1 == 1,
                }
            }
            record::SLEEPS => {
                let number = r.number()?;
                let what = number >> 1;
                match number & 1 {
                    0 => EventKind::LockWait {
                        lock: 0,
                        owner_tid: what as u32,
                    },
                    _ => EventKind::Sleep {
                        call: CallKind::ALL
                            .get(what as usize)
                            .copied()
                            .unwrap_or(CallKind::Other),
                    },
                }
            }
            record::LIFE => match life {
                life::SCHEDULED => EventKind::Thread {
                    comm: Default::default(),
                    policy: 0,
                    priority: 0,
                    cpus: 0,
                },
                life::FORK => EventKind::Fork {
                    parent_pid: 0,
                    parent_tid: 0,
                    comm: Default::default(),
                },
                _ => EventKind::Exit,
            },
            record::ACTED => {
                let acted = now.wrapping_sub(r.number()?);
                return Ok((acted, crate::history::some_act()));
            }
            _ => return Err(wrong("the temporary file has a record of an unknown kind")),
        };
        Ok((now, event))
    }

    fn chain(&mut self, synth: &Synth, now: u64) -> io::Result<()> {
        let r = &mut self.records;
        let (number, bytes) = (r.number()?, r.number()?);
        let (path, cut) = ((number >> 1) as u32, number & 1 == 1);
        let subjects = &mut self.subjects;
        let of = self.paths.entry(number).or_insert_with(|| {
            let steps = synth.path_steps(path);
            let is_asked = subjects.asks_for(synth, (path, cut), steps.iter().copied());
            is_asked.then_some(steps)
        });
        let Some(steps) = of else {
            r.skip(bytes);
            return Ok(());
        };
        let end_ns = now.wrapping_sub(r.number()?);
        let end = ChainEnd {
            path,
            end_ns,
            cut,
            reread: false,
            steps: times(r, now, steps, subjects.spare())?,
        };
        self.subjects.chain_ended(synth, end);
        Ok(())
    }
}

/// Reads the steps of a path and appends them to `steps`.
fn times<R: Read>(
    r: &mut Records<R>,
    now: u64,
    path: &[PathStep],
    mut steps: Vec<ChainStep>,
) -> io::Result<Vec<ChainStep>> {
    let mut before = now;
    for at in path {
        let flags = r.number()?;
        let published_ns = before.wrapping_add(unzigzag(r.number()?));
        let start_ns = published_ns.wrapping_add(r.number()?);
        let later = if flags & 4 != 0 { r.number()? } else { 0 };
        let released_ns = match flags & 1 {
            0 => None,
            _ => Some(start_ns.wrapping_add(unzigzag(r.number()?))),
        };
        let last_input = match flags & 2 {
            0 => None,
            _ => Some(r.short()?),
        };
        steps.push(ChainStep {
            callback: at.callback,
            name: at.name,
            own: at.own,
            published_ns,
            start_ns,
            began_ns: start_ns.wrapping_add(later),
            released_ns,
            last_input,
            pid: 0,
            tid: (flags >> 3) as u32,
        });
        before = start_ns;
    }
    Ok(steps)
}
