//! A timing model read as an expert would read it: what costs each chain its time, with the evidence and
//! the remedy; and priorities for its threads. Values in, values out: no clock, no file.

mod bounds;
mod isolated;
mod output;
mod priorities;
mod rules;
mod view;

pub use bounds::{bounds, ChainBound, NoBound, StepBound};
pub use isolated::{isolated, IsolatedError};
pub use output::json;
pub use priorities::{Assigned, Priorities, HIGHEST};
pub use rules::Rule;

use onbeat_document::Model;
use view::View;

/// What is worth an advice.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Chains by their place in the model, the most important first. Empty: those come first that lose most.
    pub order: Vec<usize>,
    /// Smallest part of a chain's mean latency that matters.
    pub min_share: f64,
    /// Smallest time that matters, ns.
    pub min_time_ns: f64,
    /// Smallest share of items that matters, for those that a queue drops.
    pub min_loss: f64,
    /// Largest load of a CPU, or of an executor's thread, that needs no advice.
    pub max_load: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            order: vec![],
            min_share: 0.05,
            min_time_ns: 100_000.0,
            min_loss: 0.005,
            max_load: 0.8,
        }
    }
}

/// One figure that an advice stands on.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Name of the figure, as in `model.json`: `waiting_ns.mean`.
    pub figure: String,
    /// Id of the callback, or topic, whose figure it is (untrusted).
    pub of: String,
    /// Its value; the unit is in the figure's name, else it is a number.
    pub value: f64,
    /// Executions or items that it stands on.
    pub samples: u64,
}

/// What to change, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The rule that found it.
    pub rule: Rule,
    /// The chain that it costs, by its place in the model. None: it concerns a CPU or an executor.
    pub chain: Option<usize>,
    /// Callback, topic or CPU (untrusted).
    pub subject: String,
    /// How much of the chain's mean latency it costs at most, ns. None: it costs items, or room.
    pub cost_ns: Option<f64>,
    /// Part of the chain's mean latency; of all items for a queue; load for CPUs and executors.
    pub share: f64,
    /// What was found: a sentence.
    pub finding: String,
    /// What to do: a sentence.
    pub remedy: String,
    /// The figures of `finding`.
    pub evidence: Vec<Evidence>,
}

/// What comes of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Chains by their place in the model, the most important first. Those without an execution are left out.
    pub order: Vec<usize>,
    /// What costs most first: of the more important chain first where they cost the same.
    pub advices: Vec<Advice>,
    /// Sentences: what this model cannot tell.
    pub not_judged: Vec<String>,
}

/// Reads the model.
pub fn advise(model: &Model, options: &Options) -> Report {
    let order = order(model, options);
    let view = View::of(model, &order);
    let mut advices = rules::all(&view, options);
    advices.sort_by(|a, b| {
        b.share
            .total_cmp(&a.share)
            .then_with(|| (a.chain, a.rule, &a.subject).cmp(&(b.chain, b.rule, &b.subject)))
    });
    Report {
        order,
        advices,
        not_judged: not_judged(model),
    }
}

/// The chains that have executions, in the wanted order; else those first that lose most of their latency.
fn order(model: &Model, options: &Options) -> Vec<usize> {
    let lost = |i: usize| {
        let parts = model.chains[i].figures.shares.iter();
        let lost = parts.filter(|s| s.element != "callback").map(|s| s.mean_ns);
        lost.sum::<f64>()
    };
    let has_run = |&i: &usize| model.chains[i].figures.executions > 0;
    let all = (0..model.chains.len()).filter(has_run);
    let mut rest: Vec<usize> = all.filter(|i| !options.order.contains(i)).collect();
    rest.sort_by(|&a, &b| lost(b).total_cmp(&lost(a)));
    let wanted = options.order.iter().copied().filter(has_run);
    wanted.chain(rest).collect()
}

fn not_judged(model: &Model) -> Vec<String> {
    let mut said = vec![
        "Whether timers of one period come at the same instant: a model keeps no phases."
            .to_owned(),
    ];
    if model.helpers.is_empty() {
        said.push(
            "Threads that run no callback, as the middleware's: the recording has none (onbeat record --all-threads)."
                .to_owned(),
        );
    }
    let lost: u64 = model.runs.iter().flat_map(|r| r.lost.values()).sum();
    if lost > 0 {
        said.push(format!(
            "{lost} events were lost: figures near them are off, and so may be what follows from them."
        ));
    }
    said
}
