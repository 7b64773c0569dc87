//! A live model forgets what ended long ago. Everything else stays the same.

#[allow(dead_code)]
mod churn;
#[allow(dead_code)]
#[path = "../../synth/tests/random/mod.rs"]
mod random;

use churn::{nothing, Recorded, SECOND_NS};
use onbeat_document::schema::Run;
use onbeat_document::Model;
use onbeat_live::view::Wanted;
use onbeat_live::{Live, LiveOptions};
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{Event, EventKind, Reader};
use proptest::prelude::*;
use random::{any_event, round, system, Round};
use std::path::Path;

const HOUR_NS: u64 = 3600 * SECOND_NS;

fn options() -> LiveOptions {
    LiveOptions::new(SynthOptions::new(Run {
        host: String::new(),
        boot: String::new(),
        id: "r".into(),
        mode: "x".into(),
        distribution: Vec::new(),
        start: 1,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    }))
}

fn live(forget_nodes_after_ns: u64) -> Live {
    Live::new(LiveOptions {
        forget_after_ns: u64::MAX,
        forget_nodes_after_ns,
        ..options()
    })
}

/// The handles of node /a in [`system`]: its publishers, its timer and the node.
const HANDLES_OF_A: [u64; 4] = [0x10, 0x11, 0x50, 1];

fn pause(from_ns: u64, to_ns: u64) -> impl Iterator<Item = Event> {
    let minutes = from_ns / (60 * SECOND_NS) + 1..to_ns / (60 * SECOND_NS);
    minutes
        .step_by(5)
        .map(|minute| nothing(minute * 60 * SECOND_NS))
}

/// Returns the events of [`system`] in which node /a is replaced every two hours by one with
/// another name. Nodes /b and /c exist all the time. Each /a has its own process, and these
/// processes have `ids` different ids. If `ids` is 0, one process creates and destroys each /a.
fn short_lived(rounds: &[Round], kind: u8, generations: u32, ids: u32) -> Vec<Event> {
    let one = system(rounds, kind);
    let mut all = Vec::new();
    for generation in 0..generations {
        let start_ns = u64::from(generation) * 2 * HOUR_NS;
        let stamp = i64::from(generation) * 1_000_000;
        for event in &one {
            let is_first = generation == 0 || event.time_ns >= 10_000_000;
            if event.pid != 1 && !is_first {
                continue;
            }
            let mut event = event.clone();
            event.time_ns += start_ns;
            if event.pid == 1 {
                event.pid = 1000 + generation % ids.max(1);
                event.tid = event.pid;
            }
            match &mut event.kind {
                EventKind::NodeInit { name, .. } if &**name == "a" => {
                    *name = format!("a{generation}").into();
                }
                EventKind::Publish { source_ns, .. } => *source_ns = source_ns.map(|ns| ns + stamp),
                EventKind::Take { source_ns, .. } => *source_ns += stamp,
                _ => {}
            }
            all.push(event);
        }
        let last = all.last().expect("events").clone();
        let pid = 1000 + generation % ids.max(1);
        let end_ns = last.time_ns + 1;
        let ends = match ids {
            0 => HANDLES_OF_A
                .map(|handle| EventKind::HandleFini { handle })
                .to_vec(),
            _ => vec![EventKind::Exit],
        };
        all.extend(ends.into_iter().map(|kind| Event {
            time_ns: end_ns,
            pid,
            tid: pid,
            kind,
            ..last
        }));
        all.extend(pause(end_ns, start_ns + 2 * HOUR_NS));
    }
    all
}

/// The handles of a publisher of node /b, and of a subscription and a timer of node /c, which exist
/// for a short time.
const BRIEF: [u64; 3] = [0x30, 0x31, 0x55];

