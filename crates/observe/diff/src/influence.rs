//! Compares how much time each component costs each chain in two models: alone and integrated
//! (thesis section 3.8).
//!
//! A chain's cost is a sum over its callbacks. Each term is the mean time per execution for which a
//! callback's thread was ready while the component had the CPU. Time within the callback and right
//! before its start counts. Time before the start of the chain's first callback is not part of the
//! latency and does not count. Sleep within a callback is attributed to the component that ended
//! it.

use crate::rows::{by_id, CallbacksById, ChainsByWay};
use crate::{Options, WAITING};
use onbeat_document::schema::{Callback, Cause, Chain, Component, ComponentKind, Model};
use onbeat_document::titles::titles;
use onbeat_document::Dist;
use serde::Serialize;
use std::collections::BTreeMap;

/// A difference between two costs counts if it is at least this number of standard errors. The
/// number is high, because hundreds of costs are compared.
const ERRORS: f64 = 3.5;

/// The way in which a component makes a chain wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The component has the CPU while the callback's thread is ready.
    HasCpu,
    /// The callback sleeps until the component wakes it up.
    Wakes,
}

impl How {
    /// Returns how the component makes the chain wait, in words for a report.
    pub fn text(self) -> &'static str {
        match self {
            How::HasCpu => "has the CPU",
            How::Wakes => "ends a sleep",
        }
    }
}

/// The time that a component costs a chain in one model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Cost {
    /// The mean cost per execution of the chain, in ns.
    pub mean_ns: f64,
    /// The number of recorded waits of the chain for the component.
    pub times: u64,
    /// The smallest number of executions that any callback of the chain has.
    pub executions: u64,
    #[serde(skip)]
    variance: f64,
}

/// The cost of one component for one chain, in both models.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Influence {
    pub chain: String,
    /// The readable name of the chain (untrusted).
    pub title: String,
    /// The component in words: its nodes or its process (untrusted).
    pub component: String,
    pub how: How,
    pub a: Cost,
    pub b: Cost,
    /// The difference of the costs as a share of the chain's mean latency in the first model.
    pub of_latency: f64,
    /// The callback with the largest part of the difference between the costs (untrusted).
    pub mostly: String,
}

impl Influence {
    /// Returns the cost in the second model minus the cost in the first, in ns.
    pub fn difference_ns(&self) -> f64 {
        self.b.mean_ns - self.a.mean_ns
    }
}

/// All costs that differ between two models, the largest difference first.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Influences {
    pub found: Vec<Influence>,
    /// The number of pairs of chain and component that were compared.
    pub compared: usize,
    pub notes: Vec<String>,
}

/// A component and the way in which it makes a chain wait. All threads of a process are one
/// component.
type Key = (String, How);

#[derive(Debug, Clone, Default)]
struct Costs {
    of: BTreeMap<Key, Cost>,
    at: BTreeMap<(Key, String), f64>,
    executions: u64,
}

/// Compares how much time each component costs each chain. `a` is the model from before a change,
/// or of a system alone. `b` is the model from after the change, or of the integrated system.
pub fn influence(a: &Model, b: &Model, options: &Options) -> Influences {
    let mut report = Influences::default();
    let mut only = b.chains.len();
    let others = ChainsByWay::of(b);
    let callbacks = (by_id(a), by_id(b));
    for (chain, title) in a.chains.iter().zip(titles(a)) {
        let Some(other) = others.same(chain) else {
            only += 1;
            continue;
        };
        only -= 1;
        let costs = (costs(&callbacks.0, chain), costs(&callbacks.1, other));
        compare(&mut report, (a, b), (chain, costs), &title, options);
    }
    let size = |i: &Influence| i.difference_ns().abs();
    report.found.sort_by(|x, y| {
        let by_name = || (&x.title, &x.component).cmp(&(&y.title, &y.component));
        size(y).total_cmp(&size(x)).then_with(by_name)
    });
    if only > 0 {
        report.notes.push(format!(
            "{only} chains exist in only one of the models and were not compared."
        ));
    }
    for (model, which) in [(a, "first"), (b, "second")] {
        report.notes.extend(unseen(model, which));
    }
    report.notes.push(format!(
        "The cost of a component is the time for which a chain waits because of this component. A model does not show by how much a cost differs between runs, so onbeat assumes {0:.0} % of the cost (2 x --run-spread). Number of runs: {1} in the first model, {2} in the second. With more runs, onbeat finds smaller differences.",
        options.run_spread * WAITING * 100.0,
        a.runs.len(),
        b.runs.len()
    ));
    report.notes.push(
        "Costs include neither interrupts, nor the waits of threads that run no callback, nor the slowdown by shared caches and memory. To find such a slowdown, compare execution times: use `onbeat diff` without --influence."
            .into(),
    );
    report
}

