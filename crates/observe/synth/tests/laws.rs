//! Laws of the synthesis. Merging is associative and commutative, and equals modelling all runs.
//! Figures stay within what is possible. No order of events causes a panic.

use onbeat_document::cuts::Cut;
use onbeat_document::merge::{filter_mode, merge, set_mode, ModelMergeError};
use onbeat_document::schema::{JunctionKind, Run};
use onbeat_document::Model;
use onbeat_synth::mode_rules::ModeRule;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{EndpointKind, Event, EventKind, ExecuteKind};
use proptest::prelude::*;
use std::ops::Range;

fn run(id: u32, mode: &str) -> Run {
    Run {
        host: String::new(),
        boot: String::new(),
        id: format!("run{id}"),
        mode: mode.into(),
        distribution: vec!["jazzy".into()],
        start: u64::from(id) * 1_000_000,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    }
}

fn synthesise(run: Run, events: &[Event]) -> Model {
    let mut options = SynthOptions::new(run);
    options.links = vec!["/b:subscription(/t0) -> /a:timer(10ms)".parse().unwrap()];
    let mut synth = Synth::new(options);
    events.iter().for_each(|e| synth.push(e));
    synth.finish()
}

#[derive(Debug, Clone)]
struct Round {
    /// Durations of the callbacks, in units of 10 us.
    run: [u16; 4],
    /// The fusing node gets its second input first.
    swapped: bool,
    lost: bool,
    preempted: bool,
}

fn round() -> impl Strategy<Value = Round> {
    (any::<[u8; 4]>(), any::<bool>(), any::<u8>(), any::<bool>()).prop_map(
        |(run, swapped, lost, preempted)| Round {
            run: run.map(|r| u16::from(r) + 1),
            swapped,
            lost: lost % 8 == 0,
            preempted,
        },
    )
}

struct Events {
    all: Vec<Event>,
    time_ns: u64,
    stamp: i64,
}

impl Events {
    fn at(&mut self, pid: u32, kind: EventKind) {
        self.all.push(Event {
            time_ns: self.time_ns,
            cpu: (pid % 4) as u16,
            pid,
            tid: pid,
            kind,
        });
    }

    /// Adds an event `steps` times 10 us after the last one.
    fn after(&mut self, steps: u16, pid: u32, kind: EventKind) {
        self.time_ns += u64::from(steps) * 10_000;
        self.at(pid, kind);
    }

    fn publish(&mut self, steps: u16, pid: u32, rmw: u64) -> i64 {
        self.stamp += 1;
        let event = EventKind::Publish {
            rmw,
            message: 0,
            source_ns: Some(self.stamp),
        };
        self.after(steps, pid, event);
        self.stamp
    }

    fn start(&mut self, pid: u32, callback: u64) {
        let event = EventKind::CallbackStart {
            callback,
            intra_process: false,
        };
        self.after(1, pid, event);
    }

    fn end(&mut self, steps: u16, pid: u32, callback: u64) {
        self.after(steps, pid, EventKind::CallbackEnd { callback });
    }

    fn take(&mut self, steps: u16, pid: u32, rmw: u64, source_ns: i64) {
        let event = EventKind::Take {
            rmw,
            message: 0,
            source_ns,
            taken: true,
        };
        self.after(steps, pid, event);
    }
}

/// Node /a has a timer that publishes /t0 and /t1. Node /b subscribes to both and publishes /out:
/// with `kind` 0 once both are there, with 1 on each input. Node /c takes /out.
fn system(rounds: &[Round], kind: u8) -> Vec<Event> {
    let mut events = Events {
        all: Vec::new(),
        time_ns: 1,
        stamp: 0,
    };
    initialise(&mut events);
    for (i, round) in rounds.iter().enumerate() {
        events.time_ns = 10_000_000 * (i as u64 + 1);
        play(&mut events, round, kind);
    }
    events.all
}

