//! Callbacks that nest, with the calls that rclcpp and rclpy make: `take()` in a callback, and
//! executors in callbacks.

use super::rclcpp::{sorted, LISTENER};
use super::*;

const SENSOR: &str = "
1ms cpu2 30/30 node_init node=0x1 rmw=0x1001 name=sensor namespace=/
1ms cpu2 30/30 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/scan
1ms cpu2 30/30 timer_init timer=0x50 period_ns=40ms
1ms cpu2 30/30 timer_callback timer=0x50 callback=0x60
1ms cpu2 30/30 timer_node timer=0x50 node=0x1
";

/// The events that create `/poller`, with a timer of 100 ms that publishes `/chatter` and a
/// subscription to `/scan`. The subscription's callback group belongs to no executor.
const POLLER: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=poller namespace=/
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/chatter
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/scan depth=1
1ms cpu0 10/10 subscription_object subscription=0x20 object=0x25
1ms cpu0 10/10 subscription_callback object=0x25 callback=0x61
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
";

const SENSOR_T: &str = "/sensor:timer(40ms)";
const POLLER_T: &str = "/poller:timer(100ms)";
const LISTENER_S: &str = "/listener:subscription(/chatter)";

fn sense(t: u64) -> String {
    format!(
        "{t}us cpu2 30/30 timer_call timer=0x50
{t}us cpu2 30/30 callback_start callback=0x60
{t}us cpu2 30/30 publish rmw=0x1010 source_ns={t}us
{}us cpu2 30/30 callback_end callback=0x60
",
        t + 200
    )
}

/// Returns the events of the poller's timer, which runs at `t` us for 10 ms. After 100 us it takes
/// the item with stamp `scan` us, or finds none. After 9 ms it publishes.
fn poll(t: u64, scan: Option<u64>) -> String {
    let take = match scan {
        Some(stamp) => format!("source_ns={stamp}us"),
        None => "source_ns=0 taken=no".into(),
    };
    format!(
        "{t}us cpu0 10/10 executor_next_ready
{t}us cpu0 10/10 timer_call timer=0x50
{t}us cpu0 10/10 executor_execute handle=0x50
{t}us cpu0 10/10 callback_start callback=0x60
{}us cpu0 10/10 take rmw=0x1020 {take}
{p}us cpu0 10/10 rcl_publish publisher=0x10 message=0x99
{p}us cpu0 10/10 publish rmw=0x1010 message=0x99 source_ns={p}us
{e}us cpu0 10/10 callback_end callback=0x60
{e}us cpu0 10/10 executor_wait_for_work timeout_ns=0
{e}us cpu0 10/10 wait
",
        t + 100,
        p = t + 9_000,
        e = t + 10_000,
    )
}

fn hear(t: u64, source: u64) -> String {
    format!(
        "{t}us cpu1 20/20 take rmw=0x1020 source_ns={source}us
{t}us cpu1 20/20 callback_start callback=0x60
{}us cpu1 20/20 callback_end callback=0x60
",
        t + 500
    )
}

fn polled(rounds: u64) -> Model {
    let mut parts = vec![SENSOR.to_string(), POLLER.to_string(), LISTENER.to_string()];
    for i in 1..=rounds {
        let t = i * 100_000;
        parts.extend([t - 80_000, t - 40_000].map(sense));
        parts.push(poll(t, Some(t - 40_000)));
        parts.push(hear(t + 9_100, t + 9_000));
    }
    model(&sorted(&parts))
}

fn check_nothing_missing(m: &Model) {
    assert!(m.junctions.is_empty(), "{:#?}", m.junctions);
    let usual = |c: &String| {
        c.contains("on threads without scheduler events") || c.starts_with("Callbacks marked")
    };
    assert!(m.coverage.iter().all(usual), "{:#?}", m.coverage);
}