fn compare(
    report: &mut Influences,
    (a, b): (&Model, &Model),
    (chain, (before, after)): (&Chain, (Costs, Costs)),
    title: &str,
    options: &Options,
) {
    let latency = chain.figures.latency_ns.mean();
    if before.executions == 0 || after.executions == 0 {
        return;
    }
    let mut keys: Vec<&Key> = before.of.keys().chain(after.of.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        report.compared += 1;
        let cost = |of: &Costs| {
            let none = Cost {
                executions: of.executions,
                ..Cost::default()
            };
            of.of.get(key).copied().unwrap_or(none)
        };
        let found = Influence {
            chain: chain.id.clone(),
            title: title.into(),
            component: key.0.clone(),
            how: key.1,
            a: cost(&before),
            b: cost(&after),
            of_latency: 0.0,
            mostly: mostly(key, chain, &before, &after),
        };
        let by = found.difference_ns().abs();
        let error = (found.a.variance
            + found.b.variance
            + between_runs(&found.a, a, options)
            + between_runs(&found.b, b, options))
        .sqrt();
        let of_latency = found.difference_ns() / latency.max(1.0);
        let matters = by >= options.min_time_ns && of_latency.abs() >= options.min_effect;
        if matters && by > ERRORS * error {
            report.found.push(Influence {
                of_latency,
                ..found
            });
        }
    }
}

/// Returns the assumed variance of a mean cost between runs of the same program, in ns^2.
fn between_runs(cost: &Cost, model: &Model, options: &Options) -> f64 {
    let spread = options.run_spread * WAITING * cost.mean_ns;
    spread * spread / model.runs.len().max(1) as f64
}

fn mostly(key: &Key, chain: &Chain, before: &Costs, after: &Costs) -> String {
    let at = |of: &Costs, id: &String| {
        let at = of.at.get(&(key.clone(), id.clone()));
        at.copied().unwrap_or(0.0)
    };
    let by = |id: &&String| (at(after, id) - at(before, id)).abs();
    let most = chain
        .callbacks
        .iter()
        .max_by(|x, y| by(x).total_cmp(&by(y)));
    most.cloned().unwrap_or_default()
}

fn name(by: &Component) -> String {
    match by.kind {
        ComponentKind::Thread if !by.nodes.is_empty() => by.nodes.join(" and "),
        ComponentKind::Thread if !by.process.is_empty() => by.process.clone(),
        ComponentKind::Unnamed | ComponentKind::Untold => {
            Component::of(ComponentKind::Untold).title()
        }
        _ => by.title(),
    }
}

fn costs(callbacks: &CallbacksById<'_>, chain: &Chain) -> Costs {
    let mut costs = Costs::default();
    for (place, id) in chain.callbacks.iter().enumerate() {
        let Some(callback) = callbacks.get(id.as_str()) else {
            continue;
        };
        let n = callback.figures.preempted_ns.count();
        if n == 0 {
            continue;
        }
        costs.executions = match costs.executions {
            0 => n,
            least => least.min(n),
        };
        let figures = &callback.figures;
        let within = of_executions(&figures.preempted_ns);
        let asleep = of_executions(&figures.blocked_ns);
        for cause in &figures.causes {
            let mut cpu = Waits {
                ns: cause.preempted_ns,
                times: cause.preempted,
                variance: within,
            };
            if place > 0 && cause.delayed_ns > 0 {
                cpu.ns += cause.delayed_ns;
                cpu.times += cause.delayed;
                cpu.variance = within.max(of_executions(&figures.response_ns));
            }
            costs.add((name(&cause.by), How::HasCpu), id, cpu, n);
            let sleep = Waits {
                ns: cause.blocked_ns,
                times: cause.blocked,
                variance: asleep,
            };
            costs.add((name(&cause.by), How::Wakes), id, sleep, n);
        }
        let untold = Component::of(ComponentKind::Untold).title();
        let (cpu, sleep) = missing(callback);
        for (how, ns, variance) in [(How::HasCpu, cpu, within), (How::Wakes, sleep, asleep)] {
            let waits = Waits {
                ns,
                times: 1,
                variance,
            };
            costs.add((untold.clone(), how), id, waits, n);
        }
    }
    let executions = costs.executions;
    costs
        .of
        .values_mut()
        .for_each(|c| c.executions = executions);
    costs
}

