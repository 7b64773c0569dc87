//! Judges a session: compares its measured executions with the plan's promises.

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

/// The share of executions that must keep a promise if the plan has no miss rate.
pub const KEPT_SHARE: f64 = 0.999;

/// Returns the share of executions that must keep a promise: 1 minus the plan's miss rate, or
/// [`KEPT_SHARE`] without one.
pub fn kept_share(promises: &Promises) -> f64 {
    promises.miss.map_or(KEPT_SHARE, |miss| 1.0 - miss.rate)
}

fn percent(share: f64) -> String {
    let text = format!("{:.4}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The limit of the time that a server's thread runs outside of its slots, in ns. It applies to the
/// 99.9th percentile of this time.
pub const ISOLATION_NS: u64 = 300_000;

/// An execution with the cycle and the promised band in which its output left.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    pub execution: Execution,
    /// The time from the start of the execution's cycle to the departure of its output, in ns.
    pub offset_ns: i64,
    /// The index of the promised band in which the output left. `None` if it left outside of all
    /// bands.
    pub band: Option<usize>,
}

impl Judgement {
    /// Creates the judgement of an execution, with its cycle and its band. `origin_ns` is the start
    /// of any cycle (CLOCK_MONOTONIC).
    pub fn new(plan: &Plan, execution: Execution, origin_ns: u64) -> Judgement {
        let origin_ns = i64::try_from(origin_ns).unwrap_or(i64::MAX);
        let cycle = Cycle::new(plan.cycle_ms.0.max(1), origin_ns).expect("1 at least");
        // The origin is an estimate, and a start can lie a little before it. So the nearest cycle
        // counts.
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

/// A measured figure, with the value that the plan promises.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub name: String,
    /// The unit of both values: `ms`, `%`, `us`, or empty for a count.
    pub unit: &'static str,
    /// The value that the plan promises. `None` if the plan has no promise for this figure.
    pub promised: Option<f64>,
    pub measured: f64,
    /// Whether the session kept the promise. `None` if the plan has no such promise.
    pub kept: Option<bool>,
}

/// The result of comparing a session with its plan's promises.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    pub figures: Vec<Figure>,
}

impl Verdict {
    fn measured(&mut self, name: String, unit: &'static str, measured: f64) {
        self.figures.push(Figure {
            name,
            unit,
            promised: None,
            measured,
            kept: None,
        });
    }

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

    pub(crate) fn cut_short(&mut self, lasted: Duration, asked: Duration) {
        let (lasted, asked) = (lasted.as_secs_f64(), asked.as_secs_f64());
        self.promised("time shaped".into(), "s", asked, lasted, lasted >= asked);
    }

    pub(crate) fn add_count(&mut self, name: &str, count: u64) {
        self.measured(name.into(), "", count as f64);
    }

    pub(crate) fn add_shares(&mut self, shares: Vec<(&str, f64)>) {
        for (name, share) in shares {
            self.measured(name.into(), "%", share * 100.0);
        }
    }

    /// Returns true if the session kept all promises. Returns false if nothing was judged.
    pub fn is_kept(&self) -> bool {
        !self.figures.is_empty() && self.figures.iter().all(|f| f.kept != Some(false))
    }
}

/// Returns the `q` quantile (0 to 1) of sorted values by nearest rank, or the type's default value
/// for an empty slice.
pub fn quantile<T: Copy + Default>(sorted: &[T], q: f64) -> T {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    let at = rank.clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or_default()
}

/// Returns the jitter without outliers: half of the range from p0.5 to p99.5 of sorted values.
pub fn jitter_ns(sorted: &[u64]) -> u64 {
    (quantile(sorted, 0.995) - quantile(sorted, 0.005)) / 2
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

pub(crate) const TOLERANCE: f64 = 1.01;

fn mean_ms(latencies_ns: &[u64]) -> f64 {
    let sum: f64 = latencies_ns.iter().map(|&l| l as f64).sum();
    sum / latencies_ns.len().max(1) as f64 / 1e6
}

/// The measurements of a session that [`judge`] compares with the plan's promises.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured<'a> {
    /// The executions of all chains, with their bands. The oldest ones of a long session are
    /// missing.
    pub judgements: &'a [Judgement],
    /// The numbers of cycles with and without an output, by chain. The deliveries of a chain
    /// without an entry are not judged.
    pub deliveries: &'a [Delivery],
    /// The counts of each chain, which also include executions that are missing in `judgements`. If
    /// a chain has no entry, its executions in `judgements` are counted.
    pub counts: &'a [Counts],
    /// For each run of a server's thread: the longest time in ns that the thread ran without a
    /// break outside of its slots.
    pub outside_ns: &'a [u64],
    /// The figures of bands that followed the load. `None` if the bands were fixed. If the bands
    /// followed the load, the average latency is not judged, because the plan promised it for
    /// another load.
    pub behind: Option<Behind>,
}

/// Compares the measurements of a session with its plan's promises.
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
        // With several chains, the promise is the average of all of them.
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

/// Returns true if the latencies that the chain would have without shaping are known. They are
/// known if the plan holds back only the chain's output. The output is then ready at the same time
/// as without the plan.
pub fn knows_unshaped(plan: &Plan, chain: &ChainRef) -> bool {
    let held = plan
        .outputs
        .iter()
        .filter(|o| o.hold == Hold::Republish && chain.callbacks.iter().any(|c| c == &o.callback));
    let is_output = |o: &Output| Some(&o.topic) == chain.output.as_ref();
    let (ends, others): (Vec<_>, Vec<_>) = held.partition(|o| is_output(o));
    !ends.is_empty() && others.is_empty()
}

struct Chain<'p> {
    suffix: String,
    promises: &'p Promises,
    judgements: Vec<Judgement>,
    delivery: Option<Delivery>,
    counts: Option<Counts>,
    discards: bool,
    knows_unshaped: bool,
    follows: bool,
}

