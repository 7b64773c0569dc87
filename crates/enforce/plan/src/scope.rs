//! Collects the part of a model that a plan covers: chains, their callbacks in order, CPUs, the
//! cycle.

use crate::beside::Beside;
use crate::chains;
use crate::error::PlanError;
use crate::executors::{Executors, Group, Other, Placed};
use crate::request::Request;
use crate::schema::{ChainRef, Ms, Throttle};
use crate::slowest::Slowest;
use crate::sources;
use onbeat_document::schema::{Callback, CallbackType, Chain, EdgeFigures, Model};
use onbeat_document::Dist;
use std::collections::{BTreeMap, BTreeSet};

/// The starts of a chain's first callback count as periodic if the times between them deviate from
/// the period by at most this share of the period.
const STEADY: f64 = 0.25;

#[derive(Debug)]
pub(crate) struct Part<'m> {
    pub(crate) callback: &'m Callback,
    pub(crate) cpu: u16,
    pub(crate) before: Vec<usize>,
    /// The longest time around an execution of the callback: the time from the publication of its
    /// input to its start, plus the time from its end to the synchroniser that it feeds. These
    /// times contain the executor's work and the wait for other inputs.
    pub(crate) around_worst_ns: u64,
    pub(crate) around_mean_ns: f64,
    /// The longest time that the callback can have taken in the chains: the chains' worst case
    /// minus the best cases of their other callbacks. Longer executions of the callback did not
    /// belong to these chains.
    most_ns: u64,
}

impl Part<'_> {
    /// Returns the longest time in ns from the callback's start to its end if no other thread
    /// preempts it: the longest execution time plus the longest time blocked. The result is at most
    /// the time that the callback can have taken in the chains (`most_ns`).
    pub(crate) fn worst_ns(&self) -> u64 {
        let f = &self.callback.figures;
        // This is a part of a redacted model. Its executions are unknown, but the time that its
        // chains leave for it is known.
        if f.exec_ns.count() == 0 && f.load > 0.0 {
            return self.most_ns;
        }
        let worst = f.exec_ns.max().saturating_add(f.blocked_ns.max());
        worst.min(self.most_ns)
    }

    pub(crate) fn mean_ns(&self) -> f64 {
        let f = &self.callback.figures;
        f.exec_ns.mean() + f.blocked_ns.mean()
    }

    pub(crate) fn best_ns(&self) -> u64 {
        self.callback.figures.exec_ns.min()
    }

    pub(crate) fn longest_exec_ns(&self, left_out: f64) -> u64 {
        let exec = &self.callback.figures.exec_ns;
        match left_out > 0.0 {
            true => exec.quantile(1.0 - left_out).min(self.most_ns),
            false => exec.max(),
        }
    }

    /// Returns the time in ns that the callback's server must have in a cycle: the longest
    /// execution and the longest time around it (`around_worst_ns`). The result is at most the time
    /// that the callback can have taken in the chains (`most_ns`).
    pub(crate) fn demand_ns(&self) -> u64 {
        let demand = self.worst_ns().saturating_add(self.around_worst_ns);
        demand.min(self.most_ns)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Publication<'m> {
    pub(crate) topic: &'m str,
    pub(crate) callback: &'m str,
    pub(crate) node: &'m str,
}

#[derive(Debug)]
pub(crate) struct Scope<'m> {
    pub(crate) model: &'m Model,
    pub(crate) chains: Vec<&'m Chain>,
    /// The callbacks in an order with predecessors first. Synchronisers have no threads and are
    /// left out.
    pub(crate) parts: Vec<Part<'m>>,
    /// The latencies of the chains' executions, without the slowest ones that the plan leaves out.
    pub(crate) latency: Dist,
    pub(crate) slowest: Slowest,
    pub(crate) origin: &'m Callback,
    pub(crate) cycle_ns: u64,
    pub(crate) beside: Beside<'m>,
    pub(crate) background: Vec<(&'m Callback, u16)>,
    pub(crate) inputs: Vec<Throttle>,
    pub(crate) executors: Executors<'m>,
    pub(crate) others: Vec<Other<'m>>,
}

