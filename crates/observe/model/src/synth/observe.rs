//! Single executions and items, told as they are found: for those who draw time lines.

use super::events::Instance;
use super::spans::Why;
use super::{Owner, Synth};
use crate::index::{PathId, StepId};

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// An execution of a callback, told at its end.
    Execution {
        /// Number of the callback: index into [`Synth::callback_ids`].
        callback: u32,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Start, CLOCK_MONOTONIC.
        start_ns: u64,
        /// End.
        end_ns: u64,
        /// Time on the CPU in between.
        exec_ns: u64,
    },
    /// A callback published an item (or sent a request).
    Published {
        /// Number of the topic, see [`Synth::name`]; with the time it identifies the item.
        name: u32,
        /// When.
        time_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
    },
    /// An item left a callback, or a callback ended that brought none, and this is where its data
    /// came from: told once for each path on which data came, after [`Observation::Published`].
    Left {
        /// Number of the topic, see [`Synth::name`]; none where nothing was published.
        name: Option<u32>,
        /// When it was published, or the callback ended, CLOCK_MONOTONIC.
        time_ns: u64,
        /// Its source time stamp (CLOCK_REALTIME), where the recording has it.
        source_ns: Option<i64>,
        /// The callbacks on the way, this one included: see [`Synth::path`].
        path: u32,
        /// Start of the path's first callback.
        start_ns: u64,
    },
    /// A callback starts on an item.
    Taken {
        /// Number of the item's topic.
        name: u32,
        /// When it was published.
        published_ns: u64,
        /// When the callback starts.
        start_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
    },
}

impl Synth {
    /// From here on, keeps what it finds for [`Synth::drain_observations`], which is then to be called
    /// after every few events.
    pub fn observe(&mut self) {
        self.seen.get_or_insert_with(Vec::new);
    }

    /// What was found since the last call.
    pub fn drain_observations(&mut self) -> std::vec::Drain<'_, Observation> {
        self.seen.get_or_insert_with(Vec::new).drain(..)
    }

    /// Ends everything that still runs: no event follows.
    pub fn end_of_events(&mut self) {
        let now = self.now;
        for ti in 0..self.threads.len() {
            self.end_thread(ti, now, Why::Finish);
        }
        for p in 0..self.world.processes.len() {
            self.end_pending(p as u32);
        }
        self.drain(true);
        self.settle(now);
    }

    /// A topic's or service's name by its number (untrusted).
    pub fn name(&self, number: u32) -> &str {
        self.world.names.get(number)
    }

    /// The callbacks of a path, first to last: indices into [`Synth::callback_ids`].
    pub fn path(&self, path: u32) -> Vec<u32> {
        let vertices = self.paths.vertices(PathId::new(path as usize));
        vertices.into_iter().map(|v| v.index() as u32).collect()
    }

    fn saw(&mut self, seen: Observation) {
        if let Some(list) = &mut self.seen {
            list.push(seen);
        }
    }

    pub(super) fn saw_published(&mut self, owner: Owner, name: u32, time_ns: u64) {
        if let (true, Owner::Instance(i)) = (self.seen.is_some(), self.resolve(owner)) {
            let (pid, tid) = self.instances.get(i).thread;
            self.saw(Observation::Published {
                name,
                time_ns,
                pid,
                tid,
            });
        }
    }

    pub(super) fn saw_left(
        &mut self,
        steps: &[StepId],
        name: Option<u32>,
        time_ns: u64,
        source_ns: Option<i64>,
    ) {
        if self.seen.is_none() {
            return;
        }
        for &step in steps {
            self.saw(Observation::Left {
                name,
                time_ns,
                source_ns,
                path: self.steps.path(step).index() as u32,
                start_ns: self.steps.origin(step),
            });
        }
    }

    pub(super) fn saw_taken(&mut self, instance: u32, name: u32, published_ns: u64) {
        let it = self.instances.get(instance);
        let (start_ns, (pid, tid)) = (it.start, it.thread);
        self.saw(Observation::Taken {
            name,
            published_ns,
            start_ns,
            pid,
            tid,
        });
    }

    pub(super) fn saw_execution(&mut self, it: &Instance, end_ns: u64, exec_ns: u64) {
        let (pid, tid) = it.thread;
        self.saw(Observation::Execution {
            callback: it.vertex,
            pid,
            tid,
            start_ns: it.start,
            end_ns,
            exec_ns,
        });
    }
}
