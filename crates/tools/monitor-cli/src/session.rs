//! A session of the monitor: takes events, judges, and acts on what has changed.

use crate::counters::Counters;
use crate::diagnosis::{Diagnosis, Evidence};
use crate::exposition::{self, Style};
use crate::http::{Latest, Texts};
use crate::incident::{Change, Incident};
use crate::journal::{Journal, Level};
use crate::memory;
use crate::metrics::{families, Family, Figures};
use crate::otlp::Otlp;
use crate::program::{Programs, Told};
use crate::save::{Order, Saved};
use crate::saver::{Done, Refusal, Saver};
use crate::watch::Watch;
use onbeat_check::{Finding, Requirements, Verdict};
use onbeat_document::text::duration;
use onbeat_live::view::View;
use onbeat_trace::Event;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

const SECOND_NS: u64 = 1_000_000_000;

const JUDGE_NS: u64 = SECOND_NS / 2;

const TEXT_NS: u64 = 10 * SECOND_NS;

/// The largest age of the times and rates in the served metrics while no incident changes, in ns.
/// Computing them over their windows is most of the monitor's work, so it happens seldom. Verdicts
/// and counters are always current.
const VIEW_NS: u64 = 5 * SECOND_NS;

/// The time in ns from the monitor's start until the monitor reports requirements whose names the
/// system does not have.
const ABSENT_NS: u64 = 30 * SECOND_NS;

/// The time between two returns of freed memory to the system, in ns.
const RETURN_NS: u64 = 60 * SECOND_NS;

const HOUR_NS: u64 = 3600 * SECOND_NS;

const REPORTED_MAX: usize = 10_000;

pub struct Outputs {
    pub journal: Journal,
    pub saver: Saver,
    pub programs: Programs,
    pub latest: Option<Latest>,
    pub textfile: Option<PathBuf>,
    pub otlp: Option<Otlp>,
    pub diagnosis: Option<Diagnosis>,
    pub incidents: Option<PathBuf>,
}

pub struct Saving {
    /// The recording from which the traces of incidents are copied. If it is `None`, no incident is
    /// saved.
    pub recording: Option<PathBuf>,
    pub before_ns: u64,
    pub after_ns: u64,
    /// The longest time from an event until the files of the recording contain it, in ns.
    pub delay_ns: u64,
}

struct Due {
    /// The time at which the incident will be saved, in ns of CLOCK_MONOTONIC.
    at_ns: u64,
    /// The time of the incident, in ns of CLOCK_MONOTONIC. The events before and after this time
    /// are saved.
    around_ns: u64,
    /// The begin of the incident in ns since 1970. It was read from CLOCK_REALTIME when the
    /// incident began.
    begin_realtime_ns: Option<u64>,
}

/// The content of the served metrics.
struct Served {
    /// The time of the event up to which the figures of `view` count, in ns of CLOCK_MONOTONIC.
    made_ns: u64,
    view: View,
    counters: Counters,
    verdicts: Vec<Verdict>,
}

pub struct Session {
    watch: Watch,
    out: Outputs,
    saving: Saving,
    counters: Counters,
    due: BTreeMap<u64, Due>,
    judged_ns: Option<u64>,
    served: Option<Served>,
    written_ns: Option<u64>,
    returned_ns: Option<u64>,
    reported: BTreeSet<(String, String)>,
    measured: BTreeSet<(String, String)>,
    /// The numbers of forgotten nodes and of forgotten callbacks that the journal has reported, and
    /// the time of the latest such line, in ns of CLOCK_MONOTONIC.
    forgotten: ([u64; 2], u64),
    /// If true, each line of the journal begins with the time since the first event.
    has_times: bool,
}

