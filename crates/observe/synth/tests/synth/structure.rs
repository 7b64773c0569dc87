//! Junctions, divergence, chains and links (thesis section 3.5), on a small simulated system.

use super::*;

/// A simulated system with one executor thread per node. A test calls it for each execution, and it
/// writes the events.
pub struct System {
    text: String,
    names: Vec<String>,
    threads: Option<Vec<u32>>,
}

impl System {
    pub fn new() -> Self {
        System {
            text: String::new(),
            names: Vec::new(),
            threads: None,
        }
    }

    pub fn in_one_process() -> Self {
        let threads = Some(Vec::new());
        System {
            threads,
            ..System::new()
        }
    }

    pub fn on(&mut self, node: usize, thread: u32) {
        if let Some(threads) = &mut self.threads {
            threads.resize(threads.len().max(node + 1), 0);
            threads[node] = thread;
        }
    }

    fn line(&mut self, t: u64, node: usize, what: &str) {
        let (pid, tid, what) = match &self.threads {
            None => (10 + node, 10 + node, what.to_string()),
            Some(threads) => {
                let tid = 10 + *threads.get(node).unwrap_or(&0) as usize;
                // Each node has addresses of its own.
                (10, tid, what.replace("0x", &format!("0x{:x}", 0x40 + node)))
            }
        };
        self.text += &format!("{t}us cpu{} {pid}/{tid} {what}\n", node % 2);
    }

    pub fn node(&mut self, name: &str, timers: &[u64], inputs: &[&str], outputs: &[&str]) -> usize {
        let n = self.names.len();
        self.names.push(name.into());
        self.line(1, n, &format!("node_init node=0x1 rmw=0x1001 name={name}"));
        for (i, ms) in timers.iter().enumerate() {
            self.line(
                2,
                n,
                &format!("timer_init timer={:#x} period_ns={ms}ms", 0x500 + i),
            );
            self.line(
                2,
                n,
                &format!(
                    "timer_callback timer={:#x} callback={:#x}",
                    0x500 + i,
                    0x600 + i
                ),
            );
            self.line(2, n, &format!("timer_node timer={:#x} node=0x1", 0x500 + i));
        }
        for (i, topic) in inputs.iter().enumerate() {
            let (s, o, c) = (0x200 + i, 0x280 + i, 0x700 + i);
            self.line(
                3,
                n,
                &format!(
                    "subscription_init subscription={s:#x} node=0x1 rmw={:#x} topic={topic}",
                    s + 0x1000
                ),
            );
            self.line(
                3,
                n,
                &format!("subscription_object subscription={s:#x} object={o:#x}"),
            );
            self.line(
                3,
                n,
                &format!("subscription_callback object={o:#x} callback={c:#x}"),
            );
        }
        for (i, topic) in outputs.iter().enumerate() {
            let p = 0x100 + i;
            self.line(
                3,
                n,
                &format!(
                    "publisher_init publisher={p:#x} node=0x1 rmw={:#x} topic={topic}",
                    p + 0x1000
                ),
            );
        }
        n
    }

    /// Writes an execution of a node's timer `timer`, from `t` us on for `run` us. The callback
    /// publishes on `outputs` in the middle of its run. The time stamps of the items are `t` plus
    /// 1, 2 ... us.
    pub fn timer(&mut self, t: u64, node: usize, timer: usize, outputs: &[usize], run: u64) {
        self.line(t, node, &format!("timer_call timer={:#x}", 0x500 + timer));
        self.callback(t, node, 0x600 + timer, outputs, run, None);
    }

    pub fn take(
        &mut self,
        t: u64,
        node: usize,
        input: usize,
        source: u64,
        outputs: &[usize],
        run: u64,
    ) {
        self.line(
            t,
            node,
            &format!("take rmw={:#x} source_ns={source}us", 0x1200 + input),
        );
        self.callback(t, node, 0x700 + input, outputs, run, None);
    }

    pub fn take_sync(
        &mut self,
        t: u64,
        node: usize,
        input: usize,
        source: u64,
        outputs: &[usize],
        run: u64,
    ) {
        self.line(
            t,
            node,
            &format!("take rmw={:#x} source_ns={source}us", 0x1200 + input),
        );
        self.callback(t, node, 0x700 + input, outputs, run, Some("sync_input"));
    }

    pub fn take_approximate(
        &mut self,
        t: u64,
        node: usize,
        input: usize,
        source: u64,
        outputs: &[usize],
        run: u64,
    ) {
        let rmw = 0x1200 + input;
        self.line(t, node, &format!("take rmw={rmw:#x} source_ns={source}us"));
        let filter = Some("sync_approximate");
        self.callback(t, node, 0x700 + input, outputs, run, filter);
    }

