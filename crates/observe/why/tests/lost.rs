//! Causes of losses: hand-written traces in which items and requests are lost in a known way.

use onbeat_document::schema::Run;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{generate, text, Event, Reader, Writer, WriterOptions};
use onbeat_why::lost::{Losses, Lost, RequestKind, TopicLosses};

const SYSTEM: &str = "
1ms cpu0 10/10 process command=/opt/talker distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu0 10/10 thread comm=talker
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=talker
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/scan depth=10
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
2ms cpu1 20/20 process command=/opt/fusion distribution=kilted rmw=rmw_fastrtps_cpp
2ms cpu1 20/20 thread comm=fusion
2ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=fusion
2ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/scan depth=1
2ms cpu1 20/20 subscription_object subscription=0x20 object=0x25
2ms cpu1 20/20 subscription_callback object=0x25 callback=0x60
2ms cpu1 20/20 timer_init timer=0x51 period_ns=900ms
2ms cpu1 20/20 timer_callback timer=0x51 callback=0x61
2ms cpu1 20/20 timer_node timer=0x51 node=0x1
3ms cpu1 20/20 wait
3ms cpu1 20/20 switch_out state=1
";

fn talk(ms: u64) -> String {
    format!(
        "{ms}ms cpu0 10/10 timer_call timer=0x50
{ms}ms cpu0 10/10 callback_start callback=0x60
{ms}ms cpu0 10/10 publish rmw=0x1010 source_ns={ms}ms
{ms}ms cpu0 10/10 callback_end callback=0x60
"
    )
}

/// Returns the events of the listener at `ms` ms: it takes the item that was published at `source`
/// ms, and its callback runs.
fn listen(ms: u64, source: u64) -> String {
    format!(
        "{ms}ms cpu1 20/20 switch_in
{ms}ms cpu1 20/20 take rmw=0x1020 source_ns={source}ms taken=yes
{ms}ms cpu1 20/20 callback_start callback=0x60
{ms}ms cpu1 20/20 callback_end callback=0x60
{ms}ms cpu1 20/20 wait
{ms}ms cpu1 20/20 switch_out state=1
"
    )
}

fn slow(begin: u64, end: u64) -> String {
    format!(
        "{begin}ms cpu1 20/20 switch_in
{begin}ms cpu1 20/20 timer_call timer=0x51
{begin}ms cpu1 20/20 callback_start callback=0x61
{end}ms cpu1 20/20 callback_end callback=0x61
{end}ms cpu1 20/20 wait
{end}ms cpu1 20/20 switch_out state=1
"
    )
}

fn find(trace: &str, late_above_ns: Option<u64>) -> Losses {
    let mut events = text::parse(trace).expect("a trace");
    events.sort_by_key(|e| e.time_ns);
    losses(&events, late_above_ns)
}

fn run() -> Run {
    Run {
        host: String::new(),
        boot: String::new(),
        id: "r".into(),
        mode: "x".into(),
        distribution: Vec::new(),
        start: 1,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    }
}

fn losses(events: &[Event], late_above_ns: Option<u64>) -> Losses {
    let mut lost = Lost::new(SynthOptions::new(run()), late_above_ns);
    events.iter().for_each(|e| lost.push(e));
    lost.finish()
}

fn of_topic<'a>(losses: &'a Losses, topic: &str) -> &'a TopicLosses {
    let mut topics = losses.topics.iter();
    topics.find(|t| t.topic == topic).expect("the topic")
}

/// Returns the events of 20 publications. Two of the items are overwritten while the slow timer
/// runs.
fn overwritten() -> String {
    let mut trace = SYSTEM.to_string();
    for i in 1..=20 {
        trace += &talk(100 * i);
        if !(8..=10).contains(&i) {
            trace += &listen(100 * i + 1, 100 * i);
        }
    }
    trace + &slow(790, 1_030) + &listen(1_030, 1_000)
}

