//! Prints an explanation: the sentence, and a table for each execution.

use super::above;
use super::instant::Clock;
use super::subject::Subject;
use crate::advise::wrap;
use onbeat_document::text::{duration, percent};
use onbeat_terminal::term::{self, fit, Align, Screen, Table};
use onbeat_terminal::CliError;
use onbeat_trace::manifest::Scheduling;
use onbeat_why::page::Page;
use onbeat_why::{lines, Choice, Execution, Explanation};
use serde_json::{json, Value};
use std::io::{self, BufWriter, Write};

const UNKNOWN_SAID: f64 = 0.005;

pub struct Shown<'a> {
    pub subject: &'a Subject<'a>,
    pub clock: &'a Clock,
    pub over: bool,
    pub each: bool,
    pub scheduling: Scheduling,
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
            "scheduling": self.scheduling,
            "sentence": e.comparison.as_ref().map(|c| c.sentence()),
            "comparison": e.comparison,
            "left_out": e.left_out,
            "executions": executions.collect::<Vec<_>>(),
        });
        let mut out = BufWriter::new(io::stdout().lock());
        term::write_json(&mut out, &value)?;
        out.flush().map_err(CliError::Stdout)
    }

    pub fn write(&self, choice: Option<Choice>) -> Result<(), CliError> {
        let screen = Screen::of_stdout();
        let mut out = BufWriter::new(io::stdout().lock());
        self.write_head(&mut out, &screen)
            .map_err(CliError::Stdout)?;
        if let Some(choice) = choice {
            for execution in &self.explanation.executions {
                self.write_execution(&mut out, &screen, execution)?;
            }
            self.write_end(&mut out, choice).map_err(CliError::Stdout)?;
        }
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
                        "the chain with the longest latency of {of} chains; choose another chain with --chain"
                    );
                    writeln!(out, "{}", screen.dim(&hint))?;
                }
            }
            Subject::Callback(callback) => {
                writeln!(out, "{}", screen.bold(&fit(&callback.id, screen.width)))?;
            }
        }
        writeln!(out, "{}", self.counts())?;
        if let Some(comparison) = &e.comparison {
            writeln!(out)?;
            wrap(out, screen, &term::one_line(&comparison.sentence()))?;
        }
        for note in self.notes() {
            wrap(out, screen, &note)?;
        }
        Ok(())
    }

    fn counts(&self) -> String {
        let e = self.explanation;
        let late = e.comparison.as_ref().map_or(0, |c| c.late);
        let share = percent(late as f64 / e.count.max(1) as f64);
        let limit = match self.over {
            true => above(e.limit_ns),
            false => format!("{}, the longest {share}", above(e.limit_ns)),
        };
        let longest = duration(e.longest_ns as f64);
        format!(
            "{} executions, the longest took {longest}; {late} are late ({limit})",
            e.count
        )
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = limits(self.scheduling)
            .map(String::from)
            .into_iter()
            .collect();
        if self.explanation.unknown_share > UNKNOWN_SAID {
            let share = percent(self.explanation.unknown_share);
            notes.push(format!(
                "The cause of {share} of the latency of all executions is unknown."
            ));
        }
        notes
    }

    /// Returns the explanation as an HTML page. The page first shows the executions at `at_ns`
    /// (CLOCK_MONOTONIC).
    pub fn page(&self, at_ns: Option<u64>) -> Result<String, serde_json::Error> {
        let (id, title, callbacks) = match self.subject {
            Subject::Chain { chain, title, .. } => (
                Some(chain.id.as_str()),
                title.as_str(),
                chain.callbacks.as_slice(),
            ),
            Subject::Callback(callback) => (
                None,
                callback.id.as_str(),
                std::slice::from_ref(&callback.id),
            ),
        };
        let mut notes = vec![format!("{}.", self.counts())];
        notes.extend(self.notes());
        let (start_monotonic_ns, start_realtime_ns) = self.clock.start();
        let page = Page {
            title,
            id,
            callbacks,
            notes: &notes,
            start_monotonic_ns,
            start_realtime_ns,
            at_ns,
            explanation: self.explanation,
        };
        page.html(&|at| self.clock.text(at))
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
            .names("", 1);
        let all = execution.latency_ns.max(1) as f64;
        let mut row = |begin: u64, ns: u64, what: String| {
            let share = percent(ns as f64 / all);
            table.row(vec![
                duration(begin as f64),
                duration(ns as f64),
                share,
                what,
            ]);
        };
        for share in execution.stretches.chunk_by(|a, b| a.place == b.place) {
            let (Some(first), Some(last)) = (share.first(), share.last()) else {
                continue;
            };
            let ns = last.begin_ns + last.ns - first.begin_ns;
            row(first.begin_ns, ns, first.place.clone());
            let lines = match self.each {
                true => lines::each(share),
                false => lines::summed(share, execution.latency_ns),
            };
            for line in lines {
                row(line.begin_ns, line.ns, format!("  {}", line.text()));
                for during in &line.during {
                    let what = format!("    which {}", during.text());
                    row(during.begin_ns, during.ns, what);
                }
            }
        }
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
                "\nThe {kept} longest executions are shown. {n} more are not shown."
            )?;
        }
        Ok(())
    }
}

/// Returns a sentence about what a recording cannot show, given the way in which it recorded
/// scheduler events. Returns `None` if nothing is missing.
fn limits(scheduling: Scheduling) -> Option<&'static str> {
    match scheduling {
        Scheduling::Bpf => None,
        Scheduling::Perf => Some(
            "Recorded without BPF: the time after a wake-up in which a thread waited for a CPU counts \
             as sleep or transport, and the thread that had the CPU is unknown.",
        ),
        Scheduling::Clocks => Some(
            "The recorder saw only the CPU clocks of threads, so it estimated when threads had no CPU.",
        ),
        Scheduling::Lttng => Some(
            "Imported from LTTng: the threads that had a CPU have no names, and locks and time that a \
             host took away are unknown.",
        ),
        Scheduling::None => Some(
            "Imported without context switches: nothing shows when threads had a CPU, slept or waited.",
        ),
    }
}
