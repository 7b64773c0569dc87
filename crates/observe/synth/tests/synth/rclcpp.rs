//! Callbacks of rclcpp, which have an exact start and end.

use super::*;

pub const TALKER: &str = "
1ms cpu0 10/10 process command=/opt/talker distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu0 10/10 thread comm=talker
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=talker namespace=/
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/chatter
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
";

pub const LISTENER: &str = "
2ms cpu1 20/20 process command=/opt/listener distribution=kilted rmw=rmw_fastrtps_cpp
2ms cpu1 20/20 thread comm=listener
2ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=listener namespace=/
2ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/chatter
2ms cpu1 20/20 subscription_object subscription=0x20 object=0x25
2ms cpu1 20/20 subscription_callback object=0x25 callback=0x60
";

/// Returns the events of one round of the talker at `t` us. The talker sleeps until `t`, publishes
/// after `publish` us and ends after `run` us.
pub fn talk(t: u64, publish: u64, run: u64) -> String {
    let (p, e) = (t + 10 + publish, t + 10 + run);
    format!(
        "{}us cpu0 10/10 executor_wait_for_work timeout_ns=0
{}us cpu0 10/10 wait
{}us cpu0 10/10 switch_out state=1
{t}us cpu0 10/10 wake waker_tid=0
{}us cpu0 10/10 switch_in
{}us cpu0 10/10 executor_next_ready
{}us cpu0 10/10 executor_execute handle=0x50
{}us cpu0 10/10 timer_call timer=0x50
{}us cpu0 10/10 callback_start callback=0x60
{p}us cpu0 10/10 rcl_publish publisher=0x10 message=0x99
{p}us cpu0 10/10 publish rmw=0x1010 message=0x99 source_ns={p}us
{e}us cpu0 10/10 callback_end callback=0x60
",
        t - 50,
        t - 50,
        t - 49,
        t + 2,
        t + 3,
        t + 4,
        t + 5,
        t + 10
    )
}

pub fn listen(t: u64, source: u64, run: u64) -> String {
    format!(
        "{t}us cpu1 20/20 wake waker_tid=21
{}us cpu1 20/20 switch_in priority=49 policy=1
{}us cpu1 20/20 executor_next_ready
{}us cpu1 20/20 executor_execute handle=0x20
{}us cpu1 20/20 take rmw=0x1020 source_ns={source}us
{}us cpu1 20/20 callback_start callback=0x60
{}us cpu1 20/20 callback_end callback=0x60
{}us cpu1 20/20 executor_wait_for_work timeout_ns=0
{}us cpu1 20/20 wait
{}us cpu1 20/20 switch_out state=1
",
        t + 1,
        t + 2,
        t + 3,
        t + 4,
        t + 20,
        t + 20 + run,
        t + 20 + run,
        t + 21 + run,
        t + 22 + run,
    )
}

pub fn sorted(parts: &[String]) -> String {
    let mut events = onbeat_trace::text::parse(&parts.concat()).unwrap();
    events.sort_by_key(|e| e.time_ns);
    events
        .iter()
        .map(|e| onbeat_trace::text::print(e) + "\n")
        .collect()
}

fn talk_and_listen(rounds: u64) -> Vec<String> {
    let mut parts = vec![TALKER.to_string(), LISTENER.to_string()];
    parts.push("3ms cpu1 20/20 wait\n3.001ms cpu1 20/20 switch_out state=1\n".into());
    for i in 1..=rounds {
        let t = 1_000 + i * 100_000;
        parts.push(talk(t, 500, 1_000));
        parts.push(listen(t + 510 + 40, t + 510, 2_000));
    }
    parts
}

const T: &str = "/talker:timer(100ms)";
const S: &str = "/listener:subscription(/chatter)";

#[test]
fn an_execution_that_the_recording_cuts_off_does_not_count_for_the_priority_of_its_thread() {
    let mut parts = talk_and_listen(5);
    // Another program resets the thread's priority in the middle of its last execution.
    let cut = listen(700_000, 600_000, 2_000);
    let begun: Vec<&str> = cut.lines().take(6).collect();
    parts.push(begun.join("\n"));
    parts.push("\n701ms cpu1 20/20 switch_out state=0\n".into());
    parts.push("702ms cpu1 20/20 switch_in priority=120 policy=0\n".into());
    let m = model(&sorted(&parts));
    let uses = callback(&m, S).threads.iter();
    let policies: Vec<&str> = uses.map(|t| t.policy.as_str()).collect();
    assert_eq!(policies, ["fifo"]);
}

