//! Plans a profile with a few slow executions: leaves out those that the sample can justify.

use super::{millionths, without, Maker};
use crate::bands::Samples;
use crate::error::PlanError;
use crate::profile::{upper_share, Profile, CONFIDENCE};
use crate::request::{Request, Strategy};
use crate::schema::{LeftOut, Miss, Ms, Plan};
use crate::scope::Scope;
use onbeat_document::schema::{Callback, ComponentKind};
use onbeat_document::text::{percent, visible};
use onbeat_document::{Dist, Model};

const MAX_UNASKED_MISS_RATE: f64 = 0.1;

/// The largest share of executions that a plan leaves out although they would fit into the cycle.
const FEW: f64 = 0.01;

/// The smallest miss rate of a plan that leaves out the slowest executions. The plan promises this
/// rate even if the measurement supports a smaller one.
const LEAST: f64 = 1e-3;

/// Plans the chain with all measured executions if they fit and none is far slower than the rest.
/// Otherwise leaves out the slowest ones.
pub(super) fn plan(model: &Model, request: &Request) -> Result<Plan, PlanError> {
    let whole = without(model, request, 0);
    if matches!(&whole, Err(e) if !e.is_about_length()) {
        return whole;
    }
    let scope = Scope::new(model, request, 0)?;
    let sample = Sample::of(&scope);
    let least = match &whole {
        Ok(_) => 0,
        Err(_) => match fewest_that_fit(model, request, sample.most()) {
            Some(count) => count,
            None => return whole.map_err(|e| with_remedy(e, (model, request), &scope, &sample)),
        },
    };
    let count = match request.strategy {
        // With more bands, a slow execution costs only itself.
        Strategy::Bands(1) => {
            far_from_the_rest(&Samples::pairs(&scope.latency), least, sample.most())
        }
        _ => least,
    };
    match count {
        0 => whole,
        // The kept executions are a subset of those that fit.
        count => without(model, request, count).or_else(|e| match least {
            0 => whole,
            _ => Err(e),
        }),
    }
}

struct Sample {
    executions: u64,
    effect: f64,
}

impl Sample {
    fn of(scope: &Scope<'_>) -> Sample {
        let profile = Profile::of_chains(&scope.chains, &scope.model.runs);
        Sample {
            executions: scope.slowest.of,
            // Without the starts of the executions, the model shows no dependence.
            effect: profile.map_or(1.0, |p| p.estimated_effect()),
        }
    }

    fn independent(&self) -> u64 {
        (self.executions as f64 / self.effect) as u64
    }

    /// Returns the miss rate that the measured executions support if `count` of them are left out.
    fn rate(&self, count: u64) -> f64 {
        let exceeded = (count as f64 / self.effect).ceil() as u64;
        let rate = upper_share(exceeded, self.independent()).max(LEAST);
        // A miss rate is below 1, also of a plan that only tells what would fit.
        ((rate * 1e4).ceil() / 1e4).min(0.9999)
    }

    fn most(&self) -> u64 {
        let counts: Vec<u64> =
            (0..=(self.executions as f64 * MAX_UNASKED_MISS_RATE) as u64).collect();
        let may = counts.partition_point(|&count| self.rate(count) <= MAX_UNASKED_MISS_RATE);
        (may as u64).saturating_sub(1)
    }
}