/// Returns the events that create the endpoints and the timer of [`BRIEF`]. The topic's name and
/// the timer's period depend on `number`.
fn brief_creation(number: u32) -> Vec<(u32, EventKind)> {
    let [publisher, subscription, timer] = BRIEF;
    let topic = format!("/brief{number}");
    let made = |kind: EventKind| (3, kind);
    let publisher = EventKind::PublisherInit {
        publisher,
        node: 1,
        rmw: publisher + 0x1000,
        topic: topic.as_str().into(),
        depth: 10,
    };
    vec![
        (2, publisher),
        made(EventKind::SubscriptionInit {
            subscription,
            node: 1,
            rmw: subscription + 0x1000,
            topic: topic.as_str().into(),
            depth: 10,
        }),
        made(EventKind::SubscriptionObject {
            subscription,
            object: 0x131,
        }),
        made(EventKind::SubscriptionCallback {
            object: 0x131,
            callback: 0x71,
        }),
        made(EventKind::TimerInit {
            timer,
            period_ns: (100 + i64::from(number)) * 1_000_000,
        }),
        made(EventKind::TimerCallback {
            timer,
            callback: 0x75,
        }),
        made(EventKind::TimerNode { timer, node: 1 }),
    ]
}

/// Returns the events of one execution of a callback of node /c: the event `by`, the callback's
/// start and its end.
fn brief_execution(by: EventKind, callback: u64) -> [(u32, EventKind); 3] {
    let start = EventKind::CallbackStart {
        callback,
        intra_process: false,
    };
    let end = EventKind::CallbackEnd { callback };
    [by, start, end].map(|kind| (3, kind))
}

/// Returns the events of [`system`], which runs for a short time every two hours. Each time, nodes
/// /b and /c make the endpoints and the timer of [`BRIEF`] with other names and another period, use
/// them, and destroy them. Callbacks of node /b publish on the topic of the short-lived publisher.
fn short_lived_endpoints(rounds: &[Round], kind: u8, generations: u32) -> Vec<Event> {
    let mut all = Vec::new();
    let [publisher, subscription, timer] = BRIEF;
    for generation in 0..generations {
        let start_ns = u64::from(generation) * 2 * HOUR_NS;
        let stamp = i64::from(generation) * 1_000_000;
        let (mut is_made, mut source_ns) = (false, 500_000 + stamp);
        for mut event in system(rounds, kind) {
            let is_creation = event.time_ns < 10_000_000;
            if is_creation && generation > 0 {
                continue;
            }
            event.time_ns += start_ns;
            let (time_ns, cpu) = (event.time_ns, event.cpu);
            let mut add = |list: &[(u32, EventKind)]| {
                all.extend(list.iter().map(|(pid, kind)| Event {
                    time_ns,
                    cpu,
                    pid: *pid,
                    tid: *pid,
                    kind: kind.clone(),
                }));
            };
            if !is_creation && !is_made {
                is_made = true;
                add(&brief_creation(generation));
                add(&brief_execution(EventKind::TimerCall { timer }, 0x75));
            }
            match &mut event.kind {
                EventKind::Publish { source_ns, .. } => *source_ns = source_ns.map(|ns| ns + stamp),
                EventKind::Take { source_ns, .. } => *source_ns += stamp,
                _ => {}
            }
            let ends = event.pid == 2 && matches!(event.kind, EventKind::CallbackEnd { .. });
            if ends {
                source_ns += 1;
                let publication = EventKind::Publish {
                    rmw: publisher + 0x1000,
                    message: 0,
                    source_ns: Some(source_ns),
                };
                add(&[(2, publication)]);
            }
            add(&[(event.pid, event.kind)]);
            if ends {
                let take = EventKind::Take {
                    rmw: subscription + 0x1000,
                    message: 0,
                    source_ns,
                    taken: true,
                };
                add(&brief_execution(take, 0x71));
            }
        }
        let last = all.last().expect("events").clone();
        let end_ns = last.time_ns + 1;
        all.extend(BRIEF.map(|handle| {
            let pid = if handle == publisher { 2 } else { 3 };
            Event {
                time_ns: end_ns,
                pid,
                tid: pid,
                kind: EventKind::HandleFini { handle },
                ..last
            }
        }));
        all.extend(pause(end_ns, start_ns + 2 * HOUR_NS));
    }
    all
}

