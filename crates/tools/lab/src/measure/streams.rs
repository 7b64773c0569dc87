//! Streams of messages as in the paper's Table I, generated from a seed or read from a recording.
//!
//! The paper gives the minimum, mean and maximum of the time between messages (cycle time) and of
//! their processing time, but not the distribution. Every maximum lies far from its mean (96 times
//! for the radar's cycle time). The lab therefore uses a bounded Pareto distribution. Between
//! minimum L and maximum H it has one parameter, the shape, which follows from the mean:
//!
//! ```text
//! x(u) = L / (1 - u (1 - (L/H)^a))^(1/a)    0 < u < 1, L (H/L)^u for a = 0
//! ```
//!
//! A stream of n messages takes the n quantiles at u = (i + 1/2) / n. L and H replace the first and
//! the last one. The shape is chosen so that the sum of exactly these numbers is n times the mean.
//! The seed gives their order. So every stream has the table's minimum, mean and maximum, and a
//! short stream has the shape of a long one.

use crate::frame::files;
use crate::frame::rng::Rng;
use crate::frame::{LabError, Result};
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub min: u64,
    pub mean: f64,
    pub max: u64,
}

impl Spread {
    const fn new(min: u64, mean: f64, max: u64) -> Spread {
        Spread { min, mean, max }
    }

