//! A model and a request become a plan: one function per strategy lays out the servers.

use crate::assume;
use crate::bands::{self, Constraints, Samples};
use crate::check::{name, validate, PlanFault, MAX_CYCLE_NS};
use crate::error::PlanError;
use crate::feeders::feeders;
use crate::request::{Request, Strategy};
use crate::schema::{
    Band, Hold, Middleware, Ms, Output, Plan, Promises, Server, Slot, Throttle, HELD_SUFFIX,
    MAX_PRIORITY, SCHEMA,
};
use crate::scope::{seen, Part, Publication, Scope};
use onbeat_model::schema::{Callback, CallbackType, Chain};
use onbeat_model::Model;
use std::collections::{BTreeMap, BTreeSet};

/// Slots and their bounds are whole tenths of a millisecond where we choose them.
const STEP_NS: u64 = 100_000;

/// Least and largest slot that is derived from the measured transport.
const SLOT_NS: (u64, u64) = (500_000, 2_000_000);

/// Slot where no transport was measured: the thesis's.
const DEFAULT_SLOT_NS: u64 = 1_000_000;

/// Slot of the throttler at the start of the cycle where no message's way was measured: the thesis's
/// (Table 4.3).
const THROTTLE_NS: u64 = 2_000_000;

/// Least buffer behind a measured worst case.
const LEAST_EPSILON_NS: u64 = 500_000;

/// Latencies beyond this are none that a cycle could hold: ten days.
const MAX_LATENCY_NS: u64 = 864_000_000_000_000;

/// Makes the plan that is asked for.
///
/// Thesis: Definitions 4.1.1 and 4.3.1 to 4.3.4, section 4.4.1; sections 4.5.3 (LET) and 4.5.4 (several
/// sinks and CPUs). Two things differ from it. The variation control server has a priority one above the
/// chain's: its slots may lie within the chain's, and equal priorities would leave open who runs. And
/// several sinks share one such server, whose slots are placed for all their executions together.
pub fn plan(model: &Model, request: &Request) -> Result<Plan, PlanError> {
    // One above is the outputs'.
    let max = MAX_PRIORITY - 1;
    if !(1..=max).contains(&request.priority) {
        return Err(PlanError::Priority {
            asked: request.priority,
            max,
        });
    }
    let scope = Scope::new(model, request)?;
    if !(1..=MAX_CYCLE_NS).contains(&scope.cycle_ns) {
        let cycle = Ms(scope.cycle_ns);
        return Err(PlanFault::Cycle { cycle }.into());
    }
    if scope.latency.max() > MAX_LATENCY_NS {
        return Err(PlanError::TooLong {
            what: "executions of the chain".into(),
            need: Ms(scope.latency.max()),
            have: Ms(scope.cycle_ns),
        });
    }
    let maker = Maker::new(&scope, request)?;
    let layout = match request.strategy {
        Strategy::Fifo => maker.fifo(),
        Strategy::ServerPerCallback => maker.server_per_callback()?,
        Strategy::ServerPerChain => maker.server_per_chain()?,
        Strategy::Bands(_) | Strategy::AutoBands | Strategy::RandomBands { .. } => maker.bands()?,
        Strategy::LetPerCallback => maker.let_per_callback()?,
        Strategy::LetPerChain => maker.let_per_chain()?,
    };
    let plan = maker.finish(layout)?;
    validate(&plan)?;
    Ok(plan)
}

/// What a strategy decides.
struct Layout<'m> {
    servers: Vec<Server>,
    /// Publications that are held, and the server in whose slots they leave.
    held: Vec<Publication<'m>>,
    promises: Promises,
    /// Slot of the outputs and of how many nanoseconds of a cycle they take.
    output_ns: u64,
}

