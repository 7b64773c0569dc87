//! Converts a session's status to ROS 2 diagnostics: one status per chain. Pure.
//!
//! | level | when |
//! |---|---|
//! | ERROR | the guard has ended; a promise is broken; no output for five seconds, or for ten cycles if that is longer |
//! | WARN | since the last message an output was late or discarded, an input slipped, a slot was skipped, or slots were opened; and while nothing is shaped |
//! | STALE | the session has reported nothing new for three seconds |
//! | OK | otherwise |

use crate::status::{ChainCounts, Counts, GuardStatus, State, Status};
use onbeat_ros::diagnostics::{DiagnosticStatus, Level};
use std::collections::VecDeque;
use std::time::Duration;

/// The time without an output after which a chain counts as dead: this duration or this number of
/// cycles, whichever is longer.
const DEAD_AFTER: (Duration, u32) = (Duration::from_secs(5), 10);
const STALE_AFTER: Duration = Duration::from_secs(3);
const MAX_SENT: usize = 8;

#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Duration,
    pub(super) age: Duration,
}

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

#[derive(Debug, Default)]
pub(super) struct Reporter {
    machine: String,
    number: u32,
    /// The messages that the diagnostics process may still publish, each with its number and its
    /// counts.
    sent: VecDeque<(u32, Counted)>,
    reported: Counted,
    /// For each chain: the number of delivered outputs, and the time at which this number last
    /// grew.
    alive: Vec<(u64, Duration)>,
}

impl Reporter {
    pub(super) fn new(machine: String) -> Reporter {
        Reporter {
            machine,
            ..Reporter::default()
        }
    }

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
        if self.sent.len() == MAX_SENT {
            self.sent.pop_front();
        }
        self.sent.push_back((self.number, Counted::of(status)));
        (self.number, statuses)
    }

    pub(super) fn published(&mut self, number: u32) {
        if let Some(at) = self.sent.iter().position(|(sent, _)| *sent == number) {
            if let Some((_, counted)) = self.sent.drain(..=at).next_back() {
                self.reported = counted;
            }
        }
    }

    pub(super) fn forget_sent(&mut self) {
        self.sent.clear();
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.sent.len() < MAX_SENT
    }

    pub(super) fn will(&self, chains: &[String]) -> Vec<DiagnosticStatus> {
        let message = "onbeat ended unexpectedly. Its guard restores all threads";
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
        let before = self.reported.chain(&chain.id);
        let (level, reasons) = match (errors(status, silent), self.warnings(status, chain)) {
            _ if age >= STALE_AFTER => {
                let said = format!("the session has reported nothing for {} s", age.as_secs());
                (Level::Stale, vec![said])
            }
            (errors, warnings) if !errors.is_empty() => (Level::Error, [errors, warnings].concat()),
            (_, warnings) if !warnings.is_empty() => (Level::Warn, warnings),
            _ => {
                let new = chain.executions.saturating_sub(before.executions);
                (
                    Level::Ok,
                    vec![format!("{new} new executions, all in time")],
                )
            }
        };
        DiagnosticStatus {
            values: values(status, chain),
            ..self.empty(&chain.id, level, reasons.join("; "))
        }
    }

    fn warnings(&self, status: &Status, chain: &ChainCounts) -> Vec<String> {
        match status.state {
            State::Finding => {
                return vec![match status.missing.len() {
                    0 => "not shaped yet".into(),
                    missing => format!("not shaped yet: {missing} callbacks are not found"),
                }]
            }
            State::Stopped => return vec!["shaping has ended and all threads are restored".into()],
            State::Shaping => {}
        }
        let reported = self.reported.chain(&chain.id);
        let (before, guard) = (&self.reported.counts, &self.reported.guard);
        let (now, by) = (&status.counts, &status.guard);
        [
            ("late outputs", chain.late, reported.late),
            ("discarded outputs", chain.discarded, reported.discarded),
            ("slips of inputs", now.slips, before.slips),
            ("skipped slots", now.skipped_slots, before.skipped_slots),
            ("lost reports", now.lost_reports, before.lost_reports),
            (
                "how often the guard opened all gates",
                by.opened,
                guard.opened,
            ),
            (
                "how often the dispatcher opened all gates",
                by.silent,
                guard.silent,
            ),
        ]
        .into_iter()
        .filter(|(_, now, before)| now > before)
        .map(|(what, now, before)| format!("{what}: {}", now - before))
        .collect()
    }
}

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
    let cycles = Duration::from_nanos(status.plan.cycle_ns) * DEAD_AFTER.1;
    if silent >= DEAD_AFTER.0.max(cycles) {
        errors.push(format!("no output for {} s", silent.as_secs()));
    }
    errors
}

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
        pair("how often the guard opened all gates", &guard.opened),
        pair("how often the dispatcher opened all gates", &guard.silent),
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