    pub fn of(values: &[u64]) -> Spread {
        Spread {
            min: values.iter().copied().min().unwrap_or(0),
            mean: values.iter().sum::<u64>() as f64 / values.len().max(1) as f64,
            max: values.iter().copied().max().unwrap_or(0),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kind {
    pub name: &'static str,
    pub bytes: usize,
    pub cycle: Spread,
    pub processing: Spread,
}

pub const CAN: Kind = Kind {
    name: "can",
    bytes: 32,
    cycle: Spread::new(2_453, 2_940_961.0, 29_295_807),
    processing: Spread::new(943, 5_416.0, 39_170),
};

pub const RADAR: Kind = Kind {
    name: "radar",
    bytes: 1538,
    cycle: Spread::new(2_707, 1_703_144.0, 163_720_481),
    processing: Spread::new(1_628, 8_136.0, 108_098),
};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Arrivals {
    pub due_ns: Vec<u64>,
    pub processing_ns: Vec<u64>,
}

impl Arrivals {
    pub fn generate(kind: &Kind, messages: usize, rng: &mut Rng) -> Result<Arrivals> {
        let mut cycles = values(kind.cycle, messages)?;
        let mut processing_ns = values(kind.processing, messages)?;
        rng.shuffle(&mut cycles);
        rng.shuffle(&mut processing_ns);
        Ok(Arrivals {
            due_ns: sums(&cycles),
            processing_ns,
        })
    }

    pub fn read(path: &Path, limit_ns: u64) -> Result<Arrivals> {
        let text = files::text(path)?;
        parse(&text, limit_ns).map_err(|why| LabError::in_file(path, why))
    }

    pub fn cycles(&self) -> Vec<u64> {
        let before = [0].into_iter().chain(self.due_ns.iter().copied());
        self.due_ns
            .iter()
            .zip(before)
            .map(|(due, before)| due - before)
            .collect()
    }

    pub fn slowed(&self, factor: u64) -> Arrivals {
        Arrivals {
            due_ns: self.due_ns.clone(),
            processing_ns: self.processing_ns.iter().map(|p| p * factor).collect(),
        }
    }

    pub fn length_ns(&self) -> u64 {
        self.due_ns.last().copied().unwrap_or(0)
    }

    pub fn text(&self) -> String {
        let lines = self.due_ns.iter().zip(&self.processing_ns);
        lines
            .map(|(due, processing)| format!("{due},{processing}\n"))
            .collect()
    }
}

fn sums(cycles: &[u64]) -> Vec<u64> {
    let sum = cycles.iter().scan(0, |sum, cycle| {
        *sum += cycle;
        Some(*sum)
    });
    sum.collect()
}

fn parse(text: &str, limit_ns: u64) -> Result<Arrivals, String> {
    let mut arrivals = Arrivals::default();
    let mut first = None;
    for (i, line) in text.lines().enumerate() {
        if i == 0 && line.starts_with(|c: char| c.is_alphabetic()) {
            continue;
        }
        let numbers: Option<(u64, u64)> = line
            .split_once(',')
            .and_then(|(d, p)| Some((d.trim().parse().ok()?, p.trim().parse().ok()?)));
        let Some((at, processing)) = numbers else {
            return Err(format!(
                "line {} is '{line}'. Write due_ns,processing_ns",
                i + 1
            ));
        };
        let due = at
            .checked_sub(*first.get_or_insert(at))
            .filter(|due| arrivals.length_ns() <= *due)
            .ok_or_else(|| {
                format!(
                    "the time in line {} is earlier than in the previous line",
                    i + 1
                )
            })?;
        if due > limit_ns {
            break;
        }
        arrivals.due_ns.push(due);
        arrivals.processing_ns.push(processing);
    }
    if arrivals.due_ns.len() < 2 {
        return Err("the recording has fewer than two messages".into());
    }
    Ok(arrivals)
}

/// Returns the quantile `u` (0 to 1) of the Pareto distribution with exponent `shape`, bounded by
/// `low` and `high`.
fn quantile(u: f64, low: f64, high: f64, shape: f64) -> f64 {
    let ratio = (low / high).ln();
    if shape.abs() < 1e-9 {
        return low * (-u * ratio).exp();
    }
    let tail = 1.0 - (shape * ratio).exp();
    low * (-(-u * tail).ln_1p() / shape).exp()
}

/// Returns `n` ascending values with exactly the minimum and maximum of `spread`. Their sum differs
/// from `n` times the mean of `spread` by at most half a nanosecond.
fn values(spread: Spread, n: usize) -> Result<Vec<u64>> {
    let Spread { min, mean, max } = spread;
    let total = (mean * n as f64).round() as i64;
    let of_shape = |shape: f64| -> Vec<u64> {
        (0..n)
            .map(|i| match i {
                0 => min,
                i if i + 1 == n => max,
                i => {
                    let u = (i as f64 + 0.5) / n as f64;
                    let x = quantile(u, min as f64, max as f64, shape);
                    (x.round() as u64).clamp(min, max)
                }
            })
            .collect()
    };
    let sum = |values: &[u64]| values.iter().sum::<u64>() as i64;
    // A larger shape gives a smaller mean.
    let (mut low, mut high) = (-40.0, 40.0);
    let within = n >= 3 && sum(&of_shape(high)) <= total && total <= sum(&of_shape(low));
    if !within {
        return Err(LabError::unexpected(
            format!("a stream of {n} messages"),
            format!("with so few messages, times from {min} to {max} ns cannot have a mean of {mean} ns"),
        ));
    }
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if sum(&of_shape(middle)) > total {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut values = of_shape(high);
    // Distributes the remainder of rounding over the inner values, one nanosecond each.
    let mut left = total - sum(&values);
    while left != 0 {
        let before = left;
        for value in &mut values[1..n - 1] {
            let step = left.signum();
            let moved = value.saturating_add_signed(step);
            if step != 0 && (min..=max).contains(&moved) {
                *value = moved;
                left -= step;
            }
        }
        if left == before {
            break;
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spread: Spread, values: &[u64]) {
        let of = Spread::of(values);
        assert_eq!((of.min, of.max), (spread.min, spread.max));
        assert!(
            (of.mean - spread.mean).abs() * values.len() as f64 <= 1.0,
            "{of:?} for {spread:?}"
        );
    }

    #[test]
    fn streams_have_the_minimum_mean_and_maximum_of_table_1() {
        for kind in [CAN, RADAR] {
            for (seed, n) in [(1, 900), (2, 1761), (3, 2349), (4, 10_007)] {
                let a = Arrivals::generate(&kind, n, &mut Rng::new(seed)).unwrap();
                assert_eq!((a.due_ns.len(), a.processing_ns.len()), (n, n));
                check(kind.cycle, &a.cycles());
                check(kind.processing, &a.processing_ns);
            }
        }
    }

    #[test]
    fn generated_streams_have_any_requested_minimum_mean_and_maximum() {
        let mut rng = Rng::new(11);
        for _ in 0..200 {
            let min = 1 + rng.below(10_000);
            let max = min + 1000 + rng.below(100_000_000);
            let n = 500 + rng.below(2000) as usize;
            // Means between 1 % and 50 % of the way are possible with n values.
            let share = 0.01 + 0.49 * rng.below(1000) as f64 / 1000.0;
            let mean = min as f64 + share * (max - min) as f64;
            check(
                Spread { min, mean, max },
                &values(Spread { min, mean, max }, n).unwrap(),
            );
        }
    }

    #[test]
    fn equal_seeds_give_equal_streams_and_other_seeds_another_order() {
        let of = |seed| Arrivals::generate(&RADAR, 1000, &mut Rng::new(seed)).unwrap();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let sorted = |a: Arrivals| {
            let mut cycles = a.cycles();
            cycles.sort_unstable();
            cycles
        };
        assert_eq!(sorted(of(1)), sorted(of(2)));
    }

    #[test]
    fn most_generated_cycle_times_are_far_below_the_mean() {
        let mut cycles = values(RADAR.cycle, 2349).unwrap();
        cycles.sort_unstable();
        let median = cycles[cycles.len() / 2] as f64;
        assert!(
            median < RADAR.cycle.mean / 20.0,
            "most messages come in bursts: the median is {median}"
        );
    }

    #[test]
    fn streams_with_too_few_messages_are_refused() {
        assert!(values(RADAR.cycle, 50).is_err());
        assert!(values(RADAR.cycle, 0).is_err());
    }

    #[test]
    fn recorded_arrival_times_are_read_from_any_first_time_up_to_a_limit() {
        let a = parse(
            "due_ns,processing_ns\n1000,5\n1000,6\n1500, 7\n9000,8\n",
            5000,
        )
        .unwrap();
        assert_eq!(
            (a.due_ns, a.processing_ns),
            (vec![0, 0, 500], vec![5, 6, 7])
        );
        for wrong in [
            "",
            "1,1",
            "1\n2\n",
            "5,1\n4,1\n",
            "a,b\nc,d\n",
            "1,1\n-2,1\n",
        ] {
            assert!(parse(wrong, 1000).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_stream_with_slower_processing_keeps_its_arrival_times() {
        let a = Arrivals::generate(&CAN, 500, &mut Rng::new(1)).unwrap();
        let slow = a.slowed(3);
        assert_eq!(slow.due_ns, a.due_ns);
        assert_eq!(slow.processing_ns[7], 3 * a.processing_ns[7]);
    }
}
