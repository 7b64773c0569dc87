//! Judgement of a session: its executions, and what was measured compared with the plan's promises.

mod deliveries;
mod follow;
mod isolation;
mod overrun;
mod results;
mod usage;

pub use deliveries::Delivery;
pub(crate) use deliveries::{Deliveries, Starts, SHUTDOWN_NS};
pub use follow::Behind;
pub use isolation::{Isolation, IsolationMonitor};
pub(crate) use overrun::late_note;
pub use results::Counts;
pub(crate) use results::Results;
pub(crate) use usage::CpuUsage;

use crate::observe::Execution;
use onbeat_plan::schema::{Band, ChainRef, Hold, Output, Overshoot, Promises};
use onbeat_plan::Plan;
use onbeat_time::Cycle;
use std::time::Duration;

/// Share of executions that must keep each execution's promise, where the plan has no miss rate.
pub const KEPT_SHARE: f64 = 0.999;

/// Share of executions that must keep each execution's promise: what the plan's miss rate leaves, else
/// [`KEPT_SHARE`].
pub fn kept_share(promises: &Promises) -> f64 {
    promises.miss.map_or(KEPT_SHARE, |miss| 1.0 - miss.rate)
}

/// A share in per cent, with as many digits as it has.
fn percent(share: f64) -> String {
    let text = format!("{:.4}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// How far a server's thread may run outside its slots (p99.9).
pub const ISOLATION_NS: u64 = 300_000;

/// An execution with its place in the cycle and in the promised bands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    /// The execution.
    pub execution: Execution,
    /// When the output left, from the start of the cycle in which the chain started.
    pub offset_ns: i64,
    /// Index of the promised band that it left in. `None`: outside of all.
    pub band: Option<usize>,
}

impl Judgement {
    /// Places an execution. A cycle begins at `origin_ns`.
    pub fn new(plan: &Plan, execution: Execution, origin_ns: u64) -> Judgement {
        let origin_ns = i64::try_from(origin_ns).unwrap_or(i64::MAX);
        let cycle = Cycle::new(plan.cycle_ms.0.max(1), origin_ns).expect("1 at least");
        // The origin is an estimate: a start can lie a little before it. The nearest cycle counts.
        let number = cycle.index(execution.start_ns.saturating_add(cycle.period_ns() / 2));
        let offset_ns = cycle.since_start_ns(number, execution.output_ns);
        let within =
            |b: &Band| (b.latency_ms.0 .0 as i64..b.latency_ms.1 .0 as i64).contains(&offset_ns);
        Judgement {
            execution,
            offset_ns,
            band: plan.promises.bands.iter().position(within),
        }
    }
}

/// A measured figure and the plan's promise for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Name of the figure.
    pub name: String,
    /// Unit: `ms`, `%`, `us`, or empty for a count.
    pub unit: &'static str,
    /// The plan's promise, if it has one for this figure.
    pub promised: Option<f64>,
    /// The measured value.
    pub measured: f64,
    /// Whether the promise was kept. `None` if there is none.
    pub kept: Option<bool>,
}

/// All figures of a session.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    /// In the order in which they are shown.
    pub figures: Vec<Figure>,
}

impl Verdict {
    /// Adds a figure without a promise.
    fn measured(&mut self, name: String, unit: &'static str, measured: f64) {
        self.figures.push(Figure {
            name,
            unit,
            promised: None,
            measured,
            kept: None,
        });
    }

    /// Adds a figure with its promise.
    fn promised(
        &mut self,
        name: String,
        unit: &'static str,
        promised: f64,
        measured: f64,
        kept: bool,
    ) {
        self.figures.push(Figure {
            name,
            unit,
            promised: Some(promised),
            measured,
            kept: Some(kept),
        });
    }

    /// Shaping ended before the time that was to be judged.
    pub(crate) fn cut_short(&mut self, lasted: Duration, asked: Duration) {
        let (lasted, asked) = (lasted.as_secs_f64(), asked.as_secs_f64());
        self.promised("time shaped".into(), "s", asked, lasted, lasted >= asked);
    }

