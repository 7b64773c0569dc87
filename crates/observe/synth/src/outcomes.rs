//! Reports the outcome of every item and request: executed, answered, or lost, and how. `onbeat-why`
//! finds the causes of losses with these.

use onbeat_document::schema::qos::{Durability, Liveliness, Qos, Reliability};

#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemOutcome {
    /// The number of the callback that published the item, or `None` if no known callback did.
    pub from: Option<u32>,
    /// The number of the subscription's callback, or of the synchroniser.
    pub to: u32,
    /// The number of the topic, see [`Synth::name`](super::Synth::name).
    pub name: u32,
    /// The time of the publication, CLOCK_MONOTONIC. For an input of a synchroniser: the start of
    /// the callback that took it.
    pub published_ns: u64,
    /// The time at which the outcome became known, CLOCK_MONOTONIC.
    pub found_ns: u64,
    pub outcome: Outcome,
}

/// The outcome of an item: a callback ran on it, it was only taken, or it was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A callback ran on the item, or a synchroniser joined it.
    Executed,
    /// The program took the item, but no callback ran on it.
    Read,
    /// No callback ran on the item.
    Lost(Loss),
    /// An earlier report of a loss was wrong: the item was taken after all.
    Back,
}

/// The way in which an item was lost, as far as the recording shows it.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Later items took the place of this item in the history of the subscription.
    Overwritten {
        /// The number of items that the history can store.
        depth: u64,
        /// The publication time of the item that took the place of this item, CLOCK_MONOTONIC.
        replaced_ns: u64,
    },
    /// The middleware does not connect publisher and subscription, because this QoS setting does
    /// not match.
    Refused(Setting),
    /// The item is older than the first item that the subscription took from this publisher. The
    /// middleware had perhaps not connected the two yet.
    BeforeFirstTake,
    /// The subscription never took an item of this publisher.
    NeverTaken,
    /// The subscription took a later item of the same publisher, and the recording does not show
    /// that the subscription's history was full.
    Skipped {
        /// Publisher and subscription both ask for reliable delivery. `None` if the recording does
        /// not show it.
        reliable: Option<bool>,
        /// The recording shows how many items the subscription's history can store.
        depth_known: bool,
        /// The publisher sets a lifespan, after which the middleware drops its items.
        has_lifespan: bool,
    },
    /// A shaper held the item back, and discarded it instead of sending it.
    Discarded,
    /// The subscription ended before it took the item, or its history was emptied.
    SubscriptionEnded,
    PublisherEnded,
    RecordingEnded,
    PassedOver {
        /// The number of the callback whose subscription had the fewest inputs since the previous
        /// output. `None` if all subscriptions of the synchroniser had equally many inputs.
        lacks: Option<u32>,
    },
}

/// A QoS setting for which a publisher offers less than a subscription requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// The publisher offers best effort, and the subscription requests reliable delivery.
    Reliability,
    /// The publisher does not keep items for subscriptions that join later (volatile). The
    /// subscription requests them.
    Durability,
    /// The publisher offers a longer time between items than the subscription requests.
    Deadline,
    /// The publisher's liveliness is asserted in a weaker way, or less often, than the subscription
    /// requests.
    Liveliness,
}

/// Returns the first setting that keeps the middleware from connecting a publisher with a
/// subscription. Settings that the middleware chooses are not compared.
pub fn refused(offered: &Qos, requested: &Qos) -> Option<Setting> {
    let exceeds = |offered: Option<u64>, requested: Option<u64>| {
        requested.is_some_and(|most| offered.is_none_or(|offered| offered > most))
    };
    let rank = |liveliness| match liveliness {
        Liveliness::Automatic => Some(0),
        Liveliness::ManualByNode => Some(1),
        Liveliness::ManualByTopic => Some(2),
        Liveliness::SystemDefault | Liveliness::BestAvailable => None,
    };
    let weaker = || {
        let ranks = rank(offered.liveliness).zip(rank(requested.liveliness));
        ranks.is_some_and(|(offered, requested)| offered < requested)
    };
    if (offered.reliability, requested.reliability)
        == (Reliability::BestEffort, Reliability::Reliable)
    {
        Some(Setting::Reliability)
    } else if (offered.durability, requested.durability)
        == (Durability::Volatile, Durability::TransientLocal)
    {
        Some(Setting::Durability)
    } else if exceeds(offered.deadline_ns, requested.deadline_ns) {
        Some(Setting::Deadline)
    } else if weaker() || exceeds(offered.lease_ns, requested.lease_ns) {
        Some(Setting::Liveliness)
    } else {
        None
    }
}

/// The outcome of a request to the service `name`, which is a number for
/// [`Synth::name`](super::Synth::name).
///
/// The client sent the request at `sent_ns` and took the response at `received_ns`. The service
/// sent the response at `responded_ns`. Times are CLOCK_MONOTONIC, or `None` if the recording lacks
/// them.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestOutcome {
    /// The number of the callback that sent the request, or `None` if no known callback did.
    pub from: Option<u32>,
    /// The number of the callback that ran on the request, or that was expected to. `None` if the
    /// recording has no server.
    pub to: Option<u32>,
    pub name: u32,
    pub sent_ns: u64,
    pub began_ns: Option<u64>,
    pub responded_ns: Option<u64>,
    pub received_ns: Option<u64>,
    /// The recording ended less than a second after the last known time of the request. Its fate is
    /// therefore open.
    pub open: bool,
    /// The service executed requests of unknown clients, and this request may be one of them.
    pub perhaps_executed: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Outcomes {
    pub(crate) items: Vec<ItemOutcome>,
    pub(crate) requests: Vec<RequestOutcome>,
}

impl Outcomes {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_document::schema::qos::History;

    const QOS: Qos = Qos {
        history: History::KeepLast,
        depth: 1,
        reliability: Reliability::Reliable,
        durability: Durability::TransientLocal,
        deadline_ns: Some(5),
        lifespan_ns: None,
        liveliness: Liveliness::ManualByNode,
        lease_ns: Some(7),
    };

    #[test]
    fn a_publisher_that_offers_less_than_requested_is_refused() {
        assert_eq!(refused(&QOS, &QOS), None);
        let less = [
            (
                Qos {
                    reliability: Reliability::BestEffort,
                    ..QOS
                },
                Setting::Reliability,
            ),
            (
                Qos {
                    durability: Durability::Volatile,
                    ..QOS
                },
                Setting::Durability,
            ),
            (
                Qos {
                    deadline_ns: None,
                    ..QOS
                },
                Setting::Deadline,
            ),
            (
                Qos {
                    liveliness: Liveliness::Automatic,
                    ..QOS
                },
                Setting::Liveliness,
            ),
            (
                Qos {
                    lease_ns: Some(8),
                    ..QOS
                },
                Setting::Liveliness,
            ),
        ];
        for (offered, setting) in less {
            assert_eq!(refused(&offered, &QOS), Some(setting));
            // A publisher may offer more than requested.
            assert_eq!(refused(&QOS, &offered), None);
        }
    }

    #[test]
    fn a_setting_that_the_middleware_chooses_is_not_refused() {
        let open = Qos {
            reliability: Reliability::SystemDefault,
            durability: Durability::BestAvailable,
            liveliness: Liveliness::BestAvailable,
            ..QOS
        };
        assert_eq!(refused(&open, &QOS), None);
        assert_eq!(refused(&QOS, &open), None);
    }
}
