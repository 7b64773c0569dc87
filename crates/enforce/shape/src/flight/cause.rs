//! Why an output was late: what took longest beyond what it should have. Pure.

use super::{Switch, What};
use crate::observe::{Cause, Release};
use onbeat_reserve::Move;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Shorter things are no cause.
const LEAST_NS: u64 = 50_000;
/// A part that is at least this share of the overrun (1/4) is named as the cause.
const SHARE: u64 = 4;

/// A late output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Late {
    /// Number of its cycle.
    pub(crate) cycle: i64,
    /// Begin of that cycle.
    pub(crate) cycle_ns: u64,
    /// When its first callback started, or its input was let in.
    pub(crate) start_ns: u64,
    /// When its last callback published it.
    pub(crate) ready_ns: u64,
    /// When it was published in the end.
    pub(crate) output_ns: u64,
    /// Until when it should have been ready: the end of the last slot.
    pub(crate) due_ns: u64,
    /// Median of how long after its cycle's begin an execution starts.
    pub(crate) usual_start_ns: u64,
}

impl Late {
    /// Whether the shaper's report is of this output: it was taken after it was ready and left when
    /// the output did.
    pub(super) fn is_of(&self, release: &Release) -> bool {
        release.late
            && release.arrival_ns >= self.ready_ns
            && (release.published_ns == self.output_ns || release.published_ns == 0)
    }
}

/// Something that took time before a late output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What, as a sentence without its end.
    pub what: String,
    /// How long, ns, beyond what is usual.
    pub ns: u64,
}

/// A late output with its cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateOutput {
    /// Number of its cycle.
    pub cycle: i64,
    /// Start of its first callback, CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// The cause, a sentence.
    pub cause: String,
    /// What took time, the longest first.
    pub parts: Vec<Part>,
    /// What happened from the begin of its cycle until it was ready, a line each.
    pub dump: Vec<String>,
}

