//! Formats a status as Prometheus text (exposition format 0.0.4). Pure.

use super::{PlanCounts, State, Status};
use std::fmt::Write;

/// Returns the figures of a session in Prometheus text format. Names end in their unit or in
/// `_total`. Times are in seconds, shares from 0 to 1.
pub fn prometheus(status: &Status) -> String {
    let mut text = Text::default();
    state(status, &mut text);
    counts(status, &mut text);
    plans(status, &mut text);
    times(status, &mut text);
    promises(status, &mut text);
    text.0
}

type Labels = Vec<(&'static str, String)>;

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str, samples: &[(Labels, f64)]) {
        if samples.is_empty() {
            return;
        }
        let text = &mut self.0;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{} {}", labels_text(labels), number(*value));
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help, &[(vec![], value)]);
    }
}

fn state(status: &Status, text: &mut Text) {
    let states = [State::Finding, State::Shaping, State::Stopped];
    let is = |s: State| f64::from(s == status.state);
    let states = states.map(|s| (vec![("state", s.name().to_owned())], is(s)));
    let help = "The state of the session: 1 for the current state, 0 for the others.";
    text.family("onbeat_state", "gauge", help, &states);
    let lost = f64::from(status.guard.lost);
    text.gauge("onbeat_guard_lost", "1 if the guard has ended.", lost);
    let missing = status.missing.len() as f64;
    let help = "Callbacks that the session has not found yet.";
    text.gauge("onbeat_missing_callbacks", help, missing);
    let threads =
        |s: &super::ServerStatus| (vec![("server", s.name.clone())], s.threads.len() as f64);
    let threads: Vec<_> = status.servers.iter().map(threads).collect();
    text.family("onbeat_threads", "gauge", "Threads of a server.", &threads);
}

fn counts(status: &Status, text: &mut Text) {
    let (c, guard) = (&status.counts, &status.guard);
    for (name, help, value) in [
        ("cycles", "Cycles of the dispatcher.", c.cycles),
        ("executions", "Executions of all chains.", c.executions),
        (
            "late_outputs",
            "Outputs that missed the last slot of their cycle.",
            c.late,
        ),
        (
            "discarded_outputs",
            "Outputs that were discarded.",
            c.discarded,
        ),
        (
            "cycles_without_output",
            "Cycles without an output, of the chain with the most such cycles.",
            c.without_output,
        ),
        (
            "skipped_slots",
            "Slots that were over before the dispatcher woke up.",
            c.skipped_slots,
        ),
        (
            "slips",
            "Slips: inputs that came twice in a cycle, or not at all in a cycle, although their interval was normal.",
            c.slips,
        ),
        (
            "lost_reports",
            "Reports of the shaper that were lost.",
            c.lost_reports,
        ),
        (
            "opened_by_guard",
            "Number of times that the guard opened all gates because the dispatcher did not run.",
            guard.opened,
        ),
        (
            "guard_silent",
            "Number of times that the dispatcher opened all gates because the guard did not run.",
            guard.silent,
        ),
        (
            "refused_plans",
            "New plans that the session refused.",
            status.plan.refused,
        ),
    ] {
        let name = format!("onbeat_{name}_total");
        text.family(&name, "counter", help, &[(vec![], value as f64)]);
    }
}

fn plans(status: &Status, text: &mut Text) {
    let number = status.plan.number as f64;
    let help = "Plans that were in force, including the current plan.";
    text.gauge("onbeat_plan_number", help, number);
    for (name, help, of) in [
        (
            "onbeat_earlier_plan_executions",
            "Executions under an earlier plan.",
            (|p| p.executions) as fn(&PlanCounts) -> u64,
        ),
        (
            "onbeat_earlier_plan_late_outputs",
            "Late outputs under an earlier plan.",
            |p| p.late,
        ),
        (
            "onbeat_earlier_plan_cycles_without_output",
            "Cycles without an output under an earlier plan.",
            |p| p.without_output,
        ),
    ] {
        let sample = |p: &PlanCounts| (vec![("plan", p.number.to_string())], of(p) as f64);
        let samples: Vec<_> = status.plan.earlier.iter().map(sample).collect();
        text.family(name, "gauge", help, &samples);
    }
}

fn times(status: &Status, text: &mut Text) {
    let seconds = |ns: u64| ns as f64 / 1e9;
    if let Some(ns) = status.shaping_ns {
        let help = "Time since shaping began.";
        text.gauge("onbeat_shaping_seconds", help, seconds(ns));
    }
    let d = &status.dispatcher;
    let lateness = [
        ("0.5", d.p50_ns),
        ("0.99", d.p99_ns),
        ("0.999", d.p999_ns),
        ("1", d.max_ns),
    ];
    let lateness = lateness.map(|(q, ns)| (vec![("quantile", q.to_owned())], seconds(ns)));
    let (name, help) = (
        "onbeat_dispatcher_lateness_seconds",
        "How late the dispatcher woke up, by quantile.",
    );
    text.family(name, "gauge", help, &lateness);
}

fn promises(status: &Status, text: &mut Text) {
    for (unit, name, scale) in [("ms", "seconds", 1e-3), ("%", "ratio", 1e-2)] {
        let of = status.promises.iter().filter(|p| p.unit == unit);
        let labels = |p: &super::Promise| vec![("promise", p.name.to_owned())];
        let promised = of.clone().map(|p| (labels(p), p.promised * scale));
        let promised: Vec<_> = promised.collect();
        let full = format!("onbeat_promised_{name}");
        text.family(
            &full,
            "gauge",
            "The value that the plan promises, for each promise.",
            &promised,
        );
        let measured = of.filter_map(|p| Some((labels(p), p.measured? * scale)));
        let measured: Vec<_> = measured.collect();
        let full = format!("onbeat_measured_{name}");
        text.family(
            &full,
            "gauge",
            "The value measured so far, for each promise.",
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
