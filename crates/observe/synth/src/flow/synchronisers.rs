//! Subscriptions that wait for one another: evidence for AND junctions, and the lineages that
//! pass through them.
//!
//! For every topic that subscriptions of one node publish, the evidence is how often each of the
//! node's subscriptions had a new input when the topic was published. `conclude` decides from that
//! evidence which of them form a group. Lineages are followed so that either decision can use
//! them: the publishing callback's own pass the group's sync vertex in a way that can be taken
//! back ([`Via::Own`]), and those of the others come beside them.

use super::instances::Instance;
use super::lineage::Lineage;
use super::Flow;
use crate::chains::{Lineages, Next, Via};
use crate::entities::EntityKind;
use crate::events::Owner;
use crate::ids::{EntityId, InstanceId, NodeId};
use crate::index::{NameId, StepId, VertexId};
use crate::mode_rules::{ModeId, PerMode};
use crate::notes::Note;
use crate::running_median::RunningMedian;
use crate::Context;
use onbeat_document::dist::Dist;
use onbeat_document::evidence::few;
use onbeat_document::schema::{JunctionKind, Matching};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// An input of a subscription.
#[derive(Debug, Clone)]
struct Entry {
    start: u64,
    /// None while its callback runs.
    end: Option<u64>,
    /// Start of its chain.
    origin: u64,
    lineages: Lineages,
}

/// A subscription of a node.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) vertex: VertexId,
    pub(crate) instances: u64,
    /// Instances that published anything.
    pub(crate) productive: u64,
    /// Instances that handed their input to a synchroniser.
    pub(crate) synchronised: u64,
    /// The synchroniser that it last handed an input to.
    filter: Option<u64>,
    /// That one joins by approximate time.
    approximate: bool,
    /// Number of the first input kept.
    base: u64,
    inputs: VecDeque<Entry>,
}

impl Member {
    fn new(vertex: VertexId) -> Self {
        Member {
            vertex,
            instances: 0,
            productive: 0,
            synchronised: 0,
            filter: None,
            approximate: false,
            base: 0,
            inputs: VecDeque::new(),
        }
    }

    /// Number of its next input.
    fn next(&self) -> u64 {
        self.base + self.inputs.len() as u64
    }

    /// An input by its number, if it is still kept.
    fn input(&self, number: u64) -> Option<&Entry> {
        self.inputs.get(number.checked_sub(self.base)? as usize)
    }
}

/// How one subscription contributes to one output topic.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    /// Inputs not yet matched by an output, at most [`MAX_CREDIT`].
    credit: u8,
    /// Inputs since the last output.
    since: u8,
    /// What the outputs show of it.
    pub(crate) seen: Seen,
    /// Number of the input on which it last published the output.
    last: Option<u64>,
    /// Its next input that can go into an output.
    next: u64,
    /// How much later its input's chain begins than the first subscription's, usually; see
    /// [`difference`].
    shift: RunningMedian,
    /// By the mode in which the synchroniser started.
    pub(crate) joined: PerMode<Joined>,
}

/// What became of the inputs of one subscription.
#[derive(Debug, Clone, Default)]
pub(crate) struct Joined {
    /// Inputs that went into outputs.
    pub(crate) used: u64,
    /// Inputs that were passed over.
    pub(crate) skipped: u64,
    /// From the end of the subscription's callback to the synchroniser's start.
    pub(crate) latency: Dist,
}

/// What the outputs show of one subscription.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Outputs for which it had an input left.
    pub(crate) fresh: u64,
    /// Outputs before which it had exactly one input.
    pub(crate) once: u64,
    /// Outputs that it published itself.
    pub(crate) published: u64,
    /// Outputs through a synchroniser that it feeds too.
    pub(crate) shared: u64,
    /// Outputs that it published itself though another that publishes had no input left.
    pub(crate) alone: u64,
    /// Executions without the output, from its first output on, though each other that may be
    /// waited for had an input since the last output.
    pub(crate) held: u64,
    /// Executions of others without the output while this one alone had no input since the last.
    pub(crate) awaited: u64,
}

impl Part {
    /// The part of a subscription in a topic's first output: its inputs before count for it.
    fn before_first_output(member: &Member) -> Self {
        Part {
            credit: member.instances.min(MAX_CREDIT.into()) as u8,
            since: member.instances.min(1) as u8,
            next: member.next().saturating_sub(1).max(member.base),
            ..Part::default()
        }
    }