#[test]
fn a_chain_of_a_timer_and_a_subscription_in_two_processes_is_measured() {
    let m = model(&sorted(&talk_and_listen(20)));
    assert_eq!(ids(&m), [S, T]);
    let (t, s) = (callback(&m, T), callback(&m, S));
    assert_eq!((t.bracket, s.bracket), (Bracket::Exact, Bracket::Exact));
    assert_eq!(
        (t.period_ns, s.period_ns),
        (Some(100_000_000), Some(100_000_000))
    );
    assert_eq!(t.outputs, ["/chatter"]);
    assert_eq!(s.input, "/chatter");
    let exec = &t.figures.exec_ns;
    assert_eq!(
        (exec.count(), exec.min(), exec.max()),
        (20, 1_000_000, 1_000_000)
    );
    assert_eq!(
        (
            t.figures.interarrival_ns.count(),
            t.figures.interarrival_ns.min()
        ),
        (19, 100_000_000)
    );
    // The timer is due at a multiple of its period. The thread is woken up then, and the callback
    // starts 10 us later.
    assert_eq!(t.figures.release_jitter_ns.max(), 10_000);
    assert_eq!(t.figures.response_ns.max(), 1_010_000);
    // The thread is woken up 40 us after the publication, and the callback starts 20 us later.
    assert_eq!(s.figures.response_ns.max(), 2_020_000);
    let e = edge(&m, T, S);
    assert_eq!((e.published, e.taken, e.lost), (20, 20, 0));
    assert_eq!((e.latency_ns.min(), e.latency_ns.max()), (60_000, 60_000));
    assert_eq!((e.transport_ns.min(), e.waiting_ns.max()), (40_000, 20_000));
    assert_eq!(
        s.threads,
        [ThreadUse {
            comm: "listener".into(),
            policy: "fifo".into(),
            priority: 49,
            cpus: vec![1]
        }]
    );
    assert_eq!(m.chains.len(), 1);
    let c = chain(&m, &format!("{T} > {S}"));
    assert_eq!(c.topics, ["/chatter"]);
    assert_eq!((c.figures.executions, c.figures.lost), (20, 0));
    // 500 us to the publication, 60 us to the start, 2000 us to the end.
    assert_eq!(c.figures.latency_ns.max(), 2_560_000);
    assert_eq!(c.figures.jitter_ns, 0);
    let means: Vec<f64> = c.figures.shares.iter().map(|s| s.mean_ns).collect();
    assert_eq!(means, [500_000.0, 60_000.0, 2_000_000.0]);
    assert!(
        m.junctions.is_empty() && m.assumptions.is_empty() && m.coverage.is_empty(),
        "{m:#?}"
    );
}

#[test]
fn preemption_and_sleep_are_not_execution_time() {
    let mut parts = talk_and_listen(5);
    for i in 1..=5u64 {
        let t = 1_000 + i * 100_000 + 600;
        parts.push(format!(
            "{t}us cpu0 10/10 switch_out state=0
{}us cpu0 10/10 switch_in
{}us cpu0 10/10 switch_out state=1
{}us cpu0 10/10 wake waker_tid=1
{}us cpu0 10/10 switch_in\n",
            t + 100,
            t + 150,
            t + 200,
            t + 230
        ));
    }
    let m = model(&sorted(&parts));
    let f = &callback(&m, T).figures;
    // 100 us preempted, 50 us asleep, and 30 us ready before it ran again.
    assert_eq!((f.exec_ns.min(), f.exec_ns.max()), (820_000, 820_000));
    assert_eq!(
        (f.preempted_ns.max(), f.blocked_ns.max()),
        (130_000, 50_000)
    );
    assert_eq!((f.preemptions, f.blockings), (5, 5));
    assert_eq!(
        f.response_ns.max(),
        1_010_000,
        "the response time includes both"
    );
}

#[test]
fn a_missing_switch_affects_only_the_execution_around_it() {
    // The switch back in is missing, so it is unknown how long the thread ran before its next act.
    let mut parts = talk_and_listen(5);
    parts.push("101.55ms cpu0 10/10 switch_out state=0\n".into());
    let m = model(&sorted(&parts));
    let f = &callback(&m, T).figures;
    assert_eq!((f.executions(), f.untimed), (5, 1));
    assert_eq!((f.exec_ns.min(), f.exec_ns.max()), (1_000_000, 1_000_000));
    assert!(m
        .coverage
        .iter()
        .any(|c| c.contains("scheduler event was missing once")));
}

