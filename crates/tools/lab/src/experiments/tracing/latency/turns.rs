//! Measures `onbeat record --preload` on a pair of nodes that starts only once.
//!
//! The library and the kernel's records of context switches are switched off and on in turns. Two
//! starts of a pair differ by more than the measured cost, and so do two periods of two seconds of
//! one pair. The turns are therefore short.
//!
//! A perf event that is off still costs its threads some time at each context switch. This part of
//! the cost is not measured here.

use super::gate::Gate;
use super::nodes::{read_samples, Nodes, RecordedEvents, Sample};
use super::{pair, Cell, Segment, Setting, ARMS, LIBRARY, PASSED, PRELOAD};
use crate::frame::children::Guarded;
use crate::frame::turns::schedule;
use crate::frame::{Context, Kept, LabError, Result};
use crate::measure::perf_events::PerfEvents;
use crate::measure::recorder;
use onbeat_trace::{Event, EventKind};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The smallest length of an arm's turn: a turn lasts at least this time, and for at least this
/// number of messages.
const TURN_LENGTH: (Duration, u32) = (Duration::from_millis(25), 4);
/// The time after each switch of arms. Messages in this time are not measured, because they find
/// less in the caches than later messages.
const SETTLE_TIME: Duration = Duration::from_millis(5);
/// The pause between two turns. The last messages of the earlier turn can arrive in this pause.
const ARRIVAL_TIME: Duration = Duration::from_millis(2);

struct Switches {
    gate: Gate,
    events: PerfEvents,
}

impl Switches {
    fn set(&self, arm: usize) -> Result<()> {
        self.gate.set(arm != PASSED)?;
        self.events.switch(arm == PRELOAD)
    }
}

pub fn measure(
    context: &Context,
    nodes: &Nodes<'_>,
    rounds: usize,
    segment: Duration,
    cell: &mut Cell,
) -> Result<()> {
    let [file, trace] = ["turns.samples", "turns.trace"].map(|name| context.dir().join(name));
    let _ = std::fs::remove_dir_all(&trace);
    let gate = Gate::make(context)?;
    let pair = start(context, nodes, cell.setting, (&file, &trace), &gate)?;
    let events = PerfEvents::of(pair.pid())?;
    let switches = Switches { gate, events };
    let (segments, kept) = take_turns(context, cell.setting, (rounds, segment), &switches)?;
    pair::end(pair)?;
    let samples = read_samples(&file)?;
    check(&count_per_arm(&trace, &samples, &segments)?)?;
    let mut recorded = RecordedEvents::default();
    recorded.add(&recorder::recorded(&trace)?.manifest);
    cell.lost_events += recorded.lost;
    // The numbers of this pair's rounds follow those of the pair before.
    let before = cell.message.kept();
    for segment in &segments {
        let round = before.all() + segment.round;
        cell.add(&samples, &Segment { round, ..*segment });
    }
    cell.keep(before.then(&kept));
    let _ = std::fs::remove_dir_all(&trace);
    let _ = std::fs::remove_file(&file);
    Ok(())
}

fn start(
    context: &Context,
    nodes: &Nodes<'_>,
    setting: Setting,
    (file, trace): (&Path, &Path),
    gate: &Gate,
) -> Result<Guarded> {
    let mut shell = Command::new(context.onbeat());
    shell.args(["record", "--preload", "-o"]).arg(trace);
    shell.args(["--", "sh"]);
    // The nodes must also run as root under sudo, because real-time threads need root's rights.
    shell.env_remove("SUDO_UID");
    gate.enter(&mut shell);
    pair::start(context, nodes, setting, file, shell)
}

/// Lets the nodes run while the arms take turns. In each round, the turns of each arm together last
/// as long as one `segment`.
fn take_turns(
    context: &Context,
    setting: Setting,
    (rounds, segment): (usize, Duration),
    switches: &Switches,
) -> Result<(Vec<Segment>, Kept)> {
    const TURNS: [usize; 3] = [PASSED, LIBRARY, PRELOAD];
    let period = Duration::from_secs(1) / setting.rate_hz;
    let turn = TURN_LENGTH.0.max(period * TURN_LENGTH.1);
    let turns = segment.div_duration_f64(turn).ceil() as usize;
    let mut segments = vec![];
    let purpose = format!("turns.{}", setting.id());
    let order = schedule(TURNS.len(), rounds * turns, &mut context.rng(&purpose));
    let order = order.into_iter().map(|(number, arm)| (number / turns, arm));
    let mut order = context.turns_in_order(&purpose, order.collect());
    for (round, arm) in order.by_ref() {
        let arm = TURNS[arm];
        switches.set(arm)?;
        std::thread::sleep(SETTLE_TIME + period);
        let (from_ns, to_ns) = pair::wait(turn);
        std::thread::sleep(ARRIVAL_TIME);
        segments.push(Segment {
            round,
            arm,
            from_ns,
            to_ns,
        });
    }
    // The recorder expects its events to be on, and must see the end of the pair.
    switches.set(PRELOAD)?;
    Ok((segments, order.finish()))
}

