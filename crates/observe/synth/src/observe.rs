//! Observations: single executions and items, reported as synthesis finds them. Time lines are
//! drawn from them, and a running plan is checked by them.

use super::flow::{Instance, Lineage};
use super::values::ThreadId;
use super::Synth;
use crate::index::{NameId, PathId, StepId, VertexId};

/// An execution, or an item on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// An execution of a callback, reported at its end.
    Execution {
        /// Number of the callback: index into [`Synth::callback_ids`].
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
        /// Number of the topic, see [`Synth::name`]; with the time it identifies the item.
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
        /// Number of the topic, see [`Synth::name`]; none where nothing was published.
        name: Option<u32>,
        /// When it was published, or the callback ended, CLOCK_MONOTONIC.
        time_ns: u64,
        /// Its source time stamp (CLOCK_REALTIME), where the recording has it.
        source_ns: Option<i64>,
        /// The callbacks on the path, this one included: see [`Synth::path`].
        path: u32,
        /// Start of the path's first callback, CLOCK_MONOTONIC.
        start_ns: u64,
    },
    /// A callback starts on an item.
    Taken {
        /// Number of the item's topic, see [`Synth::name`].
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
    fn list(&mut self) -> &mut Vec<Observation> {
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

    /// Lineages left a callback with an output: its name, time and source time stamp.
    pub(super) fn left(
        &mut self,
        lineage: &Lineage,
        steps: &[StepId],
        (name, time_ns, source_ns): (Option<NameId>, u64, Option<i64>),
    ) {
        let Some(list) = &mut self.0 else {
            return;
        };
        let first = steps.iter().filter(|&&step| !lineage.steps.is_again(step));
        list.extend(first.map(|&step| Observation::Left {
            name: name.map(|n| n.index() as u32),
            time_ns,
            source_ns,
            path: lineage.steps.path(step).index() as u32,
            start_ns: lineage.steps.origin(step),
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

    /// An instance ended.
    pub(super) fn execution(&mut self, it: &Instance, end_ns: u64, exec_ns: u64) {
        self.push(|| Observation::Execution {
            callback: it.vertex.index() as u32,
            pid: it.thread.pid,
            tid: it.thread.tid,
            start_ns: it.start,
            end_ns,
            exec_ns,
        });
    }
}

impl Synth {
    /// From here on, keeps observations for [`Synth::drain_observations`], which is then to be
    /// called after every few events.
    pub fn observe(&mut self) {
        self.flow.observer.list();
    }

    /// The observations since the last call.
    pub fn drain_observations(&mut self) -> std::vec::Drain<'_, Observation> {
        self.flow.observer.list().drain(..)
    }

    /// A topic's or service's name by its number (untrusted).
    pub fn name(&self, number: u32) -> &str {
        self.cx.entities.names.get(NameId::new(number as usize))
    }

    /// Whether chains begin with a callback, by its number, though others give it its data.
    pub fn begin_chains(&mut self, callback: u32, begins: bool) {
        self.flow
            .graph
            .set_cut(VertexId::new(callback as usize), begins);
    }

    /// The callbacks of a path, first to last: indices into [`Synth::callback_ids`].
    pub fn path(&self, path: u32) -> Vec<u32> {
        let paths = &self.flow.lineage.paths;
        let vertices = paths.vertices(PathId::new(path as usize));
        vertices.into_iter().map(|v| v.index() as u32).collect()
    }
}
