//! Compares one figure of two models: how much it changed, and how likely the difference is by
//! chance.
//!
//! Two methods exist:
//!
//!   - *Runs*: each run counts once, by the logarithm of its median. Welch's t-test compares the
//!     means of these logarithms in the two models. A median has no heavy tail, and the dependence
//!     between executions of one run does not matter.
//!   - *Executions*, if a model has only one run: the Mann-Whitney test on all values, weighted by
//!     how many independent values they are worth. The interval is widened by the spread between
//!     runs ([`crate::spread`]).

use crate::rank::{delta, ratio, Sample};
use crate::rows::{Figure, Row, Side};
use crate::speed::Speed;
use onbeat_document::Dist;
use onbeat_stats::{student_beyond, student_quantile};
use serde::Serialize;

/// The smallest standard deviation of ln(median) from run to run that a test assumes. The medians
/// of runs on one machine in one state differ by the width of a histogram's bucket.
pub const LEAST_SPREAD: f64 = 0.001;

/// The degrees of freedom of a standard error that is known exactly instead of estimated.
pub const EXACT: f64 = 1e6;

/// The method by which a change was found.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    Runs,
    /// The executions of one run were compared, with an estimated or assumed spread between runs.
    Executions,
}

/// The change of a figure from the first to the second model.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// The change as a share of the first model's value: 0.1 means a tenth more.
    pub shift: f64,
    /// The lower end of the 95 % confidence interval of the shift.
    pub low: f64,
    /// The upper end of the 95 % confidence interval of the shift.
    pub high: f64,
    /// The probability of a change this large or larger by chance, not corrected for multiple
    /// comparisons.
    pub p: f64,
    /// Cliff's delta between the executions of the first and the second model, from -1 to 1. The
    /// executions are compared as measured, without a correction for the speed of the machine.
    pub delta: f64,
    /// The standard error of ln(1 + `shift`), and its degrees of freedom.
    #[serde(skip)]
    pub error: (f64, f64),
    pub method: Method,
}

impl Change {
    fn of(shift: f64, (error, freedom): (f64, f64), delta: f64, method: Method) -> Change {
        let wide = student_quantile(0.975, freedom) * error;
        Change {
            shift: shift.exp_m1(),
            low: (shift - wide).exp_m1(),
            high: (shift + wide).exp_m1(),
            p: (2.0 * student_beyond(shift.abs() / error, freedom)).min(1.0),
            delta,
            error: (error, freedom),
            method,
        }
    }

    /// Returns the smallest shift that would be significant at the level `alpha` with this standard
    /// error.
    pub fn resolution(&self, alpha: f64) -> f64 {
        let (error, freedom) = self.error;
        (student_quantile(1.0 - alpha / 2.0, freedom) * error).exp_m1()
    }
}

/// The result of comparing one figure. Its form depends on the number of runs in the models.
pub enum Measured {
    /// The change, if both models have several runs.
    Runs(Change),
    /// The comparison if at least one model has only one run. The data then do not show the spread
    /// between runs.
    Single(Single),
}

/// A comparison of a figure's executions, without the spread between runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Single {
    /// ln(value of the second model / value of the first model), for the same figure.
    pub shift: f64,
    /// The standard error of `shift` if all runs of one program had the same distribution.
    pub within: f64,
    /// The factor that turns the standard deviation between runs of one program into the standard
    /// deviation of `shift`: sqrt(1/n + 1/m) for n and m runs in the models.
    pub runs: f64,
    /// The width of the figure's distribution: ln(third quartile / first quartile), averaged over
    /// both models.
    pub width: f64,
    pub delta: f64,
}

impl Single {
    /// Turns this comparison into a change. `error` is the standard error of `shift`, and `freedom`
    /// the degrees of freedom of this standard error.
    pub fn change(&self, error: f64, freedom: f64) -> Change {
        Change::of(self.shift, (error, freedom), self.delta, Method::Executions)
    }
}

/// Compares the values of one figure in both models. If `speed` is given, the values are corrected
/// for the speed of the machine in each run. Returns `None` if the models have too little data for
/// the figure.
pub fn measure(row: &Row<'_>, speed: Option<&Speed>) -> Option<Measured> {
    let speed = speed.filter(|_| row.figure != Figure::Period);
    let known = |side: &Side<'_>, second: bool| {
        let relative =
            |r: &crate::rows::RunValue| r.log() - speed.map_or(0.0, |s| s.in_run(second, &r.id));
        side.runs.iter().map(relative).collect::<Vec<f64>>()
    };
    let (a, b) = (known(&row.a, false), known(&row.b, true));
    if a.len() > 1 && b.len() > 1 {
        let (shift, error, freedom) = welch(&a, &b);
        let change = Change::of(shift, (error, freedom), cliff(row), Method::Runs);
        return Some(Measured::Runs(change));
    }
    single(row, speed).map(Measured::Single)
}

fn cliff(row: &Row<'_>) -> f64 {
    delta(&Sample::of(row.a.dist, 1), &Sample::of(row.b.dist, 1))
}

/// Returns the mean of `b` minus the mean of `a`, its standard error and its degrees of freedom, by
/// Welch's t-test.
pub fn welch(a: &[f64], b: &[f64]) -> (f64, f64, f64) {
    let of = |values: &[f64]| {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, variance.max(LEAST_SPREAD * LEAST_SPREAD) / n, n)
    };
    let ((mean_a, a, n), (mean_b, b, m)) = (of(a), of(b));
    let freedom = (a + b).powi(2) / (a * a / (n - 1.0) + b * b / (m - 1.0));
    (mean_b - mean_a, (a + b).sqrt(), freedom)
}

fn single(row: &Row<'_>, speed: Option<&Speed>) -> Option<Single> {
    if row.a.worth == 0 || row.b.worth == 0 {
        return None;
    }
    let ratio = ratio(
        &Sample::of(row.a.dist, row.a.worth),
        &Sample::of(row.b.dist, row.b.worth),
    );
    let mean = |of: &[(String, f64)]| of.iter().map(|(_, log)| log).sum::<f64>() / of.len() as f64;
    let common = speed.map_or(0.0, |s| mean(&s.b) - mean(&s.a));
    let runs = |side: &Side<'_>| 1.0 / side.runs.len().max(1) as f64;
    Some(Single {
        shift: ratio.value.ln() - common,
        within: (ratio.high.ln() - ratio.low.ln()) / (2.0 * 1.96),
        runs: (runs(&row.a) + runs(&row.b)).sqrt(),
        width: (width(row.a.dist) + width(row.b.dist)) / 2.0,
        delta: cliff(row),
    })
}

fn width(dist: &Dist) -> f64 {
    let log = |q: f64| (dist.quantile(q).max(1) as f64).ln();
    log(0.75) - log(0.25)
}
