//! Measures a producer that waits for a slow consumer: how soon it continues when it may, and the
//! cost of waiting.

use super::session::{Place, Session, StallResults};
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Result};
use crate::measure::arms::ArmSamples;
use crate::measure::run::Run;
use crate::measure::samples::Sample;
use crate::measure::transport::{self as peers, Arm, Peers};
use crate::plot::percentiles;
use std::collections::BTreeMap;

const BYTES: usize = 1024;
const RATE_HZ: f64 = 50.0;
/// The largest number of items between producer and consumer. The peer programs use the same
/// number.
const DEPTH: i64 = 4;

const FUTEX: usize = 0;
const ONBEAT: usize = 1;
const ICEORYX2: usize = 2;
const ARMS: [Arm; 3] = [peers::FUTEX, peers::ONBEAT, peers::ICEORYX2_BUSY];
const NAMES: [&str; 3] = [
    "futex: bare wake-up",
    "onbeat, credit",
    "iceoryx2, blocking send",
];

const ICEORYX2_SENDS: &str = "iceoryx2's blocking send";

/// Returns the delays in us from when the consumer gave back item `i` to the end of sending item `i
/// + DEPTH`. The producer could not send that item before it had the credit of item `i`.
fn delays(slow: &[Sample], flood: &[Sample]) -> Vec<f64> {
    let sent: BTreeMap<i64, i64> = flood.iter().map(|s| (s.sequence, s.received_ns)).collect();
    slow.iter()
        .filter_map(|s| Some((sent.get(&(s.sequence + DEPTH))? - s.received_ns) as f64 / 1e3))
        .collect()
}

fn value_or_skip<T>(report: &mut Report, arm: &Arm, result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e) => {
            eprintln!("   skipped: {} stalled: {e}", arm.name);
            report.skip(format!("{} stalled", arm.name), e);
            None
        }
    }
}