    /// Adds a count.
    pub(crate) fn add_count(&mut self, name: &str, count: u64) {
        self.measured(name.into(), "", count as f64);
    }

    /// Adds shares of one CPU.
    pub(crate) fn add_shares(&mut self, shares: Vec<(&str, f64)>) {
        for (name, share) in shares {
            self.measured(name.into(), "%", share * 100.0);
        }
    }

    /// Whether all promises were kept, and there was something to judge.
    pub fn is_kept(&self) -> bool {
        !self.figures.is_empty() && self.figures.iter().all(|f| f.kept != Some(false))
    }
}

/// The value below which a share `q` of sorted values lies (nearest rank).
pub fn quantile<T: Copy + Default>(sorted: &[T], q: f64) -> T {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    let at = rank.clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or_default()
}

/// Half the range of the middle 99 % (p0.5 to p99.5) of sorted values.
pub fn jitter_ns(sorted: &[u64]) -> u64 {
    (quantile(sorted, 0.995) - quantile(sorted, 0.005)) / 2
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// An average may exceed its promise by this factor.
pub(crate) const TOLERANCE: f64 = 1.01;

fn mean_ms(latencies_ns: &[u64]) -> f64 {
    let sum: f64 = latencies_ns.iter().map(|&l| l as f64).sum();
    sum / latencies_ns.len().max(1) as f64 / 1e6
}

/// What was measured in a session.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured<'a> {
    /// The executions of all chains.
    pub judgements: &'a [Judgement],
    /// By chain: cycles with and without an output. A chain without an entry is not judged by them.
    pub deliveries: &'a [Delivery],
    /// By chain: what was counted, also of executions that are no longer among the judgements. Those of
    /// a chain without an entry are counted from these.
    pub counts: &'a [Counts],
    /// How far each run of a server's thread reached outside its slots.
    pub outside_ns: &'a [u64],
    /// If the bands followed the load: how. The promised average is of another load then, and is not
    /// judged.
    pub behind: Option<Behind>,
}

/// Judges a session by its plan's promises.
pub fn judge(plan: &Plan, measured: Measured<'_>) -> Verdict {
    let Measured {
        judgements,
        outside_ns,
        ..
    } = measured;
    let mut verdict = Verdict::default();
    for (number, chain) in plan.chains.iter().enumerate() {
        let of_chain = judgements.iter().filter(|j| j.execution.chain == number);
        let judged = Chain {
            suffix: match plan.chains.len() {
                1 => String::new(),
                _ => format!(" ({})", chain.id),
            },
            promises: &plan.promises,
            judgements: of_chain.copied().collect(),
            delivery: measured.deliveries.get(number).copied(),
            counts: measured.counts.get(number).copied(),
            discards: plan.overshoot == Overshoot::Drop,
            knows_unshaped: knows_unshaped(plan, chain),
            follows: measured.behind.is_some(),
        };
        // Of several chains, the promise is their common average.
        let has_average = plan.chains.len() == 1 && measured.behind.is_none();
        judged.judge(has_average, &mut verdict);
    }
    let left = judgements.iter().filter(|j| j.execution.is_delivered());
    let all: Vec<u64> = left.map(|j| j.execution.latency_ns()).collect();
    if let Some(behind) = measured.behind.filter(|_| !all.is_empty()) {
        behind.judge(&plan.promises, &mut verdict);
    } else if plan.chains.len() > 1 && !all.is_empty() {
        let (promised, average) = (ms(plan.promises.average_ms.0), mean_ms(&all));
        let kept = average <= promised * TOLERANCE;
        verdict.promised("average, all chains".into(), "ms", promised, average, kept);
    }
    judge_isolation(outside_ns, &mut verdict);
    verdict
}

/// Whether a chain's unshaped latencies are known under the plan: its output is held back, and it
/// alone, so that it was ready when it would have been without the plan.
pub fn knows_unshaped(plan: &Plan, chain: &ChainRef) -> bool {
    let held = plan
        .outputs
        .iter()
        .filter(|o| o.hold == Hold::Republish && chain.callbacks.iter().any(|c| c == &o.callback));
    let is_output = |o: &Output| Some(&o.topic) == chain.output.as_ref();
    let (ends, others): (Vec<_>, Vec<_>) = held.partition(|o| is_output(o));
    !ends.is_empty() && others.is_empty()
}

