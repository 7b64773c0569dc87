//! Adds to a plan all parts that do not depend on the strategy: throttler, background, feeders,
//! utilisation and assumptions.

use super::{millionths, slot, Layout, Maker, OUTPUTS};
use crate::assume;
use crate::error::PlanError;
use crate::fault::name;
use crate::request::Strategy;
use crate::schema::{
    Hold, Middleware, Ms, Output, Plan, Server, HELD_SUFFIX, MAX_PRIORITY, SCHEMA,
};
use crate::scope::{seen, Part, Publication};
use crate::sources::INPUTS;
use onbeat_document::schema::{Callback, CallbackType, Chain};
use std::collections::{BTreeMap, BTreeSet};

const FEEDERS: &str = "feeders";

impl<'m> Maker<'_, 'm> {
    pub(super) fn finish(&self, layout: Layout<'m>) -> Result<Plan, PlanError> {
        let mut servers = layout.servers;
        if let Some(throttler) = self.throttler() {
            servers.insert(0, throttler);
        }
        servers.extend(self.background());
        let middleware = self.middleware(&servers);
        let feeders = self.feed(&mut servers, middleware.cpu);
        servers.extend(feeders);
        let rules = self.adopt(&mut servers)?;
        let mut promises = layout.promises;
        promises.utilisation = self.utilisation(&servers, layout.output_ns)?;
        let mut plan = Plan {
            schema: SCHEMA.into(),
            strategy: self.request.strategy.name().into(),
            chains: self.scope.chain_refs(),
            cycle_ms: Ms(self.scope.cycle_ns),
            origin: self.scope.origin.id.clone(),
            servers,
            outputs: layout.held.iter().map(|p| self.output(p)).collect(),
            inputs: self.scope.inputs.clone(),
            middleware,
            overshoot: self.request.outputs.overshoot,
            promises,
            callbacks: rules,
            assumes: vec![],
        };
        self.hears_itself(&plan)?;
        self.held_once(&plan)?;
        let times = assume::Times {
            output_ns: layout.output_ns,
            let_in_ns: self.let_in_ns,
            input_delay_ns: self.input_delay_ns,
            added_ns: self.added_ns,
            late_ns: self.late_ns,
        };
        plan.assumes = assume::sentences(self.scope, self.request, &plan, &times);
        Ok(plan)
    }

    fn throttler(&self) -> Option<Server> {
        (!self.scope.inputs.is_empty()).then(|| Server {
            name: INPUTS.into(),
            cpu: self.scope.parts.first().map_or(0, |p| p.cpu),
            priority: self.request.priority + 1,
            slots_ms: vec![slot(0, self.let_in_ns)],
            callbacks: vec![],
        })
    }

    fn middleware(&self, servers: &[Server]) -> Middleware {
        let taken: BTreeSet<u16> = servers.iter().map(|s| s.cpu).collect();
        let cpu = self.request.cpus.middleware.or_else(|| {
            let mut seen = seen(self.scope.model).into_iter();
            seen.find(|cpu| !taken.contains(cpu))
        });
        Middleware {
            cpu: cpu.unwrap_or(0),
            priority: MAX_PRIORITY + 1,
        }
    }

    fn output(&self, publication: &Publication<'_>) -> Output {
        let topic = publication.topic;
        Output {
            topic: topic.into(),
            callback: publication.callback.into(),
            node: publication.node.into(),
            hold: self.request.outputs.hold,
            held_topic: match self.request.outputs.hold {
                Hold::Republish => Some(format!("{topic}{HELD_SUFFIX}")),
                Hold::PublisherThread => None,
            },
            server: OUTPUTS.into(),
            earliest_ms: Ms(self.earliest_ns(publication)),
        }
    }

    /// Returns the time in a cycle before which no execution publishes this output. This time is
    /// the chain's start plus half of the shortest measured time from there to the output. The
    /// other half is a margin for faster executions.
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
                (self.input_delay_ns, part.map_or(0, Part::best_ns))
            }
        };
        // The very start of a cycle belongs to the slots of the next cycle.
        from + (best / 2).max(1)
    }

    /// Refuses a node that subscribes to a topic that it publishes, if the plan remaps this topic.
    /// The remapping applies to the whole node, so the node would get its own message before the
    /// slot.
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

    fn held_once(&self, plan: &Plan) -> Result<(), PlanError> {
        let held = |plan: &Plan| -> Vec<(String, String)> {
            let outputs = plan
                .outputs
                .iter()
                .map(|o| (o.node.clone(), o.topic.clone()));
            let inputs = plan
                .inputs
                .iter()
                .map(|i| (i.node.clone(), i.topic.clone()));
            outputs.chain(inputs).collect()
        };
        let theirs: BTreeSet<_> = self.request.beside.iter().flat_map(held).collect();
        match held(plan).into_iter().find(|h| theirs.contains(h)) {
            Some((_, topic)) => Err(PlanError::HeldTwice { topic }),
            None => Ok(()),
        }
    }

    /// Returns servers for the chain's feeders (in section 4.5.1 of the thesis: the filter of the
    /// second lidar). Feeders may run at any time, at a priority below the chain's. They run on the
    /// middleware's CPU, unless the request names another one. Feeders on the chain's executors
    /// join the servers of these executors instead.
    fn feed(&self, servers: &mut [Server], middleware_cpu: u16) -> Vec<Server> {
        let mut of_cpu: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        for callback in self.scope.feeders() {
            let has = |s: &Server| s.callbacks.contains(&callback.id);
            if servers.iter().any(has) || self.scope.is_beside(callback) {
                continue;
            }
            let own = servers
                .iter()
                .position(|s| self.runs_executor_of(s, callback));
            let callbacks = match own {
                Some(own) => &mut servers[own].callbacks,
                None => {
                    let cpu = self.request.cpu_for(callback);
                    of_cpu.entry(cpu.unwrap_or(middleware_cpu)).or_default()
                }
            };
            callbacks.push(callback.id.clone());
        }
        let several = of_cpu.len() > 1;
        let server = |(cpu, callbacks)| Server {
            name: if several {
                format!("{FEEDERS}-{cpu}")
            } else {
                FEEDERS.into()
            },
            cpu,
            // The chain goes first where it has slots on the same CPU.
            priority: self.request.priority - 1,
            slots_ms: vec![],
            callbacks,
        };
        of_cpu.into_iter().map(server).collect()
    }

    fn runs_executor_of(&self, server: &Server, callback: &'m Callback) -> bool {
        let group = |c: &'m Callback| self.scope.executors.of(c);
        let mut parts = self.scope.parts.iter();
        parts.any(|p| {
            group(p.callback) == group(callback) && server.callbacks.contains(&p.callback.id)
        })
    }

    /// Returns the share of each CPU that the plan uses in the worst case. Callbacks of the chain
    /// count with their measured worst case once per cycle. Throttler and outputs count with their
    /// slots. All other callbacks count with their measured load.
    fn utilisation(
        &self,
        servers: &[Server],
        output_ns: u64,
    ) -> Result<BTreeMap<u16, f64>, PlanError> {
        let mut shares = BTreeMap::new();
        for (cpu, mut uses) in self.uses(servers, output_ns) {
            if let Some(&share) = self.scope.beside.shares.get(&cpu) {
                uses.push((share, "plans beside"));
            }
            let share: f64 = uses.iter().map(|u| u.0).sum();
            if share > 1.0 {
                return Err(overload(cpu, share, uses));
            }
            shares.insert(cpu, millionths(share));
        }
        Ok(shares)
    }

    fn uses<'s>(
        &'s self,
        servers: &'s [Server],
        output_ns: u64,
    ) -> BTreeMap<u16, Vec<(f64, &'s str)>> {
        let cycle = self.scope.cycle_ns.max(1) as f64;
        let mut uses: BTreeMap<u16, Vec<(f64, &str)>> = BTreeMap::new();
        let mut add = |cpu: u16, share: f64, name| uses.entry(cpu).or_default().push((share, name));
        for part in &self.scope.parts {
            let exec = part.longest_exec_ns(self.scope.slowest.share()) as f64;
            add(part.cpu, exec / cycle, part.callback.id.as_str());
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
        uses
    }

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

fn overload(cpu: u16, share: f64, mut uses: Vec<(f64, &str)>) -> PlanError {
    uses.sort_by(|a, b| b.0.total_cmp(&a.0));
    let part = |(share, id): &(f64, &str)| format!("{:.1} % {}", share * 100.0, name(id));
    let parts: Vec<String> = uses.iter().take(3).map(part).collect();
    PlanError::Utilisation {
        cpu,
        share,
        parts: parts.join(", "),
    }
}
