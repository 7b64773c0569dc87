//! The kinds of losses and of requests.

use serde::Serialize;

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Later items took the item's place in the subscription's history.
    Overwritten,
    /// The middleware did not connect publisher and subscription, because their QoS does not match.
    Refused,
    PassedOver,
    /// The subscription took the item, and no callback ran on it.
    Read,
    /// A shaper held the item back and did not send it.
    Discarded,
    /// The subscription ended, or emptied its history, before it took the item.
    SubscriptionEnded,
    RecordingEnded,
    /// The kernel dropped datagrams at a socket of the subscription's process while the item was on
    /// its way.
    Socket,
    /// The recording does not show the cause. A [`LossReason`] says why.
    Unknown,
}

impl LossKind {
    /// Returns the kind in words, such as `overwritten in the history`, as tables show it.
    pub fn text(self) -> &'static str {
        match self {
            LossKind::Overwritten => "overwritten in the history",
            LossKind::Refused => "refused by QoS",
            LossKind::PassedOver => "passed over by the synchroniser",
            LossKind::Read => "taken without a callback",
            LossKind::Discarded => "discarded by a shaper",
            LossKind::SubscriptionEnded => "not taken before the subscription ended",
            LossKind::RecordingEnded => "not taken before the recording ended",
            LossKind::Socket => "dropped at a socket",
            LossKind::Unknown => "unknown",
        }
    }
}

/// The reason why the recording does not show the cause of a loss.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    LostEvents,
    /// The item was published before the subscription took its first item of this publisher.
    BeforeFirstTake,
    /// The subscription took no item of this publisher in the whole recording.
    NeverTaken,
    PublisherEnded,
    /// The subscription's history had room. Publisher or subscription asks for best effort, so the
    /// middleware does not send lost items again.
    BestEffort,
    /// The subscription's history had room, and both sides ask for reliable delivery.
    Reliable,
    /// The subscription's history had room. The publisher limits for how long its items are valid
    /// (lifespan).
    Lifespan,
    DepthUnknown,
    /// The QoS of the publisher or of the subscription is not recorded.
    QosUnknown,
}

impl LossReason {
    /// Returns the reason in words, as part of a sentence.
    pub fn text(self) -> &'static str {
        match self {
            LossReason::LostEvents => "the recorder lost events at this time",
            LossReason::BeforeFirstTake => {
                "the item was published before the subscription's first take, so perhaps publisher and subscription were not connected yet"
            }
            LossReason::NeverTaken => "the subscription took no item of this publisher",
            LossReason::PublisherEnded => "the publisher ended before the item was taken",
            LossReason::BestEffort => {
                "the item was not overwritten, because the history had room; with best effort, the middleware does not send lost items again"
            }
            LossReason::Reliable => {
                "the item was not overwritten, because the history had room; both sides ask for reliable delivery"
            }
            LossReason::Lifespan => {
                "the item was not overwritten, because the history had room; perhaps the lifespan that the publisher sets had ended"
            }
            LossReason::DepthUnknown => "the depth of the subscription's history is not recorded",
            LossReason::QosUnknown => {
                "the item was not overwritten, because the history had room; the recording lacks the QoS that could explain the loss"
            }
        }
    }
}

/// The outcome of a client's request to a service.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    Answered,
    /// The client took the response later than the limit.
    Late,
    NoServer,
    NotExecuted,
    /// A callback ran on the request, and the service sent no response.
    NoResponse,
    ResponseNotTaken,
    RecordingEnded,
    /// The outcome is unknown, because events were lost, or because the service executed requests
    /// of unknown clients.
    Unknown,
}

impl RequestKind {
    /// Reports whether the recording shows that the client never got the response.
    pub fn is_never(self) -> bool {
        matches!(
            self,
            RequestKind::NoServer
                | RequestKind::NotExecuted
                | RequestKind::NoResponse
                | RequestKind::ResponseNotTaken
        )
    }

    /// Returns the outcome in words, such as `never answered: no callback ran`, as tables show it.
    pub fn text(self) -> &'static str {
        match self {
            RequestKind::Answered => "answered",
            RequestKind::Late => "answered late",
            RequestKind::NoServer => "never answered: no server in the recording",
            RequestKind::NotExecuted => "never answered: no callback ran",
            RequestKind::NoResponse => "never answered: a callback ran and sent no response",
            RequestKind::ResponseNotTaken => "response never taken",
            RequestKind::RecordingEnded => "without a response at the end of the recording",
            RequestKind::Unknown => "unknown",
        }
    }
}