impl Session {
    pub fn new(watch: Watch, out: Outputs, saving: Saving, has_times: bool) -> Session {
        let mut session = Session {
            watch,
            out,
            saving,
            counters: Counters::default(),
            due: BTreeMap::new(),
            judged_ns: None,
            served: None,
            written_ns: None,
            returned_ns: None,
            reported: BTreeSet::new(),
            measured: BTreeSet::new(),
            forgotten: ([0; 2], 0),
            has_times,
        };
        // Without events nothing is judged, but a collector must see the counters.
        session.show_metrics();
        session
    }

    /// Reports whether any callback has run in the observed system.
    pub fn has_found(&mut self) -> bool {
        !self.watch.view().callbacks.is_empty()
    }

    pub fn status(&self) -> String {
        let [passed, unknown, violated] = self.watch.verdicts();
        format!(
            "{passed} requirements hold, {violated} are violated, {unknown} are not known; {} incidents began, and {} of them go on",
            self.counters.incidents, self.counters.open
        )
    }

    pub fn say(&mut self, level: Level, text: &str) {
        let now = self.watch.now_ns();
        let since = now.saturating_sub(self.watch.start_ns());
        match self.has_times {
            true => {
                let text = format!("{:.1} s  {text}", since as f64 / 1e9);
                self.out.journal.say(level, &text);
            }
            false => self.out.journal.say(level, text),
        }
    }

    /// Replaces the requirements by `read`, which was read from their file again. If reading
    /// failed, the previous requirements stay in force.
    pub fn reload(&mut self, read: Result<Requirements, String>) {
        match read {
            Ok(requirements) => {
                self.watch.set_requirements(requirements);
                self.counters.reloads += 1;
                self.reported.clear();
                self.say(Level::Notice, "the requirements were read again");
            }
            Err(why) => {
                self.counters.reloads_failed += 1;
                let text = format!("the requirements stay as they were: {why}");
                self.say(Level::Error, &text);
            }
        }
    }

    pub fn push(&mut self, events: &[Event]) {
        self.watch.push(events);
        if let Some(diagnosis) = &mut self.out.diagnosis {
            diagnosis.offer(events);
        }
        let now = self.watch.now_ns();
        if now == 0 {
            return;
        }
        let is_due = |at: Option<u64>, every: u64| at.is_none_or(|at| now / every > at / every);
        if is_due(self.judged_ns, JUDGE_NS) {
            self.judged_ns = Some(now);
            self.judge();
            if is_due(self.written_ns, TEXT_NS) {
                self.written_ns = Some(now);
                self.write_text();
                // Of a recorded trace, only the last figures are sent: its time flies.
                if !self.has_times {
                    self.send_metrics();
                }
            }
            if !self.has_times && is_due(self.returned_ns, RETURN_NS) {
                self.returned_ns = Some(now);
                memory::return_freed();
            }
        }
    }

    /// Judges the requirements for the last time, on all events so far. The caller must not add
    /// events afterwards.
    pub fn end(&mut self) {
        self.watch.end();
        self.judge();
        self.save_due(u64::MAX);
        let open = self.counters.open;
        if open > 0 {
            let text = format!("onbeat monitor ends; incidents that go on: {open}");
            self.say(Level::Notice, &text);
        }
        let incidents: Vec<Incident> = self.watch.incidents.open().cloned().collect();
        for incident in incidents {
            self.out.saver.ended(incident);
        }
        self.write_text();
        self.send_metrics();
        let done = self.out.saver.end();
        self.act_on(done);
        if let Some(otlp) = &mut self.out.otlp {
            otlp.end();
        }
        if let Some(diagnosis) = &mut self.out.diagnosis {
            diagnosis.end();
        }
        self.hear_collector();
    }

    /// Waits until all lines of the journal are written. Returns the final counters.
    pub fn close(self) -> Counters {
        self.out.journal.end();
        self.counters
    }

