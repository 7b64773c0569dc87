//! Compares one figure of two models: how much it changed, and how likely the difference is by
//! chance.
//!
//! Two methods exist:
//!
//!   - *Runs*: each run counts once, by the logarithm of its median. Welch's t-test compares the
//!     models' means of these. A median has no heavy tail, and the dependence between executions of
//!     one run does not matter.
//!   - *Executions*, if a model has only one run: the Mann-Whitney test on all values, weighted by
//!     how many independent values they are worth. The interval is widened by the assumed spread
//!     between runs.

use crate::rank::{delta, ratio, Sample};
use crate::rows::{Figure, Row, Side};
use crate::speed::Speed;
use crate::Options;
use onbeat_stats::{normal_beyond, student_beyond, student_quantile};
use serde::Serialize;

/// The smallest standard deviation between runs. Even runs of one machine in one state differ by
/// the width of a bucket.
const LEAST_SPREAD: f64 = 0.001;

/// The method by which a change was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The medians of runs were compared.
    Runs,
    /// The executions of one run were compared, with an assumed spread between runs.
    Executions,
}

/// The change of a figure from the first to the second model.
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
    /// Cliff's delta of all executions as measured, from -1 to 1.
    pub delta: f64,
    /// The standard error of the shift's logarithm, and its degrees of freedom.
    #[serde(skip)]
    pub error: (f64, f64),
    /// The method by which the change was found.
    pub method: Method,
}

impl Change {
    /// Returns the smallest shift that is significant at the level `alpha`.
    pub fn resolution(&self, alpha: f64) -> f64 {
        let (error, freedom) = self.error;
        (student_quantile(1.0 - alpha / 2.0, freedom) * error).exp_m1()
    }
}

/// Compares the two sides of a row. Returns `None` if the models have too little data for it.
pub fn change(row: &Row<'_>, speed: Option<&Speed>, options: &Options) -> Option<Change> {
    let speed = speed.filter(|_| row.figure != Figure::Period);
    let known = |side: &Side<'_>, second: bool| {
        let relative =
            |r: &crate::rows::RunValue| r.log() - speed.map_or(0.0, |s| s.in_run(second, &r.id));
        side.runs.iter().map(relative).collect::<Vec<f64>>()
    };
    let (a, b) = (known(&row.a, false), known(&row.b, true));
    if a.len() > 1 && b.len() > 1 {
        return Some(of_runs(row, &a, &b));
    }
    of_executions(row, speed, options)
}

fn cliff(row: &Row<'_>) -> f64 {
    delta(&Sample::of(row.a.dist, 1), &Sample::of(row.b.dist, 1))
}

fn of_runs(row: &Row<'_>, a: &[f64], b: &[f64]) -> Change {
    let (shift, error, freedom) = welch(a, b);
    let wide = student_quantile(0.975, freedom) * error;
    Change {
        shift: shift.exp_m1(),
        low: (shift - wide).exp_m1(),
        high: (shift + wide).exp_m1(),
        p: (2.0 * student_beyond(shift.abs() / error, freedom)).min(1.0),
        delta: cliff(row),
        error: (error, freedom),
        method: Method::Runs,
    }
}

/// Returns the difference of the means, its standard error and its degrees of freedom, by Welch's
/// t-test.
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

fn of_executions(row: &Row<'_>, speed: Option<&Speed>, options: &Options) -> Option<Change> {
    if row.a.worth == 0 || row.b.worth == 0 {
        return None;
    }
    let ratio = ratio(
        &Sample::of(row.a.dist, row.a.worth),
        &Sample::of(row.b.dist, row.b.worth),
    );
    let mean = |of: &[(String, f64)]| of.iter().map(|(_, log)| log).sum::<f64>() / of.len() as f64;
    let common = speed.map_or(0.0, |s| mean(&s.b) - mean(&s.a));
    let within = (ratio.high.ln() - ratio.low.ln()) / (2.0 * 1.96);
    let times = match row.figure {
        f if f.waits() => crate::WAITING,
        // The median of a period changes only if the clock or the source changes, so periods vary
        // less between runs.
        Figure::Period => 0.1,
        _ => 1.0,
    };
    let runs = |side: &Side<'_>| 1.0 / side.runs.len().max(1) as f64;
    let spread = times * options.run_spread * (runs(&row.a) + runs(&row.b)).sqrt();
    let error = within.hypot(spread).max(LEAST_SPREAD);
    let shift = ratio.value.ln() - common;
    let wide = 1.96 * error;
    Some(Change {
        shift: shift.exp_m1(),
        low: (shift - wide).exp_m1(),
        high: (shift + wide).exp_m1(),
        p: (2.0 * normal_beyond(shift.abs() / error)).min(1.0),
        delta: cliff(row),
        error: (error, 1e6),
        method: Method::Executions,
    })
}
