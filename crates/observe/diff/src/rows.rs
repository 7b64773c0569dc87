//! Lists the figures that both models have, with their values in each run.

use onbeat_document::schema::{Callback, Chain, Model, RunExtremes, RunTypical, Typical};
use onbeat_document::titles::titles;
use onbeat_document::Dist;
use serde::Serialize;
use std::collections::HashMap;

/// A kind of figure of a callback or chain. onbeat compares these figures of two models.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    Latency,
    Execution,
    Response,
    Period,
    /// The 99th percentile of a callback's execution time.
    ExecutionTail,
    /// The 99th percentile of a chain's latency.
    LatencyTail,
}

impl Figure {
    /// Returns the figure's name in words.
    pub fn text(self) -> &'static str {
        match self {
            Figure::Latency => "latency",
            Figure::Execution => "execution time",
            Figure::Response => "response time",
            Figure::Period => "period",
            Figure::ExecutionTail => "execution time, p99",
            Figure::LatencyTail => "latency, p99",
        }
    }

    /// Returns the quantile that is compared: 0.99 for tails, otherwise 0.5.
    pub fn quantile(self) -> f64 {
        match self {
            Figure::ExecutionTail | Figure::LatencyTail => 0.99,
            _ => 0.5,
        }
    }

    /// Reports whether the figure includes time spent waiting.
    pub fn waits(self) -> bool {
        matches!(
            self,
            Figure::Latency | Figure::LatencyTail | Figure::Response
        )
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunValue {
    pub id: String,
    /// The run's median, or its 99th percentile for a tail, in ns.
    pub median_ns: u64,
}

impl RunValue {
    pub fn log(&self) -> f64 {
        (self.median_ns.max(1) as f64).ln()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Side<'m> {
    pub dist: &'m Dist,
    /// The value of each run, by run id. It is empty if the model does not contain the values of
    /// single runs.
    pub runs: Vec<RunValue>,
    /// The number of independent values that would be as informative as the sample; 0 if it is
    /// unknown.
    pub worth: u64,
}

impl Side<'_> {
    pub fn logs(&self) -> Vec<f64> {
        self.runs.iter().map(RunValue::log).collect()
    }
}

/// A figure that both models have.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'m> {
    pub figure: Figure,
    /// The id of the callback or chain (untrusted).
    pub id: String,
    /// The readable name of the callback or chain (untrusted).
    pub title: String,
    pub a: Side<'m>,
    pub b: Side<'m>,
}

pub fn rows<'m>(a: &'m Model, b: &'m Model) -> Vec<Row<'m>> {
    let mut rows = chains(a, b);
    let others = by_id(b);
    for c in &a.callbacks {
        let Some(other) = others.get(c.id.as_str()) else {
            continue;
        };
        for figure in [Figure::Execution, Figure::Response, Figure::Period] {
            let (a, b) = (side(c, figure), side(other, figure));
            if a.dist.count() > 0 && b.dist.count() > 0 {
                rows.push(Row {
                    figure,
                    id: c.id.clone(),
                    title: c.id.clone(),
                    a,
                    b,
                });
            }
        }
        let tails = (execution_tail(c), execution_tail(other));
        if let (Some(a), Some(b)) = tails {
            rows.push(Row {
                figure: Figure::ExecutionTail,
                id: c.id.clone(),
                title: c.id.clone(),
                a,
                b,
            });
        }
    }
    rows
}

/// The minimum number of runs for a comparison of tails. The spread of tails between runs is only
/// known from the runs themselves.
const TAIL_RUNS: usize = 3;

/// Returns the 99th percentiles of the execution times of all runs. Returns `None` if a run has no
/// 99th percentile, or if the model has too few runs.
fn execution_tail(c: &Callback) -> Option<Side<'_>> {
    let whole = side(c, Figure::Execution);
    let p99 = |run: &RunValue| {
        Some(RunValue {
            id: run.id.clone(),
            median_ns: c.per_run.get(&run.id)?.typical?.exec_ns.p99_ns?,
        })
    };
    let runs: Vec<RunValue> = whole.runs.iter().map(p99).collect::<Option<_>>()?;
    (runs.len() >= TAIL_RUNS).then_some(Side { runs, ..whole })
}

fn latency_tail<'m>(model: &'m Model, chain: &'m Chain) -> Option<Side<'m>> {
    let of_runs = chain.latency_per_run(&model.runs)?;
    let of_runs: Vec<_> = of_runs.into_iter().filter(|(_, d)| d.count() > 0).collect();
    let enough = of_runs.iter().all(|(_, d)| d.count() >= Typical::TAIL);
    let runs = of_runs.iter().map(|(id, d)| RunValue {
        id: (*id).into(),
        median_ns: d.quantile(0.99),
    });
    (enough && of_runs.len() >= TAIL_RUNS).then(|| Side {
        dist: &chain.figures.latency_ns,
        worth: 0,
        runs: runs.collect(),
    })
}

