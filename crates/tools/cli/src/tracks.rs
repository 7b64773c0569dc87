//! Adds a track per chain to a time line: each execution with its stretches and their causes.

use crate::late;
use onbeat_document::text::duration;
use onbeat_document::titles::titles;
use onbeat_document::Model;
use onbeat_synth::SynthOptions;
use onbeat_trace::Event;
use onbeat_views::export::perfetto::{Slice, Timeline};
use onbeat_why::{Choice, Execution, Explanation, Question, Stretch, Why};
use std::io::{self, Write};

pub struct Tracks {
    why: Why,
    names: Vec<String>,
}

impl Tracks {
    pub fn new(model: &Model, options: SynthOptions) -> Tracks {
        let questions: Vec<Question> = model
            .chains
            .iter()
            .map(|c| late::question(c, Choice::All, None))
            .collect();
        let chains = model.chains.iter().zip(titles(model));
        Tracks {
            why: Why::of_all(options, questions),
            names: chains
                .map(|(c, title)| format!("{title} ({})", c.id))
                .collect(),
        }
    }

    pub fn push(&mut self, event: &Event) {
        self.why.push(event);
    }

    pub fn write<W: Write>(self, timeline: &mut Timeline<W>) -> io::Result<()> {
        let mut next = 0;
        for (name, explanation) in self.names.iter().zip(self.why.finish_all()) {
            next += chain(timeline, (next, name), &explanation)?;
        }
        Ok(())
    }
}

/// Writes a chain's executions and returns the number of tracks that they take. Executions that
/// overlap in time are on different tracks.
fn chain<W: Write>(
    timeline: &mut Timeline<W>,
    (first, name): (u32, &str),
    explanation: &Explanation,
) -> io::Result<u32> {
    let mut ends: Vec<u64> = Vec::new();
    for execution in &explanation.executions {
        let free = ends.iter().position(|&end| end <= execution.start_ns);
        let end = execution.start_ns + execution.latency_ns;
        let at = match free {
            Some(at) => {
                ends[at] = end;
                at
            }
            None => {
                ends.push(end);
                ends.len() - 1
            }
        };
        // Perfetto has room for far more tracks than a chain has executions at one time.
        let track = first.saturating_add(u32::try_from(at).unwrap_or(u32::MAX));
        if free.is_none() {
            timeline.track(track, name)?;
        }
        whole(timeline, track, execution)?;
        for stretch in &execution.stretches {
            part(timeline, track, execution.start_ns, stretch)?;
        }
    }
    Ok(u32::try_from(ends.len()).unwrap_or(u32::MAX))
}

fn whole<W: Write>(
    timeline: &mut Timeline<W>,
    track: u32,
    execution: &Execution,
) -> io::Result<()> {
    let late = if execution.late { ", late" } else { "" };
    timeline.slice(&Slice {
        track,
        category: "chain",
        name: &format!("{}{late}", duration(execution.latency_ns as f64)),
        begin_ns: execution.start_ns,
        ns: execution.latency_ns,
        args: &[("late", execution.late.to_string())],
    })
}

fn part<W: Write>(
    timeline: &mut Timeline<W>,
    track: u32,
    start_ns: u64,
    stretch: &Stretch,
) -> io::Result<()> {
    let mut args = vec![("place", stretch.place.clone())];
    if let Some(by) = &stretch.by {
        args.push(("by", by.text()));
    }
    if let Some(during) = &stretch.during {
        args.push(("meanwhile", during.text()));
    }
    if let Some(reason) = stretch.reason {
        args.push(("reason", reason.text().to_string()));
    }
    timeline.slice(&Slice {
        track,
        category: "stretch",
        name: &stretch.text(),
        begin_ns: start_ns + stretch.begin_ns,
        ns: stretch.ns,
        args: &args,
    })
}