impl Chain<'_> {
    fn name(&self, what: &str) -> String {
        format!("{what}{}", self.suffix)
    }

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
            // No output left, so no promise was kept.
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
        // Late outputs are counted, but not part of the jitter.
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
            ("outputs late for the last slot", counts.late),
            ("discarded outputs", counts.discarded),
        ] {
            verdict.measured(self.name(what), "", count as f64);
        }
        for (what, count) in [
            (
                "outputs that the middleware did not publish",
                counts.refused,
            ),
            ("outputs whose cycle is known from lineage", counts.known),
            (
                "outputs whose cycle was inferred from arrival",
                counts.inferred,
            ),
            (
                "outputs that lineage and recording put into different cycles",
                counts.disputed,
            ),
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
            // A discarded output has missed the last slot, which the miss rate allows.
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
        let name = self.name(&format!(
            "largest latency of the fastest {} of executions",
            percent(least)
        ));
        verdict.promised(name, "ms", ms(promised), ms(worst), worst <= promised);
        verdict.measured(self.name("worst case"), "ms", ms(longest));
        if last < longest {
            verdict.measured(
                self.name("largest latency of outputs that were in time"),
                "ms",
                ms(last),
            );
        }
        let jitter = (last - first) / 2;
        verdict.measured(
            self.name("jitter of executions that were in time"),
            "ms",
            ms(jitter),
        );
    }

    fn judge_jitter(&self, what: &str, latencies: &[u64], verdict: &mut Verdict) {
        let (jitter, promised) = (jitter_ns(latencies), self.promises.jitter_ms.0);
        let kept = jitter <= promised;
        verdict.promised(self.name(what), "ms", ms(promised), ms(jitter), kept);
    }

    fn fixed_bands(&self) -> impl Iterator<Item = (usize, &Band)> {
        let bands = self.promises.bands.iter().enumerate();
        bands.filter(|_| !self.follows)
    }

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
        let name = self.name("share of outputs outside a slot: upper limit at 95 % confidence");
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
    verdict.measured(
        "longest run of a thread outside of its slots".into(),
        "ms",
        ms(longest),
    );
}
