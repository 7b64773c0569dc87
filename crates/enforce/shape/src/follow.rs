//! Lets bands follow the load in a session. Completed executions go to the controller
//! ([`onbeat_plan::adapt`]). Changes of the slots go to the shaper at the beginning of a cycle.
//! Every execution is judged by the slots of its own cycle. Pure.

use crate::history::{PlanHistory, Swap};
use crate::judge::Behind;
use crate::observe::Execution;
use onbeat_document::Dist;
use onbeat_plan::adapt::{Adapt, AdaptError};
use onbeat_plan::schema::{Ms, Slot};
use onbeat_plan::Plan;
use onbeat_time::Cycle;
use std::sync::Arc;

/// The time between writing new slots and the first cycle in which they apply. It gives the shaper
/// time to read them before an execution of that cycle is released.
const AHEAD_NS: u64 = 10_000_000;

const MAX_BANDS_KEPT: usize = 10_000;

/// The options for latency bands that follow the load (`--adapt`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdaptOptions {
    /// The deadline of every output, in ns after the start of its cycle. `None` takes the deadline
    /// from the plan.
    pub deadline_ns: Option<u64>,
}

/// The slots in which outputs may leave from the time `from_ns` on.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BandsSet {
    /// The time of the first release to which the slots apply (CLOCK_MONOTONIC), in ns.
    pub from_ns: u64,
    pub reason: &'static str,
    pub sentence: String,
    /// The slots in which outputs can leave, relative to the start of the cycle.
    pub slots: Vec<Slot>,
}

/// The changes of the latency bands during a session in which they followed the load.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adapted {
    /// The bands of the plan first, then the bands after each change.
    pub bands: Vec<BandsSet>,
    pub moves: u64,
    /// The number of changes of the bands that are missing in `bands`, because `bands` stores a
    /// limited number of changes.
    pub forgotten: u64,
}

pub(crate) struct Following {
    adapt: Adapt,
    plans: PlanHistory,
    adapted: Adapted,
    /// The delays in ns from the start of a slot to the departure of an output that waited for this
    /// slot.
    behind: Dist,
}

impl Following {
    pub(crate) fn new(plan: &Plan, options: AdaptOptions) -> Result<Following, AdaptError> {
        let adapt = Adapt::new(plan, options.deadline_ns)?;
        let set = BandsSet {
            from_ns: 0,
            reason: "plan",
            sentence: "the plan's bands".into(),
            slots: adapt.slots().to_vec(),
        };
        Ok(Following {
            plans: PlanHistory::new(Arc::new(plan.clone())),
            adapt,
            adapted: Adapted {
                bands: vec![set],
                ..Adapted::default()
            },
            behind: Dist::new(),
        })
    }

    pub(crate) fn plan_of(&self, start_ns: u64) -> &Plan {
        self.plans.plan_at(start_ns)
    }

    pub(crate) fn plan(&self) -> &Plan {
        self.adapt.plan()
    }

    pub(crate) fn promised(&self, plan: &Plan) -> Plan {
        let mut promised = plan.clone();
        promised.promises.worst_ms = Ms(self.adapt.latest_ns());
        promised
    }

    /// Records a complete execution. `origin_ns` is the start of any cycle (CLOCK_MONOTONIC). If
    /// the slots move, returns a sentence for the user and the change for the shaper. If the slots
    /// should move and cannot, returns only the sentence.
    pub(crate) fn completed(
        &mut self,
        execution: &Execution,
        origin_ns: u64,
        now_ns: u64,
    ) -> Option<(String, Option<Swap<'_>>)> {
        let period_ns = self.plan().cycle_ms.0.max(1);
        let origin_ns = i64::try_from(origin_ns).unwrap_or(i64::MAX);
        let cycle = Cycle::new(period_ns, origin_ns)?;
        let number = cycle.index(execution.start_ns.saturating_add(period_ns / 2));
        let offset_ns = |at_ns| cycle.since_start_ns(number, at_ns).max(0) as u64;
        self.note_behind(
            execution,
            offset_ns(execution.left_ns),
            offset_ns(execution.output_ns),
        );
        let change = self.adapt.completed(offset_ns(execution.left_ns))?;
        let sentence = change.to_string();
        if !change.is_move() {
            return Some((sentence, None));
        }
        let from_ns = cycle.next_start_ns(now_ns.saturating_add(AHEAD_NS)).max(0) as u64;
        self.note(
            from_ns,
            change.reason.word(),
            sentence.clone(),
            change.slots,
        );
        let plan = Arc::new(self.adapt.plan().clone());
        let swap = self.plans.add(plan, from_ns, now_ns);
        Some((sentence, Some(swap)))
    }

