//! Defines the request for a plan: chains, strategy, CPUs and times.

use crate::schema::{Hold, Overshoot, Plan};
pub use onbeat_document::cuts::Ends;

/// The strategy for running the chain (thesis, sections 4.1 to 4.5).
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Strategy {
    /// A high SCHED_FIFO priority without slots: the baseline.
    Fifo,
    /// One server per callback. The slots follow one another, and each is as long as the measured
    /// worst case of its callback (Table 4.3, row 1).
    ServerPerCallback,
    /// One server for the whole chain (Definition 4.3.1).
    ServerPerChain,
    /// Slots for the output, placed so that the average latency is the smallest (Definition 4.3.4,
    /// Equation 4.1). One band is single-band shaping (Definitions 4.3.2 and 4.3.3).
    Bands(usize),
    /// The number of bands beyond which further bands hardly make the average latency shorter: see
    /// [`knee`](crate::bands::knee).
    AutoBands,
    /// The fewest bands with which the average latency is longer than the unshaped one by at most
    /// this share, at the confidence of [`Profile::fewest`](crate::profile::Profile::fewest).
    Average(f64),
    /// Slots for the output at random times of the cycle. Only the last slot is placed as in
    /// [`Strategy::Bands`].
    RandomBands {
        bands: usize,
        /// The seed of the slots' random times. Equal seeds give equal plans.
        seed: u64,
    },
    /// Logical execution time of every callback: its output leaves when the next cycle begins.
    LetPerCallback,
    /// Logical execution time of the chain as a whole: its output leaves when the next cycle
    /// begins.
    LetPerChain,
}

impl Strategy {
    pub(crate) fn has_bands(self) -> bool {
        matches!(self.name(), "bands" | "random-bands")
    }

    /// Reports whether the strategy's promises depend on the slots of the chain's threads. The
    /// other strategies hold outputs back or promise nothing, so the slots of their latency servers
    /// need no end.
    pub(crate) fn is_about_slots(self) -> bool {
        matches!(self, Strategy::ServerPerCallback | Strategy::ServerPerChain)
    }

    /// Returns the strategy's name on the command line and in the plan.
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

/// A request to let an input through once per cycle.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThrottleRequest {
    pub topic: String,
    /// The node that publishes the topic. `None` stands for its only publisher in the model.
    pub node: Option<String>,
}

/// The requested CPUs of the chain's threads and of the middleware.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuRequest {
    /// The CPU of all callbacks without an entry in `of`. `None` stands for the highest CPU number
    /// in the model.
    pub default: Option<u16>,
    /// The CPUs of single callbacks or nodes, by id or name.
    pub of: Vec<(String, u16)>,
    /// The CPU of the middleware's threads. `None` stands for a CPU without servers, if the model
    /// has one.
    pub middleware: Option<u16>,
}

/// The request for outputs: when they leave, and what happens to late ones.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub struct OutputRequest {
    pub hold: Hold,
    /// The share of later executions that may miss the last slot, at the confidence
    /// [`CONFIDENCE`](crate::profile::CONFIDENCE). With `None`, the last slot begins one buffer
    /// after the measured worst case.
    pub miss: Option<f64>,
    /// Whether the plan may leave out the slowest executions of the profile and then promise a miss
    /// rate. It leaves them out if they do not fit into the cycle, or if they are few and take far
    /// longer than all others. Has no effect if `miss` or `epsilon_ns` is given.
    pub may_leave_out: bool,
    /// The buffer between the measured worst case and the last slot, in ns, for plans without a
    /// miss rate (`miss`). With `None`, the buffer is 1 % of the worst case, but at least 0.5 ms.
    pub epsilon_ns: Option<u64>,
    /// The length of an output's slot, in ns. With `None`, onbeat derives it from the measured time
    /// from messages' publications until their executors have them.
    pub slot_ns: Option<u64>,
    /// The largest distance between neighbouring bands. `None` allows any distance.
    pub liveliness_ns: Option<u64>,
    /// The time by which the chain's slot is longer than its outputs' slots need. Bands that follow
    /// the load may move the last slot later by up to this time.
    pub room_ns: u64,
    pub overshoot: Overshoot,
}

impl Default for OutputRequest {
    fn default() -> Self {
        OutputRequest {
            hold: Hold::Republish,
            miss: None,
            may_leave_out: false,
            epsilon_ns: None,
            slot_ns: None,
            liveliness_ns: None,
            room_ns: 0,
            overshoot: Overshoot::Carry,
        }
    }
}

/// The request for inputs: which inputs are throttled, and to which cycle.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InputRequest {
    pub throttles: Vec<ThrottleRequest>,
    /// The cycle for throttled inputs. `None` stands for the typical time between the first
    /// callback's starts.
    pub cycle_ns: Option<u64>,
}

/// A request for a plan. `Request::default()` shapes into one band and derives everything else from
/// the model.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The chains to plan: by id, by a prefix of the id, or as FROM..TO (parts of the ids of the
    /// first and the last callback). Each entry must match one chain only. An empty list stands for
    /// the model's only chain.
    pub chains: Vec<String>,
    /// The ends of a part of a chain, used instead of `chains`.
    pub ends: Ends,
    pub strategy: Strategy,
    pub cpus: CpuRequest,
    pub outputs: OutputRequest,
    pub inputs: InputRequest,
    /// The callbacks or nodes that run in the time that the chain leaves free.
    pub background: Vec<String>,
    pub priority: u8,
    /// The plans of chains with other origins that are enforced at the same time.
    pub beside: Vec<Plan>,
}

/// The default priority of a chain's threads.
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
    pub(crate) fn may_leave_out(&self) -> bool {
        let outputs = &self.outputs;
        outputs.may_leave_out
            && outputs.miss.is_none()
            && outputs.epsilon_ns.is_none()
            && self.strategy.has_bands()
    }

    pub(crate) fn cpu_for(&self, callback: &onbeat_document::schema::Callback) -> Option<u16> {
        let said = |name: &str| {
            let mut latest = self.cpus.of.iter().rev();
            latest.find(|(n, _)| n == name).map(|&(_, cpu)| cpu)
        };
        said(&callback.id).or_else(|| said(&callback.node))
    }
}
