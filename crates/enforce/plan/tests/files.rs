//! Checks plan files: the documented text, the way back, and the messages for broken files.
mod common;

use common::{ms, synthetic};
use onbeat_plan::file::{read, write};
use onbeat_plan::request::{InputRequest, ThrottleRequest};
use onbeat_plan::schema::{
    Band, CallbackRule, ChainRef, Hold, Middleware, Ms, Output, Overshoot, Promises, Server, Slot,
    Throttle, SCHEMA,
};
use onbeat_plan::{plan, Plan, Request, Strategy as Way};
use proptest::prelude::*;
use std::collections::BTreeMap;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/plan.yaml");

fn shaped() -> Plan {
    let request = Request {
        strategy: Way::Bands(3),
        background: vec![],
        inputs: InputRequest {
            throttles: vec![ThrottleRequest {
                topic: "/points".into(),
                node: Some("/bag".into()),
            }],
            ..InputRequest::default()
        },
        ..Request::default()
    };
    plan(&synthetic(), &request).unwrap()
}

/// To update the golden file, run `UPDATE_GOLDEN=1 cargo test -p onbeat-plan`, and check the
/// changes.
#[test]
fn the_plan_file_matches_the_golden_file() {
    let text = write(&shaped()).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(GOLDEN).unwrap());
    assert_eq!(read(text.as_bytes()), Ok(shaped()));
    for line in text.lines().filter(|l| l.starts_with('#')) {
        assert!(line.len() <= 110, "{line}");
    }
}

fn refusal_after(from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(GOLDEN).unwrap();
    assert!(text.contains(from), "no '{from}' in the golden plan");
    let text = read(text.replacen(from, to, 1).as_bytes())
        .unwrap_err()
        .to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    text
}

#[test]
fn a_mistake_in_a_plan_file_is_reported_with_its_line() {
    let line_of = |word: &str| {
        let text = std::fs::read_to_string(GOLDEN).unwrap();
        let n = text.lines().position(|l| l.contains(word)).unwrap() + 1;
        format!("line {n}: ")
    };
    let has = |text: String, words: &[&str]| {
        for word in words {
            assert!(text.contains(word), "no '{word}' in: {text}");
        }
    };
    has(
        refusal_after("onbeat-plan/1", "onbeat-plan/2"),
        &["onbeat-plan/2", "onbeat-plan/1"],
    );
    has(
        refusal_after("cycle_ms: 100", "cycle_ms: soon"),
        &[&line_of("cycle_ms"), "soon"],
    );
    has(
        refusal_after("cycle_ms: 100", "cycle_ms: -5"),
        &[&line_of("cycle_ms"), "-5"],
    );
    has(
        refusal_after("cycle_ms: 100", "cycle_ms: 50"),
        &["line", "[", "50 ms"],
    );
    has(
        refusal_after("cycle_ms: 100", "cycle_ms: 100\ncycle_ms: 100"),
        &["cycle_ms"],
    );
    has(
        refusal_after("overshoot: carry", "overshoot: discard"),
        &[&line_of("overshoot"), "discard", "drop"],
    );
    has(
        refusal_after("priority: 81", "prioritty: 81"),
        &["prioritty"],
    );
    has(
        refusal_after("priority: 80", "priority: 99"),
        &[&line_of("name: gamma"), "99", "gamma"],
    );
    has(
        refusal_after("priority: 80", "priority: 81"),
        &["gamma", "throttle", "81", "CPU 1"],
    );
    has(
        refusal_after("name: gamma", "name: delta"),
        &["'delta' occurs twice"],
    );
    has(
        refusal_after("server: delta", "server: detla"),
        &["detla", "/t5"],
    );
    has(refusal_after("/t5/onbeat_held", "/t5"), &["held_topic"]);
    // The plan has more slots than a shaper holds, or more topics than it serves.
    let slots: String = (20..35).map(|n| format!("  - [{n}, {n}.5]\n")).collect();
    has(
        refusal_after("  - [31.000575, 31.800575]\n", &slots),
        &["/t5", "17", "at most 16"],
    );
    let input =
        "- topic: /points\n  node: /bag\n  held_topic: /points/onbeat_held\n  server: throttle\n";
    let inputs: String = (0..16)
        .map(|n| input.replace("/points", &format!("/points{n}")))
        .collect();
    has(refusal_after(input, &inputs), &["17 topics", "at most 16"]);
    has(
        refusal_after(
            "overshoot: carry",
            "overshoot: carry\ncallbacks: [{id: /n9:client(/x)}]",
        ),
        &["names '/n9:client(/x)', but no server"],
    );
    has(
        refusal_after(
            "overshoot: carry",
            "overshoot: carry\ncallbacks: [{id: '/n2:subscription(/t1)', required: false}]",
        ),
        &["/n2:subscription(/t1)", "chain-0123456789ab"],
    );
    has(refusal_after("share: 0.5", "share: 50.5"), &["share"]);
    has(refusal_after("1: 0.7", "1: 1.7"), &["CPU 1", "%"]);
    has(
        refusal_after("origin: /n1:timer(100ms)", "origin: \"\\e[31m\""),
        &["chain-0123456789ab"],
    );
}

