//! The law of this crate: at any instant, the figures since the start equal those of the model that
//! `onbeat model` makes of the events up to then.

#[allow(dead_code)]
#[path = "../../synth/tests/random/mod.rs"]
mod random;

use onbeat_document::schema::{CallbackType, EdgeFigures, Run};
use onbeat_document::Model;
use onbeat_live::tally::EdgeTally;
use onbeat_live::view::{Times, Wanted};
use onbeat_live::window::Span;
use onbeat_live::{Live, LiveOptions};
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{generate, Event, Reader, Writer, WriterOptions};
use proptest::prelude::*;
use random::{any_event, round, system};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn options() -> SynthOptions {
    SynthOptions::new(Run {
        host: String::new(),
        boot: String::new(),
        id: "r".into(),
        mode: "x".into(),
        distribution: Vec::new(),
        start: 1,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    })
}

fn model_of(events: &[Event]) -> Model {
    let mut synth = Synth::new(options());
    events.iter().for_each(|event| synth.push(event));
    synth.finish()
}

fn live() -> Live {
    Live::new(LiveOptions {
        forget_after_ns: u64::MAX,
        ..LiveOptions::new(options())
    })
}

/// Compares a live model with the model that `onbeat model` makes of the same events. Returns the
/// numbers of callbacks, chains and edges that were compared.
fn compare(live: &Live, events: &[Event]) -> Result<[usize; 3], TestCaseError> {
    let model = model_of(events);
    prop_assert!(live.model() == model, "the synthesis is the same");
    // The end of a recording ends what still runs.
    let mut live = live.clone();
    live.end();
    live.refresh();
    let view = live.view(Wanted::ALL);
    let counted = [
        callbacks(&live, &model)?,
        chains(&view, &model)?,
        edges(&live, &model)?,
    ];
    prop_assert_eq!(view.events.start, events.len() as u64);
    for row in &view.callbacks {
        let is_it = |callback: &&onbeat_document::schema::Callback| callback.id == row.id;
        let callback = model.callbacks.iter().find(is_it).expect("in the model");
        prop_assert_eq!(
            row.exec.start.p99_ns,
            callback.figures.exec_ns.quantile(0.99)
        );
        prop_assert_eq!(row.period_ns, callback.period_ns);
        prop_assert_eq!((&row.node, row.kind), (&callback.node, callback.kind));
    }
    Ok(counted)
}

fn callbacks(live: &Live, model: &Model) -> Result<usize, TestCaseError> {
    let ids = live.callback_ids();
    let mut compared = 0;
    for callback in &model.callbacks {
        let (id, figures) = (&callback.id, &callback.figures);
        let number = ids.iter().position(|known| known.as_ref() == Some(id));
        let tally = number.and_then(|n| live.callback_total(n as u32));
        let Some(tally) = tally else {
            prop_assert_eq!(figures.executions(), 0, "{}", id);
            continue;
        };
        prop_assert_eq!(&tally.exec_ns, &figures.exec_ns, "{}", id);
        prop_assert_eq!(&tally.response_ns, &figures.response_ns, "{}", id);
        prop_assert_eq!(&tally.preempted_ns, &figures.preempted_ns, "{}", id);
        prop_assert_eq!(&tally.blocked_ns, &figures.blocked_ns, "{}", id);
        prop_assert_eq!(tally.untimed, figures.untimed);
        prop_assert_eq!(tally.preemptions, figures.preemptions);
        prop_assert_eq!(tally.blockings, figures.blockings);
        compared += 1;
    }
    Ok(compared)
}

