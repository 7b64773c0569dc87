//! The latency that recording adds to a message between two compiled nodes.

mod cell;
mod figures;
mod gate;
mod nodes;
mod pair;
mod tables;
mod turns;

use super::lttng::Lttng;
use crate::frame::report::Report;
use crate::frame::{Context, Kept, LabError, Result};
use crate::measure::arms::ArmSamples;
use crate::measure::{native, ros};
use figures::Added;
use nodes::Nodes;
use std::path::Path;
use std::time::Duration;

const SOURCE: &str = include_str!("../../../../native/latency.c");
/// The arms of the comparison.
///
/// - `off` and `onbeat`: a pair of nodes that runs all the time, without and with a recorder.
/// - `passed`, `library` and `preload`: a pair under `onbeat record --preload`. In `passed`,
///   onbeat's library and the kernel's records of context switches are off. In `library`, only the
///   library is on. In `preload`, both are on.
/// - `started` and `lttng`: pairs that are started for each segment of time, without a recorder and
///   with LTTng.
const ARMS: [&str; 7] = [
    "off", "onbeat", "passed", "library", "preload", "started", "lttng",
];
const OFF: usize = 0;
const ONBEAT: usize = 1;
const PASSED: usize = 2;
const LIBRARY: usize = 3;
const PRELOAD: usize = 4;
const STARTED: usize = 5;
const LTTNG: usize = 6;

/// The scheduling of the two nodes. Real-time threads show only the cost of the probes, because
/// other programs do not disturb them. Normal threads compete with the recorder for CPUs, so they
/// also show the recorder's cost.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Policy {
    Normal,
    RealTime,
}

