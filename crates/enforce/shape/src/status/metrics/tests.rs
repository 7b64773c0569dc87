//! Tests that check the text with a strict reader of the format.

use super::super::{Promise, ServerStatus};
use super::*;
use std::collections::{BTreeMap, BTreeSet};

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    chars.next().is_some_and(first) && chars.all(|c| first(c) || c.is_ascii_digit())
}

fn labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let mut found = BTreeMap::new();
    let Some(mut rest) = text.strip_prefix('{') else {
        return (found, text);
    };
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label");
        assert!(is_name(name) && !name.starts_with("__"), "{name}");
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next().expect("the label ends") {
                (at, '"') => break at,
                (_, '\\') => match chars.next().expect("an escape").1 {
                    'n' => value.push('\n'),
                    c @ ('\\' | '"') => value.push(c),
                    c => panic!("no escape: {c}"),
                },
                (_, c) => {
                    assert!(c != '\n');
                    value.push(c);
                }
            }
        };
        assert!(
            found.insert(name.to_owned(), value).is_none(),
            "{name} twice"
        );
        let next = &after[end + 1..];
        match next.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (found, next.strip_prefix('}').expect("a brace")),
        }
    }
}

type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// Parses a text and panics if it breaks a rule of Prometheus's format. A family's HELP and TYPE
/// come once, before its samples. A family's samples are adjacent. No sample comes twice. The last
/// line ends with a newline.
fn read(text: &str) -> Samples {
    assert!(text.ends_with('\n'));
    let (mut done, mut current, mut kind) = (BTreeSet::new(), String::new(), String::new());
    let mut samples = Samples::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("help");
            assert!(is_name(name) && !help.is_empty());
            assert!(done.insert(name.to_owned()), "{name} twice");
            (current, kind) = (name.to_owned(), String::new());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').expect("a type");
            assert_eq!(name, current);
            assert!(kind.is_empty() && ["counter", "gauge"].contains(&of));
            kind = of.to_owned();
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        } else {
            let end = line.find(['{', ' ']).expect("a value");
            assert!(line[..end] == current && !kind.is_empty(), "{line}");
            let (labels, rest) = labels(&line[end..]);
            let value: f64 = rest
                .strip_prefix(' ')
                .expect("a blank")
                .parse()
                .expect("a number");
            assert!(kind != "counter" || value >= 0.0);
            let new = samples.insert((current.clone(), labels), value).is_none();
            assert!(new, "{line} twice");
        }
    }
    samples
}

#[test]
fn metrics_follow_the_prometheus_text_format() {
    read(&prometheus(&Status::default()));
    let name = "a \"b\" \\ c\nd".to_owned();
    let mut status = Status {
        state: State::Shaping,
        shaping_ns: Some(1_500_000_000),
        servers: vec![ServerStatus {
            name: name.clone(),
            threads: vec![(1, "x".into()), (2, "y".into())],
            ..ServerStatus::default()
        }],
        promises: vec![
            Promise {
                name: "average",
                unit: "ms",
                promised: 71.5,
                measured: Some(70.0),
                kept: None,
            },
            Promise {
                name: "cycles with an output",
                unit: "%",
                promised: 100.0,
                measured: None,
                kept: None,
            },
        ],
        ..Status::default()
    };
    status.counts.late = u64::MAX;
    let samples = read(&prometheus(&status));
    let of = |metric: &str, label: Option<(&str, &str)>| {
        let labels = label
            .map(|(n, v)| (n.to_owned(), v.to_owned()))
            .into_iter()
            .collect();
        samples.get(&(metric.to_owned(), labels)).copied()
    };
    assert_eq!(of("onbeat_threads", Some(("server", &name))), Some(2.0));
    assert_eq!(of("onbeat_shaping_seconds", None), Some(1.5));
    assert_eq!(of("onbeat_state", Some(("state", "shaping"))), Some(1.0));
    assert_eq!(
        of("onbeat_measured_seconds", Some(("promise", "average"))),
        Some(0.07)
    );
    assert_eq!(
        of(
            "onbeat_promised_ratio",
            Some(("promise", "cycles with an output"))
        ),
        Some(1.0)
    );
    assert_eq!(
        of(
            "onbeat_measured_ratio",
            Some(("promise", "cycles with an output"))
        ),
        None
    );
    assert_eq!(of("onbeat_late_outputs_total", None), Some(u64::MAX as f64));
}
