//! What an experiment returns, and how it is printed and stored.

use super::Estimate;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Value of `schema` in `results.json`.
pub const SCHEMA: &str = "onbeat-lab/1";

/// One result: a value with its unit, its target, and the value of others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Name, unique in the experiment; words joined by `_`, parts by `.`
    pub name: String,
    /// The value.
    pub value: f64,
    /// Its unit (`us`, `%`, `events/s`, `MB`, `1` for a plain number).
    pub unit: String,
    /// The limit that was asked for, in the same unit.
    pub target: Option<f64>,
    /// `at_most` or `at_least`: on which side of the target the value should lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
    /// Whether the value lies there; null without a target.
    pub met: Option<bool>,
    /// The same figure of the paper or a peer, in the same unit.
    pub baseline: Option<f64>,
    /// Whose figure the baseline is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_of: Option<String>,
    /// 95 % confidence interval, where one was estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// Number of samples behind it, where it comes from samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
}

impl Figure {
    /// A figure without target and baseline.
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

    /// A figure with its confidence interval.
    pub fn estimated(name: impl Into<String>, of: Estimate, unit: impl Into<String>) -> Self {
        Figure {
            interval: Some((of.low, of.high)),
            ..Figure::new(name, of.value, unit)
        }
    }

    /// Compares it with a target that it should not exceed, where there is one.
    pub fn at_most(self, limit: impl Into<Option<f64>>) -> Self {
        self.compared("at_most", limit.into(), |value, limit| value <= limit)
    }

    /// Compares it with a target that it should reach, where there is one.
    pub fn at_least(self, limit: impl Into<Option<f64>>) -> Self {
        self.compared("at_least", limit.into(), |value, limit| value >= limit)
    }

    fn compared(mut self, how: &str, limit: Option<f64>, is_met: fn(f64, f64) -> bool) -> Self {
        if let Some(limit) = limit {
            // JSON has no NaN, and no figure that is not a number meets anything.
            self.met = Some(self.value.is_finite() && is_met(self.value, limit));
            self.target = Some(limit);
            self.relation = Some(how.into());
        }
        self
    }

    /// The sign between the value and its target.
    pub fn sign(&self) -> &'static str {
        match self.relation.as_deref() {
            Some("at_least") => ">=",
            _ => "<=",
        }
    }

    /// Adds the same figure of a paper or a peer, where there is one.
    pub fn baseline(mut self, value: impl Into<Option<f64>>, whose: impl Into<String>) -> Self {
        if let Some(value) = value.into() {
            self.baseline = Some(value);
            self.baseline_of = Some(whose.into());
        }
        self
    }

    /// True when the target lies within the confidence interval: the other answer is possible too.
    pub fn unsure(&self) -> bool {
        matches!((self.target, self.interval), (Some(t), Some((low, high))) if low <= t && t <= high)
    }

    /// Sets the number of samples behind it.
    pub fn samples(mut self, n: u64) -> Self {
        self.samples = Some(n);
        self
    }
}

/// A table for the reader, e.g. the paper's beside ours.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Table {
    /// What it shows, with the place in the paper.
    pub title: String,
    /// Column heads.
    pub head: Vec<String>,
    /// Rows of cells.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table. `head` has the heads of its columns, with `|` between them.
    pub fn new(title: impl Into<String>, head: &str) -> Self {
        let head = head.split('|').map(|h| h.trim().to_string());
        Table {
            title: title.into(),
            head: head.collect(),
            rows: vec![],
        }
    }

    /// An empty table with a column for each of `heads` behind the first ones.
    pub fn over<H: Into<String>>(
        title: impl Into<String>,
        first: &str,
        heads: impl IntoIterator<Item = H>,
    ) -> Self {
        let mut table = Table::new(title, first);
        table.head.extend(heads.into_iter().map(Into::into));
        table
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a row with the cells of `others` behind its first one.
    pub fn row_of(&mut self, first: impl Into<String>, others: impl IntoIterator<Item = String>) {
        self.row([first.into()].into_iter().chain(others));
    }

    /// The table as text, columns aligned: the first to the left, figures to the right.
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

/// A part of an experiment that could not be done here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// What.
    pub what: String,
    /// Why, and what would help.
    pub why: String,
}

/// What an experiment returns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// The results.
    pub figures: Vec<Figure>,
    /// Tables to print.
    pub tables: Vec<Table>,
    /// What a reader must know to judge the figures.
    pub notes: Vec<String>,
    /// What could not be done, and why.
    pub skipped: Vec<Skipped>,
}

impl Report {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a figure.
    pub fn figure(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Adds a figure without target and baseline.
    pub fn value(&mut self, name: impl Into<String>, value: f64, unit: impl Into<String>) {
        self.figure(Figure::new(name, value, unit));
    }

    /// Adds a note.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Notes that a part was skipped.
    pub fn skip(&mut self, what: impl Into<String>, why: impl ToString) {
        self.skipped.push(Skipped {
            what: what.into(),
            why: why.to_string(),
        });
    }

    /// Everything as text: figures with target and baseline, tables, notes, what was skipped.
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

/// An interval as tables show it.
pub fn range((low, high): (f64, f64)) -> String {
    format!("{} .. {}", number(low), number(high))
}

/// A number with about four significant digits, plain notation.
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

/// 1234567 as 1 234 567 would break columns for machines; readers still want it for large counts.
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
    fn targets_hold_on_the_right_side() {
        let figure = |value| Figure::new("x", value, "us");
        assert_eq!(figure(5.0).at_most(5.0).met, Some(true));
        assert_eq!(figure(5.1).at_most(5.0).met, Some(false));
        assert_eq!(figure(5.0).at_least(5.0).met, Some(true));
        assert_eq!(figure(4.9).at_least(5.0).met, Some(false));
        assert_eq!(figure(f64::NAN).at_most(5.0).met, Some(false));
        assert_eq!(figure(1.0).at_most(None).met, None);
    }

    #[test]
    fn numbers_read_well() {
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