#[test]
fn each_missing_switch_is_counted() {
    // Six times, the thread leaves a CPU twice in a row, so the switch in between is missing. Then
    // it gets a CPU twice in a row.
    let mut parts = talk_and_listen(5);
    for i in 0..7 {
        parts.push(format!("{}us cpu0 10/10 switch_out state=0\n", 101_100 + i));
        parts.push(format!("{}us cpu0 10/10 switch_in\n", 101_200 + i));
    }
    let m = model(&sorted(&parts));
    let said = "A scheduler event was missing 12 times";
    assert!(
        m.coverage.iter().any(|c| c.starts_with(said)),
        "{:#?}",
        m.coverage
    );
}

#[test]
fn no_switch_is_missing_before_the_first_one_of_a_thread_whose_creation_or_name_is_recorded() {
    // The first callback ends before the thread is switched for the first time.
    let trace = "
101000us cpu0 10/10 timer_call timer=0x50
101000us cpu0 10/10 callback_start callback=0x60
102000us cpu0 10/10 callback_end callback=0x60
102001us cpu0 10/10 switch_out state=1
";
    let said = |trace: &str| {
        let m = model(trace);
        let missing = |c: &&String| c.contains("scheduler event");
        m.coverage.iter().filter(missing).count()
    };
    assert_eq!(said(&[TALKER, trace].concat()), 0);
    // A thread that was not reported may have been switched before.
    let unreported = TALKER.replace("1ms cpu0 10/10 thread comm=talker\n", "");
    assert_eq!(said(&[&unreported, trace].concat()), 1);
    // The recording shows the creation of this thread, as for the workers of a pool.
    let worker = "
50000us cpu0 10/11 fork parent_pid=10 parent_tid=10 comm=worker
50010us cpu1 10/11 switch_in
50020us cpu1 10/11 switch_out state=1
100900us cpu1 10/11 switch_in
";
    let trace = trace.replace("cpu0 10/10", "cpu1 10/11");
    assert_eq!(said(&[&unreported, worker, &trace].concat()), 0);
}

#[test]
fn ten_items_in_the_queue_are_followed_one_by_one() {
    // A weakness of CARET: the listener is busy for a second, then takes ten items in a row.
    let mut parts = vec![TALKER.to_string(), LISTENER.to_string()];
    for i in 1..=20 {
        parts.push(talk(1_000 + i * 100_000, 500, 1_000));
    }
    for round in 0..2u64 {
        for i in 1..=10u64 {
            let source = 1_510 + (10 * round + i) * 100_000;
            let t = 1_200_000 + round * 1_000_000 + i * 3_000;
            parts.push(format!(
                "{t}us cpu1 20/20 take rmw=0x1020 source_ns={source}us
{}us cpu1 20/20 callback_start callback=0x60
{}us cpu1 20/20 callback_end callback=0x60
{}us cpu1 20/20 executor_next_ready\n",
                t + 10,
                t + 1_010,
                t + 1_020
            ));
        }
    }
    let m = model(&sorted(&parts));
    let e = edge(&m, T, S);
    assert_eq!((e.published, e.taken, e.lost), (20, 20, 0));
    // The first of ten is published at 101.51 and begun at 1203.01. The last: 1001.51 and 1230.01.
    assert_eq!(
        (e.latency_ns.max(), e.latency_ns.min()),
        (1_101_500_000, 228_500_000)
    );
    let c = chain(&m, &format!("{T} > {S}"));
    assert_eq!(
        (c.figures.latency_ns.max(), c.figures.latency_ns.min()),
        (1_103_000_000, 230_000_000)
    );
}

#[test]
fn skipped_items_are_lost_and_items_on_their_way_are_not() {
    let mut parts = vec![TALKER.to_string(), LISTENER.to_string()];
    for i in 1..=20 {
        parts.push(talk(1_000 + i * 100_000, 500, 1_000));
    }
    // The listener takes 3, 4 and 8. Item 20 is still on its way at the end.
    for i in [3, 4, 8] {
        let source = 1_510 + i * 100_000;
        parts.push(listen(source + 40, source, 2_000));
    }
    let m = model(&sorted(&parts));
    let e = edge(&m, T, S);
    // 1 and 2 come before the first take. 5, 6 and 7 are passed over in a queue of unknown depth. 9
    // and later waited for a second or more.
    assert_eq!((e.published, e.taken, e.lost, e.overwritten), (20, 3, 7, 0));
    assert_eq!(chain(&m, &format!("{T} > {S}")).figures.lost, 7);
}

