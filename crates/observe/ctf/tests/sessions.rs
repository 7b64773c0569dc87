//! Imports sessions that `common` writes as LTTng does, and checks the traces and models.

mod common;

use common::{kernel, packets, switch, ust, write, Domain, E, F};
use onbeat_ctf::{import, Imported};
use onbeat_document::schema::Run;
use onbeat_document::Model;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{text, EventKind, Reader};
use std::path::Path;

const MS: u64 = 1_000_000;

/// Returns the events that create a node with a timer and a node with a subscription, in process
/// 10.
fn created() -> Vec<E> {
    let node = |time, handle, name| {
        let fields = vec![
            F::Pointer("node_handle", handle),
            F::Pointer("rmw_handle", handle + 1),
            F::Text("node_name", name),
            F::Text("namespace", "/"),
        ];
        ust(time, 10, "ros2:rcl_node_init", fields)
    };
    let endpoint = |time, name, node, rcl, handles: [&'static str; 2]| {
        let fields = vec![
            F::Pointer(handles[0], rcl),
            F::Pointer("node_handle", node),
            F::Pointer(handles[1], rcl + 1),
            F::Text("topic_name", "/t"),
            F::Int("queue_depth", 10),
        ];
        ust(time, 10, name, fields)
    };
    let pair = |time, name, a, b| {
        let (a, b): ((&'static str, u64), (&'static str, u64)) = (a, b);
        ust(
            time,
            10,
            name,
            vec![F::Pointer(a.0, a.1), F::Pointer(b.0, b.1)],
        )
    };
    let publisher = ["publisher_handle", "rmw_publisher_handle"];
    let subscription = ["subscription_handle", "rmw_subscription_handle"];
    vec![
        ust(
            MS,
            10,
            "ros2:rcl_init",
            vec![F::Pointer("context_handle", 7), F::Text("version", "8.6.0")],
        ),
        node(MS, 0x1000, "talker"),
        endpoint(MS, "ros2:rcl_publisher_init", 0x1000, 0x1100, publisher),
        ust(
            MS,
            10,
            "ros2:rcl_timer_init",
            vec![
                F::Pointer("timer_handle", 0x1200),
                F::Int("period", 100 * MS as i64),
            ],
        ),
        pair(
            MS,
            "ros2:rclcpp_timer_callback_added",
            ("timer_handle", 0x1200),
            ("callback", 0x1300),
        ),
        pair(
            MS,
            "ros2:rclcpp_timer_link_node",
            ("timer_handle", 0x1200),
            ("node_handle", 0x1000),
        ),
        node(2 * MS, 0x2000, "listener"),
        endpoint(
            2 * MS,
            "ros2:rcl_subscription_init",
            0x2000,
            0x2100,
            subscription,
        ),
        pair(
            2 * MS,
            "ros2:rclcpp_subscription_init",
            ("subscription_handle", 0x2100),
            ("subscription", 0x2200),
        ),
        pair(
            2 * MS,
            "ros2:rclcpp_subscription_callback_added",
            ("subscription", 0x2200),
            ("callback", 0x2300),
        ),
    ]
}

fn callback(time: u64, tid: u32, name: &'static str, callback: u64) -> E {
    let mut fields = vec![F::Pointer("callback", callback)];
    if name == "ros2:callback_start" {
        fields.push(F::Tid("is_intra_process", 0));
    }
    ust(time, tid, name, fields)
}

/// Returns an execution of the timer on thread 11, from `time` on for 6 ms. The timer publishes 4
/// ms after `time`.
fn timer(time: u64) -> Vec<E> {
    let fields = vec![
        F::Pointer("rmw_publisher_handle", 0x1101),
        F::Pointer("message", 0x9),
        F::Int("timestamp", (common::OFFSET + time + 4 * MS) as i64),
    ];
    vec![
        callback(time, 11, "ros2:callback_start", 0x1300),
        ust(time + 4 * MS, 11, "ros2:rmw_publish", fields),
        callback(time + 6 * MS, 11, "ros2:callback_end", 0x1300),
    ]
}

/// Returns an execution of the subscription on thread 12, from `time` on for 3 ms. The subscription
/// takes the message that was published at `sent`.
fn subscription(time: u64, sent: u64) -> Vec<E> {
    let fields = vec![
        F::Pointer("rmw_subscription_handle", 0x2101),
        F::Pointer("message", 0x8),
        F::Int("source_timestamp", (common::OFFSET + sent) as i64),
        F::Tid("taken", 1),
    ];
    vec![
        ust(time, 12, "ros2:rmw_take", fields),
        callback(time, 12, "ros2:callback_start", 0x2300),
        callback(time + 3 * MS, 12, "ros2:callback_end", 0x2300),
    ]
}

