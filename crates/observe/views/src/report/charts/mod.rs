//! The report's charts as inline SVG.

mod boxes;
mod growth;
mod histogram;
mod pair;
mod shares;

pub(super) use boxes::{box_plots, Named};
pub(super) use growth::growth;
pub(super) use histogram::histogram;
pub use pair::pair;
pub(super) use shares::{share_bar, share_classes};

use onbeat_document::text::duration;

struct Axis {
    low: f64,
    high: f64,
    left: f64,
    width: f64,
    log: bool,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.left + self.width * share.clamp(0.0, 1.0)
    }

    fn ticks(&self, count: f64) -> Vec<f64> {
        if self.log {
            self.log_ticks()
        } else {
            self.linear_ticks(count)
        }
    }

    fn log_ticks(&self) -> Vec<f64> {
        let from = self.low.log10().floor() as i32;
        let to = self.high.log10().ceil() as i32;
        let steps: &[f64] = match to - from {
            0..=1 => &[1.0, 2.0, 3.0, 5.0],
            2..=3 => &[1.0, 3.0],
            _ => &[1.0],
        };
        (from..=to)
            .flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e)))
            .filter(|v| *v >= self.low * 0.999 && *v <= self.high * 1.001)
            .collect()
    }

    fn linear_ticks(&self, count: f64) -> Vec<f64> {
        let raw = (self.high - self.low) / count;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .iter()
            .map(|s| s * power)
            .find(|s| *s >= raw)
            .unwrap_or(raw);
        if !(step.is_finite() && step > 0.0) {
            return Vec::new();
        }
        let first = (self.low / step).ceil() as i64;
        (first..)
            .map(|k| k as f64 * step)
            .take_while(|v| *v <= self.high + step * 1e-6)
            .take(100)
            .collect()
    }
}

fn tick_label(ns: f64) -> String {
    if ns == 0.0 {
        return "0".into();
    }
    duration(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ticks_are_round_numbers_on_the_axis() {
        let axis = |low, high, log| Axis {
            low,
            high,
            left: 0.0,
            width: 100.0,
            log,
        };
        assert_eq!(axis(0.0, 9.0, false).ticks(4.0), [0.0, 2.5, 5.0, 7.5]);
        assert_eq!(axis(0.9, 120.0, true).ticks(4.0), [1.0, 10.0, 100.0]);
        assert!(axis(5.0, 5.0, false).ticks(4.0).is_empty());
        assert_eq!(axis(0.0, 10.0, false).place(2.5), 25.0);
        assert_eq!(axis(1.0, 100.0, true).place(10.0), 50.0);
    }
}
