//! Callbacks of rclpy and plain rcl clients, whose start and end follow from the executor's calls.

use super::*;

/// The events that create process 10: node /py with its clock, publishers of /out (0x10) and /aux
/// (0x11), and a subscription to /in (0x20). It has a timer of 50 ms (0x50, on the node's clock)
/// and clients of /sv (0x40) and /sw (0x41). The guard condition of its executor is 0x9.
const PY: &str = "
1ms cpu0 10/10 process command=\"/usr/bin/python3 /opt/py.py\" distribution=kilted rmw=x
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=py
1ms cpu0 10/10 clock_init clock=0x7
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/out
1ms cpu0 10/10 publisher_init publisher=0x11 node=0x1 rmw=0x1011 topic=/aux
1ms cpu0 10/10 publisher_init publisher=0x12 node=0x1 rmw=0x1012 topic=/rosout
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/in
1ms cpu0 10/10 client_init client=0x40 node=0x1 rmw=0x1040 name=/sv
1ms cpu0 10/10 client_init client=0x41 node=0x1 rmw=0x1041 name=/sw
1ms cpu0 10/10 clock_init clock=0x8
1ms cpu0 10/10 timer_clock timer=0x50 clock=0x7
1ms cpu0 10/10 timer_init timer=0x50 period_ns=50ms
1ms cpu0 10/10 timer_clock timer=0x51 clock=0x8
1ms cpu0 10/10 timer_init timer=0x51 period_ns=50ms
";

const EARS: &str = "
1ms cpu1 30/30 node_init node=0x1 rmw=0x1001 name=ears
1ms cpu1 30/30 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/out
1ms cpu1 30/30 subscription_init subscription=0x21 node=0x1 rmw=0x1021 topic=/aux
2ms cpu1 30/30 wait_set_init
2ms cpu1 30/30 wait
";

fn py(t: u64, what: &str) -> String {
    format!("{t}us cpu0 10/10 {what}\n")
}

/// Returns the events of the listener from `t` us on. `items` has, for each take, the rmw handle of
/// the subscription and the source time stamp in us. The callback of each item takes 100 us.
fn hear(t: u64, items: &[(u64, u64)]) -> String {
    let mut text = String::new();
    for (i, (rmw, source)) in items.iter().enumerate() {
        let t = t + 100 * i as u64;
        text += &format!("{t}us cpu1 30/30 take rmw={rmw:#x} source_ns={source}us\n");
    }
    let end = t + 100 * items.len() as u64;
    text + &format!(
        "{end}us cpu1 30/30 wait_set_init\n{}us cpu1 30/30 wait\n",
        end + 5
    )
}

#[test]
fn in_rclpy_a_callback_runs_from_the_first_trigger_of_the_guard_condition_to_the_last() {
    let mut parts = vec![PY.to_string(), EARS.to_string()];
    for i in 1..=10 {
        let t = 50_000 * i;
        parts.push(
            [
                py(t, "timer_call timer=0x50"),
                py(t + 100, "guard_trigger guard=0x9"),
                // The user's code triggers the same guard (it makes a task), then publishes.
                py(t + 300, "guard_trigger guard=0x9"),
                py(
                    t + 600,
                    &format!("publish rmw=0x1010 source_ns={}us", t + 600),
                ),
                // A trigger of another guard has no effect.
                py(t + 650, "guard_trigger guard=0xa"),
                py(t + 1_100, "guard_trigger guard=0x9"),
                py(t + 1_400, "wait_set_init"),
                py(t + 1_500, "wait"),
                // A take that finds nothing starts no callback.
                py(t + 1_600, "take rmw=0x1020 source_ns=0 taken=no"),
                py(t + 1_700, "guard_trigger guard=0x9"),
                py(t + 1_800, "guard_trigger guard=0x9"),
                py(t + 1_900, "wait_set_init"),
            ]
            .concat(),
        );
        parts.push(hear(t + 700, &[(0x1020, t + 600)]));
    }
    let m = model(&rclcpp::sorted(&parts));
    // The executor's own timer (0x51) never runs, so there is only one of 50 ms.
    let (t, s) = ("/py:timer(50ms)", "/ears:subscription(/out)");
    assert_eq!(ids(&m), [s, t]);
    let timer = callback(&m, t);
    assert_eq!(timer.bracket, Bracket::Inferred);
    assert_eq!(
        (timer.figures.exec_ns.count(), timer.figures.exec_ns.max()),
        (10, 1_000_000)
    );
    assert_eq!(timer.outputs, ["/out"]);
    let sub = &callback(&m, s).figures;
    assert_eq!(
        (sub.exec_ns.count(), sub.exec_ns.max(), sub.exec_ns.min()),
        (10, 100_000, 100_000)
    );
    let c = chain(&m, &format!("{t} > {s}"));
    // 500 us from the first trigger to the publication, 100 to the take, 100 of callback.
    assert_eq!(c.figures.latency_ns.max(), 700_000);
    assert_eq!(edge(&m, t, s).lost, 0);
}

