//! Interleaved arms: the arms of a comparison alternate within one run.
//!
//! A drift of the machine then hits every arm alike. Figures are ratios and differences of
//! neighbouring measurements.

use crate::frame::rng::Rng;
use crate::frame::{Context, Estimate, Kept, Raw, Result, Turns};
use crate::measure::stats::{bootstrap, mean, over_rounds, Sorted, RESAMPLES};

/// Calls `measure` with the arm and the round of each turn, and collects the samples. Marks
/// disturbed rounds as set aside.
pub fn interleave<E>(
    mut turns: Turns,
    names: &[&str],
    mut measure: impl FnMut(usize, usize) -> Result<Vec<f64>, E>,
) -> Result<ArmSamples, E> {
    let mut samples = ArmSamples::new(names, turns.planned());
    for (round, arm) in turns.by_ref() {
        samples.extend(round, arm, measure(arm, round)?);
    }
    samples.keep(turns.finish());
    Ok(samples)
}

#[derive(Debug, Clone, PartialEq)]
pub struct ArmSamples {
    names: Vec<String>,
    rounds: Vec<Vec<Vec<f64>>>,
    /// The rounds that count. `None` if all rounds count.
    kept: Option<Kept>,
}

impl ArmSamples {
    pub fn new(names: &[&str], rounds: usize) -> Self {
        ArmSamples {
            names: names.iter().map(|n| n.to_string()).collect(),
            rounds: vec![vec![Vec::new(); names.len()]; rounds],
            kept: None,
        }
    }

    pub fn keep(&mut self, kept: Kept) {
        self.kept = Some(kept);
    }

    pub fn kept(&self) -> Kept {
        let all = || Kept::from(self.rounds.len());
        self.kept.clone().unwrap_or_else(all)
    }

    pub fn extend(&mut self, round: usize, arm: usize, values: impl IntoIterator<Item = f64>) {
        if round >= self.rounds.len() {
            // A repeated round follows the planned ones.
            let empty = vec![Vec::new(); self.names.len()];
            self.rounds.resize(round + 1, empty);
        }
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
        let shown = self.kept().shown();
        Sorted::new(
            shown
                .iter()
                .flat_map(|r| self.rounds[*r][arm].iter().copied()),
        )
    }

    /// Returns the numbers of the rounds in which arms `a` and `b` both have samples. Also returns
    /// which of these rounds count, as indices into the returned numbers.
    fn complete(&self, a: usize, b: usize) -> (Vec<usize>, Kept) {
        let complete: Vec<usize> = (0..self.rounds.len())
            .filter(|&r| !self.rounds[r][a].is_empty() && !self.rounds[r][b].is_empty())
            .collect();
        let all = self.kept();
        let is_aside = |at: usize| !all.counted().contains(&complete[at]);
        let kept = Kept::without(complete.len(), is_aside);
        (complete, kept)
    }

    /// Estimates by how much the mean of arm `b` exceeds the mean of arm `a`, from the differences
    /// within each round.
    pub fn added_mean(&self, a: usize, b: usize, rng: &mut Rng) -> Estimate {
        let (complete, kept) = self.complete(a, b);
        let differences: Vec<f64> = complete
            .into_iter()
            .map(|r| mean(&self.rounds[r][b]) - mean(&self.rounds[r][a]))
            .collect();
        over_rounds(&kept, &differences, rng, mean)
    }

    /// Estimates by how much the quantile `q` of arm `b` exceeds the quantile `q` of arm `a`. Each
    /// quantile is over the samples of all rounds together.
    pub fn added_quantile(&self, a: usize, b: usize, q: f64, rng: &mut Rng) -> Estimate {
        self.compare(a, b, q, rng, |va, vb| vb - va)
    }

    /// Estimates the quantile `q` of one arm over the samples of all rounds together.
    pub fn quantile(&self, arm: usize, q: f64, rng: &mut Rng) -> Estimate {
        self.compare(arm, arm, q, rng, |value, _| value)
    }

    pub fn quantile_ratio(&self, a: usize, b: usize, q: f64, rng: &mut Rng) -> Estimate {
        self.compare(a, b, q, rng, |va, vb| if va == 0.0 { 0.0 } else { vb / va })
    }