/// Removes from a model what belongs to the endpoints and timers of [`BRIEF`].
fn without_brief(mut model: Model) -> Model {
    let is_brief = |text: &String| text.contains("brief") || text.contains("timer(1");
    let is_lasting = |id: &String| !is_brief(id) || id == "/a:timer(10ms)";
    for callback in &mut model.callbacks {
        callback.outputs.retain(|topic| !is_brief(topic));
    }
    model.callbacks.retain(|c| is_lasting(&c.id));
    model
        .edges
        .retain(|e| is_lasting(&e.from) && is_lasting(&e.to));
    model
        .chains
        .retain(|c| c.callbacks.iter().all(is_lasting) && !c.topics.iter().any(is_brief));
    model
}

/// Returns three results for the same events: a live model that forgets after an hour, the model of
/// this live model, and the model of a live model that forgets nothing.
fn forgetting_and_not(events: &[Event]) -> (Live, Model, Model) {
    let (mut some, mut all) = (live(HOUR_NS), live(u64::MAX));
    for part in events.chunks(50) {
        some.push(part);
        all.push(part);
    }
    some.end();
    all.end();
    some.refresh();
    let (some_model, all_model) = (some.model(), all.model());
    (some, some_model, all_model)
}

fn check_short_lived_endpoints(
    rounds: &[Round],
    kind: u8,
    generations: u32,
) -> Result<(), TestCaseError> {
    let events = short_lived_endpoints(rounds, kind, generations);
    let (mut some, some_model, all_model) = forgetting_and_not(&events);
    prop_assert_eq!(some.forgotten_nodes(), 0);
    prop_assert_eq!(some.forgotten_callbacks(), 2 * u64::from(generations));
    compare_figures(&some, &some_model)?;
    let (left, lasting) = (without_brief(some_model.clone()), without_brief(all_model));
    compare(&left, &lasting, |_| true)?;
    // All that was brief has gone.
    prop_assert_eq!(&left.callbacks, &some_model.callbacks);
    prop_assert_eq!(left.edges, some_model.edges);
    prop_assert_eq!(left.chains.len(), some_model.chains.len());
    let view = some.view(Wanted::ALL);
    prop_assert!(view.callbacks.iter().all(|row| !row.id.contains("brief")));
    Ok(())
}

/// Compares `some`, the model of a live model that forgets, with `all`, the model of one that does
/// not forget. All callbacks of the nodes for which `lives` returns true must be in `some`, with
/// the same figures, edges and chains.
fn compare(some: &Model, all: &Model, lives: impl Fn(&str) -> bool) -> Result<(), TestCaseError> {
    let callbacks = all.callbacks.iter().filter(|c| lives(&c.node));
    let living: Vec<_> = callbacks.collect();
    for callback in &living {
        let found = some.callbacks.iter().find(|c| c.id == callback.id);
        prop_assert_eq!(found, Some(*callback));
    }
    let is_living = |id: &String| living.iter().any(|c| c.id == *id);
    for edge in all
        .edges
        .iter()
        .filter(|e| is_living(&e.from) && is_living(&e.to))
    {
        prop_assert!(some.edges.contains(edge), "{:?}", edge);
    }
    for chain in all
        .chains
        .iter()
        .filter(|c| c.callbacks.iter().all(is_living))
    {
        prop_assert!(some.chains.contains(chain), "{:?}", chain);
    }
    Ok(())
}

/// Compares a live model's figures since the first event with `model`, which the live model's own
/// synthesis made.
fn compare_figures(live: &Live, model: &Model) -> Result<(), TestCaseError> {
    for callback in &model.callbacks {
        let ids = live.callback_ids().iter();
        let number = ids.clone().position(|id| id.as_ref() == Some(&callback.id));
        let tally = number.and_then(|n| live.callback_total(n as u32));
        let executions = tally.map_or(0, |tally| tally.exec_ns.count());
        prop_assert_eq!(
            executions,
            callback.figures.exec_ns.count(),
            "{}",
            callback.id
        );
    }
    Ok(())
}

