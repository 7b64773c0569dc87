//! A session's status as statuses of ROS 2 diagnostics: one for each chain. Pure.
//!
//! | level | when |
//! |---|---|
//! | ERROR | the guard has ended; a promise is broken; no output for five seconds, or ten cycles where that is longer |
//! | WARN | since the last message an output was late or discarded, an input slipped, a slot was skipped, slots were opened; and while nothing is shaped |
//! | STALE | the session has told nothing new for three seconds |
//! | OK | else |

use crate::status::{ChainCounts, Counts, GuardStatus, State, Status};
use onbeat_ros::diagnostics::{DiagnosticStatus, Level};
use std::collections::VecDeque;
use std::time::Duration;

/// A chain without an output for this long, or for so many of its cycles, has died.
const DEAD: (Duration, u32) = (Duration::from_secs(5), 10);
/// A status as old as this is stale.
const STALE: Duration = Duration::from_secs(3);
/// Messages that are sent and not published yet.
const SENT: usize = 8;

/// When a message is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Since any instant.
    pub(super) now: Duration,
    /// How old the status is.
    pub(super) age: Duration,
}

/// What was counted until a message.
#[derive(Debug, Clone, Default)]
struct Counted {
    counts: Counts,
    guard: GuardStatus,
    chains: Vec<ChainCounts>,
}

impl Counted {
    fn of(status: &Status) -> Counted {
        Counted {
            counts: status.counts,
            guard: status.guard,
            chains: status.plan.counts.clone(),
        }
    }

    fn chain(&self, id: &str) -> ChainCounts {
        let found = self.chains.iter().find(|c| c.id == id);
        found.cloned().unwrap_or_default()
    }
}

/// Makes messages of a session's status, with what has happened since the last one that was published.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    machine: String,
    number: u32,
    /// Messages that may still be published: their numbers and what they told.
    sent: VecDeque<(u32, Counted)>,
    /// What the last published one told.
    told: Counted,
    /// By chain: its delivered outputs, and when there was the last.
    alive: Vec<(u64, Duration)>,
}

impl Reporter {
    /// On this machine.
    pub(super) fn new(machine: String) -> Reporter {
        Reporter {
            machine,
            ..Reporter::default()
        }
    }

    /// The next message, with its number.
    pub(super) fn report(&mut self, status: &Status, at: Moment) -> (u32, Vec<DiagnosticStatus>) {
        self.alive.resize(status.plan.counts.len(), (0, at.now));
        for ((outputs, last), chain) in self.alive.iter_mut().zip(&status.plan.counts) {
            if *outputs != chain.delivered || status.state != State::Shaping {
                (*outputs, *last) = (chain.delivered, at.now);
            }
        }
        let silent = self.alive.iter().map(|(_, last)| at.now - *last);
        let chains = status.plan.counts.iter().zip(silent);
        let statuses = chains
            .map(|(chain, silent)| self.status(status, (chain, silent), at.age))
            .collect();
        self.number = self.number.wrapping_add(1);
        if self.sent.len() == SENT {
            self.sent.pop_front();
        }
        self.sent.push_back((self.number, Counted::of(status)));
        (self.number, statuses)
    }

    /// A message was published: what it told is told.
    pub(super) fn published(&mut self, number: u32) {
        if let Some(at) = self.sent.iter().position(|(sent, _)| *sent == number) {
            if let Some((_, counted)) = self.sent.drain(..=at).next_back() {
                self.told = counted;
            }
        }
    }

    /// What was sent to a publisher that has ended is published by none.
    pub(super) fn forget_sent(&mut self) {
        self.sent.clear();
    }

    /// Whether messages are published.
    pub(super) fn is_heard(&self) -> bool {
        self.sent.len() < SENT
    }

    /// What is to be told if the session ends without a word.
    pub(super) fn will(&self, chains: &[String]) -> Vec<DiagnosticStatus> {
        let message = "onbeat ended without a word: its guard puts everything back";
        let one = |chain: &String| self.empty(chain, Level::Error, message.into());
        chains.iter().map(one).collect()
    }

    fn empty(&self, chain: &str, level: Level, message: String) -> DiagnosticStatus {
        DiagnosticStatus {
            level,
            name: format!("onbeat: {chain}"),
            message,
            hardware_id: self.machine.clone(),
            values: Vec::new(),
        }
    }

