//! Finds why an output was late: the thing that took longest beyond its usual time. Pure.

use super::{Switch, SwitchKind};
use crate::observe::{Cause, Release};
use onbeat_reserve::Move;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const MIN_CAUSE_NS: u64 = 50_000;
/// A limit as a divisor. onbeat names a delay as a cause only if the delay is long enough: at least
/// the time by which the output missed its last slot, divided by this number.
const CAUSE_DIVISOR: u64 = 4;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Late {
    pub(crate) cycle: i64,
    pub(crate) cycle_ns: u64,
    /// The start of the execution with the late output (CLOCK_MONOTONIC), in ns. It is the start of
    /// the first callback, or the time at which the throttler published the input.
    pub(crate) start_ns: u64,
    pub(crate) ready_ns: u64,
    pub(crate) output_ns: u64,
    /// The end of the last slot in which the output could leave (CLOCK_MONOTONIC), in ns.
    pub(crate) due_ns: u64,
    pub(crate) usual_start_ns: u64,
}

impl Late {
    /// Returns true if the shaper's report `release` is about this late output. Such a report is
    /// marked as late. It shows an arrival at or after `ready_ns`, and a publication at `output_ns`
    /// or none.
    pub(super) fn is_reported_by(&self, release: &Release) -> bool {
        release.late
            && release.arrival_ns >= self.ready_ns
            && (release.published_ns == self.output_ns || release.published_ns == 0)
    }
}

/// One thing that delayed a late output, for example a longer callback or a wait for the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The thing that delayed the output, as a sentence without its full stop.
    pub what: String,
    /// The time by which this delay exceeds the usual one, in ns.
    pub ns: u64,
}

/// An output that missed its last slot, and the cause.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateOutput {
    /// The number of the cycle in which the output's execution began.
    pub cycle: i64,
    /// The time at which the output's first callback started (CLOCK_MONOTONIC), in ns.
    pub start_ns: u64,
    /// The cause of the output's lateness, as a sentence without its full stop.
    pub cause: String,
    pub parts: Vec<Part>,
    /// The events from the start of the cycle until the output was ready, one line each.
    pub dump: Vec<String>,
}

