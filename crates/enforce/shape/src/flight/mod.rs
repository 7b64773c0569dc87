//! The flight recorder: keeps the last thread switches, gate moves and shaper items, and finds the
//! cause of a late output in them. Pure; memory is bounded.
//!
//! Each switch names the thread that had the CPU before or got it next. So the recorder can name a
//! thread outside of the application that kept the CPU.

mod cause;

pub(crate) use cause::{Late, LateOutputFacts};
pub use cause::{LateOutput, Part};

use crate::observe::{Cause, Release};
use onbeat_reserve::Move;
use onbeat_trace::{Event, EventKind};
use std::collections::VecDeque;

const MAX_SWITCHES: usize = 16_384;
const MAX_MOVES_AND_ITEMS: usize = 1024;
const KEPT_STARTS: usize = 64;
const MAX_LINES: usize = 400;
const MAX_DUMPS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SwitchKind {
    In {
        before: u32,
    },
    Preempted {
        by: u32,
    },
    Slept,
    /// The thread gets a CPU now. Before that, it was ready to run for `ns`.
    Ready {
        ns: u64,
    },
    Stolen {
        ns: u64,
    },
    Lost {
        count: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switch {
    pub(crate) at_ns: u64,
    pub(crate) cpu: u16,
    pub(crate) tid: u32,
    pub(crate) what: SwitchKind,
}

#[derive(Debug, Default)]
pub(crate) struct Flight {
    switches: VecDeque<Switch>,
    moves: VecDeque<Move>,
    items: VecDeque<Release>,
    late: Vec<LateOutput>,
    starts_ns: VecDeque<u64>,
}

impl Flight {
    pub(crate) fn push(&mut self, events: &[Event]) {
        for event in events {
            let what = match event.kind {
                EventKind::SwitchIn { prev_tid, .. } => SwitchKind::In { before: prev_tid },
                EventKind::SwitchOut { next_tid, state: 0 } => {
                    SwitchKind::Preempted { by: next_tid }
                }
                EventKind::SwitchOut { .. } => SwitchKind::Slept,
                EventKind::Woken { ready_ns } => SwitchKind::Ready { ns: ready_ns },
                EventKind::Stolen { stolen_ns } => SwitchKind::Stolen { ns: stolen_ns },
                EventKind::Lost { count, .. } => SwitchKind::Lost { count },
                _ => continue,
            };
            let switch = Switch {
                at_ns: event.time_ns,
                cpu: event.cpu,
                tid: event.tid,
                what,
            };
            push_bounded(&mut self.switches, switch, MAX_SWITCHES);
        }
    }

    pub(crate) fn moved(&mut self, moves: Vec<Move>) {
        for one in moves {
            push_bounded(&mut self.moves, one, MAX_MOVES_AND_ITEMS);
        }
    }

    pub(crate) fn released(&mut self, release: Release) {
        push_bounded(&mut self.items, release, MAX_MOVES_AND_ITEMS);
    }

    pub(crate) fn began(&mut self, after_ns: u64) -> u64 {
        push_bounded(&mut self.starts_ns, after_ns, KEPT_STARTS);
        let mut sorted: Vec<u64> = self.starts_ns.iter().copied().collect();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    }

    /// Finds the cause of a late output, stores it with a dump of events, and returns it. `runs`
    /// are the runs of the plan's callbacks for this output. `name` returns the name of a callback
    /// by its index, and `thread` the name of a thread by its id.
    pub(crate) fn explain(
        &mut self,
        late: Late,
        runs: &[Cause],
        (name, thread): (&dyn Fn(usize) -> String, &dyn Fn(u32) -> String),
    ) -> String {
        let item = self.items.iter().find(|r| late.is_reported_by(r));
        let facts = LateOutputFacts {
            late,
            item: item.copied(),
            switches: self.within(late.cycle_ns, late.ready_ns),
            moves: self.moves.iter().copied().collect(),
            runs,
        };
        let (sentence, parts) = facts.find_cause(name, thread);
        let dump = self.dump(&late, thread);
        if self.late.len() < MAX_DUMPS {
            self.late.push(LateOutput {
                cycle: late.cycle,
                start_ns: late.start_ns,
                cause: sentence.clone(),
                parts,
                dump,
            });
        }
        sentence
    }

    fn within(&self, from_ns: u64, until_ns: u64) -> Vec<Switch> {
        let inside = |s: &&Switch| (from_ns..=until_ns).contains(&s.at_ns);
        self.switches.iter().filter(inside).copied().collect()
    }

    fn dump(&self, late: &Late, thread: &dyn Fn(u32) -> String) -> Vec<String> {
        let at = |ns: u64| (ns as f64 - late.cycle_ns as f64) / 1e6;
        let mut lines: Vec<(u64, String)> = Vec::new();
        let switches = self.within(late.cycle_ns, late.ready_ns);
        for s in &switches[switches.len().saturating_sub(MAX_LINES)..] {
            let what = match s.what {
                SwitchKind::In { before } => format!("runs, after {}", thread(before)),
                SwitchKind::Preempted { by } => format!("is preempted by {}", thread(by)),
                SwitchKind::Slept => "sleeps".into(),
                SwitchKind::Ready { ns } => {
                    format!("was ready to run for {:.3} ms", ns as f64 / 1e6)
                }
                SwitchKind::Stolen { ns } => format!("lost {:.3} ms to the host", ns as f64 / 1e6),
                SwitchKind::Lost { count } => format!("{count} records were lost"),
            };
            let who = thread(s.tid);
            lines.push((
                s.at_ns,
                format!("{:9.3} cpu{} {who} {what}", at(s.at_ns), s.cpu),
            ));
        }
        let during = |m: &&Move| (late.cycle_ns..=late.ready_ns).contains(&m.at_ns);
        for m in self.moves.iter().filter(during) {
            let how = if m.open { "opened" } else { "shut" };
            let late_ms = m.delay_ns as f64 / 1e6;
            lines.push((
                m.at_ns,
                format!(
                    "{:9.3} gate {} {how}, {late_ms:.3} ms after it was due",
                    at(m.at_ns),
                    m.server
                ),
            ));
        }
        lines.sort();
        lines.into_iter().map(|(_, line)| line).collect()
    }

    pub(crate) fn into_late(self) -> Vec<LateOutput> {
        self.late
    }
}

fn push_bounded<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}

#[cfg(test)]
mod tests;
