//! Applications of plain DDS. A process is a node, and a listener's function has a start and an
//! end. A loop with a waitset has only takes and waits, and writes have no time stamp.

use super::*;

const NODES: &str = "
1ms cpu0 0/0 clock_offset realtime_minus_monotonic_ns=0
1ms cpu0 10/10 thread comm=source
1ms cpu0 10/10 node_init node=0x1 rmw=0x1 name=source
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x10 topic=/a
1ms cpu0 20/21 thread comm=recv
1ms cpu0 20/20 node_init node=0x1 rmw=0x1 name=listener
1ms cpu0 20/20 publisher_init publisher=0x20 node=0x1 rmw=0x20 topic=/b
1ms cpu0 20/20 subscription_init subscription=0x21 node=0x1 rmw=0x21 topic=/a
1ms cpu0 20/20 subscription_object subscription=0x21 object=0x21
1ms cpu0 20/20 subscription_callback object=0x21 callback=0x21
1ms cpu0 30/30 thread comm=waitset
1ms cpu0 30/30 node_init node=0x1 rmw=0x1 name=waitset
1ms cpu0 30/30 subscription_init subscription=0x30 node=0x1 rmw=0x30 topic=/b
1ms cpu0 30/30 subscription_object subscription=0x30 object=0x30
1ms cpu0 30/30 subscription_callback object=0x30 callback=0x30
2ms cpu0 10/10 switch_in
3ms cpu0 10/10 switch_out state=1
4ms cpu0 30/30 switch_in
4ms cpu0 30/30 wait
4ms cpu0 30/30 switch_out state=1
5ms cpu0 20/21 switch_in
5ms cpu0 20/21 switch_out state=1
";

fn once(t: u64) -> String {
    format!(
        "{t}us cpu0 10/10 switch_in
{}us cpu0 10/10 publish rmw=0x10 source_ns=-
{}us cpu0 10/10 switch_out state=1
{}us cpu0 20/21 switch_in
{}us cpu0 20/21 take rmw=0x21 source_ns={}us
{}us cpu0 20/21 callback_start callback=0x21
{}us cpu0 20/21 publish rmw=0x20 source_ns=-
{}us cpu0 20/21 callback_end callback=0x21
{}us cpu0 20/21 switch_out state=1
{}us cpu0 30/30 switch_in
{}us cpu0 30/30 take rmw=0x30 source_ns={}us
{}us cpu0 30/30 take rmw=0x30 source_ns=0 taken=no
{}us cpu0 30/30 wait
{}us cpu0 30/30 switch_out state=1
",
        t + 500,
        t + 600,
        t + 700,
        t + 800,
        t + 503,
        t + 800,
        t + 2_700,
        t + 2_800,
        t + 2_810,
        t + 2_900,
        t + 3_000,
        t + 2_703,
        t + 4_000,
        t + 4_010,
        t + 4_020,
    )
}

#[test]
fn a_chain_on_plain_dds_passes_a_thread_a_listener_and_a_waitset_loop() {
    let rounds: String = (1..=5).map(|i| once(i * 10_000)).collect();
    let model = model(&format!("{NODES}{rounds}"));
    let (source, listener, waitset) = (
        "/source:thread(/a)",
        "/listener:subscription(/a)",
        "/waitset:subscription(/b)",
    );
    assert_eq!(ids(&model), [listener, source, waitset]);
    assert_eq!(
        edges(&model),
        [
            format!("{listener} -> {waitset} /b"),
            format!("{source} -> {listener} /a"),
        ]
    );
    assert_eq!(callback(&model, listener).figures.exec_ns.max(), 2_000_000);
    assert_eq!(callback(&model, waitset).figures.exec_ns.max(), 1_000_000);
    let chain = &model.chains[0];
    assert_eq!(chain.callbacks, [source, listener, waitset]);
    assert_eq!(chain.figures.latency_ns.max(), 4_000_000);
}
