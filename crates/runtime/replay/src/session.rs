//! Runs a replay from its start to its figures: starts the loader and player threads and collects
//! their results.

use crate::buffer::{Buffer, BufferError, Gather};
use crate::bus::{BusFigures, Meter};
use crate::control::Control;
use crate::curves::{LoaderMonitor, RateLatency};
use crate::item::{Source, Stream};
use crate::ledger::{Figures, Ledger, Supply};
use crate::loader::{LoadError, Loaded, Loader};
use crate::memory;
use crate::pace::{no_slack, sleep_until};
use crate::player::{Ended, Pace, Player, Rest, Stage, Ticker, Timeline};
use crate::route::Outputs;
use crate::sink::RequestFigures;
use crate::sizing::Sizing;
use onbeat_flow::thread::{self, Scheduling, ThreadOptions};
use onbeat_time::clock::{monotonic_ns, process_cpu_ns, thread_cpu_ns};
use serde::Serialize;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The name of the player's thread.
pub const PLAYER: &str = "onbeat-play";
const LOADER: &str = "onbeat-load";
const STACK_BYTES: usize = 1 << 20;
const PREFAULT_BYTES: usize = 256 << 10;
const SETTLE_NS: u64 = 5_000_000_000;
/// The time that consumers get to receive all items if the user ended the replay, in ns.
const SETTLE_STOPPED_NS: u64 = 1_000_000_000;

/// The settings of a replay: buffer, pace, scheduling and clock.
#[allow(missing_docs)]
#[derive(Debug, Clone)]
pub struct Settings {
    pub buffer_bytes: usize,
    /// The part of the buffer that is for the largest item, in bytes. `None` means a quarter of the
    /// buffer.
    pub largest_bytes: Option<usize>,
    /// The loader's service curve, and the delay in ns against this curve from which on the replay
    /// warns. `None` if the curve is unknown.
    pub watched: Option<(RateLatency, u64)>,
    pub pace: Pace,
    /// The player's priority under SCHED_FIFO, 1 to 99. `None` means the normal time-sharing
    /// policy.
    pub priority: Option<u8>,
    /// The CPU on which the player runs. `None` leaves the choice to the kernel.
    pub cpu: Option<usize>,
    /// The length of the player's busy-wait before each item is due, in ns. The player sleeps only
    /// until the busy-wait begins, because a sleep may end late.
    pub spin_ns: u64,
    /// The period of `/clock`, in ns. `None` means that no clock is published.
    pub clock_ns: Option<u64>,
    /// The time in ns that the player waits between the full buffer and the first item.
    pub delay_ns: u64,
    /// True if the source can continue at another recorded time ([`Source::seek`]). Only then can
    /// the user seek.
    pub is_seekable: bool,
}

impl Settings {
    /// Returns the part of the buffer that is for the largest item, in bytes.
    pub fn room(&self) -> usize {
        self.largest_bytes.unwrap_or(self.buffer_bytes / 4)
    }
}

/// The reason why a replay cannot start or finish.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error("cannot start a thread: {0}. End other programs, or raise ulimit -u")]
    Spawn(io::Error),
    #[error(transparent)]
    Thread(#[from] thread::ThreadError),
    #[error("{0} does not report when items are consumed. Leave --as-fast-as-consumed out, or choose another sink")]
    NoCredit(String),
    #[error("a thread of the replay panicked. Report this as a bug")]
    Panicked,
}

/// The result of a replay: figures, counts of items, resources and damage.
#[allow(missing_docs)]
#[derive(Debug, Serialize)]
pub struct Played {
    #[serde(flatten)]
    pub figures: Figures,
    pub items: Items,
    /// The load of each CAN bus whose bitrate is known.
    pub buses: Vec<BusFigures>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestFigures>,
    /// The size of the buffer, and the reasons for it. `None` if the recording was not measured
    /// before the replay.
    pub sizing: Option<Sizing>,
    pub supply: Supply,
    pub machine: Machine,
    pub damage: Vec<String>,
    /// The reason why the replay failed before the last item. `None` if it did not fail.
    pub failed: Option<String>,
    /// True if the user ended the replay before the last item.
    pub stopped: bool,
}

/// The number of items for each outcome. Every item that was read has exactly one outcome.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Items {
    pub read: u64,
    pub played: u64,
    pub unsuitable: u64,
    pub skipped: u64,
    pub not_played: u64,
    /// The number of items that were read and did not reach the player, although the replay went to
    /// its end. Above 0 only if onbeat has a defect.
    pub lost: u64,
    /// The number of items that were not in the buffer when they were due. These items left late.
    pub starved: u64,
    /// The number of times that the player offered an item again to a busy sink.
    pub retries: u64,
}

/// The machine's resources that the replay used.
#[allow(missing_docs)]
#[derive(Debug, Clone, Default, Serialize)]
pub struct Machine {
    /// A text with the scheduling of the player, and with the reason if it differs from the
    /// settings.
    pub scheduling: String,
    /// A text that says whether the replay's memory is locked, with the reason if it is not.
    pub memory: String,
    /// The time from the first item to the last, in ns.
    pub wall_ns: u64,
    pub player_cpu_ns: u64,
    /// The CPU time of the process from the first item to the last, in ns.
    pub process_cpu_ns: u64,
    pub peak_memory_bytes: u64,
    pub buffer_bytes: usize,
    /// The number of times that the loader waited because the buffer was full.
    pub loader_stalls: u64,
}