/// The executions of one chain.
struct Chain<'p> {
    /// What distinguishes its figures from other chains'.
    suffix: String,
    promises: &'p Promises,
    judgements: Vec<Judgement>,
    delivery: Option<Delivery>,
    counts: Option<Counts>,
    /// Whether late outputs are discarded.
    discards: bool,
    /// [`knows_unshaped`].
    knows_unshaped: bool,
    /// Whether the bands followed the load, so that there are others in each cycle.
    follows: bool,
}

impl Chain<'_> {
    fn name(&self, what: &str) -> String {
        format!("{what}{}", self.suffix)
    }

    /// Sorted latencies of the outputs that left and that `wanted` accepts.
    fn latencies(&self, wanted: impl Fn(&Judgement) -> bool) -> Vec<u64> {
        self.sorted(wanted, Execution::latency_ns)
    }

    fn sorted(&self, wanted: impl Fn(&Judgement) -> bool, of: fn(&Execution) -> u64) -> Vec<u64> {
        let left = self
            .judgements
            .iter()
            .filter(|j| j.execution.is_delivered());
        let mut latencies: Vec<u64> = left
            .filter(|j| wanted(j))
            .map(|j| of(&j.execution))
            .collect();
        latencies.sort_unstable();
        latencies
    }

    fn judge(&self, has_average: bool, verdict: &mut Verdict) {
        let latencies = self.latencies(|_| true);
        verdict.measured(self.name("executions"), "", latencies.len() as f64);
        self.judge_delivery(verdict);
        if latencies.is_empty() {
            // Nothing left: no promise was kept.
            verdict.promised(self.name("outputs"), "", 1.0, 0.0, false);
            return;
        }
        let average = mean_ms(&latencies);
        if has_average {
            let promised = ms(self.promises.average_ms.0);
            let kept = average <= promised * TOLERANCE;
            verdict.promised(self.name("average"), "ms", promised, average, kept);
        } else {
            verdict.measured(self.name("average"), "ms", average);
        }
        // What was late is counted, not mixed with the jitter of the others.
        let in_time = self.latencies(|j| !j.execution.late);
        self.judge_worst(&latencies, &in_time, verdict);
        if self.promises.bands.is_empty() {
            self.judge_jitter("jitter, p0.5 to p99.5", &in_time, verdict);
        } else {
            self.judge_bands(latencies.len(), verdict);
        }
        self.show_counts(verdict);
        if self.knows_unshaped {
            self.measure_unshaped(verdict);
        }
    }

    fn show_counts(&self, verdict: &mut Verdict) {
        let counts = self.counts.unwrap_or_else(|| {
            let executions = self.judgements.iter().map(|j| &j.execution);
            executions.fold(Counts::default(), Counts::with)
        });
        for (what, count) in [
            ("late for the last slot", counts.late),
            ("discarded", counts.discarded),
        ] {
            verdict.measured(self.name(what), "", count as f64);
        }
        for (what, count) in [
            ("refused by the middleware", counts.refused),
            ("cycle came with the output", counts.known),
            ("cycle inferred from arrival", counts.inferred),
            ("cycle disputed by the recording", counts.disputed),
        ] {
            if count > 0 {
                verdict.measured(self.name(what), "", count as f64);
            }
        }
    }

    fn judge_delivery(&self, verdict: &mut Verdict) {
        let Some(delivery) = self.delivery else {
            return;
        };
        if let Some(share) = delivery.share() {
            // A discarded output is one that missed the last slot.
            let least = match self.discards {
                true => kept_share(self.promises),
                false => KEPT_SHARE,
            };
            let (promised, kept) = (least * 100.0, share >= least);
            let name = self.name("cycles with an output");
            verdict.promised(name, "%", promised, share * 100.0, kept);
        }
        let without = self.name("cycles without an output");
        verdict.measured(without, "", delivery.without as f64);
    }

    /// The same executions, as they would have been if their outputs had not been held back.
    fn measure_unshaped(&self, verdict: &mut Verdict) {
        let unshaped = self.sorted(|_| true, Execution::unshaped_ns);
        let longest = quantile(&unshaped, 1.0);
        let all = (longest - quantile(&unshaped, 0.0)) / 2;
        for (what, value_ms) in [
            ("average", mean_ms(&unshaped)),
            ("worst case", ms(longest)),
            ("jitter, all executions", ms(all)),
            ("jitter, p0.5 to p99.5", ms(jitter_ns(&unshaped))),
        ] {
            verdict.measured(self.name(&format!("unshaped: {what}")), "ms", value_ms);
        }
    }

    fn judge_worst(&self, latencies: &[u64], in_time: &[u64], verdict: &mut Verdict) {
        let longest = quantile(latencies, 1.0);
        let (first, last) = (quantile(in_time, 0.0), quantile(in_time, 1.0));
        let least = kept_share(self.promises);
        let (worst, promised) = (quantile(latencies, least), self.promises.worst_ms.0);
        let name = self.name(&format!("worst case, {} of executions", percent(least)));
        verdict.promised(name, "ms", ms(promised), ms(worst), worst <= promised);
        verdict.measured(self.name("worst case"), "ms", ms(longest));
        if last < longest {
            verdict.measured(self.name("worst case in time"), "ms", ms(last));
        }
        let jitter = (last - first) / 2;
        verdict.measured(self.name("jitter, executions in time"), "ms", ms(jitter));
    }

    fn judge_jitter(&self, what: &str, latencies: &[u64], verdict: &mut Verdict) {
        let (jitter, promised) = (jitter_ns(latencies), self.promises.jitter_ms.0);
        let kept = jitter <= promised;
        verdict.promised(self.name(what), "ms", ms(promised), ms(jitter), kept);
    }

    /// The bands that all executions had.
    fn fixed_bands(&self) -> impl Iterator<Item = (usize, &Band)> {
        let bands = self.promises.bands.iter().enumerate();
        bands.filter(|_| !self.follows)
    }

    /// `left`: number of outputs that left.
    fn judge_bands(&self, left: usize, verdict: &mut Verdict) {
        for (i, band) in self.fixed_bands() {
            let inside = self.latencies(|j| j.band == Some(i));
            let at = format!("band at {}", band.latency_ms.0);
            verdict.figures.push(Figure {
                name: self.name(&format!("{at}: share")),
                unit: "%",
                promised: Some(band.share * 100.0),
                measured: inside.len() as f64 / left as f64 * 100.0,
                kept: None,
            });
            if !inside.is_empty() {
                self.judge_jitter(&format!("{at}: jitter, p0.5 to p99.5"), &inside, verdict);
            }
        }
        let inside = self.latencies(|j| j.band.is_some()).len() as f64;
        let share = inside / self.judgements.len() as f64;
        let least = kept_share(self.promises);
        verdict.promised(
            self.name("outputs inside a slot"),
            "%",
            least * 100.0,
            share * 100.0,
            share >= least,
        );
        let all = self.judgements.len() as u64;
        let most = onbeat_stats::share_at_most(all - inside as u64, all, 0.95);
        let name = self.name("outputs outside a slot: at most, with 95 % confidence");
        verdict.measured(name, "%", most * 100.0);
    }
}

fn judge_isolation(outside_ns: &[u64], verdict: &mut Verdict) {
    if outside_ns.is_empty() {
        return;
    }
    let mut sorted = outside_ns.to_vec();
    sorted.sort_unstable();
    let (p999, longest) = (quantile(&sorted, 0.999), quantile(&sorted, 1.0));
    let kept = p999 <= ISOLATION_NS;
    let name = "run outside a slot, p99.9".to_owned();
    verdict.promised(name, "ms", ms(ISOLATION_NS), ms(p999), kept);
    verdict.measured("run outside a slot, longest".into(), "ms", ms(longest));
}
