//! Measures how long synthesis takes on a dense graph, and how far the times in its model are from
//! the true times: `dense_times [ROUNDS [LAYERS [WIDTH]]]`.
use onbeat_document::schema::{Run, DEFAULT_MODE};
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::generate::{Dense, DenseOutput};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().map_or(Ok(default), |a| a.parse());
    let (rounds, layers, width) = (number(600)?, number(8)?, number(6)?);
    let shape = Dense {
        layers: layers as usize,
        width: width as usize,
        rounds,
        seed: 1,
    };
    let mut events = Vec::new();
    let truth = shape.generate(|event| -> Result<(), std::convert::Infallible> {
        events.push(event.clone());
        Ok(())
    })?;
    let mut synth = Synth::new(SynthOptions::new(Run {
        host: String::new(),
        boot: String::new(),
        id: "dense".into(),
        mode: DEFAULT_MODE.into(),
        distribution: Vec::new(),
        start: 1,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    }));
    let start = Instant::now();
    events.iter().for_each(|event| synth.push(event));
    let pushed = start.elapsed().as_secs_f64();
    let model = synth.finish();
    let all = start.elapsed().as_secs_f64();
    let mut file = Vec::new();
    onbeat_document::file::write(&mut file, &model)?;
    let mut worst: f64 = 0.0;
    for ((source, sink), outputs) in &truth {
        let (from, to) = (
            Dense::node(0, *source),
            Dense::node(shape.layers - 1, *sink),
        );
        let is = |id: &str, node: &str| id[1..].starts_with(&format!("{node}:"));
        let mut pairs = model.end_to_end.iter();
        let pair = pairs.find(|p| is(&p.from, &from) && is(&p.to, &to));
        let figures = &pair.ok_or(format!("{from} to {to} is missing"))?.figures;
        let mean = |of: fn(&DenseOutput) -> u64| {
            let sum: u64 = outputs.iter().map(|o| o.time_ns - of(o)).sum();
            sum as f64 / outputs.len() as f64
        };
        let off = |is: f64, should: f64| (is - should).abs() / should;
        let counts = [figures.outputs, outputs.len() as u64].map(|n| n as f64);
        worst = worst
            .max(off(figures.latency_ns.mean(), mean(|o| o.newest_ns)))
            .max(off(figures.data_age_ns().mean(), mean(|o| o.oldest_ns)))
            .max(off(counts[0], counts[1]));
    }
    println!(
        "{} events: {:.2} M/s, with the model {:.2} M/s; {} pairs, {} chains, {:.2} MB; {:.3} % from the truth",
        events.len(),
        events.len() as f64 / pushed / 1e6,
        events.len() as f64 / all / 1e6,
        model.end_to_end.len(),
        model.chains.len(),
        file.len() as f64 / 1e6,
        worst * 100.0
    );
    Ok(())
}