fn chains(view: &onbeat_live::view::View, model: &Model) -> Result<usize, TestCaseError> {
    let ids =
        |ids: &mut dyn Iterator<Item = &String>| -> BTreeSet<String> { ids.cloned().collect() };
    let measured = model.chains.iter().filter(|c| c.figures.executions > 0);
    let expected = ids(&mut measured.map(|c| &c.id));
    prop_assert_eq!(ids(&mut view.chains.iter().map(|c| &c.id)), expected);
    for row in &view.chains {
        let chain = model.chains.iter().find(|c| c.id == row.id).unwrap();
        let latency = &chain.figures.latency_ns;
        let times = Times {
            count: latency.count(),
            sum_ns: latency.sum(),
            mean_ns: latency.mean() as u64,
            p50_ns: latency.quantile(0.5),
            p99_ns: latency.quantile(0.99),
            max_ns: latency.max(),
        };
        prop_assert_eq!(row.latency.start, times, "{}", row.title);
        let parts = row.parts.iter().map(|p| (&p.name, p.is_edge));
        let shares = chain.figures.shares.iter();
        let shares = shares.map(|s| (&s.name, s.element == "edge"));
        prop_assert!(parts.eq(shares));
        if row.latency.last_10s == row.latency.start {
            for (part, share) in row.parts.iter().zip(&chain.figures.shares) {
                prop_assert_eq!(part.mean_ns, share.mean_ns as u64, "{}", row.title);
            }
        }
    }
    Ok(view.chains.len())
}

fn edges(live: &Live, model: &Model) -> Result<usize, TestCaseError> {
    let mut tallies: BTreeMap<(&str, &str, &str), &EdgeTally> = BTreeMap::new();
    let mut twice = BTreeSet::new();
    for (from, to, topic, tally) in live.edge_totals() {
        let key = (from.unwrap_or_default(), to, topic);
        if tallies.insert(key, tally).is_some() {
            twice.insert(key);
        }
    }
    let mut compared = 0;
    for edge in &model.edges {
        let key = (edge.from.as_str(), edge.to.as_str(), edge.topic.as_str());
        // The edges of synchronisers are conclusions: the items lead past them.
        let is_sync = |id: &String| id.contains(":sync(");
        if edge.assumed.is_some() || is_sync(&edge.to) || is_sync(&edge.from) {
            continue;
        }
        prop_assert!(!twice.contains(&key), "{:?}", key);
        let none = EdgeTally::default();
        let tally = *tallies.get(&key).unwrap_or(&&none);
        let EdgeFigures {
            latency_ns,
            transport_ns,
            taken,
            lost,
            overwritten,
            ..
        } = &edge.figures;
        let counts = (tally.taken, tally.lost, tally.overwritten);
        prop_assert_eq!(
            counts,
            (*taken, *lost as i64, *overwritten as i64),
            "{:?}",
            key
        );
        prop_assert_eq!(&tally.latency_ns, latency_ns, "{:?}", key);
        prop_assert_eq!(&tally.transport_ns, transport_ns, "{:?}", key);
        compared += 1;
    }
    Ok(compared)
}

fn read(trace: &Path) -> Vec<Event> {
    Reader::open(trace).expect("opened").events().collect()
}

fn recorded() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../demos/recorded");
    let entries = std::fs::read_dir(root).expect("recordings");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let traces: Vec<PathBuf> = paths.filter(|p| p.join("manifest.json").exists()).collect();
    assert!(!traces.is_empty());
    traces
}

/// Returns the number of instants at which each trace is cut off. `ONBEAT_CUTS` sets another
/// number.
fn cuts() -> u64 {
    std::env::var("ONBEAT_CUTS").map_or(8, |n| n.parse().expect("a number"))
}

/// Cuts the events off at instants that depend on `seed`. At each instant, compares the live model
/// with the model that `onbeat model` makes of the same events.
fn cut(events: &[Event], seed: u64) -> [usize; 3] {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut at: BTreeSet<usize> = (1..cuts())
        .map(|_| (next() % events.len() as u64) as usize)
        .collect();
    at.insert(events.len());
    let (mut live, mut done, mut most) = (live(), 0, [0; 3]);
    for end in at {
        // The recorder hands over events in parts of any size.
        while done < end {
            let part = (1 + next() as usize % 700).min(end - done);
            live.push(&events[done..done + part]);
            if next() % 4 == 0 {
                live.refresh();
                live.view(Wanted::ALL);
            }
            done += part;
        }
        let compared = compare(&live, &events[..end]);
        let compared = compared.unwrap_or_else(|why| panic!("cut after {end} events: {why}"));
        for (most, n) in most.iter_mut().zip(compared) {
            *most = n.max(*most);
        }
    }
    most
}

