//! Reports the state of a session to its caller and to the clients of the status socket.

use super::Session;
use crate::error::ShapeError;
use crate::judge::Judgement;
use crate::report::{EarlierPlan, Live};
use crate::stages::Stage;
use crate::status::{
    Board, ChainCounts, Counts, GuardStatus, Lateness, PlanCounts, PlanStatus, ServerStatus, State,
    Status, Tally, SCHEMA,
};
use crate::threads::MIDDLEWARE;
use onbeat_plan::schema::ChainRef;
use onbeat_reserve::Stats;
use onbeat_ros::diagnostics::Standing;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const DIAGNOSTICS_WITHIN: Duration = Duration::from_secs(20);

const MAX_NOTES: usize = 20;

pub(super) struct Listeners<'a> {
    pub(super) report: &'a mut dyn FnMut(&Live),
    pub(super) board: Option<Arc<Board>>,
    tally: Tally,
    executions: Vec<u64>,
    /// The time of the first release (CLOCK_MONOTONIC) that belongs to the present plan.
    from_ns: u64,
    notes: VecDeque<String>,
}

impl<'a> Listeners<'a> {
    pub(super) fn new(report: &'a mut dyn FnMut(&Live)) -> Listeners<'a> {
        Listeners {
            report,
            board: None,
            tally: Tally::default(),
            executions: Vec::new(),
            from_ns: 0,
            notes: VecDeque::new(),
        }
    }

    pub(super) fn begin_plan(&mut self, from_ns: u64, cycle_ns: u64) {
        self.tally = Tally::default();
        // The release decides, and the first callback starts near its release.
        self.from_ns = from_ns.saturating_sub(cycle_ns / 2);
    }

    fn update(&mut self, live: &Live) {
        for judgement in &live.judgements {
            let chain = judgement.execution.chain;
            if self.executions.len() <= chain {
                self.executions.resize(chain + 1, 0);
            }
            self.executions[chain] += 1;
        }
        let of_plan = |j: &&Judgement| j.execution.start_ns >= self.from_ns;
        let judgements: Vec<_> = live.judgements.iter().filter(of_plan).copied().collect();
        self.tally.add(&judgements);
        self.notes.extend(live.notes.iter().cloned());
        let old = self.notes.len().saturating_sub(MAX_NOTES);
        self.notes.drain(..old);
    }
}

impl Session<'_> {
    /// Sends the session's state to the caller and to the clients of the status socket, without
    /// waiting. Must be called about once a second.
    pub(super) fn report_state(&mut self) {
        if let Some(board) = &self.listeners.board {
            let notes = board.post().take_notes();
            notes.into_iter().for_each(|note| self.notes.add(note));
        }
        let live = self.live();
        self.listeners.update(&live);
        if let Some(board) = self.listeners.board.clone() {
            board.publish(self.status(&live));
        }
        (self.listeners.report)(&live);
    }

    pub(super) fn leave(&mut self) {
        let live = self.live();
        self.listeners.update(&live);
        if let Some(board) = self.listeners.board.clone() {
            board.publish(self.status(&live));
        }
    }

    pub(super) fn offer_to_diagnostics(&self, pid: u32, seen_ns: u64) {
        if let Some(board) = &self.listeners.board {
            board.post().offer(pid, seen_ns);
        }
    }

    /// Returns true if shaping does not have to wait for the diagnostics: they are ready, the user
    /// does not want them, or `elapsed` exceeds the time limit for their start.
    pub(super) fn may_begin(&mut self, elapsed: Duration) -> Result<bool, ShapeError> {
        let standing = self.listeners.board.as_ref().map(|b| b.post().standing());
        match standing.unwrap_or_default() {
            Standing::NotAsked | Standing::Ready => Ok(true),
            Standing::NoPackage => Err(ShapeError::NoDiagnostics),
            Standing::Failed(said) => Err(ShapeError::Diagnostics(said)),
            Standing::Coming if elapsed < DIAGNOSTICS_WITHIN => Ok(false),
            Standing::Coming => {
                let note = "Diagnostics are not ready yet. Shaping begins without them.";
                self.notes.add_once(note.into());
                Ok(true)
            }
        }
    }

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
                counts: self.by_chain(),
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
                .listeners
                .tally
                .promises(&plan.promises, live.jitter_ns, measured),
            dispatcher: lateness(&stats),
            servers: self.servers(),
            notes: self.listeners.notes.iter().cloned().collect(),
        }
    }

    fn by_chain(&self) -> Vec<ChainCounts> {
        let course = self.stage.course();
        let chain = |(number, chain): (usize, &ChainRef)| {
            let delivery = course.and_then(|c| c.deliveries.counts().get(number).copied());
            let counts = course.and_then(|c| c.results.counts().get(number).copied());
            let (delivery, counts) = (delivery.unwrap_or_default(), counts.unwrap_or_default());
            ChainCounts {
                id: chain.id.clone(),
                executions: self.listeners.executions.get(number).copied().unwrap_or(0),
                delivered: delivery.delivered,
                without_output: delivery.without,
                late: counts.late,
                discarded: counts.discarded,
            }
        };
        self.plan.chains.iter().enumerate().map(chain).collect()
    }

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
