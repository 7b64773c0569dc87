//! Finds pairs of causes that make executions late only if both are present.

use crate::cut::Cause;
use crate::fisher::{chance, CHANCE};
use serde::Serialize;

/// The maximum number of late executions and of other executions whose causes are kept.
const KEPT_MAX: usize = 2048;

/// The maximum number of causes that are kept of an execution: the longest ones.
const CAUSES_MAX: usize = 32;

/// The maximum number of causes that are tried in pairs.
const TRIED_MAX: usize = 6;

/// The minimum number of other executions in which only one of two causes is present, for each of
/// them. Fewer do not show that the cause alone is harmless.
const ALONE_MIN: u64 = 3;

/// The maximum share of late executions with only one of two causes, among those with one or both.
const ALONE_SHARE_MAX: f64 = 0.1;

/// Two causes that make executions late only together. The counts are those of executions whose
/// causes were kept: all, or every n-th one.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Together {
    /// The two causes, as indices into [`Comparison::findings`](crate::compare::Comparison::findings).
    pub findings: [usize; 2],
    /// The number of late executions whose causes were kept, and of other ones.
    pub late: u64,
    pub others: u64,
    /// The number of executions in which both causes are present.
    pub late_with_both: u64,
    pub others_with_both: u64,
    /// The number of executions in which exactly one of the causes is present.
    pub late_with_one: u64,
    pub others_with_one: u64,
    /// The probability that chance alone makes both causes as frequent among late executions as
    /// measured. It is the result of a one-sided Fisher's exact test over the executions with at least
    /// one of the causes, times the number of pairs.
    pub chance: f64,
}

/// The causes of every n-th execution. When the list is full, n doubles.
#[derive(Debug, Clone)]
struct Rows {
    every: u64,
    seen: u64,
    kept: Vec<Box<[(Cause, u64)]>>,
}

impl Rows {
    fn add(&mut self, times: &[(Cause, u64)]) {
        let number = self.seen;
        self.seen += 1;
        if !number.is_multiple_of(self.every) {
            return;
        }
        if self.kept.len() == KEPT_MAX {
            let mut nth = 0;
            self.kept.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.every *= 2;
            if !number.is_multiple_of(self.every) {
                return;
            }
        }
        let mut row = times.to_vec();
        if row.len() > CAUSES_MAX {
            row.sort_unstable_by_key(|time| std::cmp::Reverse(time.1));
            row.truncate(CAUSES_MAX);
        }
        self.kept.push(row.into());
    }

    /// Counts the executions with both causes, with only the first and with only the second.
    fn count(&self, [first, second]: [&(Cause, f64); 2]) -> [u64; 3] {
        let has = |row: &[(Cause, u64)], (cause, present_ns): &(Cause, f64)| {
            let mut times = row.iter();
            times.any(|time| time.0 == *cause && time.1 as f64 >= *present_ns)
        };
        let mut counts = [0; 3];
        for row in &self.kept {
            match (has(row, first), has(row, second)) {
                (true, true) => counts[0] += 1,
                (true, false) => counts[1] += 1,
                (false, true) => counts[2] += 1,
                (false, false) => {}
            }
        }
        counts
    }
}

/// The causes of some late and some other executions.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    late: Rows,
    others: Rows,
}

impl Default for Sample {
    fn default() -> Sample {
        let rows = Rows {
            every: 1,
            seen: 0,
            kept: Vec::new(),
        };
        Sample {
            late: rows.clone(),
            others: rows,
        }
    }
}

impl Sample {
    /// Adds an execution. `times` has each cause once.
    pub(crate) fn add(&mut self, late: bool, times: &[(Cause, u64)]) {
        let rows = if late {
            &mut self.late
        } else {
            &mut self.others
        };
        rows.add(times);
    }

    /// Returns the pairs of causes that make executions late only together, the surest first.
    /// `findings` has the causes in the order of the comparison, each with the time from which on it
    /// counts as present.
    pub(crate) fn together(&self, findings: &[(Cause, f64)]) -> Vec<Together> {
        let tried = &findings[..findings.len().min(TRIED_MAX)];
        let tests = tried.len() * tried.len().saturating_sub(1) / 2;
        let mut found = Vec::new();
        for (b, second) in tried.iter().enumerate() {
            for (a, first) in tried[..b].iter().enumerate() {
                found.extend(self.pair([a, b], [first, second], tests));
            }
        }
        found.sort_by(|a, b| a.chance.total_cmp(&b.chance));
        found
    }

