//! The promises of shaping and their targets (issue of the second step, section 3).

use super::arm::Arm;
use super::results::{jitter, ArmResults};
use crate::frame::report::{Figure, Report};
use crate::frame::rng::Rng;
use crate::measure::floor;
use crate::measure::stats::{over_blocks, resampled, Sorted};

/// The divisor for the largest jitter of a plan with one band. The jitter may be at most the jitter
/// that the same executions have without shaping, divided by this number.
const JITTER_DIVISOR: f64 = 250.0;
/// The factor for the smallest limit of the jitter. The limit is at least this factor times the
/// 99th percentile of the wake-up latencies that cyclictest measures.
const FLOOR_MULTIPLE: f64 = 2.0;
const MAX_WORST_ADDED_PERCENT: f64 = 2.5;
/// The largest share in % by which the average latency may exceed the average without shaping. The
/// limit applies to plans whose bands were chosen for a low average.
pub(super) const MAX_AVERAGE_ADDED_PERCENT: f64 = 6.0;
/// The limit of the 99.9th percentile of the times for which threads run outside of their slots, in
/// ms.
const MAX_OUTSIDE_MS: f64 = 0.3;
const MAX_CPU_PERCENT: f64 = 0.5;
const LISTED: usize = 50;

pub(super) fn figures(report: &mut Report, name: &str, arm: &Arm<'_>, result: &ArmResults) {
    let name = |what: &str| format!("target.{name}.{what}");
    let count = result.outputs();
    let (unshaped_jitter, unshaped_average, unshaped_worst) = result.unshaped_ms();
    let add = |from: f64, to: f64| (to / from.max(1e-6) - 1.0) * 100.0;
    if arm.is_one_band {
        let floor_ms = result.floor.quantile_ms(0.99).unwrap_or(0.0);
        let limit = (unshaped_jitter / JITTER_DIVISOR).max(FLOOR_MULTIPLE * floor_ms);
        let jitter = over_blocks(&result.latency_ms, jitter);
        let jitter = Figure::estimated(name("jitter"), jitter, "ms");
        report.figure(jitter.at_most(limit).floor(floor_ms).samples(count));
        let ratio = unshaped_jitter / result.jitter_ms().max(1e-6);
        report.value(name("jitter_ratio"), ratio, "1");
    }
    let worst = over_blocks(&result.latency_ms, |of| of.quantile(1.0));
    let worst = worst.map(|ms| add(unshaped_worst, ms));
    report.figure(
        Figure::estimated(name("worst_added"), worst, "%")
            .at_most(MAX_WORST_ADDED_PERCENT)
            .samples(count),
    );
    let average = over_blocks(&result.latency_ms, Sorted::mean);
    let average = average.map(|ms| add(unshaped_average, ms));
    let average = Figure::estimated(name("average_added"), average, "%");
    report.figure(match arm.keeps_average {
        true => average.at_most(MAX_AVERAGE_ADDED_PERCENT).samples(count),
        false => average,
    });
    let promised = (1.0 - arm.miss_rate) * 100.0;
    let inside = Figure::estimated(name("in_slot"), result.inside_percent(), "%");
    report.figure(inside.at_least(promised).samples(count));
    report.figure(Figure::new(name("late"), result.late as f64, "1").samples(count));
    let limit = MAX_OUTSIDE_MS.max(result.floor.quantile_ms(0.999).unwrap_or(0.0));
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    let outside = resampled(&result.outside_ms, &mut Rng::new(1), most);
    let outside = Figure::estimated(name("outside_slot_p999"), outside, "ms");
    report.figure(outside.at_most(limit));
    let cpu = |of: fn(&(f64, f64)) -> f64| result.cpu.iter().map(of).collect::<Vec<_>>();
    let all = resampled(&cpu(|c| c.0 + c.1), &mut Rng::new(1), most);
    report.figure(Figure::estimated(name("cpu"), all, "%").at_most(MAX_CPU_PERCENT));
    report.value(name("cpu_without_shaper"), most(&cpu(|c| c.0)), "%");
    floor::figures(report, &name("cyclictest"), &result.floor);
    late(report, &arm.name, result, LISTED);
}

pub(super) fn late(report: &mut Report, arm: &str, result: &ArmResults, most: usize) {
    let late = result.notes.iter();
    let late: Vec<&String> = late
        .filter(|n| n.contains("late for its last slot"))
        .collect();
    for note in late.iter().take(most) {
        report.note(format!("{arm}: {note}"));
    }
    if late.len() > most {
        report.note(format!(
            "{arm}: {} more late outputs are not listed",
            late.len() - most
        ));
    }
}