#[test]
fn in_rclpy_code_after_the_last_trigger_belongs_to_no_callback() {
    // A script that alternates `spin_once` and a publication.
    let mut parts = vec![PY.to_string(), EARS.to_string()];
    for i in 1..=10 {
        let t = 50_000 * i;
        parts.push(
            [
                py(t, "timer_call timer=0x50"),
                py(t + 100, "guard_trigger guard=0x9"),
                py(t + 200, "guard_trigger guard=0x9"),
                py(
                    t + 600,
                    &format!("publish rmw=0x1010 source_ns={}us", t + 600),
                ),
                py(t + 1_400, "wait_set_init"),
            ]
            .concat(),
        );
        // The item is taken before it is clear who published it.
        parts.push(hear(t + 700, &[(0x1020, t + 600)]));
    }
    let m = model(&rclcpp::sorted(&parts));
    assert_eq!(
        callback(&m, "/py:timer(50ms)").figures.exec_ns.max(),
        100_000
    );
    assert!(callback(&m, "/py:timer(50ms)").outputs.is_empty());
    assert!(m.edges.is_empty());
    assert_eq!(chains(&m), ["/ears:subscription(/out)", "/py:timer(50ms)"]);
    let said = "/out was published outside of callbacks 10 times";
    assert!(
        m.coverage.iter().any(|c| c.starts_with(said)),
        "{:?}",
        m.coverage
    );
}

const SERVER: &str = "
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=server
1ms cpu1 20/20 service_init service=0x30 node=0x1 rmw=0x1030 name=/sv
1ms cpu1 20/20 service_init service=0x31 node=0x1 rmw=0x1031 name=/sw
";

fn serve(t: u64, rmw: u64, gid: u8, sequence: i64, run: u64) -> String {
    let id = format!(
        "rmw={rmw:#x} gid={} sequence={sequence}",
        format!("{gid:02x}").repeat(16)
    );
    format!(
        "{t}us cpu1 20/20 request_take {id}
{}us cpu1 20/20 response_send {id} source_ns=-
{}us cpu1 20/20 wait_set_init
",
        t + run,
        t + run
    )
}

#[test]
fn the_code_that_waits_for_a_response_is_the_clients_callback() {
    let mut parts = vec![PY.to_string(), EARS.to_string(), SERVER.to_string()];
    for i in 1..=20 {
        let t = 50_000 * i;
        let n = i as i64;
        parts.push(
            [
                py(t, "timer_call timer=0x50"),
                py(t + 100, "guard_trigger guard=0x9"),
                py(t + 200, &format!("request_send rmw=0x1040 sequence={n}")),
                py(t + 300, "guard_trigger guard=0x9"),
                py(t + 400, "wait_set_init"),
                py(t + 500, "wait"),
                py(
                    t + 2_000,
                    &format!("response_take rmw=0x1040 sequence={n} source_ns=1"),
                ),
                py(t + 2_100, "guard_trigger guard=0x9"),
                py(t + 2_120, "guard_trigger guard=0x9"),
                py(t + 2_150, "guard_trigger guard=0x9"),
                // The continuation takes 700 us, with a publication. Then the executor takes 100 us
                // to the next wait set, as after the timer.
                py(
                    t + 2_600,
                    &format!("publish rmw=0x1010 source_ns={}us", t + 2_600),
                ),
                py(t + 2_950, "wait_set_init"),
                py(t + 3_000, "wait"),
            ]
            .concat(),
        );
        parts.push(serve(t + 300, 0x1030, 7, n, 1_000));
        parts.push(hear(t + 2_700, &[(0x1020, t + 2_600)]));
    }
    let m = model(&rclcpp::sorted(&parts));
    let (t, s, c, e) = (
        "/py:timer(50ms)",
        "/server:service(/sv)@/py",
        "/py:client(/sv)",
        "/ears:subscription(/out)",
    );
    assert_eq!(ids(&m), [e, c, t, s]);
    let client = callback(&m, c);
    assert_eq!(
        (client.figures.exec_ns.count(), client.figures.exec_ns.max()),
        (20, 700_000)
    );
    assert_eq!(client.figures.exec_ns.min(), 700_000);
    assert_eq!(client.outputs, ["/out"]);
    assert_eq!(callback(&m, t).outputs, ["/sv/request"]);
    let service = callback(&m, s);
    assert_eq!(service.outputs, ["/sv/response"]);
    assert_eq!(service.caller.as_deref(), Some("/py"));
    assert_eq!(service.figures.exec_ns.max(), 1_000_000);
    let mut want = [
        format!("{c} -> {e} /out"),
        format!("{t} -> {s} /sv/request"),
        format!("{s} -> {c} /sv/response"),
    ];
    want.sort();
    assert_eq!(edges(&m), want);
    assert_eq!(chains(&m), [format!("{t} > {s} > {c} > {e}")]);
    let f = &m.chains[0].figures;
    assert_eq!((f.executions, f.latency_ns.max()), (20, 2_700_000));
    assert_eq!(edge(&m, t, s).taken, 20);
}

