//! Actions: rclpy takes all that is ready on one side of an action at once, and handles it in one
//! execution. The order of calls is that of a recording of rclpy's own action server and client.

use super::*;

/// Process 10, one thread of rclpy: `/walker` has the server of `/walk`, `/asker` its client and a
/// timer (0x50) that sends goals.
const WALK: &str = "
1ms cpu0 10/10 process command=/opt/walk distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=walker namespace=/
1ms cpu0 10/10 node_init node=0x2 rmw=0x1002 name=asker namespace=/
1ms cpu0 10/10 service_init service=0x30 node=0x1 rmw=0x1030 name=/walk/_action/send_goal
1ms cpu0 10/10 service_init service=0x31 node=0x1 rmw=0x1031 name=/walk/_action/cancel_goal
1ms cpu0 10/10 service_init service=0x32 node=0x1 rmw=0x1032 name=/walk/_action/get_result
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/walk/_action/feedback
1ms cpu0 10/10 publisher_init publisher=0x11 node=0x1 rmw=0x1011 topic=/walk/_action/status
1ms cpu0 10/10 client_init client=0x40 node=0x2 rmw=0x1040 name=/walk/_action/send_goal
1ms cpu0 10/10 client_gid rmw=0x1040 gid=0a
1ms cpu0 10/10 client_init client=0x41 node=0x2 rmw=0x1041 name=/walk/_action/cancel_goal
1ms cpu0 10/10 client_init client=0x42 node=0x2 rmw=0x1042 name=/walk/_action/get_result
1ms cpu0 10/10 client_gid rmw=0x1042 gid=0b
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x2 rmw=0x1020 topic=/walk/_action/feedback
1ms cpu0 10/10 subscription_init subscription=0x21 node=0x2 rmw=0x1021 topic=/walk/_action/status
1ms cpu0 10/10 clock_init clock=0x90
1ms cpu0 10/10 timer_clock timer=0x50 clock=0x90
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
";

/// One goal from `t` us on, as number `n`: accepted in 1 ms, executed in 4 ms with one piece of
/// feedback. The client takes the answer, the feedback and the state at once: the feedback's
/// callback runs 1 ms, then the code that waits for the answer 1 ms, which asks for the result.
fn goal(t: u64, n: u64) -> String {
    let at = |us: u64, event: &str| format!("{}us cpu0 10/10 {event}\n", t + us);
    let mut s = String::new();
    let mut push = |us: u64, event: &str| s += &at(us, event);
    push(0, "timer_call timer=0x50");
    push(100, "guard_trigger guard=0x9");
    push(300, &format!("request_send rmw=0x1040 sequence={n}"));
    push(310, "guard_trigger guard=0x9");
    push(400, "wait_set_init");
    push(410, "wait");
    push(
        500,
        &format!("request_take rmw=0x1030 gid=0a sequence={n} taken=yes"),
    );
    push(520, "guard_trigger guard=0x9");
    push(
        1_520,
        &format!(
            "response_send rmw=0x1030 gid=0a sequence={n} source_ns={}us",
            t + 1_520
        ),
    );
    push(
        1_600,
        &format!("publish rmw=0x1011 source_ns={}us", t + 1_600),
    );
    push(1_620, "guard_trigger guard=0x9");
    push(1_630, "guard_trigger guard=0x9");
    push(
        3_700,
        &format!("publish rmw=0x1010 source_ns={}us", t + 3_700),
    );
    push(
        5_700,
        &format!("publish rmw=0x1011 source_ns={}us", t + 5_700),
    );
    push(5_720, "guard_trigger guard=0xa");
    push(6_000, "wait_set_init");
    push(6_010, "wait");
    push(
        6_100,
        &format!(
            "response_take rmw=0x1040 sequence={n} source_ns={}us taken=yes",
            t + 1_520
        ),
    );
    push(6_120, &format!("take rmw=0x1020 source_ns={}us", t + 3_700));
    push(6_140, &format!("take rmw=0x1021 source_ns={}us", t + 5_700));
    push(6_200, "guard_trigger guard=0x9");
    push(6_210, "guard_trigger guard=0x9");
    push(6_220, "guard_trigger guard=0x9");
    push(7_220, "guard_trigger guard=0x9");
    push(8_220, &format!("request_send rmw=0x1042 sequence={n}"));
    push(8_300, "wait_set_init");
    push(8_310, "wait");
    push(
        8_400,
        &format!("request_take rmw=0x1032 gid=0b sequence={n} taken=yes"),
    );
    push(8_420, "guard_trigger guard=0x9");
    push(8_520, "guard_trigger guard=0x9");
    push(
        8_600,
        &format!(
            "response_send rmw=0x1032 gid=0b sequence={n} source_ns={}us",
            t + 8_600
        ),
    );
    push(8_700, "wait_set_init");
    push(8_710, "wait");
    s
}

