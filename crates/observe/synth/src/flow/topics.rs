//! Matches takes with publications on topics of the middleware and counts lost items. Topic and
//! source time stamp identify an item.

use super::graph::{Hop, NodeBy, Route};
use super::lineage::{Awaited, Incoming};
use super::seen::{ItemTimes, Way};
use super::Flow;
use crate::chains::{Lineages, Steps};
use crate::detail::Fate;
use crate::entities::Entities;
use crate::events::{Owner, Publication};
use crate::ids::{EntityId, NodeId};
use crate::index::{NameId, VertexId};
use crate::marks::Marks;
use crate::notes::Note;
use crate::outcomes::{refused, Loss, Outcome};
use crate::Context;
use onbeat_document::schema::qos::{History, Qos, Reliability};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

#[derive(Debug, Clone)]
struct Item {
    time: u64,
    /// The latest time at which the call that published the item may have returned.
    until: u64,
    source_ns: Option<i64>,
    vertex: Option<VertexId>,
    lineages: Lineages,
    ambiguous: bool,
    /// A shaper held the item back and did not send it.
    discarded: bool,
}

impl Item {
    /// Returns the kind of loss of the item: `loss`, unless a shaper discarded the item.
    fn lost_by(&self, loss: Loss) -> Loss {
        match self.discarded {
            true => Loss::Discarded,
            false => loss,
        }
    }
}

type Place = (EntityId, u64);

#[derive(Debug, Clone, Default)]
struct Published {
    base: u64,
    items: VecDeque<Item>,
    unstamped: bool,
}

impl Published {
    fn next_sequence(&self) -> u64 {
        self.base + self.items.len() as u64
    }
}

#[derive(Debug, Clone)]
struct Cursor {
    publisher: EntityId,
    /// The sequence number that follows the last item taken or skipped by the subscription.
    next: u64,
    /// The sequence number of the first item that was published while the subscription existed.
    join: u64,
    taken_any: bool,
    /// Publisher and subscription communicate within one process. The same items can also come
    /// through the middleware. rclcpp drops those copies, so they are not counted.
    intra: bool,
    /// The sequence numbers of skipped items that may still be taken, because takes on several
    /// threads can be recorded out of order. `true`: the item was counted as overwritten. `false`:
    /// it was counted as lost.
    skipped: VecDeque<(u64, bool)>,
}

struct Take {
    skipped: std::ops::Range<u64>,
    /// `Some` if the subscription had skipped the item. `true`: the item was then counted as
    /// overwritten. `false`: it was counted as lost.
    again: Option<bool>,
    /// The item is older than the subscription, or the subscription has taken it before.
    latched: bool,
    doubled: bool,
    first: bool,
    intra: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Topics {
    published: Vec<Option<Box<Published>>>,
    cursors: Vec<Vec<Cursor>>,
    /// The latest item of each topic and time stamp. Older items with the same key are in `twins`.
    stamped: FxHashMap<(NameId, i64), Place>,
    twins: FxHashMap<(NameId, i64), Vec<Place>>,
    offsets: Offsets,
}

/// The offset of CLOCK_REALTIME from CLOCK_MONOTONIC in ns. Stores the latest offset, and the one
/// before somebody set the clock or changed its rate.
#[derive(Debug, Clone, Default)]
struct Offsets {
    latest: Option<i64>,
    /// The earlier offset in ns, and the CLOCK_MONOTONIC time until which it was valid.
    before: Option<(i64, u64)>,
}

const MAX_LATCHED: u64 = 32;
const MAX_ITEMS: u64 = 2048;
const UNKNOWN_DEPTH: u64 = 1024;
const MAX_SKIPPED: usize = 32;
/// The maximum distance in ns between an item's time stamp and the call that published the item. It
/// is not zero because clock offsets are sampled.
const STAMP_TOLERANCE_NS: u64 = 200_000;
/// The maximum distance in ns between the publication of an item and a time stamp. Older items are
/// not compared with the stamp.
const STAMP_WINDOW_NS: u64 = 10_000_000_000;

/// If the clock offset changes by more than this number of ns from one sample to the next, onbeat
/// concludes that somebody has set the clock.
const STEP_NS: u64 = 1_000_000;

/// If two successive samples of the clock offset differ by more than this number of ns, the earlier
/// offset is kept as well.
const MOVED_NS: u64 = STAMP_TOLERANCE_NS / 4;

/// For this time in ns after a change of the clock offset, a stamp may match any offset between the
/// old and the new one. The reason is that the kernel adjusts the clock gradually.
const SLEW_NS: u64 = 2_000_000_000;

/// The maximum change of the clock offset between two samples, in ns, while the kernel adjusts the
/// clock gradually. The kernel limits the rate of this change to 10 %.
const MAX_SLEW_NS: u64 = 150_000_000;

impl Topics {
    pub(super) fn drop_lineages(
        &mut self,
        steps: &mut Steps,
        is_stale: impl Fn(&Steps, u64, &Lineages) -> bool,
    ) {
        let published = self.published.iter_mut().flatten();
        for item in published.flat_map(|p| &mut p.items) {
            if is_stale(steps, item.time, &item.lineages) {
                steps.release_all(&mut item.lineages);
            }
        }
    }