fn model(trace: &Path) -> Model {
    let mut reader = Reader::open(trace).expect("the trace was just written");
    let mut synth = Synth::new(SynthOptions::new(Run {
        id: reader.manifest().id.clone(),
        host: String::new(),
        boot: String::new(),
        mode: "default".into(),
        distribution: Vec::new(),
        start: 0,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    }));
    for event in reader.events() {
        synth.push(&event);
    }
    synth.finish()
}

fn imported(session: &Path) -> (Imported, Model) {
    let to = tempfile::tempdir().unwrap();
    let trace = to.path().join("trace");
    let imported = import(session, &trace, "", &mut |_, _| {}).expect("it can be imported");
    (imported, model(&trace))
}

fn processes(dir: &Path) {
    let first = vec![created(), timer(100 * MS), timer(200 * MS)];
    let second = vec![
        subscription(105 * MS, 104 * MS),
        subscription(205 * MS, 204 * MS),
    ];
    let files = [packets(0, first), packets(1, second)];
    write(&dir.join("ust/uid/0/64-bit"), Domain::User, &files);
}

fn notes_with<'a>(imported: &'a Imported, words: &str) -> Vec<&'a String> {
    imported
        .notes
        .iter()
        .filter(|n| n.contains(words))
        .collect()
}

#[test]
fn without_context_switches_executions_have_no_execution_time() {
    let session = tempfile::tempdir().unwrap();
    processes(session.path());
    let (imported, model) = imported(session.path());
    assert_eq!((imported.processes, imported.lost), (1, 0));
    assert_eq!(notes_with(&imported, "no context switches").len(), 1);
    let ids: Vec<&str> = model.callbacks.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids, ["/listener:subscription(/t)", "/talker:timer(100ms)"]);
    for callback in &model.callbacks {
        let f = &callback.figures;
        assert_eq!((f.exec_ns.count(), f.untimed), (0, 2), "{}", callback.id);
        assert_eq!(f.known_load(), None);
    }
    let timer = &model.callbacks[1].figures;
    assert_eq!(
        timer.response_ns.count(),
        0,
        "no event shows when it was due"
    );
    assert_eq!(model.edges.len(), 1);
    let edge = &model.edges[0].figures;
    assert_eq!((edge.taken, edge.latency_ns.max()), (2, MS));
    let latency = &model.chains[0].figures.latency_ns;
    assert_eq!((latency.count(), latency.max()), (2, 8 * MS));
}

#[test]
fn events_that_onbeat_does_not_use_change_nothing_whatever_fields_they_have() {
    let between = |time, n: usize| -> Vec<E> {
        let fields = [
            ("ros2:rcl_take", vec![F::Pointer("message", u64::MAX)]),
            ("other:empty", vec![]),
            (
                "other:array",
                vec![F::Bytes("gid", &[0xff; 24]), F::Tid("n", 7)],
            ),
            (
                "other:text",
                vec![F::Text("text", "words"), F::Int("n", -1)],
            ),
            ("other:list", vec![F::Sequence("list", &[0xffff; 5])]),
        ];
        let event = |(name, fields)| ust(time, 11, name, fields);
        fields.into_iter().map(event).take(n).collect()
    };
    let written = |n: usize| {
        let executions = [100, 200].map(|ms| {
            let mut events = Vec::new();
            for event in timer(ms * MS) {
                events.extend(between(event.time, n));
                events.push(event);
            }
            events
        });
        let [first, second] = executions;
        let session = tempfile::tempdir().unwrap();
        let file = packets(0, vec![created(), first, second]);
        write(session.path(), Domain::User, &[file]);
        let to = tempfile::tempdir().unwrap();
        let trace = to.path().join("trace");
        import(session.path(), &trace, "", &mut |_, _| {}).expect("it can be imported");
        let mut reader = Reader::open(&trace).expect("the trace was just written");
        reader.events().collect::<Vec<_>>()
    };
    let without = written(0);
    assert!(without.len() > 16, "{without:?}");
    for n in 1..=5 {
        assert_eq!(written(n), without, "{n} kinds of other events");
    }
}

