//! Defines the errors of planning. Each is one line with the numbers and the remedy.

use crate::bands::BandsError;
use crate::fault::{name, PlanFault};
use crate::profile::ProfileError;
use crate::schema::Ms;
use onbeat_document::cuts::CutError;

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    #[error("the model has no chain. Record until an output was published, or add missing links with --link.")]
    NoChain,
    #[error("the model has {} chains. Name one with --chain: {}", known.len(), names(known))]
    WhichChain { known: Vec<String> },
    #[error(
        "the model has no chain '{}'. Name one of its chains with --chain: {}",
        name(asked),
        names(known)
    )]
    UnknownChain { asked: String, known: Vec<String> },
    #[error("'{}' is the beginning of {} chain ids. Name one of them in full: {}", name(asked), fit.len(), names(fit))]
    AmbiguousChain { asked: String, fit: Vec<String> },
    /// The request names an end of the chain that the model does not have, or no chain leads from
    /// one end to the other.
    #[error(transparent)]
    Cut(#[from] CutError),
    #[error("{} chains fit the ends that you name (--from, --to), but begin or end differently. Choose one with --through: {}", differ.len(), names(differ))]
    SeveralWays {
        /// For each path between the two ends, a callback or topic that is on no other path. If no
        /// such callback or topic exists, all callbacks of the path.
        differ: Vec<String>,
    },
    #[error("the {callbacks} callbacks between the chosen ends are only a part of a chain, but the model has only the latency of the whole chain. Make the model again from its traces with 'onbeat model TRACE{}'.", quoted(options))]
    NotMeasured {
        callbacks: usize,
        options: Vec<(&'static str, String)>,
    },
    #[error("chains that are planned together must start with the same callback, but one starts with '{}' and another with '{}'. The phase between their cycles is known only when they run. Plan each chain alone, give the first plan to the second with '--beside', and shape both.", name(a), name(b))]
    Origins { a: String, b: String },
    #[error("callback '{}' belongs to this chain and to the chain of the other plan (--beside). How long the other chain waits for this callback depends on the phase between the two cycles, which no plan covers. Plan one of the chains up to that callback, or from the next one on (--to, --from).", name(callback))]
    Common { callback: String },
    #[error("the threads of '{}' also run callbacks of this chain, but server '{}' of the other plan (--beside) freezes them between its slots. Give this chain's callbacks executors of their own.", name(callback), name(server))]
    Shut { callback: String, server: String },
    #[error("--priority {asked} is too high: the plan of --beside reserves no time for this chain, so its servers must have a higher priority than this chain. Choose {most} or lower.")]
    Behind { asked: u8, most: u8 },
    #[error("--beside does not work with {strategy}, because the phase between the slots of the two plans is unknown. Choose fifo or a strategy that holds outputs back.")]
    BesideStrategy { strategy: &'static str },
    #[error(
        "both plans hold back topic '{}', but a topic can leave in the cycle of one plan only. Plan one of the chains without this topic (--to, --from).",
        name(topic)
    )]
    HeldTwice { topic: String },
    #[error(
        "the chains contradict each other in the order of their callbacks. Plan the chains one by one."
    )]
    NoOrder,
    #[error(
        "no execution of chain '{}' was followed to its end. Record longer.",
        name(chain)
    )]
    NoExecutions { chain: String },
    #[error("callback '{}' has no execution time in the model. If the trace was imported, record its context switches too, or record with 'onbeat record'. Otherwise 'onbeat show' says why.", name(callback))]
    Untimed { callback: String },
    #[error(
        "{option}: '{}' is neither a callback nor a node of {place}. Correct the name.",
        name(asked)
    )]
    Unknown {
        option: &'static str,
        asked: String,
        place: &'static str,
    },
    #[error("node '{}' both publishes and takes '{}'. Holding the topic back renames it for the whole node, so the node would get only its own messages. Plan with --design async, or end the chain at an earlier callback (--to).", name(node), name(topic))]
    HearsItself { node: String, topic: String },
    #[error(
        "--background: '{}' belongs to a planned chain's node or executor, whose threads run in the chain's servers. Name callbacks of other nodes and executors.",
        name(asked)
    )]
    NotBackground { asked: String },
    #[error("node '{}' is bound to CPU {a} and to CPU {b}, but its callbacks share threads. Bind the node to one CPU.", name(node))]
    SplitNode { node: String, a: u16, b: u16 },
    #[error("callback '{}' is bound to CPU {a} and callback '{}' to CPU {b}, but both run on the threads of one executor. Bind both to one CPU, or give one an executor of its own.", name(first), name(second))]
    SplitExecutor {
        first: String,
        a: u16,
        second: String,
        b: u16,
    },
    #[error("callback '{}' belongs to server '{}' and callback '{}' to server '{}', but both run on the threads of one executor, and a thread can be in one server only. Give one of the callbacks an executor of its own.", name(first), name(&servers[0]), name(second), name(&servers[1]))]
    SharedExecutor {
        first: String,
        second: String,
        servers: Box<[String; 2]>,
    },
    #[error("the chain does not fit into its period: {what} need {need}, but the cycle leaves only {have}. Of the needed time, other callbacks on the chain's executors take {added} ({}). Give the chain's callbacks executors of their own, or record the application again under a plan of --strategy fifo.", names(others))]
    SharedTooLong {
        what: String,
        need: Ms,
        have: Ms,
        added: Ms,
        others: Vec<String>,
    },
    #[error("'{}' starts the chain and has no period. Let its input through once per cycle with --throttle TOPIC --cycle MS.", name(origin))]
    NoPeriod { origin: String },
    #[error("'{}' starts the chain every {low} to {high} (1st to 99th percentile) instead of every {period}. Let its input through once per cycle with --throttle TOPIC, or remove the overload.", name(origin))]
    NotSteady {
        origin: String,
        period: Ms,
        low: Ms,
        high: Ms,
    },
    #[error("a cycle of {cycle} does not fit '{}', which starts every {period}. Leave --cycle out, or throttle its input with --throttle.", name(origin))]
    Cycle {
        cycle: Ms,
        origin: String,
        period: Ms,
    },
    #[error("the chain does not fit into its period: {what} need {need}, but the cycle leaves only {have}. The chain's slowest execution took {slowest}; 99 % of its executions took at most {usual}. {remedy}")]
    TooLong {
        what: String,
        need: Ms,
        have: Ms,
        slowest: Ms,
        usual: Ms,
        remedy: String,
    },
    #[error("CPU {cpu} would be busy for {:.1} % of the time in the worst case ({parts}). Bind some of these callbacks to another CPU with --cpu.", share * 100.0)]
    Utilisation { cpu: u16, share: f64, parts: String },
    #[error("chain '{}' publishes nothing at its end, so it has no output to hold back. Use --strategy fifo, server-per-callback or server-per-chain.", name(chain))]
    NoOutput { chain: String },
    #[error(
        "'{}' publishes '{}', which belongs to a service. Only topics can be held back: plan the chain up to a topic with --to.",
        name(callback),
        name(topic)
    )]
    Service { callback: String, topic: String },
    #[error("priority {asked} is out of range. Choose 1 to {max}.")]
    Priority { asked: u8, max: u8 },
    #[error("a slot of {slot} is not possible. Choose one longer than 0 and shorter than the cycle of {cycle}.")]
    Slot { slot: Ms, cycle: Ms },
    #[error("--throttle: no callback of the model publishes '{}'. Name the node that publishes the topic, as --throttle TOPIC@NODE.", name(topic))]
    ThrottleUnknown { topic: String },
    #[error("--throttle: {} nodes publish '{}'. Name one as --throttle TOPIC@NODE: {}", nodes.len(), name(topic), names(nodes))]
    ThrottleSeveral { topic: String, nodes: Vec<String> },
    #[error("the chain passes '{}', a thread of the application's own, which a plan cannot control. Let the chain begin after this thread, in a model made with 'onbeat model --input {}'.", name(callback), name(topic))]
    OwnThread { callback: String, topic: String },
    #[error("--miss says how many executions may miss the last latency band, but this strategy has no bands. Use --miss with --strategy bands.")]
    MissStrategy,
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Bands(#[from] BandsError),
    #[error("these options and this model lead to an invalid plan: {0}")]
    Fault(#[from] PlanFault),
}

impl PlanError {
    /// Reports whether the error is that the chain is too long for its cycle or its CPU. A plan
    /// without the slowest executions may then fit.
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
