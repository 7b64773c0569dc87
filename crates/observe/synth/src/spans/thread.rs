//! A thread: its account, what its executor does, and which span it is in.

use super::account::{Account, Mark};
use super::continuation::Continuation;
use super::own::Own;
use super::span::CallbackSpan;
use super::waits::ThreadWaits;
use super::worker::Sleeps;
use crate::entities::Creation;
use crate::helpers::Quiet;
use crate::ids::{EntityId, ProcessIndex, ThreadIndex};
use crate::running_median::RunningMedian;
use crate::values::{Idle, ThreadId, ThreadProfile};
use rustc_hash::FxHashMap;
use std::ops::{Index, IndexMut};

/// What a thread's executor does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Phase {
    /// It waits in `rcl_wait`.
    Waiting {
        from: u64,
        /// When the thread was last woken, if it slept.
        woken: Option<u64>,
    },
    /// It works, after a last wait in which it may have slept.
    Working { after: Option<Idle> },
}

impl Phase {
    /// The executor goes on: a wait is over.
    pub(super) fn leave_wait(&mut self) {
        if let Phase::Waiting { from, woken } = *self {
            let after = woken.map(|woken| Idle { from, woken });
            *self = Phase::Working { after };
        }
    }

    /// The last wait, if the thread slept in it and it is over.
    pub(super) fn idle(&self) -> Option<Idle> {
        match *self {
            Phase::Waiting { .. } => None,
            Phase::Working { after } => after,
        }
    }

    pub(super) fn set_woken(&mut self, time: Option<u64>) {
        if let Phase::Waiting { woken, .. } = self {
            *woken = time;
        }
    }
}

/// What runs on a thread, of which there are few: no box.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, Default)]
pub(super) enum Running {
    /// No callback that is known.
    #[default]
    Nothing,
    /// A callback, exact or inferred.
    Callback(CallbackSpan),
    /// Code that waited for a response, in rclpy.
    Continuation(Continuation),
}

/// What runs on a thread, and what that runs within.
#[derive(Debug, Clone, Default)]
pub(super) struct Stack {
    top: Running,
    /// Callbacks that wait for what runs within them, outermost first. Without memory of its own
    /// until a callback takes items or runs an executor itself.
    outer: Vec<CallbackSpan>,
    /// What it does if no executor runs on it.
    pub(super) own: Own,
}

/// The client library of a thread, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    /// rclpy, or plain rcl.
    Other,
    /// rclcpp, whose callbacks have events of their own.
    Rclcpp {
        /// Inside `execute_client`.
        client_call: bool,
    },
}

/// rclpy's rounds on a thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    /// The last trigger of a guard condition.
    pub(super) last_trigger: Option<Mark>,
    /// Its executor was seen between two callbacks. A single trigger may be that before a
    /// callback, and what is taken first may be taken by one.
    pub(super) shown: bool,
    /// Time on the CPU of all executions that ended on the thread.
    pub(super) ended_ns: u64,
    /// Wait sets that the thread has made: other executors than rclpy's keep theirs.
    pub(super) sets: u8,
    /// What the executor last did: a trigger, a read, or a wait that began.
    pub(super) last_act: Option<Mark>,
    /// Time on the CPU from the last trigger of a round to the next wait set, in rounds in which
    /// nothing waited for a response: the executor's own part.
    pub(super) overhead: RunningMedian,
}

/// Calls of a thread that a later call of it refers to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Calls {
    /// Last `rcl_publish`: publisher's handle and message.
    pub(super) rcl_publish: (u64, u64),
    /// Publisher of the last intra-process publication.
    pub(super) intra_publisher: Option<EntityId>,
    /// When that was, until a publication through the middleware takes it up.
    pub(super) intra_publish: Option<u64>,
    /// Publisher whose last item has no time stamp and whose publish call may still run.
    pub(super) unstamped: Option<EntityId>,
    /// Last publication of an action's state in a callback, and triggers since.
    pub(super) goal_state: Option<(EntityId, u8)>,
    /// The thread's last act was to look for what is ready: its time on the CPU then.
    pub(super) ready: Option<u64>,
    /// The same before the act of now.
    pub(super) before: Option<u64>,
    /// rclpy's executor woke up and triggered a guard before it took anything: which one, and the
    /// time on the CPU then.
    pub(super) woke: Option<(u64, u64)>,
    /// What is taken now is the first that is seen of a thread that ran before the recording.
    pub(super) first: bool,
    /// How many timers it has called.
    pub(super) timers: u8,
    /// Late attach: until its executor goes on, the thread may run what began before the recording.
    pub(super) unseen: bool,
    /// What is to be created next.
    pub(super) creation: Creation,
}

/// A thread.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    pub(super) id: ThreadId,
    pub(super) process: ProcessIndex,
    pub(super) profile: ThreadProfile,
    pub(super) account: Account,
    pub(super) library: Library,
    /// It waits for work itself, so it is no worker of a pool.
    pub(super) waits: bool,
    /// It asks for work, by `rcl_wait` or in rclcpp's loop; an executor of events never does.
    pub(super) asks: bool,
    pub(super) phase: Phase,
    pub(super) running: Stack,
    pub(super) sleeps: Sleeps,
    pub(super) waited: ThreadWaits,
    pub(super) rounds: Rounds,
    pub(super) calls: Calls,
    /// What it does as long as it makes no call.
    pub(super) quiet: Quiet,
}