    fn callback(
        &mut self,
        t: u64,
        node: usize,
        callback: usize,
        outputs: &[usize],
        run: u64,
        filter: Option<&str>,
    ) {
        self.line(t, node, &format!("callback_start callback={callback:#x}"));
        if let Some(filter) = filter {
            self.line(t + run / 4, node, &format!("{filter} filter=0x900"));
        }
        for (i, &output) in outputs.iter().enumerate() {
            let stamp = Self::stamp(t, i);
            self.line(
                t + run / 2,
                node,
                &format!("publish rmw={:#x} source_ns={stamp}us", 0x1100 + output),
            );
        }
        self.line(
            t + run,
            node,
            &format!("callback_end callback={callback:#x}"),
        );
    }

    pub fn stamp(t: u64, i: usize) -> u64 {
        t + 1 + i as u64
    }

    pub fn trace(&self) -> String {
        rclcpp::sorted(std::slice::from_ref(&self.text))
    }

    pub fn model(&self) -> Model {
        model(&self.trace())
    }
}

fn and_junctions(m: &Model) -> Vec<&Junction> {
    m.junctions
        .iter()
        .filter(|j| j.kind == JunctionKind::And)
        .collect()
}

/// Simulates two sensors at 10 Hz, a fusion node, and a node that takes /fused. `order(i)` returns
/// the delays of the two inputs in round i. The later input publishes.
fn fusion(order: impl Fn(u64) -> (u64, u64), sync: bool) -> System {
    let mut s = System::new();
    let a = s.node("front", &[100], &[], &["/front"]);
    let b = s.node("rear", &[100], &[], &["/rear"]);
    let f = s.node("fusion", &[], &["/front", "/rear"], &["/fused"]);
    let g = s.node("grid", &[], &["/fused"], &[]);
    for i in 1..=50 {
        let t = 100_000 * i;
        let (da, db) = order(i);
        s.timer(t, a, 0, &[0], 1_000);
        s.timer(t + 20, b, 0, &[0], 1_000);
        let (front, rear) = (System::stamp(t, 0), System::stamp(t + 20, 0));
        let (ta, tb) = (t + da, t + db);
        let (oa, ob): (&[usize], &[usize]) = if da > db { (&[0], &[]) } else { (&[], &[0]) };
        let take = if sync {
            System::take_sync
        } else {
            System::take
        };
        take(&mut s, ta, f, 0, front, oa, 2_000);
        take(&mut s, tb, f, 1, rear, ob, 2_000);
        let fused = System::stamp(ta.max(tb), 0);
        s.take(ta.max(tb) + 3_000, g, 0, fused, &[], 1_000);
    }
    s
}

const FRONT: &str = "/fusion:subscription(/front)";
const REAR: &str = "/fusion:subscription(/rear)";
const SYNC: &str = "/fusion:sync(/fused)";
const GRID: &str = "/grid:subscription(/fused)";

#[test]
fn a_synchroniser_is_found_from_the_data_flow_alone() {
    // Either input can come last.
    let m = fusion(
        |i| {
            if i % 3 == 0 {
                (5_000, 9_000)
            } else {
                (9_000, 5_000)
            }
        },
        false,
    )
    .model();
    let and = and_junctions(&m);
    assert_eq!(and.len(), 1, "{:#?}", m.junctions);
    assert_eq!(
        (and[0].callback.as_str(), and[0].criterion.as_str()),
        (SYNC, "data_flow")
    );
    assert_eq!(and[0].inputs, [FRONT, REAR]);
    assert_eq!(and[0].confidence, 1.0);
    assert_eq!(
        edges(&m),
        [
            "/front:timer(100ms) -> /fusion:subscription(/front) /front".to_string(),
            format!("{FRONT} -> {SYNC} /front"),
            format!("{REAR} -> {SYNC} /rear"),
            format!("{SYNC} -> {GRID} /fused"),
            "/rear:timer(100ms) -> /fusion:subscription(/rear) /rear".to_string(),
        ]
    );
    assert_eq!(
        chains(&m),
        [
            format!("/front:timer(100ms) > {FRONT} > {SYNC} > {GRID}"),
            format!("/rear:timer(100ms) > {REAR} > {SYNC} > {GRID}"),
        ]
    );
    assert!(callback(&m, FRONT).outputs.is_empty());
    assert_eq!(callback(&m, SYNC).outputs, ["/fused"]);
    assert_eq!(edge(&m, SYNC, GRID).taken, 50);
    let f = &m
        .chains
        .iter()
        .find(|c| c.callbacks[0].starts_with("/front"))
        .unwrap()
        .figures;
    assert_eq!(f.executions, 50);
    // The front timer starts at 0, and the grid ends after 9 + 3 + 1 ms.
    assert_eq!(
        (f.latency_ns.max(), f.latency_ns.min()),
        (13_000_000, 13_000_000)
    );
    // Timer, edge, subscription, waiting for the other, synchroniser, edge, grid. When front is
    // first (16 of 50), its callback takes 2 ms and it waits 2 ms for rear.
    let means: Vec<u64> = f
        .shares
        .iter()
        .map(|s| (s.mean_ns * 50.0).round() as u64)
        .collect();
    assert_eq!(
        means,
        [
            25_000_000,
            34 * 8_500_000 + 16 * 4_500_000,
            32_000_000,
            32_000_000,
            50_000_000,
            100_000_000,
            50_000_000
        ]
    );
    let e = edge(&m, FRONT, SYNC);
    assert_eq!(
        (e.published, e.taken, e.lost, e.latency_ns.max()),
        (50, 50, 0, 2_000_000)
    );
}