struct Waits {
    ns: u64,
    times: u64,
    /// The variance, in ns^2, of the callback's mean wait per execution. A wait includes all
    /// components that make the callback wait in the same way.
    variance: f64,
}

/// Returns the variance of the mean of a figure that has one value per execution, in ns^2.
fn of_executions(dist: &Dist) -> f64 {
    let (mean, n) = (dist.mean(), dist.count() as f64);
    let squares: f64 = dist
        .buckets()
        .map(|(low, width, count)| {
            let off = low as f64 + (width - 1) as f64 / 2.0 - mean;
            off * off * count as f64
        })
        .sum();
    squares / (n * (n - 1.0)).max(1.0)
}

impl Costs {
    fn add(&mut self, key: Key, callback: &str, waits: Waits, executions: u64) {
        let Waits {
            ns,
            times,
            variance,
        } = waits;
        if ns == 0 {
            return;
        }
        let mean = ns as f64 / executions as f64;
        let cost = self.of.entry(key.clone()).or_default();
        cost.mean_ns += mean;
        cost.times = cost.times.saturating_add(times);
        // Random waits vary in length as much as they are long. Waits that come together vary more,
        // such as the hundred that one execution meets while a neighbour starts.
        cost.variance += variance.max(2.0 * mean * mean / times.max(1) as f64);
        *self.at.entry((key, callback.into())).or_default() += mean;
    }
}

fn missing(c: &Callback) -> (u64, u64) {
    let sum = |of: fn(&Cause) -> u64| -> u128 {
        c.figures
            .causes
            .iter()
            .map(|cause| u128::from(of(cause)))
            .sum()
    };
    let rest = |all: u128, told: u128| u64::try_from(all.saturating_sub(told)).unwrap_or(u64::MAX);
    (
        rest(c.figures.preempted_ns.sum(), sum(|c| c.preempted_ns)),
        rest(c.figures.blocked_ns.sum(), sum(|c| c.blocked_ns)),
    )
}

fn unseen(model: &Model, which: &str) -> Option<String> {
    let (mut all, mut told) = ((0u128, 0u128), (0u128, 0u128));
    for c in &model.callbacks {
        all.0 += c.figures.preempted_ns.sum();
        all.1 += c.figures.blocked_ns.sum();
        let named =
            |c: &&Cause| !matches!(c.by.kind, ComponentKind::Untold | ComponentKind::Unnamed);
        for cause in c.figures.causes.iter().filter(named) {
            told.0 += u128::from(cause.preempted_ns);
            told.1 += u128::from(cause.blocked_ns);
        }
    }
    let ms = |ns: u128| ns as f64 / 1e6;
    if all.0 + all.1 > 0 && told == (0, 0) {
        return Some(format!(
            "The {which} model contains no causes of preemption. Its recordings were made with an older version of onbeat, or on a Linux before 5.13."
        ));
    }
    let rest = (all.0.saturating_sub(told.0), all.1.saturating_sub(told.1));
    (rest != (0, 0)).then(|| {
        format!(
            "In the {which} model, the cause is unknown for {preempted:.1} of {all_preempted:.1} ms of preemption, and for {slept:.1} of {all_slept:.1} ms of sleep within callbacks. Wake-ups by other processes, timers and interrupts are not recorded.",
            preempted = ms(rest.0), all_preempted = ms(all.0), slept = ms(rest.1), all_slept = ms(all.1)
        )
    })
}

/// Reports whether a model contains the causes of waits.
pub fn tells(model: &Model) -> bool {
    model.callbacks.iter().any(|c| !c.figures.causes.is_empty())
}
