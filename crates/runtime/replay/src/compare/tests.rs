use super::figures::{Part, ShiftLimit, TopicFindings};
use super::*;
use crate::item::{Stream, StreamId};
use proptest::prelude::*;
use std::collections::VecDeque;

const STAMPED: &str = "builtin_interfaces/Time stamp\nfloat64 x\nuint8[] data\n";
const PLAIN: &str = "float64 x\nuint8[] data\n";
const BEGIN_NS: i64 = 1_700_000_000_000_000_000;
const MS: i64 = 1_000_000;

#[derive(Clone)]
struct Recording {
    streams: Vec<Stream>,
    items: VecDeque<(i64, u32, Vec<u8>)>,
    definition: &'static str,
}

impl Source for Recording {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        Ok(self.items.pop_front().map(|(time_ns, stream, bytes)| {
            payload.extend_from_slice(&bytes);
            Stamp {
                time_ns,
                stream: StreamId(stream),
            }
        }))
    }

    fn damage(&self) -> &[String] {
        &[]
    }

    fn definition(&self, _: &str) -> Option<String> {
        (!self.definition.is_empty()).then(|| self.definition.into())
    }
}

fn recording(topics: u8, definition: &'static str) -> Recording {
    let stream = |n: u8| Stream {
        name: format!("/{}", char::from(b'a' + n)),
        kind: Kind::Ros {
            type_name: "t/msg/T".into(),
            qos: None,
        },
    };
    Recording {
        streams: (0..topics).map(stream).collect(),
        items: VecDeque::new(),
        definition,
    }
}

