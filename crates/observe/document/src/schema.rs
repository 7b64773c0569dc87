//! The timing model as a value: the content of `model.json`.
//!
//! Vertices are callbacks and synchronisers. Edges are topics, requests and responses between them.
//! Chains are paths from a source to a sink (thesis section 3.5). Figures come in *per-mode* sets,
//! so that modes can be merged or kept apart.

pub mod helper;
mod influence;
pub mod qos;

pub use helper::{Helper, HelperFigures};
pub use influence::{Cause, Component, ComponentKind};
pub use qos::{Durability, Endpoint, EndpointKind, History, Liveliness, Qos, Reliability};

use crate::dist::Dist;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The value of [`Model::schema`].
pub const SCHEMA: &str = "onbeat-model/1";

/// The mode of a run for which the user named none.
pub const DEFAULT_MODE: &str = "default";

/// A timing model of one run, or of many merged runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The schema, always [`SCHEMA`].
    pub schema: String,
    /// The runs from which the model was made, sorted by id.
    pub runs: Vec<Run>,
    /// The vertices, sorted by id.
    pub callbacks: Vec<Callback>,
    /// The edges, sorted by (from, to, topic).
    pub edges: Vec<Edge>,
    /// The callbacks at which several inputs meet, sorted by callback.
    pub junctions: Vec<Junction>,
    /// The paths from source to sink, sorted by id.
    pub chains: Vec<Chain>,
    /// The age of the data at each sink, from each source, over all paths, sorted by `from`, `to`
    /// and `topic`. The list is empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub end_to_end: Vec<EndToEnd>,
    /// The actions with their callbacks and figures, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// The groups of callbacks that run on the same threads, sorted by their first callback. The
    /// list is empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executors: Vec<Executor>,
    /// The publishers and subscriptions whose creation was seen, sorted, with their QoS settings.
    /// The list is empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// The threads that run no callback and have recorded scheduler events, sorted. The list is
    /// empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub helpers: Vec<Helper>,
    /// The assumptions of the model that no event shows, as whole sentences.
    #[serde(default)]
    pub assumptions: Vec<String>,
    /// The limits of the recordings and their losses, as whole sentences.
    #[serde(default)]
    pub coverage: Vec<String>,
    /// The evidence that only merging needs. Its form can change; readers should not use it.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub evidence: serde_json::Value,
}

impl Model {
    /// Returns the figures of a mode, or `None` if the mode has none. Without a mode, or if all
    /// runs have it, these are the figures of all runs.
    pub fn figures_of<'a, F>(
        &self,
        mode: Option<&str>,
        all: &'a F,
        modes: &'a BTreeMap<String, F>,
    ) -> Option<&'a F> {
        match mode {
            None => Some(all),
            Some(mode) => modes
                .get(mode)
                .or_else(|| self.runs.iter().all(|r| r.mode == mode).then_some(all)),
        }
    }
}

/// A recording from which the model was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The unique id of the recording.
    pub id: String,
    /// The name of the host. It is empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The id of the machine's boot. It is empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot: String,
    /// The mode, for example `urban` or `highway`.
    pub mode: String,
    /// The ROS 2 distributions seen, sorted ("jazzy", "kilted").
    pub distribution: Vec<String>,
    /// The start of the recording, CLOCK_REALTIME ns since 1970.
    pub start: u64,
    /// The length of the recording in ns.
    pub duration_ns: u64,
    /// The number of lost events by event kind.
    pub lost: BTreeMap<String, u64>,
    /// The number of events that were read from the trace.
    pub events: u64,
}

impl Run {
    /// Returns the id of the recording. If several modes were active during a run, its parts add
    /// `#1`, `#2` ... to this id.
    pub fn recording(&self) -> &str {
        match self.id.rsplit_once('#') {
            Some((id, n)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => id,
            _ => &self.id,
        }
    }
}

/// The type of a vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackType {
    /// The callback runs when its timer is due.
    Timer,
    /// The callback runs on a message.
    Subscription,
    /// The callback runs on a request of one client.
    Service,
    /// The callback runs on a response.
    Client,
    /// The vertex is a task of rclpy's executor, made by a callback: the execution of an action's
    /// goal.
    Task,
    /// The vertex is the AND of a synchroniser (thesis section 3.5).
    Sync,
    /// The vertex is a thread of the application's own, which publishes and runs no callbacks.
    Thread,
}

