//! The memory that synthesis needs does not grow with the length of a trace. An allocator counts
//! the bytes, on a graph of 100 nodes.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_document::schema::{Run, DEFAULT_MODE};
use onbeat_synth::Synth;
use onbeat_synth::SynthOptions;
use onbeat_trace::{text, Event, EventKind};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LAYERS: usize = 10;
const CHAINS: usize = 10;

const PERIOD_NS: u64 = 100_000_000;

/// Returns the inputs of a node. A node of the first layer has none. Other nodes take the previous
/// node of their chain. In every third layer they also take the output of the neighbouring chain,
/// and publish when both inputs are there.
fn inputs(layer: usize, chain: usize) -> Vec<(usize, usize)> {
    let neighbour = (chain + 1) % CHAINS;
    match (layer, layer % 3) {
        (0, _) => vec![],
        (_, 0) => vec![(layer - 1, neighbour), (layer - 1, chain)],
        _ => vec![(layer - 1, chain)],
    }
}

fn beginning() -> String {
    let mut trace = String::new();
    for (layer, chain) in all() {
        let at = format!("1ms cpu0 {0}/{0}", pid(layer, chain));
        trace += &format!(
            "{at} node_init node=0x1 rmw=0x1001 name=n{layer}_{chain}
{at} publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/n{layer}_{chain}
"
        );
        if layer == 0 {
            trace += &format!(
                "{at} timer_init timer=0x50 period_ns=100ms
{at} timer_callback timer=0x50 callback=0x60
{at} timer_node timer=0x50 node=0x1
"
            );
        }
        for (i, (from, of)) in inputs(layer, chain).into_iter().enumerate() {
            let (s, o, c) = (0x20 + i, 0x30 + i, 0x60 + i);
            trace += &format!(
                "{at} subscription_init subscription={s:#x} node=0x1 rmw={:#x} topic=/n{from}_{of}
{at} subscription_object subscription={s:#x} object={o:#x}
{at} subscription_callback object={o:#x} callback={c:#x}
",
                s + 0x1000
            );
        }
    }
    trace
}

fn round() -> String {
    let mut trace = String::new();
    let published = |layer: usize, chain: usize| 200_000 + 5_000 * layer + 300 * chain + 290;
    for (layer, chain) in all() {
        let at = |us: usize| format!("{us}us cpu0 {0}/{0}", pid(layer, chain));
        let inputs = inputs(layer, chain);
        let end = published(layer, chain);
        let output = format!("{} publish rmw=0x1010 source_ns={end}us\n", at(end));
        if layer == 0 {
            trace += &format!(
                "{} timer_call timer=0x50\n{} callback_start callback=0x60\n{output}{} callback_end callback=0x60\n",
                at(end - 30), at(end - 30), at(end + 1)
            );
        }
        let last = inputs.len();
        for (i, (from, of)) in inputs.into_iter().enumerate() {
            let (t, publishes) = (end - 100 * (last - 1 - i), i + 1 == last);
            trace += &format!(
                "{} take rmw={:#x} source_ns={}us\n{} callback_start callback={:#x}\n",
                at(t - 30),
                0x1020 + i,
                published(from, of),
                at(t - 30),
                0x60 + i
            );
            if publishes {
                trace += &output;
            }
            trace += &format!("{} callback_end callback={:#x}\n", at(t + 1), 0x60 + i);
        }
    }
    trace
}

fn all() -> impl Iterator<Item = (usize, usize)> {
    (0..LAYERS).flat_map(|layer| (0..CHAINS).map(move |chain| (layer, chain)))
}

fn pid(layer: usize, chain: usize) -> usize {
    1000 + CHAINS * layer + chain
}

/// Returns a copy of an event that is `rounds` rounds later. Ends of callbacks get up to 49 us
/// more, so that the callbacks' execution times differ.
fn later(event: &Event, rounds: u64) -> Event {
    let by = rounds * PERIOD_NS;
    let mut event = event.clone();
    event.time_ns += by;
    match &mut event.kind {
        EventKind::Publish { source_ns, .. } => {
            *source_ns = source_ns.map(|ns| ns + by as i64);
        }
        EventKind::Take { source_ns, .. } => *source_ns += by as i64,
        EventKind::CallbackEnd { .. } => {
            event.time_ns += (rounds * 7 + u64::from(event.pid)) % 50 * 1000;
        }
        _ => {}
    }
    event
}

#[test]
fn memory_for_100_nodes_does_not_grow_with_the_trace() {
    let run = Run {
        host: String::new(),
        boot: String::new(),
        id: "r".into(),
        mode: DEFAULT_MODE.into(),
        distribution: vec!["kilted".into()],
        start: 1,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    };
    let events = |trace: String| text::parse(&trace).unwrap();
    let (beginning, round) = (events(beginning()), events(round()));
    let empty = LIVE.get();
    let mut synth = Synth::new(SynthOptions::new(run));
    beginning.iter().for_each(|event| synth.push(event));
    let mut push = |rounds: std::ops::Range<u64>| {
        for n in rounds {
            round.iter().for_each(|event| synth.push(&later(event, n)));
        }
        LIVE.get() - empty
    };
    // A count above 127 takes a second byte in a distribution: after 200 rounds most have it.
    let (early, late) = (push(0..200), push(200..1000));
    println!("kept after 200 rounds: {early} bytes, after 1000: {late}");
    // Four times as many events as before, of about 400 bytes each, would be 160 MB.
    assert!(late < early + early / 50, "from {early} to {late} bytes");
    let model = synth.finish();
    assert_eq!(
        model
            .callbacks
            .iter()
            .filter(|c| c.figures.exec_ns.count() == 1000)
            .count(),
        130
    );
    assert!(model.chains.iter().all(|c| c.figures.dropped == 0));
    assert!(model.chains.len() >= CHAINS);
}
