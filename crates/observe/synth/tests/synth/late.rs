//! Late attach: names that are found after their first use, and processes of several nodes.

use super::*;

/// The command of a process that ran before the recording. A timer (0x50) publishes `/a`. A
/// subscription (rmw 0x1020) of another node takes it and publishes `/b`, which a third node takes.
const COMMAND: &str =
    "0 cpu0 10/10 process command=/opt/lib/chain distribution=kilted rmw=x late=yes\n";

const NODES: &str = "
{t} cpu0 10/10 node_found node=0x1 name=/first
{t} cpu0 10/10 node_found node=0x2 name=/second
{t} cpu0 10/10 node_found node=0x3 name=/third
{t} cpu0 10/10 endpoint_node endpoint=publisher rcl=0x10 node=0x1
{t} cpu0 10/10 endpoint_node endpoint=subscription rcl=0x20 node=0x2
{t} cpu0 10/10 endpoint_node endpoint=publisher rcl=0x11 node=0x2
{t} cpu0 10/10 endpoint_node endpoint=subscription rcl=0x21 node=0x3
";

const ENDPOINTS: &str = "
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/a
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x11 rmw=0x1011 name=/b
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x20 rmw=0x1020 name=/a
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x21 rmw=0x1021 name=/b
1ms cpu0 10/10 timer_found timer=0x50
";

fn rounds(from: u64, to: u64) -> String {
    let round = |ms: u64| {
        format!(
            "
{ms}000us cpu0 10/10 timer_call timer=0x50
{ms}300us cpu0 10/10 publish rmw=0x1010 source_ns={ms}300us
{ms}400us cpu0 10/10 wait_set_init
{ms}500us cpu0 10/10 take rmw=0x1020 source_ns={ms}300us
{ms}900us cpu0 10/10 publish rmw=0x1011 source_ns={ms}900us
{ms}950us cpu0 10/10 take rmw=0x1021 source_ns={ms}900us
{ms}980us cpu0 10/10 wait_set_init"
        )
    };
    (from..to).step_by(10).map(round).collect()
}

#[test]
fn a_node_name_that_is_found_late_applies_to_earlier_executions() {
    let trace = format!(
        "{COMMAND}{ENDPOINTS}{}\n23ms cpu0 10/10 node_found node=0x0 name=/only{}",
        rounds(10, 21),
        rounds(30, 101)
    );
    let m = model(&trace);
    assert_eq!(
        ids(&m),
        [
            "/only:subscription(/a)",
            "/only:subscription(/b)",
            "/only:timer(10ms)",
        ]
    );
    assert_eq!(
        callback(&m, "/only:timer(10ms)").figures.exec_ns.count(),
        10
    );
    assert!(m.callbacks.iter().all(|c| c.identity == Identity::Known));
    let guesses = |s: &&String| s.contains("named after its process");
    assert_eq!(m.assumptions.iter().filter(guesses).count(), 0);
}

#[test]
fn callbacks_of_a_process_with_several_nodes_belong_to_their_own_nodes() {
    for found in [2, 25] {
        // The nodes are found at once, or after some executions.
        let nodes = NODES.replace("{t}", &format!("{found}ms"));
        let events = match found {
            2 => format!("{nodes}{}", rounds(10, 101)),
            _ => format!("{}{nodes}{}", rounds(10, 21), rounds(30, 101)),
        };
        let m = model(&format!("{COMMAND}{ENDPOINTS}{events}"));
        assert_eq!(
            chains(&m),
            ["/first:timer(10ms) > /second:subscription(/a) > /third:subscription(/b)"],
            "found at {found} ms"
        );
        assert_eq!(m.callbacks.len(), 3, "{:?}", ids(&m));
        assert_eq!(m.junctions.len(), 0, "{:?}", m.assumptions);
        assert_eq!(m.chains[0].figures.executions, 10);
    }
}

#[test]
fn with_a_second_node_in_the_process_the_node_of_each_callback_is_a_guess() {
    let trace = format!(
        "{COMMAND}{ENDPOINTS}2ms cpu0 10/10 node_found node=0x0 name=/first{}
95ms cpu0 10/10 node_found node=0x0 name=/second{}",
        rounds(10, 91),
        rounds(100, 191)
    );
    let m = model(&trace);
    assert!(
        m.callbacks.iter().all(|c| c.node == "/unknown-chain"),
        "{:?}",
        ids(&m)
    );
    assert!(m.callbacks.iter().all(|c| c.identity == Identity::Guessed));
    assert_eq!(m.callbacks.len(), 3, "{:?}", ids(&m));
    assert_eq!(m.junctions.len(), 0, "{:?}", m.assumptions);
    let said =
        "The node /unknown-chain is named after its process: its own name was not recorded. \
                It stands for 3 callbacks (marked ?), which may belong to several nodes.";
    assert!(
        m.assumptions.iter().any(|s| s == said),
        "{:?}",
        m.assumptions
    );
}