    /// Whether it may be waited for, by the outputs so far: it had a new input for each.
    fn joins(&self, outputs: u64) -> bool {
        self.seen.published > 0 || outputs.saturating_sub(self.seen.fresh) <= few(outputs)
    }

    /// Numbers of the inputs that can go into an output.
    fn left(&self, member: &Member) -> std::ops::Range<u64> {
        self.next.max(member.base)..member.next()
    }
}

/// A topic that the node's subscriptions publish.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) topic: NameId,
    pub(crate) vertex: VertexId,
    pub(crate) outputs: u64,
    /// Publications by others than the node's subscriptions.
    pub(crate) foreign: u64,
    /// By member.
    pub(crate) parts: Vec<Part>,
    pub(crate) interarrival: PerMode<Dist>,
    last: Option<u64>,
    /// The last intra-process message and its lineages, none where only the publishing callback's
    /// were followed: copies of it go several ways.
    message: Option<(u64, Option<Lineages>)>,
    follow: Follow,
    /// Its items were joined by approximate time.
    pub(crate) joined_nearest: bool,
    /// Outputs on another input than the first that was left to the publishing callback.
    pub(crate) chosen: u64,
}

/// Which subscriptions' lineages are followed into an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// Of those that may be waited for, by the evidence.
    Evidence,
    /// Of all: the user states that they are waited for, and which items go together.
    All(Matching),
    /// Only of the one that publishes: the user states that it waits for none.
    Own,
}

/// The subscriptions and output topics of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    /// The node has several subscriptions, whether or not they have run.
    several: bool,
    pub(crate) members: Vec<Member>,
    pub(crate) outputs: Vec<Output>,
}

/// Groups by node.
pub(crate) type Groups = FxHashMap<NodeId, Group>;

/// A publication by a subscription's callback.
#[derive(Debug, Clone, Copy)]
struct Published {
    it: Instance,
    /// The member that published, and the number of its input.
    me: usize,
    number: u64,
    time: u64,
    /// When it handed its input to the synchroniser, or started.
    start: u64,
    /// The mode that was active then.
    mode: ModeId,
    /// Start of the chain that its own input belongs to.
    origin: u64,
}

/// No difference, for times with a sign.
const ZERO: u64 = 1 << 62;

/// `a - b` with a sign, shifted by [`ZERO`].
fn difference(a: u64, b: u64) -> u64 {
    ZERO.saturating_add(a).saturating_sub(b)
}

/// Inputs kept per subscription.
const MAX_INPUTS: usize = 8;

/// Most inputs that count as not yet matched.
const MAX_CREDIT: u8 = 3;

/// Until so many outputs a group is followed whatever the evidence says.
const MIN_OUTPUTS: u64 = 10;

/// After so many instances a subscription that was alone in its node stays so.
const ALONE_INSTANCES: u64 = 100;

impl Output {
    fn new(topic: NameId, vertex: VertexId, members: &[Member], follow: Follow) -> Self {
        Output {
            topic,
            vertex,
            follow,
            joined_nearest: false,
            chosen: 0,
            outputs: 0,
            foreign: 0,
            parts: members.iter().map(Part::before_first_output).collect(),
            interarrival: PerMode::default(),
            last: None,
            message: None,
        }
    }

    /// Whether a subscription may be waited for.
    fn promising(&self, i: usize, members: &[Member]) -> bool {
        let (part, member) = (&self.parts[i], &members[i]);
        let silent = part.seen.published > 0 || member.productive * 10 < member.instances.max(1);
        let fresh = part.seen.fresh as f64 >= 0.7 * self.outputs as f64;
        self.outputs < MIN_OUTPUTS || part.seen.shared * 2 > self.outputs || silent && fresh
    }

