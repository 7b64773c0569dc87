//! The latency of a 64 KiB message to one to ten subscribers.

use super::latency::rate_hz;
use super::runner::Runner;
use super::session::Place;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Result};
use crate::measure::arms::ArmSamples;
use crate::measure::peer::Usage;
use crate::measure::run::Run;
use crate::measure::samples::Sample;
use crate::measure::transport::{self as peers, Arm, Peers};
use crate::plot::{curves, Curve};

const BYTES: usize = 65_536;

pub fn measure(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<()> {
    let counts: &[usize] = context.pick(&[1, 2, 5, 10], &[1, 10]);
    let rounds = context.pick(4, 3);
    let seconds = context.pick(0.6, 0.4);
    let arms = peers.of(&peers::BETWEEN_PROCESSES);
    let names: Vec<&str> = arms.iter().map(|a| a.name).collect();
    let mut table = Table::new(
        "Latency of messages of 64 KiB to several subscribers, us (all subscribers together); CPU time and context switches of all processes per message",
        "arm | subscribers | samples | latency p50, us | p90, us | p99, us | max, us | CPU time per message, us | context switches per message | lost messages",
    );
    let mut raw = context.raw("subscribers.csv", "subscribers,arm,round,latency_us")?;
    let mut medians: Vec<Curve> = arms
        .iter()
        .map(|arm| Curve {
            name: arm.name.to_string(),
            colour: arm.colour,
            dashed: arm.spins,
            points: vec![],
        })
        .collect();
    for &count in counts {
        context.step(
            format!("{count} subscribers, {rounds} rounds"),
            300 + (rounds * arms.len() * 20) as u64,
        );
        let place = Place::Processes(count);
        let title = format!("with {count} subscribers");
        let mut samples = ArmSamples::new(&names, rounds);
        let mut used = vec![(Usage::default(), 0u64); arms.len()];
        let mut runners: Vec<Runner> = arms
            .iter()
            .map(|arm| Runner::new(peers, *arm, place, &title))
            .collect();
        // Each run starts its own processes, because idle processes of other arms would disturb it.
        let mut turns = context.turns(&title, arms.len(), rounds);
        for (round, a) in turns.by_ref() {
            let arm = &arms[a];
            let rate_hz = rate_hz(arm, BYTES).min(200.0);
            let run = Run {
                bytes: BYTES,
                other_bytes: None,
                rate_hz,
                count: (rate_hz * seconds) as u32,
            };
            let Some(results) = runners[a].run(context, report, run) else {
                continue;
            };
            runners[a].end();
            for sample in &results.samples {
                raw.line(format_args!(
                    "{count},{},{round},{}",
                    arm.name.replace(',', ""),
                    sample.latency_us()
                ))?;
            }
            samples.extend(round, a, results.samples.iter().map(Sample::latency_us));
            used[a].0 += results.usage;
            used[a].1 += results.lost;
        }
        samples.keep(turns.finish());
        for (a, arm) in arms.iter().enumerate() {
            let v = samples.pooled(a).summary();
            if v.count == 0 {
                continue;
            }
            let (cpu_ns, switches) = used[a].0.each();
            table.row([
                arm.name.into(),
                count.to_string(),
                v.count.to_string(),
                number(v.p50),
                number(v.p90),
                number(v.p99),
                number(v.max),
                number(cpu_ns / 1e3),
                format!("{switches:.1}"),
                used[a].1.to_string(),
            ]);
            medians[a].points.push((count as f64, v.p50));
        }
        busy(context, report, &arms, &samples, count);
    }
    raw.finish()?;
    report.tables.push(table);
    let ticks: Vec<(f64, String)> = counts.iter().map(|n| (*n as f64, n.to_string())).collect();
    let svg = curves(
        "Median latency of messages of 64 KiB to several subscribers",
        ("subscribers", "us"),
        &ticks,
        &medians,
    )?;
    context.plot("subscribers.svg", &svg)?;
    report.note(
        "Each subscriber is a process. Polling arms have one process that polls all subscriptions in turn, because there are not enough CPUs for more",
    );
    Ok(())
}

fn busy(context: &Context, report: &mut Report, arms: &[Arm], samples: &ArmSamples, count: usize) {
    let at = |wanted: &Arm| arms.iter().position(|a| a == wanted);
    let (Some(theirs), Some(ours)) = (at(&peers::ICEORYX2_BUSY), at(&peers::ONBEAT_BUSY)) else {
        return;
    };
    let n = samples.pooled(ours).len();
    if n == 0 || samples.pooled(theirs).is_empty() {
        return;
    }
    let ratio = samples.quantile_ratio(theirs, ours, 0.5, &mut context.rng("busy"));
    report.figure(
        Figure::estimated(format!("busy.subscribers.{count}.p50_ratio"), ratio, "1")
            .at_most(1.0)
            .samples(n as u64),
    );
}
