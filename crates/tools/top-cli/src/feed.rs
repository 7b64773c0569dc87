//! Feeds a live model with events, and decides when its chains and names are read again.

use onbeat_check::Requirements;
use onbeat_document::Model;
use onbeat_live::view::{View, Wanted};
use onbeat_live::{Live, LiveOptions};
use onbeat_synth::SynthOptions;
use onbeat_trace::Event;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The pause after a reading of chains and names, as a multiple of the time that the reading took.
/// The pause is at most [`MOST`].
const SHARE: u32 = 200;

/// The shortest time between two readings of chains and names. It applies if something new was seen
/// since the last reading.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

/// The time after which chains and names are read again even if nothing new was seen. [`SHARE`] may
/// make this time longer.
const OLD: Duration = Duration::from_secs(10);

pub struct Feed {
    live: Live,
    requirements: Option<Requirements>,
    /// The time of the last reading of chains and names, and the shortest time from then until the
    /// next reading.
    refreshed: Option<(Instant, Duration)>,
}

impl Feed {
    pub fn new(options: SynthOptions, requirements: Option<Requirements>) -> Feed {
        Feed {
            live: Live::new(LiveOptions::new(options)),
            requirements,
            refreshed: None,
        }
    }

    pub fn push(&mut self, events: &[Event]) {
        self.live.push(events);
    }

    /// Ends the executions that are still running. The caller must not push events after this call.
    pub fn end(&mut self) {
        self.live.end();
        self.refreshed = None;
    }

    /// Returns the figures that `wanted` asks for, at the latest event. If enough time has passed,
    /// reads chains and names again first.
    pub fn view(&mut self, wanted: Wanted) -> View {
        let least = match self.live.is_stale() {
            true => LEAST,
            false => OLD,
        };
        let is_due = |(at, wait): (Instant, Duration)| at.elapsed() >= wait.max(least);
        if self.refreshed.is_none_or(is_due) {
            self.refresh();
        }
        self.live.view(wanted)
    }

    fn refresh(&mut self) {
        let begin = Instant::now();
        let model = self.live.refresh();
        if let Some(requirements) = &self.requirements {
            self.live.set_deadlines(deadlines(&model, requirements));
        }
        let wait = (begin.elapsed() * SHARE).clamp(LEAST, MOST);
        self.refreshed = Some((Instant::now(), wait));
    }
}

fn deadlines(model: &Model, requirements: &Requirements) -> BTreeMap<String, u64> {
    let mut deadlines: BTreeMap<String, u64> = BTreeMap::new();
    for finding in onbeat_check::check(model, requirements) {
        if let Some(limit) = finding.late_above_ns {
            let least = deadlines.entry(finding.id).or_insert(limit);
            *least = limit.min(*least);
        }
    }
    deadlines
}
