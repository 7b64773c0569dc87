//! A thread: its times, the state of its executor, and the span that runs on it.

use super::account::{Account, Mark};
use super::continuation::Continuation;
use super::own::OwnThread;
use super::span::CallbackSpan;
use super::waits::ThreadWaits;
use super::worker::Sleeps;
use crate::entities::Creation;
use crate::helpers::HelperCandidate;
use crate::ids::{EntityId, ProcessIndex, ThreadIndex};
use crate::running_median::RunningMedian;
use crate::values::{Idle, Release, ThreadId, ThreadProfile};
use rustc_hash::FxHashMap;
use std::ops::{Index, IndexMut};

#[derive(Debug, Clone, Copy)]
pub(super) enum Phase {
    Waiting {
        from: u64,
        woken: Option<u64>,
    },
    /// The executor works. `after` is the executor's last wait for work, if the thread slept in
    /// that wait.
    Working {
        after: Option<Idle>,
    },
}

impl Phase {
    pub(super) fn leave_wait(&mut self) {
        if let Phase::Waiting { from, woken } = *self {
            let after = woken.map(|woken| Idle { from, woken });
            *self = Phase::Working { after };
        }
    }

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

/// The code that runs on a thread. There are few threads, so the variants are not boxed.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, Default)]
pub(super) enum Running {
    #[default]
    Nothing,
    Callback(CallbackSpan),
    Continuation(Continuation),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Stack {
    top: Running,
    /// Callbacks that wait for a nested one, outermost first. Allocates no memory until a callback
    /// takes items or runs an executor itself.
    outer: Vec<CallbackSpan>,
    pub(super) own: OwnThread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    Other,
    /// The thread runs an executor of rclcpp, whose callbacks have events of their own.
    Rclcpp {
        client_call: bool,
    },
}

#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    pub(super) last_trigger: Option<Mark>,
    /// The recording has shown the executor between two callbacks. Until then, it is uncertain
    /// whether a single trigger comes before a callback, and whether the first take is made within
    /// a callback.
    pub(super) shown: bool,
    pub(super) executions_ns: u64,
    /// The number of wait sets that the thread has made. rclpy makes one per round. Other executors
    /// use their wait sets again.
    pub(super) sets: u8,
    /// The executor's last recorded call: a trigger, a read, or the beginning of a wait.
    pub(super) last_act: Option<Mark>,
    /// The executor's own CPU time from the last trigger of a round to the next wait set. Only
    /// rounds in which nothing waited for a response count.
    pub(super) overhead: RunningMedian,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Calls {
    /// The handle of the publisher and the address of the message in the last `rcl_publish`.
    pub(super) rcl_publish: (u64, u64),
    pub(super) intra_publisher: Option<EntityId>,
    /// The time of the last publication within the process. Reset when the same message is
    /// published through the middleware.
    pub(super) intra_publish: Option<u64>,
    /// The publisher whose last item has no time stamp and whose publish call may still run.
    pub(super) unstamped: Option<EntityId>,
    /// The publisher with which a callback last published an action's state, and how often the
    /// executor has triggered its guard condition since then.
    pub(super) goal_state: Option<(EntityId, u8)>,
    /// The thread's CPU time in ns when the executor looked for ready entities. `None` if another
    /// call of the thread was recorded since.
    pub(super) ready: Option<u64>,
    /// The value of `ready` before the call that is being processed. `ready` is the CPU time at
    /// which the executor last looked for ready entities.
    pub(super) before: Option<u64>,
    /// The guard condition that rclpy's executor triggered after its wake-up and before any take,
    /// and the thread's CPU time in ns at this trigger.
    pub(super) woke: Option<(u64, u64)>,
    /// The current take is the first recorded call of a thread that ran before the recording.
    pub(super) first: bool,
    pub(super) timer_calls: u8,
    /// Late attach: the thread may still run a callback that began before the recording. Reset when
    /// the thread's executor makes its next call.
    pub(super) unseen: bool,
    pub(super) creation: Creation,
    pub(super) called: CalledTimers,
}

/// The timers that the thread has called since its last wait and whose callbacks have not started
/// yet, oldest first. An executor may first call all timers that are due, and then run their
/// callbacks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CalledTimers {
    len: u8,
    timers: [Option<(EntityId, Release)>; CALLED_MAX],
}

const CALLED_MAX: usize = 8;

impl CalledTimers {
    pub(super) fn push(&mut self, timer: EntityId, release: Release) {
        if let Some(place) = self.timers.get_mut(usize::from(self.len)) {
            *place = Some((timer, release));
            self.len += 1;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = EntityId> + '_ {
        self.timers.iter().flatten().map(|called| called.0)
    }

    pub(super) fn take(&mut self, timer: EntityId) -> Option<Release> {
        let is_it = |called: &Option<(EntityId, Release)>| called.is_some_and(|c| c.0 == timer);
        let at = self.timers.iter().position(is_it)?;
        let called = self.timers[at].take();
        self.timers[at..].rotate_left(1);
        self.len -= 1;
        called.map(|c| c.1)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Thread {
    pub(super) id: ThreadId,
    pub(super) process: ProcessIndex,
    pub(super) profile: ThreadProfile,
    pub(super) account: Account,
    pub(super) library: Library,
    /// The thread waits for work itself, so it is not a worker of a pool.
    pub(super) waits: bool,
    /// The thread asks for work, by `rcl_wait` or in rclcpp's loop. An executor of events never
    /// asks for work.
    pub(super) asks_for_work: bool,
    pub(super) phase: Phase,
    pub(super) running: Stack,
    pub(super) sleeps: Sleeps,
    pub(super) waited: ThreadWaits,
    pub(super) rounds: Rounds,
    pub(super) calls: Calls,
    pub(super) candidate: HelperCandidate,
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
            asks_for_work: false,
            phase: Phase::Working { after: None },
            running: Stack::default(),
            sleeps: Sleeps::default(),
            waited: ThreadWaits::default(),
            rounds: Rounds::default(),
            calls: Calls::default(),
            candidate: HelperCandidate::default(),
        }
    }

    pub(super) fn is_rclcpp(&self) -> bool {
        matches!(self.library, Library::Rclcpp { .. })
    }

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

    pub(super) fn runs_nothing(&self) -> bool {
        matches!(self.running.top, Running::Nothing) && self.running.outer.is_empty()
    }

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

#[derive(Debug, Clone, Default)]
pub(super) struct Threads {
    list: Vec<Thread>,
    of_tid: FxHashMap<u32, ThreadIndex>,
    free: Vec<ThreadIndex>,
}

impl Threads {
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

    /// Makes the thread id free for another thread. The entry of the old thread stays in use until
    /// [`Threads::release`].
    pub(super) fn remove(&mut self, tid: u32) -> Option<ThreadIndex> {
        self.of_tid.remove(&tid)
    }

    pub(super) fn release(&mut self, ti: ThreadIndex) {
        self.free.push(ti);
    }

    pub(super) fn tids(&self, pid: u32) -> Vec<u32> {
        let of_pid = self.of_tid.iter().filter(|(_, &ti)| self[ti].id.pid == pid);
        of_pid.map(|(&tid, _)| tid).collect()
    }

    pub(super) fn alive(&self) -> impl Iterator<Item = &Thread> {
        self.of_tid.values().map(|&ti| &self[ti])
    }

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