    fn pair(
        &self,
        findings: [usize; 2],
        causes: [&(Cause, f64); 2],
        tests: usize,
    ) -> Option<Together> {
        let [late_both, late_first, late_second] = self.late.count(causes);
        let [others_both, others_first, others_second] = self.others.count(causes);
        let (late_one, others_one) = (late_first + late_second, others_first + others_second);
        let (late, others) = (late_both + late_one, others_both + others_one);
        let are_harmless_alone = others_first >= ALONE_MIN
            && others_second >= ALONE_MIN
            && late_one as f64 <= ALONE_SHARE_MAX * late as f64;
        if !are_harmless_alone {
            return None;
        }
        let chance = chance((late_both, late), (others_both, others)) * tests as f64;
        (chance <= CHANCE).then_some(Together {
            findings,
            late: self.late.kept.len() as u64,
            others: self.others.kept.len() as u64,
            late_with_both: late_both,
            others_with_both: others_both,
            late_with_one: late_one,
            others_with_one: others_one,
            chance,
        })
    }
}

impl Together {
    /// Returns the pair as a sentence. `first` and `second` are the causes in words.
    pub(crate) fn sentence(&self, first: &str, second: &str) -> String {
        let (late, others) = (self.late, self.others);
        format!(
            "Two causes make executions late only together: {first}, and {second}. Both are longer than usual in \
             {both} of {late} late executions and in {others_both} of {others} others. Only one of them is longer than \
             usual in {one} late executions and in {others_one} others.",
            both = self.late_with_both,
            others_both = self.others_with_both,
            one = self.late_with_one,
            others_one = self.others_with_one,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::By;
    use crate::kind::Kind;

    fn cause(place: u32) -> Cause {
        Cause {
            kind: Kind::Executor,
            place,
            by: By::Nobody,
        }
    }

    /// Returns a sample of `n` executions. `of` says for each whether it is late, and which of the
    /// causes 1 and 2 are present.
    fn sample(n: u64, of: impl Fn(u64) -> (bool, [bool; 2])) -> Sample {
        let mut sample = Sample::default();
        for i in 0..n {
            let (late, has) = of(i);
            let times = [1, 2].map(|c| (cause(c), if has[c as usize - 1] { 10 } else { 1 }));
            sample.add(late, &times);
        }
        sample
    }

    const FINDINGS: [(u32, f64); 2] = [(1, 5.0), (2, 5.0)];

    fn found(sample: &Sample) -> Vec<Together> {
        sample.together(&FINDINGS.map(|(place, present)| (cause(place), present)))
    }

    #[test]
    fn two_causes_that_are_harmless_alone_are_found_and_a_cause_that_acts_alone_is_not() {
        let together = sample(600, |i| match i % 100 {
            0 => (true, [true, true]),
            1..=4 => (false, [true, false]),
            5..=8 => (false, [false, true]),
            _ => (false, [false, false]),
        });
        let pairs = found(&together);
        assert_eq!(pairs.len(), 1, "{pairs:?}");
        let pair = &pairs[0];
        let counts = (pair.late_with_both, pair.others_with_both);
        assert_eq!(counts, (6, 0));
        assert_eq!((pair.late_with_one, pair.others_with_one), (0, 48));
        // The first cause makes executions late, whether the second one is there or not.
        let alone = sample(600, |i| match i % 100 {
            0 => (true, [true, true]),
            1 => (true, [true, false]),
            2..=8 => (false, [false, true]),
            _ => (false, [false, false]),
        });
        assert_eq!(found(&alone), []);
        // The second cause never occurs alone.
        let attached = sample(600, |i| match i % 100 {
            0 => (true, [true, true]),
            1..=8 => (false, [true, false]),
            _ => (false, [false, false]),
        });
        assert_eq!(found(&attached), []);
        // Two of each could be chance.
        let few = sample(12, |i| match i {
            0 => (true, [true, true]),
            1..=3 => (false, [true, false]),
            4..=6 => (false, [false, true]),
            _ => (false, [false, false]),
        });
        assert_eq!(found(&few), []);
    }

    #[test]
    fn a_long_recording_keeps_a_limited_even_sample() {
        let sample = sample(100_000, |i| (false, [i % 2 == 0, i % 3 == 0]));
        let rows = &sample.others;
        assert!(rows.kept.len() <= KEPT_MAX && rows.kept.len() >= KEPT_MAX / 2);
        assert_eq!(rows.every, 64);
        assert_eq!(rows.kept.len() as u64, 100_000_u64.div_ceil(64));
        assert_eq!(rows.seen, 100_000);
    }
}
