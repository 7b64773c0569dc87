//! `onbeat why --lost`: shows why items were not executed and requests not answered.

use super::instant::Clock;
use super::subject::{likeness, list};
use crate::advise::wrap;
use onbeat_synth::SynthOptions;
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::traces::warn;
use onbeat_terminal::{CliError, ExitStatus};
use onbeat_trace::Reader;
use onbeat_why::lost::{Losses, Lost, RequestKind, ServiceLosses, TopicLosses};
use serde_json::{json, Value};
use std::cmp::Reverse;
use std::io::{self, BufWriter, Write};

pub struct Asked<'a> {
    pub topic: Option<&'a str>,
    pub late_above_ns: Option<u64>,
    pub json: bool,
}

pub(crate) fn losses(
    reader: &mut Reader,
    options: SynthOptions,
    late_above_ns: Option<u64>,
) -> Losses {
    let mut lost = Lost::new(options, late_above_ns);
    super::feed(reader, "causes", |event| lost.push(event));
    lost.finish()
}

impl Asked<'_> {
    pub fn run(
        &self,
        reader: &mut Reader,
        options: SynthOptions,
        clock: &Clock,
    ) -> Result<ExitStatus, CliError> {
        let mut found = losses(reader, options, self.late_above_ns);
        warn(reader.path(), reader.warnings());
        if let Some(asked) = self.topic {
            let names = found.topics.iter().map(|t| &t.topic);
            let names = names.chain(found.services.iter().map(|s| &s.service));
            let mut names: Vec<String> = names.cloned().collect();
            if !names.iter().any(|n| n == asked) {
                names.sort();
                names.dedup();
                names.sort_by_cached_key(|n| Reverse(likeness(asked, n)));
                return Err(CliError::InFile {
                    path: reader.path().into(),
                    what: format!(
                        "no item of a topic or service '{}' was followed. Name one of these: {}",
                        term::fit(asked, 80),
                        list(&names)
                    ),
                });
            }
            found.topics.retain(|t| t.topic == asked);
            found.services.retain(|s| s.service == asked);
        }
        match self.json {
            true => write_json(&found, clock)?,
            false => write(&found, clock)?,
        }
        Ok(match found.topics.is_empty() && found.services.is_empty() {
            true => ExitStatus::NothingFound,
            false => ExitStatus::Success,
        })
    }
}

fn with_sentences(mut value: Value, sentences: Vec<String>, clock: &Clock) -> Value {
    if let Some(bursts) = value.get_mut("bursts").and_then(Value::as_array_mut) {
        for burst in bursts.iter_mut().filter_map(Value::as_object_mut) {
            let start = burst.get("start_ns").and_then(Value::as_u64);
            let since = clock.since_start(start.unwrap_or_default());
            burst.insert("since_start_ns".into(), since.into());
        }
    }
    if let Value::Object(fields) = &mut value {
        fields.insert("sentences".into(), sentences.into());
    }
    value
}

fn write_json(found: &Losses, clock: &Clock) -> Result<(), CliError> {
    let topics = found.topics.iter();
    let topics = topics.map(|t| with_sentences(json!(t), t.sentences(), clock));
    let service = |s: &ServiceLosses| {
        let mut value = json!(s);
        let kinds = s.kinds.iter().map(|(kind, count, sent)| {
            let since = sent.iter().map(|at| clock.since_start(*at));
            json!({
                "kind": kind,
                "count": count,
                "first_sent_ns": sent,
                "first_since_start_ns": since.collect::<Vec<_>>(),
            })
        });
        if let Value::Object(fields) = &mut value {
            fields.insert("kinds".into(), kinds.collect::<Vec<_>>().into());
        }
        with_sentences(value, s.sentences(), clock)
    };
    let value = json!({
        "topics": topics.collect::<Vec<_>>(),
        "services": found.services.iter().map(service).collect::<Vec<_>>(),
    });
    let mut out = BufWriter::new(io::stdout().lock());
    term::write_json(&mut out, &value)?;
    out.flush().map_err(CliError::Stdout)
}

fn write(found: &Losses, clock: &Clock) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut out = BufWriter::new(io::stdout().lock());
    let topics: Vec<&TopicLosses> = found.topics.iter().filter(|t| t.lost() > 0).collect();
    let is_whole = |s: &&ServiceLosses| s.kinds.iter().all(|k| k.0 == RequestKind::Answered);
    let services: Vec<_> = found.services.iter().filter(|s| !is_whole(s)).collect();
    if topics.is_empty() && services.is_empty() {
        let (items, requests): (u64, u64) = (
            found.topics.iter().map(|t| t.published).sum(),
            found.services.iter().map(|s| s.sent).sum(),
        );
        writeln!(
            out,
            "All {items} items were executed, and all {requests} requests were answered."
        )
        .map_err(CliError::Stdout)?;
    } else {
        let mut table = Table::new()
            .column("count", Align::Right)
            .column("of", Align::Right)
            .names("topic", 2)
            .names("to", 2)
            .names("cause", 4);
        for topic in &topics {
            for cause in &topic.causes {
                let what = match &cause.reason {
                    Some(reason) => format!("{}: {}", cause.kind.text(), reason.text()),
                    None => cause.kind.text().into(),
                };
                table.row(vec![
                    cause.count.to_string(),
                    topic.published.to_string(),
                    topic.topic.clone(),
                    topic.to.clone(),
                    what,
                ]);
            }
        }
        for service in &services {
            for (kind, count, _) in &service.kinds {
                table.row(vec![
                    count.to_string(),
                    service.sent.to_string(),
                    service.service.clone(),
                    service.to.clone().unwrap_or_else(|| "-".into()),
                    kind.text().into(),
                ]);
            }
        }
        table.write(&mut out, &screen)?;
        for topic in &topics {
            writeln!(out).map_err(CliError::Stdout)?;
            for sentence in topic.sentences() {
                wrap(&mut out, &screen, &term::one_line(&sentence)).map_err(CliError::Stdout)?;
            }
            if let Some(burst) = topic.bursts.first().filter(|b| b.count > 1) {
                let text = format!(
                    "The longest burst: {} items lost one after another, the first at {}.",
                    burst.count,
                    clock.text(burst.start_ns)
                );
                wrap(&mut out, &screen, &text).map_err(CliError::Stdout)?;
            }
        }
        for service in &services {
            writeln!(out).map_err(CliError::Stdout)?;
            for sentence in service.sentences() {
                wrap(&mut out, &screen, &term::one_line(&sentence)).map_err(CliError::Stdout)?;
            }
        }
    }
    out.flush().map_err(CliError::Stdout)
}
