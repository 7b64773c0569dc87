//! The course of shaping: its phase, its executions and the time that threads ran outside of their
//! slots. It outlives [`super::Shaping`], because executions are complete a quarter of a second
//! after they end.

use super::books::Books;
use crate::judge::{
    Behind, Deliveries, Delivery, IsolationMonitor, Judgement, Results, Starts, SHUTDOWN_NS,
};
use crate::observe::{Execution, InputClock, Phase, PhaseHistory};
use crate::report::EarlierPlan;
use onbeat_plan::Plan;
use onbeat_trace::Event;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of cycles at the start of shaping that do not count, because their executions began
/// unshaped.
const SETTLE_CYCLES: u64 = 5;

pub(crate) struct Course {
    began: Instant,
    began_ns: u64,
    /// The time from which executions count (CLOCK_MONOTONIC). Until this time, some of the running
    /// executions began unshaped.
    pub(crate) settled_ns: u64,
    /// The time from which the policy for late outputs applies (CLOCK_MONOTONIC). It moves when a
    /// process is restarted.
    policy_ns: u64,
    pub(crate) phase: PhaseHistory,
    pub(crate) inputs: InputClock,
    pub(crate) isolation: IsolationMonitor,
    pub(crate) results: Results,
    pub(crate) deliveries: Deliveries,
    pub(crate) books: Books,
    last_start_ns: u64,
}