    pub(super) fn mark_vertices(&self, marks: &mut Marks) {
        let published = self.published.iter().flatten();
        for vertex in published
            .flat_map(|p| &p.items)
            .filter_map(|item| item.vertex)
        {
            marks.add(vertex.index());
        }
    }
}

impl Offsets {
    fn set(&mut self, offset: i64, time: u64) -> bool {
        let before = self.latest.replace(offset);
        let moved = |by: u64| before.filter(|before| before.abs_diff(offset) > by);
        if let Some(before) = moved(MOVED_NS) {
            self.before = Some((before, time));
        }
        moved(STEP_NS).is_some()
    }

    /// Returns the intervals of CLOCK_MONOTONIC in which the time of a time stamp may lie,
    /// likeliest first. Each interval is given by its first and its last time.
    fn times(&self, stamp: i64, now: u64) -> impl Iterator<Item = (u64, u64)> {
        let at = move |offset: i64| u64::try_from(stamp.checked_sub(offset)?).ok();
        let before = self.before.filter(|b| now <= b.1 + STAMP_WINDOW_NS);
        let (latest, earlier) = (
            self.latest.and_then(at),
            before.and_then(|(offset, _)| at(offset)),
        );
        let slewing = before.is_some_and(|b| now <= b.1 + SLEW_NS);
        let between = latest.zip(earlier).filter(|_| slewing);
        let between = between.map(|(a, b)| (a.min(b), a.max(b)));
        let between = between.filter(|(a, b)| b - a <= MAX_SLEW_NS);
        let points = latest.into_iter().chain(earlier).map(|at| (at, at));
        points.chain(between)
    }
}

impl Topics {
    pub(super) fn set_offset(&mut self, offset: i64, time: u64) -> bool {
        self.offsets.set(offset, time)
    }

    fn published(&self, publisher: EntityId) -> Option<&Published> {
        self.published.get(publisher.index())?.as_deref()
    }

    fn published_mut(&mut self, publisher: EntityId) -> Option<&mut Published> {
        self.published.get_mut(publisher.index())?.as_deref_mut()
    }

    fn next_sequence(&self, publisher: EntityId) -> u64 {
        self.published(publisher)
            .map_or(0, Published::next_sequence)
    }

    fn cursors(&self, subscription: EntityId) -> &[Cursor] {
        let cursors = self.cursors.get(subscription.index());
        cursors.map_or(&[], Vec::as_slice)
    }

    fn cursor(&mut self, subscription: EntityId, publisher: EntityId, join: u64) -> &mut Cursor {
        let s = subscription.index();
        if self.cursors.len() <= s {
            self.cursors.resize_with(s + 1, Vec::new);
        }
        let cursors = &mut self.cursors[s];
        let i = match cursors.iter().position(|c| c.publisher == publisher) {
            Some(i) => i,
            None => {
                cursors.push(Cursor {
                    publisher,
                    next: join,
                    join,
                    taken_any: false,
                    intra: false,
                    skipped: VecDeque::new(),
                });
                cursors.len() - 1
            }
        };
        &mut cursors[i]
    }

    pub(super) fn set_intra(&mut self, subscription: EntityId, publisher: EntityId) {
        let next = self.next_sequence(publisher);
        self.cursor(subscription, publisher, next).intra = true;
    }

    pub(super) fn returned(&mut self, publisher: EntityId, time: u64) {
        let published = self.published_mut(publisher);
        if let Some(item) = published.and_then(|p| p.items.back_mut()) {
            item.until = item.until.min(time);
        }
    }

    fn push(&mut self, publisher: EntityId, item: Item) -> u64 {
        let p = publisher.index();
        if self.published.len() <= p {
            self.published.resize(p + 1, None);
        }
        let published = self.published[p].get_or_insert_with(Box::default);
        let sequence = published.next_sequence();
        published.unstamped |= item.source_ns.is_none();
        published.items.push_back(item);
        sequence
    }

    // ---- time stamps