#[test]
fn a_live_model_equals_the_model_of_a_recorded_trace_cut_at_any_event() {
    for (seed, trace) in recorded().iter().enumerate() {
        let [callbacks, chains, edges] = cut(&read(trace), seed as u64 + 1);
        assert!(
            callbacks > 5 && chains > 1 && edges > 3,
            "{callbacks} {chains} {edges}"
        );
    }
}

#[test]
fn a_live_model_equals_the_model_of_a_generated_trace_cut_at_any_event() {
    let held = tempfile::tempdir().expect("directory");
    for seed in 1..3 {
        let trace = held.path().join(format!("trace{seed}"));
        let mut writer = Writer::create(&trace, WriterOptions::default()).expect("created");
        let manifest = generate::generate(&mut writer, 20_000, seed).expect("generated");
        writer.finish(manifest).expect("finished");
        let [callbacks, chains, edges] = cut(&read(&trace), seed);
        assert!(
            callbacks > 5 && chains > 1 && edges > 3,
            "{callbacks} {chains} {edges}"
        );
    }
}

#[test]
fn a_model_with_the_figures_since_the_start_equals_the_model_of_the_trace() {
    for trace in recorded() {
        let events = read(&trace);
        let model = model_of(&events);
        let mut live = live();
        events.chunks(700).for_each(|part| live.push(part));
        live.end();
        let mut spanned = live.refresh();
        live.set_figures(&mut spanned, Span::Start, |_| true);
        for (of_span, callback) in spanned.callbacks.iter().zip(&model.callbacks) {
            let (a, b) = (&of_span.figures, &callback.figures);
            assert_eq!(a.exec_ns, b.exec_ns, "{}", callback.id);
            assert_eq!(a.response_ns, b.response_ns, "{}", callback.id);
            // The intervals of synchronisers are conclusions of the model.
            if callback.kind != CallbackType::Sync {
                assert_eq!(a.interarrival_ns, b.interarrival_ns, "{}", callback.id);
            }
            assert!(
                (a.load - b.load).abs() < 0.01 * b.load + 1e-4,
                "{}",
                callback.id
            );
        }
        for (of_span, chain) in spanned.chains.iter().zip(&model.chains) {
            let (a, b) = (&of_span.figures, &chain.figures);
            assert_eq!(a.latency_ns, b.latency_ns, "{}", chain.id);
            assert_eq!(a.data_age_ns(), b.data_age_ns(), "{}", chain.id);
            assert_eq!(a.reaction_ns, b.reaction_ns, "{}", chain.id);
            assert_eq!(
                (a.executions, a.jitter_ns, a.lost),
                (b.executions, b.jitter_ns, b.lost),
                "{}",
                chain.id
            );
        }
        for (of_span, edge) in spanned.edges.iter().zip(&model.edges) {
            let (a, b) = (&of_span.figures, &edge.figures);
            assert_eq!(a.latency_ns, b.latency_ns, "{edge:?}");
            assert_eq!(
                (a.taken, a.lost, a.overwritten),
                (b.taken, b.lost, b.overwritten)
            );
        }
        // A span without events has no figures, and the structure stays.
        let mut later = live.clone();
        let last = events.last().expect("events");
        later.push(&[Event {
            time_ns: last.time_ns + 100_000_000_000,
            kind: onbeat_trace::EventKind::ClockOffset {
                realtime_minus_monotonic_ns: 0,
            },
            ..last.clone()
        }]);
        later.set_figures(&mut spanned, Span::Minute, |_| true);
        assert_eq!(spanned.chains.len(), model.chains.len());
        let chains = spanned.chains.iter().map(|c| c.figures.executions);
        let callbacks = spanned.callbacks.iter().map(|c| c.figures.executions());
        assert_eq!(chains.chain(callbacks).sum::<u64>(), 0);
    }
}

