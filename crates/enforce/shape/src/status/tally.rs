//! Adds up figures while a session runs, in constant memory. Pure.

use super::Promise;
use crate::judge::{kept_share, Judgement, KEPT_SHARE, TOLERANCE};
use onbeat_plan::schema::{Ms, Promises};

const MIN_AVERAGED: u64 = 100;
const LIVE_EXECUTIONS: u64 = 200;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    count: u64,
    sum_ns: u128,
    longest_ns: u64,
    in_a_slot: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, judgements: &[Judgement]) {
        for judgement in judgements {
            let latency_ns = judgement.execution.latency_ns();
            self.count += 1;
            self.sum_ns += u128::from(latency_ns);
            self.longest_ns = self.longest_ns.max(latency_ns);
            self.in_a_slot += u64::from(judgement.band.is_some());
        }
    }

    /// Returns the promises of a plan with the values measured so far. The caller gives the
    /// measured jitter, the number of cycles without an output (`without`), and the number of
    /// cycles that can have an output (`cycles`).
    pub(crate) fn promises(
        &self,
        promised: &Promises,
        jitter_ns: u64,
        (without, cycles): (u64, u64),
    ) -> Vec<Promise> {
        let some = |value: f64| (self.count > 0).then_some(value);
        let ms = |ns: u64| ns as f64 / 1e6;
        let mean_ms = self.sum_ns as f64 / self.count.max(1) as f64 / 1e6;
        let line = |name, promised: Ms, measured: Option<f64>, limit: Option<f64>| Promise {
            name,
            unit: "ms",
            promised: ms(promised.0),
            measured,
            kept: measured
                .zip(limit)
                .map(|(measured, limit)| measured <= limit),
        };
        // The limits are those of `--verify`. With fewer executions, the first ones alone would
        // decide.
        let limit = |from: u64, limit: f64| (self.count >= from).then_some(limit);
        let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64 * 100.0);
        let mut lines = vec![
            line(
                "average",
                promised.average_ms,
                some(mean_ms),
                limit(MIN_AVERAGED, ms(promised.average_ms.0) * TOLERANCE),
            ),
            // The promise is about a share of the executions, not about the longest one.
            line(
                "worst case",
                promised.worst_ms,
                some(ms(self.longest_ns)),
                None,
            ),
        ];
        // The live figure covers all executions, but a plan with bands promises the jitter of each
        // band.
        if promised.bands.len() <= 1 {
            lines.push(line(
                "jitter",
                promised.jitter_ms,
                some(ms(jitter_ns)),
                limit(LIVE_EXECUTIONS, ms(promised.jitter_ms.0)),
            ));
        }
        if !promised.bands.is_empty() {
            lines.push(Promise {
                name: "outputs inside a slot",
                unit: "%",
                promised: kept_share(promised) * 100.0,
                measured: share(self.in_a_slot, self.count),
                kept: is_kept(kept_share(promised), self.in_a_slot, self.count),
            });
        }
        lines.push(Promise {
            name: "cycles with an output",
            unit: "%",
            promised: KEPT_SHARE * 100.0,
            measured: share(cycles.saturating_sub(without), cycles),
            kept: is_kept(KEPT_SHARE, cycles.saturating_sub(without), cycles),
        });
        lines
    }
}

/// Returns true if the share of `part` in `all` is at least `promised`. Returns `None` while `all`
/// is so small that a single miss would break the promise.
fn is_kept(promised: f64, part: u64, all: u64) -> Option<bool> {
    let allowed = all as f64 * (1.0 - promised);
    (allowed >= 1.0).then(|| part as f64 / all as f64 >= promised)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Attribution, Execution, Fate};

    fn judgement(latency_ms: u64, band: Option<usize>) -> Judgement {
        Judgement {
            execution: Execution {
                chain: 0,
                start_ns: 100,
                left_ns: 100,
                output_ns: 100 + latency_ms * 1_000_000,
                fate: Fate::Delivered,
                late: false,
                attribution: Attribution::NotHeld,
            },
            offset_ns: 0,
            band,
        }
    }

    #[test]
    fn status_figures_are_missing_without_executions() {
        let promised = Promises {
            average_ms: Ms(20_000_000),
            worst_ms: Ms(30_000_000),
            ..Promises::default()
        };
        let mut tally = Tally::default();
        let before = tally.promises(&promised, 0, (0, 0));
        assert!(before.iter().all(|p| p.measured.is_none()), "{before:?}");
        tally.add(&[judgement(10, Some(0)), judgement(40, None)]);
        let lines = tally.promises(&promised, 3_000_000, (1, 4));
        let of = |name: &str| {
            lines
                .iter()
                .find(|l| l.name == name)
                .and_then(|l| l.measured)
        };
        assert_eq!((of("average"), of("worst case")), (Some(25.0), Some(40.0)));
        assert_eq!(
            (of("jitter"), of("cycles with an output")),
            (Some(3.0), Some(75.0))
        );
        // Without bands the plan promises nothing about slots.
        assert_eq!(of("outputs inside a slot"), None);
    }

    #[test]
    fn a_promise_is_judged_as_soon_as_a_single_miss_cannot_break_it() {
        let promised = Promises {
            average_ms: Ms(20_000_000),
            worst_ms: Ms(1_000_000),
            jitter_ms: Ms(1_000_000),
            ..Promises::default()
        };
        let mut tally = Tally::default();
        let kept = |tally: &Tally, cycles: (u64, u64), name: &str| {
            let lines = tally.promises(&promised, 2_000_000, cycles);
            let line = lines.iter().find(|l| l.name == name).expect("a line");
            line.kept
        };
        for _ in 0..99 {
            tally.add(&[judgement(20, None)]);
        }
        assert_eq!(kept(&tally, (1, 900), "average"), None);
        tally.add(&[judgement(20, None)]);
        assert_eq!(kept(&tally, (1, 900), "average"), Some(true));
        assert_eq!(kept(&tally, (1, 900), "jitter"), None);
        tally.add(&vec![judgement(21, None); 100]);
        assert_eq!(kept(&tally, (1, 900), "average"), Some(false));
        assert_eq!(kept(&tally, (1, 900), "jitter"), Some(false));
        assert_eq!(kept(&tally, (1, 900), "worst case"), None);
        let cycles = "cycles with an output";
        assert_eq!(kept(&tally, (1, 900), cycles), None);
        assert_eq!(kept(&tally, (1, 2000), cycles), Some(true));
        assert_eq!(kept(&tally, (3, 2000), cycles), Some(false));
    }
}
