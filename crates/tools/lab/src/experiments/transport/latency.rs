//! Latency from publishing to processing against the size of the message: between processes, between
//! two threads, and within one.

use super::peers::{self, Arm, Peers, Program};
use super::runner::Runner;
use super::samples::Sample;
use super::session::{Place, Run};
use super::{size_id, size_name};
use crate::frame::report::{number, Figure, Report, Table, Target};
use crate::frame::{Context, LabError};
use crate::measure::arms::{schedule, ArmSamples};
use crate::measure::peer::Usage;
use crate::measure::stats::{bootstrap, Sorted};
use crate::plot::{curves, percentiles, Curve};
use std::time::Duration;

/// From 64 B to 4 MiB.
const SIZES: [usize; 6] = [64, 1024, 16_384, 262_144, 1 << 20, 4 << 20];

/// Sizes whose percentiles are printed; all are in the raw samples.
const DETAILED: [usize; 4] = [64, 16_384, 1 << 20, 4 << 20];

/// Messages a second where nothing is copied.
const RATE_HZ: f64 = 500.0;

/// Where both sides are, and who is compared there.
struct Setting {
    id: &'static str,
    title: &'static str,
    place: Place,
    arms: &'static [Arm],
}

const SETTINGS: [Setting; 3] = [
    Setting {
        id: "processes",
        title: "between two processes (Figure 1)",
        place: Place::Processes(1),
        arms: &[
            peers::FUTEX,
            peers::ONBEAT,
            peers::ONBEAT_BUSY,
            peers::ICEORYX2,
            peers::ICEORYX2_BUSY,
            peers::CYCLONE_ICEORYX,
            peers::CYCLONE,
            peers::FAST,
            peers::ROS2,
        ],
    },
    Setting {
        id: "threads",
        title: "between two threads of a process",
        place: Place::Pair,
        arms: &[
            peers::FUTEX,
            peers::ONBEAT,
            peers::ONBEAT_BUSY,
            peers::ICEORYX2,
            peers::ICEORYX2_BUSY,
        ],
    },
    Setting {
        id: "thread",
        title: "within a thread (Figure 2)",
        place: Place::Thread,
        arms: &[
            peers::ONBEAT_CHAIN,
            peers::ONBEAT,
            peers::ICEORYX2_BUSY,
            peers::CYCLONE_ICEORYX,
            peers::CYCLONE,
            peers::FAST,
            peers::ROS2,
        ],
    },
];

/// How often an arm can send so large a message; those that copy cannot keep up otherwise.
pub fn rate_hz(arm: &Arm, bytes: usize) -> f64 {
    match bytes {
        _ if !arm.copies => RATE_HZ,
        b if b <= 65_536 => RATE_HZ,
        b if b <= 262_144 => 200.0,
        b if b <= 1 << 20 => 100.0,
        _ => 25.0,
    }
}

/// From publishing to being readable, us.
pub fn latency_us(sample: &Sample) -> f64 {
    (sample.received_ns - sample.sent_ns) as f64 / 1e3
}

/// What an arm did at one size.
struct Cell {
    usage: Usage,
    lost: u64,
    sent: u64,
    /// From the time that a message was due: what holds the publisher up counts too.
    from_due: Vec<f64>,
}

/// All samples of a setting.
struct Measured<'s> {
    setting: &'s Setting,
    arms: Vec<Arm>,
    /// By size; arms in their order.
    samples: Vec<ArmSamples>,
    cells: Vec<Vec<Cell>>,
}

