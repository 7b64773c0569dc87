//! A replay from its start to its figures: the threads, what they were given, what they have seen.

use crate::buffer::{Buffer, BufferError, Gather};
use crate::control::Control;
use crate::curves::{LoaderMonitor, RateLatency};
use crate::item::{Source, Stream};
use crate::ledger::{Figures, Ledger, Supply};
use crate::loader::{LoadError, Loaded, Loader};
use crate::memory;
use crate::pace::{no_slack, sleep_until};
use crate::player::{Ended, Pace, Player, Rest, Stage, Ticker, Timeline};
use crate::route::Outputs;
use crate::sizing::Sizing;
use onbeat_flow::thread::{self, Scheduling, ThreadOptions};
use onbeat_time::clock::{monotonic_ns, process_cpu_ns, thread_cpu_ns};
use serde::Serialize;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Name of the player's thread.
pub const PLAYER: &str = "onbeat-play";
const LOADER: &str = "onbeat-load";
const STACK_BYTES: usize = 1 << 20;
const PREFAULT_BYTES: usize = 256 << 10;
/// How long consumers may take for the last items.
const SETTLE_NS: u64 = 5_000_000_000;

/// How a recording is played.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Memory of the buffer, in bytes.
    pub buffer_bytes: usize,
    /// Room for the largest item in it, in bytes. `None`: a quarter.
    pub largest_bytes: Option<usize>,
    /// The loader's curve, and how much later than it the loader may be before that is told, in ns.
    pub watched: Option<(RateLatency, u64)>,
    /// When items leave.
    pub pace: Pace,
    /// Priority under SCHED_FIFO, 1 to 99. `None`: time-sharing.
    pub priority: Option<u8>,
    /// The player's CPU.
    pub cpu: Option<usize>,
    /// How long before an item's time the player stays awake, in ns.
    pub spin_ns: u64,
    /// Period of `/clock`, in ns.
    pub clock_ns: Option<u64>,
}

impl Settings {
    /// Room for the largest item, in bytes.
    pub fn room(&self) -> usize {
        self.largest_bytes.unwrap_or(self.buffer_bytes / 4)
    }
}

/// Why there is no replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The buffer.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A thread.
    #[error("cannot start a thread: {0}: end other programs, or raise ulimit -u")]
    Spawn(io::Error),
    /// The CPU.
    #[error(transparent)]
    Thread(#[from] thread::ThreadError),
    /// A sink that gives no credit.
    #[error("{0} does not say when items are consumed: leave --as-fast-as-consumed out, or name another sink")]
    NoCredit(String),
    /// A part of it ended as it must not.
    #[error("a thread of the replay panicked: report this as a bug")]
    Panicked,
}

/// What a replay has seen.
#[derive(Debug, Serialize)]
pub struct Played {
    /// Lateness and cycles.
    #[serde(flatten)]
    pub figures: Figures,
    /// What became of the items.
    pub items: Items,
    /// How the buffer was sized, if the recording was measured before.
    pub sizing: Option<Sizing>,
    /// Whether the loader kept up.
    pub supply: Supply,
    /// The machine's part.
    pub machine: Machine,
    /// What was damaged in the recording, one sentence each.
    pub damage: Vec<String>,
    /// Why it ended before the last item, if it did.
    pub failed: Option<String>,
    /// It was asked to end before the last item.
    pub stopped: bool,
}

/// What became of the items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Items {
    /// Read from the source.
    pub read: u64,
    /// Left through a sink.
    pub played: u64,
    /// A sink cannot play them.
    pub unsuitable: u64,
    /// Read, but the replay was ended.
    pub not_played: u64,
    /// Neither of these. Never happens.
    pub lost: u64,
    /// Were not in the buffer when they were due; they left later.
    pub starved: u64,
    /// How often a sink was busy and was tried again.
    pub retries: u64,
}

