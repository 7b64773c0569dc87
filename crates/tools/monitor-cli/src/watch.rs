//! Models continuously, and judges the requirements on a sliding window.

use crate::incident::{deadlines, Change, Incidents};
use onbeat_check::{Finding, Requirements, Selection, Verdict};
use onbeat_document::Model;
use onbeat_live::view::{View, Wanted};
use onbeat_live::window::Span;
use onbeat_live::{Live, LiveOptions};
use onbeat_synth::SynthOptions;
use onbeat_trace::Event;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const SECOND_NS: u64 = 1_000_000_000;

/// The time between two readings of the system's structure while something new appears, in ns of
/// recorded time. If nothing new appears, the time is [`OLD_NS`].
const NEW_NS: u64 = SECOND_NS;
const OLD_NS: u64 = 60 * SECOND_NS;

/// The pause after reading the structure of a running system, as a multiple of the time that the
/// reading took. The pause is at most [`REFRESH_MAX`].
const SHARE: u32 = 200;
const REFRESH_MAX: Duration = Duration::from_secs(60);

pub struct Watch {
    live: Live,
    requirements: Requirements,
    span: Span,
    /// The model from the latest reading of the system's structure. The monitor judges requirements
    /// on the figures of the window (`--window`), not on this model's own figures.
    model: Option<Model>,
    /// The chains in `model` to which the requirements apply.
    selected: Selection,
    wanted: BTreeSet<String>,
    refreshed_ns: Option<u64>,
    /// The instant until which the structure of a running system is not read again.
    not_before: Option<Instant>,
    is_paced: bool,
    pub findings: Vec<Finding>,
    pub incidents: Incidents,
    pub late: u64,
}

pub struct WatchOptions {
    pub synth: SynthOptions,
    pub requirements: Requirements,
    pub span: Span,
    /// The time in ns after the begin of an incident within which another chain, callback, topic or
    /// CPU that violates a requirement joins the incident.
    pub join_ns: u64,
    /// Whether the watch limits the share of time that it spends on reading the structure of a
    /// running system.
    pub is_paced: bool,
}

impl Watch {
    pub fn new(options: WatchOptions) -> Watch {
        let window_ns = match options.span {
            Span::TenSeconds => 10 * SECOND_NS,
            Span::Minute => 60 * SECOND_NS,
            Span::Start => u64::MAX,
        };
        Watch {
            // The causes of an incident are found in its saved trace.
            live: Live::new(LiveOptions {
                follows_machine: false,
                ..LiveOptions::new(options.synth)
            }),
            requirements: without_mode(options.requirements),
            span: options.span,
            model: None,
            selected: Selection::default(),
            wanted: BTreeSet::new(),
            refreshed_ns: None,
            not_before: None,
            is_paced: options.is_paced,
            findings: Vec::new(),
            incidents: Incidents::new(options.join_ns, window_ns),
            late: 0,
        }
    }

    /// Returns the number of forgotten nodes, and the number of callbacks that were forgotten while
    /// their nodes stayed.
    pub fn forgotten(&self) -> [u64; 2] {
        [self.live.forgotten_nodes(), self.live.forgotten_callbacks()]
    }

    /// Returns the ids of the processes that have created too many names and callbacks, if this
    /// happened since the last call. The watch ignores later events of these processes.
    pub fn left_out_processes(&mut self) -> Vec<u32> {
        self.live.drain_left_out_processes()
    }

    pub fn push(&mut self, events: &[Event]) {
        self.live.push(events);
    }

    /// Ends the executions that are still running in the model. The caller must not add events
    /// afterwards.
    pub fn end(&mut self) {
        self.live.end();
        self.refreshed_ns = None;
        self.not_before = None;
    }

    /// Returns the time of the latest event, in ns of CLOCK_MONOTONIC.
    pub fn now_ns(&self) -> u64 {
        self.live.now_ns()
    }

    pub fn start_ns(&self) -> u64 {
        self.live.start_ns()
    }

    pub fn realtime_ns(&self, time_ns: u64) -> Option<u64> {
        self.live.realtime_ns(time_ns)
    }

    pub fn span(&self) -> Span {
        self.span
    }

    /// Replaces the requirements. The model continues without a gap.
    pub fn set_requirements(&mut self, requirements: Requirements) {
        self.requirements = without_mode(requirements);
        self.refreshed_ns = None;
        self.not_before = None;
    }

    pub fn judge(&mut self) -> Vec<Change> {
        let now = self.now_ns();
        let wait = match self.live.is_stale() {
            true => NEW_NS,
            false => OLD_NS,
        };
        let is_due = self
            .refreshed_ns
            .is_none_or(|at| now.saturating_sub(at) >= wait);
        let may = self.not_before.is_none_or(|at| Instant::now() >= at);
        if is_due && may {
            self.refresh();
        }
        let Some(model) = &mut self.model else {
            return Vec::new();
        };
        let wanted = &self.wanted;
        let all = !self.requirements.cpus.is_empty();
        let is_wanted = |id: &str| all || wanted.contains(id);
        self.live.set_figures(model, self.span, is_wanted);
        self.findings = onbeat_check::check_selected(model, &self.requirements, &self.selected);
        let late = self.live.drain_late();
        self.late += late.len() as u64;
        self.incidents.step(now, &self.findings, late)
    }

    fn refresh(&mut self) {
        let begin = Instant::now();
        let mut model = self.live.refresh();
        model.evidence = serde_json::Value::Null;
        let selected = Selection::of(&model, &self.requirements);
        let findings = onbeat_check::check_selected(&model, &self.requirements, &selected);
        self.live.set_deadlines(deadlines(&findings));
        self.wanted.clear();
        for finding in findings {
            for (topic, reader) in finding.losses_at {
                self.wanted.extend([topic, reader]);
            }
            self.wanted.insert(finding.id);
        }
        self.model = Some(model);
        self.selected = selected;
        self.refreshed_ns = Some(self.now_ns());
        if self.is_paced {
            let wait = (begin.elapsed() * SHARE).min(REFRESH_MAX);
            self.not_before = Some(Instant::now() + wait);
        }
    }

    /// Returns the largest latency in ns of each chain since the last call, for the chains that a
    /// requirement names.
    pub fn drain_longest(&mut self) -> BTreeMap<String, u64> {
        let mut longest = self.live.drain_longest();
        longest.retain(|chain, _| self.wanted.contains(chain));
        longest
    }

    pub fn view(&mut self) -> View {
        self.live.view(Wanted::ALL)
    }

    /// Returns the numbers of requirements that hold, that are not known, and that are violated.
    pub fn verdicts(&self) -> [usize; 3] {
        [Verdict::Passed, Verdict::NotKnown, Verdict::Violated].map(|verdict| {
            let is_it = |finding: &&Finding| finding.verdict == verdict;
            self.findings.iter().filter(is_it).count()
        })
    }
}

/// Removes the modes from the requirements, because a running system has no modes. The requirements
/// of every mode then apply.
fn without_mode(requirements: Requirements) -> Requirements {
    Requirements {
        mode: None,
        ..requirements
    }
}
