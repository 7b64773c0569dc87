//! The plan as a value: the content of `plan.yaml`.
//!
//! A plan lists the reservation servers (thesis, Definition 4.1.1) with the callbacks whose threads
//! they run, the outputs that are held back until their slots, and the result in promises. Times
//! are whole nanoseconds here and milliseconds in the file.

pub use onbeat_time::{Overshoot, MAX_SLOTS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Value of [`Plan::schema`].
pub const SCHEMA: &str = "onbeat-plan/1";

/// Highest priority of a server: above are the middleware's threads, and above these the
/// dispatcher.
pub const MAX_PRIORITY: u8 = 90;

/// Most topics that are held back or throttled: as many as a shaper serves.
pub const MAX_HELD: usize = 16;

/// Suffix of the topic on which an output is held back until its slot.
pub const HELD_SUFFIX: &str = "/onbeat_held";

/// A time or a length of time: nanoseconds in memory, milliseconds (with up to six decimals) in the
/// file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ms(pub u64);

/// A reservation plan for one or several chains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The strategy that made it: `fifo`, `server-per-callback`, `server-per-chain`, `bands`,
    /// `random-bands`, `let-per-callback`, `let-per-chain`. For readers only: the servers decide.
    pub strategy: String,
    /// The shaped chains. All start with the same callback.
    pub chains: Vec<ChainRef>,
    /// Cycle of all servers: the period of the chains' first callback.
    pub cycle_ms: Ms,
    /// Callback whose release is the instant 0 of a cycle.
    pub origin: String,
    /// The servers. Where slots on one CPU overlap, the higher priority runs.
    pub servers: Vec<Server>,
    /// Outputs that are held back until a slot of a server opens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
    /// Inputs that are let through once per cycle, for chains that start with an event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Throttle>,
    /// What holds for single callbacks. Empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callbacks: Vec<CallbackRule>,
    /// CPU and priority of the middleware's own threads in the chains' processes (thesis, section
    /// 4.3.1).
    pub middleware: Middleware,
    /// The policy for an output that misses its last slot.
    #[serde(default)]
    pub overshoot: Overshoot,
    /// Latency, jitter and utilisation that result if the assumptions are met.
    pub promises: Promises,
    /// The assumptions, in whole sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumes: Vec<String>,
}

/// A chain of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainRef {
    /// Id in the model.
    pub id: String,
    /// Readable name in the model: *FrontLidarDriver -> BehaviorPlanner via ParkingPlanner*. For readers only;
    /// empty in older files.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Callbacks from source to sink, as the model names them.
    pub callbacks: Vec<String>,
    /// Topic whose publication by the last callback ends an execution; none where the sink
    /// publishes nothing, and the end of the last callback counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

impl ChainRef {
    /// Whether another plan's chain is the same; what it is called does not matter.
    pub fn is_same(&self, other: &ChainRef) -> bool {
        (&self.id, &self.callbacks, &self.output) == (&other.id, &other.callbacks, &other.output)
    }
}

/// What holds for one callback of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallbackRule {
    /// The callback, as its server names it.
    pub id: String,
    /// Whether shaping waits until it has run. It is shaped as any other once it runs.
    #[serde(default = "yes")]
    pub required: bool,
}

fn yes() -> bool {
    true
}

impl Plan {
    /// Whether shaping waits until this callback has run.
    pub fn requires(&self, callback: &str) -> bool {
        let rule = self.callbacks.iter().find(|rule| rule.id == callback);
        rule.is_none_or(|rule| rule.required)
    }
}

/// A reservation server (thesis, Definition 4.1.1): threads that run only within its slots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Name, unique in the plan: `gamma`, `delta`, `gamma-0`, ...
    pub name: String,
    /// The one CPU that its threads run on.
    pub cpu: u16,
    /// Real-time priority of its threads, 1 to [`MAX_PRIORITY`]; 0: a normal thread (SCHED_OTHER),
    /// which runs when no other server's threads do.
    pub priority: u8,
    /// Slots within the cycle, ascending, not overlapping; an end may lie beyond the cycle and then
    /// wraps around. Without slots its threads may run at any time (as under plain SCHED_FIFO).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots_ms: Vec<Slot>,
    /// Callbacks whose threads belong to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callbacks: Vec<String>,
}