#[test]
fn an_execution_that_an_exception_ended_has_no_end_event() {
    let text = sorted(&talk_and_listen(5));
    let without = text.replace("102010000 cpu0 10/10 callback_end callback=0x60\n", "");
    assert_ne!(text, without);
    let m = model(&without);
    let f = &callback(&m, T).figures;
    // It is unknown when the callback was left, so its times are not counted.
    assert_eq!(
        (f.exec_ns.count(), f.exec_ns.min(), f.exec_ns.max()),
        (4, 1_000_000, 1_000_000)
    );
    assert!(
        m.coverage
            .iter()
            .any(|c| c.starts_with(&format!("{T} was started once"))),
        "{:?}",
        m.coverage
    );
    assert_eq!(callback(&m, T).bracket, Bracket::Exact);
}

#[test]
fn a_callback_that_the_end_of_its_process_cut_off_has_no_execution_time() {
    let mut parts = talk_and_listen(5);
    parts.push(
        "601.1ms cpu0 10/10 timer_call timer=0x50
601.2ms cpu0 10/10 callback_start callback=0x60
601.9ms cpu0 10/10 exit\n"
            .into(),
    );
    let m = model(&sorted(&parts));
    assert_eq!(callback(&m, T).figures.exec_ns.count(), 5);
    assert!(
        m.coverage
            .iter()
            .any(|c| c.starts_with(&format!("{T} was cut off once"))),
        "{:?}",
        m.coverage
    );
}

#[test]
fn a_restarted_process_continues_its_callbacks_and_a_reused_pid_does_not() {
    let mut parts = talk_and_listen(5);
    parts.push("650ms cpu0 10/10 exit\n".into());
    // The program starts again with another pid. The old pid comes back as another program with the
    // same addresses.
    let again = |s: &str| s.replace("10/10", "77/77").replace("1ms", "700ms");
    parts.push(again(TALKER));
    parts.push(again(&talk(801_000, 500, 1_000)));
    parts.push(listen(801_550, 801_510, 2_000));
    parts.push(
        "710ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=other
710ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
710ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
710ms cpu0 10/10 timer_node timer=0x50 node=0x1
720ms cpu0 10/10 timer_call timer=0x50
720ms cpu0 10/10 callback_start callback=0x60
721ms cpu0 10/10 callback_end callback=0x60\n"
            .into(),
    );
    let m = model(&sorted(&parts));
    assert_eq!(ids(&m), [S, "/other:timer(10ms)", T]);
    assert_eq!(callback(&m, T).figures.exec_ns.count(), 6);
    assert_eq!(edge(&m, T, S).taken, 6);
}

#[test]
fn a_timer_of_another_period_at_the_same_address_is_another_callback() {
    let mut parts = vec![TALKER.to_string()];
    parts.push(talk(101_000, 500, 1_000));
    parts.push(
        "300ms cpu0 10/10 timer_init timer=0x50 period_ns=20ms
300ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
300ms cpu0 10/10 timer_node timer=0x50 node=0x1\n"
            .into(),
    );
    parts.push(talk(320_000, 500, 1_000));
    parts.push(talk(340_000, 500, 1_000));
    let m = model(&sorted(&parts));
    assert_eq!(ids(&m), [T, "/talker:timer(20ms)"]);
    assert_eq!(
        callback(&m, "/talker:timer(20ms)").figures.exec_ns.count(),
        2
    );
}

#[test]
fn equal_timers_and_equal_nodes_are_numbered() {
    let twin = "
1ms cpu0 10/10 timer_init timer=0x51 period_ns=100ms
1ms cpu0 10/10 timer_callback timer=0x51 callback=0x61
1ms cpu0 10/10 timer_node timer=0x51 node=0x1\n";
    let other = TALKER.replace("10/10", "11/11").replace("1ms", "1.5ms");
    let mut parts = vec![TALKER.to_string(), twin.into(), other];
    for i in 1..=5 {
        let t = 1_000 + 100_000 * i;
        parts.push(talk(t, 500, 1_000));
        // The second timer of the first node runs first.
        let second = talk(t - 20_000, 500, 3_000)
            .replace("0x50", "0x51")
            .replace("0x60", "0x61");
        parts.push(second);
        parts.push(talk(t + 30_000, 500, 2_000).replace("10/10", "11/11"));
    }
    let m = model(&sorted(&parts));
    let exec = |id: &str| callback(&m, id).figures.exec_ns.max();
    assert_eq!(
        ids(&m),
        ["/talker#2:timer(100ms)", T, "/talker:timer(100ms)#2"]
    );
    assert_eq!(exec(T), 1_000_000);
    assert_eq!(exec("/talker:timer(100ms)#2"), 3_000_000);
    assert_eq!(exec("/talker#2:timer(100ms)"), 2_000_000);
}

