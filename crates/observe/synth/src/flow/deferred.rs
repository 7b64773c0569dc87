//! Defers events until a decision that they need is made: whether code after rclpy's last trigger
//! still belongs to the callback, or which client sent a request. Later events that depend on a
//! deferred event wait too.

use super::Flow;
use crate::entities::Entities;
use crate::events::SpanEvent;
use crate::events::{
    EndHold, Enqueue, HoldEnd, Input, MadeBy, OwnInput, Owner, Publication, Request,
};
use crate::ids::{DecisionId, EntityId, HandId, HandedId, InstanceId};
use crate::index::NameId;
use crate::notes::Note;
use crate::Context;
use rustc_hash::{FxHashMap, FxHashSet};

const MAX_DEFERRAL_NS: u64 = 1_000_000_000;

/// The interval in ns after which deferred events are checked again if nothing else causes a check.
const RETRY_NS: u64 = 2_000_000;

const MAX_DEFERRED: usize = 200_000;

#[derive(Debug, Clone, Default)]
struct Subjects {
    instances: FxHashSet<InstanceId>,
    entities: FxHashSet<EntityId>,
    /// The names of the services that have a deferred request. A response of such a service must be
    /// deferred until the request is processed.
    names: FxHashSet<Option<NameId>>,
    publishers: FxHashSet<EntityId>,
    /// The items of deferred events, by topic and time stamp. An entry without a time stamp stands
    /// for all items of its topic.
    items: FxHashSet<(Option<NameId>, Option<i64>)>,
    rings: FxHashSet<EntityId>,
    works: FxHashSet<HandedId>,
    hands: FxHashSet<HandId>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Deferred {
    events: Vec<SpanEvent>,
    subjects: Subjects,
    decided: FxHashMap<DecisionId, Owner>,
    next_retry: u64,
}

impl Subjects {
    fn clear(&mut self) {
        self.instances.clear();
        self.entities.clear();
        self.names.clear();
        self.publishers.clear();
        self.items.clear();
        self.rings.clear();
        self.works.clear();
        self.hands.clear();
    }

    fn add(&mut self, event: &SpanEvent, entities: &Entities) {
        if let Some(Owner::Instance(instance)) = event.owner() {
            // The instance must not end or publish anything else before this event is applied.
            self.instances.insert(instance);
        }
        match event {
            SpanEvent::Begin(begin) => {
                self.instances.insert(begin.instance);
                self.entities.insert(begin.entity);
                self.names.insert(entities.get(begin.entity).name());
            }
            SpanEvent::Publish(publication) => {
                let name = entities.get(publication.publisher).name();
                self.publishers.insert(publication.publisher);
                self.items.insert((name, publication.source_ns));
            }
            SpanEvent::EndHold(EndHold {
                publisher,
                how: HoldEnd::Sent(source_ns),
                ..
            }) => {
                let name = entities.get(*publisher).name();
                self.items.insert((name, *source_ns));
            }
            SpanEvent::Enqueue(enqueue) => {
                self.rings.insert(enqueue.subscription);
            }
            SpanEvent::HandOver { work, .. } => {
                self.works.insert(*work);
            }
            SpanEvent::OwnInput(input) => {
                // The next publication of the instance carries this input.
                self.instances.insert(input.instance);
                self.entities.insert(input.entity);
            }
            SpanEvent::Hand { hand, .. } => {
                self.hands.insert(*hand);
            }
            _ => {}
        }
    }

    fn has_owner(&self, owner: Owner) -> bool {
        matches!(owner, Owner::Instance(i) if self.instances.contains(&i))
    }

    fn has_item(&self, subscription: EntityId, source_ns: i64, entities: &Entities) -> bool {
        let topic = entities.get(subscription).name();
        self.items.contains(&(topic, Some(source_ns))) || self.items.contains(&(topic, None))
    }