    fn stamp(&mut self, name: NameId, source_ns: i64, place: Place) {
        let key = (name, source_ns);
        if let Some(old) = self.stamped.insert(key, place) {
            self.twins.entry(key).or_default().push(old);
        }
    }

    fn unstamp(&mut self, name: NameId, source_ns: i64, place: Place) {
        let key = (name, source_ns);
        if self.stamped.get(&key) == Some(&place) {
            self.stamped.remove(&key);
        }
        if self.twins.is_empty() {
            return;
        }
        if let Some(twins) = self.twins.get_mut(&key) {
            twins.retain(|&t| t != place);
            if twins.is_empty() {
                self.twins.remove(&key);
            }
        }
    }

    /// Gives an item another time stamp. Returns the time of its publication, or `None` if the item
    /// is not kept any more.
    pub(super) fn restamp(
        &mut self,
        name: NameId,
        place: Place,
        source_ns: Option<i64>,
    ) -> Option<u64> {
        let item = self.item_mut(place)?;
        let (time, old) = (item.time, std::mem::replace(&mut item.source_ns, source_ns));
        if let Some(old) = old {
            self.unstamp(name, old, place);
        }
        if let Some(new) = source_ns {
            self.stamp(name, new, place);
        }
        Some(time)
    }

    pub(super) fn set_discarded(&mut self, place: Place) {
        if let Some(item) = self.item_mut(place) {
            item.discarded = true;
        }
    }

    fn item_mut(&mut self, (publisher, sequence): Place) -> Option<&mut Item> {
        let published = self.published_mut(publisher)?;
        let i = sequence.checked_sub(published.base)?;
        published.items.get_mut(usize::try_from(i).ok()?)
    }

    fn item(&self, (publisher, sequence): Place) -> Option<&Item> {
        let published = self.published(publisher)?;
        let i = sequence.checked_sub(published.base)?;
        published.items.get(usize::try_from(i).ok()?)
    }

    fn find_item(
        &mut self,
        entities: &Entities,
        subscription: EntityId,
        name: NameId,
        (source_ns, now): (i64, u64),
    ) -> Option<Place> {
        let key = (name, source_ns);
        let Some(&last) = self.stamped.get(&key) else {
            return self.find_unstamped(entities, subscription, name, (source_ns, now));
        };
        let is_heard = |&(publisher, _): &Place| entities.hears(subscription, publisher);
        let Some(twins) = self.twins.get(&key) else {
            return Some(last).filter(is_heard);
        };
        // Takes the oldest item that is not taken yet.
        let cursors = self.cursors(subscription);
        let is_fresh = |&(publisher, sequence): &Place| {
            let cursor = cursors.iter().find(|c| c.publisher == publisher);
            cursor.is_none_or(|c| {
                sequence >= c.next || sequence < c.join || c.skipped.iter().any(|p| p.0 == sequence)
            })
        };
        let places = twins.iter().copied().chain([last]);
        places.filter(is_heard).find(is_fresh)
    }

    /// Finds the item that a subscription took, if the publisher's items have no time stamps (ROS 2
    /// Humble). The stamp that the subscription sees lies within the call that published the item.
    fn find_unstamped(
        &mut self,
        entities: &Entities,
        subscription: EntityId,
        name: NameId,
        (source_ns, now): (i64, u64),
    ) -> Option<Place> {
        let publishers = &entities.endpoints(Some(name)).publishers;
        let mut best: Option<(u64, Place)> = None;
        for at in self.offsets.times(source_ns, now) {
            for &p in publishers
                .iter()
                .filter(|&&p| entities.hears(subscription, p))
            {
                let published = self.published(p).filter(|p| p.unstamped);
                if let Some((off, sequence)) = published.and_then(|p| nearest(p, at)) {
                    if best.is_none_or(|b| off < b.0) {
                        best = Some((off, (p, sequence)));
                    }
                }
            }
            if best.is_some() {
                break;
            }
        }
        let (_, (publisher, sequence)) = best?;
        let published = self.published_mut(publisher)?;
        let i = usize::try_from(sequence - published.base).ok()?;
        published.items.get_mut(i)?.source_ns = Some(source_ns);
        self.stamp(name, source_ns, (publisher, sequence));
        Some((publisher, sequence))
    }

