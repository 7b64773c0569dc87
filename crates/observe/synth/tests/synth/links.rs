//! Items of onbeat-link and of named channels of onbeat-flow, which one process sends and another
//! receives.

use super::*;
use onbeat_document::titles::titles;

const SENSE: &str = "/car/sense:timer(10ms)";
const FUSE: &str = "/car/fuse:subscription(/car/fuse/0)";

const CAR: &str = "
1ms cpu0 10/10 link_init end=0x11 link=1000 depth=4 sends=yes name=/front
1ms cpu0 10/10 link_init end=0x12 link=2000 depth=4 sends=yes name=/rear
1ms cpu0 10/10 node_init node=0x1 rmw=0x0 name=sense namespace=car
1ms cpu0 10/10 publisher_init publisher=0x1 node=0x1 rmw=0x1 topic=/car/sense depth=0
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x50
1ms cpu1 20/20 link_init end=0x11 link=1000 depth=4 sends=no name=/front
1ms cpu1 20/20 link_init end=0x12 link=2000 depth=4 sends=no name=/rear
1ms cpu1 20/20 node_init node=0x1 rmw=0x0 name=fuse namespace=car
1ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x20 topic=/car/fuse/0 depth=0
1ms cpu1 20/20 subscription_object subscription=0x20 object=0x20
1ms cpu1 20/20 subscription_callback object=0x20 callback=0x20
";

fn sense(t: u64, number: u64) -> String {
    format!(
        "{t}us cpu0 10/10 timer_call timer=0x50
{t}us cpu0 10/10 callback_start callback=0x50
{}us cpu0 10/10 link_send end=0x11 number={number}
{}us cpu0 10/10 link_send end=0x12 number={number}
{}us cpu0 10/10 callback_end callback=0x50
",
        t + 50,
        t + 100,
        t + 200
    )
}

fn fuse(t: u64, front: u64, rear: u64) -> String {
    format!(
        "{t}us cpu1 20/20 callback_start callback=0x20
{}us cpu1 20/20 link_receive end=0x11 number={front}
{}us cpu1 20/20 link_receive end=0x12 number={rear}
{}us cpu1 20/20 callback_end callback=0x20
",
        t + 10,
        t + 10,
        t + 300
    )
}

fn drive(numbers: [(u64, u64); 4]) -> String {
    let mut trace = CAR.to_string();
    for (i, (front, rear)) in (0..).zip(numbers) {
        let t = 10_000 * (i + 1);
        trace += &sense(t, i);
        trace += &fuse(t + 400, front, rear);
    }
    trace
}

fn notes(model: &Model) -> String {
    format!("{:?}", model.coverage)
}

#[test]
fn a_chain_is_followed_across_links() {
    let model = model(&drive([(0, 0), (1, 1), (2, 2), (3, 3)]));
    assert_eq!(ids(&model), [FUSE, SENSE]);
    let crossing = |topic| format!("{SENSE} -> {FUSE} {topic}");
    assert_eq!(edges(&model), [crossing("/front"), crossing("/rear")]);
    // No chain begins at the fusion, because its input is what it receives.
    let through = format!("{SENSE} > {FUSE}");
    assert_eq!(chains(&model), [through.as_str(), through.as_str()]);
    let over = |topic| format!("sense -> fuse over {topic}");
    let mut both = titles(&model);
    both.sort();
    assert_eq!(both, [over("/front"), over("/rear")]);
    for chain in &model.chains {
        let latency = &chain.figures.latency_ns;
        assert_eq!(latency.count(), 4);
        assert_eq!((latency.min(), latency.max()), (700_000, 700_000));
    }
    for edge in &model.edges {
        let f = &edge.figures;
        assert_eq!((f.published, f.taken, f.lost), (4, 4, 0));
        let crossed = if edge.topic == "/front" {
            360_000
        } else {
            310_000
        };
        assert_eq!(f.latency_ns.max(), crossed);
    }
}