/// Returns the longest and the mean time, in ns, that a message spends around a callback: on the
/// edge to the callback, plus on the edge from it to a synchroniser. Of several edges on one side,
/// the largest value counts. The server of the callback's thread must be open during this time as
/// well as during the callback.
fn around(model: &Model, callbacks: &BTreeMap<&str, &Callback>, id: &str) -> (u64, f64) {
    let feeds_sync = |to: &str| {
        callbacks
            .get(to)
            .is_some_and(|c| c.kind == CallbackType::Sync)
    };
    let (mut before, mut behind) = ((0, 0.0_f64), (0, 0.0_f64));
    for edge in &model.edges {
        let side = match edge {
            e if e.to == id => &mut before,
            e if e.from == id && feeds_sync(&e.to) => &mut behind,
            _ => continue,
        };
        let latency = &edge.figures.latency_ns;
        *side = (side.0.max(latency.max()), side.1.max(latency.mean()));
    }
    (before.0 + behind.0, before.1 + behind.1)
}

/// Returns the longest time in ns that a callback and the edges around it can have taken in any
/// measured execution of its chains with a latency of at most `kept_ns`.
fn most(chains: &[&Chain], callbacks: &BTreeMap<&str, &Callback>, id: &str, kept_ns: u64) -> u64 {
    let of = |chain: &&&Chain| chain.callbacks.iter().any(|c| c == id);
    let left = |chain: &&Chain| {
        let others = chain.callbacks.iter().filter(|c| *c != id);
        let known = others.filter_map(|c| callbacks.get(c.as_str()));
        let best: u64 = known.map(|c| c.figures.exec_ns.min()).sum();
        let worst = chain.figures.latency_ns.max().min(kept_ns);
        worst.saturating_sub(best)
    };
    chains.iter().filter(of).map(left).max().unwrap_or(u64::MAX)
}

fn latency(chains: &[&Chain]) -> Result<Dist, PlanError> {
    let mut latency = Dist::new();
    for chain in chains {
        if chain.figures.latency_ns.count() == 0 {
            return Err(PlanError::NoExecutions {
                chain: chain.id.clone(),
            });
        }
        latency.merge(&chain.figures.latency_ns);
    }
    Ok(latency)
}

impl<'m> Scope<'m> {
    pub(crate) fn new(
        model: &'m Model,
        request: &Request,
        leave_out: u64,
    ) -> Result<Self, PlanError> {
        let chains = match request.ends.is_empty() {
            true => chains::select(model, &request.chains)?,
            false => chains::chains_between(model, &request.ends)?,
        };
        let callbacks: BTreeMap<&str, &Callback> =
            model.callbacks.iter().map(|c| (c.id.as_str(), c)).collect();
        // `onbeat_document::file` checks this, but a model from elsewhere may differ.
        let known = |id: &str| {
            callbacks
                .get(id)
                .copied()
                .ok_or_else(|| PlanError::Unknown {
                    option: "--chain",
                    asked: id.into(),
                    place: "the model",
                })
        };
        let first = |c: &&'m Chain| c.callbacks.first().map_or("", String::as_str);
        let origin = first(&chains[0]);
        if let Some(other) = chains.iter().map(first).find(|&o| o != origin) {
            return Err(PlanError::Origins {
                a: origin.into(),
                b: other.into(),
            });
        }
        let origin = known(origin)?;
        let cpus = Cpus::new(model, request);
        let (latency, slowest) = Slowest::taken_from(&latency(&chains)?, leave_out);
        let mut parts: Vec<Part<'m>> = Vec::new();
        let mut index: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (id, before) in chains::order(&chains)? {
            let callback = known(id)?;
            let mut before: Vec<usize> = before.iter().flat_map(|b| index[b].clone()).collect();
            before.sort_unstable();
            before.dedup();
            if callback.kind == CallbackType::Sync {
                // A synchroniser runs within the callbacks that feed it.
                index.insert(id, before);
                continue;
            }
            if callback.kind == CallbackType::Thread {
                return Err(PlanError::OwnThread {
                    callback: callback.id.clone(),
                    topic: callback.outputs.first().cloned().unwrap_or_default(),
                });
            }
            if callback.figures.is_untimed() && callback.figures.load <= 0.0 {
                return Err(PlanError::Untimed {
                    callback: callback.id.clone(),
                });
            }
            index.insert(id, vec![parts.len()]);
            let (around_worst_ns, around_mean_ns) = around(model, &callbacks, id);
            parts.push(Part {
                callback,
                cpu: cpus.of(callback),
                before,
                // A time longer than the chain's was not part of it.
                around_worst_ns: around_worst_ns.min(latency.max()),
                around_mean_ns: around_mean_ns.min(latency.mean()),
                most_ns: most(&chains, &callbacks, id, latency.max()),
            });
        }
        let executors = Executors::new(model);
        let ours: Vec<&Callback> = parts.iter().map(|p| p.callback).collect();
        let beside = Beside::new(model, &executors, &ours, request)?;
        for part in &mut parts {
            let owner = beside.owner_cpu(executors.of(part.callback));
            part.cpu = owner.unwrap_or(part.cpu);
        }
        let mut others = executors.others(&placed(&parts));
        // Those of the plans beside count at any phase already.
        others.retain(|o| beside.others.iter().all(|b| b.callback.id != o.callback.id));
        let mut scope = Scope {
            model,
            chains,
            others,
            beside,
            executors,
            parts,
            latency,
            slowest,
            origin,
            cycle_ns: cycle(origin, request)?,
            background: vec![],
            inputs: sources::throttled(model, request)?,
        };
        scope.background = scope.find_background(request, &cpus)?;
        scope.check_cpus(request)?;
        Ok(scope)
    }