struct PlayerDone {
    rest: Rest,
    result: Result<(), Ended>,
    machine: Machine,
    stalls: u64,
}

/// A running replay, with its loader and player threads.
pub struct Session {
    control: Arc<Control>,
    loader: JoinHandle<Loaded>,
    player: JoinHandle<PlayerDone>,
}

impl Session {
    /// Starts a replay: loads the recording, and plays it once the buffer is full or the source has
    /// ended.
    ///
    /// # Errors
    /// Fails if memory or a thread is not available, or if the consumer cannot pace the replay.
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
        // A new channel has places for both ends.
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
        let is_seekable = settings.is_seekable;
        if is_seekable {
            control.allow_seeking();
        }
        let loader = spawn(LOADER).spawn(move || {
            let loader = Loader {
                producer,
                progress,
                largest,
                control: &shared,
                is_seekable,
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

    /// Returns whether all items have left, or the replay has ended for another reason.
    pub fn is_over(&self) -> bool {
        self.player.is_finished()
    }

    /// Waits until the replay has ended and the consumers have received all items.
    ///
    /// # Errors
    /// Fails if a thread panicked.
    pub fn finish(self) -> Result<Played, ReplayError> {
        let done = self.player.join();
        // Without a player, a loader that waits for room would wait forever.
        self.control.stop();
        let loaded = self.loader.join().map_err(|_| ReplayError::Panicked)?;
        let done = done.map_err(|_| ReplayError::Panicked)?;
        Ok(conclude(done, loaded, &self.control))
    }
}

fn prepare(settings: &Settings, unlocked: Option<io::Error>) -> Machine {
    let mut options = ThreadOptions::new(PLAYER);
    options.stack_bytes = STACK_BYTES;
    options.prefault_bytes = PREFAULT_BYTES;
    options.cpus = settings.cpu.into_iter().collect();
    no_slack();
    // This comes before the stack is touched. Touching it then also locks it.
    let unlocked = memory::lock_program().err().or(unlocked);
    if let Some(priority) = settings.priority {
        options.scheduling = Scheduling::Fifo { priority };
    }
    let refused = thread::apply(&options).err();
    Machine {
        scheduling: match (settings.priority, refused) {
            (_, Some(error)) => format!("time-sharing: {error}"),
            (Some(priority), None) => format!("SCHED_FIFO {priority}"),
            (None, None) => "time-sharing, because the options request no real-time priority (--priority 0)".into(),
        },
        memory: match unlocked {
            None => "locked".into(),
            Some(error) => format!("not all memory is locked: {error}. Run as root, with CAP_IPC_LOCK or with a larger RLIMIT_MEMLOCK (ulimit -l)"),
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
    let buses = sinks.iter().map(|sink| {
        let (interface, speed) = sink.bus()?;
        Some(Meter::new(interface, speed))
    });
    Stage {
        buses: buses.collect(),
        ledger,
        sinks,
        routes,
        pace: settings.pace,
        spin_ns: settings.spin_ns,
        delay_ns: match settings.pace {
            Pace::Recorded(_) => settings.delay_ns,
            Pace::Consumed => 0,
        },
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

fn conclude(done: PlayerDone, loaded: Loaded, control: &Control) -> Played {
    let PlayerDone {
        mut rest,
        result,
        mut machine,
        stalls,
    } = done;
    let grace_ns = match result {
        Err(Ended::Stopped) => SETTLE_STOPPED_NS,
        _ => SETTLE_NS,
    };
    let until = monotonic_ns() + grace_ns;
    rest.sinks.iter_mut().for_each(|sink| sink.settle(until));
    let sinks = rest.sinks.iter_mut();
    let requests = sinks.flat_map(|sink| sink.requests()).collect();
    machine.peak_memory_bytes = peak_memory();
    machine.loader_stalls = stalls;
    let failed = match &result {
        Err(Ended::Failed(sink, error)) => Some(format!("{}: {error}", rest.sinks[*sink].name())),
        _ => loaded.error.as_ref().map(LoadError::to_string),
    };
    let figures = rest.ledger.close(&loaded.read);
    let buses = rest.buses.iter().flatten().map(Meter::figures).collect();
    let sum = |of: fn(&crate::ledger::StreamFigures) -> u64| figures.streams.iter().map(of).sum();
    let mut items = Items {
        read: loaded.read.iter().sum(),
        played: sum(|s| s.played),
        unsuitable: sum(|s| s.unsuitable),
        skipped: sum(|s| s.skipped),
        not_played: sum(|s| s.not_played),
        lost: 0,
        starved: control.playing.starved.load(Relaxed),
        retries: rest.timeline.retries,
    };
    if result.is_ok() {
        // All items that were read should have reached the player. The remainder is lost.
        items.lost = std::mem::take(&mut items.not_played);
    }
    Played {
        figures,
        items,
        buses,
        requests,
        sizing: None,
        supply: rest.timeline.supply,
        machine,
        damage: loaded.damage,
        failed,
        stopped: matches!(result, Err(Ended::Stopped)),
    }
}

fn peak_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests;
