//! The flight recorder: the last switches of the application's threads, the dispatcher's last moves
//! and the shaper's last items, from which the cause of a late output is told. Pure; bounded memory.
//!
//! Switches come from the recording, each with the thread that had the CPU before or got it next:
//! who kept a thread from running is known also where that is no thread of the application.

mod cause;

pub(crate) use cause::{Late, Reason};
pub use cause::{LateOutput, Part};

use crate::observe::{Cause, Release};
use onbeat_reserve::Move;
use onbeat_trace::{Event, EventKind};
use std::collections::VecDeque;

/// Switches that are kept: seconds of a chain's.
const SWITCHES: usize = 16_384;
/// Moves of gates that are kept, and items of the shaper.
const OTHERS: usize = 1024;
/// Executions from which the usual start within a cycle is taken.
const STARTS: usize = 64;
/// Lines of a dump.
const LINES: usize = 400;
/// Late outputs that are kept with their dumps.
const DUMPS: usize = 100;

/// Something that happened to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// It got a CPU, which this thread had before.
    In { before: u32 },
    /// It lost its CPU to this thread, although it could have run on.
    Preempted { by: u32 },
    /// It gave its CPU up, to sleep.
    Slept,
    /// It gets its CPU now, and had been ready for so long.
    Ready { ns: u64 },
    /// The host took its CPU away for so long while it ran.
    Stolen { ns: u64 },
    /// So many records were lost.
    Lost { count: u64 },
}

/// One entry of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switch {
    pub(crate) at_ns: u64,
    pub(crate) cpu: u16,
    pub(crate) tid: u32,
    pub(crate) what: What,
}

/// What the recorder keeps.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    switches: VecDeque<Switch>,
    moves: VecDeque<Move>,
    items: VecDeque<Release>,
    late: Vec<LateOutput>,
    /// How long after its cycle's begin each of the last executions began.
    starts_ns: VecDeque<u64>,
}

impl Flight {
    /// Takes the switches among events, which come in order of time.
    pub(crate) fn push(&mut self, events: &[Event]) {
        for event in events {
            let what = match event.kind {
                EventKind::SwitchIn { prev_tid, .. } => What::In { before: prev_tid },
                EventKind::SwitchOut { next_tid, state: 0 } => What::Preempted { by: next_tid },
                EventKind::SwitchOut { .. } => What::Slept,
                EventKind::Woken { ready_ns } => What::Ready { ns: ready_ns },
                EventKind::Stolen { stolen_ns } => What::Stolen { ns: stolen_ns },
                EventKind::Lost { count, .. } => What::Lost { count },
                _ => continue,
            };
            let switch = Switch {
                at_ns: event.time_ns,
                cpu: event.cpu,
                tid: event.tid,
                what,
            };
            keep(&mut self.switches, switch, SWITCHES);
        }
    }

    /// Takes moves of gates.
    pub(crate) fn moved(&mut self, moves: Vec<Move>) {
        for one in moves {
            keep(&mut self.moves, one, OTHERS);
        }
    }

    /// Takes an item that went through the shaper.
    pub(crate) fn released(&mut self, release: Release) {
        keep(&mut self.items, release, OTHERS);
    }

    /// An execution began so long after its cycle. Returns the median of the last ones.
    pub(crate) fn began(&mut self, after_ns: u64) -> u64 {
        keep(&mut self.starts_ns, after_ns, STARTS);
        let mut sorted: Vec<u64> = self.starts_ns.iter().copied().collect();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    }

    /// Tells the cause of a late output, and keeps it with what happened meanwhile. `runs` are the
    /// runs of the plan's callbacks in it, `name` names a callback, `thread` a thread.
    pub(crate) fn explain(
        &mut self,
        late: Late,
        runs: &[Cause],
        (name, thread): (&dyn Fn(usize) -> String, &dyn Fn(u32) -> String),
    ) -> String {
        let item = self.items.iter().find(|r| late.is_of(r));
        let reasons = Reason {
            late,
            item: item.copied(),
            switches: self.within(late.cycle_ns, late.ready_ns),
            moves: self.moves.iter().copied().collect(),
            runs,
        };
        let (sentence, parts) = reasons.tell(name, thread);
        let dump = self.dump(&late, thread);
        if self.late.len() < DUMPS {
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

    /// The last lines before the output, times in ms from the begin of its cycle.
    fn dump(&self, late: &Late, thread: &dyn Fn(u32) -> String) -> Vec<String> {
        let at = |ns: u64| (ns as f64 - late.cycle_ns as f64) / 1e6;
        let mut lines: Vec<(u64, String)> = Vec::new();
        let switches = self.within(late.cycle_ns, late.ready_ns);
        for s in &switches[switches.len().saturating_sub(LINES)..] {
            let what = match s.what {
                What::In { before } => format!("runs, after {}", thread(before)),
                What::Preempted { by } => format!("is preempted by {}", thread(by)),
                What::Slept => "sleeps".into(),
                What::Ready { ns } => format!("was ready for {:.3} ms", ns as f64 / 1e6),
                What::Stolen { ns } => format!("lost {:.3} ms to the host", ns as f64 / 1e6),
                What::Lost { count } => format!("{count} records were lost"),
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

    /// The late outputs so far: the first hundred.
    pub(crate) fn into_late(self) -> Vec<LateOutput> {
        self.late
    }
}

fn keep<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}

#[cfg(test)]
mod tests;
