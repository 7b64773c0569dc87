//! The timing model as a value: the content of `model.json`.
//!
//! Vertices are callbacks (and synchronisers), edges are topics, requests and responses between
//! them, chains are paths from a source to a sink (thesis section 3.5). Figures come in
//! *per-mode* sets, so that modes can be merged or kept apart.

pub mod helper;
mod influence;
pub mod qos;

pub use helper::{Helper, HelperFigures};
pub use influence::{Cause, Component, ComponentKind};
pub use qos::{Durability, Endpoint, EndpointKind, History, Liveliness, Qos, Reliability};

use crate::dist::Dist;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Value of [`Model::schema`].
pub const SCHEMA: &str = "onbeat-model/1";

/// Name of the mode of a run that was given none.
pub const DEFAULT_MODE: &str = "default";

/// A timing model: of one run, or of many merged ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The runs that the model was made of, sorted by id.
    pub runs: Vec<Run>,
    /// Vertices, sorted by id.
    pub callbacks: Vec<Callback>,
    /// Edges, sorted by (from, to, topic).
    pub edges: Vec<Edge>,
    /// Callbacks at which several inputs meet, sorted by callback.
    pub junctions: Vec<Junction>,
    /// Paths from source to sink, sorted by id.
    pub chains: Vec<Chain>,
    /// Actions: the callbacks and figures of each, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// Callbacks that run on the same threads, sorted by their first callback. Empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executors: Vec<Executor>,
    /// Publishers and subscriptions whose creation was seen, with their QoS settings; sorted. Empty in
    /// older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// Threads that run no callback, as far as recordings have their scheduler events; sorted. Empty in
    /// older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub helpers: Vec<Helper>,
    /// Assumptions of the model that no event shows, in whole sentences.
    #[serde(default)]
    pub assumptions: Vec<String>,
    /// Limits of the recordings and losses, in whole sentences.
    #[serde(default)]
    pub coverage: Vec<String>,
    /// Evidence that only merging needs. Its form can change; readers should not use it.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub evidence: serde_json::Value,
}

impl Model {
    /// The figures of a mode: of all runs without one, or if all runs have it. None where the mode has none.
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

/// One recording that the model was made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Unique id of the recording.
    pub id: String,
    /// Name of the host; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Id of the machine's boot; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot: String,
    /// Mode (urban, highway ...).
    pub mode: String,
    /// ROS 2 distributions seen, sorted ("jazzy", "kilted").
    pub distribution: Vec<String>,
    /// Start of the recording, CLOCK_REALTIME ns since 1970.
    pub start: u64,
    /// Length of the recording.
    pub duration_ns: u64,
    /// Events lost, by event kind.
    pub lost: BTreeMap<String, u64>,
    /// Events read.
    pub events: u64,
}

impl Run {
    /// Id of the recording. The parts of a run in which different modes were active have a number
    /// after it, `#1`, `#2` ...
    pub fn recording(&self) -> &str {
        match self.id.rsplit_once('#') {
            Some((id, n)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => id,
            _ => &self.id,
        }
    }
}

/// Type of a vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackType {
    /// Runs when its timer is due.
    Timer,
    /// Runs on a message.
    Subscription,
    /// Runs on a request of one client.
    Service,
    /// Runs on a response.
    Client,
    /// A task of rclpy's executor, which a callback made: the execution of an action's goal.
    Task,
    /// The AND vertex of a synchroniser (thesis section 3.5).
    Sync,
    /// Runs on a thread of the application's own, which publishes and runs no callbacks.
    Thread,
}

/// Callbacks that run on the same threads: those of an executor, or of several that one thread
/// spins in turn. Each callback that ran is in exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executor {
    /// Ids of the callbacks, sorted.
    pub callbacks: Vec<String>,
    /// Most threads of which one run saw that they run any of them: more than one for a
    /// multi-threaded executor, and for a process that was started anew.
    pub threads: usize,
}

