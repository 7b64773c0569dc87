//! The report of an experiment, and how it is printed and stored.

use super::Estimate;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

pub const SCHEMA: &str = "onbeat-lab/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The figure's name, unique in the experiment. Words are joined by `_`, parts by `.`.
    pub name: String,
    pub value: f64,
    /// The figure's unit: `us`, `%`, `events/s`, `MB`, or `1` for a plain number.
    pub unit: String,
    pub target: Option<f64>,
    /// The side of the target on which the value should lie: `at_most` or `at_least`. `None`
    /// without a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
    /// Whether the value keeps its target. `None` without a target.
    pub met: Option<bool>,
    /// The figure's value in a paper or in another program, in the same unit.
    pub baseline: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: impl Into<String>) -> Self {
        Figure {
            name: name.into(),
            value,
            unit: unit.into(),
            target: None,
            relation: None,
            met: None,
            baseline: None,
            baseline_of: None,
            interval: None,
            samples: None,
        }
    }

    pub fn estimated(name: impl Into<String>, of: Estimate, unit: impl Into<String>) -> Self {
        Figure {
            interval: Some((of.low, of.high)),
            ..Figure::new(name, of.value, unit)
        }
    }

    pub fn at_most(self, limit: impl Into<Option<f64>>) -> Self {
        self.compared("at_most", limit.into(), |value, limit| value <= limit)
    }

    pub fn at_least(self, limit: impl Into<Option<f64>>) -> Self {
        self.compared("at_least", limit.into(), |value, limit| value >= limit)
    }

    fn compared(mut self, how: &str, limit: Option<f64>, is_met: fn(f64, f64) -> bool) -> Self {
        if let Some(limit) = limit {
            // JSON has no NaN, and a figure that is not a number meets no target.
            self.met = Some(self.value.is_finite() && is_met(self.value, limit));
            self.target = Some(limit);
            self.relation = Some(how.into());
        }
        self
    }

    pub fn sign(&self) -> &'static str {
        match self.relation.as_deref() {
            Some("at_least") => ">=",
            _ => "<=",
        }
    }

    pub fn baseline(mut self, value: impl Into<Option<f64>>, whose: impl Into<String>) -> Self {
        if let Some(value) = value.into() {
            self.baseline = Some(value);
            self.baseline_of = Some(whose.into());
        }
        self
    }

    /// Reports whether the target lies within the confidence interval, so that the verdict is
    /// uncertain.
    pub fn unsure(&self) -> bool {
        matches!((self.target, self.interval), (Some(t), Some((low, high))) if low <= t && t <= high)
    }

    pub fn samples(mut self, n: u64) -> Self {
        self.samples = Some(n);
        self
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Table {
    pub title: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates an empty table. `head` holds the heads of the columns, separated by `|`.
    pub fn new(title: impl Into<String>, head: &str) -> Self {
        let head = head.split('|').map(|h| h.trim().to_string());
        Table {
            title: title.into(),
            head: head.collect(),
            rows: vec![],
        }
    }

    pub fn over<H: Into<String>>(
        title: impl Into<String>,
        first: &str,
        heads: impl IntoIterator<Item = H>,
    ) -> Self {
        let mut table = Table::new(title, first);
        table.head.extend(heads.into_iter().map(Into::into));
        table
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn row_of(&mut self, first: impl Into<String>, others: impl IntoIterator<Item = String>) {
        self.row([first.into()].into_iter().chain(others));
    }

    pub fn text(&self) -> String {
        let columns = self
            .rows
            .iter()
            .map(Vec::len)
            .chain([self.head.len()])
            .max()
            .unwrap_or(0);
        let width: Vec<usize> = (0..columns)
            .map(|c| {
                self.rows
                    .iter()
                    .chain([&self.head])
                    .filter_map(|r| r.get(c))
                    .map(|s| s.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut out = format!("{}\n", self.title);
        let rule: Vec<String> = width.iter().map(|&w| "-".repeat(w)).collect();
        for row in [&self.head, &rule].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (c, &w) in width.iter().enumerate() {
                let cell = row.get(c).map(String::as_str).unwrap_or("");
                if c == 0 {
                    let _ = write!(line, "{cell:<w$}");
                } else {
                    let _ = write!(line, "  {cell:>w$}");
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    pub what: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    pub figures: Vec<Figure>,
    pub tables: Vec<Table>,
    pub notes: Vec<String>,
    pub skipped: Vec<Skipped>,
}

impl Report {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn figure(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    pub fn value(&mut self, name: impl Into<String>, value: f64, unit: impl Into<String>) {
        self.figure(Figure::new(name, value, unit));
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub fn skip(&mut self, what: impl Into<String>, why: impl ToString) {
        self.skipped.push(Skipped {
            what: what.into(),
            why: why.to_string(),
        });
    }

    pub fn text(&self) -> String {
        let mut figures = Table::new(
            "Figures",
            "figure | value | unit | 95 % interval | target |  | baseline | of",
        );
        for f in &self.figures {
            let sign = f.sign();
            figures.row([
                f.name.clone(),
                number(f.value),
                f.unit.clone(),
                f.interval.map(range).unwrap_or_default(),
                f.target
                    .map(|t| format!("{sign} {}", number(t)))
                    .unwrap_or_default(),
                f.met
                    .map(|m| {
                        format!(
                            "{}{}",
                            if m { "met" } else { "MISSED" },
                            if f.unsure() { "?" } else { "" }
                        )
                    })
                    .unwrap_or_default(),
                f.baseline.map(number).unwrap_or_default(),
                f.baseline_of.clone().unwrap_or_default(),
            ]);
        }
        let mut out = String::new();
        for table in self.tables.iter().chain([&figures]) {
            out.push_str(&table.text());
            out.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        for s in &self.skipped {
            let _ = writeln!(out, "skipped: {}: {}", s.what, s.why);
        }
        out
    }
}

pub fn range((low, high): (f64, f64)) -> String {
    format!("{} .. {}", number(low), number(high))
}

pub fn number(v: f64) -> String {
    let a = v.abs();
    if !v.is_finite() {
        return "-".into();
    }
    let digits = match a {
        _ if a >= 1000.0 => 0,
        _ if a == 0.0 => 0,
        _ if a >= 100.0 => 1,
        _ if a >= 10.0 => 2,
        _ if a >= 1.0 => 3,
        _ if a >= 0.01 => 4,
        _ => 6,
    };
    let text = format!("{v:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    };
    if text == "-0" {
        "0".into()
    } else {
        group_thousands(&text)
    }
}

fn group_thousands(text: &str) -> String {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    if digits.contains('.') || digits.len() < 6 {
        return text.to_string();
    }
    let mut out = String::from(sign);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_on_its_side_of_the_limit() {
        let figure = |value| Figure::new("x", value, "us");
        assert_eq!(figure(5.0).at_most(5.0).met, Some(true));
        assert_eq!(figure(5.1).at_most(5.0).met, Some(false));
        assert_eq!(figure(5.0).at_least(5.0).met, Some(true));
        assert_eq!(figure(4.9).at_least(5.0).met, Some(false));
        assert_eq!(figure(f64::NAN).at_most(5.0).met, Some(false));
        assert_eq!(figure(1.0).at_most(None).met, None);
    }

    #[test]
    fn numbers_have_four_digits_and_separated_thousands() {
        let cases = [
            (0.0, "0"),
            (3.0, "3"),
            (0.31, "0.31"),
            (-0.00001, "-0.00001"),
            (12.345, "12.35"),
            (250.0, "250"),
            (123456.0, "123,456"),
            (-2_500_000.4, "-2,500,000"),
            (1234.5, "1234"),
            (f64::NAN, "-"),
        ];
        for (v, text) in cases {
            assert_eq!(number(v), text, "{v}");
        }
    }
}