fn check_short_lived(
    rounds: &[Round],
    kind: u8,
    generations: u32,
    ids: u32,
) -> Result<(), TestCaseError> {
    let events = short_lived(rounds, kind, generations, ids);
    let (mut some, some_model, all_model) = forgetting_and_not(&events);
    // The last /a also ended two hours ago.
    prop_assert_eq!(some.forgotten_nodes(), u64::from(generations));
    compare(&some_model, &all_model, |node| ["/b", "/c"].contains(&node))?;
    compare_figures(&some, &some_model)?;
    let gone = |id: &String| id.starts_with("/a");
    prop_assert!(some_model.callbacks.iter().all(|c| !gone(&c.id)));
    prop_assert!(some_model.edges.iter().all(|e| !gone(&e.from)));
    prop_assert!(some_model
        .chains
        .iter()
        .all(|c| !c.callbacks.iter().any(gone)));
    some.refresh();
    let view = some.view(Wanted::ALL);
    prop_assert!(view.callbacks.iter().all(|row| !gone(&row.id)));
    prop_assert!(view.chains.iter().all(|row| !row.title.starts_with("/a")));
    let forgotten = all_model.callbacks.len() - some_model.callbacks.len();
    prop_assert_eq!(forgotten as u64, some.forgotten_nodes());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").map_or(12, |n| n.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nodes_that_ended_are_forgotten_and_nothing_else_changes(
        rounds in prop::collection::vec(round(), 1..20),
        kind in 0u8..2,
        generations in 1u32..5,
        ids in 0u32..4,
    ) {
        check_short_lived(&rounds, kind, generations, ids)?;
    }

    #[test]
    fn endpoints_that_ended_before_their_nodes_are_forgotten_and_nothing_else_changes(
        rounds in prop::collection::vec(round(), 1..20),
        kind in 0u8..2,
        generations in 1u32..5,
    ) {
        check_short_lived_endpoints(&rounds, kind, generations)?;
    }

    #[test]
    fn random_events_cause_no_panic_while_all_that_ended_is_forgotten_at_once(
        events in prop::collection::vec(any_event(), 1..400),
        part in 1usize..20,
    ) {
        let mut synth = Synth::new(options().synth);
        for part in events.chunks(part) {
            part.iter().for_each(|event| synth.push(event));
            synth.forget(0);
        }
        synth.finish();
    }
}

fn recorded() -> Recorded {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../demos/recorded/parking");
    let mut reader = Reader::open(&trace).expect("opened");
    // The first 6000 events show the creation of the system and its first executions.
    Recorded::new(reader.events().take(6000).collect())
}

#[test]
fn a_lasting_system_keeps_its_figures_while_copies_of_it_come_and_go() {
    let recorded = recorded();
    let (mut some, mut all) = (live(HOUR_NS), live(u64::MAX));
    for generation in 0..3 {
        let start_ns = HOUR_NS * (2 * u64::from(generation) + 1);
        let lasting = recorded.lasting(start_ns, generation == 0);
        let mut events: Vec<Event> = recorded.copy(generation, start_ns).chain(lasting).collect();
        events.sort_by_key(|event| event.time_ns);
        events.extend(pause(
            start_ns + recorded.length_ns(),
            start_ns + 2 * HOUR_NS,
        ));
        some.push(&events);
        all.push(&events);
    }
    some.end();
    all.end();
    some.refresh();
    assert!(
        some.forgotten_nodes() >= 3 * 5,
        "{}",
        some.forgotten_nodes()
    );
    let (some_model, all_model) = (some.model(), all.model());
    let is_copy = |name: &str| name.contains("__copy");
    compare(&some_model, &all_model, |node| !is_copy(node)).unwrap();
    compare_figures(&some, &some_model).unwrap();
    assert!(some_model.callbacks.len() > 5 && some_model.chains.len() > 1);
    let copies = some_model.callbacks.iter().filter(|c| is_copy(&c.node));
    let copies: Vec<&String> = copies.map(|c| &c.id).collect();
    assert!(copies.is_empty(), "{copies:?}");
    assert_eq!(some_model.callbacks.len() * 4, all_model.callbacks.len());
}