#[test]
fn a_synchroniser_is_found_in_a_node_that_is_named_late() {
    // Two inputs of another process, 1 ms apart, and an output after both.
    let mut trace = format!(
        "{COMMAND}
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=s
1ms cpu1 20/20 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/x
1ms cpu1 20/20 publisher_init publisher=0x11 node=0x1 rmw=0x1011 topic=/y
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x20 rmw=0x1020 name=/x
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x21 rmw=0x1021 name=/y
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x12 rmw=0x1012 name=/out
"
    );
    for ms in (10u64..=400).step_by(10) {
        // Either input can come first.
        let ((p, s), (q, t)) = match ms % 20 {
            0 => (("0x1010", "0x1020"), ("0x1011", "0x1021")),
            _ => (("0x1011", "0x1021"), ("0x1010", "0x1020")),
        };
        let next = ms + 1;
        if ms == 20 {
            trace += "18ms cpu0 10/10 node_found node=0x0 name=/fuse\n";
        }
        trace += &format!(
            "{ms}000us cpu1 20/20 publish rmw={p} source_ns={ms}000us
{ms}100us cpu0 10/10 take rmw={s} source_ns={ms}000us
{ms}200us cpu0 10/10 wait_set_init
{next}000us cpu1 20/20 publish rmw={q} source_ns={next}000us
{next}100us cpu0 10/10 take rmw={t} source_ns={next}000us
{next}400us cpu0 10/10 publish rmw=0x1012 source_ns={next}400us
{next}500us cpu0 10/10 wait_set_init
"
        );
    }
    let m = model(&trace);
    assert!(ids(&m).contains(&"/fuse:sync(/out)"), "{:?}", ids(&m));
}

#[test]
fn junctions_of_a_guessed_node_stay_undecided_and_drop_no_lineage() {
    // A process of several nodes with unknown names. Its sixteen subscriptions store `/x0` to
    // `/x15`. Eight fusions publish `/y0` to `/y7`, each when both of its inputs are there. A
    // subscription to each takes it.
    let mut trace = String::from(COMMAND);
    trace += "1ms cpu0 10/10 node_found node=0x0 name=/one\n";
    trace += "1ms cpu0 10/10 node_found node=0x0 name=/two\n";
    trace += "1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=s\n";
    let found = |kind: &str, i: u64, rmw: u64, name: &str| {
        format!(
            "1ms cpu0 10/10 endpoint_found endpoint={kind} rcl={i:#x} rmw={rmw:#x} name={name}\n"
        )
    };
    for i in 0..16 {
        let (publisher, rmw) = (0x10 + i, 0x1010 + i);
        trace += &format!("1ms cpu1 20/20 publisher_init publisher={publisher:#x} node=0x1 rmw={rmw:#x} topic=/x{i}\n");
        trace += &found("subscription", 0x20 + i, 0x1020 + i, &format!("/x{i}"));
    }
    for i in 0..8 {
        trace += &found("publisher", 0x40 + i, 0x1040 + i, &format!("/y{i}"));
        trace += &found("subscription", 0x30 + i, 0x1030 + i, &format!("/y{i}"));
    }
    for round in 1..=30u64 {
        let mut us = 10_000 * round;
        for i in 0..8 {
            // Either input can come first.
            let first = 2 * i + round % 2;
            let second = 4 * i + 1 - first;
            for (input, fused) in [(first, false), (second, true)] {
                trace += &format!(
                    "{us}us cpu1 20/20 publish rmw={:#x} source_ns={us}us\n{}us cpu0 10/10 take rmw={:#x} source_ns={us}us\n",
                    0x1010 + input, us + 20, 0x1020 + input
                );
                if fused {
                    let (at, taken) = (us + 40, us + 60);
                    trace += &format!(
                        "{at}us cpu0 10/10 publish rmw={:#x} source_ns={at}us\n{taken}us cpu0 10/10 take rmw={:#x} source_ns={at}us\n",
                        0x1040 + i, 0x1030 + i
                    );
                }
                trace += &format!("{}us cpu0 10/10 wait_set_init\n", us + 80);
                us += 100;
            }
        }
    }
    let m = model(&trace);
    assert_eq!(m.callbacks.len(), 24, "{:?}", ids(&m));
    assert!(m.chains.iter().all(|c| c.figures.dropped == 0));
    let dropped = |s: &&String| s.contains("were dropped");
    assert_eq!(m.coverage.iter().find(dropped), None);
    assert_eq!(m.junctions.len(), 8);
    for (i, j) in m.junctions.iter().enumerate() {
        let fused = [2 * i, 2 * i + 1].map(|n| format!("/unknown-chain:subscription(/x{n})"));
        let mut inputs = fused.to_vec();
        inputs.sort();
        assert_eq!(j.callback, format!("/unknown-chain:subscription(/y{i})"));
        assert_eq!((j.state, j.confidence), (JunctionState::Ambiguous, 0.5));
        let reading = |kind| Reading {
            kind,
            inputs: inputs.clone(),
        };
        assert_eq!(
            j.readings,
            [JunctionKind::Or, JunctionKind::And].map(reading)
        );
    }
    let said = |s: &&String| {
        s.starts_with(
            "Each subscription that publishes on /y0, /y1 and 6 more (8 in all) is assumed ",
        )
    };
    assert_eq!(m.assumptions.iter().filter(said).count(), 1);
}