#[test]
fn a_synchroniser_with_one_input_that_is_always_last_gets_a_confidence_of_one_half() {
    let m = fusion(|_| (9_000, 5_000), false).model();
    let and = and_junctions(&m);
    assert_eq!(and.len(), 1);
    assert_eq!(and[0].confidence, 0.5);
    assert!(
        m.assumptions
            .iter()
            .any(|a| a.contains("Perhaps it publishes when its own input arrives")),
        "{:?}",
        m.assumptions
    );
}

#[test]
fn events_of_message_filters_show_an_and_junction() {
    let m = fusion(|_| (9_000, 5_000), true).model();
    let and = and_junctions(&m);
    assert_eq!(
        (and[0].criterion.as_str(), and[0].confidence),
        ("message_filters", 1.0)
    );
    let f = &chain(
        &m,
        &format!("/front:timer(100ms) > {FRONT} > {SYNC} > {GRID}"),
    )
    .figures;
    let means: Vec<f64> = f.shares.iter().map(|s| s.mean_ns).collect();
    // The subscription's part ends when it hands over, 0.5 ms after its start.
    assert_eq!(
        means,
        [
            500_000.0,
            8_500_000.0,
            500_000.0,
            0.0,
            500_000.0,
            2_000_000.0,
            1_000_000.0
        ]
    );
}

#[test]
fn subscriptions_of_one_node_that_do_not_wait_make_no_and_junction() {
    // Two relays with topics of their own at the same rate.
    let mut s = System::new();
    let a = s.node("source", &[100, 100], &[], &["/a", "/b"]);
    let r = s.node("relay", &[], &["/a", "/b"], &["/a2", "/b2"]);
    let k = s.node("sink", &[], &["/a2", "/b2"], &[]);
    for i in 1..=50 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        s.timer(t + 2_000, a, 1, &[1], 1_000);
        s.take(t + 1_000, r, 0, System::stamp(t, 0), &[0], 500);
        s.take(t + 4_000, r, 1, System::stamp(t + 2_000, 0), &[1], 500);
        s.take(t + 6_000, k, 0, System::stamp(t + 1_000, 0), &[], 500);
        s.take(t + 7_000, k, 1, System::stamp(t + 4_000, 0), &[], 500);
    }
    let m = s.model();
    assert!(m.junctions.is_empty(), "{:#?}", m.junctions);
    assert_eq!(m.chains.len(), 2);
    assert!(!ids(&m).iter().any(|i| i.contains("sync")));

    // One relays both onto one topic: each input makes an output. The taker has an OR junction.
    let mut s = System::new();
    let a = s.node("source", &[100, 100], &[], &["/a", "/b"]);
    let r = s.node("relay", &[], &["/a", "/b"], &["/c"]);
    let k = s.node("sink", &[], &["/c"], &[]);
    for i in 1..=50 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        s.timer(t + 2_000, a, 1, &[1], 1_000);
        s.take(t + 1_000, r, 0, System::stamp(t, 0), &[0], 500);
        s.take(t + 4_000, r, 1, System::stamp(t + 2_000, 0), &[0], 500);
        s.take(t + 6_000, k, 0, System::stamp(t + 1_000, 0), &[], 500);
        s.take(t + 7_000, k, 0, System::stamp(t + 4_000, 0), &[], 500);
    }
    let m = s.model();
    assert_eq!(m.junctions.len(), 1);
    let or = &m.junctions[0];
    assert_eq!(
        (or.kind, or.callback.as_str()),
        (JunctionKind::Or, "/sink:subscription(/c)")
    );
    assert_eq!(
        or.inputs,
        ["/relay:subscription(/a)", "/relay:subscription(/b)"]
    );
    assert_eq!(m.chains.len(), 2);

    // A fast input that is only stored, and a slow one that publishes: sampling, not waiting.
    let mut s = System::new();
    let a = s.node("source", &[50, 100], &[], &["/a", "/b"]);
    let r = s.node("sampler", &[], &["/a", "/b"], &["/c"]);
    for i in 1..=50 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        s.timer(t + 2_000, a, 1, &[1], 1_000);
        s.timer(t + 50_000, a, 0, &[0], 1_000);
        s.take(t + 1_000, r, 0, System::stamp(t, 0), &[], 500);
        s.take(t + 4_000, r, 1, System::stamp(t + 2_000, 0), &[0], 500);
        s.take(t + 51_000, r, 0, System::stamp(t + 50_000, 0), &[], 500);
    }
    let m = s.model();
    assert!(and_junctions(&m).is_empty(), "{:#?}", m.junctions);
    assert!(!ids(&m).iter().any(|i| i.contains("sync")));
    // A node that waits would look the same, so the junction is left open.
    let open: Vec<_> = m
        .junctions
        .iter()
        .map(|j| (j.callback.as_str(), j.kind, j.state))
        .collect();
    let sampler = "/sampler:subscription(/b)";
    assert_eq!(
        open,
        [(sampler, JunctionKind::Or, JunctionState::Ambiguous)]
    );
}

