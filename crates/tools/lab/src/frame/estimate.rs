//! An estimated value with its confidence interval.

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    pub fn exact(value: f64) -> Self {
        Estimate {
            value,
            low: value,
            high: value,
        }
    }

    pub fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Estimate {
            value: of(self.value),
            low: of(self.low),
            high: of(self.high),
        }
    }
}
