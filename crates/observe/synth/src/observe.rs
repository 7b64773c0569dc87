//! Reports single executions and items as synthesis finds them. Time lines are drawn from these
//! observations, and `shape` checks a running plan with them.

use super::values::ThreadId;
use crate::chains::Steps;
use crate::index::{NameId, StepId, VertexId};

/// Something that synthesis reports while it processes events: an execution, or an item on its way.
///
/// Times are CLOCK_MONOTONIC. `pid` and `tid` are the ids of the process and of the thread that ran
/// the callback or published. `callback` is an index into
/// [`Synth::callback_ids`](super::Synth::callback_ids). `name` is the number of a topic, for
/// [`Synth::name`](super::Synth::name).
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    Execution {
        callback: u32,
        pid: u32,
        tid: u32,
        start_ns: u64,
        end_ns: u64,
        /// The time on the CPU between start and end, or `None` if the recording does not show it.
        exec_ns: Option<u64>,
    },
    /// A callback published an item or sent a request. The topic and the time together identify the
    /// item.
    Published {
        name: u32,
        time_ns: u64,
        pid: u32,
        tid: u32,
    },
    /// An item left a callback, or a callback that published nothing ended. If the item's data came
    /// on several paths, this is reported once for each path, after [`Observation::Published`].
    Left {
        /// The number of the topic, or `None` if the callback published nothing.
        name: Option<u32>,
        /// The time of the publication or of the callback's end, CLOCK_MONOTONIC.
        time_ns: u64,
        /// The source time stamp of the item (CLOCK_REALTIME), or `None` if the recording lacks it.
        source_ns: Option<i64>,
        /// The number of the path, for [`Synth::path`](super::Synth::path). The path includes the
        /// callback that published.
        path: u32,
        /// The start of the path's first callback, CLOCK_MONOTONIC.
        start_ns: u64,
    },
    Taken {
        name: u32,
        published_ns: u64,
        start_ns: u64,
        pid: u32,
        tid: u32,
    },
}

#[derive(Debug, Clone, Default)]
pub(super) struct Observer {
    list: Option<Vec<Observation>>,
    only_executions: bool,
}

impl Observer {
    /// Returns the observations that have not been taken yet. Observations are kept from the first
    /// call on.
    pub(super) fn list(&mut self) -> &mut Vec<Observation> {
        self.list.get_or_insert_with(Vec::new)
    }

    pub(super) fn list_executions(&mut self) {
        self.list();
        self.only_executions = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.as_ref().is_none_or(Vec::is_empty)
    }

    fn all(&mut self) -> Option<&mut Vec<Observation>> {
        self.list.as_mut().filter(|_| !self.only_executions)
    }

    fn push(&mut self, observation: impl FnOnce() -> Observation) {
        if let Some(list) = self.all() {
            list.push(observation());
        }
    }

    pub(super) fn published(&mut self, thread: ThreadId, name: NameId, time_ns: u64) {
        self.push(|| Observation::Published {
            name: name.index() as u32,
            time_ns,
            pid: thread.pid,
            tid: thread.tid,
        });
    }

    /// Reports an output of a callback once for each lineage. `last` contains the last step of each
    /// lineage. The triple contains the output's name, time and source time stamp.
    pub(super) fn left(
        &mut self,
        steps: &Steps,
        last: &[StepId],
        (name, time_ns, source_ns): (Option<NameId>, u64, Option<i64>),
    ) {
        let Some(list) = self.all() else {
            return;
        };
        let first = last.iter().filter(|&&step| !steps.is_reread(step));
        list.extend(first.map(|&step| Observation::Left {
            name: name.map(|n| n.index() as u32),
            time_ns,
            source_ns,
            path: steps.path(step).index() as u32,
            start_ns: steps.origin(step),
        }));
    }

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

    pub(super) fn execution(
        &mut self,
        callback: VertexId,
        thread: ThreadId,
        (start_ns, end_ns): (u64, u64),
        exec_ns: Option<u64>,
    ) {
        if let Some(list) = &mut self.list {
            list.push(Observation::Execution {
                callback: callback.index() as u32,
                pid: thread.pid,
                tid: thread.tid,
                start_ns,
                end_ns,
                exec_ns,
            });
        }
    }
}
