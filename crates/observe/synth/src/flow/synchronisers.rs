//! Collects evidence for AND junctions, at which subscriptions wait for one another, and follows
//! lineages through them.
//!
//! For every topic that subscriptions of one node publish, it counts how often each of the
//! subscriptions had a new input when the topic was published. From these counts, `conclude`
//! decides which subscriptions form a group. Lineages are followed so that they fit either
//! decision. Those of the publishing callback pass the group's sync vertex in a way that can be
//! undone ([`Via::Own`]). Those of the other subscriptions are added.

use super::graph::{Hop, Route};
use super::instances::Instance;
use super::lineage::Lineage;
use super::policies::{Set, MAX_WAITING};
use super::replays::{Replays, Score};
use super::Flow;
use crate::chains::{Began, Extension, Lineages, Steps, Via};
use crate::entities::EntityKind;
use crate::events::Owner;
use crate::ids::{EntityId, InstanceId, NodeId};
use crate::index::{NameId, StepId, VertexId};
use crate::mode_rules::{ModeId, PerMode};
use crate::notes::Note;
use crate::outcomes::{Loss, Outcome};
use crate::running_median::RunningMedian;
use crate::Context;
use onbeat_document::dist::Dist;
use onbeat_document::evidence::few;
use onbeat_document::schema::{JunctionKind, Matching};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

#[derive(Debug, Clone)]
struct Entry {
    start: u64,
    end: Option<u64>,
    origin: u64,
    lineages: Lineages,
}

impl Entry {
    /// Returns the time at which the callback passed its input to a synchroniser that published at
    /// `time`. `own` is set if this callback itself published.
    fn handed(&self, own: bool, time: u64) -> u64 {
        if own {
            return time;
        }
        let end = self.end.unwrap_or(u64::MAX);
        end.min(time).max(self.start.min(time))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) vertex: VertexId,
    pub(crate) instances: u64,
    pub(crate) productive: u64,
    pub(crate) synchronised: u64,
    /// The address of the synchroniser to which the subscription's callback passed its latest
    /// input.
    filter: Option<u64>,
    approximate: bool,
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

    fn next_number(&self) -> u64 {
        self.base + self.inputs.len() as u64
    }