    /// The subscriptions whose lineages are followed into an output that one of them publishes;
    /// none where it cannot wait for another. Subscriptions of a guessed node may be of several:
    /// only those that feed the same synchroniser.
    fn followed(&self, members: &[Member], me: usize, guessed: bool) -> Vec<usize> {
        let others = |i: &usize| *i != me;
        match self.follow {
            Follow::Own => Vec::new(),
            _ if guessed => {
                let same = |i: &usize| members[*i].filter == members[me].filter;
                let fed = members[me].filter.map(|_| 0..members.len());
                let fed = fed.into_iter().flatten();
                fed.filter(others).filter(same).collect()
            }
            Follow::All(_) => (0..members.len()).filter(others).collect(),
            Follow::Evidence if self.foreign > 0 || !self.promising(me, members) => Vec::new(),
            Follow::Evidence => {
                let promising = |i: &usize| self.promising(*i, members);
                (0..members.len())
                    .filter(others)
                    .filter(promising)
                    .collect()
            }
        }
    }

    /// The inputs that a synchroniser by approximate time joins, by member: of those left, the set
    /// whose chains began nearest to one another. None where it does not join so, or where one of
    /// them has nothing left.
    fn nearest(
        &self,
        members: &[Member],
        others: &[usize],
        me: usize,
    ) -> Option<Vec<(usize, u64)>> {
        let approximate = match self.follow {
            Follow::Evidence => members[me].approximate,
            Follow::All(matching) => matching == Matching::Nearest,
            Follow::Own => false,
        };
        if !approximate || others.is_empty() {
            return None;
        }
        let joined = || others.iter().copied().chain([me]);
        let left = |i: usize| self.parts[i].left(&members[i]);
        let origin = |i: usize, n: u64| members[i].input(n).map_or(0, |e| e.origin);
        let pivot = joined().min_by_key(|&i| left(i).end.saturating_sub(left(i).start))?;
        let set = |about: u64| -> Option<Vec<(usize, u64)>> {
            let near = |i: usize| left(i).min_by_key(|&n| origin(i, n).abs_diff(about));
            joined().map(|i| Some((i, near(i)?))).collect()
        };
        let width = |set: &Vec<(usize, u64)>| {
            let origins = || set.iter().map(|&(i, n)| origin(i, n));
            origins().max().unwrap_or(0) - origins().min().unwrap_or(0)
        };
        let sets = left(pivot).filter_map(|n| set(origin(pivot, n)));
        sets.min_by_key(width)
    }

    /// The lineages of an intra-process message, if it was the last output.
    fn lineages_of(&self, message: Option<u64>) -> Option<Option<Lineages>> {
        let (last, lineages) = self.message.as_ref()?;
        (Some(*last) == message).then_some(*lineages)
    }

    /// Keeps the lineages of the last output, if it is an intra-process message.
    fn set_message(
        &mut self,
        lineage: &mut Lineage,
        message: Option<u64>,
        lineages: Option<&Lineages>,
    ) {
        if let Some((_, Some(mut old))) = self.message.take() {
            lineage.steps.release_all(&mut old);
        }
        let mut share = |lineages| lineage.steps.share(lineages);
        self.message = message.map(|message| (message, lineages.map(&mut share)));
    }

    /// Counts an output as evidence.
    fn count(&mut self, members: &[Member], by: &Published) {
        self.outputs += 1;
        let interarrival = self.interarrival.of(by.mode);
        if let Some(last) = self.last.replace(by.time) {
            interarrival.record(by.time.saturating_sub(last));
        }
        let lacks =
            |(i, part): (usize, &Part)| i != by.me && part.seen.published > 0 && part.credit == 0;
        let alone = self.parts.iter().enumerate().any(lacks);
        let filter = by.it.synchronised.map(|s| s.1);
        for (part, member) in self.parts.iter_mut().zip(members) {
            part.seen.fresh += u64::from(part.credit > 0);
            part.seen.once += u64::from(part.since == 1);
            part.credit = part.credit.saturating_sub(1);
            part.since = 0;
            if filter.is_some() {
                let same = member.filter == filter;
                part.seen.shared += u64::from(same || member.vertex == by.it.vertex);
            }
        }
        let own = &mut self.parts[by.me];
        own.seen.published += 1;
        own.seen.alone += u64::from(alone);
        own.last = Some(by.number);
        self.learn_shifts(members);
    }

    /// A member's execution on an input ends: evidence, if it did not publish this time.
    fn count_end(&mut self, me: usize, number: u64) {
        if self.parts[me].last.is_none_or(|last| last >= number) {
            return;
        }
        let outputs = self.outputs;
        let lacks = |(i, part): &(usize, &Part)| *i != me && part.since == 0 && part.joins(outputs);
        let mut lacking = self.parts.iter().enumerate().filter(lacks).map(|(i, _)| i);
        match (lacking.next(), lacking.next()) {
            (None, _) => self.parts[me].seen.held += 1,
            (Some(only), None) => self.parts[only].seen.awaited += 1,
            // Which of them it waits for does not show.
            (Some(_), Some(_)) => {}
        }
    }