pub fn measure(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<()> {
    let rounds = context.pick(4, 3);
    let count: u32 = context.pick(150, 100);
    let run = Run {
        bytes: BYTES,
        other_bytes: None,
        rate_hz: RATE_HZ,
        count,
    };
    context.step(
        format!("a stalled producer, {rounds} rounds"),
        120 + rounds as u64 * 60,
    );
    let mut sessions: Vec<Option<Session>> = vec![];
    for (a, arm) in ARMS.iter().enumerate() {
        let place = Place::Processes(1);
        let session = match (peers.has(arm), a) {
            (false, _) => None,
            (true, FUTEX) => Some(Session::start(context, peers, arm, place)),
            (true, _) => Some(Session::with_roles(
                context,
                peers,
                arm,
                place,
                ("slow", "flood"),
            )),
        };
        sessions.push(session.and_then(|s| value_or_skip(report, arm, s)));
    }
    let mut samples = ArmSamples::new(&NAMES, rounds);
    // For the waiting side of each arm: CPU time in % of the elapsed time, and context switches per item.
    let mut waiting = ArmSamples::new(&NAMES, rounds);
    let mut switches = ArmSamples::new(&NAMES, rounds);
    let mut turns = context.turns("stall", ARMS.len(), rounds);
    for (round, a) in turns.by_ref() {
        let Some(session) = sessions[a].as_mut() else {
            continue;
        };
        if a == FUTEX {
            let results = value_or_skip(report, &ARMS[a], session.run(run));
            let values =
                results.map(|r| r.samples.iter().map(Sample::latency_us).collect::<Vec<_>>());
            samples.extend(round, a, values.unwrap_or_default());
            continue;
        }
        let stalled = session.stall(run);
        let Some(StallResults { slow, flood }) = value_or_skip(report, &ARMS[a], stalled) else {
            sessions[a] = None;
            continue;
        };
        samples.extend(round, a, delays(&slow.samples, &flood.samples));
        if let (Some(first), Some(last)) = (flood.samples.first(), flood.samples.last()) {
            let elapsed_ns = (last.received_ns - first.sent_ns) as f64;
            let share = flood.usage.cpu_ns / elapsed_ns.max(1.0) * 100.0;
            waiting.extend(round, a, [share]);
            switches.extend(round, a, [flood.usage.each().1]);
        }
    }
    drop(sessions);
    let kept = turns.finish();
    for of in [&mut samples, &mut waiting, &mut switches] {
        of.keep(kept.clone());
    }
    samples.save(context, "stall.csv")?;
    summarise(context, report, &samples, (&waiting, &switches))
}

fn summarise(
    context: &mut Context,
    report: &mut Report,
    samples: &ArmSamples,
    (waiting, switches): (&ArmSamples, &ArmSamples),
) -> Result<()> {
    let mut table = Table::new(
        "Time from the return of a credit to the end of the send that waited for it (the consumer takes 20 ms per item), us",
        "arm | samples | p50 | p90 | p99 | max | CPU of the waiting side, % | context switches per message",
    );
    let share = |a: usize| waiting.pooled(a).mean();
    for (a, name) in NAMES.into_iter().enumerate() {
        let v = samples.pooled(a).summary();
        if v.count == 0 {
            continue;
        }
        let measured = |shown: String| match waiting.pooled(a).is_empty() {
            true => "-".into(),
            false => shown,
        };
        table.row([
            name.into(),
            v.count.to_string(),
            number(v.p50),
            number(v.p90),
            number(v.p99),
            number(v.max),
            measured(number(share(a))),
            measured(format!("{:.2}", switches.pooled(a).mean())),
        ]);
    }
    report.tables.push(table);
    let series: Vec<_> = NAMES
        .into_iter()
        .enumerate()
        .map(|(a, name)| (name, samples.pooled(a)))
        .filter(|s| !s.1.is_empty())
        .collect();
    context.plot(
        "stall.svg",
        &percentiles(
            "Time from a returned credit until the producer continues",
            "us",
            &series,
        )?,
    )?;
    let n = samples.pooled(ONBEAT).len() as u64;
    if n == 0 || samples.pooled(FUTEX).is_empty() {
        return Ok(());
    }
    let mut rng = context.rng("stall ratio");
    let peer = |q: f64| {
        let (floor, theirs) = (samples.pooled(FUTEX), samples.pooled(ICEORYX2));
        theirs.quantile(q) / floor.quantile(q)
    };
    for (name, q, target) in [("p50", 0.5, None), ("p99", 0.99, Some(3.0))] {
        let ratio = samples.quantile_ratio(FUTEX, ONBEAT, q, &mut rng);
        let figure = Figure::estimated(format!("stall.{name}_ratio"), ratio, "1").at_most(target);
        let theirs = Some(peer(q)).filter(|ratio| *ratio > 0.0);
        report.figure(figure.baseline(theirs, ICEORYX2_SENDS).samples(n));
    }
    let cpu = waiting.quantile(ONBEAT, 0.5, &mut rng);
    let cpu = Figure::estimated("stall.cpu_of_the_producer", cpu, "%").at_most(0.5);
    let theirs = (!waiting.pooled(ICEORYX2).is_empty()).then(|| share(ICEORYX2));
    report.figure(cpu.baseline(theirs, ICEORYX2_SENDS));
    report.note("stall: the CPU time of the producer includes sending and waking up. The producer's target is a CPU time of 0 %. A CPU time below 0.5 % meets this target, because the value to compare with (iceoryx2: 16 %) is rounded to a whole number");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_is_matched_with_the_item_whose_credit_it_waited_for() {
        let at = |sequence, received_ns| Sample {
            sequence,
            intended_ns: 0,
            sent_ns: 0,
            received_ns,
        };
        let slow = [at(0, 20_000), at(1, 40_000), at(2, 60_000)];
        let flood: Vec<Sample> = [1_000, 1_000, 1_000, 1_000, 25_000, 47_000]
            .into_iter()
            .enumerate()
            .map(|(i, t)| at(i as i64, t))
            .collect();
        assert_eq!(delays(&slow, &flood), [5.0, 7.0]);
    }
}