    fn input_by_number(&self, number: u64) -> Option<&Entry> {
        self.inputs.get(number.checked_sub(self.base)? as usize)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    /// The number of inputs of this subscription that no output has used yet, at most
    /// [`MAX_CREDIT`].
    credit: u8,
    /// The number of inputs of this subscription since the last output.
    since: u8,
    pub(crate) seen: Seen,
    /// The number of the latest input of this subscription on which its callback published an
    /// output.
    last: Option<u64>,
    next: u64,
    /// The usual distance between the starts of two chains: the chain of the first subscription's
    /// input, and the chain of this subscription's input. The values are computed by
    /// [`difference`].
    shift: RunningMedian,
    /// An early output used an input of this subscription. At that time, the evidence did not show
    /// reliably which inputs the junction joins.
    joined_early: bool,
    /// The figures of the inputs that went into outputs. Each input counts for the mode that was
    /// active when the callback that published the output passed its own input to the synchroniser,
    /// or when that callback started if no such call is recorded.
    pub(crate) joined: PerMode<Joined>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Joined {
    pub(crate) used: u64,
    pub(crate) skipped: u64,
    pub(crate) latency: Dist,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Counts outputs for which the subscription had an input that no earlier output used.
    pub(crate) fresh: u64,
    /// Counts outputs for which the subscription had exactly one input since the previous output.
    pub(crate) once: u64,
    pub(crate) published: u64,
    /// Counts outputs of the synchroniser to which this subscription's callback passed its latest
    /// input.
    pub(crate) shared: u64,
    /// Counts outputs of this subscription's callback at which another subscription had no unused
    /// input. Only those other subscriptions are considered whose callbacks publish on the same
    /// topic as well.
    pub(crate) alone: u64,
    /// Counts executions of this subscription's callback that did not publish, although every other
    /// subscription for which the node may wait had an input since the last output. Counting starts
    /// with the first output.
    pub(crate) held: u64,
    /// Counts executions of other subscriptions that did not publish, while only this subscription
    /// had no input since the last output.
    pub(crate) awaited: u64,
    /// Counts outputs that callbacks of other subscriptions published and whose lineages contain
    /// the input of this subscription.
    pub(crate) followed: u64,
    /// Counts outputs that callbacks of other subscriptions published and whose lineages do not
    /// contain the input of this subscription.
    pub(crate) passed_over: u64,
}

impl Part {
    /// Creates the data about a subscription for one output topic, when the first output on that
    /// topic comes. Earlier inputs of the subscription count as unused.
    fn before_first_output(member: &Member) -> Self {
        Part {
            credit: member.instances.min(MAX_CREDIT.into()) as u8,
            since: member.instances.min(1) as u8,
            next: member.next_number().saturating_sub(1).max(member.base),
            ..Part::default()
        }
    }

    /// Reports whether the outputs so far suggest that the node waits for the subscription: the
    /// subscription's callback publishes the topic itself, or the subscription had a new input for
    /// nearly every output.
    fn joins(&self, outputs: u64) -> bool {
        self.seen.published > 0 || outputs.saturating_sub(self.seen.fresh) <= few(outputs)
    }

    fn left(&self, member: &Member) -> std::ops::Range<u64> {
        self.next.max(member.base)..member.next_number()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) topic: NameId,
    pub(crate) vertex: VertexId,
    pub(crate) outputs: u64,
    /// Counts publications on the topic that were not made by the callbacks of the node's
    /// subscriptions.
    pub(crate) foreign: u64,
    pub(crate) parts: Vec<Part>,
    pub(crate) interarrival: PerMode<Dist>,
    last: Option<u64>,
    /// The time of the latest message that was published within the process, and the message's
    /// lineages. They are kept because copies of the message may be published to further buffers.
    /// The lineages are `None` if only those of the publishing callback count.
    message: Option<(u64, Option<Lineages>)>,
    follow: Follow,
    pub(crate) joined_nearest: bool,
    /// Later evidence shows that the first outputs were linked to wrong inputs.
    pub(crate) reread: bool,
    scores: Vec<Score>,
    /// The last output: the index of the subscription whose callback published it, the number of
    /// the input of that callback, and the number of earlier outputs on the same input.
    turn: (usize, u64, usize),
    /// Counts outputs for which it is uncertain which inputs were joined: the publishing callback
    /// skipped an unused input, or an approximate policy would join other inputs.
    pub(crate) chosen: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// Follows the lineages of those subscriptions for which the node may wait according to the
    /// evidence.
    Evidence,
    /// Follows the lineages of all subscriptions, because the user states that the node waits for
    /// all of them. The value says how the inputs are matched.
    All(Matching),
    /// Follows only the lineages of the publishing callback. The user states that this callback
    /// does not wait for other inputs.
    Own,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    /// The node has several subscriptions. The callbacks of some of them may not have run yet.
    several: bool,
    pub(crate) members: Vec<Member>,
    pub(crate) outputs: Vec<Output>,
    replays: Replays,
}

/// A simulated synchroniser that explains the publications of a node: with few exceptions, it
/// published when the node's callbacks did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Explained {
    pub(crate) score: Score,
    pub(crate) approximate: bool,
    /// For each subscription: the number of outputs whose last missing input was an input of this
    /// subscription.
    pub(crate) lacked: Vec<u64>,
}

pub(crate) type Groups = FxHashMap<NodeId, Group>;

#[derive(Debug, Clone, Copy)]
struct Published {
    it: Instance,
    /// The index of the subscription whose callback published. The input of this callback has the
    /// number `number`.
    me: usize,
    number: u64,
    time: u64,
    /// The time at which the instance passed its input to the synchroniser, or the start of the
    /// instance if the recording has no such call.
    start: u64,
    mode: ModeId,
    /// The start of the chain on which the input of the publishing callback came.
    origin: u64,
}

impl Published {
    fn began(&self) -> Began {
        Began {
            thread: self.it.thread,
            time: self.start,
            released: None,
            last_input: Some(self.it.vertex),
        }
    }
}

/// The number that stands for a time difference of 0. With this base, unsigned numbers can express
/// negative differences.
const ZERO: u64 = 1 << 62;

fn difference(a: u64, b: u64) -> u64 {
    ZERO.saturating_add(a).saturating_sub(b)
}

const MAX_INPUTS: usize = MAX_WAITING;

/// The maximum number of lineages that end at an output because the output's [`Lineages`] have no
/// room for them.
const MAX_BEYOND: usize = 16;

const MAX_CREDIT: u8 = 3;

/// The number of outputs after which the evidence decides which lineages continue to an output.
/// Until then, the lineages of all inputs continue.
const MIN_OUTPUTS: u64 = 10;

/// The number of executions after which onbeat no longer looks for a synchroniser in a node that
/// has only one subscription.
const ALONE_INSTANCES: u64 = 100;

impl Output {
    fn new(topic: NameId, vertex: VertexId, members: &[Member], follow: Follow) -> Self {
        Output {
            topic,
            vertex,
            follow,
            joined_nearest: false,
            reread: false,
            scores: Vec::new(),
            turn: (0, 0, 0),
            chosen: 0,
            outputs: 0,
            foreign: 0,
            parts: members.iter().map(Part::before_first_output).collect(),
            interarrival: PerMode::default(),
            last: None,
            message: None,
        }
    }

