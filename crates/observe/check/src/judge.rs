//! Judges a figure against its limit: passed, violated, or not known from so few executions.
//!
//! The size of a sample decides how much can be concluded. The share of executions beyond a limit
//! is judged by Clopper and Pearson's confidence limits, the mean by the normal distribution.
//!
//! A distribution stores values in buckets, so a value lies anywhere in its bucket. A limit passes
//! only if it holds with the whole bucket beyond it. It is violated only if it is broken with no
//! bucket beyond it.

use crate::limit::{Limit, Rate, Share, Statistic, Time};
use onbeat_document::text::{duration, percent, significant};
use onbeat_document::Dist;
use onbeat_stats::{enough, mean_within, share_at_least, share_at_most};
use serde::Serialize;

/// The result of checking a requirement. The variants are in the order from best to worst.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The requirement holds with the requested confidence.
    Passed,
    /// The model does not contain enough data for a decision.
    NotKnown,
    Violated,
}

impl Verdict {
    /// Returns the verdict in words, for tables.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::NotKnown => "not known",
            Verdict::Violated => "violated",
        }
    }
}

/// The result of one requirement for one chain, callback, topic or CPU.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The requirement's place in the file, such as `chains[0].latency.p99`.
    pub requirement: String,
    /// The readable name of the chain, callback, topic or CPU (untrusted).
    pub subject: String,
    /// The subject's id in the model. It is empty if the model does not contain the subject.
    pub id: String,
    pub limit: String,
    /// The measured value in words; empty if nothing was measured.
    pub measured: String,
    /// The result: the measured value is within the limit, outside of it, or too uncertain to
    /// decide.
    pub verdict: Verdict,
    /// The reason in words; empty if the verdict needs none.
    pub why: String,
    /// The largest latency that the requirement allows the chain, in ns. Executions with a longer
    /// latency are late.
    #[serde(skip)]
    pub late_above_ns: Option<u64>,
    /// A sentence (untrusted) about what the late executions have in common. The caller of
    /// [`check`](crate::check) adds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<String>,
    /// The topics whose lost items the requirement limits, each with the id of the callback that
    /// takes the items.
    #[serde(skip)]
    pub losses_at: Vec<(String, String)>,
    /// Sentences (untrusted) about the causes of losses. The caller of [`check`](crate::check) adds
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// The certainty that a verdict needs to count as passed or violated.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// The confidence level, 0.5 to 1.
    pub confidence: f64,
    /// The share of later executions that may lie beyond the largest or smallest value of a sample.
    /// A verdict is *passed* only if the sample is large enough to rule out a larger share.
    pub miss: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub verdict: Verdict,
    pub measured: String,
    pub why: String,
}

impl Outcome {
    pub fn not_known(why: impl Into<String>) -> Outcome {
        Outcome {
            verdict: Verdict::NotKnown,
            measured: String::new(),
            why: why.into(),
        }
    }

    fn of((verdict, why): (Verdict, String), measured: String) -> Outcome {
        Outcome {
            verdict,
            measured,
            why,
        }
    }
}

type Judged = (Verdict, String);

fn worse(a: Judged, b: Judged) -> Judged {
    match b.0 > a.0 {
        true => b,
        false => a,
    }
}