/// An action: goals, cancellations, results, feedback and state taken together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// Its name (untrusted); its services and topics are below `NAME/_action/`.
    pub name: String,
    /// Nodes that serve it, sorted.
    pub servers: Vec<String>,
    /// Nodes that use it, sorted.
    pub clients: Vec<String>,
    /// Ids of the callbacks on its services and topics, and of the task that executes its goals,
    /// sorted.
    pub callbacks: Vec<String>,
    /// Figures over all modes.
    #[serde(flatten)]
    pub figures: ActionFigures,
    /// Figures per mode; only there when there is more than one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, ActionFigures>,
}

/// Measured figures of an action.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ActionFigures {
    /// Goals that recorded clients sent.
    pub goals: u64,
    /// Goals that recorded servers took, accepted or not.
    pub served: u64,
    /// Cancellations that recorded clients asked for.
    pub cancels: u64,
    /// Pieces of feedback that recorded servers published.
    pub feedback: u64,
    /// Results that recorded clients got.
    pub results: u64,
    /// Of these, results whose goal could not be told.
    pub untimed: u64,
    /// From the sending of a goal to the taking of its result.
    pub goal_to_result_ns: Dist,
}

/// How a callback's start and end were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bracket {
    /// From tracepoints at its start and end.
    Exact,
    /// From the executor's calls around it.
    Inferred,
}

/// Whether the node of a callback is known.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// By its own name.
    #[default]
    Known,
    /// No: it is named after its process, and may stand for several nodes of it.
    Guessed,
}

impl Identity {
    /// Whether the node is known.
    pub fn is_known(&self) -> bool {
        *self == Identity::Known
    }
}

/// A callback: a vertex of the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Callback {
    /// Stable across runs and readable, e.g. `/fusion:subscription(/lidars/front)`.
    pub id: String,
    /// Full name of its node (untrusted).
    pub node: String,
    /// Whether that name is the node's own.
    #[serde(default, skip_serializing_if = "Identity::is_known")]
    pub identity: Identity,
    /// What triggers it.
    #[serde(rename = "type")]
    pub kind: CallbackType,
    /// Topic or service name; empty for a timer and for a thread.
    pub input: String,
    /// For a service callback: the client's node whose requests this vertex serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// A timer's period; for others the median inter-arrival time where it is steady.
    pub period_ns: Option<u64>,
    /// Topics (and `service/request`, `service/response`) it publishes, sorted.
    pub outputs: Vec<String>,
    /// How its start and end were found.
    pub bracket: Bracket,
    /// The rclcpp symbol, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// Figures over all modes.
    #[serde(flatten)]
    pub figures: CallbackFigures,
    /// Figures per mode; only there when there is more than one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, CallbackFigures>,
    /// Threads that ran it, sorted.
    pub threads: Vec<ThreadUse>,
    /// Execution time's measured best, mean and worst case in each run (Figure 3.9), by run id.
    pub per_run: BTreeMap<String, RunExtremes>,
}

/// Measured figures of a callback.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CallbackFigures {
    /// Time on the CPU between start and end (Algorithm 3).
    pub exec_ns: Dist,
    /// End minus start of waiting.
    pub response_ns: Dist,
    /// Start to start.
    pub interarrival_ns: Dist,
    /// |release - ideal release| for timers; |inter-arrival - median| is in `interarrival_ns`.
    pub release_jitter_ns: Dist,
    /// Time ready but not running inside the callback, per execution.
    pub preempted_ns: Dist,
    /// Time asleep inside the callback, per execution.
    pub blocked_ns: Dist,
    /// Number of preemptions inside the callback.
    pub preemptions: u64,
    /// Number of times it blocked.
    pub blockings: u64,
    /// What made it wait, sorted by component. Empty where the recording does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Execution time over observed time: share of one CPU. `exec_ns.sum / observed_ns`.
    pub load: f64,
    /// Length of the runs that `load` refers to.
    pub observed_ns: u64,
}

/// Extremes of the execution time in one run, for Figure 3.9.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunExtremes {
    /// Start of the run (CLOCK_REALTIME ns), to order runs by.
    pub start: u64,
    /// Executions.
    pub count: u64,
    /// Measured best-case execution time (mBCET).
    pub min_ns: u64,
    /// Measured average-case execution time (mACET).
    pub mean_ns: f64,
    /// Measured worst-case execution time (mWCET).
    pub max_ns: u64,
    /// What is typical of the run. None in models of versions that did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typical: Option<RunTypical>,
}

