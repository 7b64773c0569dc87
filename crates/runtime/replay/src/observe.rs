//! Records what the device under test publishes on ROS 2 topics while a replay runs. Messages go to
//! an MCAP file with the times of the recording.

use crate::control::Control;
use crate::sink::ros::LOOK;
use crate::sink::SinkError;
use mcap::records::MessageHeader;
use mcap::{McapError, WriteOptions, Writer};
use onbeat_ros::rcl::{self, Item, Node, Qos, Rcl, RclError, Subscription};
use onbeat_time::clock::{monotonic_ns, realtime_offset_ns};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::NamedTempFile;

/// The name of the ROS 2 node that observes the device under test.
pub const NODE: &str = "onbeat_compare";
/// The history depth of each subscription. A publisher never waits for the observer, because the
/// observer's history contains only the latest messages.
const DEPTH: usize = 1000;
const WAIT_NS: i64 = 50_000_000;
const ITEM_BYTES: usize = 64 << 10;
/// The difference between a publication's time and the time of this host, in ns, from which on
/// onbeat assumes that the publisher's host has another clock.
const MOST_DELAY_NS: i64 = 100_000_000;
const MOST_EARLY: usize = 1000;

/// An observed topic of the device under test.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The name under which the device publishes the topic.
    pub name: String,
    pub type_name: String,
    /// The definition of the message type, which onbeat writes to the file of observed messages.
    /// `None` if it is unknown.
    pub definition: Option<String>,
}

/// The messages that a device published during a replay, and the facts that are known about missing
/// ones.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug)]
pub struct Observed {
    pub file: NamedTempFile,
    pub messages: u64,
    pub unseen: HashMap<String, u64>,
    pub notes: HashMap<String, Vec<String>>,
}

/// A running observation: a thread for each topic.
pub struct Observer {
    threads: Threads,
    notes: HashMap<String, Vec<String>>,
    file: NamedTempFile,
}

struct Threads {
    shared: Arc<Shared>,
    all: Vec<JoinHandle<Seen>>,
}

impl Threads {
    fn end(&mut self) -> Vec<std::thread::Result<Seen>> {
        self.shared.is_over.store(true, Relaxed);
        self.all.drain(..).map(JoinHandle::join).collect()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        drop(self.end());
    }
}

struct Shared {
    is_over: AtomicBool,
    control: Arc<Control>,
    out: Mutex<Out>,
}

struct Out {
    writer: Writer<BufWriter<File>>,
    messages: u64,
    fault: Option<McapError>,
}

struct Seen {
    topic: String,
    unseen: u64,
    notes: Vec<String>,
}

fn failed(fault: impl ToString) -> SinkError {
    SinkError::new("--compare", fault.to_string())
}

fn ros(error: RclError) -> SinkError {
    failed(error)
}

impl Observer {
    /// Subscribes to the topics. Waits until the device publishes each of them, for `wait` at most.
    /// Also returns the topics that nobody publishes. onbeat also observes them if a publisher
    /// appears later.
    ///
    /// # Errors
    /// Fails if ROS 2 or a message type cannot be used, or if the file cannot be written.
    pub fn start(
        topics: &[Watched],
        control: Arc<Control>,
        wait: Duration,
    ) -> Result<(Observer, Vec<String>), SinkError> {
        let library = Rcl::load(Path::new("librcl.so"), &[]).map_err(ros)?;
        let node = Node::new(library, NODE).map_err(ros)?;
        let folder = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
        let refused = |error: &dyn std::fmt::Display| {
            failed(format!(
                "cannot write the observed messages to {}: {error}. Set TMPDIR to another directory",
                Path::new(&folder).display()
            ))
        };
        let file = tempfile::Builder::new()
            .prefix("onbeat-")
            .tempfile_in(&folder);
        let file = file.map_err(|e| refused(&e))?;
        let out = file.reopen().map_err(|e| refused(&e))?;
        let options = WriteOptions::new()
            .compression(None)
            .profile("ros2")
            .library("onbeat");
        let mut writer = options
            .create(BufWriter::new(out))
            .map_err(|e| refused(&e))?;
        let mut channels = Vec::new();
        for topic in topics {
            channels.push(declare(&mut writer, topic).map_err(|e| refused(&e))?);
        }
        let shared = Arc::new(Shared {
            is_over: AtomicBool::new(false),
            control,
            out: Mutex::new(Out {
                writer,
                messages: 0,
                fault: None,
            }),
        });
        let mut observer = Observer {
            threads: Threads {
                shared,
                all: Vec::new(),
            },
            notes: HashMap::new(),
            file,
        };
        let until_ns = monotonic_ns().saturating_add(wait.as_nanos() as u64);
        let mut silent = Vec::new();
        for (topic, channel) in topics.iter().zip(channels) {
            match offer(&node, topic, until_ns)? {
                Offer::Of(qos) => observer.watch(&node, topic, channel, &qos)?,
                Offer::Nobody => {
                    silent.push(topic.name.clone());
                    // Every publisher matches it.
                    let qos = Qos {
                        reliability: rcl::BEST_EFFORT,
                        durability: rcl::VOLATILE,
                        ..Qos::default()
                    };
                    observer.watch(&node, topic, channel, &qos)?;
                }
                Offer::OtherType(other) => observer.note(
                    &topic.name,
                    format!("not observed, because the device publishes type {other}, but the recording has type {}", topic.type_name),
                ),
            }
        }
        Ok((observer, silent))
    }

