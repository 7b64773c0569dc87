//! Modes of one run that a topic, a lifecycle node's state, or a time begins.

use super::*;
use onbeat_document::merge::{filter_mode, merge, set_mode, ModelMergeError};

const CREATED: &str = "
1ms cpu0 10/10 process command=/opt/sensor distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=sensor namespace=/
1ms cpu0 10/10 lifecycle_init node=0x1 machine=0x70
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/scan
1ms cpu0 10/10 publisher_init publisher=0x11 node=0x1 rmw=0x1011 topic=/mode
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
1ms cpu1 20/20 process command=/opt/taker distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu1 20/20 node_init node=0x2 rmw=0x1002 name=taker namespace=/
1ms cpu1 20/20 subscription_init subscription=0x20 node=0x2 rmw=0x1020 topic=/scan
1ms cpu1 20/20 subscription_object subscription=0x20 object=0x25
1ms cpu1 20/20 subscription_callback object=0x25 callback=0x62
";

/// Returns the events of a round at `t` us. The timer runs for 1 ms and publishes in the middle if
/// `publishes` is set. The taker starts 2 ms after the timer and runs for `takes` us.
fn round(t: u64, publishes: bool, takes: u64) -> String {
    let mut s = format!(
        "{t}us cpu0 10/10 switch_in\n{t}us cpu0 10/10 timer_call timer=0x50\n{t}us cpu0 10/10 callback_start callback=0x60\n"
    );
    let at = t + 500;
    if publishes {
        s += &format!("{at}us cpu0 10/10 rcl_publish publisher=0x10 message=0x99\n{at}us cpu0 10/10 publish rmw=0x1010 message=0x99 source_ns={at}us\n");
    }
    s += &format!("{}us cpu0 10/10 callback_end callback=0x60\n", t + 1000);
    s += &format!("{}us cpu0 10/10 switch_out state=1\n", t + 1010);
    if publishes {
        let start = t + 2000;
        s += &format!("{start}us cpu1 20/20 switch_in\n{start}us cpu1 20/20 executor_execute handle=0x20\n{start}us cpu1 20/20 take rmw=0x1020 source_ns={at}us\n{start}us cpu1 20/20 callback_start callback=0x62\n{}us cpu1 20/20 callback_end callback=0x62\n{}us cpu1 20/20 switch_out state=1\n", start + takes, start + takes + 10);
    }
    s
}

fn mark(t: u64) -> String {
    format!("{t}us cpu2 10/11 rcl_publish publisher=0x11 message=0x98\n{t}us cpu2 10/11 publish rmw=0x1011 message=0x98 source_ns={t}us\n")
}

fn transition(t: u64, from: &str, to: &str) -> String {
    format!("{t}us cpu2 10/11 lifecycle_transition machine=0x70 from={from} to={to}\n")
}

fn modelled(trace: &str, rules: &[&str]) -> Model {
    let mut options = SynthOptions::new(run("r1", DEFAULT_MODE));
    options.modes = rules.iter().map(|r| r.parse().unwrap()).collect();
    model_of(trace, options)
}

/// Returns the events of ten rounds, after the events in `first`. The events in `second` are
/// inserted while the taker runs in the fourth round, and those in `third` before the eighth round.
/// In the seventh round nothing is published.
fn drive(first: &str, second: &str, third: &str) -> String {
    let mut s = format!("{CREATED}{first}");
    for i in 1..=4 {
        s += &round(10_000 * i, true, 3000);
    }
    // The taker still runs, so `second` is inserted in the order of time.
    let end = s.find("45000us").unwrap();
    s.insert_str(end, second);
    for i in 5..=7 {
        s += &round(10_000 * i, i < 7, 1000);
    }
    s += third;
    for i in 8..=10 {
        s += &round(10_000 * i, true, 3000);
    }
    s
}

const TIMER: &str = "/sensor:timer(10ms)";
const TAKER: &str = "/taker:subscription(/scan)";

