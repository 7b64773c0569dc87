//! The waits of threads: when a thread was ready or asleep within an execution, and which thread
//! caused it.

use super::Spans;
use crate::causes::{Move, Wait};
use crate::ids::{InstanceId, ThreadIndex};
use crate::named::HOST;
use crate::Context;
use onbeat_trace::UNTOLD;

const WAITS_MAX: usize = 1024;

const MOVES_PER_WAIT_MAX: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct ThreadWaits {
    /// The time from which on the thread is ready to run, and the CPU on which it was preempted.
    /// The CPU is `None` if the thread was woken up instead.
    ready: Option<(u64, Option<u16>)>,
    asleep: Option<u64>,
    moves: Vec<Move>,
    list: Vec<Wait>,
    /// The start of a nested execution on the thread. Waits before this time belong to the outer
    /// execution.
    from: u64,
}

impl ThreadWaits {
    fn push(&mut self, wait: Wait) {
        if self.list.len() < WAITS_MAX {
            self.list.push(wait);
        }
    }

    /// Records that the thread was woken up. `by` is the thread of the same process that woke it
    /// up, or 0 if something else did.
    pub(super) fn woken(&mut self, time: u64, by: u32) {
        self.ready = Some((time, None));
        if let Some(begin) = self.asleep.take() {
            self.push(Wait {
                begin,
                end: time.max(begin),
                by: if by == 0 { UNTOLD } else { by },
                asleep: true,
            });
        }
    }

    pub(super) fn stolen(&mut self, time: u64, stolen_ns: u64) {
        self.push(Wait {
            begin: time.saturating_sub(stolen_ns),
            end: time,
            by: HOST,
            asleep: false,
        });
    }

    pub(super) fn take_until(&mut self, time: u64) -> Option<Vec<Wait>> {
        let from = std::mem::take(&mut self.from);
        if self.list.is_empty() {
            return None;
        }
        let of_it = |w: &Wait| from <= w.begin && w.end <= time;
        let taken: Vec<Wait> = self.list.iter().copied().filter(of_it).collect();
        self.list.retain(|w| !of_it(w));
        (!taken.is_empty()).then_some(taken)
    }
}

impl Spans {
    pub(crate) fn take_waits(&mut self) -> impl Iterator<Item = (InstanceId, Vec<Wait>)> + '_ {
        self.ended_waits.drain(..)
    }

    pub(super) fn note_nested_start(&mut self, ti: ThreadIndex, start: u64) {
        let thread = &mut self.threads[ti];
        if !thread.outer().is_empty() {
            thread.waited.from = start;
        }
    }

    pub(crate) fn waited(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        (time, cpu): (u64, u16),
        prev_tid: u32,
    ) {
        let thread = &mut self.threads[ti];
        let tid = thread.id.tid;
        let waits = &mut thread.waited;
        if let Some(since) = waits.ready.take() {
            let to = (time, cpu, tid);
            let moves = std::mem::take(&mut waits.moves);
            let since = (since.0, since.1, &moves[..]);
            cx.causes
                .waited(since, to, prev_tid, |wait| waits.push(wait));
        }
        waits.moves.clear();
        cx.causes.record_switch(cpu, time, prev_tid, tid);
    }

    /// Records that the thread moves to another CPU while it waits for a CPU. `cpu` is the CPU
    /// whose queue it leaves.
    pub(crate) fn moved(&mut self, cx: &Context, ti: ThreadIndex, time: u64, cpu: u16) {
        let moves = &mut self.threads[ti].waited.moves;
        if moves.len() < MOVES_PER_WAIT_MAX {
            moves.push(cx.causes.moves(cpu, time));
        }
    }

    pub(crate) fn leaves(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        (time, cpu): (u64, u16),
        (state, next_tid): (u16, u32),
    ) {
        let thread = &mut self.threads[ti];
        let idle = thread.runs_nothing();
        let waits = &mut thread.waited;
        (waits.ready, waits.asleep) = (None, None);
        waits.moves.clear();
        if state == 0 {
            waits.ready = Some((time, Some(cpu)));
        } else if idle {
            // The thread waits for work, so earlier waits do not delay the next execution.
            waits.list.clear();
        } else {
            waits.asleep = Some(time);
        }
        cx.causes.record_switch(cpu, time, thread.id.tid, next_tid);
    }
}
