//! The request for a plan: chains, strategy, CPUs and times.

use crate::schema::{Hold, Overshoot, Plan};
pub use onbeat_document::cuts::Ends;

/// The strategy for running the chain (thesis, sections 4.1 to 4.5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Strategy {
    /// High SCHED_FIFO priority and no slots: the baseline.
    Fifo,
    /// A server per callback, slots back to back by measured worst cases (Table 4.3, row 1).
    ServerPerCallback,
    /// One server for the whole chain (Definition 4.3.1).
    ServerPerChain,
    /// Slots for the output that minimise the average latency (Definition 4.3.4, Equation 4.1); one
    /// band is single-band shaping (Definitions 4.3.2 and 4.3.3).
    Bands(
        /// Number of bands.
        usize,
    ),
    /// As many bands as lower the average noticeably.
    AutoBands,
    /// As few bands as keep the average latency within this share over the unshaped one, with
    /// confidence: see [`Profile::fewest`](crate::profile::Profile::fewest).
    Average(f64),
    /// Slots for the output at random places, the last but as in [`Strategy::Bands`].
    RandomBands {
        /// Number of bands.
        bands: usize,
        /// Equal seeds give equal plans.
        seed: u64,
    },
    /// Logical execution time of every callback: its output leaves when the next cycle begins.
    LetPerCallback,
    /// Logical execution time of the chain as a whole.
    LetPerChain,
}

impl Strategy {
    /// Whether outputs leave in bands.
    pub(crate) fn has_bands(self) -> bool {
        matches!(self.name(), "bands" | "random-bands")
    }

    /// Whether the slots of the chain's threads are what it promises. Others hold outputs back, or
    /// promise nothing: their latency servers need no end.
    pub(crate) fn is_about_slots(self) -> bool {
        matches!(self, Strategy::ServerPerCallback | Strategy::ServerPerChain)
    }

    /// The strategy's name on the command line and in the plan.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Fifo => "fifo",
            Strategy::ServerPerCallback => "server-per-callback",
            Strategy::ServerPerChain => "server-per-chain",
            Strategy::Bands(_) | Strategy::AutoBands | Strategy::Average(_) => "bands",
            Strategy::RandomBands { .. } => "random-bands",
            Strategy::LetPerCallback => "let-per-callback",
            Strategy::LetPerChain => "let-per-chain",
        }
    }
}

/// An input to be let through once per cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThrottleRequest {
    /// The topic.
    pub topic: String,
    /// Node that publishes it. `None`: the one that does so in the model.
    pub node: Option<String>,
}

/// CPUs of the chain's threads, and of the middleware.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuRequest {
    /// CPU of everything without a CPU of its own. `None`: the highest that the model saw.
    pub default: Option<u16>,
    /// CPUs of callbacks, or of nodes.
    pub of: Vec<(String, u16)>,
    /// CPU of the middleware's threads. `None`: one without servers, if the model saw one.
    pub middleware: Option<u16>,
}

/// When outputs leave, and what becomes of late ones.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputRequest {
    /// The mechanism that holds outputs back.
    pub hold: Hold,
    /// The last slot begins where at most this share of later executions is not done, with
    /// confidence. `None`: a buffer behind the measured worst case.
    pub miss: Option<f64>,
    /// Buffer beyond the measured worst case, without `miss`. `None`: 1 % of it, at least 0.5 ms.
    pub epsilon_ns: Option<u64>,
    /// Length of an output's slot. `None`: from the measured transport.
    pub slot_ns: Option<u64>,
    /// Largest distance of neighbouring bands.
    pub liveliness_ns: Option<u64>,
    /// How much longer the chain's slot is than its outputs need: as far bands that follow the load
    /// may raise the last slot.
    pub room_ns: u64,
    /// The policy for late outputs.
    pub overshoot: Overshoot,
}

impl Default for OutputRequest {
    fn default() -> Self {
        OutputRequest {
            hold: Hold::Republish,
            miss: None,
            epsilon_ns: None,
            slot_ns: None,
            liveliness_ns: None,
            room_ns: 0,
            overshoot: Overshoot::Carry,
        }
    }
}

/// How inputs come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InputRequest {
    /// Inputs that are let through once per cycle.
    pub throttles: Vec<ThrottleRequest>,
    /// Cycle where inputs are throttled. `None`: the typical time between the first callback's
    /// starts.
    pub cycle_ns: Option<u64>,
}

/// A request for a plan. `Request::default()` shapes into one band and derives everything else from
/// the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Chains by id, by a prefix of the id, or as FROM..TO (parts of the ids of the first and the
    /// last callback); each must match one chain only. Empty: the model's only chain.
    pub chains: Vec<String>,
    /// A part of a chain instead, by its ends.
    pub ends: Ends,
    /// The strategy for all of them.
    pub strategy: Strategy,
    /// Where threads run.
    pub cpus: CpuRequest,
    /// When outputs leave.
    pub outputs: OutputRequest,
    /// How inputs come.
    pub inputs: InputRequest,
    /// Callbacks or nodes that get the time that is left.
    pub background: Vec<String>,
    /// Real-time priority of the chain.
    pub priority: u8,
    /// Plans of chains with other origins that are enforced at the same time.
    pub beside: Vec<Plan>,
}

/// Priority of the chain if the request does not change it.
pub const DEFAULT_PRIORITY: u8 = 80;

impl Default for Request {
    fn default() -> Self {
        Request {
            chains: vec![],
            ends: Ends::default(),
            strategy: Strategy::Bands(1),
            cpus: CpuRequest::default(),
            outputs: OutputRequest::default(),
            inputs: InputRequest::default(),
            background: vec![],
            priority: DEFAULT_PRIORITY,
            beside: vec![],
        }
    }
}

impl Request {
    /// The CPU that was asked for a callback, or else for its node.
    pub(crate) fn cpu_for(&self, callback: &onbeat_document::schema::Callback) -> Option<u16> {
        let said = |name: &str| {
            let mut latest = self.cpus.of.iter().rev();
            latest.find(|(n, _)| n == name).map(|&(_, cpu)| cpu)
        };
        said(&callback.id).or_else(|| said(&callback.node))
    }
}