/// What is typical of a callback's figures in one run: what runs are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunTypical {
    /// Of the execution time.
    pub exec_ns: Typical,
    /// Of the response time.
    pub response_ns: Typical,
    /// Of the time from start to start.
    pub interarrival_ns: Typical,
}

/// What is typical of a figure in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Typical {
    /// Values.
    pub count: u64,
    /// Their median.
    pub median_ns: u64,
    /// Their 99th percentile, of [`Typical::TAIL`] values at least. None in older models too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// How many independent values they are worth: neighbours in time resemble one another. Zero where
    /// they are too few to tell.
    pub effective: u64,
}

impl Typical {
    /// Fewest values of which a 99th percentile is kept: two are beyond it.
    pub const TAIL: u64 = 200;
}

/// A thread that ran a callback. Runs are compared by its name, policy and priority, not its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ThreadUse {
    /// Thread name.
    pub comm: String,
    /// SCHED_* policy: `other`, `fifo`, `rr`, `batch`, `idle`, `deadline`, `ext`.
    pub policy: String,
    /// Kernel priority (0-99 real-time, 100-139 normal).
    pub priority: u8,
    /// CPUs it was seen on, sorted.
    pub cpus: Vec<u16>,
}

/// Why an edge is assumed whose items were not seen on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assumed {
    /// The callback's thread woke up the other one, or made it, nearly each time that this one had
    /// something to do.
    HandedOver,
    /// The callback waited for a response, in an executor of its own or as a coroutine, and went
    /// on when that was handled: it may use what the response brought.
    Waited,
    /// The callback made the task, which ran later; which goal's it was is taken from their order.
    Made,
    /// The user stated it (`--link`).
    Stated,
}

/// Reads why an edge is assumed; before there were several reasons, it was a flag for one.
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

/// Communication from one callback to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Publishing callback's id.
    pub from: String,
    /// Taking callback's id.
    pub to: String,
    /// Topic; `service/request` or `service/response`; for an edge into a sync vertex its input.
    pub topic: String,
    /// Why it is assumed, where its items were not seen on their way.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read_assumed"
    )]
    pub assumed: Option<Assumed>,
    /// True for intra-process communication.
    #[serde(default)]
    pub intra_process: bool,
    /// Figures over all modes.
    #[serde(flatten)]
    pub figures: EdgeFigures,
    /// Figures per mode; only there when there is more than one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, EdgeFigures>,
}

/// Measured figures of an edge.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EdgeFigures {
    /// Publication to the start of the callback that takes it.
    pub latency_ns: Dist,
    /// Publication until the executor was woken for it, where the executor was idle.
    pub transport_ns: Dist,
    /// From that wake-up (or from publication plus the median transport, where the executor was
    /// busy) to the start of the callback.
    pub waiting_ns: Dist,
    /// Items published while the taker existed.
    pub published: u64,
    /// Items taken.
    pub taken: u64,
    /// Items never taken, though a later one was, or the recording lasted a second longer, for a
    /// reason that is not known.
    pub lost: u64,
    /// Items never taken because later ones filled the queue, which keeps the last. Not in `lost`.
    pub overwritten: u64,
    /// Items that a synchroniser passed over in favour of others. Not in `lost`.
    #[serde(default)]
    pub unselected: u64,
}

/// Kind of a junction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JunctionKind {
    /// Fires when all inputs have new data.
    And,
    /// Fires on any input.
    Or,
}

/// How sure a junction is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JunctionState {
    /// The data decide.
    #[default]
    Decided,
    /// The data allow several readings. Edges and chains follow the first.
    Ambiguous,
    /// The user states it (`--junction`).
    Stated,
}

/// Which items of its inputs an AND junction joins.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Matching {
    /// The one that the publishing callback took, and of the others those that usually go with it.
    #[default]
    InTurn,
    /// Those whose chains began nearest to one another, as a synchroniser by approximate time
    /// joins them. It publishes when a later one shows that no better set can come.
    Nearest,
}

