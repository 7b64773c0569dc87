//! The timing model as a value: the content of `model.json`.
//!
//! Vertices are callbacks and synchronisers. Edges are topics, requests and responses between them.
//! Chains are paths from a source to a sink (thesis section 3.5). The `figures` of a part are those
//! over all modes. Its `modes` are the figures by mode, so that modes can be merged or kept apart.
//! They are empty unless the model has several modes.

pub mod helper;
mod influence;
pub mod qos;

pub use helper::{Helper, HelperFigures};
pub use influence::{Cause, Component, ComponentKind};
pub use qos::{Durability, Endpoint, EndpointKind, History, Liveliness, Qos, Reliability};

use crate::dist::Dist;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The value of [`Model::schema`]: the name and version of the format.
pub const SCHEMA: &str = "onbeat-model/1";

/// The mode of a run for which the user named no mode.
pub const DEFAULT_MODE: &str = "default";

/// The figures of each mode, by name. They are boxed, because each part of such a map reserves room
/// for eleven entries, and most models have one mode.
pub type ByMode<F> = BTreeMap<String, Box<F>>;

/// A timing model of one run, or of many merged runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The name and version of the file format. onbeat writes [`SCHEMA`].
    pub schema: String,
    /// The runs from which onbeat made the model, sorted by id.
    pub runs: Vec<Run>,
    /// The callbacks, which are the vertices of the graph, sorted by id.
    pub callbacks: Vec<Callback>,
    /// The connections between callbacks, sorted by `from`, `to` and `topic`.
    pub edges: Vec<Edge>,
    /// The junctions at which several inputs meet, sorted by callback.
    pub junctions: Vec<Junction>,
    /// The chains: paths from source to sink, sorted by id.
    pub chains: Vec<Chain>,
    /// The latency and data age between each source and sink, over all paths, sorted by `from`,
    /// `to` and `topic`. Empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub end_to_end: Vec<EndToEnd>,
    /// The ROS 2 actions with their callbacks and figures, sorted by name.
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
    /// The assumptions that no event confirms, as whole sentences.
    #[serde(default)]
    pub assumptions: Vec<String>,
    /// The limits of the recordings and the lost events, as whole sentences.
    #[serde(default)]
    pub coverage: Vec<String>,
    /// The evidence that only merging needs. Its form can change, so other programs should not read
    /// it.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub evidence: serde_json::Value,
}

impl Model {
    /// Returns the figures of a mode, or `None` if the mode has none. Without a mode, or if all
    /// runs have this mode, returns the figures of all runs.
    pub fn figures_of<'a, F>(
        &self,
        mode: Option<&str>,
        all: &'a F,
        modes: &'a ByMode<F>,
    ) -> Option<&'a F> {
        match mode {
            None => Some(all),
            Some(mode) => modes
                .get(mode)
                .map(Box::as_ref)
                .or_else(|| self.runs.iter().all(|r| r.mode == mode).then_some(all)),
        }
    }
}

/// A recording, or the part of it in one mode, from which the model was made.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The id of the recording, unique among all recordings, plus `#1`, `#2` ... for parts in
    /// different modes.
    pub id: String,
    /// The name of the recorded machine. Empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The id of the machine's boot. Empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot: String,
    /// The mode that was active, for example `urban` or `highway`.
    pub mode: String,
    /// The ROS 2 distributions of the recorded processes, sorted ("jazzy", "kilted").
    pub distribution: Vec<String>,
    /// The start of the recording in ns since 1970 (CLOCK_REALTIME).
    pub start: u64,
    pub duration_ns: u64,
    pub lost: BTreeMap<String, u64>,
    pub events: u64,
}

impl Run {
    /// Returns the id of the recording without the part number. If several modes were active, the
    /// parts of a recording have `#1`, `#2` ... at the end of their ids.
    pub fn recording(&self) -> &str {
        match self.id.rsplit_once('#') {
            Some((id, n)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => id,
            _ => &self.id,
        }
    }
}

/// The type of a vertex, given by the event that triggers it.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackType {
    Timer,
    Subscription,
    /// The callback runs on a request. A service is one vertex for each calling client.
    Service,
    Client,
    /// The vertex is a task of rclpy's executor, made by a callback: the execution of an action's
    /// goal.
    Task,
    /// The vertex is the AND junction of a synchroniser (thesis section 3.5).
    Sync,
    /// The vertex is a thread of the application itself, which publishes but runs no callbacks.
    Thread,
}

