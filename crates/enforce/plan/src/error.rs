//! Defines the errors of planning. Each is one line with the numbers and the remedy.

use crate::bands::BandsError;
use crate::fault::{name, PlanFault};
use crate::profile::ProfileError;
use crate::schema::Ms;
use onbeat_document::cuts::CutError;

/// The reason why a plan cannot be made. The messages explain the fields.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The model holds no chain.
    #[error("the model has no chain. Record until an output was published, or add missing links with --link.")]
    NoChain,
    /// The model holds several chains, and the request names none.
    #[error("the model has {} chains. Name one with --chain: {}", known.len(), names(known))]
    WhichChain { known: Vec<String> },
    /// The model has no chain of this id.
    #[error(
        "the model has no chain '{}'. Name one of its chains with --chain: {}",
        name(asked),
        names(known)
    )]
    UnknownChain { asked: String, known: Vec<String> },
    /// Several ids begin with the name in the request.
    #[error("'{}' is the beginning of {} chain ids. Name one of them in full: {}", name(asked), fit.len(), names(fit))]
    AmbiguousChain { asked: String, fit: Vec<String> },
    /// The request names an end that does not exist, or no chain leads from one end to the other.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// Several parts of chains lead to the requested ends, from different callbacks or to different
    /// outputs.
    #[error("{} chains lead from the one end that you name to the other. Choose one with --through: {}", differ.len(), names(differ))]
    SeveralWays {
        /// For each part, a callback or topic that is on no other part. If a part has none, all its
        /// callbacks.
        differ: Vec<String>,
    },
    /// The model does not have the latency of this part of a chain.
    #[error("these {callbacks} callbacks are a part of a chain, but the model has only the latency of the whole chain. Make the model again from its traces with 'onbeat model TRACE{}'.", quoted(options))]
    NotMeasured {
        callbacks: usize,
        options: Vec<(&'static str, String)>,
    },
    /// The chains start with different callbacks.
    #[error("chains that are planned together must start with the same callback, but one starts with '{}' and another with '{}'. The phase between their cycles is known only when they run. Plan each by itself, the second with '--beside' and the first one's plan, and shape both.", name(a), name(b))]
    Origins { a: String, b: String },
    /// A callback belongs to this plan's chain and to a chain of another plan.
    #[error("callback '{}' belongs to this chain and to the chain of the other plan. The other chain's wait for it depends on the phase between the two cycles, which no plan covers. Plan one of the chains up to that callback, or from the next one on (--to, --from).", name(callback))]
    Common { callback: String },
    /// A server of another plan freezes threads on which callbacks of this chain run.
    #[error("the threads of '{}' also run callbacks of this chain, but server '{}' of the other plan freezes them between its slots. Give this chain's callbacks executors of their own.", name(callback), name(server))]
    Shut { callback: String, server: String },
    /// With `--beside`, the requested priority would disturb the other plan.
    #[error("--priority {asked} is too high: the other plan reserves no time for this chain, so its own servers must run first. Choose {most} or lower.")]
    Behind { asked: u8, most: u8 },
    /// The strategy promises slots. With `--beside`, these slots could meet the slots of the other
    /// plan at any phase.
    #[error("--beside does not work with {strategy}, because its slots would meet those of the other plan at any phase. Choose fifo or a strategy that holds outputs back.")]
    BesideStrategy { strategy: &'static str },
    /// Both plans hold back the same output or input.
    #[error(
        "both plans hold back topic '{}', but a topic can leave in the cycle of one plan only. Plan one of the chains without this topic (--to, --from).",
        name(topic)
    )]
    HeldTwice { topic: String },
    /// The chains contradict each other in the order of callbacks.
    #[error(
        "the chains contradict each other in the order of their callbacks. Plan them one by one."
    )]
    NoOrder,
    /// The model has no execution of the chain from its start to its end.
    #[error(
        "no execution of chain '{}' was followed to its end. Record longer.",
        name(chain)
    )]
    NoExecutions { chain: String },
    /// No execution of a callback has an execution time.
    #[error("callback '{}' has no execution time in the model. Record its context switches too, or record with 'onbeat record'.", name(callback))]
    Untimed { callback: String },
    /// An option names a callback or node that does not exist.
    #[error(
        "{option}: '{}' is neither a callback nor a node of {place}. Correct the name.",
        name(asked)
    )]
    Unknown {
        option: &'static str,
        asked: String,
        /// The text `the model` or `the plan`, which says where onbeat searched for the name.
        place: &'static str,
    },
    /// A node subscribes to a topic that it publishes.
    #[error("node '{}' publishes '{}' and takes it too. If the topic is held back, the node gets only its own messages. Plan with --design async, or end the chain at an earlier callback (--to).", name(node), name(topic))]
    HearsItself { node: String, topic: String },
    /// A background callback shares threads with the chain.
    #[error(
        "--background: '{}' belongs to a planned chain's node or executor, whose threads run in the chain's servers. Name callbacks of other nodes and executors.",
        name(asked)
    )]
    NotBackground { asked: String },
    /// The request binds the callbacks of one node to several CPUs.
    #[error("node '{}' is bound to CPU {a} and to CPU {b}, but its callbacks share threads. Bind the node to one CPU.", name(node))]
    SplitNode { node: String, a: u16, b: u16 },
    /// The request binds the callbacks of one executor to several CPUs.
    #[error("callback '{}' is bound to CPU {a} and callback '{}' to CPU {b}, but both run on the threads of one executor. Bind both to one CPU, or give one an executor of its own.", name(first), name(second))]
    SplitExecutor {
        first: String,
        a: u16,
        second: String,
        b: u16,
    },
    /// The callbacks of one executor would be in several servers.
    #[error("callback '{}' belongs to server '{}' and callback '{}' to server '{}', but both run on the threads of one executor, and a thread can be in one server only. Give one of the callbacks an executor of its own.", name(first), name(&servers[0]), name(second), name(&servers[1]))]
    SharedExecutor {
        first: String,
        second: String,
        /// The servers of `first` and `second`.
        servers: Box<[String; 2]>,
    },
    /// The cycle has no time for the other callbacks on the chain's executors.
    #[error("the chain does not fit into its period: {what} need {need}, and the cycle leaves {have}. Other callbacks on the chain's executors take {added} of this time ({}). Give the chain's callbacks executors of their own, or measure again under --strategy fifo.", names(others))]
    SharedTooLong {
        /// The part of the plan that does not fit, as a noun in the plural.
        what: String,
        need: Ms,
        have: Ms,
        /// The time within `need` that other callbacks take.
        added: Ms,
        /// The ids of the other callbacks, the largest load first.
        others: Vec<String>,
    },
    /// The first callback has no period.
    #[error("'{}' starts the chain and has no period. Let its input through once per cycle with --throttle TOPIC --cycle MS.", name(origin))]
    NoPeriod { origin: String },
    /// The first callback starts irregularly.
    #[error("'{}' starts the chain every {low} to {high} (1st to 99th percentile) instead of every {period}. Let its input through once per cycle with --throttle TOPIC, or remove the overload.", name(origin))]
    NotSteady {
        origin: String,
        period: Ms,
        low: Ms,
        high: Ms,
    },
    /// The requested cycle differs from the period.
    #[error("a cycle of {cycle} does not fit '{}', which starts every {period}. Leave --cycle out, or throttle its input with --throttle.", name(origin))]
    Cycle {
        cycle: Ms,
        origin: String,
        period: Ms,
    },
    /// The chain needs more time than the cycle has.
    #[error("the chain does not fit into its period: {what} need {need}, and the cycle leaves {have}. Its slowest execution took {slowest}; 99 % took at most {usual}. {remedy}")]
    TooLong {
        /// The part of the plan that does not fit, as a noun in the plural.
        what: String,
        need: Ms,
        have: Ms,
        slowest: Ms,
        usual: Ms,
        /// The way out, as a sentence.
        remedy: String,
    },
    /// The plan would use more than all of a CPU's time.
    #[error("CPU {cpu} would be busy for {:.1} % of the time in the worst case ({parts}). Bind some of these to another CPU with --cpu.", share * 100.0)]
    Utilisation {
        cpu: u16,
        /// The share of the CPU that the plan would use; 1 is all.
        share: f64,
        /// The largest uses, as text.
        parts: String,
    },
    /// The chain has no output that can be held back.
    #[error("chain '{}' publishes nothing at its end, so it has no output to hold back. Use --strategy fifo, server-per-callback or server-per-chain.", name(chain))]
    NoOutput { chain: String },
    /// The output is a request or response, which cannot be held back.
    #[error(
        "'{}' publishes '{}', which belongs to a service. Only topics can be held back: plan the chain up to a topic with --to.",
        name(callback),
        name(topic)
    )]
    Service { callback: String, topic: String },
    /// The requested priority is out of range.
    #[error("priority {asked} is out of range. Choose 1 to {max}.")]
    Priority { asked: u8, max: u8 },
    /// The slot is empty or longer than the cycle.
    #[error("a slot of {slot} is not possible. Choose one longer than 0 and shorter than the cycle of {cycle}.")]
    Slot { slot: Ms, cycle: Ms },
    /// No callback of the model publishes the topic.
    #[error("--throttle: no callback of the model publishes '{}'. Name the node that does, as --throttle TOPIC@NODE.", name(topic))]
    ThrottleUnknown { topic: String },
    /// Several nodes publish the topic.
    #[error("--throttle: {} nodes publish '{}'. Name one as --throttle TOPIC@NODE: {}", nodes.len(), name(topic), names(nodes))]
    ThrottleSeveral { topic: String, nodes: Vec<String> },
    /// The chain passes a thread of the application's own.
    #[error("the chain passes '{}', a thread of the application's own, which a plan cannot control. Let the chain begin after it, in a model made with 'onbeat model --input {}'.", name(callback), name(topic))]
    OwnThread {
        /// The callback that stands for the thread.
        callback: String,
        topic: String,
    },
    /// The request has a miss rate, but a strategy without bands.
    #[error("--miss says how many executions may miss the last latency band, and this strategy has no bands. Use it with --strategy bands.")]
    MissStrategy,
    /// The measured executions do not support the promise.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The slots of the outputs cannot be placed.
    #[error(transparent)]
    Bands(#[from] BandsError),
    /// The resulting plan contradicts itself.
    #[error("these options and this model lead to an invalid plan: {0}")]
    Fault(#[from] PlanFault),
}

impl PlanError {
    /// Reports whether the chain is too long for its cycle or its CPU, so that a plan without the
    /// slowest executions may fit.
    pub(crate) fn is_about_length(&self) -> bool {
        matches!(
            self,
            PlanError::TooLong { .. }
                | PlanError::SharedTooLong { .. }
                | PlanError::Utilisation { .. }
        )
    }
}

fn quoted(options: &[(&'static str, String)]) -> String {
    let option = |(option, value): &(&str, String)| format!(" {option} {}", name(value));
    options.iter().map(option).collect()
}

fn names(names: &[String]) -> String {
    let mut text = names
        .iter()
        .take(5)
        .map(|n| name(n))
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > 5 {
        text.push_str(", ...");
    }
    if text.is_empty() {
        text.push_str("none");
    }
    text
}
