//! Bounds of chains' latencies from the executors' order, beside what was measured.
//!
//! An executor of one thread is never idle while something waits. So no callback ends later after its release
//! than the longest time in which the executor has work without a pause, `L`, the least solution of
//!
//! ```text
//! L = sum over all j: n_j(L) W_j
//! ```
//!
//! where `W` is the longest that a callback was measured to take from its start to its end, and `n_j(t)` how
//! often it can be released in `t`. And it fetches what is ready only when all that it had fetched has run: each
//! other subscription, service or client runs once in the window that is under way, and once in each window
//! of the `p` instances of the callback that wait. Timers count as often as they can be due (Casini, Blaß,
//! Lütkebohle, Brandenburg, ECRTS 2019; Blaß, Hamann, Lange, Ziegenbein, Brandenburg, RTSS 2021: starvation
//! freedom). What runs in a time `t` was released in it, or at most its own response time `R_j` before:
//!
//! ```text
//! R_i = p_i W_i + sum over others j: min(n_j(R_i + R_j), p_i + 1) W_j,  p_i = n_i(R_i)
//! ```
//!
//! without the minimum for timers. The smaller of both holds. It holds as far as the measured values do: it is
//! no bound without exception.

use crate::view::View;
use onbeat_document::schema::{Callback, CallbackType, Chain, Junction, JunctionKind};
use onbeat_document::Model;

/// An executor that has work without a pause for so many of its callbacks' longest period has no bound.
const PERIODS_MAX: u64 = 1000;
/// Rounds in which bounds are made smaller.
const ROUNDS: usize = 20;
/// Steps in which a bound is looked for: a model may come from anywhere.
const STEPS: usize = 10_000;

/// Why a chain has no bound. Ids are untrusted.
#[derive(Debug, Clone, PartialEq)]
pub enum NoBound {
    /// No executor of one thread runs this callback.
    NoExecutor(String),
    /// It waits at this callback for items of other inputs.
    Junction(String),
    /// The executor cannot do all that comes in time, as far as the longest times show.
    Overloaded(String),
    /// How often this callback runs, or how long, was not measured.
    Unmeasured(String),
}

impl NoBound {
    /// A sentence.
    pub fn sentence(&self) -> String {
        match self {
            NoBound::NoExecutor(id) => format!("no executor of one thread runs {id}"),
            NoBound::Junction(id) => format!("it waits for other inputs at {id}"),
            NoBound::Overloaded(id) => {
                format!(
                    "the executor of {id} may get more work than it can do, by the longest times"
                )
            }
            NoBound::Unmeasured(id) => format!("too little was measured of {id}"),
        }
    }
}

/// A callback of a chain.
#[derive(Debug, Clone, PartialEq)]
pub struct StepBound {
    /// Its id (untrusted).
    pub callback: String,
    /// The longest way to it that was measured, ns: transport of the edge.
    pub transport_ns: u64,
    /// From the item's arrival to the callback's end, ns; of the first callback from its start.
    pub response_ns: u64,
    /// The part of it in which others run.
    pub others_ns: u64,
}

/// A chain's bound.
#[derive(Debug, Clone, PartialEq)]
pub struct ChainBound {
    /// Its place in the model.
    pub chain: usize,
    /// The longest latency that was measured, ns.
    pub measured_ns: u64,
    /// Its steps, the sum of which is the bound; or why there is none.
    pub steps: Result<Vec<StepBound>, NoBound>,
}

impl ChainBound {
    /// The bound, ns.
    pub fn bound_ns(&self) -> Option<u64> {
        let steps = self.steps.as_ref().ok()?;
        let each = steps
            .iter()
            .map(|s| s.transport_ns.saturating_add(s.response_ns));
        Some(each.fold(0, u64::saturating_add))
    }
}

/// The bounds of these chains, by their place in the model.
pub fn bounds(model: &Model, order: &[usize]) -> Vec<ChainBound> {
    let view = View::of(model, order);
    let of = |(i, chain): (usize, &Chain)| ChainBound {
        chain: i,
        measured_ns: chain.figures.latency_ns.max(),
        steps: steps(&view, chain),
    };
    view.chains().map(of).collect()
}

fn steps(view: &View<'_>, chain: &Chain) -> Result<Vec<StepBound>, NoBound> {
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
            Some(_) => response(view, callback)?,
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

/// The longest from a callback's start to its end: it runs, is preempted, sleeps.
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

/// A callback of an executor, in ns.
struct Load {
    is_timer: bool,
    takes: u64,
    usual: u64,
    sooner: u64,
    /// The bound of its response time.
    response: u64,
}

impl Load {
    fn of(callback: &Callback) -> Result<Load, NoBound> {
        let between = &callback.figures.interarrival_ns;
        let usual = callback.period_ns.unwrap_or(between.mean() as u64);
        if usual == 0 {
            return Err(NoBound::Unmeasured(callback.id.clone()));
        }
        let sooner = match between.count() {
            0 => 0,
            _ => usual.saturating_sub(between.min()),
        };
        Ok(Load {
            is_timer: callback.kind == CallbackType::Timer,
            takes: longest(callback)?,
            usual,
            sooner,
            response: 0,
        })
    }

    /// How often it can be released in a time.
    fn releases(&self, within: u64) -> u64 {
        let within = within.saturating_add(self.sooner);
        within.div_ceil(self.usual).max(1)
    }
}

/// The least time that is as long as the work that can come in it; none up to `limit`, or where it is not found.
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

/// The bounds of the response times of an executor's callbacks. False: it may get more than it can do.
fn responses(loads: &mut [Load]) -> bool {
    let all = |t: u64| -> u64 {
        let each = loads.iter().map(|l| l.releases(t).saturating_mul(l.takes));
        each.fold(0, u64::saturating_add)
    };
    let largest = loads.iter().map(|l| l.usual.max(l.takes)).max();
    let limit = largest.unwrap_or(0).saturating_mul(PERIODS_MAX);
    let Some(busy) = settle(limit, all) else {
        return false;
    };
    loads.iter_mut().for_each(|l| l.response = busy);
    // Each smaller bound makes others smaller.
    for _ in 0..ROUNDS {
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
                let others = others.map(|(_, l)| times(l).saturating_mul(l.takes));
                let own = windows.saturating_mul(loads[i].takes);
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

/// The bound of a callback's response time, and the part of it that is others'.
fn response(view: &View<'_>, callback: &Callback) -> Result<(u64, u64), NoBound> {
    let executor = view.executor(callback).map(|i| &view.model.executors[i]);
    if executor.is_none_or(|e| e.threads != 1) {
        return Err(NoBound::NoExecutor(callback.id.clone()));
    }
    let own = longest(callback)?;
    let beside = view.beside(callback);
    let all = [callback].into_iter().chain(beside);
    let mut loads = all.map(Load::of).collect::<Result<Vec<_>, _>>()?;
    if !responses(&mut loads) {
        return Err(NoBound::Overloaded(callback.id.clone()));
    }
    let response = loads[0].response;
    Ok((response, response.saturating_sub(own)))
}
