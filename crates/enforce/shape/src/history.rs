//! Plans in the order of their instants: an execution has the slots of the plan of its release. Pure.

use onbeat_plan::Plan;
use std::collections::VecDeque;
use std::sync::Arc;

/// A change that is to be written into the shaper's table.
pub(crate) struct Swap<'f> {
    /// Executions that are released from then on have the new slots, CLOCK_MONOTONIC.
    pub(crate) from_ns: u64,
    /// The plan with the new slots.
    pub(crate) plan: &'f Plan,
    /// The plan of the executions before.
    pub(crate) before: &'f Plan,
}

/// Number of plans that are kept. Executions are known a few cycles after they end.
const KEPT: usize = 64;

/// A plan since an instant.
#[derive(Debug)]
struct Since {
    from_ns: u64,
    plan: Arc<Plan>,
}

/// Plans in the order of their instants.
#[derive(Debug)]
pub(crate) struct PlanHistory {
    /// Never empty.
    plans: VecDeque<Since>,
}

impl PlanHistory {
    /// Begins with a plan.
    pub(crate) fn new(plan: Arc<Plan>) -> PlanHistory {
        PlanHistory {
            plans: VecDeque::from([Since { from_ns: 0, plan }]),
        }
    }

    /// The plan of an execution that began then.
    pub(crate) fn of(&self, start_ns: u64) -> &Plan {
        // The first callback starts near its release, which is what counts.
        let at_ns = start_ns.saturating_add(self.newest().cycle_ms.0 / 2);
        let of_then = self.plans.iter().rev().find(|s| s.from_ns <= at_ns);
        &of_then.unwrap_or(&self.plans[0]).plan
    }

    /// The plan of the executions that are released next.
    pub(crate) fn newest(&self) -> &Arc<Plan> {
        &self.plans[self.plans.len() - 1].plan
    }

    /// A plan of the executions that are released from an instant on, which is later than now.
    pub(crate) fn add(&mut self, plan: Arc<Plan>, from_ns: u64, now_ns: u64) -> Swap<'_> {
        // What was to begin later than now never does.
        while self.plans.len() > 1 && self.plans.back().is_some_and(|s| s.from_ns > now_ns) {
            self.plans.pop_back();
        }
        if self.plans.len() == KEPT {
            self.plans.pop_front();
        }
        self.plans.push_back(Since { from_ns, plan });
        let last = self.plans.len() - 1;
        Swap {
            from_ns,
            plan: &self.plans[last].plan,
            before: &self.plans[last - 1].plan,
        }
    }
}
