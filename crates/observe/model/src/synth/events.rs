//! What the threads' view tells the data flow's view: facts.

use super::NONE;
use crate::chains::Lineages;

/// Who did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// This instance of a callback.
    Instance(u32),
    /// No callback.
    Outside,
    /// A callback that the model leaves out.
    Hidden,
    /// Not decided yet: the slot will say.
    Undecided(u32),
}

/// What a callback runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// Nothing that was seen.
    Unknown,
    /// A timer.
    Timer,
    /// A message with this source time stamp.
    Message { source_ns: i64 },
    /// The item in this place of the subscription's ring buffer.
    Ring { index: u64 },
    /// A request.
    Request {
        gid: [u8; 16],
        sequence: i64,
        at: u64,
    },
    /// A response.
    Response { sequence: i64, at: u64 },
}

/// An instance of a callback starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin {
    pub(super) instance: u32,
    pub(super) input: Input,
    /// The executor's last wait, from its start to the wake-up that ended it, if it slept.
    pub(super) idle: Option<(u64, u64)>,
    /// When the timer was due; 0 when unknown.
    pub(super) due: u64,
}

/// An instance of a callback ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) instance: u32,
    pub(super) time: u64,
    pub(super) spent: super::spans::Totals,
    pub(super) how: Ending,
    /// The thread: name, policy, priority.
    pub(super) thread: (u32, u8, u8),
    pub(super) cpus: [u64; 4],
    /// There were scheduler events of that thread.
    pub(super) scheduled: bool,
}

/// How an instance's end was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// By its own event.
    Exact,
    /// From what the executor did next.
    Inferred,
    /// The event of its end never came.
    Aborted,
    /// Its process or thread ended.
    CutOff,
    /// The recording ended.
    Unfinished,
}

/// One fact.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fact {
    Begin(Begin),
    End(End),
    /// The instance may have ended at this time; its end will tell.
    Over {
        instance: u32,
        time: u64,
    },
    Publish {
        owner: Owner,
        publisher: u32,
        time: u64,
        source_ns: Option<i64>,
        /// When the same message was published within the process, if it was.
        message: Option<u64>,
    },
    /// The call of the last publication without a time stamp lasted until then at most.
    PublishedBy {
        publisher: u32,
        time: u64,
    },
    Enqueue {
        owner: Owner,
        publisher: u32,
        subscription: u32,
        index: u64,
        time: u64,
        message: Option<u64>,
    },
    /// The ring buffer was emptied.
    Clear {
        subscription: u32,
    },
    Request {
        owner: Owner,
        client: u32,
        sequence: i64,
        time: u64,
    },
    Response {
        service: u32,
        gid: [u8; 16],
        sequence: i64,
        time: u64,
    },
    /// A message was read, but no callback ran on it.
    TakeOnly {
        subscription: u32,
        source_ns: i64,
    },
    /// The callback handed its input to a synchroniser.
    Sync {
        instance: u32,
        filter: u64,
        time: u64,
    },
}

impl Fact {
    /// Who published or sent.
    pub(super) fn owner(&self) -> Option<Owner> {
        match *self {
            Fact::Publish { owner, .. }
            | Fact::Enqueue { owner, .. }
            | Fact::Request { owner, .. } => Some(owner),
            _ => None,
        }
    }

    /// Tells who published or sent, once that is decided.
    pub(super) fn set_owner(&mut self, by: Owner) {
        match self {
            Fact::Publish { owner, .. }
            | Fact::Enqueue { owner, .. }
            | Fact::Request { owner, .. } => *owner = by,
            _ => {}
        }
    }

    /// When a fact that may be held for its own sake happened.
    pub(super) fn since(&self) -> Option<u64> {
        match *self {
            Fact::Begin(Begin {
                input: Input::Request { at, .. } | Input::Response { at, .. },
                ..
            }) => Some(at),
            Fact::Publish { time, .. }
            | Fact::Enqueue { time, .. }
            | Fact::Request { time, .. } => Some(time),
            _ => None,
        }
    }
}

/// A running instance of a callback.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instance {
    pub(super) entity: u32,
    pub(super) start: u64,
    /// Process and thread that run it.
    pub(super) thread: (u32, u32),
    /// NONE until its beginning has been applied.
    pub(super) vertex: u32,
    /// Start of its waiting.
    pub(super) ready: u64,
    pub(super) lineages: Lineages,
    /// Last publication: time and name.
    pub(super) output: Option<(u64, u32)>,
    /// When the input went to a synchroniser, and to which.
    pub(super) synchronised: Option<(u64, u64)>,
    /// Key of the request that a service serves.
    pub(super) call: Option<(u32, [u8; 16], i64)>,
    /// Number of its input among the inputs of a node's subscription.
    pub(super) entry: Option<u64>,
}

/// Running instances.
#[derive(Debug, Clone, Default)]
pub(super) struct Instances {
    list: Vec<Instance>,
    free: Vec<u32>,
}

impl Instances {
    pub(super) fn insert(&mut self, entity: u32, start: u64, thread: (u32, u32)) -> u32 {
        let instance = Instance {
            entity,
            start,
            thread,
            vertex: NONE,
            ready: start,
            lineages: Lineages::default(),
            output: None,
            synchronised: None,
            call: None,
            entry: None,
        };
        match self.free.pop() {
            Some(i) => {
                self.list[i as usize] = instance;
                i
            }
            None => {
                self.list.push(instance);
                (self.list.len() - 1) as u32
            }
        }
    }

    pub(super) fn get(&self, i: u32) -> &Instance {
        &self.list[i as usize]
    }

    pub(super) fn get_mut(&mut self, i: u32) -> &mut Instance {
        &mut self.list[i as usize]
    }

    pub(super) fn remove(&mut self, i: u32) {
        self.free.push(i);
    }
}