/// The measurement.
pub fn measure(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<(), LabError> {
    let mut raw = context.raw(
        "latency.csv",
        "where,bytes,arm,round,latency_us,from_due_us",
    )?;
    for setting in &SETTINGS {
        let measured = one_setting(context, report, peers, setting, &mut raw)?;
        summarise(context, report, &measured)?;
    }
    raw.finish()?;
    report.note(
        "latency: from the call that publishes, loan included, to the time at which the receiver has read the first and the last byte; each side on a CPU of its own, publishers paced on a fixed grid",
    );
    report.note(
        "busy receivers are real-time threads: where normal ones starve, the kernel takes 50 ms of each second away from them, which is what the maxima of some show",
    );
    report.note(
        "arms that copy send large messages less often (200 Hz at 256 KiB, 100 Hz at 1 MiB, 25 Hz at 4 MiB), all others at 500 Hz",
    );
    Ok(())
}

fn one_setting<'s>(
    context: &mut Context,
    report: &mut Report,
    peers: &Peers,
    setting: &'s Setting,
    raw: &mut crate::frame::Raw,
) -> Result<Measured<'s>, LabError> {
    let rounds: usize = match setting.place {
        Place::Processes(_) => context.pick(8, 2),
        Place::Pair => context.pick(6, 1),
        Place::Thread => context.pick(3, 1),
    };
    let seconds = context.pick(0.35, 0.3);
    let arms = peers.of(setting.arms);
    // What is held against the floor within some percent needs more of both than the others do.
    let close: Vec<usize> = (0..arms.len())
        .filter(|a| [peers::FUTEX, peers::ONBEAT].contains(&arms[*a]))
        .collect();
    let more = match setting.place {
        Place::Thread => 0,
        _ => context.pick(16, 0),
    };
    let mut order = schedule(
        arms.len() * SIZES.len(),
        rounds,
        &mut context.rng(setting.id),
    );
    let mut rng = context.rng("close");
    let beyond = schedule(close.len() * SIZES.len(), more, &mut rng);
    order.extend(beyond.into_iter().map(|(round, i)| {
        let (arm, size) = (close[i / SIZES.len()], i % SIZES.len());
        (rounds + round, arm * SIZES.len() + size)
    }));
    context.step(
        &format!("latency {}, {rounds} rounds", setting.title),
        Duration::from_secs(120 + order.len() as u64 * 6),
    );
    let mut runners: Vec<Runner> = arms
        .iter()
        .map(|arm| Runner::new(peers, *arm, setting.place, setting.title))
        .collect();
    let names: Vec<&str> = arms.iter().map(|a| a.name).collect();
    let mut samples = vec![ArmSamples::new(&names, rounds + more); SIZES.len()];
    let mut cells: Vec<Vec<Cell>> = SIZES
        .iter()
        .map(|_| {
            let cell = || Cell {
                usage: Usage::default(),
                lost: 0,
                sent: 0,
                from_due: vec![],
            };
            arms.iter().map(|_| cell()).collect()
        })
        .collect();
    for (round, index) in order {
        let (a, s) = (index / SIZES.len(), index % SIZES.len());
        let (arm, bytes) = (&arms[a], SIZES[s]);
        let rate_hz = rate_hz(arm, bytes);
        let seconds = if round < rounds { seconds } else { 0.2 };
        let count = ((rate_hz * seconds) as u32).max(20);
        let run = Run {
            bytes,
            rate_hz,
            count,
        };
        let Some(results) = runners[a].run(context, report, run) else {
            continue;
        };
        for sample in &results.samples {
            raw.line(format_args!(
                "{},{bytes},{},{round},{},{}",
                setting.id,
                arm.name.replace(',', ""),
                latency_us(sample),
                (sample.received_ns - sample.intended_ns) as f64 / 1e3,
            ))?;
        }
        samples[s].extend(round, a, results.samples.iter().map(latency_us));
        let cell = &mut cells[s][a];
        cell.usage += results.usage;
        cell.lost += results.lost;
        cell.sent += u64::from(count);
        let late = |m: &Sample| (m.received_ns - m.intended_ns) as f64 / 1e3;
        cell.from_due.extend(results.samples.iter().map(late));
    }
    Ok(Measured {
        setting,
        arms,
        samples,
        cells,
    })
}