fn initialise(events: &mut Events) {
    for (pid, name) in [(1, "a"), (2, "b"), (3, "c")] {
        let node = EventKind::NodeInit {
            node: 1,
            rmw: 1,
            name: name.into(),
            namespace: "/".into(),
        };
        events.at(pid, node);
    }
    events.time_ns = 2;
    for (pid, publisher, topic) in [(1, 0x10, "/t0"), (1, 0x11, "/t1"), (2, 0x10, "/out")] {
        let publisher = EventKind::PublisherInit {
            publisher,
            node: 1,
            rmw: publisher + 0x1000,
            topic: topic.into(),
            depth: 10,
        };
        events.at(pid, publisher);
    }
    let (timer, callback, node) = (0x50, 0x60, 1);
    let period_ns = 10_000_000;
    events.at(1, EventKind::TimerInit { timer, period_ns });
    events.at(1, EventKind::TimerCallback { timer, callback });
    events.at(1, EventKind::TimerNode { timer, node });
    for (pid, subscription, topic) in [(2, 0x20, "/t0"), (2, 0x21, "/t1"), (3, 0x20, "/out")] {
        let object = subscription + 0x100;
        let made = EventKind::SubscriptionInit {
            subscription,
            node: 1,
            rmw: subscription + 0x1000,
            topic: topic.into(),
            depth: 10,
        };
        let known = EventKind::SubscriptionObject {
            subscription,
            object,
        };
        let callback = EventKind::SubscriptionCallback {
            object,
            callback: subscription + 0x40,
        };
        for event in [made, known, callback] {
            events.at(pid, event);
        }
    }
}

fn play(events: &mut Events, r: &Round, kind: u8) {
    events.at(1, EventKind::TimerCall { timer: 0x50 });
    events.start(1, 0x60);
    if r.preempted {
        // Runs have different neighbours.
        let by = 100 + u32::from(r.run[0] % 3);
        let name = EventKind::Bystander {
            comm: format!("thread {}", by % 2).into(),
            process: format!("neighbour {by}").into(),
            kernel: false,
        };
        let out = EventKind::SwitchOut {
            next_tid: by,
            state: 0,
        };
        let back = EventKind::SwitchIn {
            prev_tid: by,
            priority: 120,
            policy: 0,
        };
        events.after(1, by, name);
        events.after(2, 1, out);
        events.after(4, 1, back);
    }
    let s0 = events.publish(r.run[0], 1, 0x1010);
    let s1 = events.publish(1, 1, 0x1011);
    events.end(1, 1, 0x60);
    let mut inputs = [(0x1020, s0, 0x60), (0x1021, s1, 0x61)];
    if r.swapped {
        inputs.reverse();
    }
    for (n, (rmw, source, callback)) in inputs.into_iter().enumerate() {
        events.take(2, 2, rmw, source);
        events.start(2, callback);
        let publishes = kind == 1 || n == 1;
        let out = publishes.then(|| events.publish(r.run[1 + n], 2, 0x1010));
        events.end(1, 2, callback);
        if let Some(source) = out.filter(|_| !r.lost) {
            events.take(1, 3, 0x1020, source);
            events.start(3, 0x60);
            events.end(r.run[3], 3, 0x60);
        }
    }
}

fn models(number: Range<usize>) -> impl Strategy<Value = Vec<Model>> {
    let one = (prop::collection::vec(round(), 0..12), 0u8..2, any::<bool>());
    prop::collection::vec(one, number).prop_map(|runs| {
        runs.into_iter()
            .enumerate()
            .map(|(i, (rounds, kind, urban))| {
                let mode = if urban { "urban" } else { "highway" };
                synthesise(run(i as u32, mode), &system(&rounds, kind))
            })
            .collect()
    })
}

#[derive(Debug, Clone)]
struct Stated {
    modes: Vec<ModeRule>,
    link: Option<(usize, usize)>,
    /// Numbers of two callbacks. Chains are measured from the first to the publication of the
    /// second.
    cut: Option<(usize, usize)>,
}

fn stated() -> impl Strategy<Value = Stated> {
    let rules = prop::sample::subsequence(
        vec!["urban@400ms..1s", "urban,highway@/b", "x@1s..2s"],
        0..3,
    );
    let rules = rules.prop_map(|rules| rules.iter().map(|r| r.parse().unwrap()).collect());
    let numbers = || prop::option::of(any::<(usize, usize)>());
    (rules, numbers(), numbers()).prop_map(|(modes, link, cut)| Stated { modes, link, cut })
}

