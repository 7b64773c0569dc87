//! Converts metrics to a message of OTLP 1.x, `ExportMetricsServiceRequest`, in JSON. Pure.

use crate::metrics::{Family, Kind, Series, Summary, Value};
use serde_json::{json, Value as Json};

/// OTLP's number for figures that accumulate from the start on
/// (`AGGREGATION_TEMPORALITY_CUMULATIVE`).
const CUMULATIVE: u32 = 2;

pub struct Resource {
    pub host: String,
}

/// The times that OTLP wants with the figures of a message, in ns since 1970: when the figures
/// began to count, and when they were read.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub start_ns: u64,
    pub now_ns: u64,
}

pub fn message(families: &[Family], resource: &Resource, times: Times) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        ("service.name", "onbeat"),
        ("service.version", version),
        ("host.name", resource.host.as_str()),
    ];
    let families = families.iter().filter(|family| !family.series.is_empty());
    let metrics: Vec<Json> = families.map(|family| metric(family, times)).collect();
    json!({"resourceMetrics": [{
        "resource": {"attributes": attributes(resource.into_iter())},
        "scopeMetrics": [{
            "scope": {"name": "onbeat.monitor", "version": version},
            "metrics": metrics,
        }],
    }]})
    .to_string()
}

fn attributes<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Json> {
    pairs
        .map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}))
        .collect()
}

fn metric(family: &Family, times: Times) -> Json {
    let points: Vec<Json> = family.series.iter().map(|s| point(s, times)).collect();
    let data = match family.kind {
        Kind::Counter => json!({
            "dataPoints": points,
            "aggregationTemporality": CUMULATIVE,
            "isMonotonic": true,
        }),
        Kind::Gauge | Kind::Summary => json!({"dataPoints": points}),
    };
    let kind = match family.kind {
        Kind::Counter => "sum",
        Kind::Gauge => "gauge",
        Kind::Summary => "summary",
    };
    let mut metric = json!({"name": family.name, "description": family.help, kind: data});
    // Units are written as in UCUM.
    match family.unit() {
        Some("seconds") => metric["unit"] = "s".into(),
        Some(_) => metric["unit"] = "1".into(),
        None => {}
    }
    metric
}

fn point(series: &Series, times: Times) -> Json {
    let labels = series.labels.iter();
    let mut point = json!({
        "attributes": attributes(labels.map(|(name, value)| (*name, value.as_str()))),
        "startTimeUnixNano": times.start_ns.to_string(),
        "timeUnixNano": times.now_ns.to_string(),
    });
    match &series.value {
        // JSON of protobuf writes integers of 64 bits as text.
        Value::Count(value) => {
            let value = i64::try_from(*value).unwrap_or(i64::MAX);
            point["asInt"] = value.to_string().into();
        }
        Value::Number(value) => point["asDouble"] = number(*value),
        Value::Summary(summary) => {
            point["count"] = summary.count.to_string().into();
            point["sum"] = number(summary.sum_s);
            point["quantileValues"] = quantiles(summary).into();
        }
    }
    point
}

/// Returns the quantiles of a summary as OTLP values. The list is empty if the window has no
/// measured times.
fn quantiles(summary: &Summary) -> Vec<Json> {
    let known = summary
        .quantiles
        .iter()
        .filter(|(_, value)| !value.is_nan());
    let one =
        |(quantile, value): &(f64, f64)| json!({"quantile": quantile, "value": number(*value)});
    known.map(one).collect()
}

/// Returns a number as JSON. NaN and infinite values become text, as protobuf requires, because
/// JSON has no numbers for them.
fn number(value: f64) -> Json {
    match value {
        _ if value.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        _ => value.into(),
    }
}
