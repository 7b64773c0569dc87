//! Collects the metrics: families of series, which HTTP, the textfile and OTLP show with the same
//! names and values.

use crate::counters::Counters;
use onbeat_check::{Finding, Verdict};
use onbeat_document::text::{shorten, visible};
use onbeat_live::view::{Times, View};
use onbeat_live::window::Span;
use std::collections::BTreeSet;

/// The largest number of series of one metric. More series are left out and counted.
const SERIES_MAX: usize = 1000;

/// The greatest length of a label, in characters.
const LABEL_MAX: usize = 250;

pub struct Figures<'a> {
    pub view: &'a View,
    pub span: Span,
    pub findings: &'a [Finding],
    pub counters: &'a Counters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Summary,
}

pub struct Family {
    /// The metric's name as in OpenMetrics. The name of a counter has no suffix `_total`.
    pub name: &'static str,
    pub help: &'static str,
    pub kind: Kind,
    pub series: Vec<Series>,
}

impl Family {
    /// Returns the unit at the end of the metric's name: `seconds` or `ratio`.
    pub fn unit(&self) -> Option<&'static str> {
        let is_unit = |unit: &&str| self.name.ends_with(&format!("_{unit}"));
        ["seconds", "ratio"].into_iter().find(is_unit)
    }
}

pub struct Series {
    /// The names and values of the series' labels. The values come from traced processes, so they
    /// were shortened and control characters were removed.
    pub labels: Vec<(&'static str, String)>,
    pub value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    Count(u64),
    Number(f64),
    Summary(Summary),
}

/// Figures of measured times: the quantiles of the times within the window (`--window`), and the
/// number and the sum of all times since the monitor's start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Pairs of a quantile (0 to 1) and its value in s over the times in the window (`--window`).
    /// The value is NaN if no time was measured in the window.
    pub quantiles: [(f64, f64); 3],
    pub count: u64,
    pub sum_s: f64,
}

impl Summary {
    fn of(window: &Times, start: &Times) -> Summary {
        let value = |ns: u64| match window.count {
            0 => f64::NAN,
            _ => ns as f64 / 1e9,
        };
        Summary {
            quantiles: [
                (0.5, value(window.p50_ns)),
                (0.99, value(window.p99_ns)),
                (1.0, value(window.max_ns)),
            ],
            count: start.count,
            sum_s: start.sum_ns as f64 / 1e9,
        }
    }
}

type Labels<'a> = &'a [(&'static str, &'a str)];

#[derive(Default)]
struct Collector {
    families: Vec<Family>,
    seen: BTreeSet<Vec<String>>,
    left_out: u64,
}

impl Collector {
    fn begin(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.families.push(Family {
            name,
            help,
            kind,
            series: Vec::new(),
        });
        self.seen.clear();
    }

    /// Adds a series to the latest metric. If the metric has too many series or already has one
    /// with these labels, counts the series as left out. Two names that a hostile process chose can
    /// become equal labels when they are shortened.
    fn add(&mut self, labels: Labels<'_>, value: Value) {
        let cleaned = |text: &str| visible(&shorten(text, LABEL_MAX)).to_string();
        let values: Vec<String> = labels.iter().map(|(_, value)| cleaned(value)).collect();
        let names = labels.iter().map(|(name, _)| *name);
        let labels = names.zip(values.iter().cloned()).collect();
        let fits = self.seen.len() < SERIES_MAX && self.seen.insert(values);
        self.left_out += u64::from(!fits);
        if let Some(family) = self.families.last_mut().filter(|_| fits) {
            family.series.push(Series { labels, value });
        }
    }

    fn value(&mut self, labels: Labels<'_>, value: f64) {
        self.add(labels, Value::Number(value));
    }

    fn count(&mut self, labels: Labels<'_>, value: u64) {
        self.add(labels, Value::Count(value));
    }

    fn summary(&mut self, labels: Labels<'_>, window: &Times, start: &Times) {
        self.add(labels, Value::Summary(Summary::of(window, start)));
    }
}

