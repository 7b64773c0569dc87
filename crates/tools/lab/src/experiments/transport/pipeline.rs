//! The perception pipeline of the paper's section 3: 50 publishers and 100 subscriptions on one
//! core, released at 30 Hz.

use super::group::Group;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::rng::Rng;
use crate::frame::{Context, Estimate, Result};
use crate::measure::arms::ArmSamples;
use crate::measure::peer::Usage;
use crate::measure::run::Run;
use crate::measure::samples::Sample;
use crate::measure::transport::{Peers, Program};
use crate::plot::{bars, percentiles};

const RATE_HZ: f64 = 30.0;

/// The number of processes of the pipeline on Cyclone DDS. Consecutive nodes are in different
/// processes.
const PROCESSES: usize = 10;

/// The number of context switches per iteration of the pipeline that the paper reports ("over
/// 200"). The paper assumes that a middleware thread and an executor thread take part in each
/// message.
const SWITCHES_IN_THE_PAPER: f64 = 200.0;

struct Realisation {
    id: &'static str,
    name: &'static str,
    program: Program,
    /// The `variant=` argument of onbeat's program. `None` for a program with another library,
    /// which distributes the nodes over processes.
    variant: Option<&'static str>,
    processes: usize,
}

const REALISATIONS: [Realisation; 4] = [
    Realisation {
        id: "cyclone_callbacks",
        name: "Cyclone DDS, callbacks, 10 processes",
        program: Program::CyclonePipeline,
        variant: None,
        processes: PROCESSES,
    },
    Realisation {
        id: "callbacks",
        name: "onbeat, every message wakes its node",
        program: Program::Onbeat,
        variant: Some("variant=callbacks"),
        processes: 1,
    },
    Realisation {
        id: "inputs",
        name: "onbeat, non-triggering inputs",
        program: Program::Onbeat,
        variant: Some("variant=inputs"),
        processes: 1,
    },
    Realisation {
        id: "chain",
        name: "onbeat, static chain",
        program: Program::Onbeat,
        variant: Some("variant=chain"),
        processes: 1,
    },
];

fn start(context: &Context, peers: &Peers, realisation: &Realisation) -> Result<Group> {
    let name = peers.name();
    Group::start(context, realisation.processes, realisation.name, |i| {
        let mut command = peers.command(realisation.program, false)?;
        command.arg(format!("name={name}"));
        match realisation.variant {
            Some(variant) => command.args(["role=pipeline", "readers=1", "wait=sleep", variant]),
            None => command.args([
                format!("process={i}"),
                format!("processes={}", realisation.processes),
            ]),
        };
        Ok(command)
    })
}

pub fn measure(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<()> {
    let rounds = context.pick(4, 3);
    let run = Run {
        bytes: 64,
        other_bytes: None,
        rate_hz: RATE_HZ,
        count: context.pick(75, 30),
    };
    let realisations: Vec<&Realisation> = REALISATIONS
        .iter()
        .filter(|w| peers.has_program(w.program))
        .collect();
    context.step(
        format!("perception pipeline, {rounds} rounds"),
        240 + rounds as u64 * 60,
    );
    let mut groups: Vec<Option<Group>> = vec![];
    for realisation in &realisations {
        groups.push(match start(context, peers, realisation) {
            Ok(group) => Some(group),
            Err(e) => {
                report.skip(format!("pipeline: {}", realisation.name), e);
                None
            }
        });
    }
    let names: Vec<&str> = realisations.iter().map(|w| w.name).collect();
    let mut samples = ArmSamples::new(&names, rounds);
    let mut used = vec![Usage::default(); realisations.len()];
    let mut switches = ArmSamples::new(&names, rounds);
    let mut turns = context.turns("pipeline", realisations.len(), rounds);
    for (round, w) in turns.by_ref() {
        let Some(group) = groups[w].as_mut() else {
            continue;
        };
        match group.run(run) {
            Ok((ended, usage)) => {
                samples.extend(round, w, ended.iter().map(Sample::since_due_us));
                switches.extend(round, w, [usage.each().1]);
                used[w] += usage;
            }
            Err(e) => {
                report.skip(format!("pipeline: {}", realisations[w].name), e);
                groups[w] = None;
            }
        }
    }
    drop(groups);
    samples.keep(turns.finish());
    switches.keep(samples.kept());
    samples.save(context, "pipeline.csv")?;
    summarise(context, report, &realisations, (&samples, &switches), &used)
}

fn summarise(
    context: &mut Context,
    report: &mut Report,
    realisations: &[&Realisation],
    (samples, switched_by): (&ArmSamples, &ArmSamples),
    used: &[Usage],
) -> Result<()> {
    let mut table = Table::new(
        "Latency and cost of an iteration of the perception pipeline (paper, section 3): 50 publishers, 100 subscriptions, one core, 30 Hz",
        "| samples | context switches per iteration | latency p50, us | p90, us | p99, us | max, us | CPU time per iteration, us",
    );
    let mut switched = vec![];
    let mut series = vec![];
    for (w, realisation) in realisations.iter().enumerate() {
        let v = samples.pooled(w).summary();
        if v.count == 0 {
            continue;
        }
        let (cpu_ns, switches) = used[w].each();
        table.row([
            realisation.name.into(),
            v.count.to_string(),
            number(switches),
            number(v.p50),
            number(v.p90),
            number(v.p99),
            number(v.max),
            number(cpu_ns / 1e3),
        ]);
        report.figure(
            Figure::estimated(
                format!("pipeline.{}.switches", realisation.id),
                switched_by.quantile(w, 0.5, &mut Rng::new(1)),
                "switches",
            )
            .baseline(
                SWITCHES_IN_THE_PAPER,
                "the paper: over 200 context switches per iteration of the pipeline",
            ),
        );
        report.figure(
            Figure::estimated(
                format!("pipeline.{}.p50", realisation.id),
                samples.quantile(w, 0.5, &mut Rng::new(1)),
                "us",
            )
            .samples(v.count as u64),
        );
        switched.push((
            realisation.name.to_string(),
            vec![Estimate::exact(switches)],
        ));
        series.push((realisation.name, samples.pooled(w)));
    }
    report.tables.push(table);
    let svg = bars(
        "Context switches of an iteration of the pipeline",
        "switches",
        &["50 publishers, 100 subscriptions".into()],
        &switched,
        Some((SWITCHES_IN_THE_PAPER, "the paper: over 200")),
    )?;
    context.plot("pipeline-switches.svg", &svg)?;
    context.plot(
        "pipeline-latency.svg",
        &percentiles(
            "Latency of the pipeline from the release to the end of the last node",
            "us",
            &series,
        )?,
    )
}
