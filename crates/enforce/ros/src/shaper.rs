//! The shaper process: takes items from held topics and publishes each when there is *data AND slot*.
//!
//! Per output two threads. One waits for the middleware and takes items as they come (any priority);
//! the other sleeps until a slot begins, or within a slot until there is data, and publishes (the
//! server's CPU and priority). Between them items move through two rings without locks, one for filled
//! items and one for empty ones: nothing is allocated on the way, and no byte of an item is copied but
//! by the middleware. The main thread finds publishers of held topics and watches the owner.

use crate::beat::Beat;
use crate::config::{Config, Output, Overshoot, Place};
use crate::page::{PageReader, MAX_OUTPUTS};
use crate::rcl::{self, Announced, Node, Qos, Rcl, RclError};
use crate::report::{flags, Record, Reporter};
use crate::signal::{self, Bell};
use crate::worker::{Receiver, Sender};
use onbeat_flow::clock::now_ns;
use onbeat_flow::thread::{self, Scheduling, ThreadError, ThreadOptions};
use rtrb::RingBuffer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use thiserror::Error;

/// Name of the shaper's node.
pub const NODE: &str = "onbeat_shaper";
/// A waiting thread looks at the table at least this often.
pub const LOOK_NS: u64 = 50_000_000;
/// Without an owner the shaper ends when a held topic has had no publisher for so long.
pub const ORPHAN_NS: u64 = 5_000_000_000;
/// History of the subscription of a held topic.
const RECEIVE_DEPTH: usize = 1000;
pub(crate) const TICK_NS: u64 = 100_000_000;
const SEARCH_TICK_NS: u64 = 20_000_000;
const STACK_BYTES: usize = 1 << 20;
const PREFAULT_BYTES: usize = 256 << 10;

/// How a shaper ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to end, and has passed on what it held.
    Asked,
    /// Its owner is gone, or shaping was stopped, and so are all publishers of the held topics.
    Orphaned,
}

/// Why there is no shaper.
#[derive(Debug, Error)]
pub enum ShaperError {
    /// ROS 2.
    #[error(transparent)]
    Rcl(#[from] RclError),
    /// A thread cannot have its policy or CPU.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// A thread cannot be started.
    #[error(
        "cannot start a thread for {topic}: {reason}: free memory or raise the limit of threads"
    )]
    Spawn {
        /// Its output.
        topic: String,
        /// What the system said.
        reason: std::io::Error,
    },
    /// Too many outputs, or none.
    #[error("{0} outputs are configured: give 1 to {MAX_OUTPUTS}")]
    Outputs(usize),
    /// An output that cannot be.
    #[error("the output {topic} is held on {held}: give two topics that differ, and a capacity and depth of 1 to 100000")]
    Output {
        /// Topic under its own name.
        topic: String,
        /// Where it is held.
        held: String,
    },
    /// Neither table nor page, or both.
    #[error("the configuration needs either page_fd or table")]
    NoTable,
    /// A fixed table that cannot be.
    #[error("the table of {topic}: {reason}")]
    Table {
        /// Its output.
        topic: String,
        /// What is wrong.
        reason: String,
    },
    /// A descriptor.
    #[error("descriptor {fd} cannot be used as {what}: {reason}: hand over an open one that is inherited")]
    Descriptor {
        /// Its number.
        fd: i32,
        /// For what.
        what: &'static str,
        /// What is wrong.
        reason: std::io::Error,
    },
    /// Publishers that do not agree.
    #[error("publishers of {topic} announce different types, {first} and {second}: remap only one of their nodes")]
    Types {
        /// The held topic.
        topic: String,
        /// One type.
        first: String,
        /// Another.
        second: String,
    },
    /// A thread of an output ended.
    #[error("shaping {topic} ended: {reason}")]
    Worker {
        /// Its output.
        topic: String,
        /// What it said.
        reason: String,
    },
}

/// Where slots come from.
pub(crate) enum Slots {
    Page(PageReader),
    Fixed(Vec<Beat>),
}

