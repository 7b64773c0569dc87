//! How far a field may be from the recorded one: for all fields, or for named fields and topics.

use super::layout::{Kind, Layout, Leaf};
use crate::chain::fits;
use std::fmt;
use std::str::FromStr;

/// The largest allowed deviation of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// A limit relative to the recorded value, for example 0.01.
    Relative(f64),
    /// A limit in the field's own unit.
    Absolute(f64),
    /// A limit in ns, for fields that are times.
    Time(u64),
}

/// A pattern of fields. It applies to all topics, or to those that match another pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The pattern of topic names. `*` stands for any characters. `None` means all topics.
    pub topic: Option<String>,
    /// The pattern of fields, for example `pose.position.*`.
    pub path: String,
}

/// The largest allowed deviation of the fields that a pattern names. Without a pattern, a limit in
/// time applies to all times, and any other limit to all floating-point fields.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq)]
pub struct Tolerance {
    /// The fields to which the limit applies. `None`: all times if the limit is a time, otherwise
    /// all floating-point fields.
    pub field: Option<Field>,
    pub limit: Limit,
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let number = |digits: &str| {
            digits
                .parse::<f64>()
                .ok()
                .filter(|n| n.is_finite() && *n >= 0.0)
        };
        let wrong = || {
            format!(
                "'{text}' is not a tolerance. Write a share (1%), a number (0.05) or a time (2ms)"
            )
        };
        if let Some(percent) = text.strip_suffix('%') {
            return number(percent)
                .map(|n| Limit::Relative(n / 100.0))
                .ok_or_else(wrong);
        }
        let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
        for (unit, ns) in units {
            if let Some(digits) = text.strip_suffix(unit) {
                return number(digits)
                    .map(|n| Limit::Time((n * ns) as u64))
                    .ok_or_else(wrong);
            }
        }
        number(text).map(Limit::Absolute).ok_or_else(wrong)
    }
}

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Field, String> {
        let (topic, path) = match text.rsplit_once(':') {
            Some((topic, path)) => (Some(topic.to_owned()), path),
            None => (None, text),
        };
        match path.is_empty() || topic.as_ref().is_some_and(String::is_empty) {
            true => Err("write FIELD or TOPIC:FIELD, for example pose.position.x".into()),
            false => Ok(Field {
                topic,
                path: path.into(),
            }),
        }
    }
}

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Tolerance, String> {
        let (field, limit) = match text.rsplit_once('=') {
            Some((field, limit)) => (Some(field.parse()?), limit),
            None => (None, text),
        };
        Ok(Tolerance {
            field,
            limit: limit.parse()?,
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.topic {
            Some(topic) => write!(f, "{topic}:{}", self.path),
            None => write!(f, "{}", self.path),
        }
    }
}

impl Field {
    /// Returns true if the pattern matches the field `path` of `topic`. The pattern may leave out
    /// the brackets of arrays, so `points.x` matches `points[].x`.
    pub fn names(&self, topic: &str, path: &str) -> bool {
        let bare = || path.replace("[]", "");
        self.topic.as_ref().is_none_or(|t| fits(t, topic))
            && (fits(&self.path, path) || fits(&self.path, &bare()))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rule {
    pub is_ignored: bool,
    relative: f64,
    absolute: f64,
    pub time_ns: u64,
}

impl Rule {
    pub fn allows(&self, expected: f64, observed: f64) -> bool {
        let off = (observed - expected).abs();
        off <= self.absolute || off <= self.relative * expected.abs()
    }

    fn widen(&mut self, limit: Limit, kind: Kind) {
        let is_time = matches!(kind, Kind::Stamp | Kind::Duration);
        match limit {
            Limit::Relative(share) => self.relative = self.relative.max(share),
            Limit::Absolute(most) => self.absolute = self.absolute.max(most),
            Limit::Time(most_ns) if is_time => self.time_ns = self.time_ns.max(most_ns),
            Limit::Time(_) => {}
        }
    }
}

/// Returns the rule for each leaf (field of a basic type) of a layout. A tolerance that names the
/// field replaces a tolerance that names no field.
pub(super) fn rules(
    topic: &str,
    layout: &Layout,
    limits: &[Tolerance],
    ignored: &[Field],
) -> Vec<Rule> {
    let of = |leaf: &Leaf| {
        let mut rule = Rule {
            is_ignored: ignored.iter().any(|field| field.names(topic, &leaf.path)),
            ..Rule::default()
        };
        let is_named = |t: &&Tolerance| {
            let field = t.field.as_ref();
            field.is_some_and(|field| field.names(topic, &leaf.path))
        };
        let named: Vec<&Tolerance> = limits.iter().filter(is_named).collect();
        let applies = |t: &&Tolerance| {
            t.field.is_none() && (leaf.kind == Kind::Float || matches!(t.limit, Limit::Time(_)))
        };
        let general = limits.iter().filter(applies);
        let all = match named.is_empty() {
            true => general.collect(),
            false => named,
        };
        all.into_iter().for_each(|t| rule.widen(t.limit, leaf.kind));
        rule
    };
    layout.leaves.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::POSE;
    use super::*;

    #[test]
    fn tolerances_apply_to_the_fields_they_name() {
        let limits: Vec<Tolerance> = [
            "1%",
            "0.5",
            "2ms",
            "pairs.left=3",
            "/other:position.x=9",
            "header.stamp=1s",
        ]
        .map(|text| text.parse().unwrap())
        .into();
        let ignored: Vec<Field> = vec!["position.*".parse().unwrap()];
        let layout = Layout::of("a_msgs/msg/Pose", POSE).unwrap();
        let rules = rules("/pose", &layout, &limits, &ignored);
        let rule = |path: &str| {
            let at = layout.leaves.iter().position(|l| l.path == path);
            rules[at.expect("a field")]
        };
        let ranges = rule("ranges[]");
        assert!(
            ranges.allows(100.0, 101.0) && ranges.allows(0.0, 0.5) && ranges.allows(-200.0, -202.0)
        );
        assert!(!ranges.allows(100.0, 101.1) && !ranges.allows(0.0, 0.6));
        assert!(rule("pairs[].left").allows(1.0, 4.0) && !rule("raw[]").allows(100.0, 101.0));
        assert!(rule("position.x").is_ignored && rule("position.y").is_ignored);
        assert_eq!(
            (rule("header.stamp").time_ns, rule("since").time_ns),
            (1_000_000_000, 2_000_000)
        );
        for wrong in ["", "x", "-1", "1%%", "=1", "a=", ":=1", "NaN", "inf"] {
            assert!(wrong.parse::<Tolerance>().is_err(), "{wrong}");
        }
    }
}