/// A slot [start, end) within a cycle; written `[start, end]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Slot(pub Ms, pub Ms);

impl Slot {
    /// Whether a time from the start of the cycle lies in it.
    pub fn contains(&self, at_ns: u64) -> bool {
        (self.0 .0..self.1 .0).contains(&at_ns)
    }
}

/// The mechanism that holds an output back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// The callback publishes on another topic, from which a shaper publishes in the slot (Design
    /// 2).
    Republish,
    /// The middleware's publisher thread runs in the slot (Design 1).
    PublisherThread,
}

/// An output that leaves only in a server's slots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The topic, under its own name.
    pub topic: String,
    /// Callback that publishes it.
    pub callback: String,
    /// Its node's full name, for which the topic is remapped.
    pub node: String,
    /// The mechanism that holds it back.
    pub hold: Hold,
    /// Topic that the callback publishes on instead (with [`Hold::Republish`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_topic: Option<String>,
    /// Server in whose slots it leaves.
    pub server: String,
    /// No execution publishes it earlier than this after its cycle's start: an earlier item is a
    /// late output of the cycle before. Slots that begin earlier in the cycle belong to the next
    /// cycle (logical execution time).
    #[serde(default)]
    pub earliest_ms: Ms,
}

/// An input that is let through at most once per cycle (thesis, section 4.5.1: the throttler).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// The topic, under its own name.
    pub topic: String,
    /// Node that publishes it, for which it is remapped.
    pub node: String,
    /// Topic that it publishes on instead.
    pub held_topic: String,
    /// Server in whose slots it is let through.
    pub server: String,
}

/// CPU and priority of the middleware's own threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Middleware {
    /// CPU: not one of the servers', where there is another.
    pub cpu: u16,
    /// Real-time priority (SCHED_FIFO).
    pub priority: u8,
}

/// The result of the plan if its assumptions are met.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promises {
    /// Mean end-to-end latency.
    pub average_ms: Ms,
    /// Longest end-to-end latency.
    pub worst_ms: Ms,
    /// (longest - shortest) / 2; with bands: within each.
    pub jitter_ms: Ms,
    /// Latency bands with the share of executions expected in each (0 to 1), in time order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bands: Vec<Band>,
    /// Largest distance of neighbouring bands, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveliness_ms: Option<Ms>,
    /// How many executions may miss the last slot, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss: Option<Miss>,
    /// What the bands cost in average latency, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Share of each CPU (by its number) that the servers' threads use in the worst case.
    pub utilisation: BTreeMap<u16, f64>,
}

/// A promised miss rate, and the profile that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Miss {
    /// At most this share of later executions takes longer than the limit, 0 to 1.
    pub rate: f64,
    /// The share of profiles of which that holds, 0 to 1.
    pub confidence: f64,
    /// The limit, at which the last slot begins.
    pub limit_ms: Ms,
    /// Starts of the application in the profile.
    pub starts: u64,
    /// Executions in the profile.
    pub executions: u64,
    /// As many independent ones.
    pub independent: u64,
    /// Shape of the generalised Pareto tail: below 0 it is bounded, above it is heavy. None where
    /// the order statistic alone gave the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<f64>,
}

/// How much longer the average latency is than the unshaped one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// At most this was asked for, as a share of the unshaped average.
    pub asked: f64,
    /// Over all measured executions.
    pub measured: f64,
    /// Upper limit for later starts of the application.
    pub bound: f64,
}

/// A latency band.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// Latencies of the band: from the slot's start to its end.
    pub latency_ms: Slot,
    /// Share of the executions that are expected in it, 0 to 1.
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
        // On one line in YAML; other formats do not notice.
        onbeat_yaml::FlowSeq((self.0, self.1)).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Ms {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ms = f64::deserialize(deserializer)?;
        // Up to ten days: longer times lie in no cycle, and a double loses their nanoseconds.
        if !(0.0..=8.64e8).contains(&ms) {
            return Err(serde::de::Error::custom(format!(
                "{ms} is no time in milliseconds"
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
