//! Makes models of many different runs by playing the recorded parking demo with changed times.

use crate::frame::files;
use crate::frame::rng::Rng;
use crate::frame::{Context, LabError, Result};
use crate::measure::recorder;
use onbeat_document::schema::Run;
use onbeat_document::Model;
use onbeat_synth::Synth;
use onbeat_synth::SynthOptions;
use onbeat_trace::Event;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

const MODES: [&str; 3] = ["urban", "highway", "parking"];
const WINDOW_NS: u64 = 20_000_000;
const RUN_INTERVAL_NS: u64 = 3_600_000_000_000;
pub fn write(context: &Context, dir: &Path, number: usize) -> Result<Vec<PathBuf>> {
    context.step(format!("making {number} models"), 3600);
    files::make_dir(dir)?;
    let trace = context.source("demos/recorded/parking")?;
    let mut reader = recorder::open(&trace)?;
    let events: Vec<Event> = reader.events().collect();
    let manifest = reader.manifest();
    let mut rng = context.rng("fleet");
    let mut paths = Vec::new();
    for i in 0..number {
        let run = Run {
            id: format!("run-{i:05}"),
            host: manifest.machine.hostname.clone(),
            boot: manifest.machine.boot_id.clone(),
            mode: MODES[i % MODES.len()].into(),
            distribution: manifest.observed.distributions.clone(),
            start: manifest.span.start_realtime_ns + i as u64 * RUN_INTERVAL_NS,
            duration_ns: 0,
            lost: Default::default(),
            events: 0,
        };
        let path = dir.join(format!("{i:05}.json"));
        save(&path, &model(run, &events, &mut rng)).map_err(LabError::file("writing", &path))?;
        paths.push(path);
    }
    Ok(paths)
}

fn save(path: &Path, model: &Model) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    serde_json::to_writer_pretty(&mut out, model)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn model(run: Run, events: &[Event], rng: &mut Rng) -> Model {
    let pace = Pace::draw(events, rng);
    let mut synth = Synth::new(SynthOptions::new(run));
    for event in events {
        let mut event = event.clone();
        event.time_ns = pace.at(event.time_ns);
        synth.push(&event);
    }
    synth.finish()
}

/// Maps recorded times to times that pass faster or slower. The order of times stays the same.
struct Pace {
    begin_ns: u64,
    windows: Vec<(u64, u64)>,
}

impl Pace {
    /// Draws a random factor for each window ([`WINDOW_NS`]) of the recording. The window then
    /// takes 0.75 to 1.25 times its recorded time.
    fn draw(events: &[Event], rng: &mut Rng) -> Pace {
        let begin_ns = events.first().map_or(0, |e| e.time_ns);
        let end_ns = events.last().map_or(0, |e| e.time_ns);
        let mut at = begin_ns;
        let windows = (0..=end_ns.saturating_sub(begin_ns) / WINDOW_NS).map(|_| {
            let window = (at, 768 + rng.below(513));
            at += WINDOW_NS * window.1 / 1024;
            window
        });
        Pace {
            begin_ns,
            windows: windows.collect(),
        }
    }

    fn at(&self, time_ns: u64) -> u64 {
        let Some(since) = time_ns.checked_sub(self.begin_ns) else {
            return time_ns;
        };
        let last = self.windows.len() - 1;
        let window = ((since / WINDOW_NS) as usize).min(last);
        let (begins, pace) = self.windows[window];
        begins + (since - window as u64 * WINDOW_NS) * pace / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_trace::EventKind;

    #[test]
    fn event_times_at_a_changed_pace_never_go_backwards() {
        let event = |time_ns| Event {
            time_ns,
            cpu: 0,
            pid: 1,
            tid: 1,
            kind: EventKind::Wait,
        };
        let events = [event(1_000), event(1_000_000_000)];
        let pace = Pace::draw(&events, &mut Rng::new(1));
        let times: Vec<u64> = (0..2_000).map(|i| pace.at(i * 600_000)).collect();
        assert!(times.windows(2).all(|w| w[0] <= w[1]));
        let recorded = 2_000 * 600_000;
        assert!(pace.at(recorded) > recorded * 3 / 4 && pace.at(recorded) < recorded * 5 / 4);
        assert_ne!(pace.at(recorded), recorded);
    }
}