/// Checks the result that every way of switching must give: town until 44.999 ms, road until 75 ms,
/// then town.
fn check_drive(model: &Model) {
    let modes: Vec<_> = model
        .runs
        .iter()
        .map(|r| (r.id.as_str(), r.mode.as_str()))
        .collect();
    assert_eq!(modes, [("r1#1", "road"), ("r1#2", "town")]);
    let of = |id: &str, mode: &str| callback(model, id).modes[mode].clone();
    let counts = |mode| [TIMER, TAKER].map(|id| of(id, mode).exec_ns.count());
    assert_eq!((counts("town"), counts("road")), ([7, 7], [3, 2]));
    // An execution that the switch splits counts as a whole where it began.
    assert_eq!(of(TAKER, "town").exec_ns.min(), 3_000_000);
    assert_eq!(of(TAKER, "road").exec_ns.max(), 1_000_000);
    let chain = chain(model, &format!("{TIMER} > {TAKER}"));
    assert_eq!(
        (chain.modes["town"].executions, chain.modes["town"].crossed),
        (7, 1)
    );
    assert_eq!(
        (chain.modes["road"].executions, chain.modes["road"].crossed),
        (2, 0)
    );
    let crossed = "One execution of one chain began in one mode and ended in another: each counts in the mode where it began.";
    assert!(
        model.coverage.iter().any(|s| s == crossed),
        "{:?}",
        model.coverage
    );
    let road = &model.runs[0];
    assert_eq!(road.duration_ns, 75_000_000 - 44_999_000);
    let events: u64 = model.runs.iter().map(|r| r.events).sum();
    assert!(events > road.events && road.events > 0);
}

#[test]
fn messages_on_a_topic_begin_the_modes_of_a_list_in_turn() {
    let trace = drive("", &mark(44_999), &mark(75_000));
    check_drive(&modelled(&trace, &["town@0s..", "road,town@/mode"]));
}

#[test]
fn a_lifecycle_state_begins_a_mode() {
    let trace = drive(
        &transition(1_500, "unconfigured", "inactive"),
        &transition(44_999, "inactive", "active"),
        &transition(75_000, "active", "inactive"),
    );
    let rules = ["town@0s..", "road@/sensor=active", "town@/sensor=inactive"];
    check_drive(&modelled(&trace, &rules));
    // When the node goes from a state with a mode to one without, the run's own mode continues.
    let model = modelled(&trace, &["road@/sensor=active"]);
    let modes: Vec<_> = model.runs.iter().map(|r| r.mode.as_str()).collect();
    assert_eq!(modes, ["default", "road"]);
    // Another node does not switch the mode.
    let model = modelled(&trace, &["road@/planner=active"]);
    assert_eq!(model.runs.len(), 1);
    assert_eq!(
        model.coverage,
        ["The mode road was asked for with --mode, and did not begin in one run."]
    );
}

#[test]
fn times_that_the_user_states_begin_modes() {
    let trace = drive("", "", "");
    let rules = ["road@43999us..74ms", "town@0s..43.999ms", "town@74ms.."];
    check_drive(&modelled(&trace, &rules));
}

#[test]
fn the_modes_of_a_run_add_up_to_the_run() {
    let trace = drive("", &mark(44_999), &mark(75_000));
    let whole = modelled(&trace, &[]);
    let parts = modelled(&trace, &["town@0s..", "road,town@/mode"]);
    let together = set_mode(parts.clone(), DEFAULT_MODE).unwrap();
    let figures = |model: &Model| {
        let callbacks = model.callbacks.iter();
        let callbacks: Vec<_> = callbacks
            .map(|c| (c.id.clone(), c.figures.clone()))
            .collect();
        let edges = model.edges.iter();
        let edges: Vec<_> = edges
            .map(|e| (e.from.clone(), e.to.clone(), e.figures.clone()))
            .collect();
        let chains = model.chains.iter().map(|c| {
            let mut figures = c.figures.clone();
            figures.crossed = 0;
            (c.id.clone(), figures)
        });
        (callbacks, edges, chains.collect::<Vec<_>>())
    };
    assert_eq!(figures(&together), figures(&whole));
    assert_eq!(figures(&parts), figures(&whole));
    assert_eq!(together.executors, whole.executors);
    // Merging the parts again would count data without a mode twice.
    let road = filter_mode(parts.clone(), "road").unwrap();
    assert_eq!(ids(&road), [TIMER, TAKER]);
    let refused = merge(vec![road, filter_mode(parts.clone(), "town").unwrap()]);
    assert_eq!(refused, Err(ModelMergeError::SameRun("r1".into())));
    assert_eq!(
        merge(vec![parts, whole]),
        Err(ModelMergeError::SameRun("r1".into()))
    );
}

#[test]
fn the_model_of_a_mode_leaves_out_a_callback_that_did_not_run_in_it() {
    let trace = drive("", "", "");
    let model = modelled(&trace, &["still@68ms..77ms"]);
    let still = filter_mode(model, "still").unwrap();
    assert_eq!(ids(&still), [TIMER]);
    assert_eq!(edges(&still), [""; 0]);
}
