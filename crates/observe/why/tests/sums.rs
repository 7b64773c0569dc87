//! The law of this crate: the stretches of each execution follow one another without gap or
//! overlap, and add up to the latency that the model has for it.

#[allow(dead_code)]
#[path = "../../synth/tests/random/mod.rs"]
mod random;

use onbeat_document::cuts::Cut;
use onbeat_document::schema::{Component, Run};
use onbeat_document::Model;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{generate, CallKind, Event, EventKind, Reader, Writer, WriterOptions};
use onbeat_why::every::{self, Copied, CulpritId, Every, Watch};
use onbeat_why::once::Once;
use onbeat_why::{compare, Choice, Explanation, Question, Target, Why};
use proptest::prelude::*;
use random::{any_event, round, system};
use serde_json::{json, Value};
use std::collections::VecDeque;
use std::io::Cursor;
use std::path::Path;

fn run() -> Run {
    Run {
        host: String::new(),
        boot: String::new(),
        id: "r".into(),
        mode: "x".into(),
        distribution: Vec::new(),
        start: 1,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    }
}

fn model(events: &[Event], mut options: SynthOptions) -> (Model, SynthOptions) {
    let pass = |options: &SynthOptions| {
        let mut synth = Synth::new(options.clone());
        events.iter().for_each(|e| synth.push(e));
        synth
    };
    options.ids = pass(&options).into_ids();
    (pass(&options).finish(), options)
}

fn explain(
    events: &[Event],
    options: &SynthOptions,
    target: Target,
    of: (u64, u64),
) -> Explanation {
    let mut why = Why::new(options.clone(), target, Choice::All, of);
    events.iter().for_each(|e| why.push(e));
    why.finish()
}

fn explain_at_once(
    events: &[Event],
    options: &SynthOptions,
    questions: Vec<Question>,
) -> Vec<Explanation> {
    let mut once = Once::new(options.clone(), Box::new(Cursor::new(Vec::new())), true);
    events.iter().for_each(|e| once.push(e));
    once.finish().spooled.explain(questions).unwrap()
}

/// Checks that a pass explains all chains and callbacks of a trace alike, whether it gets the events
/// one by one or reads them ahead.
fn check_read_ahead(path: &Path) {
    let (model, options) = model(&read(path), SynthOptions::new(run()));
    let targets = model.chains.iter().map(|chain| Target::chain(chain, &[]));
    let callbacks = model.callbacks.iter();
    let targets = targets.chain(callbacks.map(|c| Target::Callback(c.id.clone())));
    let question = |target| Question {
        target,
        choice: Choice::All,
        limit_ns: 1_000_000,
        longest_ns: u64::MAX,
    };
    let questions: Vec<Question> = targets.map(question).collect();
    let wanted = explain_at_once(&read(path), &options, questions.clone());
    let mut once = Once::new(options, Box::new(Cursor::new(Vec::new())), true);
    let mut shown = Vec::new();
    once.read(&mut Reader::open(path).unwrap(), |count| shown.push(count));
    let seen = once.finish();
    assert!(shown.len() > 1, "the trace is read in one part");
    assert_eq!(json!(seen.model), json!(model));
    let found = seen.spooled.explain(questions).unwrap();
    assert_eq!(json!(found), json!(wanted));
    assert!(found
        .iter()
        .any(|explanation| !explanation.executions.is_empty()));
}

/// Checks that stretches cover each execution, and that the findings add up. Returns the sum of all
/// latencies.
fn check(explanation: &Explanation) -> Result<u128, TestCaseError> {
    let mut sum = 0;
    for execution in &explanation.executions {
        let mut at = 0;
        for stretch in &execution.stretches {
            prop_assert_eq!(stretch.begin_ns, at, "{:#?}", execution);
            prop_assert!(stretch.ns > 0);
            at += stretch.ns;
        }
        prop_assert_eq!(at, execution.latency_ns, "{:#?}", execution);
        sum += u128::from(execution.latency_ns);
    }
    if let Some(comparison) = &explanation.comparison {
        prop_assert_eq!(comparison.late + comparison.others, explanation.count);
        for finding in &comparison.findings {
            prop_assert!((0.0..=1.0).contains(&finding.chance));
            prop_assert!(finding.late_with <= comparison.late);
        }
    }
    Ok(sum)
}