    fn has_input(&self, entity: EntityId, input: Input, entities: &Entities) -> bool {
        match input {
            Input::Message { source_ns } => self.has_item(entity, source_ns, entities),
            Input::Ring { .. } => self.rings.contains(&entity),
            Input::Response { .. } => {
                let name = entities.get(entity).name();
                self.names.contains(&name)
            }
            Input::Handed { work } => self.works.contains(&work),
            Input::Made { hand } => self.hands.contains(&hand),
            Input::Unknown | Input::Ambiguous | Input::Timer | Input::Request { .. } => false,
        }
    }

    fn delay(&self, event: &SpanEvent, entities: &Entities) -> bool {
        match event {
            SpanEvent::Begin(begin) => {
                self.entities.contains(&begin.entity)
                    || self.has_input(begin.entity, begin.input, entities)
            }
            SpanEvent::End(end) => self.instances.contains(&end.instance),
            SpanEvent::OwnInput(OwnInput {
                instance,
                entity,
                input,
                ..
            }) => {
                self.instances.contains(instance)
                    || self.entities.contains(entity)
                    || self.has_input(*entity, *input, entities)
            }
            SpanEvent::Continue {
                instance, client, ..
            } => self.instances.contains(instance) || self.instances.contains(client),
            SpanEvent::Synchronise { instance, .. }
            | SpanEvent::InputDone { instance, .. }
            | SpanEvent::HandOver { instance, .. }
            | SpanEvent::Hand { instance, .. } => self.instances.contains(instance),
            SpanEvent::Publish(Publication {
                owner, publisher, ..
            }) => self.has_owner(*owner) || self.publishers.contains(publisher),
            SpanEvent::EndHold(EndHold { publisher, .. })
            | SpanEvent::PublishReturned { publisher, .. } => self.publishers.contains(publisher),
            SpanEvent::Enqueue(Enqueue {
                owner,
                subscription,
                ..
            }) => self.has_owner(*owner) || self.rings.contains(subscription),
            SpanEvent::Clear { subscription } => self.rings.contains(subscription),
            SpanEvent::Request(Request { owner, .. }) => self.has_owner(*owner),
            // The request of this response may be deferred.
            SpanEvent::Response(response) => {
                let deferred = |hand| self.hands.contains(&hand);
                self.entities.contains(&response.service)
                    || matches!(response.made_by, MadeBy::Handed(hand) if deferred(hand))
            }
            SpanEvent::ReadOnly {
                subscription,
                source_ns,
            } => self.has_item(*subscription, *source_ns, entities),
            SpanEvent::NotHanded { work } => self.works.contains(work),
            SpanEvent::Decided { .. } => false,
        }
    }
}

impl Deferred {
    fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    fn take_all(&mut self) -> Vec<SpanEvent> {
        self.subjects.clear();
        std::mem::take(&mut self.events)
    }
}

impl Flow {
    pub(crate) fn receive(&mut self, cx: &mut Context, event: &SpanEvent) {
        if let SpanEvent::Decided { decision, owner } = *event {
            if !self.deferred.is_empty() {
                self.deferred.decided.insert(decision, owner);
                self.drain(cx, false);
            }
        } else if self.deferred.is_empty() {
            if self.is_ready(cx, event) {
                self.apply(cx, event);
            } else {
                self.defer(cx, *event);
            }
        } else {
            if self.must_wait(cx, event) {
                self.defer(cx, *event);
            } else {
                self.apply(cx, event);
            }
            let settles = matches!(event, SpanEvent::Request(_) | SpanEvent::Response(_));
            if settles || self.now >= self.deferred.next_retry {
                self.drain(cx, false);
            }
        }
    }

    pub(crate) fn advance(&mut self, cx: &mut Context, now: u64) {
        self.now = now;
        if !self.deferred.is_empty() && now >= self.deferred.next_retry {
            self.drain(cx, false);
        }
    }