    fn note(&mut self, topic: &str, note: String) {
        self.notes.entry(topic.into()).or_default().push(note);
    }

    fn watch(
        &mut self,
        node: &Arc<Node>,
        topic: &Watched,
        channel: u16,
        qos: &Qos,
    ) -> Result<(), SinkError> {
        let qos = Qos {
            history: rcl::KEEP_LAST,
            depth: DEPTH,
            reliability: qos.reliability,
            durability: qos.durability,
            ..Qos::default()
        };
        let watch = Watch {
            subscription: node
                .subscription(&topic.name, &topic.type_name, &qos)
                .map_err(ros)?,
            item: node.item(ITEM_BYTES).map_err(ros)?,
            channel,
            keeps_early: qos.durability == rcl::TRANSIENT_LOCAL,
            early: Vec::new(),
            has_own_clock: None,
            latest: HashMap::new(),
            unseen: 0,
            shared: self.threads.shared.clone(),
        };
        let name = topic.name.clone();
        let thread = std::thread::Builder::new().name("onbeat-observe".into());
        let thread = thread.spawn(move || watch.run(name));
        self.threads.all.push(thread.map_err(|e| {
            failed(format!(
                "cannot start a thread: {e}. End other programs, or raise ulimit -u"
            ))
        })?);
        Ok(())
    }

    /// Ends the observation.
    ///
    /// # Errors
    /// Fails if a message could not be received or written.
    pub fn finish(mut self) -> Result<Observed, SinkError> {
        let mut unseen = HashMap::new();
        for ended in self.threads.end() {
            let seen = ended.map_err(|_| failed("a thread panicked. Report this as a bug"))?;
            unseen.insert(seen.topic.clone(), seen.unseen);
            for note in seen.notes {
                self.note(&seen.topic, note);
            }
        }
        let mut out = self.threads.shared.out();
        let finished = out.writer.finish();
        let fault = out.fault.take().or(finished.err());
        if let Some(fault) = fault {
            return Err(failed(format!(
                "the observed messages could not be written to {}: {fault}. Free space, or set TMPDIR to another directory",
                self.file.path().display()
            )));
        }
        let messages = out.messages;
        drop(out);
        Ok(Observed {
            file: self.file,
            messages,
            unseen,
            notes: self.notes,
        })
    }
}

fn declare<W: std::io::Write + std::io::Seek>(
    writer: &mut Writer<W>,
    topic: &Watched,
) -> Result<u16, McapError> {
    let text = topic.definition.as_deref().unwrap_or_default();
    let schema = writer.add_schema(&topic.type_name, "ros2msg", text.as_bytes())?;
    writer.add_channel(schema, &topic.name, "cdr", &BTreeMap::new())
}

enum Offer {
    /// The topic has publishers. The value is the QoS with which a subscription matches all of
    /// them.
    Of(Qos),
    OtherType(String),
    Nobody,
}

fn offer(node: &Arc<Node>, topic: &Watched, until_ns: u64) -> Result<Offer, SinkError> {
    loop {
        let found = node.announced(&topic.name).map_err(ros)?;
        let is_other = |p: &&rcl::Announced| p.type_name != topic.type_name;
        if let Some(other) = found.iter().find(is_other) {
            return Ok(Offer::OtherType(other.type_name.clone()));
        }
        let weaker = |a: Qos, b: Qos| Qos {
            reliability: match a.reliability == rcl::RELIABLE {
                true => b.reliability,
                false => a.reliability,
            },
            durability: match a.durability == rcl::TRANSIENT_LOCAL {
                true => b.durability,
                false => a.durability,
            },
            ..a
        };
        if let Some(qos) = found.into_iter().map(|p| p.qos).reduce(weaker) {
            return Ok(Offer::Of(qos));
        }
        if monotonic_ns() >= until_ns {
            return Ok(Offer::Nobody);
        }
        std::thread::sleep(LOOK);
    }
}