#[test]
fn a_reentrant_callback_runs_on_two_threads_at_once() {
    let mut parts = vec![TALKER.to_string(), LISTENER.to_string()];
    for i in 1..=10u64 {
        let t = 1_000 + i * 100_000;
        parts.push(talk(t, 500, 1_000));
        if i % 2 == 1 {
            continue;
        }
        // Two workers take two items. The event of the second take comes first.
        let (a, b) = (t - 100_000 + 510, t + 510);
        let at = t + 700;
        parts.push(format!(
            "{at}us cpu1 20/22 executor_execute handle=0x20
{at}us cpu1 20/22 take rmw=0x1020 source_ns={b}us
{}us cpu0 20/21 executor_execute handle=0x20
{}us cpu0 20/21 take rmw=0x1020 source_ns={a}us
{}us cpu1 20/22 callback_start callback=0x60
{}us cpu0 20/21 callback_start callback=0x60
{}us cpu0 20/21 callback_end callback=0x60
{}us cpu1 20/22 callback_end callback=0x60\n",
            at + 1,
            at + 2,
            at + 10,
            at + 20,
            at + 2_020,
            at + 3_010,
        ));
    }
    let m = model(&sorted(&parts));
    let s = callback(&m, S);
    assert_eq!(
        (
            s.figures.exec_ns.count(),
            s.figures.exec_ns.min(),
            s.figures.exec_ns.max()
        ),
        (10, 2_000_000, 3_000_000)
    );
    assert_eq!(
        s.threads.iter().map(|t| t.cpus.clone()).collect::<Vec<_>>(),
        [[0, 1]]
    );
    let e = edge(&m, T, S);
    assert_eq!(
        (e.published, e.taken, e.lost, e.overwritten),
        (10, 10, 0, 0)
    );
}

#[test]
fn items_that_are_handled_out_of_order_keep_their_own_latency() {
    // A reentrant callback takes an item each 100 ms on one of three threads. Each third item takes
    // 150 ms, the others 20 ms. Each output is published at the end.
    let mut parts = vec![TALKER.to_string(), LISTENER.to_string()];
    parts.push(
        "2ms cpu1 20/20 publisher_init publisher=0x11 node=0x1 rmw=0x1011 topic=/out\n".into(),
    );
    parts.push(
        LISTENER
            .replace("20/20", "30/30")
            .replace("/chatter", "/out")
            .replace("listener", "sink"),
    );
    let mut truth = Vec::new();
    for i in 1..=30u64 {
        let t = 1_000 + i * 100_000;
        parts.push(talk(t, 500, 1_000));
        let cost = if i % 3 == 0 { 150_000 } else { 20_000 };
        let (at, thread) = (t + 600, format!("cpu1 20/{}", 21 + i % 3));
        let (out, heard) = (at + cost, at + cost + 300);
        parts.push(format!(
            "{at}us {thread} executor_next_ready
{at}us {thread} executor_execute handle=0x20
{at}us {thread} take rmw=0x1020 source_ns={}us
{at}us {thread} callback_start callback=0x60
{out}us {thread} publish rmw=0x1011 source_ns={out}us
{out}us {thread} callback_end callback=0x60
{out}us {thread} executor_next_ready
{heard}us cpu0 30/30 take rmw=0x1020 source_ns={out}us
{heard}us cpu0 30/30 callback_start callback=0x60
{}us cpu0 30/30 callback_end callback=0x60
",
            t + 510,
            heard + 100,
        ));
        // The latency lasts from the start of the timer's callback to the end of the sink's.
        truth.push((heard + 100 - (t + 10)) * 1_000);
    }
    let m = model(&sorted(&parts));
    let sink = "/sink:subscription(/out)";
    let chain = &chain(&m, &format!("{T} > {S} > {sink}")).figures;
    let latency = &chain.latency_ns;
    assert_eq!(latency.count(), 30);
    assert_eq!(latency.sum(), truth.iter().map(|&t| u128::from(t)).sum());
    assert_eq!(Some(&latency.min()), truth.iter().min());
    assert_eq!(Some(&latency.max()), truth.iter().max());
    // The item after a slow one overtakes it. The last slow one has none after it.
    let said = format!("{S} handled items out of order 9 times: an execution ended after the execution of a later item.");
    assert!(
        m.coverage.iter().any(|line| line.starts_with(&said)),
        "{:#?}",
        m.coverage
    );
    assert!(!m.coverage.iter().any(|line| line.starts_with(sink)));
    let e = edge(&m, T, S);
    assert_eq!((e.published, e.taken, e.lost), (30, 30, 0));
}