    fn advance(
        &mut self,
        subscription: EntityId,
        live: bool,
        (publisher, sequence): Place,
    ) -> Take {
        let next = self.next_sequence(publisher);
        let c = self.cursor(subscription, publisher, next);
        let mut take = Take {
            skipped: 0..0,
            again: None,
            latched: false,
            doubled: false,
            first: !c.taken_any,
            intra: c.intra,
        };
        c.taken_any = true;
        if !live {
            // The subscription was replaced, so items published since do not count for it.
            take.latched = true;
        } else if sequence >= c.next {
            take.skipped = c.next..sequence;
            c.next = sequence + 1;
        } else if let Some(i) = c.skipped.iter().position(|p| p.0 == sequence) {
            take.again = c.skipped.remove(i).map(|p| p.1);
        } else {
            // The item is older than the subscription, or is taken again.
            take.latched = true;
            take.doubled = sequence >= c.join;
        }
        take
    }

    pub(super) fn awaited(
        &self,
        subscription: EntityId,
        name: NameId,
    ) -> impl Iterator<Item = Awaited> + '_ {
        let cursors = self.cursors(subscription).iter().filter(|c| !c.intra);
        cursors.flat_map(move |c| {
            let skipped = c
                .skipped
                .iter()
                .map(|&(sequence, over)| (sequence, Some(over)));
            let next = (c.next..self.next_sequence(c.publisher)).map(|sequence| (sequence, None));
            skipped.chain(next).filter_map(move |(sequence, skipped)| {
                let item = self.item((c.publisher, sequence))?;
                Some(Awaited {
                    from: item.vertex?,
                    time: item.time,
                    name,
                    route: Route::Topic,
                    lineages: item.lineages,
                    skipped,
                })
            })
        })
    }

    fn is_awaited(&self, entities: &Entities, name: NameId, (publisher, sequence): Place) -> bool {
        let awaits = |c: &Cursor| c.publisher == publisher && c.next <= sequence;
        let takers = &entities.endpoints(Some(name)).subscriptions;
        let hears = |s| entities.hears(s, publisher);
        takers
            .iter()
            .any(|&s| hears(s) && self.cursors(s).iter().any(awaits))
    }
}

/// Returns the unstamped item whose publication is nearest to the interval `at`, as its distance in
/// ns and its sequence number. If several items lie within the interval, returns the oldest.
fn nearest(published: &Published, at: (u64, u64)) -> Option<(u64, u64)> {
    let mut best: Option<(u64, u64)> = None;
    for (i, item) in published.items.iter().enumerate().rev() {
        if item.source_ns.is_some() {
            continue;
        }
        let early = item.time.saturating_sub(at.1);
        let late = at.0.saturating_sub(item.until);
        let off = early.max(late);
        if off <= STAMP_TOLERANCE_NS && best.is_none_or(|b| off <= b.0) {
            best = Some((off, published.base + i as u64));
        }
        let found = off == 0 && at.0 == at.1;
        if found || at.0.saturating_sub(item.time) > STAMP_WINDOW_NS {
            break;
        }
    }
    best
}

// Losses.
impl Topics {
    /// Returns the depth of the subscription's history, and the time at which later items had
    /// filled the history. Returns `None` if the item was still in the history, or if the depth is
    /// unknown.
    fn replaced(
        &self,
        entities: &Entities,
        subscription: EntityId,
        ((publisher, sequence), time): (Place, u64),
    ) -> Option<(u64, u64)> {
        let entity = entities.get(subscription);
        let depth = entity.depth();
        let keeps_all = entity.qos.is_some_and(|q| q.history == History::KeepAll);
        if depth == 0 || keeps_all {
            return None;
        }
        let cursors = self.cursors(subscription);
        let publishers = &entities.endpoints(entity.name()).publishers;
        let is_other = |p: &&EntityId| {
            let is_intra = || cursors.iter().any(|c| c.publisher == **p && c.intra);
            **p != publisher && entities.hears(subscription, **p) && !is_intra()
        };
        let mut later: Vec<u64> = Vec::new();
        for other in publishers.iter().filter(is_other) {
            let items = self.published(*other).map(|p| &p.items);
            let after = items.map(|items| (items, items.partition_point(|i| i.time <= time)));
            let after = after.map(|(items, from)| items.range(from..).map(|i| i.time));
            later.extend(after.into_iter().flatten().take(depth as usize));
        }
        if later.is_empty() {
            let last = sequence.checked_add(depth)?;
            return Some((depth, self.item((publisher, last))?.time));
        }
        let own = (sequence + 1..).map_while(|s| self.item((publisher, s)));
        later.extend(own.map(|i| i.time).take(depth as usize));
        let last = usize::try_from(depth - 1)
            .ok()
            .filter(|l| *l < later.len())?;
        Some((depth, *later.select_nth_unstable(last).1))
    }