    fn judge(&mut self) {
        let changes = self.watch.judge();
        self.counters.late = self.watch.late;
        self.counters.open = self.watch.incidents.open().count() as u64;
        self.out.programs.reap();
        if !changes.is_empty() {
            self.served = None;
        }
        for change in changes {
            self.act(change);
        }
        for incident in self.watch.incidents.take_ended() {
            self.save(&incident);
            self.out.saver.ended(incident);
        }
        self.report_unknown();
        self.report_forgotten();
        self.save_due(self.watch.now_ns());
        let done = self.out.saver.done();
        self.act_on(done);
        self.hear_collector();
        self.show_metrics();
        self.show_diagnostics();
    }

    fn show_diagnostics(&mut self) {
        let summary = self.status();
        let Some(diagnosis) = &mut self.out.diagnosis else {
            return;
        };
        if diagnosis.has_latency_topics() {
            diagnosis.add_latencies(self.watch.drain_longest());
        }
        diagnosis.update(&self.watch.findings, self.watch.incidents.open(), &summary);
        let lines = diagnosis.news();
        for (level, text) in lines {
            self.say(level, &text);
        }
    }

    fn hear_collector(&mut self) {
        let Some(otlp) = &mut self.out.otlp else {
            return;
        };
        let lines = otlp.news();
        self.counters.otlp = otlp.counts();
        for (level, text) in lines {
            self.say(level, &text);
        }
    }

    fn act(&mut self, change: Change) {
        let (Change::Began(number) | Change::Joined(number, _) | Change::Ended(number)) = change;
        let Some(incident) = self.watch.incidents.get(number).cloned() else {
            return;
        };
        match change {
            Change::Began(_) => {
                self.counters.incidents += 1;
                let text = match incident.violations.first() {
                    Some(v) => format!("incident {number} begins: {}", said(v)),
                    None => format!("incident {number} begins"),
                };
                self.say(Level::Warning, &text);
                self.start_program("began", &incident, None);
                if self.saving.recording.is_some() {
                    // The evidence lies around the latest late execution.
                    let now = incident.begin_ns;
                    let late = incident.executions.iter().map(|late| late.end_ns).max();
                    let due = Due {
                        at_ns: now + self.saving.after_ns + self.saving.delay_ns,
                        around_ns: late.unwrap_or(now).min(now),
                        begin_realtime_ns: self.watch.realtime_ns(now),
                    };
                    self.due.insert(number, due);
                }
            }
            Change::Joined(_, at) => {
                if let Some(violation) = incident.violations.get(at) {
                    let text = format!("incident {number}, too: {}", said(violation));
                    self.say(Level::Warning, &text);
                }
            }
            Change::Ended(_) => {
                let since = incident
                    .end_ns
                    .unwrap_or(0)
                    .saturating_sub(incident.begin_ns);
                let lasted = duration(since as f64);
                let text = format!("incident {number} ends after {lasted}{}", late(&incident));
                self.say(Level::Notice, &text);
                self.start_program("ended", &incident, None);
            }
        }
    }

    fn save_due(&mut self, until_ns: u64) {
        let due = self.due.iter().filter(|(_, due)| due.at_ns <= until_ns);
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        for number in due {
            if let Some(incident) = self.watch.incidents.get(number).cloned() {
                self.save(&incident);
            }
        }
    }

    fn save(&mut self, incident: &Incident) {
        let number = incident.number;
        let Some(due) = self.due.remove(&number) else {
            return;
        };
        let Some(recording) = self.saving.recording.clone() else {
            return;
        };
        let longest = incident.worst.as_ref().map_or(0, |worst| worst.latency_ns);
        let from = due
            .around_ns
            .saturating_sub(longest.saturating_add(self.saving.before_ns));
        let to = incident.begin_ns.saturating_add(self.saving.after_ns);
        let order = Order {
            incident: incident.clone(),
            begin_realtime_ns: due.begin_realtime_ns,
            span: from..=to,
            recording,
        };
        let why = match self.out.saver.save(self.watch.now_ns(), order) {
            Ok(()) => return,
            Err(Refusal::Rate) => {
                self.counters.not_saved_rate += 1;
                "too many incidents were saved in the last hour (--saves-per-hour)"
            }
            Err(Refusal::Busy) => {
                self.counters.not_saved_busy += 1;
                "other incidents are still being saved"
            }
        };
        let text = format!("incident {number} is not saved: {why}");
        self.say(Level::Warning, &text);
    }