/// Returns the events of a process with intra-process communication. A timer (0x50) puts `/a` into
/// a ring buffer (0x70), whose reader puts `/b` into another one (0x71). If `publishers` is set,
/// the recorder finds the publishers of both topics.
fn intra(publishers: bool) -> String {
    let mut trace = COMMAND.to_string();
    trace += "
1ms cpu0 10/10 node_found node=0x1 name=/first
1ms cpu0 10/10 node_found node=0x2 name=/second
1ms cpu0 10/10 node_found node=0x3 name=/third
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x20 rmw=0x1020 name=/a
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x21 rmw=0x1021 name=/b
1ms cpu0 10/10 endpoint_node endpoint=subscription rcl=0x20 node=0x2
1ms cpu0 10/10 endpoint_node endpoint=subscription rcl=0x21 node=0x3
1ms cpu0 10/10 timer_found timer=0x50
";
    if publishers {
        trace += "
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/a
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x11 rmw=0x1011 name=/b
1ms cpu0 10/10 endpoint_node endpoint=publisher rcl=0x10 node=0x1
1ms cpu0 10/10 endpoint_node endpoint=publisher rcl=0x11 node=0x2
";
    }
    for ms in (10..101).step_by(10) {
        let index = ms / 10 % 3;
        trace += &format!(
            "
{ms}000us cpu0 10/10 timer_call timer=0x50
{ms}001us cpu0 10/10 callback_start callback=0x60
{ms}100us cpu0 10/10 intra_publish publisher=0x10 message=0x99
{ms}101us cpu0 10/10 ring_buffer_enqueue buffer=0x70 index={index} overwritten=no
{ms}200us cpu0 10/10 callback_end callback=0x60
{ms}201us cpu0 10/10 executor_next_ready
{ms}210us cpu0 10/10 ring_buffer_dequeue buffer=0x70 index={index}
{ms}211us cpu0 10/10 callback_start callback=0x61 intra_process=yes
{ms}600us cpu0 10/10 intra_publish publisher=0x11 message=0x98
{ms}601us cpu0 10/10 ring_buffer_enqueue buffer=0x71 index={index} overwritten=no
{ms}711us cpu0 10/10 callback_end callback=0x61
{ms}712us cpu0 10/10 executor_next_ready
{ms}720us cpu0 10/10 ring_buffer_dequeue buffer=0x71 index={index}
{ms}721us cpu0 10/10 callback_start callback=0x62 intra_process=yes
{ms}921us cpu0 10/10 callback_end callback=0x62
{ms}922us cpu0 10/10 executor_next_ready
{ms}923us cpu0 10/10 wait"
        );
    }
    trace
}

#[test]
fn ring_buffers_belong_to_the_subscription_of_their_topic() {
    let m = model(&intra(true));
    assert_eq!(
        edges(&m),
        [
            "/first:timer(10ms) -> /second:subscription(/a) /a",
            "/second:subscription(/a) -> /third:subscription(/b) /b",
        ]
    );
    let second = callback(&m, "/second:subscription(/a)");
    assert_eq!(
        (second.figures.exec_ns.count(), second.figures.exec_ns.max()),
        (10, 500_000)
    );
    assert_eq!(m.chains.len(), 1);
    let latency = &m.chains[0].figures.latency_ns;
    assert_eq!((latency.count(), latency.max()), (10, 920_000));
    let said = "/second:subscription(/a) is assumed to read the intra-process buffer";
    assert!(m.assumptions.iter().any(|s| s.starts_with(said)));
    assert!(!m.coverage.iter().any(|s| s.starts_with("An unknown ")));
}

#[test]
fn a_ring_buffer_of_a_topic_with_two_subscriptions_belongs_to_neither() {
    let twin = "
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x22 rmw=0x1022 name=/b
1ms cpu0 10/10 endpoint_node endpoint=subscription rcl=0x22 node=0x1";
    let mut trace = intra(true);
    trace.insert_str(COMMAND.len(), twin);
    let m = model(&trace);
    assert_eq!(
        edges(&m),
        [
            "/first:timer(10ms) -> /second:subscription(/a) /a",
            "/second:subscription(/a) -> /unknown-chain:subscription(/b) /b",
        ]
    );
    let reader = callback(&m, "/unknown-chain:subscription(/b)");
    assert_eq!(reader.identity, Identity::Guessed);
}

