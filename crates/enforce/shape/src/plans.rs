//! The plans of a session: the one in force as it was given, and with the bands that follow the load.
//! Pure.

use crate::follow::Following;
use crate::history::{PlanHistory, Swap};
use onbeat_plan::Plan;
use std::sync::Arc;

/// The plans of a session.
pub(crate) struct Plans {
    /// As they were given.
    given: PlanHistory,
    /// If the bands follow the load.
    pub(crate) following: Option<Following>,
    /// Number of the plan in force: the session began with 1.
    pub(crate) number: u64,
    /// New plans that were not taken.
    pub(crate) refused: u64,
}

impl Plans {
    /// Begins with a plan.
    pub(crate) fn new(plan: &Plan) -> Plans {
        Plans {
            given: PlanHistory::new(Arc::new(plan.clone())),
            following: None,
            number: 1,
            refused: 0,
        }
    }

    /// The plan in force, as it was given.
    pub(crate) fn given(&self) -> &Arc<Plan> {
        self.given.newest()
    }

    /// The plan in force, with the slots that the executions have that are released next.
    pub(crate) fn newest(&self) -> &Plan {
        match &self.following {
            Some(following) => following.plan(),
            None => self.given(),
        }
    }

    /// The plan of an execution that began then, with the slots that it had.
    pub(crate) fn of(&self, start_ns: u64) -> &Plan {
        match &self.following {
            Some(following) => following.plan_of(start_ns),
            None => self.given.of(start_ns),
        }
    }

    /// Another plan is in force for the executions that are released from an instant on. `following`
    /// has its bands, if they follow the load.
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