fn check_all(events: &[Event], options: SynthOptions) -> Result<usize, TestCaseError> {
    check_apart(events, options.clone())?;
    let (model, options) = model(events, options);
    let cut_to: Vec<&str> = options
        .cuts
        .iter()
        .filter_map(|c| c.to.as_deref())
        .collect();
    let mut asked: Vec<(Target, (u64, u64), Value)> = Vec::new();
    for chain in &model.chains {
        let latency = &chain.figures.latency_ns;
        let of = (compare::late_limit(latency), latency.max());
        let target = Target::chain(chain, &cut_to);
        let explanation = explain(events, &options, target.clone(), of);
        asked.push((target, of, json!(explanation)));
        prop_assert_eq!(explanation.count, latency.count(), "{:#?}", chain);
        let sum = check(&explanation)?;
        if explanation.left_out == 0 {
            prop_assert_eq!(sum, latency.sum(), "{:#?}", chain);
        }
        prop_assert_eq!(explanation.longest_ns, latency.max());
    }
    for callback in &model.callbacks {
        let target = Target::Callback(callback.id.clone());
        let longest = callback.figures.response_ns.max();
        let explanation = explain(events, &options, target.clone(), (0, longest));
        asked.push((target, (0, longest), json!(explanation)));
        check(&explanation)?;
    }
    let question = |(target, (limit_ns, longest_ns), _): &(Target, (u64, u64), Value)| Question {
        target: target.clone(),
        choice: Choice::All,
        limit_ns: *limit_ns,
        longest_ns: *longest_ns,
    };
    let questions = asked.iter().map(question).collect();
    let at_once = explain_at_once(events, &options, questions);
    for ((_, _, wanted), explanation) in asked.iter().zip(at_once) {
        prop_assert_eq!(&json!(explanation), wanted);
    }
    Ok(model.chains.len())
}

/// Has a shaper hold some items back until a few events later, or discard them.
fn shaped(events: &[Event], picks: &[u8]) -> Vec<Event> {
    let (mut all, mut sending) = (Vec::new(), VecDeque::new());
    for (at, (event, pick)) in events.iter().zip(picks.iter().cycle()).enumerate() {
        while sending.front().is_some_and(|(due, _)| *due <= at) {
            let sent: Option<(usize, Event)> = sending.pop_front();
            all.extend(sent.map(|(_, sent)| Event {
                time_ns: event.time_ns,
                ..sent
            }));
        }
        let (mut event, mut sent) = (event.clone(), event.clone());
        let ends = (&mut event.kind, &mut sent.kind);
        if let (
            EventKind::Publish {
                message, source_ns, ..
            },
            EventKind::Publish {
                message: again,
                source_ns: then,
                ..
            },
        ) = ends
        {
            if *pick >= 100 {
                *source_ns = source_ns.map(|ns| ns + 1);
                *message = (*message & !7) | 1;
                (*again, *then) = match pick {
                    100..=239 => (*again & !7, *then),
                    _ => (*message, Some(0)),
                };
                sending.push_back((at + usize::from(pick % 4), sent));
            }
        }
        all.push(event);
    }
    all
}

fn scheduled(events: &[Event], picks: &[u8]) -> Vec<Event> {
    let events = &shaped(events, picks);
    let mut all = Vec::new();
    for (event, pick) in events.iter().zip(picks.iter().rev().cycle()) {
        let kind = match pick {
            0..=39 => Some(EventKind::SwitchOut {
                next_tid: 100,
                state: u16::from(pick % 2),
            }),
            40..=79 => Some(EventKind::SwitchIn {
                prev_tid: u32::from(pick % 3),
                priority: 120,
                policy: 0,
            }),
            80..=99 => Some(EventKind::Wake {
                waker_tid: u32::from(pick % 4),
            }),
            100..=119 => Some(EventKind::Woken {
                ready_ns: u64::from(*pick) * 100,
            }),
            120..=129 => Some(EventKind::Stolen {
                stolen_ns: u64::from(*pick) * 1000,
            }),
            130..=139 => Some(EventKind::LockWait {
                lock: 1,
                owner_tid: u32::from(pick % 4),
            }),
            141..=149 => Some(EventKind::Sleep {
                call: CallKind::ALL[usize::from(pick % 17)],
            }),
            150..=159 => Some(EventKind::Throttled {
                throttled_ns: u64::from(*pick) * 1000,
                first: pick % 2 == 0,
            }),
            160..=164 => Some(EventKind::SocketDrop {
                port: 7411,
                count: 1,
            }),
            140 => Some(EventKind::Lost {
                probe: "switch".into(),
                count: 1,
            }),
            _ => None,
        };
        if let Some(kind) = kind {
            all.push(Event {
                kind,
                ..event.clone()
            });
        }
        all.push(event.clone());
    }
    all
}