/// A group of callbacks that run on the same threads. It covers one executor, or several that one
/// thread spins in turn. Each callback that ran is in exactly one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executor {
    /// The ids of the callbacks, sorted.
    pub callbacks: Vec<String>,
    /// The most threads in one run that ran any of the callbacks. It exceeds one for a
    /// multi-threaded executor and for a restarted process.
    pub threads: usize,
}

/// An action: its goals, cancellations, results, feedback and state together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// The action's name, untrusted. Its services and topics are below `NAME/_action/`.
    pub name: String,
    /// The nodes that serve the action, sorted.
    pub servers: Vec<String>,
    /// The nodes that use the action, sorted.
    pub clients: Vec<String>,
    /// The ids of the callbacks on the action's services and topics, and of the task that executes
    /// its goals. They are sorted.
    pub callbacks: Vec<String>,
    /// The measured figures over all modes.
    #[serde(flatten)]
    pub figures: ActionFigures,
    /// The figures per mode. The map is empty unless the model has several modes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, ActionFigures>,
}

/// The measured figures of an action.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ActionFigures {
    /// The number of goals that recorded clients sent.
    pub goals: u64,
    /// The number of goals that recorded servers took, accepted or not.
    pub served: u64,
    /// The number of cancellations that recorded clients requested.
    pub cancels: u64,
    /// The number of feedback messages that recorded servers published.
    pub feedback: u64,
    /// The number of results that recorded clients received.
    pub results: u64,
    /// The number of received results whose goal is unknown.
    pub untimed: u64,
    /// The time from the sending of a goal to the taking of its result.
    pub goal_to_result_ns: Dist,
}

/// The way in which a callback's start and end were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bracket {
    /// Tracepoints mark the start and end.
    Exact,
    /// Start and end follow from the executor's calls around the callback.
    Inferred,
}

/// The origin of a callback's node name.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The name is the node's own.
    #[default]
    Known,
    /// The name is derived from the process, and may stand for several of its nodes.
    Guessed,
}

impl Identity {
    /// Reports whether the node's own name is known.
    pub fn is_known(&self) -> bool {
        *self == Identity::Known
    }
}

/// A callback: a vertex of the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Callback {
    /// The id, which is readable and equal in all runs, for example
    /// `/fusion:subscription(/lidars/front)`.
    pub id: String,
    /// The full name of the callback's node, untrusted.
    pub node: String,
    /// The origin of the node's name.
    #[serde(default, skip_serializing_if = "Identity::is_known")]
    pub identity: Identity,
    /// The type of event that triggers the callback.
    #[serde(rename = "type")]
    pub kind: CallbackType,
    /// The topic or service name. It is empty for a timer and for a thread.
    pub input: String,
    /// For a service callback, the client's node whose requests this vertex serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The period of a timer. For other callbacks, the median inter-arrival time if it is steady.
    pub period_ns: Option<u64>,
    /// The topics, `service/request`s and `service/response`s that the callback publishes, sorted.
    pub outputs: Vec<String>,
    /// The way in which start and end were found.
    pub bracket: Bracket,
    /// The rclcpp symbol, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// The measured figures over all modes.
    #[serde(flatten)]
    pub figures: CallbackFigures,
    /// The figures per mode. The map is empty unless the model has several modes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, CallbackFigures>,
    /// The threads that ran the callback, sorted.
    pub threads: Vec<ThreadUse>,
    /// The measured best, mean and worst execution time in each run (thesis Figure 3.9), by run id.
    pub per_run: BTreeMap<String, RunExtremes>,
}

/// The measured figures of a callback.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CallbackFigures {
    /// The time on the CPU between start and end (thesis Algorithm 3).
    pub exec_ns: Dist,
    /// The time from when an execution could run to its end.
    pub response_ns: Dist,
    /// The time from start to start.
    pub interarrival_ns: Dist,
    /// The distance of timer releases from their ideal releases. Other callbacks have their jitter
    /// in `interarrival_ns`.
    pub release_jitter_ns: Dist,
    /// The time per execution in which the callback was ready but not running.
    pub preempted_ns: Dist,
    /// The time per execution in which the callback was asleep.
    pub blocked_ns: Dist,
    /// The number of preemptions inside the callback.
    pub preemptions: u64,
    /// The number of times the callback blocked.
    pub blockings: u64,
    /// The number of executions whose CPU time is unknown, because a scheduler event near them is
    /// missing in the recording. `exec_ns`, `preempted_ns` and `blocked_ns` leave them out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub untimed: u64,
    /// The components that made the callback wait, sorted. The list is empty if the recording does
    /// not show them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// The share of one CPU that the callback used: `exec_ns.sum / observed_ns`. Untimed executions
    /// count with the mean of the others.
    pub load: f64,
    /// The length of the runs to which `load` refers.
    pub observed_ns: u64,
}