/// Returns the events of a node that exists for 30 ms in process 1000, and whose timer runs once.
fn brief(name: &str, start_ns: u64) -> Vec<Event> {
    let rounds = [Round {
        run: [1; 4],
        swapped: false,
        lost: false,
        preempted: false,
    }];
    let mut events = system(&rounds, 0);
    events.retain(|event| event.pid == 1);
    for event in &mut events {
        event.time_ns += start_ns;
        (event.pid, event.tid) = (1000, 1000);
        if let EventKind::NodeInit { name: of, .. } = &mut event.kind {
            *of = name.into();
        }
    }
    // The end of this publisher is missing.
    let rosout = start_ns / SECOND_NS;
    let created = events
        .iter()
        .position(|event| matches!(event.kind, EventKind::PublisherInit { .. }));
    let created = created.expect("a publisher");
    let rosout = Event {
        kind: EventKind::PublisherInit {
            publisher: 0x10_0000 + rosout,
            node: 1,
            rmw: 0x20_0000 + rosout,
            topic: "/rosout".into(),
            depth: 1000,
        },
        ..events[created].clone()
    };
    events.insert(created, rosout);
    let last = events.last().expect("events").clone();
    events.extend(HANDLES_OF_A.map(|handle| Event {
        time_ns: start_ns + 30_000_000,
        kind: EventKind::HandleFini { handle },
        ..last.clone()
    }));
    events
}

#[test]
fn the_number_of_stored_entities_stays_flat_while_a_process_makes_and_destroys_nodes() {
    let mut live = Live::new(options());
    let (mut kept, mut made) = (Vec::new(), 0);
    // `ONBEAT_NODES=10000` makes that many.
    let nodes = std::env::var("ONBEAT_NODES").map_or(2000, |n| n.parse().expect("a number"));
    for n in 0..nodes {
        let start_ns = (1 + n) * 10 * SECOND_NS;
        live.push(&brief(&format!("brief{n}"), start_ns));
        made += 1;
        if (n + 1) % (nodes / 10) == 0 {
            kept.push(live.kept());
        }
    }
    println!("{:#?}", kept.last());
    assert_eq!(live.left_out_processes(), 0);
    assert!(kept[1].0.callbacks > 300, "{:?}", kept[1]);
    for later in &kept[2..] {
        assert!(
            later.0.nodes <= kept[1].0.nodes + 10,
            "{later:?} {:?}",
            kept[1]
        );
        assert!(
            later.0.names <= kept[1].0.names + 50,
            "{later:?} {:?}",
            kept[1]
        );
        assert!(later.0.callbacks <= kept[1].0.callbacks + 10);
        assert!(later.0.paths <= kept[1].0.paths + 10 && later.1 <= kept[1].1 + 50);
    }
    assert!(
        live.forgotten_nodes() > made - 400,
        "{}",
        live.forgotten_nodes()
    );
}