impl Slots {
    fn of(config: &Config) -> Result<Slots, ShaperError> {
        match (config.page_fd, &config.table) {
            (Some(fd), None) => {
                PageReader::open(fd)
                    .map(Slots::Page)
                    .map_err(|reason| ShaperError::Descriptor {
                        fd,
                        what: "the shared page",
                        reason,
                    })
            }
            (None, Some(table)) => {
                let beats = config.outputs.iter().enumerate().map(|(i, output)| {
                    let wrong = |reason: String| ShaperError::Table {
                        topic: output.topic.clone(),
                        reason,
                    };
                    let own = table
                        .outputs
                        .get(i)
                        .ok_or_else(|| wrong("it has none: give one per output".into()))?;
                    Beat::new(table.cycle_ns, table.origin_ns, own.earliest_ns, &own.slots)
                        .map_err(|e| wrong(e.to_string()))
                });
                beats.collect::<Result<_, _>>().map(Slots::Fixed)
            }
            _ => Err(ShaperError::NoTable),
        }
    }

    pub(crate) fn beat(&self, output: usize) -> Option<Beat> {
        match self {
            Slots::Page(page) => page.beat(output),
            Slots::Fixed(beats) => beats.get(output).copied(),
        }
    }

    /// Whether what is late is to leave in a later slot, whatever the policy. Real-time safe.
    pub(crate) fn settles(&self) -> bool {
        match self {
            Slots::Page(page) => page.settles(),
            Slots::Fixed(_) => false,
        }
    }
}

/// What all threads see.
pub(crate) struct Shared {
    pub(crate) slots: Slots,
    pub(crate) reporter: Reporter,
    pub(crate) overshoot: Overshoot,
    /// Everything passes at once: the owner wants it or is gone.
    pub(crate) passing: AtomicBool,
    /// The same, for good: an item was late under [`Overshoot::Stop`].
    pub(crate) stopped: AtomicBool,
    /// The process ends.
    pub(crate) ending: AtomicBool,
}

impl Shared {
    pub(crate) fn passes(&self) -> bool {
        self.passing.load(Ordering::Relaxed)
            || self.stopped.load(Ordering::Relaxed)
            || self.ending.load(Ordering::Relaxed)
    }
}

/// The threads of an output.
struct Running {
    topic: String,
    data: Arc<Bell>,
    receiver: JoinHandle<Result<(), ShaperError>>,
    sender: JoinHandle<Result<(), ShaperError>>,
}

/// Shapes until it is asked to end (SIGTERM; SIGINT too if nobody owns it), or is left alone. To be
/// called first thing by a process of its own: blocks these signals, locks memory, starts ROS 2.
pub fn run(config: &Config) -> Result<Ended, ShaperError> {
    if config.outputs.is_empty() || config.outputs.len() > MAX_OUTPUTS {
        return Err(ShaperError::Outputs(config.outputs.len()));
    }
    for o in &config.outputs {
        let fits = |n: usize| (1..=100_000).contains(&n);
        if o.topic == o.held_topic || !fits(o.capacity) || !fits(o.depth) {
            return Err(ShaperError::Output {
                topic: o.topic.clone(),
                held: o.held_topic.clone(),
            });
        }
    }
    let owned = config.page_fd.is_some() || config.report_fd.is_some();
    // Before any thread starts, so that all inherit it.
    signal::block();
    let reporter = Reporter::new(config.report_fd).map_err(|reason| ShaperError::Descriptor {
        fd: config.report_fd.unwrap_or(-1),
        what: "the pipe for reports",
        reason,
    })?;
    let shared = Arc::new(Shared {
        slots: Slots::of(config)?,
        reporter,
        overshoot: config.overshoot,
        passing: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
        ending: AtomicBool::new(false),
    });
    // What is locked must not be more than what is used: the middleware's threads have large stacks.
    signal::lock_memory();
    // The middleware's threads inherit this.
    thread::apply(&options("onbeat-shaper", config.middleware.as_ref()))?;
    let rcl = Rcl::load(&config.rcl, &config.folders)?;
    let node = Node::new(rcl, NODE)?;

    let mut running: Vec<Option<Running>> = config.outputs.iter().map(|_| None).collect();
    let result = watch(config, &shared, &node, &mut running, owned);
    shared.ending.store(true, Ordering::Relaxed);
    let mut failed = None;
    for output in running.into_iter().flatten() {
        output.data.ring();
        for thread in [output.receiver, output.sender] {
            if let Err(e) = ended(thread, &output.topic) {
                failed.get_or_insert(e);
            }
        }
    }
    match (result, failed) {
        // What a thread said comes before that it ended.
        (Err(ShaperError::Worker { .. }) | Ok(_), Some(e)) => Err(e),
        (result, _) => result,
    }
}

