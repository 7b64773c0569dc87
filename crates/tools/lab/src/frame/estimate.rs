//! An estimated value with its confidence interval, and the rounds that count.

/// A value with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
    /// The number of rounds from which the interval comes. `None` if the value does not come from
    /// rounds.
    pub rounds: Option<usize>,
    /// The estimate over all rounds, including disturbed ones. `None` if no round was set aside as
    /// disturbed.
    pub with_disturbed: Option<Spread>,
}

/// The value and the interval of an estimate over all rounds, including disturbed ones.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Spread {
    pub value: f64,
    pub interval: (f64, f64),
    pub rounds: usize,
}

impl Estimate {
    pub fn exact(value: f64) -> Self {
        Estimate::within(value, (value, value))
    }

    pub fn within(value: f64, (low, high): (f64, f64)) -> Self {
        Estimate {
            value,
            low,
            high,
            rounds: None,
            with_disturbed: None,
        }
    }

    pub fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Estimate {
            value: of(self.value),
            low: of(self.low),
            high: of(self.high),
            rounds: self.rounds,
            with_disturbed: self.with_disturbed.map(|all| Spread {
                value: of(all.value),
                interval: (of(all.interval.0), of(all.interval.1)),
                rounds: all.rounds,
            }),
        }
    }
}

/// The rounds of a comparison: the numbers of those that count, and the number of all measured
/// rounds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Kept {
    counted: Vec<usize>,
    all: usize,
}

impl Kept {
    /// Returns the rounds of a comparison in which `all` rounds were measured. Rounds for which
    /// `is_aside` returns true do not count.
    pub fn without(all: usize, is_aside: impl Fn(usize) -> bool) -> Kept {
        let counted = (0..all).filter(|round| !is_aside(*round)).collect();
        Kept { counted, all }
    }

    pub fn counted(&self) -> &[usize] {
        &self.counted
    }

    /// Returns the numbers of the rounds to show: those that count, or all rounds if none counts.
    pub fn shown(&self) -> Vec<usize> {
        match &self.counted[..] {
            [] => (0..self.all).collect(),
            counted => counted.to_vec(),
        }
    }

    pub fn all(&self) -> usize {
        self.all
    }

    /// Appends the rounds of the comparison `next`. Their numbers then follow the numbers of the
    /// rounds that are already there.
    pub fn then(mut self, next: &Kept) -> Kept {
        self.counted
            .extend(next.counted.iter().map(|r| self.all + r));
        self.all += next.all;
        self
    }
}

impl From<usize> for Kept {
    fn from(rounds: usize) -> Kept {
        Kept::without(rounds, |_| false)
    }
}

impl From<&Kept> for Kept {
    fn from(kept: &Kept) -> Kept {
        kept.clone()
    }
}
