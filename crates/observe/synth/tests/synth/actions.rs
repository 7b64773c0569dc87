//! Actions: rclpy takes all ready endpoints on one side of an action at once and handles them in
//! one execution. The calls come in the order of a recording of rclpy's own action server and
//! client.

use super::*;

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

/// Returns the events of goal number `n`, which begins at `t` us. The server accepts the goal in 1
/// ms and executes it in 4 ms with one feedback message.
///
/// The client takes the answer, the feedback and the state at once. The feedback's callback runs 1
/// ms. Then the code that waited for the answer runs 1 ms and asks for the result.
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

/// Returns the events of goal `n`'s result, which comes at `t` us. The client takes it alone or
/// together with the state, and its callback runs 3 ms.
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
const EXECUTION: &str = "/walker:task(/walk)";
const SERVER: &str = "/walker:service(/walk/_action/send_goal)@/asker";
const FEEDBACK: &str = "/asker:subscription(/walk/_action/feedback)";
const STATUS: &str = "/asker:subscription(/walk/_action/status)";

#[test]
fn all_inputs_of_an_action_that_rclpy_takes_at_once_are_followed() {
    let m = walk(false);
    let exec = |id: &str| {
        let exec = &callback(&m, id).figures.exec_ns;
        (exec.count(), exec.min() / 100_000, exec.max() / 100_000)
    };
    // The feedback's callback runs where all is taken, the waiting code later.
    assert_eq!(exec(FEEDBACK), (20, 10, 10));
    assert_eq!(exec(GOALS), (20, 10, 10));
    // The time that the executor usually takes until its next wait is subtracted.
    assert_eq!(exec(RESULTS), (20, 28, 29));
    // The code that got the goal's answer asks for the result.
    let asked = edge(
        &m,
        GOALS,
        "/walker:service(/walk/_action/get_result)@/asker",
    );
    assert_eq!((asked.taken, asked.lost), (20, 0));
    let answered = edge(&m, "/walker:service(/walk/_action/send_goal)@/asker", GOALS);
    assert_eq!((answered.taken, answered.lost), (20, 0));
    // The state was read in the feedback's execution. It is counted, without times of its own.
    assert_eq!(callback(&m, STATUS).figures.exec_ns.count(), 0);
    let said = format!("{STATUS} ran 20 times together");
    assert!(
        m.coverage.iter().any(|c| c.starts_with(&said)),
        "{:?}",
        m.coverage
    );
}

#[test]
fn results_that_rclpy_takes_together_with_the_state_are_followed() {
    let m = walk(true);
    let exec = &callback(&m, RESULTS).figures.exec_ns;
    assert_eq!(exec.count(), 20);
    assert!(
        (2_800_000..=3_000_000).contains(&exec.min()),
        "{}",
        exec.min()
    );
    // The service only asks for the result. The execution of the goal makes it.
    let edge = edge(&m, EXECUTION, RESULTS);
    assert_eq!((edge.taken, edge.lost), (20, 0));
}

#[test]
fn two_requests_of_an_action_that_are_taken_at_once_both_have_executions() {
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
    // The request for the result was handled in the goal's execution.
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
        .filter(|id| id.contains("_action") || id.contains("task"))
        .collect();
    assert_eq!(action.callbacks, own);
    let f = &action.figures;
    assert_eq!((f.goals, f.served, f.cancels), (20, 20, 0));
    assert_eq!((f.feedback, f.results, f.untimed), (20, 20, 0));
    // The goal is sent at 300 us, and its result is taken at 8800 us.
    let time = &f.goal_to_result_ns;
    assert_eq!(
        (time.count(), time.min(), time.max()),
        (20, 8_500_000, 8_500_000)
    );
}