impl CallbackFigures {
    /// Returns the number of executions, with those whose CPU time is unknown.
    pub fn executions(&self) -> u64 {
        self.exec_ns.count().saturating_add(self.untimed)
    }
}

/// The extremes of the execution time in one run (thesis Figure 3.9).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunExtremes {
    /// The start of the run (CLOCK_REALTIME ns), by which runs are ordered.
    pub start: u64,
    /// The number of executions of the callback in the run.
    pub count: u64,
    /// The measured best-case execution time (mBCET).
    pub min_ns: u64,
    /// The measured average-case execution time (mACET).
    pub mean_ns: f64,
    /// The measured worst-case execution time (mWCET).
    pub max_ns: u64,
    /// The typical figures of the run. `None` in models of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typical: Option<RunTypical>,
}

/// The typical figures of a callback in one run, by which runs are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunTypical {
    /// The typical execution time of the callback.
    pub exec_ns: Typical,
    /// The typical response time of the callback.
    pub response_ns: Typical,
    /// The typical time from one start of the callback to the next.
    pub interarrival_ns: Typical,
}

/// The typical value of a figure in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Typical {
    /// The number of measured values.
    pub count: u64,
    /// The median of the measured values.
    pub median_ns: u64,
    /// The 99th percentile. `None` for fewer than [`Typical::TAIL`] values and in older models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// The effective number of independent values, because values close in time are similar. Zero
    /// if there are too few values to estimate it.
    pub effective: u64,
}

impl Typical {
    /// The least number of values for which a 99th percentile is kept. Two of them lie beyond it.
    pub const TAIL: u64 = 200;
}

/// A thread that ran a callback. Runs are compared by its name, policy and priority, not by its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ThreadUse {
    /// The thread's name.
    pub comm: String,
    /// The SCHED_* policy: `other`, `fifo`, `rr`, `batch`, `idle`, `deadline`, `ext`.
    pub policy: String,
    /// The kernel priority: 0-99 for real-time, 100-139 for normal threads.
    pub priority: u8,
    /// The CPUs on which the thread was seen, sorted.
    pub cpus: Vec<u16>,
}

/// The reason why an edge is assumed although its items were not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assumed {
    /// The callback's thread woke up or created the other thread nearly each time that the other
    /// thread worked.
    HandedOver,
    /// The callback waited for a response, in an executor of its own or as a coroutine. It
    /// continued when the response was handled, so it may use the response's data.
    Waited,
    /// The callback made the task, which ran later. Their order determines which goal the task
    /// executed.
    Made,
    /// The user stated the edge (`--link`).
    Stated,
}

/// Reads the reason of an assumed edge. In older files it is a boolean flag.
fn read_assumed<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Assumed>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Why(Assumed),
        Flag(bool),
    }
    Ok(match Option::<Either>::deserialize(from)? {
        Some(Either::Why(why)) => Some(why),
        Some(Either::Flag(true)) => Some(Assumed::Stated),
        Some(Either::Flag(false)) | None => None,
    })
}

/// A communication path from one callback to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// The id of the callback that publishes the items.
    pub from: String,
    /// The id of the callback that takes the items.
    pub to: String,
    /// The topic, `service/request` or `service/response`. For an edge into a sync vertex, its
    /// input.
    pub topic: String,
    /// The reason why the edge is assumed. `None` if its items were followed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read_assumed"
    )]
    pub assumed: Option<Assumed>,
    /// The edge uses intra-process communication.
    #[serde(default)]
    pub intra_process: bool,
    /// The measured figures over all modes.
    #[serde(flatten)]
    pub figures: EdgeFigures,
    /// The figures per mode. The map is empty unless the model has several modes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, EdgeFigures>,
}