    fn defer(&mut self, cx: &Context, mut event: SpanEvent) {
        // Sets an owner that is already decided, before its instance ends.
        if let Some(Owner::Undecided(decision)) = event.owner() {
            if let Some(&owner) = self.deferred.decided.get(&decision) {
                event.set_owner(owner);
            }
        }
        if self.deferred.is_empty() {
            self.deferred.next_retry = self.now + RETRY_NS;
        }
        self.deferred.subjects.add(&event, &cx.entities);
        self.deferred.events.push(event);
    }

    fn must_wait(&self, cx: &Context, event: &SpanEvent) -> bool {
        !self.is_ready(cx, event) || self.deferred.subjects.delay(event, &cx.entities)
    }

    fn is_ready(&self, cx: &Context, event: &SpanEvent) -> bool {
        match event {
            SpanEvent::Begin(begin) => match begin.input {
                Input::Request { gid, sequence, at } => {
                    self.caller_ready(cx, begin.entity, gid, sequence, at)
                }
                Input::Response { sequence, .. } => {
                    self.ways.services.response_known(begin.entity, sequence)
                }
                _ => true,
            },
            SpanEvent::OwnInput(OwnInput {
                entity,
                input: Input::Response { sequence, .. },
                ..
            }) => self.ways.services.response_known(*entity, *sequence),
            _ => match event.owner() {
                Some(Owner::Undecided(d)) => self.deferred.decided.contains_key(&d),
                _ => true,
            },
        }
    }

    pub(super) fn drain(&mut self, cx: &mut Context, force: bool) {
        self.deferred.next_retry = self.now + RETRY_NS;
        let force = force || self.deferred.events.len() >= MAX_DEFERRED;
        let mut again = true;
        while again && !self.deferred.is_empty() {
            again = false;
            for event in self.deferred.take_all() {
                let since = event.since();
                let late = since.is_some_and(|t| self.now.saturating_sub(t) > MAX_DEFERRAL_NS);
                // An overdue event is applied. An event that only depends on another one waits for
                // that one.
                let overdue = late && !self.is_ready(cx, &event);
                if !force && !overdue && self.must_wait(cx, &event) {
                    self.defer(cx, event);
                    continue;
                }
                if late {
                    cx.notes.count(Note::Undecided, 1);
                }
                self.apply(cx, &event);
                again = true;
            }
        }
        if self.deferred.is_empty() {
            // No deferred event refers to a decision now.
            self.deferred.decided.clear();
        }
    }

    /// Returns the owner of an event, or [`Owner::Outside`] if the owner is not decided yet.
    pub(super) fn resolve(&self, owner: Owner) -> Owner {
        match owner {
            Owner::Undecided(decision) => {
                let decided = self.deferred.decided.get(&decision);
                decided.copied().unwrap_or(Owner::Outside)
            }
            known => known,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    const TRACE: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=py
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/t
1ms cpu0 10/10 clock_init clock=0x7
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=ear
1ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/t
11000us cpu0 10/10 timer_call timer=0x50
11100us cpu0 10/10 guard_trigger guard=0x9
11300us cpu0 10/10 guard_trigger guard=0x9
11600us cpu0 10/10 publish rmw=0x1010 source_ns=1us
11700us cpu1 20/20 take rmw=0x1020 source_ns=1us
11800us cpu1 20/20 wait_set_init
";

    #[test]
    fn a_take_is_deferred_until_the_owner_of_the_publication_is_decided() {
        let mut harness = Harness::new(TRACE);
        assert!(harness.edges().is_empty());
        harness.push("11900us cpu0 10/10 guard_trigger guard=0x9");
        assert_eq!(
            harness.edges(),
            ["/py:timer(10ms) -> /ear:subscription(/t): 1/1/0/0"]
        );
    }

    #[test]
    fn a_publication_whose_callback_is_not_decided_in_time_has_no_owner() {
        let mut harness = Harness::new(TRACE);
        harness.push("1100ms cpu1 20/20 wait");
        assert!(harness.edges().is_empty());
        assert!(
            harness.notes().contains(&"Undecided 1".to_string()),
            "{:?}",
            harness.notes()
        );
    }
}