    fn find_background(
        &self,
        request: &Request,
        cpus: &Cpus<'_>,
    ) -> Result<Vec<(&'m Callback, u16)>, PlanError> {
        let parts = self.parts.iter();
        let ours: BTreeSet<Group<'_>> = parts.map(|p| self.executors.of(p.callback)).collect();
        let mut found = BTreeMap::new();
        for asked in &request.background {
            let mut any = false;
            for c in self.model.callbacks.iter().filter(|c| is(c, asked)) {
                any = true;
                if ours.contains(&self.executors.of(c)) {
                    return Err(PlanError::NotBackground {
                        asked: asked.clone(),
                    });
                }
                if c.kind != CallbackType::Sync {
                    found.insert(&c.id, (c, cpus.of(c)));
                }
            }
            if !any {
                return Err(PlanError::Unknown {
                    option: "--background",
                    asked: asked.clone(),
                    place: "the model",
                });
            }
        }
        Ok(found.into_values().collect())
    }

    fn check_cpus(&self, request: &Request) -> Result<(), PlanError> {
        let planned = || {
            let parts = self.parts.iter().map(|p| (p.callback, p.cpu));
            parts.chain(self.background.iter().copied())
        };
        let feeders = self.feeders();
        for (asked, _) in &request.cpus.of {
            let fed = feeders.iter().any(|c| is(c, asked));
            if !fed && !planned().any(|(c, _)| is(c, asked)) {
                return Err(PlanError::Unknown {
                    option: "--cpu",
                    asked: asked.clone(),
                    place: "the plan",
                });
            }
        }
        let mut groups: BTreeMap<Group<'_>, (&Callback, u16)> = BTreeMap::new();
        for (callback, cpu) in planned() {
            let group = self.executors.of(callback);
            let (first, a) = *groups.entry(group).or_insert((callback, cpu));
            if a != cpu {
                return Err(split((first, a), (callback, cpu)));
            }
        }
        Ok(())
    }

    pub(crate) fn wait_ns(&self) -> Option<u64> {
        let (placed, cpus) = (placed(&self.parts), self.cpus());
        let mut beside = 0u64;
        loop {
            // While the chain waits for other plans, more callbacks come on its own threads, and
            // vice versa.
            let times = (self.latency.max().saturating_add(beside), self.cycle_ns);
            let waits = self.executors.wait_ns(&placed, &self.others, times)?;
            let alone_ns = self.latency.max().saturating_add(waits);
            match self.beside.wait_ns(&cpus, alone_ns, self.cycle_ns)? {
                next if next == beside => return Some(waits.saturating_add(beside)),
                next => beside = next,
            }
        }
    }