#[test]
fn ring_buffers_of_unknown_topics_have_their_executions_and_edges() {
    let m = model(&intra(false));
    let (first, second) = (
        "/unknown-chain:subscription(/unknown-chain/ring_buffer_1)",
        "/unknown-chain:subscription(/unknown-chain/ring_buffer_2)",
    );
    let executions = |id| {
        let c = callback(&m, id);
        (
            c.figures.exec_ns.count(),
            c.figures.exec_ns.max(),
            c.identity,
        )
    };
    let said = format!("{first} is named after the intra-process buffer");
    assert!(m.assumptions.iter().any(|s| s.starts_with(&said)));
    assert_eq!(executions(first), (10, 500_000, Identity::Guessed));
    assert_eq!(executions(second), (10, 200_000, Identity::Guessed));
    assert_eq!(
        edges(&m),
        [
            format!("{first} -> {second} /unknown-chain/ring_buffer_2"),
            format!("/unknown-chain:timer(10ms) -> {first} /unknown-chain/ring_buffer_1"),
        ]
    );
}

#[test]
fn events_of_late_attach_do_not_show_that_the_thread_runs() {
    let round = |ms: u64| {
        format!(
            "
{ms}000us cpu0 10/10 callback_start callback=0xc1
{ms}100us cpu0 10/10 publish rmw=0x1010 source_ns={ms}100us
{ms}200us cpu0 10/10 switch_out next_tid=7 state=0
{ms}300us cpu0 10/10 node_found node=0x1 name=/first
{ms}300us cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/a
{ms}300us cpu0 10/10 endpoint_node endpoint=publisher rcl=0x10 node=0x1
{ms}300us cpu0 10/10 timer_found timer=0x50
{ms}800us cpu0 10/10 switch_in prev_tid=7 priority=120 policy=0
{ms}900us cpu0 10/10 callback_end callback=0xc1"
        )
    };
    let timer = "
2ms cpu0 10/10 timer_init timer=0x50 period_ns=10000000
2ms cpu0 10/10 timer_callback timer=0x50 callback=0xc1";
    let rounds: String = (10..101).step_by(10).map(round).collect();
    let m = model(&format!("{COMMAND}{timer}{rounds}"));
    let exec = &m.callbacks[0].figures.exec_ns;
    assert_eq!(
        (exec.count(), exec.min(), exec.max()),
        (10, 300_000, 300_000)
    );
    let said = m.coverage.iter().find(|c| c.contains("scheduler event"));
    assert_eq!(said, None);
}

/// Two nodes of a process that ran before the recording. `/planner` has a publisher of `/path` and
/// a timer. `/helper` exists for its client of `/plan`, and publishes `/state`.
const PLANNER: &str = "
0 cpu0 10/10 process command=/opt/py distribution=kilted rmw=x late=yes
1ms cpu0 10/10 node_found node=0x1 name=/planner
1ms cpu0 10/10 node_found node=0x2 name=/helper
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/path
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x11 rmw=0x1011 name=/state
1ms cpu0 10/10 endpoint_found endpoint=client rcl=0x40 rmw=0x1040 name=/plan
1ms cpu0 10/10 endpoint_node endpoint=publisher rcl=0x10 node=0x1
1ms cpu0 10/10 endpoint_node endpoint=publisher rcl=0x11 node=0x2
1ms cpu0 10/10 endpoint_node endpoint=client rcl=0x40 node=0x2
";

fn py(t: u64, what: &str) -> String {
    format!("{t}us cpu0 10/10 {what}\n")
}

fn waits(t: u64) -> String {
    py(t, "wait_set_init") + &py(t + 1, "wait")
}

#[test]
fn code_after_the_response_to_an_unseen_request_belongs_to_no_callback() {
    let mut trace = PLANNER.to_string() + &waits(1_100);
    // A callback from before the recording waited for this response, and publishes.
    trace += &py(2_000, "response_take rmw=0x1040 sequence=5 source_ns=1us");
    trace += &py(2_100, "publish rmw=0x1010 source_ns=2100us");
    trace += &waits(2_200);
    for n in 6..26u64 {
        let t = n * 10_000;
        let response = format!("response_take rmw=0x1040 sequence={n} source_ns=1us");
        trace += &py(t, "timer_call timer=0x50");
        trace += &py(t + 100, &format!("request_send rmw=0x1040 sequence={n}"));
        trace += &py(
            t + 300,
            &format!("publish rmw=0x1010 source_ns={}us", t + 300),
        );
        trace += &waits(t + 400);
        trace += &py(t + 3_000, &response);
        trace += &waits(t + 3_050);
    }
    let m = model(&trace);
    let client = callback(&m, "/helper:client(/plan)");
    assert_eq!(client.figures.exec_ns.count(), 20);
    assert!(client.outputs.is_empty(), "{:?}", client.outputs);
    let said = "A response came once to a request from before the recording,";
    assert!(
        m.coverage.iter().any(|s| s.starts_with(said)),
        "{:?}",
        m.coverage
    );
}

