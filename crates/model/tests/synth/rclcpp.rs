//! rclcpp: exact brackets.

use super::*;

/// Two processes: `/talker` with a timer of 100 ms that publishes /chatter, `/listener` with a
/// subscription. Extra lines go in between by time order of the caller.
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

/// One round of the talker at `t` us: it sleeps until then, runs for `run` us and publishes
/// after `publish` us.
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

/// The listener, asleep before, is woken at `t` us, takes the item of source time `source`, and
/// runs for `run` us.
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

/// Lines in time order.
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
fn timer_and_subscription_in_two_processes() {
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
    // Due on the grid, woken then, started 10 us later.
    assert_eq!(t.figures.release_jitter_ns.max(), 10_000);
    assert_eq!(t.figures.response_ns.max(), 1_010_000);
    // Woken 40 us after the publication, started 20 us later.
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