    pub(crate) fn cpus(&self) -> BTreeSet<u16> {
        self.parts.iter().map(|p| p.cpu).collect()
    }

    pub(crate) fn has_real_time_priority(&self) -> bool {
        let mut threads = self.parts.iter().flat_map(|p| &p.callback.threads);
        threads.all(|t| matches!(t.policy.as_str(), "fifo" | "rr" | "deadline"))
    }

    pub(crate) fn is_beside(&self, callback: &'m Callback) -> bool {
        self.beside.owns(self.executors.of(callback))
    }

    /// Returns the callbacks outside the chains that the chains wait for, each once. These are the
    /// callbacks that feed synchronisers of the chains, and all callbacks of the nodes that publish
    /// throttled inputs.
    pub(crate) fn feeders(&self) -> Vec<&'m Callback> {
        let mut found = sources::feeders(self.model, &self.chains);
        // The model of a throttled application contains the throttler's thread, which does not
        // belong to it.
        found.retain(|c| {
            let lets_in = |i: &Throttle| c.node != i.node && c.outputs.contains(&i.topic);
            !self.inputs.iter().any(lets_in)
        });
        for callback in sources::publishers(self.model, &self.inputs) {
            if !found.iter().any(|c| c.id == callback.id) {
                found.push(callback);
            }
        }
        found
    }

    pub(crate) fn chain_refs(&self) -> Vec<ChainRef> {
        let titles = onbeat_document::titles::titles(self.model);
        let title = |id: &String| self.model.chains.iter().position(|c| c.id == *id);
        let of = |c: &&Chain| ChainRef {
            id: c.id.clone(),
            title: title(&c.id).map_or_else(String::new, |i| titles[i].clone()),
            callbacks: c.callbacks.clone(),
            output: chains::output(c).map(str::to_string),
        };
        self.chains.iter().map(of).collect()
    }

    fn callback(&self, id: &str) -> Option<&'m Callback> {
        self.model.callbacks.iter().find(|c| c.id == id)
    }

    pub(crate) fn last_publication(&self, chain: &'m Chain) -> Result<Publication<'m>, PlanError> {
        let last = chain.callbacks.last().and_then(|id| self.callback(id));
        let (Some(topic), Some(c)) = (chains::output(chain), last) else {
            return Err(PlanError::NoOutput {
                chain: chain.id.clone(),
            });
        };
        if c.kind == CallbackType::Service && topic == format!("{}/response", c.input) {
            return Err(PlanError::Service {
                callback: c.id.clone(),
                topic: topic.into(),
            });
        }
        Ok(Publication {
            topic,
            callback: &c.id,
            node: &c.node,
        })
    }

    pub(crate) fn publications(&self, chain: &'m Chain) -> Result<Vec<Publication<'m>>, PlanError> {
        let mut found = Vec::new();
        for (pair, topic) in chain.callbacks.windows(2).zip(&chain.topics) {
            let (Some(from), Some(to)) = (self.callback(&pair[0]), self.callback(&pair[1])) else {
                continue;
            };
            match to.kind {
                // The message stays within the node.
                CallbackType::Sync | CallbackType::Thread => continue,
                CallbackType::Service | CallbackType::Client => {
                    return Err(PlanError::Service {
                        callback: from.id.clone(),
                        topic: topic.clone(),
                    })
                }
                CallbackType::Timer | CallbackType::Subscription | CallbackType::Task => {}
            }
            found.push(Publication {
                topic,
                callback: &from.id,
                node: &from.node,
            });
        }
        found.push(self.last_publication(chain)?);
        Ok(found)
    }

    /// Returns the time from a message's publication until its subscriber's executor has it, in ns.
    /// It is the 99th percentile of the chains' slowest edge, or `None` if it was not measured.
    pub(crate) fn transport_ns(&self) -> Option<u64> {
        let figures = self.messages().map(|f| f.transport_ns.quantile(0.99));
        figures.max()
    }

    /// Returns the typical time from a message's publication to its callback's start, in ns. It is
    /// the median of the chains' slowest edge, or `None` if it was not measured.
    pub(crate) fn handover_ns(&self) -> Option<u64> {
        let figures = self.messages().map(|f| f.latency_ns.quantile(0.5));
        figures.max()
    }

    fn messages(&self) -> impl Iterator<Item = &'m EdgeFigures> {
        let pairs: BTreeSet<(&str, &str)> = self
            .chains
            .iter()
            .flat_map(|c| {
                c.callbacks
                    .windows(2)
                    .map(|w| (w[0].as_str(), w[1].as_str()))
            })
            .collect();
        let edges = self.model.edges.iter();
        edges
            .filter(move |e| pairs.contains(&(e.from.as_str(), e.to.as_str())))
            .map(|e| &e.figures)
            .filter(|f| f.transport_ns.count() > 0)
    }
}

