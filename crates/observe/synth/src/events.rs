//! The events that `spans` passes to `flow`: everything that concerns data, with the callback
//! instance that caused it.

use super::ids::{DecisionId, EntityId, HandId, HandedId, InstanceId};
use super::values::{Cpus, Gid, Idle, Release, ThreadId, ThreadProfile, Totals};
use onbeat_trace::Holder;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Instance(InstanceId),
    Outside,
    Hidden,
    Ambiguous,
    /// It is not decided yet which callback caused the event. A [`SpanEvent::Decided`] follows.
    Undecided(DecisionId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Unknown,
    Ambiguous,
    Timer,
    Message {
        source_ns: i64,
    },
    Ring {
        index: u64,
    },
    Request {
        gid: Gid,
        sequence: i64,
        at: u64,
    },
    Response {
        sequence: i64,
        at: u64,
    },
    /// The execution begins with work that a callback handed over to the execution's thread.
    Handed {
        work: HandedId,
    },
    /// The execution begins with work that another execution created for later.
    Made {
        hand: HandId,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Begin {
    pub(super) instance: InstanceId,
    pub(super) entity: EntityId,
    pub(super) start: u64,
    pub(super) thread: ThreadId,
    pub(super) input: Input,
    pub(super) idle: Option<Idle>,
    pub(super) release: Release,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) instance: InstanceId,
    pub(super) time: u64,
    pub(super) spent: Totals,
    pub(super) how: Ending,
    pub(super) profile: ThreadProfile,
    pub(super) cpus: Cpus,
    pub(super) scheduled: bool,
}

/// The way in which an instance ended. [`Ended`](crate::detail::Ended) describes the variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Exact,
    Inferred,
    Shared,
    Unshown,
    Aborted,
    CutOff,
    Unfinished,
}

impl Ending {
    pub(super) fn is_whole(self) -> bool {
        self.is_timed() || matches!(self, Ending::Shared | Ending::Unshown)
    }

    pub(super) fn is_timed(self) -> bool {
        matches!(self, Ending::Exact | Ending::Inferred)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct OwnInput {
    pub(super) instance: InstanceId,
    pub(super) entity: EntityId,
    pub(super) input: Input,
    pub(super) time: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Publication {
    pub(super) owner: Owner,
    pub(super) publisher: EntityId,
    pub(super) time: u64,
    /// The source time stamp of the message. ROS 2 Humble does not report it.
    pub(super) source_ns: Option<i64>,
    /// The time at which the message was published within the process. This time identifies the
    /// message. `None` if the message went only through the middleware.
    pub(super) message: Option<u64>,
    /// `Some` if a shaper holds the message back.
    pub(super) held: Option<HeldMessage>,
}

/// The address at which a shaper keeps a message of a publisher until its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct HeldMessage(u64);

impl HeldMessage {
    /// Returns the message that a shaper holds back, if the address of a publication is marked.
    pub(super) fn of_marked(address: u64) -> Option<HeldMessage> {
        Holder::of(address).map(|_| HeldMessage(address & !7))
    }

    pub(super) fn at(address: u64) -> HeldMessage {
        HeldMessage(address)
    }
}

/// A shaper stops holding a message back.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndHold {
    pub(super) publisher: EntityId,
    pub(super) held: HeldMessage,
    pub(super) time: u64,
    pub(super) how: HoldEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldEnd {
    /// The shaper sends the message with this source time stamp.
    Sent(Option<i64>),
    Discarded,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Enqueue {
    pub(super) owner: Owner,
    pub(super) publisher: Option<EntityId>,
    pub(super) subscription: EntityId,
    pub(super) index: u64,
    pub(super) time: u64,
    /// The time of the publication within the process. It is equal for all copies of the message.
    pub(super) message: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) owner: Owner,
    pub(super) client: EntityId,
    pub(super) sequence: i64,
    pub(super) time: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Response {
    pub(super) service: EntityId,
    pub(super) gid: Gid,
    pub(super) sequence: i64,
    pub(super) time: u64,
    pub(super) made_by: MadeBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MadeBy {
    Service,
    Later(InstanceId),
    Handed(HandId),
    Unknown,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum SpanEvent {
    Begin(Begin),
    End(End),
    OwnInput(OwnInput),
    /// An instance of a client ended within another instance, which waited for the response.
    Continue {
        instance: InstanceId,
        client: InstanceId,
        time: u64,
    },
    HandOver {
        work: HandedId,
        instance: InstanceId,
        time: u64,
    },
    /// The wake-up with this number began no execution on the woken thread. The callback therefore
    /// handed over no work.
    NotHanded {
        work: HandedId,
    },
    /// The instance passes on data within the process: work to be done later, or the result of
    /// earlier work.
    Hand {
        instance: InstanceId,
        hand: HandId,
        time: u64,
    },
    /// The instance has processed its input. The event of its end follows, with this time or a
    /// later one.
    InputDone {
        instance: InstanceId,
        time: u64,
    },
    Decided {
        decision: DecisionId,
        owner: Owner,
    },
    Publish(Publication),
    EndHold(EndHold),
    /// The publisher's last publication had no time stamp. Its publish call returned at `time` or
    /// earlier.
    PublishReturned {
        publisher: EntityId,
        time: u64,
    },
    Enqueue(Enqueue),
    Clear {
        subscription: EntityId,
    },
    Request(Request),
    Response(Response),
    ReadOnly {
        subscription: EntityId,
        source_ns: i64,
    },
    Synchronise {
        instance: InstanceId,
        filter: u64,
        approximate: bool,
        time: u64,
    },
}

impl SpanEvent {
    pub(super) fn owner(&self) -> Option<Owner> {
        match self {
            SpanEvent::Publish(Publication { owner, .. })
            | SpanEvent::Enqueue(Enqueue { owner, .. })
            | SpanEvent::Request(Request { owner, .. }) => Some(*owner),
            _ => None,
        }
    }

    pub(super) fn set_owner(&mut self, by: Owner) {
        match self {
            SpanEvent::Publish(Publication { owner, .. })
            | SpanEvent::Enqueue(Enqueue { owner, .. })
            | SpanEvent::Request(Request { owner, .. }) => *owner = by,
            _ => {}
        }
    }

    /// Returns the time of an event that waits until its cause or input is known. Returns `None`
    /// for other events.
    pub(super) fn since(&self) -> Option<u64> {
        match *self {
            SpanEvent::Begin(Begin {
                input: Input::Request { at, .. } | Input::Response { at, .. },
                ..
            }) => Some(at),
            SpanEvent::OwnInput(OwnInput { time, .. }) => Some(time),
            SpanEvent::Publish(Publication { time, .. })
            | SpanEvent::Enqueue(Enqueue { time, .. })
            | SpanEvent::Request(Request { time, .. }) => Some(time),
            _ => None,
        }
    }
}