fn side(c: &Callback, figure: Figure) -> Side<'_> {
    let dist = match figure {
        Figure::Response => &c.figures.response_ns,
        Figure::Period => &c.figures.interarrival_ns,
        _ => &c.figures.exec_ns,
    };
    let of =
        |(id, run): (&String, &RunExtremes)| Some((id.clone(), typical(&run.typical?, figure)));
    let known: Vec<(String, Typical)> = c.per_run.iter().filter_map(of).collect();
    let known: Vec<_> = known.into_iter().filter(|(_, t)| t.count > 0).collect();
    let whole = known.iter().map(|(_, t)| t.count).sum::<u64>() == dist.count();
    let told = known.iter().all(|(_, t)| t.effective > 0);
    Side {
        dist,
        worth: match whole && told {
            true => known.iter().map(|(_, t)| t.effective).sum(),
            false => 0,
        },
        runs: match whole {
            true => known.into_iter().map(run_value).collect(),
            false => Vec::new(),
        },
    }
}

fn typical(of: &RunTypical, figure: Figure) -> Typical {
    match figure {
        Figure::Response => of.response_ns,
        Figure::Period => of.interarrival_ns,
        _ => of.exec_ns,
    }
}

fn run_value((id, typical): (String, Typical)) -> RunValue {
    RunValue {
        id,
        median_ns: typical.median_ns,
    }
}

fn chains<'m>(a: &'m Model, b: &'m Model) -> Vec<Row<'m>> {
    let titles = titles(a);
    let others = ChainsByWay::of(b);
    let callbacks = (by_id(a), by_id(b));
    let mut rows = Vec::new();
    for (chain, title) in a.chains.iter().zip(titles) {
        let Some(other) = others.same(chain) else {
            continue;
        };
        let has = |c: &Chain| c.figures.latency_ns.count() > 0;
        if has(chain) && has(other) {
            rows.push(Row {
                figure: Figure::Latency,
                id: chain.id.clone(),
                title: title.clone(),
                a: latency(a, &callbacks.0, chain),
                b: latency(b, &callbacks.1, other),
            });
        }
        if let (Some(a), Some(b)) = (latency_tail(a, chain), latency_tail(b, other)) {
            rows.push(Row {
                figure: Figure::LatencyTail,
                id: chain.id.clone(),
                title,
                a,
                b,
            });
        }
    }
    rows
}

type Way<'m> = (&'m [String], &'m [String], bool, bool);

/// The chains of a model by what they pass. A search in this index takes the same time for any
/// number of chains.
pub struct ChainsByWay<'m>(HashMap<Way<'m>, &'m Chain>);

impl<'m> ChainsByWay<'m> {
    pub fn of(model: &'m Model) -> Self {
        let mut chains = HashMap::new();
        for chain in &model.chains {
            chains.entry(way(chain)).or_insert(chain);
        }
        ChainsByWay(chains)
    }

    /// Returns the chain that passes the same callbacks and topics as a chain of another model.
    pub fn same(&self, chain: &Chain) -> Option<&'m Chain> {
        self.0.get(&way(chain)).copied()
    }
}

fn way(chain: &Chain) -> Way<'_> {
    (&chain.callbacks, &chain.topics, chain.cut, chain.from_input)
}

/// The callbacks of a model by id.
pub type CallbacksById<'m> = HashMap<&'m str, &'m Callback>;

pub fn by_id(model: &Model) -> CallbacksById<'_> {
    let each = model.callbacks.iter();
    each.map(|c| (c.id.as_str(), c)).collect()
}

/// Returns the latencies of a chain, and how many of them are independent. The share of independent
/// latencies is assumed to equal the smallest such share of any callback of the chain.
fn latency<'m>(model: &'m Model, callbacks: &CallbacksById<'m>, chain: &'m Chain) -> Side<'m> {
    let dist = &chain.figures.latency_ns;
    let mut worth = Some(1.0f64);
    let ids = chain.callbacks.iter();
    for c in ids.filter_map(|id| callbacks.get(id.as_str())) {
        let side = side(c, Figure::Execution);
        if side.dist.count() > 0 {
            let known = (side.worth > 0).then(|| side.worth as f64 / side.dist.count() as f64);
            worth = worth.zip(known).map(|(a, b)| a.min(b));
        }
    }
    let runs = chain.latency_per_run(&model.runs).unwrap_or_default();
    let runs = runs.into_iter().filter(|(_, d)| d.count() > 0);
    Side {
        dist,
        worth: worth.map_or(0, |w| ((w * dist.count() as f64) as u64).max(1)),
        runs: runs
            .map(|(id, d)| RunValue {
                id: id.into(),
                median_ns: d.quantile(0.5),
            })
            .collect(),
    }
}
