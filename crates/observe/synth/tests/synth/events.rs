//! Executors of events, which do not call `rcl_wait`. The one of rclcpp calls timers on a separate
//! thread.

use super::*;

/// The events that create process 10. rclcpp's EventsExecutor runs on thread 10 and calls timers on
/// thread 12. Node `/fast` has a timer of 10 ms (0x50) and publishes /t. `/slow` has a timer of 20
/// ms (0x51). `/sink` subscribes to /t.
const CREATED: &str = "
1ms cpu0 10/10 process command=/opt/events distribution=jazzy rmw=rmw_fastrtps_cpp
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=fast namespace=/
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/t
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
1ms cpu0 10/10 node_init node=0x2 rmw=0x1002 name=slow namespace=/
1ms cpu0 10/10 timer_init timer=0x51 period_ns=20ms
1ms cpu0 10/10 timer_callback timer=0x51 callback=0x61
1ms cpu0 10/10 timer_node timer=0x51 node=0x2
1ms cpu0 10/10 node_init node=0x3 rmw=0x1003 name=sink namespace=/
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x3 rmw=0x1020 topic=/t
1ms cpu0 10/10 subscription_object subscription=0x20 object=0x25
1ms cpu0 10/10 subscription_callback object=0x25 callback=0x62
1ms cpu0 10/10 wait_set_init
";

/// The events of process 10 if it ran before the recording: handles with names, but no events that
/// create timers and callbacks.
const FOUND: &str = "
1ms cpu0 10/10 process command=/opt/events distribution=jazzy rmw=rmw_fastrtps_cpp late=yes
1ms cpu0 10/10 node_found node=0x1 name=/fast
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/t
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x20 rmw=0x1020 name=/t
";

/// Returns the events of a round at `t` us. The timers' thread calls the fast timer, and if `slow`
/// is set also the slow one. The executor, which was asleep, runs 3 ms for the fast timer, which
/// publishes after 1 ms. Then it runs 2 ms for the slow timer and 1 ms for the subscription, and
/// sleeps.
fn round(t: u64, slow: bool) -> String {
    let mut s = format!(
        "{t}us cpu1 10/12 wake waker_tid=0
{}us cpu1 10/12 switch_in
{}us cpu1 10/12 timer_call timer=0x50
{}us cpu0 10/10 wake waker_tid=12
",
        t + 5,
        t + 10,
        t + 15
    );
    if slow {
        s += &format!("{}us cpu1 10/12 timer_call timer=0x51\n", t + 20);
    }
    s += &format!(
        "{}us cpu1 10/12 switch_out state=1
{}us cpu0 10/10 switch_in
{}us cpu0 10/10 callback_start callback=0x60
{}us cpu0 10/10 rcl_publish publisher=0x10 message=0x99
{}us cpu0 10/10 publish rmw=0x1010 message=0x99 source_ns={}us
{}us cpu0 10/10 callback_end callback=0x60
",
        t + 25,
        t + 30,
        t + 40,
        t + 1_040,
        t + 1_040,
        t + 1_040,
        t + 3_040,
    );
    let mut end = t + 3_040;
    if slow {
        s += &format!(
            "{}us cpu0 10/10 callback_start callback=0x61
{}us cpu0 10/10 callback_end callback=0x61
",
            end + 10,
            end + 2_010,
        );
        end += 2_010;
    }
    s + &format!(
        "{}us cpu0 10/10 executor_execute handle=0x20
{}us cpu0 10/10 take rmw=0x1020 source_ns={}us
{}us cpu0 10/10 callback_start callback=0x62
{}us cpu0 10/10 callback_end callback=0x62
{}us cpu0 10/10 switch_out state=1
",
        end + 10,
        end + 10,
        t + 1_040,
        end + 20,
        end + 1_020,
        end + 1_030,
    )
}

fn rounds(start: &str, n: u64) -> String {
    let mut s = start.to_string();
    s += "2ms cpu0 10/10 switch_out state=1\n2ms cpu1 10/12 switch_out state=1\n";
    for i in 1..=n {
        s += &round(1_000 + i * 10_000, i % 2 == 0);
    }
    s
}

const FAST: &str = "/fast:timer(10ms)";
const SLOW: &str = "/slow:timer(20ms)";
const SINK: &str = "/sink:subscription(/t)";