    /// Returns the kind of loss of an item, in the case that the subscription took a later item of
    /// the same publisher.
    fn skipped(&self, entities: &Entities, subscription: EntityId, item: (Place, u64)) -> Loss {
        if let Some((depth, replaced_ns)) = self.replaced(entities, subscription, item) {
            return Loss::Overwritten { depth, replaced_ns };
        }
        let (offered, requested) = (entities.get(item.0 .0).qos, entities.get(subscription));
        let reliable = |(a, b): (Qos, Qos)| {
            [a, b].map(|q| q.reliability) == [Reliability::Reliable, Reliability::Reliable]
        };
        Loss::Skipped {
            reliable: offered.zip(requested.qos).map(reliable),
            depth_known: requested.depth() > 0,
            has_lifespan: offered.is_some_and(|q| q.lifespan_ns.is_some()),
        }
    }

    /// Returns the kind of loss of an item, in the case that the subscription took nothing more
    /// from the item's publisher.
    fn left_over(&self, entities: &Entities, subscription: EntityId, publisher: EntityId) -> Loss {
        let (offered, requested) = (entities.get(publisher), entities.get(subscription));
        let mut cursors = self.cursors(subscription).iter();
        let taken_any = cursors.any(|c| c.publisher == publisher && c.taken_any);
        if !taken_any {
            let qos = offered.qos.zip(requested.qos);
            let setting = qos.and_then(|(offered, requested)| refused(&offered, &requested));
            return setting.map_or(Loss::NeverTaken, Loss::Refused);
        }
        // No later take shows that these items arrived, so they do not count as overwritten.
        match (requested.live, offered.live) {
            (false, _) => Loss::SubscriptionEnded,
            (true, false) => Loss::PublisherEnded,
            (true, true) => Loss::RecordingEnded,
        }
    }
}

impl Flow {
    // ---- publications

    /// Records a publication of `vertex` in three places: as an output of the vertex, as evidence
    /// for the vertex's node, and as the last output of the instance.
    pub(super) fn published_by(
        &mut self,
        cx: &mut Context,
        owner: Owner,
        vertex: Option<VertexId>,
        name: NameId,
        (by, node): (NodeBy, NodeId),
        time: u64,
    ) {
        let Some(vertex) = vertex else {
            return;
        };
        let nodes = &cx.entities.nodes;
        let v = self.graph.vertex_mut(vertex);
        v.add_output(name);
        v.sent_by(by, node, |a, b| nodes.settled(a) == nodes.settled(b));
        if let Owner::Instance(i) = owner {
            if let Some(it) = self.instances.get_mut(i) {
                self.observer.published(it.thread, name, time);
                it.outputs += 1;
                if !self.lineage.ignores(name) {
                    it.output = Some((time, name));
                }
            }
        }
    }

    pub(super) fn publish(&mut self, cx: &mut Context, event: &Publication) {
        let (publisher, time) = (event.publisher, event.time);
        let Some(name) = cx.entities.get(publisher).name() else {
            return;
        };
        let node = self.node_of(cx, publisher);
        let owner = self.resolve(event.owner);
        let (vertex, own) = self.source(owner);
        if vertex.is_none() && owner == Owner::Outside {
            cx.notes.count(Note::Outside(name), 1);
        }
        if owner == Owner::Ambiguous {
            cx.notes.count(Note::UnknownWaiter(name), 1);
        }
        let home = self.home_of(cx, publisher);
        self.published_by(cx, owner, vertex, name, (NodeBy::Topic, home), time);
        let (mut lineages, mut beyond) = (Lineages::default(), Vec::new());
        if !self.lineage.ignores(name) {
            lineages = self.lineage.steps.share(&own);
            let message = event.message;
            beyond =
                self.publish_synchronised(cx, owner, (node, name), time, message, &mut lineages);
        }
        let cut = self.cuts.end_at(name);
        if cut {
            let all = [own.as_slice(), lineages.as_slice(), &beyond];
            self.lineage.end_cut(all, name, time);
        }
        self.end_output(owner, (name, cut), time, &lineages);
        let output = (Some(name), time, event.source_ns);
        self.observer
            .left(&self.lineage.steps, lineages.as_slice(), output);
        // These lineages are not followed further, but they came this far.
        self.observer.left(&self.lineage.steps, &beyond, output);
        for step in beyond {
            self.lineage.steps.release(step);
        }
        let item = Item {
            time,
            until: u64::MAX,
            source_ns: event.source_ns,
            vertex,
            lineages,
            ambiguous: owner == Owner::Ambiguous,
            discarded: false,
        };
        let sequence = self.ways.topics.push(publisher, item);
        if let Some(held) = event.held {
            self.hold(publisher, held, sequence);
        }
        let deepest = self.await_item(cx, (vertex, time), name, (publisher, sequence));
        if let Some(source_ns) = event.source_ns {
            self.ways
                .topics
                .stamp(name, source_ns, (publisher, sequence));
        }
        self.let_go(cx, publisher, name, deepest);
    }