#[test]
fn a_callback_keeps_its_ordinal_when_an_earlier_equal_callback_has_ended() {
    let mut live = Live::new(options());
    let at = |time_ns: u64, pid: u32, kind: EventKind| Event {
        time_ns,
        cpu: 0,
        pid,
        tid: pid,
        kind,
    };
    let timer = |n: u64| {
        let (timer, callback) = (0x90 + n, 0xa0 + n);
        let run = [
            EventKind::TimerCall { timer },
            EventKind::CallbackStart {
                callback,
                intra_process: false,
            },
            EventKind::CallbackEnd { callback },
        ];
        let make = [
            EventKind::TimerInit {
                timer,
                period_ns: 77_000_000,
            },
            EventKind::TimerCallback { timer, callback },
            EventKind::TimerNode { timer, node: 1 },
        ];
        (make, run)
    };
    let mut events: Vec<Event> = system(&[], 0);
    let both = [timer(0), timer(1)];
    for (make, run) in both.clone() {
        let all = make.into_iter().chain(run);
        events.extend(all.map(|kind| at(SECOND_NS, 1, kind)));
    }
    let [first, second] = [0x90, 0x91].map(|handle| EventKind::HandleFini { handle });
    events.push(at(2 * SECOND_NS, 1, first));
    events.extend(pause(2 * SECOND_NS, 2 * HOUR_NS));
    let again = both[1].1.clone();
    events.extend(again.map(|kind| at(2 * HOUR_NS, 1, kind)));
    live.push(&events);
    let ids = |live: &mut Live| -> Vec<(String, u64)> {
        live.refresh();
        let model = live.model();
        let callbacks = model.callbacks.iter();
        let mut all: Vec<_> = callbacks
            .map(|c| (c.id.clone(), c.figures.executions()))
            .collect();
        all.sort();
        all
    };
    let expected = [("/a:timer(77ms)", 1), ("/a:timer(77ms)#2", 2)];
    assert_eq!(ids(&mut live), expected.map(|(id, n)| (id.to_string(), n)));
    live.push(&[at(2 * HOUR_NS + 1, 1, second)]);
    live.push(&pause(2 * HOUR_NS, 4 * HOUR_NS).collect::<Vec<_>>());
    assert_eq!(ids(&mut live), []);
    assert_eq!(live.forgotten_callbacks(), 2);
}

#[test]
fn the_number_of_kept_entries_stays_flat_while_nodes_make_and_destroy_endpoints() {
    let rounds = [Round {
        run: [1; 4],
        swapped: false,
        lost: false,
        preempted: false,
    }];
    let brief = short_lived_endpoints(&rounds, 0, 1);
    let brief = brief.split(|e| e.cpu == 0 && e.pid == 0).next();
    let brief = brief.expect("events").to_vec();
    let mut live = Live::new(options());
    let mut kept = Vec::new();
    for n in 0..500u64 {
        let mut events = brief.clone();
        events.retain(|event| n == 0 || event.time_ns >= 10_000_000);
        for event in &mut events {
            event.time_ns += (1 + n) * 40 * SECOND_NS;
            match &mut event.kind {
                EventKind::PublisherInit { topic, .. }
                | EventKind::SubscriptionInit { topic, .. }
                    if topic.contains("brief") =>
                {
                    *topic = format!("/brief{n}").into();
                }
                EventKind::TimerInit {
                    timer: 0x55,
                    period_ns,
                } => *period_ns += n as i64 * 1_000_000,
                EventKind::Publish { source_ns, .. } => {
                    *source_ns = source_ns.map(|ns| ns + n as i64 * 1000)
                }
                EventKind::Take { source_ns, .. } => *source_ns += n as i64 * 1000,
                _ => {}
            }
        }
        live.push(&events);
        if (n + 1) % 100 == 0 {
            kept.push(live.kept());
        }
    }
    println!("{kept:#?}");
    assert_eq!(live.left_out_processes(), 0);
    // 90 rounds lie in an hour.
    assert!(kept[0].0.callbacks > 180, "{:?}", kept[0]);
    for later in &kept[1..] {
        let (first, later) = (kept[0].0, later.0);
        assert!(later.callbacks <= first.callbacks + 10 && later.edges <= first.edges + 10);
        assert!(later.names <= first.names + 10 && later.paths <= first.paths + 50);
    }
    assert!(live.forgotten_callbacks() > 750);
}

#[test]
fn a_node_that_is_made_again_within_the_hour_keeps_its_figures() {
    let mut live = Live::new(options());
    for n in 1..=6 {
        live.push(&brief("again", n * HOUR_NS / 2));
        if n == 1 {
            live.push(&brief("once", HOUR_NS / 2 + SECOND_NS));
        }
    }
    let events: Vec<Event> = pause(3 * HOUR_NS, 4 * HOUR_NS - SECOND_NS).collect();
    live.push(&events);
    assert_eq!(live.forgotten_nodes(), 1);
    let model = live.model();
    let callbacks: Vec<(&str, u64)> = model
        .callbacks
        .iter()
        .map(|c| (c.node.as_str(), c.figures.executions()))
        .collect();
    assert_eq!(callbacks, [("/again", 6)]);
}

