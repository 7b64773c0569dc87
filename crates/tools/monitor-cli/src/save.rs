//! Saves an incident: the trace around it, its model, why its worst execution took long, and a
//! page.

use crate::incident::{Incident, Late};
use crate::store::{Store, FIGURES};
use onbeat_document::schema::Chain;
use onbeat_document::text::{duration, percent};
use onbeat_document::{titles, Model};
use onbeat_synth::{Synth, SynthOptions};
use onbeat_terminal::traces::{copy_part, run_of};
use onbeat_terminal::{date, files, term};
use onbeat_trace::Reader;
use onbeat_why::compare::late_limit;
use onbeat_why::page::Page;
use onbeat_why::{lines, Choice, Execution, Explanation, Question, Target, Why};
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

const WHY: &str = "why.txt";

#[derive(Debug)]
pub struct Order {
    pub incident: Incident,
    /// The time at which the incident began, in ns since 1970. `None` if the offset of
    /// CLOCK_REALTIME is unknown.
    pub begin_realtime_ns: Option<u64>,
    /// The time span whose events are saved, in ns of CLOCK_MONOTONIC.
    pub span: RangeInclusive<u64>,
    pub recording: PathBuf,
}

#[derive(Debug)]
pub struct Saved {
    pub incident: Incident,
    pub name: OsString,
    /// The first cause of the incident, as a sentence. Names in it come from the recorded system.
    pub sentence: Option<String>,
    /// The number of older incidents that were removed to make room for this one.
    pub removed: u64,
}

#[derive(Serialize)]
struct Figures<'a> {
    #[serde(flatten)]
    incident: &'a Incident,
    begin_realtime_ns: u64,
    /// The times of the first and the last event of the saved trace, in ns of CLOCK_MONOTONIC.
    trace_ns: (u64, u64),
    sentence: Option<&'a str>,
}

/// Facts about a saved incident that do not change any more. When the incident has ended, its file
/// `incident.json` is written again from these facts and the final figures.
#[derive(Debug, Clone)]
pub struct Known {
    begin_realtime_ns: u64,
    trace_ns: (u64, u64),
    sentence: Option<String>,
}

impl Known {
    /// Returns the content of the file `incident.json`, with the figures that `incident` has now.
    pub fn figures(&self, incident: &Incident) -> Vec<u8> {
        let figures = Figures {
            incident,
            begin_realtime_ns: self.begin_realtime_ns,
            trace_ns: self.trace_ns,
            sentence: self.sentence.as_deref(),
        };
        let mut bytes = serde_json::to_vec_pretty(&figures).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}

/// Saves an incident, and removes other incidents if the directory is full.
///
/// # Errors
///
/// Returns the reason why the incident was not saved, in one line.
pub fn save(store: &Store, order: &Order) -> Result<(Saved, Known), String> {
    let mut reader = Reader::open(&order.recording).map_err(|e| e.to_string())?;
    let start = &reader.manifest().span;
    let since = order
        .incident
        .begin_ns
        .saturating_sub(start.start_monotonic_ns);
    let begin_realtime_ns = order
        .begin_realtime_ns
        .unwrap_or(start.start_realtime_ns.saturating_add(since));
    let stamp = date::stamp(begin_realtime_ns);
    let (name, known) = store.add(&stamp, |part| {
        let trace_ns = copy_part(&mut reader, &part.join("trace"), &order.span)?;
        let sentence = explain(part, &order.incident)?;
        let known = Known {
            begin_realtime_ns,
            trace_ns,
            sentence,
        };
        let figures = known.figures(&order.incident);
        fs::write(part.join(FIGURES), figures).map_err(|e| e.to_string())?;
        Ok(known)
    })?;
    let removed = store.make_room(&name).map_err(|e| {
        format!(
            "the incident's files are complete, but onbeat could not remove older incidents: {e}"
        )
    })?;
    let saved = Saved {
        incident: order.incident.clone(),
        name,
        sentence: known.sentence.clone(),
        removed,
    };
    Ok((saved, known))
}

/// Writes the model, the explanation of the worst execution and the HTML page of an incident to the
/// directory `part`. Returns the first cause as a sentence.
fn explain(part: &Path, incident: &Incident) -> Result<Option<String>, String> {
    let mut reader = Reader::open(part.join("trace")).map_err(|e| e.to_string())?;
    let mut options = SynthOptions::new(run_of(&reader, None));
    // The events before the trace begins are missing in it.
    options.shortened = true;
    let mut synth = Synth::new(options.clone());
    for event in reader.events() {
        synth.push(&event);
    }
    let model = synth.clone().finish();
    options.ids = synth.into_ids();
    files::write_model(&part.join("model.json"), &model).map_err(|e| e.to_string())?;
    let Some(subject) = Subject::find(&model, incident) else {
        let text = "The trace of this incident contains neither the chain nor the callback that violated a requirement.\n";
        fs::write(part.join(WHY), text).map_err(|e| e.to_string())?;
        return Ok(None);
    };
    let question = subject.question(incident.worst.as_ref());
    let mut why = Why::of_all(options, vec![question]);
    for event in reader.events() {
        why.push(&event);
    }
    let explanation = why.finish_all().into_iter().next().unwrap_or_default();
    let span = reader.manifest().span.clone();
    let clock = |at: u64| at.saturating_sub(span.start_monotonic_ns);
    let worst = worst(&explanation, incident.worst.as_ref());
    let sentence = sentence(&explanation, worst);
    let text = why_text(&subject, &explanation, worst, sentence.as_deref(), &clock);
    fs::write(part.join(WHY), text).map_err(|e| e.to_string())?;
    let notes = [counts(&explanation)];
    let page = Page {
        title: &subject.title,
        id: subject.chain.map(|chain| chain.id.as_str()),
        callbacks: &subject.callbacks,
        notes: &notes,
        start_monotonic_ns: span.start_monotonic_ns,
        start_realtime_ns: span.start_realtime_ns,
        at_ns: worst.map(|execution| execution.start_ns),
        explanation: &explanation,
    };
    let html = page.html(&|at| duration(clock(at) as f64));
    let html = html.map_err(|e| e.to_string())?;
    fs::write(part.join("why.html"), html).map_err(|e| e.to_string())?;
    Ok(sentence)
}

struct Subject<'a> {
    title: String,
    chain: Option<&'a Chain>,
    callbacks: Vec<String>,
    limit_ns: u64,
    longest_ns: u64,
}

