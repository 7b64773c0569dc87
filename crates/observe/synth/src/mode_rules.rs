//! Rules that state when each mode of a run begins (thesis section 3.6).

use std::fmt;
use std::str::FromStr;

/// A rule for when a mode is active, for example `urban@0s..30s`, `urban,highway@/mode` or
/// `driving@/planner=active`. Topics and nodes have their full names.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModeRule {
    Time {
        mode: String,
        /// The time at which the mode begins, in ns since the recording's first event.
        from_ns: u64,
        /// The time at which the mode ends, in ns since the recording's first event. `None` if the
        /// mode lasts to the end.
        to_ns: Option<u64>,
    },
    /// Each message on a topic begins the next mode of a list. The first mode follows the last one.
    Topic {
        /// The names of the modes, in the order in which messages begin them.
        modes: Vec<String>,
        topic: String,
    },
    /// The mode is active while a lifecycle node is in a certain state.
    Lifecycle {
        mode: String,
        node: String,
        state: String,
    },
}

/// The error for a text that is not a mode rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("mode '{text}': {why}. Write NAME, NAME@FROM..TO (urban@0s..30s), NAME@TOPIC (urban,highway@/mode) or NAME@NODE=STATE (driving@/planner=active).")]
pub struct ModeRuleError {
    text: String,
    why: &'static str,
}

impl FromStr for ModeRule {
    type Err = ModeRuleError;

    fn from_str(text: &str) -> Result<Self, ModeRuleError> {
        let wrong = |why| ModeRuleError {
            text: text.into(),
            why,
        };
        let (names, when) = text.split_once('@').ok_or(wrong(
            "the text has no '@' with a time, a topic or a node's state",
        ))?;
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        if names.iter().any(|n| n.is_empty()) {
            return Err(wrong("a mode has no name"));
        }
        let several = names.len() > 1;
        let when = when.trim();
        match (when.split_once(".."), when.split_once('=')) {
            _ if when.starts_with('/') && !when.contains('=') => Ok(ModeRule::Topic {
                modes: names.into_iter().map(String::from).collect(),
                topic: when.into(),
            }),
            _ if several => Err(wrong(
                "the rule names several modes, but only a rule with a topic can do so",
            )),
            (_, Some((node, state))) if node.starts_with('/') && !state.trim().is_empty() => {
                Ok(ModeRule::Lifecycle {
                    mode: names[0].into(),
                    node: node.trim().into(),
                    state: state.trim().into(),
                })
            }
            (Some((from, to)), None) => time(names[0], from, to).map_err(wrong),
            _ => Err(wrong(
                "the text after '@' is neither a time range nor a topic nor a node's state",
            )),
        }
    }
}

fn time(mode: &str, from: &str, to: &str) -> Result<ModeRule, &'static str> {
    let no_time = "a time needs a number and a unit (ns, us, ms, s, min)";
    let to_ns = match to.trim() {
        "" => None,
        to => Some(duration_ns(to).ok_or(no_time)?),
    };
    let from_ns = duration_ns(from.trim()).ok_or(no_time)?;
    match to_ns {
        Some(to) if to <= from_ns => Err("the time range ends before it begins"),
        _ => Ok(ModeRule::Time {
            mode: mode.into(),
            from_ns,
            to_ns,
        }),
    }
}

fn duration_ns(text: &str) -> Option<u64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let ns = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        _ => return None,
    };
    let ns = number.trim().parse::<f64>().ok()? * ns;
    // The limit is about 146 years. That is longer than any recording, and an `f64` is exact enough
    // below it.
    (0.0..=(u64::MAX / 4) as f64)
        .contains(&ns)
        .then_some(ns.round() as u64)
}

impl ModeRule {
    /// Returns the modes that this rule can begin.
    pub fn modes(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match self {
            ModeRule::Time { mode, .. } | ModeRule::Lifecycle { mode, .. } => (Some(mode), &[][..]),
            ModeRule::Topic { modes, .. } => (None, modes.as_slice()),
        };
        one.into_iter().chain(several).map(String::as_str)
    }
}

