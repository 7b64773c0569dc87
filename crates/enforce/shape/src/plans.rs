//! Holds the plans of a session: the given plan, and its copy with the bands that follow the load.
//! Pure.

use crate::follow::Following;
use crate::history::{PlanHistory, Swap};
use onbeat_plan::Plan;
use std::sync::Arc;

pub(crate) struct Plans {
    given: PlanHistory,
    pub(crate) following: Option<Following>,
    pub(crate) number: u64,
    pub(crate) refused: u64,
}

impl Plans {
    pub(crate) fn new(plan: &Plan) -> Plans {
        Plans {
            given: PlanHistory::new(Arc::new(plan.clone())),
            following: None,
            number: 1,
            refused: 0,
        }
    }

    pub(crate) fn given(&self) -> &Arc<Plan> {
        self.given.newest()
    }

    pub(crate) fn newest(&self) -> &Plan {
        match &self.following {
            Some(following) => following.plan(),
            None => self.given(),
        }
    }

    pub(crate) fn plan_at(&self, start_ns: u64) -> &Plan {
        match &self.following {
            Some(following) => following.plan_of(start_ns),
            None => self.given.plan_at(start_ns),
        }
    }

    pub(crate) fn replace(
        &mut self,
        plan: Arc<Plan>,
        following: Option<Following>,
        (from_ns, now_ns): (u64, u64),
    ) -> Swap<'_> {
        self.number += 1;
        let swap = self.given.add(plan, from_ns, now_ns);
        match (&mut self.following, following) {
            (Some(running), Some(new)) => running.replace(new, from_ns, now_ns),
            _ => swap,
        }
    }
}