/// What the replay got from the machine, and took.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Machine {
    /// How the player was scheduled, with the reason if it was not as asked.
    pub scheduling: String,
    /// Whether memory was locked, with the reason if it was not.
    pub memory: String,
    /// From the first item to the last, in ns.
    pub wall_ns: u64,
    /// CPU time of the player in ns.
    pub player_cpu_ns: u64,
    /// CPU time of the process in ns, from the first item to the last.
    pub process_cpu_ns: u64,
    /// Largest resident memory of the process so far, in bytes.
    pub peak_memory_bytes: u64,
    /// Memory of the buffer, in bytes.
    pub buffer_bytes: usize,
    /// How often the loader waited for the player.
    pub loader_stalls: u64,
}

/// What the player's thread returns.
struct PlayerDone {
    rest: Rest,
    result: Result<(), Ended>,
    machine: Machine,
    stalls: u64,
}

/// A replay that runs.
pub struct Session {
    control: Arc<Control>,
    loader: JoinHandle<Loaded>,
    player: JoinHandle<PlayerDone>,
}

impl Session {
    /// Starts loading; playing begins once the buffer is full or the source has ended.
    ///
    /// # Errors
    /// There is no memory or no thread, or the consumer cannot pace the replay.
    pub fn start(
        mut source: Box<dyn Source>,
        outputs: Outputs,
        settings: &Settings,
        control: Arc<Control>,
    ) -> Result<Session, ReplayError> {
        if settings.pace == Pace::Consumed {
            if let Some(sink) = outputs.sinks.iter().find(|s| !s.gives_credit()) {
                return Err(ReplayError::NoCredit(sink.name()));
            }
        }
        let buffer = Buffer::new(settings.buffer_bytes, settings.largest_bytes)?;
        // Fresh channels have places for both.
        let attach = |_| ReplayError::Panicked;
        let producer = buffer.channel.producer().map_err(attach)?;
        let consumer = buffer.channel.consumer().map_err(attach)?;
        let progress = buffer.channel.progress();
        let largest = buffer.gather.len();
        debug_assert_eq!(largest, settings.room());
        let names: Vec<Stream> = source.streams().to_vec();
        let spawn = |name: &str| {
            std::thread::Builder::new()
                .name(name.into())
                .stack_size(STACK_BYTES)
        };
        let shared = control.clone();
        let loader = spawn(LOADER).spawn(move || {
            let loader = Loader {
                producer,
                progress,
                largest,
                control: &shared,
            };
            loader.run(&mut *source)
        });
        let loader = loader.map_err(ReplayError::Spawn)?;
        let (shared, settings) = (control.clone(), settings.clone());
        let player = spawn(PLAYER).spawn(move || {
            let channel = buffer.channel.clone();
            let mut machine = prepare(&settings, buffer.unlocked);
            let stage = stage(&names, outputs, &settings, buffer.blocks, &shared);
            while !shared.loading.ready.load(Relaxed) && !shared.is_stopping() {
                sleep_until(monotonic_ns() + 1_000_000, 0);
            }
            let before = Usage::now();
            let player = Player {
                consumer,
                gather: Gather::new(buffer.gather),
                stage,
            };
            let (rest, result) = player.run();
            before.since(&mut machine);
            let stalls = channel.stats().stalls;
            PlayerDone {
                rest,
                result,
                machine,
                stalls,
            }
        });
        let player = player.inspect_err(|_| control.stop());
        Ok(Session {
            control,
            loader,
            player: player.map_err(ReplayError::Spawn)?,
        })
    }

    /// Whether all has left, or the replay has ended otherwise.
    pub fn is_over(&self) -> bool {
        self.player.is_finished()
    }

    /// Waits for the end, and for consumers to have everything.
    ///
    /// # Errors
    /// A thread panicked.
    pub fn finish(self) -> Result<Played, ReplayError> {
        let done = self.player.join();
        // A loader that waits for room would wait for ever.
        self.control.stop();
        let loaded = self.loader.join().map_err(|_| ReplayError::Panicked)?;
        let done = done.map_err(|_| ReplayError::Panicked)?;
        Ok(conclude(done, loaded, &self.control))
    }
}