fn at(segments: &[Segment], ns: i64) -> Option<&Segment> {
    let after = segments.partition_point(|s| s.from_ns <= ns);
    segments[..after].last().filter(|s| s.has(ns))
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct ArmCounts {
    messages: u64,
    publications: u64,
    calls: u64,
    switches: u64,
}

impl ArmCounts {
    fn count(&mut self, kind: &EventKind) {
        match kind {
            EventKind::SwitchIn { .. } | EventKind::SwitchOut { .. } => self.switches += 1,
            EventKind::Publish { .. } => {
                self.publications += 1;
                self.calls += 1;
            }
            // A pair makes these calls for each message.
            EventKind::CallbackStart { .. }
            | EventKind::CallbackEnd { .. }
            | EventKind::TimerCall { .. }
            | EventKind::Take { .. }
            | EventKind::ExecutorNextReady
            | EventKind::ExecutorWaitForWork { .. }
            | EventKind::ExecutorExecute { .. }
            | EventKind::Wait => self.calls += 1,
            _ => {}
        }
    }
}

fn count_per_arm(
    trace: &Path,
    samples: &[Sample],
    segments: &[Segment],
) -> Result<[ArmCounts; ARMS.len()]> {
    let mut parts = sort_into_segments(recorder::open(trace)?.events(), segments);
    for sample in samples {
        if let Some(segment) = at(segments, sample.intended_ns) {
            parts[segment.arm].messages += 1;
        }
    }
    Ok(parts)
}

fn sort_into_segments(
    events: impl Iterator<Item = Event>,
    segments: &[Segment],
) -> [ArmCounts; ARMS.len()] {
    let mut parts = [ArmCounts::default(); ARMS.len()];
    for event in events {
        if let Some(segment) = at(segments, event.time_ns as i64) {
            parts[segment.arm].count(&event.kind);
        }
    }
    parts
}

/// Checks that each arm recorded what is switched on in it, and nothing else. A few publications
/// may be missing, because a message may still be on its way at the end of a turn.
fn check(parts: &[ArmCounts; ARMS.len()]) -> Result<()> {
    for arm in [PASSED, LIBRARY, PRELOAD] {
        let part = &parts[arm];
        let library = match arm {
            PASSED => part.calls == 0,
            _ => part.publications * 100 >= part.messages * 95,
        };
        let switches = match arm {
            PRELOAD => part.switches * 10 >= part.messages,
            _ => part.switches == 0,
        };
        if !library || !switches || part.messages == 0 {
            let what = format!("the recording of the arm {}", ARMS[arm]);
            return Err(LabError::unexpected(what, format!("{part:?}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64, kind: EventKind) -> Event {
        Event {
            time_ns,
            cpu: 0,
            pid: 1,
            tid: 1,
            kind,
        }
    }

    #[test]
    fn a_traced_event_counts_for_the_arm_that_was_active_at_its_time() {
        let segment = |arm, from_ns, to_ns| Segment {
            round: 0,
            arm,
            from_ns,
            to_ns,
        };
        let segments = [segment(PRELOAD, 100, 200), segment(PASSED, 300, 400)];
        let publish = || EventKind::Publish {
            rmw: 1,
            message: 2,
            source_ns: None,
        };
        let out = || EventKind::SwitchOut {
            next_tid: 0,
            state: 1,
        };
        let events = [
            event(99, publish()),
            event(100, publish()),
            event(150, EventKind::Wait),
            event(199, out()),
            event(200, out()),
            event(399, EventKind::Wait),
            event(399, EventKind::Exit),
        ];
        let parts = sort_into_segments(events.into_iter(), &segments);
        let of = |calls, publications, switches| ArmCounts {
            messages: 0,
            publications,
            calls,
            switches,
        };
        assert_eq!(parts[PRELOAD], of(2, 1, 1));
        assert_eq!(parts[PASSED], of(1, 0, 0));
        assert_eq!(parts[LIBRARY], ArmCounts::default());
    }

    #[test]
    fn a_tracing_arm_that_was_not_switched_is_refused() {
        let mut good = [ArmCounts::default(); ARMS.len()];
        for (arm, publications, switches) in [(PASSED, 0, 0), (LIBRARY, 99, 0), (PRELOAD, 100, 70)]
        {
            good[arm] = ArmCounts {
                messages: 100,
                publications,
                calls: 5 * publications,
                switches,
            };
        }
        assert!(check(&good).is_ok());
        type Change = fn(&mut [ArmCounts; ARMS.len()]);
        let wrong: [Change; 6] = [
            |parts| parts[PASSED].calls = 1,
            |parts| parts[PASSED].switches = 1,
            |parts| parts[LIBRARY].switches = 1,
            |parts| parts[LIBRARY].publications = 90,
            |parts| parts[PRELOAD].switches = 9,
            |parts| parts[PRELOAD].messages = 0,
        ];
        for (case, change) in wrong.into_iter().enumerate() {
            let mut parts = good;
            change(&mut parts);
            assert!(check(&parts).is_err(), "case {case}");
        }
    }
}
