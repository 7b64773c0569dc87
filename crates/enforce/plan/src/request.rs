//! What is asked of a plan.

use crate::schema::{Hold, Overshoot};

/// How the chain is to be run (thesis, sections 4.1 to 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// High SCHED_FIFO priority and no slots: the baseline.
    Fifo,
    /// A server per callback, slots back to back by measured worst cases (Table 4.3, row 1).
    ServerPerCallback,
    /// One server for the whole chain (Definition 4.3.1).
    ServerPerChain,
    /// Slots for the output that make the average least (Definition 4.3.4, Equation 4.1); one band is
    /// single-band shaping (Definitions 4.3.2 and 4.3.3).
    Bands(
        /// How many.
        usize,
    ),
    /// As many bands as bring something.
    AutoBands,
    /// Slots for the output at random places, the last but as in [`Strategy::Bands`].
    RandomBands {
        /// How many.
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
    /// Its name on the command line and in the plan.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Fifo => "fifo",
            Strategy::ServerPerCallback => "server-per-callback",
            Strategy::ServerPerChain => "server-per-chain",
            Strategy::Bands(_) | Strategy::AutoBands => "bands",
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
    /// Node that publishes it; found in the model where none is named.
    pub node: Option<String>,
}

/// What is asked of a plan. `Request::default()` is shaping into one band with everything derived from
/// the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Chains by id, a prefix of it, or FROM..TO (what stands in the ids of the first and the last callback),
    /// as long as it fits one only; none: the model's only chain.
    pub chains: Vec<String>,
    /// How they are to be run.
    pub strategy: Strategy,
    /// CPU of everything that has none of its own; none: the highest that the model saw.
    pub cpu: Option<u16>,
    /// CPUs of callbacks, or of nodes.
    pub cpu_of: Vec<(String, u16)>,
    /// CPU of the middleware's threads; none: one that no server has, if the model saw one.
    pub middleware_cpu: Option<u16>,
    /// How outputs are held.
    pub hold: Hold,
    /// Time beyond the measured worst case; none: 1 % of it, at least 0.5 ms.
    pub epsilon_ns: Option<u64>,
    /// Length of an output's slot; none: from the measured transport.
    pub slot_ns: Option<u64>,
    /// Largest distance of neighbouring bands.
    pub liveliness_ns: Option<u64>,
    /// What happens to an output that is late.
    pub overshoot: Overshoot,
    /// Inputs that are let through once per cycle.
    pub throttles: Vec<ThrottleRequest>,
    /// Cycle, where inputs are throttled; none: the first callback's typical distance.
    pub cycle_ns: Option<u64>,
    /// Callbacks or nodes that get what is left.
    pub background: Vec<String>,
    /// Real-time priority of the chain.
    pub priority: u8,
}

/// Priority of the chain where none is asked for.
pub const DEFAULT_PRIORITY: u8 = 80;

impl Default for Request {
    fn default() -> Self {
        Request {
            chains: vec![],
            strategy: Strategy::Bands(1),
            cpu: None,
            cpu_of: vec![],
            middleware_cpu: None,
            hold: Hold::Republish,
            epsilon_ns: None,
            slot_ns: None,
            liveliness_ns: None,
            overshoot: Overshoot::Carry,
            throttles: vec![],
            cycle_ns: None,
            background: vec![],
            priority: DEFAULT_PRIORITY,
        }
    }
}

impl Request {
    /// The CPU that was asked for a callback, or else for its node.
    pub(crate) fn cpu_said(&self, callback: &onbeat_model::schema::Callback) -> Option<u16> {
        let said = |name: &str| {
            let mut latest = self.cpu_of.iter().rev();
            latest.find(|(n, _)| n == name).map(|&(_, cpu)| cpu)
        };
        said(&callback.id).or_else(|| said(&callback.node))
    }
}