/// The result of goal `n` comes: the client takes it with the state or alone; its callback runs 3 ms.
fn result(t: u64, n: u64, with_status: bool) -> String {
    let at = |us: u64, event: &str| format!("{}us cpu0 10/10 {event}\n", t + us);
    let mut s = at(
        8_800,
        &format!(
            "response_take rmw=0x1042 sequence={n} source_ns={}us taken=yes",
            t + 8_600
        ),
    );
    if with_status {
        s += &at(8_810, &format!("take rmw=0x1021 source_ns={}us", t + 1_600));
    }
    s + &at(8_820, "guard_trigger guard=0x9")
        + &at(8_830, "guard_trigger guard=0x9")
        + &at(8_840, "guard_trigger guard=0x9")
        + &at(11_840, "wait_set_init")
        + &at(11_850, "wait")
}

fn walk(with_status: bool) -> Model {
    let mut s = WALK.to_string();
    for n in 1..=20 {
        s += &goal(n * 100_000, n);
        s += &result(n * 100_000, n, with_status);
    }
    model(&s)
}

const GOALS: &str = "/asker:client(/walk/_action/send_goal)";
const RESULTS: &str = "/asker:client(/walk/_action/get_result)";
const FEEDBACK: &str = "/asker:subscription(/walk/_action/feedback)";
const STATUS: &str = "/asker:subscription(/walk/_action/status)";

#[test]
fn all_that_rclpy_takes_of_an_action_at_once_is_seen() {
    let m = walk(false);
    let exec = |id: &str| {
        let exec = &callback(&m, id).figures.exec_ns;
        (exec.count(), exec.min() / 100_000, exec.max() / 100_000)
    };
    // The feedback's callback runs where all is taken, the code that waits later.
    assert_eq!(exec(FEEDBACK), (20, 10, 10));
    assert_eq!(exec(GOALS), (20, 10, 10));
    // Less what the executor usually takes until its next wait.
    assert_eq!(exec(RESULTS), (20, 28, 28));
    // The code that got the goal's answer asks for the result.
    let asked = edge(
        &m,
        GOALS,
        "/walker:service(/walk/_action/get_result)@/asker",
    );
    assert_eq!((asked.taken, asked.lost), (20, 0));
    let answered = edge(&m, "/walker:service(/walk/_action/send_goal)@/asker", GOALS);
    assert_eq!((answered.taken, answered.lost), (20, 0));
    // The state was read in the feedback's execution: counted, without times of its own.
    assert_eq!(callback(&m, STATUS).figures.exec_ns.count(), 0);
    let said = format!("{STATUS} ran 20 times together");
    assert!(
        m.coverage.iter().any(|c| c.starts_with(&said)),
        "{:?}",
        m.coverage
    );
}

#[test]
fn results_that_rclpy_takes_with_the_state_are_seen() {
    let m = walk(true);
    let exec = &callback(&m, RESULTS).figures.exec_ns;
    assert_eq!(exec.count(), 20);
    assert!(
        (2_800_000..=3_000_000).contains(&exec.min()),
        "{}",
        exec.min()
    );
    let edge = edge(
        &m,
        "/walker:service(/walk/_action/get_result)@/asker",
        RESULTS,
    );
    assert_eq!((edge.taken, edge.lost), (20, 0));
}

