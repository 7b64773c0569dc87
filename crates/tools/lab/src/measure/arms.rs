//! Interleaved arms: the arms of a comparison alternate within one run.
//!
//! A drift of the machine then hits every arm alike. Figures are ratios and differences of
//! neighbouring measurements.

use crate::frame::rng::Rng;
use crate::frame::{Context, Estimate, Raw, Result};
use crate::measure::stats::{bootstrap, mean, resampled, Sorted, RESAMPLES};

/// Returns the order of measurements as `(round, arm)`. Every round holds every arm once. Every
/// second round reverses the previous one (A B, B A), so that a linear drift cancels. Each pair of
/// rounds starts in random order, so that nothing periodic favours an arm.
pub fn schedule(arms: usize, rounds: usize, rng: &mut Rng) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..arms).collect();
    let mut out = Vec::with_capacity(arms * rounds);
    for round in 0..rounds {
        if round % 2 == 0 {
            rng.shuffle(&mut order);
        } else {
            order.reverse();
        }
        out.extend(order.iter().map(|&arm| (round, arm)));
    }
    out
}

pub fn interleave<E>(
    names: &[&str],
    rounds: usize,
    rng: &mut Rng,
    mut measure: impl FnMut(usize, usize) -> Result<Vec<f64>, E>,
) -> Result<ArmSamples, E> {
    let mut samples = ArmSamples::new(names, rounds);
    for (round, arm) in schedule(names.len(), rounds, rng) {
        samples.rounds[round][arm] = measure(arm, round)?;
    }
    Ok(samples)
}

#[derive(Debug, Clone, PartialEq)]
pub struct ArmSamples {
    names: Vec<String>,
    rounds: Vec<Vec<Vec<f64>>>,
}

impl ArmSamples {
    pub fn new(names: &[&str], rounds: usize) -> Self {
        ArmSamples {
            names: names.iter().map(|n| n.to_string()).collect(),
            rounds: vec![vec![Vec::new(); names.len()]; rounds],
        }
    }

    pub fn extend(&mut self, round: usize, arm: usize, values: impl IntoIterator<Item = f64>) {
        self.rounds[round][arm].extend(values);
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    pub fn of(&self, round: usize, arm: usize) -> &[f64] {
        &self.rounds[round][arm]
    }

    pub fn pooled(&self, arm: usize) -> Sorted {
        Sorted::new(self.rounds.iter().flat_map(|r| r[arm].iter().copied()))
    }

    fn complete(&self, a: usize, b: usize) -> Vec<usize> {
        (0..self.rounds.len())
            .filter(|&r| !self.rounds[r][a].is_empty() && !self.rounds[r][b].is_empty())
            .collect()
    }

    /// Estimates by how much the mean of arm `b` exceeds that of arm `a`, from the differences
    /// within each round.
    pub fn added_mean(&self, a: usize, b: usize, rng: &mut Rng) -> Estimate {
        let differences: Vec<f64> = self
            .complete(a, b)
            .into_iter()
            .map(|r| mean(&self.rounds[r][b]) - mean(&self.rounds[r][a]))
            .collect();
        resampled(&differences, rng, mean)
    }

    /// Estimates by how much the quantile `q` of arm `b` exceeds that of arm `a`, over the samples
    /// of all rounds together.
    pub fn added_quantile(&self, a: usize, b: usize, q: f64, rng: &mut Rng) -> Estimate {
        self.compare(a, b, q, rng, |va, vb| vb - va)
    }

    pub fn quantile_ratio(&self, a: usize, b: usize, q: f64, rng: &mut Rng) -> Estimate {
        self.compare(a, b, q, rng, |va, vb| if va == 0.0 { 0.0 } else { vb / va })
    }

    fn compare(
        &self,
        a: usize,
        b: usize,
        q: f64,
        rng: &mut Rng,
        figure: impl Fn(f64, f64) -> f64,
    ) -> Estimate {
        let rounds = self.complete(a, b);
        let of = |arm: usize, pick: &[usize]| {
            Sorted::new(
                pick.iter()
                    .flat_map(|&i| self.rounds[rounds[i]][arm].iter().copied()),
            )
            .quantile(q)
        };
        bootstrap(rounds.len(), RESAMPLES, rng, |pick| {
            figure(of(a, pick), of(b, pick))
        })
    }

    fn lines<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = String> + 'a {
        self.rounds
            .iter()
            .enumerate()
            .flat_map(move |(round, arms)| {
                self.names.iter().zip(arms).flat_map(move |(name, values)| {
                    values
                        .iter()
                        .map(move |v| format!("{prefix}{name},{round},{v}"))
                })
            })
    }

    pub fn write(&self, raw: &mut Raw, prefix: &str) -> Result<()> {
        self.lines(prefix)
            .try_for_each(|line| raw.line(format_args!("{line}")))
    }

    pub fn save(&self, context: &mut Context, file: &str) -> Result<()> {
        let mut raw = context.raw(file, "arm,round,value")?;
        self.write(&mut raw, "")?;
        raw.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiment_arms_alternate_so_that_linear_drift_cancels() {
        for seed in 0..20 {
            let order = schedule(2, 10, &mut Rng::new(seed));
            for round in 0..10 {
                let mut arms: Vec<_> = order.iter().filter(|o| o.0 == round).map(|o| o.1).collect();
                arms.sort_unstable();
                assert_eq!(arms, [0, 1], "every round holds every arm once");
            }
            let mean_position = |arm| {
                mean(
                    &order
                        .iter()
                        .enumerate()
                        .filter(|(_, o)| o.1 == arm)
                        .map(|(i, _)| i as f64)
                        .collect::<Vec<_>>(),
                )
            };
            assert_eq!(mean_position(0), mean_position(1), "seed {seed}");
        }
        let starts: std::collections::BTreeSet<_> = (0..20)
            .map(|seed| schedule(2, 2, &mut Rng::new(seed))[0].1)
            .collect();
        assert_eq!(starts.len(), 2, "the first arm is not always the same");
    }

    #[test]
    fn a_constant_cost_is_found_despite_a_much_larger_drift() {
        let mut time = 0.0;
        let samples = interleave::<()>(&["off", "on"], 20, &mut Rng::new(3), |arm, _| {
            Ok((0..50)
                .map(|_| {
                    time += 10.0;
                    1000.0 + time + 3.0 * arm as f64
                })
                .collect())
        })
        .unwrap();
        let added = samples.added_mean(0, 1, &mut Rng::new(1));
        assert!((added.value - 3.0).abs() < 1e-6, "{added:?}");
        assert!(added.low <= 3.0 && 3.0 <= added.high);
        assert_eq!(samples.lines("100,").count(), 2 * 20 * 50);
        assert!(samples
            .lines("100,")
            .all(|l| l.starts_with("100,off,") || l.starts_with("100,on,")));
    }

    #[test]
    fn quantile_ratio_compares_the_pooled_samples() {
        let mut s = ArmSamples::new(&["a", "b"], 2);
        for round in 0..2 {
            s.extend(round, 0, (1..=100).map(f64::from));
            s.extend(round, 1, (1..=100).map(|v| 2.0 * f64::from(v)));
        }
        assert_eq!(s.quantile_ratio(0, 1, 0.99, &mut Rng::new(1)).value, 2.0);
        assert_eq!(s.added_quantile(0, 1, 0.5, &mut Rng::new(1)).value, 50.0);
    }
}