#[test]
fn files_that_are_not_plans_are_refused() {
    let refused = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
    assert!(refused("").contains("empty"));
    assert!(refused("# only words\n").contains("empty"));
    assert!(refused("schema: onbeat-plan/1").contains("missing field"));
    assert!(refused(&"x".repeat(2 << 20)).contains("at most"));
    assert!(read(b"\xff\xfe").is_err());
    // These texts grow, nest or repeat without end.
    let deep = "[".repeat(50_000);
    let laughs = "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n";
    let many = format!("servers: [{}]", "x,".repeat(400_000));
    for text in [deep.as_str(), laughs, &many, "--- {}\n--- {}\n"] {
        let text = refused(text);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.len() < 300, "{text}");
    }
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "/[a-z_]{1,12}(/[a-z0-9_]{1,8})?",
        "/[a-z]{1,5}:(timer|subscription)\\([a-z0-9/]{1,9}\\)",
        ".{1,12}",
        Just("yes".to_string()),
        Just("0x1F".into()),
        Just("- a: b # c".into()),
        Just("line\nbreak \u{1b}[31m \u{2028}".into()),
    ]
}

fn slots(cycle: u64) -> impl Strategy<Value = Vec<Slot>> {
    proptest::collection::btree_set(0..cycle, 0..7).prop_map(|ends| {
        let ends: Vec<u64> = ends.into_iter().collect();
        ends.chunks_exact(2)
            .map(|p| Slot(Ms(p[0]), Ms(p[1])))
            .collect()
    })
}

#[derive(Debug)]
struct Parts {
    names: Vec<String>,
    times: (u64, u64),
    share: f64,
    flag: bool,
    cpu: u16,
}

fn plans() -> impl Strategy<Value = Plan> {
    let cycle = 10u64..2_000_000_000;
    let servers = cycle.prop_flat_map(|cycle| {
        let one = (
            slots(cycle),
            proptest::collection::vec(word(), 0..3),
            0u8..2,
        );
        (Just(cycle), proptest::collection::vec(one, 1..4))
    });
    let times = (0u64..10_000_000_000, 0u64..10_000_000_000);
    let parts = (
        proptest::collection::vec(word(), 4),
        times,
        0.0f64..1.0,
        any::<bool>(),
        any::<u16>(),
    );
    let parts = parts.prop_map(|(names, times, share, flag, cpu)| Parts {
        names,
        times,
        share,
        flag,
        cpu,
    });
    (servers, parts).prop_map(|((cycle, servers), parts)| {
        let servers = servers.into_iter().zip(0u16..);
        let server = |(generated, i)| parts.server(generated, i);
        let servers = servers.map(server).collect();
        parts.plan(cycle, servers)
    })
}

impl Parts {
    fn server(&self, generated: (Vec<Slot>, Vec<String>, u8), i: u16) -> Server {
        let (slots_ms, callbacks, real_time) = generated;
        let callbacks = callbacks.into_iter().zip(0..);
        Server {
            name: format!("{}{i}", self.names[3]),
            cpu: self.cpu.wrapping_add(i),
            priority: real_time * (i as u8 + 1),
            slots_ms,
            callbacks: callbacks.map(|(c, j)| format!("{c}{i}{j}")).collect(),
        }
    }