#[test]
fn the_cause_of_an_overwritten_item_has_the_history_depth_and_the_callback_that_ran_meanwhile() {
    let losses = find(&overwritten(), None);
    let scan = of_topic(&losses, "/scan");
    assert_eq!((scan.published, scan.executed, scan.lost()), (20, 18, 2));
    assert_eq!(
        scan.sentences(),
        [
            "2 of 20 items of /scan to /fusion were overwritten: the history of the subscription holds 1 item, and \
          /fusion:timer(900ms) ran for 100 ms while an item waited (2 of 2)."
        ]
    );
    let burst = scan.bursts[0];
    assert_eq!(
        (burst.count, burst.start_ns, burst.end_ns),
        (2, 800_000_000, 900_000_000)
    );
}

#[test]
fn the_cause_of_a_loss_is_unknown_where_the_recorder_lost_events() {
    let trace = overwritten() + "1100ms cpu1 0/0 lost probe=take count=3\n";
    let losses = find(&trace, None);
    let said = of_topic(&losses, "/scan").sentences();
    assert_eq!(
        said,
        ["2 of 20 items of /scan to /fusion were lost, and the cause is unknown: the recorder lost events at this time."]
    );
}

const PUBLISHER: &str = "10/10 endpoint_qos endpoint=publisher rcl=0x10";
const SUBSCRIPTION: &str = "20/20 endpoint_qos endpoint=subscription rcl=0x20";

/// Returns the event with the QoS of an endpoint: reliable, volatile, a history of 5 items and no
/// limits. `changed` has other values for some fields.
fn qos(endpoint: &str, changed: &str) -> String {
    let usual = "history=1 reliability=1 durability=2 liveliness=1 depth=5 deadline_ns=0 \
                 lifespan_ns=0 lease_ns=0";
    let value = |field: &str| {
        let name = field.split('=').next().unwrap_or_default();
        let mut others = changed.split(' ');
        let other = others.find(|other| other.split('=').next() == Some(name));
        other.unwrap_or(field).to_string()
    };
    let fields: Vec<String> = usual.split(' ').map(value).collect();
    format!("2ms cpu0 {endpoint} {}\n", fields.join(" "))
}

#[test]
fn refused_items_name_the_setting_that_does_not_match() {
    for (offered, requested, said) in [
        ("", "durability=1", "requests transient local ones"),
        (
            "deadline_ns=2000000",
            "deadline_ns=1000000",
            "offers a longer deadline",
        ),
        ("", "deadline_ns=1000000", "offers a longer deadline"),
        ("", "liveliness=3", "offers a weaker liveliness"),
    ] {
        let mut trace = SYSTEM.to_string() + &qos(PUBLISHER, offered);
        trace += &qos(SUBSCRIPTION, requested);
        trace += &(1..=20).map(|i| talk(100 * i)).collect::<String>();
        let sentences = of_topic(&find(&trace, None), "/scan").sentences();
        let head = "20 of 20 items of /scan to /fusion were refused by QoS: ";
        assert!(sentences[0].starts_with(head), "{sentences:?}");
        assert!(sentences[0].contains(said), "{requested}: {sentences:?}");
    }
}

#[test]
fn the_reason_for_an_unknown_cause_follows_from_the_recorded_settings() {
    let deep = SYSTEM.replace("topic=/scan depth=1\n", "topic=/scan depth=5\n");
    let unknown_depth = SYSTEM.replace("topic=/scan depth=1\n", "topic=/scan depth=0\n");
    let best_effort = [
        qos(PUBLISHER, "reliability=2"),
        qos(SUBSCRIPTION, "reliability=2"),
    ];
    let lifespan = [qos(PUBLISHER, "lifespan_ns=1000000"), qos(SUBSCRIPTION, "")];
    let reliable = [qos(PUBLISHER, ""), qos(SUBSCRIPTION, "")];
    let none = || [String::new(), String::new()];
    for (system, settings, missing, said) in [
        (&deep, best_effort, 8..9, "with best effort"),
        (
            &deep,
            reliable,
            8..9,
            "both sides ask for reliable delivery",
        ),
        (
            &deep,
            lifespan,
            8..9,
            "the lifespan that the publisher sets",
        ),
        (&deep, none(), 8..9, "lacks the QoS"),
        (
            &unknown_depth,
            none(),
            8..9,
            "the depth of the subscription's history is not recorded",
        ),
        (&deep, none(), 1..4, "before the subscription's first take"),
    ] {
        let mut trace = system.clone() + &settings.concat();
        for i in 1..=20 {
            trace += &talk(100 * i);
            if !missing.contains(&i) {
                trace += &listen(100 * i + 1, 100 * i);
            }
        }
        let sentences = of_topic(&find(&trace, None), "/scan").sentences();
        let count = missing.end - missing.start;
        let is = if count == 1 { "was" } else { "were" };
        let head = format!(
            "{count} of 20 items of /scan to /fusion {is} lost, and the cause is unknown: "
        );
        assert_eq!(sentences.len(), 1, "{said}: {sentences:?}");
        assert!(sentences[0].starts_with(&head), "{said}: {sentences:?}");
        assert!(sentences[0].contains(said), "{said}: {sentences:?}");
    }
}