fn ended(thread: JoinHandle<Result<(), ShaperError>>, topic: &str) -> Result<(), ShaperError> {
    thread.join().unwrap_or_else(|_| {
        Err(ShaperError::Worker {
            topic: topic.into(),
            reason: "a thread panicked: report this as a bug".into(),
        })
    })
}

/// The main thread: finds publishers, watches the owner, waits for signals.
fn watch(
    config: &Config,
    shared: &Arc<Shared>,
    node: &Arc<Node>,
    running: &mut [Option<Running>],
    owned: bool,
) -> Result<Ended, ShaperError> {
    let mut seen_ns = now_ns();
    let application = config.application.map(|pid| (pid, started_at(pid)));
    loop {
        if application.is_some_and(|(pid, start)| start.is_none() || started_at(pid) != start) {
            return Ok(Ended::Orphaned);
        }
        for (i, (place, output)) in running.iter_mut().zip(&config.outputs).enumerate() {
            if place.is_some() {
                continue;
            }
            if let Some((type_name, qos)) = find(node, &output.held_topic)? {
                let started = start(shared, node, i, output, config, &type_name, qos)?;
                *place = Some(started);
            }
        }
        let searching = running.iter().any(Option::is_none);
        let tick = if searching { SEARCH_TICK_NS } else { TICK_NS };
        match signal::wait(tick) {
            Some(libc::SIGTERM) => return Ok(Ended::Asked),
            Some(_) if !owned => return Ok(Ended::Asked),
            _ => {}
        }
        for output in running.iter().flatten() {
            if output.receiver.is_finished() || output.sender.is_finished() {
                return Err(ShaperError::Worker {
                    topic: output.topic.clone(),
                    reason: "a thread ended".into(),
                });
            }
        }
        let now = now_ns();
        let orphan = shared.reporter.owner_is_gone()
            || match &shared.slots {
                Slots::Page(page) => page.passes(now, config.silence_ns),
                Slots::Fixed(_) => false,
            };
        if shared.passing.swap(orphan, Ordering::Relaxed) != orphan {
            running.iter().flatten().for_each(|o| o.data.ring());
        }
        if orphan || shared.stopped.load(Ordering::Relaxed) {
            for output in &config.outputs {
                if node.publishers(&output.held_topic)? > 0 {
                    seen_ns = now;
                }
            }
            if now.saturating_sub(seen_ns) > ORPHAN_NS {
                return Ok(Ended::Orphaned);
            }
        } else {
            seen_ns = now;
        }
    }
}