impl Matching {
    /// Whether it is the usual one.
    pub fn is_in_turn(&self) -> bool {
        *self == Matching::InTurn
    }
}

/// What an ambiguous junction can be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// AND: what follows waits for all inputs. OR: it runs on one input alone, and at most reads
    /// what others stored.
    pub kind: JunctionKind,
    /// Ids of those callbacks.
    pub inputs: Vec<String>,
}

/// A callback at which several inputs meet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Junction {
    /// The vertex: a sync vertex for AND, the triggered callback for OR.
    pub callback: String,
    /// AND or OR.
    pub kind: JunctionKind,
    /// Ids of the callbacks that feed it, sorted.
    pub inputs: Vec<String>,
    /// How it was recognised: `message_filters`, `data_flow`, `several_publishers`.
    pub criterion: String,
    /// 0 to 1: share of outputs that satisfy the criterion, discounted where the data cannot
    /// tell it from sampling.
    pub confidence: f64,
    /// Whether the data decide.
    #[serde(default)]
    pub state: JunctionState,
    /// Which items are taken to be joined, at AND.
    #[serde(default, skip_serializing_if = "Matching::is_in_turn")]
    pub matching: Matching,
    /// Of an ambiguous junction: what it can be, the reading that edges and chains follow first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
    /// The statement that settles an ambiguous junction, for `--junction`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub settle: String,
}

/// A path from a source to a sink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Stable id: short hash of the callbacks' ids, prefixed by `chain-`.
    pub id: String,
    /// Vertices from source to sink.
    pub callbacks: Vec<String>,
    /// Topics between them (one fewer than callbacks), plus the sink's output where it has one.
    pub topics: Vec<String>,
    /// True where one of its edges is assumed.
    #[serde(default)]
    pub assumed: bool,
    /// True where the chain exists only in one reading of an ambiguous junction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
    /// True where the chain begins with an input that the user named (`--input`). Its latency then
    /// counts from the input's publication, and the first callback's share contains the time from
    /// there to its start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_input: bool,
    /// True where it is a part of other chains, between ends that the user named (`--from`, `--to`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Figures over all modes.
    #[serde(flatten)]
    pub figures: ChainFigures,
    /// Figures per mode; only there when there is more than one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, ChainFigures>,
    /// Latency by run id, over all modes; only there when there is more than one run. Without the
    /// runs of models of versions that did not keep them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub per_run: BTreeMap<String, Dist>,
}

impl Chain {
    /// Latencies by run id. None where the model does not say of which run each execution was.
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
    /// The age of the data that outputs stand on.
    pub fn data_age_ns(&self) -> &Dist {
        self.age_ns.as_ref().unwrap_or(&self.latency_ns)
    }
}

/// Measured figures of a chain.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChainFigures {
    /// Executions followed from source to output.
    pub executions: u64,
    /// Start of the first callback to the publication of the chain's output (to the end of the
    /// last callback where it publishes nothing): Algorithm 1. See [`Chain::from_input`].
    pub latency_ns: Dist,
    /// Reaction time: from the start that one output stood on to the next output. So long it takes
    /// at most until something shows that came just after the first callback had looked.
    #[serde(default)]
    pub reaction_ns: Dist,
    /// Data age: as the latency, also of outputs that stand on data that were stored and read once
    /// more (`--link`). None where none were: then the latency is the age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<Dist>,
    /// (max - min) / 2.
    pub jitter_ns: u64,
    /// Executions whose item was lost before the last callback.
    pub lost: u64,
    /// Executions that were not followed to the last callback, because too many paths met on the
    /// way.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// Executions that ended in another mode than they began in; each counts where it began.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crossed: u64,
    /// The part of each callback and edge in the latency, in order; the means add up to its mean.
    pub shares: Vec<Share>,
}

/// Whether a count is left out.
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A callback's or an edge's part of a chain's latency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// `callback` or `edge`.
    pub element: String,
    /// Callback id, or topic.
    pub name: String,
    /// Sum over the executions, ns (decimal text, exact for merging).
    pub sum_ns: String,
    /// Mean per execution.
    pub mean_ns: f64,
    /// Share of the chain's mean latency, 0 to 1.
    pub fraction: f64,
}
