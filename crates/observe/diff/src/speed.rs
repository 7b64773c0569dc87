//! Estimates how fast the machine was in each run, so that a slower machine does not look like a
//! slower program.
//!
//! A clock rate, a neighbour on the host or heat can slow down everything in a run. The speed of a
//! run is the median deviation of all its callbacks. A change of one callback does not move this
//! median.

use crate::rows::{Figure, Row};

/// The minimum number of callbacks for an estimate of the machine's speed. With fewer callbacks,
/// onbeat cannot separate their common deviation from the deviation of each one.
const FEWEST: usize = 5;

/// The speed of the machine in each run, as the logarithm of the run's execution times relative to
/// usual ones. The usual execution time of a callback is the mean of its two models' medians over
/// runs. 0 is usual, and a positive value is slower.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Speed {
    /// The first model's runs: the id of each run, and the logarithm of the run's execution times
    /// relative to the usual ones of both models. A positive value means a slow run.
    pub a: Vec<(String, f64)>,
    /// The second model's runs: the id of each run, and the logarithm of the run's execution times
    /// relative to the usual ones of both models. A positive value means a slow run.
    pub b: Vec<(String, f64)>,
}

impl Speed {
    /// Estimates the speed of the machine from the callbacks that ran in all runs of both models.
    /// Returns `None` if there are too few such callbacks.
    pub fn of(rows: &[Row<'_>]) -> Option<Speed> {
        let all = |r: &&Row<'_>| r.figure == Figure::Execution;
        let most = |side: fn(&Row<'_>) -> usize| rows.iter().filter(all).map(side).max();
        let (a, b) = (most(|r| r.a.runs.len())?, most(|r| r.b.runs.len())?);
        let whole = |r: &&Row<'_>| r.a.runs.len() == a && r.b.runs.len() == b;
        let used: Vec<&Row<'_>> = rows.iter().filter(all).filter(whole).collect();
        if used.len() < FEWEST || a == 0 || b == 0 {
            return None;
        }
        let usual: Vec<f64> = used
            .iter()
            // The mean of both models' medians gives both models the same weight, even if one has
            // more runs.
            .map(|r| (median(r.a.logs()) + median(r.b.logs())) / 2.0)
            .collect();
        let of_run = |logs: &dyn Fn(&Row<'_>) -> f64| {
            let off = used
                .iter()
                .zip(&usual)
                .map(|(row, usual)| logs(row) - usual);
            median(off.collect())
        };
        let mut speed = Speed::default();
        for i in 0..a {
            let run = used[0].a.runs[i].id.clone();
            speed.a.push((run, of_run(&|r| r.a.runs[i].log())));
        }
        for i in 0..b {
            let run = used[0].b.runs[i].id.clone();
            speed.b.push((run, of_run(&|r| r.b.runs[i].log())));
        }
        Some(speed)
    }

    /// Returns the logarithm of a run's execution times relative to the usual ones of both models.
    /// The run belongs to the first model, or to the second one if `second` is set. Returns 0 for
    /// an unknown run.
    pub fn in_run(&self, second: bool, run: &str) -> f64 {
        let of = if second { &self.b } else { &self.a };
        of.iter()
            .find(|(id, _)| id == run)
            .map_or(0.0, |(_, log)| *log)
    }

    /// Returns two factors: the execution times of the fastest and of the slowest run of both
    /// models, divided by the usual execution times.
    pub fn extremes(&self) -> (f64, f64) {
        let all = || self.a.iter().chain(&self.b).map(|(_, log)| log.exp());
        (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max))
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => 0.0,
        _ => (values[(n - 1) / 2] + values[n / 2]) / 2.0,
    }
}
