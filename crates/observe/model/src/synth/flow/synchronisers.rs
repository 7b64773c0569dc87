//! Subscriptions that wait for one another: evidence for AND junctions, and the lineages that
//! pass through them.
//!
//! For every topic that subscriptions of one node publish, the evidence is how often each of the
//! node's subscriptions had a new input when the topic was published. Which of them form a group
//! is decided from that evidence at the end (see `merge`), so until then lineages are followed
//! both ways: directly through the callback that published, and through the group.

use crate::chains::Lineages;
use crate::dist::Dist;
use crate::index::{NameId, StepId, VertexId};
use crate::synth::entities::Kind;
use crate::synth::running_median::RunningMedian;
use crate::synth::Synth;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// An input of a subscription.
#[derive(Debug, Clone)]
struct Entry {
    start: u64,
    /// NONE while it runs: `u64::MAX`.
    end: u64,
    origin: u64,
    lineages: Lineages,
}

/// A subscription of a node.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Member {
    pub(in crate::synth) vertex: u32,
    pub(in crate::synth) instances: u64,
    /// Instances that published anything.
    pub(in crate::synth) productive: u64,
    /// Instances that handed their input to a synchroniser, and to which last.
    pub(in crate::synth) synchronised: u64,
    filter: u64,
    /// Number of the first input kept.
    base: u64,
    inputs: VecDeque<Entry>,
}

/// What one subscription has to do with one output topic.
#[derive(Debug, Clone, Default)]
pub(in crate::synth) struct Part {
    /// Inputs not yet matched by an output, at most 3.
    credit: u8,
    /// Inputs since the last output.
    since: u8,
    /// Outputs for which it had an input left.
    pub(in crate::synth) fresh: u64,
    /// Outputs before which it had exactly one input.
    pub(in crate::synth) once: u64,
    /// Outputs that it published itself.
    pub(in crate::synth) published: u64,
    /// Outputs through a synchroniser that it feeds too.
    pub(in crate::synth) shared: u64,
    /// Its next input that can go into an output.
    next: u64,
    /// How much later its input's chain begins than the first subscription's, usually; shifted
    /// by [`ZERO`] as it has a sign.
    shift: RunningMedian,
    /// Inputs that went into outputs, and that were passed over.
    pub(in crate::synth) used: u64,
    pub(in crate::synth) skipped: u64,
    /// End of the subscription's part to the synchroniser's start.
    pub(in crate::synth) latency: Dist,
}

/// A topic that the node's subscriptions publish.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Output {
    pub(in crate::synth) topic: u32,
    pub(in crate::synth) vertex: u32,
    pub(in crate::synth) outputs: u64,
    /// Publications by others than the node's subscriptions.
    pub(in crate::synth) foreign: u64,
    pub(in crate::synth) parts: Vec<Part>,
    pub(in crate::synth) interarrival: Dist,
    last: Option<u64>,
    /// Lineages of the last intra-process message: copies of it go several ways.
    message: Option<(u64, Lineages)>,
}

/// The subscriptions and output topics of a node.
#[derive(Debug, Clone, Default)]
pub(in crate::synth) struct Group {
    /// The node has several subscriptions, whether or not they have run.
    several: bool,
    pub(in crate::synth) members: Vec<Member>,
    pub(in crate::synth) outputs: Vec<Output>,
}

/// Groups by node.
pub(in crate::synth) type Groups = FxHashMap<u32, Group>;

/// No difference, for times with a sign.
const ZERO: u64 = 1 << 62;

/// `a - b` with a sign.
fn difference(a: u64, b: u64) -> u64 {
    ZERO.saturating_add(a).saturating_sub(b)
}

/// Inputs kept per subscription.
const MAX_INPUTS: usize = 8;

/// Until so many outputs a group is followed whatever the evidence says.
const MIN_OUTPUTS: u64 = 10;

impl Output {
    /// Whether lineages are worth following through this subscription.
    fn promising(&self, i: usize) -> bool {
        let part = &self.parts[i];
        let share = |n: u64| n as f64 >= 0.7 * self.outputs as f64;
        self.outputs < MIN_OUTPUTS
            || part.shared * 2 > self.outputs
            || share(if part.published > 0 {
                part.fresh
            } else {
                part.once
            })
    }
}