#[test]
fn requests_of_an_action_that_are_taken_at_once_are_both_served() {
    let mut s = WALK.to_string();
    for n in 1..=10 {
        let t = n * 100_000;
        let at = |us: u64, event: &str| format!("{}us cpu0 10/10 {event}\n", t + us);
        s += &at(0, &format!("request_send rmw=0x1040 sequence={n}"));
        s += &at(10, &format!("request_send rmw=0x1042 sequence={n}"));
        s += &at(20, "wait_set_init");
        s += &at(30, "wait");
        s += &at(
            100,
            &format!("request_take rmw=0x1030 gid=0a sequence={n} taken=yes"),
        );
        s += &at(
            110,
            &format!("request_take rmw=0x1032 gid=0b sequence={n} taken=yes"),
        );
        s += &at(200, "guard_trigger guard=0x9");
        s += &at(
            1_200,
            &format!(
                "response_send rmw=0x1030 gid=0a sequence={n} source_ns={}us",
                t + 1_200
            ),
        );
        s += &at(
            1_300,
            &format!(
                "response_send rmw=0x1032 gid=0b sequence={n} source_ns={}us",
                t + 1_300
            ),
        );
        s += &at(1_400, "guard_trigger guard=0x9");
        s += &at(1_500, "wait_set_init");
        s += &at(1_510, "wait");
    }
    let m = model(&s);
    let services = m
        .callbacks
        .iter()
        .filter(|c| c.kind == CallbackType::Service);
    let all: Vec<_> = services
        .map(|c| (c.id.as_str(), c.figures.exec_ns.count()))
        .collect();
    // The result's request was handled in the goal's execution.
    let (result, goal) = (
        "/walker:service(/walk/_action/get_result)",
        "/walker:service(/walk/_action/send_goal)",
    );
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].0.starts_with(result) && all[0].1 == 0, "{all:?}");
    assert!(all[1].0.starts_with(goal) && all[1].1 == 10, "{all:?}");
}

#[test]
fn an_action_is_one_entity_with_the_time_from_goal_to_result() {
    let m = walk(true);
    let [action] = m.actions.as_slice() else {
        panic!("{:?}", m.actions);
    };
    assert_eq!(action.name, "/walk");
    assert_eq!(
        (&action.servers[..], &action.clients[..]),
        (&["/walker".to_string()][..], &["/asker".to_string()][..])
    );
    let own: Vec<&str> = ids(&m)
        .into_iter()
        .filter(|id| id.contains("_action"))
        .collect();
    assert_eq!(action.callbacks, own);
    let f = &action.figures;
    assert_eq!((f.goals, f.served, f.cancels), (20, 20, 0));
    assert_eq!((f.feedback, f.results, f.untimed), (20, 20, 0));
    // Sent at 300 us, its result taken at 8800 us.
    let time = &f.goal_to_result_ns;
    assert_eq!(
        (time.count(), time.min(), time.max()),
        (20, 8_500_000, 8_500_000)
    );
}