/// The measured figures of an edge.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EdgeFigures {
    /// The time from publication to the start of the callback that takes the item.
    pub latency_ns: Dist,
    /// The time from publication until the executor was woken for the item, if the executor was
    /// idle.
    pub transport_ns: Dist,
    /// The time from the executor's wake-up to the start of the callback. If the executor was busy,
    /// publication plus the median transport time replaces the wake-up.
    pub waiting_ns: Dist,
    /// The number of items published while the taker existed.
    pub published: u64,
    /// The number of items that the subscriber took.
    pub taken: u64,
    /// The number of items that were never taken for an unknown reason. Only items count if a later
    /// one was taken or the recording lasted a second longer.
    pub lost: u64,
    /// The number of items never taken because later ones filled the queue. They are not in `lost`.
    pub overwritten: u64,
    /// The number of items that a synchroniser skipped in favour of others. They are not in `lost`.
    #[serde(default)]
    pub unselected: u64,
}

/// The kind of a junction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JunctionKind {
    /// The junction fires when all inputs have new data.
    And,
    /// The junction fires on any input.
    Or,
}

/// The certainty of a junction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JunctionState {
    /// The data decide.
    #[default]
    Decided,
    /// The data allow several readings. Edges and chains follow the first.
    Ambiguous,
    /// The user states the junction (`--junction`).
    Stated,
}

/// The rule by which an AND junction joins items of its inputs.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Matching {
    /// The junction joins the item that the publishing callback took with the items that usually
    /// accompany it.
    #[default]
    InTurn,
    /// The junction joins items whose chains began closest together, like a synchroniser by
    /// approximate time. It publishes when a later item shows that no better set can come.
    Nearest,
}

impl Matching {
    /// Reports whether the rule is the default, [`Matching::InTurn`].
    pub fn is_in_turn(&self) -> bool {
        *self == Matching::InTurn
    }
}

/// A possible meaning of an ambiguous junction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The kind. With AND, the output waits for all inputs. With OR, one input alone triggers it,
    /// and stored data of the others may be read.
    pub kind: JunctionKind,
    /// The ids of the callbacks that are inputs in this reading.
    pub inputs: Vec<String>,
}

/// A callback at which several inputs meet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Junction {
    /// The vertex: a sync vertex for AND, the triggered callback for OR.
    pub callback: String,
    /// The kind of junction: AND or OR.
    pub kind: JunctionKind,
    /// The ids of the callbacks that feed the junction, sorted.
    pub inputs: Vec<String>,
    /// The criterion that found the junction: `message_filters`, `data_flow` or
    /// `several_publishers`.
    pub criterion: String,
    /// The confidence from 0 to 1: the share of outputs that satisfy the criterion. It is reduced
    /// if the data cannot distinguish the junction from sampling.
    pub confidence: f64,
    /// The certainty of the junction.
    #[serde(default)]
    pub state: JunctionState,
    /// The rule by which an AND is assumed to join items.
    #[serde(default, skip_serializing_if = "Matching::is_in_turn")]
    pub matching: Matching,
    /// The possible readings of an ambiguous junction. Edges and chains follow the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
    /// The statement for `--junction` that settles an ambiguous junction.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub settle: String,
}

/// The way of the data from a source to a sink, over all paths between them. It is complete however
/// many paths there are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndToEnd {
    /// The id of the callback with which the paths begin.
    pub from: String,
    /// The id of the vertex with which the paths end. If several subscriptions wait for one another
    /// before the output, it is their sync vertex.
    pub to: String,
    /// The topic of the outputs. It is empty if the last callback publishes nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub topic: String,
    /// Some of the paths exist in only one reading of an ambiguous junction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
    /// The paths begin with an input that the user named (`--input`). The times then count from the
    /// input's publication.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_input: bool,
    /// At least one end is one that the user named (`--from`, `--to`), and not that of a chain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// The number of paths between the ends in the graph. `None` if a loop lies between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<u64>,
    /// The number of these paths that are chains of the model.
    pub listed: u64,
    /// The measured figures over all modes.
    #[serde(flatten)]
    pub figures: EndToEndFigures,
    /// The figures per mode. The map is empty unless the model has several modes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, EndToEndFigures>,
}

