//! How fast the machine was in each run: what all callbacks have in common.
//!
//! One run can be slower than another in everything: a clock, a neighbour on the host, heat. The median of
//! all callbacks' deviations in a run stands for that. A change of one callback does not move it.

use crate::rows::{Figure, Row};

/// Fewest callbacks whose common part is told from each one's own.
const FEWEST: usize = 5;

/// The speed of each run, as the logarithm of what times took longer than usual.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Speed {
    /// Of the first model's runs, in the order of its run ids.
    pub a: Vec<(String, f64)>,
    /// Of the second one's.
    pub b: Vec<(String, f64)>,
}

impl Speed {
    /// From the execution times of callbacks that ran in all runs of both models. None where these are too
    /// few.
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
            // The middle of both models' own middles: neither weighs more for having more runs.
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

    /// Of a run of the first model, or of the second.
    pub fn in_run(&self, second: bool, run: &str) -> f64 {
        let of = if second { &self.b } else { &self.a };
        of.iter()
            .find(|(id, _)| id == run)
            .map_or(0.0, |(_, log)| *log)
    }

    /// The slowest and the fastest run, as factors of the usual time.
    pub fn extremes(&self) -> (f64, f64) {
        let all = || self.a.iter().chain(&self.b).map(|(_, log)| log.exp());
        (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max))
    }
}

/// The median; 0 of nothing.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => 0.0,
        _ => (values[(n - 1) / 2] + values[n / 2]) / 2.0,
    }
}