impl Bar {
    pub fn times(&self, dist: &Dist, of: Statistic, limit: &Limit<Time>) -> Outcome {
        if dist.count() == 0 {
            return Outcome::not_known("no execution was recorded");
        }
        let (limit, measured) = match of {
            Statistic::Min => (limit.of_smallest(), dist.min() as f64),
            Statistic::Mean => (*limit, dist.mean()),
            Statistic::Quantile(q) => (*limit, dist.quantile(q) as f64),
            Statistic::Max => (*limit, dist.max() as f64),
        };
        let most = limit.most.map(|most| match of {
            Statistic::Max => self.extreme(dist.max() as f64 <= most, dist.count()),
            Statistic::Min => point(dist.min() as f64 <= most),
            Statistic::Quantile(q) => {
                let beyond = (above(dist, most, true), above(dist, most, false));
                self.share_beyond(beyond, dist.count(), 1.0 - q, "above")
            }
            Statistic::Mean => self.mean(dist, |mean| mean - most),
        });
        let least = limit.least.map(|least| match of {
            Statistic::Min => self.extreme(dist.min() as f64 >= least, dist.count()),
            Statistic::Max => point(dist.max() as f64 >= least),
            Statistic::Quantile(q) => {
                let beyond = (below(dist, least, true), below(dist, least, false));
                self.share_beyond(beyond, dist.count(), q, "below")
            }
            Statistic::Mean => self.mean(dist, |mean| least - mean),
        });
        let kept = (Verdict::Passed, String::new());
        let judged = worse(
            worse(kept, most.unwrap_or_else(passed)),
            least.unwrap_or_else(passed),
        );
        Outcome::of(judged, duration(measured))
    }

    fn extreme(&self, is_kept: bool, count: u64) -> Judged {
        let needed = enough(self.miss, self.confidence);
        match (is_kept, count >= needed) {
            (false, _) => (Verdict::Violated, String::new()),
            (true, true) => passed(),
            (true, false) => (
                Verdict::NotKnown,
                format!("all {count} values kept the limit, but the requested confidence needs {needed} values. Record longer"),
            ),
        }
    }

    /// Judges whether the share of executions beyond a limit is at most `allowed`. The number of
    /// executions beyond the limit lies between `least` and `most`.
    fn share_beyond(
        &self,
        (least, most): (u64, u64),
        count: u64,
        allowed: f64,
        side: &str,
    ) -> Judged {
        let low = share_at_least(least, count, self.confidence);
        let high = share_at_most(most, count, self.confidence);
        let share = percent;
        if low > allowed {
            let why = format!(
                "{least} of {count} values are {side} the limit; at most {} are allowed",
                share(allowed)
            );
            (Verdict::Violated, why)
        } else if high <= allowed {
            passed()
        } else if most == 0 {
            let needed = enough(allowed, self.confidence);
            let why = format!("all {count} values kept the limit, but the requested confidence needs {needed} values. Record longer");
            (Verdict::NotKnown, why)
        } else {
            let why = format!(
                "{most} of {count} values are {side} the limit, so the true share is {} to {}; at most {} are allowed",
                share(low),
                share(high),
                share(allowed)
            );
            (Verdict::NotKnown, why)
        }
    }

    fn mean(&self, dist: &Dist, over: impl Fn(f64) -> f64) -> Judged {
        let over = over(dist.mean());
        let Some(within) = mean_within(deviation(dist), dist.count(), self.confidence) else {
            let why = format!(
                "only {} executions were recorded, but a mean needs 30. Record longer",
                dist.count()
            );
            return (Verdict::NotKnown, why);
        };
        if over > within {
            (Verdict::Violated, String::new())
        } else if over <= -within {
            passed()
        } else {
            let why = format!(
                "the true mean is within {} of the measured mean",
                duration(within)
            );
            (Verdict::NotKnown, why)
        }
    }

    /// Judges a value that is computed from the smallest and largest values of a sample, such as
    /// jitter.
    pub fn spread(&self, value_ns: u64, count: u64, limit: &Limit<Time>) -> Outcome {
        if count == 0 {
            return Outcome::not_known("no execution was recorded");
        }
        let judged = self.extreme(limit.holds(value_ns as f64), count);
        Outcome::of(judged, duration(value_ns as f64))
    }

    pub fn share(&self, hits: u64, all: u64, limit: &Limit<Share>) -> Outcome {
        if all == 0 {
            return Outcome::not_known("no item was recorded");
        }
        let measured = format!("{hits} of {all}");
        let most = limit.most.map(|most| match most > 0.0 {
            true => self.share_beyond((hits, hits), all, most, "lost"),
            false => self.extreme(hits == 0, all),
        });
        let least = limit
            .least
            .map(|least| point(hits as f64 >= least * all as f64));
        let judged = worse(most.unwrap_or_else(passed), least.unwrap_or_else(passed));
        Outcome::of(judged, measured)
    }

