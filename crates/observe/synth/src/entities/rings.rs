//! The ring buffers of intra-process subscriptions, and the subscription that reads each of them.

use super::process::Tie;
use super::{Entities, EntityKind, HandleKind, NewEntity};
use crate::ids::{EntityId, ProcessIndex};
use crate::index::NameId;

impl Entities {
    pub(crate) fn ring_buffer(&mut self, p: ProcessIndex, buffer: u64) -> Option<EntityId> {
        let process = self.process_mut(p);
        if let Some(&e) = process.handles.get(&(HandleKind::RingBuffer, buffer)) {
            return Some(e);
        }
        let ipb = *process.ties.get(&(Tie::RingIntra, buffer))?;
        let object = *process.ties.get(&(Tie::IntraObject, ipb))?;
        let rcl = *process.ties.get(&(Tie::ObjectSubscription, object))?;
        let e = *process.handles.get(&(HandleKind::RclSubscription, rcl))?;
        process.handles.insert((HandleKind::RingBuffer, buffer), e);
        Some(e)
    }

    /// Late attach: a message of `topic` was put into a ring buffer. Returns the subscription that
    /// reads this buffer: the process's only subscription to the topic without a known ring buffer.
    /// If there is none, or more than one, creates a new subscription.
    pub(crate) fn ring_found(
        &mut self,
        p: ProcessIndex,
        buffer: u64,
        topic: Option<NameId>,
    ) -> EntityId {
        let only = topic.and_then(|topic| self.only_without_ring(p, topic));
        let e = only.unwrap_or_else(|| self.create_by_ring(p, topic));
        let process = self.process_mut(p);
        let before = process.handles.get(&(HandleKind::RingBuffer, buffer));
        if let Some(nameless) = before
            .copied()
            .filter(|&e| process.rings.nameless.contains(&e))
        {
            // Its callback is now known to be the subscription's.
            let handles = process.handles.values_mut();
            handles.filter(|h| **h == nameless).for_each(|h| *h = e);
        }
        self.set_handle(p, HandleKind::RingBuffer, buffer, e);
        e
    }

    pub(crate) fn is_nameless(&self, p: ProcessIndex, e: EntityId) -> bool {
        self.process(p).rings.nameless.contains(&e)
    }

    fn only_without_ring(&self, p: ProcessIndex, topic: NameId) -> Option<EntityId> {
        let handles = &self.process(p).handles;
        let rings = handles
            .iter()
            .filter(|(k, _)| k.0 == HandleKind::RingBuffer);
        let with_ring: Vec<EntityId> = rings.map(|(_, &e)| e).collect();
        let of_topic = self.endpoints(Some(topic)).subscriptions.iter().copied();
        let mut free = of_topic.filter(|e| self.get(*e).process == p && !with_ring.contains(e));
        let first = free.next()?;
        free.next().is_none().then_some(first)
    }

    /// Creates a subscription for which only the ring buffer, and perhaps the topic, is known.
    /// Without a topic, the subscription gets a name that no topic of the process has.
    fn create_by_ring(&mut self, p: ProcessIndex, topic: Option<NameId>) -> EntityId {
        let name = match topic {
            Some(topic) => self.names.get(topic).to_string(),
            None => {
                let node = self.fallback_node(p);
                let node = self.names.get(self.nodes.get(node).name);
                let n = self.process(p).rings.found.len() + 1;
                format!("{node}/ring_buffer_{n}")
            }
        };
        let e = self.create(
            p,
            NewEntity {
                kind: EntityKind::Subscription,
                handles: [(HandleKind::RclSubscription, 0); 2],
                node: None,
                name: &name,
                depth: 0,
                period_ns: None,
            },
        );
        let process = self.process_mut(p);
        process.rings.found.push(e);
        process.rings.nameless.extend(topic.is_none().then_some(e));
        e
    }

    pub(super) fn take_by_ring(&mut self, p: ProcessIndex, topic: NameId) -> Option<EntityId> {
        let found = self.process(p).rings.found.iter().copied();
        let found: Vec<EntityId> = found
            .filter(|&e| self.get(e).name() == Some(topic))
            .collect();
        let [only] = found[..] else {
            return None;
        };
        self.process_mut(p).rings.found.retain(|&e| e != only);
        Some(only)
    }
}
