use super::*;
use crate::compare::Comparison;
use crate::kind::{Kind, Reason};
use crate::overview::{Bin, Overview};
use crate::stretch::{Culprit, During, Stretch};
use onbeat_document::schema::{Component, ComponentKind};
use proptest::prelude::*;
use serde_json::Value;

const START: u64 = 1_000_000;

fn component(name: &str) -> Component {
    Component {
        kind: ComponentKind::Thread,
        nodes: vec![name.into()],
        process: name.into(),
        thread: name.into(),
    }
}

fn execution(start: u64, limit: u64, parts: &[(usize, u64)], place: &str) -> Execution {
    let mut begin_ns = 0;
    let stretches = parts.iter().enumerate().map(|(i, &(kind, ns))| {
        let kind = Kind::ALL[kind % Kind::ALL.len()];
        let by = match kind {
            Kind::Executor | Kind::Inputs => Some(Culprit::Callback(format!("{place}:other"))),
            Kind::Preempted => Some(Culprit::Thread(component(place))),
            Kind::Sleeps => Some(Culprit::MutexOf(component(place))),
            _ => None,
        };
        let during = (ns % 2 == 0 && by.is_some()).then(|| During {
            kind: Kind::Queued,
            by: Some(Culprit::WokenBy(component(place))),
        });
        begin_ns += ns;
        Stretch {
            begin_ns: begin_ns - ns,
            ns,
            place: if i % 5 == 4 {
                format!("{place}/2")
            } else {
                place.into()
            },
            kind,
            by,
            during,
            reason: (kind == Kind::Unknown).then_some(Reason::LostEvents),
            cpu: (kind == Kind::Runs).then_some(1),
        }
    });
    let stretches: Vec<Stretch> = stretches.collect();
    Execution {
        start_ns: START + start,
        latency_ns: begin_ns,
        late: begin_ns > limit,
        stretches,
    }
}

fn explanation(limit_ns: u64, executions: Vec<Execution>, count: u64) -> Explanation {
    Explanation {
        limit_ns,
        count,
        longest_ns: executions.iter().map(|e| e.latency_ns).max().unwrap_or(0),
        executions,
        left_out: 0,
        unknown_share: 0.0,
        nearest_ns: None,
        comparison: Some(Comparison {
            late: 1,
            others: 9,
            late_mean_ns: 2e6,
            others_mean_ns: 1e6,
            findings: Vec::new(),
            together: Vec::new(),
        }),
        overview: Overview {
            width_ns: 10,
            bins: vec![Bin {
                start_ns: START + 10,
                count: 3,
                min_ns: 1,
                max_ns: 2,
            }],
        },
    }
}

fn page(explanation: &Explanation, title: &str) -> String {
    let page = Page {
        title,
        id: Some(title),
        callbacks: &[title.to_string(), "/never/reached".into()],
        notes: &[format!("A note on {title}.")],
        start_monotonic_ns: START,
        start_realtime_ns: 1_700_000_000_000_000_000,
        at_ns: Some(START + 5),
        explanation,
    };
    page.html(&|at| format!("{at} of {title}")).unwrap()
}

fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    assert_eq!(page.matches(from).count(), 1, "{from}");
    let rest = page.split_once(from).unwrap().1;
    rest.split_once(to).unwrap().0
}

#[test]
fn a_call_in_which_a_callback_slept_is_named_and_gets_no_lane() {
    let mut slept = execution(0, 0, &[(5, 9)], "/p");
    slept.stretches[0].kind = Kind::Sleeps;
    slept.stretches[0].by = Some(Culprit::Call(onbeat_trace::CallKind::Sync));
    slept.stretches[0].during = None;
    let data = data(&page(&explanation(100, vec![slept], 1), "/p"));
    let cause = &data["causes"][0];
    let text = cause[2].as_u64().unwrap() as usize;
    assert_eq!(data["names"][text], "sleeps in fsync");
    assert_eq!(cause[3], -1);
}

fn data(page: &str) -> Value {
    let json = between(
        page,
        "<script type=\"application/json\" id=\"data\">",
        "</script>",
    );
    serde_json::from_str(json).unwrap()
}

#[test]
fn the_pages_security_policy_allows_only_its_own_script_and_styles() {
    let explanation = explanation(5, vec![execution(0, 5, &[(0, 9)], "/a")], 1);
    let page = page(&explanation, "/a");
    let policy = between(&page, "Content-Security-Policy\" content=\"", "\"");
    let script = between(&page, "<script>", "</script>");
    let style = between(&page, "<style>", "</style>");
    assert_eq!(
        policy,
        format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
            hash(script),
            hash(style)
        )
    );
    // The digest of the empty text, as `openssl dgst -sha256 -binary | base64` prints it.
    assert_eq!(
        hash(""),
        "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
    );
    for loading in [
        "http:",
        "https:",
        "src=",
        "import ",
        "@import",
        "url(",
        "style=",
        "innerHTML",
        "fetch(",
    ] {
        assert!(!page.contains(loading), "{loading}");
    }
}