#[test]
fn a_callback_continues_when_its_awaited_response_was_handled() {
    // `await client.call_async()` in a timer: its second trigger comes only when the coroutine
    // ends.
    let mut parts = vec![PY.to_string(), EARS.to_string(), SERVER.to_string()];
    // A round in which nothing is ready.
    parts.push(py(40_000, "wait_set_init") + &py(40_000, "wait"));
    for i in 1..=20 {
        let t = 50_000 * i;
        let n = i as i64;
        parts.push(
            [
                py(t, "timer_call timer=0x50"),
                py(t + 100, "guard_trigger guard=0x9"),
                py(t + 200, &format!("request_send rmw=0x1040 sequence={n}")),
                py(t + 400, "wait_set_init"),
                py(t + 500, "wait"),
                py(
                    t + 2_000,
                    &format!("response_take rmw=0x1040 sequence={n} source_ns=1"),
                ),
                py(t + 2_100, "guard_trigger guard=0x9"),
                py(t + 2_150, "guard_trigger guard=0x9"),
                py(
                    t + 2_600,
                    &format!("publish rmw=0x1010 source_ns={}us", t + 2_600),
                ),
                py(t + 2_700, "guard_trigger guard=0x9"),
                py(t + 2_950, "wait_set_init"),
                py(t + 3_000, "wait"),
            ]
            .concat(),
        );
        parts.push(serve(t + 300, 0x1030, 7, n, 1_000));
        parts.push(hear(t + 2_700, &[(0x1020, t + 2_600)]));
    }
    let m = model(&rclcpp::sorted(&parts));
    let (t, s, c, e) = (
        "/py:timer(50ms)",
        "/server:service(/sv)@/py",
        "/py:client(/sv)",
        "/ears:subscription(/out)",
    );
    let timer = callback(&m, t);
    // 300 us until the callback is suspended, 550 us after the response was handled.
    assert_eq!(
        (timer.figures.exec_ns.count(), timer.figures.exec_ns.max()),
        (20, 850_000)
    );
    assert_eq!(timer.outputs, ["/out", "/sv/request"]);
    let client = callback(&m, c);
    assert_eq!(client.figures.exec_ns.max(), 50_000);
    assert!(client.outputs.is_empty());
    assert_eq!(edge(&m, c, t).taken, 20);
    assert_eq!(
        chains(&m),
        [format!("{t} > {e}"), format!("{t} > {s} > {c}")]
    );
}

