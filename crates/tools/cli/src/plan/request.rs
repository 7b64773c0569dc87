//! The options that describe the wanted plan, and the planner's request made from them.

use onbeat_plan::request::{
    CpuRequest, Ends, InputRequest, OutputRequest, ThrottleRequest, DEFAULT_PRIORITY,
};
use onbeat_plan::schema::{Hold, Overshoot};
use onbeat_plan::{priority_beside, Request, Strategy};
use onbeat_terminal::CliError;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct RequestArgs {
    /// Plan this chain: its id, or the beginning of the id. Repeat the option for more sinks of a
    /// graph [default: the only chain]
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
    /// Let this callback or node use the CPU time that the chain does not need; repeatable
    #[arg(long, value_name = "NAME")]
    background: Vec<String>,
}

#[derive(clap::Args)]
pub struct PartArgs {
    /// Plan a part of the chain that begins at this callback, at the first callback of this node,
    /// or where this topic is taken
    #[arg(long, value_name = "NAME", conflicts_with = "chain")]
    from: Option<String>,
    /// Plan a part of the chain that ends at the output of this callback, at the output of the last
    /// callback of this node, or at this topic
    #[arg(long, value_name = "NAME", conflicts_with = "chain")]
    to: Option<String>,
    /// Choose the branch that passes this callback, node or topic [default: all branches between
    /// the ends of the part]; repeatable
    #[arg(long, value_name = "NAME", conflicts_with = "chain")]
    through: Vec<String>,
}

#[derive(clap::Args)]
struct StrategyArgs {
    /// Strategy by which the servers and slots of the chain are chosen
    #[arg(long, value_enum, default_value_t = StrategyName::Bands)]
    strategy: StrategyName,
    /// Number of latency bands, or `auto` to add bands as long as each one reduces the average
    /// latency noticeably. With one band, all executions take equally long
    #[arg(long, value_name = "K", value_parser = bands)]
    bands: Option<Bands>,
    /// Use the smallest number of bands with which shaping adds at most this share to the average
    /// latency, e.g. 6%. The limit also holds for later starts of the application. This option
    /// needs a model of several starts
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with_all = ["bands", "random"])]
    average: Option<f64>,
    /// Place the slots at random, not where the average latency is smallest
    #[arg(long)]
    random: bool,
    /// Number from which --random makes its random slots; the same number gives the same slots
    #[arg(long, value_name = "N", default_value_t = 1, requires = "random")]
    seed: u64,
    /// Choose where outputs are held back: in a shaper that republishes them, or in the
    /// middleware's publisher thread
    #[arg(long, value_enum, default_value_t = Design::Sync)]
    design: Design,
}

#[derive(clap::Args)]
struct PlacementArgs {
    /// CPU for all callbacks, or CALLBACK-OR-NODE=CPU for some; repeatable [default: the CPU with
    /// the highest number in the model]
    #[arg(long, value_name = "[NAME=]N", value_parser = cpu)]
    cpu: Vec<Cpu>,
    /// CPU of the middleware's threads [default: a CPU in the model that has no server]
    #[arg(long, value_name = "N")]
    middleware_cpu: Option<u16>,
    /// Real-time priority of the chain, 1 to 89 [default: 80, or below the priorities of the plans
    /// of --beside]
    #[arg(long, value_name = "P")]
    priority: Option<u8>,
    /// Leave the slots of this other plan free, so that both plans can be enforced at the same
    /// time. Their chains have different first callbacks and cycles; repeatable
    #[arg(long, value_name = "PLAN")]
    beside: Vec<PathBuf>,
}

