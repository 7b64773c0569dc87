//! Who hears of a session: its caller, and those who ask on the status socket.

use super::Session;
use crate::judge::Judgement;
use crate::report::{EarlierPlan, Live};
use crate::stages::Stage;
use crate::status::{
    Board, Counts, GuardStatus, Lateness, PlanCounts, PlanStatus, ServerStatus, State, Status,
    Tally, SCHEMA,
};
use crate::threads::MIDDLEWARE;
use onbeat_reserve::Stats;
use std::collections::VecDeque;
use std::sync::Arc;

/// Notes that a status has.
const NOTES: usize = 20;

/// Who hears of a session.
pub(super) struct Desk<'a> {
    pub(super) report: &'a mut dyn FnMut(&Live),
    /// Where others find the status. `None`: nobody asks.
    pub(super) board: Option<Arc<Board>>,
    /// Figures of the plan in force.
    tally: Tally,
    /// It is the plan of executions that are released from then on, CLOCK_MONOTONIC.
    from_ns: u64,
    /// The last notes.
    notes: VecDeque<String>,
}

impl<'a> Desk<'a> {
    pub(super) fn new(report: &'a mut dyn FnMut(&Live)) -> Desk<'a> {
        Desk {
            report,
            board: None,
            tally: Tally::default(),
            from_ns: 0,
            notes: VecDeque::new(),
        }
    }

    /// Another plan's figures begin.
    pub(super) fn begin_plan(&mut self, from_ns: u64, cycle_ns: u64) {
        self.tally = Tally::default();
        // The first callback starts near its release, which is what counts.
        self.from_ns = from_ns.saturating_sub(cycle_ns / 2);
    }

    fn hear(&mut self, live: &Live) {
        let of_plan = |j: &&Judgement| j.execution.start_ns >= self.from_ns;
        let judgements: Vec<_> = live.judgements.iter().filter(of_plan).copied().collect();
        self.tally.add(&judgements);
        self.notes.extend(live.notes.iter().cloned());
        let old = self.notes.len().saturating_sub(NOTES);
        self.notes.drain(..old);
    }
}

impl Session<'_> {
    /// Tells all who hear of it, about once a second. Waits for nobody.
    pub(super) fn tell(&mut self) {
        let live = self.live();
        self.desk.hear(&live);
        if let Some(board) = self.desk.board.clone() {
            board.publish(self.status(&live));
        }
        (self.desk.report)(&live);
    }

    /// The status to be published.
    pub(super) fn status(&self, live: &Live) -> Status {
        let (state, stats) = match &self.stage {
            Stage::Finding(_) => (State::Finding, None),
            Stage::Shaping(shaping) => (State::Shaping, Some(shaping.stats())),
            Stage::Stopped(stopped) => {
                let stats = stopped.shaped.as_ref().map(|s| s.stats.clone());
                (State::Stopped, stats)
            }
        };
        let stats = stats.unwrap_or_default();
        let cycles = self.stage.course().map_or(0, |course| {
            let counts = course.deliveries_of_last();
            let counts = counts.iter();
            counts.map(|d| d.delivered + d.without).max().unwrap_or(0)
        });
        let plan = self.plans.given();
        let of_last = self.stage.course().map(|c| c.deliveries_of_last());
        let of_last = of_last.unwrap_or_default();
        let without = of_last.iter().map(|d| d.without).max().unwrap_or(0);
        let measured = (without, cycles);
        Status {
            schema: SCHEMA,
            pid: std::process::id(),
            state,
            plan: PlanStatus {
                strategy: plan.strategy.clone(),
                chains: plan.chains.iter().map(|c| c.id.clone()).collect(),
                cycle_ns: plan.cycle_ms.0,
                number: self.plans.number,
                refused: self.plans.refused,
                earlier: self.earlier(),
            },
            missing: live.missing.clone(),
            shaping_ns: live
                .shaping
                .map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            counts: Counts {
                cycles: stats.cycles,
                executions: live.executions,
                late: live.late,
                discarded: live.dropped,
                without_output: live.without,
                skipped_slots: stats.skipped_slots,
                slips: self
                    .stage
                    .course()
                    .map_or(0, |course| course.inputs.slips()),
                lost_reports: self.lost_reports,
            },
            guard: GuardStatus {
                opened: stats.pauses.thawed_by_guard,
                silent: stats.pauses.guard_silent,
                lost: stats.pauses.guard_lost,
            },
            promises: self
                .desk
                .tally
                .promises(&plan.promises, live.jitter_ns, measured),
            dispatcher: lateness(&stats),
            servers: self.servers(),
            notes: self.desk.notes.iter().cloned().collect(),
        }
    }

    /// What was counted under earlier plans.
    fn earlier(&self) -> Vec<PlanCounts> {
        let course = self.stage.course().into_iter();
        let earlier = course.flat_map(|c| c.earlier(None));
        let counts = |e: EarlierPlan| PlanCounts {
            number: e.number,
            strategy: e.strategy,
            executions: e.executions,
            late: e.late,
            discarded: e.discarded,
            without_output: e.without,
        };
        earlier.map(counts).collect()
    }

    /// The plan's servers and the middleware's place, with their threads.
    fn servers(&self) -> Vec<ServerStatus> {
        let threads = |name: &str| match &self.stage {
            Stage::Shaping(shaping) => shaping.threads_of(name),
            Stage::Finding(_) | Stage::Stopped(_) => Vec::new(),
        };
        let servers = self
            .plan
            .servers
            .iter()
            .map(|s| (s.name.as_str(), s.cpu, s.priority));
        let middleware = &self.plan.middleware;
        let middleware = (MIDDLEWARE, middleware.cpu, middleware.priority);
        let all = servers.chain([middleware]);
        all.map(|(name, cpu, priority)| ServerStatus {
            name: name.to_owned(),
            cpu,
            priority,
            threads: threads(name),
        })
        .collect()
    }
}

fn lateness(stats: &Stats) -> Lateness {
    let at = |q| stats.lateness.quantile_ns(q);
    Lateness {
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: at(1.0),
    }
}