    /// Judges logical execution time: each value must be a whole number of periods, at least one,
    /// with a deviation of at most `limit`.
    pub fn logical(&self, dist: &Dist, period_ns: u64, limit: &Limit<Time>) -> Outcome {
        let beside_most = limit.most.unwrap_or(f64::INFINITY);
        let period = period_ns as f64;
        let beside = |value: f64| (value - (value / period).round().max(1.0) * period).abs();
        let (mut surely, mut maybe, mut furthest) = (0, 0, 0.0f64);
        for (lowest, width, count) in dist.buckets() {
            let (low, high) = (lowest as f64, (lowest + width.max(1) - 1) as f64);
            let off = (beside(low), beside(high));
            furthest = furthest.max(off.0.min(off.1));
            if off.0 > beside_most || off.1 > beside_most {
                maybe += count;
                // A wide bucket may contain a whole number of periods.
                let holds_one = (low / period).ceil() <= (high / period).floor();
                if off.0 > beside_most && off.1 > beside_most && !holds_one {
                    surely += count;
                }
            }
        }
        let measured = format!(
            "latency up to {} from the nearest multiple of the period",
            duration(furthest)
        );
        match (surely, maybe) {
            (0, 0) => Outcome::of(self.extreme(true, dist.count()), measured),
            (0, _) => Outcome::of(
                (
                    Verdict::NotKnown,
                    "the model stores latencies in buckets that are larger than the allowed deviation. Allow a larger deviation".into(),
                ),
                measured,
            ),
            (surely, _) => Outcome::of(
                (
                    Verdict::Violated,
                    format!(
                        "{surely} of {} outputs left outside of the allowed time",
                        dist.count()
                    ),
                ),
                measured,
            ),
        }
    }
}

fn passed() -> Judged {
    (Verdict::Passed, String::new())
}

fn point(is_kept: bool) -> Judged {
    match is_kept {
        true => passed(),
        false => (Verdict::Violated, String::new()),
    }
}

/// Judges a measured rate in Hz. Only the value counts, not the size of the sample.
pub fn plain(value: f64, limit: &Limit<Rate>) -> Outcome {
    Outcome::of(
        point(limit.holds(value)),
        format!("{} Hz", significant(value)),
    )
}

/// Counts the values above a limit. With `surely`, counts only values that are certainly above it,
/// otherwise also values that may be above it.
fn above(dist: &Dist, limit: f64, surely: bool) -> u64 {
    let value = |lowest: u64, width: u64| match surely {
        true => lowest.max(dist.min()),
        false => (lowest + width.max(1) - 1).min(dist.max()),
    };
    let beyond = dist
        .buckets()
        .filter(|&(lowest, width, _)| value(lowest, width) as f64 > limit);
    beyond.map(|(_, _, count)| count).sum()
}

/// Counts the values below a limit. With `surely`, counts only values that are certainly below it,
/// otherwise also values that may be below it.
fn below(dist: &Dist, limit: f64, surely: bool) -> u64 {
    let value = |lowest: u64, width: u64| match surely {
        true => (lowest + width.max(1) - 1).min(dist.max()),
        false => lowest.max(dist.min()),
    };
    let beyond = dist
        .buckets()
        .filter(|&(lowest, width, _)| (value(lowest, width) as f64) < limit);
    beyond.map(|(_, _, count)| count).sum()
}

