//! Writes the metrics as text: OpenMetrics for HTTP, and the older plain format, which the node
//! exporter's textfile collector reads.

use crate::watch::Counters;
use onbeat_check::{Finding, Verdict};
use onbeat_document::text::{shorten, visible};
use onbeat_live::view::{Times, View};
use onbeat_live::window::Span;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The greatest number of series per metric. Further series are left out and counted.
const SERIES_MAX: usize = 1000;

/// The greatest length of a label, in characters.
const LABEL_MAX: usize = 250;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Plain,
}

impl Style {
    pub fn content_type(self) -> &'static str {
        match self {
            Style::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Style::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

pub struct Figures<'a> {
    pub view: &'a View,
    pub span: Span,
    pub findings: &'a [Finding],
    pub counters: &'a Counters,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Summary,
}

impl Kind {
    fn text(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
        }
    }
}

struct Text {
    style: Style,
    out: String,
    name: &'static str,
    kind: Kind,
    seen: BTreeSet<String>,
    left_out: u64,
}

type Labels<'a> = &'a [(&'static str, &'a str)];

impl Text {
    fn new(style: Style) -> Text {
        Text {
            style,
            out: String::new(),
            name: "",
            kind: Kind::Gauge,
            seen: BTreeSet::new(),
            left_out: 0,
        }
    }

    fn begin(&mut self, name: &'static str, kind: Kind, help: &str) {
        // In the plain format, a counter's name has the suffix of its samples.
        let suffix = match (self.style, kind) {
            (Style::Plain, Kind::Counter) => "_total",
            _ => "",
        };
        let _ = write!(
            self.out,
            "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {}\n",
            kind.text()
        );
        let unit = ["seconds", "ratio"]
            .into_iter()
            .find(|unit| name.ends_with(&format!("_{unit}")));
        if let Some(unit) = unit.filter(|_| self.style == Style::OpenMetrics) {
            let _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
        self.name = name;
        self.kind = kind;
        self.seen.clear();
    }

    /// Returns whether a series is new and finds room. Two hostile names can have one label.
    fn admits(&mut self, labels: &str) -> bool {
        let fits = self.seen.len() < SERIES_MAX && self.seen.insert(labels.into());
        self.left_out += u64::from(!fits);
        fits
    }

    fn line(&mut self, suffix: &str, labels: &str, value: f64) {
        let name = self.name;
        let braces = match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let _ = writeln!(self.out, "{name}{suffix}{braces} {value}");
    }

    fn value(&mut self, labels: Labels<'_>, value: f64) {
        let labels = labels_text(labels);
        if self.admits(&labels) {
            let suffix = match self.kind {
                Kind::Counter => "_total",
                Kind::Gauge | Kind::Summary => "",
            };
            self.line(suffix, &labels, value);
        }
    }

    fn count(&mut self, labels: Labels<'_>, value: u64) {
        self.value(labels, value as f64);
    }

    /// Writes quantiles of a span, and the number of values since the start.
    fn summary(&mut self, labels: Labels<'_>, times: &Times, count: u64) {
        let labels = labels_text(labels);
        if !self.admits(&labels) {
            return;
        }
        for (quantile, ns) in [
            ("0.5", times.p50_ns),
            ("0.99", times.p99_ns),
            ("1", times.max_ns),
        ] {
            let value = match times.count {
                0 => f64::NAN,
                _ => ns as f64 / 1e9,
            };
            self.line("", &format!("{labels},quantile=\"{quantile}\""), value);
        }
        self.line("_count", &labels, count as f64);
    }
}

/// Formats labels. Names from traced processes cannot end a label or a line.
fn labels_text(labels: Labels<'_>) -> String {
    let texts = labels.iter().map(|(name, value)| {
        let value = visible(&shorten(value, LABEL_MAX));
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name}=\"{value}\"")
    });
    texts.collect::<Vec<_>>().join(",")
}