pub fn families(figures: &Figures<'_>) -> Vec<Family> {
    let mut all = Collector::default();
    requirements(&mut all, figures.findings);
    incidents(&mut all, figures.counters);
    chains(&mut all, figures);
    callbacks(&mut all, figures);
    topics(&mut all, figures.view);
    let view = figures.view;
    for (name, help, value) in [
        ("onbeat_events", "Events of the recording.", view.events.start),
        (
            "onbeat_events_lost",
            "Events that the recorder lost.",
            view.lost_events.start,
        ),
        (
            "onbeat_forgotten",
            "Callbacks, paths, edges, topics and threads that were forgotten because they had not been seen for long.",
            view.forgotten,
        ),
        (
            "onbeat_forgotten_nodes",
            "Nodes that were forgotten, because they ended more than an hour ago.",
            view.forgotten_nodes,
        ),
        (
            "onbeat_forgotten_callbacks",
            "Callbacks that were forgotten, because their endpoint or timer ended more than an hour ago. Callbacks of forgotten nodes do not count.",
            view.forgotten_callbacks,
        ),
        (
            "onbeat_processes_left_out",
            "Processes whose later events are left out, because they created too many names and callbacks.",
            view.left_out_processes,
        ),
        (
            "onbeat_values_left_out",
            "Measured values left out, because onbeat had reached its maximum number of callbacks, paths, edges, topics or threads.",
            view.left_out,
        ),
    ] {
        all.begin(name, Kind::Counter, help);
        all.count(&[], value);
    }
    all.begin(
        "onbeat_watched_seconds",
        Kind::Gauge,
        "Time between the first and the latest event.",
    );
    all.value(&[], view.elapsed_ns as f64 / 1e9);
    let left_out = all.left_out;
    all.begin(
        "onbeat_series_left_out",
        Kind::Gauge,
        "Series that these metrics leave out, because there are too many or their labels are equal.",
    );
    all.count(&[], left_out);
    all.families
}

fn requirements(all: &mut Collector, findings: &[Finding]) {
    for (name, help, verdict) in [
        (
            "onbeat_requirement_violated",
            "1 if the requirement is violated in the window, otherwise 0.",
            Verdict::Violated,
        ),
        (
            "onbeat_requirement_passed",
            "1 if the requirement holds in the window, with the requested confidence; otherwise 0.",
            Verdict::Passed,
        ),
    ] {
        all.begin(name, Kind::Gauge, help);
        for finding in findings {
            let labels = [
                ("requirement", finding.requirement.as_str()),
                ("id", finding.id.as_str()),
                ("subject", finding.subject.as_str()),
            ];
            all.count(&labels, u64::from(finding.verdict == verdict));
        }
    }
}

fn incidents(all: &mut Collector, counters: &Counters) {
    all.begin("onbeat_incidents", Kind::Counter, "Incidents that began.");
    all.count(&[], counters.incidents);
    all.begin(
        "onbeat_incidents_open",
        Kind::Gauge,
        "Incidents that go on.",
    );
    all.count(&[], counters.open);
    all.begin(
        "onbeat_late_executions",
        Kind::Counter,
        "Chain executions that missed the deadline of their chain.",
    );
    all.count(&[], counters.late);
    all.begin(
        "onbeat_incidents_saved",
        Kind::Counter,
        "Incidents that were saved.",
    );
    all.count(&[], counters.saved);
    all.begin(
        "onbeat_incidents_not_saved",
        Kind::Counter,
        "Incidents that were not saved.",
    );
    all.count(&[("reason", "rate")], counters.not_saved_rate);
    all.count(&[("reason", "busy")], counters.not_saved_busy);
    all.count(&[("reason", "failed")], counters.not_saved_failed);
    all.begin(
        "onbeat_incidents_removed",
        Kind::Counter,
        "Saved incidents that were removed because the directory was full.",
    );
    all.count(&[], counters.removed);
    all.begin(
        "onbeat_programs",
        Kind::Counter,
        "Number of times that the program of --exec was started (result: started), or was due but not started (result: left_out).",
    );
    all.count(&[("result", "started")], counters.programs_started);
    all.count(&[("result", "left_out")], counters.programs_left_out);
    all.begin(
        "onbeat_otlp_exports",
        Kind::Counter,
        "Messages to the OTLP collector. A replaced message was not sent, because the next message was ready before this one could be sent.",
    );
    all.count(&[("result", "sent")], counters.otlp.sent);
    all.count(&[("result", "failed")], counters.otlp.failed);
    all.count(&[("result", "replaced")], counters.otlp.replaced);
    all.begin(
        "onbeat_reloads",
        Kind::Counter,
        "Number of times that the requirements were read again.",
    );
    all.count(&[("result", "done")], counters.reloads);
    all.count(&[("result", "failed")], counters.reloads_failed);
}