    /// Reports whether it is still too early to know which inputs the first outputs joined.
    /// `guessed` is set if the node's name is guessed.
    fn is_early(&self, guessed: bool) -> bool {
        self.follow == Follow::Evidence && !guessed && self.outputs < MIN_OUTPUTS
    }

    /// Reports whether recorded calls or enough outputs show which inputs the output of `by` joins. A
    /// replay does not show it: it can match a few outputs by chance.
    fn is_shown(&self, by: &Published, guessed: bool) -> bool {
        by.it.synchronised.is_some() || !self.is_early(guessed)
    }

    /// Counts an output that another subscription's callback published. Adds 1 to `followed` if the
    /// lineages of subscription `i` are followed into the output, otherwise to `passed_over`.
    /// `early` is set if the junction has too few outputs so far to show which inputs it joins.
    fn count_followed(&mut self, i: usize, followed: bool, early: bool) {
        let part = &mut self.parts[i];
        part.seen.followed += u64::from(followed);
        part.seen.passed_over += u64::from(!followed);
        if early {
            part.joined_early |= followed;
        } else {
            self.reread |= part.joined_early && !followed;
        }
    }

    fn may_be_waited_for(&self, i: usize, members: &[Member]) -> bool {
        self.outputs < MIN_OUTPUTS || self.seems_waited_for(i, members)
    }

    fn seems_waited_for(&self, i: usize, members: &[Member]) -> bool {
        let (part, member) = (&self.parts[i], &members[i]);
        let silent = part.seen.published > 0 || member.productive * 10 < member.instances.max(1);
        let fresh = part.seen.fresh as f64 >= 0.7 * self.outputs as f64;
        part.seen.shared * 2 > self.outputs || silent && fresh
    }

    /// Returns how doubtful it is that the node waits for the subscription `i`, from 0 (not
    /// doubtful) to 2. `shown` is set if recorded calls, a replay or the user show that the node
    /// waits.
    fn doubt(&self, i: usize, members: &[Member], shown: bool) -> u8 {
        match shown || matches!(self.follow, Follow::All(_)) {
            true => 0,
            false if self.seems_waited_for(i, members) => 1,
            false => 2,
        }
    }