pub fn text(figures: &Figures<'_>, style: Style) -> String {
    let mut text = Text::new(style);
    requirements(&mut text, figures.findings);
    incidents(&mut text, figures.counters);
    chains(&mut text, figures);
    callbacks(&mut text, figures);
    topics(&mut text, figures.view);
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
            "Nodes that were forgotten, because their processes ended more than an hour ago.",
            view.forgotten_nodes,
        ),
        (
            "onbeat_processes_left_out",
            "Processes whose later events are left out, because they created too many names and callbacks.",
            view.left_out_processes,
        ),
        (
            "onbeat_values_left_out",
            "Values that found no room because too many names exist.",
            view.left_out,
        ),
    ] {
        text.begin(name, Kind::Counter, help);
        text.count(&[], value);
    }
    text.begin(
        "onbeat_watched_seconds",
        Kind::Gauge,
        "Time between the first and the latest event.",
    );
    text.value(&[], view.elapsed_ns as f64 / 1e9);
    let left_out = text.left_out;
    text.begin(
        "onbeat_series_left_out",
        Kind::Gauge,
        "Series that these metrics leave out, because there are too many or their labels are equal.",
    );
    text.count(&[], left_out);
    if style == Style::OpenMetrics {
        text.out.push_str("# EOF\n");
    }
    text.out
}

fn requirements(text: &mut Text, findings: &[Finding]) {
    for (name, help, verdict) in [
        (
            "onbeat_requirement_violated",
            "1 if the requirement is violated in the window.",
            Verdict::Violated,
        ),
        (
            "onbeat_requirement_passed",
            "1 if the requirement holds in the window, with the confidence that is asked for.",
            Verdict::Passed,
        ),
    ] {
        text.begin(name, Kind::Gauge, help);
        for finding in findings {
            let labels = [
                ("requirement", finding.requirement.as_str()),
                ("id", finding.id.as_str()),
                ("subject", finding.subject.as_str()),
            ];
            text.count(&labels, u64::from(finding.verdict == verdict));
        }
    }
}

fn incidents(text: &mut Text, counters: &Counters) {
    text.begin("onbeat_incidents", Kind::Counter, "Incidents that began.");
    text.count(&[], counters.incidents);
    text.begin(
        "onbeat_incidents_open",
        Kind::Gauge,
        "Incidents that go on.",
    );
    text.count(&[], counters.open);
    text.begin(
        "onbeat_late_executions",
        Kind::Counter,
        "Executions of chains beyond their deadlines.",
    );
    text.count(&[], counters.late);
    text.begin(
        "onbeat_incidents_saved",
        Kind::Counter,
        "Incidents that were saved.",
    );
    text.count(&[], counters.saved);
    text.begin(
        "onbeat_incidents_not_saved",
        Kind::Counter,
        "Incidents that were not saved.",
    );
    text.count(&[("reason", "rate")], counters.not_saved_rate);
    text.count(&[("reason", "busy")], counters.not_saved_busy);
    text.count(&[("reason", "failed")], counters.not_saved_failed);
    text.begin(
        "onbeat_incidents_removed",
        Kind::Counter,
        "Saved incidents that were removed because the directory was full.",
    );
    text.count(&[], counters.removed);
    text.begin(
        "onbeat_programs",
        Kind::Counter,
        "Starts of the program for incidents.",
    );
    text.count(&[("result", "started")], counters.programs_started);
    text.count(&[("result", "left_out")], counters.programs_left_out);
    text.begin(
        "onbeat_reloads",
        Kind::Counter,
        "Times that the requirements were read again.",
    );
    text.count(&[("result", "done")], counters.reloads);
    text.count(&[("result", "failed")], counters.reloads_failed);
}

fn chains(text: &mut Text, figures: &Figures<'_>) {
    let chains = &figures.view.chains;
    text.begin(
        "onbeat_chain_latency_seconds",
        Kind::Summary,
        "Time from the first callback's start to the output: quantiles in the window, count since the start.",
    );
    for row in chains {
        let labels = [("id", row.id.as_str()), ("chain", row.title.as_str())];
        let times = row.latency.get(figures.span);
        text.summary(&labels, times, row.latency.start.count);
    }
    text.begin(
        "onbeat_chain_deadline_seconds",
        Kind::Gauge,
        "Largest latency that the requirements allow.",
    );
    for row in chains {
        if let Some(deadline) = row.deadline_ns {
            let labels = [("id", row.id.as_str()), ("chain", row.title.as_str())];
            text.value(&labels, deadline as f64 / 1e9);
        }
    }
    text.begin(
        "onbeat_chain_lost_items",
        Kind::Counter,
        "Items on the chain's edges that were never taken.",
    );
    for row in chains {
        let labels = [("id", row.id.as_str()), ("chain", row.title.as_str())];
        text.count(&labels, row.lost.start);
    }
}

