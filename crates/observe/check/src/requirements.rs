//! The content of a requirements file (docs/requirements-format.md).

use crate::limit::{Count, Limit, Rate, Share, Statistic, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limits for figures of a sample of times.
pub type Times = BTreeMap<Statistic, Limit<Time>>;

/// What a system must keep.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Requirements {
    /// Figures of the runs of this mode; of all without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// How sure a verdict is, 0.5 to 1. Without it 0.95.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// `max`, `min` and a loss of none are for at least so many executions that a larger share
    /// would have shown. Without it 1 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss: Option<Limit<Share>>,
    /// Chains and parts of chains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<ChainRule>,
    /// Callbacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callbacks: Vec<CallbackRule>,
    /// Topics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<TopicRule>,
    /// Shares of CPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuRule>,
    /// What there is, and what not.
    #[serde(skip_serializing_if = "Structure::is_empty")]
    pub structure: Structure,
}

impl Requirements {
    /// How sure a verdict is.
    pub fn confidence(&self) -> f64 {
        self.confidence.unwrap_or(0.95)
    }

    /// The share that a sample must be able to show.
    pub fn miss(&self) -> f64 {
        self.miss.and_then(|m| m.most).unwrap_or(0.01)
    }
}

/// Limits of chains: those with this id, or between these ends.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChainRule {
    /// A chain's id, or the beginning of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// Begins with this callback, node or topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Ends with the publication of this callback, node or topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Passes all of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// From the first callback's start to the output.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub latency: Times,
    /// Data age.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub age: Times,
    /// Reaction time.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub reaction: Times,
    /// Half of the largest minus the smallest latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Limit<Time>>,
    /// Share of executions whose item was lost on the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Limit<Share>>,
    /// Logical execution time: each output leaves a whole number of the first callback's periods
    /// after its start, and not more than this beside it.
    #[serde(rename = "let", skip_serializing_if = "Option::is_none")]
    pub logical: Option<Limit<Time>>,
}

/// Limits of callbacks: one, or all of a node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallbackRule {
    /// A callback's id, or its end from a slash on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// All of this node's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Time on the CPU.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub execution: Times,
    /// From the moment when it could run to its end.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub response: Times,
    /// Start to start.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub period: Times,
    /// Ready and not running, per execution.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub preempted: Times,
    /// Asleep, per execution.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub blocked: Times,
    /// Share of one CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Limit<Share>>,
    /// Scheduling of its threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<ThreadRule>,
}

/// How threads are scheduled.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ThreadRule {
    /// `other`, `fifo`, `rr`, `batch`, `idle`, `deadline`, `ext`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Real-time priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Limit<Count>>,
    /// On these CPUs only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<u16>>,
}

/// Limits of a topic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicRule {
    /// Its name.
    pub topic: String,
    /// Only on the way to this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Messages per second that each reader takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Limit<Rate>>,
    /// Publication to the start of the callback that takes it.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub latency: Times,
    /// In the queue.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub waiting: Times,
    /// Share of items never taken, for a reason that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Limit<Share>>,
    /// Share of items that later ones pushed out of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overwritten: Option<Limit<Share>>,
}

/// Limit of a CPU's load by callbacks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuRule {
    /// The CPU.
    pub cpu: u16,
    /// Its share that callbacks take.
    pub load: Limit<Share>,
}

/// What there is, and what not.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Structure {
    /// A chain passes these, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<Vec<String>>,
    /// No chain does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_paths: Vec<Vec<String>>,
    /// Only these nodes take a topic.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub readers: BTreeMap<String, Vec<String>>,
    /// Only these nodes publish it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub writers: BTreeMap<String, Vec<String>>,
}

impl Structure {
    /// Whether it requires nothing.
    pub fn is_empty(&self) -> bool {
        *self == Structure::default()
    }
}