    /// Where each subscription has one input left there is no choice, and the usual differences
    /// show.
    fn learn_shifts(&mut self, members: &[Member]) {
        let count = |(part, member): (&Part, &Member)| {
            let left = part.left(member);
            left.end.saturating_sub(left.start)
        };
        if !self.parts.iter().zip(members).all(|pair| count(pair) == 1) {
            return;
        }
        let origin = |m: &Member| m.inputs.back().map_or(0, |e| e.origin);
        let reference = members.first().map_or(0, origin);
        for (part, member) in self.parts.iter_mut().zip(members) {
            part.shift.add(difference(origin(member), reference));
        }
    }

    /// The input of a member that went into an output: of the inputs left, the one whose chain
    /// began as much apart from the publishing one's as usual; the oldest while nothing is known.
    fn choose(&self, i: usize, member: &Member, by: &Published) -> Option<u64> {
        let (part, own) = (&self.parts[i], &self.parts[by.me].shift);
        let left = part.left(member);
        if i == by.me {
            return Some(by.number).filter(|n| left.contains(n));
        }
        if own.is_empty() || part.shift.is_empty() {
            return left.into_iter().next();
        }
        let base = difference(by.origin, own.median());
        let usual = base.saturating_add(part.shift.median());
        left.min_by_key(|&n| {
            let origin = member.input(n).map_or(0, |e| e.origin);
            origin.saturating_add(ZERO).abs_diff(usual)
        })
    }
}

impl Flow {
    /// A subscription's callback begins: one more input of its node.
    pub(super) fn enter_node(&mut self, cx: &Context, instance: InstanceId) {
        let Some(&it) = self.instances.get(instance) else {
            return;
        };
        let Some(node) = self.graph.vertex(it.vertex).looks.node else {
            return;
        };
        let node = cx.entities.nodes.settled(node);
        let several = match self.groups.get(&node) {
            Some(group) if group.several => true,
            Some(group) if group.members.iter().any(|m| m.instances > ALONE_INSTANCES) => false,
            _ => several_subscriptions(cx, it.entity),
        };
        let group = self.groups.entry(node).or_default();
        group.several = several;
        let i = group.member(it.vertex);
        group.members[i].instances += 1;
        for output in &mut group.outputs {
            let part = &mut output.parts[i];
            part.credit = (part.credit + 1).min(MAX_CREDIT);
            part.since = part.since.saturating_add(1);
        }
        let origin = origin_of(&self.lineage, &it);
        // A node with a single subscription has nothing to synchronise.
        let lineages = if several {
            self.lineage.steps.share(&it.lineages)
        } else {
            Lineages::default()
        };
        let member = &mut group.members[i];
        let number = member.next();
        member.inputs.push_back(Entry {
            start: it.start,
            end: None,
            origin,
            lineages,
        });
        if member.inputs.len() > MAX_INPUTS {
            if let Some(mut old) = member.inputs.pop_front() {
                self.lineage.steps.release_all(&mut old.lineages);
            }
            member.base += 1;
        }
        if let Some(it) = self.instances.get_mut(instance) {
            it.entry = Some((node, number));
        }
    }

    /// What was a guessed node's is this node's, by what is known now.
    pub(crate) fn rehome(&mut self, guess: NodeId, node: NodeId) {
        if guess != node && !self.groups.contains_key(&node) {
            if let Some(group) = self.groups.remove(&guess) {
                self.groups.insert(node, group);
            }
        }
    }

    /// The member that an instance of a subscription runs.
    fn member_of(&mut self, it: &Instance) -> Option<&mut Member> {
        let (group, me) = self.group_of(it)?;
        group.members.get_mut(me)
    }

    /// The group and the number of the member that an instance of a subscription runs.
    fn group_of(&mut self, it: &Instance) -> Option<(&mut Group, usize)> {
        let (node, _) = it.entry?;
        let group = self.groups.get_mut(&node)?;
        let me = group.members.iter().position(|m| m.vertex == it.vertex)?;
        Some((group, me))
    }