    /// Returns the other subscriptions whose lineages are followed into an output of the
    /// subscription `me`. The list is empty if the callback of `me` does not wait for other
    /// subscriptions.
    ///
    /// If the node's name is guessed, the list contains only subscriptions that pass their inputs
    /// to the same synchroniser as `me`.
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
            Follow::Evidence if self.foreign > 0 || !self.may_be_waited_for(me, members) => {
                Vec::new()
            }
            Follow::Evidence => {
                let promising = |i: &usize| self.may_be_waited_for(*i, members);
                (0..members.len())
                    .filter(others)
                    .filter(promising)
                    .collect()
            }
        }
    }

    /// Returns the number of the replay that shows which inputs an output joins, if such a replay
    /// exists. Also returns the other subscriptions whose lineages are followed into the output.
    /// `is_stated` reports whether the user allows a subscription as an input.
    fn waits_for(
        &self,
        (members, replays): (&[Member], &Replays),
        by: &Published,
        guessed: bool,
        is_stated: impl Fn(usize) -> bool,
    ) -> (Option<usize>, Vec<usize>) {
        let filter = by.it.synchronised.map(|s| s.1);
        let replay = self
            .replay(replays, filter)
            .filter(|&r| replays.members(r).iter().all(|&i| is_stated(i)))
            .filter(|_| !guessed || filter.is_some());
        let followed = match replay {
            Some(r) => {
                let members = replays.members(r).iter().copied();
                members.filter(|&i| i != by.me).collect()
            }
            None => self.followed(members, by.me, guessed),
        };
        let followed = followed.into_iter().filter(|&i| is_stated(i));
        (replay, followed.collect())
    }

    /// Returns the unused inputs whose chains began closest together, as pairs: the index of the
    /// subscription, and the number of the input. An approximate-time synchroniser joins these
    /// inputs.
    ///
    /// Returns `None` for other synchronisers, or if a subscription has no unused input.
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
        let origin = |i: usize, n: u64| members[i].input_by_number(n).map_or(0, |e| e.origin);
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

    /// Gives the subscriptions of this output their new indices. `moved` has the new index of each
    /// old one, or `None` for a removed subscription, whose data are dropped. `replays_stay` says
    /// for each replay whether it stays; the scores of the other replays are dropped.
    fn renumber(&mut self, moved: &[Option<usize>], replays_stay: &[bool]) {
        let mut stays = moved.iter().map(Option::is_some);
        self.parts.retain(|_| stays.next().unwrap_or(true));
        let mut stays = replays_stay.iter();
        self.scores.retain(|_| *stays.next().unwrap_or(&true));
        self.turn = match moved.get(self.turn.0) {
            Some(Some(me)) => (*me, self.turn.1, self.turn.2),
            _ => (usize::MAX, 0, 0),
        };
    }

    fn lineages_of(&self, message: Option<u64>) -> Option<Option<Lineages>> {
        let (last, lineages) = self.message.as_ref()?;
        (Some(*last) == message).then_some(*lineages)
    }

    /// Stores the lineages of an output that was published within the process. Later copies of the
    /// same message use these lineages.
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

    /// Compares an output with the outputs that each replay predicted for the same input. Returns
    /// how many outputs the callback had already published on this input.
    fn score(&mut self, replays: &Replays, by: &Published) -> usize {
        self.turn = match self.turn {
            (me, number, n) if (me, number) == (by.me, by.number) => (me, number, n + 1),
            _ => (by.me, by.number, 0),
        };
        self.scores.resize(replays.len(), Score::default());
        for (r, score) in self.scores.iter_mut().enumerate() {
            if let Some(sets) = replays.sets(r, by.me, by.number) {
                let inputs = replays.members(r).len();
                if score.inputs != inputs {
                    *score = Score {
                        inputs,
                        ..Score::default()
                    };
                }
                let predicted = sets.len() > self.turn.2;
                score.predicted += u64::from(predicted);
                score.unpredicted += u64::from(!predicted);
            }
        }
        self.turn.2
    }

    /// Compares the end of an execution that did not publish the output with what each replay
    /// predicted for the input of this execution.
    fn score_end(&mut self, replays: &Replays, me: usize, number: u64) {
        if self.outputs == 0 || self.parts[me].last == Some(number) {
            return;
        }
        let publishes = self.parts[me].seen.published > 0;
        for (r, score) in self.scores.iter_mut().enumerate() {
            match replays.sets(r, me, number) {
                Some([]) => score.held += u64::from(publishes),
                Some(_) => score.missing += 1,
                None => {}
            }
        }
    }

    /// Returns the number of the replay that shows which inputs an output joined. `filter` is the
    /// address of the synchroniser that the recording shows, if any.
    fn replay(&self, replays: &Replays, filter: Option<u64>) -> Option<usize> {
        let score = |r: &usize| self.scores.get(*r).copied().unwrap_or_default();
        let by_calls = filter.and_then(|filter| replays.of_filter(filter));
        match self.follow {
            Follow::Own => None,
            _ if by_calls.is_some() => {
                by_calls.filter(|r| score(r).predicted >= score(r).unpredicted)
            }
            Follow::All(matching) => replays
                .of_all(matching == Matching::Nearest)
                .filter(|r| score(r).predicted >= score(r).unpredicted),
            Follow::Evidence => self.shown_replay(replays),
        }
    }

    /// Returns the replay that joins the inputs of all subscriptions, if it explains the outputs.
    /// This replay is used when the recording lacks calls of a synchroniser.
    ///
    /// Only the replay of the exact policy is used: chains that start at equal times are not a
    /// coincidence. An approximate policy also explains code that keeps the latest input of each
    /// subscription, but that code joins other inputs.
    fn shown_replay(&self, replays: &Replays) -> Option<usize> {
        let fits = |r: &usize| self.scores.get(*r).is_some_and(Score::fits);
        replays.of_all(false).filter(fits)
    }

    /// Reports whether all publishing subscriptions, and at least two subscriptions in total, had
    /// exactly one input per output. Inputs then belong together by their order, and an approximate
    /// policy does not explain the outputs better.
    fn takes_turns(&self) -> bool {
        let once = |p: &&Part| self.outputs.saturating_sub(p.seen.once) <= few(self.outputs);
        let mut publishing = self.parts.iter().filter(|p| p.seen.published > 0);
        publishing.all(|p| once(&p)) && self.parts.iter().filter(once).count() > 1
    }

    /// Returns the inputs that an approximate policy would have joined, as pairs: the index of the
    /// subscription, and the number of the input. `place` is the number of outputs that the
    /// publishing callback had already published on its present input. The list is empty if that
    /// policy does not explain the outputs, or if the inputs are known from recorded calls of the
    /// synchroniser or from the user.
    fn otherwise(
        &self,
        replays: &Replays,
        replay: Option<usize>,
        by: &Published,
        place: usize,
    ) -> Vec<(usize, u64)> {
        let open = self.follow == Follow::Evidence && by.it.synchronised.is_none();
        let other = replays.of_all(true).filter(|_| open);
        let other = other.filter(|&r| replay != Some(r));
        let fits = |r: &usize| self.scores.get(*r).is_some_and(Score::fits);
        let inputs = |r: usize| {
            let set = replays.sets(r, by.me, by.number)?.get(place)?;
            Some(replays.inputs(r, set))
        };
        other.filter(fits).and_then(inputs).unwrap_or_default()
    }

    /// Adds to the evidence that an execution of the subscription `me` ended and did not publish
    /// this output. `number` is the number of the execution's input.
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
            // If there are several candidates, it is unknown for which of them the member waits.
            (Some(_), Some(_)) => {}
        }
    }

    /// Updates the usual distances between the starts of the subscriptions' chains. Does this only
    /// if each subscription has exactly one unused input, because it is then certain which inputs
    /// belong together.
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

    /// Returns the number of the input of the subscription `i` that went into an output.
    ///
    /// The result is the unused input whose chain start lies nearest to its usual distance from the
    /// chain start of the publishing callback's input. While no usual distance is known, the result
    /// is the oldest unused input.
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
            let origin = member.input_by_number(n).map_or(0, |e| e.origin);
            origin.saturating_add(ZERO).abs_diff(usual)
        })
    }
}