#[test]
fn a_result_belongs_to_the_goal_for_which_it_was_requested() {
    // The second goal is sent before the first one's result comes.
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
fn a_callback_after_an_actions_read_does_not_belong_to_the_action() {
    // rclcpp's executor of events, attached late: a timer's callback (0x60) starts after the state
    // was read and the executor slept.
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

/// The events of one goal on a pool of rclpy. Each line is an event: microseconds, thread, event,
/// with `{n}` for the goal's number and `{+US}` for a time.
///
/// Thread 10 waits for work, and 11 to 13 are workers. The server accepts the goal on 11, which
/// takes 3 ms. The client takes the answer on 12, which handles it in 0.1 ms. Thread 12 then
/// executes the goal, with no event between: it runs 2 ms, publishes feedback, runs 3 ms, sleeps
/// and publishes its last state.
///
/// Meanwhile 11 runs the code that waited for the answer, for 1 ms, and takes feedback for 2 ms.
/// Thread 13 sends the result when it is there.
const POOLED: &str = "\
0 13 switch_in
10 13 timer_call timer=0x50
20 13 guard_trigger guard=0x9
900 13 request_send rmw=0x1040 sequence={n}
1020 13 guard_trigger guard=0x9
1050 13 switch_out state=1
1500 11 switch_in
1600 11 request_take rmw=0x1030 gid=0a sequence={n} taken=yes
1620 11 guard_trigger guard=0x9
3600 11 response_send rmw=0x1030 gid=0a sequence={n} source_ns={+3600}us
4600 11 publish rmw=0x1011 source_ns={+4600}us
4610 11 guard_trigger guard=0x9
4620 11 guard_trigger guard=0x9
4700 11 switch_out state=1
4700 12 switch_in
4800 12 response_take rmw=0x1040 sequence={n} source_ns={+3600}us taken=yes
4820 12 guard_trigger guard=0x9
4880 12 guard_trigger guard=0x9
4890 12 guard_trigger guard=0x9
4900 12 guard_trigger guard=0x9
5500 11 switch_in
6500 11 request_send rmw=0x1042 sequence={n}
6600 11 switch_out state=1
6900 12 publish rmw=0x1010 source_ns={+6900}us
7000 12 switch_out state=1
7100 11 switch_in
7200 11 take rmw=0x1020 source_ns={+6900}us
7220 11 guard_trigger guard=0x9
9220 11 guard_trigger guard=0x9
9300 11 switch_out state=1
9400 13 switch_in
9500 13 request_take rmw=0x1032 gid=0b sequence={n} taken=yes
9520 13 guard_trigger guard=0x9
9620 13 guard_trigger guard=0x9
9700 13 switch_out state=1
12000 12 switch_in
14900 12 publish rmw=0x1011 source_ns={+14900}us
14920 12 guard_trigger guard=0xa
15000 12 guard_trigger guard=0x9
15050 12 switch_out state=1
15100 13 switch_in
15200 13 response_send rmw=0x1032 gid=0b sequence={n} source_ns={+15200}us
15300 13 switch_out state=1
15400 11 switch_in
15500 11 response_take rmw=0x1042 sequence={n} source_ns={+15200}us taken=yes
15520 11 guard_trigger guard=0x9
15530 11 guard_trigger guard=0x9
15540 11 guard_trigger guard=0x9
15600 11 switch_out state=1
";

fn pooled(t: u64, n: u64) -> Vec<String> {
    let line = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let (us, tid) = (number(words.next()), number(words.next()));
        let event = words.next().expect("an event");
        let mut event = event.replace("{n}", &n.to_string());
        if let Some((before, rest)) = event.split_once("{+") {
            let (stamp, after) = rest.split_once('}').expect("a time");
            event = format!("{before}{}{after}", t + number(Some(stamp)));
        }
        format!("{}us cpu{} 10/{tid} {event}\n", t + us, tid - 10)
    };
    POOLED.lines().map(line).collect()
}

fn number(word: Option<&str>) -> u64 {
    word.and_then(|w| w.parse().ok()).expect("a number")
}

fn pool(rounds: u64) -> Model {
    let mut s = WALK.to_string();
    s += "2ms cpu0 10/10 wait_set_init\n2ms cpu0 10/10 wait\n";
    for tid in 11..=13 {
        s += &format!("3ms cpu1 10/{tid} switch_in\n3ms cpu1 10/{tid} switch_out state=1\n");
    }
    for n in 1..=rounds {
        s += &pooled(n * 100_000, n).concat();
    }
    model(&s)
}

#[test]
fn on_a_pool_of_threads_the_execution_of_a_goal_belongs_only_to_its_task() {
    let m = pool(10);
    let exec = |id: &str| {
        let exec = &callback(&m, id).figures.exec_ns;
        (exec.count(), exec.min() / 10_000, exec.max() / 10_000)
    };
    // The task runs from the end of the callback before it to the trigger after its end. Its sleep
    // does not count.
    assert_eq!(exec(EXECUTION), (10, 510, 510));
    assert_eq!(callback(&m, EXECUTION).figures.blocked_ns.max(), 5_000_000);
    assert_eq!(exec(SERVER), (10, 300, 300));
    // The code that waited for the answer, on another thread, and nothing of the goal.
    assert_eq!(exec(GOALS), (10, 110, 110));
    assert_eq!(exec(FEEDBACK), (10, 200, 200));
    assert_eq!(
        edges(&m),
        [
            format!("{GOALS} -> /walker:service(/walk/_action/get_result)@/asker /walk/_action/get_result/request"),
            format!("/asker:timer(100ms) -> {SERVER} /walk/_action/send_goal/request"),
            format!("{SERVER} -> {GOALS} /walk/_action/send_goal/response"),
            format!("{SERVER} -> {EXECUTION} (memory)"),
            format!("{EXECUTION} -> {RESULTS} /walk/_action/get_result/response"),
            format!("{EXECUTION} -> {FEEDBACK} /walk/_action/feedback"),
        ]
    );
    assert!(m.junctions.is_empty(), "{:?}", m.junctions);
    // The data goes from the goal to its execution to its result.
    let way = ["/asker:timer(100ms)", SERVER, EXECUTION, RESULTS];
    let chain = m.chains.iter().find(|c| c.callbacks == way);
    assert_eq!(chain.map(|c| c.figures.executions), Some(10));
    let outside = |c: &&String| c.contains("outside of callbacks");
    assert_eq!(m.coverage.iter().find(outside), None);
    let [action] = m.actions.as_slice() else {
        panic!("{:?}", m.actions);
    };
    assert!(action.callbacks.iter().any(|c| c == EXECUTION));
}

#[test]
fn a_goal_that_no_callback_accepted_begins_no_execution() {
    // The recorder attaches in the middle of the goal. The publisher is unknown, and no waiting
    // code publishes.
    let mut s = WALK.to_string();
    for line in pooled(100_000, 1) {
        if !line.contains("request_take rmw=0x1030") {
            s += &line;
        }
    }
    let m = model(&s);
    assert!(!ids(&m).contains(&EXECUTION), "{:?}", ids(&m));
    let outside = |c: &&String| c.starts_with("/walk/_action/feedback was published outside");
    assert!(m.coverage.iter().any(|c| outside(&c)), "{:?}", m.coverage);
}

#[test]
fn the_model_does_not_guess_which_of_two_goals_is_executed() {
    // Both goals are accepted before the first is executed. This gives two executions, and no data
    // is followed into them.
    let mut s = WALK.to_string();
    s += "2ms cpu0 10/10 wait_set_init\n2ms cpu0 10/10 wait\n";
    let (first, second) = (pooled(100_000, 1), pooled(106_000, 2));
    let accepts = |line: &&String| line.contains(" 10/11 ") || line.contains(" 10/13 ");
    let early: Vec<&String> = first[..13]
        .iter()
        .chain(second[..13].iter())
        .filter(accepts)
        .collect();
    s += &early.into_iter().map(String::as_str).collect::<String>();
    for t in [200_000, 300_000] {
        let run = |line: &&String| line.contains("rmw=0x1010") || line.contains("rmw=0x1011");
        let lines = pooled(t, 3);
        let of_task = lines[13..].iter().filter(run);
        s += &of_task.map(String::as_str).collect::<String>();
    }
    let m = model(&s);
    assert_eq!(callback(&m, EXECUTION).figures.exec_ns.count(), 2);
    assert!(m.edges.iter().all(|e| e.to != EXECUTION), "{:?}", edges(&m));
    let said = |c: &&String| {
        c.contains("which goal of /walk was executed, or to which goal a result belongs. This happened 2 times")
    };
    assert!(m.coverage.iter().any(|c| said(&c)), "{:?}", m.coverage);
}

fn with_witness() -> String {
    let mut s = WALK.to_string()
        + "1ms cpu0 10/10 publisher_init publisher=0x12 node=0x2 rmw=0x1012 topic=/done
1ms cpu1 20/20 node_init node=0x3 rmw=0x1003 name=witness namespace=/
1ms cpu1 20/20 subscription_init subscription=0x22 node=0x3 rmw=0x1022 topic=/done
2ms cpu0 10/10 wait_set_init
2ms cpu0 10/10 wait
";
    for tid in 11..=13 {
        s += &format!("3ms cpu1 10/{tid} switch_in\n3ms cpu1 10/{tid} switch_out state=1\n");
    }
    s
}

fn response_on(t: u64, tid: u64, rmw: u64, n: u64) -> String {
    let at = |us: u64, event: &str| format!("{}us cpu{} 10/{tid} {event}\n", t + us, tid - 10);
    at(0, "switch_in")
        + &at(
            10,
            &format!("response_take rmw={rmw:#x} sequence={n} source_ns=1us taken=yes"),
        )
        + &at(20, "guard_trigger guard=0x9")
        + &at(30, "guard_trigger guard=0x9")
        + &at(40, "guard_trigger guard=0x9")
        + &at(50, "switch_out state=1")
}

fn code_on(t: u64, tid: u64, event: &str) -> String {
    let at = |us: u64, event: &str| format!("{}us cpu{} 10/{tid} {event}\n", t + us, tid - 10);
    at(0, "switch_in") + &at(4000, event) + &at(4100, "switch_out state=1")
}

fn done(t: u64, tid: u64) -> String {
    code_on(t, tid, &format!("publish rmw=0x1012 source_ns={t}us"))
        + &format!(
            "{0}us cpu3 20/20 take rmw=0x1022 source_ns={t}us\n{1}us cpu3 20/20 wait_set_init\n",
            t + 4200,
            t + 4300
        )
}

#[test]
fn the_model_does_not_guess_which_waiting_code_published() {
    // The answer to a goal and the result of another one have come, so the code of either may
    // publish.
    let mut s = with_witness();
    for n in 1..=5 {
        let t = n * 300_000;
        s += &response_on(t, 11, 0x1040, n);
        s += &response_on(t + 100, 12, 0x1042, n);
        s += &done(t + 200, 13);
    }
    s += "3000ms cpu0 10/10 wait_set_init\n";
    let m = model(&s);
    let found = edges(&m);
    assert!(!found.iter().any(|e| e.ends_with("/done")), "{found:?}");
    assert!(m.junctions.is_empty(), "{:?}", m.junctions);
    let witness = "/witness:subscription(/done)";
    assert_eq!(callback(&m, witness).figures.exec_ns.count(), 5);
    // The cause of `/done` is unknown, so no chain begins there.
    let chains: Vec<_> = m.chains.iter().map(|c| &c.callbacks).collect();
    assert!(
        !chains.iter().flat_map(|c| c.iter()).any(|c| c == witness),
        "{chains:?}"
    );
    let said = "/done was published 5 times by one of several callbacks that waited for responses";
    assert!(
        m.coverage.iter().any(|c| c.contains(said)),
        "{:?}",
        m.coverage
    );
    // Both ran, and the duration of each is unknown too.
    for client in [GOALS, RESULTS] {
        assert_eq!(callback(&m, client).figures.exec_ns.count(), 0, "{client}");
        let said = format!("{client} ran 5 times at times that no event shows");
        assert!(
            m.coverage.iter().any(|c| c.starts_with(&said)),
            "{:?}",
            m.coverage
        );
    }
}

#[test]
fn code_that_received_the_answer_to_a_goal_requests_the_result_of_that_goal() {
    // The result of one goal came before the answer to the next, whose code publishes first.
    let mut s = with_witness();
    for n in 1..=5 {
        let t = n * 300_000;
        s += &response_on(t, 11, 0x1042, n);
        s += &response_on(t + 100, 12, 0x1040, n + 1);
        s += &code_on(
            t + 200,
            13,
            &format!("request_send rmw=0x1042 sequence={}", n + 1),
        );
        s += &done(t + 10_000, 11);
    }
    s += "3000ms cpu0 10/10 wait_set_init\n";
    let m = model(&s);
    let outputs = |id: &str| callback(&m, id).outputs.clone();
    assert_eq!(outputs(GOALS), ["/walk/_action/get_result/request"]);
    assert_eq!(outputs(RESULTS), ["/done"]);
    for client in [GOALS, RESULTS] {
        let exec = &callback(&m, client).figures.exec_ns;
        // The execution lasts from the wake-up of the worker until it sleeps.
        assert_eq!((exec.count(), exec.min() / 100_000), (5, 41), "{client}");
    }
}

#[test]
fn on_a_pool_of_threads_waiting_code_that_publishes_nothing_has_no_times() {
    let mut s = with_witness();
    for n in 1..=5 {
        let t = n * 300_000;
        s += &response_on(t, 11, 0x1042, n);
        s += &format!("{}us cpu2 10/12 switch_in\n", t + 100);
        s += &format!("{}us cpu2 10/12 switch_out state=1\n", t + 4100);
    }
    s += "3000ms cpu0 10/10 wait_set_init\n";
    let m = model(&s);
    assert_eq!(callback(&m, RESULTS).figures.exec_ns.count(), 0);
    let said = format!("{RESULTS} ran 5 times at times that no event shows");
    assert!(
        m.coverage.iter().any(|c| c.starts_with(&said)),
        "{:?}",
        m.coverage
    );
}

#[test]
fn a_result_of_one_of_several_goals_has_no_edge_from_its_service() {
    // Two goals were executed. Their results are sent while the callback that was asked for them
    // still runs on another thread.
    let mut s = with_witness();
    let (first, second) = (pooled(100_000, 1), pooled(106_000, 2));
    let accepts = |line: &&String| line.contains(" 10/11 ") || line.contains(" 10/13 ");
    let early = first[..13].iter().chain(second[..13].iter());
    s += &early
        .filter(accepts)
        .map(String::as_str)
        .collect::<String>();
    for t in [200_000, 300_000] {
        let run = |line: &&String| line.contains("rmw=0x1010") || line.contains("rmw=0x1011");
        let lines = pooled(t, 3);
        let of_task = lines[13..].iter().filter(run);
        s += &of_task.map(String::as_str).collect::<String>();
    }
    for n in 1..=2 {
        let t = 300_000 + n * 100_000;
        let at = |us: u64, tid: u64, event: &str| format!("{}us cpu1 10/{tid} {event}\n", t + us);
        s += &at(
            0,
            13,
            &format!("request_take rmw=0x1032 gid=0b sequence={n} taken=yes"),
        );
        s += &at(10, 13, "guard_trigger guard=0x9");
        let source = format!("source_ns={}us", t + 50);
        s += &at(40, 12, "switch_in");
        s += &at(
            50,
            12,
            &format!("response_send rmw=0x1032 gid=0b sequence={n} {source}"),
        );
        s += &at(60, 12, "switch_out state=1");
        s += &at(100, 13, "guard_trigger guard=0x9");
        s += &at(110, 13, "switch_out state=1");
        s += &response_on(t + 200, 11, 0x1042, n);
        s += &done(t + 300, 12);
    }
    s += "1000ms cpu0 10/10 wait_set_init\n";
    let m = model(&s);
    let to_results = |e: &String| e.contains(&format!("-> {RESULTS}"));
    let found = edges(&m);
    assert!(!found.iter().any(to_results), "{found:?}");
    assert_eq!(callback(&m, RESULTS).figures.exec_ns.count(), 2);
    let begins = |c: &&Chain| c.callbacks[0] == RESULTS;
    assert_eq!(m.chains.iter().find(begins).map(|c| &c.callbacks), None);
}

#[test]
fn code_that_waits_for_a_response_is_one_execution() {
    // The thread that took the response sends a result later, as part of no callback.
    let mut s = with_witness();
    for n in 1..=5 {
        let t = n * 300_000;
        s += &response_on(t, 11, 0x1040, n);
        s += &code_on(
            t + 200,
            12,
            &format!("request_send rmw=0x1042 sequence={n}"),
        );
        let source = format!("source_ns={}us", t + 9_000);
        let result = format!("response_send rmw=0x1032 gid=0b sequence={n} {source}");
        s += &format!(
            "{0}us cpu1 10/11 switch_in\n{0}us cpu1 10/11 {result}\n",
            t + 9_000
        );
        s += &format!("{}us cpu1 10/11 switch_out state=1\n", t + 9_100);
    }
    s += "3000ms cpu0 10/10 wait_set_init\n";
    let m = model(&s);
    let exec = &callback(&m, GOALS).figures.exec_ns;
    assert_eq!((exec.count(), exec.min() / 100_000), (5, 41));
}

#[test]
fn a_second_request_for_a_result_begins_the_next_execution() {
    // One thread runs the code of two answers, one right after the other.
    let mut s = with_witness();
    for n in 1..=5 {
        let t = n * 300_000;
        s += &response_on(t, 11, 0x1040, 2 * n);
        s += &response_on(t + 100, 12, 0x1040, 2 * n + 1);
        let asks = |us: u64, sequence: u64| {
            format!(
                "{}us cpu3 10/13 request_send rmw=0x1042 sequence={sequence}\n",
                t + us
            )
        };
        s += &format!("{}us cpu3 10/13 switch_in\n", t + 200);
        s += &asks(4_200, 2 * n);
        s += &asks(8_200, 2 * n + 1);
        s += &format!("{}us cpu3 10/13 switch_out state=1\n", t + 8_300);
    }
    s += "3000ms cpu0 10/10 wait_set_init\n";
    let m = model(&s);
    let exec = &callback(&m, GOALS).figures.exec_ns;
    let times = (exec.count(), exec.min() / 100_000, exec.max() / 100_000);
    assert_eq!(times, (10, 40, 41));
}

#[test]
fn a_late_publication_is_not_counted_for_the_next_response() {
    // The code that got a result waits 800 ms for a CPU. Meanwhile the next goal is answered.
    let mut s = with_witness();
    s += &response_on(300_000, 11, 0x1042, 1);
    s += &response_on(1_090_000, 12, 0x1040, 2);
    s += &done(1_100_000, 13);
    s += "5000ms cpu0 10/10 wait_set_init\n";
    let m = model(&s);
    let found = edges(&m);
    assert!(!found.iter().any(|e| e.starts_with(GOALS)), "{found:?}");
    let said = "/done was published once by one of several callbacks that waited for responses";
    assert!(
        m.coverage.iter().any(|c| c.contains(said)),
        "{:?}",
        m.coverage
    );
}

#[test]
fn a_client_that_never_publishes_does_not_make_another_one_doubtful() {
    // The code of one client publishes nothing. The code of the other runs 250 ms later.
    let mut s = with_witness();
    for n in 1..=13 {
        let t = n * 2_500_000;
        s += &response_on(t, 11, 0x1040, n);
        if n > 3 {
            s += &response_on(t + 250_000, 12, 0x1042, n);
            s += &done(t + 251_000, 13);
        }
    }
    s += "60000ms cpu0 10/10 wait_set_init\n";
    let m = model(&s);
    let edge = edge(&m, RESULTS, "/witness:subscription(/done)");
    assert_eq!((edge.taken, edge.lost), (10, 0));
    assert!(edges(&m).iter().all(|e| !e.starts_with(GOALS)));
}
