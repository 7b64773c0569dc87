//! The result of a comparison: what differs for each topic, and the verdict.

use super::fields::Difference;
use super::layout::Layout;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

const MOST_EXAMPLES: usize = 10;
const MOST_NS: u64 = 3_600_000_000_000;

/// The result of comparing one topic, or all topics, with the recording: whether the device
/// published what was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The published messages do not differ from the recording by more than allowed.
    Equal,
    /// Messages are missing, but perhaps only because onbeat did not receive them.
    NotKnown,
    /// The published messages differ from the recording by more than allowed.
    Different,
}

/// The result of comparing a device's messages with a recording.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// The worst verdict of all topics.
    pub verdict: Verdict,
    pub topics: Vec<TopicFindings>,
    /// The damage of both recordings: one sentence for each kind.
    pub damage: Vec<String>,
}

/// Messages without a partner in the other recording.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Alone {
    pub count: u64,
    /// The recorded times of the first ten of these messages without a partner, in ns since the
    /// beginning of the comparison.
    pub first_at_ns: Vec<i64>,
}

impl Alone {
    pub(super) fn add(&mut self, at_ns: i64) {
        self.count += 1;
        if self.first_at_ns.len() < MOST_EXAMPLES {
            self.first_at_ns.push(at_ns);
        }
    }
}

/// The differences between the recorded and the observed messages of one topic.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Serialize)]
pub struct TopicFindings {
    /// The name under which the device publishes the topic.
    pub name: String,
    pub type_name: String,
    pub verdict: Verdict,
    /// The number of the topic's messages in the recording.
    pub expected: u64,
    /// The number of the topic's messages that were observed.
    pub observed: u64,
    /// The number of pairs. A pair is a recorded message and the observed message that matches it.
    pub paired: u64,
    pub paired_by: PairedBy,
    pub missing: Alone,
    /// The observed messages that are not in the recording.
    pub additional: Alone,
    /// The number of pairs whose contents differ by more than allowed.
    pub different: u64,
    /// The fields that differ. The fields that differ in most messages come first.
    pub fields: Vec<FieldFindings>,
    /// How much later the observed messages are than the recorded ones, in ns. Values are negative
    /// for messages that are earlier. `None` without pairs, or if times cannot be compared.
    pub shift_ns: Option<Shift>,
    /// The limits of the shift that were exceeded: one sentence for each.
    pub shift_exceeded: Vec<String>,
    /// The number of messages that were published, but did not reach onbeat.
    pub unseen: u64,
    /// The restrictions of the comparison: one sentence for each.
    pub notes: Vec<String>,
}

/// The number of pairs that each rule found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PairedBy {
    /// The number of pairs with equal time stamps in their contents.
    pub stamp: u64,
    /// The number of pairs that were found by the messages' order, contents and times.
    pub order: u64,
}

/// A field that differs by more than allowed.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldFindings {
    /// The field, for example `pose.position.x` or `points[].x`.
    pub path: String,
    /// The number of pairs in which the field differs.
    pub messages: u64,
    /// The largest deviation of the field, in the field's unit. Times are in seconds. `None` for
    /// texts.
    pub largest: Option<f64>,
    /// The largest deviation of the field as a share of the recorded value.
    pub largest_relative: Option<f64>,
    pub first: Example,
}

/// An example of a difference: one field of one message, with both values.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Example {
    /// The recorded time of the message, in ns since the beginning of the comparison.
    pub at_ns: i64,
    /// The path of the field with the indices in arrays, for example `points[3].x`.
    pub place: String,
    pub expected: String,
    pub observed: String,
}

/// Collects the differences of one topic's fields. Its memory is bounded by the number of fields.
#[derive(Debug, Default)]
pub(super) struct FieldTally {
    fields: Vec<Option<(FieldFindings, u64)>>,
}

impl FieldTally {
    pub fn add(&mut self, message: u64, at_ns: i64, layout: &Layout, found: &Difference) {
        if self.fields.len() <= found.leaf {
            self.fields
                .resize(layout.leaves.len().max(found.leaf + 1), None);
        }
        let entry = self.fields[found.leaf].get_or_insert_with(|| {
            let findings = FieldFindings {
                path: layout.leaves[found.leaf].path.clone(),
                messages: 0,
                largest: None,
                largest_relative: None,
                first: Example {
                    at_ns,
                    place: found.place(layout),
                    expected: found.expected.to_string(),
                    observed: found.observed.to_string(),
                },
            };
            (findings, u64::MAX)
        });
        let (field, last) = entry;
        if *last != message {
            field.messages += 1;
            *last = message;
        }
        let larger = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        field.largest = larger(field.largest, found.off);
        field.largest_relative = larger(field.largest_relative, found.relative);
    }