impl Synth {
    /// A subscription's callback begins: one more input of its node.
    pub(in crate::synth) fn enter_node(&mut self, instance: u32) {
        let it = *self.instances.get(instance);
        let node = self.flow.vertices[it.vertex as usize].node;
        let several = match self.groups.get(&node) {
            Some(group) if group.several => true,
            Some(group) if group.members.iter().any(|m| m.instances > 100) => false,
            _ => self.several_subscriptions(it.entity),
        };
        let group = self.groups.entry(node).or_default();
        group.several = several;
        let i = match group.members.iter().position(|m| m.vertex == it.vertex) {
            Some(i) => i,
            None => {
                group.members.push(Member {
                    vertex: it.vertex,
                    instances: 0,
                    productive: 0,
                    synchronised: 0,
                    filter: 0,
                    base: 0,
                    inputs: VecDeque::new(),
                });
                for output in &mut group.outputs {
                    output.parts.push(Part::default());
                }
                group.members.len() - 1
            }
        };
        group.members[i].instances += 1;
        for output in &mut group.outputs {
            let part = &mut output.parts[i];
            part.credit = (part.credit + 1).min(3);
            part.since = part.since.saturating_add(1);
        }
        let origin = it
            .lineages
            .as_slice()
            .first()
            .map_or(it.start, |&s| self.steps.origin(s));
        // A node with a single subscription has nothing to synchronise.
        let lineages = if several {
            self.steps.share(&it.lineages)
        } else {
            Lineages::default()
        };
        let member = &mut group.members[i];
        let number = member.base + member.inputs.len() as u64;
        member.inputs.push_back(Entry {
            start: it.start,
            end: u64::MAX,
            origin,
            lineages,
        });
        if member.inputs.len() > MAX_INPUTS {
            if let Some(mut old) = member.inputs.pop_front() {
                self.steps.release_all(&mut old.lineages);
            }
            member.base += 1;
        }
        self.instances.get_mut(instance).entry = Some(number);
    }

    /// Whether an entity's node has more than one subscription.
    fn several_subscriptions(&self, entity: u32) -> bool {
        let it = &self.world.entities[entity as usize];
        let alike = |&&e: &&u32| {
            let o = &self.world.entities[e as usize];
            o.kind == Kind::Subscription && o.node == it.node && o.live && !o.infrastructure
        };
        let process = &self.world.processes[it.process as usize];
        process.entities.iter().filter(alike).count() > 1
    }

    /// A subscription's callback has dealt with its input, as far as can be told yet.
    pub(in crate::synth) fn input_done(&mut self, instance: u32, time: u64) {
        let it = self.instances.get(instance);
        let (vertex, entry) = (it.vertex, it.entry);
        let Some(v) = self.flow.vertices.get(vertex as usize) else {
            return;
        };
        let Some(group) = self.groups.get_mut(&v.node) else {
            return;
        };
        let Some(member) = group.members.iter_mut().find(|m| m.vertex == vertex) else {
            return;
        };
        if let Some(i) = entry.and_then(|n| n.checked_sub(member.base)) {
            if let Some(entry) = member.inputs.get_mut(i as usize) {
                entry.end = time;
            }
        }
    }

    /// A subscription's callback ends.
    pub(in crate::synth) fn leave_node(&mut self, instance: u32, time: u64) {
        let it = *self.instances.get(instance);
        if it.entry.is_none() {
            return;
        }
        let node = self.flow.vertices[it.vertex as usize].node;
        let Some(member) = self
            .groups
            .get_mut(&node)
            .and_then(|g| g.members.iter_mut().find(|m| m.vertex == it.vertex))
        else {
            return;
        };
        member.productive += u64::from(it.output.is_some());
        if let Some((_, filter)) = it.synchronised {
            member.synchronised += 1;
            member.filter = filter;
        }
        self.input_done(instance, time);
    }

    /// A topic of a node is published by no callback.
    pub(in crate::synth) fn publish_unsynchronised(&mut self, node: u32, topic: u32) {
        if let Some(group) = self.groups.get_mut(&node) {
            if let Some(output) = group.outputs.iter_mut().find(|o| o.topic == topic) {
                output.foreign += 1;
            }
        }
    }