impl Measured<'_> {
    fn arm(&self, wanted: &Arm) -> Option<usize> {
        self.arms.iter().position(|a| a == wanted)
    }

    /// Two arms with the samples of all sizes: each round at each size is a block.
    fn over_sizes(&self, a: usize, b: usize) -> ArmSamples {
        let mut all = ArmSamples::new(
            &[self.arms[a].name, self.arms[b].name],
            self.samples.iter().map(ArmSamples::rounds).sum(),
        );
        let mut block = 0;
        for samples in &self.samples {
            for round in 0..samples.rounds() {
                all.extend(block, 0, samples.of(round, a).iter().copied());
                all.extend(block, 1, samples.of(round, b).iter().copied());
                block += 1;
            }
        }
        all
    }
}

fn summarise(
    context: &mut Context,
    report: &mut Report,
    measured: &Measured<'_>,
) -> Result<(), LabError> {
    let setting = measured.setting;
    tables(report, measured);
    let medians: Vec<Curve> = measured
        .arms
        .iter()
        .enumerate()
        .map(|(a, arm)| Curve {
            name: arm.name.to_string(),
            colour: arm.colour,
            dashed: arm.spins,
            points: SIZES
                .iter()
                .enumerate()
                .filter(|(s, _)| !measured.samples[*s].pooled(a).values().is_empty())
                .map(|(s, bytes)| (*bytes as f64, measured.samples[s].pooled(a).quantile(0.5)))
                .collect(),
        })
        .collect();
    let title = format!("Median latency {}", setting.title);
    let ticks = SIZES.map(|bytes| (bytes as f64, size_name(bytes)));
    context.plot(
        &format!("latency-{}.svg", setting.id),
        &curves(&title, ("size of the message", "us"), &ticks, &medians)?,
    )?;
    for s in [0, SIZES.len() - 2] {
        let series: Vec<(&str, Sorted)> = measured
            .arms
            .iter()
            .enumerate()
            .map(|(a, arm)| (arm.name, measured.samples[s].pooled(a)))
            .collect();
        let title = format!("Latency {}, {}", setting.title, size_name(SIZES[s]));
        context.plot(
            &format!("latency-{}-{}.svg", setting.id, size_id(SIZES[s])),
            &percentiles(&title, "us", &series)?,
        )?;
    }
    wake_ups(context, report, measured);
    busy(context, report, measured);
    Ok(())
}

fn tables(report: &mut Report, measured: &Measured<'_>) {
    let setting = measured.setting;
    let mut head: Vec<String> = vec!["arm".into()];
    head.extend(SIZES.map(size_name));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let title = format!("Median latency {}, us", setting.title);
    let mut medians = Table::new(title, &head);
    let mut details = Table::new(
        format!("Latency {}, us", setting.title),
        &[
            "arm", "size", "n", "p50", "p90", "p99", "p99.9", "max", "due p99", "lost",
        ],
    );
    let mut costs = Table::new(
        format!(
            "CPU time and context switches of a message {}, all processes",
            setting.title
        ),
        &[
            "arm",
            "us at 64 B",
            "switches",
            "us at 16 KiB",
            "switches",
            "us at 1 MiB",
            "switches",
        ],
    );
    for (a, arm) in measured.arms.iter().enumerate() {
        let mut row = vec![arm.name.to_string()];
        let mut cost = vec![arm.name.to_string()];
        for (s, bytes) in SIZES.into_iter().enumerate() {
            let cell = &measured.cells[s][a];
            let v = measured.samples[s].pooled(a).summary();
            if v.count == 0 {
                row.push("-".into());
                continue;
            }
            row.push(number(v.p50));
            if DETAILED.contains(&bytes) {
                details.row([
                    arm.name.into(),
                    size_name(bytes),
                    v.count.to_string(),
                    number(v.p50),
                    number(v.p90),
                    number(v.p99),
                    number(v.p99_9),
                    number(v.max),
                    number(Sorted::new(cell.from_due.iter().copied()).quantile(0.99)),
                    cell.lost.to_string(),
                ]);
            }
            if [64, 16_384, 1 << 20].contains(&bytes) {
                let (cpu_ns, switches) = cell.usage.each();
                cost.extend([number(cpu_ns / 1e3), format!("{switches:.2}")]);
            }
        }
        medians.row(row);
        costs.row(cost);
    }
    report.tables.extend([medians, details, costs]);
    // Channels with credits lose nothing; peers drop what a reader that is held up does not take.
    for ours in [true, false] {
        let of = |value: &dyn Fn(&Cell) -> u64| -> u64 {
            let cells = measured.cells.iter();
            cells
                .flat_map(|cells| cells.iter().zip(&measured.arms))
                .filter(|(_, arm)| (arm.program == Program::Onbeat) == ours)
                .map(|(cell, _)| value(cell))
                .sum()
        };
        let name = if ours { "onbeat" } else { "peers" };
        let figure = Figure::new(
            format!("lost.{}.{name}", setting.id),
            of(&|c| c.lost) as f64,
            "messages",
        )
        .samples(of(&|c| c.sent));
        report.figure(if ours {
            figure.target(Target::AtMost(0.0))
        } else {
            figure
        });
    }
}