impl Course {
    /// Creates the course of shaping, which begins at `now_ns` (CLOCK_MONOTONIC) under the plan
    /// with this number. Executions count from [`SETTLE_CYCLES`] cycles later on. All threads are
    /// already in their servers.
    pub(crate) fn new(
        (plan, number): (&Arc<Plan>, u64),
        phase: Phase,
        isolation: IsolationMonitor,
        now_ns: u64,
    ) -> Course {
        let settled_ns = now_ns + SETTLE_CYCLES * plan.cycle_ms.0;
        let starts = match plan.inputs.is_empty() {
            true => Starts::EveryCycle,
            false => Starts::OnEvents,
        };
        Course {
            began: Instant::now(),
            began_ns: now_ns,
            settled_ns,
            policy_ns: settled_ns,
            inputs: InputClock::new(&phase, inputs(plan)),
            phase: PhaseHistory::new(phase),
            isolation,
            results: Results::default(),
            deliveries: Deliveries::new(
                plan.cycle_ms.0,
                plan.promises.worst_ms.0,
                plan.chains.len(),
                (starts, settled_ns),
            ),
            books: Books::new(plan.clone(), number),
            last_start_ns: now_ns,
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Suspends the policy for late outputs, because a process or the shaper was restarted at
    /// `now_ns` and some executions began unshaped.
    pub(crate) fn unsettle(&mut self, plan: &Plan, now_ns: u64) {
        self.policy_ns = self.policy_ns.max(now_ns + SETTLE_CYCLES * plan.cycle_ms.0);
    }

    pub(crate) fn has_policy(&self, start_ns: u64) -> bool {
        start_ns >= self.policy_ns && !self.phase.phase().is_sought()
    }

    pub(crate) fn shaped(&self, until_ns: u64) -> Duration {
        Duration::from_nanos(until_ns.saturating_sub(self.began_ns))
    }

    pub(crate) fn push_switches(&mut self, events: &[Event], until_ns: u64) {
        let origin_ns = self.phase.phase().origin_ns();
        self.isolation.push(events, until_ns, origin_ns);
    }

    /// Counts an execution and returns the number of its cycle, or `None` if it does not count. An
    /// execution counts if it began after `settled_ns`, and if its output left before `until_ns`
    /// and before the end of `duration`.
    pub(crate) fn count(
        &mut self,
        plan: &Plan,
        execution: Execution,
        until_ns: u64,
        duration: Option<Duration>,
    ) -> Option<i64> {
        let ends_ns = self.ends_ns(duration);
        // An application that ends publishes its last outputs at once. They do not count.
        if execution.start_ns < self.settled_ns || execution.output_ns >= until_ns.min(ends_ns) {
            return None;
        }
        if execution.is_delivered() {
            self.deliveries
                .delivered(execution.chain, execution.start_ns);
        }
        self.books.add(&execution);
        let origin_ns = self.phase.origin_at(execution.output_ns);
        self.results.add(Judgement::new(plan, execution, origin_ns));
        Some(self.phase.phase().cycle(execution.start_ns).0)
    }

    pub(crate) fn begin_plan(
        &mut self,
        (plan, number): (Arc<Plan>, u64),
        from_ns: u64,
        followed: Option<(Plan, Behind)>,
    ) {
        let worst_ns = plan.promises.worst_ms.0;
        self.deliveries.begin_plan(from_ns, worst_ns);
        self.books.begin((plan, number), from_ns, followed);
    }

    pub(crate) fn deliveries_of_last(&self) -> Vec<Delivery> {
        self.deliveries.by_plan().pop().unwrap_or_default()
    }

    pub(crate) fn earlier(&self, judgements: Option<&[Judgement]>) -> Vec<EarlierPlan> {
        self.books.earlier(&self.deliveries.by_plan(), judgements)
    }

    pub(crate) fn started(&mut self, start_ns: u64) {
        if start_ns >= self.settled_ns {
            self.last_start_ns = self.last_start_ns.max(start_ns);
            self.deliveries.started(start_ns);
        }
    }

    /// Counts the cycles in which no execution started, until `now_ns` or the end of `duration`.
    /// Must be called about once a second.
    pub(crate) fn passed(&mut self, now_ns: u64, duration: Option<Duration>) {
        self.deliveries.passed(now_ns.min(self.ends_ns(duration)));
    }

    /// Ends the counting of cycles. A cycle counts if its output was due before `until_ns` and
    /// before the end of `duration`. If the application ended earlier (`has_ended`), its last
    /// seconds without outputs do not count.
    pub(crate) fn finish(
        &mut self,
        plan: &Plan,
        (until_ns, has_ended): (u64, bool),
        duration: Option<Duration>,
    ) {
        let ends_ns = self.ends_ns(duration);
        let last_start_ns = match has_ended && until_ns < ends_ns {
            true => self.last_start_ns.max(until_ns.saturating_sub(SHUTDOWN_NS)),
            false => u64::MAX,
        };
        let until_ns = until_ns.min(ends_ns).min(last_start_ns);
        let worst_ns = plan.promises.worst_ms.0;
        self.deliveries.finish(until_ns.saturating_sub(worst_ns));
    }

    fn ends_ns(&self, duration: Option<Duration>) -> u64 {
        duration.map_or(u64::MAX, |duration| {
            let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            self.began_ns.saturating_add(duration_ns)
        })
    }
}

fn inputs(plan: &Plan) -> usize {
    let topics: BTreeSet<_> = plan.inputs.iter().map(|i| &i.held_topic).collect();
    topics.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Attribution, Fate};
    use onbeat_plan::schema::Ms;

    const MS: u64 = 1_000_000;

    #[test]
    fn only_executions_during_shaping_count_for_the_verdict() {
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        let mut plan = onbeat_plan::file::read(text).expect("a plan");
        plan.cycle_ms = Ms(100 * MS);
        let phase = Phase::new(100 * MS, 1000 * MS);
        let plan = Arc::new(plan);
        let mut course = Course::new((&plan, 1), phase, IsolationMonitor::default(), 1000 * MS);
        let mut count = |start_ms: u64, until_ms: u64, duration_ms: Option<u64>| {
            let execution = Execution {
                chain: 0,
                start_ns: start_ms * MS,
                left_ns: (start_ms + 60) * MS,
                output_ns: (start_ms + 60) * MS,
                fate: Fate::Delivered,
                late: false,
                attribution: Attribution::Lineage,
            };
            let duration = duration_ms.map(Duration::from_millis);
            course.count(&plan, execution, until_ms * MS, duration)
        };
        assert_eq!(count(1499, 9000, None), None, "before all had settled");
        assert_eq!(count(1500, 9000, None), Some(5));
        assert_eq!(count(1600, 1660, None), None, "after shaping had stopped");
        assert_eq!(count(1600, 1661, None), Some(6));
        assert_eq!(count(1600, 9000, Some(660)), None, "after its duration");
        assert_eq!(count(1600, 9000, Some(661)), Some(6));
        assert_eq!(course.results.count(), 3);
    }
}