fn message(stamp_ns: Option<i64>, x: f64, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(ns) = stamp_ns {
        out.extend(((ns / 1_000_000_000) as i32).to_le_bytes());
        out.extend(((ns % 1_000_000_000) as u32).to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(8), 0);
    out.extend(x.to_le_bytes());
    out.extend((data.len() as u32).to_le_bytes());
    out.extend(data);
    [&[0, 1, 0, 0][..], &out].concat()
}

fn rules() -> Rules {
    Rules {
        within_ns: WITHIN_NS,
        ..Rules::default()
    }
}

fn held(expected: &Recording, observed: &Recording, rules: &Rules) -> Compared {
    let observation = Observation {
        has_times: true,
        ..Observation::default()
    };
    let (mut expected, mut observed) = (expected.clone(), observed.clone());
    compare(
        &mut expected,
        &mut observed,
        rules,
        &observation,
        &mut |_| {},
    )
    .expect("compared")
}

/// Returns a recording and its observation, each with two topics of 400 messages. The observed
/// messages of `/b` are 1 ms late, their values are 1 % too large, and each 100th message is
/// missing.
fn changed(definition: &'static str) -> (Recording, Recording) {
    let (mut expected, mut observed) = (recording(2, definition), recording(2, definition));
    for n in 0..400 {
        let time_ns = BEGIN_NS + n * 25 * MS;
        let stamp_ns = (definition == STAMPED).then_some(time_ns - 7 * MS);
        for stream in 0..2 {
            let at_ns = time_ns + i64::from(stream) * 10 * MS;
            let x = 5.0 + (n % 7) as f64;
            expected
                .items
                .push_back((at_ns, stream, message(stamp_ns, x, b"ab")));
            // Noise that is larger than the shift, but has the median 0.
            let noise_ns = ((n * 7919) % 401 - 200) * 20_000;
            let (x, late_ns) = match stream {
                0 => (x, 0),
                _ => (x * 1.01, MS),
            };
            if stream == 0 || n % 100 != 99 {
                observed.items.push_back((
                    at_ns + noise_ns + late_ns,
                    stream,
                    message(stamp_ns, x, b"ab"),
                ));
            }
        }
    }
    observed.items.make_contiguous().sort_by_key(|item| item.0);
    (expected, observed)
}

#[test]
fn a_comparison_finds_each_change_between_two_recordings_and_nothing_else() {
    let limit = ShiftLimit {
        part: Part::P50,
        most_ns: 500_000,
    };
    let rules = Rules {
        shift: vec![limit],
        ..rules()
    };
    for definition in [STAMPED, PLAIN] {
        let (expected, observed) = changed(definition);
        let found = held(&expected, &observed, &rules);
        let [a, b] = &found.topics[..] else {
            panic!("two topics");
        };
        let counts = |t: &TopicFindings| {
            [
                t.expected,
                t.observed,
                t.missing.count,
                t.additional.count,
                t.different,
            ]
        };
        assert_eq!(
            (a.verdict, counts(a)),
            (Verdict::Equal, [400, 400, 0, 0, 0]),
            "{a:#?}"
        );
        assert_eq!(
            (b.verdict, counts(b)),
            (Verdict::Different, [400, 396, 4, 0, 396]),
            "{b:#?}"
        );
        let missing = [99, 199, 299, 399].map(|n| (n * 25 + 10) * MS);
        assert_eq!(b.missing.first_at_ns, missing);
        assert_eq!(b.fields.len(), 1);
        assert_eq!(
            (b.fields[0].path.as_str(), b.fields[0].messages),
            ("x", 396)
        );
        assert!((b.fields[0].largest_relative.unwrap() - 0.01).abs() < 1e-9);
        let shift = b.shift_ns.unwrap();
        assert!((shift.p50 - MS).abs() < 100_000, "{shift:?}");
        assert_eq!(b.shift_exceeded.len(), 1);
        assert_eq!(b.paired_by.stamp > 0, definition == STAMPED);
        assert_eq!(found.verdict, Verdict::Different);
        // Each change is allowed.
        let allowed = Rules {
            tolerances: vec!["1.001%".parse().unwrap()],
            ..Rules::default()
        };
        let b = &held(
            &expected,
            &observed,
            &Rules {
                within_ns: WITHIN_NS,
                ..allowed
            },
        )
        .topics[1];
        assert_eq!(counts(b), [400, 396, 4, 0, 0]);
    }
}

#[test]
fn relative_to_its_input_topic_only_the_output_of_a_slower_callback_is_later() {
    let (mut expected, mut observed) = (recording(3, PLAIN), recording(3, PLAIN));
    for n in 0..200i64 {
        for stream in 0..3 {
            let (at_ns, message) = (
                BEGIN_NS + n * 50 * MS + i64::from(stream) * MS,
                message(None, n as f64, b""),
            );
            expected.items.push_back((at_ns, stream, message.clone()));
            // The machine is slower by 2 ms, and the callback before /b by 1 ms more.
            let late_ns = [2 * MS, 3 * MS, 3 * MS][stream as usize];
            observed.items.push_back((at_ns + late_ns, stream, message));
        }
    }
    let follows = |pairs: &[(&str, &str)]| Rules {
        shift: vec![ShiftLimit {
            part: Part::P50,
            most_ns: 500_000,
        }],
        follows: pairs
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect(),
        ..rules()
    };
    let verdicts = |rules: &Rules| -> Vec<Verdict> {
        held(&expected, &observed, rules)
            .topics
            .iter()
            .map(|t| t.verdict)
            .collect()
    };
    assert_eq!(verdicts(&follows(&[])), [Verdict::Different; 3]);
    let found = verdicts(&follows(&[("/b", "/a"), ("/c", "/b")]));
    assert_eq!(
        found,
        [Verdict::Different, Verdict::Different, Verdict::Equal]
    );
    let (mut a, mut b) = (expected.clone(), observed.clone());
    let error = compare(
        &mut a,
        &mut b,
        &follows(&[("/b", "/z")]),
        &Observation::default(),
        &mut |_| {},
    );
    assert!(error
        .unwrap_err()
        .to_string()
        .contains("/z is not a compared topic"));
}

#[test]
fn a_recording_is_equal_to_itself_also_without_a_definition() {
    let (expected, _) = changed(STAMPED);
    for definition in [STAMPED, "", "wstring x"] {
        let expected = Recording {
            definition,
            ..expected.clone()
        };
        let found = held(&expected, &expected, &rules());
        assert_eq!(found.verdict, Verdict::Equal);
        let notes = &found.topics[0].notes;
        assert_eq!(notes.is_empty(), definition == STAMPED, "{notes:?}");
        let mut other = expected.clone();
        other.items[6].2[12] ^= 1;
        let found = held(&expected, &other, &rules());
        assert_eq!(
            [found.topics[0].different, found.topics[1].different],
            [1, 0]
        );
    }
}

#[test]
fn messages_outside_of_the_observed_time_are_neither_missing_nor_additional() {
    let (mut expected, mut observed) = (recording(1, PLAIN), recording(1, PLAIN));
    for n in 0..100i64 {
        let item = (BEGIN_NS + n * 50 * MS, 0, message(None, n as f64, b""));
        if n < 60 {
            expected.items.push_back(item.clone());
        }
        if (20..90).contains(&n) && n != 30 {
            observed.items.push_back(item);
        }
    }
    let observation = Observation {
        from_ns: Some(BEGIN_NS + 20 * 50 * MS),
        until_ns: Some(BEGIN_NS + 70 * 50 * MS),
        ..Observation::default()
    };
    let found = compare(
        &mut expected,
        &mut observed,
        &rules(),
        &observation,
        &mut |_| {},
    )
    .unwrap();
    let topic = &found.topics[0];
    assert_eq!(
        (topic.missing.count, topic.additional.count),
        (1, 11),
        "{topic:?}"
    );
    assert_eq!(topic.missing.first_at_ns, [10 * 50 * MS]);
    assert_eq!(topic.shift_ns, None);
}

#[test]
fn a_missing_message_that_may_have_been_lost_before_onbeat_gives_the_verdict_not_known() {
    let (expected, _) = changed(PLAIN);
    let mut observed = expected.clone();
    observed.items.remove(7);
    for (unseen, verdict) in [(0, Verdict::Different), (1, Verdict::NotKnown)] {
        let observation = Observation {
            unseen: HashMap::from([("/b".into(), unseen)]),
            ..Observation::default()
        };
        let (mut expected, mut observed) = (expected.clone(), observed.clone());
        let found = compare(
            &mut expected,
            &mut observed,
            &rules(),
            &observation,
            &mut |_| {},
        )
        .unwrap();
        assert_eq!(found.verdict, verdict);
        let text = junit::junit(&found, "a", &|ns| ns.to_string(), &|text| text.into());
        let wanted = match verdict {
            Verdict::NotKnown => "failures=\"0\" errors=\"1\"",
            _ => "failures=\"1\" errors=\"0\"",
        };
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn a_rule_for_an_unknown_field_is_refused_with_a_list_of_the_known_fields() {
    let (expected, observed) = changed(PLAIN);
    let wrong = Rules {
        tolerances: vec!["y=1%".parse().unwrap()],
        ..rules()
    };
    let (mut expected, mut observed) = (expected, observed);
    let error = compare(
        &mut expected,
        &mut observed,
        &wrong,
        &Observation::default(),
        &mut |_| {},
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("'y'") && error.contains("x, data.length"),
        "{error}"
    );
}

#[test]
fn the_memory_of_a_comparison_is_bounded_and_the_report_says_what_this_restricts() {
    // 300 MB within one second, of which the second half of one side is missing.
    let (mut expected, mut observed) = (recording(1, PLAIN), recording(1, PLAIN));
    let data = vec![7; 500_000];
    for n in 0..600i64 {
        let item = (BEGIN_NS + n * MS, 0, message(None, n as f64, &data));
        if n < 300 {
            observed.items.push_back(item.clone());
        }
        expected.items.push_back(item);
    }
    let mut comparison = Comparison::new(&expected, &observed, &rules()).unwrap();
    let mut feeds = [
        Feed::new(&mut expected).unwrap(),
        Feed::new(&mut observed).unwrap(),
    ];
    let mut most = 0;
    while feeds[0].head.is_some() {
        for (side, feed) in [Side::Expected, Side::Observed].into_iter().zip(&mut feeds) {
            comparison.take(side, feed);
            feed.advance().unwrap();
            let held: usize = comparison.topics.iter().map(|t| t.topic.bytes()).sum();
            assert_eq!(held, comparison.bytes);
            most = most.max(held);
        }
    }
    assert!(
        most > MOST_BYTES / 2 && most <= MOST_BYTES + 600_000,
        "{most}"
    );
    let found = comparison.close(&rules(), &Observation::default(), Vec::new());
    let topic = &found.topics[0];
    assert_eq!(
        (topic.paired, topic.missing.count, topic.different),
        (300, 300, 0)
    );
    assert!(
        topic.notes.iter().any(|note| note.contains("memory")),
        "{:?}",
        topic.notes
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Compares recordings of different rates with losses on both sides. Messages are paired by
    /// time stamps or by contents. If all messages are equal, they are paired by times that deviate
    /// by less than a fifth of the period.
    #[test]
    fn exactly_the_lost_messages_are_missing_or_additional(
        period_us in prop_oneof![200i64..2000, 5_000i64..900_000],
        kind in 0..3u8,
        lost in proptest::collection::vec(0u8..20, 1500),
        late_share in -20i64..20,
    ) {
        let definition = if kind == 0 { STAMPED } else { PLAIN };
        let (mut expected, mut observed) = (recording(1, definition), recording(1, definition));
        let mut truth = [0u64; 3];
        for (n, &lost) in lost.iter().enumerate() {
            // Of equal messages, one that is missing and one that is additional beside it are a shifted one.
            let lost = if kind == 2 && lost == 1 { 2 } else { lost };
            let time_ns = BEGIN_NS + n as i64 * period_us * 1000;
            let late_ns = period_us * 1000 * late_share * (n as i64 % 3) / 200;
            let x = if kind == 2 { 1.0 } else { n as f64 };
            let bytes = message((kind == 0).then_some(time_ns), x, b"");
            if lost != 1 { expected.items.push_back((time_ns, 0, bytes.clone())); }
            if lost != 0 { observed.items.push_back((time_ns + late_ns, 0, bytes)); }
            truth[usize::from(lost.min(2))] += 1;
        }
        observed.items.make_contiguous().sort_by_key(|item| item.0);
        let found = held(&expected, &observed, &rules());
        let topic = &found.topics[0];
        prop_assert_eq!([topic.missing.count, topic.additional.count, topic.paired], truth);
        prop_assert_eq!(topic.different, 0);
    }
}
