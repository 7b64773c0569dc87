//! Measures what a live model costs on a recorded trace: `cargo run --release -p onbeat-live
//! --example cost TRACE [TIMES [PIDS]]`. With TIMES, the trace follows itself that often, each time
//! in other processes if PIDS is given, and memory is
//! printed on the way.

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
    if let Some(times) = std::env::args().nth(2) {
        let pids = std::env::args().nth(3).map_or(0, |_| 100_000);
        repeat(&mut live, &events, times.parse()?, pids);
    }
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

/// Pushes the events into the live model `times` times, each time shifted to a later time, and
/// prints the memory of this process.
fn repeat(live: &mut Live, events: &[Event], times: u64, pids: u32) {
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return;
    };
    let length = last.time_ns - first.time_ns + 1_000_000;
    for number in 1..=times {
        let later = |event: &Event| Event {
            time_ns: event.time_ns + number * length,
            pid: event.pid + number as u32 * pids,
            tid: event.tid + number as u32 * pids,
            ..event.clone()
        };
        for part in events.chunks(1000) {
            let part: Vec<Event> = part.iter().map(later).collect();
            live.push(&part);
        }
        live.refresh();
        live.view(Wanted::ALL);
        if number.is_multiple_of(times.div_ceil(10)) {
            let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            let resident = status.lines().find(|line| line.starts_with("VmRSS"));
            let hours = (number * length) as f64 / 3.6e12;
            println!("{hours:6.1} h  {}", resident.unwrap_or_default());
        }
    }
}