impl fmt::Display for ModeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModeRule::Time {
                mode,
                from_ns,
                to_ns,
            } => {
                write!(f, "{mode}@{}s..", *from_ns as f64 / 1e9)?;
                to_ns.map_or(Ok(()), |to| write!(f, "{}s", to as f64 / 1e9))
            }
            ModeRule::Topic { modes, topic } => write!(f, "{}@{topic}", modes.join(",")),
            ModeRule::Lifecycle { mode, node, state } => write!(f, "{mode}@{node}={state}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ModeId(u16);

impl ModeId {
    pub(crate) fn new(index: usize) -> Self {
        ModeId(index as u16)
    }

    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

/// The times at which modes began, in ns. Before the earliest of them, the mode of the whole run
/// (mode 0) is active.
#[derive(Debug, Clone, Default)]
pub(crate) struct Switches(Vec<(u64, ModeId)>);

impl Switches {
    /// Makes a mode active from `time_ns` on. Times must not decrease.
    pub(crate) fn begin(&mut self, time_ns: u64, mode: ModeId) {
        if self.last() != mode {
            self.0.push((time_ns, mode));
        }
    }

    pub(crate) fn last(&self) -> ModeId {
        self.0.last().map_or(ModeId::default(), |s| s.1)
    }

    pub(crate) fn at(&self, time_ns: u64) -> ModeId {
        let before = self.0.iter().rev().find(|s| s.0 <= time_ns);
        before.map_or(ModeId::default(), |s| s.1)
    }

    /// Divides the time from `from` to `to` at each change of the mode. Returns the mode, the begin
    /// and the end of each part, in order of time.
    pub(crate) fn stretches(&self, from: u64, to: u64) -> Vec<(ModeId, u64, u64)> {
        let starts = std::iter::once((from, self.at(from)));
        let starts = starts.chain(self.0.iter().copied().filter(|s| s.0 > from && s.0 < to));
        let starts: Vec<(u64, ModeId)> = starts.collect();
        let ends = starts.iter().skip(1).map(|s| s.0).chain([to]);
        let stretch = |(&(start, mode), end)| (mode, start, end);
        starts.iter().zip(ends).map(stretch).collect()
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct PerMode<F>(Vec<Option<F>>);

impl<F: Default> PerMode<F> {
    pub(crate) fn of(&mut self, mode: ModeId) -> &mut F {
        if self.0.len() <= mode.index() {
            self.0.resize_with(mode.index() + 1, || None);
        }
        self.0[mode.index()].get_or_insert_with(F::default)
    }
}

impl<F> PerMode<F> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ModeId, &F)> {
        let all = self.0.iter().enumerate();
        all.filter_map(|(i, f)| Some((ModeId::new(i), f.as_ref()?)))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut F> {
        self.0.iter_mut().flatten()
    }

    pub(crate) fn map<G>(&self, into: impl Fn(&F) -> G) -> PerMode<G> {
        PerMode(self.0.iter().map(|f| f.as_ref().map(&into)).collect())
    }

    pub(crate) fn get(&self, mode: ModeId) -> Option<&F> {
        self.0.get(mode.index())?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_rule_is_parsed_from_the_text_that_it_prints() {
        for text in [
            "urban@0s..30s",
            "rest@1.5s..",
            "urban,highway@/mode",
            "driving@/planner=active",
        ] {
            assert_eq!(text.parse::<ModeRule>().unwrap().to_string(), text);
        }
        for text in [
            "urban",
            "@/mode",
            "a,@/mode",
            "a,b@0s..1s",
            "a@2s..1s",
            "a@1..2",
            "a@-1s..2s",
            "a@/n=",
            "a@mode",
            "a@",
            "a@1e30s..",
        ] {
            let refused = text.parse::<ModeRule>().unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("mode '{text}': ")),
                "{refused}"
            );
        }
    }

    #[test]
    fn the_mode_at_a_time_is_the_one_that_began_last() {
        let mut switches = Switches::default();
        let (a, b) = (ModeId::new(0), ModeId::new(1));
        switches.begin(5, a);
        switches.begin(10, b);
        switches.begin(10, a);
        switches.begin(20, b);
        assert_eq!([0, 9, 10, 19, 20].map(|t| switches.at(t)), [a, a, a, a, b]);
        let stretches = switches.stretches(2, 30);
        let lengths: Vec<_> = stretches.iter().map(|s| (s.0, s.2 - s.1)).collect();
        let of_b: u64 = lengths.iter().filter(|l| l.0 == b).map(|l| l.1).sum();
        assert_eq!((of_b, lengths.iter().map(|l| l.1).sum::<u64>()), (10, 28));
    }
}