fn placed<'m>(parts: &[Part<'m>]) -> Vec<Placed<'m>> {
    parts.iter().map(|p| (p.callback, p.cpu)).collect()
}

fn split((first, a): (&Callback, u16), (second, b): (&Callback, u16)) -> PlanError {
    if first.node == second.node {
        let node = first.node.clone();
        return PlanError::SplitNode { node, a, b };
    }
    let (first, second) = (first.id.clone(), second.id.clone());
    PlanError::SplitExecutor {
        first,
        a,
        second,
        b,
    }
}

fn is(callback: &Callback, name: &str) -> bool {
    callback.id == name || callback.node == name
}

struct Cpus<'r> {
    default: u16,
    request: &'r Request,
}

impl<'r> Cpus<'r> {
    fn new(model: &Model, request: &'r Request) -> Self {
        // The first CPUs handle most of the interrupts.
        let highest = seen(model).last().copied();
        Cpus {
            default: request.cpus.default.or(highest).unwrap_or(0),
            request,
        }
    }

    fn of(&self, callback: &Callback) -> u16 {
        self.request.cpu_for(callback).unwrap_or(self.default)
    }
}

pub(crate) fn seen(model: &Model) -> BTreeSet<u16> {
    let threads = model.callbacks.iter().flat_map(|c| &c.threads);
    threads.flat_map(|t| t.cpus.iter().copied()).collect()
}

/// Returns the length of the cycle in ns. It is the period of the first callback. With a throttler,
/// it is the time between the inputs that the throttler lets in.
fn cycle(origin: &Callback, request: &Request) -> Result<u64, PlanError> {
    let no_period = || PlanError::NoPeriod {
        origin: origin.id.clone(),
    };
    let period = origin.period_ns.filter(|&p| p > 0);
    let between = &origin.figures.interarrival_ns;
    if !request.inputs.throttles.is_empty() {
        let typical = || period.or((between.count() > 0).then(|| between.quantile(0.5)));
        // Inputs that arrive "almost every 100 ms" are let in every 100 ms.
        let round = |ns: u64| {
            let to = if ns >= 20_000_000 { 1_000_000 } else { 100_000 };
            (ns.saturating_add(to / 2) / to * to).max(to)
        };
        return request
            .inputs
            .cycle_ns
            .or_else(|| typical().map(round))
            .ok_or_else(no_period);
    }
    let period = period.ok_or_else(no_period)?;
    let near = |ns: u64| (ns as f64 - period as f64).abs() <= STEADY * period as f64;
    let (low, middle, high) = (
        between.quantile(0.01),
        between.quantile(0.5),
        between.quantile(0.99),
    );
    let steady = if origin.kind == CallbackType::Timer {
        // The kernel keeps a timer's period. Only its starts move when the CPU is busy.
        between.count() == 0 || near(middle)
    } else {
        near(low) && near(high)
    };
    // Percentiles are only as exact as their buckets.
    let rounded = |ns: u64| Ms(ns.saturating_add(50_000) / 100_000 * 100_000);
    if !steady {
        return Err(PlanError::NotSteady {
            origin: origin.id.clone(),
            period: Ms(period),
            low: rounded(low),
            high: rounded(high),
        });
    }
    match request.inputs.cycle_ns {
        Some(cycle) if cycle != period => Err(PlanError::Cycle {
            cycle: Ms(cycle),
            origin: origin.id.clone(),
            period: Ms(period),
        }),
        _ => Ok(period),
    }
}
