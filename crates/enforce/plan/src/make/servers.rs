//! Lays out the strategies that only reserve CPU time: plain priorities, a server per callback, a
//! server per chain.
//!
//! The other strategies build on these servers.

use super::{round_down, slot, Layout, Maker, OUTPUTS};
use crate::error::PlanError;
use crate::executors::Group;
use crate::schema::{Ms, Promises, Server, Slot};
use crate::scope::Part;
use onbeat_document::schema::Chain;
use std::collections::BTreeMap;

type Span = (u64, u64);

impl<'m> Maker<'_, 'm> {
    /// Returns the latency servers (R_gamma), one per CPU of the chain's callbacks, all with the
    /// same slots.
    pub(super) fn latency_servers(&self, slots: Vec<Slot>) -> Vec<Server> {
        let mut of: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        // Threads of another plan's servers stay there.
        let own = |p: &&Part<'m>| !self.scope.is_beside(p.callback);
        for part in self.scope.parts.iter().filter(own) {
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

    /// Returns the latency servers of chains that end within the slot `whole`.
    ///
    /// On several CPUs, each server gets the part of the slot in which its callbacks can run. The
    /// part begins after the shortest time from the chain's start to the server's first callback.
    /// The part ends before the end of the slot, by the shortest time from the server's last
    /// callback to the chain's end. The shortest times are half of the measured best cases, as in
    /// [`Maker::earliest_ns`]. So an execution that is faster than all measured ones need not wait
    /// for a slot.
    pub(super) fn latency_servers_within(&self, whole: Slot) -> Vec<Server> {
        let mut servers = self.latency_servers(vec![whole]);
        if servers.len() > 1 {
            let ways = self.shortest_ways();
            for server in &mut servers {
                let parts = self.scope.parts.iter().zip(&ways);
                let here = || parts.clone().filter(|(p, _)| p.cpu == server.cpu);
                let before = here().map(|(_, way)| way.0).min().unwrap_or(0);
                let behind = here().map(|(_, way)| way.1).min().unwrap_or(0);
                let end = whole.1 .0.saturating_sub(round_down(behind));
                server.slots_ms = vec![slot(whole.0 .0.saturating_add(round_down(before)), end)];
            }
        }
        servers
    }

    /// Returns two times in ns for each callback. The first is half of the shortest time from the
    /// chains' start to the callback's start. The second is half of the shortest time from the
    /// callback's end to the chains' ends.
    fn shortest_ways(&self) -> Vec<(u64, u64)> {
        let parts = &self.scope.parts;
        let half = |i: usize| parts[i].best_ns() / 2;
        let mut ways: Vec<(u64, u64)> = vec![(0, 0); parts.len()];
        // The parts are in order, so predecessors come first.
        for i in 0..parts.len() {
            let before = parts[i].before.iter().map(|&b| ways[b].0 + half(b));
            ways[i].0 = before.min().unwrap_or(0);
        }
        for i in (0..parts.len()).rev() {
            let after = (i + 1..parts.len()).filter(|&j| parts[j].before.contains(&i));
            let is_last = |c: &Chain| {
                c.callbacks.iter().rfind(|id| self.is_part(id)) == Some(&parts[i].callback.id)
            };
            let ends = self.scope.chains.iter().any(|c| is_last(c));
            let behind = after.map(|j| ways[j].1 + half(j));
            ways[i].1 = if ends { 0 } else { behind.min().unwrap_or(0) };
        }
        ways
    }

    fn is_part(&self, id: &str) -> bool {
        self.scope.parts.iter().any(|p| p.callback.id == id)
    }

    /// Returns the output server (R_delta), on the CPU of the first chain's last callback.
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

    /// Returns the measured latencies as promises. With throttled inputs, `start_ns` is added to
    /// them.
    pub(super) fn as_measured(&self) -> Promises {
        let l = &self.scope.latency;
        let at = |ns: u64| Ms(ns.saturating_add(self.start_ns));
        Promises {
            average_ms: at(l.mean().round() as u64),
            worst_ms: at(self.worst_ns()),
            jitter_ms: Ms((self.worst_ns() - l.min()) / 2),
            ..Promises::default()
        }
    }

    pub(super) fn fifo(&self) -> Layout<'m> {
        Layout {
            servers: self.latency_servers(vec![]),
            held: vec![],
            promises: self.as_measured(),
            output_ns: 0,
        }
    }

    /// Plans slots back to back in the order of the chain. A slot is as long as the measured worst
    /// case of its callback plus the longest time around it, for example the executor's work before
    /// it.
    pub(super) fn server_per_callback(&self) -> Result<Layout<'m>, PlanError> {
        let (spans, order) = self.callback_spans()?;
        let end = spans.iter().map(|s| s.1).max().unwrap_or(0);
        self.fits(
            "the slots of all callbacks of the chain",
            end,
            self.scope.cycle_ns,
        )?;
        Ok(Layout {
            servers: self.executor_servers(&spans, &order),
            held: vec![],
            promises: self.span_promises(&spans),
            output_ns: 0,
        })
    }

    /// Returns a slot for every callback, and the callbacks in the order of their starts. A slot
    /// begins when the slots of all predecessors have ended and the callback's CPU is free. If
    /// slots of one executor follow one another without a gap, the first slot has room for the
    /// other callbacks of the executor.
    fn callback_spans(&self) -> Result<(Vec<Span>, Vec<usize>), PlanError> {
        let scope = self.scope;
        let mut spans: Vec<Option<Span>> = vec![None; scope.parts.len()];
        let mut free: BTreeMap<u16, u64> = BTreeMap::new();
        let mut ends: BTreeMap<Group<'_>, u64> = BTreeMap::new();
        let mut order = Vec::with_capacity(spans.len());
        while order.len() < spans.len() {
            let begin = |i: usize| {
                let part = &scope.parts[i];
                let cpu = free.get(&part.cpu).copied().unwrap_or(0);
                let mut inputs = part.before.iter().map(|&b| spans[b].map(|s| s.1));
                inputs.try_fold(cpu, |start, end| Some(start.max(end?)))
            };
            // The next callback is the one that can begin first, among those whose inputs have
            // spans.
            let waiting = (0..spans.len()).filter(|&i| spans[i].is_none());
            let Some((start, i)) = waiting.filter_map(|i| Some((begin(i)?, i))).min() else {
                return Err(PlanError::NoOrder);
            };
            let part = &scope.parts[i];
            let delay = match part.before.is_empty() {
                true => self.input_delay_ns,
                false => 0,
            };
            let group = scope.executors.of(part.callback);
            let room = match ends.get(&group) == Some(&start) {
                true => 0,
                false => self.room_ns(group),
            };
            let need = self.with_epsilon(part.demand_ns().saturating_add(room));
            let end = start.saturating_add(need).saturating_add(delay);
            ends.insert(group, end);
            free.insert(part.cpu, end);
            spans[i] = Some((start, end));
            order.push(i);
        }
        Ok((spans.into_iter().flatten().collect(), order))
    }

    fn executor_servers(&self, spans: &[Span], order: &[usize]) -> Vec<Server> {
        let mut servers: Vec<Server> = Vec::new();
        let mut of_group: BTreeMap<Group<'_>, usize> = BTreeMap::new();
        for &i in order {
            let (part, (start, end)) = (&self.scope.parts[i], spans[i]);
            let group = self.scope.executors.of(part.callback);
            let i = *of_group.entry(group).or_insert_with(|| {
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

    /// Returns the promises for a plan with one slot per callback. In each chain, the end of the
    /// last callback varies within the slot of this callback. If slots of the same executor lead up
    /// to this slot without a gap, the end varies within all of these slots.
    fn span_promises(&self, spans: &[Span]) -> Promises {
        let scope = self.scope;
        let last = |chain: &&Chain| {
            let mut ids = chain.callbacks.iter().rev();
            ids.find_map(|id| scope.parts.iter().position(|p| p.callback.id == *id))
        };
        let (mut average, mut worst, mut jitter) = (0.0, 0, 0);
        for last in scope.chains.iter().filter_map(last) {
            let end = spans[last].1;
            let together = self.together(spans, last);
            let start = together.iter().map(|&i| spans[i].0).min().unwrap_or(end);
            let of = |i: &usize| &scope.parts[*i];
            let mean = |p: &Part<'_>| p.around_mean_ns + p.mean_ns();
            let means: f64 = together.iter().map(|i| mean(of(i))).sum();
            average += (start as f64 + means) / scope.chains.len() as f64;
            worst = worst.max(end);
            let best: u64 = together.iter().map(|i| of(i).best_ns()).sum();
            jitter = jitter.max((end - start).saturating_sub(best) / 2);
        }
        Promises {
            average_ms: Ms(average.round() as u64),
            worst_ms: Ms(worst),
            jitter_ms: Ms(jitter),
            ..Promises::default()
        }
    }

    /// Returns the callback `last` and those callbacks of its executor whose slots lead, without a
    /// gap, up to the slot of `last`.
    fn together(&self, spans: &[Span], last: usize) -> Vec<usize> {
        let group = |i: usize| self.scope.executors.of(self.scope.parts[i].callback);
        let mut found = vec![last];
        let mut start = spans[last].0;
        let before = |start| {
            let mut all = 0..spans.len();
            all.find(|&i| spans[i].1 == start && group(i) == group(last))
        };
        while let Some(i) = before(start).filter(|i| !found.contains(i)) {
            found.push(i);
            start = spans[i].0;
        }
        found
    }

    pub(super) fn server_per_chain(&self) -> Result<Layout<'m>, PlanError> {
        let slot = self.chain_slot();
        self.fits(
            "the chain's worst-case latency and the time buffer after it together",
            slot.1 .0,
            self.scope.cycle_ns,
        )?;
        Ok(Layout {
            servers: self.latency_servers_within(slot),
            held: vec![],
            promises: self.as_measured(),
            output_ns: 0,
        })
    }
}