    /// A subscription's callback has processed its input, as far as known yet.
    pub(super) fn input_done(&mut self, instance: InstanceId, time: u64) {
        let Some(&it) = self.instances.get(instance) else {
            return;
        };
        let (Some((_, number)), Some(member)) = (it.entry, self.member_of(&it)) else {
            return;
        };
        let i = number.checked_sub(member.base);
        if let Some(entry) = i.and_then(|i| member.inputs.get_mut(i as usize)) {
            entry.end = Some(time);
        }
    }

    /// A callback hands its input to a synchroniser.
    pub(super) fn hand_over(
        &mut self,
        instance: InstanceId,
        (filter, approximate): (u64, bool),
        time: u64,
    ) {
        let Some(it) = self.instances.get_mut(instance) else {
            return;
        };
        it.synchronised = Some((time, filter));
        let it = *it;
        if let Some(member) = self.member_of(&it) {
            (member.filter, member.approximate) = (Some(filter), approximate);
        }
    }

    /// A subscription's callback ends.
    pub(super) fn leave_node(&mut self, instance: InstanceId, time: u64) {
        let Some(&it) = self.instances.get(instance) else {
            return;
        };
        let (Some((_, number)), Some((group, me))) = (it.entry, self.group_of(&it)) else {
            return;
        };
        for output in &mut group.outputs {
            output.count_end(me, number);
        }
        let member = &mut group.members[me];
        member.productive += u64::from(it.output.is_some());
        member.synchronised += u64::from(it.synchronised.is_some());
        self.input_done(instance, time);
    }

    /// An owner publishes a topic of a node with the lineages of its own: continues them through
    /// the node's subscriptions that may wait for one another, with those of the others, and returns
    /// those that find no room; the caller owns a reference on each. `message` identifies an
    /// intra-process message, of which each copy is published, but which is one output.
    pub(super) fn publish_synchronised(
        &mut self,
        cx: &mut Context,
        owner: Owner,
        (node, topic): (NodeId, NameId),
        time: u64,
        message: Option<u64>,
        lineages: &mut Lineages,
    ) -> Vec<StepId> {
        let mut beyond = Vec::new();
        let Some(group) = self.groups.get(&node) else {
            return beyond;
        };
        let Some(by) = self.publication(group, owner, time) else {
            if let Some(group) = self.groups.get_mut(&node) {
                group.count_foreign(topic);
            }
            return beyond;
        };
        let known = group.outputs.iter().position(|o| o.topic == topic);
        if known.is_none() && !group.several {
            return beyond;
        }
        let copied = known.and_then(|o| group.outputs[o].lineages_of(message));
        let followed = if let Some(same) = copied {
            same.map(|same| self.lineage.steps.share(&same))
        } else {
            // Taken out while it changes, so that it and the lineages can change together.
            let Some(mut group) = self.groups.remove(&node) else {
                return beyond;
            };
            let o = known.unwrap_or_else(|| {
                let vertex = self.sync_vertex(node, topic);
                let follow = self.stated(cx, node, topic);
                let output = Output::new(topic, vertex, &group.members, follow);
                group.outputs.push(output);
                group.outputs.len() - 1
            });
            let followed = self.add_output(cx, (&mut group, o), &by, &mut beyond);
            let output = &mut group.outputs[o];
            output.set_message(&mut self.lineage, message, followed.as_ref());
            if !beyond.is_empty() {
                // The sync vertex may not be in the model.
                let dropped = beyond.len() as u64;
                cx.notes.count(Note::Capped(by.it.vertex), dropped);
            }
            self.groups.insert(node, group);
            followed
        };
        if let Some(followed) = followed {
            self.lineage.steps.release_all(lineages);
            *lineages = followed;
        }
        beyond
    }

    /// What the user states of an output of a node.
    fn stated(&self, cx: &Context, node: NodeId, topic: NameId) -> Follow {
        let (node, topic) = (cx.entities.node_id(node), cx.entities.names.get(topic));
        let mut all = self.junctions.iter();
        let stated = all.find(|s| s.node == node && s.topic == topic);
        stated.map_or(Follow::Evidence, |s| match s.kind {
            JunctionKind::And => Follow::All(s.matching),
            JunctionKind::Or => Follow::Own,
        })
    }

