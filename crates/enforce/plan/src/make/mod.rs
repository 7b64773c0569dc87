//! Makes a plan from a model and a request.
//!
//! Each strategy lays out servers and promises (`servers`, `bands`, `logical`). `finish` adds the
//! parts that all plans have.

mod bands;
mod finish;
mod logical;
mod noisy;
mod others;
mod servers;

use crate::beside::lowest_priority;
use crate::check::validate;
use crate::error::PlanError;
use crate::fault::{PlanFault, MAX_CYCLE_NS};
use crate::request::{Request, Strategy};
use crate::schema::{Ms, Plan, Promises, Server, Slot, MAX_PRIORITY};
use crate::scope::{Publication, Scope};
use onbeat_document::Model;
use std::collections::BTreeSet;

const STEP_NS: u64 = 100_000;

/// The shortest and the longest slot, in ns, that onbeat derives from the measured transport: the
/// time from a message's publication until its executor has it.
const SLOT_NS: (u64, u64) = (500_000, 2_000_000);

/// The length of a slot in the thesis, in ns. onbeat uses this length if the model has no transport
/// times of messages.
const DEFAULT_SLOT_NS: u64 = 1_000_000;

/// The length of the throttler's slot in the thesis (Table 4.3), in ns. onbeat uses this length if
/// the model has no transport times of messages.
const THROTTLE_NS: u64 = 2_000_000;

const LEAST_EPSILON_NS: u64 = 500_000;

const MAX_LATENCY_NS: u64 = 864_000_000_000_000;

const OUTPUTS: &str = "delta";

/// Makes the plan that `request` describes.
///
/// The strategies are those of the thesis: Definitions 4.1.1 and 4.3.1 to 4.3.4, section 4.4.1,
/// sections 4.5.3 (LET) and 4.5.4 (several sinks and CPUs). The plan differs from the thesis in two
/// points:
///
/// - The output server (R_delta) has a priority one above the latency server's (R_gamma). Their
///   slots may overlap, and equal priorities would leave the order open.
/// - Several sinks share one output server, whose slots are placed for all their executions
///   together.
///
/// # Errors
/// Fails if the model has no such chain, or if the chain does not fit into a plan of this strategy:
/// see [`PlanError`].
pub fn plan(model: &Model, request: &Request) -> Result<Plan, PlanError> {
    // The output server has the priority above.
    let max = MAX_PRIORITY - 1;
    if !(1..=max).contains(&request.priority) {
        return Err(PlanError::Priority {
            asked: request.priority,
            max,
        });
    }
    match request.may_leave_out() {
        true => noisy::plan(model, request),
        false => without(model, request, 0),
    }
}

fn without(model: &Model, request: &Request, leave_out: u64) -> Result<Plan, PlanError> {
    let scope = Scope::new(model, request, leave_out)?;
    if !(1..=MAX_CYCLE_NS).contains(&scope.cycle_ns) {
        let cycle = Ms(scope.cycle_ns);
        return Err(PlanFault::Cycle { cycle }.into());
    }
    if scope.latency.max() > MAX_LATENCY_NS {
        let times = (scope.latency.max(), scope.cycle_ns);
        return Err(too_long(&scope, request, "executions of the chain", times));
    }
    if request.outputs.miss.is_some() && !request.strategy.has_bands() {
        return Err(PlanError::MissStrategy);
    }
    goes_behind(&scope, request)?;
    let maker = Maker::new(&scope, request)?;
    let layout = match request.strategy {
        Strategy::Fifo => maker.fifo(),
        Strategy::ServerPerCallback => maker.server_per_callback()?,
        Strategy::ServerPerChain => maker.server_per_chain()?,
        Strategy::Bands(_)
        | Strategy::AutoBands
        | Strategy::Average(_)
        | Strategy::RandomBands { .. } => maker.bands()?,
        Strategy::LetPerCallback => maker.let_per_callback()?,
        Strategy::LetPerChain => maker.let_per_chain()?,
    };
    let plan = maker.finish(layout)?;
    validate(&plan)?;
    Ok(plan)
}

fn too_long(
    scope: &Scope<'_>,
    request: &Request,
    what: &str,
    (need_ns, have_ns): (u64, u64),
) -> PlanError {
    let (slowest_ns, usual_ns) = (scope.latency.max(), scope.latency.quantile(0.99));
    let fits = need_ns.saturating_sub(slowest_ns.saturating_sub(usual_ns)) <= have_ns;
    let can_miss = request.strategy.has_bands() && request.outputs.miss.is_none();
    // Percentiles are only as exact as their buckets.
    let rounded = |ns: u64| Ms(ns.saturating_add(5_000) / 10_000 * 10_000);
    PlanError::TooLong {
        what: what.into(),
        need: Ms(need_ns),
        have: Ms(have_ns),
        slowest: rounded(slowest_ns),
        usual: rounded(usual_ns),
        remedy: match fits && can_miss {
            true => "Plan without the slowest 1 % of the executions: --miss 1%.".into(),
            false => "Make the chain's callbacks faster, or its period longer.".into(),
        },
    }
}

fn goes_behind(scope: &Scope<'_>, request: &Request) -> Result<(), PlanError> {
    if request.beside.is_empty() {
        return Ok(());
    }
    if request.strategy.is_about_slots() {
        return Err(PlanError::BesideStrategy {
            strategy: request.strategy.name(),
        });
    }
    // The outputs have one priority above the chain's.
    let cpus = scope.cpus();
    let most =
        lowest_priority(&request.beside, |cpu| cpus.contains(&cpu)).map(|p| p.saturating_sub(2));
    match most.filter(|&most| request.priority > most) {
        Some(most) => Err(PlanError::Behind {
            asked: request.priority,
            most,
        }),
        None => Ok(()),
    }
}