#[test]
fn a_timer_belongs_to_the_node_that_publishes_and_not_to_the_one_that_sends_requests() {
    let run = |t: u64, outputs: [&str; 2]| {
        let within = |(i, output): (usize, &&str)| {
            let t = t + 100 * (i as u64 + 1);
            py(t, &output.replace("{t}", &t.to_string()))
        };
        let within: String = outputs.iter().enumerate().map(within).collect();
        py(t, "timer_call timer=0x50") + &within + &waits(t + 900)
    };
    let names = |outputs: [&str; 2]| {
        let runs: String = (1..20).map(|n| run(n * 10_000, outputs)).collect();
        let m = model(&(PLANNER.to_string() + &runs));
        (ids(&m).join(" "), m.assumptions.join(" "))
    };
    let path = "publish rmw=0x1010 source_ns={t}us";
    let request = "request_send rmw=0x1040 sequence={t}";
    let (id, assumed) = names([request, path]);
    assert_eq!(id, "/planner:timer(10ms)");
    assert!(assumed.contains("assumed to belong to the node whose topics it publishes"));
    // The timer publishes by publishers of two nodes, so it may belong to either.
    let (id, assumed) = names([path, "publish rmw=0x1011 source_ns={t}us"]);
    assert_eq!(id, "/unknown-py:timer(10ms)");
    assert!(!assumed.contains("assumed to belong"), "{assumed}");
}

#[test]
fn timers_made_repeatedly_are_one_callback_if_their_publications_show_the_node() {
    let mut trace = PLANNER.to_string();
    for n in 1..20u64 {
        let (t, timer) = (n * 100_000, 0x500 + 0x10 * n);
        trace += &py(t, &format!("timer_clock timer={timer:#x} clock=0x7"));
        trace += &py(t, &format!("timer_init timer={timer:#x} period_ns=30ms"));
        trace += &py(t + 30_000, &format!("timer_call timer={timer:#x}"));
        trace += &py(
            t + 30_100,
            &format!("publish rmw=0x1010 source_ns={}us", t + 30_100),
        );
        trace += &py(t + 30_200, &format!("timer_cancel timer={timer:#x}"));
        trace += &waits(t + 30_300);
        trace += &py(t + 30_400, &format!("handle_fini handle={timer:#x}"));
    }
    let m = model(&trace);
    assert_eq!(ids(&m), ["/planner:timer(30ms)"]);
    assert_eq!(m.callbacks[0].figures.exec_ns.count(), 19);
}

/// Returns the events of `lines` in process 10. The lines begin at `t` us, but the recording lacks
/// the lines before `seen` us. At the end, process 20 takes `/path`.
fn recorded(t: u64, seen: u64, lines: &[(u64, String)]) -> String {
    let mut text = String::new();
    for (after, what) in lines {
        if t + after >= seen {
            text += &py(t + after, what);
        }
    }
    let viewer = |after: u64, what: String| format!("{}us cpu1 20/20 {what}\n", t + after);
    text += &viewer(9_300, format!("take rmw=0x1020 source_ns={}us", t + 9_000));
    text + &viewer(9_400, "wait_set_init".into())
}

/// Returns a round of `/planner`'s timer from `t` us on, recorded from `seen` us on. The timer
/// calls `/plan` through an executor of its own. When that executor has the response, the timer
/// continues and publishes.
fn nested(t: u64, sequence: u64, seen: u64) -> String {
    let (outer, inner) = ("guard_trigger guard=0x8", "guard_trigger guard=0x9");
    let lines = [
        (0, "timer_call timer=0x50".to_string()),
        (100, outer.into()),
        (
            2_000,
            format!("request_send rmw=0x1040 sequence={sequence}"),
        ),
        (2_100, inner.into()),
        (2_200, "wait_set_init".into()),
        (2_201, "wait".into()),
        (
            7_000,
            format!("response_take rmw=0x1040 sequence={sequence} source_ns=1us"),
        ),
        (7_030, inner.into()),
        (7_040, inner.into()),
        (7_050, inner.into()),
        (
            9_000,
            format!("publish rmw=0x1010 source_ns={}us", t + 9_000),
        ),
        (9_100, outer.into()),
        (9_200, "wait_set_init".into()),
        (9_201, "wait".into()),
    ];
    recorded(t, seen, &lines)
}

/// Returns two parts of the events of [`PLANNER`]'s process: the events that are known at first,
/// and the events that the recorder finds after the fifth round.
fn known_and_found_later() -> (String, String) {
    let (nodes, first): (Vec<_>, Vec<_>) = PLANNER
        .lines()
        .partition(|line| line.contains("node_found") || line.contains("endpoint_node"));
    let later = nodes.join("\n").replace("1ms ", "115ms ");
    (first.join("\n") + "\n", later + "\n")
}

