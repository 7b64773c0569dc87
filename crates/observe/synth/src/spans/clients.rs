//! Habits of rclpy's clients: how long the code that waits for their responses runs, and which
//! endpoints it publishes by. They tell the callbacks of several responses in a row apart.

use crate::entities::Entities;
use crate::ids::EntityId;
use rustc_hash::FxHashMap;

/// How well a client fits an endpoint; a greater one fits better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// It is of another node, or the endpoint has another usual client.
    None,
    /// Of the same node, with another endpoint as its usual one.
    Busy,
    /// Of the same node, and nothing usual is known of it.
    Free,
    /// The endpoint's usual client.
    Usual,
}

/// A mean of the last values.
#[derive(Debug, Clone, Copy)]
struct Mean {
    value: u64,
    count: u64,
}

/// What is usual for clients.
#[derive(Debug, Clone, Default)]
pub(super) struct Habits {
    /// Execution time of clients' callbacks.
    means: FxHashMap<EntityId, Mean>,
    /// By endpoint, if known: which clients' callbacks publish by it, and how often that was
    /// certain.
    users: FxHashMap<Option<EntityId>, Vec<(EntityId, u32)>>,
    /// How often a client's callback has not shown, since it last did.
    unshown: FxHashMap<EntityId, u32>,
}

/// Values that a mean follows.
const MEAN_OF: u64 = 16;

/// A client whose callback has not shown so often in a row has none that publishes.
const SILENT: u32 = 3;

/// Taken for a client's execution time while nothing is known, in ns.
const UNKNOWN_MEAN_NS: u64 = 1_000_000;

impl Habits {
    /// Notes an execution time of a client's callback.
    pub(super) fn learn_mean(&mut self, client: EntityId, exec_ns: u64) {
        let mean = self.means.entry(client).or_insert(Mean {
            value: exec_ns,
            count: 0,
        });
        mean.count = (mean.count + 1).min(MEAN_OF);
        let (old, n) = (i128::from(mean.value), i128::from(mean.count));
        mean.value = u64::try_from(old + (i128::from(exec_ns) - old) / n).unwrap_or(exec_ns);
    }

    /// The usual execution time of a client's callback, at least 1 ns.
    pub(super) fn mean_ns(&self, client: EntityId) -> u64 {
        let mean = self.means.get(&client);
        mean.map_or(UNKNOWN_MEAN_NS, |m| m.value.max(1))
    }

    /// A client's callback certainly published by an endpoint.
    pub(super) fn learn_user(&mut self, endpoint: Option<EntityId>, client: EntityId) {
        let known = self.users.entry(endpoint).or_default();
        match known.iter_mut().find(|k| k.0 == client) {
            Some(k) => k.1 = k.1.saturating_add(1),
            None => known.push((client, 1)),
        }
    }

    /// A client's callback has published nothing.
    pub(super) fn learn_silent(&mut self, client: EntityId) {
        let unshown = self.unshown.entry(client).or_default();
        *unshown = unshown.saturating_add(1);
    }

    /// A client's callback publishes.
    pub(super) fn learn_shown(&mut self, client: EntityId) {
        self.unshown.remove(&client);
    }

    /// Whether a client's callback seems to publish nothing.
    pub(super) fn is_silent(&self, client: EntityId) -> bool {
        self.unshown.get(&client).is_some_and(|&n| n >= SILENT)
    }

    /// How well a client fits an endpoint.
    pub(super) fn fit(
        &self,
        entities: &Entities,
        client: EntityId,
        endpoint: Option<EntityId>,
    ) -> Fit {
        let users = self.users.get(&endpoint).into_iter().flatten();
        if let Some(&(usual, _)) = users.max_by_key(|k| k.1) {
            return if usual == client {
                Fit::Usual
            } else {
                Fit::None
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

    /// Drops what is known of an entity whose place may be used again.
    pub(super) fn forget(&mut self, e: EntityId) {
        self.means.remove(&e);
        self.unshown.remove(&e);
        self.users.remove(&Some(e));
        for known in self.users.values_mut() {
            known.retain(|k| k.0 != e);
        }
    }
}