impl Policy {
    fn name(self) -> &'static str {
        match self {
            Policy::Normal => "normal",
            Policy::RealTime => "realtime",
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Setting {
    policy: Policy,
    rate_hz: u32,
    kib: u32,
}

impl Setting {
    fn title(&self) -> String {
        format!(
            "{} at {} Hz with {} KiB",
            self.policy.name(),
            self.rate_hz,
            self.kib
        )
    }

    fn id(&self) -> String {
        format!("{}.{}hz.{}kib", self.policy.name(), self.rate_hz, self.kib)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum LatencyStart {
    Callback,
    /// Latency counts from the time at which the publishing callback was due. The latency therefore
    /// contains the delay of this callback's start.
    Release,
}

struct Segment {
    round: usize,
    arm: usize,
    from_ns: i64,
    to_ns: i64,
}

impl Segment {
    fn has(&self, ns: i64) -> bool {
        self.from_ns <= ns && ns < self.to_ns
    }
}

struct Cell {
    setting: Setting,
    /// The latencies from the start of the callback that publishes to the start of the callback
    /// that receives, in us.
    message: ArmSamples,
    /// The latencies from the due time of the callback that publishes to the start of the callback
    /// that receives, in us.
    release: ArmSamples,
    sent: [u64; ARMS.len()],
    arrived: [u64; ARMS.len()],
    lost_events: u64,
}

impl LatencyStart {
    fn id(self) -> &'static str {
        match self {
            LatencyStart::Callback => "callback",
            LatencyStart::Release => "release",
        }
    }

    fn title(self) -> &'static str {
        match self {
            LatencyStart::Callback => "the start of the publishing callback",
            LatencyStart::Release => "the due time of the publishing callback",
        }
    }
}

impl Cell {
    fn new(setting: Setting, rounds: usize) -> Cell {
        Cell {
            setting,
            message: ArmSamples::new(&ARMS, rounds),
            release: ArmSamples::new(&ARMS, rounds),
            sent: [0; ARMS.len()],
            arrived: [0; ARMS.len()],
            lost_events: 0,
        }
    }

    fn keep(&mut self, kept: Kept) {
        self.message.keep(kept.clone());
        self.release.keep(kept);
    }

    fn samples(&self, from: LatencyStart) -> &ArmSamples {
        match from {
            LatencyStart::Callback => &self.message,
            LatencyStart::Release => &self.release,
        }
    }
}

pub fn measure(context: &mut Context, report: &mut Report) -> Result<()> {
    let env = context.ros_env("kilted")?;
    let program = native::compile(
        "latency",
        &ros::with_python_symbols(SOURCE, &env)?,
        &ros::link_arguments(&env, &ros::STD_MSGS)?,
    )?;
    let cells = measure_cells(context, report, &program, &env)?;
    write(context, &cells)?;
    for policy in [Policy::RealTime, Policy::Normal] {
        let of_policy = cells.iter().filter(|c| c.setting.policy == policy);
        let of_policy: Vec<&Cell> = of_policy.collect();
        if of_policy.is_empty() {
            continue;
        }
        for from in [LatencyStart::Callback, LatencyStart::Release] {
            summarise(context, report, policy, from, &of_policy);
        }
        if context.wants("latency") {
            figures::plot(context, policy, &of_policy)?;
        }
    }
    figures::totals(report, &cells);
    Ok(())
}

fn settings(context: &Context) -> Vec<Setting> {
    let rates: &[u32] = context.pick(&[100, 500, 2000], &[100, 2000]);
    let sizes: &[u32] = context.pick(&[1, 64, 256], &[1, 64]);
    let ends = [(rates.first(), sizes.first()), (rates.last(), sizes.last())];
    let mut settings = vec![];
    for policy in [Policy::RealTime, Policy::Normal] {
        for &kib in sizes {
            for &rate_hz in rates {
                // Results of normal threads mostly show the influence of other programs, so two
                // settings are enough.
                if policy == Policy::RealTime || ends.contains(&(Some(&rate_hz), Some(&kib))) {
                    settings.push(Setting {
                        policy,
                        rate_hz,
                        kib,
                    });
                }
            }
        }
    }
    settings
}

fn measure_cells(
    context: &Context,
    report: &mut Report,
    program: &Path,
    env: &Path,
) -> Result<Vec<Cell>> {
    let lttng = context.wants("latency").then(|| Lttng::start(context));
    if let Some(Err(e)) = &lttng {
        report.skip("the arm with LTTng", e);
    }
    let nodes = Nodes {
        program,
        env,
        lttng: lttng.and_then(Result::ok),
    };
    let settings = settings(context).into_iter();
    let cells = settings.filter_map(|setting| measure_cell(context, report, &nodes, setting));
    let cells: Vec<Cell> = cells.collect();
    if cells.is_empty() {
        return Err(LabError::unexpected(
            "the latency of messages",
            "no combination of rate and size could be measured",
        ));
    }
    Ok(cells)
}

fn measure_cell(
    context: &Context,
    report: &mut Report,
    nodes: &Nodes<'_>,
    setting: Setting,
) -> Option<Cell> {
    let rounds = context.pick(8, 4);
    // Long enough for a 99th percentile at the lowest rate.
    let segment = Duration::from_millis(if context.quick() {
        1500
    } else {
        (200_000 / setting.rate_hz).clamp(1500, 2500).into()
    });
    let title = setting.title();
    let mut cell = Cell::new(setting, 0);
    if context.wants("latency") {
        context.step(
            format!(
                "latency, {title}, {rounds} rounds: without recording, with onbeat, with LTTng"
            ),
            (segment * rounds as u32 * 50).as_secs() + 120,
        );
        let measured = cell::measure(context, nodes, setting, rounds, segment);
        cell = measured
            .inspect_err(|e| report.note(format!("the latency of {title} was not measured: {e}")))
            .ok()?;
    }
    if !context.wants("preload") {
        return Some(cell);
    }
    // The added latency is a few us here, so its median needs more messages.
    let segment = segment.max(Duration::from_secs(context.pick(500, 100)) / setting.rate_hz);
    context.step(
        format!("latency, {title}, {rounds} rounds with the preloaded library and without"),
        (segment * rounds as u32 * 20).as_secs() + 120,
    );
    if let Err(e) = turns::measure(context, nodes, rounds, segment, &mut cell) {
        report.note(format!(
            "the latency of {title} with `record --preload` was not measured: {e}"
        ));
    }
    Some(cell)
}

fn write(context: &mut Context, cells: &[Cell]) -> Result<()> {
    let head = "policy,rate_hz,kib,from,arm,round,latency_us";
    let mut raw = context.raw("latency.csv", head)?;
    for cell in cells {
        let Setting {
            policy,
            rate_hz,
            kib,
        } = cell.setting;
        for from in [LatencyStart::Callback, LatencyStart::Release] {
            let prefix = format!("{},{rate_hz},{kib},{},", policy.name(), from.id());
            cell.samples(from).write(&mut raw, &prefix)?;
        }
    }
    raw.finish()
}

fn summarise(
    context: &Context,
    report: &mut Report,
    policy: Policy,
    from: LatencyStart,
    cells: &[&Cell],
) {
    if context.wants("latency") {
        summarise_bpf(context, report, policy, from, cells);
    }
    let mut rng = context.rng("arms");
    for (without, arm) in [(PASSED, LIBRARY), (PASSED, PRELOAD), (STARTED, LTTNG)] {
        let measured = cells.iter().filter(|c| c.arrived[arm] > 0);
        let measured: Vec<&Cell> = measured.copied().collect();
        if !measured.is_empty() {
            figures::of_arm(report, (policy, from), &measured, (without, arm), &mut rng);
        }
    }
}

fn summarise_bpf(
    context: &Context,
    report: &mut Report,
    policy: Policy,
    from: LatencyStart,
    cells: &[&Cell],
) {
    let mut rng = context.rng("interval");
    let added: Vec<Added> = cells
        .iter()
        .map(|cell| Added::of(cell, from, &mut rng))
        .collect();
    for (cell, added) in cells.iter().zip(&added) {
        figures::of_cell(report, cell, from, added);
    }
    report
        .tables
        .push(tables::latencies(policy, from, cells, &added));
    figures::over_cells(report, policy, from, &added, &mut rng);
}