    /// Counts a published item for each subscription of its topic that gets items through the
    /// middleware. Returns the largest queue depth of all subscriptions of the topic.
    fn await_item(
        &mut self,
        cx: &mut Context,
        (vertex, time): (Option<VertexId>, u64),
        name: NameId,
        (publisher, sequence): Place,
    ) -> u64 {
        let mut deepest = 0;
        let takers = cx.entities.endpoints(Some(name)).subscriptions.len();
        for i in 0..takers {
            let s = cx.entities.endpoints(Some(name)).subscriptions[i];
            if !cx.entities.hears(s, publisher) {
                continue;
            }
            deepest = deepest.max(match cx.entities.get(s).depth() {
                0 => UNKNOWN_DEPTH,
                depth => depth,
            });
            let intra = self.ways.topics.cursor(s, publisher, sequence).intra;
            if let (Some(vertex), false) = (vertex, intra) {
                let to = self.vertex(cx, s);
                let route = Route::Topic;
                let hop = Hop { to, name, route };
                self.graph.count_published(vertex, hop, time);
            }
        }
        deepest
    }

    /// Drops a publisher's oldest items once every subscription has taken them or can no longer
    /// take them.
    fn let_go(&mut self, cx: &mut Context, publisher: EntityId, name: NameId, deepest: u64) {
        let depth = cx.entities.get(publisher).depth();
        let most = (2 * deepest + 64).min(MAX_ITEMS) as usize;
        let keep = (depth.clamp(1, MAX_LATCHED) as usize).min(most);
        while let Some(published) = self.ways.topics.published(publisher) {
            let (kept, first) = (published.items.len(), (publisher, published.base));
            let full = kept > most;
            if kept <= keep || !full && self.ways.topics.is_awaited(&cx.entities, name, first) {
                return;
            }
            self.drop_item(cx, publisher, name, true);
        }
    }

    /// Drops the oldest item of a publisher. If `count` is set, the item counts as lost for each
    /// subscription that has not taken it.
    fn drop_item(&mut self, cx: &mut Context, publisher: EntityId, name: NameId, count: bool) {
        let Some(published) = self.ways.topics.published_mut(publisher) else {
            return;
        };
        let sequence = published.base;
        if !count {
            self.report_untaken(cx, (publisher, sequence));
        }
        let Some(published) = self.ways.topics.published_mut(publisher) else {
            return;
        };
        let Some(mut item) = published.items.pop_front() else {
            return;
        };
        published.base += 1;
        let takers = match count {
            true => cx.entities.endpoints(Some(name)).subscriptions.len(),
            false => 0,
        };
        for i in 0..takers {
            let s = cx.entities.endpoints(Some(name)).subscriptions[i];
            if !cx.entities.hears(s, publisher) {
                continue;
            }
            let c = self.ways.topics.cursor(s, publisher, sequence + 1);
            if c.next > sequence {
                continue;
            }
            c.next = sequence + 1;
            if !c.intra {
                let to = self.vertex(cx, s);
                let route = Route::Topic;
                let hop = Hop { to, name, route };
                let loss = self.ways.topics.left_over(&cx.entities, s, publisher);
                let loss = item.lost_by(loss);
                self.outcome((item.vertex, hop), item.time, Outcome::Lost(loss));
                let lost = (item.vertex, item.lineages, item.time);
                self.lose(lost, hop, 1, false);
            }
        }
        self.lineage.steps.release_all(&mut item.lineages);
        if let Some(stamp) = item.source_ns {
            self.ways.topics.unstamp(name, stamp, (publisher, sequence));
        }
    }

    // ---- takes