    fn act_on(&mut self, done: Vec<Done>) {
        for done in done {
            match done {
                Done::Saved(saved) => self.saved(&saved),
                Done::NotSaved(number, why) => {
                    self.counters.not_saved_failed += 1;
                    let text = format!("incident {number} is not saved: {why}");
                    self.say(Level::Error, &text);
                }
                Done::Failed(why) => self.say(Level::Error, &why),
            }
        }
    }

    fn saved(&mut self, saved: &Saved) {
        self.counters.saved += 1;
        self.counters.removed += saved.removed;
        let directory = self
            .out
            .incidents
            .clone()
            .unwrap_or_default()
            .join(&saved.name);
        let mut text = format!(
            "incident {} is saved in {}",
            saved.incident.number,
            directory.display()
        );
        if let Some(sentence) = &saved.sentence {
            text += &format!(": {sentence}");
        }
        if saved.removed > 0 {
            text += &format!(" {} older incidents were removed.", saved.removed);
        }
        self.say(Level::Notice, &text);
        if let Some(diagnosis) = &mut self.out.diagnosis {
            let absolute = std::path::absolute(&directory).unwrap_or(directory.clone());
            let evidence = Evidence {
                directory: absolute.display().to_string(),
                cause: saved.sentence.clone(),
            };
            diagnosis.saved(saved.incident.number, evidence);
        }
        self.start_program("saved", &saved.incident, Some(directory));
    }

    fn start_program(&mut self, what: &str, incident: &Incident, directory: Option<PathBuf>) {
        let Some(first) = incident.violations.first() else {
            return;
        };
        let absolute = directory.map(|path| std::path::absolute(&path).unwrap_or(path));
        let told = Told {
            what,
            number: incident.number,
            severity: incident.severity,
            requirement: &first.requirement,
            subject: &first.subject,
            limit: &first.limit,
            measured: &first.measured,
            directory: absolute.map(PathBuf::into_os_string),
        };
        match self.out.programs.start(&told) {
            None => {}
            Some(Ok(true)) => self.counters.programs_started += 1,
            Some(Ok(false)) => self.counters.programs_left_out += 1,
            Some(Err(error)) => {
                self.counters.programs_left_out += 1;
                let text = format!("the program of --exec cannot be started: {error}");
                self.say(Level::Error, &text);
            }
        }
    }

    /// Writes a line for each process that is no longer watched because it has created too many
    /// names and callbacks. Also writes the numbers of forgotten nodes and callbacks, at most once
    /// an hour.
    fn report_forgotten(&mut self) {
        for pid in self.watch.left_out_processes() {
            let text = format!(
                "process {pid} is not watched any more: it has created too many names and callbacks"
            );
            self.say(Level::Warning, &text);
        }
        let (now, all) = (self.watch.now_ns(), self.watch.forgotten());
        let (before, at) = self.forgotten;
        if all != before && (before == [0; 2] || now.saturating_sub(at) >= HOUR_NS) {
            let [nodes, callbacks] = [all[0] - before[0], all[1] - before[1]];
            let text = format!(
                "{nodes} nodes, and {callbacks} callbacks of other nodes, are forgotten, because they ended more than an hour ago"
            );
            self.say(Level::Notice, &text);
            self.forgotten = (all, now);
        }
    }