fn synthesise_stated(run: Run, events: &[Event], stated: &Stated) -> Model {
    let pass = |options: &SynthOptions| {
        let mut synth = Synth::new(options.clone());
        events.iter().for_each(|e| synth.push(e));
        synth
    };
    let mut options = SynthOptions::new(run);
    options.modes = stated.modes.clone();
    options.ids = pass(&options).into_ids();
    let model = pass(&options).finish();
    let callback = |n: usize| model.callbacks.get(n % model.callbacks.len().max(1));
    if let Some((Some(from), Some(to))) = stated.link.map(|(a, b)| (callback(a), callback(b))) {
        let link = format!("{} -> {}", from.id, to.id);
        options.links = link.parse().into_iter().collect();
    }
    if let Some((Some(from), Some(to))) = stated.cut.map(|(a, b)| (callback(a), callback(b))) {
        options.cuts = vec![Cut {
            from: Some(from.id.clone()),
            to: to.outputs.first().cloned(),
        }];
    }
    pass(&options).finish()
}

fn stored(model: &Model) -> Model {
    let text = serde_json::to_vec(model).unwrap();
    onbeat_document::file::read(&text).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").map_or(48, |n| n.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn merging_is_associative_and_commutative(models in models(2..5)) {
        let all = merge(models.clone()).unwrap();
        let mut backwards = models.clone();
        backwards.reverse();
        prop_assert!(merge(backwards).unwrap() == all, "not commutative");
        let left = models.iter().cloned().reduce(|a, b| merge(vec![stored(&a), b]).unwrap()).unwrap();
        prop_assert!(left == all, "not associative from the left");
        let right = models.iter().rev().cloned().reduce(|a, b| merge(vec![b, stored(&a)]).unwrap()).unwrap();
        prop_assert!(right == all, "not associative from the right");
        // Nothing is counted twice or lost.
        for c in &all.callbacks {
            let sum: u64 = models.iter().flat_map(|m| &m.callbacks).filter(|o| o.id == c.id).map(|o| o.figures.exec_ns.count()).sum();
            prop_assert_eq!(c.figures.exec_ns.count(), sum);
            let load = c.figures.exec_ns.sum() as f64 / c.figures.observed_ns.max(1) as f64;
            prop_assert!((c.figures.load - load).abs() < 1e-12);
            let mut summed = std::collections::BTreeMap::new();
            for cause in models.iter().flat_map(|m| &m.callbacks).filter(|o| o.id == c.id).flat_map(|o| &o.figures.causes) {
                *summed.entry(cause.by.clone()).or_insert(0) += cause.preempted_ns;
            }
            let merged: std::collections::BTreeMap<_, _> = c.figures.causes.iter().map(|cause| (cause.by.clone(), cause.preempted_ns)).collect();
            prop_assert_eq!(merged.len(), c.figures.causes.len(), "each component is listed once");
            prop_assert_eq!(&merged, &summed);
            prop_assert_eq!(u128::from(summed.values().sum::<u64>()), c.figures.preempted_ns.sum());
        }
        // A model merged alone stays as it was.
        prop_assert!(merge(vec![models[0].clone()]).unwrap() == models[0]);
        // The part of each mode holds its own runs, and all parts together are the whole.
        let modes: std::collections::BTreeSet<String> = models.iter().map(|m| m.runs[0].mode.clone()).collect();
        for mode in &modes {
            let part = filter_mode(all.clone(), mode).unwrap();
            let of_mode: Vec<Model> = models.iter().filter(|m| &m.runs[0].mode == mode).cloned().collect();
            let apart = merge(of_mode).unwrap();
            prop_assert_eq!(part.runs.len(), apart.runs.len());
            for c in &apart.callbacks {
                if c.figures.exec_ns.count() > 0 {
                    let same = part.callbacks.iter().find(|p| p.id == c.id).unwrap();
                    prop_assert_eq!(&same.figures, &c.figures);
                    prop_assert_eq!(&same.per_run, &c.per_run);
                }
            }
        }
        let united = set_mode(all.clone(), "any").unwrap();
        prop_assert!(united.callbacks.iter().all(|c| c.modes.is_empty()));
    }

    /// Engines that merge parts of a fleet's models in parallel rely on this.
    #[test]
    fn any_tree_of_merges_gives_the_same_bytes(
        models in models(2..10),
        picks in prop::collection::vec((any::<usize>(), 1usize..5), 20),
    ) {
        let bytes = |model: &Model| serde_json::to_vec_pretty(model).unwrap();
        let all = bytes(&merge(models.clone()).unwrap());
        // Groups of any size and of any models are merged as files until one is left.
        let mut parts: Vec<Vec<u8>> = models.iter().map(bytes).collect();
        let mut picks = picks.into_iter().cycle();
        while parts.len() > 1 {
            let mut group = Vec::new();
            for _ in 0..picks.next().unwrap().1.min(parts.len()) {
                let part = parts.swap_remove(picks.next().unwrap().0 % parts.len());
                group.push(onbeat_document::file::read(&part).unwrap());
            }
            parts.push(bytes(&merge(group).unwrap()));
        }
        prop_assert!(parts[0] == all);
    }

    #[test]
    fn figures_stay_within_what_is_possible(rounds in prop::collection::vec(round(), 6..20), kind in 0u8..2) {
        let m = synthesise(run(1, "x"), &system(&rounds, kind));
        let lost: u64 = rounds.iter().filter(|r| r.lost).count() as u64 * (1 + u64::from(kind));
        for c in &m.callbacks {
            prop_assert!(c.figures.exec_ns.max() <= c.figures.response_ns.max());
        }
        for e in &m.edges {
            let f = &e.figures;
            prop_assert!(f.taken + f.lost <= f.published && f.overwritten <= f.lost);
            prop_assert_eq!(f.latency_ns.count(), f.taken);
            // Every output of synchronised inputs counts, whichever input published it.
            if e.to.starts_with("/c") && e.from.contains(":sync(") {
                prop_assert_eq!(f.published - f.taken, lost);
            }
        }
        for c in &m.chains {
            let f = &c.figures;
            let sum: u128 = f.shares.iter().map(|s| s.sum_ns.parse::<u128>().unwrap()).sum();
            prop_assert_eq!(sum, f.latency_ns.sum());
            prop_assert!(f.executions <= rounds.len() as u64);
        }
        let and = m.junctions.iter().any(|j| j.kind == JunctionKind::And);
        prop_assert_eq!(and, kind == 0, "{:#?}", m.junctions);
    }

    #[test]
    fn any_order_of_any_events_gives_a_model(
        mut events in prop::collection::vec(any_event(), 0..400),
        in_time in any::<bool>(),
    ) {
        if in_time {
            events.sort_by_key(|e| e.time_ns);
        }
        let m = synthesise(run(1, "x"), &events);
        for e in &m.edges {
            prop_assert!(e.figures.taken <= e.figures.published, "{} {} {} {:?}", e.from, e.to, e.topic, e.figures);
        }
        prop_assert!(stored(&m) == m);
        prop_assert!(merge(vec![m.clone()]).unwrap() == m);
    }

    #[test]
    fn a_model_merged_alone_is_the_same_bytes(
        runs in prop::collection::vec(
            (prop::collection::vec(any_event(), 0..200), any::<bool>(), stated()),
            1..4,
        ),
    ) {
        let bytes = |model: &Model| serde_json::to_string_pretty(model).unwrap();
        let runs = runs.into_iter().enumerate();
        let models = runs.map(|(i, (mut events, in_time, stated))| {
            if in_time {
                events.sort_by_key(|e| e.time_ns);
            }
            synthesise_stated(run(i as u32, "x"), &events, &stated)
        });
        let models: Vec<Model> = models.collect();
        let all = merge(models.clone()).unwrap();
        for model in models.into_iter().chain([all]) {
            let before = bytes(&model);
            let mut after = vec![merge(vec![stored(&model)])];
            if let [run] = model.runs.as_slice() {
                // The whole run has this mode.
                after.push(filter_mode(model.clone(), &run.mode));
                after.push(set_mode(model.clone(), &run.mode));
            }
            for after in after {
                let after = bytes(&after.unwrap());
                let mut lines = before.lines().zip(after.lines()).enumerate();
                let differ = lines.find(|(_, (a, b))| a != b);
                prop_assert!(after == before, "{differ:?}");
            }
        }
    }
}