    pub(crate) fn replace(&mut self, new: Following, from_ns: u64, now_ns: u64) -> Swap<'_> {
        let slots = new.adapt.slots().to_vec();
        self.note(from_ns, "plan", "another plan's bands".into(), slots);
        (self.adapt, self.behind) = (new.adapt, new.behind);
        let plan = Arc::new(self.adapt.plan().clone());
        self.plans.add(plan, from_ns, now_ns)
    }

    fn note(&mut self, from_ns: u64, reason: &'static str, sentence: String, slots: Vec<Slot>) {
        self.adapted.moves += 1;
        if self.adapted.bands.len() < MAX_BANDS_KEPT {
            self.adapted.bands.push(BandsSet {
                from_ns,
                reason,
                sentence,
                slots,
            });
        } else {
            self.adapted.forgotten += 1;
        }
    }

    fn note_behind(&mut self, execution: &Execution, ready_ns: u64, left_ns: u64) {
        let slots = &self.plan_of(execution.start_ns).promises.bands;
        let inside = slots.iter().find(|b| b.latency_ms.contains(left_ns));
        if let Some(band) =
            inside.filter(|b| execution.is_delivered() && ready_ns < b.latency_ms.0 .0)
        {
            self.behind.record(left_ns - band.latency_ms.0 .0);
        }
    }

    pub(crate) fn behind(&self) -> Behind {
        Behind {
            moves: self.adapted.moves,
            jitter_ns: (self.behind.quantile(0.995) - self.behind.quantile(0.005)) / 2,
        }
    }

    pub(crate) fn into_adapted(self) -> Adapted {
        self.adapted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Attribution, Fate};

    const MS: u64 = 1_000_000;
    const ORIGIN: u64 = 7 * MS;

    fn plan() -> Plan {
        let text = include_bytes!("../../plan/tests/golden/plan.yaml");
        let mut plan = onbeat_plan::file::read(text).expect("a plan");
        let gamma = plan.servers.iter_mut().find(|s| s.name == "gamma");
        gamma.expect("a server").slots_ms[0].1 = Ms(90 * MS);
        plan
    }

    fn execution(cycle: u64, ready_ms: f64, left_ms: f64) -> Execution {
        let start_ns = ORIGIN + cycle * 100 * MS;
        Execution {
            chain: 0,
            start_ns: start_ns + MS / 10,
            left_ns: start_ns + (ready_ms * MS as f64) as u64,
            output_ns: start_ns + (left_ms * MS as f64) as u64,
            fate: Fate::Delivered,
            late: false,
            attribution: Attribution::Lineage,
        }
    }

    #[test]
    fn executions_are_judged_by_the_slots_of_their_own_cycle() {
        let plan = plan();
        let mut following = Following::new(&plan, AdaptOptions::default()).expect("bands");
        let now = |cycle: u64| ORIGIN + cycle * 100 * MS + 70 * MS;
        let early = following.completed(&execution(0, 40.0, 45.1), ORIGIN, now(0));
        assert!(early.is_none());
        // A miss in cycle 1 that becomes known in cycle 4.
        let missed = execution(1, 70.0, 131.1);
        let (sentence, swap) = following
            .completed(&missed, ORIGIN, now(4))
            .expect("a change");
        assert!(
            sentence.contains("ready 70.0 ms after the start of its cycle"),
            "{sentence}"
        );
        let swap = swap.expect("slots have moved");
        assert_eq!(swap.from_ns, ORIGIN + 500 * MS, "the next cycle");
        let last = |plan: &Plan| plan.promises.bands[2].latency_ms.0 .0;
        assert_eq!(last(swap.before), 59_900_000);
        let raised = last(swap.plan);
        assert!(raised > 70 * MS);
        for (cycle, expected) in [(1, 59_900_000), (4, 59_900_000), (5, raised), (9, raised)] {
            let start_ns = ORIGIN + cycle * 100 * MS;
            for start_ns in [start_ns - MS, start_ns + MS] {
                assert_eq!(last(following.plan_of(start_ns)), expected, "cycle {cycle}");
            }
        }
        // Two changes come before the first applies, so the first never applies.
        let change = following.completed(&execution(2, 75.0, 180.0), ORIGIN, now(4));
        let (_, swap) = change.expect("a change");
        assert_eq!(last(swap.expect("moved").before), 59_900_000);
        assert_eq!(following.adapted.moves, 2);
        assert_eq!(following.into_adapted().bands.len(), 3);
    }

    #[test]
    fn the_precision_of_outputs_is_measured_from_the_start_of_their_slot() {
        let mut following = Following::new(&plan(), AdaptOptions::default()).expect("bands");
        for n in 0..90 {
            let late_ms = 45.002_751 + if n % 2 == 0 { 0.01 } else { 0.03 };
            following.completed(&execution(n, 40.0, late_ms), ORIGIN, ORIGIN);
            // This output was ready within its slot and did not wait.
            following.completed(&execution(n, 45.5, 45.7), ORIGIN, ORIGIN);
        }
        let jitter_ns = following.behind().jitter_ns;
        assert!((9_900..=10_100).contains(&jitter_ns), "{jitter_ns}");
    }
}
