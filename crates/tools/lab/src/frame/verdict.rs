//! The verdict on a figure with a target: met, missed, or cannot be told here.
//!
//! A verdict comes from the 95 % confidence interval alone. If the whole interval lies on the good
//! side of the target, the target is met. If it lies on the bad side, the target is missed. In
//! every other case the run cannot tell, and the verdict says why.

use super::digits::{number, range};
use super::estimate::Spread;
use super::Estimate;
use serde::{Deserialize, Serialize};

/// The smallest number of undisturbed rounds that can decide on a verdict. Two rounds have no
/// usable spread.
pub const DECIDING_ROUNDS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Met,
    Missed,
    CannotBeToldHere,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::CannotBeToldHere => "cannot be told here",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    pub verdict: Verdict,
    /// The figure, interval or value that decided on the verdict, or the reason why nothing
    /// decided.
    pub decided_by: String,
    /// The smallest effect, in the figure's unit, that nine of ten measurements like this one would
    /// detect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tells: Option<f64>,
}

impl Judgement {
    fn cannot(why: impl Into<String>) -> Judgement {
        Judgement {
            verdict: Verdict::CannotBeToldHere,
            decided_by: why.into(),
            tells: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// Whether the value was counted or computed, so that it does not depend on the machine's
    /// speed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
    /// The 95 % confidence interval of the value, in the figure's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// The number of undisturbed rounds from which the interval comes. `None` if the interval comes
    /// from blocks of a single run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_disturbed: Option<Spread>,
    /// The value of the figure that the machine alone causes, measured without the program, in the
    /// figure's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    /// Why the run from which the figure comes was disturbed. Always `None` for figures that come
    /// from rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
}

impl Evidence {
    pub fn of(estimate: Estimate) -> Evidence {
        Evidence {
            interval: Some((estimate.low, estimate.high)),
            rounds: estimate.rounds,
            with_disturbed: estimate.with_disturbed,
            ..Evidence::default()
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    AtMost,
    AtLeast,
}

impl Relation {
    pub fn sign(self) -> &'static str {
        match self {
            Relation::AtMost => "<=",
            Relation::AtLeast => ">=",
        }
    }

    fn holds(self, value: f64, target: f64) -> bool {
        match self {
            Relation::AtMost => value <= target,
            Relation::AtLeast => value >= target,
        }
    }

    /// Returns the verdict for a confidence interval. Returns `None` if the target lies within the
    /// interval, because both verdicts are then possible.
    fn decide(self, (low, high): (f64, f64), target: f64) -> Option<Verdict> {
        match (self.holds(low, target), self.holds(high, target)) {
            (true, true) => Some(Verdict::Met),
            (false, false) => Some(Verdict::Missed),
            _ => None,
        }
    }
}

pub fn judge(value: f64, evidence: &Evidence, relation: Relation, target: f64) -> Judgement {
    if !value.is_finite() {
        return Judgement::cannot("the figure was not measured");
    }
    if evidence.exact {
        let verdict = match relation.holds(value, target) {
            true => Verdict::Met,
            false => Verdict::Missed,
        };
        return Judgement {
            verdict,
            decided_by: format!("the exact value {}", number(value)),
            tells: None,
        };
    }
    let Some(interval) = evidence.interval else {
        return Judgement::cannot("a single value is not enough for a verdict");
    };
    if let Some(why) = obstacle(evidence) {
        return Judgement::cannot(why);
    }
    let shown = interval_words(interval, evidence.rounds);
    // An effect as large as the width of the interval is found in spite of the spread of the value and
    // of the interval itself.
    let tells = Some(interval.1 - interval.0);
    let (verdict, decided_by) = decide(evidence, relation, target, (interval, shown));
    Judgement {
        verdict,
        decided_by,
        tells,
    }
}

/// Returns the reason why the evidence cannot decide, whatever its interval is. Returns `None` if
/// the interval can decide.
fn obstacle(evidence: &Evidence) -> Option<String> {
    match (evidence.rounds, &evidence.disturbed) {
        (Some(rounds), _) if rounds < DECIDING_ROUNDS => {
            let all = evidence.with_disturbed.map_or(rounds, |all| all.rounds);
            Some(format!(
                "only {rounds} of {all} rounds were undisturbed, and a verdict needs {DECIDING_ROUNDS}"
            ))
        }
        (None, Some(why)) => Some(format!(
            "the figure comes from a single run, and this run was disturbed: {why}"
        )),
        _ => None,
    }
}

fn decide(
    evidence: &Evidence,
    relation: Relation,
    target: f64,
    (interval, shown): ((f64, f64), String),
) -> (Verdict, String) {
    let Some(verdict) = relation.decide(interval, target) else {
        return (
            Verdict::CannotBeToldHere,
            format!("both met and missed are possible, because the target lies within {shown}"),
        );
    };
    if let Some(floor) = evidence.floor.filter(|f| !relation.holds(*f, target)) {
        // A figure that meets its target in spite of the floor keeps the verdict *met*.
        if verdict == Verdict::Missed {
            let why = format!(
                "the machine's own part of the figure (its floor) also misses the target: {}",
                number(floor)
            );
            return (Verdict::CannotBeToldHere, why);
        }
    }
    if let Some(all) = evidence.with_disturbed {
        let opposite = match verdict {
            Verdict::Met => Verdict::Missed,
            _ => Verdict::Met,
        };
        if relation.decide(all.interval, target) == Some(opposite) {
            let other = interval_words(all.interval, Some(all.rounds));
            let why = format!(
                "the disturbed rounds would reverse the verdict. Without them: {shown}. With them: {other}"
            );
            return (Verdict::CannotBeToldHere, why);
        }
    }
    (verdict, shown)
}

fn interval_words(interval: (f64, f64), rounds: Option<usize>) -> String {
    let from = match rounds {
        Some(rounds) => format!("{rounds} rounds of the run"),
        None => "several parts of a single run, without rounds".into(),
    };
    format!(
        "the figure's 95 % confidence interval {} (computed from {from})",
        range(interval)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(interval: (f64, f64), rounds: usize) -> Evidence {
        Evidence {
            interval: Some(interval),
            rounds: Some(rounds),
            ..Evidence::default()
        }
    }

    fn verdict(evidence: &Evidence) -> Verdict {
        judge(1.0, evidence, Relation::AtMost, 1.0).verdict
    }

    #[test]
    fn only_a_confidence_interval_on_one_side_of_the_target_gives_a_verdict() {
        assert_eq!(verdict(&evidence((0.5, 1.0), 3)), Verdict::Met);
        assert_eq!(verdict(&evidence((1.1, 1.2), 3)), Verdict::Missed);
        assert_eq!(
            verdict(&evidence((0.9, 1.1), 30)),
            Verdict::CannotBeToldHere
        );
        let at_least =
            |low, high| judge(1.0, &evidence((low, high), 3), Relation::AtLeast, 1.0).verdict;
        assert_eq!(at_least(1.0, 2.0), Verdict::Met);
        assert_eq!(at_least(0.5, 0.9), Verdict::Missed);
        // A single value decides nothing, unless it does not depend on the machine's speed.
        let single = Evidence::default();
        assert_eq!(verdict(&single), Verdict::CannotBeToldHere);
        let exact = Evidence {
            exact: true,
            ..single
        };
        let of = |value| judge(value, &exact, Relation::AtMost, 1.0).verdict;
        assert_eq!((of(1.0), of(1.1)), (Verdict::Met, Verdict::Missed));
        assert_eq!(of(f64::NAN), Verdict::CannotBeToldHere);
    }

    #[test]
    fn too_few_rounds_a_disturbed_run_or_a_high_noise_floor_give_no_verdict() {
        let few = judge(1.0, &evidence((1.1, 1.2), 2), Relation::AtMost, 1.0);
        assert_eq!(few.verdict, Verdict::CannotBeToldHere);
        assert!(few.decided_by.contains("2 of 2 rounds"), "{few:?}");
        let mut blocks = Evidence {
            rounds: None,
            ..evidence((1.1, 1.2), 0)
        };
        assert_eq!(verdict(&blocks), Verdict::Missed);
        blocks.disturbed = Some("the host took 9 %".into());
        assert_eq!(verdict(&blocks), Verdict::CannotBeToldHere);
        // The floor changes the verdict *missed*, but not the verdict *met*.
        let with_floor = |interval, floor| {
            verdict(&Evidence {
                floor: Some(floor),
                ..evidence(interval, 5)
            })
        };
        assert_eq!(with_floor((1.1, 1.2), 1.05), Verdict::CannotBeToldHere);
        assert_eq!(with_floor((1.1, 1.2), 0.9), Verdict::Missed);
        assert_eq!(with_floor((0.8, 0.9), 1.05), Verdict::Met);
    }

    #[test]
    fn a_verdict_that_the_disturbed_rounds_would_reverse_is_not_given() {
        let with = |interval| {
            verdict(&Evidence {
                with_disturbed: Some(Spread {
                    value: 1.0,
                    interval,
                    rounds: 9,
                }),
                ..evidence((0.5, 0.9), 6)
            })
        };
        assert_eq!(with((1.1, 1.3)), Verdict::CannotBeToldHere);
        assert_eq!(with((0.8, 1.3)), Verdict::Met);
    }
}