/// All that is known of a late output.
pub(crate) struct Reason<'a> {
    pub(super) late: Late,
    /// The shaper's report of it.
    pub(super) item: Option<Release>,
    /// Switches from the begin of its cycle until it was ready.
    pub(super) switches: Vec<Switch>,
    pub(super) moves: Vec<Move>,
    /// The runs of the plan's callbacks in it.
    pub(super) runs: &'a [Cause],
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Reason<'_> {
    /// The sentence that tells the cause, and all parts of it, the longest first.
    pub(super) fn tell(
        &self,
        name: &dyn Fn(usize) -> String,
        thread: &dyn Fn(u32) -> String,
    ) -> (String, Vec<Part>) {
        let mut parts = self.held_up(thread);
        let held_up_ns: u64 = parts.iter().map(|p| p.ns).sum();
        parts.extend(self.longer(held_up_ns, name));
        parts.extend(self.dispatcher());
        parts.extend(self.began());
        parts.extend(self.through_the_shaper());
        parts.retain(|p| p.ns >= LEAST_NS);
        parts.sort_by_key(|p| std::cmp::Reverse(p.ns));
        let overrun_ns = self.overrun_ns();
        let lost: u64 = self.lost();
        let said = match parts.first() {
            Some(first) if first.ns * SHARE >= overrun_ns => first.what.clone(),
            _ => self.undecided(&parts, overrun_ns),
        };
        let sentence = match lost {
            0 => said,
            count => format!("{said} ({count} records of that time were lost)"),
        };
        (sentence, parts)
    }

    /// By how much it missed the end of its last slot, as far as it is known.
    fn overrun_ns(&self) -> u64 {
        let arrived_ns = self.item.map_or(self.late.ready_ns, |i| i.arrival_ns);
        arrived_ns.saturating_sub(self.late.due_ns)
    }

    fn lost(&self) -> u64 {
        let lost = self.switches.iter().map(|s| match s.what {
            What::Lost { count } => count,
            _ => 0,
        });
        lost.sum()
    }

    /// No part explains it alone: what there is, and what was not seen.
    fn undecided(&self, parts: &[Part], overrun_ns: u64) -> String {
        let seen = self
            .switches
            .iter()
            .any(|s| !matches!(s.what, What::Lost { .. }));
        let listed: Vec<String> = parts.iter().take(3).map(|p| p.what.clone()).collect();
        let known_ns: u64 = parts.iter().map(|p| p.ns).sum();
        match (seen, listed.is_empty()) {
            (false, _) => "no switch of its threads was seen: the recorder lost them".into(),
            (true, true) => format!(
                "it ran as usual as far as was seen; of {:.1} ms beyond its slot nothing was seen between its callbacks",
                ms(overrun_ns)
            ),
            (true, false) => format!(
                "no single cause: {}; {:.1} of {:.1} ms were not seen",
                listed.join("; "),
                ms(overrun_ns.saturating_sub(known_ns)),
                ms(overrun_ns)
            ),
        }
    }

    /// Times in which one of its threads could have run and did not: by whom.
    fn held_up(&self, thread: &dyn Fn(u32) -> String) -> Vec<Part> {
        // The threads that ran its callbacks. What others of the application waited held nobody up.
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
                What::Preempted { by } => {
                    out.insert(s.tid, (s.at_ns, by));
                }
                What::Slept => {
                    out.remove(&s.tid);
                }
                What::Ready { ns } => {
                    ready.insert(s.tid, ns.min(s.at_ns.saturating_sub(self.late.cycle_ns)));
                }
                What::Stolen { ns } => stolen_ns += ns,
                What::Lost { .. } => {}
                What::In { before } => {
                    if let Some((since_ns, other)) = out.remove(&s.tid) {
                        if !own(other) {
                            *by.entry(other).or_default() += s.at_ns - since_ns;
                        }
                    }
                    match ready.remove(&s.tid) {
                        // The idle thread: nobody had the CPU, and it woke up late.
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

    /// Callbacks that took longer than usual: one, or several together. `held_up_ns` of it is told
    /// already.
    fn longer(&self, held_up_ns: u64, name: &dyn Fn(usize) -> String) -> Option<Part> {
        let beyond = |c: &Cause| c.took_ns.saturating_sub(c.usual_ns);
        let all_ns: u64 = self.runs.iter().map(beyond).sum();
        let worst = self.runs.iter().max_by_key(|c| beyond(c))?;
        let (took, usual) = (ms(worst.took_ns), ms(worst.usual_ns));
        let of_one = format!(
            "{} took {took:.1} ms, usually {usual:.1}",
            name(worst.callback)
        );
        let what = match 2 * beyond(worst) >= all_ns {
            true => of_one,
            false => format!(
                "its callbacks took {:.1} ms more than usual together: {of_one}",
                ms(all_ns)
            ),
        };
        Some(Part {
            what,
            ns: all_ns.saturating_sub(held_up_ns),
        })
    }

    /// Gates that opened late.
    fn dispatcher(&self) -> Option<Part> {
        let during =
            |m: &&Move| m.open && (self.late.cycle_ns..=self.late.ready_ns).contains(&m.at_ns);
        let ns = self.moves.iter().filter(during).map(|m| m.delay_ns).max()?;
        Some(Part {
            what: format!("the dispatcher opened a gate {:.1} ms late", ms(ns)),
            ns,
        })
    }

    /// It began late in its cycle.
    fn began(&self) -> Option<Part> {
        let after_ns = self.late.start_ns.checked_sub(self.late.cycle_ns)?;
        let usual_ns = self.late.usual_start_ns;
        Some(Part {
            what: format!(
                "its input came late: it began {:.1} ms after its cycle, usually {:.1}",
                ms(after_ns),
                ms(usual_ns)
            ),
            ns: after_ns.saturating_sub(usual_ns),
        })
    }

    /// The way through the shaper: taken late, or sent late.
    fn through_the_shaper(&self) -> Vec<Part> {
        let Some(item) = self.item else {
            return Vec::new();
        };
        let taken_ns = item.arrival_ns.saturating_sub(self.late.ready_ns);
        let mut parts = vec![Part {
            what: format!(
                "the shaper took it {:.1} ms after it was ready",
                ms(taken_ns)
            ),
            ns: taken_ns,
        }];
        if item.arrival_ns <= self.late.due_ns {
            let ns = self.late.due_ns - item.arrival_ns;
            parts.push(Part {
                what: "the shaper's sender did not wake up in its slot".into(),
                ns: ns.max(LEAST_NS),
            });
        }
        parts
    }
}
