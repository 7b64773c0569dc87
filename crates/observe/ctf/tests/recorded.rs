//! Imports a session that LTTng 2.13 recorded. The application is SYN (`demos/syn`, the compiled
//! client with `--as rclcpp`), and `scripts/e2e/lttng/provider.c` made its events. The buffers were
//! small, so that each stream has several packets.
//!
//! The counts of events and the times were compared by hand with the output of babeltrace2. SYN
//! itself counted the executions and measured the latency.

use onbeat_ctf::import;
use onbeat_document::schema::Run;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{text, Reader};
use std::collections::BTreeMap;
use std::path::Path;

const LINES: [&str; 3] = [
    "3176405954164 cpu1 19947/19947 publish rmw=0x55dd2207fc40 message=0x55dd222b15c0 source_ns=1795902659995556740",
    "3176429763281 cpu1 19947/19947 take rmw=0x55dd221550c0 message=0x7ffea8545760 source_ns=1795902659954195852 taken=yes",
    "3176429766387 cpu1 19947/19947 callback_start callback=0x55dd22106728 intra_process=no",
];

#[test]
fn a_recorded_session_gives_the_callbacks_that_the_application_counted() {
    let to = tempfile::tempdir().unwrap();
    let trace = to.path().join("trace");
    let session = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let imported = import(&session, &trace, "", &mut |_, _| {}).unwrap();
    assert_eq!((imported.processes, imported.lost), (1, 0));
    let mut reader = Reader::open(&trace).unwrap();
    let mut synth = Synth::new(SynthOptions::new(Run {
        id: String::new(),
        host: String::new(),
        boot: String::new(),
        mode: "default".into(),
        distribution: Vec::new(),
        start: 0,
        duration_ns: 0,
        lost: BTreeMap::new(),
        events: 0,
    }));
    let (mut kinds, mut found) = (BTreeMap::new(), 0);
    for event in reader.events() {
        synth.push(&event);
        let line = text::print(&event);
        let kind = line.split(' ').nth(3).unwrap_or_default().to_string();
        *kinds.entry(kind).or_insert(0) += 1;
        found += usize::from(LINES.contains(&line.as_str()));
    }
    assert_eq!(found, LINES.len());
    // babeltrace2 lists 82 rmw_publish and 54 rmw_take. onbeat leaves out those that the middleware makes
    // for itself.
    for (kind, count) in [
        ("callback_start", 42),
        ("callback_end", 42),
        ("publish", 22),
        ("take", 22),
        ("request_take", 13),
        ("response_take", 19),
        ("executor_next_ready", 79),
        ("node_init", 6),
    ] {
        assert_eq!(kinds[kind], count, "{kind}");
    }
    let model = synth.finish();
    let executions: Vec<(&str, u64)> = model
        .callbacks
        .iter()
        .map(|c| (c.id.as_str(), c.figures.executions()))
        .collect();
    assert_eq!(
        executions,
        [
            ("/n1:client(/sv1)", 3),
            ("/n1:client(/sv2)", 3),
            ("/n1:subscription(/f4)", 3),
            ("/n1:subscription(/t1)", 3),
            ("/n2:client(/sv3)", 3),
            ("/n2:client(/sv4)", 1),
            ("/n2:timer(250ms)", 3),
            ("/n2:timer(500ms)", 1),
            ("/n3:client(/sv3)", 3),
            ("/n3:subscription(/f2)", 3),
            ("/n4:service(/sv1)@/n1", 3),
            ("/n4:service(/sv2)@/n1", 3),
            ("/n5:service(/sv3)@/n2", 3),
            ("/n5:service(/sv3)@/n3", 3),
            ("/n5:service(/sv4)@/n2", 1),
            ("/n5:subscription(/fused)", 3),
            ("/n5:timer(250ms)", 3),
            ("/n6:subscription(/f1)", 3),
            ("/n6:subscription(/f3)", 4),
            ("/n6:subscription(/f4)", 3),
        ]
    );
    let chain = model
        .chains
        .iter()
        .find(|c| c.callbacks.len() == 4)
        .unwrap();
    let latency = chain.figures.latency_ns.max();
    // The tracer's own calls lie between the end of the callback and the moment at which SYN reads the
    // clock.
    assert!(latency.abs_diff(389_049_411) < 20_000, "{latency}");
}