#[test]
fn a_take_in_a_callback_is_an_additional_input_of_the_callback() {
    let m = polled(20);
    assert_eq!(ids(&m), [LISTENER_S, POLLER_T, SENSOR_T]);
    let poller = callback(&m, POLLER_T);
    let exec = &poller.figures.exec_ns;
    assert_eq!(
        (exec.count(), exec.min(), exec.max()),
        (20, 10_000_000, 10_000_000)
    );
    assert_eq!(poller.bracket, Bracket::Exact);
    assert_eq!(poller.outputs, ["/chatter"]);
    let scan = edge(&m, SENSOR_T, POLLER_T);
    // The other half was overwritten, because the queue holds one item. Before the first take,
    // publisher and subscription may not have been connected.
    assert_eq!((scan.published, scan.taken), (40, 20));
    assert_eq!((scan.lost, scan.overwritten), (1, 19));
    assert_eq!(scan.latency_ns.max(), 40_100_000);
    let chatter = edge(&m, POLLER_T, LISTENER_S);
    assert_eq!((chatter.published, chatter.taken), (20, 20));
    assert_eq!(
        chains(&m),
        [
            format!("{POLLER_T} > {LISTENER_S}"),
            format!("{SENSOR_T} > {POLLER_T} > {LISTENER_S}"),
        ]
    );
    let age = chain(&m, &format!("{SENSOR_T} > {POLLER_T} > {LISTENER_S}"));
    assert_eq!(
        age.figures.latency_ns.max(),
        40_000_000 + 9_100_000 + 500_000
    );
    check_nothing_missing(&m);
}

#[test]
fn a_chain_follows_the_latest_of_several_takes_of_a_subscription() {
    let mut parts = vec![SENSOR.to_string(), POLLER.to_string(), LISTENER.to_string()];
    for i in 1..=20 {
        let t = i * 100_000;
        parts.extend([t - 80_000, t - 40_000].map(sense));
        parts.push(poll(t, Some(t - 80_000)));
        // The callback takes in a loop: the older item, then the newer one, until there is none.
        parts.push(format!(
            "{}us cpu0 10/10 take rmw=0x1020 source_ns={}us\n{}us cpu0 10/10 take rmw=0x1020 source_ns=0 taken=no\n",
            t + 120,
            t - 40_000,
            t + 140
        ));
        parts.push(hear(t + 9_100, t + 9_000));
    }
    let m = model(&sorted(&parts));
    assert_eq!(edge(&m, SENSOR_T, POLLER_T).taken, 40);
    let chain = chain(&m, &format!("{SENSOR_T} > {POLLER_T} > {LISTENER_S}"));
    assert_eq!(chain.figures.executions, 20);
    assert_eq!(
        chain.figures.latency_ns.max(),
        40_000_000 + 9_100_000 + 500_000
    );
    let said = |c: &&String| c.starts_with("A callback took 20 items of /scan and then a later");
    assert!(m.coverage.iter().any(|c| said(&c)), "{:?}", m.coverage);
}

#[test]
fn a_take_as_the_first_event_of_a_thread_starts_no_callback() {
    // The recorder attaches while the poller's timer runs, so the beginning of that callback is not
    // recorded.
    let found = "
1ms cpu0 10/10 process command=/opt/poller distribution=jazzy rmw=rmw_fastrtps_cpp late=yes
1ms cpu0 10/10 node_found node=0x1 name=/poller
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x20 rmw=0x1020 name=/scan
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/chatter
";
    let mut parts = vec![SENSOR.to_string(), found.to_string(), LISTENER.to_string()];
    for i in 1..=5 {
        let t = i * 100_000;
        let all = poll(t, Some(t - 40_000));
        let seen = all.find(&format!("{}us cpu0 10/10 take", t + 100)).unwrap();
        parts.push(sense(t - 40_000));
        parts.push(all[if i == 1 { seen } else { 0 }..].to_string());
        parts.push(hear(t + 9_100, t + 9_000));
    }
    let m = model(&sorted(&parts));
    let polled = |c: &&Callback| c.id.contains("subscription(/scan)");
    assert!(!m.callbacks.iter().any(|c| polled(&c)), "{:?}", ids(&m));
    // The first publication belongs to a callback that began before the recording.
    assert_eq!(edge(&m, "/poller:timer(100ms)", LISTENER_S).taken, 4);
}

