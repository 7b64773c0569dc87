//! Collects all changes between two models. It corrects them for the number of comparisons, drops
//! those that are too small, and sorts them by their weight in a chain.

use crate::compare::{measure, welch, Change, Measured, Method, Single};
use crate::rows::{rows, ChainsByWay, Figure, Row};
use crate::speed::{median, Speed};
use crate::spread::{RunSpread, Spread};
use crate::structure::{self, Difference};
use crate::Options;
use onbeat_document::schema::{Chain, Model, Share};
use onbeat_stats::{normal_beyond, split_by_chance, student_beyond, student_quantile};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// A figure of a callback, chain or edge that differs significantly between the two models.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// The name of the figure, such as `execution_time`; `speed` for all callbacks together; `loss`
    /// for an edge's items.
    pub figure: String,
    /// The id of the callback, chain or edge (untrusted); empty for all callbacks together.
    pub id: String,
    /// The readable name of the callback, chain or edge (untrusted).
    pub title: String,
    /// The first model's median in ns. For losses, the share of lost items.
    pub a: f64,
    /// The second model's median in ns. For losses, the share of lost items.
    pub b: f64,
    pub change: Change,
    /// The probability of the change by chance, corrected for all comparisons (Holm).
    pub p_corrected: f64,
    /// The change as a share of a chain's latency, and the chain's readable name. The chain is the
    /// one in which this share is largest.
    pub of_chain: Option<(f64, String)>,
    /// The id of the callback whose execution time explains this change.
    pub follows: Option<String>,
    /// The part of the chain that has most of the change of the chain's latency.
    pub mostly: Option<String>,
    /// A sentence (untrusted) about what the chain's late executions in the second model have in
    /// common. The caller of [`diff`] adds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<String>,
}

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// The differences in structure, causes before their consequences.
    pub structure: Vec<Difference>,
    /// The changed figures: first the changes that follow from no other change, then the others.
    /// Within both groups, the change with the largest share in a chain's latency comes first.
    pub figures: Vec<Found>,
    pub compared: usize,
    /// The number of significant changes that are too small to matter.
    pub small: usize,
    /// The number of figures with too little data for a comparison.
    pub open: usize,
    /// The speed of the machine in each run, if times were corrected for it.
    pub speed: Option<Speed>,
    /// The smallest change that the comparison can detect in an execution time, as a share: the
    /// median of these changes over all compared execution times.
    pub resolution: Option<f64>,
    pub spreads: Vec<RunSpread>,
    pub runs: (usize, usize),
    pub notes: Vec<String>,
}

impl Report {
    /// Reports whether nothing changed between the two models.
    pub fn is_empty(&self) -> bool {
        self.structure.is_empty() && self.figures.is_empty()
    }

    /// Counts the changes that do not follow from others.
    pub fn causes(&self) -> usize {
        let structure = self.structure.iter().filter(|d| d.follows.is_none());
        let figures = self.figures.iter().filter(|f| f.follows.is_none());
        structure.count() + figures.count()
    }
}

