//! Observations: single executions and items, reported as synthesis finds them. Time lines are
//! drawn from them, and a running plan is checked by them.

use super::values::ThreadId;
use crate::chains::Steps;
use crate::index::{NameId, StepId, VertexId};

/// An execution, or an item on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// An execution of a callback, reported at its end.
    Execution {
        /// Number of the callback: index into [`Synth::callback_ids`](super::Synth::callback_ids).
        callback: u32,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Start, CLOCK_MONOTONIC.
        start_ns: u64,
        /// End, CLOCK_MONOTONIC.
        end_ns: u64,
        /// Time on the CPU in between.
        exec_ns: u64,
    },
    /// A callback published an item (or sent a request).
    Published {
        /// Number of the topic, see [`Synth::name`](super::Synth::name); with the time it
        /// identifies the item.
        name: u32,
        /// When, CLOCK_MONOTONIC.
        time_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
    },
    /// An item left a callback, or a callback that published nothing ended. Reported once for each
    /// path on which its data came, after [`Observation::Published`].
    Left {
        /// Number of the topic, see [`Synth::name`](super::Synth::name); none where nothing was
        /// published.
        name: Option<u32>,
        /// When it was published, or the callback ended, CLOCK_MONOTONIC.
        time_ns: u64,
        /// Its source time stamp (CLOCK_REALTIME), where the recording has it.
        source_ns: Option<i64>,
        /// The callbacks on the path, this one included: see [`Synth::path`](super::Synth::path).
        path: u32,
        /// Start of the path's first callback, CLOCK_MONOTONIC.
        start_ns: u64,
    },
    /// A callback starts on an item.
    Taken {
        /// Number of the item's topic, see [`Synth::name`](super::Synth::name).
        name: u32,
        /// When it was published, CLOCK_MONOTONIC.
        published_ns: u64,
        /// When the callback starts, CLOCK_MONOTONIC.
        start_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
    },
}

/// Keeps observations for an observer, if there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct Observer(Option<Vec<Observation>>);

impl Observer {
    /// The observations that nobody has taken out yet. They are kept from the first call on.
    pub(super) fn list(&mut self) -> &mut Vec<Observation> {
        self.0.get_or_insert_with(Vec::new)
    }

    fn push(&mut self, observation: impl FnOnce() -> Observation) {
        if let Some(list) = &mut self.0 {
            list.push(observation());
        }
    }

    /// A callback on a thread published under a name.
    pub(super) fn published(&mut self, thread: ThreadId, name: NameId, time_ns: u64) {
        self.push(|| Observation::Published {
            name: name.index() as u32,
            time_ns,
            pid: thread.pid,
            tid: thread.tid,
        });
    }

    /// Lineages that ended with the steps `last` left a callback with an output: its name, time and
    /// source time stamp.
    pub(super) fn left(
        &mut self,
        steps: &Steps,
        last: &[StepId],
        (name, time_ns, source_ns): (Option<NameId>, u64, Option<i64>),
    ) {
        let Some(list) = &mut self.0 else {
            return;
        };
        let first = last.iter().filter(|&&step| !steps.is_again(step));
        list.extend(first.map(|&step| Observation::Left {
            name: name.map(|n| n.index() as u32),
            time_ns,
            source_ns,
            path: steps.path(step).index() as u32,
            start_ns: steps.origin(step),
        }));
    }

    /// A callback starts on a thread, on an item of a name.
    pub(super) fn taken(
        &mut self,
        thread: ThreadId,
        name: NameId,
        published_ns: u64,
        start_ns: u64,
    ) {
        self.push(|| Observation::Taken {
            name: name.index() as u32,
            published_ns,
            start_ns,
            pid: thread.pid,
            tid: thread.tid,
        });
    }

    /// A callback's execution on a thread ended.
    pub(super) fn execution(
        &mut self,
        callback: VertexId,
        thread: ThreadId,
        (start_ns, end_ns): (u64, u64),
        exec_ns: u64,
    ) {
        self.push(|| Observation::Execution {
            callback: callback.index() as u32,
            pid: thread.pid,
            tid: thread.tid,
            start_ns,
            end_ns,
            exec_ns,
        });
    }
}