pub(crate) struct LateOutputFacts<'a> {
    pub(super) late: Late,
    pub(super) item: Option<Release>,
    pub(super) switches: Vec<Switch>,
    pub(super) moves: Vec<Move>,
    pub(super) runs: &'a [Cause],
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl LateOutputFacts<'_> {
    pub(super) fn find_cause(
        &self,
        name: &dyn Fn(usize) -> String,
        thread: &dyn Fn(u32) -> String,
    ) -> (String, Vec<Part>) {
        let mut parts = self.waits_for_cpu(thread);
        let waited_ns: u64 = parts.iter().map(|p| p.ns).sum();
        parts.extend(self.longer_callbacks(waited_ns, name));
        parts.extend(self.late_gates());
        parts.extend(self.late_start());
        parts.extend(self.delays_in_the_shaper());
        parts.retain(|p| p.ns >= MIN_CAUSE_NS);
        parts.sort_by_key(|p| std::cmp::Reverse(p.ns));
        let overrun_ns = self.overrun_ns();
        let lost: u64 = self.lost();
        let said = match parts.first() {
            Some(first) if first.ns * CAUSE_DIVISOR >= overrun_ns => first.what.clone(),
            _ => self.no_single_cause(&parts, overrun_ns),
        };
        let sentence = match lost {
            0 => said,
            count => format!("{said} ({count} records of that time were lost)"),
        };
        (sentence, parts)
    }

    /// Returns the time in ns from the end of the last slot to the arrival of the output at the
    /// shaper. If the shaper did not report the output, the time at which the output was ready
    /// counts as its arrival.
    fn overrun_ns(&self) -> u64 {
        let arrived_ns = self.item.map_or(self.late.ready_ns, |i| i.arrival_ns);
        arrived_ns.saturating_sub(self.late.due_ns)
    }

    fn lost(&self) -> u64 {
        let lost = self.switches.iter().map(|s| match s.what {
            SwitchKind::Lost { count } => count,
            _ => 0,
        });
        lost.sum()
    }

    fn no_single_cause(&self, parts: &[Part], overrun_ns: u64) -> String {
        let seen = self
            .switches
            .iter()
            .any(|s| !matches!(s.what, SwitchKind::Lost { .. }));
        let listed: Vec<String> = parts.iter().take(3).map(|p| p.what.clone()).collect();
        let known_ns: u64 = parts.iter().map(|p| p.ns).sum();
        match (seen, listed.is_empty()) {
            (false, _) => "the cause is unknown: the recorder lost the thread switches of the chain".into(),
            (true, true) => format!(
                "the cause is unknown: the output came {:.1} ms after the end of its last slot. The chain's callbacks ran as usual, so the time was lost between them",
                ms(overrun_ns)
            ),
            (true, false) => format!(
                "no single cause: {}; the cause of {:.1} of {:.1} ms of the delay is unknown",
                listed.join("; "),
                ms(overrun_ns.saturating_sub(known_ns)),
                ms(overrun_ns)
            ),
        }
    }

    /// Returns the waits of the chain's threads for a CPU while they were ready to run. Returns one
    /// part for each other thread that had the CPU. The other parts are the time that the host
    /// took, and the time that idle CPUs needed to wake up.
    fn waits_for_cpu(&self, thread: &dyn Fn(u32) -> String) -> Vec<Part> {
        // These threads ran the chain's callbacks. Waits of other threads delayed nobody in the
        // chain.
        let chain: BTreeSet<u32> = self.runs.iter().map(|r| r.tid).collect();
        let own = |tid: u32| match chain.is_empty() {
            true => self.switches.iter().any(|s| s.tid == tid),
            false => chain.contains(&tid),
        };
        let mut by: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut out, mut ready): (HashMap<u32, (u64, u32)>, HashMap<u32, u64>) =
            (HashMap::new(), HashMap::new());
        let (mut stolen_ns, mut asleep_ns) = (0, 0);
        for s in self.switches.iter().filter(|s| own(s.tid)) {
            match s.what {
                SwitchKind::Preempted { by } => {
                    out.insert(s.tid, (s.at_ns, by));
                }
                SwitchKind::Slept => {
                    out.remove(&s.tid);
                }
                SwitchKind::Ready { ns } => {
                    ready.insert(s.tid, ns.min(s.at_ns.saturating_sub(self.late.cycle_ns)));
                }
                SwitchKind::Stolen { ns } => stolen_ns += ns,
                SwitchKind::Lost { .. } => {}
                SwitchKind::In { before } => {
                    if let Some((since_ns, other)) = out.remove(&s.tid) {
                        if !own(other) {
                            *by.entry(other).or_default() += s.at_ns - since_ns;
                        }
                    }
                    match ready.remove(&s.tid) {
                        // Thread 0 is the idle thread: the CPU was free, but woke up late.
                        Some(ns) if before == 0 => asleep_ns += ns,
                        Some(ns) if !own(before) => *by.entry(before).or_default() += ns,
                        _ => {}
                    }
                }
            }
        }
        let mut parts: Vec<Part> = by
            .into_iter()
            .map(|(tid, ns)| Part {
                what: format!("preempted by {} for {:.1} ms", thread(tid), ms(ns)),
                ns,
            })
            .collect();
        parts.push(Part {
            what: format!("the host took the CPU for {:.1} ms", ms(stolen_ns)),
            ns: stolen_ns,
        });
        parts.push(Part {
            what: format!("an idle CPU woke up {:.1} ms late", ms(asleep_ns)),
            ns: asleep_ns,
        });
        parts
    }

    /// Returns the time by which the chain's callbacks together took longer than usual. Subtracts
    /// `waited_ns`, the waits for a CPU, because they are reported as separate parts.
    fn longer_callbacks(&self, waited_ns: u64, name: &dyn Fn(usize) -> String) -> Option<Part> {
        let beyond = |c: &Cause| c.took_ns.saturating_sub(c.usual_ns);
        let all_ns: u64 = self.runs.iter().map(beyond).sum();
        let worst = self.runs.iter().max_by_key(|c| beyond(c))?;
        let (took, usual) = (ms(worst.took_ns), ms(worst.usual_ns));
        let of_one = format!(
            "{} took {took:.1} ms, usually {usual:.1} ms",
            name(worst.callback)
        );
        let what = match 2 * beyond(worst) >= all_ns {
            true => of_one,
            false => format!(
                "together, the chain's callbacks took {:.1} ms more than usual: {of_one}",
                ms(all_ns)
            ),
        };
        Some(Part {
            what,
            ns: all_ns.saturating_sub(waited_ns),
        })
    }

    fn late_gates(&self) -> Option<Part> {
        let during =
            |m: &&Move| m.open && (self.late.cycle_ns..=self.late.ready_ns).contains(&m.at_ns);
        let ns = self.moves.iter().filter(during).map(|m| m.delay_ns).max()?;
        Some(Part {
            what: format!("the dispatcher opened a gate {:.1} ms late", ms(ns)),
            ns,
        })
    }

    fn late_start(&self) -> Option<Part> {
        let after_ns = self.late.start_ns.checked_sub(self.late.cycle_ns)?;
        let usual_ns = self.late.usual_start_ns;
        Some(Part {
            what: format!(
                "the chain's input came late: the chain began {:.1} ms after the start of its cycle, usually {:.1} ms",
                ms(after_ns),
                ms(usual_ns)
            ),
            ns: after_ns.saturating_sub(usual_ns),
        })
    }

    fn delays_in_the_shaper(&self) -> Vec<Part> {
        let Some(item) = self.item else {
            return Vec::new();
        };
        let taken_ns = item.arrival_ns.saturating_sub(self.late.ready_ns);
        let mut parts = vec![Part {
            what: format!(
                "the shaper took the output {:.1} ms after it was ready",
                ms(taken_ns)
            ),
            ns: taken_ns,
        }];
        if item.arrival_ns <= self.late.due_ns {
            let ns = self.late.due_ns - item.arrival_ns;
            parts.push(Part {
                what: "the shaper's sender did not wake up in the output's slot".into(),
                ns: ns.max(MIN_CAUSE_NS),
            });
        }
        parts
    }
}