#[test]
fn an_item_that_a_shaper_discarded_is_told_apart_from_a_lost_one() {
    // The first item, one in between, and the last item are discarded.
    let mut trace = SYSTEM.to_string();
    for i in 1..=10u64 {
        let (ms, sent) = (100 * i, 100 * i + 20);
        let held = format!("message=0x901 source_ns={ms}ms");
        trace += &talk(ms).replace(&format!("source_ns={ms}ms"), &held);
        trace += &match i {
            1 | 5 | 10 => {
                format!("{sent}ms cpu0 10/11 publish rmw=0x1010 message=0x901 source_ns=0\n")
            }
            _ => {
                format!("{sent}ms cpu0 10/11 publish rmw=0x1010 message=0x900 source_ns={sent}ms\n")
                    + &listen(sent + 1, sent)
            }
        };
    }
    let losses = find(&trace, None);
    let scan = of_topic(&losses, "/scan");
    assert_eq!((scan.published, scan.executed, scan.lost()), (10, 7, 3));
    assert_eq!(
        scan.sentences(),
        ["3 of 10 items of /scan to /fusion were discarded: a shaper held items back, and did not send these."]
    );
}

#[test]
fn an_item_is_lost_at_a_socket_if_its_process_dropped_datagrams_while_it_was_on_its_way() {
    let deep = SYSTEM.replace("topic=/scan depth=1\n", "topic=/scan depth=5\n");
    let lost = |drops: &str| {
        let mut trace = deep.clone() + drops;
        for i in 1..=20 {
            trace += &talk(100 * i);
            if i != 8 {
                trace += &listen(100 * i + 1, 100 * i);
            }
        }
        of_topic(&find(&trace, None), "/scan").sentences()
    };
    let drop =
        |ms: u64, pid: u32| format!("{ms}ms cpu1 {pid}/{pid} socket_drop port=7411 count=3\n");
    let unknown = ["1 of 20 items of /scan to /fusion was lost, and the cause is unknown: the item was not overwritten, because the history had room; the recording lacks the QoS that could explain the loss."];
    let dropped = ["1 of 20 items of /scan to /fusion was lost while the kernel dropped datagrams, because the receive buffer of a UDP socket (port 7411) was full. Make this buffer larger: net.core.rmem_max, and the middleware's setting."];
    assert_eq!(lost(&drop(805, 20)), dropped);
    // The event of a take can be missing, too.
    let events_lost = drop(805, 20) + "850ms cpu1 0/0 lost probe=take count=3\n";
    let said = &lost(&events_lost)[0];
    assert!(
        said.ends_with("the recorder lost events at this time."),
        "{said}"
    );
    // Another process, and times at which the item was not on its way.
    for elsewhere in [drop(805, 10), drop(798, 20), drop(1_000, 20)] {
        assert_eq!(lost(&elsewhere), unknown, "{elsewhere}");
    }
}

