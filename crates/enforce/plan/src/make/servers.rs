//! Strategies that only reserve CPU time: plain priorities, a server per callback, a server per
//! chain. And the servers that the other strategies build on.

use super::{slot, Layout, Maker, OUTPUTS};
use crate::error::PlanError;
use crate::schema::{Ms, Promises, Server, Slot};
use onbeat_model::schema::Chain;
use std::collections::BTreeMap;

/// Start and end of a callback's slot in the cycle, ns.
type Span = (u64, u64);

impl<'m> Maker<'_, 'm> {
    /// The latency servers (R_gamma): the chain's callbacks, one server per CPU, all with the same
    /// slots.
    pub(super) fn latency_servers(&self, slots: Vec<Slot>) -> Vec<Server> {
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

    /// The output server (R_delta), on the CPU of the first chain's last callback.
    pub(super) fn output_server(&self, slots: Vec<Slot>) -> Server {
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

    /// The measured latencies as promises; longer by `start_ns` where inputs are throttled.
    pub(super) fn as_measured(&self) -> Promises {
        let l = &self.scope.latency;
        let at = |ns: u64| Ms(ns.saturating_add(self.start_ns));
        Promises {
            average_ms: at(l.mean().round() as u64),
            worst_ms: at(l.max()),
            jitter_ms: Ms((l.max() - l.min()) / 2),
            ..Promises::default()
        }
    }

    /// No slots: the baseline.
    pub(super) fn fifo(&self) -> Layout<'m> {
        Layout {
            servers: self.latency_servers(vec![]),
            held: vec![],
            promises: self.as_measured(),
            output_ns: 0,
        }
    }

    /// Slots in the order of the chain, each as long as its callback's measured worst case and its
    /// executor's work before it.
    pub(super) fn server_per_callback(&self) -> Result<Layout<'m>, PlanError> {
        let (spans, order) = self.callback_spans()?;
        let end = spans.iter().map(|s| s.1).max().unwrap_or(0);
        self.fits("slots for every callback", end, self.scope.cycle_ns)?;
        Ok(Layout {
            servers: self.node_servers(&spans, &order),
            held: vec![],
            promises: self.span_promises(&spans),
            output_ns: 0,
        })
    }

    /// A span for every callback, and the callbacks in the order of their starts. A span begins
    /// when those of all predecessors have ended and its CPU is free.
    fn callback_spans(&self) -> Result<(Vec<Span>, Vec<usize>), PlanError> {
        let scope = self.scope;
        let mut spans: Vec<Option<Span>> = vec![None; scope.parts.len()];
        let mut free: BTreeMap<u16, u64> = BTreeMap::new();
        let mut order = Vec::with_capacity(spans.len());
        while order.len() < spans.len() {
            let begin = |i: usize| {
                let part = &scope.parts[i];
                let cpu = free.get(&part.cpu).copied().unwrap_or(0);
                let mut inputs = part.before.iter().map(|&b| spans[b].map(|s| s.1));
                inputs.try_fold(cpu, |start, end| Some(start.max(end?)))
            };
            // Of the callbacks whose inputs have spans, the one that can begin first.
            let waiting = (0..spans.len()).filter(|&i| spans[i].is_none());
            let Some((start, i)) = waiting.filter_map(|i| Some((begin(i)?, i))).min() else {
                return Err(PlanError::NoOrder);
            };
            let part = &scope.parts[i];
            let delay = match part.before.is_empty() {
                true => self.input_delay_ns,
                false => 0,
            };
            let need = self.with_epsilon(part.demand_ns()).saturating_add(delay);
            let end = start.saturating_add(need);
            free.insert(part.cpu, end);
            spans[i] = Some((start, end));
            order.push(i);
        }
        Ok((spans.into_iter().flatten().collect(), order))
    }

    /// One server per node, since the callbacks of a node share its threads.
    fn node_servers(&self, spans: &[Span], order: &[usize]) -> Vec<Server> {
        let mut servers: Vec<Server> = Vec::new();
        let mut of_node: BTreeMap<&str, usize> = BTreeMap::new();
        for &i in order {
            let (part, (start, end)) = (&self.scope.parts[i], spans[i]);
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
        servers
    }

    /// Only the last callback of each chain varies, within its slot.
    fn span_promises(&self, spans: &[Span]) -> Promises {
        let scope = self.scope;
        let last = |chain: &&Chain| {
            let mut ids = chain.callbacks.iter().rev();
            ids.find_map(|id| scope.parts.iter().position(|p| p.callback.id == *id))
        };
        let (mut average, mut worst, mut jitter) = (0.0, 0, 0);
        for last in scope.chains.iter().filter_map(last) {
            let (part, (start, end)) = (&scope.parts[last], spans[last]);
            average +=
                (start as f64 + part.around_mean_ns + part.mean_ns()) / scope.chains.len() as f64;
            worst = worst.max(end);
            jitter = jitter.max((end - start).saturating_sub(part.best_ns()) / 2);
        }
        Promises {
            average_ms: Ms(average.round() as u64),
            worst_ms: Ms(worst),
            jitter_ms: Ms(jitter),
            ..Promises::default()
        }
    }

    /// One slot per cycle for the whole chain (Definition 4.3.1).
    pub(super) fn server_per_chain(&self) -> Result<Layout<'m>, PlanError> {
        let slot = self.chain_slot();
        self.fits(
            "the chain's worst case and its buffer",
            slot.1 .0,
            self.scope.cycle_ns,
        )?;
        Ok(Layout {
            servers: self.latency_servers(vec![slot]),
            held: vec![],
            promises: self.as_measured(),
            output_ns: 0,
        })
    }
}