/// What all strategies share.
pub(crate) struct Maker<'a, 'm> {
    pub(crate) scope: &'a Scope<'m>,
    pub(crate) request: &'a Request,
    /// When the chain's first callback starts, counted from its cycle: 0, or what it takes to let an input in
    /// and to get to the callback.
    pub(crate) way_ns: u64,
    /// What is to be added to the chain's measured latencies: that way, unless they hold it.
    start_ns: u64,
    /// Slot of the throttler at the start of the cycle.
    pub(crate) let_in_ns: u64,
    inputs: Vec<Throttle>,
}

/// Up to whole steps.
fn round_up(ns: u64) -> u64 {
    ns.saturating_add(STEP_NS - 1) / STEP_NS * STEP_NS
}

/// A share with as many digits as mean something.
fn millionths(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

fn slot(start: u64, end: u64) -> Slot {
    Slot(Ms(start), Ms(end))
}

/// Name of the server where outputs leave.
const OUTPUTS: &str = "delta";

/// Name of the server of what joins the chain from elsewhere.
const FEEDERS: &str = "feeders";

/// Name of the server where inputs are let in.
const INPUTS: &str = "throttle";

impl<'a, 'm> Maker<'a, 'm> {
    fn new(scope: &'a Scope<'m>, request: &'a Request) -> Result<Self, PlanError> {
        let mut inputs = Vec::new();
        for asked in &request.throttles {
            let node = match &asked.node {
                Some(node) => node.clone(),
                None => publisher(scope.model, &asked.topic)?,
            };
            inputs.push(Throttle {
                topic: asked.topic.clone(),
                node,
                held_topic: format!("{}{HELD_SUFFIX}", asked.topic),
                server: INPUTS.into(),
            });
        }
        let let_in_ns = Self::let_in_ns(scope, inputs.len());
        let handover = scope.handover_ns().filter(|_| !inputs.is_empty());
        let way_ns = let_in_ns.max(handover.map_or(0, round_up));
        let way_ns = way_ns.min(scope.cycle_ns);
        let whole = scope.chains.iter().all(|c| c.from_input);
        Ok(Maker {
            scope,
            request,
            way_ns,
            start_ns: if whole { 0 } else { way_ns },
            let_in_ns,
            inputs,
        })
    }

    /// How long it takes to let `inputs` in: for each what most of the chain's messages took to their executor.
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

    /// Where the slot of a measured worst case ends, counted from its start.
    fn with_epsilon(&self, worst_ns: u64) -> u64 {
        match self.request.epsilon_ns {
            Some(epsilon) => worst_ns.saturating_add(epsilon),
            None => round_up(worst_ns.saturating_add((worst_ns / 100).max(LEAST_EPSILON_NS))),
        }
    }

    /// Length of a slot in which `outputs` outputs leave.
    fn slot_ns(&self, outputs: usize) -> Result<u64, PlanError> {
        let cycle = self.scope.cycle_ns;
        let slot = match self.request.slot_ns {
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

    /// Refuses what ends after the cycle.
    fn fits(&self, what: &str, need_ns: u64, have_ns: u64) -> Result<(), PlanError> {
        if need_ns <= have_ns {
            return Ok(());
        }
        Err(PlanError::TooLong {
            what: what.into(),
            need: Ms(need_ns),
            have: Ms(have_ns),
        })
    }

    /// The chain's servers, one per CPU, with the same slots.
    fn gamma(&self, slots: Vec<Slot>) -> Vec<Server> {
        let mut of: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        for part in &self.scope.parts {
            of.entry(part.cpu)
                .or_default()
                .push(part.callback.id.clone());
        }
        let several = of.len() > 1;
        let server = |(cpu, callbacks)| Server {
            name: if several {
                format!("gamma-{cpu}")
            } else {
                "gamma".into()
            },
            cpu,
            priority: self.request.priority,
            slots_ms: slots.clone(),
            callbacks,
        };
        of.into_iter().map(server).collect()
    }

    /// The server where outputs leave, on the CPU of the (first) chain's last callback.
    fn delta(&self, slots: Vec<Slot>) -> Server {
        let last = self.scope.chains.first().and_then(|c| {
            let mut parts = self.scope.parts.iter();
            parts.rfind(|p| c.callbacks.contains(&p.callback.id))
        });
        Server {
            name: OUTPUTS.into(),
            cpu: last.map_or(0, |p| p.cpu),
            priority: self.request.priority + 1,
            slots_ms: slots,
            callbacks: vec![],
        }
    }

    /// What was measured, as a promise; `start_ns` later where inputs are throttled.
    fn as_measured(&self) -> Promises {
        let l = &self.scope.latency;
        let at = |ns: u64| Ms(ns.saturating_add(self.start_ns));
        Promises {
            average_ms: at(l.mean().round() as u64),
            worst_ms: at(l.max()),
            jitter_ms: Ms((l.max() - l.min()) / 2),
            ..Promises::default()
        }
    }

    fn fifo(&self) -> Layout<'m> {
        Layout {
            servers: self.gamma(vec![]),
            held: vec![],
            promises: self.as_measured(),
            output_ns: 0,
        }
    }

    /// Slots in the order of the chain, each as long as its callback's measured worst case and what its
    /// executor needs to get there: a slot begins when those of all its predecessors have ended, and its
    /// CPU is free.
    fn server_per_callback(&self) -> Result<Layout<'m>, PlanError> {
        let scope = self.scope;
        let mut spans: Vec<Option<(u64, u64)>> = vec![None; scope.parts.len()];
        let mut free: BTreeMap<u16, u64> = BTreeMap::new();
        let mut order = Vec::with_capacity(spans.len());
        // Whose turn it is: of those whose inputs have slots, who can begin first.
        while order.len() < spans.len() {
            let begin = |i: usize| {
                let part = &scope.parts[i];
                let cpu = free.get(&part.cpu).copied().unwrap_or(0);
                let mut inputs = part.before.iter().map(|&b| spans[b].map(|s| s.1));
                inputs.try_fold(cpu, |start, end| Some(start.max(end?)))
            };
            let waiting = (0..spans.len()).filter(|&i| spans[i].is_none());
            let Some((start, i)) = waiting.filter_map(|i| Some((begin(i)?, i))).min() else {
                return Err(PlanError::NoOrder);
            };
            let part = &scope.parts[i];
            let first = if part.before.is_empty() {
                self.way_ns
            } else {
                0
            };
            let need = self.with_epsilon(part.demand_ns()).saturating_add(first);
            let end = start.saturating_add(need);
            free.insert(part.cpu, end);
            spans[i] = Some((start, end));
            order.push(i);
        }
        let spans: Vec<(u64, u64)> = spans.into_iter().flatten().collect();
        let end = spans.iter().map(|s| s.1).max().unwrap_or(0);
        self.fits("slots for every callback", end, scope.cycle_ns)?;

        // The callbacks of a node share its threads, and so a server.
        let mut servers: Vec<Server> = Vec::new();
        let mut of_node: BTreeMap<&str, usize> = BTreeMap::new();
        for i in order {
            let (part, (start, end)) = (&scope.parts[i], spans[i]);
            let i = *of_node.entry(&part.callback.node).or_insert_with(|| {
                servers.push(Server {
                    name: format!("callback-{}", servers.len() + 1),
                    cpu: part.cpu,
                    priority: self.request.priority,
                    slots_ms: vec![],
                    callbacks: vec![],
                });
                servers.len() - 1
            });
            let server = &mut servers[i];
            server.callbacks.push(part.callback.id.clone());
            match server.slots_ms.last_mut() {
                Some(last) if last.1 .0 == start => last.1 = Ms(end),
                _ => server.slots_ms.push(slot(start, end)),
            }
        }

        // What varies is the last callback of each chain, within its slot.
        let (mut average, mut worst, mut jitter) = (0.0, 0, 0);
        for chain in &scope.chains {
            let last = chain
                .callbacks
                .iter()
                .rev()
                .find_map(|id| scope.parts.iter().position(|p| p.callback.id == *id));
            let Some(last) = last else { continue };
            let (part, (start, end)) = (&scope.parts[last], spans[last]);
            average +=
                (start as f64 + part.around_mean_ns + part.mean_ns()) / scope.chains.len() as f64;
            worst = worst.max(end);
            jitter = jitter.max((end - start).saturating_sub(part.best_ns()) / 2);
        }
        Ok(Layout {
            servers,
            held: vec![],
            promises: Promises {
                average_ms: Ms(average.round() as u64),
                worst_ms: Ms(worst),
                jitter_ms: Ms(jitter),
                ..Promises::default()
            },
            output_ns: 0,
        })
    }

    /// Slot [0, worst case + epsilon] of the latency control server (Definition 4.3.1). What the first
    /// callback's executor does with a throttled input before the callback starts belongs to it.
    fn chain_slot(&self) -> Slot {
        let end = self.with_epsilon(self.scope.latency.max());
        slot(0, self.start_ns.saturating_add(end))
    }

    fn server_per_chain(&self) -> Result<Layout<'m>, PlanError> {
        let slot = self.chain_slot();
        self.fits(
            "the chain's worst case and its buffer",
            slot.1 .0,
            self.scope.cycle_ns,
        )?;
        Ok(Layout {
            servers: self.gamma(vec![slot]),
            held: vec![],
            promises: self.as_measured(),
            output_ns: 0,
        })
    }

    /// What leaves at the chains' ends, each once.
    fn last_publications(&self) -> Result<Vec<Publication<'m>>, PlanError> {
        let all: Result<BTreeSet<_>, _> = self
            .scope
            .chains
            .iter()
            .map(|c| self.scope.last_publication(c))
            .collect();
        Ok(all?.into_iter().collect())
    }

    fn bands(&self) -> Result<Layout<'m>, PlanError> {
        let held = self.last_publications()?;
        let chain = self.chain_slot();
        let length = self.slot_ns(held.len())?;
        let end = chain.1 .0.saturating_add(length);
        self.fits(
            "the chain's worst case, its buffer and the output's slot",
            end,
            self.scope.cycle_ns,
        )?;
        let samples = Samples::of(&self.scope.latency);
        let limits = Constraints {
            slot_ns: length,
            epsilon_ns: chain.1 .0 - self.start_ns - samples.worst_ns(),
            liveliness_ns: self.request.liveliness_ns,
        };
        let ends = match self.request.strategy {
            Strategy::RandomBands { bands, seed } => bands::random(&samples, bands, &limits, seed)?,
            Strategy::AutoBands => {
                let knee = bands::knee(&samples, &limits)?;
                bands::optimal(&samples, knee, &limits)?
            }
            Strategy::Bands(count) => bands::optimal(&samples, count, &limits)?,
            _ => bands::optimal(&samples, 1, &limits)?,
        };
        let at = |x: u64| x + self.start_ns;
        let slots: Vec<Slot> = ends.iter().map(|&x| slot(at(x - length), at(x))).collect();
        let shares = bands::shares(&samples, &ends);
        let band = |(&latency_ms, share): (&Slot, f64)| Band {
            latency_ms,
            share: millionths(share.clamp(0.0, 1.0)),
        };
        let promises = Promises {
            average_ms: Ms(at(bands::average_ns(&samples, &ends).round() as u64)),
            worst_ms: Ms(end),
            jitter_ms: Ms(length / 2),
            bands: slots.iter().zip(shares).map(band).collect(),
            ..Promises::default()
        };
        let mut servers = self.gamma(vec![chain]);
        servers.push(self.delta(slots));
        Ok(Layout {
            servers,
            held,
            promises,
            output_ns: length,
        })
    }

    /// One slot at the start of the cycle, in which the output of each chain leaves so many cycles after its
    /// input came as `cycles` has for it; the chains may run in all of it.
    fn let_layout(&self, held: Vec<Publication<'m>>, length: u64, cycles: &[u64]) -> Layout<'m> {
        let (start, end) = (self.way_ns, self.way_ns + length);
        // The chain has the whole cycle, so that its first callback starts when it is released; the
        // outputs go before it in their slot.
        let mut servers = self.gamma(vec![slot(0, self.scope.cycle_ns)]);
        servers.push(self.delta(vec![slot(start, end)]));
        let mut of: BTreeMap<u64, usize> = BTreeMap::new();
        for &count in cycles {
            *of.entry(count).or_default() += 1;
        }
        let band = |(&count, &chains): (&u64, &usize)| {
            let before = self.scope.cycle_ns.saturating_mul(count);
            Band {
                latency_ms: slot(before + start, before + end),
                share: millionths(chains as f64 / cycles.len() as f64),
            }
        };
        let bands: Vec<Band> = of.iter().map(band).collect();
        let ends = of
            .iter()
            .map(|(count, chains)| *count as f64 * *chains as f64);
        let mean = ends.sum::<f64>() / cycles.len().max(1) as f64;
        let average = (mean * self.scope.cycle_ns as f64).round() as u64;
        Layout {
            servers,
            held,
            promises: Promises {
                average_ms: Ms(average.saturating_add(end)),
                worst_ms: bands.last().map_or(Ms(end), |b| b.latency_ms.1),
                jitter_ms: Ms(length / 2),
                bands,
                ..Promises::default()
            },
            output_ns: length,
        }
    }

    fn let_per_callback(&self) -> Result<Layout<'m>, PlanError> {
        let (mut held, mut cycles) = (BTreeSet::new(), Vec::new());
        for chain in &self.scope.chains {
            let publications = self.scope.publications(chain)?;
            cycles.push(publications.len() as u64);
            held.extend(publications);
        }
        let length = self.slot_ns(held.len())?;
        let left = self.scope.cycle_ns.saturating_sub(self.way_ns + length);
        // In every cycle every callback runs once, on what came at its start.
        let mut need: BTreeMap<u16, u64> = BTreeMap::new();
        for part in &self.scope.parts {
            let sum = need.entry(part.cpu).or_default();
            *sum = sum.saturating_add(part.worst_ns());
        }
        for (cpu, need) in need {
            self.fits(
                &format!("one execution of every callback on CPU {cpu}"),
                need,
                left,
            )?;
        }
        Ok(self.let_layout(held.into_iter().collect(), length, &cycles))
    }

    fn let_per_chain(&self) -> Result<Layout<'m>, PlanError> {
        let held = self.last_publications()?;
        let length = self.slot_ns(held.len())?;
        let chain = self.chain_slot();
        let need = chain.1 .0.saturating_add(length);
        self.fits(
            "the chain's worst case, its buffer and the output's slot",
            need,
            self.scope.cycle_ns,
        )?;
        Ok(self.let_layout(held, length, &vec![1; self.scope.chains.len()]))
    }

    /// Before this time in a cycle no execution brings an output, by a good margin: half of the best case
    /// of what leads to it in one cycle.
    fn earliest_ns(&self, publication: &Publication<'_>) -> u64 {
        let is_last = |c: &&Chain| {
            c.callbacks
                .last()
                .is_some_and(|id| id == publication.callback)
        };
        let whole = self.request.strategy != Strategy::LetPerCallback;
        let chains = self.scope.chains.iter().copied();
        let best = chains
            .filter(is_last)
            .map(|c| c.figures.latency_ns.min())
            .min();
        let (from, best) = match best.filter(|_| whole) {
            Some(best) => (self.start_ns, best),
            None => {
                let mut parts = self.scope.parts.iter();
                let part = parts.find(|p| p.callback.id == publication.callback);
                (self.way_ns, part.map_or(0, Part::best_ns))
            }
        };
        // Never at the very start, where the slots of the next cycle are.
        from + (best / 2).max(1)
    }

    /// Adds what does not depend on the strategy.
    fn finish(&self, layout: Layout<'m>) -> Result<Plan, PlanError> {
        let mut servers = layout.servers;
        if !self.inputs.is_empty() {
            let cpu = self.scope.parts.first().map_or(0, |p| p.cpu);
            servers.insert(
                0,
                Server {
                    name: INPUTS.into(),
                    cpu,
                    priority: self.request.priority + 1,
                    slots_ms: vec![slot(0, self.let_in_ns)],
                    callbacks: vec![],
                },
            );
        }
        servers.extend(self.background());
        let output = |p: &Publication<'_>| Output {
            topic: p.topic.into(),
            callback: p.callback.into(),
            node: p.node.into(),
            hold: self.request.hold,
            held_topic: match self.request.hold {
                Hold::Republish => Some(format!("{}{HELD_SUFFIX}", p.topic)),
                Hold::PublisherThread => None,
            },
            server: OUTPUTS.into(),
            earliest_ms: Ms(self.earliest_ns(p)),
        };
        let taken: BTreeSet<u16> = servers.iter().map(|s| s.cpu).collect();
        let middleware = self.request.middleware_cpu.or_else(|| {
            seen(self.scope.model)
                .into_iter()
                .find(|cpu| !taken.contains(cpu))
        });
        let middleware = Middleware {
            cpu: middleware.unwrap_or(0),
            priority: MAX_PRIORITY + 1,
        };
        self.feed(&mut servers, middleware.cpu);
        let mut promises = layout.promises;
        promises.utilisation = self.utilisation(&servers, layout.output_ns)?;
        let mut plan = Plan {
            schema: SCHEMA.into(),
            strategy: self.request.strategy.name().into(),
            chains: self.scope.chain_refs(),
            cycle_ms: Ms(self.scope.cycle_ns),
            origin: self.scope.origin.id.clone(),
            servers,
            outputs: layout.held.iter().map(output).collect(),
            inputs: self.inputs.clone(),
            middleware,
            overshoot: self.request.overshoot,
            promises,
            assumes: vec![],
        };
        self.hears_itself(&plan)?;
        plan.assumes = assume::sentences(self, &plan, layout.output_ns);
        Ok(plan)
    }

    /// Refuses nodes that take what they publish where that is moved: the rule moves it for all of a node.
    fn hears_itself(&self, plan: &Plan) -> Result<(), PlanError> {
        let inputs = plan.inputs.iter().map(|i| (&i.node, &i.topic));
        let outputs = plan.outputs.iter().filter(|o| o.held_topic.is_some());
        for (node, topic) in outputs.map(|o| (&o.node, &o.topic)).chain(inputs) {
            let takes = |c: &Callback| {
                c.kind == CallbackType::Subscription && c.node == *node && c.input == *topic
            };
            if self.scope.model.callbacks.iter().any(takes) {
                return Err(PlanError::HearsItself {
                    node: node.clone(),
                    topic: topic.clone(),
                });
            }
        }
        Ok(())
    }

    /// What joins the chain from elsewhere, and what throttled inputs come from, gets a server that may run
    /// at any time, at the chain's priority and on the middleware's CPU where nothing else was said (thesis,
    /// section 4.5.1: the other lidar's filter). Callbacks of the chain's own nodes run on these nodes'
    /// threads.
    fn feed(&self, servers: &mut Vec<Server>, middleware_cpu: u16) {
        let nodes = |server: &Server| -> BTreeSet<&str> {
            let parts = self.scope.parts.iter();
            parts
                .filter(|p| server.callbacks.contains(&p.callback.id))
                .map(|p| p.callback.node.as_str())
                .collect()
        };
        let mut of: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        let of_inputs = |c: &&Callback| {
            let theirs = self.inputs.iter().any(|i| i.node == c.node);
            theirs && c.kind != CallbackType::Sync
        };
        let sources = self.scope.model.callbacks.iter().filter(of_inputs);
        for callback in feeders(self.scope.model, &self.scope.chains)
            .into_iter()
            .chain(sources)
        {
            if of.values().flatten().any(|id| *id == callback.id) {
                continue;
            }
            if servers.iter().any(|s| s.callbacks.contains(&callback.id)) {
                continue;
            }
            let own = servers
                .iter()
                .position(|s| nodes(s).contains(callback.node.as_str()));
            match own {
                Some(own) => servers[own].callbacks.push(callback.id.clone()),
                None => of
                    .entry(self.request.cpu_said(callback).unwrap_or(middleware_cpu))
                    .or_default()
                    .push(callback.id.clone()),
            }
        }
        let several = of.len() > 1;
        servers.extend(of.into_iter().map(|(cpu, callbacks)| Server {
            name: if several {
                format!("{FEEDERS}-{cpu}")
            } else {
                FEEDERS.into()
            },
            cpu,
            // Where the chain has slots on the same CPU, it goes first.
            priority: self.request.priority - 1,
            slots_ms: vec![],
            callbacks,
        }));
    }

    /// The share of each CPU that is used at the worst: every callback at its measured worst case once per
    /// cycle, the slots in which something is let in or out, and what else has a server as it was measured.
    fn utilisation(
        &self,
        servers: &[Server],
        output_ns: u64,
    ) -> Result<BTreeMap<u16, f64>, PlanError> {
        let cycle = self.scope.cycle_ns.max(1) as f64;
        let mut uses: BTreeMap<u16, Vec<(f64, &str)>> = BTreeMap::new();
        let mut add = |cpu: u16, share: f64, name| uses.entry(cpu).or_default().push((share, name));
        for part in &self.scope.parts {
            let exec = part.callback.figures.exec_ns.max() as f64;
            add(part.cpu, exec / cycle, &part.callback.id);
        }
        for server in servers {
            let ns = match server.name.as_str() {
                OUTPUTS => output_ns,
                INPUTS => self.let_in_ns,
                _ => continue,
            };
            add(server.cpu, ns as f64 / cycle, &server.name);
        }
        let of_chain = |id: &String| self.scope.parts.iter().any(|p| p.callback.id == *id);
        for server in servers {
            for id in server.callbacks.iter().filter(|id| !of_chain(id)) {
                let mut callbacks = self.scope.model.callbacks.iter();
                let load = callbacks.find(|c| c.id == *id).map(|c| c.figures.load);
                let load = load.filter(|l| l.is_finite()).unwrap_or(1.0);
                add(server.cpu, load.max(0.0), id);
            }
        }
        let mut shares = BTreeMap::new();
        for (cpu, mut of) in uses {
            let share: f64 = of.iter().map(|u| u.0).sum();
            if share > 1.0 {
                of.sort_by(|a, b| b.0.total_cmp(&a.0));
                let part =
                    |(share, id): &(f64, &str)| format!("{:.1} % {}", share * 100.0, name(id));
                let parts: Vec<String> = of.iter().take(3).map(part).collect();
                return Err(PlanError::Utilisation {
                    cpu,
                    share,
                    parts: parts.join(", "),
                });
            }
            shares.insert(cpu, millionths(share));
        }
        Ok(shares)
    }

    /// Servers that get what is left, one per CPU.
    fn background(&self) -> Vec<Server> {
        let mut of: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        for (callback, cpu) in &self.scope.background {
            of.entry(*cpu).or_default().push(callback.id.clone());
        }
        let several = of.len() > 1;
        let server = |(cpu, callbacks)| Server {
            name: if several {
                format!("background-{cpu}")
            } else {
                "background".into()
            },
            cpu,
            priority: 0,
            slots_ms: vec![slot(0, self.scope.cycle_ns)],
            callbacks,
        };
        of.into_iter().map(server).collect()
    }
}

/// The one node that publishes a topic.
fn publisher(model: &Model, topic: &str) -> Result<String, PlanError> {
    let publishes = model
        .callbacks
        .iter()
        .filter(|c| c.outputs.iter().any(|o| o == topic));
    let nodes: BTreeSet<&String> = publishes.map(|c| &c.node).collect();
    let mut nodes: Vec<String> = nodes.into_iter().cloned().collect();
    match nodes.len() {
        1 => Ok(nodes.remove(0)),
        0 => Err(PlanError::ThrottleUnknown {
            topic: topic.into(),
        }),
        _ => Err(PlanError::ThrottleSeveral {
            topic: topic.into(),
            nodes,
        }),
    }
}