#[test]
fn items_that_are_left_when_an_end_or_no_callback_comes_are_told_apart() {
    let mut taken = SYSTEM.to_string();
    for i in 1..=17 {
        taken += &(talk(100 * i) + &listen(100 * i + 1, 100 * i));
    }
    let rest: String = (18..=20).map(|i| talk(100 * i)).collect();
    let end = |who: &str, rcl: &str| format!("2050ms cpu0 {who} handle_fini handle={rcl}\n");
    let read = "2001ms cpu1 20/20 switch_in
2001ms cpu1 20/20 take rmw=0x1020 source_ns=2000ms taken=yes
2002ms cpu1 20/20 wait
2002ms cpu1 20/20 switch_out state=1
";
    let later = "3000ms cpu1 20/20 switch_in\n3001ms cpu1 20/20 switch_out state=1\n";
    for (last, count, said) in [
        (
            rest.clone() + &end("20/20", "0x20"),
            3,
            "before the subscription ended",
        ),
        (
            rest + &end("10/10", "0x10") + later,
            3,
            "the publisher ended before the item was taken",
        ),
        (talk(2000) + read, 1, "taken, and no callback ran"),
    ] {
        let losses = find(&(taken.clone() + &last), None);
        let sentences = of_topic(&losses, "/scan").sentences();
        assert_eq!(sentences.len(), 1, "{said}: {sentences:?}");
        assert!(
            sentences[0].starts_with(&format!("{count} of ")),
            "{said}: {sentences:?}"
        );
        assert!(sentences[0].contains(said), "{said}: {sentences:?}");
    }
}

#[test]
fn items_of_a_best_effort_publisher_are_refused_by_a_reliable_subscription() {
    let mut trace = SYSTEM.to_string();
    trace += &qos(PUBLISHER, "reliability=2");
    trace += &qos(SUBSCRIPTION, "");
    trace += &(1..=20).map(|i| talk(100 * i)).collect::<String>();
    let said = of_topic(&find(&trace, None), "/scan").sentences();
    assert_eq!(
        said,
        ["20 of 20 items of /scan to /fusion were refused by QoS: the publisher offers best effort, and the subscription requests reliable delivery."]
    );
    // Two reliable sides are connected, so the cause is not in the recording.
    let trace = trace.replace("reliability=2", "reliability=1");
    let said = of_topic(&find(&trace, None), "/scan").sentences();
    assert_eq!(
        said,
        ["20 of 20 items of /scan to /fusion were lost, and the cause is unknown: the subscription took no item of this publisher."]
    );
}

#[test]
fn items_not_yet_taken_when_the_recording_ends_do_not_count_as_overwritten() {
    let mut trace = SYSTEM.to_string();
    for i in 1..=20 {
        trace += &talk(100 * i);
        if i <= 17 {
            trace += &listen(100 * i + 1, 100 * i);
        }
    }
    let losses = find(&trace, None);
    assert_eq!(
        of_topic(&losses, "/scan").sentences(),
        ["3 of 20 items of /scan to /fusion were not taken before the recording ended."]
    );
}

#[test]
fn items_of_another_publisher_can_fill_the_history_of_a_subscription() {
    let mut trace = SYSTEM.replace("topic=/scan depth=1\n", "topic=/scan depth=2\n");
    trace += "
2ms cpu0 11/11 node_init node=0x1 rmw=0x1001 name=other
2ms cpu0 11/11 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/scan depth=10
2ms cpu0 11/11 timer_init timer=0x50 period_ns=100ms
2ms cpu0 11/11 timer_callback timer=0x50 callback=0x60
2ms cpu0 11/11 timer_node timer=0x50 node=0x1
";
    let other = |ms: u64| talk(ms).replace("10/10", "11/11");
    // The history holds the items of 200 and 300 ms when the callback takes that of 300 ms.
    trace += &(talk(50) + &listen(51, 50) + &other(60) + &listen(61, 60));
    trace += &(talk(100) + &other(200) + &talk(300) + &listen(310, 200) + &listen(320, 300));
    let losses = find(&trace, None);
    let scan = of_topic(&losses, "/scan");
    assert_eq!((scan.published, scan.executed), (5, 4));
    assert!(
        scan.sentences()[0].starts_with(
            "1 of 5 items of /scan to /fusion was overwritten: the history of the subscription holds 2 items"
        ),
        "{:?}",
        scan.sentences()
    );
}

