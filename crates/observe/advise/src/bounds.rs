//! Computes bounds of chains' latencies from the order in which executors run callbacks.
//!
//! An executor of one thread is never idle while something waits. So no callback's response time
//! exceeds `L`, the longest time in which the executor has work without a pause. `L` is the least
//! solution of
//!
//! ```text
//! L = sum over all j: n_j(L) W_j
//! ```
//!
//! Here `W` is the longest measured time from a callback's start to its end. `n_j(t)` is how often
//! it can be released in `t`.
//!
//! The executor fetches ready callbacks only when all that it had fetched have run. So each other
//! subscription, service or client runs once in the current window. It also runs once in each
//! window of the `p` instances of the callback that wait.
//!
//! Timers count as often as they can be due (Casini, Blaß,
//! Lütkebohle, Brandenburg, ECRTS 2019; Blaß, Hamann, Lange, Ziegenbein, Brandenburg, RTSS 2021:
//! starvation freedom). An execution within a time `t` was released in `t`, or at most its own
//! response time `R_j` before:
//!
//! ```text
//! R_i = p_i W_i + sum over others j: min(n_j(R_i + R_j), p_i + 1) W_j,  p_i = n_i(R_i)
//! ```
//!
//! For timers the minimum does not apply. The smaller of both bounds holds. It rests on the
//! measured values, so a later execution that takes longer can exceed it.

use crate::view::View;
use onbeat_document::schema::{Callback, CallbackType, Chain, Junction, JunctionKind};
use onbeat_document::Model;
use std::collections::HashMap;

/// The limit of an executor's busy time, as a multiple of the longest period of the executor's
/// callbacks. onbeat computes no bound for an executor that is busy for longer without a pause.
const PERIODS_MAX: u64 = 1000;
const ROUNDS: usize = 20;
/// The largest number of steps in the search for a bound. The limit ends the search even for a
/// damaged model.
const STEPS: usize = 10_000;
/// The largest number of callbacks of an executor for which onbeat computes a bound for each of
/// them. The time for this grows with the square of their number. With more callbacks, the bound of
/// all is `L`.
const REFINED: usize = 500;

/// The reason why a chain has no bound. The ids of callbacks in it come from the recorded program
/// and are untrusted.
#[derive(Debug, Clone, PartialEq)]
pub enum NoBound {
    /// The named callback does not run on an executor of one thread.
    NoExecutor(String),
    /// The chain waits for items of other inputs at the named synchroniser. The arrival of these
    /// items has no bound.
    Junction(String),
    /// The executor of the named callback cannot do all its work in time if callbacks take their
    /// longest times.
    Overloaded(String),
    /// A figure of the named callback was not measured: its period, its execution time, or the time
    /// that items take to reach its executor.
    Unmeasured(String),
}

impl NoBound {
    /// Returns the reason as a sentence for a report.
    pub fn sentence(&self) -> String {
        match self {
            NoBound::NoExecutor(id) => format!("{id} does not run on an executor with a single thread. onbeat computes bounds only for executors with a single thread"),
            NoBound::Junction(id) => format!("the chain waits at the synchroniser {id} for other inputs, whose arrival has no bound"),
            NoBound::Overloaded(id) => {
                format!(
                    "the executor of {id} may get more work than it can do, if callbacks take their longest times"
                )
            }
            NoBound::Unmeasured(id) => format!("the period or the execution time of {id}, or the time that items take to reach it, was not measured"),
        }
    }
}

/// The upper bound of the latency that one callback adds to a chain.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq)]
pub struct StepBound {
    pub callback: String,
    /// The longest measured time, in ns, from an item's publication until the item reached the
    /// callback's executor.
    pub transport_ns: u64,
    /// The bound of the time, in ns, from the item's arrival at the callback's executor to the
    /// callback's end. For the first callback of a chain, this time begins at the callback's start.
    pub response_ns: u64,
    /// The part of `response_ns`, in ns, in which other callbacks of the same executor run.
    pub others_ns: u64,
}

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq)]
pub struct ChainBound {
    pub chain: usize,
    /// The longest measured latency of the chain, in ns.
    pub measured_ns: u64,
    /// The bounds of the chain's callbacks, or the reason why the chain has no bound. The chain's
    /// bound is the sum of its callbacks' bounds.
    pub steps: Result<Vec<StepBound>, NoBound>,
}