#[test]
fn a_chain_that_ends_at_several_outputs_ends_with_the_last_one() {
    let mut s = System::new();
    let a = s.node("source", &[100], &[], &["/a", "/b"]);
    let x = s.node("x", &[], &["/a"], &["/x1", "/x2"]);
    let y = s.node("y", &[], &["/a", "/b"], &[]);
    for i in 1..=10 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0, 1], 1_000);
        s.take(t + 1_000, x, 0, System::stamp(t, 0), &[0, 1], 1_000);
        s.take(t + 1_000, y, 0, System::stamp(t, 0), &[], 1_000);
        s.take(t + 3_000, y, 1, System::stamp(t, 1), &[], 1_000);
    }
    let m = s.model();
    assert_eq!(callback(&m, "/source:timer(100ms)").outputs, ["/a", "/b"]);
    assert_eq!(
        chains(&m),
        [
            "/source:timer(100ms) > /x:subscription(/a)",
            "/source:timer(100ms) > /y:subscription(/a)",
            "/source:timer(100ms) > /y:subscription(/b)",
        ]
    );
    let c = chain(&m, "/source:timer(100ms) > /x:subscription(/a)");
    assert_eq!(c.topics, ["/a", "/x2"]);
    // Up to its publications, half a millisecond before its end.
    assert_eq!(c.figures.latency_ns.max(), 1_500_000);
    assert!(m.junctions.is_empty());
}

#[test]
fn a_chain_through_a_loop_ends_before_it_visits_a_callback_twice() {
    let mut s = System::new();
    let a = s.node("start", &[100], &[], &["/ping"]);
    let x = s.node("x", &[], &["/ping"], &["/pong"]);
    let y = s.node("y", &[], &["/pong"], &["/ping"]);
    for i in 1..=10 {
        let mut t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        for _ in 0..5 {
            s.take(t + 2_000, x, 0, System::stamp(t, 0), &[0], 1_000);
            s.take(t + 4_000, y, 0, System::stamp(t + 2_000, 0), &[0], 1_000);
            t += 4_000;
        }
    }
    let m = s.model();
    assert_eq!(
        chains(&m),
        ["/start:timer(100ms) > /x:subscription(/ping) > /y:subscription(/pong)"]
    );
    assert_eq!(m.chains[0].figures.executions, 10);
    assert_eq!(
        m.junctions[0].inputs,
        ["/start:timer(100ms)", "/y:subscription(/pong)"]
    );
}

#[test]
fn a_stated_link_continues_a_chain_through_a_nodes_memory() {
    let mut s = System::new();
    let a = s.node("source", &[100], &[], &["/a"]);
    let n = s.node("store", &[50], &["/a"], &["/out"]);
    let k = s.node("sink", &[], &["/out"], &[]);
    for i in 1..=10 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        s.take(t + 2_000, n, 0, System::stamp(t, 0), &[], 1_000);
        for d in [10_000, 60_000] {
            s.timer(t + d, n, 0, &[0], 2_000);
            s.take(t + d + 4_000, k, 0, System::stamp(t + d, 0), &[], 1_000);
        }
    }
    let link = "/store:subscription(/a) -> /store:timer(50ms)";
    let without = s.model();
    assert_eq!(
        chains(&without),
        [
            "/source:timer(100ms) > /store:subscription(/a)",
            "/store:timer(50ms) > /sink:subscription(/out)"
        ]
    );
    let m = model_with(&s.trace(), &[link]);
    let path = "/source:timer(100ms) > /store:subscription(/a) > /store:timer(50ms) > /sink:subscription(/out)";
    let c = chain(&m, path);
    assert!(c.assumed);
    // Only the next execution of the timer continues with the data.
    assert_eq!(
        (c.figures.executions, c.figures.latency_ns.max()),
        (10, 15_000_000)
    );
    let e = m.edges.iter().find(|e| e.assumed.is_some()).unwrap();
    assert_eq!(format!("{} -> {}", e.from, e.to), link);
    assert_eq!(
        (e.figures.taken, e.figures.latency_ns.max()),
        (10, 7_000_000)
    );
    assert!(m.assumptions.iter().any(|a| a.contains("--link")));
    let m = model_with(
        &s.trace(),
        &["/store:subscription(/a) -> /store:timer(5ms)"],
    );
    assert!(
        m.coverage.iter().any(|c| c.contains("was not followed")),
        "{:?}",
        m.coverage
    );
}