impl Subject<'_> {
    /// Finds in the model the chain of the incident's worst execution. If there is none, finds the
    /// chain or callback of the first violation.
    fn find<'a>(model: &'a Model, incident: &Incident) -> Option<Subject<'a>> {
        let worst = incident.worst.iter().map(|late| &late.chain);
        let ids = worst.chain(incident.violations.iter().map(|v| &v.id));
        ids.filter(|id| !id.is_empty())
            .find_map(|id| Subject::named(model, id))
    }

    fn named<'a>(model: &'a Model, id: &str) -> Option<Subject<'a>> {
        if let Some(at) = model.chains.iter().position(|c| c.id == id) {
            let chain = &model.chains[at];
            let latency = &chain.figures.latency_ns;
            return Some(Subject {
                title: titles::titles(model).swap_remove(at),
                chain: Some(chain),
                callbacks: chain.callbacks.clone(),
                limit_ns: late_limit(latency),
                longest_ns: latency.max(),
            });
        }
        let callback = model.callbacks.iter().find(|c| c.id == id)?;
        let response = &callback.figures.response_ns;
        Some(Subject {
            title: callback.id.clone(),
            chain: None,
            callbacks: vec![callback.id.clone()],
            limit_ns: late_limit(response),
            longest_ns: response.max(),
        })
    }

    fn question(&self, worst: Option<&Late>) -> Question {
        let target = match self.chain {
            Some(chain) => Target::chain(chain, &[]),
            None => Target::Callback(self.title.clone()),
        };
        Question {
            target,
            choice: Choice::All,
            limit_ns: worst.map_or(self.limit_ns, |late| late.deadline_ns),
            longest_ns: self.longest_ns,
        }
    }
}

/// Returns the explanation of the worst execution that the monitor saw (`known`). If `known` is
/// `None` or was not explained, returns the explanation of the longest execution.
fn worst<'e>(explanation: &'e Explanation, known: Option<&Late>) -> Option<&'e Execution> {
    let executions = &explanation.executions;
    let is_it = |e: &&Execution| {
        known.is_some_and(|late| {
            (e.start_ns + e.latency_ns, e.latency_ns) == (late.end_ns, late.latency_ns)
        })
    };
    let longest = || executions.iter().max_by_key(|e| e.latency_ns);
    executions.iter().find(is_it).or_else(longest)
}

/// Returns a sentence about the cause that the late executions have in common. If they have no
/// common cause, returns a sentence about the cause that took most of the time of `worst`.
fn sentence(explanation: &Explanation, worst: Option<&Execution>) -> Option<String> {
    if let Some(comparison) = &explanation.comparison {
        return Some(comparison.sentence());
    }
    let worst = worst?;
    let longest = worst.stretches.iter().max_by_key(|stretch| stretch.ns)?;
    Some(format!(
        "{} of {}: {} {}.",
        duration(longest.ns as f64),
        duration(worst.latency_ns as f64),
        longest.place,
        longest.text()
    ))
}

fn counts(explanation: &Explanation) -> String {
    let late = explanation.comparison.as_ref().map_or(0, |c| c.late);
    format!(
        "{} executions, the longest took {}; {late} are late (above {}).",
        explanation.count,
        duration(explanation.longest_ns as f64),
        duration(explanation.limit_ns as f64)
    )
}

fn why_text(
    subject: &Subject<'_>,
    explanation: &Explanation,
    worst: Option<&Execution>,
    sentence: Option<&str>,
    clock: &dyn Fn(u64) -> u64,
) -> String {
    let mut out = format!(
        "{}\n{}\n",
        term::one_line(&subject.title),
        counts(explanation)
    );
    if let Some(sentence) = sentence {
        let _ = writeln!(out, "\n{}", term::one_line(sentence));
    }
    let Some(worst) = worst else {
        return out;
    };
    let _ = writeln!(
        out,
        "\n{} at {:.3} s of the trace",
        duration(worst.latency_ns as f64),
        clock(worst.start_ns) as f64 / 1e9
    );
    let all = worst.latency_ns.max(1) as f64;
    let mut line = |ns: u64, indent: usize, what: &str| {
        let (time, share) = (duration(ns as f64), percent(ns as f64 / all));
        let _ = writeln!(
            out,
            "{time:>9} {share:>6}  {:indent$}{}",
            "",
            term::one_line(what)
        );
    };
    for share in worst.stretches.chunk_by(|a, b| a.place == b.place) {
        line(share.iter().map(|s| s.ns).sum(), 0, &share[0].place);
        for part in lines::summed(share, worst.latency_ns) {
            line(part.ns, 2, &part.text());
            for during in &part.during {
                line(during.ns, 4, &format!("which {}", during.text()));
            }
        }
    }
    out
}