/// A group of callbacks that run on the same threads. A group covers one executor, or all executors
/// that one thread spins in turn. Each callback that ran is in exactly one group.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executor {
    pub callbacks: Vec<String>,
    /// The maximum number of threads in one run that ran any of the callbacks. It exceeds one for
    /// a multi-threaded executor and for a restarted process.
    pub threads: usize,
}

/// An action: its goals, cancellations, results, feedback and state together.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// The name of the action. It is untrusted. The action's services and topics are below
    /// `NAME/_action/`.
    pub name: String,
    /// The full names of the nodes that serve the action, sorted.
    pub servers: Vec<String>,
    /// The full names of the nodes that use the action, sorted.
    pub clients: Vec<String>,
    /// The ids of the callbacks on the action's services and topics, and of the task that executes
    /// its goals. They are sorted.
    pub callbacks: Vec<String>,
    #[serde(flatten)]
    pub figures: ActionFigures,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: ByMode<ActionFigures>,
}

/// The counts of an action's goals, cancellations and results, and the time that goals took.
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
    /// The times from sending a goal to taking its result.
    pub goal_to_result_ns: Dist,
}

/// The way in which onbeat found the start and the end of a callback's executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bracket {
    /// Tracepoints mark the start and the end of each execution.
    Exact,
    /// The start and the end of each execution follow from the executor's calls around the
    /// callback.
    Inferred,
}

/// The way in which onbeat found the name of a callback's node.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The recording shows the node's own name.
    #[default]
    Known,
    /// The node has the name of its process, and may stand for several nodes.
    Guessed,
}

impl Identity {
    /// Reports whether the recording shows the node's own name.
    pub fn is_known(&self) -> bool {
        *self == Identity::Known
    }
}

/// A callback: a vertex of the graph.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Callback {
    /// The id, which is the same in all runs, for example `/fusion:subscription(/lidars/front)`.
    pub id: String,
    /// The full name of the callback's node. It is untrusted.
    pub node: String,
    #[serde(default, skip_serializing_if = "Identity::is_known")]
    pub identity: Identity,
    #[serde(rename = "type")]
    pub kind: CallbackType,
    /// The name of the topic or service that triggers the callback. Empty for a timer and for a
    /// thread.
    pub input: String,
    /// The node of the client whose requests this vertex serves. `None` unless the vertex is a
    /// service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The period of a timer in ns. For other callbacks, the median inter-arrival time if the times
    /// are steady, otherwise `None`.
    pub period_ns: Option<u64>,
    /// The topics, `service/request`s and `service/response`s on which the callback publishes,
    /// sorted.
    pub outputs: Vec<String>,
    pub bracket: Bracket,
    /// The symbol of the callback's function in rclcpp, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    #[serde(flatten)]
    pub figures: CallbackFigures,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: ByMode<CallbackFigures>,
    pub threads: Vec<ThreadUse>,
    /// The measured best, mean and worst execution time of each run (thesis Figure 3.9), by run id.
    pub per_run: BTreeMap<String, RunExtremes>,
}

/// The distributions of a callback's times, and the counts of its preemptions and sleeps.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CallbackFigures {
    /// The execution times: the time on the CPU between start and end (thesis Algorithm 3).
    pub exec_ns: Dist,
    /// The response times. A response time lasts from when an execution could run until it ended.
    pub response_ns: Dist,
    pub interarrival_ns: Dist,
    /// The distances of a timer callback's starts from its releases. For other callbacks,
    /// `interarrival_ns` shows the jitter.
    pub release_jitter_ns: Dist,
    /// The time per execution in which the callback's thread was ready to run while it had no CPU.
    pub preempted_ns: Dist,
    /// The time per execution in which the callback's thread slept.
    pub blocked_ns: Dist,
    pub preemptions: u64,
    pub blockings: u64,
    /// The number of executions whose CPU time is unknown, because a scheduler event near them is
    /// missing or because no event shows when they ran. `exec_ns`, `preempted_ns` and `blocked_ns` leave them out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub untimed: u64,
    /// The components that made the callback wait, sorted. Empty if the recording does not show
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// The share of one CPU that the callback used: `exec_ns.sum / observed_ns`. An execution with
    /// an unknown CPU time counts with the mean execution time.
    pub load: f64,
    /// The total length, in ns, of the runs to which `load` refers.
    pub observed_ns: u64,
}

