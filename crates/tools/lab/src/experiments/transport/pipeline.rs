//! The perception pipeline of the paper's section 3: 50 publishers and 100 subscriptions on one
//! core, released at 30 Hz.

use super::peers::{Peers, Program};
use super::session::{Group, Run, Usage};
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, LabError};
use crate::measure::arms::{schedule, ArmSamples};
use crate::plot::{bars, percentiles, Bar};
use std::time::Duration;

const RATE_HZ: f64 = 30.0;

/// Processes of the pipeline on Cyclone DDS: nodes that follow each other are in different ones.
const PROCESSES: usize = 10;

/// Context switches of an iteration that the paper expects where a middleware's thread and an
/// executor's take part for each message ("over 200").
const SWITCHES_IN_THE_PAPER: f64 = 200.0;

struct Way {
    id: &'static str,
    name: &'static str,
    program: Program,
    variant: &'static str,
    processes: usize,
}

const WAYS: [Way; 4] = [
    Way {
        id: "cyclone_callbacks",
        name: "Cyclone DDS, callbacks, 10 processes",
        program: Program::CyclonePipeline,
        variant: "",
        processes: PROCESSES,
    },
    Way {
        id: "callbacks",
        name: "onbeat, callbacks for every message",
        program: Program::Onbeat,
        variant: "callbacks",
        processes: 1,
    },
    Way {
        id: "inputs",
        name: "onbeat, non-triggering inputs",
        program: Program::Onbeat,
        variant: "inputs",
        processes: 1,
    },
    Way {
        id: "chain",
        name: "onbeat, static chain",
        program: Program::Onbeat,
        variant: "chain",
        processes: 1,
    },
];

fn start(context: &Context, peers: &Peers, way: &Way) -> Result<Group, LabError> {
    let name = peers.name();
    let mut group = Group::start(context, way.processes, way.name, |i| {
        let mut command = peers.command(way.program, false)?;
        if way.processes > 1 {
            command.args([&name, &i.to_string(), &way.processes.to_string()]);
        } else {
            command.args(["pipeline", &name, "1", "sleep", way.variant]);
        }
        Ok(command)
    })?;
    if way.processes > 1 {
        group.await_open()?;
    }
    Ok(group)
}

/// The measurement.
pub fn measure(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<(), LabError> {
    let rounds = context.pick(3, 1);
    let run = Run {
        bytes: 64,
        rate_hz: RATE_HZ,
        count: context.pick(75, 30),
    };
    let ways: Vec<&Way> = WAYS
        .iter()
        .filter(|w| peers.has_program(w.program))
        .collect();
    context.step(
        &format!("perception pipeline, {rounds} rounds"),
        Duration::from_secs(240 + rounds as u64 * 60),
    );
    let mut groups: Vec<Option<Group>> = vec![];
    for way in &ways {
        groups.push(match start(context, peers, way) {
            Ok(group) => Some(group),
            Err(e) => {
                report.skip(format!("pipeline: {}", way.name), e);
                None
            }
        });
    }
    let names: Vec<&str> = ways.iter().map(|w| w.name).collect();
    let mut samples = ArmSamples::new(&names, rounds);
    let mut used = vec![Usage::default(); ways.len()];
    for (round, w) in schedule(ways.len(), rounds, &mut context.rng("pipeline")) {
        let Some(group) = groups[w].as_mut() else {
            continue;
        };
        match group.run(run) {
            Ok((ended, usage)) => {
                let latency = ended
                    .iter()
                    .map(|s| (s.received_ns - s.intended_ns) as f64 / 1e3);
                samples.extend(round, w, latency);
                used[w] += usage;
            }
            Err(e) => {
                report.skip(format!("pipeline: {}", ways[w].name), e);
                groups[w] = None;
            }
        }
    }
    drop(groups);
    samples.save(context, "pipeline.csv")?;
    summarise(context, report, &ways, &samples, &used)
}

fn summarise(
    context: &mut Context,
    report: &mut Report,
    ways: &[&Way],
    samples: &ArmSamples,
    used: &[Usage],
) -> Result<(), LabError> {
    let mut table = Table::new(
        "An iteration of the perception pipeline (section 3): 50 publishers, 100 subscriptions, one core, 30 Hz",
        &[
            "", "n", "switches", "p50 us", "p90 us", "p99 us", "max us", "CPU us",
        ],
    );
    let mut switched = vec![];
    let mut series = vec![];
    for (w, way) in ways.iter().enumerate() {
        let v = samples.pooled(w).summary();
        if v.count == 0 {
            continue;
        }
        let (cpu_ns, switches) = used[w].each();
        table.row([
            way.name.into(),
            v.count.to_string(),
            number(switches),
            number(v.p50),
            number(v.p90),
            number(v.p99),
            number(v.max),
            number(cpu_ns / 1e3),
        ]);
        report.figure(
            Figure::new(
                format!("pipeline.{}.switches", way.id),
                switches,
                "switches",
            )
            .baseline(SWITCHES_IN_THE_PAPER, "the paper: over 200 with callbacks"),
        );
        report.figure(
            Figure::new(format!("pipeline.{}.p50", way.id), v.p50, "us").samples(v.count as u64),
        );
        switched.push((way.name.to_string(), vec![Bar::plain(switches)]));
        series.push((way.name, samples.pooled(w)));
    }
    report.tables.push(table);
    let svg = bars(
        "Context switches of an iteration",
        "switches",
        &["50 publishers, 100 subscriptions".into()],
        &switched,
        Some((SWITCHES_IN_THE_PAPER, "the paper: over 200")),
    )?;
    context.plot("pipeline-switches.svg", &svg)?;
    context.plot(
        "pipeline-latency.svg",
        &percentiles("From release to the last node", "us", &series)?,
    )
}
