//! The plot of the shaping experiment: latency over executions, by arm.

use super::arm::Arm;
use super::results::ArmResults;
use crate::frame::report::number;
use crate::frame::{Context, Result};
use crate::plot;

pub(super) type Latencies = fn(&ArmResults) -> &[f64];

const OVERLAID: usize = 3;

pub(super) fn or_blank(value: f64) -> String {
    if value.is_nan() {
        String::new()
    } else {
        number(value)
    }
}

pub(super) fn plot(
    context: &mut Context,
    (file, title): (&str, &str),
    arms: &[Arm<'_>],
    results: &[ArmResults],
    latencies: Latencies,
) -> Result<()> {
    let series: Vec<(String, Vec<(f64, f64)>)> = arms
        .iter()
        .zip(results)
        .map(|(arm, result)| {
            let points = latencies(result).iter().enumerate();
            (
                arm.name.clone(),
                points.map(|(i, l)| (i as f64, *l)).collect(),
            )
        })
        .collect();
    let draw = match series.len() {
        0..=OVERLAID => plot::dots,
        _ => plot::panels,
    };
    let svg = draw(title, "execution", "end-to-end latency, ms", &series)?;
    context.plot(file, &svg)
}