impl CallbackFigures {
    /// Returns the number of executions, including those whose CPU time is unknown.
    pub fn executions(&self) -> u64 {
        self.exec_ns.count().saturating_add(self.untimed)
    }

    /// Reports whether no execution has a known execution time. The load is then unknown, and the
    /// field `load` is 0.
    pub fn is_untimed(&self) -> bool {
        self.untimed > 0 && self.exec_ns.count() == 0
    }

    /// Returns `load`, the share of one CPU that the callback used. Returns `None` if no execution
    /// has a known execution time.
    pub fn known_load(&self) -> Option<f64> {
        (self.observed_ns > 0 && !self.is_untimed()).then_some(self.load)
    }
}

/// The extremes of the execution time in one run (thesis Figure 3.9).
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunExtremes {
    /// The start of the run in ns since 1970 (CLOCK_REALTIME), which gives the order of runs.
    pub start: u64,
    pub count: u64,
    pub min_ns: u64,
    pub mean_ns: f64,
    pub max_ns: u64,
    /// The typical figures, by which runs are compared. `None` in models of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typical: Option<RunTypical>,
}

/// The typical figures of a callback in one run, by which runs are compared.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunTypical {
    pub exec_ns: Typical,
    pub response_ns: Typical,
    pub interarrival_ns: Typical,
}

/// The median and the tail of a figure in one run.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Typical {
    pub count: u64,
    pub median_ns: u64,
    /// The 99th percentile of the values, in ns. `None` for fewer than [`Typical::TAIL`] values and
    /// in older models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// The number of independent values that would carry the same information as all values
    /// together. It is lower than `count` because values close in time are similar. 0 if there are
    /// too few values for an estimate.
    pub effective: u64,
}

impl Typical {
    /// The minimum number of values for which [`Typical::p99_ns`] is computed. With this many
    /// values, two lie beyond the percentile.
    pub const TAIL: u64 = 200;
}

/// The threads with one name, policy and priority that ran a callback. Runs are compared by name,
/// policy and priority, because thread ids differ.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ThreadUse {
    /// The thread's name, as in `/proc/PID/comm`. It is untrusted.
    pub comm: String,
    /// The scheduling policy: `other`, `fifo`, `rr`, `batch`, `idle`, `deadline` or `ext`.
    pub policy: String,
    /// The kernel's priority: 0 to 99 for real-time threads, 100 to 139 for normal ones.
    pub priority: u8,
    pub cpus: Vec<u16>,
}

/// The reason why onbeat assumes an edge whose items it did not follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assumed {
    /// The callback's thread woke up or created the other thread nearly each time before the other
    /// thread worked.
    HandedOver,
    /// The callback waited for a response, in an executor of its own or as a coroutine. After the
    /// response was handled, the callback continued, so it may use the response's data.
    Waited,
    /// The callback created the task, and the task ran after the callback. The order of creation
    /// shows which goal the task executed.
    Made,
    /// The user stated the edge with `--link`.
    Stated,
}

/// Reads the reason why an edge is assumed. In older files, the field is a boolean.
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

/// A connection over which items go from one callback to another.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    pub from: String,
    pub to: String,
    /// The topic, `service/request` or `service/response`. If an edge leads into a sync vertex,
    /// this is the topic of the subscription whose callback publishes the output.
    pub topic: String,
    /// The reason why onbeat assumes the edge. `None` if it followed the items.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read_assumed"
    )]
    pub assumed: Option<Assumed>,
    #[serde(default)]
    pub intra_process: bool,
    #[serde(flatten)]
    pub figures: EdgeFigures,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: ByMode<EdgeFigures>,
}

