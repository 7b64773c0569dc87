//! Prints an explanation: the sentence, and a table for each execution.

use super::above;
use super::instant::Clock;
use super::subject::Subject;
use crate::advise::wrap;
use onbeat_document::text::{duration, percent};
use onbeat_terminal::term::{self, fit, Align, Screen, Table};
use onbeat_terminal::CliError;
use onbeat_trace::manifest::Scheduling;
use onbeat_why::{Choice, Execution, Explanation, Stretch};
use serde_json::{json, Value};
use std::io::{self, BufWriter, Write};

/// Causes below this share of the latency are shown together.
const SHARE_SHOWN: f64 = 0.005;

/// An unknown share above this one is said.
const UNKNOWN_SAID: f64 = 0.005;

/// The explanation of a subject, and the way to show it.
pub struct Shown<'a> {
    pub subject: &'a Subject<'a>,
    pub clock: &'a Clock,
    /// The user gave the limit above which executions are late.
    pub over: bool,
    /// Shows each stretch as a line instead of sums by cause.
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
        let share = percent(late as f64 / e.count.max(1) as f64);
        let limit = match self.over {
            true => above(e.limit_ns),
            false => format!("{}, the longest {share}", above(e.limit_ns)),
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
        if let Some(limits) = limits(self.scheduling) {
            wrap(out, screen, limits)?;
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
                true => each(share),
                false => summed(share, SHARE_SHOWN * all),
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
                "\n{n} more executions are not shown. These are the {kept} longest."
            )?;
        }
        Ok(())
    }
}

/// Returns what a recording with this mechanism cannot tell.
fn limits(scheduling: Scheduling) -> Option<&'static str> {
    match scheduling {
        Scheduling::Bpf => None,
        Scheduling::Perf => Some(
            "Recorded without BPF: the time after a wake-up in which a thread waited for a CPU counts \
             as sleep or transport, and nobody is named who had the CPU.",
        ),
        Scheduling::Clocks => Some(
            "The recorder saw only the CPU clocks of threads, so it estimated when threads had no CPU.",
        ),
    }
}

/// One or more stretches of a callback's share that say the same.
struct Line {
    begin_ns: u64,
    ns: u64,
    parts: usize,
    what: String,
    /// The states of the culprit meanwhile.
    during: Vec<Line>,
}

impl Line {
    fn new(stretch: &Stretch, what: String) -> Line {
        Line {
            begin_ns: stretch.begin_ns,
            ns: stretch.ns,
            parts: 1,
            what,
            during: Vec::new(),
        }
    }

    /// Adds a stretch to the line that says the same, or as a new line.
    fn add(lines: &mut Vec<Line>, stretch: &Stretch, what: String) -> usize {
        match lines.iter().position(|l| l.what == what) {
            Some(at) => {
                lines[at].ns += stretch.ns;
                lines[at].parts += 1;
                at
            }
            None => {
                lines.push(Line::new(stretch, what));
                lines.len() - 1
            }
        }
    }

    fn text(&self) -> String {
        match self.parts {
            1 => self.what.clone(),
            n => format!("{} (in {n} parts)", self.what),
        }
    }
}

/// Returns a line for each stretch.
fn each(share: &[Stretch]) -> Vec<Line> {
    let line = |stretch: &Stretch| {
        let mut line = Line::new(stretch, stretch.text());
        let during = stretch.during.as_ref();
        line.during
            .extend(during.map(|d| Line::new(stretch, d.text())));
        line
    };
    share.iter().map(line).collect()
}

/// Sums up the stretches that say the same, in order of their first one. Sums below `shown` are
/// one line.
fn summed(share: &[Stretch], shown: f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for stretch in share {
        let at = Line::add(&mut lines, stretch, stretch.text());
        if let Some(during) = &stretch.during {
            Line::add(&mut lines[at].during, stretch, during.text());
        }
    }
    let is_large = |line: &Line| line.ns as f64 >= shown;
    for line in &mut lines {
        line.during.retain(is_large);
    }
    let (mut large, small): (Vec<Line>, Vec<Line>) = lines.into_iter().partition(is_large);
    match small.len() {
        0 => {}
        1 => large.extend(small),
        n => large.push(Line {
            begin_ns: small[0].begin_ns,
            ns: small.iter().map(|l| l.ns).sum(),
            parts: 1,
            what: format!("{n} short causes"),
            during: Vec::new(),
        }),
    }
    large
}