impl Group {
    pub(super) fn drop_lineages(
        &mut self,
        steps: &mut Steps,
        is_stale: impl Fn(&Steps, u64, &Lineages) -> bool,
    ) {
        let inputs = self.members.iter_mut().flat_map(|m| &mut m.inputs);
        let inputs = inputs.map(|entry| (entry.start, &mut entry.lineages));
        let messages = self.outputs.iter_mut().filter_map(|output| {
            let lineages = output.message.as_mut()?.1.as_mut()?;
            Some((output.last.unwrap_or(0), lineages))
        });
        for (time, lineages) in inputs.chain(messages) {
            if is_stale(steps, time, lineages) {
                steps.release_all(lineages);
            }
        }
    }

    /// Removes the members and the outputs of callbacks and synchronisers for which `is_gone`
    /// returns true.
    pub(super) fn remove(&mut self, steps: &mut Steps, is_gone: impl Fn(VertexId) -> bool) {
        for mut output in self.outputs.extract_if(.., |o| is_gone(o.vertex)) {
            if let Some((_, Some(mut lineages))) = output.message.take() {
                steps.release_all(&mut lineages);
            }
        }
        // For each member, its new index.
        let mut moved = Vec::new();
        let mut kept = 0;
        for member in &self.members {
            let stays = !is_gone(member.vertex);
            moved.push(stays.then_some(kept));
            kept += usize::from(stays);
        }
        if kept == self.members.len() {
            return;
        }
        for mut member in self.members.extract_if(.., |m| is_gone(m.vertex)) {
            for entry in &mut member.inputs {
                steps.release_all(&mut entry.lineages);
            }
        }
        let replays_stay = self.replays.renumber(&moved);
        for output in &mut self.outputs {
            output.renumber(&moved, &replays_stay);
        }
    }
}

impl Flow {
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
        let origin = chain_start_of(&self.lineage, &it);
        // A node with a single subscription has nothing to synchronise.
        let lineages = if several {
            self.lineage.steps.share(&it.lineages)
        } else {
            Lineages::default()
        };
        let number = group.members[i].next_number();
        if several && !group.replays.has_calls() {
            for approximate in [false, true] {
                group.replays.add((None, approximate), i, number, origin);
            }
        }
        let member = &mut group.members[i];
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

    pub(crate) fn rehome(&mut self, guess: NodeId, node: NodeId) {
        if guess != node && !self.groups.contains_key(&node) {
            if let Some(group) = self.groups.remove(&guess) {
                self.groups.insert(node, group);
            }
        }
    }

    fn member_of(&mut self, it: &Instance) -> Option<&mut Member> {
        let (group, me) = self.group_of(it)?;
        group.members.get_mut(me)
    }

    fn group_of(&mut self, it: &Instance) -> Option<(&mut Group, usize)> {
        let (node, _) = it.entry?;
        let group = self.groups.get_mut(&node)?;
        let me = group.members.iter().position(|m| m.vertex == it.vertex)?;
        Some((group, me))
    }