#[test]
fn intra_process_items_are_followed_through_ring_buffers() {
    // One process with the talker's timer and a subscription with an intra-process buffer, and a
    // remote listener. rclcpp drops the copy that the local subscription gets through the
    // middleware.
    let local = "
2ms cpu0 10/10 subscription_init subscription=0x21 node=0x1 rmw=0x1021 topic=/chatter
2ms cpu0 10/10 subscription_object subscription=0x21 object=0x26
2ms cpu0 10/10 subscription_callback object=0x26 callback=0x62
2ms cpu0 10/10 ring_buffer_init buffer=0x70 capacity=10
2ms cpu0 10/10 ring_buffer_intra_buffer buffer=0x70 ipb=0x71
2ms cpu0 10/10 intra_buffer_subscription ipb=0x71 object=0x27
2ms cpu0 10/10 subscription_callback object=0x27 callback=0x63
2ms cpu0 10/10 subscription_object subscription=0x21 object=0x27\n";
    let mut parts = talk_and_listen(10);
    parts.push(local.into());
    for i in 1..=10u64 {
        let t = 1_000 + i * 100_000;
        let index = i % 10;
        parts.push(format!(
            "{}us cpu0 10/10 intra_publish publisher=0x10 message=0x99
{}us cpu0 10/10 ring_buffer_enqueue buffer=0x70 index={index}\n",
            t + 410,
            t + 411
        ));
        if i == 4 {
            // Overwritten before it is read: index 4 again.
            parts.push(format!(
                "{}us cpu0 10/10 intra_publish publisher=0x10 message=0x99
{}us cpu0 10/10 ring_buffer_enqueue buffer=0x70 index={index} overwritten=yes\n",
                t + 420,
                t + 421
            ));
        }
        parts.push(format!(
            "{}us cpu0 10/10 ring_buffer_dequeue buffer=0x70 index={index}
{}us cpu0 10/10 callback_start callback=0x63 intra_process=yes
{}us cpu0 10/10 callback_end callback=0x63
{}us cpu0 10/10 take rmw=0x1021 source_ns={}us
{}us cpu0 10/10 executor_next_ready\n",
            t + 2_000,
            t + 2_011,
            t + 4_011,
            t + 5_000,
            t + 510,
            t + 5_001,
        ));
    }
    let m = model(&sorted(&parts));
    let l = "/talker:subscription(/chatter)";
    assert_eq!(ids(&m), [S, l, T]);
    assert_eq!(
        callback(&m, l).figures.exec_ns.count(),
        10,
        "the copy starts no callback"
    );
    let e = m.edges.iter().find(|e| e.to == l).unwrap();
    assert!(e.intra_process);
    let f = &e.figures;
    assert_eq!(
        (f.published, f.taken, f.lost, f.overwritten),
        (11, 10, 0, 1)
    );
    assert_eq!(f.latency_ns.max(), 1_600_000);
    assert_eq!(edge(&m, T, S).taken, 10);
    assert_eq!(chains(&m), [format!("{T} > {S}"), format!("{T} > {l}")]);
}

fn client_and_service(jazzy: bool, end: bool) -> String {
    let mut parts = vec!["1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=asker
1ms cpu0 10/10 client_init client=0x40 node=0x1 rmw=0x1040 name=/sv
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
1ms cpu0 11/11 node_init node=0x1 rmw=0x1001 name=other
1ms cpu0 11/11 client_init client=0x40 node=0x1 rmw=0x1040 name=/sv
1ms cpu0 11/11 timer_init timer=0x50 period_ns=100ms
1ms cpu0 11/11 timer_callback timer=0x50 callback=0x60
1ms cpu0 11/11 timer_node timer=0x50 node=0x1
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=server
1ms cpu1 20/20 service_init service=0x30 node=0x1 rmw=0x1030 name=/sv
1ms cpu1 20/20 service_callback service=0x30 callback=0x60\n"
        .to_string()];
    for i in 1..=20u64 {
        let t = 1_000 + i * 100_000;
        // Both ask at the same time with the same sequence number. They are served one after the
        // other.
        for (pid, gid, delay) in [(10, "ab", 0u64), (11, "cd", 1_200)] {
            let gid = gid.repeat(16);
            let source = t + delay + 1_150;
            let stamp = if jazzy {
                "-".into()
            } else {
                format!("{source}us")
            };
            // The event of sending is written when the call returns, after the service has taken
            // the request.
            parts.push(format!(
                "{t}us cpu0 {pid}/{pid} timer_call timer=0x50
{}us cpu0 {pid}/{pid} callback_start callback=0x60
{}us cpu0 {pid}/{pid} request_send rmw=0x1040 sequence={i}
{}us cpu0 {pid}/{pid} callback_end callback=0x60
{}us cpu0 {pid}/{pid} executor_wait_for_work timeout_ns=-1
{}us cpu1 20/20 request_take rmw=0x1030 gid={gid} sequence={i}
{}us cpu1 20/20 callback_start callback=0x60
{}us cpu1 20/20 callback_end callback=0x60
{source}us cpu1 20/20 response_send rmw=0x1030 gid={gid} sequence={i} source_ns={stamp}
{}us cpu0 {pid}/{pid} executor_next_ready
{}us cpu0 {pid}/{pid} execute_start execute=client
{}us cpu0 {pid}/{pid} response_take rmw=0x1040 sequence={i} source_ns={source}us
{}{}us cpu0 {pid}/{pid} executor_next_ready\n",
                t + 10,
                t + 110,
                t + 210,
                t + 220,
                t + delay + 100,
                t + delay + 120,
                t + delay + 1_120,
                source + 15,
                source + 18,
                source + 20,
                if end {
                    format!(
                        "{}us cpu0 {pid}/{pid} execute_end execute=client\n",
                        source + 320
                    )
                } else {
                    String::new()
                },
                source + 420,
            ));
        }
    }
    sorted(&parts)
}

