//! Measures what a live model costs on a recorded trace: `cargo run --release -p onbeat-live
//! --example cost TRACE`.

use onbeat_live::view::Wanted;
use onbeat_live::{Live, LiveOptions};
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{Event, Reader};
use std::collections::BTreeMap;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let trace = std::env::args().nth(1).ok_or("name a trace")?;
    let events: Vec<Event> = Reader::open(&trace)?.events().collect();
    let options = SynthOptions::new(onbeat_document::schema::Run {
        id: "cost".into(),
        host: String::new(),
        boot: String::new(),
        mode: "default".into(),
        distribution: Vec::new(),
        start: 0,
        duration_ns: 0,
        lost: BTreeMap::new(),
        events: 0,
    });
    let per_event = |begin: Instant| begin.elapsed().as_nanos() as f64 / events.len() as f64;
    let begin = Instant::now();
    let mut synth = Synth::new(options.clone());
    events.iter().for_each(|event| synth.push(event));
    println!("synthesis   {:8.0} ns per event", per_event(begin));
    let mut live = Live::new(LiveOptions::new(options));
    let begin = Instant::now();
    events.chunks(1000).for_each(|part| live.push(part));
    println!("live model  {:8.0} ns per event", per_event(begin));
    for _ in 0..3 {
        let begin = Instant::now();
        live.refresh();
        println!("refresh     {:8.0} us", begin.elapsed().as_micros());
        let begin = Instant::now();
        live.view(Wanted::ALL);
        println!("all rows    {:8.0} us", begin.elapsed().as_micros());
    }
    Ok(())
}
