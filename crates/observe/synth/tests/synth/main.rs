//! Models of hand-written traces: one scenario per test, in the text form of events.
//!
//! Handles: nodes 0x1.., publishers 0x10.. (rmw +0x1000), subscriptions 0x20.., services 0x30..,
//! clients 0x40.., timers 0x50.., callbacks 0x60... Times are in ms.

mod actions;
mod cuts;
mod dds;
mod events;
mod helpers;
mod influence;
mod junctions;
mod late;
mod links;
mod modes;
mod naming;
mod nesting;
mod rclcpp;
mod rclpy;
mod reference;
mod services;
mod structure;
mod synchronisers;
mod threads;
mod timers;

use onbeat_document::schema::*;
use onbeat_document::Model;
use onbeat_synth::observe::Observation;
use onbeat_synth::Link;
use onbeat_synth::Synth;
use onbeat_synth::SynthOptions;
use onbeat_trace::text;

fn run(id: &str, mode: &str) -> Run {
    Run {
        host: String::new(),
        boot: String::new(),
        id: id.into(),
        mode: mode.into(),
        distribution: vec!["kilted".into()],
        start: 1,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    }
}

fn model(trace: &str) -> Model {
    model_with(trace, &[])
}

fn model_with(trace: &str, links: &[&str]) -> Model {
    let mut options = SynthOptions::new(run("r1", DEFAULT_MODE));
    options.links = links.iter().map(|l| l.parse::<Link>().unwrap()).collect();
    model_of(trace, options)
}

fn model_of(trace: &str, options: SynthOptions) -> Model {
    let events = text::parse(trace).unwrap_or_else(|e| panic!("{e}"));
    let mut synth = Synth::new(options);
    for event in &events {
        synth.push(event);
    }
    let model = synth.finish();
    check(&model);
    model
}

/// Checks what must be true for every model: shares add up, ids are sorted, and the model does not
/// change when it is written to a file and read, or merged as the only model.
fn check(model: &Model) {
    for chain in &model.chains {
        let f = &chain.figures;
        let sum: u128 = f
            .shares
            .iter()
            .map(|s| s.sum_ns.parse::<u128>().unwrap())
            .sum();
        assert_eq!(sum, f.latency_ns.sum(), "shares of {chain:#?}");
        assert_eq!(f.executions, f.latency_ns.count());
        assert_eq!(f.shares.len(), 2 * chain.callbacks.len() - 1);
    }
    let ids: Vec<_> = model.callbacks.iter().map(|c| &c.id).collect();
    assert!(ids.windows(2).all(|w| w[0] < w[1]), "{ids:?}");
    for edge in &model.edges {
        let f = &edge.figures;
        assert!(f.taken + f.lost <= f.published, "{edge:#?}");
    }
    let text = serde_json::to_string(model).unwrap();
    let again: Model = serde_json::from_str(&text).unwrap();
    assert!(
        &again == model,
        "the model changes by being written and read"
    );
    let alone = onbeat_document::merge(vec![again]).unwrap();
    assert!(&alone == model, "the model changes by being merged alone");
}

fn callback<'m>(model: &'m Model, id: &str) -> &'m Callback {
    model
        .callbacks
        .iter()
        .find(|c| c.id == id)
        .unwrap_or_else(|| {
            panic!("no callback {id}; there are {:?}", ids(model));
        })
}

fn ids(model: &Model) -> Vec<&str> {
    model.callbacks.iter().map(|c| c.id.as_str()).collect()
}

fn edges(model: &Model) -> Vec<String> {
    model
        .edges
        .iter()
        .map(|e| format!("{} -> {} {}", e.from, e.to, e.topic))
        .collect()
}

fn edge<'m>(model: &'m Model, from: &str, to: &str) -> &'m EdgeFigures {
    let found = model.edges.iter().find(|e| e.from == from && e.to == to);
    &found
        .unwrap_or_else(|| panic!("no such edge; there are {:#?}", edges(model)))
        .figures
}

fn chains(model: &Model) -> Vec<String> {
    let mut all: Vec<_> = model
        .chains
        .iter()
        .map(|c| c.callbacks.join(" > "))
        .collect();
    all.sort();
    all
}

fn chain<'m>(model: &'m Model, callbacks: &str) -> &'m Chain {
    let found = model
        .chains
        .iter()
        .find(|c| c.callbacks.join(" > ") == callbacks);
    found.unwrap_or_else(|| panic!("no such chain; there are {:#?}", chains(model)))
}