#[test]
fn callbacks_between_a_response_and_its_waiting_code_are_separate() {
    let mut parts = vec![PY.to_string(), EARS.to_string(), SERVER.to_string()];
    for i in 1..=20 {
        let t = 50_000 * i;
        let n = i as i64;
        parts.push(
            [
                py(t, &format!("request_send rmw=0x1040 sequence={n}")),
                py(t + 500, "wait"),
                py(
                    t + 2_000,
                    &format!("response_take rmw=0x1040 sequence={n} source_ns=1"),
                ),
                py(t + 2_100, "guard_trigger guard=0x9"),
                py(t + 2_150, "guard_trigger guard=0x9"),
                py(t + 2_200, "timer_call timer=0x50"),
                py(t + 2_300, "guard_trigger guard=0x9"),
                py(
                    t + 2_400,
                    &format!("publish rmw=0x1011 source_ns={}us", t + 2_400),
                ),
                py(t + 2_500, "guard_trigger guard=0x9"),
                py(
                    t + 2_600,
                    &format!("publish rmw=0x1010 source_ns={}us", t + 2_600),
                ),
                py(t + 2_950, "wait_set_init"),
                py(t + 3_000, "wait"),
            ]
            .concat(),
        );
        parts.push(serve(t + 300, 0x1030, 7, n, 1_000));
        parts.push(hear(t + 2_700, &[(0x1020, t + 2_600), (0x1021, t + 2_400)]));
    }
    let m = model(&rclcpp::sorted(&parts));
    let (timer, client) = (
        callback(&m, "/py:timer(50ms)"),
        callback(&m, "/py:client(/sv)"),
    );
    assert_eq!(
        (timer.outputs.join(" "), client.outputs.join(" ")),
        ("/aux".into(), "/out".into())
    );
    assert_eq!(
        (timer.figures.exec_ns.max(), client.figures.exec_ns.max()),
        (200_000, 450_000)
    );
}

#[test]
fn publications_show_which_of_two_clients_ran_in_one_round_of_the_executor() {
    let mut parts = vec![PY.to_string(), EARS.to_string(), SERVER.to_string()];
    let alone = |t: u64, n: i64, client: u64, publisher: u64, run: u64| {
        [
            py(t, &format!("request_send rmw={client:#x} sequence={n}")),
            py(t + 500, "wait"),
            py(
                t + 2_000,
                &format!("response_take rmw={client:#x} sequence={n} source_ns=1"),
            ),
            py(t + 2_100, "guard_trigger guard=0x9"),
            py(t + 2_150, "guard_trigger guard=0x9"),
            py(
                t + 2_150 + run,
                &format!("publish rmw={publisher:#x} source_ns={}us", t + 2_150 + run),
            ),
            py(t + 2_150 + run, "wait_set_init"),
        ]
        .concat()
    };
    for i in 1..=6u64 {
        let t = 100_000 * i;
        let n = i as i64;
        if i < 6 {
            parts.push(alone(t, n, 0x1040, 0x1010, 300));
            parts.push(alone(t + 10_000, n, 0x1041, 0x1011, 500));
            parts.push(serve(t + 300, 0x1030, 7, n, 1_000));
            parts.push(serve(t + 10_300, 0x1031, 8, n, 1_000));
            continue;
        }
        // Both responses come at once.
        parts.push(
            [
                py(t, &format!("request_send rmw=0x1040 sequence={n}")),
                py(t, &format!("request_send rmw=0x1041 sequence={n}")),
                py(
                    t + 5_000,
                    &format!("response_take rmw=0x1040 sequence={n} source_ns=1"),
                ),
                py(t + 5_100, "guard_trigger guard=0x9"),
                py(t + 5_150, "guard_trigger guard=0x9"),
                py(
                    t + 5_200,
                    &format!("response_take rmw=0x1041 sequence={n} source_ns=1"),
                ),
                py(t + 5_250, "guard_trigger guard=0x9"),
                py(t + 5_300, "guard_trigger guard=0x9"),
                py(
                    t + 5_600,
                    &format!("publish rmw=0x1010 source_ns={}us", t + 5_600),
                ),
                py(
                    t + 6_100,
                    &format!("publish rmw=0x1011 source_ns={}us", t + 6_100),
                ),
                py(t + 6_100, "wait_set_init"),
            ]
            .concat(),
        );
        parts.push(serve(t + 300, 0x1030, 7, n, 1_000));
        parts.push(serve(t + 2_300, 0x1031, 8, n, 1_000));
    }
    let m = model(&rclcpp::sorted(&parts));
    let (sv, sw) = (
        callback(&m, "/py:client(/sv)"),
        callback(&m, "/py:client(/sw)"),
    );
    assert_eq!(
        (sv.outputs.join(" "), sw.outputs.join(" ")),
        ("/out".into(), "/aux".into())
    );
    assert_eq!(
        (sv.figures.exec_ns.count(), sw.figures.exec_ns.count()),
        (6, 6)
    );
    assert_eq!(
        (sv.figures.exec_ns.max(), sw.figures.exec_ns.max()),
        (300_000, 500_000)
    );
}

