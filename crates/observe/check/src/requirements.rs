//! The content of a requirements file (docs/requirements-format.md).

use crate::limit::{Count, Limit, Rate, Share, Statistic, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The limits of a time: one for each limited statistic, such as `p99`.
pub type Times = BTreeMap<Statistic, Limit<Time>>;

/// The requirements that a system must satisfy.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Requirements {
    /// The mode whose runs are checked. Without a mode, all runs are checked together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The confidence of verdicts, 0.5 to 1. The default is 0.95.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// The share of later executions that may break a limit of `max` or `min`, or a limit of 0 for
    /// losses, although the requirement passes. A sample must be large enough to rule out a larger
    /// share. The default is 1 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss: Option<Limit<Share>>,
    /// The limits for chains. Each entry names one chain, or all chains between two ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<ChainRule>,
    /// The limits for callbacks. Each entry names one callback, or all callbacks of a node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callbacks: Vec<CallbackRule>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<TopicRule>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuRule>,
    #[serde(skip_serializing_if = "Structure::is_empty")]
    pub structure: Structure,
}

impl Requirements {
    /// Returns the confidence of verdicts, or its default of 0.95.
    pub fn confidence(&self) -> f64 {
        self.confidence.unwrap_or(0.95)
    }

    /// Returns the share of later executions that may break a limit of `max` or `min`, or a limit
    /// of 0 for losses, although the requirement passes. The default is 0.01.
    pub fn miss(&self) -> f64 {
        self.miss.and_then(|m| m.most).unwrap_or(0.01)
    }
}

/// The limits for the chain with the id `chain`, or for all chains from `from` to `to`.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChainRule {
    /// The chain's id, or the beginning of the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// The callback, node or topic with which the chain begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The callback, node or topic with whose publication the chain ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The callbacks, nodes or topics that the chain must pass, all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// The limits of the time from the first callback's start to the output.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub latency: Times,
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub age: Times,
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub reaction: Times,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Limit<Time>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Limit<Share>>,
    /// Logical execution time: the time from the first callback's start to the output must be a
    /// whole number of that callback's periods. The value is the allowed deviation.
    #[serde(rename = "let", skip_serializing_if = "Option::is_none")]
    pub logical: Option<Limit<Time>>,
}

/// The limits for one callback, or for all callbacks of a node.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallbackRule {
    /// The callback's id, or the end of the id after a slash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// The node to whose callbacks the limits apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub execution: Times,
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub response: Times,
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub period: Times,
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub preempted: Times,
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub blocked: Times,
    /// The limit of the share of one CPU that the callback uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Limit<Share>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<ThreadRule>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ThreadRule {
    /// The scheduling policy that the threads must have: `other`, `fifo`, `rr`, `batch`, `idle`,
    /// `deadline` or `ext`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Limit<Count>>,
    /// The only CPUs on which the threads may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<u16>>,
}

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicRule {
    pub topic: String,
    /// The subscribing node. The limits apply only to messages on their way to this node. Without
    /// `to`, they apply to the messages to every subscriber.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Limit<Rate>>,
    /// The limits of the time from the publication of a message to the start of the callback that
    /// takes it.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub latency: Times,
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub waiting: Times,
    /// The limit of the share of items that were never taken, for an unknown reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Limit<Share>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overwritten: Option<Limit<Share>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuRule {
    pub cpu: u16,
    /// The limit of the share of the CPU's time that callbacks use.
    pub load: Limit<Share>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Structure {
    /// The paths that must exist. For each path, at least one chain must pass the names in this
    /// order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<Vec<String>>,
    /// The paths that must not exist. For each path, no chain may pass the names in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_paths: Vec<Vec<String>>,
    /// The nodes that may take each topic. All other nodes must not take it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub readers: BTreeMap<String, Vec<String>>,
    /// The nodes that may publish each topic. All other nodes must not publish it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub writers: BTreeMap<String, Vec<String>>,
}

impl Structure {
    pub fn is_empty(&self) -> bool {
        *self == Structure::default()
    }
}
