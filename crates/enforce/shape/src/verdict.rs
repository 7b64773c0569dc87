//! What came of a plan, held against what it promised. Pure.

use crate::executions::Execution;
use onbeat_plan::Plan;

/// Share of executions that must keep what is promised of each.
pub const KEPT_SHARE: f64 = 0.999;

/// How far a server's thread may run outside its slots (p99.9).
pub const ISOLATION_NS: u64 = 300_000;

/// An execution with its place in the cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The execution.
    pub execution: Execution,
    /// When the output left, counted from the origin of the cycle in which the chain started.
    pub offset_ns: i64,
    /// Which of the promised bands that is.
    pub band: Option<usize>,
}

impl Outcome {
    /// Places an execution: `origin_ns` is the start of any cycle.
    pub fn new(plan: &Plan, execution: Execution, origin_ns: u64) -> Outcome {
        let cycle = i128::from(plan.cycle_ms.0.max(1));
        let since = i128::from(execution.start_ns) - i128::from(origin_ns);
        // A start can lie a little before its cycle's origin, which is an estimate.
        let number = (since + cycle / 2).div_euclid(cycle);
        let begin = i128::from(origin_ns) + number * cycle;
        let offset_ns = (i128::from(execution.output_ns) - begin) as i64;
        let within = |b: &onbeat_plan::schema::Band| {
            (b.latency_ms.0 .0 as i64..b.latency_ms.1 .0 as i64).contains(&offset_ns)
        };
        Outcome {
            execution,
            offset_ns,
            band: plan.promises.bands.iter().position(within),
        }
    }
}

/// A figure beside what was promised of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Unit: `ms`, `%`, `us`, or empty for a count.
    pub unit: &'static str,
    /// What the plan promised.
    pub promised: Option<f64>,
    /// What was measured.
    pub measured: f64,
    /// Was it kept? None where nothing was promised.
    pub kept: Option<bool>,
}

/// The plan's promises beside what was measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Verdict {
    /// True if everything that was promised was kept, and there was something to judge.
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

/// So much above what was promised an average still keeps it.
const TOLERANCE: f64 = 1.01;

fn mean_ms(latencies_ns: &[u64]) -> f64 {
    let sum: f64 = latencies_ns.iter().map(|&l| l as f64).sum();
    sum / latencies_ns.len().max(1) as f64 / 1e6
}

/// Judges what came of `plan`. `outside_ns`: how far each run of a server's thread reached outside
/// its slots.
pub fn judge(plan: &Plan, outcomes: &[Outcome], outside_ns: &[u64]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut add = |name: String, unit, promised, measured, kept| {
        verdict.figures.push(Figure {
            name,
            unit,
            promised,
            measured,
            kept,
        });
    };
    let promises = &plan.promises;
    let several = plan.chains.len() > 1;
    for (number, chain) in plan.chains.iter().enumerate() {
        let of_chain = || outcomes.iter().filter(move |o| o.execution.chain == number);
        let name = |what: &str| match plan.chains.len() {
            1 => what.to_owned(),
            _ => format!("{what} ({})", chain.id),
        };
        let mut latencies: Vec<u64> = of_chain()
            .filter(|o| !o.execution.dropped)
            .map(|o| o.execution.latency_ns())
            .collect();
        latencies.sort_unstable();
        let count = latencies.len() as f64;
        add(name("executions"), "", None, count, None);
        let Some(&longest) = latencies.last() else {
            // Nothing came: nothing was kept.
            add(name("outputs"), "", Some(1.0), 0.0, Some(false));
            continue;
        };
        let average = mean_ms(&latencies);
        // What is promised is the average over all chains.
        let promised = (!several).then_some(ms(promises.average_ms.0));
        let kept = promised.map(|p| average <= p * TOLERANCE);
        add(name("average"), "ms", promised, average, kept);
        let worst = quantile(&latencies, KEPT_SHARE);
        let promised = promises.worst_ms.0;
        add(
            name("worst case, 99.9 % of executions"),
            "ms",
            Some(ms(promised)),
            ms(worst),
            Some(worst <= promised),
        );
        add(name("worst case"), "ms", None, ms(longest), None);
        add(
            name("jitter, all executions"),
            "ms",
            None,
            ms((longest - latencies[0]) / 2),
            None,
        );
        if promises.bands.is_empty() {
            let kept = jitter_ns(&latencies) <= promises.jitter_ms.0;
            add(
                name("jitter, p0.5 to p99.5"),
                "ms",
                Some(ms(promises.jitter_ms.0)),
                ms(jitter_ns(&latencies)),
                Some(kept),
            );
        }
        for (i, band) in promises.bands.iter().enumerate() {
            let mut inside: Vec<u64> = of_chain()
                .filter(|o| o.band == Some(i) && !o.execution.dropped)
                .map(|o| o.execution.latency_ns())
                .collect();
            inside.sort_unstable();
            let at = format!("band at {}", band.latency_ms.0);
            add(
                name(&format!("{at}: share")),
                "%",
                Some(band.share * 100.0),
                inside.len() as f64 / count * 100.0,
                None,
            );
            if !inside.is_empty() {
                let jitter = jitter_ns(&inside);
                add(
                    name(&format!("{at}: jitter, p0.5 to p99.5")),
                    "ms",
                    Some(ms(promises.jitter_ms.0)),
                    ms(jitter),
                    Some(jitter <= promises.jitter_ms.0),
                );
            }
        }
        if !promises.bands.is_empty() {
            let inside = of_chain()
                .filter(|o| o.band.is_some() && !o.execution.dropped)
                .count() as f64
                / of_chain().count() as f64;
            add(
                name("outputs inside a slot"),
                "%",
                Some(KEPT_SHARE * 100.0),
                inside * 100.0,
                Some(inside >= KEPT_SHARE),
            );
        }
        let late = of_chain().filter(|o| o.execution.late).count();
        add(name("late for the last slot"), "", None, late as f64, None);
        let dropped = of_chain().filter(|o| o.execution.dropped).count();
        add(name("discarded"), "", None, dropped as f64, None);
    }
    let left = outcomes.iter().filter(|o| !o.execution.dropped);
    let all: Vec<u64> = left.map(|o| o.execution.latency_ns()).collect();
    if several && !all.is_empty() {
        let (promised, average) = (ms(promises.average_ms.0), mean_ms(&all));
        let kept = average <= promised * TOLERANCE;
        let name = "average, all chains".to_owned();
        add(name, "ms", Some(promised), average, Some(kept));
    }
    if !outside_ns.is_empty() {
        let mut sorted = outside_ns.to_vec();
        sorted.sort_unstable();
        let p999 = quantile(&sorted, 0.999);
        add(
            "run outside a slot, p99.9".into(),
            "ms",
            Some(ms(ISOLATION_NS)),
            ms(p999),
            Some(p999 <= ISOLATION_NS),
        );
        let longest = sorted.last().copied().unwrap_or(0);
        add(
            "run outside a slot, longest".into(),
            "ms",
            None,
            ms(longest),
            None,
        );
    }
    verdict
}