    /// Estimates the figure that `figure` computes from the quantiles `q` of two arms. Each
    /// quantile is over the samples of all rounds together.
    pub fn compare(
        &self,
        a: usize,
        b: usize,
        q: f64,
        rng: &mut Rng,
        figure: impl Fn(f64, f64) -> f64,
    ) -> Estimate {
        let (rounds, kept) = self.complete(a, b);
        let of = |arm: usize, pick: &[usize]| {
            Sorted::new(
                pick.iter()
                    .flat_map(|&i| self.rounds[rounds[i]][arm].iter().copied()),
            )
            .quantile(q)
        };
        bootstrap(kept, RESAMPLES, rng, |pick| {
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
    use crate::frame::verdict::{judge, Evidence, Relation};
    use crate::measure::stats::median;

    #[test]
    fn a_constant_cost_is_found_despite_a_much_larger_drift() {
        let mut time = 0.0;
        let samples = interleave::<()>(
            Turns::quiet(2, 20, &mut Rng::new(3)),
            &["off", "on"],
            |arm, _| {
                Ok((0..50)
                    .map(|_| {
                        time += 10.0;
                        1000.0 + time + 3.0 * arm as f64
                    })
                    .collect())
            },
        )
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

    /// Simulates `runs` comparisons of two arms, the second of which takes `factor` times as long.
    /// The arms drift together from round to round, and each turn has its own noise of about 10 %.
    /// Returns for each comparison the estimated ratio of medians.
    fn simulated(rounds: usize, factor: f64, runs: u64) -> Vec<Estimate> {
        let one = |seed| {
            let mut rng = Rng::for_purpose(seed, "arms");
            let mut normal = move || (0..12).map(|_| uniform(&mut rng)).sum::<f64>() - 6.0;
            let mut samples = ArmSamples::new(&["a", "b"], rounds);
            for round in 0..rounds {
                let drift = 1.0 + 0.1 * normal().abs();
                for (arm, times) in [1.0, factor].into_iter().enumerate() {
                    let turn = 100.0 * drift * times * (0.1 * normal()).exp();
                    samples.extend(round, arm, (0..3).map(|_| turn * (0.1 * normal()).exp()));
                }
            }
            samples.quantile_ratio(0, 1, 0.5, &mut Rng::for_purpose(seed, "interval"))
        };
        (0..runs).map(one).collect()
    }

    fn uniform(rng: &mut Rng) -> f64 {
        rng.below(1 << 40) as f64 / (1u64 << 40) as f64
    }

    fn share(all: &[Estimate], is: impl Fn(&Estimate) -> bool) -> f64 {
        all.iter().filter(|e| is(e)).count() as f64 / all.len() as f64
    }

    #[test]
    fn equal_arms_show_no_difference_and_a_real_difference_is_found() {
        for rounds in [3, 8] {
            let equal = simulated(rounds, 1.0, 100);
            let claimed = share(&equal, |e| e.low > 1.0 || e.high < 1.0);
            assert!(claimed <= 0.05, "{rounds} rounds: {claimed}");
        }
        let slowed = simulated(12, 1.3, 60);
        let found = share(&slowed, |e| e.low > 1.0);
        assert!(found >= 0.9, "{found}");
        // Nine of ten runs also find an effect of the size `tells`.
        let of = |e: &Estimate| {
            let evidence = Evidence::of(*e);
            judge(e.value, &evidence, Relation::AtMost, 1.0).tells
        };
        let claims = simulated(12, 1.0, 60)
            .iter()
            .filter_map(of)
            .collect::<Vec<_>>();
        let told = simulated(12, 1.0 + median(&claims), 60);
        let found = share(&told, |e| e.low > 1.0);
        assert!(found >= 0.9, "{found} at {}", median(&claims));
    }

    #[test]
    fn rounds_that_were_set_aside_count_for_no_arm() {
        let mut s = ArmSamples::new(&["a", "b"], 3);
        for (round, value) in [(0, 1.0), (1, 9.0), (2, 1.0), (3, 1.0)] {
            s.extend(round, 0, [value]);
            s.extend(round, 1, [value + 1.0]);
        }
        s.keep(Kept::without(4, |round| round == 1));
        assert_eq!(s.pooled(1).values(), [2.0, 2.0, 2.0]);
        let added = s.quantile_ratio(0, 1, 1.0, &mut Rng::new(1));
        assert_eq!((added.value, added.rounds), (2.0, Some(3)));
        let all = added.with_disturbed.unwrap();
        assert_eq!((all.value, all.rounds), (10.0 / 9.0, 4));
        // If no round counts, the value comes from all rounds and decides nothing.
        s.keep(Kept::without(4, |_| true));
        let added = s.quantile_ratio(0, 1, 1.0, &mut Rng::new(1));
        assert_eq!((added.value, added.rounds), (10.0 / 9.0, Some(0)));
        assert_eq!(s.pooled(0).len(), 4);
    }
}
