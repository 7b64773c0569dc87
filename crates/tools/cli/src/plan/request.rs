//! The options that describe the wanted plan, and the planner's request from them.

use onbeat_plan::request::{
    CpuRequest, Ends, InputRequest, OutputRequest, ThrottleRequest, DEFAULT_PRIORITY,
};
use onbeat_plan::schema::{Hold, Overshoot};
use onbeat_plan::{priority_beside, Request, Strategy};
use onbeat_terminal::CliError;
use std::path::PathBuf;

/// What the plan is for.
#[derive(clap::Args)]
pub struct RequestArgs {
    /// Chain: its id, or a part from its beginning; again for more sinks of a graph [default: the
    /// only one]
    #[arg(long, value_name = "ID")]
    chain: Vec<String>,
    #[command(flatten)]
    part: PartArgs,
    #[command(flatten)]
    strategy: StrategyArgs,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    input: InputArgs,
    /// Callback or node that gets what is left of the CPU; repeatable
    #[arg(long, value_name = "NAME")]
    background: Vec<String>,
}

/// A part of a chain.
#[derive(clap::Args)]
pub struct PartArgs {
    /// Begin with this callback, with the first of this node, or with what takes this topic
    #[arg(long, value_name = "NAME", conflicts_with = "chain")]
    from: Option<String>,
    /// End with what this callback, the last of this node, publishes, or with this topic
    #[arg(long, value_name = "NAME", conflicts_with = "chain")]
    to: Option<String>,
    /// Of several chains between these ends the one that passes this callback, node or topic;
    /// repeatable
    #[arg(long, value_name = "NAME", conflicts_with = "chain")]
    through: Vec<String>,
}

/// Servers and bands.
#[derive(clap::Args)]
struct StrategyArgs {
    /// How the chain is to be run
    #[arg(long, value_enum, default_value_t = StrategyName::Bands)]
    strategy: StrategyName,
    /// Number of latency bands (1: all executions alike), or `auto`: as many as reduce the average
    /// noticeably
    #[arg(long, value_name = "K", value_parser = bands)]
    bands: Option<Bands>,
    /// As few bands as keep the average latency within this over the unshaped one, on later starts
    /// too, e.g. 6%; needs a model of several starts
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with_all = ["bands", "random"])]
    average: Option<f64>,
    /// Put the slots at random instead of where the average is least
    #[arg(long)]
    random: bool,
    /// Seed for --random
    #[arg(long, value_name = "N", default_value_t = 1, requires = "random")]
    seed: u64,
    /// Where an output is held back: in a shaper that republishes it, or in the middleware's
    /// publisher thread
    #[arg(long, value_enum, default_value_t = Design::Sync)]
    design: Design,
}

/// CPUs and priority.
#[derive(clap::Args)]
struct PlacementArgs {
    /// CPU for all, or CALLBACK-OR-NODE=CPU; repeatable [default: the highest in the model]
    #[arg(long, value_name = "[NAME=]N", value_parser = cpu)]
    cpu: Vec<Cpu>,
    /// CPU of the middleware's threads [default: one in the model that no server has]
    #[arg(long, value_name = "N")]
    middleware_cpu: Option<u16>,
    /// Real-time priority of the chain, 1 to 89 [default: 80, or behind the plans beside]
    #[arg(long, value_name = "P")]
    priority: Option<u8>,
    /// Plan of a chain with another first callback that is shaped at the same time, in a cycle of its own;
    /// repeatable
    #[arg(long, value_name = "PLAN")]
    beside: Vec<PathBuf>,
}

/// Slots and what happens beyond them.
#[derive(clap::Args)]
struct TimingArgs {
    /// The share of later executions that may miss the last slot, e.g. 1e-3: it is placed at an
    /// upper limit of the profile's tail; needs a model of several starts
    #[arg(long, value_name = "SHARE", value_parser = share)]
    miss: Option<f64>,
    /// Buffer behind the measured worst case: promises nothing, and gives way to --miss
    #[arg(long, value_name = "MS", value_parser = time, hide = true, conflicts_with = "miss")]
    epsilon: Option<u64>,
    /// Length of a slot in which an output leaves
    #[arg(long, value_name = "MS", value_parser = time)]
    slot: Option<u64>,
    /// Largest distance of neighbouring bands: how long the output's data stays alive
    #[arg(long, value_name = "MS", value_parser = time)]
    liveliness: Option<u64>,
    /// How much longer the chain's slot is than its outputs need: as far `onbeat shape --adapt` may raise
    /// the last band
    #[arg(long, value_name = "MS", value_parser = time, default_value = "0")]
    room: u64,
    /// What happens to an output that misses its last slot
    #[arg(long, value_enum, default_value_t = Late::Carry)]
    overshoot: Late,
}

/// Inputs of chains that start with an event.
#[derive(clap::Args)]
struct InputArgs {
    /// Let this input through once per cycle, for chains that start with an event; @NODE: its
    /// publisher
    #[arg(long, value_name = "TOPIC[@NODE]")]
    throttle: Vec<String>,
    /// Cycle, with --throttle [default: how far apart the input typically comes]
    #[arg(long, value_name = "MS", value_parser = time)]
    cycle: Option<u64>,
}

/// A strategy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StrategyName {
    /// High priority, no slots: the baseline to measure first
    Fifo,
    /// A slot for every callback, one after the other
    ServerPerCallback,
    /// One slot for the whole chain
    ServerPerChain,
    /// One slot for the chain, and slots in which its output leaves
    Bands,
    /// Every callback's output leaves at the start of the next cycle
    LetPerCallback,
    /// The chain's output leaves at the start of the next cycle
    LetPerChain,
}