impl ChainBound {
    /// Returns the upper bound of the chain's latency in ns, or `None` if the chain has none.
    pub fn bound_ns(&self) -> Option<u64> {
        let steps = self.steps.as_ref().ok()?;
        let each = steps
            .iter()
            .map(|s| s.transport_ns.saturating_add(s.response_ns));
        Some(each.fold(0, u64::saturating_add))
    }
}

/// Returns an upper bound of the latency of each chain in `order`, a list of chain indices in the
/// model. The bounds are in the order of this list.
pub fn bounds(model: &Model, order: &[usize]) -> Vec<ChainBound> {
    let view = View::of(model, order);
    let mut known = Responses::new();
    let of = |(i, chain): (usize, &Chain)| ChainBound {
        chain: i,
        measured_ns: chain.figures.latency_ns.max(),
        steps: steps(&view, &mut known, chain),
    };
    view.chains().map(of).collect()
}

fn steps<'m>(
    view: &View<'m>,
    known: &mut Responses<'m>,
    chain: &Chain,
) -> Result<Vec<StepBound>, NoBound> {
    let mut joins = view.model.junctions.iter();
    let waits =
        |j: &&Junction| j.kind == JunctionKind::And && chain.callbacks.contains(&j.callback);
    if let Some(join) = joins.find(waits) {
        return Err(NoBound::Junction(join.callback.clone()));
    }
    let mut all = Vec::new();
    for step in view.steps(chain) {
        let callback = step.callback;
        let (response_ns, others_ns) = match step.from {
            None if chain.from_input || !all.is_empty() => {
                return Err(NoBound::Unmeasured(format!("the way to {}", callback.id)))
            }
            Some((edge, _)) if edge.figures.transport_ns.count() == 0 => {
                return Err(NoBound::Unmeasured(format!("the way to {}", callback.id)))
            }
            None => (longest(callback)?, 0),
            Some(_) => response(view, known, callback)?,
        };
        all.push(StepBound {
            callback: callback.id.clone(),
            transport_ns: step.from.map_or(0, |(e, _)| e.figures.transport_ns.max()),
            response_ns,
            others_ns,
        });
    }
    Ok(all)
}

fn longest(callback: &Callback) -> Result<u64, NoBound> {
    let f = &callback.figures;
    match f.exec_ns.count() {
        0 => Err(NoBound::Unmeasured(callback.id.clone())),
        _ => {
            let parts = [&f.exec_ns, &f.preempted_ns, &f.blocked_ns];
            Ok(parts
                .map(|d| d.max())
                .into_iter()
                .fold(0, u64::saturating_add))
        }
    }
}

struct Load {
    is_timer: bool,
    longest_ns: u64,
    period_ns: u64,
    earliness_ns: u64,
    response: u64,
}

impl Load {
    fn of(callback: &Callback) -> Result<Load, NoBound> {
        let between = &callback.figures.interarrival_ns;
        let period_ns = callback.period_ns.unwrap_or(between.mean() as u64);
        if period_ns == 0 {
            return Err(NoBound::Unmeasured(callback.id.clone()));
        }
        let earliness_ns = match between.count() {
            0 => 0,
            _ => period_ns.saturating_sub(between.min()),
        };
        Ok(Load {
            is_timer: callback.kind == CallbackType::Timer,
            longest_ns: longest(callback)?,
            period_ns,
            earliness_ns,
            response: 0,
        })
    }

    fn releases(&self, within: u64) -> u64 {
        let within = within.saturating_add(self.earliness_ns);
        within.div_ceil(self.period_ns).max(1)
    }
}

