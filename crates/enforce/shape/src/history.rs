//! Keeps the plans of a session in order of time: an execution is judged by the slots that applied
//! at its release. Pure.

use onbeat_plan::Plan;
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) struct Swap<'f> {
    /// The time of the first release (CLOCK_MONOTONIC) for which the new slots apply.
    pub(crate) from_ns: u64,
    pub(crate) plan: &'f Plan,
    pub(crate) before: &'f Plan,
}

/// The maximum number of plans that are stored. Earlier plans are needed because an execution is
/// complete only a few cycles after its end. onbeat then judges it by the plan under which it was
/// released.
const MAX_PLANS: usize = 64;

#[derive(Debug)]
struct Since {
    from_ns: u64,
    plan: Arc<Plan>,
}

#[derive(Debug)]
pub(crate) struct PlanHistory {
    plans: VecDeque<Since>,
}

impl PlanHistory {
    pub(crate) fn new(plan: Arc<Plan>) -> PlanHistory {
        PlanHistory {
            plans: VecDeque::from([Since { from_ns: 0, plan }]),
        }
    }

    pub(crate) fn plan_at(&self, start_ns: u64) -> &Plan {
        // The release decides, and the first callback starts near its release.
        let at_ns = start_ns.saturating_add(self.newest().cycle_ms.0 / 2);
        let of_then = self.plans.iter().rev().find(|s| s.from_ns <= at_ns);
        &of_then.unwrap_or(&self.plans[0]).plan
    }

    pub(crate) fn newest(&self) -> &Arc<Plan> {
        &self.plans[self.plans.len() - 1].plan
    }

    pub(crate) fn add(&mut self, plan: Arc<Plan>, from_ns: u64, now_ns: u64) -> Swap<'_> {
        // A newer plan replaces plans that have not begun yet.
        while self.plans.len() > 1 && self.plans.back().is_some_and(|s| s.from_ns > now_ns) {
            self.plans.pop_back();
        }
        if self.plans.len() == MAX_PLANS {
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
