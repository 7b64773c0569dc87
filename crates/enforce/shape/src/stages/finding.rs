//! The stage in which the application runs as it would without onbeat. It ends when all callbacks
//! of the plan are found and the releases of the first one are known to lie on a grid.

use crate::error::ShapeError;
use crate::launch::moves;
use crate::observe::{Phase, Releases};
use crate::shaper::ShaperError;
use onbeat_plan::Plan;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const STARTS: usize = 12;

/// A limit as a divisor. The session waits until throttled inputs are steady. It waits at most for
/// the time limit for finding all callbacks, divided by this number.
const STEADY_PART: u32 = 4;

pub(crate) struct Finding {
    began: Instant,
    starts: VecDeque<u64>,
}

pub(crate) struct ShaperView<'s> {
    pub(crate) is_ready: bool,
    pub(crate) arrivals: Vec<&'s VecDeque<u64>>,
}

impl Finding {
    pub(crate) fn new() -> Finding {
        Finding {
            began: Instant::now(),
            starts: VecDeque::with_capacity(STARTS),
        }
    }

    pub(crate) fn started(&mut self, start_ns: u64) {
        if self.starts.len() == STARTS {
            self.starts.pop_front();
        }
        self.starts.push_back(start_ns);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the phase with which shaping can begin, or `None` if a callback or an input is still
    /// missing. `missing` are the callbacks that have not run often enough.
    ///
    /// # Errors
    ///
    /// Fails if a callback or an input is missing when the time limit is over.
    pub(crate) fn poll(
        &self,
        plan: &Plan,
        missing: Vec<String>,
        shaper: &ShaperView,
        (elapsed, within): (Duration, Duration),
    ) -> Result<Option<Phase>, ShapeError> {
        let is_over = elapsed >= within;
        let is_found = missing.is_empty() && self.starts.len() >= STARTS;
        if is_found && shaper.is_ready {
            let may_wait = elapsed < within / STEADY_PART;
            return self.phase(plan, shaper, is_over, may_wait);
        }
        match (is_over, is_found) {
            (false, _) => Ok(None),
            (true, true) => Err(no_endpoints(plan, within)),
            (true, false) => Err(ShapeError::NotSeen {
                callbacks: match missing.is_empty() {
                    true => vec![plan.origin.clone()],
                    false => missing,
                },
                within_s: within.as_secs(),
            }),
        }
    }

    fn phase(
        &self,
        plan: &Plan,
        shaper: &ShaperView,
        is_over: bool,
        may_wait: bool,
    ) -> Result<Option<Phase>, ShapeError> {
        let cycle_ns = plan.cycle_ms.0;
        let starts: Vec<u64> = self.starts.iter().copied().collect();
        if !plan.inputs.is_empty() {
            // The throttler sets the cycle, after its inputs if they are periodic. While inputs are
            // not steady, the origin would have to move far later.
            let arrivals = || shaper.arrivals.iter().copied();
            if may_wait && Phase::may_settle(cycle_ns, arrivals()) {
                return Ok(None);
            }
            let behind = Phase::behind(cycle_ns, arrivals());
            return Ok(Some(
                behind.unwrap_or_else(|| Phase::new(cycle_ns, starts[0])),
            ));
        }
        match Phase::of(cycle_ns, &starts, Releases::of(&plan.origin)) {
            Ok(phase) => Ok(Some(phase)),
            // An application needs a while after its start until it is steady.
            Err(_) if !is_over => Ok(None),
            Err(spread_ns) => Err(ShapeError::NoGrid {
                callback: plan.origin.clone(),
                cycle_ms: cycle_ns as f64 / 1e6,
                spread_ms: spread_ns as f64 / 1e6,
            }),
        }
    }
}

fn no_endpoints(plan: &Plan, within: Duration) -> ShapeError {
    let moves = moves(plan);
    let is_inside = moves.iter().all(|m| m.held == m.topic);
    let topics: Vec<String> = moves.into_iter().map(|m| m.held).collect();
    let (within_s, topics) = (within.as_secs(), topics.join(", "));
    ShapeError::Shaper(match is_inside {
        true => ShaperError::NotInside { within_s, topics },
        false => ShaperError::NotReady { within_s, topics },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_plan::schema::Ms;

    const MS: u64 = 1_000_000;
    const EARLY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
    const LATE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(60));

    fn plan(with_inputs: bool) -> Plan {
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        let mut plan = onbeat_plan::file::read(text).expect("a plan");
        plan.cycle_ms = Ms(100 * MS);
        if !with_inputs {
            plan.inputs.clear();
        }
        plan
    }

    fn finding(starts: impl Iterator<Item = u64>) -> Finding {
        let mut finding = Finding::new();
        starts.for_each(|s| finding.started(s));
        finding
    }

    fn on_grid() -> Finding {
        finding((0..20).map(|n| (n * 100 + 7) * MS))
    }

    fn ready() -> ShaperView<'static> {
        ShaperView {
            is_ready: true,
            arrivals: Vec::new(),
        }
    }

    #[test]
    fn shaping_begins_as_soon_as_callbacks_phase_and_shaper_are_ready() {
        let plan = plan(false);
        let found = on_grid().poll(&plan, vec![], &ready(), EARLY);
        let phase = found.expect("no error").expect("a phase");
        assert_eq!(phase.origin_ns() % (100 * MS), 7 * MS);
        let few = finding((0..11).map(|n| n * 100 * MS));
        assert!(matches!(few.poll(&plan, vec![], &ready(), EARLY), Ok(None)));
        let missing = || vec!["/a:timer(1ms)".to_owned()];
        let waits = on_grid().poll(&plan, missing(), &ready(), EARLY);
        assert!(matches!(waits, Ok(None)));
        let not_ready = ShaperView {
            is_ready: false,
            ..ready()
        };
        assert!(matches!(
            on_grid().poll(&plan, vec![], &not_ready, EARLY),
            Ok(None)
        ));
    }

    #[test]
    fn after_the_time_limit_the_error_names_the_missing_part() {
        let plan = plan(false);
        let error = |finding: &Finding, missing: &[&str], shaper: &ShaperView| {
            let missing = missing.iter().map(|m| (*m).to_owned()).collect();
            finding
                .poll(&plan, missing, shaper, LATE)
                .expect_err("an error")
        };
        let not_seen = error(&on_grid(), &["/a:timer(1ms)"], &ready());
        assert!(not_seen
            .to_string()
            .starts_with("/a:timer(1ms) did not run within 60 s"));
        let few = finding((0..11).map(|n| n * 100 * MS));
        let few = error(&few, &[], &ready());
        assert!(few.to_string().starts_with(&plan.origin), "{few}");
        let not_ready = ShaperView {
            is_ready: false,
            ..ready()
        };
        let no_endpoints = error(&on_grid(), &[], &not_ready);
        assert!(
            no_endpoints
                .to_string()
                .contains("no endpoints within 60 s"),
            "{no_endpoints}"
        );
        let wild = finding((0..20).map(|n| n * 137 * MS));
        let no_grid = error(&wild, &[], &ready());
        assert!(
            no_grid.to_string().contains("does not start on a grid"),
            "{no_grid}"
        );
        assert!(matches!(
            wild.poll(&plan, vec![], &ready(), EARLY),
            Ok(None)
        ));
    }

    #[test]
    fn the_cycle_of_a_throttler_follows_its_inputs() {
        let plan = plan(true);
        let wild = || finding((0..20).map(|n| n * 137 * MS));
        let at = |arrivals: &VecDeque<u64>| {
            let shaper = ShaperView {
                is_ready: true,
                arrivals: vec![arrivals],
            };
            let found = |time| wild().poll(&plan, vec![], &shaper, time).expect("no error");
            let origin = |phase: Phase| phase.origin_ns() % (100 * MS);
            (found(EARLY).map(origin), found(LATE).map(origin))
        };
        // Shaping begins after the periodic input. Without one, onbeat waits because the input may
        // still become periodic, and then begins at the first known start.
        let on_grid = |count| (0..count).map(|n| (n * 100 + 10) * MS);
        assert_eq!(at(&on_grid(20).collect()), (Some(20 * MS), Some(20 * MS)));
        assert_eq!(at(&on_grid(12).collect()), (None, Some(20 * MS)));
        let first = Some(8 * 137 * MS % (100 * MS));
        assert_eq!(at(&VecDeque::new()), (None, first));
        // Arrivals while the application starts do not show where inputs will come.
        let starting = (0..8).map(|n| (n * 100 + 90 - 10 * n) * MS);
        let started = (8..28).map(|n| (n * 100 + 10) * MS);
        let all: VecDeque<u64> = starting.clone().chain(started).collect();
        assert_eq!(at(&all), (Some(20 * MS), Some(20 * MS)));
        let (early, _) = at(&on_grid(20).skip(10).chain(starting).collect());
        assert_eq!(early, None, "they scatter");
        // onbeat does not wait for an input that will not become periodic.
        let wild: VecDeque<u64> = (0..32).map(|n| n * 137 * MS).collect();
        assert_eq!(at(&wild), (first, first));
    }
}