#[test]
fn a_chain_begins_at_an_input_topic_that_the_user_names() {
    let mut s = System::new();
    let a = s.node("driver", &[100], &[], &["/a"]);
    let n = s.node("filter", &[], &["/a"], &["/b"]);
    let k = s.node("sink", &[], &["/b"], &[]);
    for i in 1..=10 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        s.take(t + 2_000, n, 0, System::stamp(t, 0), &[0], 1_000);
        s.take(t + 5_000, k, 0, System::stamp(t + 2_000, 0), &[], 1_000);
    }
    let with_input = |name: &str| {
        let mut options = SynthOptions::new(run("r1", DEFAULT_MODE));
        options.inputs = vec![name.into()];
        model_of(&s.trace(), options)
    };
    let m = with_input("/a");
    let path = "/filter:subscription(/a) > /sink:subscription(/b)";
    assert_eq!(chains(&m), ["/driver:timer(100ms)", path]);
    // The chain lasts from the driver's publication, half a millisecond before its end, to the sink's
    // end.
    assert!(chain(&m, path).from_input);
    let figures = &chain(&m, path).figures;
    assert_eq!(
        (figures.executions, figures.latency_ns.max()),
        (10, 5_500_000)
    );
    // The edge from the driver is still known.
    assert_eq!(edges(&m), edges(&s.model()));
    assert!(m.assumptions.iter().any(|a| a.contains("begin with /a")));
    let m = with_input("/c");
    assert_eq!(chains(&m), chains(&s.model()));
    assert!(m.chains.iter().all(|c| !c.from_input));
    assert!(m
        .coverage
        .iter()
        .any(|c| c.contains("'/c' was not followed")));
}

#[test]
fn infrastructure_topics_are_left_out_without_the_option() {
    let mut s = System::new();
    let a = s.node("source", &[100], &[], &["/a", "/rosout"]);
    let n = s.node("logger", &[], &["/rosout"], &[]);
    for i in 1..=10 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0, 1], 1_000);
        s.take(t + 2_000, n, 0, System::stamp(t, 1), &[], 1_000);
    }
    let m = s.model();
    assert_eq!(ids(&m), ["/source:timer(100ms)"]);
    assert_eq!(m.callbacks[0].outputs, ["/a"]);
    let mut options = SynthOptions::new(run("r1", DEFAULT_MODE));
    options.infrastructure = true;
    let m = model_of(&s.trace(), options);
    assert_eq!(
        edges(&m),
        ["/source:timer(100ms) -> /logger:subscription(/rosout) /rosout"]
    );
}