    /// Records that a subscription takes an item, and decides the fate of the items that it
    /// skipped. Returns the item's publisher and a shared copy of its lineages.
    ///
    /// If `callback` is not set, the item counts as taken, but the result is `None`.
    pub(super) fn take(
        &mut self,
        cx: &mut Context,
        subscription: EntityId,
        source_ns: i64,
        callback: bool,
    ) -> Option<Incoming> {
        let name = cx.entities.get(subscription).name()?;
        let live = cx.entities.get(subscription).live;
        let place =
            self.ways
                .topics
                .find_item(&cx.entities, subscription, name, (source_ns, self.now))?;
        let item = self.ways.topics.item(place)?;
        let (vertex, time, own) = (item.vertex, item.time, item.lineages);
        let ambiguous = item.ambiguous;
        let take = self.ways.topics.advance(subscription, live, place);
        if take.intra {
            return None;
        }
        let hop = Hop {
            to: self.vertex(cx, subscription),
            name,
            route: Route::Topic,
        };
        if let Some(overwritten) = take.again {
            self.lose((vertex, own, time), hop, -1, overwritten);
        }
        if take.again.is_some() || !live {
            self.outcome((vertex, hop), time, Outcome::Back);
        }
        for sequence in take.skipped {
            self.skip_item(cx, subscription, (place.0, sequence), (hop, take.first));
        }
        if !take.doubled {
            let outcome = match callback {
                true => Outcome::Executed,
                false => Outcome::Read,
            };
            self.outcome((vertex, hop), time, outcome);
        }
        if take.doubled && cx.entities.get(subscription).link.is_some() {
            // A link delivers each item once.
            cx.notes.count(Note::Doubled(name), 1);
        } else if let Some(vertex) = vertex {
            let figures = self.graph.sent(vertex, hop, time);
            figures.published += u64::from(take.latched);
            figures.taken += 1;
        }
        if let (false, Some(details)) = (callback || take.doubled, &mut self.details) {
            let way = Way {
                from: vertex,
                to: hop.to,
                name,
                route: Some(Route::Topic),
            };
            let times = ItemTimes {
                published: Some(time),
                source_ns: Some(source_ns),
                available: None,
            };
            let time_ns = self.now;
            details.item(way, times, Fate::OnlyTaken { time_ns });
        }
        callback.then(|| Incoming {
            vertex,
            time,
            name,
            route: Route::Topic,
            lineages: self.lineage.steps.share(&own),
            ambiguous,
        })
    }

    /// Records that a subscription skipped an item. The item counts as lost unless it is taken
    /// later. `first` is set if the subscription takes its first item of this publisher now.
    fn skip_item(
        &mut self,
        cx: &Context,
        subscription: EntityId,
        place: Place,
        (hop, first): (Hop, bool),
    ) {
        let topics = &self.ways.topics;
        let Some(item) = topics.item(place) else {
            return;
        };
        let lost = (item.vertex, item.lineages, item.time);
        let loss = match first {
            // Before the first take, the pair may not have been connected.
            true => Loss::BeforeFirstTake,
            false => topics.skipped(&cx.entities, subscription, (place, item.time)),
        };
        let loss = item.lost_by(loss);
        let overwritten = matches!(loss, Loss::Overwritten { .. });
        self.outcome((lost.0, hop), lost.2, Outcome::Lost(loss));
        self.lose(lost, hop, 1, overwritten);
        let skipped = &mut self.ways.topics.cursor(subscription, place.0, 0).skipped;
        if skipped.len() >= MAX_SKIPPED {
            skipped.pop_front();
        }
        skipped.push_back((place.1, overwritten));
    }

    // ---- clearing up

    pub(super) fn subscription_ended(&mut self, cx: &Context, subscription: EntityId) {
        let entity = cx.entities.get(subscription);
        let (Some(to), Some(name), true) = (entity.vertex, entity.name(), self.outcomes.is_some())
        else {
            return;
        };
        let route = Route::Topic;
        let hop = Hop { to, name, route };
        let topics = &self.ways.topics;
        let mut left = Vec::new();
        for c in topics.cursors(subscription).iter().filter(|c| !c.intra) {
            let loss = topics.left_over(&cx.entities, subscription, c.publisher);
            for sequence in c.next..topics.next_sequence(c.publisher) {
                if let Some(item) = topics.item((c.publisher, sequence)) {
                    left.push((item.vertex, item.time, item.lost_by(loss)));
                }
            }
        }
        for (from, time, loss) in left {
            self.outcome((from, hop), time, Outcome::Lost(loss));
        }
    }

    pub(super) fn free_topics(&mut self, cx: &Context, e: EntityId) {
        if let Some(cursors) = self.ways.topics.cursors.get_mut(e.index()) {
            cursors.clear();
        }
        self.publisher_ended(cx, e);
        self.ways.held.forget(e);
        let published = self.ways.topics.published.get_mut(e.index());
        let Some(published) = published.and_then(Option::take) else {
            return;
        };
        let name = cx.entities.get(e).name();
        for (sequence, mut item) in (published.base..).zip(published.items) {
            self.lineage.steps.release_all(&mut item.lineages);
            if let (Some(name), Some(stamp)) = (name, item.source_ns) {
                self.ways.topics.unstamp(name, stamp, (e, sequence));
            }
        }
        for &s in &cx.entities.endpoints(name).subscriptions {
            if let Some(cursors) = self.ways.topics.cursors.get_mut(s.index()) {
                cursors.retain(|c| c.publisher != e);
            }
        }
    }

