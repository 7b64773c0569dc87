//! Models continuously, and judges the requirements on a sliding window.

use crate::incident::{deadlines, Change, Incidents};
use onbeat_check::{Finding, Requirements, Verdict};
use onbeat_document::Model;
use onbeat_live::view::{View, Wanted};
use onbeat_live::window::Span;
use onbeat_live::{Live, LiveOptions};
use onbeat_synth::SynthOptions;
use onbeat_trace::Event;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const SECOND_NS: u64 = 1_000_000_000;

/// The recorded time between two readings of the structure if something is new. Otherwise it is
/// [`OLD_NS`].
const NEW_NS: u64 = SECOND_NS;
const OLD_NS: u64 = 60 * SECOND_NS;

/// After reading the structure of a running system, the watch waits this many times as long as the
/// reading took, but at most [`REFRESH_MAX`].
const SHARE: u32 = 200;
const REFRESH_MAX: Duration = Duration::from_secs(60);

pub struct Watch {
    live: Live,
    requirements: Requirements,
    span: Span,
    /// The structure of the system. Its figures are replaced by those of the window.
    model: Option<Model>,
    wanted: BTreeSet<String>,
    refreshed_ns: Option<u64>,
    /// A running system is not read before this time.
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
    /// A subject that violates a requirement joins an incident that began at most this long before, in ns.
    pub join_ns: u64,
    /// Limits the share of time that reading the structure takes.
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
            wanted: BTreeSet::new(),
            refreshed_ns: None,
            not_before: None,
            is_paced: options.is_paced,
            findings: Vec::new(),
            incidents: Incidents::new(options.join_ns, window_ns),
            late: 0,
        }
    }

    /// Returns the number of all forgotten nodes, and of the callbacks that were forgotten without their nodes.
    pub fn forgotten(&self) -> [u64; 2] {
        [self.live.forgotten_nodes(), self.live.forgotten_callbacks()]
    }

    /// Returns the ids of the processes that have created too much since the last call.
    pub fn left_out_processes(&mut self) -> Vec<u32> {
        self.live.drain_left_out_processes()
    }

    pub fn push(&mut self, events: &[Event]) {
        self.live.push(events);
    }

    /// Ends all callbacks that still run. No event may follow.
    pub fn end(&mut self) {
        self.live.end();
        self.refreshed_ns = None;
        self.not_before = None;
    }

    /// Returns the time of the latest event, CLOCK_MONOTONIC.
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

    /// Judges other requirements from now on. The model goes on without a gap.
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
        self.findings = onbeat_check::check(model, &self.requirements);
        let late = self.live.drain_late();
        self.late += late.len() as u64;
        self.incidents.step(now, &self.findings, late)
    }

    fn refresh(&mut self) {
        let begin = Instant::now();
        let mut model = self.live.refresh();
        model.evidence = serde_json::Value::Null;
        let findings = onbeat_check::check(&model, &self.requirements);
        self.live.set_deadlines(deadlines(&findings));
        self.wanted.clear();
        for finding in findings {
            for (topic, reader) in finding.losses_at {
                self.wanted.extend([topic, reader]);
            }
            self.wanted.insert(finding.id);
        }
        self.model = Some(model);
        self.refreshed_ns = Some(self.now_ns());
        if self.is_paced {
            let wait = (begin.elapsed() * SHARE).min(REFRESH_MAX);
            self.not_before = Some(Instant::now() + wait);
        }
    }

    pub fn view(&mut self) -> View {
        self.live.view(Wanted::ALL)
    }

    /// Returns the number of requirements that passed, that are not known, and that are violated.
    pub fn verdicts(&self) -> [usize; 3] {
        [Verdict::Passed, Verdict::NotKnown, Verdict::Violated].map(|verdict| {
            let is_it = |finding: &&Finding| finding.verdict == verdict;
            self.findings.iter().filter(is_it).count()
        })
    }
}

/// A running system has no modes, so the requirements of every mode apply to it.
fn without_mode(requirements: Requirements) -> Requirements {
    Requirements {
        mode: None,
        ..requirements
    }
}