const FROM_BEFORE_THE_RECORDING: &str =
    " to a request from before the recording, or to a request of a callback that began before";

#[test]
fn a_nested_executor_is_recognised_wherever_the_recording_begins_in_it() {
    let heard = "
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=viewer
1ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/path
";
    let (known, found) = known_and_found_later();
    let round = |n: u64| nested(n * 20_000, n, 0);
    let all: String = (1..=20).map(round).collect();
    let whole = model(&(PLANNER.to_string() + heard + &all));
    // The recording begins between any two events of the first round, and before and after it.
    for seen in [
        0, 50, 1_000, 2_050, 2_150, 5_000, 7_010, 7_035, 7_060, 9_050, 9_150,
    ] {
        let first = nested(20_000, 1, 20_000 + seen);
        let (before, after): (String, String) =
            ((2..=5).map(round).collect(), (6..=20).map(round).collect());
        let m = model(&format!("{known}{heard}{first}{before}{found}{after}"));
        assert_eq!(ids(&m), ids(&whole), "from {seen} us on");
        assert_eq!(edges(&m), edges(&whole), "from {seen} us on");
        assert_eq!(chains(&m), chains(&whole), "from {seen} us on");
        assert_eq!(m.junctions.len(), 0, "from {seen} us on: {:?}", m.junctions);
        let client = callback(&m, "/helper:client(/plan)");
        assert!(client.outputs.is_empty(), "from {seen} us on");
        let runs = callback(&m, "/planner:timer(20ms)").figures.exec_ns.count();
        assert_eq!(runs, if seen == 0 { 20 } else { 19 }, "from {seen} us on");
        let said = m
            .coverage
            .iter()
            .any(|s| s.contains(FROM_BEFORE_THE_RECORDING));
        assert_eq!(said, (50..7_000).contains(&seen), "from {seen} us on");
    }
}

fn awaited(t: u64, sequence: u64, seen: u64) -> String {
    let guard = "guard_trigger guard=0x9";
    let lines = [
        (0, "timer_call timer=0x50".to_string()),
        (100, guard.into()),
        (
            2_000,
            format!("request_send rmw=0x1040 sequence={sequence}"),
        ),
        (2_100, "timer_call timer=0x51".into()),
        (2_200, guard.into()),
        (4_000, guard.into()),
        (4_100, "wait_set_init".into()),
        (4_101, "wait".into()),
        (
            7_000,
            format!("response_take rmw=0x1040 sequence={sequence} source_ns=1us"),
        ),
        (7_030, guard.into()),
        (7_040, guard.into()),
        (7_050, guard.into()),
        (
            9_000,
            format!("publish rmw=0x1010 source_ns={}us", t + 9_000),
        ),
        (9_100, guard.into()),
        (9_200, "wait_set_init".into()),
        (9_201, "wait".into()),
    ];
    recorded(t, seen, &lines)
}

#[test]
fn a_coroutine_is_recognised_wherever_the_recording_begins_in_it() {
    let heard = "
1ms cpu0 10/10 timer_found timer=0x50
1ms cpu0 10/10 timer_found timer=0x51
1ms cpu0 10/10 timer_period timer=0x50 period_ns=20ms
1ms cpu0 10/10 timer_period timer=0x51 period_ns=30ms
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=viewer
1ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/path
";
    let (known, found) = known_and_found_later();
    let round = |n: u64| awaited(n * 20_000, n, 0);
    let all: String = (1..=20).map(round).collect();
    let whole = model(&(PLANNER.to_string() + heard + &all));
    for seen in [
        0, 50, 1_000, 2_050, 2_150, 3_000, 4_050, 5_000, 7_010, 7_060, 9_050,
    ] {
        let first = awaited(20_000, 1, 20_000 + seen);
        let (before, after): (String, String) =
            ((2..=5).map(round).collect(), (6..=20).map(round).collect());
        let m = model(&format!("{known}{heard}{first}{before}{found}{after}"));
        assert_eq!(ids(&m), ids(&whole), "from {seen} us on");
        assert_eq!(edges(&m), edges(&whole), "from {seen} us on");
        assert_eq!(chains(&m), chains(&whole), "from {seen} us on");
        assert_eq!(m.junctions.len(), 0, "from {seen} us on: {:?}", m.junctions);
        let runs = callback(&m, "/planner:timer(20ms)").figures.exec_ns.count();
        assert_eq!(runs, if seen == 0 { 20 } else { 19 }, "from {seen} us on");
    }
}

const POLLING_NODE: &str = "
0 cpu0 10/10 process command=/opt/py distribution=kilted rmw=x late=yes
1ms cpu0 10/10 node_found node=0x0 name=/poller
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/command
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x21 rmw=0x1021 name=/scan
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=sensor
1ms cpu1 20/20 publisher_init publisher=0x11 node=0x1 rmw=0x1011 topic=/scan
1ms cpu1 20/20 timer_init timer=0x50 period_ns=20ms
1ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/command
";