#[test]
fn an_edge_whose_items_all_went_to_a_polling_callback_is_left_out() {
    // The items for the subscription count for the timer that polls it. Then the subscription's own
    // callback runs, on an item that was not seen.
    let own = "
160ms cpu0 10/10 callback_start callback=0x61
161ms cpu0 10/10 callback_end callback=0x61
";
    let t = 100_000;
    let parts = [
        SENSOR.to_string(),
        POLLER.to_string(),
        sense(t - 40_000),
        poll(t, Some(t - 40_000)),
        own.to_string(),
    ];
    let m = model(&sorted(&parts));
    let scan = "/poller:subscription(/scan)";
    assert_eq!(ids(&m), [scan, POLLER_T, SENSOR_T]);
    assert_eq!(edges(&m), [format!("{SENSOR_T} -> {POLLER_T} /scan")]);
    assert_eq!(m.evidence["edges"], serde_json::json!([]));
}

#[test]
fn a_take_that_finds_no_item_adds_no_input_to_its_callback() {
    let mut parts = vec![POLLER.to_string(), LISTENER.to_string()];
    for i in 1..=5 {
        let t = i * 100_000;
        parts.extend([poll(t, None), hear(t + 9_100, t + 9_000)]);
    }
    let m = model(&sorted(&parts));
    let exec = &callback(&m, POLLER_T).figures.exec_ns;
    assert_eq!(
        (exec.count(), exec.min(), exec.max()),
        (5, 10_000_000, 10_000_000)
    );
    assert_eq!(edge(&m, POLLER_T, LISTENER_S).taken, 5);
}

#[test]
fn several_takes_in_a_callback_are_several_inputs() {
    let second = "
1ms cpu0 10/10 subscription_init subscription=0x21 node=0x1 rmw=0x1021 topic=/chatter depth=1
";
    let mut parts = vec![SENSOR.to_string(), POLLER.to_string(), second.to_string()];
    for i in 1..=5 {
        let t = i * 100_000;
        parts.push(sense(t - 40_000));
        parts.push(poll(t, Some(t - 40_000)));
        if i > 1 {
            // The callback takes its own publication of the previous round.
            parts.push(format!(
                "{}us cpu0 10/10 take rmw=0x1021 source_ns={}us\n",
                t + 200,
                t - 91_000
            ));
        }
    }
    let m = model(&sorted(&parts));
    assert_eq!(ids(&m), [POLLER_T, SENSOR_T]);
    assert_eq!(edge(&m, SENSOR_T, POLLER_T).taken, 5);
    assert_eq!(edge(&m, POLLER_T, POLLER_T).taken, 4);
    assert_eq!(callback(&m, POLLER_T).figures.exec_ns.min(), 10_000_000);
}

#[test]
fn items_taken_outside_of_callbacks_are_not_reported_as_lost() {
    let mut parts = vec![SENSOR.to_string(), POLLER.to_string(), LISTENER.to_string()];
    for i in 1..=20 {
        let t = i * 100_000;
        // The take is between two callbacks, as in rclcpp's wait sets, and no callback runs on it.
        parts.extend([sense(t - 40_000), poll(t, None), hear(t + 9_100, t + 9_000)]);
        parts.push(format!(
            "{}us cpu0 10/10 take rmw=0x1020 source_ns={}us\n{}us cpu0 10/10 wait\n",
            t + 20_000,
            t - 40_000,
            t + 20_100
        ));
    }
    check_nothing_missing(&model(&sorted(&parts)));
}

/// The events that create `/planner`, with a timer of 100 ms that publishes `/chatter`. In the same
/// process `/helper` has a client of `/plan` and a subscription to `/scan`. The planner's callback
/// spins `/helper`.
const PLANNER: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=planner namespace=/
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/chatter
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
1ms cpu0 10/10 node_init node=0x2 rmw=0x1002 name=helper namespace=/
1ms cpu0 10/10 client_init client=0x40 node=0x2 rmw=0x1040 name=/plan
1ms cpu0 10/10 client_gid rmw=0x1040 gid=0102030405060708090a0b0c0d0e0f10
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x2 rmw=0x1020 topic=/scan depth=1
1ms cpu0 10/10 subscription_object subscription=0x20 object=0x25
1ms cpu0 10/10 subscription_callback object=0x25 callback=0x61
1ms cpu3 40/40 node_init node=0x1 rmw=0x1001 name=server namespace=/
1ms cpu3 40/40 service_init service=0x30 node=0x1 rmw=0x1030 name=/plan
1ms cpu3 40/40 service_callback service=0x30 callback=0x60
";