#[test]
fn results_belong_to_the_goal_whose_answer_asked_for_them() {
    // The second goal is sent before the first one's result comes; both are told apart.
    let sent = |t: u64, n: u64| {
        format!("{t}us cpu0 10/10 wait_set_init\n{t}us cpu0 10/10 request_send rmw=0x1040 sequence={n}\n")
    };
    let answered = |t: u64, n: u64| {
        format!(
            "{t}us cpu0 10/10 response_take rmw=0x1040 sequence={n} source_ns=1us taken=yes
{t}us cpu0 10/10 guard_trigger guard=0x9
{t}us cpu0 10/10 guard_trigger guard=0x9
{}us cpu0 10/10 request_send rmw=0x1042 sequence={n}
{}us cpu0 10/10 wait_set_init
",
            t + 100,
            t + 200
        )
    };
    let result = |t: u64, n: u64| {
        format!(
            "{t}us cpu0 10/10 response_take rmw=0x1042 sequence={n} source_ns=1us taken=yes
{t}us cpu0 10/10 guard_trigger guard=0x9
{t}us cpu0 10/10 guard_trigger guard=0x9
{}us cpu0 10/10 wait_set_init
",
            t + 200
        )
    };
    let trace = [
        WALK,
        &sent(10_000, 1),
        &sent(11_000, 2),
        &answered(20_000, 2),
        &answered(21_000, 1),
        &result(30_000, 1),
        &result(40_000, 2),
    ]
    .concat();
    let m = model(&trace);
    let f = &m.actions[0].figures;
    assert_eq!((f.goals, f.results, f.untimed), (2, 2, 0));
    let time = &f.goal_to_result_ns;
    assert_eq!((time.min(), time.max()), (20_000_000, 29_000_000));
}

#[test]
fn a_callback_after_what_an_action_read_is_not_the_actions() {
    // rclcpp's executor of events, attached late: a timer's callback (0x60) starts after the
    // state was read and the executor slept.
    let mut s = "
1ms cpu0 10/10 endpoint_found endpoint=subscription rcl=0x21 rmw=0x1021 name=/walk/_action/status
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/out
2ms cpu0 10/10 callback_start callback=0x69\n2ms cpu0 10/10 callback_end callback=0x69
3ms cpu0 10/10 switch_out state=1
"
    .to_string();
    for i in 1..=10 {
        let t = i * 10_000;
        let at = |us: u64, event: &str| format!("{}us cpu0 10/10 {event}\n", t + us);
        s += &at(0, "wake waker_tid=1");
        s += &at(10, "switch_in");
        s += &at(20, &format!("take rmw=0x1021 source_ns={t}us taken=yes"));
        s += &at(30, "switch_out state=1");
        s += &format!("{}us cpu1 10/12 timer_call timer=0x50\n", t + 2_000);
        s += &at(2_010, "wake waker_tid=12");
        s += &at(2_020, "switch_in");
        s += &at(2_030, "callback_start callback=0x60");
        s += &at(3_030, "publish rmw=0x1010 source_ns=1us");
        s += &at(4_030, "callback_end callback=0x60");
        s += &at(4_040, "switch_out state=1");
    }
    let m = model(&s);
    let status = m
        .callbacks
        .iter()
        .find(|c| c.kind == CallbackType::Subscription)
        .unwrap();
    assert_eq!(status.figures.exec_ns.max(), 10_000, "{:?}", ids(&m));
    let timer = m
        .callbacks
        .iter()
        .find(|c| c.kind == CallbackType::Timer)
        .unwrap();
    assert_eq!(
        (timer.figures.exec_ns.count(), timer.figures.exec_ns.min()),
        (8, 2_000_000)
    );
}

#[test]
fn rclcpp_accepts_a_goal_after_its_response() {
    let mut s = WALK.to_string();
    for n in 1..=10 {
        let t = n * 100_000;
        let at = |us: u64, event: &str| format!("{}us cpu0 10/10 {event}\n", t + us);
        s += &at(0, "executor_next_ready");
        s += &at(
            10,
            &format!("request_take rmw=0x1030 gid=0a sequence={n} taken=yes"),
        );
        s += &at(
            410,
            &format!(
                "response_send rmw=0x1030 gid=0a sequence={n} source_ns={}us",
                t + 410
            ),
        );
        s += &at(450, &format!("publish rmw=0x1011 source_ns={}us", t + 450));
        s += &at(910, "executor_next_ready");
        s += &at(920, "wait");
    }
    let m = model(&s);
    let goal = &m.callbacks[0];
    assert_eq!(goal.input, "/walk/_action/send_goal");
    let exec = &goal.figures.exec_ns;
    assert_eq!(
        (exec.count(), exec.min(), exec.max()),
        (10, 900_000, 900_000)
    );
    assert!(goal.outputs.contains(&"/walk/_action/status".to_string()));
}
