//! The application's own threads, which run no callbacks: drivers, workers, threads for one task.

use super::rclcpp::sorted;
use super::*;

/// The events that create two processes. In process 10, which uses rclcpp, `/driver` publishes
/// /scan, and `/worker` takes /scan on thread 10 and publishes /worked. In process 20, `/ears`
/// takes /worked.
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

fn rounds(n: u64) -> String {
    let mut parts = vec![NODES.to_string()];
    // The computing time before the first publication is unknown.
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
    let m = model(&made_outside_of_callbacks(20));
    assert_eq!(ids(&m), [DRIVER, EARS, SCAN, WORKED]);
    let driver = callback(&m, DRIVER);
    assert_eq!(
        (driver.kind, driver.bracket, driver.input.as_str()),
        (CallbackType::Thread, Bracket::Inferred, "")
    );
    assert_eq!(driver.outputs, ["/scan"]);
    let f = &driver.figures;
    // An execution lasts from the wake-up of the thread until it sleeps.
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
fn new_threads_for_the_same_publication_are_one_vertex() {
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

/// Returns the events of [`rounds`], except that the threads are created before the callback
/// begins. The callback therefore hands over no work.
fn made_outside_of_callbacks(n: u64) -> String {
    let trace = rounds(n);
    let moved = trace.lines().map(|line| {
        if line.contains("parent_tid=10") {
            line.replace("500000 cpu", "140000 cpu")
        } else {
            line.to_string()
        }
    });
    let moved: Vec<String> = moved.map(|line| line + "\n").collect();
    sorted(&moved)
}

#[test]
fn a_stated_link_can_lead_to_a_thread() {
    let m = model_with(
        &made_outside_of_callbacks(20),
        &[&format!("{SCAN} -> {WORKED}")],
    );
    let whole = chain(&m, &format!("{DRIVER} > {SCAN} > {WORKED} > {EARS}"));
    assert_eq!(whole.figures.executions, 20, "{:#?}", chains(&m));
}

#[test]
fn a_thread_that_a_callback_makes_continues_its_chain() {
    let m = model(&rounds(20));
    let whole = format!("{DRIVER} > {SCAN} > {WORKED} > {EARS}");
    // No chain begins with the thread.
    assert_eq!(chains(&m), [whole.as_str()]);
    let f = &chain(&m, &whole).figures;
    assert_eq!((f.executions, f.latency_ns.max()), (20, 5_900_000));
    let handed = m.edges.iter().find(|e| e.to == WORKED).unwrap();
    assert_eq!(handed.assumed, Some(Assumed::HandedOver));
    assert_eq!((handed.figures.taken, handed.figures.lost), (20, 0));
    // The transport lasts from the creation of the thread to its first run.
    assert_eq!(handed.figures.latency_ns.max(), 100_000);
    let said = format!("{SCAN} is assumed to hand its work to {WORKED}: {SCAN} woke up or created the thread before 20 executions");
    assert!(
        m.assumptions.iter().any(|a| a.starts_with(&said)),
        "{:#?}",
        m.assumptions
    );
}

#[test]
fn a_thread_that_is_made_outside_of_callbacks_begins_a_chain() {
    let m = model(&made_outside_of_callbacks(20));
    let driven = format!("{DRIVER} > {SCAN}");
    assert_eq!(chains(&m), [driven, format!("{WORKED} > {EARS}")]);
}

/// Returns `n` rounds of a worker thread that exists from the beginning. In each round the callback
/// wakes it up if `by_callback` returns true, otherwise a timer does. In the middle of its work, a
/// lock that the callback's thread releases wakes it up once more.
fn worker(n: u64, by_callback: impl Fn(u64) -> bool) -> String {
    let mut parts = vec![NODES.to_string()];
    parts.push("50ms cpu1 10/11 publish rmw=0x1010 source_ns=50ms\n".into());
    parts.push("50ms cpu1 10/11 thread comm=driver\n".into());
    parts.push("50100us cpu1 10/11 switch_out state=1\n".into());
    parts.push("50ms cpu1 10/12 publish rmw=0x1011 source_ns=51ms\n".into());
    parts.push("50ms cpu1 10/12 thread comm=worker\n".into());
    parts.push("50200us cpu1 10/12 switch_out state=1\n".into());
    for i in 1..=n {
        let t = i * 100_000;
        let waker = match by_callback(i) {
            true => format!("{}us cpu0 10/12 wake waker_tid=10\n", t + 2_500),
            false => String::new(),
        };
        parts.extend([drive(t), scan(t), waker]);
        parts.push(format!(
            "{}us cpu1 10/12 woken ready_ns=5us
{}us cpu1 10/12 switch_in
{}us cpu1 10/12 switch_out state=1
{}us cpu0 10/12 wake waker_tid=10
{}us cpu1 10/12 switch_in
{}us cpu1 10/12 publish rmw=0x1011 source_ns={}us
{}us cpu1 10/12 switch_out state=1
{}us cpu1 20/20 take rmw=0x1020 source_ns={}us
{}us cpu1 20/20 callback_start callback=0x60
{}us cpu1 20/20 callback_end callback=0x60
",
            t + 2_600,
            t + 2_600,
            t + 2_700,
            t + 2_900,
            t + 2_950,
            t + 5_000,
            t + 5_000,
            t + 5_100,
            t + 5_200,
            t + 5_000,
            t + 5_200,
            t + 5_300,
        ));
    }
    sorted(&parts)
}

#[test]
fn a_worker_that_a_callback_wakes_up_continues_its_chain() {
    // One wake-up has another reason.
    let m = model(&worker(20, |i| i != 5));
    let whole = format!("{DRIVER} > {SCAN} > {WORKED} > {EARS}");
    assert_eq!(chains(&m), [whole.as_str()]);
    assert_eq!(chain(&m, &whole).figures.executions, 19);
    let worked = callback(&m, WORKED);
    let exec = &worked.figures.exec_ns;
    // The execution begins at the end of the long sleep, and includes the short sleep.
    assert_eq!((exec.count(), exec.max()), (20, 2_250_000));
}

#[test]
fn wake_ups_by_callbacks_and_timers_alike_are_not_a_hand_over() {
    // Four in five are not enough, and neither is a lock that goes from thread to thread.
    for n in [20, 0] {
        let m = model(&worker(20, |i| n > 0 && i % 5 != 0));
        let driven = format!("{DRIVER} > {SCAN}");
        assert_eq!(chains(&m), [driven, format!("{WORKED} > {EARS}")]);
        let executions = chain(&m, &format!("{WORKED} > {EARS}")).figures.executions;
        assert_eq!(executions, 20);
        assert!(m.edges.iter().all(|e| e.to != WORKED), "{:#?}", edges(&m));
    }
}

#[test]
fn the_coverage_reports_the_cpu_time_of_helper_threads() {
    // The callback makes two threads that compute for 4 ms each and are stopped for 1 ms.
    let helper = |tid: u64| {
        format!(
            "102500us cpu0 10/{tid} fork parent_pid=10 parent_tid=10 comm=main
102600us cpu1 10/{tid} switch_in
104600us cpu1 10/{tid} switch_out state=0
105600us cpu1 10/{tid} switch_in
107600us cpu1 10/{tid} exit
"
        )
    };
    let parts = [NODES.to_string(), drive(100_000), scan(100_000)];
    let said = |trace: &str| {
        let m = model(trace);
        let found = m
            .coverage
            .iter()
            .find(|c| c.contains("It is unknown for which callbacks"));
        found.cloned()
    };
    assert_eq!(said(&sorted(&parts)), None);
    let helped = [parts.concat(), helper(31), helper(32)];
    let sentence = said(&sorted(&helped)).expect("it is said");
    assert!(sentence.contains("used 8.0 ms of CPU time"), "{sentence}");
}

#[test]
fn late_attach_within_a_publishing_callback_makes_no_thread_vertex() {
    let found = "0 cpu0 10/10 process command=/opt/lib/robot distribution=kilted rmw=x late=yes\n";
    let late = |ends: &str| {
        let mut parts = vec![
            "1200us cpu0 10/10 switch_in\n".into(),
            "1500us cpu0 10/10 switch_out state=1\n".into(),
            "2000us cpu0 10/10 switch_in\n".into(),
            "2500us cpu0 10/10 publish rmw=0x1011 source_ns=2500us\n".into(),
            "3000us cpu0 10/10 switch_out state=1\n".into(),
            "4000us cpu0 10/10 switch_in\n".into(),
            ends.to_owned(),
        ];
        for t in (1..=10).map(|i| i * 100_000) {
            parts.extend([drive(t), scan(t)]);
        }
        model(&format!("{found}{NODES}{}", sorted(&parts)))
    };
    let m = late("4100us cpu0 10/10 callback_end callback=0x61\n");
    assert_eq!(ids(&m), [DRIVER, SCAN]);
    assert!(m.junctions.is_empty(), "{:#?}", m.junctions);
    // The driver's thread is the application's own, from its second publication on.
    assert_eq!(callback(&m, DRIVER).figures.exec_ns.count(), 9);
    // The same holds for any thread that publishes again after a sleep and runs no callbacks.
    let m = late("4500us cpu0 10/10 publish rmw=0x1011 source_ns=4500us\n");
    assert!(ids(&m).contains(&WORKED), "{:?}", ids(&m));
}

/// Returns the model of an execution on thread 10 from 4 to 16 ms, on an item of /scan. The thread
/// is preempted at 5 ms and gets its CPU again at 8 ms. `back` is the event of
/// the switch at 8 ms, or empty.
fn preempted_scan(back: &str) -> Model {
    let execution = format!(
        "4ms cpu0 10/10 take rmw=0x1020 source_ns=1us
4ms cpu0 10/10 callback_start callback=0x60
5ms cpu0 10/10 switch_out state=0
{back}16ms cpu0 10/10 callback_end callback=0x60
17ms cpu0 10/10 switch_out state=1
20ms cpu0 10/10 switch_in
21ms cpu0 10/10 take rmw=0x1020 source_ns=2us
21ms cpu0 10/10 callback_start callback=0x60
23ms cpu0 10/10 callback_end callback=0x60
24ms cpu0 10/10 switch_out state=1
"
    );
    model(&[NODES, &execution].concat())
}

#[test]
fn an_execution_near_a_missing_switch_is_counted_and_has_no_time() {
    let times = |m: &Model| {
        let f = &callback(m, SCAN).figures;
        let (exec, preempted) = (&f.exec_ns, &f.preempted_ns);
        (
            f.executions(),
            f.untimed,
            exec.count(),
            exec.max() / 1_000_000,
            preempted.max() / 1_000_000,
        )
    };
    let missing = |m: &Model| m.coverage.iter().any(|s| s.contains("was missing once"));
    let whole = preempted_scan("8ms cpu0 10/10 switch_in\n");
    assert_eq!(times(&whole), (2, 0, 2, 9, 3));
    assert!(!missing(&whole));
    // The kernel did not report the switch at 8 ms, so it is unknown how long the thread ran.
    let gap = preempted_scan("");
    assert_eq!(times(&gap), (2, 1, 1, 2, 0));
    assert!(missing(&gap), "{:?}", gap.coverage);
    // The load counts both: 2 ms twice, in the 23 ms of the recording.
    assert!((callback(&gap, SCAN).figures.load - 4.0 / 23.0).abs() < 0.001);
    // The kernel's account of the CPU time fills the gap.
    let filled = preempted_scan("16ms cpu0 10/10 cpu_time used_ns=8ms since_switch=yes\n");
    assert_eq!(times(&filled), (2, 0, 2, 9, 3));
    assert!(!missing(&filled), "{:?}", filled.coverage);
}

#[test]
fn a_main_thread_that_publishes_beside_a_spinning_one_is_a_vertex() {
    // rclpy's main thread triggers guards when it makes nodes and endpoints, and adds them to the
    // executor. Thread 11 spins. The node may also be made by another thread than the main one.
    for maker in [10, 13] {
        let mut parts = vec![format!(
            "
1ms cpu0 10/10 process command=/opt/app.py distribution=kilted rmw=x
1ms cpu0 10/{maker} node_init node=0x1 rmw=0x1001 name=driver namespace=/
1ms cpu0 10/{maker} publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/scan
1ms cpu0 10/{maker} guard_trigger guard=0x8
1ms cpu0 10/{maker} subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/scan
1ms cpu0 10/{maker} guard_trigger guard=0x8
2ms cpu0 10/{maker} guard_trigger guard=0x9
3ms cpu1 10/11 wait_set_init
3ms cpu1 10/11 wait
3ms cpu1 10/11 switch_out state=1
4ms cpu0 10/{maker} switch_out state=1
"
        )];
        for i in 1..=20 {
            let t = 100_000 * i;
            let p = t + 2_000;
            parts.push(format!(
                "{t}us cpu0 10/{maker} switch_in
{p}us cpu0 10/{maker} publish rmw=0x1010 source_ns={p}us
{}us cpu0 10/{maker} switch_out state=1
{}us cpu1 10/11 switch_in
{}us cpu1 10/11 take rmw=0x1020 source_ns={p}us
{}us cpu1 10/11 guard_trigger guard=0x9
{}us cpu1 10/11 guard_trigger guard=0x9
{}us cpu1 10/11 wait_set_init
{}us cpu1 10/11 wait
{}us cpu1 10/11 switch_out state=1
",
                p + 100,
                p + 150,
                p + 200,
                p + 210,
                p + 1_210,
                p + 1_300,
                p + 1_310,
                p + 1_320,
            ));
        }
        let m = model(&sorted(&parts));
        let (main, scan) = ("/driver:thread(/scan)", "/driver:subscription(/scan)");
        assert_eq!(ids(&m), [scan, main], "{maker}");
        let exec = &callback(&m, main).figures.exec_ns;
        assert_eq!((exec.count(), exec.max()), (20, 2_100_000));
        assert_eq!(edge(&m, main, scan).taken, 20);
        assert_eq!(chains(&m), [format!("{main} > {scan}")]);
    }
}