#[test]
fn a_service_with_two_clients_is_two_vertices_of_the_graph() {
    for (jazzy, end) in [(false, true), (true, true), (true, false)] {
        let m = model(&client_and_service(jazzy, end));
        let want = [
            "/asker:client(/sv)",
            "/asker:timer(100ms)",
            "/other:client(/sv)",
            "/other:timer(100ms)",
            "/server:service(/sv)@/asker",
            "/server:service(/sv)@/other",
        ];
        assert_eq!(ids(&m), want, "jazzy {jazzy}");
        assert_eq!(
            edges(&m),
            [
                "/asker:timer(100ms) -> /server:service(/sv)@/asker /sv/request",
                "/other:timer(100ms) -> /server:service(/sv)@/other /sv/request",
                "/server:service(/sv)@/asker -> /asker:client(/sv) /sv/response",
                "/server:service(/sv)@/other -> /other:client(/sv) /sv/response",
            ]
        );
        for id in &want[4..] {
            let f = &callback(&m, id).figures.exec_ns;
            assert_eq!((f.count(), f.max()), (20, 1_000_000), "{id}, jazzy {jazzy}");
        }
        let client = callback(&m, "/asker:client(/sv)");
        assert_eq!(
            client.bracket,
            if end {
                Bracket::Exact
            } else {
                Bracket::Inferred
            }
        );
        assert_eq!(
            client.figures.exec_ns.max(),
            if end { 300_000 } else { 400_000 }
        );
        assert_eq!(chains(&m).len(), 2, "{:#?}", chains(&m));
        let c = chain(
            &m,
            "/asker:timer(100ms) > /server:service(/sv)@/asker > /asker:client(/sv)",
        );
        assert_eq!(
            (c.figures.executions, c.figures.lost),
            (20, 0),
            "jazzy {jazzy}"
        );
        assert_eq!(c.topics, ["/sv/request", "/sv/response"]);
    }
}

#[test]
fn publications_without_a_time_stamp_are_matched_in_humble() {
    // The take's time stamp (wall clock) lies within the publishing call. `rmw_publish` has no
    // handle.
    let mut text =
        String::from("0.5ms cpu0 0/0 clock_offset realtime_minus_monotonic_ns=1700000000s\n");
    for line in sorted(&talk_and_listen(20)).lines() {
        let Some((head, source)) = line.split_once("source_ns=") else {
            text += &format!("{line}\n");
            continue;
        };
        if head.contains(" publish ") {
            text += &format!("{}source_ns=-\n", head.replace("rmw=0x1010", "rmw=0x0"));
        } else {
            let (source, tail) = source.split_once(' ').unwrap();
            let source = source.parse::<u64>().unwrap() + 1_700_000_000_000_000_000 + 7_000;
            text += &format!("{head}source_ns={source} {tail}\n");
        }
    }
    let m = model(&text);
    let e = edge(&m, T, S);
    assert_eq!((e.published, e.taken, e.lost), (20, 20, 0));
    assert_eq!(
        chain(&m, &format!("{T} > {S}")).figures.latency_ns.max(),
        2_560_000
    );
}