/// The distributions of an edge's times, and the counts of its items.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EdgeFigures {
    /// The times from publication to the start of the callback that takes the item.
    pub latency_ns: Dist,
    /// The times from publication until the item woke the executor up, measured while the executor
    /// was idle.
    pub transport_ns: Dist,
    /// The times from the executor's wake-up to the start of the callback. If the executor was
    /// busy, publication plus the median transport time replaces the wake-up.
    pub waiting_ns: Dist,
    /// The number of items published while the taking callback existed.
    pub published: u64,
    pub taken: u64,
    /// The number of items that were not taken, for an unknown reason. An item counts only if a
    /// later item was taken, or if the recording went on for a second after it.
    pub lost: u64,
    /// The number of items that were not taken because later ones filled the queue. `lost` does not
    /// include them.
    pub overwritten: u64,
    /// The number of items that a synchroniser skipped because it joined other items of the same
    /// input. `lost` does not include them.
    #[serde(default)]
    pub unselected: u64,
}

/// The condition under which a junction runs: new data of all its inputs, or data of any input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JunctionKind {
    /// The junction runs when all inputs have new data.
    And,
    /// The junction runs on data of any input.
    Or,
}

/// The certainty with which onbeat knows the kind of a junction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JunctionState {
    /// The recorded data show the kind of the junction.
    #[default]
    Decided,
    /// The recorded data allow several readings of the junction. Edges and chains follow the first
    /// reading.
    Ambiguous,
    /// The user stated the kind of the junction with `--junction`.
    Stated,
}

/// The rule by which an AND junction chooses which items of its inputs it joins.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Matching {
    /// The junction joins two or more items: the item that the publishing callback took and, of
    /// each other input, the item that usually arrives together with it.
    #[default]
    InTurn,
    /// The junction joins the items whose chains began closest together, like a synchroniser by
    /// approximate time. The junction publishes the output when a later item shows that no better
    /// set of items can come.
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
    /// The kind of the junction in this reading. With AND, the output waits for all inputs. With
    /// OR, each input triggers the output by itself, and the callback may also read stored data of
    /// the other inputs.
    pub kind: JunctionKind,
    /// The ids of the callbacks that are inputs in this reading.
    pub inputs: Vec<String>,
}

/// A callback at which several inputs meet.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Junction {
    /// The id of the vertex: a sync vertex for AND, the triggered callback for OR.
    pub callback: String,
    pub kind: JunctionKind,
    /// The ids of the callbacks whose data meet at the junction, sorted.
    pub inputs: Vec<String>,
    /// The evidence that shows the junction: `message_filters`, `data_flow`,
    /// `several_publishers` or `stated`.
    pub criterion: String,
    /// The confidence from 0 to 1. It is 1 for a decided OR junction and for a junction that the
    /// user stated.
    ///
    /// For a decided AND junction, onbeat computes for each input the share of outputs before which
    /// the input had no new data. The confidence is 1 minus the sum of these shares, but at least
    /// 0.
    ///
    /// An ambiguous junction has 0.5 with the criterion `several_publishers`, and otherwise half of
    /// the confidence that the AND junction would have.
    pub confidence: f64,
    #[serde(default)]
    pub state: JunctionState,
    #[serde(default, skip_serializing_if = "Matching::is_in_turn")]
    pub matching: Matching,
    /// The possible meanings of an ambiguous junction. Edges and chains follow the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
    /// The value for `--junction` that decides an ambiguous junction.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub settle: String,
}

/// The figures of the data from a source to a sink, over all paths between them. They are complete,
/// even if the model does not list all paths.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndToEnd {
    /// The id of the callback with which the paths begin.
    pub from: String,
    /// The id of the vertex with which the paths end. It is a sync vertex if several subscriptions
    /// wait for one another before the output.
    pub to: String,
    /// The topic of the outputs. Empty if the last callback publishes nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub topic: String,
    /// Whether some of the paths exist in only one reading of an ambiguous junction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
    /// Whether the paths begin with an input that the user named (`--input`). The times then count
    /// from the input's publication.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_input: bool,
    /// Whether the user named at least one end (`--from`, `--to`) that is not the end of a chain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// The number of paths between the ends in the graph. `None` if the paths contain a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<u64>,
    /// The number of paths between the two ends that are chains of the model.
    pub listed: u64,
    #[serde(flatten)]
    pub figures: EndToEndFigures,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: ByMode<EndToEndFigures>,
}