#[test]
fn lost_and_duplicated_items_of_a_link_are_counted() {
    // The first link loses item 1 and brings item 2 twice.
    let model = model(&drive([(0, 0), (2, 1), (2, 2), (3, 3)]).replace(
        // Item 2 is sent before it is received.
        "20050us cpu0 10/10 link_send end=0x11 number=1\n",
        "20050us cpu0 10/10 link_send end=0x11 number=1\n20060us cpu0 10/10 link_send end=0x11 number=2\n",
    ).replace("30050us cpu0 10/10 link_send end=0x11 number=2\n", ""));
    let front = model.edges.iter().find(|e| e.topic == "/front").unwrap();
    let f = &front.figures;
    assert_eq!((f.published, f.taken, f.lost), (4, 3, 1));
    let said = "Items of the link /front were received once at an end that had them already";
    assert!(notes(&model).contains(said), "{}", notes(&model));
}

fn of_a_van(trace: &str) -> String {
    let pairs = [
        ("10/10", "30/30"),
        ("20/20", "40/40"),
        ("link=1000", "link=5000"),
        ("link=2000", "link=6000"),
        ("namespace=car", "namespace=van"),
        ("/car/", "/van/"),
    ];
    pairs.iter().fold(trace.into(), |s, (a, b)| s.replace(a, b))
}

#[test]
fn two_links_may_have_ends_of_the_same_name() {
    let car = drive([(0, 0), (1, 1), (2, 2), (3, 3)]);
    let parse = |trace: &str| text::parse(trace).unwrap_or_else(|e| panic!("{e}"));
    let mut events = parse(&(car.clone() + "2000ms cpu0 50/50 exec comm=later\n"));
    // The van sends while the car's items are on their way.
    events.extend(parse(&of_a_van(&car)).into_iter().map(|mut e| {
        e.time_ns += 200_000;
        e
    }));
    events.sort_by_key(|e| e.time_ns);
    let mut synth = Synth::new(SynthOptions::new(run("r1", DEFAULT_MODE)));
    events.iter().for_each(|e| synth.push(e));
    let model = synth.finish();
    check(&model);
    assert_eq!(model.edges.len(), 4, "{:?}", edges(&model));
    for chain in &model.chains {
        assert_eq!((chain.figures.executions, chain.figures.lost), (4, 0));
    }
    for edge in &model.edges {
        assert_eq!(
            edge.from[..5],
            edge.to[..5],
            "an edge leads from one vehicle to the other"
        );
        let f = &edge.figures;
        assert_eq!((f.published, f.taken, f.lost), (4, 4, 0));
    }
}

#[test]
fn a_subscription_takes_no_item_of_a_link_with_the_name_of_its_topic() {
    // The listener takes an item of a publisher that was not recorded. Its time stamp happens to
    // equal the stand-in stamp of an item of the link.
    let listener = "
1ms cpu2 30/30 node_init node=0x1 rmw=0x1001 name=listener
1ms cpu2 30/30 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/front
1ms cpu2 30/30 subscription_object subscription=0x20 object=0x25
1ms cpu2 30/30 subscription_callback object=0x25 callback=0x60
40450us cpu2 30/30 take rmw=0x1020 source_ns=1003
40450us cpu2 30/30 callback_start callback=0x60
40480us cpu2 30/30 callback_end callback=0x60
";
    let parts = [
        drive([(0, 0), (1, 1), (2, 2), (3, 3)]),
        listener.to_string(),
    ];
    let model = model(&super::rclcpp::sorted(&parts));
    let listened = callback(&model, "/listener:subscription(/front)");
    assert_eq!(listened.figures.exec_ns.count(), 1);
    let crossing = |topic| format!("{SENSE} -> {FUSE} {topic}");
    assert_eq!(edges(&model), [crossing("/front"), crossing("/rear")]);
}

#[test]
fn items_that_no_callback_receives_have_no_edge_and_are_in_the_coverage() {
    let mut trace = CAR.to_string();
    for i in 0..3 {
        let t = 10_000 * (i + 1);
        trace += &sense(t, i);
        let receive = "cpu1 20/20 link_receive end=0x11";
        trace += &format!("{}us {receive} number={i}\n", t + 400);
    }
    let model = model(&trace);
    assert_eq!(
        (ids(&model), chains(&model)),
        (vec![SENSE], vec![SENSE.to_string()])
    );
    let said = "Items of the link /front were received 3 times by a thread that ran no callback";
    assert!(notes(&model).contains(said), "{}", notes(&model));
}