    /// Records that a subscription's callback has processed its input at `time`. A later call for
    /// the same instance can replace the time.
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
        let (Some((_, number)), Some((group, me))) = (it.entry, self.group_of(&it)) else {
            return;
        };
        let member = &mut group.members[me];
        (member.filter, member.approximate) = (Some(filter), approximate);
        if let Some(input) = member.input_by_number(number) {
            let filter = (Some(filter), approximate);
            group.replays.add(filter, me, number, input.origin);
        }
    }

    pub(super) fn leave_node(&mut self, instance: InstanceId, time: u64) {
        let Some(&it) = self.instances.get(instance) else {
            return;
        };
        let (Some((_, number)), Some((group, me))) = (it.entry, self.group_of(&it)) else {
            return;
        };
        for output in &mut group.outputs {
            output.count_end(me, number);
            output.score_end(&group.replays, me, number);
        }
        let member = &mut group.members[me];
        member.productive += u64::from(it.output.is_some());
        member.synchronised += u64::from(it.synchronised.is_some());
        self.input_done(instance, time);
    }

    /// Continues the lineages of a publication through a synchroniser, if the publishing callback
    /// may wait for other subscriptions of its node. Adds the lineages of these subscriptions'
    /// inputs to `lineages`.
    ///
    /// Returns the steps for which `lineages` has no room. The caller owns a reference to each.
    ///
    /// `message` identifies a message within the process. Each of its copies is published, but
    /// together they are one output.
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
            // The group is taken out of the map so that it and the lineages can change together.
            let Some(mut group) = self.groups.remove(&node) else {
                return beyond;
            };
            let o = known.unwrap_or_else(|| {
                let vertex = self.sync_vertex(node, topic);
                let follow = self.stated_follow(cx, node, topic);
                let output = Output::new(topic, vertex, &group.members, follow);
                group.outputs.push(output);
                group.outputs.len() - 1
            });
            let followed = self.add_output(cx, (&mut group, o), &by, &mut beyond);
            let output = &mut group.outputs[o];
            output.set_message(&mut self.lineage, message, followed.as_ref());
            if !beyond.is_empty() {
                // The publishing subscription is named because the sync vertex may not be in the
                // model.
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

    fn stated_follow(&self, cx: &Context, node: NodeId, topic: NameId) -> Follow {
        let (node, topic) = (cx.entities.node_id(node), cx.entities.names.get(topic));
        let mut all = self.stated_junctions.iter();
        let stated = all.find(|s| s.node == node && s.topic == topic);
        stated.map_or(Follow::Evidence, |s| match s.kind {
            JunctionKind::And => Follow::All(s.matching),
            JunctionKind::Or => Follow::Own,
        })
    }

    /// Returns for each subscription in `group` whether the user states that it is an input of the
    /// output on `topic`. Returns `None` if no statement of the user names inputs.
    fn stated_members(
        &self,
        cx: &Context,
        node: NodeId,
        group: &Group,
        topic: NameId,
    ) -> Option<Vec<bool>> {
        if self.stated_junctions.is_empty() {
            return None;
        }
        let (node, topic) = (cx.entities.node_id(node), cx.entities.names.get(topic));
        let mut all = self.stated_junctions.iter();
        let stated = all.find(|s| s.node == node && s.topic == topic && !s.inputs.is_empty())?;
        let names = |m: &Member| {
            let input = self.graph.vertex(m.vertex).looks.name;
            input.is_some_and(|input| {
                stated
                    .inputs
                    .iter()
                    .any(|s| *s == *cx.entities.names.get(input))
            })
        };
        Some(group.members.iter().map(names).collect())
    }

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
            origin: chain_start_of(&self.lineage, &it),
            it,
        })
    }

    /// Counts an output that a subscription's callback published. Returns the output's lineages, or
    /// `None` if only the lineages of the publishing callback count.
    fn add_output(
        &mut self,
        cx: &Context,
        (group, o): (&mut Group, usize),
        by: &Published,
        beyond: &mut Vec<StepId>,
    ) -> Option<Lineages> {
        let node = by.it.entry.map(|(node, _)| cx.entities.nodes.settled(node));
        let topic = group.outputs[o].topic;
        let stated = node.and_then(|node| self.stated_members(cx, node, group, topic));
        let (members, replays) = (&group.members, &group.replays);
        let output = &mut group.outputs[o];
        output.count(members, by);
        let place = output.score(replays, by);
        let guessed = is_guessed(cx, by);
        let is_stated = |i: usize| stated.as_ref().is_none_or(|s| s[i]);
        let (replay, followed) = output.waits_for((members, replays), by, guessed, is_stated);
        let set = |r: usize| -> Option<Vec<(usize, u64)>> {
            let set: &Set = replays.sets(r, by.me, by.number)?.get(place)?;
            Some(replays.inputs(r, set))
        };
        let early = replay.is_none() && output.is_early(guessed);
        let is_shown = output.is_shown(by, guessed);
        if !followed.is_empty() {
            let lineage = &mut self.lineage;
            let at = (output.vertex, by.start);
            let paths = &mut lineage.paths;
            paths.follow_join(&lineage.steps, at, &by.it.lineages);
        }
        let mut added = Lineages::default();
        let nearest = replay.and_then(set);
        let nearest = nearest.or_else(|| output.nearest(members, &followed, by.me));
        output.joined_nearest |= match replay {
            Some(r) => replays.is_approximate(r),
            None => nearest.is_some(),
        };
        let near = |i| nearest.as_ref()?.iter().find(|n| n.0 == i).map(|n| n.1);
        let input = self.graph.vertex(by.it.vertex).looks.name;
        if let (false, Some(input)) = (followed.is_empty(), input) {
            // These lineages come first so that there is space for them. They do not pass if
            // another input of the publishing subscription is joined.
            if near(by.me).is_none_or(|n| n == by.number) {
                self.lineage.pass(input, (output, by), &mut added);
            }
        }
        let otherwise = output.otherwise(replays, replay, by, place);
        let mut differs = false;
        let mut inputs = Vec::new();
        for (i, member) in members.iter().enumerate() {
            let chosen = near(i).or_else(|| output.choose(i, member, by));
            differs |= otherwise.iter().any(|o| o.0 == i && Some(o.1) != chosen);
            let Some(chosen) = chosen else {
                continue;
            };
            if i != by.me {
                output.count_followed(i, followed.contains(&i), early);
            }
            let part = &mut output.parts[i];
            let joined = part.joined.of(by.mode);
            joined.used += 1;
            let skipped = chosen.saturating_sub(part.next);
            joined.skipped += skipped;
            differs |= i == by.me && skipped > 0 && replay.is_none();
            inputs.push((i, part.next, chosen));
            part.next = chosen + 1;
            let Some(entry) = member.input_by_number(chosen) else {
                continue;
            };
            let own = i == by.me && chosen == by.number;
            let handed = entry.handed(own, by.start);
            joined.latency.record(by.start - handed);
            let input = self.graph.vertex(member.vertex).looks.name;
            let Some(input) = input.filter(|_| !followed.is_empty()) else {
                continue;
            };
            let target = (&*output, input, by);
            if !own && (i == by.me || followed.contains(&i)) {
                if is_shown && output.parts[i].seen.published == 0 {
                    // The input goes on into the output, so no chain ends at its callback.
                    self.lineage.paths.set_stored(member.vertex);
                }
                let doubt = match i == by.me {
                    true => 0,
                    false => output.doubt(i, members, guessed || replay.is_some() && is_shown),
                };
                let from = (&entry.lineages, handed, (doubt, is_shown));
                self.lineage.synchronise(from, target, &mut added, beyond);
            }
        }
        output.chosen += u64::from(differs);
        if followed.is_empty() {
            return None;
        }
        inputs.retain(|input| input.0 == by.me || followed.contains(&input.0));
        self.report_inputs(&group.members, (output.vertex, by), &inputs);
        if early {
            self.lineage.steps.mark_early(&mut added);
        }
        Some(added)
    }
}