    /// An instance publishes a topic of a node at `time`: adds the lineages that lead there
    /// through the node's other subscriptions, and returns those that find no room there; the caller
    /// owns a reference on each. `message` tells an intra-process message, of which each copy is
    /// published, but which is one output.
    pub(in crate::synth) fn synchronise(
        &mut self,
        instance: u32,
        node: u32,
        topic: u32,
        time: u64,
        message: Option<u64>,
        lineages: &mut Lineages,
    ) -> Vec<StepId> {
        let mut beyond = Vec::new();
        let it = *self.instances.get(instance);
        let Some(group) = self.groups.get(&node) else {
            return beyond;
        };
        let me = group.members.iter().position(|m| m.vertex == it.vertex);
        let (Some(me), Some(number)) = (me, it.entry) else {
            self.publish_unsynchronised(node, topic);
            return beyond;
        };
        let known = group.outputs.iter().position(|o| o.topic == topic);
        if let (Some(i), Some(message)) = (known, message) {
            if let Some((same, added)) = &group.outputs[i].message {
                if *same == message {
                    let added = self.steps.share(&added.clone());
                    Self::add_lineages(lineages, added, &mut beyond);
                    self.notes
                        .count(crate::synth::notes::Note::Capped, beyond.len() as u64);
                    return beyond;
                }
            }
        }
        if known.is_none() && !group.several {
            return beyond;
        }
        let vertex = match known {
            Some(i) => group.outputs[i].vertex,
            None => self.sync_vertex(node, topic),
        };
        let Some(mut group) = self.groups.remove(&node) else {
            return beyond;
        };
        let o = known.unwrap_or_else(|| {
            let mut parts = vec![Part::default(); group.members.len()];
            for (part, member) in parts.iter_mut().zip(&group.members) {
                // What came before the first output counts for it.
                part.credit = member.instances.min(3) as u8;
                part.since = member.instances.min(1) as u8;
                part.next = member.base + member.inputs.len().saturating_sub(1) as u64;
            }
            group.outputs.push(Output {
                topic,
                vertex,
                outputs: 0,
                foreign: 0,
                parts,
                interarrival: Dist::new(),
                last: None,
                message: None,
            });
            group.outputs.len() - 1
        });
        let mut added = Lineages::default();
        let Group {
            members, outputs, ..
        } = &mut group;
        let output = &mut outputs[o];
        output.outputs += 1;
        if let Some(last) = output.last.replace(time) {
            output.interarrival.record(time.saturating_sub(last));
        }
        let filter = it.synchronised.map(|s| s.1);
        for (part, member) in output.parts.iter_mut().zip(&*members) {
            part.fresh += u64::from(part.credit > 0);
            part.once += u64::from(part.since == 1);
            part.credit = part.credit.saturating_sub(1);
            part.since = 0;
            if let Some(filter) = filter {
                let same = member.filter == filter && member.synchronised > 0;
                part.shared += u64::from(same || member.vertex == it.vertex);
            }
        }
        output.parts[me].published += 1;
        let start = it.synchronised.map_or(it.start, |s| s.0);
        let own_origin = it
            .lineages
            .as_slice()
            .first()
            .map_or(it.start, |&s| self.steps.origin(s));
        // Where each has one input left there is no choice, and the usual differences show.
        let left = |part: &Part, member: &Member| {
            let last = member.base + member.inputs.len() as u64;
            last.saturating_sub(part.next.max(member.base))
        };
        let mut parts = output.parts.iter().zip(&*members);
        if parts.all(|(p, m)| left(p, m) == 1) {
            let origin = |m: &Member| m.inputs.back().map_or(0, |e| e.origin);
            let reference = members.first().map_or(0, origin);
            for (part, member) in output.parts.iter_mut().zip(&*members) {
                part.shift.add(difference(origin(member), reference));
            }
        }
        let own_shift = output.parts[me].shift.clone();
        let followed = (0..members.len()).filter(|&i| output.promising(i)).count() >= 2;
        for (i, member) in members.iter().enumerate() {
            let part = &mut output.parts[i];
            let first = part.next.max(member.base);
            let last = member.base + member.inputs.len() as u64;
            // Of the inputs left, the one whose chain began as much apart from the publishing
            // one's as usual; the oldest while nothing is known.
            let chosen = if i == me {
                Some(number).filter(|&n| n >= first)
            } else if own_shift.is_empty() || part.shift.is_empty() {
                (first..last).next()
            } else {
                let base = difference(own_origin, own_shift.median());
                let usual = base.saturating_add(part.shift.median());
                (first..last).min_by_key(|n| {
                    let origin = member.inputs[(n - member.base) as usize].origin;
                    origin.saturating_add(ZERO).abs_diff(usual)
                })
            };
            let Some(chosen) = chosen.filter(|&n| n >= member.base && n < last) else {
                continue;
            };
            part.used += 1;
            part.skipped += chosen.saturating_sub(part.next);
            part.next = chosen + 1;
            let entry = &member.inputs[(chosen - member.base) as usize];
            let handed = if i == me {
                start
            } else {
                entry.end.min(start).max(entry.start.min(start))
            };
            part.latency.record(start - handed);
            if !followed || output.foreign > 0 || !output.promising(i) {
                continue;
            }
            let input = NameId::new(self.flow.vertices[member.vertex as usize].name as usize);
            let sync = VertexId::new(vertex as usize);
            for n in first..chosen {
                for &s in member.inputs[(n - member.base) as usize]
                    .lineages
                    .as_slice()
                {
                    self.paths.lose(self.steps.path(s), input, sync, 1);
                }
            }
            for &s in entry.lineages.as_slice() {
                let Some(path) = self.paths.child(self.steps.path(s), input, sync) else {
                    continue;
                };
                let step = self.steps.extend(s, path, handed, start);
                let output = Some(NameId::new(topic as usize));
                self.paths.finish(&self.steps, step, time, output);
                if !added.push(step) {
                    beyond.push(step);
                }
            }
        }
        if let Some((_, mut old)) = output.message.take() {
            self.steps.release_all(&mut old);
        }
        if let Some(message) = message {
            output.message = Some((message, self.steps.share(&added)));
        }
        Self::add_lineages(lineages, added, &mut beyond);
        self.groups.insert(node, group);
        self.notes
            .count(crate::synth::notes::Note::Capped, beyond.len() as u64);
        beyond
    }

    /// Moves lineages to others; what finds no room goes to `beyond`.
    fn add_lineages(to: &mut Lineages, from: Lineages, beyond: &mut Vec<StepId>) {
        for &step in from.as_slice() {
            if !to.push(step) {
                beyond.push(step);
            }
        }
    }
}
