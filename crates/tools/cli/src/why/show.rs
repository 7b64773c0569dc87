//! Prints an explanation: the sentence, and a table for each execution.

use super::instant::Clock;
use super::{above, Subject};
use crate::advise::wrap;
use onbeat_document::text::{duration, percent};
use onbeat_terminal::term::{self, fit, Align, Screen, Table};
use onbeat_terminal::CliError;
use onbeat_why::{Choice, Execution, Explanation, Stretch};
use serde_json::{json, Value};
use std::io::{self, BufWriter, Write};

/// Stretches below this share of the latency are shown together.
const SHARE_SHOWN: f64 = 0.005;

/// An unknown share above this one is said.
const UNKNOWN_SAID: f64 = 0.005;

/// An explanation with what is needed to show it.
pub struct Shown<'a> {
    pub subject: &'a Subject<'a>,
    pub clock: &'a Clock,
    /// The user gave the limit.
    pub over: bool,
    pub explanation: &'a Explanation,
}

impl Shown<'_> {
    pub fn write_json(&self) -> Result<(), CliError> {
        let e = self.explanation;
        let subject = match self.subject {
            Subject::Chain { chain, title, .. } => json!({
                "chain": chain.id,
                "title": title,
                "callbacks": chain.callbacks,
                "topics": chain.topics,
            }),
            Subject::Callback(callback) => json!({ "callback": callback.id }),
        };
        let executions = e.executions.iter().map(|execution| {
            let mut value = json!(execution);
            let since = self.clock.since_start(execution.start_ns);
            if let Value::Object(fields) = &mut value {
                fields.insert("since_start_ns".into(), since.into());
            }
            value
        });
        let value = json!({
            "of": subject,
            "limit_ns": e.limit_ns,
            "count": e.count,
            "longest_ns": e.longest_ns,
            "unknown_share": e.unknown_share,
            "sentence": e.comparison.as_ref().map(|c| c.sentence()),
            "comparison": e.comparison,
            "left_out": e.left_out,
            "executions": executions.collect::<Vec<_>>(),
        });
        let mut out = BufWriter::new(io::stdout().lock());
        term::write_json(&mut out, &value)?;
        out.flush().map_err(CliError::Stdout)
    }

    pub fn write(&self, choice: Choice) -> Result<(), CliError> {
        let screen = Screen::of_stdout();
        let mut out = BufWriter::new(io::stdout().lock());
        self.write_head(&mut out, &screen)
            .map_err(CliError::Stdout)?;
        for execution in &self.explanation.executions {
            self.write_execution(&mut out, &screen, execution)?;
        }
        self.write_end(&mut out, choice).map_err(CliError::Stdout)?;
        out.flush().map_err(CliError::Stdout)
    }

    fn write_head(&self, out: &mut dyn Write, screen: &Screen) -> io::Result<()> {
        let e = self.explanation;
        match self.subject {
            Subject::Chain { chain, title, of } => {
                let title = fit(title, screen.width - chain.id.len() - 2);
                writeln!(out, "{}  {}", screen.bold(&chain.id), title)?;
                if *of > 1 {
                    let hint = format!(
                        "the one of {of} chains with the longest latency; choose with --chain"
                    );
                    writeln!(out, "{}", screen.dim(&hint))?;
                }
            }
            Subject::Callback(callback) => {
                writeln!(out, "{}", screen.bold(&fit(&callback.id, screen.width)))?;
            }
        }
        let late = e.comparison.as_ref().map_or(0, |c| c.late);
        let limit = match self.over {
            true => above(e.limit_ns),
            false => format!("{}, the worst", above(e.limit_ns)),
        };
        writeln!(
            out,
            "{} executions, the longest took {}; {late} are late ({limit})",
            e.count,
            duration(e.longest_ns as f64)
        )?;
        if let Some(comparison) = &e.comparison {
            writeln!(out)?;
            wrap(out, screen, &term::one_line(&comparison.sentence()))?;
        }
        if e.unknown_share > UNKNOWN_SAID {
            let share = percent(e.unknown_share);
            let text = format!("{share} of the latency of all executions is unknown.");
            wrap(out, screen, &text)?;
        }
        Ok(())
    }

    fn write_execution(
        &self,
        out: &mut dyn Write,
        screen: &Screen,
        execution: &Execution,
    ) -> Result<(), CliError> {
        let head = format!(
            "{} at {}{}",
            duration(execution.latency_ns as f64),
            self.clock.text(execution.start_ns),
            if execution.late { ", late" } else { "" }
        );
        writeln!(out, "\n{}", screen.bold(&head)).map_err(CliError::Stdout)?;
        let mut table = Table::new()
            .column("from", Align::Right)
            .column("takes", Align::Right)
            .column("share", Align::Right)
            .column("what", Align::Left)
            .names("where", 2)
            .names("by", 3);
        let (mut short, mut short_ns) = (0, 0);
        let all = execution.latency_ns.max(1) as f64;
        let row = |table: &mut Table, begin: u64, ns: u64, rest: [String; 3]| {
            let mut cells = vec![
                duration(begin as f64),
                duration(ns as f64),
                percent(ns as f64 / all),
            ];
            cells.extend(rest);
            table.row(cells);
        };
        let fold = |table: &mut Table, begin: u64, short: &mut u64, short_ns: &mut u64| {
            if *short > 0 {
                let what = match *short {
                    1 => "1 short stretch".to_owned(),
                    n => format!("{n} short stretches"),
                };
                let cells = [what, String::new(), String::new()];
                row(table, begin - *short_ns, *short_ns, cells);
            }
            (*short, *short_ns) = (0, 0);
        };
        for stretch in &execution.stretches {
            if (stretch.ns as f64) < SHARE_SHOWN * all {
                (short, short_ns) = (short + 1, short_ns + stretch.ns);
                continue;
            }
            fold(&mut table, stretch.begin_ns, &mut short, &mut short_ns);
            let what = stretch.kind.text().to_owned();
            let cells = [what, stretch.place.clone(), by(stretch)];
            row(&mut table, stretch.begin_ns, stretch.ns, cells);
        }
        fold(&mut table, execution.latency_ns, &mut short, &mut short_ns);
        table.write(out, screen)
    }

    fn write_end(&self, out: &mut dyn Write, choice: Choice) -> io::Result<()> {
        let e = self.explanation;
        let longest = duration(e.longest_ns as f64);
        if e.executions.is_empty() {
            let text = match (choice, e.nearest_ns) {
                (Choice::Over(limit), _) if e.count > 0 => format!(
                    "No execution took longer than {}. The longest took {longest}.",
                    duration(limit as f64)
                ),
                (Choice::At(at), Some(nearest)) => format!(
                    "No execution ran at {}. The nearest one began at {}.",
                    self.clock.text(at),
                    self.clock.text(nearest)
                ),
                _ => "No execution was followed.".into(),
            };
            writeln!(out, "\n{text}")?;
        }
        if e.left_out > 0 {
            let (n, kept) = (e.left_out, e.executions.len());
            writeln!(
                out,
                "\n{n} more executions are not shown. These are the {kept} longest."
            )?;
        }
        Ok(())
    }
}

/// Returns the culprit of a stretch with what it did meanwhile, or why the stretch is unknown.
fn by(stretch: &Stretch) -> String {
    if let Some(reason) = stretch.reason {
        return reason.text().into();
    }
    let by = stretch.by.as_ref().map(|by| by.text()).unwrap_or_default();
    match &stretch.during {
        Some(during) if !by.is_empty() => format!("{by} ({})", during.text()),
        Some(during) => during.text(),
        None => by,
    }
}