const PLANNER_T: &str = "/planner:timer(100ms)";
const HELPER_S: &str = "/helper:subscription(/scan)";
const HELPER_C: &str = "/helper:client(/plan)";
const SERVER: &str = "/server:service(/plan)@/helper";

/// Returns the events of the planner's timer from `t` us on. The callback runs for 1 ms, sends a
/// request and spins. Meanwhile the helper's subscription runs for 2 ms, and the server for 3 ms.
/// The response comes 5 ms after the start.
///
/// The callback then continues for 4 ms, publishes at 9 ms and ends at 10 ms. Of these 10 ms, the
/// helper takes 2 ms, and the thread sleeps 2 ms.
fn plan(t: u64, sequence: u64, call_is_seen: bool) -> Vec<String> {
    let execute = match call_is_seen {
        true => ["execute_start execute=client", "execute_end execute=client"],
        false => [
            "executor_execute handle=0x40",
            "executor_execute handle=0x40",
        ],
    };
    let planner = format!(
        "{t}us cpu0 10/10 executor_next_ready
{t}us cpu0 10/10 timer_call timer=0x50
{t}us cpu0 10/10 executor_execute handle=0x50
{t}us cpu0 10/10 callback_start callback=0x60
{t1}us cpu0 10/10 request_send rmw=0x1040 sequence={sequence}
{t1}us cpu0 10/10 executor_wait_for_work timeout_ns=-1
{t1}us cpu0 10/10 wait
{t1}us cpu0 10/10 executor_next_ready
{t1}us cpu0 10/10 executor_execute handle=0x20
{t1}us cpu0 10/10 take rmw=0x1020 source_ns={scan}us
{t1}us cpu0 10/10 callback_start callback=0x61
{t3}us cpu0 10/10 callback_end callback=0x61
{t3}us cpu0 10/10 executor_wait_for_work timeout_ns=-1
{t3}us cpu0 10/10 wait
{t3}us cpu0 10/10 switch_out state=1
{t5}us cpu0 10/10 wake waker_tid=41
{t5}us cpu0 10/10 switch_in
{t5}us cpu0 10/10 executor_next_ready
{t5}us cpu0 10/10 {}
{t5}us cpu0 10/10 response_take rmw=0x1040 sequence={sequence} source_ns=0
{t6}us cpu0 10/10 {}
{t9}us cpu0 10/10 rcl_publish publisher=0x10 message=0x99
{t9}us cpu0 10/10 publish rmw=0x1010 message=0x99 source_ns={t9}us
{t10}us cpu0 10/10 callback_end callback=0x60
{t10}us cpu0 10/10 executor_wait_for_work timeout_ns=-1
{t10}us cpu0 10/10 wait
",
        execute[0],
        execute[1],
        t1 = t + 1_000,
        t3 = t + 3_000,
        t5 = t + 5_000,
        t6 = t + 5_100,
        t9 = t + 9_000,
        t10 = t + 10_000,
        scan = t - 40_000,
    );
    let server = format!(
        "{s}us cpu3 40/40 request_take rmw=0x1030 gid=0102030405060708090a0b0c0d0e0f10 sequence={sequence}
{s}us cpu3 40/40 callback_start callback=0x60
{e}us cpu3 40/40 response_send rmw=0x1030 gid=0102030405060708090a0b0c0d0e0f10 sequence={sequence} source_ns=0
{e}us cpu3 40/40 callback_end callback=0x60
",
        s = t + 1_500,
        e = t + 4_500,
    );
    vec![
        planner,
        server,
        sense(t - 40_000),
        hear(t + 9_100, t + 9_000),
    ]
}

fn planned(rounds: u64, call_is_seen: bool) -> Model {
    let mut parts = vec![
        SENSOR.to_string(),
        PLANNER.to_string(),
        LISTENER.to_string(),
    ];
    for i in 1..=rounds {
        parts.extend(plan(i * 100_000, i, call_is_seen));
    }
    model(&sorted(&parts))
}