#[test]
fn a_multi_threaded_executor_runs_waiting_code_on_another_worker() {
    let mut parts = vec![PY.to_string(), EARS.to_string(), SERVER.to_string()];
    let on = |t: u64, tid: u32, what: &str| format!("{t}us cpu0 10/{tid} {what}\n");
    for i in 1..=10 {
        let t = 50_000 * i;
        let n = i as i64;
        parts.push(
            [
                on(t, 11, "switch_in"),
                on(t, 11, "timer_call timer=0x50"),
                on(t + 100, 11, "guard_trigger guard=0x9"),
                on(
                    t + 200,
                    11,
                    &format!("request_send rmw=0x1040 sequence={n}"),
                ),
                on(t + 300, 11, "guard_trigger guard=0x9"),
                on(t + 310, 11, "switch_out"),
                on(t + 400, 10, "wait_set_init"),
                on(t + 410, 10, "wait"),
                on(t + 2_000, 12, "switch_in"),
                on(
                    t + 2_000,
                    12,
                    &format!("response_take rmw=0x1040 sequence={n} source_ns=1"),
                ),
                on(t + 2_100, 12, "guard_trigger guard=0x9"),
                on(t + 2_150, 12, "guard_trigger guard=0x9"),
                on(t + 2_160, 12, "switch_out"),
                on(t + 2_200, 10, "wait_set_init"),
                on(t + 2_300, 11, "switch_in"),
                on(
                    t + 2_600,
                    11,
                    &format!("publish rmw=0x1010 source_ns={}us", t + 2_600),
                ),
                on(t + 2_700, 11, "switch_out"),
            ]
            .concat(),
        );
        parts.push(serve(t + 300, 0x1030, 7, n, 1_000));
        parts.push(hear(t + 2_700, &[(0x1020, t + 2_600)]));
    }
    let m = model(&rclcpp::sorted(&parts));
    let (timer, client) = (
        callback(&m, "/py:timer(50ms)"),
        callback(&m, "/py:client(/sv)"),
    );
    assert_eq!(timer.figures.exec_ns.max(), 200_000);
    assert_eq!(client.outputs, ["/out"]);
    // The execution lasts from the wake-up of the worker until it sleeps again.
    assert_eq!(
        (client.figures.exec_ns.count(), client.figures.exec_ns.min()),
        (10, 400_000)
    );
}

#[test]
fn a_pool_of_threads_without_rclpy_triggers_its_guard_condition_once_per_callback() {
    // Two threads of a plain rcl client. A thread that is done wakes the others and may then be
    // idle for a long time.
    let mut parts = vec![
        PY.replace("timer_clock timer=0x50 clock=0x7", "clock_init clock=0x6"),
        EARS.to_string(),
    ];
    let on = |t: u64, tid: u32, what: &str| format!("{t}us cpu0 10/{tid} {what}\n");
    for i in 1..=10u64 {
        let t = 50_000 * i;
        // One timer publishes, the other does not.
        let source = t + 700;
        parts.push(
            [
                on(t, 11, "timer_call timer=0x50"),
                on(
                    source,
                    11,
                    &format!("publish rmw=0x1010 source_ns={source}us"),
                ),
                on(t + 1_000, 11, "guard_trigger guard=0x9"),
                on(t + 2_000, 12, &format!("timer_call timer={:#x}", 0x51)),
                on(t + 2_500, 12, "guard_trigger guard=0x9"),
                on(t + 49_000, 11, "wait_set_init"),
            ]
            .concat(),
        );
        parts.push(hear(t + 800, &[(0x1020, source)]));
    }
    let m = model(&rclcpp::sorted(&parts));
    let exec = |id: &str| {
        let f = &callback(&m, id).figures.exec_ns;
        // The first callback ends later, because only the next ones show whose guard it is.
        (f.count(), f.min(), f.max() - f.min() <= 48_000_000)
    };
    assert_eq!(callback(&m, "/py:timer(50ms)").outputs, ["/out"]);
    assert_eq!(exec("/py:timer(50ms)"), (10, 1_000_000, true));
    assert_eq!(exec("/py:timer(50ms)#2"), (10, 500_000, true));
}

