//! The habits of rclpy's clients: how long the code that waits for their responses runs, and by
//! which endpoints it publishes. If several responses come in a row, these habits show which
//! callback is whose.

use crate::entities::Entities;
use crate::ids::EntityId;
use rustc_hash::{FxHashMap, FxHashSet};

/// The likelihood that the code of a client publishes by an endpoint. A greater value is more
/// likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// The client and the endpoint belong to different nodes, or only the code of other clients
    /// usually publishes by the endpoint.
    None,
    /// The client and the endpoint belong to the same node, but the code of this client usually
    /// publishes by another endpoint.
    Busy,
    /// The client and the endpoint belong to the same node, and no endpoint is known so far by
    /// which the code of this client usually publishes.
    Free,
    Usual,
}

#[derive(Debug, Clone, Copy)]
struct MovingMean {
    value: u64,
    count: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Habits {
    mean_exec: FxHashMap<EntityId, MovingMean>,
    /// For each endpoint: the clients whose callbacks publish by it, each with the number of
    /// publications for which this is certain. The key is `None` for an unknown endpoint.
    users: FxHashMap<Option<EntityId>, Vec<(EntityId, u32)>>,
    silent_in_a_row: FxHashMap<EntityId, u32>,
    unwaited: FxHashSet<EntityId>,
}

const MEAN_VALUES: u64 = 16;

/// A client is not a usual user of an endpoint if another client has used it more than this number
/// of times as often.
const RARE: u32 = 16;

/// If a client's callback publishes nothing in this number of successive executions, onbeat assumes
/// that the callback never publishes.
const SILENT: u32 = 3;

/// The assumed execution time of a client's callback until the first one is measured, in ns.
const UNKNOWN_MEAN_NS: u64 = 1_000_000;

impl Habits {
    pub(super) fn learn_mean(&mut self, client: EntityId, exec_ns: u64) {
        let mean = self.mean_exec.entry(client).or_insert(MovingMean {
            value: exec_ns,
            count: 0,
        });
        mean.count = (mean.count + 1).min(MEAN_VALUES);
        let (old, n) = (i128::from(mean.value), i128::from(mean.count));
        mean.value = u64::try_from(old + (i128::from(exec_ns) - old) / n).unwrap_or(exec_ns);
    }

    pub(super) fn mean_ns(&self, client: EntityId) -> u64 {
        let mean = self.mean_exec.get(&client);
        mean.map_or(UNKNOWN_MEAN_NS, |m| m.value.max(1))
    }

    pub(super) fn learn_user(&mut self, endpoint: Option<EntityId>, client: EntityId) {
        let known = self.users.entry(endpoint).or_default();
        match known.iter_mut().find(|k| k.0 == client) {
            Some(k) => k.1 = k.1.saturating_add(1),
            None => known.push((client, 1)),
        }
    }

    pub(super) fn learn_silent(&mut self, client: EntityId) {
        let silent_in_a_row = self.silent_in_a_row.entry(client).or_default();
        *silent_in_a_row = silent_in_a_row.saturating_add(1);
    }

    pub(super) fn learn_published(&mut self, client: EntityId) {
        self.silent_in_a_row.remove(&client);
    }

    pub(super) fn is_silent(&self, client: EntityId) -> bool {
        self.silent_in_a_row
            .get(&client)
            .is_some_and(|&n| n >= SILENT)
    }

    pub(super) fn fit(
        &self,
        entities: &Entities,
        client: EntityId,
        endpoint: Option<EntityId>,
    ) -> Fit {
        if let Some(users) = self.users.get(&endpoint).filter(|users| !users.is_empty()) {
            let most = users.iter().map(|k| k.1).max().unwrap_or(0);
            let is_usual = |k: &(EntityId, u32)| k.0 == client && k.1 >= most / RARE;
            return match users.iter().any(is_usual) {
                true => Fit::Usual,
                false => Fit::None,
            };
        }
        let node = endpoint.and_then(|e| entities.node_of_entity(e));
        if entities.node_of_entity(client) != node {
            return Fit::None;
        }
        if self.users.values().flatten().any(|k| k.0 == client) {
            Fit::Busy
        } else {
            Fit::Free
        }
    }

    pub(super) fn learn_unwaited(&mut self, client: EntityId) {
        self.unwaited.insert(client);
    }

    pub(super) fn is_unwaited(&self, client: EntityId) -> bool {
        self.unwaited.contains(&client)
    }

    pub(super) fn forget(&mut self, e: EntityId) {
        self.unwaited.remove(&e);
        self.mean_exec.remove(&e);
        self.silent_in_a_row.remove(&e);
        self.users.remove(&Some(e));
        for known in self.users.values_mut() {
            known.retain(|k| k.0 != e);
        }
    }
}
