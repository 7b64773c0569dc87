//! A dense graph of 48 nodes in eight layers. Each node takes all six topics of the layer before,
//! so that 1.7 million paths lead through the graph. The simulated messages carry the true times
//! from each source to each sink, with which the model is compared.

use onbeat_document::cuts::{self, Cut, Ends};
use onbeat_document::schema::{EndToEnd, Run, DEFAULT_MODE};
use onbeat_document::{Dist, Model};
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::generate::{Dense, DenseOutput, DenseTruth};
use onbeat_trace::Event;
use std::collections::BTreeSet;

const SHAPE: Dense = Dense {
    layers: 8,
    width: 6,
    rounds: 120,
    seed: 1,
};

fn options() -> SynthOptions {
    SynthOptions::new(Run {
        host: String::new(),
        boot: String::new(),
        id: "r".into(),
        mode: DEFAULT_MODE.into(),
        distribution: vec!["kilted".into()],
        start: 1,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    })
}

fn generate(shape: Dense) -> (Vec<Event>, DenseTruth) {
    let mut events = Vec::new();
    let truth = shape.generate(|event| {
        events.push(event.clone());
        Ok::<(), std::convert::Infallible>(())
    });
    (events, truth.unwrap())
}

fn model(events: &[Event], options: SynthOptions) -> Model {
    let mut synth = Synth::new(options);
    events.iter().for_each(|event| synth.push(event));
    synth.finish()
}

fn node(id: &str) -> &str {
    id.split_once(':').unwrap().0
}

fn assert_near(dist: &Dist, mut truth: Vec<u64>, what: &str) {
    truth.sort_unstable();
    assert_eq!(dist.count(), truth.len() as u64, "{what}");
    let rank = |q: f64| truth[((q * truth.len() as f64).ceil() as usize).max(1) - 1];
    let mean = truth.iter().sum::<u64>() as f64 / truth.len() as f64;
    let pairs = [
        ("min", dist.min() as f64, truth[0] as f64),
        ("mean", dist.mean(), mean),
        ("median", dist.quantile(0.5) as f64, rank(0.5) as f64),
        ("p99", dist.quantile(0.99) as f64, rank(0.99) as f64),
        ("max", dist.max() as f64, rank(1.0) as f64),
    ];
    for (name, is, should) in pairs {
        let off = (is - should).abs() / should;
        assert!(off < 0.01, "{what}: {name} is {is}, not {should}");
    }
}

fn assert_true(pair: &EndToEnd, outputs: &[DenseOutput]) {
    let what = format!("{} to {}", pair.from, pair.to);
    let age = |of: fn(&DenseOutput) -> u64| outputs.iter().map(move |o| o.time_ns - of(o));
    let f = &pair.figures;
    assert_near(
        &f.latency_ns,
        age(|o| o.newest_ns).collect(),
        &format!("latency of {what}"),
    );
    assert_near(
        f.data_age_ns(),
        age(|o| o.oldest_ns).collect(),
        &format!("age of {what}"),
    );
    let mut reactions = Vec::new();
    let mut newest = None;
    for output in outputs {
        if let Some(before) = newest.filter(|&b| b < output.newest_ns) {
            reactions.push(output.time_ns - before);
        }
        newest = newest.max(Some(output.newest_ns));
    }
    assert_near(&f.reaction_ns, reactions, &format!("reaction of {what}"));
}

#[test]
fn the_time_from_each_source_to_each_sink_is_known_in_a_dense_graph() {
    let (events, truth) = generate(SHAPE);
    let model = model(&events, options());
    assert_eq!(model.end_to_end.len(), 36);
    for ((source, sink), outputs) in &truth {
        let (from, to) = (Dense::node(0, *source), Dense::node(7, *sink));
        let mut pairs = model.end_to_end.iter();
        let pair = pairs.find(|p| node(&p.from)[1..] == from && node(&p.to)[1..] == to);
        let pair = pair.unwrap_or_else(|| panic!("{from} to {to} is missing"));
        assert_true(pair, outputs);
        assert_eq!(pair.topic, format!("/{to}"));
        assert!(!pair.cut);
    }
    // A path passes one of six nodes in each layer between the ends. It enters a node by a stored
    // input or by the publishing one, and both ways lead to the sync vertex.
    let paths = model.end_to_end[0].paths.unwrap();
    assert_eq!(paths, 6_u64.pow(6));
    assert!(model.chains.len() < 400, "{}", model.chains.len());
    let bytes = serde_json::to_vec(&model).unwrap().len();
    assert!(bytes < 10_000_000, "{bytes} bytes");
    let alone = onbeat_document::merge(vec![model.clone()]).unwrap();
    assert!(alone == model, "the model changes by being merged alone");
}

#[test]
fn the_time_between_chosen_ends_is_known_in_a_dense_graph() {
    let shape = Dense {
        layers: 7,
        rounds: 100,
        ..SHAPE
    };
    // The same events, without the last layer.
    let (_, truth) = generate(shape);
    let (events, _) = generate(Dense {
        rounds: 100,
        ..SHAPE
    });
    let whole = model(&events, options());
    let ends = Ends {
        from: Some("n0_4".into()),
        to: Some("n6_1".into()),
        through: Vec::new(),
    };
    let ways = cuts::ways(&whole, &ends).unwrap();
    let cuts: BTreeSet<Cut> = ways.iter().map(|w| w.cut(&ends)).collect();
    let cut = Cut {
        from: Some("/n0_4:timer(100ms)".into()),
        to: Some("/n6_1".into()),
    };
    assert_eq!(cuts, BTreeSet::from([cut]));
    let mut options = options();
    options.cuts = cuts.into_iter().collect();
    let model = model(&events, options);
    let cut: Vec<&EndToEnd> = model.end_to_end.iter().filter(|p| p.cut).collect();
    assert_eq!(cut.len(), 1, "{:?}", cut.iter().map(|p| (&p.from, &p.to)));
    assert_eq!(model.end_to_end.len(), 37);
    let (is, should) = (&cut[0].figures, &truth[&(4, 1)]);
    assert_eq!(is.outputs, should.len() as u64);
    let mean = |of: fn(&DenseOutput) -> u64| {
        let ages = should.iter().map(|o| o.time_ns - of(o));
        ages.sum::<u64>() as f64 / should.len() as f64
    };
    let near = |is: f64, should: f64| (is - should).abs() < 0.01 * should;
    // The random times differ, because each layer draws some. Only their sum is compared.
    assert!(near(is.latency_ns.mean(), mean(|o| o.newest_ns)));
    assert!(near(is.data_age_ns().mean(), mean(|o| o.oldest_ns)));
}
