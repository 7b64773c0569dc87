//! Why no plan can be made: each error is one line with the numbers and the remedy.

use crate::bands::BandsError;
use crate::fault::{name, PlanFault};
use crate::profile::ProfileError;
use crate::schema::Ms;
use onbeat_document::cuts::CutError;

/// Why no plan can be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The model holds no chain.
    #[error("the model holds no chain: record until an output was published, or add what is missing with --link")]
    NoChain,
    /// Several chains, and none was named.
    #[error("the model holds {} chains: name one with --chain: {}", known.len(), names(known))]
    WhichChain {
        /// Their ids.
        known: Vec<String>,
    },
    /// No chain of this id.
    #[error("no chain '{}' in the model; it has: {}", name(asked), names(known))]
    UnknownChain {
        /// The name in the request.
        asked: String,
        /// The ids there are.
        known: Vec<String>,
    },
    /// A prefix of several ids.
    #[error("'{}' is the beginning of {} chains' ids: {}", name(asked), fit.len(), names(fit))]
    AmbiguousChain {
        /// The name in the request.
        asked: String,
        /// The ids that begin with it.
        fit: Vec<String>,
    },
    /// A name of an end that is none, or ends between which no chain leads.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// Several parts of chains between two ends.
    #[error("{} chains lead from one end to the other: name one with --through: {}", differ.len(), names(differ))]
    SeveralWays {
        /// Of each something that is on no other.
        differ: Vec<String>,
    },
    /// A part of a chain whose own latency the model does not have.
    #[error("these {callbacks} callbacks are a part of a chain, and the model has the latency of the whole alone: make it again from its traces with 'onbeat model TRACE{}'", quoted(options))]
    NotMeasured {
        /// How many callbacks the part has.
        callbacks: usize,
        /// The options with which it is measured.
        options: Vec<(&'static str, String)>,
    },
    /// Chains without a common start.
    #[error("chains that are planned together start with the same callback: one starts with '{}', another with '{}', and where their cycles lie to one another is known only when they run: plan each by itself, the second with '--beside' and the first one's plan, and shape both", name(a), name(b))]
    Origins {
        /// One start.
        a: String,
        /// Another.
        b: String,
    },
    /// A callback of chains of two plans.
    #[error("'{}' is a callback of this chain and of the other plan's too: how often the other chain waits for it depends on where their cycles lie to one another, and no plan counts that: plan one of them up to that callback or from behind it (--to, --from)", name(callback))]
    Common {
        /// Which.
        callback: String,
    },
    /// Threads that a plan beside shuts.
    #[error("the threads of '{}' run callbacks of this chain too, and server '{}' of the other plan shuts them between its slots: give them executors of their own", name(callback), name(server))]
    Shut {
        /// The other plan's callback.
        callback: String,
        /// Its server.
        server: String,
    },
    /// A priority that others' plans do not count.
    #[error("--priority {asked}: a chain beside another plan goes behind it, at most at {most} here, since that plan does not count it")]
    Behind {
        /// The priority in the request.
        asked: u8,
        /// The highest that leaves the other plan alone.
        most: u8,
    },
    /// Strategies whose slots are what is promised.
    #[error("--beside goes with strategies that hold outputs back, and with fifo: slots of {strategy} would meet those of the other plan at any phase")]
    BesideStrategy {
        /// Which.
        strategy: &'static str,
    },
    /// Plans that have the same output or input.
    #[error(
        "'{}' is held back by both plans: no topic can leave in two cycles",
        name(topic)
    )]
    HeldTwice {
        /// Which.
        topic: String,
    },
    /// Chains that contradict each other in the order of callbacks.
    #[error(
        "the chains do not agree on which of their callbacks comes first: plan them one by one"
    )]
    NoOrder,
    /// No execution of a chain was followed to its end.
    #[error(
        "no execution of chain '{}' was followed to its end: record longer",
        name(chain)
    )]
    NoExecutions {
        /// Which.
        chain: String,
    },
    /// A name of nothing that the plan covers.
    #[error(
        "{option}: '{}' is neither a callback nor a node of {place}",
        name(asked)
    )]
    Unknown {
        /// Option of the command.
        option: &'static str,
        /// The name in the request.
        asked: String,
        /// The place that was searched.
        place: &'static str,
    },
    /// A node that subscribes to a topic that it publishes.
    #[error("node '{}' publishes '{}' and takes it too: held back, it would get its own messages alone; plan with --design async, or for a callback before it", name(node), name(topic))]
    HearsItself {
        /// Node.
        node: String,
        /// Topic.
        topic: String,
    },
    /// A background callback that is part of the chain.
    #[error(
        "--background: '{}' belongs to a planned chain's node or executor, whose threads run in its servers",
        name(asked)
    )]
    NotBackground {
        /// The name in the request.
        asked: String,
    },
    /// The callbacks of one node on several CPUs.
    #[error("node '{}' is bound to CPU {a} and to CPU {b}: its callbacks share threads, so bind the node to one", name(node))]
    SplitNode {
        /// Node.
        node: String,
        /// One CPU.
        a: u16,
        /// The other.
        b: u16,
    },
    /// The callbacks of one executor on several CPUs.
    #[error("'{}' is bound to CPU {a}, and '{}', which runs on the threads of the same executor, to CPU {b}: bind both to one, or give one an executor of its own", name(first), name(second))]
    SplitExecutor {
        /// A callback.
        first: String,
        /// Its CPU.
        a: u16,
        /// Another of the executor.
        second: String,
        /// Its CPU.
        b: u16,
    },
    /// The callbacks of one executor in several servers.
    #[error("'{}' belongs to server '{}', and '{}', which runs on the threads of the same executor, to server '{}': threads are in one server, so give one of them an executor of its own", name(first), name(&servers[0]), name(second), name(&servers[1]))]
    SharedExecutor {
        /// A callback.
        first: String,
        /// Another of the executor.
        second: String,
        /// Their servers.
        servers: Box<[String; 2]>,
    },
    /// There is no time for what else runs on the chain's executors.
    #[error("{what} need {need}, and the cycle leaves {have}; {added} of it is for what else runs on the threads of the chain's executors ({}): give the chain's callbacks executors of their own, or measure again under --strategy fifo", names(others))]
    SharedTooLong {
        /// What.
        what: String,
        /// The time that it needs.
        need: Ms,
        /// The time that is left.
        have: Ms,
        /// For others.
        added: Ms,
        /// Which, the largest first.
        others: Vec<String>,
    },
    /// The first callback has no period.
    #[error("'{}' starts the chain and has no period: let its input through once per cycle with --throttle TOPIC --cycle MS", name(origin))]
    NoPeriod {
        /// First callback.
        origin: String,
    },
    /// The first callback starts irregularly.
    #[error("'{}' starts the chain every {low} to {high} (1st to 99th percentile), and {period} is expected: let its input through once per cycle with --throttle TOPIC, or mend the overload", name(origin))]
    NotSteady {
        /// First callback.
        origin: String,
        /// Its period.
        period: Ms,
        /// 1st percentile of the distance between starts.
        low: Ms,
        /// 99th percentile.
        high: Ms,
    },
    /// A cycle that is not the period.
    #[error("a cycle of {cycle} cannot follow '{}', which comes every {period}: leave --cycle out, or throttle its input", name(origin))]
    Cycle {
        /// Asked for.
        cycle: Ms,
        /// First callback.
        origin: String,
        /// Its period.
        period: Ms,
    },
    /// More time is needed than the cycle has.
    #[error("{what} need {need}, and the cycle leaves {have}: the chain is longer than its period allows")]
    TooLong {
        /// What.
        what: String,
        /// The time that it needs.
        need: Ms,
        /// The time that is left.
        have: Ms,
    },
    /// A CPU would be used for more than all of its time.
    #[error("CPU {cpu} would be used for {:.1} % at the worst ({parts}): bind some of it to another CPU with --cpu", share * 100.0)]
    Utilisation {
        /// CPU.
        cpu: u16,
        /// Share, 1 is all.
        share: f64,
        /// The largest uses.
        parts: String,
    },
    /// A chain without an output cannot be shaped.
    #[error("chain '{}' publishes nothing at its end: there is no output to hold back (use fifo, server-per-callback or server-per-chain)", name(chain))]
    NoOutput {
        /// Which.
        chain: String,
    },
    /// A request or response cannot be held back.
    #[error(
        "'{}' publishes '{}', which belongs to a service: only topics can be held back",
        name(callback),
        name(topic)
    )]
    Service {
        /// The callback.
        callback: String,
        /// What.
        topic: String,
    },
    /// A priority out of range.
    #[error("priority {asked} is out of range: 1 to {max}")]
    Priority {
        /// Asked for.
        asked: u8,
        /// Highest.
        max: u8,
    },
    /// A slot that is empty or longer than the cycle.
    #[error("a slot of {slot} cannot be: longer than 0, and shorter than the cycle of {cycle}")]
    Slot {
        /// Asked for.
        slot: Ms,
        /// Cycle.
        cycle: Ms,
    },
    /// Nobody publishes a topic.
    #[error("--throttle: no callback of the model publishes '{}': name the node that does, as --throttle TOPIC@NODE", name(topic))]
    ThrottleUnknown {
        /// Topic.
        topic: String,
    },
    /// Several nodes publish a topic.
    #[error("--throttle: {} nodes publish '{}': name one, as --throttle TOPIC@NODE: {}", nodes.len(), name(topic), names(nodes))]
    ThrottleSeveral {
        /// Topic.
        topic: String,
        /// Its publishers.
        nodes: Vec<String>,
    },
    /// A chain passes a thread of the application's own.
    #[error("the chain passes '{}', a thread of the application's own, which no plan can hold: let the chain begin behind it, in a model made with 'onbeat model --input {}'", name(callback), name(topic))]
    OwnThread {
        /// The callback.
        callback: String,
        /// What it publishes.
        topic: String,
    },
    /// A miss rate for a strategy without bands.
    #[error("--miss places the last slot of an output: it goes with --strategy bands")]
    MissStrategy,
    /// The measured executions carry no such promise.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Slots of outputs cannot be placed.
    #[error(transparent)]
    Bands(#[from] BandsError),
    /// The resulting plan contradicts itself.
    #[error("the plan cannot hold: {0}")]
    Fault(#[from] PlanFault),
}

/// Options of a command line.
fn quoted(options: &[(&'static str, String)]) -> String {
    let option = |(option, value): &(&str, String)| format!(" {option} {}", name(value));
    options.iter().map(option).collect()
}

/// Some names for a message.
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
