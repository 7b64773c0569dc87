//! What publishers and subscriptions ask of the middleware: their QoS settings, by ROS 2's names.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A setting by the number that rmw gives it, which is the same in all distributions.
macro_rules! policy {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $code:literal $word:literal),* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$value_doc])* $value),*
        }

        impl $name {
            /// As ROS 2 writes it.
            pub fn text(self) -> &'static str {
                match self {
                    $($name::$value => $word,)*
                }
            }

            fn of_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some($name::$value),)*
                    _ => None,
                }
            }
        }
    };
}

policy! {
    /// Which items are kept.
    History {
        /// As the middleware does it.
        SystemDefault = 0 "system_default",
        /// The last ones, so many as the depth.
        KeepLast = 1 "keep_last",
        /// All of them.
        KeepAll = 2 "keep_all"
    }
}

policy! {
    /// Whether items are sent again until they arrive.
    Reliability {
        /// As the middleware does it.
        SystemDefault = 0 "system_default",
        /// They are.
        Reliable = 1 "reliable",
        /// They are not.
        BestEffort = 2 "best_effort",
        /// As the other side has it.
        BestAvailable = 4 "best_available"
    }
}

policy! {
    /// Whether subscriptions that come later get earlier items.
    Durability {
        /// As the middleware does it.
        SystemDefault = 0 "system_default",
        /// They get those that their publisher keeps.
        TransientLocal = 1 "transient_local",
        /// They get none.
        Volatile = 2 "volatile",
        /// As the other side has it.
        BestAvailable = 4 "best_available"
    }
}

policy! {
    /// Who says that a publisher is alive.
    Liveliness {
        /// As the middleware does it.
        SystemDefault = 0 "system_default",
        /// The middleware, for all of a node.
        Automatic = 1 "automatic",
        /// The application, for a node.
        ManualByNode = 2 "manual_by_node",
        /// The application, for each publisher.
        ManualByTopic = 3 "manual_by_topic",
        /// As the other side has it.
        BestAvailable = 5 "best_available"
    }
}

/// The settings of a publisher or subscription, as it asked for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Qos {
    /// Which items are kept.
    pub history: History,
    /// How many of them, where the last ones are.
    pub depth: u64,
    /// Whether items are sent again until they arrive.
    pub reliability: Reliability,
    /// Whether subscriptions that come later get earlier items.
    pub durability: Durability,
    /// Longest time between two items; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// How long an item is of use; none: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifespan_ns: Option<u64>,
    /// Who says that a publisher is alive.
    pub liveliness: Liveliness,
    /// How often that has to be said; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ns: Option<u64>,
}

/// Settings by rmw's numbers; none for a number that rmw has not, or calls unknown.
pub fn of_codes(
    [history, reliability, durability, liveliness]: [u8; 4],
    depth: u64,
    [deadline, lifespan, lease]: [u64; 3],
) -> Option<Qos> {
    let limit = |ns: u64| (ns != 0 && ns < i64::MAX as u64).then_some(ns);
    Some(Qos {
        history: History::of_code(history)?,
        depth,
        reliability: Reliability::of_code(reliability)?,
        durability: Durability::of_code(durability)?,
        deadline_ns: limit(deadline),
        lifespan_ns: limit(lifespan),
        liveliness: Liveliness::of_code(liveliness)?,
        lease_ns: limit(lease),
    })
}

/// Most settings that are kept of the publishers, or subscriptions, of a node on a topic: whoever makes ever new ones must
/// not fill the model.
pub const MOST: usize = 16;

/// Adds settings, and keeps the least [`MOST`]: the same ones in whatever order they come.
pub fn add(all: &mut BTreeSet<Qos>, more: impl IntoIterator<Item = Qos>) {
    for qos in more {
        all.insert(qos);
        if all.len() > MOST {
            all.pop_last();
        }
    }
}

/// Which way items pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointKind {
    /// Out of the node.
    Publisher,
    /// Into the node.
    Subscription,
}

/// The publishers, or the subscriptions, of a node on a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Endpoint {
    /// The node (untrusted).
    pub node: String,
    /// The topic (untrusted).
    pub topic: String,
    /// Publishers or subscriptions.
    pub kind: EndpointKind,
    /// Their settings, sorted, each once: several where they differ, or runs did.
    pub qos: Vec<Qos>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_settings_are_kept_in_whatever_order_they_come() {
        let of_depth = |depth| of_codes([1, 1, 2, 1], depth, [0; 3]).expect("known codes");
        let (mut up, mut down, mut halves) = <(BTreeSet<_>, BTreeSet<_>, BTreeSet<_>)>::default();
        add(&mut up, (0..100).map(of_depth));
        add(&mut down, (0..100).rev().map(of_depth));
        let mut later = BTreeSet::new();
        add(&mut halves, (50..100).map(of_depth));
        add(&mut later, (0..50).map(of_depth));
        add(&mut halves, later);
        assert_eq!(up.len(), MOST);
        assert!(up == down && up == halves);
        assert_eq!(up.last().map(|qos| qos.depth), Some(15));
    }
}