/// Gives this thread what the player needs, and says what it got.
fn prepare(settings: &Settings, unlocked: Option<io::Error>) -> Machine {
    let mut options = ThreadOptions::new(PLAYER);
    options.stack_bytes = STACK_BYTES;
    options.prefault_bytes = PREFAULT_BYTES;
    options.cpus = settings.cpu.into_iter().collect();
    no_slack();
    // Before the stack is touched, which locks it.
    let unlocked = memory::lock_program().err().or(unlocked);
    if let Some(priority) = settings.priority {
        options.scheduling = Scheduling::Fifo { priority };
    }
    let refused = thread::apply(&options).err();
    Machine {
        scheduling: match (settings.priority, refused) {
            (_, Some(error)) => format!("time-sharing: {error}"),
            (Some(priority), None) => format!("SCHED_FIFO {priority}"),
            (None, None) => "time-sharing, as asked".into(),
        },
        memory: match unlocked {
            None => "locked".into(),
            Some(error) => format!("not all locked: {error}: needs root, CAP_IPC_LOCK or a larger RLIMIT_MEMLOCK (ulimit -l)"),
        },
        buffer_bytes: settings.buffer_bytes,
        ..Machine::default()
    }
}

fn stage<'c>(
    streams: &[Stream],
    outputs: Outputs,
    settings: &Settings,
    blocks: u64,
    control: &'c Control,
) -> Stage<'c> {
    let Outputs {
        sinks,
        routes,
        clock,
    } = outputs;
    let named = streams.iter().zip(&routes);
    let ledger = Ledger::new(named.map(|(s, &sink)| (s.name.clone(), sinks[sink].name())));
    let ticker = settings.clock_ns.zip(clock);
    Stage {
        ledger,
        sinks,
        routes,
        pace: settings.pace,
        spin_ns: settings.spin_ns,
        ticker: ticker.map(|(period_ns, (sink, stream))| Ticker {
            sink,
            stream,
            period_ns,
            next: None,
        }),
        control,
        blocks,
        timeline: Timeline::default(),
        monitor: settings
            .watched
            .map(|(curve, reserve_ns)| LoaderMonitor::new(curve, reserve_ns)),
    }
}

/// Clocks at the beginning.
struct Usage {
    wall_ns: u64,
    player_ns: u64,
    process_ns: u64,
}

impl Usage {
    fn now() -> Usage {
        Usage {
            wall_ns: monotonic_ns(),
            player_ns: thread_cpu_ns(),
            process_ns: process_cpu_ns(std::process::id()).unwrap_or(0),
        }
    }

    fn since(&self, machine: &mut Machine) {
        let now = Usage::now();
        machine.wall_ns = now.wall_ns - self.wall_ns;
        machine.player_cpu_ns = now.player_ns.saturating_sub(self.player_ns);
        machine.process_cpu_ns = now.process_ns.saturating_sub(self.process_ns);
    }
}

/// Waits for consumers, and puts the figures together.
fn conclude(done: PlayerDone, loaded: Loaded, control: &Control) -> Played {
    let PlayerDone {
        mut rest,
        result,
        mut machine,
        stalls,
    } = done;
    let until = monotonic_ns() + SETTLE_NS;
    rest.sinks.iter_mut().for_each(|sink| sink.settle(until));
    machine.peak_memory_bytes = peak_memory();
    machine.loader_stalls = stalls;
    let failed = match &result {
        Err(Ended::Failed(sink, error)) => Some(format!("{}: {error}", rest.sinks[*sink].name())),
        _ => loaded.error.as_ref().map(LoadError::to_string),
    };
    let figures = rest.ledger.close(&loaded.read);
    let sum = |of: fn(&crate::ledger::StreamFigures) -> u64| figures.streams.iter().map(of).sum();
    let mut items = Items {
        read: loaded.read.iter().sum(),
        played: sum(|s| s.played),
        unsuitable: sum(|s| s.unsuitable),
        not_played: sum(|s| s.not_played),
        lost: 0,
        starved: control.playing.starved.load(Relaxed),
        retries: rest.timeline.retries,
    };
    if result.is_ok() {
        // All that was read has reached the player, or something is wrong.
        items.lost = std::mem::take(&mut items.not_played);
    }
    Played {
        figures,
        items,
        sizing: None,
        supply: rest.timeline.supply,
        machine,
        damage: loaded.damage,
        failed,
        stopped: matches!(result, Err(Ended::Stopped)),
    }
}

/// `VmHWM` of this process, in bytes.
fn peak_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests;