#[test]
fn names_in_the_page_never_become_html() {
    let long = "x</script>".repeat(1_000);
    for name in [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "<img src=x onerror=alert(1)>",
        "\"'&><b>\u{0}\u{1b}[31m\u{2028}\u{202e}",
        "]]>",
        &long,
    ] {
        let kinds: Vec<(usize, u64)> = (0..11).map(|k| (k, 100)).collect();
        let explanation = explanation(5, vec![execution(0, 5, &kinds, name)], 1);
        let page = page(&explanation, name);
        assert_eq!(page.matches("<script").count(), 2, "{name}");
        assert_eq!(page.matches("</script").count(), 2, "{name}");
        assert!(!page.contains("<img") && !page.contains("<!--") && !page.contains("<b>"));
        let outside = page.replace(between(&page, "id=\"data\">", "</script>"), "");
        assert!(!outside.contains(['\u{0}', '\u{1b}', '\u{2028}', '\u{202e}']));
        // The data has the whole name.
        let data = data(&page);
        let names = data["names"].as_array().unwrap();
        assert!(names.iter().any(|n| n == name), "{name}");
    }
}

#[test]
fn without_javascript_the_page_lists_the_longest_executions_and_their_explanation() {
    let executions = (1..=9).map(|i| execution(i * 50, 80, &[(0, 10 * i), (2, 5)], "/a"));
    let explanation = explanation(80, executions.collect(), 20);
    let page = page(&explanation, "/a");
    let tables = between(&page, "<details id=\"tables\" open>", "</details>");
    assert_eq!(tables.matches("<caption>").count(), TABLES_WITHOUT_SCRIPTS);
    assert!(
        tables.contains("<caption>95 ns at 1000450 of /a, late</caption>"),
        "{tables}"
    );
    assert!(tables.contains("preempted by"));
    assert!(page.contains(&xml(&explanation.comparison.as_ref().unwrap().sentence())));
    assert!(page.contains("The stretches of 9 executions are on this page. The other 11"));
    let empty = super::tests::explanation(80, Vec::new(), 0);
    let page = super::tests::page(&empty, "/a");
    assert!(page.contains("No execution was found."));
    assert_eq!(data(&page)["places"].as_array().unwrap().len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_page_contains_all_data_of_the_explanation(
        parts in proptest::collection::vec(
            (0u64..1 << 40, proptest::collection::vec((0usize..11, 0u64..1 << 30), 1..12), "[a-c<>\"\u{1}]{0,3}"),
            0..12,
        ),
        limit in 0u64..1 << 32,
    ) {
        let mut executions: Vec<Execution> =
            parts.iter().map(|(start, parts, place)| execution(*start, limit, parts, place)).collect();
        let explanation = explanation(limit, executions.clone(), 100);
        let data = data(&page(&explanation, "/a"));
        let number = |value: &Value| value.as_i64().unwrap();
        let name = |value: &Value| usize::try_from(number(value)).ok().map(|n| data["names"][n].as_str().unwrap());
        executions.sort_by_key(|e| (e.start_ns, e.latency_ns));
        let mut stretches = data["stretches"].as_array().unwrap().chunks(2);
        let packed = data["executions"].as_array().unwrap();
        prop_assert_eq!(packed.len(), 3 * executions.len());
        for (e, packed) in executions.iter().zip(packed.chunks(3)) {
            prop_assert_eq!(packed[0].as_u64(), Some(e.start_ns - START));
            prop_assert_eq!(packed[1].as_u64(), Some(e.latency_ns));
            prop_assert_eq!(packed[2].as_u64(), Some(e.stretches.len() as u64));
            prop_assert_eq!(e.late, e.latency_ns > data["limit_ns"].as_u64().unwrap());
            let mut begin_ns = 0;
            for s in &e.stretches {
                let packed = stretches.next().unwrap();
                let cause = &data["causes"][packed[0].as_u64().unwrap() as usize];
                prop_assert_eq!((begin_ns, packed[1].as_u64()), (s.begin_ns, Some(s.ns)));
                begin_ns += s.ns;
                let kind = &data["kinds"][number(&cause[0]) as usize]["key"];
                prop_assert_eq!(kind, &serde_json::to_value(s.kind).unwrap());
                let place = &data["places"][number(&cause[1]) as usize];
                prop_assert_eq!(name(place), Some(s.place.as_str()));
                let text = s.text();
                prop_assert_eq!(name(&cause[2]), Some(text.as_str()));
                prop_assert_eq!(name(&cause[3]).map(String::from), s.by.as_ref().map(Culprit::text));
                prop_assert_eq!(number(&cause[4]) >= 0, s.during.is_some());
                prop_assert_eq!(name(&cause[5]).map(String::from), s.during.as_ref().map(During::text));
            }
        }
        prop_assert!(stretches.next().is_none());
    }
}

#[test]
fn rows_of_the_page_follow_the_order_of_the_chain() {
    let mut one = execution(0, 5, &[(0, 1), (0, 1), (0, 1)], "/c");
    for (stretch, place) in one.stretches.iter_mut().zip(["/a", "/sync", "/b"]) {
        stretch.place = place.into();
    }
    let callbacks = ["/a".to_string(), "/b".into()];
    let explanation = explanation(5, vec![one], 1);
    let page = Page {
        title: "t",
        id: None,
        callbacks: &callbacks,
        notes: &[],
        start_monotonic_ns: 0,
        start_realtime_ns: 0,
        at_ns: None,
        explanation: &explanation,
    };
    let data = data(&page.html(&|_| String::new()).unwrap());
    let name = |n: &Value| data["names"][n.as_u64().unwrap() as usize].clone();
    let rows: Vec<Value> = data["places"]
        .as_array()
        .unwrap()
        .iter()
        .map(name)
        .collect();
    assert_eq!(rows, ["/a", "/sync", "/b"]);
    assert_eq!(data["at_ns"], Value::Null);
}