fn check_waited_link(m: &Model) {
    let said = |word: &str| m.assumptions.iter().any(|a| a.contains(word));
    assert!(said("received a response for which"), "{:?}", m.assumptions);
    assert!(!said("--link"), "{:?}", m.assumptions);
}

#[test]
fn a_callback_continues_after_those_of_a_nested_executor() {
    let m = planned(10, true);
    check_waited_link(&m);
    assert_eq!(
        ids(&m),
        [HELPER_C, HELPER_S, LISTENER_S, PLANNER_T, SENSOR_T, SERVER]
    );
    let figures = |id| &callback(&m, id).figures;
    // 10 ms less the time of the helper's two callbacks, which are counted on their own.
    let planner = figures(PLANNER_T);
    assert_eq!(
        (planner.exec_ns.count(), planner.exec_ns.min()),
        (10, 5_900_000)
    );
    assert_eq!(planner.exec_ns.max(), 5_900_000);
    assert_eq!(
        (planner.response_ns.max(), planner.blocked_ns.max()),
        (10_000_000, 2_000_000)
    );
    let helper = &figures(HELPER_S).exec_ns;
    assert_eq!(
        (helper.count(), helper.min(), helper.max()),
        (10, 2_000_000, 2_000_000)
    );
    let client = &figures(HELPER_C).exec_ns;
    assert_eq!((client.count(), client.max()), (10, 100_000));
    let edges = edges(&m);
    for expected in [
        format!("{PLANNER_T} -> {SERVER} /plan/request"),
        format!("{SERVER} -> {HELPER_C} /plan/response"),
        format!("{HELPER_C} -> {PLANNER_T} "),
        format!("{PLANNER_T} -> {LISTENER_S} /chatter"),
        format!("{SENSOR_T} -> {HELPER_S} /scan"),
    ] {
        assert!(
            edges.iter().any(|e| e.starts_with(&expected)),
            "{expected}: {edges:#?}"
        );
    }
    assert_eq!(edges.len(), 5, "{edges:#?}");
    assert_eq!(edge(&m, PLANNER_T, LISTENER_S).taken, 10);
    assert!(
        chains(&m).contains(&format!("{PLANNER_T} > {LISTENER_S}")),
        "{:#?}",
        chains(&m)
    );
    check_nothing_missing(&m);
}

#[test]
fn a_response_without_execute_client_is_an_input_of_the_waiting_callback() {
    let m = planned(10, false);
    assert_eq!(ids(&m), [HELPER_S, LISTENER_S, PLANNER_T, SENSOR_T, SERVER]);
    let planner = &callback(&m, PLANNER_T).figures.exec_ns;
    assert_eq!(
        (planner.count(), planner.min(), planner.max()),
        (10, 6_000_000, 6_000_000)
    );
    assert_eq!(edge(&m, SERVER, PLANNER_T).taken, 10);
    assert_eq!(edge(&m, PLANNER_T, LISTENER_S).taken, 10);
    check_nothing_missing(&m);
}

#[test]
fn a_callback_that_an_exception_ended_is_counted_as_aborted() {
    let mut parts = vec![POLLER.to_string(), LISTENER.to_string()];
    for i in 1..=6 {
        let t = i * 100_000;
        let round = poll(t, None);
        // An exception leaves the callback every second time, after it has published.
        let left: String = round
            .lines()
            .filter(|line| i % 2 == 0 || !line.contains("callback_end"))
            .map(|line| format!("{line}\n"))
            .collect();
        parts.extend([left, hear(t + 9_100, t + 9_000)]);
    }
    let m = model(&sorted(&parts));
    let exec = &callback(&m, POLLER_T).figures.exec_ns;
    assert_eq!(
        (exec.count(), exec.min(), exec.max()),
        (3, 10_000_000, 10_000_000)
    );
    let said = m
        .coverage
        .iter()
        .filter(|c| c.contains("started 3 times without a recorded end"));
    assert_eq!(said.count(), 1, "{:#?}", m.coverage);
}