#[test]
fn each_request_counts_as_answered_late_or_never_answered() {
    let mut trace = SYSTEM.to_string();
    trace += "
2ms cpu0 10/10 client_init client=0x40 node=0x1 rmw=0x1040 name=/s
2ms cpu1 20/20 service_init service=0x30 node=0x1 rmw=0x1030 name=/s
";
    // The responses come after 10 and 300 ms, and then not at all. The fourth callback never runs.
    for (i, after) in [(1u64, Some(10u64)), (2, Some(300)), (3, None), (4, None)] {
        let t = 1_000 * i;
        let gid = "gid=01010101010101010101010101010101";
        trace += &format!(
            "{t}ms cpu0 10/10 timer_call timer=0x50
{t}ms cpu0 10/10 callback_start callback=0x60
{t}ms cpu0 10/10 request_send rmw=0x1040 sequence={i}
{t}ms cpu0 10/10 callback_end callback=0x60
"
        );
        if i < 4 {
            trace += &format!(
                "{}us cpu1 20/20 request_take rmw=0x1030 {gid} sequence={i}\n",
                1_000 * t + 500
            );
        }
        if let Some(after) = after {
            let end = t + after;
            trace += &format!(
                "{end}ms cpu1 20/20 response_send rmw=0x1030 {gid} sequence={i} source_ns=-
{end}ms cpu1 20/20 wait_set_init
{end}ms cpu0 10/10 execute_start execute=client
{end}ms cpu0 10/10 response_take rmw=0x1040 sequence={i} source_ns=0
{end}ms cpu0 10/10 execute_end execute=client
"
            );
        } else if i < 4 {
            trace += &format!("{}ms cpu1 20/20 wait_set_init\n", t + 20);
        }
    }
    trace += "9000ms cpu1 20/20 wait\n";
    let losses = find(&trace, Some(100_000_000));
    let kinds: Vec<_> = losses
        .services
        .iter()
        .flat_map(|s| s.kinds.iter().map(|k| (k.0, k.1)))
        .collect();
    assert_eq!(
        kinds,
        [
            (RequestKind::Answered, 1),
            (RequestKind::Late, 1),
            (RequestKind::NotExecuted, 1),
            (RequestKind::NoResponse, 1)
        ]
    );
    assert_eq!(losses.services[0].service, "/s");
    assert_eq!(losses.services[0].slowest_ns, 300_000_000);
}

/// Checks that the report contains each item that the model counts as lost or overwritten. Returns
/// the number of these items.
fn agrees(events: &[Event]) -> u64 {
    let found = losses(events, None);
    let mut synth = Synth::new(SynthOptions::new(run()));
    events.iter().for_each(|e| synth.push(e));
    let model = synth.finish();
    let mut all = 0;
    for topic in &found.topics {
        let edges = model.edges.iter();
        let edges = edges.filter(|e| e.topic == topic.topic && e.to == topic.to);
        let counts = edges.map(|e| {
            let f = &e.figures;
            f.lost + f.overwritten + f.unselected
        });
        let lost: u64 = counts.sum();
        assert!(lost <= topic.lost(), "{lost} in the model: {topic:#?}");
        all += lost;
        assert_eq!(
            topic.lost(),
            topic.causes.iter().map(|c| c.count).sum::<u64>()
        );
    }
    all
}

#[test]
fn the_losses_of_generated_recordings_agree_with_their_models() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let mut all = 0;
    for seed in 0..20 {
        let path = dir.path().join(seed.to_string());
        let mut writer = Writer::create(&path, WriterOptions::default()).expect("a writer");
        let manifest = generate::generate(&mut writer, 20_000, seed).expect("a trace");
        writer.finish(manifest).expect("a manifest");
        let mut reader = Reader::open(&path).expect("a trace");
        let events: Vec<Event> = reader.events().collect();
        all += agrees(&events);
    }
    all += agrees(&recorded());
    let mut events = text::parse(&overwritten()).expect("a trace");
    events.sort_by_key(|e| e.time_ns);
    all += agrees(&events);
    assert!(all >= 2, "{all}");
}

fn recorded() -> Vec<Event> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../demos/recorded/parking"
    );
    let mut reader = Reader::open(path).expect("the demo's recording");
    reader.events().collect()
}