#[derive(clap::Args)]
struct TimingArgs {
    /// Let at most this share of later executions miss the last slot, e.g. 1e-3. The slot is placed
    /// at an upper limit of the distribution's tail, which needs a model of several starts. With 0,
    /// the plan covers every measured execution [default: leave out the few executions that do not
    /// fit or are far slower than the others]
    #[arg(long, value_name = "SHARE", value_parser = miss)]
    miss: Option<f64>,
    /// Buffer after the measured worst case. The buffer promises nothing about later executions;
    /// use --miss for that
    #[arg(long, value_name = "MS", value_parser = time, hide = true, conflicts_with = "miss")]
    epsilon: Option<u64>,
    /// Length of each slot in which an output leaves, in ms
    #[arg(long, value_name = "MS", value_parser = time)]
    slot: Option<u64>,
    /// Maximum distance between neighbouring bands: the time for which the output's data stay valid
    #[arg(long, value_name = "MS", value_parser = time)]
    liveliness: Option<u64>,
    /// Make the chain's slot this much longer than its outputs need. `onbeat shape --adapt` may
    /// raise the last band within this room
    #[arg(long, value_name = "MS", value_parser = time, default_value = "0")]
    room: u64,
    /// Choose what happens to an output that misses its last slot
    #[arg(long, value_enum, default_value_t = Late::Carry)]
    overshoot: Late,
}

#[derive(clap::Args)]
struct InputArgs {
    /// Let one message of this input through per cycle, for chains that begin with an event. NODE
    /// is the publisher of the input
    #[arg(long, value_name = "TOPIC[@NODE]")]
    throttle: Vec<String>,
    /// Length of the cycle, with --throttle [default: the input's typical period]
    #[arg(long, value_name = "MS", value_parser = time)]
    cycle: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StrategyName {
    /// High priority without slots; measure this baseline first
    Fifo,
    /// One slot per callback, one after the other
    ServerPerCallback,
    /// One slot for the whole chain
    ServerPerChain,
    /// One slot for the chain, and slots in which its output leaves
    Bands,
    /// The output of each callback leaves at the start of the next cycle
    LetPerCallback,
    /// The output of the chain leaves at the start of the next cycle
    LetPerChain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Design {
    /// A shaper republishes the output (any middleware)
    Sync,
    /// The middleware's publisher thread sends the output later (asynchronous publishing)
    Async,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Late {
    /// A late output leaves in the next cycle
    Carry,
    /// A late output is discarded
    Drop,
    /// A late output ends shaping
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bands {
    /// The planner adds bands as long as each added band makes the average latency noticeably
    /// smaller.
    Auto,
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

/// A CPU for the callback or node with this name. Without a name, the CPU is for all callbacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu(Option<String>, u16);

fn cpu(text: &str) -> Result<Cpu, String> {
    let (name, number) = match text.rsplit_once('=') {
        Some((name, number)) => (Some(name.to_string()), number),
        None => (None, text),
    };
    let number = number
        .parse()
        .map_err(|_| "write the number of a CPU, or NAME=CPU")?;
    Ok(Cpu(name, number))
}

fn time(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(ms) if (0.0..=3_600_000.0).contains(&ms) => Ok((ms * 1e6).round() as u64),
        _ => Err("write milliseconds, e.g. 0.5, up to an hour".into()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let (number, of) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number / of <= 10.0 => Ok(number / of),
        _ => Err("write a share above 0, e.g. 6% or 1e-3".into()),
    }
}

fn miss(text: &str) -> Result<f64, String> {
    match text.trim() {
        "0" | "0%" => Ok(0.0),
        text => share(text),
    }
}

impl StrategyArgs {
    fn strategy(&self) -> Result<Strategy, CliError> {
        let usage = |text: &str| Err(CliError::Usage(text.into()));
        if let Some(above) = self.average {
            return match self.strategy {
                StrategyName::Bands => Ok(Strategy::Average(above)),
                _ => usage("--average works only with --strategy bands"),
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
                return usage("--random needs a number of bands: --bands K")
            }
            (_, _, true) => return usage("--random works only with --strategy bands"),
            _ if self.bands.is_some() => return usage("--bands works only with --strategy bands"),
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
    pub fn outdated(&self) -> Option<&'static str> {
        self.timing.epsilon.map(|_| {
            "--epsilon promises nothing and will be removed. Use --miss, which places the last slot by the tail of the latency distribution"
        })
    }

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
    fn outputs(&self) -> OutputRequest {
        OutputRequest {
            hold: match self.strategy.design {
                Design::Sync => Hold::Republish,
                Design::Async => Hold::PublisherThread,
            },
            miss: self.timing.miss.filter(|&miss| miss > 0.0),
            may_leave_out: self.timing.miss.is_none(),
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
