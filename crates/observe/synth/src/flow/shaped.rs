//! Follows the items that a shaper of onbeat holds back: when each of them left.
//!
//! The shaper reports each item twice: when the application publishes it, and when the shaper sends
//! it with another time stamp, or discards it.

use super::Flow;
use crate::events::{EndHold, HeldMessage, HoldEnd};
use crate::followed::Shaped;
use crate::ids::EntityId;
use crate::notes::Note;
use crate::Context;
use rustc_hash::FxHashMap;

/// For each message that a shaper holds back: the sequence number of the publisher's item.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldItems(FxHashMap<(EntityId, HeldMessage), u64>);

impl HeldItems {
    pub(super) fn forget(&mut self, publisher: EntityId) {
        self.0.retain(|key, _| key.0 != publisher);
    }
}

impl Flow {
    /// Records that a shaper holds an item of a publisher back.
    pub(super) fn hold(&mut self, publisher: EntityId, held: HeldMessage, sequence: u64) {
        self.ways.held.0.insert((publisher, held), sequence);
    }

    /// Records that a shaper sends or discards an item that it held back. From now on, an item that
    /// was sent has the time stamp with which subscriptions take it.
    pub(super) fn end_hold(&mut self, cx: &mut Context, end: &EndHold) {
        let (publisher, sent_ns) = (end.publisher, end.time);
        let held = self.ways.held.0.remove(&(publisher, end.held));
        let name = cx.entities.get(publisher).name();
        let (Some(sequence), Some(name)) = (held, name) else {
            return;
        };
        let place = (publisher, sequence);
        let source_ns = match end.how {
            HoldEnd::Sent(source_ns) => source_ns,
            HoldEnd::Discarded => return self.ways.topics.set_discarded(place),
        };
        let Some(published_ns) = self.ways.topics.restamp(name, place, source_ns) else {
            return;
        };
        cx.notes.count(Note::HeldBack(name), 1);
        if let Some(followed) = &mut self.lineage.paths.followed {
            followed.shaped.push(Shaped {
                name: name.index() as u32,
                published_ns,
                sent_ns,
            });
        }
    }
}