impl Thread {
    fn new(id: ThreadId, process: ProcessIndex, time: u64) -> Self {
        Thread {
            id,
            process,
            profile: ThreadProfile {
                comm: None,
                policy: None,
                priority: 0,
            },
            account: Account::new(time),
            library: Library::Other,
            waits: false,
            asks: false,
            phase: Phase::Working { after: None },
            running: Stack::default(),
            sleeps: Sleeps::default(),
            waited: ThreadWaits::default(),
            rounds: Rounds::default(),
            calls: Calls::default(),
            quiet: Quiet::default(),
        }
    }

    pub(super) fn is_rclcpp(&self) -> bool {
        matches!(self.library, Library::Rclcpp { .. })
    }

    /// The callback span, if the thread is in one.
    pub(super) fn span(&self) -> Option<&CallbackSpan> {
        match &self.running.top {
            Running::Callback(span) => Some(span),
            _ => None,
        }
    }

    pub(super) fn span_mut(&mut self) -> Option<&mut CallbackSpan> {
        match &mut self.running.top {
            Running::Callback(span) => Some(span),
            _ => None,
        }
    }

    /// Takes the callback span out.
    pub(super) fn take_span(&mut self) -> Option<CallbackSpan> {
        if !matches!(self.running.top, Running::Callback(_)) {
            return None;
        }
        match std::mem::take(&mut self.running.top) {
            Running::Callback(span) => Some(span),
            _ => None,
        }
    }

    pub(super) fn put_span(&mut self, span: CallbackSpan) {
        self.running.top = Running::Callback(span);
    }

    /// Whether no callback is known to run or to wait on it.
    pub(super) fn runs_nothing(&self) -> bool {
        matches!(self.running.top, Running::Nothing) && self.running.outer.is_empty()
    }

    /// Callbacks within which the span runs, outermost first.
    pub(super) fn outer(&self) -> &[CallbackSpan] {
        &self.running.outer
    }

    pub(super) fn outer_mut(&mut self) -> &mut Vec<CallbackSpan> {
        &mut self.running.outer
    }

    pub(super) fn continuation(&self) -> Option<&Continuation> {
        match &self.running.top {
            Running::Continuation(continuation) => Some(continuation),
            _ => None,
        }
    }

    pub(super) fn continuation_mut(&mut self) -> Option<&mut Continuation> {
        match &mut self.running.top {
            Running::Continuation(continuation) => Some(continuation),
            _ => None,
        }
    }

    pub(super) fn put_continuation(&mut self, continuation: Continuation) {
        self.running.top = Running::Continuation(continuation);
    }

    /// Takes the continuation out.
    pub(super) fn take_continuation(&mut self) -> Option<Continuation> {
        if !matches!(self.running.top, Running::Continuation(_)) {
            return None;
        }
        match std::mem::take(&mut self.running.top) {
            Running::Continuation(continuation) => Some(continuation),
            _ => None,
        }
    }
}

/// The threads that live, and the free places of those that ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Threads {
    list: Vec<Thread>,
    of_tid: FxHashMap<u32, ThreadIndex>,
    free: Vec<ThreadIndex>,
}

impl Threads {
    /// The thread of a tid.
    pub(super) fn of_tid(&self, tid: u32) -> Option<ThreadIndex> {
        self.of_tid.get(&tid).copied()
    }

    pub(super) fn insert(&mut self, id: ThreadId, process: ProcessIndex, time: u64) -> ThreadIndex {
        let thread = Thread::new(id, process, time);
        let ti = match self.free.pop() {
            Some(ti) => {
                self[ti] = thread;
                ti
            }
            None => {
                self.list.push(thread);
                ThreadIndex::new(self.list.len() - 1)
            }
        };
        self.of_tid.insert(id.tid, ti);
        ti
    }

    /// Forgets which thread a tid is. Its place stays in use until [`Threads::release`].
    pub(super) fn remove(&mut self, tid: u32) -> Option<ThreadIndex> {
        self.of_tid.remove(&tid)
    }

    pub(super) fn release(&mut self, ti: ThreadIndex) {
        self.free.push(ti);
    }

    /// The tids of a process.
    pub(super) fn tids(&self, pid: u32) -> Vec<u32> {
        let of_pid = self.of_tid.iter().filter(|(_, &ti)| self[ti].id.pid == pid);
        of_pid.map(|(&tid, _)| tid).collect()
    }

    /// All places, those of threads that ended included.
    pub(super) fn all(&self) -> impl Iterator<Item = ThreadIndex> {
        (0..self.list.len()).map(ThreadIndex::new)
    }
}

impl Index<ThreadIndex> for Threads {
    type Output = Thread;
    fn index(&self, ti: ThreadIndex) -> &Thread {
        &self.list[ti.index()]
    }
}

impl IndexMut<ThreadIndex> for Threads {
    fn index_mut(&mut self, ti: ThreadIndex) -> &mut Thread {
        &mut self.list[ti.index()]
    }
}