fn polling(t: u64, seen: u64, end: u64) -> String {
    let mut text = format!(
        "{}us cpu1 20/20 timer_call timer=0x50
{}us cpu1 20/20 publish rmw=0x1011 source_ns={}us
{}us cpu1 20/20 wait_set_init
",
        t - 900,
        t - 800,
        t - 800,
        t - 700
    );
    let lines = [
        (0, "timer_call timer=0x50".to_string()),
        (100, "guard_trigger guard=0x9".into()),
        (2_000, format!("take rmw=0x1021 source_ns={}us", t - 800)),
        (2_100, "take rmw=0x1021 source_ns=0 taken=no".into()),
        (
            9_000,
            format!("publish rmw=0x1010 source_ns={}us", t + 9_000),
        ),
        (9_100, "guard_trigger guard=0x9".into()),
        (9_200, "wait_set_init".into()),
        (9_201, "wait".into()),
    ];
    for (after, what) in lines {
        if (seen..=end).contains(&(t + after)) {
            text += &py(t + after, &what);
        }
    }
    text
}

#[test]
fn a_polling_callback_is_recognised_wherever_the_recording_begins_or_ends_in_it() {
    let whole: String = (1..=20).map(|n| polling(n * 20_000, 0, u64::MAX)).collect();
    let whole = model(&(POLLING_NODE.to_string() + &whole));
    assert_eq!(
        edges(&whole),
        ["/sensor:timer(20ms) -> /poller:timer(20ms) /scan"]
    );
    let run = |from, to| {
        let rounds = (1..=20).map(|n| polling(n * 20_000, from, to));
        let m = model(&(POLLING_NODE.to_string() + &rounds.collect::<String>()));
        assert_eq!(ids(&m), ids(&whole), "{from} to {to} us");
        assert_eq!(edges(&m), edges(&whole), "{from} to {to} us");
        assert_eq!(m.junctions.len(), 0, "{from} to {to} us");
    };
    for within in [50, 1_000, 2_050, 5_000, 9_050, 9_150] {
        run(20_000 + within, u64::MAX);
        run(0, 20 * 20_000 + within);
    }
}

/// Returns the events of a process with intra-process communication, and of a listener in another
/// process. For the listener, rclcpp publishes each message through the middleware as well. The
/// subscription in the publishing process takes that second copy as well, and rclcpp drops it. The
/// recorder finds the names of the publishers at `publishers_at`.
fn intra_and_listener(publishers_at: &str) -> String {
    let mut trace = COMMAND.to_string();
    trace += &format!(
        "
1ms cpu0 10/10 node_found node=0x1 name=/first
1ms cpu0 10/10 node_found node=0x2 name=/second
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x20 rmw=0x1020 name=/a
1ms cpu0 10/10 endpoint_node endpoint=subscription rcl=0x20 node=0x2
1ms cpu0 10/10 timer_found timer=0x50
{publishers_at} cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/a
{publishers_at} cpu0 10/10 endpoint_node endpoint=publisher rcl=0x10 node=0x1
{publishers_at} cpu0 10/10 endpoint_found endpoint=publisher rcl=0x11 rmw=0x1011 name=/b
{publishers_at} cpu0 10/10 endpoint_node endpoint=publisher rcl=0x11 node=0x2
"
    );
    for ms in (10..201).step_by(10) {
        let index = ms / 10 % 3;
        trace += &format!(
            "
{ms}000us cpu0 10/10 executor_next_ready
{ms}000us cpu0 10/10 timer_call timer=0x50
{ms}001us cpu0 10/10 callback_start callback=0x60
{ms}100us cpu0 10/10 intra_publish publisher=0x10 message=0x99
{ms}101us cpu0 10/10 ring_buffer_enqueue buffer=0x70 index={index} overwritten=no
{ms}110us cpu0 10/10 rcl_publish publisher=0x10 message=0x99
{ms}111us cpu0 10/10 publish rmw=0x1010 message=0x99 source_ns={ms}111us
{ms}200us cpu0 10/10 callback_end callback=0x60
{ms}201us cpu0 10/10 executor_next_ready
{ms}202us cpu0 10/10 executor_execute handle=0x20
{ms}203us cpu0 10/10 take rmw=0x1020 source_ns={ms}111us
{ms}209us cpu0 10/10 executor_next_ready
{ms}210us cpu0 10/10 ring_buffer_dequeue buffer=0x70 index={index}
{ms}211us cpu0 10/10 callback_start callback=0x61 intra_process=yes
{ms}600us cpu0 10/10 rcl_publish publisher=0x11 message=0x98
{ms}601us cpu0 10/10 publish rmw=0x1011 message=0x98 source_ns={ms}601us
{ms}711us cpu0 10/10 callback_end callback=0x61
{ms}712us cpu0 10/10 executor_next_ready
{ms}713us cpu0 10/10 executor_wait_for_work timeout_ns=-1
{ms}923us cpu0 10/10 wait"
        );
    }
    trace
}

