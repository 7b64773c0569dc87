//! Replaces the plan of a running session between two cycles. Either everything changes or nothing
//! does.

use super::Session;
use crate::follow::Following;
use crate::shaper::without_moves;
use crate::stages::Stage;
use crate::status::{Outcome, Reloaded};
use crate::threads::guarded;
use onbeat_plan::reload::differences;
use onbeat_plan::Plan;
use onbeat_time::clock::monotonic_ns;
use onbeat_time::Cycle;
use std::sync::Arc;
use std::time::Duration;

/// The minimum time between reading a new plan and its first cycle: this time in ns or a quarter of
/// the cycle, whichever is shorter. In this time, gates and shaper prepare to change in the same
/// cycle.
const AHEAD_NS: u64 = 10_000_000;

impl Session<'_> {
    pub(super) fn handle_reload(&mut self) {
        let Some(board) = self.listeners.board.clone() else {
            return;
        };
        let Some((number, plan)) = board.reloads().take() else {
            return;
        };
        let reloaded = self.reload(plan, settled);
        self.notes.add(reloaded.said.clone());
        board.reloads().done(number, reloaded);
    }

    /// Replaces the plan by a new one and returns the outcome. The function `now` gets the cycles
    /// and returns the present time (CLOCK_MONOTONIC). If the next cycle begins too soon for the
    /// change, `now` first waits until that cycle has begun.
    pub(super) fn reload(
        &mut self,
        plan: Result<Plan, String>,
        now: impl FnOnce(Cycle) -> u64,
    ) -> Reloaded {
        let plan = match self.supervisor.is_inside() {
            false => plan,
            true => plan.and_then(|p| without_moves(p).map_err(|e| e.to_string())),
        };
        let taken = match plan {
            Ok(plan) if plan == **self.plans.given() => Err((
                Outcome::Same,
                "The plan was read again and has not changed".into(),
            )),
            Ok(plan) => self.take_plan(plan, now).map_err(|why| {
                let way_out = "To run the new plan, restart onbeat shape";
                (Outcome::Refused, format!("The running plan stays in force, because the new plan cannot replace the running plan: {why}. {way_out}"))
            }),
            Err(why) => Err((
                Outcome::Broken,
                format!("The running plan stays in force, because the new plan cannot be read: {why}"),
            )),
        };
        let (outcome, said) = taken.map_or_else(|e| e, |said| (Outcome::Taken, said));
        if matches!(outcome, Outcome::Refused | Outcome::Broken) {
            self.plans.refused += 1;
        }
        Reloaded {
            outcome,
            said: format!("{said}."),
        }
    }

    fn take_plan(&mut self, plan: Plan, now: impl FnOnce(Cycle) -> u64) -> Result<String, String> {
        let found = differences(self.plans.given(), &plan);
        if !found.is_empty() {
            let found: Vec<String> = found.iter().take(3).map(ToString::to_string).collect();
            return Err(found.join(", "));
        }
        let following = self
            .options
            .enforcement
            .adapt
            .map(|adapt| Following::new(&plan, adapt));
        let following = following.transpose().map_err(|e| format!("--adapt: {e}"))?;
        let plan = Arc::new(plan);
        let (from_ns, now_ns) = match &mut self.stage {
            // Shaping has not begun, so the plan applies from the first execution on.
            Stage::Finding(_) => (0, 0),
            Stage::Stopped(_) => return Err("shaping has ended".into()),
            Stage::Shaping(shaping) => {
                let origin_ns = shaping.course.phase.phase().origin_ns();
                let origin_ns = i64::try_from(origin_ns).unwrap_or(i64::MAX);
                let cycle = Cycle::new(plan.cycle_ms.0.max(1), origin_ns);
                let cycle = cycle.ok_or("the plan's cycle has the length 0")?;
                let now_ns = now(cycle);
                let from_ns = cycle.next_start_ns(now_ns).max(0) as u64;
                // Everything that can fail comes before any change.
                let servers = guarded(&plan);
                shaping.swap(servers, from_ns).map_err(|e| e.to_string())?;
                (from_ns, now_ns)
            }
        };
        self.follow_plan(plan, following, (from_ns, now_ns));
        let (number, strategy) = (self.plans.number, &self.plans.given().strategy);
        Ok(format!("Plan {number} ({strategy}) is in force now"))
    }

    fn follow_plan(
        &mut self,
        plan: Arc<Plan>,
        following: Option<Following>,
        (from_ns, now_ns): (u64, u64),
    ) {
        let before = self.plans.given().clone();
        let followed = self.plans.following.as_ref();
        let followed = followed.map(|f| (f.promised(&before), f.behind()));
        let number = self.plans.number + 1;
        if let Some((course, _)) = self.stage.course_mut() {
            course.begin_plan((plan.clone(), number), from_ns, followed);
        }
        self.listeners.begin_plan(from_ns, plan.cycle_ms.0);
        let swap = self.plans.replace(plan, following, (from_ns, now_ns));
        if let (Stage::Shaping(_), Some(shaper)) = (&self.stage, self.supervisor.shaper()) {
            shaper.swap(&swap);
        }
    }
}

fn settled(cycle: Cycle) -> u64 {
    let now_ns = monotonic_ns();
    let next_ns = cycle.next_start_ns(now_ns).max(0) as u64;
    let left_ns = next_ns.saturating_sub(now_ns);
    if left_ns >= AHEAD_NS.min(cycle.period_ns() / 4) {
        return now_ns;
    }
    std::thread::sleep(Duration::from_nanos(left_ns));
    monotonic_ns()
}

#[cfg(test)]
mod tests;
