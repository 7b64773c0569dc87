//! Defines the plan as a value: the content of `plan.yaml`.
//!
//! A plan lists the reservation servers (thesis, Definition 4.1.1) with the callbacks whose threads
//! they run. It also lists the outputs that are held back until their slots, and the promises that
//! result. Times are whole nanoseconds in memory and milliseconds in the file.

pub use onbeat_time::{Overshoot, MAX_SLOTS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name and version of the plan file's format: the value of [`Plan::schema`].
pub const SCHEMA: &str = "onbeat-plan/1";

/// The highest priority of a server. The middleware's threads and the dispatcher run above it.
pub const MAX_PRIORITY: u8 = 90;

/// The most topics that can be held back or throttled. It equals the number of topics that a shaper
/// can serve.
pub const MAX_HELD: usize = 16;

/// The suffix of the topic on which an output is held back until its slot.
pub const HELD_SUFFIX: &str = "/onbeat_held";

/// A point in time or a duration: nanoseconds in memory, milliseconds (with up to six decimals) in
/// the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ms(pub u64);

/// A reservation plan for one or several chains.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub schema: String,
    /// The strategy that made the plan: `fifo`, `server-per-callback`, `server-per-chain`, `bands`,
    /// `random-bands`, `let-per-callback` or `let-per-chain`. It is only information for readers:
    /// onbeat enforces the servers.
    pub strategy: String,
    /// The shaped chains. All start with the same callback.
    pub chains: Vec<ChainRef>,
    /// The cycle of all servers: the period of the chains' first callback.
    pub cycle_ms: Ms,
    /// The callback whose release is the instant 0 of a cycle.
    pub origin: String,
    /// The servers. Where slots on one CPU overlap, the threads of the server with the higher
    /// priority run.
    pub servers: Vec<Server>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
    /// The inputs that are let through once per cycle, for chains that start with an event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Throttle>,
    /// The rules for single callbacks. Older files have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callbacks: Vec<CallbackRule>,
    /// The CPU and priority of the middleware's own threads in the chains' processes (thesis,
    /// section 4.3.1).
    pub middleware: Middleware,
    #[serde(default)]
    pub overshoot: Overshoot,
    pub promises: Promises,
    /// The assumptions under which the promises hold, in full sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumes: Vec<String>,
}

/// A chain that the plan shapes.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainRef {
    pub id: String,
    /// The readable name in the model: *FrontLidarDriver -> BehaviorPlanner via ParkingPlanner*. It
    /// is for readers only, and empty in older files.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The ids of the callbacks from source to sink, as in the model.
    pub callbacks: Vec<String>,
    /// The topic whose publication by the last callback ends an execution. It is `None` if the sink
    /// publishes nothing; then the execution ends with the last callback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

impl ChainRef {
    /// Reports whether two plans mean the same chain. The titles may differ.
    pub fn is_same(&self, other: &ChainRef) -> bool {
        (&self.id, &self.callbacks, &self.output) == (&other.id, &other.callbacks, &other.output)
    }
}

/// A rule for one callback of a server.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallbackRule {
    pub id: String,
    /// Whether shaping waits until the callback has run once. If not, the callback is optional:
    /// onbeat shapes it as soon as it runs.
    #[serde(default = "yes")]
    pub required: bool,
}

fn yes() -> bool {
    true
}

impl Plan {
    /// Reports whether shaping waits until this callback has run.
    pub fn requires(&self, callback: &str) -> bool {
        let rule = self.callbacks.iter().find(|rule| rule.id == callback);
        rule.is_none_or(|rule| rule.required)
    }
}

/// A reservation server (thesis, Definition 4.1.1): threads that run only within its slots.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The name, unique in the plan: `gamma`, `delta`, `gamma-0`, ...
    pub name: String,
    pub cpu: u16,
    /// The real-time priority of the server's threads, 1 to [`MAX_PRIORITY`]. 0 stands for normal
    /// threads (SCHED_OTHER), which run when no thread of another server runs.
    pub priority: u8,
    /// The slots within the cycle, ascending, without overlap. An end may lie beyond the cycle and
    /// then wraps around. Without slots the threads may run at any time (as under plain
    /// SCHED_FIFO).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots_ms: Vec<Slot>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callbacks: Vec<String>,
}

/// A slot [start, end) within a cycle, written `[start, end]` in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Slot(pub Ms, pub Ms);

impl Slot {
    /// Reports whether a time from the start of the cycle lies in the slot.
    pub fn contains(&self, at_ns: u64) -> bool {
        (self.0 .0..self.1 .0).contains(&at_ns)
    }
}

/// The mechanism that holds an output back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// The callback publishes on another topic. A shaper takes the message and publishes it in the
    /// slot (Design 2 of the thesis).
    Republish,
    /// The middleware's publisher thread runs only in the slot (Design 1 of the thesis).
    PublisherThread,
}

