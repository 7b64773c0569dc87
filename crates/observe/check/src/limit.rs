//! Limits as people write them (`45 ms`, `9Hz..11Hz`, `..0.1%`), and the statistics to which they
//! apply.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// The quantity of a limit, such as a time: the units that the user may write, and the unit in
/// which onbeat stores it.
pub trait Unit: Copy + fmt::Debug + PartialEq {
    /// The units that the user may write, each with its factor to the stored unit. The first unit
    /// is also used to print values that are too small for every unit.
    const UNITS: &'static [(&'static str, f64)];
    /// The description of the quantity for error messages, with an example.
    const WHAT: &'static str;
}

/// A time, stored in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time;
impl Unit for Time {
    const UNITS: &'static [(&'static str, f64)] = &[
        ("ns", 1.0),
        ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("min", 60e9),
    ];
    const WHAT: &'static str = "a time with a unit, like 45ms";
}

/// A frequency, stored in Hz.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate;
impl Unit for Rate {
    const UNITS: &'static [(&'static str, f64)] = &[("Hz", 1.0), ("kHz", 1e3)];
    const WHAT: &'static str = "a rate with a unit, like 10Hz";
}

/// A share, stored as a number from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share;
impl Unit for Share {
    const UNITS: &'static [(&'static str, f64)] = &[("%", 0.01), ("", 1.0)];
    const WHAT: &'static str = "a share, like 0.1% or 1e-3";
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count;
impl Unit for Count {
    const UNITS: &'static [(&'static str, f64)] = &[("", 1.0)];
    const WHAT: &'static str = "a number, like 80";
}

/// A lower limit, an upper limit, or both. A single value is an upper limit, except for the
/// statistic `min`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit<U> {
    /// The lower end of the limit, in the unit in which onbeat stores the quantity `U` (for a time:
    /// ns). `None` if the limit has no lower end.
    pub least: Option<f64>,
    /// The upper end of the limit, in the unit in which onbeat stores the quantity `U` (for a time:
    /// ns). `None` if the limit has no upper end.
    pub most: Option<f64>,
    is_single: bool,
    unit: PhantomData<U>,
}

impl<U: Unit> Limit<U> {
    /// Makes a limit that allows all values up to `most`. The value is in the unit in which onbeat
    /// stores the quantity `U` (for a time: ns).
    pub fn at_most(most: f64) -> Limit<U> {
        Limit {
            least: None,
            most: Some(most),
            is_single: true,
            unit: PhantomData,
        }
    }

    /// Makes a limit that allows all values from `least` on. The value is in the unit in which
    /// onbeat stores the quantity `U` (for a time: ns).
    pub fn at_least(least: f64) -> Limit<U> {
        Limit::between(Some(least), None)
    }

    /// Makes a limit from its two ends. An end that is `None` does not limit values.
    pub fn between(least: Option<f64>, most: Option<f64>) -> Limit<U> {
        Limit {
            least,
            most,
            is_single: false,
            unit: PhantomData,
        }
    }

    /// Returns this limit for the statistic `min`: a single value becomes the lower limit.
    pub fn of_smallest(self) -> Limit<U> {
        match self.is_single {
            true => Limit::between(self.most, None),
            false => self,
        }
    }

    /// Reports whether a value is within the limit.
    pub fn holds(&self, value: f64) -> bool {
        self.least.is_none_or(|least| value >= least) && self.most.is_none_or(|most| value <= most)
    }
}

/// Formats a number of the quantity `U` in the largest unit that leaves at least one digit before
/// the point.
pub fn text<U: Unit>(value: f64) -> String {
    let fits = |u: &&(&str, f64)| value.abs() >= u.1;
    let (unit, factor) = match U::UNITS.iter().rev().find(fits) {
        // Shares are easiest to read as percentages.
        Some(found) if U::UNITS[0].0 != "%" => *found,
        _ => U::UNITS[0],
    };
    let number = value / factor;
    // Six digits suffice for every limit that people write.
    let digits = 5 - (number.abs().max(1e-9).log10().floor() as i32).clamp(-6, 5);
    let text = format!("{number:.*}", digits as usize);
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    match unit {
        "" | "%" => format!("{text}{unit}"),
        _ => format!("{text} {unit}"),
    }
}

impl<U: Unit> fmt::Display for Limit<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (None, Some(most)) => write!(f, "at most {}", text::<U>(most)),
            (Some(least), None) => write!(f, "at least {}", text::<U>(least)),
            (Some(least), Some(most)) => write!(f, "{} to {}", text::<U>(least), text::<U>(most)),
            (None, None) => f.write_str("anything"),
        }
    }
}

fn number<U: Unit>(word: &str) -> Result<f64, String> {
    let word = word.trim();
    let refused = || format!("'{word}' is not {}", U::WHAT);
    // The unit begins after the last digit, as in `1e-3%`.
    let at = word.rfind(|c: char| c.is_ascii_digit() || c == '.');
    let (digits, unit) = word.split_at(at.map_or(0, |at| at + 1));
    let unit = unit.trim();
    let factor = U::UNITS.iter().find(|u| u.0 == unit).map(|u| u.1);
    let value: f64 = digits.trim().parse().map_err(|_| refused())?;
    let value = value * factor.ok_or_else(refused)?;
    match value.is_finite() && value >= 0.0 {
        true => Ok(value),
        false => Err(refused()),
    }
}

