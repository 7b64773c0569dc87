//! The QoS settings of publishers and subscriptions, by ROS 2's names.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Defines the enum of a QoS setting. The values have the numbers that rmw uses, which are the same
/// in all ROS 2 distributions.
macro_rules! policy {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $code:literal $word:literal),* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$value_doc])* $value),*
        }

        impl $name {
            /// Returns the value's name as ROS 2 writes it, for example `keep_last`.
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
    /// The rule that decides which items an endpoint keeps.
    #[allow(missing_docs)] // the names say what they are
    History {
        SystemDefault = 0 "system_default",
        KeepLast = 1 "keep_last",
        KeepAll = 2 "keep_all"
    }
}

policy! {
    /// The rule that decides whether items are sent again until they arrive.
    #[allow(missing_docs)] // the names say what they are
    Reliability {
        SystemDefault = 0 "system_default",
        Reliable = 1 "reliable",
        BestEffort = 2 "best_effort",
        BestAvailable = 4 "best_available"
    }
}

policy! {
    /// The rule that decides whether later subscriptions get earlier items.
    #[allow(missing_docs)] // the names say what they are
    Durability {
        SystemDefault = 0 "system_default",
        TransientLocal = 1 "transient_local",
        Volatile = 2 "volatile",
        BestAvailable = 4 "best_available"
    }
}

policy! {
    /// The rule that decides who reports that a publisher is alive.
    #[allow(missing_docs)] // the names say what they are
    Liveliness {
        SystemDefault = 0 "system_default",
        Automatic = 1 "automatic",
        ManualByNode = 2 "manual_by_node",
        ManualByTopic = 3 "manual_by_topic",
        BestAvailable = 5 "best_available"
    }
}

/// The QoS settings of a publisher or subscription, as the application requested them.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Qos {
    pub history: History,
    /// The number of items kept with [`History::KeepLast`].
    pub depth: u64,
    pub reliability: Reliability,
    pub durability: Durability,
    /// The longest allowed time between two items, in ns. `None` means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// The time in ns for which an item is valid. `None` means for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifespan_ns: Option<u64>,
    /// The party that reports that a publisher is alive: the middleware or the application.
    pub liveliness: Liveliness,
    /// The longest allowed time in ns between two reports that the publisher is alive. `None` means
    /// no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ns: Option<u64>,
}

/// Builds settings from rmw's numbers. Returns `None` if rmw does not define a number or calls it
/// unknown.
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

/// The maximum number of different settings that the model stores for a node's publishers or
/// subscriptions on a topic. Without the limit, a node that creates endpoints with new settings
/// again and again would fill the model.
pub const MOST: usize = 16;

/// Adds settings to `all`, and then keeps only the first [`MOST`] in sort order. The result does
/// not depend on the order of the calls.
pub fn add(all: &mut BTreeSet<Qos>, more: impl IntoIterator<Item = Qos>) {
    for qos in more {
        all.insert(qos);
        if all.len() > MOST {
            all.pop_last();
        }
    }
}

/// The direction in which items pass an endpoint: out of the node or into it.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointKind {
    Publisher,
    Subscription,
}

/// The publishers or the subscriptions of a node on a topic.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Endpoint {
    /// The full name of the node. It is untrusted.
    pub node: String,
    /// The name of the topic. It is untrusted.
    pub topic: String,
    pub kind: EndpointKind,
    /// The different QoS settings, sorted. There are several if endpoints or runs differ.
    pub qos: Vec<Qos>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_qos_settings_do_not_depend_on_the_order_of_adding() {
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