/// The measured figures between a source and a sink.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndToEndFigures {
    /// The number of outputs that depend on an execution of the source.
    pub outputs: u64,
    /// The time from the start of the newest execution of the source on which an output depends to
    /// the publication of the output. It leaves out outputs whose newest data was read again.
    pub latency_ns: Dist,
    /// The reaction time: from a start on which one output depends to the first output that depends
    /// on a later start.
    #[serde(default)]
    pub reaction_ns: Dist,
    /// The data age: the time from the start of the oldest execution of the source on which an
    /// output depends to the publication. `None` means that the age equals the latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<Dist>,
    /// The number of outputs in another mode than that in which the newest execution started. Each
    /// counts in the mode of its start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crossed: u64,
}

impl EndToEndFigures {
    /// Returns the age of the oldest data from which the outputs were computed.
    pub fn data_age_ns(&self) -> &Dist {
        self.age_ns.as_ref().unwrap_or(&self.latency_ns)
    }
}

/// A path from a source to a sink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// The stable id: `chain-` and a short hash of the callbacks' ids.
    pub id: String,
    /// The vertices from source to sink.
    pub callbacks: Vec<String>,
    /// The topics between the callbacks, then the sink's output if it has one.
    pub topics: Vec<String>,
    /// At least one edge of the chain is assumed.
    #[serde(default)]
    pub assumed: bool,
    /// The chain exists in only one reading of an ambiguous junction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
    /// The chain begins with an input that the user named (`--input`). Its latency then counts from
    /// the input's publication. The first callback's share contains the time from the publication
    /// to its start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_input: bool,
    /// The chain is a part of other chains, between ends that the user named (`--from`, `--to`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// The measured figures over all modes.
    #[serde(flatten)]
    pub figures: ChainFigures,
    /// The figures per mode. The map is empty unless the model has several modes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, ChainFigures>,
    /// The latency by run id, over all modes. The map is empty for a single run, and lacks runs
    /// from models of older versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub per_run: BTreeMap<String, Dist>,
}

impl Chain {
    /// Returns latencies by run id. Returns `None` if the model does not assign each execution to a
    /// run.
    pub fn latency_per_run<'c>(&'c self, runs: &'c [Run]) -> Option<Vec<(&'c str, &'c Dist)>> {
        if let [only] = runs {
            return Some(vec![(&only.id, &self.figures.latency_ns)]);
        }
        let known: u64 = self.per_run.values().map(Dist::count).sum();
        let all = self.per_run.iter().map(|(id, dist)| (id.as_str(), dist));
        (known == self.figures.latency_ns.count()).then(|| all.collect())
    }
}

impl ChainFigures {
    /// Returns the age of the data from which the outputs were computed.
    pub fn data_age_ns(&self) -> &Dist {
        self.age_ns.as_ref().unwrap_or(&self.latency_ns)
    }
}

/// The measured figures of a chain.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChainFigures {
    /// The number of executions followed from source to output.
    pub executions: u64,
    /// The time from the start of the first callback to the publication of the chain's output
    /// (thesis Algorithm 1). Without an output, it ends with the last callback. See
    /// [`Chain::from_input`].
    pub latency_ns: Dist,
    /// The reaction time: from the start behind one output to the next output. It bounds the delay
    /// of data that arrived just after the first callback looked.
    #[serde(default)]
    pub reaction_ns: Dist,
    /// The data age: the latency, including outputs from stored data that were read again
    /// (`--link`). `None` means that the age equals the latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<Dist>,
    /// The jitter: (max - min) / 2.
    pub jitter_ns: u64,
    /// The number of executions whose item was lost before the last callback.
    pub lost: u64,
    /// The number of executions that were not followed to the last callback, because too many paths
    /// met on the way.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// The number of executions that ended in another mode than they began in. Each counts in the
    /// mode of its beginning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crossed: u64,
    /// The part of each callback and edge in the latency, in order. The means add up to the
    /// latency's mean.
    pub shares: Vec<Share>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A callback's or an edge's part of a chain's latency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The kind of element, `callback` or `edge`.
    pub element: String,
    /// The callback's id, or the edge's topic.
    pub name: String,
    /// The sum over the executions in ns. It is decimal text, so that merging is exact.
    pub sum_ns: String,
    /// The mean per execution.
    pub mean_ns: f64,
    /// The share of the chain's mean latency, from 0 to 1.
    pub fraction: f64,
}