fn callbacks(text: &mut Text, figures: &Figures<'_>) {
    let callbacks = &figures.view.callbacks;
    for (name, help) in [
        (
            "onbeat_callback_execution_seconds",
            "Time on the CPU per execution: quantiles in the window, count since the start.",
        ),
        (
            "onbeat_callback_response_seconds",
            "Time from when an execution could run to its end: quantiles in the window, count since the start.",
        ),
    ] {
        text.begin(name, Kind::Summary, help);
        for row in callbacks {
            let times = match name {
                "onbeat_callback_execution_seconds" => &row.exec,
                _ => &row.response,
            };
            let labels = [("callback", row.id.as_str()), ("node", row.node.as_str())];
            text.summary(&labels, times.get(figures.span), times.start.count);
        }
    }
    text.begin(
        "onbeat_callback_load_ratio",
        Kind::Gauge,
        "Share of one CPU in the window.",
    );
    for row in callbacks {
        let labels = [("callback", row.id.as_str()), ("node", row.node.as_str())];
        text.value(&labels, *row.load.get(figures.span));
    }
}

fn topics(text: &mut Text, view: &View) {
    for (name, help) in [
        ("onbeat_topic_taken_items", "Items that were taken."),
        (
            "onbeat_topic_lost_items",
            "Items that were never taken for an unknown reason.",
        ),
        (
            "onbeat_topic_overwritten_items",
            "Items that later ones pushed out of a queue.",
        ),
    ] {
        text.begin(name, Kind::Counter, help);
        for row in &view.topics {
            let value = match name {
                "onbeat_topic_taken_items" => row.taken.start,
                "onbeat_topic_lost_items" => row.lost.start,
                _ => row.overwritten.start,
            };
            text.count(&[("topic", row.name.as_str())], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_live::view::{ChainRow, PerSpan, TopicRow};
    use std::collections::BTreeMap;

    fn chain(id: &str, title: &str) -> ChainRow {
        let times = Times {
            count: 10,
            mean_ns: 5,
            p50_ns: 20_000_000,
            p99_ns: 90_000_000,
            max_ns: 95_500_000,
        };
        ChainRow {
            id: id.into(),
            title: title.into(),
            callbacks: Vec::new(),
            topics: Vec::new(),
            assumed: false,
            latest_ns: None,
            latency: PerSpan {
                last_10s: times,
                last_60s: times,
                start: times,
            },
            lost: PerSpan::default(),
            deadline_ns: Some(80_000_000),
            late: None,
            history_ns: Vec::new(),
            parts: Vec::new(),
            late_execution: None,
        }
    }

    fn topic(name: &str) -> TopicRow {
        TopicRow {
            name: name.into(),
            publishers: Vec::new(),
            subscribers: Vec::new(),
            rate_hz: None,
            taken: PerSpan::default(),
            transport: PerSpan::default(),
            latency: PerSpan::default(),
            lost: PerSpan::default(),
            overwritten: PerSpan::default(),
        }
    }

    fn shown(view: &View, style: Style) -> String {
        let figures = Figures {
            view,
            span: Span::Minute,
            findings: &[],
            counters: &Counters::default(),
        };
        text(&figures, style)
    }

    /// Splits a line into its name, its labels and its value, as Prometheus does. Panics if the line
    /// is not one of the format.
    fn parsed(line: &str) -> (String, BTreeMap<String, String>, f64) {
        let end = line.find(['{', ' ']).expect("a name");
        let (name, mut rest) = line.split_at(end);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(name.chars().all(is_name) && !name.is_empty(), "{line}");
        let mut labels = BTreeMap::new();
        if let Some(mut inner) = rest.strip_prefix('{') {
            loop {
                let (label, after) = inner.split_once("=\"").expect("a label");
                assert!(label.chars().all(is_name), "{line}");
                let (mut value, mut chars) = (String::new(), after.chars());
                loop {
                    match chars.next().expect("the end of the label") {
                        '"' => break,
                        '\\' => value.push(chars.next().expect("an escaped character")),
                        c => value.push(c),
                    }
                }
                assert!(labels.insert(label.to_string(), value).is_none(), "{line}");
                inner = chars.as_str();
                match inner.strip_prefix(',') {
                    Some(more) => inner = more,
                    None => break,
                }
            }
            rest = inner.strip_prefix('}').expect("the end of the labels");
        }
        let value = rest.strip_prefix(' ').expect("a value");
        (name.to_string(), labels, value.parse().expect("a number"))
    }

    #[test]
    fn hostile_names_stay_within_their_labels_and_series_stay_distinct() {
        let evil = "a\"} 1\nonbeat_incidents_total{x=\"\\\u{202e}\u{1b}[2J";
        let many = (0..3000).map(|i| topic(&format!("/t{i}")));
        let view = View {
            chains: vec![
                chain("chain-1", evil),
                chain("chain-1", evil),
                chain("chain-2", &"x".repeat(100_000)),
            ],
            topics: many.collect(),
            ..View::default()
        };
        for style in [Style::OpenMetrics, Style::Plain] {
            let text = shown(&view, style);
            let mut seen = BTreeSet::new();
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                let (name, labels, _) = parsed(line);
                assert!(line.len() < 2000 && !line.contains(char::is_control));
                assert!(seen.insert((name, labels)), "{line}");
            }
            let incidents = |line: &&str| line.starts_with("onbeat_incidents_total");
            assert_eq!(text.lines().filter(incidents).count(), 1);
            // Two thousand of each of the three counters of topics, and one chain thrice.
            assert!(
                text.contains("onbeat_series_left_out 6003\n"),
                "{text:.200}"
            );
        }
    }

    #[test]
    fn the_dashboard_asks_only_for_metrics_and_labels_that_exist() {
        let dashboard = include_str!("../../../../packaging/grafana/onbeat-monitor.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).expect("JSON");
        let view = View {
            chains: vec![chain("chain-1", "a")],
            topics: vec![topic("/t")],
            ..View::default()
        };
        let text = shown(&view, Style::Plain);
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let known: BTreeSet<&str> = types.filter_map(|line| line.split(' ').next()).collect();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut metrics = BTreeSet::new();
        let panels = dashboard["panels"].as_array().expect("panels");
        for target in panels
            .iter()
            .flat_map(|p| p["targets"].as_array().expect("targets"))
        {
            let expr = target["expr"].as_str().expect("an expression");
            let words = expr.split(|c| !is_part(c));
            for metric in words.filter(|word| word.starts_with("onbeat_")) {
                assert!(known.contains(metric), "{metric}");
                metrics.insert(metric);
                let legend = target["legendFormat"].as_str().expect("a legend");
                let label = legend.split_once("{{").and_then(|l| l.1.split_once("}}"));
                // The test's view has no callbacks.
                let has_rows = !metric.starts_with("onbeat_callback");
                if let Some((label, _)) = label.filter(|_| has_rows) {
                    let mut lines = text.lines().filter(|line| line.starts_with(metric));
                    let label = format!("{label}=\"");
                    assert!(lines.all(|line| line.contains(&label)), "{metric} {label}");
                }
            }
        }
        assert!(metrics.len() > 10, "{metrics:?}");
    }

    #[test]
    fn both_formats_name_counters_as_their_readers_expect() {
        let view = View {
            chains: vec![chain("chain-1", "a")],
            ..View::default()
        };
        let open = shown(&view, Style::OpenMetrics);
        assert!(open.contains("# TYPE onbeat_incidents counter\n"));
        assert!(open.contains("# UNIT onbeat_chain_latency_seconds seconds\n"));
        assert!(open.contains(
            "onbeat_chain_latency_seconds{id=\"chain-1\",chain=\"a\",quantile=\"1\"} 0.0955\n"
        ));
        assert!(open.ends_with("\n# EOF\n"));
        let plain = shown(&view, Style::Plain);
        assert!(plain.contains("# TYPE onbeat_incidents_total counter\n"));
        assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"));
        assert_eq!(plain.matches("onbeat_incidents_total 0\n").count(), 1);
    }
}