/// An output that leaves only in a server's slots.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The name of the topic on which the output leaves. The nodes that take the output subscribe
    /// to this topic.
    pub topic: String,
    pub callback: String,
    /// The full name of the node that runs the callback. onbeat remaps `topic` for this node.
    pub node: String,
    pub hold: Hold,
    /// With [`Hold::Republish`], the topic on which the callback publishes instead of `topic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_topic: Option<String>,
    pub server: String,
    /// The time after a cycle's start before which no execution publishes the output. An item that
    /// is published before this time counts as a late output of the previous cycle. If a slot
    /// begins before this time, the output leaves in this slot of the next cycle (logical execution
    /// time).
    #[serde(default)]
    pub earliest_ms: Ms,
}

/// An input that is let through at most once per cycle (thesis, section 4.5.1: the throttler).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// The name of the topic on which the input is let through. The nodes that take the input
    /// subscribe to this topic.
    pub topic: String,
    /// The node that publishes the topic. onbeat remaps `topic` for this node.
    pub node: String,
    /// The topic on which the node publishes instead of `topic`.
    pub held_topic: String,
    /// The server in whose slots the input is let through.
    pub server: String,
}

/// The CPU and priority of the middleware's own threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Middleware {
    /// The CPU of the middleware's threads. If possible, no server runs on it.
    pub cpu: u16,
    /// The real-time priority (SCHED_FIFO) of the middleware's threads.
    pub priority: u8,
}

/// The figures that shaping will keep if the plan's assumptions are met.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promises {
    pub average_ms: Ms,
    pub worst_ms: Ms,
    /// The jitter: half the difference between the longest and the shortest latency. With bands, it
    /// is the jitter within each band.
    pub jitter_ms: Ms,
    /// The latency bands in time order, each with the share of executions expected in it (0 to 1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bands: Vec<Band>,
    /// The largest distance between neighbouring bands, if the request limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveliness_ms: Option<Ms>,
    /// The share of executions that may miss the last slot, if the request limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss: Option<Miss>,
    /// The slowest measured executions, if the plan leaves them out. The miss rate in `miss` then
    /// includes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// The growth of the average latency that the bands cause, if the request limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// The share of each CPU (by its number) that the servers' threads use in the worst case.
    pub utilisation: BTreeMap<u16, f64>,
}

/// The slowest measured executions. The plan leaves them out of its promises.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    pub executions: u64,
    /// The number of left-out executions as a share of all measured ones, 0 to 1.
    pub share: f64,
    /// The shortest and the longest latency of the executions that are left out.
    pub latency_ms: Slot,
    /// The longest latency of the executions that are not left out.
    pub kept_ms: Ms,
    /// The probable cause of the slow executions, as a part of a sentence.
    pub cause: String,
}

/// A promised miss rate, and the profile that supports it.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Miss {
    /// The largest share of later executions, 0 to 1, that take longer than `limit_ms`.
    pub rate: f64,
    /// The confidence of the promise, 0 to 1. If many profiles were measured in the same way, the
    /// promise would hold for this share of them.
    pub confidence: f64,
    /// The latency limit to which `rate` refers. It decides where the last slot begins.
    pub limit_ms: Ms,
    pub starts: u64,
    pub executions: u64,
    /// The effective number of executions: this number of independent executions would support the
    /// promise equally well.
    pub independent: u64,
    /// The shape of the generalised Pareto tail: below 0 it is bounded, above 0 heavy. It is `None`
    /// if the limit is an order statistic, so that no tail was fitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<f64>,
}

/// The growth of the average latency that the bands cause, as a share of the unshaped average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The requested limit of the growth, as a share of the unshaped average.
    pub asked: f64,
    /// The growth over all measured executions, as a share of the unshaped average.
    pub measured: f64,
    /// The upper confidence limit of the growth in later starts of the application.
    pub bound: f64,
}

/// The latencies that one slot of the output server produces.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    pub latency_ms: Slot,
    /// The share of executions expected in the band, 0 to 1.
    pub share: f64,
}

const NS_PER_MS: f64 = 1e6;

impl Serialize for Ms {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1_000_000) {
            serializer.serialize_u64(self.0 / 1_000_000)
        } else {
            serializer.serialize_f64(self.0 as f64 / NS_PER_MS)
        }
    }
}

impl Serialize for Slot {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A slot stands on one line in YAML. Other formats ignore this.
        onbeat_yaml::FlowSeq((self.0, self.1)).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Ms {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ms = f64::deserialize(deserializer)?;
        // The limit is ten days. No cycle is longer, and a double cannot hold the nanoseconds of
        // longer times.
        if !(0.0..=8.64e8).contains(&ms) {
            return Err(serde::de::Error::custom(format!(
                "{ms} is not a time in milliseconds between 0 and ten days"
            )));
        }
        Ok(Ms((ms * NS_PER_MS).round() as u64))
    }
}

impl std::fmt::Display for Ms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ms", self.0 as f64 / NS_PER_MS)
    }
}