    pub fn close(self) -> Vec<FieldFindings> {
        let mut fields: Vec<FieldFindings> = self
            .fields
            .into_iter()
            .flatten()
            .map(|(field, _)| field)
            .collect();
        fields.sort_by_key(|field| std::cmp::Reverse(field.messages));
        fields
    }
}

/// The distribution of the times from the recorded to the observed message, in ns. `min` and `max`
/// are exact; percentiles are exact to a thousandth of their value.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Shift {
    pub count: u64,
    pub min: i64,
    pub p1: i64,
    pub p50: i64,
    pub p99: i64,
    pub max: i64,
    /// The median shift of this topic minus the median shift of the topic from which the device
    /// makes this topic. `None` if the user named no such topic.
    pub own_p50: Option<i64>,
}

pub(super) struct Shifts {
    earlier: Histogram<u64>,
    later: Histogram<u64>,
    min: i64,
    max: i64,
}

impl Shifts {
    pub fn new() -> Shifts {
        // These bounds are always valid: at least 1, at least twice the lower bound, three digits.
        let histogram = || Histogram::new_with_bounds(1, MOST_NS, 3).expect("valid bounds");
        Shifts {
            earlier: histogram(),
            later: histogram(),
            min: i64::MAX,
            max: i64::MIN,
        }
    }

    pub fn add(&mut self, shift_ns: i64) {
        match shift_ns < 0 {
            true => self.earlier.saturating_record(shift_ns.unsigned_abs()),
            false => self.later.saturating_record(shift_ns.unsigned_abs()),
        }
        self.min = self.min.min(shift_ns);
        self.max = self.max.max(shift_ns);
    }

    pub fn close(&self) -> Option<Shift> {
        let count = self.earlier.len() + self.later.len();
        (count > 0).then(|| Shift {
            count,
            min: self.min,
            p1: self.at(0.01),
            p50: self.at(0.5),
            p99: self.at(0.99),
            max: self.max,
            own_p50: None,
        })
    }

    fn at(&self, share: f64) -> i64 {
        let (before, after) = (self.earlier.len(), self.later.len());
        let rank = ((share * (before + after) as f64).ceil() as u64).clamp(1, before + after);
        let value = |of: &Histogram<u64>, rank: u64| {
            // The middle of the rank's share, so that rounding cannot lead to the next rank.
            let value = of.value_at_quantile((rank as f64 - 0.5) / of.len() as f64);
            i64::try_from(value).unwrap_or(i64::MAX)
        };
        let found = match rank <= before {
            true => -value(&self.earlier, before - rank + 1),
            false => value(&self.later, rank - before),
        };
        found.clamp(self.min, self.max)
    }
}

/// The part of a topic's shifts to which a limit applies.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    P50,
    /// All shifts without the earliest and the latest 1 %.
    P99,
    Max,
}

/// The largest allowed shift of a message. It applies to messages that are too early, and to
/// messages that are too late.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShiftLimit {
    pub part: Part,
    pub most_ns: u64,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        match text {
            "p50" => Ok(Part::P50),
            "p99" => Ok(Part::P99),
            "max" => Ok(Part::Max),
            _ => Err("write p50=TIME, p99=TIME or max=TIME, for example p50=500us".into()),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::P50 => "p50",
            Part::P99 => "p99",
            Part::Max => "max",
        })
    }
}

impl ShiftLimit {
    /// Returns the shift in ns that exceeds the limit, or `None` if the shift is within the limit.
    pub fn exceeded(&self, shift: &Shift) -> Option<i64> {
        let ends = match self.part {
            Part::P50 => [shift.own_p50.unwrap_or(shift.p50); 2],
            Part::P99 => [shift.p1, shift.p99],
            Part::Max => [shift.min, shift.max],
        };
        let furthest = ends.into_iter().max_by_key(|ns| ns.unsigned_abs());
        furthest.filter(|ns| ns.unsigned_abs() > self.most_ns)
    }
}

/// One question about a topic, for example whether messages are missing, with its answer.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aspect {
    /// The state that the topic should have, for example "no recorded message is missing".
    pub name: &'static str,
    /// The aspect in one word, for example "missing".
    pub label: &'static str,
    pub verdict: Verdict,
    /// A sentence with the figures. Empty if the verdict is [`Verdict::Equal`].
    pub said: String,
}