    fn status(
        &self,
        status: &Status,
        (chain, silent): (&ChainCounts, Duration),
        age: Duration,
    ) -> DiagnosticStatus {
        let before = self.told.chain(&chain.id);
        let (level, reasons) = match (errors(status, silent), self.warnings(status, chain)) {
            _ if age >= STALE => {
                let said = format!("the session has told nothing for {} s", age.as_secs());
                (Level::Stale, vec![said])
            }
            (errors, warnings) if !errors.is_empty() => (Level::Error, [errors, warnings].concat()),
            (_, warnings) if !warnings.is_empty() => (Level::Warn, warnings),
            _ => {
                let new = chain.executions.saturating_sub(before.executions);
                (Level::Ok, vec![format!("{new} executions in time")])
            }
        };
        DiagnosticStatus {
            values: values(status, chain),
            ..self.empty(&chain.id, level, reasons.join("; "))
        }
    }

    /// What has happened since the last published message that should not.
    fn warnings(&self, status: &Status, chain: &ChainCounts) -> Vec<String> {
        match status.state {
            State::Finding => {
                return vec![match status.missing.len() {
                    0 => "not shaped yet".into(),
                    missing => format!("not shaped yet: callbacks that are looked for: {missing}"),
                }]
            }
            State::Stopped => return vec!["shaping has ended: all is put back".into()],
            State::Shaping => {}
        }
        let told = self.told.chain(&chain.id);
        let (before, guard) = (&self.told.counts, &self.told.guard);
        let (now, by) = (&status.counts, &status.guard);
        [
            ("late outputs", chain.late, told.late),
            ("discarded outputs", chain.discarded, told.discarded),
            ("slips of inputs", now.slips, before.slips),
            ("skipped slots", now.skipped_slots, before.skipped_slots),
            ("lost reports", now.lost_reports, before.lost_reports),
            ("times slots opened by the guard", by.opened, guard.opened),
            (
                "times slots opened without the guard",
                by.silent,
                guard.silent,
            ),
        ]
        .into_iter()
        .filter(|(_, now, before)| now > before)
        .map(|(what, now, before)| format!("{} {what}", now - before))
        .collect()
    }
}

/// Why the chain is not what it should be.
fn errors(status: &Status, silent: Duration) -> Vec<String> {
    let mut errors = Vec::new();
    if status.guard.lost {
        errors.push("the guard has ended".to_owned());
    }
    if status.state != State::Shaping {
        return errors;
    }
    let broken = status.promises.iter().filter(|p| p.kept == Some(false));
    errors.extend(broken.map(|p| format!("promise broken: {}", p.name)));
    let cycles = Duration::from_nanos(status.plan.cycle_ns) * DEAD.1;
    if silent >= DEAD.0.max(cycles) {
        errors.push(format!("no output for {} s", silent.as_secs()));
    }
    errors
}

/// The figures.
fn values(status: &Status, chain: &ChainCounts) -> Vec<(String, String)> {
    let pair = |key: &str, value: &dyn ToString| (key.to_owned(), value.to_string());
    let (counts, guard) = (&status.counts, &status.guard);
    let guarding = match (status.state, guard.lost) {
        (_, true) => "lost",
        (State::Shaping, false) => "watches",
        _ => "not needed",
    };
    let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
    let mut values = vec![
        pair("state", &status.state.name()),
        pair("strategy", &status.plan.strategy),
        pair("plan", &status.plan.number),
        pair("cycle (ms)", &ms(status.plan.cycle_ns)),
        pair("executions", &chain.executions),
        pair("outputs delivered", &chain.delivered),
        pair("late outputs", &chain.late),
        pair("discarded outputs", &chain.discarded),
        pair("cycles without an output", &chain.without_output),
        pair("slips of inputs", &counts.slips),
        pair("skipped slots", &counts.skipped_slots),
        pair("lost reports", &counts.lost_reports),
        pair("guard", &guarding),
        pair("slots opened by the guard", &guard.opened),
        pair("slots opened without the guard", &guard.silent),
        pair(
            "dispatcher lateness p99 (ms)",
            &ms(status.dispatcher.p99_ns),
        ),
        pair("session", &status.pid),
    ];
    for promise in &status.promises {
        let (name, unit) = (promise.name, promise.unit);
        let promised = format!("{:.3}", promise.promised);
        values.push((format!("{name}, promised ({unit})"), promised));
        if let Some(measured) = promise.measured {
            values.push((format!("{name} ({unit})"), format!("{measured:.3}")));
        }
    }
    if let Some(note) = status.notes.last() {
        values.push(("last note".into(), note.clone()));
    }
    values
}

#[cfg(test)]
mod tests;