impl Flow {
    /// Reports for each input that came since the last output whether the output joined it. Each
    /// triple in `inputs` has the index of a subscription, the number of its first input since the
    /// last output, and the number of its joined input.
    fn report_inputs(
        &mut self,
        members: &[Member],
        (to, by): (VertexId, &Published),
        inputs: &[(usize, u64, u64)],
    ) {
        if self.outcomes.is_none() {
            return;
        }
        let route = Route::Topic;
        for &(i, first, joined) in inputs {
            let from = members[i].vertex;
            let Some(name) = self.graph.vertex(from).looks.name else {
                continue;
            };
            let hop = Hop { to, name, route };
            let fewest = inputs.iter().min_by_key(|of| of.2.saturating_sub(of.1));
            let lacks = fewest.filter(|of| of.2.saturating_sub(of.1) < joined - first.min(joined));
            let lacks = lacks.map(|of| members[of.0].vertex.index() as u32);
            for number in first..=joined {
                let start = members[i].input_by_number(number).map(|e| e.start);
                let outcome = match number == joined {
                    true => Outcome::Executed,
                    false => Outcome::Lost(Loss::PassedOver { lacks }),
                };
                self.outcome((Some(from), hop), start.unwrap_or(by.start), outcome);
            }
        }
    }
}

fn is_guessed(cx: &Context, by: &Published) -> bool {
    let node = by.it.entry.map(|(node, _)| node);
    node.is_some_and(|node| cx.entities.nodes.is_guessed(node))
}