#[test]
fn a_trigger_after_a_sleep_does_not_end_the_previous_callback() {
    // A worker that finds a callback group busy triggers the guard without having read anything.
    let mut parts = vec![PY.to_string()];
    let on = |t: u64, what: &str| format!("{t}us cpu0 10/11 {what}\n");
    for i in 1..=10u64 {
        let t = 50_000 * i;
        parts.push(
            [
                on(t, "switch_in"),
                on(t, "timer_call timer=0x50"),
                on(t + 100, "guard_trigger guard=0x9"),
                on(t + 400, "guard_trigger guard=0x9"),
                on(t + 500, "switch_out"),
                on(t + 20_000, "switch_in"),
                on(t + 20_100, "guard_trigger guard=0x9"),
                on(t + 20_200, "switch_out"),
            ]
            .concat(),
        );
    }
    let f = &model(&rclcpp::sorted(&parts)).callbacks[0].figures;
    assert_eq!((f.exec_ns.max(), f.response_ns.max()), (300_000, 400_000));
}

#[test]
fn a_client_preempted_while_it_sends_is_still_the_caller() {
    // The event of sending comes 30 ms after the service has taken and served the request.
    let mut parts = vec![PY.to_string(), EARS.to_string(), SERVER.to_string()];
    for i in 1..=10 {
        let t = 50_000 * i;
        let n = i as i64;
        parts.push(
            [
                py(t, "timer_call timer=0x50"),
                py(t + 100, "guard_trigger guard=0x9"),
                py(t + 30_000, &format!("request_send rmw=0x1040 sequence={n}")),
                py(t + 30_100, "guard_trigger guard=0x9"),
                py(t + 30_200, "wait_set_init"),
                py(
                    t + 30_500,
                    &format!("response_take rmw=0x1040 sequence={n} source_ns=1"),
                ),
                py(t + 30_600, "guard_trigger guard=0x9"),
                py(t + 30_700, "guard_trigger guard=0x9"),
                py(t + 31_000, "wait_set_init"),
            ]
            .concat(),
        );
        parts.push(serve(t + 300, 0x1030, 7, n, 1_000));
    }
    let m = model(&rclcpp::sorted(&parts));
    let path = "/py:timer(50ms) > /server:service(/sv)@/py > /py:client(/sv)";
    assert_eq!(chains(&m), [path]);
    let e = edge(&m, "/py:timer(50ms)", "/server:service(/sv)@/py");
    assert_eq!((e.published, e.taken, e.lost), (10, 10, 0));
}

#[test]
fn a_node_found_by_name_and_one_created_with_that_name_are_the_same() {
    let found = "1ms cpu0 10/10 node_found node=0x0 name=/py\n";
    let mut parts = vec![EARS.to_string()];
    for i in 1..=3 {
        let t = 50_000 * i;
        parts.push(
            [
                py(t, "timer_call timer=0x50"),
                py(t + 100, "guard_trigger guard=0x9"),
                py(
                    t + 300,
                    &format!("publish rmw=0x1010 source_ns={}us", t + 300),
                ),
                py(t + 900, "guard_trigger guard=0x9"),
                py(t + 1_000, "wait_set_init"),
                py(t + 1_100, "wait"),
            ]
            .concat(),
        );
        parts.push(hear(t + 400, &[(0x1020, t + 300)]));
    }
    let (init, rest) = PY.split_at(PY.find("1ms cpu0 10/10 clock_init").unwrap());
    let before = init.replace(
        "1ms cpu0 10/10 node_init",
        &format!("{found}1ms cpu0 10/10 node_init"),
    );
    for start in [
        format!("{init}{found}{rest}"),
        format!("{init}{rest}{found}"),
        before + rest,
    ] {
        let with: Vec<String> = [vec![start], parts.clone()].concat();
        let m = model(&rclcpp::sorted(&with));
        assert_eq!(ids(&m), ["/ears:subscription(/out)", "/py:timer(50ms)"]);
    }
}