#[test]
fn the_longest_executions_of_all_calls_are_those_of_the_model() {
    for trace in recorded() {
        let events = read(&trace);
        let (mut once, mut often) = (live(), live());
        let (mut longest, mut drains) = (BTreeMap::new(), 0);
        for part in events.chunks(700) {
            once.push(part);
            often.push(part);
            often.refresh();
            for (chain, ns) in often.drain_longest() {
                let of_chain: &mut u64 = longest.entry(chain).or_default();
                *of_chain = ns.max(*of_chain);
                drains += 1;
            }
            assert_eq!(often.drain_longest(), BTreeMap::new());
        }
        once.end();
        once.refresh();
        let all = once.drain_longest();
        let mut compared = 0;
        for chain in &model_of(&events).chains {
            let latency = &chain.figures.latency_ns;
            if latency.count() > 0 {
                assert_eq!(all.get(&chain.id), Some(&latency.max()), "{}", chain.id);
                // Executions before the structure is complete can count for another chain.
                let of_often = longest.get(&chain.id).copied().unwrap_or(0);
                assert!(of_often >= latency.quantile(0.5), "{}", chain.id);
                compared += 1;
            }
        }
        assert!(compared > 0 && drains > 3 * compared, "{drains} {compared}");
    }
}

#[test]
fn callbacks_that_are_not_seen_any_more_are_forgotten_and_counted() {
    let rounds = vec![
        random::Round {
            run: [1; 4],
            swapped: false,
            lost: false,
            preempted: false,
        };
        20
    ];
    let mut live = Live::new(LiveOptions {
        forget_after_ns: 60_000_000_000,
        ..LiveOptions::new(options())
    });
    let events = system(&rounds, 0);
    live.push(&events);
    live.refresh();
    let rows = |live: &mut Live| {
        let view = live.view(Wanted::ALL);
        (view.callbacks.len(), view.chains.len(), view.forgotten)
    };
    assert_eq!(rows(&mut live), (4, 2, 0));
    let last = events.last().expect("events");
    // Only the offset of the clock is reported for a while.
    for second in 1..=80u64 {
        live.push(&[Event {
            time_ns: last.time_ns + second * 1_000_000_000,
            kind: onbeat_trace::EventKind::ClockOffset {
                realtime_minus_monotonic_ns: 0,
            },
            ..last.clone()
        }]);
    }
    let (callbacks, chains, forgotten) = rows(&mut live);
    assert_eq!((callbacks, chains), (0, 0));
    assert!(forgotten >= 4, "{forgotten}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").map_or(32, |n| n.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_live_model_equals_the_model_of_a_random_system(
        rounds in prop::collection::vec(round(), 1..40),
        kind in 0u8..2,
        part in 1usize..50,
    ) {
        let events = system(&rounds, kind);
        let mut live = live();
        events.chunks(part).for_each(|part| live.push(part));
        compare(&live, &events)?;
    }

    #[test]
    fn random_events_cause_no_panic_in_a_live_model(events in prop::collection::vec(any_event(), 1..300)) {
        let mut live = Live::new(LiveOptions {
            forget_after_ns: 1_000_000_000,
            forget_nodes_after_ns: 1_000_000,
            ..LiveOptions::new(options())
        });
        for part in events.chunks(20) {
            live.push(part);
            live.refresh();
            live.view(Wanted::ALL);
        }
        live.end();
        prop_assert_eq!(live.view(Wanted::ALL).events.start, events.len() as u64);
    }
}
