//! Splits a run whose mode switched into one run per mode.

use super::Synth;
use crate::mode_rules::ModeId;
use onbeat_document::schema::Run;
use std::collections::BTreeMap;

/// The runs of a recording: one run, or one per active mode if the mode switched.
pub(super) struct Parts {
    pub(super) runs: Vec<Run>,
    of_mode: Vec<usize>,
}

impl Parts {
    pub(super) fn of(&self, mode: ModeId) -> &Run {
        &self.runs[self.of_mode[mode.index()]]
    }

    pub(super) fn modes(&self) -> impl Iterator<Item = (Vec<ModeId>, &Run)> {
        self.runs.iter().enumerate().map(|(i, run)| {
            let modes = self.of_mode.iter().enumerate().filter(move |m| *m.1 == i);
            (modes.map(|m| ModeId::new(m.0)).collect(), run)
        })
    }

    pub(super) fn of_run(synth: &Synth, whole: Run) -> Self {
        let recording = &synth.recording;
        let first = recording.first.unwrap_or(recording.now);
        let stretches = synth.flow.graph.switches.stretches(first, recording.now);
        let names = &synth.modes.names;
        // Start and length of each mode, sorted by name. This order does not depend on the order of
        // the rules.
        let mut seen: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for &(mode, start, end) in &stretches {
            let of = seen.entry(&names[mode.index()]).or_insert((start, 0));
            of.1 += end - start;
        }
        if seen.len() > 1 {
            seen.retain(|_, of| of.1 > 0);
        }
        let last = stretches.last().map_or("", |s| names[s.0.index()].as_str());
        let of_name = |name: &String| seen.keys().position(|seen| seen == name);
        // Events of a mode without any time go to the first mode that has some.
        let of_mode = names.iter().map(|n| of_name(n).unwrap_or_default());
        let mut parts = Parts {
            of_mode: of_mode.collect(),
            runs: Vec::new(),
        };
        if seen.len() == 1 {
            let mode = seen
                .keys()
                .next()
                .map_or_else(String::new, |m| m.to_string());
            parts.runs.push(Run { mode, ..whole });
            return parts;
        }
        for (i, (mode, &(start, length))) in seen.iter().enumerate() {
            parts.runs.push(Run {
                id: format!("{}#{}", whole.id, i + 1),
                mode: mode.to_string(),
                start: whole.start.saturating_add(start - first),
                duration_ns: length,
                events: 0,
                lost: BTreeMap::new(),
                ..whole.clone()
            });
        }
        for (mode, events) in recording.events.iter() {
            parts.runs[parts.of_mode[mode.index()]].events += events;
        }
        for (mode, lost) in recording.lost.iter() {
            let of = &mut parts.runs[parts.of_mode[mode.index()]].lost;
            for (kind, n) in lost {
                *of.entry(kind.clone()).or_default() += n;
            }
        }
        parts.add_rest(&whole, last);
        parts
    }

    /// Adds to the runs the data that only the manifest reports. The time after the last event goes
    /// to the run of the mode `last`. Losses at an unknown time go to the first run.
    fn add_rest(&mut self, whole: &Run, last: &str) {
        let length: u64 = self.runs.iter().map(|r| r.duration_ns).sum();
        if let Some(run) = self.runs.iter_mut().find(|r| r.mode == last) {
            run.duration_ns += whole.duration_ns.saturating_sub(length);
        }
        for (kind, &n) in &whole.lost {
            let counted: u64 = self.runs.iter().filter_map(|r| r.lost.get(kind)).sum();
            if n > counted {
                *self.runs[0].lost.entry(kind.clone()).or_default() += n - counted;
            }
        }
    }
}
