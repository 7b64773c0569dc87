//! The `queues` experiment: the paper's four concepts of service-blocking queues, beside ROS 1 and
//! ROS 2.
//!
//! The paper is Konheiser, Funda, German, Hielscher, *Comparing Concepts of Service Blocking Queues
//! in Hardware-in-the-Loop Systems*. CAN and radar messages (Table I) go from producers to
//! consumers in 1 to 10 parallel streams. Every arm of [`arms`] carries the same messages. The
//! scenario *standard* has the processing times of the table. In the scenario *bottleneck*
//! processing is [`SLOWED`] times as slow, so that bursts overflow or block the queues. Everything
//! that is measured runs on one core.
pub mod arms;
mod cell;
pub mod kpis;
mod results;
mod seat;
mod tables;

use crate::frame::files;
use crate::frame::machine;
use crate::frame::report::Report;
use crate::frame::{Context, Experiment, Extra, Kept, LabError, Result};
use crate::measure::streams::{Arrivals, Kind, Spread, CAN, RADAR};
use arms::{Programs, ARMS};
use cell::Setting;
use results::{QueueResults, Row};
use seat::Seat;
use std::path::Path;

pub const COUNTS: [usize; 5] = [1, 2, 4, 8, 10];

/// The factor by which the processing of a message takes longer in the bottleneck scenario. Ten
/// radar streams then need 72 % of a core, and the consumer of a single stream is overloaded during
/// bursts.
pub const SLOWED: u64 = 15;

/// The arms that run in every round, because figures compare them. Other arms run in the first
/// round only.
const EVERY_ROUND: [&str; 7] = [
    "drop",
    "credit",
    "drop-processes",
    "credit-processes",
    "ros1-nodelets",
    "ros1-token",
    "ros1-service",
];

/// The arms that run in every round with ten streams, besides [`EVERY_ROUND`]. For ten streams, the
/// report also shows the CPU use of onbeat's arms beyond the processing of messages.
const EVERY_ROUND_OF_TEN: [&str; 3] = ["credit-shared", "credit-chain", "bare"];

fn in_round(arm: &str, round: usize, streams: usize) -> bool {
    round == 0 || EVERY_ROUND.contains(&arm) || (streams == 10 && EVERY_ROUND_OF_TEN.contains(&arm))
}

const MAX_FAILURES: usize = 3;

pub const EXPERIMENT: Experiment = Experiment {
    name: "queues",
    about: "queue concepts without data loss, compared with ROS 1 and ROS 2 (queue paper, Tables I and III to VI)",
    parts: &[],
    takes: &[Extra::Arrivals],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let work = context.dir().join("work");
    files::fresh_dir(&work)?;
    // Programs with another working directory also read and write there.
    let work = work
        .canonicalize()
        .map_err(LabError::file("finding", &work))?;
    let mut report = Report::new();
    let plans = plans(context, &work)?;
    tables::input(&mut report, &plans);
    let results = measure(context, &mut report, &work, plans)?;
    results.write(context)?;
    tables::fill(context, &mut report, &results)?;
    files::remove_dir(&work)?;
    Ok(report)
}

pub(crate) struct Plan {
    setting: Setting,
    rounds: usize,
}