#[test]
fn a_step_of_the_wall_clock_does_not_change_the_model() {
    // Source time stamps go back by an hour after ten rounds. The offset is sampled afterwards.
    let mut parts = vec![TALKER.to_string(), LISTENER.to_string()];
    parts.push("0.5ms cpu0 0/0 clock_offset realtime_minus_monotonic_ns=7200s\n".into());
    parts.push("1105ms cpu0 0/0 clock_offset realtime_minus_monotonic_ns=3600s\n".into());
    let stamp = |i: u64, us: u64| {
        us + if i <= 10 {
            7_200_000_000
        } else {
            3_600_000_000
        }
    };
    for i in 1..=20u64 {
        let t = 1_000 + i * 100_000;
        let source = stamp(i, t + 510);
        parts.push(talk(t, 500, 1_000).replace(
            &format!("source_ns={}us", t + 510),
            &format!("source_ns={source}us"),
        ));
        parts.push(listen(t + 550, source, 2_000));
    }
    let m = model(&sorted(&parts));
    let e = edge(&m, T, S);
    assert_eq!(
        (e.published, e.taken, e.lost, e.latency_ns.max()),
        (20, 20, 0, 60_000)
    );
}

#[test]
fn a_wall_clock_that_runs_slow_or_is_set_does_not_change_a_model_of_humble() {
    // From 0.5 s to 1.5 s, the wall clock loses 80 ms. After 1.8 s, it is set back by an hour.
    let wall = |us: u64| match us {
        ..500_000 => us + 7_200_000_000,
        500_000..1_500_000 => us + 7_200_000_000 - (us - 500_000) * 80 / 1_000,
        1_500_000..1_800_000 => us + 7_199_920_000,
        _ => us + 3_600_000_000,
    };
    let mut parts = Vec::new();
    for t in (100..2_500_000).step_by(250_000) {
        // The recorder notes the offset of the next quarter of a second before its events.
        let offset = wall(t + 250_000) - (t + 250_000);
        parts.push(format!(
            "{t}us cpu0 0/0 clock_offset realtime_minus_monotonic_ns={offset}us\n"
        ));
    }
    parts.extend([TALKER.to_string(), LISTENER.to_string()]);
    for i in 1..=20u64 {
        let t = 1_000 + i * 100_000;
        let (stamp, source) = (format!("source_ns={}us", t + 510), wall(t + 512));
        parts.push(talk(t, 500, 1_000).replace(&stamp, "source_ns=-"));
        // The publishing call has returned by then.
        parts.push(listen(t + 3_000, source, 2_000));
    }
    let m = model(&sorted(&parts));
    let e = edge(&m, T, S);
    assert_eq!(
        (e.published, e.taken, e.lost, e.latency_ns.max()),
        (20, 20, 0, 2_510_000)
    );
}

#[test]
fn a_latched_item_reaches_a_subscription_that_comes_later() {
    let mut parts = vec![TALKER.to_string()];
    for i in 1..=5 {
        parts.push(talk(1_000 + i * 100_000, 500, 1_000));
    }
    let late = LISTENER.replace("2ms", "800ms");
    parts.push(late);
    for (n, i) in [4u64, 5].into_iter().enumerate() {
        parts.push(listen(
            900_000 + 10_000 * n as u64,
            1_510 + i * 100_000,
            2_000,
        ));
    }
    parts.push(talk(1_001_000, 500, 1_000));
    parts.push(listen(1_001_600, 1_001_510, 2_000));
    let m = model(&sorted(&parts));
    let e = edge(&m, T, S);
    assert_eq!(
        (e.published, e.taken, e.lost),
        (3, 3, 0),
        "items from before the subscription do not count as lost"
    );
    assert_eq!(m.chains[0].figures.executions, 3);
}

#[test]
fn late_attach_names_callbacks_as_far_as_names_are_known() {
    // No creation is seen. Names come from the rmw structs and the parameter services.
    let found = "
1ms cpu0 10/10 process command=/opt/talker distribution=kilted rmw=x late=yes
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/chatter
1ms cpu0 10/10 node_found node=0x0 name=/talker
1ms cpu0 10/10 timer_found timer=0x50
2ms cpu1 20/20 process command=/opt/listener distribution=kilted rmw=x late=yes
2ms cpu1 20/20 endpoint_found endpoint=subscription rcl=0x0 rmw=0x1020 name=/chatter\n";
    let mut parts: Vec<String> = talk_and_listen(20).split_off(2);
    parts.insert(0, found.into());
    let m = model(&sorted(&parts));
    let s = "/unknown-listener:subscription(/chatter)";
    assert_eq!(ids(&m), [T, s]);
    assert_eq!(callback(&m, T).bracket, Bracket::Exact);
    assert_eq!(callback(&m, T).period_ns, Some(100_000_000));
    assert_eq!(edge(&m, T, s).taken, 20);
    let said = m.assumptions.join(" ");
    assert!(
        said.contains("/unknown-listener is named after its process"),
        "{said}"
    );
    assert!(
        said.contains("The period of /talker:timer(100ms) is measured"),
        "{said}"
    );
}