/// The measured figures between a source and a sink.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndToEndFigures {
    /// The number of outputs that depend on an execution of the source.
    pub outputs: u64,
    /// The times from the newest start of the source on which an output depends to the output's
    /// publication. Outputs whose newest data was read again are left out.
    pub latency_ns: Dist,
    /// The reaction times: from a start of the source on which one output depends, to the first
    /// output that depends on a later start of the source.
    #[serde(default)]
    pub reaction_ns: Dist,
    /// The data ages: from the oldest start of the source on which an output depends to the
    /// output's publication. `None` means that the data ages equal the latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<Dist>,
    /// The number of outputs that were published in another mode than the newest start of the
    /// source on which they depend. Each output counts in the mode of this start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crossed: u64,
}

impl EndToEndFigures {
    /// Returns the data ages: `age_ns`, or `latency_ns` if `age_ns` is `None`.
    pub fn data_age_ns(&self) -> &Dist {
        self.age_ns.as_ref().unwrap_or(&self.latency_ns)
    }
}

/// A path from a source to a sink.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// The id, which is the same in all runs: `chain-` and a short hash of the callbacks' ids.
    pub id: String,
    pub callbacks: Vec<String>,
    /// The topics between the callbacks, followed by the topic of the sink's output if it has one.
    pub topics: Vec<String>,
    /// Whether at least one edge of the chain is assumed.
    #[serde(default)]
    pub assumed: bool,
    /// Whether the chain exists in only one reading of an ambiguous junction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
    /// Whether the chain begins with an input that the user named (`--input`). Its latency then
    /// counts from the input's publication. The share of the first callback includes the time from
    /// this publication to the callback's start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_input: bool,
    /// Whether the chain is a part of other chains, between ends that the user named (`--from`,
    /// `--to`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    #[serde(flatten)]
    pub figures: ChainFigures,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: ByMode<ChainFigures>,
    /// The latency by run id, over all modes. Empty for a single run. Runs from models of older
    /// versions are missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub per_run: BTreeMap<String, Dist>,
}

impl Chain {
    /// Returns the latencies of each run, by run id. Returns `None` if the model does not know the
    /// run of each execution.
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
    /// Returns the data ages: `age_ns`, or `latency_ns` if `age_ns` is `None`.
    pub fn data_age_ns(&self) -> &Dist {
        self.age_ns.as_ref().unwrap_or(&self.latency_ns)
    }
}

/// The distributions of a chain's latency, and the counts of its executions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChainFigures {
    /// The number of executions that onbeat followed from the source to the output.
    pub executions: u64,
    /// The end-to-end latencies: from the start of the first callback to the publication of the
    /// chain's output (thesis Algorithm 1). Without an output, the latencies end with the last
    /// callback. See [`Chain::from_input`].
    pub latency_ns: Dist,
    /// The reaction times: one output depends on a start of the first callback, and the time lasts
    /// from this start to the next output that depends on a later start. A reaction time is the
    /// longest delay of data that arrived just after the first callback looked for data.
    #[serde(default)]
    pub reaction_ns: Dist,
    /// The data ages. They include outputs from stored data that were read again (`--link`), which
    /// the latencies leave out. `None` means that the data ages equal the latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<Dist>,
    /// The jitter of the latency in ns: (max - min) / 2.
    pub jitter_ns: u64,
    /// The number of executions whose item was lost before the last callback.
    pub lost: u64,
    /// The number of executions that onbeat did not follow to the last callback, because too many
    /// paths meet on the way.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// The number of executions that began in one mode and ended in another. Each counts in the
    /// mode of its beginning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crossed: u64,
    /// The parts of callbacks and edges in the latency, in the chain's order. The means of these
    /// parts add up to the mean of the latency.
    pub shares: Vec<Share>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The part of one callback or edge in a chain's latency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The kind of element, `callback` or `edge`.
    pub element: String,
    /// The id of the callback, or the topic of the edge.
    pub name: String,
    /// The sum of the element's parts over all executions in ns, as decimal text, so that merging
    /// is exact.
    pub sum_ns: String,
    /// The mean of the element's part over all executions, in ns.
    pub mean_ns: f64,
    /// The element's share of the chain's mean latency, from 0 to 1.
    pub fraction: f64,
}