#[test]
fn observations_report_each_counted_execution_of_a_chain() {
    // Three ways lead to /grid, and six from there to /last: 18 paths, which are more than an item
    // carries.
    let mut s = System::new();
    let source = s.node("source", &[100], &[], &["/source"]);
    let split = ["a", "b", "c"].map(|n| s.node(n, &[], &["/source"], &[&format!("/{n}")]));
    let grid = s.node("grid", &[], &["/a", "/b", "/c"], &["/grid"]);
    let names = ["d", "e", "f", "g", "h", "i"];
    let again = names.map(|n| s.node(n, &[], &["/grid"], &[&format!("/{n}")]));
    let topics = names.map(|n| format!("/{n}"));
    let last = s.node(
        "last",
        &[],
        &topics.each_ref().map(|t| t.as_str()),
        &["/out"],
    );
    for i in 1..=50 {
        let t = 100_000 * i;
        s.timer(t, source, 0, &[0], 1_000);
        for (n, &node) in split.iter().enumerate() {
            let at = t + 2_000 + 10 * n as u64;
            s.take(at, node, 0, System::stamp(t, 0), &[0], 1_000);
        }
        // The input that comes last publishes. It is another one in each round, so that the node is
        // seen to wait for all.
        let join = |s: &mut System, node: usize, from: u64, step: u64, inputs: usize| {
            let mut end = 0;
            for n in 0..inputs {
                let input = (n + i as usize) % inputs;
                end = from + 10_000 + 2_000 * n as u64;
                let outputs: &[usize] = if n + 1 == inputs { &[0] } else { &[] };
                let stamp = System::stamp(from + step * input as u64, 0);
                s.take(end, node, input, stamp, outputs, 1_000);
            }
            end
        };
        let fused = join(&mut s, grid, t + 2_000, 10, 3);
        for (n, &node) in again.iter().enumerate() {
            let at = fused + 2_000 + 10 * n as u64;
            s.take(at, node, 0, System::stamp(fused, 0), &[0], 1_000);
        }
        join(&mut s, last, fused + 2_000, 10, 6);
    }
    let mut synth = Synth::new(SynthOptions::new(run("r1", DEFAULT_MODE)));
    synth.observe();
    let mut told = std::collections::BTreeMap::<Vec<u32>, u64>::new();
    for event in &text::parse(&s.trace()).unwrap() {
        synth.push(event);
        let seen: Vec<Observation> = synth.drain_observations().collect();
        for seen in seen {
            if let Observation::Left { path, .. } = seen {
                *told.entry(synth.path(path)).or_default() += 1;
            }
        }
    }
    let ids = synth.callback_ids();
    let name = |n: &u32| ids[*n as usize].clone().unwrap();
    let told: std::collections::BTreeMap<String, u64> = told
        .into_iter()
        .map(|(path, n)| (path.iter().map(name).collect::<Vec<_>>().join(" > "), n))
        .collect();
    let m = synth.finish();
    check(&m);
    let complete: Vec<_> = m
        .chains
        .iter()
        .filter(|c| c.callbacks.last().unwrap() == "/last:sync(/out)")
        .collect();
    assert_eq!(complete.len(), 18, "{:#?}", chains(&m));
    for chain in complete {
        let path = chain.callbacks.join(" > ");
        assert_eq!(chain.figures.executions, 50, "{path}");
        assert_eq!(told.get(&path), Some(&50), "{path}");
    }
}

#[test]
fn the_coverage_lists_a_subscription_that_never_runs() {
    let mut s = System::new();
    let a = s.node("a", &[10], &[], &["/t"]);
    let b = s.node("b", &[], &["/t"], &[]);
    s.node("c", &[], &["/t"], &[]);
    for i in 1..=20 {
        s.timer(10_000 * i, a, 0, &[0], 100);
        s.take(
            10_000 * i + 500,
            b,
            0,
            System::stamp(10_000 * i, 0),
            &[],
            100,
        );
    }
    let m = s.model();
    let told: Vec<_> = m
        .coverage
        .iter()
        .filter(|c| c.contains("took nothing"))
        .collect();
    assert_eq!(told.len(), 1, "{:?}", m.coverage);
    assert!(told[0].starts_with("/c:subscription(/t) took nothing of 20 items"));
}

/// The period of a timer that is older than the recording becomes known later. The link names the
/// timer by this period.
#[test]
fn links_use_the_final_ids_of_callbacks() {
    let mut s = System::new();
    let a = s.node("a", &[10], &[], &["/t"]);
    let b = s.node("b", &[25], &["/t"], &["/u"]);
    for i in 1..=40 {
        s.timer(10_000 * i, a, 0, &[0], 100);
        s.take(
            10_000 * i + 500,
            b,
            0,
            System::stamp(10_000 * i, 0),
            &[],
            100,
        );
        if i % 5 == 0 {
            s.timer(10_000 * i + 3_000, b, 0, &[0], 100);
        }
    }
    let init = |line: &&str| !line.contains("timer_init");
    let trace: String = s
        .trace()
        .lines()
        .filter(init)
        .map(|l| format!("{l}\n"))
        .collect();
    let link = "/b:subscription(/t) -> /b:timer(50ms)";
    let tied = |m: &Model| m.edges.iter().any(|e| e.assumed.is_some());
    assert!(
        !tied(&model_with(&trace, &[link])),
        "without the ids the link is not found"
    );
    let mut options = SynthOptions::new(run("r1", DEFAULT_MODE));
    options.links = vec![link.parse().unwrap()];
    let mut first = Synth::new(options.clone());
    text::parse(&trace)
        .unwrap()
        .iter()
        .for_each(|e| first.push(e));
    options.ids = first.into_ids();
    let m = model_of(&trace, options);
    assert!(tied(&m), "{:#?}", m.coverage);
}