/// Returns how many of the slowest executions must be left out so that the chain fits into its
/// cycle, or `None` if more than `most`. A plan can fail nevertheless, for example because too few
/// executions are left for its bands.
fn fewest_that_fit(model: &Model, request: &Request, most: u64) -> Option<u64> {
    let (mut low, mut high) = (0, most);
    let fits = |count| !matches!(without(model, request, count), Err(e) if e.is_about_length());
    if high == 0 || !fits(high) {
        return None;
    }
    // `low` does not fit, `high` does.
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match fits(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    Some(high)
}

/// Returns how many of the slowest executions to leave out, from `least` to `most`. The result is
/// above `least` if a few more executions take at least twice as long as all others. Because of
/// such executions, the outputs of a plan with one band would always wait as long as the slowest
/// ones take. `pairs` has the latencies in ascending order, each with its number of executions.
fn far_from_the_rest(pairs: &[(u64, u64)], least: u64, most: u64) -> u64 {
    let total: u64 = pairs.iter().map(|p| p.1).sum();
    let few = ((total as f64 * FEW) as u64).min(most);
    let (mut above, mut kept_worst) = (0, None);
    for &(value, count) in pairs.iter().rev() {
        match kept_worst {
            None if above + count > least => kept_worst = Some(value),
            Some(_) if above > few => return least,
            Some(worst) if value <= worst / 2 => return above,
            _ => {}
        }
        above += count;
    }
    least
}

/// Adds a way out to the error of a chain that does not fit. The way out names a period, or a
/// number of left-out executions, with which the chain would fit.
fn with_remedy(
    error: PlanError,
    (model, request): (&Model, &Request),
    scope: &Scope<'_>,
    sample: &Sample,
) -> PlanError {
    let PlanError::TooLong {
        what,
        need,
        have,
        slowest,
        usual,
        ..
    } = error
    else {
        return error;
    };
    let all = sample.executions;
    let too_many = fewest_that_fit(model, request, all.saturating_sub(1));
    let mut remedy = match too_many {
        Some(count) => format!(
            "The chain fits into the cycle without the {count} slowest of {all} executions ({}), but onbeat may leave out at most {} executions.",
            percent(count as f64 / all as f64),
            sample.most()
        ),
        None => format!("None of the {all} executions fits into the cycle."),
    };
    remedy += &match too_many {
        Some(count) if (count as f64) < all as f64 * MAX_UNASKED_MISS_RATE => {
            " Record longer: in a larger sample, onbeat may leave out more slow executions."
                .to_string()
        }
        _ => {
            let usual = without(model, request, (all as f64 * FEW) as u64);
            let need = match usual {
                Err(PlanError::TooLong { need, .. }) => need,
                _ => need,
            };
            let tenth = need.0.div_ceil(10_000_000).saturating_mul(10_000_000);
            format!(
                " Without the slowest 1 % of the executions, the chain fits into a period of {}.",
                Ms(tenth)
            )
        }
    };
    if !scope.has_real_time_priority() {
        remedy += " The chain was measured without real-time priority: measure it again under --strategy fifo.";
    }
    PlanError::TooLong {
        what,
        need,
        have,
        slowest,
        usual,
        remedy,
    }
}

impl Maker<'_, '_> {
    pub(super) fn left_out(&self) -> Option<LeftOut> {
        let slowest = self.scope.slowest;
        (slowest.count > 0).then(|| LeftOut {
            executions: slowest.count,
            share: millionths(slowest.share()),
            latency_ms: super::slot(slowest.latency_ns.0, slowest.latency_ns.1),
            kept_ms: Ms(self.scope.latency.max()),
            cause: cause(self.scope),
        })
    }

    pub(super) fn miss_of_left_out(&self, last_ns: u64) -> Option<Miss> {
        let slowest = self.scope.slowest;
        let sample = Sample::of(self.scope);
        (slowest.count > 0).then(|| Miss {
            rate: sample.rate(slowest.count),
            confidence: CONFIDENCE,
            limit_ms: Ms(last_ns.saturating_add(self.start_ns)),
            starts: self.scope.model.runs.len() as u64,
            executions: sample.executions,
            independent: sample.independent(),
            shape: None,
        })
    }
}

/// Returns the probable cause of the slowest executions, as a part of a sentence. The cause is what
/// most exceeded its 95th percentile: a callback's execution, preemption, sleep or late start. It
/// must explain at least half of the time by which the slowest execution exceeds all executions
/// that are not left out.
fn cause(scope: &Scope<'_>) -> String {
    let excess = |dist: &Dist| dist.max().saturating_sub(dist.quantile(0.95));
    let of_part = |callback: &Callback| {
        let f = &callback.figures;
        let id = visible(&callback.id);
        let by = |time: fn(&onbeat_document::schema::Cause) -> u64| {
            let most = f.causes.iter().max_by_key(|&c| time(c));
            most.filter(|&c| time(c) > 0).map(|c| &c.by)
        };
        let preempted = match by(|c| c.preempted_ns) {
            Some(by) if by.kind == ComponentKind::Host => {
                format!("the host took the CPU from {id}")
            }
            Some(by) => format!("{id} was preempted, mostly by {}", visible(&by.title())),
            None => format!("{id} was preempted"),
        };
        let delayed = match by(|c| c.delayed_ns) {
            Some(by) if by.kind == ComponentKind::Host => {
                format!("the host took the CPU before {id} began")
            }
            Some(by) => format!(
                "{id} began late, mostly because of {}",
                visible(&by.title())
            ),
            None => format!("{id} began late"),
        };
        let to = |e: &&onbeat_document::schema::Edge| e.to == callback.id;
        let edges = scope.model.edges.iter().filter(to);
        let late = edges.map(|e| excess(&e.figures.latency_ns)).max();
        [
            (
                excess(&f.exec_ns),
                format!("{id} itself ran longer than usual"),
            ),
            (excess(&f.preempted_ns), preempted),
            (excess(&f.blocked_ns), format!("{id} slept")),
            (late.unwrap_or(0), delayed),
        ]
    };
    let all = scope.parts.iter().flat_map(|p| of_part(p.callback));
    let needed = scope
        .slowest
        .latency_ns
        .1
        .saturating_sub(scope.latency.max());
    match all.max_by_key(|c| c.0) {
        Some((ns, why)) if ns >= needed / 2 && ns > 0 => {
            let rounded = Ms(ns.saturating_add(50_000) / 100_000 * 100_000);
            format!("probably {why}: up to {rounded} more than in 95 % of the executions")
        }
        _ => {
            "no single callback explains the slow executions ('onbeat why TRACE' shows each)".into()
        }
    }
}
