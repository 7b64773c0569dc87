//! Writes the metrics as text: OpenMetrics for HTTP, and the older plain format, which the node
//! exporter's textfile collector reads.

use crate::metrics::{Family, Kind, Series, Value};
use std::fmt::Write as _;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    OpenMetrics,
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

pub fn text(families: &[Family], style: Style) -> String {
    let mut out = String::new();
    for family in families {
        header(&mut out, family, style);
        for series in &family.series {
            lines(&mut out, family, series);
        }
    }
    if style == Style::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn header(out: &mut String, family: &Family, style: Style) {
    let (name, help) = (family.name, family.help);
    // In the plain format, a counter's name has the suffix of its samples.
    let suffix = match (style, family.kind) {
        (Style::Plain, Kind::Counter) => "_total",
        _ => "",
    };
    let kind = match family.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Summary => "summary",
    };
    let _ = write!(
        out,
        "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"
    );
    if let Some(unit) = family.unit().filter(|_| style == Style::OpenMetrics) {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
}

fn lines(out: &mut String, family: &Family, series: &Series) {
    let name = family.name;
    let labels = labels_text(&series.labels);
    let braces = match labels.as_str() {
        "" => String::new(),
        labels => format!("{{{labels}}}"),
    };
    let suffix = match family.kind {
        Kind::Counter => "_total",
        Kind::Gauge | Kind::Summary => "",
    };
    let _ = match &series.value {
        Value::Count(value) => writeln!(out, "{name}{suffix}{braces} {value}"),
        Value::Number(value) => writeln!(out, "{name}{suffix}{braces} {value}"),
        Value::Summary(summary) => {
            for (quantile, value) in summary.quantiles {
                let _ = writeln!(out, "{name}{{{labels},quantile=\"{quantile}\"}} {value}");
            }
            let (count, sum) = (summary.count, summary.sum_s);
            write!(
                out,
                "{name}_count{braces} {count}\n{name}_sum{braces} {sum}\n"
            )
        }
    };
}

/// Formats the labels of a series for the exposition. Escapes the values, which contain names from
/// traced processes, so that they cannot end a label or a line.
fn labels_text(labels: &[(&'static str, String)]) -> String {
    let texts = labels.iter().map(|(name, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name}=\"{value}\"")
    });
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use crate::metrics::{families, Figures};
    use onbeat_live::view::{ChainRow, PerSpan, Times, TopicRow, View};
    use onbeat_live::window::Span;
    use std::collections::{BTreeMap, BTreeSet};

    fn chain(id: &str, title: &str) -> ChainRow {
        let times = Times {
            count: 10,
            sum_ns: 250_000_000,
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
        text(&families(&figures), style)
    }

    /// Splits a line of metrics into its name, its labels and its value, as Prometheus does. Panics
    /// if the line does not follow the format.
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
    fn both_formats_of_metrics_name_counters_as_their_readers_expect() {
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
        assert!(
            open.contains("onbeat_chain_latency_seconds_sum{id=\"chain-1\",chain=\"a\"} 0.25\n")
        );
        assert!(open.ends_with("\n# EOF\n"));
        let plain = shown(&view, Style::Plain);
        assert!(plain.contains("# TYPE onbeat_incidents_total counter\n"));
        assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"));
        assert_eq!(plain.matches("onbeat_incidents_total 0\n").count(), 1);
    }
}