#[test]
fn a_take_that_rclcpp_drops_is_not_the_callback_of_an_intra_process_subscription() {
    // The third publication is the last one before the names are found.
    for (publishers_at, count) in [("1ms", 20), ("35ms", 17)] {
        let m = model(&rclcpp::sorted(&[intra_and_listener(publishers_at)]));
        let second = callback(&m, "/second:subscription(/a)");
        let exec = &second.figures.exec_ns;
        let found = (exec.count(), exec.min(), exec.max());
        assert_eq!(found, (count, 500_000, 500_000), "{publishers_at}");
        let edge = edge(&m, "/first:timer(10ms)", "/second:subscription(/a)");
        assert_eq!((edge.taken, edge.lost), (count, 0));
        let unknown = m.callbacks.iter().find(|c| c.id.starts_with("/unknown"));
        let unknown = unknown.map_or(0, |c| c.figures.exec_ns.count());
        assert_eq!(unknown, 20 - count);
    }
}

/// Returns the events of an application's own executor, which calls all timers that are due and
/// then runs their callbacks. The timer 0x50 is due each 10 ms (callback 0x60, 1 ms, publishes
/// `/a`), and the timer 0x51 each 20 ms (callback 0x61, 2 ms). If `together` is set, both timers
/// are due each 10 ms.
fn own_loop(start: &str, together: bool) -> String {
    let mut trace = start.to_string();
    for ms in (10..401).step_by(10) {
        let both = together || ms % 20 == 0;
        let second = |text: &str| {
            if both {
                text.to_string()
            } else {
                String::new()
            }
        };
        trace += &format!(
            "
{ms}000us cpu0 10/10 timer_call timer=0x50{}
{ms}050us cpu0 10/10 callback_start callback=0x60
{ms}600us cpu0 10/10 publish rmw=0x1010 source_ns={ms}600us
{}us cpu0 10/10 callback_end callback=0x60{}
{}us cpu0 10/10 wait
{}us cpu1 20/20 take rmw=0x1020 source_ns={ms}600us
{}us cpu1 20/20 callback_start callback=0x60
{}us cpu1 20/20 callback_end callback=0x60",
            second(&format!("\n{ms}037us cpu0 10/10 timer_call timer=0x51")),
            ms * 1_000 + 1_050,
            second(&format!(
                "\n{}us cpu0 10/10 callback_start callback=0x61\n{}us cpu0 10/10 callback_end callback=0x61",
                ms * 1_000 + 1_100,
                ms * 1_000 + 3_100,
            )),
            ms * 1_000 + 3_200,
            ms * 1_000 + 3_300,
            ms * 1_000 + 3_310,
            ms * 1_000 + 3_400,
        );
    }
    trace
}

#[test]
fn callbacks_of_an_executor_that_first_calls_all_due_timers_belong_to_their_timers() {
    let listener = "
1ms cpu1 20/20 process command=/opt/listener distribution=jazzy rmw=x
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=listener
1ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/a
1ms cpu1 20/20 subscription_object subscription=0x20 object=0x25
1ms cpu1 20/20 subscription_callback object=0x25 callback=0x60";
    let late = "
1ms cpu0 10/10 process command=/opt/app distribution=jazzy rmw=x late=yes
1ms cpu0 10/10 node_found node=0x0 name=/app
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/a
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
1ms cpu0 10/10 timer_init timer=0x51 period_ns=20ms
1ms cpu0 10/10 timer_found timer=0x50
1ms cpu0 10/10 timer_found timer=0x51";
    let started = late.replace(" late=yes", "").replace(
        "node_found node=0x0 name=/app",
        "node_init node=0x1 rmw=0x1001 name=app",
    ) + "
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_callback timer=0x51 callback=0x61";
    // Late, the first executions show whose callbacks they are.
    for (start, together, shown) in [
        (started.as_str(), false, [40, 20]),
        (late, false, [39, 19]),
        (late, true, [37, 37]),
    ] {
        let m = model(&own_loop(&(start.to_string() + listener), together));
        let (fast, slow) = ("/app:timer(10ms)", "/app:timer(20ms)");
        let exec = |id| {
            let exec = &callback(&m, id).figures.exec_ns;
            (exec.count(), exec.min(), exec.max())
        };
        assert!(exec(fast).0 >= shown[0] && exec(slow).0 >= shown[1]);
        assert_eq!((exec(fast).1, exec(fast).2), (1_000_000, 1_000_000));
        assert_eq!((exec(slow).1, exec(slow).2), (2_000_000, 2_000_000));
        let edge = edge(&m, fast, "/listener:subscription(/a)");
        assert!(edge.taken >= shown[0], "{}", edge.taken);
    }
}