#[test]
fn the_number_of_kept_entries_stays_flat_while_processes_come_and_go() {
    let recorded = recorded();
    let mut live = Live::new(options());
    let mut kept = Vec::new();
    for generation in 0..14 {
        let start_ns = (1 + u64::from(generation)) * 900 * SECOND_NS;
        let events: Vec<Event> = recorded.copy(generation, start_ns).collect();
        events.chunks(1000).for_each(|part| live.push(part));
        let pause: Vec<Event> =
            pause(start_ns + recorded.length_ns(), start_ns + 900 * SECOND_NS).collect();
        live.push(&pause);
        kept.push(live.kept());
    }
    println!("{:#?}", kept.last());
    assert_eq!(kept[8], kept[13]);
    assert!(kept[8].0.callbacks > 20, "{:?}", kept[8]);
}

#[test]
fn windows_stay_right_when_the_time_jumps_by_hours() {
    let recorded = recorded();
    let mut live = live(HOUR_NS);
    let push = |live: &mut Live, start_ns: u64, is_first: bool| {
        let events: Vec<Event> = recorded.lasting(start_ns, is_first).collect();
        live.push(&events);
        live.refresh();
        events.len() as u64
    };
    let first = push(&mut live, HOUR_NS, true);
    // The machine slept for five hours.
    let second = push(&mut live, 6 * HOUR_NS, false);
    let view = live.view(Wanted::ALL);
    assert_eq!(view.events.start, first + second);
    assert_eq!(view.events.last_60s, second);
    let loads = view.threads.iter().map(|row| row.load.last_10s);
    assert!(
        loads.clone().all(|load| load <= 1.1),
        "{:?}",
        loads.collect::<Vec<_>>()
    );
    let callbacks = view.callbacks.len();
    assert!(callbacks > 5);
    // Events whose times go back by three hours count at the latest time so far.
    let third = push(&mut live, 3 * HOUR_NS, false);
    let view = live.view(Wanted::ALL);
    assert_eq!(view.events.start, first + second + third);
    assert!(view.events.last_10s >= third);
    assert_eq!(view.callbacks.len(), callbacks);
    assert_eq!(live.forgotten_nodes(), 0);
}

#[test]
fn a_process_that_creates_nodes_without_end_is_left_out_and_the_others_are_watched() {
    let rounds = vec![
        Round {
            run: [1; 4],
            swapped: false,
            lost: false,
            preempted: false,
        };
        50
    ];
    let mut live = Live::new(options());
    let events = system(&rounds, 0);
    let mut made = 0;
    for event in &events {
        live.push(std::slice::from_ref(event));
        for _ in 0..15 {
            made += 1;
            let node = EventKind::NodeInit {
                node: made,
                rmw: made,
                name: format!("node{made}").into(),
                namespace: "/hostile".into(),
            };
            live.push(&[Event {
                pid: 666,
                tid: 666,
                kind: node,
                ..event.clone()
            }]);
        }
    }
    let last = events.last().expect("events").time_ns;
    live.push(&[nothing(last + SECOND_NS), nothing(last + 2 * SECOND_NS)]);
    assert!(made > 10_100, "{made}");
    assert_eq!(live.drain_left_out_processes(), [666]);
    assert_eq!(live.left_out_processes(), 1);
    let nodes = live.kept().0.nodes;
    assert!((10_000..10_100).contains(&nodes), "{nodes}");
    let model = live.model();
    let executions = model.callbacks.iter().map(|c| c.figures.executions());
    assert_eq!(executions.sum::<u64>(), 50 * 4);
    // After its end, the process is forgotten too, and its id can be used again.
    let end = last + 3 * SECOND_NS;
    live.push(&[Event {
        time_ns: end,
        pid: 666,
        tid: 666,
        cpu: 0,
        kind: EventKind::Exit,
    }]);
    live.push(&pause(end, end + 2 * HOUR_NS).collect::<Vec<_>>());
    assert_eq!(live.forgotten_nodes(), nodes as u64 - 3);
}