    /// A publication, if one of a group's subscriptions made it.
    fn publication(&self, group: &Group, owner: Owner, time: u64) -> Option<Published> {
        let Owner::Instance(instance) = owner else {
            return None;
        };
        let it = *self.instances.get(instance)?;
        let start = it.synchronised.map_or(it.start, |s| s.0);
        Some(Published {
            me: group.members.iter().position(|m| m.vertex == it.vertex)?,
            number: it.entry?.1,
            time,
            start,
            mode: self.graph.switches.at(start),
            origin: origin_of(&self.lineage, &it),
            it,
        })
    }

    /// Counts an output of a group. Returns its lineages, unless only those of the publishing
    /// callback are to be followed, and as they are.
    fn add_output(
        &mut self,
        cx: &Context,
        (group, o): (&mut Group, usize),
        by: &Published,
        beyond: &mut Vec<StepId>,
    ) -> Option<Lineages> {
        let (members, output) = (&group.members, &mut group.outputs[o]);
        output.count(members, by);
        let guessed = by
            .it
            .entry
            .is_some_and(|(n, _)| cx.entities.nodes.is_guessed(n));
        let followed = output.followed(members, by.me, guessed);
        let mut added = Lineages::default();
        let nearest = output.nearest(members, &followed, by.me);
        output.joined_nearest |= nearest.is_some();
        let near = |i| nearest.as_ref()?.iter().find(|n| n.0 == i).map(|n| n.1);
        let input = self.graph.vertex(by.it.vertex).looks.name;
        if let (false, Some(input)) = (followed.is_empty(), input) {
            // First, so that there is room. Unless another of its inputs is joined.
            if near(by.me).is_none_or(|n| n == by.number) {
                self.lineage.pass(input, (output, by), &mut added);
            }
        }
        for (i, member) in members.iter().enumerate() {
            let chosen = near(i).or_else(|| output.choose(i, member, by));
            let Some(chosen) = chosen else {
                continue;
            };
            let part = &mut output.parts[i];
            let joined = part.joined.of(by.mode);
            joined.used += 1;
            let skipped = chosen.saturating_sub(part.next);
            joined.skipped += skipped;
            output.chosen += u64::from(i == by.me && skipped > 0);
            part.next = chosen + 1;
            let Some(entry) = member.input(chosen) else {
                continue;
            };
            let own = i == by.me && chosen == by.number;
            let handed = if own {
                by.start
            } else {
                let end = entry.end.unwrap_or(u64::MAX);
                end.min(by.start).max(entry.start.min(by.start))
            };
            joined.latency.record(by.start - handed);
            let input = self.graph.vertex(member.vertex).looks.name;
            let Some(input) = input.filter(|_| !followed.is_empty()) else {
                continue;
            };
            let target = (&*output, input, by);
            if !own && (i == by.me || followed.contains(&i)) {
                let from = (&entry.lineages, handed);
                self.lineage.synchronise(from, target, &mut added, beyond);
            }
        }
        (!followed.is_empty()).then_some(added)
    }
}

impl Group {
    /// The member with a vertex, made when new.
    fn member(&mut self, vertex: VertexId) -> usize {
        if let Some(i) = self.members.iter().position(|m| m.vertex == vertex) {
            return i;
        }
        self.members.push(Member::new(vertex));
        for output in &mut self.outputs {
            output.parts.push(Part::default());
        }
        self.members.len() - 1
    }

    /// A topic of the node is published by none of its subscriptions.
    fn count_foreign(&mut self, topic: NameId) {
        if let Some(output) = self.outputs.iter_mut().find(|o| o.topic == topic) {
            output.foreign += 1;
        }
    }
}

impl Lineage {
    /// Continues the lineages of the publishing callback through an output.
    fn pass(&mut self, input: NameId, (output, by): (&Output, &Published), added: &mut Lineages) {
        for &own in by.it.lineages.as_slice() {
            let path = self.steps.path(own);
            let step = match self.paths.child(path, Via::Own(input), output.vertex) {
                Next::Path(path) => {
                    let step = self.steps.extend(own, path, by.start, by.start);
                    self.finish_output(step, output, by);
                    step
                }
                // It goes on as it would without the sync vertex.
                _ => self.steps.share_one(own),
            };
            // There is room: it has no more lineages than the callback.
            added.push(step);
        }
    }