impl TopicFindings {
    /// Returns the aspects of the topic with their verdicts. The function `duration` formats times.
    pub fn aspects(&self, duration: &dyn Fn(i64) -> String) -> Vec<Aspect> {
        let alone = |of: &Alone| {
            let shown: Vec<String> = of
                .first_at_ns
                .iter()
                .take(5)
                .map(|&ns| duration(ns))
                .collect();
            let more = if of.count as usize > shown.len() {
                " ..."
            } else {
                ""
            };
            format!("{} messages, at {}{more}", of.count, shown.join(", "))
        };
        let judge =
            |is_equal: bool, said: String, label: &'static str, name: &'static str| Aspect {
                name,
                label,
                verdict: match is_equal {
                    true => Verdict::Equal,
                    false => Verdict::Different,
                },
                said: if is_equal { String::new() } else { said },
            };
        let mut missing = judge(
            self.missing.count == 0,
            alone(&self.missing),
            "missing",
            "no recorded message is missing",
        );
        if missing.verdict == Verdict::Different && self.unseen >= self.missing.count {
            missing.verdict = Verdict::NotKnown;
            missing.said = format!(
                "{}. The publisher sent {} messages that did not reach onbeat",
                missing.said, self.unseen
            );
        }
        let fields: Vec<String> = self
            .fields
            .iter()
            .take(20)
            .map(|f| f.sentence(self.paired, duration))
            .collect();
        let contents = match fields.is_empty() {
            true => format!("{} of {} messages differ", self.different, self.paired),
            false => fields.join("; "),
        };
        let mut aspects = vec![
            missing,
            judge(
                self.additional.count == 0,
                alone(&self.additional),
                "additional",
                "no message is additional to the recorded ones",
            ),
            judge(
                self.different == 0,
                contents,
                "contents",
                "all compared messages have the recorded contents",
            ),
        ];
        if self.shift_ns.is_some() {
            let said = self.shift_exceeded.join("; ");
            aspects.push(judge(
                self.shift_exceeded.is_empty(),
                said,
                "times",
                "the messages are not earlier or later than --max-shift allows",
            ));
        }
        aspects
    }
}

impl FieldFindings {
    /// Returns a sentence about the differences of the field in `of` compared messages. The
    /// function `duration` formats times.
    pub fn sentence(&self, of: u64, duration: &dyn Fn(i64) -> String) -> String {
        let by = match (self.largest, self.largest_relative) {
            (Some(off), Some(share)) if share < 10.0 => {
                format!(" by up to {} ({} %)", rounded(off), rounded(share * 100.0))
            }
            (Some(off), _) => format!(" by up to {}", rounded(off)),
            _ => String::new(),
        };
        let Example {
            at_ns,
            place,
            expected,
            observed,
        } = &self.first;
        format!(
            "{} differs in {} of {of} messages{by}; first at {}: {place} is {observed}, recorded {expected}",
            self.path,
            self.messages,
            duration(*at_ns),
        )
    }
}

fn rounded(value: f64) -> String {
    let text = format!("{value:.3e}");
    let short: f64 = text.parse().unwrap_or(value);
    match (1e-3..1e7).contains(&short.abs()) || short == 0.0 {
        true => format!("{short}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_of_shifts_are_those_of_the_sorted_list(
            list in proptest::collection::vec(-2_000_000i64..3_000_000, 1..400)
        ) {
            let mut shifts = Shifts::new();
            list.iter().for_each(|&ns| shifts.add(ns));
            let found = shifts.close().unwrap();
            let mut sorted = list;
            sorted.sort_unstable();
            let at = |share: f64| sorted[((share * sorted.len() as f64).ceil() as usize).max(1) - 1];
            prop_assert_eq!((found.min, found.max), (sorted[0], *sorted.last().unwrap()));
            for (found, exact) in [(found.p1, at(0.01)), (found.p50, at(0.5)), (found.p99, at(0.99))] {
                prop_assert!(found.abs_diff(exact) <= exact.unsigned_abs() / 500 + 1, "{} {}", found, exact);
            }
        }
    }

    #[test]
    fn a_limit_of_the_shift_counts_in_both_directions() {
        let shift = Shift {
            count: 9,
            min: -50,
            p1: -20,
            p50: 3,
            p99: 10,
            max: 30,
            own_p50: None,
        };
        let exceeded = |part: Part, most_ns: u64| ShiftLimit { part, most_ns }.exceeded(&shift);
        assert_eq!(
            (exceeded(Part::P50, 3), exceeded(Part::P50, 2)),
            (None, Some(3))
        );
        assert_eq!(
            (exceeded(Part::P99, 20), exceeded(Part::P99, 19)),
            (None, Some(-20))
        );
        assert_eq!(
            (exceeded(Part::Max, 50), exceeded(Part::Max, 49)),
            (None, Some(-50))
        );
    }
}