#[test]
fn a_timer_called_on_a_separate_thread_runs_once() {
    let m = model(&rounds(CREATED, 20));
    assert_eq!(ids(&m), [FAST, SINK, SLOW]);
    let (fast, slow) = (callback(&m, FAST), callback(&m, SLOW));
    assert_eq!(
        (fast.bracket, slow.bracket),
        (Bracket::Exact, Bracket::Exact)
    );
    let exec = |c: &Callback| {
        let exec = &c.figures.exec_ns;
        (exec.count(), exec.min(), exec.max())
    };
    assert_eq!(exec(fast), (20, 3_000_000, 3_000_000));
    assert_eq!(exec(slow), (10, 2_000_000, 2_000_000));
    // Timers are due at multiples of their period. The response time includes the wait in the
    // executor's queue.
    let response = |c: &Callback| (c.figures.response_ns.min(), c.figures.response_ns.max());
    assert_eq!(response(fast), (3_040_000, 3_040_000));
    assert_eq!(response(slow), (5_050_000, 5_050_000));
    assert_eq!(
        chain(&m, &format!("{FAST} > {SINK}")).figures.executions,
        20
    );
    let threads: Vec<_> = m.callbacks.iter().map(|c| c.threads.len()).collect();
    assert_eq!(threads, [1, 1, 1], "all run on the executor's thread");
}

#[test]
fn the_transport_time_is_known_without_rcl_wait() {
    // The publisher of another process wakes the executor, which sleeps in its queue.
    let mut s = String::from(
        "
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=src namespace=/
1ms cpu1 20/20 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/in
1ms cpu1 20/20 timer_init timer=0x50 period_ns=10ms
1ms cpu1 20/20 timer_callback timer=0x50 callback=0x60
1ms cpu1 20/20 timer_node timer=0x50 node=0x1
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=sink namespace=/
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/in
1ms cpu0 10/10 subscription_object subscription=0x20 object=0x25
1ms cpu0 10/10 subscription_callback object=0x25 callback=0x62
1ms cpu0 10/10 wait_set_init
2ms cpu0 10/10 switch_out state=1
",
    );
    for i in 1..=10 {
        let t = i * 10_000;
        s += &format!(
            "{t}us cpu1 20/20 timer_call timer=0x50
{t}us cpu1 20/20 callback_start callback=0x60
{}us cpu1 20/20 publish rmw=0x1010 source_ns={}us
{}us cpu1 20/20 callback_end callback=0x60
{}us cpu0 10/10 wake waker_tid=13
{}us cpu0 10/10 switch_in
{}us cpu0 10/10 executor_execute handle=0x20
{}us cpu0 10/10 take rmw=0x1020 source_ns={}us
{}us cpu0 10/10 callback_start callback=0x62
{}us cpu0 10/10 callback_end callback=0x62
{}us cpu0 10/10 switch_out state=1
",
            t + 100,
            t + 100,
            t + 110,
            t + 180,
            t + 190,
            t + 200,
            t + 200,
            t + 100,
            t + 210,
            t + 1_210,
            t + 1_220,
        );
    }
    let m = model(&s);
    let e = edge(&m, "/src:timer(10ms)", "/sink:subscription(/in)");
    assert_eq!(e.transport_ns.count(), 10);
    assert_eq!(
        (e.transport_ns.min(), e.transport_ns.max()),
        (80_000, 80_000)
    );
    assert_eq!((e.waiting_ns.min(), e.waiting_ns.max()), (30_000, 30_000));
}

#[test]
fn late_attach_ties_callbacks_to_timers_that_are_called_on_a_separate_thread() {
    let m = model(&rounds(FOUND, 40));
    // A callback is known after three calls of one timer. The first call of all comes before the
    // process is known to use rclcpp.
    let fast = m.callbacks.iter().find(|c| c.outputs == ["/t"]).unwrap();
    let exec = &fast.figures.exec_ns;
    assert_eq!(
        (exec.count(), exec.min(), exec.max()),
        (37, 3_000_000, 3_000_000),
        "{:?}",
        ids(&m)
    );
    let timers = m.callbacks.iter().filter(|c| c.kind == CallbackType::Timer);
    let mut counts: Vec<_> = timers.map(|c| c.figures.exec_ns.count()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [18, 37]);
    assert!(
        m.coverage.iter().any(|n| n.contains("ran 5 times")),
        "{:?}",
        m.coverage
    );
}

const PY: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=py namespace=/
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/out
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/in
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
2ms cpu0 10/10 switch_out state=1
";