/// Returns the events of a timer's callback on thread 11 that calls a service (`Client.call`). The
/// callback sleeps until thread 12, which took the response, has handled it. Then it publishes.
fn blocking_call(t: u64, sequence: u64) -> String {
    let gid = "gid=01010101010101010101010101010101";
    let timer = [
        (0, "cpu0 10/11 timer_call timer=0x50".into()),
        (20, "cpu0 10/11 guard_trigger guard=0x9".into()),
        (
            2_020,
            format!("cpu0 10/11 request_send rmw=0x1040 sequence={sequence}"),
        ),
        (2_050, "cpu0 10/11 switch_out state=1".into()),
        (
            2_100,
            format!("cpu1 20/20 request_take rmw=0x1030 {gid} sequence={sequence}"),
        ),
        (2_120, "cpu1 20/20 guard_trigger guard=0x8".into()),
        (
            5_120,
            format!("cpu1 20/20 response_send rmw=0x1030 {gid} sequence={sequence} source_ns=-"),
        ),
        (5_130, "cpu1 20/20 guard_trigger guard=0x8".into()),
        (5_150, "cpu1 20/20 wait_set_init".into()),
        (5_200, "cpu0 10/12 switch_in".into()),
        (
            5_210,
            format!("cpu0 10/12 response_take rmw=0x1040 sequence={sequence} source_ns=0"),
        ),
        (5_220, "cpu0 10/12 guard_trigger guard=0x9".into()),
        (5_240, "cpu0 10/12 guard_trigger guard=0x9".into()),
        (5_250, "cpu0 10/12 guard_trigger guard=0x9".into()),
        (5_260, "cpu0 10/12 guard_trigger guard=0x9".into()),
        (5_300, "cpu0 10/12 switch_out state=1".into()),
        (5_400, "cpu0 10/11 switch_in".into()),
        (
            6_400,
            format!("cpu0 10/11 publish rmw=0x1010 source_ns={}us", t + 6_400),
        ),
        (6_410, "cpu0 10/11 guard_trigger guard=0x9".into()),
        (6_420, "cpu0 10/11 switch_out state=1".into()),
        (
            6_600,
            format!("cpu1 20/20 take rmw=0x1020 source_ns={}us", t + 6_400),
        ),
        (6_610, "cpu1 20/20 guard_trigger guard=0x8".into()),
        (6_700, "cpu1 20/20 guard_trigger guard=0x8".into()),
        (6_710, "cpu1 20/20 wait_set_init".into()),
    ];
    let line = |(at, what): &(u64, String)| format!("{}us {what}\n", t + at);
    let before = format!("{}us cpu0 10/11 switch_in\n", t - 10);
    before + &timer.iter().map(line).collect::<String>()
}

#[test]
fn executions_of_a_client_called_within_a_callback_belong_to_the_client() {
    let start = "
1ms cpu0 10/10 process command=/opt/caller distribution=kilted rmw=x
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=caller namespace=/
1ms cpu0 10/10 client_init client=0x40 node=0x1 rmw=0x1040 name=/add
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/done
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu1 20/20 process command=/opt/server distribution=kilted rmw=x
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=server namespace=/
1ms cpu1 20/20 service_init service=0x30 node=0x1 rmw=0x1030 name=/add
1ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/done
2ms cpu0 10/11 switch_out state=1
2ms cpu0 10/12 switch_out state=1
2ms cpu1 20/20 wait_set_init
";
    let rounds = (1..=20).map(|i| blocking_call(100_000 * i, i));
    let m = model(&(start.to_string() + &rounds.collect::<String>()));
    let client = "/caller:client(/add)";
    let exec = &callback(&m, client).figures.exec_ns;
    assert_eq!((exec.count(), exec.max()), (20, 40_000));
    // The time for which the caller sleeps does not count.
    let timer = m
        .callbacks
        .iter()
        .find(|c| c.id.starts_with("/caller:timer"));
    let exec = &timer.unwrap().figures.exec_ns;
    assert_eq!((exec.count(), exec.max()), (20, 3_040_000));
    assert_eq!(edge(&m, "/server:service(/add)@/caller", client).taken, 20);
    assert_eq!(edge(&m, client, &timer.unwrap().id).taken, 20);
    let done = edge(&m, &timer.unwrap().id, "/server:subscription(/done)");
    assert_eq!(done.taken, 20);
    let unshown = |line: &&String| line.contains("on a thread of a pool");
    assert_eq!(m.coverage.iter().find(unshown), None);
}
