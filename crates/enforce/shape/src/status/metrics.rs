//! A status as Prometheus text (exposition format 0.0.4). Pure.

use super::{State, Status};
use std::fmt::Write;

/// Figures of a session. Names end in their unit or `_total`; times are seconds, shares 0 to 1.
pub fn prometheus(status: &Status) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(Labels, f64)]| {
        if samples.is_empty() {
            return;
        }
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{} {}", labels_text(labels), number(*value));
        }
    };
    let states = [State::Finding, State::Shaping, State::Stopped];
    let states = states.map(|s| {
        (
            vec![("state", s.name().to_owned())],
            f64::from(s == status.state),
        )
    });
    family(
        "onbeat_state",
        "gauge",
        "Where the session is: 1 for its state.",
        &states,
    );
    let mut count = |name: &str, help: &str, value: u64| {
        family(name, "counter", help, &[(vec![], value as f64)])
    };
    let c = &status.counts;
    count("onbeat_cycles_total", "Cycles of the dispatcher.", c.cycles);
    count(
        "onbeat_executions_total",
        "Executions of all chains.",
        c.executions,
    );
    count(
        "onbeat_late_outputs_total",
        "Outputs that missed the last slot of their cycle.",
        c.late,
    );
    count(
        "onbeat_discarded_outputs_total",
        "Outputs that were discarded.",
        c.discarded,
    );
    count(
        "onbeat_cycles_without_output_total",
        "Cycles without an output, of the chain with most of them.",
        c.without_output,
    );
    count(
        "onbeat_skipped_slots_total",
        "Slots that had passed before the dispatcher came.",
        c.skipped_slots,
    );
    count(
        "onbeat_slips_total",
        "Inputs that came twice in a cycle, or not in one, at their usual distance.",
        c.slips,
    );
    count(
        "onbeat_lost_reports_total",
        "Reports of the shaper that were lost.",
        c.lost_reports,
    );
    count(
        "onbeat_opened_by_guard_total",
        "How often the guard opened all gates because the dispatcher did not run.",
        status.guard.opened,
    );
    count(
        "onbeat_guard_silent_total",
        "How often all gates were opened because the guard did not run.",
        status.guard.silent,
    );
    let lost = f64::from(status.guard.lost);
    family(
        "onbeat_guard_lost",
        "gauge",
        "1 if the guard has ended.",
        &[(vec![], lost)],
    );
    let missing = status.missing.len() as f64;
    family(
        "onbeat_missing_callbacks",
        "gauge",
        "Callbacks that are not found yet.",
        &[(vec![], missing)],
    );
    let seconds = |ns: u64| ns as f64 / 1e9;
    let shaping: Vec<_> = status
        .shaping_ns
        .map(|ns| (vec![], seconds(ns)))
        .into_iter()
        .collect();
    family(
        "onbeat_shaping_seconds",
        "gauge",
        "Time since shaping began.",
        &shaping,
    );
    let d = &status.dispatcher;
    let lateness = [
        ("0.5", d.p50_ns),
        ("0.99", d.p99_ns),
        ("0.999", d.p999_ns),
        ("1", d.max_ns),
    ];
    let lateness = lateness.map(|(q, ns)| (vec![("quantile", q.to_owned())], seconds(ns)));
    family(
        "onbeat_dispatcher_lateness_seconds",
        "gauge",
        "How late the dispatcher woke, by quantile.",
        &lateness,
    );
    let threads =
        |s: &super::ServerStatus| (vec![("server", s.name.clone())], s.threads.len() as f64);
    let threads: Vec<_> = status.servers.iter().map(threads).collect();
    family("onbeat_threads", "gauge", "Threads of a server.", &threads);
    promises(status, &mut family);
    text
}

type Labels = Vec<(&'static str, String)>;

fn promises(status: &Status, family: &mut impl FnMut(&str, &str, &str, &[(Labels, f64)])) {
    for (unit, name, scale) in [("ms", "seconds", 1e-3), ("%", "ratio", 1e-2)] {
        let of = status.promises.iter().filter(|p| p.unit == unit);
        let labels = |p: &super::Promise| vec![("promise", p.name.to_owned())];
        let promised: Vec<_> = of
            .clone()
            .map(|p| (labels(p), p.promised * scale))
            .collect();
        family(
            &format!("onbeat_promised_{name}"),
            "gauge",
            "What the plan promises.",
            &promised,
        );
        let measured = of.filter_map(|p| Some((labels(p), p.measured? * scale)));
        let measured: Vec<_> = measured.collect();
        family(
            &format!("onbeat_measured_{name}"),
            "gauge",
            "What was measured so far.",
            &measured,
        );
    }
}

fn labels_text(labels: &Labels) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let one = |(name, value): &(&str, String)| {
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    format!(
        "{{{}}}",
        labels.iter().map(one).collect::<Vec<_>>().join(",")
    )
}

fn number(value: f64) -> String {
    match value {
        v if v.is_nan() => "NaN".into(),
        v if v.is_infinite() => if v > 0.0 { "+Inf" } else { "-Inf" }.into(),
        v => v.to_string(),
    }
}

#[cfg(test)]
mod tests;
