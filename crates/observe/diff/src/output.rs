//! Writes changes as JSON for other programs.

use crate::influence::Influences;
use crate::judge::Report;
use serde_json::{json, Value};

/// Returns all changes as JSON, with the data on which the comparison is based.
pub fn json(report: &Report) -> Value {
    let speed = report.speed.as_ref().map(|s| {
        let (least, most) = s.extremes();
        json!({ "fastest": least, "slowest": most })
    });
    json!({
        "changed": !report.is_empty(),
        "causes": report.causes(),
        "structure": report.structure,
        "figures": report.figures,
        "compared": report.compared,
        "significant_but_small": report.small,
        "not_compared": report.open,
        "runs": { "a": report.runs.0, "b": report.runs.1 },
        "run_time_factor": speed,
        "resolution": report.resolution,
        "run_spread": report.spreads,
        "notes": report.notes,
    })
}

/// Returns the differences in influence as JSON: how much time each component costs each chain in
/// both models.
pub fn influence_json(report: &Influences) -> Value {
    json!({
        "changed": !report.found.is_empty(),
        "influence": report.found,
        "compared": report.compared,
        "notes": report.notes,
    })
}