impl Group {
    pub(crate) fn explained(&self, output: &Output) -> Option<Explained> {
        let fits = |r: &usize| output.scores.get(*r).is_some_and(Score::fits);
        let any = || self.replays.of_all(true).filter(fits);
        let shown = output.shown_replay(&self.replays);
        let replay = shown.or_else(|| any().filter(|_| !output.takes_turns()))?;
        let members = 0..self.members.len();
        Some(Explained {
            score: *output.scores.get(replay)?,
            approximate: self.replays.is_approximate(replay),
            lacked: members.map(|m| self.replays.lacked(replay, m)).collect(),
        })
    }

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

    fn count_foreign(&mut self, topic: NameId) {
        if let Some(output) = self.outputs.iter_mut().find(|o| o.topic == topic) {
            output.foreign += 1;
        }
    }
}

impl Lineage {
    fn pass(&mut self, input: NameId, (output, by): (&Output, &Published), added: &mut Lineages) {
        for &own in by.it.lineages.as_slice() {
            let path = self.steps.path(own);
            let step = match self.paths.child(path, Via::Own(input), output.vertex) {
                Extension::Path(path) => {
                    let began = by.began();
                    let step = self.steps.extend(own, path, by.start, (by.start, began));
                    self.finish_output(step, output, by);
                    step
                }
                // The lineage continues as it would without the sync vertex.
                _ => self.steps.share_one(own),
            };
            // There is always space, because there are not more lineages than the callback has.
            added.push(step);
        }
        let from = &by.it.lineages;
        self.steps.enter(added, from, output.vertex, false);
    }

    fn synchronise(
        &mut self,
        (lineages, handed, (doubt, is_shown)): (&Lineages, u64, (u8, bool)),
        (output, input, by): (&Output, NameId, &Published),
        added: &mut Lineages,
        beyond: &mut Vec<StepId>,
    ) {
        let mut most = self.steps.most_doubts(added);
        for &step in lineages.as_slice() {
            let path = self.steps.path(step);
            let ends = beyond.len() < MAX_BEYOND && !self.paths.is_extended(output.vertex);
            let doubts = self.steps.doubts(step).saturating_add(doubt);
            if added.is_full() && !ends && doubts >= most {
                let origin = self.steps.origin(step);
                // The paths are not followed any more, so they do not end before the synchroniser.
                // Early on, the subscription may not be waited for, so they may end there.
                if is_shown {
                    self.paths.set_extended(path);
                    self.paths.drop_at(path, origin);
                } else {
                    self.paths.drop_from(path, origin);
                }
                continue;
            }
            let path = match self.paths.child(path, Via::Item(input), output.vertex) {
                Extension::Path(path) => path,
                Extension::Cycle => {
                    self.steps.origins.close(output.vertex, by.start);
                    continue;
                }
                Extension::Full => {
                    self.paths.drop_at(path, self.steps.origin(step));
                    continue;
                }
            };
            let began = by.began();
            let step = self.steps.extend(step, path, handed, (by.start, began));
            self.steps.doubt(step, doubt);
            self.finish_output(step, output, by);
            if let Some(left_out) = self.steps.push(added, step) {
                let path = self.steps.path(left_out);
                self.paths.drop_at(path, self.steps.origin(left_out));
                if ends {
                    beyond.push(left_out);
                } else {
                    self.steps.release(left_out);
                }
            }
            most = self.steps.most_doubts(added);
        }
        self.steps.enter(added, lineages, output.vertex, false);
    }

    fn finish_output(&mut self, step: StepId, output: &Output, by: &Published) {
        let topic = Some(output.topic);
        self.paths.finish(&self.steps, step, by.time, topic);
    }
}

fn chain_start_of(lineage: &Lineage, it: &Instance) -> u64 {
    let first = it.lineages.as_slice().first();
    first.map_or(it.start, |&step| lineage.steps.origin(step))
}

fn several_subscriptions(cx: &Context, e: EntityId) -> bool {
    let it = cx.entities.get(e);
    let node = cx.entities.node_of_entity(e);
    let alike = |&other: &EntityId| {
        let o = cx.entities.get(other);
        o.kind() == EntityKind::Subscription
            && cx.entities.node_of_entity(other) == node
            && o.live
            && !o.infrastructure
    };
    let process = cx.entities.process(it.process);
    process.entities.iter().filter(alike).nth(1).is_some()
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

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

    /// Returns the events of one input at `t` µs: on `/y` if `y` is set, otherwise on `/x`. The
    /// callback of the input publishes if `publishes` is set.
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
    fn one_input_of_each_subscription_per_output_is_counted_as_evidence() {
        let mut trace = FUSE.to_string();
        for i in 1..=5 {
            let t = 10_000 * i;
            trace += &(input(t, false, false) + &input(t + 100, true, true));
        }
        // Two more inputs of `/x` without an output follow, then one that publishes without an
        // input of `/y`.
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