impl<U: Unit> FromStr for Limit<U> {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let Some((from, to)) = word.split_once("..") else {
            return number::<U>(word).map(Limit::at_most);
        };
        let end = |word: &str| match word.trim() {
            "" => Ok(None),
            word => number::<U>(word).map(Some),
        };
        match (end(from)?, end(to)?) {
            (None, None) => Err(format!("'..' limits nothing. Write {}", U::WHAT)),
            (Some(from), Some(to)) if from > to => Err(format!(
                "'{word}' allows no value: its upper end is below its lower end"
            )),
            (from, to) => Ok(Limit::between(from, to)),
        }
    }
}

impl<'de, U: Unit> Deserialize<'de> for Limit<U> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl<U: Unit> Serialize for Limit<U> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let end = |value: Option<f64>| {
            value
                .map(|v| text::<U>(v).replace(' ', ""))
                .unwrap_or_default()
        };
        let text = match self.is_single {
            true => end(self.most),
            false => format!("{}..{}", end(self.least), end(self.most)),
        };
        to.serialize_str(&text)
    }
}

/// The figure of a distribution that a limit applies to: minimum, mean, quantile or maximum.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statistic {
    /// The smallest value of the sample. A single number as its limit is a lower limit.
    Min,
    Mean,
    /// The quantile at this share: 0.99 is the 99th percentile.
    Quantile(f64),
    Max,
}

impl Eq for Statistic {}

impl Statistic {
    fn place(&self) -> f64 {
        match self {
            Statistic::Min => -2.0,
            Statistic::Mean => -1.0,
            Statistic::Quantile(q) => *q,
            Statistic::Max => 2.0,
        }
    }
}

impl Ord for Statistic {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place().total_cmp(&other.place())
    }
}

impl PartialOrd for Statistic {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Min => f.write_str("min"),
            Statistic::Mean => f.write_str("mean"),
            Statistic::Max => f.write_str("max"),
            Statistic::Quantile(q) => write!(f, "p{}", (q * 1e8).round() / 1e6),
        }
    }
}

impl FromStr for Statistic {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let percent = || word.strip_prefix('p')?.parse::<f64>().ok();
        match word {
            "min" => Ok(Statistic::Min),
            "mean" => Ok(Statistic::Mean),
            "max" => Ok(Statistic::Max),
            _ => match percent() {
                Some(p) if p > 0.0 && p < 100.0 => Ok(Statistic::Quantile(p / 100.0)),
                _ => Err(format!(
                    "'{word}' is not a statistic. Write min, mean, max, or p and a number, like p99.9"
                )),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Statistic {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Statistic {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_with_a_unit_are_read_and_limits_without_one_are_refused() {
        let time = |word: &str| word.parse::<Limit<Time>>();
        assert_eq!(time("45 ms"), Ok(Limit::at_most(45e6)));
        assert_eq!(time("..1.5s").unwrap().most, Some(1.5e9));
        assert_eq!(time("9ms..11ms"), Ok(Limit::between(Some(9e6), Some(11e6))));
        assert_eq!(time("2us").unwrap().of_smallest().least, Some(2e3));
        assert_eq!("0.1%".parse(), Ok(Limit::<Share>::at_most(0.001)));
        assert_eq!("1e-3".parse(), Ok(Limit::<Share>::at_most(0.001)));
        assert_eq!("9Hz..".parse(), Ok(Limit::<Rate>::at_least(9.0)));
        for (bad, said) in [
            ("45", "unit"),
            ("fast", "'fast'"),
            ("-3ms", "'-3ms'"),
            ("..", "nothing"),
            ("3ms..2ms", "upper end"),
            ("1e999ms", "unit"),
        ] {
            assert!(time(bad).unwrap_err().contains(said), "{bad}");
        }
        assert_eq!(time("45ms").unwrap().to_string(), "at most 45 ms");
    }

    #[test]
    fn the_names_of_statistics_are_read_and_written_alike_and_other_words_are_refused() {
        for word in ["min", "mean", "max", "p50", "p99.9", "p99.9999"] {
            assert_eq!(word.parse::<Statistic>().unwrap().to_string(), word);
        }
        for bad in ["p100", "p0", "p", "median", "pmax"] {
            assert!(bad.parse::<Statistic>().unwrap_err().contains(bad));
        }
    }

    proptest! {
        #[test]
        fn a_limit_written_as_text_is_read_back_with_the_same_value(ns in 1.0f64..1e13, least in proptest::bool::ANY) {
            let limit: Limit<Time> = if least { Limit::at_least(ns) } else { Limit::at_most(ns) };
            let text = serde_json::to_string(&limit).unwrap();
            let read: Limit<Time> = serde_json::from_str(&text).unwrap();
            let (a, b) = (limit.least.or(limit.most).unwrap(), read.least.or(read.most).unwrap());
            prop_assert!((a - b).abs() <= a * 1e-5, "{} {}", text, ns);
            prop_assert_eq!(limit.is_single, read.is_single);
        }
    }
}