#[test]
fn callbacks_that_are_nested_too_deeply_are_counted_as_aborted() {
    let mut trace =
        String::from("1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=deep namespace=/\n");
    for n in 0..12 {
        trace += &format!(
            "1ms cpu0 10/10 timer_init timer={0:#x} period_ns={1}ms
1ms cpu0 10/10 timer_callback timer={0:#x} callback={2:#x}
1ms cpu0 10/10 timer_node timer={0:#x} node=0x1
",
            0x50 + n,
            10 + n,
            0x60 + n
        );
    }
    let lines = |what: &str, at: u64, all: Vec<u64>| -> String {
        let line = |(i, n): (usize, u64)| {
            format!(
                "{}us cpu0 10/10 {what} callback={:#x}\n",
                at + 100 * i as u64,
                0x60 + n
            )
        };
        all.into_iter().enumerate().map(line).collect()
    };
    trace += &lines("callback_start", 10_000, (0..12).collect());
    trace += &lines("callback_end", 20_000, (0..12).rev().collect());
    let m = model(&trace);
    let left = m
        .coverage
        .iter()
        .filter(|c| c.contains("was started once without a recorded end"));
    // One callback runs and eight wait. Three outer ones count as left without an end.
    assert_eq!(left.count(), 3, "{:#?}", m.coverage);
    let innermost = &callback(&m, "/deep:timer(21ms)").figures.exec_ns;
    assert_eq!(innermost.max(), 20_000_000 - 11_100_000);
    // The callback around the innermost one has its own time before and after it.
    let around = &callback(&m, "/deep:timer(20ms)").figures.exec_ns;
    assert_eq!(around.max(), 100_000 + 100_000);
}

// ---- rclpy: two triggers of the executor's guard around a callback

const PY_PLANNER: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=planner namespace=/
1ms cpu0 10/10 clock_init clock=0x7
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/chatter
1ms cpu0 10/10 timer_clock timer=0x50 clock=0x7
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu0 10/10 node_init node=0x2 rmw=0x1002 name=helper namespace=/
1ms cpu0 10/10 clock_init clock=0x8
1ms cpu0 10/10 client_init client=0x40 node=0x2 rmw=0x1040 name=/plan
1ms cpu0 10/10 client_gid rmw=0x1040 gid=0102030405060708090a0b0c0d0e0f10
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x2 rmw=0x1020 topic=/scan depth=1
1ms cpu0 10/10 timer_clock timer=0x51 clock=0x8
1ms cpu0 10/10 timer_init timer=0x51 period_ns=30ms
1ms cpu3 40/40 node_init node=0x1 rmw=0x1001 name=server namespace=/
1ms cpu3 40/40 service_init service=0x30 node=0x1 rmw=0x1030 name=/plan
1ms cpu3 40/40 service_callback service=0x30 callback=0x60
2ms cpu0 10/10 wait_set_init
2ms cpu0 10/10 wait
3ms cpu0 10/10 wait_set_init
3ms cpu0 10/10 wait
";

fn py(t: u64, lines: &[(u64, &str)]) -> String {
    let line = |(after, what): &(u64, &str)| format!("{}us cpu0 10/10 {what}\n", t + after);
    lines.iter().map(line).collect()
}

fn answer(t: u64, sequence: u64) -> String {
    let request = format!("gid=0102030405060708090a0b0c0d0e0f10 sequence={sequence}");
    format!(
        "{t}us cpu3 40/40 request_take rmw=0x1030 {request}
{t}us cpu3 40/40 callback_start callback=0x60
{e}us cpu3 40/40 response_send rmw=0x1030 {request} source_ns=0
{e}us cpu3 40/40 callback_end callback=0x60
",
        e = t + 3_000
    )
}

fn exec_of(m: &Model, id: &str) -> (u64, u64, u64) {
    let exec = &callback(m, id).figures.exec_ns;
    (exec.count(), exec.min(), exec.max())
}

#[test]
fn in_rclpy_a_take_in_a_callback_is_an_additional_input_of_the_callback() {
    // Published after the take, or before it. In the second case the take is the callback's last
    // act.
    for publish in [9_000, 2_000] {
        let mut parts = vec![
            SENSOR.to_string(),
            PY_PLANNER.to_string(),
            LISTENER.to_string(),
        ];
        for i in 1..=10 {
            let t = i * 100_000;
            let take = format!("take rmw=0x1020 source_ns={}us", t - 40_000);
            let output = format!("publish rmw=0x1010 source_ns={}us", t + publish);
            let mut lines = vec![
                (0, "timer_call timer=0x50"),
                (100, "guard_trigger guard=0x9"),
                (3_000, &take),
                (publish, &output),
                (10_100, "guard_trigger guard=0x9"),
                (10_300, "wait_set_init"),
                (10_400, "wait"),
            ];
            lines.sort_by_key(|line| line.0);
            parts.extend([sense(t - 40_000), py(t, &lines)]);
            parts.push(hear(t + publish + 100, t + publish));
        }
        let m = model(&sorted(&parts));
        assert_eq!(ids(&m), [LISTENER_S, PLANNER_T, SENSOR_T]);
        assert_eq!(exec_of(&m, PLANNER_T), (10, 10_000_000, 10_000_000));
        assert_eq!(edge(&m, SENSOR_T, PLANNER_T).taken, 10);
        assert_eq!(edge(&m, PLANNER_T, LISTENER_S).taken, 10);
        check_nothing_missing(&m);
    }
}

/// Returns the events of the planner's timer, which runs from 0.1 ms on for 2 ms and then spins
/// another executor (guard condition 0xa). The subscription of that executor runs for 2 ms. At 6
/// ms, the executor handles the response to the timer's request, and the timer continues for 4 ms.
fn py_plan(t: u64, sequence: u64, publishes: bool) -> Vec<String> {
    let request = format!("request_send rmw=0x1040 sequence={sequence}");
    let take = format!("take rmw=0x1020 source_ns={}us", t - 40_000);
    let response = format!("response_take rmw=0x1040 sequence={sequence} source_ns=0");
    let output = format!("publish rmw=0x1010 source_ns={}us", t + 9_000);
    let mut lines = vec![
        (0, "timer_call timer=0x50"),
        (100, "guard_trigger guard=0x9"),
        (2_000, &request),
        (2_050, "guard_trigger guard=0xa"),
        (2_100, "wait_set_init"),
        (2_100, "wait"),
        (2_100, &take),
        (2_200, "guard_trigger guard=0xa"),
        (4_200, "guard_trigger guard=0xa"),
        (4_300, "wait_set_init"),
        (4_300, "wait"),
        (4_300, "switch_out state=1"),
        (6_000, "wake waker_tid=41"),
        (6_000, "switch_in"),
        (6_000, &response),
        (6_050, "guard_trigger guard=0xa"),
        (6_070, "guard_trigger guard=0xa"),
        (6_100, "guard_trigger guard=0xa"),
        (9_000, &output),
        (10_100, "guard_trigger guard=0x9"),
        (10_300, "wait_set_init"),
        (10_400, "wait"),
    ];
    lines.retain(|line| publishes || line.0 != 9_000);
    let mut parts = vec![
        sense(t - 40_000),
        py(t, &lines),
        answer(t + 2_500, sequence),
    ];
    if publishes {
        parts.push(hear(t + 9_100, t + 9_000));
    }
    parts
}

#[test]
fn in_rclpy_a_callback_continues_after_those_of_a_nested_executor() {
    for publishes in [true, false] {
        let mut parts = vec![
            SENSOR.to_string(),
            PY_PLANNER.to_string(),
            LISTENER.to_string(),
        ];
        for i in 1..=10 {
            parts.extend(py_plan(i * 100_000, i, publishes));
        }
        let m = model(&sorted(&parts));
        // 2 ms until the nested executor acts, 0.25 ms of that executor, and 4 ms after the
        // response was handled.
        assert_eq!(exec_of(&m, PLANNER_T), (10, 6_250_000, 6_250_000));
        assert_eq!(exec_of(&m, HELPER_S), (10, 2_000_000, 2_000_000));
        assert_eq!(exec_of(&m, HELPER_C), (10, 50_000, 50_000));
        assert_eq!(
            callback(&m, PLANNER_T).figures.response_ns.max(),
            10_100_000
        );
        for (from, to) in [
            (PLANNER_T, SERVER),
            (SERVER, HELPER_C),
            (HELPER_C, PLANNER_T),
        ] {
            assert_eq!(edge(&m, from, to).taken, 10, "{from} -> {to}");
        }
        if publishes {
            assert_eq!(edge(&m, PLANNER_T, LISTENER_S).taken, 10);
        }
        check_nothing_missing(&m);
    }
}

/// Returns the events of a coroutine on the planner's timer, which runs 2 ms, awaits the response
/// and runs 4 ms. Before and after that, another timer of the same executor runs for 1 ms each.
fn py_await(t: u64, sequence: u64, publishes: bool) -> Vec<String> {
    let request = format!("request_send rmw=0x1040 sequence={sequence}");
    let response = format!("response_take rmw=0x1040 sequence={sequence} source_ns=0");
    let output = format!("publish rmw=0x1010 source_ns={}us", t + 39_000);
    let mut lines = vec![
        (0, "timer_call timer=0x50"),
        (100, "guard_trigger guard=0x9"),
        (2_000, &request),
        // This timer is called in the same round.
        (2_100, "timer_call timer=0x51"),
        (2_200, "guard_trigger guard=0x9"),
        (3_200, "guard_trigger guard=0x9"),
        (3_300, "wait_set_init"),
        (3_300, "wait"),
        (3_300, "switch_out state=1"),
        (30_000, "wake waker_tid=41"),
        (30_000, "switch_in"),
        (30_000, "timer_call timer=0x51"),
        (30_100, "guard_trigger guard=0x9"),
        (31_100, "guard_trigger guard=0x9"),
        (36_000, &response),
        (36_050, "guard_trigger guard=0x9"),
        (36_070, "guard_trigger guard=0x9"),
        (36_100, "guard_trigger guard=0x9"),
        (39_000, &output),
        (40_100, "guard_trigger guard=0x9"),
        (40_300, "wait_set_init"),
        (40_300, "wait"),
    ];
    lines.retain(|line| publishes || line.0 != 39_000);
    let mut parts = vec![py(t, &lines), answer(t + 2_500, sequence)];
    if publishes {
        parts.push(hear(t + 39_100, t + 39_000));
    }
    parts
}

#[test]
fn in_rclpy_a_coroutine_is_one_execution_without_its_suspended_time() {
    for publishes in [true, false] {
        let mut parts = vec![PY_PLANNER.to_string(), LISTENER.to_string()];
        for i in 1..=10 {
            parts.extend(py_await(i * 100_000, i, publishes));
        }
        let m = model(&sorted(&parts));
        // 2 ms before the executor's next call, 4 ms after the response was handled.
        assert_eq!(exec_of(&m, PLANNER_T), (10, 6_000_000, 6_000_000));
        assert_eq!(
            exec_of(&m, "/helper:timer(30ms)"),
            (20, 1_000_000, 1_000_000)
        );
        assert_eq!(callback(&m, PLANNER_T).figures.blocked_ns.max(), 0);
        assert_eq!(edge(&m, HELPER_C, PLANNER_T).taken, 10);
        check_waited_link(&m);
        if publishes {
            assert_eq!(edge(&m, PLANNER_T, LISTENER_S).taken, 10);
        }
        check_nothing_missing(&m);
    }
}

#[test]
fn an_item_on_its_way_goes_to_the_callback_that_takes_it() {
    // The timer polls the first item. The second one waits when the subscription's own callback
    // runs.
    let own = "
160ms cpu0 10/10 take rmw=0x1020 source_ns=140000us
160ms cpu0 10/10 callback_start callback=0x61
161ms cpu0 10/10 callback_end callback=0x61
";
    let t = 100_000;
    let parts = [
        SENSOR.to_string(),
        POLLER.to_string(),
        sense(t - 40_000),
        poll(t, Some(t - 40_000)),
        sense(t + 40_000),
        own.to_string(),
    ];
    let m = model(&sorted(&parts));
    for to in [POLLER_T, "/poller:subscription(/scan)"] {
        let e = edge(&m, SENSOR_T, to);
        assert_eq!((e.published, e.taken, e.lost), (1, 1, 0), "to {to}");
    }
}