    fn plan(self, cycle: u64, servers: Vec<Server>) -> Plan {
        let shaper = servers.iter().find(|s| !s.slots_ms.is_empty());
        let shaper = shaper.map(|s| s.name.clone());
        let (names, cpu) = (&self.names, self.cpu);
        Plan {
            schema: SCHEMA.into(),
            strategy: names[0].clone(),
            chains: vec![ChainRef {
                id: names[0].clone(),
                title: names[1].clone(),
                callbacks: vec![names[1].clone(), names[2].clone()],
                output: self.flag.then(|| names[2].clone()),
            }],
            cycle_ms: Ms(cycle),
            origin: names[1].clone(),
            outputs: shaper.iter().map(|server| self.output(server)).collect(),
            inputs: shaper.iter().map(|server| self.input(server)).collect(),
            callbacks: self.rules(&servers),
            servers,
            middleware: Middleware { cpu, priority: 91 },
            overshoot: if self.flag {
                Overshoot::Stop
            } else {
                Overshoot::Carry
            },
            promises: self.promises(),
            assumes: self.names,
        }
    }

    fn output(&self, server: &str) -> Output {
        Output {
            earliest_ms: Ms(0),
            topic: self.names[2].clone(),
            callback: self.names[1].clone(),
            node: self.names[3].clone(),
            hold: if self.flag {
                Hold::Republish
            } else {
                Hold::PublisherThread
            },
            held_topic: self.flag.then(|| format!("{}/held", self.names[2])),
            server: server.into(),
        }
    }

    fn input(&self, server: &str) -> Throttle {
        Throttle {
            topic: self.names[0].clone(),
            node: self.names[1].clone(),
            held_topic: format!("{}/held", self.names[0]),
            server: server.into(),
        }
    }

    fn rules(&self, servers: &[Server]) -> Vec<CallbackRule> {
        let ids = servers.iter().flat_map(|s| &s.callbacks);
        let rule = |id: &String| CallbackRule {
            id: id.clone(),
            required: self.times.0.is_multiple_of(2),
        };
        ids.filter(|_| self.flag).map(rule).collect()
    }

    fn promises(&self) -> Promises {
        let ((a, b), share) = (self.times, self.share);
        Promises {
            average_ms: Ms(a),
            worst_ms: Ms(b),
            jitter_ms: Ms(a / 2),
            bands: vec![Band {
                latency_ms: Slot(Ms(a.min(b)), Ms(a.max(b))),
                share,
            }],
            utilisation: BTreeMap::from([(self.cpu, share)]),
            ..Promises::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn written_plans_are_read_back_unchanged(plan in plans()) {
        let text = write(&plan).unwrap();
        let back = read(text.as_bytes());
        prop_assert_eq!(back.as_ref(), Ok(&plan), "{}", text);
    }

    #[test]
    fn written_times_are_read_back_to_the_nanosecond(ns in 0u64..864_000_000_000_000) {
        let mut plan = shaped();
        plan.promises.worst_ms = Ms(ns);
        prop_assert_eq!(read(write(&plan).unwrap().as_bytes()).unwrap().promises.worst_ms, Ms(ns));
    }

    #[test]
    fn damaged_plan_files_give_one_line_errors_without_a_panic(at in 0usize..4000, with in ".{0,6}") {
        let text = std::fs::read_to_string(GOLDEN).unwrap();
        let at = (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        let text = format!("{}{with}{}", &text[..at], text.get(at + 1..).unwrap_or(""));
        if let Err(e) = read(text.as_bytes()) {
            prop_assert_eq!(e.to_string().lines().count(), 1, "{}", e);
        }
    }
}

#[test]
fn a_slot_may_wrap_around_the_cycle_but_not_overlap_itself() {
    let mut plan = shaped();
    let cycle = plan.cycle_ms.0;
    let gamma = plan.servers.iter().position(|s| s.name == "gamma").unwrap();
    plan.servers[gamma].slots_ms = vec![
        Slot(Ms(ms(10.0)), Ms(ms(20.0))),
        Slot(Ms(ms(90.0)), Ms(cycle + ms(5.0))),
    ];
    assert_eq!(onbeat_plan::validate(&plan), Ok(()));
    plan.servers[gamma].slots_ms[1].1 = Ms(cycle + ms(11.0));
    assert!(onbeat_plan::validate(&plan).is_err());
    // The slot wraps around onto one of another server with the same priority.
    plan.servers[gamma].slots_ms[1].1 = Ms(cycle + ms(1.0));
    plan.servers[gamma].priority = 81;
    let fault = onbeat_plan::validate(&plan).unwrap_err().to_string();
    assert!(
        fault.contains("throttle") && fault.contains("overlap"),
        "{fault}"
    );
}
