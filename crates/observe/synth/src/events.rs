//! What `spans` tells `flow`: every event that concerns data, with the callback instance that
//! caused it.

use super::ids::{DecisionId, EntityId, HandId, HandedId, InstanceId};
use super::values::{Cpus, Gid, Idle, Release, ThreadId, ThreadProfile, Totals};

/// The cause of a publication or a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// This instance of a callback.
    Instance(InstanceId),
    /// No callback.
    Outside,
    /// A callback that the model leaves out.
    Hidden,
    /// One of several callbacks; which cannot be told.
    Untold,
    /// Not decided yet: [`SpanEvent::Decided`] follows.
    Undecided(DecisionId),
}

/// The input of a callback instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// No input was observed.
    Unknown,
    /// One of several inputs; which cannot be told.
    Untold,
    /// A timer.
    Timer,
    /// A message with this source time stamp.
    Message { source_ns: i64 },
    /// The item in this place of the subscription's ring buffer.
    Ring { index: u64 },
    /// A request, taken at `at`.
    Request { gid: Gid, sequence: i64, at: u64 },
    /// A response, taken at `at`.
    Response { sequence: i64, at: u64 },
    /// Work that a callback handed to the thread.
    Handed { work: HandedId },
    /// Work that an instance handed on.
    Made { hand: HandId },
}

/// An instance of a callback starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin {
    pub(super) instance: InstanceId,
    pub(super) entity: EntityId,
    pub(super) start: u64,
    pub(super) thread: ThreadId,
    pub(super) input: Input,
    /// The executor's last wait, if it slept in it.
    pub(super) idle: Option<Idle>,
    /// When the timer was due.
    pub(super) release: Release,
}

/// An instance of a callback ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) instance: InstanceId,
    pub(super) time: u64,
    /// Where the thread's time went from the instance's start to its end.
    pub(super) spent: Totals,
    pub(super) how: Ending,
    pub(super) profile: ThreadProfile,
    pub(super) cpus: Cpus,
    /// The recording has scheduler events of the thread.
    pub(super) scheduled: bool,
}

/// How an instance's end was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// By its own event.
    Exact,
    /// From the executor's next action.
    Inferred,
    /// It shared its stretch of the thread with others, so that it has no times of its own.
    Shared,
    /// It ran where no event shows it, so that it has no times.
    Unshown,
    /// It was left without the event of its end.
    Aborted,
    /// Its process or thread ended.
    CutOff,
    /// The recording ended.
    Unfinished,
}

impl Ending {
    /// Whether the instance ran to an end, and not to where something cut it off.
    pub(super) fn is_whole(self) -> bool {
        self.is_timed() || matches!(self, Ending::Shared | Ending::Unshown)
    }

    /// Whether it has times of its own.
    pub(super) fn is_timed(self) -> bool {
        matches!(self, Ending::Exact | Ending::Inferred)
    }
}

/// A running instance takes one more input itself, by `take()` and the like.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnInput {
    pub(super) instance: InstanceId,
    /// What it takes from.
    pub(super) entity: EntityId,
    pub(super) input: Input,
    pub(super) time: u64,
}

/// A message published through the middleware.
#[derive(Debug, Clone, Copy)]
pub(super) struct Publication {
    pub(super) owner: Owner,
    pub(super) publisher: EntityId,
    pub(super) time: u64,
    /// Absent in Humble's recordings.
    pub(super) source_ns: Option<i64>,
    /// When the same message was published within the process, if it was.
    pub(super) message: Option<u64>,
}

/// A message put into a subscription's ring buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Enqueue {
    pub(super) owner: Owner,
    pub(super) publisher: Option<EntityId>,
    pub(super) subscription: EntityId,
    /// Its place in the ring buffer.
    pub(super) index: u64,
    pub(super) time: u64,
    /// When the message was published within the process: equal for its copies.
    pub(super) message: Option<u64>,
}

/// A request sent by a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) owner: Owner,
    pub(super) client: EntityId,
    pub(super) sequence: i64,
    pub(super) time: u64,
}

/// A response sent by a service.
#[derive(Debug, Clone, Copy)]
pub(super) struct Response {
    pub(super) service: EntityId,
    pub(super) gid: Gid,
    pub(super) sequence: i64,
    pub(super) time: u64,
    pub(super) made_by: MadeBy,
}

/// What made the content of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MadeBy {
    /// The service's callback.
    Service,
    /// Another callback, which handed it on.
    Handed(HandId),
    /// One of several others.
    Unknown,
}

/// An event that concerns data, with its cause.
#[derive(Debug, Clone, Copy)]
pub(super) enum SpanEvent {
    Begin(Begin),
    End(End),
    OwnInput(OwnInput),
    /// A client's instance ended within another one, which waited for the response.
    Continue {
        instance: InstanceId,
        client: InstanceId,
        time: u64,
    },
    /// A running instance wakes up a thread, or makes it: perhaps to hand work to it.
    HandOver {
        work: HandedId,
        instance: InstanceId,
        time: u64,
    },
    /// Nothing begins with that.
    NotHanded {
        work: HandedId,
    },
    /// The instance hands something on within the process: work to do, or the result of work.
    Hand {
        instance: InstanceId,
        hand: HandId,
        time: u64,
    },
    /// The instance may have ended at this time: its end follows, with this time or a later one.
    InputDone {
        instance: InstanceId,
        time: u64,
    },
    /// Who [`Owner::Undecided`] is.
    Decided {
        decision: DecisionId,
        owner: Owner,
    },
    Publish(Publication),
    /// The publisher's last publishing call, without a time stamp, lasted until then at most.
    PublishReturned {
        publisher: EntityId,
        time: u64,
    },
    Enqueue(Enqueue),
    /// The ring buffer was emptied.
    Clear {
        subscription: EntityId,
    },
    Request(Request),
    Response(Response),
    /// A message was read, but no callback ran on it.
    ReadOnly {
        subscription: EntityId,
        source_ns: i64,
    },
    /// The callback handed its input to a synchroniser.
    Synchronise {
        instance: InstanceId,
        filter: u64,
        /// It joins by approximate time.
        approximate: bool,
        time: u64,
    },
}

impl SpanEvent {
    /// The cause of a publication or a request.
    pub(super) fn owner(&self) -> Option<Owner> {
        match self {
            SpanEvent::Publish(Publication { owner, .. })
            | SpanEvent::Enqueue(Enqueue { owner, .. })
            | SpanEvent::Request(Request { owner, .. }) => Some(*owner),
            _ => None,
        }
    }

    /// Sets the cause, once that is decided.
    pub(super) fn set_owner(&mut self, by: Owner) {
        match self {
            SpanEvent::Publish(Publication { owner, .. })
            | SpanEvent::Enqueue(Enqueue { owner, .. })
            | SpanEvent::Request(Request { owner, .. }) => *owner = by,
            _ => {}
        }
    }

    /// When an event happened that may be deferred for its own sake.
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