#[test]
fn items_published_after_the_end_of_a_subscription_are_not_lost() {
    let mut s = System::new();
    let a = s.node("a", &[10], &[], &["/t"]);
    let b = s.node("b", &[], &["/t"], &[]);
    for i in 1..=50 {
        s.timer(10_000 * i, a, 0, &[0], 100);
        if i <= 10 {
            let stamp = System::stamp(10_000 * i, 0);
            s.take(10_000 * i + 500, b, 0, stamp, &[], 100);
        }
        if i == 10 {
            s.line(10_000 * i + 5_000, b, "handle_fini handle=0x200");
        }
        if i == 40 {
            // A new subscription to the same topic, at another address.
            for what in [
                "subscription_init subscription=0x210 node=0x1 rmw=0x1210 topic=/t",
                "subscription_object subscription=0x210 object=0x290",
                "subscription_callback object=0x290 callback=0x710",
            ] {
                s.line(10_000 * i + 5_000, b, what);
            }
        }
        if i > 40 {
            let stamp = System::stamp(10_000 * i, 0);
            s.take(10_000 * i + 500, b, 0x10, stamp, &[], 100);
        }
    }
    let m = s.model();
    assert_eq!(ids(&m), ["/a:timer(10ms)", "/b:subscription(/t)"]);
    let e = edge(&m, "/a:timer(10ms)", "/b:subscription(/t)");
    assert_eq!((e.published, e.taken, e.lost), (20, 20, 0));
}

#[test]
fn ignored_topics_make_no_chains_unless_they_are_stated_as_inputs() {
    // A driver publishes /scan and /tf. A listener of /tf publishes on each item that it takes. A
    // broadcaster publishes only /tf, and so ends a chain.
    let mut s = System::new();
    let b = s.node("broadcaster", &[], &["/scan"], &["/tf"]);
    let d = s.node("driver", &[100], &[], &["/scan", "/tf"]);
    let f = s.node("filter", &[], &["/scan", "/tf"], &["/map"]);
    let v = s.node("viewer", &[], &["/map"], &[]);
    for i in 1..=10 {
        let t = 100_000 * i;
        s.timer(t, d, 0, &[0, 1], 1_000);
        s.take(t + 2_000, f, 0, System::stamp(t, 0), &[], 1_000);
        s.take(t + 2_000, b, 0, System::stamp(t, 0), &[0], 1_000);
        s.take(t + 4_000, f, 1, System::stamp(t, 1), &[0], 1_000);
        s.take(t + 5_000, f, 1, System::stamp(t + 2_000, 0), &[], 500);
        s.take(t + 6_000, v, 0, System::stamp(t + 4_000, 0), &[], 1_000);
    }
    let (scan, tf) = ("/filter:subscription(/scan)", "/filter:subscription(/tf)");
    let m = s.model();
    let broadcast = "/driver:timer(100ms) > /broadcaster:subscription(/scan)";
    let to_filter = format!("/driver:timer(100ms) > {scan}");
    assert_eq!(chains(&m), [broadcast.to_string(), to_filter]);
    assert_eq!(edge(&m, "/driver:timer(100ms)", tf).taken, 10);
    let said =
        "No chain goes through /tf, because it is infrastructure. 20 of its items were taken.";
    assert!(
        m.coverage.iter().any(|c| c.starts_with(said)),
        "{:#?}",
        m.coverage
    );

    let mut options = SynthOptions::new(run("r1", DEFAULT_MODE));
    options.ignore = Vec::new();
    let all = model_of(&s.trace(), options);
    assert!(
        chains(&all).iter().any(|c| c.contains(tf)),
        "{:#?}",
        chains(&all)
    );
    // /tf is stated as an input, so its chains are kept.
    let mut options = SynthOptions::new(run("r1", DEFAULT_MODE));
    options.inputs = vec!["/tf".into()];
    let begun = model_of(&s.trace(), options);
    assert!(
        chains(&begun).iter().any(|c| c.starts_with(tf)),
        "{:#?}",
        chains(&begun)
    );
}