impl Shared {
    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, channel: u16, time_ns: i64, bytes: &[u8]) {
        let mut out = self.out();
        if out.fault.is_some() {
            return;
        }
        let time_ns = u64::try_from(time_ns).unwrap_or(0);
        let header = MessageHeader {
            channel_id: channel,
            sequence: 0,
            log_time: time_ns,
            publish_time: time_ns,
        };
        match out.writer.write_to_known_channel(&header, bytes) {
            Ok(()) => out.messages += 1,
            Err(fault) => out.fault = Some(fault),
        }
    }
}

struct Watch {
    subscription: Subscription,
    item: Item,
    channel: u16,
    /// True if messages that were published before the replay also count, because late
    /// subscriptions also receive them.
    keeps_early: bool,
    early: Vec<Vec<u8>>,
    /// True if the publisher's clock differs from this host's, so that their times cannot be
    /// compared. `None` before the first message.
    has_own_clock: Option<bool>,
    latest: HashMap<u64, u64>,
    unseen: u64,
    shared: Arc<Shared>,
}

impl Watch {
    fn run(mut self, topic: String) -> Seen {
        let mut fault = None;
        loop {
            let is_over = self.shared.is_over.load(Relaxed);
            if let Err(error) = self.take() {
                fault = Some(error.to_string());
            }
            if is_over || fault.is_some() {
                break;
            }
        }
        let mut notes: Vec<String> = fault
            .map(|f| format!("observed only until an error: {f}"))
            .into_iter()
            .collect();
        if self.has_own_clock == Some(true) {
            notes.push(
                "the times are arrival times, because the publisher's clock differs from this host's".into(),
            );
        }
        Seen {
            topic,
            unseen: self.unseen,
            notes,
        }
    }

    fn take(&mut self) -> Result<(), RclError> {
        self.subscription.wait(WAIT_NS)?;
        while self.subscription.take(&mut self.item)? {
            let arrival_ns = u64::try_from(self.item.arrival_ns).unwrap_or(0);
            let published_ns = self.published_ns();
            match self
                .shared
                .control
                .recorded_ns(published_ns.min(arrival_ns))
            {
                Some(time_ns) => {
                    self.flush();
                    self.count();
                    self.shared.write(self.channel, time_ns, self.item.bytes());
                }
                None if self.keeps_early && self.early.len() < MOST_EARLY => {
                    self.early.push(self.item.bytes().to_vec());
                }
                None => {}
            }
        }
        self.flush();
        Ok(())
    }

    fn flush(&mut self) {
        if self.early.is_empty() {
            return;
        }
        if let Some(time_ns) = self.shared.control.recorded_ns(0) {
            for bytes in std::mem::take(&mut self.early) {
                self.shared.write(self.channel, time_ns, &bytes);
            }
        }
    }

    /// Returns the time at which the latest received message was published, on this host's
    /// CLOCK_MONOTONIC, in ns. If the publisher's clock differs from this host's, returns the time
    /// at which the message arrived.
    fn published_ns(&mut self) -> u64 {
        let source_ns = self.item.source_ns.saturating_sub(realtime_offset_ns());
        let delay_ns = self.item.arrival_ns.saturating_sub(source_ns);
        let has_own_clock = *self
            .has_own_clock
            .get_or_insert(!(0..=MOST_DELAY_NS).contains(&delay_ns));
        let time_ns = match has_own_clock {
            true => self.item.arrival_ns,
            false => source_ns,
        };
        u64::try_from(time_ns).unwrap_or(0)
    }

    fn count(&mut self) {
        let Some(number) = self.item.number else {
            return;
        };
        let before = self.latest.get(&number.publisher).copied();
        let latest = before.map_or(number.sequence, |before| before.max(number.sequence));
        self.latest.insert(number.publisher, latest);
        match before {
            Some(before) if number.sequence > before => self.unseen += number.sequence - before - 1,
            // It was late, and was counted as unseen before.
            Some(_) => self.unseen = self.unseen.saturating_sub(1),
            None => {}
        }
    }
}