/// Compares two models and returns all changes.
pub fn diff(a: &Model, b: &Model, options: &Options) -> Report {
    let rows = rows(a, b);
    let speed = (!options.absolute).then(|| Speed::of(&rows)).flatten();
    let measured = rows
        .iter()
        .filter_map(|row| Some((row, measure(row, speed.as_ref())?)));
    let measured: Vec<(&Row<'_>, Measured)> = measured.collect();
    let open = rows.len() - measured.len();
    let mut others: Vec<Found> = speed
        .as_ref()
        .map(|s| of_speed(s, options))
        .into_iter()
        .collect();
    others.extend(losses(a, b));
    let (changes, corrected, spreads) = test(&measured, &others, options);
    let figures = measured.iter().zip(changes);
    let mut tested: Vec<Found> = figures
        .map(|((row, _), change)| found(row, change, a))
        .collect();
    tested.extend(others);
    for (found, p) in tested.iter_mut().zip(corrected) {
        found.p_corrected = p;
    }
    let compared = tested.len();
    let resolution = resolution(&tested, options.alpha);
    let methods: Vec<Method> = tested.iter().map(|f| f.change.method).collect();
    tested.retain(|f| f.p_corrected < options.alpha);
    let significant = tested.len();
    tested.retain(|f| matters(f, options));
    let small = significant - tested.len();
    explain(&mut tested, a, b);
    tested.sort_by(|x, y| {
        let weight = |f: &Found| f.of_chain.as_ref().map_or(0.0, |(share, _)| share.abs());
        let key = x.follows.is_some().cmp(&y.follows.is_some());
        key.then(weight(y).total_cmp(&weight(x)))
            .then(x.id.cmp(&y.id))
    });
    let (structure, mut notes) = structure::compare(a, b);
    assumptions(&mut notes, &methods, open, speed.is_some(), &spreads);
    Report {
        structure,
        figures: tested,
        compared,
        small,
        open,
        speed,
        resolution,
        spreads,
        runs: (a.runs.len(), b.runs.len()),
        notes,
    }
}

/// Compares all figures. Returns their changes, the probabilities of these changes by chance,
/// corrected for the number of figures, and the spreads between runs. Changed figures say nothing
/// about the spread between runs. The function therefore estimates the spread again without the
/// figures that it has found to be changed, until it finds no more of them.
fn test(
    measured: &[(&Row<'_>, Measured)],
    others: &[Found],
    options: &Options,
) -> (Vec<Change>, Vec<f64>, Vec<RunSpread>) {
    let single = |(row, measured): &(&Row<'_>, Measured)| match measured {
        Measured::Single(single) => Some((row.figure, *single)),
        Measured::Runs(_) => None,
    };
    let all: Vec<(Figure, Single)> = measured.iter().filter_map(single).collect();
    let mut changed = BTreeSet::new();
    loop {
        let rest = (0..measured.len()).filter(|i| !changed.contains(i));
        let rest: Vec<(Figure, Single)> = rest.filter_map(|i| single(&measured[i])).collect();
        let spread = Spread::of(&rest, options);
        let change = |(row, measured): &(&Row<'_>, Measured)| spread.change(row.figure, measured);
        let changes: Vec<Change> = measured.iter().map(change).collect();
        let chances = changes.iter().chain(others.iter().map(|f| &f.change));
        let corrected = correct(&chances.map(|c| c.p).collect::<Vec<f64>>());
        let before = changed.len();
        changed.extend((0..measured.len()).filter(|i| corrected[*i] < options.alpha));
        if changed.len() == before {
            return (changes, corrected, spread.typical(&all));
        }
    }
}

fn assumptions(
    notes: &mut Vec<String>,
    methods: &[Method],
    open: usize,
    relative: bool,
    spreads: &[RunSpread],
) {
    let single = methods.iter().filter(|m| **m == Method::Executions).count();
    if single > 0 {
        let spreads: Vec<String> = spreads.iter().map(RunSpread::text).collect();
        notes.push(format!(
            "{single} figures come from a single run in one of the models. Runs of an unchanged program differ by a spread: {}. onbeat estimates the spread from the other figures of the same runs; --run-spread sets it instead. If only one callback is slower in one run by chance, this looks like a change. Record several runs of each program, in turn, and merge them.",
            spreads.join(", ")
        ));
    }
    if open > 0 {
        notes.push(format!(
            "{open} figures were not compared, because they have too few executions or a model does not contain each run's median. Record more executions."
        ));
    }
    if relative {
        notes.push(
            "Changes are corrected for the speed of the machine. In each run, onbeat compares each callback's execution time with its usual one. The median of these deviations counts as the machine's speed. Use --absolute to compare times as measured."
                .into(),
        );
    }
    notes.push("onbeat compares medians. It compares 99th percentiles only if each model has at least three runs of 200 executions each. With fewer runs or executions, a change of only rare long executions does not show.".into());
}

fn found(row: &Row<'_>, change: Change, model: &Model) -> Found {
    let q = row.figure.quantile();
    let (a, b) = (row.a.dist.quantile(q) as f64, row.b.dist.quantile(q) as f64);
    let shift = a * change.shift;
    let of_chain = match row.figure {
        Figure::Latency | Figure::LatencyTail => Some((change.shift, row.title.clone())),
        Figure::Period => None,
        _ => heaviest(model, &row.id, shift),
    };
    Found {
        figure: row.figure.text().into(),
        id: row.id.clone(),
        title: row.title.clone(),
        a,
        b,
        change,
        p_corrected: change.p,
        of_chain,
        follows: None,
        mostly: None,
        late: None,
    }
}

/// Returns the largest share that a callback's shift has in the latency of a chain through the
/// callback, and the name of this chain.
fn heaviest(model: &Model, id: &str, shift_ns: f64) -> Option<(f64, String)> {
    let passes = |c: &&Chain| c.callbacks.iter().any(|other| other == id);
    let latency = |c: &Chain| c.figures.latency_ns.quantile(0.5) as f64;
    let of = model
        .chains
        .iter()
        .filter(passes)
        .filter(|c| latency(c) > 0.0);
    let chain = of.min_by(|x, y| latency(x).total_cmp(&latency(y)))?;
    let at = model.chains.iter().position(|c| c.id == chain.id)?;
    let title = onbeat_document::titles::titles(model).swap_remove(at);
    Some((shift_ns / latency(chain), title))
}

fn of_speed(speed: &Speed, options: &Options) -> Found {
    let logs = |of: &[(String, f64)]| of.iter().map(|(_, log)| *log).collect::<Vec<f64>>();
    let (a, b) = (logs(&speed.a), logs(&speed.b));
    let runs = a.len() > 1 && b.len() > 1;
    let (shift, error, freedom) = match runs {
        true => welch(&a, &b),
        false => {
            let error = options.run_spread * (1.0 / a.len() as f64 + 1.0 / b.len() as f64).sqrt();
            (median(b.clone()) - median(a.clone()), error, 1e6)
        }
    };
    let wide = student_quantile(0.975, freedom) * error;
    let p = match runs {
        true => student_beyond(shift.abs() / error, freedom),
        false => normal_beyond(shift.abs() / error),
    };
    let change = Change {
        shift: shift.exp_m1(),
        low: (shift - wide).exp_m1(),
        high: (shift + wide).exp_m1(),
        p: (2.0 * p).min(1.0),
        delta: 0.0,
        error: (error, freedom),
        method: if runs {
            Method::Runs
        } else {
            Method::Executions
        },
    };
    Found {
        figure: "speed".into(),
        id: String::new(),
        title: "all callbacks: execution time".into(),
        a: median(a).exp(),
        b: median(b).exp(),
        change,
        p_corrected: change.p,
        of_chain: Some((change.shift, "all chains".into())),
        follows: None,
        mostly: None,
        late: None,
    }
}

/// The assumed standard deviation, in s, of the duration of a burst of losses in one run. A
/// subscriber that starts late, or a machine that stops for a moment, causes such a burst.
const BURST: f64 = 1.5;

/// Returns the standard deviation of the difference between two runs' shares of lost items, if each
/// run has a burst of losses ([`BURST`]). Returns 0 if both models have several runs.
fn spread_of_losses(a: &Model, b: &Model) -> f64 {
    if a.runs.len() > 1 && b.runs.len() > 1 {
        return 0.0;
    }
    let of = |m: &Model| {
        let seconds: f64 = m.runs.iter().map(|r| r.duration_ns as f64 / 1e9).sum();
        let bursts = (m.runs.len() as f64).sqrt() * BURST;
        (bursts / seconds.max(BURST)).min(1.0)
    };
    of(a).hypot(of(b))
}

fn losses(a: &Model, b: &Model) -> Vec<Found> {
    let mut found = Vec::new();
    let spread = spread_of_losses(a, b);
    let p_of_bursts = |shift: f64| match spread > 0.0 {
        true => 2.0 * normal_beyond(shift.abs() / spread),
        false => 0.0,
    };
    let others: HashMap<String, _> = b.edges.iter().map(|e| (structure::edge_id(e), e)).collect();
    for edge in &a.edges {
        let id = structure::edge_id(edge);
        let Some(other) = others.get(&id) else {
            continue;
        };
        let of = |e: &onbeat_document::schema::Edge| {
            (e.figures.lost + e.figures.overwritten, e.figures.published)
        };
        let ((lost, sent), (lost_b, sent_b)) = (of(edge), of(other));
        if lost + lost_b == 0 || sent == 0 || sent_b == 0 {
            continue;
        }
        let (a, b) = (lost as f64 / sent as f64, lost_b as f64 / sent_b as f64);
        let share = sent_b as f64 / (sent as f64 + sent_b as f64);
        let p = split_by_chance(lost_b, lost + lost_b, share).max(p_of_bursts(b - a));
        let change = Change {
            shift: b - a,
            low: b - a,
            high: b - a,
            p,
            delta: b - a,
            error: (0.0, 1.0),
            method: Method::Executions,
        };
        found.push(Found {
            figure: "loss".into(),
            title: id.clone(),
            id,
            a,
            b,
            change,
            p_corrected: p,
            of_chain: None,
            follows: None,
            mostly: None,
            late: None,
        });
    }
    found
}

/// Returns the probabilities `chances` with Holm's correction. With it, the probability that any
/// reported change is false stays below the requested level.
fn correct(chances: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|&x, &y| chances[x].total_cmp(&chances[y]));
    let mut corrected = vec![1.0; chances.len()];
    let mut most = 0.0f64;
    for (rank, &i) in order.iter().enumerate() {
        most = most.max(chances[i] * (order.len() - rank) as f64).min(1.0);
        corrected[i] = most;
    }
    corrected
}

fn resolution(tested: &[Found], alpha: f64) -> Option<f64> {
    let each = alpha / tested.len().max(1) as f64;
    let times = tested
        .iter()
        .filter(|f| f.figure == Figure::Execution.text());
    let least: Vec<f64> = times.map(|f| f.change.resolution(each)).collect();
    (!least.is_empty()).then(|| median(least))
}

fn matters(f: &Found, options: &Options) -> bool {
    let large = f.change.shift.abs() >= options.min_effect;
    match f.figure.as_str() {
        "speed" => large,
        // The shift of a loss is a share of all items that were sent.
        "loss" => f.change.shift.abs() >= options.min_effect / 10.0,
        _ => large && (f.a * f.change.shift).abs() >= options.min_time_ns,
    }
}

/// Marks the changes that follow from a change of a callback's execution time. For a chain's
/// latency, also finds the part of the chain that has most of the change.
fn explain(found: &mut [Found], a: &Model, b: &Model) {
    let chains: HashMap<&str, &Chain> = a.chains.iter().map(|c| (c.id.as_str(), c)).collect();
    let others = ChainsByWay::of(b);
    // The tuples hold an id and the ends of the interval of its shift, in ns.
    let of = |f: &Found| (f.a * f.change.low, f.a * f.change.high);
    let slower: Vec<(String, f64, f64)> = found
        .iter()
        .filter(|f| f.figure == Figure::Execution.text())
        .map(|f| (f.id.clone(), of(f).0, of(f).1))
        .collect();
    // A change of a tail follows from a change of all values, or from the tail of a callback.
    let tails: Vec<(String, f64)> = found
        .iter()
        .filter(|f| {
            [Figure::Execution, Figure::ExecutionTail]
                .map(Figure::text)
                .contains(&f.figure.as_str())
        })
        .map(|f| (f.id.clone(), f.change.shift))
        .collect();
    for f in found.iter_mut() {
        let (low, high) = of(f);
        let explains = |(_, least, most): &&(String, f64, f64)| *least <= high && low <= *most;
        if f.figure == Figure::Response.text() {
            let own = slower.iter().filter(|(id, ..)| *id == f.id);
            f.follows = own.into_iter().find(explains).map(|(id, ..)| id.clone());
        } else if f.figure == Figure::Latency.text() {
            let chain = chains.get(f.id.as_str()).copied();
            let passes = |id: &String| chain.is_some_and(|c| c.callbacks.contains(id));
            let on_it = slower.iter().filter(|(id, ..)| passes(id));
            f.follows = on_it.into_iter().find(explains).map(|(id, ..)| id.clone());
            f.mostly = chain.and_then(|c| mostly(c, others.same(c)?));
        } else if f.figure == Figure::ExecutionTail.text() {
            let own = slower.iter().find(|(id, ..)| *id == f.id);
            f.follows = own.map(|(id, ..)| id.clone());
        } else if f.figure == Figure::LatencyTail.text() {
            let chain = chains.get(f.id.as_str()).copied();
            let passes = |id: &String| chain.is_some_and(|c| c.callbacks.contains(id));
            let way = |shift: f64| (shift > 0.0) == (f.change.shift > 0.0);
            let same = tails.iter().find(|(id, shift)| passes(id) && way(*shift));
            f.follows = same.map(|(id, _)| id.clone());
        }
    }
}

fn mostly(chain: &Chain, other: &Chain) -> Option<String> {
    let pairs = chain.figures.shares.iter().zip(&other.figures.shares);
    let shift = |(a, b): &(&Share, &Share)| (b.mean_ns - a.mean_ns).abs();
    let (a, b) = pairs.max_by(|x, y| shift(x).total_cmp(&shift(y)))?;
    let over = if a.element == "edge" { "over " } else { "" };
    let by = onbeat_document::text::duration(b.mean_ns - a.mean_ns);
    Some(format!("{over}{}: its mean changes by {by}", a.name))
}
