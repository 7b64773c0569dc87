//! Reads a timing model as an expert would: finds what costs each chain its time, with the evidence
//! and the remedy, and suggests priorities.
//!
//! The crate is pure: it reads no clock and no file.

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

/// The settings of [`advise`]: the chains that matter most, and the smallest costs that the report
/// contains.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The indices of chains in the model, the most important first. onbeat adds the chains that
    /// are missing here after them. Among the added chains, the one that spends most time outside
    /// of its callbacks comes first.
    pub order: Vec<usize>,
    /// The smallest cost that is reported, as a share of the chain's mean latency.
    pub min_share: f64,
    /// The smallest cost that is reported, in ns.
    pub min_time_ns: f64,
    /// The smallest share of dropped items at which the report names a queue.
    pub min_loss: f64,
    /// The smallest load of a CPU, or of an executor's thread, that is reported.
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

/// A measured figure that supports an advice.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The name of the figure, as in `model.json`: `waiting_ns.mean`.
    pub figure: String,
    /// The id of the callback or the topic that has the figure (untrusted).
    pub of: String,
    /// The value of the figure, in the unit that the figure's name gives.
    pub value: f64,
    /// The number of executions or items on which the value rests.
    pub samples: u64,
}

/// A cost that the rules found in a model, with its remedy and the figures that show it.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The rule that gives this advice. Reports print its name above the finding.
    pub rule: Rule,
    /// The index of the chain whose latency suffers. `None` if the advice is about a CPU or an
    /// executor.
    pub chain: Option<usize>,
    /// The callback, topic or CPU that the advice is about (untrusted).
    pub subject: String,
    /// The largest part of the chain's mean latency for which the finding can be the cause, in ns.
    /// It is `None` if the cost is not a time.
    pub cost_ns: Option<f64>,
    /// The cost as a share. For a chain, this is a share of its mean latency. For a queue, it is a
    /// share of all items. For a CPU or an executor, it is the load. For a late timer, it is the
    /// delay divided by the period.
    pub share: f64,
    /// A sentence that says what costs time, with the measured values.
    pub finding: String,
    pub remedy: String,
    pub evidence: Vec<Evidence>,
}

/// All advice for a model, and the questions that the model cannot answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The indices of chains in the model, the most important first. Chains without executions are
    /// left out.
    pub order: Vec<usize>,
    /// The advice, the largest share first. Equal shares are in the order of the model's chains.
    pub advices: Vec<Advice>,
    /// Sentences that say which questions the model cannot answer, and why.
    pub not_judged: Vec<String>,
}

/// Returns advice on what adds most to the latencies of a model's chains, and on what the user can
/// change.
pub fn advise(model: &Model, options: &Options) -> Report {
    let order = order(model, options);
    let view = View::of(model, &order);
    let mut advices = rules::all_advice(&view, options);
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

/// Returns the chains with executions: first those that the options name, in their order, then the
/// remaining ones. Among the remaining ones, the chain that spends most time outside of its
/// callbacks comes first.
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
    let mut lines = vec![
        "A model does not contain the phases of timers, so it cannot show whether timers of one period are due at the same instant."
            .to_owned(),
    ];
    if model.helpers.is_empty() {
        lines.push(
            "The recording contains only threads that run callbacks. Record with --all-threads to judge other threads too, such as those of the middleware."
                .to_owned(),
        );
    }
    let lost: u64 = model.runs.iter().flat_map(|r| r.lost.values()).sum();
    if lost > 0 {
        lines.push(format!(
            "{lost} events were lost. Figures near them, and advice that rests on these figures, may be wrong."
        ));
    }
    lines
}