fn deviation(dist: &Dist) -> f64 {
    let mean = dist.mean();
    let square = |(lowest, width, count): (u64, u64, u64)| {
        let off = lowest as f64 + width as f64 / 2.0 - mean;
        off * off * count as f64
    };
    let sum: f64 = dist.buckets().map(square).sum();
    (sum / (dist.count().max(2) - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAR: Bar = Bar {
        confidence: 0.95,
        miss: 0.01,
    };

    fn dist(values: impl IntoIterator<Item = u64>) -> Dist {
        let mut dist = Dist::new();
        values.into_iter().for_each(|v| dist.record(v));
        dist
    }

    fn verdict(dist: &Dist, of: &str, limit: &str) -> Verdict {
        BAR.times(dist, of.parse().unwrap(), &limit.parse().unwrap())
            .verdict
    }

    #[test]
    fn a_limit_on_times_passes_only_with_a_large_enough_sample() {
        use Verdict::{NotKnown, Passed, Violated};
        let ms = |n: u64| n * 1_000_000;
        // 299 executions of 10 ms show with 95 % confidence that at most 1 % are longer.
        let enough = dist((0..299).map(|_| ms(10)));
        assert_eq!(verdict(&enough, "max", "20ms"), Passed);
        assert_eq!(verdict(&enough, "max", "9ms"), Violated);
        let few = dist((0..298).map(|_| ms(10)));
        assert_eq!(verdict(&few, "max", "20ms"), NotKnown);
        assert_eq!(verdict(&few, "p99", "20ms"), NotKnown);
        assert_eq!(verdict(&few, "p95", "20ms"), Passed);
        assert_eq!(verdict(&few, "min", "5ms"), NotKnown);
        assert_eq!(verdict(&enough, "min", "5ms"), Passed);
        assert_eq!(verdict(&enough, "min", "11ms"), Violated);
        assert_eq!(verdict(&dist([]), "max", "1s"), NotKnown);
        // 12 of 1000 are long. The true share is 0.7 to 1.9 %, so it is not known whether 99 % are
        // short.
        let edge = dist((0..1000).map(|i| if i < 12 { ms(50) } else { ms(10) }));
        assert_eq!(verdict(&edge, "p99", "20ms"), NotKnown);
        assert_eq!(verdict(&edge, "p98", "20ms"), Passed);
        assert_eq!(verdict(&edge, "p99.5", "20ms"), Violated);
        assert_eq!(verdict(&edge, "p50", "9ms..11ms"), Passed);
        assert_eq!(verdict(&edge, "p50", "11ms..12ms"), Violated);
        // The mean of 10.48 ms is known to within a quarter of a millisecond.
        assert_eq!(verdict(&edge, "mean", "11ms"), Passed);
        assert_eq!(verdict(&edge, "mean", "10.1ms"), Violated);
        assert_eq!(verdict(&edge, "mean", "10.5ms"), NotKnown);
    }

    #[test]
    fn a_required_loss_of_zero_passes_only_with_enough_items_to_show_a_loss() {
        let none = "0%".parse().unwrap();
        let said = |hits, all, limit| BAR.share(hits, all, limit).verdict;
        assert_eq!(said(0, 298, &none), Verdict::NotKnown);
        assert_eq!(said(0, 299, &none), Verdict::Passed);
        assert_eq!(said(1, 1_000_000, &none), Verdict::Violated);
        let some = "1%".parse().unwrap();
        assert_eq!(said(0, 299, &some), Verdict::Passed);
        assert_eq!(said(30, 1000, &some), Verdict::Violated);
        assert_eq!(said(10, 1000, &some), Verdict::NotKnown);
    }

    #[test]
    fn outputs_between_whole_periods_violate_logical_execution_time() {
        let ms = |n: f64| (n * 1e6) as u64;
        let limit = "1ms".parse().unwrap();
        let held = dist((0..300).map(|i| ms(100.0 * f64::from(1 + i % 2) + 0.2)));
        assert_eq!(
            BAR.logical(&held, ms(100.0), &limit).verdict,
            Verdict::Passed
        );
        let early = dist((0..300).map(|i| if i == 7 { ms(60.0) } else { ms(100.0) }));
        assert_eq!(
            BAR.logical(&early, ms(100.0), &limit).verdict,
            Verdict::Violated
        );
        let at_once = dist((0..300).map(|_| ms(0.1)));
        assert_eq!(
            BAR.logical(&at_once, ms(100.0), &limit).verdict,
            Verdict::Violated
        );
    }
}
