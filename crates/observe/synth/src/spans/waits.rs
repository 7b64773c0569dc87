//! When a thread did not run, though it could or had begun something, and who is why.

use super::Spans;
use crate::causes::{Wait, HOST};
use crate::ids::{InstanceId, ThreadIndex};
use crate::Context;
use onbeat_trace::UNTOLD;

/// Waits of a thread that are kept until an execution ends; what comes after is not told.
const KEPT: usize = 1024;

/// What a thread waits for, and the waits since its last execution ended.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadWaits {
    /// Ready since then; on this CPU, if it was preempted.
    ready: Option<(u64, Option<u16>)>,
    /// Asleep within an execution since then.
    asleep: Option<u64>,
    list: Vec<Wait>,
    /// Waits before this time are another execution's, within which this one runs.
    from: u64,
}

impl ThreadWaits {
    fn push(&mut self, wait: Wait) {
        if self.list.len() < KEPT {
            self.list.push(wait);
        }
    }

    /// The thread is woken up, by another one of its process where `by` is not 0.
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

    /// The hypervisor took time from the thread.
    pub(super) fn stolen(&mut self, time: u64, stolen_ns: u64) {
        self.push(Wait {
            begin: time.saturating_sub(stolen_ns),
            end: time,
            by: HOST,
            asleep: false,
        });
    }

    /// Takes out the waits up to the end of an execution. None where there were none.
    pub(super) fn until(&mut self, time: u64) -> Option<Vec<Wait>> {
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
    /// The waits of instances that ended since the last call.
    pub(crate) fn take_waits(&mut self) -> impl Iterator<Item = (InstanceId, Vec<Wait>)> + '_ {
        self.waited.drain(..)
    }

    /// The execution that ends began at this time: within another one, waits before it are that one's.
    pub(super) fn within(&mut self, ti: ThreadIndex, start: u64) {
        let thread = &mut self.threads[ti];
        if !thread.outer().is_empty() {
            thread.waited.from = start;
        }
    }

    /// The thread gets a CPU, after another one: who had it while it waited.
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
            cx.causes
                .waited(since, to, prev_tid, |wait| waits.push(wait));
        }
        cx.causes.switch(cpu, time, prev_tid, tid);
    }

    /// The thread leaves its CPU to another one.
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
        if state == 0 {
            waits.ready = Some((time, Some(cpu)));
        } else if idle {
            // It waits for work: what was before delays nothing that follows.
            waits.list.clear();
        } else {
            waits.asleep = Some(time);
        }
        cx.causes.switch(cpu, time, thread.id.tid, next_tid);
    }
}