/// A sleeping consumer against the bare system call, and how flat it is.
fn wake_ups(context: &Context, report: &mut Report, measured: &Measured<'_>) {
    let (Some(futex), Some(ours)) = (measured.arm(&peers::FUTEX), measured.arm(&peers::ONBEAT))
    else {
        return;
    };
    let id = measured.setting.id;
    let both = measured.over_sizes(futex, ours);
    let n = both.pooled(1).values().len() as u64;
    if n == 0 {
        return;
    }
    let mut rng = context.rng("wake-up");
    for (name, q) in [("p50", 0.5), ("p99", 0.99)] {
        let ratio = both.quantile_ratio(0, 1, q, &mut rng);
        report.figure(
            Figure::new(format!("wakeup.{id}.{name}_ratio"), ratio.value, "1")
                .target(Target::AtMost(1.2))
                .interval(ratio.low, ratio.high)
                .samples(n),
        );
    }
    // Of the futex too, which knows no payload: what it shows is the machine.
    let mut spread = |arm: usize| {
        let rounds = measured.samples[0].rounds();
        bootstrap(rounds, 200, &mut rng, |pick| {
            let medians = measured.samples.iter().map(|samples| {
                Sorted::new(
                    pick.iter()
                        .flat_map(|round| samples.of(*round, arm).iter().copied()),
                )
                .quantile(0.5)
            });
            let (low, high) = medians.fold((f64::MAX, 0.0), |(l, h): (f64, f64), v| {
                (l.min(v), h.max(v))
            });
            high / low
        })
    };
    let (floor, flat) = (spread(futex), spread(ours));
    report.figure(
        Figure::new(format!("flat.{id}.p50_spread"), flat.value, "1")
            .target(Target::AtMost(1.1))
            .interval(flat.low, flat.high)
            .baseline(floor.value, "futex, which has no payload"),
    );
}

/// Polling, against iceoryx2's.
fn busy(context: &Context, report: &mut Report, measured: &Measured<'_>) {
    let (Some(theirs), Some(ours)) = (
        measured.arm(&peers::ICEORYX2_BUSY),
        measured.arm(&peers::ONBEAT_BUSY),
    ) else {
        return;
    };
    let mut rng = context.rng("busy");
    for (s, bytes) in SIZES.into_iter().enumerate() {
        let samples = &measured.samples[s];
        let (v, w) = (samples.pooled(ours), samples.pooled(theirs));
        if v.values().is_empty() || w.values().is_empty() {
            continue;
        }
        let ratio = samples.quantile_ratio(theirs, ours, 0.5, &mut rng);
        let mut figure = Figure::new(
            format!("busy.{}.{}.p50_ratio", measured.setting.id, size_id(bytes)),
            ratio.value,
            "1",
        )
        .interval(ratio.low, ratio.high)
        .samples(v.values().len() as u64);
        // What was asked for is between processes.
        if matches!(measured.setting.place, Place::Processes(_)) {
            figure = figure.target(Target::AtMost(1.0));
        }
        report.figure(figure);
    }
}