#[test]
fn a_stored_value_ages_while_it_is_published_again() {
    // /in is stored every 100 ms, and a timer publishes the stored value every 50 ms.
    let mut s = System::new();
    let a = s.node("source", &[100], &[], &["/in"]);
    let k = s.node("keeper", &[50], &["/in"], &["/out"]);
    let b = s.node("sink", &[], &["/out"], &[]);
    for i in 1..=20 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        s.take(t + 2_000, k, 0, System::stamp(t, 0), &[], 1_000);
        for t in [t + 10_000, t + 60_000] {
            s.timer(t, k, 0, &[0], 1_000);
            s.take(t + 2_000, b, 0, System::stamp(t, 0), &[], 1_000);
        }
    }
    let m = model_with(
        &s.trace(),
        &["/keeper:subscription(/in) -> /keeper:timer(50ms)"],
    );
    let id = "/source:timer(100ms) > /keeper:subscription(/in) > /keeper:timer(50ms) > /sink:subscription(/out)";
    let f = &chain(&m, id).figures;
    let ms =
        |d: &onbeat_document::dist::Dist| (d.count(), d.min() / 1_000_000, d.max() / 1_000_000);
    assert_eq!(f.executions, 20);
    assert_eq!(ms(&f.latency_ns), (20, 13, 13));
    // Each value goes out twice.
    assert_eq!(ms(f.age_ns.as_ref().unwrap()), (40, 13, 63));
    // An input that comes just after the source's start shows in an output 100 ms later.
    assert_eq!(ms(&f.reaction_ns), (19, 113, 113));
    let e = edge(&m, "/keeper:subscription(/in)", "/keeper:timer(50ms)");
    assert_eq!((e.taken, e.lost, e.overwritten), (20, 0, 0));
    check(&m);
}

#[test]
fn a_chain_whose_end_only_takes_repeated_data_has_an_age_and_no_latency() {
    // The system is that of the test above, but the sink misses the first publication of each value.
    let mut s = System::new();
    let a = s.node("source", &[100], &[], &["/in"]);
    let k = s.node("keeper", &[50], &["/in"], &["/out"]);
    let b = s.node("sink", &[], &["/out"], &[]);
    for i in 1..=5 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        s.take(t + 2_000, k, 0, System::stamp(t, 0), &[], 1_000);
        s.timer(t + 10_000, k, 0, &[0], 1_000);
        s.timer(t + 60_000, k, 0, &[0], 1_000);
        s.take(t + 62_000, b, 0, System::stamp(t + 60_000, 0), &[], 1_000);
    }
    let m = model_with(
        &s.trace(),
        &["/keeper:subscription(/in) -> /keeper:timer(50ms)"],
    );
    let id = "/source:timer(100ms) > /keeper:subscription(/in) > /keeper:timer(50ms) > /sink:subscription(/out)";
    let f = &chain(&m, id).figures;
    assert_eq!((f.executions, f.lost), (0, 5));
    assert_eq!(f.age_ns.as_ref().map(|age| age.count()), Some(5));
}

fn qos_trace(durability: u8) -> String {
    let qos = |what: &str, rest: &str| {
        format!(
        "2ms cpu0 10/10 endpoint_qos {what} history=1 {rest} liveliness=1 lifespan_ns=0 lease_ns=0ms\n"
    )
    };
    let text = String::from(
        "1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=a
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/t
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/in
1ms cpu0 10/10 publisher_init publisher=0x30 node=0x1 rmw=0x1030 topic=/rosout
",
    );
    let plain = "reliability=1 durability=2 depth=10 deadline_ns=9223372036854775807";
    let own = format!("reliability=2 durability={durability} depth=5 deadline_ns=100000000");
    let unknown = "reliability=3 durability=2 depth=5 deadline_ns=0";
    text + &qos("endpoint=publisher rcl=0x10", plain)
        + &qos("endpoint=subscription rcl=0x20", &own)
        + &qos("endpoint=subscription rcl=0x20", unknown)
        + &qos("endpoint=publisher rcl=0x30", plain)
        + &qos("endpoint=publisher rcl=0x40", plain)
}

#[test]
fn qos_settings_of_publishers_and_subscriptions_are_kept() {
    let told = |m: &Model| -> Vec<String> {
        let one = |q: &Qos| {
            format!(
                "{} {} {} {:?}",
                q.reliability.text(),
                q.durability.text(),
                q.depth,
                q.deadline_ns
            )
        };
        let of = |e: &Endpoint| {
            let qos: Vec<String> = e.qos.iter().map(one).collect();
            format!("{} {:?} {}: {}", e.node, e.kind, e.topic, qos.join(", "))
        };
        m.endpoints.iter().map(of).collect()
    };
    let of = |id, durability| {
        model_of(
            &qos_trace(durability),
            SynthOptions::new(run(id, DEFAULT_MODE)),
        )
    };
    let (a, b) = (of("r1", 2), of("r2", 1));
    let publisher = "/a Publisher /t: reliable volatile 10 None";
    assert_eq!(
        told(&a),
        [
            "/a Subscription /in: best_effort volatile 5 Some(100000000)",
            publisher
        ]
    );
    // A merged model keeps the settings of both runs.
    let both = "/a Subscription /in: best_effort transient_local 5 Some(100000000), best_effort volatile 5 Some(100000000)";
    let merged = onbeat_document::merge(vec![b, a]).unwrap();
    assert_eq!(told(&merged), [both, publisher]);
}