/// Where an output is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Design {
    /// Republished by a shaper (any middleware)
    Sync,
    /// By the middleware's publisher thread (asynchronous publishing)
    Async,
}

/// What happens to a late output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Late {
    /// It leaves in the next cycle
    Carry,
    /// It is dropped
    Drop,
    /// Shaping ends
    Stop,
}

/// A number of bands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bands {
    /// As many as reduce the average noticeably.
    Auto,
    /// This number.
    Count(usize),
}

fn bands(text: &str) -> Result<Bands, String> {
    match text {
        "auto" => Ok(Bands::Auto),
        _ => text
            .parse()
            .map(Bands::Count)
            .map_err(|_| "a number, or auto".into()),
    }
}

/// A CPU, for one name or for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu(Option<String>, u16);

fn cpu(text: &str) -> Result<Cpu, String> {
    let (name, number) = match text.rsplit_once('=') {
        Some((name, number)) => (Some(name.to_string()), number),
        None => (None, text),
    };
    let number = number
        .parse()
        .map_err(|_| "a number of a CPU, or NAME=CPU")?;
    Ok(Cpu(name, number))
}

/// Milliseconds in nanoseconds.
fn time(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(ms) if (0.0..=3_600_000.0).contains(&ms) => Ok((ms * 1e6).round() as u64),
        _ => Err("milliseconds, e.g. 0.5, up to an hour".into()),
    }
}

/// A share of all, as `6%`, `0.06` or `6e-2`.
fn share(text: &str) -> Result<f64, String> {
    let (number, of) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number / of <= 10.0 => Ok(number / of),
        _ => Err("a share above 0, e.g. 6% or 1e-3".into()),
    }
}

impl StrategyArgs {
    fn strategy(&self) -> Result<Strategy, CliError> {
        let usage = |text: &str| Err(CliError::Usage(text.into()));
        if let Some(above) = self.average {
            return match self.strategy {
                StrategyName::Bands => Ok(Strategy::Average(above)),
                _ => usage("--average goes with --strategy bands only"),
            };
        }
        let bands = self.bands.unwrap_or(Bands::Count(1));
        Ok(match (self.strategy, bands, self.random) {
            (StrategyName::Bands, Bands::Auto, false) => Strategy::AutoBands,
            (StrategyName::Bands, Bands::Count(count), false) => Strategy::Bands(count),
            (StrategyName::Bands, Bands::Count(bands), true) => Strategy::RandomBands {
                bands,
                seed: self.seed,
            },
            (StrategyName::Bands, Bands::Auto, true) => {
                return usage("--random needs a number of --bands")
            }
            (_, _, true) => return usage("--random goes with --strategy bands only"),
            _ if self.bands.is_some() => return usage("--bands goes with --strategy bands only"),
            (StrategyName::Fifo, ..) => Strategy::Fifo,
            (StrategyName::ServerPerCallback, ..) => Strategy::ServerPerCallback,
            (StrategyName::ServerPerChain, ..) => Strategy::ServerPerChain,
            (StrategyName::LetPerCallback, ..) => Strategy::LetPerCallback,
            (StrategyName::LetPerChain, ..) => Strategy::LetPerChain,
        })
    }
}

impl InputArgs {
    fn throttles(&self) -> Vec<ThrottleRequest> {
        let throttle = |text: &String| match text.split_once('@') {
            Some((topic, node)) => ThrottleRequest {
                topic: topic.into(),
                node: Some(node.into()),
            },
            None => ThrottleRequest {
                topic: text.clone(),
                node: None,
            },
        };
        self.throttle.iter().map(throttle).collect()
    }
}

impl RequestArgs {
    /// What to tell of an option that will go.
    pub fn outdated(&self) -> Option<&'static str> {
        self.timing.epsilon.map(|_| {
            "--epsilon will go: it promises nothing; use --miss, which places the last slot by the profile's tail"
        })
    }

    /// The planner's request.
    pub fn request(&self) -> Result<Request, CliError> {
        let cpus = &self.placement.cpu;
        let beside = self.placement.beside.iter().map(|path| super::load(path));
        let beside = beside.collect::<Result<Vec<_>, _>>()?;
        let behind = priority_beside(&beside).unwrap_or(DEFAULT_PRIORITY);
        Ok(Request {
            chains: self.chain.clone(),
            ends: Ends {
                from: self.part.from.clone(),
                to: self.part.to.clone(),
                through: self.part.through.clone(),
            },
            strategy: self.strategy.strategy()?,
            cpus: CpuRequest {
                default: cpus.iter().rev().find(|c| c.0.is_none()).map(|c| c.1),
                of: cpus
                    .iter()
                    .filter_map(|c| Some((c.0.clone()?, c.1)))
                    .collect(),
                middleware: self.placement.middleware_cpu,
            },
            outputs: self.outputs(),
            inputs: InputRequest {
                throttles: self.input.throttles(),
                cycle_ns: self.input.cycle,
            },
            background: self.background.clone(),
            priority: self.placement.priority.unwrap_or(behind),
            beside,
        })
    }
    /// When outputs leave, and what becomes of late ones.
    fn outputs(&self) -> OutputRequest {
        OutputRequest {
            hold: match self.strategy.design {
                Design::Sync => Hold::Republish,
                Design::Async => Hold::PublisherThread,
            },
            miss: self.timing.miss,
            epsilon_ns: self.timing.epsilon,
            slot_ns: self.timing.slot,
            liveliness_ns: self.timing.liveliness,
            room_ns: self.timing.room,
            overshoot: match self.timing.overshoot {
                Late::Carry => Overshoot::Carry,
                Late::Drop => Overshoot::Drop,
                Late::Stop => Overshoot::Stop,
            },
        }
    }
}