    /// Continues the lineages of another input, handed over at `handed`, through an output.
    fn synchronise(
        &mut self,
        (lineages, handed): (&Lineages, u64),
        (output, input, by): (&Output, NameId, &Published),
        added: &mut Lineages,
        beyond: &mut Vec<StepId>,
    ) {
        for &step in lineages.as_slice() {
            let path = self.steps.path(step);
            let path = match self.paths.child(path, Via::Item(input), output.vertex) {
                Next::Path(path) => path,
                Next::Cycle => continue,
                Next::Full => {
                    self.paths.drop_at(path, self.steps.origin(step));
                    continue;
                }
            };
            let step = self.steps.extend(step, path, handed, by.start);
            self.finish_output(step, output, by);
            if !added.push(step) {
                self.paths.drop_at(path, self.steps.origin(step));
                beyond.push(step);
            }
        }
    }

    /// A lineage has reached an output.
    fn finish_output(&mut self, step: StepId, output: &Output, by: &Published) {
        let topic = Some(output.topic);
        self.paths.finish(&self.steps, step, by.time, topic);
    }
}

/// Start of the chain that an instance's input belongs to.
fn origin_of(lineage: &Lineage, it: &Instance) -> u64 {
    let first = it.lineages.as_slice().first();
    first.map_or(it.start, |&step| lineage.steps.origin(step))
}

/// Whether an entity's node has more than one subscription.
fn several_subscriptions(cx: &Context, e: EntityId) -> bool {
    let it = cx.entities.get(e);
    let node = cx.entities.node_of_entity(e);
    let alike = |&&other: &&EntityId| {
        let o = cx.entities.get(other);
        o.kind() == EntityKind::Subscription
            && cx.entities.node_of_entity(other) == node
            && o.live
            && !o.infrastructure
    };
    let process = cx.entities.process(it.process);
    process.entities.iter().filter(alike).count() > 1
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    /// Process 10: node `/fuse` with subscriptions to `/x` (rmw 0x1020, callback 0x60) and `/y`
    /// (rmw 0x1021, callback 0x61), and a publisher of `/out` (rmw 0x1010).
    const FUSE: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=fuse
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/out
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/x
1ms cpu0 10/10 subscription_object subscription=0x20 object=0x25
1ms cpu0 10/10 subscription_callback object=0x25 callback=0x60
1ms cpu0 10/10 subscription_init subscription=0x21 node=0x1 rmw=0x1021 topic=/y
1ms cpu0 10/10 subscription_object subscription=0x21 object=0x26
1ms cpu0 10/10 subscription_callback object=0x26 callback=0x61
";

    /// An input at `t` us, `y` or not; it publishes the output or not.
    fn input(t: u64, y: bool, publishes: bool) -> String {
        let (rmw, callback) = (0x1020 + u64::from(y), 0x60 + u64::from(y));
        let mut text = format!(
            "{t}us cpu0 10/10 take rmw={rmw:#x} source_ns={t}us
{t}us cpu0 10/10 callback_start callback={callback:#x}
"
        );
        if publishes {
            text += &format!("{t}us cpu0 10/10 publish rmw=0x1010 source_ns={t}us\n");
        }
        text + &format!("{t}us cpu0 10/10 callback_end callback={callback:#x}\n")
    }

    #[test]
    fn one_input_of_each_before_every_output_is_evidence() {
        let mut trace = FUSE.to_string();
        for i in 1..=5 {
            let t = 10_000 * i;
            trace += &(input(t, false, false) + &input(t + 100, true, true));
        }
        // Two more of one that lead to nothing, and one that publishes alone.
        trace += &[71_000, 72_000].map(|t| input(t, false, false)).concat();
        trace += &input(73_000, false, true);
        let harness = Harness::new(&trace);
        let groups = &harness.synth.flow.groups;
        let group = groups.values().next().unwrap();
        let counts: Vec<_> = group.outputs[0]
            .parts
            .iter()
            .map(|p| {
                (
                    p.seen.fresh,
                    p.seen.once,
                    p.seen.published,
                    p.joined.iter().map(|j| j.1.used).sum(),
                    p.joined.iter().map(|j| j.1.skipped).sum(),
                )
            })
            .collect();
        assert_eq!(group.outputs[0].outputs, 6);
        assert_eq!(counts, [(6, 5, 1, 6, 2), (5, 5, 5, 5, 0)]);
    }
}