/// Cuts all executions of chains in two ways: with the facts of the synthesis, and with a copy of
/// these facts that is updated after every few events. Both ways must give the same stretches.
fn check_apart(events: &[Event], options: SynthOptions) -> Result<(), TestCaseError> {
    let mut synth = Synth::new(options);
    synth.detail();
    synth.keep_named();
    let (mut copy, mut watch) = (Copied::new(&synth), Watch::default());
    let (mut beside, mut apart) = (Every::default(), Every::default());
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    for few in events.chunks(5) {
        for event in few {
            beside.push(event);
            apart.push(event);
            synth.push(event);
            synth.drain_named().for_each(|named| copy.named(&named));
            for held in synth.drain_held() {
                beside.held(held);
                apart.held(held);
            }
            for joined in synth.drain_joins() {
                beside.joined(joined.clone());
                apart.joined(joined);
            }
            for asked in synth.drain_asked() {
                beside.asked(asked);
                apart.asked(asked);
            }
            for shaped in synth.drain_shaped() {
                beside.shaped(shaped);
                apart.shaped(shaped);
            }
            for seen in synth.drain_executions() {
                beside.ran(&seen);
                apart.ran(&seen);
            }
            for end in synth.drain_chain_ends() {
                beside.ended(end.clone(), end.end_ns);
                apart.ended(end.clone(), end.end_ns);
            }
            synth.drain_arrivals();
            synth.drain_items();
        }
        copy.update(watch.news(&synth, few.len()));
        beside.cut(&mut synth, false, |end, cuts| {
            expected.push((end, cuts.to_vec()))
        });
        apart.cut_apart(&mut copy, false, |end, cuts| {
            found.push((end, cuts.to_vec()))
        });
    }
    beside.cut(&mut synth, true, |end, cuts| {
        expected.push((end, cuts.to_vec()))
    });
    apart.cut_apart(&mut copy, true, |end, cuts| {
        found.push((end, cuts.to_vec()))
    });
    let copied = synth.components_of(&copy.into_components());
    let named = |all: &[(u64, Vec<every::Cut>)], components: &[Component]| {
        let culprit = |id| match id {
            CulpritId::Callback(n) => format!("callback {n}"),
            CulpritId::Thread(n) => format!("thread {:?}", components[n as usize]),
            CulpritId::MutexOf(n) => format!("mutex of {:?}", components[n as usize]),
            CulpritId::WokenBy(n) => format!("woken by {:?}", components[n as usize]),
            CulpritId::Call(call) => format!("in {}", call.word()),
            CulpritId::Socket(port) => format!("port {port}"),
        };
        let cut = |cut: &every::Cut| {
            let during = cut.during.map(|(kind, by)| (kind, by.map(culprit)));
            let what = (cut.place, cut.kind, cut.by.map(culprit), during, cut.reason);
            (cut.begin_ns, cut.end_ns, what)
        };
        let all = all.iter();
        all.map(|(end, cuts)| (*end, cuts.iter().map(cut).collect()))
            .collect::<Vec<(_, Vec<_>)>>()
    };
    prop_assert_eq!(
        named(&expected, &synth.components()),
        named(&found, &copied)
    );
    Ok(())
}

fn read(path: &Path) -> Vec<Event> {
    let mut reader = Reader::open(path).unwrap();
    reader.events().collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").map_or(48, |n| n.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_stretches_add_up_to_the_latency_for_any_events_in_any_order(
        mut events in prop::collection::vec(any_event(), 0..400),
        in_time in any::<bool>(),
        cut in prop::option::of(0usize..4),
    ) {
        if in_time {
            events.sort_by_key(|e| e.time_ns);
        }
        let mut options = SynthOptions::new(run());
        if let Some(cut) = cut {
            options.cuts = vec![Cut { from: None, to: Some(["a", "/a", "/b", "/c"][cut].into()) }];
        }
        check_all(&events, options)?;
    }

    #[test]
    fn the_stretches_add_up_to_the_latency_under_random_scheduling(
        rounds in prop::collection::vec(round(), 1..20),
        kind in 0u8..2,
        picks in prop::collection::vec(any::<u8>(), 40),
        linked in any::<bool>(),
    ) {
        let mut options = SynthOptions::new(run());
        if linked {
            options.links = vec!["/b:subscription(/t0) -> /a:timer(10ms)".parse().unwrap()];
        }
        let chains = check_all(&scheduled(&system(&rounds, kind), &picks), options)?;
        prop_assert!(chains > 0);
    }
}

#[test]
fn the_stretches_add_up_to_the_latency_in_the_recorded_trace() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../demos/recorded/parking");
    let chains = check_all(&read(&path), SynthOptions::new(run())).unwrap();
    assert_eq!(chains, 2);
    check_read_ahead(&path);
}

#[test]
fn the_stretches_add_up_to_the_latency_in_a_generated_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut writer = Writer::create(&path, WriterOptions::default()).unwrap();
    let manifest = generate::generate(&mut writer, 60_000, 7).unwrap();
    writer.finish(manifest).unwrap();
    let chains = check_all(&read(&path), SynthOptions::new(run())).unwrap();
    assert!(chains > 0);
    check_read_ahead(&path);
}