    fn publisher_ended(&mut self, cx: &Context, publisher: EntityId) {
        let next = self.ways.topics.next_sequence(publisher);
        let first = self.ways.topics.published(publisher).map(|p| p.base);
        for sequence in first.unwrap_or(next)..next {
            self.report_untaken(cx, (publisher, sequence));
        }
    }

    fn report_untaken(&mut self, cx: &Context, place: Place) {
        let topics = &self.ways.topics;
        let (Some(item), Some(_)) = (topics.item(place), &self.outcomes) else {
            return;
        };
        let name = cx.entities.get(place.0).name();
        let awaits = |c: &Cursor| c.publisher == place.0 && c.next <= place.1 && !c.intra;
        let takers = &cx.entities.endpoints(name).subscriptions;
        let takers = takers
            .iter()
            .filter(|&&s| topics.cursors(s).iter().any(awaits));
        let untaken = takers.filter_map(|&s| {
            let (to, name, route) = (cx.entities.get(s).vertex?, name?, Route::Topic);
            let loss = topics.left_over(&cx.entities, s, place.0);
            Some((Hop { to, name, route }, item.lost_by(loss)))
        });
        let (from, time) = (item.vertex, item.time);
        for (hop, loss) in untaken.collect::<Vec<_>>() {
            self.outcome((from, hop), time, Outcome::Lost(loss));
        }
    }

    pub(super) fn settle_topics(&mut self, cx: &mut Context, is_old: impl Fn(u64) -> bool) {
        for p in 0..self.ways.topics.published.len().min(cx.entities.len()) {
            let p = EntityId::new(p);
            let Some(name) = cx.entities.get(p).name() else {
                continue;
            };
            while let Some(published) = self.ways.topics.published(p) {
                let Some(item) = published.items.front() else {
                    break;
                };
                let count = is_old(item.time);
                self.drop_item(cx, p, name, count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{listen, talk, Harness, PAIR};

    const EDGE: &str = "/talker:timer(10ms) -> /listener:subscription(/t)";

    #[test]
    fn a_skipped_item_counts_as_lost_until_it_is_taken() {
        let items = [11_000, 21_000, 31_000].map(talk).concat();
        let takes = [listen(31_200, 11_000), listen(31_400, 31_000)].concat();
        let mut harness = Harness::new(&[PAIR, &items, &takes].concat());
        assert_eq!(harness.edges(), [format!("{EDGE}: 3/2/1/0")]);
        harness.push(&listen(31_600, 21_000));
        assert_eq!(harness.edges(), [format!("{EDGE}: 3/3/0/0")]);
    }

    #[test]
    fn items_skipped_by_a_full_queue_count_as_overwritten() {
        let items = [11_000, 21_000, 31_000, 41_000, 51_000].map(talk).concat();
        let takes = [listen(11_200, 11_000), listen(51_400, 51_000)].concat();
        let edges = |depth: u64| {
            let pair = PAIR.replace("depth=2", &format!("depth={depth}"));
            Harness::new(&(pair + &items + &takes)).edges()
        };
        assert_eq!(edges(1), [format!("{EDGE}: 5/2/0/3")]);
        // The last two items were still in the queue and were not taken.
        assert_eq!(edges(3), [format!("{EDGE}: 5/2/2/1")]);
    }

    #[test]
    fn items_skipped_before_the_first_take_count_as_lost() {
        let items = [11_000, 21_000].map(talk).concat();
        let harness = Harness::new(&[PAIR, &items, &listen(21_200, 21_000)].concat());
        assert_eq!(harness.edges(), [format!("{EDGE}: 2/1/1/0")]);
    }

    #[test]
    fn a_stamp_between_call_and_return_identifies_an_unstamped_item() {
        let trace = format!(
            "{PAIR}
1ms cpu0 0/0 clock_offset realtime_minus_monotonic_ns=1000ms
11000us cpu0 10/10 timer_call timer=0x50
11000us cpu0 10/10 callback_start callback=0x60
11000us cpu0 10/10 publish rmw=0x1010 source_ns=-
11050us cpu0 10/10 callback_end callback=0x60
{}",
            listen(11_300, 1_011_020)
        );
        assert_eq!(Harness::new(&trace).edges(), [format!("{EDGE}: 1/1/0/0")]);
        let foreign = trace.replace("source_ns=1011020us", "source_ns=1013000us");
        assert_eq!(Harness::new(&foreign).edges(), [format!("{EDGE}: 1/0/0/0")]);
    }
}
