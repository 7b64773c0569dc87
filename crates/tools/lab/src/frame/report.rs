//! The report of an experiment, and how it is printed and stored.

pub use super::digits::{number, range};
use super::verdict::{judge, Evidence, Judgement, Relation};
use super::Estimate;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

pub const SCHEMA: &str = "onbeat-lab/2";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The figure's name, unique in the experiment. Words are joined by `_`, and the parts of the
    /// name by `.`.
    pub name: String,
    pub value: f64,
    /// The figure's unit: `us`, `%`, `events/s`, `MB`, or `1` for a plain number.
    pub unit: String,
    pub target: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<Relation>,
    #[serde(flatten)]
    pub judgement: Option<Judgement>,
    /// The value of the same figure in a paper or of another program, in the same unit.
    pub baseline: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    #[serde(flatten)]
    pub evidence: Evidence,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: impl Into<String>) -> Self {
        Figure {
            name: name.into(),
            value,
            unit: unit.into(),
            target: None,
            relation: None,
            judgement: None,
            baseline: None,
            baseline_of: None,
            samples: None,
            evidence: Evidence::default(),
        }
    }

    pub fn estimated(name: impl Into<String>, of: Estimate, unit: impl Into<String>) -> Self {
        Figure {
            evidence: Evidence::of(of),
            ..Figure::new(name, of.value, unit)
        }
    }

    /// Creates a figure that was counted or computed. Such a figure does not depend on the
    /// machine's speed, so a single value decides on the verdict.
    pub fn exact(name: impl Into<String>, value: f64, unit: impl Into<String>) -> Self {
        let mut figure = Figure::new(name, value, unit);
        figure.evidence.exact = true;
        figure
    }

    pub fn at_most(self, limit: impl Into<Option<f64>>) -> Self {
        self.compared(Relation::AtMost, limit.into())
    }

    pub fn at_least(self, limit: impl Into<Option<f64>>) -> Self {
        self.compared(Relation::AtLeast, limit.into())
    }

    fn compared(mut self, relation: Relation, limit: Option<f64>) -> Self {
        self.target = limit;
        self.relation = limit.map(|_| relation);
        self
    }

    /// Sets the floor: the value of the figure that the machine alone causes, measured without the
    /// program. If the floor misses the target, the verdict is never *missed*.
    pub fn floor(mut self, floor: impl Into<Option<f64>>) -> Self {
        self.evidence.floor = floor.into();
        self
    }

    pub fn sign(&self) -> &'static str {
        self.relation.map_or("", Relation::sign)
    }

    pub fn baseline(mut self, value: impl Into<Option<f64>>, whose: impl Into<String>) -> Self {
        if let Some(value) = value.into() {
            self.baseline = Some(value);
            self.baseline_of = Some(whose.into());
        }
        self
    }

    pub fn samples(mut self, n: u64) -> Self {
        self.samples = Some(n);
        self
    }

    fn judge(&mut self) {
        if let (Some(relation), Some(target)) = (self.relation, self.target) {
            self.judgement = Some(judge(self.value, &self.evidence, relation, target));
        }
    }

    fn verdict(&self) -> &'static str {
        self.judgement.as_ref().map_or("", |j| j.verdict.name())
    }

    fn with_disturbed(&self) -> Option<Judgement> {
        let all = self.evidence.with_disturbed?;
        let evidence = Evidence {
            interval: Some(all.interval),
            rounds: Some(all.rounds),
            with_disturbed: None,
            ..self.evidence.clone()
        };
        Some(judge(all.value, &evidence, self.relation?, self.target?))
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Table {
    pub title: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates an empty table. `head` contains the heads of the columns, separated by `|`.
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

    /// Stores in the figures of a run why this run was disturbed. The run's figures begin at index
    /// `from`. Does not change exact figures and figures that come from rounds.
    pub fn disturbed_by(&mut self, from: usize, why: Option<String>) {
        for figure in self.figures.iter_mut().skip(from) {
            let evidence = &mut figure.evidence;
            if !evidence.exact && evidence.rounds.is_none() && evidence.disturbed.is_none() {
                evidence.disturbed.clone_from(&why);
            }
        }
    }

    pub fn judge(&mut self) {
        self.figures.iter_mut().for_each(Figure::judge);
    }

    fn verdicts(&self) -> String {
        let mut out = String::new();
        for figure in &self.figures {
            let Some(judgement) = &figure.judgement else {
                continue;
            };
            let _ = write!(
                out,
                "{}: {}: {}",
                judgement.verdict.name(),
                figure.name,
                judgement.decided_by
            );
            if let Some(tells) = judgement.tells {
                let _ = write!(
                    out,
                    "; smallest detectable difference {} {}",
                    number(tells),
                    figure.unit
                );
            }
            if let Some(all) = figure.with_disturbed() {
                let _ = write!(
                    out,
                    "; verdict if the disturbed rounds also count: {}",
                    all.verdict.name()
                );
            }
            out.push('\n');
        }
        out
    }

    pub fn text(&self) -> String {
        let mut figures = Table::new(
            "Figures",
            "figure | value | unit | 95 % interval | target | verdict | baseline | source of the baseline",
        );
        for f in &self.figures {
            let sign = f.sign();
            figures.row([
                f.name.clone(),
                number(f.value),
                f.unit.clone(),
                f.evidence.interval.map(range).unwrap_or_default(),
                f.target
                    .map(|t| format!("{sign} {}", number(t)))
                    .unwrap_or_default(),
                f.verdict().into(),
                f.baseline.map(number).unwrap_or_default(),
                f.baseline_of.clone().unwrap_or_default(),
            ]);
        }
        let mut out = String::new();
        for table in self.tables.iter().chain([&figures]) {
            out.push_str(&table.text());
            out.push('\n');
        }
        let verdicts = self.verdicts();
        if !verdicts.is_empty() {
            let _ = writeln!(out, "Verdicts and the reason for each\n{verdicts}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_run_decides_no_figure_that_comes_from_it_alone() {
        let mut report = Report::new();
        let blocks = Estimate::within(1.0, (0.9, 1.1));
        let rounds = Estimate {
            rounds: Some(5),
            ..blocks
        };
        report.figure(Figure::estimated("before", blocks, "us").at_most(2.0));
        report.figure(Figure::estimated("blocks", blocks, "us").at_most(2.0));
        report.figure(Figure::estimated("rounds", rounds, "us").at_most(2.0));
        report.figure(Figure::exact("lost", 0.0, "1").at_most(0.0));
        report.value("plain", 1.0, "1");
        report.disturbed_by(1, Some("the host took 9 %".into()));
        report.judge();
        let verdicts = report.figures.iter().map(Figure::verdict);
        let verdicts: Vec<&str> = verdicts.collect();
        assert_eq!(verdicts, ["met", "cannot be told here", "met", "met", ""]);
        let text = report.text();
        assert!(
            text.contains("single run, and this run was disturbed: the host took 9 %"),
            "{text}"
        );
    }
}
