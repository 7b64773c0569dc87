//! Names of nodes, which are the same in every run.

use super::*;
use onbeat_document::merge::merge;

fn program(t: u64, pid: u32, program: &str, node: &str, period: u64) -> String {
    let line = |t: u64, what: &str| format!("{t}ms cpu0 {pid}/{pid} {what}\n");
    [
        line(
            t,
            &format!("process command=/opt/lib/{program} distribution=x rmw=y"),
        ),
        line(t, &format!("node_init node=0x1 rmw=0x1001 name={node}")),
        line(t, "clock_kind clock=0x7 time=1"),
        line(t, "timer_clock timer=0x50 clock=0x7"),
        line(t, &format!("timer_init timer=0x50 period_ns={period}ms")),
        line(t + period, "timer_call timer=0x50"),
        line(t + period + 1, "wait_set_init"),
    ]
    .concat()
}

fn of(id: &str, trace: &str, rules: &[&str]) -> Model {
    let mut options = SynthOptions::new(run(id, DEFAULT_MODE));
    options.names = rules.iter().map(|r| r.parse().unwrap()).collect();
    model_of(trace, options)
}

#[test]
fn programs_distinguish_nodes_of_equal_name_in_any_order_of_starts() {
    let first = [
        program(1, 10, "left", "arm", 20),
        program(50, 20, "right", "arm", 30),
    ];
    let second = [
        program(1, 30, "right", "arm", 30),
        program(50, 40, "left", "arm", 20),
    ];
    for trace in [first, second] {
        let m = model(&trace.concat());
        assert_eq!(ids(&m), ["/arm#left:timer(20ms)", "/arm#right:timer(30ms)"]);
    }
    // Nodes of one program are numbered in the order in which they appear.
    let twins = [
        program(1, 10, "arm", "arm", 20),
        program(50, 20, "arm", "arm", 30),
    ];
    assert_eq!(
        ids(&model(&twins.concat())),
        ["/arm#2:timer(30ms)", "/arm:timer(20ms)"]
    );
    // A node that starts again is the same.
    let again = [
        program(1, 10, "left", "arm", 20),
        "40ms cpu0 10/10 exit\n".to_string(),
        program(50, 20, "left", "arm", 20),
    ];
    assert_eq!(ids(&model(&again.concat())), ["/arm:timer(20ms)"]);
}

#[test]
fn parts_of_a_name_that_differ_from_run_to_run_are_left_out() {
    let a = program(1, 4711, "nav", "transform_listener_impl_5581c7a3b2d0", 20);
    let b = program(1, 4712, "nav", "transform_listener_impl_55e0d2c01a40", 20);
    let (a, b) = (of("a", &a, &[]), of("b", &b, &[]));
    let said = "The node /transform_listener_impl has something in its own name";
    assert!(
        a.assumptions.iter().any(|s| s.starts_with(said)),
        "{:?}",
        a.assumptions
    );
    let both = merge(vec![a, b]).unwrap();
    assert_eq!(ids(&both), ["/transform_listener_impl:timer(20ms)"]);
    assert_eq!(both.callbacks[0].figures.exec_ns.count(), 2);
    let by_pid = program(1, 4711, "nav", "planner_4711", 20);
    assert_eq!(ids(&model(&by_pid)), ["/planner:timer(20ms)"]);
}

#[test]
fn the_model_keeps_the_users_name_rules_and_merging_requires_the_same_rules() {
    let worker = |pid, n: u32| program(1, pid, "pool", &format!("worker_{n}"), 20);
    let rule = "/worker_[0-9]+=/worker";
    let a = of("a", &worker(10, 1), &[rule]);
    assert_eq!(ids(&a), ["/worker:timer(20ms)"]);
    let said = format!("Names of nodes are rewritten by the rule '{rule}'");
    assert!(
        a.assumptions.iter().any(|s| s.starts_with(&said)),
        "{:?}",
        a.assumptions
    );
    let b = of("b", &worker(10, 2), &[rule]);
    assert_eq!(ids(&merge(vec![a.clone(), b]).unwrap()).len(), 1);
    let other = of("c", &worker(10, 3), &[]);
    assert_eq!(
        ids(&other),
        ["/worker_3:timer(20ms)"],
        "a counter may be a name"
    );
    let refused = merge(vec![a, other]).unwrap_err().to_string();
    assert!(refused.contains("--normalise"), "{refused}");
}

/// How many objects of one process or name the test creates.
const MANY: u64 = 1000;

fn calls(pid: u64, start: &str) -> String {
    let call = |i: u64| {
        let callback = 0x100_008 + 64 * i;
        let start = start.replace("ADDRESS", &format!("{:#x}", 0x100_000 + 64 * i));
        let start = start.replace("STAMP", &i.to_string());
        format!(
            "2ms cpu0 {pid}/{pid} {start}\n\
             2ms cpu0 {pid}/{pid} callback_start callback={callback:#x}\n\
             2ms cpu0 {pid}/{pid} callback_end callback={callback:#x}\n"
        )
    };
    (0..MANY).map(call).collect()
}

#[test]
fn any_number_of_callbacks_nodes_and_topics_of_a_process_get_their_own_ids() {
    let timers = |pid: u64, nodes: bool| {
        let mut trace = String::new();
        for address in (0..MANY).map(|i| 0x100_000 + 64 * i) {
            let node = if nodes { address + 1 } else { 1 };
            let lines = [
                format!("node_init node={node:#x} rmw=0x2 name=n"),
                format!("timer_init timer={address:#x} period_ns=10ms"),
                format!(
                    "timer_callback timer={address:#x} callback={:#x}",
                    address + 8
                ),
                format!("timer_node timer={address:#x} node={node:#x}"),
            ];
            trace += &lines
                .map(|line| format!("1ms cpu0 {pid}/{pid} {line}\n"))
                .concat();
        }
        trace + &calls(pid, "timer_call timer=ADDRESS")
    };
    let subscriptions = |same: bool| {
        let mut trace = "1ms cpu0 10/10 node_init node=0x1 rmw=0x2 name=n\n".to_string();
        for i in 0..MANY {
            let (address, topic) = (0x100_000 + 64 * i, if same { 0 } else { i });
            let (object, callback) = (address + 4, address + 8);
            let lines = [
                format!("subscription_init subscription={address:#x} node=0x1 rmw={address:#x} topic=/t{topic}"),
                format!("subscription_object subscription={address:#x} object={object:#x}"),
                format!("subscription_callback object={object:#x} callback={callback:#x}"),
            ];
            trace += &lines
                .map(|line| format!("1ms cpu0 10/10 {line}\n"))
                .concat();
        }
        trace + &calls(10, "take rmw=ADDRESS source_ns=STAMP")
    };
    let restarted = timers(10, false) + "3ms cpu0 10/10 exit\n" + &timers(11, false);
    for (trace, last, executions) in [
        (timers(10, false), "/n:timer(10ms)#1000", 1),
        (restarted, "/n:timer(10ms)#1000", 2),
        (timers(10, true), "/n#1000:timer(10ms)", 1),
        (subscriptions(true), "/n:subscription(/t0)#1000", 1),
        (subscriptions(false), "/n:subscription(/t999)", 1),
    ] {
        let model = model(&trace);
        assert_eq!(model.callbacks.len() as u64, MANY, "{last}");
        let callback = model.callbacks.iter().find(|c| c.id == last);
        let callback = callback.unwrap_or_else(|| panic!("{last} is missing"));
        assert_eq!(callback.figures.exec_ns.count(), executions, "{last}");
    }
}