/// The values from which events are made. There are few of each, so that events refer to one
/// another.
struct Draw {
    b: [u8; 6],
    h: u64,
    g: u64,
    n: i64,
    yes: bool,
    name: &'static str,
    gid: [u8; 16],
    execute: ExecuteKind,
    endpoint: EndpointKind,
}

impl Draw {
    fn new(b: [u8; 6]) -> Draw {
        let of_four = usize::from(b[5] % 4);
        Draw {
            b,
            h: u64::from(b[1] % 4),
            g: u64::from(b[2] % 4),
            n: i64::from(b[3] % 5),
            yes: !b[4].is_multiple_of(4),
            name: ["a", "/b", "/rosout", "<c>"][of_four],
            gid: [b[2] % 3; 16],
            execute: [
                ExecuteKind::Timer,
                ExecuteKind::Subscription,
                ExecuteKind::Service,
                ExecuteKind::Client,
            ][of_four],
            endpoint: [
                EndpointKind::Publisher,
                EndpointKind::Subscription,
                EndpointKind::Service,
                EndpointKind::Client,
            ][of_four],
        }
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    (0u64..60, 0u8..74, any::<[u8; 6]>()).prop_map(|(time, which, b)| {
        let d = Draw::new(b);
        let kind = match which {
            0..=17 => creation(which, &d),
            18 | 19 | 67..=73 => found(which, &d),
            20..=38 => data(which, &d),
            39..=55 => call(which, &d),
            _ => kernel(which, &d),
        };
        // Steps of up to two seconds, so that everything that waits for a time also runs out of it.
        let time_ns = time * 40_000_000;
        let pid = u32::from(b[4] % 3);
        Event {
            time_ns,
            cpu: u16::from(b[5]),
            pid,
            tid: pid + 10 * u32::from(b[3] % 2),
            kind,
        }
    })
}

fn creation(which: u8, d: &Draw) -> EventKind {
    match which {
        0 => EventKind::NodeInit {
            node: d.h,
            rmw: d.g,
            name: d.name.into(),
            namespace: "/".into(),
        },
        1 => EventKind::PublisherInit {
            publisher: d.h,
            node: d.g,
            rmw: d.h,
            topic: d.name.into(),
            depth: d.g,
        },
        2 => EventKind::SubscriptionInit {
            subscription: d.h,
            node: d.g,
            rmw: d.h,
            topic: d.name.into(),
            depth: d.g,
        },
        3 => EventKind::ServiceInit {
            service: d.h,
            node: d.g,
            rmw: d.h,
            name: d.name.into(),
        },
        4 => EventKind::ClientInit {
            client: d.h,
            node: d.g,
            rmw: d.h,
            name: d.name.into(),
        },
        5 => EventKind::ClientGid {
            rmw: d.h,
            gid: d.gid,
        },
        6 => EventKind::ClockInit { clock: d.h },
        7 => EventKind::TimerInit {
            timer: d.h,
            period_ns: d.n - 1,
        },
        8 => EventKind::TimerClock {
            timer: d.h,
            clock: d.g,
        },
        9 => EventKind::TimerNode {
            timer: d.h,
            node: d.g,
        },
        10 => EventKind::TimerCallback {
            timer: d.h,
            callback: d.g,
        },
        11 => EventKind::SubscriptionObject {
            subscription: d.h,
            object: d.g,
        },
        12 => EventKind::SubscriptionCallback {
            object: d.h,
            callback: d.g,
        },
        13 => EventKind::ServiceCallback {
            service: d.h,
            callback: d.g,
        },
        14 => EventKind::CallbackSymbol {
            callback: d.h,
            symbol: d.name.into(),
        },
        15 => EventKind::IntraBufferSubscription {
            ipb: d.h,
            object: d.g,
        },
        16 => EventKind::RingBufferIntraBuffer {
            buffer: d.h,
            ipb: d.g,
        },
        _ => EventKind::EndpointFound {
            endpoint: d.endpoint,
            rcl: d.h,
            rmw: d.g,
            name: d.name.into(),
        },
    }
}

fn found(which: u8, d: &Draw) -> EventKind {
    match which {
        18 => EventKind::NodeFound {
            node: d.h,
            name: d.name.into(),
        },
        19 if d.yes => EventKind::LinkInit {
            end: d.h,
            link: d.g,
            depth: d.n as u64 % 8,
            sends: d.b[2] < 128,
            name: d.name.into(),
        },
        19 => EventKind::HandleFini { handle: d.h },
        68 if d.yes => EventKind::EndpointQos {
            endpoint: d.endpoint,
            rcl: d.h,
            history: d.b[2] % 4,
            reliability: d.b[3] % 6,
            durability: d.b[4] % 6,
            liveliness: d.b[5] % 7,
            depth: d.n as u64 % 8,
            deadline_ns: d.g,
            lifespan_ns: 0,
            lease_ns: i64::MAX as u64,
        },
        68 => EventKind::EndpointNode {
            endpoint: d.endpoint,
            rcl: d.h,
            node: d.g,
        },
        69 => EventKind::TimerReset { timer: d.h },
        70 => EventKind::TimerPeriod {
            timer: d.h,
            period_ns: d.n - 1,
        },
        71 => EventKind::ClockKind {
            clock: d.h,
            time: d.b[2] % 4,
        },
        72 => EventKind::ClockOverride {
            clock: d.h,
            active: d.yes,
        },
        73 => EventKind::TimerCancel { timer: d.h },
        _ => EventKind::TimerFound { timer: d.h },
    }
}

fn data(which: u8, d: &Draw) -> EventKind {
    match which {
        20..=22 => EventKind::CallbackStart {
            callback: d.h,
            intra_process: d.yes,
        },
        23..=25 => EventKind::CallbackEnd { callback: d.h },
        26 | 27 => EventKind::TimerCall { timer: d.h },
        28..=30 => EventKind::Take {
            rmw: d.h,
            message: 0,
            source_ns: d.n,
            taken: d.yes,
        },
        31 => EventKind::IntraPublish {
            publisher: d.h,
            message: 0,
        },
        32 => EventKind::RingBufferEnqueue {
            buffer: d.h,
            index: d.g,
            overwritten: d.yes,
        },
        33 => EventKind::RingBufferDequeue {
            buffer: d.h,
            index: d.g,
        },
        34 => EventKind::RingBufferClear { buffer: d.h },
        35 => EventKind::RclPublish {
            publisher: d.h,
            message: 0,
        },
        _ => EventKind::Publish {
            rmw: d.h,
            message: 0,
            source_ns: d.yes.then_some(d.n),
        },
    }
}

fn call(which: u8, d: &Draw) -> EventKind {
    match which {
        39 | 40 => EventKind::RequestSend {
            rmw: d.h,
            sequence: d.n,
        },
        41 | 42 => EventKind::RequestTake {
            rmw: d.h,
            gid: d.gid,
            sequence: d.n,
            taken: d.yes,
        },
        43 | 44 => EventKind::ResponseSend {
            rmw: d.h,
            gid: d.gid,
            sequence: d.n,
            source_ns: d.yes.then_some(d.n),
        },
        45 | 46 => EventKind::ResponseTake {
            rmw: d.h,
            sequence: d.n,
            source_ns: d.n,
            taken: d.yes,
        },
        47 if d.yes => EventKind::SyncApproximate { filter: d.h },
        47 => EventKind::SyncInput { filter: d.h },
        48 => EventKind::ExecutorNextReady,
        49 => EventKind::ExecutorExecute { handle: d.h },
        50 => EventKind::ExecuteStart { execute: d.execute },
        51 => EventKind::ExecuteEnd { execute: d.execute },
        52 if d.yes => EventKind::LinkSend {
            end: d.h,
            number: d.n as u64 % 16,
        },
        52 => EventKind::WaitSetInit,
        53 if d.yes => EventKind::LinkReceive {
            end: d.h,
            number: d.n as u64 % 16,
        },
        53 => EventKind::Wait,
        _ => EventKind::GuardTrigger { guard: d.g + 1 },
    }
}

fn kernel(which: u8, d: &Draw) -> EventKind {
    match which {
        56 => EventKind::SwitchIn {
            prev_tid: 0,
            priority: d.b[1],
            policy: d.b[2],
        },
        57 if d.b[2] > 200 => EventKind::Occupied {
            prev_tid: if d.yes { u32::MAX } else { d.b[3].into() },
            last: d.b[4] > 128,
        },
        57 if d.b[2] > 175 => EventKind::LockWait {
            lock: d.h,
            owner_tid: d.b[3].into(),
        },
        57 if d.b[2] > 150 => EventKind::Bystander {
            comm: d.name.into(),
            process: d.name.into(),
            kernel: d.yes,
        },
        57 => EventKind::SwitchOut {
            next_tid: 0,
            state: u16::from(d.b[1] % 2),
        },
        58 => EventKind::Wake { waker_tid: 0 },
        60 => EventKind::Woken { ready_ns: d.h },
        59 if d.yes => EventKind::CpuTime {
            used_ns: d.h,
            since_switch: d.b[1].is_multiple_of(2),
        },
        59 => EventKind::Stolen { stolen_ns: d.h },
        61 => EventKind::Fork {
            parent_pid: 1,
            parent_tid: 1,
            comm: d.name.into(),
        },
        62 => EventKind::Exec {
            comm: d.name.into(),
        },
        63 => EventKind::Exit,
        64 => EventKind::Process {
            command: d.name.into(),
            distribution: "x".into(),
            rmw: "y".into(),
            late: d.yes,
        },
        65 => EventKind::ClockOffset {
            realtime_minus_monotonic_ns: d.n,
        },
        _ => EventKind::Lost {
            probe: d.name.into(),
            count: 1,
        },
    }
}

#[test]
fn the_same_run_cannot_be_merged_twice() {
    let m = synthesise(run(1, "x"), &[]);
    assert_eq!(
        merge(vec![m.clone(), m]),
        Err(ModelMergeError::SameRun("run1".into()))
    );
    assert_eq!(merge(vec![]), Err(ModelMergeError::Empty));
    let m = synthesise(run(1, "x"), &[]);
    let none = filter_mode(m, "y").unwrap_err();
    assert_eq!(
        none.to_string(),
        "the model has no run of mode 'y'. It has these modes: x"
    );
}

#[test]
fn merging_keeps_coverage_sentences_of_other_programs() {
    let mut m = synthesise(run(1, "x"), &system(&[], 0));
    m.coverage
        .push("The probe of x could not be attached.".into());
    let all = merge(vec![m, synthesise(run(2, "x"), &[])]).unwrap();
    assert!(all
        .coverage
        .contains(&"The probe of x could not be attached.".into()));
    let again = merge(vec![all.clone()]).unwrap();
    assert!(again == all);
}

#[test]
fn conclusions_are_drawn_from_all_runs_together() {
    let steady = Round {
        run: [10; 4],
        swapped: false,
        lost: false,
        preempted: false,
    };
    let swapped = Round {
        swapped: true,
        ..steady.clone()
    };
    // Three outputs are too few to decide that the two inputs wait for each other. Six are enough.
    let half = |id| {
        synthesise(
            run(id, "x"),
            &system(&[steady.clone(), swapped.clone(), steady.clone()], 0),
        )
    };
    let and = |m: &Model| {
        m.junctions
            .iter()
            .filter(|j| j.kind == JunctionKind::And)
            .count()
    };
    let (a, b) = (half(1), half(2));
    assert_eq!((and(&a), and(&b)), (0, 0));
    let both = merge(vec![stored(&a), stored(&b)]).unwrap();
    assert_eq!(and(&both), 1);
    let through = both
        .chains
        .iter()
        .filter(|c| c.callbacks.iter().any(|c| c == "/b:sync(/out)"));
    assert_eq!(
        through.map(|c| c.figures.executions).collect::<Vec<_>>(),
        [6, 6]
    );
    // A run that contradicts takes it back, and every figure is as before.
    let apart: Vec<Model> = (3..9)
        .map(|id| synthesise(run(id, "x"), &system(&[steady.clone(), steady.clone()], 1)))
        .collect();
    let mut all = apart.clone();
    all.insert(0, stored(&both));
    let all = merge(all).unwrap();
    assert_eq!(and(&all), 0, "{:#?}", all.junctions);
    let direct: u64 = all
        .edges
        .iter()
        .filter(|e| e.from.starts_with("/b:subscription") && e.assumed.is_none())
        .map(|e| e.figures.taken)
        .sum();
    assert_eq!(direct, 6 + 6 * 4);
}