#[test]
fn the_contexts_of_an_event_name_its_thread_even_if_the_event_has_fields_of_the_same_name() {
    let written = |own: &[(&'static str, u32)]| {
        let mut events = timer(100 * MS);
        for event in &mut events {
            let own = own.iter().map(|(name, id)| F::Tid(name, *id));
            event.fields.extend(own);
        }
        let session = tempfile::tempdir().unwrap();
        let file = packets(0, vec![created(), events]);
        write(session.path(), Domain::User, &[file]);
        let to = tempfile::tempdir().unwrap();
        let trace = to.path().join("trace");
        import(session.path(), &trace, "", &mut |_, _| {}).expect("it can be imported");
        let mut reader = Reader::open(&trace).expect("the trace was just written");
        reader.events().collect::<Vec<_>>()
    };
    assert_eq!(written(&[("vpid", 99), ("vtid", 98)]), written(&[]));
}

#[test]
fn context_switches_of_the_kernel_give_execution_times() {
    let session = tempfile::tempdir().unwrap();
    processes(session.path());
    let waking = |time, tid| {
        let comm: &[u8] = b"robot\0\0\0\0\0\0\0\0\0\0\0";
        let fields = vec![
            F::Bytes("comm", comm),
            F::Tid("tid", tid),
            F::Int("prio", 20),
            F::Tid("target_cpu", 1),
        ];
        kernel(time, "sched_waking", fields)
    };
    let other = |time| {
        kernel(
            time,
            "irq_softirq",
            vec![F::Sequence("numbers", &[1, 2, 3])],
        )
    };
    // In its first execution, thread 11 is preempted for 2 ms. Thread 12 is woken before it runs.
    let first = vec![vec![
        switch(99 * MS, 0, 0, 11),
        switch(101 * MS, 11, 0x100, 99),
        switch(103 * MS, 99, 1, 11),
        other(103 * MS + 7),
        waking(104 * MS, 12),
        switch(107 * MS, 11, 1, 0),
        switch(199 * MS, 0, 0, 11),
        switch(207 * MS, 11, 1, 0),
    ]];
    let second = vec![vec![
        switch(104 * MS + MS / 2, 0, 0, 12),
        switch(106 * MS, 12, 1, 0),
        switch(107 * MS, 0, 0, 12),
        switch(109 * MS, 12, 1, 0),
        switch(204 * MS, 0, 0, 12),
        switch(209 * MS, 12, 1, 0),
    ]];
    let files = [packets(0, first), packets(1, second)];
    write(&session.path().join("kernel"), Domain::Kernel, &files);
    let (imported, model) = imported(session.path());
    assert_eq!(notes_with(&imported, "no context switches").len(), 0);
    let figures = |at: usize| {
        let f = &model.callbacks[at].figures;
        let of = |d: &onbeat_document::dist::Dist| (d.min(), d.max());
        assert_eq!((f.exec_ns.count(), f.untimed), (2, 0));
        [of(&f.exec_ns), of(&f.preempted_ns), of(&f.blocked_ns)]
    };
    assert_eq!(figures(1), [(4 * MS, 6 * MS), (0, 2 * MS), (0, 0)]);
    assert_eq!(figures(0), [(2 * MS, 3 * MS), (0, 0), (0, MS)]);
}

#[test]
fn losses_before_the_first_event_are_counted_in_the_trace() {
    let session = tempfile::tempdir().unwrap();
    let mut file = packets(0, vec![created(), timer(100 * MS)]);
    file.discarded = vec![2, 5];
    write(&session.path().join("ust"), Domain::User, &[file]);
    let to = tempfile::tempdir().unwrap();
    let trace = to.path().join("trace");
    let imported = import(session.path(), &trace, "", &mut |_, _| {}).unwrap();
    assert_eq!(imported.lost, 5);
    let mut reader = Reader::open(&trace).unwrap();
    let lost = reader.events().filter_map(|event| match event.kind {
        EventKind::Lost { count, .. } => Some(count),
        _ => None,
    });
    assert_eq!(lost.collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn losses_of_the_tracer_are_counted_and_damaged_packets_left_out() {
    let session = tempfile::tempdir().unwrap();
    let mut file = packets(0, vec![created(), timer(100 * MS), timer(200 * MS)]);
    file.discarded = vec![0, 3, 5];
    let at = session.path().join("ust");
    write(&at, Domain::User, &[file]);
    let (whole, _) = imported(session.path());
    assert_eq!(whole.lost, 5);
    assert_eq!(
        notes_with(&whole, "LTTng lost 5 events of ust/channel0_0").len(),
        1
    );
    let path = at.join("channel0_0");
    let bytes = std::fs::read(&path).unwrap();
    // The last packet is cut.
    std::fs::write(&path, &bytes[..bytes.len() - 200]).unwrap();
    let (cut, _) = imported(session.path());
    assert!(cut.events < whole.events);
    assert_eq!(notes_with(&cut, "ends within a packet").len(), 1);
    // An event of the second packet gets an id that the metadata does not declare.
    let start = (64..bytes.len())
        .step_by(64)
        .find(|at| bytes[*at..*at + 4] == 0xc1fc_1fc1u32.to_le_bytes())
        .expect("the packet begins there");
    let mut damaged = bytes.clone();
    damaged[start + 84] = 200;
    std::fs::write(&path, &damaged).unwrap();
    let (damaged, _) = imported(session.path());
    assert!(damaged.events < whole.events);
    assert_eq!(
        notes_with(&damaged, "1 packet of ust/channel0_0 cannot be read").len(),
        1
    );
}

#[test]
fn events_of_rclpy_make_no_callbacks_and_events_repeated_by_caret_count_once() {
    let session = tempfile::tempdir().unwrap();
    let mut python: Vec<E> = created();
    python.truncate(3);
    python.extend(
        timer(100 * MS)
            .into_iter()
            .filter(|e| e.name.ends_with("publish")),
    );
    python.iter_mut().for_each(|e| e.who = (20, 20));
    write(
        &session.path().join("python"),
        Domain::User,
        &[packets(0, vec![python])],
    );
    let mut caret: Vec<E> = created();
    for event in &mut caret {
        event.name = match event.name {
            "ros2:rcl_node_init" => "ros2_caret:rcl_node_init",
            name => name,
        };
    }
    let own = vec![created(), timer(100 * MS)];
    let files = [packets(0, vec![caret]), packets(1, own)];
    write(&session.path().join("caret"), Domain::User, &files);
    let to = tempfile::tempdir().unwrap();
    let trace = to.path().join("trace");
    let imported = import(session.path(), &trace, "urban", &mut |_, _| {}).unwrap();
    assert_eq!(
        notes_with(&imported, "robot (process 20) has no events of callbacks").len(),
        1
    );
    let mut reader = Reader::open(&trace).unwrap();
    let manifest = reader.manifest().clone();
    assert_eq!(manifest.mode, "urban");
    assert_eq!(manifest.machine.boot_id, common::BOOT);
    assert_eq!(manifest.observed.distributions, ["kilted"]);
    let lines: Vec<String> = reader.events().map(|e| text::print(&e)).collect();
    let count = |words: &str| lines.iter().filter(|l| l.contains(words)).count();
    assert_eq!((count(" 10/11 publish "), count(" 20/20 publish ")), (1, 0));
    assert_eq!(
        (count(" 10/10 node_init"), count(" 20/20 node_init")),
        (2, 1)
    );
    let model = model(&trace);
    assert_eq!(model.callbacks.len(), 1);
}

#[test]
fn a_directory_without_a_usable_trace_is_refused_in_one_line() {
    let session = tempfile::tempdir().unwrap();
    let to = tempfile::tempdir().unwrap();
    let refused = |words: &str| {
        let error = import(session.path(), &to.path().join("t"), "", &mut |_, _| {});
        let error = error.unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
        assert!(!to.path().join("t").exists());
    };
    refused("no trace of LTTng");
    write(
        &session.path().join("a"),
        Domain::Kernel,
        &[packets(0, vec![vec![switch(1, 2, 0, 3)]])],
    );
    refused("no event of ROS 2");
    let metadata = session.path().join("a/metadata");
    let text = std::fs::read_to_string(&metadata).unwrap();
    std::fs::write(&metadata, text.replace("string", "strong")).unwrap();
    std::fs::write(&metadata, text.replace("uint16_t;", "uint17_t;")).unwrap();
    refused("the type that is named here is not declared");
    let nested = "struct { ".repeat(40) + &"} a; ".repeat(40);
    std::fs::write(&metadata, format!("/* CTF 1.8 */ typealias {nested} := x;")).unwrap();
    refused("nested too deeply");
    std::fs::write(&metadata, &text[..text.len() - 9]).unwrap();
    refused("the metadata ends early");
}
