//! Runs all rules on a model. Each rule looks for one kind of cost.

mod blocking;
mod executor;
mod helper;
mod load;
mod priority;
mod queue;
mod release;
mod synchroniser;

use crate::view::View;
use crate::{Advice, Evidence, Options};
use onbeat_document::Dist;
use std::collections::BTreeSet;

/// A rule that finds one cause of costs in a model, and gives advice against this cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Rule: an urgent callback waits because its executor is running other callbacks.
    Executor,
    /// Rule: a callback is preempted by less important callbacks, or by other threads.
    Priority,
    /// Rule: a callback sleeps while it processes an item.
    Blocking,
    /// Rule: a middleware thread of the receiver waits for a CPU.
    Helper,
    /// Rule: a queue drops items of a chain.
    Queue,
    /// Rule: the timer that begins a chain starts late.
    Release,
    /// Rule: items wait at a synchroniser for items of its other inputs.
    Synchroniser,
    /// Rule: a CPU, or the threads of an executor, have no time left.
    Load,
}

impl Rule {
    /// Returns the rule's name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Executor => "executor",
            Rule::Priority => "priority",
            Rule::Blocking => "blocking",
            Rule::Helper => "helper",
            Rule::Queue => "queue",
            Rule::Release => "release",
            Rule::Synchroniser => "synchroniser",
            Rule::Load => "load",
        }
    }
}

pub(crate) fn all_advice(view: &View<'_>, options: &Options) -> Vec<Advice> {
    let mut found = Vec::new();
    for (place, chain) in view.chains() {
        let latency_ns = chain.figures.latency_ns.mean();
        let on = OnChain {
            view,
            options,
            place,
            chain,
            latency_ns,
        };
        found.extend(synchroniser::find(&on));
        for step in view.steps(chain) {
            found.extend(executor::find(&on, &step));
            found.extend(priority::find(&on, &step));
            found.extend(blocking::find(&on, &step));
            found.extend(helper::find(&on, &step));
            found.extend(queue::find(&on, &step));
            found.extend(release::find(&on, &step));
        }
    }
    found.extend(load::find(view, options));
    deduplicated(found)
}

pub(crate) struct OnChain<'a, 'm> {
    pub(crate) view: &'a View<'m>,
    pub(crate) options: &'a Options,
    pub(crate) place: usize,
    pub(crate) chain: &'m onbeat_document::schema::Chain,
    pub(crate) latency_ns: f64,
}

impl OnChain<'_, '_> {
    pub(crate) fn share_if_large(&self, ns: f64) -> Option<f64> {
        let share = ns / self.latency_ns;
        let is_large = ns >= self.options.min_time_ns && share >= self.options.min_share;
        (self.latency_ns > 0.0 && is_large).then_some(share)
    }
}

pub(crate) fn mean(figure: &str, of: &str, dist: &Dist) -> Evidence {
    Evidence {
        figure: format!("{figure}.mean"),
        of: of.to_owned(),
        value: dist.mean(),
        samples: dist.count(),
    }
}

pub(crate) fn number(figure: &str, of: &str, value: f64, samples: u64) -> Evidence {
    Evidence {
        figure: figure.to_owned(),
        of: of.to_owned(),
        value,
        samples,
    }
}

/// The number of callbacks that a finding names, and whose figures are its evidence.
pub(crate) const NAMED: usize = 3;

/// Names the first three items, and says how many more there are.
pub(crate) fn first_three<T>(
    mut items: impl Iterator<Item = T>,
    name: impl Fn(T) -> String,
) -> String {
    let named: Vec<String> = items.by_ref().take(NAMED).map(name).collect();
    let shown = named.join(", ");
    match items.count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Keeps one advice for each rule and subject: the advice with the largest `share`. Chains share
/// callbacks, so several chains may have the same advice.
fn deduplicated(mut found: Vec<Advice>) -> Vec<Advice> {
    found.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.chain.cmp(&b.chain)));
    let mut seen = BTreeSet::new();
    found.retain(|advice| seen.insert((advice.rule, advice.subject.clone())));
    found
}
