//! The cost of an event for its caller: untraced, with the library of `onbeat record --preload`,
//! and with LTTng.

use super::lttng::Lttng;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::rng::Rng;
use crate::frame::{Context, LabError, Result};
use crate::measure::arms::{interleave, ArmSamples};
use crate::measure::recorder::{self, recorded};
use crate::measure::{native, ros};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const SOURCE: &str = include_str!("../../../native/events.c");
const ARMS: [&str; 3] = ["alone", "preload", "lttng"];
const PRELOAD: usize = 1;
const LTTNG: usize = 2;
/// The number of bursts of events in a run. The program sleeps before each burst. A burst has many
/// events that follow one another without a pause, or a single event.
const BURSTS: u64 = 1000;
const WARM: (&str, u64) = ("library", 100);
const APART: (&str, u64) = ("library.apart", 1);
const LIMIT: Duration = Duration::from_secs(120);

struct Bench<'c> {
    context: &'c Context,
    env: PathBuf,
    program: PathBuf,
    lttng: Option<Lttng>,
    calls: u64,
    lost: RefCell<[u64; ARMS.len()]>,
}

/// Measures the cost of recording an event. Returns the cost of a single event with onbeat's
/// library (`record --preload`), in us.
pub fn measure(context: &mut Context, report: &mut Report) -> Result<f64> {
    let env = context.ros_env("kilted")?;
    let program = native::compile(
        "events",
        &ros::with_python_symbols(SOURCE, &env)?,
        &ros::link_arguments(&env, &[])?,
    )?;
    let rounds = context.pick(20, 4);
    context.step(
        "cost of one event for the thread that runs its tracepoint",
        60 * rounds as u64,
    );
    let lttng = Lttng::start(context);
    if let Err(e) = &lttng {
        report.skip(
            "LTTng: the cost of one event for the thread that runs its tracepoint",
            e,
        );
    }
    let mut bench = Bench {
        context,
        env,
        program,
        lttng: lttng.ok(),
        calls: 0,
        lost: RefCell::default(),
    };
    let arms = match bench.lttng {
        Some(_) => ARMS.len(),
        None => LTTNG,
    };
    let mut cost_us = 0.0;
    for (id, calls) in [WARM, APART] {
        bench.calls = calls;
        bench.lost = RefCell::default();
        let turns = context.turns(id, arms, rounds);
        let samples = interleave(turns, &ARMS[..arms], |arm, _| bench.run(arm))?;
        let lost = bench.lost.borrow();
        cost_us = figures(report, (id, calls), &samples, &lost[..arms]);
    }
    Ok(cost_us)
}

impl Bench<'_> {
    fn run(&self, arm: usize) -> Result<Vec<f64>> {
        let trace = self.context.dir().join("events.trace");
        let _ = std::fs::remove_dir_all(&trace);
        let session = match (&self.lttng, arm) {
            (Some(lttng), LTTNG) => Some(lttng.begin()?),
            _ => None,
        };
        let mut command = self.command(arm, &trace);
        ros::enter(&mut command, &self.env);
        let mut child = self.context.spawn(&mut command)?;
        let ended = child.wait(LIMIT);
        let failed = |why: String| LabError::program("the program that raises events", why);
        match ended {
            Ok(Some(ended)) if ended.status.success() => {}
            _ => return Err(failed(format!("the program failed{}", child.last_error()))),
        }
        let out = child.child().stdout.take();
        let text = out.and_then(|out| std::io::read_to_string(out).ok());
        let ns = text
            .as_deref()
            .and_then(|t| t.lines().next()?.trim().parse().ok());
        let all = BURSTS * self.calls;
        let seen = match (arm, session) {
            (_, Some(session)) => session.end()?,
            (PRELOAD, _) => hits(&trace, all)?,
            _ => all,
        };
        let _ = std::fs::remove_dir_all(&trace);
        if seen < all / 100 * 99 {
            let what = format!("the recorder recorded only {seen} of {all} events");
            return Err(LabError::unexpected(ARMS[arm], what));
        }
        self.lost.borrow_mut()[arm] += all.saturating_sub(seen);
        let ns = ns.ok_or_else(|| failed("the program printed no number".into()))?;
        Ok(vec![ns])
    }

    fn command(&self, arm: usize, trace: &Path) -> Command {
        let mut command = match arm {
            PRELOAD => {
                let mut command = Command::new(self.context.onbeat());
                command.args(["record", "--preload", "-o"]).arg(trace);
                command.arg("--").arg(&self.program);
                command
            }
            _ => Command::new(&self.program),
        };
        command.arg(self.calls.to_string());
        if let (Some(lttng), LTTNG) = (&self.lttng, arm) {
            command.env("LD_PRELOAD", lttng.library());
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// Returns the number of recorded publications. Fails if the manifest does not report the rest of
/// the `all` publications as lost.
fn hits(trace: &Path, all: u64) -> Result<u64> {
    let manifest = recorded(trace)?.manifest;
    let probes = manifest.observed.probes.iter();
    let called = probes.filter(|p| p.name.contains("rmw_publish"));
    let hits: u64 = called.map(|p| p.hits).sum();
    let lost = recorder::lost(&manifest);
    match hits + lost {
        known if known >= all => Ok(hits),
        _ => Err(LabError::unexpected(
            "the recording with the preloaded library",
            format!("the recorder recorded {hits} of {all} events and reports {lost} as dropped"),
        )),
    }
}

fn figures(
    report: &mut Report,
    (id, calls): (&str, u64),
    samples: &ArmSamples,
    lost: &[u64],
) -> f64 {
    let mut table = Table::new(
        match calls {
            1 => "Cost of one event for the thread that runs its tracepoint (ros_trace_rmw_publish, single calls after a sleep), ns"
                .into(),
            _ => format!(
                "Cost of one event for the thread that runs its tracepoint (ros_trace_rmw_publish, bursts of {calls}), ns"
            ),
        },
        "| cost of an event, ns: median of the samples | smallest sample | largest sample | events lost",
    );
    let mut medians = vec![];
    let all = samples.rounds() as u64 * BURSTS * calls;
    for (arm, (name, lost)) in ARMS.iter().zip(lost).enumerate() {
        let sorted = samples.pooled(arm);
        let [least, median, most] = [0.0, 0.5, 1.0].map(|q| sorted.quantile(q));
        let [m, l, t] = [median, least, most].map(number);
        table.row([name.to_string(), m, l, t, format!("{lost} of {all}")]);
        let median_ns = samples.quantile(arm, 0.5, &mut Rng::new(1));
        let figure = Figure::estimated(format!("{id}.{name}"), median_ns, "ns");
        let figure = figure.samples(samples.rounds() as u64);
        report.figure(figure.at_most((arm == PRELOAD && calls > 1).then_some(100.0)));
        medians.push(median);
    }
    report.tables.push(table);
    (medians[PRELOAD] - medians[0]).max(0.0) / 1000.0
}
