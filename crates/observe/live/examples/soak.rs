//! Watches processes that come and go with fresh names for many hours, and checks that memory stays
//! flat: `cargo run --release -p onbeat-live --example soak TRACE [HOURS]`. Copies of the recorded
//! system begin one after the other. Another copy lasts. Its executions are printed at the end.

#[allow(dead_code)]
#[path = "../tests/churn/mod.rs"]
mod churn;

use churn::{nothing, Recorded, SECOND_NS};
use onbeat_document::schema::Run;
use onbeat_live::view::Wanted;
use onbeat_live::{Live, LiveOptions};
use onbeat_synth::SynthOptions;
use onbeat_trace::{Event, Reader};
use std::collections::BTreeMap;
use std::error::Error;

/// The allowed growth of memory after the first tenth of the run, in percent.
const GROWTH_MAX: u64 = 5;

const COPIES_PER_HOUR: u64 = 42;

fn main() -> Result<(), Box<dyn Error>> {
    let trace = std::env::args().nth(1).ok_or("name a trace")?;
    let hours: u64 = std::env::args().nth(2).map_or(Ok(24), |n| n.parse())?;
    let events: Vec<Event> = Reader::open(&trace)?.events().collect();
    let recorded = Recorded::new(events);
    let mut live = Live::new(LiveOptions::new(SynthOptions::new(run())));
    let step_ns = 3600 * SECOND_NS / COPIES_PER_HOUR;
    let copies = hours * COPIES_PER_HOUR;
    let mut early_kb = None;
    let mut pushed = 0;
    for copy in 0..copies {
        let start_ns = 3600 * SECOND_NS + copy * step_ns;
        let lasting = recorded.lasting(start_ns, copy == 0);
        let mut all: Vec<Event> = recorded
            .copy(copy as u32, start_ns)
            .chain(lasting)
            .collect();
        all.sort_by_key(|event| event.time_ns);
        for part in all.chunks(1000) {
            live.push(part);
        }
        let end_ns = start_ns + recorded.length_ns();
        let ticks = (end_ns / (10 * SECOND_NS) + 1)..((start_ns + step_ns) / (10 * SECOND_NS));
        ticks.for_each(|ten| live.push(&[nothing(ten * 10 * SECOND_NS)]));
        pushed += all.len();
        live.refresh();
        live.view(Wanted::ALL);
        if (copy + 1) % (copies / 10).max(1) == 0 {
            let (kept, entries) = live.kept();
            let kb = resident_kb()?;
            let forgotten = live.forgotten_nodes();
            println!(
                "{:5.1} h  {pushed:9} events  {kb:7} KB  {forgotten:6} nodes forgotten  {entries} entries, {kept:?}",
                (copy + 1) as f64 / COPIES_PER_HOUR as f64
            );
            early_kb.get_or_insert(kb);
        }
    }
    let (early, late) = (early_kb.ok_or("no copy ran")?, resident_kb()?);
    let growth = late.saturating_sub(early) * 100 / early;
    println!("memory grew by {growth} % after the first tenth; the limit is {GROWTH_MAX} %");
    let model = live.model();
    let of_lasting = model
        .callbacks
        .iter()
        .filter(|c| !c.node.contains("__copy"));
    let counts = of_lasting.map(|c| c.figures.executions());
    println!("executions of the lasting system: {}", counts.sum::<u64>());
    if growth > GROWTH_MAX {
        return Err("memory grows with time".into());
    }
    Ok(())
}

fn run() -> Run {
    Run {
        id: "soak".into(),
        host: String::new(),
        boot: String::new(),
        mode: "default".into(),
        distribution: Vec::new(),
        start: 0,
        duration_ns: 0,
        lost: BTreeMap::new(),
        events: 0,
    }
}

fn resident_kb() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no VmRSS")?.parse()?)
}