fn plans(context: &Context, work: &Path) -> Result<Vec<Plan>> {
    let length_ns: u64 = context.pick(2_500_000_000, 1_500_000_000);
    let recorded = match context.arrivals() {
        Some(path) => Some(Arrivals::read(path, length_ns)?),
        None => None,
    };
    // The paper's numbers of streams: with radar as in its tables, and with CAN, which it calls
    // comparable.
    let radar = match &recorded {
        Some(arrivals) => kind_of(arrivals),
        None => RADAR,
    };
    let mut wanted: Vec<(&'static str, Kind, &[usize], usize)> = vec![
        (
            "standard",
            radar,
            context.pick(&COUNTS, &[1, 10]),
            context.pick(4, 3),
        ),
        ("bottleneck", radar, context.pick(&COUNTS, &[1, 10]), 1),
    ];
    if recorded.is_none() {
        wanted.push(("standard", CAN, context.pick(&COUNTS, &[1]), 1));
    }
    let mut plans = vec![];
    for (scenario, kind, counts, rounds) in wanted {
        let stream = match &recorded {
            Some(all) => all.clone(),
            None => {
                let messages = (length_ns as f64 / kind.cycle.mean).round() as usize;
                Arrivals::generate(&kind, messages, &mut context.rng(kind.name))?
            }
        };
        let stream = match scenario {
            "bottleneck" => stream.slowed(SLOWED),
            _ => stream,
        };
        for &count in counts {
            // Parallel streams replay the same messages, as in the paper.
            let arrivals = vec![stream.clone(); count];
            let setting = Setting::new(scenario, kind, arrivals, work)?;
            plans.push(Plan { setting, rounds });
        }
    }
    Ok(plans)
}

fn kind_of(arrivals: &Arrivals) -> Kind {
    Kind {
        name: "recorded",
        bytes: RADAR.bytes,
        cycle: Spread::of(&arrivals.cycles()),
        processing: Spread::of(&arrivals.processing_ns),
    }
}

fn measure(
    context: &Context,
    report: &mut Report,
    work: &Path,
    plans: Vec<Plan>,
) -> Result<QueueResults> {
    // The measured programs have the last CPU for themselves. Everything else runs on the first.
    let cpus = machine::cpus();
    let seat = Seat {
        cpu: cpus - 1,
        first: true,
    };
    let elsewhere = Seat {
        cpu: 0,
        first: false,
    };
    if cpus == 1 {
        report.note(
            "this machine has one CPU: the experiment ran on the same CPU as the measured programs",
        );
    }
    context.step(
        "find the programs of all arms, and start the ROS 1 master",
        120,
    );
    let programs = Programs::find(context, work, &elsewhere);
    let mut failures = vec![0; ARMS.len()];
    for (arm, failed) in ARMS.iter().zip(&mut failures) {
        if let Some(why) = programs.obstacle(arm) {
            report.skip(arm.title, why);
            *failed = MAX_FAILURES;
        }
    }
    let (mut rows, mut kept): (Vec<Row>, Vec<Kept>) = (vec![], vec![]);
    let mut serial = 0;
    for (at, plan) in plans.iter().enumerate() {
        let s = &plan.setting;
        let what = format!("{} {}, {} streams", s.scenario, s.kind.name, s.streams());
        let mut turns = context.turns(&what, ARMS.len(), plan.rounds);
        for (round, index) in turns.by_ref() {
            let arm = &ARMS[index];
            if failures[index] >= MAX_FAILURES || !in_round(arm.name, round, s.streams()) {
                continue;
            }
            serial += 1;
            let limit_s = 300 + 4 * s.length_ns() / 1_000_000_000;
            context.step(format!("{what}: {}", arm.title), limit_s);
            match cell::measure(context, &programs, arm, s, serial, &seat, work) {
                Ok(measured) => rows.push(Row {
                    setting: at,
                    arm: index,
                    round,
                    measured,
                }),
                Err(e) => {
                    failures[index] += 1;
                    if failures[index] < MAX_FAILURES {
                        report.note(format!(
                            "the arm {} was not measured in {what}: {e}",
                            arm.title
                        ));
                    } else {
                        report.skip(
                            arm.title,
                            format!("the arm failed {MAX_FAILURES} times. The last error: {e}"),
                        );
                    }
                }
            }
        }
        kept.push(turns.finish());
    }
    if rows.is_empty() {
        let why = report.skipped.first().map_or("", |s| &s.why);
        return Err(LabError::program("every arm", why));
    }
    let settings = plans.into_iter().map(|p| p.setting).collect();
    Ok(QueueResults {
        settings,
        rows,
        kept,
    })
}