struct Layout<'m> {
    servers: Vec<Server>,
    held: Vec<Publication<'m>>,
    promises: Promises,
    output_ns: u64,
}

struct Maker<'a, 'm> {
    scope: &'a Scope<'m>,
    request: &'a Request,
    /// The time from the publication of a throttled input to the start of the chain's first
    /// callback. It is 0 if no input is throttled.
    input_delay_ns: u64,
    /// The part of `input_delay_ns` that the measured latencies do not contain.
    start_ns: u64,
    let_in_ns: u64,
    /// The time by which executions can be longer than measured, because other callbacks run on the
    /// same threads or CPUs.
    added_ns: u64,
    /// The longest time from the release of the chain's first callback to its start. Other
    /// callbacks on its executor or CPU cause this delay.
    late_ns: u64,
}

fn round_up(ns: u64) -> u64 {
    ns.saturating_add(STEP_NS - 1) / STEP_NS * STEP_NS
}

pub(crate) fn buffered(worst_ns: u64) -> u64 {
    round_up(worst_ns.saturating_add((worst_ns / 100).max(LEAST_EPSILON_NS)))
}

fn round_down(ns: u64) -> u64 {
    ns / STEP_NS * STEP_NS
}

pub(crate) fn millionths(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

fn slot(start: u64, end: u64) -> Slot {
    Slot(Ms(start), Ms(end))
}

impl<'a, 'm> Maker<'a, 'm> {
    fn new(scope: &'a Scope<'m>, request: &'a Request) -> Result<Self, PlanError> {
        let let_in_ns = Self::let_in_ns(scope, scope.inputs.len());
        let handover = scope.handover_ns().filter(|_| !scope.inputs.is_empty());
        let input_delay_ns = let_in_ns.max(handover.map_or(0, round_up));
        let input_delay_ns = input_delay_ns.min(scope.cycle_ns);
        let whole = scope.chains.iter().all(|c| c.from_input);
        Ok(Maker {
            scope,
            request,
            input_delay_ns,
            start_ns: if whole { 0 } else { input_delay_ns },
            let_in_ns,
            added_ns: others::added_ns(scope, request.strategy)?,
            late_ns: others::late_ns(scope, request.strategy),
        })
    }

    fn worst_ns(&self) -> u64 {
        self.scope.latency.max().saturating_add(self.added_ns)
    }

    fn last_end_ns(&self) -> u64 {
        self.worst_ns().saturating_add(self.late_ns)
    }

    /// Returns the length of the throttler's slot for `inputs` inputs, in ns. Each input gets the
    /// time in which 99 % of the chain's messages reached their executor, within the limits
    /// [`SLOT_NS`]. If this time was not measured, the slot is [`THROTTLE_NS`] long.
    fn let_in_ns(scope: &Scope<'_>, inputs: usize) -> u64 {
        let all = match scope.transport_ns() {
            _ if inputs == 0 => 0,
            Some(measured) => {
                let one = round_up(measured).clamp(SLOT_NS.0, SLOT_NS.1);
                one.saturating_mul(inputs as u64)
            }
            None => THROTTLE_NS,
        };
        all.min(scope.cycle_ns)
    }

    fn with_epsilon(&self, worst_ns: u64) -> u64 {
        match self.request.outputs.epsilon_ns {
            Some(epsilon) => worst_ns.saturating_add(epsilon),
            None => buffered(worst_ns),
        }
    }

    fn slot_ns(&self, outputs: usize) -> Result<u64, PlanError> {
        let cycle = self.scope.cycle_ns;
        let slot = match self.request.outputs.slot_ns {
            Some(asked) => asked,
            None => {
                let one = match self.scope.transport_ns() {
                    Some(measured) => round_up(measured).clamp(SLOT_NS.0, SLOT_NS.1),
                    None => DEFAULT_SLOT_NS,
                };
                one.saturating_mul(outputs.max(1) as u64)
            }
        };
        if slot == 0 || slot >= cycle {
            return Err(PlanError::Slot {
                slot: Ms(slot),
                cycle: Ms(cycle),
            });
        }
        Ok(slot)
    }

    fn fits(&self, what: &str, need_ns: u64, have_ns: u64) -> Result<(), PlanError> {
        if need_ns <= have_ns {
            return Ok(());
        }
        // The others are the cause if the chain alone would fit.
        if need_ns.saturating_sub(self.added_ns) <= have_ns {
            return Err(others::too_long(
                self.scope,
                what,
                self.added_ns,
                (need_ns, have_ns),
            ));
        }
        let times = (need_ns, have_ns);
        Err(too_long(self.scope, self.request, what, times))
    }

    /// Returns the slot [0, worst case + epsilon] of the latency server (Definition 4.3.1). With a
    /// throttled input, the slot includes the time that the first callback's executor needs before
    /// this callback starts.
    fn chain_slot(&self) -> Slot {
        let end = self.with_epsilon(self.last_end_ns());
        slot(0, self.start_ns.saturating_add(end))
    }

    fn last_publications(&self) -> Result<Vec<Publication<'m>>, PlanError> {
        let all: Result<BTreeSet<_>, _> = self
            .scope
            .chains
            .iter()
            .map(|c| self.scope.last_publication(c))
            .collect();
        Ok(all?.into_iter().collect())
    }
}
