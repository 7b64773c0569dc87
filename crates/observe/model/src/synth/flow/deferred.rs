//! Facts that wait until something is decided, and what must wait with them so that nothing is
//! told before what it stands on.

use crate::synth::events::{Fact, Input, Owner};
use rustc_hash::FxHashSet;

/// Held facts in order, and what they are about.
#[derive(Debug, Clone, Default)]
pub(in crate::synth) struct Held {
    facts: Vec<Fact>,
    instances: FxHashSet<u32>,
    /// Entities whose next instances must wait: they keep their order.
    entities: FxHashSet<u32>,
    /// Their names: a response to a held request must wait.
    names: FxHashSet<u32>,
    publishers: FxHashSet<u32>,
    /// Items by topic and time stamp; without one, all of the topic.
    items: FxHashSet<(u32, Option<i64>)>,
    /// Subscriptions with a ring buffer that is waited for.
    rings: FxHashSet<u32>,
}

impl Held {
    pub(in crate::synth) fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    pub(in crate::synth) fn len(&self) -> usize {
        self.facts.len()
    }

    /// All held facts, to be looked at again.
    pub(in crate::synth) fn take(&mut self) -> Vec<Fact> {
        self.instances.clear();
        self.entities.clear();
        self.names.clear();
        self.publishers.clear();
        self.items.clear();
        self.rings.clear();
        std::mem::take(&mut self.facts)
    }

    /// Holds a fact. `entity` tells an instance's entity, `name` an entity's topic.
    pub(in crate::synth) fn hold(
        &mut self,
        fact: Fact,
        entity: impl Fn(u32) -> u32,
        name: impl Fn(u32) -> u32,
    ) {
        if let Some(Owner::Instance(instance)) = fact.owner() {
            // It may not end, or publish anything else, before.
            self.instances.insert(instance);
        }
        match fact {
            Fact::Begin(begin) => {
                self.instances.insert(begin.instance);
                let entity = entity(begin.instance);
                self.entities.insert(entity);
                self.names.insert(name(entity));
            }
            Fact::Publish {
                publisher,
                source_ns,
                ..
            } => {
                self.publishers.insert(publisher);
                self.items.insert((name(publisher), source_ns));
            }
            Fact::Enqueue { subscription, .. } => {
                self.rings.insert(subscription);
            }
            _ => {}
        }
        self.facts.push(fact);
    }

    /// Whether a fact stands on one that is held.
    pub(in crate::synth) fn before(
        &self,
        fact: &Fact,
        entity: impl Fn(u32) -> u32,
        name: impl Fn(u32) -> u32,
    ) -> bool {
        let owned =
            |owner: &Owner| matches!(owner, Owner::Instance(i) if self.instances.contains(i));
        let item = |subscription: u32, source_ns: i64| {
            let topic = name(subscription);
            self.items.contains(&(topic, Some(source_ns))) || self.items.contains(&(topic, None))
        };
        match fact {
            Fact::Begin(begin) => {
                let entity = entity(begin.instance);
                self.entities.contains(&entity)
                    || match begin.input {
                        Input::Message { source_ns } => item(entity, source_ns),
                        Input::Ring { .. } => self.rings.contains(&entity),
                        Input::Response { .. } => self.names.contains(&name(entity)),
                        _ => false,
                    }
            }
            Fact::End(end) => self.instances.contains(&end.instance),
            Fact::Sync { instance, .. } | Fact::Over { instance, .. } => {
                self.instances.contains(instance)
            }
            Fact::Publish {
                owner, publisher, ..
            } => owned(owner) || self.publishers.contains(publisher),
            Fact::PublishedBy { publisher, .. } => self.publishers.contains(publisher),
            Fact::Enqueue {
                owner,
                subscription,
                ..
            } => owned(owner) || self.rings.contains(subscription),
            Fact::Clear { subscription } => self.rings.contains(subscription),
            Fact::Request { owner, .. } => owned(owner),
            // Its request may be among the held ones.
            Fact::Response { service, .. } => self.entities.contains(service),
            Fact::TakeOnly {
                subscription,
                source_ns,
            } => item(*subscription, *source_ns),
        }
    }
}
