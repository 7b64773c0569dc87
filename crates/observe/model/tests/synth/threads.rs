//! Threads of the application's own, which run no callbacks: drivers, workers, threads for one task.

use super::rclcpp::sorted;
use super::*;

/// Process 10 is rclcpp's: `/driver` publishes /scan, `/worker` takes it on thread 10 and
/// publishes /worked. Process 20 is `/ears` and takes /worked.
const NODES: &str = "
1ms cpu0 10/10 thread comm=main
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=driver
1ms cpu0 10/10 node_init node=0x2 rmw=0x1002 name=worker
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/scan
1ms cpu0 10/10 publisher_init publisher=0x11 node=0x2 rmw=0x1011 topic=/worked
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x2 rmw=0x1020 topic=/scan depth=10
1ms cpu0 10/10 subscription_object subscription=0x20 object=0x25
1ms cpu0 10/10 subscription_callback object=0x25 callback=0x60
1ms cpu1 20/20 thread comm=ears
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=ears
1ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/worked depth=10
1ms cpu1 20/20 subscription_object subscription=0x20 object=0x25
1ms cpu1 20/20 subscription_callback object=0x25 callback=0x60
";

const DRIVER: &str = "/driver:thread(/scan)";
const SCAN: &str = "/worker:subscription(/scan)";
const WORKED: &str = "/worker:thread(/worked)";
const EARS: &str = "/ears:subscription(/worked)";

/// Thread 11 wakes up at `t` us, runs for 2 ms, of which 0.4 ms ready only, and publishes /scan.
fn drive(t: u64) -> String {
    format!(
        "{t}us cpu1 10/11 woken ready_ns=5us
{t}us cpu1 10/11 switch_in
{}us cpu1 10/11 switch_out state=0
{}us cpu0 10/11 switch_in
{}us cpu0 10/11 publish rmw=0x1010 source_ns={}us
{}us cpu0 10/11 switch_out state=1
",
        t + 500,
        t + 900,
        t + 2_000,
        t + 2_000,
        t + 2_100,
    )
}

/// /worker's callback takes the scan of `t` us, and runs for 1 ms.
fn scan(t: u64) -> String {
    format!(
        "{}us cpu0 10/10 take rmw=0x1020 source_ns={}us
{}us cpu0 10/10 callback_start callback=0x60
{}us cpu0 10/10 callback_end callback=0x60
{}us cpu0 10/10 executor_next_ready
",
        t + 2_150,
        t + 2_000,
        t + 2_160,
        t + 3_160,
        t + 3_170
    )
}

/// Thread `tid`, that the callback makes, works for 3 ms and publishes /worked, for /ears.
fn work(t: u64, tid: u64) -> String {
    format!(
        "{}us cpu0 10/{tid} fork parent_pid=10 parent_tid=10 comm=main
{}us cpu1 10/{tid} switch_in
{}us cpu1 10/{tid} publish rmw=0x1011 source_ns={}us
{}us cpu1 10/{tid} exit
{}us cpu1 20/20 take rmw=0x1020 source_ns={}us
{}us cpu1 20/20 callback_start callback=0x60
{}us cpu1 20/20 callback_end callback=0x60
",
        t + 2_500,
        t + 2_600,
        t + 5_600,
        t + 5_600,
        t + 5_650,
        t + 5_800,
        t + 5_600,
        t + 5_800,
        t + 5_900,
    )
}

/// A round each 100 ms. The driver is there before; each piece of work has a thread of its own.
fn rounds(n: u64) -> String {
    let mut parts = vec![NODES.to_string()];
    // Nothing says how long it computed for the first one.
    parts.push("50ms cpu1 10/11 publish rmw=0x1010 source_ns=50ms\n".into());
    parts.push("50ms cpu1 10/11 thread comm=driver\n".into());
    parts.push("50100us cpu1 10/11 switch_out state=1\n".into());
    for t in (1..=n).map(|i| i * 100_000) {
        parts.extend([drive(t), scan(t), work(t, 100 + t / 100_000)]);
    }
    sorted(&parts)
}

#[test]
fn a_thread_that_publishes_is_a_vertex_with_executions() {
    let m = model(&rounds(20));
    assert_eq!(ids(&m), [DRIVER, EARS, SCAN, WORKED]);
    let driver = callback(&m, DRIVER);
    assert_eq!(
        (driver.kind, driver.bracket, driver.input.as_str()),
        (CallbackType::Thread, Bracket::Inferred, "")
    );
    assert_eq!(driver.outputs, ["/scan"]);
    let f = &driver.figures;
    // From its waking up to its going to sleep.
    assert_eq!((f.exec_ns.count(), f.exec_ns.max()), (20, 1_700_000));
    assert_eq!(
        (f.exec_ns.min(), f.preempted_ns.max()),
        (1_700_000, 400_000)
    );
    assert_eq!(f.blocked_ns.max(), 0);
    assert_eq!(f.interarrival_ns.min(), 100_000_000);
    assert_eq!(driver.threads[0].comm, "driver");
    let e = edge(&m, DRIVER, SCAN);
    assert_eq!((e.published, e.taken, e.lost), (20, 20, 0));
    assert_eq!(
        chain(&m, &format!("{DRIVER} > {SCAN}")).figures.executions,
        20
    );
    let said = "/scan was published outside of callbacks once";
    assert!(
        m.coverage.iter().any(|c| c.starts_with(said)),
        "{:#?}",
        m.coverage
    );
}

#[test]
fn a_new_thread_each_time_is_one_vertex() {
    let m = model(&rounds(20));
    let worked = callback(&m, WORKED);
    let exec = &worked.figures.exec_ns;
    assert_eq!(
        (exec.count(), exec.min(), exec.max()),
        (20, 3_050_000, 3_050_000)
    );
    let e = edge(&m, WORKED, EARS);
    assert_eq!((e.published, e.taken), (20, 20));
    assert_eq!(worked.threads.len(), 1);
}

#[test]
fn a_link_leads_to_a_thread() {
    let m = model_with(&rounds(20), &[&format!("{SCAN} -> {WORKED}")]);
    let whole = chain(&m, &format!("{DRIVER} > {SCAN} > {WORKED} > {EARS}"));
    assert_eq!(whole.figures.executions, 20, "{:#?}", chains(&m));
}