    /// Writes a line for each requirement whose subject has never appeared, and for each subject
    /// that appeared and then became silent.
    fn report_unknown(&mut self) {
        let since = self.watch.now_ns().saturating_sub(self.watch.start_ns());
        let mut lines = Vec::new();
        if self.measured.len() >= REPORTED_MAX {
            // Drops the names that are not among the current findings, so that new names have room.
            let findings = self.watch.findings.iter();
            let keys = findings.map(|f| (f.requirement.clone(), f.id.clone()));
            let present: BTreeSet<_> = keys.collect();
            self.measured.retain(|key| present.contains(key));
            self.reported.retain(|key| present.contains(key));
        }
        for finding in &self.watch.findings {
            let key = (finding.requirement.clone(), finding.id.clone());
            let is_absent = finding.id.is_empty() && finding.limit.is_empty();
            if !finding.measured.is_empty() {
                if self.reported.remove(&key) {
                    lines.push((Level::Notice, format!("{} is measured", named(finding))));
                }
                if self.measured.len() < REPORTED_MAX {
                    self.measured.insert(key);
                }
                continue;
            }
            let was_there = self.measured.contains(&key);
            let is_worth = was_there || (is_absent && since >= ABSENT_NS);
            if !is_worth || self.reported.len() >= REPORTED_MAX || self.reported.contains(&key) {
                continue;
            }
            let why = &finding.why;
            let text = format!("{} is not measured now: {why}", named(finding));
            lines.push((Level::Warning, text));
            self.reported.insert(key);
        }
        for (level, text) in lines {
            self.say(level, &text);
        }
    }

    fn show_metrics(&mut self) {
        let Some(latest) = self.out.latest.clone() else {
            return;
        };
        let now = self.watch.now_ns();
        let verdicts: Vec<Verdict> = self.watch.findings.iter().map(|f| f.verdict).collect();
        let is_young = |served: &Served| now.saturating_sub(served.made_ns) < VIEW_NS;
        let served = match self.served.take().filter(is_young) {
            Some(served) if served.counters == self.counters && served.verdicts == verdicts => {
                self.served = Some(served);
                return;
            }
            served => Served {
                made_ns: served.as_ref().map_or(now, |served| served.made_ns),
                view: served.map_or_else(|| self.watch.view(), |served| served.view),
                counters: self.counters.clone(),
                verdicts,
            },
        };
        let families = self.families(&served.view);
        let texts = Arc::new(Texts {
            open_metrics: exposition::text(&families, Style::OpenMetrics),
            plain: exposition::text(&families, Style::Plain),
        });
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = texts;
        self.served = Some(served);
    }

    fn families(&self, view: &View) -> Vec<Family> {
        families(&Figures {
            view,
            span: self.watch.span(),
            findings: &self.watch.findings,
            counters: &self.counters,
        })
    }

    /// Returns the metrics, and the time from the first event to the latest, in ns.
    fn metrics(&mut self) -> (Vec<Family>, u64) {
        let view = self.watch.view();
        (self.families(&view), view.elapsed_ns)
    }

    fn send_metrics(&mut self) {
        if self.out.otlp.is_some() {
            let (families, elapsed_ns) = self.metrics();
            let now_ns = self.watch.now_ns();
            if let Some(otlp) = &mut self.out.otlp {
                otlp.send(&families, now_ns, elapsed_ns);
            }
        }
    }

    fn write_text(&mut self) {
        if let Some(path) = self.out.textfile.clone() {
            let (families, _) = self.metrics();
            let text = exposition::text(&families, Style::Plain);
            self.out.saver.text(path, text);
        }
    }
}

fn named(finding: &Finding) -> String {
    format!("{} ({})", finding.subject, finding.requirement)
}

fn said(violation: &crate::incident::Violation) -> String {
    let mut text = format!(
        "{} of {} is {}, and the limit is {}",
        violation.requirement, violation.subject, violation.measured, violation.limit
    );
    if !violation.why.is_empty() {
        text += &format!(" ({})", violation.why);
    }
    text
}

fn late(incident: &Incident) -> String {
    match &incident.worst {
        None => String::new(),
        Some(worst) => format!(
            ": {} late executions, the worst took {} instead of at most {}",
            incident.late_executions,
            duration(worst.latency_ns as f64),
            duration(worst.deadline_ns as f64)
        ),
    }
}