/// When a process was started, in the kernel's ticks: tells it from a later one with its id. None: it has
/// ended.
fn started_at(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    if matches!(fields.next(), Some("Z" | "X")) {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Type and QoS of a held topic, once somebody publishes it.
fn find(node: &Node, topic: &str) -> Result<Option<(String, Qos)>, ShaperError> {
    let found = node.announced(topic)?;
    let Some(first) = found.first() else {
        return Ok(None);
    };
    if let Some(other) = found.iter().find(|a| a.type_name != first.type_name) {
        return Err(ShaperError::Types {
            topic: topic.into(),
            first: first.type_name.clone(),
            second: other.type_name.clone(),
        });
    }
    Ok(Some((first.type_name.clone(), weakest(&found))))
}

/// What all publishers offer: a subscription asks for no more than the weakest of them.
fn weakest(found: &[Announced]) -> Qos {
    let mut qos = found.first().map(|a| a.qos).unwrap_or_default();
    for other in &found[1..] {
        if other.qos.reliability != rcl::RELIABLE {
            qos.reliability = rcl::BEST_EFFORT;
        }
        if other.qos.durability != rcl::TRANSIENT_LOCAL {
            qos.durability = rcl::VOLATILE;
        }
        qos.deadline = longer(qos.deadline, other.qos.deadline);
        qos.lease = longer(qos.lease, other.qos.lease);
        qos.liveliness = qos.liveliness.min(other.qos.liveliness);
    }
    qos
}

/// The longer of two times, of which 0 means none.
fn longer<T: Into<Qt> + Copy>(a: T, b: T) -> T {
    let (x, y): (Qt, Qt) = (a.into(), b.into());
    if x == (0, 0) || y != (0, 0) && x >= y {
        a
    } else {
        b
    }
}

/// Seconds and nanoseconds.
type Qt = (u64, u64);

impl From<rcl::Time> for Qt {
    fn from(time: rcl::Time) -> Qt {
        (time.sec, time.nsec)
    }
}

fn options(name: &str, place: Option<&Place>) -> ThreadOptions {
    let mut options = ThreadOptions::new(name);
    options.stack_bytes = STACK_BYTES;
    if let Some(place) = place {
        options.cpus = place.cpus.clone();
        if let Some(priority) = place.priority {
            options.scheduling = Scheduling::Fifo { priority };
        }
    }
    options
}

/// Makes the endpoints of an output, its memory, and its threads.
fn start(
    shared: &Arc<Shared>,
    node: &Arc<Node>,
    index: usize,
    output: &Output,
    config: &Config,
    type_name: &str,
    announced: Qos,
) -> Result<Running, ShaperError> {
    // History is not announced: ours is long, and newest first to go, so that neither side waits.
    let publish = Qos {
        history: rcl::KEEP_LAST,
        depth: output.depth,
        ..announced
    };
    let receive = Qos {
        depth: RECEIVE_DEPTH,
        ..publish
    };
    let publisher = node.publisher(&output.topic, type_name, &publish)?;
    let subscription = node.subscription(&output.held_topic, type_name, &receive)?;
    let (filled_in, filled_out) = RingBuffer::new(output.capacity);
    let (mut empty_in, empty_out) = RingBuffer::new(output.capacity);
    for _ in 0..output.capacity {
        let item = node.item(output.item_bytes)?;
        // The ring has room for all of them.
        let _ = empty_in.push(item);
    }
    let data = Arc::new(Bell::new());
    let space = Arc::new(Bell::new());
    let done = Arc::new(AtomicBool::new(false));

    let receiver = Receiver {
        shared: shared.clone(),
        subscription,
        empty: empty_out,
        filled: filled_in,
        data: data.clone(),
        space: space.clone(),
        done: done.clone(),
    };
    let sender = Sender {
        shared: shared.clone(),
        index,
        kind: output.kind,
        publisher,
        empty: empty_in,
        filled: filled_out,
        data: data.clone(),
        space,
        done,
        sequence: 0,
    };
    let failed = |reason| ShaperError::Spawn {
        topic: output.topic.clone(),
        reason,
    };
    let receiving = options("onbeat-receive", config.middleware.as_ref());
    let mut sending = options("onbeat-send", output.place.as_ref());
    sending.prefault_bytes = PREFAULT_BYTES;
    let build = |name: &str| {
        std::thread::Builder::new()
            .name(name.into())
            .stack_size(STACK_BYTES)
    };
    let bell = data.clone();
    let sender = build("onbeat-send")
        .spawn(move || {
            thread::apply(&sending)?;
            signal::no_slack();
            sender.run();
            Ok(())
        })
        .map_err(failed)?;
    let receiver = build("onbeat-receive")
        .spawn(move || {
            let result = thread::apply(&receiving).map_err(ShaperError::from);
            result.and_then(|()| receiver.run())
        })
        .map_err(failed)?;
    shared.reporter.send(Record {
        arrival_ns: now_ns() as i64,
        output: index as u16,
        flags: flags::READY,
        ..Record::default()
    });
    Ok(Running {
        topic: output.topic.clone(),
        data: bell,
        receiver,
        sender,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rcl::Time;

    #[test]
    fn the_weakest_offer_counts() {
        let strong = Qos {
            reliability: rcl::RELIABLE,
            durability: rcl::TRANSIENT_LOCAL,
            deadline: Time { sec: 1, nsec: 0 },
            liveliness: 3,
            ..Qos::default()
        };
        let weak = Qos {
            reliability: rcl::BEST_EFFORT,
            durability: rcl::VOLATILE,
            liveliness: 1,
            ..Qos::default()
        };
        let of = |qos| Announced {
            node: String::new(),
            type_name: String::new(),
            qos,
        };
        assert_eq!(weakest(&[of(strong)]), strong);
        assert_eq!(weakest(&[of(strong), of(weak)]), weak);
        assert_eq!(weakest(&[of(weak), of(strong)]), weak);
    }
}