fn chains(all: &mut Collector, figures: &Figures<'_>) {
    let chains = &figures.view.chains;
    all.begin(
        "onbeat_chain_latency_seconds",
        Kind::Summary,
        "Time from the first callback's start to the output: quantiles in the window, count and sum since the monitor's start.",
    );
    for row in chains {
        let labels = [("id", row.id.as_str()), ("chain", row.title.as_str())];
        let times = row.latency.get(figures.span);
        all.summary(&labels, times, &row.latency.start);
    }
    all.begin(
        "onbeat_chain_deadline_seconds",
        Kind::Gauge,
        "Latency above which an execution of the chain is late: the strictest limit of the requirements.",
    );
    for row in chains {
        if let Some(deadline) = row.deadline_ns {
            let labels = [("id", row.id.as_str()), ("chain", row.title.as_str())];
            all.value(&labels, deadline as f64 / 1e9);
        }
    }
    all.begin(
        "onbeat_chain_lost_items",
        Kind::Counter,
        "Items on the chain's edges that were never taken.",
    );
    for row in chains {
        let labels = [("id", row.id.as_str()), ("chain", row.title.as_str())];
        all.count(&labels, row.lost.start);
    }
}

fn callbacks(all: &mut Collector, figures: &Figures<'_>) {
    let callbacks = &figures.view.callbacks;
    for (name, help) in [
        (
            "onbeat_callback_execution_seconds",
            "Time on the CPU per execution: quantiles in the window, count and sum since the monitor's start.",
        ),
        (
            "onbeat_callback_response_seconds",
            "Time from the instant at which an execution could run until its end: quantiles in the window, count and sum since the monitor's start.",
        ),
    ] {
        all.begin(name, Kind::Summary, help);
        for row in callbacks {
            let times = match name {
                "onbeat_callback_execution_seconds" => &row.exec,
                _ => &row.response,
            };
            let labels = [("callback", row.id.as_str()), ("node", row.node.as_str())];
            all.summary(&labels, times.get(figures.span), &times.start);
        }
    }
    all.begin(
        "onbeat_callback_load_ratio",
        Kind::Gauge,
        "CPU time of the callback in the window, as a share of one CPU.",
    );
    for row in callbacks {
        let labels = [("callback", row.id.as_str()), ("node", row.node.as_str())];
        all.value(&labels, *row.load.get(figures.span));
    }
}

fn topics(all: &mut Collector, view: &View) {
    for (name, help) in [
        ("onbeat_topic_taken_items", "Items that were taken."),
        (
            "onbeat_topic_lost_items",
            "Items that were never taken. The reason is unknown.",
        ),
        (
            "onbeat_topic_overwritten_items",
            "Items that were not taken because later items took their places in a queue.",
        ),
    ] {
        all.begin(name, Kind::Counter, help);
        for row in &view.topics {
            let value = match name {
                "onbeat_topic_taken_items" => row.taken.start,
                "onbeat_topic_lost_items" => row.lost.start,
                _ => row.overwritten.start,
            };
            all.count(&[("topic", row.name.as_str())], value);
        }
    }
}