#[test]
fn a_callback_of_rclpy_ends_when_its_events_executor_sleeps() {
    let mut s = PY.to_string();
    for i in 1..=10 {
        let t = 1_000 + i * 10_000;
        // The callback itself sleeps for 1 ms and continues for 2 ms.
        s += &format!(
            "{t}us cpu0 10/10 wake waker_tid=0
{}us cpu0 10/10 switch_in
{}us cpu0 10/10 timer_call timer=0x50
{}us cpu0 10/10 switch_out state=1
{}us cpu0 10/10 wake waker_tid=0
{}us cpu0 10/10 switch_in
{}us cpu0 10/10 publish rmw=0x1010 source_ns={}us
{}us cpu0 10/10 switch_out state=1
",
            t + 10,
            t + 50,
            t + 1_050,
            t + 2_050,
            t + 2_050,
            t + 3_050,
            t + 3_050,
            t + 4_050,
        );
    }
    s += "120ms cpu0 10/10 wake waker_tid=0\n120ms cpu0 10/10 switch_in
120.02ms cpu0 10/10 take rmw=0x1020 source_ns=1us\n121ms cpu0 10/10 switch_out state=1\n";
    let m = model(&s);
    let timer = callback(&m, "/py:timer(10ms)");
    let (exec, response) = (&timer.figures.exec_ns, &timer.figures.response_ns);
    assert_eq!(
        (exec.count(), exec.min(), exec.max()),
        (10, 3_000_000, 3_000_000)
    );
    assert_eq!((response.min(), response.max()), (4_050_000, 4_050_000));
    assert_eq!(timer.figures.blocked_ns.max(), 1_000_000);
    assert_eq!(timer.bracket, Bracket::Inferred);
}

#[test]
fn a_sleep_of_a_callback_is_not_its_end() {
    // The next event already waits, so that the executor does not sleep after the callback.
    let s = format!(
        "{PY}
11ms cpu0 10/10 wake waker_tid=0
11ms cpu0 10/10 switch_in
11ms cpu0 10/10 take rmw=0x1020 source_ns=1us
12ms cpu0 10/10 switch_out state=1
15ms cpu0 10/10 wake waker_tid=0
15ms cpu0 10/10 switch_in
17ms cpu0 10/10 take rmw=0x1020 source_ns=2us
18ms cpu0 10/10 switch_out state=1
30ms cpu0 10/10 wake waker_tid=0
30ms cpu0 10/10 switch_in
30ms cpu0 10/10 take rmw=0x1020 source_ns=3us
31ms cpu0 10/10 switch_out state=1"
    );
    let m = model(&s);
    let callback = callback(&m, "/py:subscription(/in)");
    let exec = &callback.figures.exec_ns;
    assert_eq!((exec.min(), exec.max()), (1_000_000, 3_000_000));
    assert_eq!(callback.figures.blocked_ns.max(), 3_000_000);
}

#[test]
fn the_coverage_counts_executions_whose_input_was_not_recorded() {
    // The take of a loaned message has no probe, so the callback starts after no event.
    let mut s = CREATED.to_string();
    for i in 1..=5 {
        let t = i * 10;
        s += &format!("{t}ms cpu0 10/10 executor_execute handle=0x20\n{t}ms cpu0 10/10 callback_start callback=0x62\n");
        s += &format!("{}ms cpu0 10/10 callback_end callback=0x62\n", t + 1);
    }
    let m = model(&s);
    assert_eq!(callback(&m, SINK).figures.exec_ns.count(), 5);
    let said = format!("{SINK} ran 5 times on an input that the recording does not show");
    assert!(
        m.coverage.iter().any(|c| c.starts_with(&said)),
        "{:?}",
        m.coverage
    );
}

#[test]
fn late_attach_with_a_backlog_makes_no_executions_from_timer_calls_alone() {
    // The executor runs a callback from before the recording while the timers' thread continues to
    // call timers.
    let mut trace = FOUND.to_string();
    trace += "1ms cpu0 10/10 timer_found timer=0x50\n";
    trace += "1ms cpu0 10/10 timer_period timer=0x50 period_ns=10ms\n";
    let call = |ms: u64| {
        format!(
            "{ms}000us cpu1 10/12 switch_in
{ms}010us cpu1 10/12 timer_call timer=0x50
{ms}020us cpu1 10/12 switch_out state=1
"
        )
    };
    for ms in [10, 20, 30] {
        trace += &call(ms);
    }
    trace += "35ms cpu0 10/10 callback_end callback=0x60\n";
    for ms in (40..=90).step_by(10) {
        trace += &call(ms);
        trace += &format!("{ms}100us cpu0 10/10 callback_start callback=0x60\n");
        trace += &format!("{ms}900us cpu0 10/10 callback_end callback=0x60\n");
    }
    let m = model(&trace);
    let runs = |c: &Callback| c.figures.exec_ns.count();
    assert!(m.callbacks.iter().all(|c| runs(c) == 0), "{:?}", ids(&m));
    let said = |s: &String| s.starts_with("An unknown callback ran 6 times");
    assert!(m.coverage.iter().any(said), "{:?}", m.coverage);
}
