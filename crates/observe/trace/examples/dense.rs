//! Writes the trace of a dense graph and prints the truth about its outputs: `dense DIR [ROUNDS
//! [LAYERS [WIDTH]]]`.
use onbeat_trace::generate::{Dense, DenseOutput};
use onbeat_trace::manifest::{Machine, Span};
use onbeat_trace::{Manifest, Writer, WriterOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("dense DIR [ROUNDS [LAYERS [WIDTH]]]")?;
    let mut number = |default: u64| args.next().map_or(Ok(default), |a| a.parse());
    let (rounds, layers, width) = (number(600)?, number(8)?, number(6)?);
    let shape = Dense {
        layers: layers as usize,
        width: width as usize,
        rounds,
        seed: 1,
    };
    let mut writer = Writer::create(std::path::Path::new(&dir), WriterOptions::default())?;
    let (mut first, mut last) = (None, 0);
    let truth = shape.generate(|event| {
        last = event.time_ns;
        first.get_or_insert(last);
        writer.push(event)
    })?;
    let first = first.unwrap_or(last);
    writer.finish(Manifest {
        mode: "generated".into(),
        span: Span {
            start_realtime_ns: first,
            start_monotonic_ns: first,
            duration_ns: last - first,
        },
        machine: Machine {
            hostname: "generated".into(),
            recorder_version: env!("CARGO_PKG_VERSION").into(),
            ..Machine::default()
        },
        ..Manifest::default()
    })?;
    println!("source\tsink\toutputs\tnewest mean ms\toldest mean ms");
    for ((source, sink), outputs) in truth {
        let mean = |of: fn(&DenseOutput) -> u64| {
            let sum: u64 = outputs.iter().map(|o| o.time_ns - of(o)).sum();
            sum as f64 / outputs.len() as f64 / 1e6
        };
        let (newest, oldest) = (mean(|o| o.newest_ns), mean(|o| o.oldest_ns));
        println!(
            "{}\t{}\t{}\t{newest:.3}\t{oldest:.3}",
            Dense::node(0, source),
            Dense::node(shape.layers - 1, sink),
            outputs.len()
        );
    }
    Ok(())
}