/// Returns the shortest interval, in ns, that is long enough for all work that arrives within it.
/// `work` returns the duration of the work that arrives within an interval of a given length.
/// Returns `None` if the interval exceeds `limit`, or is not found in [`STEPS`] steps.
fn settle(limit: u64, work: impl Fn(u64) -> u64) -> Option<u64> {
    let mut time = 1;
    for _ in 0..STEPS {
        let next = work(time);
        if next > limit {
            return None;
        }
        if next <= time {
            return Some(time);
        }
        time = next;
    }
    None
}

/// Computes the bounds of the response times of an executor's callbacks, and stores them in
/// `loads`. Returns false, without bounds, if the executor may get more work than it can do.
fn responses(loads: &mut [Load]) -> bool {
    let all = |t: u64| -> u64 {
        let each = loads
            .iter()
            .map(|l| l.releases(t).saturating_mul(l.longest_ns));
        each.fold(0, u64::saturating_add)
    };
    let largest = loads.iter().map(|l| l.period_ns.max(l.longest_ns)).max();
    let limit = largest.unwrap_or(0).saturating_mul(PERIODS_MAX);
    let Some(busy) = settle(limit, all) else {
        return false;
    };
    loads.iter_mut().for_each(|l| l.response = busy);
    let rounds = if loads.len() > REFINED { 0 } else { ROUNDS };
    // Each smaller bound makes others smaller.
    for _ in 0..rounds {
        let mut is_smaller = false;
        for i in 0..loads.len() {
            let now = loads[i].response;
            let windows = loads[i].releases(now);
            let work = |t: u64| -> u64 {
                let others = loads.iter().enumerate().filter(|(j, _)| *j != i);
                let times = |l: &Load| match (l.releases(t.saturating_add(l.response)), l.is_timer)
                {
                    (times, true) => times,
                    (times, false) => times.min(windows + 1),
                };
                let others = others.map(|(_, l)| times(l).saturating_mul(l.longest_ns));
                let own = windows.saturating_mul(loads[i].longest_ns);
                others.fold(own, u64::saturating_add)
            };
            if let Some(response) = settle(now, work).filter(|r| *r < now) {
                loads[i].response = response;
                is_smaller = true;
            }
        }
        if !is_smaller {
            break;
        }
    }
    true
}

/// The bounds of response times of each executor that a chain needed so far, in ns, by callback.
/// `None` if the executor may get more work than it can do.
type Responses<'m> = HashMap<usize, Result<Option<HashMap<&'m str, u64>>, NoBound>>;

/// Returns the bound of a callback's response time, and the part of this bound in which other
/// callbacks run, both in ns.
fn response<'m>(
    view: &View<'m>,
    known: &mut Responses<'m>,
    callback: &Callback,
) -> Result<(u64, u64), NoBound> {
    let executor = view.executor(callback);
    let single = executor.filter(|&i| view.model.executors[i].threads == 1);
    let executor = single.ok_or_else(|| NoBound::NoExecutor(callback.id.clone()))?;
    let own = longest(callback)?;
    Load::of(callback)?;
    let all = known.entry(executor).or_insert_with(|| {
        let callbacks = view.on_executor(executor);
        let mut loads = callbacks
            .iter()
            .map(|c| Load::of(c))
            .collect::<Result<Vec<_>, _>>()?;
        let has_bound = responses(&mut loads);
        let each = callbacks.iter().zip(&loads);
        Ok(has_bound.then(|| each.map(|(c, l)| (c.id.as_str(), l.response)).collect()))
    });
    let all = all.as_ref().map_err(NoBound::clone)?.as_ref();
    let response = all.and_then(|all| all.get(callback.id.as_str()).copied());
    let response = response.ok_or_else(|| NoBound::Overloaded(callback.id.clone()))?;
    Ok((response, response.saturating_sub(own)))
}
